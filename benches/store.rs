//! `cargo bench --bench store`: how many events a second go into the store, on SQLite, on PostgreSQL, and on one PostgreSQL that three
//! servers share, and what the database makes of the same rows when nothing but them is loaded.
//!
//! Sessions hand in events as a turn that streams does: one commit of a session is under way at a time, and what came meanwhile goes with
//! the next, up to `PACK` events. Besides: one event for each commit. Three servers are three stores of this process that write side by
//! side, each its own `SESSIONS` sessions; their rate is that of all of them, from the first commit to the last.
//!
//! The bare load is the very rows of the log that the stores have written, sorted, into a table like it, with the same durability, over as
//! many connections side by side as there were stores: by COPY and by INSERT of many rows (arrays, as the store has them), in as many
//! transactions as the stores' groups were, and in one of each connection; and the same events as rows of their own. It has nothing of what
//! else a store does: making rows of events, the ends of logs, the mark of the node, words for the other nodes. Before each of them the
//! database has made a checkpoint.
//!
//! All of it is done `ROUNDS` times, one behind the other. Medians; a ratio is the median of the rounds' ratios. Stores and database share the
//! machine, so what the database alone takes stands there too: the processor time of all its processes, where they are on this machine.
//!
//! Environment: `SESSIONS` (256), `EVENTS` of each (2000), `PACK` (64), `ROUNDS` (3), `NODES` (1,3), `BARE` (1; 0: no bare load), `POSTGRES`
//! (an address with an empty database; none: one is started).

#![allow(clippy::print_stdout, reason = "figures are what it is for")]
#![allow(clippy::cast_precision_loss, reason = "numbers of events")]

use std::sync::Arc;
use std::time::Instant;

use futures_util::future::join_all;
use serde_json::value::RawValue;
use simse::base::metrics::Page;
use simse::protocol::{Event, PermissionMode, Reasoning, SessionId, SessionStatus, TurnId, Usage};
use simse::store::{Doorway, Home, PostgresStore, SessionRow, SessionSettings, SqliteStore, Store, Write, commit};
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, NoTls, Row, Statement};

#[path = "../tests/it/support/postgres.rs"]
#[allow(dead_code, reason = "tests use the rest of it")]
mod postgres;

/// As the server has it; with the addon, the crate brings it.
#[cfg(not(feature = "node"))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ENDS: &str = "a bench that cannot go on ends";
/// Rows of one INSERT, at most: as many as a group of the store has commits.
const INSERTED_MAX: usize = 1_024;
/// Ticks of /proc/PID/stat a second.
const TICKS: f64 = 100.0;

/// What stores have done side by side.
struct Run {
    /// Events a second, of all of them together.
    rate: f64,
    /// Of each store: its sessions, and how many transactions it took.
    parts: Vec<(Vec<SessionId>, u64)>,
}

/// How rows are loaded when nothing else is done.
#[derive(Clone, Copy)]
enum How {
    Copy,
    Insert,
    /// By COPY, but each event as a row of its own: what a log is that nobody has packed.
    Events,
}

/// The ways of the bare load: how, and whether in one transaction of each connection.
const BARE: [(How, bool); 5] =
    [(How::Copy, false), (How::Copy, true), (How::Insert, false), (How::Insert, true), (How::Events, false)];

/// Events a second, and seconds of the database's processor time, where they are known.
#[derive(Clone, Copy)]
struct Figure {
    rate: f64,
    processor: Option<f64>,
}

