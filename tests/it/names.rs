//! Ids and names that somebody made up: paths, control characters, what is too long, letters that look like others. Every door refuses
//! them with the same words, and repeats nothing of them that could do harm.

use std::process::Stdio;

use serde_json::{Value, json};
use simse::server::ListenOptions;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

use crate::support::binary::simse;
use crate::support::house::House;
use crate::support::http::{request, within};
use crate::support::socket::Socket;

/// What is no id.
fn no_ids() -> Vec<String> {
    let mut all: Vec<String> = [
        "",
        ".",
        "..",
        "../s",
        "s/../t",
        "/etc/passwd",
        "a/b",
        "a\\b",
        "..%2fs",
        "%2e%2e",
        "s%00",
        "a b",
        " s",
        "s ",
        "s\n",
        "s\r\nX: y",
        "s\0",
        "\u{1b}[2J",
        "\u{7f}",
        "s\t",
        "ѕ",
        "ｓ",
        "s\u{200b}",
        "s\u{202e}",
        "é",
        "e\u{301}",
        "١",
        "💥",
        "s;rm",
        "$(id)",
        "`id`",
        "*",
        "?",
        "s#t",
        "s:t",
        "@ci",
        "~",
        "con|x",
        "\"",
        "'",
        "<s>",
        "{s}",
        "\u{feff}s",
    ]
    .map(str::to_owned)
    .into();
    all.extend(["x".repeat(257), "é".repeat(200), "../".repeat(2_000)]);
    all
}

/// A server that is spoken to over its standard streams.
struct Pipe {
    _child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Pipe {
    fn open(home: &std::path::Path) -> Self {
        let mut child =
            simse(home).args(["serve", "--stdio"]).stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { _child: child, input, output: BufReader::new(output).lines() }
    }

    async fn response(&mut self, command: &Value) -> Value {
        self.input.write_all(format!("{command}\n").as_bytes()).await.unwrap();
        loop {
            let line = within(self.output.next_line()).await.unwrap().expect("a line");
            let frame: Value = serde_json::from_str(&line).unwrap();
            if frame["type"] == "response" {
                return frame;
            }
        }
    }
}

fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[tokio::test]
async fn what_is_no_id_is_refused_through_every_door_with_the_same_words() {
    let home = tempfile::tempdir().unwrap();
    let house = House::with(ListenOptions::default(), |_| {}).await;
    let mut pipe = Pipe::open(home.path());
    let mut socket = Socket::ready(&house).await;
    let session = json!({ "sessionId": "s" });
    house.session(session.clone()).await;
    assert_eq!(pipe.response(&json!({ "id": "0", "type": "create_session", "sessionId": "s" })).await["success"], true);
    let mut differ = Vec::new();
    for bad in no_ids() {
        // As the body of a request, and as the members of a command.
        let bodies = [
            ("/sessions", json!({ "sessionId": bad }), json!({ "type": "create_session", "sessionId": bad })),
            (
                "/sessions/s/feedback",
                json!({ "requestId": bad, "decision": "allow" }),
                json!({ "type": "feedback", "sessionId": "s", "requestId": bad, "decision": "allow" }),
            ),
        ];
        for (path, body, command) in bodies {
            let http = house.call("POST", path, Some(body)).await;
            let told = [
                http.json()["error"].clone(),
                socket.response(&command).await["error"].clone(),
                pipe.response(&command).await["error"].clone(),
            ];
            let words =
                told.clone().map(|error| (error["code"].clone(), error["message"].clone(), error["details"].clone()));
            if http.status != 400 || words[0] != words[1] || words[1] != words[2] {
                differ.push(format!("{path} {bad:?}: {} {told:?}", http.status));
            }
            let harms = |c: char| c.is_control() || c == '\u{202e}';
            let repeats =
                |error: &Value| error.to_string().len() > 2_000 || error["message"].as_str().unwrap().contains(harms);
            if told.iter().any(repeats) {
                differ.push(format!("{path} {bad:?} is repeated: {told:?}"));
            }
        }
        // As part of a path; an empty one is another path.
        if bad.is_empty() || bad.len() > 4_000 {
            continue;
        }
        let path = format!("/sessions/{}", escaped(&bad));
        let command = json!({ "type": "get_session", "sessionId": bad });
        let http = house.call("GET", &path, None).await;
        let told = [
            http.json()["error"].clone(),
            socket.response(&command).await["error"].clone(),
            pipe.response(&command).await["error"].clone(),
        ];
        let words = told.clone().map(|error| (error["code"].clone(), error["message"].clone()));
        if http.status != 400 || words[0] != words[1] || words[1] != words[2] {
            differ.push(format!("GET {path} {bad:?}: {} {told:?}", http.status));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    // Nothing came of it.
    let list = house.call("GET", "/sessions", None).await.json();
    assert_eq!(list["items"].as_array().unwrap().len(), 1, "{list}");
    assert_eq!(pipe.response(&json!({ "type": "list_sessions" })).await["data"]["items"].as_array().unwrap().len(), 1);
    house.close().await;
}

#[tokio::test]
async fn names_of_commands_and_of_clients_are_plain_words() {
    let home = tempfile::tempdir().unwrap();
    let house = House::open().await;
    let mut pipe = Pipe::open(home.path());
    let mut socket = Socket::ready(&house).await;
    let long = "x".repeat(1_000);
    // What a header can carry, and is no name.
    for bad in ["a b", "a\tb", "../k", "a/b", "é", "\u{feff}", long.as_str()] {
        for field in ["id", "idempotencyKey"] {
            let command = json!({ "type": "create_session", field: bad });
            let (one, two) = (socket.response(&command).await, pipe.response(&command).await);
            assert_eq!(one["error"], two["error"], "{field} {bad:?}");
            assert_eq!(one["success"] == false, two["success"] == false, "{field} {bad:?}: {one}");
        }
        let client = request(house.address, "GET", "/sessions").header("X-Client-ID", bad).send(house.address).await;
        assert_eq!((client.status, client.code().as_str()), (400, "INVALID_ARGUMENT"), "{bad:?}: {client:?}");
        // A request id that is no plain word is passed over, and not written anywhere.
        let reply = request(house.address, "GET", "/health").header("X-Request-Id", bad).send(house.address).await;
        let given = reply.header("x-request-id").unwrap_or_default().to_owned();
        assert!(reply.status == 200 && !given.is_empty() && given != bad, "{bad:?}: {reply:?}");
        // What stands in a header is ASCII.
        if !bad.is_ascii() {
            continue;
        }
        let keyed = request(house.address, "POST", "/sessions").header("Idempotency-Key", bad).json(&json!({}));
        let by_key = keyed.send(house.address).await;
        let by_field = socket.response(&json!({ "type": "create_session", "idempotencyKey": bad })).await;
        assert_eq!(by_key.status >= 400, by_field["success"] == false, "{bad:?}: {by_key:?} {by_field}");
    }
    // Who says that it is a token is not believed.
    for stranger in ["@ci", "@ci/x", "@owner", "ci/x"] {
        let client =
            request(house.address, "GET", "/sessions").header("X-Client-ID", stranger).send(house.address).await;
        assert_eq!(client.status, 400, "{stranger}: {client:?}");
    }
    house.close().await;
}
