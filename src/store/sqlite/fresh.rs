//! What turns have just said: one table for all sessions, to whose end it is written and from which it is gathered.
//!
//! A row of the log lies among those of its session, so a commit of many sessions' deltas would touch a page of each. They
//! are written to the end of the table `fresh` instead, all to the same page, and are as durable there. Later the rows of
//! each session are put together and written to its log as one, and then leave `fresh`, oldest first.
//!
//! Invariants: what a session has in `fresh` is the end of its log. A row of `fresh` whose events the log has already
//! counts no more: it only waits to be taken out. No row of `fresh` belongs to a session that is gone. A row that is
//! gathered ends where the head of the session's chain stands.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension as _};

use super::chained::{self, Stored};
use super::places::{Moment, Places};
use super::read;
use super::write::{key_of, split_key};
use crate::protocol::SessionId;

/// The table. Its columns are those of `log`, behind the place in the order in which rows came.
pub(super) const TABLE: &str = "
    CREATE TABLE fresh (
        place INTEGER PRIMARY KEY,
        key INTEGER NOT NULL,
        count INTEGER NOT NULL,
        turn INTEGER,
        at INTEGER NOT NULL,
        body BLOB NOT NULL
    );
";
/// A session's rows, as [`chained::LOG_ROWS`] has those of its log.
pub(super) const ROWS: &str = "
    SELECT fresh.key, fresh.at, fresh.body, turn.id, fresh.count, fresh.turn FROM fresh
    LEFT JOIN turn ON turn.key = ((fresh.key >> 32) << 32) + fresh.turn
    WHERE fresh.key > ?1 AND fresh.key <= ?2 ORDER BY fresh.key";
/// The same, of the row at place ?3.
pub(super) const ROW_AT: &str = "
    SELECT fresh.key, fresh.at, fresh.body, turn.id, fresh.count, fresh.turn FROM fresh
    LEFT JOIN turn ON turn.key = ((fresh.key >> 32) << 32) + fresh.turn
    WHERE fresh.place = ?3 AND fresh.key > ?1 AND fresh.key <= ?2";

/// Bytes of a row, at most: a larger one shares its page with no other, and goes to the log at once.
pub(super) const ROW_BYTES_MAX: usize = 1 << 10;
/// Bytes of a row beside its events, about.
const ROW_OVERHEAD: usize = 16;
/// What is worth gathering for each session that has something here, in bytes: half a page.
const BYTES_A_SESSION: usize = 1 << 10;
/// From so many bytes on rows are gathered, however few sessions they are of; and in any case from so many.
const BYTES: std::ops::RangeInclusive<usize> = 16 << 10..=2 << 20;
/// Sessions whose rows are gathered in one transaction: what a commit may have to wait for.
const SLICE_SESSIONS: usize = 64;
/// Bytes of these, about.
const SLICE_BYTES: usize = 256 << 10;
/// Rows that are taken out in one transaction.
const SLICE_ROWS: i64 = 2_000;

/// Rows of `fresh` that become one of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) first_seq: u64,
    pub(super) count: u64,
    /// How many rows of the table it is.
    pub(super) places: usize,
    /// The place of its turn.
    pub(super) turn: Option<i64>,
    pub(super) at: u64,
    pub(super) lines: Vec<u8>,
    pub(super) tags: Vec<u8>,
}

impl Row {
    fn bytes(&self) -> usize {
        self.lines.len() + self.tags.len()
    }

    /// Number of the event behind it.
    fn next_seq(&self) -> u64 {
        self.first_seq + self.count
    }
}

/// Rows that are being gathered.
struct Batch {
    /// The place of the last one.
    upto: i64,
    /// The sessions that had rows among them, the next one last.
    sessions: Vec<i64>,
}

/// What a transaction has changed here, for when it does not happen.
enum Change {
    Added { number: i64, count: u64, lines: usize, tags: usize },
    Gathered { number: i64, rows: Vec<Row>, places: usize },
}

/// What the writer knows of the table.
pub(super) struct Fresh {
    /// What is to be gathered, by the session's number.
    of: HashMap<i64, Vec<Row>>,
    /// The place of the next row.
    next: i64,
    /// Up to which place rows have been taken out.
    gone: i64,
    /// Bytes that came behind the batch.
    bytes: usize,
    batch: Option<Batch>,
    changes: Vec<Change>,
    places: Arc<Places>,
    /// A row's body while it is written.
    body: Vec<u8>,
}

