//! Sessions that this one has started: they come to be in one commit with the event that says so, and what comes of them is
//! told once, to the log and to the model.
//!
//! Invariant: the row has a run of theirs from the commit in which it begins to the one in which its result has reached
//! whoever is to have it. A restart finds there what is still to be told.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{Actor, ChildOrder, NewPrompt};
use crate::protocol::{
    ApiError, EventBody, PromptContent, PromptMode, RequestId, SessionId, SubagentEnd, SubagentRequest,
    SubagentResponse, TurnId,
};
use crate::session::ask::{Answer, Resolved};
use crate::session::children::{AskedBelow, NewChild, RunEnd, Slot, told};
use crate::session::control::Command;
use crate::session::journal::Entry;
use crate::session::manager::Manager;
use crate::session::{stopping, store_failure};
use crate::store::{OpenRun, SessionRow, StoreError, Write};

impl Actor {
    /// Does what it is told about a session under it.
    pub(super) async fn of_children(&mut self, order: ChildOrder) {
        // Who has stopped waiting for an answer does not miss it.
        match order {
            ChildOrder::Add(child, reply) => {
                let added = self.add_child(*child).await;
                let _ = reply.send(added);
            }
            ChildOrder::Adopt(run, reply) => {
                let (run, event) = *run;
                let adopted = self.adopt(run, event).await;
                let _ = reply.send(adopted);
            }
            ChildOrder::Runs(reply) => drop(reply.send(self.row.children.clone())),
            ChildOrder::Settle(end, reply) => {
                let settled = self.settle(*end).await;
                let _ = reply.send(settled);
            }
            ChildOrder::Say(prompt, reply) => {
                let said = self.hear(*prompt).await;
                let _ = reply.send(said);
            }
            ChildOrder::Silence(session) => self.silence(Some(&session)),
            ChildOrder::Asks(session, event) => self.child_asks(session, *event).await,
            ChildOrder::Answered(request, event) => self.child_answered(&request, *event).await,
        }
    }

    /// Takes what a session beside it says, where it is at work.
    async fn hear(&mut self, prompt: NewPrompt) -> Result<(), ApiError> {
        if self.running.as_ref().is_none_or(|running| running.work.is_none()) {
            let message =
                format!("session {} is not at work: what it should know belongs on the blackboard", self.row.id);
            return Err(ApiError::conflict(message));
        }
        self.prompt(prompt).await.map(drop)
    }

    /// Writes a new session down together with its first turn, which waits to be begun, and with what this log says of it.
    async fn add_child(&mut self, child: NewChild) -> Result<(), ApiError> {
        self.may_start(&child.run.by)?;
        let NewChild { run, writes, events } = child;
        let by = run.by.clone();
        let row = self.with_run(run);
        self.write_row(row, events.into_iter().map(|event| (by.clone(), event)).collect(), writes).await
    }

    /// Counts one more turn of a session under it, if it does not already.
    async fn adopt(&mut self, run: OpenRun, event: EventBody) -> Result<(), ApiError> {
        self.may_start(&run.by)?;
        if self.row.children.iter().any(|open| open.turn == run.turn && open.session == run.session) {
            return Ok(());
        }
        let by = run.by.clone();
        let row = self.with_run(run);
        self.write_row(row, vec![(by, event)], Vec::new()).await
    }

    /// Only the turn that runs starts anything, and not when it is to end.
    fn may_start(&self, by: &TurnId) -> Result<(), ApiError> {
        if self.is_closing() {
            return Err(stopping());
        }
        let running = self.running.as_ref().filter(|running| running.row.record.turn_id == *by);
        let goes_on = running.and_then(|running| running.work.as_ref()).is_some_and(|work| !work.cancel.is_cancelled());
        if goes_on { Ok(()) } else { Err(ApiError::conflict(format!("turn {by} is over, or is to end"))) }
    }

    fn with_run(&self, run: OpenRun) -> SessionRow {
        let mut row = self.row.clone();
        row.children.push(run);
        row
    }

