//! A turn's own task: the conversation, the equipment, the loop, and word to the actor when it ends.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::actor::Order;
use super::agent_rules::iterations;
use super::children::{TurnChildren, ceilings, narrowed};
use super::clients::SessionClients;
use super::gate::SessionGate;
use super::history::{Conversation, Rebuild};
use super::journal::Journal;
use super::lent::{leave, lend};
use super::live::Live;
use super::manager::{Manager, Shelf};
use super::metered::{Metered, count_call, tool_name};
use super::tally::Tally;
use super::traced::{TurnTrace, log_span};
use super::{Terms, Workbench, titling};
use crate::agent::{
    CallEnd, CallEnvironment, Compacting, Ended, Gate, Progress, Sink, SinkError, Steering, TurnInput, TurnOutcome,
    TurnSampler, Wish,
};
use crate::base::BoxFuture;
use crate::base::metrics::meters::Meters;
use crate::base::trace::Origin;
use crate::hook::{Clients as _, Line, Notice};
use crate::model::retry::RetryPolicy;
use crate::model::{AgentSession, Model, StopReason};
use crate::protocol::{
    ErrorBody, ErrorCode, EventBody, HeldCall, Message, NoticeLevel, Part, TurnId, TurnStatus, TurnTask,
};
use crate::store::{SessionRow, SessionSettings, StoreError, Waiting};
use crate::tool::{ChangeRecorder, Children, Registry, Scope};

/// Events that are read at once.
const PAGE: usize = 1_000;

/// Takes a turn's events into the journal, and counts.
pub(super) struct TurnSink {
    journal: Arc<Journal>,
    turn: TurnId,
    state: Mutex<SinkState>,
    /// Who counts the calls, and the tools that there are.
    counts: OnceLock<(Arc<Meters>, Arc<Registry>)>,
    trace: Mutex<Option<TurnTrace>>,
}

struct SinkState {
    closed: bool,
    tally: Tally,
}

impl TurnSink {
    /// The sink of a turn whose opening is in the log already.
    pub(super) fn new(journal: Arc<Journal>, turn: TurnId, task: Option<&TurnTask>) -> Arc<Self> {
        Self::going_on(journal, turn, Tally::after_opening(task))
    }

    /// The sink of a turn of which so much is in the log.
    pub(super) fn going_on(journal: Arc<Journal>, turn: TurnId, tally: Tally) -> Arc<Self> {
        let state = Mutex::new(SinkState { closed: false, tally });
        Arc::new(Self { journal, turn, state, counts: OnceLock::new(), trace: Mutex::default() })
    }

    /// So far.
    pub(super) fn tally(&self) -> Tally {
        self.state.lock().tally
    }

    /// From now on the calls of these tools are counted.
    fn count_calls(&self, meters: &Arc<Meters>, registry: &Arc<Registry>) {
        // A turn that goes on after a pause may know already.
        let _ = self.counts.set((Arc::clone(meters), Arc::clone(registry)));
    }

    /// From now on a collector is told of the turn.
    pub(super) fn trace(&self, trace: TurnTrace) {
        *self.trace.lock() = Some(trace);
    }

    /// The collector is told how the turn ended.
    pub(super) fn end_trace(&self, status: TurnStatus) {
        if let Some(trace) = self.trace.lock().take() {
            trace.end(status);
        }
    }

    /// Where what the turn does comes from.
    fn origin(&self) -> Origin {
        self.trace.lock().as_ref().map(TurnTrace::origin).unwrap_or_default()
    }

    /// Takes nothing more: the turn has its end.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
    }
}

