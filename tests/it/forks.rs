//! Forks over HTTP: at any event, whatever it lies in the middle of; sound to the chain, whole when they travel, apart from their
//! parents; as commands over every door.

use std::path::Path;

use serde_json::{Value, json};
use simse::config::Storage;
use simse::protocol::PermissionPolicy;
use simse::server::ListenOptions;

use crate::support::house::{Does, House};
use crate::support::http::{Frame, request, within};

async fn open(policy: PermissionPolicy) -> (House, tempfile::TempDir) {
    let data = tempfile::tempdir().unwrap();
    let storage = Storage::Directory(data.path().join("data"));
    let house = House::with(ListenOptions::default(), |settings| {
        settings.storage = storage;
        settings.permissions.default_policy = policy;
    });
    (house.await, data)
}

fn write(path: &str, content: &str) -> Does {
    Does::Calls("fs_write", json!({ "path": path, "content": content }))
}

async fn view(house: &House, id: &str) -> Value {
    house.call("GET", &format!("/sessions/{id}"), None).await.json()
}

async fn history(house: &House, id: &str) -> Vec<Value> {
    let page = house.call("GET", &format!("/sessions/{id}/history?limit=1000"), None).await.json();
    page["items"].as_array().unwrap().clone()
}

async fn fork(house: &House, id: &str, body: Value) -> Value {
    let forked = house.call("POST", &format!("/sessions/{id}/fork"), Some(body.clone())).await;
    assert_eq!(forked.status, 201, "{body}: {forked:?}");
    forked.json()
}

async fn simse(arguments: &[&str], data: &Path) -> (i32, String, String) {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_simse"));
    command.args(arguments).arg("--data-dir").arg(data).env("HOME", data).env_remove("SIMSE_CONFIG");
    let output = within(command.kill_on_drop(true).output()).await.expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code().expect("no signal"), text(output.stdout), text(output.stderr))
}

/// A session whose log has turns beside and behind each other: one that asked, took a message while it ran and had two others
/// wait for it; one that failed; one that was aborted; one that was undone.
async fn eventful(house: &House) -> u64 {
    let id = house.session(json!({ "sessionId": "s", "title": "T" })).await;
    house.round(&[Does::Says("let me see"), write("a", "1"), write("b", "2")]);
    house.round(&[Does::Says("well"), Does::Waits, Does::Says(" done")]);
    let mut events = house.events(&id, "").await;
    for (text, mode) in [("go", "queue"), ("then", "queue"), ("and then", "queue"), ("more", "steer")] {
        let prompt = json!({ "prompt": text, "mode": mode });
        assert_eq!(house.call("POST", "/sessions/s/prompt", Some(prompt)).await.status, 202);
    }
    for _ in 0..2 {
        let asked = events.until("permission.request").await;
        let request = asked.last().unwrap().data["payload"]["requestId"].clone();
        let yes = json!({ "requestId": request, "decision": "allow" });
        assert_eq!(house.call("POST", "/sessions/s/feedback", Some(yes)).await.status, 200);
    }
    house.go_on();
    for _ in 0..3 {
        events.until("session.completed").await;
    }
    house.round(&[Does::Says("no"), Does::Fails("as it was told")]);
    assert_eq!(house.prompt(&id, "fail").await["status"], "failed");
    assert_eq!(house.call("POST", "/sessions/s/undo", None).await.status, 200);
    events.until("changes.undone").await;
    house.round(&[Does::Says("so far"), Does::Waits]);
    assert_eq!(house.call("POST", "/sessions/s/prompt", Some(json!({ "prompt": "wait" }))).await.status, 202);
    events.until("stream.delta").await;
    assert_eq!(house.call("POST", "/sessions/s/abort", None).await.status, 200);
    events.until("abort").await;
    assert_eq!(house.prompt(&id, "go on").await["status"], "completed");
    view(house, "s").await["lastSeq"].as_u64().unwrap()
}

fn count(frames: &[Frame], kind: &str) -> usize {
    frames.iter().filter(|frame| frame.kind() == kind).count()
}

