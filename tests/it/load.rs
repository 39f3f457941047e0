//! Limits and load (contract.md, Doors): what is bounded is told, a client that does not read slows nobody, and a stop under
//! load keeps every word that was given.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use simse::server::ListenOptions;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::support::binary::{Serving, simse};
use crate::support::house::{Does, House};
use crate::support::http::{Frame, PATIENCE, request};
use crate::support::model_server::{Answer, ModelServer};
use crate::support::socket::Socket;

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
    for name in [
        "refusals",
        "tokens",
        "restingScopes",
        "restingScopesWithPrograms",
        "fileMarksOfASession",
        "consolesOfASession",
        "keptOutcomes",
        "framesOfASocket",
        "frameBytesOfASocket",
        "ordersOfASession",
        "commandsUnderWay",
        "controlsBesideThem",
        "readOutcomes",
        "searchShelves",
        "searchShelfBytes",
        "toolSets",
    ] {
        assert!(told.contains_key(name), "{name}");
    }
    assert_eq!(told["streamsOverAllSessions"].0, 0);
    assert_eq!((told["queuedTurnsOfASession"].0, told["questionsOfASession"].0), (0, 0));
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

/// Prompts until the server says that it stops, or is gone: what was acknowledged.
async fn prompts_on_a_socket(address: std::net::SocketAddr, bearer: String) -> Option<(usize, Vec<String>)> {
    let mut socket = Socket::open_at(address, &bearer).await.ok()?;
    let mut acknowledged = Vec::new();
    socket.say(&json!({ "id": "make", "type": "create_session", "sessionId": "s16" })).await;
    for number in 0.. {
        let (opcode, payload) = socket.try_raw().await?;
        if opcode == 8 {
            break;
        }
        let frame: Value = serde_json::from_slice(&payload).unwrap_or_default();
        match (frame["type"].as_str(), frame["data"]["turnId"].as_str()) {
            (Some("server_shutdown"), _) => break,
            (Some("response"), turn) => {
                acknowledged.extend(turn.map(str::to_owned));
                let prompt = json!({ "id": format!("p{number}"), "type": "prompt", "sessionId": "s16", "prompt": "x" });
                socket.say(&prompt).await;
            }
            _ => {}
        }
    }
    Some((16, acknowledged))
}

/// A model's reply of 12 MB, forty clients that stand still on both kinds of line: the server grows by little.
#[tokio::test]
async fn clients_that_stand_still_cost_little() {
    const STILL: usize = 20;
    const PIECES: usize = 3_072;
    let home = tempfile::tempdir().unwrap();
    let piece = "x".repeat(4 << 10);
    let model = ModelServer::start(std::sync::Arc::new(move |_| Answer::text(&vec![piece.as_str(); PIECES]))).await;
    let configuration = format!("openai_base_url = \"{}\"\nmodel = \"openai/m\"\n", model.base_url());
    std::fs::write(home.path().join("c.toml"), configuration).unwrap();
    let serving = Serving::start(&home, &["--config", "c.toml", "--log-level", "error"]).await;
    let bearer = format!("Authorization: Bearer {}\r\n", serving.token().unwrap());
    // The same reply first, of which nobody is told.
    let base = {
        let create = serving.request("POST", "/sessions").json(&json!({ "sessionId": "alone" }));
        assert_eq!(create.send(serving.address).await.status, 201);
        turn_of_a_long_reply(&serving, "alone").await;
        most_resident_mb(&serving)
    };
    let create = serving.request("POST", "/sessions").json(&json!({ "sessionId": "s" }));
    assert_eq!(create.send(serving.address).await.status, 201);
    let (mut streams, mut sockets) = (Vec::new(), Vec::new());
    for _ in 0..STILL {
        let mut stream = serving.request("GET", "/sessions/s/events").open(serving.address).await;
        assert_eq!(stream.event().await.kind(), "ready");
        streams.push(stream);
        let mut socket = Socket::open_at(serving.address, &bearer).await.unwrap();
        assert_eq!(socket.next().await["type"], "server_ready");
        socket.response(&json!({ "type": "subscribe", "sessionId": "s", "after": 0 })).await;
        sockets.push(socket);
    }
    turn_of_a_long_reply(&serving, "s").await;
    // 12 MB for each of the forty would be 480 MB more. Each reads a page of a megabyte at a time, on a busy machine all at once.
    let most = most_resident_mb(&serving);
    assert!(most < base + 320, "{most} MB with forty clients, {base} MB without");
    // They lose nothing.
    let mut text = 0;
    for frame in streams.pop().unwrap().until("session.completed").await {
        text += frame.data["payload"]["text"].as_str().filter(|_| frame.kind() == "stream.delta").map_or(0, str::len);
    }
    assert_eq!(text, PIECES * (4 << 10));
    drop((streams, sockets));
    serving.stop_well().await;
}

/// A session's whole log, page by page.
async fn whole_log(serving: &Serving, session: &str) -> Vec<Value> {
    let (mut cursor, mut all) = ("0".to_owned(), Vec::new());
    loop {
        let path = format!("/sessions/{session}/history?events=true&limit=1000&cursor={cursor}");
        let mut page = serving.request("GET", &path).send(serving.address).await.json();
        all.append(page["items"].as_array_mut().unwrap());
        match page["nextCursor"].as_str() {
            Some(next) => next.clone_into(&mut cursor),
            None => return all,
        }
    }
}

/// A socket to which the events of `s` come, from behind one on.
async fn subscribed(serving: &Serving, after: u64) -> Socket {
    let bearer = format!("Authorization: Bearer {}\r\n", serving.token().unwrap());
    let mut socket = Socket::open_at(serving.address, &bearer).await.unwrap();
    assert_eq!(socket.next().await["type"], "server_ready");
    socket.response(&json!({ "type": "subscribe", "sessionId": "s", "after": after })).await;
    socket
}

