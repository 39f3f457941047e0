//! Commands that go on, as a session over HTTP meets them: programs on terminals, many at once, and their end.

use std::time::Duration;

use serde_json::{Value, json};
use simse::protocol::PermissionPolicy;
use simse::server::ListenOptions;

use crate::support::house::{Does, House};
use crate::support::http::Stream;

/// A house with one session, and its events.
struct Room {
    house: House,
    session: String,
    events: Stream,
}

impl Room {
    async fn open(policy: PermissionPolicy) -> Self {
        let house =
            House::with(ListenOptions::default(), |settings| settings.permissions.default_policy = policy).await;
        let session = house.session(json!({})).await;
        let events = house.events(&session, "").await;
        Self { house, session, events }
    }

    /// The model makes these calls in one round; the ends of all, in the order of the calls.
    async fn calls(&mut self, calls: &[(&'static str, Value)]) -> Vec<Value> {
        let does: Vec<Does> = calls.iter().map(|(name, arguments)| Does::Calls(name, arguments.clone())).collect();
        self.house.round(&does);
        self.house.prompt(&self.session, "go").await;
        let seen = self.events.until("session.completed").await;
        let of = |kind: &str| -> Vec<Value> {
            seen.iter().filter(|frame| frame.kind() == kind).map(|frame| frame.data["payload"].clone()).collect()
        };
        let ends = of("tool.call.end");
        of("tool.call.start")
            .iter()
            .map(|start| ends.iter().find(|end| end["callId"] == start["callId"]).unwrap().clone())
            .collect()
    }

    /// One call; what it said below `Output:`, and its details.
    async fn call(&mut self, name: &'static str, arguments: Value) -> (String, Value) {
        let end = self.calls(&[(name, arguments)]).await.remove(0);
        let text = end["output"].as_str().unwrap();
        let output = text.split_once("\nOutput:\n").map_or(text, |(_, output)| output);
        (output.to_owned(), end["details"].clone())
    }

    /// Calls `write_stdin` with this, then looks until `sign` has come.
    async fn types(&mut self, id: &str, more: Value, sign: &str) {
        let mut call = json!({"session_id": id});
        call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let (mut all, _) = self.call("write_stdin", call).await;
        for _ in 0..10 {
            if all.contains(sign) {
                return;
            }
            all.push_str(&self.call("write_stdin", json!({"session_id": id})).await.0);
        }
        panic!("{sign:?} never came: {all}");
    }
}

/// Whether something runs with these words for a command line: in the sandbox it has another number than out here.
fn is_running(words: &str) -> bool {
    let line = words.replace(' ', "\0") + "\0";
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok()).any(|own| own == line.as_bytes())
}

async fn is_gone(words: &str) {
    let gone = async {
        while is_running(words) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone).await.unwrap();
}

async fn has_begun(words: &str) {
    let begun = async {
        while !is_running(words) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), begun).await.unwrap();
}

#[tokio::test]
async fn a_program_on_a_terminal_is_typed_to_resized_and_ended() {
    let mut room = Room::open(PermissionPolicy::Allow).await;
    let python = json!({"cmd": "python3 -i -q", "tty": true, "yield_time_ms": 250});
    let (_, details) = room.call("exec_command", python).await;
    assert_eq!((&details["sessionId"], &details["exitCode"]), (&json!("1000"), &Value::Null), "{details}");
    room.types("1000", json!({"chars": "print(6*7, 'ä'*3)\n", "yield_time_ms": 2_000}), "42 äää").await;

    let shell = json!({"cmd": "bash --norc --noprofile -i", "tty": true, "yield_time_ms": 250});
    assert_eq!(room.call("exec_command", shell).await.1["sessionId"], "1001");
    let typed = "stty size; sleep 8001\n";
    room.types("1001", json!({"rows": 44, "cols": 133, "chars": typed, "yield_time_ms": 2_000}), "44 133").await;
    has_begun("sleep 8001").await;
    room.call("write_stdin", json!({"session_id": "1001", "chars": "\u{3}"})).await;
    room.types("1001", json!({"chars": "echo still $((1+1))\n", "yield_time_ms": 2_000}), "still 2").await;
    assert!(!is_running("sleep 8001"));
    room.types("1001", json!({"chars": "sleep 8002\n", "yield_time_ms": 250}), "sleep 8002").await;
    has_begun("sleep 8002").await;
    let (_, details) = room.call("write_stdin", json!({"session_id": "1001", "kill": true})).await;
    assert!(details["exitCode"].as_i64().is_some_and(|code| code > 128) && !is_running("sleep 8002"), "{details}");

    let (said, _) = room.call("write_stdin", json!({"session_id": "1001", "chars": "x"})).await;
    assert!(said.contains("session 1001 has ended") && said.contains("there are 1000 (`python3 -i -q`)"), "{said}");
    let (_, details) =
        room.call("write_stdin", json!({"session_id": "1000", "chars": "exit(5)\n", "yield_time_ms": 20_000})).await;
    assert_eq!(details["exitCode"], 5, "{details}");
    room.house.close().await;
}

