//! `GET /events`: one stream over all sessions of a caller, which comes again exactly behind its last event, over
//! restarts too, and shows nobody what is another's.

use serde_json::{Value, json};
use simse::server::ListenOptions;

use crate::support::binary::Serving;
use crate::support::house::{Does, House};
use crate::support::http::{Frame, PATIENCE, Stream, request};
use crate::support::socket::Socket;

/// What a frame is about: its place, its session and its type.
fn told(frame: &Frame) -> (u64, String, String) {
    let session = frame.data["sessionId"].as_str().unwrap_or_else(|| panic!("{frame:?}"));
    (frame.id.unwrap(), session.to_owned(), frame.kind().to_owned())
}

async fn open(house: &House, path: &str, headers: &[(&str, &str)]) -> Stream {
    let asked = headers.iter().fold(request(house.address, "GET", path), |r, (name, value)| r.header(name, value));
    let mut stream = asked.open(house.address).await;
    assert_eq!(stream.status, 200);
    let ready = stream.event().await;
    assert_eq!((ready.kind(), ready.id, ready.data.get("sessionId")), ("ready", None, None));
    stream
}

/// The next `count` events.
async fn next(stream: &mut Stream, count: usize) -> Vec<Frame> {
    let mut frames = Vec::new();
    while frames.len() < count {
        frames.push(stream.event().await);
    }
    frames
}

#[tokio::test]
async fn a_stream_tells_of_all_sessions_in_one_order() {
    let house = House::open().await;
    let mut early = open(&house, "/events", &[]).await;
    let (a, b) = (house.session(json!({})).await, house.session(json!({})).await);
    house.round(&[Does::Floods("x", 200)]);
    house.prompt(&a, "go").await;
    house.round(&[Does::Fails("no")]);
    house.prompt(&b, "go").await;
    assert_eq!(house.call("DELETE", &format!("/sessions/{a}"), None).await.status, 200);
    let seen = next(&mut early, 7).await;
    let want = [
        (&a, "session.created"),
        (&b, "session.created"),
        (&a, "session.prompt"),
        (&a, "session.completed"),
        (&b, "session.prompt"),
        (&b, "session.error"),
        (&a, "session.deleted"),
    ];
    let want: Vec<_> = (1..).zip(want).map(|(place, (id, kind))| (place, id.clone(), kind.to_owned())).collect();
    assert_eq!(seen.iter().map(told).collect::<Vec<_>>(), want);
    // The events are those of the sessions' own streams.
    let own = house.events(&b, "").await.until("session.error").await;
    for frame in seen.iter().filter(|frame| frame.data["sessionId"] == json!(b)) {
        assert!(own.iter().any(|event| event.data == frame.data), "{frame:?}");
    }
    // Later, what is gone is no longer told but by its end; places stay.
    let late = next(&mut open(&house, "/events", &[]).await, 4).await;
    let left: Vec<_> =
        seen.iter().filter(|f| f.data["sessionId"] == json!(b) || f.kind() == "session.deleted").collect();
    assert_eq!(late.iter().collect::<Vec<_>>(), left);
    for behind in [2, 5, 6] {
        let rest: Vec<_> = late.iter().filter(|frame| frame.id > Some(behind)).cloned().collect();
        let mut again = open(&house, &format!("/events?after={behind}"), &[]).await;
        assert_eq!(next(&mut again, rest.len()).await, rest, "behind {behind}");
        // The header wins: a browser that reconnects repeats the address.
        let mut again = open(&house, "/events?after=0", &[("Last-Event-ID", &behind.to_string())]).await;
        assert_eq!(next(&mut again, rest.len()).await, rest, "behind {behind}");
    }
    let mut ends = open(&house, "/events?types=session.error,session.deleted", &[]).await;
    let kinds: Vec<_> = next(&mut ends, 2).await.iter().map(|frame| frame.kind().to_owned()).collect();
    assert_eq!(kinds, ["session.error", "session.deleted"]);
    let mut newest = open(&house, "/events?after=newest", &[]).await;
    let c = house.session(json!({})).await;
    assert_eq!(told(&newest.event().await), (8, c, "session.created".to_owned()));
    house.close().await;
    assert!(newest.frame().await.is_none(), "the end of the server is the end of the stream");
}

