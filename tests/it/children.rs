//! Sessions under others: what a model starts, what comes of it, and who may do what to it. A whole server, its doors
//! and a model that goes by what it is told.

use std::sync::Arc;

use serde_json::{Value, json};
use simse::app::Extras;
use simse::config::Storage;
use simse::server::ListenOptions;
use tokio::sync::Semaphore;

use crate::support::house::{Ask, Director, Does, House};
use crate::support::http::{Frame, request};

/// What the model does: the words of the prompts are its script.
///
/// `spawn X` starts a sub-agent with the task `X` and says what it answered; `back X` does so in the background and is done;
/// `many N` starts so many at once; everything else is a task.
fn directs(ask: &Ask) -> Vec<Does> {
    let (word, rest) = ask.said.split_once(' ').unwrap_or((&ask.said, ""));
    match (word, ask.results.last()) {
        ("spawn" | "back" | "writer" | "many" | "kill" | "waits", Some(_))
            if word == "kill" && ask.results.len() == 1 =>
        {
            vec![Does::Calls("kill_agent", json!({ "id": "helper" }))]
        }
        ("waits", Some(_)) if ask.results.len() == 1 => {
            vec![Does::Calls("wait_agents", json!({ "ids": ["helper"], "mode": "all", "timeout": 60 }))]
        }
        (_, Some(result)) => vec![Does::Says(leak(format!("heard: {result}")))],
        ("spawn", None) => vec![Does::Calls("spawn_agent", json!({ "task": rest, "name": "helper" }))],
        ("writer", None) => {
            vec![Does::Calls(
                "spawn_agent",
                json!({ "task": rest, "name": "helper", "tools": ["fs_write", "fs_read"] }),
            )]
        }
        ("tree", None) => {
            let spawn = json!({ "task": rest, "name": "helper", "tools": ["fs_write"], "isolation": "worktree" });
            vec![Does::Calls("spawn_agent", spawn)]
        }
        ("back" | "kill" | "waits", None) => {
            vec![Does::Calls("spawn_agent", json!({ "task": rest, "name": "helper", "background": true }))]
        }
        ("many", None) => {
            let count: usize = rest.parse().expect("a number");
            (0..count).map(|n| Does::Calls("spawn_agent", json!({ "task": format!("answer {n}") }))).collect()
        }
        ("answer", None) => vec![Does::Says(leak(format!("answer {rest}")))],
        ("hang", None) => vec![Does::Waits, Does::Says("woken")],
        ("fail", None) => vec![Does::Fails("the provider said no")],
        ("write", None) => vec![Does::Calls("fs_write", json!({ "path": rest, "content": "by a child" }))],
        _ => vec![Does::Says("noted")],
    }
}

