//! Remembered texts on SQLite: kept by project, found by words (FTS5) and by nearness of vectors. A project that is
//! searched has an index in memory (`index`), made from the tables; how answers are ranked stands in `rank`.
//!
//! Not the sessions' store: a file of its own beside it, so that neither waits for the other. All calls block; callers
//! are on the blocking pool. What a call has returned from survives the end of the process.
//!
//! Invariants: a project holds each text once, however it is written (`likeness`); what is pinned stays until somebody
//! forgets it; nothing of one project is ever found in another; vectors of different
//! embedding models, or of different lengths, are never compared.

mod find;
mod index;
mod keep;
mod likeness;
mod rank;
mod schema;
mod search;
mod vector;
mod words;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, TransactionBehavior};
use serde_json::{Map, Value};

pub use find::{Finding, Sought};
use index::Indexes;
pub use keep::Keep;
pub use likeness::Likeness;
pub use rank::Ranked;

use super::StoreError;
use super::directory::make_private_file;
use crate::base::clock;

/// A text to be remembered. Its limits are the caller's to check.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEntry {
    /// The text.
    pub text: String,
    /// Facts about it. `topic`, when it is a text, is searched too. `pinned`, when it is true, keeps the text from being
    /// forgotten by itself.
    pub metadata: Map<String, Value>,
}

/// A remembered text.
#[derive(Debug, Clone, PartialEq)]
pub struct KeptEntry {
    /// Its place; never used again when it is gone.
    pub key: i64,
    /// Its name.
    pub id: String,
    /// The text.
    pub text: String,
    /// Facts about it.
    pub metadata: Map<String, Value>,
    /// When it was first remembered, in milliseconds since 1970.
    pub created_at: u64,
}

/// What came of handing in texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddedAll {
    /// For each text, in order.
    pub added: Vec<Added>,
    /// How many others were forgotten for it.
    pub forgotten: usize,
}

/// What came of handing in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    /// Its place.
    pub key: i64,
    /// Its name.
    pub id: String,
    /// False: the text was there already and has kept its name.
    pub new: bool,
}

/// An operation on remembered texts failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecallError {
    /// The project holds as much as it may, and what could go is pinned or came with the rest. Forget something.
    #[error("{entries_max} texts are remembered already, and none may be forgotten for others; forget some")]
    Full {
        /// The limit.
        entries_max: usize,
    },
    /// The database said no.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Remembered texts of all projects of one data directory.
pub struct RecallStore {
    /// None when it is closed.
    connection: Mutex<Option<Connection>>,
    path: PathBuf,
    indexes: Indexes,
    keep: Keep,
}

impl std::fmt::Debug for RecallStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecallStore").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The lowest and the highest key that a project's entries can have.
fn range_of(project: i64) -> (i64, i64) {
    (project << 32, (project << 32) | i64::from(u32::MAX))
}

/// The project that has a key.
fn project_at(key: i64) -> i64 {
    key >> 32
}

/// Changes of a project that are kept for who has a copy of it; who has missed more reads all of it again.
const CHANGES_MAX: i64 = 20_000;

/// A key that stands for all of a project.
const ALL: i64 = 0;

/// Notes that a place has become another one, or its vector alone.
fn note(transaction: &Transaction<'_>, project: i64, (key, vector): (i64, bool)) -> rusqlite::Result<()> {
    let sql = "UPDATE project SET changes = changes + 1 WHERE number = ? RETURNING changes";
    let number: i64 = transaction.prepare_cached(sql)?.query_row([project], |row| row.get(0))?;
    let mut put =
        transaction.prepare_cached("INSERT INTO change (project, number, key, vector) VALUES (?, ?, ?, ?)")?;
    put.execute((project, number, key, vector))?;
    let mut forget = transaction.prepare_cached("DELETE FROM change WHERE project = ? AND number <= ?")?;
    forget.execute((project, number - CHANGES_MAX)).map(drop)
}

/// The words of a text and of its topic, as they are indexed.
fn body_of(text: &str, metadata: &Map<String, Value>) -> String {
    let topic = metadata.get("topic").and_then(Value::as_str).unwrap_or_default();
    words::indexed(&format!("{text}\n{topic}"))
}

fn new_id() -> String {
    format!("mem_{}", uuid::Uuid::now_v7().simple())
}

const COLUMNS: &str = "key, id, text, metadata, created_at";

fn kept(row: &Row<'_>) -> rusqlite::Result<KeptEntry> {
    let metadata = serde_json::from_str(row.get_ref(3)?.as_str()?)
        .map_err(|e| rusqlite::Error::FromSqlConversionFailure(3, rusqlite::types::Type::Text, Box::new(e)))?;
    Ok(KeptEntry { key: row.get(0)?, id: row.get(1)?, text: row.get(2)?, metadata, created_at: row.get(4)? })
}

/// A project's number. None: nothing was ever remembered for it.
fn project_of(connection: &Connection, project: &str) -> rusqlite::Result<Option<i64>> {
    let mut find = connection.prepare_cached("SELECT number FROM project WHERE name = ?")?;
    find.query_row([project], |row| row.get(0)).optional()
}

