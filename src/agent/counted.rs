//! Tokens of a request that no provider has counted yet: by the model's own vocabulary, where that is known.
//!
//! Nothing here waits on a worker of the runtime: unpacking a vocabulary and counting a long conversation take a while.

use super::turn::Turn;
use crate::context::tokens::counter;
use crate::model::Messages;

impl Turn {
    /// Tokens of a request with these messages, the system text and the tools included.
    pub(super) async fn counted(&self, messages: Messages) -> u64 {
        let id = self.input.model.id().to_owned();
        let (system, tools) = (self.input.system.clone(), self.input.environment.told());
        let estimate = messages.estimated_tokens();
        let count = move || messages.context_tokens(&id, counter(&id).beside(&system, &tools));
        // It breaks on no text; should it, the length has to do.
        tokio::task::spawn_blocking(count).await.unwrap_or(estimate)
    }
}
