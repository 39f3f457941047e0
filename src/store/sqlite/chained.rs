//! The hash chain in the tables: a tag for each event beside its row, and the head in the session's own row.
//!
//! The head is written whenever the session's row is (at the beginning and the end of a turn), and behind every
//! [`ANCHOR_EVENTS`] events in between; so it costs no page of its own. Where a log goes on behind its head, the chain
//! is followed from there. A row that cannot be read is gone past by its bytes.

use rusqlite::{Connection, OptionalExtension as _};

use super::write::{key_of, split_key};
use crate::protocol::{Event, SessionId};
use crate::store::Question;
use crate::store::chain::Chain;
use crate::store::record::{BadLine, Row};

/// Events behind the head after which it is written anew.
pub(super) const ANCHOR_EVENTS: u64 = 1_000;

/// Rows of the log whose key is larger than ?1 and at most ?2, with the ids of their turns.
pub(super) const LOG_ROWS: &str = "
    SELECT log.key, log.at, log.body, turn.id, log.count, log.turn FROM log
    LEFT JOIN turn ON turn.key = ((log.key >> 32) << 32) + log.turn
    WHERE log.key > ?1 AND log.key <= ?2 ORDER BY log.key";

/// A row of the log as it lies there: its body still has the tags behind it.
pub(super) struct Stored<'a> {
    pub(super) key: i64,
    /// How many events it says it has.
    pub(super) count: u64,
    /// The place of its turn, as the row says.
    pub(super) place: Option<i64>,
    pub(super) row: Row<'a>,
}

impl<'a> Stored<'a> {
    /// Its events, and their tags.
    pub(super) fn events(&self) -> Result<(Vec<Event>, &'a [u8]), BadLine> {
        let (row, tags) = self.row.parted(self.count)?;
        Ok((decoded(&row, self.count)?, tags))
    }

    /// Number of the last event that it says it has.
    pub(super) fn last_seq(&self) -> u64 {
        self.row.first_seq + self.count.saturating_sub(1)
    }
}

/// A row's events, of which there must be so many.
fn decoded(row: &Row<'_>, count: u64) -> Result<Vec<Event>, BadLine> {
    let mut events = Vec::new();
    row.decode(0, &mut events)?;
    if events.len() as u64 == count {
        return Ok(events);
    }
    let seq = row.first_seq + (events.len() as u64).min(count);
    Err(BadLine { seq, cause: format!("{} events in a row for {count}", events.len()) })
}

