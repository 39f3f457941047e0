//! One turn: rounds with the model until it calls no more tools.
//!
//! A round: pruning → hooks → request → reply → calls → findings and steering. Invariants, on every way out:
//! each `stream.start` is closed by one `stream.complete`, each announced call has ended and has its
//! result in the messages, and `loop.complete` comes last; a turn that pauses leaves only the loop open.
//!
//! **Safe boundaries.** A whole reply of the model is one item, and so is a call from its announcement to its end, the
//! question about it included. The boundaries lie between them, and nowhere else:
//!
//! 1. before each request to the model, the first one included;
//! 2. before each call, those that run beside each other included;
//! 3. in the pause before a broken stream is tried again: what came of it is void.
//!
//! There [`Steering`] is looked at: an interrupt ends the turn (2: calls that have not begun are answered without
//! running), a pause ends this run of it in a form that [`Progress`] takes up again (2: calls that have not begun are
//! kept), and messages go in (1 only: providers want each call answered first). An answer without calls is the turn's last
//! item: whoever comes behind it comes too late, unless a message makes the turn go on. A turn that an external agent
//! answers has boundaries of type 1 before each prompt to it, and for an interrupt behind each text and each call that
//! it tells of (`delegate`).

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::call::{CallEnvironment, CallOutcome, finish_soon};
use super::calls::{CallMemory, answer_calls, plan_calls};
use super::compact::Compacting;
use super::fault::{Fault, NO_RESPONSE, endless, model_failure, no_response};
use super::output::Unfit;
use super::reply::{Asking, Listener, Reply};
use super::rescue::MadeRoom;
use super::watch::Watched;
use super::{Sink, SinkError, Steering, Wish};
use crate::config::McpServer;
use crate::context::{bound_images, has_too_many_images};
use crate::model::retry::RetryPolicy;
use crate::model::{AgentSession, Messages, Model, ModelRequest, StopReason};
use crate::protocol::{
    AgentDefinition, AgentOptions, ErrorBody, ErrorCode, EventBody, Held, InteractionMode, Message, Original, Part,
    PromptContent, Reasoning, RoundKind, SessionId, ToolCallRequest, TurnTask, Usage,
};

/// How often a model goes on with a reply that its provider paused.
const PAUSES_MAX: usize = 16;

/// What a turn needs.
pub struct TurnInput {
    /// The model, or the agent that answers by itself.
    pub model: Arc<dyn Model>,
    /// The system text.
    pub system: String,
    /// The conversation; the new user message is its last entry.
    pub messages: Messages,
    /// Where the session works; absolute.
    pub directory: PathBuf,
    /// Where else it may work.
    pub directories: Vec<PathBuf>,
    /// The session that an agent keeps for this one, if it has one.
    pub agent: Option<AgentSession>,
    /// How much the model thinks before it answers.
    pub reasoning: Reasoning,
    /// What an agent's options are set to.
    pub agent_options: AgentOptions,
    /// The tool servers that an agent's session is to have.
    pub agent_servers: Arc<[McpServer]>,
    /// Tools, permission and hooks.
    pub environment: CallEnvironment,
    /// Takes the events: `loop.*`, `stream.*`, `tool.*`, `turn.complete`, `session.steer`.
    pub sink: Arc<dyn Sink>,
    /// What came of it before it paused. Default: it begins.
    pub progress: Progress,
    /// Messages that arrive while it runs, and what is wanted of it.
    pub steering: Arc<dyn Steering>,
    /// Rounds with the model, at most. An agent's own rounds are its own affair: it is prompted no more after so many.
    pub iterations_max: u32,
    /// How often and when a broken stream is tried again.
    pub retry: RetryPolicy,
    /// Models that are asked, in this order, when the one before cannot be used.
    pub fallbacks: Vec<Arc<dyn Model>>,
    /// What the answer has to be: the JSON Schema of an object. None: any text.
    pub output_schema: Option<Arc<Map<String, Value>>>,
    /// What it does, where it answers no prompt.
    pub task: Option<TurnTask>,
    /// When and by whom the conversation is summed up.
    pub compacting: Compacting,
    /// How the model and we talk about calls.
    pub mode: InteractionMode,
    /// The agent of a markdown file that the turn works as.
    pub works_as: Option<Arc<AgentDefinition>>,
}