fn leak(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

pub(crate) async fn house(change: impl FnOnce(&mut simse::config::Settings)) -> (House, Arc<Semaphore>) {
    let (model, gate) = Director::held(directs);
    let extras = Extras { models: vec![model], ..Extras::default() };
    let house = House::fitted(ListenOptions::default(), change, extras).await;
    (house, gate)
}

pub(crate) async fn root(house: &House) -> String {
    house.session(json!({ "model": "test/director" })).await
}

async fn get(house: &House, path: &str) -> Value {
    let reply = house.call("GET", path, None).await;
    assert_eq!(reply.status, 200, "{path}: {reply:?}");
    reply.json()
}

/// The events of those types in a session's log.
async fn told(house: &House, session: &str, kind: &str) -> Vec<Value> {
    let page = get(house, &format!("/sessions/{session}/history?events=true&limit=1000")).await;
    let items = page["items"].as_array().unwrap().clone();
    items.into_iter().filter(|event| event["type"].as_str().unwrap().starts_with(kind)).collect()
}

#[tokio::test]
async fn a_sub_agent_answers_and_stands_in_the_tree() {
    let (house, _) = house(|_| {}).await;
    let session = root(&house).await;
    let turn = house.prompt(&session, "spawn answer 42").await;
    assert_eq!(turn["result"], "heard: answer 42", "{turn}");
    let children = get(&house, &format!("/sessions/{session}/children")).await;
    let child = &children["items"][0];
    assert_eq!((children["items"].as_array().unwrap().len(), &child["title"]), (1, &json!("helper")));
    assert_eq!(child["lineage"]["path"], json!([session]));
    assert_eq!((&child["lineage"]["turnId"], &child["lineage"]["name"]), (&turn["turnId"], &json!("helper")));
    let tools = child["tools"].as_array().unwrap();
    assert!(tools.contains(&json!("fs_read")), "{tools:?}");
    for not in ["fs_write", "bash", "git_commit", "spawn_agent"] {
        assert!(!tools.contains(&json!(not)), "{not}: a sub-agent only looks");
    }
    let child_id = child["sessionId"].as_str().unwrap();
    let events = told(&house, &session, "subagent.").await;
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["subagent.start", "subagent.complete"]);
    let (start, end) = (&events[0]["payload"], &events[1]["payload"]);
    assert_eq!((&start["sessionId"], &start["task"]), (&json!(child_id), &json!("answer 42")));
    assert_eq!(start["parentRunId"], format!("{session}:{}", turn["turnId"].as_str().unwrap()));
    assert_eq!(
        (&end["runId"], &end["status"], &end["result"]),
        (&start["runId"], &json!("completed"), &json!("answer 42"))
    );
    // The same as runs.
    let runs = get(&house, &format!("/runs?sessionId={session}")).await;
    let seen: Vec<Value> = runs["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| json!([run["depth"], run["agentKind"], run["status"], run["result"]]))
        .collect();
    assert_eq!(
        seen,
        [json!([1, "subagent", "completed", "answer 42"]), json!([0, "main", "completed", "heard: answer 42"])]
    );
    assert_eq!(runs["items"][0]["parentRunId"], runs["items"][1]["runId"]);
    let run = end["runId"].as_str().unwrap().replace(':', "%3A");
    assert_eq!(get(&house, &format!("/runs/{run}")).await["toolCalls"], 0);
    let main = runs["items"][1]["runId"].as_str().unwrap();
    assert_eq!(get(&house, &format!("/runs/{main}")).await["toolCalls"], 1);
    let context = get(&house, &format!("/runs/{main}/context")).await;
    assert_eq!(
        context["summary"]["messageCount"],
        3 + u64::from(context["summary"]["assistantMessages"] == 2),
        "{context}"
    );
    assert!(context["items"].is_null());
    let raw = get(&house, &format!("/runs/{main}/context?view=raw&limit=2")).await;
    assert_eq!(raw["items"].as_array().unwrap().len(), 2);
    let next = raw["nextCursor"].as_str().unwrap();
    let rest = get(&house, &format!("/runs/{main}/context?view=raw&cursor={next}")).await;
    assert!(rest["items"][0]["seq"].as_u64() > raw["items"][1]["seq"].as_u64(), "{rest}");
    // Another client sees none of it.
    let other = async |path: String| {
        request(house.address, "GET", &path).header("X-Client-ID", "other").send(house.address).await
    };
    assert_eq!(other(format!("/sessions/{session}/children")).await.status, 404);
    assert_eq!(other(format!("/runs?sessionId={session}")).await.status, 404);
    assert_eq!(other(format!("/runs/{run}")).await.status, 404);
    assert_eq!(other(format!("/runs/{run}/context")).await.status, 404);
    assert_eq!(other("/runs".to_owned()).await.json()["items"], json!([]));
    house.close().await;
}

#[tokio::test]
async fn runs_are_paged_over_sessions() {
    let (house, _) = house(|_| {}).await;
    let session = root(&house).await;
    house.prompt(&session, "many 3").await;
    house.prompt(&session, "answer 7").await;
    let empty = root(&house).await;
    for filter in [String::new(), format!("&sessionId={session}")] {
        let (mut seen, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = get(&house, &format!("/runs?limit=2{filter}{cursor}")).await;
            let items = page["items"].as_array().unwrap().clone();
            assert!(items.len() <= 2);
            seen.extend(items.iter().map(|run| run["runId"].as_str().unwrap().to_owned()));
            match page["nextCursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        let mut once = seen.clone();
        once.sort();
        once.dedup();
        assert_eq!((seen.len(), once.len()), (5, 5), "{filter}");
    }
    assert_eq!(get(&house, &format!("/runs?sessionId={empty}")).await["items"], json!([]));
    let strange = house.call("GET", "/runs?cursor=ses_none", None).await;
    assert_eq!((strange.status, &strange.json()["error"]["details"]["field"]), (400, &json!("cursor")));
    house.close().await;
}

#[tokio::test]
async fn a_hundred_sub_agents_make_a_right_tree() {
    let (house, _) = house(|_| {}).await;
    let session = root(&house).await;
    let turn = house.prompt(&session, "many 100").await;
    assert_eq!(turn["status"], "completed", "{turn}");
    let events = told(&house, &session, "subagent.").await;
    let count = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
    assert_eq!((count("subagent.start"), count("subagent.complete"), count("subagent.error")), (100, 100, 0));
    let runs = get(&house, &format!("/runs?sessionId={session}&limit=1000")).await;
    let children: Vec<&Value> = runs["items"].as_array().unwrap().iter().filter(|run| run["depth"] == 1).collect();
    let mut results: Vec<String> = children.iter().map(|run| run["result"].as_str().unwrap().to_owned()).collect();
    results.sort();
    let mut want: Vec<String> = (0..100).map(|n| format!("answer {n}")).collect();
    want.sort();
    assert_eq!(results, want);
    assert!(children.iter().all(|run| run["rootSessionId"] == json!(session) && run["status"] == "completed"));
    house.close().await;
}

#[tokio::test]
async fn a_failing_sub_agent_is_a_failed_result() {
    let (house, _) = house(|_| {}).await;
    let session = root(&house).await;
    let turn = house.prompt(&session, "spawn fail").await;
    let result = turn["result"].as_str().unwrap();
    assert!(result.contains("the sub-agent") && result.contains("the provider said no"), "{result}");
    let ends = told(&house, &session, "subagent.error").await;
    assert_eq!((ends.len(), &ends[0]["payload"]["status"]), (1, &json!("failed")));
    house.close().await;
}

/// The events of a stream up to one of that type that fits.
async fn until(stream: &mut crate::support::http::Stream, kind: &str, fits: impl Fn(&Value) -> bool) -> Frame {
    loop {
        let frame = stream.event().await;
        if frame.kind() == kind && fits(&frame.data["payload"]) {
            return frame;
        }
    }
}

#[tokio::test]
async fn an_abort_ends_what_was_started_and_releases_who_waits() {
    let (house, _) = house(|_| {}).await;
    for control in ["abort", "interrupt"] {
        let session = root(&house).await;
        let mut events = house.events(&session, "").await;
        house.call("POST", &format!("/sessions/{session}/prompt"), Some(json!({ "prompt": "spawn hang" }))).await;
        let start = until(&mut events, "subagent.start", |_| true).await;
        let child = start.data["payload"]["sessionId"].as_str().unwrap().to_owned();
        let reply =
            house.call("POST", &format!("/sessions/{session}/{control}"), Some(json!({ "reason": "enough" }))).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let end = until(&mut events, "subagent.error", |_| true).await;
        assert_eq!(end.data["payload"]["error"]["message"], "enough", "{control}");
        let turns = get(&house, &format!("/sessions/{child}/turns")).await;
        assert_eq!(json!([turns["items"][0]["status"], turns["items"][0]["reason"]]), json!(["aborted", "enough"]));
        // Nothing begins anew by it.
        let view = at_rest(&house, &session).await;
        assert_eq!(json!([view["status"], view["queued"]]), json!(["aborted", 0]), "{control}");
    }
    house.close().await;
}

#[tokio::test]
async fn what_nobody_waits_for_comes_by_itself_once() {
    let (house, gate) = house(|_| {}).await;
    let session = root(&house).await;
    let mut events = house.events(&session, "").await;
    let turn = house.prompt(&session, "back hang").await;
    assert!(turn["result"].as_str().unwrap().contains("\"status\":\"queued\""), "{turn}");
    gate.add_permits(1);
    let heard =
        until(&mut events, "session.prompt", |payload| payload["prompt"].as_str().unwrap().contains("woken")).await;
    let text = heard.data["payload"]["prompt"].as_str().unwrap();
    assert!(text.starts_with("[Sub-agent helper, ses_") && text.ends_with("is done]\nwoken"), "{text}");
    until(&mut events, "session.completed", |payload| payload["result"] == "noted").await;
    let prompts = told(&house, &session, "session.prompt").await;
    assert_eq!(prompts.len(), 2, "{prompts:?}");
    // Waited for, it comes to who waits, and not by itself too.
    house.call("POST", &format!("/sessions/{session}/prompt"), Some(json!({ "prompt": "waits hang" }))).await;
    until(&mut events, "tool.call.start", |payload| payload["name"] == "wait_agents").await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    gate.add_permits(1);
    let done = until(&mut events, "session.completed", |_| true).await;
    let result = done.data["payload"]["result"].as_str().unwrap();
    assert!(result.contains("\"result\": \"woken\""), "{result}");
    // Ended by who started it, it is known already.
    let turn = house.prompt(&session, "kill hang").await;
    assert!(turn["result"].as_str().unwrap().contains("\"status\":\"aborted\""), "{turn}");
    let prompts = told(&house, &session, "session.prompt").await;
    assert_eq!(prompts.len(), 4, "{prompts:?}");
    house.close().await;
}

/// Waits until nothing runs or waits in a session, and answers with it.
async fn at_rest(house: &House, session: &str) -> Value {
    for _ in 0..1_000 {
        let view = get(house, &format!("/sessions/{session}")).await;
        if view["status"] != "active" {
            return view;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("{session} does not come to rest");
}

/// Waits until a sub-agent of a session runs.
async fn running(house: &House, session: &str) {
    for _ in 0..1_000 {
        let runs = get(house, &format!("/runs?sessionId={session}")).await;
        if runs["items"].as_array().unwrap().iter().any(|run| run["depth"] == 1 && run["status"] == "running") {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("no sub-agent of {session} runs");
}

#[tokio::test]
async fn limits_and_depth_are_typed_errors_and_more_wait() {
    let (house, gate) = house(|settings| {
        settings.limits.subagents_running_max = 1;
        settings.limits.subagents_max = 2;
    })
    .await;
    let session = root(&house).await;
    for _ in 0..2 {
        house.prompt(&session, "back hang").await;
        running(&house, &session).await;
    }
    let events = told(&house, &session, "subagent.").await;
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["subagent.start", "subagent.start", "subagent.queued"]);
    let turn = house.prompt(&session, "back hang").await;
    assert!(turn["result"].as_str().unwrap().contains("2 sub-agents are under way or wait already"), "{turn}");
    let mut stream = house.events(&session, "").await;
    gate.add_permits(2);
    for _ in 0..2 {
        until(&mut stream, "subagent.complete", |_| true).await;
    }
    house.close().await;
    let (none, _) = self::house(|settings| settings.limits.subagent_depth = 0).await;
    let session = root(&none).await;
    let turn = none.prompt(&session, "spawn answer 1").await;
    assert!(turn["result"].as_str().unwrap().contains("starts no others: the limit is 0"), "{turn}");
    none.close().await;
}

#[tokio::test]
async fn a_child_asks_the_clients_of_the_root() {
    let (house, _) = house(|settings| settings.limits.client_grace_ms = 60_000).await;
    let session = root(&house).await;
    let mut events = house.events(&session, "").await;
    for (allowed, said) in [("allow", "heard: heard: Wrote"), ("deny", "Permission denied for tool")] {
        house
            .call("POST", &format!("/sessions/{session}/prompt"), Some(json!({ "prompt": "writer write x.txt" })))
            .await;
        let asked = until(&mut events, "subagent.request", |_| true).await;
        let payload = &asked.data["payload"];
        assert_eq!(payload["request"]["type"], "permission.request", "{payload}");
        let inner = &payload["request"]["payload"];
        assert_eq!((&inner["toolName"], &inner["args"]["path"]), (&json!("fs_write"), &json!("x.txt")));
        let view = get(&house, &format!("/sessions/{session}")).await;
        assert_eq!(view["requests"], json!([payload["request"]]));
        // Who comes now sees it too, in the picture that the stream goes on from.
        let picture = get(&house, &format!("/sessions/{session}?snapshot=true")).await;
        assert_eq!(picture["requests"], view["requests"]);
        let answer = json!({ "requestId": inner["requestId"], "decision": allowed });
        let reply = house.call("POST", &format!("/sessions/{session}/feedback"), Some(answer.clone())).await;
        assert_eq!((reply.status, &reply.json()["allowed"]), (200, &json!(allowed == "allow")), "{reply:?}");
        let end = until(&mut events, "subagent.response", |_| true).await;
        assert_eq!(end.data["payload"]["response"]["payload"]["allowed"], allowed == "allow");
        let done = until(&mut events, "session.completed", |_| true).await;
        let result = done.data["payload"]["result"].as_str().unwrap();
        assert!(result.contains(said), "{result}");
        assert_eq!(get(&house, &format!("/sessions/{session}")).await["requests"], Value::Null);
        // Who comes second is told so, here as there.
        let second = house.call("POST", &format!("/sessions/{session}/feedback"), Some(answer)).await;
        assert_eq!((second.status, second.code().as_str()), (409, "CONFLICT"), "{second:?}");
        let strange = json!({ "requestId": "req_strange", "decision": "allow" });
        let strange = house.call("POST", &format!("/sessions/{session}/feedback"), Some(strange)).await;
        assert_eq!(strange.status, 404, "{strange:?}");
    }
    assert_eq!(std::fs::read_to_string(house.work.path().join("x.txt")).unwrap(), "by a child");
    house.close().await;
}

#[tokio::test]
async fn a_child_may_do_at_most_what_its_parent_may() {
    let (house, _) = house(|_| {}).await;
    std::fs::create_dir(house.work.path().join("sub")).unwrap();
    let body = json!({ "model": "test/director", "permissionMode": "plan", "tools": ["*", "-fs_glob"], "workingDirectory": "sub" });
    let parent = house.session(body).await;
    let wide = json!({ "parent": parent, "permissionMode": "auto" });
    let child = house.session(wide.clone()).await;
    let view = get(&house, &format!("/sessions/{child}")).await;
    assert_eq!((&view["lineage"]["path"], &view["model"]), (&json!([parent]), &json!("test/director")));
    assert!(view["workingDirectory"].as_str().unwrap().ends_with("/sub"));
    // Whatever a client makes of it later.
    request(house.address, "PATCH", &format!("/sessions/{child}"))
        .json(&json!({ "permissionMode": "auto", "tools": ["*"] }))
        .send(house.address)
        .await;
    let turn = house.prompt(&child, "write x.txt").await;
    assert!(turn["result"].as_str().unwrap().contains("plan mode"), "{turn}");
    let refused = house
        .call("POST", "/sessions", Some(json!({ "parent": parent, "workingDirectory": ".." , "sessionId": "up" })))
        .await;
    assert_eq!(refused.status, 400, "{refused:?}");
    for (body, status, field) in [
        (json!({ "parent": parent, "workingDirectory": house.work.path() }), 400, "workingDirectory"),
        (json!({ "parent": "ses_none" }), 404, "parent"),
    ] {
        let refused = house.call("POST", "/sessions", Some(body)).await;
        assert_eq!(
            (refused.status, &refused.json()["error"]["details"]["field"]),
            (status, &json!(field)),
            "{refused:?}"
        );
    }
    // It goes with its parent, and so does what is under it.
    let grandchild = house.session(json!({ "parent": child })).await;
    assert_eq!(house.call("DELETE", &format!("/sessions/{parent}"), None).await.status, 200);
    for gone in [&parent, &child, &grandchild] {
        assert_eq!(house.call("GET", &format!("/sessions/{gone}"), None).await.status, 404, "{gone}");
    }
    house.close().await;
}

#[tokio::test]
async fn a_run_is_cancelled_with_all_under_it() {
    let (house, _) = house(|_| {}).await;
    let session = root(&house).await;
    let turn = house.prompt(&session, "back hang").await;
    let main = format!("{session}:{}", turn["turnId"].as_str().unwrap());
    let child = told(&house, &session, "subagent.start").await[0]["payload"]["runId"].clone();
    let reply = house.call("POST", &format!("/runs/{main}/cancel"), Some(json!({ "reason": "no more" }))).await;
    assert_eq!((reply.status, reply.json()), (200, json!({ "cancelledRunIds": [child] })), "{reply:?}");
    let again = house.call("POST", &format!("/runs/{main}/cancel"), None).await;
    let mut tries = 0;
    let mut reply = again;
    while reply.status == 200 && tries < 500 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        reply = house.call("POST", &format!("/runs/{main}/cancel"), None).await;
        tries += 1;
    }
    assert_eq!((reply.status, &reply.json()["error"]["details"]["why"]), (409, &json!("run_over")), "{reply:?}");
    let unknown = house.call("POST", "/runs/ses_none:turn_none/cancel", None).await;
    assert_eq!(unknown.status, 404);
    assert_eq!(house.call("GET", "/runs/none", None).await.status, 400);
    house.close().await;
}

#[tokio::test]
async fn a_restart_settles_what_was_under_way() {
    let data = tempfile::tempdir().unwrap();
    let storage = Storage::Directory(data.path().join("d"));
    let kept = storage.clone();
    let (first, _) = house(move |settings| settings.storage = kept).await;
    let session = root(&first).await;
    first.prompt(&session, "back hang").await;
    running(&first, &session).await;
    let work = first.work.path().canonicalize().unwrap();
    let House { app, server, work: _keep, .. } = first;
    app.shutdown(std::time::Duration::ZERO).await.unwrap();
    server.stop(std::time::Duration::from_secs(5)).await;
    drop(app);
    let (second, _) = house(move |settings| {
        settings.storage = storage;
        settings.allowed_roots = vec![work.clone()];
        settings.working_directory = work;
    })
    .await;
    let mut events = second.events(&session, "").await;
    until(&mut events, "subagent.error", |payload| payload["status"] != "completed").await;
    let heard =
        until(&mut events, "session.prompt", |payload| payload["prompt"].as_str().unwrap().contains("[Sub-agent"))
            .await;
    assert!(heard.data["payload"]["prompt"].as_str().unwrap().starts_with("[Sub-agent helper, "));
    until(&mut events, "session.completed", |payload| payload["result"] == "noted").await;
    let prompts = told(&second, &session, "session.prompt").await;
    assert_eq!(prompts.len(), 2, "told once: {prompts:?}");
    second.close().await;
}

#[tokio::test]
async fn a_writer_works_in_a_tree_of_its_own_and_puts_back_what_it_did() {
    let data = tempfile::tempdir().unwrap();
    let storage = Storage::Directory(data.path().join("data"));
    let (house, _) = house(|settings| settings.storage = storage).await;
    let git = |arguments: &[&str]| {
        let output = std::process::Command::new("git").current_dir(house.work.path()).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    git(&["init", "-q", "-b", "main"]);
    let who = ["-c", "user.name=T", "-c", "user.email=t@example.org", "commit", "-q", "--allow-empty", "-m", "first"];
    git(&who);
    let session = house.session(json!({ "model": "test/director", "permissionMode": "auto" })).await;
    let turn = house.prompt(&session, "tree write x.txt").await;
    let result = turn["result"].as_str().unwrap();
    assert!(result.contains("Its changes are in your working tree now: x.txt."), "{result}");
    assert_eq!(std::fs::read_to_string(house.work.path().join("x.txt")).unwrap(), "by a child");
    assert_eq!((git(&["worktree", "list"]).lines().count(), git(&["branch", "--list", "simse/*"]).as_str()), (1, ""));
    let end = &told(&house, &session, "subagent.complete").await[0]["payload"];
    assert_eq!(end["merge"], json!({ "outcome": "merged", "paths": ["x.txt"] }));
    let child = end["sessionId"].as_str().unwrap();
    let view = get(&house, &format!("/sessions/{child}")).await;
    assert!(view["workingDirectory"].as_str().unwrap().contains("/.simse/worktrees/"), "{view}");
    let undone = house.call("POST", &format!("/sessions/{session}/undo"), Some(json!({}))).await;
    assert_eq!(undone.json()["files"][0]["path"], "x.txt", "{undone:?}");
    assert!(!house.work.path().join("x.txt").exists());
    house.close().await;
}

#[tokio::test]
async fn what_sub_agents_do_is_shown_and_undone_with_the_turn_that_gave_the_work() {
    let data = tempfile::tempdir().unwrap();
    let storage = Storage::Directory(data.path().join("data"));
    let (house, _) = house(|settings| settings.storage = storage).await;
    let session = house.session(json!({ "model": "test/director", "permissionMode": "auto" })).await;
    let file = house.work.path().join("x.txt");
    std::fs::write(&file, "before").unwrap();
    let turn = house.prompt(&session, "writer write x.txt").await;
    assert_eq!(turn["status"], "completed", "{turn}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "by a child");
    let changes = &told(&house, &session, "turn.changes").await[0]["payload"];
    assert_eq!(changes["files"][0]["path"], "x.txt", "{changes}");
    let diff = get(&house, &format!("/sessions/{session}/diff")).await;
    assert!(diff["files"][0]["diff"].as_str().unwrap().contains("+by a child"), "{diff}");
    let undone = house.call("POST", &format!("/sessions/{session}/undo"), Some(json!({}))).await;
    assert_eq!(undone.json()["files"][0]["path"], "x.txt", "{undone:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "before");
    house.call("POST", &format!("/sessions/{session}/redo"), Some(json!({}))).await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "by a child");
    // Its own session knows of it too; where it is undone, nothing of it is left to be undone above.
    let child = told(&house, &session, "subagent.start").await[0]["payload"]["sessionId"].as_str().unwrap().to_owned();
    let undone = house.call("POST", &format!("/sessions/{child}/undo"), Some(json!({}))).await;
    assert_eq!(undone.status, 200, "{undone:?}");
    let again = house.call("POST", &format!("/sessions/{session}/undo"), Some(json!({}))).await;
    assert_eq!((again.status, std::fs::read_to_string(&file).unwrap().as_str()), (200, "before"), "{again:?}");
    house.close().await;
}
