//! What is missing at the end of a turn that was cut off: by the end of the process, a full disk, a stuck tool.
//!
//! Pure. Of the events that are in the log it makes those that close what they opened, so that a
//! reader never waits for the end of something that has no one left to end it.

use crate::protocol::{ErrorBody, Event, EventBody, RequestId, SessionId, TurnId, VerdictSource, of_tree};
use crate::store::{Store, StoreError};

use super::tally::Tally;

/// Events that are read at once.
const PAGE: usize = 1_000;

/// Who asked: a call for permission, or a tool or hook for an answer.
#[derive(Debug, Clone)]
enum Asked {
    Permission(String),
    Client(Option<String>),
}

/// What a turn's events add up to, and what they leave open.
#[derive(Debug, Default)]
pub(super) struct Remains {
    questions: Vec<(RequestId, Asked)>,
    calls: Vec<(String, String)>,
    /// The text so far of a stream that has not ended.
    stream: Option<String>,
    in_loop: bool,
    /// A summary is being made.
    compacting: bool,
    /// What they add up to.
    pub(super) tally: Tally,
}

impl Remains {
    /// Reads what the log has of a turn that began with event `first_seq`.
    ///
    /// # Errors
    /// What the store says.
    pub(super) async fn read(
        store: &dyn Store,
        session: &SessionId,
        turn: &TurnId,
        first_seq: u64,
    ) -> Result<Self, StoreError> {
        Self::read_to(store, session, turn, (first_seq, u64::MAX)).await
    }

    /// The same up to event `last`.
    ///
    /// # Errors
    /// What the store says.
    pub(super) async fn read_to(
        store: &dyn Store,
        session: &SessionId,
        turn: &TurnId,
        (first, last): (u64, u64),
    ) -> Result<Self, StoreError> {
        let mut remains = Self::default();
        let mut after = first.saturating_sub(1);
        while after < last {
            let events = store.events(session, after, PAGE).await?;
            let Some(newest) = events.last() else { break };
            after = newest.seq;
            for event in events.iter().filter(|e| e.turn_id.as_ref() == Some(turn) && e.seq <= last) {
                remains.push(event);
            }
        }
        Ok(remains)
    }

    fn push(&mut self, event: &Event) {
        if let Some(body) = event.body() {
            self.take(&body);
        }
    }

    fn take(&mut self, body: &EventBody) {
        self.tally.push(body);
        match body {
            EventBody::LoopStart {} => self.in_loop = true,
            EventBody::LoopComplete { .. } => self.in_loop = false,
            EventBody::CompactionStart { .. } => self.compacting = true,
            EventBody::CompactionComplete { .. } | EventBody::CompactionFailed { .. } => self.compacting = false,
            EventBody::StreamStart {} | EventBody::StreamRetry { .. } => self.stream = Some(String::new()),
            EventBody::StreamDelta { text } => self.stream.get_or_insert_default().push_str(text),
            EventBody::StreamComplete { .. } => self.stream = None,
            EventBody::ToolCallStart { call_id, name, .. } => self.calls.push((call_id.clone(), name.clone())),
            EventBody::ToolCallEnd { call_id, .. } => self.calls.retain(|(id, _)| id != call_id),
            EventBody::PermissionRequest { request_id, call_id, .. } => {
                self.questions.push((request_id.clone(), Asked::Permission(call_id.clone())));
            }
            EventBody::ClientRequest { request_id, call_id, .. } => {
                self.questions.push((request_id.clone(), Asked::Client(call_id.clone())));
            }
            EventBody::PermissionResponse { request_id, .. } | EventBody::ClientResponse { request_id, .. } => {
                self.questions.retain(|(id, _)| id != request_id);
            }
            EventBody::CompactionPrune { .. }
            | EventBody::SessionCreated { .. }
            | EventBody::SessionPrompt { .. }
            | EventBody::SessionSteer { .. }
            | EventBody::SessionCompleted { .. }
            | EventBody::SessionError { .. }
            | EventBody::SessionConfigured(_)
            | EventBody::TurnQueued { .. }
            | EventBody::TurnControl { .. }
            | EventBody::TurnPaused { .. }
            | EventBody::TurnResumed { .. }
            | EventBody::TurnComplete { .. }
            | EventBody::TurnContinued { .. }
            | EventBody::LoopDoomLoop { .. }
            | EventBody::AgentSession { .. }
            | EventBody::AgentPlan(_)
            | EventBody::AgentCommands(_)
            | EventBody::AgentOptions(_)
            | EventBody::AgentUsage(_)
            | EventBody::AgentCompaction(_)
            | EventBody::StreamReasoning { .. }
            | EventBody::ToolCallError { .. }
            | EventBody::ToolCallOutput { .. }
            | EventBody::ToolTimeout { .. }
            | EventBody::PermissionGranted(_)
            | EventBody::PermissionRevoked { .. }
            | EventBody::ClientNotice { .. }
            | EventBody::ClientDisplay { .. }
            | EventBody::MemoryAdd { .. }
            | EventBody::MemorySearch { .. }
            | EventBody::MemoryDelete { .. }
            | EventBody::TurnChanges(_)
            | EventBody::ChangesUndone { .. }
            | EventBody::ChangesRedone { .. }
            | EventBody::SessionForked { .. }
            | EventBody::BudgetWarning(_)
            | EventBody::BudgetExceeded(_)
            | EventBody::SubagentStart(_)
            | EventBody::SubagentQueued(_)
            | EventBody::SubagentComplete(_)
            | EventBody::SubagentError(_)
            | EventBody::SubagentRequest(_)
            | EventBody::SubagentResponse(_)
            | of_tree!()
            | EventBody::Abort { .. } => {}
        }
    }

