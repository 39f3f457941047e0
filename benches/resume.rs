//! How long it takes to resume a long session: at its end, and from its first event on.
//!
//! `cargo bench --bench resume` (events: `SIMSE_BENCH_EVENTS`, else 1,000,000). Prints the time to the first events behind a
//! cursor near the end, in a program that has just opened the directory; the events a second of a whole replay, as frames of
//! a stream; and how much the process grew meanwhile.

#![allow(clippy::print_stdout, reason = "figures are what it is for")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use simse::app::{App, Caller, Extras, encode_frames};
use simse::config::{Settings, Storage};
use simse::protocol::{Event, SessionId};
use simse::store::{SessionRow, SqliteStore, Store, Write, commit};

fn row(id: &str) -> SessionRow {
    serde_json::from_str(&format!(
        r#"{{"id":"{id}","client":null,"status":"created","version":0,"created_at":1,"updated_at":1,"message_count":0,
            "usage":{{"inputTokens":0,"outputTokens":0,"totalTokens":0}},
            "settings":{{"working_directory":"/","model":"demo/scripted"}}}}"#
    ))
    .expect("the text above is a row")
}

fn event(id: &str, seq: u64) -> Event {
    let payload = format!(r#"{{"text":"word number {seq} "}}"#);
    serde_json::from_str(&format!(
        r#"{{"seq":{seq},"type":"stream.delta","payload":{payload},"sessionId":"{id}","at":1700000000000}}"#
    ))
    .expect("the text above is an event")
}

/// Resident memory now, in MB.
fn resident_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|text| text.trim().trim_end_matches("kB").trim().parse::<u64>().ok()).unwrap_or(0) / 1024
}

async fn fill(store: &Arc<dyn Store>, id: &SessionId, count: u64) {
    commit(store, vec![Write::CreateSession(Box::new(row(id.as_str())))]).await.expect("nothing else writes there");
    let mut next = 1;
    while next <= count {
        let last = (next + 499).min(count);
        let events = Arc::new((next..=last).map(|seq| event(id.as_str(), seq)).collect());
        commit(store, vec![Write::Append(id.clone(), events)]).await.expect("nothing else writes there");
        next = last + 1;
    }
}

#[tokio::main]
async fn main() {
    let count: u64 = std::env::var("SIMSE_BENCH_EVENTS").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let home = tempfile::tempdir().expect("the machine has a temporary directory");
    let id: SessionId = "long".parse().expect("plain letters are an id");
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(home.path()).expect("nobody else has the directory"));
    let began = Instant::now();
    fill(&store, &id, count).await;
    println!("written: {:.0} events a second", count as f64 / began.elapsed().as_secs_f64());
    store.close().await.expect("nothing is left to be written");
    drop(store);
    let mut settings = Settings::new(home.path().to_owned());
    settings.storage = Storage::Directory(home.path().to_owned());
    let app = App::open(settings, Extras::default()).await.expect("nobody else has the directory");
    let caller = Caller::default();

    let began = Instant::now();
    let mut reader = app.events(&caller, &id, count - 10).await.expect("the session was written above");
    let got =
        reader.next().await.expect("the database can be read").expect("ten events lie behind the cursor").events.len();
    println!("resumed at the end: {got} events after {:.2} ms", began.elapsed().as_secs_f64() * 1e3);

    let (before, mut most) = (resident_mb(), 0);
    let began = Instant::now();
    let mut reader = app.events(&caller, &id, 0).await.expect("the session was written above");
    let (mut at, mut bytes) = (0, 0);
    while at < count {
        let batch = reader.next().await.expect("the database can be read").expect("the last event is not there yet");
        bytes += encode_frames(&batch.events).len();
        at = batch.last_seq();
        if at % 50_000 < 500 {
            most = most.max(resident_mb());
        }
    }
    let took = began.elapsed().as_secs_f64();
    println!(
        "replayed: {:.0} events a second, {:.0} MB of frames; memory {before} -> {most} MB at most",
        at as f64 / took,
        bytes as f64 / 1e6
    );
    app.shutdown(Duration::ZERO).await.expect("nothing runs that could hold it up");
}
