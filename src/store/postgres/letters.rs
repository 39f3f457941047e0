//! Letters between servers that reach the database and not one another: rows of an unlogged table, each with a request, and then with its
//! answer.
//!
//! Who is to look is told by `NOTIFY`, and looks once a second without that. A letter is taken by the update that gives it out; one that
//! was not can be withdrawn, and nothing was done then. Of one that was taken, and has no answer when its receiver is over or the database
//! was restarted (which empties the table), nobody can say whether it was done.
//!
//! Invariant: a letter is given out once. Its receiver is one process, which knows what it has; so what it has taken without hearing of it
//! it takes again.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use deadpool_postgres::{Client, Pool};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::connect::Reach;
use super::fault::Fault;
use super::node::Node;
use super::tidings::Tidings;
use super::{ATTEMPT_MAX, persist, silent};
use crate::store::{BoxFuture, Letter, Letters, Replied, StoreError};

/// Time between two looks of who was not told.
const LOOK: Duration = Duration::from_secs(1);
/// One that was not taken for so long is withdrawn: its receiver is there, and does not read letters.
const TAKEN_MAX: Duration = Duration::from_secs(5);
/// So many looks later what nobody waits for is taken away.
const SWEEP_ROUNDS: u64 = 30;
/// Letters to nodes that are over are left to their senders for so long; seconds.
const LEFT_SECONDS: f64 = 60.0;
/// Whether the node that the second parameter names is there.
const IS_THERE: &str = "EXISTS (SELECT 1 FROM node WHERE node.number = $2 AND NOT node.is_over)";

/// Who waits here for letters, and for answers to those that were sent.
#[derive(Debug, Default)]
pub(super) struct Postbox {
    sent: Mutex<HashMap<i64, Arc<Notify>>>,
    /// Letters that are not urgent, and those that are.
    arrived: [Notify; 2],
}

impl Postbox {
    /// There may be a letter.
    pub(super) fn note_arrival(&self) {
        self.arrived.iter().for_each(Notify::notify_one);
    }

    /// A letter was answered, if it is one of ours.
    pub(super) fn wake(&self, letter: i64) {
        if let Some(sent) = self.sent.lock().get(&letter) {
            sent.notify_one();
        }
    }
}

/// A letter that was sent. Nothing is left of it when this is dropped.
struct Sent {
    id: i64,
    woken: Arc<Notify>,
    postbox: Arc<Postbox>,
    pool: Pool,
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.postbox.sent.lock().remove(&self.id);
        let (pool, id) = (self.pool.clone(), self.id);
        // What is not taken away now is found by the sweep.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Ok(line) = pool.get().await {
                    drop(line.execute("DELETE FROM letter WHERE id = $1", &[&id]).await);
                }
            });
        }
    }
}

/// A letter as its sender finds it.
struct Found {
    taken: bool,
    answer: Option<Vec<u8>>,
    /// Whether its receiver is.
    is_there: bool,
}

/// The letters of this node.
pub(super) struct Mail {
    reach: Reach,
    pool: Pool,
    node: Node,
    tidings: Arc<Tidings>,
    /// Counts those that were sent.
    next: AtomicU32,
    /// Those that this node has taken and not answered; held while another one is taken.
    taken: tokio::sync::Mutex<HashMap<i64, CancellationToken>>,
}

impl Mail {
    pub(super) fn new((reach, pool): (Reach, Pool), node: Node, tidings: Arc<Tidings>) -> Self {
        Self { reach, pool, node, tidings, next: AtomicU32::new(0), taken: tokio::sync::Mutex::default() }
    }

    /// Does something that changes nothing when it is done again.
    async fn persist<T, F>(&self, doing: &str, look: impl Fn(Client) -> F + Send + Sync) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Fault>> + Send,
        T: Send,
    {
        if self.node.is_over() {
            return Err(StoreError::TakenOver);
        }
        persist((&self.pool, &self.reach), doing, look).await
    }

    /// Nodes' numbers are integers and never given twice, and so these are not.
    fn id(&self, nth: u32) -> i64 {
        (self.node.number << 32) | i64::from(nth)
    }

