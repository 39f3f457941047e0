//! Networks that fail between machines: nodes cut from one another, one cut from the database in silence, one with a slow way to it.
//! What is in the kernel needs a network of its own (`net`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::check::hold;
use super::nodes::Cluster;
use super::socket::Socket;
use super::taken::{MIDST, Seen, seen_until, session, silent};
use super::wire::{Reply, Wanted};
use crate::crash::say;

/// How soon a session is usable at a node that does not reach its own.
const USABLE: Duration = Duration::from_secs(10);
/// The same once that is known.
const KNOWN: Duration = Duration::from_secs(2);
/// By then a request is on its way.
const SENT: Duration = Duration::from_millis(300);
/// How soon all works again once a way is whole.
const HEALED: Duration = Duration::from_secs(10);
/// How long a message takes on a slow network, one way.
const SLOW: Duration = Duration::from_millis(50);
/// Longer than a node may be silent.
const WHILE: Duration = Duration::from_secs(6);
/// Turns of a session on a slow network.
const ROUNDS: usize = 3;

/// All that were ever there, as each node knows them: number and state.
async fn everybody(cluster: &Cluster) -> Vec<(u64, String)> {
    let mut all = Vec::new();
    for number in 0..cluster.count() {
        let told = cluster.get(number, "/nodes").await;
        let nodes = told.value["nodes"].as_array().unwrap_or_else(|| panic!("no list: {told:?}"));
        let known = |node: &Value| (node["number"].as_u64().expect("a number"), node["state"].to_string());
        all.extend(nodes.iter().map(known));
    }
    all
}

/// What a node says that does not reach the holder of a session: to a request, or to a command over a socket.
async fn across((cluster, number): (&Cluster, usize), wanted: Wanted, is_command: bool) -> (Reply, Duration) {
    let (begun, at) = (Instant::now(), cluster.at(number));
    let said = match is_command {
        true => Socket::open(at, None).await.expect("it is there").ask_within(&wanted, USABLE).await,
        false => wanted.ask_within(at, USABLE).await,
    };
    let said = said.unwrap_or_else(|| panic!("node {number} has not answered {wanted:?} within {USABLE:?}"));
    let took = begun.elapsed();
    assert!(said.is_ok(), "{took:?}: {wanted:?}: {said:?}");
    (said, took)
}

fn prompt(session: &str, text: &str) -> Wanted {
    let path = format!("/sessions/{session}/prompt");
    Wanted::post(&path, json!({ "prompt": text })).keyed(&text.replace(' ', "-"))
}

/// Answers a question of the session `p` at a node that does not reach its own.
async fn asked_across(cluster: &Cluster) {
    let (mut live, mut seen) = (cluster.events(1, "p", 0).await, Seen::new());
    let (accepted, _) = across((cluster, 1), prompt("p", "run p1"), false).await;
    seen_until(&mut live, &mut seen, ("permission.request", 1)).await;
    let event = seen.values().find(|data| data.contains("\"permission.request\"")).expect("it was seen");
    let event: Value = serde_json::from_str(event).expect("JSON");
    let answer = json!({ "requestId": event["payload"]["requestId"], "decision": "allow" });
    across((cluster, 1), Wanted::post("/sessions/p/feedback", answer).keyed("p1-yes"), false).await;
    seen_until(&mut live, &mut seen, ("session.completed", 1)).await;
    assert_eq!(cluster.turn(1, "p", &accepted.text("turnId")).await["status"], "completed");
    assert!(cluster.work().join("mark-p1").exists(), "it was allowed");
}

