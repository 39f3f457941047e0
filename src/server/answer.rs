//! What goes back: JSON answers, and the one error envelope around everything that failed.

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::protocol::{ApiError, ErrorCode, ErrorEnvelope};

/// An error on its way to the client.
#[derive(Debug)]
pub(crate) struct Failure {
    error: ApiError,
    status: u16,
}

/// What a handler gives back.
pub(crate) type Answer = Result<Response, Failure>;

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        let status = error.code().status();
        Self { error, status }
    }
}

impl Failure {
    /// The same error under a status that says more about HTTP than its code does (405, 408).
    pub(crate) fn with_status(error: ApiError, status: u16) -> Self {
        Self { error, status }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let code = self.error.code();
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = json(status, &ErrorEnvelope { error: self.error.0 });
        match code {
            ErrorCode::ResourceExhausted => {
                response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            ErrorCode::Unauthorized => {
                response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            ErrorCode::InvalidArgument
            | ErrorCode::Forbidden
            | ErrorCode::NotFound
            | ErrorCode::Conflict
            | ErrorCode::PayloadTooLarge
            | ErrorCode::Internal
            | ErrorCode::UpstreamUnavailable
            | ErrorCode::Timeout => {}
        }
        response
    }
}

/// A JSON answer that no cache keeps.
pub(crate) fn json<T: Serialize>(status: StatusCode, value: &T) -> Response {
    let (status, bytes) = match serde_json::to_vec(value) {
        Ok(bytes) => (status, bytes),
        Err(cause) => {
            tracing::error!(%cause, "an answer could not be written as JSON");
            let text = br#"{"error":{"code":"INTERNAL","message":"the answer could not be written as JSON"}}"#;
            (StatusCode::INTERNAL_SERVER_ERROR, text.to_vec())
        }
    };
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A JSON answer of status 200.
pub(crate) fn ok<T: Serialize>(value: &T) -> Answer {
    Ok(json(StatusCode::OK, value))
}