impl Sink for TurnSink {
    fn emit(&self, event: EventBody) -> Result<(), SinkError> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(SinkError("the turn has ended".into()));
        }
        self.journal.emit(&self.turn, &event).map_err(|e| SinkError(e.to_string()))?;
        state.tally.push(&event);
        drop(state);
        if let Some((_, registry)) = self.counts.get()
            && let Some(trace) = self.trace.lock().as_mut()
        {
            trace.push(&event, |name| tool_name(registry, name));
        }
        Ok(())
    }

    fn call_ended(&self, end: CallEnd<'_>) {
        if let Some((meters, registry)) = self.counts.get() {
            count_call(meters, registry, &end);
        }
    }

    fn has_audience(&self) -> bool {
        self.journal.is_read()
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), SinkError>> {
        Box::pin(async { self.journal.ready().await.map_err(|e| SinkError(e.to_string())) })
    }
}

/// What a turn is told from outside: messages that wait to be put into it, and what is wanted of it.
pub(super) struct Helm {
    live: Arc<Live>,
    messages: Mutex<Vec<Waiting>>,
    arrivals: watch::Sender<()>,
    wish: watch::Sender<Wish>,
}

impl Helm {
    /// That of a turn for which these messages wait already.
    pub(super) fn with(live: &Arc<Live>, messages: Vec<Waiting>) -> Self {
        Self {
            live: Arc::clone(live),
            messages: Mutex::new(messages),
            arrivals: watch::Sender::default(),
            wish: watch::Sender::default(),
        }
    }

    /// Adds a message.
    pub(super) fn add(&self, message: Waiting) {
        self.messages.lock().push(message);
        self.arrivals.send_replace(());
    }

    /// Sets what is wanted.
    pub(super) fn wish_for(&self, wish: Wish) {
        self.wish.send_replace(wish);
    }
}

impl Steering for Helm {
    fn take(&self) -> BoxFuture<'_, Result<Vec<Vec<Part>>, SinkError>> {
        // What does not come so far still stands in the turn's row.
        let messages = std::mem::take(&mut *self.messages.lock());
        Box::pin(async move {
            let mut taken = Vec::with_capacity(messages.len());
            for message in messages {
                let said = self.live.said(message).await.map_err(|e| SinkError(e.to_string()))?;
                taken.push(said.content.into_parts());
            }
            Ok(taken)
        })
    }

    fn waits(&self) -> bool {
        !self.messages.lock().is_empty()
    }

    fn arrived(&self) -> BoxFuture<'_, ()> {
        let mut arrivals = self.arrivals.subscribe();
        // The sender lives as long as the future does.
        Box::pin(async move { while !self.waits() && arrivals.changed().await.is_ok() {} })
    }

    fn wish(&self) -> Wish {
        *self.wish.borrow()
    }

    fn called(&self) -> BoxFuture<'_, ()> {
        let mut wishes = self.wish.subscribe();
        // The sender lives as long as the future does.
        Box::pin(async move { drop(wishes.wait_for(|wish| *wish != Wish::GoOn).await) })
    }
}

/// What a turn's task needs.
pub(super) struct Job {
    pub(super) live: Arc<Live>,
    pub(super) shelf: Arc<Shelf>,
    /// Of a session under another one.
    pub(super) row: Option<Box<SessionRow>>,
    pub(super) bench: Arc<dyn Workbench>,
    pub(super) terms: Arc<Terms>,
    pub(super) turn: TurnId,
    pub(super) settings: SessionSettings,
    /// The new user message, of a turn that begins.
    pub(super) prompt: Vec<Part>,
    /// What it does, where it answers no prompt.
    pub(super) task: Option<TurnTask>,
    /// What its answer has to be.
    pub(super) output_schema: Option<Arc<Map<String, Value>>>,
    /// Where a turn stands that goes on.
    pub(super) progress: Progress,
    /// The conversation before it; None: it is to be read from the log, which ends with the prompt, or where the turn was
    /// paused.
    pub(super) conversation: Option<Conversation>,
    pub(super) gate: SessionGate,
    pub(super) sink: Arc<TurnSink>,
    pub(super) helm: Arc<Helm>,
    pub(super) scope: Arc<Scope>,
    pub(super) cancel: CancellationToken,
}

