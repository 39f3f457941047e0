//! Tables held against each other, where no log is needed for it: rows that belong to nothing, and rows that contradict
//! themselves or another one.

use rusqlite::Connection;

use super::lifecycle;
use super::write::{key_of, split_key};
use crate::protocol::{Event, SESSION_DELETED, SessionId};
use crate::store::inspect::Fault;
use crate::store::{GrantRow, Question};

/// Everything of the kind in a database of the newest version.
pub(super) fn contradictions(connection: &Connection) -> rusqlite::Result<Vec<Fault>> {
    let mut faults = orphans(connection)?;
    faults.extend(doomed(connection)?);
    faults.extend(roots(connection)?);
    faults.extend(grants(connection)?);
    faults.extend(ends(connection)?);
    Ok(faults)
}

fn orphans(connection: &Connection) -> rusqlite::Result<Vec<Fault>> {
    let mut faults = Vec::new();
    for table in ["log", "fresh", "turn", "said", "question", "lifecycle"] {
        let mut list = connection.prepare(&format!(
            "SELECT key >> 32, count(*) FROM {table} WHERE key IS NOT NULL
             AND key >> 32 NOT IN (SELECT number FROM session) AND key >> 32 NOT IN (SELECT number FROM doomed) GROUP BY key >> 32"
        ))?;
        let rows = list.query_map([], |row| Ok(Fault::Orphans { table, number: row.get(0)?, rows: row.get(1)? }))?;
        faults.extend(rows.collect::<Result<Vec<_>, _>>()?);
    }
    Ok(faults)
}

/// A session is there or it is marked as deleted; of one that is there the table says only where it was forked.
fn doomed(connection: &Connection) -> rusqlite::Result<Vec<Fault>> {
    let mut list = connection.prepare(
        "SELECT number, number IN (SELECT number FROM session) FROM doomed
         WHERE dead = (number IN (SELECT number FROM session)) OR dead NOT IN (0, 1)
            OR (dead = 0 AND (parent IS NULL OR at IS NULL)) ORDER BY number",
    )?;
    let rows = list.query_map([], |row| {
        let what = match row.get(1)? {
            true => "it is there, and the list of deleted and forked ones says something else",
            false => "the list of deleted and forked ones has it as a fork, and it is not there",
        };
        Ok(Fault::Doomed { number: row.get(0)?, what })
    })?;
    rows.collect()
}

/// A session stands under the root that its lineage names.
fn roots(connection: &Connection) -> rusqlite::Result<Vec<Fault>> {
    let mut list = connection.prepare(
        "SELECT number FROM session WHERE typeof(lineage) IN ('null', 'text') AND (lineage IS NULL OR json_valid(lineage))
         AND root IS NOT json_extract(lineage, '$.path[0]') ORDER BY number",
    )?;
    let cause = "it stands under another root than its lineage names";
    let rows = list.query_map([], |row| Ok(Fault::Row { number: row.get(0)?, cause: cause.to_owned() }))?;
    rows.collect()
}

/// A grant that outlives its session says in its row what stands in the key.
fn grants(connection: &Connection) -> rusqlite::Result<Vec<Fault>> {
    let mut list = connection.prepare("SELECT id, body FROM saved_grant ORDER BY id")?;
    let mut rows = list.query([])?;
    let mut faults = Vec::new();
    while let Some(row) = rows.next()? {
        let id = row.get::<_, String>(0).unwrap_or_else(|_| "?".to_owned());
        let body = row.get::<_, String>(1).map_err(|e| e.to_string());
        let read = body.and_then(|body| serde_json::from_str::<GrantRow>(&body).map_err(|e| e.to_string()));
        let cause = match read {
            Ok(grant) if grant.grant.id.as_str() == id => continue,
            Ok(grant) => format!("it says of itself that it is {}", grant.grant.id),
            Err(cause) => cause,
        };
        faults.push(Fault::Grant { id, cause });
    }
    Ok(faults)
}

