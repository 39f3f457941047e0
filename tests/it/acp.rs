//! Sessions that an ACP agent answers, from the routes to the agent's program and back.

use serde_json::{Value, json};
use simse::config::{AcpServer, Settings};
use simse::server::ListenOptions;

use super::support::agent::settings;
use super::support::house::House;

/// A server with one agent, `a`, that is `how`, and a session of it.
async fn house(how: &str) -> (House, String) {
    house_with(settings("a", how), |_| {}).await
}

async fn house_with(agent: AcpServer, change: impl FnOnce(&mut Settings)) -> (House, String) {
    let house = House::with(ListenOptions::default(), |settings| {
        settings.acp_servers = vec![agent];
        change(settings);
    })
    .await;
    let session = house.session(json!({ "agent": "a" })).await;
    (house, session)
}

/// All events of a session so far: their types, and their payloads.
async fn events(house: &House, session: &str) -> Vec<(String, Value)> {
    let session = session.parse().unwrap();
    let mut reader = house.app.events(&simse::app::Caller::default(), &session, 0).await.unwrap();
    let last = house.app.session(&simse::app::Caller::default(), &session).await.unwrap().last_seq;
    let mut all = Vec::new();
    while (all.len() as u64) < last {
        let batch = reader.next().await.unwrap().unwrap();
        for event in batch.events.iter() {
            all.push((event.kind.clone(), serde_json::from_str(event.payload.get()).unwrap()));
        }
    }
    all
}

fn kinds(events: &[(String, Value)]) -> Vec<&str> {
    events.iter().map(|(kind, _)| kind.as_str()).collect()
}

fn facts(turn: &Value) -> Value {
    serde_json::from_str(turn["result"].as_str().unwrap_or_else(|| panic!("no result: {turn}"))).unwrap()
}

#[tokio::test]
async fn an_agent_answers_with_texts_thoughts_and_calls() {
    let (house, session) = house("").await;
    let call = json!({ "sessionUpdate": "tool_call", "toolCallId": "c1", "title": "List", "kind": "execute" });
    let started = json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": "in_progress",
        "rawInput": { "command": "ls" } });
    let ended = json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": "completed",
        "content": [{ "type": "content", "content": { "type": "text", "text": "a.txt" } }] });
    let script = format!(
        "noise hello there\nthink hm\nsay Let me \nsay look.\nupdate {call}\nupdate {started}\nupdate {ended}\nsay Done."
    );
    let turn = house.prompt(&session, &script).await;
    assert_eq!((&turn["status"], &turn["result"]), (&json!("completed"), &json!("Done.")), "{turn}");
    assert_eq!(turn["usage"]["totalTokens"], 10);
    let events = events(&house, &session).await;
    let want = [
        "session.created",
        "session.prompt",
        "loop.start",
        "stream.start",
        "agent.session",
        "stream.reasoning",
        "stream.delta",
        "stream.delta",
        "stream.complete",
        "tool.call.start",
        "tool.call.end",
        "turn.complete",
        "stream.start",
        "stream.delta",
        "stream.complete",
        "turn.complete",
        "loop.complete",
        "session.completed",
    ];
    assert_eq!(kinds(&events), want);
    assert_eq!(events[9].1, json!({ "callId": "c1", "name": "acp:a/execute", "args": { "command": "ls" } }));
    assert_eq!((&events[10].1["output"], &events[10].1["isError"]), (&json!("a.txt"), &json!(false)));
    assert_eq!(events[8].1["text"], "Let me look.");
    let view = house.call("GET", &format!("/sessions/{session}"), None).await.json();
    assert_eq!((&view["agent"], &view["model"], &view["messageCount"]), (&json!("a"), &json!("acp/a"), &json!(4)));
    house.close().await;
}

#[tokio::test]
async fn one_program_serves_all_sessions_and_ends_with_the_server() {
    let (house, one) = house("outlives").await;
    let two = house.session(json!({ "agent": "a" })).await;
    let first = facts(&house.prompt(&one, "facts").await);
    let second = facts(&house.prompt(&two, "facts").await);
    let again = facts(&house.prompt(&one, "facts").await);
    assert_eq!((&first["pid"], &first["session"]), (&again["pid"], &again["session"]));
    assert_eq!(first["pid"], second["pid"]);
    assert_ne!(first["session"], second["session"]);
    assert_eq!(again["blocks"], json!(["facts"]), "a session that goes on is told only what is new");
    let child = house.prompt(&one, "child").await["result"].as_str().unwrap().to_owned();
    let alive = |pid: &str| std::path::Path::new("/proc").join(pid).join("cwd").read_link().is_ok();
    let pid = first["pid"].to_string();
    assert!(alive(&pid) && alive(&child));
    house.close().await;
    assert!(!alive(&pid) && !alive(&child), "nothing outlives the server");
}
