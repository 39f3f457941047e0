//! The messages of JSON-RPC 2.0 as the protocol uses them: one at a time, never in batches.
//!
//! Pure. Reading looks at the envelope alone; what stands in `params` is read by whoever knows the method.
//!
//! Invariant: whatever comes is a message, or a refusal that can be sent back.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::app::parse_json;
use crate::protocol::{ApiError, ErrorCode};

/// It is no JSON.
const PARSE_ERROR: i64 = -32700;
/// It is no message, or not one that can come now.
const INVALID_REQUEST: i64 = -32600;
/// There is no such method.
const METHOD_NOT_FOUND: i64 = -32601;
/// The parameters are wrong.
const INVALID_PARAMS: i64 = -32602;
/// It failed.
const INTERNAL_ERROR: i64 = -32603;
/// Whoever asked has taken it back.
const REQUEST_CANCELLED: i64 = -32800;
/// Who asks has to show first who it is.
const AUTH_REQUIRED: i64 = -32000;
/// What was named is not there.
const RESOURCE_NOT_FOUND: i64 = -32002;
/// Known, but not for this one. From here on the codes are our own.
const FORBIDDEN: i64 = -32003;
/// It does not fit the present state.
const CONFLICT: i64 = -32009;
/// It is too large.
const TOO_LARGE: i64 = -32013;
/// A limit is reached.
const EXHAUSTED: i64 = -32029;
/// Something that we depend on is not there.
const UNAVAILABLE: i64 = -32050;
/// It took too long.
const TIMEOUT: i64 = -32054;

/// Largest id of a request, in bytes of JSON.
const ID_BYTES_MAX: usize = 1_024;

/// A message that came in.
#[derive(Debug)]
pub(super) enum Incoming {
    /// Wants an answer.
    Request {
        /// Its id.
        id: Value,
        /// What is wanted.
        method: String,
        /// With what.
        params: Params,
    },
    /// Wants none.
    Notification {
        /// What is told.
        method: String,
        /// With what.
        params: Params,
    },
    /// The answer to a request of ours.
    Response {
        /// Our id.
        id: Value,
        /// What came of it. None: it was refused or failed.
        result: Option<Value>,
    },
}

/// What stands beside a method.
#[derive(Debug)]
pub(super) struct Params(Option<Box<RawValue>>);

impl Params {
    /// As a value of a type.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` that names the field and what was expected.
    pub(super) fn read<T: serde::de::DeserializeOwned>(&self) -> Result<T, ApiError> {
        parse_json(self.0.as_ref().map_or(b"{}", |raw| raw.get().as_bytes()), "params")
    }

    /// The session that is named, if one is.
    pub(super) fn session(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct Named {
            #[serde(rename = "sessionId")]
            session_id: String,
        }
        let raw = self.0.as_ref()?;
        serde_json::from_str::<Named>(raw.get()).ok().map(|named| named.session_id)
    }
}

/// An error as it goes out.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RpcError {
    code: i64,
    message: String,
    data: Option<Value>,
}

impl RpcError {
    fn plain(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// A message that cannot come, or not now.
    pub(super) fn invalid_request(message: impl Into<String>) -> Self {
        Self::plain(INVALID_REQUEST, message)
    }

    /// A method that there is not.
    pub(super) fn unknown(method: &str) -> Self {
        Self { data: Some(json!({ "method": clipped(method) })), ..Self::plain(METHOD_NOT_FOUND, "Method not found") }
    }

    /// What was taken back.
    pub(super) fn cancelled() -> Self {
        Self::plain(REQUEST_CANCELLED, "Request cancelled")
    }

    /// As HTTP tells it, where a message is not taken at all.
    pub(super) fn refusal(&self) -> ApiError {
        let code = match self.code {
            EXHAUSTED => ErrorCode::ResourceExhausted,
            _ => ErrorCode::InvalidArgument,
        };
        let details =
            json!({ "field": "body", "expected": "a message that can be taken now", "jsonRpcCode": self.code });
        ApiError::new(code, self.message.clone()).with_details(details)
    }

    /// As it is sent.
    pub(super) fn body(&self) -> Value {
        let mut body = json!({ "code": self.code, "message": self.message });
        if let Some(data) = &self.data {
            body["data"] = data.clone();
        }
        body
    }
}

/// Our own errors keep their code and their facts in `data`.
impl From<ApiError> for RpcError {
    fn from(error: ApiError) -> Self {
        let code = match error.code() {
            ErrorCode::InvalidArgument => INVALID_PARAMS,
            ErrorCode::Unauthorized => AUTH_REQUIRED,
            ErrorCode::Forbidden => FORBIDDEN,
            ErrorCode::NotFound => RESOURCE_NOT_FOUND,
            ErrorCode::Conflict => CONFLICT,
            ErrorCode::ResourceExhausted => EXHAUSTED,
            ErrorCode::PayloadTooLarge => TOO_LARGE,
            ErrorCode::Internal => INTERNAL_ERROR,
            ErrorCode::UpstreamUnavailable => UNAVAILABLE,
            ErrorCode::Timeout => TIMEOUT,
        };
        let mut data = json!({ "code": error.0.code });
        if let Some(details) = error.0.details {
            data["details"] = details;
        }
        Self { code, message: error.0.message, data: Some(data) }
    }
}

/// What is sent back for something that is no message: the id as far as it is known, and why.
pub(super) type Refusal = (Value, RpcError);

/// Reads a message.
///
/// # Errors
/// What is to be sent back.
pub(super) fn read(text: &[u8]) -> Result<Incoming, Refusal> {
    let refuse = |message: &str| Err((Value::Null, RpcError::invalid_request(message)));
    match text.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'[') => return refuse("JSON-RPC batches are not supported"),
        Some(b'{') => {}
        _ if serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok() => {
            return refuse("expected a JSON-RPC message: an object");
        }
        _ => {}
    }
    let envelope: Envelope = match serde_json::from_slice(text) {
        Ok(envelope) => envelope,
        // It is JSON, and a field of the envelope is not what it has to be.
        Err(cause) if cause.is_data() => return refuse(&format!("expected a JSON-RPC message: {cause}")),
        Err(cause) => return Err((Value::Null, RpcError::plain(PARSE_ERROR, format!("Parse error: {cause}")))),
    };
    envelope.sorted()
}

