//! Everything that a door can ask for. Doors hold an [`App`] and nothing below it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::agent::Asker;
pub use crate::bus::{Batch, encode_frames};
use crate::config::Settings;
use crate::hook::Hooks;
use crate::model::Model;
use crate::protocol::{
    Abort, AgentView, ApiError, ClientId, CreateSession, Deleted, Feedback, Health, Item, ModelView, Page, Prompt,
    RequestId, SessionId, SessionView, ToolDefinition, TurnId, TurnRecord, TurnStatus,
};
use crate::tool::Registry;

/// Who asks. Clients see their own sessions only.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Caller {
    /// `X-Client-ID`; None is a client of its own.
    pub client: Option<ClientId>,
}

/// Parts that a program which embeds the application brings along.
#[derive(Default, Clone)]
pub struct Extras {
    /// Tools of every session, instead of the host tools.
    pub registry: Option<Arc<Registry>>,
    /// Hooks of every session.
    pub hooks: Option<Arc<dyn Hooks>>,
    /// Answers every `ask` beside the clients: the question is published, and the first answer counts.
    /// While it is here, no session is without somebody to ask.
    pub asker: Option<Arc<dyn Asker>>,
    /// Further models.
    pub models: Vec<Arc<dyn Model>>,
}

/// Answer to a prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Accepted {
    /// The turn that works on it.
    pub turn_id: TurnId,
    /// `queued` or `running`.
    pub status: TurnStatus,
    /// The session's version now.
    pub version: u64,
}

/// Answer to an abort.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Aborted {
    /// Always true.
    pub aborted: bool,
    /// The turn that was aborted.
    pub turn_id: TurnId,
}

/// Answer to feedback.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resolved {
    /// The request.
    pub request_id: RequestId,
    /// The call.
    pub call_id: String,
    /// The answer that counts.
    pub allowed: bool,
}

/// The application could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The store said no.
    #[error(transparent)]
    Store(#[from] crate::store::StoreError),
    /// A setting does not hold.
    #[error("`{field}`: expected {expected}")]
    Setting {
        /// The setting.
        field: String,
        /// What was expected, and what is there.
        expected: String,
    },
}

/// A cursor into a session's events. While it lives, the session has a client.
#[derive(Debug)]
pub struct EventReader {}

impl EventReader {
    /// The next events behind the cursor; waits for them. None: the session or the server has ended.
    ///
    /// A batch may begin with events that the cursor has passed already: skip up to [`Self::position`]
    /// as it was before the call. Cancel-safe.
    ///
    /// # Errors
    /// What the store says.
    pub async fn next(&mut self) -> Result<Option<Arc<Batch>>, ApiError> {
        todo!()
    }

    /// Number of the last event given out.
    pub fn position(&self) -> u64 {
        todo!()
    }
}

/// The application.
pub struct App {}

impl App {
    /// Opens the store, deals with what a crash left behind, and is ready.
    ///
    /// # Errors
    /// [`OpenError`] that names the setting or the directory.
    pub async fn open(settings: Settings, extras: Extras) -> Result<Arc<Self>, OpenError> {
        todo!()
    }

    /// The settings it was opened with.
    pub fn settings(&self) -> &Settings {
        todo!()
    }

    /// Where its sessions are kept; None: in memory.
    pub fn data_directory(&self) -> Option<PathBuf> {
        todo!()
    }

    /// Creates a session. Nothing is spawned.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`, `CONFLICT` (the id is taken), `RESOURCE_EXHAUSTED`.
    pub async fn create_session(&self, caller: &Caller, body: CreateSession) -> Result<SessionView, ApiError> {
        todo!()
    }

    /// Sessions of the caller, newest first.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a cursor that is none.
    pub async fn sessions(
        &self,
        caller: &Caller,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<SessionView>, ApiError> {
        todo!()
    }

    /// One session.
    ///
    /// # Errors
    /// `NOT_FOUND`, another client's included.
    pub async fn session(&self, caller: &Caller, id: &SessionId) -> Result<SessionView, ApiError> {
        todo!()
    }

    /// Stops what runs, ends the session's streams, forgets it.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub async fn delete_session(&self, caller: &Caller, id: &SessionId) -> Result<Deleted, ApiError> {
        todo!()
    }

    /// Accepts a prompt; its turn runs on whether or not anybody waits.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`, `NOT_FOUND`, `CONFLICT` (busy and `reject`, or another version), `RESOURCE_EXHAUSTED` (queue full).
    pub async fn prompt(&self, caller: &Caller, id: &SessionId, body: Prompt) -> Result<Accepted, ApiError> {
        todo!()
    }

    /// A turn's record.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub async fn turn(&self, caller: &Caller, id: &SessionId, turn: &TurnId) -> Result<TurnRecord, ApiError> {
        todo!()
    }

    /// Waits for a turn's end and answers with its record. While it waits, the session has a client. Cancel-safe.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub async fn wait_turn(&self, caller: &Caller, id: &SessionId, turn: &TurnId) -> Result<TurnRecord, ApiError> {
        todo!()
    }

    /// Aborts the running turn: stream, tools, questions.
    ///
    /// # Errors
    /// `NOT_FOUND`; `CONFLICT` when nothing runs.
    pub async fn abort(&self, caller: &Caller, id: &SessionId, body: Abort) -> Result<Aborted, ApiError> {
        todo!()
    }

    /// Answers a question.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`; `NOT_FOUND` for an unknown request; `CONFLICT` for one that has its answer or has expired.
    pub async fn feedback(&self, caller: &Caller, id: &SessionId, body: Feedback) -> Result<Resolved, ApiError> {
        todo!()
    }

    /// The history, oldest first, behind item number `after` (an event's number), at most `limit`.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub async fn history(
        &self,
        caller: &Caller,
        id: &SessionId,
        after: u64,
        limit: usize,
    ) -> Result<Page<Item>, ApiError> {
        todo!()
    }

    /// Reads the session's events behind number `after`.
    ///
    /// # Errors
    /// `NOT_FOUND`, `INVALID_ARGUMENT` (a number that lies ahead of the log), `RESOURCE_EXHAUSTED` (too many streams).
    pub async fn events(&self, caller: &Caller, id: &SessionId, after: u64) -> Result<EventReader, ApiError> {
        todo!()
    }

    /// The tools that sessions have.
    pub fn tools(&self) -> Vec<ToolDefinition> {
        todo!()
    }

    /// The agents that sessions can name.
    pub fn agents(&self) -> Vec<AgentView> {
        todo!()
    }

    /// The models that sessions can name.
    pub fn models(&self) -> Vec<ModelView> {
        todo!()
    }

    /// How it is.
    pub async fn health(&self) -> Health {
        todo!()
    }

    /// Refuses new work, lets turns finish for `grace`, aborts the rest, makes everything durable. Ends all readers. Idempotent.
    ///
    /// # Errors
    /// When the log could not be written.
    pub async fn shutdown(&self, grace: Duration) -> Result<(), ApiError> {
        todo!()
    }
}
