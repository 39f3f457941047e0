//! A simse that is killed takes the programs of its tool servers and agents with it, and what they have started.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::mcp::Scripted;
use crate::support::agent;
use crate::support::binary::Serving;
use crate::support::http::within;

/// Runs a server as it is; what it starts beside it is in its group, has left it, or has left it and heeds nothing.
const WRAPPER: &str = r#"
sleep 4201 & echo $! >>"$0"
setsid sleep 4202 & echo $! >>"$0"
setsid sh -c 'trap "" TERM HUP INT; sleep 4203; sleep 4204' & echo $! >>"$0"
trap '' TERM HUP INT PIPE
echo $$ >>"$0"
"$@"
sleep 4205
"#;

fn lives(id: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default().trim_start().chars().next();
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

fn started(pids: &Path) -> Vec<u64> {
    let text = std::fs::read_to_string(pids).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

async fn until(holds: impl Fn() -> bool) {
    within(async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_killed_server_leaves_no_tool_server_behind() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let (plain, pids) = (Scripted::new("stray"), home.path().join("pids"));
    let own = plain.written();
    let words = |of: &Value| of.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect();
    let mut args: Vec<String> = vec!["-c".into(), WRAPPER.into(), pids.display().to_string(), "node".into()];
    args.extend::<Vec<String>>(words(&own["args"]));
    let config = home.path().join("config.toml");
    let entry = format!("[[mcp_servers]]\nname = \"kept\"\ncommand = \"bash\"\nargs = {}\n", json!(args));
    std::fs::write(&config, entry).unwrap();
    let serving = Serving::start(&home, &["--config", &config.display().to_string()]).await;
    let state = async || {
        let health = serving.request("GET", "/health").send(serving.address).await.json();
        health["checks"]["mcpServers"]["servers"]["kept"].clone()
    };
    within(async {
        while state().await != "connected" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let notes = plain.notes();
    let scripts = notes.iter().flat_map(|note| [note["started"].as_u64(), note["helper"].as_u64()]).flatten();
    let all: Vec<u64> = started(&pids).into_iter().chain(scripts).collect();
    assert!(all.len() >= 6 && all.iter().all(|id| lives(*id)), "{all:?}");
    serving.signal(rustix::process::Signal::KILL);
    until(|| !all.iter().any(|id| lives(*id))).await;
}

/// An agent with a child of its own and our tools, whose bridge the agent has started.
#[tokio::test]
async fn a_killed_server_leaves_no_agent_and_no_bridge_behind() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let plain = Scripted::new("stray");
    let (own, scripted) = (plain.written(), agent::settings("a", "outlives"));
    let env: Vec<String> = scripted.env.iter().map(|(name, value)| format!("{name} = {}", json!(value))).collect();
    let config = home.path().join("config.toml");
    let entries = format!(
        "memory = true\n[[mcp_servers]]\nname = \"tools\"\ncommand = {}\nargs = {}\n[[acp_servers]]\nname = \"a\"\ncommand = {}\nargs = {}\nenv = {{ {} }}\nmcpServers = \"through\"\n",
        own["command"],
        own["args"],
        json!(scripted.command),
        json!(scripted.args),
        env.join(", ")
    );
    std::fs::write(&config, entries).unwrap();
    let serving = Serving::start(&home, &["--config", &config.display().to_string()]).await;
    let call =
        async |path: &str, body: Value| serving.request("POST", path).json(&body).send(serving.address).await.json();
    let session = call("/sessions", json!({ "agent": "a" })).await["sessionId"].as_str().unwrap().to_owned();
    let path = format!("/sessions/{session}/prompt?wait=true");
    let said = async |script: &str| {
        let turn = call(&path, json!({ "prompt": script })).await;
        turn["result"].as_str().unwrap_or_else(|| panic!("{turn}")).to_owned()
    };
    let facts: Value = serde_json::from_str(&said("facts").await).unwrap();
    let mut all = vec![facts["pid"].as_u64().unwrap()];
    for script in ["child", "toolpid"] {
        all.push(said(script).await.parse().unwrap());
    }
    let notes = plain.notes();
    all.extend(notes.iter().flat_map(|note| [note["started"].as_u64(), note["helper"].as_u64()]).flatten());
    assert!(all.len() >= 5 && all.iter().all(|id| lives(*id)), "{all:?}");
    serving.signal(rustix::process::Signal::KILL);
    until(|| !all.iter().any(|id| lives(*id))).await;
}
