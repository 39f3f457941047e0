//! `kill -9` at any moment, under load from many clients, again and again: what was acknowledged is there, nothing ran
//! twice, and every stream goes on where it ended.
//!
//! `asking` has a tool that asks them, `load` holds the clients, which send every kind of command over HTTP and over sockets (`wire`), `ledger` what they were told,
//! and `check` what the log and the disk must then say. A run follows from its seed up to what the scheduler does: a failure
//! names the seed.
//!
//! `SIMSE_CRASH_KILLS` and `SIMSE_CRASH_SEED` change both. `SIMSE_CRASH_PROGRESS=1` says how far it is. While the file
//! `SIMSE_CRASH_HOLD` is there, it waits between two lives. With `SIMSE_CRASH_KEEP=1` a failure leaves the data directory where
//! it is.

mod asking;
mod check;
mod ledger;
mod load;
mod wire;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use crate::support::model_server::{Answer, ModelServer, Request, Script};
use crate::support::postgres::Postgres;
use crate::support::program::Program;
use ledger::Ledger;
pub(super) use load::Chance;
use load::client;
use serde_json::{Value, json};

/// Kills of a usual run.
const KILLS: u64 = 40;
/// Clients that work side by side.
const CLIENTS: u64 = 6;
/// The longest time between two kills, and now and then.
const LIVES: [Duration; 2] = [Duration::from_millis(240), Duration::from_millis(1_200)];

pub(super) fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}: expected a number")))
}

/// For who watches a run of an hour.
pub(super) fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    u64::try_from(since.as_millis()).expect("fits")
}

/// The last thing a user said, and whether tools have answered since.
pub(super) fn last_prompt(request: &Request) -> (String, bool) {
    let messages = request.json()["messages"].clone();
    let messages = messages.as_array().expect("a list").clone();
    let at = messages.iter().rposition(|message| message["role"] == "user").expect("a prompt");
    let called = messages[at..].iter().any(|message| message["role"] == "tool");
    let said = match &messages[at]["content"] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    (said, called)
}

/// What the model does stands in the prompt: `slow`, `run` (a command), `write` (a file), `sure` (a tool that asks), and else a
/// word at once.
pub(super) fn script() -> Script {
    let words: Vec<String> = (0..80).map(|n| format!("w{n} ")).collect();
    Arc::new(move |request| {
        let (said, called) = last_prompt(request);
        let token = said.split_whitespace().last().unwrap_or_default().to_owned();
        let token = token.trim_matches(|c: char| !c.is_alphanumeric());
        if called {
            return Answer::text(&["done"]);
        }
        if said.contains("run") {
            let command = format!("echo x >> mark-{token}");
            return Answer::calls("", &[(&format!("call_{token}"), "bash", json!({ "command": command }))]);
        }
        if said.contains("write") {
            let arguments = json!({ "path": format!("{token}.txt"), "content": token });
            return Answer::calls("", &[(&format!("call_{token}"), "fs_write", arguments)]);
        }
        let tools = request.json()["tools"].clone();
        let names = tools.as_array().into_iter().flatten().filter_map(|tool| tool["function"]["name"].as_str());
        // A server of tools that has not come yet has none.
        if let (true, Some(name)) = (said.contains("sure"), names.clone().find(|name| name.ends_with("sure"))) {
            return Answer::calls("", &[(&format!("call_{token}"), name, json!({ "token": token }))]);
        }
        if said.contains("slow") {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            return Answer::paced(&words, Duration::from_millis(1));
        }
        Answer::text(&["well"])
    })
}

async fn life(program: &Program, ledger: &Arc<Mutex<Ledger>>, chance: &mut Chance) {
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..CLIENTS {
        clients.spawn(client(number, program.port, Arc::clone(ledger), chance.next()));
    }
    // The moment is the point: there is no signal to wait for.
    let span = LIVES[usize::from(chance.once_in(10))];
    let span = u64::try_from(span.as_micros()).expect("fits");
    tokio::time::sleep(Duration::from_micros(chance.below(span))).await;
    program.signal_kill();
    while let Some(ended) = clients.join_next().await {
        ended.expect("a client found something wrong");
    }
}

