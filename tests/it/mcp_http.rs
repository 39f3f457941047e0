//! Tool servers behind an address: sessions, streams, redirects, refusals, and one that comes back.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

use parking_lot::Mutex;
use serde_json::{Value, json};
use simse::config::{McpServer, Settings};
use simse::protocol::PermissionPolicy;
use simse::server::ListenOptions;

use crate::mcp::{call, names, until};
use crate::support::house::House;
use crate::support::model_server::{Answer, ModelServer, Request};

/// What the server knows and how it answers a session that it does not know.
#[derive(Default)]
struct Place {
    sessions: Mutex<HashSet<String>>,
    opened: AtomicUsize,
    /// The status for an unknown session; 0: there are no sessions.
    unknown: AtomicU16,
    /// When set, the status of every answer.
    refuses: AtomicU16,
}

impl Place {
    fn answer(&self, request: &Request) -> Answer {
        if request.path.starts_with("/moved") {
            return Answer::status(307, &[("location", "/mcp?key=s3cret")], "");
        }
        let refuses = self.refuses.load(Ordering::Relaxed);
        if refuses != 0 {
            return Answer::status(refuses, &[("www-authenticate", "Bearer")], "no");
        }
        assert_eq!(request.header("x-key"), Some("sesame"));
        if request.body.is_empty() {
            // No stream of its own, and no answer to a goodbye.
            return Answer::status(405, &[], "");
        }
        let message = request.json();
        if message["method"] == "initialize" {
            return self.open(&message);
        }
        let known = request.header("mcp-session-id").is_some_and(|id| self.sessions.lock().contains(id));
        if !known {
            return Answer::status(self.unknown.load(Ordering::Relaxed), &[], "no such session");
        }
        let result = match message["method"].as_str().unwrap() {
            "tools/list" => json!({ "tools": [{ "name": "echo", "inputSchema": { "type": "object" } }] }),
            "tools/call" => json!({ "content": [{ "type": "text", "text": message["params"]["arguments"]["text"] }] }),
            "ping" => json!({}),
            _ => return Answer::status(202, &[], ""),
        };
        let reply = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
        Answer::status(200, &[("content-type", "text/event-stream")], &format!("event: message\ndata: {reply}\n\n"))
    }

    fn open(&self, message: &Value) -> Answer {
        let id = format!("session-{}", self.opened.fetch_add(1, Ordering::Relaxed));
        self.sessions.lock().insert(id.clone());
        let version = &message["params"]["protocolVersion"];
        let info = json!({ "name": "there", "version": "1" });
        let result = json!({ "protocolVersion": version, "capabilities": { "tools": {} }, "serverInfo": info });
        let reply = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
        Answer::status(200, &[("content-type", "application/json"), ("mcp-session-id", &id)], &reply.to_string())
    }

    /// As after a restart.
    fn forget(&self) {
        self.sessions.lock().clear();
    }
}

async fn place(unknown: u16) -> (Arc<Place>, ModelServer) {
    let place = Arc::new(Place::default());
    place.unknown.store(unknown, Ordering::Relaxed);
    let answering = Arc::clone(&place);
    let server = ModelServer::start(Arc::new(move |request| answering.answer(request))).await;
    (place, server)
}

async fn house(server: &ModelServer, path: &str) -> House {
    let url = server.base_url().replace("/v1", path);
    let entry = json!({ "name": "far", "url": url, "headers": { "X-Key": "sesame" } });
    let entry: McpServer = serde_json::from_value(entry).unwrap();
    let change = |settings: &mut Settings| {
        settings.mcp_servers = vec![entry];
        settings.permissions.default_policy = PermissionPolicy::Allow;
    };
    House::with(ListenOptions::default(), change).await
}

#[tokio::test]
async fn calls_go_through_a_session_and_survive_its_loss() {
    // 404 is what the protocol says about a session that is gone; many say 400.
    for unknown in [404, 400] {
        let (place, server) = place(unknown).await;
        let house = house(&server, "/mcp").await;
        let session = house.session(json!({})).await;
        assert_eq!(call(&house, &session, "mcp:far/echo", json!({ "text": "one" })).await, ("one".into(), false));
        place.forget();
        if unknown == 400 {
            let (output, failed) = call(&house, &session, "mcp:far/echo", json!({ "text": "lost" })).await;
            assert!(failed && output.contains("the MCP server `far`") && output.contains("400"), "{output}");
            until("a new connection", || house.app.tools().iter().any(|t| t.name == "mcp:far/echo")).await;
        }
        assert_eq!(call(&house, &session, "mcp:far/echo", json!({ "text": "two" })).await, ("two".into(), false));
        assert_eq!(place.opened.load(Ordering::Relaxed), 2, "{unknown}");
        house.close().await;
    }
}

#[tokio::test]
async fn a_redirect_to_the_same_place_is_followed() {
    let (_, server) = place(404).await;
    let house = house(&server, "/moved").await;
    let session = house.session(json!({})).await;
    assert_eq!(call(&house, &session, "mcp:far/echo", json!({ "text": "x" })).await, ("x".into(), false));
    house.close().await;
}

#[tokio::test]
async fn a_refusal_is_told_without_the_address() {
    let (place, server) = place(404).await;
    let house = house(&server, "/mcp?key=s3cret").await;
    let session = house.session(json!({})).await;
    assert_eq!(call(&house, &session, "mcp:far/echo", json!({ "text": "x" })).await, ("x".into(), false));
    for status in [401, 403, 500] {
        place.refuses.store(status, Ordering::Relaxed);
        let (output, failed) = call(&house, &session, "mcp:far/echo", json!({ "text": "x" })).await;
        assert!(failed && !output.contains("s3cret") && !output.contains("sesame"), "{output}");
        assert!(output.contains("the MCP server `far`"), "{output}");
        place.refuses.store(0, Ordering::Relaxed);
    }
    // It is asked again once it is well.
    assert_eq!(call(&house, &session, "mcp:far/echo", json!({ "text": "x" })).await, ("x".into(), false));
    assert_eq!(names(&house), ["mcp:far/echo"]);
    house.close().await;
}

#[tokio::test]
async fn nobody_there_is_no_reason_to_fail() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let entry: McpServer = serde_json::from_value(json!({ "name": "far", "url": format!("http://{free}/") })).unwrap();
    let house = House::with(ListenOptions::default(), |settings| settings.mcp_servers = vec![entry]).await;
    let session = house.session(json!({})).await;
    assert_eq!(house.prompt(&session, "hello").await["status"], "completed");
    house.close().await;
}
