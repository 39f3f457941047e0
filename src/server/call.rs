//! One request as its handler gets it, and the reading of its body.
//!
//! Invariant: a body is read only within `body_bytes_max` and `body_timeout`, and only as JSON. What the head alone
//! shows to be wrong is answered before any of it has come.

use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use axum::http::{HeaderMap, request};
use http_body::Body as _;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::Instant;

use super::Shared;
use super::answer::Failure;
use super::guard::strip_expected;
use super::query::Query;
use crate::app::Caller;
use crate::protocol::{ApiError, ErrorCode};

/// How long the rest of a refused body is taken in, so that its sender gets to read the refusal.
const DRAIN: Duration = Duration::from_secs(2);

/// One request.
pub(crate) struct Call {
    /// The server's parts.
    pub(crate) shared: Arc<Shared>,
    /// Who calls.
    pub(crate) caller: Caller,
    /// Method, path, headers.
    pub(crate) head: request::Parts,
    path: Vec<(String, String)>,
    body: Body,
}

impl FromRequest<Arc<Shared>> for Call {
    type Rejection = Failure;

    async fn from_request(request: Request, shared: &Arc<Shared>) -> Result<Self, Failure> {
        let (mut head, body) = request.into_parts();
        let path = match RawPathParams::from_request_parts(&mut head, shared).await {
            Ok(path) => path.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            // `*`, which is no path: no route was asked.
            Err(RawPathParamsRejection::MissingPathParams(_)) => Vec::new(),
            Err(_) => return Err(ApiError::invalid("path", "percent-encoded UTF-8").into()),
        };
        let caller = head.extensions.remove::<Caller>();
        let caller = caller.ok_or_else(|| ApiError::internal("a request came past the guard"))?;
        Ok(Self { shared: Arc::clone(shared), caller, head, path, body })
    }
}

impl Call {
    /// An id in the path.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` when it cannot be one.
    pub(crate) fn id<T: FromStr<Err: Display>>(&self, name: &str) -> Result<T, ApiError> {
        let text = self.path.iter().find(|(n, _)| n == name).map_or("", |(_, value)| value.as_str());
        text.parse().map_err(|cause| ApiError::invalid(name, strip_expected(&cause)))
    }

    /// The query.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`.
    pub(crate) fn query(&self) -> Result<Query, ApiError> {
        Query::of(&self.head.uri)
    }

    /// Refuses any query: for routes that know none.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`.
    pub(crate) fn no_query(&self) -> Result<(), ApiError> {
        self.query()?.finish(&[])
    }

    /// Takes the body in. An empty one counts as `{}`.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub(crate) async fn json<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        let body = std::mem::take(&mut self.body);
        if let Err(failure) = check_head(&self.head.headers, self.shared.options.body_bytes_max) {
            drain(&self.head.headers, body, &self.shared);
            return Err(failure);
        }
        let bytes = read(&self.head.headers, body, &self.shared).await?;
        check_type(&self.head.headers, !bytes.is_empty())?;
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        Ok(parse(text)?)
    }
}

/// What can be refused before the body is there.
fn check_head(headers: &HeaderMap, bytes_max: usize) -> Result<(), Failure> {
    check_type(headers, false)?;
    let codings = headers.get_all(CONTENT_ENCODING).iter();
    if codings.into_iter().any(|coding| !coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity")) {
        return Err(Failure::with_status(ApiError::invalid("Content-Encoding", "none: the plain text of JSON"), 415));
    }
    let announced = headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()).and_then(|v| v.parse::<u64>().ok());
    if announced.is_some_and(|bytes| bytes > bytes_max as u64) {
        return Err(Failure::from(too_large(bytes_max)).closing());
    }
    Ok(())
}

/// A content type that is not JSON is refused; so is a body without one.
fn check_type(headers: &HeaderMap, needed: bool) -> Result<(), ApiError> {
    let expected = || ApiError::invalid("Content-Type", "application/json");
    let Some(given) = headers.get(CONTENT_TYPE) else {
        return if needed { Err(expected()) } else { Ok(()) };
    };
    let text = given.to_str().map_err(|_| expected())?;
    let essence = text.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") { Ok(()) } else { Err(expected()) }
}

async fn read(headers: &HeaderMap, body: Body, shared: &Shared) -> Result<Vec<u8>, Failure> {
    let deadline = Instant::now() + shared.options.body_timeout;
    match tokio::time::timeout_at(deadline, collect(headers, body, shared)).await {
        Ok(outcome) => outcome,
        Err(_) => {
            let wait_ms = shared.options.body_timeout.as_millis();
            let message = format!("the body did not arrive within {wait_ms} ms");
            Err(Failure::with_status(ApiError::new(ErrorCode::Timeout, message), 408).closing())
        }
    }
}

