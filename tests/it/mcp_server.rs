//! simse as an MCP server, by a client that sends exactly what a test says: the cases that no polite client makes.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use simse::app::Extras;
use simse::config::Storage;
use simse::protocol::PermissionPolicy;
use simse::server::ListenOptions;
use tokio::io::AsyncWriteExt as _;

use crate::support::binary::{Serving, ended, simse};
use crate::support::house::{Ask, Director, Does, House};
use crate::support::http::{PATIENCE, Reply, Request, Stream, request, within};

const BOTH: &str = "application/json, text/event-stream";

/// A client over HTTP.
struct Mcp {
    address: SocketAddr,
    headers: Vec<(&'static str, String)>,
    session: String,
    next: u64,
}

impl Mcp {
    /// One that has said what it is. `forms`: it can be asked.
    async fn open(address: SocketAddr, forms: bool, headers: &[(&'static str, &str)]) -> Self {
        let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let mut client = Self { address, headers, session: String::new(), next: 1 };
        let can = if forms { json!({ "elicitation": { "form": {} } }) } else { json!({}) };
        let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": can, "clientInfo": { "name": "raw", "version": "1" } });
        let reply = client.post(&client.message("initialize", hello)).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(reply.json()["result"]["protocolVersion"], "2025-11-25");
        client.session = reply.header("mcp-session-id").unwrap().to_owned();
        let reply = client.post(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        assert_eq!(reply.status, 202);
        client
    }

    fn message(&self, method: &str, params: Value) -> Value {
        json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params })
    }

    fn to(&self, method: &str) -> Request {
        let mut request = request(self.address, method, "/mcp").header("Accept", BOTH);
        if !self.session.is_empty() {
            request = request.header("Mcp-Session-Id", &self.session);
        }
        self.headers.iter().fold(request, |request, (name, value)| request.header(name, value))
    }

    async fn post(&self, body: &Value) -> Reply {
        self.to("POST").json(body).send(self.address).await
    }

    /// Asks for something, with an answer that may be a stream.
    async fn start(&mut self, method: &str, params: Value) -> Stream {
        self.next += 1;
        let message = self.message(method, params);
        self.to("POST").json(&message).open(self.address).await
    }

    /// Asks for something that needs nothing of the client.
    async fn ask(&mut self, method: &str, params: Value) -> Value {
        let mut stream = self.start(method, params).await;
        assert_eq!(stream.status, 200, "{method}");
        if !streams(&stream) {
            return serde_json::from_slice(&stream.rest().await).unwrap();
        }
        loop {
            let message = said(&mut stream).await.expect("no answer");
            if message.get("method").is_none() {
                return message;
            }
        }
    }

    async fn call(&mut self, name: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({ "name": name, "arguments": arguments })).await["result"].clone()
    }

    async fn start_call(&mut self, name: &str, arguments: Value) -> Stream {
        let meta = json!({ "progressToken": "p" });
        let stream = self.start("tools/call", json!({ "name": name, "arguments": arguments, "_meta": meta })).await;
        assert!(streams(&stream), "it was over too soon");
        stream
    }