    fn begin(&self) -> Sent {
        let (woken, postbox) = (Arc::new(Notify::new()), Arc::clone(self.tidings.postbox()));
        // Counted and known at once: see `sweep`.
        let mut known = postbox.sent.lock();
        let id = self.id(self.next.fetch_add(1, Ordering::Relaxed));
        known.insert(id, Arc::clone(&woken));
        drop(known);
        Sent { id, woken, postbox, pool: self.pool.clone() }
    }

    /// Sends it, once: by the time that it is known to be lost it may have been done. None: it lies there.
    async fn send(&self, id: i64, (to, is_urgent): (i64, bool), request: &[u8]) -> Result<Option<Replied>, StoreError> {
        let doing = "send a letter to another server";
        let line = self.persist(doing, |line| async move { Ok(line) }).await?;
        let sql = format!(
            "INSERT INTO letter (id, sender, receiver, request, urgent) SELECT $1, $3, $2, $4, $5 WHERE {IS_THERE}
            ON CONFLICT DO NOTHING"
        );
        let sending = async {
            let statement = line.prepare_cached(&sql).await?;
            Ok(line.execute(&statement, &[&id, &to, &self.node.number, &request, &is_urgent]).await?)
        };
        let sent = tokio::time::timeout(ATTEMPT_MAX, sending).await.unwrap_or_else(|_| Err(silent()));
        match sent {
            Ok(0) => Ok(Some(Replied::Never)),
            Ok(_) => Ok(None),
            Err(Fault::Lost(_) | Fault::Again(_)) => Ok(Some(Replied::Lost)),
            Err(fault) => Err(fault.told(doing, &self.reach.place)),
        }
    }

    /// None: it is gone.
    async fn look(&self, id: i64, to: i64) -> Result<Option<Found>, StoreError> {
        let look = move |line: Client| async move {
            let sql = format!("SELECT taken, answer, {IS_THERE} FROM letter WHERE id = $1");
            let statement = line.prepare_cached(&sql).await?;
            let row = line.query_opt(&statement, &[&id, &to]).await?;
            Ok(row.map(|row| Found { taken: row.get(0), answer: row.get(1), is_there: row.get(2) }))
        };
        self.persist("look for an answer to a letter", look).await
    }

    /// Takes one back. False: it was taken.
    async fn withdraw(&self, id: i64) -> Result<bool, StoreError> {
        let withdraw = move |line: Client| async move {
            Ok(line.execute("DELETE FROM letter WHERE id = $1 AND NOT taken", &[&id]).await? == 1)
        };
        self.persist("withdraw a letter", withdraw).await
    }

    async fn await_answer(&self, sent: &Sent, (to, given_up): (i64, &AtomicBool)) -> Result<Replied, StoreError> {
        let begun = Instant::now();
        loop {
            drop(tokio::time::timeout(LOOK, sent.woken.notified()).await);
            let has_given_up = given_up.load(Ordering::Acquire);
            let Some(found) = self.look(sent.id, to).await? else { return Ok(Replied::Lost) };
            if let Some(answer) = found.answer {
                return Ok(Replied::With(answer));
            }
            let is_over = has_given_up || !found.is_there;
            let waits = !found.taken && begun.elapsed() > TAKEN_MAX;
            if (is_over || waits) && self.withdraw(sent.id).await? {
                return Ok(Replied::Never);
            }
            if is_over {
                return Ok(Replied::Lost);
            }
        }
    }

