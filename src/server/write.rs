//! Writes over HTTP: each is a command (contract.md, Commands), with `Idempotency-Key` as its key and `If-Match` as the
//! version that it expects.

use axum::http::header::{ETAG, IF_MATCH};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::answer::{Failure, REPLAYED, json};
use super::call::Call;
use super::guard::single;
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

/// A session's version, as a header says it.
pub(crate) fn etag(version: u64) -> HeaderValue {
    HeaderValue::try_from(format!("\"{version}\"")).unwrap_or(HeaderValue::from_static("*"))
}

/// `If-Match`: the version that the session must have. `*` asks for none.
fn expected_version(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    let Some(text) = single(headers, &IF_MATCH)? else { return Ok(None) };
    let bare = text.strip_prefix("W/").unwrap_or(text);
    let bare = bare.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(bare);
    match bare.parse() {
        Ok(version) => Ok(Some(version)),
        Err(_) if text == "*" => Ok(None),
        Err(_) => Err(ApiError::invalid("If-Match", "the version of a session, such as \"3\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_in_every_form_that_headers_have() {
        let table = [("3", Ok(Some(3))), ("\"3\"", Ok(Some(3))), ("W/\"3\"", Ok(Some(3))), ("*", Ok(None))];
        let refused = ["", "x", "\"x\"", "-1", "\"3", "3, 4"].map(|text| (text, Err(())));
        for (text, want) in table.into_iter().chain(refused) {
            let headers = HeaderMap::from_iter([(IF_MATCH, HeaderValue::from_str(text).expect("visible"))]);
            assert_eq!(expected_version(&headers).map_err(drop), want, "{text}");
        }
        assert_eq!(expected_version(&HeaderMap::new()), Ok(None));
    }
}
