//! A turn that an agent answers by itself: it runs its own loop and its own tools, and asks.
//!
//! Its doings are told in the terms of ours, so that every view of the log holds for them too: a text is a
//! stream, the calls behind it belong to it, and the text after a call opens the next round. A call may still
//! run when the next round begins. Questions go through hooks and the gate, calls that the agent wants of us
//! through hooks, gate and registry; both run beside the stream. Invariants, on every way out: each
//! `stream.start` is closed, each `tool.call.start` has its end, and nothing of it runs on.

mod said;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio_util::sync::CancellationToken;

use super::call::{CallEnvironment, CallOutcome, finish_soon};
use super::fault::{NO_RESPONSE, model_failure, no_response};
use super::turn::Turn;
use super::wants::{Job, ask, carry, fill, run};
use super::{CallEnd, CallFate, Ended, Sink, SinkError, Steering, Wish};
use crate::base::BoxFuture;
use crate::context::bound_images;
use crate::model::{
    AgentEvent, AgentRequest, AgentSession, Carried, ModelError, ModelEvent, ModelRequest, ModelStream, Steer,
    StopReason,
};
use crate::protocol::{
    ErrorBody, ErrorCode, EventBody, Message, Part, RoundKind, ToolCallRequest, ToolCallResult, Usage,
};

/// Events between two looks at how far the disk has come.
const EVENTS_PER_LOOK: u32 = 64;
/// The output of a call that the agent never ended.
const UNFINISHED: &str = "The agent ended its turn without a result of this call.";

impl Turn {
    /// Prompts the agent until nobody has anything more to say.
    pub(super) async fn delegate(&mut self, cancel: &CancellationToken) -> Result<Ended, SinkError> {
        loop {
            if let Some(ended) = self.at_boundary(cancel) {
                return Ok(ended);
            }
            self.steer().await?;
            if self.rounds >= self.input.iterations_max {
                self.goes_on(&Ended::IterationLimit, cancel).await?;
                return Ok(Ended::IterationLimit);
            }
            let (ended, findings) = self.prompt_agent(cancel).await?;
            let found = !findings.is_empty();
            if found {
                self.input.messages.push(Message::User(findings));
            }
            let more = found || self.input.steering.waits() || !self.unsaid.is_empty();
            if (ended != Ended::Completed || !more) && !self.goes_on(&ended, cancel).await? {
                return Ok(ended);
            }
        }
    }

    /// One prompt, from its request to its last event; and what hooks found about calls of ours.
    async fn prompt_agent(&mut self, cancel: &CancellationToken) -> Result<(Ended, Vec<Part>), SinkError> {
        let request = match finish_soon(cancel, self.agent_request()).await {
            Some(request) if !cancel.is_cancelled() => request,
            _ => return Ok((Ended::Aborted, Vec::new())),
        };
        let environment = self.input.environment.clone();
        let mut scene = Scene::new(Arc::clone(&self.input.sink), environment, cancel.child_token(), self.rounds);
        // Fires with `cancel`, or at a boundary when the turn is interrupted.
        let stop = cancel.child_token();
        let stream = self.input.model.stream(request, stop.clone());
        let model = self.input.model.id().to_owned();
        scene.begin()?;
        let heard = scene.listen(stream, &model, (self.input.steering.as_ref(), &stop)).await;
        scene.jobs_cancel.cancel();
        scene.settle().await?;
        let heard = heard?;
        let finished = heard.is_ok() && !stop.is_cancelled();
        let fault = if stop.is_cancelled() { ErrorCode::Conflict } else { ErrorCode::UpstreamUnavailable };
        scene.close(finished, fault)?;
        self.rounds = scene.number();
        self.usage = self.usage.plus(scene.usage.unwrap_or_default());
        let any_calls = scene.rounds.iter().any(|round| !round.calls.is_empty());
        let findings = std::mem::take(&mut scene.findings);
        self.unsaid.append(&mut scene.unsaid);
        let session = scene.session.take();
        self.title = scene.title.take().or(self.title.take());
        let said = self.remember_rounds(scene.rounds);
        if let Some(id) = session {
            self.agent = Some(AgentSession { agent: model, id, messages: self.input.messages.len(), fork_of: None });
        }
        let ended = match heard {
            _ if cancel.is_cancelled() => Ended::Aborted,
            _ if stop.is_cancelled() => Ended::Interrupted,
            Err(error) => Ended::Failed(model_failure(&error)),
            Ok(reason) if !said && !any_calls => {
                self.final_text = NO_RESPONSE.to_owned();
                Ended::Failed(no_response(Some(reason)))
            }
            Ok(reason) => {
                self.stop = Some(reason);
                Ended::Completed
            }
        };
        Ok((ended, findings))
    }

