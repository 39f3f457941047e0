//! From an id to a session in memory: wakes it when it is asked for, lets it go when nobody needs it.
//!
//! Creating a session writes rows and wakes nothing; an idle one costs a row and no memory. After a
//! restart [`Manager::recover`] looks only at turns that were not over, however many sessions there are.
//!
//! Invariant: a session has at most one actor. Who wants one holds a [`Live`] from the shelf, and an actor
//! leaves the shelf only under its lock, when nobody else holds it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use super::actor::{self, Actor, Agenda, Order};
use super::attendance::Attendance;
use super::budget::Ledger;
use super::children::Lanes;
use super::doing::Doing;
use super::live::Live;
use super::locks::Locks;
use super::policy::Policy;
use super::receipt::Receipt;
use super::scopes::Scopes;
use super::settings::beginning_of;
use super::tenure::Tenure;
use super::{Terms, Workbench, stopping, store_failure};
use crate::base::{clock, limit};
use crate::bus::Tails;
use crate::config::Limits;
use crate::hook::{EndReason, Herald};
use crate::permission::{Facts, Subject};
use crate::protocol::{
    ApiError, ClientId, ErrorCode, Event, EventBody, LimitView, PermissionConfig, PermissionExplanation, SessionId,
    SessionStatus, SessionView, ToolDefinition, TurnId, TurnRecord, TurnStatus,
};
use crate::store::{Cluster, SessionRow, Store, StoreError, TurnRow, Write, commit};
use crate::tool::{Estate, Scope};

/// What all sessions share.
pub(super) struct Shelf {
    pub(super) store: Arc<dyn Store>,
    pub(super) bench: Arc<dyn Workbench>,
    pub(super) terms: Arc<Terms>,
    pub(super) idle: Duration,
    pub(super) closing: AtomicBool,
    pub(super) lives: Mutex<HashMap<SessionId, Arc<Live>>>,
    /// Who is there for all of its sessions.
    pub(super) attendance: Attendance,
    /// What the newest events of all of them weigh.
    tails: Arc<Tails>,
    /// What tools remember of sessions that are not in memory.
    pub(super) scopes: Scopes,
    /// What tools leave behind, by session.
    pub(super) estate: Arc<Estate>,
    /// Grows with each session that leaves memory.
    pub(super) departures: AtomicU64,
    /// What prompts that wait take of memory.
    pub(super) waiting_bytes: Arc<AtomicUsize>,
    /// One at a time makes, puts back or removes working trees.
    pub(super) trees: tokio::sync::Mutex<()>,
    /// Room for turns of sessions under others.
    pub(super) lanes: Arc<Lanes>,
    /// Tells hooks what happens around sessions.
    pub(super) herald: Herald,
    /// What sessions and clients have spent.
    pub(super) ledger: Ledger,
    /// Where sessions of trees write.
    pub(super) locks: Locks,
    /// The servers that share the store. None: this one has it alone.
    pub(super) cluster: Option<Arc<dyn Cluster>>,
    /// Which sessions change hands.
    pub(super) tenure: Tenure,
    pub(super) running: watch::Sender<usize>,
}

/// A turn that runs, as far as the end of the server is concerned.
pub(super) struct Counted(watch::Sender<usize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|running| *running = running.saturating_sub(1));
    }
}

/// Counts a session less. The count is read again now and then where several servers share the store: it may be behind.
pub fn one_less(count: &AtomicU64) {
    let less = |now: u64| Some(now.saturating_sub(1));
    // It is never refused.
    let _ = count.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
}

/// A session that is counted, and not there yet.
pub(super) struct Admitted(Option<Arc<AtomicU64>>);

impl Admitted {
    /// It is there now.
    pub(super) fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        if let Some(count) = &self.0 {
            one_less(count);
        }
    }
}

impl Shelf {
    /// Counts a turn that runs.
    pub(super) fn count(&self) -> Counted {
        self.running.send_modify(|running| *running += 1);
        Counted(self.running.clone())
    }