#[tokio::test]
async fn looking_may_come_again_and_again_and_waits_for_the_end() {
    let mut room = Room::open(PermissionPolicy::Allow).await;
    room.call(
        "exec_command",
        json!({"cmd": "for i in 1 2 3 4; do sleep 4; echo $i; done; exit 6", "yield_time_ms": 250}),
    )
    .await;
    // In one turn: the same call in a row would else be refused as a loop.
    let look = || Does::Calls("write_stdin", json!({"session_id": "1000", "yield_time_ms": 5_000}));
    for _ in 0..4 {
        room.house.round(&[look()]);
    }
    room.house.prompt(&room.session, "go").await;
    let seen = room.events.until("session.completed").await;
    let ends: Vec<&Value> = seen.iter().filter(|f| f.kind() == "tool.call.end").map(|f| &f.data["payload"]).collect();
    let outputs: Vec<&str> =
        ends.iter().filter_map(|end| end["output"].as_str()?.split_once("Output:\n")).map(|o| o.1).collect();
    assert_eq!(outputs.concat(), "1\n2\n3\n4\n", "{ends:?}");
    assert_eq!(ends.last().unwrap()["details"]["exitCode"], 6);
    room.house.close().await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn many_run_beside_each_other_and_end_with_their_session_or_the_server() {
    let mut room = Room::open(PermissionPolicy::Allow).await;
    let start = |n: usize| {
        let command = format!("setsid sleep 810{n} & exec sleep 820{n}");
        ("exec_command", json!({"cmd": command, "tty": n.is_multiple_of(2), "yield_time_ms": 1_000}))
    };
    let ended = room.calls(&(0..8).map(start).collect::<Vec<_>>()).await;
    let mut ids: Vec<&str> = ended.iter().map(|end| end["details"]["sessionId"].as_str().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["1000", "1001", "1002", "1003", "1004", "1005", "1006", "1007"]);
    let sleeps = |range: std::ops::Range<usize>| -> Vec<String> {
        range.flat_map(|n| [format!("sleep 810{n}"), format!("sleep 820{n}")]).collect()
    };
    for sleep in sleeps(0..8) {
        has_begun(&sleep).await;
    }
    let first = std::mem::replace(&mut room.session, room.house.session(json!({})).await);
    room.events = room.house.events(&room.session, "").await;
    let ended = room.calls(&[start(8), start(9)]).await;
    assert!(ended.iter().all(|end| ["1000", "1001"].contains(&end["details"]["sessionId"].as_str().unwrap())));
    for sleep in sleeps(8..10) {
        has_begun(&sleep).await;
    }
    assert!(sleeps(0..8).iter().all(|sleep| is_running(sleep)), "they go on from turn to turn");
    assert_eq!(room.house.call("DELETE", &format!("/sessions/{first}"), None).await.status, 200);
    for sleep in sleeps(0..8) {
        is_gone(&sleep).await;
    }
    assert!(sleeps(8..10).iter().all(|sleep| is_running(sleep)), "another session's go on");
    room.house.close().await;
    for sleep in sleeps(8..10) {
        is_gone(&sleep).await;
    }
}

#[tokio::test]
async fn what_is_typed_is_asked_about_and_looking_is_not() {
    let mut room = Room::open(PermissionPolicy::Ask).await;
    let path = format!("/sessions/{}", room.session);
    let calls: [(&str, Value, Option<&str>); 6] = [
        ("exec_command", json!({"cmd": "cat", "tty": true, "yield_time_ms": 250}), Some("allow")),
        ("write_stdin", json!({"session_id": "1000", "yield_time_ms": 5_000}), None),
        ("write_stdin", json!({"session_id": "1000", "chars": "hello\n"}), Some("deny")),
        ("write_stdin", json!({"session_id": "1000", "chars": "hello\n"}), Some("allow_always")),
        ("write_stdin", json!({"session_id": "1000", "chars": "hello\n", "yield_time_ms": 500}), None),
        ("write_stdin", json!({"session_id": "1000", "chars": "rm -rf /\n"}), None),
    ];
    let mut outputs = Vec::new();
    for (name, arguments, answer) in calls {
        room.house.round(&[Does::Calls(name, arguments)]);
        let prompt = room.house.call("POST", &format!("{path}/prompt"), Some(json!({ "prompt": "go" }))).await;
        assert_eq!(prompt.status, 202);
        if let Some(answer) = answer {
            let asked = room.events.until("permission.request").await.pop().unwrap();
            let payload = &asked.data["payload"];
            if name == "write_stdin" {
                assert_eq!(payload["preview"], json!({"command": "cat", "line": "hello\n"}), "{payload}");
            }
            let feedback = json!({ "requestId": payload["requestId"], "decision": answer });
            assert_eq!(room.house.call("POST", &format!("{path}/feedback"), Some(feedback)).await.status, 200);
        }
        let seen = room.events.until("session.completed").await;
        assert!(seen.iter().all(|frame| frame.kind() != "permission.request"), "nothing else was asked");
        let end = seen.iter().find(|frame| frame.kind() == "tool.call.end").unwrap();
        outputs.push(end.data["payload"]["output"].as_str().unwrap().to_owned());
    }
    assert!(outputs[2].starts_with("Permission denied"), "{}", outputs[2]);
    assert!(outputs[3].contains("hello\n") && outputs[4].contains("hello\n"), "{outputs:?}");
    assert!(outputs[5].starts_with("Permission denied") && outputs[5].contains("remove-root"), "{}", outputs[5]);

    let explain = async |tool: &str, arguments: Value| {
        let body = json!({ "sessionId": room.session, "tool": tool, "arguments": arguments });
        let told = room.house.call("POST", "/permissions/explain", Some(body)).await.json();
        told["decision"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(explain("exec_command", json!({"cmd": "ls; rm -rf /"})).await, "deny");
    assert_eq!(explain("exec_command", json!({"cmd": "make"})).await, "ask");
    assert_eq!(explain("write_stdin", json!({"session_id": "1000"})).await, "allow");
    assert_eq!(explain("write_stdin", json!({"session_id": "1000", "chars": "hello\n"})).await, "allow");
    assert_eq!(explain("write_stdin", json!({"session_id": "1000", "chars": "make\n"})).await, "ask");
    let plan = json!({ "prompt": "go", "configure": { "permissionMode": "plan" } });
    room.house.round(&[Does::Calls("exec_command", json!({"cmd": "true"}))]);
    assert_eq!(room.house.call("POST", &format!("{path}/prompt"), Some(plan)).await.status, 202);
    let seen = room.events.until("session.completed").await;
    let end = seen.iter().find(|frame| frame.kind() == "tool.call.end").unwrap();
    assert!(end.data["payload"]["output"].as_str().unwrap().contains("plan mode"), "{end:?}");
    room.house.close().await;
}

#[tokio::test]
async fn an_aborted_turn_ends_what_its_call_had_begun() {
    let room = &mut Room::open(PermissionPolicy::Allow).await;
    let path = format!("/sessions/{}", room.session);
    room.house.round(&[Does::Calls("exec_command", json!({"cmd": "exec sleep 8301", "yield_time_ms": 30_000}))]);
    let prompt = room.house.call("POST", &format!("{path}/prompt"), Some(json!({ "prompt": "go" }))).await;
    assert_eq!(prompt.status, 202);
    has_begun("sleep 8301").await;
    assert_eq!(room.house.call("POST", &format!("{path}/abort"), Some(json!({}))).await.status, 200);
    room.events.until("abort").await;
    is_gone("sleep 8301").await;
}
