//! What turns did to files: for each path how it was before and after, with contents kept once, whoever has them.
//!
//! A file of its own beside the sessions' store, so that large contents never make a turn's events wait. All calls block;
//! callers are on the blocking pool. What a call has returned from survives the end of the process.
//!
//! The file is made with the first change: a server that only talks has none.
//!
//! Bounded: when contents take more than they may, whole turns are dropped, the oldest first; that they are gone stays known. Of
//! a turn that has too much by itself, what comes last is not kept.
//!
//! Invariant: a content is kept for as long as a change refers to it, and no longer.

mod kept;
mod schema;
mod state;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension as _, Row, TransactionBehavior};

pub use state::{ContentId, FileState};

use kept::{drop_changes, drop_oldest, drop_unused, keep, keep_less, merge, turn_number};

use super::StoreError;
use super::directory::make_private_file;
use crate::base::deflate::inflated;
use crate::base::limit;
use crate::protocol::{SessionId, TurnId};

/// Free pages that are given back to the file system at once.
const VACUUM_PAGES: u32 = 1_000;

/// One path that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathChange {
    /// Absolute, without links.
    pub path: PathBuf,
    /// How it was.
    pub before: FileState,
    /// How it is.
    pub after: FileState,
    /// Somebody else has changed it in between.
    pub mixed: bool,
}

/// What is added to the record of a turn.
#[derive(Debug, Default)]
pub struct Addition {
    /// Paths that changed, or are about to.
    pub changes: Vec<PathChange>,
    /// Contents that they refer to. Those that are kept already may be left out.
    pub contents: Vec<(ContentId, Vec<u8>)>,
    /// What may have changed without being recorded, and why.
    pub uncovered: Vec<(PathBuf, String)>,
    /// Where the turn works: absolute, without links.
    pub directory: Option<PathBuf>,
}

/// A turn that has a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedTurn {
    /// Its place among all turns.
    pub number: i64,
    /// Its id.
    pub id: TurnId,
    /// When its record was begun.
    pub at: u64,
    /// 0, or when it was undone, in the order of undoing.
    pub undone: u64,
    /// Commands that had begun and have not ended, as far as anybody has said.
    pub commands: u64,
    /// Its changes were dropped to make room.
    pub dropped: bool,
    /// Paths that it changed.
    pub file_count: u64,
    /// Where it worked: absolute, without links.
    pub directory: Option<PathBuf>,
}

/// The record of a data directory.
pub struct SnapshotStore {
    file: Mutex<File>,
    path: PathBuf,
    bytes_max: u64,
    /// Bytes of all contents as they are stored, for who must not wait for the file.
    stored: AtomicU64,
}

enum File {
    /// It is not there, and made with the first change.
    Unmade,
    Open(Open),
    Closed,
}

struct Open {
    connection: Connection,
    /// Bytes of all contents as they are stored.
    stored: u64,
}

impl Open {
    fn new(path: &Path) -> Result<Self, StoreError> {
        make_private_file(path)?;
        let connection = schema::open(path)?;
        let stored = connection.query_row("SELECT coalesce(sum(stored), 0) FROM content", [], |row| row.get(0));
        let stored = stored.map_err(|e| schema::failure("measure the record of changes", path, &e))?;
        Ok(Self { connection, stored })
    }
}

impl std::fmt::Debug for SnapshotStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SnapshotStore").field("path", &self.path).finish_non_exhaustive()
    }
}

fn words<T: serde::Serialize>(value: &T) -> rusqlite::Result<String> {
    serde_json::to_string(value).map_err(|e| rusqlite::Error::ToSqlConversionFailure(Box::new(e)))
}

fn state(row: &Row<'_>, column: usize) -> rusqlite::Result<FileState> {
    serde_json::from_str(row.get_ref(column)?.as_str()?)
        .map_err(|e| rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, Box::new(e)))
}

