// FROM LEAD to store: src/app/{agents,bodies,wiring}.rs and this facade are written; only adapt the calls to your Manager
// (wiring::Wardrobe implements your Workbench). Then delete these two lines. Do not write them anew.
//! Everything that a door can ask for. Doors hold an [`App`] and nothing below it.
//!
//! The application checks what callers send (`bodies`), picks implementations (`wiring`: the only
//! place that does), and hands the rest to the sessions.

mod agents;
mod bodies;
mod wiring;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::agent::Asker;
use crate::base::{clock, limit};
pub use crate::bus::{Batch, encode_frames};
use crate::config::Settings;
use crate::hook::Hooks;
use crate::model::{Model, Models};
use crate::protocol::{
    Abort, AgentView, ApiError, ClientId, CreateSession, Deleted, Feedback, Health, Item, ModelView, Page, Prompt,
    SessionId, SessionView, ToolDefinition, TurnId, TurnRecord,
};
use crate::session::{SessionParts, Sessions};
pub use crate::session::{Accepted, EventReader, Resolved};
use crate::store::{Store, StoreError};
use crate::tool::Registry;

use wiring::Wardrobe;

/// Why an abort happened, when the client does not say.
const ABORT_REASON: &str = "aborted by the client";

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

/// Answer to an abort.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Aborted {
    /// Always true.
    pub aborted: bool,
    /// The turn that was aborted.
    pub turn_id: TurnId,
}

/// The application could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The store said no.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A setting does not hold.
    #[error("`{field}`: expected {expected}")]
    Setting {
        /// The setting.
        field: String,
        /// What was expected, and what is there.
        expected: String,
    },
}

/// The application.
pub struct App {
    settings: Settings,
    /// Canonical; working directories lie under one of them.
    roots: Vec<PathBuf>,
    store: Arc<dyn Store>,
    data_directory: Option<PathBuf>,
    models: Models,
    wardrobe: Arc<Wardrobe>,
    sessions: Arc<Sessions>,
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").field("data_directory", &self.data_directory).finish_non_exhaustive()
    }
}

impl App {
    /// Opens the store, deals with what a crash left behind, and is ready.
    ///
    /// # Errors
    /// [`OpenError`] that names the setting or the directory.
    pub async fn open(settings: Settings, extras: Extras) -> Result<Arc<Self>, OpenError> {
        let roots = wiring::roots(&settings)?;
        let models = wiring::models(&settings, extras.models)?;
        let wardrobe = Arc::new(Wardrobe::new(&settings, models.clone(), extras.registry)?);
        let (store, data_directory) = wiring::store(&settings.storage).await?;
        let parts = SessionParts {
            store: Arc::clone(&store),
            limits: settings.limits.clone(),
            permissions: settings.permissions.clone(),
            hooks: extras.hooks.unwrap_or_else(|| Arc::new(crate::hook::NoHooks)),
            asker: extras.asker,
            outfit: Arc::clone(&wardrobe) as Arc<dyn crate::session::Outfit>,
        };
        let sessions = Sessions::open(parts).await?;
        Ok(Arc::new(Self { settings, roots, store, data_directory, models, wardrobe, sessions }))
    }

    /// The settings it was opened with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Where its sessions are kept; None: in memory.
    pub fn data_directory(&self) -> Option<PathBuf> {
        self.data_directory.clone()
    }

    /// Creates a session. Nothing is spawned.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`, `CONFLICT` (the id is taken), `RESOURCE_EXHAUSTED`, `UPSTREAM_UNAVAILABLE`
    /// (the agent cannot be used).
    pub async fn create_session(&self, caller: &Caller, body: CreateSession) -> Result<SessionView, ApiError> {
        let row = self.session_row(caller, body).await?;
        self.sessions.create(row).await
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
        let after = cursor.map(str::parse::<SessionId>).transpose();
        let after = after.map_err(|_| ApiError::invalid("cursor", "the `nextCursor` of the page before"))?;
        let limit = limit.clamp(1, limit::PAGE_ITEMS_MAX);
        let mut items = self.sessions.list(caller.client.as_ref(), after.as_ref(), limit + 1).await?;
        let more = items.len() > limit;
        items.truncate(limit);
        let last = items.last().filter(|_| more);
        let next_cursor = last.map(|view| view.session_id.to_string());
        Ok(Page { items, next_cursor })
    }

    /// One session.
    ///
    /// # Errors
    /// `NOT_FOUND`, another client's included.
    pub async fn session(&self, caller: &Caller, id: &SessionId) -> Result<SessionView, ApiError> {
        self.sessions.view(caller.client.as_ref(), id).await
    }