/// What happens in every run, and how rarely at least: so often in a hundred lives, and once in any run. A run in which nothing
/// happened shows nothing; on a busy machine it goes on until all of it has.
const LEAST: [(&str, u64); 19] = [
    ("sessions were made", 5),
    ("sessions were deleted", 2),
    ("sessions were configured", 10),
    ("sessions were forked", 3),
    ("prompts were accepted", 50),
    ("turns were steered", 10),
    ("turns were aborted", 2),
    ("turns were interrupted", 3),
    ("turns were paused", 3),
    ("turns were resumed", 2),
    ("turns were undone or redone", 3),
    ("turns were ended by a restart", 10),
    ("questions were answered", 3),
    ("questions of tools were answered", 2),
    ("requests were cut off", 50),
    ("commands were given again", 20),
    ("commands given again had been done", 3),
    ("commands came twice at once", 5),
    ("answers were given again", 50),
];

/// How much longer a run may become until everything has happened.
const LONGER: u64 = 4;

/// What has not happened often enough yet for so many lives.
fn lacking(told: &BTreeMap<&'static str, usize>, kills: u64) -> Vec<&'static str> {
    let so_often = |what: &str| told.get(what).copied().unwrap_or(0) as u64;
    LEAST.iter().filter(|(what, least)| so_often(what) < (kills * least / 100).max(1)).map(|(what, _)| *what).collect()
}

async fn run((kills, seed): (u64, u64), data: &Path, work: &Path, store: Option<&str>) {
    let config = asking::configured(data.parent().expect("a directory"), work);
    if let Some(store) = store {
        let rest = std::fs::read_to_string(&config).expect("read");
        std::fs::write(&config, format!("store = \"{store}\"\n{rest}")).expect("written");
    }
    let model = ModelServer::start_on(0, script(), false).await;
    let mut chance = Chance::new(seed);
    let ledger = Arc::new(Mutex::new(Ledger::new(work)));
    let (progress, hold) = (setting("SIMSE_CRASH_PROGRESS").is_some(), std::env::var_os("SIMSE_CRASH_HOLD"));
    for round in 0..kills * LONGER {
        let lacks = lacking(&ledger.lock().told, kills);
        if round >= kills && lacks.is_empty() {
            break;
        }
        while hold.as_ref().is_some_and(|file| Path::new(file).exists()) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let begun = now_ms();
        let program = Program::serve_as(data, work, &model.base_url(), Some(&config)).await;
        check::check(&program, &ledger, begun, false).await;
        life(&program, &ledger, &mut chance).await;
        program.kill().await;
        ledger.lock().next_life(round);
        if progress && (round + 1) % 50 == 0 {
            say(&format!("{} of {kills} kills: {:?}", round + 1, ledger.lock().told));
        }
    }
    let begun = now_ms();
    let program = Program::serve_as(data, work, &model.base_url(), Some(&config)).await;
    check::check(&program, &ledger, begun, true).await;
    let told = ledger.lock().told.clone();
    say(&format!("{kills} kills, seed {seed}: {told:?}"));
    let lacks = lacking(&told, kills);
    assert!(lacks.is_empty(), "too rarely in {kills} lives, and {LONGER} times as many: {lacks:?}, of {told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_moment_it_keeps_its_word() {
    killed(setting("SIMSE_CRASH_KILLS").unwrap_or(KILLS), None).await;
}

/// The same with its sessions in a PostgreSQL: what a process was about to write when it ended is there, or it is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_over_postgres_it_keeps_its_word() {
    let Some(postgres) = Postgres::start() else { return };
    killed(setting("SIMSE_CRASH_KILLS").unwrap_or(KILLS) / 2, Some(postgres.url())).await;
}

async fn killed(kills: u64, store: Option<String>) {
    let home = tempfile::tempdir().unwrap();
    let (data, work) = (home.path().join("data"), home.path().join("work"));
    std::fs::create_dir(&work).unwrap();
    let seed = setting("SIMSE_CRASH_SEED").unwrap_or_else(now_ms);
    let running = tokio::spawn(async move { run((kills, seed), &data, &work, store.as_deref()).await });
    if let Err(failed) = running.await {
        let failed = failed.into_panic();
        let said = failed.downcast_ref::<String>().cloned();
        let said = said.or_else(|| failed.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let kept = setting("SIMSE_CRASH_KEEP").map(|_| format!(" (kept in {})", home.keep().display()));
        panic!("SIMSE_CRASH_SEED={seed}: {}{}", said.unwrap_or_default(), kept.unwrap_or_default());
    }
}
