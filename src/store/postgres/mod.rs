//! The store on PostgreSQL (15 or newer): one writer with group commit, and a pool of connections for reading.
//!
//! What was called back is committed with the durability that the database is set to (`synchronous_commit`), also to its replicas. A
//! database that restarts is waited for; nothing is lost or done twice meanwhile (see `write`). The log is compact as in SQLite: what
//! follows one another of one turn is one row.

mod clock;
mod connect;
pub(in crate::store) mod copied;
mod fault;
mod fork;
mod letters;
mod lifecycle;
mod node;
mod plan;
mod read;
mod schema;
mod shared;
mod sweep;
mod tidings;
mod watched;
mod write;

#[cfg(test)]
mod simulated;
#[cfg(test)]
pub(in crate::store) mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use deadpool_postgres::{Client, Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::task::AbortOnDropHandle;

use self::connect::Reach;
use self::fault::Fault;
use self::node::Node;
pub use self::node::{Doorway, Home, node_name};
use self::shared::SharedDatabase;
use self::tidings::Tidings;
use self::write::{Job, Writer};
use super::lifecycle::{Bell, EndsKept, LifecyclePage, line_of};
use super::{
    BoxFuture, ClientSpending, Cluster, CommitMeter, Committed, GrantRow, Made, OutcomeRow, OutcomesKept, Said,
    SessionRow, Store, StoreError, TurnRow, Which, Write,
};
use crate::base::panics::broken;
use crate::protocol::{ClientId, Event, SessionId, TurnId};

/// From so many commits on that wait, each more costs all others time.
const CROWD: usize = 512;
/// Connections for reading.
const READERS_MAX: usize = 8;
/// Longest wait for one of them.
const READER_WAIT: Duration = Duration::from_secs(10);
/// How long a reader waits for a database that does not answer, and the pause between two attempts.
const AWAY_MAX: Duration = Duration::from_secs(30);
const READ_PAUSE: Duration = Duration::from_millis(250);
/// How long one attempt may take: longer than the database gives a statement.
const ATTEMPT_MAX: Duration = Duration::from_secs(35);
/// The same of a look whether it works.
const CHECK_MAX: Duration = Duration::from_secs(5);
/// The same where no beat was heard for a while, and the time between two looks whether one was.
const TOUCH_LOOK: Duration = Duration::from_millis(250);
const TOUCH_WAIT: Duration = Duration::from_secs(1);
/// How long a start waits for the database, but for the silence of the server before it.
const OPEN_MAX: Duration = Duration::from_secs(30);

/// Durable in a database.
pub struct PostgresStore {
    reach: Reach,
    pool: Pool,
    jobs: Mutex<Option<mpsc::UnboundedSender<Job>>>,
    writer: Arc<tokio::sync::Mutex<Option<JoinHandle<()>>>>,
    bell: Arc<Bell>,
    meter: Arc<CommitMeter>,
    node: Node,
    /// What goes on beside it, as long as it is open.
    beating: Mutex<Vec<AbortOnDropHandle<()>>>,
    home: Mutex<Home>,
    /// With the servers that share the database.
    shared: Option<Arc<SharedDatabase>>,
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresStore").field("place", &self.reach.place).finish_non_exhaustive()
    }
}

impl PostgresStore {
    /// Opens the database of a URL (`postgres://user@host/database`), and makes its tables where they are not there. One server has it at
    /// a time: one that is silent is waited for.
    ///
    /// # Errors
    /// [`StoreError::Io`] that names the place, never what is secret; [`StoreError::TooNew`]; [`StoreError::Occupied`].
    pub async fn open((url, password): (&str, Option<&str>), home: Home) -> Result<Self, StoreError> {
        let wrong = |cause| StoreError::Io { doing: "read the address of the database".into(), cause };
        Self::open_as(Reach::of(url, password).map_err(wrong)?, home, false).await
    }

