//! A project's own tool servers, which start nothing before the user has said yes; and many tools, which are found instead of told.

use serde_json::{Value, json};
use simse::config::Settings;
use simse::protocol::{PermissionPolicy, PermissionRule};
use simse::server::ListenOptions;

use crate::mcp::{Scripted, call, until};
use crate::support::house::{Does, House};

fn allowing(settings: &mut Settings) {
    settings.permissions.default_policy = PermissionPolicy::Allow;
}

#[tokio::test]
async fn a_project_starts_nothing_before_the_user_has_said_yes() {
    let scripted = Scripted::new("stray");
    let house = House::with(ListenOptions::default(), allowing).await;
    let file = house.work.path().join(".mcp.json");
    let write = |more: Value| {
        let mut entry = scripted.written();
        entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        std::fs::write(&file, json!({ "mcpServers": { "p": entry, "broken": { "type": "sse" } } }).to_string())
            .unwrap();
    };
    write(json!({}));
    let session = house.session(json!({})).await;
    let path = format!("/sessions/{session}/mcp");
    let look = async || house.call("GET", &path, None).await.json();
    house.prompt(&session, "go").await;
    let seen = look().await;
    let project = &seen["project"];
    assert_eq!((&project["state"], &seen["servers"], scripted.notes().len()), (&json!("untrusted"), &json!([]), 0));
    assert!(project["servers"][0]["runs"].as_str().unwrap().starts_with("node "), "{project}");
    assert_eq!(project["servers"][0]["given"], json!(["GIVEN_KEY"]));

    let trust = async |body: Value| house.call("POST", &format!("{path}/trust"), Some(body)).await;
    assert_eq!(trust(json!({ "hash": "0" })).await.status, 409);
    assert_eq!(trust(json!({})).await.status, 400);
    let hash = project["hash"].clone();
    let now = trust(json!({ "hash": hash })).await.json();
    assert_eq!((&now["project"]["state"], &now["servers"][0]["of"]), (&json!("trusted"), &json!("project")));
    assert_eq!(now["project"]["problems"].as_array().unwrap().len(), 1);
    assert_eq!(call(&house, &session, "mcp:p/echo", json!({ "text": "hi" })).await, ("echo: hi".into(), false));
    assert_eq!(scripted.notes()[0]["cwd"].as_str(), house.work.path().canonicalize().unwrap().to_str());

    let ask = async |body: Value| house.call("POST", &format!("{path}/ask"), Some(body)).await;
    let prompt = ask(
        json!({ "server": "p", "method": "prompts/get", "params": { "name": "greet", "arguments": { "who": "Ada" } } }),
    )
    .await;
    assert_eq!(prompt.json()["result"]["messages"][0]["content"]["text"], "Greet Ada.");
    assert_eq!(ask(json!({ "server": "p", "method": "tools/call" })).await.status, 400);
    assert_eq!(ask(json!({ "server": "q", "method": "prompts/list" })).await.status, 404);
    assert_eq!(
        ask(json!({ "server": "p", "method": "resources/read", "params": { "uri": "mem://9" } })).await.status,
        503
    );

    // Another content is another file: what was started ends, and nothing of the new one begins.
    let lives = scripted.heard("initialize").len();
    write(json!({ "env": { "GIVEN_KEY": "another" } }));
    house.prompt(&session, "go").await;
    scripted.leaves_nobody().await;
    let changed = look().await;
    assert_eq!((&changed["project"]["state"], scripted.heard("initialize").len()), (&json!("untrusted"), lives));
    assert_eq!(trust(json!({ "hash": changed["project"]["hash"] })).await.status, 200);
    until("it runs again", || scripted.heard("initialize").len() > lives).await;
    let taken = trust(json!({ "hash": changed["project"]["hash"], "trusted": false })).await.json();
    assert_eq!(taken["project"]["state"], "untrusted");
    scripted.leaves_nobody().await;
    house.close().await;
}

#[tokio::test]
async fn many_tools_are_found_and_called_by_their_own_names() {
    let scripted = Scripted::new("many");
    let server = scripted.entry("m");
    let house = House::with(ListenOptions::default(), |settings| {
        allowing(settings);
        settings.mcp_servers = vec![server];
        let rule = |tool: &str, policy| PermissionRule {
            tool: tool.into(),
            pattern: None,
            policy,
            category: None,
            annotations: None,
        };
        settings.permissions.rules.push(rule("mcp:m/tool_number_7", PermissionPolicy::Deny));
    })
    .await;
    let session = house.session(json!({})).await;
    let found = call(&house, &session, "mcp_tool_search", json!({ "query": "tool_number_499" })).await;
    assert!(
        found.0.starts_with("mcp:m/tool_number_499\n") && found.0.contains(r#""required":["text"]"#),
        "{}",
        found.0
    );
    let round = |name: &str, arguments: Value| json!({ "name": name, "arguments": arguments });
    let mut events = house.events(&session, "").await;
    events.until("session.completed").await;
    let table = [
        (
            round("mcp:m/tool_number_499", json!({ "text": "hi" })),
            "mcp:m/tool_number_499",
            "tool_number_499: hi",
            false,
        ),
        (round("mcp:m/tool_number_499", json!({})), "mcp:m/tool_number_499", "text", true),
        (round("mcp:m/tool_number_7", json!({ "text": "hi" })), "mcp:m/tool_number_7", "Permission denied", true),
        (round("mcp:m/none", json!({})), "mcp_tool_call", "expected the name of a tool", true),
    ];
    for (arguments, name, want, fails) in table {
        house.round(&[Does::Calls("mcp_tool_call", arguments)]);
        house.prompt(&session, "go").await;
        let seen = events.until("session.completed").await;
        let end = seen.iter().find(|frame| frame.kind() == "tool.call.end").unwrap();
        let payload = &end.data["payload"];
        assert_eq!((&payload["name"], &payload["isError"]), (&json!(name), &json!(fails)), "{payload}");
        assert!(payload["output"].as_str().unwrap().contains(want), "{payload}");
    }
    let history = house.call("GET", &format!("/sessions/{session}/history?limit=1000"), None).await.json();
    let named =
        history["items"].as_array().unwrap().iter().filter(|item| item["name"] == "mcp:m/tool_number_499").count();
    assert_eq!(named, 4, "calls and results are the tool's own");
    assert!(house.app.tools().len() > 500, "whoever asks for the tools sees all of them");
    house.close().await;
}
