//! One prompt to an agent: its session, what it says and does, and its end; what it asks is in `serve`.
//!
//! Runs in a task of its own, so that it ends in order even when nobody listens any more. A stop, by the
//! token or by a listener that is gone, is `session/cancel`; an agent that does not stop in its time loses its
//! program, as soon as no other turn runs in it. Invariant: each request of the agent gets one answer.

mod serve;
mod steer;
mod tools;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use agent_client_protocol::v1::schema as acp;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Agent;
use super::calls::{Calls as OwnCalls, block_text};
use super::connection::{Connection, Fault, Incoming, Turn};
use super::context::{blocks, is_command};
use super::door::Calls;
use super::known::{Known, Said};
use super::session::Opened;
use super::terminals::Terminals;
use super::wire::RpcError;
use crate::base::{BoxFuture, limit};
use crate::model::{AgentEvent, ModelError, ModelEvent, ModelRequest, StopReason};
use crate::protocol::{ToolDefinition, Usage};

pub(super) use serve::is_served;
use serve::{Answered, Granted, Wanted};

/// What the stream carries.
pub(super) type Item = Result<ModelEvent, ModelError>;

/// JSON-RPC: the parameters are wrong.
const INVALID_PARAMS: i64 = -32602;
/// ACP: what was named is not there.
const NOT_FOUND: i64 = -32002;

/// Answers one request, and says how it ended as the last item.
pub(super) async fn drive(
    agent: Arc<Agent>,
    request: ModelRequest,
    cancel: CancellationToken,
    out: mpsc::Sender<Item>,
) {
    let opened = tokio::select! {
        biased;
        () = stopped(&cancel, &out) => Err(ModelError::Aborted),
        opened = open(&agent, &request) => opened,
    };
    let end = match opened {
        Err(error) => Err(error),
        Ok((opened, prompt)) => {
            let directory = request.agent.as_ref().map(|agent| agent.directory.clone()).unwrap_or_default();
            let mut talk = Talk::new(&agent, &opened, (cancel, out.clone()), &directory);
            let end = talk.run(&opened, prompt).await;
            talk.close(&opened.connection);
            end
        }
    };
    // Nobody may be left to hear it.
    let _ = out.send(end.map(ModelEvent::Finished)).await;
}

/// The session and the prompt's blocks.
async fn open(agent: &Arc<Agent>, request: &ModelRequest) -> Result<(Opened, Vec<acp::ContentBlock>), ModelError> {
    let asked = request.agent.clone().unwrap_or_default();
    let opened = agent.open_session(&asked).await?;
    // A command goes out alone: what the agent is to know comes with the prompt after it.
    let alone = is_command(request, &asked, opened.fresh);
    let instructs = opened.connection.known(&opened.session, |known| {
        let due = opened.fresh || known.uninstructed;
        known.uninstructed = due && alone;
        due && !alone
    });
    let prompt = blocks(request, &asked, (opened.fresh, instructs), opened.takes_images);
    Ok((opened, prompt))
}

/// Ends when the turn is to stop.
async fn stopped(cancel: &CancellationToken, out: &mpsc::Sender<Item>) {
    tokio::select! {
        () = cancel.cancelled() => {}
        () = out.closed() => {}
    }
}

struct Talk {
    agent: Arc<Agent>,
    session: String,
    cancel: CancellationToken,
    out: mpsc::Sender<Item>,
    calls: OwnCalls,
    /// Requests of the agent that wait for us, by a number of ours: its id of it, and what is wanted.
    open: HashMap<u64, (Value, Wanted)>,
    terminals: Terminals,
    answers: FuturesUnordered<BoxFuture<'static, (u64, Answered)>>,
    requests: u64,
    /// Files that it was allowed to change and commands that it was allowed to run, and has not yet.
    granted: HashSet<Granted>,
    /// Our tools that it can call.
    offered: Arc<[ToolDefinition]>,
    bytes: usize,
}

impl Talk {
    fn new(
        agent: &Arc<Agent>,
        opened: &Opened,
        (cancel, out): (CancellationToken, mpsc::Sender<Item>),
        directory: &std::path::Path,
    ) -> Self {
        let terminals = Terminals::default();
        Self {
            agent: Arc::clone(agent),
            session: opened.session.clone(),
            cancel,
            out,
            calls: OwnCalls::new(agent.name(), directory, terminals.clone()),
            open: HashMap::new(),
            terminals,
            answers: FuturesUnordered::new(),
            requests: 0,
            granted: HashSet::new(),
            offered: Arc::default(),
            bytes: 0,
        }
    }

