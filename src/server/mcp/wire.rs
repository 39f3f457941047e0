//! JSON-RPC as MCP has it: what comes is taken apart, what goes is put together. Knows no method.
//!
//! Invariant: an id is a string or a whole number, and what answers it carries the very same one.

use serde_json::{Map, Value, json};

use crate::protocol::{ApiError, ErrorCode};

/// The versions that are spoken, the newest first. A client that wants another one gets the newest.
pub(super) const VERSIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
/// The first in which a stream begins with an event that is empty.
pub(super) const PRIMED_SINCE: &str = "2025-11-25";
/// The only one in which messages come in lists.
pub(super) const BATCHED: &str = "2025-03-26";

/// What cannot be read as JSON.
pub(super) const PARSE: i64 = -32700;
/// What is no message, or comes at the wrong time.
pub(super) const INVALID_REQUEST: i64 = -32600;
/// No such method.
pub(super) const NO_METHOD: i64 = -32601;
/// Parameters that do not fit.
pub(super) const INVALID_PARAMS: i64 = -32602;
/// A fault of the server, or a limit of it.
pub(super) const INTERNAL: i64 = -32603;
/// No such resource.
pub(super) const NO_RESOURCE: i64 = -32002;
/// No such session of the protocol.
pub(super) const NO_SESSION: i64 = -32001;

/// An error as it is told.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RpcError {
    /// Its number.
    pub(super) code: i64,
    /// Its sentence.
    pub(super) message: String,
    /// More about it.
    pub(super) data: Option<Value>,
}

impl RpcError {
    /// An error without more.
    pub(super) fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// Parameters that do not fit.
    pub(super) fn params(message: impl Into<String>) -> Self {
        Self::new(INVALID_PARAMS, message)
    }

    /// As a member `error`.
    fn value(&self) -> Value {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(data) = &self.data {
            error["data"] = data.clone();
        }
        error
    }
}

impl From<ApiError> for RpcError {
    fn from(error: ApiError) -> Self {
        let code = match error.code() {
            ErrorCode::InvalidArgument => INVALID_PARAMS,
            ErrorCode::NotFound => NO_RESOURCE,
            ErrorCode::Forbidden | ErrorCode::Unauthorized => INVALID_REQUEST,
            ErrorCode::Conflict
            | ErrorCode::PayloadTooLarge
            | ErrorCode::ResourceExhausted
            | ErrorCode::Internal
            | ErrorCode::UpstreamUnavailable
            | ErrorCode::Timeout => INTERNAL,
        };
        let data = serde_json::to_value(&error.0).ok();
        Self { code, message: error.0.message, data }
    }
}

/// A message that came.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Incoming {
    /// Wants an answer.
    Request(Request),
    /// Wants none.
    Notification {
        /// What it is.
        method: String,
        /// Its parameters.
        params: Map<String, Value>,
    },
    /// Answers a request of ours.
    Response {
        /// Which one.
        id: Value,
        /// With what.
        outcome: Result<Value, RpcError>,
    },
}

/// A request that came.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Request {
    /// Its id.
    pub(super) id: Value,
    /// What it wants.
    pub(super) method: String,
    /// Its parameters.
    pub(super) params: Map<String, Value>,
}

impl Request {
    /// A text among the parameters.
    ///
    /// # Errors
    /// When there is none of that name.
    pub(super) fn text(&self, name: &str) -> Result<&str, RpcError> {
        let text = self.params.get(name).and_then(Value::as_str);
        text.ok_or_else(|| RpcError::params(format!("`{name}`: expected a text")))
    }

    /// The token under which the client wants to hear how it goes on.
    pub(super) fn progress_token(&self) -> Option<Value> {
        let token = self.params.get("_meta")?.get("progressToken")?;
        (token.is_string() || is_whole(token)).then(|| token.clone())
    }
}

fn is_whole(value: &Value) -> bool {
    value.is_i64() || value.is_u64()
}

/// The messages of a text: one, or a list of some, which is said too.
///
/// # Errors
/// With the id of what is at fault, as far as it has one.
pub(super) fn read(text: &[u8]) -> Result<(Vec<Incoming>, bool), (Value, RpcError)> {
    let value: Value = serde_json::from_slice(text)
        .map_err(|cause| (Value::Null, RpcError::new(PARSE, format!("not JSON: {cause}"))))?;
    match value {
        Value::Array(list) if list.is_empty() => Err((Value::Null, RpcError::new(INVALID_REQUEST, "an empty list"))),
        Value::Array(list) => Ok((list.into_iter().map(message).collect::<Result<_, _>>()?, true)),
        one => Ok((vec![message(one)?], false)),
    }
}

