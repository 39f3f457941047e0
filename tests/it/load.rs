//! Limits and load (contract.md, Doors): what is bounded is told, a client that does not read slows nobody, and a stop under
//! load keeps every word that was given.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use simse::server::ListenOptions;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::support::binary::Serving;
use crate::support::house::{Does, House};
use crate::support::http::{PATIENCE, request};

async fn limits(house: &House) -> BTreeMap<String, (u64, u64)> {
    let told = house.call("GET", "/health?verbose", None).await.json();
    let number = |one: &Value, field: &str| one[field].as_u64().unwrap_or_else(|| panic!("{field}: {one}"));
    let one = |one: &Value| (one["name"].as_str().unwrap().to_owned(), (number(one, "used"), number(one, "limit")));
    told["limits"].as_array().unwrap().iter().map(one).collect()
}

#[tokio::test]
async fn what_is_bounded_is_told() {
    let options = ListenOptions { connections_max: 7, ..Default::default() };
    let house = House::with(options, |settings| settings.limits.sessions_max = 5).await;
    assert_eq!(house.call("GET", "/health", None).await.json().get("limits"), None);
    let session = house.session(json!({})).await;
    house.session(json!({})).await;
    house.round(&[Does::Says("x"), Does::Waits]);
    let mut stream = house.events(&session, "").await;
    house.call("POST", &format!("/sessions/{session}/prompt"), Some(json!({ "prompt": "go" }))).await;
    stream.until("stream.delta").await;
    let told = limits(&house).await;
    assert_eq!(told["sessions"], (2, 5));
    assert_eq!((told["sessionsInMemory"].0, told["turnsRunning"].0, told["streamsOfASession"].0), (1, 1, 1));
    assert_eq!(told["connections"].1, 7);
    assert!((2..=7).contains(&told["connections"].0), "{told:?}");
    assert!(told["tailBytesOfASession"].0 > 0 && told.values().all(|(used, limit)| used <= limit), "{told:?}");
    for name in ["refusals", "tokens", "restingScopes", "ordersOfASession", "commandsUnderWay", "readOutcomes"] {
        assert!(told.contains_key(name), "{name}");
    }
    assert_eq!(told["streamsOverAllSessions"].0, 0);
    house.go_on();
    stream.until("session.completed").await;
    house.close().await;
}

/// One client opens a stream and never reads it. Others see everything at once, and the server holds no more than a tail.
#[tokio::test]
async fn a_client_that_does_not_read_slows_nobody() {
    const DELTAS: usize = 12_000;
    // Nobody is let go meanwhile, however busy the machine is.
    let options = ListenOptions { write_timeout: Duration::from_secs(600), ..Default::default() };
    let house = House::with(options, |_| {}).await;
    let session = house.session(json!({})).await;
    let mut stalled = Vec::new();
    for _ in 0..4 {
        let mut socket = TcpStream::connect(house.address).await.unwrap();
        let open = request(house.address, "GET", &format!("/sessions/{session}/events"));
        socket.write_all(&open.bytes()).await.unwrap();
        stalled.push(socket);
    }
    let mut reader = house.events(&session, "?types=session.completed").await;
    house.round(&[Does::Floods("a text of some length that fills what lies between", DELTAS)]);
    let turn = house.prompt(&session, "go").await;
    assert_eq!(turn["status"], "completed", "the turn waited for nobody");
    let seen =
        tokio::time::timeout(PATIENCE, reader.until("session.completed")).await.expect("nor did the other reader");
    assert_eq!(seen.len(), 2);
    let told = limits(&house).await;
    let (used, most) = told["tailBytesOfASession"];
    assert!(used <= most, "what nobody reads is not kept: {told:?}");
    assert_eq!(told["streamsOfASession"].0, 5, "they are still there");
    // Another session does not notice, and the stalled ones lose nothing once they read.
    let other = house.session(json!({})).await;
    assert_eq!(house.prompt(&other, "x").await["status"], "completed");
    let mut late = crate::support::http::Stream::read_head(stalled.pop().unwrap()).await;
    let all = late.until("session.completed").await;
    let numbers: Vec<u64> = all.iter().filter_map(|frame| frame.id).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    assert!(numbers.len() > DELTAS);
    drop(stalled);
    house.close().await;
}

/// Many clients prompt while the server is told to stop: whatever was acknowledged is in the store of the next one.
#[tokio::test]
async fn a_stop_under_load_keeps_its_word() {
    let home = tempfile::tempdir().unwrap();
    let serving = Serving::start(&home, &["--log-level", "error", "--shutdown-grace-ms", "300"]).await;
    let address = serving.address;
    let clients = (0..16).map(|client| {
        let create = serving.request("POST", "/sessions").json(&json!({ "sessionId": format!("s{client}") }));
        let prompt =
            serving.request("POST", &format!("/sessions/s{client}/prompt")).json(&json!({ "prompt": "hello" }));
        tokio::spawn(async move {
            let mut acknowledged = Vec::new();
            match create.try_send(address).await {
                Some(reply) if reply.status == 201 => {}
                _ => return None,
            }
            // Until it no longer answers.
            while let Some(reply) = prompt.try_send(address).await {
                match reply.status {
                    202 => acknowledged.push(reply.json()["turnId"].as_str().unwrap().to_owned()),
                    429 => tokio::task::yield_now().await,
                    503 => break,
                    other => panic!("{other}: {reply:?}"),
                }
            }
            Some((client, acknowledged))
        })
    });
    let clients: Vec<_> = clients.collect();
    // The load is there when every session is.
    while serving.request("GET", "/sessions").send(address).await.json()["items"].as_array().unwrap().len() < 16 {
        tokio::task::yield_now().await;
    }
    let (code, _, err) = tokio::time::timeout(PATIENCE, serving.stop()).await.expect("it stops");
    assert_eq!(code, Some(0), "{err}");
    let ended = futures_util::future::join_all(clients).await;
    let next = Serving::start(&home, &["--log-level", "error"]).await;
    let mut kept = 0;
    for (client, acknowledged) in ended.into_iter().filter_map(|client| client.expect("no client broke")) {
        for turn in acknowledged {
            let path = format!("/sessions/s{client}/turns/{turn}");
            let reply = next.request("GET", &path).send(next.address).await;
            assert_eq!(reply.status, 200, "{path} was acknowledged, and is gone: {reply:?}");
            kept += 1;
        }
    }
    assert!(kept > 0, "there was no load");
    tokio::time::timeout(Duration::from_secs(30), next.stop()).await.expect("it stops");
}