    async fn agent_request(&self) -> ModelRequest {
        let hooks = &self.input.environment.hooks;
        let known = self.agent.as_ref().filter(|session| session.agent == self.input.model.id());
        let heard = known.map_or(0, |session| session.messages);
        let unheard = self.input.messages.len().saturating_sub(heard);
        ModelRequest {
            system: hooks.transform_system(self.input.system.clone()).await,
            messages: self.told(false).await,
            tools: Arc::default(),
            reasoning: self.input.reasoning,
            output_schema: None,
            cache_key: None,
            agent: Some(AgentRequest {
                host: self.input.environment.session.clone(),
                directory: self.input.directory.clone(),
                directories: self.input.directories.clone(),
                session: known.map(|session| session.id.clone()),
                fork: known.is_some_and(|session| session.fork_of.is_some()),
                unheard,
                options: self.input.agent_options.clone(),
                reasoning: self.input.reasoning,
                servers: Arc::clone(&self.input.agent_servers),
                tools: self.input.environment.registry.definitions(),
            }),
        }
    }

    /// Takes what was said and done into the conversation. False: no word was said.
    fn remember_rounds(&mut self, rounds: Vec<Round>) -> bool {
        let (mut said, mut shown) = (false, false);
        for Round { before, text, calls } in rounds {
            before.into_iter().for_each(|parts| self.input.messages.push(Message::User(parts)));
            if !text.trim().is_empty() {
                said = true;
                self.final_text.clone_from(&text);
            }
            self.remember(text, calls.iter().map(|called| called.request.clone()).collect());
            for Called { request, result } in calls {
                let result = result.unwrap_or_else(|| unfinished(request));
                let ToolCallResult { id: call_id, name, output, is_error, parts, .. } = result;
                shown |= !parts.is_empty();
                self.input.messages.push(Message::ToolResult { call_id, name, output, is_error, parts });
            }
        }
        if shown {
            self.input.messages.edit(|messages| bound_images(messages));
        }
        said
    }
}

/// What the agent said between two of its calls, and the calls behind it.
#[derive(Debug, Default)]
struct Round {
    /// What the user said in front of it, and the agent took.
    before: Vec<Vec<Part>>,
    text: String,
    calls: Vec<Called>,
}

#[derive(Debug)]
struct Called {
    request: ToolCallRequest,
    /// None: it runs.
    result: Option<ToolCallResult>,
}

/// One prompt as it goes on.
struct Scene {
    sink: Arc<dyn Sink>,
    environment: CallEnvironment,
    jobs: FuturesUnordered<BoxFuture<'static, Job>>,
    jobs_cancel: CancellationToken,
    rounds_before: u32,
    rounds: Vec<Round>,
    /// The text of the stream that is open.
    open: Option<String>,
    usage: Option<Usage>,
    session: Option<String>,
    title: Option<String>,
    findings: Vec<Part>,
    /// Where the agent takes what the user says meanwhile, if it does.
    steer: Option<Steer>,
    /// It is being told something.
    telling: bool,
    /// Nothing was said or done yet in the last round.
    fresh: bool,
    unsaid: Vec<Vec<Part>>,
}

impl Scene {
    fn new(sink: Arc<dyn Sink>, environment: CallEnvironment, jobs_cancel: CancellationToken, before: u32) -> Self {
        Self {
            sink,
            environment,
            jobs: FuturesUnordered::new(),
            jobs_cancel,
            rounds_before: before,
            rounds: Vec::new(),
            open: None,
            usage: None,
            session: None,
            title: None,
            findings: Vec::new(),
            steer: None,
            telling: false,
            fresh: false,
            unsaid: Vec::new(),
        }
    }

    fn emit(&self, event: EventBody) -> Result<(), SinkError> {
        self.sink.emit(event)
    }

    /// The number of the round that is on.
    fn number(&self) -> u32 {
        self.rounds_before.saturating_add(u32::try_from(self.rounds.len()).unwrap_or(u32::MAX))
    }

    fn begin(&mut self) -> Result<(), SinkError> {
        self.rounds.push(Round::default());
        self.open = Some(String::new());
        self.emit(EventBody::StreamStart {})
    }

