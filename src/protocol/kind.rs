//! What the events are called on the wire. The list and the names keep to the order of [`EventBody`]; a test beside the
//! events holds both against what is serialised.

use std::borrow::Cow;

use super::event::EventBody;

/// The wire names of all events, in the order of [`EventBody`].
pub const EVENT_TYPES: &[&str] = &[
    "session.created",
    "session.prompt",
    "session.steer",
    "session.completed",
    "session.error",
    "session.configured",
    "turn.queued",
    "turn.control",
    "turn.paused",
    "turn.resumed",
    "loop.start",
    "loop.complete",
    "loop.doom_loop",
    "agent.session",
    "agent.plan",
    "agent.commands",
    "agent.options",
    "agent.usage",
    "agent.compaction",
    "stream.start",
    "stream.delta",
    "stream.reasoning",
    "stream.retry",
    "compaction.prune",
    "stream.complete",
    "tool.call.start",
    "tool.call.output",
    "tool.call.end",
    "tool.call.error",
    "tool.timeout",
    "turn.complete",
    "permission.request",
    "permission.response",
    "permission.granted",
    "permission.revoked",
    "client.request",
    "client.response",
    "client.notice",
    "client.display",
    "memory.add",
    "memory.search",
    "memory.delete",
    "turn.changes",
    "changes.undone",
    "changes.redone",
    "session.forked",
    "abort",
];

/// An event's type as it is kept: one that we know is not kept again with each event.
pub fn kind_named(name: &str) -> Cow<'static, str> {
    match EVENT_TYPES.iter().find(|kind| **kind == name) {
        Some(kind) => Cow::Borrowed(kind),
        None => Cow::Owned(name.to_owned()),
    }
}

impl EventBody {
    /// The wire name, such as `stream.delta`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::SessionCreated { .. } => "session.created",
            Self::SessionPrompt { .. } => "session.prompt",
            Self::SessionSteer { .. } => "session.steer",
            Self::SessionCompleted { .. } => "session.completed",
            Self::SessionError { .. } => "session.error",
            Self::SessionConfigured(_) => "session.configured",
            Self::TurnQueued { .. } => "turn.queued",
            Self::TurnControl { .. } => "turn.control",
            Self::TurnPaused { .. } => "turn.paused",
            Self::TurnResumed { .. } => "turn.resumed",
            Self::LoopStart {} => "loop.start",
            Self::LoopComplete { .. } => "loop.complete",
            Self::LoopDoomLoop { .. } => "loop.doom_loop",
            Self::AgentSession { .. } => "agent.session",
            Self::AgentPlan(_) => "agent.plan",
            Self::AgentCommands(_) => "agent.commands",
            Self::AgentOptions(_) => "agent.options",
            Self::AgentUsage(_) => "agent.usage",
            Self::AgentCompaction(_) => "agent.compaction",
            Self::StreamStart {} => "stream.start",
            Self::StreamDelta { .. } => "stream.delta",
            Self::StreamReasoning { .. } => "stream.reasoning",
            Self::StreamRetry { .. } => "stream.retry",
            Self::CompactionPrune { .. } => "compaction.prune",
            Self::StreamComplete { .. } => "stream.complete",
            Self::ToolCallStart { .. } => "tool.call.start",
            Self::ToolCallOutput { .. } => "tool.call.output",
            Self::ToolCallEnd { .. } => "tool.call.end",
            Self::ToolCallError { .. } => "tool.call.error",
            Self::ToolTimeout { .. } => "tool.timeout",
            Self::TurnComplete { .. } => "turn.complete",
            Self::PermissionRequest { .. } => "permission.request",
            Self::PermissionResponse { .. } => "permission.response",
            Self::PermissionGranted(_) => "permission.granted",
            Self::PermissionRevoked { .. } => "permission.revoked",
            Self::ClientRequest { .. } => "client.request",
            Self::ClientResponse { .. } => "client.response",
            Self::ClientNotice { .. } => "client.notice",
            Self::ClientDisplay { .. } => "client.display",
            Self::MemoryAdd { .. } => "memory.add",
            Self::MemorySearch { .. } => "memory.search",
            Self::MemoryDelete { .. } => "memory.delete",
            Self::TurnChanges(_) => "turn.changes",
            Self::ChangesUndone { .. } => "changes.undone",
            Self::ChangesRedone { .. } => "changes.redone",
            Self::SessionForked { .. } => "session.forked",
            Self::Abort { .. } => "abort",
        }
    }
}
