//! The tables, and the steps from one version of them to the next.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::{chained, fresh, lifecycle, said};
use crate::store::StoreError;
use crate::store::directory::{self, make_private_file};
use crate::store::layer::Layer;

/// How long to wait for another connection's lock.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Step N leads from version N to N + 1 (`PRAGMA user_version`). Steps are added, never changed.
///
/// `log.key`, `turn.key`, `said.key` and `question.key` are the session's number times 2^32 plus the first event's number,
/// or the turn's place in the session. Few tables, few indexes: each costs a page.
const STEPS: &[Step] = &[
    Step::Sql(
        "
    CREATE TABLE session (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        client TEXT,
        status INTEGER NOT NULL,
        version INTEGER NOT NULL,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        message_count INTEGER NOT NULL,
        usage TEXT NOT NULL,
        settings TEXT NOT NULL
    );
    CREATE INDEX session_of_client ON session (client, number) WHERE client IS NOT NULL;
    CREATE TABLE turn (
        key INTEGER PRIMARY KEY,
        id TEXT NOT NULL,
        open INTEGER NOT NULL,
        body TEXT
    );
    CREATE INDEX turn_open ON turn (key) WHERE open;
    CREATE TABLE log (
        key INTEGER PRIMARY KEY,
        count INTEGER NOT NULL,
        turn INTEGER,
        at INTEGER NOT NULL,
        body BLOB NOT NULL
    );
",
    ),
    Step::Sql(
        "
    CREATE TABLE question (
        key INTEGER PRIMARY KEY,
        id TEXT NOT NULL,
        call TEXT NOT NULL
    );
",
    ),
    Step::Sql("CREATE TABLE doomed (number INTEGER PRIMARY KEY);"),
    Step::Sql(
        "
    CREATE TABLE saved_grant (
        id TEXT PRIMARY KEY,
        body TEXT NOT NULL
    );
",
    ),
    // session.head_seq and session.head, and a tag for each event in log.body.
    Step::Code(chained::chain_all),
    Step::Sql(
        "
    CREATE TABLE outcome (
        number INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        at INTEGER NOT NULL,
        fingerprint BLOB NOT NULL,
        body TEXT
    );
",
    ),
    // Sessions that were forked stand in `doomed` beside those that are gone (`dead`): a table of its own would cost each database a page.
    Step::Sql(
        "
    ALTER TABLE doomed ADD COLUMN dead INTEGER NOT NULL DEFAULT 1;
    ALTER TABLE doomed ADD COLUMN parent INTEGER;
    ALTER TABLE doomed ADD COLUMN at INTEGER;
",
    ),
    // A client's lifecycle events, over all its sessions.
    Step::Code(lifecycle::list_all),
    // What turns have just said, of all sessions.
    Step::Sql(fresh::TABLE),
    // Ends of sessions have an order over all clients, by which the oldest are forgotten.
    Step::Sql(lifecycle::NUMBERED),
    // What waits and is large, apart from the row of its turn.
    Step::Code(said::part_all),
    // Sessions under others: the one above all, where they stand, and which runs of theirs are not done with.
    Step::Sql(
        "
    ALTER TABLE session ADD COLUMN root TEXT;
    ALTER TABLE session ADD COLUMN lineage TEXT;
    ALTER TABLE session ADD COLUMN children TEXT;
    CREATE INDEX session_of_root ON session (root, number) WHERE root IS NOT NULL;
    CREATE INDEX session_with_children ON session (number) WHERE children IS NOT NULL;
",
    ),
    // What sessions have spent since they were created, and clients in a span of time.
    Step::Sql(
        "
    ALTER TABLE session ADD COLUMN spent TEXT;
    CREATE TABLE client_spending (client TEXT PRIMARY KEY, began INTEGER NOT NULL, body TEXT NOT NULL) WITHOUT ROWID;
",
    ),
    // Where in its log stands what the sessions of its tree share.
    Step::Sql("ALTER TABLE session ADD COLUMN shared TEXT;"),
];

