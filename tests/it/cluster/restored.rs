//! A back-up that is taken while servers run, and a server over what was made of it: everything is there up to one moment, for each
//! session whole; what ran has failed, what waited runs, and who has seen more is told so.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::check::hold;
use super::nodes::Cluster;
use super::taken::{Seen, interrupted, seen_until, session};
use super::wire::Wanted;
use crate::crash::say;

/// The database that is made of the back-up.
const RESTORED: &str = "restored";
/// How soon the nodes of the old world are over in the new one, its start included.
const OVER: Duration = Duration::from_secs(15);

/// The programs of the PostgreSQL that the tests run. None: it has none for back-ups. (As `support/postgres.rs` finds it.)
fn programs() -> Option<PathBuf> {
    let named = std::env::var_os("SIMSE_TEST_POSTGRES").map(PathBuf::from);
    let newest = || {
        let all = std::fs::read_dir("/usr/lib/postgresql").ok()?.flatten().map(|entry| entry.path());
        let all = all.filter(|version| version.join("bin/initdb").exists());
        let number = |version: &PathBuf| version.file_name()?.to_str()?.parse::<u32>().ok();
        Some(all.max_by_key(number)?.join("bin"))
    };
    let found = named.or_else(newest)?;
    if ["pg_dump", "pg_restore", "psql"].iter().all(|program| found.join(program).exists()) {
        return Some(found);
    }
    say(&format!("left out: {} has not all of pg_dump, pg_restore and psql", found.display()));
    None
}

/// Runs one of them against the database of a cluster.
fn run(program: &Path, cluster: &Cluster, arguments: &[&str]) {
    let mut command = Command::new(program);
    command.args(["-h", "127.0.0.1", "-p", &cluster.postgres().port().to_string(), "-U", "simse"]).args(arguments);
    let output = tokio::task::block_in_place(|| command.stdin(Stdio::null()).output()).expect("it starts");
    assert!(output.status.success(), "{}: {}", program.display(), String::from_utf8_lossy(&output.stderr));
}

async fn log(cluster: &Cluster, id: &str) -> Vec<String> {
    cluster.try_log(0, (id, None)).await.expect("it answers")
}

/// The log of a restored session is that of the old one up to some event, and not before event `least`. That event's number.
fn common(id: &str, (old, new): (&[String], &[String]), least: usize) -> usize {
    let same = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    assert!(same >= least, "{id}: event {least} was there before the back-up, and {same} are:\n{}", new.join("\n"));
    same
}

/// The states of the nodes that are listed.
async fn states(cluster: &Cluster) -> Vec<String> {
    let told = cluster.get(0, "/nodes").await;
    let nodes = told.value["nodes"].as_array().unwrap_or_else(|| panic!("no list: {told:?}"));
    nodes.iter().map(|node| node["state"].as_str().expect("a text").to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_restored_is_whole_up_to_one_moment() {
    let Some(old) = Cluster::start(2).await else { return };
    let Some(programs) = programs() else { return };
    old.create(0, "rests").await;
    let done = old.prompt(1, "rests", "quick d1").await;
    old.turn(0, "rests", &done).await;
    let mut turns = Vec::new();
    // At each node one session in which a turn runs and one waits.
    for (holder, id) in [(0, "one"), (1, "two")] {
        old.create(holder, id).await;
        let running = old.prompt(holder, id, &format!("open {id}1")).await;
        let waiting = old.prompt(1 - holder, id, &format!("quick {id}2")).await;
        seen_until(&mut old.events(holder, id, 0).await, &mut Seen::new(), ("stream.delta", 1)).await;
        turns.push((id, running, waiting));
    }
    let mut before = Vec::new();
    for id in ["rests", "one", "two"] {
        before.push(log(&old, id).await.len());
    }
    let file = old.home().join("back-up");
    let file = file.to_str().expect("a text");
    run(&programs.join("pg_dump"), &old, &["-Fc", "-f", file, "postgres"]);
    // The old world goes on.
    let later = old.prompt(0, "rests", "quick d2").await;
    old.turn(0, "rests", &later).await;
    run(&programs.join("psql"), &old, &["-q", "-c", &format!("CREATE DATABASE {RESTORED}"), "postgres"]);
    run(&programs.join("pg_restore"), &old, &["-d", RESTORED, file]);
    let begun = Instant::now();
    // Nodes of the old world are in its rows still: what is asked now must not be done by them.
    let new = old.over(RESTORED, 1).await;
    assert!(begun.elapsed() < OVER, "it took {:?}", begun.elapsed());
    let listed = states(&new).await;
    assert!(listed.iter().filter(|state| *state == "over").count() <= 2 && listed.len() <= 3, "{listed:?}");
    rests(&old, &new, (&done, before[0])).await;
    for ((id, running, waiting), before) in turns.iter().zip(&before[1..]) {
        interrupted(&new.turn(0, id, running).await);
        let record = new.turn(0, id, waiting).await;
        assert_eq!(record["status"], "completed", "{record}");
        let restored = log(&new, id).await;
        let same = common(id, (&log(&old, id).await, &restored), *before);
        let (first, second) = (format!("{id}1"), format!("{id}2"));
        hold(&session([(&first, running), (&second, waiting)], Seen::new()), id, &restored);
        let next: Value = serde_json::from_str(&restored[same]).expect("JSON");
        assert_eq!(next["turnId"], running.as_str(), "{id}: what follows is the end of the turn that ran: {next}");
    }
    // Nothing of that has reached the old world.
    assert_eq!(states(&old).await, ["active", "active"]);
    for (id, running, waiting) in &turns {
        let abort = Wanted::post(&format!("/sessions/{id}/abort"), json!({})).keyed(&format!("stop-{id}"));
        assert!(old.ask(0, &abort).await.is_ok(), "it runs there still");
        assert_eq!(old.turn(0, id, running).await["status"], "aborted");
        assert_eq!(old.turn(0, id, waiting).await["status"], "completed");
    }
}

/// A session in which nothing ran ends where it ended then, and goes on from there.
async fn rests(old: &Cluster, new: &Cluster, (done, before): (&String, usize)) {
    let (ahead, restored) = (log(old, "rests").await, log(new, "rests").await);
    assert_eq!(common("rests", (&ahead, &restored), before), restored.len(), "nothing was added");
    assert!(ahead.len() > restored.len(), "the old one has gone on");
    let stream = Wanted::get("/sessions/rests/events").behind(ahead.len() as u64);
    let said = new.ask(0, &stream).await;
    assert_eq!(said.status, 400, "nothing is shown as if it followed: {said:?}");
    let mut live = new.events(0, "rests", restored.len() as u64).await;
    let next = new.prompt(0, "rests", "quick d3").await;
    let (seq, _) = live.next().await.expect("the stream goes on");
    assert_eq!(seq, restored.len() as u64 + 1);
    assert_eq!(new.turn(0, "rests", &next).await["status"], "completed");
    hold(&session([("d1", done), ("d3", &next)], Seen::new()), "rests", &log(new, "rests").await);
}
