//! Event streams (contract.md, The event stream): numbers without gaps, resumption, several clients, comings and goings.

use std::time::Duration;

use serde_json::json;
use simse::server::ListenOptions;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::support::house::{Does, House};
use crate::support::http::{Frame, PATIENCE, request};

fn ids(frames: &[Frame]) -> Vec<u64> {
    frames.iter().filter_map(|frame| frame.id).collect()
}

fn kinds(frames: &[Frame]) -> Vec<&str> {
    frames.iter().map(Frame::kind).collect()
}

#[tokio::test]
async fn a_stream_begins_with_ready_and_is_numbered_from_one() {
    let house = House::open().await;
    let session = house.session(json!({})).await;
    let mut stream = house.events(&session, "").await;
    let ready = stream.event().await;
    assert_eq!((ready.kind(), ready.id), ("ready", None));
    assert_eq!((&ready.data["sessionId"], &ready.data["payload"]["position"]), (&json!(session), &json!(0)));
    house.round(&[Does::Says("a"), Does::Says("b")]);
    let turn = house.prompt(&session, "go").await;
    let seen = stream.until("session.completed").await;
    assert_eq!(ids(&seen), (1..=seen.len() as u64).collect::<Vec<_>>());
    assert_eq!(kinds(&seen)[..2], ["session.created", "session.prompt"]);
    let last = seen.last().unwrap();
    assert_eq!((&last.data["turnId"], &last.data["payload"]["result"]), (&turn["turnId"], &json!("ab")));
    for frame in &seen {
        assert_eq!(frame.data["seq"].as_u64(), frame.id);
        assert_eq!(frame.data["sessionId"], json!(session));
        assert!(frame.data["at"].as_u64().is_some());
    }
    house.close().await;
}

#[tokio::test]
async fn a_reader_resumes_exactly_behind_its_last_event() {
    let house = House::open().await;
    let session = house.session(json!({})).await;
    house.round(&[Does::Floods("x", 50)]);
    house.prompt(&session, "go").await;
    let all = house.events(&session, "").await.until("session.completed").await;
    let all: Vec<Frame> = all.into_iter().filter(|frame| frame.id.is_some()).collect();
    for after in [1, 7, all.len() as u64 - 1] {
        let rest = house.events(&session, &format!("?after={after}")).await.until("session.completed").await;
        assert_eq!(rest[0].data["payload"]["position"], json!(after));
        assert_eq!(rest[1..], all[after as usize..], "behind {after}");
        // The header wins: a browser that reconnects repeats the address.
        let path = format!("/sessions/{session}/events?after=0");
        let again = request(house.address, "GET", &path).header("Last-Event-ID", &after.to_string());
        let rest = again.open(house.address).await.until("session.completed").await;
        assert_eq!(rest[1..], all[after as usize..], "behind {after}");
    }
    house.close().await;
}

#[tokio::test]
async fn types_are_filtered() {
    let house = House::open().await;
    let session = house.session(json!({})).await;
    house.round(&[Does::Says("x")]);
    house.prompt(&session, "go").await;
    let mut stream = house.events(&session, "?types=stream.delta,session.completed").await;
    assert_eq!(kinds(&stream.until("session.completed").await), ["ready", "stream.delta", "session.completed"]);
    house.close().await;
}

#[tokio::test]
async fn all_clients_see_the_same_events_in_the_same_order() {
    let house = House::open().await;
    let session = house.session(json!({})).await;
    let mut early = Vec::new();
    for _ in 0..8 {
        early.push(house.events(&session, "").await);
    }
    house.round(&[Does::Floods("x", 2_000)]);
    house.prompt(&session, "go").await;
    let late = house.events(&session, "").await.until("session.completed").await;
    assert!(late.len() > 2_000);
    for mut stream in early {
        assert_eq!(stream.until("session.completed").await[1..], late[1..]);
    }
    house.close().await;
}

#[tokio::test]
async fn a_silent_line_is_kept_open() {
    let house = House::with(ListenOptions { heartbeat: Duration::from_millis(20), ..Default::default() }, |_| {}).await;
    let session = house.session(json!({})).await;
    let mut stream = house.events(&session, "?after=1").await;
    assert_eq!(stream.frame().await.unwrap().kind(), "ready");
    for _ in 0..3 {
        assert!(stream.frame().await.unwrap().comment);
    }
    house.close().await;
}

#[tokio::test]
async fn a_disconnect_stops_nothing() {
    let house = House::open().await;
    let session = house.session(json!({})).await;
    house.round(&[Does::Says("a"), Does::Waits, Does::Says("b")]);
    let path = format!("/sessions/{session}/prompt");
    let prompt =
        request(house.address, "POST", &path).header("Accept", "text/event-stream").json(&json!({ "prompt": "go" }));
    let mut stream = prompt.open(house.address).await;
    stream.until("stream.delta").await;
    drop(stream);
    house.go_on();
    let seen = house.events(&session, "").await.until("session.completed").await;
    assert_eq!(seen.last().unwrap().data["payload"]["result"], json!("ab"));
    house.close().await;
}