#[tokio::test]
async fn what_cannot_be_asked_is_refused_by_name() {
    let house = House::open().await;
    house.session(json!({})).await;
    #[rustfmt::skip]
    let table = [
        ("/events?after=2", "after"), ("/events?after=-1", "after"), ("/events?after=oldest", "after"),
        ("/events?types=stream.delta", "types"), ("/events?types=", "types"), ("/events?session=s", "session"),
    ];
    for (path, field) in table {
        let reply = house.call("GET", path, None).await;
        assert_eq!((reply.status, reply.code().as_str()), (400, "INVALID_ARGUMENT"), "{path}");
        assert_eq!(reply.json()["error"]["details"]["field"], field, "{path}");
    }
    assert_eq!(house.call("POST", "/events", Some(json!({}))).await.status, 405);
    house.close().await;
}

#[tokio::test]
async fn each_client_has_its_own_and_counts_for_itself() {
    let house = House::open().await;
    let create = |client: Option<&str>, id: &str| {
        let post = request(house.address, "POST", "/sessions").json(&json!({ "sessionId": id }));
        client.map_or(post.clone(), |client| post.header("X-Client-ID", client))
    };
    let one = [("X-Client-ID", "one")];
    let mut ones = open(&house, "/events", &one).await;
    let mut nobodys = open(&house, "/events", &[]).await;
    for (client, id) in [(Some("two"), "t1"), (None, "n1"), (Some("two"), "t2"), (Some("one"), "o1"), (None, "n2")] {
        assert_eq!(create(client, id).send(house.address).await.status, 201);
    }
    let created = |place, id: &str| (place, id.to_owned(), "session.created".to_owned());
    // Nothing of the others comes, and no number tells of them.
    assert_eq!(next(&mut ones, 1).await.iter().map(told).collect::<Vec<_>>(), [created(1, "o1")]);
    assert_eq!(next(&mut nobodys, 2).await.iter().map(told).collect::<Vec<_>>(), [created(1, "n1"), created(2, "n2")]);
    let reply = request(house.address, "GET", "/events?after=2").header("X-Client-ID", "one").send(house.address).await;
    assert_eq!(reply.status, 400, "a place of another's stream: {reply:?}");
    assert_eq!(create(Some("one"), "o2").send(house.address).await.status, 201);
    assert_eq!(told(&ones.event().await), created(2, "o2"));
    house.close().await;
}

#[tokio::test]
async fn a_question_is_seen_by_who_looks_at_all_sessions() {
    let house = House::with(ListenOptions::default(), |settings| {
        settings.permissions.default_policy = simse::protocol::PermissionPolicy::Ask;
    })
    .await;
    let session = house.session(json!({})).await;
    let mut stream = open(&house, "/events?after=newest&types=permission.request,permission.response", &[]).await;
    // Somebody is there, so that it is asked.
    let _own = house.events(&session, "").await;
    house.round(&[Does::Calls("fs_write", json!({ "path": "a", "content": "x" }))]);
    let asked = house.call("POST", &format!("/sessions/{session}/prompt"), Some(json!({ "prompt": "go" }))).await;
    assert_eq!(asked.status, 202);
    let request = stream.event().await;
    assert_eq!((request.kind(), &request.data["sessionId"]), ("permission.request", &json!(session)));
    let answer = json!({ "requestId": request.data["payload"]["requestId"], "decision": "deny" });
    let reply = house.call("POST", &format!("/sessions/{session}/feedback"), Some(answer)).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let response = stream.event().await;
    assert_eq!((response.kind(), &response.data["payload"]["allowed"]), ("permission.response", &json!(false)));
    house.close().await;
}

