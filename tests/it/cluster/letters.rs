//! A node that is not reached at its address is asked through the database. A node that goes leaves nobody without an answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::nodes::{Cluster, LOOK};
use super::relay::Relay;
use super::wire::{Wanted, introduced};

/// How soon anything is answered that waits for nothing.
const SOON: Duration = Duration::from_secs(10);
/// Requests at once, and the sessions that they are for.
const MANY: (usize, usize) = (120, 24);

fn waiting(session: &str, text: &str) -> Wanted {
    let path = format!("/sessions/{session}/prompt?wait=true");
    Wanted::post(&path, json!({ "prompt": text })).keyed(&text.replace(' ', "-"))
}

/// Starts node 0 anew, known at an address where it is not.
async fn misplace(cluster: &Cluster, address: std::net::SocketAddr) {
    assert_eq!(cluster.stop(0).await, Some(0), "{}", cluster.said(0));
    cluster.known_at(0, address);
    cluster.restart(0).await;
    cluster.until_active(1, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_listens_and_never_answers_is_gone_round() {
    let Some(cluster) = Cluster::start(2).await else { return };
    // Whoever connects is let in by the kernel, and hears nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    misplace(&cluster, silent.local_addr().expect("bound")).await;
    cluster.create(0, "s").await;
    let asked = [Wanted::get("/sessions/s"), Wanted::get("/sessions/s/turns"), waiting("s", "quick t1")];
    for wanted in &asked {
        let begun = Instant::now();
        let said = wanted.ask_within(cluster.at(1), SOON).await;
        let took = begun.elapsed();
        assert!(said.as_ref().is_some_and(|said| said.status == 200), "{took:?}: {wanted:?}: {said:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_takes_everything_and_lets_nothing_through_is_gone_round() {
    let Some(cluster) = Cluster::start(2).await else { return };
    let way = Relay::start([127, 0, 0, 1].into(), cluster.at(0).port()).await;
    misplace(&cluster, way.at).await;
    cluster.create(0, "s").await;
    // It is asked for a sign meanwhile, and gives one.
    let long = waiting("s", "long t0").ask_within(cluster.at(1), SOON * 2).await;
    assert!(long.as_ref().is_some_and(|said| said.value["status"] == "completed"), "{long:?}");
    let mut stream = tokio::net::TcpStream::connect(cluster.at(1)).await.expect("a node");
    let body = json!({ "prompt": "long t4" }).to_string();
    let head = format!(
        "POST /sessions/s/prompt HTTP/1.1\r\n{}accept: text/event-stream\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        introduced(cluster.at(1)),
        body.len()
    );
    stream.write_all(head.as_bytes()).await.expect("asked");
    let mut read = vec![0; 1 << 20];
    let mut streamed = String::new();
    while !streamed.contains("stream.delta") {
        let more = stream.read(&mut read).await.expect("an answer");
        assert!(more > 0, "it ended: {streamed}");
        streamed += &String::from_utf8_lossy(&read[..more]);
    }
    way.cut();
    let ending = tokio::spawn(async move { tokio::time::timeout(SOON * 2, stream.read_to_end(&mut read)).await });
    let unnamed = Wanted::post("/sessions/s/prompt", json!({ "prompt": "quick t1" }));
    let asked = [(Wanted::get("/sessions/s"), 200), (waiting("s", "quick t2"), 200), (unnamed, 503)];
    let begun = Instant::now();
    let asking = asked.iter().map(|(wanted, _)| wanted.ask_within(cluster.at(1), SOON * 2));
    let said = futures_util::future::join_all(asking).await;
    for ((wanted, status), said) in asked.iter().zip(&said) {
        assert!(said.as_ref().is_some_and(|said| said.status == *status), "{wanted:?}: {said:?}");
    }
    assert!(begun.elapsed() < SOON + SOON / 2, "it took {:?}", begun.elapsed());
    let ended = ending.await.expect("read");
    assert!(matches!(ended, Ok(Ok(_))), "a stream ends, and goes on from the log: {ended:?}");
    // From then on nobody waits for that.
    let begun = Instant::now();
    let said = waiting("s", "quick t3").ask_within(cluster.at(1), SOON).await;
    assert!(said.as_ref().is_some_and(|said| said.value["status"] == "completed"), "{said:?}");
    assert!(begun.elapsed() < SOON / 3, "it took {:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_requests_at_once_go_through_the_database_and_others_beside_them() {
    let Some(cluster) = Cluster::start(2).await else { return };
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound");
    misplace(&cluster, free).await;
    for session in 0..MANY.1 {
        cluster.create(0, &format!("m{session}")).await;
    }
    let all: Vec<_> = (0..MANY.0)
        .map(|nth| {
            let cluster = Arc::clone(&cluster);
            tokio::spawn(async move {
                let wanted = waiting(&format!("m{}", nth % MANY.1), &format!("quick t{nth}"));
                wanted.ask_within(cluster.at(1), super::nodes::PATIENCE).await
            })
        })
        .collect();
    while !all.iter().all(tokio::task::JoinHandle::is_finished) {
        let said = Wanted::get("/sessions/m0").ask_within(cluster.at(1), SOON).await;
        assert!(said.as_ref().is_some_and(|said| said.status == 200), "beside them: {said:?}");
        tokio::time::sleep(LOOK).await;
    }
    for done in all {
        let said = done.await.expect("asked");
        assert!(said.as_ref().is_some_and(|said| said.value["status"] == "completed"), "{said:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_ends_takes_prompts_for_whoever_follows() {
    let Some(cluster) = Cluster::start(2).await else { return };
    cluster.create(0, "s").await;
    let running = cluster.prompt(0, "s", "long t1").await;
    let (code, (waited, plain)) = tokio::join!(cluster.stop(0), async {
        // The signal has arrived by then, and the turn runs on.
        tokio::time::sleep(Duration::from_millis(500)).await;
        // Who asks how it is hears that it ends.
        let health = Wanted::get("/health").ask_within(cluster.at(0), SOON).await.expect("it listens");
        assert_eq!(
            (health.status, &health.value["checks"]["server"]["status"]),
            (503, &json!("stopping")),
            "{health:?}"
        );
        let plain = Wanted::post("/sessions/s/prompt", json!({ "prompt": "quick t3" }));
        let made = Wanted::post("/sessions", json!({ "sessionId": "elsewhere" })).ask_within(cluster.at(0), SOON).await;
        assert!(made.as_ref().is_some_and(|said| said.status == 201), "{made:?}");
        let waited = waiting("s", "quick t2");
        tokio::join!(waited.ask_within(cluster.at(1), SOON * 2), plain.ask_within(cluster.at(0), SOON))
    });
    assert_eq!(code, Some(0), "{}", cluster.said(0));
    assert!(plain.as_ref().is_some_and(|said| said.status == 202), "{plain:?}");
    assert!(waited.as_ref().is_some_and(|said| said.value["status"] == "completed"), "{waited:?}");
    for turn in [running, plain.expect("accepted").text("turnId")] {
        assert_eq!(cluster.turn(1, "s", &turn).await["status"], "completed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_cut_off_says_so_soon() {
    let Some(cluster) = Cluster::start(2).await else { return };
    assert_eq!(cluster.get(0, "/health").await.status, 200);
    cluster.create(0, "s").await;
    let turn = cluster.prompt(0, "s", "quick t1").await;
    assert_eq!(cluster.turn(0, "s", &turn).await["status"], "completed");
    let last = cluster.get(0, "/sessions/s").await.number("lastSeq");
    cluster.create(0, "resting").await;
    cluster.cut(0);
    // Somebody may have seen it at another node: only the database knows.
    let ahead = Wanted::get("/sessions/s/events").behind(last + 1).ask_within(cluster.at(0), SOON).await;
    assert!(ahead.as_ref().is_some_and(|said| said.status == 503), "{ahead:?}");
    // One that rests: who has it is not known without the database, either.
    let begun = Instant::now();
    let resting = Wanted::post("/sessions/resting/prompt", json!({ "prompt": "quick t2" })).keyed("resting");
    let resting = resting.ask_within(cluster.at(0), SOON).await;
    assert!(resting.as_ref().is_some_and(|said| said.status == 503), "{resting:?} after {:?}", begun.elapsed());
    for _ in 0..3 {
        let begun = Instant::now();
        let said = Wanted::get("/health").ask(cluster.at(0)).await;
        assert!(said.as_ref().is_some_and(|said| said.status == 503), "{said:?}");
        assert!(begun.elapsed() < Duration::from_secs(4), "it took {:?}", begun.elapsed());
    }
}