/// How a turn's task ended.
pub(super) struct Finished {
    /// The turn.
    pub(super) turn: TurnId,
    /// How.
    pub(super) ended: Ended,
    /// The model's last text.
    pub(super) final_text: String,
    /// The answer as data.
    pub(super) output: Option<Value>,
    /// Why the model stopped.
    pub(super) stop: Option<StopReason>,
    /// What an agent calls the conversation.
    pub(super) title: Option<String>,
    /// Where it stands.
    pub(super) progress: Progress,
    /// The conversation. None: it has to be read from the log.
    pub(super) conversation: Option<Conversation>,
    /// The task broke: what it opened may not be closed.
    pub(super) broken: bool,
}

/// Starts the task. The actor hears of its end as [`Order::Ended`], unless the task is cut off.
pub(super) fn start(job: Job) -> AbortHandle {
    let live = Arc::clone(&job.live);
    let turn = job.turn.clone();
    let origin = job.sink.origin();
    let lines = log_span(&job.live.id, &job.turn, &origin);
    let task = async move {
        let finished = AssertUnwindSafe(run(job)).catch_unwind().await.unwrap_or_else(|_| {
            let message = "the turn broke off by a fault of the server".to_owned();
            let error = ErrorBody { code: ErrorCode::Internal, message, details: None };
            Finished { broken: true, ..over(turn, Ended::Failed(error)) }
        });
        // Without an actor there is nobody left to know.
        let _ = live.mail.send(Order::Ended(Box::new(finished))).await;
    };
    tokio::spawn(origin.scope(task).instrument(lines)).abort_handle()
}

/// A turn that ended before its loop began.
fn over(turn: TurnId, ended: Ended) -> Finished {
    let progress = Progress::default();
    let (final_text, output, stop, title) = (String::new(), None, None, None);
    Finished { turn, ended, final_text, output, stop, title, progress, conversation: None, broken: false }
}

/// Who records what the turn does to files; its tools know it from now on.
fn recorder(job: &Job) -> Option<Arc<dyn ChangeRecorder>> {
    let (recording, workspace) = job.bench.changes(&job.settings)?;
    let recorder: Arc<dyn ChangeRecorder> = recording.turn(&job.live.id, &job.turn, workspace);
    *job.scope.recorder.lock() = Some(Arc::clone(&recorder));
    Some(recorder)
}

/// Whom the turn's tools and hooks can ask. They are told these things first.
fn clients(job: &Job, notices: Vec<String>) -> SessionClients {
    let clients = SessionClients {
        live: Arc::clone(&job.live),
        root: job.gate.root.clone(),
        terms: Arc::clone(&job.terms),
        turn: job.turn.clone(),
        directory: job.settings.working_directory.clone(),
        sink: Arc::clone(&job.sink),
        cancel: job.cancel.clone(),
        notices: AtomicUsize::new(0),
    };
    for text in notices {
        clients.notify(Notice { call_id: None, level: NoticeLevel::Warning, text });
    }
    clients
}

async fn run(mut job: Job) -> Finished {
    match hold_to_those_above(&mut job).await {
        Ok(()) => run_held(job).await,
        Err(error) => unbegun(job.turn, error, &job.progress),
    }
}

