//! The kinds of failures of this wire. Decided by status, type and code, never by the words of a message.

use std::collections::BTreeMap;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use crate::base::http::HttpError;
use crate::base::secrets::Secrets;
use crate::model::ModelError;

/// Bytes of an error's body that are looked at.
pub(super) const BODY_BYTES_MAX: usize = 64 << 10;
/// Characters of an error that are repeated.
const SHOWN_CHARS_MAX: usize = 500;

/// Takes the key, and what is secret in the address, out of texts that come from outside.
#[derive(Debug, Clone, Default)]
pub(super) struct Redactor(Secrets);

impl Redactor {
    pub fn new(key: Option<&SecretString>, url: &str) -> Self {
        let key = Secrets::of_key(key.map_or("", |key| key.expose_secret()));
        Self(key.and(&Secrets::of_server(url, &BTreeMap::new())))
    }

    /// A text as it came, before anything is cut off it.
    pub fn text(&self, text: String) -> String {
        self.0.hidden(text)
    }

    /// The same error without them.
    pub fn error(&self, error: ModelError) -> ModelError {
        match error {
            ModelError::Transient { message, retry_after } => {
                ModelError::Transient { message: self.text(message), retry_after }
            }
            ModelError::Unauthorized(text) => ModelError::Unauthorized(self.text(text)),
            ModelError::Refused(text) => ModelError::Refused(self.text(text)),
            ModelError::Malformed(text) => ModelError::Malformed(self.text(text)),
            ModelError::Unavailable(text) => ModelError::Unavailable(self.text(text)),
            ModelError::Aborted => ModelError::Aborted,
        }
    }
}

/// A failure below the level of the status.
pub(super) fn from_http(error: &HttpError) -> ModelError {
    match error {
        HttpError::BadUrl(_) | HttpError::BadHeader(_) | HttpError::Setup(_) => {
            ModelError::Unavailable(error.to_string())
        }
        HttpError::Connect { .. } | HttpError::Cut { .. } | HttpError::Silent { .. } => {
            transient(format!("the model: {error}"), None)
        }
    }
}

/// A status that is no success.
pub(super) fn from_status(status: u16, retry_after: Option<Duration>, body: &str) -> ModelError {
    let parsed: Option<Value> = serde_json::from_str(body).ok();
    let error = parsed.as_ref().map(|v| v.get("error").unwrap_or(v));
    let said = error.and_then(message_of).unwrap_or_else(|| body.trim().to_owned());
    let said = if said.is_empty() { String::new() } else { format!(": {}", clip(&said)) };
    let text = format!("the model's provider answered with status {status}{said}");
    let spent = error.and_then(|e| e.get("code")).and_then(Value::as_str) == Some("insufficient_quota");
    match status {
        401 | 403 => ModelError::Unauthorized(text),
        // No money is no matter of waiting.
        429 if spent => ModelError::Refused(text),
        408 | 425 | 429 | 500.. => transient(text, retry_after),
        404 => ModelError::Refused(format!("{text} (is the base URL right, and does it have that model?)")),
        300..=399 => ModelError::Refused(format!("{text} (redirects are not followed: is the base URL right?)")),
        _ => ModelError::Refused(text),
    }
}

/// An error object in the middle of a stream, or in a body with a good status.
pub(super) fn from_object(error: &Value) -> ModelError {
    let said = message_of(error).unwrap_or_else(|| error.to_string());
    let text = format!("the model's provider reports an error: {}", clip(&said));
    let code = error.get("code");
    let status = ["code", "status", "status_code"].iter().find_map(|f| error.get(*f)).and_then(as_status);
    let word = |field: &str| error.get(field).and_then(Value::as_str).unwrap_or_default();
    if let Some(status) = status {
        return match status {
            401 | 403 => ModelError::Unauthorized(text),
            408 | 425 | 429 | 500..600 => transient(text, None),
            _ => ModelError::Refused(text),
        };
    }
    match (word("type"), code.and_then(Value::as_str).unwrap_or_default()) {
        (_, "invalid_api_key") | ("authentication_error" | "permission_error", _) => ModelError::Unauthorized(text),
        (_, "insufficient_quota" | "context_length_exceeded" | "model_not_found")
        | ("invalid_request_error" | "insufficient_quota" | "not_found_error", _) => ModelError::Refused(text),
        // The request was good enough to begin with an answer: what broke it may pass.
        _ => transient(text, None),
    }
}

fn transient(message: String, retry_after: Option<Duration>) -> ModelError {
    ModelError::Transient { message, retry_after }
}

fn as_status(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok()).filter(|status| (300..600).contains(status))
}

/// What an error object says to people. Providers differ in where.
fn message_of(error: &Value) -> Option<String> {
    let fields = ["message", "detail", "error", "title"];
    let text = error.as_str().or_else(|| fields.iter().find_map(|field| error.get(*field)?.as_str()))?;
    (!text.trim().is_empty()).then(|| text.trim().to_owned())
}

fn clip(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
