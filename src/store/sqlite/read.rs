//! Reading: every query that is not part of a write.

use std::collections::HashSet;

use rusqlite::{Connection, OptionalExtension as _, Row};

use super::fork::{self, Segment};
use super::places::Moment;
use super::write::{key_of, split_key};
use super::{chained, fresh};
use crate::protocol::{ClientId, Event, SessionId, SessionStatus, TurnId};
use crate::store::record;
use crate::store::turn::TurnBody;
use crate::store::{ClientSpending, GrantRow, SessionRow, StoreError, TurnRow, Which};

/// Bytes of log bodies in one answer, about.
const EVENTS_BYTES_MAX: usize = 1 << 20;

/// What SQLite said, or what we found in what it gave us.
pub(super) enum ReadError {
    Sqlite(rusqlite::Error),
    Store(StoreError),
}

impl From<rusqlite::Error> for ReadError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<StoreError> for ReadError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

type Read<T> = Result<T, ReadError>;

/// A stored text that is not what was written there.
fn unreadable(column: usize, cause: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, Box::new(cause))
}

fn json<T: serde::de::DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    serde_json::from_str(row.get_ref(column)?.as_str()?).map_err(|e| unreadable(column, e))
}

fn json_or_null<T: serde::de::DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<T>> {
    let text = row.get_ref(column)?.as_str_or_null()?;
    text.map(serde_json::from_str).transpose().map_err(|e| unreadable(column, e))
}

fn id<T: std::str::FromStr<Err = crate::protocol::BadId>>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    row.get_ref(column)?.as_str()?.parse().map_err(|e| unreadable(column, e))
}

const SESSION_COLUMNS: &str = "id, client, status, version, created_at, updated_at, message_count, usage, settings, lineage, children, spent, shared, number";

fn session_row(row: &Row<'_>) -> rusqlite::Result<SessionRow> {
    let client = row.get_ref(1)?.as_str_or_null()?.map(str::parse).transpose().map_err(|e| unreadable(1, e))?;
    Ok(SessionRow {
        id: id(row, 0)?,
        client,
        status: status_of(row, 2)?,
        version: row.get(3)?,
        created_at: row.get(4)?,
        updated_at: row.get(5)?,
        message_count: row.get(6)?,
        usage: json(row, 7)?,
        settings: json(row, 8)?,
        lineage: json_or_null(row, 9)?,
        children: json_or_null(row, 10)?.unwrap_or_default(),
        spent: json_or_null(row, 11)?.unwrap_or_default(),
        shared: json_or_null(row, 12)?.unwrap_or_default(),
    })
}

/// A session status as it is stored.
pub(super) fn status_number(status: SessionStatus) -> i64 {
    match status {
        SessionStatus::Created => 0,
        SessionStatus::Active => 1,
        SessionStatus::Completed => 2,
        SessionStatus::Aborted => 3,
    }
}

fn status_of(row: &Row<'_>, column: usize) -> rusqlite::Result<SessionStatus> {
    match row.get(column)? {
        0 => Ok(SessionStatus::Created),
        1 => Ok(SessionStatus::Active),
        2 => Ok(SessionStatus::Completed),
        3 => Ok(SessionStatus::Aborted),
        number => Err(rusqlite::Error::IntegralValueOutOfRange(column, number)),
    }
}

/// A session's number. None: there is none of that id.
pub(super) fn number_of(connection: &Connection, id: &SessionId) -> rusqlite::Result<Option<i64>> {
    let mut find = connection.prepare_cached("SELECT number FROM session WHERE id = ?")?;
    find.query_row([id.as_str()], |row| row.get(0)).optional()
}

pub(super) fn session(connection: &Connection, id: &SessionId) -> Read<Option<SessionRow>> {
    let mut find = connection.prepare_cached(&format!("SELECT {SESSION_COLUMNS} FROM session WHERE id = ?"))?;
    Ok(find.query_row([id.as_str()], session_row).optional()?)
}

/// The session of a number. None: it is gone.
pub(super) fn session_at(connection: &Connection, number: i64) -> rusqlite::Result<Option<SessionRow>> {
    let mut find = connection.prepare_cached(&format!("SELECT {SESSION_COLUMNS} FROM session WHERE number = ?"))?;
    find.query_row([number], session_row).optional()
}

