//! The seam under everything durable: sessions, turns and the event log.
//!
//! Writes go in as commits (lists of [`Write`]s): each is atomic, and they become durable in the order they were
//! handed in. An implementation may put many commits into one transaction (group commit).
//! What [`Store::commit`] calls back about is on disk; nothing else is ever shown to a client.
//!
//! Nothing here assumes that this process is the log's only reader.
//!
//! `recall` is a store of its own: the texts of long-term memory, which no session owns. So is `snapshots`: what turns
//! did to files.

pub mod chain;
mod cluster;
pub mod copy;
mod directory;
pub mod inspect;
mod layer;
mod lifecycle;
mod made;
mod memory;
mod meters;
mod outcome;
mod postgres;
pub mod recall;
mod record;
mod rows;
mod said;
pub mod snapshots;
mod sqlite;
mod turn;

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod past;

use std::path::PathBuf;
use std::sync::Arc;

use serde::Deserialize;

pub use crate::base::BoxFuture;
use crate::protocol::{ClientId, Event, GrantId, RequestId, SessionId, TurnId};

use chain::Chain;
pub use cluster::{Cluster, CommandsGiven, Held, Holder, Letter, Letters, Load, Presence, Replied, Unfinished};
pub use directory::{Lock, hold_directory, hold_first_free};
pub use lifecycle::{Bell, EndsKept, LifecyclePage};
pub use memory::MemoryStore;
pub use meters::CommitMeter;
pub use outcome::{Fingerprint, OutcomeRow, OutcomesKept};
#[cfg(test)]
pub(crate) use postgres::tests::Postgres;
pub use postgres::{Doorway, Home, PostgresStore, node_name};
pub use rows::{
    Came, ClientSpending, Grant, GrantRow, GrantSubject, OpenRun, SessionRow, SessionSettings, SharedPlaces, Steers,
    TurnRow,
};
pub use said::{Apart, Said, Waiting, settings_bytes, shown};
pub use sqlite::{Inspection, SqliteStore};

/// A storage operation failed. Variants differ by what the caller should do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// A session of that id is there already. Report it.
    #[error("the session id {0} is taken: choose another one, or none")]
    Taken(SessionId),
    /// Nothing by that name. Report it; do not retry.
    #[error("no session {0}")]
    NoSession(SessionId),
    /// No turn of that id in the session. Report it.
    #[error("no turn {0}")]
    NoTurn(TurnId),
    /// Another process holds the data directory. Report it.
    #[error("the data directory {directory} is in use by another simse process{holder}", directory = directory.display())]
    InUse {
        /// The directory.
        directory: PathBuf,
        /// ` (pid N, http://…)` when it is known, else empty.
        holder: String,
    },
    /// What was read is not what was written. Keep the file.
    #[error("the log of session {session} is damaged near event {seq}: {cause}")]
    Damaged {
        /// The session.
        session: SessionId,
        /// The first event that could not be read.
        seq: u64,
        /// The decoder's words.
        cause: String,
    },
    /// The database does not answer. Retry later.
    #[error("the database cannot be reached to {doing}: {cause}")]
    Away {
        /// A verb phrase: "read a session".
        doing: String,
        /// The system's own words, with the place.
        cause: String,
    },
    /// Another server writes to the database. Report it.
    #[error("{place} is in use by another simse server: {holder}")]
    Occupied {
        /// The database.
        place: String,
        /// Machine and process.
        holder: String,
    },
    /// This server was silent for so long that another one was put in its place. Nothing more is written by it.
    #[error(
        "another server has taken over from this one, which was silent for too long: nothing more is written by it"
    )]
    TakenOver,
    /// Another server has the session. Ask that one.
    #[error("session {0} is held by another server")]
    Elsewhere(SessionId),
    /// Another server has begun a command under this name. Look again.
    #[error("another server has begun this command")]
    Begun,
    /// The file was written by a newer version.
    #[error("{path} has schema version {found}; this program knows up to {known}", path = path.display())]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// Ours.
        known: i64,
    },
    /// The file is no whole database any more. Keep it; a copy from before helps.
    #[error("{path} is not a whole database: {cause}", path = path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: String,
    },
    /// The disk or the database said no. Retry when somebody has acted.
    #[error("storage failed while trying to {doing}: {cause}")]
    Io {
        /// A verb phrase: "append events".
        doing: String,
        /// The system's own words, with the path.
        cause: String,
    },
    /// Forks of forks of forks, without end.
    #[error("session {session} is the {forks_max}th fork in a row: each goes through the logs of those before it")]
    TooDeep {
        /// The session that was to be forked.
        session: SessionId,
        /// The limit.
        forks_max: usize,
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

/// Which question to the client is meant: by its own id, by its call, or by both.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Which {
    /// The question's id.
    pub request_id: Option<RequestId>,
    /// The call that waits for it.
    pub call_id: Option<String>,
}

/// What a store keeps at hand of a question to the client.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Question {
    request_id: RequestId,
    /// Empty: no call waits for permission here.
    #[serde(default)]
    call_id: String,
}