    async fn write_row(
        &mut self,
        row: SessionRow,
        events: Vec<(TurnId, EventBody)>,
        mut writes: Vec<Write>,
    ) -> Result<(), ApiError> {
        if self.running.is_none() {
            // Nothing runs, so what failed before is no longer anybody's.
            self.live.journal.reopen();
        }
        writes.push(Write::UpdateSession(Box::new(row.clone())));
        let events = events.into_iter().map(|(turn, event)| (Some(turn), event)).collect();
        let written = self.live.journal.record(|_| Entry { events, writes }).await;
        written.map_err(|error| store_failure(&error))?;
        self.row = row;
        Ok(())
    }

    /// A run is over: the log says so, and who is to hear of it does.
    async fn settle(&mut self, end: RunEnd) -> Result<(), ApiError> {
        let is_it = |open: &OpenRun| open.session == end.session && open.turn == end.turn && !open.ended;
        let Some(at) = self.row.children.iter().position(is_it) else { return Ok(()) };
        let open = self.row.children[at].clone();
        let tells = open.background && !self.live.brood.is_watched(&open.session);
        let mut row = self.row.clone();
        if tells {
            (row.children[at].ended, row.children[at].merge) = (true, end.merge.clone());
        } else {
            row.children.remove(at);
        }
        let event = end.event();
        self.write_row(row, vec![(open.by, event)], Vec::new()).await?;
        self.live.brood.settled(&end);
        if tells {
            self.tell_results().await;
        }
        Ok(())
    }

    /// Tells the model what came of runs that nobody waits for: into the turn that runs, or as one of its own. What cannot be
    /// told now is told later.
    pub(super) async fn tell_results(&mut self) {
        while let Some(at) = self.row.children.iter().position(|open| open.ended) {
            let open = self.row.children[at].clone();
            let text = match self.result_of(&open).await {
                Ok(text) => text,
                Err(error) => {
                    tracing::warn!(session = %self.row.id, %error, "the result of a sub-agent cannot be read; it is told later");
                    return;
                }
            };
            let before = self.row.children.clone();
            // It goes in the commit in which it is told.
            self.row.children.remove(at);
            let prompt = NewPrompt {
                content: PromptContent::Text(text),
                mode: PromptMode::Steer,
                configure: None,
                only: None,
                task: None,
                if_version: None,
                receipt: None,
            };
            if let Err(error) = self.prompt(prompt).await {
                tracing::info!(session = %self.row.id, %error, "the result of a sub-agent waits to be told");
                self.row.children = before;
                return;
            }
        }
    }

    async fn result_of(&self, open: &OpenRun) -> Result<String, StoreError> {
        let turn = self.shelf.store.turn(&open.session, &open.turn).await?;
        let name = self.shelf.store.session(&open.session).await?.and_then(|row| row.lineage?.name.clone());
        let end = RunEnd::of(open, turn.map(|turn| turn.record), open.merge.clone());
        Ok(told(&end, name.as_deref()))
    }

    /// Nobody is to be told what comes of the runs of a session under it, or of all of them: whoever ends them knows.
    fn silence(&mut self, session: Option<&SessionId>) {
        for open in &mut self.row.children {
            if session.is_none_or(|session| *session == open.session) {
                open.background = false;
            }
        }
        self.row.children.retain(|open| open.background || !open.ended);
    }

    /// Ends what runs under it, for this reason. Nobody waits for that here.
    pub(super) fn end_children(&mut self, reason: &str) {
        self.silence(None);
        for open in &self.row.children {
            let (shelf, client, session) = (Arc::clone(&self.shelf), self.row.client.clone(), open.session.clone());
            let command = Command { turn: Some(open.turn.clone()), reason: reason.to_owned(), if_version: None };
            tokio::spawn(async move {
                let manager = Manager { shelf };
                // One that is over already, or gone, has nothing to be ended.
                if let Ok(child) = manager.live(client.as_ref(), &session).await {
                    drop(child.abort(command).await);
                }
            });
        }
    }

