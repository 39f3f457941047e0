//! What a turn's events add up to: rounds, tokens, messages. Pure.

use crate::protocol::{EventBody, Spending, TurnRecord, TurnTask, Usage, of_tree};

/// What events have added up to so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Tally {
    /// Rounds with the model that have begun.
    pub(super) rounds: u32,
    /// Tokens of the rounds that ended.
    pub(super) usage: Usage,
    /// Messages: the user's, the model's, and tool results.
    pub(super) messages: u64,
    /// Calls of tools that have begun.
    pub(super) calls: u64,
    /// Messages that have reached the turn while it ran.
    pub(super) steers: u32,
    /// How often hooks have made the turn go on.
    pub(super) continued: u32,
    /// The model's reply has begun with no text: its first call makes it a message.
    silent_reply: bool,
}

impl Tally {
    /// Of a turn whose opening is written down already: a message, unless it does something else than to answer one.
    pub(super) fn after_opening(task: Option<&TurnTask>) -> Self {
        Self { messages: u64::from(task.is_none()), ..Self::default() }
    }

    /// Hooks have made the turn go on, with a message.
    fn went_on(&mut self) {
        self.messages += 1;
        self.continued += 1;
    }

    /// What a turn has spent by what the log says of it: how long it ran is not there.
    pub(super) fn spent(&self, record: &TurnRecord) -> Spending {
        let turns = u64::from(record.task.is_none());
        Spending { turns, tool_calls: self.calls, ..Spending::of(&self.usage) }
    }

    fn call_begins(&mut self) {
        self.calls += 1;
        self.messages += u64::from(std::mem::take(&mut self.silent_reply));
    }

    fn replied(&mut self, text: &str) {
        self.silent_reply = text.trim().is_empty();
        self.messages += u64::from(!self.silent_reply);
    }

    /// Takes the next event.
    pub(super) fn push(&mut self, event: &EventBody) {
        match event {
            EventBody::SessionPrompt { task, .. } => self.messages += u64::from(task.is_none()),
            EventBody::ToolCallEnd { .. } => self.messages += 1,
            EventBody::SessionSteer { .. } => {
                self.messages += 1;
                self.steers += 1;
            }
            EventBody::TurnContinued { .. } => self.went_on(),
            EventBody::StreamStart {} => self.rounds += 1,
            EventBody::StreamComplete { text, .. } => self.replied(text),
            EventBody::ToolCallStart { .. } => self.call_begins(),
            EventBody::TurnComplete { usage, .. } | EventBody::CompactionFailed { usage, .. } => {
                self.usage = self.usage.plus(usage.unwrap_or_default());
            }
            EventBody::CompactionComplete { compaction, .. } => {
                self.usage = self.usage.plus(compaction.usage.unwrap_or_default());
            }
            EventBody::SessionCreated { .. }
            | EventBody::SessionCompleted { .. }
            | EventBody::SessionError { .. }
            | EventBody::SessionConfigured(_)
            | EventBody::TurnQueued { .. }
            | EventBody::TurnControl { .. }
            | EventBody::TurnPaused { .. }
            | EventBody::TurnResumed { .. }
            | EventBody::LoopStart {}
            | EventBody::LoopComplete { .. }
            | EventBody::LoopDoomLoop { .. }
            | EventBody::AgentSession { .. }
            | EventBody::AgentPlan(_)
            | EventBody::AgentCommands(_)
            | EventBody::AgentOptions(_)
            | EventBody::AgentUsage(_)
            | EventBody::AgentCompaction(_)
            | EventBody::StreamDelta { .. }
            | EventBody::StreamReasoning { .. }
            | EventBody::StreamRetry { .. }
            | EventBody::CompactionStart { .. }
            | EventBody::CompactionPrune { .. }
            | EventBody::ToolCallError { .. }
            | EventBody::ToolCallOutput { .. }
            | EventBody::ToolTimeout { .. }
            | EventBody::PermissionRequest { .. }
            | EventBody::PermissionResponse { .. }
            | EventBody::PermissionGranted(_)
            | EventBody::PermissionRevoked { .. }
            | EventBody::ClientRequest { .. }
            | EventBody::ClientResponse { .. }
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_one_message_with_its_calls() {
        let said = |text: &str| EventBody::StreamComplete { text: text.into(), original: None };
        let start = || EventBody::ToolCallStart { call_id: "c".into(), name: "t".into(), args: Default::default() };
        let end = || EventBody::ToolCallEnd {
            call_id: "c".into(),
            name: "t".into(),
            output: String::new(),
            is_error: false,
            duration_ms: 0,
            parts: Vec::new(),
            details: None,
            findings: Vec::new(),
        };
        let prompt = || EventBody::SessionPrompt {
            session_id: "s".parse().expect("id"),
            prompt: "p".into(),
            parts: None,
            turn: None,
            task: None,
            version: None,
        };
        #[rustfmt::skip]
        let table = [
            (vec![prompt(), EventBody::StreamStart {}, said("hi")], 2, 1),
            (vec![prompt(), EventBody::StreamStart {}, said(""), start(), start(), end(), end(), EventBody::StreamStart {}, said("x")], 5, 2),
            (vec![prompt(), said("t"), start(), end()], 3, 0),
            (vec![prompt(), said(" "), prompt()], 2, 0),
        ];
        for (events, messages, rounds) in table {
            let mut tally = Tally::default();
            events.iter().for_each(|event| tally.push(event));
            assert_eq!((tally.messages, tally.rounds), (messages, rounds), "{events:?}");
        }
    }
}