    /// Stops what runs, ends the session's streams, forgets it.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub async fn delete_session(&self, caller: &Caller, id: &SessionId) -> Result<Deleted, ApiError> {
        self.sessions.delete(caller.client.as_ref(), id).await?;
        Ok(Deleted { deleted: true })
    }

    /// Accepts a prompt; its turn runs on whether or not anybody waits.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`, `NOT_FOUND`, `CONFLICT` (busy and `reject`, or another version),
    /// `RESOURCE_EXHAUSTED` (queue full).
    pub async fn prompt(&self, caller: &Caller, id: &SessionId, body: Prompt) -> Result<Accepted, ApiError> {
        bodies::check_prompt(&body)?;
        if let Some(configure) = &body.configure {
            self.check_configure(configure)?;
        }
        self.sessions.prompt(caller.client.as_ref(), id, body).await
    }

    /// A turn's record.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub async fn turn(&self, caller: &Caller, id: &SessionId, turn: &TurnId) -> Result<TurnRecord, ApiError> {
        self.sessions.turn(caller.client.as_ref(), id, turn).await
    }

    /// Waits for a turn's end and answers with its record. While it waits, the session has a client. Cancel-safe.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub async fn wait_turn(&self, caller: &Caller, id: &SessionId, turn: &TurnId) -> Result<TurnRecord, ApiError> {
        self.sessions.wait_turn(caller.client.as_ref(), id, turn).await
    }

    /// Aborts the running turn: stream, tools, questions.
    ///
    /// # Errors
    /// `NOT_FOUND`; `CONFLICT` when nothing runs.
    pub async fn abort(&self, caller: &Caller, id: &SessionId, body: Abort) -> Result<Aborted, ApiError> {
        let reason = body.reason.unwrap_or_else(|| ABORT_REASON.to_owned());
        bodies::check_text("reason", &reason, limit::REASON_BYTES_MAX)?;
        let turn_id = self.sessions.abort(caller.client.as_ref(), id, reason).await?;
        Ok(Aborted { aborted: true, turn_id })
    }

    /// Answers a question.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`; `NOT_FOUND` for an unknown request; `CONFLICT` for one that has its answer or has expired.
    pub async fn feedback(&self, caller: &Caller, id: &SessionId, body: Feedback) -> Result<Resolved, ApiError> {
        bodies::check_feedback(&body)?;
        self.sessions.feedback(caller.client.as_ref(), id, body).await
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
        let limit = limit.clamp(1, limit::PAGE_ITEMS_MAX);
        self.sessions.history(caller.client.as_ref(), id, after, limit).await
    }

    /// Reads the session's events behind number `after`.
    ///
    /// # Errors
    /// `NOT_FOUND`, `INVALID_ARGUMENT` (a number that lies ahead of the log), `RESOURCE_EXHAUSTED` (too many streams).
    pub async fn events(&self, caller: &Caller, id: &SessionId, after: u64) -> Result<EventReader, ApiError> {
        self.sessions.events(caller.client.as_ref(), id, after).await
    }

    /// The tools that sessions have.
    pub fn tools(&self) -> Vec<ToolDefinition> {
        self.wardrobe.definitions()
    }

    /// The agents that sessions can name.
    pub fn agents(&self) -> Vec<AgentView> {
        agents::list(&self.settings.acp_servers)
    }

    /// The models that sessions can name.
    pub fn models(&self) -> Vec<ModelView> {
        let view = |model: &Arc<dyn Model>| {
            let reason = model.available().err().map(|error| error.to_string());
            let default = model.id() == self.models.default_id();
            ModelView { id: model.id().to_owned(), available: reason.is_none(), reason, default }
        };
        self.models.list().iter().map(view).collect()
    }

    /// How it is. `unhealthy` when the store does not work; a model that cannot be used is only said.
    pub async fn health(&self) -> Health {
        let store = match self.store.check().await {
            Ok(()) => json!({ "status": "ok" }),
            Err(error) => json!({ "status": "unhealthy", "reason": error.to_string() }),
        };
        let id = self.models.default_id();
        let reason = self.models.get(id).and_then(|model| model.available().err());
        let model = match reason {
            None => json!({ "status": "ok", "id": id }),
            Some(error) => json!({ "status": "unavailable", "id": id, "reason": error.to_string() }),
        };
        let status = if store["status"] == "ok" { "ok" } else { "unhealthy" };
        let mut checks = serde_json::Map::new();
        checks.insert("store".into(), store);
        checks.insert("model".into(), model);
        Health {
            status: status.into(),
            timestamp: clock::now_text(),
            version: env!("CARGO_PKG_VERSION").into(),
            checks,
        }
    }

    /// Refuses new work, lets turns finish for `grace`, aborts the rest, makes everything durable, closes the
    /// store. Ends all readers. Idempotent.
    ///
    /// # Errors
    /// When the log could not be written.
    pub async fn shutdown(&self, grace: Duration) -> Result<(), ApiError> {
        let ended = self.sessions.shutdown(grace).await;
        let closed = self.store.close().await;
        ended?;
        closed.map_err(|error| ApiError::internal(error.to_string()))
    }
}
