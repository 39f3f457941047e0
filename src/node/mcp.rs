//! `createMCPClient`: tool servers that a program connects by itself.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use napi::Env;
use napi::bindgen_prelude::PromiseRaw;
use napi_derive::napi;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::bridge::{Bridge, NativeBridge};
use super::cancel::{CancelHandle, token_of};
use super::error::{envelope, parse, to_json};
use super::text::{JsText, js_text};
use super::tool::HandlerOutput;
use crate::config::McpServer;
use crate::mcp::{Client, ClientError, Identity, read_answer};

/// What a client is made with.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Config {
    servers: Vec<McpServer>,
    client_name: Option<String>,
    client_version: Option<String>,
    /// Where programs start that name no directory.
    directory: PathBuf,
}

/// A request in the protocol's words.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Request {
    server: String,
    method: String,
    params: Map<String, Value>,
    timeout_ms: u64,
}

/// A client.
#[napi]
pub struct NativeMcpClient {
    client: Arc<Client>,
}

#[napi]
impl NativeMcpClient {
    /// A client that is connected to nobody. `target` is told when tools change.
    #[napi(constructor, catch_unwind)]
    pub fn new(bridge: &NativeBridge, config: String, target: u32) -> napi::Result<Self> {
        let config: Config = parse("createMCPClient", &config)?;
        let own = Identity::default();
        let identity = Identity {
            name: config.client_name.unwrap_or(own.name),
            version: config.client_version.unwrap_or(own.version),
        };
        let bridge = Arc::clone(&bridge.inner);
        let tools_changed = Box::new(move |server: &str| tell(&bridge, target, server));
        let client = Client::new(config.servers, config.directory, identity, tools_changed).map_err(|error| {
            let issues =
                json!({ "issues": [{ "path": format!("servers.{}.name", error.at), "message": error.to_string() }] });
            envelope("CONFIG_VALIDATION", format!("createMCPClient: {error}"), issues)
        })?;
        Ok(Self { client: Arc::new(client) })
    }

    /// Connects a server.
    #[napi(catch_unwind, ts_return_type = "Promise<void>")]
    pub fn connect<'env>(&self, env: &'env Env, server: String) -> napi::Result<PromiseRaw<'env, ()>> {
        let client = Arc::clone(&self.client);
        env.spawn_future(async move { client.connect(&server).await.map_err(|error| client_error(&error, &server)) })
    }

    /// Disconnects a server.
    #[napi(catch_unwind, ts_return_type = "Promise<void>")]
    pub fn disconnect<'env>(&self, env: &'env Env, server: String) -> napi::Result<PromiseRaw<'env, ()>> {
        let client = Arc::clone(&self.client);
        env.spawn_future(async move {
            client.disconnect(&server).await;
            Ok(())
        })
    }

    /// The names of the servers that are connected, in JSON.
    #[napi(catch_unwind)]
    pub fn connected(&self) -> String {
        to_json(&self.client.connected())
    }

    /// Sends a [`Request`]; the answer in JSON.
    #[napi(catch_unwind, ts_return_type = "Promise<string>")]
    pub fn request<'env>(
        &self,
        env: &'env Env,
        request: String,
        cancel: Option<&CancelHandle>,
    ) -> napi::Result<PromiseRaw<'env, JsText>> {
        let request: Request = parse("request", &request)?;
        // A cancellation of this request alone: the time-out fires it too.
        let cancel = token_of(cancel).child_token();
        let client = Arc::clone(&self.client);
        env.spawn_future(async move { Ok(js_text(to_json(&send(&client, request, &cancel).await?))) })
    }
}

async fn send(client: &Client, request: Request, cancel: &CancellationToken) -> napi::Result<Value> {
    let Request { server, method, params, timeout_ms } = request;
    let asked = client.request(&server, (&method, params), cancel);
    tokio::pin!(asked);
    let answer = tokio::select! {
        biased;
        answer = &mut asked => answer,
        () = tokio::time::sleep(Duration::from_millis(timeout_ms)) => {
            cancel.cancel();
            // It tells the server.
            drop(asked.await);
            let message = format!("Operation \"mcp:{server}:{method}\" timed out after {timeout_ms}ms");
            return Err(envelope("OPERATION_TIMEOUT", message, json!({ "server": server, "timeoutMs": timeout_ms })));
        }
    };
    answer.map_err(|error| client_error(&error, &server))
}

fn tell(bridge: &Arc<Bridge>, target: u32, server: &str) {
    let (bridge, input) = (Arc::clone(bridge), to_json(&json!({ "server": server })));
    tokio::spawn(async move {
        // A listener that throws is told about in JavaScript, and a client that is gone needs no news.
        let _ = bridge.call(target, "toolsChanged", input, &CancellationToken::new()).await;
    });
}

fn client_error(error: &ClientError, server: &str) -> napi::Error {
    let code = match error {
        ClientError::Connection(_) => "MCP_CONNECTION_ERROR",
        ClientError::NotConnected(_) => "MCP_NOT_CONNECTED",
        ClientError::Failed(_) => "MCP_ERROR",
        ClientError::Aborted => "ABORTED",
    };
    envelope(code, error.to_string(), json!({ "server": server }))
}

/// What a tool's answer, as a client of the caller's own got it, is for a model: `{output, parts?, details?}` in JSON. None: it
/// is no answer of the protocol. A reported failure is thrown.
#[napi(catch_unwind)]
pub fn read_mcp_answer(answer: String) -> napi::Result<Option<JsText>> {
    match read_answer(parse("answer", &answer)?) {
        None => Ok(None),
        Some(Ok(output)) => Ok(Some(js_text(to_json(&HandlerOutput::from(output))))),
        Some(Err(error)) => Err(envelope("MCP_TOOL_ERROR", error.to_string(), Value::Null)),
    }
}
