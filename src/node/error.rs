//! Errors on their way to JavaScript: `\u{1}simse:` and `{code, message, data}` in JSON, which `js/errors.cjs` revives.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Makes an error that arrives in JavaScript with its code and its facts.
pub(super) fn envelope(code: &str, message: impl Into<String>, data: Value) -> napi::Error {
    let body = json!({ "code": code, "message": message.into(), "data": data });
    napi::Error::from_reason(format!("\u{1}simse:{body}"))
}

/// Reads what a facade hands over as JSON; says where it does not fit.
pub(super) fn parse<T: DeserializeOwned>(what: &str, text: &str) -> napi::Result<T> {
    // The place is looked for only where something does not fit: it costs more than the reading.
    if let Ok(read) = serde_json::from_str(text) {
        return Ok(read);
    }
    let mut source = serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(&mut source).map_err(|e| {
        let (path, message) = (e.path().to_string(), e.inner().to_string());
        let issues = json!({ "issues": [{ "path": path, "message": message }] });
        envelope("CONFIG_VALIDATION", format!("{what}: {path}: {message}"), issues)
    })
}

/// Writes what crosses to JavaScript as JSON. Plain data with string keys: it cannot fail.
pub(super) fn to_json<T: serde::Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| String::from("null"))
}
