//! Clients of MCP and ACP over HTTP, whose requests come to whichever node the load balancer takes: what a node keeps of them is found by
//! its name.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::nodes::{Cluster, LOOK, PATIENCE};
use super::wire::introduced;

/// An answer's status, the header of that name, and the JSON in its body, if it is one.
struct Said {
    status: u16,
    name: Option<String>,
    value: Option<Value>,
}

/// What a client has by now: the header that names it, and where it sends to.
struct Line {
    path: &'static str,
    header: &'static str,
    name: Option<String>,
}

impl Line {
    async fn ask(&self, at: SocketAddr, method: &str, body: &Value) -> Said {
        let named = self.name.as_ref().map(|name| format!("{}: {name}\r\n", self.header)).unwrap_or_default();
        let body = if method == "POST" { body.to_string() } else { String::new() };
        let head = format!(
            "{method} {} HTTP/1.1\r\n{}connection: close\r\naccept: application/json, text/event-stream\r\n{named}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.path,
            introduced(at),
            body.len()
        );
        let exchange = async {
            let mut stream = TcpStream::connect(at).await.expect("it listens");
            stream.write_all(head.as_bytes()).await.expect("sent");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.expect("an answer");
            answer
        };
        let answer = tokio::time::timeout(PATIENCE, exchange).await.expect("in time");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let header = head.lines().find_map(|line| line.strip_prefix(self.header)?.strip_prefix(": "));
        let value = match (body.find('{'), body.rfind('}')) {
            (Some(begin), Some(end)) => serde_json::from_str(&body[begin..=end]).ok(),
            _ => None,
        };
        Said { status, name: header.map(str::to_owned), value }
    }

    async fn call(&self, at: SocketAddr, id: u32, method: &str, params: Value) -> Said {
        let body = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.ask(at, "POST", &body).await
    }
}

/// A client of MCP that begins at a node, and says at another one that it has.
async fn greeted(path: &'static str, (first, then): (SocketAddr, SocketAddr)) -> Line {
    let mut line = Line { path, header: "mcp-session-id", name: None };
    let hello =
        json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let said = line.call(first, 1, "initialize", hello).await;
    assert_eq!(said.status, 200, "{:?}", said.value);
    line.name = said.name;
    assert!(line.name.is_some(), "it has a session");
    let said = line.ask(then, "POST", &json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
    assert_eq!(said.status, 202, "{:?}", said.value);
    line
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_mcp_is_known_at_every_node() {
    let Some(cluster) = Cluster::start(2).await else { return };
    let at = [cluster.at(0), cluster.at(1)];
    let line = greeted("/mcp", (at[0], at[1])).await;
    for node in at {
        let said = line.call(node, 2, "tools/list", json!({})).await;
        let tools = said.value.as_ref().and_then(|value| value["result"]["tools"].as_array());
        assert!(said.status == 200 && tools.is_some_and(|tools| !tools.is_empty()), "{:?}", said.value);
    }
    assert!((200..300).contains(&line.ask(at[1], "DELETE", &Value::Null).await.status));
    assert_eq!(line.call(at[0], 3, "tools/list", json!({})).await.status, 404, "it is gone");

    // Its calls run in a session that another node has.
    cluster.create(1, "s").await;
    let line = greeted("/mcp?session=s", (at[0], at[0])).await;
    for node in at {
        let said = line
            .call(node, 4, "tools/call", json!({ "name": "bash", "arguments": { "command": "echo so $((6*7))" } }))
            .await;
        assert!(said.value.as_ref().is_some_and(|value| value.to_string().contains("so 42")), "{:?}", said.value);
    }
    // It begins anew where its node is gone.
    cluster.kill(1).await;
    let begun = Instant::now();
    while line.call(at[0], 5, "tools/list", json!({})).await.status != 404 {
        assert!(begun.elapsed() < Duration::from_secs(20), "it is still looked for elsewhere");
        tokio::time::sleep(LOOK).await;
    }
    let line = greeted("/mcp?session=s", (at[0], at[0])).await;
    let said = line
        .call(at[0], 6, "tools/call", json!({ "name": "bash", "arguments": { "command": "echo so $((6*8))" } }))
        .await;
    assert!(said.value.as_ref().is_some_and(|value| value.to_string().contains("so 48")), "{:?}", said.value);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_of_acp_is_known_at_every_node() {
    let Some(cluster) = Cluster::start(2).await else { return };
    let at = [cluster.at(0), cluster.at(1)];
    let mut line = Line { path: "/acp", header: "acp-connection-id", name: None };
    let said = line.call(at[0], 1, "initialize", json!({ "protocolVersion": 1, "clientCapabilities": {} })).await;
    assert_eq!(said.status, 200, "{:?}", said.value);
    line.name = said.name;
    for (id, node) in (2..).zip(at) {
        let said = line.call(node, id, "session/list", json!({})).await;
        assert_eq!(said.status, 202, "{:?}", said.value);
    }
    assert!((200..300).contains(&line.ask(at[1], "DELETE", &Value::Null).await.status));
    for node in at {
        assert_eq!(line.call(node, 4, "session/list", json!({})).await.status, 404, "it is gone");
    }
}
