//! The kinds of failures, the same for all wires. Decided by status, type and code, never by the words of a message; the one
//! exception stands in `overflow`.

use std::collections::BTreeMap;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::Value;

use super::overflow::is_overflow;
use crate::base::http::HttpError;
use crate::base::secrets::Secrets;
use crate::model::ModelError;

/// Bytes of an error's body that are looked at.
pub(in crate::provider) const BODY_BYTES_MAX: usize = 64 << 10;
/// Codes and types of errors that say that there is no money or quota left.
const SPENT: [&str; 5] = [
    "insufficient_quota",
    "billing_error",
    "billing_hard_limit_reached",
    "insufficient_credits",
    "usage_limit_reached",
];
/// Codes and types of errors that say that the content is not taken.
const BLOCKED: [&str; 5] = [
    "content_filter",
    "content_policy_violation",
    "image_content_policy_violation",
    "responsible_ai_policy_violation",
    "cyber_policy_violation",
];
/// Codes of errors in a stream that say that the request is not taken as it is. Of images there are many.
const REFUSED: [&str; 8] = [
    "invalid_prompt",
    "model_not_found",
    "empty_image_file",
    "failed_to_download_image",
    "image_file_not_found",
    "image_file_too_large",
    "image_parse_error",
    "unsupported_image_media_type",
];
/// The beginnings of further ones.
const REFUSED_FRONTS: [&str; 3] = ["invalid_image", "invalid_base64_image", "image_too_"];
/// Characters of what cannot be read that are repeated.
const GARBLED_CHARS_MAX: usize = 80;
/// Characters of an error that are repeated.
const SHOWN_CHARS_MAX: usize = 500;

/// Takes the key, and what is secret in the address, out of texts that come from outside.
#[derive(Debug, Clone, Default)]
pub(in crate::provider) struct Redactor(Secrets);

impl Redactor {
    pub fn new(key: Option<&SecretString>, url: &str) -> Self {
        Self::with_headers(key, url, &BTreeMap::new())
    }

    /// The same for an endpoint that is sent further headers.
    pub fn with_headers(key: Option<&SecretString>, url: &str, headers: &BTreeMap<String, String>) -> Self {
        let key = Secrets::of_key(key.map_or("", |key| key.expose_secret()));
        Self(key.and(&Secrets::of_server(url, headers)))
    }

    /// A text as it came, before anything is cut off it.
    pub fn text(&self, text: String) -> String {
        self.0.hidden(text)
    }

    /// A text that is kept and read again: only what no text has by chance is taken out of it.
    pub fn kept(&self, text: String) -> String {
        self.0.distinct().hidden(text)
    }

    /// The same error without them.
    pub fn error(&self, error: ModelError) -> ModelError {
        error.reworded(|text| self.text(text))
    }

    /// Reads JSON of a stream.
    ///
    /// # Errors
    /// [`ModelError::Malformed`] with the beginning of what cannot be read.
    pub fn read<'d, T: Deserialize<'d>>(&self, data: &'d str) -> Result<T, ModelError> {
        serde_json::from_str(data).map_err(|error| {
            let start: String = self.text(data.to_owned()).chars().take(GARBLED_CHARS_MAX).collect();
            self.error(ModelError::Malformed(format!("the model's stream: {error} in `{start}`")))
        })
    }

    /// What an error object says, or an object with one in it.
    pub fn reported(&self, error: &Value) -> ModelError {
        let said = self.text(error.get("error").unwrap_or(error).to_string());
        from_object(&serde_json::from_str(&said).unwrap_or(Value::from(said)))
    }

    /// The same for the data of an event that says by its name that it is an error.
    pub fn told_error(&self, data: &str) -> ModelError {
        self.reported(&serde_json::from_str(data).unwrap_or_else(|_| Value::from(data)))
    }
}