impl Question {
    /// The question that an event puts. None: it puts none.
    fn of(event: &Event) -> Option<Self> {
        // Cheap for all others: deltas come by the thousand.
        match event.kind.as_ref() {
            "permission.request" => serde_json::from_str(event.payload.get()).ok(),
            // A call may put many of these: none is found by it.
            "client.request" => {
                let asked: Self = serde_json::from_str(event.payload.get()).ok()?;
                Some(Self { call_id: String::new(), ..asked })
            }
            _ => None,
        }
    }
}

/// One change. A commit is a list of them.
#[derive(Debug, Clone)]
pub enum Write {
    /// A new session. Fails with [`StoreError::Taken`].
    CreateSession(Box<SessionRow>),
    /// A new session that begins with the log of another one, up to event `at`. Fails with [`StoreError::Taken`] and
    /// [`StoreError::TooDeep`].
    ForkSession {
        /// The new one.
        row: Box<SessionRow>,
        /// The other one. It may be deleted later.
        parent: SessionId,
        /// The last event that both have in common.
        at: u64,
        /// The chain of the other one to that event, where it has been followed already.
        chain: Option<Chain>,
    },
    /// A session's new facts.
    UpdateSession(Box<SessionRow>),
    /// A session goes, with its turns and its log.
    DeleteSession(SessionId),
    /// Events at the end of a session's log. Numbers follow the last one without a gap.
    Append(SessionId, Arc<Vec<Event>>),
    /// A turn's new facts.
    SaveTurn(Box<TurnRow>),
    /// Something large that waits, under a number of its session: see [`Waiting::Apart`]. None: it waits no longer.
    Said(SessionId, u64, Option<Arc<Said>>),
    /// A grant that outlives its session, new or changed.
    SaveGrant(Box<GrantRow>),
    /// Such a grant goes. Nothing happens when it is gone already.
    DeleteGrant(GrantId),
    /// What a client has spent; all that clients have spent in spans of time that were over before is forgotten.
    SaveSpending(Box<ClientSpending>),
    /// A command's outcome, or that it has begun. The first outcome under a name stays, see [`OutcomeRow`].
    SaveOutcome(Box<OutcomeRow>),
    /// A command that had begun was refused after all: nothing is remembered under this name. An outcome stays.
    ForgetOutcome(String),
}

/// Called once, in the order of the commits, by whoever writes at that moment: keep it short.
/// It may hand in further commits; their callbacks come after it has returned.
pub type Committed = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// Names the changes of a commit when it is written.
pub type Made = Box<dyn FnOnce() -> Vec<Write> + Send>;