    /// Counts a turn that is about to run, unless so many run already.
    pub(super) fn admit(&self, turns_max: usize) -> Option<Counted> {
        let admitted = self.running.send_if_modified(|running| {
            let fits = *running < turns_max;
            *running += usize::from(fits);
            fits
        });
        admitted.then(|| Counted(self.running.clone()))
    }

    /// Lets a session go from memory. False: somebody holds it.
    pub(super) fn evict(&self, live: &Arc<Live>, scope: &Arc<Scope>) -> bool {
        let mut lives = self.lives.lock();
        // One of the shelf, one of its actor.
        if Arc::strong_count(live) > 2 {
            return false;
        }
        self.departures.fetch_add(1, Ordering::AcqRel);
        // Before it is gone: who wakes it next has to find this.
        self.scopes.keep(&live.id, scope);
        lives.remove(&live.id);
        true
    }

    /// Takes a deleted session out.
    pub(super) fn remove(&self, live: &Arc<Live>) {
        self.departures.fetch_add(1, Ordering::AcqRel);
        self.lives.lock().remove(&live.id);
    }

    /// Counts a session that is to be kept, unless so many are.
    pub(super) fn admit_session(&self, sessions_max: u64) -> Result<Admitted, ApiError> {
        let admitted = Admitted(Some(Arc::clone(&self.terms.session_count)));
        if self.terms.session_count.fetch_add(1, Ordering::AcqRel) >= sessions_max {
            let message = format!("{sessions_max} sessions are kept already; delete some");
            return Err(ApiError::new(ErrorCode::ResourceExhausted, message));
        }
        Ok(admitted)
    }

    /// Whether the server ends.
    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    fn find(&self, id: &SessionId) -> Option<Arc<Live>> {
        self.lives.lock().get(id).cloned()
    }
}

/// How sessions and turns are at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Now {
    /// Sessions in memory.
    pub awake: u64,
    /// Turns that run.
    pub running: u64,
    /// Turns that run and wait for an answer.
    pub waiting: u64,
    /// Turns that are paused.
    pub paused: u64,
    /// Turns that wait for their beginning.
    pub queued: u64,
}

/// All sessions.
pub struct Manager {
    pub(super) shelf: Arc<Shelf>,
}

impl Manager {
    /// A manager over a store. Nothing is read yet.
    pub fn new(store: Arc<dyn Store>, bench: Arc<dyn Workbench>, terms: Terms) -> Self {
        let idle = Duration::from_millis(terms.limits.read().session_idle_ms);
        Self::with_idle(store, bench, (terms, idle))
    }

    /// The same, with the rest after which a session leaves memory.
    pub fn with_idle(store: Arc<dyn Store>, bench: Arc<dyn Workbench>, (terms, idle): (Terms, Duration)) -> Self {
        let herald = Herald::new(bench.hooks());
        let shelf = Shelf {
            ledger: Ledger::new(store.cluster()),
            cluster: store.cluster(),
            tenure: Tenure::default(),
            store,
            bench,
            herald,
            terms: Arc::new(terms),
            idle,
            closing: AtomicBool::new(false),
            lives: Mutex::default(),
            attendance: Attendance::default(),
            tails: Arc::new(Tails::new(limit::TAILS_BYTES_MAX)),
            scopes: Scopes::default(),
            estate: Arc::default(),
            departures: AtomicU64::new(0),
            waiting_bytes: Arc::default(),
            trees: tokio::sync::Mutex::default(),
            lanes: Arc::new(Lanes::new(limit::SUBAGENTS_OF_SERVER_MAX)),
            locks: Locks::default(),
            running: watch::Sender::new(0),
        };
        Self { shelf: Arc::new(shelf) }
    }

