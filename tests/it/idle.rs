//! What rests leaves memory, and what does not rest never does: sessions, and the programs of agents.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use simse::base::limit;
use simse::protocol::PermissionPolicy;
use simse::server::ListenOptions;

use super::support::agent::settings;
use super::support::binary::Serving;
use super::support::house::{Does, House};
use super::support::http::PATIENCE;
use super::support::model_server::{Answer, ModelServer};

/// How much of a limit is taken.
fn used(house: &House, name: &str) -> u64 {
    house.app.limits().into_iter().find(|limit| limit.name == name).unwrap().used
}

/// Waits until something holds. Nobody tells of what leaves memory, so that is looked at again and again.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn begins(house: &House, session: &str, round: &[Does]) {
    house.round(round);
    let path = format!("/sessions/{session}/prompt");
    assert_eq!(house.call("POST", &path, Some(json!({ "prompt": "go" }))).await.status, 202);
}

#[tokio::test]
async fn a_session_that_rests_leaves_memory_and_no_other() {
    let house = House::with(ListenOptions::default(), |settings| {
        settings.limits.session_idle_ms = 30;
        settings.limits.client_grace_ms = 600_000;
        settings.permissions.default_policy = PermissionPolicy::Ask;
    })
    .await;
    // One with a stream.
    let watched = house.session(json!({})).await;
    let mut stream = house.events(&watched, "").await;
    // One with an open question. What the model does next is everyone's, so each begins when the one before has.
    let asking = house.session(json!({})).await;
    begins(&house, &asking, &[Does::Calls("fs_write", json!({ "path": "a", "content": "x" }))]).await;
    let asked = house.events(&asking, "").await.until("permission.request").await.pop().unwrap();
    // One with a paused turn.
    let paused = house.session(json!({})).await;
    begins(&house, &paused, &[Does::Says("c"), Does::Waits, Does::Calls("no_tool", json!({}))]).await;
    let mut events = house.events(&paused, "").await;
    events.until("stream.delta").await;
    let path = format!("/sessions/{paused}/pause");
    let (reply, ()) = tokio::join!(house.call("POST", &path, Some(json!({}))), async {
        events.until("turn.control").await;
        house.go_on();
    });
    assert_eq!(reply.status, 200, "{reply:?}");
    drop(events);
    // One with a turn that runs, and one that waits behind it.
    let busy = house.session(json!({})).await;
    begins(&house, &busy, &[Does::Says("a"), Does::Waits]).await;
    house.events(&busy, "").await.until("stream.delta").await;
    let path = format!("/sessions/{busy}/prompt");
    assert_eq!(house.call("POST", &path, Some(json!({ "prompt": "queued" }))).await.status, 202);
    // Those that rest come and go meanwhile, several times.
    let resting = house.session(json!({})).await;
    for _ in 0..3 {
        assert_eq!(house.prompt(&resting, "hi").await["status"], "completed");
        until("the session that rests has left", || used(&house, "sessionsInMemory") == 4).await;
    }
    let view = async |id: &str| house.call("GET", &format!("/sessions/{id}"), None).await;
    assert_eq!(view(&paused).await.json()["turn"]["status"], "paused");
    // What was active goes on.
    assert_eq!(house.prompt(&watched, "hi").await["status"], "completed");
    stream.until("session.completed").await;
    let answer = json!({ "requestId": asked.data["payload"]["requestId"], "decision": "deny" });
    assert_eq!(house.call("POST", &format!("/sessions/{asking}/feedback"), Some(answer)).await.status, 200);
    house.go_on();
    assert_eq!(house.call("POST", &format!("/sessions/{paused}/resume"), Some(json!({}))).await.status, 200);
    drop(stream);
    until("then all of them leave", || used(&house, "sessionsInMemory") == 0).await;
    for id in [&watched, &busy, &asking, &paused, &resting] {
        let view = view(id).await.json();
        assert_eq!((&view["status"], &view["queued"]), (&json!("completed"), &json!(0)), "{view}");
    }
    house.close().await;
}

/// What a server holds in memory now, in megabytes.
fn resident_mb(serving: &Serving) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", serving.child.id().unwrap())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() / 1024
}

