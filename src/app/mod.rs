//! Everything that a door can ask for. Doors hold an [`App`] and nothing below it.
//!
//! The application checks what callers send (`bodies`), picks implementations (`wiring`: the only
//! place that does), and hands the rest to the sessions.

mod agents;
mod answers;
mod board;
mod bodies;
mod bounds;
mod budget;
mod changes;
mod command;
mod controls;
mod counting;
mod errands;
mod files;
mod health;
mod judged;
mod lifecycle;
mod metrics;
mod nodes;
mod offers;
mod pages;
mod parse;
mod permissions;
mod prompts;
mod providers;
mod rehearsal;
mod reload;
mod roots;
mod runs;
mod session_tokens;
mod settings;
mod tool_servers;
mod wiring;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio_util::task::AbortOnDropHandle;

use crate::agent::Asker;
use crate::base::metrics::meters::Meters;
use crate::base::trace::Tracer;
use crate::base::{clock, limit};
pub use crate::bus::{Batch, encode_frame, encode_frames};
use crate::config::Settings;
use crate::hook::{Hooks, NoHooks};
pub use crate::host::{DiffWanted, FilesWanted};
use crate::memory::Memories;
use crate::model::{Model, Models};
use crate::protocol::{
    Access, ApiError, ClientId, ConfigView, CreateSession, Deleted, ErrorCode, Page, SessionId, SessionView, TokenRole,
    TurnId, TurnRecord, TurnStatus,
};
use crate::provider::{AcpAgent, Errands, Tape};
pub use crate::session::{Accepted, Attending, EventReader, Resolved};
use crate::session::{
    GrantBook, Live, Manager, NewPrompt, Receipt, ServerRules, Terms, Workbench, disown_all, one_less, store_failure,
};
use crate::store::{Store, StoreError, TurnRow};
use crate::tool::Registry;
pub use agents::acp_agent;
pub use bounds::{any_setting, narrow};
use command::Commands;
pub use command::{
    ANONYMOUS, Command, Handled, KINDS, Kind, Listed, Message, Names, Operation, Outcome, Request, Response, Step,
    Submitted, Subscribe, Unread,
};
pub use controls::{Aborted, Interrupted, Paused, Resumed};
pub use errands::{CALLS_MODEL_ID, Carried, ClientCall};
pub use judged::{Judged, Namesakes};
pub use lifecycle::{Begin, LifecyclePage, LifecycleReader};
use nodes::Ways;
pub use nodes::{
    ANSWER_BYTES_MAX, Answers, Arrived, BETWEEN_NODES, COMMAND_PATH, CallerPassed, HERE_PATH, HOPS, Handing, Holder,
    LEAVES, LETTERS_MAX, LetterId, NodeKey, PATIENCE, PAUSE, URGENT_LETTERS_MAX, Unanswered, Whereabouts,
};
use offers::LocalModels;
pub use pages::EventPage;
pub use parse::parse_json;
pub use prompts::Listing;
pub use reload::Configuration;
pub use session_tokens::{Confined, SessionTokens};
use wiring::Wardrobe;

/// Who asks. Clients see their own sessions only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The token's name, the `X-Client-ID` or both; None, the owner without a client id, is a client of its own.
    pub client: Option<ClientId>,
    /// How much of what is its own it may touch.
    pub role: TokenRole,
    /// The one session that it reaches, where it reaches one alone.
    pub only: Option<SessionId>,
}

impl Default for Caller {
    /// The owner: whoever holds the application itself.
    fn default() -> Self {
        Self { client: None, role: TokenRole::Owner, only: None }
    }
}

impl Caller {
    /// Refuses what is not for its role. Doors have asked for all that a request's first line tells.
    ///
    /// # Errors
    /// `FORBIDDEN`.
    pub fn needs(&self, access: Access) -> Result<(), ApiError> {
        if self.role.may(access) { Ok(()) } else { Err(ApiError::role_needed(self.role, TokenRole::least(access))) }
    }
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

/// The application could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The store said no.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A setting does not hold.
    #[error("{field}: expected {expected}")]
    Setting {
        /// The setting, as its giver calls it.
        field: String,
        /// What was expected, and what is there.
        expected: String,
    },
}

