//! Agents that work side by side: who writes where, and how they talk.

use std::sync::Arc;

use serde_json::{Value, json};
use simse::app::Extras;
use simse::server::ListenOptions;
use tokio::sync::Semaphore;

use crate::support::house::{Ask, Director, Does, House};
use crate::support::http::Stream;

/// What the model does: the words of the prompts are its script. `sub …` has a sub-agent do the rest, `back NAME …` one in the
/// background; `hold PATH` writes and then waits at the gate, `lock PATH` holds it and then waits there.
fn directs(ask: &Ask) -> Vec<Does> {
    let (word, rest) = ask.said.split_once(' ').unwrap_or((&ask.said, ""));
    let spawn = |rest: &str, how: &str, background: bool| {
        let (name, task) = rest.split_once(' ').unwrap();
        let mut spawn = json!({ "task": task, "name": name, "background": background, "coordination": how });
        if how == "hierarchical" {
            spawn["tools"] = json!(["*"]);
        }
        vec![Does::Calls("spawn_agent", spawn)]
    };
    match (word, ask.results.last()) {
        ("hold" | "lock" | "runs", Some(_)) => vec![Does::Waits, Does::Says("let go")],
        (_, Some(result)) => vec![Does::Says(Box::leak(format!("heard: {result}").into_boxed_str()))],
        ("sub", None) => spawn(rest, "hierarchical", false),
        ("back", None) => spawn(rest, "hierarchical", true),
        ("board", None) => spawn(rest, "blackboard", false),
        ("peer", None) => spawn(rest, "peer", true),
        ("hang", None) => vec![Does::Waits, Does::Says("woken")],
        ("write" | "hold", None) => vec![Does::Calls("fs_write", json!({ "path": rest, "content": "x" }))],
        ("sh" | "runs", None) => vec![Does::Calls("bash", json!({ "command": rest }))],
        ("again", None) => vec![Does::Calls("fs_write", json!({ "path": rest, "content": "y" }))],
        ("lock" | "trylock", None) => vec![Does::Calls("lock_paths", json!({ "paths": [rest] }))],
        ("unlock", None) => vec![Does::Calls("unlock_paths", json!({}))],
        ("tell", None) => {
            let (to, message) = rest.split_once(' ').unwrap();
            vec![Does::Calls("send_to_peer", json!({ "to": to, "message": message }))]
        }
        ("put", None) => vec![Does::Calls("blackboard_write", json!({ "key": "k", "value": rest }))],
        _ => vec![Does::Says("noted")],
    }
}

async fn house() -> (House, Arc<Semaphore>) {
    let (model, gate) = Director::held(directs);
    let extras = Extras { models: vec![model], ..Extras::default() };
    (House::fitted(ListenOptions::default(), |_| {}, extras).await, gate)
}

async fn root(house: &House) -> String {
    house.session(json!({ "model": "test/director", "permissionMode": "accept-edits" })).await
}

async fn says(house: &House, session: &str, prompt: &str) -> String {
    let turn = house.prompt(session, prompt).await;
    turn["result"].as_str().unwrap_or_else(|| panic!("{prompt}: {turn}")).to_owned()
}

async fn get(house: &House, path: &str) -> Value {
    let reply = house.call("GET", path, None).await;
    assert_eq!(reply.status, 200, "{path}: {reply:?}");
    reply.json()
}

/// A session's events of some types, from behind its first frame on.
async fn stream(house: &House, session: &str, types: &str) -> Stream {
    let mut events = house.events(session, &format!("?types={types}")).await;
    assert_eq!(events.event().await.kind(), "ready");
    events
}

/// The sub-agent of that name.
async fn named(house: &House, session: &str, name: &str) -> String {
    let children = get(house, &format!("/sessions/{session}/children")).await;
    let all = children["items"].as_array().unwrap().clone();
    let found = all.iter().find(|child| child["title"] == name);
    found.unwrap_or_else(|| panic!("{name}: {children}"))["sessionId"].as_str().unwrap().to_owned()
}

/// Starts one in the background, and waits until it has made its call.
async fn starts(house: &House, session: &str, (name, prompt): (&str, &str)) -> String {
    says(house, session, prompt).await;
    let child = named(house, session, name).await;
    let mut events = stream(house, &child, "tool.call.end").await;
    events.event().await;
    child
}

/// Waits until a sub-agent is done and its parent has heard of it.
async fn ends(house: &House, session: &str, child: &str) {
    let mut events = stream(house, session, "subagent.complete,subagent.error").await;
    while events.event().await.data["payload"]["sessionId"] != child {}
}

