//! One turn: rounds with the model until it calls no more tools.
//!
//! A round: pruning → hooks → request → reply → calls → findings and steering. Invariants, on every way out:
//! each `stream.start` is closed by one `stream.complete`, each announced call has ended and has its
//! result in the messages, and `loop.complete` comes last.

use std::path::PathBuf;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::call::{CallEnvironment, CallOutcome, finish_soon};
use super::calls::{CallMemory, answer_calls};
use super::reply::{Asking, Listener, Reply};
use super::watch::Watched;
use super::{Sink, SinkError, Steering};
use crate::context::{PruneOptions, bound_images, describe_images, prune};
use crate::model::retry::RetryPolicy;
use crate::model::{AgentSession, Model, ModelError, ModelRequest, StopReason};
use crate::protocol::{
    ErrorBody, ErrorCode, EventBody, Message, Part, PromptContent, RoundKind, ToolCallRequest, Usage,
};

/// The final text of a turn whose model said nothing (typescript-api.md §7).
pub(super) const NO_RESPONSE: &str = "No response received from model.";

/// What a turn needs.
pub struct TurnInput {
    /// The model, or the agent that answers by itself.
    pub model: Arc<dyn Model>,
    /// The system text.
    pub system: String,
    /// The conversation; the new user message is its last entry.
    pub messages: Vec<Message>,
    /// Where the session works; absolute.
    pub directory: PathBuf,
    /// The session that an agent keeps for this one, if it has one.
    pub agent: Option<AgentSession>,
    /// Tools, permission and hooks.
    pub environment: CallEnvironment,
    /// Takes the events: `loop.*`, `stream.*`, `tool.*`, `turn.complete`, `session.steer`.
    pub sink: Arc<dyn Sink>,
    /// Messages that arrive while it runs.
    pub steering: Arc<dyn Steering>,
    /// Rounds with the model, at most. An agent's own rounds are its own affair: it is prompted no more after so many.
    pub iterations_max: u32,
    /// How often and when a broken stream is tried again.
    pub retry: RetryPolicy,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Ended {
    /// With an answer.
    Completed,
    /// By its cancellation token.
    Aborted,
    /// At the limit of rounds.
    IterationLimit,
    /// By an error.
    Failed(ErrorBody),
}

/// What came of a turn.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnOutcome {
    /// How it ended.
    pub ended: Ended,
    /// The model's last text.
    pub final_text: String,
    /// The whole conversation, this turn's part included: what the next turn starts from.
    pub messages: Vec<Message>,
    /// The session that an agent keeps for this one, and how much of the conversation it has heard.
    pub agent: Option<AgentSession>,
    /// Rounds with the model.
    pub rounds: u32,
    /// Tokens of all rounds.
    pub usage: Usage,
}

/// Runs a turn to its end. Emits no terminal event: the session does that.
pub async fn run_turn(mut input: TurnInput, cancel: CancellationToken) -> TurnOutcome {
    input.environment.sink.get_or_insert_with(|| Arc::clone(&input.sink));
    let agent = input.agent.take();
    let (calls, usage, final_text) = (CallMemory::default(), Usage::default(), String::new());
    let environment = &mut input.environment;
    environment.hooks = Arc::new(Watched {
        hooks: Arc::clone(&environment.hooks),
        registry: Arc::clone(&environment.registry),
        breaker: Arc::clone(&calls.breaker),
    });
    let mut turn = Turn { input, agent, calls, rounds: 0, usage, final_text };
    let ended = turn.run(&cancel).await.unwrap_or_else(|error| {
        Ended::Failed(ErrorBody { code: ErrorCode::Internal, message: error.to_string(), details: None })
    });
    TurnOutcome {
        ended,
        final_text: turn.final_text,
        messages: turn.input.messages,
        agent: turn.agent,
        rounds: turn.rounds,
        usage: turn.usage,
    }
}

