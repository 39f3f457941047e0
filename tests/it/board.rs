//! What the sessions of a tree share: who reaches it, in which order it changes, and that it outlives what it may.

use std::sync::Arc;

use serde_json::{Value, json};
use simse::app::Extras;
use simse::config::Storage;
use simse::server::ListenOptions;

use crate::support::house::{Ask, Director, Does, House};
use crate::support::http::{Reply, request};
use crate::support::model_server::{Answer, ModelServer};
use crate::support::program::Program;

/// What the model does: the words of the prompts are its script. `set K V` and `get K` use the board; `sub …` has a sub-agent do
/// the rest, which may write; `look …` one that only looks.
fn directs(ask: &Ask) -> Vec<Does> {
    let (word, rest) = ask.said.split_once(' ').unwrap_or((&ask.said, ""));
    match (word, ask.results.last()) {
        (_, Some(result)) => vec![Does::Says(Box::leak(format!("heard: {result}").into_boxed_str()))],
        ("sub", None) => vec![Does::Calls("spawn_agent", json!({ "task": rest, "name": "helper", "tools": ["*"] }))],
        ("look", None) => vec![Does::Calls("spawn_agent", json!({ "task": rest }))],
        ("set", None) => {
            let (key, value) = rest.split_once(' ').unwrap();
            vec![Does::Calls("blackboard_write", json!({ "key": key, "value": value }))]
        }
        ("new", None) => vec![Does::Calls("blackboard_write", json!({ "key": rest, "value": "n", "if_version": 0 }))],
        ("del", None) => vec![Does::Calls("blackboard_write", json!({ "key": rest, "delete": true }))],
        ("get", None) => vec![Does::Calls("blackboard_read", json!({ "key": rest }))],
        ("notify", None) => vec![Does::Calls("notify_parent", json!({ "message": rest }))],
        ("back", None) => {
            let spawn = json!({ "task": rest, "name": "helper", "tools": ["*"], "background": true });
            vec![Does::Calls("spawn_agent", spawn)]
        }
        ("task", None) => {
            let (tool, arguments) = rest.split_once(' ').unwrap();
            let tool = ["create", "update", "get", "list", "delete"].into_iter().find(|name| *name == tool).unwrap();
            let tool: &'static str = Box::leak(format!("task_{tool}").into_boxed_str());
            vec![Does::Calls(tool, serde_json::from_str(arguments).unwrap())]
        }
        ("keys", None) => vec![Does::Calls("blackboard_read", json!({}))],
        _ => vec![Does::Says("noted")],
    }
}

async fn house(change: impl FnOnce(&mut simse::config::Settings)) -> House {
    let (model, _) = Director::held(directs);
    let extras = Extras { models: vec![model], ..Extras::default() };
    House::fitted(ListenOptions::default(), change, extras).await
}

async fn root(house: &House) -> String {
    house.session(json!({ "model": "test/director" })).await
}

async fn put(house: &House, session: &str, key: &str, body: Value) -> Reply {
    house.call("PUT", &format!("/sessions/{session}/blackboard/{key}"), Some(body)).await
}

async fn board(house: &House, session: &str) -> Vec<Value> {
    let reply = house.call("GET", &format!("/sessions/{session}/blackboard"), None).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()["items"].as_array().unwrap().clone()
}

async fn told(house: &House, session: &str) -> Vec<Value> {
    let types = "blackboard.set,blackboard.delete";
    let path = format!("/sessions/{session}/history?events=true&types={types}&limit=1000");
    house.call("GET", &path, None).await.json()["items"].as_array().unwrap().clone()
}