    /// Writes a new session down. Nothing is woken.
    ///
    /// # Errors
    /// `CONFLICT` when the id is taken, or what the store says.
    pub async fn create(&self, row: SessionRow, receipt: Option<&Receipt>) -> Result<SessionView, ApiError> {
        if self.shelf.closing.load(Ordering::Acquire) {
            return Err(stopping());
        }
        let view = actor::view_of(&row, 1);
        let created = EventBody::SessionCreated { session_id: row.id.clone(), beginning: beginning_of(&row) };
        let event = event_of(&row.id, 1, None, &created);
        let append = Write::Append(row.id.clone(), Arc::new(vec![event]));
        let mut writes = vec![Write::CreateSession(Box::new(row)), append];
        if let Some(receipt) = receipt {
            writes.extend(receipt.take(&view, view.version)?);
        }
        commit(&self.shelf.store, writes).await.map_err(|e| store_failure(&e))?;
        Ok(view)
    }

    /// What would happen to a call in a session with this row, and why. Nobody is asked.
    pub fn explain(
        &self,
        row: &SessionRow,
        definition: &ToolDefinition,
        (subject, place): (&Subject, Option<&Path>),
    ) -> PermissionExplanation {
        let facts = Facts::new(&definition.name, Some(definition), Some(&row.settings.working_directory)).at(place);
        Policy::new(&self.shelf.terms, row).explain(facts, subject, row.settings.permission_mode)
    }

    /// What tools remember of a session that is awake.
    pub fn scope(&self, id: &SessionId) -> Option<Arc<Scope>> {
        self.shelf.scopes.of(id)
    }

    /// A client's session, woken where it sleeps.
    ///
    /// # Errors
    /// `NOT_FOUND`, another client's included; or what the store says.
    pub async fn live(&self, client: Option<&ClientId>, id: &SessionId) -> Result<Arc<Live>, ApiError> {
        let none = || ApiError::not_found(format!("session {id}"));
        loop {
            if let Some(live) = self.shelf.find(id) {
                return if live.client.as_ref() == client { Ok(live) } else { Err(none()) };
            }
            let departures = self.shelf.departures.load(Ordering::Acquire);
            self.hold(id).await?;
            let row = self.shelf.store.session(id).await.map_err(|e| store_failure(&e))?.ok_or_else(none)?;
            if row.client.as_ref() != client {
                return Err(none());
            }
            let last_seq = self.shelf.store.last_seq(id).await.map_err(|e| store_failure(&e))?;
            let agenda = self.agenda_of(&row).await.map_err(|e| store_failure(&e))?;
            if let Some(live) = self.wake((row, last_seq), agenda, departures) {
                return Ok(live);
            }
        }
    }

    /// A turn's record, without waking its session.
    ///
    /// # Errors
    /// `NOT_FOUND`, another client's included; or what the store says.
    pub async fn turn(&self, client: Option<&ClientId>, id: &SessionId, turn: &TurnId) -> Result<TurnRecord, ApiError> {
        if let Some(live) = self.shelf.find(id).filter(|live| live.client.as_ref() == client) {
            return live.turn(turn).await;
        }
        self.view(client, id).await?;
        let row = self.shelf.store.turn(id, turn).await.map_err(|e| store_failure(&e))?;
        row.map(|row| row.record).ok_or_else(|| ApiError::not_found(format!("turn {turn} in session {id}")))
    }

    /// A client's session as it is, without waking it.
    ///
    /// # Errors
    /// `NOT_FOUND`, another client's included; or what the store says.
    pub async fn view(&self, client: Option<&ClientId>, id: &SessionId) -> Result<SessionView, ApiError> {
        if let Some(live) = self.shelf.find(id).filter(|live| live.client.as_ref() == client) {
            // Whoever has seen an event finds it in here.
            self.until_all_known(&live).await?;
            return live.view().await;
        }
        let none = || ApiError::not_found(format!("session {id}"));
        let row = self.shelf.store.session(id).await.map_err(|e| store_failure(&e))?;
        let row = row.filter(|row| row.client.as_ref() == client).ok_or_else(none)?;
        self.view_of_row(row).await
    }

