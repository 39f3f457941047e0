//! One request to the model, until its reply is whole: deltas out, calls collected, retries.
//!
//! Nothing of a reply counts before the model's stream ended well: a call runs only then, so a broken
//! stream can be tried again without running anything twice.

use std::sync::Arc;

use futures_util::StreamExt;
use tokio_util::sync::CancellationToken;

use super::calls::Asked;
use super::{Sink, SinkError, Steering};
use crate::model::retry::{RetryPolicy, jitter};
use crate::model::{Model, ModelError, ModelEvent, ModelRequest, ModelStream, StopReason};
use crate::protocol::{EventBody, Original, ToolCallRequest, Usage};

/// Deltas between two looks at how far the disk has come.
const DELTAS_PER_LOOK: u32 = 64;

/// What a model said in one round.
#[derive(Debug, Default)]
pub(super) struct Reply {
    /// Its text.
    pub text: String,
    /// Its calls.
    pub calls: Vec<Asked>,
    /// Its tokens, failed attempts included. None: the provider did not say.
    pub usage: Option<Usage>,
    /// Tokens that were sent for this reply alone.
    pub last_input_tokens: Option<u64>,
    /// Why it stopped.
    pub stop: Option<StopReason>,
    /// The same in the words of its wire.
    pub original: Option<Arc<Original>>,
}

/// How asking a model ended.
pub(super) enum Asking {
    /// With a whole reply.
    Replied,
    /// By the token.
    Aborted,
    /// In the pause before another attempt: something else is wanted of the turn than that it goes on.
    Called,
    /// With an error that retries did not cure, or that none can.
    Failed(ModelError),
    /// The stream broke: ask again, after the pause.
    Again {
        /// The attempt that comes now; the first retry is 2.
        attempt: u32,
    },
}

/// One round's talk with the model. Keeps the reply so that an abort finds what there is of it.
pub(super) struct Listener<'a> {
    pub sink: &'a dyn Sink,
    pub steering: &'a dyn Steering,
    pub retry: RetryPolicy,
    pub cancel: &'a CancellationToken,
    pub reply: Reply,
    /// Tokens of the attempts before this one.
    spent: Option<Usage>,
    /// Attempts of this round at other models, or with more in the conversation.
    before: u32,
}

/// How one attempt ended.
enum Attempt {
    Finished,
    Aborted,
    Broken(ModelError),
}

impl<'a> Listener<'a> {
    pub fn new(
        (sink, steering): (&'a dyn Sink, &'a dyn Steering),
        retry: RetryPolicy,
        cancel: &'a CancellationToken,
    ) -> Self {
        Self { sink, steering, retry, cancel, reply: Reply::default(), spent: None, before: 0 }
    }

    /// The same after so many attempts of its round: it counts on.
    pub fn after(self, before: u32) -> Self {
        Self { before, ..self }
    }

    /// What the model said, and the tokens of all attempts.
    pub fn into_reply(self) -> Reply {
        let last_input_tokens = self.reply.usage.map(|usage| usage.input_tokens);
        Reply { usage: plus(self.spent, self.reply.usage), last_input_tokens, ..self.reply }
    }

    /// Asks once. [`Asking::Again`] comes after the pause: the caller makes the request anew.
    pub async fn ask(&mut self, model: &dyn Model, request: ModelRequest, attempt: u32) -> Result<Asking, SinkError> {
        let stream = model.stream(request, self.cancel.child_token());
        let error = match self.listen(stream).await? {
            Attempt::Finished => return Ok(Asking::Replied),
            Attempt::Aborted => return Ok(Asking::Aborted),
            Attempt::Broken(ModelError::Aborted) if self.cancel.is_cancelled() => return Ok(Asking::Aborted),
            Attempt::Broken(error) => error,
        };
        let ModelError::Transient { message, retry_after } = error else { return Ok(Asking::Failed(error)) };
        if attempt >= self.retry.attempts_max {
            return Ok(Asking::Failed(ModelError::Transient { message, retry_after }));
        }
        let delay = self.retry.delay(attempt, retry_after, jitter());
        self.forget(attempt + 1, delay, message)?;
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Ok(Asking::Aborted),
            () = self.steering.called() => Ok(Asking::Called),
            () = tokio::time::sleep(delay) => Ok(Asking::Again { attempt: attempt + 1 }),
        }
    }

    async fn listen(&mut self, mut stream: ModelStream) -> Result<Attempt, SinkError> {
        let cancelled = self.cancel.cancelled();
        tokio::pin!(cancelled);
        let mut deltas = 0_u32;
        loop {
            let item = tokio::select! {
                biased;
                () = &mut cancelled => return Ok(Attempt::Aborted),
                item = stream.next() => item,
            };
            match item {
                Some(Ok(ModelEvent::Finished(reason))) => {
                    self.reply.stop = Some(reason);
                    return Ok(Attempt::Finished);
                }
                Some(Ok(ModelEvent::Agent(_))) => {
                    let message = "the model sent what only an agent sends".to_owned();
                    return Ok(Attempt::Broken(ModelError::Malformed(message)));
                }
                Some(Ok(event)) => self.take(event)?,
                Some(Err(error)) => return Ok(Attempt::Broken(error)),
                None => {
                    let message = "the model's stream ended before its reply was whole".to_owned();
                    return Ok(Attempt::Broken(ModelError::Transient { message, retry_after: None }));
                }
            }
            deltas += 1;
            if deltas.is_multiple_of(DELTAS_PER_LOOK) {
                tokio::select! {
                    biased;
                    () = &mut cancelled => return Ok(Attempt::Aborted),
                    ready = self.sink.ready() => ready?,
                }
                // A model that never waits must not keep this worker from its other tasks.
                tokio::task::yield_now().await;
            }
        }
    }

    fn take(&mut self, event: ModelEvent) -> Result<(), SinkError> {
        match event {
            ModelEvent::Text(text) if text.is_empty() => Ok(()),
            ModelEvent::Text(text) => {
                self.reply.text.push_str(&text);
                self.sink.emit(EventBody::StreamDelta { text })
            }
            ModelEvent::Reasoning(text) => self.sink.emit(EventBody::StreamReasoning { text }),
            ModelEvent::Call(request) => {
                self.reply.calls.push(Asked { request, problem: None });
                Ok(())
            }
            ModelEvent::BadCall { id, name, problem } => {
                let request = ToolCallRequest { id, name, arguments: serde_json::Map::new() };
                self.reply.calls.push(Asked { request, problem: Some(problem) });
                Ok(())
            }
            ModelEvent::Usage(usage) => {
                self.reply.usage = Some(usage);
                Ok(())
            }
            ModelEvent::Original(original) => {
                self.reply.original = Some(original);
                Ok(())
            }
            ModelEvent::Retrying { attempt, delay, error } => self.forget(attempt, delay, error),
            // Refused before.
            ModelEvent::Agent(_) => Ok(()),
            ModelEvent::Finished(reason) => {
                self.reply.stop = Some(reason);
                Ok(())
            }
        }
    }

    /// What came so far is void; its tokens were spent all the same.
    fn forget(&mut self, attempt: u32, delay: std::time::Duration, error: String) -> Result<(), SinkError> {
        self.spent = plus(self.spent, self.reply.usage.take());
        self.reply = Reply::default();
        let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        let attempt = self.before.saturating_add(attempt);
        self.sink.emit(EventBody::StreamRetry { attempt, delay_ms, error, model: None })
    }
}

pub(super) fn plus(a: Option<Usage>, b: Option<Usage>) -> Option<Usage> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.plus(b)),
        (one, other) => one.or(other),
    }
}
