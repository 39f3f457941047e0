//! The single things that are done to what is kept, each within somebody's transaction.

use std::os::unix::ffi::OsStrExt as _;

use rusqlite::{OptionalExtension as _, Transaction};

use super::{ContentId, FileState, PathChange, path_change, words};
use crate::base::clock;
use crate::base::deflate::deflated;
use crate::protocol::{SessionId, TurnId};

/// Contents up to this size are packed: larger ones would keep a tool waiting.
const PACKED_BYTES_MAX: usize = 1 << 20;
/// Contents from this size on are worth packing.
const PACKED_BYTES_MIN: usize = 256;
/// A turn's number; it gets one when it has none.
pub(super) fn turn_number(transaction: &Transaction<'_>, session: &SessionId, turn: &TurnId) -> rusqlite::Result<i64> {
    let mut find = transaction.prepare_cached("SELECT number FROM turn WHERE session = ? AND id = ?")?;
    if let Some(number) = find.query_row([session.as_str(), turn.as_str()], |row| row.get(0)).optional()? {
        return Ok(number);
    }
    let mut insert = transaction.prepare_cached("INSERT INTO turn (session, id, at) VALUES (?, ?, ?)")?;
    insert.insert((session.as_str(), turn.as_str(), clock::now_ms()))
}

/// Keeps a content that is not kept yet. The bytes that it takes.
pub(super) fn keep(transaction: &Transaction<'_>, id: &ContentId, body: &[u8]) -> rusqlite::Result<u64> {
    let mut find = transaction.prepare_cached("SELECT 1 FROM content WHERE id = ?")?;
    if find.query_row([id.as_bytes()], |_| Ok(())).optional()?.is_some() {
        return Ok(0);
    }
    let worth = (PACKED_BYTES_MIN..=PACKED_BYTES_MAX).contains(&body.len());
    let packed = if worth { deflated(body) } else { None };
    let stored = packed.as_deref().unwrap_or(body);
    let sql = "INSERT INTO content (id, refs, bytes, stored, packed, body) VALUES (?1, 0, ?2, ?3, ?4, ?5)";
    let mut insert = transaction.prepare_cached(sql)?;
    insert.execute((id.as_bytes(), body.len() as u64, stored.len() as u64, packed.is_some(), stored))?;
    Ok(stored.len() as u64)
}

/// Counts that a state has a content, or has it no longer.
fn refer(transaction: &Transaction<'_>, state: &FileState, step: i64) -> rusqlite::Result<()> {
    let Some(id) = state.content() else { return Ok(()) };
    transaction.prepare_cached("UPDATE content SET refs = refs + ?2 WHERE id = ?1")?.execute((id.as_bytes(), step))?;
    Ok(())
}

/// Puts one change into the record of its turn.
pub(super) fn merge(transaction: &Transaction<'_>, turn: i64, change: &PathChange) -> rusqlite::Result<()> {
    let name = change.path.as_os_str().as_bytes();
    let mut find =
        transaction.prepare_cached("SELECT path, before, after, mixed FROM change WHERE turn = ? AND path = ?")?;
    let known = find.query_row((turn, name), path_change).optional()?;
    let merged = match known {
        None => change.clone(),
        Some(known) => {
            refer(transaction, &known.before, -1)?;
            refer(transaction, &known.after, -1)?;
            // Two of one tree may have looked at the same change, from moments of their own: one that begins or ends as the
            // other does hides nobody else's.
            let seen_twice = known.before == change.before || known.after == change.after;
            let open = known.after == FileState::Unfinished || change.before == FileState::Unfinished;
            let gap = known.after != change.before && !open && !seen_twice;
            let PathChange { path, after, .. } = change.clone();
            PathChange { path, before: known.before, after, mixed: known.mixed || gap }
        }
    };
    if merged.before == merged.after && !matches!(merged.before, FileState::Unkept { .. }) {
        transaction.prepare_cached("DELETE FROM change WHERE turn = ? AND path = ?")?.execute((turn, name))?;
        return Ok(());
    }
    refer(transaction, &merged.before, 1)?;
    refer(transaction, &merged.after, 1)?;
    let sql = "INSERT INTO change (turn, path, before, after, mixed) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (turn, path) DO UPDATE SET before = ?3, after = ?4, mixed = ?5";
    let mut insert = transaction.prepare_cached(sql)?;
    insert.execute((turn, name, words(&merged.before)?, words(&merged.after)?, merged.mixed))?;
    Ok(())
}

