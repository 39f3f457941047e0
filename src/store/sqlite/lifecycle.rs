//! The list of lifecycle events in the tables: a client's places, and where the log has the event.
//!
//! `lifecycle.key` is that of the event's number, so that a deleted session's rows are swept up with its log. A row
//! without one says by itself, in `gone`, that a session was deleted.
//!
//! Invariant: the newest place of a client always has a row, so that no place is given twice.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension as _};

use super::chained;
use super::places::Moment;
use super::read::{self, ReadError};
use super::write::{key_of, split_key};
use crate::protocol::{Event, SessionId, is_lifecycle};
use crate::store::StoreError;
use crate::store::lifecycle::{GONE_PLACES, LifecyclePage, PAGE_BYTES_MAX, gone};

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

/// A row at a client's next place. The client is that of the session with number ?1.
const INSERT: &str = "
    INSERT INTO lifecycle (client, place, key, gone)
    SELECT coalesce(client, ''),
        1 + coalesce((SELECT max(place) FROM lifecycle WHERE lifecycle.client = coalesce(session.client, '')), 0),
        ?2, ?3
    FROM session WHERE number = ?1
    RETURNING client, place
";

/// Lists those of a session's new events that are lifecycle events. Its client, when there are any.
pub(super) fn list(connection: &Connection, number: i64, events: &[Event]) -> rusqlite::Result<Option<String>> {
    let mut client = None;
    for event in events.iter().filter(|event| is_lifecycle(&event.kind)) {
        let mut insert = connection.prepare_cached(INSERT)?;
        client = insert
            .query_row((number, key_of(number, event.seq), None::<String>), |row| row.get::<_, String>(0))
            .optional()?;
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
    let mut insert = connection.prepare_cached(INSERT)?;
    let found = insert.query_row((number, None::<i64>, words), |row| Ok((row.get(0)?, row.get::<_, u64>(1)?)));
    let Some((client, place)): Option<(String, u64)> = found.optional()? else { return Ok(None) };
    let mut forget =
        connection.prepare_cached("DELETE FROM lifecycle WHERE key IS NULL AND client = ?1 AND place <= ?2")?;
    forget.execute((&client, place.saturating_sub(GONE_PLACES)))?;
    Ok(Some(client))
}

/// The place of a client's newest event; 0 when it has none.
pub(super) fn newest(connection: &Connection, client: &str) -> Result<u64, ReadError> {
    let mut find = connection.prepare_cached("SELECT coalesce(max(place), 0) FROM lifecycle WHERE client = ?")?;
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
            list(connection, number, &events).map(drop)
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