/// The application.
pub struct App {
    settings: RwLock<Arc<Settings>>,
    /// Models that the program which embeds the application brought along.
    own_models: Vec<Arc<dyn Model>>,
    /// What is known of the configuration since the start.
    configuration: Mutex<Option<Configuration>>,
    /// What is in force, as it is told.
    config: Mutex<Arc<ConfigView>>,
    /// Canonical; working directories lie under one of them.
    roots: Vec<PathBuf>,
    store: Arc<dyn Store>,
    data_directory: Option<PathBuf>,
    memories: Option<Arc<Memories>>,
    models: Models,
    /// Where answers of models are kept, or come from.
    tape: Option<Arc<Tape>>,
    /// Models on this machine, and when they were looked for.
    local_models: tokio::sync::Mutex<LocalModels>,
    /// Calls that clients make themselves.
    errands: Errands,
    agents: Vec<Arc<AcpAgent>>,
    wardrobe: Arc<Wardrobe>,
    sessions: Manager,
    commands: Commands,
    /// To other nodes.
    ways: Ways,
    /// Sessions in the store, about: what is being created counts already.
    session_count: Arc<AtomicU64>,
    session_tokens: Arc<SessionTokens>,
    /// Grants that outlive sessions.
    saved: Arc<GrantBook>,
    meters: Arc<Meters>,
    tracer: Tracer,
    opened_at_ms: u64,
    /// Rids the record of changes of sessions that are gone. Ends with the application.
    _tidying: Option<AbortOnDropHandle<()>>,
    /// What it does for the other servers of the store. Ends with the application.
    _company: [Option<AbortOnDropHandle<()>>; 3],
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").field("data_directory", &self.data_directory).finish_non_exhaustive()
    }
}

impl App {
    /// Opens the store, deals with what a crash left behind, and is ready. Tool servers start in the background:
    /// one that is slow or missing holds nothing up.
    ///
    /// # Errors
    /// [`OpenError`] that names the setting or the directory.
    pub async fn open(settings: Settings, extras: Extras) -> Result<Arc<Self>, OpenError> {
        let store = wiring::store(&settings).await?;
        Self::open_over(store, settings, extras).await
    }

    /// The same over a store that is open already.
    async fn open_over(
        (store, data_directory): (Arc<dyn Store>, Option<PathBuf>),
        settings: Settings,
        extras: Extras,
    ) -> Result<Arc<Self>, OpenError> {
        let roots = roots::roots(&settings)?;
        wiring::recover_changes(&roots, &settings.allowed_paths).await;
        let tools = extras.registry.as_ref().map(|registry| registry.names());
        let agents = agents::configured(&settings, tools.as_deref())?;
        let tape = providers::tape(&settings).await?;
        let errands = Errands::default();
        let models =
            providers::models(&settings, extras.models.clone(), &agents::beside(&agents, &errands), tape.as_ref())?;
        let models = models.with_unlisted(vec![Arc::new(errands.clone())]);
        let hooks = extras.hooks.unwrap_or_else(|| Arc::new(NoHooks));
        let memories = wiring::memories(&settings, data_directory.as_deref()).await?;
        let kept = data_directory.as_deref();
        let wardrobe = Wardrobe::new(&settings, models.clone(), (hooks, extras.registry), kept)?;
        let recording = wiring::recording(&settings, kept).await?;
        let wardrobe = Arc::new(wardrobe.with_memories(memories.clone()).with_recording(recording));
        let saved = Arc::new(GrantBook::open(Arc::clone(&store)).await?);
        let meters = Arc::<Meters>::default();
        let tracer = settings.collector.clone().map_or_else(Tracer::default, Tracer::start);
        let session_count = Arc::new(AtomicU64::new(store.session_count().await?));
        let terms = Terms {
            session_count: Arc::clone(&session_count),
            limits: settings.limits.clone().into(),
            rules: Arc::new(ServerRules::new(&settings.permissions, wiring::floor(&settings, kept))),
            asker: extras.asker,
            saved: Arc::clone(&saved),
            roots: roots::further_roots(&settings),
            meters: Arc::clone(&meters),
            tracer: tracer.clone(),
        };
        let sessions = Manager::new(Arc::clone(&store), Arc::clone(&wardrobe) as Arc<dyn Workbench>, terms);
        sessions.take_up(data_directory.as_deref()).await?;
        let commands = Commands::new(Arc::clone(&store), settings.limits.commands_per_minute);
        wardrobe.servers().start();
        let disowns = |recording: &Arc<_>| tokio::spawn(disown_all(Arc::clone(&store), Arc::clone(recording)));
        let tidying = wardrobe.recording().map(disowns).map(AbortOnDropHandle::new);
        let session_tokens = SessionTokens::open(data_directory.clone(), &store).await;
        let company = [sessions.keep_company(), session_tokens.follow(), commands.keep_company()];
        Ok(Arc::new(Self {
            settings: RwLock::new(Arc::new(settings)),
            own_models: extras.models,
            configuration: Mutex::default(),
            config: Mutex::default(),
            roots,
            session_count,
            session_tokens,
            store,
            data_directory,
            memories,
            models,
            tape,
            local_models: tokio::sync::Mutex::default(),
            errands,
            agents,
            wardrobe,
            sessions,
            commands,
            ways: Ways::default(),
            saved,
            meters,
            tracer,
            opened_at_ms: clock::now_ms(),
            _tidying: tidying,
            _company: company,
        }))
    }

