//! Which of SQLite's layers to the system a database is opened through.
//!
//! With a write-ahead log comes an index of it: a file, so that several processes can read. On a disk without room it cannot be made, and
//! then the database could not even be read. So there it is kept in memory, and the database is this process's alone until it is opened the
//! next time.

use std::ffi::CStr;
use std::path::Path;

use rusqlite::{Connection, OpenFlags, ffi};

/// SQLite's own unix layer, with the index in memory.
const IN_MEMORY: &CStr = c"unix-excl";
/// What a layer says that cannot make the file of the index.
const WITHOUT_ROOM: [i32; 6] = [
    ffi::SQLITE_FULL,
    ffi::SQLITE_CANTOPEN,
    ffi::SQLITE_IOERR_WRITE,
    ffi::SQLITE_IOERR_SHMOPEN,
    ffi::SQLITE_IOERR_SHMSIZE,
    ffi::SQLITE_IOERR_SHMMAP,
];

/// How a database is opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Layer {
    /// The index is a file: other processes can read beside this one.
    #[default]
    Shared,
    /// The index is in memory.
    Alone,
}

impl Layer {
    /// A connection. All of one database have to be through the same layer.
    pub(super) fn connect(self, path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
        match self {
            Self::Shared => Connection::open_with_flags(path, flags),
            Self::Alone => Connection::open_with_flags_and_vfs(path, flags, IN_MEMORY),
        }
    }

    /// What `open` makes through the first layer that can do it.
    pub(super) fn choose<T>(path: &Path, open: impl Fn(Self) -> rusqlite::Result<T>) -> rusqlite::Result<(T, Self)> {
        match open(Self::Shared) {
            Err(error) if is_without_room(&error) => {
                // The first refusal says more than one that comes of the second try.
                let opened = open(Self::Alone).map_err(|_| error)?;
                tracing::warn!(
                    path = %path.display(),
                    "there is no room for the index of the write-ahead log: it is kept in memory, and no other process can read the database"
                );
                Ok((opened, Self::Alone))
            }
            opened => opened.map(|opened| (opened, Self::Shared)),
        }
    }
}

fn is_without_room(error: &rusqlite::Error) -> bool {
    matches!(error, rusqlite::Error::SqliteFailure(cause, _) if WITHOUT_ROOM.contains(&cause.extended_code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_the_index_in_memory_a_database_is_read_and_written_by_several_connections() {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("x.db");
        let open = |layer: Layer| {
            let connection = layer.connect(&path, OpenFlags::default())?;
            connection.query_row("PRAGMA journal_mode=WAL", [], |_| Ok(()))?;
            Ok(connection)
        };
        let (connection, layer) = Layer::choose(&path, |layer| match layer {
            Layer::Shared => Err(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_IOERR_SHMSIZE), None)),
            Layer::Alone => open(layer),
        })
        .expect("opened");
        assert_eq!(layer, Layer::Alone);
        connection.execute_batch("CREATE TABLE t (a); INSERT INTO t VALUES (1)").expect("written");
        let reader = layer.connect(&path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX);
        let reader = reader.expect("opened");
        let count = || reader.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0));
        assert_eq!(count(), Ok(1));
        connection.execute_batch("INSERT INTO t VALUES (2)").expect("written");
        assert_eq!(count(), Ok(2));
        assert!(!home.path().join("x.db-shm").exists());
        drop((connection, reader));
        assert_eq!(
            open(Layer::Shared).expect("opened").query_row("SELECT count(*) FROM t", [], |row| row.get(0)),
            Ok(2)
        );
        // What is no want of room is said as it is.
        let other = Layer::choose(&path, |_| Err::<(), _>(rusqlite::Error::QueryReturnedNoRows));
        assert_eq!(other, Err(rusqlite::Error::QueryReturnedNoRows));
    }
}
