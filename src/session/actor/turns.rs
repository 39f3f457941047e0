//! Prompts, and the end of turns.
//!
//! A turn's end is one commit: its terminal event, its row and the session's row, the prompts that
//! were meant for it and came too late, and the beginning of the turn that is next. When the log failed in the middle of a turn, what is in it is
//! read back and closed first, so that the log is whole again before anything else goes into it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::begins::configured;
use super::controls::control_event;
use super::{Accepted, Actor, NewPrompt, Owed, Running};
use crate::agent::Ended;
use crate::base::{clock, limit};
use crate::protocol::{
    ApiError, Configure, Configured, ControlKind, ErrorBody, ErrorCode, EventBody, PromptContent, PromptMode,
    SessionId, SessionStatus, Spending, TurnId, TurnRecord, TurnSettings, TurnStatus, TurnStop, TurnTask,
};
use crate::session::journal::Entry;
use crate::session::manager::{Counted, Manager};
use crate::session::metered::count_end;
use crate::session::repair::Remains;
use crate::session::runner::Finished;
use crate::session::settings::configure;
use crate::session::tally::Tally;
use crate::session::turn::{Input, Phase, Place, place};
use crate::session::views::status_after;
use crate::session::{stopping, store_failure};
use crate::store::{Apart, Came, SessionRow, Steers, StoreError, TurnRow, Waiting, Write};

impl Actor {
    /// Accepts a prompt, or says why not.
    pub(super) async fn prompt(&mut self, prompt: NewPrompt) -> Result<Accepted, ApiError> {
        if self.deleting.is_some() {
            return Err(ApiError::not_found(format!("session {}", self.row.id)));
        }
        // Who shares the store hands it over with what waits in it.
        if self.is_closing() && self.shelf.cluster.is_none() {
            return Err(stopping());
        }
        self.check_version(prompt.if_version)?;
        Manager { shelf: Arc::clone(&self.shelf) }.afford(&self.row).await?;
        let version = self.row.version;
        self.settle_owed().await.map_err(|e| store_failure(&e))?;
        let mode = match (&self.running, prompt.mode) {
            // Nobody is there who would hear it.
            (Some(running), PromptMode::Steer) if running.carries || running.row.record.task.is_some() => {
                PromptMode::Queue
            }
            (_, mode) => mode,
        };
        match place(self.running.as_ref().map(|running| running.phase), self.queue.len(), mode) {
            Place::Begin if !self.has_room() => self.enqueue(prompt).await,
            Place::Begin => {
                // Until the turn is counted by itself. An end of the server that does not wait for it is seen behind this.
                let admitted = self.admit()?;
                if self.is_closing() {
                    drop(admitted);
                    return self.leave_to_others(prompt).await;
                }
                let turn_id = TurnId::generate();
                let accepted = Accepted { turn_id, status: TurnStatus::Running, version: version + 1 };
                let rows = prompt.receipt_rows(&accepted)?;
                let mut row = self.new_turn(prompt.content, (prompt.configure, prompt.only), prompt.task);
                row.record.turn_id = accepted.turn_id;
                self.begin(row, (1, rows)).await.map_err(|e| store_failure(&e))
            }
            Place::Steer => self.steer(prompt).await,
            Place::Queue => self.enqueue(prompt).await,
            Place::Busy => Err(self.is_not_free("busy")),
            Place::Paused => Err(self.is_not_free("paused")),
        }
    }

    /// Counts a turn that is about to run; refuses it where so many run already.
    pub(super) fn admit(&self) -> Result<Counted, ApiError> {
        let turns_max = self.terms.limits.read().turns_max;
        self.shelf.admit(turns_max).ok_or_else(|| {
            let message = format!("{turns_max} turns run at once already; wait, or end some");
            ApiError::new(ErrorCode::ResourceExhausted, message)
        })
    }

    /// The refusal of a prompt that the session has no place for.
    fn is_not_free(&self, word: &str) -> ApiError {
        let session = &self.row.id;
        match &self.running {
            None => {
                let error = ApiError::conflict(format!("session {session} is {word}: other prompts wait"));
                error.with_details(serde_json::json!({ "why": word }))
            }
            Some(running) => {
                let record = running.record(!self.asks.is_empty());
                let facts = serde_json::json!({ "why": word, "turnId": record.turn_id, "status": record.status });
                ApiError::conflict(format!("session {session} is {word}: turn {}", record.turn_id)).with_details(facts)
            }
        }
    }

