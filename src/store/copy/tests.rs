//! From SQLite to a real PostgreSQL and back: all that the conformance suite leaves behind, forks of what is gone included.

use std::path::Path;
use std::sync::Arc;

use super::{Place, Sum, copy, sum};
use crate::store::conformance::{Shared, append, create, event, holds, numbers, put, row, save, session_id, sqlite};
use crate::store::inspect::Fault;
use crate::store::postgres::tests::Postgres;
use crate::store::{Inspection, StoreError, TurnRow, Write, commit};

fn fork(id: &str, parent: &str, at: u64) -> Write {
    Write::ForkSession { row: Box::new(row(id)), parent: session_id(parent), at, chain: None }
}

fn listed(of: &str, seq: u64) -> Write {
    let mut created = event(of, None, seq, "x");
    created.kind = "session.created".into();
    Write::Append(session_id(of), Arc::new(vec![created]))
}

/// Sessions of all kinds. The turns of one of them.
async fn filled(directory: &Path) -> Vec<TurnRow> {
    holds(sqlite(directory)).await;
    let store = sqlite(directory);
    let turn = crate::protocol::TurnId::generate();
    put(&store, vec![create("tree"), listed("tree", 1), append("tree", Some(&turn), 2..=9)]).await;
    put(&store, vec![save("tree", &turn, crate::protocol::TurnStatus::Completed), append("tree", None, 10..=10)]).await;
    put(&store, vec![fork("branch", "tree", 5), append("branch", None, 6..=7)]).await;
    put(&store, vec![fork("twig", "branch", 6), append("twig", None, 7..=8)]).await;
    put(&store, vec![fork("leaf", "twig", 3)]).await;
    put(&store, vec![Write::DeleteSession(session_id("tree")), Write::DeleteSession(session_id("branch"))]).await;
    let turns = store.turns(&session_id("twig"), None, 9).await.expect("reads");
    store.close().await.expect("closes");
    turns
}

fn faults(directory: &Path) -> Vec<Fault> {
    let inspection = Inspection::open(directory).expect("opens");
    let mut faults = inspection.database().expect("looks");
    let mut number = 0;
    while let Some(next) = inspection.next_session(number).expect("reads") {
        number = next;
        faults.extend(inspection.session(number, &mut |_| ()).expect("reads").1);
    }
    faults
}

async fn is_as_it_was(store: &Shared, turns: &[TurnRow]) {
    assert_eq!(numbers(store, "twig", 0, 99).await, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(numbers(store, "leaf", 0, 99).await, [1, 2, 3]);
    assert_eq!(numbers(store, "branch", 0, 99).await, [0; 0]);
    assert_eq!(store.turns(&session_id("twig"), None, 9).await.expect("reads"), turns);
    put(store, vec![append("twig", None, 9..=9), create("new"), append("new", None, 1..=1)]).await;
    assert_eq!(numbers(store, "twig", 7, 99).await, [8, 9]);
    put(store, vec![Write::DeleteSession(session_id("new"))]).await;
}

#[tokio::test]
async fn all_of_it_goes_there_and_back() {
    let Some(postgres) = Postgres::start() else { return };
    let places = [0, 1].map(|_| tempfile::tempdir().expect("a directory"));
    let turns = filled(places[0].path()).await;
    let [first, second] = places.each_ref().map(|place| Place::Directory(place.path().to_owned()));
    let database = || Place::Database(postgres.url().into(), None);
    let there = copy(Place::clone(&first), database()).await.expect("copied");
    assert!(there.sessions > 10 && there.events > 200 && there.turns > 2, "{there:?}");
    for place in [first.clone(), database()] {
        assert_eq!(sum(place).await.as_ref(), Ok(&there));
    }
    let back = copy(database(), Place::clone(&second)).await.expect("copied");
    assert_eq!(back, there);
    assert_eq!(faults(places[1].path()), []);
    for store in [postgres.open().await, sqlite(places[1].path())] {
        is_as_it_was(&store, &turns).await;
        store.close().await.expect("closes");
    }
    let [one, other] = [sum(database()).await, sum(second).await].map(|sum| sum.expect("summed"));
    assert_eq!((one.sessions, one.events), (other.sessions, other.events));
    assert_ne!(one, there, "what came since counts");
}

#[tokio::test]
async fn what_is_not_whole_or_not_free_is_not_copied() {
    let Some(postgres) = Postgres::start() else { return };
    let home = tempfile::tempdir().expect("a directory");
    let place = || Place::Directory(home.path().to_owned());
    let database = || Place::Database(postgres.url().into(), None);
    let store = sqlite(home.path());
    put(&store, vec![create("a"), append("a", None, 1..=9), append("a", None, 10..=19)]).await;
    let held = copy(place(), database()).await;
    assert!(matches!(held, Err(StoreError::InUse { .. })), "{held:?}");
    store.close().await.expect("closes");
    let served = postgres.open().await;
    let held = copy(place(), database()).await;
    assert!(matches!(held, Err(StoreError::Occupied { .. })), "{held:?}");
    served.close().await.expect("closes");
    // One letter of an event is another one.
    let raw = rusqlite::Connection::open(home.path().join("simse.db")).expect("opens");
    let sql = "UPDATE log SET body = CAST(replace(body, 't12', 't21') AS BLOB) WHERE instr(body, 't12')";
    assert_eq!(raw.execute(sql, []).expect("changed"), 1);
    drop(raw);
    let damaged = copy(place(), database()).await;
    assert!(matches!(&damaged, Err(StoreError::Damaged { seq: 12, .. })), "{damaged:?}");
    let store = postgres.open().await;
    assert_eq!(store.session_count().await, Ok(0), "nothing of it is there");
    put(&store, vec![create("b")]).await;
    store.close().await.expect("closes");
    let full = copy(Place::Directory(tempfile::tempdir().expect("a directory").keep()), database()).await;
    assert!(matches!(&full, Err(StoreError::Io { cause, .. }) if cause.contains("simse.db")), "{full:?}");
    let other = tempfile::tempdir().expect("a directory");
    let store = sqlite(other.path());
    commit(&store, vec![create("c")]).await.expect("written");
    store.close().await.expect("closes");
    for (from, to) in [
        (database(), Place::Directory(other.path().to_owned())),
        (Place::Directory(other.path().to_owned()), database()),
    ] {
        let full: Result<Sum, _> = copy(from, to).await;
        assert!(matches!(&full, Err(StoreError::Io { cause, .. }) if cause.contains("expected")), "{full:?}");
    }
}
