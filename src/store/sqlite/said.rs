//! What waits and is large, in a table of its own: `said.key` is that of the number under which the turn's row has it.
//!
//! Invariant: what stands here is named by the row of a turn that is not over. Both change in one commit.

use std::collections::BTreeSet;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension as _};

use super::read::{self, ReadError};
use super::write::{key_of, split_key};
use crate::protocol::{SessionId, TurnId};
use crate::store::inspect::Fault;
use crate::store::turn::TurnBody;
use crate::store::{Said, StoreError, TurnRow, Waiting};

/// The table.
const TABLE: &str = "
    CREATE TABLE said (
        key INTEGER PRIMARY KEY,
        body TEXT NOT NULL
    );
";

/// Makes the table, and puts into it what is large in the rows of turns that are not over: under the first numbers of their
/// session, since each of them has had an event, and those to come get higher ones.
pub(super) fn part_all(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(TABLE)?;
    let mut open = connection.prepare("SELECT key FROM turn WHERE open AND body IS NOT NULL ORDER BY key")?;
    let open = open.query_map([], |row| row.get(0))?.collect::<Result<Vec<i64>, _>>()?;
    let mut read = connection.prepare("SELECT body FROM turn WHERE key = ?")?;
    let mut update = connection.prepare("UPDATE turn SET body = ?2 WHERE key = ?1")?;
    let (mut of, mut next) = (0, 1);
    for key in open {
        let (number, _) = split_key(key);
        if number != of {
            (of, next) = (number, 1);
        }
        let body = read.query_row([key], |row| Ok(serde_json::from_str::<TurnBody>(row.get_ref(0)?.as_str()?).ok()))?;
        // What cannot be read stays as it is; checks tell of it.
        let Some(body) = body else { continue };
        // Who it is stands beside the body.
        let mut turn = body.into_row(SessionId::generate(), TurnId::generate());
        let kept = turn.put_all_apart(&mut next);
        if kept.is_empty() {
            continue;
        }
        for (at, said) in kept {
            keep(connection, (number, at), words(&said)?)?;
        }
        update.execute((key, words(&TurnBody::of(&turn))?))?;
    }
    Ok(())
}

fn words<T: serde::Serialize>(value: &T) -> rusqlite::Result<String> {
    serde_json::to_string(value).map_err(|cause| rusqlite::Error::ToSqlConversionFailure(Box::new(cause)))
}

/// Keeps something under a number.
pub(super) fn keep(connection: &Connection, (number, at): (i64, u64), body: String) -> rusqlite::Result<()> {
    let mut insert = connection.prepare_cached("INSERT OR REPLACE INTO said (key, body) VALUES (?, ?)")?;
    insert.execute((key_of(number, at), body)).map(drop)
}

/// What is kept under a number goes. Nothing happens when there is nothing.
pub(super) fn forget(connection: &Connection, (number, at): (i64, u64)) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM said WHERE key = ?")?.execute([key_of(number, at)]).map(drop)
}

/// What is kept under a number of a session.
pub(super) fn find(connection: &Connection, session: &SessionId, at: u64) -> Result<Option<Arc<Said>>, ReadError> {
    let Some(number) = read::number_of(connection, session)? else { return Ok(None) };
    match at_number(connection, (number, at))? {
        None => Ok(None),
        Some(Ok(said)) => Ok(Some(Arc::new(said))),
        Some(Err(cause)) => Err(StoreError::Damaged { session: session.clone(), seq: at, cause }.into()),
    }
}

fn at_number(connection: &Connection, (number, at): (i64, u64)) -> rusqlite::Result<Option<Result<Said, String>>> {
    let mut find = connection.prepare_cached("SELECT body FROM said WHERE key = ?")?;
    let read = |row: &rusqlite::Row<'_>| Ok(serde_json::from_str(row.get_ref(0)?.as_str()?).map_err(|e| e.to_string()));
    find.query_row([key_of(number, at)], read).optional()
}

/// Puts what is kept apart back into the rows of a session's turns; what is not there, and what nobody has named, is told.
pub(super) fn put_back(
    connection: &Connection,
    (session, number): (&SessionId, i64),
    (turns, faults): (&mut [TurnRow], &mut Vec<Fault>),
) -> rusqlite::Result<()> {
    let mut list = connection.prepare_cached("SELECT key FROM said WHERE key BETWEEN ? AND ? ORDER BY key")?;
    let keys = list.query_map((key_of(number, 0), key_of(number, u32::MAX.into())), |row| row.get::<_, i64>(0))?;
    let mut there: BTreeSet<u64> = keys.map(|key| key.map(|key| split_key(key).1)).collect::<Result<_, _>>()?;
    for turn in turns {
        let id = turn.record.turn_id.to_string();
        let TurnRow { prompt, configure, steers, .. } = turn;
        for waiting in prompt.iter_mut().chain(&mut steers.waiting) {
            let Some(at) = waiting.place() else { continue };
            let found = if there.remove(&at) { at_number(connection, (number, at))? } else { None };
            match found.unwrap_or_else(|| Err("it is not there".to_owned())) {
                Ok(said) => {
                    *waiting = Waiting::Here(said.content);
                    *configure = said.configure.or(configure.take());
                }
                Err(cause) => {
                    let cause = format!("what was said to it, under number {at}: {cause}");
                    faults.push(Fault::Turn { session: session.clone(), turn: id.clone(), cause });
                }
            }
        }
    }
    for at in there {
        let cause = format!("what is kept under number {at} was said to no turn that waits for it");
        faults.push(Fault::Turn { session: session.clone(), turn: "?".to_owned(), cause });
    }
    Ok(())
}
