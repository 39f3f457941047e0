//! Networks that fail between machines: nodes cut from one another, one cut from the database in silence, one with a slow way to it.
//! What is in the kernel needs a network of its own (`net`).

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::check::hold;
use super::nodes::Cluster;
use super::socket::Socket;
use super::taken::{MIDST, Seen, seen_until, session, silent};
use super::wire::Wanted;

/// Longest wait for a refusal: it is due after 15 s, but for an attempt to connect that has begun by then.
const REFUSED: Duration = Duration::from_secs(30);
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
async fn refused((cluster, number): (&Cluster, usize), wanted: Wanted, is_command: bool) {
    let (begun, at) = (Instant::now(), cluster.at(number));
    let said = match is_command {
        true => Socket::open(at, None).await.expect("it is there").ask_within(&wanted, REFUSED).await,
        false => wanted.ask_within(at, REFUSED).await,
    };
    let said = said.unwrap_or_else(|| panic!("node {number} has not answered {wanted:?} within {REFUSED:?}"));
    let took = begun.elapsed();
    assert_eq!(
        (said.status, &said.value["error"]["code"]),
        (503, &json!("UPSTREAM_UNAVAILABLE")),
        "{took:?}: {said:?}"
    );
}

fn prompt(session: &str, text: &str) -> Wanted {
    let path = format!("/sessions/{session}/prompt");
    Wanted::post(&path, json!({ "prompt": text })).keyed(&text.replace(' ', "-"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_do_not_reach_one_another_keep_their_sessions() {
    let Some(cluster) = Cluster::apart(2).await else { return };
    cluster.create(0, "s").await;
    cluster.create(1, "u").await;
    let before = everybody(&cluster).await;
    // Each has a way to the other one that was used, and is open.
    let (first, other) = (cluster.prompt(1, "s", "quick t1").await, cluster.prompt(0, "u", "quick u1").await);
    let running = cluster.prompt(1, "s", "long t2").await;
    let (mut live, mut seen) = (cluster.events(1, "s", 0).await, Seen::new());
    seen_until(&mut live, &mut seen, ("stream.delta", MIDST)).await;
    cluster.part(0, 1);
    let here = cluster.prompt(0, "s", "quick t3").await;
    tokio::join!(
        refused((&cluster, 1), prompt("s", "quick t4"), false),
        refused((&cluster, 0), prompt("u", "quick u2"), true),
        refused((&cluster, 1), Wanted::get("/sessions/s"), false),
        // Who reads at the other one has never noticed.
        seen_until(&mut live, &mut seen, ("session.completed", 3)),
    );
    assert_eq!(everybody(&cluster).await, before, "nobody is declared over");
    for number in 0..2 {
        cluster.mend(number);
    }
    let healed = Instant::now();
    let late = cluster.prompt(1, "s", "quick t4").await;
    let there = cluster.prompt(0, "u", "quick u2").await;
    assert!(healed.elapsed() < HEALED, "it took {:?}", healed.elapsed());
    for (session, turn) in [("s", &late), ("u", &there)] {
        for number in 0..2 {
            assert_eq!(cluster.turn(number, session, turn).await["status"], "completed");
        }
    }
    assert_eq!(everybody(&cluster).await, before, "nobody is declared over");
    let turns = [("t1", &first), ("t2", &running), ("t3", &here), ("t4", &late)];
    hold(&session(turns, seen), "s", &cluster.log("s").await);
    hold(&session([("u1", &other), ("u2", &there)], Seen::new()), "u", &cluster.log("u").await);
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
