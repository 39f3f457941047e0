//! What an actor is told, and by whom.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::board::BoardOrder;
use crate::base::trace::Origin;
use crate::host::{Direction, UndoDone};
use crate::permission::Subject;
use crate::protocol::{
    ApiError, Configure, EventBody, GrantId, PermissionExplanation, PromptContent, PromptMode, RequestId, SessionId,
    SessionView, ToolDefinition, TurnId, TurnRecord, TurnSettings, TurnStatus, TurnTask, Undo, Undone,
};
use crate::session::ask::{Answer, End, Question, Resolved};
use crate::session::children::{NewChild, RunEnd, Slot};
use crate::session::control::{Command, Kind, Told};
use crate::session::receipt::Receipt;
use crate::session::runner::Finished;
use crate::session::snapshot::Stand;
use crate::store::{Grant, OpenRun, Write, settings_bytes};

/// A prompt, held against limits already.
#[derive(Debug, Clone)]
pub struct NewPrompt {
    /// What the user says.
    pub content: PromptContent,
    /// What to do while a turn runs.
    pub mode: PromptMode,
    /// Settings that change with it.
    pub configure: Option<Configure>,
    /// What holds for its turn alone.
    pub only: Option<TurnSettings>,
    /// What its turn does, where it answers nothing: then it waits behind a turn that runs.
    pub task: Option<TurnTask>,
    /// Refuse unless the session has this version.
    pub if_version: Option<u64>,
    /// What the command behind it leaves in the commit that accepts it.
    pub receipt: Option<Arc<Receipt>>,
}

impl NewPrompt {
    /// What it weighs while it waits, in bytes.
    pub(in crate::session) fn bytes(&self) -> usize {
        self.content.bytes() + settings_bytes(self.configure.as_ref()) + settings_bytes(self.only.as_ref())
    }

    /// The rows that go into the commit of this answer.
    pub(in crate::session) fn receipt_rows(&self, accepted: &Accepted) -> Result<Vec<Write>, ApiError> {
        self.receipt.as_ref().map_or_else(|| Ok(Vec::new()), |receipt| receipt.take(accepted, accepted.version))
    }
}

/// Other settings, held against what there is already.
#[derive(Debug, Clone)]
pub struct NewSettings {
    /// What changes.
    pub changes: Configure,
    /// Refuse unless the session has this version.
    pub if_version: Option<u64>,
    /// What the command behind it leaves in the commit of the change.
    pub receipt: Option<Arc<Receipt>>,
}

/// Answer to a prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Accepted {
    /// The turn that works on it.
    pub turn_id: TurnId,
    /// `queued` or `running`.
    pub status: TurnStatus,
    /// The session's version now.
    pub version: u64,
}

/// A call that somebody wants explained.
pub(in crate::session) struct Explained {
    /// Its tool.
    pub(in crate::session) name: String,
    /// What is known of it.
    pub(in crate::session) definition: Option<ToolDefinition>,
    /// What patterns are held against.
    pub(in crate::session) subject: Subject,
    /// Where its command would start.
    pub(in crate::session) place: Option<std::path::PathBuf>,
}

/// Where a turn is, for who asks.
pub(in crate::session) enum TurnLook {
    /// Not over yet.
    Open {
        /// As it is now.
        now: Box<TurnRecord>,
        /// As it will have ended.
        end: oneshot::Receiver<TurnRecord>,
    },
    /// Over, though the store may not know it yet.
    Over(Box<TurnRecord>),
    /// Not one that this actor works on: see the store.
    Unknown,
}

/// What an actor is told.
pub(in crate::session) enum Order {
    /// With where it comes from.
    Prompt(Box<(NewPrompt, Origin)>, oneshot::Sender<Result<Accepted, ApiError>>),
    Control(Kind, Command, Told),
    Configure(Box<NewSettings>, oneshot::Sender<Result<SessionView, ApiError>>),
    Answer(Answer, oneshot::Sender<Result<Resolved, ApiError>>),
    View(oneshot::Sender<SessionView>),
    /// The session behind all that was done to it.
    Stand(oneshot::Sender<Result<Stand, ApiError>>),
    /// What would happen to a call now.
    Explain(Box<Explained>, oneshot::Sender<PermissionExplanation>),
    /// The grants of the session.
    Grants(oneshot::Sender<Vec<Grant>>),
    /// Takes a grant of the session back. False: it has none of that id.
    Revoke(GrantId, oneshot::Sender<Result<bool, ApiError>>),
    Turn(TurnId, oneshot::Sender<TurnLook>),
    /// Of this version alone, if one is named.
    /// With all under it, whose ids are the answer.
    Delete(Option<u64>, oneshot::Sender<Result<Vec<SessionId>, ApiError>>),
    /// What turns did to files is undone or redone.
    Undo(Box<Undo>, Direction, oneshot::Sender<Result<Undone, ApiError>>),
    /// Somebody in the turn puts a question. `named` tells it the request's id once the question is put, and
    /// of a session under another one how it stands in the log.
    Ask {
        question: Box<Question>,
        named: oneshot::Sender<(RequestId, Option<EventBody>)>,
        reply: oneshot::Sender<End>,
    },
    /// The end of a question that who asked gives it.
    Resolve {
        request: RequestId,
        end: End,
    },
    /// The files of an undo are as they are to be, or as they were.
    Undid(Box<Result<UndoDone, ApiError>>),
    /// A turn's task has ended.
    Ended(Box<Finished>),
    /// A turn had its time to stop.
    Force(TurnId),
    /// The server ends: what runs is aborted for this reason.
    Stop(String),
    /// Another node is to have it: it leaves memory, if nothing is under way in it. Whether it does.
    Rest(oneshot::Sender<bool>),
    /// About a session under this one.
    Child(ChildOrder),
    /// About what the sessions of its tree share.
    Board(BoardOrder),
    /// Room for its turns, which it has waited for.
    Slot(Slot),
}

/// What it is told about sessions under it.
pub(in crate::session) enum ChildOrder {
    /// One is to be: it is written down together with its first turn.
    Add(Box<NewChild>, oneshot::Sender<Result<(), ApiError>>),
    /// One was given more to do, in a turn of its own.
    Adopt(Box<(OpenRun, EventBody)>, oneshot::Sender<Result<(), ApiError>>),
    /// Which runs it has not done with.
    Runs(oneshot::Sender<Vec<OpenRun>>),
    /// A run is over. It is written down before it is answered.
    Settle(Box<RunEnd>, oneshot::Sender<Result<(), ApiError>>),
    /// Its runs are ended by who would be told: they are not told again.
    Silence(SessionId),
    /// One beside it says something, into the turn that runs: where none does, nobody is told.
    Say(Box<NewPrompt>, oneshot::Sender<Result<(), ApiError>>),
    /// One asks something.
    Asks(SessionId, Box<EventBody>),
    /// It no longer does.
    Answered(RequestId, Box<EventBody>),
}
