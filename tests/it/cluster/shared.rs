//! What nodes hold together: which of them takes a session, what clients use up, what each may begin, and who is believed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::nodes::{Cluster, LOOK, PATIENCE};
use super::wire::{Reply, Wanted};

/// Commands that a client may give in a minute.
const RATE: usize = 6;
/// Turns that a client may have.
const TURNS: usize = 4;
/// So many commands have become allowed again before half a minute has gone.
const BEYOND: usize = 3;
/// By then nodes have told each other.
const TOLD: Duration = Duration::from_secs(3);

/// Asks a node until it answers, whatever it says.
async fn said(cluster: &Cluster, number: usize, wanted: &Wanted) -> Reply {
    let begun = Instant::now();
    loop {
        if let Some(reply) = wanted.ask_within(cluster.at(number), PATIENCE).await {
            return reply;
        }
        assert!(begun.elapsed() < PATIENCE, "node {number} does not answer: {}", cluster.said(number));
        tokio::time::sleep(LOOK).await;
    }
}

fn prompt(session: &str, text: &str) -> Wanted {
    Wanted::post(&format!("/sessions/{session}/prompt"), json!({ "prompt": text }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_waits_for_who_reaches_its_workspace() {
    let labels: [&[&'static str]; 2] = [&["--node-labels", "one"], &["--node-labels", "two"]];
    let Some(cluster) = Cluster::with(&labels).await else { return };
    cluster.create(0, "s").await;
    let turn = cluster.prompt(1, "s", "quick t1").await;
    assert_eq!(cluster.turn(1, "s", &turn).await["status"], "completed");
    cluster.prompt(0, "s", "long t3").await;
    let waits = cluster.prompt(0, "s", "quick t4").await;
    cluster.kill(0).await;
    cluster.until_over(1, 0).await;
    let refused = said(&cluster, 1, &prompt("s", "quick t2").keyed("t2")).await;
    let details = &refused.value["error"]["details"];
    let told = (refused.status, &details["reason"], &details["labels"]);
    assert_eq!(told, (503, &json!("workspace out of reach"), &json!(["one"])), "{refused:?}");
    for path in ["/sessions/s/files", "/skills?sessionId=s", "/commands?sessionId=s"] {
        let files = said(&cluster, 1, &Wanted::get(path)).await;
        assert_eq!(files.status, 503, "what lies here at the same path is another machine's: {path}: {files:?}");
    }
    let view = said(&cluster, 1, &Wanted::get("/sessions/s")).await;
    assert_eq!(view.status, 200, "it can be read: {view:?}");
    let open = (view.value["turn"]["prompt"].as_str(), view.number("queued"));
    assert_eq!(open, (Some("long t3"), 1), "what is open in it is shown, whoever has it: {view:?}");
    let mut stream = cluster.events(1, "s", 0).await;
    for seq in 1..=view.number("lastSeq") {
        assert_eq!(stream.next().await.map(|(seq, _)| seq), Some(seq));
    }
    // Whose workspaces are other ones lets it lie; who is back goes on with it, wherever it is asked for.
    cluster.restart(0).await;
    cluster.until_active(1, 2).await;
    let files = said(&cluster, 1, &Wanted::get("/sessions/s/files")).await;
    assert_eq!(files.status, 200, "{files:?}");
    let next = cluster.prompt(1, "s", "quick t2").await;
    for turn in [&waits, &next] {
        assert_eq!(cluster.turn(1, "s", turn).await["status"], "completed");
    }
    let view = said(&cluster, 1, &Wanted::get("/sessions/s")).await;
    assert!(view.value["turn"].is_null() && view.number("queued") == 0, "{view:?}");
}

/// Asks as often as it is allowed, at most `most` times.
async fn allowed(cluster: &Cluster, number: usize, (wanted, most): (&dyn Fn(usize) -> Wanted, usize)) -> usize {
    for done in 0..most {
        let reply = said(cluster, number, &wanted(done)).await;
        if !reply.is_ok() {
            assert_eq!(reply.status, 429, "{reply:?}");
            return done;
        }
    }
    most
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn how_many_commands_a_client_gives_counts_over_all_nodes() {
    let Some(cluster) = Cluster::with(&[&["--commands-per-minute", "6"][..]; 2]).await else { return };
    let make =
        |number: usize| move |nth| Wanted::post("/sessions", json!({})).by(Some("a")).keyed(&format!("{number}-{nth}"));
    assert_eq!(allowed(&cluster, 0, (&make(0), RATE + 1)).await, RATE);
    tokio::time::sleep(TOLD).await;
    let more = allowed(&cluster, 1, (&make(1), RATE)).await;
    assert!(more <= BEYOND, "node 1 allows {more} more");
    let other = Wanted::post("/sessions", json!({})).by(Some("b")).keyed("b");
    assert_eq!(said(&cluster, 1, &other).await.status, 201, "everybody has a share");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_client_spends_counts_over_all_nodes() {
    let Some(cluster) = Cluster::with(&[&["--client-budget", "turns=4"][..]; 2]).await else { return };
    for number in 0..2 {
        cluster.create(number, &format!("s{number}")).await;
    }
    // The one that was asked has it: neither has much to do.
    let mut done = 0;
    for nth in 0..TURNS {
        let number = nth % 2;
        let turn = cluster.prompt(number, &format!("s{number}"), &format!("quick t{nth}")).await;
        done += usize::from(cluster.turn(number, &format!("s{number}"), &turn).await["status"] == "completed");
    }
    assert_eq!(done, TURNS);
    tokio::time::sleep(TOLD).await;
    let ask = |number: usize| move |nth| prompt(&format!("s{number}"), "quick x").keyed(&format!("x-{number}-{nth}"));
    for number in 0..2 {
        assert_eq!(allowed(&cluster, number, (&ask(number), 1)).await, 0, "node {number} allows more");
    }
}

fn ticks(cluster: &Cluster) -> usize {
    std::fs::read_to_string(cluster.work().join("ticks")).map_or(0, |ticks| ticks.lines().count())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_may_be_followed_begins_nothing() {
    let Some(cluster) = Cluster::start(2).await else { return };
    cluster.create(0, "s").await;
    let turn = cluster.prompt(0, "s", "ticks").await;
    let begun = Instant::now();
    while ticks(&cluster) < 3 {
        assert!(begun.elapsed() < PATIENCE, "it does not tick: {:?}", cluster.log("s").await);
        tokio::time::sleep(LOOK).await;
    }
    cluster.cut(0);
    cluster.until_over(1, 0).await;
    // What had begun by then has ended.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = ticks(&cluster);
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(cluster.runs(0), "{}", cluster.said(0));
    assert_eq!(ticks(&cluster), before, "the node that was followed goes on");
    assert_eq!(cluster.turn(1, "s", &turn).await["status"], "failed");
    cluster.mend(0);
    assert_eq!(cluster.ended(0).await, Some(1));
}

/// What all nodes know.
async fn secret(cluster: &Cluster) -> String {
    let url = cluster.postgres().socket_url();
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("connects");
    let _driven = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(connection));
    let secret: String = client.query_one("SELECT secret FROM cluster", &[]).await.expect("one").get(0);
    assert!(secret.len() >= 32, "{secret}");
    secret
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_took_a_nodes_place_learns_nothing_and_is_not_believed() {
    let Some(cluster) = Cluster::start(2).await else { return };
    cluster.create(1, "s").await;
    let secret = secret(&cluster).await;
    let turn = cluster.prompt(0, "s", "quick t1").await;
    assert_eq!(cluster.turn(0, "s", &turn).await["status"], "completed");
    let at = cluster.at(1);
    cluster.kill(1).await;
    let heard = Arc::new(parking_lot::Mutex::new(String::new()));
    let listener = TcpListener::bind(at).await.expect("nobody has it");
    let (hears, listening) = (
        Arc::clone(&heard),
        async move |listener: TcpListener, hears: Arc<parking_lot::Mutex<String>>| {
            loop {
                let Ok((mut stream, _)) = listener.accept().await else { return };
                let mut head = [0; 8_192];
                let Ok(bytes) = stream.read(&mut head).await else { continue };
                *hears.lock() += &String::from_utf8_lossy(&head[..bytes]);
                let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 18\r\n\r\n{\"sessionId\":\"no\"}";
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        },
    );
    let _listening = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(listening(listener, hears)));
    let view = said(&cluster, 0, &Wanted::get("/sessions/s")).await;
    assert_eq!((view.status, view.text("sessionId").as_str()), (200, "s"), "{view:?}");
    let next = cluster.prompt(0, "s", "quick t2").await;
    assert_eq!(cluster.turn(0, "s", &next).await["status"], "completed");
    let heard = heard.lock().to_lowercase();
    assert!(heard.contains("x-simse-signature: "), "it was asked: {heard}");
    assert!(!heard.contains(&secret) && !heard.contains("authorization"), "{heard}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_node_keeps_its_sessions_and_who_gave_up_its_own_says_so() {
    let Some(cluster) = Cluster::start(2).await else { return };
    cluster.create(0, "s").await;
    let drain = Wanted::post("/drain", json!({}));
    assert_eq!(said(&cluster, 0, &drain).await.value, json!({ "draining": true, "left": 0 }));
    let refused = said(&cluster, 1, &drain).await;
    assert_eq!((refused.status, &refused.value["error"]["code"]), (409, &json!("CONFLICT")), "{refused:?}");
    let turn = cluster.prompt(0, "s", "quick t1").await;
    assert_eq!(cluster.turn(0, "s", &turn).await["status"], "completed", "the other one has it");
    assert_eq!(cluster.stop(1).await, Some(0));
    let refused = said(&cluster, 0, &prompt("s", "quick t2").keyed("t2")).await;
    assert_eq!(
        (refused.status, &refused.value["error"]["details"]["reason"]),
        (503, &json!("no server takes it")),
        "{refused:?}"
    );
    let view = said(&cluster, 0, &Wanted::get("/sessions/s")).await;
    assert_eq!(view.status, 200, "it can be read: {view:?}");
    let mut stream = cluster.events(0, "s", 0).await;
    for seq in 1..=view.number("lastSeq") {
        assert_eq!(stream.next().await.map(|(seq, _)| seq), Some(seq));
    }
    // Who comes goes on with it; who was asked meanwhile has nothing of its own.
    cluster.restart(1).await;
    let next = cluster.prompt(1, "s", "quick t2").await;
    assert_eq!(cluster.turn(0, "s", &next).await["status"], "completed");
    assert_eq!(stream.next().await.map(|(seq, _)| seq), Some(view.number("lastSeq") + 1), "the stream goes on");
    let here = said(&cluster, 0, &Wanted::get("/sessions/s")).await;
    assert_eq!(here.value, said(&cluster, 1, &Wanted::get("/sessions/s")).await.value);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_handed_on_arrives_as_it_was_checked() {
    let Some(cluster) = Cluster::start(2).await else { return };
    cluster.create(0, "s").await;
    for path in ["/sessions/s/turns/..\\..\\..\\metrics", "/sessions/s/turns/%2e%2e/../../health", "/sessions/x/../s"] {
        let reply = said(&cluster, 1, &Wanted::get(path)).await;
        let at = &reply.value["error"]["details"]["field"];
        assert!(reply.status == 404 || (reply.status == 400 && at == "path"), "{path}: {reply:?}");
    }
    for method in ["command?sessionId=s", "nothing"] {
        let reply = said(&cluster, 1, &Wanted::post(&format!("/-/{method}"), json!({ "type": "list_sessions" }))).await;
        assert_eq!(reply.status, 404, "{reply:?}");
    }
}
