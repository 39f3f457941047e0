//! Tool servers: real processes and real sockets, through a session.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use simse::config::{McpServer, Settings};
use simse::protocol::{PermissionPolicy, ToolDefinition};
use simse::server::ListenOptions;
use tempfile::TempDir;

use crate::support::house::{Does, House};

/// A server of the script, and where it writes what it hears.
pub(crate) struct Scripted {
    room: TempDir,
    mode: &'static str,
}

impl Scripted {
    pub(crate) fn new(mode: &'static str) -> Self {
        Self { room: tempfile::tempdir().unwrap(), mode }
    }

    fn log(&self) -> PathBuf {
        self.room.path().join("log")
    }

    /// As the file of a project has it.
    pub(crate) fn written(&self) -> Value {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/mcp_server.mjs");
        json!({ "command": "node", "args": [script, self.mode, self.log()], "env": { "GIVEN_KEY": "given" } })
    }

    pub(crate) fn entry(&self, name: &str) -> McpServer {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/mcp_server.mjs");
        let args = json!([script, self.mode, self.log()]);
        let env = json!({ "GIVEN_KEY": "given" });
        serde_json::from_value(json!({ "name": name, "command": "node", "args": args, "env": env })).unwrap()
    }

    /// What it wrote down so far.
    pub(crate) fn notes(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.log()).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn heard(&self, method: &str) -> Vec<Value> {
        self.notes().into_iter().filter(|note| note["method"] == method).collect()
    }

    /// All processes that it started and its own, over all its lives.
    fn processes(&self) -> Vec<u64> {
        let of = |note: &Value| [note["started"].as_u64(), note["helper"].as_u64()];
        self.notes().iter().flat_map(of).flatten().collect()
    }

    /// Waits until all of them have been buried: a killed process is not gone at the same instant.
    pub(crate) async fn leaves_nobody(&self) {
        until("no process is left", || self.living().is_empty()).await;
    }

    fn living(&self) -> Vec<u64> {
        // One that is dead and not yet reaped is no orphan: its state is Z.
        let lives = |id: &u64| {
            let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
            // Numbers of processes come again: another one has not what these were given.
            let given = std::fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
            let is_ours = given.split(|byte| *byte == 0).any(|variable| variable == b"GIVEN_KEY=given");
            is_ours && stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
        };
        self.processes().into_iter().filter(lives).collect()
    }
}

async fn house(servers: Vec<McpServer>) -> House {
    let change = |settings: &mut Settings| {
        settings.mcp_servers = servers;
        settings.permissions.default_policy = PermissionPolicy::Allow;
    };
    House::with(ListenOptions::default(), change).await
}

/// Waits until something holds; the wait is bounded by the test's patience, not by a guess of how long it takes.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..2_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never: {what}");
}

fn remote(house: &House) -> Vec<ToolDefinition> {
    house.app.tools().into_iter().filter(|tool| tool.name.starts_with("mcp:")).collect()
}

pub(crate) fn names(house: &House) -> Vec<String> {
    remote(house).into_iter().map(|tool| tool.name).collect()
}

/// Lets the model call a tool in a session and answers with what came of it: output, and whether it failed.
pub(crate) async fn call(house: &House, session: &str, tool: &'static str, arguments: Value) -> (String, bool) {
    house.round(&[Does::Calls(tool, arguments)]);
    house.prompt(session, "go").await;
    last_output(house, session).await
}

async fn last_output(house: &House, session: &str) -> (String, bool) {
    let history = house.call("GET", &format!("/sessions/{session}/history?limit=1000"), None).await.json();
    let mut results = history["items"].as_array().unwrap().iter().filter(|item| item["output"].is_string());
    let last = results.next_back().unwrap_or_else(|| panic!("a result in {history}"));
    (last["output"].as_str().unwrap().to_owned(), last["isError"] == true)
}