    /// A session's row as it is now; what runs in it is added.
    ///
    /// # Errors
    /// What the store says.
    pub async fn view_of_row(&self, row: SessionRow) -> Result<SessionView, ApiError> {
        if let Some(live) = self.shelf.find(&row.id)
            && let Ok(view) = live.view().await
        {
            return Ok(view);
        }
        let last_seq = self.shelf.store.last_seq(&row.id).await.map_err(|e| store_failure(&e))?;
        let view = actor::view_of(&row, last_seq);
        // Where one server has them all, nothing is open in what it does not have in memory.
        if self.shelf.cluster.is_none() || row.status != SessionStatus::Active {
            return Ok(view);
        }
        self.view_elsewhere(view).await.map_err(|e| store_failure(&e))
    }

    /// What waits for a session that sleeps: one that another one has just made has its first turn.
    async fn agenda_of(&self, row: &SessionRow) -> Result<Agenda, StoreError> {
        if row.status != SessionStatus::Active {
            return Ok(Agenda::default());
        }
        let turns = self.shelf.store.turns(&row.id, None, limit::PAGE_ITEMS_MAX).await?;
        let waits = |turn: &TurnRow| turn.record.status == TurnStatus::Queued;
        let queue = turns.into_iter().rev().filter(waits).collect();
        Ok(Agenda { queue, ..Agenda::default() })
    }

    /// Gives a session an actor. None: something has changed since its row was read.
    pub(super) fn wake(
        &self,
        (row, last_seq): (SessionRow, u64),
        agenda: Agenda,
        departures: u64,
    ) -> Option<Arc<Live>> {
        let mut lives = self.shelf.lives.lock();
        if let Some(live) = lives.get(&row.id) {
            return Some(Arc::clone(live));
        }
        let root = row.lineage.as_ref().and_then(|lineage| lineage.root()).unwrap_or(&row.id).clone();
        if self.shelf.departures.load(Ordering::Acquire) != departures || !self.shelf.tenure.may_wake(&root) {
            return None;
        }
        let (mail, orders) = mpsc::channel(actor::MAIL_MAX);
        let here = self.shelf.attendance.of(row.client.as_ref());
        let whose = ([row.id.clone(), root], row.client.clone(), here);
        let live = Arc::new(Live::new(whose, Arc::clone(&self.shelf.store), (last_seq, &self.shelf.tails), mail));
        lives.insert(row.id.clone(), Arc::clone(&live));
        drop(lives);
        let actor = Actor::new(Arc::clone(&live), orders, Arc::clone(&self.shelf), (row, agenda));
        tokio::spawn(actor.run());
        Some(live)
    }

    /// Refuses new work, lets turns finish for `grace`, aborts the rest, and ends all readers and all that tools have
    /// left behind. Idempotent.
    ///
    /// # Errors
    /// `INTERNAL` when the end of a turn could not be stored. The next start writes it.
    pub async fn shutdown(&self, grace: Duration) -> Result<(), ApiError> {
        self.shelf.closing.store(true, Ordering::Release);
        let mut running = self.shelf.running.subscribe();
        let finish = tokio::time::timeout(grace, running.wait_for(|running| *running == 0));
        let in_time = tokio::select! {
            finished = finish => finished.is_ok(),
            () = self.give_away() => false,
        };
        self.give_away_rest().await;
        let lives: Vec<_> = self.shelf.lives.lock().values().cloned().collect();
        if !in_time {
            for live in &lives {
                let _ = live.mail.send(Order::Stop("the server was stopped".into())).await;
            }
            // A turn that does not stop is cut off by its actor in this time.
            let cut = Duration::from_millis(limit::TURN_STOP_GRACE_MS + 1_000);
            let _ = tokio::time::timeout(cut, running.wait_for(|running| *running == 0)).await;
        }
        let mut unsaved = Vec::new();
        for live in lives {
            // The last events are on their way to the readers.
            let flushed = live.journal.flush().await;
            // What nothing runs in has answered for all that it could not write.
            let cut_short = flushed.is_err() && matches!(live.doing().0, Doing::Runs | Doing::Waits);
            if cut_short || live.owes.load(Ordering::Acquire) {
                unsaved.push(live.id.to_string());
            }
            live.over.cancel();
            live.started.end(&self.shelf.herald, EndReason::Shutdown);
        }
        self.shelf.herald.finish(Duration::from_millis(limit::HOOK_END_WAIT_MS)).await;
        self.shelf.scopes.end_all().await;
        self.shelf.estate.end().await;
        if unsaved.is_empty() {
            return Ok(());
        }
        let message = format!("the end of a turn could not be stored, session {}", unsaved.join(", session "));
        Err(ApiError::internal(message))
    }

