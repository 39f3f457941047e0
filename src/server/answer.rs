//! What goes back: JSON answers, and the one error envelope around everything that failed.

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::headers::REQUEST_ID;
use crate::base::clock;
use crate::protocol::{ApiError, ErrorCode, ErrorEnvelope};

/// Says that this answer was given before, or beside this request, and that nothing was done for it.
pub(crate) const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// An error on its way to the client.
#[derive(Debug)]
pub(crate) struct Failure {
    error: ApiError,
    status: u16,
    closes: bool,
    replayed: bool,
}

/// What a handler gives back.
pub(crate) type Answer = Result<Response, Failure>;

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        let status = error.code().status();
        Self { error, status, closes: false, replayed: false }
    }
}

impl Failure {
    /// The same error under a status that says more about HTTP than its code does (405, 408).
    pub(crate) fn with_status(error: ApiError, status: u16) -> Self {
        Self { error, status, closes: false, replayed: false }
    }

    /// The same, as the last word on its connection.
    pub(crate) fn closing(self) -> Self {
        Self { closes: true, ..self }
    }

    /// The same, as the answer to something that was answered before.
    pub(crate) fn replayed(self, replayed: bool) -> Self {
        Self { replayed, ..self }
    }

    /// Its status.
    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    /// Its sentence.
    pub(crate) fn reason(&self) -> &str {
        &self.error.0.message
    }

    /// The whole answer in the bytes of HTTP/1.1, for where no request came in that hyper could answer.
    pub(crate) fn raw(self, id: &HeaderValue) -> Vec<u8> {
        let (status, headers, body) = self.parts();
        let mut bytes = format!("HTTP/1.1 {status}\r\n").into_bytes();
        let own = [
            ("content-length", HeaderValue::from(body.len())),
            ("date", HeaderValue::try_from(clock::http_date()).unwrap_or(HeaderValue::from_static(""))),
            (REQUEST_ID, id.clone()),
        ];
        let all = headers.iter().map(|(name, value)| (name.as_str(), value));
        for (name, value) in all.chain(own.iter().map(|(name, value)| (*name, value))) {
            bytes.extend_from_slice(&[name.as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(&body);
        bytes
    }

    fn parts(self) -> (StatusCode, HeaderMap, Vec<u8>) {
        let code = self.error.code();
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let wait = seconds_to_wait(&self.error);
        let (status, body) = encode(status, &ErrorEnvelope { error: self.error.0 });
        let mut headers = json_headers();
        let mut add = |name, value| drop(headers.insert(name, value));
        match code {
            ErrorCode::ResourceExhausted => add(RETRY_AFTER, HeaderValue::from(wait)),
            ErrorCode::Unauthorized => add(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")),
            ErrorCode::InvalidArgument
            | ErrorCode::Forbidden
            | ErrorCode::NotFound
            | ErrorCode::Conflict
            | ErrorCode::PayloadTooLarge
            | ErrorCode::Internal
            | ErrorCode::UpstreamUnavailable
            | ErrorCode::Timeout => {}
        }
        if self.closes {
            add(CONNECTION, HeaderValue::from_static("close"));
        }
        if self.replayed {
            headers.insert(REPLAYED, HeaderValue::from_static("true"));
        }
        (status, headers, body)
    }
}

/// After how long what is refused for now is worth another try: when a budget begins anew, else soon.
fn seconds_to_wait(error: &ApiError) -> u64 {
    let details = error.0.details.as_ref();
    let resets_at = details.and_then(|details| details["budget"]["resetsAt"].as_u64());
    resets_at.map_or(1, |at| at.saturating_sub(clock::now_ms()).div_ceil(1_000).max(1))
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let (status, headers, body) = self.parts();
        respond(status, headers, body)
    }
}

/// A JSON answer that no cache keeps.
pub(crate) fn json<T: Serialize>(status: StatusCode, value: &T) -> Response {
    let (status, body) = encode(status, value);
    respond(status, json_headers(), body)
}

/// JSON that is written already.
pub(crate) fn written(json: &'static [u8]) -> Response {
    let mut response = Response::new(Body::from(json));
    *response.headers_mut() = json_headers();
    response
}

fn encode<T: Serialize>(status: StatusCode, value: &T) -> (StatusCode, Vec<u8>) {
    match serde_json::to_vec(value) {
        Ok(bytes) => (status, bytes),
        Err(cause) => {
            tracing::error!(%cause, "an answer could not be written as JSON");
            let text = br#"{"error":{"code":"INTERNAL","message":"the answer could not be written as JSON"}}"#;
            (StatusCode::INTERNAL_SERVER_ERROR, text.to_vec())
        }
    }
}

fn json_headers() -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(4);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers
}

fn respond(status: StatusCode, headers: HeaderMap, body: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// A JSON answer of status 200.
pub(crate) fn ok<T: Serialize>(value: &T) -> Answer {
    Ok(json(StatusCode::OK, value))
}
