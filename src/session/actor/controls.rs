//! Abort, interrupt, pause and resume.
//!
//! A control is answered when it is known what became of it: an abort at once, because it always wins (and once it is written down, so that it outlives the process); an interrupt when the
//! turn has ended; a pause when it holds, or when something else is to end the turn. What the turn machine has no meaning for is refused and changes nothing.
//!
//! The session's version counts what was done, in the commit that does it: a pause with `turn.paused`, an interrupt with the turn's end.

use std::sync::Arc;
use std::time::Duration;

use super::{Actor, Order, Running, terminal_event};
use crate::agent::{Progress, Wish};
use crate::base::limit;
use crate::protocol::{ApiError, ControlKind, EventBody, Spending, TurnId, TurnStatus, TurnStop, VerdictSource};
use crate::session::ask::End;
use crate::session::control::{Command, Controlled, Kind, Told, nothing_runs, out_of_place, too_late};
use crate::session::journal::Entry;
use crate::session::metered::count_end;
use crate::session::turn::{Input, Phase};
use crate::session::views::status_after;
use crate::session::{store_failure, unwritten};
use crate::store::{TurnRow, Write};

impl Actor {
    /// Does what a client wants of a turn, and tells it what became of that.
    pub(super) async fn control(&mut self, kind: Kind, command: Command, told: Told) {
        // One order at a time: what is looked at here is as it is until the control has its place.
        let aimed = match self.check_version(command.if_version) {
            Ok(()) if kind == Kind::Abort && self.waits(command.turn.as_ref()) => {
                let withdrawn = self.withdraw(command).await;
                drop(told.send(withdrawn));
                return;
            }
            Ok(()) => self.aim(kind, command.turn.as_ref()).await,
            Err(error) => Err(error),
        };
        // Who has stopped waiting for an answer does not miss it.
        match aimed {
            Ok(phase) => {
                if matches!(kind, Kind::Abort | Kind::Interrupt) {
                    self.end_children(&command.reason);
                }
                self.carry_out(kind, phase, command.reason, told).await;
            }
            Err(error) => drop(told.send(Err(error))),
        }
        if kind == Kind::Resume {
            self.tell_results().await;
        }
    }

    /// Whether that turn waits, and its beginning is not written down yet.
    fn waits(&self, turn: Option<&TurnId>) -> bool {
        let mut waiting = self.queue.iter().skip(usize::from(self.next.is_some()));
        turn.is_some_and(|turn| waiting.any(|row| row.record.turn_id == *turn))
    }

    /// Ends a turn that waits: it never begins.
    async fn withdraw(&mut self, command: Command) -> Result<Controlled, ApiError> {
        let is_meant = |row: &TurnRow| Some(&row.record.turn_id) == command.turn.as_ref();
        let Some(at) = self.queue.iter().position(is_meant) else {
            return Err(nothing_runs(Kind::Abort, &self.row.id));
        };
        let mut row = self.changed();
        if self.running.is_none() && self.queue.len() == 1 {
            row.status = status_after(TurnStatus::Aborted);
        }
        let mut turn = self.queue[at].clone();
        let record = &mut turn.record;
        (record.status, record.ended_at) = (TurnStatus::Aborted, Some(row.updated_at));
        (record.stop_reason, record.reason) = (Some(TurnStop::Aborted), Some(command.reason));
        (turn.configure, turn.came) = (None, None);
        let kept = turn.prompt.take().and_then(|prompt| prompt.place());
        let end = match terminal_event(&turn.record, Spending::default()) {
            EventBody::Abort { reason, spent, .. } => EventBody::Abort { reason, version: Some(row.version), spent },
            other => other,
        };
        let written = self.live.journal.record(|next_seq| {
            turn.record.last_seq = Some(next_seq);
            let kept = kept.map(|at| Write::Said(row.id.clone(), at, None));
            let saved = [Write::SaveTurn(Box::new(turn.clone())), Write::UpdateSession(Box::new(row.clone()))];
            let events = vec![(Some(turn.record.turn_id.clone()), end)];
            Entry { events, writes: saved.into_iter().chain(kept).collect() }
        });
        written.await.map_err(|error| store_failure(&error))?;
        self.row = row;
        self.queue.remove(at);
        count_end(&self.terms.meters, &turn.record);
        self.tell(&turn.record);
        Ok(Controlled { turn_id: turn.record.turn_id, status: TurnStatus::Aborted })
    }