/// What one round has seen in one place.
struct Sample {
    stores: Figure,
    transactions: u64,
    rows: usize,
    /// In the order of [`BARE`]; empty where nothing was loaded.
    bare: Vec<Figure>,
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The one in the middle.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
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
        payload: RawValue::from_string(format!(r#"{{"text":"word{seq} of it"}}"#)).expect(ENDS),
        session_id: session.clone(),
        turn_id: Some(turn.clone()),
        at: 1_700_000_000_000 + seq,
    }
}

/// Transactions so far, as the metrics have them.
fn transactions(store: &Arc<dyn Store>) -> u64 {
    let mut page = Page::default();
    store.meter().expect(ENDS).write(&mut page);
    let text = page.into_text();
    let count = text.lines().find_map(|line| line.strip_prefix("simse_store_commit_size_count "));
    count.expect(ENDS).trim().parse().expect(ENDS)
}

/// Appends so many events to each session. How many transactions it took.
async fn append(store: &Arc<dyn Store>, ids: &[SessionId], (events, pack): (u64, u64)) -> u64 {
    let before = transactions(store);
    let work = ids.iter().cloned().map(|id| {
        let store = Arc::clone(store);
        tokio::spawn(async move {
            let turn = TurnId::generate();
            let mut next = 1;
            while next <= events {
                let upto = (next + pack - 1).min(events);
                let some = (next..=upto).map(|seq| event(&id, &turn, seq)).collect();
                commit(&store, vec![Write::Append(id.clone(), Arc::new(some))]).await.expect(ENDS);
                next = upto + 1;
            }
        })
    });
    for done in work.collect::<Vec<_>>() {
        done.await.expect(ENDS);
    }
    transactions(store) - before
}

/// Has each store append to so many new sessions, all at the same time.
async fn run(stores: &[Arc<dyn Store>], sessions: u64, (events, pack): (u64, u64)) -> Run {
    let mut made = Vec::new();
    for store in stores {
        let ids: Vec<SessionId> = (0..sessions).map(|_| SessionId::generate()).collect();
        let writes = ids.iter().map(|id| Write::CreateSession(Box::new(row(id)))).collect();
        commit(store, writes).await.expect(ENDS);
        made.push(ids);
    }
    let began = Instant::now();
    let groups = join_all(stores.iter().zip(&made).map(|(store, ids)| append(store, ids, (events, pack)))).await;
    let appended = stores.len() as u64 * sessions * events;
    Run { rate: appended as f64 / began.elapsed().as_secs_f64(), parts: made.into_iter().zip(groups).collect() }
}

/// So many stores on one database: one that has it alone, or several that share it.
async fn open(url: &str, count: u64) -> Vec<Arc<dyn Store>> {
    let mut stores: Vec<Arc<dyn Store>> = Vec::new();
    for nth in 0..count {
        let home = Home::held_by(None);
        // Nobody asks there: sessions stay where they are made.
        let doorway = Doorway { url: format!("http://127.0.0.1:{}", nth + 1), labels: Vec::new() };
        let home = if count == 1 { home } else { home.sharing(doorway) };
        stores.push(Arc::new(PostgresStore::open((url, None), home).await.expect(ENDS)));
    }
    stores
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect(ENDS);
    tokio::spawn(connection);
    client
}

/// A line of /proc about a process, from its state on.
fn stat(pid: &str) -> Option<Vec<u64>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(text.rsplit_once(") ")?.1.split(' ').map(|field| field.parse().unwrap_or(0)).collect())
}

/// Seconds of processor time that the database has used, with its processes that have ended; None: they are not on this machine.
async fn processor(client: &Client) -> Option<f64> {
    let own: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await.expect(ENDS).get(0);
    let parent = *stat(&own.to_string())?.get(1)?;
    let mut ticks: u64 = stat(&parent.to_string())?.get(11..15)?.iter().sum();
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        let child = entry.file_name().to_str().and_then(stat).filter(|fields| fields.get(1) == Some(&parent));
        ticks += child.and_then(|fields| Some(fields.get(11..13)?.iter().sum::<u64>())).unwrap_or(0);
    }
    Some(ticks as f64 / TICKS)
}

/// How much more it is than before.
async fn more_than(before: Option<f64>, client: &Client) -> Option<f64> {
    Some(processor(client).await? - before?)
}

/// What the sessions of one store have in the log.
async fn rows_of(client: &Client, sessions: &[SessionId]) -> Arc<Vec<Row>> {
    let ids: Vec<&str> = sessions.iter().map(SessionId::as_str).collect();
    let sql = "SELECT log.session, first, count, turn, at, body FROM log JOIN session ON number = log.session
        WHERE id = ANY ($1) ORDER BY log.session, first";
    Arc::new(client.query(sql, &[&ids]).await.expect(ENDS))
}

/// Loads rows of the log in one transaction.
async fn copy(client: &Client, rows: &[Row]) {
    let types = [Type::INT8, Type::INT8, Type::INT8, Type::TEXT, Type::INT8, Type::BYTEA];
    let sql = "COPY bare (session, first, count, turn, at, body) FROM STDIN BINARY";
    let writer = BinaryCopyInWriter::new(client.copy_in(sql).await.expect(ENDS), &types);
    tokio::pin!(writer);
    for row in rows {
        let (session, first, count, at): (i64, i64, i64, i64) = (row.get(0), row.get(1), row.get(2), row.get(4));
        let (turn, body): (Option<&str>, &[u8]) = (row.get(3), row.get(5));
        writer.as_mut().write(&[&session, &first, &count, &turn, &at, &body]).await.expect(ENDS);
    }
    writer.finish().await.expect(ENDS);
}

