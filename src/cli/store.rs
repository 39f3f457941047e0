//! `simse store`: copies all sessions from SQLite into PostgreSQL or back, and sums up what one of both has.

use super::arguments::{Place, StoreCopy, StoreSum, StoreVerb};
use super::{Exit, screen};
use crate::config::{Database, Launch, Options, StoreAddress};
use crate::store::copy::{self, Sum};
use crate::store::{StoreError, copy::Place as Where};

/// Does it.
pub(super) async fn run(verb: StoreVerb) -> Exit {
    let done = match verb {
        StoreVerb::Copy(arguments) => copied(arguments).await,
        StoreVerb::Sum(arguments) => summed(arguments).await,
    };
    match done {
        Ok(()) => Exit::Ok,
        Err(exit) => exit,
    }
}

async fn copied(StoreCopy { from, to, place }: StoreCopy) -> Result<(), Exit> {
    let launch = launch(place)?;
    if from == to {
        screen::problem(
            "--from, --to: expected two different stores, one of them `sqlite`, which is meant where none is named",
        );
        return Err(Exit::Usage);
    }
    let (source, target) = (where_of(from.clone(), &launch), where_of(to.clone(), &launch));
    let sum = copy::copy(source, target).await.map_err(refused)?;
    screen::note(&format!("{} -> {}", shown(&from, &launch), shown(&to, &launch)));
    tell(&sum);
    Ok(())
}

async fn summed(StoreSum { of, place }: StoreSum) -> Result<(), Exit> {
    let launch = launch(place)?;
    let sum = copy::sum(where_of(of, &launch)).await.map_err(refused)?;
    tell(&sum);
    Ok(())
}

fn launch(place: Place) -> Result<Launch, Exit> {
    let options = Options { data_dir: place.data_dir, ..Options::default() };
    Launch::resolve(options, place.config, Options::default()).map_err(|error| {
        screen::problem(error);
        Exit::Usage
    })
}

fn where_of(store: StoreAddress, launch: &Launch) -> Where {
    match Database::of(store) {
        None => Where::Directory(launch.data_directory.clone()),
        Some(Database { address, password, node: _ }) => Where::Database(address, password),
    }
}

fn shown(store: &StoreAddress, launch: &Launch) -> String {
    match store {
        StoreAddress::Sqlite => launch.data_directory.display().to_string(),
        StoreAddress::Postgres(_) => store.to_string(),
    }
}

fn tell(sum: &Sum) {
    let Sum { sessions, turns, events, hash } = sum;
    screen::line(&format!("{sessions} sessions, {turns} turns, {events} events: {hash}"));
}

fn refused(error: StoreError) -> Exit {
    screen::problem(screen::clean(&error.to_string()));
    match error {
        StoreError::Damaged { .. } => Exit::Failed,
        _ => Exit::CannotStart,
    }
}
