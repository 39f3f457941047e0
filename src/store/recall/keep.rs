//! What is forgotten by itself, and when: what is of no use for long, and, when a project is full, what is of least use.
//!
//! A text is as fresh as its last use, or as its being noted; each use makes it a week fresher, a year at most. What is
//! pinned is never forgotten by itself, and nothing is that has just been noted.

use std::time::Duration;

use rusqlite::Transaction;

use super::{RecallError, range_of, take_out};
use crate::base::{clock, limit};

/// How much fresher a use makes a text, in milliseconds.
const USE_MS: i64 = 7 * 24 * 3600 * 1000;
/// Uses that count.
const USES_MAX: i64 = 52;
/// How often texts are looked through for old ones.
const SWEEP_MS: u64 = 3600 * 1000;
/// A text counts as used once in that time.
const USED_AGAIN_MS: u64 = 3600 * 1000;
/// Of a full project this part goes at once, so that it is not looked through for each text that comes.
const ROOM: usize = 100;

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// Texts of a project.
    pub entries_max: usize,
    /// What nobody has used or noted for so long is forgotten. None: nothing is for its age alone.
    pub unused_max: Option<Duration>,
}

impl Default for Keep {
    fn default() -> Self {
        Self { entries_max: limit::MEMORY_ENTRIES_MAX, unused_max: None }
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Forgets what is too old or too much in a project of `entries` texts; `first_new`: texts from this place on stay. How
/// many went. An error: nothing more may go, and it is too much all the same.
pub(super) fn make_room(
    transaction: &Transaction<'_>,
    (project, entries, first_new): (i64, usize, i64),
    keep: Keep,
) -> rusqlite::Result<Result<usize, RecallError>> {
    let mut gone = 0;
    if let Some(unused_max) = keep.unused_max {
        gone += sweep(transaction, (project, first_new), ms(unused_max))?;
    }
    let surplus = (entries - gone).saturating_sub(keep.entries_max);
    if surplus == 0 {
        return Ok(Ok(gone));
    }
    let sql = "SELECT key FROM entry WHERE key >= ?1 AND key < ?2 AND NOT pinned
        ORDER BY max(created_at, used_at) + min(uses, ?3) * ?4, key LIMIT ?5";
    let much = surplus.max(keep.entries_max / ROOM);
    let first = range_of(project).0;
    let mut find = transaction.prepare_cached(sql)?;
    let found = find.query_map((first, first_new, USES_MAX, USE_MS, much), |row| row.get(0))?;
    let keys: Vec<i64> = found.collect::<Result<_, _>>()?;
    if keys.len() < surplus {
        return Ok(Err(RecallError::Full { entries_max: keep.entries_max }));
    }
    take_out(transaction, project, &keys)?;
    Ok(Ok(gone + keys.len()))
}

/// Forgets what nobody has used or noted for long, now and then.
fn sweep(transaction: &Transaction<'_>, (project, first_new): (i64, i64), unused_max: u64) -> rusqlite::Result<usize> {
    let now = clock::now_ms();
    let sql = "UPDATE project SET swept_at = ?2 WHERE number = ?1 AND swept_at NOT BETWEEN ?3 AND ?2";
    let due = transaction.prepare_cached(sql)?.execute((project, now, now.saturating_sub(SWEEP_MS.min(unused_max))))?;
    if due == 0 {
        return Ok(0);
    }
    let sql = "SELECT key FROM entry WHERE key >= ? AND key < ? AND NOT pinned AND max(created_at, used_at) < ?";
    let mut find = transaction.prepare_cached(sql)?;
    let old = now.saturating_sub(unused_max);
    let found = find.query_map((range_of(project).0, first_new, old), |row| row.get(0))?;
    let keys: Vec<i64> = found.collect::<Result<_, _>>()?;
    take_out(transaction, project, &keys)?;
    Ok(keys.len())
}

/// Notes that texts were answers.
pub(super) fn used(transaction: &Transaction<'_>, keys: &[i64]) -> rusqlite::Result<()> {
    let now = clock::now_ms();
    let sql = "UPDATE entry SET uses = uses + 1, used_at = ?2 WHERE key = ?1 AND used_at NOT BETWEEN ?3 AND ?2";
    let mut note = transaction.prepare_cached(sql)?;
    keys.iter().try_for_each(|key| note.execute((key, now, now.saturating_sub(USED_AGAIN_MS))).map(drop))
}