    /// Removes all sessions under it, the deepest first. Nothing runs here any more, so no more of them come.
    pub(super) async fn delete_children(&self) -> Result<Vec<SessionId>, ApiError> {
        let manager = Manager { shelf: Arc::clone(&self.shelf) };
        let mut gone = vec![self.row.id.clone()];
        for child in manager.under(&self.row).await?.into_iter().filter(|child| is_directly_under(child, &self.row.id))
        {
            match manager.live(child.client.as_ref(), &child.id).await {
                Ok(live) => gone.extend(live.delete(None).await?),
                Err(error) if error.code() == crate::protocol::ErrorCode::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(gone)
    }

    /// Room for its turns has come.
    pub(super) async fn take_slot(&mut self, slot: Slot) {
        self.slot = Some(slot);
        self.next_turn().await;
    }

    /// Whether a turn may begin here now. A session under another one needs room; if there is none, it comes by mail.
    pub(super) fn has_room(&mut self) -> bool {
        let Some(lineage) = &self.row.lineage else { return true };
        if self.slot.is_none() {
            let running_max = self.terms.limits.read().subagents_running_max;
            self.slot = self.shelf.lanes.take((&self.row.id, lineage), running_max, &self.live.mail);
        }
        self.slot.is_some()
    }

    /// Gives room back that nothing here needs.
    pub(super) fn give_room_back(&mut self) {
        if self.running.is_none() && self.queue.is_empty() && self.row.lineage.is_some() {
            self.slot = None;
            self.shelf.lanes.leave(&self.row.id);
        }
    }

    /// A session under it asks something: its clients are told.
    async fn child_asks(&mut self, session_id: SessionId, request: EventBody) {
        let Some(asked) = AskedBelow::of(session_id.clone(), &request) else { return };
        self.asked_below.push(asked);
        let event = EventBody::SubagentRequest(SubagentRequest { session_id, request: Box::new(request) });
        self.tell_below(event).await;
    }

    /// It no longer does.
    async fn child_answered(&mut self, request: &RequestId, response: EventBody) {
        let Some(at) = self.asked_below.iter().position(|asked| asked.request == *request) else { return };
        let session_id = self.asked_below.remove(at).session;
        let event = EventBody::SubagentResponse(SubagentResponse { session_id, response: Box::new(response) });
        self.tell_below(event).await;
    }

    async fn tell_below(&self, event: EventBody) {
        let turn = self.running.as_ref().map(|running| running.row.record.turn_id.clone());
        if turn.is_none() {
            self.live.journal.reopen();
        }
        if let Err(error) =
            self.live.journal.record(|_| Entry { events: vec![(turn, event)], writes: Vec::new() }).await
        {
            tracing::warn!(session = %self.row.id, %error, "what a sub-agent asks could not be told");
        }
    }

    /// The session under this one whose question an answer means, if it means one.
    pub(super) fn asked_below(&self, answer: &Answer) -> Option<SessionId> {
        let means = |asked: &&AskedBelow| {
            answer.which.request_id.as_ref().map_or(asked.permission, |id| *id == asked.request)
                && answer.which.call_id.as_ref().is_none_or(|call| Some(call) == asked.call.as_ref())
        };
        self.asked_below.iter().find(means).map(|asked| asked.session.clone())
    }

    /// Hands an answer on to the session that asked. Nobody waits for that here.
    pub(super) fn hand_on(&self, to: SessionId, answer: Answer, reply: oneshot::Sender<Result<Resolved, ApiError>>) {
        let (shelf, client) = (Arc::clone(&self.shelf), self.row.client.clone());
        tokio::spawn(async move {
            let manager = Manager { shelf };
            let answered = match manager.live(client.as_ref(), &to).await {
                Ok(child) => child.answer(answer).await,
                Err(error) => Err(error),
            };
            let _ = reply.send(answered);
        });
    }
}

fn is_directly_under(row: &SessionRow, parent: &SessionId) -> bool {
    row.lineage.as_ref().and_then(|lineage| lineage.parent()) == Some(parent)
}

impl RunEnd {
    /// What the log says of it.
    fn event(&self) -> EventBody {
        let end = Box::new(SubagentEnd {
            run_id: self.run_id(),
            session_id: self.session.clone(),
            status: self.status,
            result: self.result.clone(),
            error: self.error.clone(),
            duration_ms: self.duration_ms,
            rounds: self.rounds,
            usage: self.usage,
            merge: self.merge.clone(),
        });
        match self.status {
            crate::protocol::TurnStatus::Completed => EventBody::SubagentComplete(end),
            _ => EventBody::SubagentError(end),
        }
    }
}