fn path(row: &Row<'_>, column: usize) -> rusqlite::Result<PathBuf> {
    Ok(PathBuf::from(OsString::from_vec(row.get_ref(column)?.as_blob()?.to_vec())))
}

fn path_change(row: &Row<'_>) -> rusqlite::Result<PathChange> {
    Ok(PathChange { path: path(row, 0)?, before: state(row, 1)?, after: state(row, 2)?, mixed: row.get(3)? })
}

fn name<T: std::str::FromStr<Err = crate::protocol::BadId>>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    row.get_ref(column)?.as_str()?.parse().map_err(|e: crate::protocol::BadId| {
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, Box::new(e))
    })
}

const TURN_COLUMNS: &str = "number, id, at, undone, commands, dropped,
    (SELECT count(*) FROM change WHERE change.turn = turn.number), directory";

fn recorded(row: &Row<'_>) -> rusqlite::Result<RecordedTurn> {
    let id = name(row, 1)?;
    let (number, at, undone) = (row.get(0)?, row.get(2)?, row.get(3)?);
    let (commands, dropped, file_count) = (row.get(4)?, row.get(5)?, row.get(6)?);
    let directory = row.get::<_, Option<Vec<u8>>>(7)?.map(|name| PathBuf::from(OsString::from_vec(name)));
    Ok(RecordedTurn { number, id, at, undone, commands, dropped, file_count, directory })
}

impl SnapshotStore {
    /// Opens the file. Where it is not there, it is made (for its owner alone) with the first change. Contents take at most
    /// `bytes_max`.
    ///
    /// # Errors
    /// [`StoreError::TooNew`], or [`StoreError::Io`] that names the path.
    pub fn open(path: &Path, bytes_max: u64) -> Result<Self, StoreError> {
        let file = match std::fs::symlink_metadata(path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => File::Unmade,
            Ok(_) | Err(_) => File::Open(Open::new(path)?),
        };
        let stored = match &file {
            File::Open(open) => open.stored.into(),
            File::Unmade | File::Closed => AtomicU64::default(),
        };
        Ok(Self { file: Mutex::new(file), path: path.to_owned(), bytes_max, stored })
    }

    /// Closes it; what comes after is [`StoreError::Closed`].
    ///
    /// # Errors
    /// When the last of it could not be written.
    pub fn close(&self) -> Result<(), StoreError> {
        let File::Open(open) = std::mem::replace(&mut *self.file.lock(), File::Closed) else { return Ok(()) };
        open.connection.close().map_err(|(_, e)| schema::failure("close the record of changes", &self.path, &e))
    }

    fn with<T>(&self, doing: &str, work: impl FnOnce(&mut Open) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        let mut file = self.file.lock();
        if matches!(*file, File::Unmade) {
            *file = File::Open(Open::new(&self.path)?);
        }
        let File::Open(open) = &mut *file else { return Err(StoreError::Closed) };
        let done = work(open).map_err(|e| schema::failure(doing, &self.path, &e));
        self.stored.store(open.stored, Ordering::Relaxed);
        done
    }

    /// The same for what only reads or takes away: of a file that is not there, nothing.
    fn with_made<T: Default>(
        &self,
        doing: &str,
        work: impl FnOnce(&mut Open) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        if matches!(*self.file.lock(), File::Unmade) { Ok(T::default()) } else { self.with(doing, work) }
    }