fn message(value: Value) -> Result<Incoming, (Value, RpcError)> {
    let invalid = |id: Option<&Value>, why: &str| {
        let id = id.filter(|id| id.is_string() || is_whole(id)).cloned().unwrap_or_default();
        (id, RpcError::new(INVALID_REQUEST, why))
    };
    let Value::Object(mut members) = value else { return Err(invalid(None, "expected an object")) };
    let id = members.remove("id");
    if members.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err(invalid(id.as_ref(), "`jsonrpc`: expected \"2.0\""));
    }
    if id.as_ref().is_some_and(|id| !id.is_string() && !is_whole(id)) {
        return Err(invalid(None, "`id`: expected a text or a whole number"));
    }
    let method = match members.remove("method") {
        None => None,
        Some(Value::String(method)) => Some(method),
        Some(_) => return Err(invalid(id.as_ref(), "`method`: expected a text")),
    };
    let params = match members.remove("params") {
        None => Map::new(),
        Some(Value::Object(params)) => params,
        Some(_) => return Err(invalid(id.as_ref(), "`params`: expected an object")),
    };
    match (method, id) {
        (Some(method), Some(id)) => Ok(Incoming::Request(Request { id, method, params })),
        (Some(method), None) => Ok(Incoming::Notification { method, params }),
        (None, Some(id)) => match (members.remove("result"), members.remove("error")) {
            (Some(result), None) => Ok(Incoming::Response { id, outcome: Ok(result) }),
            (None, Some(error)) => Ok(Incoming::Response { id, outcome: Err(told_error(&error)) }),
            (Some(_), Some(_)) | (None, None) => {
                Err(invalid(Some(&id), "expected `method`, or one of `result` and `error`"))
            }
        },
        (None, None) => Err(invalid(None, "expected `method`")),
    }
}

/// An error as somebody told it.
pub(super) fn told_error(error: &Value) -> RpcError {
    let message = error.get("message").and_then(Value::as_str).unwrap_or("no reason given");
    let code = error.get("code").and_then(Value::as_i64).unwrap_or(INTERNAL);
    RpcError { code, message: message.to_owned(), data: error.get("data").cloned() }
}

/// An answer.
pub(super) fn response(id: &Value, outcome: &Result<Value, RpcError>) -> String {
    match outcome {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string(),
        Err(error) => json!({ "jsonrpc": "2.0", "id": id, "error": error.value() }).to_string(),
    }
}

/// A request of ours.
pub(super) fn request(id: u64, method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
}

/// A notification of ours.
pub(super) fn notification(method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_of_three_or_refused() {
        #[rustfmt::skip]
        let table = [
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, "request"),
            (r#"{"jsonrpc":"2.0","id":"a","method":"ping","params":{"x":1}}"#, "request"),
            (r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, "notification"),
            (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, "response"),
            (r#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}"#, "response"),
            ("{", "-32700"), ("[]", "-32600"), ("1", "-32600"), ("{}", "-32600"), ("[1]", "-32600"),
            (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, "-32600"),
            (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, "-32600"),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, "-32600"),
            (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, "-32600"),
            (r#"{"jsonrpc":"2.0","id":1,"method":2}"#, "-32600"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}"#, "-32600"),
            (r#"{"jsonrpc":"2.0","id":1}"#, "-32600"),
            (r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#, "-32600"),
            ("\"\u{0}\"", "-32700"),
        ];
        for (text, want) in table {
            let got = match read(text.as_bytes()) {
                Ok((messages, _)) => match messages.first() {
                    Some(Incoming::Request(_)) => "request".to_owned(),
                    Some(Incoming::Notification { .. }) => "notification".to_owned(),
                    Some(Incoming::Response { .. }) => "response".to_owned(),
                    None => "nothing".to_owned(),
                },
                Err((_, error)) => error.code.to_string(),
            };
            assert_eq!(got, want, "{text}");
        }
    }

    #[test]
    fn a_fault_names_the_message_that_has_it() {
        let (id, error) = read(br#"{"id":"seven","method":"ping"}"#).unwrap_err();
        assert_eq!((id, error.code), (json!("seven"), INVALID_REQUEST));
        let (messages, listed) = read(br#"[{"jsonrpc":"2.0","method":"a"},{"jsonrpc":"2.0","method":"b"}]"#).unwrap();
        assert_eq!((messages.len(), listed), (2, true));
    }
}
