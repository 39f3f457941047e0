//! The table of outcomes: one row a name, in the order in which they came, so that the oldest are found without an index.

use rusqlite::{Connection, OptionalExtension as _};

use crate::base::limit;
use crate::store::OutcomeRow;

/// Rows that may go with each that comes.
const SWEPT: usize = 4;

/// Writes a row, unless the name has an outcome already; takes out a few of the oldest rows that have expired, or
/// that are more than are kept.
pub(super) fn save(connection: &Connection, row: &OutcomeRow) -> rusqlite::Result<()> {
    let mut put = connection.prepare_cached(
        "INSERT INTO outcome (name, at, fingerprint, body) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (name) DO UPDATE SET at = ?2, fingerprint = ?3, body = ?4
         WHERE outcome.at < ?5 OR (outcome.body IS NULL AND ?4 IS NOT NULL)",
    )?;
    put.execute((&row.name, row.at, row.fingerprint, &row.body, row.expired_before))?;
    let mut sweep = connection.prepare_cached(
        "DELETE FROM outcome WHERE number IN (
            SELECT number FROM (SELECT number, at FROM outcome ORDER BY number LIMIT ?1)
            WHERE at < ?2 OR number + ?3 <= (SELECT max(number) FROM outcome))",
    )?;
    sweep.execute((SWEPT, row.expired_before, limit::OUTCOMES_MAX)).map(drop)
}

/// Takes out the row of a name, unless it has an outcome.
pub(super) fn forget(connection: &Connection, name: &str) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM outcome WHERE name = ? AND body IS NULL")?.execute([name]).map(drop)
}

/// How many rows there are, about: numbers are given in order, and the oldest go first.
pub(super) fn count(connection: &Connection) -> rusqlite::Result<u64> {
    let mut find = connection.prepare_cached(
        "SELECT coalesce((SELECT max(number) FROM outcome) - (SELECT min(number) FROM outcome) + 1, 0)",
    )?;
    find.query_row([], |row| row.get(0))
}

/// The row of a name.
pub(super) fn find(connection: &Connection, name: &str) -> rusqlite::Result<Option<OutcomeRow>> {
    let mut find = connection.prepare_cached("SELECT at, fingerprint, body FROM outcome WHERE name = ?")?;
    let row = find.query_row([name], |row| {
        Ok(OutcomeRow {
            name: name.to_owned(),
            at: row.get(0)?,
            fingerprint: row.get(1)?,
            expired_before: 0,
            body: row.get(2)?,
        })
    });
    row.optional()
}
