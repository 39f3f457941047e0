//! The store on SQLite: one writer thread with group commit, read-only connections beside it.
//!
//! The log is compact: all events of one append that belong to one turn are one row (see `record`),
//! and its key holds the session's number and the first event's, so that it needs no index.
//! What turns say is written to the end of a table for all sessions, and gathered from there (see `fresh`).
//! Journal mode is WAL with `synchronous=NORMAL`: what was called back survives the end of the process
//! at any instant; a power cut may take the last moments, whole commits at a time, newest first.
//!
//! Invariant: one process holds a data directory at a time, by a lock on its file `lock`.

mod chained;
pub(super) mod copied;
mod fork;
mod fresh;
mod inspect;
mod lifecycle;
mod outcome;
mod places;
mod read;
mod said;
mod schema;
mod sound;
mod sweep;
mod typed;
mod write;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rusqlite::{Connection, OpenFlags};

use super::directory::{self, Lock, make_private_file};
use super::layer::Layer;
use super::lifecycle::{Bell, EndsKept, LifecyclePage, line_of};
use super::{
    BoxFuture, ClientSpending, CommitMeter, Committed, GrantRow, Made, OutcomeRow, OutcomesKept, Said, SessionRow,
    Store, StoreError, TurnRow, Which, Write,
};
use crate::base::panics::broken;
use crate::protocol::{ClientId, Event, SessionId, TurnId};
use places::{Moment, Places};
use write::Job;

pub use inspect::Inspection;

/// From so many commits on that wait, each more costs all others time.
const CROWD: usize = 16;

/// The database's name in its data directory.
const FILE: &str = "simse.db";
/// Idle read connections that are kept; more are made when more is read at once.
const IDLE_READERS_MAX: usize = 4;

/// Durable in a directory.
pub struct SqliteStore {
    readers: Arc<Readers>,
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
    threads: Arc<Mutex<Vec<JoinHandle<()>>>>,
    directory: PathBuf,
    lock: Arc<Mutex<Option<Lock>>>,
    bell: Arc<Bell>,
    meter: Arc<CommitMeter>,
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").field("directory", &self.directory).finish_non_exhaustive()
    }
}

/// Read-only connections.
struct Readers {
    path: PathBuf,
    layer: Layer,
    /// Where sessions' rows lie in `fresh`.
    places: Arc<Places>,
    /// None when the store is closed.
    idle: Mutex<Option<Vec<Connection>>>,
}

impl SqliteStore {
    /// Opens a data directory; makes it (for its owner alone) where it is not there.
    ///
    /// Blocks for as long as opening a file takes.
    ///
    /// # Errors
    /// [`StoreError::InUse`], [`StoreError::TooNew`], or [`StoreError::Io`] that names the path.
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        let lock = directory::hold_directory(directory)?;
        Self::open_locked(directory, lock)
    }

    /// Opens the first of the directories `under/0`, `under/1` … that no other process holds.
    ///
    /// # Errors
    /// As [`Self::open`]; [`StoreError::InUse`] when all are held.
    pub fn open_first_free(under: &Path) -> Result<Self, StoreError> {
        let (directory, lock) = directory::hold_first_free(under)?;
        Self::open_locked(&directory, lock)
    }

    fn open_locked(directory: &Path, lock: Lock) -> Result<Self, StoreError> {
        let path = directory.join(FILE);
        schema::check_whole(&path)?;
        make_private_file(&path)?;
        let (writer, layer) = schema::open(&path)?;
        let (jobs, receiver) = mpsc::channel();
        let bell = Arc::new(Bell::default());
        let meter = Arc::new(CommitMeter::default());
        let (threads, places) =
            write::start((writer, layer), &path, (receiver, Arc::clone(&bell), Arc::clone(&meter)))?;
        Ok(Self {
            readers: Arc::new(Readers { path, layer, places, idle: Mutex::new(Some(Vec::new())) }),
            jobs: Mutex::new(Some(jobs)),
            threads: Arc::new(Mutex::new(threads)),
            directory: directory.to_owned(),
            lock: Arc::new(Mutex::new(Some(lock))),
            bell,
            meter,
        })
    }

    /// Whether a directory has the database of such a store.
    pub fn lies_in(directory: &Path) -> bool {
        directory.join(FILE).is_file()
    }

    /// The data directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Lets the database grow to at most so many pages of 2048 bytes, as a full disk would. For tests; 0: no limit.
    #[doc(hidden)]
    pub fn limit_pages(&self, pages_max: u32) {
        self.send(Job::LimitPages(pages_max));
    }

    /// Refuses every write, as a disk that became read-only would. For tests.
    #[doc(hidden)]
    pub fn refuse_writes(&self, refuse: bool) {
        self.send(Job::RefuseWrites(refuse));
    }

    /// Hands a job to the writer; gives it back when the store is closed.
    fn send(&self, job: Job) -> Option<Job> {
        match self.jobs.lock().as_ref() {
            Some(jobs) => jobs.send(job).err().map(|back| back.0),
            None => Some(job),
        }
    }

    /// Reads on the blocking pool.
    fn read<'a, T, F>(&'a self, doing: &'static str, look: F) -> BoxFuture<'a, Result<T, StoreError>>
    where
        T: Send + 'static,
        F: FnOnce(&Moment<'_>) -> Result<T, read::ReadError> + Send + 'static,
    {
        let readers = Arc::clone(&self.readers);
        Box::pin(async move {
            let work = tokio::task::spawn_blocking(move || readers.with(doing, look));
            work.await.unwrap_or_else(|e| Err(StoreError::Io { doing: doing.into(), cause: broken(e) }))
        })
    }
}

