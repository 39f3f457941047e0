//! Attacks on the WebSocket (contract.md, Commands and Doors): what is no frame, what is too large, what never ends, and
//! who does not read or does not answer. Each ends with its own connection at most.

use std::time::Duration;

use serde_json::{Value, json};
use simse::server::ListenOptions;
use tokio::io::AsyncWriteExt as _;

use crate::support::house::{Does, House};
use crate::support::http::PATIENCE;
use crate::support::socket::{Socket, frame};

/// The code of the close that comes, whatever stands before it.
async fn closed(socket: &mut Socket) -> u16 {
    loop {
        match socket.raw().await {
            (8, reason) => return u16::from_be_bytes([reason[0], reason[1]]),
            (1 | 9 | 10, _) => {}
            other => panic!("{other:?}"),
        }
    }
}

async fn is_well(house: &House) {
    let mut socket = Socket::ready(house).await;
    let answer = socket.response(&json!({ "type": "list_sessions" })).await;
    assert_eq!(answer["success"], true, "{answer}");
}

#[tokio::test]
async fn nothing_is_packed() {
    let house = House::open().await;
    for offer in [
        "permessage-deflate",
        "permessage-deflate; client_max_window_bits",
        "permessage-deflate; server_no_context_takeover; client_max_window_bits=15, x-webkit-deflate-frame",
    ] {
        // `open` looks that the answer agrees to none.
        let mut socket = Socket::open(&house, &format!("Sec-WebSocket-Extensions: {offer}\r\n")).await.unwrap();
        assert_eq!(socket.next().await["type"], "server_ready");
        // As if it had been agreed on: a bomb of 10 MB in these bytes would have to be unfolded first.
        socket.stream.write_all(&frame(0xc1, &[0xed, 0xc1, 0x01, 0x01, 0, 0, 0, 0x80])).await.unwrap();
        assert_eq!(closed(&mut socket).await, 1002, "{offer}");
    }
    is_well(&house).await;
    house.close().await;
}

#[tokio::test]
async fn what_is_no_frame_or_too_large_ends_its_connection() {
    let options = ListenOptions { body_bytes_max: 10_000, ..ListenOptions::default() };
    let house = House::with(options, |_| {}).await;
    let half = "x".repeat(6_000);
    #[rustfmt::skip]
    let table: [(&str, Vec<Vec<u8>>, &[u16]); 16] = [
        ("a second reserved bit",        vec![frame(0xa1, b"{}")],                                      &[1002]),
        ("a third reserved bit",         vec![frame(0x91, b"{}")],                                      &[1002]),
        ("an unknown kind",              vec![frame(0x83, b"{}")],                                      &[1002]),
        ("an unknown control",           vec![frame(0x8b, b"")],                                        &[1002]),
        ("a rest without a beginning",   vec![frame(0x80, b"{}")],                                      &[1002]),
        ("a message within another",     vec![frame(0x01, b"{"), frame(0x81, b"}")],                    &[1002]),
        ("a ping in pieces",             vec![frame(0x09, b"x")],                                       &[1002]),
        ("a long ping",                  vec![frame(0x89, &[b'x'; 126])],                               &[1002]),
        ("a long close",                 vec![frame(0x88, &[0x03; 200])],                               &[1002]),
        ("half a code",                  vec![frame(0x88, &[0x03])],                                    &[1002]),
        ("without a mask",               vec![vec![0x81, 2, b'{', b'}']],                               &[1002]),
        ("a text that is none",          vec![frame(0x81, &[b'{', 0xff, b'}'])],                        &[1007]),
        // The head alone is enough.
        ("a byte too many",              vec![vec![0x81, 0xfe, 0x27, 0x11]],                            &[1009]),
        ("more than there is memory",    vec![[&[0x81, 0xff][..], &[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]].concat()], &[1009]),
        ("a length with its sign",       vec![[&[0x81, 0xff][..], &[0xff; 8]].concat()],                &[1002, 1009]),
        ("pieces that are too many",     vec![frame(0x01, half.as_bytes()), frame(0x00, half.as_bytes())], &[1009]),
    ];
    for (what, frames, codes) in table {
        let mut socket = Socket::ready(&house).await;
        for bytes in frames {
            socket.stream.write_all(&bytes).await.unwrap();
            // The mask of a head whose message never comes.
            if bytes.len() < 12 && what.starts_with(['a', 'm']) && codes.contains(&1009) {
                socket.stream.write_all(&[1, 2, 3, 4]).await.unwrap();
            }
        }
        let code = closed(&mut socket).await;
        assert!(codes.contains(&code), "{what}: {code}");
    }
    is_well(&house).await;
    house.close().await;
}