#[tokio::test]
async fn a_session_calls_the_tools_of_a_server_and_nothing_is_left_behind() {
    let scripted = Scripted::new("plain");
    let house = house(vec![scripted.entry("s")]).await;
    let session = house.session(json!({})).await;
    // The turn waits for the server, which has only just been started.
    assert_eq!(call(&house, &session, "mcp:s/echo", json!({ "text": "hi" })).await, ("echo: hi".into(), false));
    let wanted = ["echo", "wait", "die", "grow", "fail", "flood", "picture"].map(|name| format!("mcp:s/{name}"));
    assert_eq!(names(&house), wanted);
    let echo = serde_json::to_value(&remote(&house)[0]).unwrap();
    assert_eq!(echo["annotations"], json!({ "title": "Echo", "readOnly": true }));
    assert_eq!((&echo["category"], &echo["parameters"]["required"]), (&json!("other"), &json!(["text"])));
    let bad = call(&house, &session, "mcp:s/echo", json!({ "text": 5 })).await;
    assert!(bad.1 && bad.0.contains("argument \"text\": expected a string"), "{bad:?}");
    let failed = call(&house, &session, "mcp:s/fail", json!({})).await;
    assert_eq!(failed, ("Tool \"mcp:s/fail\" execution failed: it did not work".into(), true));
    let picture = call(&house, &session, "mcp:s/picture", json!({})).await;
    assert_eq!(picture, ("[image, image/png, 4 bytes]".into(), false));
    let start = &scripted.notes()[0];
    assert_eq!((&start["key"], &start["leaked"]), (&json!("given"), &Value::Null));
    assert_eq!(start["cwd"].as_str(), house.work.path().canonicalize().unwrap().to_str());
    assert_eq!(scripted.living().len(), 2);
    house.close().await;
    scripted.leaves_nobody().await;
}

#[tokio::test]
async fn servers_that_do_not_come_hold_nothing_up() {
    let (hang, exit, refuse) = (Scripted::new("hang"), Scripted::new("exit"), Scripted::new("refuse"));
    let missing = serde_json::from_value(json!({ "name": "m", "command": "/no/such/server" })).unwrap();
    let good = Scripted::new("plain");
    let servers = vec![hang.entry("h"), exit.entry("e"), refuse.entry("r"), missing, good.entry("g")];
    let begun = std::time::Instant::now();
    let house = house(servers).await;
    assert!(begun.elapsed() < Duration::from_secs(5), "the start waits for nobody");
    until("the good one is connected", || names(&house).iter().any(|name| name == "mcp:g/echo")).await;
    assert!(names(&house).iter().all(|name| name.starts_with("mcp:g/")));
    let health = house.call("GET", "/health", None).await.json()["checks"]["mcpServers"].clone();
    let state = |name: &str| health["servers"][name].as_str().unwrap().to_owned();
    assert_eq!(
        (&health["status"], state("h"), state("g")),
        (&json!("degraded"), "starting".into(), "connected".into())
    );
    assert_eq!(state("m"), "down: cannot start /no/such/server: No such file or directory (os error 2)");
    // A session may name a tool of a server that is not there yet, and none of a server that has no such tool.
    let body = |tool: &str| json!({ "tools": ["fs_read", tool] });
    let session = house.session(body("mcp:g/echo")).await;
    house.session(body("mcp:h/anything")).await;
    let refused = house.call("POST", "/sessions", Some(body("mcp:g/nothing"))).await;
    assert_eq!((refused.status, &refused.json()["error"]["details"]["field"]), (400, &json!("tools[1]")));
    // This one wants nothing of the server that hangs, so it does not wait for it.
    let begun = std::time::Instant::now();
    assert_eq!(call(&house, &session, "mcp:g/echo", json!({ "text": "x" })).await.0, "echo: x");
    assert!(begun.elapsed() < Duration::from_secs(5));
    let all = [&hang, &exit, &refuse, &good];
    house.close().await;
    for scripted in all {
        scripted.leaves_nobody().await;
    }
}

#[tokio::test]
async fn a_server_that_dies_says_so_and_comes_back_when_it_is_needed() {
    let scripted = Scripted::new("plain");
    let house = house(vec![scripted.entry("s")]).await;
    let session = house.session(json!({})).await;
    let (output, failed) = call(&house, &session, "mcp:s/die", json!({})).await;
    assert!(failed, "{output}");
    let said =
        "the MCP server `s` went away during the call: its program ended with exit code 7; its last words: I die";
    assert_eq!(output, format!("Tool \"mcp:s/die\" execution failed: {said}"));
    assert_eq!(call(&house, &session, "mcp:s/echo", json!({ "text": "again" })).await, ("echo: again".into(), false));
    assert_eq!(scripted.heard("initialize").len(), 2);
    let (output, failed) = call(&house, &session, "mcp:s/flood", json!({})).await;
    assert!(failed && output.contains("it sent a message of more than"), "{output}");
    assert_eq!(call(&house, &session, "mcp:s/echo", json!({ "text": "once more" })).await.0, "echo: once more");
    house.close().await;
    scripted.leaves_nobody().await;
}

