//! The beginning of turns.
//!
//! A turn begins in a commit, and its task starts when that is durable. Of a turn that waits while another one runs, it is
//! the commit of the other one's end: between two turns the disk is waited for once.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::turns::pause;
use super::{Accepted, Actor, Running, Waiting as Waiters, Work};
use crate::agent::Progress;
use crate::base::clock;
use crate::model::ERRANDS_MODEL_ID;
use crate::protocol::{Configure, Configured, EventBody, Part, PromptContent, SessionStatus, TurnId};
use crate::session::gate::SessionGate;
use crate::session::helm::Helm;
use crate::session::journal::Entry;
use crate::session::runner::{self, Job};
use crate::session::settings::configure;
use crate::session::sink::TurnSink;
use crate::session::traced::TurnTrace;
use crate::session::turn::{Input, Phase};
use crate::store::{Came, Said, SessionRow, StoreError, TurnRow, Waiting, Write};

/// A turn that begins, as it is to be written down.
pub(super) struct Beginning {
    turn: TurnRow,
    /// The session's row from then on.
    row: SessionRow,
    content: PromptContent,
    /// Where it came from, where it has waited.
    came: Option<Came>,
    /// Under which number it was kept, where it was.
    kept: Option<u64>,
    phase: Phase,
    /// Its events, and how many of them come before its first one.
    events: Vec<(Option<TurnId>, EventBody)>,
    before: u64,
}

impl Beginning {
    /// How a turn begins to which that was said, in a session with that row.
    fn of((mut turn, said): (TurnRow, Said), session: &SessionRow, version_step: u64) -> Self {
        let kept = turn.prompt.take().and_then(|prompt| prompt.place());
        let came = turn.came.take();
        let Said { content, configure } = said;
        let mut row = session.clone();
        row.version += version_step;
        row.updated_at = clock::now_ms();
        row.status = SessionStatus::Active;
        let mut events: Vec<_> = configured(&mut row, configure.or(turn.configure.take())).into_iter().collect();
        let before = events.len() as u64;
        let phase = Phase::Queued.after(Input::Start).unwrap_or(Phase::Running);
        turn.record.status = phase.status(false);
        turn.record.started_at = Some(row.updated_at);
        events.push((Some(turn.record.turn_id.clone()), prompt_event(&row, (&content, &turn), version_step > 0)));
        Self { turn, row, content, came, kept, phase, events, before }
    }

    /// The session's row from then on.
    pub(super) fn row(&self) -> &SessionRow {
        &self.row
    }

    /// The events, of which the first has number `next_seq`, and the turn's rows.
    pub(super) fn written_at(&mut self, next_seq: u64) -> (Vec<(Option<TurnId>, EventBody)>, Vec<Write>) {
        self.turn.record.first_seq = Some(next_seq + self.before);
        let mut writes = vec![Write::SaveTurn(Box::new(self.turn.clone()))];
        writes.extend(self.kept.map(|at| Write::Said(self.row.id.clone(), at, None)));
        (std::mem::take(&mut self.events), writes)
    }
}

impl Actor {
    /// Begins a turn: what says so is durable before its task starts.
    pub(super) async fn begin(
        &mut self,
        turn: TurnRow,
        (version_step, rows): (u64, Vec<Write>),
    ) -> Result<Accepted, StoreError> {
        let said = self.said_to(&turn).await?;
        let mut beginning = Beginning::of((turn, said), &self.row, version_step);
        let entry = |next_seq: u64| {
            let row = Write::UpdateSession(Box::new(beginning.row.clone()));
            let (events, turn) = beginning.written_at(next_seq);
            Entry { events, writes: turn.into_iter().chain([row]).chain(rows).collect() }
        };
        // Nothing runs, so what failed before is no longer anybody's.
        self.live.journal.reopen();
        self.live.journal.record(entry).await?;
        Ok(self.begun(beginning))
    }

    /// The beginning of a turn is written down: it runs.
    fn begun(&mut self, beginning: Beginning) -> Accepted {
        let Beginning { turn, row, content, came, phase, .. } = beginning;
        self.row = row;
        self.terms.meters.turns.started.count();
        let turn_id = turn.record.turn_id.clone();
        let prompted = Accepted { turn_id, status: turn.record.status, version: self.row.version };
        let running = Running {
            sink: TurnSink::new(Arc::clone(&self.live.journal), prompted.turn_id.clone(), turn.record.task.as_ref()),
            row: turn,
            phase,
            carries: false,
            reason: None,
            helm: Arc::new(Helm::with(&self.live, Vec::new())),
            work: None,
            progress: None,
            waiting: Waiters::default(),
        };
        let origin = came.map_or_else(|| std::mem::take(&mut self.origin), Into::into);
        let model = running.row.only.as_ref().and_then(|only| only.model.as_ref()).unwrap_or(&self.row.settings.model);
        let about = (&self.row.id, &prompted.turn_id, model.as_str());
        running.sink.trace(TurnTrace::new(&self.terms.tracer, origin, about));
        self.set_to_work(running, content.into_parts(), Progress::default());
        prompted
    }

