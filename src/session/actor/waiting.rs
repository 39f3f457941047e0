//! What waits: how much of it there is, and how much there may be.

use super::{Accepted, Actor, NewPrompt};
use crate::base::limit;
use crate::protocol::{ApiError, ErrorCode};
use crate::session::stopping;
use crate::store::Write;

impl Actor {
    /// Counts a prompt that is to wait, or says that it is too much: for the session, or for all of them together.
    pub(super) fn make_room(&mut self, prompt: &NewPrompt) -> Result<(), ApiError> {
        let bytes_max = self.terms.limits.read().queued_bytes_max;
        let (waiting, more) = (self.waiting().map(|one| one.said).sum::<usize>(), prompt.bytes());
        if waiting.saturating_add(more) > bytes_max {
            let session = &self.row.id;
            let message = format!(
                "prompts of {waiting} bytes wait in session {session} already; with this one of {more} they would be above `queued_bytes_max`, {bytes_max}"
            );
            return Err(too_much(message, "queued_bytes_max", bytes_max));
        }
        let memory_max = limit::QUEUED_MEMORY_BYTES_MAX;
        // What is large is kept apart, all but its beginning.
        let held = 2 * more.min(limit::SAID_BYTES_MAX) + limit::QUEUED_TURN_BYTES;
        if !self.weight.add(held, memory_max) {
            let message = format!("prompts that wait take the {memory_max} bytes of memory that they may; wait");
            return Err(too_much(message, "queuedMemoryBytes", memory_max));
        }
        Ok(())
    }

    /// What is asked of a server that ends: who shares the store hands it over with what waits. Who waits for a session under its own
    /// waits for no other server.
    pub(super) async fn leave_to_others(&mut self, prompt: NewPrompt) -> Result<Accepted, ApiError> {
        if self.shelf.cluster.is_none() || self.row.lineage.is_some() {
            return Err(stopping());
        }
        self.enqueue(prompt).await
    }

    /// What waits here, for its turn and for the one that runs.
    fn waiting(&self) -> impl Iterator<Item = Weighs> {
        let queued = self.queue.iter().map(|turn| Weighs { said: turn.waiting_bytes(), held: turn.held_bytes() });
        let steers = self.running.iter().flat_map(|running| {
            let (_, waiting) = running.row.steers.parted(running.sink.tally().steers);
            waiting.iter().map(|message| Weighs { said: message.bytes(), held: message.held_bytes() })
        });
        queued.chain(steers)
    }

    /// Says how much waits here, for who counts.
    pub(super) fn weigh(&mut self) {
        let said = self.waiting().map(|one| one.said).sum();
        let held = self.waiting().map(|one| one.held + limit::QUEUED_TURN_BYTES).sum();
        self.weight.set(held);
        self.live.weighs(said);
    }

    /// What is no longer to be kept apart of this session.
    pub(super) fn forgotten(&self, places: impl IntoIterator<Item = u64>) -> impl Iterator<Item = Write> {
        let session = self.row.id.clone();
        places.into_iter().map(move |at| Write::Said(session.clone(), at, None))
    }
}

/// What something that waits weighs, in bytes: what was said, and what of it is in memory.
struct Weighs {
    said: usize,
    held: usize,
}

fn too_much(message: String, limit: &str, value: usize) -> ApiError {
    let details = serde_json::json!({ "field": "prompt", "limit": limit, "value": value });
    ApiError::new(ErrorCode::ResourceExhausted, message).with_details(details)
}