    /// The phase after a control of the turn that is meant.
    async fn aim(&self, kind: Kind, turn: Option<&TurnId>) -> Result<Phase, ApiError> {
        let running = self.running.as_ref().filter(|now| turn.is_none_or(|turn| *turn == now.row.record.turn_id));
        if let Some(running) = running {
            let refused = |_| out_of_place(kind, &running.row.record.turn_id, running.phase);
            return running.phase.after(kind.input()).map_err(refused);
        }
        // It has ended, though the store does not know that yet.
        let owed = self.owed.as_ref().map(|owed| &owed.row.record);
        let is_meant = |id: &TurnId| turn.map_or(kind != Kind::Resume, |turn| turn == id);
        if let Some(owed) = owed.filter(|owed| is_meant(&owed.turn_id)) {
            return Err(too_late(&owed.turn_id, owed.status));
        }
        match (turn, &self.last) {
            (None, Some((turn, status))) if kind != Kind::Resume => Err(too_late(turn, *status)),
            (None, _) => Err(nothing_runs(kind, &self.row.id)),
            (Some(turn), _) if self.queue.iter().any(|row| row.record.turn_id == *turn) => {
                Err(too_late(turn, TurnStatus::Queued))
            }
            (Some(turn), _) => {
                let row = self.live.store.turn(&self.row.id, turn).await.map_err(|e| store_failure(&e))?;
                let row = row.ok_or_else(|| ApiError::not_found(format!("turn {turn} in session {}", self.row.id)))?;
                Err(too_late(turn, row.record.status))
            }
        }
    }

    async fn carry_out(&mut self, kind: Kind, phase: Phase, reason: String, told: Told) {
        let Some(running) = &mut self.running else { return };
        let (turn_id, before) = (running.row.record.turn_id.clone(), running.phase);
        let now = |status| Controlled { turn_id: turn_id.clone(), status };
        match kind {
            Kind::Abort | Kind::Interrupt if before == Phase::Paused => {
                let ended = self.end_paused(kind, reason).await;
                let _ = told.send(ended.map(|()| now(phase.status(false))));
                return;
            }
            Kind::Abort => {
                self.stop(&reason);
                let noted = self.note_abort().await;
                let _ = told.send(noted.map(|()| now(TurnStatus::Running)));
                return;
            }
            Kind::Interrupt => {
                running.waiting.add(kind, told);
                self.interrupt(phase, reason).await;
            }
            Kind::Pause if phase == Phase::Paused => drop(told.send(Ok(now(TurnStatus::Paused)))),
            Kind::Pause => {
                running.reason = Some(reason);
                running.waiting.add(kind, told);
                running.turn_to(phase);
            }
            Kind::Resume if before == Phase::Pausing => {
                running.turn_to(phase);
                running.waiting.resumed(&turn_id);
                let counted = self.count_resume(&turn_id).await;
                let _ = told.send(counted.map(|()| now(TurnStatus::Running)));
                return;
            }
            Kind::Resume => {
                let resumed = self.resume(reason).await;
                let _ = told.send(resumed.map(|()| now(TurnStatus::Running)));
                return;
            }
        }
        if before != phase {
            self.tell_control(&turn_id, kind.told()).await;
        }
    }