    async fn run(&mut self, opened: &Opened, prompt: Vec<acp::ContentBlock>) -> Result<StopReason, ModelError> {
        let connection = &opened.connection;
        self.emit(ModelEvent::Agent(AgentEvent::Session { id: self.session.clone() })).await;
        let params = acp::PromptRequest::new(self.session.clone(), prompt);
        let mut turn =
            connection.prompt(&self.session, &params).map_err(|fault| self.agent.fault("session/prompt", fault))?;
        let mut steers = self.steerable(opened).await;
        let mut calls = opened.room.as_ref().map_or_else(Calls::none, |room| room.enter());
        self.offered = calls.offered();
        for said in connection.known(&self.session, Known::untold) {
            self.say(said).await;
        }
        let mut stop_at = None;
        loop {
            let incoming = tokio::select! {
                biased;
                () = stopped(&self.cancel, &self.out), if stop_at.is_none() => {
                    connection.note("session/cancel", &acp::CancelNotification::new(self.session.clone()));
                    stop_at = Some(tokio::time::Instant::now() + Duration::from_millis(limit::ACP_CANCEL_GRACE_MS));
                    continue;
                }
                Some((number, answered)) = self.answers.next(), if !self.answers.is_empty() => {
                    self.answer(connection, number, answered);
                    continue;
                }
                Some((parts, reply)) = steers.recv() => {
                    self.steer(opened, parts, reply);
                    continue;
                }
                Some(call) = calls.next() => {
                    self.run_tool(call).await;
                    continue;
                }
                () = until(stop_at) => {
                    tracing::warn!(agent = self.agent.name(), "an agent did not stop in its time; its program is ended");
                    connection.retire();
                    return Err(ModelError::Aborted);
                }
                incoming = turn.next() => incoming,
            };
            match incoming {
                Err(fault) if stop_at.is_some() => {
                    tracing::debug!(?fault, "an agent ended while it was stopped");
                    return Err(ModelError::Aborted);
                }
                Err(fault) => return Err(self.agent.fault("session/prompt", fault)),
                Ok(Incoming::Done(result)) => return self.finish(connection, result, stop_at.is_some()).await,
                Ok(Incoming::Update(update)) => self.update(update).await,
                Ok(Incoming::Said(said)) => self.say(said).await,
                Ok(Incoming::Request { id, method, params }) => self.request(connection, (id, &method, params)).await,
                Ok(Incoming::Withdrawn(id)) => self.withdraw(connection, &id),
            }
            if self.bytes > limit::ACP_TURN_BYTES_MAX {
                return Err(self.too_much(connection, turn).await);
            }
        }
    }

    /// Ends a turn that does not stop talking.
    async fn too_much(&mut self, connection: &Connection, mut turn: Turn) -> ModelError {
        connection.note("session/cancel", &acp::CancelNotification::new(self.session.clone()));
        let grace = Duration::from_millis(limit::ACP_CANCEL_GRACE_MS);
        let rest = async { while !matches!(turn.next().await, Err(_) | Ok(Incoming::Done(_))) {} };
        if tokio::time::timeout(grace, rest).await.is_err() {
            connection.retire();
        }
        let message = format!("it sent more than {} bytes in one turn", limit::ACP_TURN_BYTES_MAX);
        self.agent.named(ModelError::Malformed(message))
    }

    async fn emit(&mut self, event: ModelEvent) {
        self.bytes = self.bytes.saturating_add(size(&event));
        // A listener that is gone is noticed as a stop.
        let _ = self.out.send(Ok(event)).await;
    }

    async fn emit_own(&mut self, events: Vec<AgentEvent>) {
        for event in events {
            self.emit(ModelEvent::Agent(event)).await;
        }
    }

    /// Hands on what the agent says of itself.
    async fn say(&mut self, said: Said) {
        let event = match said {
            Said::Event(event) => AgentEvent::Told(Box::new(event)),
            Said::Title(title) => AgentEvent::Title(title),
        };
        self.emit(ModelEvent::Agent(event)).await;
    }