async fn run_held(mut job: Job) -> Finished {
    let turn = job.turn.clone();
    // It may wait for tool servers.
    let equipment = tokio::select! {
        biased;
        () = job.cancel.cancelled() => return Finished { broken: job.progress.begun, ..over(turn, Ended::Aborted) },
        equipped = job.bench.equip(&job.live.id, &job.settings) => match equipped {
            Ok(equipment) => equipment,
            Err(error) => return unbegun(turn, error, &job.progress),
        },
    };
    job.sink.count_calls(&job.terms.meters, &equipment.registry);
    let terms = Arc::clone(&job.terms);
    let metered = |model| Metered::over(model, Arc::clone(&terms.meters), terms.tracer.clone());
    let model = metered(equipment.model);
    let small = equipment.models.small().filter(|_| wants_title(&job)).map(metered);
    let model_of_summaries = equipment.models.summing().map(metered);
    let recorder = recorder(&job);
    let (talk, carries) = (clients(&job, equipment.notices), model.only_carries());
    let Conversation { messages, agent } = match gathered(&mut job, carries).await {
        Ok(conversation) => lend((&job.scope, &job.live), equipment.guide, conversation),
        Err(error) => return unbegun(turn, super::store_failure(&error).0, &job.progress),
    };
    let (scope, sink, live) = (Arc::clone(&job.scope), Arc::clone(&job.sink), Arc::clone(&job.live));
    *scope.children.lock() = Some(children(&job, &equipment.registry));
    let agent_works = recorder.as_ref().filter(|_| works_elsewhere(model.as_ref()));
    begin_command(agent_works).await;
    let gate: Arc<dyn Gate> = Arc::new(job.gate.of(equipment.agent.clone()));
    let clients = Line::new(Arc::new(talk), job.cancel.clone());
    let clients = clients.sampling(Arc::new(TurnSampler::new(&gate, &model, equipment.models)));
    let environment = CallEnvironment {
        hooks: equipment.hooks.with_clients(clients.clone()).unwrap_or(equipment.hooks),
        clients,
        sink: Some(Arc::clone(&job.sink) as Arc<dyn Sink>),
        session: Some(job.live.id.clone()),
        scope: job.scope,
        ..CallEnvironment::new(equipment.registry, gate)
    };
    let input = TurnInput {
        model,
        system: equipment.system,
        messages,
        directory: job.settings.working_directory.clone(),
        directories: job.settings.additional_directories.clone(),
        agent,
        reasoning: job.settings.reasoning,
        agent_options: job.settings.agent_options.clone(),
        agent_servers: equipment.agent_servers,
        environment,
        sink: job.sink,
        progress: job.progress,
        steering: job.helm,
        iterations_max: iterations(&terms, equipment.agent.as_deref()),
        mode: equipment.mode,
        works_as: equipment.agent,
        retry: RetryPolicy::default(),
        fallbacks: equipment.fallbacks.into_iter().map(metered).collect(),
        output_schema: job.output_schema,
        task: job.task,
        compacting: Compacting { percent: terms.limits.read().compact_percent, model: model_of_summaries },
    };
    let outcome = job.bench.run(input, job.cancel).await;
    leave(&scope, outcome.ended == Ended::Paused);
    tell_changes((recorder.as_deref(), agent_works.is_some()), &sink).await;
    if let Some(small) = small.filter(|_| outcome.ended == Ended::Completed) {
        titling::begin(live, small, (&outcome.messages, &outcome.final_text));
    }
    finished(turn, outcome, carries)
}

/// Whether the session is to get a title from the turn.
fn wants_title(job: &Job) -> bool {
    job.settings.title.is_none() && job.task.is_none()
}

/// What the turn's tools can do about sessions under its own.
fn children(job: &Job, registry: &Arc<Registry>) -> Arc<dyn Children> {
    Arc::new(TurnChildren {
        live: Arc::downgrade(&job.live),
        shelf: Arc::clone(&job.shelf),
        bench: Arc::clone(&job.bench),
        terms: Arc::clone(&job.terms),
        turn: job.turn.clone(),
        settings: job.settings.clone(),
        registry: Arc::clone(registry),
    })
}

