//! simse as an ACP agent, raw: what no well-behaved client sends, clients that go, streams that break, and who may see what.

use std::time::Duration;

use serde_json::{Value, json};
use simse::app::{App, Caller, Extras};
use simse::config::{Settings, Storage};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use super::support::binary::{Serving, ended, simse};
use super::support::house::{Does, House};
use super::support::http::{PATIENCE, Reply, Stream, request, within};
use super::support::socket::Socket;

fn ask(id: impl Into<Value>, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id.into(), "method": method, "params": params })
}

fn tell(method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": method, "params": params })
}

fn prompt(id: u64, session: &str, words: &str) -> Value {
    ask(id, "session/prompt", json!({ "sessionId": session, "prompt": [{ "type": "text", "text": words }] }))
}

/// A client on a WebSocket, initialized. Messages that were not waited for are kept.
struct Client {
    socket: Socket,
    seen: Vec<Value>,
}

impl Client {
    async fn open(house: &House) -> Self {
        let socket = Socket::open_path(house.address, "/acp", "").await.unwrap();
        let mut client = Self { socket, seen: Vec::new() };
        client.say(&ask(0, "initialize", json!({ "protocolVersion": 1 }))).await;
        assert_eq!(client.answer(0).await["result"]["protocolVersion"], 1);
        client
    }

    async fn say(&mut self, message: &Value) {
        self.socket.say(message).await;
    }