    /// Takes the oldest letter that was not taken. None: there is none.
    async fn take(&self, is_urgent: bool) -> Result<Option<Letter>, StoreError> {
        let mut taken = self.taken.lock().await;
        let (known, own): (Vec<i64>, i64) = (taken.keys().copied().collect(), self.node.number);
        let known = known.as_slice();
        let take = move |line: Client| async move {
            let sql = format!(
                "UPDATE letter SET taken = true WHERE id = (
                    SELECT id FROM letter
                    WHERE receiver = $2 AND urgent = $3 AND answer IS NULL AND NOT (id = ANY ($1))
                    ORDER BY at, id LIMIT 1 FOR UPDATE SKIP LOCKED
                ) AND {IS_THERE} RETURNING id, request"
            );
            let statement = line.prepare_cached(&sql).await?;
            let row = line.query_opt(&statement, &[&known, &own, &is_urgent]).await?;
            Ok(row.map(|row| (row.get(0), row.get(1))))
        };
        let Some((id, request)) = self.persist("look for letters", take).await? else { return Ok(None) };
        let gone = CancellationToken::new();
        taken.insert(id, gone.clone());
        Ok(Some(Letter { id, request, gone }))
    }

    /// Ends the work for letters that nobody waits for, and takes away what is left of others.
    pub(super) async fn keep(&self) {
        let mut rounds = 0_u64;
        while !self.node.is_over() {
            tokio::time::sleep(LOOK).await;
            rounds += 1;
            let kept = async {
                self.end_those_gone().await?;
                if rounds.is_multiple_of(SWEEP_ROUNDS) { self.sweep().await } else { Ok(()) }
            };
            if let Err(error) = kept.await {
                tracing::debug!(%error, "letters could not be looked after");
            }
        }
    }

    async fn end_those_gone(&self) -> Result<(), StoreError> {
        let ids: Vec<i64> = self.taken.lock().await.keys().copied().collect();
        if ids.is_empty() {
            return Ok(());
        }
        let ids = ids.as_slice();
        let look = move |line: Client| async move {
            let rows = line.query("SELECT id FROM letter WHERE id = ANY ($1)", &[&ids]).await?;
            Ok(rows.iter().map(|row| row.get(0)).collect::<Vec<i64>>())
        };
        let left = self.persist("look whether letters are waited for", look).await?;
        let mut taken = self.taken.lock().await;
        for id in ids.iter().filter(|id| !left.contains(id)) {
            if let Some(gone) = taken.remove(id) {
                gone.cancel();
            }
        }
        Ok(())
    }

    /// Takes away letters of this node that nobody waits for, and those of nodes that are over.
    pub(super) async fn sweep(&self) -> Result<(), StoreError> {
        let own = self.node.number;
        let (known, newest): (Vec<i64>, i64) = {
            let sent = self.tidings.postbox().sent.lock();
            (sent.keys().copied().collect(), self.id(self.next.load(Ordering::Relaxed)))
        };
        let known = known.as_slice();
        let sweep = move |line: Client| async move {
            // What is sent from now on is not among those that are known.
            let sql = "DELETE FROM letter WHERE (sender = $1 AND id < $3 AND NOT (id = ANY ($2)))
                OR NOT EXISTS (SELECT 1 FROM node WHERE number = sender AND NOT is_over)
                OR (at < now() - make_interval(secs => $4)
                    AND NOT EXISTS (SELECT 1 FROM node WHERE number = receiver AND NOT is_over))";
            line.execute(sql, &[&own, &known, &newest, &LEFT_SECONDS]).await?;
            Ok(())
        };
        self.persist("take away letters that nobody waits for", sweep).await
    }
}