    /// Writes an abort down before it is acknowledged: the turn ends as aborted, even if the process ends first. The turn
    /// stops whether or not the disk takes note.
    async fn note_abort(&mut self) -> Result<(), ApiError> {
        let row = self.changed();
        let Some(running) = &mut self.running else { return Err(ApiError::internal("the turn has just ended")) };
        let mut turn = running.row.clone();
        turn.aborted.get_or_insert_with(|| running.reason.clone().unwrap_or_default());
        let writes = vec![Write::SaveTurn(Box::new(turn.clone())), Write::UpdateSession(Box::new(row.clone()))];
        let events = vec![control_event(&turn.record.turn_id, ControlKind::Abort, Some(row.version))];
        let written = self.live.journal.record(|_| Entry { events, writes }).await;
        written.map_err(|error| unwritten(&format!("turn {} is being aborted", turn.record.turn_id), &error))?;
        running.row = turn;
        self.row = row;
        Ok(())
    }

    /// Writes down that the turn is no longer to hold. It goes on whether or not the disk takes note.
    async fn count_resume(&mut self, turn: &TurnId) -> Result<(), ApiError> {
        let row = self.changed();
        let events = vec![control_event(turn, ControlKind::Resume, Some(row.version))];
        let write = Write::UpdateSession(Box::new(row.clone()));
        let written = self.live.journal.record(|_| Entry { events, writes: vec![write] }).await;
        written.map_err(|error| unwritten(&format!("turn {turn} goes on"), &error))?;
        self.row = row;
        Ok(())
    }

    /// Tells that a control was accepted which may still come too late. It has its effect whether or not the disk takes note.
    async fn tell_control(&self, turn: &TurnId, kind: ControlKind) {
        let events = vec![control_event(turn, kind, None)];
        if let Err(error) = self.live.journal.record(|_| Entry { events, writes: Vec::new() }).await {
            tracing::warn!(session = %self.row.id, %error, "that a control was accepted could not be written down");
        }
    }

    /// Tells the running turn to stop at once, and makes sure that it does.
    pub(super) fn stop(&mut self, reason: &str) {
        let Some(running) = &mut self.running else { return };
        let Some(work) = &running.work else { return };
        if running.phase != Phase::Stopping {
            running.reason = Some(reason.to_owned());
        }
        work.cancel.cancel();
        if let Ok(phase) = running.phase.after(Input::Abort) {
            running.turn_to(phase);
            running.waiting.ending(&running.row.record.turn_id, phase);
        }
        self.force_after(limit::TURN_STOP_GRACE_MS);
    }

    /// Tells the running turn to end at its next boundary, and makes sure that it does. Its open questions end now: nobody
    /// is to be waited for.
    async fn interrupt(&mut self, phase: Phase, reason: String) {
        let Some(running) = &mut self.running else { return };
        if running.phase == phase {
            return;
        }
        running.reason = Some(reason);
        running.turn_to(phase);
        running.waiting.ending(&running.row.record.turn_id, phase);
        let grace_ms = self.terms.limits.read().interrupt_grace_ms;
        self.force_after(grace_ms);
        for request in self.asks.open_ids() {
            self.resolve(&request, End::no(VerdictSource::Abort, "the turn was interrupted")).await;
        }
    }