    /// The next message that is like that; those before it are kept.
    async fn next(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let message = self.socket.next().await;
            self.seen.push(message.clone());
            if wanted(&message) {
                return message;
            }
        }
    }

    async fn answer(&mut self, id: impl Into<Value>) -> Value {
        let id = id.into();
        self.next(|message| message.get("method").is_none() && message["id"] == id).await
    }

    async fn session(&mut self, house: &House) -> String {
        self.say(&ask("new", "session/new", json!({ "cwd": house.work.path(), "mcpServers": [] }))).await;
        let answer = self.answer("new").await;
        answer["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    /// What was told of messages so far.
    fn text(&self) -> String {
        let chunks = self.seen.iter().map(|message| &message["params"]["update"]);
        let chunks = chunks.filter(|update| update["sessionUpdate"] == "agent_message_chunk");
        chunks.filter_map(|update| update["content"]["text"].as_str()).collect()
    }
}

#[tokio::test]
async fn what_is_no_message_is_answered_and_ends_nothing() {
    let house = House::open().await;
    let mut socket = Socket::open_path(house.address, "/acp", "").await.unwrap();
    let open = json!({ "cwd": house.work.path(), "mcpServers": [] });
    // Before `initialize` nothing is done.
    socket.say(&ask(1, "session/new", open.clone())).await;
    let refused = socket.next().await;
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(1), &json!(-32600)), "{refused}");
    socket
        .say(&ask(2, "initialize", json!({ "protocolVersion": 99, "clientCapabilities": { "unheard": { "of": 1 } } })))
        .await;
    assert_eq!(socket.next().await["result"]["protocolVersion"], 1);
    #[rustfmt::skip]
    let table = [
        ("{", Value::Null, -32700), ("hello", Value::Null, -32700), ("[]", Value::Null, -32600), ("1", Value::Null, -32600),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"session/list"}]"#, Value::Null, -32600),
        (r#"{"id":3,"method":"session/list"}"#, json!(3), -32600),
        (r#"{"jsonrpc":"2.0","id":4,"method":"initialize","params":{"protocolVersion":1}}"#, json!(4), -32600),
        (r#"{"jsonrpc":"2.0","id":5,"method":"session/set_model","params":{}}"#, json!(5), -32601),
        (r#"{"jsonrpc":"2.0","id":"6","method":"session/prompt","params":{"sessionId":"ses_no","prompt":[{"type":"text","text":"x"}]}}"#, json!("6"), -32002),
        (r#"{"jsonrpc":"2.0","id":7,"method":"session/load","params":{"sessionId":"not an id","cwd":"/","mcpServers":[]}}"#, json!(7), -32002),
        (r#"{"jsonrpc":"2.0","id":8,"method":"session/new","params":{"cwd":1}}"#, json!(8), -32602),
        (r#"{"jsonrpc":"2.0","id":9,"method":"session/new","params":{"cwd":"/elsewhere","mcpServers":[]}}"#, json!(9), -32602),
        (r#"{"jsonrpc":"2.0","id":10,"method":"authenticate","params":{"methodId":"x"}}"#, json!(10), -32602),
        (r#"{"jsonrpc":"2.0","id":11,"method":"session/list","params":{"cursor":"x"}}"#, json!(11), -32602),
    ];
    for (text, id, code) in table {
        socket.frame(1, text.as_bytes()).await;
        let answer = socket.next().await;
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &json!(code)), "{text}: {answer}");
    }
    // Told things that nobody understands are left alone, and so are answers that nobody waits for.
    for message in [tell("session/unheard", json!({})), tell("session/cancel", json!({ "sessionId": "ses_no" }))] {
        socket.say(&message).await;
    }
    socket.say(&json!({ "jsonrpc": "2.0", "id": 99, "result": {} })).await;
    socket.say(&tell("$/cancel_request", json!({ "requestId": 77 }))).await;
    socket.frame(2, b"{}").await;
    assert_eq!(socket.next().await["error"]["code"], -32602, "a binary frame");
    socket.say(&ask(12, "session/new", open)).await;
    assert!(socket.next().await["result"]["sessionId"].is_string());
    house.close().await;
}

#[tokio::test]
async fn prompts_wait_for_each_other_and_ids_are_their_own() {
    let house = House::open().await;
    house.round(&[Does::Waits, Does::Says("one")]);
    house.round(&[Does::Says("two")]);
    let mut client = Client::open(&house).await;
    let session = client.session(&house).await;
    client.say(&prompt(1, &session, "first")).await;
    client.say(&prompt(2, &session, "second")).await;
    client.say(&prompt(1, &session, "the same id")).await;
    let twice = client.next(|message| message.get("error").is_some()).await;
    assert_eq!((&twice["id"], &twice["error"]["code"]), (&json!(1), &json!(-32600)));
    house.go_on();
    assert_eq!(client.answer(1).await["result"]["stopReason"], "end_turn");
    assert_eq!(client.text(), "one");
    assert_eq!(client.answer(2).await["result"]["stopReason"], "end_turn");
    assert_eq!(client.text(), "onetwo");
    house.close().await;
}

#[tokio::test]
async fn a_prompt_that_is_cancelled_while_it_waits_never_begins() {
    let house = House::open().await;
    house.round(&[Does::Waits, Does::Says("one")]);
    house.round(&[Does::Says("two")]);
    let mut client = Client::open(&house).await;
    let session = client.session(&house).await;
    client.say(&prompt(1, &session, "first")).await;
    client.say(&prompt(2, &session, "second")).await;
    client.say(&tell("$/cancel_request", json!({ "requestId": 2 }))).await;
    assert_eq!(client.answer(2).await["error"]["code"], -32800, "it is over while the first one runs");
    house.go_on();
    assert_eq!(client.answer(1).await["result"]["stopReason"], "end_turn");
    client.say(&prompt(3, &session, "third")).await;
    assert_eq!(client.answer(3).await["result"]["stopReason"], "end_turn");
    assert_eq!(client.text(), "onetwo", "nobody was asked the second");
    // All that the client wants of the session, waiting or not.
    house.round(&[Does::Waits, Does::Says("four")]);
    house.round(&[Does::Says("six")]);
    client.say(&prompt(4, &session, "fourth")).await;
    client.say(&prompt(5, &session, "fifth")).await;
    house.until_left(1).await;
    client.say(&tell("session/cancel", json!({ "sessionId": session }))).await;
    // The newest first, so that none begins behind another's end.
    for id in [5, 4] {
        assert_eq!(client.answer(id).await["result"]["stopReason"], "cancelled", "{id}");
    }
    client.say(&prompt(6, &session, "sixth")).await;
    assert_eq!(client.answer(6).await["result"]["stopReason"], "end_turn");
    assert_eq!(client.text(), "onetwosix");
    let seen = super::acp::events(&house, &session).await;
    let begun = seen.iter().filter(|(kind, _)| kind == "session.prompt").count();
    assert_eq!(begun, 4, "the second and the fifth never began");
    house.close().await;
}

#[tokio::test]
async fn an_agents_options_are_ours_to_show_and_to_set_and_there_is_nothing_to_log_out_of() {
    let house = House::with(simse::server::ListenOptions::default(), |settings| {
        settings.acp_servers = vec![super::support::agent::settings("a", "options modes=plan,act")];
    })
    .await;
    let mut client = Client::open(&house).await;
    let session = client.session(&house).await;
    client.say(&ask(1, "logout", json!({}))).await;
    assert_eq!(client.answer(1).await["result"], json!({}));
    let set = |id: u64, option: &str, value: Value| {
        ask(id, "session/set_config_option", json!({ "sessionId": session, "configId": option, "value": value }))
    };
    client.say(&set(2, "agent", "a".into())).await;
    let answer = client.answer(2).await;
    assert!(answer["result"]["configOptions"].as_array().is_some(), "{answer}");
    client.say(&set(3, "agent:effort", "high".into())).await;
    assert_eq!(client.answer(3).await["error"]["code"], -32602, "it has said nothing yet");
    client.say(&prompt(4, &session, "say one")).await;
    let update = client.next(|message| message["params"]["update"]["sessionUpdate"] == "config_option_update").await;
    let shown = |options: &Value, id: &str| {
        let all = options.as_array().unwrap();
        all.iter().find(|option| option["id"] == id).cloned().unwrap_or_default()
    };
    let options = &update["params"]["update"]["configOptions"];
    let effort = shown(options, "agent:effort");
    assert_eq!((&effort["type"], &effort["currentValue"]), (&json!("select"), &json!("low")));
    assert_eq!((&effort["category"], effort["options"].as_array().unwrap().len()), (&json!("thought_level"), 2));
    let fast = shown(options, "agent:fast");
    assert_eq!((&fast["type"], &fast["currentValue"]), (&json!("boolean"), &json!(false)));
    assert_eq!(shown(options, "agent:mode")["currentValue"], "plan");
    assert_eq!(shown(options, "mode")["currentValue"], "ask", "ours is another one");
    assert_eq!(client.answer(4).await["result"]["stopReason"], "end_turn");
    for (id, option, value) in [(5, "agent:effort", json!("high")), (6, "agent:fast", json!(true))] {
        client.say(&set(id, option, value.clone())).await;
        assert_eq!(shown(&client.answer(id).await["result"]["configOptions"], option)["currentValue"], value);
    }
    for (id, option, value) in
        [(7, "agent:effort", json!("x")), (8, "agent:fast", json!("on")), (9, "agent:no", json!(1))]
    {
        client.say(&set(id, option, value)).await;
        assert_eq!(client.answer(id).await["error"]["code"], -32602, "{option}");
    }
    client.say(&prompt(10, &session, "facts")).await;
    assert_eq!(client.answer(10).await["result"]["stopReason"], "end_turn");
    let said = client.text();
    let told: Value = serde_json::from_str(said.strip_prefix("one").unwrap()).unwrap();
    assert_eq!(told["options"], json!({ "effort": "high", "fast": true }));
    house.close().await;
}

#[tokio::test]
async fn a_client_that_goes_leaves_its_turn_to_the_log() {
    let house = House::open().await;
    house.round(&[Does::Says("here "), Does::Waits, Does::Says("and there")]);
    let mut client = Client::open(&house).await;
    let session = client.session(&house).await;
    client.say(&prompt(1, &session, "go")).await;
    client.next(|message| message["params"]["update"]["sessionUpdate"] == "agent_message_chunk").await;
    drop(client);
    let mut other = Client::open(&house).await;
    let load = json!({ "sessionId": session, "cwd": house.work.path(), "mcpServers": [] });
    other.say(&ask(1, "session/load", load)).await;
    other.answer(1).await;
    assert_eq!(other.text(), "here ");
    house.go_on();
    other.next(|message| message["params"]["update"]["sessionUpdate"] == "session_info_update").await;
    assert_eq!(other.text(), "here and there");
    house.close().await;
}

#[tokio::test]
async fn a_question_is_put_to_who_comes_later_and_what_is_no_answer_is_a_no() {
    let house = House::open().await;
    let write = json!({ "path": "x", "content": "y" });
    for _ in 0..3 {
        house.round(&[Does::Calls("fs_write", write.clone())]);
        house.round(&[Does::Says("so")]);
    }
    let mut client = Client::open(&house).await;
    let session = client.session(&house).await;
    let answers = [
        json!({ "outcome": { "outcome": "selected", "optionId": "unheard-of" } }),
        json!({ "outcome": { "outcome": "cancelled" } }),
    ];
    for (number, answer) in (1..).zip(answers) {
        client.say(&prompt(number, &session, "write")).await;
        let asked = client.next(|message| message["method"] == "session/request_permission").await;
        client.say(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": answer })).await;
        assert_eq!(client.answer(number).await["result"]["stopReason"], "end_turn");
    }
    client.say(&prompt(9, &session, "write")).await;
    client.next(|message| message["method"] == "session/request_permission").await;
    let mut other = Client::open(&house).await;
    let resume = json!({ "sessionId": session, "cwd": house.work.path() });
    other.say(&ask(1, "session/resume", resume)).await;
    let asked = other.next(|message| message["method"] == "session/request_permission").await;
    other.say(&json!({ "jsonrpc": "2.0", "id": asked["id"], "error": { "code": -32601, "message": "no" } })).await;
    let taken_back = client.next(|message| message["method"] == "$/cancel_request").await;
    assert!(taken_back["params"]["requestId"].is_u64());
    client.answer(9).await;
    assert!(!house.work.path().join("x").exists());
    house.close().await;
}

/// A client that reads nothing keeps neither the turn nor others waiting, and loses nothing.
#[tokio::test]
async fn who_reads_slowly_loses_nothing_and_holds_up_nobody() {
    let house = House::open().await;
    house.round(&[Does::Floods("0123456789abcdef", 20_000), Does::Says("end")]);
    let mut slow = Client::open(&house).await;
    let session = slow.session(&house).await;
    slow.say(&prompt(1, &session, "flood")).await;
    let id = session.parse().unwrap();
    let turn = within(async {
        loop {
            let view = house.app.session(&Caller::default(), &id).await.unwrap();
            if view.turn.is_none() && view.message_count > 1 {
                return view;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert!(turn.last_seq > 0);
    assert_eq!(slow.answer(1).await["result"]["stopReason"], "end_turn");
    assert_eq!(slow.text().len(), 16 * 20_000 + 3);
    house.close().await;
}

/// The HTTP side of a client.
struct Http<'h> {
    house: &'h House,
    connection: String,
}

impl<'h> Http<'h> {
    async fn open(house: &'h House) -> Self {
        let body = ask(0, "initialize", json!({ "protocolVersion": 1 }));
        let reply = house.call("POST", "/acp", Some(body)).await;
        assert_eq!((reply.status, &reply.json()["result"]["protocolVersion"]), (200, &json!(1)), "{reply:?}");
        Self { house, connection: reply.header("acp-connection-id").unwrap().to_owned() }
    }

    async fn post(&self, session: Option<&str>, message: &Value) -> Reply {
        let request = request(self.house.address, "POST", "/acp").header("Acp-Connection-Id", &self.connection);
        let request = session.map_or(request.clone(), |session| request.header("Acp-Session-Id", session));
        request.json(message).send(self.house.address).await
    }

    async fn stream(&self, session: Option<&str>, after: Option<u64>) -> Stream {
        let request = request(self.house.address, "GET", "/acp")
            .header("Acp-Connection-Id", &self.connection)
            .header("Accept", "text/event-stream");
        let request = session.map_or(request.clone(), |session| request.header("Acp-Session-Id", session));
        let request = after.map_or(request.clone(), |after| request.header("Last-Event-ID", &after.to_string()));
        request.open(self.house.address).await
    }
}

/// The next message of a stream, with its number.
async fn message(stream: &mut Stream) -> (u64, Value) {
    let frame = stream.event().await;
    (frame.id.expect("a number"), frame.data)
}

#[tokio::test]
async fn over_http_a_stream_goes_on_behind_what_was_seen() {
    let house = House::open().await;
    house.round(&[Does::Says("a"), Does::Waits, Does::Says("b"), Does::Waits, Does::Says("c")]);
    let client = Http::open(&house).await;
    let new = ask(1, "session/new", json!({ "cwd": house.work.path(), "mcpServers": [] }));
    assert_eq!(client.post(None, &new).await.status, 202);
    let mut own = client.stream(None, None).await;
    let (_, answer) = message(&mut own).await;
    let session = answer["result"]["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(client.post(None, &prompt(2, &session, "x")).await.status, 400, "no Acp-Session-Id");
    assert_eq!(client.post(Some("ses_other"), &prompt(2, &session, "x")).await.status, 400);
    assert_eq!(client.post(Some(&session), &prompt(2, &session, "x")).await.status, 202);
    let mut first = client.stream(Some(&session), None).await;
    let (seen, chunk) = message(&mut first).await;
    assert_eq!(chunk["params"]["update"]["content"]["text"], "a");
    assert_eq!(client.stream(Some(&session), None).await.status, 409, "somebody reads it");
    house.go_on();
    assert_eq!(message(&mut first).await.1["params"]["update"]["content"]["text"], "b");
    // What came behind `a` is lost with its connection, and comes again.
    let mut second = client.stream(Some(&session), Some(seen)).await;
    assert_eq!(second.status, 200);
    assert_eq!(message(&mut second).await.1["params"]["update"]["content"]["text"], "b");
    house.go_on();
    let mut last = Value::Null;
    while last["result"].is_null() {
        last = message(&mut second).await.1;
    }
    assert_eq!((&last["id"], &last["result"]["stopReason"]), (&json!(2), &json!("end_turn")));
    assert_eq!(client.stream(Some(&session), Some(10_000)).await.status, 409);
    let delete = |connection: &str| request(house.address, "DELETE", "/acp").header("Acp-Connection-Id", connection);
    assert_eq!(delete(&client.connection).send(house.address).await.status, 202);
    assert_eq!(delete(&client.connection).send(house.address).await.status, 404);
    assert_eq!(client.post(None, &ask(3, "session/list", json!({}))).await.status, 404);
    house.close().await;
}

#[tokio::test]
async fn over_http_a_connection_is_its_callers_alone() {
    let house = House::open().await;
    let client = Http::open(&house).await;
    let list = ask(1, "session/list", json!({}));
    let post = |connection: &str| request(house.address, "POST", "/acp").header("Acp-Connection-Id", connection);
    let stranger = post(&client.connection).header("X-Client-ID", "other").json(&list).send(house.address).await;
    assert_eq!((stranger.status, stranger.code()), (404, "NOT_FOUND".into()));
    #[rustfmt::skip]
    let table: [(&[u8], u16); 4] = [(b"{", 400), (b"[]", 400), (b"{\"jsonrpc\":\"2.0\",\"method\":\"x\"}", 202), (b"", 400)];
    for (body, status) in table {
        let reply =
            post(&client.connection).header("Content-Type", "application/json").body(body).send(house.address).await;
        assert_eq!(reply.status, status, "{reply:?}");
    }
    let none = request(house.address, "POST", "/acp").json(&list).send(house.address).await;
    assert_eq!((none.status, none.code()), (400, "INVALID_ARGUMENT".into()));
    let reply =
        request(house.address, "GET", "/acp").header("Acp-Connection-Id", &client.connection).send(house.address).await;
    assert_eq!(reply.status, 406, "no event stream is wanted");
    let again =
        post(&client.connection).json(&ask(2, "initialize", json!({ "protocolVersion": 1 }))).send(house.address).await;
    assert_eq!((again.status, &again.json()["error"]["details"]["jsonRpcCode"]), (400, &json!(-32600)));
    let wrong = house.call("POST", "/acp", Some(ask(3, "initialize", json!({})))).await;
    assert_eq!(wrong.json()["error"]["data"]["details"]["field"], "protocolVersion");
    house.close().await;
}

#[tokio::test]
async fn sessions_are_their_clients() {
    let house = House::open().await;
    let mine = house.session(json!({})).await;
    let other = Socket::open_path(house.address, "/acp", "X-Client-ID: other\r\n").await.unwrap();
    let mut other = Client { socket: other, seen: Vec::new() };
    other.say(&ask(0, "initialize", json!({ "protocolVersion": 1 }))).await;
    other.answer(0).await;
    let resume = json!({ "sessionId": mine, "cwd": house.work.path() });
    other.say(&ask(1, "session/resume", resume)).await;
    assert_eq!(other.answer(1).await["error"]["code"], -32002);
    other.say(&ask(2, "session/list", json!({}))).await;
    assert_eq!(other.answer(2).await["result"]["sessions"], json!([]));
    house.close().await;
}

/// Lines of the program, one message each.
#[tokio::test]
async fn the_pipe_carries_lines_of_the_protocol_and_nothing_else() {
    let home = tempfile::tempdir().unwrap();
    let mut child = simse(home.path())
        .args(["acp", "--model", "demo/scripted"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = async || -> Value {
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.expect("in time").unwrap().expect("a line");
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("no message: {line}"))
    };
    let long = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{}\"}}\n", "x".repeat(33 << 20));
    input.write_all(b"\n  \nhello\n").await.unwrap();
    assert_eq!(next().await["error"]["code"], -32700);
    input.write_all(long.as_bytes()).await.unwrap();
    assert_eq!(next().await["error"]["data"]["code"], "PAYLOAD_TOO_LARGE");
    input.write_all(format!("{}\n", ask(1, "initialize", json!({ "protocolVersion": 1 }))).as_bytes()).await.unwrap();
    assert_eq!(next().await["result"]["agentInfo"]["name"], "simse");
    let new = ask(2, "session/new", json!({ "cwd": home.path(), "mcpServers": [] }));
    input.write_all(format!("{new}\n").as_bytes()).await.unwrap();
    let session = next().await["result"]["sessionId"].as_str().unwrap().to_owned();
    // The last line needs no end; what it asked for is told before the end.
    input.write_all(prompt(3, &session, "hello").to_string().as_bytes()).await.unwrap();
    drop(input);
    let mut last = Value::Null;
    while let Ok(Some(line)) = tokio::time::timeout(PATIENCE, lines.next_line()).await.expect("in time") {
        last = serde_json::from_str(&line).unwrap_or_else(|_| panic!("no message: {line}"));
    }
    assert_eq!((&last["id"], &last["result"]["stopReason"]), (&json!(3), &json!("end_turn")), "{last}");
    let (code, _, said) = ended(child).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(!home.path().join(".local/share/simse/server.json").exists(), "the door is closed");
}

#[tokio::test]
async fn what_is_of_no_use_to_an_agent_is_refused() {
    let home = tempfile::tempdir().unwrap();
    for arguments in [&["acp", "--port", "1"][..], &["acp", "--socket", "s"], &["acp", "--no-auth"]] {
        let (code, out, said) = ended(simse(home.path()).args(arguments).spawn().unwrap()).await;
        assert_eq!((code, out.as_str()), (Some(2), ""), "{said}");
        assert!(said.contains(arguments[1]), "{said}");
    }
}

/// A directory that a server has without a word of where it is cannot be shared.
#[tokio::test]
async fn a_server_of_the_directory_is_found_and_a_stale_word_of_one_is_not_believed() {
    let home = tempfile::tempdir().unwrap();
    let serving = Serving::start(&home, &["--model", "demo/scripted"]).await;
    let data = home.path().join(".local/share/simse");
    let file = std::fs::read(data.join("server.json")).unwrap();
    drop(serving);
    // As a crash leaves it.
    within(async {
        loop {
            let settings = Settings {
                storage: Storage::Directory(data.clone()),
                ..Settings::new(home.path().canonicalize().unwrap())
            };
            if let Ok(app) = App::open(settings, Extras::default()).await {
                return app.shutdown(Duration::ZERO).await.unwrap();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    std::fs::write(data.join("server.json"), file).unwrap();
    let mut child = simse(home.path())
        .args(["acp", "--model", "demo/scripted"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let hello = ask(1, "initialize", json!({ "protocolVersion": 1 }));
    input.write_all(format!("{hello}\n").as_bytes()).await.unwrap();
    drop(input);
    let (code, out, said) = ended(child).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(out.contains("\"agentInfo\""), "{out}");
}
