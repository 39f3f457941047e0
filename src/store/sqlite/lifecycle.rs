//! The list of lifecycle events in the tables: a client's places, and where the log has the event.
//!
//! `lifecycle.key` is that of the event's number, so that a deleted session's rows are swept up with its log. A row
//! without one says by itself, in `gone`, that a session was deleted; `number` counts these over all clients. Where the
//! newest row of a client is to be forgotten and others of it are left, it stays without words, for its place.
//!
//! Invariant: no place is given twice. The newest place of a client has a row, or the client has none at all and
//! `forgotten` has that place or a higher one.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension as _};

use super::chained;
use super::places::Moment;
use super::read::{self, ReadError};
use super::write::{key_of, split_key};
use crate::protocol::{Event, SessionId, is_lifecycle};
use crate::store::lifecycle::{Bounds, EndsKept, LifecyclePage, PAGE_BYTES_MAX, gone};
use crate::store::{CommitMeter, StoreError};

/// The table.
pub(super) const TABLE: &str = "
    CREATE TABLE lifecycle (
        client TEXT NOT NULL,
        place INTEGER NOT NULL,
        key INTEGER,
        gone TEXT,
        PRIMARY KEY (client, place)
    ) WITHOUT ROWID;
    CREATE INDEX lifecycle_of_session ON lifecycle (key);
";

/// What makes the table of version 9 into this one: ends are numbered, and what is forgotten leaves the newest place and
/// the newest time that went.
pub(super) const NUMBERED: &str = "
    ALTER TABLE lifecycle ADD COLUMN number INTEGER;
    UPDATE lifecycle SET number = ends.number FROM (
        SELECT client, place, row_number() OVER (
            ORDER BY CASE WHEN json_valid(gone) THEN json_extract(gone, '$.at') END, client, place
        ) AS number
        FROM lifecycle WHERE gone IS NOT NULL
    ) AS ends WHERE ends.client = lifecycle.client AND ends.place = lifecycle.place;
    CREATE UNIQUE INDEX lifecycle_end ON lifecycle (number) WHERE number IS NOT NULL;
    CREATE TABLE forgotten (one INTEGER PRIMARY KEY CHECK (one = 1), place INTEGER NOT NULL, at INTEGER NOT NULL);
";

/// A row at a client's next place. The client is that of the session with number ?1.
const INSERT: &str = "
    INSERT INTO lifecycle (client, place, key)
    SELECT coalesce(client, ''),
        1 + coalesce(
            (SELECT max(place) FROM lifecycle WHERE lifecycle.client = coalesce(session.client, '')),
            (SELECT place FROM forgotten),
            0
        ),
        ?2
    FROM session WHERE number = ?1
    RETURNING client
";

/// The same for the end of a session.
const INSERT_END: &str = "
    INSERT INTO lifecycle (client, place, gone, number)
    SELECT coalesce(client, ''),
        1 + coalesce(
            (SELECT max(place) FROM lifecycle WHERE lifecycle.client = coalesce(session.client, '')),
            (SELECT place FROM forgotten),
            0
        ),
        ?2,
        1 + coalesce((SELECT max(number) FROM lifecycle WHERE number IS NOT NULL), 0)
    FROM session WHERE number = ?1
    RETURNING client
";

/// The same in the table as it was at first.
const INSERT_AT_FIRST: &str = "
    INSERT INTO lifecycle (client, place, key)
    SELECT coalesce(client, ''),
        1 + coalesce((SELECT max(place) FROM lifecycle WHERE lifecycle.client = coalesce(session.client, '')), 0),
        ?2
    FROM session WHERE number = ?1
    RETURNING client
";

/// Lists those of a session's new events that are lifecycle events. Its client, when there are any.
pub(super) fn list(connection: &Connection, number: i64, events: &[Event]) -> rusqlite::Result<Option<String>> {
    list_by(INSERT, connection, (number, events))
}

fn list_by(
    insert: &str,
    connection: &Connection,
    (number, events): (i64, &[Event]),
) -> rusqlite::Result<Option<String>> {
    let mut client = None;
    for event in events.iter().filter(|event| is_lifecycle(&event.kind)) {
        let mut insert = connection.prepare_cached(insert)?;
        client = insert.query_row((number, key_of(number, event.seq)), |row| row.get::<_, String>(0)).optional()?;
    }
    Ok(client)
}

/// Says that a session goes. Before it does: its row tells whose it is.
pub(super) fn end(
    connection: &Connection,
    (session, number): (&SessionId, i64),
    last_seq: u64,
) -> rusqlite::Result<Option<String>> {
    let event = gone(session, last_seq);
    let words = serde_json::to_string(&event).map_err(|e| rusqlite::Error::ToSqlConversionFailure(Box::new(e)))?;
    let mut insert = connection.prepare_cached(INSERT_END)?;
    insert.query_row((number, words), |row| row.get(0)).optional()
}