#[tokio::test]
async fn the_stream_of_a_prompt_shows_its_turn_and_ends_with_it() {
    let house = House::open().await;
    let session = house.session(json!({})).await;
    house.round(&[Does::Waits, Does::Says("first")]);
    house.round(&[Does::Says("second")]);
    let path = format!("/sessions/{session}/prompt");
    let prompt = |text: &str| {
        request(house.address, "POST", &path).header("Accept", "text/event-stream").json(&json!({ "prompt": text }))
    };
    let mut first = prompt("1").open(house.address).await;
    first.until("session.prompt").await;
    let mut second = prompt("2").open(house.address).await;
    assert_eq!(second.event().await.kind(), "ready");
    house.go_on();
    for (mut stream, result) in [(first, "first"), (second, "second")] {
        let seen = stream.until("session.completed").await;
        let turn = &seen.last().unwrap().data["turnId"];
        assert!(seen.iter().all(|frame| &frame.data["turnId"] == turn), "{seen:?}");
        assert_eq!(seen.last().unwrap().data["payload"]["result"], json!(result));
        assert_eq!(stream.frame().await, None, "the stream ends with its turn");
    }
    house.close().await;
}

#[tokio::test]
async fn a_question_is_answered_over_http() {
    let house = House::open().await;
    let session = house.session(json!({})).await;
    house.round(&[Does::Calls("fs_write", json!({ "path": "a.txt", "content": "hello\n" }))]);
    let mut stream = house.events(&session, "").await;
    let accepted = house.call("POST", &format!("/sessions/{session}/prompt"), Some(json!({ "prompt": "go" }))).await;
    assert_eq!(accepted.status, 202);
    let asked = stream.until("permission.request").await;
    let request = asked.last().unwrap().data["payload"].clone();
    let file = house.work.path().join("a.txt");
    assert!(!file.exists(), "nothing happens before the answer");
    let feedback = json!({ "requestId": request["requestId"], "decision": "allow" });
    let path = format!("/sessions/{session}/feedback");
    let answered = house.call("POST", &path, Some(feedback.clone())).await;
    assert_eq!((answered.status, &answered.json()["allowed"]), (200, &json!(true)));
    let again = house.call("POST", &path, Some(feedback)).await;
    assert_eq!((again.status, again.code().as_str()), (409, "CONFLICT"));
    let seen = stream.until("session.completed").await;
    let response = seen.iter().find(|frame| frame.kind() == "permission.response").unwrap();
    assert_eq!(response.data["payload"]["by"], json!("client"));
    assert_eq!(std::fs::read_to_string(file).unwrap(), "hello\n");
    house.close().await;
}

#[tokio::test]
async fn streams_end_when_the_session_or_the_server_does() {
    let house = House::open().await;
    let (gone, kept) = (house.session(json!({})).await, house.session(json!({})).await);
    let (mut of_gone, mut of_kept) = (house.events(&gone, "").await, house.events(&kept, "").await);
    house.call("DELETE", &format!("/sessions/{gone}"), None).await;
    while of_gone.frame().await.is_some() {}
    house.server.stop(Duration::from_secs(5)).await;
    while of_kept.frame().await.is_some() {}
    // A second stop is harmless, and nobody listens any more.
    house.server.stop(Duration::from_secs(5)).await;
    assert!(TcpStream::connect(house.address).await.is_err());
    house.app.shutdown(Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn clients_that_have_stopped_reading_are_let_go() {
    let options = ListenOptions { write_timeout: Duration::from_millis(300), connections_max: 2, ..Default::default() };
    let house = House::with(options, |_| {}).await;
    let session = house.session(json!({})).await;
    let path = format!("/sessions/{session}/events");
    let mut deaf = TcpStream::connect(house.address).await.unwrap();
    deaf.write_all(&request(house.address, "GET", &path).bytes()).await.unwrap();
    // Far more than the sockets of both sides hold.
    const TEXT: &str =
        "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789";
    house.round(&[Does::Floods(TEXT, 60_000)]);
    let turn = house.prompt(&session, "go").await;
    assert_eq!(turn["status"], "completed");
    // Two at once fit only without it.
    let started = std::time::Instant::now();
    let second = loop {
        let stream = request(house.address, "GET", &format!("{path}?after=1")).open(house.address).await;
        if stream.status == 200 {
            break stream;
        }
        assert!(started.elapsed() < PATIENCE, "the deaf client has its place for ever");
    };
    while house.call("GET", "/health", None).await.status != 200 {
        assert!(started.elapsed() < PATIENCE, "the deaf client still has its place");
    }
    drop(second);
    drop(deaf);
    house.close().await;
}