/// Killed, not stopped: what a client has seen is there, and what comes goes on behind it.
#[tokio::test]
async fn it_goes_on_behind_its_last_event_after_a_crash() {
    let home = tempfile::tempdir().unwrap();
    let mut serving = Serving::start(&home, &["--log-level", "error"]).await;
    let mut before = Vec::new();
    let mut stream = serving.request("GET", "/events").open(serving.address).await;
    assert_eq!(stream.event().await.kind(), "ready");
    for id in ["a", "b", "c"] {
        let create = serving.request("POST", "/sessions").json(&json!({ "sessionId": id }));
        assert_eq!(create.send(serving.address).await.status, 201);
        before.push(stream.event().await);
    }
    serving.child.kill().await.unwrap();
    let next_one = Serving::start(&home, &["--log-level", "error"]).await;
    let all = next_one.request("GET", "/events").open(next_one.address).await;
    let mut all = all;
    assert_eq!(all.event().await.kind(), "ready");
    assert_eq!(next(&mut all, 3).await, before);
    let last = next_one.request("GET", "/events").header("Last-Event-ID", "3");
    let mut last = last.open(next_one.address).await;
    assert_eq!(last.event().await.data["payload"]["position"], json!(3));
    for (route, behind) in [("/events", "1000"), ("/sessions/b/events", "77")] {
        for (header, query, field) in
            [(Some(behind), "", "Last-Event-ID"), (None, behind, "after"), (Some(behind), "1", "Last-Event-ID")]
        {
            let query = if query.is_empty() { String::new() } else { format!("?after={query}") };
            let mut ahead = next_one.request("GET", &format!("{route}{query}"));
            if let Some(header) = header {
                ahead = ahead.header("Last-Event-ID", header);
            }
            let refused = ahead.send(next_one.address).await;
            let error = refused.json()["error"].clone();
            assert_eq!((refused.status, &error["details"]["field"]), (400, &json!(field)), "{route}{query}: {error}");
            assert!(error["message"].as_str().unwrap().starts_with(&format!("`{field}`: expected ")), "{error}");
        }
    }
    let gone = next_one.request("DELETE", "/sessions/b").send(next_one.address).await;
    assert_eq!(gone.status, 200);
    assert_eq!(told(&last.event().await), (4, "b".to_owned(), "session.deleted".to_owned()));
    assert_eq!(next_one.stop().await.0, Some(0));
}

/// Ends are forgotten, and who was away since before that is told.
#[tokio::test]
async fn a_stream_says_since_when_it_tells_of_all_that_were_deleted() {
    let home = tempfile::tempdir().unwrap();
    let serving = Serving::start(&home, &["--log-level", "error"]).await;
    let create = serving.request("POST", "/sessions").json(&json!({ "sessionId": "a" }));
    assert_eq!(create.send(serving.address).await.status, 201);
    assert_eq!(serving.request("DELETE", "/sessions/a").send(serving.address).await.status, 200);
    let mut stream = serving.request("GET", "/events").open(serving.address).await;
    assert_eq!(stream.event().await.data["payload"], json!({ "position": 0 }));
    assert_eq!(told(&stream.event().await), (2, "a".to_owned(), "session.deleted".to_owned()));
    drop(stream);
    serving.stop_well().await;
    let database = rusqlite::Connection::open(home.path().join(".local/share/simse/simse.db")).unwrap();
    let aged = "UPDATE lifecycle SET gone = json_set(gone, '$.at', 7) WHERE gone IS NOT NULL";
    assert_eq!(database.execute(aged, []).unwrap(), 1);
    drop(database);

    let serving = Serving::start(&home, &["--log-level", "error"]).await;
    // It is swept up beside other work.
    let started = std::time::Instant::now();
    let since = loop {
        let mut stream = serving.request("GET", "/events").header("Last-Event-ID", "1").open(serving.address).await;
        let ready = stream.event().await;
        assert_eq!(ready.data["payload"]["position"], json!(1));
        if let Some(since) = ready.data["payload"]["endsSince"].as_u64() {
            break since;
        }
        assert!(started.elapsed() < PATIENCE, "it is not swept up");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    };
    assert_eq!(since, 8);
    let mut behind = serving.request("GET", "/events").header("Last-Event-ID", "2").open(serving.address).await;
    assert_eq!(behind.event().await.data["payload"], json!({ "position": 2, "endsSince": 8 }));
    let create = serving.request("POST", "/sessions").json(&json!({ "sessionId": "a" }));
    assert_eq!(create.send(serving.address).await.status, 201);
    assert_eq!(told(&behind.event().await), (3, "a".to_owned(), "session.created".to_owned()), "no place comes twice");
    drop(behind);
    serving.stop_well().await;
}