impl RecallStore {
    /// Opens the file; makes it (for its owner alone) where it is not there.
    ///
    /// # Errors
    /// [`StoreError::TooNew`], or [`StoreError::Io`] that names the path.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        make_private_file(path)?;
        let connection = schema::open(Some(path))?;
        Ok(Self {
            connection: Mutex::new(Some(connection)),
            path: path.to_owned(),
            indexes: Indexes::default(),
            keep: Keep::default(),
        })
    }

    /// One in memory, gone with the process.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn in_memory() -> Result<Self, StoreError> {
        let connection = schema::open(None)?;
        Ok(Self {
            connection: Mutex::new(Some(connection)),
            path: ":memory:".into(),
            indexes: Indexes::default(),
            keep: Keep::default(),
        })
    }

    /// The same, which keeps so much.
    #[must_use]
    pub fn keeping(self, keep: Keep) -> Self {
        Self { keep, ..self }
    }

    /// Closes it; what comes after is [`StoreError::Closed`].
    ///
    /// # Errors
    /// When the last of it could not be written.
    pub fn close(&self) -> Result<(), StoreError> {
        self.indexes.clear();
        let Some(connection) = self.connection.lock().take() else { return Ok(()) };
        connection.close().map_err(|(_, e)| schema::failure("close the memory", &self.path, &e))
    }

    fn with<T>(&self, doing: &str, work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        let mut connection = self.connection.lock();
        let connection = connection.as_mut().ok_or(StoreError::Closed)?;
        work(connection).map_err(|e| schema::failure(doing, &self.path, &e))
    }

    /// Remembers texts, all or none, in their order. One that is there already keeps its name and its age; facts that
    /// come with it replace those that it had. What is too much or too old goes ([`Keep`]).
    ///
    /// # Errors
    /// [`RecallError::Full`]; what the database says.
    pub fn add(&self, project: &str, entries: &[NewEntry]) -> Result<AddedAll, RecallError> {
        self.with("remember a text", |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let mut place = Place::of(&transaction, project)?;
            let first_new = range_of(place.number).0 | (place.last + 1);
            let added = entries.iter().map(|entry| place.add(&transaction, entry)).collect::<Result<Vec<_>, _>>()?;
            place.save(&transaction)?;
            let full = (place.number, place.entries, first_new);
            let forgotten = match keep::make_room(&transaction, full, self.keep)? {
                Ok(forgotten) => forgotten,
                Err(full) => return Ok(Err(full)),
            };
            transaction.commit()?;
            Ok(Ok(AddedAll { added, forgotten }))
        })?
    }

    /// Notes that texts were answers, so that they are forgotten later than others.
    ///
    /// # Errors
    /// What the database says.
    pub fn used(&self, keys: &[i64]) -> Result<(), StoreError> {
        self.with("note what was found", |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            keep::used(&transaction, keys)?;
            transaction.commit()
        })
    }

    /// One text. None: the project has none of that name.
    ///
    /// # Errors
    /// What the database says.
    pub fn get(&self, project: &str, id: &str) -> Result<Option<KeptEntry>, StoreError> {
        self.with("read a remembered text", |c| {
            let Some(number) = project_of(c, project)? else { return Ok(None) };
            let (first, last) = range_of(number);
            let sql = format!("SELECT {COLUMNS} FROM entry WHERE id = ?1 AND key BETWEEN ?2 AND ?3");
            c.prepare_cached(&sql)?.query_row((id, first, last), kept).optional()
        })
    }

    /// Texts of a project, newest first, at most `limit`, behind the first `skip`.
    ///
    /// # Errors
    /// What the database says.
    pub fn list(&self, project: &str, skip: usize, limit: usize) -> Result<Vec<KeptEntry>, StoreError> {
        self.with("list remembered texts", |c| {
            let Some(number) = project_of(c, project)? else { return Ok(Vec::new()) };
            let (first, last) = range_of(number);
            let sql =
                format!("SELECT {COLUMNS} FROM entry WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT ? OFFSET ?");
            c.prepare_cached(&sql)?.query_map((first, last, limit, skip), kept)?.collect()
        })
    }

    /// Forgets a text. False: the project has none of that name.
    ///
    /// # Errors
    /// What the database says.
    pub fn delete(&self, project: &str, id: &str) -> Result<bool, StoreError> {
        self.with("forget a text", |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let Some(number) = project_of(&transaction, project)? else { return Ok(false) };
            let (first, last) = range_of(number);
            let mut find = transaction.prepare_cached("SELECT key FROM entry WHERE id = ? AND key BETWEEN ? AND ?")?;
            let key: Option<i64> = find.query_row((id, first, last), |row| row.get(0)).optional()?;
            drop(find);
            let Some(key) = key else { return Ok(false) };
            take_out(&transaction, number, &[key])?;
            transaction.commit()?;
            Ok(true)
        })
    }

    /// Forgets everything of a project; how much it was.
    ///
    /// # Errors
    /// What the database says.
    pub fn clear(&self, project: &str) -> Result<usize, StoreError> {
        self.with("forget everything", |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let Some(number) = project_of(&transaction, project)? else { return Ok(0) };
            let range = range_of(number);
            transaction.execute("DELETE FROM word WHERE rowid BETWEEN ? AND ?", range)?;
            transaction.execute("DELETE FROM vector WHERE key BETWEEN ? AND ?", range)?;
            let forgotten = transaction.execute("DELETE FROM entry WHERE key BETWEEN ? AND ?", range)?;
            transaction.execute("UPDATE project SET entries = 0 WHERE number = ?", [number])?;
            note(&transaction, number, (ALL, false))?;
            transaction.commit()?;
            Ok(forgotten)
        })
    }

    /// How many texts a project has.
    ///
    /// # Errors
    /// What the database says.
    pub fn count(&self, project: &str) -> Result<usize, StoreError> {
        self.with("count remembered texts", |c| {
            let mut find = c.prepare_cached("SELECT entries FROM project WHERE name = ?")?;
            Ok(find.query_row([project], |row| row.get(0)).optional()?.unwrap_or(0))
        })
    }
}

