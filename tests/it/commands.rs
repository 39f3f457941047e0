//! Commands over HTTP and over a socket: done once, whatever is cut or killed, and answered alike through every door.

use std::sync::Arc;

use serde_json::{Value, json};
use simse::server::ListenOptions;
use tokio::io::AsyncWriteExt as _;

use crate::support::binary::simse;
use crate::support::house::{Does, House};
use crate::support::http::{Reply, request, within};
use crate::support::model_server::{Answer, ModelServer};
use crate::support::program::Program;
use crate::support::socket::Socket;

fn kinds(frames: &[Value]) -> Vec<&str> {
    frames.iter().map(|frame| frame["type"].as_str().unwrap()).collect()
}

async fn keyed(house: &House, path: &str, key: &str, body: &Value) -> Reply {
    request(house.address, "POST", path).header("Idempotency-Key", key).json(body).send(house.address).await
}

#[tokio::test]
async fn a_key_makes_one_of_many_requests() {
    let house = House::open().await;
    let body = json!({ "title": "t" });
    let first = keyed(&house, "/sessions", "make", &body).await;
    assert_eq!((first.status, first.header("idempotency-replayed"), first.header("etag")), (201, None, Some("\"0\"")));
    let again = keyed(&house, "/sessions", "make", &body).await;
    assert_eq!((again.status, again.header("idempotency-replayed")), (201, Some("true")));
    assert_eq!((&again.body, again.header("location")), (&first.body, first.header("location")));
    let other = keyed(&house, "/sessions", "make", &json!({ "title": "u" })).await;
    assert_eq!((other.status, other.code().as_str()), (409, "CONFLICT"));
    assert_eq!(house.call("GET", "/sessions", None).await.json()["items"].as_array().unwrap().len(), 1);
    // A prompt runs once, and each that asks gets its turn.
    house.round(&[Does::Says("done")]);
    let session = first.json()["sessionId"].as_str().unwrap().to_owned();
    let path = format!("/sessions/{session}/prompt?wait=true");
    let prompt = json!({ "prompt": "go" });
    let (one, two) = tokio::join!(keyed(&house, &path, "p", &prompt), keyed(&house, &path, "p", &prompt));
    assert_eq!((one.status, &one.body), (200, &two.body), "{one:?} {two:?}");
    let replays = [&one, &two].iter().filter(|reply| reply.header("idempotency-replayed").is_some()).count();
    assert_eq!((replays, one.json()["result"].as_str()), (1, Some("done")), "{one:?}");
    // A failure is an outcome as well.
    for replayed in [None, Some("true")] {
        let abort = keyed(&house, &format!("/sessions/{session}/abort"), "a", &json!({})).await;
        assert_eq!((abort.status, abort.header("idempotency-replayed")), (409, replayed));
    }
    house.close().await;
}

#[tokio::test]
async fn a_version_that_differs_stops_a_write() {
    let house = House::open().await;
    let session = house.session(json!({})).await;
    let path = format!("/sessions/{session}");
    let delete = |version: &str| request(house.address, "DELETE", &path).header("If-Match", version);
    let refused = delete("\"3\"").send(house.address).await;
    assert_eq!((refused.status, refused.code().as_str()), (409, "CONFLICT"));
    assert!(refused.json()["error"]["message"].as_str().unwrap().contains("version 0, not 3"));
    let prompt = format!("{path}/prompt");
    let prompt = request(house.address, "POST", &prompt).header("If-Match", "7").json(&json!({ "prompt": "x" }));
    assert_eq!(prompt.send(house.address).await.status, 409);
    assert_eq!(delete("x").send(house.address).await.status, 400);
    assert_eq!(delete("0").send(house.address).await.status, 200);
    house.close().await;
}

