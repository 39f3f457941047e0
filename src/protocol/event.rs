//! The events of a session's log. Names and payloads are those of typescript-api.md §6, and a few more.
//!
//! Each event is one record of an append-only log, numbered 1, 2, 3 … without gaps. The log is the
//! truth: sessions, turns and histories are views of it.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::agent::{AgentChoices, AgentCommands, AgentCompaction, AgentPlan, AgentUsage};
use super::board::{BoardDeletion, BoardEntry};
use super::budget::{BudgetNotice, Spending};
use super::changes::ChangeReport;
use super::compaction::{Compaction, CompactionTrigger, TurnTask};
use super::display::Display;
use super::error::ErrorBody;
use super::id::{GrantId, RequestId, SessionId, TurnId};
use super::lineage::{SubagentEnd, SubagentQueued, SubagentRequest, SubagentResponse, SubagentStart};
use super::permission::VerdictSource;
use super::request::{ClientQuestion, NoticeLevel};
use super::session::Usage;
use super::task::{TaskChange, TaskDeletion};
use super::telling::{Beginning, Configured, ControlKind, Granted, RevokeReason, RoundKind, is_zero};

/// What happened: `type` and `payload` of an event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "payload", rename_all_fields = "camelCase")]
pub enum EventBody {
    /// A session came to be. Always number 1.
    #[serde(rename = "session.created")]
    SessionCreated {
        /// The session.
        session_id: SessionId,
        /// What it begins with.
        #[serde(flatten)]
        beginning: Beginning,
    },
    /// A prompt's turn begins.
    #[serde(rename = "session.prompt")]
    SessionPrompt {
        /// The session.
        session_id: SessionId,
        /// The text of the prompt.
        prompt: String,
        /// The parts, when it is more than one text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parts: Option<Vec<super::item::Part>>,
        /// What holds for this turn alone, instead of what the session is set to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turn: Option<Box<super::command::TurnSettings>>,
        /// What the turn does, where it answers no prompt: then this is no message.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<TurnTask>,
        /// The session's version with it, where it changes that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u64>,
    },
    /// A message was put into the running turn.
    #[serde(rename = "session.steer")]
    SessionSteer {
        /// The session.
        session_id: SessionId,
        /// The text.
        prompt: String,
        /// The parts, when it is more than one text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parts: Option<Vec<super::item::Part>>,
    },
    /// A turn ended by itself.
    #[serde(rename = "session.completed")]
    SessionCompleted {
        /// The session.
        session_id: SessionId,
        /// The final text.
        result: String,
        /// The same as data, of a turn that was to answer with some.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<Value>,
        /// What the turn has spent.
        #[serde(default, skip_serializing_if = "Spending::is_nothing")]
        spent: Spending,
    },
    /// A turn failed.
    #[serde(rename = "session.error")]
    SessionError {
        /// The session.
        session_id: SessionId,
        /// Why.
        error: ErrorBody,
        /// What the turn has spent.
        #[serde(default, skip_serializing_if = "Spending::is_nothing")]
        spent: Spending,
    },
    /// A session's settings change, from the next turn on.
    #[serde(rename = "session.configured")]
    SessionConfigured(Configured),
    /// A turn waits behind the running one.
    #[serde(rename = "turn.queued")]
    TurnQueued {
        /// Turns in front of it, the running one included.
        position: u32,
        /// The session's version with it, where it changes that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u64>,
    },
    /// A control of the turn was accepted: what becomes of it, other events say.
    #[serde(rename = "turn.control")]
    TurnControl {
        /// Which one.
        kind: ControlKind,
        /// The session's version with it, where it changes that at once. A pause and an interrupt may still come too late:
        /// they change it with `turn.paused` and `abort`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u64>,
    },
    /// The turn holds between two items until it is resumed.
    #[serde(rename = "turn.paused")]
    TurnPaused {
        /// Why, when the client said.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
        /// The session's version with it, where it changes that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u64>,
    },
    /// The turn that was paused goes on.
    #[serde(rename = "turn.resumed")]
    TurnResumed {
        /// Why, when the client said.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
        /// The session's version with it, where it changes that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u64>,
    },
    /// The loop begins a turn.
    #[serde(rename = "loop.start")]
    LoopStart {},
    /// The loop ended a turn.
    #[serde(rename = "loop.complete")]
    LoopComplete {
        /// Rounds with the model.
        total_turns: u32,
        /// Whether it ended at the limit of rounds.
        hit_turn_limit: bool,
    },
    /// The same call came again and again, and was not run again.
    #[serde(rename = "loop.doom_loop")]
    LoopDoomLoop {
        /// The tool.
        tool_name: String,
        /// How often in a row.
        call_count: u32,
        /// With which arguments.
        args: Map<String, Value>,
    },
    /// The turn is answered by an agent, in this session of its own.
    #[serde(rename = "agent.session")]
    AgentSession {
        /// The session's model: the agent.
        model: String,
        /// The agent's own id of its session.
        agent_session_id: String,
    },
    /// The agent's plan, whole.
    #[serde(rename = "agent.plan")]
    AgentPlan(AgentPlan),
    /// The commands that the agent understands, all of them.
    #[serde(rename = "agent.commands")]
    AgentCommands(AgentCommands),
    /// What the agent's session can be set to and is set to, all of it.
    #[serde(rename = "agent.options")]
    AgentOptions(AgentChoices),
    /// How full the agent's context is.
    #[serde(rename = "agent.usage")]
    AgentUsage(AgentUsage),
    /// The agent makes its context shorter.
    #[serde(rename = "agent.compaction")]
    AgentCompaction(AgentCompaction),
    /// A round with the model begins.
    #[serde(rename = "stream.start")]
    StreamStart {},
    /// A piece of the model's text. A preview: `stream.complete` has the whole.
    #[serde(rename = "stream.delta")]
    StreamDelta {
        /// The piece.
        text: String,
    },
    /// A piece of the model's reasoning.
    #[serde(rename = "stream.reasoning")]
    StreamReasoning {
        /// The piece.
        text: String,
    },
    /// The model's stream broke and is tried again; what it sent since `stream.start` is void.
    #[serde(rename = "stream.retry")]
    StreamRetry {
        /// Which attempt comes now; the first retry is 2.
        attempt: u32,
        /// How long until then.
        delay_ms: u64,
        /// Why.
        error: String,
        /// The model that is asked now, where it is another one than before: a fallback.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
    },
    /// The conversation is made shorter: a model sums it up. It has one end: `compaction.complete` or `compaction.failed`.
    #[serde(rename = "compaction.start")]
    CompactionStart {
        /// Messages that there are.
        message_count: u64,
        /// Their length, about.
        estimated_chars: u64,
        /// Why.
        trigger: CompactionTrigger,
    },
    /// The conversation is shorter: from now on the model is shown a summary and the newest messages. All of it stays in the log.
    #[serde(rename = "compaction.complete")]
    CompactionComplete {
        /// Length of the summary in UTF-16 units.
        summary_length: u64,
        /// What came of it.
        #[serde(flatten)]
        compaction: Box<Compaction>,
    },
    /// The conversation could not be summed up, and is as it was.
    #[serde(rename = "compaction.failed")]
    CompactionFailed {
        /// Why.
        error: ErrorBody,
        /// What was spent on it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
    },
    /// The conversation did not fit into the model's window: old outputs, and then old messages, are no longer shown to it. They
    /// stay in the log.
    #[serde(rename = "compaction.prune")]
    CompactionPrune {
        /// Messages that are left.
        message_count: u64,
        /// Their length, about.
        estimated_chars: u64,
    },
    /// The model's text of one round, whole.
    #[serde(rename = "stream.complete")]
    StreamComplete {
        /// The text; may be empty when it only called tools.
        text: String,
        /// The reply in its provider's own words, where the model wants them back as they were. Not for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        original: Option<Arc<super::item::Original>>,
    },
    /// A call was announced.
    #[serde(rename = "tool.call.start")]
    ToolCallStart {
        /// The call.
        call_id: String,
        /// The tool.
        name: String,
        /// Its arguments.
        args: Map<String, Value>,
    },
    /// A piece of what a running call has written. A preview: `tool.call.end` has what counts. Only while somebody reads.
    #[serde(rename = "tool.call.output")]
    ToolCallOutput {
        /// The call.
        call_id: String,
        /// The tool.
        name: String,
        /// The piece.
        text: String,
        /// Bytes left out in front of it; absent when none were.
        #[serde(default, skip_serializing_if = "is_zero")]
        skipped_bytes: u64,
    },
    /// A call ended, well or badly. Exactly one for each start.
    #[serde(rename = "tool.call.end")]
    ToolCallEnd {
        /// The call.
        call_id: String,
        /// The tool.
        name: String,
        /// What the model is told.
        output: String,
        /// Whether it failed.
        is_error: bool,
        /// How long the tool ran; 0 when it never started.
        duration_ms: u64,
        /// What the model is shown beside the output: images.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        parts: Vec<super::item::Part>,
        /// What happened, for programs and people. The model is not told.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        details: Option<Value>,
        /// What hooks found in the result; the model is told behind the results of its reply.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        findings: Vec<String>,
    },
    /// A call failed; comes just before its end.
    #[serde(rename = "tool.call.error")]
    ToolCallError {
        /// The call.
        call_id: String,
        /// The tool.
        name: String,
        /// Why.
        error: ErrorBody,
    },
    /// A tool ran longer than it may.
    #[serde(rename = "tool.timeout")]
    ToolTimeout {
        /// The tool.
        name: String,
        /// Its limit.
        timeout_ms: u64,
    },
    /// A round with the model ended.
    #[serde(rename = "turn.complete")]
    TurnComplete {
        /// Which round of the turn, from 1.
        turn: u32,
        /// How.
        #[serde(rename = "type")]
        kind: RoundKind,
        /// Its tokens, when the provider said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
    },
    /// The turn would have ended, and goes on with these texts: hooks say that it is not done.
    #[serde(rename = "turn.continued")]
    TurnContinued {
        /// What the model is told.
        texts: Vec<String>,
    },
    /// A question to the client that blocks a call.
    #[serde(rename = "permission.request")]
    PermissionRequest {
        /// The request.
        request_id: RequestId,
        /// The call.
        call_id: String,
        /// The tool.
        tool_name: String,
        /// Its arguments.
        args: Map<String, Value>,
        /// What would happen, in words: the command's parts, the paths, a diff.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        preview: Option<Value>,
        /// The answers that count.
        options: Vec<super::command::Decision>,
        /// When silence becomes no, in milliseconds since 1970.
        deadline: u64,
    },
    /// The end of such a question. Exactly one for each request.
    #[serde(rename = "permission.response")]
    PermissionResponse {
        /// The request.
        request_id: RequestId,
        /// The call.
        call_id: String,
        /// The answer.
        allowed: bool,
        /// Who decided.
        by: VerdictSource,
        /// Why.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    },
    /// A yes that reaches further than its call was kept for the session.
    #[serde(rename = "permission.granted")]
    PermissionGranted(Granted),
    /// Such a yes is there no longer.
    #[serde(rename = "permission.revoked")]
    PermissionRevoked {
        /// The grant.
        grant_id: GrantId,
        /// Why.
        reason: RevokeReason,
    },
    /// A question to the client that a tool or a hook puts.
    #[serde(rename = "client.request")]
    ClientRequest {
        /// The request.
        request_id: RequestId,
        /// The call that it belongs to, if it belongs to one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call_id: Option<String>,
        /// What is asked.
        question: ClientQuestion,
        /// When silence becomes `cancelled`, in milliseconds since 1970.
        deadline: u64,
    },
    /// The end of such a question. Exactly one for each request.
    #[serde(rename = "client.response")]
    ClientResponse {
        /// The request.
        request_id: RequestId,
        /// The call that it belongs to, if it belongs to one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call_id: Option<String>,
        /// The answer; absent when there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value: Option<Value>,
        /// Whether there is no answer.
        cancelled: bool,
        /// Who decided.
        by: VerdictSource,
        /// Why.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    },
    /// Something that a tool, a hook or the session itself tells the clients. Nobody answers it.
    #[serde(rename = "client.notice")]
    ClientNotice {
        /// The call that it belongs to, if it belongs to one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call_id: Option<String>,
        /// How much it matters.
        level: NoticeLevel,
        /// What it says.
        text: String,
    },
    /// Something that a tool or a hook puts onto the clients' screens, until it is replaced, taken away, or the turn ends.
    #[serde(rename = "client.display")]
    ClientDisplay {
        /// The call that it belongs to, if it belongs to one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call_id: Option<String>,
        /// What stands there now.
        display: Display,
    },
    /// Something was put into long-term memory.
    #[serde(rename = "memory.add")]
    MemoryAdd {
        /// The entry.
        id: String,
        /// Its text's length in UTF-16 units.
        content_length: u64,
    },
    /// Long-term memory was searched.
    #[serde(rename = "memory.search")]
    MemorySearch {
        /// What was looked for.
        query: String,
        /// How many entries were found.
        result_count: u64,
        /// How long it took.
        duration_ms: u64,
        /// Why the meanings of texts did not count although they should have.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        degraded: Option<String>,
    },
    /// Something was taken out of long-term memory.
    #[serde(rename = "memory.delete")]
    MemoryDelete {
        /// The entry.
        id: String,
    },
    /// What a turn did to files. Comes before its end, when it did anything.
    #[serde(rename = "turn.changes")]
    TurnChanges(ChangeReport),
    /// What turns did to files was undone by a client.
    #[serde(rename = "changes.undone")]
    ChangesUndone {
        /// The turns, in the order in which they were undone.
        turn_ids: Vec<TurnId>,
        /// The first paths that are as they were before.
        paths: Vec<String>,
        /// How many there are.
        path_count: u64,
        /// The session's version with it, where it changes that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u64>,
    },
    /// What was undone was done again by a client.
    #[serde(rename = "changes.redone")]
    ChangesRedone {
        /// The turns, in the order in which they were redone.
        turn_ids: Vec<TurnId>,
        /// The first paths that are as they were after.
        paths: Vec<String>,
        /// How many there are.
        path_count: u64,
        /// The session's version with it, where it changes that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u64>,
    },
    /// The session was forked off from another one. What comes before is that one's log.
    #[serde(rename = "session.forked")]
    SessionForked {
        /// The session.
        session_id: SessionId,
        /// The other one.
        parent_session_id: SessionId,
        /// Number of the last event that both have in common.
        at: u64,
        /// What it begins with.
        #[serde(flatten)]
        beginning: Beginning,
    },
    /// A sub-agent was given something to do.
    #[serde(rename = "subagent.start")]
    SubagentStart(Box<SubagentStart>),
    /// It waits until others have ended.
    #[serde(rename = "subagent.queued")]
    SubagentQueued(SubagentQueued),
    /// A sub-agent is done.
    #[serde(rename = "subagent.complete")]
    SubagentComplete(Box<SubagentEnd>),
    /// A sub-agent failed, or was ended.
    #[serde(rename = "subagent.error")]
    SubagentError(Box<SubagentEnd>),
    /// A session under this one asks something.
    #[serde(rename = "subagent.request")]
    SubagentRequest(SubagentRequest),
    /// Such a question has its end.
    #[serde(rename = "subagent.response")]
    SubagentResponse(SubagentResponse),
    /// Four fifths of a limit are spent: of the session's budget, of one above it, or of the client's.
    #[serde(rename = "budget.warning")]
    BudgetWarning(BudgetNotice),
    /// A limit is reached: the turn ends.
    #[serde(rename = "budget.exceeded")]
    BudgetExceeded(BudgetNotice),
    /// A value was put onto the board that the sessions of the tree share.
    #[serde(rename = "blackboard.set")]
    BlackboardSet(Box<BoardEntry>),
    /// A value was taken off it.
    #[serde(rename = "blackboard.delete")]
    BlackboardDelete(BoardDeletion),
    /// A task was added to the list that the sessions of the tree share.
    #[serde(rename = "task.create")]
    TaskCreate(Box<TaskChange>),
    /// One of its tasks changed, as it is then.
    #[serde(rename = "task.update")]
    TaskUpdate(Box<TaskChange>),
    /// A task was taken off it: nobody waits for it any more.
    #[serde(rename = "task.delete")]
    TaskDelete(TaskDeletion),
    /// A turn was aborted or interrupted.
    #[serde(rename = "abort")]
    Abort {
        /// Why.
        reason: String,
        /// The session's version with it, where it changes that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u64>,
        /// What the turn has spent.
        #[serde(default, skip_serializing_if = "Spending::is_nothing")]
        spent: Spending,
    },
}

/// The events of what a tree shares, as a pattern: where none of them counts, they stand there as one.
macro_rules! of_tree {
    () => {
        $crate::protocol::EventBody::BlackboardSet(_)
            | $crate::protocol::EventBody::BlackboardDelete(_)
            | $crate::protocol::EventBody::TaskCreate(_)
            | $crate::protocol::EventBody::TaskUpdate(_)
            | $crate::protocol::EventBody::TaskDelete(_)
    };
}
pub(crate) use of_tree;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::kind::EVENT_TYPES;
    use super::*;
    use crate::protocol::Event;

    #[test]
    fn every_kind_is_its_wire_name_and_comes_back() {
        let session = "ses_1";
        let error = json!({"code": "INTERNAL", "message": "m"});
        let usage = json!({"inputTokens": 1, "outputTokens": 2, "totalTokens": 3});
        #[rustfmt::skip]
        let table = [
            json!({"type": "session.created", "payload": {"sessionId": session}}),
            json!({"type": "session.created", "payload": {"sessionId": session, "settings": {"model": "m/m", "title": "t"}, "permissions": {"rules": [], "defaultPolicy": "ask"}}}),
            json!({"type": "session.prompt", "payload": {"sessionId": session, "prompt": "a \"b\" \n"}}),
            json!({"type": "session.prompt", "payload": {"sessionId": session, "prompt": "a", "version": 3}}),
            json!({"type": "session.steer", "payload": {"sessionId": session, "prompt": "a", "parts": [{"type": "text", "text": "a"}]}}),
            json!({"type": "session.completed", "payload": {"sessionId": session, "result": "r"}}),
            json!({"type": "session.error", "payload": {"sessionId": session, "error": error}}),
            json!({"type": "session.configured", "payload": {"model": "m/m", "reasoning": "xhigh", "tools": ["-bash"]}}),
            json!({"type": "session.configured", "payload": {"title": "t", "version": 2}}),
            json!({"type": "turn.queued", "payload": {"position": 1}}),
            json!({"type": "turn.control", "payload": {"kind": "steer", "version": 2}}),
            json!({"type": "turn.control", "payload": {"kind": "pause"}}),
            json!({"type": "turn.paused", "payload": {"reason": "lunch"}}),
            json!({"type": "turn.paused", "payload": {"version": 2}}),
            json!({"type": "turn.resumed", "payload": {}}),
            json!({"type": "loop.start", "payload": {}}),
            json!({"type": "loop.complete", "payload": {"totalTurns": 1, "hitTurnLimit": false}}),
            json!({"type": "loop.doom_loop", "payload": {"toolName": "t", "callCount": 3, "args": {"a": 1}}}),
            json!({"type": "agent.session", "payload": {"model": "acp/a", "agentSessionId": "s"}}),
            json!({"type": "agent.plan", "payload": {"entries": [{"content": "c", "priority": "high", "status": "pending"}]}}),
            json!({"type": "agent.plan", "payload": {"planId": "p", "entries": [], "text": "t"}}),
            json!({"type": "agent.commands", "payload": {"commands": [{"name": "n", "description": "d", "hint": "h"}]}}),
            json!({"type": "agent.options", "payload": {"options": [{"id": "o", "name": "n", "category": "mode", "value": "v", "values": [{"value": "v", "name": "n", "description": "d"}]}, {"id": "b", "name": "n", "value": true}]}}),
            json!({"type": "agent.usage", "payload": {"used": 1, "size": 2, "cost": {"amount": 0.5, "currency": "USD"}}}),
            json!({"type": "agent.compaction", "payload": {"compactionId": "c", "status": "completed", "summary": "s"}}),
            json!({"type": "stream.start", "payload": {}}),
            json!({"type": "stream.delta", "payload": {"text": "é😀"}}),
            json!({"type": "stream.reasoning", "payload": {"text": "t"}}),
            json!({"type": "stream.retry", "payload": {"attempt": 2, "delayMs": 1, "error": "e"}}),
            json!({"type": "stream.retry", "payload": {"attempt": 2, "delayMs": 0, "error": "e", "model": "m/other"}}),
            json!({"type": "session.prompt", "payload": {"sessionId": session, "prompt": "/compact", "task": {"kind": "compact", "focus": "f"}}}),
            json!({"type": "compaction.start", "payload": {"messageCount": 3, "estimatedChars": 100, "trigger": "threshold"}}),
            json!({"type": "compaction.complete", "payload": {"summaryLength": 1, "trigger": "manual", "summary": "s", "kept": 2, "carried": [0], "files": {"changed": ["a"], "read": ["b"]}, "attached": [{"path": "a", "text": "t"}], "tokensBefore": 9, "tokensAfter": 3, "usage": usage}}),
            json!({"type": "compaction.complete", "payload": {"summaryLength": 1, "trigger": "overflow", "summary": "s", "kept": 0, "tokensBefore": 9, "tokensAfter": 3}}),
            json!({"type": "compaction.failed", "payload": {"error": error}}),
            json!({"type": "compaction.prune", "payload": {"messageCount": 3, "estimatedChars": 100}}),
            json!({"type": "stream.complete", "payload": {"text": ""}}),
            json!({"type": "stream.complete", "payload": {"text": "", "original": {"wire": "w", "model": "m/m", "items": [{"b": 1, "a": 2}]}}}),
            json!({"type": "tool.call.start", "payload": {"callId": "c", "name": "n", "args": {}}}),
            json!({"type": "tool.call.output", "payload": {"callId": "c", "name": "bash", "text": "a"}}),
            json!({"type": "tool.call.output", "payload": {"callId": "c", "name": "bash", "text": "a", "skippedBytes": 3}}),
            json!({"type": "tool.call.end", "payload": {"callId": "c", "name": "n", "output": "o", "isError": true, "durationMs": 0}}),
            json!({"type": "tool.call.end", "payload": {"callId": "c", "name": "n", "output": "o", "isError": false, "durationMs": 0, "parts": [{"type": "image", "mediaType": "image/png", "data": "AA=="}], "details": {"diff": "d"}, "findings": ["f"]}}),
            json!({"type": "tool.call.error", "payload": {"callId": "c", "name": "n", "error": error}}),
            json!({"type": "tool.timeout", "payload": {"name": "n", "timeoutMs": 5}}),
            json!({"type": "turn.complete", "payload": {"turn": 1, "type": "tool_use", "usage": usage}}),
            json!({"type": "turn.continued", "payload": {"texts": ["t", "u"]}}),
            json!({"type": "permission.request", "payload": {"requestId": "req_1", "callId": "c", "toolName": "n", "args": {}, "options": ["allow", "allow_always", "deny"], "deadline": 9}}),
            json!({"type": "permission.response", "payload": {"requestId": "req_1", "callId": "c", "allowed": false, "by": "no-client", "reason": "r"}}),
            json!({"type": "permission.granted", "payload": {"grantId": "grant_1", "requestId": "req_1", "toolName": "n", "createdAt": 1}}),
            json!({"type": "permission.granted", "payload": {"grantId": "grant_1", "requestId": "req_1", "toolName": "n", "command": "ls", "cwd": "a", "createdAt": 1, "expiresAt": 2}}),
            json!({"type": "permission.granted", "payload": {"grantId": "grant_1", "requestId": "req_1", "toolName": "n", "paths": ["/a"], "createdAt": 1}}),
            json!({"type": "permission.revoked", "payload": {"grantId": "grant_1", "reason": "expired"}}),
            json!({"type": "client.request", "payload": {"requestId": "req_1", "callId": "c", "question": {"kind": "select", "title": "t", "options": ["a", "b"]}, "deadline": 9}}),
            json!({"type": "client.request", "payload": {"requestId": "req_1", "question": {"kind": "editor", "title": "t", "text": "x"}, "deadline": 9}}),
            json!({"type": "client.response", "payload": {"requestId": "req_1", "callId": "c", "value": ["a"], "cancelled": false, "by": "client"}}),
            json!({"type": "client.response", "payload": {"requestId": "req_1", "cancelled": true, "by": "timeout", "reason": "r"}}),
            json!({"type": "client.notice", "payload": {"callId": "c", "level": "warning", "text": "t"}}),
            json!({"type": "client.display", "payload": {"callId": "c", "display": {"kind": "status", "key": "k", "text": "t"}}}),
            json!({"type": "client.display", "payload": {"display": {"kind": "widget", "key": "k", "lines": ["a", "b"]}}}),
            json!({"type": "client.display", "payload": {"display": {"kind": "title"}}}),
            json!({"type": "memory.add", "payload": {"id": "mem_1", "contentLength": 3}}),
            json!({"type": "memory.search", "payload": {"query": "q", "resultCount": 1, "durationMs": 2, "degraded": "d"}}),
            json!({"type": "memory.delete", "payload": {"id": "mem_1"}}),
            json!({"type": "turn.changes", "payload": {"files": [{"path": "a", "kind": "M", "added": 1, "removed": 2, "diff": "d"}], "fileCount": 2, "truncatedCount": 1, "diffTruncated": false, "uncovered": [{"path": "b", "reason": "r"}]}}),
            json!({"type": "changes.undone", "payload": {"turnIds": ["turn_1"], "paths": ["a"], "pathCount": 1}}),
            json!({"type": "changes.redone", "payload": {"turnIds": ["turn_1"], "paths": ["a"], "pathCount": 1}}),
            json!({"type": "session.forked", "payload": {"sessionId": session, "parentSessionId": "ses_2", "at": 3}}),
            json!({"type": "subagent.start", "payload": {"runId": "ses_2:turn_2", "sessionId": "ses_2", "parentRunId": "ses_1:turn_1", "callId": "c", "name": "n", "agent": "explorer", "model": "m/m", "task": "t", "background": true, "branch": "b", "coordination": "peer"}}),
            json!({"type": "subagent.queued", "payload": {"runId": "ses_2:turn_2", "sessionId": "ses_2", "position": 1}}),
            json!({"type": "subagent.complete", "payload": {"runId": "ses_2:turn_2", "sessionId": "ses_2", "status": "completed", "result": "r", "durationMs": 1, "rounds": 1, "usage": usage, "merge": {"outcome": "merged", "paths": ["a"]}}}),
            json!({"type": "subagent.error", "payload": {"runId": "ses_2:turn_2", "sessionId": "ses_2", "status": "failed", "error": error, "durationMs": 1, "rounds": 0, "usage": usage}}),
            json!({"type": "subagent.request", "payload": {"sessionId": "ses_2", "request": {"type": "permission.request", "payload": {"requestId": "req_1", "callId": "c", "toolName": "n", "args": {}, "options": ["allow"], "deadline": 9}}}}),
            json!({"type": "subagent.response", "payload": {"sessionId": "ses_2", "response": {"type": "permission.response", "payload": {"requestId": "req_1", "callId": "c", "allowed": true, "by": "client"}}}}),
            json!({"type": "blackboard.set", "payload": {"key": "a/b", "value": {"n": [1]}, "version": 7, "by": {"sessionId": "ses_2", "name": "n"}, "updatedAt": 5}}),
            json!({"type": "blackboard.set", "payload": {"key": "k", "value": null, "version": 7, "updatedAt": 5}}),
            json!({"type": "blackboard.delete", "payload": {"key": "k"}}),
            json!({"type": "task.create", "payload": {"task": {"id": "1", "subject": "s", "status": "pending", "blockedBy": [], "createdAt": 1, "updatedAt": 1}}}),
            json!({"type": "task.update", "payload": {"task": {"id": "2", "subject": "s", "description": "d", "activeForm": "a", "owner": "o", "status": "in_progress", "blockedBy": ["1"], "createdAt": 1, "updatedAt": 2}, "by": {"sessionId": "ses_2"}}}),
            json!({"type": "task.delete", "payload": {"id": "1", "by": {"sessionId": "ses_2", "name": "n"}}}),
            json!({"type": "abort", "payload": {"reason": "r"}}),
            json!({"type": "abort", "payload": {"reason": "r", "version": 2}}),
        ];
        for value in table {
            let body: EventBody = serde_json::from_value(value.clone()).expect("a known event");
            let (kind, payload) = body.encode();
            assert_eq!(kind, value["type"], "{value}");
            assert_eq!(serde_json::from_str::<Value>(payload.get()).expect("json"), value["payload"], "{value}");
            let event = Event {
                seq: 1,
                kind: kind.into(),
                payload,
                session_id: "ses_1".parse().expect("id"),
                turn_id: None,
                at: 0,
            };
            assert_eq!(event.body(), Some(body));
        }
    }

    #[test]
    fn the_list_of_types_is_complete() {
        let error = serde_json::from_str::<EventBody>(r#"{"type":"?","payload":{}}"#).unwrap_err().to_string();
        let known: Vec<&str> = error.split('`').skip(3).step_by(2).collect();
        assert_eq!(known, EVENT_TYPES);
    }
}