    /// Sessions in memory.
    pub fn live_count(&self) -> usize {
        self.shelf.lives.lock().len()
    }

    /// Takes other limits and rules. They count from the next time that somebody looks at them.
    pub fn adopt(&self, limits: &Limits, permissions: &PermissionConfig) {
        let mut now = self.shelf.terms.limits.write();
        // It was held against the files that this process may open.
        let turns_max = now.turns_max;
        *now = Limits { turns_max, ..limits.clone() };
        drop(now);
        self.shelf.terms.rules.set(permissions);
    }

    /// How sessions and turns are now.
    pub fn now(&self) -> Now {
        let lives: Vec<_> = self.shelf.lives.lock().values().cloned().collect();
        let mut now = Now { awake: lives.len() as u64, ..Now::default() };
        for live in lives {
            let (doing, queued) = live.doing();
            now.queued += queued as u64;
            match doing {
                Doing::Nothing => {}
                Doing::Runs => now.running += 1,
                Doing::Waits => now.waiting += 1,
                Doing::Rests => now.paused += 1,
            }
        }
        now
    }

    /// What is bounded here, and how full it is. Of what each session has, the fullest one's.
    pub fn limits(&self) -> Vec<LimitView> {
        let limits = self.shelf.terms.limits.read().clone();
        let lives: Vec<_> = self.shelf.lives.lock().values().cloned().collect();
        let scopes = &self.shelf.scopes;
        let [resting, busy] = scopes.resting();
        let most = |of: &dyn Fn(&Live) -> usize| lives.iter().map(|live| of(live)).max().unwrap_or(0);
        vec![
            LimitView::new("sessionsInMemory", lives.len(), limits.sessions_max),
            LimitView::new("turnsRunning", *self.shelf.running.borrow(), limits.turns_max),
            LimitView::new("subagentsRunning", self.shelf.lanes.counts().0, limit::SUBAGENTS_OF_SERVER_MAX),
            LimitView::new("lockedPathsOfATree", self.shelf.locks.most(), limit::LOCKS_MAX),
            LimitView::new("restingScopes", resting, limit::RESTING_SCOPES_MAX),
            LimitView::new("restingScopesWithPrograms", busy, limit::RESTING_PROGRAM_SCOPES_MAX),
            LimitView::new("fileMarksOfASession", scopes.most(|scope| scope.files.count()), limit::FILE_MARKS_MAX),
            LimitView::new("consolesOfASession", scopes.most(|scope| scope.consoles.len()), limit::CONSOLES_MAX),
            LimitView::new("streamsOfASession", most(&Live::streams), limits.streams_per_session_max),
            LimitView::new("ordersOfASession", most(&Live::orders), actor::MAIL_MAX),
            LimitView::new("queuedTurnsOfASession", most(&|live| live.doing().1), limits.queued_prompts_max),
            LimitView::new("queuedBytesOfASession", most(&Live::weight), limits.queued_bytes_max),
            LimitView::new(
                "queuedMemoryBytes",
                self.shelf.waiting_bytes.load(Ordering::Acquire),
                limit::QUEUED_MEMORY_BYTES_MAX,
            ),
            // Each call that runs beside others may wait for a yes, and the turn's tools and hooks ask as well.
            LimitView::new(
                "questionsOfASession",
                most(&Live::asked),
                limit::OPEN_REQUESTS_MAX + limit::CONCURRENT_CALLS_MAX,
            ),
            LimitView::new(
                "unwrittenBytesOfASession",
                most(&|live| live.journal.backlog_bytes()),
                limit::BACKLOG_BYTES_MAX,
            ),
            LimitView::new("tailBytesOfASession", most(&|live| live.topic.tail_bytes()), limit::TAIL_BYTES_MAX),
            LimitView::new(
                "tailBytesOfAllSessions",
                self.shelf.tails.bytes(),
                limit::TAILS_BYTES_MAX + lives.len() * limit::TAIL_BYTES_MIN,
            ),
        ]
    }
}

