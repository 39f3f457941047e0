//! Takes away what deleted sessions leave behind, a little at a time.
//!
//! Deleting a session takes out its row, and with it everything by which it could be found; its number goes
//! into the table `doomed`. The rows under that number are taken out later, in slices between other commits,
//! so that nobody waits for a long log to go. What the end of the process finds is swept by the next one.
//!
//! What a fork still reads stays: its parent's rows go when the last fork is gone.
//!
//! Behind that, ends of sessions go that are no longer told of (see `lifecycle`).
//!
//! Invariant: a number in `doomed` is never given to a new session; it leaves the table with its last row.

use rusqlite::Connection;

use super::lifecycle;
use super::write::key_of;
use crate::store::lifecycle::Bounds;

/// Rows of one slice, at most. A slice is what a commit may have to wait for.
const SLICE_ROWS: usize = 256;
/// Bytes of one slice, about.
const SLICE_BYTES: usize = 256 << 10;

/// The first number whose rows are to go, and are read by no fork.
const NEXT: &str = "SELECT min(number) FROM doomed WHERE dead
    AND number NOT IN (SELECT parent FROM doomed WHERE parent IS NOT NULL)";

/// What a slice may still take out.
struct Room {
    rows: usize,
    bytes: usize,
}

/// The first number that no session has or had whose rows are still there.
pub(super) fn next_number(connection: &Connection) -> rusqlite::Result<i64> {
    let sql =
        "SELECT max(coalesce((SELECT max(number) FROM session), 0), coalesce((SELECT max(number) FROM doomed), 0))";
    connection.query_row(sql, [], |row| Ok(row.get::<_, i64>(0)? + 1))
}

/// Notes that the rows of a session are to go. Part of the commit that takes out the session.
pub(super) fn doom(connection: &Connection, number: i64) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT INTO doomed (number) VALUES (?) ON CONFLICT DO UPDATE SET dead = 1")?
        .execute([number])
        .map(drop)
}

/// Takes out one slice, in a transaction of its own. False: there is nothing more.
pub(super) fn slice(connection: &Connection) -> rusqlite::Result<bool> {
    let mut room = Room { rows: SLICE_ROWS, bytes: SLICE_BYTES };
    let transaction = connection.unchecked_transaction()?;
    let mut find = transaction.prepare_cached(NEXT)?;
    let mut more = true;
    while more && room.rows > 0 && room.bytes > 0 {
        match find.query_row([], |row| row.get::<_, Option<i64>>(0))? {
            Some(number) => clear(&transaction, number, &mut room)?,
            None => more = false,
        }
    }
    drop(find);
    if !more && room.rows > 0 {
        more = lifecycle::forget(&transaction, Bounds::now(), room.rows)? == room.rows;
    }
    transaction.commit()?;
    Ok(more)
}

/// Takes out rows of one session as far as there is room; with the last one its number.
fn clear(connection: &Connection, number: i64, room: &mut Room) -> rusqlite::Result<()> {
    let tables = [
        (
            "SELECT key, length(body) FROM log WHERE key BETWEEN ? AND ? ORDER BY key LIMIT ?",
            "DELETE FROM log WHERE key BETWEEN ? AND ?",
        ),
        (
            "SELECT key, length(body) FROM turn WHERE key BETWEEN ? AND ? ORDER BY key LIMIT ?",
            "DELETE FROM turn WHERE key BETWEEN ? AND ?",
        ),
        (
            "SELECT key, length(body) FROM said WHERE key BETWEEN ? AND ? ORDER BY key LIMIT ?",
            "DELETE FROM said WHERE key BETWEEN ? AND ?",
        ),
        (
            "SELECT key, 0 FROM question WHERE key BETWEEN ? AND ? ORDER BY key LIMIT ?",
            "DELETE FROM question WHERE key BETWEEN ? AND ?",
        ),
        (
            "SELECT key, 0 FROM lifecycle WHERE key BETWEEN ? AND ? ORDER BY key LIMIT ?",
            "DELETE FROM lifecycle WHERE key BETWEEN ? AND ?",
        ),
    ];
    let first = key_of(number, 0);
    for (look, delete) in tables {
        if let Some(last) = last_in_room(connection, look, number, room)? {
            connection.prepare_cached(delete)?.execute((first, last))?;
        }
        if room.rows == 0 || room.bytes == 0 {
            return Ok(());
        }
    }
    // What it shares with others is now theirs alone, and may go as well.
    connection.prepare_cached("DELETE FROM doomed WHERE number = ?")?.execute([number]).map(drop)
}

/// The key of the last row that there is room for; the room is taken. None: no row is left.
fn last_in_room(connection: &Connection, look: &str, number: i64, room: &mut Room) -> rusqlite::Result<Option<i64>> {
    let mut look = connection.prepare_cached(look)?;
    let mut rows = look.query((key_of(number, 0), key_of(number, u32::MAX.into()), room.rows))?;
    let mut last = None;
    while room.bytes > 0
        && let Some(row) = rows.next()?
    {
        last = Some(row.get(0)?);
        room.rows -= 1;
        room.bytes = room.bytes.saturating_sub(row.get::<_, Option<usize>>(1)?.unwrap_or(0));
    }
    Ok(last)
}

/// Whether something is to be taken out.
pub(super) fn is_due(connection: &Connection) -> rusqlite::Result<bool> {
    let doomed = connection.query_row(NEXT, [], |row| row.get::<_, Option<i64>>(0))?;
    Ok(doomed.is_some() || lifecycle::has_old(connection, Bounds::now())?)
}