/// A thousand sessions, a client that does not read meanwhile: nothing is lost, and nothing is kept for it.
#[tokio::test]
async fn a_slow_reader_loses_nothing() {
    const SESSIONS: u64 = 1_000;
    let house = House::open().await;
    let mut slow = open(&house, "/events", &[]).await;
    let creates = (0..SESSIONS).map(|n| {
        let body = json!({ "sessionId": format!("s{n}") });
        let app = &house.app;
        async move {
            let body = serde_json::from_value(body).unwrap();
            app.create_session(&simse::app::Caller::default(), body).await.unwrap()
        }
    });
    futures_util::future::join_all(creates).await;
    let seen = next(&mut slow, 1_000).await;
    assert_eq!(seen.iter().filter_map(|f| f.id).collect::<Vec<_>>(), (1..=SESSIONS).collect::<Vec<_>>());
    let mut named: Vec<&Value> = seen.iter().map(|frame| &frame.data["sessionId"]).collect();
    named.sort_by_key(|id| id.to_string());
    named.dedup();
    assert_eq!(named.len(), 1_000);
    house.close().await;
}

/// What a frame on a socket is about, as [`told`].
fn said(frame: &Value) -> (u64, String, String) {
    assert_eq!(frame["type"], "lifecycle_event", "{frame}");
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{frame}")).to_owned();
    (frame["place"].as_u64().unwrap(), text(&frame["event"]["sessionId"]), text(&frame["event"]["type"]))
}

#[tokio::test]
async fn a_socket_is_told_the_same_and_goes_on_the_same() {
    let house = House::open().await;
    let mut socket = Socket::ready(&house).await;
    let all = json!({ "id": "all", "type": "subscribe" });
    assert_eq!(socket.response(&all).await["data"], json!({ "position": 0 }));
    let (a, b) = (house.session(json!({})).await, house.session(json!({})).await);
    // A session's own events beside them are told apart.
    socket.say(&json!({ "id": "own", "type": "subscribe", "sessionId": a })).await;
    house.prompt(&a, "go").await;
    assert_eq!(house.call("DELETE", &format!("/sessions/{a}"), None).await.status, 200);
    let (mut seen, mut own) = (Vec::new(), 0);
    while seen.last().is_none_or(|(_, _, kind): &(u64, String, String)| kind != "session.deleted") {
        let frame = socket.next().await;
        match frame["type"].as_str().unwrap() {
            "lifecycle_event" => seen.push(said(&frame)),
            "event" => own += 1,
            "command_accepted" | "command_started" | "command_finished" | "response" => {}
            "subscription_ended" => assert_eq!(frame["sessionId"], json!(a)),
            other => panic!("{other}: {frame}"),
        }
    }
    assert!(own > 3);
    let want = [
        (&a, "session.created"),
        (&b, "session.created"),
        (&a, "session.prompt"),
        (&a, "session.completed"),
        (&a, "session.deleted"),
    ];
    let want: Vec<_> = (1..).zip(want).map(|(place, (id, kind))| (place, id.clone(), kind.to_owned())).collect();
    assert_eq!(seen, want);
    // Again behind a place, of some types, and with what comes next; what was there before ends.
    let mut again = Socket::ready(&house).await;
    let behind = json!({ "type": "subscribe", "after": 2, "types": ["session.deleted"] });
    assert_eq!(again.response(&behind).await["data"], json!({ "position": 2 }));
    assert_eq!(said(&again.next().await), want[4]);
    let newest = json!({ "type": "subscribe", "after": "newest" });
    assert_eq!(again.response(&newest).await["data"], json!({ "position": 5 }));
    let c = house.session(json!({})).await;
    assert_eq!(said(&again.next().await), (6, c, "session.created".to_owned()));
    let off = json!({ "type": "unsubscribe" });
    assert_eq!(again.response(&off).await["data"], json!({ "unsubscribed": true }));
    assert_eq!(again.response(&off).await["error"]["code"], "NOT_FOUND");
    house.session(json!({})).await;
    #[rustfmt::skip]
    let table = [
        (json!({ "type": "subscribe", "after": 99 }), "after"),
        (json!({ "type": "subscribe", "types": ["stream.delta"] }), "types"),
        (json!({ "type": "subscribe", "sessionId": b, "types": ["session.deleted"] }), "types"),
    ];
    for (wish, field) in table {
        assert_eq!(again.response(&wish).await["error"]["details"]["field"], field, "{wish}");
    }
    // Another client's socket is told of its own alone.
    let mut other = Socket::open(&house, "X-Client-ID: other\r\n").await.unwrap();
    assert_eq!(other.next().await["type"], "server_ready");
    assert_eq!(other.response(&json!({ "type": "subscribe" })).await["data"], json!({ "position": 0 }));
    let create = request(house.address, "POST", "/sessions").json(&json!({ "sessionId": "o" }));
    assert_eq!(create.header("X-Client-ID", "other").send(house.address).await.status, 201);
    assert_eq!(said(&other.next().await), (1, "o".to_owned(), "session.created".to_owned()));
    house.close().await;
}

