//! `createSimseServer`: the application and its HTTP door, started and stopped from JavaScript.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use napi::Env;
use napi::bindgen_prelude::PromiseRaw;
use napi_derive::napi;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::bridge::{Bridge, NativeBridge};
use super::error::{envelope, parse, to_json};
use super::gate::JsAsker;
use super::hooks::JsHooks;
use super::model::JsModel;
use super::registry::NativeRegistry;
use super::server_config::ServerConfig;
use crate::app::{App, Extras, OpenError};
use crate::hook::{Hooks, Line};
use crate::server::{ListenError, Server};
use crate::store::StoreError;
use crate::tool::Registry;

/// A server that runs.
struct Running {
    app: Arc<App>,
    server: Server,
    grace: Duration,
}

/// A server that can be started and stopped, again and again.
#[napi]
pub struct NativeServer {
    bridge: Arc<Bridge>,
    target: u32,
    hook_mask: Arc<AtomicU32>,
    running: Arc<Mutex<Option<Running>>>,
}

#[napi]
impl NativeServer {
    /// A server that was not started. `target` is the JavaScript object that hooks and questions go to.
    #[napi(constructor, catch_unwind)]
    pub fn new(bridge: &NativeBridge, target: u32) -> Self {
        Self { bridge: Arc::clone(&bridge.inner), target, hook_mask: Arc::default(), running: Arc::default() }
    }

    /// Says which hook points have handlers, a bit for each.
    #[napi(catch_unwind)]
    pub fn set_hook_mask(&self, mask: u32) {
        self.hook_mask.store(mask, Ordering::Release);
    }

    /// Starts; `{host, port}` in JSON. `registry` brings the tools of all sessions.
    #[napi(catch_unwind, ts_return_type = "Promise<string>")]
    pub fn start<'env>(
        &self,
        env: &'env Env,
        config: String,
        registry: Option<&NativeRegistry>,
    ) -> napi::Result<PromiseRaw<'env, String>> {
        let config: ServerConfig = parse("createSimseServer", &config)?;
        let extras = self.extras(&config, registry.map(NativeRegistry::tools));
        let running = Arc::clone(&self.running);
        env.spawn_future(async move {
            let mut slot = running.lock().await;
            if slot.is_some() {
                return Err(envelope("SERVER_STATE", "the server is running already", Value::Null));
            }
            let started = start(config, extras).await?;
            let address = started.server.address();
            *slot = Some(started);
            Ok(to_json(&json!({ "host": address.ip(), "port": address.port() })))
        })
    }

    /// Stops; harmless when nothing runs.
    #[napi(catch_unwind, ts_return_type = "Promise<void>")]
    pub fn stop<'env>(&self, env: &'env Env) -> napi::Result<PromiseRaw<'env, ()>> {
        let running = Arc::clone(&self.running);
        env.spawn_future(async move {
            let Some(started) = running.lock().await.take() else { return Ok(()) };
            stop(started).await
        })
    }
}

impl NativeServer {
    fn extras(&self, config: &ServerConfig, registry: Option<Arc<Registry>>) -> Extras {
        let (bridge, target) = (&self.bridge, self.target);
        let hooks =
            JsHooks { bridge: Arc::clone(bridge), target, mask: Arc::clone(&self.hook_mask), line: Line::default() };
        let asker = config.asks.then(|| Arc::new(JsAsker { bridge: Arc::clone(bridge), target }) as _);
        let models = JsModel::all(&config.models, (bridge, target), config.model_idle_timeout());
        Extras { registry, hooks: Some(Arc::new(hooks) as Arc<dyn Hooks>), asker, models }
    }
}

async fn start(config: ServerConfig, extras: Extras) -> napi::Result<Running> {
    let (settings, listen, grace) = config.resolve()?;
    let app = App::open(settings, extras).await.map_err(open_error)?;
    match Server::start(Arc::clone(&app), listen).await {
        Ok(server) => Ok(Running { app, server, grace }),
        Err(error) => {
            // Nothing runs yet: there is nothing to wait for, and the data directory must be free again.
            if let Err(cause) = app.shutdown(Duration::ZERO).await {
                tracing::warn!(%cause, "closing the application after a failed start");
            }
            Err(listen_error(&error))
        }
    }
}

/// Turns finish with their streams open; then the streams end, and what is under way is answered.
async fn stop(running: Running) -> napi::Result<()> {
    running.server.close_door();
    let closed = running.app.shutdown(running.grace).await;
    running.server.stop(running.grace).await;
    closed.map_err(|e| envelope("SERVER_STOP", e.to_string(), json!({ "error": e.0 })))
}

fn open_error(error: OpenError) -> napi::Error {
    let message = error.to_string();
    match error {
        OpenError::Setting { field, expected } => {
            let issues = json!({ "issues": [{ "path": field, "message": format!("expected {expected}") }] });
            envelope("CONFIG_VALIDATION", message, issues)
        }
        OpenError::Store(StoreError::InUse { directory, .. }) => {
            envelope("DATA_DIRECTORY_IN_USE", message, json!({ "directory": directory }))
        }
        OpenError::Store(_) => envelope("STORAGE_ERROR", message, Value::Null),
    }
}

fn listen_error(error: &ListenError) -> napi::Error {
    let message = error.to_string();
    match error {
        ListenError::PortInUse { host, port } => {
            envelope("PORT_IN_USE", message, json!({ "host": host, "port": port }))
        }
        ListenError::NotAllowed(_) => {
            let issues = json!({ "issues": [{ "path": "host", "message": message }] });
            envelope("CONFIG_VALIDATION", message, issues)
        }
        ListenError::Tls { .. } | ListenError::Socket { .. } => envelope("LISTEN_FAILED", message, Value::Null),
        ListenError::Io { host, port, .. } => envelope("LISTEN_FAILED", message, json!({ "host": host, "port": port })),
    }
}