    /// Adds to the record of a turn, all of it or nothing. Of a path that is in the record already, the oldest `before` and the
    /// newest `after` count; one that is as it was before is no longer in it.
    ///
    /// # Errors
    /// What the database says.
    pub fn add(&self, session: &SessionId, turn: &TurnId, addition: &Addition) -> Result<(), StoreError> {
        self.with("record changes of files", |open| {
            let transaction = open.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let number = turn_number(&transaction, session, turn)?;
            if let Some(directory) = &addition.directory {
                let sql = "UPDATE turn SET directory = ?2 WHERE number = ?1 AND directory IS NULL";
                transaction.prepare_cached(sql)?.execute((number, directory.as_os_str().as_bytes()))?;
            }
            let mut stored = open.stored;
            for (id, body) in &addition.contents {
                stored += keep(&transaction, id, body)?;
            }
            for change in &addition.changes {
                merge(&transaction, number, change)?;
            }
            for (path, reason) in &addition.uncovered {
                let sql = "INSERT INTO uncovered (turn, path, reason) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
                transaction.prepare_cached(sql)?.execute((number, path.as_os_str().as_bytes(), reason))?;
            }
            stored -= drop_unused(&transaction)?;
            let dropped = stored > self.bytes_max;
            while stored > self.bytes_max
                && let Some(freed) = drop_oldest(&transaction, number)?
            {
                stored = stored.saturating_sub(freed);
            }
            if stored > self.bytes_max {
                stored -= keep_less(&transaction, (number, &addition.changes), (stored, self.bytes_max))?;
            }
            transaction.commit()?;
            open.stored = stored;
            if dropped {
                open.connection.execute_batch(&format!("PRAGMA incremental_vacuum({VACUUM_PAGES})"))?;
            }
            Ok(())
        })
    }

    /// Notes that a command of a turn begins, or that one has ended.
    ///
    /// # Errors
    /// What the database says.
    pub fn command(&self, session: &SessionId, turn: &TurnId, begins: bool) -> Result<(), StoreError> {
        self.with("note a command", |open| {
            let transaction = open.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let number = turn_number(&transaction, session, turn)?;
            let step = if begins { 1 } else { -1 };
            let sql = "UPDATE turn SET commands = max(0, commands + ?2) WHERE number = ?1";
            transaction.prepare_cached(sql)?.execute((number, step))?;
            transaction.commit()
        })
    }

    /// The turns of a session that changed files or of which something is not known, oldest first.
    ///
    /// # Errors
    /// What the database says.
    pub fn turns(&self, session: &SessionId) -> Result<Vec<RecordedTurn>, StoreError> {
        self.with_made("read recorded turns", |open| {
            let sql = format!("SELECT {TURN_COLUMNS} FROM turn WHERE session = ? ORDER BY number");
            let mut list = open.connection.prepare_cached(&sql)?;
            list.query_map([session.as_str()], recorded)?.collect()
        })
    }

    /// One turn of a session. None: it did nothing that is known.
    ///
    /// # Errors
    /// What the database says.
    pub fn turn(&self, session: &SessionId, id: &TurnId) -> Result<Option<RecordedTurn>, StoreError> {
        self.with_made("read a recorded turn", |open| {
            let sql = format!("SELECT {TURN_COLUMNS} FROM turn WHERE session = ? AND id = ?");
            let mut find = open.connection.prepare_cached(&sql)?;
            find.query_row([session.as_str(), id.as_str()], recorded).optional()
        })
    }

    /// What a turn changed, by path.
    ///
    /// # Errors
    /// What the database says.
    pub fn changes(&self, turn: i64) -> Result<Vec<PathChange>, StoreError> {
        self.with_made("read recorded changes", |open| {
            let sql = "SELECT path, before, after, mixed FROM change WHERE turn = ? ORDER BY path";
            open.connection.prepare_cached(sql)?.query_map([turn], path_change)?.collect()
        })
    }

    /// What is not known of a turn, by path.
    ///
    /// # Errors
    /// What the database says.
    pub fn uncovered(&self, turn: i64) -> Result<Vec<(PathBuf, String)>, StoreError> {
        self.with_made("read recorded changes", |open| {
            let sql = "SELECT path, reason FROM uncovered WHERE turn = ? ORDER BY path LIMIT ?";
            let mut list = open.connection.prepare_cached(sql)?;
            list.query_map((turn, limit::UNCOVERED_MAX), |row| Ok((path(row, 0)?, row.get(1)?)))?.collect()
        })
    }

