//! The shapes of the routes, and every form that an error takes (contract.md, Routes).

use std::time::Duration;

use serde_json::{Value, json};
use simse::server::ListenOptions;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::support::house::{Does, House};
use crate::support::http::{Stream, request};

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[tokio::test]
async fn the_routes_of_the_design_have_their_shapes() {
    let house = House::open().await;
    let created = house.call("POST", "/sessions", Some(json!({ "sessionId": "s1", "title": "T" }))).await;
    assert_eq!((created.status, created.header("location")), (201, Some("/sessions/s1")));
    let view = created.json();
    assert_eq!((&view["sessionId"], &view["status"], &view["version"]), (&json!("s1"), &json!("created"), &json!(0)));
    assert!(view["createdAt"].as_u64().is_some_and(|at| at > 0), "{view}");

    let shown = house.call("GET", "/sessions/s1", None).await.json();
    assert_eq!((&shown["sessionId"], &shown["messageCount"]), (&json!("s1"), &json!(0)));

    house.round(&[Does::Says("hello")]);
    let accepted = house.call("POST", "/sessions/s1/prompt", Some(json!({ "prompt": "hi" }))).await;
    assert_eq!(accepted.status, 202, "{accepted:?}");
    assert_eq!(keys(&accepted.json()), ["turnId", "status", "version"]);
    let turn = accepted.json()["turnId"].as_str().unwrap().to_owned();
    house.events("s1", "").await.until("session.completed").await;

    let record = house.call("GET", &format!("/sessions/s1/turns/{turn}"), None).await.json();
    assert_eq!((&record["status"], &record["result"]), (&json!("completed"), &json!("hello")));
    let history = house.call("GET", "/sessions/s1/history", None).await.json();
    assert_eq!(keys(&history), ["items", "nextCursor"]);
    assert_eq!(history["items"].as_array().unwrap().len(), 2, "{history}");
    let page = house.call("GET", "/sessions/s1/history?limit=1", None).await.json();
    let cursor = page["nextCursor"].as_str().unwrap();
    let rest = house.call("GET", &format!("/sessions/s1/history?cursor={cursor}"), None).await.json();
    assert_eq!((&rest["items"][0], &rest["nextCursor"]), (&history["items"][1], &Value::Null));

    let idle = house.call("POST", "/sessions/s1/abort", None).await;
    assert_eq!((idle.status, idle.code().as_str()), (409, "CONFLICT"));
    let unknown = house.call("POST", "/sessions/s1/feedback", Some(json!({ "callId": "x", "allowed": true }))).await;
    assert_eq!((unknown.status, unknown.code().as_str()), (404, "NOT_FOUND"));

    for (path, key) in [("/tools", "tools"), ("/agents", "agents"), ("/models", "models")] {
        let list = house.call("GET", path, None).await.json();
        assert!(list[key].as_array().is_some_and(|list| !list.is_empty()), "{path}: {list}");
    }
    let health = house.call("GET", "/health", None).await;
    assert_eq!((health.status, &health.json()["status"]), (200, &json!("ok")));
    assert_eq!(keys(&health.json()), ["status", "timestamp", "version", "checks"]);

    let deleted = house.call("DELETE", "/sessions/s1", None).await;
    assert_eq!((deleted.status, deleted.json()), (200, json!({ "deleted": true })));
    assert_eq!(house.call("GET", "/sessions/s1", None).await.code(), "NOT_FOUND");
    house.close().await;
}