#[tokio::test]
async fn what_one_writes_another_does_not_write_over_meanwhile() {
    let (house, gate) = house().await;
    let (session, alone) = (root(&house).await, root(&house).await);
    let holder = starts(&house, &session, ("one", "back one hold a.txt")).await;
    // Neither one beside it nor the one above it.
    for prompt in ["sub two again a.txt", "again a.txt"] {
        let refused = says(&house, &session, prompt).await;
        assert!(
            refused.contains("is being written by another agent of this work, one, which holds it for"),
            "{refused}"
        );
    }
    let content = std::fs::read_to_string(house.work.path().join("a.txt")).unwrap();
    assert_eq!(content, "x", "nothing was written over it");
    // Other paths are free, and a session that stands alone is not asked.
    for (session, prompt) in [(&session, "sub three write b.txt"), (&alone, "write a.txt")] {
        let done = says(&house, session, prompt).await;
        assert!(!done.contains("another agent"), "{done}");
    }
    // With the end of its turn it lets go.
    gate.add_permits(1);
    ends(&house, &session, &holder).await;
    let done = says(&house, &session, "sub four again a.txt").await;
    assert!(!done.contains("another agent"), "{done}");
    house.close().await;
}

#[tokio::test]
async fn what_a_command_says_that_it_writes_is_held_too() {
    let (model, gate) = Director::held(directs);
    let extras = Extras { models: vec![model], ..Extras::default() };
    let allow = |settings: &mut simse::config::Settings| {
        settings.permissions.default_policy = simse::protocol::PermissionPolicy::Allow;
        settings.permissions.rules.clear();
    };
    let house = House::fitted(ListenOptions::default(), allow, extras).await;
    let session = root(&house).await;
    std::fs::create_dir(house.work.path().join("sub")).unwrap();
    let holder = starts(&house, &session, ("one", "back one hold sub/a.txt")).await;
    for command in [
        "echo z > sub/a.txt",
        "cd sub && echo z | tee -a a.txt",
        "rm -r sub",
        "touch b.txt; mv b.txt sub/a.txt",
        "sed -i s/x/z/ sub/a.txt",
        "cp /etc/hostname sub/a.txt",
    ] {
        let refused = says(&house, &session, &format!("sub two sh {command}")).await;
        assert!(refused.contains("another agent of this work, one, which holds it for"), "{command}: {refused}");
    }
    assert_eq!(std::fs::read_to_string(house.work.path().join("sub/a.txt")).unwrap(), "x", "nothing ran");
    assert!(!house.work.path().join("b.txt").exists(), "all of a line or nothing of it");
    for command in ["cat sub/a.txt", "echo z > sub/b.txt", "cp sub/a.txt sub/c.txt"] {
        let done = says(&house, &session, &format!("sub three sh {command}")).await;
        assert!(!done.contains("another agent"), "{command}: {done}");
    }
    gate.add_permits(1);
    ends(&house, &session, &holder).await;
    // And what a command writes others do not write over meanwhile.
    let holder = starts(&house, &session, ("four", "back four runs echo y > sub/a.txt")).await;
    let refused = says(&house, &session, "sub five again sub/a.txt").await;
    assert!(refused.contains("another agent of this work, four"), "{refused}");
    gate.add_permits(1);
    ends(&house, &session, &holder).await;
    assert_eq!(std::fs::read_to_string(house.work.path().join("sub/a.txt")).unwrap(), "y\n");
    house.close().await;
}