#[tokio::test]
async fn a_prompt_is_remembered_when_its_session_is_gone_and_its_turn_is_not() {
    let house = House::open().await;
    let created = json!({ "sessionId": "s" });
    house.call("POST", "/sessions", Some(created.clone())).await;
    house.round(&[Does::Says("done")]);
    let prompt = json!({ "prompt": "go" });
    let (path, waited) = ("/sessions/s/prompt", "/sessions/s/prompt?wait=true");
    assert_eq!(keyed(&house, waited, "p", &prompt).await.status, 200);
    let streamed = async || {
        let request = request(house.address, "POST", path).header("Idempotency-Key", "p");
        request.header("Accept", "text/event-stream").json(&prompt).send(house.address).await
    };
    for is_there in [false, true] {
        if is_there {
            house.call("POST", "/sessions", Some(created.clone())).await;
        } else {
            house.call("DELETE", "/sessions/s", None).await;
        }
        let accepted = keyed(&house, path, "p", &prompt).await;
        assert_eq!((accepted.status, accepted.header("idempotency-replayed")), (202, Some("true")), "{is_there}");
        let replies = [keyed(&house, waited, "p", &prompt).await, streamed().await];
        assert!(replies.iter().all(|reply| (reply.status, reply.code().as_str()) == (404, "NOT_FOUND")), "{replies:?}");
    }
    house.close().await;
}