/// One step.
enum Step {
    Sql(&'static str),
    /// For what needs the rows' decoder. It runs inside the step's transaction.
    Code(fn(&Connection) -> rusqlite::Result<()>),
}

impl Step {
    fn run(&self, connection: &Connection) -> rusqlite::Result<()> {
        match self {
            Self::Sql(sql) => connection.execute_batch(sql),
            Self::Code(code) => code(connection),
        }
    }
}

/// KiB of pages that a connection for writing keeps, at most. Each session that is being written to has two or three of its
/// own: thousands at once do not fit into the 2 MiB that SQLite takes by itself, and each of them would be read anew for
/// each event.
const CACHE_KIB: i64 = 16 << 10;

/// Opens the database for writing, with the newest tables. The layer is for all further connections.
pub(super) fn open(path: &Path) -> Result<(Connection, Layer), StoreError> {
    let opened = Layer::choose(path, |layer| prepare(path, layer));
    let (mut connection, layer) = opened.map_err(|e| failure("open the database", path, &e))?;
    migrate(&mut connection, path)?;
    Ok((connection, layer))
}

fn prepare(path: &Path, layer: Layer) -> rusqlite::Result<Connection> {
    let connection = layer.connect(path, OpenFlags::default())?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    // Small pages: a commit touches three or four, and each table and index has at least one.
    connection.execute_batch("PRAGMA page_size=2048")?;
    connection.query_row("PRAGMA journal_mode=WAL", [], |_| Ok(()))?;
    // Checkpoints have a thread of their own.
    connection.query_row("PRAGMA wal_autocheckpoint=0", [], |_| Ok(()))?;
    connection.execute_batch("PRAGMA synchronous=NORMAL; PRAGMA temp_store=MEMORY; PRAGMA trusted_schema=OFF")?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

fn migrate(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let failed = |e: rusqlite::Error| failure("bring the database to the newest version", path, &e);
    let found: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(failed)?;
    let known = newest();
    let done = usize::try_from(found).ok().filter(|done| *done <= STEPS.len());
    let Some(done) = done else {
        return Err(StoreError::TooNew { path: path.to_owned(), found, known });
    };
    if done > 0 && done < STEPS.len() {
        tracing::info!(path = %path.display(), from = found, to = known, "the database is brought to the newest version");
        back_up(connection, path, found)?;
    }
    for (step, version) in STEPS.iter().zip(1..).skip(done) {
        let transaction = connection.transaction().map_err(failed)?;
        step.run(&transaction).map_err(failed)?;
        transaction.pragma_update(None, "user_version", version).map_err(failed)?;
        transaction.commit().map_err(failed)?;
    }
    if done == 0 {
        // From now on a file without tables is one that was damaged.
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).map_err(failed)?;
    }
    Ok(())
}

/// The version that this program makes.
pub(super) fn newest() -> i64 {
    i64::try_from(STEPS.len()).unwrap_or(i64::MAX)
}

/// A file beside the database: its name, and something behind it.
pub(super) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Where the copy of a database lies that was made before it left version `version`.
pub(super) fn backup_path(path: &Path, version: i64) -> PathBuf {
    beside(path, &format!(".v{version}.bak"))
}

/// Keeps a copy of the database as it is, whole or not at all.
fn back_up(connection: &Connection, path: &Path, version: i64) -> Result<(), StoreError> {
    let doing = "keep a copy of the database before it is brought to the newest version";
    let target = backup_path(path, version);
    let partial = target.with_extension("partial");
    let broken = |e: std::io::Error| directory::failure(doing, &partial, &e);
    // What an attempt before this one left; SQLite wants an empty file.
    match std::fs::remove_file(&partial) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(broken(e)),
        Ok(()) | Err(_) => {}
    }
    make_private_file(&partial)?;
    let name = partial.to_str().ok_or_else(|| StoreError::Io {
        doing: doing.to_owned(),
        cause: format!("{}: the path is not UTF-8", partial.display()),
    })?;
    let copied = connection.execute("VACUUM INTO ?", [name]).map_err(|e| failure(doing, &partial, &e));
    let synced = copied.and_then(|_| std::fs::File::open(&partial).and_then(|file| file.sync_all()).map_err(broken));
    synced.and_then(|()| std::fs::rename(&partial, &target).map_err(broken)).inspect_err(|_| {
        // A disk that is full should not stay so for our sake.
        let _ = std::fs::remove_file(&partial);
    })
}