pub(super) struct Turn {
    pub(super) input: TurnInput,
    pub(super) agent: Option<AgentSession>,
    calls: CallMemory,
    pub(super) rounds: u32,
    pub(super) usage: Usage,
    pub(super) final_text: String,
}

impl Turn {
    async fn run(&mut self, cancel: &CancellationToken) -> Result<Ended, SinkError> {
        self.emit(EventBody::LoopStart {})?;
        let ended =
            if self.input.model.is_agent() { self.delegate(cancel).await? } else { self.rounds(cancel).await? };
        let hit_turn_limit = ended == Ended::IterationLimit;
        self.emit(EventBody::LoopComplete { total_turns: self.rounds, hit_turn_limit })?;
        Ok(ended)
    }

    /// Rounds with the model until it is done.
    async fn rounds(&mut self, cancel: &CancellationToken) -> Result<Ended, SinkError> {
        loop {
            if cancel.is_cancelled() {
                return Ok(Ended::Aborted);
            }
            if self.rounds >= self.input.iterations_max {
                return Ok(Ended::IterationLimit);
            }
            if let Some(ended) = self.round(cancel).await? {
                return Ok(ended);
            }
        }
    }

    fn emit(&self, event: EventBody) -> Result<(), SinkError> {
        self.input.sink.emit(event)
    }

    /// One round. None: the next one follows.
    async fn round(&mut self, cancel: &CancellationToken) -> Result<Option<Ended>, SinkError> {
        self.steer()?;
        self.rounds += 1;
        self.emit(EventBody::StreamStart {})?;
        let (asking, mut reply) = self.ask(cancel).await?;
        self.emit(EventBody::StreamComplete { text: reply.text.clone() })?;
        self.usage = self.usage.plus(reply.usage.unwrap_or_default());
        if !reply.text.trim().is_empty() {
            self.final_text.clone_from(&reply.text);
        }
        let ended = match asking {
            Asking::Replied | Asking::Again { .. } => None,
            Asking::Aborted => Some(Ended::Aborted),
            Asking::Failed(error) => Some(Ended::Failed(model_failure(&error))),
        };
        if ended.is_some() {
            // What it announced but could not finish is not run, and not remembered.
            self.remember(reply.text, Vec::new());
            return Ok(ended);
        }
        if reply.calls.is_empty() {
            return self.answered(reply);
        }
        self.calls.adopt(&mut reply.calls);
        self.call_tools(reply, cancel).await
    }

    /// Asks the model, as often as the policy allows.
    async fn ask(&self, cancel: &CancellationToken) -> Result<(Asking, Reply), SinkError> {
        let sink = Arc::clone(&self.input.sink);
        let mut listener = Listener::new(sink.as_ref(), self.input.retry, cancel);
        let mut attempt = 1;
        loop {
            let asking = match finish_soon(cancel, self.request()).await {
                Some(request) if !cancel.is_cancelled() => {
                    listener.ask(self.input.model.as_ref(), request, attempt).await?
                }
                _ => Asking::Aborted,
            };
            match asking {
                Asking::Again { attempt: next } => attempt = next,
                Asking::Replied | Asking::Aborted | Asking::Failed(_) => return Ok((asking, listener.into_reply())),
            }
        }
    }

    async fn request(&self) -> ModelRequest {
        let hooks = &self.input.environment.hooks;
        let mut messages = self.input.messages.clone();
        prune(&mut messages, &PruneOptions::default());
        if !self.input.model.takes_images() {
            describe_images(&mut messages);
        }
        ModelRequest {
            system: hooks.transform_system(self.input.system.clone()).await,
            messages: hooks.transform_messages(messages).await,
            tools: self.input.environment.registry.definitions(),
            agent: None,
        }
    }

