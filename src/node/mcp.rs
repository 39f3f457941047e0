//! `createMCPClient`: tool servers that a program connects by itself.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use napi::Env;
use napi::bindgen_prelude::PromiseRaw;
use napi_derive::napi;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::bridge::{Bridge, CallFailure, NativeBridge};
use super::cancel::{CancelHandle, token_of};
use super::error::{envelope, parse, to_json};
use super::text::{JsText, js_text};
use super::tool::HandlerOutput;
use crate::base::BoxFuture;
use crate::config::McpServer;
use crate::mcp::{Client, ClientError, Identity, News, OnProgress, Program, Progress, read_answer};

/// What a client is made with.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Config {
    servers: Vec<McpServer>,
    client_name: Option<String>,
    client_version: Option<String>,
    /// Where programs start that name no directory.
    directory: PathBuf,
    /// The directories that servers are told to work in.
    roots: Vec<PathBuf>,
    /// Whether the program answers what servers ask models, and whether it has forms filled in.
    #[serde(default)]
    samples: bool,
    #[serde(default)]
    elicits: bool,
}

/// A request in the protocol's words.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Request {
    server: String,
    method: String,
    params: Map<String, Value>,
    timeout_ms: u64,
    /// Under which number its progress is told. None: it is not.
    #[serde(default)]
    progress: Option<u64>,
}

/// A client.
#[napi]
pub struct NativeMcpClient {
    client: Arc<Client>,
    bridge: Arc<Bridge>,
    target: u32,
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
        let program = program(&bridge, target, (config.samples, config.elicits));
        let places = (config.directory, config.roots);
        let client = Client::new(config.servers, places, identity, program).map_err(|error| {
            let issues =
                json!({ "issues": [{ "path": format!("servers.{}.name", error.at), "message": error.to_string() }] });
            envelope("CONFIG_VALIDATION", format!("createMCPClient: {error}"), issues)
        })?;
        Ok(Self { client: Arc::new(client), bridge, target })
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

    /// Tells the servers that they work in these directories from now on; a list in JSON.
    #[napi(catch_unwind)]
    pub fn set_roots(&self, roots: String) -> napi::Result<()> {
        self.client.set_roots(parse("setRoots", &roots)?);
        Ok(())
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
        let teller = (Arc::clone(&self.bridge), self.target);
        env.spawn_future(async move { Ok(js_text(to_json(&send(&client, request, (teller, &cancel)).await?))) })
    }
}

async fn send(
    client: &Client,
    request: Request,
    ((bridge, target), cancel): ((Arc<Bridge>, u32), &CancellationToken),
) -> napi::Result<Value> {
    let Request { server, method, params, timeout_ms, progress } = request;
    let goes_on = Arc::new(Notify::new());
    let last_word = Arc::new(Mutex::new(None));
    let on_progress = progress.map(|number| {
        let (goes_on, server, last_word) = (Arc::clone(&goes_on), server.clone(), Arc::clone(&last_word));
        let told = move |progress: Progress| {
            goes_on.notify_one();
            let said = json!({ "server": server, "request": number, "progress": progress });
            *last_word.lock() = tell(&bridge, target, ("progress", said));
        };
        Arc::new(told) as OnProgress
    });
    let asked = client.request(&server, (&method, params), (on_progress, cancel));
    tokio::pin!(asked);
    let answer = loop {
        tokio::select! {
            biased;
            answer = &mut asked => break answer,
            // What goes on may take its time.
            () = goes_on.notified() => {}
            () = tokio::time::sleep(Duration::from_millis(timeout_ms)) => {
                cancel.cancel();
                // It tells the server.
                drop(asked.await);
                let message = format!("Operation \"mcp:{server}:{method}\" timed out after {timeout_ms}ms");
                let about = json!({ "server": server, "timeoutMs": timeout_ms });
                return Err(envelope("OPERATION_TIMEOUT", message, about));
            }
        }
    };
    let last_word = last_word.lock().take();
    if let Some(last_word) = last_word {
        // The answer takes another way to JavaScript than what was told before it, and must not be there first.
        drop(last_word.await);
    }
    answer.map_err(|error| client_error(&error, &server))
}

/// The program in JavaScript.
fn program(bridge: &Arc<Bridge>, target: u32, (samples, elicits): (bool, bool)) -> Program {
    let (telling, asking) = (Arc::clone(bridge), Arc::clone(bridge));
    let told = move |server: &str, news: News| {
        tell(&telling, target, ("news", json!({ "server": server, "news": news })));
    };
    let answer = move |input: Value, cancel: CancellationToken| -> BoxFuture<'static, Result<Value, String>> {
        let bridge = Arc::clone(&asking);
        Box::pin(async move {
            let answer = bridge.call(target, "answer", to_json(&input), &cancel).await;
            let answer = answer.map_err(|error| match error {
                CallFailure::Threw(message) | CallFailure::BadInput(message) => message,
                CallFailure::Aborted => "aborted".to_owned(),
            })?;
            serde_json::from_str(&answer).map_err(|error| error.to_string())
        })
    };
    Program { told: Arc::new(told), answer: Arc::new(answer), samples, elicits, opens_pages: elicits, opens: None }
}

/// Tells JavaScript something in the order in which it came: it is on its way when this returns. What ends when it was heard.
fn tell(bridge: &Arc<Bridge>, target: u32, (what, input): (&'static str, Value)) -> Option<JoinHandle<()>> {
    let (bridge, input) = (Arc::clone(bridge), to_json(&input));
    let mut telling = Box::pin(async move {
        // A listener that throws is told about in JavaScript, and a client that is gone needs no news.
        let _ = bridge.call(target, what, input, &CancellationToken::new()).await;
    });
    telling.as_mut().now_or_never().is_none().then(|| tokio::spawn(telling))
}

fn client_error(error: &ClientError, server: &str) -> napi::Error {
    let code = match error {
        ClientError::Connection(_) => "MCP_CONNECTION_ERROR",
        ClientError::NotConnected(_) => "MCP_NOT_CONNECTED",
        ClientError::NeedsLogin(_) => "MCP_CONNECTION_ERROR",
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
