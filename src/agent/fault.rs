//! Why a turn fails, in one word for programs (`kind` in an error's `details`). Beside these there are the kinds of a model's own
//! errors ([`ModelError::kind`]). All of them stand in docs/errors.md; `tests/tidy.rs` checks that none is missing.

use serde_json::json;

use crate::model::{ModelError, StopReason};
use crate::protocol::{ErrorBody, ErrorCode};

/// The final text of a turn whose model said nothing (typescript-api.md §7).
pub(super) const NO_RESPONSE: &str = "No response received from model.";

/// What a turn fails with whose model has not failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// Its model cannot be held to a schema.
    NoStructuredOutput,
    /// Its answer does not fit.
    OutputInvalid,
    /// Its answer does not fit: the model did not want to answer.
    Refusal,
    /// The same: the provider cut it.
    ContentFilter,
    /// The same: the model reached its limit of tokens.
    MaxTokens,
    /// The model said nothing.
    Blank,
    /// The model cannot be brought out of its circles.
    Loop,
    /// The provider pauses the reply again and again.
    Paused,
    /// The conversation is not summed up.
    NotCompacted,
}

impl Fault {
    /// Its word.
    fn kind(self) -> &'static str {
        match self {
            Self::NoStructuredOutput => "no_structured_output",
            Self::OutputInvalid => "output_invalid",
            Self::Refusal => "refusal",
            Self::ContentFilter => "content_filter",
            Self::MaxTokens => "max_tokens",
            Self::Blank => "blank",
            Self::Loop => "loop",
            Self::Paused => "pause_turn",
            Self::NotCompacted => "not_compacted",
        }
    }

    /// It as the turn's error.
    pub(super) fn told(self, message: String) -> ErrorBody {
        let code = match self {
            Self::NoStructuredOutput | Self::NotCompacted => ErrorCode::Conflict,
            Self::OutputInvalid
            | Self::Refusal
            | Self::ContentFilter
            | Self::MaxTokens
            | Self::Blank
            | Self::Loop
            | Self::Paused => ErrorCode::UpstreamUnavailable,
        };
        ErrorBody { code, message, details: Some(json!({ "kind": self.kind() })) }
    }
}

/// A model's error as the turn's.
pub(super) fn model_failure(error: &ModelError) -> ErrorBody {
    let details = Some(json!({ "kind": error.kind() }));
    ErrorBody { code: ErrorCode::UpstreamUnavailable, message: error.to_string(), details }
}

/// A reply was paused so often, and no longer goes on.
pub(super) fn endless(pauses: usize) -> ErrorBody {
    Fault::Paused.told(format!("the model's provider paused its reply {pauses} times, and it has no end"))
}

/// The model said nothing, and stopped for that reason.
pub(super) fn no_response(stop: Option<StopReason>) -> ErrorBody {
    let why = match stop {
        Some(StopReason::Length) => "length",
        Some(StopReason::ContentFilter) => "content_filter",
        Some(StopReason::Refusal) => "refusal",
        Some(StopReason::EndTurn) => "end_turn",
        Some(StopReason::ToolUse) => "tool_use",
        Some(StopReason::Paused) => "pause_turn",
        None => "none_given",
    };
    let details = Some(json!({ "kind": Fault::Blank.kind(), "stopReason": why }));
    ErrorBody { details, ..Fault::Blank.told(NO_RESPONSE.to_owned()) }
}
