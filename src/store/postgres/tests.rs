//! The store on a real PostgreSQL: what it does beyond what every store promises, which is in `conformance`.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use super::connect::Reach;
use super::{Doorway, Home, PostgresStore};
use crate::protocol::{ClientId, Spending, TurnId, TurnStatus};
use crate::store::conformance::{Shared, append, create, kinds, numbers, outcome, put, row, save, session_id};
use crate::store::copy::{self, Place};
use crate::store::{ClientSpending, Held, SqliteStore, Store as _, StoreError, Write, commit, hold_directory};

#[path = "../../../tests/it/support/postgres.rs"]
mod server;

pub(crate) use server::Postgres;

impl Postgres {
    pub(in crate::store) async fn open(&self) -> Shared {
        Arc::new(self.try_open(None).await.expect("opens"))
    }

    /// As a server of that home.
    async fn try_open(&self, home: Option<&Path>) -> Result<PostgresStore, StoreError> {
        let lock = home.map(|home| hold_directory(home).expect("free"));
        PostgresStore::open((&self.url(), None), Home::held_by(lock)).await
    }

    /// Beside others that write.
    async fn open_beside(&self) -> PostgresStore {
        let reach = Reach::of(&self.url(), None).expect("an address");
        PostgresStore::open_as(reach, Home::held_by(None), true).await.expect("opens")
    }

    /// As one of the servers that share it, which reaches workspaces with those labels.
    pub(crate) async fn share(&self, labels: &[&str]) -> Shared {
        Arc::new(self.open_shared(labels).await)
    }

    pub(super) async fn open_shared(&self, labels: &[&str]) -> PostgresStore {
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        let doorway = Doorway { url: "http://127.0.0.1:9".to_owned(), labels };
        let home = Home::held_by(None).sharing(doorway);
        PostgresStore::open((&self.url(), None), home).await.expect("opens")
    }

    /// Does something over a connection of its own.
    pub(crate) async fn raw(&self, sql: &str) -> Vec<String> {
        let socket = self.socket_url();
        let (client, connection) = tokio_postgres::connect(&socket, tokio_postgres::NoTls).await.expect("connects");
        let driven = tokio::spawn(connection);
        let found = client.simple_query(sql).await.expect("done");
        let value = |message: &tokio_postgres::SimpleQueryMessage| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or("NULL").to_owned()),
            _ => None,
        };
        driven.abort();
        found.iter().filter_map(value).collect()
    }
}