/// Where a turn stands that goes on.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Progress {
    /// It has begun: `loop.start` is out.
    pub begun: bool,
    /// Rounds with the model so far.
    pub rounds: u32,
    /// Tokens of them.
    pub usage: Usage,
    /// How often hooks have made it go on.
    pub continued: u32,
    /// What it has to do first. The calls stand in the last reply of the messages already.
    pub held: Held,
    /// What hooks found about the calls of that reply that have run.
    pub findings: Vec<Part>,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Ended {
    /// With an answer.
    Completed,
    /// By its cancellation token.
    Aborted,
    /// At a boundary, because it was told to.
    Interrupted,
    /// Not at all: it holds at a boundary. [`TurnOutcome::progress`] is what goes on.
    Paused,
    /// At the limit of rounds.
    IterationLimit,
    /// Because something is spent of what it may spend: this loop's caller knows.
    OverBudget(ErrorBody),
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
    /// The answer as data, where that was wanted.
    pub output: Option<Value>,
    /// The whole conversation, this turn's part included: what the next turn starts from.
    pub messages: Messages,
    /// The session that an agent keeps for this one, and how much of the conversation it has heard.
    pub agent: Option<AgentSession>,
    /// Where it stands: rounds, tokens, and what is left of a paused turn.
    pub progress: Progress,
    /// Why the model stopped, the last time that it did.
    pub stop: Option<StopReason>,
    /// What an agent calls the conversation.
    pub title: Option<String>,
}

/// Runs a turn to its end, or to where it is to pause. Emits no terminal event: the session does that.
pub async fn run_turn(mut input: TurnInput, cancel: CancellationToken) -> TurnOutcome {
    input.environment.sink.get_or_insert_with(|| Arc::clone(&input.sink));
    let (agent, progress) = (input.agent.take(), std::mem::take(&mut input.progress));
    let mut calls = CallMemory::default();
    if progress.begun {
        calls.know(&input.messages);
    }
    let environment = &mut input.environment;
    environment.hooks = Arc::new(Watched {
        hooks: Arc::clone(&environment.hooks),
        registry: Arc::clone(&environment.registry),
        breaker: Arc::clone(&calls.breaker),
    });
    let (rounds, usage, begun) = (progress.rounds, progress.usage, progress.begun);
    let Progress { held, findings, continued, .. } = progress;
    let mut turn = Turn {
        input,
        agent,
        calls,
        rounds,
        usage,
        continued,
        held,
        findings,
        stop: None,
        title: None,
        unsaid: Vec::new(),
        final_text: String::new(),
        made_room: MadeRoom::default(),
        tried_at: 0,
        sent_units: AtomicU64::new(0),
        unfit: None,
        was_unfit: false,
        begins: 0,
        output: None,
    };
    let ended = turn.run(begun, &cancel).await.unwrap_or_else(|error| {
        Ended::Failed(ErrorBody { code: ErrorCode::Internal, message: error.to_string(), details: None })
    });
    TurnOutcome {
        ended,
        final_text: turn.final_text,
        output: turn.output,
        messages: turn.input.messages,
        agent: turn.agent,
        progress: Progress {
            begun: true,
            rounds: turn.rounds,
            usage: turn.usage,
            continued: turn.continued,
            held: turn.held,
            findings: turn.findings,
        },
        stop: turn.stop,
        title: turn.title,
    }
}

pub(super) struct Turn {
    pub(super) input: TurnInput,
    pub(super) agent: Option<AgentSession>,
    pub(super) calls: CallMemory,
    pub(super) rounds: u32,
    pub(super) usage: Usage,
    /// How often hooks have made it go on.
    pub(super) continued: u32,
    /// Calls of the last reply that have not begun.
    pub(super) held: Held,
    /// What hooks found about those that have run, while some are held.
    findings: Vec<Part>,
    pub(super) stop: Option<StopReason>,
    pub(super) title: Option<String>,
    /// What the user said meanwhile and the agent has not taken.
    pub(super) unsaid: Vec<Vec<Part>>,
    pub(super) final_text: String,
    /// How it was made to fit since the last reply: each way is tried once.
    pub(super) made_room: MadeRoom,
    /// About how many tokens it had when it could not be made short enough; 0: it could.
    pub(super) tried_at: u64,
    /// The UTF-16 units of the messages that were sent last.
    sent_units: AtomicU64,
    /// The answer that the model is told of, while it is asked for another one.
    pub(super) unfit: Option<Unfit>,
    /// It was told of one: that is not done twice.
    pub(super) was_unfit: bool,
    /// Where in the messages an answer may have begun: it was asked for anew.
    pub(super) begins: usize,
    pub(super) output: Option<Value>,
}

impl Turn {
    async fn run(&mut self, begun: bool, cancel: &CancellationToken) -> Result<Ended, SinkError> {
        if let Some(TurnTask::Compact { focus }) = self.input.task.take() {
            return self.compact_only(focus.as_deref(), cancel).await;
        }
        if !begun {
            self.emit(EventBody::LoopStart {})?;
        }
        let ended = match self.cannot_answer() {
            Some(error) => Ended::Failed(error),
            None if self.input.model.is_agent() => self.delegate(cancel).await?,
            None => self.rounds(cancel).await?,
        };
        if ended == Ended::Paused {
            return Ok(ended);
        }
        let hit_turn_limit = ended == Ended::IterationLimit;
        self.emit(EventBody::LoopComplete { total_turns: self.rounds, hit_turn_limit })?;
        Ok(ended)
    }

