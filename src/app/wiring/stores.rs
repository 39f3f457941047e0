//! Where sessions are kept: in memory, in the data directory, or in a database.

use std::path::PathBuf;
use std::sync::Arc;

use secrecy::ExposeSecret as _;

use crate::app::OpenError;
use crate::base::panics::broken;
use crate::config::{Database, Names, Setting, Settings, Storage};
use crate::store::{
    Doorway, Home, MemoryStore, PostgresStore, SqliteStore, Store, StoreError, hold_directory, hold_first_free,
};

/// Opens where sessions are kept.
pub(in crate::app) async fn store(settings: &Settings) -> Result<(Arc<dyn Store>, Option<PathBuf>), OpenError> {
    let storage = settings.storage.clone();
    if let Some(database) = &settings.database {
        return in_database(database, storage, settings.names).await;
    }
    let open = move || match storage {
        Storage::Memory => Ok((Arc::new(MemoryStore::new()) as Arc<dyn Store>, None)),
        Storage::Directory(directory) => SqliteStore::open(&directory).map(kept),
        Storage::FirstFreeUnder(directory) => SqliteStore::open_first_free(&directory).map(kept),
    };
    let opened = tokio::task::spawn_blocking(open).await;
    let failed = |e: tokio::task::JoinError| StoreError::Io { doing: "open the store".into(), cause: broken(e) };
    Ok(opened.map_err(failed)??)
}

/// What is wrong with the address of a database. Reaches nothing.
pub(in crate::app) fn database_fault(settings: &Settings) -> Option<OpenError> {
    let database = settings.database.as_ref()?;
    let expected = PostgresStore::check_address(database.address.expose_secret()).err()?;
    Some(OpenError::Setting { field: settings.names.of(Setting::Store), expected })
}

/// Opens a database. What is this server's own stays in its data directory.
async fn in_database(
    database: &Database,
    storage: Storage,
    names: Names,
) -> Result<(Arc<dyn Store>, Option<PathBuf>), OpenError> {
    let address = database.address.expose_secret();
    PostgresStore::check_address(address)
        .map_err(|expected| OpenError::Setting { field: names.of(Setting::Store), expected })?;
    let hold = move || match storage {
        Storage::Memory => Ok(None),
        Storage::Directory(directory) => hold_directory(&directory).map(|lock| Some((directory, lock))),
        Storage::FirstFreeUnder(directory) => hold_first_free(&directory).map(Some),
    };
    let held = tokio::task::spawn_blocking(hold).await;
    let failed = |e: tokio::task::JoinError| StoreError::Io { doing: "open the store".into(), cause: broken(e) };
    let (directory, lock) = held.map_err(failed)??.unzip();
    let password = database.password.as_ref().map(|password| password.expose_secret());
    let home = Home::held_by(lock);
    let home = match &database.node {
        Some(node) => home.sharing(Doorway { url: node.url.to_string(), labels: node.labels.clone() }),
        None => home,
    };
    let store = PostgresStore::open((address, password), home).await?;
    if directory.as_deref().is_some_and(SqliteStore::lies_in) && store.session_count().await? == 0 {
        tracing::warn!(
            "the database is empty, and the data directory has sessions: `simse store copy` brings them over"
        );
    }
    Ok((Arc::new(store), directory))
}

fn kept(store: SqliteStore) -> (Arc<dyn Store>, Option<PathBuf>) {
    let directory = store.directory().to_owned();
    (Arc::new(store), Some(directory))
}