    /// The events that close what is open, and how many messages the turn then has.
    pub(super) fn close(mut self, why: &ErrorBody) -> (Vec<EventBody>, u64) {
        let mut closing = Vec::new();
        for (request_id, asked) in &self.questions {
            let (request_id, by, reason) = (request_id.clone(), VerdictSource::Abort, why.message.clone());
            closing.push(match asked.clone() {
                Asked::Permission(call_id) => {
                    EventBody::PermissionResponse { request_id, call_id, allowed: false, by, reason }
                }
                Asked::Client(call_id) => {
                    EventBody::ClientResponse { request_id, call_id, value: None, cancelled: true, by, reason }
                }
            });
        }
        if self.compacting {
            closing.push(EventBody::CompactionFailed { error: why.clone(), usage: None });
        }
        if let Some(text) = &self.stream {
            closing.push(EventBody::StreamComplete { text: text.clone(), original: None });
        }
        for (call_id, name) in &self.calls {
            let (call_id, name) = (call_id.clone(), name.clone());
            let (error, output) = (why.clone(), format!("Tool \"{name}\" execution failed: {}", why.message));
            closing.push(EventBody::ToolCallError { call_id: call_id.clone(), name: name.clone(), error });
            closing.push(EventBody::ToolCallEnd {
                call_id,
                name,
                output,
                is_error: true,
                duration_ms: 0,
                parts: Vec::new(),
                details: None,
                findings: Vec::new(),
            });
        }
        if self.in_loop {
            closing.push(EventBody::LoopComplete { total_turns: self.tally.rounds, hit_turn_limit: false });
        }
        for body in &closing {
            self.tally.push(body);
        }
        (closing, self.tally.messages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::ErrorCode;
    use serde_json::{Map, json};

    fn body(kind: &str, payload: serde_json::Value) -> EventBody {
        serde_json::from_value(json!({ "type": kind, "payload": payload })).expect("a known event")
    }

    #[test]
    fn what_is_open_is_closed_and_nothing_else() {
        let why = ErrorBody { code: ErrorCode::Internal, message: "cut".into(), details: None };
        let call = |id: &str| body("tool.call.start", json!({"callId": id, "name": "t", "args": Map::new()}));
        let done = |id: &str| {
            body("tool.call.end", json!({"callId": id, "name": "t", "output": "", "isError": false, "durationMs": 1}))
        };
        let ask = body(
            "permission.request",
            json!({"requestId": "r", "callId": "1", "toolName": "t", "args": {}, "options": [], "deadline": 1}),
        );
        let answer =
            body("permission.response", json!({"requestId": "r", "callId": "1", "allowed": true, "by": "client"}));
        let select = body(
            "client.request",
            json!({"requestId": "q", "callId": "1", "question": {"kind": "confirm", "title": "t"}, "deadline": 1}),
        );
        let chosen =
            body("client.response", json!({"requestId": "q", "value": true, "cancelled": false, "by": "client"}));
        let begin = || body("loop.start", json!({}));
        let stream = || body("stream.start", json!({}));
        let delta = |text: &str| body("stream.delta", json!({"text": text}));
        let said = |text: &str| body("stream.complete", json!({"text": text}));
        let retry = body("stream.retry", json!({"attempt": 2, "delayMs": 1, "error": "e"}));
        let over = body("loop.complete", json!({"totalTurns": 1, "hitTurnLimit": false}));
        #[rustfmt::skip]
        let table: Vec<(Vec<EventBody>, Vec<&str>, u64)> = vec![
            (vec![], vec![], 0),
            (vec![begin(), stream(), said("a"), over], vec![], 1),
            (vec![begin(), stream(), delta("a"), retry, delta("b"), delta("c")], vec!["stream.complete", "loop.complete"], 1),
            (vec![begin(), stream(), said(""), call("1"), call("2"), done("1")], vec!["tool.call.error", "tool.call.end", "loop.complete"], 3),
            (vec![begin(), body("compaction.start", json!({"messageCount": 1, "estimatedChars": 1, "trigger": "manual"})), stream(), delta("a")], vec!["compaction.failed", "stream.complete", "loop.complete"], 1),
            (vec![begin(), select.clone()], vec!["client.response", "loop.complete"], 0),
            (vec![begin(), stream(), said("x"), call("1"), select.clone(), chosen], vec!["tool.call.error", "tool.call.end", "loop.complete"], 2),
            (vec![begin(), stream(), said("x"), call("1"), ask.clone(), select], vec!["permission.response", "client.response", "tool.call.error", "tool.call.end", "loop.complete"], 2),
            (vec![begin(), stream(), said("x"), call("1"), ask.clone()], vec!["permission.response", "tool.call.error", "tool.call.end", "loop.complete"], 2),
            (vec![begin(), stream(), said("x"), call("1"), ask, answer], vec!["tool.call.error", "tool.call.end", "loop.complete"], 2),
        ];
        for (events, want, messages) in table {
            let mut remains = Remains::default();
            events.iter().for_each(|event| remains.take(event));
            let (closing, count) = remains.close(&why);
            assert_eq!(closing.iter().map(EventBody::kind).collect::<Vec<_>>(), want, "{events:?}");
            assert_eq!(count, messages, "{events:?}");
            if let Some(EventBody::StreamComplete { text, .. }) = closing.first() {
                assert_eq!(text, "bc", "what came before the retry is void");
            }
        }
    }
}
