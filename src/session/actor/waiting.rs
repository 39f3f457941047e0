//! What waits: how much of it there is, and how much there may be.

use super::{Actor, NewPrompt};
use crate::base::limit;
use crate::protocol::{ApiError, Configure, ErrorCode, PromptContent};
use crate::store::TurnRow;

impl Actor {
    /// Counts a prompt that is to wait, or says that it is too much: for the session, or for all of them together.
    pub(super) fn make_room(&mut self, prompt: &NewPrompt) -> Result<(), ApiError> {
        let bytes_max = self.terms.limits.read().queued_bytes_max;
        let (waiting, more) = (self.waiting_bytes(), weight(Some(&prompt.content), prompt.configure.as_ref()));
        if waiting.saturating_add(more) > bytes_max {
            let session = &self.row.id;
            let message = format!(
                "prompts of {waiting} bytes wait in session {session} already; with this one of {more} they would be above `queued_bytes_max`, {bytes_max}"
            );
            return Err(too_much(message, "queued_bytes_max", bytes_max));
        }
        let memory_max = limit::QUEUED_MEMORY_BYTES_MAX;
        if !self.weight.add(more + limit::QUEUED_TURN_BYTES, memory_max) {
            let message = format!("prompts that wait take the {memory_max} bytes of memory that they may; wait");
            return Err(too_much(message, "queuedMemoryBytes", memory_max));
        }
        Ok(())
    }

    /// Bytes of the prompts that wait here: for their turn, and for the one that runs.
    pub(super) fn waiting_bytes(&self) -> usize {
        let queued: usize = self.queue.iter().map(weight_of).sum();
        let running = self.running.as_ref().map_or(0, |running| {
            let reached = running.row.steers.reached_since(running.sink.tally().steers);
            let waiting = running.row.steers.waiting.iter().skip(reached);
            waiting.map(|parts| PromptContent::bytes_of(parts)).sum()
        });
        queued.saturating_add(running)
    }

    /// Says how much waits here, for who counts.
    pub(super) fn weigh(&mut self) {
        let waiting = self.waiting_bytes();
        let steers = self.running.as_ref().map_or(0, |running| running.row.steers.waiting.len());
        self.weight.set(waiting.saturating_add((self.queue.len() + steers) * limit::QUEUED_TURN_BYTES));
        self.live.weighs(waiting);
    }
}

fn weight_of(turn: &TurnRow) -> usize {
    weight(turn.prompt.as_ref(), turn.configure.as_ref())
}

/// Bytes of what is said, and of the settings that change with it.
fn weight(content: Option<&PromptContent>, configure: Option<&Configure>) -> usize {
    let settings = configure.and_then(|changes| serde_json::to_vec(changes).ok());
    content.map_or(0, PromptContent::bytes) + settings.map_or(0, |settings| settings.len())
}

fn too_much(message: String, limit: &str, value: usize) -> ApiError {
    let details = serde_json::json!({ "field": "prompt", "limit": limit, "value": value });
    ApiError::new(ErrorCode::ResourceExhausted, message).with_details(details)
}