    async fn update(&mut self, update: Value) {
        let kind = update["sessionUpdate"].as_str().unwrap_or_default().to_owned();
        let update = match serde_json::from_value::<acp::SessionUpdate>(update) {
            Ok(update) => update,
            Err(error) => {
                tracing::debug!(agent = self.agent.name(), kind, %error, "an update that is not understood; skipped");
                return;
            }
        };
        match update {
            acp::SessionUpdate::AgentMessageChunk(chunk) => {
                let held = self.calls.announce_all();
                self.emit_own(held).await;
                self.emit(ModelEvent::Text(block_text(&chunk.content))).await;
            }
            acp::SessionUpdate::AgentThoughtChunk(chunk) => {
                let held = self.calls.announce_all();
                self.emit_own(held).await;
                self.emit(ModelEvent::Reasoning(block_text(&chunk.content))).await;
            }
            acp::SessionUpdate::ToolCall(call) => {
                let events = self.calls.begin(call);
                self.emit_own(events).await;
            }
            acp::SessionUpdate::ToolCallUpdate(update) => {
                let events = self.calls.update(update);
                self.emit_own(events).await;
            }
            // The user's own words, and whatever later versions add: there is no event for them. What the agent says of
            // itself comes another way.
            _ => tracing::debug!(agent = self.agent.name(), kind, "an update without an event"),
        }
    }

    async fn finish(
        &mut self,
        connection: &Connection,
        result: Result<Value, RpcError>,
        stopping: bool,
    ) -> Result<StopReason, ModelError> {
        if let Err(error) = &result
            && matches!(error.code, NOT_FOUND | INVALID_PARAMS)
        {
            // It may have forgotten the session: the next turn opens it again.
            connection.sessions.lock().remove(&self.session);
        }
        if stopping {
            return Err(ModelError::Aborted);
        }
        let answer = result.map_err(|error| self.agent.fault("session/prompt", Fault::Refused(error)))?;
        let held = self.calls.announce_all();
        self.emit_own(held).await;
        if let Some(usage) = usage(&answer["usage"]) {
            self.emit(ModelEvent::Usage(usage)).await;
        }
        let refused = |words: &str| Err(self.agent.named(ModelError::Refused(words.into())));
        match answer["stopReason"].as_str() {
            Some("end_turn") => Ok(StopReason::EndTurn),
            Some("max_tokens") => Ok(StopReason::Length),
            Some("refusal") => Ok(StopReason::Refusal),
            Some("max_turn_requests") => refused("it stopped at its own limit of requests in one turn"),
            Some("cancelled") => refused("it cancelled the turn by itself"),
            Some(_) | None => {
                let words = "its answer to session/prompt names no reason why it stopped".to_owned();
                Err(self.agent.named(ModelError::Malformed(words)))
            }
        }
    }
}

/// Ends at that time; never without one.
async fn until(time: Option<tokio::time::Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Tokens, where the agent tells them.
fn usage(told: &Value) -> Option<Usage> {
    let input_tokens = told["inputTokens"].as_u64()?;
    let output_tokens = told["outputTokens"].as_u64()?;
    let total_tokens = told["totalTokens"].as_u64().unwrap_or_else(|| input_tokens.saturating_add(output_tokens));
    Some(Usage { input_tokens, output_tokens, total_tokens, ..Usage::default() })
}

/// About what an event takes in memory.
fn size(event: &ModelEvent) -> usize {
    match event {
        ModelEvent::Text(text) | ModelEvent::Reasoning(text) => text.len(),
        ModelEvent::Agent(AgentEvent::CallStarted(request)) => {
            request.name.len()
                + request.arguments.iter().map(|(key, value)| key.len() + value_size(value)).sum::<usize>()
        }
        ModelEvent::Agent(AgentEvent::CallOutput { text, .. }) => text.len() + 100,
        ModelEvent::Agent(AgentEvent::Told(event)) => {
            let mut out = Vec::new();
            event.append_payload(&mut out);
            out.len()
        }
        ModelEvent::Agent(AgentEvent::CallEnded(result)) => result.output.len() + 100,
        ModelEvent::Agent(AgentEvent::Run(call, _)) => call.request.arguments.values().map(value_size).sum(),
        ModelEvent::Agent(AgentEvent::Fill(form, _)) => form.message.len() + value_size(&form.schema),
        ModelEvent::Agent(
            AgentEvent::Session { .. }
            | AgentEvent::Steerable(_)
            | AgentEvent::Title(_)
            | AgentEvent::Ask(..)
            | AgentEvent::Carry(..),
        )
        | ModelEvent::Call(_)
        | ModelEvent::BadCall { .. }
        | ModelEvent::Usage(_)
        | ModelEvent::Original(_)
        | ModelEvent::Retrying { .. }
        | ModelEvent::Finished(_) => 100,
    }
}

fn value_size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 16,
        Value::String(text) => text.len() + 16,
        Value::Array(all) => all.iter().map(value_size).sum::<usize>() + 16,
        Value::Object(all) => all.iter().map(|(key, value)| key.len() + value_size(value)).sum::<usize>() + 16,
    }
}
