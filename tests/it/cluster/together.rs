//! What one node has made any other one serves, as if it were its own; and what comes to two of them at once is done once.

use serde_json::{Value, json};

use super::check::hold;
use super::ledger::Session;
use super::nodes::Cluster;
use super::wire::Wanted;

/// Rounds of the same thing at two nodes.
const ROUNDS: usize = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_prompted_read_and_streamed_at_any_node() {
    let Some(cluster) = Cluster::start(2).await else { return };
    cluster.create(0, "s").await;
    let mut session = Session::default();
    let mut there = cluster.events(1, "s", 0).await;
    let turn = cluster.prompt(1, "s", "long t1").await;
    session.prompts.insert("t1".to_owned(), Some(turn.clone()));
    loop {
        let (seq, data) = there.next().await.expect("the stream goes on");
        assert_eq!(session.seen.insert(seq, data.clone()), None);
        if data.contains("\"stream.delta\"") {
            break;
        }
    }
    let path = format!("/sessions/s/turns/{turn}");
    for number in [0, 1] {
        let record = cluster.get(number, &path).await;
        assert_eq!(record.value["status"], "running", "it is seen while it runs: {record:?}");
    }
    // On at the other node, behind the last that was seen, and back again.
    for number in [0, 1] {
        let mut stream = cluster.events(number, "s", session.seen.len() as u64).await;
        for _ in 0..10 {
            let (seq, data) = stream.next().await.expect("the stream goes on");
            assert_eq!(seq, session.seen.len() as u64 + 1, "node {number} goes on where the other one was");
            session.seen.insert(seq, data);
        }
    }
    let explain = json!({ "sessionId": "s", "tool": "bash", "arguments": { "command": "ls" } });
    let explained = cluster.ask(1, &Wanted::post("/permissions/explain", explain).keyed("explain")).await;
    assert!(explained.is_ok() && explained.value["decision"].is_string(), "{explained:?}");
    let refused = Wanted::post("/sessions/s/prompt", json!({ "prompt": "quick", "mode": "reject" }));
    let refused = cluster.ask(1, &refused.keyed("busy")).await;
    assert_eq!((refused.status, &refused.value["error"]["code"]), (409, &json!("CONFLICT")), "{refused:?}");
    let aborting = Wanted::post("/sessions/s/abort", json!({ "reason": "enough" })).keyed("stop");
    let aborted = cluster.ask(1, &aborting).await;
    assert!(aborted.is_ok() && aborted.text("turnId") == turn, "{aborted:?}");
    session.aborted.insert(turn.clone());
    for number in [0, 1] {
        let record = cluster.turn(number, "s", &turn).await;
        assert_eq!(record["status"], "aborted", "{record}");
    }
    let next = cluster.prompt(1, "s", "quick t2").await;
    assert_eq!(cluster.turn(0, "s", &next).await["result"], "well");
    session.prompts.insert("t2".to_owned(), Some(next));
    hold(&session, "s", &cluster.log("s").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_and_clients_count_at_every_node() {
    let Some(cluster) = Cluster::start(2).await else { return };
    cluster.create(0, "s").await;
    let version = cluster.get(1, "/sessions/s").await.number("version");
    let titled = |title: &str| Wanted::patch("/sessions/s", json!({ "title": title })).at_version(version).keyed(title);
    let done = cluster.ask(1, &titled("one")).await;
    assert!(done.is_ok(), "{done:?}");
    let late = cluster.ask(0, &titled("two")).await;
    assert_eq!((late.status, &late.value["error"]["code"]), (409, &json!("CONFLICT")), "{late:?}");
    let again = cluster.ask(0, &titled("one")).await;
    assert!(again.is_ok() && again.replayed, "{again:?}");
    for number in [0, 1] {
        let view = cluster.get(number, "/sessions/s").await;
        assert_eq!((view.text("title").as_str(), view.number("version")), ("one", version + 1), "{view:?}");
    }
    // A client's session is its own, everywhere.
    let made = Wanted::post("/sessions", json!({ "sessionId": "own" })).by(Some("a")).keyed("own");
    assert_eq!(cluster.ask(0, &made).await.status, 201);
    for number in [0, 1] {
        for (client, status) in [("a", 200), ("b", 404)] {
            let view = cluster.ask(number, &Wanted::get("/sessions/own").by(Some(client))).await;
            assert_eq!(view.status, status, "{client} at node {number}: {view:?}");
            let prompt = json!({ "prompt": format!("quick {number}") });
            let prompt = Wanted::post("/sessions/own/prompt", prompt).by(Some(client)).keyed(&format!("own-{number}"));
            let said = cluster.ask(number, &prompt).await;
            assert_eq!(said.is_ok(), status == 200, "{client} at node {number}: {said:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_key_at_two_nodes_at_once_is_one_command() {
    let Some(cluster) = Cluster::start(2).await else { return };
    done_once(&cluster).await;
}

/// Gives the same commands to nodes 0 and 1 at once.
pub(super) async fn done_once(cluster: &Cluster) {
    let twice = async |wanted: Wanted, field: &str| {
        let (one, two) = tokio::join!(cluster.ask(0, &wanted), cluster.ask(1, &wanted));
        assert!(one.is_ok() && two.is_ok(), "{wanted:?}: {one:?} {two:?}");
        assert_eq!(one.text(field), two.text(field), "{wanted:?}");
        assert_ne!(one.replayed, two.replayed, "{wanted:?}: one of them was done: {one:?} {two:?}");
        one.text(field)
    };
    for round in 0..ROUNDS {
        let title = json!({ "title": format!("round {round}") });
        let id = twice(Wanted::post("/sessions", title).keyed(&format!("make-{round}")), "sessionId").await;
        let path = format!("/sessions/{id}/prompt");
        let text = |text: &str| Wanted::post(&path, json!({ "prompt": text })).keyed(&format!("ask-{round}"));
        let turn = twice(text("quick t1"), "turnId").await;
        let other = cluster.ask(round % 2, &text("quick other")).await;
        assert_eq!((other.status, &other.value["error"]["code"]), (409, &json!("CONFLICT")), "{other:?}");
        let record = cluster.turn((round + 1) % 2, &id, &turn).await;
        assert_eq!(record["status"], "completed", "{record}");
        let prompts = [("t1".to_owned(), Some(turn))].into();
        hold(&Session { prompts, ..Session::default() }, &id, &cluster.log(&id).await);
    }
    for number in [0, 1] {
        let list = cluster.get(number, "/sessions?limit=200").await;
        assert_eq!(list.value["items"].as_array().map(Vec::len), Some(ROUNDS), "{list:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_know_of_each_other() {
    let Some(cluster) = Cluster::start(2).await else { return };
    let told = [cluster.get(0, "/nodes").await, cluster.get(1, "/nodes").await];
    let nodes: Vec<&Vec<Value>> = told.iter().map(|told| told.value["nodes"].as_array().expect("a list")).collect();
    for (number, nodes) in nodes.iter().enumerate() {
        let url = format!("http://{}", cluster.at(number));
        let own: Vec<&Value> = nodes.iter().filter(|node| node["isSelf"] == true).collect();
        assert!(own.len() == 1 && own[0]["url"] == url.as_str(), "{nodes:?}");
        for node in *nodes {
            assert!(node["number"].is_u64() && node["sessions"].is_u64() && node["running"].is_u64(), "{node}");
            assert!(node["name"].as_str().is_some_and(|name| name.contains("(pid ")), "{node}");
            assert!(node["version"] == env!("CARGO_PKG_VERSION") && node["labels"].is_array(), "{node}");
        }
    }
    // Who has just come knows of the others as soon as it answers.
    assert_eq!(cluster.stop(0).await, Some(0), "{}", cluster.said(0));
    cluster.restart(0).await;
    let there = cluster.get(0, "/nodes").await;
    let active = there.value["nodes"].as_array().expect("a list").iter().filter(|node| node["state"] == "active");
    assert_eq!(active.count(), 2, "{there:?}");
}