/// Files that a server makes once it has its database: where one of them has something in it, there was one.
const BESIDE: [&str; 4] = ["snapshots.db", "memory.db", "programs", "server.json"];
/// Where in a database's file its version stands: four bytes, the highest first (sqlite.org/fileformat.html, 1.3).
const VERSION_AT: u64 = 60;

/// Whether the database is there, or may be made: not where it was and is no more, for it would be made anew without a word.
///
/// # Errors
/// [`StoreError::Broken`].
pub(super) fn check_whole(path: &Path) -> Result<(), StoreError> {
    let length = |path: &Path| std::fs::metadata(path).map_or(0, |found| found.len());
    let last = beside(path, "-wal");
    let last_written = length(&last) > 0;
    let lived = BESIDE.iter().map(|name| path.with_file_name(name)).find(|other| length(other) > 0);
    let witness = Some(last).filter(|_| last_written).or(lived.clone());
    let name = |path: Option<PathBuf>| path.and_then(|path| Some(path.file_name()?.display().to_string()));
    let cause = match std::fs::metadata(path).map(|found| found.len()) {
        Err(_) if last_written => "it is gone, and what was written last is still there (simse.db-wal)".to_owned(),
        Ok(0) => match name(witness) {
            Some(name) => format!("it is empty, and {name} beside it is not"),
            None => return Ok(()),
        },
        Ok(_) if !last_written && lived.is_some() && version_in(path) == Some(0) => {
            "it has no tables: what was written last is gone (simse.db-wal)".to_owned()
        }
        Ok(_) | Err(_) => return Ok(()),
    };
    let path = path.to_owned();
    Err(StoreError::Broken {
        path,
        cause: format!("{cause}; bring back a copy, or take these files away to begin anew"),
    })
}

/// The version that the file itself has.
fn version_in(path: &Path) -> Option<u32> {
    use std::os::unix::fs::FileExt as _;
    let mut version = [0; 4];
    std::fs::File::open(path).ok()?.read_exact_at(&mut version, VERSION_AT).ok()?;
    Some(u32::from_be_bytes(version))
}

/// Whether SQLite says that the file is damaged, or none of its own.
pub(super) fn is_damage(cause: &rusqlite::Error) -> bool {
    matches!(cause.sqlite_error_code(), Some(rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase))
}

/// SQLite's words, with the path and what was tried.
pub(super) fn failure(doing: &str, path: &Path, cause: &rusqlite::Error) -> StoreError {
    if is_damage(cause) {
        return StoreError::Broken { path: path.to_owned(), cause: cause.to_string() };
    }
    StoreError::Io { doing: doing.to_owned(), cause: format!("{}: {cause}", path.display()) }
}

/// Writes the version that stands there once more: a write that changes nothing.
pub(super) fn touch(connection: &Connection) -> rusqlite::Result<()> {
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    connection.pragma_update(None, "user_version", version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_file_is_refused_and_left_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("x.db");
        open(&path).expect("made").0.pragma_update(None, "user_version", 99).expect("set");
        let known = i64::try_from(STEPS.len()).expect("few");
        assert_eq!(open(&path).err(), Some(StoreError::TooNew { path: path.clone(), found: 99, known }));
    }

    #[test]
    fn what_is_no_database_is_refused_by_name() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("x.db");
        std::fs::write(&path, "this is a text and no database, long enough to be read as a header of one").expect("ok");
        let said = open(&path).expect_err("no database").to_string();
        assert!(said.contains("x.db") && said.contains("not a database"), "{said}");
    }
}
