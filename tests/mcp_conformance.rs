//! The client under test of the MCP conformance suite: our MCP client, with a browser and a user that say yes to everything.
//!
//! `scripts/mcp-conformance.mjs` runs the suite with it. The suite gives an address as the last argument, the scenario's name in
//! `MCP_CONFORMANCE_SCENARIO`, and what a client is to know beforehand in `MCP_CONFORMANCE_CONTEXT`.

#![allow(clippy::print_stderr, reason = "the suite shows what is told there")]

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use simse::config::McpServer;
use simse::mcp::{Client, Identity, Program};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

/// An address at which the suite finds how we introduce ourselves.
const CLIENT_METADATA: &str = "https://conformance-test.local/client-metadata.json";

type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Outcome {
    let url = std::env::args().next_back().ok_or("an address as the last argument")?;
    let scenario = std::env::var("MCP_CONFORMANCE_SCENARIO").unwrap_or_default();
    let context: Value = match std::env::var("MCP_CONFORMANCE_CONTEXT") {
        Ok(text) => serde_json::from_str(&text)?,
        Err(_) => Value::Null,
    };
    let client = client(&url, &scenario, &context)?;
    client.connect("s").await?;
    let ask = async |method: &str, params: Value| {
        let params = params.as_object().cloned().unwrap_or_default();
        let forever = CancellationToken::new();
        let asked = client.request("s", (method, params), (None, &forever));
        tokio::time::timeout(Duration::from_secs(20), asked)
            .await
            .map_err(|_| "no answer in time".to_owned())?
            .map_err(|e| e.to_string())
    };
    let listed = ask("tools/list", json!({})).await?;
    let mut calls: Vec<Value> = context["toolCalls"].as_array().cloned().unwrap_or_default();
    for tool in listed["tools"].as_array().into_iter().flatten() {
        // What the suite does not say how it is called, it may be called with anything that fits.
        if calls.iter().all(|call| call["name"] != tool["name"]) {
            let mut arguments = arguments(&tool["inputSchema"]);
            if arguments.get("schema").is_some_and(Value::is_object) {
                // It wants to see what we have understood of another tool.
                arguments["schema"] = listed["tools"][0]["inputSchema"].clone();
            }
            calls.push(json!({ "name": tool["name"], "arguments": arguments }));
        }
    }
    for call in calls {
        let tool = listed["tools"].as_array().into_iter().flatten().find(|tool| tool["name"] == call["name"]);
        let Some(tool) = tool else { continue };
        let answer = ask("tools/call", call).await;
        // Some scenarios want calls that cannot succeed; they look at what was sent.
        match answer {
            Ok(answer) => eprintln!("{} answered {answer}", tool["name"]),
            Err(why) => eprintln!("{} failed: {why}", tool["name"]),
        }
    }
    client.disconnect("s").await;
    Ok(())
}

/// A client with what the suite says that it knows.
fn client(url: &str, scenario: &str, context: &Value) -> Result<Client, Box<dyn std::error::Error + Send + Sync>> {
    let mut oauth = Map::new();
    if let Some(id) = context["client_id"].as_str() {
        oauth.insert("clientId".into(), id.into());
        if let Some(secret) = context["client_secret"].as_str() {
            oauth.insert("clientSecret".into(), secret.into());
        }
    } else {
        oauth.insert("clientMetadataUrl".into(), CLIENT_METADATA.into());
    }
    if let Some(key) = context["private_key_pem"].as_str() {
        let file = std::env::temp_dir().join(format!("mcp-conformance-{}.pem", std::process::id()));
        std::fs::write(&file, key)?;
        oauth.insert("privateKeyFile".into(), json!(file));
    }
    if let (Some(endpoint), Some(token)) = (context["idp_token_endpoint"].as_str(), context["idp_id_token"].as_str()) {
        let file = std::env::temp_dir().join(format!("mcp-conformance-{}.id", std::process::id()));
        std::fs::write(&file, token)?;
        let provider = json!({ "tokenEndpoint": endpoint, "clientId": context["idp_client_id"], "idTokenFile": file });
        oauth.insert("identityProvider".into(), provider);
    }
    if let Some(token) = context["valid_jwt"].as_str() {
        let file = std::env::temp_dir().join(format!("mcp-conformance-{}.jwt", std::process::id()));
        std::fs::write(&file, token)?;
        oauth.insert("workloadTokenFile".into(), json!(file));
    }
    if scenario.starts_with("auth/client-credentials") {
        oauth.insert("clientCredentials".into(), true.into());
    }
    let server: McpServer = serde_json::from_value(json!({ "name": "s", "url": url, "oauth": oauth }))?;
    let program = Program {
        told: Arc::new(|_, _| {}),
        answer: Arc::new(|asked, _| {
            Box::pin(async move {
                match asked["method"].as_str() {
                    // What is left out has its default.
                    Some("elicitation/create") => Ok(json!({ "action": "accept", "content": {} })),
                    _ => Err("there is no model".to_owned()),
                }
            })
        }),
        samples: false,
        elicits: true,
        opens_pages: true,
        opens: Some(Arc::new(|_, address| {
            Box::pin(async move {
                if let Err(why) = browse(address).await {
                    eprintln!("the browser: {why}");
                }
            })
        })),
    };
    let here = std::env::current_dir()?;
    Ok(Client::new(vec![server], (here.clone(), vec![here]), Identity::default(), program)?)
}

/// Arguments that fit a schema.
fn arguments(schema: &Value) -> Value {
    let value = |schema: &Value| match schema["type"].as_str() {
        Some("number" | "integer") => json!(1),
        Some("boolean") => json!(true),
        Some("object") => json!({}),
        _ => json!("text"),
    };
    let properties = schema["properties"].as_object();
    properties.into_iter().flatten().map(|(name, schema)| (name.clone(), value(schema))).collect::<Map<_, _>>().into()
}

/// Opens an address as a browser does whose user has agreed long ago: follows all redirects.
async fn browse(mut address: String) -> Outcome {
    for _ in 0..10 {
        let rest = address.strip_prefix("http://").ok_or("expected an address on this machine")?;
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let mut stream = tokio::net::TcpStream::connect(host).await?;
        let request = format!("GET /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let location = |line: &str| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("location").then(|| value.trim().to_owned())
        };
        match answer.lines().take_while(|line| !line.is_empty()).find_map(location) {
            Some(next) => address = next,
            None => return Ok(()),
        }
    }
    Err("it goes round in circles".into())
}
