//! What a tool can ask of a model of ours while it works: an answer to a conversation of its own.
//!
//! A turn fills [`Sampler`]; tools reach it over their [`Line`](super::Line). Fails closed: each request is held against the rules of
//! the session like a call, under a name of its own, and asked of its clients where they say so.

use tokio_util::sync::CancellationToken;

use crate::base::BoxFuture;
use crate::protocol::Message;

/// A conversation that wants an answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SampleRequest {
    /// By which name rules know it.
    pub name: String,
    /// Who asks, for people.
    pub who: String,
    /// The call that it belongs to.
    pub call_id: String,
    /// The system text; empty for none.
    pub system: String,
    /// The conversation, oldest first; the last one speaks for the user.
    pub messages: Vec<Message>,
    /// Tokens of the answer, at most.
    pub tokens_max: u32,
    /// Texts before which the answer ends.
    pub stops: Vec<String>,
    /// Parts of the ids of models that are preferred, the dearest first.
    pub hints: Vec<String>,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sampled {
    /// The model that gave it.
    pub model: String,
    /// What it said.
    pub text: String,
    /// Why it ended.
    pub stop: SampleStop,
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampleStop {
    /// It was whole.
    End,
    /// It was as long as it may be.
    Tokens,
    /// One of the texts came before which it ends.
    Sequence,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotSampled {
    /// It is not allowed.
    #[error("it is not allowed: {0}")]
    Denied(String),
    /// No model gave one.
    #[error("{0}")]
    Failed(String),
    /// Nobody waits for it any more.
    #[error("aborted")]
    Aborted,
}

/// Has models answer.
pub trait Sampler: Send + Sync + 'static {
    /// Asks whether it may, and then a model. Ends soon after `cancel` fires.
    fn sample<'a>(
        &'a self,
        request: SampleRequest,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Sampled, NotSampled>>;
}
