//! Who may write: each server is a node, with a number that is never given twice.
//!
//! A node counts up its beat twice a second. Who watches it and has not seen it count for [`SILENCE_MAX`] may declare it over, and after
//! [`GONE_MAX`] where nobody listens at its url: then its process has most likely ended, and it has begun nothing for a while in any case. Every
//! transaction of a node writes its own number into the node's row (`written`), unless the node is over: behind that declaration nothing of
//! it is written any more, however late it wakes, and who declares it waits for the transaction that is under way. By the same number a
//! node knows whether a transaction happened whose end it did not hear. Silence is measured by who watches: no clock is held against
//! another one. A beat brings back the database's time of day, which is that of all its nodes.
//!
//! What is done outside of the database is not held back by that. So a node of which no beat was heard for [`TOUCH_MAX`] begins no call of a
//! tool and no request to a model until one is.
//!
//! Nodes of one home (a data directory, which one process holds at a time) follow one another: a new one declares the one before it over
//! at once.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_postgres::Client;
use tokio_util::task::AbortOnDropHandle;

use super::clock::{DatabaseClock, NOW_MS};
use super::connect::Reach;
use super::fault::Fault;
use crate::store::{Load, Lock, StoreError};

/// Time between two beats.
pub(super) const BEAT: Duration = Duration::from_millis(500);
/// A node that has not been seen to beat for so long may be declared over.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(4);
/// The same of one whose machine says that nobody listens at its url.
pub(super) const GONE_MAX: Duration = Duration::from_secs(2);
/// A node of which no beat was heard for so long begins nothing: half a second later another one may be in its place.
const TOUCH_MAX: Duration = Duration::from_millis(1_500);
const _: () = assert!(TOUCH_MAX.as_millis() < GONE_MAX.as_millis(), "who may be followed begins nothing");
/// Time between two looks at another node's beat.
pub(super) const LOOK: Duration = Duration::from_millis(250);
/// How long a beat may take before its connection is made anew: over that one there is time for another before the node is followed.
pub(super) const BEAT_MAX: Duration = Duration::from_secs(1);
/// Days after which nothing is left of nodes that are over.
const KEPT_DAYS: i32 = 7;

/// A connection, and what drives it.
type Line = (Client, AbortOnDropHandle<()>);

/// This server among those that have written to the database.
#[derive(Debug, Clone)]
pub(super) struct Node {
    /// Never given twice.
    pub(super) number: i64,
    /// Whether it was declared over.
    over: Arc<watch::Sender<bool>>,
    /// It has said so itself.
    left: Arc<AtomicBool>,
    /// What it has to do, as its beats tell.
    load: Arc<Mutex<Load>>,
    /// When the newest beat was sent that was heard.
    beaten: Arc<watch::Sender<Instant>>,
    /// Why none is heard now.
    unheard: Arc<Mutex<Option<String>>>,
}

/// Whose node it is.
#[derive(Debug)]
pub struct Home {
    /// One process has it at a time. None: nobody knows it again.
    id: Option<String>,
    /// For people: the machine and the process.
    name: String,
    lock: Option<Lock>,
    /// None: it has the database alone.
    doorway: Option<Doorway>,
}

/// Where the other servers of a database reach one that shares it.
#[derive(Debug, Clone)]
pub struct Doorway {
    /// `http://…` or `https://…`, without a path.
    pub url: String,
    /// Labels of the workspaces that it reaches.
    pub labels: Vec<String>,
}

impl Home {
    /// Of who holds a data directory; None: of nobody who is known again. It is held until the store is closed.
    pub fn held_by(lock: Option<Lock>) -> Self {
        let name = node_name();
        Self { id: lock.as_ref().and_then(Lock::identity), name, lock, doorway: None }
    }

    /// The same of a server that shares the database with others, which reach it there.
    #[must_use]
    pub fn sharing(self, doorway: Doorway) -> Self {
        Self { doorway: Some(doorway), ..self }
    }

    pub(super) fn shares(&self) -> bool {
        self.doorway.is_some()
    }

    pub(super) fn give_back(&mut self) {
        drop(self.lock.take());
    }
}