    /// The refusal of settings for a turn that has begun with others.
    fn is_under_way(&self) -> ApiError {
        let turn = self.running.as_ref().map(|running| &running.row.record.turn_id);
        let message = "a turn that runs keeps what it began with: leave `turn` out, or let the prompt queue";
        let facts = serde_json::json!({ "field": "turn", "why": "under_way", "turnId": turn });
        ApiError::conflict(message).with_details(facts)
    }

    /// Puts a message into the running turn, at its next boundary.
    async fn steer(&mut self, prompt: NewPrompt) -> Result<Accepted, ApiError> {
        if prompt.only.as_ref().is_some_and(|only| *only != TurnSettings::default()) {
            return Err(self.is_under_way());
        }
        let mut row = self.changed();
        let configured = configured(&mut row, prompt.configure.clone());
        // Without a queue there is still the turn that runs.
        let waiting_max = self.terms.limits.read().queued_prompts_max.max(1);
        let Some(running) = &mut self.running else { return Err(ApiError::internal("the turn has just ended")) };
        let mut turn = running.row.clone();
        let reached = turn.steers.forget(running.sink.tally().steers);
        if turn.steers.waiting.len() >= waiting_max {
            let message = format!("turn {} has {waiting_max} messages waiting already", turn.record.turn_id);
            return Err(ApiError::new(ErrorCode::ResourceExhausted, message));
        }
        self.make_room(&prompt)?;
        let Some(running) = &mut self.running else { return Err(ApiError::internal("the turn has just ended")) };
        let record = running.record(!self.asks.is_empty());
        let accepted = Accepted { turn_id: record.turn_id, status: record.status, version: row.version };
        let rows = prompt.receipt_rows(&accepted)?;
        let mut message = Waiting::Here(PromptContent::Parts(prompt.content.into_parts()));
        let session = self.row.id.clone();
        let entry = |next_seq: u64| {
            let mut events: Vec<_> = configured.into_iter().collect();
            events.push(control_event(&accepted.turn_id, ControlKind::Steer, Some(row.version)));
            let at = next_seq + events.len() as u64 - 1;
            let kept = message.put_apart(at).map(|said| Write::Said(session.clone(), at, Some(Arc::new(said))));
            // In the turn's row it outlives the process; the end of the turn, whatever kind, makes it a turn of its own.
            turn.steers.waiting.push(message.clone());
            let mut writes = vec![Write::SaveTurn(Box::new(turn.clone())), Write::UpdateSession(Box::new(row.clone()))];
            writes.extend(kept.into_iter().chain(reached.iter().map(|at| Write::Said(session.clone(), *at, None))));
            writes.extend(rows);
            Entry { events, writes }
        };
        let written = self.live.journal.record(entry).await;
        written.map_err(|e| store_failure(&e))?;
        self.row = row;
        running.row = turn;
        running.helm.add(message);
        Ok(accepted)
    }

    pub(super) async fn enqueue(&mut self, prompt: NewPrompt) -> Result<Accepted, ApiError> {
        let queue_max = self.terms.limits.read().queued_prompts_max;
        if self.queue.len() >= queue_max {
            let message = format!("session {} has {queue_max} prompts waiting already", self.row.id);
            return Err(ApiError::new(ErrorCode::ResourceExhausted, message));
        }
        self.make_room(&prompt)?;
        let row = SessionRow { status: SessionStatus::Active, ..self.changed() };
        let accepted = Accepted { turn_id: TurnId::generate(), status: TurnStatus::Queued, version: row.version };
        let rows = prompt.receipt_rows(&accepted)?;
        let mut turn = self.new_turn(prompt.content, (prompt.configure, prompt.only), prompt.task);
        turn.record.turn_id = accepted.turn_id.clone();
        turn.came = Came::of(&self.origin);
        let turn_id = accepted.turn_id.clone();
        let event = self.queued_event(&turn_id, self.queue.len(), Some(row.version));
        let entry = |next_seq: u64| {
            let kept = turn.put_apart(next_seq).map(|said| Write::Said(row.id.clone(), next_seq, Some(Arc::new(said))));
            let saved = [Write::SaveTurn(Box::new(turn.clone())), Write::UpdateSession(Box::new(row.clone()))];
            Entry { events: vec![event], writes: saved.into_iter().chain(kept).chain(rows).collect() }
        };
        let written = self.live.journal.record(entry).await;
        written.map_err(|e| store_failure(&e))?;
        self.row = row;
        self.queue.push_back(turn);
        Ok(accepted)
    }

