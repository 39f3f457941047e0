//! The table of outcomes: one row a name, in the order in which they came, so that the oldest are found without an index.

use rusqlite::{Connection, OptionalExtension as _};

use crate::store::{OutcomeRow, OutcomesKept};

/// Rows that may go with each that comes.
const SWEPT: usize = 4;

/// Writes a row, unless the name has an outcome already; takes out a few of the oldest rows that have expired.
pub(super) fn save(connection: &Connection, row: &OutcomeRow) -> rusqlite::Result<()> {
    // A row that takes the place of one that has expired is the newest.
    let mut put = connection.prepare_cached(
        "INSERT INTO outcome (name, at, fingerprint, body) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (name) DO UPDATE SET at = ?2, fingerprint = ?3, body = ?4,
             number = CASE WHEN outcome.at < ?5 THEN (SELECT max(number) + 1 FROM outcome) ELSE outcome.number END
         WHERE outcome.at < ?5 OR (outcome.body IS NULL AND ?4 IS NOT NULL)",
    )?;
    put.execute((&row.name, row.at, row.fingerprint, &row.body, row.expired_before))?;
    let mut sweep = connection.prepare_cached(
        "DELETE FROM outcome WHERE number IN (
            SELECT number FROM (SELECT number, at FROM outcome ORDER BY number LIMIT ?1) WHERE at < ?2 OR at > ?3)",
    )?;
    let most = i64::try_from(row.wrong_behind).unwrap_or(i64::MAX);
    sweep.execute((SWEPT, row.expired_before, most)).map(drop)
}

/// Takes out the row of a name, unless it has an outcome.
pub(super) fn forget(connection: &Connection, name: &str) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM outcome WHERE name = ? AND body IS NULL")?.execute([name]).map(drop)
}

/// How many rows there are, about: numbers are given in order, and the oldest go first.
pub(super) fn count(connection: &Connection) -> rusqlite::Result<OutcomesKept> {
    let mut find = connection.prepare_cached(
        "SELECT (SELECT max(number) FROM outcome) - number + 1, at FROM outcome ORDER BY number LIMIT 1",
    )?;
    let kept = find.query_row([], |row| Ok(OutcomesKept { count: row.get(0)?, oldest_at: row.get(1)? }));
    Ok(kept.optional()?.unwrap_or_default())
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
            wrong_behind: u64::MAX,
            body: row.get(2)?,
        })
    });
    row.optional()
}
