//! Tokens that reach one session: what they open, what they do not, and what ends them.

use serde_json::{Value, json};

use crate::support::binary::{Serving, ended, simse};
use crate::support::house::House;
use crate::support::http::{Reply, Request, request, within};
use crate::tokens::routes;

const BOTH: &str = "application/json, text/event-stream";

/// Somebody with a token.
struct With<'a>(&'a Serving, String);

impl With<'_> {
    fn request(&self, method: &str, path: &str) -> Request {
        let request = request(self.0.address, &method.to_uppercase(), path);
        request.header("Authorization", &format!("Bearer {}", self.1))
    }

    async fn call(&self, method: &str, path: &str, body: Value) -> Reply {
        let request = self.request(method, path);
        let request = if method == "GET" { request } else { request.json(&body) };
        within(request.send(self.0.address)).await
    }

    /// A request of MCP that says all by itself.
    async fn mcp(&self, query: &str, method: &str, mut params: Value) -> Reply {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
        });
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let post = self.request("POST", &format!("/mcp{query}")).header("Accept", BOTH);
        let post = post.header("MCP-Protocol-Version", "2026-07-28").header("Mcp-Method", method);
        let name = params["name"].as_str().or(params["uri"].as_str());
        let post = name.into_iter().fold(post, |post, name| post.header("Mcp-Name", name));
        within(post.json(&message).send(self.0.address)).await
    }

    async fn tool(&self, name: &str, arguments: Value) -> Value {
        let reply = self.mcp("", "tools/call", json!({ "name": name, "arguments": arguments })).await;
        let text = String::from_utf8_lossy(&reply.body);
        let last = text.lines().rev().find_map(|line| line.strip_prefix("data: ")).unwrap_or(&text);
        serde_json::from_str::<Value>(last).unwrap()["result"].clone()
    }
}

fn owner(serving: &Serving) -> With<'_> {
    With(serving, serving.token().unwrap())
}