/// The members of a message. An id that is there and null is not the same as none.
#[derive(Deserialize)]
struct Envelope {
    #[serde(default)]
    jsonrpc: Option<Value>,
    #[serde(default, deserialize_with = "there")]
    id: Option<Value>,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    params: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "there")]
    result: Option<Value>,
    #[serde(default)]
    error: Option<Value>,
}

fn there<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl Envelope {
    fn sorted(self) -> Result<Incoming, Refusal> {
        let Self { jsonrpc, id, method, params, result, error } = self;
        let id = match id {
            Some(id) if !is_id(&id) => {
                let expected = format!("expected `id` to be a text or a whole number of at most {ID_BYTES_MAX} bytes");
                return Err((Value::Null, RpcError::invalid_request(expected)));
            }
            id => id,
        };
        let known = id.clone().unwrap_or(Value::Null);
        if jsonrpc.as_ref().and_then(Value::as_str) != Some("2.0") {
            return Err((known, RpcError::invalid_request("expected `jsonrpc` to be \"2.0\"")));
        }
        let params = Params(params.filter(|raw| raw.get() != "null"));
        match (id, method) {
            (Some(id), Some(method)) => Ok(Incoming::Request { id, method, params }),
            (None, Some(method)) => Ok(Incoming::Notification { method, params }),
            (Some(id), None) if result.is_some() || error.is_some() => {
                Ok(Incoming::Response { id, result: result.filter(|_| error.is_none()) })
            }
            _ => Err((known, RpcError::invalid_request("expected a request, a notification or a response"))),
        }
    }
}

fn is_id(id: &Value) -> bool {
    match id {
        Value::Null => true,
        Value::Number(number) => number.is_i64() || number.is_u64(),
        Value::String(text) => text.len() <= ID_BYTES_MAX,
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
    }
}

fn clipped(text: &str) -> &str {
    &text[..text.floor_char_boundary(200)]
}

/// A request, as text.
pub(super) fn request(id: u64, method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
}

/// A notification, as text.
pub(super) fn notification(method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string()
}

/// An answer, as text.
pub(super) fn response(id: &Value, answer: Result<Value, RpcError>) -> String {
    match answer {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string(),
        Err(error) => json!({ "jsonrpc": "2.0", "id": id, "error": error.body() }).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_is_a_message_or_is_refused() {
        let long = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"m"}}"#, "x".repeat(ID_BYTES_MAX + 1));
        let message = |text: &str| match read(text.as_bytes()) {
            Ok(Incoming::Request { id, method, params }) => format!("request {id} {method} {:?}", params.session()),
            Ok(Incoming::Notification { method, .. }) => format!("notification {method}"),
            Ok(Incoming::Response { id, result }) => format!("response {id} {result:?}"),
            Err((id, error)) => format!("{id} {}", error.code),
        };
        #[rustfmt::skip]
        let table = [
            (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"sessionId":"s"}}"#, r#"request 1 m Some("s")"#),
            (r#"{"jsonrpc":"2.0","id":"a","method":"m"}"#, r#"request "a" m None"#),
            (r#"{"jsonrpc":"2.0","id":null,"method":"m","params":null}"#, "request null m None"),
            (r#"{"jsonrpc":"2.0","method":"m"}"#, "notification m"),
            (r#"{"jsonrpc":"2.0","id":1,"result":null}"#, "response 1 Some(Null)"),
            (r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}"#, "response 1 None"),
            (r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#, "response 1 None"),
            ("", "null -32700"), ("{", "null -32700"), ("hello", "null -32700"), ("{\"id\":1}{", "null -32700"),
            ("\u{feff}{}", "null -32700"),
            ("[]", "null -32600"), (r#"[{"jsonrpc":"2.0","id":1,"method":"m"}]"#, "null -32600"),
            ("1", "null -32600"), ("null", "null -32600"), ("\"x\"", "null -32600"),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"m"}"#, "null -32600"),
            (r#"{"jsonrpc":"2.0","id":{},"method":"m"}"#, "null -32600"),
            (&long, "null -32600"),
            (r#"{"id":1,"method":"m"}"#, "1 -32600"), (r#"{"jsonrpc":"1.0","id":1,"method":"m"}"#, "1 -32600"),
            (r#"{"jsonrpc":"2.0","id":1}"#, "1 -32600"), (r#"{"jsonrpc":"2.0"}"#, "null -32600"),
            (r#"{"jsonrpc":"2.0","id":1,"method":2}"#, "null -32600"),
        ];
        for (text, want) in table {
            assert_eq!(message(text), want, "{text}");
        }
    }
}
