//! simse as an MCP server in 2026-07-28: requests without a session, questions that end them, and what is refused.

use serde_json::{Value, json};
use simse::protocol::PermissionPolicy;
use simse::server::ListenOptions;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};

use crate::support::binary::simse;
use crate::support::house::House;
use crate::support::http::{Reply, Request, request, within};

const BOTH: &str = "application/json, text/event-stream";
const MODERN: &str = "2026-07-28";

fn said(capabilities: &Value) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": { "name": "modern", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    })
}

/// A request as a good client sends it.
fn asks(house: &House, method: &str, mut params: Value) -> Request {
    if params.get("_meta").is_none() {
        params["_meta"] = said(&json!({ "elicitation": {} }));
    }
    let message = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
    let post = request(house.address, "POST", "/mcp").header("Accept", BOTH).header("MCP-Protocol-Version", MODERN);
    let post = post.header("Mcp-Method", method);
    let name = params.get("name").or_else(|| params.get("uri")).and_then(Value::as_str);
    let post = match name.filter(|_| method != "completion/complete") {
        Some(name) => post.header("Mcp-Name", name),
        None => post,
    };
    post.json(&message)
}

async fn ask(house: &House, method: &str, params: Value) -> Reply {
    within(asks(house, method, params).send(house.address)).await
}

/// The answer, also where it ends a stream.
fn answer(reply: &Reply) -> Value {
    let text = String::from_utf8_lossy(&reply.body);
    let last = text.lines().rev().find_map(|line| line.strip_prefix("data: ")).unwrap_or(&text);
    serde_json::from_str(last).unwrap_or_else(|e| panic!("{e}: {text}"))
}

#[tokio::test]
async fn a_question_ends_the_request_and_its_answer_comes_with_the_next() {
    let house = House::with(ListenOptions::default(), |_| {}).await;
    let found = answer(&ask(&house, "server/discover", json!({})).await)["result"].clone();
    assert_eq!(found["supportedVersions"][0], MODERN, "{found}");
    let call = json!({ "name": "bash", "arguments": { "command": "echo out" } });
    let asked = answer(&ask(&house, "tools/call", call.clone()).await)["result"].clone();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let (name, question) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(question["method"], "elicitation/create", "{question}");
    let state = asked["requestState"].as_str().unwrap();
    let yes = json!({ name: { "action": "accept", "content": { "decision": "allow" } } });
    let again = |state: &str, answers: &Value, command: &str| {
        json!({
            "name": "bash", "arguments": { "command": command }, "inputResponses": answers, "requestState": state,
        })
    };
    // Not under another name, not for another call, not by another client, and not with what is no answer.
    for params in
        [again("x", &yes, "echo out"), again(state, &yes, "echo other"), again(state, &json!({ name: 1 }), "echo out")]
    {
        let refused = ask(&house, "tools/call", params).await;
        assert_eq!((refused.status, answer(&refused)["error"]["code"].as_i64()), (400, Some(-32602)));
    }
    let other = asks(&house, "tools/call", again(state, &yes, "echo out")).header("X-Client-ID", "other");
    assert_eq!(other.send(house.address).await.status, 400);
    // Without its answer the question is put again, under a new name.
    let unanswered = answer(&ask(&house, "tools/call", again(state, &json!({}), "echo out")).await)["result"].clone();
    assert_eq!(unanswered["inputRequests"], asked["inputRequests"]);
    let state = unanswered["requestState"].as_str().unwrap();
    let done = answer(&ask(&house, "tools/call", again(state, &yes, "echo out")).await)["result"].clone();
    assert_eq!((done["resultType"].as_str(), done["content"][0]["text"].as_str()), (Some("complete"), Some("out\n")));
    let once_more = ask(&house, "tools/call", again(state, &yes, "echo out")).await;
    assert_eq!(once_more.status, 400, "a name is good once");
    // A client that cannot be asked is not, and its call runs in the session of its like.
    let cannot = json!({ "name": "fs_list", "arguments": {}, "_meta": said(&json!({})) });
    assert_eq!(answer(&ask(&house, "tools/call", cannot).await)["result"]["isError"], false);
    let sessions = house.call("GET", "/sessions", None).await.json();
    let titles: Vec<_> =
        sessions["items"].as_array().unwrap().iter().map(|session| session["title"].as_str()).collect();
    assert_eq!(titles, [Some("MCP: modern 1"), Some("MCP: modern 1")]);
    house.close().await;
}

