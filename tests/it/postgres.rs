//! The program with its sessions in a real PostgreSQL: one setting, and everything is as it was.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::process::Command;

use crate::support::model_server::{Answer, ModelServer, Script};
use crate::support::postgres::Postgres;
use crate::support::program::Program;

fn words() -> Script {
    let words: Vec<String> = (0..600).map(|n| format!("w{n} ")).collect();
    Arc::new(move |_| Answer::paced(&words.iter().map(String::as_str).collect::<Vec<_>>(), Duration::from_millis(5)))
}

fn simse() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_simse"));
    command.stdin(Stdio::null()).env_remove("PGPASSWORD").kill_on_drop(true);
    command
}

async fn ended(command: &mut Command) -> (Option<i32>, String, String) {
    let output = tokio::time::timeout(Duration::from_secs(60), command.output()).await.expect("in time").expect("ran");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// All events of a session by their numbers.
async fn log(program: &Program, session: &str, last: u64) -> BTreeMap<u64, String> {
    let mut events = program.events(session, 0).await;
    let mut all = BTreeMap::new();
    while all.len() as u64 != last {
        let (seq, data) = events.next().await.expect("the log goes on");
        assert_eq!(seq, all.len() as u64 + 1, "numbers follow without gaps");
        all.insert(seq, data);
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_restarts_costs_a_turn_nothing() {
    let Some(postgres) = Postgres::start() else { return };
    let home = tempfile::tempdir().unwrap();
    let (data, work, config) = (home.path().join("data"), home.path().join("work"), home.path().join("c.toml"));
    std::fs::create_dir(&work).unwrap();
    std::fs::write(&config, format!("store = \"{}\"\n", postgres.url())).unwrap();
    let model = ModelServer::start(words()).await;
    let program = Program::serve_as(&data, &work, &model.base_url(), Some(&config)).await;
    let (status, made) = program.call("POST", "/sessions", Some(json!({ "sessionId": "s" }))).await;
    assert_eq!(status, 201, "{made}");
    let (_, view) = program.call("GET", "/config", None).await;
    let store = view["settings"].as_array().unwrap().iter().find(|setting| setting["name"] == "store").unwrap();
    assert!(store["value"].as_str().unwrap().starts_with("postgres://127.0.0.1:"), "{store}");
    assert!(!store.to_string().contains("simse@"), "{store}");

    let mut live = program.events("s", 0).await;
    let (status, accepted) = program.call("POST", "/sessions/s/prompt", Some(json!({ "prompt": "talk" }))).await;
    assert_eq!(status, 202, "{accepted}");
    let mut seen = BTreeMap::new();
    let mut restarts = 0;
    loop {
        let (seq, data) = live.next().await.expect("the stream goes on");
        assert_eq!(seq, seen.len() as u64 + 1, "numbers follow without gaps");
        let over = data.contains("\"loop.complete\"");
        seen.insert(seq, data);
        if over {
            break;
        }
        if seq > 100 * (restarts + 1) && restarts < 2 {
            restarts += 1;
            tokio::task::block_in_place(|| postgres.tell("restart"));
        }
    }
    assert_eq!(restarts, 2);
    let turn = accepted["turnId"].as_str().unwrap();
    let (_, record) = program.call("GET", &format!("/sessions/s/turns/{turn}"), None).await;
    assert_eq!(record["status"], "completed", "{record}");
    let want: String = (0..600).map(|n| format!("w{n} ")).collect();
    assert_eq!(record["result"].as_str().map(str::trim_end), Some(want.trim_end()));

    // A second server is refused, and says by whom.
    let other = home.path().join("other");
    let mut second = simse();
    second.args(["serve", "--port", "0", "--data-dir"]).arg(&other).arg("--cwd").arg(&work);
    let (code, _, said) = ended(second.env("SIMSE_STORE", postgres.url())).await;
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("is in use by another simse server") && said.contains("(pid "), "{said}");

    program.kill().await;
    let program = Program::serve_as(&data, &work, &model.base_url(), Some(&config)).await;
    let again = log(&program, "s", seen.len() as u64).await;
    assert_eq!(again, seen);
    // While the database is away nothing is acknowledged; what is asked waits for it.
    tokio::task::block_in_place(|| postgres.tell("stop"));
    let (status, health) = program.call("GET", "/health", None).await;
    assert_eq!((status, health["status"].as_str()), (503, Some("unhealthy")), "{health}");
    tokio::task::block_in_place(|| postgres.tell("start"));
    let (status, made) = program.call("POST", "/sessions", Some(json!({ "sessionId": "t" }))).await;
    assert_eq!(status, 201, "{made}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_move_there_and_back_by_a_command() {
    let Some(postgres) = Postgres::start() else { return };
    let home = tempfile::tempdir().unwrap();
    let (data, back, work) = (home.path().join("data"), home.path().join("back"), home.path().join("work"));
    std::fs::create_dir(&work).unwrap();
    let model = ModelServer::start(words()).await;
    let program = Program::serve(&data, &work, &model.base_url()).await;
    program.call("POST", "/sessions", Some(json!({ "sessionId": "s" }))).await;
    let (_, record) = program.call("POST", "/sessions/s/prompt?wait=true", Some(json!({ "prompt": "talk" }))).await;
    assert_eq!(record["status"], "completed", "{record}");
    let (_, view) = program.call("GET", "/sessions/s", None).await;
    let last = view["lastSeq"].as_u64().unwrap();
    let before = log(&program, "s", last).await;
    let copy = |directory: &std::path::Path, side: &str| {
        let mut command = simse();
        command.args(["store", "copy", side, &postgres.url(), "--data-dir"]).arg(directory);
        command
    };
    let (code, _, said) = ended(&mut copy(&data, "--to")).await;
    assert_eq!(code, Some(3), "a server has it: {said}");
    program.kill().await;
    let (code, there, said) = ended(&mut copy(&data, "--to")).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(there.starts_with(&format!("1 sessions, 1 turns, {last} events: ")), "{there}");
    let (code, _, said) = ended(&mut copy(&data, "--to")).await;
    assert_eq!(code, Some(3), "it is not empty any more: {said}");
    let (code, sum, said) = ended(simse().args(["store", "sum", "--of", &postgres.url()])).await;
    assert_eq!((code, &sum), (Some(0), &there), "{said}");
    let (code, again, said) = ended(&mut copy(&back, "--from")).await;
    assert_eq!((code, &again), (Some(0), &there), "{said}");
    let (code, checked, _) = ended(simse().args(["check", "--data-dir"]).arg(&back)).await;
    assert_eq!(code, Some(0), "{checked}");
    let program = Program::serve(&back, &work, &model.base_url()).await;
    assert_eq!(log(&program, "s", last).await, before);
    let (code, _, said) = ended(simse().args(["store", "sum", "--of", "mysql://u:s3cret@h/d"])).await;
    assert!(code == Some(2) && said.contains("begins with postgres://") && !said.contains("s3cret"), "{said}");
    let (code, _, said) = ended(simse().args(["store", "copy"])).await;
    assert!(code == Some(2) && said.contains("two different stores"), "{said}");
    // What works on a data directory says where the sessions are instead.
    let mut check = simse();
    check.args(["check", "--data-dir"]).arg(&back).env("SIMSE_STORE", "postgres://u:s3cret@h/d");
    let (code, _, said) = ended(&mut check).await;
    assert!(code == Some(2) && said.contains("postgres://h/d") && !said.contains("s3cret"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_was_frozen_for_too_long_is_followed_and_ends() {
    let Some(postgres) = Postgres::start() else { return };
    let home = tempfile::tempdir().unwrap();
    let (work, config) = (home.path().join("work"), home.path().join("c.toml"));
    std::fs::create_dir(&work).unwrap();
    std::fs::write(&config, format!("store = \"{}\"\n", postgres.url())).unwrap();
    let model = ModelServer::start(words()).await;
    let serve =
        async |name: &str| Program::serve_as(&home.path().join(name), &work, &model.base_url(), Some(&config)).await;
    let first = serve("one").await;
    first.call("POST", "/sessions", Some(json!({ "sessionId": "s" }))).await;
    first.call("POST", "/sessions/s/prompt", Some(json!({ "prompt": "talk" }))).await;
    let mut live = first.events("s", 0).await;
    let mut seen = BTreeMap::new();
    while seen.len() < 100 {
        let (seq, data) = live.next().await.expect("it streams");
        seen.insert(seq, data);
    }
    first.signal(rustix::process::Signal::STOP);
    let second = serve("two").await;
    let (_, turns) = second.call("GET", "/sessions/s/turns", None).await;
    let turn = &turns["items"][0];
    assert_eq!((&turn["status"], &turn["error"]["message"]), (&json!("failed"), &json!("interrupted by restart")));
    let last = turn["lastSeq"].as_u64().unwrap();
    let taken = log(&second, "s", last).await;
    first.signal(rustix::process::Signal::CONT);
    let (code, said) = first.ended().await;
    assert!(code == Some(1) && said.contains("another server has taken over from this one"), "{code:?}: {said}");
    // What it showed is there, and nothing of it came late.
    while let Some((seq, data)) = live.next().await {
        seen.insert(seq, data);
    }
    assert!(seen.iter().all(|(seq, data)| taken.get(seq) == Some(data)), "what was seen is what is there");
    let (_, view) = second.call("GET", "/sessions/s", None).await;
    assert_eq!(view["lastSeq"], last);
    let (_, record) = second.call("POST", "/sessions/s/prompt?wait=true", Some(json!({ "prompt": "on" }))).await;
    assert_eq!(record["status"], "completed", "{record}");
}