#[tokio::test]
async fn an_abort_reaches_the_server() {
    let scripted = Scripted::new("plain");
    let house = house(vec![scripted.entry("s")]).await;
    let session = house.session(json!({})).await;
    house.round(&[Does::Calls("mcp:s/wait", json!({}))]);
    let path = format!("/sessions/{session}/prompt");
    assert_eq!(house.call("POST", &path, Some(json!({ "prompt": "go" }))).await.status, 202);
    until("the server is asked", || !scripted.heard("tools/call").is_empty()).await;
    let aborted = house.call("POST", &format!("/sessions/{session}/abort"), Some(json!({}))).await;
    assert_eq!(aborted.status, 200, "{aborted:?}");
    until("the server is told", || !scripted.heard("notifications/cancelled").is_empty()).await;
    let told = &scripted.heard("notifications/cancelled")[0]["params"];
    assert_eq!(told["requestId"], scripted.heard("tools/call")[0]["id"]);
    // The connection is as good as before.
    assert_eq!(call(&house, &session, "mcp:s/echo", json!({ "text": "x" })).await, ("echo: x".into(), false));
    assert_eq!(scripted.heard("initialize").len(), 1);
    house.close().await;
}

#[tokio::test]
async fn a_process_that_left_the_group_is_ended_too() {
    let scripted = Scripted::new("stray");
    let house = house(vec![scripted.entry("s")]).await;
    until("it runs", || !names(&house).is_empty()).await;
    assert_eq!(scripted.living().len(), 2);
    house.close().await;
    scripted.leaves_nobody().await;
    // A server that is dropped without a stop, as when a start fails later on.
    let again = Scripted::new("stray");
    let servers = simse::mcp::Servers::new(&[again.entry("s")], again.room.path(), None).unwrap();
    servers.start();
    until("it runs", || !servers.tools().is_empty()).await;
    drop(servers);
    again.leaves_nobody().await;
}

#[tokio::test]
async fn a_server_that_rests_is_ended_and_comes_back_and_one_that_works_stays() {
    let (works, rests) = (Scripted::new("plain"), Scripted::new("plain"));
    let servers = vec![works.entry("w"), rests.entry("r")];
    let house = House::with(ListenOptions::default(), |settings| {
        settings.limits.agent_idle_ms = 50;
        settings.mcp_servers = servers;
        settings.permissions.default_policy = PermissionPolicy::Allow;
    })
    .await;
    let (busy, other) = (house.session(json!({})).await, house.session(json!({})).await);
    house.round(&[Does::Calls("mcp:w/wait", json!({}))]);
    let path = format!("/sessions/{busy}/prompt");
    assert_eq!(house.call("POST", &path, Some(json!({ "prompt": "go" }))).await.status, 202);
    until("the server is asked", || !works.heard("tools/call").is_empty()).await;
    let at_work = works.living();
    for _ in 0..2 {
        let before = rests.heard("initialize").len();
        assert_eq!(call(&house, &other, "mcp:r/echo", json!({ "text": "x" })).await, ("echo: x".into(), false));
        rests.leaves_nobody().await;
        assert!(rests.heard("initialize").len() <= before + 1, "it is started by need alone");
        // Its tools are still there to be called.
        assert!(names(&house).contains(&"mcp:r/echo".to_owned()));
    }
    assert!(rests.heard("initialize").len() >= 2, "it came back");
    let health = house.call("GET", "/health?verbose", None).await.json();
    assert_eq!(health["checks"]["mcpServers"]["servers"], json!({ "w": "connected", "r": "resting" }));
    assert_eq!(health["checks"]["mcpServers"]["status"], "ok");
    let programs = health["limits"].as_array().unwrap().iter().find(|limit| limit["name"] == "mcpPrograms").unwrap();
    assert_eq!((&programs["used"], &programs["limit"]), (&json!(1), &json!(2)));
    assert_eq!((works.living(), at_work.len()), (at_work.clone(), 2), "what is asked something stays");
    assert_eq!(house.call("POST", &format!("/sessions/{busy}/abort"), Some(json!({}))).await.status, 200);
    works.leaves_nobody().await;
    house.close().await;
}

#[tokio::test]
async fn a_list_that_changes_is_read_again() {
    let scripted = Scripted::new("plain");
    let house = house(vec![scripted.entry("s")]).await;
    let session = house.session(json!({})).await;
    assert_eq!(call(&house, &session, "mcp:s/grow", json!({})).await, ("grown".into(), false));
    until("the new tool is there", || names(&house).contains(&"mcp:s/grown".to_owned())).await;
    house.close().await;
}

#[tokio::test]
async fn noise_and_bad_tools_are_passed_over() {
    let (noisy, bad) = (Scripted::new("garbage"), Scripted::new("bad-tools"));
    let house = house(vec![noisy.entry("n"), bad.entry("b")]).await;
    let session = house.session(json!({})).await;
    assert_eq!(call(&house, &session, "mcp:n/echo", json!({ "text": "x" })).await, ("echo: x".into(), false));
    let of_bad: Vec<String> = names(&house).into_iter().filter(|name| name.starts_with("mcp:b/")).collect();
    assert_eq!(of_bad, ["mcp:b/echo"]);
    house.close().await;
}