#[tokio::test]
async fn a_socket_takes_commands_and_tells_their_way() {
    let house = House::open().await;
    let mut socket = Socket::ready(&house).await;
    let create = json!({ "id": "1", "type": "create_session", "sessionId": "s" });
    let frames = socket.answer(&create).await;
    assert_eq!(kinds(&frames), ["command_accepted", "command_started", "command_finished", "response"]);
    assert!(frames.iter().all(|frame| frame["id"] == "1" && frame["command"] == "create_session"), "{frames:?}");
    assert_eq!((&frames[3]["data"]["sessionId"], &frames[3]["sessionVersion"]), (&json!("s"), &json!(0)));
    let again = socket.answer(&create).await;
    assert_eq!(kinds(&again), ["command_finished", "response"]);
    assert_eq!((&again[1]["replayed"], &again[1]["data"]), (&json!(true), &frames[3]["data"]));
    // The same through another door.
    let other = keyed(&house, "/sessions/s/prompt", "k", &json!({ "prompt": "go", "ifVersion": 5 })).await;
    let same = json!({ "type": "prompt", "sessionId": "s", "idempotencyKey": "k", "prompt": "go", "ifVersion": 5 });
    let same = socket.response(&same).await;
    assert_eq!((other.json()["error"].clone(), &same["replayed"]), (same["error"].clone(), &json!(true)));
    // What is wrong is said, and ends nothing.
    #[rustfmt::skip]
    let table = [
        (r#"{"id":"7","type":"abort"}"#, json!("7"), "sessionId"),
        (r#"{"id":"anon:7","type":"abort","sessionId":"s"}"#, Value::Null, "id"),
        ("{", Value::Null, "command"),
        ("[1]", Value::Null, "command"),
    ];
    for (text, id, field) in table {
        socket.frame(1, text.as_bytes()).await;
        let refused = socket.next().await;
        assert_eq!((&refused["type"], &refused["success"]), (&json!("response"), &json!(false)), "{text}");
        assert_eq!((&refused["id"], &refused["error"]["details"]["field"]), (&id, &json!(field)), "{refused}");
    }
    socket.frame(2, b"bytes").await;
    assert_eq!(socket.next().await["error"]["code"], "INVALID_ARGUMENT");
    let unnamed = socket.answer(&json!({ "type": "get_session", "sessionId": "s" })).await;
    assert!(unnamed[3]["id"].as_str().unwrap().starts_with("anon:"), "{unnamed:?}");
    socket.frame(8, &[]).await;
    assert_eq!(socket.raw().await.0, 8);
    house.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undo_redo_and_fork_are_commands_over_every_door() {
    let data = tempfile::tempdir().unwrap();
    let storage = simse::config::Storage::Directory(data.path().join("data"));
    let house = House::with(ListenOptions::default(), |settings| {
        settings.storage = storage;
        settings.permissions.default_policy = simse::protocol::PermissionPolicy::Allow;
    })
    .await;
    let file = house.work.path().join("a");
    house.session(json!({ "sessionId": "s" })).await;
    house.round(&[Does::Calls("fs_write", json!({ "path": "a", "content": "1" }))]);
    house.prompt("s", "go").await;
    let mut socket = Socket::ready(&house).await;

    // A version that has passed stops each of them, through both doors.
    let version = house.call("GET", "/sessions/s", None).await.json()["version"].as_u64().unwrap();
    for kind in ["undo", "redo", "fork"] {
        let path = format!("/sessions/s/{kind}");
        let held = request(house.address, "POST", &path).header("If-Match", "99").json(&json!({}));
        let said = socket.response(&json!({ "type": kind, "sessionId": "s", "ifSessionVersion": 99 })).await;
        for error in [held.send(house.address).await.json()["error"].clone(), said["error"].clone()] {
            assert_eq!(
                (&error["code"], &error["details"]["expected"]),
                (&json!("CONFLICT"), &json!(version)),
                "{error}"
            );
        }
    }
    assert!(file.exists());

    // An undo under a key is done once, whoever asks again: what has come since is not taken back with it.
    let undone = keyed(&house, "/sessions/s/undo", "u", &json!({ "ifVersion": version })).await;
    let etag = format!("\"{}\"", version + 1);
    assert_eq!((undone.status, undone.header("etag"), file.exists()), (200, Some(etag.as_str()), false), "{undone:?}");
    std::fs::write(&file, "theirs").unwrap();
    let again = keyed(&house, "/sessions/s/undo", "u", &json!({ "ifVersion": version })).await;
    assert_eq!((again.header("idempotency-replayed"), &again.body), (Some("true"), &undone.body));
    let same = json!({ "type": "undo", "sessionId": "s", "ifVersion": version, "idempotencyKey": "u" });
    let same = socket.response(&same).await;
    assert_eq!((&same["replayed"], &same["data"]), (&json!(true), &undone.json()));
    let other = keyed(&house, "/sessions/s/undo", "u", &json!({ "partial": true })).await;
    assert_eq!((other.status, other.code().as_str()), (409, "CONFLICT"), "the key has another meaning");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "theirs");
    let redo = json!({ "id": "r", "type": "redo", "sessionId": "s", "ifSessionVersion": version + 1 });
    let refused = socket.response(&redo).await;
    assert_eq!(refused["error"]["details"]["conflicts"][0]["path"], "a", "{refused}");
    std::fs::remove_file(&file).unwrap();
    assert_eq!(socket.response(&redo).await["replayed"], true, "a failure is an outcome as well");
    let frames = socket.answer(&json!({ "id": "r2", "type": "redo", "sessionId": "s" })).await;
    assert_eq!(kinds(&frames), ["command_accepted", "command_started", "command_finished", "response"]);
    assert_eq!(
        (&frames[3]["sessionVersion"], std::fs::read_to_string(&file).unwrap().as_str()),
        (&json!(version + 2), "1")
    );

    // One fork, however often it is asked for.
    let fork = keyed(&house, "/sessions/s/fork", "f", &json!({ "title": "t" })).await;
    let again = keyed(&house, "/sessions/s/fork", "f", &json!({ "title": "t" })).await;
    assert_eq!(
        (fork.status, fork.header("etag"), again.header("idempotency-replayed")),
        (201, Some("\"0\""), Some("true"))
    );
    assert_eq!((&again.body, again.header("location")), (&fork.body, fork.header("location")));
    let named = json!({ "id": "f1", "type": "fork", "sessionId": "s", "at": 2, "newSessionId": "w" });
    let made = socket.response(&named).await;
    assert_eq!((&made["data"]["sessionId"], &made["sessionVersion"]), (&json!("w"), &json!(0)), "{made}");
    assert_eq!(socket.response(&named).await["replayed"], true);
    let taken = json!({ "id": "f2", "type": "fork", "sessionId": "s", "at": 2, "newSessionId": "w" });
    assert_eq!(socket.response(&taken).await["error"]["code"], "CONFLICT");
    assert_eq!(house.call("GET", "/sessions", None).await.json()["items"].as_array().unwrap().len(), 3);
    house.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_under_a_key_is_made_once_over_a_kill() {
    let home = tempfile::tempdir().unwrap();
    let (data, work) = (home.path().join("data"), home.path().join("work"));
    std::fs::create_dir(&work).unwrap();
    let stdio = |lines: Vec<Value>| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_simse"));
        command.args(["serve", "--stdio", "--data-dir"]).arg(&data).arg("--cwd").arg(&work).env("HOME", home.path());
        command.env_remove("SIMSE_CONFIG").stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut child = command.stderr(std::process::Stdio::null()).kill_on_drop(true).spawn().unwrap();
        async move {
            let mut stdin = child.stdin.take().unwrap();
            let mut said = tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(child.stdout.take().unwrap()));
            let mut answers = Vec::new();
            for line in lines {
                stdin.write_all(format!("{line}\n").as_bytes()).await.unwrap();
                loop {
                    let frame: Value =
                        serde_json::from_str(&within(said.next_line()).await.unwrap().expect("a line")).unwrap();
                    if frame["type"] == "response" {
                        answers.push(frame);
                        break;
                    }
                }
            }
            child.kill().await.unwrap();
            answers
        }
    };
    let create = json!({ "id": "c", "type": "create_session", "sessionId": "s" });
    let fork = json!({ "id": "f", "type": "fork", "sessionId": "s" });
    let undo = json!({ "id": "u", "type": "undo", "sessionId": "s" });
    let first = stdio(vec![create, fork.clone(), undo.clone()]).await;
    assert_eq!((&first[1]["success"], &first[2]["error"]["code"]), (&json!(true), &json!("CONFLICT")), "{first:?}");
    let newest = json!({ "type": "subscribe", "after": "newest" });
    let again = stdio(vec![fork, undo, json!({ "type": "list_sessions" }), newest]).await;
    for (at, before) in [(0, 1), (1, 2)] {
        let mut want = first[before].clone();
        want["replayed"] = true.into();
        assert_eq!(again[at], want);
    }
    assert_eq!(again[2]["data"]["items"].as_array().unwrap().len(), 2, "{again:?}");
    assert_eq!(again[3]["data"], json!({ "position": 2 }), "made and forked, once each");
}

#[tokio::test]
async fn subscriptions_show_the_log_and_nothing_twice() {
    let house = House::open().await;
    let session = house.session(json!({})).await;
    house.round(&[Does::Says("one")]);
    house.call("POST", &format!("/sessions/{session}/prompt?wait=true"), Some(json!({ "prompt": "go" }))).await;
    let mut socket = Socket::ready(&house).await;
    let subscribe = |after: u64, types: Value| json!({ "id": "s", "type": "subscribe", "sessionId": session, "after": after, "types": types });
    let answered = socket.answer(&subscribe(0, Value::Null)).await;
    assert_eq!(answered[3]["data"], json!({ "position": 0 }));
    let mut stream = house.events(&session, "").await;
    assert_eq!(stream.event().await.kind(), "ready");
    for want in 1..=5 {
        let frame = socket.next().await;
        assert_eq!((&frame["type"], &frame["event"]["seq"]), (&json!("event"), &json!(want)), "{frame}");
        // What a stream of the other kind shows, to the letter.
        assert_eq!(frame["event"].to_string(), stream.event().await.data.to_string());
    }
    // A new wish takes the place of the old one.
    let mut other = Socket::ready(&house).await;
    other.response(&subscribe(0, json!(["session.completed"]))).await;
    assert_eq!(other.next().await["event"]["type"], "session.completed");
    let refused = other.response(&subscribe(0, json!(["session.compelted"]))).await;
    assert_eq!(refused["error"]["details"]["field"], "types");
    assert_eq!(other.response(&subscribe(10_000, Value::Null)).await["error"]["details"]["field"], "after");
    let off = json!({ "type": "unsubscribe", "sessionId": session });
    assert_eq!(other.response(&off).await["data"], json!({ "unsubscribed": true }));
    assert_eq!(other.response(&off).await["error"]["code"], "NOT_FOUND");
    // The end of a session ends its subscriptions.
    house.call("DELETE", &format!("/sessions/{session}"), None).await;
    loop {
        let frame = socket.next().await;
        if frame["type"] != "event" {
            assert_eq!(frame["type"], "subscription_ended", "{frame}");
            break;
        }
    }
    house.close().await;
}

#[tokio::test]
async fn a_socket_is_guarded_bounded_and_ends_in_order() {
    let options = ListenOptions { body_bytes_max: 10_000, ..ListenOptions::default() };
    let house = House::with(options, |_| {}).await;
    let strange = Socket::open(&house, "Origin: https://attacker.example\r\n").await.err().unwrap();
    assert!(strange.starts_with("HTTP/1.1 403 "), "{strange}");
    let plain = house.call("GET", "/ws", None).await;
    assert_eq!((plain.status, plain.code().as_str()), (426, "INVALID_ARGUMENT"));
    let mut socket = Socket::ready(&house).await;
    // Bytes count, not characters.
    let large = "é".repeat(5_001);
    socket.frame(1, large.as_bytes()).await;
    let (opcode, reason) = socket.raw().await;
    assert_eq!((opcode, u16::from_be_bytes([reason[0], reason[1]])), (8, 1009));
    let mut last = Socket::ready(&house).await;
    let closing = tokio::spawn(house.close());
    assert_eq!(last.next().await["type"], "server_shutdown");
    let (opcode, reason) = last.raw().await;
    assert_eq!((opcode, u16::from_be_bytes([reason[0], reason[1]])), (8, 1001));
    drop(last);
    closing.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_runs_twice_when_the_process_is_killed() {
    let home = tempfile::tempdir().unwrap();
    let (data, work) = (home.path().join("data"), home.path().join("work"));
    std::fs::create_dir(&work).unwrap();
    let model = ModelServer::start(Arc::new(|_| Answer::text(&["well"]))).await;
    let mut program = Program::serve(&data, &work, &model.base_url()).await;
    program.call("POST", "/sessions", Some(json!({ "sessionId": "s" }))).await;
    let mut turns: Vec<Value> = Vec::new();
    for round in 0..6 {
        // Each key is asked for until it is answered, and once more by the next process.
        let sent: Vec<_> = (0..4).map(|n| format!("{round}-{n}")).collect();
        let (cut, kill) =
            tokio::join!(futures_util::future::join_all(sent.iter().map(|key| program.try_prompt("s", key))), async {
                tokio::time::sleep(std::time::Duration::from_millis(round * 3)).await;
                program.signal_kill();
            });
        let () = kill;
        program.kill().await;
        program = Program::serve(&data, &work, &model.base_url()).await;
        for (key, before) in sent.iter().zip(cut) {
            let after = program.try_prompt("s", key).await.expect("an answer");
            if let Some(before) = before {
                assert_eq!(before, after, "{key}");
            }
            turns.push(after["turnId"].clone());
        }
    }
    let mut events = program.events("s", 0).await;
    let mut prompts = std::collections::HashMap::new();
    while prompts.len() < 24 {
        let (_, data) = events.next().await.expect("the log goes on");
        let event: Value = serde_json::from_str(&data).unwrap();
        if event["type"] == "session.prompt" {
            let said = event["payload"]["prompt"].as_str().unwrap().to_owned();
            assert_eq!(prompts.insert(said, event["turnId"].clone()), None, "it ran twice");
        }
    }
    for (at, turn) in turns.iter().enumerate() {
        assert_eq!(prompts.get(&format!("{}-{}", at / 4, at % 4)), Some(turn));
    }
    program.kill().await;
}

#[tokio::test]
async fn controls_are_commands_and_say_how_they_lost() {
    let house = House::open().await;
    let mut socket = Socket::ready(&house).await;
    socket.response(&json!({ "type": "create_session", "sessionId": "s" })).await;
    // It is faster than the interrupt: that says so, and says it again.
    house.round(&[Does::Says("one"), Does::Waits]);
    let first = socket.response(&json!({ "type": "prompt", "sessionId": "s", "prompt": "go" })).await;
    let interrupt = json!({ "id": "i", "type": "interrupt", "sessionId": "s" });
    // The round has begun: the boundary before it is past.
    house.events("s", "").await.until("stream.delta").await;
    socket.say(&interrupt).await;
    while socket.next().await["type"] != "command_started" {}
    house.go_on();
    let mut lost = socket.next().await;
    while lost["type"] != "response" {
        lost = socket.next().await;
    }
    let turn = &first["data"]["turnId"];
    let facts = json!({ "why": "turn_over", "turnId": turn, "status": "completed" });
    assert_eq!((&lost["error"]["code"], &lost["error"]["details"]), (&json!("CONFLICT"), &facts), "{lost}");
    let again = socket.response(&interrupt).await;
    assert_eq!((&again["error"], &again["replayed"]), (&lost["error"], &json!(true)));
    #[rustfmt::skip]
    let late = [
        ("abort", facts.clone()),
        ("pause", facts.clone()),
        ("resume", json!({ "why": "nothing_is_paused" })),
    ];
    for (kind, details) in late {
        let refused = socket.response(&json!({ "type": kind, "sessionId": "s" })).await;
        assert_eq!((&refused["error"]["code"], &refused["error"]["details"]), (&json!("CONFLICT"), &details), "{kind}");
    }
    // One that is in time, with a change of settings beside it.
    house.round(&[Does::Says("two"), Does::Waits, Does::Calls("fs_list", json!({ "path": "." }))]);
    house.round(&[Does::Says("done")]);
    let seen = house.call("GET", "/sessions/s", None).await.json()["lastSeq"].clone();
    let second = socket.response(&json!({ "type": "prompt", "sessionId": "s", "prompt": "go" })).await;
    let mut events = house.events("s", &format!("?after={seen}")).await;
    // Before its model is asked, it would hold at once.
    events.until("stream.delta").await;
    socket.say(&json!({ "id": "p", "type": "pause", "sessionId": "s" })).await;
    while socket.next().await["type"] != "command_started" {}
    events.until("turn.control").await;
    let version = house.call("GET", "/sessions/s", None).await.json()["version"].clone();
    assert_eq!(version, second["sessionVersion"], "it is not done yet");
    house.go_on();
    let mut held = socket.next().await;
    while held["type"] != "response" {
        held = socket.next().await;
    }
    assert_eq!(held["data"], json!({ "paused": true, "turnId": second["data"]["turnId"], "status": "paused" }));
    let version = held["sessionVersion"].clone();
    assert_eq!(version.as_u64(), second["sessionVersion"].as_u64().map(|before| before + 1));
    let refused = socket.response(&json!({ "type": "prompt", "sessionId": "s", "prompt": "no" })).await;
    assert_eq!(refused["error"]["details"]["why"], "paused", "{refused}");
    let change = json!({ "id": "c", "type": "configure", "sessionId": "s", "title": "T", "ifSessionVersion": version });
    let changed = socket.response(&change).await;
    assert_eq!((&changed["data"]["title"], &changed["data"]["version"]), (&json!("T"), &changed["sessionVersion"]));
    assert_eq!(socket.response(&change).await["replayed"], true);
    let stale = json!({ "type": "configure", "sessionId": "s", "title": "U", "ifSessionVersion": version });
    assert_eq!(socket.response(&stale).await["error"]["code"], "CONFLICT");
    let resumed = socket.response(&json!({ "type": "resume", "sessionId": "s" })).await;
    assert_eq!(resumed["data"], json!({ "resumed": true, "turnId": second["data"]["turnId"] }));
    let ended = format!("/sessions/s/turns/{}", second["data"]["turnId"].as_str().unwrap());
    while house.call("GET", &ended, None).await.json()["status"] != "completed" {}
    let listed = socket.response(&json!({ "type": "list_turns", "sessionId": "s", "limit": 1 })).await;
    assert_eq!(
        (&listed["data"]["items"][0]["turnId"], &listed["data"]["nextCursor"]),
        (&second["data"]["turnId"], &second["data"]["turnId"])
    );
    house.close().await;
}

/// A client's own work does not stand between it and its abort.
#[tokio::test]
async fn a_control_goes_past_commands_that_have_no_room() {
    let house = House::open().await;
    let mut socket = Socket::ready(&house).await;
    socket.response(&json!({ "type": "create_session", "sessionId": "s" })).await;
    house.round(&[Does::Says("one"), Does::Waits]);
    socket.response(&json!({ "type": "prompt", "sessionId": "s", "prompt": "go" })).await;
    house.events("s", "").await.until("stream.delta").await;
    // What holds them up is held up by the model.
    socket.say(&json!({ "id": "p", "type": "pause", "sessionId": "s" })).await;
    while socket.next().await["type"] != "command_started" {}
    for number in 0..150 {
        socket.say(&json!({ "id": format!("r{number}"), "type": "list_sessions", "dependsOn": ["p"] })).await;
    }
    socket.say(&json!({ "id": "a", "type": "abort", "sessionId": "s" })).await;
    let mut answers = std::collections::HashMap::new();
    while answers.len() < 152 {
        let frame = socket.next().await;
        if frame["type"] == "response" {
            answers.insert(frame["id"].as_str().unwrap().to_owned(), frame);
        }
    }
    assert_eq!(answers["a"]["data"]["aborted"], true, "{}", answers["a"]);
    // Had it come in time only when the pause had waited its time, that would have been a success.
    assert_eq!(answers["p"]["error"]["code"], "CONFLICT", "{}", answers["p"]);
    for number in 0..150 {
        let answer = &answers[&format!("r{number}")];
        assert_eq!(answer["success"], false, "{answer}");
    }
    house.close().await;
}

/// While turns get their time to finish, their client can still end them.
#[tokio::test]
async fn a_pipe_is_read_while_its_server_stops() {
    let home = tempfile::tempdir().unwrap();
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", silent.local_addr().unwrap());
    let mut command = simse(home.path());
    // Longer than anybody here waits.
    command.args(["serve", "--stdio", "--openai-base-url", &url, "--shutdown-grace-ms", "300000"]);
    let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(child.stdout.take().unwrap()));
    let mut until = async |kind: &str, id: Option<&str>| loop {
        let line = within(lines.next_line()).await.unwrap().expect("a line");
        let frame: Value = serde_json::from_str(&line).unwrap();
        if frame["type"] == kind && id.is_none_or(|id| frame["id"] == id) {
            return frame;
        }
    };
    let mut say = async |line: Value| stdin.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    say(json!({ "id": "c", "type": "create_session", "sessionId": "s" })).await;
    until("response", Some("c")).await;
    say(json!({ "id": "p", "type": "prompt", "sessionId": "s", "prompt": "go" })).await;
    until("response", Some("p")).await;
    let _connection = silent.accept().await.unwrap();
    let pid = rustix::process::Pid::from_raw(child.id().unwrap().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    until("server_shutdown", None).await;
    say(json!({ "id": "l", "type": "list_sessions" })).await;
    let listed = until("response", Some("l")).await;
    assert_eq!(listed["data"]["items"][0]["sessionId"], "s", "{listed}");
    say(json!({ "id": "a", "type": "abort", "sessionId": "s" })).await;
    let aborted = until("response", Some("a")).await;
    assert_eq!(aborted["data"]["aborted"], true, "{aborted}");
    assert_eq!(within(child.wait()).await.unwrap().code(), Some(0));
}