impl Fresh {
    /// What the end of a process left. Its rows are gathered one by one: one that is not what was written stays so.
    pub(super) fn load(connection: &Connection) -> rusqlite::Result<Self> {
        let mut fresh = Self {
            of: HashMap::new(),
            next: 1,
            gone: 0,
            bytes: 0,
            batch: None,
            changes: Vec::new(),
            places: Arc::default(),
            body: Vec::new(),
        };
        let mut list = connection.prepare("SELECT place, key, count, turn, at, body FROM fresh ORDER BY key")?;
        let mut rows = list.query([])?;
        let (mut logged, mut first) = (HashMap::new(), i64::MAX);
        while let Some(row) = rows.next()? {
            let place: i64 = row.get(0)?;
            first = first.min(place);
            fresh.next = fresh.next.max(place + 1);
            let (number, first_seq) = split_key(row.get(1)?);
            let last = match logged.get(&number) {
                Some(last) => *last,
                None => *logged.entry(number).or_insert(read::last_logged(connection, number)?),
            };
            if first_seq <= last {
                continue;
            }
            let (count, turn, at) = (row.get(2)?, row.get(3)?, row.get(4)?);
            // All of the body: it is not added to.
            let row = Row { first_seq, count, places: 1, turn, at, lines: row.get(5)?, tags: Vec::new() };
            fresh.of.entry(number).or_default().push(row);
            fresh.places.add(number, place);
        }
        fresh.gone = first.min(fresh.next) - 1;
        Ok(fresh)
    }

    /// The row of a session that goes on with event `seq` of that turn: the time that its lines are counted from. A row
    /// ends at event `head`.
    pub(super) fn goes_on(&self, number: i64, (seq, turn): (u64, Option<i64>), head: u64) -> Option<u64> {
        let last = self.of.get(&number)?.last()?;
        let fits = last.turn == turn && last.next_seq() == seq && head + 1 != seq && !last.tags.is_empty();
        (fits && last.bytes() < super::write::ROW_BYTES_MAX).then_some(last.at)
    }

    /// Writes a row to the end, behind or as part of the last one of its session.
    pub(super) fn add(
        &mut self,
        connection: &Connection,
        (number, goes_on): (i64, bool),
        row: Row,
    ) -> rusqlite::Result<()> {
        let mut insert = connection
            .prepare_cached("INSERT INTO fresh (place, key, count, turn, at, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
        self.body.clear();
        self.body.extend_from_slice(&row.lines);
        self.body.extend_from_slice(&row.tags);
        let key = key_of(number, row.first_seq);
        insert.execute((self.next, key, row.count, row.turn, row.at, self.body.as_slice()))?;
        // Before it is in the database for others: who reads it there finds it here.
        self.places.add(number, self.next);
        self.next += 1;
        self.bytes += row.bytes() + ROW_OVERHEAD;
        let (count, lines, tags) = (row.count, row.lines.len(), row.tags.len());
        self.changes.push(Change::Added { number, count, lines, tags });
        let rows = self.of.entry(number).or_default();
        match rows.last_mut().filter(|_| goes_on) {
            Some(last) => {
                last.count += row.count;
                last.places += row.places;
                last.lines.extend(row.lines);
                last.tags.extend(row.tags);
            }
            None => rows.push(row),
        }
        Ok(())
    }

    /// Writes to a session's log what it has here. How many bytes that was.
    pub(super) fn gather(&mut self, connection: &Connection, number: i64) -> rusqlite::Result<usize> {
        let Some(rows) = self.of.remove(&number) else { return Ok(0) };
        let places = rows.iter().map(|row| row.places).sum();
        let mut bytes = 0;
        let mut write = || {
            rows.iter().try_for_each(|row| {
                bytes += row.bytes();
                insert(connection, number, row)
            })
        };
        let written = write();
        self.changes.push(Change::Gathered { number, rows, places });
        written.map(|()| bytes)
    }

    /// Takes out all rows of a session that goes, which has been gathered.
    pub(super) fn forget(&self, connection: &Connection, number: i64) -> rusqlite::Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let mut delete = connection.prepare_cached("DELETE FROM fresh WHERE key BETWEEN ? AND ?")?;
        delete.execute((key_of(number, 0), key_of(number, u32::MAX.into()))).map(drop)
    }