/// Takes out contents that nothing refers to. The bytes that they took.
pub(super) fn drop_unused(transaction: &Transaction<'_>) -> rusqlite::Result<u64> {
    let mut drop = transaction.prepare_cached("DELETE FROM content WHERE refs <= 0 RETURNING stored")?;
    let freed = drop.query_map([], |row| row.get::<_, u64>(0))?;
    freed.sum()
}

/// Takes out what a turn changed.
pub(super) fn drop_changes(transaction: &Transaction<'_>, turn: i64) -> rusqlite::Result<()> {
    let changes: Vec<PathChange> = transaction
        .prepare_cached("SELECT path, before, after, mixed FROM change WHERE turn = ?")?
        .query_map([turn], path_change)?
        .collect::<Result<_, _>>()?;
    for change in &changes {
        refer(transaction, &change.before, -1)?;
        refer(transaction, &change.after, -1)?;
    }
    transaction.prepare_cached("DELETE FROM change WHERE turn = ?")?.execute([turn])?;
    transaction.prepare_cached("DELETE FROM uncovered WHERE turn = ?")?.execute([turn])?;
    Ok(())
}

/// Takes out contents that were just added, the largest first, until what is `stored` is no more than it may be. The bytes that
/// they took.
pub(super) fn keep_less(
    transaction: &Transaction<'_>,
    (turn, changes): (i64, &[PathChange]),
    (stored, bytes_max): (u64, u64),
) -> rusqlite::Result<u64> {
    let mut candidates = Vec::new();
    for change in changes {
        let mut find =
            transaction.prepare_cached("SELECT path, before, after, mixed FROM change WHERE turn = ? AND path = ?")?;
        let found = find.query_row((turn, change.path.as_os_str().as_bytes()), path_change).optional()?;
        let Some(PathChange { path, before, after, .. }) = found else { continue };
        for (is_after, state) in [(true, after), (false, before)] {
            if let FileState::File { bytes, .. } = state {
                candidates.push((bytes, is_after, path.clone(), state));
            }
        }
    }
    // What came out is needed for a redo alone.
    candidates.sort_by_key(|(bytes, is_after, ..)| std::cmp::Reverse((*bytes, *is_after)));
    let mut freed = 0;
    for (bytes, is_after, path, state) in candidates {
        if stored.saturating_sub(freed) <= bytes_max {
            break;
        }
        let reason = format!("it has {bytes} bytes, and at most {bytes_max} are kept of all files together");
        refer(transaction, &state, -1)?;
        let column = if is_after { "after" } else { "before" };
        let sql = format!("UPDATE change SET {column} = ?3 WHERE turn = ?1 AND path = ?2");
        let unkept = words(&FileState::Unkept { reason })?;
        transaction.prepare_cached(&sql)?.execute((turn, path.as_os_str().as_bytes(), unkept))?;
        freed += drop_unused(transaction)?;
    }
    Ok(freed)
}

/// Drops the changes of the oldest turn that has any, but not those of `spared`. The bytes that it took; None: there is no
/// such turn.
pub(super) fn drop_oldest(transaction: &Transaction<'_>, spared: i64) -> rusqlite::Result<Option<u64>> {
    let mut find = transaction.prepare_cached("SELECT min(turn) FROM change WHERE turn <> ?")?;
    let Some(oldest) = find.query_row([spared], |row| row.get::<_, Option<i64>>(0))? else { return Ok(None) };
    drop_changes(transaction, oldest)?;
    transaction.prepare_cached("UPDATE turn SET dropped = 1 WHERE number = ?")?.execute([oldest])?;
    drop_unused(transaction).map(Some)
}