/// The answer to the question of the session's turn, as the log has it. None: it is still asked.
async fn answered(house: &House, id: &str) -> Option<Value> {
    let log = house.call("GET", &format!("/sessions/{id}/history?events=true"), None).await.json();
    let events = log["items"].as_array().unwrap();
    assert!(events.iter().any(|event| event["type"] == "permission.request"), "{log}");
    events.iter().find(|event| event["type"] == "permission.response").map(|event| event["payload"]["by"].clone())
}

/// Who is sent the question, or has a line on which to ask for it, can be asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_with_any_line_of_its_own_can_be_asked() {
    let house = House::with(ListenOptions::default(), |settings| settings.limits.client_grace_ms = 100).await;
    let asks = || house.round(&[Does::Calls("fs_write", json!({ "path": "a", "content": "a" }))]);
    for (line, behind) in [("events", false), ("socket", false), ("events", true), ("socket", true)] {
        let id = house.session(json!({})).await;
        if behind {
            // The session is in memory when its client comes.
            house.prompt(&id, "go").await;
        }
        let (stream, socket) = match line {
            "events" => (Some(open(&house, "/events?after=newest", &[]).await), None),
            _ => (None, Some(Socket::ready(&house).await)),
        };
        asks();
        let prompt = house.call("POST", &format!("/sessions/{id}/prompt"), Some(json!({ "prompt": "go" }))).await;
        assert_eq!(prompt.status, 202, "{prompt:?}");
        let path = format!("/sessions/{id}");
        while house.call("GET", &path, None).await.json()["requests"].as_array().is_none_or(Vec::is_empty) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        assert_eq!(answered(&house, &id).await, None, "{line} {behind}");
        drop((stream, socket));
        while answered(&house, &id).await.is_none() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        assert_eq!(answered(&house, &id).await, Some(json!("no-client")), "{line} {behind}");
    }
    // Another one's line is nobody here.
    let _other = open(&house, "/events?after=newest", &[("X-Client-ID", "other")]).await;
    let id = house.session(json!({})).await;
    asks();
    house.call("POST", &format!("/sessions/{id}/prompt"), Some(json!({ "prompt": "go" }))).await;
    let mut events = house.events(&id, "?after=0&types=permission.request").await;
    events.until("permission.request").await;
    drop(events);
    while answered(&house, &id).await.is_none() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(answered(&house, &id).await, Some(json!("no-client")));
    house.close().await;
}