/// A failure below the level of the status.
pub(in crate::provider) fn from_http(error: &HttpError) -> ModelError {
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
pub(in crate::provider) fn from_status(status: u16, retry_after: Option<Duration>, body: &str) -> ModelError {
    let parsed: Option<Value> = serde_json::from_str(body).ok();
    // Google may put its one error into a list.
    let parsed = parsed.as_ref().map(|value| value.get(0).unwrap_or(value));
    let error = parsed.map(|value| value.get("error").unwrap_or(value));
    let said = error.and_then(message_of).unwrap_or_else(|| body.trim().to_owned());
    let said = if said.is_empty() { String::new() } else { format!(": {}", clip(&said)) };
    let text = format!("the model's provider answered with status {status}{said}");
    let word = |field: &str| error.and_then(|e| e.get(field)).and_then(Value::as_str).unwrap_or_default();
    let codes = [word("type"), word("code")];
    let retry_after = retry_after.or_else(|| error.and_then(asked_to_wait));
    match status {
        401 | 403 => ModelError::Unauthorized(text),
        400 if error.is_some_and(is_bad_key) => ModelError::Unauthorized(text),
        400 | 413 | 422 if status == 413 || is_overflow(codes, &said) => ModelError::Overflow(text),
        // No money is no matter of waiting.
        402 | 429 if status == 402 || codes.iter().any(|code| SPENT.contains(code)) => ModelError::Spent(text),
        400 | 422 if codes.iter().any(|code| BLOCKED.contains(code)) => ModelError::Blocked(text),
        // Some answer with 500 where they mean the request.
        500 if is_overflow(codes, &said) => ModelError::Overflow(text),
        408 | 425 | 429 | 500.. => transient(text, retry_after),
        404 => ModelError::Refused(format!("{text} (is the base URL right, and does it have that model?)")),
        300..=399 => ModelError::Refused(format!("{text} (redirects are not followed: is the base URL right?)")),
        _ => ModelError::Refused(text),
    }
}

/// An error object in the middle of a stream, or in a body with a good status.
pub(in crate::provider) fn from_object(error: &Value) -> ModelError {
    let said = message_of(error).unwrap_or_else(|| error.to_string());
    let codes = ["type", "code"].map(|field| error.get(field).and_then(Value::as_str).unwrap_or_default());
    let text = format!("the model's provider reports an error: {}", clip(&said));
    let status = ["code", "status", "status_code"].iter().find_map(|f| error.get(*f)).and_then(as_status);
    if is_overflow(codes, &said) {
        return ModelError::Overflow(text);
    }
    if codes.iter().any(|code| SPENT.contains(code)) {
        return ModelError::Spent(text);
    }
    if codes.iter().any(|code| BLOCKED.contains(code)) {
        return ModelError::Blocked(text);
    }
    if let Some(status) = status {
        return match status {
            402 => ModelError::Spent(text),
            401 | 403 => ModelError::Unauthorized(text),
            408 | 425 | 429 | 500..600 => transient(text, None),
            _ => ModelError::Refused(text),
        };
    }
    match (codes[0], codes[1]) {
        (_, "invalid_api_key") | ("authentication_error" | "permission_error", _) => ModelError::Unauthorized(text),
        ("invalid_request_error" | "not_found_error", _) => ModelError::Refused(text),
        (_, code) if REFUSED.contains(&code) || REFUSED_FRONTS.iter().any(|front| code.starts_with(front)) => {
            ModelError::Refused(text)
        }
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

/// The details of an error, as Google's interfaces give them.
fn details(error: &Value) -> impl Iterator<Item = &Value> {
    error.get("details").and_then(Value::as_array).into_iter().flatten()
}

/// Whether they say that the key is none.
fn is_bad_key(error: &Value) -> bool {
    details(error).any(|detail| detail.get("reason").is_some_and(|reason| reason == "API_KEY_INVALID"))
}

/// How long they ask to wait, such as `3.5s`.
fn asked_to_wait(error: &Value) -> Option<Duration> {
    let seconds =
        details(error).find_map(|detail| detail.get("retryDelay")?.as_str()?.strip_suffix('s')?.parse().ok())?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// What an error object says to people. Providers differ in where.
fn message_of(error: &Value) -> Option<String> {
    let fields = ["message", "detail", "error", "title"];
    let text = error.as_str().or_else(|| fields.iter().find_map(|field| error.get(*field)?.as_str()))?;
    let text = text.trim();
    // What a router was told by whom it asked says more than its own words.
    let raw = error.get("metadata").and_then(|more| more.get("raw")).and_then(Value::as_str).map(str::trim);
    match raw.filter(|raw| !raw.is_empty()) {
        Some(raw) => Some(format!("{text}: {raw}")),
        None => (!text.is_empty()).then(|| text.to_owned()),
    }
}

fn clip(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A stream that ended too early.
pub(in crate::provider) fn cut_short() -> ModelError {
    transient("the model's stream ended before its reply was whole".to_owned(), None)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_an_error_is_where_servers_put_it_elsewhere() {
        let routed = json!({ "error": { "code": 400, "message": "Provider returned error",
            "metadata": { "raw": "{\"error\":{\"message\":\"prompt is too long: 9 tokens > 8 maximum\"}}" } } });
        #[rustfmt::skip]
        let table = [
            (400, routed.clone(), "context_overflow", "prompt is too long"),
            (400, json!([{ "error": { "code": 400, "message": "API key not valid", "status": "INVALID_ARGUMENT" } }]), "refused", "API key not valid"),
            (400, json!({ "error": "The number of tokens to keep from the initial prompt is greater than the context length" }), "context_overflow", "greater than"),
            (400, json!({ "object": "error", "message": "This model's maximum context length is 8 tokens.", "type": "BadRequestError", "code": 400 }), "context_overflow", "maximum"),
            (400, json!({ "detail": "no" }), "refused", "status 400: no"),
            (429, json!({ "error": { "code": "insufficient_quota", "message": "pay" } }), "quota", "pay"),
            (500, json!({ "error": { "code": 500, "message": "context size has been exceeded", "type": "server_error" } }), "context_overflow", "exceeded"),
            (413, json!({ "error": { "message": "too large" } }), "context_overflow", "too large"),
            (500, json!({ "error": {} }), "transient", "status 500"),
        ];
        for (status, body, kind, words) in table {
            let error = from_status(status, None, &body.to_string());
            assert_eq!(error.kind(), kind, "{body}");
            assert!(error.to_string().contains(words), "{error}");
        }
        assert_eq!(from_object(&routed["error"]).kind(), "context_overflow");
    }
}
