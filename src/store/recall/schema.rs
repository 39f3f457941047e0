//! The tables of remembered texts, and the steps from one version of them to the next.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use crate::store::StoreError;
use crate::store::layer::Layer;

/// How long to wait for another connection's lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// How FTS5 cuts what `words` hands it. The same in the tables and in memory; the first step has it once more, for what
/// a step says is never changed.
pub(super) const CUT: &str = "porter unicode61 remove_diacritics 2 categories 'L* N* Co So'";

/// Step N leads from version N to N + 1 (`PRAGMA user_version`). Steps are added, never changed.
///
/// `entry.key` is the project's number times 2^32 plus a place in it; the index of words and the vectors go by it, so
/// that a project is a range of keys everywhere. A key is never used again: `project.last` is the last place that was given away. The
/// index keeps no text of its own. A vector belongs to one embedding
/// model; there is at most one for each text.
///
/// `change` says which places of a project have become others, so that who keeps a copy (`index`) need not read all of it
/// again: numbers without gaps, up to `project.changes`; the oldest are forgotten. A place of 0 stands for all.
///
/// `entry.uses` and `used_at` say how often and when a text was last an answer, `pinned` that it is never forgotten by
/// itself; `project.swept_at` when texts were last looked through for old ones.
const STEPS: &[&str] = &[
    "
    CREATE TABLE project (
        number INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        entries INTEGER NOT NULL,
        last INTEGER NOT NULL
    );
    CREATE TABLE entry (
        key INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        digest INTEGER NOT NULL,
        text TEXT NOT NULL,
        metadata TEXT NOT NULL,
        created_at INTEGER NOT NULL
    );
    CREATE INDEX entry_of_digest ON entry (digest, key);
    CREATE VIRTUAL TABLE word USING fts5(
        body, content='', contentless_delete=1,
        tokenize=\"porter unicode61 remove_diacritics 2 categories 'L* N* Co So'\"
    );
    CREATE TABLE embedder (
        number INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE
    );
    CREATE TABLE vector (
        key INTEGER PRIMARY KEY,
        embedder INTEGER NOT NULL,
        data BLOB NOT NULL
    );
",
    "
    ALTER TABLE project ADD COLUMN changes INTEGER NOT NULL DEFAULT 0;
    CREATE TABLE change (
        project INTEGER NOT NULL,
        number INTEGER NOT NULL,
        key INTEGER NOT NULL,
        vector INTEGER NOT NULL,
        PRIMARY KEY (project, number)
    ) WITHOUT ROWID;
",
    "
    ALTER TABLE project ADD COLUMN swept_at INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE entry ADD COLUMN uses INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE entry ADD COLUMN used_at INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE entry ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;
",
];

/// From this version on `entry.digest` is one of what a text says, however it is written (`likeness`).
const DIGESTS_OF_LIKENESS: usize = 3;

/// Opens the database with the newest tables. None: in memory.
pub(super) fn open(path: Option<&Path>) -> Result<Connection, StoreError> {
    let place = path.unwrap_or(Path::new(":memory:"));
    let opened = Layer::choose(place, |layer| prepare(path, layer));
    let (mut connection, _) = opened.map_err(|e| failure("open the memory", place, &e))?;
    migrate(&mut connection, place)?;
    Ok(connection)
}

fn prepare(path: Option<&Path>, layer: Layer) -> rusqlite::Result<Connection> {
    let connection = match path {
        Some(path) => layer.connect(path, OpenFlags::default())?,
        None => Connection::open_in_memory()?,
    };
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.query_row("PRAGMA journal_mode=WAL", [], |_| Ok(()))?;
    connection.execute_batch("PRAGMA synchronous=NORMAL; PRAGMA temp_store=MEMORY; PRAGMA trusted_schema=OFF")?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(connection)
}

fn migrate(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let failed = |e: rusqlite::Error| failure("bring the memory to the newest version", path, &e);
    // Immediate: of two processes that open a new file, one makes the tables and the other finds them.
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).map_err(failed)?;
    let found: i64 = transaction.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(failed)?;
    let known = i64::try_from(STEPS.len()).unwrap_or(i64::MAX);
    let done = usize::try_from(found).ok().filter(|done| *done <= STEPS.len());
    let Some(done) = done else {
        return Err(StoreError::TooNew { path: path.to_owned(), found, known });
    };
    for (step, version) in STEPS.iter().zip(1..).skip(done) {
        transaction.execute_batch(step).map_err(failed)?;
        transaction.pragma_update(None, "user_version", version).map_err(failed)?;
    }
    if (1..DIGESTS_OF_LIKENESS).contains(&done) {
        digest_anew(&transaction).map_err(failed)?;
    }
    transaction.commit().map_err(failed)
}

/// Gives texts of older versions the digests that they have now.
fn digest_anew(transaction: &rusqlite::Transaction<'_>) -> rusqlite::Result<()> {
    let mut read = transaction.prepare("SELECT key, text FROM entry")?;
    let mut write = transaction.prepare("UPDATE entry SET digest = ? WHERE key = ?")?;
    let mut rows = read.query([])?;
    while let Some(row) = rows.next()? {
        let key: i64 = row.get(0)?;
        write.execute((super::likeness::digest(row.get_ref(1)?.as_str()?), key))?;
    }
    Ok(())
}

/// SQLite's words, with the path and what was tried.
pub(super) fn failure(doing: &str, path: &Path, cause: &rusqlite::Error) -> StoreError {
    StoreError::Io { doing: doing.to_owned(), cause: format!("{}: {cause}", path.display()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_file_is_brought_up_to_date() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("x.db");
        let old = Connection::open(&path).expect("made");
        old.execute_batch(STEPS[0]).expect("the tables of version 1");
        old.execute_batch(
            "INSERT INTO project VALUES (1, 'p', 1, 1);
             INSERT INTO entry VALUES (4294967297, 'mem_old', 5, 'Run `npm test`.', '{}', 7);
             INSERT INTO word (rowid, body) VALUES (4294967297, 'run npm test');
             PRAGMA user_version = 1;",
        )
        .expect("a text");
        drop(old);
        let store = crate::store::recall::RecallStore::open(&path).expect("brought up to date");
        let again =
            crate::store::recall::NewEntry { text: "run npm test".to_owned(), metadata: serde_json::Map::new() };
        let added = store.add("p", &[again]).expect("kept").added;
        assert_eq!((added[0].id.as_str(), added[0].new), ("mem_old", false));
    }

    #[test]
    fn a_newer_file_is_refused_and_left_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("x.db");
        open(Some(&path)).expect("made").pragma_update(None, "user_version", 99).expect("set");
        let known = i64::try_from(STEPS.len()).expect("few");
        assert_eq!(open(Some(&path)).err(), Some(StoreError::TooNew { path: path.clone(), found: 99, known }));
    }
}
