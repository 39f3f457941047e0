//! One turn: rounds with the model until it calls no more tools.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::call::CallEnvironment;
use super::{Sink, Steering};
use crate::model::Model;
use crate::model::retry::RetryPolicy;
use crate::protocol::{ErrorBody, Message, Usage};

/// What a turn needs.
pub struct TurnInput {
    /// The model.
    pub model: Arc<dyn Model>,
    /// The system text.
    pub system: String,
    /// The conversation; the new user message is its last entry.
    pub messages: Vec<Message>,
    /// Tools, permission and hooks.
    pub environment: CallEnvironment,
    /// Takes the events: `loop.*`, `stream.*`, `tool.*`, `turn.complete`, `session.steer`.
    pub sink: Arc<dyn Sink>,
    /// Messages that arrive while it runs.
    pub steering: Arc<dyn Steering>,
    /// Rounds with the model, at most.
    pub iterations_max: u32,
    /// How often and when a broken stream is tried again.
    pub retry: RetryPolicy,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Ended {
    /// With an answer.
    Completed,
    /// By its cancellation token.
    Aborted,
    /// At the limit of rounds.
    IterationLimit,
    /// By an error.
    Failed(ErrorBody),
}

/// What came of a turn.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnOutcome {
    /// How it ended.
    pub ended: Ended,
    /// The model's last text.
    pub final_text: String,
    /// The whole conversation, this turn's part included: what the next turn starts from.
    pub messages: Vec<Message>,
    /// Rounds with the model.
    pub rounds: u32,
    /// Tokens of all rounds.
    pub usage: Usage,
}

/// Runs a turn to its end. Emits no terminal event: the session does that.
pub async fn run_turn(input: TurnInput, cancel: CancellationToken) -> TurnOutcome {
    todo!()
}
