//! Sessions that begin with the log of another one. Rows are shared, not copied: a fork knows its parent and the last event
//! that both have in common, and whoever reads goes from the parent's rows over into its own.
//!
//! Invariants: the last common event stands at the end of a row. A parent has, of what it shares, all it needs in its own rows and
//! those of its parents. What a fork reads is not swept up: the rows of a deleted parent stay until its last fork is gone.

use rusqlite::{Connection, OptionalExtension as _};

use super::chained;
use super::write::{Failed, key_of, split_key};
use crate::base::limit;
use crate::protocol::SessionId;
use crate::store::StoreError;
use crate::store::chain::{Chain, TAG_BYTES};
use crate::store::record;

/// A stretch of a log that lies under one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    /// The number of the session under which it was written.
    pub(super) number: i64,
    /// Its last event that counts.
    pub(super) upto: u64,
}

/// The session that one was forked off from, and the last event that both have in common.
pub(super) fn parent_of(connection: &Connection, number: i64) -> rusqlite::Result<Option<Segment>> {
    let mut find =
        connection.prepare_cached("SELECT parent, at FROM doomed WHERE number = ? AND parent IS NOT NULL")?;
    find.query_row([number], |row| Ok(Segment { number: row.get(0)?, upto: row.get(1)? })).optional()
}

/// Where the log of a session lies, oldest events first.
pub(super) fn segments(connection: &Connection, number: i64) -> rusqlite::Result<Vec<Segment>> {
    segments_behind(connection, number, 0)
}

/// Where the events behind number `after` lie. Who reads the end of a log does not pay for how it came about.
pub(super) fn segments_behind(connection: &Connection, number: i64, after: u64) -> rusqlite::Result<Vec<Segment>> {
    let mut all = vec![Segment { number, upto: u32::MAX.into() }];
    let mut child = number;
    while let Some(parent) = parent_of(connection, child)?.filter(|parent| parent.upto > after) {
        all.push(parent);
        child = parent.number;
    }
    all.reverse();
    Ok(all)
}

/// Makes a session with this number a fork of another one behind event `at`. The chain to that event, which is followed
/// where nobody has.
pub(super) fn join(
    connection: &Connection,
    number: i64,
    (parent, of): (&SessionId, i64),
    (at, chain): (u64, Option<Chain>),
) -> Result<Chain, Failed> {
    // The one in whose own rows the event lies.
    let mut base = of;
    while let Some(above) = parent_of(connection, base)?.filter(|above| above.upto >= at) {
        base = above.number;
    }
    if segments(connection, base)?.len() > limit::FORK_DEPTH_MAX {
        return Err(StoreError::TooDeep { session: parent.clone(), forks_max: limit::FORK_DEPTH_MAX }.into());
    }
    split(connection, base, at)?;
    let chain = chain.map_or_else(|| chain_at(connection, (parent, of), at), Ok)?;
    let mut insert = connection.prepare_cached("INSERT INTO doomed (number, dead, parent, at) VALUES (?, 0, ?, ?)")?;
    insert.execute((number, base, at))?;
    chained::anchor(connection, number, &chain)?;
    Ok(chain)
}

/// Takes the row apart in which event `at` is not the last one.
pub(super) fn split(connection: &Connection, number: i64, at: u64) -> rusqlite::Result<()> {
    let mut find = connection.prepare_cached(
        "SELECT key, count, turn, at, body FROM log WHERE key BETWEEN ?1 AND ?2 ORDER BY key DESC LIMIT 1",
    )?;
    let row = find.query_row((key_of(number, 0), key_of(number, at)), |row| {
        let (key, count, turn): (i64, u64, Option<i64>) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok((key, count, turn, row.get::<_, u64>(3)?, row.get::<_, Vec<u8>>(4)?))
    });
    let Some((key, count, turn, time, body)) = row.optional()? else { return Ok(()) };
    let keeps = at + 1 - split_key(key).1;
    if keeps >= count {
        return Ok(());
    }
    // A body that is not what was written stays whole: who reads it is told.
    let Some((lines, tags)) = record::split(&body, count) else { return Ok(()) };
    let nth = usize::try_from(keeps).unwrap_or(usize::MAX);
    let Some((end, _)) = lines.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(nth - 1) else {
        return Ok(());
    };
    let ((first, rest), (first_tags, rest_tags)) = (lines.split_at(end + 1), tags.split_at(nth * TAG_BYTES));
    let mut update = connection.prepare_cached("UPDATE log SET count = ?2, body = ?3 WHERE key = ?1")?;
    update.execute((key, keeps, [first, first_tags].concat()))?;
    let sql = "INSERT INTO log (key, count, turn, at, body) VALUES (?1, ?2, ?3, ?4, ?5)";
    let mut insert = connection.prepare_cached(sql)?;
    insert.execute((key_of(number, at + 1), count - keeps, turn, time, [rest, rest_tags].concat()))?;
    Ok(())
}

