//! What is done when a model's answer does not fit (`output`), and when it fails for good: room is made once where the conversation does not fit, and then the models are
//! asked that stand behind it.
//!
//! Invariants: room is made at most once before a reply comes, so that no provider's words can lead in a circle; each fallback is asked
//! at most once in a turn; what a failed attempt said is void before another begins (`stream.retry`).

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::SinkError;
use super::compact::Compacted;
use super::reply::{Asking, Reply, plus};
use super::turn::Turn;
use crate::context::{conversation_tokens, make_room};
use crate::model::{Model, ModelError, StopReason};
use crate::protocol::{CompactionTrigger, EventBody, Message};

/// Hundredths of the window that are as good as all of it.
const FULL_PERCENT: u64 = 99;

/// How a conversation was made to fit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum MadeRoom {
    /// Not at all.
    #[default]
    No,
    /// It was summed up.
    Compacted,
    /// What is old was left out.
    LeftOut,
}

impl Turn {
    /// Asks the model, and when it fails, whoever may do better.
    pub(super) async fn ask_whom_it_takes(&mut self, cancel: &CancellationToken) -> Result<(Asking, Reply), SinkError> {
        let (mut spent, mut attempts) = (None, 0);
        loop {
            let (asking, mut reply) = self.ask(&mut attempts, cancel).await?;
            reply.usage = plus(spent, reply.usage);
            let error = match asking {
                Asking::Failed(error) => error,
                Asking::Replied => match self.had_no_room(&reply) {
                    Some(error) => error,
                    None => match self.does_not_fit(&reply) {
                        Some(error) => {
                            self.again(&error, (attempts.saturating_add(1), None))?;
                            spent = reply.usage;
                            continue;
                        }
                        None => {
                            self.unfit = None;
                            return Ok((asking, reply));
                        }
                    },
                },
                Asking::Aborted | Asking::Called | Asking::Again { .. } => return Ok((asking, reply)),
            };
            if cancel.is_cancelled() || !self.rescued(&error, attempts.saturating_add(1), cancel).await? {
                return Ok((Asking::Failed(self.told_why(error)), reply));
            }
            spent = reply.usage;
        }
    }

    /// Some say nothing where the conversation fills the whole window, and call that the limit of the reply.
    fn had_no_room(&self, reply: &Reply) -> Option<ModelError> {
        let silent = reply.stop == Some(StopReason::Length) && reply.text.trim().is_empty() && reply.calls.is_empty();
        let window = self.input.model.facts().context_tokens.filter(|_| silent)?;
        let used = reply.last_input_tokens?;
        (used >= window / 100 * FULL_PERCENT).then(|| {
            let words = format!("the conversation has {used} tokens and fills the model's window of {window}");
            ModelError::Overflow(words)
        })
    }

    /// An error of a conversation that does not fit says so where no summary can help: its last message alone is too long.
    fn told_why(&self, error: ModelError) -> ModelError {
        let (ModelError::Overflow(words), Some(window)) = (&error, self.input.model.facts().context_tokens) else {
            return error;
        };
        let last = self.input.messages.last().filter(|last| matches!(last, Message::User(_)));
        let tokens = last.map_or(0, |last| conversation_tokens(std::slice::from_ref(last)));
        if tokens < window {
            return error;
        }
        ModelError::Overflow(format!(
            "{words}; the last message alone has about {tokens} tokens, and the model's window has {window}"
        ))
    }

    /// Whether something was changed after which the model may be asked once more.
    async fn rescued(
        &mut self,
        error: &ModelError,
        attempt: u32,
        cancel: &CancellationToken,
    ) -> Result<bool, SinkError> {
        if matches!(error, ModelError::Overflow(_)) {
            if self.made_room == MadeRoom::No {
                self.made_room = MadeRoom::Compacted;
                let before = self.input.messages.chars();
                match self.compact((CompactionTrigger::Overflow, None), cancel).await? {
                    Compacted::Stopped(_) => return Ok(false),
                    Compacted::Done if self.input.messages.chars() < before => {
                        return self.again(error, (attempt, None));
                    }
                    Compacted::Done | Compacted::Nothing | Compacted::Failed(_) => {}
                }
            }
            if self.made_room == MadeRoom::Compacted {
                self.made_room = MadeRoom::LeftOut;
                if self.made_room_alone()? {
                    return self.again(error, (attempt, None));
                }
            }
        }
        if !error.is_of_the_model() {
            return Ok(false);
        }
        // An agent answers a whole turn, and not a round of one.
        let stands_in = |model: &Arc<dyn Model>| {
            !model.is_agent() && model.id() != self.input.model.id() && self.can_answer(model.as_ref())
        };
        let Some(at) = self.input.fallbacks.iter().position(stands_in) else { return Ok(false) };
        let next = self.input.fallbacks.drain(..=at).next_back();
        let Some(next) = next else { return Ok(false) };
        let id = next.id().to_owned();
        tracing::warn!(model = self.input.model.id(), %error, fallback = id, "a model fails; another is asked");
        self.input.model = Arc::clone(&next);
        self.again(error, (attempt, Some(id)))
    }

    /// Makes the conversation shorter without a model's help.
    fn made_room_alone(&mut self) -> Result<bool, SinkError> {
        let mut messages = self.input.messages.to_vec();
        let made = make_room(&mut messages);
        if made {
            self.input.messages = messages.into();
            self.input.sink.emit(self.pruned())?;
        }
        Ok(made)
    }

    /// What came so far is void.
    fn again(&self, error: &ModelError, (attempt, model): (u32, Option<String>)) -> Result<bool, SinkError> {
        self.input.sink.emit(EventBody::StreamRetry { attempt, delay_ms: 0, error: error.to_string(), model })?;
        Ok(true)
    }
}