impl Letters for Mail {
    fn exchange<'a>(
        &'a self,
        (to, is_urgent): (i64, bool),
        request: Vec<u8>,
        given_up: BoxFuture<'a, ()>,
    ) -> BoxFuture<'a, Result<Replied, StoreError>> {
        Box::pin(async move {
            let sent = self.begin();
            let has_given_up = AtomicBool::new(false);
            let exchanged = async {
                if let Some(replied) = self.send(sent.id, (to, is_urgent), &request).await? {
                    return Ok(replied);
                }
                self.tidings.tell_letter(to);
                self.await_answer(&sent, (to, &has_given_up)).await
            };
            // It asks the database, too: whoever is not polled there keeps a connection, or the next place for one.
            let gives_up = async {
                given_up.await;
                has_given_up.store(true, Ordering::Release);
                sent.woken.notify_one();
                std::future::pending().await
            };
            tokio::select! {
                replied = exchanged => replied,
                () = gives_up => Ok(Replied::Lost),
            }
        })
    }

    fn next(&self, is_urgent: bool) -> BoxFuture<'_, Result<Letter, StoreError>> {
        Box::pin(async move {
            loop {
                if let Some(letter) = self.take(is_urgent).await? {
                    return Ok(letter);
                }
                // Untold it looks, too.
                drop(
                    tokio::time::timeout(LOOK, self.tidings.postbox().arrived[usize::from(is_urgent)].notified()).await,
                );
            }
        })
    }

    fn answer(&self, id: i64, answer: Option<Vec<u8>>) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let body = answer.as_deref();
            let write = move |line: Client| async move {
                let sql = "UPDATE letter SET answer = $2, request = '' WHERE id = $1";
                Ok(line.execute(sql, &[&id, &body]).await?)
            };
            let forget =
                move |line: Client| async move { Ok(line.execute("DELETE FROM letter WHERE id = $1", &[&id]).await?) };
            let written = match body {
                Some(_) => self.persist("answer a letter", write).await,
                None => Ok(0),
            };
            // Who waits for it hears that none comes.
            if !matches!(written, Ok(1)) {
                self.persist("leave a letter without an answer", forget).await?;
            }
            self.tidings.tell_answered(id);
            // Behind it: until then it would be taken again.
            self.taken.lock().await.remove(&id);
            written.map(drop)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use futures_util::future::join_all;

    use super::super::tests::Postgres;
    use super::*;
    use crate::store::Cluster;
    use crate::store::conformance::Shared;

    /// How soon what is gone is seen to be.
    const SOON: Duration = Duration::from_secs(10);

    fn never() -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }

    fn cluster(store: &Shared) -> Arc<dyn Cluster> {
        store.cluster().expect("shared")
    }

    async fn until(postgres: &Postgres, sql: &str, want: &str) {
        let begun = Instant::now();
        while postgres.raw(sql).await != [want] {
            assert!(begun.elapsed() < SOON, "{sql}: {:?}", postgres.raw(sql).await);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    const LEFT: &str = "SELECT count(*) FROM letter";

    #[tokio::test(flavor = "multi_thread")]
    async fn a_letter_is_taken_once_and_answered_to_who_sent_it() {
        let Some(postgres) = Postgres::start() else { return };
        let [one, two] = [postgres.share(&[]).await, postgres.share(&[]).await];
        let (one, two) = (cluster(&one), cluster(&two));
        let large = vec![7_u8; 3 << 20];
        let texts: Vec<Vec<u8>> = (0..20_u8).map(|nth| if nth == 0 { large.clone() } else { vec![nth] }).collect();
        let asking = texts.iter().map(|text| one.letters().exchange((two.own(), false), text.clone(), never()));
        let taken: Mutex<BTreeMap<i64, Vec<u8>>> = Mutex::default();
        let taking = async || {
            loop {
                let letter = two.letters().next(false).await.expect("taken");
                let answer = [b"to ", &letter.request[..]].concat();
                assert!(taken.lock().insert(letter.id, letter.request).is_none(), "it was taken before");
                two.letters().answer(letter.id, Some(answer)).await.expect("answered");
            }
        };
        let replies = tokio::select! {
            replies = join_all(asking) => replies,
            () = async { tokio::join!(taking(), taking()).0 } => unreachable!("it never ends"),
        };
        let want = texts.iter().map(|text| Ok(Replied::With([b"to ", &text[..]].concat())));
        assert!(replies.into_iter().eq(want) && taken.lock().len() == texts.len(), "each has its own");
        until(&postgres, LEFT, "0").await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn who_asks_the_database_while_it_waits_takes_nobodys_place() {
        let Some(postgres) = Postgres::start() else { return };
        let [one, two] = [postgres.share(&[]).await, postgres.share(&[]).await];
        let (one, two) = (cluster(&one), cluster(&two));
        let nobody: crate::protocol::SessionId = "nobody".parse().expect("an id");
        // More than there are connections.
        let asking = (0..24).map(|_| {
            let looks = async {
                loop {
                    drop(one.look(&nobody).await);
                    tokio::task::yield_now().await;
                }
            };
            one.letters().exchange((two.own(), false), vec![1], Box::pin(looks))
        });
        let answering = async {
            loop {
                let letter = two.letters().next(false).await.expect("taken");
                tokio::time::sleep(Duration::from_millis(100)).await;
                two.letters().answer(letter.id, Some(Vec::new())).await.expect("answered");
            }
        };
        let replies = tokio::select! {
            replies = tokio::time::timeout(SOON, join_all(asking)) => replies.expect("in time"),
            () = answering => unreachable!("it never ends"),
        };
        assert!(replies.iter().all(|replied| *replied == Ok(Replied::With(Vec::new()))), "{replies:?}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_was_not_taken_was_not_done_and_of_the_rest_nobody_knows() {
        let Some(postgres) = Postgres::start() else { return };
        let [one, two] = [postgres.share(&[]).await, postgres.share(&[]).await];
        let (sender, receiver) = (cluster(&one), cluster(&two));
        let exchange = |given_up| sender.letters().exchange((receiver.own(), false), b"x".to_vec(), given_up);
        let soon = || -> BoxFuture<'static, ()> { Box::pin(tokio::time::sleep(Duration::from_millis(300))) };
        assert_eq!(exchange(soon()).await, Ok(Replied::Never), "given up before it was taken");
        let begun = Instant::now();
        assert_eq!(exchange(never()).await, Ok(Replied::Never), "its receiver reads no letters");
        assert!(begun.elapsed() < TAKEN_MAX + SOON);
        assert_eq!(postgres.raw(LEFT).await, ["0"]);
        let (replied, letter) = tokio::join!(exchange(soon()), receiver.letters().next(false));
        assert_eq!(replied, Ok(Replied::Lost), "it was taken, and not answered by then");
        let letter = letter.expect("taken");
        tokio::time::timeout(SOON, letter.gone.cancelled()).await.expect("its receiver hears that nobody waits");
        receiver.letters().answer(letter.id, Some(Vec::new())).await.expect("it is late, and harms nobody");
        // Refused by who has it, emptied by a restart, and left by a node that is over.
        for lose in ["refuse", "DELETE FROM letter", "UPDATE node SET is_over = true WHERE number = 2"] {
            let losing = async {
                let letter = receiver.letters().next(false).await.expect("taken");
                match lose {
                    "refuse" => receiver.letters().answer(letter.id, None).await.expect("said"),
                    sql => drop(postgres.raw(sql).await),
                }
            };
            assert_eq!(tokio::join!(exchange(never()), losing).0, Ok(Replied::Lost), "{lose}");
        }
        assert_eq!(exchange(never()).await, Ok(Replied::Never), "there is nobody to take it");
        until(&postgres, LEFT, "0").await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_nobody_waits_for_goes() {
        let Some(postgres) = Postgres::start() else { return };
        let [one, two] = [postgres.share(&[]).await, postgres.share(&[]).await];
        let (sender, receiver) = (cluster(&one), cluster(&two));
        let asking = sender.letters().exchange((receiver.own(), false), b"x".to_vec(), never());
        let taken = tokio::select! {
            _ = asking => unreachable!("nobody answers"),
            letter = receiver.letters().next(false) => letter.expect("taken"),
        };
        // Who asked is gone: so is its letter, and who has it hears of it.
        tokio::time::timeout(SOON, taken.gone.cancelled()).await.expect("it hears");
        until(&postgres, LEFT, "0").await;
        let store = postgres.open_shared(&[]).await;
        let mail = &store.shared.as_ref().expect("shared").mail;
        let own = mail.node.number;
        let kept = mail.begin();
        let (known, lost) = (kept.id, mail.id(1));
        mail.next.fetch_add(1, Ordering::Relaxed);
        let rows = [
            (known, own, 1, "now()", true),
            (lost, own, 1, "now()", false),
            // Sent meanwhile.
            (mail.id(2), own, 1, "now()", true),
            (1, 1, own, "now()", true),
            (2, 99, own, "now()", false),
            (3, 1, 99, "now()", true),
            (4, 1, 99, "now() - interval '2 minutes'", false),
        ];
        for (id, sender, receiver, at, _) in &rows {
            let sql = format!(
                "INSERT INTO letter (id, sender, receiver, request, urgent, at) VALUES ({id}, {sender}, {receiver}, '', false, {at})"
            );
            postgres.raw(&sql).await;
        }
        mail.sweep().await.expect("swept");
        let mut want: Vec<i64> = rows.iter().filter(|row| row.4).map(|row| row.0).collect();
        want.sort_unstable();
        let want: Vec<String> = want.iter().map(ToString::to_string).collect();
        assert_eq!(postgres.raw("SELECT id FROM letter ORDER BY id").await, want);
    }
}