    /// The same; `beside`: beside others that write.
    async fn open_as(reach: Reach, home: Home, beside: bool) -> Result<Self, StoreError> {
        let manager = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(reach.config.clone(), reach.tls.clone(), manager);
        let pool = Pool::builder(manager).max_size(READERS_MAX).wait_timeout(Some(READER_WAIT));
        let pool = pool.create_timeout(Some(READER_WAIT)).recycle_timeout(Some(READER_WAIT));
        let pool = pool.runtime(Runtime::Tokio1).build();
        let pool =
            pool.map_err(|error| StoreError::Io { doing: "open the database".into(), cause: error.to_string() })?;
        let opened = |fault: Fault| fault.told("open the database", &reach.place);
        let first = async {
            let first = pool.get().await.map_err(|error| opened(error.into()))?;
            schema::migrate(&first, &reach.place).await?;
            Ok(first)
        };
        let first = tokio::time::timeout(OPEN_MAX, first).await.unwrap_or_else(|_| Err(opened(silent())))?;
        let (bell, meter) = (Arc::new(Bell::default()), Arc::new(CommitMeter::default()));
        *meter.ends.lock() = lifecycle::kept(&first).await.map_err(opened)?;
        *meter.outcomes.lock() = read::outcomes_kept(&first).await.map_err(opened)?;
        let node = Node::join(&first, (&home, beside), &reach).await?;
        drop(first);
        let line = reach.line().await.map_err(opened)?;
        let mut beating = vec![node.beat(line, reach.clone()).await.map_err(opened)?];
        let tidings = home.shares().then(|| Arc::new(Tidings::new(&node, Arc::clone(&bell))));
        let mut shared = None;
        if let Some(tidings) = &tidings {
            let with = SharedDatabase::join((reach.clone(), pool.clone()), node.clone(), Arc::clone(tidings)).await?;
            beating.extend(tidings.start(&reach));
            beating.extend([with.watch(), with.keep_mail()]);
            shared = Some(with);
        }
        let (jobs, receiver) = mpsc::unbounded_channel();
        let told = (Arc::clone(&bell), Arc::clone(&meter));
        let writer = Writer::new((reach.clone(), node.clone()), told, tidings);
        let writer = Arc::new(tokio::sync::Mutex::new(Some(tokio::spawn(writer.run(receiver)))));
        Ok(Self {
            reach,
            pool,
            jobs: Mutex::new(Some(jobs)),
            writer,
            bell,
            meter,
            node,
            beating: Mutex::new(beating),
            home: Mutex::new(home),
            shared,
        })
    }

    /// From now on nothing of that node is written.
    #[cfg(test)]
    async fn declare_over(&self, number: i64) -> Result<(), Fault> {
        node::declare_over(&*self.pool.get().await?, number, None).await
    }

    /// Ends as a process that is killed.
    #[cfg(test)]
    fn forget(self) {
        self.beating.lock().clear();
        self.home.lock().give_back();
    }

    /// Whether an address can be used. Reaches nothing.
    ///
    /// # Errors
    /// What was expected, without what is secret.
    pub fn check_address(url: &str) -> Result<(), String> {
        Reach::of(url, None).map(drop).map_err(|wrong| format!("the address of a PostgreSQL; {wrong}"))
    }

    /// Waits until this server has not been in touch with the others for so long; for ever, where there cannot be any.
    async fn out_of_touch_for(&self, time: Duration) {
        loop {
            if self.shared.is_some() && tokio::time::timeout(time, self.node.in_touch()).await.is_err() {
                return;
            }
            tokio::time::sleep(TOUCH_LOOK).await;
        }
    }

    fn unreached(&self) -> StoreError {
        let cause = self.node.unheard().unwrap_or_else(|| self.reach.place.to_string());
        let cause = format!("no beat of this server is heard: {cause}");
        StoreError::Away { doing: "look whether it works".into(), cause }
    }

    /// Nobody has to wait for this server's silence.
    async fn leave(&self) {
        let left = match self.pool.get().await {
            Ok(line) => self.node.leave(&line).await,
            Err(error) => Err(error.into()),
        };
        if let Err(fault) = left {
            tracing::debug!(?fault, "the database was not told that this server has ended");
        }
    }

    /// Reads; anew where the connection was lost: nothing is changed by it.
    async fn read<T, F>(&self, doing: &str, look: impl Fn(Client) -> F + Send + Sync) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Fault>> + Send,
        T: Send,
    {
        let looks = |line: Client| {
            let is_open = self.jobs.lock().is_some();
            let looked = look(line);
            async move { if is_open { looked.await } else { Err(StoreError::Closed.into()) } }
        };
        persist((&self.pool, &self.reach), doing, looks).await
    }
}

