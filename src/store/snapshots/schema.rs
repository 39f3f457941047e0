//! The tables of what turns did to files.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use crate::store::StoreError;
use crate::store::layer::Layer;

/// How long to wait for another connection's lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Step N leads from version N to N + 1 (`PRAGMA user_version`). Steps are added, never changed.
///
/// A turn's number says in which order turns came. `undone` is 0, or grows with each turn that is undone: the greatest is redone
/// first. `content.refs` counts the ends of changes that have this content; `stored` comes before `body`, so that sizes
/// are added up without reading contents. `turn.directory` is where the turn worked; a record of an earlier version has none.
const STEPS: &[&str] = &[
    "
    CREATE TABLE turn (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        session TEXT NOT NULL,
        id TEXT NOT NULL,
        at INTEGER NOT NULL,
        undone INTEGER NOT NULL DEFAULT 0,
        commands INTEGER NOT NULL DEFAULT 0,
        dropped INTEGER NOT NULL DEFAULT 0,
        UNIQUE (session, id)
    );
    CREATE TABLE change (
        turn INTEGER NOT NULL,
        path BLOB NOT NULL,
        before TEXT NOT NULL,
        after TEXT NOT NULL,
        mixed INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (turn, path)
    ) WITHOUT ROWID;
    CREATE TABLE uncovered (
        turn INTEGER NOT NULL,
        path BLOB NOT NULL,
        reason TEXT NOT NULL,
        PRIMARY KEY (turn, path)
    ) WITHOUT ROWID;
    CREATE TABLE content (
        id BLOB PRIMARY KEY,
        refs INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        stored INTEGER NOT NULL,
        packed INTEGER NOT NULL,
        body BLOB NOT NULL
    );
    CREATE INDEX content_unused ON content (refs) WHERE refs <= 0;
",
    "
    ALTER TABLE turn ADD COLUMN directory BLOB;
",
];

/// Opens the database with the newest tables.
pub(super) fn open(path: &Path) -> Result<Connection, StoreError> {
    let opened = Layer::choose(path, |layer| prepare(path, layer));
    let (mut connection, _) = opened.map_err(|e| failure("open the record of changes", path, &e))?;
    migrate(&mut connection, path)?;
    Ok(connection)
}

fn prepare(path: &Path, layer: Layer) -> rusqlite::Result<Connection> {
    let connection = layer.connect(path, OpenFlags::default())?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.execute_batch("PRAGMA auto_vacuum=INCREMENTAL")?;
    connection.query_row("PRAGMA journal_mode=WAL", [], |_| Ok(()))?;
    connection.execute_batch("PRAGMA synchronous=NORMAL; PRAGMA temp_store=MEMORY; PRAGMA trusted_schema=OFF")?;
    connection.execute_batch("PRAGMA journal_size_limit=8388608")?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

fn migrate(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let failed = |e: rusqlite::Error| failure("bring the record of changes to the newest version", path, &e);
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
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
    transaction.commit().map_err(failed)
}

/// SQLite's words, with the path and what was tried.
pub(super) fn failure(doing: &str, path: &Path, cause: &rusqlite::Error) -> StoreError {
    StoreError::Io { doing: doing.to_owned(), cause: format!("{}: {cause}", path.display()) }
}