fn fork(id: &str, parent: &str, at: u64) -> Write {
    Write::ForkSession { row: Box::new(row(id)), parent: session_id(parent), at, chain: None }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_called_back_is_there_after_a_crash_and_nothing_comes_twice() {
    let Some(postgres) = Postgres::start() else { return };
    let store = postgres.open().await;
    put(&store, vec![create("a")]).await;
    let told: Arc<Mutex<Vec<(u64, Result<(), StoreError>)>>> = Arc::default();
    let writing = {
        let (store, told) = (Arc::clone(&store), Arc::clone(&told));
        tokio::spawn(async move {
            for seq in 1..=2_000 {
                let told = Arc::clone(&told);
                store.commit(vec![append("a", None, seq..=seq)], Box::new(move |done| told.lock().push((seq, done))));
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        })
    };
    for _ in 0..3 {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        tokio::task::block_in_place(|| postgres.tell("restart"));
    }
    writing.await.expect("written");
    commit(&store, Vec::new()).await.expect("what came before is done");
    let told = told.lock().clone();
    assert_eq!(told, (1..=2_000).map(|seq| (seq, Ok(()))).collect::<Vec<_>>(), "in order, each once");
    put(&store, vec![append("a", None, 2_001..=2_001)]).await;
    let mut seen = Vec::new();
    while let Some(last) = numbers(&store, "a", seen.last().copied().unwrap_or(0), 500).await.last().copied() {
        seen.extend(seen.last().map_or(1, |last| last + 1)..=last);
    }
    assert_eq!(seen, (1..=2_001).collect::<Vec<_>>());
    store.close().await.expect("closes");
    let again = postgres.open().await;
    assert_eq!(again.last_seq(&session_id("a")).await, Ok(2_001));
}

#[tokio::test]
async fn who_writes_behind_anothers_back_is_refused_and_learns_how_it_is() {
    let Some(postgres) = Postgres::start() else { return };
    let one = postgres.open().await;
    let other: Shared = Arc::new(postgres.open_beside().await);
    put(&one, vec![create("a"), append("a", None, 1..=2)]).await;
    put(&other, vec![append("a", None, 3..=3)]).await;
    let late = commit(&one, vec![append("a", None, 3..=3)]).await;
    assert!(matches!(&late, Err(StoreError::Io { cause, .. }) if cause.contains("came where 4 was due")), "{late:?}");
    put(&one, vec![append("a", None, 4..=4)]).await;
    assert_eq!(numbers(&other, "a", 0, 9).await, [1, 2, 3, 4]);
    // The same id at the same moment: one of both has it.
    for at in 0..20 {
        let id = format!("same-{at}");
        let made = [&one, &other].map(|store| commit(store, vec![create(&id), append(&id, None, 1..=1)]));
        let [first, second] = made;
        let (first, second) = tokio::join!(first, second);
        let taken = Err(StoreError::Taken(session_id(&id)));
        assert!((first == Ok(()) && second == taken) || (second == Ok(()) && first == taken), "{first:?} {second:?}");
    }
    // Both list what happened, in one order.
    assert_eq!(one.session_count().await, Ok(21));
}

#[tokio::test]
async fn forks_share_rows_and_what_is_deleted_is_swept_up() {
    let Some(postgres) = Postgres::start() else { return };
    let store = postgres.open().await;
    let turn = TurnId::generate();
    put(&store, vec![create("a"), append("a", Some(&turn), 1..=3), append("a", None, 4..=9)]).await;
    put(&store, vec![save("a", &turn, TurnStatus::Completed)]).await;
    put(&store, vec![fork("b", "a", 2)]).await;
    put(&store, vec![append("b", None, 3..=4)]).await;
    put(&store, vec![fork("c", "b", 4), append("c", None, 5..=5)]).await;
    put(&store, vec![fork("d", "c", 1)]).await;
    assert_eq!(numbers(&store, "b", 0, 9).await, [1, 2, 3, 4]);
    assert_eq!(numbers(&store, "c", 0, 9).await, [1, 2, 3, 4, 5]);
    assert_eq!(numbers(&store, "c", 3, 9).await, [4, 5]);
    assert_eq!(numbers(&store, "d", 0, 9).await, [1]);
    let refused = commit(&store, vec![fork("e", "d", 2)]).await;
    assert!(matches!(refused, Err(StoreError::Io { .. })), "{refused:?}");
    put(&store, vec![Write::DeleteSession(session_id("a")), Write::DeleteSession(session_id("b"))]).await;
    assert_eq!(numbers(&store, "a", 0, 9).await, [0; 0]);
    assert_eq!(numbers(&store, "c", 0, 9).await, [1, 2, 3, 4, 5], "what a fork reads stays");
    let doomed = async || postgres.raw("SELECT count(*) FROM doomed").await;
    put(&store, ["c", "d"].map(|id| Write::DeleteSession(session_id(id))).into()).await;
    while doomed().await != ["0"] {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let left = "SELECT (SELECT count(*) FROM log) + (SELECT count(*) FROM turn) + (SELECT count(*) FROM fork) + (SELECT count(*) FROM log_end)";
    assert_eq!(postgres.raw(left).await, ["0"]);
}

#[tokio::test]
async fn newer_tables_are_refused_and_a_database_that_is_away_is_said() {
    let Some(postgres) = Postgres::start() else { return };
    drop(postgres.open().await);
    postgres.raw("UPDATE simse_schema SET version = 99, oldest = 99").await;
    let refused = postgres.try_open(None).await.err();
    assert!(matches!(&refused, Some(StoreError::TooNew { found: 99, .. })), "{refused:?}");
    // Tables that were only added to are worked with as if nothing had been.
    let added = "UPDATE simse_schema SET version = 5, oldest = 3; ALTER TABLE session ADD COLUMN newer text; CREATE TABLE newer (t text)";
    postgres.raw(added).await;
    let store = postgres.open().await;
    put(&store, vec![create("a"), append("a", None, 1..=2)]).await;
    assert_eq!(numbers(&store, "a", 0, 9).await, [1, 2]);
    store.close().await.expect("closes");
    assert_eq!(postgres.raw("SELECT version FROM simse_schema").await, ["5"], "it is not put back");
    postgres.raw("UPDATE simse_schema SET oldest = 5").await;
    let refused = postgres.try_open(None).await.err();
    assert!(matches!(&refused, Some(StoreError::TooNew { found: 5, known: 4, .. })), "{refused:?}");
    postgres.tell("stop");
    let refused = postgres.try_open(None).await.err().map(|error| error.to_string());
    assert!(refused.as_ref().is_some_and(|said| said.contains("127.0.0.1") && said.contains("refused")), "{refused:?}");
}

#[tokio::test]
async fn a_database_has_one_server_and_who_is_silent_is_followed() {
    let Some(postgres) = Postgres::start() else { return };
    let (home, other) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let first = postgres.try_open(Some(home.path())).await.expect("opens");
    let refused = postgres.try_open(Some(other.path())).await.err().map(|error| error.to_string());
    let said = format!("is in use by another simse server: {} (pid {})", machine(), std::process::id());
    assert!(refused.as_ref().is_some_and(|refused| refused.ends_with(&said)), "{refused:?}");
    first.close().await.expect("closes");
    // Who has left is not waited for.
    let began = std::time::Instant::now();
    let second = postgres.try_open(Some(other.path())).await.expect("opens");
    assert!(began.elapsed() < super::node::SILENCE_MAX, "{:?}", began.elapsed());
    // A process that was killed: its lock is free, and nobody beats for it.
    second.forget();
    let third = postgres.try_open(Some(other.path())).await.expect("the same home follows at once");
    third.forget();
    let began = std::time::Instant::now();
    let fourth = postgres.try_open(Some(home.path())).await.expect("another one waits for its silence");
    assert!(began.elapsed() >= super::node::SILENCE_MAX, "{:?}", began.elapsed());
    fourth.close().await.expect("closes");
}

#[tokio::test]
async fn who_was_declared_over_writes_nothing_more_and_says_so() {
    let Some(postgres) = Postgres::start() else { return };
    let first: Shared = Arc::new(postgres.open_beside().await);
    put(&first, vec![create("a"), append("a", None, 1..=1)]).await;
    // As one that was frozen in the middle of a transaction: who declares it over waits until the transaction has ended.
    let (line, connection) = tokio_postgres::connect(&postgres.url(), tokio_postgres::NoTls).await.expect("connects");
    tokio::spawn(connection);
    let number: i64 = line.query_one("SELECT max(number) FROM node", &[]).await.expect("read").get(0);
    let lock = format!("BEGIN; UPDATE node SET written = written WHERE number = {number}");
    line.batch_execute(&lock).await.expect("locked");
    let second = postgres.open_beside().await;
    {
        let declaring = second.declare_over(number);
        tokio::pin!(declaring);
        let early = tokio::time::timeout(std::time::Duration::from_millis(300), &mut declaring).await;
        assert!(early.is_err(), "{early:?}");
        line.batch_execute("COMMIT").await.expect("ends");
        declaring.await.expect("declared over");
    }
    for _ in 0..2 {
        assert_eq!(commit(&first, vec![append("a", None, 2..=2)]).await, Err(StoreError::TakenOver));
    }
    assert_eq!(first.check().await, Err(StoreError::TakenOver));
    let second: Shared = Arc::new(second);
    put(&second, vec![append("a", None, 2..=2)]).await;
    assert_eq!(numbers(&first, "a", 0, 9).await, [1, 2], "it may still read");
}

fn machine() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Of the tests of the server's own door.
fn certificate(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/tls").join(name).display().to_string()
}

#[tokio::test]
async fn who_it_is_and_who_comes_is_made_sure_of() {
    let files = tempfile::tempdir().expect("a directory");
    for name in ["one.pem", "one.key"] {
        std::fs::copy(certificate(name), files.path().join(name)).expect("copied");
    }
    let doors = "local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n";
    std::fs::write(files.path().join("doors"), doors).expect("written");
    let settings = |home: &Path| {
        let home = home.display();
        [
            "ssl=on",
            &format!("ssl_cert_file={home}/one.pem"),
            &format!("ssl_key_file={home}/one.key"),
            &format!("hba_file={home}/doors"),
        ]
        .map(str::to_owned)
        .to_vec()
    };
    let Some(postgres) = Postgres::start_with(Some(files.path()), settings) else { return };
    postgres.raw("ALTER ROLE simse PASSWORD 's3cret'").await;
    let (ours, theirs) = (certificate("ca-one.pem"), certificate("ca-two.pem"));
    let table = [
        ("", Some("s3cret"), Ok(())),
        (":s3cret", None, Ok(())),
        (":s3cret", Some("another"), Ok(())),
        ("", Some("wr0ng"), Err("password authentication failed")),
        ("", None, Err("password")),
    ];
    let modes = [
        ("", Ok(())),
        ("?sslmode=prefer", Ok(())),
        ("?sslmode=disable", Err("no encryption")),
        ("?sslmode=require&sslrootcert=OURS", Ok(())),
        ("?sslmode=verify-full&sslrootcert=OURS", Ok(())),
        ("?sslmode=verify-full&sslrootcert=THEIRS", Err("certificate")),
        ("?sslmode=require", Err("certificate")),
    ];
    let tries = table.into_iter().map(|(user, password, want)| ("", user, password, want));
    for (mode, user, password, want) in tries.chain(modes.map(|(mode, want)| (mode, "", Some("s3cret"), want))) {
        let mode = mode.replace("OURS", &ours).replace("THEIRS", &theirs);
        let url = format!("postgres://simse{user}@127.0.0.1:{}/postgres{mode}", postgres.port());
        let opened = PostgresStore::open((&url, password), Home::held_by(None)).await;
        match (opened, want) {
            (Ok(store), Ok(())) => store.close().await.expect("closes"),
            (Err(error), Err(want)) => {
                let said = error.to_string();
                assert!(said.contains(want) && !said.contains("s3cret") && !said.contains("wr0ng"), "{url}: {said}");
            }
            (opened, want) => panic!("{url}: {:?}, not {want:?}", opened.err()),
        }
    }
}

#[tokio::test]
async fn a_part_of_the_log_goes_as_a_whole_when_no_session_of_it_is_left() {
    let Some(postgres) = Postgres::start() else { return };
    let store = postgres.open().await;
    let parts = async || postgres.raw("SELECT relname FROM pg_class WHERE relname ~ '^log_[0-9]+$' ORDER BY 1").await;
    put(&store, vec![create("a"), append("a", None, 1..=3)]).await;
    put(&store, vec![create("b"), append("b", None, 1..=3)]).await;
    assert_eq!(parts().await, ["log_0"]);
    // As if so many had come since.
    let (.., upto) = super::schema::partition_of(0);
    postgres.raw(&format!("SELECT setval('session_number', {})", 2 * upto + 5)).await;
    put(&store, vec![create("c"), append("c", None, 1..=3), fork("d", "b", 2)]).await;
    assert_eq!(parts().await, ["log_0", "log_2"]);
    let swept = async || {
        let left = "SELECT count(*) FROM doomed WHERE NOT EXISTS (SELECT 1 FROM fork WHERE parent = doomed.session)";
        while postgres.raw(left).await != ["0"] {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    put(&store, vec![Write::DeleteSession(session_id("a")), Write::DeleteSession(session_id("b"))]).await;
    swept().await;
    assert_eq!(parts().await, ["log_0", "log_2"], "a fork reads of it");
    assert_eq!(numbers(&store, "d", 0, 9).await, [1, 2]);
    put(&store, vec![Write::DeleteSession(session_id("d"))]).await;
    swept().await;
    assert_eq!(parts().await, ["log_2"]);
    assert_eq!(numbers(&store, "c", 0, 9).await, [1, 2, 3]);
}

#[tokio::test]
async fn what_takes_too_long_is_given_up_and_everything_else_goes_on() {
    let Some(postgres) = Postgres::start() else { return };
    let store = postgres.open().await;
    put(&store, vec![create("a"), create("b")]).await;
    // Somebody holds the row of a session: its commits wait for the lock, are refused, and take nothing with them.
    let (line, connection) = tokio_postgres::connect(&postgres.url(), tokio_postgres::NoTls).await.expect("connects");
    tokio::spawn(connection);
    line.batch_execute("BEGIN; SELECT * FROM log_end WHERE session = 1 FOR UPDATE").await.expect("held");
    let reach = Reach::of(&postgres.url().replace("disable", "disable&options=-c%20lock_timeout%3D200"), None);
    let impatient = PostgresStore::open_as(reach.expect("an address"), Home::held_by(None), true).await.expect("opens");
    let impatient: Shared = Arc::new(impatient);
    let [held, free] = ["a", "b"].map(|id| commit(&impatient, vec![append(id, None, 1..=1)]));
    let (held, free) = tokio::join!(held, free);
    assert!(matches!(&held, Err(StoreError::Io { cause, .. }) if cause.contains("lock timeout")), "{held:?}");
    assert_eq!(free, Ok(()));
    line.batch_execute("COMMIT").await.expect("given back");
    put(&impatient, vec![append("a", None, 1..=1)]).await;
    assert_eq!(numbers(&impatient, "a", 0, 9).await, [1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_reach_a_workspace_takes_none_of_its_sessions() {
    let Some(postgres) = Postgres::start() else { return };
    let [one, both, other, none] = [
        postgres.share(&["one"]).await,
        postgres.share(&["one", "two"]).await,
        postgres.share(&["two"]).await,
        postgres.share(&[]).await,
    ];
    let turn = TurnId::generate();
    let open = |id: &str| vec![create(id), append(id, None, 1..=1), save(id, &turn, TurnStatus::Queued)];
    put(&one, open("labelled")).await;
    put(&none, open("free")).await;
    let root = |id: &str| session_id(id);
    let look = async |store: &Shared, id: &str| store.cluster().expect("shared").look(&root(id)).await;
    assert!(matches!(look(&other, "labelled").await, Ok(Held::Elsewhere(_))), "as long as it is there");
    one.close().await.expect("closes");
    none.close().await.expect("closes");
    let labels = vec!["one".to_owned()];
    let later = postgres.share(&[]).await;
    for store in [&other, &later] {
        let cluster = store.cluster().expect("shared");
        assert_eq!(look(store, "labelled").await, Ok(Held::OutOfReach { labels: labels.clone() }));
        assert_eq!(cluster.take(&root("labelled")).await, Ok(false));
        assert_eq!(cluster.left_behind(9).await, Ok(vec![root("free")]));
    }
    assert_eq!(look(&both, "labelled").await, Ok(Held::Free { root: root("labelled") }));
    let cluster = both.cluster().expect("shared");
    let mut left = cluster.left_behind(9).await.expect("read");
    left.sort();
    assert_eq!(left, [root("free"), root("labelled")]);
    assert_eq!(cluster.take(&root("labelled")).await, Ok(true));
    put(&both, vec![append("labelled", None, 2..=2)]).await;
    // It stays where it can be reached: not with the labels of whoever had it last.
    both.close().await.expect("closes");
    assert_eq!(look(&other, "labelled").await, Ok(Held::OutOfReach { labels }));
    assert_eq!(other.cluster().expect("shared").take(&root("free")).await, Ok(true));
}

/// So many sessions, for which two servers race.
const RACES: usize = 200;

#[tokio::test(flavor = "multi_thread")]
async fn what_two_servers_take_at_once_one_of_them_has() {
    let Some(postgres) = Postgres::start() else { return };
    let [gone, one, two] = [postgres.share(&[]).await, postgres.share(&[]).await, postgres.share(&[]).await];
    let ids: Vec<String> = (0..RACES).map(|nth| format!("s{nth}")).collect();
    for id in &ids {
        put(&gone, vec![create(id), append(id, None, 1..=1)]).await;
    }
    gone.close().await.expect("closes");
    let [first, second] = [&one, &two].map(|store| store.cluster().expect("shared"));
    for id in &ids {
        let root = session_id(id);
        let (taken, also) = tokio::join!(first.take(&root), second.take(&root));
        assert!(matches!((&taken, &also), (Ok(true), Ok(false)) | (Ok(false), Ok(true))), "{id}: {taken:?} {also:?}");
        let (has, other) = if taken == Ok(true) { (&one, &two) } else { (&two, &one) };
        put(has, vec![append(id, None, 2..=2)]).await;
        assert!(commit(other, vec![append(id, None, 3..=3)]).await.is_err(), "{id}: two servers write");
    }
}

/// Each of two servers writes for the same client, and of the same commands, at the same moment.
#[tokio::test(flavor = "multi_thread")]
async fn two_servers_at_the_same_names_wait_for_each_other_in_one_order() {
    let Some(postgres) = Postgres::start() else { return };
    let [one, two] = [postgres.share(&[]).await, postgres.share(&[]).await];
    for nth in 0..RACES {
        let now = 1_000 + nth as u64 * 10;
        let of = |server: &str, names: &[(&str, u64)]| {
            let id = format!("{server}{nth}");
            let mut writes = vec![create(&id), kinds(&id, 1, &["session.created"])];
            let row = |(name, at): &(&str, u64)| outcome(&format!("{name}{nth}"), now + at, Some("{}"));
            writes.extend(names.iter().map(|name| Write::SaveOutcome(Box::new(row(name)))));
            writes
        };
        // Names of other moments are other statements, and the client's row is between them.
        let (one, two) = tokio::join!(
            commit(&one, of("one", &[("own", 0), ("both", 1)])),
            commit(&two, of("two", &[("both", 1), ("other", 2)]))
        );
        let begun = Err(StoreError::Begun);
        assert!((one == Ok(()) && two == begun) || (one == begun && two == Ok(())), "{nth}: {one:?} {two:?}");
    }
    postgres.raw("SELECT pg_stat_force_next_flush()").await;
    let deadlocks = postgres.raw("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").await;
    assert_eq!(deadlocks, ["0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_spends_is_added_up_over_all_servers() {
    let Some(postgres) = Postgres::start() else { return };
    let client = |name: &str| Some(name.parse::<ClientId>().expect("an id"));
    let spent = |name: &str, began, tokens| {
        let spent = Spending { tokens, ..Spending::default() };
        ClientSpending { client: Some(name).filter(|name| !name.is_empty()).and_then(client), began, spent }
    };
    let save = |row: ClientSpending| vec![Write::SaveSpending(Box::new(row))];
    let alone = postgres.open().await;
    put(&alone, save(spent("a", 100, 1))).await;
    alone.close().await.expect("closes");
    let [one, two] = [postgres.share(&[]).await, postgres.share(&[]).await];
    put(&one, save(spent("a", 100, 2))).await;
    put(&one, save(spent("", 100, 7))).await;
    put(&two, save(spent("a", 100, 20))).await;
    put(&two, save(spent("a", 100, 40))).await;
    assert_eq!(one.spending(client("a").as_ref()).await, Ok(Some(spent("a", 100, 2))));
    assert_eq!(two.spending(None).await, Ok(None));
    let all = [client("a"), client("b"), None];
    let elsewhere = async |store: &Shared| store.cluster().expect("shared").spent_elsewhere(&all).await;
    assert_eq!(elsewhere(&one).await, Ok(vec![spent("a", 100, 41)]));
    assert_eq!(elsewhere(&two).await, Ok(vec![spent("", 100, 7), spent("a", 100, 3)]));
    // The next span, and a clock that is late.
    put(&two, save(spent("a", 200, 5))).await;
    put(&one, save(spent("a", 100, 3))).await;
    assert_eq!(elsewhere(&one).await, Ok(vec![spent("a", 200, 5)]));
    put(&one, save(spent("a", 200, 6))).await;
    one.close().await.expect("closes");
    two.close().await.expect("closes");
    let copy = tempfile::tempdir().expect("a directory");
    let (from, to) = (Place::Database(postgres.url().into(), None), Place::Directory(copy.path().to_owned()));
    copy::copy(from, to).await.expect("copied");
    let copy = SqliteStore::open(copy.path()).expect("opens");
    assert_eq!(copy.spending(client("a").as_ref()).await, Ok(Some(spent("a", 200, 11))));
    // Who has it alone again goes on with all of it.
    let alone = postgres.open().await;
    assert_eq!(alone.spending(client("a").as_ref()).await, Ok(Some(spent("a", 200, 11))));
    put(&alone, save(spent("a", 200, 12))).await;
    assert_eq!(alone.spending(client("a").as_ref()).await, Ok(Some(spent("a", 200, 12))));
}