    /// The settings as they are now.
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read())
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
        self.create_session_with(caller, body, None).await
    }

    /// The same, as a command that leaves its receipt in the same commit.
    async fn create_session_with(
        &self,
        caller: &Caller,
        body: CreateSession,
        receipt: Option<&Receipt>,
    ) -> Result<SessionView, ApiError> {
        caller.at_large()?;
        let row = self.new_row(caller, body).await?;
        self.counted(self.sessions.create(row, receipt)).await
    }

    /// Makes a session, where one more may be kept.
    async fn counted(
        &self,
        make: impl Future<Output = Result<SessionView, ApiError>>,
    ) -> Result<SessionView, ApiError> {
        let sessions_max = self.settings().limits.sessions_max;
        if self.session_count.fetch_add(1, Ordering::AcqRel) >= sessions_max {
            one_less(&self.session_count);
            let message = format!("{sessions_max} sessions are kept already; delete some");
            return Err(ApiError::new(ErrorCode::ResourceExhausted, message));
        }
        let created = make.await;
        if created.is_err() {
            one_less(&self.session_count);
        }
        created
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
        if let Some(only) = &caller.only {
            return Ok(Page { items: vec![self.session(caller, only).await?], next_cursor: None });
        }
        let after = cursor.map(str::parse::<SessionId>).transpose();
        let after = after.map_err(|_| ApiError::invalid("cursor", "the `nextCursor` of the page before"))?;
        let gone = |id| {
            let expected = format!("the `nextCursor` of the page before; there is no session {id} (any more)");
            ApiError::invalid("cursor", expected)
        };
        if let Some(after) = &after {
            // Another client's session is not there, here too.
            let row = self.store.session(after).await.map_err(|e| store_failure(&e))?;
            row.filter(|row| row.client == caller.client).ok_or_else(|| gone(after.clone()))?;
        }
        let limit = limit.clamp(1, limit::PAGE_ITEMS_MAX);
        let rows = self.store.sessions(caller.client.as_ref(), after.as_ref(), limit + 1).await;
        let mut rows = rows.map_err(|error| match error {
            StoreError::NoSession(id) => gone(id),
            other => store_failure(&other),
        })?;
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next_cursor = rows.last().filter(|_| more).map(|row| row.id.to_string());
        let mut items = Vec::with_capacity(rows.len());
        for row in rows {
            items.push(self.sessions.view_of_row(row).await?);
        }
        Ok(Page { items, next_cursor })
    }

    /// One session.
    ///
    /// # Errors
    /// `NOT_FOUND`, another client's included.
    pub async fn session(&self, caller: &Caller, id: &SessionId) -> Result<SessionView, ApiError> {
        caller.reaches(id)?;
        self.sessions.view(caller.client.as_ref(), id).await
    }

    /// Stops what runs, ends the session's streams, forgets it.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub async fn delete_session(&self, caller: &Caller, id: &SessionId) -> Result<Deleted, ApiError> {
        self.delete_session_at(caller, id, None).await
    }

    /// The same of this version alone, if one is named.
    async fn delete_session_at(
        &self,
        caller: &Caller,
        id: &SessionId,
        if_version: Option<u64>,
    ) -> Result<Deleted, ApiError> {
        caller.at_large()?;
        for gone in self.live(caller, id).await?.delete(if_version).await? {
            self.forget_session_tokens(&gone).await;
            self.wardrobe.servers().release(&gone);
            one_less(&self.session_count);
        }
        Ok(Deleted { deleted: true })
    }

    /// A turn's record.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub async fn turn(&self, caller: &Caller, id: &SessionId, turn: &TurnId) -> Result<TurnRecord, ApiError> {
        caller.reaches(id)?;
        self.sessions.turn(caller.client.as_ref(), id, turn).await
    }

    /// The records of a session's turns, newest first; `hidden`: with those that answer no prompt. A page may have fewer than were
    /// asked for: while there is a cursor there are more.
    ///
    /// # Errors
    /// `NOT_FOUND`; `INVALID_ARGUMENT` for a cursor that is none.
    pub async fn turns(
        &self,
        caller: &Caller,
        id: &SessionId,
        (cursor, limit): (Option<&str>, usize),
        hidden: bool,
    ) -> Result<Page<TurnRecord>, ApiError> {
        let limit = limit.clamp(1, limit::PAGE_ITEMS_MAX);
        let expected = || ApiError::invalid("cursor", "the `nextCursor` of the page before");
        let after = cursor.map(|text| text.parse::<TurnId>().map_err(|_| expected())).transpose()?;
        self.session(caller, id).await?;
        let rows = self.store.turns(id, after.as_ref(), limit + 1).await;
        let mut rows = rows.map_err(|error| match error {
            StoreError::NoTurn(_) => expected(),
            other => store_failure(&other),
        })?;
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next_cursor = rows.last().filter(|_| more).map(|row| row.record.turn_id.to_string());
        let mut items = Vec::with_capacity(rows.len());
        for TurnRow { record, .. } in rows.into_iter().filter(|row| hidden || row.record.task.is_none()) {
            // Of one that runs, the store does not know how far it is.
            items.push(match record.status {
                TurnStatus::Running | TurnStatus::Waiting | TurnStatus::Paused => {
                    self.sessions.turn(caller.client.as_ref(), id, &record.turn_id).await?
                }
                TurnStatus::Queued
                | TurnStatus::Completed
                | TurnStatus::Failed
                | TurnStatus::Aborted
                | TurnStatus::Interrupted => record,
            });
        }
        Ok(Page { items, next_cursor })
    }

    /// Waits for a turn's end and answers with its record. While it waits, the session has a client. Cancel-safe.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub async fn wait_turn(&self, caller: &Caller, id: &SessionId, turn: &TurnId) -> Result<TurnRecord, ApiError> {
        self.live(caller, id).await?.wait(turn).await
    }

    async fn live(&self, caller: &Caller, id: &SessionId) -> Result<Arc<Live>, ApiError> {
        caller.reaches(id)?;
        self.sessions.live(caller.client.as_ref(), id).await
    }

    /// Refuses new work, lets turns finish for `grace`, aborts the rest, makes everything durable, closes the
    /// store. Ends all readers. Idempotent.
    ///
    /// # Errors
    /// When the log could not be written.
    pub async fn shutdown(&self, grace: Duration) -> Result<(), ApiError> {
        let saved = self.sessions.shutdown(grace).await;
        self.commands.settle(Duration::from_millis(limit::COMMANDS_SETTLE_MS)).await;
        self.store.bell().close();
        self.wardrobe.servers().close().await;
        futures_util::future::join_all(self.agents.iter().map(|agent| agent.stop())).await;
        let closed = self.store.close().await.map_err(|error| ApiError::internal(error.to_string()));
        let memory_closed = match &self.memories {
            Some(memories) => memories.close().await.map_err(|error| ApiError::internal(error.to_string())),
            None => Ok(()),
        };
        let ended = saved.and(closed).and(memory_closed).and(self.close_record().await);
        // What was to be told of it is told; a collector that does not answer holds nothing up for long.
        self.tracer.flush().await;
        ended
    }
}