/// Does something that changes nothing when it is done again; anew where the connection was lost.
async fn persist<T, F>(
    (pool, reach): (&Pool, &Reach),
    doing: &str,
    look: impl Fn(Client) -> F + Send + Sync,
) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, Fault>> + Send,
    T: Send,
{
    let began = Instant::now();
    loop {
        let attempt = async { look(pool.get().await?).await };
        let found = tokio::time::timeout(ATTEMPT_MAX, attempt).await;
        match found.unwrap_or_else(|_| Err(silent())) {
            Ok(found) => return Ok(found),
            Err(Fault::Lost(_) | Fault::Again(_)) if began.elapsed() < AWAY_MAX => tokio::time::sleep(READ_PAUSE).await,
            Err(fault) => return Err(fault.told(doing, &reach.place)),
        }
    }
}

/// It took longer than anything may.
fn silent() -> Fault {
    Fault::Lost("it does not answer".into())
}

impl Store for PostgresStore {
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
        let job = (make, done);
        let back = match self.jobs.lock().as_ref() {
            Some(jobs) => jobs.send(job).err().map(|back| back.0),
            None => Some(job),
        };
        if let Some((_, done)) = back {
            self.meter.take(1);
            done(Err(StoreError::Closed));
        }
    }

    fn session<'a>(&'a self, id: &'a SessionId) -> BoxFuture<'a, Result<Option<SessionRow>, StoreError>> {
        let look = move |line: Client| async move { read::session(&line, id).await };
        Box::pin(self.read("read a session", look))
    }

    fn sessions<'a>(
        &'a self,
        client: Option<&'a ClientId>,
        after: Option<&'a SessionId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<SessionRow>, StoreError>> {
        let look = move |line: Client| async move { read::sessions(&line, client, after, limit).await };
        Box::pin(self.read("list sessions", look))
    }

    fn family<'a>(
        &'a self,
        root: &'a SessionId,
        after: Option<&'a SessionId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<SessionRow>, StoreError>> {
        let look = move |line: Client| async move { read::family(&line, root, after, limit).await };
        Box::pin(self.read("list the sessions under one", look))
    }

    fn with_children(&self) -> BoxFuture<'_, Result<Vec<SessionRow>, StoreError>> {
        let look = |line: Client| async move { read::with_children(&line).await };
        Box::pin(self.read("list sessions with others under them", look))
    }

    fn events<'a>(
        &'a self,
        id: &'a SessionId,
        after: u64,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Event>, StoreError>> {
        let look = move |line: Client| async move { read::events(&line, id, after, limit).await };
        Box::pin(self.read("read events", look))
    }

    fn last_seq<'a>(&'a self, id: &'a SessionId) -> BoxFuture<'a, Result<u64, StoreError>> {
        let look = move |line: Client| async move { read::last_seq(&line, id).await };
        Box::pin(self.read("read the end of a log", look))
    }

    fn asked<'a>(&'a self, id: &'a SessionId, which: &'a Which) -> BoxFuture<'a, Result<bool, StoreError>> {
        let look = move |line: Client| async move { read::asked(&line, id, which).await };
        Box::pin(self.read("look for a question", look))
    }

    fn turn<'a>(&'a self, id: &'a SessionId, turn: &'a TurnId) -> BoxFuture<'a, Result<Option<TurnRow>, StoreError>> {
        let look = move |line: Client| async move { read::turn(&line, id, turn).await };
        Box::pin(self.read("read a turn", look))
    }

    fn said<'a>(&'a self, id: &'a SessionId, at: u64) -> BoxFuture<'a, Result<Option<Arc<Said>>, StoreError>> {
        let look = move |line: Client| async move { read::said(&line, id, at).await };
        Box::pin(self.read("read what was said to a turn", look))
    }

    fn turns<'a>(
        &'a self,
        id: &'a SessionId,
        after: Option<&'a TurnId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<TurnRow>, StoreError>> {
        let look = move |line: Client| async move { read::turns(&line, id, after, limit).await };
        Box::pin(self.read("list turns", look))
    }

    fn open_turns(&self) -> BoxFuture<'_, Result<Vec<TurnRow>, StoreError>> {
        let look = |line: Client| async move { read::open_turns(&line).await };
        Box::pin(self.read("read the open turns", look))
    }

    fn grants(&self) -> BoxFuture<'_, Result<Vec<GrantRow>, StoreError>> {
        let look = |line: Client| async move { read::grants(&line).await };
        Box::pin(self.read("list the saved grants", look))
    }

    fn spending<'a>(
        &'a self,
        client: Option<&'a ClientId>,
    ) -> BoxFuture<'a, Result<Option<ClientSpending>, StoreError>> {
        let node = self.shared.is_some().then_some(self.node.number);
        let look = move |line: Client| async move { read::spending(&line, (client, node)).await };
        Box::pin(self.read("look for what a client has spent", look))
    }

    fn outcome<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<OutcomeRow>, StoreError>> {
        let look = move |line: Client| async move { read::outcome(&line, name).await };
        Box::pin(self.read("look for a command's outcome", look))
    }

    fn lifecycle<'a>(
        &'a self,
        client: Option<&'a ClientId>,
        after: u64,
        limit: usize,
    ) -> BoxFuture<'a, Result<LifecyclePage, StoreError>> {
        let look = move |line: Client| async move { lifecycle::page(&line, line_of(client), after, limit).await };
        Box::pin(self.read("read lifecycle events", look))
    }

    fn lifecycle_end<'a>(&'a self, client: Option<&'a ClientId>) -> BoxFuture<'a, Result<u64, StoreError>> {
        let look = move |line: Client| async move { lifecycle::newest(&line, line_of(client)).await };
        Box::pin(self.read("look for the newest lifecycle event", look))
    }

    fn bell(&self) -> &Bell {
        &self.bell
    }

    fn session_count(&self) -> BoxFuture<'_, Result<u64, StoreError>> {
        let look = |line: Client| async move { read::session_count(&line).await };
        Box::pin(self.read("count the sessions", look))
    }

    fn is_crowded(&self) -> bool {
        self.meter.waiting() >= CROWD
    }

    fn cluster(&self) -> Option<Arc<dyn Cluster>> {
        self.shared.clone().map(|shared| shared as Arc<dyn Cluster>)
    }

    fn begun_elsewhere<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<bool, StoreError>> {
        if self.shared.is_none() {
            return Box::pin(std::future::ready(Ok(false)));
        }
        let own = self.node.number;
        let look = move |line: Client| async move { read::begun_elsewhere(&line, name, own).await };
        Box::pin(self.read("look for a command's outcome", look))
    }

    fn taken_over(&self) -> BoxFuture<'static, ()> {
        let node = self.node.clone();
        Box::pin(async move { node.ended().await })
    }

    fn out_of_touch(&self) -> Option<BoxFuture<'static, ()>> {
        self.shared.as_ref()?;
        let node = self.node.clone();
        (!node.is_in_touch()).then(|| -> BoxFuture<'static, ()> { Box::pin(async move { node.in_touch().await }) })
    }

    fn check(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            if self.node.is_over() {
                return Err(StoreError::TakenOver);
            }
            let work = async {
                self.session_count().await?;
                // An empty commit goes through the writer and its transaction.
                let (tx, rx) = tokio::sync::oneshot::channel();
                self.commit(Vec::new(), Box::new(move |result| drop(tx.send(result))));
                rx.await.unwrap_or(Err(StoreError::Closed))
            };
            let away = |_| Err(silent().told("look whether it works", &self.reach.place));
            tokio::select! {
                checked = tokio::time::timeout(CHECK_MAX, work) => checked.unwrap_or_else(away),
                () = self.out_of_touch_for(TOUCH_WAIT) => Err(self.unreached()),
            }
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        // Without a sender the writer does what was handed in before, and ends.
        self.jobs.lock().take();
        let writer = Arc::clone(&self.writer);
        Box::pin(async move {
            let ended = match writer.lock().await.take() {
                Some(writer) => writer.await,
                None => Ok(()),
            };
            self.beating.lock().clear();
            if !self.node.is_over() {
                self.leave().await;
            }
            self.pool.close();
            self.home.lock().give_back();
            let cause = |cause| format!("{}: the writer: {}", self.reach.place, broken(cause));
            ended.map_err(|error| StoreError::Io { doing: "close the database".into(), cause: cause(error) })
        })
    }
}
