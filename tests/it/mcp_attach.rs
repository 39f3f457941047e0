//! `simse mcp --attach`: an MCP client over a pipe whose doings land in a server that runs, through restarts and silences of it.

use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

use crate::support::binary::{Serving, ended, simse};
use crate::support::http::within;

/// A client at the other end of the pipe.
struct Attached {
    child: Child,
    input: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    next: u64,
    /// Messages that were passed over.
    seen: Vec<Value>,
}

impl Attached {
    fn start(home: &TempDir, arguments: &[&str], token: Option<&str>) -> Self {
        let mut command = simse(home.path());
        command.arg("mcp").args(arguments).current_dir(home.path()).stdin(Stdio::piped());
        if let Some(token) = token {
            command.env("SIMSE_MCP_TOKEN", token);
        }
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, input, lines, next: 0, seen: Vec::new() }
    }

    async fn say(&mut self, message: &Value) {
        let input = self.input.as_mut().unwrap();
        input.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn begin(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        let message = json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params });
        self.say(&message).await;
        self.next
    }

    /// Reads up to a message that fits.
    async fn until(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = within(self.lines.next_line()).await.unwrap().expect("the pipe has ended");
            let message: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
            if fits(&message) {
                return message;
            }
            self.seen.push(message);
        }
    }

    async fn answer(&mut self, id: u64) -> Value {
        self.until(|message| message["id"] == id && message.get("method").is_none()).await
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params).await;
        self.answer(id).await
    }

    /// Begins a request of 2026-07-28, which says all by itself.
    async fn begin_alone(&mut self, method: &str, mut params: Value) -> u64 {
        params["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
        params["_meta"]["io.modelcontextprotocol/clientInfo"] = json!({ "name": "alone", "version": "1" });
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({ "elicitation": {} });
        self.begin(method, params).await
    }

    async fn ask_alone(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin_alone(method, params).await;
        self.answer(id).await
    }

    async fn greet(&mut self, capabilities: Value) -> Value {
        let about = json!({ "name": "led", "version": "1" });
        let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": about });
        let answer = self.ask("initialize", hello).await;
        self.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        answer
    }

    async fn call(&mut self, name: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({ "name": name, "arguments": arguments })).await["result"].clone()
    }

    /// Closes the input and gives the code, and what was said on the error stream.
    async fn end(mut self) -> (Option<i32>, String) {
        drop(self.input.take());
        while let Ok(Some(line)) = within(self.lines.next_line()).await {
            serde_json::from_str::<Value>(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
        }
        let (code, _, said) = ended(self.child).await;
        (code, said)
    }
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"))
}