impl Readers {
    fn with<T>(
        &self,
        doing: &str,
        look: impl FnOnce(&Moment<'_>) -> Result<T, read::ReadError>,
    ) -> Result<T, StoreError> {
        let idle = self.idle.lock().as_mut().ok_or(StoreError::Closed)?.pop();
        let failed = |e: rusqlite::Error| schema::failure(doing, &self.path, &e);
        let connection = match idle {
            Some(connection) => connection,
            None => self.connect().map_err(failed)?,
        };
        // One moment for all that is looked up: events go over from `fresh` into the log meanwhile.
        let transaction = connection.unchecked_transaction().map_err(failed)?;
        let result = look(&Moment::new(&transaction, &self.places)).map_err(|e| match e {
            read::ReadError::Sqlite(e) => failed(e),
            read::ReadError::Store(e) => e,
        });
        drop(transaction);
        if let Some(idle) = self.idle.lock().as_mut().filter(|idle| idle.len() < IDLE_READERS_MAX) {
            idle.push(connection);
        }
        result
    }

    fn connect(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = self.layer.connect(&self.path, flags)?;
        connection.busy_timeout(schema::BUSY_TIMEOUT)?;
        connection.execute_batch("PRAGMA cache_size=-512")?;
        Ok(connection)
    }
}

impl Store for SqliteStore {
    fn outcomes_kept(&self) -> OutcomesKept {
        *self.meter.outcomes.lock()
    }

    fn ends_kept(&self) -> EndsKept {
        *self.meter.ends.lock()
    }

    fn meter(&self) -> Option<Arc<CommitMeter>> {
        Some(Arc::clone(&self.meter))
    }

    fn commit(&self, writes: Vec<Write>, done: Committed) {
        self.commit_made(Box::new(move || writes), done);
    }

    fn commit_made(&self, make: Made, done: Committed) {
        if let Err(full) = self.meter.hand_in() {
            return done(Err(full));
        }
        if let Some(Job::Commit(_, done)) = self.send(Job::Commit(make, done)) {
            self.meter.take(1);
            done(Err(StoreError::Closed));
        }
    }

    fn session<'a>(&'a self, id: &'a SessionId) -> BoxFuture<'a, Result<Option<SessionRow>, StoreError>> {
        let id = id.clone();
        self.read("read a session", move |c| read::session(c, &id))
    }

    fn sessions<'a>(
        &'a self,
        client: Option<&'a ClientId>,
        after: Option<&'a SessionId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<SessionRow>, StoreError>> {
        let (client, after) = (client.cloned(), after.cloned());
        self.read("list sessions", move |c| read::sessions(c, client.as_ref(), after.as_ref(), limit))
    }