/// A reader that takes one event and then nothing for as long as 50,000 more come: on either kind of line it has them all, in
/// their order and to the byte, once it reads on. Meanwhile the server holds next to nothing for it.
#[tokio::test]
async fn a_reader_that_rests_for_fifty_thousand_events_loses_none() {
    const DELTAS: usize = 50_000;
    let home = tempfile::tempdir().unwrap();
    let model =
        ModelServer::start(std::sync::Arc::new(move |_| Answer::text_and_thoughts("a few words ", DELTAS / 2))).await;
    // Nobody is let go meanwhile, however busy the machine is.
    let configuration =
        format!("openai_base_url = \"{}\"\nmodel = \"openai/m\"\nwrite_timeout_ms = 3600000\n", model.base_url());
    std::fs::write(home.path().join("c.toml"), configuration).unwrap();
    let serving = Serving::start(&home, &["--config", "c.toml", "--log-level", "error"]).await;
    for session in ["alone", "s"] {
        let create = serving.request("POST", "/sessions").json(&json!({ "sessionId": session }));
        assert_eq!(create.send(serving.address).await.status, 201);
    }
    turn_of_a_long_reply(&serving, "alone").await;
    let base = most_resident_mb(&serving);
    let mut stream = serving.request("GET", "/sessions/s/events").open(serving.address).await;
    assert_eq!(stream.event().await.kind(), "ready");
    let first = stream.event().await;
    assert_eq!((first.id, first.kind()), (Some(1), "session.created"));
    let mut socket = subscribed(&serving, 0).await;
    assert_eq!(socket.next().await["event"]["seq"], 1);
    turn_of_a_long_reply(&serving, "s").await;
    let health = serving.request("GET", "/health?verbose").send(serving.address).await.json();
    for limit in health["limits"].as_array().unwrap() {
        assert!(limit["used"].as_u64() <= limit["limit"].as_u64(), "{limit}");
    }
    let most = most_resident_mb(&serving);
    assert!(most < base + 60, "{most} MB with two readers that rest, {base} MB without");
    let log = whole_log(&serving, "s").await;
    assert!(log.len() > DELTAS, "{}", log.len());
    for event in &log[1..] {
        let seen = stream.event().await;
        assert_eq!((seen.id, seen.data.to_string()), (event["seq"].as_u64(), event.to_string()));
        let frame = loop {
            match socket.try_raw().await {
                Some((1, payload)) => break serde_json::from_slice::<Value>(&payload).unwrap(),
                Some((9, _)) => {}
                // It rested for longer than a pong may take: it comes back, and goes on where it was.
                _ => socket = subscribed(&serving, event["seq"].as_u64().unwrap() - 1).await,
            }
        };
        assert_eq!(frame["event"].to_string(), event.to_string());
    }
    drop((stream, socket));
    serving.stop_well().await;
}

async fn turn_of_a_long_reply(serving: &Serving, session: &str) {
    let path = format!("/sessions/{session}/prompt?wait=true");
    let prompt = serving.request("POST", &path).json(&json!({ "prompt": "go" }));
    let turn = prompt.send(serving.address).await.json();
    assert_eq!(turn["status"], "completed", "{turn}");
}

fn most_resident_mb(serving: &Serving) -> u64 {
    crate::support::program::most_resident_mb(serving.child.id().unwrap())
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
    // Beside them one on a socket, whose commands count as well, and one that reads along.
    let bearer = format!("Authorization: Bearer {}\r\n", serving.token().unwrap());
    let on_socket = tokio::spawn(prompts_on_a_socket(address, bearer));
    let reading = serving.request("GET", "/sessions/s0/events");
    // The load is there when every session is.
    while serving.request("GET", "/sessions").send(address).await.json()["items"].as_array().unwrap().len() < 16 {
        tokio::task::yield_now().await;
    }
    let mut stream = reading.open(address).await;
    let along = tokio::spawn(async move {
        let mut seen = Vec::new();
        while let Some(frame) = stream.frame().await {
            seen.push(frame);
        }
        seen
    });
    let (code, _, err) = tokio::time::timeout(PATIENCE, serving.stop()).await.expect("it stops");
    assert_eq!(code, Some(0), "{err}");
    let mut ended = futures_util::future::join_all(clients).await;
    ended.push(on_socket.await);
    // What is left is sound, and every view of it follows from the log.
    let (code, out, err) = crate::support::binary::ended(simse(home.path()).arg("check").spawn().unwrap()).await;
    assert_eq!(code, Some(0), "{out}{err}");
    let next = Serving::start(&home, &["--log-level", "error"]).await;
    let before: Vec<Frame> = along.await.unwrap().into_iter().filter(|frame| frame.id.is_some()).collect();
    let mut stream = next.request("GET", "/sessions/s0/events").open(next.address).await;
    assert_eq!(stream.event().await.kind(), "ready");
    for frame in &before {
        assert_eq!(stream.event().await, *frame, "what was shown is in the log");
    }
    let mut kept = 0;
    for (client, acknowledged) in ended.into_iter().filter_map(|client| client.expect("no client broke")) {
        for turn in acknowledged {
            let path = format!("/sessions/s{client}/turns/{turn}");
            let reply = next.request("GET", &path).send(next.address).await;
            assert_eq!(reply.status, 200, "{path} was acknowledged, and is gone: {reply:?}");
            assert_ne!(reply.json()["status"], "failed", "{path}: {reply:?}");
            kept += 1;
        }
    }
    assert!(kept > 0, "there was no load");
    tokio::time::timeout(Duration::from_secs(30), next.stop()).await.expect("it stops");
}
