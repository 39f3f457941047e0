//! A session as others see it: whole, and in a word.

use super::Actor;
use crate::protocol::{ApiError, SessionView, agent_of};
use crate::session::doing::Doing;
use crate::session::settings::chosen_tools;
use crate::session::snapshot::Stand;
use crate::session::store_failure;
use crate::store::SessionRow;

impl Actor {
    /// Says what the session does, for who counts.
    pub(super) fn show(&mut self) {
        let doing = match &self.running {
            None => Doing::Nothing,
            Some(running) if running.work.is_none() => Doing::Rests,
            Some(_) if self.asks.is_empty() => Doing::Runs,
            Some(_) => Doing::Waits,
        };
        self.give_room_back();
        if self.running.is_none() {
            // What a turn held that was cut off.
            self.scope.tree.lock().take();
        }
        self.live.does(doing, [self.queue.len(), self.asks.len()]);
        self.weigh();
    }

    /// The session at an event that has behind it nothing but what the running turn has said since.
    pub(super) async fn stand(&self) -> Result<Stand, ApiError> {
        self.live.journal.settle().await.map_err(|e| store_failure(&e))?;
        let queue = self.queue.iter().map(|row| row.record.clone()).collect();
        let below = self.asked_below.iter().map(|asked| asked.event.clone()).collect();
        Ok(Stand { view: self.view(), ended: (self.row.message_count, self.row.usage), queue, below })
    }

    pub(super) fn view(&self) -> SessionView {
        self.view_as(&self.row, self.live.topic.durable_seq())
    }

    /// The session with that row, and that last event.
    pub(super) fn view_as(&self, row: &SessionRow, last_seq: u64) -> SessionView {
        let tally = self.running.as_ref().map(|running| running.sink.tally());
        let mut view = view_of(row, last_seq);
        view.message_count += tally.map_or(0, |tally| tally.messages);
        view.usage = view.usage.plus(tally.map_or_else(Default::default, |tally| tally.usage));
        view.turn = self.running.as_ref().map(|running| running.record(!self.asks.is_empty()));
        view.queued = u32::try_from(self.queue.len()).unwrap_or(u32::MAX);
        view.requests = self.asks.shown();
        view.requests.extend(self.asked_below.iter().map(|asked| asked.event.clone()));
        view
    }
}

/// A session as callers see it, when nothing runs in it.
pub(in crate::session) fn view_of(row: &SessionRow, last_seq: u64) -> SessionView {
    SessionView {
        session_id: row.id.clone(),
        status: row.status,
        version: row.version,
        created_at: row.created_at,
        updated_at: row.updated_at,
        message_count: row.message_count,
        last_seq,
        working_directory: row.settings.working_directory.clone(),
        additional_directories: row.settings.additional_directories.clone(),
        agent: row.settings.agent.clone().unwrap_or_else(|| agent_of(&row.settings.model).to_owned()),
        interaction_mode: row.settings.interaction_mode,
        model: row.settings.model.clone(),
        reasoning: row.settings.reasoning,
        agent_options: row.settings.agent_options.clone(),
        model_fallbacks: row.settings.model_fallbacks.clone(),
        budget: row.settings.budget,
        tools: chosen_tools(&row.settings),
        permission_mode: row.settings.permission_mode,
        title: row.settings.title.clone(),
        lineage: row.lineage.clone(),
        turn: None,
        queued: 0,
        requests: Vec::new(),
        usage: row.usage,
        snapshot: None,
    }
}