/// Works with the sessions `s` of node 0 and `u` of node 1, each at the other one. The turns: three of `s`, two of `u`, of which the
/// last was aborted.
async fn worked_across(cluster: &Cluster) -> [String; 5] {
    let first = tokio::join!(
        across((cluster, 1), prompt("s", "quick t5"), false),
        across((cluster, 0), prompt("u", "quick u2"), true),
        across((cluster, 1), Wanted::get("/sessions/s"), false),
    );
    let slowest = first.0.1.max(first.1.1).max(first.2.1);
    let (view, took) = across((cluster, 1), Wanted::get("/sessions/s"), false).await;
    assert_eq!(view.text("sessionId"), "s");
    assert!(took < KNOWN, "the second request took {took:?}");
    let (open, by_socket) = across((cluster, 0), prompt("u", "open u3"), true).await;
    assert!(by_socket < KNOWN, "the second command took {by_socket:?}");
    say(&format!("across a cut: {slowest:?}, then {took:?}, a command over a socket {by_socket:?}"));
    let waits = Wanted::post("/sessions/s/prompt?wait=true", json!({ "prompt": "slow t6" })).keyed("slow-t6");
    let (record, _) = across((cluster, 1), waits.clone(), false).await;
    assert_eq!(record.value["status"], "completed", "{record:?}");
    let (again, _) = across((cluster, 1), waits, false).await;
    assert!(again.replayed && again.value == record.value, "it was done once: {again:?}");
    // What has no key was not sent, or is done.
    let plain = Wanted::post("/sessions/s/prompt", json!({ "prompt": "quick t7" }));
    let (plain, _) = across((cluster, 1), plain, false).await;
    let abort = Wanted::post("/sessions/u/abort", json!({})).keyed("u3-abort");
    across((cluster, 0), abort, false).await;
    asked_across(cluster).await;
    let missing = Wanted::get("/sessions/s/turns/none").ask_within(cluster.at(1), KNOWN).await.expect("an answer");
    assert_eq!(missing.status, 404, "a refusal is one, too: {missing:?}");
    [
        first.0.0.text("turnId"),
        record.text("turnId"),
        plain.text("turnId"),
        first.1.0.text("turnId"),
        open.text("turnId"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_do_not_reach_one_another_keep_their_sessions_and_answer_for_all() {
    let Some(cluster) = Cluster::apart(2).await else { return };
    cluster.create(0, "s").await;
    cluster.create(1, "u").await;
    let asks = json!({ "sessionId": "p", "toolPermissions": { "defaultPolicy": "ask", "rules": [] } });
    assert_eq!(cluster.ask(0, &Wanted::post("/sessions", asks).keyed("make-p")).await.status, 201);
    let before = everybody(&cluster).await;
    // Each has a way to the other one that was used.
    let (first, other) = (cluster.prompt(1, "s", "quick t1").await, cluster.prompt(0, "u", "quick u1").await);
    let running = cluster.prompt(1, "s", "long t2").await;
    let (mut live, mut seen) = (cluster.events(1, "s", 0).await, Seen::new());
    seen_until(&mut live, &mut seen, ("stream.delta", MIDST)).await;
    // A request that is on its way when they are cut is heard of, too.
    let waits = Wanted::post("/sessions/s/prompt?wait=true", json!({ "prompt": "quick t3" })).keyed("quick-t3");
    let waiting = {
        let cluster = Arc::clone(&cluster);
        tokio::spawn(async move { across((&cluster, 1), waits, false).await })
    };
    tokio::time::sleep(SENT).await;
    cluster.part(0, 1);
    let here = cluster.prompt(0, "s", "quick t4").await;
    let [late, waited, plain, there, aborted] = worked_across(&cluster).await;
    let (cut, took) = waiting.await.expect("an answer");
    say(&format!("a request that waited for a turn when they were cut: {took:?}"));
    // Who reads at the other one has never noticed.
    seen_until(&mut live, &mut seen, ("session.completed", 7)).await;
    for (session, turn) in [("s", &late), ("s", &plain), ("u", &there)] {
        for number in 0..2 {
            assert_eq!(cluster.turn(number, session, turn).await["status"], "completed");
        }
    }
    assert_eq!(everybody(&cluster).await, before, "nobody is declared over");
    for number in 0..2 {
        cluster.mend(number);
    }
    let healed = Instant::now();
    let after = cluster.prompt(1, "s", "quick t8").await;
    assert_eq!(cluster.prompt(0, "u", "quick u2").await, there, "the same key is the same turn");
    assert!(healed.elapsed() < HEALED, "it took {:?}", healed.elapsed());
    assert_eq!(everybody(&cluster).await, before, "nobody is declared over");
    cluster.turn(1, "s", &after).await;
    let cut = cut.text("turnId");
    let turns = [
        ("t1", &first),
        ("t2", &running),
        ("t3", &cut),
        ("t4", &here),
        ("t5", &late),
        ("t6", &waited),
        ("t7", &plain),
        ("t8", &after),
    ];
    hold(&session(turns, seen), "s", &cluster.log("s").await);
    let mut other = session([("u1", &other), ("u2", &there), ("u3", &aborted)], Seen::new());
    other.aborted.insert(aborted.clone());
    hold(&other, "u", &cluster.log("u").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_way_to_the_database_is_silent_is_followed() {
    let Some(cluster) = Cluster::apart(2).await else { return };
    silent(&cluster, |cluster| cluster.cut(0), |cluster| cluster.mend(0)).await;
}

/// Works with a session at both nodes.
async fn rounds(cluster: &Cluster, id: &str) {
    let (mut live, mut seen) = (cluster.events(0, id, 0).await, Seen::new());
    let what: [String; ROUNDS] = std::array::from_fn(|round| format!("{} {id}{round}", ["slow", "quick"][round % 2]));
    let mut turns: [String; ROUNDS] = Default::default();
    for (round, text) in what.iter().enumerate() {
        turns[round] = cluster.prompt(round % 2, id, text).await;
    }
    seen_until(&mut live, &mut seen, ("session.completed", ROUNDS)).await;
    let prompts = std::array::from_fn(|round| (what[round].split(' ').next_back().expect("a token"), &turns[round]));
    hold(&session::<ROUNDS>(prompts, seen), id, &cluster.log(id).await);
}

/// Works for a while with a node whose way to the database is slow.
async fn slowly(cluster: &Cluster) {
    if !cluster.slow(0, SLOW) {
        return;
    }
    let (before, begun) = (everybody(cluster).await, Instant::now());
    cluster.create(0, "s").await;
    cluster.create(1, "u").await;
    tokio::join!(rounds(cluster, "s"), rounds(cluster, "u"));
    tokio::time::sleep(WHILE.saturating_sub(begun.elapsed())).await;
    assert_eq!(everybody(cluster).await, before, "nobody is declared over");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_a_slow_way_to_the_database_goes_on() {
    let Some(cluster) = Cluster::start(2).await else { return };
    slowly(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_on_a_slow_network_goes_on() {
    let Some(cluster) = Cluster::apart(2).await else { return };
    slowly(&cluster).await;
}