/// Loads their events in one transaction, a row each.
async fn copy_events(client: &Client, rows: &[Row]) {
    let types = [Type::INT8, Type::INT8, Type::TEXT, Type::INT8, Type::BYTEA];
    let sql = "COPY bare_event (session, seq, turn, at, body) FROM STDIN BINARY";
    let writer = BinaryCopyInWriter::new(client.copy_in(sql).await.expect(ENDS), &types);
    tokio::pin!(writer);
    for row in rows {
        let (session, first, count, turn): (i64, i64, i64, Option<&str>) =
            (row.get(0), row.get(1), row.get(2), row.get(3));
        for seq in first..first + count {
            let at = 1_700_000_000_000 + seq;
            let body = format!(r#"{{"type":"stream.delta","payload":{{"text":"word{seq} of it"}}}}"#);
            writer.as_mut().write(&[&session, &seq, &turn, &at, &body.as_bytes()]).await.expect(ENDS);
        }
    }
    writer.finish().await.expect(ENDS);
}

/// The same by INSERT; more rows than one of them takes go behind one another.
async fn insert((client, statement): (&Client, &Statement), rows: &[Row]) {
    let is_one = rows.len() <= INSERTED_MAX;
    if !is_one {
        client.batch_execute("BEGIN").await.expect(ENDS);
    }
    for some in rows.chunks(INSERTED_MAX) {
        let numbers = |column: usize| some.iter().map(|row| row.get(column)).collect::<Vec<i64>>();
        let turns: Vec<Option<&str>> = some.iter().map(|row| row.get(3)).collect();
        let bodies: Vec<&[u8]> = some.iter().map(|row| row.get(5)).collect();
        let values: [&(dyn ToSql + Sync); 6] = [&numbers(0), &numbers(1), &numbers(2), &turns, &numbers(4), &bodies];
        client.execute(statement, &values).await.expect(ENDS);
    }
    if !is_one {
        client.batch_execute("COMMIT").await.expect(ENDS);
    }
}

/// A connection that rows are loaded over.
async fn loader(url: &str) -> (Client, Statement) {
    let client = connect(url).await;
    let sql = "INSERT INTO bare (session, first, count, turn, at, body)
        SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::bytea[])";
    let statement = client.prepare(sql).await.expect(ENDS);
    (client, statement)
}

/// Loads the rows of the log alone, each part over a connection of its own, in so many transactions. Seconds, and those of the
/// database's processor time.
async fn load(url: &str, parts: &[(Arc<Vec<Row>>, u64)], how: How) -> (f64, Option<f64>) {
    let client = connect(url).await;
    client
        .batch_execute(
            "DROP TABLE IF EXISTS bare; CREATE TABLE bare (LIKE log INCLUDING ALL) PARTITION BY RANGE (session);
            CREATE TABLE bare_0 PARTITION OF bare DEFAULT;
            DROP TABLE IF EXISTS bare_event; CREATE TABLE bare_event (session bigint NOT NULL, seq bigint NOT NULL, turn text,
            at bigint NOT NULL, body bytea NOT NULL, PRIMARY KEY (session, seq))",
        )
        .await
        .expect(ENDS);
    client.batch_execute("CHECKPOINT").await.expect(ENDS);
    let clients = join_all(parts.iter().map(|_| loader(url))).await;
    let before = processor(&client).await;
    let began = Instant::now();
    let work = parts.iter().zip(clients).map(|((rows, transactions), (client, statement))| {
        let (rows, transactions) = (Arc::clone(rows), usize::try_from(*transactions).expect(ENDS));
        tokio::spawn(async move {
            for some in rows.chunks(rows.len().div_ceil(transactions.max(1))) {
                match how {
                    How::Copy => copy(&client, some).await,
                    How::Insert => insert((&client, &statement), some).await,
                    How::Events => copy_events(&client, some).await,
                }
            }
        })
    });
    for done in work.collect::<Vec<_>>() {
        done.await.expect(ENDS);
    }
    let seconds = began.elapsed().as_secs_f64();
    (seconds, more_than(before, &client).await)
}