pub(super) fn event_of(session: &SessionId, seq: u64, turn: Option<&TurnId>, body: &EventBody) -> Event {
    let (kind, payload) = body.encode();
    Event { seq, kind: kind.into(), payload, session_id: session.clone(), turn_id: turn.cloned(), at: clock::now_ms() }
}

#[cfg(test)]
pub(super) mod tests {
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::agent::{Ended, Progress, TurnInput, TurnOutcome};
    use crate::base::BoxFuture;
    use crate::hook::NoHooks;
    use crate::model::Models;
    use crate::model::{Model, ModelRequest, ModelStream};
    use crate::protocol::{
        ErrorBody, PermissionMode, PermissionPolicy, PromptContent, PromptMode, Reasoning, TurnStop, Usage,
    };
    use crate::session::{Equipment, GrantBook, NewPrompt, ServerRules};
    use crate::store::{MemoryStore, SessionSettings};

    struct NoModel;

    impl Model for NoModel {
        fn id(&self) -> &str {
            "test/none"
        }
        fn stream(&self, _: ModelRequest, _: CancellationToken) -> ModelStream {
            Box::pin(futures_util::stream::empty())
        }
    }

    /// Answers with the number of messages it was given; breaks off when asked to, takes its time, or never ends.
    struct Bench;