/// Bytes of what is not whole, as the server tells them.
async fn unfinished(house: &House) -> u64 {
    let health = house.call("GET", "/health?verbose=true", None).await.json();
    let limits = health["limits"].as_array().unwrap();
    limits.iter().find(|limit| limit["name"] == "unfinishedBytes").unwrap()["used"].as_u64().unwrap()
}

async fn comes_to(house: &House, bytes: u64) {
    let comes = async {
        while unfinished(house).await != bytes {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, comes).await.is_ok(), "{} instead of {bytes}", unfinished(house).await);
}

#[tokio::test]
async fn what_is_not_whole_is_bounded_in_sum_and_what_is_small_has_room() {
    let options = ListenOptions { unfinished_bytes_max: 200_000, ..ListenOptions::default() };
    let house = House::with(options, |_| {}).await;
    let padded = |bytes: usize| format!("{{\"type\":\"list_sessions\",{}\"id\":\"1\"}}", " ".repeat(bytes));
    let large = padded(200_000);
    let mut holds = Socket::ready(&house).await;
    holds.stream.write_all(&frame(0x01, large.as_bytes())).await.unwrap();
    let counted = large.len() as u64 - 65_536;
    comes_to(&house, counted).await;
    // Another one as large has no room: not on a socket, not as a body.
    let mut refused = Socket::ready(&house).await;
    refused.stream.write_all(&frame(0x81, large.as_bytes())).await.unwrap();
    assert_eq!(closed(&mut refused).await, 1013);
    let body = json!({ "title": "x".repeat(200_000) });
    let reply = house.call("POST", "/sessions", Some(body.clone())).await;
    assert_eq!(
        (reply.status, reply.code().as_str(), reply.header("retry-after")),
        (429, "RESOURCE_EXHAUSTED", Some("1"))
    );
    assert_eq!(reply.json()["error"]["details"]["field"], "body");
    // What is small has, and what was begun goes on.
    let mut small = Socket::ready(&house).await;
    small.stream.write_all(&frame(0x81, padded(60_000).as_bytes())).await.unwrap();
    while small.next().await["type"] != "response" {}
    house.session(json!({ "title": "y".repeat(200) })).await;
    comes_to(&house, counted).await;
    holds.stream.write_all(&frame(0x80, b"")).await.unwrap();
    while holds.next().await["type"] != "response" {}
    comes_to(&house, 0).await;
    let reply = house.call("POST", "/sessions", Some(body)).await;
    assert_eq!(reply.status, 400, "{:?}", reply.json());
    // Who goes away in the middle gives it back.
    holds.stream.write_all(&frame(0x01, large.as_bytes())).await.unwrap();
    comes_to(&house, counted).await;
    drop(holds);
    comes_to(&house, 0).await;
    house.close().await;
}