/// How many ends are told of, about: numbers are given in order, and the oldest go first.
pub(super) fn kept(connection: &Connection) -> rusqlite::Result<EndsKept> {
    let mut find = connection.prepare_cached(
        "SELECT
            1 + (SELECT max(number) FROM lifecycle WHERE number IS NOT NULL)
              - (SELECT min(number) FROM lifecycle WHERE number IS NOT NULL),
            coalesce((SELECT at FROM forgotten), 0)",
    )?;
    find.query_row([], |row| {
        Ok(EndsKept { count: row.get::<_, Option<u64>>(0)?.unwrap_or(0), forgotten_at: row.get(1)? })
    })
}

/// Says so to the meter. What cannot be read now is counted with the next.
pub(super) fn count(connection: &Connection, meter: &CommitMeter) {
    if let Ok(kept) = kept(connection) {
        *meter.ends.lock() = kept;
    }
}

/// An end, as far as it matters for its being forgotten.
struct Oldest {
    number: u64,
    client: String,
    place: u64,
    at: u64,
}

/// The oldest ends, at most so many.
fn oldest(connection: &Connection, limit: usize) -> rusqlite::Result<Vec<Oldest>> {
    let mut find = connection.prepare_cached(
        "SELECT number, client, place, gone FROM lifecycle WHERE number IS NOT NULL ORDER BY number LIMIT ?",
    )?;
    let rows = find.query_map([limit], |row| {
        let words: Option<String> = row.get(3)?;
        // One that cannot be read tells nobody anything.
        let at = words.and_then(|words| serde_json::from_str::<Event>(&words).ok()).map_or(0, |event| event.at);
        Ok(Oldest { number: row.get(0)?, client: row.get(1)?, place: row.get(2)?, at })
    })?;
    rows.collect()
}

/// Whether ends are to be forgotten.
pub(super) fn has_old(connection: &Connection, bounds: Bounds) -> rusqlite::Result<bool> {
    let count = kept(connection)?.count;
    Ok(count > bounds.count || oldest(connection, 1)?.iter().any(|end| end.at < bounds.before))
}

/// Forgets the oldest ends that are out of bounds, at most so many. How many they were.
pub(super) fn forget(connection: &Connection, bounds: Bounds, limit: usize) -> rusqlite::Result<usize> {
    let ends = oldest(connection, limit)?;
    let Some(first) = ends.first().map(|end| end.number) else { return Ok(0) };
    let newest = first + kept(connection)?.count - 1;
    let mut count = 0;
    for end in ends {
        if newest - end.number < bounds.count && end.at >= bounds.before {
            break;
        }
        forget_one(connection, &end)?;
        count += 1;
    }
    Ok(count)
}

fn forget_one(connection: &Connection, end: &Oldest) -> rusqlite::Result<()> {
    // A place that was kept for itself is needed no more: that of this end is higher. Older ends have gone.
    let mut bare =
        connection.prepare_cached("DELETE FROM lifecycle WHERE key IS NULL AND client = ?1 AND place < ?2")?;
    bare.execute((&end.client, end.place))?;
    let mut others = connection
        .prepare_cached("SELECT place FROM lifecycle WHERE client = ?1 AND place != ?2 ORDER BY place DESC LIMIT 1")?;
    let newest = others.query_row((&end.client, end.place), |row| row.get::<_, u64>(0)).optional()?;
    let took = match newest {
        Some(place) if place < end.place => {
            "UPDATE lifecycle SET gone = NULL, number = NULL WHERE client = ?1 AND place = ?2"
        }
        Some(_) | None => "DELETE FROM lifecycle WHERE client = ?1 AND place = ?2",
    };
    connection.prepare_cached(took)?.execute((&end.client, end.place))?;
    let place = if newest.is_none() { end.place } else { 0 };
    let mut note = connection.prepare_cached(
        "INSERT INTO forgotten (one, place, at) VALUES (1, ?1, ?2)
         ON CONFLICT (one) DO UPDATE SET place = max(place, ?1), at = max(at, ?2)",
    )?;
    note.execute((place, end.at)).map(drop)
}

/// The place of a client's newest event; of one that has none, the place behind which its first one comes.
pub(super) fn newest(connection: &Connection, client: &str) -> Result<u64, ReadError> {
    let mut find = connection.prepare_cached(
        "SELECT coalesce(max(place), (SELECT place FROM forgotten), 0) FROM lifecycle WHERE client = ?",
    )?;
    Ok(find.query_row([client], |row| row.get(0))?)
}