async fn collect(headers: &HeaderMap, mut body: Body, shared: &Shared) -> Result<Vec<u8>, Failure> {
    let bytes_max = shared.options.body_bytes_max;
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Failure::from(broken_off()).closing())?;
        let Some(data) = frame.data_ref() else { continue };
        if bytes.len() + data.len() > bytes_max {
            drain(headers, body, shared);
            return Err(Failure::from(too_large(bytes_max)).closing());
        }
        bytes.extend_from_slice(data);
    }
    Ok(bytes)
}

fn broken_off() -> ApiError {
    ApiError::invalid("body", "a whole body in chunks that can be read, or as long as `Content-Length` says")
}

/// Takes in some more of a body that is refused, beside the refusal: who is still sending gets to read it, where
/// closing the connection would throw it away. Ends with the connection.
pub(super) fn drain(headers: &HeaderMap, mut body: Body, shared: &Shared) {
    // Who asks first has not sent anything yet.
    if headers.contains_key(EXPECT) || body.is_end_stream() {
        return;
    }
    let mut left = shared.options.body_bytes_max;
    tokio::spawn(tokio::time::timeout(DRAIN, async move {
        while let Some(Ok(frame)) = body.frame().await {
            let Some(rest) = left.checked_sub(frame.data_ref().map_or(0, bytes::Bytes::len)) else { break };
            left = rest;
        }
    }));
}

fn too_large(bytes_max: usize) -> ApiError {
    ApiError::new(ErrorCode::PayloadTooLarge, format!("the body is larger than {bytes_max} bytes")).with_details(
        json!({ "field": "body", "expected": format!("at most {bytes_max} bytes"), "bytesMax": bytes_max }),
    )
}

/// JSON text as a value of a type.
fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, ApiError> {
    let first = text.iter().find(|b| !b.is_ascii_whitespace());
    // Lists would do for serde, field by field; and what is no JSON at all says so below.
    let other = || serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok();
    if first == Some(&b'[') || (first != Some(&b'{') && other()) {
        return Err(ApiError::invalid("body", "a JSON object"));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| refused(text, &error))?;
    deserializer.end().map_err(|cause| broken(&cause))?;
    Ok(value)
}

fn broken(cause: &serde_json::Error) -> ApiError {
    ApiError::new(ErrorCode::InvalidArgument, format!("the body is not valid JSON: {cause}")).with_details(
        json!({ "field": "body", "expected": "a JSON object", "line": cause.line(), "column": cause.column() }),
    )
}

/// What serde did not like, as a field and what it expected.
fn refused(body: &[u8], error: &serde_path_to_error::Error<serde_json::Error>) -> ApiError {
    let cause = error.inner();
    let path = error.path().to_string();
    if !cause.is_data() {
        // Where a name is due and something else stands, serde_json speaks of the syntax.
        let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok();
        return if is_json && path != "." {
            ApiError::invalid(&path, "a string that is one of its names")
        } else {
            broken(cause)
        };
    }
    let text = cause.to_string();
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
    let inside = |name: &str| match path.as_str() {
        "." => name.to_owned(),
        path if path == name || path.ends_with(&format!(".{name}")) => path.to_owned(),
        path => format!("{path}.{name}"),
    };
    let quoted = |prefix: &str| text.strip_prefix(prefix).and_then(|rest| rest.split('`').next());
    let (field, expected) = if let Some(name) = quoted("missing field `") {
        (inside(name), "to be there".to_owned())
    } else if let Some(name) = quoted("unknown field `") {
        let known = text.split_once("expected ").map_or("no such field", |(_, known)| known);
        (inside(name), format!("{known} (there is no `{name}`)"))
    } else if let Some(name) = quoted("duplicate field `") {
        (inside(name), "one value, not several".to_owned())
    } else {
        let field = if path == "." { "body".to_owned() } else { path };
        match text.split_once("expected ") {
            Some(("", expected)) => (field, in_words(expected).to_owned()),
            Some((got, expected)) => (field, format!("{}; {}", in_words(expected), got.trim_end_matches([',', ' ']))),
            None => (field, text.to_owned()),
        }
    };
    ApiError::invalid(&field, expected)
}

