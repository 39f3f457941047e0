//! `createACPClient`: agents that a program drives by itself. Sessions and their order are the facade's (`js/acp-client.cjs`);
//! here are the agents, and the judging of what they ask.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::{FutureExt as _, StreamExt as _};
use napi::Env;
use napi::bindgen_prelude::PromiseRaw;
use napi_derive::napi;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::bridge::NativeBridge;
use super::error::{envelope, parse, to_json};
use super::gate::RegistryGate;
use super::permission::NativeRules;
use super::text::{JsText, js_text};
use crate::agent::{Gate, GateQuestion, Preview};
use crate::app::acp_agent;
use crate::base::BoxFuture;
use crate::config::{AcpPermissionPolicy, AcpServer};
use crate::hook::read_messages;
use crate::model::{
    AgentEvent, AgentRequest, Model as _, ModelError, ModelEvent, ModelRequest, ModelStream, Question, Reply,
    StopReason,
};
use crate::protocol::{AgentOptions, FormReply, PermissionVerdict, ToolCallResult, VerdictSource};
use crate::provider::AcpAgent;
use crate::tool::Arguments;

/// Events that are handed over at once, at most.
const BATCH_MAX: usize = 256;
/// The policies, in the order of their numbers in JavaScript.
const POLICIES: [AcpPermissionPolicy; 3] =
    [AcpPermissionPolicy::AutoApprove, AcpPermissionPolicy::Prompt, AcpPermissionPolicy::Deny];

/// What a client is made with.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Config {
    servers: Vec<AcpServer>,
    /// Where programs and sessions are that name no directory; absolute.
    directory: PathBuf,
    /// A resolver of the caller's own.
    #[serde(default)]
    foreign_resolver: bool,
    /// Whether somebody answers what rules ask.
    #[serde(default)]
    asks: bool,
}

/// A prompt, or what a session is to be.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Asked {
    directory: Option<PathBuf>,
    session: Option<String>,
    #[serde(default)]
    options: AgentOptions,
    /// In the form of typescript-api.md §7; the last `unheard` of them are new to the session.
    #[serde(default)]
    messages: Vec<Value>,
    #[serde(default)]
    unheard: usize,
}

/// An agent and what it is given leave for.
struct Server {
    name: String,
    agent: AcpAgent,
    policy: Arc<AtomicU32>,
}

/// A client.
#[napi]
pub struct NativeAcpClient {
    servers: Arc<Vec<Server>>,
    gate: Arc<RegistryGate>,
    directory: PathBuf,
}

fn unknown(server: &str) -> napi::Error {
    let message = format!("no ACP server is called \"{server}\"");
    envelope("CONFIG_VALIDATION", message.clone(), json!({ "issues": [{ "path": "server", "message": message }] }))
}

/// An agent's failure, in the words of the facade.
fn failure(error: &ModelError, server: &str) -> napi::Error {
    envelope(code_of(error), error.to_string(), facts_of(error, server))
}

fn code_of(error: &ModelError) -> &'static str {
    match error {
        ModelError::Transient { .. } | ModelError::Unavailable(_) => "PROVIDER_UNAVAILABLE",
        ModelError::Aborted => "ABORTED",
        _ => "PROVIDER_ERROR",
    }
}

fn facts_of(error: &ModelError, server: &str) -> Value {
    json!({ "server": server, "kind": kind_of(error) })
}

fn kind_of(error: &ModelError) -> &'static str {
    match error {
        ModelError::Transient { .. } => "transient",
        ModelError::Unauthorized(_) => "unauthorized",
        ModelError::Malformed(_) => "malformed",
        ModelError::Unavailable(_) => "unavailable",
        ModelError::Aborted => "aborted",
        _ => "refused",
    }
}

/// Why it stopped, in the protocol's words.
fn stop_word(reason: StopReason) -> &'static str {
    match reason {
        StopReason::EndTurn | StopReason::ToolUse | StopReason::Paused => "end_turn",
        StopReason::Length => "max_tokens",
        _ => "refusal",
    }
}