/// A client's events behind place `after`. One whose log is gone is left out.
pub(super) fn page(moment: &Moment<'_>, client: &str, after: u64, limit: usize) -> Result<LifecyclePage, ReadError> {
    let mut list = moment.prepare_cached(
        "SELECT place, key, gone FROM lifecycle WHERE client = ?1 AND place > ?2 ORDER BY place LIMIT ?3",
    )?;
    let mut rows = list.query((client, after, limit))?;
    let mut page = LifecyclePage { entries: Vec::new(), upto: after };
    let (mut sessions, mut bytes) = (HashMap::new(), 0);
    while let Some(row) = rows.next()? {
        page.upto = row.get(0)?;
        let event = match (row.get::<_, Option<i64>>(1)?, row.get::<_, Option<String>>(2)?) {
            (Some(key), _) => event_at(moment, key, &mut sessions)?,
            (None, Some(words)) => serde_json::from_str(&words).ok(),
            (None, None) => None,
        };
        let Some(event) = event else { continue };
        bytes += event.payload.get().len();
        page.entries.push((page.upto, event));
        if bytes >= PAGE_BYTES_MAX {
            break;
        }
    }
    Ok(page)
}

/// The event at a place of the log. None: its session is gone, or the log has something else there.
fn event_at(
    moment: &Moment<'_>,
    key: i64,
    sessions: &mut HashMap<i64, Option<SessionId>>,
) -> Result<Option<Event>, ReadError> {
    let (number, seq) = split_key(key);
    let session = match sessions.get(&number) {
        Some(known) => known.clone(),
        None => {
            let mut find = moment.prepare_cached("SELECT id FROM session WHERE number = ?")?;
            let found: Option<String> = find.query_row([number], |row| row.get(0)).optional()?;
            let id = found.and_then(|id| id.parse::<SessionId>().ok());
            sessions.insert(number, id.clone());
            id
        }
    };
    let Some(session) = session else { return Ok(None) };
    match read::events(moment, &session, seq.saturating_sub(1), 1) {
        Ok(events) => Ok(events.into_iter().next().filter(|event| event.seq == seq)),
        // Who reads that session is told; the others go on.
        Err(ReadError::Store(StoreError::Damaged { .. })) => Ok(None),
        Err(other) => Err(other),
    }
}

/// Makes the list for a database that was made without: session by session, as they were created.
pub(super) fn list_all(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(TABLE)?;
    let mut sessions = connection.prepare("SELECT number, id FROM session ORDER BY number")?;
    let sessions = sessions.query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)))?;
    for (number, id) in sessions.collect::<Result<Vec<_>, _>>()? {
        // One whose id cannot be read can be neither found nor written.
        let Ok(id) = id.parse::<SessionId>() else { continue };
        chained::each_row(connection, (&id, number), 0, |stored| {
            // What cannot be read is not listed; checks tell of it.
            let (events, _) = stored.events().unwrap_or_default();
            list_by(INSERT_AT_FIRST, connection, (number, &events)).map(drop)
        })?;
    }
    Ok(())
}