impl Node {
    /// Joins, when no other node is left that has the database alone, or `beside` any. One that has it alone itself joins when no other
    /// node is left at all. Waits for one that is silent, and refuses when it is not.
    ///
    /// # Errors
    /// [`StoreError::Occupied`] as long as another one beats.
    pub(super) async fn join(
        client: &Client,
        (home, beside): (&Home, bool),
        reach: &Reach,
    ) -> Result<Self, StoreError> {
        let failed = |fault: Fault| fault.told("join the servers of the database", &reach.place);
        if let Some(id) = &home.id {
            succeed(client, id).await.map_err(failed)?;
        }
        let mut seen: HashMap<i64, (i64, Instant)> = HashMap::new();
        loop {
            let mut others = others(client).await.map_err(failed)?;
            others.retain(|other| !(home.shares() && other.url.is_some()));
            if others.is_empty() || beside {
                if let Some(number) = enter(client, home, beside).await.map_err(failed)? {
                    return Ok(Self::numbered(number));
                }
                continue;
            }
            for Other { number, beat, name, .. } in others {
                let (before, since) = *seen.entry(number).or_insert_with(|| (beat, Instant::now()));
                if before != beat {
                    let place = reach.place.to_string();
                    return Err(StoreError::Occupied { place, holder: name });
                }
                if since.elapsed() >= SILENCE_MAX {
                    match declare_over(client, number, Some(beat)).await {
                        Ok(()) => {}
                        // Its transaction has not ended: it is there still.
                        Err(Fault::Again(_)) => {
                            let place = reach.place.to_string();
                            return Err(StoreError::Occupied {
                                place,
                                holder: format!("{name}, in a transaction that has not ended"),
                            });
                        }
                        Err(fault) => return Err(failed(fault)),
                    }
                    tracing::warn!(node = number, name, "a server was silent: it is declared over");
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    fn numbered(number: i64) -> Self {
        let beaten = Arc::new(watch::Sender::new(Instant::now()));
        Self {
            number,
            over: Arc::default(),
            left: Arc::default(),
            load: Arc::default(),
            beaten,
            unheard: Arc::default(),
        }
    }

    /// Beats as long as what is returned lives.
    ///
    /// # Errors
    /// When the time of day is not heard, by which this server goes from then on.
    pub(super) async fn beat(&self, line: Line, reach: Reach) -> Result<AbortOnDropHandle<()>, Fault> {
        let clock = DatabaseClock::read(&line.0).await?;
        let node = self.clone();
        Ok(AbortOnDropHandle::new(tokio::spawn(async move { node.keep_beating(line, clock, &reach).await })))
    }

    async fn keep_beating(&self, line: Line, mut clock: DatabaseClock, reach: &Reach) {
        let mut line = Some(line);
        let mut ticks = tokio::time::interval(BEAT);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while !self.is_over() {
            ticks.tick().await;
            if line.as_ref().is_none_or(|(client, _)| client.is_closed()) {
                line = reach.line().await.map_err(|fault| self.note_unheard(fault, reach)).ok();
            }
            let Some((client, _)) = &line else { continue };
            let sent = Instant::now();
            match tokio::time::timeout(BEAT_MAX, self.count(client)).await {
                Ok(Ok(Some(now_ms))) => {
                    clock.heard(now_ms, sent);
                    self.beaten.send_replace(sent);
                    self.unheard.lock().take();
                }
                Ok(Ok(None)) => self.end(),
                Ok(Err(fault)) => {
                    self.note_unheard(fault, reach);
                    line = None;
                }
                Err(_) => {
                    self.note_unheard(Fault::Lost("it does not answer".into()), reach);
                    line = None;
                }
            }
        }
        drop(line);
        // Until the store is closed the time of day stays that of the database: what has ended there has ended here.
        std::future::pending::<()>().await;
    }

    fn note_unheard(&self, fault: Fault, reach: &Reach) {
        let cause = fault.cause(&reach.place);
        tracing::debug!(cause, "a beat was not heard");
        *self.unheard.lock() = Some(cause);
    }

    /// Why no beat is heard now. None: one is, or nothing is known yet.
    pub(super) fn unheard(&self) -> Option<String> {
        self.unheard.lock().clone()
    }

    /// Counts up. The database's time of day; none: it is over.
    async fn count(&self, client: &Client) -> Result<Option<i64>, Fault> {
        let sql = format!(
            "UPDATE node_beat SET beat = beat + 1, awake = $2, running = $3 WHERE node = $1
                AND NOT (SELECT is_over FROM node WHERE number = $1) RETURNING {NOW_MS}"
        );
        let Load { awake, running } = *self.load.lock();
        let [awake, running] = [awake, running].map(|count| i64::try_from(count).unwrap_or(i64::MAX));
        let row = client.query_opt(&sql, &[&self.number, &awake, &running]).await?;
        Ok(row.map(|row| row.get(0)))
    }

    /// Tells the others how much there is to do, with the next beat.
    pub(super) fn tell_load(&self, load: Load) {
        *self.load.lock() = load;
    }

    /// Whether it was declared over.
    pub(super) fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    /// Waits until it is.
    pub(super) async fn ended(&self) {
        // The sender is our own.
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }

    /// Whether it is known that no other node is in its place.
    pub(super) fn is_in_touch(&self) -> bool {
        !self.is_over() && self.beaten.borrow().elapsed() < TOUCH_MAX
    }

    /// Waits until that is known; for ever, where another one is.
    pub(super) async fn in_touch(&self) {
        let mut beaten = self.beaten.subscribe();
        while !self.is_in_touch() {
            // The sender is our own.
            drop(beaten.changed().await);
        }
    }

    /// Notes that it was declared over.
    pub(super) fn end(&self) {
        if !self.over.send_replace(true) && !self.left.load(Ordering::Acquire) {
            tracing::error!(node = self.number, "another server has taken over from this one: it writes nothing more");
        }
    }

    /// Leaves: nobody has to wait for its silence.
    pub(super) async fn leave(&self, client: &Client) -> Result<(), Fault> {
        self.left.store(true, Ordering::Release);
        declare_over(client, self.number, None).await
    }
}

/// This server, for people: the machine and the process.
pub fn node_name() -> String {
    let machine = rustix::system::uname();
    format!("{} (pid {})", machine.nodename().to_string_lossy(), std::process::id())
}

pub(super) struct Other {
    pub(super) number: i64,
    pub(super) beat: i64,
    pub(super) name: String,
    /// Where those reach it that it shares the database with.
    pub(super) url: Option<String>,
}

/// Nodes that are not over.
pub(super) async fn others(client: &Client) -> Result<Vec<Other>, Fault> {
    let sql = "SELECT number, beat, name, url FROM node JOIN node_beat ON node_beat.node = number
        WHERE NOT is_over";
    let other =
        |row: &tokio_postgres::Row| Other { number: row.get(0), beat: row.get(1), name: row.get(2), url: row.get(3) };
    Ok(client.query(sql, &[]).await?.iter().map(other).collect())
}

/// Declares over what was before this one at the same home.
async fn succeed(client: &Client, home: &str) -> Result<(), Fault> {
    for row in client.query("SELECT number FROM node WHERE home = $1 AND NOT is_over", &[&home]).await? {
        declare_over(client, row.get(0), None).await?;
    }
    Ok(())
}

/// Enters, as the only one unless it is `beside` others. None: another one was faster.
async fn enter(client: &Client, home: &Home, beside: bool) -> Result<Option<i64>, Fault> {
    let id = home.id.as_deref();
    let work = async {
        client.batch_execute("BEGIN").await?;
        // One enters at a time.
        client.execute("SELECT pg_advisory_xact_lock($1)", &[&super::schema::LOCK]).await?;
        let sql = "INSERT INTO node (home, name, version, url, labels) SELECT $1, $2, $3, $5, $6
            WHERE $4 OR NOT EXISTS (SELECT 1 FROM node WHERE NOT is_over AND (url IS NULL OR $5::text IS NULL))
            RETURNING number";
        let url = home.doorway.as_ref().map(|doorway| doorway.url.as_str());
        let labels = home.doorway.as_ref().map(|doorway| doorway.labels.as_slice()).unwrap_or_default();
        let version = env!("CARGO_PKG_VERSION");
        let entered = client.query_opt(sql, &[&id, &home.name, &version, &beside, &url, &labels]).await?;
        let number: Option<i64> = entered.map(|row| row.get(0));
        if let Some(number) = number {
            client.execute("INSERT INTO node_beat (node, beat) VALUES ($1, 0)", &[&number]).await?;
            let old = "WITH gone AS (DELETE FROM node WHERE is_over AND joined_at < now() - make_interval(days => $1)
                RETURNING number) DELETE FROM node_beat USING gone WHERE node = gone.number";
            client.execute(old, &[&KEPT_DAYS]).await?;
        }
        client.batch_execute("COMMIT").await?;
        Ok(number)
    };
    let entered = work.await;
    if entered.is_err() {
        // A connection that is gone has rolled back by itself.
        let _ = client.batch_execute("ROLLBACK").await;
    }
    entered
}

/// The same of a node that is silent, unless it is at the database just now: then it is not, and nobody waits for it.
pub(super) async fn declare_silent(client: &Client, number: i64, beat: i64) -> Result<bool, Fault> {
    let sql = "UPDATE node SET is_over = true
        WHERE number = (SELECT number FROM node WHERE number = $1 AND NOT is_over FOR UPDATE SKIP LOCKED)
            AND $2 = (SELECT beat FROM node_beat WHERE node = $1)";
    Ok(client.execute(sql, &[&number, &beat]).await? == 1)
}

/// From now on nothing of that node is written. `beat`: if it has not beaten since.
pub(super) async fn declare_over(client: &Client, number: i64, beat: Option<i64>) -> Result<(), Fault> {
    let sql = "UPDATE node SET is_over = true WHERE number = $1
        AND ($2::bigint IS NULL OR $2 = (SELECT beat FROM node_beat WHERE node = $1))";
    client.execute(sql, &[&number, &beat]).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn who_is_not_heard_begins_nothing() {
        let node = Node::numbered(1);
        assert!(node.is_in_touch() && node.in_touch().now_or_never().is_some());
        let Some(long_ago) = Instant::now().checked_sub(TOUCH_MAX) else { return };
        node.beaten.send_replace(long_ago);
        let waiting = node.clone();
        let mut waiting = tokio::spawn(async move { waiting.in_touch().await });
        assert!(tokio::time::timeout(Duration::from_millis(50), &mut waiting).await.is_err());
        node.beaten.send_replace(Instant::now());
        waiting.await.expect("it is heard again");
        node.end();
        assert!(!node.is_in_touch() && node.in_touch().now_or_never().is_none(), "another one is in its place");
    }
}
