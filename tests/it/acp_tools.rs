//! Our tools and a session's tool servers in the hands of an agent.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use simse::app::Extras;
use simse::config::{AcpMcpServers, AcpPermissionPolicy, AcpServer, AcpTools, McpServer, Settings, ToolBridge};
use simse::protocol::{ToolCategory, ToolDefinition};
use simse::server::ListenOptions;
use simse::tool::{Registry, ToolError, ToolOutput, function};

use super::acp::{begin, decide, end, events, facts};
use super::support::agent::settings;
use super::support::house::House;
use super::support::http::Stream;
use crate::mcp::Scripted;

fn bridge() -> Option<ToolBridge> {
    Some(ToolBridge { program: env!("CARGO_BIN_EXE_simse").into(), args: vec!["bridge".into()] })
}

/// A program with a tool of its own, `notify`, and one of a name that ours have.
fn registry() -> Arc<Registry> {
    let registry = Registry::default();
    let named = |name: &str, category| ToolDefinition {
        category: Some(category),
        ..ToolDefinition::new(
            name,
            "Tells somebody.",
            Map::from_iter([("text".to_owned(), json!({ "type": "string" }))]),
        )
    };
    for definition in [named("notify", ToolCategory::Other), named("fs_list", ToolCategory::Read)] {
        let name = definition.name.clone();
        registry
            .register(function(definition, move |arguments, _| {
                let said = format!("{name} {}", Value::Object(arguments));
                async move { Ok::<_, ToolError>(ToolOutput { text: said, ..ToolOutput::default() }) }
            }))
            .unwrap();
    }
    Arc::new(registry)
}

async fn house(agent: AcpServer, change: impl FnOnce(&mut Settings)) -> (House, String) {
    let extras = Extras { registry: Some(registry()), ..Extras::default() };
    let change = |settings: &mut Settings| {
        settings.acp_servers = vec![agent];
        settings.tool_bridge = bridge();
        change(settings);
    };
    let house = House::fitted(ListenOptions::default(), change, extras).await;
    let session = house.session(json!({ "agent": "a" })).await;
    (house, session)
}

fn server(entry: Value) -> McpServer {
    serde_json::from_value(entry).unwrap()
}

/// Answers the next question of a session whose events are read, and gives it back.
async fn answer(house: &House, (session, stream): (&str, &mut Stream), decision: &str) -> Value {
    let question = stream.until("permission.request").await.pop().unwrap().data["payload"].clone();
    let body = json!({ "requestId": question["requestId"], "decision": decision });
    let reply = house.call("POST", &format!("/sessions/{session}/feedback"), Some(body)).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    question
}

#[tokio::test]
async fn an_agent_calls_a_tool_of_the_program_as_any_other_and_is_asked_about_once() {
    let (house, session) = house(settings("a", ""), |_| {}).await;
    let mut stream = house.events(&session, "").await;
    let turn = begin(&house, &session, "tools\ntool notify {\"text\":\"hello\"}\nsay !").await;
    let question = answer(&house, (&session, &mut stream), "allow").await;
    assert_eq!((&question["toolName"], &question["args"]), (&json!("notify"), &json!({ "text": "hello" })));
    let turn = end(&house, &session, &turn).await;
    // What an agent says comes by another way than its calls, and may come behind one that it has made since.
    assert!(turn["result"].as_str().unwrap().ends_with("notify {\"text\":\"hello\"}!"), "{turn}");
    let seen = events(&house, &session).await;
    let texts: Vec<&Value> =
        seen.iter().filter(|(kind, _)| kind == "stream.delta").map(|(_, it)| &it["text"]).collect();
    assert_eq!(texts[0], "notify", "our own for files are left out");
    let call = |kind: &str| seen.iter().find(|(it, _)| it == kind).map(|(_, payload)| payload.clone()).unwrap();
    let (started, ended) = (call("tool.call.start"), call("tool.call.end"));
    assert_eq!((&started["name"], &ended["isError"]), (&json!("notify"), &json!(false)));
    assert_eq!(started["callId"], ended["callId"]);
    // The agent asks first, as most do with tools that they do not know.
    let ask =
        json!({ "toolCallId": "c1", "title": "mcp__simse__notify", "kind": "other", "rawInput": { "text": "x" } });
    let turn = begin(&house, &session, &format!("ask {ask}\ntool notify {{\"text\":\"x\"}}")).await;
    let question = answer(&house, (&session, &mut stream), "allow").await;
    assert_eq!(question["toolName"], "acp:a/other");
    let turn = end(&house, &session, &turn).await;
    assert!(turn["result"].as_str().unwrap().ends_with("notify {\"text\":\"x\"}"), "one question for one call: {turn}");
    // Of other arguments nothing was said.
    let turn = begin(&house, &session, &format!("ask {ask}\ntool notify {{\"text\":\"y\"}}")).await;
    for (decision, tool) in [("allow", "acp:a/other"), ("deny", "notify")] {
        assert_eq!(answer(&house, (&session, &mut stream), decision).await["toolName"], tool);
    }
    let turn = end(&house, &session, &turn).await;
    assert!(turn["result"].as_str().unwrap().contains("Permission denied for tool: \"notify\""), "{turn}");
    house.close().await;
}