/// Makes sessions, prompts each once, and waits until all of them have left memory.
async fn come_and_go(serving: &Serving, numbers: std::ops::Range<usize>) {
    let (at, end) = (std::sync::Arc::new(AtomicUsize::new(numbers.start)), numbers.end);
    let clients = (0..8).map(|_| {
        let at = std::sync::Arc::clone(&at);
        let address = serving.address;
        let request = serving.request("POST", "/sessions");
        let bearer = serving.token().unwrap();
        tokio::spawn(async move {
            loop {
                let number = at.fetch_add(1, Ordering::Relaxed);
                if number >= end {
                    return;
                }
                let reply = request.clone().json(&json!({ "sessionId": format!("s{number}") })).send(address).await;
                assert_eq!(reply.status, 201, "{reply:?}");
                let prompt =
                    crate::support::http::request(address, "POST", &format!("/sessions/s{number}/prompt?wait=true"));
                let prompt = prompt.header("Authorization", &format!("Bearer {bearer}"));
                // Outcomes are kept for as long as nobody needs them.
                let prompt = prompt.header("Idempotency-Key", &format!("k{number}")).json(&json!({ "prompt": "hi" }));
                let reply = prompt.send(address).await;
                assert_eq!((reply.status, &reply.json()["status"]), (200, &json!("completed")), "{reply:?}");
            }
        })
    });
    for client in futures_util::future::join_all(clients).await {
        client.unwrap();
    }
    let began = Instant::now();
    loop {
        let told = serving.request("GET", "/health?verbose").send(serving.address).await.json();
        let used = |name: &str| {
            let limits = told["limits"].as_array().unwrap();
            limits.iter().find(|limit| limit["name"] == name).unwrap()["used"].as_u64().unwrap()
        };
        assert!(used("restingScopes") <= limit::RESTING_SCOPES_MAX as u64 && used("keptOutcomes") > 0, "{told}");
        if (used("sessionsInMemory"), used("turnsRunning")) == (0, 0) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{told}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What thousands of sessions leave behind in memory is what a few hundred do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_sessions_that_rest_hold_no_memory() {
    let home = tempfile::tempdir().unwrap();
    let model = ModelServer::start(std::sync::Arc::new(|_| Answer::text(&["well"]))).await;
    let configuration = format!(
        "openai_base_url = \"{}\"\nmodel = \"openai/m\"\nsession_idle_ms = 20\ncommands_per_minute = 1000000\n",
        model.base_url()
    );
    std::fs::write(home.path().join("c.toml"), configuration).unwrap();
    let serving = Serving::start(&home, &["--config", "c.toml", "--log-level", "error"]).await;
    // Caches are filled by the first ones.
    come_and_go(&serving, 0..500).await;
    let before = resident_mb(&serving);
    come_and_go(&serving, 500..5_000).await;
    let after = resident_mb(&serving);
    // 4,500 sessions that stay cost several times as much.
    assert!(after < before + 60, "{before} MB, then {after} MB");
    serving.stop_well().await;
}

fn facts(turn: &Value) -> Value {
    serde_json::from_str(turn["result"].as_str().unwrap_or_else(|| panic!("no result: {turn}"))).unwrap()
}

/// The program that is really there, by its number.
fn is_there(pid: &Value) -> bool {
    std::path::Path::new("/proc").join(pid.to_string()).join("cwd").read_link().is_ok()
}

#[tokio::test]
async fn the_program_of_an_agent_that_rests_is_ended_and_comes_back() {
    let kept = tempfile::tempdir().unwrap();
    let loads = format!("load={}", kept.path().display());
    for (how, same) in [(loads.as_str(), true), ("", false)] {
        let house = House::with(ListenOptions::default(), |all| {
            all.limits.agent_idle_ms = 50;
            all.acp_servers = vec![settings("a", how)];
        })
        .await;
        let session = house.session(json!({ "agent": "a" })).await;
        let before = facts(&house.prompt(&session, "facts").await);
        until("the program has ended", || !is_there(&before["pid"])).await;
        assert_eq!(used(&house, "agentPrograms"), 0);
        let after = facts(&house.prompt(&session, "facts").await);
        assert_ne!(before["pid"], after["pid"]);
        // Its session goes on where it can; where it cannot, a new one is told what was.
        assert_eq!(before["session"] == after["session"], same, "{how}: {before} {after}");
        assert_eq!(after["blocks"].as_array().unwrap().len() == 1, same, "{after}");
        house.close().await;
    }
}

#[tokio::test]
async fn the_program_of_an_agent_that_works_stays() {
    let house = House::with(ListenOptions::default(), |all| {
        all.limits.agent_idle_ms = 30;
        all.acp_servers = vec![settings("a", ""), settings("b", "")];
    })
    .await;
    let working = house.session(json!({ "agent": "a" })).await;
    let body = json!({ "prompt": "facts\nwait" });
    assert_eq!(house.call("POST", &format!("/sessions/{working}/prompt"), Some(body)).await.status, 202);
    let told = house.events(&working, "").await.until("stream.delta").await.pop().unwrap();
    let works: Value = serde_json::from_str(told.data["payload"]["text"].as_str().unwrap()).unwrap();
    // Another agent's program comes and goes meanwhile: as much time as it takes has passed for both.
    let resting = house.session(json!({ "agent": "b" })).await;
    for _ in 0..2 {
        let rests = facts(&house.prompt(&resting, "facts").await);
        until("the other program has ended", || !is_there(&rests["pid"])).await;
    }
    assert!(is_there(&works["pid"]));
    assert_eq!((used(&house, "agentPrograms"), used(&house, "sessionsOfAnAgent")), (1, 1));
    assert_eq!(house.call("POST", &format!("/sessions/{working}/abort"), Some(json!({}))).await.status, 200);
    until("then it ends too", || !is_there(&works["pid"])).await;
    house.close().await;
}