/// Durable state.
///
/// Reads are asynchronous and never block the caller's thread for long. Lists are newest first.
pub trait Store: Send + Sync + 'static {
    /// Hands in changes that happen together or not at all. Never blocks.
    fn commit(&self, writes: Vec<Write>, done: Committed);

    /// The same of changes that are named only when their turn has come: what comes meanwhile goes with them. `make` is
    /// called at most once, before `done`, perhaps at once, and by whoever writes at that moment: keep it short. When the
    /// store is closed, only `done` is.
    fn commit_made(&self, make: Made, done: Committed) {
        self.commit(make(), done);
    }

    /// A session's facts.
    fn session<'a>(&'a self, id: &'a SessionId) -> BoxFuture<'a, Result<Option<SessionRow>, StoreError>>;

    /// Sessions of a client, newest first, at most `limit`, behind `after` (the last id of the page before).
    fn sessions<'a>(
        &'a self,
        client: Option<&'a ClientId>,
        after: Option<&'a SessionId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<SessionRow>, StoreError>>;

    /// Sessions under this one, however deep, newest first, at most `limit`, behind `after` (the last id of the page before).
    /// Of a session that is not above all: none, see [`Lineage::path`](crate::protocol::Lineage::path).
    fn family<'a>(
        &'a self,
        root: &'a SessionId,
        after: Option<&'a SessionId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<SessionRow>, StoreError>>;

    /// All sessions that have not done with runs of sessions under them, oldest first: what a restart has to deal with.
    fn with_children(&self) -> BoxFuture<'_, Result<Vec<SessionRow>, StoreError>>;

    /// Events with numbers above `after`, at most about `limit` and about a megabyte, oldest first.
    ///
    /// Empty: there are none. Fewer than `limit` says nothing: ask again behind the last one.
    fn events<'a>(
        &'a self,
        id: &'a SessionId,
        after: u64,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Event>, StoreError>>;

    /// Number of the newest event of a session; 0 when it has none.
    fn last_seq<'a>(&'a self, id: &'a SessionId) -> BoxFuture<'a, Result<u64, StoreError>>;

    /// Whether the log holds a question to the client that `which` means, open or over. Reads no log.
    fn asked<'a>(&'a self, id: &'a SessionId, which: &'a Which) -> BoxFuture<'a, Result<bool, StoreError>>;

    /// A turn's facts.
    fn turn<'a>(&'a self, id: &'a SessionId, turn: &'a TurnId) -> BoxFuture<'a, Result<Option<TurnRow>, StoreError>>;

    /// Something large that waits, under a number of its session. None: there is nothing under it.
    fn said<'a>(&'a self, id: &'a SessionId, at: u64) -> BoxFuture<'a, Result<Option<Arc<Said>>, StoreError>>;

    /// Turns of a session, newest first, at most `limit`, behind `after` (the last one of the page before).
    ///
    /// Empty, too, when there is no such session. [`StoreError::NoTurn`] when it has no turn `after`.
    fn turns<'a>(
        &'a self,
        id: &'a SessionId,
        after: Option<&'a TurnId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<TurnRow>, StoreError>>;

    /// All turns of all sessions that are not over, oldest first: what a restart has to deal with.
    fn open_turns(&self) -> BoxFuture<'_, Result<Vec<TurnRow>, StoreError>>;

    /// All grants that outlive their sessions, oldest first.
    fn grants(&self) -> BoxFuture<'_, Result<Vec<GrantRow>, StoreError>>;

    /// What a client has spent in the span of time that was written down last.
    fn spending<'a>(
        &'a self,
        client: Option<&'a ClientId>,
    ) -> BoxFuture<'a, Result<Option<ClientSpending>, StoreError>>;

    /// What is remembered of the command of that name. It may have expired: see [`OutcomeRow::at`].
    fn outcome<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<OutcomeRow>, StoreError>>;

    /// Lifecycle events of a client's sessions behind place `after`, at most about `limit` and about a megabyte, in the
    /// order in which they were stored.
    fn lifecycle<'a>(
        &'a self,
        client: Option<&'a ClientId>,
        after: u64,
        limit: usize,
    ) -> BoxFuture<'a, Result<LifecyclePage, StoreError>>;

    /// The place of a client's newest lifecycle event. Of a client that has none: the place behind which its first one comes.
    fn lifecycle_end<'a>(&'a self, client: Option<&'a ClientId>) -> BoxFuture<'a, Result<u64, StoreError>>;

    /// What wakes who waits for lifecycle events: rung when they can be read.
    fn bell(&self) -> &Bell;

    /// How many sessions there are.
    fn session_count(&self) -> BoxFuture<'_, Result<u64, StoreError>>;

    /// How many outcomes of commands are remembered, about, and when the oldest of them was written.
    fn outcomes_kept(&self) -> OutcomesKept {
        OutcomesKept::default()
    }

    /// How many ends of sessions are told of, about, and since when.
    fn ends_kept(&self) -> EndsKept {
        EndsKept::default()
    }

    /// What it counts of its commits. None: it counts nothing.
    fn meter(&self) -> Option<Arc<CommitMeter>> {
        None
    }

    /// Whether so many commits wait that each costs all others time.
    fn is_crowded(&self) -> bool {
        false
    }

    /// Waits until another server was put in this one's place: then nothing more is written by it. Never, where that cannot be.
    fn taken_over(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }

    /// None: nothing has been written in this one's place. Otherwise what waits until it is known again that nobody has; for ever, where
    /// somebody has. Nothing that is seen outside of the store may begin before.
    fn out_of_touch(&self) -> Option<BoxFuture<'static, ()>> {
        None
    }

    /// Whether another server that is there has begun the command of that name, and not ended it.
    fn begun_elsewhere<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<bool, StoreError>> {
        let _ = name;
        Box::pin(std::future::ready(Ok(false)))
    }

    /// The servers that share it. None: this one has it alone.
    fn cluster(&self) -> Option<Arc<dyn Cluster>> {
        None
    }

    /// Whether it works, in one word or a sentence about what does not.
    fn check(&self) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Waits until everything handed in is durable, then closes.
    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>>;
}

/// Hands in changes and waits for them.
///
/// # Errors
/// Whatever the store says; [`StoreError::Closed`] when it dropped the commit.
pub async fn commit(store: &Arc<dyn Store>, writes: Vec<Write>) -> Result<(), StoreError> {
    let (tx, rx) = tokio::sync::oneshot::channel();
    store.commit(writes, Box::new(move |result| drop(tx.send(result))));
    rx.await.unwrap_or(Err(StoreError::Closed))
}

/// Whether a session whose log ends with event `last` can be forked behind event `at`.
fn check_fork(parent: &SessionId, at: u64, last: u64) -> Result<(), StoreError> {
    if (1..=last).contains(&at) {
        return Ok(());
    }
    let cause = format!("event {at} of session {parent}, whose log ends with event {last}");
    Err(StoreError::Io { doing: "fork a session".into(), cause })
}

/// Holds the numbers of events against the number of the last one before them.
fn check_numbers(last: u64, events: &[Event]) -> Result<(), StoreError> {
    for (event, want) in events.iter().zip(last + 1..) {
        if event.seq != want {
            let cause = format!("event {} of session {} came where {want} was due", event.seq, event.session_id);
            return Err(StoreError::Io { doing: "append events".into(), cause });
        }
    }
    Ok(())
}
