//! The Agent Client Protocol, version 1, from the agent's side: one client on one connection, whatever carries it.
//!
//! Sessions are the same ones as everywhere: what a client does here is a command as on any other door, and what it is told is
//! read from the log.
//!
//! - `rpc`: the envelope of messages. `params`: what stands in them. `content`: blocks of prompts. `options`: what can be set.
//! - `told`: from events to updates. `shown`: calls in them. `beside`: what is told
//!   beside the conversation. `desk`: one session on one connection. `ask`: questions to the client.
//! - `sessions`, `prompt`: the methods. `servers`: tool servers that an editor brings along. `outlet`: where messages go. `pipe`, `http`, `streams`: what carries them. `bridge`: a pipe to
//!   a server that runs elsewhere.
//!
//! Invariants: every request has exactly one answer, and nothing but `initialize` is done before it. All updates of a turn go out
//! before the answer to its prompt. What a client does not take stays in the log.

mod ask;
mod beside;
mod bridge;
mod content;
mod desk;
pub(super) mod http;
mod options;
mod outlet;
mod params;
mod pipe;
mod prompt;
mod rpc;
mod servers;
mod sessions;
mod shown;
mod streams;
mod told;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::ask::Asked;
use self::desk::Desk;
use self::outlet::Outlet;
use self::params::{Authenticate, CancelRequest, Client, Initialize, Named};
use self::prompt::Pending;
use self::rpc::{Incoming, Params, Refusal, RpcError};
use crate::app::{App, Attending, Caller, Command, Request};
use crate::base::limit;
use crate::protocol::{ApiError, ErrorCode, SessionId};

pub use self::bridge::bridge_acp_pipe;
pub use self::pipe::{AcpPipe, serve_acp_pipe};

/// The version of the protocol that is spoken.
const VERSION: u64 = 1;

/// One client.
pub(super) struct Peer {
    core: Arc<Core>,
    /// Whoever has a line open can be asked.
    _here: Attending,
}

/// What everything that works for a client shares.
struct Core {
    app: Arc<App>,
    caller: Caller,
    outlet: Outlet,
    /// Ends everything that works for it.
    over: CancellationToken,
    tasks: TaskTracker,
    /// What it can; there once it has said so.
    client: OnceLock<Client>,
    /// Its requests under way, by their ids.
    requests: Mutex<HashMap<String, CancellationToken>>,
    /// Our requests to it that have no answer yet.
    asked: Mutex<HashMap<u64, Asked>>,
    /// Ours so far.
    numbers: AtomicU64,
    /// The sessions that it has open.
    desks: Mutex<HashMap<SessionId, Arc<Desk>>>,
    /// Its prompts that have no answer yet.
    prompts: Mutex<Vec<Arc<Pending>>>,
}

type Answer = Result<Value, RpcError>;

impl Peer {
    /// A client of which nothing is known yet.
    fn new(app: Arc<App>, caller: Caller, outlet: Outlet) -> Self {
        let _here = app.attend(&caller);
        let core = Core {
            app,
            caller,
            outlet,
            over: CancellationToken::new(),
            tasks: TaskTracker::new(),
            client: OnceLock::new(),
            requests: Mutex::default(),
            asked: Mutex::default(),
            numbers: AtomicU64::new(0),
            desks: Mutex::default(),
            prompts: Mutex::default(),
        };
        Self { core: Arc::new(core), _here }
    }

    /// One on a line.
    pub(super) fn on_line(app: Arc<App>, caller: Caller, out: super::out::Out) -> Self {
        Self::new(app, caller, Outlet::Line(out))
    }

    /// Takes a message of a line. False: nobody takes answers any more.
    pub(super) async fn take(&self, text: &[u8]) -> bool {
        let taken = match rpc::read(text) {
            Ok(incoming) => self.accept(incoming).await,
            Err(refusal) => Err(refusal),
        };
        match taken {
            Ok(()) => !self.core.over.is_cancelled(),
            Err((id, error)) => self.core.answer(None, &id, Err(error)).await,
        }
    }

    /// Answers something that is too large to be taken, or no text.
    pub(super) async fn refuse(&self, error: ApiError) -> bool {
        self.core.answer(None, &Value::Null, Err(error.into())).await
    }

