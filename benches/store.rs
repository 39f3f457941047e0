//! `cargo bench --bench store`: how many events a second go into the store, on SQLite and on PostgreSQL, and what the database makes of the
//! same rows when nothing but them is loaded.
//!
//! Sessions hand in events as a turn that streams does: one commit of a session is under way at a time, and what came meanwhile goes with
//! the next, up to `PACK` events. Besides: one event for each commit. The bare load is a COPY of the very rows of the log that the store has
//! written, into a table like it, in as many transactions as the store's groups were.
//!
//! Environment: `SESSIONS` (256), `EVENTS` of each (2000), `PACK` (64), `POSTGRES` (an address with an empty database; none: one is started).

#![allow(clippy::print_stdout, reason = "figures are what it is for")]
#![allow(clippy::cast_precision_loss, reason = "numbers of events")]

use std::sync::Arc;
use std::time::Instant;

use serde_json::value::RawValue;
use simse::base::metrics::Page;
use simse::protocol::{Event, PermissionMode, Reasoning, SessionId, SessionStatus, TurnId, Usage};
use simse::store::{Home, PostgresStore, SessionRow, SessionSettings, SqliteStore, Store, Write, commit};
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, NoTls, Row};

#[path = "../tests/it/support/postgres.rs"]
#[allow(dead_code, reason = "tests use the rest of it")]
mod postgres;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn row(id: &SessionId) -> SessionRow {
    SessionRow {
        id: id.clone(),
        client: None,
        status: SessionStatus::Created,
        version: 0,
        created_at: 10,
        updated_at: 10,
        message_count: 0,
        spent: Default::default(),
        usage: Usage::default(),
        settings: SessionSettings {
            working_directory: "/w".into(),
            additional_directories: Vec::new(),
            agent: None,
            interaction_mode: None,
            model: "demo/scripted".into(),
            title: None,
            instructions: None,
            tools: None,
            without_tools: Vec::new(),
            reasoning: Reasoning::default(),
            agent_options: Default::default(),
            model_fallbacks: None,
            budget: None,
            permissions: None,
            permission_mode: PermissionMode::default(),
            grants: Vec::new(),
        },
        lineage: None,
        children: Vec::new(),
        shared: Default::default(),
    }
}