    /// Where a transaction is, for [`Self::roll_back`].
    pub(super) fn mark(&self) -> usize {
        self.changes.len()
    }

    /// What came behind the mark did not happen.
    pub(super) fn roll_back(&mut self, mark: usize) {
        for change in self.changes.drain(mark..).rev() {
            match change {
                Change::Gathered { number, rows, .. } => drop(self.of.insert(number, rows)),
                Change::Added { number, count, lines, tags } => {
                    self.next -= 1;
                    self.places.take_back(number);
                    self.bytes = self.bytes.saturating_sub(lines + tags + ROW_OVERHEAD);
                    let Some(rows) = self.of.get_mut(&number) else { continue };
                    if let Some(last) = rows.last_mut() {
                        last.count -= count;
                        last.places -= 1;
                        last.lines.truncate(last.lines.len() - lines);
                        last.tags.truncate(last.tags.len() - tags);
                    }
                    rows.pop_if(|last| last.count == 0);
                    if rows.is_empty() {
                        self.of.remove(&number);
                    }
                }
            }
        }
    }

    /// The transaction is over.
    pub(super) fn settle(&mut self) {
        for change in self.changes.drain(..) {
            if let Change::Gathered { number, places, .. } = change {
                self.places.gathered(number, places);
            }
        }
    }

    /// Where rows lie, for those who read.
    pub(super) fn places(&self) -> Arc<Places> {
        Arc::clone(&self.places)
    }

    /// Nothing is in the table.
    pub(super) fn is_empty(&self) -> bool {
        self.gone + 1 >= self.next
    }

    /// Something is being gathered.
    pub(super) fn is_gathering(&self) -> bool {
        self.batch.is_some()
    }

    /// It is worth gathering; while that is done: it cannot wait any longer.
    pub(super) fn is_much(&self) -> bool {
        self.bytes >= (self.of.len() * BYTES_A_SESSION).clamp(*BYTES.start(), *BYTES.end())
    }

    /// All that is there is to be gathered, when nothing is yet.
    pub(super) fn begin(&mut self) {
        if self.batch.is_some() || self.is_empty() {
            return;
        }
        let mut sessions: Vec<i64> = self.of.keys().copied().collect();
        sessions.sort_unstable_by(|one, other| other.cmp(one));
        self.batch = Some(Batch { upto: self.next - 1, sessions });
        self.bytes = 0;
    }

    /// Gathers some, or takes some out, in a transaction of its own.
    pub(super) fn slice(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let Some(mut batch) = self.batch.take() else { return Ok(()) };
        let (left, gone) = (batch.sessions.len(), self.gone);
        match self.try_slice(connection, &mut batch) {
            Ok(left) => {
                self.settle();
                batch.sessions.truncate(left);
                self.batch = (self.gone < batch.upto).then_some(batch);
                Ok(())
            }
            Err(error) => {
                self.roll_back(0);
                self.gone = gone;
                batch.sessions.truncate(left);
                self.batch = Some(batch);
                Err(error)
            }
        }
    }

    /// How many sessions are left.
    fn try_slice(&mut self, connection: &Connection, batch: &mut Batch) -> rusqlite::Result<usize> {
        let transaction = connection.unchecked_transaction()?;
        let mut left = batch.sessions.len();
        if left == 0 {
            let upto = batch.upto.min(self.gone + SLICE_ROWS);
            transaction.prepare_cached("DELETE FROM fresh WHERE place <= ?")?.execute([upto])?;
            self.gone = upto;
        }
        let mut bytes = 0;
        for number in batch.sessions.iter().rev().take(SLICE_SESSIONS) {
            bytes += self.gather(&transaction, *number)?;
            left -= 1;
            if bytes >= SLICE_BYTES {
                break;
            }
        }
        transaction.commit()?;
        Ok(left)
    }
}

/// Writes a row of the log.
pub(super) fn insert(connection: &Connection, number: i64, row: &Row) -> rusqlite::Result<()> {
    let sql = "INSERT INTO log (key, count, turn, at, body) VALUES (?1, ?2, ?3, ?4, ?5)";
    let body = [row.lines.as_slice(), &row.tags].concat();
    let key = key_of(number, row.first_seq);
    connection.prepare_cached(sql)?.execute((key, row.count, row.turn, row.at, body)).map(drop)
}