/// Takes texts that are there out of everything.
fn take_out(transaction: &Transaction<'_>, project: i64, keys: &[i64]) -> rusqlite::Result<()> {
    for sql in
        ["DELETE FROM entry WHERE key = ?", "DELETE FROM word WHERE rowid = ?", "DELETE FROM vector WHERE key = ?"]
    {
        let mut delete = transaction.prepare_cached(sql)?;
        keys.iter().try_for_each(|key| delete.execute([key]).map(drop))?;
    }
    keys.iter().try_for_each(|key| note(transaction, project, (*key, false)))?;
    let sql = "UPDATE project SET entries = entries - ?2 WHERE number = ?1";
    transaction.execute(sql, (project, keys.len())).map(drop)
}

/// A project while texts are put into it.
struct Place {
    number: i64,
    entries: usize,
    last: i64,
}

impl Place {
    /// The project's, made where it is not there.
    fn of(transaction: &Transaction<'_>, project: &str) -> rusqlite::Result<Self> {
        transaction
            .execute("INSERT INTO project (name, entries, last) VALUES (?, 0, 0) ON CONFLICT DO NOTHING", [project])?;
        let mut find = transaction.prepare_cached("SELECT number, entries, last FROM project WHERE name = ?")?;
        find.query_row([project], |row| Ok(Self { number: row.get(0)?, entries: row.get(1)?, last: row.get(2)? }))
    }

    fn save(&self, transaction: &Transaction<'_>) -> rusqlite::Result<()> {
        let sql = "UPDATE project SET entries = ?2, last = ?3 WHERE number = ?1";
        transaction.execute(sql, (self.number, self.entries, self.last)).map(drop)
    }

    fn add(&mut self, transaction: &Transaction<'_>, entry: &NewEntry) -> rusqlite::Result<Added> {
        let metadata = Value::Object(entry.metadata.clone()).to_string();
        if let Some(there) = self.find(transaction, &entry.text)? {
            if !entry.metadata.is_empty() {
                let sql = "UPDATE entry SET metadata = ?2, pinned = ?3 WHERE key = ?1";
                transaction.execute(sql, (there.key, metadata, is_pinned(entry)))?;
                transaction.execute("DELETE FROM word WHERE rowid = ?", [there.key])?;
                index(transaction, there.key, entry)?;
                note(transaction, self.number, (there.key, false))?;
            }
            return Ok(there);
        }
        self.last += 1;
        self.entries += 1;
        let added = Added { key: range_of(self.number).0 | self.last, id: new_id(), new: true };
        let mut insert = transaction.prepare_cached(
            "INSERT INTO entry (key, id, digest, text, metadata, created_at, pinned) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?;
        let digest = likeness::digest(&entry.text);
        insert.execute((added.key, &added.id, digest, &entry.text, metadata, clock::now_ms(), is_pinned(entry)))?;
        index(transaction, added.key, entry)?;
        note(transaction, self.number, (added.key, false))?;
        Ok(added)
    }

    fn find(&self, transaction: &Transaction<'_>, text: &str) -> rusqlite::Result<Option<Added>> {
        let (first, last) = range_of(self.number);
        let mut find =
            transaction.prepare_cached("SELECT key, id, text FROM entry WHERE digest = ? AND key BETWEEN ? AND ?")?;
        let (core, mut rows) = (likeness::core(text), find.query((likeness::digest(text), first, last))?);
        while let Some(row) = rows.next()? {
            if likeness::core(row.get_ref(2)?.as_str()?) == core {
                return Ok(Some(Added { key: row.get(0)?, id: row.get(1)?, new: false }));
            }
        }
        Ok(None)
    }
}

fn is_pinned(entry: &NewEntry) -> bool {
    entry.metadata.get("pinned") == Some(&Value::Bool(true))
}

/// Puts an entry's words into the index.
fn index(transaction: &Transaction<'_>, key: i64, entry: &NewEntry) -> rusqlite::Result<()> {
    let mut insert = transaction.prepare_cached("INSERT INTO word (rowid, body) VALUES (?, ?)")?;
    insert.execute((key, body_of(&entry.text, &entry.metadata))).map(drop)
}