    /// `turn.queued` of a turn with so many others waiting before it.
    fn queued_event(&self, turn: &TurnId, before: usize, version: Option<u64>) -> (Option<TurnId>, EventBody) {
        let position = before + usize::from(self.running.is_some());
        let position = u32::try_from(position).unwrap_or(u32::MAX);
        (Some(turn.clone()), EventBody::TurnQueued { position, version })
    }

    fn new_turn(
        &self,
        content: PromptContent,
        (configure, only): (Option<Configure>, Option<TurnSettings>),
        task: Option<TurnTask>,
    ) -> TurnRow {
        let only = only.filter(|only| *only != TurnSettings::default());
        let mut turn = TurnRow { only, ..queued_turn(&self.row.id, Waiting::Here(content), configure) };
        turn.record.task = task;
        turn
    }

    /// Takes a turn's task's last word.
    pub(super) async fn ended(&mut self, finished: Finished) {
        let is_it = |running: &Running| running.row.record.turn_id == finished.turn;
        if !self.running.as_ref().is_some_and(is_it) {
            return;
        }
        self.close_asks().await;
        let Some(mut running) = self.running.take() else { return };
        let cut = self.live.journal.reopen();
        let holds = finished.ended == Ended::Paused && cut.is_none();
        match running.phase.after(Input::Hold) {
            Ok(Phase::Running) if holds => {
                // It was to pause, and then no longer.
                self.conversation = finished.conversation;
                return self.set_to_work(running, Vec::new(), finished.progress);
            }
            Ok(Phase::Paused) if holds => {
                self.conversation = finished.conversation;
                running.phase = Phase::Paused;
                return self.hold(running, finished.progress).await;
            }
            Ok(_) | Err(_) => {}
        }
        running.sink.close();
        let (tally, spent) = (running.sink.tally(), running.sink.spent());
        running.row.record.rounds = tally.rounds;
        running.row.record.usage = tally.usage;
        let ended = cut.as_ref().map_or(finished.ended, |error| Ended::Failed(log_failed(error)));
        let rounds_max = self.terms.limits.read().max_iterations;
        running.close(&ended, (finished.final_text, finished.stop), rounds_max);
        running.row.record.output = finished.output.filter(|_| running.row.record.status == TurnStatus::Completed);
        let written = if cut.is_some() || finished.broken || holds {
            self.repair(&mut running.row, Some(spent)).await
        } else {
            self.conversation = finished.conversation;
            let titled = self.titled(finished.title);
            match self.write_end(&mut running.row, (titled, true), (&tally, spent)).await {
                Ok(()) => Ok(()),
                Err(error) => return self.fail_unwritten(running, &error).await,
            }
        };
        self.after_end(running, written).await;
    }

    /// The title that an agent gave the conversation, for a session that has none.
    fn titled(&self, title: Option<String>) -> Vec<EventBody> {
        let title = title.filter(|_| self.row.settings.title.is_none());
        let changes = title.map(|title| Configure { title: Some(title), ..Configure::default() });
        changes.map(|changes| EventBody::SessionConfigured(Configured { changes, version: None })).into_iter().collect()
    }

    /// Ends a turn of which the last events could not be written: the log is closed from what is in it.
    pub(super) async fn fail_unwritten(&mut self, mut running: Running, error: &StoreError) {
        running.sink.close();
        // Who aborted it was told so.
        running.phase = if running.row.aborted.is_some() { Phase::Aborted } else { Phase::Failed };
        running.note_end(Some(log_failed(error)));
        let spent = running.sink.spent();
        let written = self.repair(&mut running.row, Some(spent)).await;
        self.after_end(running, written).await;
    }

    /// Cuts off a turn that did not stop in its time.
    pub(super) async fn cut_off(&mut self) {
        self.close_asks().await;
        let Some(mut running) = self.running.take() else { return };
        if let Some(work) = &running.work {
            work.task.abort();
        }
        running.sink.close();
        let turn = &running.row.record.turn_id;
        tracing::warn!(session = %self.row.id, %turn, "a turn that was told to stop did not in time and was cut off");
        running.close(&Ended::Aborted, (String::new(), None), 0);
        let spent = running.sink.spent();
        let written = self.repair(&mut running.row, Some(spent)).await;
        self.after_end(running, written).await;
    }