    /// Reads the agent's events to their end, whether or not it was told to stop: it says itself when it has.
    async fn listen(
        &mut self,
        mut stream: ModelStream,
        model: &str,
        (steering, stop): (&dyn Steering, &CancellationToken),
    ) -> Result<Result<StopReason, ModelError>, SinkError> {
        let mut events = 0_u32;
        loop {
            let item = tokio::select! {
                biased;
                Some(job) = self.jobs.next(), if !self.jobs.is_empty() => {
                    self.done(job)?;
                    continue;
                }
                () = steering.arrived(), if self.steer.is_some() && !self.telling && !stop.is_cancelled() => {
                    self.tell(steering).await?;
                    continue;
                }
                item = stream.next() => item,
            };
            match item {
                Some(Ok(ModelEvent::Finished(stop))) => return Ok(Ok(stop)),
                Some(Ok(event)) => {
                    let boundary = matches!(event, ModelEvent::Agent(_));
                    if let Err(fault) = self.take(event, model)? {
                        return Ok(Err(fault));
                    }
                    if boundary && steering.wish() == Wish::Interrupt {
                        stop.cancel();
                    }
                }
                Some(Err(error)) => return Ok(Err(error)),
                None => {
                    let fault = "the agent's stream ended before its turn was over".to_owned();
                    return Ok(Err(ModelError::Malformed(fault)));
                }
            }
            events += 1;
            if events.is_multiple_of(EVENTS_PER_LOOK) {
                self.sink.ready().await?;
                // An agent that never pauses must not keep this worker from its other tasks.
                tokio::task::yield_now().await;
            }
        }
    }

    fn take(&mut self, event: ModelEvent, model: &str) -> Result<Result<(), ModelError>, SinkError> {
        match event {
            ModelEvent::Text(text) if text.is_empty() => {}
            ModelEvent::Text(text) => {
                self.speak()?.push_str(&text);
                self.emit(EventBody::StreamDelta { text })?;
            }
            ModelEvent::Reasoning(text) if text.is_empty() => {}
            ModelEvent::Reasoning(text) => {
                self.speak()?;
                self.emit(EventBody::StreamReasoning { text })?;
            }
            ModelEvent::Usage(usage) => self.usage = Some(usage),
            ModelEvent::Agent(event) => self.take_own(event, model)?,
            ModelEvent::Call(_)
            | ModelEvent::BadCall { .. }
            | ModelEvent::Original(_)
            | ModelEvent::Retrying { .. }
            | ModelEvent::Finished(_) => {
                let fault = format!("{model} is an agent and sent what only a model without a loop of its own sends");
                return Ok(Err(ModelError::Malformed(fault)));
            }
        }
        Ok(Ok(()))
    }

    fn take_own(&mut self, event: AgentEvent, model: &str) -> Result<(), SinkError> {
        match event {
            AgentEvent::Session { id } => {
                self.session = Some(id.clone());
                self.emit(EventBody::AgentSession { model: model.to_owned(), agent_session_id: id })
            }
            AgentEvent::Steerable(steer) => {
                self.steer = Some(steer);
                Ok(())
            }
            AgentEvent::Told(event) => self.emit(*event),
            AgentEvent::Title(title) => {
                self.title = Some(title);
                Ok(())
            }
            AgentEvent::CallOutput { id, text } => {
                let name = self.running(&id).map(|called| called.request.name.clone());
                match name.filter(|_| self.sink.has_audience()) {
                    Some(name) => self.emit(EventBody::ToolCallOutput { call_id: id, name, text, skipped_bytes: 0 }),
                    None => Ok(()),
                }
            }
            AgentEvent::CallStarted(request) => {
                self.hush()?;
                let (call_id, name, args) = (request.id.clone(), request.name.clone(), request.arguments.clone());
                self.announce(request);
                self.sink.agent_calls();
                self.emit(EventBody::ToolCallStart { call_id, name, args })
            }
            AgentEvent::CallEnded(result) => self.end(result, ErrorCode::Internal),
            AgentEvent::Ask(question, reply) => {
                self.jobs.push(ask(self.environment.clone(), *question, self.jobs_cancel.clone(), reply));
                Ok(())
            }
            AgentEvent::Fill(form, reply) => {
                self.jobs.push(fill(self.environment.clone(), *form, self.jobs_cancel.clone(), reply));
                Ok(())
            }
            AgentEvent::Carry(errand, reply) => {
                self.hush()?;
                self.announce(errand.request.clone());
                self.jobs.push(carry(self.environment.clone(), *errand, self.jobs_cancel.clone(), reply));
                Ok(())
            }
            AgentEvent::Run(call, reply) => {
                self.hush()?;
                self.announce(call.request.clone());
                self.jobs.push(run(self.environment.clone(), *call, self.jobs_cancel.clone(), reply));
                Ok(())
            }
        }
    }

    /// The text of the open stream. A text behind calls opens the next round.
    fn speak(&mut self) -> Result<&mut String, SinkError> {
        if self.open.is_none() && std::mem::take(&mut self.fresh) {
            self.open = Some(String::new());
            self.emit(EventBody::StreamStart {})?;
        } else if self.open.is_none() {
            self.complete(RoundKind::ToolUse, None)?;
            self.begin()?;
        }
        Ok(self.open.get_or_insert_default())
    }