/// What so many servers do on the database, and what it does without them.
async fn on_postgres((url, nodes): (&str, u64), sessions: u64, (events, pack): (u64, u64)) -> Sample {
    let stores = open(url, nodes).await;
    let client = connect(url).await;
    client.batch_execute("CHECKPOINT").await.expect(ENDS);
    let before = processor(&client).await;
    let Run { rate, parts } = run(&stores, sessions, (events, pack)).await;
    let processor = more_than(before, &client).await;
    for store in stores {
        store.close().await.expect(ENDS);
    }
    let transactions = parts.iter().map(|part| part.1).sum();
    let mut sample = Sample { stores: Figure { rate, processor }, transactions, rows: 0, bare: Vec::new() };
    if number("BARE", 1) == 0 {
        return sample;
    }
    let mut written = Vec::new();
    for (sessions, transactions) in &parts {
        written.push((rows_of(&client, sessions).await, *transactions));
    }
    sample.rows = written.iter().map(|(rows, _)| rows.len()).sum();
    for (how, is_one) in BARE {
        let parts = written.iter().map(|(rows, groups)| (Arc::clone(rows), if is_one { 1 } else { *groups }));
        let (seconds, processor) = load(url, &parts.collect::<Vec<_>>(), how).await;
        sample.bare.push(Figure { rate: (nodes * sessions * events) as f64 / seconds, processor });
    }
    sample
}

/// Medians of a figure's rounds: rate, and what stands behind it.
fn cell(figures: &[Figure], ratio: Option<f64>) -> String {
    let rate = median(figures.iter().map(|figure| figure.rate));
    let processor = median(figures.iter().filter_map(|figure| figure.processor));
    let ratio = ratio.map(|ratio| format!("{ratio:.2}"));
    let processor = (!processor.is_nan()).then(|| format!("{processor:.2} s"));
    let behind: Vec<String> = ratio.into_iter().chain(processor).collect();
    if behind.is_empty() { format!(" {rate:.0} |") } else { format!(" {rate:.0} ({}) |", behind.join("; ")) }
}

/// A line of the table.
fn print(what: &str, samples: &[Sample]) {
    let stores: Vec<Figure> = samples.iter().map(|sample| sample.stores).collect();
    let transactions = median(samples.iter().map(|sample| sample.transactions as f64));
    let rows = median(samples.iter().map(|sample| sample.rows as f64));
    let mut line = format!("| {what} |{} {transactions:.0} |", cell(&stores, None));
    line += &if rows > 0.0 { format!(" {rows:.0} |") } else { " |".repeat(1 + BARE.len()) };
    for nth in 0..samples.first().map_or(0, |sample| sample.bare.len()) {
        let bare: Vec<Figure> = samples.iter().map(|sample| sample.bare[nth]).collect();
        let ratio = median(stores.iter().zip(&bare).map(|(stores, bare)| stores.rate / bare.rate));
        line += &cell(&bare, Some(ratio));
    }
    println!("{line}");
}

#[tokio::main]
async fn main() {
    let (sessions, events, pack) = (number("SESSIONS", 256), number("EVENTS", 2_000), number("PACK", 64));
    let nodes = std::env::var("NODES").unwrap_or_else(|_| "1,3".into());
    let nodes: Vec<u64> = nodes.split(',').map(|count| count.parse().expect("NODES: numbers with commas")).collect();
    let directory = tempfile::tempdir().expect(ENDS);
    let sqlite: Arc<dyn Store> = Arc::new(SqliteStore::open(directory.path()).expect(ENDS));
    let started = if std::env::var_os("POSTGRES").is_none() { postgres::Postgres::start() } else { None };
    let url = std::env::var("POSTGRES").ok().or_else(|| started.as_ref().map(postgres::Postgres::url));
    let url = url.expect("a PostgreSQL");
    let packs = [("one event a commit".to_owned(), 1), (format!("up to {pack} events a commit"), pack)];
    let mut seen: Vec<(String, Vec<Sample>)> = Vec::new();
    for round in 0..number("ROUNDS", 3) {
        let mut nth = 0;
        let mut note = |what: String, sample: Sample| {
            if round == 0 {
                seen.push((what, Vec::new()));
            }
            seen[nth].1.push(sample);
            nth += 1;
        };
        for (name, pack) in &packs {
            let size = (if *pack == 1 { events.div_ceil(10) } else { events }, *pack);
            let Run { rate, parts } = run(std::slice::from_ref(&sqlite), sessions, size).await;
            let stores = Figure { rate, processor: None };
            note(format!("SQLite, {name}"), Sample { stores, transactions: parts[0].1, rows: 0, bare: Vec::new() });
            for count in &nodes {
                let sample = on_postgres((&url, *count), sessions, size).await;
                note(format!("PostgreSQL, servers: {count}, {name}"), sample);
            }
        }
    }
    sqlite.close().await.expect(ENDS);
    println!(
        "{sessions} sessions of each server; events a second, behind a bare load's how much of it the stores reach, and the database's processor time\n"
    );
    println!(
        "| what | the stores | transactions | rows | COPY, in as many transactions | COPY, in one each | INSERT, in as many | INSERT, in one each | a row an event by COPY, in as many |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for (what, samples) in &seen {
        print(what, samples);
    }
}
