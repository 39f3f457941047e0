//! Writes over HTTP: each is a command (contract.md, Commands), with `Idempotency-Key` as its key and `If-Match` as the
//! version that it expects.

use axum::http::header::ETAG;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::answer::{Failure, REPLAYED, json};
use super::call::Call;
use super::headers::{etag, expected_version, single};
use crate::app::{Command, Request};
use crate::protocol::{ApiError, SessionId};

const KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// What a write has come to.
#[derive(Debug)]
pub(crate) struct Done {
    data: Box<RawValue>,
    version: Option<u64>,
    /// Whether it was done before.
    pub(crate) replayed: bool,
}

impl Call {
    /// Reads the body and does what it asks.
    ///
    /// # Errors
    /// What is wrong with the request, or why it was not done.
    pub(crate) async fn write(&mut self, kind: &'static str, session: Option<SessionId>) -> Result<Done, Failure> {
        let body = self.bytes().await?;
        self.carry_out(kind, session, (Vec::new(), &body)).await
    }

    /// Does what a request asks whose fields stand in its path.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub(crate) async fn carry_out(
        &mut self,
        kind: &'static str,
        session: Option<SessionId>,
        (fields, body): (Vec<(&'static str, Value)>, &[u8]),
    ) -> Result<Done, Failure> {
        let headers = &self.head.headers;
        let key = single(headers, &KEY)?.map(str::to_owned);
        let if_version = expected_version(headers)?;
        let command = Command::of_request(Request { kind, session, key, if_version, fields, body })?;
        let handled = self.shared.app.submit(self.caller.clone(), command).end().await;
        let outcome = &handled.outcome;
        match (&outcome.data, &outcome.error) {
            (Some(data), None) => {
                Ok(Done { data: data.clone(), version: outcome.session_version, replayed: handled.replayed })
            }
            (_, Some(error)) => Err(Failure::from(ApiError(error.clone())).replayed(handled.replayed)),
            (None, None) => Err(ApiError::internal("the command has no outcome").into()),
        }
    }
}

impl Done {
    /// As an answer.
    pub(crate) fn respond(&self, status: StatusCode) -> Response {
        let mut response = json(status, &self.data);
        self.mark(&mut response);
        response
    }

    /// Says in the head of an answer whether it is a replay, and the session's version.
    pub(crate) fn mark(&self, response: &mut Response) {
        let headers = response.headers_mut();
        if self.replayed {
            headers.insert(REPLAYED, HeaderValue::from_static("true"));
        }
        if let Some(version) = self.version {
            headers.insert(ETAG, etag(version));
        }
    }

    /// The answer as a value.
    ///
    /// # Errors
    /// When it is not what this version of the program gives.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        let read = serde_json::from_str(self.data.get());
        read.map_err(|cause| ApiError::internal(format!("a stored outcome cannot be read: {cause}")))
    }
}