#[napi]
impl NativeAcpClient {
    /// A client that has started nothing. `target` is asked for permission; `rules` are asked before it.
    #[napi(constructor, catch_unwind)]
    pub fn new(bridge: &NativeBridge, config: String, target: u32, rules: Option<&NativeRules>) -> napi::Result<Self> {
        let Config { servers, directory, foreign_resolver, asks } = parse("createACPClient", &config)?;
        let gate = RegistryGate {
            bridge: Arc::clone(&bridge.inner),
            target,
            rules: rules.map(|rules| Arc::clone(&rules.inner)),
            foreign: foreign_resolver,
            asks,
            working_directory: Arc::new(Mutex::new(Some(directory.clone()))),
        };
        let servers = servers.iter().map(|server| Server {
            name: server.name.clone(),
            agent: acp_agent(server, &directory),
            policy: Arc::new(AtomicU32::new(number_of(server.permission_policy))),
        });
        Ok(Self { servers: Arc::new(servers.collect()), gate: Arc::new(gate), directory })
    }

    /// Why a server cannot be used; null: it can.
    #[napi(catch_unwind)]
    pub fn problem(&self, server: String) -> napi::Result<Option<String>> {
        let at = self.at(&server)?;
        Ok(self.servers[at].agent.available().err().map(|error| error.to_string()))
    }

    /// How much its program has to do: JSON; null: none runs.
    #[napi(catch_unwind)]
    pub fn load(&self, server: String) -> napi::Result<Option<String>> {
        let load = self.servers[self.at(&server)?].agent.load();
        Ok(load.map(|load| to_json(&json!({ "openSessions": load.sessions, "unreadMessages": load.unread }))))
    }

    /// What all servers get when they ask for permission, from now on: the policy's place in [`POLICIES`].
    #[napi(catch_unwind)]
    pub fn set_policy(&self, policy: u32) {
        for server in self.servers.iter() {
            server.policy.store(policy, Ordering::Release);
        }
    }

    /// Does `operation` with a server: JSON in, JSON out. `start`, `open`, `list`, `delete`, `close`.
    #[napi(catch_unwind, ts_return_type = "Promise<string>")]
    pub fn ask<'env>(
        &self,
        env: &'env Env,
        server: String,
        operation: String,
        input: String,
    ) -> napi::Result<PromiseRaw<'env, String>> {
        let at = self.at(&server)?;
        let asked: Asked = parse("request", &input)?;
        let (servers, directory) = (Arc::clone(&self.servers), self.directory.clone());
        env.spawn_future(async move {
            let answer = run(&servers[at].agent, &operation, asked, &directory).await;
            answer.map(|answer| to_json(&answer)).map_err(|error| failure(&error, &server))
        })
    }

    /// Prompts a server. Nothing is sent before the first [`NativeAcpTurn::next`].
    #[napi(catch_unwind)]
    pub fn prompt(&self, server: String, input: String) -> napi::Result<NativeAcpTurn> {
        let at = self.at(&server)?;
        let asked: Asked = parse("request", &input)?;
        let agent = request_of(&asked, &self.directory);
        let messages = read_messages(Value::Array(asked.messages)).ok_or_else(|| {
            let issue = json!({ "path": "messages", "message": "expected messages {role, content}" });
            envelope("CONFIG_VALIDATION", "messages: expected messages {role, content}", json!({ "issues": [issue] }))
        })?;
        let request = ModelRequest { messages: messages.into(), agent: Some(agent), ..ModelRequest::default() };
        let cancel = CancellationToken::new();
        let Server { agent, policy, .. } = &self.servers[at];
        let turn = Turn {
            stream: agent.stream(request, cancel.clone()),
            judge: Judge { gate: Arc::clone(&self.gate), policy: Arc::clone(policy), cancel: cancel.clone() },
            server,
        };
        Ok(NativeAcpTurn { turn: Arc::new(tokio::sync::Mutex::new(turn)), cancel })
    }

    /// Ends all programs, and waits until they are gone.
    #[napi(catch_unwind, ts_return_type = "Promise<void>")]
    pub fn stop<'env>(&self, env: &'env Env) -> napi::Result<PromiseRaw<'env, ()>> {
        let servers = Arc::clone(&self.servers);
        env.spawn_future(async move {
            futures_util::future::join_all(servers.iter().map(|server| server.agent.stop())).await;
            Ok(())
        })
    }
}