pub(super) fn sessions(
    connection: &Connection,
    client: Option<&ClientId>,
    after: Option<&SessionId>,
    limit: usize,
) -> Read<Vec<SessionRow>> {
    let below = match after {
        Some(id) => number_of(connection, id)?.ok_or_else(|| StoreError::NoSession(id.clone()))?,
        None => i64::MAX,
    };
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let whose = if client.is_some() { "client = ?3" } else { "client IS NULL AND ?3 IS NULL" };
    let mut list = connection.prepare_cached(&format!(
        "SELECT {SESSION_COLUMNS} FROM session WHERE {whose} AND number < ?1 ORDER BY number DESC LIMIT ?2"
    ))?;
    let rows = list.query_map((below, limit, client.map(ClientId::as_str)), session_row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Sessions under a root, newest first.
pub(super) fn family(
    connection: &Connection,
    root: &SessionId,
    after: Option<&SessionId>,
    limit: usize,
) -> Read<Vec<SessionRow>> {
    let below = match after {
        Some(id) => number_of(connection, id)?.ok_or_else(|| StoreError::NoSession(id.clone()))?,
        None => i64::MAX,
    };
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut list = connection.prepare_cached(&format!(
        "SELECT {SESSION_COLUMNS} FROM session WHERE root = ?3 AND number < ?1 ORDER BY number DESC LIMIT ?2"
    ))?;
    let rows = list.query_map((below, limit, root.as_str()), session_row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Sessions that have not done with those under them, oldest first.
pub(super) fn with_children(connection: &Connection) -> Read<Vec<SessionRow>> {
    let sql = format!("SELECT {SESSION_COLUMNS} FROM session WHERE children IS NOT NULL ORDER BY number");
    let mut list = connection.prepare(&sql)?;
    let rows = list.query_map([], session_row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Oldest first: ids are ordered by their time.
pub(super) fn grants(connection: &Connection) -> Read<Vec<GrantRow>> {
    let mut list = connection.prepare("SELECT body FROM saved_grant ORDER BY id")?;
    let rows = list.query_map([], |row| json(row, 0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// No client has an empty name: that row is of all that say none.
pub(super) fn spending(connection: &Connection, client: Option<&ClientId>) -> Read<Option<ClientSpending>> {
    let mut find = connection.prepare_cached("SELECT began, body FROM client_spending WHERE client = ?")?;
    let name = client.map_or("", ClientId::as_str);
    let found = find.query_row([name], |row| {
        Ok(ClientSpending { client: client.cloned(), began: row.get(0)?, spent: json(row, 1)? })
    });
    Ok(found.optional()?)
}

pub(super) fn session_count(connection: &Connection) -> Read<u64> {
    Ok(connection.query_row("SELECT count(*) FROM session", [], |row| row.get(0))?)
}

pub(super) fn events(moment: &Moment<'_>, session: &SessionId, after: u64, limit: usize) -> Read<Vec<Event>> {
    let Some(number) = number_of(moment, session)? else { return Ok(Vec::new()) };
    let (mut out, mut bytes) = (Vec::new(), 0);
    for segment in fork::segments_behind(moment, number, after)? {
        let full = rows(moment, (session, segment), (after, limit), (&mut out, &mut bytes))?;
        if full {
            break;
        }
    }
    out.truncate(limit);
    Ok(out)
}

/// Adds the events of one stretch of a log. True: they are as many as are wanted at once.
fn rows(
    moment: &Moment<'_>,
    (session, Segment { number, upto }): (&SessionId, Segment),
    (after, limit): (u64, usize),
    (out, bytes): (&mut Vec<Event>, &mut usize),
) -> Read<bool> {
    let last = key_of(number, upto);
    // Of what a fork shares nothing is in `fresh`.
    let is_own = upto >= u64::from(u32::MAX);
    // The row in which the first wanted event lies, or the next row when there is none before it.
    let from = "SELECT coalesce(
            (SELECT max(key) FROM log WHERE key BETWEEN ?1 AND ?2), ?2)";
    let mut find = moment.prepare_cached(from)?;
    let from: i64 = find.query_row((key_of(number, 0), key_of(number, after.saturating_add(1))), |row| row.get(0))?;
    if take_rows(moment, (chained::LOG_ROWS, session), (&[&(from - 1), &last], (after, limit)), (out, bytes))? {
        return Ok(true);
    }
    if !is_own {
        return Ok(false);
    }
    let from = key_of(number, last_logged(moment, number)?);
    let Some(places) = moment.places(number) else {
        return take_rows(moment, (fresh::ROWS, session), (&[&from, &last], (after, limit)), (out, bytes));
    };
    for place in places {
        if take_rows(moment, (fresh::ROW_AT, session), (&[&from, &last, &place], (after, limit)), (out, bytes))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Adds the events of the rows that a query like [`chained::LOG_ROWS`] finds. True as for [`rows`].
fn take_rows(
    connection: &Connection,
    (sql, session): (&str, &SessionId),
    (keys, (after, limit)): (&[&dyn rusqlite::ToSql], (u64, usize)),
    (out, bytes): (&mut Vec<Event>, &mut usize),
) -> Read<bool> {
    let mut read = connection.prepare_cached(sql)?;
    let mut rows = read.query(keys)?;
    while let Some(row) = rows.next()? {
        let (_, first_seq) = split_key(row.get(0)?);
        let body = row.get_ref(2)?.as_bytes().map_err(rusqlite::Error::from)?;
        let turn = row.get_ref(3)?.as_str_or_null().map_err(rusqlite::Error::from)?;
        let turn = turn.map(str::parse).transpose().map_err(|e| unreadable(3, e))?;
        let at: u64 = row.get(1)?;
        let found = out.len();
        let stored = record::Row { session, turn, first_seq, at, body };
        let row = stored.parted(row.get(4)?).map(|(row, _)| row);
        row.and_then(|row| row.decode(after, out)).map_err(|bad| StoreError::Damaged {
            session: session.clone(),
            seq: bad.seq,
            cause: bad.cause,
        })?;
        // A row that ends before what is wanted is no part of the answer, however large it is.
        if out.len() > found {
            *bytes += body.len();
        }
        if out.len() >= limit || *bytes >= EVENTS_BYTES_MAX {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(super) fn last_seq(moment: &Moment<'_>, session: &SessionId) -> Read<u64> {
    match number_of(moment, session)? {
        Some(number) => Ok(fresh::last_seq(moment, number, last_logged(moment, number)?)?),
        None => Ok(0),
    }
}

/// Number of the last event that the log itself has: what follows is in `fresh`.
pub(super) fn last_logged(connection: &Connection, number: i64) -> rusqlite::Result<u64> {
    let mut find =
        connection.prepare_cached("SELECT key, count FROM log WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT 1")?;
    let last = find.query_row((key_of(number, 0), key_of(number, u32::MAX.into())), |row| {
        Ok(split_key(row.get(0)?).1 + row.get::<_, u64>(1)? - 1)
    });
    match last.optional()? {
        Some(last) => Ok(last),
        None => Ok(fork::parent_of(connection, number)?.map_or(0, |parent| parent.upto)),
    }
}

pub(super) fn asked(connection: &Connection, session: &SessionId, which: &Which) -> Read<bool> {
    let Some(number) = number_of(connection, session)? else { return Ok(false) };
    let mut find = connection.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM question WHERE key BETWEEN ?1 AND ?2
         AND (?3 IS NULL OR id = ?3) AND (?4 IS NULL OR call = ?4))",
    )?;
    let id = which.request_id.as_ref().map(crate::protocol::RequestId::as_str);
    for Segment { number, upto } in fork::segments(connection, number)? {
        let (first, last) = (key_of(number, 0), key_of(number, upto));
        if find.query_row((first, last, id, which.call_id.as_deref()), |row| row.get(0))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Key of a turn. None: it was never saved and has no events.
pub(super) fn turn_key(connection: &Connection, number: i64, turn: &TurnId) -> rusqlite::Result<Option<i64>> {
    let mut find = connection
        .prepare_cached("SELECT key FROM turn WHERE key BETWEEN ? AND ? AND id = ? ORDER BY key DESC LIMIT 1")?;
    find.query_row((key_of(number, 0), key_of(number, u32::MAX.into()), turn.as_str()), |row| row.get(0)).optional()
}

/// The largest of the ids of a session's turns; empty when it has none.
pub(super) fn largest_turn(connection: &Connection, number: i64) -> rusqlite::Result<String> {
    let mut find = connection.prepare_cached("SELECT coalesce(max(id), '') FROM turn WHERE key BETWEEN ? AND ?")?;
    find.query_row((key_of(number, 0), key_of(number, u32::MAX.into())), |row| row.get(0))
}

/// Key of the turn that came last in a session. None: it has none.
pub(super) fn last_turn(connection: &Connection, number: i64) -> rusqlite::Result<Option<i64>> {
    let mut find = connection.prepare_cached("SELECT max(key) FROM turn WHERE key BETWEEN ? AND ?")?;
    find.query_row((key_of(number, 0), key_of(number, u32::MAX.into())), |row| row.get(0))
}

pub(super) fn turn(connection: &Connection, session: &SessionId, turn: &TurnId) -> Read<Option<TurnRow>> {
    let Some(number) = number_of(connection, session)? else { return Ok(None) };
    let mut find = connection.prepare_cached("SELECT body FROM turn WHERE key = ? AND body IS NOT NULL")?;
    // A turn in the middle of which a session was forked has a row in each.
    for segment in fork::segments(connection, number)?.into_iter().rev() {
        let Some(key) = turn_key(connection, segment.number, turn)? else { continue };
        let body: Option<TurnBody> = find.query_row([key], |row| json(row, 0)).optional()?;
        if let Some(body) = body.filter(|body| segment.number == number || body.is_shared(segment.upto)) {
            return Ok(Some(body.into_row(session.clone(), turn.clone())));
        }
    }
    Ok(None)
}

/// Newest first: keys follow the order in which turns came to be.
pub(super) fn turns(
    connection: &Connection,
    session: &SessionId,
    after: Option<&TurnId>,
    limit: usize,
) -> Read<Vec<TurnRow>> {
    let Some(number) = number_of(connection, session)? else { return Ok(Vec::new()) };
    let mut segments = fork::segments(connection, number)?;
    segments.reverse();
    let (first, mut below) = match after {
        Some(after) => place_of(connection, &segments, after)?.ok_or_else(|| StoreError::NoTurn(after.clone()))?,
        None => (0, i64::MAX),
    };
    let mut list = connection.prepare_cached(
        "SELECT id, body FROM turn WHERE key >= ? AND key < ? AND body IS NOT NULL ORDER BY key DESC",
    )?;
    let mut turns = Vec::new();
    for (at, segment) in segments.iter().enumerate().skip(first) {
        let mut rows = list.query((key_of(segment.number, 0), below.min(key_of(segment.number + 1, 0))))?;
        below = i64::MAX;
        while turns.len() < limit
            && let Some(row) = rows.next()?
        {
            let (turn, body): (TurnId, TurnBody) = (id(row, 0)?, json(row, 1)?);
            // One in the middle of which a session was forked has a row in each: the newest counts.
            let counts = at == 0 || body.is_shared(segment.upto);
            if counts && place_of(connection, &segments[..at], &turn)?.is_none() {
                turns.push(body.into_row(session.clone(), turn));
            }
        }
    }
    Ok(turns)
}

/// In which of the stretches a turn has a row, and its key.
fn place_of(connection: &Connection, segments: &[Segment], turn: &TurnId) -> rusqlite::Result<Option<(usize, i64)>> {
    for (at, segment) in segments.iter().enumerate() {
        if let Some(key) = turn_key(connection, segment.number, turn)? {
            return Ok(Some((at, key)));
        }
    }
    Ok(None)
}

/// All turns of a session, oldest first; of one that cannot be read its id, as far as it can be told, and why.
pub(super) fn turns_of(
    connection: &Connection,
    (session, number): (&SessionId, i64),
) -> rusqlite::Result<Vec<Result<TurnRow, (String, String)>>> {
    let mut list = connection
        .prepare_cached("SELECT id, body FROM turn WHERE key BETWEEN ? AND ? AND body IS NOT NULL ORDER BY key")?;
    let mut turns = Vec::new();
    for segment in fork::segments(connection, number)? {
        let mut rows = list.query((key_of(segment.number, 0), key_of(segment.number, u32::MAX.into())))?;
        while let Some(row) = rows.next()? {
            let read = || Ok((json::<TurnBody>(row, 1)?, id(row, 0)?));
            let name = row.get::<_, String>(0).unwrap_or_else(|_| "?".to_owned());
            match read().map_err(|cause: rusqlite::Error| (name, cause.to_string())) {
                Ok((body, turn)) if segment.number == number || body.is_shared(segment.upto) => {
                    turns.push(Ok(body.into_row(session.clone(), turn)));
                }
                Ok(_) => {}
                Err(unread) => turns.push(Err(unread)),
            }
        }
    }
    // A turn in the middle of which a session was forked has a row in each: the last one counts.
    let mut seen = HashSet::new();
    turns.reverse();
    turns.retain(|turn| turn.as_ref().map_or(true, |row| seen.insert(row.record.turn_id.clone())));
    turns.reverse();
    Ok(turns)
}

pub(super) fn open_turns(connection: &Connection) -> Read<Vec<TurnRow>> {
    let mut list = connection.prepare_cached(
        "SELECT session.id, turn.id, turn.body FROM turn JOIN session ON session.number = turn.key >> 32
         WHERE turn.open ORDER BY turn.key",
    )?;
    let rows = list.query_map([], |row| Ok(json::<TurnBody>(row, 2)?.into_row(id(row, 0)?, id(row, 1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}