    /// Rounds with the model until it is done.
    async fn rounds(&mut self, cancel: &CancellationToken) -> Result<Ended, SinkError> {
        if !self.held.calls.is_empty()
            && let Some(ended) = self.call_tools(cancel).await?
        {
            return Ok(ended);
        }
        loop {
            if let Some(ended) = self.at_boundary(cancel) {
                return Ok(ended);
            }
            if self.rounds >= self.input.iterations_max {
                self.goes_on(&Ended::IterationLimit, cancel).await?;
                return Ok(Ended::IterationLimit);
            }
            if let Some(ended) = self.round(cancel).await?
                && !self.goes_on(&ended, cancel).await?
            {
                return Ok(ended);
            }
        }
    }

    /// What a boundary says. None: go on.
    pub(super) fn at_boundary(&self, cancel: &CancellationToken) -> Option<Ended> {
        if cancel.is_cancelled() {
            return Some(Ended::Aborted);
        }
        match self.input.steering.wish() {
            Wish::GoOn => None,
            Wish::Pause => Some(Ended::Paused),
            Wish::Interrupt => Some(Ended::Interrupted),
        }
    }

    fn emit(&self, event: EventBody) -> Result<(), SinkError> {
        self.input.sink.emit(event)
    }

    /// One round. None: the next one follows.
    async fn round(&mut self, cancel: &CancellationToken) -> Result<Option<Ended>, SinkError> {
        self.steer().await?;
        // A conversation that is read from the log is pruned at the same places: `stream.start` and `compaction.start` mark them.
        self.input.messages.prune();
        if let Some(ended) = self.keep_in_window(cancel).await? {
            return Ok(Some(ended));
        }
        self.rounds += 1;
        self.emit(EventBody::StreamStart {})?;
        let (asking, mut reply) = self.ask_whom_it_takes(cancel).await?;
        let replied = matches!(asking, Asking::Replied);
        if replied {
            self.made_room = MadeRoom::default();
            let sent = self.sent_units.load(Ordering::Relaxed);
            reply.last_input_tokens.iter().for_each(|counted| self.input.messages.measure(sent, *counted));
            self.calls.adopt(&mut reply.calls);
        }
        let original = reply.original.take().filter(|_| replied);
        self.emit(EventBody::StreamComplete { text: reply.text.clone(), original: original.clone() })?;
        self.usage = self.usage.plus(reply.usage.unwrap_or_default());
        let whole = self.whole(&reply.text);
        if !whole.trim().is_empty() {
            self.final_text = whole.into_owned();
        }
        let ended = match asking {
            Asking::Replied | Asking::Again { .. } => None,
            Asking::Called => return Ok(self.at_boundary(cancel)),
            Asking::Aborted => Some(Ended::Aborted),
            Asking::Failed(error) => Some(Ended::Failed(model_failure(&error))),
        };
        if ended.is_some() {
            // What it announced but could not finish is not run, and not remembered.
            self.remember(reply.text, Vec::new());
            return Ok(ended);
        }
        self.stop = reply.stop;
        reply.original = original;
        if self.acts() && reply.calls.is_empty() {
            return self.act(reply, cancel).await;
        }
        if reply.calls.is_empty() {
            return self.answered(reply);
        }
        for asked in &mut reply.calls {
            self.input.environment.registry.unwrap_call(&mut asked.request);
        }
        let Reply { text, calls, usage, original, .. } = reply;
        let requests = calls.iter().map(|asked| asked.request.clone()).collect();
        self.remember_reply((text.clone(), requests, original));
        self.held = plan_calls(&self.input.environment, &mut self.calls, (&text, calls), usage)?;
        self.call_tools(cancel).await
    }