    impl Workbench for Bench {
        fn equip<'a>(
            &'a self,
            _: &'a SessionId,
            _: &'a SessionSettings,
        ) -> BoxFuture<'a, Result<Equipment, ErrorBody>> {
            let (model, registry, hooks) = (Arc::new(NoModel), Arc::default(), Arc::new(NoHooks));
            Box::pin(std::future::ready(Ok(Equipment {
                agent: None,
                mode: Default::default(),
                model,
                fallbacks: Vec::new(),
                system: String::new(),
                registry,
                hooks,
                models: Models::default(),
                agent_servers: Arc::default(),
                guide: None,
                notices: Vec::new(),
            })))
        }

        fn run(&self, mut input: TurnInput, _: CancellationToken) -> BoxFuture<'static, TurnOutcome> {
            Box::pin(async move {
                input.sink.emit(EventBody::LoopStart {}).expect("taken");
                input.sink.emit(EventBody::StreamStart {}).expect("taken");
                input.sink.emit(EventBody::StreamDelta { text: "so far".into() }).expect("taken");
                let words = format!("{:?}", input.messages.last());
                assert!(!words.contains("break"), "as it was asked");
                if words.contains("hang") {
                    // Deaf to its token.
                    std::future::pending::<()>().await;
                }
                if words.contains("slow") {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                let final_text = input.messages.len().to_string();
                input.sink.emit(EventBody::StreamComplete { text: final_text.clone(), original: None }).expect("taken");
                input.messages.push(crate::protocol::Message::assistant(final_text.clone(), vec![]));
                let (ended, messages) = (Ended::Completed, input.messages);
                let (progress, agent, stop, title) = (Progress::default(), None, None, None);
                TurnOutcome { ended, final_text, output: None, messages, agent, progress, stop, title }
            })
        }
    }

    pub(in crate::session) fn manager(store: Arc<dyn Store>, idle: Duration) -> Manager {
        let permissions = PermissionConfig { default_policy: PermissionPolicy::Deny, rules: Vec::new() };
        let terms = Terms {
            limits: Limits::default().into(),
            rules: Arc::new(ServerRules::new(&permissions, Arc::default())),
            asker: None,
            saved: Arc::new(GrantBook::empty(Arc::clone(&store))),
            roots: Vec::new(),
            meters: Arc::default(),
            session_count: Arc::default(),
            tracer: Default::default(),
        };
        Manager::with_idle(store, Arc::new(Bench), (terms, idle))
    }

    pub(in crate::session) async fn created(manager: &Manager) -> SessionId {
        let settings = SessionSettings {
            working_directory: "/".into(),
            additional_directories: Vec::new(),
            agent: None,
            interaction_mode: None,
            model: "test/none".into(),
            title: None,
            instructions: None,
            tools: None,
            without_tools: Vec::new(),
            reasoning: Reasoning::default(),
            agent_options: Default::default(),
            model_fallbacks: None,
            budget: None,
            permissions: None,
            permission_mode: PermissionMode::default(),
            grants: Vec::new(),
        };
        let row = SessionRow {
            id: SessionId::generate(),
            client: None,
            status: SessionStatus::Created,
            version: 0,
            created_at: 1,
            updated_at: 1,
            message_count: 0,
            spent: Default::default(),
            usage: Usage::default(),
            settings,
            lineage: None,
            children: Vec::new(),
            shared: Default::default(),
        };
        manager.create(row, None).await.expect("created").session_id
    }

    pub(in crate::session) fn prompt(text: &str) -> NewPrompt {
        NewPrompt {
            content: PromptContent::Text(text.into()),
            mode: PromptMode::Queue,
            configure: None,
            only: None,
            task: None,
            if_version: None,
            receipt: None,
        }
    }

    async fn turn(manager: &Manager, id: &SessionId, text: &str) -> crate::protocol::TurnRecord {
        let live = manager.live(None, id).await.expect("there");
        let accepted = live.prompt(prompt(text)).await.expect("accepted");
        if text == "hang" {
            live.abort(super::super::Command { turn: None, reason: "stop".into(), if_version: None })
                .await
                .expect("runs");
        }
        live.wait(&accepted.turn_id).await.expect("ends")
    }

    async fn kinds(store: &Arc<dyn Store>, id: &SessionId) -> Vec<String> {
        store.events(id, 0, 1000).await.expect("read").into_iter().map(|event| event.kind.into_owned()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_session_leaves_memory_and_comes_back_whole() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let manager = manager(store, Duration::from_secs(30));
        let id = created(&manager).await;
        assert_eq!(manager.live_count(), 0, "creating wakes nothing");
        assert_eq!(turn(&manager, &id, "a").await.result.as_deref(), Some("1"));
        let live = manager.live(None, &id).await.expect("there");
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert_eq!(manager.live_count(), 1, "somebody holds it");
        drop(live);
        tokio::time::sleep(Duration::from_secs(31)).await;
        assert_eq!(manager.live_count(), 0);
        assert_eq!(turn(&manager, &id, "b").await.result.as_deref(), Some("3"), "the log has the conversation");
        assert_eq!(turn(&manager, &id, "c").await.result.as_deref(), Some("5"), "memory has the same");
    }

    #[tokio::test]
    async fn a_turn_that_breaks_off_is_closed_and_the_session_goes_on() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let manager = manager(Arc::clone(&store), Duration::from_secs(30));
        let id = created(&manager).await;
        let record = turn(&manager, &id, "break").await;
        assert_eq!((record.status, record.error.map(|e| e.code)), (TurnStatus::Failed, Some(ErrorCode::Internal)));
        let want = ["stream.delta", "stream.complete", "loop.complete", "session.error"];
        assert_eq!(kinds(&store, &id).await[4..], want);
        assert_eq!(turn(&manager, &id, "a").await.status, TurnStatus::Completed);
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_is_deaf_is_cut_off() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let manager = manager(Arc::clone(&store), Duration::from_secs(30));
        let id = created(&manager).await;
        let began = tokio::time::Instant::now();
        let record = turn(&manager, &id, "hang").await;
        assert_eq!((record.status, record.reason.as_deref()), (TurnStatus::Aborted, Some("stop")));
        assert_eq!(began.elapsed().as_millis() / 1000, u128::from(limit::TURN_STOP_GRACE_MS) / 1000);
        assert_eq!(kinds(&store, &id).await.last().map(String::as_str), Some("abort"));
        assert_eq!(turn(&manager, &id, "a").await.status, TurnStatus::Completed);
    }

    #[tokio::test(start_paused = true)]
    async fn an_abort_that_was_acknowledged_outlives_the_process() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let before = manager(Arc::clone(&store), Duration::from_secs(30));
        for aborts in [true, false] {
            let id = created(&before).await;
            let live = before.live(None, &id).await.expect("there");
            let turn_id = live.prompt(prompt("hang")).await.expect("accepted").turn_id;
            if aborts {
                for reason in ["first", "second"] {
                    let command = super::super::Command { turn: None, reason: reason.into(), if_version: None };
                    live.abort(command).await.expect("runs");
                }
            }
            let version = live.view().await.expect("there").version;
            // The process ends here: nobody has stopped the turn, and the store is all that is left.
            let after = manager(Arc::clone(&store), Duration::from_secs(30));
            after.recover().await.expect("read");
            let record = after.turn(None, &id, &turn_id).await.expect("there");
            let error = record.error.map(|error| error.message);
            let want = if aborts {
                (TurnStatus::Aborted, Some(TurnStop::Aborted), Some("first".to_owned()), None)
            } else {
                (TurnStatus::Failed, Some(TurnStop::Error), None, Some("interrupted by restart".to_owned()))
            };
            assert_eq!((record.status, record.stop_reason, record.reason, error), want);
            let last = kinds(&store, &id).await.pop();
            assert_eq!(last.as_deref(), Some(if aborts { "abort" } else { "session.error" }));
            assert_eq!(after.view(None, &id).await.expect("there").version, version);
            assert!(store.turn(&id, &turn_id).await.expect("read").expect("there").aborted.is_none());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_for_a_turn_that_never_reads_it_becomes_a_turn() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let before = manager(Arc::clone(&store), Duration::from_secs(30));
        for restarts in [false, true] {
            let id = created(&before).await;
            let live = before.live(None, &id).await.expect("there");
            let prompt = |text: &str, mode| NewPrompt { mode, ..prompt(text) };
            let stuck = live.prompt(prompt("hang", PromptMode::Queue)).await.expect("accepted").turn_id;
            let queued = live.prompt(prompt("queued", PromptMode::Queue)).await.expect("accepted").turn_id;
            let steered = live.prompt(prompt("steered", PromptMode::Steer)).await.expect("accepted");
            assert_eq!((&steered.turn_id, steered.version), (&stuck, 3));
            let after = manager(Arc::clone(&store), Duration::from_secs(30));
            let live = if restarts {
                after.recover().await.expect("read");
                after.live(None, &id).await.expect("there")
            } else {
                live.abort(super::super::Command { turn: None, reason: "stop".into(), if_version: None })
                    .await
                    .expect("runs");
                live
            };
            live.wait(&queued).await.expect("ends");
            let log = store.events(&id, 0, 1000).await.expect("read");
            let prompts: Vec<String> = log
                .iter()
                .filter(|event| event.kind == "session.prompt")
                .filter_map(|event| serde_json::from_str::<serde_json::Value>(event.payload.get()).ok())
                .map(|payload| payload["prompt"].to_string())
                .collect();
            assert_eq!(prompts, [r#""hang""#, r#""steered""#, r#""queued""#], "restarts: {restarts}");
            let stuck = store.turn(&id, &stuck).await.expect("read").expect("there");
            assert!(stuck.steers.is_empty() && stuck.record.status.is_terminal(), "{stuck:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_tools_knew_outlives_the_rest_of_a_session() {
        let manager = manager(Arc::new(MemoryStore::new()), Duration::from_secs(1));
        let id = created(&manager).await;
        let scope = Arc::new(Scope::default());
        *scope.shell_directory.lock() = Some("/somewhere".into());
        manager.shelf.scopes.keep(&id, &scope);
        for round in 0..2 {
            drop(manager.live(None, &id).await.expect("there"));
            while manager.shelf.find(&id).is_some() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            let found = manager.shelf.scopes.take(&id);
            assert!(Arc::ptr_eq(&found, &scope), "round {round}");
            manager.shelf.scopes.keep(&id, &found);
        }
    }
}
