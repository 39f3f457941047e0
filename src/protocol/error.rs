//! The one error envelope that every door speaks: `{"error": {"code", "message", "details"}}`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::client::TokenRole;
use super::id::SessionId;

/// The stable codes (contract.md). Each has one HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ErrorCode {
    /// The request is not valid; `details` names the field and what was expected.
    InvalidArgument,
    /// No token, or a wrong one.
    Unauthorized,
    /// Known caller, but not this.
    Forbidden,
    /// Nothing by that name that this caller may see.
    NotFound,
    /// The request does not fit the present state.
    Conflict,
    /// A limit is reached; try again later.
    ResourceExhausted,
    /// The body is larger than the limit.
    PayloadTooLarge,
    /// Our fault.
    Internal,
    /// Something that this server depends on is not there (a model, an agent).
    UpstreamUnavailable,
    /// It took too long.
    Timeout,
}

impl ErrorCode {
    /// The HTTP status that goes with the code.
    pub fn status(self) -> u16 {
        match self {
            Self::InvalidArgument => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::Conflict => 409,
            Self::PayloadTooLarge => 413,
            Self::ResourceExhausted => 429,
            Self::Internal => 500,
            Self::UpstreamUnavailable => 503,
            Self::Timeout => 504,
        }
    }
}

/// Longest text of an error in bytes, about.
const TEXT_BYTES_MAX: usize = 1_500;

/// What went wrong, in the form that crosses the wire and goes into `session.error`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorBody {
    /// Stable code.
    pub code: ErrorCode,
    /// One sentence for a person.
    pub message: String,
    /// Facts for a program: usually `{field, expected}`. Absent when there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
}

/// The envelope around [`ErrorBody`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorEnvelope {
    /// The error.
    pub error: ErrorBody,
}

/// An error that a door can hand to its caller as it is.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{}", .0.message)]
pub struct ApiError(pub ErrorBody);

impl ApiError {
    /// An error with a code and a sentence.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self(ErrorBody { code, message: clipped(message.into()), details: None })
    }

    /// `INVALID_ARGUMENT` that names the field and what was expected.
    pub fn invalid(field: &str, expected: impl Into<String>) -> Self {
        let (field, expected) = (clipped(field.to_owned()), clipped(expected.into()));
        let mut error = Self::new(ErrorCode::InvalidArgument, format!("`{field}`: expected {expected}"));
        error.0.details = Some(serde_json::json!({ "field": field, "expected": expected }));
        error
    }

    /// The same where something came that does not belong there. Only the sentence tells of that.
    pub fn unfit(field: &str, expected: impl Into<String>, came: impl std::fmt::Display) -> Self {
        let mut error = Self::invalid(field, expected);
        error.0.message = clipped(format!("{}, got {came}", error.0.message));
        error
    }

    /// The same error about a value that came in another field than the one it names.
    #[must_use]
    pub fn in_field(mut self, names: &str, came_in: &str) -> Self {
        if let Some(Value::String(field)) = self.0.details.as_mut().and_then(|details| details.get_mut("field"))
            && field == names
        {
            came_in.clone_into(field);
            self.0.message = clipped(self.0.message.replacen(&format!("`{names}`"), &format!("`{came_in}`"), 1));
        }
        self
    }

    /// The same of a text that is none of its kind, where `cause` says: expected this; got that.
    pub fn unread(field: &str, cause: &impl std::fmt::Display) -> Self {
        let text = cause.to_string();
        let expected = text.strip_prefix("expected ").unwrap_or(&text);
        match expected.rsplit_once("; got ") {
            Some((expected, came)) => Self::unfit(field, expected, came),
            None => Self::invalid(field, expected),
        }
    }

    /// `NOT_FOUND` of a thing of a kind, such as `session ses_1`.
    pub fn not_found(what: impl std::fmt::Display) -> Self {
        Self::new(ErrorCode::NotFound, format!("no {what}"))
    }

    /// `CONFLICT` with a sentence.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Conflict, message)
    }

    /// `FORBIDDEN` to a token of `role`; `least` would do.
    pub fn role_needed(role: TokenRole, least: TokenRole) -> Self {
        let enough: Vec<&str> = TokenRole::ALL.into_iter().filter(|role| *role >= least).map(TokenRole::name).collect();
        let expected = format!("a token whose role is {}", enough.join(" or "));
        Self::new(ErrorCode::Forbidden, format!("this token's role is {role}: expected {expected}"))
            .with_details(serde_json::json!({ "field": "Authorization", "expected": expected }))
    }

    /// `FORBIDDEN` to a token that is for this session alone.
    pub fn confined(session: &SessionId) -> Self {
        let expected = "a token that is not for one session alone";
        Self::new(ErrorCode::Forbidden, format!("this token is for session {session} alone, and not for this"))
            .with_details(serde_json::json!({ "field": "Authorization", "expected": expected }))
    }

    /// `INTERNAL` with a sentence.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Internal, message)
    }

    /// The same error with facts added.
    #[must_use]
    pub fn with_details(mut self, details: Value) -> Self {
        self.0.details = Some(details);
        self
    }

    /// The same error about the field `name`, where it is about `was`: callers have another name for it.
    #[must_use]
    pub fn with_field(mut self, was: &str, name: &str) -> Self {
        if let Some(field) = self.0.details.as_mut().and_then(|details| details.get_mut("field"))
            && *field == was
        {
            *field = name.into();
        }
        self
    }

    /// The code.
    pub fn code(&self) -> ErrorCode {
        self.0.code
    }
}

/// What a caller sent may stand in an error, and is not sent back whole.
fn clipped(mut text: String) -> String {
    if text.len() > TEXT_BYTES_MAX {
        let all = text.len();
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        text.push_str(&format!("… ({all} bytes)"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_is_not_sent_back_whole() {
        let long = "é".repeat(100_000);
        let error = ApiError::unfit(&long, "a name", format!("`{long}`"));
        let whole = serde_json::to_string(&error.0).expect("JSON");
        assert!(whole.len() < 4 * TEXT_BYTES_MAX, "{} bytes", whole.len());
        assert!(whole.contains("bytes)"), "{whole}");
        let error = ApiError::unfit("f", "a name", format!("`{long}`"));
        assert!(error.0.message.starts_with("`f`: expected a name, got `é"), "{error}");
        assert_eq!(ApiError::not_found("session x").0.message, "no session x");
    }
}