async fn made(door: &With<'_>, session: &str, body: Value) -> (String, String) {
    let reply = door.call("POST", &format!("/sessions/{session}/tokens"), body).await;
    assert_eq!(reply.status, 201, "{reply:?}");
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    let made = reply.json();
    assert_eq!(made["sessionId"], session);
    (made["token"].as_str().unwrap().to_owned(), made["tokenId"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_token_for_one_session_opens_that_and_nothing_else() {
    let home = tempfile::tempdir().unwrap();
    let serving = Serving::start(&home, &[]).await;
    let owner = owner(&serving);
    for id in ["mine", "other"] {
        assert_eq!(owner.call("POST", "/sessions", json!({ "sessionId": id })).await.status, 201);
    }
    let (token, _) = made(&owner, "mine", json!({})).await;
    let agent = With(&serving, token);
    let opens = |method: &str, path: &str| {
        let reads = [
            "",
            "/events",
            "/history",
            "/turns",
            "/turns/{turnId}",
            "/files",
            "/diff",
            "/agent",
            "/mcp",
            "/blackboard",
            "/tasks",
        ];
        let works = ["/prompt", "/compact", "/abort", "/interrupt", "/pause", "/resume", "/undo", "/redo", "/tasks"];
        let shares = ["/blackboard", "/blackboard/{key}", "/tasks/{taskId}"];
        let within = path.strip_prefix("/sessions/{sessionId}");
        let known = if method == "get" { &reads[..] } else { &works[..] };
        path == "/mcp"
            || within.is_some_and(|within| !["put", "patch", "delete"].contains(&method) && known.contains(&within))
            || within.is_some_and(|within| (method != "get" || within != "/tasks/{taskId}") && shares.contains(&within))
    };
    let mut opened = 0;
    for (path, methods) in routes() {
        for method in methods {
            for session in ["mine", "other"] {
                let place = path
                    .replace("{sessionId}", session)
                    .replace("{turnId}", "turn_1")
                    .replace("{key}", "k")
                    .replace("{taskId}", "1");
                let place = place.replace("{tokenId}", "tok_1").replace("{grantId}", "g").replace("{nonce}", "0");
                // What is no body of it is refused behind the guard.
                let request = agent.request(method, &place).header("Accept", BOTH);
                let request = if method == "get" { request } else { request.json(&json!({ "strange": 1 })) };
                let stream = within(request.open(serving.address)).await;
                let open = opens(method, &path) && (session == "mine" || path == "/mcp");
                assert_eq!(stream.status != 403, open, "{method} {place}: {}", stream.status);
                opened += usize::from(open);
            }
        }
    }
    assert_eq!(opened, 17 + 9 + 2 * 3, "every way that there is was tried");
    // What its session shares with those beside it it reads and writes, and of no other.
    let put = agent.call("PUT", "/sessions/mine/blackboard/k", json!({ "value": 1 })).await;
    assert_eq!((put.status, &put.json()["value"]), (200, &json!(1)), "{put:?}");
    let task = agent.call("POST", "/sessions/mine/tasks", json!({ "subject": "s" })).await;
    assert_eq!((task.status, &task.json()["id"]), (201, &json!("1")), "{task:?}");
    assert_eq!(agent.call("PUT", "/sessions/other/blackboard/k", json!({ "value": 1 })).await.status, 403);
    assert_eq!(owner.call("GET", "/sessions/other/blackboard", json!({})).await.json()["items"], json!([]));
    // What a prompt brings along, and what it may not.
    let prompt = json!({ "prompt": "hello", "configure": { "permissionMode": "auto" } });
    assert_eq!(agent.call("POST", "/sessions/mine/prompt", prompt).await.status, 403);
    let done = agent.call("POST", "/sessions/mine/prompt?wait=true", json!({ "prompt": "hello" })).await;
    assert_eq!(done.json()["status"], "completed", "{done:?}");
    // Over MCP its calls run in that session, and no other is there.
    assert_eq!(agent.mcp("?session=other", "tools/list", json!({})).await.status, 403);
    assert_eq!(agent.tool("fs_list", json!({})).await["isError"], false);
    let told = owner.call("GET", "/sessions", json!({})).await.json();
    assert_eq!(told["items"].as_array().unwrap().len(), 2, "no session was made: {told}");
    let calls = owner.call("GET", "/sessions/mine/history?events=true&types=tool.call.end", json!({})).await.json();
    // The model of the prompt has made one, too.
    let of_agent = calls["items"].as_array().unwrap().iter().filter(|call| call["payload"]["callId"] != "call_1");
    assert_eq!(of_agent.count(), 1, "{calls}");
    for (tool, arguments) in [
        ("session_prompt", json!({ "prompt": "a new one" })),
        ("session_prompt", json!({ "prompt": "there", "sessionId": "other" })),
        ("session_prompt", json!({ "prompt": "as another", "sessionId": "mine", "model": "demo/scripted" })),
        ("session_events", json!({ "sessionId": "other" })),
        ("session_abort", json!({ "sessionId": "other" })),
        ("session_wait", json!({ "sessionId": "other" })),
    ] {
        let refused = agent.tool(tool, arguments.clone()).await;
        let may = tool == "session_prompt" && arguments["sessionId"] == "mine" && refused["isError"] == false;
        assert!(refused["isError"] == true || may, "{tool} {arguments}: {refused}");
    }
    assert_eq!(agent.tool("session_events", json!({ "sessionId": "mine" })).await["isError"], false);
    let listed = agent.mcp("", "resources/list", json!({})).await;
    let text = String::from_utf8_lossy(&listed.body).into_owned();
    assert!(text.contains("mine") && !text.contains("other"), "{text}");
    let read = agent.mcp("", "resources/read", json!({ "uri": "simse://sessions/other" })).await;
    assert!(String::from_utf8_lossy(&read.body).contains("-32602"), "{read:?}");
    // It is not asked about its own calls, though it says that it could be: nobody is there, and the answer is no.
    let refused = agent.tool("bash", json!({ "command": "touch was-here" })).await;
    assert!(refused["isError"] == true && !home.path().join("was-here").exists(), "{refused}");
    let others = owner.call("GET", "/sessions/other", json!({})).await.json();
    assert_eq!((&others["lastSeq"], &others["status"]), (&json!(1), &json!("created")), "{others}");
    // One that only looks.
    let (token, _) = made(&owner, "mine", json!({ "role": "read-only" })).await;
    let looks = With(&serving, token);
    assert_eq!(looks.call("GET", "/sessions/mine", json!({})).await.status, 200);
    assert_eq!(looks.call("POST", "/sessions/mine/prompt", json!({ "prompt": "x" })).await.status, 403);
    assert_ne!(looks.tool("fs_list", json!({})).await["isError"], false);
    serving.stop_well().await;
}

#[tokio::test]
async fn a_token_ends_with_its_time_its_session_its_maker_and_when_it_is_told_to() {
    let home = tempfile::tempdir().unwrap();
    let serving = Serving::start(&home, &[]).await;
    let own = owner(&serving);
    assert_eq!(own.call("POST", "/sessions", json!({ "sessionId": "s" })).await.status, 201);
    for wrong in
        [json!({ "expiresInMs": 0 }), json!({ "expiresInMs": "1" }), json!({ "role": "owner" }), json!({ "for": 1 })]
    {
        assert_eq!(own.call("POST", "/sessions/s/tokens", wrong.clone()).await.status, 400, "{wrong}");
    }
    assert_eq!(own.call("POST", "/sessions/none/tokens", json!({})).await.status, 404);
    // It says what it is, and never itself again.
    let (kept, kept_id) = made(&own, "s", json!({ "role": "read-only", "expiresInMs": 3_600_000 })).await;
    let listed = own.call("GET", "/sessions/s/tokens", json!({})).await.json()["tokens"].clone();
    assert_eq!((&listed[0]["tokenId"], &listed[0]["role"]), (&json!(kept_id), &json!("read-only")), "{listed}");
    assert!(listed[0]["expiresAt"].as_u64() > listed[0]["createdAt"].as_u64() && listed[0].get("token").is_none());
    let file = std::fs::read_to_string(home.path().join(".local/share/simse/session-tokens.json")).unwrap();
    assert!(!file.contains(kept.trim_start_matches("simse_one_")), "{file}");
    // What it opened ends with it, by whatever it ends.
    let watch = async |token: &str| {
        let door = With(&serving, token.to_owned());
        let stream = within(door.request("GET", "/sessions/s/events").open(serving.address)).await;
        assert_eq!(stream.status, 200);
        stream
    };
    let (revoked, revoked_id) = made(&own, "s", json!({})).await;
    let (short, _) = made(&own, "s", json!({ "expiresInMs": 700 })).await;
    let (code, ci, said) = ended(
        simse(home.path())
            .args(["token", "create", "ci", "--role", "operator", "--sessions-of", "owner"])
            .spawn()
            .unwrap(),
    )
    .await;
    assert_eq!(code, Some(0), "{said}");
    let (by_ci, _) = made(&With(&serving, ci.trim().to_owned()), "s", json!({})).await;
    let mut streams = vec![watch(&revoked).await, watch(&short).await, watch(&by_ci).await];
    assert_eq!(own.call("DELETE", &format!("/sessions/s/tokens/{revoked_id}"), json!({})).await.status, 200);
    assert_eq!(own.call("DELETE", &format!("/sessions/s/tokens/{revoked_id}"), json!({})).await.status, 404);
    let (code, _, said) = ended(simse(home.path()).args(["token", "revoke", "ci"]).spawn().unwrap()).await;
    assert_eq!(code, Some(0), "{said}");
    for stream in &mut streams {
        within(stream.rest()).await;
    }
    for gone in [&revoked, &short, &by_ci] {
        let door = With(&serving, gone.clone());
        assert_eq!(door.call("GET", "/sessions/s", json!({})).await.status, 401);
    }
    // Over a restart it counts, and one that does not count is not there.
    serving.stop_well().await;
    let serving = Serving::start(&home, &[]).await;
    let own = owner(&serving);
    assert_eq!(With(&serving, kept.clone()).call("GET", "/sessions/s", json!({})).await.status, 200);
    assert_eq!(With(&serving, revoked).call("GET", "/sessions/s", json!({})).await.status, 401);
    // With its session it is gone for good, also where another one has that name.
    assert_eq!(own.call("DELETE", "/sessions/s", json!({})).await.status, 200);
    assert_eq!(own.call("POST", "/sessions", json!({ "sessionId": "s" })).await.status, 201);
    assert_eq!(With(&serving, kept).call("GET", "/sessions/s", json!({})).await.status, 401);
    assert_eq!(own.call("GET", "/sessions/s/tokens", json!({})).await.json(), json!({ "tokens": [] }));
    // There are so many, and no more.
    for _ in 0..64 {
        made(&own, "s", json!({})).await;
    }
    assert_eq!(own.call("POST", "/sessions/s/tokens", json!({})).await.status, 429);
    serving.stop_well().await;
}

#[tokio::test]
async fn where_nobody_needs_a_token_none_is_made() {
    let house = House::with(simse::server::ListenOptions::default(), |_| {}).await;
    house.session(json!({ "sessionId": "s" })).await;
    let refused = house.call("POST", "/sessions/s/tokens", Some(json!({}))).await;
    assert_eq!(refused.status, 409, "{refused:?}");
    house.close().await;
}