#[tokio::test]
async fn what_the_rules_deny_stays_denied_and_a_setting_says_what_is_offered() {
    let denied = json!({ "defaultPolicy": "ask", "rules": [{ "tool": "notify", "policy": "deny" }] });
    let (house, _) = house(AcpServer { tools: AcpTools::All, ..settings("a", "") }, |settings| {
        let more = |name: &str, tools| AcpServer { tools, ..self::settings(name, "") };
        settings.acp_servers.push(more("none", AcpTools::None));
        settings.acp_servers.push(more("named", AcpTools::Named(vec!["fs_list".into(), "no_such".into()])));
    })
    .await;
    let session = house.session(json!({ "agent": "a", "toolPermissions": denied })).await;
    let ask = json!({ "toolCallId": "c1", "title": "mcp__simse__notify", "kind": "other", "rawInput": {} });
    let turn = begin(&house, &session, &format!("tools\nask {ask}\ntool notify")).await;
    decide(&house, &session, "allow").await;
    let turn = end(&house, &session, &turn).await;
    let said = turn["result"].as_str().unwrap();
    assert!(said.contains("Permission denied for tool: \"notify\""), "{turn}");
    let first = |seen: Vec<(String, Value)>| seen.into_iter().find(|(kind, _)| kind == "stream.delta").unwrap().1;
    assert_eq!(first(events(&house, &session).await)["text"], "notify,fs_list");
    let named = house.session(json!({ "agent": "named" })).await;
    assert_eq!(house.prompt(&named, "tools").await["result"], "fs_list");
    let none = house.session(json!({ "agent": "none" })).await;
    assert_eq!(facts(&house.prompt(&none, "facts").await)["servers"], json!([]));
    house.close().await;
}

#[tokio::test]
async fn a_policy_of_the_configuration_gives_leave_and_a_session_without_the_tool_has_not_got_it() {
    let agent = AcpServer { permission_policy: Some(AcpPermissionPolicy::AutoApprove), ..settings("a", "") };
    let (house, session) = house(agent, |_| {}).await;
    assert_eq!(house.prompt(&session, "tool notify").await["result"], "notify {}");
    // The tools of a session may change; its agent is told of them as they are.
    let reply = house.call("PATCH", &format!("/sessions/{session}"), Some(json!({ "tools": [] }))).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let turn = house.prompt(&session, "tools\ntool notify").await;
    assert!(turn["result"].as_str().unwrap().contains("there is no tool `notify`"), "{turn}");
    house.close().await;
}