#[tokio::test]
async fn a_crash_at_the_start_is_tried_again() {
    let scripted = Scripted::new("crash-once");
    let house = house(vec![scripted.entry("s")]).await;
    let session = house.session(json!({})).await;
    // Its first turn sees it crash; the next one has it started again, and waits.
    house.prompt(&session, "needs it").await;
    assert_eq!(names(&house), Vec::<String>::new());
    assert_eq!(call(&house, &session, "mcp:s/echo", json!({ "text": "x" })).await, ("echo: x".into(), false));
    house.close().await;
    scripted.leaves_nobody().await;
}

/// A server that repeats in its tools what it was given, as a description or in a schema.
#[tokio::test]
async fn what_a_server_says_of_its_tools_shows_no_secret() {
    let script = r#"while IFS= read -r line; do
        [[ $line =~ \"id\":([0-9]+) ]] || continue
        case $line in
            *'"initialize"'*) result='{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}' ;;
            *'"tools/list"'*) result='{"tools":[{"name":"t","description":"With '$GIVEN_SECRET'.","inputSchema":{"type":"object","description":"As '$1'.","properties":{"a":{"type":"string","default":"'$GIVEN_SECRET'","enum":["'$GIVEN_SECRET'","b"]},"n":{"type":"integer","default":5}}}}]}' ;;
            *) result='{}' ;;
        esac
        printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "${BASH_REMATCH[1]}" "$result"
    done"#;
    let (secret, argument) = ("canary-in-the-environment", "canary-in-an-argument");
    let entry = json!({
        "name": "tells", "command": "bash", "args": ["-c", script, "bash", format!("--token={argument}")], "env": { "GIVEN_SECRET": secret },
    });
    let house = house(vec![serde_json::from_value(entry).unwrap()]).await;
    let session = house.session(json!({})).await;
    house.prompt(&session, "needs it").await;
    until("its tool is there", || !names(&house).is_empty()).await;
    let listed = house.call("GET", "/tools", None).await;
    let text = listed.json().to_string();
    assert!(text.contains("mcp:tells/t") && !text.contains(secret) && !text.contains(argument), "{text}");
    let parameters = serde_json::to_value(&remote(&house)[0]).unwrap()["parameters"].clone();
    assert_eq!(parameters["properties"]["n"], json!({ "type": "integer", "default": 5 }), "{parameters}");
    assert_eq!(parameters["properties"]["a"]["enum"][1], "b", "{parameters}");
    house.close().await;
}

#[tokio::test]
async fn servers_of_a_session_are_its_own_and_end_with_it() {
    let (shared, own, next) = (Scripted::new("plain"), Scripted::new("stray"), Scripted::new("plain"));
    let house = house(vec![shared.entry("s"), shared.entry("t")]).await;
    let (one, other) = (house.session(json!({})).await, house.session(json!({})).await);
    let caller = simse::app::Caller::default();
    let id: simse::protocol::SessionId = one.parse().unwrap();
    let twice = house.app.attach_servers(&caller, &id, &[own.entry("s"), own.entry("s")]).await.unwrap_err();
    assert!(twice.to_string().contains("mcpServers[1].name"), "{twice}");
    house.app.attach_servers(&caller, &id, &[own.entry("s")]).await.unwrap();
    let echo = json!({ "text": "hi" });
    for (session, tool) in [(&one, "mcp:s/echo"), (&one, "mcp:t/echo"), (&other, "mcp:s/echo")] {
        assert_eq!(call(&house, session, tool, echo.clone()).await, ("echo: hi".into(), false), "{session} {tool}");
    }
    assert_eq!(own.heard("tools/call").len(), 1, "of two of one name a session has its own");
    assert_eq!(shared.heard("tools/call").len(), 2);
    // Others take their place, and those before end.
    house.app.attach_servers(&caller, &id, &[next.entry("u")]).await.unwrap();
    own.leaves_nobody().await;
    assert_eq!(call(&house, &one, "mcp:s/echo", echo.clone()).await, ("echo: hi".into(), false));
    assert_eq!((shared.heard("tools/call").len(), next.living().len()), (3, 2));
    assert_eq!(house.call("DELETE", &format!("/sessions/{one}"), None).await.status, 200);
    next.leaves_nobody().await;
    assert!(!shared.living().is_empty());
    house.close().await;
    shared.leaves_nobody().await;
}