#[tokio::test]
async fn what_is_held_on_purpose_binds_all_others_until_it_is_given_up() {
    let (house, gate) = house().await;
    let session = root(&house).await;
    std::fs::create_dir(house.work.path().join("src")).unwrap();
    let holder = starts(&house, &session, ("one", "back one lock src")).await;
    let refused = says(&house, &session, "sub two write src/x.rs").await;
    assert!(refused.contains("another agent of this work, one"), "{refused}");
    let denied = says(&house, &session, "sub three trylock src").await;
    assert!(denied.contains(r#""acquired":[]"#) && denied.contains(r#""by":"one""#), "{denied}");
    let shown = get(&house, "/health?verbose").await;
    let held = shown["limits"].as_array().unwrap().iter().find(|limit| limit["name"] == "lockedPathsOfATree").unwrap();
    assert_eq!(held["used"], 1, "{held}");
    // Who is ended by somebody lets go, too.
    let aborted = house.call("POST", &format!("/sessions/{holder}/abort"), Some(json!({}))).await;
    assert_eq!(aborted.status, 200, "{aborted:?}");
    ends(&house, &session, &holder).await;
    let got = says(&house, &session, "sub four trylock src").await;
    assert!(got.contains(r#""acquired":["src"]"#), "{got}");
    assert!(says(&house, &session, "unlock").await.contains(r#"{"released":0}"#));
    gate.add_permits(1);
    house.close().await;
}

#[tokio::test]
async fn sub_agents_work_together_as_they_were_started_to() {
    let (house, gate) = house().await;
    let session = root(&house).await;
    let done = says(&house, &session, "board one put found").await;
    assert!(done.contains("heard:") && !done.contains("rror"), "{done}");
    let child = named(&house, &session, "one").await;
    let view = get(&house, &format!("/sessions/{child}")).await;
    let tools = view["tools"].as_array().unwrap();
    for name in ["blackboard_write", "blackboard_read", "task_update", "notify_parent"] {
        assert!(tools.contains(&json!(name)), "{name}: {tools:?}");
    }
    for name in ["send_to_peer", "fs_write", "bash"] {
        assert!(!tools.contains(&json!(name)), "{name}: {tools:?}");
    }
    assert_eq!(view["lineage"]["coordination"], "blackboard");
    let runs = get(&house, &format!("/runs?sessionId={session}")).await;
    let seen: Vec<&Value> = runs["items"].as_array().unwrap().iter().map(|run| &run["coordination"]).collect();
    assert_eq!(seen, [&json!("blackboard"), &Value::Null]);
    // Peers talk to each other.
    says(&house, &session, "peer ann hang").await;
    let ann = named(&house, &session, "ann").await;
    let mut started = stream(&house, &ann, "stream.start").await;
    started.event().await;
    let mut heard = stream(&house, &session, "subagent.complete").await;
    let mut result = async |name: &str, prompt: &str| {
        says(&house, &session, &format!("peer {name} {prompt}")).await;
        let child = named(&house, &session, name).await;
        loop {
            let end = heard.event().await.data["payload"].clone();
            if end["sessionId"] == json!(child) {
                return end["result"].as_str().unwrap().to_owned();
            }
        }
    };
    assert_eq!(result("bob", "tell ann look at a.txt").await, "heard: ann was told.");
    let strange = result("cid", "tell dan hello").await;
    assert!(strange.contains("no peer `dan`; beside you there is: bob, ann"), "{strange}");
    let late = result("eve", "tell bob hello").await;
    assert!(late.contains("is not at work"), "{late}");
    gate.add_permits(1);
    let mut steers = stream(&house, &ann, "session.steer").await;
    let steer = steers.event().await.data["payload"]["prompt"].as_str().unwrap().to_owned();
    assert!(steer.starts_with("[Sub-agent bob, ") && steer.ends_with("]: look at a.txt"), "{steer}");
    // Who was started to answer alone has no such tool.
    let refused = says(&house, &session, "sub fay tell ann hello").await;
    assert!(refused.contains("send_to_peer"), "{refused}");
    gate.add_permits(8);
    house.close().await;
}

/// What the model does here: `ask NAME …` has an agent do the rest, `loop` looks around without an end, `read PATH` reads.
fn asks(ask: &Ask) -> Vec<Does> {
    let (word, rest) = ask.said.split_once(' ').unwrap_or((&ask.said, ""));
    match (word, ask.results.last()) {
        ("loop", _) => vec![Does::Calls("fs_list", json!({ "path": ".", "depth": ask.results.len() + 1 }))],
        (_, Some(result)) => vec![Does::Says(Box::leak(format!("heard: {result}").into_boxed_str()))],
        ("ask", None) => {
            let (name, task) = rest.split_once(' ').unwrap();
            vec![Does::Calls("spawn_agent", json!({ "task": task, "agent": name, "name": name }))]
        }
        ("read", None) => vec![Does::Calls("fs_read", json!({ "path": rest }))],
        _ => vec![Does::Says("noted")],
    }
}

#[tokio::test]
async fn a_sub_agent_works_as_its_own_agent_and_is_held_to_that_of_its_parent() {
    let (model, _) = Director::held(asks);
    let extras = Extras { models: vec![model], ..Extras::default() };
    let house = House::fitted(ListenOptions::default(), |_| {}, extras).await;
    let agents = house.work.path().join(".simse/agents");
    std::fs::create_dir_all(&agents).unwrap();
    let file = |name: &str, head: &str| {
        let text = format!("---\nname: {name}\ndescription: d\n{head}---\n\nYou are the {name}.\n");
        std::fs::write(agents.join(format!("{name}.md")), text).unwrap();
    };
    file("lead", "policy: [Delegate]\npermissions:\n  - { tool: fs_read, pattern: \"secret*\", policy: deny }\n");
    file("reader", "tools: [fs_read, fs_list]\nmax_iters: 2\n");
    for name in ["secret.txt", "open.txt"] {
        std::fs::write(house.work.path().join(name), "inside").unwrap();
    }
    let session = house.session(json!({ "model": "test/director", "agent": "lead" })).await;
    assert!(says(&house, &session, "ask reader read open.txt").await.contains("inside"));
    let refused = says(&house, &session, "ask reader read secret.txt").await;
    assert!(refused.contains("by the rules of the agent `lead`"), "{refused}");
    let child = named(&house, &session, "reader").await;
    assert_eq!(get(&house, &format!("/sessions/{child}")).await["agent"], "reader");
    // Its own file says how many rounds it has.
    house.prompt(&session, "ask reader loop").await;
    let runs = get(&house, &format!("/runs?sessionId={session}&limit=1")).await;
    assert_eq!((&runs["items"][0]["agent"], &runs["items"][0]["rounds"]), (&json!("reader"), &json!(2)), "{runs}");
    house.close().await;
}