    /// Asks the model, as often as the policy allows. `attempts`: those of this round, counted here.
    pub(super) async fn ask(
        &self,
        attempts: &mut u32,
        cancel: &CancellationToken,
    ) -> Result<(Asking, Reply), SinkError> {
        let outside = (self.input.sink.as_ref(), self.input.steering.as_ref());
        let mut listener = Listener::new(outside, self.input.retry, cancel).after(*attempts);
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
                Asking::Replied | Asking::Called | Asking::Aborted | Asking::Failed(_) => {
                    *attempts += attempt;
                    return Ok((asking, listener.into_reply()));
                }
            }
        }
    }

    pub(super) async fn request(&self) -> ModelRequest {
        let hooks = &self.input.environment.hooks;
        let messages = self.without_pieces_of_others(self.told(!self.input.model.takes_images()).await);
        self.sent_units.store(messages.chars(), Ordering::Relaxed);
        let request = ModelRequest {
            system: hooks.transform_system(self.input.system.clone()).await,
            messages: self.unfit.as_ref().map_or_else(|| messages.clone(), |unfit| unfit.told(&messages)),
            tools: self.input.environment.told(),
            reasoning: self.input.reasoning,
            cache_key: self.input.environment.session.as_ref().map(ToString::to_string),
            output_schema: self.input.output_schema.as_deref().map(|schema| Arc::new(Value::Object(schema.clone()))),
            agent: None,
        };
        if self.acts() { self.in_actions(request) } else { request }
    }

    /// A reply without calls: the answer, or nothing at all.
    fn answered(&mut self, reply: Reply) -> Result<Option<Ended>, SinkError> {
        self.emit(EventBody::TurnComplete { turn: self.rounds, kind: RoundKind::Text, usage: reply.usage })?;
        if reply.stop == Some(StopReason::Paused) {
            let pauses = self.pieces().count();
            self.remember_reply((reply.text, Vec::new(), reply.original));
            return Ok((pauses >= PAUSES_MAX).then(|| Ended::Failed(endless(pauses + 1))));
        }
        let whole = self.whole(&reply.text).into_owned();
        if whole.trim().is_empty() {
            self.final_text = NO_RESPONSE.to_owned();
            return Ok(Some(Ended::Failed(no_response(reply.stop))));
        }
        self.remember_reply((reply.text, Vec::new(), reply.original));
        // Who spoke while the model gave its answer is heard in this turn still.
        if self.input.steering.waits() {
            return Ok(None);
        }
        Ok(Some(self.take_output(&whole, reply.stop).map_or_else(Ended::Failed, |()| Ended::Completed)))
    }

    /// Runs the calls that are held.
    pub(super) async fn call_tools(&mut self, cancel: &CancellationToken) -> Result<Option<Ended>, SinkError> {
        let (environment, calls) = (&self.input.environment, std::mem::take(&mut self.held.calls));
        let (outcomes, held) = answer_calls(environment, calls, self.input.steering.as_ref(), cancel).await;
        self.held.calls = held;
        let shown = outcomes.iter().any(|outcome| !outcome.result.parts.is_empty());
        for CallOutcome { result, findings: found, .. } in outcomes {
            self.findings.extend(found.into_iter().map(|text| Part::Text { text }));
            self.input.messages.push(Message::ToolResult {
                call_id: result.id,
                name: result.name,
                output: result.output,
                is_error: result.is_error,
                parts: result.parts,
            });
        }
        if !self.held.calls.is_empty() {
            return Ok(Some(Ended::Paused));
        }
        let Held { usage, stopped, .. } = std::mem::take(&mut self.held);
        if shown && has_too_many_images(&self.input.messages) {
            self.input.messages.edit(|messages| bound_images(messages));
        }
        let findings = std::mem::take(&mut self.findings);
        if !findings.is_empty() {
            self.input.messages.push(Message::User(findings));
        }
        if cancel.is_cancelled() {
            return Ok(Some(Ended::Aborted));
        }
        self.emit(EventBody::TurnComplete { turn: self.rounds, kind: RoundKind::ToolUse, usage })?;
        Ok(stopped.map(|why| Ended::Failed(Fault::Loop.told(why))))
    }

    pub(super) fn remember(&mut self, text: String, calls: Vec<ToolCallRequest>) {
        self.remember_reply((text, calls, None));
    }

    fn remember_reply(&mut self, (text, calls, original): (String, Vec<ToolCallRequest>, Option<Arc<Original>>)) {
        let paused = original.as_ref().is_some_and(|original| original.paused);
        if paused || !calls.is_empty() || !text.trim().is_empty() {
            self.input.messages.push(Message::Assistant { text, calls, original });
        }
    }

    /// Takes in what was said meanwhile.
    pub(super) async fn steer(&mut self) -> Result<(), SinkError> {
        let mut waiting = std::mem::take(&mut self.unsaid);
        waiting.extend(self.input.steering.take().await?);
        for parts in waiting {
            if let Some(event) = steered(self.input.environment.session.as_ref(), &parts) {
                self.emit(event)?;
            }
            self.input.messages.push(Message::User(parts));
        }
        Ok(())
    }
}

/// What the log says of a message that was put into the turn. None: it belongs to no session.
pub(super) fn steered(session: Option<&SessionId>, parts: &[Part]) -> Option<EventBody> {
    let plain = matches!(parts, [Part::Text { .. }]);
    let kept = (!plain).then(|| parts.to_vec());
    let prompt = PromptContent::Parts(parts.to_vec()).text();
    Some(EventBody::SessionSteer { session_id: session?.clone(), prompt, parts: kept })
}
