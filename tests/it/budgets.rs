//! Budgets of sessions, trees and clients: what is held to them, what is said of them, and that they outlive the server.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use simse::app::Extras;
use simse::config::{Settings, Storage};
use simse::protocol::{Budget, Cost};
use simse::server::ListenOptions;

use tokio::sync::Semaphore;

use crate::support::house::{Ask, Director, Does, House};
use crate::support::http::request;

/// What the model does: the words of the prompts are its script.
///
/// `take N` takes N tokens, and a cent for each; `round N` does so in every round, and calls a tool in each; `write A B C` writes
/// those files in one reply, and says what came of it; `spawn X` starts a sub-agent with the task X; `hang N` waits for the gate, and then takes N.
fn directs(ask: &Ask) -> Vec<Does> {
    let (word, rest) = ask.said.split_once(' ').unwrap_or((&ask.said, ""));
    let takes = || {
        let tokens: u32 = rest.parse().expect("a number");
        Does::Takes(tokens.into(), f64::from(tokens) / 100.0)
    };
    match (word, ask.results.len()) {
        ("take", _) => vec![takes(), Does::Says("taken")],
        ("round", so_far) => {
            let path = format!("round-{so_far}");
            vec![takes(), Does::Calls("fs_write", json!({ "path": path, "content": "x" }))]
        }
        ("write", 0) => {
            let write = |path| Does::Calls("fs_write", json!({ "path": path, "content": "x" }));
            rest.split(' ').map(write).collect()
        }
        ("hold", 0) => {
            vec![Does::Waits, takes(), Does::Calls("fs_write", json!({ "path": "held", "content": "x" }))]
        }
        ("spawn", 0) => vec![Does::Calls("spawn_agent", json!({ "task": rest, "name": "helper" }))],
        ("hang", _) => vec![Does::Waits, takes(), Does::Says("woken")],
        _ => vec![Does::Says("done")],
    }
}

async fn house(change: impl FnOnce(&mut Settings)) -> House {
    held(change).await.0
}

async fn held(change: impl FnOnce(&mut Settings)) -> (House, Arc<Semaphore>) {
    let (model, gate) = Director::held(directs);
    let extras = Extras { models: vec![model], ..Extras::default() };
    let all = |settings: &mut Settings| {
        settings.permission_mode = simse::protocol::PermissionMode::Auto;
        change(settings);
    };
    (House::fitted(ListenOptions::default(), all, extras).await, gate)
}

async fn session(house: &House, budget: Value) -> String {
    house.session(json!({ "model": "test/director", "budget": budget })).await
}

async fn get(house: &House, path: &str) -> Value {
    let reply = house.call("GET", path, None).await;
    assert_eq!(reply.status, 200, "{path}: {reply:?}");
    reply.json()
}

/// The events of budgets in a session's log: type, kind, and whose it is.
async fn told(house: &House, session: &str) -> Vec<Value> {
    let page = get(house, &format!("/sessions/{session}/history?events=true&limit=1000")).await;
    let items = page["items"].as_array().unwrap().iter();
    let budgets = items.filter(|event| event["type"].as_str().unwrap().starts_with("budget."));
    budgets.map(|event| json!([event["type"], event["payload"]["kind"], event["payload"]["scope"]])).collect()
}

/// Why a prompt is refused: status, code, what is spent, and whose it is.
async fn refused(house: &House, session: &str) -> Value {
    let prompt = json!({ "prompt": "take 1" });
    let reply = house.call("POST", &format!("/sessions/{session}/prompt"), Some(prompt)).await;
    let error = reply.json()["error"].clone();
    assert_eq!(error["details"]["why"], "budget", "{reply:?}");
    let budget = &error["details"]["budget"];
    json!([reply.status, error["code"], budget["kind"], budget["scope"], budget["sessionId"]])
}

fn ended(turn: &Value) -> Value {
    json!([turn["status"], turn["stopReason"], turn["error"]["code"]])
}

