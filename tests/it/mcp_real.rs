//! Tool servers that others wrote, through a session: `server-everything` and `server-filesystem` of npm.
//!
//! They lie in `node_modules` (devDependencies, which `npm test` installs), or where `SIMSE_TEST_MCP_REAL` says.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use simse::config::{McpServer, Settings};
use simse::protocol::PermissionPolicy;
use simse::server::ListenOptions;

use crate::mcp::{call, names, until};
use crate::support::house::{Does, House};

/// The program of a package.
fn program(package: &str) -> PathBuf {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("node_modules");
    let modules = std::env::var_os("SIMSE_TEST_MCP_REAL").map_or(beside, PathBuf::from);
    let found = modules.join("@modelcontextprotocol").join(package).join("dist/index.js");
    assert!(found.is_file(), "{} is not there: `npm install` brings it", found.display());
    found
}

fn server(name: &str, program: &Path, arguments: &[Value]) -> McpServer {
    let mut args = vec![json!(program)];
    args.extend_from_slice(arguments);
    serde_json::from_value(json!({ "name": name, "command": "node", "args": args })).unwrap()
}

async fn house(servers: Vec<McpServer>) -> House {
    let change = |settings: &mut Settings| {
        settings.mcp_servers = servers;
        settings.permissions.default_policy = PermissionPolicy::Allow;
    };
    House::with(ListenOptions::default(), change).await
}

#[tokio::test]
async fn the_server_with_everything_has_all_that_it_wants() {
    let program = program("server-everything");
    let house = house(vec![server("e", &program, &[json!("stdio")])]).await;
    let session = house.session(json!({})).await;
    // What it offers depends on what we do, and comes after the first list.
    until("it knows what we can", || names(&house).contains(&"mcp:e/trigger-sampling-request".to_owned())).await;
    let say = async |tool: &'static str, arguments: Value| call(&house, &session, tool, arguments).await;
    assert_eq!(say("mcp:e/echo", json!({ "message": "hi" })).await, ("Echo: hi".into(), false));
    assert!(say("mcp:e/get-sum", json!({ "a": 2, "b": 3 })).await.0.contains('5'));
    let image = say("mcp:e/get-tiny-image", json!({})).await;
    assert!(image.0.contains("[image, image/png, ") && !image.1, "{image:?}");
    let structured = say("mcp:e/get-structured-content", json!({ "location": "Chicago" })).await;
    assert!(structured.0.contains("temperature"), "{structured:?}");
    let link = say("mcp:e/get-resource-links", json!({ "count": 1 })).await;
    assert!(link.0.contains("[link to the resource demo://"), "{link:?}");
    let embedded = say("mcp:e/get-resource-reference", json!({ "resourceType": "Text", "resourceId": 1 })).await;
    assert!(embedded.0.contains("[resource demo://"), "{embedded:?}");
    let roots = say("mcp:e/get-roots-list", json!({})).await;
    let work = house.work.path().canonicalize().unwrap();
    assert!(roots.0.contains(&format!("file://{}", work.display())), "{roots:?}");

    let mut events = house.events(&session, "").await;
    let long = say("mcp:e/trigger-long-running-operation", json!({ "duration": 1, "steps": 4 })).await;
    assert!(long.0.contains("completed") && !long.1, "{long:?}");
    let shown = events.until("tool.call.output").await.pop().unwrap();
    assert!(shown.data["payload"]["text"].as_str().unwrap().starts_with("[progress "), "{shown:?}");

    house.round(&[Does::Calls("mcp:e/trigger-sampling-request", json!({ "prompt": "What is it?", "maxTokens": 20 }))]);
    house.round(&[Does::Says("It is a test.")]);
    house.prompt(&session, "go").await;
    let seen = events.until("client.notice").await.pop().unwrap();
    assert!(seen.data["payload"]["text"].as_str().unwrap().contains("`e` had an answer"), "{seen:?}");

    let list = say("mcp:e/resources/list", json!({})).await;
    assert!(
        list.0.contains("demo://resource/static/document/") && list.0.contains("template demo://resource/dynamic/"),
        "{list:?}"
    );
    let read = say("mcp:e/resources/read", json!({ "uri": "demo://resource/static/document/features.md" })).await;
    assert!(read.0.starts_with("[resource demo://") && !read.1, "{read:?}");
    let path = format!("/sessions/{session}/mcp/ask");
    let ask = async |method: &str, params: Value| {
        let body = json!({ "server": "e", "method": method, "params": params });
        house.call("POST", &path, Some(body)).await.json()["result"].clone()
    };
    assert!(ask("prompts/list", json!({})).await["prompts"].as_array().unwrap().len() >= 4);
    let prompt = ask("prompts/get", json!({ "name": "args-prompt", "arguments": { "city": "Paris" } })).await;
    assert!(prompt["messages"][0]["content"]["text"].as_str().unwrap().contains("Paris"), "{prompt}");
    let about = json!({ "ref": { "type": "ref/prompt", "name": "completable-prompt" }, "argument": { "name": "department", "value": "E" } });
    let completed = ask("completion/complete", about).await;
    assert!(completed["completion"]["values"].as_array().is_some_and(|values| !values.is_empty()), "{completed}");
    house.close().await;
}

#[tokio::test]
async fn the_server_with_files_reads_and_writes_where_it_may() {
    let program = program("server-filesystem");
    let room = tempfile::tempdir().unwrap();
    let room = room.path().canonicalize().unwrap();
    std::fs::write(room.join("a.txt"), "inside").unwrap();
    // It takes the roots that it is told for the places where it may work.
    let house = house(vec![server("f", &program, &[json!(room)])]).await;
    let session = house.session(json!({})).await;
    let work = house.work.path().canonicalize().unwrap();
    std::fs::write(work.join("b.txt"), "at work").unwrap();
    // It asks for them once it runs.
    for _ in 0..600 {
        let allowed = call(&house, &session, "mcp:f/list_allowed_directories", json!({})).await;
        if allowed.0.contains(&work.display().to_string()) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let read = call(&house, &session, "mcp:f/read_text_file", json!({ "path": work.join("b.txt") })).await;
    assert_eq!((read.0.trim(), read.1), ("at work", false));
    let written =
        call(&house, &session, "mcp:f/write_file", json!({ "path": work.join("c.txt"), "content": "new" })).await;
    assert!(!written.1, "{written:?}");
    assert_eq!(std::fs::read_to_string(work.join("c.txt")).unwrap(), "new");
    let outside = call(&house, &session, "mcp:f/read_text_file", json!({ "path": "/etc/hostname" })).await;
    assert!(outside.1 && outside.0.contains("denied"), "{outside:?}");
    house.close().await;
}