    /// A kept content. None: there is none of that name.
    ///
    /// # Errors
    /// What the database says; [`StoreError::Io`] when it is not what was kept.
    pub fn content(&self, id: &ContentId) -> Result<Option<Vec<u8>>, StoreError> {
        let found = self.with_made("read a kept content", |open| {
            let mut find = open.connection.prepare_cached("SELECT bytes, packed, body FROM content WHERE id = ?")?;
            let row = |row: &Row<'_>| Ok((row.get::<_, u64>(0)?, row.get::<_, bool>(1)?, row.get::<_, Vec<u8>>(2)?));
            find.query_row([id.as_bytes()], row).optional()
        })?;
        let Some((bytes, packed, body)) = found else { return Ok(None) };
        let damaged = |cause: String| StoreError::Io { doing: "read a kept content".into(), cause };
        let body = if packed { inflated(&body, bytes).map_err(|e| damaged(e.to_string()))? } else { body };
        if ContentId::of(&body) != *id {
            return Err(damaged(format!("{}: content {id} is damaged", self.path.display())));
        }
        Ok(Some(body))
    }

    /// Notes that turns are undone, in this order, or done again.
    ///
    /// # Errors
    /// What the database says.
    pub fn set_undone(&self, turns: &[i64], undone: bool) -> Result<(), StoreError> {
        self.with("note what is undone", |open| {
            let transaction = open.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            for turn in turns {
                let sql = "UPDATE turn SET undone = CASE WHEN ?2 THEN
                     (SELECT max(undone) + 1 FROM turn) ELSE 0 END WHERE number = ?1";
                transaction.prepare_cached(sql)?.execute((turn, undone))?;
            }
            transaction.commit()
        })
    }

    /// The turns of a session that have a record, oldest first.
    ///
    /// # Errors
    /// What the database says.
    pub fn turn_ids(&self, session: &SessionId) -> Result<Vec<(i64, TurnId)>, StoreError> {
        self.with_made("read recorded turns", |open| {
            let sql = "SELECT number, id FROM turn WHERE session = ? ORDER BY number";
            let mut list = open.connection.prepare_cached(sql)?;
            list.query_map([session.as_str()], |row| Ok((row.get(0)?, name(row, 1)?)))?.collect()
        })
    }

    /// All sessions of which something is recorded.
    ///
    /// # Errors
    /// What the database says.
    pub fn sessions(&self) -> Result<Vec<SessionId>, StoreError> {
        self.with_made("read recorded turns", |open| {
            let mut list = open.connection.prepare("SELECT DISTINCT session FROM turn ORDER BY session")?;
            list.query_map([], |row| name(row, 0))?.collect()
        })
    }

    /// Forgets a session.
    ///
    /// # Errors
    /// What the database says.
    pub fn forget(&self, session: &SessionId) -> Result<(), StoreError> {
        let turns = self.turn_ids(session)?;
        self.forget_turns(&turns.into_iter().map(|(number, _)| number).collect::<Vec<_>>())
    }

    /// Forgets turns.
    ///
    /// # Errors
    /// What the database says.
    pub fn forget_turns(&self, numbers: &[i64]) -> Result<(), StoreError> {
        self.with_made("forget recorded changes", |open| {
            let transaction = open.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            for number in numbers {
                drop_changes(&transaction, *number)?;
                transaction.prepare_cached("DELETE FROM turn WHERE number = ?")?.execute([number])?;
            }
            let freed = drop_unused(&transaction)?;
            transaction.commit()?;
            open.stored = open.stored.saturating_sub(freed);
            if freed > 0 {
                open.connection.execute_batch(&format!("PRAGMA incremental_vacuum({VACUUM_PAGES})"))?;
            }
            Ok(())
        })
    }

    /// Bytes that all contents take, and may take.
    pub fn size(&self) -> (u64, u64) {
        (self.stored.load(Ordering::Relaxed), self.bytes_max)
    }
}