#[tokio::test]
async fn tokens_are_warned_of_spent_and_raised_again() {
    let house = house(|_| {}).await;
    let id = session(&house, json!({ "tokens": 100 })).await;
    assert_eq!(get(&house, &format!("/sessions/{id}")).await["budget"], json!({ "tokens": 100 }));
    assert_eq!(house.prompt(&id, "take 60").await["result"], "taken");
    assert_eq!(told(&house, &id).await, Vec::<Value>::new());
    // A request that has begun ends.
    assert_eq!(house.prompt(&id, "take 60").await["result"], "taken");
    assert_eq!(told(&house, &id).await, [json!(["budget.warning", "tokens", "session"])]);
    assert_eq!(refused(&house, &id).await, json!([409, "CONFLICT", "tokens", "session", id]));
    let budgets = get(&house, &format!("/sessions/{id}/budget")).await["budgets"].clone();
    let spent = &budgets[0]["spent"];
    assert_eq!(json!([budgets.as_array().unwrap().len(), budgets[0]["limits"]]), json!([1, { "tokens": 100 }]));
    assert_eq!(json!([spent["tokens"], spent["costUsd"], spent["turns"]]), json!([120, 1.2, 2]));
    let changed = house.call("PATCH", &format!("/sessions/{id}"), Some(json!({ "budget": { "tokens": 200 } }))).await;
    assert_eq!(changed.json()["budget"], json!({ "tokens": 200 }), "{changed:?}");
    assert_eq!(house.prompt(&id, "take 1").await["result"], "taken");
    // No limit at all.
    let freed = house.call("PATCH", &format!("/sessions/{id}"), Some(json!({ "budget": {} }))).await;
    assert_eq!(freed.json()["budget"], Value::Null);
    assert_eq!(house.prompt(&id, "take 500").await["result"], "taken");
    house.close().await;
}

#[tokio::test]
async fn a_turn_ends_before_the_request_that_nothing_is_left_for() {
    let house = house(|_| {}).await;
    for budget in [json!({ "tokens": 100 }), json!({ "costUsd": 1.0 })] {
        let kind = budget.as_object().unwrap().keys().next().unwrap().clone();
        let id = session(&house, budget).await;
        let turn = house.prompt(&id, "round 60").await;
        assert_eq!(ended(&turn), json!(["failed", "budget", "RESOURCE_EXHAUSTED"]), "{turn}");
        assert_eq!(turn["rounds"], 2);
        assert_eq!(turn["error"]["details"]["budget"]["kind"], json!(kind));
        let want = [json!(["budget.warning", kind, "session"]), json!(["budget.exceeded", kind, "session"])];
        assert_eq!(told(&house, &id).await, want);
    }
    house.close().await;
}

#[tokio::test]
async fn calls_beyond_the_budget_do_not_run_and_their_turn_ends() {
    let house = house(|_| {}).await;
    let id = session(&house, json!({ "toolCalls": 2 })).await;
    let turn = house.prompt(&id, "write a b c d").await;
    assert_eq!(ended(&turn), json!(["failed", "budget", "RESOURCE_EXHAUSTED"]), "{turn}");
    let there = |name: &str| house.work.path().join(name).exists();
    assert_eq!(["a", "b", "c", "d"].map(there), [true, true, false, false]);
    // Every call has its answer: the conversation goes on when there is a budget for it.
    house.call("PATCH", &format!("/sessions/{id}"), Some(json!({ "budget": { "toolCalls": 3 } }))).await;
    let turn = house.prompt(&id, "write e").await;
    assert_eq!(
        json!([turn["status"], turn["stopReason"], there("e")]),
        json!(["completed", "end_turn", true]),
        "{turn}"
    );
    // All calls are gone, and what needs none goes on.
    assert_eq!(house.prompt(&id, "take 1").await["result"], "taken");
    house.close().await;
}