impl NativeAcpClient {
    fn at(&self, server: &str) -> napi::Result<usize> {
        self.servers.iter().position(|one| one.name == server).ok_or_else(|| unknown(server))
    }
}

fn number_of(policy: Option<AcpPermissionPolicy>) -> u32 {
    let policy = policy.unwrap_or(AcpPermissionPolicy::Prompt);
    let at = POLICIES.iter().position(|one| *one == policy);
    u32::try_from(at.unwrap_or(1)).unwrap_or(1)
}

fn request_of(asked: &Asked, directory: &Path) -> AgentRequest {
    AgentRequest {
        directory: asked.directory.as_ref().map_or_else(|| directory.to_owned(), |own| directory.join(own)),
        session: asked.session.clone(),
        unheard: asked.unheard,
        options: asked.options.clone(),
        ..AgentRequest::default()
    }
}

async fn run(agent: &AcpAgent, operation: &str, asked: Asked, directory: &Path) -> Result<Value, ModelError> {
    let session = || asked.session.clone().unwrap_or_default();
    Ok(match operation {
        "start" => {
            let can = agent.start().await?;
            json!({ "load": can.load, "list": can.list, "delete": can.delete })
        }
        "list" => agent.list_sessions().await?.map_or(Value::Null, Value::Array),
        "delete" => Value::Bool(agent.delete_session(&session()).await?),
        "close" => {
            agent.close_session(&session()).await;
            Value::Null
        }
        _ => {
            let opened = agent.open(&request_of(&asked, directory)).await?;
            json!({ "id": opened.id, "fresh": opened.fresh, "options": opened.options })
        }
    })
}

/// Answers an agent's questions.
#[derive(Clone)]
struct Judge {
    gate: Arc<RegistryGate>,
    policy: Arc<AtomicU32>,
    cancel: CancellationToken,
}

#[derive(Debug)]
struct Given(Option<Value>);

impl Preview for Given {
    fn compute<'a>(&'a self, _: &'a Arguments) -> BoxFuture<'a, Option<Value>> {
        Box::pin(std::future::ready(self.0.clone()))
    }
}

impl Judge {
    fn policy(&self) -> AcpPermissionPolicy {
        let number = usize::try_from(self.policy.load(Ordering::Acquire)).unwrap_or(1);
        POLICIES.get(number).copied().unwrap_or(AcpPermissionPolicy::Prompt)
    }

    /// Answers in a task of its own: a person may take long, and the agent goes on talking.
    fn answer(&self, question: Box<Question>, reply: Reply<PermissionVerdict>) {
        let verdict = |allowed| PermissionVerdict { allowed, by: VerdictSource::Policy, reason: String::new() };
        match self.policy() {
            AcpPermissionPolicy::AutoApprove => reply.send(verdict(true)),
            AcpPermissionPolicy::Deny => reply.send(verdict(false)),
            AcpPermissionPolicy::Prompt => {
                let judge = self.clone();
                tokio::spawn(async move { reply.send(judge.ask(&question).await) });
            }
        }
    }