#[tokio::test]
async fn what_a_client_does_lands_in_the_server_that_runs() {
    let home = tempfile::tempdir().unwrap();
    let serving = Serving::start(&home, &[]).await;
    let url = format!("http://{}", serving.address);
    // The data directory's token goes to its server by itself.
    let mut client = Attached::start(&home, &["--attach", &url], None);
    let greeted = client.greet(json!({ "elicitation": {} })).await;
    assert_eq!(greeted["result"]["serverInfo"]["name"], "simse", "{greeted}");
    // A question goes to the client, under a name of the bridge's, and its answer back.
    let command = json!({ "command": "echo out" });
    let id = client.begin("tools/call", json!({ "name": "bash", "arguments": command })).await;
    let asked = client.until(|message| message["method"] == "elicitation/create").await;
    assert!(asked["id"].as_str().unwrap().starts_with("1."), "{asked}");
    let yes = json!({ "action": "accept", "content": { "decision": "allow" } });
    // One for a server that was: it goes nowhere.
    client.say(&json!({ "jsonrpc": "2.0", "id": "0.1", "result": yes })).await;
    client.say(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": yes })).await;
    assert_eq!(text(&client.answer(id).await["result"]), "out\n");
    let sessions = serving.request("GET", "/sessions").send(serving.address).await.json();
    assert_eq!(sessions["items"][0]["title"], "MCP: led 1", "{sessions}");
    let own = sessions["items"][0]["sessionId"].as_str().unwrap().to_owned();
    // One that says where it works: there its session is, and goes where it goes, as far as the server allows.
    for name in ["one", "two"] {
        std::fs::create_dir(home.path().join(name)).unwrap();
    }
    let uri = |name: &str| format!("file://{}", home.path().join(name).display());
    let mut roaming = Attached::start(&home, &["--attach", &url], None);
    roaming.greet(json!({ "roots": { "listChanged": true } })).await;
    let id = roaming.begin("tools/call", json!({ "name": "fs_list", "arguments": {} })).await;
    let asked = roaming.until(|message| message["method"] == "roots/list").await;
    let roots = json!({ "roots": [{ "uri": "file:///" }, { "uri": uri("one") }] });
    roaming.say(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": roots })).await;
    assert_eq!(roaming.answer(id).await["result"]["isError"], false);
    roaming.say(&json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed" })).await;
    let asked = roaming.until(|message| message["method"] == "roots/list").await;
    let works_in = async || {
        let sessions = serving.request("GET", "/sessions").send(serving.address).await.json();
        std::path::PathBuf::from(sessions["items"][0]["workingDirectory"].as_str().unwrap())
    };
    assert_eq!(works_in().await, home.path().join("one").canonicalize().unwrap());
    let roots = json!({ "roots": [{ "uri": uri("two") }] });
    roaming.say(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": roots })).await;
    within(async {
        while works_in().await != home.path().join("two").canonicalize().unwrap() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(roaming.end().await.0, Some(0));
    // A second one, without an address, in the session of the first.
    let mut second = Attached::start(&home, &["--attach", "--session", &own], None);
    second.greet(json!({ "elicitation": {} })).await;
    let listed = second.call("session_events", json!({ "sessionId": own, "types": ["tool.call.end"] })).await;
    assert_eq!(listed["structuredContent"]["items"].as_array().map(Vec::len), Some(1), "{listed}");
    let id = second.begin("tools/call", json!({ "name": "fs_list", "arguments": {} })).await;
    assert_eq!(second.answer(id).await["result"]["isError"], false);
    let events = serving.request("GET", &format!("/sessions/{own}/history?events=true&limit=1000"));
    let events = events.send(serving.address).await.json();
    let ended = events["items"].as_array().unwrap().iter().filter(|event| event["type"] == "tool.call.end").count();
    assert_eq!(ended, 2, "both ran there");
    for client in [client, second] {
        let (code, said) = client.end().await;
        assert_eq!(code, Some(0), "{said}");
    }
    let left = serving.request("GET", "/health?verbose=true").send(serving.address).await.json();
    let left = left["limits"].as_array().unwrap().iter().find(|limit| limit["name"] == "mcpClients").unwrap().clone();
    assert_eq!(left["used"], 0, "they have said that they are gone: {left}");
    serving.stop_well().await;
}

#[tokio::test]
async fn what_cannot_be_attached_to_says_why() {
    let home = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let elsewhere = other.path().join("data").display().to_string();
    let serving = Serving::start(&home, &[]).await;
    let url = format!("http://{}", serving.address);
    let open = other.path().join("open");
    std::fs::write(&open, "word").unwrap();
    let open = open.display().to_string();
    let none = "ses_01234567890123456789012345";
    #[rustfmt::skip]
    let table: [(&[&str], Option<&str>, i32, &str); 7] = [
        (&["--attach", "ftp://x"], None, 2, "http://HOST:PORT"),
        (&["--attach", &url, "--cwd", "/"], None, 2, "--cwd is of no use"),
        (&["--attach", "--data-dir", &elsewhere], None, 3, "no server runs"),
        (&["--attach", &url, "--token-file", &open], None, 2, "other users"),
        (&["--attach", &url, "--data-dir", &elsewhere], None, 3, "401"),
        (&["--attach", &url, "--data-dir", &elsewhere], Some("wrong"), 3, "401"),
        (&["--attach", &url, "--session", none], None, 3, none),
    ];
    for (arguments, token, want, why) in table {
        let mut client = Attached::start(&home, arguments, token);
        if want == 3 && why != "no server runs" {
            let id = client.begin("initialize", json!({ "protocolVersion": "2025-11-25", "capabilities": {} })).await;
            let refused = client.answer(id).await;
            assert!(refused["error"]["message"].as_str().unwrap().contains(why), "{arguments:?}: {refused}");
        }
        let (code, said) = client.end().await;
        assert_eq!(code, Some(want), "{arguments:?}: {said}");
        assert!(said.contains(why), "{arguments:?}: {said}");
    }
    serving.stop_well().await;
}

/// The server is killed and started again: a call that was lost says so, and the next one is done, by a client that knows of nothing.
#[tokio::test]
async fn a_server_that_comes_back_is_greeted_again() {
    let home = tempfile::tempdir().unwrap();
    let config = home.path().join("config.toml");
    std::fs::write(&config, "[[permissions.rules]]\ntool = \"bash\"\npolicy = \"allow\"\n").unwrap();
    let (config, socket) = (config.display().to_string(), home.path().join("socket").display().to_string());
    let serving = Serving::start(&home, &["--socket", &socket, "--config", &config]).await;
    let mut client = Attached::start(&home, &["--attach", &format!("unix:{socket}")], None);
    client.greet(json!({})).await;
    client.ask("resources/subscribe", json!({ "uri": "simse://sessions" })).await;
    let bash = |command: &str| json!({ "name": "bash", "arguments": { "command": command } });
    let lost = client.begin("tools/call", bash("touch begun; sleep 300")).await;
    within(async {
        while !home.path().join("begun").exists() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    serving.signal(rustix::process::Signal::KILL);
    drop(serving.stop().await);
    let again = Serving::start(&home, &["--socket", &socket, "--config", &config]).await;
    let answer = client.answer(lost).await;
    assert!(answer["error"]["message"].as_str().unwrap().contains("simse server"), "{answer}");
    assert_eq!(text(&client.call("bash", json!({ "command": "echo again" })).await), "again\n");
    // Its stream is open again, and its subscription counts: a new session is told.
    let told = |message: &Value| message["method"] == "notifications/resources/updated";
    if !client.seen.iter().any(told) {
        client.until(told).await;
    }
    let (code, said) = client.end().await;
    assert_eq!(code, Some(0), "{said}");
    again.stop_well().await;
}

async fn there(path: &std::path::Path) {
    within(async {
        while !path.exists() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn requests_that_say_all_by_themselves_are_led_on_beside_the_older_ones() {
    let home = tempfile::tempdir().unwrap();
    let config = home.path().join("config.toml");
    std::fs::write(&config, "[[permissions.rules]]\ntool = \"bash\"\npolicy = \"allow\"\n").unwrap();
    let (config, socket) = (config.display().to_string(), home.path().join("socket").display().to_string());
    let serving = Serving::start(&home, &["--socket", &socket, "--config", &config, "--mcp-fixtures"]).await;
    let mut client = Attached::start(&home, &["--attach", &format!("unix:{socket}")], None);
    let found = client.ask_alone("server/discover", json!({})).await["result"].clone();
    assert_eq!((&found["supportedVersions"][0], &found["resultType"]), (&json!("2026-07-28"), &json!("complete")));
    // What a header has to repeat: also a name that is no text of a header, and an argument of a tool that was never listed.
    let strange = client.ask_alone("resources/read", json!({ "uri": "simse://é" })).await;
    assert_eq!(strange["error"]["code"], -32602, "{strange}");
    let call = json!({ "name": "test_custom_header", "arguments": { "region": "é west " } });
    let called = client.ask_alone("tools/call", call).await;
    assert_eq!(called["result"]["resultType"], "complete", "{called}");
    // What the server refuses it refuses in its own words: the codes tell a client what to do.
    let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2099-01-01", "io.modelcontextprotocol/clientCapabilities": {} });
    for (method, meta, code) in [("tools/list", meta, -32022), ("no/such", Value::Null, -32601)] {
        let id = match meta.is_null() {
            true => client.begin_alone(method, json!({})).await,
            false => client.begin(method, json!({ "_meta": meta })).await,
        };
        assert_eq!(client.answer(id).await["error"]["code"], code, "{method}");
    }
    // A question ends a request, and its answer comes with the next.
    let call = json!({ "name": "fs_write", "arguments": { "path": "one.txt", "content": "one" } });
    let asked = client.ask_alone("tools/call", call.clone()).await["result"].clone();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let name = asked["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let mut again = call;
    again["requestState"] = asked["requestState"].clone();
    again["inputResponses"] = json!({ name: { "action": "accept", "content": { "decision": "allow" } } });
    assert_eq!(client.ask_alone("tools/call", again).await["result"]["isError"], false);
    assert_eq!(std::fs::read_to_string(home.path().join("one.txt")).unwrap(), "one");
    // What is told meanwhile comes before the answer; what is taken back ends, and says no more.
    let call = json!({ "name": "bash", "arguments": { "command": "echo out; touch begun; sleep 300" }, "_meta": { "progressToken": "p" } });
    let taken = client.begin_alone("tools/call", call).await;
    let told = client.until(|message| message["method"] == "notifications/progress").await;
    assert_eq!(told["params"]["progressToken"], "p", "{told}");
    there(&home.path().join("begun")).await;
    client
        .say(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": taken } }))
        .await;
    let own = serving.request("GET", "/sessions").send(serving.address).await.json();
    let own = own["items"][0]["sessionId"].as_str().unwrap().to_owned();
    let path = format!("/sessions/{own}/history?events=true&limit=1000");
    within(async {
        loop {
            let events = serving.request("GET", &path).send(serving.address).await.json();
            if events["items"].as_array().unwrap().iter().any(|event| event["type"] == "tool.call.error") {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    // One of an older version, on the same pipe.
    client.greet(json!({})).await;
    assert_eq!(client.call("fs_list", json!({})).await["isError"], false);
    // Who listens hears the old server and the new one, and the end.
    let filter =
        json!({ "notifications": { "resourcesListChanged": true, "resourceSubscriptions": ["simse://sessions"] } });
    let listening = client.begin_alone("subscriptions/listen", filter).await;
    let first = client.until(|message| message["method"] == "notifications/subscriptions/acknowledged").await;
    assert_eq!(first["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], listening);
    let double = json!({ "jsonrpc": "2.0", "id": listening, "method": "tools/list",
        "params": { "_meta": { "io.modelcontextprotocol/protocolVersion": "2026-07-28" } } });
    client.say(&double).await;
    assert_eq!(client.until(|message| message["id"] == listening).await["error"]["code"], -32600);
    let call = json!({ "name": "bash", "arguments": { "command": "touch begun-too; sleep 300" } });
    let lost = client.begin_alone("tools/call", call).await;
    there(&home.path().join("begun-too")).await;
    client.seen.clear();
    serving.signal(rustix::process::Signal::KILL);
    drop(serving.stop().await);
    let again = Serving::start(&home, &["--socket", &socket, "--config", &config]).await;
    let answer = client.answer(lost).await;
    assert!(answer["error"]["message"].as_str().unwrap().contains("may have been done"), "{answer}");
    let tagged = |message: &Value| {
        let is_news = message["method"] == "notifications/resources/updated";
        is_news && message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == listening
    };
    if !client.seen.iter().any(tagged) {
        client.until(tagged).await;
    }
    let acknowledged = |message: &Value| message["method"] == "notifications/subscriptions/acknowledged";
    assert!(!client.seen.iter().any(acknowledged), "said once");
    assert!(!client.seen.iter().any(|message| message["id"] == taken), "nothing more of what was taken back");
    drop(client.input.take());
    let last = client.answer(listening).await;
    assert_eq!(last["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"], listening, "{last}");
    let (code, said) = client.end().await;
    assert_eq!(code, Some(0), "{said}");
    again.stop_well().await;
}

/// Whatever the other side does, a request has an answer.
#[tokio::test]
async fn what_http_says_instead_of_an_answer_becomes_an_error() {
    let home = tempfile::tempdir().unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let stream = |text: &str| format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n{text}");
    let news = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}"#;
    #[rustfmt::skip]
    let table = [
        ("HTTP/1.1 401 No\r\ncontent-type: application/json\r\ncontent-length: 33\r\n\r\n{\"error\":{\"message\":\"who is it\"}}".to_owned(), -32600, "who is it"),
        ("HTTP/1.1 500 No\r\ncontent-length: 4\r\n\r\nbrok".to_owned(), -32603, "status 500: brok"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nword".to_owned(), -32603, "word"),
        ("HTTP/1.1 202 OK\r\ncontent-length: 0\r\n\r\n".to_owned(), -32603, "without one"),
        (stream(&format!("data: {news}\n\n")), -32603, "without one"),
        (stream("data: {\"jsonrpc\":\"2.0\",\"id\":99,\"result\":{}}\n\n"), -32603, "without one"),
        ("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 99\r\n\r\n".to_owned(), -32603, "may have been done"),
        (String::new(), -32603, "may have been done"),
    ];
    let answers: Vec<String> = table.iter().map(|row| row.0.clone()).collect();
    let server = tokio::spawn(async move {
        use tokio::io::AsyncReadExt as _;
        for answer in answers {
            let (mut line, _) = listener.accept().await.unwrap();
            let (mut asked, mut piece) = (Vec::new(), [0; 4096]);
            while !asked.windows(7).any(|end| end == b"fs_list") || !asked.ends_with(b"}") {
                let read = line.read(&mut piece).await.unwrap();
                assert!(read > 0);
                asked.extend_from_slice(&piece[..read]);
            }
            line.write_all(answer.as_bytes()).await.unwrap();
            line.shutdown().await.unwrap();
        }
    });
    let mut client = Attached::start(&home, &["--attach", &url], Some("token"));
    for (_, code, words) in table {
        let call = json!({ "name": "fs_list", "arguments": {} });
        let answer = client.ask_alone("tools/call", call).await["error"].clone();
        assert_eq!(answer["code"], code, "{words}: {answer}");
        assert!(answer["message"].as_str().unwrap().contains(words), "{words}: {answer}");
    }
    assert_eq!(client.seen.len(), 1, "what was said before: {:?}", client.seen);
    within(server).await.unwrap();
    let (code, said) = client.end().await;
    assert_eq!(code, Some(0), "{said}");
}
