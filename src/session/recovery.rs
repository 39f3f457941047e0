//! What the end of the process before this one left open is dealt with: turns that ran are ended, those that waited run.
//!
//! Invariant: a session whose turn could not be ended, because the disk is full, is read, its turn as it has ended, and does nothing until
//! that is written. All others work.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::actor::{self, Agenda};
use super::manager::{Manager, event_of};
use super::repair::Remains;
use super::tally::Tally;
use super::turn::{Phase, found};
use super::views::status_after;
use crate::base::clock;
use crate::protocol::{ErrorBody, ErrorCode, EventBody, SessionId, SessionStatus, TurnStop};
use crate::store::{SessionRow, StoreError, TurnRow, Unfinished, Write, commit};

impl Manager {
    /// Takes up what an earlier process has left, where it kept its data and in the store.
    ///
    /// # Errors
    /// What the store says.
    pub async fn take_up(&self, directory: Option<&Path>) -> Result<(), StoreError> {
        if let Some(directory) = directory {
            self.succeed(directory.to_owned()).await;
        }
        self.recover().await
    }

    /// Takes over where an earlier process kept its data; see [`Estate::succeed`](crate::tool::Estate::succeed).
    async fn succeed(&self, directory: std::path::PathBuf) {
        let estate = Arc::clone(&self.shelf.estate);
        // One that panicked has ended nothing.
        drop(tokio::task::spawn_blocking(move || estate.succeed(&directory)).await);
    }

    /// Deals with what the end of the process before this one left open: turns that ran fail, or are
    /// aborted if they were to be, in one commit each with all that closes them; turns that waited run again, in their order; a paused one stays paused.
    /// An end that cannot be written now is owed by its session, which tries again.
    ///
    /// # Errors
    /// What the store says when it cannot be read.
    pub async fn recover(&self) -> Result<(), StoreError> {
        match self.shelf.cluster.as_deref() {
            Some(cluster) => self.take_left_behind(cluster).await,
            None => {
                let turns = self.shelf.store.open_turns().await?;
                self.recover_from(Unfinished { turns, with_children: self.shelf.store.with_children().await? }).await
            }
        }
    }

