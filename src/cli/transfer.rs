//! `simse export` and `simse import`: a session as a file. Both work on the data directory itself: an export also while a
//! server runs, an import only when none does.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::arguments::{Export, Import, Place};
use super::{Exit, screen};
use crate::config::{Launch, Options, data_directory};
use crate::protocol::SessionId;
use crate::session::transfer::{Imported, TransferError, export as write_session};
use crate::store::{Inspection, SqliteStore, Store, StoreError, commit};

/// Where the data is, as the arguments say.
pub(super) fn directory_of(place: Place) -> Result<PathBuf, Exit> {
    let options = Options { data_dir: place.data_dir, ..Options::default() };
    match Launch::resolve(options, place.config, Options::default()) {
        Ok(launch) if launch.settings.database.is_some() => {
            let store = launch.said.store.map(|store| store.to_string()).unwrap_or_default();
            screen::problem(format!(
                "the sessions are in {store}: this works on those of a data directory; `simse store copy` brings them there"
            ));
            Err(Exit::Usage)
        }
        Ok(launch) => Ok(launch.data_directory),
        Err(error) => {
            screen::problem(error);
            Err(Exit::Usage)
        }
    }
}

fn exit_of(error: &TransferError) -> Exit {
    screen::problem(screen::clean(&error.to_string()));
    match error {
        TransferError::NotRead(_) | TransferError::Damaged(_) | TransferError::NoSession(_) => Exit::Failed,
        TransferError::Store(StoreError::Taken(_)) | TransferError::File(_) => Exit::Failed,
        TransferError::Store(_) => Exit::CannotStart,
    }
}

/// Writes a session to a file or to stdout.
pub(super) fn export(arguments: Export) -> Exit {
    let directory = match directory_of(arguments.place) {
        Ok(directory) => directory,
        Err(exit) => return exit,
    };
    match exported(&directory, &arguments.session, arguments.out.as_deref()) {
        Ok(said) => {
            screen::note(&said);
            Exit::Ok
        }
        Err(error) => exit_of(&error),
    }
}

fn exported(directory: &Path, session: &SessionId, out: Option<&Path>) -> Result<String, TransferError> {
    let inspection = Inspection::open(directory)?;
    let (version, newest) = inspection.versions();
    if version < newest {
        let cause = format!("schema version {version}: start a server of version {newest} on it first");
        return Err(StoreError::Io { doing: "read the database".into(), cause }.into());
    }
    let chain = match out {
        None => write_session(&inspection, session, &mut screen::out())?,
        Some(path) => {
            data_directory::check_place(path).map_err(|e| TransferError::File(std::io::Error::other(e.to_string())))?;
            let parent = path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
            // Its owner's alone, and there only when it is whole.
            let mut file = BufWriter::new(tempfile::NamedTempFile::new_in(parent)?);
            let chain = write_session(&inspection, session, &mut file)?;
            file.flush()?;
            let file = file.into_inner().map_err(|e| TransferError::File(e.into_error()))?;
            file.as_file().sync_all()?;
            file.persist(path).map_err(|e| TransferError::File(e.error))?;
            chain
        }
    };
    Ok(format!("session {session}: {} events, chain {}", chain.seq(), chain.head()))
}

/// Reads a session from a file.
pub(super) async fn import(arguments: Import) -> Exit {
    let directory = match directory_of(arguments.place.clone()) {
        Ok(directory) => directory,
        Err(exit) => return exit,
    };
    match imported(&directory, arguments).await {
        Ok(id) => {
            screen::line(id.as_str());
            Exit::Ok
        }
        Err(error) => exit_of(&error),
    }
}

async fn imported(directory: &Path, arguments: Import) -> Result<SessionId, TransferError> {
    let named =
        |cause: std::io::Error| std::io::Error::new(cause.kind(), format!("{}: {cause}", arguments.file.display()));
    let mut session = Imported::read(&mut BufReader::new(File::open(&arguments.file).map_err(named)?))?;
    if arguments.new_id {
        session.rename(&SessionId::generate());
    }
    if arguments.client.is_some() || arguments.no_client {
        session.give_to(arguments.client);
    }
    let (id, events) = (session.id().clone(), session.events());
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(directory)?);
    let written = commit(&store, session.into_changes()).await;
    store.close().await?;
    written?;
    screen::note(&format!("session {id}: {events} events"));
    Ok(id)
}
