//! The servers that share a store, as they are asked for: over HTTP of a server that has its own alone, and by the commands. Several
//! servers are in `cluster`.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;

use crate::support::binary::{Serving, ended, simse};
use crate::support::http::{request, within};

async fn run(home: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    ended(simse(home).args(arguments).spawn().unwrap()).await
}

#[tokio::test]
async fn a_server_alone_tells_of_itself_and_has_nobody_to_hand_over_to() {
    let home = tempfile::tempdir().unwrap();
    let serving = Serving::start(&home, &[]).await;
    let owner = async |method: &str, path: &str| within(serving.request(method, path).send(serving.address)).await;
    let told = owner("GET", "/nodes").await;
    assert_eq!(told.status, 200, "{told:?}");
    let told = told.json();
    let [node] = told["nodes"].as_array().unwrap().as_slice() else { panic!("one: {told}") };
    assert_eq!((&node["isSelf"], &node["state"], node.get("url")), (&json!(true), &json!("active"), None), "{node}");
    assert_eq!((&node["version"], &node["labels"]), (&json!(env!("CARGO_PKG_VERSION")), &json!([])), "{node}");
    assert!(node["name"].as_str().unwrap().contains(&format!("(pid {})", serving.child.id().unwrap())), "{node}");
    let refused = owner("POST", "/drain").await;
    assert_eq!((refused.status, refused.code().as_str()), (409, "CONFLICT"), "{refused:?}");
    for (path, body) in [("/drain?now=true", json!({})), ("/drain", json!({ "now": true }))] {
        let strange = within(serving.request("POST", path).json(&body).send(serving.address)).await;
        assert_eq!((strange.status, &strange.json()["error"]["details"]["field"]), (400, &json!("now")), "{strange:?}");
    }
    // Whoever is no owner learns nothing of it, and can do nothing.
    for role in ["operator", "read-only"] {
        let make = ["token", "create", role, "--role", role, "--sessions-of", "owner"];
        let (code, token, said) = run(home.path(), &make).await;
        assert_eq!(code, Some(0), "{said}");
        let bearer = format!("Bearer {}", token.trim());
        for (method, path) in [("GET", "/nodes"), ("POST", "/drain")] {
            let asked = request(serving.address, method, path).header("Authorization", &bearer);
            let reply = within(asked.send(serving.address)).await;
            assert_eq!((reply.status, reply.code().as_str()), (403, "FORBIDDEN"), "{role} {method} {path}");
        }
    }
    let made = within(serving.request("POST", "/sessions").json(&json!({})).send(serving.address)).await;
    assert_eq!(made.status, 201, "it goes on: {made:?}");
    serving.stop_well().await;
}

#[tokio::test]
async fn the_commands_ask_the_server_of_the_data_directory() {
    let home = tempfile::tempdir().unwrap();
    let serving = Serving::start(&home, &[]).await;
    let (code, out, err) = run(home.path(), &["nodes"]).await;
    assert_eq!(code, Some(0), "{err}");
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines.len() == 2 && lines[0].starts_with("number") && lines[1].contains("active"), "{out}");
    let (code, out, err) = run(home.path(), &["nodes", "--json"]).await;
    assert_eq!(code, Some(0), "{err}");
    let node: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&node["isSelf"], &node["state"]), (&json!(true), &json!("active")), "{node}");
    let (code, out, err) = run(home.path(), &["drain"]).await;
    assert_eq!((code, out.as_str()), (Some(1), ""), "{err}");
    assert!(err.contains("POST /drain: 409"), "{err}");
    serving.stop_well().await;
    // None is started for it.
    for command in ["nodes", "drain"] {
        let (code, out, err) = run(home.path(), &[command]).await;
        assert_eq!((code, out.as_str()), (Some(3), ""), "{command}: {err}");
        assert!(err.contains("no server has it"), "{command}: {err}");
    }
}

/// Says after each `POST /drain` what is left, and at each `GET /nodes` how many sessions it has.
async fn drains(left: &'static [u64], sessions: &'static [u64]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut left, mut sessions) = (left.iter(), sessions.iter());
        loop {
            let (connection, _) = listener.accept().await.unwrap();
            let mut connection = BufReader::new(connection);
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                assert!(connection.read_until(b'\n', &mut head).await.unwrap() > 0, "a head without an end");
            }
            let answer = match String::from_utf8(head).unwrap().split(' ').nth(1).unwrap() {
                "/drain" => json!({ "draining": true, "left": left.next().expect("once too often") }),
                "/nodes" => json!({ "nodes": [{
                    "number": 1, "name": "box (pid 1)", "url": "http://box:1", "version": "0.1.0", "state": "draining",
                    "isSelf": true, "sessions": sessions.next().expect("once too often"), "running": 0, "labels": [],
                }] }),
                _ => json!({ "items": [], "nextCursor": null }),
            };
            connection.write_all(format!("HTTP/1.0 200 OK\r\n\r\n{answer}").as_bytes()).await.unwrap();
        }
    });
    address
}

#[tokio::test]
async fn drain_waits_until_nothing_is_left() {
    let home = tempfile::tempdir().unwrap();
    #[rustfmt::skip]
    let table: [(&'static [u64], &'static [u64], &str, (i32, &str, &str)); 5] = [
        (&[0], &[], "60", (0, "drained\n", "")),
        // What is told of it is not the newest.
        (&[2, 0], &[5, 1, 0], "60", (0, "draining: 2 sessions left\ndraining: 1 session left\ndrained\n", "")),
        (&[2, 1, 0], &[0, 0], "60", (0, "draining: 2 sessions left\ndraining: 1 session left\ndrained\n", "")),
        (&[3, 3], &[3], "1", (1, "draining: 3 sessions left\n", "3 sessions left after 1 s")),
        (&[3], &[], "0", (0, "draining: 3 sessions left\n", "")),
    ];
    for (left, sessions, wait, (code, out, err)) in table {
        let url = format!("http://{}", drains(left, sessions).await);
        let (exit, said, why) = run(home.path(), &["drain", "--attach", &url, "--wait", wait]).await;
        assert_eq!((exit, said.as_str()), (Some(code), out), "{left:?} {sessions:?}: {why}");
        assert!(why.contains(err), "{left:?} {sessions:?}: {why}");
    }
}