/// What serde expected, without the names of our types.
fn in_words(expected: &str) -> &str {
    match expected {
        "a sequence" => "a list",
        "a map" => "an object",
        "path string" => "a path",
        "u16" | "u32" | "u64" | "usize" => "a whole number, 0 or more",
        other if other.starts_with("struct ") || other.starts_with("internally tagged enum ") => "an object",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{CreateSession, Feedback, Prompt};

    fn fault<T: DeserializeOwned>(text: &str) -> (String, String) {
        let error = parse::<T>(text.as_bytes()).err().unwrap_or_else(|| panic!("accepted: {text}"));
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{text}");
        let details = error.0.details.unwrap();
        (details["field"].as_str().unwrap().to_owned(), details["expected"].as_str().unwrap().to_owned())
    }

    #[test]
    fn the_field_and_what_was_expected_are_named() {
        #[rustfmt::skip]
        let table = [
            (fault::<Prompt>(r#"{"prompt":5}"#), "prompt", "a text, or a list of parts; invalid type: integer `5`"),
            (fault::<Prompt>("{}"), "prompt", "to be there"),
            (fault::<Prompt>(r#"{"promt":"x"}"#), "promt", "one of `prompt`, `mode`, `configure`, `ifVersion` (there is no `promt`)"),
            (fault::<Prompt>(r#"{"prompt":"x","mode":"later"}"#), "mode", "one of `queue`, `steer`, `reject`; unknown variant `later`"),
            (fault::<Prompt>(r#"{"prompt":"x","ifVersion":-1}"#), "ifVersion", "a whole number, 0 or more; invalid value: integer `-1`"),
            (fault::<Prompt>(r#"{"prompt":"x","mode":5}"#), "mode", "a string that is one of its names"),
            (fault::<Prompt>(r#"{"prompt":"x","mode":null}"#), "mode", "a string that is one of its names"),
            (fault::<Prompt>(r#"{"prompt":"x","mode":{}}"#), "mode", "a string that is one of its names"),
            (fault::<Prompt>(r#"{"prompt":"x","prompt":"y"}"#), "prompt", "one value, not several"),
            (fault::<Prompt>(r#"{"prompt":"x","configure":5}"#), "configure", "an object; invalid type: integer `5`"),
            (fault::<Prompt>(r#"{"prompt":[5]}"#), "prompt[0]", "an object; invalid type: integer `5`"),
            (fault::<CreateSession>(r#"{"tools":5}"#), "tools", "a list; invalid type: integer `5`"),
            (fault::<CreateSession>(r#"{"toolPermissions":{"defaultPolicy":"ask","rules":[{"tool":"*","policy":"ask","category":7}]}}"#), "toolPermissions.rules[0].category", "a category, or a list of categories"),
            (fault::<Feedback>(r#"{"decision":true}"#), "decision", "a string that is one of its names"),
            (fault::<Prompt>(r#"{"prompt":"x","configure":{"model":1}}"#), "configure.model", "a string; invalid type: integer `1`"),
            (fault::<Prompt>(r#"{"prompt":[{"type":"text"}]}"#), "prompt[0].text", "to be there"),
            (fault::<CreateSession>(r#"{"sessionId":"a/b"}"#), "sessionId", "1 to 256 letters, digits, `_`, `-` or `.`, and neither `.` nor `..`; got 3 bytes"),
            (fault::<CreateSession>(r#"{"toolPermissions":{"rules":[]}}"#), "toolPermissions.defaultPolicy", "to be there"),
            (fault::<CreateSession>(r#"{"toolPermissions":{"defaultPolicy":"ask","rules":[{"tool":"*","policy":"maybe"}]}}"#), "toolPermissions.rules[0].policy", "one of `allow`, `ask`, `deny`; unknown variant `maybe`"),
            (fault::<Feedback>(r#"{"allowed":"yes"}"#), "allowed", "a boolean; invalid type: string \"yes\""),
            (fault::<Feedback>("[]"), "body", "a JSON object"),
            (fault::<Feedback>("null"), "body", "a JSON object"),
            (fault::<Feedback>("{"), "body", "a JSON object"),
            (fault::<Feedback>("{}x"), "body", "a JSON object"),
            (fault::<Feedback>("\u{feff}{}"), "body", "a JSON object"),
            (fault::<Feedback>(&"[".repeat(100_000)), "body", "a JSON object"),
        ];
        let wrong = table.iter().filter(|((field, expected), f, e)| (field.as_str(), expected.as_str()) != (*f, *e));
        assert_eq!(wrong.collect::<Vec<_>>(), Vec::<&((String, String), &str, &str)>::new());
    }
}
