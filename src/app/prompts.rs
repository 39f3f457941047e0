//! Prompts: held against limits and against what there is, and given to their session.

use std::sync::Arc;

use super::{App, Caller, bodies};
use crate::protocol::{ApiError, Prompt, SessionId};
use crate::session::{Accepted, NewPrompt, Receipt};

impl App {
    /// Accepts a prompt; its turn runs on whether or not anybody waits.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`, `NOT_FOUND`, `CONFLICT` (busy and `reject`, or another version),
    /// `RESOURCE_EXHAUSTED` (queue full).
    pub async fn prompt(&self, caller: &Caller, id: &SessionId, body: Prompt) -> Result<Accepted, ApiError> {
        self.prompt_with(caller, id, (body, None)).await
    }

    /// The same, as a command that leaves its receipt in the same commit.
    pub(super) async fn prompt_with(
        &self,
        caller: &Caller,
        id: &SessionId,
        (body, receipt): (Prompt, Option<Arc<Receipt>>),
    ) -> Result<Accepted, ApiError> {
        bodies::check_prompt(&body)?;
        let Prompt { prompt: content, mode, configure, turn, if_version } = body;
        let configure = match configure {
            Some(changes) => {
                caller.at_large()?;
                Some(self.checked_settings((caller, id), ("configure.", changes)).await?)
            }
            None => None,
        };
        let only = match turn {
            Some(only) => Some(self.checked_turn((caller, id), only, configure.as_ref()).await?),
            None => None,
        };
        self.live(caller, id).await?.prompt(NewPrompt { content, mode, configure, only, if_version, receipt }).await
    }
}