/// A lifecycle event stands in a log, or is the end of a session and stands in the list itself, with a number.
fn ends(connection: &Connection) -> rusqlite::Result<Vec<Fault>> {
    let mut list = connection.prepare(
        "SELECT client, place, key IS NULL AND number IS NOT NULL, gone FROM lifecycle
         WHERE gone IS NOT NULL OR number IS NOT NULL ORDER BY 1, 2",
    )?;
    let mut rows = list.query([])?;
    let mut faults = Vec::new();
    while let Some(row) = rows.next()? {
        // What is no text is no event.
        let gone: Option<String> = row.get(3).unwrap_or_default();
        let event = gone.and_then(|gone| serde_json::from_str::<Event>(&gone).ok());
        let fits = |event: &Event| {
            let named = format!(r#"{{"sessionId":"{}"}}"#, event.session_id);
            event.kind == SESSION_DELETED && event.payload.get() == named && event.turn_id.is_none()
        };
        if !row.get::<_, bool>(2)? || !event.is_some_and(|event| fits(&event)) {
            let client = row.get(0).unwrap_or_else(|_| "?".to_owned());
            faults.push(Fault::End { client, place: row.get(1).unwrap_or_default() });
        }
    }
    Ok(faults)
}

/// What the list of lifecycle events has of a session: numbers of events, in order. Under another client than the
/// session's, or in another order than the log's, they are not listed.
pub(super) fn lifecycle_of(
    connection: &Connection,
    (session, number): (&SessionId, i64),
    faults: &mut Vec<Fault>,
) -> rusqlite::Result<Vec<u64>> {
    let listed = lifecycle::listed(connection, number)?;
    let mut list = connection.prepare_cached(
        "SELECT lifecycle.key, lifecycle.client = coalesce(session.client, ''), lifecycle.place FROM lifecycle
         JOIN session ON session.number = ?1 WHERE lifecycle.key BETWEEN ?2 AND ?3 ORDER BY lifecycle.key",
    )?;
    let mut rows = list.query((number, key_of(number, 0), key_of(number, u32::MAX.into())))?;
    let mut before = 0;
    while let Some(row) = rows.next()? {
        let ((_, seq), place) = (split_key(row.get(0)?), row.get::<_, i64>(2)?);
        let what = match row.get::<_, bool>(1)? {
            false => "the list of lifecycle events has it under another client than the session's",
            true if place <= before => "the list of lifecycle events has it in another place",
            true => "",
        };
        before = place;
        if !what.is_empty() {
            faults.push(Fault::Lifecycle { session: session.clone(), seq, what });
        }
    }
    Ok(listed)
}

/// Turns that are listed as open and are over, or the other way round.
pub(super) fn open_turns(
    connection: &Connection,
    (session, number): (&SessionId, i64),
    faults: &mut Vec<Fault>,
) -> rusqlite::Result<()> {
    let mut list = connection.prepare_cached(
        "SELECT id, open FROM turn WHERE key BETWEEN ? AND ? AND body IS NOT NULL AND json_valid(body)
         AND open IS NOT (json_extract(body, '$.s') NOT IN ('completed', 'failed', 'aborted', 'interrupted'))",
    )?;
    let mut rows = list.query((key_of(number, 0), key_of(number, u32::MAX.into())))?;
    while let Some(row) = rows.next()? {
        let cause = "whether it is open stands there twice, and not the same".to_owned();
        faults.push(Fault::Turn { session: session.clone(), turn: row.get(0)?, cause });
    }
    Ok(())
}

/// Questions that the list of them has, by the numbers of their events.
pub(super) fn questions(connection: &Connection, keys: (i64, i64)) -> rusqlite::Result<Vec<(u64, Option<Question>)>> {
    let mut list =
        connection.prepare_cached("SELECT key, id, call FROM question WHERE key BETWEEN ? AND ? ORDER BY key")?;
    let rows = list.query_map(keys, |row| {
        let request_id = row.get::<_, String>(1)?.parse().ok();
        let call_id = row.get(2)?;
        Ok((split_key(row.get(0)?).1, request_id.map(|request_id| Question { request_id, call_id })))
    })?;
    rows.collect()
}