    pub(super) async fn after_end(&mut self, mut running: Running, written: Result<(), StoreError>) {
        let mut record = running.row.record.clone();
        let running_sink = Arc::clone(&running.sink);
        match written {
            Ok(()) => self.tell(&record),
            Err(error) => record = self.owe(running.row, &error),
        }
        count_end(&self.terms.meters, &record);
        running_sink.end_trace(record.status);
        self.tell_end(&record);
        running.waiting.over(&record);
        self.last = Some((record.turn_id, record.status));
        self.next_turn().await;
        self.tell_results().await;
    }

    /// A turn's end could not be written: those who wait are told, and it is tried again.
    fn owe(&mut self, mut turn: TurnRow, error: &StoreError) -> TurnRecord {
        tracing::error!(session = %self.row.id, turn = %turn.record.turn_id, %error, "a turn's end could not be written");
        if turn.aborted.is_none() {
            turn.record.status = TurnStatus::Failed;
            turn.record.result = None;
            turn.record.reason = None;
            turn.record.stop_reason = Some(TurnStop::Error);
            turn.record.error = Some(log_failed(error));
        }
        self.conversation = None;
        self.tell(&turn.record);
        let record = turn.record.clone();
        self.owed = Some(Owed { row: turn, retry_at: pause() });
        self.live.owes.store(true, Ordering::Release);
        record
    }

    /// Writes the end that is owed, if one is.
    async fn settle_owed(&mut self) -> Result<(), StoreError> {
        let Some(mut owed) = self.owed.take() else { return Ok(()) };
        if let Err(error) = self.repair(&mut owed.row, None).await {
            owed.retry_at = pause();
            self.owed = Some(owed);
            return Err(error);
        }
        self.live.owes.store(false, Ordering::Release);
        self.next_turn().await;
        Ok(())
    }

    /// The time has come to write what could not be written before.
    pub(super) async fn try_again(&mut self) {
        // What fails is tried again later.
        if self.settle_owed().await.is_ok() {
            self.next_turn().await;
        }
    }

    /// Writes the end of a turn of which the log may lack a part: closes what it has opened there.
    pub(super) async fn repair(&mut self, turn: &mut TurnRow, spent: Option<Spending>) -> Result<(), StoreError> {
        self.conversation = None;
        self.live.journal.reopen();
        self.live.journal.flush().await?;
        let (id, first_seq) = (&turn.record.turn_id, turn.record.first_seq.unwrap_or(0));
        let remains = Remains::read(self.live.store.as_ref(), &self.row.id, id, first_seq).await?;
        turn.record.rounds = remains.tally.rounds;
        turn.record.usage = remains.tally.usage;
        let mut tally = remains.tally;
        let spent = spent.unwrap_or_else(|| tally.spent(&turn.record));
        let (closing, messages) = remains.close(&reason_of(&turn.record));
        tally.messages = messages;
        self.write_end(turn, (closing, false), (&tally, spent)).await.inspect_err(|_| {
            self.live.journal.reopen();
        })
    }

    /// One commit: what is still to be closed, the terminal event, the rows, and the prompts that did not reach the turn any
    /// more. If `goes_on`, also the beginning of the turn that is next.
    async fn write_end(
        &mut self,
        turn: &mut TurnRow,
        (closing, goes_on): (Vec<EventBody>, bool),
        (tally, spent): (&Tally, Spending),
    ) -> Result<(), StoreError> {
        let turn_id = &turn.record.turn_id.clone();
        let (reached, late) = turn.steers.parted(tally.steers);
        let mut writes: Vec<_> = self.forgotten(reached.iter().filter_map(Waiting::place)).collect();
        let late: Vec<TurnRow> = late.iter().map(|said| queued_turn(&self.row.id, said.clone(), None)).collect();
        let mut row = self.row.clone();
        row.message_count += tally.messages;
        row.usage = row.usage.plus(turn.record.usage);
        row.spent = row.spent.plus(spent);
        row.updated_at = clock::now_ms();
        let more = !late.is_empty() || !self.queue.is_empty();
        row.status = if more { SessionStatus::Active } else { status_after(turn.record.status) };
        let closed = closing.len() as u64;
        let mut end = terminal_event(&turn.record, spent);
        if let EventBody::Abort { version, .. } = &mut end
            && is_change(turn)
        {
            row.version += 1;
            *version = Some(row.version);
        }
        for body in &closing {
            if let EventBody::SessionConfigured(Configured { changes, .. }) = body {
                configure(&mut row.settings, changes);
            }
        }
        let bodies = closing.into_iter().chain([end]);
        let whose = |body: &EventBody| (!matches!(body, EventBody::SessionConfigured(_))).then(|| turn_id.clone());
        let mut events: Vec<_> = bodies.map(|body| (whose(&body), body)).collect();
        for (place, turn) in late.iter().enumerate() {
            events.push(self.queued_event(&turn.record.turn_id, place, None));
            writes.push(Write::SaveTurn(Box::new(turn.clone())));
        }
        let mut next = if goes_on { self.beginning_behind(late.first(), &row).await } else { None };
        let row = next.as_ref().map_or(row, |next| next.row().clone());
        writes.push(Write::UpdateSession(Box::new(row.clone())));
        let entry = |next_seq: u64| {
            turn.record.last_seq = Some(next_seq + closed);
            let ended = TurnRow { steers: Steers::default(), only: None, held: None, aborted: None, ..turn.clone() };
            writes.push(Write::SaveTurn(Box::new(ended)));
            if let Some(next) = &mut next {
                let (begin, turn) = next.written_at(next_seq + events.len() as u64);
                events.extend(begin);
                writes.extend(turn);
            }
            Entry { events, writes }
        };
        self.live.journal.record(entry).await?;
        (self.row, self.next) = (row, next);
        // What was meant for the turn that ended comes before what was meant for later.
        for turn in late.into_iter().rev() {
            self.queue.push_front(turn);
        }
        Ok(())
    }
}