#[tokio::test]
async fn a_message_that_is_begun_has_the_time_of_a_body() {
    let options = ListenOptions { body_timeout: Duration::from_millis(300), ..ListenOptions::default() };
    let house = House::with(options, |_| {}).await;
    let mut idle = Socket::ready(&house).await;
    let mut late = Socket::ready(&house).await;
    late.stream.write_all(&frame(0x01, b"{")).await.unwrap();
    for _ in 0..5 {
        // It may have been closed by now.
        drop(late.stream.write_all(&frame(0x89, b"still here")).await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(closed(&mut late).await, 1008);
    assert_eq!(idle.response(&json!({ "type": "list_sessions" })).await["success"], true);
    house.close().await;
}

#[tokio::test]
async fn a_message_may_come_in_any_pieces() {
    let house = House::open().await;
    let session = house.session(json!({ "title": "é€😀" })).await;
    let text = json!({ "id": "é€😀", "type": "get_session", "sessionId": session }).to_string().into_bytes();
    let mut socket = Socket::ready(&house).await;
    let mut bytes = Vec::new();
    for (at, byte) in text.iter().enumerate() {
        let first = if at == 0 { 0x01 } else { 0x00 };
        bytes.extend(frame(first, &[*byte]));
        // Nothing at all, and a ping, may stand between two bytes of a character.
        bytes.extend(frame(0x00, b""));
        bytes.extend(frame(0x89, b"still here"));
    }
    // What says nothing takes nothing.
    bytes.extend(frame(0x00, b"").repeat(20_000));
    bytes.extend(frame(0x80, b""));
    socket.stream.write_all(&bytes).await.unwrap();
    let answer = loop {
        match socket.raw().await {
            (1, payload) => {
                let frame: Value = serde_json::from_slice(&payload).unwrap();
                if frame["type"] == "response" {
                    break frame;
                }
            }
            (10, payload) => assert_eq!(payload, b"still here"),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((&answer["id"], &answer["data"]["title"]), (&json!("é€😀"), &json!("é€😀")), "{answer}");
    house.close().await;
}

/// What is said in a socket is no head, whatever it looks like.
#[tokio::test]
async fn what_looks_like_a_head_in_a_socket_is_a_message() {
    let house = House::open().await;
    let mut socket = Socket::ready(&house).await;
    let text = b"GET / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n";
    // Under a mask of zeros it goes over the wire as it is.
    let head = [0x81, 0x80 | u8::try_from(text.len()).unwrap(), 0, 0, 0, 0];
    socket.stream.write_all(&[&head, text.as_slice()].concat()).await.unwrap();
    let refused = socket.next().await;
    assert_eq!(
        (&refused["type"], &refused["error"]["code"]),
        (&json!("response"), &json!("INVALID_ARGUMENT")),
        "{refused}"
    );
    is_well(&house).await;
    house.close().await;
}

/// Writes as long as the server takes anything; gives up when it takes nothing for a while. How much it took.
async fn pour(socket: &Socket, bytes: &[u8]) -> usize {
    let mut at = 0;
    while at < bytes.len() {
        match socket.stream.try_write(&bytes[at..]) {
            Ok(count) => at += count,
            Err(cause) if cause.kind() == std::io::ErrorKind::WouldBlock => {
                let room = tokio::time::timeout(Duration::from_millis(500), socket.stream.writable()).await;
                if room.is_err() {
                    break;
                }
            }
            Err(cause) => panic!("{cause}"),
        }
    }
    at
}

#[tokio::test]
async fn floods_hold_up_nobody_else() {
    const COMMANDS: usize = 3_000;
    let house = House::open().await;
    let session = house.session(json!({})).await;
    // Pings, and who floods does not read the answers.
    let mut pings = Socket::ready(&house).await;
    pour(&pings, &frame(0x89, &[b'x'; 125]).repeat(5_000)).await;
    pings.frame(1, br#"{"id":"late","type":"list_sessions"}"#).await;
    loop {
        let (opcode, payload) = pings.raw().await;
        if opcode == 1 && serde_json::from_slice::<Value>(&payload).unwrap()["type"] == "response" {
            break;
        }
    }
    // Commands: no more is read than is under way, and each that is read is answered.
    let commands = Socket::ready(&house).await;
    let one = json!({ "type": "get_session", "sessionId": session }).to_string();
    let one = frame(0x81, one.as_bytes());
    let all = one.repeat(COMMANDS);
    let poured = pour(&commands, &all).await;
    is_well(&house).await;
    assert_eq!(house.prompt(&session, "x").await["status"], "completed");
    // Once it reads, all that it sent whole is answered.
    let whole = poured / one.len();
    let mut commands = commands;
    let (mut answered, mut rest) = (0, &all[poured..(whole + 1).min(COMMANDS) * one.len()]);
    while answered < whole {
        if !rest.is_empty()
            && let Ok(count) = commands.stream.try_write(rest)
        {
            rest = &rest[count..];
        }
        let (opcode, payload) = commands.raw().await;
        let frame: Value = serde_json::from_slice(&payload).unwrap();
        assert_eq!(opcode, 1);
        if frame["type"] == "response" {
            // Beyond what a client may ask in a minute it is told so: also an answer.
            assert!(frame["success"] == true || frame["error"]["code"] == "RESOURCE_EXHAUSTED", "{frame}");
            answered += 1;
        }
    }
    house.close().await;
}

#[tokio::test]
async fn subscriptions_are_counted() {
    let house = House::open().await;
    let mut socket = Socket::ready(&house).await;
    for n in 0..=256 {
        let session = house.session(json!({ "sessionId": format!("s{n}") })).await;
        let subscribe = json!({ "type": "subscribe", "sessionId": session, "after": 1 });
        let answer = socket.response(&subscribe).await;
        let code = answer["error"]["code"].as_str();
        assert_eq!(code, (n == 256).then_some("RESOURCE_EXHAUSTED"), "{n}: {answer}");
    }
    // One more for a session that is subscribed to takes no further room.
    let again = json!({ "type": "subscribe", "sessionId": "s7", "after": 0 });
    assert_eq!(socket.response(&again).await["success"], true);
    house.close().await;
}

/// The clock is the test's: it goes on whenever nobody has anything to do.
#[tokio::test]
async fn who_answers_no_ping_is_let_go_and_who_does_stays() {
    let house = House::open().await;
    let mut deaf = Socket::ready(&house).await;
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    // What was heard last was heard a little before.
    let about = |seconds: u64| began.elapsed().as_secs().abs_diff(seconds) <= 2;
    assert!(deaf.raw().await.0 == 9 && about(30), "{:?}", began.elapsed());
    assert!(closed(&mut deaf).await == 1001 && about(40), "{:?}", began.elapsed());
    drop(deaf);
    tokio::time::resume();
    let mut there = Socket::ready(&house).await;
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    for round in 1..=4 {
        let (opcode, payload) = there.raw().await;
        assert!(opcode == 9 && began.elapsed().as_secs().abs_diff(round * 30) <= 2, "{:?}", began.elapsed());
        there.frame(10, &payload).await;
    }
    tokio::time::resume();
    assert_eq!(there.response(&json!({ "type": "list_sessions" })).await["success"], true);
    house.close().await;
}

/// A subscriber that does not read: the turn, other clients and other sessions do not notice, and it loses nothing.
#[tokio::test]
async fn a_socket_that_is_not_read_slows_nobody_and_loses_nothing() {
    const DELTAS: usize = 6_000;
    let house = House::open().await;
    let session = house.session(json!({})).await;
    let mut slow = Vec::new();
    for _ in 0..4 {
        let mut socket = Socket::ready(&house).await;
        socket.response(&json!({ "type": "subscribe", "sessionId": session, "after": 0 })).await;
        slow.push(socket);
    }
    house.round(&[Does::Floods("a text of some length that fills what lies between", DELTAS)]);
    let turn = tokio::time::timeout(PATIENCE, house.prompt(&session, "go")).await.expect("it waits for nobody");
    assert_eq!(turn["status"], "completed");
    let other = house.session(json!({})).await;
    assert_eq!(house.prompt(&other, "x").await["status"], "completed");
    // Of a client that reads nothing, no further command is done before it reads; of others they are.
    is_well(&house).await;
    let mut late = slow.pop().unwrap();
    let mut seen = 0;
    loop {
        let frame = late.next().await;
        assert_eq!((&frame["type"], &frame["event"]["seq"]), (&json!("event"), &json!(seen + 1)));
        seen += 1;
        if frame["event"]["type"] == "session.completed" {
            break;
        }
    }
    assert!(seen > DELTAS as u64);
    drop(slow);
    house.close().await;
}
