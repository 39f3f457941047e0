//! Interrupt, pause and resume over HTTP, against the built program and a model server that does its worst.

use std::time::Duration;

use serde_json::json;

use crate::support::house::{Does, House};
use crate::support::http::request;
use crate::support::model_server::{Answer, ModelServer, queue};
use crate::support::program::{Events, Program};

async fn until(events: &mut Events, kind: &str) -> serde_json::Value {
    loop {
        let (_, data) = events.next().await.expect("the stream goes on");
        let event: serde_json::Value = serde_json::from_str(&data).expect("JSON");
        if event["type"] == kind {
            return event;
        }
    }
}

#[tokio::test]
async fn a_model_server_that_never_answers_is_cut_off_and_the_session_stays_usable() {
    let home = tempfile::tempdir().unwrap();
    let (data, work) = (home.path().join("data"), home.path().join("work"));
    std::fs::create_dir(&work).unwrap();
    let model = ModelServer::start(queue([Answer::silence(), Answer::text(&["all ", "well"])])).await;
    let program = Program::serve(&data, &work, &model.base_url()).await;
    program.call("POST", "/sessions", Some(json!({ "sessionId": "s" }))).await;
    let (status, first) = program.call("POST", "/sessions/s/prompt", Some(json!({ "prompt": "hi" }))).await;
    assert_eq!(status, 202, "{first}");
    model.came(1).await;
    let begun = std::time::Instant::now();
    let (status, said) = program.call("POST", "/sessions/s/interrupt", Some(json!({ "reason": "no answer" }))).await;
    assert_eq!((status, &said), (200, &json!({ "interrupted": true, "turnId": first["turnId"] })));
    assert!(begun.elapsed() >= Duration::from_millis(300), "it has its grace");
    let path = format!("/sessions/s/turns/{}", first["turnId"].as_str().unwrap());
    let (_, record) = program.call("GET", &path, None).await;
    let facts = json!([record["status"], record["reason"], record["stopReason"], record["prompt"]]);
    assert_eq!(facts, json!(["interrupted", "no answer", "interrupted", "hi"]));
    let (status, late) = program.call("POST", "/sessions/s/interrupt", None).await;
    assert_eq!((status, &late["error"]["message"]), (409, &json!("turn already interrupted")));
    let (status, next) = program.call("POST", "/sessions/s/prompt?wait=true", Some(json!({ "prompt": "again" }))).await;
    assert_eq!((status, &next["result"]), (200, &json!("all well")));
    let (status, late) = program.call("POST", "/sessions/s/interrupt", None).await;
    assert_eq!((status, &late["error"]["code"]), (409, &json!("CONFLICT")));
    assert_eq!(late["error"]["message"], "turn already completed");
}

#[tokio::test]
async fn a_paused_turn_is_paused_still_after_kill_nine() {
    let home = tempfile::tempdir().unwrap();
    let (data, work) = (home.path().join("data"), home.path().join("work"));
    std::fs::create_dir(&work).unwrap();
    let slow: Vec<&str> = vec!["word "; 50];
    let answers = [Answer::paced(&slow, Duration::from_millis(20)), Answer::text(&["heard"]), Answer::text(&["third"])];
    let model = ModelServer::start(queue(answers)).await;
    let program = Program::serve(&data, &work, &model.base_url()).await;
    program.call("POST", "/sessions", Some(json!({ "sessionId": "s" }))).await;
    let mut events = program.events("s", 0).await;
    let (_, first) = program.call("POST", "/sessions/s/prompt", Some(json!({ "prompt": "one" }))).await;
    until(&mut events, "stream.delta").await;
    let steer = json!({ "prompt": "and this", "mode": "steer" });
    assert_eq!(program.call("POST", "/sessions/s/prompt", Some(steer)).await.0, 202);
    let (_, queued) = program.call("POST", "/sessions/s/prompt", Some(json!({ "prompt": "two" }))).await;
    assert_eq!(queued["status"], "queued");
    // The answer takes longer than a pause waits for its end.
    let (status, paused) = program.call("POST", "/sessions/s/pause", Some(json!({}))).await;
    assert_eq!((status, &paused), (202, &json!({ "paused": false, "turnId": first["turnId"], "status": "running" })));
    until(&mut events, "turn.paused").await;
    let (status, paused) = program.call("POST", "/sessions/s/pause", Some(json!({}))).await;
    assert_eq!((status, &paused), (200, &json!({ "paused": true, "turnId": first["turnId"], "status": "paused" })));
    let (_, before) = program.call("GET", "/sessions/s", None).await;
    program.kill().await;
    let program = Program::serve(&data, &work, &model.base_url()).await;
    let (_, view) = program.call("GET", "/sessions/s", None).await;
    assert_eq!(view, before);
    assert_eq!((&view["turn"]["status"], &view["queued"]), (&json!("paused"), &json!(1)));
    let (status, refused) = program.call("POST", "/sessions/s/prompt", Some(json!({ "prompt": "no" }))).await;
    assert_eq!((status, &refused["error"]["code"]), (409, &json!("CONFLICT")));
    let mut events = program.events("s", view["lastSeq"].as_u64().unwrap()).await;
    let (status, resumed) = program.call("POST", "/sessions/s/resume", None).await;
    assert_eq!((status, &resumed), (200, &json!({ "resumed": true, "turnId": first["turnId"] })));
    until(&mut events, "session.steer").await;
    let done = until(&mut events, "session.completed").await;
    assert_eq!((&done["turnId"], &done["payload"]["result"]), (&first["turnId"], &json!("heard")));
    let done = until(&mut events, "session.completed").await;
    assert_eq!((&done["turnId"], &done["payload"]["result"]), (&queued["turnId"], &json!("third")));
    let (status, late) = program.call("POST", "/sessions/s/resume", None).await;
    assert_eq!((status, &late["error"]["message"]), (409, &json!("nothing is paused in session s")));
}