/// Everything in the log of a fork is closed, and under its own id.
fn is_closed(at: u64, seen: &[Frame]) {
    assert_eq!(count(seen, "tool.call.start"), count(seen, "tool.call.end"), "{at}");
    assert_eq!(count(seen, "permission.request"), count(seen, "permission.response"), "{at}");
    let turns: std::collections::HashSet<String> =
        seen.iter().filter_map(|frame| frame.data["turnId"].as_str().map(str::to_owned)).collect();
    let ends = ["session.completed", "session.error", "abort"].map(|kind| count(seen, kind));
    assert_eq!(ends.iter().sum::<usize>(), turns.len(), "{at}: each turn ends once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_goes_on_from_any_event_and_is_sound() {
    let (house, home) = open(PermissionPolicy::Ask).await;
    let last = eventful(&house).await;
    let mut whole = house.events("s", "").await;
    whole.event().await;
    let mut parent = Vec::new();
    for _ in 0..last {
        parent.push(whole.event().await.data);
    }
    for at in 1..=last {
        let made = fork(&house, "s", json!({ "at": at, "newSessionId": format!("at-{at}") })).await;
        let id = made["sessionId"].as_str().unwrap().to_owned();
        let mut events = house.events(&id, "").await;
        let seen: Vec<Frame> =
            events.until("session.forked").await.into_iter().filter(|frame| frame.id.is_some()).collect();
        is_closed(at, &seen);
        let told = &seen.last().unwrap().data;
        let mut payload = told["payload"].clone();
        let begins = payload.as_object_mut().unwrap().remove("settings").unwrap();
        assert_eq!(
            (payload, &begins["title"]),
            (json!({ "sessionId": id, "parentSessionId": "s", "at": at, "tellsGrants": true }), &json!("T"))
        );
        assert_eq!((&made["lastSeq"], &made["version"]), (&told["seq"], &json!(0)), "{at}");
        assert_eq!(seen.len() as u64, told["seq"].as_u64().unwrap(), "{at}: numbers without gaps");
        for (own, theirs) in seen.iter().map(|frame| &frame.data).zip(&parent[..usize::try_from(at).unwrap()]) {
            assert_eq!(own["sessionId"], id.as_str());
            let mut same = theirs.clone();
            same["sessionId"] = id.clone().into();
            assert_eq!(*own, same, "{at}");
        }
        if at % 9 == 0 {
            assert_eq!(house.prompt(&id, "go on").await["status"], "completed", "{at}");
        }
    }
    assert_eq!(view(&house, "s").await["lastSeq"], last, "it stays as it was");
    // A fork of forks, and one whose parents are gone.
    fork(&house, "at-5", json!({ "newSessionId": "second" })).await;
    fork(&house, "second", json!({ "at": 3, "newSessionId": "third" })).await;
    let second = history(&house, "second").await;
    for gone in ["at-5", "at-6"] {
        assert_eq!(house.call("DELETE", &format!("/sessions/{gone}"), None).await.status, 200);
    }
    assert_eq!(history(&house, "second").await, second);
    house.close().await;

    // What is stored follows from the log, in each of them, and the chain of each is whole from event 1 on.
    let data = home.path().join("data");
    let (code, said, why) = simse(&["check"], &data).await;
    assert!(code == 0 && said.contains("nothing is wrong"), "{said} {why}");
    exports_are_whole(&data, home.path(), last).await;
}

/// A fork is exported with what it shares, and is a session of its own elsewhere.
async fn exports_are_whole(data: &Path, home: &Path, last: u64) {
    let place = home.join("place");
    for id in ["second", "third", "at-30", &format!("at-{last}")] {
        let (code, exported, why) = simse(&["export", id], data).await;
        assert_eq!(code, 0, "{id}: {why}");
        let file = home.join("fork.jsonl");
        std::fs::write(&file, &exported).unwrap();
        let (code, _, why) = simse(&["import", file.to_str().unwrap()], &place).await;
        assert_eq!(code, 0, "{id}: {why}");
        assert_eq!(simse(&["export", id], &place).await.1, exported, "{id}");
        let numbers = exported.lines().filter(|line| line.starts_with(r#"{"event":"#)).count();
        assert!(exported.contains(r#""type":"session.forked""#) && numbers > 3, "{id}");
    }
    let (code, said, why) = simse(&["check"], &place).await;
    assert!(code == 0 && said.contains("4 sessions"), "{said} {why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_fork_undoes_is_its_own() {
    let (house, home) = open(PermissionPolicy::Allow).await;
    let text = |name: &str| std::fs::read_to_string(house.work.path().join(name)).ok();
    let undo = async |id: &str, way: &str| house.call("POST", &format!("/sessions/{id}/{way}"), None).await;
    house.session(json!({ "sessionId": "s" })).await;
    for (path, content) in [("a", "1"), ("b", "1")] {
        house.round(&[write(path, content)]);
        house.prompt("s", "go").await;
    }
    let before = view(&house, "s").await["lastSeq"].as_u64().unwrap();
    assert_eq!(undo("s", "undo").await.status, 200);
    let changes = async || house.call("GET", "/sessions/s/diff", None).await.json();
    let told = changes().await;
    // Before the undo, behind it, and of a fork at an event that lies before its own beginning.
    fork(&house, "s", json!({ "newSessionId": "early", "at": before })).await;
    fork(&house, "s", json!({ "newSessionId": "late" })).await;
    fork(&house, "late", json!({ "newSessionId": "within", "at": 4 })).await;
    let first = async |id: &str| {
        let mut events = house.events(id, "").await;
        let seen = events.until("session.forked").await.into_iter().filter(|frame| frame.id.is_some());
        seen.map(|frame| frame.data["payload"].clone()).collect::<Vec<_>>()
    };
    let (late, within) = (first("late").await, first("within").await);
    assert_eq!(late[..4], within[..4]);
    assert_eq!(
        (&within.last().unwrap()["parentSessionId"], &within.last().unwrap()["at"]),
        (&json!("late"), &json!(4))
    );
    let undone = |payload: &Value| payload["turnIds"].is_array();
    assert_eq!((late.iter().any(undone), first("early").await.iter().any(undone)), (true, false));
    for id in ["early", "late", "within"] {
        assert_eq!(house.call("GET", &format!("/sessions/{id}/diff"), None).await.json()["turns"], json!([]), "{id}");
        for way in ["undo", "redo"] {
            assert_eq!(undo(id, way).await.code(), "CONFLICT", "{id}: {way}");
        }
        house.round(&[write(id, "own")]);
        assert_eq!(house.prompt(id, "go").await["status"], "completed");
        for (way, there) in [("undo", None), ("redo", Some("own"))] {
            assert_eq!(undo(id, way).await.status, 200, "{id}: {way}");
            assert_eq!(text(id).as_deref(), there, "{id}: {way}");
        }
        assert_eq!(changes().await, told, "{id}: the parent's record stays as it was");
    }
    assert_eq!((undo("s", "redo").await.status, text("b").as_deref()), (200, Some("1")));
    for _ in 0..2 {
        assert_eq!(undo("s", "undo").await.status, 200);
    }
    assert_eq!((text("a"), text("b"), text("late").as_deref()), (None, None, Some("own")));
    house.close().await;
    let (code, said, why) = simse(&["check"], &home.path().join("data")).await;
    assert!(code == 0 && said.contains("nothing is wrong"), "{said} {why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_is_a_session_of_its_own() {
    let (house, _data) = open(PermissionPolicy::Allow).await;
    house.session(json!({ "sessionId": "s", "title": "T" })).await;
    house.round(&[write("a", "1")]);
    let turn = house.prompt("s", "go").await["turnId"].clone();
    let made = fork(&house, "s", json!({ "newSessionId": "f", "title": "other" })).await;
    let parent = view(&house, "s").await;
    assert_eq!(
        (&made["title"], &made["messageCount"], &made["usage"]),
        (&json!("other"), &parent["messageCount"], &parent["usage"])
    );
    assert_eq!(history(&house, "f").await, history(&house, "s").await);
    let shared = house.call("GET", &format!("/sessions/f/turns/{}", turn.as_str().unwrap()), None).await.json();
    assert_eq!((&shared["sessionId"], &shared["status"]), (&json!("f"), &json!("completed")));
    let turns = house.call("GET", "/sessions/f/turns", None).await.json();
    assert_eq!(turns["items"], json!([shared]), "{turns}");
    // What its parent did to files is its parent's to undo; each stands against the other's undo where both wrote.
    assert_eq!(house.call("GET", "/sessions/f/diff", None).await.json()["turns"], json!([]));
    assert_eq!(house.call("POST", "/sessions/f/undo", None).await.code(), "CONFLICT");
    assert_eq!(house.call("POST", "/sessions/f/undo", Some(json!({ "turnId": turn }))).await.code(), "NOT_FOUND");
    house.round(&[write("a", "2")]);
    house.prompt("f", "go").await;
    let refused = house.call("POST", "/sessions/s/undo", None).await;
    assert_eq!((refused.status, &refused.json()["error"]["details"]["conflicts"][0]["path"]), (409, &json!("a")));
    assert_eq!(std::fs::read_to_string(house.work.path().join("a")).unwrap(), "2");
    assert_eq!(house.call("POST", "/sessions/f/undo", None).await.status, 200);
    assert_eq!(house.call("POST", "/sessions/s/undo", None).await.status, 200);
    assert!(!house.work.path().join("a").exists());
    let last = view(&house, "s").await["lastSeq"].as_u64().unwrap();
    #[rustfmt::skip]
    let table = [
        (json!({ "at": 0 }),                                       400, "at"),
        (json!({ "at": last + 1 }),                                400, "at"),
        (json!({ "at": "3" }),                                     400, "at"),
        (json!({ "newSessionId": "a/b" }),                         400, "newSessionId"),
        (json!({ "title": "a\u{7}" }),                            400, "title"),
        (json!({ "before": 3 }),                                   400, "before"),
        (json!({ "newSessionId": "s" }),                           409, "newSessionId"),
    ];
    for (body, status, field) in table {
        let refused = house.call("POST", "/sessions/s/fork", Some(body.clone())).await;
        let named = refused.json()["error"]["details"]["field"].as_str().unwrap_or_default().to_owned();
        assert_eq!((refused.status, named.as_str()), (status, field), "{body}: {refused:?}");
    }
    assert_eq!(house.call("POST", "/sessions/none/fork", None).await.status, 404);
    let stranger = request(house.address, "POST", "/sessions/s/fork").header("X-Client-Id", "stranger");
    assert_eq!(stranger.send(house.address).await.status, 404, "another client's");
    house.close().await;
}