    /// Answers what it is asked next in a stream, and gives back the question.
    async fn decide(&self, stream: &mut Stream, answer: Value) -> Value {
        let asked = until(stream, "elicitation/create").await;
        let reply = self.post(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": answer })).await;
        assert_eq!(reply.status, 202);
        asked
    }
}

fn streams(stream: &Stream) -> bool {
    stream.headers.iter().any(|(name, value)| name == "content-type" && value == "text/event-stream")
}

/// The next message of a stream. None: its end.
async fn said(stream: &mut Stream) -> Option<Value> {
    loop {
        let frame = stream.raw_frame().await?;
        let data = frame.lines().find_map(|line| line.strip_prefix("data: ")).unwrap_or_default();
        if !data.is_empty() {
            return Some(serde_json::from_str(data).unwrap());
        }
    }
}

/// Reads up to a message of a method; an empty one: up to the answer.
async fn until(stream: &mut Stream, method: &str) -> Value {
    loop {
        let message = said(stream).await.unwrap_or_else(|| panic!("the stream ended before `{method}`"));
        if message["method"].as_str().unwrap_or_default() == method {
            return message;
        }
    }
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"))
}

fn accept(decision: &str) -> Value {
    json!({ "action": "accept", "content": { "decision": decision } })
}

/// The session in which a client's calls ran: the newest.
async fn session(house: &House, headers: &[(&str, &str)]) -> String {
    let all = request(house.address, "GET", "/sessions");
    let all = headers.iter().fold(all, |all, (name, value)| all.header(name, value)).send(house.address).await;
    all.json()["items"][0]["sessionId"].as_str().unwrap().to_owned()
}

/// Waits until no turn is on: a call is answered with its own end, and its turn ends behind that.
async fn rests(house: &House, session: &str) {
    let busy = async || house.call("GET", &format!("/sessions/{session}"), None).await.json().get("turn").is_some();
    within(async {
        while busy().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

async fn log(house: &House, session: &str) -> Vec<Value> {
    let page = house.call("GET", &format!("/sessions/{session}/history?events=true&limit=1000"), None).await;
    page.json()["items"].as_array().unwrap().clone()
}

#[tokio::test]
async fn only_who_says_everything_right_gets_in() {
    let options =
        ListenOptions { token: Some("sesame".to_owned().into()), body_bytes_max: 20_000, ..Default::default() };
    let house = House::with(options, |_| {}).await;
    let key = ("Authorization", "Bearer sesame");
    let client = Mcp::open(house.address, false, &[key]).await;
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    let asks = |method: &str| client.to(method).json(&ping);
    #[rustfmt::skip]
    let table = [
        ("no token", asks("POST").without("Authorization"), 401),
        ("a wrong token", asks("POST").without("Authorization").header("Authorization", "Bearer x"), 401),
        ("another page", asks("POST").header("Origin", "https://elsewhere.example"), 403),
        ("another name", asks("POST").without("Host").header("Host", "elsewhere.example"), 403),
        ("no stream", asks("POST").without("Accept").header("Accept", "application/json"), 406),
        ("no JSON", asks("POST").without("Accept").header("Accept", "text/event-stream"), 406),
        ("no session", asks("POST").without("Mcp-Session-Id"), 400),
        ("a strange session", asks("POST").without("Mcp-Session-Id").header("Mcp-Session-Id", "mcp_1"), 404),
        ("two sessions", asks("POST").header("Mcp-Session-Id", &client.session), 400),
        ("another client", asks("POST").header("X-Client-ID", "other"), 404),
        ("a strange version", asks("POST").header("Mcp-Protocol-Version", "2099-01-01"), 400),
        ("an old version", asks("POST").header("Mcp-Protocol-Version", "2025-03-26"), 200),
        ("a query", request(house.address, "POST", "/mcp?x=1").header("Accept", BOTH).header(key.0, key.1).json(&ping), 400),
        ("a list", client.to("POST").json(&json!([ping, ping])), 400),
        ("no message", client.to("POST").json(&json!({ "id": 1 })), 400),
        ("no JSON", client.to("POST").header("Content-Type", "application/json").body(b"{"), 400),
        ("another type", client.to("POST").header("Content-Type", "text/plain").body(b"{}"), 400),
        ("too much", client.to("POST").json(&json!("x".repeat(20_001))), 413),
        ("a stream of JSON", client.to("GET").without("Accept").header("Accept", "application/json"), 406),
        ("nothing to go on from", client.to("GET").header("Last-Event-ID", "77-1"), 400),
        ("no place", client.to("GET").header("Last-Event-ID", "x"), 400),
        ("another method", client.to("PUT"), 405),
        ("all right", asks("POST"), 200),
    ];
    for (what, request, want) in table {
        let reply = request.send(house.address).await;
        assert_eq!(reply.status, want, "{what}: {}", String::from_utf8_lossy(&reply.body));
    }
    assert_eq!(client.to("DELETE").send(house.address).await.status, 204);
    assert_eq!(asks("POST").send(house.address).await.status, 404, "it has ended");
    assert_eq!(client.to("DELETE").send(house.address).await.status, 404);
    house.close().await;
}

#[tokio::test]
async fn what_is_wrong_is_told_as_the_protocol_has_it() {
    let house = House::open().await;
    let mut client = Mcp::open(house.address, false, &[]).await;
    #[rustfmt::skip]
    let table = [
        ("nothing/at_all", json!({}), -32601),
        ("tools/call", json!({ "name": "no_such_tool" }), -32602),
        ("tools/call", json!({}), -32602),
        ("tools/call", json!({ "name": "bash", "arguments": [] }), -32602),
        ("tools/list", json!({ "cursor": "x" }), -32602),
        ("resources/read", json!({ "uri": "file:///etc/passwd" }), -32002),
        ("resources/read", json!({ "uri": "simse://sessions/ses_none" }), -32002),
        ("resources/subscribe", json!({ "uri": "simse://nothing" }), -32002),
        ("logging/setLevel", json!({ "level": "loud" }), -32602),
        ("completion/complete", json!({ "ref": {} }), -32602),
        ("initialize", json!({ "protocolVersion": "2025-11-25", "capabilities": {} }), -32600),
        ("prompts/list", json!({}), -32601),
    ];
    for (method, params, want) in table {
        let answer = client.ask(method, params.clone()).await;
        assert_eq!(answer["error"]["code"], want, "{method} {params}: {answer}");
    }
    // What a tool refuses is a result: the model may do better.
    let result = client.call("fs_read", json!({ "path": 7 })).await;
    assert_eq!(result["isError"], true);
    assert!(text(&result).contains("path"), "{result}");
    let result = client.call("fs_read", json!({ "path": "../../etc/passwd" })).await;
    assert_eq!(result["isError"], true);
    house.close().await;
}

#[tokio::test]
async fn a_call_runs_in_a_session_as_any_other_and_can_be_undone() {
    let data = tempfile::tempdir().unwrap();
    let house = House::with(ListenOptions::default(), |settings| {
        settings.storage = Storage::Directory(data.path().to_owned());
    })
    .await;
    let mut client = Mcp::open(house.address, true, &[]).await;
    let file = house.work.path().join("notes.txt");
    std::fs::write(&file, "one\n").unwrap();
    client.call("fs_read", json!({ "path": "notes.txt" })).await;
    std::fs::write(&file, "one\nand more\n").unwrap();
    // It was changed since: what one call saw, the next one knows.
    let edit = json!({ "path": "notes.txt", "oldString": "one", "newString": "two" });
    let mut stale = client.start_call("fs_edit", edit.clone()).await;
    let asked = client.decide(&mut stale, accept("allow")).await;
    assert!(asked["params"]["message"].as_str().unwrap().contains("fs_edit"), "{asked}");
    assert_eq!(asked["params"]["mode"], "form");
    let result = until(&mut stale, "").await["result"].clone();
    assert_eq!(result["isError"], true, "{result}");
    client.call("fs_read", json!({ "path": "notes.txt" })).await;
    let mut edits = client.start_call("fs_edit", edit).await;
    let asked = client.decide(&mut edits, accept("allow_always")).await;
    assert!(asked["params"]["message"].as_str().unwrap().contains("+two"), "{asked}");
    let result = until(&mut edits, "").await["result"].clone();
    assert_eq!(result["isError"], false, "{result}");
    assert!(result["structuredContent"]["details"].is_object(), "{result}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "two\nand more\n");
    let id = session(&house, &[]).await;
    rests(&house, &id).await;
    let view = house.call("GET", &format!("/sessions/{id}"), None).await.json();
    assert_eq!((view["title"].as_str(), view["model"].as_str()), (Some("MCP: raw 1"), Some("client/calls")));
    let events = log(&house, &id).await;
    let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
    assert_eq!((of("tool.call.start"), of("tool.call.end"), of("permission.request")), (4, 4, 2));
    assert_eq!((of("session.prompt"), of("session.completed")), (4, 4));
    // The next like it is not asked about: it is answered at once, as JSON.
    let again = client.call("fs_edit", json!({ "path": "notes.txt", "oldString": "two", "newString": "three" })).await;
    assert_eq!(again["isError"], false, "{again}");
    rests(&house, &id).await;
    let undone = house.call("POST", &format!("/sessions/{id}/undo"), Some(json!({}))).await;
    assert_eq!(undone.status, 200, "{undone:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "two\nand more\n");
    house.close().await;
}

#[tokio::test]
async fn only_a_yes_in_time_lets_a_call_run() {
    let house = House::with(ListenOptions::default(), |settings| {
        settings.limits.permission_timeout_ms = 700;
        settings.limits.client_grace_ms = 100;
    })
    .await;
    let mut client = Mcp::open(house.address, true, &[]).await;
    let run = |name: &str| json!({ "command": format!("touch {name}") });
    for (name, answer, why) in [
        ("declined", json!({ "action": "decline" }), "declined"),
        ("dismissed", json!({ "action": "cancel" }), "dismissed"),
        ("denied", accept("deny"), "denied"),
        ("nonsense", accept("of course"), "does not fit"),
    ] {
        let mut stream = client.start_call("bash", run(name)).await;
        client.decide(&mut stream, answer).await;
        let result = until(&mut stream, "").await["result"].clone();
        assert_eq!(result["isError"], true, "{name}");
        assert!(text(&result).contains(why), "{name}: {result}");
    }
    // Late: the form is taken back, and the answer comes to nothing.
    let mut stream = client.start_call("bash", run("late")).await;
    let asked = until(&mut stream, "elicitation/create").await;
    let cancelled = until(&mut stream, "notifications/cancelled").await;
    assert_eq!(cancelled["params"]["requestId"], asked["id"]);
    let result = until(&mut stream, "").await["result"].clone();
    assert!(text(&result).contains("within 700 ms"), "{result}");
    let late = client.post(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": accept("allow") })).await;
    assert_eq!(late.status, 202);
    // Nobody who could be asked.
    let mut deaf = Mcp::open(house.address, false, &[]).await;
    let result = deaf.call("bash", run("deaf")).await;
    assert_eq!(result["isError"], true);
    assert!(result["content"][1]["text"].as_str().unwrap().contains("elicitation"), "{result}");
    assert_eq!(std::fs::read_dir(house.work.path()).unwrap().count(), 0, "nothing has run");
    house.close().await;
}

/// What sub-agents ask while a client waits for the session above them, it is asked.
#[tokio::test]
async fn who_waits_is_asked_what_sub_agents_ask() {
    let (house, _) = crate::children::house(|settings| settings.limits.client_grace_ms = 60_000).await;
    let session = crate::children::root(&house).await;
    let mut client = Mcp::open(house.address, true, &[]).await;
    for (decision, said) in [("allow", "heard: heard: Wrote"), ("deny", "Permission denied for tool")] {
        let prompt = json!({ "sessionId": session, "prompt": "writer write x.txt" });
        client.call("session_prompt", prompt).await;
        let mut stream = client.start_call("session_wait", json!({ "sessionId": session })).await;
        let asked = client.decide(&mut stream, accept(decision)).await;
        let message = asked["params"]["message"].as_str().unwrap();
        assert!(message.contains("fs_write") && message.contains("x.txt"), "{message}");
        let result = until(&mut stream, "").await["result"].clone();
        assert!(text(&result).contains(said), "{result}");
    }
    // Whoever comes to wait when it has been asked already is asked as well; somebody else may be faster.
    let prompt = json!({ "sessionId": session, "prompt": "writer write y.txt" });
    client.call("session_prompt", prompt).await;
    let mut events = house.events(&session, "").await;
    let waits = loop {
        let frame = events.frame().await.expect("a question");
        if frame.kind() == "subagent.request" && frame.data["payload"]["request"]["payload"]["args"]["path"] == "y.txt"
        {
            break frame.data["payload"]["request"]["payload"]["requestId"].clone();
        }
    };
    let mut stream = client.start_call("session_wait", json!({ "sessionId": session })).await;
    let asked = until(&mut stream, "elicitation/create").await;
    let body = json!({ "requestId": waits, "decision": "allow" });
    assert_eq!(house.call("POST", &format!("/sessions/{session}/feedback"), Some(body)).await.status, 200);
    let cancelled = until(&mut stream, "notifications/cancelled").await;
    assert_eq!(cancelled["params"]["requestId"], asked["id"]);
    let result = until(&mut stream, "").await["result"].clone();
    assert!(text(&result).contains("heard: heard: Wrote"), "{result}");
    house.close().await;
}

/// Another client of the same session may answer; the form is taken back then.
#[tokio::test]
async fn somebody_else_may_be_faster() {
    let house = House::open().await;
    let mut client = Mcp::open(house.address, true, &[]).await;
    let mut stream = client.start_call("bash", json!({ "command": "echo yes" })).await;
    let asked = until(&mut stream, "elicitation/create").await;
    let id = session(&house, &[]).await;
    let view = house.call("GET", &format!("/sessions/{id}"), None).await.json();
    let waits = &view["requests"][0]["payload"];
    let body = json!({ "requestId": waits["requestId"], "decision": "allow" });
    assert_eq!(house.call("POST", &format!("/sessions/{id}/feedback"), Some(body)).await.status, 200);
    let cancelled = until(&mut stream, "notifications/cancelled").await;
    assert_eq!(cancelled["params"]["requestId"], asked["id"]);
    assert_eq!(text(&until(&mut stream, "").await["result"]), "yes\n");
    house.close().await;
}

#[tokio::test]
async fn a_call_that_is_taken_back_ends_with_its_processes_and_no_other() {
    let house = House::with(ListenOptions::default(), |settings| {
        settings.permissions.default_policy = PermissionPolicy::Allow;
        settings.permissions.rules.clear();
    })
    .await;
    let mut client = Mcp::open(house.address, false, &[]).await;
    let mut other = client
        .start_call("bash", json!({ "command": "echo begun; until test -e go; do sleep 0.05; done; echo on" }))
        .await;
    until(&mut other, "notifications/progress").await;
    let mut stream =
        client.start_call("bash", json!({ "command": "sleep 300 & echo $! >pid; echo begun; wait" })).await;
    let progress = until(&mut stream, "notifications/progress").await;
    assert_eq!(progress["params"]["progressToken"], "p");
    let params = json!({ "requestId": client.next, "reason": "changed my mind" });
    let reply = client.post(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params })).await;
    assert_eq!(reply.status, 202);
    while let Some(message) = said(&mut stream).await {
        assert!(message.get("id").is_none(), "it was taken back: {message}");
    }
    // The sandbox counts processes in a room of its own: the command line tells them.
    let left = || {
        let commands = std::fs::read_dir("/proc").unwrap().flatten();
        let is = |path: std::path::PathBuf| std::fs::read(path.join("cmdline")).is_ok_and(|c| c == b"sleep\x00300\x00");
        let here = |path: &std::path::Path| {
            std::fs::read_link(path.join("cwd")).is_ok_and(|cwd| cwd.starts_with(house.work.path()))
        };
        commands.map(|entry| entry.path()).any(|path| here(&path) && is(path.clone()))
    };
    within(async {
        while left() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    std::fs::write(house.work.path().join("go"), "").unwrap();
    let result = until(&mut other, "").await["result"].clone();
    assert_eq!((result["isError"].as_bool(), text(&result)), (Some(false), "begun\non\n"));
    let events = log(&house, &session(&house, &[]).await).await;
    let failed: Vec<_> = events.iter().filter(|event| event["type"] == "tool.call.error").collect();
    assert_eq!(failed.len(), 1);
    assert!(failed[0]["payload"]["error"]["message"].as_str().unwrap().contains("aborted"), "{failed:?}");
    house.close().await;
}

#[tokio::test]
async fn a_line_that_breaks_loses_nothing() {
    let house = House::with(ListenOptions::default(), |settings| {
        settings.permissions.default_policy = PermissionPolicy::Allow;
        settings.permissions.rules.clear();
    })
    .await;
    let mut client = Mcp::open(house.address, false, &[]).await;
    let mut stream = client
        .start_call("bash", json!({ "command": "echo begun; until test -e go; do sleep 0.05; done; echo on" }))
        .await;
    let mut seen = String::new();
    while !seen.contains("begun") {
        seen = stream.raw_frame().await.unwrap();
    }
    let place = seen.lines().find_map(|line| line.strip_prefix("id: ")).unwrap().to_owned();
    drop(stream);
    std::fs::write(house.work.path().join("go"), "").unwrap();
    let mut again = client.to("GET").header("Last-Event-ID", &place).open(house.address).await;
    assert_eq!(again.status, 200);
    assert_eq!(text(&until(&mut again, "").await["result"]), "begun\non\n");
    assert_eq!(said(&mut again).await, None, "it ends with the answer");
    // Once more from the same place, as long as it is kept; behind the answer there is nothing.
    let mut once_more = client.to("GET").header("Last-Event-ID", &place).open(house.address).await;
    assert_eq!(text(&until(&mut once_more, "").await["result"]), "begun\non\n");
    let stream = place.split_once('-').unwrap().0;
    let behind = client.to("GET").header("Last-Event-ID", &format!("{stream}-999")).send(house.address).await;
    assert_eq!(behind.status, 400);
    house.close().await;
}

#[tokio::test]
async fn two_clients_see_nothing_of_each_other() {
    let house = House::open().await;
    let mut one = Mcp::open(house.address, true, &[("X-Client-ID", "one")]).await;
    let mut two = Mcp::open(house.address, true, &[("X-Client-ID", "two")]).await;
    for (client, name) in [(&mut one, "one"), (&mut two, "two")] {
        let mut stream = client.start_call("bash", json!({ "command": format!("echo {name}") })).await;
        client.decide(&mut stream, accept("allow")).await;
        assert_eq!(text(&until(&mut stream, "").await["result"]), format!("{name}\n"));
    }
    let of_one = session(&house, &[("X-Client-ID", "one")]).await;
    let uri = format!("simse://sessions/{of_one}");
    assert!(one.ask("resources/read", json!({ "uri": uri })).await["result"].is_object());
    for params in [json!({ "uri": uri }), json!({ "uri": format!("{uri}/history") })] {
        assert_eq!(two.ask("resources/read", params.clone()).await["error"]["code"], -32002);
        assert_eq!(two.ask("resources/subscribe", params).await["error"]["code"], -32002);
    }
    for (tool, arguments) in [
        ("session_events", json!({ "sessionId": of_one })),
        ("session_wait", json!({ "sessionId": of_one })),
        ("session_abort", json!({ "sessionId": of_one })),
        ("session_prompt", json!({ "sessionId": of_one, "prompt": "x" })),
    ] {
        let result = two.call(tool, arguments).await;
        assert_eq!(result["isError"], true, "{tool}");
        assert!(text(&result).contains(&of_one), "{tool}: {result}");
    }
    let listed = two.ask("resources/list", json!({})).await["result"]["resources"].to_string();
    assert!(!listed.contains(&of_one), "{listed}");
    let argument = json!({ "name": "sessionId", "value": &of_one[..6] });
    let of = json!({ "type": "ref/resource", "uri": "simse://sessions/{sessionId}" });
    for (client, want) in [(&mut one, 1), (&mut two, 1)] {
        let values = client.ask("completion/complete", json!({ "ref": of, "argument": argument })).await;
        assert_eq!(values["result"]["completion"]["total"], want, "{values}");
    }
    house.close().await;
}

/// What a sub-agent asks, the client of the session above it is asked, whoever waits for that; and nobody hangs.
#[tokio::test]
async fn what_a_sub_agent_asks_reaches_the_client_too() {
    let directs = |ask: &Ask| match (ask.said.split_once(' '), ask.results.last()) {
        (_, Some(result)) => vec![Does::Says(Box::leak(format!("heard: {result}").into_boxed_str()))],
        (Some(("sub", task)), None) => {
            vec![Does::Calls("spawn_agent", json!({ "task": task, "name": "helper", "tools": ["*"] }))]
        }
        _ => vec![Does::Calls("bash", json!({ "command": format!("touch {}; echo ran", ask.said) }))],
    };
    let (model, _) = Director::held(directs);
    let ask = |settings: &mut simse::config::Settings| {
        settings.permissions.default_policy = PermissionPolicy::Ask;
        settings.limits.permission_timeout_ms = 3_000;
        let rule = json!({ "tool": "spawn_agent", "policy": "allow" });
        settings.permissions.rules = vec![serde_json::from_value(rule).unwrap()];
    };
    let extras = Extras { models: vec![model], ..Extras::default() };
    let house = House::fitted(ListenOptions::default(), ask, extras).await;
    let mut client = Mcp::open(house.address, true, &[]).await;
    for (name, answer, ran) in [("one", accept("allow"), true), ("two", accept("deny"), false)] {
        let body = json!({ "prompt": format!("sub {name}"), "model": "test/director", "title": name });
        let accepted = client.call("session_prompt", body).await["structuredContent"].clone();
        let wait = json!({ "sessionId": accepted["sessionId"], "turnId": accepted["turnId"] });
        let mut stream = client.start_call("session_wait", wait).await;
        let asked = client.decide(&mut stream, answer).await;
        let message = asked["params"]["message"].as_str().unwrap();
        assert!(message.contains("`bash`") && message.contains(&format!("touch {name}")), "{asked}");
        let result = until(&mut stream, "").await["result"].clone();
        assert_eq!(result["structuredContent"]["status"], "completed", "{result}");
        assert_eq!(house.work.path().join(name).exists(), ran, "{result}");
    }
    // The same where the client starts one itself.
    for (name, answer, ran) in [("four", accept("allow"), true), ("five", accept("deny"), false)] {
        let spawn = json!({ "task": name, "name": name, "model": "test/director", "tools": ["*"] });
        let mut stream = client.start_call("spawn_agent", spawn).await;
        let asked = client.decide(&mut stream, answer).await;
        assert!(asked["params"]["message"].as_str().unwrap().contains(&format!("touch {name}")), "{asked}");
        let result = until(&mut stream, "").await["result"].clone();
        assert!(text(&result).contains("heard: "), "{result}");
        assert_eq!(house.work.path().join(name).exists(), ran, "{result}");
    }
    // Who cannot be asked is not waited for without end, and nothing runs.
    let mut deaf = Mcp::open(house.address, false, &[]).await;
    let body = json!({ "prompt": "sub three", "model": "test/director" });
    let accepted = deaf.call("session_prompt", body).await["structuredContent"].clone();
    let wait = json!({ "sessionId": accepted["sessionId"], "turnId": accepted["turnId"] });
    let result = within(deaf.call("session_wait", wait)).await;
    assert_eq!(result["structuredContent"]["status"], "completed", "{result}");
    assert!(!house.work.path().join("three").exists(), "{result}");
    house.close().await;
}

#[tokio::test]
async fn a_prompt_of_our_own_loop_asks_through_who_waits_for_it() {
    let house = House::open().await;
    house.round(&[Does::Says("I look. "), Does::Calls("bash", json!({ "command": "echo found" }))]);
    house.round(&[Does::Says("It is found.")]);
    let mut client = Mcp::open(house.address, true, &[]).await;
    let prompted =
        client.call("session_prompt", json!({ "prompt": "look", "model": "test/puppet", "title": "Looking" })).await;
    let accepted = prompted["structuredContent"].clone();
    assert!(accepted["turnId"].is_string(), "{prompted}");
    let wait = json!({ "sessionId": accepted["sessionId"], "turnId": accepted["turnId"] });
    let mut stream = client.start_call("session_wait", wait.clone()).await;
    client.decide(&mut stream, accept("allow")).await;
    let result = until(&mut stream, "").await["result"].clone();
    assert_eq!((result["isError"].as_bool(), text(&result)), (Some(false), "It is found."));
    assert_eq!(result["structuredContent"]["status"], "completed");
    // Once more: it is over, and says so at once.
    let again = client.call("session_wait", json!({ "sessionId": accepted["sessionId"] })).await;
    assert_eq!(text(&again), "It is found.");
    let events =
        client.call("session_events", json!({ "sessionId": accepted["sessionId"], "types": ["tool.call.end"] })).await;
    let ends = events["structuredContent"]["items"].as_array().unwrap();
    assert_eq!((ends.len(), ends[0]["payload"]["output"].as_str()), (1, Some("found\n")));
    // One that takes longer goes on.
    house.round(&[Does::Waits, Does::Says("late")]);
    let more = json!({ "sessionId": accepted["sessionId"], "prompt": "more" });
    client.call("session_prompt", more).await;
    let early = client.call("session_wait", json!({ "sessionId": accepted["sessionId"], "timeoutMs": 50 })).await;
    assert_eq!(early["structuredContent"]["status"], "running", "{early}");
    let aborted = client.call("session_abort", json!({ "sessionId": accepted["sessionId"] })).await;
    assert_eq!(aborted["structuredContent"]["aborted"], true);
    let ended = client.call("session_wait", json!({ "sessionId": accepted["sessionId"] })).await;
    assert_eq!(ended["structuredContent"]["status"], "aborted");
    // An answer that is data.
    house.round(&[Does::Says("{\"n\": 0}")]);
    house.round(&[Does::Says("{\"n\": 7}")]);
    let schema =
        json!({ "type": "object", "properties": { "n": { "type": "integer", "minimum": 1 } }, "required": ["n"] });
    let data = json!({ "sessionId": accepted["sessionId"], "prompt": "how many?", "outputSchema": schema });
    client.call("session_prompt", data).await;
    let counted = client.call("session_wait", json!({ "sessionId": accepted["sessionId"] })).await;
    assert_eq!(counted["structuredContent"]["output"], json!({ "n": 7 }), "{counted}");
    for (arguments, field) in [
        (json!({ "prompt": "" }), "prompt"),
        (json!({ "prompt": "x", "outputSchema": { "type": "number" } }), "outputSchema"),
        (json!({ "prompt": "x", "strange": 1 }), "strange"),
        (json!({ "prompt": "x", "sessionId": accepted["sessionId"], "agent": "simse" }), "agent"),
    ] {
        let refused = client.call("session_prompt", arguments).await;
        assert!(refused["isError"] == true && text(&refused).contains(field), "{refused}");
    }
    house.close().await;
}

#[tokio::test]
async fn a_subscriber_is_told_of_changes_and_of_new_sessions() {
    let house = House::open().await;
    let created = house.call("POST", "/sessions", Some(json!({ "model": "test/puppet" }))).await.json();
    let uri = format!("simse://sessions/{}", created["sessionId"].as_str().unwrap());
    let mut client = Mcp::open(house.address, false, &[]).await;
    let mut standing = client.to("GET").open(house.address).await;
    assert_eq!(client.ask("resources/subscribe", json!({ "uri": uri })).await["result"], json!({}));
    let path = format!("/sessions/{}/prompt", created["sessionId"].as_str().unwrap());
    house.call("POST", &path, Some(json!({ "prompt": "hello" }))).await;
    assert_eq!(until(&mut standing, "notifications/resources/updated").await["params"]["uri"], uri);
    assert_eq!(client.ask("resources/unsubscribe", json!({ "uri": uri })).await["result"], json!({}));
    let shown = client.ask("resources/read", json!({ "uri": format!("{uri}/history") })).await;
    let shown: Value = serde_json::from_str(shown["result"]["contents"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(shown["items"][0]["type"], "message");
    // The stream watches lists from some moment on: sessions are made until it has seen one.
    let told = async {
        loop {
            tokio::select! {
                _ = until(&mut standing, "notifications/resources/list_changed") => break,
                () = tokio::time::sleep(Duration::from_millis(200)) => {
                    drop(house.call("POST", "/sessions", Some(json!({}))).await);
                }
            }
        }
    };
    tokio::time::timeout(PATIENCE, told).await.expect("nothing is told");
    // A second standing stream takes the place of the first.
    let _second = client.to("GET").open(house.address).await;
    while said(&mut standing).await.is_some() {}
    house.close().await;
}

/// A role holds by what a message wants, not by the method of HTTP.
#[tokio::test]
async fn a_token_that_may_only_look_lists_and_reads_and_no_more() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data").display().to_string();
    let mut create = simse(home.path());
    let made = create.args([
        "token",
        "create",
        "looker",
        "--role",
        "read-only",
        "--sessions-of",
        "owner",
        "--data-dir",
        &data,
    ]);
    let (code, token, said) = ended(made.spawn().unwrap()).await;
    assert_eq!(code, Some(0), "{said}");
    let serving = Serving::start(&home, &["--data-dir", &data, "--client-grace-ms", "100"]).await;
    let key = format!("Bearer {}", token.trim());
    let mut client = Mcp::open(serving.address, true, &[("Authorization", &key)]).await;
    let tools = client.ask("tools/list", json!({})).await["result"]["tools"].as_array().unwrap().len();
    assert!(tools > 20, "{tools}");
    for (name, arguments) in [
        ("fs_list", json!({})),
        ("session_prompt", json!({ "prompt": "x" })),
        ("session_abort", json!({ "sessionId": "ses_1" })),
    ] {
        let result = client.call(name, arguments).await;
        assert_eq!(result["isError"], true, "{name}");
        assert!(text(&result).contains("operator"), "{name}: {result}");
    }
    let all = client.ask("resources/read", json!({ "uri": "simse://sessions" })).await;
    assert!(all["result"]["contents"][0]["text"].as_str().unwrap().starts_with("{\"items\":[]"), "{all}");
}

/// The pipe: whole lines of the protocol and nothing else, an answer to each fault, and an orderly end behind the last answer.
#[tokio::test]
async fn a_pipe_answers_everything_and_ends_in_order() {
    let home = tempfile::tempdir().unwrap();
    let work = home.path().join("work");
    std::fs::create_dir(&work).unwrap();
    let config = home.path().join("config.toml");
    std::fs::write(&config, "[[permissions.rules]]\ntool = \"bash\"\npolicy = \"allow\"\n").unwrap();
    let mut command = simse(home.path());
    command.args(["mcp", "--body-bytes-max", "20000", "--log-level", "debug", "--config"]).arg(&config);
    let mut child = command.current_dir(&work).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let hello = json!({ "protocolVersion": "2025-03-26", "capabilities": { "elicitation": {} } });
    let call = |id: u64, command: &str| {
        let params = json!({ "name": "bash", "arguments": { "command": command } });
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }).to_string()
    };
    let ping = |id: &str| json!({ "jsonrpc": "2.0", "id": id, "method": "ping" });
    let lines = [
        call(1, "echo too early"),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "initialize", "params": hello }).to_string(),
        "{".to_owned(),
        "x".repeat(20_001),
        String::new(),
        json!([ping("a"), ping("b")]).to_string(),
        // It is still at work when the input ends.
        call(3, "echo out; echo err >&2; echo '{\"jsonrpc\":\"2.0\"}' >/proc/self/fd/1; sleep 0.5; echo done"),
    ];
    for line in lines {
        input.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }
    drop(input);
    let (code, out, err) = ended(child).await;
    assert_eq!(code, Some(0), "{err}");
    let said: Vec<Value> =
        out.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect();
    let of = |id: Value| {
        said.iter()
            .find(|message| message["id"] == id && message.get("method").is_none())
            .unwrap_or_else(|| panic!("{id}: {out}"))
    };
    assert_eq!(of(json!(1))["error"]["code"], -32600, "before `initialize`");
    assert_eq!(of(json!(2))["result"]["protocolVersion"], "2025-03-26");
    assert_eq!(said.iter().filter(|message| message["id"].is_null() && message.get("error").is_some()).count(), 2);
    assert_eq!((&of(json!("a"))["result"], &of(json!("b"))["result"]), (&json!({}), &json!({})));
    let result = &of(json!(3))["result"];
    assert!(text(result).contains("done") && result["isError"] == false, "{result}");
    // A data directory of its own, by the working directory.
    let places = std::fs::read_dir(home.path().join(".local/share/simse/embedded")).unwrap().count();
    assert_eq!(places, 1);
}