    /// Starts the task of a turn that begins with a prompt, or goes on.
    pub(super) fn set_to_work(&mut self, mut running: Running, prompt: Vec<Part>, progress: Progress) {
        self.move_in();
        let mut settings = self.row.settings.clone();
        if let Some(only) = &running.row.only {
            configure(&mut settings, &only.as_changes());
        }
        running.carries = settings.model == ERRANDS_MODEL_ID;
        let (turn, cancel) = (running.row.record.turn_id.clone(), CancellationToken::new());
        let gate = SessionGate {
            live: Arc::clone(&self.live),
            terms: Arc::clone(&self.terms),
            policy: Arc::clone(&self.policy),
            turn: turn.clone(),
            directory: self.row.settings.working_directory.clone(),
            mode: self.row.settings.permission_mode,
            ceilings: Vec::new(),
            root: None,
            agents: Vec::new(),
        };
        let task = runner::start(Job {
            live: Arc::clone(&self.live),
            shelf: Arc::clone(&self.shelf),
            row: self.row.lineage.is_some().then(|| Box::new(self.row.clone())),
            lineage: None,
            works_for: Vec::new(),
            bench: Arc::clone(&self.bench),
            terms: Arc::clone(&self.terms),
            turn,
            settings,
            prompt,
            task: running.row.record.task.clone(),
            output_schema: running.row.only.as_ref().and_then(|only| only.output_schema.clone()).map(Arc::new),
            progress,
            conversation: self.conversation.take(),
            gate,
            budgets: vec![(self.row.id.clone(), self.row.settings.budget.unwrap_or_default())],
            sink: Arc::clone(&running.sink),
            helm: Arc::clone(&running.helm),
            scope: Arc::clone(&self.scope),
            cancel: cancel.clone(),
        });
        running.work = Some(Work { cancel, task, _counted: self.shelf.count() });
        self.running = Some(running);
    }

    /// The turn that is to begin in the commit in which the running one ends: it would anyway, as the first of those that
    /// wait. `session`: the row with that end.
    pub(super) async fn beginning_behind(&self, late: Option<&TurnRow>, session: &SessionRow) -> Option<Beginning> {
        if self.begins_no_more() {
            return None;
        }
        let turn = late.or_else(|| self.queue.front())?.clone();
        // One that cannot be read begins later, by itself.
        let said = self.said_to(&turn).await.ok()?;
        Some(Beginning::of((turn, said), session, 0))
    }

    /// What was said to a turn that is to begin.
    async fn said_to(&self, turn: &TurnRow) -> Result<Said, StoreError> {
        let nothing = || Waiting::Here(PromptContent::Text(String::new()));
        self.live.said(turn.prompt.clone().unwrap_or_else(nothing)).await
    }

    /// Begins the next turn that waits, if nothing runs.
    pub(super) async fn next_turn(&mut self) {
        self.begin_at = None;
        if let Some(beginning) = self.next.take() {
            self.queue.pop_front();
            self.begun(beginning);
            return;
        }
        if self.begins_no_more() || self.running.is_some() || self.owed.is_some() {
            return;
        }
        let Some(turn) = self.queue.front().cloned() else { return };
        if !self.has_room() {
            // It is told when there is some.
            return;
        }
        // Until the turn is counted by itself. An end of the server that does not wait for it is seen behind this.
        let _counted = self.shelf.count();
        if self.begins_no_more() {
            return;
        }
        match self.begin(turn, (0, Vec::new())).await {
            Ok(_) => drop(self.queue.pop_front()),
            Err(error) => {
                tracing::error!(session = %self.row.id, %error, "a queued turn could not be begun; it is tried again");
                self.begin_at = Some(pause());
            }
        }
    }
}

/// The first event of a turn.
fn prompt_event(row: &SessionRow, (content, of): (&PromptContent, &TurnRow), is_change: bool) -> EventBody {
    let parts = match content {
        PromptContent::Text(_) => None,
        PromptContent::Parts(parts) => Some(parts.clone()),
    };
    let version = is_change.then_some(row.version);
    let (turn, task) = (of.only.clone().map(Box::new), of.record.task.clone());
    EventBody::SessionPrompt { session_id: row.id.clone(), prompt: content.text(), parts, turn, task, version }
}

/// Changes the settings with a prompt; the event says so to all who read.
pub(super) fn configured(row: &mut SessionRow, changes: Option<Configure>) -> Option<(Option<TurnId>, EventBody)> {
    let changes = changes.filter(|changes| *changes != Configure::default())?;
    configure(&mut row.settings, &changes);
    Some((None, EventBody::SessionConfigured(Configured { changes, version: Some(row.version) })))
}