    async fn ask(&self, question: &Question) -> PermissionVerdict {
        if self.gate.rules.is_none() && !self.gate.foreign {
            // Without anybody who could say yes it is a no.
            let reason = "nobody is there who could be asked".to_owned();
            return PermissionVerdict { allowed: false, by: VerdictSource::NoClient, reason };
        }
        let preview = Given(question.preview.clone());
        let asked = GateQuestion {
            request: &question.request,
            like: question.like,
            definition: Some(&question.definition),
            subject: &question.subject,
            place: None,
            insists: false,
            unfit: false,
            asked: false,
            preview: &preview,
        };
        self.gate.check(asked, &self.cancel).await
    }
}

/// One prompt and its answer.
#[napi]
pub struct NativeAcpTurn {
    turn: Arc<tokio::sync::Mutex<Turn>>,
    cancel: CancellationToken,
}

struct Turn {
    stream: ModelStream,
    judge: Judge,
    server: String,
}

#[napi]
impl NativeAcpTurn {
    /// What has come since: a JSON array of events, at least one of them unless it is over.
    #[napi(catch_unwind, ts_return_type = "Promise<string>")]
    pub fn next<'env>(&self, env: &'env Env) -> napi::Result<PromiseRaw<'env, JsText>> {
        let turn = Arc::clone(&self.turn);
        env.spawn_future(async move { Ok(js_text(to_json(&turn.lock().await.next().await))) })
    }

    /// Stops it: the agent is told, and has its time to end in order. What it says meanwhile is there to be read.
    #[napi(catch_unwind)]
    pub fn stop(&self) {
        self.cancel.cancel();
    }
}

impl Turn {
    async fn next(&mut self) -> Vec<Value> {
        let mut events = Vec::new();
        while events.is_empty() {
            let Some(item) = self.stream.next().await else { return events };
            self.take(item, &mut events);
        }
        // What is there already goes along.
        while events.len() < BATCH_MAX {
            let Some(Some(item)) = Pin::new(&mut self.stream).next().now_or_never() else { break };
            self.take(item, &mut events);
        }
        events
    }

    fn take(&self, item: Result<ModelEvent, ModelError>, events: &mut Vec<Value>) {
        let event = match item {
            Ok(event) => event,
            Err(error) => {
                let (code, data) = (code_of(&error), facts_of(&error, &self.server));
                events.push(json!({ "type": "error", "code": code, "message": error.to_string(), "data": data }));
                return;
            }
        };
        events.extend(match event {
            ModelEvent::Text(text) => Some(json!({ "type": "delta", "text": text })),
            ModelEvent::Reasoning(text) => Some(json!({ "type": "reasoning", "text": text })),
            ModelEvent::Usage(usage) => Some(json!({ "type": "usage", "usage": usage })),
            ModelEvent::Finished(reason) => Some(json!({ "type": "finished", "stopReason": stop_word(reason) })),
            ModelEvent::Agent(event) => self.take_own(event),
            // An agent runs its calls by itself, and retries nothing that we would see.
            _ => None,
        });
    }

    fn take_own(&self, event: AgentEvent) -> Option<Value> {
        match event {
            AgentEvent::Session { id } => Some(json!({ "type": "session", "id": id })),
            AgentEvent::CallStarted(request) => Some(json!({ "type": "call", "call": request })),
            AgentEvent::CallEnded(result) => Some(json!({ "type": "result", "result": result })),
            AgentEvent::Ask(question, reply) => {
                self.judge.answer(question, reply);
                None
            }
            AgentEvent::Run(call, reply) => {
                // Nothing was offered to it; who asks all the same is told.
                let request = call.request;
                let output = format!("Tool \"{}\" execution failed: this client serves no tools", request.name);
                let (id, name) = (request.id, request.name);
                reply.send(ToolCallResult {
                    id,
                    name,
                    output,
                    is_error: true,
                    duration_ms: None,
                    parts: Vec::new(),
                    details: None,
                });
                None
            }
            AgentEvent::Fill(_, reply) => {
                reply.send(FormReply::Cancelled("this client has nobody who fills in forms".into()));
                None
            }
            _ => None,
        }
    }
}