    /// Closes the open stream.
    fn hush(&mut self) -> Result<(), SinkError> {
        let Some(text) = self.open.take() else { return Ok(()) };
        if let Some(round) = self.rounds.last_mut() {
            round.text.clone_from(&text);
        }
        self.emit(EventBody::StreamComplete { text, original: None })
    }

    fn complete(&self, kind: RoundKind, usage: Option<Usage>) -> Result<(), SinkError> {
        self.emit(EventBody::TurnComplete { turn: self.number(), kind, usage })
    }

    fn announce(&mut self, request: ToolCallRequest) {
        self.fresh = false;
        let Some(round) = self.rounds.last_mut() else { return };
        round.calls.push(Called { request, result: None });
    }

    /// The call of that id that runs.
    fn running(&mut self, id: &str) -> Option<&mut Called> {
        let mut calls = self.rounds.iter_mut().rev().flat_map(|round| &mut round.calls);
        calls.find(|called| called.request.id == id && called.result.is_none())
    }

    /// Takes the result of a call. `fault`: what kind of error it is, if it is one.
    fn end(&mut self, result: ToolCallResult, fault: ErrorCode) -> Result<(), SinkError> {
        let Some(called) = self.running(&result.id) else {
            tracing::debug!(call = result.id, "an agent ended a call that does not run");
            return Ok(());
        };
        called.result = Some(result.clone());
        let ToolCallResult { id: call_id, name, output, is_error, duration_ms, parts, details } = result;
        if is_error {
            let error = ErrorBody { code: fault, message: output.clone(), details: None };
            self.emit(EventBody::ToolCallError { call_id: call_id.clone(), name: name.clone(), error })?;
        }
        self.emit(EventBody::ToolCallEnd {
            call_id,
            name: name.clone(),
            output,
            is_error,
            duration_ms: duration_ms.unwrap_or(0),
            parts,
            details,
            findings: Vec::new(),
        })?;
        // The agent ran it, so that it failed also where nobody heard its end.
        let how = if is_error { CallFate::Failed } else { CallFate::Done };
        self.sink.call_ended(CallEnd { name: &name, how, ran: duration_ms.map(Duration::from_millis) });
        Ok(())
    }

    /// Takes in what ran beside the stream; a call of ours has told its events itself.
    fn done(&mut self, job: Job) -> Result<(), SinkError> {
        match job {
            Job::Answered => {}
            Job::Carried(outcome, reply) => {
                let CallOutcome { result, findings, failure, .. } = *outcome;
                if let Some(called) = self.running(&result.id) {
                    called.result = Some(result.clone());
                }
                reply.send(Carried { result, findings, failure });
            }
            Job::Steered(parts, taken) => {
                self.telling = false;
                if taken {
                    self.steered(parts)?;
                } else {
                    // It is prompted with that once it has ended, and told nothing more until then.
                    self.steer = None;
                    self.unsaid.push(parts);
                }
            }
            Job::Ran(outcome, reply) => {
                let CallOutcome { result, findings, .. } = *outcome;
                self.findings.extend(findings.into_iter().map(|text| Part::Text { text }));
                if let Some(called) = self.running(&result.id) {
                    called.result = Some(result.clone());
                }
                reply.send(result);
            }
        }
        Ok(())
    }

    /// Waits for what still runs beside the stream; it was told to stop.
    async fn settle(&mut self) -> Result<(), SinkError> {
        while let Some(job) = self.jobs.next().await {
            self.done(job)?;
        }
        Ok(())
    }

    /// Closes what is open: calls without an end, which is a fault of this kind, the stream, the round.
    fn close(&mut self, finished: bool, fault: ErrorCode) -> Result<(), SinkError> {
        let open: Vec<ToolCallRequest> = self
            .rounds
            .iter()
            .flat_map(|round| &round.calls)
            .filter(|called| called.result.is_none())
            .map(|called| called.request.clone())
            .collect();
        for request in open {
            self.end(unfinished(request), fault)?;
        }
        let spoke = self.open.is_some();
        self.hush()?;
        match (finished && !self.fresh, spoke) {
            (false, _) => Ok(()),
            (true, true) => self.complete(RoundKind::Text, self.usage),
            (true, false) => self.complete(RoundKind::ToolUse, self.usage),
        }
    }
}

/// The result of a call that the agent never ended.
fn unfinished(request: ToolCallRequest) -> ToolCallResult {
    ToolCallResult {
        id: request.id,
        name: request.name,
        output: UNFINISHED.to_owned(),
        is_error: true,
        duration_ms: None,
        parts: Vec::new(),
        details: None,
    }
}