    fn force_after(&self, grace_ms: u64) {
        let Some(running) = &self.running else { return };
        let (live, turn) = (Arc::clone(&self.live), running.row.record.turn_id.clone());
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(grace_ms)).await;
            let _ = live.mail.send(Order::Force(turn)).await;
        });
    }

    /// Cuts off a turn that did not stop in its time. An interrupted one is told to stop at once, first.
    pub(super) async fn force(&mut self, turn: &TurnId) {
        let meant = self.running.as_ref().filter(|running| running.row.record.turn_id == *turn);
        let Some((running, work)) = meant.and_then(|running| Some((running, running.work.as_ref()?))) else { return };
        match running.phase {
            Phase::Interrupting if !work.cancel.is_cancelled() => {
                work.cancel.cancel();
                self.force_after(limit::TURN_CUT_GRACE_MS);
            }
            Phase::Interrupting | Phase::Stopping => self.cut_off().await,
            Phase::Queued
            | Phase::Running
            | Phase::Pausing
            | Phase::Paused
            | Phase::Completed
            | Phase::Failed
            | Phase::Aborted
            | Phase::Interrupted => {}
        }
    }

    /// The loop stands at a boundary and wants to know whether to hold.
    pub(super) async fn hold(&mut self, mut running: Running, progress: Progress) {
        let turn_id = running.row.record.turn_id.clone();
        let tally = running.sink.tally();
        let mut row = running.row.clone();
        row.record.status = Phase::Paused.status(false);
        (row.record.rounds, row.record.usage) = (tally.rounds, tally.usage);
        let reached = row.steers.forget(tally.steers);
        row.held = Some(progress.held.clone());
        let reason = running.reason.take().unwrap_or_default();
        let session = self.changed();
        let events = vec![(Some(turn_id.clone()), EventBody::TurnPaused { reason, version: Some(session.version) })];
        let mut writes = vec![Write::SaveTurn(Box::new(row.clone())), Write::UpdateSession(Box::new(session.clone()))];
        writes.extend(self.forgotten(reached));
        if let Err(error) = self.live.journal.record(|_| Entry { events, writes }).await {
            return self.fail_unwritten(running, &error).await;
        }
        self.row = session;
        (running.row, running.work, running.progress) = (row, None, Some(progress));
        running.waiting.held(&turn_id);
        self.running = Some(running);
    }

    /// The paused turn goes on, once that is written down.
    async fn resume(&mut self, reason: String) -> Result<(), ApiError> {
        // Until the turn is counted by itself. An end of the server that does not wait for it is seen behind this.
        let _admitted = self.admit()?;
        if self.is_closing() {
            return Err(crate::session::stopping());
        }
        let Some(running) = &self.running else { return Err(ApiError::internal("the turn has just ended")) };
        let turn = TurnRow { held: None, ..running.row.clone() };
        let turn_id = turn.record.turn_id.clone();
        let mut turn = turn;
        turn.record.status = TurnStatus::Running;
        let row = self.changed();
        let events = vec![(Some(turn_id), EventBody::TurnResumed { reason, version: Some(row.version) })];
        let writes = vec![Write::SaveTurn(Box::new(turn.clone())), Write::UpdateSession(Box::new(row.clone()))];
        // Nothing runs, so what failed before is no longer anybody's.
        self.live.journal.reopen();
        let written = self.live.journal.record(|_| Entry { events, writes }).await;
        written.map_err(|e| store_failure(&e))?;
        self.row = row;
        let Some(mut running) = self.running.take() else { return Err(ApiError::internal("the turn has just ended")) };
        running.row = turn;
        running.turn_to(Phase::Running);
        let progress = running.progress.take().unwrap_or_default();
        self.set_to_work(running, Vec::new(), progress);
        Ok(())
    }

    /// Ends a paused turn: nothing runs that would have to stop first.
    async fn end_paused(&mut self, kind: Kind, reason: String) -> Result<(), ApiError> {
        let Some(mut running) = self.running.take() else {
            return Err(ApiError::internal("the turn has just ended"));
        };
        running.reason = Some(reason);
        running.phase = running.phase.after(kind.input()).unwrap_or(Phase::Failed);
        running.note_end(None);
        running.sink.close();
        // What it spent before a restart is not the sink's.
        let spent = Some(running.sink.spent()).filter(|spent| !spent.is_nothing());
        let written = self.repair(&mut running.row, spent).await;
        self.after_end(running, written.clone()).await;
        written.map_err(|e| store_failure(&e))
    }
}

/// The event of a control that was accepted; `version` where it changes the session at once.
pub(super) fn control_event(turn: &TurnId, kind: ControlKind, version: Option<u64>) -> (Option<TurnId>, EventBody) {
    (Some(turn.clone()), EventBody::TurnControl { kind, version })
}

impl Running {
    /// Takes a phase, and lets the loop know what is wanted of it there.
    pub(super) fn turn_to(&mut self, phase: Phase) {
        self.phase = phase;
        self.helm.wish_for(if self.work.is_some() { phase.wish() } else { Wish::GoOn });
    }
}