/// Number of the last event of a session, whose log has it up to event `logged`.
pub(super) fn last_seq(moment: &Moment<'_>, number: i64, logged: u64) -> rusqlite::Result<u64> {
    let keys = (key_of(number, logged), key_of(number, u32::MAX.into()));
    let last_of = |last: Option<i64>| last.map_or(logged, |key| split_key(key).1);
    let Some(places) = moment.places(number) else {
        let sql = "SELECT max(key + count - 1) FROM fresh WHERE key > ?1 AND key <= ?2";
        return moment.prepare_cached(sql)?.query_row(keys, |row| row.get(0)).map(last_of);
    };
    let sql = "SELECT key + count - 1 FROM fresh WHERE place = ?3 AND key > ?1 AND key <= ?2";
    let mut find = moment.prepare_cached(sql)?;
    for place in places.iter().rev() {
        if let Some(last) = find.query_row((keys.0, keys.1, place), |row| row.get(0)).optional()? {
            return Ok(last_of(Some(last)));
        }
    }
    Ok(logged)
}

/// Goes through the rows of a session whose log ends with event `logged`, oldest first.
pub(super) fn each_row(
    connection: &Connection,
    (session, number): (&SessionId, i64),
    logged: u64,
    take: impl FnMut(&Stored<'_>) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let keys = (key_of(number, logged), key_of(number, u32::MAX.into()));
    chained::each_row_of(connection, (ROWS, session), keys, take)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::protocol::TurnId;
    use crate::store::Write;
    use crate::store::conformance::{Shared, append, create, numbers, put, row, session_id, sqlite};
    use crate::store::sqlite::{Inspection, schema};

    fn raw(directory: &Path) -> Connection {
        Connection::open(directory.join("simse.db")).expect("opens")
    }

    fn count(connection: &Connection, sql: &str) -> u64 {
        connection.query_row(sql, [], |row| row.get(0)).expect("counted")
    }

    fn turn(n: usize) -> TurnId {
        format!("turn-{n:04}").parse().expect("an id")
    }

    /// The numbers of all events of a session, read page by page.
    async fn all(store: &Shared, session: &str) -> Vec<u64> {
        let mut seqs: Vec<u64> = Vec::new();
        loop {
            let page = numbers(store, session, seqs.last().copied().unwrap_or(0), 7).await;
            if page.is_empty() {
                return seqs;
            }
            seqs.extend(page);
        }
    }

    /// Number of events of a session, and that nothing is wrong with it.
    fn sound(directory: &Path, session: &str) -> u64 {
        let inspection = Inspection::open(directory).expect("opens");
        assert_eq!(inspection.database(), Ok(vec![]));
        let number = inspection.session_number(&session_id(session)).expect("read").expect("there");
        let mut events = 0;
        let (found, faults) = inspection.session(number, &mut |_| events += 1).expect("read");
        assert_eq!((faults, found.map(|found| found.chain.seq())), (vec![], Some(events)));
        events
    }

    /// As a process leaves it that ends before anything of a turn was gathered.
    fn ungather(directory: &Path) {
        let sql = "INSERT INTO fresh (key, count, turn, at, body) SELECT key, count, turn, at, body FROM log
                WHERE turn IS NOT NULL ORDER BY at;
            DELETE FROM log WHERE turn IS NOT NULL;";
        raw(directory).execute_batch(sql).expect("moved");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn readers_see_one_log_while_it_is_gathered() {
        const SESSIONS: usize = 24;
        let home = tempfile::tempdir().expect("a directory");
        let store = sqlite(home.path());
        let names: Vec<String> = (0..SESSIONS).map(|n| format!("s{n}")).collect();
        put(&store, names.iter().map(|name| create(name)).collect()).await;
        let (reader, over) = (Arc::clone(&store), Arc::new(AtomicBool::new(false)));
        let (stop, all_names) = (Arc::clone(&over), names.clone());
        let reading = tokio::spawn(async move {
            let mut before = vec![0; SESSIONS];
            while !stop.load(Ordering::SeqCst) {
                for (name, before) in all_names.iter().zip(&mut before) {
                    let seqs = all(&reader, name).await;
                    assert!(seqs.iter().copied().eq(1..=seqs.len() as u64), "{name}: {seqs:?}");
                    assert!(seqs.len() >= *before, "{name}: nothing goes");
                    *before = seqs.len();
                }
            }
        });
        let mut last = 0;
        for round in 0..90_usize {
            let (first, events) = (last + 1, 1 + (round as u64 % 3) * 2);
            last += events;
            for (n, name) in names.iter().enumerate() {
                // Another turn from time to time, and sessions whose head is written meanwhile.
                let mut writes = vec![append(name, Some(&turn(round / 20)), first..=last)];
                if (round + n) % 13 == 0 {
                    writes.push(Write::UpdateSession(Box::new(row(name))));
                }
                store.commit(writes, Box::new(|done| done.expect("written")));
            }
            put(&store, vec![]).await;
            let name = &names[round % SESSIONS];
            assert_eq!(store.last_seq(&session_id(name)).await, Ok(last));
            assert!(all(&store, name).await.into_iter().eq(1..=last), "{name} in round {round}");
        }
        over.store(true, Ordering::SeqCst);
        reading.await.expect("read");
        assert!(count(&raw(home.path()), "SELECT count(*) FROM log") > 0, "it is gathered meanwhile");
        names.iter().for_each(|name| assert_eq!(sound(home.path(), name), last, "{name}"));
        store.close().await.expect("closed");
        names.iter().for_each(|name| assert_eq!(sound(home.path(), name), last, "{name}, closed"));
        let database = raw(home.path());
        assert_eq!(count(&database, "SELECT count(*) FROM fresh"), 0);
        let rows = count(&database, "SELECT count(*) FROM log");
        assert!(rows < 90 * SESSIONS as u64 / 3, "{rows} rows of the log");
    }

    #[tokio::test]
    async fn what_the_end_of_a_process_left_is_read_and_gathered() {
        let home = tempfile::tempdir().expect("a directory");
        let store = sqlite(home.path());
        put(&store, vec![create("a"), append("a", None, 1..=2), create("b"), append("b", Some(&turn(0)), 1..=3)]).await;
        put(&store, vec![append("a", Some(&turn(1)), 3..=4)]).await;
        put(&store, vec![Write::UpdateSession(Box::new(row("a"))), append("a", Some(&turn(2)), 5..=9)]).await;
        store.close().await.expect("closed");
        ungather(home.path());
        assert_eq!([sound(home.path(), "a"), sound(home.path(), "b")], [9, 3]);

        let store = sqlite(home.path());
        assert!(all(&store, "a").await.into_iter().eq(1..=9));
        put(&store, vec![append("a", Some(&turn(2)), 10..=11), append("b", None, 4..=4)]).await;
        assert!(all(&store, "a").await.into_iter().eq(1..=11));
        store.close().await.expect("closed");
        assert_eq!([sound(home.path(), "a"), sound(home.path(), "b")], [11, 4]);
        assert_eq!(count(&raw(home.path()), "SELECT count(*) FROM fresh"), 0);
    }

    #[tokio::test]
    async fn forks_and_deletions_leave_nothing_behind() {
        let home = tempfile::tempdir().expect("a directory");
        let store = sqlite(home.path());
        put(&store, vec![create("a"), append("a", Some(&turn(0)), 1..=5)]).await;
        let fork = Write::ForkSession { row: Box::new(row("b")), parent: session_id("a"), at: 3, chain: None };
        put(&store, vec![append("a", Some(&turn(0)), 6..=7), fork, append("b", Some(&turn(1)), 4..=6)]).await;
        put(&store, vec![append("a", Some(&turn(0)), 8..=8), append("b", Some(&turn(1)), 7..=7)]).await;
        assert!(all(&store, "a").await.into_iter().eq(1..=8));
        assert!(all(&store, "b").await.into_iter().eq(1..=7));
        put(&store, vec![Write::DeleteSession(session_id("a"))]).await;
        let left = "SELECT count(*) FROM fresh WHERE key >> 32 NOT IN (SELECT number FROM session)";
        assert_eq!(count(&raw(home.path()), left), 0);
        assert!(all(&store, "b").await.into_iter().eq(1..=7));
        assert_eq!(sound(home.path(), "b"), 7);
        store.close().await.expect("closed");
        assert_eq!(sound(home.path(), "b"), 7);
    }

    fn piece(first_seq: u64, turn: i64) -> Row {
        Row {
            first_seq,
            count: 1,
            places: 1,
            turn: Some(turn),
            at: 5,
            lines: b"0 . \"x\"\n".to_vec(),
            tags: vec![1, 2],
        }
    }

    /// What is in memory and what is in the table; the last is what a new process would know.
    fn known(fresh: &Fresh) -> Vec<(i64, Vec<Row>)> {
        let mut all: Vec<_> = fresh.of.clone().into_iter().collect();
        all.sort_by_key(|(number, _)| *number);
        all
    }

    /// Each row in the log of its session would be a page of each.
    #[test]
    fn what_many_sessions_say_at_once_is_a_few_pages() {
        const SESSIONS: i64 = 200;
        let home = tempfile::tempdir().expect("a directory");
        let (database, _) = schema::open(&home.path().join("simse.db")).expect("opens");
        let mut fresh = Fresh::load(&database).expect("read");
        // Nobody moves this write-ahead log into the database, so what is written makes it longer.
        let frames = || std::fs::metadata(home.path().join("simse.db-wal")).expect("there").len() / (2_048 + 24);
        let mut written = |seq: u64| {
            let before = frames();
            database.execute_batch("BEGIN").expect("begun");
            for number in 1..=SESSIONS {
                let goes_on = fresh.goes_on(number, (seq, Some(1)), 0).is_some();
                fresh.add(&database, (number, goes_on), piece(seq, 1)).expect("written");
            }
            database.execute_batch("COMMIT").expect("written");
            fresh.settle();
            frames() - before
        };
        let pages: Vec<u64> = (1..=10).map(&mut written).collect();
        assert!(pages.iter().all(|pages| (1..=10).contains(pages)), "{pages:?}");
        fresh.begin();
        while fresh.is_gathering() {
            fresh.slice(&database).expect("written");
        }
        assert_eq!(count(&database, "SELECT count(*) FROM log"), SESSIONS.unsigned_abs(), "one row for each");
        assert_eq!(count(&database, "SELECT sum(count) FROM log"), 10 * SESSIONS.unsigned_abs());
    }

    #[test]
    fn what_is_rolled_back_did_not_happen() {
        let home = tempfile::tempdir().expect("a directory");
        let database = schema::open(&home.path().join("simse.db")).expect("opens").0;
        let mut fresh = Fresh::load(&database).expect("read");
        for seq in 1..=3 {
            let goes_on = fresh.goes_on(1, (seq, Some(1)), 0).is_some();
            assert_eq!(goes_on, seq > 1);
            fresh.add(&database, (1, goes_on), piece(seq, 1)).expect("written");
        }
        assert_eq!(fresh.goes_on(1, (4, Some(2)), 0), None, "another turn");
        assert_eq!(fresh.goes_on(1, (4, Some(1)), 3), None, "the head stands there");
        assert_eq!(fresh.goes_on(1, (5, Some(1)), 0), None, "one is missing");
        fresh.settle();
        let before = (known(&fresh), fresh.next, fresh.bytes);

        database.execute_batch("BEGIN").expect("begun");
        fresh.add(&database, (1, true), piece(4, 1)).expect("written");
        let mark = fresh.mark();
        fresh.add(&database, (2, false), piece(1, 1)).expect("written");
        assert!(fresh.gather(&database, 1).expect("written") > 0);
        fresh.add(&database, (1, false), piece(5, 1)).expect("written");
        fresh.roll_back(mark);
        assert_eq!(known(&fresh)[0].1[0].count, 4);
        fresh.roll_back(0);
        database.execute_batch("ROLLBACK").expect("rolled back");
        assert_eq!((known(&fresh), fresh.next, fresh.bytes), before);

        // A slice that the disk refuses is done later.
        fresh.begin();
        database.pragma_update(None, "query_only", true).expect("set");
        fresh.slice(&database).expect_err("refused");
        assert!(fresh.is_gathering() && known(&fresh) == before.0);
        database.pragma_update(None, "query_only", false).expect("set");
        fresh.add(&database, (1, true), piece(4, 1)).expect("written");
        fresh.settle();
        while fresh.is_gathering() {
            fresh.slice(&database).expect("written");
        }
        assert_eq!(count(&database, "SELECT sum(count) FROM log"), 4);
        assert_eq!((known(&fresh), fresh.is_empty()), (vec![], false), "what came meanwhile is still to be taken out");
        fresh.begin();
        fresh.slice(&database).expect("written");
        assert!(fresh.is_empty());
        assert_eq!(count(&database, "SELECT count(*) FROM fresh"), 0);
    }
}