/// Holds the turn of a session under others to what those may do now, and makes the clients of the one above all its own.
async fn hold_to_those_above(job: &mut Job) -> Result<(), ErrorBody> {
    let Some(row) = job.row.take() else { return Ok(()) };
    let manager = Manager { shelf: Arc::clone(&job.shelf) };
    let above = manager.above(&row).await.map_err(|error| error.0)?;
    let lineage = row.lineage.as_deref().cloned().unwrap_or_default();
    job.settings = narrowed(&job.settings, &lineage, &above)?;
    job.gate.mode = job.settings.permission_mode;
    job.gate.ceilings = ceilings(&job.terms, &above);
    if let Some(root) = lineage.root() {
        job.gate.root = Some(manager.live(row.client.as_ref(), root).await.map_err(|error| error.0)?);
    }
    Ok(())
}

/// All that works elsewhere does counts as one command.
async fn begin_command(recorder: Option<&Arc<dyn ChangeRecorder>>) {
    if let Some(recorder) = recorder {
        recorder.command_begins().await;
    }
}

/// A turn whose loop has ended. Who only carries has seen nothing of the conversation.
fn finished(turn: TurnId, outcome: TurnOutcome, carries: bool) -> Finished {
    Finished {
        turn,
        ended: outcome.ended,
        final_text: outcome.final_text,
        output: outcome.output,
        stop: outcome.stop,
        title: outcome.title,
        progress: outcome.progress,
        conversation: (!carries).then_some(Conversation { messages: outcome.messages, agent: outcome.agent }),
        broken: false,
    }
}

/// Tells what the turn did to files; `as_command`: all of it counts as one command, which is over.
async fn tell_changes((recorder, as_command): (Option<&dyn ChangeRecorder>, bool), sink: &TurnSink) {
    let Some(recorder) = recorder else { return };
    if as_command {
        recorder.command_ended().await;
    }
    if let Some(report) = recorder.report().await {
        // A sink that fails is noticed by the actor.
        let _ = sink.emit(EventBody::TurnChanges(report));
    }
}

/// A turn that could not be equipped. One that goes on has opened things that are to be closed.
fn unbegun(turn: TurnId, error: ErrorBody, progress: &Progress) -> Finished {
    Finished { broken: progress.begun, ..over(turn, Ended::Failed(error)) }
}

/// Whether the calls of a turn with this model are not made here.
fn works_elsewhere(model: &dyn Model) -> bool {
    model.is_agent() && !model.only_carries()
}

/// The conversation that the turn begins or goes on with. Who only carries needs none.
async fn gathered(job: &mut Job, carries: bool) -> Result<Conversation, StoreError> {
    if carries {
        return Ok(Conversation::default());
    }
    let Some(mut conversation) = job.conversation.take() else {
        let (mut conversation, findings) = conversation(&job.live, &job.progress.held.calls).await?;
        job.progress.findings = findings;
        conversation.agent = forkable(&job.live, conversation.agent).await?;
        return Ok(conversation);
    };
    if !job.progress.begun && job.task.is_none() {
        conversation.messages.push(Message::User(std::mem::take(&mut job.prompt)));
    }
    Ok(conversation)
}

/// The agent's session, if it can be gone on with: that of another session of ours only while nothing has happened there since.
async fn forkable(live: &Live, agent: Option<AgentSession>) -> Result<Option<AgentSession>, StoreError> {
    let Some((parent, at)) = agent.as_ref().and_then(|agent| agent.fork_of.as_ref()) else { return Ok(agent) };
    let rests = live.store.session(parent).await?.is_some() && live.store.events(parent, *at, 1).await?.is_empty();
    Ok(agent.filter(|_| rests))
}

/// The conversation as the log has it, up to the calls that are `held`; and what hooks found about those beside them.
async fn conversation(live: &Live, held: &[HeldCall]) -> Result<(Conversation, Vec<Part>), StoreError> {
    let mut transcript = Rebuild::default();
    let mut after = 0;
    loop {
        let events = live.store.events(&live.id, after, PAGE).await?;
        let Some(last) = events.last() else { return Ok(transcript.finish_held(held)) };
        after = last.seq;
        events.iter().for_each(|event| transcript.push(event));
    }
}