#[tokio::test]
async fn a_request_and_its_headers_say_the_same() {
    let house = House::with(ListenOptions::default(), |_| {}).await;
    let list = || asks(&house, "tools/list", json!({}));
    let call = || asks(&house, "tools/call", json!({ "name": "fs_list", "arguments": {} }));
    let bare = |params: Value| asks(&house, "tools/list", json!({ "_meta": params }));
    let version = "io.modelcontextprotocol/protocolVersion";
    let mut strange = said(&json!({}));
    strange[version] = "2099-01-01".into();
    #[rustfmt::skip]
    let table = [
        ("all right", list(), 200, 0),
        ("no version in the header", list().without("MCP-Protocol-Version"), 400, -32020),
        ("another version in the header", list().without("MCP-Protocol-Version").header("MCP-Protocol-Version", "2025-11-25"), 400, -32020),
        ("a strange version", bare(strange).without("MCP-Protocol-Version").header("MCP-Protocol-Version", "2099-01-01"), 400, -32022),
        ("no method in the header", list().without("Mcp-Method"), 400, -32020),
        ("another method", list().without("Mcp-Method").header("Mcp-Method", "TOOLS/LIST"), 400, -32020),
        ("no name", call().without("Mcp-Name"), 400, -32020),
        ("another name", call().without("Mcp-Name").header("Mcp-Name", "bash"), 400, -32020),
        ("an encoded name", call().without("Mcp-Name").header("Mcp-Name", "=?base64?ZnNfbGlzdA==?="), 200, 0),
        ("nothing said", bare(json!({})), 400, -32602),
        ("what is gone", asks(&house, "ping", json!({})), 404, -32601),
        ("no such method", asks(&house, "no/such", json!({})), 404, -32601),
        ("no such resource", asks(&house, "resources/read", json!({ "uri": "simse://nothing" })), 200, -32602),
    ];
    for (what, request, status, code) in table {
        let reply = within(request.send(house.address)).await;
        let told = answer(&reply);
        assert_eq!((reply.status, told["error"]["code"].as_i64().unwrap_or(0)), (status, code), "{what}: {told}");
        assert_eq!(told["id"], 7, "{what}");
    }
    let listed = answer(&ask(&house, "tools/list", json!({})).await)["result"].clone();
    assert_eq!((listed["ttlMs"].as_u64(), listed["cacheScope"].as_str()), (Some(5_000), Some("private")));
    assert_eq!(listed["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "simse");
    house.close().await;
}

#[tokio::test]
async fn who_listens_is_told_what_it_asked_for_and_goes_with_its_line() {
    let house = House::with(ListenOptions::default(), |_| {}).await;
    let filter = json!({ "notifications": { "resourceSubscriptions": ["simse://sessions", "simse://none"] } });
    let mut stream = within(asks(&house, "subscriptions/listen", filter).open(house.address)).await;
    let message = async |stream: &mut crate::support::http::Stream| -> Value {
        let frame = within(stream.raw_frame()).await.unwrap();
        serde_json::from_str(frame.lines().find_map(|line| line.strip_prefix("data: ")).unwrap()).unwrap()
    };
    let first = message(&mut stream).await;
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(first["params"]["notifications"], json!({ "resourceSubscriptions": ["simse://sessions"] }));
    house.session(json!({})).await;
    let told = message(&mut stream).await;
    assert_eq!(
        (told["method"].as_str(), &told["params"]["uri"]),
        (Some("notifications/resources/updated"), &json!("simse://sessions"))
    );
    assert_eq!(told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 7);
    drop(stream);
    let clients = async || {
        let health = house.call("GET", "/health?verbose=true", None).await.json();
        let limits = health["limits"].as_array().unwrap().clone();
        limits.iter().find(|limit| limit["name"] == "mcpClients").unwrap()["used"].as_u64()
    };
    within(async {
        while clients().await != Some(0) {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    house.close().await;
}

#[tokio::test]
async fn a_line_that_breaks_takes_its_call_back() {
    let house = House::with(ListenOptions::default(), |settings| {
        settings.permissions.default_policy = PermissionPolicy::Allow;
        settings.permissions.rules.clear();
    })
    .await;
    let mut meta = said(&json!({}));
    meta["progressToken"] = "p".into();
    let call = json!({ "name": "bash", "arguments": { "command": "echo begun; sleep 300" }, "_meta": meta });
    let mut stream = within(asks(&house, "tools/call", call).open(house.address)).await;
    let begun = within(stream.raw_frame()).await.unwrap();
    assert!(begun.contains("notifications/progress"), "{begun}");
    drop(stream);
    let aborted = async || {
        let sessions = house.call("GET", "/sessions", None).await.json();
        let path = format!("/sessions/{}/history?events=true", sessions["items"][0]["sessionId"].as_str().unwrap());
        let events = house.call("GET", &path, None).await.json();
        events["items"].as_array().unwrap().iter().any(|event| event["type"] == "tool.call.error")
    };
    within(async {
        while !aborted().await {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    house.close().await;
}

/// `simse mcp`, as a client of this version talks to it.
struct Piped {
    _home: tempfile::TempDir,
    child: tokio::process::Child,
    input: Option<tokio::process::ChildStdin>,
    output: tokio::io::Lines<tokio::io::BufReader<tokio::process::ChildStdout>>,
}

impl Piped {
    fn open() -> Self {
        let home = tempfile::tempdir().unwrap();
        let work = home.path().join("work");
        std::fs::create_dir(&work).unwrap();
        let mut command = simse(home.path());
        command.arg("mcp").current_dir(&work).stdin(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = tokio::io::BufReader::new(child.stdout.take().unwrap()).lines();
        Self { input: child.stdin.take(), _home: home, child, output }
    }

    async fn say(&mut self, message: Value) {
        let line = format!("{message}\n");
        self.input.as_mut().unwrap().write_all(line.as_bytes()).await.unwrap();
    }

    async fn ask(&mut self, id: u64, method: &str, mut params: Value) {
        params["_meta"] = said(&json!({ "elicitation": {} }));
        self.say(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
    }

    async fn next(&mut self) -> Value {
        let line = within(self.output.next_line()).await.unwrap().expect("a line");
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"))
    }
}

#[tokio::test]
async fn a_pipe_speaks_it_beside_the_older_versions() {
    let mut pipe = Piped::open();
    pipe.ask(1, "server/discover", json!({})).await;
    let found = pipe.next().await["result"].clone();
    assert_eq!((&found["supportedVersions"][0], &found["resultType"]), (&json!(MODERN), &json!("complete")));
    // What is to be told is told under the name of the request that asked for it.
    pipe.ask(2, "subscriptions/listen", json!({ "notifications": { "resourcesListChanged": true } })).await;
    let heard = pipe.next().await;
    assert_eq!(heard["method"], "notifications/subscriptions/acknowledged", "{heard}");
    assert_eq!(heard["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 2);
    let call = json!({ "name": "bash", "arguments": { "command": "echo out" } });
    pipe.ask(3, "tools/call", call.clone()).await;
    // The session of the call is a new resource.
    let (mut told, mut asked) = (Value::Null, Value::Null);
    while told.is_null() || asked.is_null() {
        let message = pipe.next().await;
        if message["id"] == 3 { asked = message["result"].clone() } else { told = message }
    }
    assert_eq!(told["method"], "notifications/resources/list_changed", "{told}");
    assert_eq!(told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 2, "{told}");
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let name = asked["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let mut again = call;
    again["requestState"] = asked["requestState"].clone();
    again["inputResponses"] = json!({ name: { "action": "accept", "content": { "decision": "allow_always" } } });
    pipe.ask(4, "tools/call", again.clone()).await;
    let done = pipe.next().await;
    assert_eq!((&done["id"], &done["result"]["content"][0]["text"]), (&json!(4), &json!("out\n")), "{done}");
    pipe.ask(5, "tools/call", again).await;
    assert_eq!(pipe.next().await["error"]["code"], -32602, "a state is good once");
    // What this version has not, and one that nobody knows.
    pipe.ask(6, "ping", json!({})).await;
    assert_eq!(pipe.next().await["error"]["code"], -32601);
    let mut meta = said(&json!({}));
    meta["io.modelcontextprotocol/protocolVersion"] = "2099-01-01".into();
    pipe.say(json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": { "_meta": meta } })).await;
    let refused = pipe.next().await["error"].clone();
    assert_eq!((&refused["code"], &refused["data"]["supported"][0]), (&json!(-32022), &json!(MODERN)));
    pipe.ask(2, "tools/list", json!({})).await;
    assert_eq!(pipe.next().await["error"]["code"], -32600, "an id that is worked on");
    // An older client on the same pipe, and the end of what is listened to.
    let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {} });
    pipe.say(json!({ "jsonrpc": "2.0", "id": 8, "method": "initialize", "params": hello })).await;
    assert_eq!(pipe.next().await["result"]["protocolVersion"], "2025-11-25");
    drop(pipe.input.take());
    let last = pipe.next().await;
    assert_eq!((&last["id"], &last["result"]["resultType"]), (&json!(2), &json!("complete")), "{last}");
    assert!(within(pipe.output.next_line()).await.unwrap().is_none());
    assert!(within(pipe.child.wait()).await.unwrap().success());
}

#[tokio::test]
async fn what_is_taken_back_over_a_pipe_ends_and_says_no_more() {
    let mut pipe = Piped::open();
    pipe.ask(1, "subscriptions/listen", json!({ "notifications": { "toolsListChanged": true } })).await;
    assert_eq!(pipe.next().await["method"], "notifications/subscriptions/acknowledged");
    pipe.say(json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } })).await;
    // A call that waits for an answer which never comes is no reason to go on.
    pipe.ask(2, "tools/call", json!({ "name": "bash", "arguments": { "command": "true" } })).await;
    assert_eq!(pipe.next().await["result"]["resultType"], "input_required");
    drop(pipe.input.take());
    assert!(within(pipe.output.next_line()).await.unwrap().is_none(), "nothing more is said");
    assert!(within(pipe.child.wait()).await.unwrap().success());
}