#[tokio::test]
async fn a_session_s_tool_servers_are_handed_over_in_the_forms_that_the_agent_takes() {
    let scripted = Scripted::new("usual");
    let placed = Scripted::new("usual");
    let web = json!({ "name": "web", "url": "http://127.0.0.1:9/mcp", "headers": { "X-Key": "k" } });
    for (how, names) in [("", vec!["own", "simse"]), ("http", vec!["own", "web", "simse"])] {
        let (house, session) = house(settings("a", how), |settings| {
            let mut moved = placed.entry("placed");
            if let simse::config::McpTransport::Stdio { cwd, .. } = &mut moved.transport {
                *cwd = Some("/tmp".into());
            }
            settings.mcp_servers = vec![scripted.entry("own"), moved, server(web.clone())];
        })
        .await;
        let turn = house.prompt(&session, "facts\nsay \n").await;
        let told = facts(&turn);
        let servers = told["servers"].as_array().unwrap();
        let got: Vec<&str> = servers.iter().map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!(got, names, "{how}");
        assert_eq!(servers[0]["env"], json!([{ "name": "GIVEN_KEY", "value": "given" }]));
        assert!(servers[0]["command"].as_str().unwrap().ends_with("/node"), "a program by its place: {servers:?}");
        if how == "http" {
            assert_eq!(
                servers[1],
                json!({ "type": "http", "name": "web", "url": "http://127.0.0.1:9/mcp",
                "headers": [{ "name": "X-Key", "value": "k" }] })
            );
        }
        // One that cannot be told with its place is reached through us.
        let allowed = json!({ "agent": "a", "toolPermissions": { "defaultPolicy": "allow", "rules": [] } });
        let session = house.session(allowed).await;
        let turn = house.prompt(&session, "tools\nsay ;\ntool mcp_placed_echo {\"text\":\"hi\"}").await;
        let said = turn["result"].as_str().unwrap();
        assert!(said.contains("hi"), "{turn}");
        let seen = events(&house, &session).await;
        let listed =
            seen.iter().find(|(kind, _)| kind == "stream.delta").unwrap().1["text"].as_str().unwrap().to_owned();
        assert!(listed.contains("mcp_placed_echo") && !listed.contains("mcp_own_"), "{listed}");
        house.close().await;
    }
}

#[tokio::test]
async fn tool_servers_may_be_left_to_us_and_a_session_with_some_of_their_tools_gets_no_more() {
    let scripted = Scripted::new("usual");
    let agent = AcpServer { mcp_servers: AcpMcpServers::Through, ..settings("a", "") };
    let (house, session) = house(agent, |settings| {
        settings.mcp_servers = vec![scripted.entry("own")];
        settings.acp_servers.push(self::settings("direct", ""));
        settings.acp_servers.push(AcpServer { mcp_servers: AcpMcpServers::None, ..self::settings("none", "") });
    })
    .await;
    let names = |told: &Value| -> Vec<String> {
        let all = told["servers"].as_array().unwrap().iter();
        all.map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&facts(&house.prompt(&session, "facts").await)), ["simse"]);
    assert!(house.prompt(&session, "tools").await["result"].as_str().unwrap().contains("mcp_own_echo"));
    let some = house.session(json!({ "agent": "direct", "tools": ["mcp:own/echo"] })).await;
    assert_eq!(names(&facts(&house.prompt(&some, "facts").await)), ["simse"]);
    assert_eq!(house.prompt(&some, "tools").await["result"], "mcp_own_echo");
    let none = house.session(json!({ "agent": "none" })).await;
    assert_eq!(names(&facts(&house.prompt(&none, "facts").await)), ["simse"]);
    assert_eq!(house.prompt(&none, "tools").await["result"], "notify");
    house.close().await;
}

#[tokio::test]
async fn a_stranger_gets_nothing_and_nobody_outlives_the_server() {
    let (house, session) = house(settings("a", ""), |_| {}).await;
    let told = facts(&house.prompt(&session, "facts").await);
    let env = &told["servers"][0]["env"];
    let door = env[0]["value"].as_str().unwrap();
    for word in ["", "guessed", &"x".repeat(64)] {
        let mut stranger = tokio::net::TcpStream::connect(door).await.unwrap();
        let asked = format!("{word}\n{}\n", json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }));
        tokio::io::AsyncWriteExt::write_all(&mut stranger, asked.as_bytes()).await.unwrap();
        let mut said = Vec::new();
        let read = tokio::io::AsyncReadExt::read_to_end(&mut stranger, &mut said);
        // It may also be cut off.
        let _ = tokio::time::timeout(Duration::from_secs(60), read).await.unwrap();
        assert!(said.is_empty(), "{word}: {}", String::from_utf8_lossy(&said));
    }
    let pid = house.prompt(&session, "toolpid").await["result"].as_str().unwrap().to_owned();
    let alive = |pid: &str| std::path::Path::new("/proc").join(pid).join("cwd").read_link().is_ok();
    assert!(alive(&pid));
    house.close().await;
    assert!(tokio::net::TcpStream::connect(door).await.is_err());
    // It ends when its line does.
    let until = tokio::time::Instant::now() + Duration::from_secs(60);
    while alive(&pid) {
        assert!(tokio::time::Instant::now() < until, "{pid} lives on");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