/// Goes through the rows of a session that begin behind event `after`, oldest first.
pub(super) fn each_row(
    connection: &Connection,
    session: (&SessionId, i64),
    after: u64,
    take: impl FnMut(&Stored<'_>) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    each_row_from(connection, session, (key_of(session.1, after), key_of(session.1, u32::MAX.into())), take)
}

/// The same, of the rows whose key is larger than `after` and at most `last`.
pub(super) fn each_row_from<E: From<rusqlite::Error>>(
    connection: &Connection,
    (session, _): (&SessionId, i64),
    (after, last): (i64, i64),
    take: impl FnMut(&Stored<'_>) -> Result<(), E>,
) -> Result<(), E> {
    each_row_of(connection, (LOG_ROWS, session), (after, last), take)
}

/// The same, of what a query like [`LOG_ROWS`] finds.
pub(super) fn each_row_of<E: From<rusqlite::Error>>(
    connection: &Connection,
    (sql, session): (&str, &SessionId),
    (after, last): (i64, i64),
    mut take: impl FnMut(&Stored<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut read = connection.prepare_cached(sql)?;
    let mut rows = read.query((after, last))?;
    while let Some(row) = rows.next()? {
        let key: i64 = row.get(0)?;
        let turn = row.get_ref(3)?.as_str_or_null().map_err(rusqlite::Error::from)?;
        take(&Stored {
            key,
            count: row.get(4)?,
            place: row.get(5)?,
            row: Row {
                session,
                // An id that is none makes other values than were written, and so shows.
                turn: turn.and_then(|id| id.parse().ok()),
                first_seq: split_key(key).1,
                at: row.get(1)?,
                body: row.get_ref(2)?.as_bytes().map_err(rusqlite::Error::from)?,
            },
        })?;
    }
    Ok(())
}

/// The head that stands in a session's row. None: there is none yet.
pub(super) fn head_of(connection: &Connection, number: i64) -> rusqlite::Result<Option<Chain>> {
    let mut find = connection.prepare_cached("SELECT head_seq, head FROM session WHERE number = ?")?;
    let head = find.query_row([number], |row| {
        let (Some(seq), Some(value)) = (row.get(0)?, row.get::<_, Option<Vec<u8>>>(1)?) else { return Ok(None) };
        Ok(Chain::resumed(seq, &value))
    });
    Ok(head.optional()?.flatten())
}

/// The chain of a session to the end of its log, and the event to which its row has it. Nothing of it is in `fresh`.
pub(super) fn resume(connection: &Connection, session: (&SessionId, i64)) -> rusqlite::Result<(Chain, u64)> {
    let mut chain = head_of(connection, session.1)?.unwrap_or_default();
    let anchored = chain.seq();
    each_row(connection, session, anchored, |stored| {
        match stored.events() {
            Ok((events, _)) => events.iter().for_each(|event| chain.push(event)),
            Err(_) => chain.skip(stored.last_seq(), stored.row.body),
        }
        Ok(())
    })?;
    Ok((chain, anchored))
}

/// Writes the head into the session's row.
pub(super) fn anchor(connection: &Connection, number: i64, chain: &Chain) -> rusqlite::Result<()> {
    let mut update = connection.prepare_cached("UPDATE session SET head_seq = ?2, head = ?3 WHERE number = ?1")?;
    update.execute((number, chain.seq(), chain.value())).map(drop)
}

/// Gives a chain to the logs of a database that was made without, and lists the questions that were put before there
/// was a list of them.
pub(super) fn chain_all(connection: &Connection) -> rusqlite::Result<()> {
    connection
        .execute_batch("ALTER TABLE session ADD COLUMN head_seq INTEGER; ALTER TABLE session ADD COLUMN head BLOB;")?;
    let mut list = connection.prepare("SELECT number, id FROM session")?;
    let sessions = list.query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)))?;
    for (number, id) in sessions.collect::<Result<Vec<_>, _>>()? {
        // One whose id cannot be read can be neither found nor written.
        let Ok(id) = id.parse::<SessionId>() else { continue };
        let (mut chain, mut tagged, mut questions) = (Chain::default(), Vec::new(), Vec::new());
        each_row(connection, (&id, number), 0, |stored| {
            let events = decoded(&stored.row, stored.count);
            let asked = events.iter().flatten().filter_map(|event| Some((event.seq, Question::of(event)?)));
            questions.extend(asked);
            tagged.push((stored.key, tags_of(stored, &events.unwrap_or_default(), &mut chain)));
            Ok(())
        })?;
        let mut list =
            connection.prepare_cached("INSERT OR IGNORE INTO question (key, id, call) VALUES (?1, ?2, ?3)")?;
        for (seq, question) in questions {
            list.execute((key_of(number, seq), question.request_id.as_str(), question.call_id))?;
        }
        // `||` would make a text of it.
        let mut find = connection.prepare_cached("SELECT body FROM log WHERE key = ?")?;
        let mut update = connection.prepare_cached("UPDATE log SET body = ?2 WHERE key = ?1")?;
        for (key, tags) in tagged {
            let mut body: Vec<u8> = find.query_row([key], |row| row.get(0))?;
            body.extend(tags);
            update.execute((key, body))?;
        }
        if chain.seq() > 0 {
            anchor(connection, number, &chain)?;
        }
    }
    Ok(())
}

/// The tags of a row that was made without. One that cannot be read has no events: it is gone past, and stays unreadable.
fn tags_of(stored: &Stored<'_>, events: &[Event], chain: &mut Chain) -> Vec<u8> {
    if events.is_empty() {
        chain.skip(stored.last_seq(), stored.row.body);
        return chain.tag().repeat(usize::try_from(stored.count).unwrap_or_default());
    }
    let tag = |event| {
        chain.push(event);
        chain.tag()
    };
    events.iter().flat_map(tag).collect()
}