    /// A reply without calls: the answer, or nothing at all.
    fn answered(&mut self, reply: Reply) -> Result<Option<Ended>, SinkError> {
        self.emit(EventBody::TurnComplete { turn: self.rounds, kind: RoundKind::Text, usage: reply.usage })?;
        if reply.text.trim().is_empty() {
            self.final_text = NO_RESPONSE.to_owned();
            return Ok(Some(Ended::Failed(no_response(reply.stop))));
        }
        self.remember(reply.text, Vec::new());
        // Who spoke while the model gave its answer is heard in this turn still.
        Ok(if self.steer()? { None } else { Some(Ended::Completed) })
    }

    async fn call_tools(&mut self, reply: Reply, cancel: &CancellationToken) -> Result<Option<Ended>, SinkError> {
        let requests = reply.calls.iter().map(|asked| asked.request.clone()).collect();
        let text = reply.text;
        self.remember(text.clone(), requests);
        let environment = &self.input.environment;
        let (outcomes, stopped) = answer_calls(environment, &mut self.calls, (&text, reply.calls), cancel).await?;
        let mut findings = Vec::new();
        for CallOutcome { result, findings: found, .. } in outcomes {
            findings.extend(found.into_iter().map(|text| Part::Text { text }));
            self.input.messages.push(Message::ToolResult {
                call_id: result.id,
                name: result.name,
                output: result.output,
                is_error: result.is_error,
                parts: result.parts,
            });
        }
        bound_images(&mut self.input.messages);
        if !findings.is_empty() {
            self.input.messages.push(Message::User(findings));
        }
        if cancel.is_cancelled() {
            return Ok(Some(Ended::Aborted));
        }
        self.emit(EventBody::TurnComplete { turn: self.rounds, kind: RoundKind::ToolUse, usage: reply.usage })?;
        Ok(stopped.map(|why| Ended::Failed(in_circles(why))))
    }

    pub(super) fn remember(&mut self, text: String, calls: Vec<ToolCallRequest>) {
        if !calls.is_empty() || !text.trim().is_empty() {
            self.input.messages.push(Message::Assistant { text, calls });
        }
    }

    /// Takes in what was said meanwhile. False: nothing.
    pub(super) fn steer(&mut self) -> Result<bool, SinkError> {
        let mut any = false;
        for parts in self.input.steering.take() {
            any = true;
            let Some(session_id) = self.input.environment.session.clone() else {
                self.input.messages.push(Message::User(parts));
                continue;
            };
            let plain = matches!(parts.as_slice(), [Part::Text { .. }]);
            let content = PromptContent::Parts(parts);
            let prompt = content.text();
            let parts = content.into_parts();
            let kept = if plain { None } else { Some(parts.clone()) };
            self.input.messages.push(Message::User(parts));
            self.emit(EventBody::SessionSteer { session_id, prompt, parts: kept })?;
        }
        Ok(any)
    }
}

/// A model's error as the turn's.
pub(super) fn model_failure(error: &ModelError) -> ErrorBody {
    let kind = match error {
        ModelError::Transient { .. } => "transient",
        ModelError::Unauthorized(_) => "unauthorized",
        ModelError::Refused(_) => "refused",
        ModelError::Malformed(_) => "malformed",
        ModelError::Unavailable(_) => "unavailable",
        ModelError::Aborted => "aborted",
    };
    let details = Some(serde_json::json!({ "kind": kind }));
    ErrorBody { code: ErrorCode::UpstreamUnavailable, message: error.to_string(), details }
}

/// A model that cannot be brought out of its circles.
fn in_circles(message: String) -> ErrorBody {
    let details = Some(serde_json::json!({ "kind": "loop" }));
    ErrorBody { code: ErrorCode::UpstreamUnavailable, message, details }
}

pub(super) fn no_response(stop: Option<StopReason>) -> ErrorBody {
    let why = match stop {
        Some(StopReason::Length) => "length",
        Some(StopReason::ContentFilter) => "content_filter",
        Some(StopReason::EndTurn | StopReason::ToolUse) | None => "none_given",
    };
    let details = Some(serde_json::json!({ "kind": "blank", "stopReason": why }));
    ErrorBody { code: ErrorCode::UpstreamUnavailable, message: NO_RESPONSE.to_owned(), details }
}