fn event(session: &SessionId, turn: &TurnId, seq: u64) -> Event {
    Event {
        seq,
        kind: "stream.delta".into(),
        payload: RawValue::from_string(format!(r#"{{"text":"word{seq} of it"}}"#))
            .expect("a bench that cannot go on ends"),
        session_id: session.clone(),
        turn_id: Some(turn.clone()),
        at: 1_700_000_000_000 + seq,
    }
}

/// Transactions so far, as the metrics have them.
fn transactions(store: &Arc<dyn Store>) -> u64 {
    let mut page = Page::default();
    store.meter().expect("a bench that cannot go on ends").write(&mut page);
    let text = page.into_text();
    let count = text.lines().find_map(|line| line.strip_prefix("simse_store_commit_size_count "));
    count.expect("a bench that cannot go on ends").trim().parse().expect("a bench that cannot go on ends")
}

/// Appends so many events to each session. Events a second, and how many transactions it took.
async fn append(store: &Arc<dyn Store>, sessions: u64, (events, pack): (u64, u64)) -> (f64, u64) {
    let ids: Vec<SessionId> = (0..sessions).map(|_| SessionId::generate()).collect();
    commit(store, ids.iter().map(|id| Write::CreateSession(Box::new(row(id)))).collect())
        .await
        .expect("a bench that cannot go on ends");
    let (began, before) = (Instant::now(), transactions(store));
    let work = ids.into_iter().map(|id| {
        let store = Arc::clone(store);
        tokio::spawn(async move {
            let turn = TurnId::generate();
            let mut next = 1;
            while next <= events {
                let upto = (next + pack - 1).min(events);
                let some = (next..=upto).map(|seq| event(&id, &turn, seq)).collect();
                commit(&store, vec![Write::Append(id.clone(), Arc::new(some))])
                    .await
                    .expect("a bench that cannot go on ends");
                next = upto + 1;
            }
        })
    });
    for done in work.collect::<Vec<_>>() {
        done.await.expect("a bench that cannot go on ends");
    }
    ((sessions * events) as f64 / began.elapsed().as_secs_f64(), transactions(store) - before)
}

/// Loads the rows of the log alone. Seconds.
async fn load(client: &Client, rows: &[Row], transactions: usize) -> f64 {
    client
        .batch_execute(
            "DROP TABLE IF EXISTS bare; CREATE TABLE bare (LIKE log INCLUDING ALL) PARTITION BY RANGE (session);
            CREATE TABLE bare_0 PARTITION OF bare DEFAULT; CHECKPOINT",
        )
        .await
        .expect("a bench that cannot go on ends");
    let types = [Type::INT8, Type::INT8, Type::INT8, Type::TEXT, Type::INT8, Type::BYTEA];
    let began = Instant::now();
    for some in rows.chunks(rows.len().div_ceil(transactions.max(1))) {
        let sink = client
            .copy_in("COPY bare (session, first, count, turn, at, body) FROM STDIN BINARY")
            .await
            .expect("a bench that cannot go on ends");
        let writer = BinaryCopyInWriter::new(sink, &types);
        tokio::pin!(writer);
        for row in some {
            let (session, first, count, at): (i64, i64, i64, i64) = (row.get(0), row.get(1), row.get(2), row.get(4));
            let (turn, body): (Option<&str>, &[u8]) = (row.get(3), row.get(5));
            writer
                .as_mut()
                .write(&[&session, &first, &count, &turn, &at, &body])
                .await
                .expect("a bench that cannot go on ends");
        }
        writer.finish().await.expect("a bench that cannot go on ends");
    }
    began.elapsed().as_secs_f64()
}

#[tokio::main]
async fn main() {
    let (sessions, events, pack) = (number("SESSIONS", 256), number("EVENTS", 2_000), number("PACK", 64));
    let directory = tempfile::tempdir().expect("a bench that cannot go on ends");
    let sqlite: Arc<dyn Store> = Arc::new(SqliteStore::open(directory.path()).expect("a bench that cannot go on ends"));
    let started = if std::env::var_os("POSTGRES").is_none() { postgres::Postgres::start() } else { None };
    let url = std::env::var("POSTGRES").ok().or_else(|| started.as_ref().map(postgres::Postgres::url));
    let url = url.expect("a PostgreSQL");
    let database =
        PostgresStore::open((&url, None), Home::held_by(None)).await.expect("a bench that cannot go on ends");
    let database: Arc<dyn Store> = Arc::new(database);
    println!("{sessions} sessions, {events} events each; events a second (transactions)");
    for (name, pack, events) in [("one event a commit", 1, events / 10), ("up to {pack} events a commit", pack, events)]
    {
        let name = name.replace("{pack}", &pack.to_string());
        for (place, store) in [("SQLite", &sqlite), ("PostgreSQL", &database)] {
            let (rate, groups) = append(store, sessions, (events, pack)).await;
            println!("{place}, {name}: {rate:.0} ({groups})");
            if place == "SQLite" {
                continue;
            }
            let (client, connection) =
                tokio_postgres::connect(&url, NoTls).await.expect("a bench that cannot go on ends");
            tokio::spawn(connection);
            let sql = "SELECT session, first, count, turn, at, body FROM log WHERE session > (SELECT max(number) - $1 FROM session)
                ORDER BY session, first";
            let last = i64::try_from(sessions).expect("a bench that cannot go on ends");
            let rows = client.query(sql, &[&last]).await.expect("a bench that cannot go on ends");
            for (how, transactions) in [("in as many transactions", groups), ("in one transaction", 1)] {
                let seconds =
                    load(&client, &rows, usize::try_from(transactions).expect("a bench that cannot go on ends")).await;
                let bare = (sessions * events) as f64 / seconds;
                println!(
                    "  the same {} rows by COPY {how}: {bare:.0}; the store reaches {:.2} of it",
                    rows.len(),
                    rate / bare
                );
            }
        }
    }
    for store in [sqlite, database] {
        store.close().await.expect("a bench that cannot go on ends");
    }
}