#[tokio::test]
async fn what_runs_when_the_time_is_over_is_cut_off() {
    let house = house(|_| {}).await;
    let id = session(&house, json!({ "timeMs": 200 })).await;
    let turn = house.prompt(&id, "hang 1").await;
    assert_eq!(ended(&turn), json!(["failed", "budget", "RESOURCE_EXHAUSTED"]), "{turn}");
    assert_eq!(turn["error"]["details"]["budget"]["kind"], "timeMs");
    assert_eq!(refused(&house, &id).await, json!([409, "CONFLICT", "timeMs", "session", id]));
    house.close().await;
}

/// A turn, once it is over.
async fn over(house: &House, session: &str, turn: &str) -> Value {
    loop {
        let record = get(house, &format!("/sessions/{session}/turns/{turn}")).await;
        if record["endedAt"].is_u64() {
            return record;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

async fn prompted(house: &House, session: &str, text: &str) -> String {
    let reply = house.call("POST", &format!("/sessions/{session}/prompt"), Some(json!({ "prompt": text }))).await;
    assert_eq!(reply.status, 202, "{reply:?}");
    reply.json()["turnId"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn what_waited_does_not_begin_when_nothing_is_left_for_it() {
    let (house, gate) = held(|_| {}).await;
    let id = session(&house, json!({ "tokens": 100 })).await;
    // While the first one hangs, nothing is spent: the second is taken, and waits.
    let first = prompted(&house, &id, "hang 120").await;
    let second = prompted(&house, &id, "write y").await;
    gate.add_permits(1);
    assert_eq!(over(&house, &id, &first).await["status"], "completed");
    let second = over(&house, &id, &second).await;
    assert_eq!(ended(&second), json!(["failed", "budget", "RESOURCE_EXHAUSTED"]), "{second}");
    assert_eq!(second["rounds"], 0);
    assert!(!house.work.path().join("y").exists());
    assert_eq!(refused(&house, &id).await, json!([409, "CONFLICT", "tokens", "session", id]));
    house.close().await;
}

/// Holds a turn before its call, when it has taken so many tokens.
async fn held_before_its_call(house: &House, gate: &Semaphore, session: &str, tokens: u32) -> String {
    let turn = prompted(house, session, &format!("hold {tokens}")).await;
    let path = format!("/sessions/{session}/pause");
    let history = format!("/sessions/{session}/history?events=true&limit=1000");
    while !get(house, &history).await.to_string().contains("stream.start") {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let (paused, ()) = tokio::join!(house.call("POST", &path, Some(json!({}))), async {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        gate.add_permits(1);
    });
    assert_eq!(paused.status, 200, "{paused:?}");
    turn
}

#[tokio::test]
async fn what_was_spent_before_a_pause_counts_once_over_a_restart_too() {
    let (data, work) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for restarts in [false, true] {
        let keep = |settings: &mut Settings| {
            settings.storage = Storage::Directory(data.path().to_owned());
            settings.working_directory = work.path().canonicalize().unwrap();
        };
        let (mut house, gate) = held(keep).await;
        let id = session(&house, json!({ "tokens": 1_000 })).await;
        let turn = held_before_its_call(&house, &gate, &id, 60).await;
        if restarts {
            house.close().await;
            house = self::house(keep).await;
        }
        let resumed = house.call("POST", &format!("/sessions/{id}/resume"), Some(json!({}))).await;
        assert_eq!(resumed.status, 200, "{resumed:?}");
        let record = over(&house, &id, &turn).await;
        let budgets = get(&house, &format!("/sessions/{id}/budget")).await["budgets"].clone();
        let spent = &budgets[0]["spent"];
        let counted = json!([record["status"], record["rounds"], spent["tokens"], spent["turns"], spent["toolCalls"]]);
        assert_eq!(counted, json!(["completed", 2, 60, 1, 1]), "{restarts}: {budgets} {record}");
        house.close().await;
    }
}

#[tokio::test]
async fn turns_are_counted_where_they_begin() {
    let house = house(|_| {}).await;
    let id = session(&house, json!({ "turns": 1 })).await;
    let turns = [prompted(&house, &id, "write x").await];
    assert_eq!(over(&house, &id, &turns[0]).await["status"], "completed");
    assert!(house.work.path().join("x").exists() && !house.work.path().join("y").exists());
    assert_eq!(refused(&house, &id).await, json!([409, "CONFLICT", "turns", "session", id]));
    house.close().await;
}

#[tokio::test]
async fn what_sub_agents_spend_is_their_trees() {
    let house = house(|_| {}).await;
    let root = session(&house, json!({ "tokens": 100 })).await;
    let turn = house.prompt(&root, "spawn take 120").await;
    assert_eq!(ended(&turn), json!(["failed", "budget", "RESOURCE_EXHAUSTED"]), "{turn}");
    let children = get(&house, &format!("/sessions/{root}/children")).await;
    let child = children["items"][0]["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(get(&house, &format!("/sessions/{child}/turns")).await["items"][0]["status"], "completed");
    // The child is held to it as well, and says whose it is.
    assert_eq!(refused(&house, &child).await, json!([409, "CONFLICT", "tokens", "session", root]));
    let budgets = get(&house, &format!("/sessions/{child}/budget")).await["budgets"].clone();
    let seen: Vec<Value> = budgets
        .as_array()
        .unwrap()
        .iter()
        .map(|budget| json!([budget["sessionId"], budget["spent"]["tokens"], budget["limits"]["tokens"]]))
        .collect();
    assert_eq!(seen, [json!([child, 120, null]), json!([root, 120, 100])]);
    // A child's own budget holds for it alone.
    house.call("PATCH", &format!("/sessions/{root}"), Some(json!({ "budget": {} }))).await;
    house.call("PATCH", &format!("/sessions/{child}"), Some(json!({ "budget": { "tokens": 121 } }))).await;
    assert_eq!(house.prompt(&child, "take 1").await["result"], "taken");
    assert_eq!(refused(&house, &child).await, json!([409, "CONFLICT", "tokens", "session", child]));
    assert_eq!(house.prompt(&root, "take 1").await["result"], "taken");
    house.close().await;
}

#[tokio::test]
async fn the_servers_budget_holds_for_every_tree_whatever_its_own_says() {
    let budget = Budget { tokens: Some(50), ..Budget::default() };
    let house = house(|settings| settings.limits.session_budget = budget).await;
    for own in [json!(null), json!({ "tokens": 9_000 }), json!({ "tokens": 40 })] {
        let id = house.session(json!({ "model": "test/director", "budget": own })).await;
        assert_eq!(house.prompt(&id, "take 45").await["result"], "taken");
        match own["tokens"] == 40 {
            true => assert_eq!(refused(&house, &id).await[2], "tokens"),
            false => {
                assert_eq!(house.prompt(&id, "take 5").await["result"], "taken");
                assert_eq!(refused(&house, &id).await[2], "tokens");
            }
        }
    }
    house.close().await;
}

/// Prompts as a client, and says with what status that ends.
async fn prompt_as(house: &House, client: &str, session: &str, text: &str) -> (u16, Value) {
    let path = format!("/sessions/{session}/prompt?wait=true");
    let request = request(house.address, "POST", &path).header("x-client-id", client).json(&json!({ "prompt": text }));
    let reply = request.send(house.address).await;
    (reply.status, reply.json())
}

async fn session_of(house: &House, client: &str) -> String {
    let request = request(house.address, "POST", "/sessions").header("x-client-id", client);
    let reply = request.json(&json!({ "model": "test/director" })).send(house.address).await;
    reply.json()["sessionId"].as_str().unwrap().to_owned()
}

fn kept_in(data: &Path, settings: &mut Settings) {
    settings.storage = Storage::Directory(data.to_owned());
    let (turns, cost) = (Some(9), Some(Cost::of_dollars(1.0)));
    settings.limits.client_budget = Budget { turns, cost, ..Budget::default() };
    settings.limits.budget_window_ms = simse::base::limit::SET_MS_MAX;
}

#[tokio::test]
async fn a_clients_budget_is_over_all_its_sessions_and_outlives_them_and_the_server() {
    let data = tempfile::tempdir().unwrap();
    let house = house(|settings| kept_in(data.path(), settings)).await;
    let (one, two, other) =
        (session_of(&house, "ann").await, session_of(&house, "ann").await, session_of(&house, "bob").await);
    assert_eq!(prompt_as(&house, "ann", &one, "take 60").await.0, 200);
    assert_eq!(prompt_as(&house, "ann", &two, "take 60").await.0, 200);
    let (status, error) = prompt_as(&house, "ann", &two, "take 1").await;
    let details = &error["error"]["details"];
    assert_eq!(
        json!([status, error["error"]["code"], details["budget"]["scope"], details["budget"]["kind"]]),
        json!([429, "RESOURCE_EXHAUSTED", "client", "costUsd"]),
        "{error}"
    );
    assert!(details["budget"]["resetsAt"].as_u64().unwrap() > 0);
    assert_eq!(prompt_as(&house, "bob", &other, "take 60").await.0, 200);
    // What was spent stays spent when its session is deleted.
    for gone in [&one, &two] {
        let request = request(house.address, "DELETE", &format!("/sessions/{gone}")).header("x-client-id", "ann");
        assert_eq!(request.send(house.address).await.status, 200);
    }
    house.close().await;
    let house = self::house(|settings| kept_in(data.path(), settings)).await;
    let fresh = session_of(&house, "ann").await;
    assert_eq!(prompt_as(&house, "ann", &fresh, "take 1").await.0, 429);
    assert_eq!(prompt_as(&house, "bob", &other, "take 1").await.0, 200);
    house.close().await;
}

#[tokio::test]
async fn what_a_tree_has_spent_outlives_the_server() {
    let data = tempfile::tempdir().unwrap();
    let keep = |settings: &mut Settings| settings.storage = Storage::Directory(data.path().to_owned());
    let house = house(keep).await;
    let root = session(&house, json!({ "tokens": 1_000, "toolCalls": 50, "turns": 5 })).await;
    house.prompt(&root, "spawn take 120").await;
    house.prompt(&root, "write a b").await;
    let before = get(&house, &format!("/sessions/{root}/budget")).await;
    let of = |budgets: &Value| {
        let spent = &budgets["budgets"][0]["spent"];
        json!([spent["tokens"], spent["costUsd"], spent["toolCalls"], spent["turns"]])
    };
    assert_eq!(of(&before), json!([120, 1.2, 3, 3]));
    house.close().await;
    let house = self::house(keep).await;
    let after = get(&house, &format!("/sessions/{root}/budget")).await;
    assert_eq!(of(&after), of(&before));
    assert!(after["budgets"][0]["spent"]["timeMs"].is_u64() || before["budgets"][0]["spent"]["timeMs"].is_null());
    house.close().await;
}

#[tokio::test]
async fn a_budget_that_is_none_is_refused_by_name() {
    let house = house(|_| {}).await;
    for (budget, field) in [
        (json!({ "tokens": 0 }), "budget.tokens"),
        (json!({ "costUsd": 0 }), "budget.costUsd"),
        (json!({ "timeMs": 0 }), "budget.timeMs"),
        (json!({ "turns": 0 }), "budget.turns"),
        (json!({ "toolCalls": 9_007_199_254_740_992_u64 }), "budget.toolCalls"),
    ] {
        let reply = house.call("POST", "/sessions", Some(json!({ "budget": budget }))).await;
        assert_eq!(json!([reply.status, reply.json()["error"]["details"]["field"]]), json!([400, field]), "{reply:?}");
        let id = house.session(json!({})).await;
        let reply = house.call("PATCH", &format!("/sessions/{id}"), Some(json!({ "budget": budget }))).await;
        assert_eq!(json!([reply.status, reply.json()["error"]["details"]["field"]]), json!([400, field]), "{reply:?}");
    }
    for unknown in [json!({ "token": 1 }), json!({ "tokens": -1 }), json!({ "tokens": "many" }), json!(5)] {
        let reply = house.call("POST", "/sessions", Some(json!({ "budget": unknown }))).await;
        assert_eq!(reply.status, 400, "{unknown}: {reply:?}");
    }
    house.close().await;
}
