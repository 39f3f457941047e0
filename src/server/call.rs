//! One request as its handler gets it, and the reading of its body.
//!
//! Invariant: a body is read only within `body_bytes_max` and `body_timeout`, as the room of all allows, and only as JSON. What the head alone
//! shows to be wrong is answered before any of it has come.

use std::fmt::Display;
use std::ops::Deref;
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
use super::headers::single;
use super::intake::Share;
use super::log::Route;
use super::query::Query;
use crate::app::{Caller, parse_json};
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

/// A body that was taken in. It has its part of the room of all until it is dropped.
pub(super) struct Taken {
    bytes: Vec<u8>,
    share: Share,
}

impl Deref for Taken {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
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
        Route::learn(&head.extensions);
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
        text.parse().map_err(|cause| ApiError::unread(name, &cause))
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
        let bytes = self.bytes().await?;
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        Ok(parse_json(text, "body")?)
    }

    /// Takes the body in as it stands: JSON, as its type says, or nothing.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) async fn bytes(&mut self) -> Result<Taken, Failure> {
        let body = std::mem::take(&mut self.body);
        if let Err(failure) = check_head(&self.head.headers, self.shared.options.body_bytes_max) {
            drain(&self.head.headers, body, &self.shared);
            return Err(failure);
        }
        let bytes = read(&self.head.headers, body, &self.shared).await?;
        check_type(&self.head.headers, !bytes.is_empty())?;
        Ok(bytes)
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
    let Some(text) = single(headers, &CONTENT_TYPE)? else {
        return if needed { Err(expected()) } else { Ok(()) };
    };
    let essence = text.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") { Ok(()) } else { Err(expected()) }
}

/// Takes a body in for another server: whole, whatever it says of its type, which is looked at there.
///
/// # Errors
/// What is wrong with it.
pub(super) async fn take_in(headers: &HeaderMap, body: Body, shared: &Shared) -> Result<Taken, Failure> {
    let announced = headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()).and_then(|v| v.parse::<u64>().ok());
    let bytes_max = shared.options.body_bytes_max;
    if announced.is_some_and(|bytes| bytes > bytes_max as u64) {
        drain(headers, body, shared);
        return Err(Failure::from(too_large(bytes_max)).closing());
    }
    read(headers, body, shared).await
}

async fn read(headers: &HeaderMap, body: Body, shared: &Shared) -> Result<Taken, Failure> {
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

async fn collect(headers: &HeaderMap, mut body: Body, shared: &Shared) -> Result<Taken, Failure> {
    let bytes_max = shared.options.body_bytes_max;
    let mut taken = Taken { bytes: Vec::new(), share: Share::of(&shared.intake) };
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Failure::from(broken_off()).closing())?;
        let Some(data) = frame.data_ref() else { continue };
        if taken.len() + data.len() > bytes_max {
            drain(headers, body, shared);
            return Err(Failure::from(too_large(bytes_max)).closing());
        }
        if taken.share.grow(data.len()).is_err() {
            drain(headers, body, shared);
            return Err(Failure::from(shared.intake.full("body")).closing());
        }
        taken.bytes.extend_from_slice(data);
    }
    Ok(taken)
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
