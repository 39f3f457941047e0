//! Prompts: held against limits and against what there is, and given to their session.

mod hooked;
mod mention;
mod plan;
mod skills;

use std::sync::Arc;

use super::{App, Caller, bodies};
use crate::base::limit;
use crate::protocol::{ApiError, Compact, OWN_AGENT, Prompt, PromptContent, PromptMode, SessionId, TurnTask, agent_of};
use crate::session::{Accepted, NewPrompt, Receipt, Starting};

pub use skills::Listing;

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
        let (content, turn) = self.mentioned((caller, id), (content, mode), (turn, configure.as_ref())).await?;
        let only = match turn {
            Some(only) => Some(self.checked_turn((caller, id), only, configure.as_ref()).await?),
            None => None,
        };
        let content = self.filled_in((caller, id), content, (configure.as_ref(), only.as_ref())).await?;
        let live = self.live(caller, id).await?;
        let (content, starting) = self.hooked(&live, (content, mode)).await?;
        let prompt = NewPrompt { content, mode, configure, only, task: None, if_version, receipt };
        let accepted = live.prompt(prompt).await?;
        starting.into_iter().for_each(Starting::said);
        Ok(accepted)
    }

    /// Has the conversation summed up, in a hidden turn that waits behind those before it: from then on the model is shown the
    /// summary and not what came before. All of it stays in the history.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`, `NOT_FOUND`, `CONFLICT` (another version; an agent answers, which keeps its own context),
    /// `RESOURCE_EXHAUSTED` (queue full).
    pub async fn compact(&self, caller: &Caller, id: &SessionId, body: Compact) -> Result<Accepted, ApiError> {
        self.compact_with(caller, id, (body, None)).await
    }

    /// The same, as a command that leaves its receipt in the same commit.
    pub(super) async fn compact_with(
        &self,
        caller: &Caller,
        id: &SessionId,
        (body, receipt): (Compact, Option<Arc<Receipt>>),
    ) -> Result<Accepted, ApiError> {
        let Compact { focus, if_version } = body;
        let focus = focus.map(|focus| focus.trim().to_owned()).filter(|focus| !focus.is_empty());
        if focus.as_ref().is_some_and(|focus| focus.chars().count() > limit::COMPACT_FOCUS_CHARS_MAX) {
            let expected = format!("at most {} characters", limit::COMPACT_FOCUS_CHARS_MAX);
            return Err(ApiError::invalid("focus", expected));
        }
        let model = self.session(caller, id).await?.model;
        let agent = agent_of(&model);
        if agent != OWN_AGENT {
            let message = format!("session {id} is answered by the agent {agent}, which keeps its own context");
            return Err(ApiError::conflict(message).with_details(serde_json::json!({ "why": "agent" })));
        }
        let said = focus.as_ref().map_or_else(|| "/compact".to_owned(), |focus| format!("/compact {focus}"));
        let prompt = NewPrompt {
            content: PromptContent::Text(said),
            mode: PromptMode::Queue,
            configure: None,
            only: None,
            task: Some(TurnTask::Compact { focus }),
            if_version,
            receipt,
        };
        self.live(caller, id).await?.prompt(prompt).await
    }
}
