//! What a client has seen stays true when the server's process ends, however it ends.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::model_server::{Answer, ModelServer, Script, queue};
use crate::support::program::{Events, Program};

const KILLS: usize = 20;

/// Streams for seconds, unless it is told to finish.
fn endless() -> Script {
    let words: Vec<String> = (0..4000).map(|n| format!("w{n} ")).collect();
    Arc::new(move |request| {
        let messages = request.json()["messages"].clone();
        let last = messages.as_array().and_then(|all| all.last()).map(Value::to_string).unwrap_or_default();
        if last.contains("finish") {
            return Answer::text(&["all ", "well"]);
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        Answer::paced(&words, Duration::from_micros(300))
    })
}

/// Everything that is in the log, held against what was seen of it.
async fn check(program: &Program, session: &str, seen: &mut BTreeMap<u64, String>) {
    let (status, view) = program.call("GET", &format!("/sessions/{session}"), None).await;
    assert_eq!(status, 200, "{view}");
    let last = view["lastSeq"].as_u64().expect("a number");
    let newest = seen.keys().next_back().copied().unwrap_or(0);
    assert!(newest <= last, "event {newest} was seen and the log ends at {last}");
    let mut events = program.events(session, 0).await;
    for want in 1..=last {
        let (seq, data) = events.next().await.expect("the log goes on");
        assert_eq!(seq, want, "numbers follow without gaps");
        if let Some(before) = seen.insert(seq, data.clone()) {
            assert_eq!(before, data, "event {seq} is what it was");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_nine_twenty_times_and_nothing_seen_is_lost() {
    let home = tempfile::tempdir().unwrap();
    let (data, work) = (home.path().join("data"), home.path().join("work"));
    std::fs::create_dir(&work).unwrap();
    let model = ModelServer::start(endless()).await;
    let chance = RandomState::new();
    let mut seen = BTreeMap::new();
    let mut turns: Vec<String> = Vec::new();
    let mut interrupted_with_text = 0;
    for round in 0..=KILLS {
        let program = Program::serve(&data, &work, &model.base_url()).await;
        if round == 0 {
            let (status, made) = program.call("POST", "/sessions", Some(json!({ "sessionId": "s" }))).await;
            assert_eq!(status, 201, "{made}");
        }
        check(&program, "s", &mut seen).await;
        for turn in &turns {
            let (_, record) = program.call("GET", &format!("/sessions/s/turns/{turn}"), None).await;
            assert_eq!(record["status"], "failed", "{record}");
            assert_eq!(record["error"]["message"], "interrupted by restart", "{record}");
        }
        if round == KILLS {
            let (status, record) =
                program.call("POST", "/sessions/s/prompt?wait=true", Some(json!({ "prompt": "finish" }))).await;
            assert_eq!((status, record["status"].as_str()), (200, Some("completed")), "{record}");
            assert_eq!(record["result"], "all well");
            check(&program, "s", &mut seen).await;
            break;
        }
        let newest = seen.keys().next_back().copied().unwrap_or(0);
        let mut events = program.events("s", newest).await;
        let (arrived, mut arrivals) = tokio::sync::watch::channel(0);
        let reader = tokio::spawn(async move {
            let mut got = Vec::new();
            while let Some(event) = events.next().await {
                got.push(event);
                arrived.send_replace(got.len() as u64);
            }
            got
        });
        let (status, accepted) = program.call("POST", "/sessions/s/prompt", Some(json!({ "prompt": "go on" }))).await;
        assert_eq!(status, 202, "{accepted}");
        turns.push(accepted["turnId"].as_str().expect("an id").to_owned());
        let chance = chance.hash_one(round);
        if round % 4 > 0 {
            // Somewhere in the text.
            let events = 4 + chance % 60;
            arrivals.wait_for(|arrived| *arrived >= events).await.expect("the stream goes on");
        }
        // The moment is the point here: there is no signal to wait for.
        tokio::time::sleep(Duration::from_micros(chance % 5_000)).await;
        program.kill().await;
        let got = reader.await.unwrap();
        interrupted_with_text += usize::from(got.iter().any(|(_, data)| data.contains("stream.delta")));
        for ((seq, data), want) in got.into_iter().zip(newest + 1..) {
            assert_eq!(seq, want, "a live stream has no gaps");
            assert_eq!(seen.insert(seq, data), None);
        }
    }
    assert!(interrupted_with_text >= KILLS / 2, "only {interrupted_with_text} kills came in the middle of a text");
    let text = |kind: &str| seen.values().filter(|data| data.contains(&format!("\"type\":\"{kind}\""))).count();
    assert_eq!((text("session.prompt"), text("session.error"), text("session.completed")), (KILLS + 1, KILLS, 1));
    assert_eq!(text("stream.start"), text("stream.complete"), "what was said so far is kept as a whole");
}

/// The next question in an event stream.
async fn question(events: &mut Events) -> Value {
    loop {
        let (_, data) = events.next().await.expect("the stream goes on");
        let event: Value = serde_json::from_str(&data).unwrap();
        if event["type"] == "permission.request" {
            return event["payload"].clone();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_from_before_a_restart_is_over_and_not_unknown() {
    let home = tempfile::tempdir().unwrap();
    let (data, work) = (home.path().join("data"), home.path().join("work"));
    std::fs::create_dir(&work).unwrap();
    let call = |id: &str| Answer::calls("", &[(id, "bash", json!({ "command": "touch made" }))]);
    let model = ModelServer::start(queue([call("call_1"), Answer::text(&["done"]), call("call_2")])).await;
    let program = Program::serve(&data, &work, &model.base_url()).await;
    let ask = json!({ "sessionId": "s", "toolPermissions": { "defaultPolicy": "ask", "rules": [] } });
    assert_eq!(program.call("POST", "/sessions", Some(ask)).await.0, 201);
    let mut events = program.events("s", 0).await;
    let prompt = json!({ "prompt": "go" });
    assert_eq!(program.call("POST", "/sessions/s/prompt", Some(prompt.clone())).await.0, 202);
    // One that is answered, and one that the end of the process finds open.
    let answered = question(&mut events).await;
    let yes = |question: &Value| json!({ "requestId": question["requestId"], "decision": "allow" });
    assert_eq!(program.call("POST", "/sessions/s/feedback", Some(yes(&answered))).await.0, 200);
    assert_eq!(program.call("POST", "/sessions/s/prompt", Some(prompt)).await.0, 202);
    let open = question(&mut events).await;
    program.kill().await;

    let program = Program::serve(&data, &work, &model.base_url()).await;
    #[rustfmt::skip]
    let table = [
        (yes(&answered), 409, "CONFLICT"),
        (json!({ "callId": answered["callId"], "allowed": false }), 409, "CONFLICT"),
        (yes(&open), 409, "CONFLICT"),
        (json!({ "callId": open["callId"], "allowed": true }), 409, "CONFLICT"),
        (json!({ "requestId": open["requestId"], "callId": answered["callId"], "allowed": true }), 404, "NOT_FOUND"),
        (json!({ "requestId": "req_none", "allowed": true }), 404, "NOT_FOUND"),
        (json!({ "callId": "call_none", "allowed": true }), 404, "NOT_FOUND"),
    ];
    for (body, status, code) in table {
        let (got, answer) = program.call("POST", "/sessions/s/feedback", Some(body.clone())).await;
        assert_eq!((got, answer["error"]["code"].as_str()), (status, Some(code)), "{body}: {answer}");
    }
    assert!(work.join("made").exists(), "the first call was allowed before");
}
