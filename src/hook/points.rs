//! What hooks around sessions and turns are told, and what they may answer.
//!
//! All of it has one form on the wire, for JavaScript and for configured commands: members in camelCase, whose session it is
//! beside the rest.

use std::path::PathBuf;

use serde::Serialize;

use crate::protocol::{
    ClientQuestion, CompactionTrigger, Part, PromptMode, RequestId, SessionId, TurnId, TurnStatus, TurnStop,
};

/// The points around sessions and turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Point {
    /// `session.start`.
    SessionStart,
    /// `session.end`.
    SessionEnd,
    /// `prompt.submit`.
    PromptSubmit,
    /// `turn.stop`.
    TurnStop,
    /// `session.compact.before`.
    CompactBefore,
    /// `notification`.
    Notification,
}

/// Whose session and turn it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Whose {
    /// The session.
    pub session_id: SessionId,
    /// The session above all, where it works for another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_session_id: Option<SessionId>,
    /// The turn. None: it happens beside turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    /// Where the session works.
    pub working_directory: PathBuf,
}

/// `session.start`: a session gets its first prompt since it was made, or since it was last let go from memory.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionStart {
    /// Whose.
    #[serde(flatten)]
    pub whose: Whose,
    /// Whether it has been worked in before.
    pub source: StartSource,
}

/// What a session begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StartSource {
    /// Nothing.
    New,
    /// What was said before.
    Resumed,
}

/// `session.end`: a session that has started is let go.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionEnd {
    /// Whose.
    #[serde(flatten)]
    pub whose: Whose,
    /// Why.
    pub reason: EndReason,
}

/// Why a session is let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// Nobody has needed it for a while. Its next prompt starts it again.
    Idle,
    /// It was deleted.
    Deleted,
    /// The server stops.
    Shutdown,
}

/// `prompt.submit`: a client's prompt, before anything is made of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Submitted {
    /// Whose.
    #[serde(flatten)]
    pub whose: Whose,
    /// Its text.
    pub prompt: String,
    /// All of it, where it is more than text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parts: Option<Vec<Part>>,
    /// What is to become of it while a turn runs.
    pub mode: PromptMode,
}

impl Submitted {
    /// The same with another text. What it has beside text stays.
    pub fn put(&mut self, text: String) {
        if let Some(parts) = &mut self.parts {
            let images = parts.drain(..).filter(|part| matches!(part, Part::Image { .. }));
            *parts = std::iter::once(Part::Text { text: text.clone() }).chain(images.collect::<Vec<_>>()).collect();
        }
        self.prompt = text;
    }
}

/// What a hook makes of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Submission {
    /// It goes on.
    Continue {
        /// Its text from now on. None: as it was.
        prompt: Option<String>,
        /// Texts that stand behind it.
        context: Vec<String>,
    },
    /// It is refused.
    Blocked {
        /// Why, for the client.
        reason: String,
    },
}

impl Submission {
    /// As if nobody had looked.
    pub fn unchanged() -> Self {
        Self::Continue { prompt: None, context: Vec::new() }
    }
}

/// `turn.stop`: a turn is about to end.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnStopping {
    /// Whose. None: it belongs to no session.
    #[serde(flatten)]
    pub whose: Option<Whose>,
    /// How. Only one that completes can go on.
    pub ended: StopKind,
    /// What the model said last.
    pub text: String,
    /// Rounds with the model so far.
    pub rounds: u32,
    /// How often hooks have made it go on already.
    pub continued: u32,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How a turn ends by itself. Who ends it from outside does not want to hear more of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StopKind {
    /// With an answer.
    Completed,
    /// At the limit of rounds.
    IterationLimit,
    /// By an error.
    Failed,
}

/// `session.compact.before`: the conversation is about to be summed up.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BeforeCompaction {
    /// Whose. None: it belongs to no session.
    #[serde(flatten)]
    pub whose: Option<Whose>,
    /// Why. A block does not count where a provider finds the conversation too long (`overflow`): it could not go on at all.
    pub trigger: CompactionTrigger,
    /// What the summary is to look at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub focus: Option<String>,
    /// Messages of the conversation.
    pub message_count: u64,
    /// Their length in UTF-16 units.
    pub estimated_chars: u64,
}

/// What a hook says before a conversation is summed up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompactionSaid {
    /// It goes on.
    Continue {
        /// What the summary is to look at. None: as it was.
        focus: Option<String>,
    },
    /// Not now.
    Blocked {
        /// Why.
        reason: String,
    },
}

/// `notification`: something that somebody may want to be fetched for. Told behind the work's back, in order.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Notification {
    /// Whose.
    #[serde(flatten)]
    pub whose: Whose,
    /// What.
    #[serde(flatten)]
    pub news: News,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum News {
    /// A call waits for a yes.
    PermissionRequest {
        /// The request.
        request_id: RequestId,
        /// The call.
        call_id: String,
        /// The tool.
        tool_name: String,
    },
    /// A tool or a hook asks something.
    ClientRequest {
        /// The request.
        request_id: RequestId,
        /// The call that it belongs to, if it belongs to one.
        #[serde(skip_serializing_if = "Option::is_none")]
        call_id: Option<String>,
        /// What is asked.
        question: ClientQuestion,
    },
    /// A turn has ended.
    TurnEnded(TurnNews),
    /// A turn of a session under another one has ended.
    SubagentEnded(TurnNews),
}

/// How a turn has ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnNews {
    /// How.
    pub status: TurnStatus,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<TurnStop>,
    /// The beginning of what the model said last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