    /// Deals with what was left open.
    pub(super) async fn recover_from(&self, unfinished: Unfinished) -> Result<(), StoreError> {
        let Unfinished { turns, with_children } = unfinished;
        let mut sessions: BTreeMap<SessionId, Vec<TurnRow>> = BTreeMap::new();
        for turn in turns {
            sessions.entry(turn.record.session_id.clone()).or_default().push(turn);
        }
        let mut unread = None;
        for (id, turns) in sessions {
            // What is awake has been dealt with, and goes on.
            if self.is_awake(&id) {
                continue;
            }
            match self.recover_session(&id, turns).await {
                Ok(()) => {}
                // One session that cannot be read keeps no other from its work.
                Err(error @ (StoreError::Io { .. } | StoreError::Broken { .. } | StoreError::Damaged { .. })) => {
                    tracing::error!(session = %id, %error, "what an earlier process left open cannot be read; it is tried again later");
                    unread = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        self.recover_children(with_children).await?;
        // Alone, the next start tries again; among others, this node does.
        match unread.filter(|_| self.shelf.cluster.is_some()) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    async fn recover_session(&self, id: &SessionId, turns: Vec<TurnRow>) -> Result<(), StoreError> {
        let Some(mut row) = self.shelf.store.session(id).await? else { return Ok(()) };
        let is = |turn: &TurnRow| found(turn.record.status, turn.aborted.is_some());
        let (mut queued, begun): (Vec<_>, Vec<_>) = turns.into_iter().partition(|turn| is(turn) == Phase::Queued);
        let (mut paused, mut owed) = (None, None);
        for turn in begun {
            let remains = self.remains(&row.id, &turn).await?;
            if is(&turn) == Phase::Paused {
                paused = Some((turn, remains.tally));
                continue;
            }
            let ended = interrupted(turn, &remains.tally);
            match self.write_interrupted(&mut row, (ended.clone(), remains), !queued.is_empty()).await {
                Ok(late) => drop(queued.splice(..0, late)),
                Err(error @ (StoreError::Io { .. } | StoreError::Broken { .. })) => {
                    tracing::error!(session = %id, %error, "what an earlier process left open could not be ended; it is tried again");
                    owed = Some(ended);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        if !queued.is_empty() || paused.is_some() || owed.is_some() {
            let last_seq = self.shelf.store.last_seq(id).await?;
            let agenda = Agenda { queue: queued, paused, owed };
            self.wake((row, last_seq), agenda, self.shelf.departures.load(Ordering::Acquire));
        }
        Ok(())
    }

    /// What the log has of a turn.
    async fn remains(&self, session: &SessionId, turn: &TurnRow) -> Result<Remains, StoreError> {
        let (store, record) = (self.shelf.store.as_ref(), &turn.record);
        Remains::read(store, session, &record.turn_id, record.first_seq.unwrap_or(0)).await
    }

    /// Writes down that a turn has ended. Gives back the messages for it that had not reached it, as turns of their own.
    async fn write_interrupted(
        &self,
        known: &mut SessionRow,
        (mut turn, remains): (TurnRow, Remains),
        more: bool,
    ) -> Result<Vec<TurnRow>, StoreError> {
        let (store, mut row) = (&self.shelf.store, known.clone());
        let turn_id = turn.record.turn_id.clone();
        let record = &turn.record;
        let why = actor::reason_of(record);
        let reached = turn.steers.forget(remains.tally.steers);
        let waiting = std::mem::take(&mut turn.steers).waiting.into_iter();
        let late: Vec<_> = waiting.map(|said| actor::queued_turn(&row.id, said, None)).collect();
        let spent = remains.tally.spent(record);
        let (closing, messages) = remains.close(&why);
        let closed = closing.len() as u64;
        row.message_count += messages;
        row.usage = row.usage.plus(record.usage);
        row.spent = row.spent.plus(spent);
        row.updated_at = clock::now_ms();
        row.status = if more || !late.is_empty() { SessionStatus::Active } else { status_after(record.status) };
        let ending =
            closing.into_iter().chain([actor::terminal_event(&turn.record, spent)]).map(|body| (&turn_id, body));
        let queued = late
            .iter()
            .zip(0..)
            .map(|(turn, position)| (&turn.record.turn_id, EventBody::TurnQueued { position, version: None }));
        let last_seq = store.last_seq(&row.id).await?;
        turn.record.last_seq = Some(last_seq + 1 + closed);
        let events = ending.chain(queued).zip(last_seq + 1..);
        let events = events.map(|((turn, body), seq)| event_of(&row.id, seq, Some(turn), &body)).collect();
        let mut writes = vec![Write::Append(row.id.clone(), Arc::new(events)), Write::SaveTurn(Box::new(turn))];
        writes.push(Write::UpdateSession(Box::new(row.clone())));
        writes.extend(late.iter().map(|turn| Write::SaveTurn(Box::new(turn.clone()))));
        writes.extend(reached.into_iter().map(|at| Write::Said(row.id.clone(), at, None)));
        commit(store, writes).await?;
        *known = row;
        Ok(late)
    }
}

/// A turn that ran, as it has ended now.
fn interrupted(mut turn: TurnRow, tally: &Tally) -> TurnRow {
    turn.only = None;
    let record = &mut turn.record;
    (record.rounds, record.usage) = (tally.rounds, tally.usage);
    record.ended_at = Some(clock::now_ms());
    record.status = found(record.status, turn.aborted.is_some()).status(false);
    if let Some(reason) = turn.aborted.take() {
        // Whoever aborted it was told so.
        record.stop_reason = Some(TurnStop::Aborted);
        record.reason = Some(reason);
    } else {
        let message = "interrupted by restart".to_owned();
        record.stop_reason = Some(TurnStop::Error);
        record.error = Some(ErrorBody { code: ErrorCode::Internal, message, details: None });
    }
    turn
}