/// A turn that waits.
pub(in crate::session) fn queued_turn(session: &SessionId, said: Waiting, configure: Option<Configure>) -> TurnRow {
    let record = TurnRecord {
        turn_id: TurnId::generate(),
        session_id: session.clone(),
        status: TurnStatus::Queued,
        prompt: said.shown(),
        task: None,
        created_at: clock::now_ms(),
        started_at: None,
        ended_at: None,
        result: None,
        output: None,
        error: None,
        reason: None,
        stop_reason: None,
        first_seq: None,
        last_seq: None,
        rounds: 0,
        usage: crate::protocol::Usage::default(),
    };
    // Its record has the beginning of what is kept apart.
    let prompt = Some(match said {
        Waiting::Apart(apart) => Waiting::Apart(Apart { text: String::new(), ..apart }),
        here => here,
    });
    TurnRow { record, prompt, configure, only: None, came: None, held: None, aborted: None, steers: Steers::default() }
}

/// Whether a client's control has its effect with this end of a turn. The abort of one that ran had it before; a turn that
/// holds ends by a control alone.
fn is_change(turn: &TurnRow) -> bool {
    match turn.record.status {
        TurnStatus::Interrupted => true,
        TurnStatus::Aborted => turn.held.is_some(),
        TurnStatus::Completed
        | TurnStatus::Failed
        | TurnStatus::Queued
        | TurnStatus::Running
        | TurnStatus::Waiting
        | TurnStatus::Paused => false,
    }
}

/// The one event that ends a turn.
pub(in crate::session) fn terminal_event(record: &TurnRecord, spent: Spending) -> EventBody {
    let session_id = record.session_id.clone();
    match record.status {
        TurnStatus::Completed => {
            let (result, output) = (record.result.clone().unwrap_or_default(), record.output.clone());
            EventBody::SessionCompleted { session_id, result, output, spent }
        }
        TurnStatus::Aborted | TurnStatus::Interrupted => {
            EventBody::Abort { reason: record.reason.clone().unwrap_or_default(), version: None, spent }
        }
        TurnStatus::Failed | TurnStatus::Queued | TurnStatus::Running | TurnStatus::Waiting | TurnStatus::Paused => {
            EventBody::SessionError { session_id, error: reason_of(record), spent }
        }
    }
}

/// Why a turn did not complete, for what it leaves open.
pub(in crate::session) fn reason_of(record: &TurnRecord) -> ErrorBody {
    let aborted = || ErrorBody {
        code: ErrorCode::Conflict,
        message: record.reason.clone().unwrap_or_else(|| "aborted".to_owned()),
        details: None,
    };
    record.error.clone().unwrap_or_else(aborted)
}

fn log_failed(error: &StoreError) -> ErrorBody {
    ErrorBody { code: ErrorCode::Internal, message: error.to_string(), details: None }
}

/// When what failed is tried again.
pub(super) fn pause() -> Instant {
    Instant::now() + Duration::from_millis(limit::STORE_RETRY_MS)
}