#[tokio::test]
async fn settings_are_patched_and_turns_are_paged() {
    let house = House::open().await;
    let session = house.session(json!({ "tools": ["*", "-bash"] })).await;
    let path = format!("/sessions/{session}");
    let patch = |body: serde_json::Value| request(house.address, "PATCH", &path).json(&body);
    let done = patch(json!({ "title": "T", "reasoning": "low" })).header("If-Match", "\"0\"").send(house.address).await;
    assert_eq!((done.status, done.header("etag")), (200, Some("\"1\"")), "{done:?}");
    let view = done.json();
    assert_eq!(json!([view["title"], view["reasoning"], view["tools"]]), json!(["T", "low", ["*", "-bash"]]));
    let stale = patch(json!({ "title": "U" })).header("If-Match", "\"0\"").send(house.address).await;
    assert_eq!((stale.status, stale.code().as_str()), (409, "CONFLICT"));
    #[rustfmt::skip]
    let table = [
        (json!({}), "body"),
        (json!({ "titel": "U" }), "titel"),
        (json!({ "reasoning": "huge" }), "reasoning"),
        (json!({ "tools": "bash" }), "tools"),
        (json!({ "tools": ["bsah"] }), "tools[0]"),
    ];
    for (body, field) in table {
        let refused = patch(body.clone()).send(house.address).await;
        assert_eq!((refused.status, refused.code().as_str()), (400, "INVALID_ARGUMENT"), "{body}");
        assert_eq!(refused.json()["error"]["details"]["field"], field, "{body}");
    }
    assert_eq!(house.call("GET", &path, None).await.json(), view);
    for said in ["one", "two"] {
        house.round(&[Does::Says("well")]);
        house.call("POST", &format!("{path}/prompt?wait=true"), Some(json!({ "prompt": said }))).await;
    }
    let first = house.call("GET", &format!("{path}/turns?limit=1"), None).await.json();
    assert_eq!(json!([first["items"][0]["prompt"], first["items"][0]["status"]]), json!(["two", "completed"]));
    let cursor = first["nextCursor"].as_str().unwrap();
    let second = house.call("GET", &format!("{path}/turns?limit=1&cursor={cursor}"), None).await.json();
    assert_eq!(json!([second["items"][0]["prompt"], second["nextCursor"]]), json!(["one", null]));
    let strange = house.call("GET", &format!("{path}/turns?cursor=x"), None).await;
    assert_eq!((strange.status, &strange.json()["error"]["details"]["field"]), (400, &json!("cursor")));
    assert_eq!(house.call("GET", "/sessions/none/turns", None).await.status, 404);
    house.close().await;
}

#[tokio::test]
async fn a_turn_that_waits_is_ended_by_its_name_and_never_begins() {
    let house = House::open().await;
    house.round(&[Does::Waits, Does::Says("one")]);
    house.round(&[Does::Says("three")]);
    let session = house.session(json!({ "model": "test/puppet" })).await;
    let prompt = async |text: &str| {
        let reply = house.call("POST", &format!("/sessions/{session}/prompt"), Some(json!({ "prompt": text }))).await;
        assert_eq!(reply.status, 202, "{reply:?}");
        reply.json()["turnId"].as_str().unwrap().to_owned()
    };
    let (first, second, third) = (prompt("first").await, prompt("second").await, prompt("third").await);
    let version =
        async || house.call("GET", &format!("/sessions/{session}"), None).await.json()["version"].as_u64().unwrap();
    let before = version().await;
    let abort = async |turn: &str| {
        let body = json!({ "turnId": turn, "reason": "enough" });
        house.call("POST", &format!("/sessions/{session}/abort"), Some(body)).await
    };
    let reply = abort(&second).await;
    assert_eq!((reply.status, &reply.json()["turnId"]), (200, &json!(second)), "{reply:?}");
    assert_eq!(version().await, before + 1);
    let again = abort(&second).await;
    assert_eq!((again.status, &again.json()["error"]["details"]["why"]), (409, &json!("turn_over")), "{again:?}");
    let pause = json!({ "turnId": third });
    let pause = house.call("POST", &format!("/sessions/{session}/pause"), Some(pause)).await;
    assert_eq!((pause.status, &pause.json()["error"]["details"]["why"]), (409, &json!("not_running_yet")), "{pause:?}");
    house.go_on();
    for (turn, status, result) in [(&first, "completed", json!("one")), (&third, "completed", json!("three"))] {
        let record = super::acp::end(&house, &session, &turn.parse().unwrap()).await;
        assert_eq!((&record["status"], &record["result"]), (&json!(status), &result), "{record}");
    }
    let record = house.call("GET", &format!("/sessions/{session}/turns/{second}"), None).await.json();
    assert_eq!((&record["status"], &record["reason"]), (&json!("aborted"), &json!("enough")));
    assert!(record["startedAt"].is_null() && record["lastSeq"].is_u64(), "{record}");
    let view = house.call("GET", &format!("/sessions/{session}"), None).await.json();
    assert_eq!((&view["status"], &view["queued"]), (&json!("completed"), &json!(0)));
    house.close().await;
}