/// Numbers of a session's events that are listed, in order.
pub(super) fn listed(connection: &Connection, number: i64) -> rusqlite::Result<Vec<u64>> {
    let mut list = connection.prepare_cached("SELECT key FROM lifecycle WHERE key BETWEEN ? AND ? ORDER BY key")?;
    let keys = list.query_map((key_of(number, 0), key_of(number, u32::MAX.into())), |row| row.get::<_, i64>(0))?;
    keys.map(|key| key.map(|key| split_key(key).1)).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::protocol::ClientId;
    use crate::store::conformance::{Shared, event, put, row, session_id, sqlite};
    use crate::store::{SessionRow, Write};

    fn raw(directory: &Path) -> Connection {
        Connection::open(directory.join("simse.db")).expect("opens")
    }

    fn made(client: &ClientId, id: &str) -> Vec<Write> {
        let created = Event { kind: crate::protocol::kind_named("session.created"), ..event(id, None, 1, "x") };
        let row = SessionRow { client: Some(client.clone()), ..row(id) };
        vec![Write::CreateSession(Box::new(row)), Write::Append(session_id(id), Arc::new(vec![created]))]
    }

    async fn come_and_go(store: &Shared, client: &ClientId, id: &str) {
        put(store, made(client, id)).await;
        put(store, vec![Write::DeleteSession(session_id(id))]).await;
    }

    async fn told(store: &Shared, client: &ClientId) -> (Vec<(u64, String)>, u64) {
        let page = store.lifecycle(Some(client), 0, 100).await.expect("read");
        let told = page.entries.iter().map(|(place, event)| (*place, format!("{} {}", event.session_id, event.kind)));
        (told.collect(), store.lifecycle_end(Some(client)).await.expect("read"))
    }

    #[tokio::test]
    async fn the_oldest_ends_are_forgotten_and_no_place_is_given_twice() {
        let directory = tempfile::tempdir().expect("a directory");
        let client = |name: &str| name.parse::<ClientId>().expect("an id");
        let (gone, stays, last) = (client("gone"), client("stays"), client("last"));
        let store = sqlite(directory.path());
        for id in ["g1", "g2", "g3"] {
            come_and_go(&store, &gone, id).await;
        }
        put(&store, made(&stays, "s1")).await;
        come_and_go(&store, &stays, "s2").await;
        come_and_go(&store, &last, "l1").await;
        store.close().await.expect("closes");
        drop(store);

        let connection = raw(directory.path());
        while super::super::sweep::slice(&connection).expect("swept") {}
        assert_eq!(kept(&connection).expect("read"), EndsKept { count: 5, forgotten_at: 0 });
        let bounds = Bounds { count: 1, before: 0 };
        assert!(has_old(&connection, bounds).expect("read"));
        // A few at a time, the oldest first.
        assert_eq!(forget(&connection, bounds, 3).expect("done"), 3);
        assert_eq!(forget(&connection, bounds, 3).expect("done"), 1);
        assert_eq!(forget(&connection, bounds, 3).expect("done"), 0);
        let now = kept(&connection).expect("read");
        assert!(now.count == 1 && now.forgotten_at > 0 && !has_old(&connection, bounds).expect("read"), "{now:?}");
        drop(connection);

        let store = sqlite(directory.path());
        assert_eq!(told(&store, &gone).await, (vec![], 6), "where it was");
        assert_eq!(told(&store, &stays).await, (vec![(1, "s1 session.created".to_owned())], 3), "its place is kept");
        assert_eq!(told(&store, &last).await, (vec![(2, "l1 session.deleted".to_owned())], 2));
        // What comes has places behind all that were given.
        put(&store, made(&gone, "g4")).await;
        put(&store, vec![Write::DeleteSession(session_id("s1"))]).await;
        assert_eq!(told(&store, &gone).await, (vec![(7, "g4 session.created".to_owned())], 7));
        assert_eq!(told(&store, &stays).await, (vec![(4, "s1 session.deleted".to_owned())], 4));
        assert_eq!(told(&store, &client("new")).await, (vec![], 6), "one that was never here");
        store.close().await.expect("closes");
        drop(store);

        // The place that was kept for itself goes with the next end of that client.
        let connection = raw(directory.path());
        while super::super::sweep::slice(&connection).expect("swept") {}
        while forget(&connection, Bounds { count: 0, before: 0 }, 1).expect("done") > 0 {}
        let left: i64 = connection.query_row("SELECT count(*) FROM lifecycle", [], |row| row.get(0)).expect("read");
        assert_eq!(left, 1, "that of the session that is there");
    }

    #[tokio::test]
    async fn what_is_too_old_is_forgotten_at_the_start() {
        let directory = tempfile::tempdir().expect("a directory");
        let client: ClientId = "c".parse().expect("an id");
        let store = sqlite(directory.path());
        come_and_go(&store, &client, "one").await;
        store.close().await.expect("closes");
        drop(store);
        let aged = "UPDATE lifecycle SET gone = json_set(gone, '$.at', 7) WHERE gone IS NOT NULL";
        assert_eq!(raw(directory.path()).execute(aged, []).expect("done"), 1);
        let store = sqlite(directory.path());
        while store.ends_kept() != (EndsKept { count: 0, forgotten_at: 7 }) {
            tokio::task::yield_now().await;
        }
        assert_eq!(told(&store, &client).await, (vec![], 2));
    }

    /// Neither what comes nor what is forgotten costs more where more is there.
    #[test]
    fn no_write_looks_at_all_of_the_table() {
        let directory = tempfile::tempdir().expect("a directory");
        drop(sqlite(directory.path()));
        let connection = raw(directory.path());
        let statements = [
            INSERT,
            INSERT_END,
            "DELETE FROM lifecycle WHERE key IS NULL AND client = ?1 AND place < ?2",
            "SELECT number, client, place, gone FROM lifecycle WHERE number IS NOT NULL ORDER BY number LIMIT ?1",
        ];
        for statement in statements {
            let mut plan = connection.prepare(&format!("EXPLAIN QUERY PLAN {statement}")).expect("a statement");
            let values = rusqlite::params_from_iter(std::iter::repeat_n(1, plan.parameter_count()));
            let rows = plan.query_map(values, |row| row.get::<_, String>(3));
            let lines: Vec<String> = rows.expect("a plan").collect::<Result<_, _>>().expect("read");
            let whole = lines.iter().find(|line| line.contains("SCAN lifecycle") && !line.contains("lifecycle_end"));
            assert_eq!(whole, None, "{statement}: {lines:?}");
        }
    }
}