async fn child(house: &House, session: &str) -> String {
    let children = house.call("GET", &format!("/sessions/{session}/children"), None).await.json();
    children["items"][0]["sessionId"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn what_a_sub_agent_puts_there_the_whole_tree_reads() {
    let house = house(|_| {}).await;
    let session = root(&house).await;
    let turn = house.prompt(&session, "sub set findings/api {\"n\": 1}").await;
    assert_eq!(turn["status"], "completed", "{turn}");
    let below = child(&house, &session).await;
    let seen = board(&house, &session).await;
    assert_eq!((seen.len(), &seen[0]["key"], &seen[0]["value"]), (1, &json!("findings/api"), &json!({ "n": 1 })));
    assert_eq!(seen[0]["by"], json!({ "sessionId": below, "name": "helper" }));
    // By whichever session of the tree it is asked for.
    assert_eq!(board(&house, &below).await, seen);
    // The log of the session above all says it once, as part of the turn; the version is the number of that event.
    let events = told(&house, &session).await;
    assert_eq!((events.len(), &events[0]["payload"]), (1, &seen[0]));
    assert_eq!((&events[0]["seq"], &events[0]["turnId"]), (&seen[0]["version"], &turn["turnId"]));
    assert_eq!(told(&house, &below).await, Vec::<Value>::new());
    // The model above reads it, and so does one that only looks.
    for prompt in ["get findings/api", "look get findings/api"] {
        let turn = house.prompt(&session, prompt).await;
        assert!(turn["result"].as_str().unwrap().contains(r#""value":{"n":1}"#), "{turn}");
    }
    let refused = house.prompt(&session, "look set k v").await;
    assert!(refused["result"].as_str().unwrap().contains("Tool not found"), "one that only looks: {refused}");
    let missing = house.prompt(&session, "get strange").await;
    assert!(missing["result"].as_str().unwrap().contains("what is: findings/api"), "{missing}");
    // Another tree has its own, and another client has none of it.
    let other = root(&house).await;
    assert_eq!(board(&house, &other).await, Vec::<Value>::new());
    for (method, path) in
        [("GET", "/blackboard"), ("GET", "/blackboard/k"), ("DELETE", "/blackboard"), ("PUT", "/blackboard/k")]
    {
        let call = request(house.address, method, &format!("/sessions/{session}{path}")).header("X-Client-ID", "other");
        let call = if method == "PUT" { call.json(&json!({ "value": 1 })) } else { call };
        assert_eq!(call.send(house.address).await.status, 404, "{method} {path}");
    }
    house.close().await;
}

#[tokio::test]
async fn of_two_that_have_read_the_same_one_is_told_to_read_again() {
    let house = house(|_| {}).await;
    let session = root(&house).await;
    let first = put(&house, &session, "plan", json!({ "value": [1], "ifVersion": 0 })).await;
    let version = first.json()["version"].as_u64().unwrap();
    assert_eq!((first.status, first.header("etag")), (200, Some(format!("\"{version}\"").as_str())), "{first:?}");
    assert!(first.json()["by"].is_null());
    let taken = put(&house, &session, "plan", json!({ "value": [2], "ifVersion": 0 })).await;
    assert_eq!((taken.status, taken.code().as_str()), (409, "CONFLICT"), "{taken:?}");
    let details = json!({ "field": "ifVersion", "expected": version, "got": 0 });
    assert_eq!(taken.json()["error"]["details"], details);
    let turn = house.prompt(&session, "new plan").await;
    assert!(turn["result"].as_str().unwrap().contains("read it again"), "{turn}");
    // By the head of the request too.
    let path = format!("/sessions/{session}/blackboard/plan");
    let with = |method: &str, version: u64| {
        request(house.address, method, &path)
            .header("If-Match", &format!("\"{version}\""))
            .json(&json!({ "value": null }))
    };
    assert_eq!(with("PUT", version + 1).send(house.address).await.status, 409);
    let second = with("PUT", version).send(house.address).await;
    assert_eq!((second.status, &second.json()["value"]), (200, &Value::Null));
    assert!(second.json()["version"].as_u64().unwrap() > version);
    assert_eq!(with("DELETE", version).send(house.address).await.status, 409);
    let both = request(house.address, "PUT", &path).header("If-Match", "\"1\"");
    let both = both.json(&json!({ "value": 1, "ifVersion": 2 })).send(house.address).await;
    assert_eq!((both.status, &both.json()["error"]["details"]["field"]), (409, &json!("ifVersion")));
    assert_eq!(house.call("DELETE", &path, None).await.json(), json!({ "deleted": true }));
    for method in ["GET", "DELETE"] {
        assert_eq!(house.call(method, &path, None).await.status, 404);
    }
    // What came after a deletion is never the version from before it.
    let third = put(&house, &session, "plan", json!({ "value": 3, "ifVersion": 0 })).await;
    assert!(third.json()["version"].as_u64() > second.json()["version"].as_u64(), "{third:?}");
    house.close().await;
}

#[tokio::test]
async fn what_is_too_much_or_no_key_is_refused_and_changes_nothing() {
    let house = house(|_| {}).await;
    let session = root(&house).await;
    let long = "x".repeat((64 << 10) - 2);
    let more = put(&house, &session, "long", json!({ "value": format!("{long}x") })).await;
    assert_eq!((more.status, &more.json()["error"]["details"]["field"]), (400, &json!("value")), "{more:?}");
    assert_eq!(put(&house, &session, "long", json!({ "value": long })).await.status, 200);
    for n in 1..256 {
        assert_eq!(put(&house, &session, &format!("k{n}"), json!({ "value": n })).await.status, 200);
    }
    let full = put(&house, &session, "one-more", json!({ "value": 0 })).await;
    assert_eq!((full.status, full.code().as_str()), (429, "RESOURCE_EXHAUSTED"), "{full:?}");
    for (key, body, field) in [
        ("%2Fk", json!({ "value": 1 }), "key"),
        ("k%20k", json!({ "value": 1 }), "key"),
        ("k1", json!({}), "value"),
        ("k1", json!({ "value": 1, "strange": 1 }), "strange"),
        ("k1", json!({ "value": 1, "ifVersion": -1 }), "ifVersion"),
    ] {
        let refused = put(&house, &session, key, body.clone()).await;
        let field_told = refused.json()["error"]["details"]["field"].clone();
        assert_eq!((refused.status, field_told), (400, json!(field)), "{key} {body}: {refused:?}");
    }
    // In pages, and by what keys begin with.
    let (mut keys, mut cursor) = (Vec::new(), String::new());
    loop {
        let path = format!("/sessions/{session}/blackboard?limit=100&prefix=k{cursor}");
        let page = house.call("GET", &path, None).await.json();
        keys.extend(page["items"].as_array().unwrap().iter().map(|entry| entry["key"].as_str().unwrap().to_owned()));
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let mut sorted = keys.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!((keys.len(), &keys), (255, &sorted));
    let cleared = house.call("DELETE", &format!("/sessions/{session}/blackboard"), None).await;
    assert_eq!((cleared.status, cleared.json()), (200, json!({ "deleted": true })));
    assert_eq!(board(&house, &session).await, Vec::<Value>::new());
    let gone = told(&house, &session).await.iter().filter(|event| event["type"] == "blackboard.delete").count();
    assert_eq!(gone, 256, "who follows the log sees each of them go");
    house.close().await;
}

#[tokio::test]
async fn many_that_write_at_once_lose_nothing() {
    let house = Arc::new(house(|_| {}).await);
    let session = root(&house).await;
    assert_eq!(put(&house, &session, "count", json!({ "value": 0 })).await.status, 200);
    let adding = (0..8).map(|_| {
        let (house, session) = (Arc::clone(&house), session.clone());
        tokio::spawn(async move {
            for _ in 0..10 {
                loop {
                    let path = format!("/sessions/{session}/blackboard/count");
                    let now = house.call("GET", &path, None).await.json();
                    let value = now["value"].as_u64().unwrap() + 1;
                    let put =
                        put(&house, &session, "count", json!({ "value": value, "ifVersion": now["version"] })).await;
                    match put.status {
                        200 => break,
                        409 => {}
                        other => panic!("{other}: {put:?}"),
                    }
                }
            }
        })
    });
    for task in adding.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    assert_eq!(board(&house, &session).await[0]["value"], 80);
    Arc::into_inner(house).unwrap().close().await;
}

#[tokio::test]
async fn a_fork_has_what_was_there_at_its_event_and_goes_its_own_way() {
    let house = house(|_| {}).await;
    let session = root(&house).await;
    let first = put(&house, &session, "a", json!({ "value": 1 })).await.json();
    put(&house, &session, "b", json!({ "value": 1 })).await;
    house.call("DELETE", &format!("/sessions/{session}/blackboard/b"), None).await;
    put(&house, &session, "a", json!({ "value": 2 })).await;
    let fork = async |body: Value| {
        let made = house.call("POST", &format!("/sessions/{session}/fork"), Some(body)).await;
        assert_eq!(made.status, 201, "{made:?}");
        made.json()["sessionId"].as_str().unwrap().to_owned()
    };
    let values = async |session: &str| {
        let entries = board(&house, session).await;
        entries.iter().map(|entry| json!([entry["key"], entry["value"]])).collect::<Vec<_>>()
    };
    let end = fork(json!({})).await;
    assert_eq!(values(&end).await, [json!(["a", 2])]);
    let version = first["version"].as_u64().unwrap();
    let begin = fork(json!({ "at": version })).await;
    assert_eq!(values(&begin).await, [json!(["a", 1])]);
    let middle = fork(json!({ "at": version + 1 })).await;
    assert_eq!(values(&middle).await, [json!(["a", 1]), json!(["b", 1])]);
    put(&house, &end, "a", json!({ "value": 3 })).await;
    assert_eq!((values(&end).await, values(&session).await), (vec![json!(["a", 3])], vec![json!(["a", 2])]));
    house.close().await;
}

#[tokio::test]
async fn who_reads_the_events_sees_each_change() {
    let house = house(|_| {}).await;
    let session = root(&house).await;
    let mut events = house.events(&session, "?types=blackboard.set,blackboard.delete").await;
    assert_eq!(events.event().await.kind(), "ready");
    put(&house, &session, "k", json!({ "value": 1 })).await;
    house.prompt(&session, "sub set k two").await;
    house.prompt(&session, "del k").await;
    let seen: Vec<Value> = vec![events.event().await.data, events.event().await.data, events.event().await.data];
    let kinds: Vec<&str> = seen.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["blackboard.set", "blackboard.set", "blackboard.delete"]);
    assert_eq!((&seen[0]["payload"]["value"], &seen[1]["payload"]["value"]), (&json!(1), &json!("two")));
    assert_eq!((&seen[0]["turnId"], &seen[2]["payload"]["key"]), (&Value::Null, &json!("k")));
    assert_eq!(seen[2]["payload"]["by"]["sessionId"], json!(session));
    house.close().await;
}

#[tokio::test]
async fn in_plan_mode_it_is_read_and_not_written() {
    let house = house(|_| {}).await;
    let session = house.session(json!({ "model": "test/director", "permissionMode": "plan" })).await;
    put(&house, &session, "k", json!({ "value": "v" })).await;
    let read = house.prompt(&session, "get k").await;
    assert!(read["result"].as_str().unwrap().contains(r#""value":"v""#), "{read}");
    let refused = house.prompt(&session, "set k w").await;
    assert!(refused["result"].as_str().unwrap().contains("plan mode"), "{refused}");
    assert_eq!(board(&house, &session).await[0]["value"], "v");
    house.close().await;
}

#[tokio::test]
async fn a_server_that_was_killed_has_all_that_was_answered() {
    let home = tempfile::tempdir().unwrap();
    let (data, work) = (home.path().join("data"), home.path().join("work"));
    std::fs::create_dir(&work).unwrap();
    let model = ModelServer::start(Arc::new(|_| Answer::text(&["done"]))).await;
    let mut values: Vec<(String, Value, u64)> = Vec::new();
    for round in 0..3_u64 {
        let program = Program::serve(&data, &work, &model.base_url()).await;
        if round == 0 {
            let (status, made) = program.call("POST", "/sessions", Some(json!({ "sessionId": "s" }))).await;
            assert_eq!(status, 201, "{made}");
        }
        let (_, page) = program.call("GET", "/sessions/s/blackboard", None).await;
        let items = page["items"].as_array().unwrap().iter();
        let seen: Vec<(String, Value, u64)> = items
            .map(|entry| {
                let key = entry["key"].as_str().unwrap().to_owned();
                (key, entry["value"].clone(), entry["version"].as_u64().unwrap())
            })
            .collect();
        assert_eq!(seen, values, "round {round}");
        for n in 0..5_u64 {
            let body = json!({ "value": { "round": round, "n": n } });
            let (status, entry) = program.call("PUT", &format!("/sessions/s/blackboard/k{n}"), Some(body)).await;
            assert_eq!(status, 200, "{entry}");
            values.retain(|(key, ..)| *key != format!("k{n}"));
            values.push((format!("k{n}"), entry["value"].clone(), entry["version"].as_u64().unwrap()));
        }
        let (status, _) = program.call("DELETE", &format!("/sessions/s/blackboard/k{round}"), None).await;
        assert_eq!(status, 200);
        values.retain(|(key, ..)| *key != format!("k{round}"));
        values.sort_by(|one, other| one.0.cmp(&other.0));
        program.kill().await;
    }
}

#[tokio::test]
async fn tasks_are_one_list_for_the_whole_tree() {
    let data = tempfile::tempdir().unwrap();
    let storage = Storage::Directory(data.path().join("d"));
    let kept = storage.clone();
    let first = house(move |settings| settings.storage = kept).await;
    let session = root(&first).await;
    let says = async |house: &House, prompt: &str| {
        let turn = house.prompt(&session, prompt).await;
        turn["result"].as_str().unwrap_or_else(|| panic!("{turn}")).replacen("heard: ", "", 1)
    };
    let made = says(&first, r#"task create {"subject": "build", "description": "all of it"}"#).await;
    assert_eq!(made, "Created #1 [pending] build\n\nall of it");
    let below = says(&first, r#"sub task create {"subject": "test", "blockedBy": ["1"]}"#).await;
    assert_eq!(below, "heard: Created #2 [pending] test\nWaits for: #1");
    // Who begins one below is its owner, and no other begins it then.
    let begun = says(&first, r#"sub task update {"id": "1", "status": "in_progress"}"#).await;
    assert!(begun.starts_with("heard: Updated #1 [in_progress] build\nOwner: helper\nComes before: #2"), "{begun}");
    let taken = says(&first, r#"task update {"id": "1", "status": "in_progress", "owner": "me"}"#).await;
    assert!(taken.contains("task 1 is in progress already, by helper: take another one"), "{taken}");
    for (prompt, why) in [
        (r#"task get {"id": "9"}"#, "no task \"9\""),
        (r#"task delete {"id": "9"}"#, "no task \"9\""),
        (r#"task update {"id": "1", "addBlockedBy": ["2"]}"#, "task 1 waits for 2 waits for 1"),
        (r#"task update {"id": "1", "status": "done"}"#, "status"),
        ("task create {}", "subject"),
    ] {
        let refused = says(&first, prompt).await;
        assert!(refused.contains(why), "{prompt}: {refused}");
    }
    let seen = async |house: &House, path: &str| {
        let page = house.call("GET", &format!("/sessions/{session}/{path}"), None).await.json();
        page["items"].as_array().unwrap().clone()
    };
    let tasks = seen(&first, "tasks").await;
    let told: Vec<Value> = tasks
        .iter()
        .map(|task| json!([task["id"], task["status"], task["owner"], task["blockedBy"], task["blocks"]]))
        .collect();
    let want = [json!(["1", "in_progress", "helper", [], ["2"]]), json!(["2", "pending", null, ["1"], []])];
    assert_eq!(told, want);
    let below = child(&first, &session).await;
    assert_eq!(first.call("GET", &format!("/sessions/{below}/tasks"), None).await.json()["items"], json!(tasks));
    let page = first.call("GET", &format!("/sessions/{session}/tasks?limit=1"), None).await.json();
    assert_eq!((&page["items"][0]["id"], &page["nextCursor"]), (&json!("1"), &json!("1")));
    let types = "history?events=true&types=task.create,task.update,task.delete";
    let events = seen(&first, types).await;
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["task.create", "task.create", "task.update"]);
    assert_eq!(events[1]["payload"]["by"]["name"], "helper");
    // A restart, a fork at an event in between, and an id that is given once.
    let work = first.work.path().canonicalize().unwrap();
    let House { app, server, work: _keep, .. } = first;
    app.shutdown(std::time::Duration::ZERO).await.unwrap();
    server.stop(std::time::Duration::from_secs(5)).await;
    drop(app);
    let second = house(move |settings| {
        settings.storage = storage;
        settings.allowed_roots = vec![work.clone()];
        settings.working_directory = work;
    })
    .await;
    assert_eq!(seen(&second, "tasks").await, tasks);
    assert_eq!(says(&second, r#"task delete {"id": "2"}"#).await, "Deleted #2");
    assert_eq!(says(&second, r#"task create {"subject": "more"}"#).await, "Created #3 [pending] more");
    assert_eq!(says(&second, "task list {}").await, "#1 [in_progress] build (helper)\n#3 [pending] more");
    let fork = second.call("POST", &format!("/sessions/{session}/fork"), Some(json!({ "at": events[1]["seq"] }))).await;
    let fork = fork.json()["sessionId"].as_str().unwrap().to_owned();
    let there = second.call("GET", &format!("/sessions/{fork}/tasks"), None).await.json();
    let there: Vec<Value> =
        there["items"].as_array().unwrap().iter().map(|task| json!([task["id"], task["status"]])).collect();
    assert_eq!(there, [json!(["1", "pending"]), json!(["2", "pending"])]);
    second.close().await;
}

#[tokio::test]
async fn a_word_to_the_parent_reaches_it_and_nobody_else() {
    let house = house(|_| {}).await;
    let (session, other) = (root(&house).await, root(&house).await);
    let refused = house.prompt(&session, "notify nobody").await;
    assert!(refused["result"].as_str().unwrap().contains("there is no parent to be notified"), "{refused}");
    let before = house.call("GET", &format!("/sessions/{other}"), None).await.json()["lastSeq"].clone();
    // In the background, to a parent that is at rest or not: it hears both, the word and the answer.
    let mut events = house.events(&session, "?types=session.steer,session.prompt").await;
    assert_eq!(events.event().await.kind(), "ready");
    house.prompt(&session, "back notify found it").await;
    let below = child(&house, &session).await;
    let (mut word, mut answer) = (0, 0);
    while word == 0 || answer == 0 {
        let said = events.event().await.data["payload"]["prompt"].as_str().unwrap().to_owned();
        word += usize::from(said == format!("[Sub-agent helper, {below}]: found it"));
        answer += usize::from(said.contains("Your parent was told."));
    }
    assert_eq!((word, answer), (1, 1));
    let after = house.call("GET", &format!("/sessions/{other}"), None).await.json()["lastSeq"].clone();
    assert_eq!(before, after);
    house.close().await;
}

#[tokio::test]
async fn it_goes_with_its_session_and_survives_the_end_of_a_sub_agent() {
    let data = tempfile::tempdir().unwrap();
    let storage = Storage::Directory(data.path().join("d"));
    let house = house(move |settings| settings.storage = storage).await;
    let session = root(&house).await;
    house.prompt(&session, "sub set k v").await;
    let below = child(&house, &session).await;
    assert_eq!(house.call("DELETE", &format!("/sessions/{below}"), None).await.status, 200);
    assert_eq!(board(&house, &session).await.len(), 1);
    assert_eq!(house.call("DELETE", &format!("/sessions/{session}"), None).await.status, 200);
    let gone = house.call("GET", &format!("/sessions/{session}/blackboard"), None).await;
    assert_eq!(gone.status, 404, "{gone:?}");
    house.close().await;
}

/// A client's write, with a key.
async fn write(house: &House, (method, path): (&str, &str), key: &str, body: Option<Value>) -> Reply {
    let asked = request(house.address, method, path).header("Idempotency-Key", key);
    let asked = if let Some(body) = body { asked.json(&body) } else { asked };
    asked.send(house.address).await
}

#[tokio::test]
async fn clients_change_tasks_and_entries_once_for_each_key_over_a_restart_too() {
    let data = tempfile::tempdir().unwrap();
    let storage = Storage::Directory(data.path().join("d"));
    let kept = storage.clone();
    let first = house(move |settings| settings.storage = kept).await;
    let session = root(&first).await;
    first.prompt(&session, "sub get k").await;
    // By the id of a sub-agent, it is its tree's all the same.
    let below = child(&first, &session).await;
    let (tasks, entry) = (format!("/sessions/{below}/tasks"), format!("/sessions/{below}/blackboard/k"));
    let create = json!({ "subject": "build", "description": "all of it", "owner": "helper" });
    let writes = [
        ("POST", tasks.clone(), "t1", Some(create.clone()), 201),
        ("POST", tasks.clone(), "t2", Some(json!({ "subject": "test", "blockedBy": ["1"] })), 201),
        ("PATCH", format!("{tasks}/1"), "t3", Some(json!({ "status": "in_progress" })), 200),
        ("DELETE", format!("{tasks}/2"), "t4", None, 200),
        ("PUT", entry.clone(), "b1", Some(json!({ "value": { "a": 1 } })), 200),
        ("PUT", format!("/sessions/{below}/blackboard/gone"), "b2", Some(json!({ "value": 2 })), 200),
        ("DELETE", format!("/sessions/{below}/blackboard/gone"), "b3", None, 200),
    ];
    let events = async |house: &House| {
        let types = "task.create,task.update,task.delete,blackboard.set,blackboard.delete";
        let path = format!("/sessions/{session}/history?events=true&types={types}&limit=1000");
        house.call("GET", &path, None).await.json()["items"].as_array().unwrap().clone()
    };
    let mut answers = Vec::new();
    for (method, path, key, body, status) in &writes {
        let reply = write(&first, (method, path), key, body.clone()).await;
        assert_eq!(reply.status, *status, "{method} {path}: {reply:?}");
        assert_eq!(reply.header("idempotency-replayed"), None);
        answers.push(reply.json());
    }
    assert_eq!(answers[2]["status"], "in_progress");
    let told = events(&first).await;
    assert_eq!(told.len(), writes.len(), "{told:?}");
    assert!(told.iter().all(|event| event["payload"].get("by").is_none()), "a client has: {told:?}");
    let etag = put(&first, &session, "etag", json!({ "value": 1 })).await;
    assert_eq!(etag.header("etag"), Some(format!("\"{}\"", etag.json()["version"]).as_str()), "{etag:?}");
    // The same key is the same answer, and something else under it is refused.
    let again = async |house: &House, count: usize| {
        for ((method, path, key, body, status), answer) in writes.iter().zip(&answers) {
            let reply = write(house, (method, path), key, body.clone()).await;
            assert_eq!((reply.status, reply.header("idempotency-replayed")), (*status, Some("true")), "{path}");
            assert_eq!(reply.json(), *answer, "{path}");
        }
        let other = write(house, ("POST", &tasks), "t1", Some(json!({ "subject": "other" }))).await;
        assert_eq!((other.status, other.code().as_str()), (409, "CONFLICT"), "{other:?}");
        assert_eq!(events(house).await.len(), count, "nothing was done twice");
    };
    again(&first, writes.len() + 1).await;
    for (method, path, body, status, names) in [
        ("POST", tasks.clone(), json!({}), 400, "subject"),
        ("POST", tasks.clone(), json!({ "subject": "a", "status": "done" }), 400, "status"),
        ("PATCH", format!("{tasks}/1"), json!({ "title": "a" }), 400, "title"),
        ("PATCH", format!("{tasks}/1"), json!({ "taskId": "2", "owner": "x" }), 400, "taskId"),
        ("PATCH", format!("{tasks}/1"), json!({}), 400, "body"),
        ("PATCH", format!("{tasks}/9"), json!({ "owner": "x" }), 404, "TASK_NOT_FOUND"),
        ("DELETE", format!("{tasks}/9"), json!({}), 404, "TASK_NOT_FOUND"),
        ("PATCH", format!("{tasks}/1"), json!({ "status": "in_progress", "owner": "me" }), 409, "by helper"),
        ("PATCH", format!("{tasks}/1"), json!({ "addBlockedBy": ["1"] }), 409, "waits for"),
        ("PUT", entry.clone(), json!({ "values": 1 }), 400, "value"),
        ("PUT", entry.clone(), json!({ "value": 1, "ifVersion": 0 }), 409, "version"),
    ] {
        let reply = first.call(method, &path, Some(body)).await;
        let text = String::from_utf8_lossy(&reply.body).into_owned();
        assert!(reply.status == status && text.contains(names), "{method} {path}: {text}");
    }
    let work = first.work.path().canonicalize().unwrap();
    let House { app, server, work: _keep, .. } = first;
    app.shutdown(std::time::Duration::ZERO).await.unwrap();
    server.stop(std::time::Duration::from_secs(5)).await;
    drop(app);
    let second = house(move |settings| {
        settings.storage = storage;
        settings.allowed_roots = vec![work.clone()];
        settings.working_directory = work;
    })
    .await;
    again(&second, writes.len() + 1).await;
    let there = second.call("GET", &tasks, None).await.json();
    assert_eq!((there["items"].as_array().unwrap().len(), &there["items"][0]["owner"]), (1, &json!("helper")));
    second.close().await;
}