    fn family<'a>(
        &'a self,
        root: &'a SessionId,
        after: Option<&'a SessionId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<SessionRow>, StoreError>> {
        let (root, after) = (root.clone(), after.cloned());
        self.read("list the sessions under one", move |c| read::family(c, &root, after.as_ref(), limit))
    }

    fn with_children(&self) -> BoxFuture<'_, Result<Vec<SessionRow>, StoreError>> {
        self.read("list sessions with others under them", |c| read::with_children(c))
    }

    fn events<'a>(
        &'a self,
        id: &'a SessionId,
        after: u64,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Event>, StoreError>> {
        let id = id.clone();
        self.read("read events", move |c| read::events(c, &id, after, limit))
    }

    fn last_seq<'a>(&'a self, id: &'a SessionId) -> BoxFuture<'a, Result<u64, StoreError>> {
        let id = id.clone();
        self.read("read the end of a log", move |c| read::last_seq(c, &id))
    }

    fn asked<'a>(&'a self, id: &'a SessionId, which: &'a Which) -> BoxFuture<'a, Result<bool, StoreError>> {
        let (id, which) = (id.clone(), which.clone());
        self.read("look for a question", move |c| read::asked(c, &id, &which))
    }

    fn turn<'a>(&'a self, id: &'a SessionId, turn: &'a TurnId) -> BoxFuture<'a, Result<Option<TurnRow>, StoreError>> {
        let (id, turn) = (id.clone(), turn.clone());
        self.read("read a turn", move |c| read::turn(c, &id, &turn))
    }

    fn said<'a>(&'a self, id: &'a SessionId, at: u64) -> BoxFuture<'a, Result<Option<Arc<Said>>, StoreError>> {
        let id = id.clone();
        self.read("read what was said to a turn", move |c| said::find(c, &id, at))
    }

    fn turns<'a>(
        &'a self,
        id: &'a SessionId,
        after: Option<&'a TurnId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<TurnRow>, StoreError>> {
        let (id, after) = (id.clone(), after.cloned());
        self.read("list turns", move |c| read::turns(c, &id, after.as_ref(), limit))
    }

    fn open_turns(&self) -> BoxFuture<'_, Result<Vec<TurnRow>, StoreError>> {
        self.read("read the open turns", |c| read::open_turns(c))
    }

    fn grants(&self) -> BoxFuture<'_, Result<Vec<GrantRow>, StoreError>> {
        self.read("list the saved grants", |c| read::grants(c))
    }

    fn spending<'a>(
        &'a self,
        client: Option<&'a ClientId>,
    ) -> BoxFuture<'a, Result<Option<ClientSpending>, StoreError>> {
        let client = client.cloned();
        self.read("look for what a client has spent", move |c| read::spending(c, client.as_ref()))
    }

    fn outcome<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<OutcomeRow>, StoreError>> {
        let name = name.to_owned();
        self.read("look for a command's outcome", move |c| Ok(outcome::find(c, &name)?))
    }

    fn lifecycle<'a>(
        &'a self,
        client: Option<&'a ClientId>,
        after: u64,
        limit: usize,
    ) -> BoxFuture<'a, Result<LifecyclePage, StoreError>> {
        let client = line_of(client).to_owned();
        self.read("read lifecycle events", move |c| lifecycle::page(c, &client, after, limit))
    }

    fn lifecycle_end<'a>(&'a self, client: Option<&'a ClientId>) -> BoxFuture<'a, Result<u64, StoreError>> {
        let client = line_of(client).to_owned();
        self.read("look for the newest lifecycle event", move |c| lifecycle::newest(c, &client))
    }

    fn bell(&self) -> &Bell {
        &self.bell
    }

    fn session_count(&self) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.read("count the sessions", |c| read::session_count(c))
    }

    fn is_crowded(&self) -> bool {
        self.meter.waiting() >= CROWD
    }

    fn check(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            self.read("check the database", |c| Ok(c.query_row("SELECT 1", [], |_| Ok(()))?)).await?;
            // An empty commit goes through the writer and its transaction.
            let (tx, rx) = tokio::sync::oneshot::channel();
            self.commit(Vec::new(), Box::new(move |result| drop(tx.send(result))));
            rx.await.unwrap_or(Err(StoreError::Closed))
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        // The writer is to be the last to leave: then it empties the write-ahead log into the database.
        self.readers.idle.lock().take();
        // Without a sender it does what was handed in before, and ends.
        self.jobs.lock().take();
        let (threads, lock) = (Arc::clone(&self.threads), Arc::clone(&self.lock));
        Box::pin(async move {
            let work = tokio::task::spawn_blocking(move || {
                let ended = threads.lock().drain(..).all(|thread| thread.join().is_ok());
                lock.lock().take();
                ended
            });
            match work.await {
                Ok(true) => Ok(()),
                Ok(false) | Err(_) => {
                    let cause = format!("the writer of {} has panicked", self.directory.display());
                    Err(StoreError::Io { doing: "close the database".into(), cause })
                }
            }
        })
    }
}

impl Drop for SqliteStore {
    /// What was handed in is still written; the lock goes when it is.
    fn drop(&mut self) {
        self.readers.idle.lock().take();
        self.jobs.lock().take();
        let threads = std::mem::take(&mut *self.threads.lock());
        // A callback may hold the last reference: then this is the writer's own thread.
        if threads.iter().all(|thread| thread.thread().id() != std::thread::current().id()) {
            for thread in threads {
                let _ = thread.join();
            }
        }
    }
}