/// The chain of a session to event `at`, which stands at the end of a row.
fn chain_at(connection: &Connection, (session, number): (&SessionId, i64), at: u64) -> rusqlite::Result<Chain> {
    let head = chained::head_of(connection, number)?;
    let mut chain = head.filter(|head| head.seq() <= at).unwrap_or_default();
    for Segment { number, upto } in segments(connection, number)? {
        let upto = upto.min(at);
        if chain.seq() >= upto {
            continue;
        }
        let keys = (key_of(number, chain.seq()), key_of(number, upto));
        chained::each_row_from::<rusqlite::Error>(connection, (session, number), keys, |stored| {
            match stored.events() {
                Ok((events, _)) => events.iter().for_each(|event| chain.push(event)),
                Err(_) => chain.skip(stored.last_seq(), stored.row.body),
            }
            Ok(())
        })?;
    }
    Ok(chain)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use crate::base::limit;
    use crate::protocol::{TurnId, TurnStatus};
    use crate::store::conformance::{append, create, row, save, session_id, sqlite};
    use crate::store::sqlite::{Inspection, SqliteStore, schema, sweep};
    use crate::store::{MemoryStore, Store, StoreError, Write, commit};

    fn fork(id: &str, parent: &str, at: u64) -> Write {
        Write::ForkSession { row: Box::new(row(id)), parent: session_id(parent), at, chain: None }
    }

    async fn done(store: &Arc<dyn Store>, writes: Vec<Write>) {
        commit(store, writes).await.expect("written");
    }

    /// Numbers, texts and turns of a session's log, each read page by page.
    async fn log(store: &Arc<dyn Store>, id: &str) -> Vec<(u64, String, Option<String>)> {
        let (id, mut all, mut after) = (session_id(id), Vec::new(), 0);
        loop {
            let events = store.events(&id, after, 3).await.expect("read");
            let Some(last) = events.last() else { return all };
            after = last.seq;
            assert!(events.iter().all(|event| event.session_id == id), "under its own id");
            let told = |event: &crate::protocol::Event| {
                (event.seq, event.payload.get().to_owned(), event.turn_id.as_ref().map(ToString::to_string))
            };
            all.extend(events.iter().map(told));
        }
    }

    /// One session with ten events in two rows, forks of it in the middle of a row, and a fork of a fork.
    async fn family(store: &Arc<dyn Store>) {
        let turn = TurnId::generate();
        done(store, vec![create("a"), append("a", None, 1..=1), append("a", Some(&turn), 2..=10)]).await;
        done(store, vec![save("a", &turn, TurnStatus::Completed)]).await;
        done(store, vec![fork("b", "a", 4), append("b", None, 5..=8)]).await;
        done(store, vec![fork("c", "b", 6), append("c", None, 7..=7)]).await;
        // Of what `b` has from `a`.
        done(store, vec![fork("d", "b", 3), append("d", None, 4..=4)]).await;
        done(store, vec![append("a", None, 11..=12)]).await;
    }

    #[tokio::test]
    async fn a_fork_has_the_log_of_the_other_one_and_goes_on_by_itself() {
        let home = tempfile::tempdir().expect("a directory");
        let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
        for store in [memory, sqlite(home.path())] {
            family(&store).await;
            let all = log(&store, "a").await;
            assert_eq!(all.len(), 12);
            for (id, common, last) in [("b", 4, 8), ("c", 4, 7), ("d", 3, 4)] {
                let own = log(&store, id).await;
                assert_eq!(own[..common], all[..common], "{id}");
                assert_eq!(own.iter().map(|event| event.0).collect::<Vec<_>>(), (1..=last).collect::<Vec<_>>(), "{id}");
                assert_eq!(store.last_seq(&session_id(id)).await, Ok(last));
            }
            assert_eq!(log(&store, "c").await[..6], log(&store, "b").await[..6]);
            let taken = commit(&store, vec![fork("b", "a", 2)]).await;
            assert_eq!(taken, Err(StoreError::Taken(session_id("b"))));
            for (parent, at) in [("a", 0), ("a", 13), ("none", 1)] {
                assert!(commit(&store, vec![fork("e", parent, at)]).await.is_err(), "{parent} {at}");
            }
            let turn = all[4].2.as_deref().expect("a turn").parse::<TurnId>().expect("an id");
            let shared = store.turn(&session_id("c"), &turn).await.expect("read").expect("there");
            assert_eq!((shared.record.session_id, &shared.record.turn_id), (session_id("c"), &turn));
            assert_eq!(store.turn(&session_id("d"), &turn).await, Ok(None), "it begins behind what they share");
            store.close().await.expect("closed");
        }
    }

    #[tokio::test]
    async fn what_a_fork_reads_outlives_its_parent_and_goes_with_the_last_fork() {
        let home = tempfile::tempdir().expect("a directory");
        let store = sqlite(home.path());
        family(&store).await;
        let before = [log(&store, "b").await, log(&store, "c").await];
        done(&store, vec![Write::DeleteSession(session_id("a"))]).await;
        done(&store, vec![Write::DeleteSession(session_id("b"))]).await;
        store.close().await.expect("closed");
        assert_eq!(swept(home.path()), 18, "`c` and `d` read from both of them");
        let store = sqlite(home.path());
        assert_eq!(log(&store, "c").await[..6], before[1][..6]);
        done(&store, vec![append("c", None, 8..=9)]).await;
        assert_eq!(log(&store, "c").await.len(), 9);
        done(&store, vec![create("new"), append("new", None, 1..=1)]).await;
        assert_eq!(log(&store, "new").await.len(), 1, "no number is given again");
        done(&store, vec![Write::DeleteSession(session_id("c")), Write::DeleteSession(session_id("d"))]).await;
        store.close().await.expect("closed");
        assert_eq!(swept(home.path()), 1);
    }

    /// Sweeps up to the end. How many events are left.
    fn swept(directory: &Path) -> u64 {
        let (connection, _) = schema::open(&directory.join("simse.db")).expect("opens");
        while sweep::slice(&connection).expect("swept") {}
        connection.query_row("SELECT coalesce(sum(count), 0) FROM log", [], |row| row.get(0)).expect("counted")
    }

    /// Rows of each table, and pages.
    fn weighed(directory: &Path) -> [u64; 6] {
        let (connection, _) = schema::open(&directory.join("simse.db")).expect("opens");
        let of = |sql: &str| connection.query_row(sql, [], |row| row.get(0)).expect("counted");
        let rows = |table: &str| of(&format!("SELECT count(*) FROM {table}"));
        let pages = of("PRAGMA page_count") - of("PRAGMA freelist_count");
        [rows("session"), rows("log"), rows("turn"), rows("question"), rows("doomed"), pages]
    }

    #[tokio::test]
    async fn a_fork_costs_a_few_rows_and_pages_however_long_the_log_is() {
        let home = tempfile::tempdir().expect("a directory");
        let store = sqlite(home.path());
        let turn = TurnId::generate();
        let mut writes = vec![create("a")];
        writes.extend((0..100).map(|n| append("a", Some(&turn), n * 100 + 1..=n * 100 + 100)));
        done(&store, writes).await;
        store.close().await.expect("closed");
        let whole = weighed(home.path());
        assert!(whole[1] >= 100 && whole[5] > 50, "{whole:?}");
        // At the end, between two rows, and in the middle of one, which is taken apart.
        for (id, at, parted) in [("end", 10_000, 0), ("between", 5_000, 0), ("within", 4_950, 1)] {
            let before = weighed(home.path());
            let store = sqlite(home.path());
            done(&store, vec![fork(id, "a", at), append(id, None, at + 1..=at + 1)]).await;
            assert_eq!(log(&store, id).await.len() as u64, at + 1);
            store.close().await.expect("closed");
            let grown: Vec<u64> =
                weighed(home.path()).iter().zip(before).map(|(after, before)| after - before).collect();
            assert_eq!(grown[..5], [1, 1 + parted, 0, 0, 1], "{id}");
            assert!(grown[5] <= 2, "{id}: {} pages", grown[5]);
        }
    }

    #[tokio::test]
    async fn forks_of_forks_have_an_end() {
        let home = tempfile::tempdir().expect("a directory");
        let store = sqlite(home.path());
        done(&store, vec![create("f0"), append("f0", None, 1..=1)]).await;
        let last = u64::try_from(limit::FORK_DEPTH_MAX).expect("few");
        for n in 1..=last {
            let (id, parent) = (format!("f{n}"), format!("f{}", n - 1));
            done(&store, vec![fork(&id, &parent, n), append(&id, None, n + 1..=n + 1)]).await;
        }
        let deepest = format!("f{last}");
        let refused = commit(&store, vec![fork("deeper", &deepest, last + 1)]).await;
        let (session, forks_max) = (session_id(&deepest), limit::FORK_DEPTH_MAX);
        assert_eq!(refused, Err(StoreError::TooDeep { session, forks_max }));
        // Where one goes back, there is room.
        done(&store, vec![fork("wider", &deepest, last)]).await;
        assert_eq!(store.events(&session_id(&deepest), last, 9).await.expect("read").len(), 1);
        assert_eq!(log(&store, &deepest).await.len() as u64, last + 1);
        store.close().await.expect("closed");
    }

    #[tokio::test]
    async fn a_fork_is_chained_from_event_1_on() {
        let home = tempfile::tempdir().expect("a directory");
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(home.path()).expect("opens"));
        family(&store).await;
        // Another process knows of it what is stored.
        store.close().await.expect("closed");
        let store = sqlite(home.path());
        done(&store, vec![append("d", None, 5..=6)]).await;
        store.close().await.expect("closed");
        let inspection = Inspection::open(home.path()).expect("opens");
        for (id, last) in [("a", 12), ("b", 8), ("c", 7), ("d", 6)] {
            let number = inspection.session_number(&session_id(id)).expect("read").expect("there");
            let mut events = 0;
            let (found, faults) = inspection.session(number, &mut |_| events += 1).expect("read");
            assert_eq!((faults, events), (Vec::new(), last), "{id}");
            assert_eq!(found.expect("there").chain.seq(), last);
        }
        assert_eq!(inspection.database().expect("read"), Vec::new());
    }
}