    /// Takes a message that could be read.
    ///
    /// # Errors
    /// A refusal, which whoever carries messages sends back: nothing is done about the message.
    async fn accept(&self, incoming: Incoming) -> Result<(), Refusal> {
        match incoming {
            Incoming::Request { id, method, params } => self.request(id, method, params).await,
            Incoming::Notification { method, params } => {
                self.notified(&method, &params);
                Ok(())
            }
            Incoming::Response { id, result } => {
                Arc::clone(&self.core).answered(&id, result);
                Ok(())
            }
        }
    }

    async fn request(&self, id: Value, method: String, params: Params) -> Result<(), Refusal> {
        let core = &self.core;
        let refused = |id: Value, why: &str| Err((id, RpcError::invalid_request(why)));
        match (method.as_str(), core.client.get().is_some()) {
            ("initialize", false) => {
                let (core, answer) = (Arc::clone(core), core.initialize(&params));
                core.clone().tasks.spawn(async move { core.answer(None, &id, answer).await });
                return Ok(());
            }
            ("initialize", true) => return refused(id, "this connection is initialized already"),
            (_, false) => return refused(id, "expected `initialize` first"),
            (_, true) => {}
        }
        let cancel = core.over.child_token();
        {
            let mut requests = core.requests.lock();
            if requests.len() >= limit::ACP_REQUESTS_MAX {
                let message = format!("{} requests of this connection are under way", limit::ACP_REQUESTS_MAX);
                return Err((id, ApiError::new(ErrorCode::ResourceExhausted, message).into()));
            }
            if requests.contains_key(&id.to_string()) {
                drop(requests);
                return refused(id, "a request of this id is under way");
            }
            requests.insert(id.to_string(), cancel.clone());
        }
        let session = params.session();
        // In its place among the messages, so that a cancellation behind it finds it.
        let begun = match method.as_str() {
            "session/prompt" => Some(Arc::clone(core).begin_prompt(&params).await),
            _ => None,
        };
        let core = Arc::clone(core);
        core.clone().tasks.spawn(async move {
            let (answer, _heard) = match begun {
                Some(Ok(prompt)) => core.finish_prompt(prompt, &cancel).await,
                Some(Err(error)) => (Err(error.into()), None),
                None => (core.perform((&method, &params), &cancel).await, None),
            };
            core.requests.lock().remove(&id.to_string());
            // Where a session is told anew, nobody may listen to its own stream yet: the answer is on the connection's, behind all that
            // was told.
            let loaded = method == "session/load";
            if let Some(session) = session.as_deref().filter(|_| loaded) {
                core.outlet.settle(session).await;
            }
            let route = session.filter(|_| !loaded);
            core.answer(route.as_deref(), &id, answer).await;
        });
        Ok(())
    }

    fn notified(&self, method: &str, params: &Params) {
        let core = &self.core;
        match method {
            "session/cancel" => {
                if let Ok(Ok(session)) = params.read::<Named>().map(|named| named.session_id.parse()) {
                    Arc::clone(core).cancel_prompts(session);
                }
            }
            "$/cancel_request" => {
                if let Ok(CancelRequest { request_id }) = params.read() {
                    let requests = core.requests.lock();
                    if let Some(cancel) = requests.get(&request_id.to_string()) {
                        cancel.cancel();
                    }
                }
            }
            // Nobody waits for an answer, and what is not understood is left alone.
            _ => tracing::debug!(method, "a notification that is not understood"),
        }
    }

    /// Waits until all that was asked has been done, but for turns.
    async fn settled(&self) {
        self.core.settled().await;
    }

    /// Waits until nobody works for it any more.
    pub(super) async fn finished(&self) {
        self.core.tasks.close();
        self.core.tasks.wait().await;
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.core.over.cancel();
    }
}

impl Core {
    /// What the client can.
    fn client(&self) -> Client {
        self.client.get().copied().unwrap_or_default()
    }