#[tokio::test]
async fn sessions_are_listed_newest_first_page_by_page() {
    let house = House::open().await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(house.session(json!({})).await);
    }
    ids.reverse();
    let mut seen = Vec::new();
    let mut path = "/sessions?limit=2".to_owned();
    loop {
        let page = house.call("GET", &path, None).await.json();
        seen.extend(page["items"].as_array().unwrap().iter().map(|s| s["sessionId"].as_str().unwrap().to_owned()));
        match page["nextCursor"].as_str() {
            Some(cursor) => path = format!("/sessions?limit=2&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(seen, ids);
    house.close().await;
}

#[tokio::test]
async fn another_clients_session_is_not_there() {
    let house = House::open().await;
    let mine =
        request(house.address, "POST", "/sessions").header("X-Client-ID", "me").json(&json!({ "sessionId": "s" }));
    assert_eq!(mine.send(house.address).await.status, 201);
    for (client, status) in [(Some("me"), 200), (Some("you"), 404), (None, 404)] {
        let show = request(house.address, "GET", "/sessions/s");
        let show = client.map_or(show.clone(), |client| show.header("X-Client-ID", client));
        assert_eq!(show.send(house.address).await.status, status, "{client:?}");
    }
    house.close().await;
}

#[tokio::test]
async fn a_waiting_prompt_answers_with_its_own_turn() {
    let house = House::open().await;
    let session = house.session(json!({})).await;
    house.round(&[Does::Says("one")]);
    house.round(&[Does::Says("two")]);
    let (first, second) = tokio::join!(house.prompt(&session, "1"), house.prompt(&session, "2"));
    let mut results = [first["result"].as_str().unwrap(), second["result"].as_str().unwrap()];
    results.sort_unstable();
    assert_eq!(results, ["one", "two"]);
    assert_ne!(first["turnId"], second["turnId"]);
    house.round(&[Does::Fails("no such thing")]);
    let failed = house.prompt(&session, "3").await;
    assert_eq!(failed["status"], "failed", "{failed}");
    assert!(failed["error"]["message"].as_str().unwrap().contains("no such thing"), "{failed}");
    house.close().await;
}

#[tokio::test]
async fn what_is_wrong_is_refused_in_the_one_envelope() {
    let house = House::open().await;
    let session = house.session(json!({ "sessionId": "s" })).await;
    assert_eq!(session, "s");
    let text = |text: &str| Some((text.to_owned(), Some("application/json")));
    #[rustfmt::skip]
    let table: Vec<(&str, &str, Option<(String, Option<&str>)>, u16, &str, Option<&str>)> = vec![
        ("GET", "/nowhere", None, 404, "NOT_FOUND", None),
        ("GET", "/sessions/", None, 404, "NOT_FOUND", None),
        ("PUT", "/sessions", None, 405, "INVALID_ARGUMENT", Some("method")),
        ("OPTIONS", "/sessions/s/prompt", None, 405, "INVALID_ARGUMENT", Some("method")),
        ("GET", "/sessions/nobody", None, 404, "NOT_FOUND", None),
        ("GET", "/sessions/a%2Fb", None, 400, "INVALID_ARGUMENT", Some("sessionId")),
        ("GET", "/sessions/%FF", None, 400, "INVALID_ARGUMENT", Some("path")),
        ("GET", "/sessions/s/turns/nothing", None, 404, "NOT_FOUND", None),
        ("GET", "/sessions?limit=x", None, 400, "INVALID_ARGUMENT", Some("limit")),
        ("GET", "/sessions?page=2", None, 400, "INVALID_ARGUMENT", Some("page")),
        ("GET", "/sessions?cursor=%00", None, 400, "INVALID_ARGUMENT", Some("cursor")),
        ("GET", "/sessions/s/history?cursor=x", None, 400, "INVALID_ARGUMENT", Some("cursor")),
        ("GET", "/health?verbose=1", None, 400, "INVALID_ARGUMENT", Some("verbose")),
        ("GET", "/sessions/s/events?after=x", None, 400, "INVALID_ARGUMENT", Some("after")),
        ("GET", "/sessions/s/events?after=999", None, 400, "INVALID_ARGUMENT", Some("after")),
        ("GET", "/sessions/s/events?types=stream.dela", None, 400, "INVALID_ARGUMENT", Some("types")),
        ("POST", "/sessions", text("{"), 400, "INVALID_ARGUMENT", Some("body")),
        ("POST", "/sessions", text("[]"), 400, "INVALID_ARGUMENT", Some("body")),
        ("POST", "/sessions", text("{\"titel\":\"x\"}"), 400, "INVALID_ARGUMENT", Some("titel")),
        ("POST", "/sessions", text("{\"title\":5}"), 400, "INVALID_ARGUMENT", Some("title")),
        ("POST", "/sessions", text("{\"sessionId\":\"a/b\"}"), 400, "INVALID_ARGUMENT", Some("sessionId")),
        ("POST", "/sessions", text("{\"sessionId\":\"s\"}"), 409, "CONFLICT", Some("sessionId")),
        ("POST", "/sessions", text("{\"workingDirectory\":\"/no/such/place\"}"), 400, "INVALID_ARGUMENT", Some("workingDirectory")),
        ("POST", "/sessions", text("{\"workingDirectory\":\"/\"}"), 400, "INVALID_ARGUMENT", Some("workingDirectory")),
        ("POST", "/sessions", text("{\"toolPermissions\":{\"defaultPolicy\":\"allow\",\"rules\":[{\"tool\":\"*\",\"policy\":\"deny\",\"category\":[]}]}}"), 400, "INVALID_ARGUMENT", Some("toolPermissions.rules[0].category")),
        ("POST", "/sessions", text("{\"toolPermissions\":{\"defaultPolicy\":\"allow\",\"rules\":[{\"tool\":\"bash\",\"policy\":\"deny\",\"pattern\":\"\"}]}}"), 400, "INVALID_ARGUMENT", Some("toolPermissions.rules[0].pattern")),
        ("POST", "/sessions", text("{\"model\":\"no/such\"}"), 400, "INVALID_ARGUMENT", Some("model")),
        ("POST", "/sessions", text("{\"agent\":\"nobody\"}"), 400, "INVALID_ARGUMENT", Some("agent")),
        ("POST", "/sessions", Some(("{}".into(), Some("text/plain"))), 400, "INVALID_ARGUMENT", Some("Content-Type")),
        ("POST", "/sessions", Some(("{}".into(), None)), 400, "INVALID_ARGUMENT", Some("Content-Type")),
        ("POST", "/sessions", Some((String::new(), Some("application/x-www-form-urlencoded"))), 400, "INVALID_ARGUMENT", Some("Content-Type")),
        ("POST", "/sessions?x=1", text("{}"), 400, "INVALID_ARGUMENT", Some("x")),
        ("POST", "/sessions/s/prompt", None, 400, "INVALID_ARGUMENT", Some("prompt")),
        ("POST", "/sessions/s/prompt", text("{\"prompt\":\"\"}"), 400, "INVALID_ARGUMENT", Some("prompt")),
        ("POST", "/sessions/s/prompt?wait=maybe", text("{\"prompt\":\"x\"}"), 400, "INVALID_ARGUMENT", Some("wait")),
        ("POST", "/sessions/s/prompt", text("{\"prompt\":\"x\",\"ifVersion\":7}"), 409, "CONFLICT", None),
        ("POST", "/sessions/nobody/prompt", text("{\"prompt\":\"x\"}"), 404, "NOT_FOUND", None),
        ("POST", "/sessions/nobody/abort", None, 404, "NOT_FOUND", None),
        ("POST", "/sessions/s/feedback", text("{}"), 400, "INVALID_ARGUMENT", None),
        ("DELETE", "/sessions/nobody", None, 404, "NOT_FOUND", None),
    ];
    let mut wrong = Vec::new();
    for (method, path, body, status, code, field) in table {
        let mut request = request(house.address, method, path);
        if let Some((text, content_type)) = &body {
            request = content_type.map_or(request.clone(), |kind| request.header("Content-Type", kind));
            request = request.body(text.as_bytes());
        }
        let reply = request.send(house.address).await;
        let details = reply.json()["error"]["details"]["field"].as_str().map(str::to_owned);
        let same_field = field.is_none() || details.as_deref() == field;
        if (reply.status, reply.code().as_str(), same_field) != (status, code, true) {
            wrong.push(format!("{method} {path} {body:?}: {} {}", reply.status, reply.json()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let not_allowed = house.call("PUT", "/sessions", None).await;
    assert_eq!(not_allowed.header("allow"), Some("GET,HEAD,POST"));
    house.close().await;
}

#[tokio::test]
async fn a_body_is_bounded_in_bytes_and_in_time() {
    let options = ListenOptions { body_bytes_max: 1_000, ..Default::default() };
    let house = House::with(options, |_| {}).await;
    let body = |bytes: usize| format!("{{\"title\":\"{}\"}}", "é".repeat((bytes - 12) / 2));
    for (bytes, status) in [(256, 201), (1_000, 400), (1_002, 413), (50_000, 413)] {
        let request = request(house.address, "POST", "/sessions").header("Content-Type", "application/json");
        let reply = request.body(body(bytes).as_bytes()).send(house.address).await;
        assert_eq!(reply.status, status, "{bytes}: {}", reply.json());
        if status == 413 {
            assert_eq!(reply.code(), "PAYLOAD_TOO_LARGE");
        }
    }
    // Without a length the bytes are counted as they come.
    let head = request(house.address, "POST", "/sessions")
        .header("Content-Type", "application/json")
        .header("Transfer-Encoding", "chunked");
    let mut connection = TcpStream::connect(house.address).await.unwrap();
    connection.write_all(&head.bytes()).await.unwrap();
    for _ in 0..3 {
        connection.write_all(format!("1f4\r\n{}\r\n", "x".repeat(500)).as_bytes()).await.unwrap();
    }
    connection.write_all(b"0\r\n\r\n").await.unwrap();
    assert_eq!(Stream::read_head(connection).await.status, 413);
    house.close().await;
    // A body that never comes.
    let options = ListenOptions { body_timeout: Duration::from_millis(200), ..Default::default() };
    let house = House::with(options, |_| {}).await;
    let head = request(house.address, "POST", "/sessions").header("Content-Type", "application/json");
    let slow = head.header("Content-Length", "10");
    let mut answer = slow.open(house.address).await;
    let body: Value = serde_json::from_slice(&answer.rest().await).unwrap();
    assert_eq!((answer.status, &body["error"]["code"]), (408, &json!("TIMEOUT")));
    house.close().await;
}

#[tokio::test]
async fn every_answer_carries_its_request_id() {
    let house = House::open().await;
    let made = house.call("GET", "/health", None).await;
    assert!(made.header("x-request-id").is_some_and(|id| id.len() == 32), "{made:?}");
    let given = request(house.address, "GET", "/nowhere").header("X-Request-Id", "abc-1").send(house.address).await;
    assert_eq!(given.header("x-request-id"), Some("abc-1"));
    let strange = request(house.address, "GET", "/health").header("X-Request-Id", "a b").send(house.address).await;
    assert_ne!(strange.header("x-request-id"), Some("a b"));
    house.close().await;
}

#[tokio::test]
async fn one_connection_too_many_is_told_so() {
    let house = House::with(ListenOptions { connections_max: 2, ..Default::default() }, |_| {}).await;
    let session = house.session(json!({})).await;
    let (first, second) = (house.events(&session, "").await, house.events(&session, "").await);
    let refused = house.call("GET", "/health", None).await;
    assert_eq!((refused.status, refused.code().as_str()), (429, "RESOURCE_EXHAUSTED"));
    assert_eq!(refused.header("retry-after"), Some("1"));
    drop((first, second));
    // The server notices that they have gone, and there is room again.
    let mut status = 429;
    for _ in 0..200 {
        status = house.call("GET", "/health", None).await.status;
        if status == 200 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(status, 200);
    house.close().await;
}
