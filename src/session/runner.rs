//! A turn's own task: the conversation, the equipment, the loop, and word to the actor when it ends.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use futures_util::FutureExt as _;
use serde_json::{Map, Value};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::actor::Order;
use super::agent_rules::iterations;
use super::board::lend_tree;
use super::budget::{Budgets, Purse, Works, purse, run_within};
use super::children::tree::works_for;
use super::children::{TurnChildren, narrowed, of_no_use};
use super::clients::SessionClients;
use super::gate::SessionGate;
use super::helm::Helm;
use super::history::{Conversation, Rebuild};
use super::lent::{leave, lend};
use super::live::Live;
use super::manager::{Manager, Shelf};
use super::metered::Metered;
use super::sink::TurnSink;
use super::traced::log_span;
use super::{Terms, Workbench, titling};
use crate::agent::{
    CallEnvironment, Compacting, Ended, Gate, Progress, Sink, TurnInput, TurnOutcome, TurnSampler, Untold,
};
use crate::hook::{Clients as _, Line, Notice};
use crate::host::TurnOf;
use crate::model::retry::RetryPolicy;
use crate::model::{AgentSession, Model, StopReason};
use crate::protocol::{
    ErrorBody, ErrorCode, EventBody, HeldCall, Lineage, Message, NoticeLevel, Part, TurnId, TurnTask,
};
use crate::store::{SessionRow, SessionSettings, StoreError};
use crate::tool::{ChangeRecorder, Children, Registry, Scope};

/// Events that are read at once.
const PAGE: usize = 1_000;

/// What a turn's task needs.
pub(super) struct Job {
    pub(super) live: Arc<Live>,
    pub(super) shelf: Arc<Shelf>,
    /// Of a session under another one.
    pub(super) row: Option<Box<SessionRow>>,
    /// Where it stands in its tree, if it stands under another one.
    pub(super) lineage: Option<Lineage>,
    /// The turns above it in whose place it works, the nearest first.
    pub(super) works_for: Vec<TurnOf>,
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
    /// Its budget; those of the sessions above it are put before it.
    pub(super) budgets: Budgets,
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
    let recorder: Arc<dyn ChangeRecorder> = recording.turn(&job.live.id, &job.turn, (workspace, job.works_for.clone()));
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
    if let Err(error) = hold_to_those_above(&mut job).await {
        return unbegun(job.turn, error, &job.progress);
    }
    match purse(&job).await {
        Ok(Some(purse)) => {
            let _works = Works::begin(&purse);
            run_held(job, &purse).await
        }
        Ok(None) => Finished { broken: job.progress.begun, ..over(job.turn, Ended::Aborted) },
        Err(ended) => Finished { broken: job.progress.begun, ..over(job.turn, ended) },
    }
}

async fn run_held(mut job: Job, purse: &Purse) -> Finished {
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
    let (terms, payer) = (Arc::clone(&job.terms), Arc::clone(&job.sink));
    let metered = |model| Metered::over(model, (&terms.meters, &terms.tracer), Some(&payer));
    let model = metered(equipment.model);
    let small = equipment.models.small().filter(|_| wants_title(&job)).map(metered);
    let model_of_summaries = equipment.models.summing().map(metered);
    let (recorder, helm) = (recorder(&job), Arc::clone(&job.helm));
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
        untold: untold(job.lineage.as_ref(), &terms),
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
    let outcome = run_within(|limit| job.bench.run(input, limit), (&sink, &helm, purse), &job.cancel).await;
    leave(&scope, outcome.ended == Ended::Paused);
    tell_changes((recorder.as_deref(), agent_works.is_some()), &sink).await;
    if let Some(small) = small.filter(|_| outcome.ended == Ended::Completed) {
        titling::begin(live, small, (&outcome.messages, &outcome.final_text));
    }
    finished(turn, outcome, carries)
}

/// The tools that its model is not told of.
fn untold(lineage: Option<&Lineage>, terms: &Terms) -> Arc<Untold> {
    Arc::new(Untold::new(of_no_use(lineage, terms.limits.read().subagent_depth)))
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
    lend_tree((&job.scope, &job.live), &job.shelf, None);
    let Some(row) = job.row.take() else { return Ok(()) };
    let manager = Manager { shelf: Arc::clone(&job.shelf) };
    let above = manager.above(&row).await.map_err(|error| error.0)?;
    let lineage = row.lineage.as_deref().cloned().unwrap_or_default();
    job.lineage = Some(lineage.clone());
    job.works_for = works_for(&row, &job.turn, &above);
    job.settings = narrowed(&job.settings, &lineage, &above)?;
    job.gate.mode = job.settings.permission_mode;
    job.gate.hold_to(&above, job.bench.as_ref()).await?;
    let of = |row: &SessionRow| (row.id.clone(), row.settings.budget.unwrap_or_default());
    job.budgets.splice(..0, above.iter().map(of));
    if let Some(root) = lineage.root() {
        let root = manager.live(row.client.as_ref(), root).await.map_err(|error| error.0)?;
        lend_tree((&job.scope, &job.live), &job.shelf, Some((&root, &lineage)));
        job.gate.root = Some(root);
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