    fn initialize(&self, params: &Params) -> Answer {
        let Initialize { protocol_version, client_capabilities } = params.read()?;
        if protocol_version < VERSION {
            tracing::debug!(protocol_version, "a client of an earlier version of the protocol");
        }
        // It was looked at that nobody was before.
        let _ = self.client.set(client_capabilities.unwrap_or_default().client());
        Ok(json!({
            "protocolVersion": VERSION,
            "agentInfo": { "name": "simse", "title": "simse", "version": env!("CARGO_PKG_VERSION") },
            "authMethods": [],
            "agentCapabilities": {
                "loadSession": true,
                "promptCapabilities": { "image": true, "audio": false, "embeddedContext": true },
                "mcpCapabilities": { "http": true, "sse": false },
                "sessionCapabilities": {
                    "list": {}, "delete": {}, "resume": {}, "close": {},
                    "fork": {}, "status": {}, "title": {}, "systemPrompt": {}, "additionalDirectories": {},
                },
                "auth": { "status": {}, "logout": {} },
            },
            "_meta": { "steering": { "supported": true } },
        }))
    }

    /// Does what a method other than a prompt asks for.
    async fn perform(self: &Arc<Self>, (method, params): (&str, &Params), cancel: &CancellationToken) -> Answer {
        let work = async {
            match method {
                "authenticate" => {
                    let Authenticate { method_id } = params.read()?;
                    let expected = "none: this agent asks for no authentication";
                    Err(ApiError::unfit("methodId", expected, format!("`{method_id}`")))
                }
                // Nobody was logged in: what the client was given to come here is its own.
                "logout" => Ok(json!({})),
                "auth/status" => Ok(json!({ "state": "not_required" })),
                "session/new" => self.new_session(params).await,
                "session/load" => self.load(params).await,
                "session/resume" => self.resume(params).await,
                "session/list" => self.list(params).await,
                "session/close" => self.close(params).await,
                "session/delete" => self.delete(params).await,
                "session/fork" => self.fork(params).await,
                "session/status" => self.status(params).await,
                "session/set_title" => self.set_title(params).await,
                "session/set_mode" => self.set_mode(params).await,
                "session/set_config_option" => self.set_option(params).await,
                "_session/steering" => self.steer(params).await,
                _ => return Err(RpcError::unknown(method)),
            }
            .map_err(RpcError::from)
        };
        tokio::select! {
            biased;
            answer = work => answer,
            () = cancel.cancelled() => Err(RpcError::cancelled()),
        }
    }

    /// Does something as a command, in its lane and within its limits, and reads what came of it.
    async fn carry_out<T: DeserializeOwned>(
        &self,
        kind: &'static str,
        session: Option<&SessionId>,
        body: &Value,
    ) -> Result<T, ApiError> {
        let body = body.to_string();
        let session = session.cloned();
        let request = Request { kind, session, key: None, if_version: None, fields: Vec::new(), body: body.as_bytes() };
        let submitted = self.app.submit(self.caller.clone(), Command::of_request(request)?);
        outcome(submitted.end().await)
    }

    /// Answers a request.
    async fn answer(&self, session: Option<&str>, id: &Value, answer: Answer) -> bool {
        self.outlet.say(session, rpc::response(id, answer)).await
    }

    /// Tells of a session.
    async fn update(&self, session: &SessionId, update: Value) -> bool {
        let params = json!({ "sessionId": session, "update": update });
        self.outlet.say(Some(session.as_str()), rpc::notification("session/update", &params)).await
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// What came of a command, as a value.
fn outcome<T: DeserializeOwned>(handled: crate::app::Handled) -> Result<T, ApiError> {
    let outcome = &handled.outcome;
    match (&outcome.data, &outcome.error) {
        (Some(data), None) => {
            let read = serde_json::from_str(data.get());
            read.map_err(|cause| ApiError::internal(format!("an outcome cannot be read: {cause}")))
        }
        (_, Some(error)) => Err(ApiError(error.clone())),
        (None, None) => Err(ApiError::internal("the command has no outcome")),
    }
}

/// A session's id out of a text.
fn session_id(text: &str) -> Result<SessionId, ApiError> {
    // What cannot be an id is none of a session that is there.
    text.parse().map_err(|_| ApiError::not_found("session of that id"))
}
