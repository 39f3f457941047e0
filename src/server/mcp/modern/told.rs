//! How answers of 2026-07-28 are put: of which type a result is, how long it may be kept, who says it, and the status of HTTP.

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use serde_json::{Value, json};

use super::{HEADER_MISMATCH, MODERN, NO_CAPABILITY, UNSUPPORTED};
use crate::server::mcp::hello;
use crate::server::mcp::peer::Peer;
use crate::server::mcp::wire::{
    self, INVALID_PARAMS, INVALID_REQUEST, NO_METHOD, NO_RESOURCE, PARSE, RpcError, VERSIONS,
};

/// How long lists may be kept: they change with tool servers and sessions.
const LIST_TTL_MS: u64 = 5_000;
/// Results that may be kept, and for how long. All of them are the caller's own.
const KEPT: [(&str, u64); 6] = [
    ("tools/list", LIST_TTL_MS),
    ("prompts/list", LIST_TTL_MS),
    ("resources/list", LIST_TTL_MS),
    ("resources/templates/list", LIST_TTL_MS),
    ("resources/read", 0),
    ("server/discover", LIST_TTL_MS),
];

/// What `server/discover` answers with.
pub(super) fn discovered(peer: &Peer) -> Value {
    let versions: Vec<&str> = std::iter::once(MODERN).chain(VERSIONS).collect();
    json!({
        "supportedVersions": versions,
        "capabilities": hello::offers(peer),
        "instructions": hello::INSTRUCTIONS,
    })
}

/// A result as it is told.
pub(super) fn result(method: &str, mut result: Value) -> Value {
    let Some(members) = result.as_object_mut() else { return result };
    members.entry("resultType").or_insert_with(|| "complete".into());
    if let Some((_, ttl)) = KEPT.iter().find(|(kept, _)| *kept == method) {
        members.insert("ttlMs".into(), (*ttl).into());
        members.insert("cacheScope".into(), "private".into());
    }
    let meta = members.entry("_meta").or_insert_with(|| json!({}));
    meta["io.modelcontextprotocol/serverInfo"] = hello::server();
    result
}

/// An error as it is told: a resource that is not there has the code of parameters that do not fit.
pub(super) fn error(mut error: RpcError) -> RpcError {
    if error.code == NO_RESOURCE {
        error.code = INVALID_PARAMS;
    }
    error
}

/// A result as an answer.
pub(super) fn done(id: &Value, method: &str, value: Value) -> Response {
    json_of(StatusCode::OK, wire::response(id, &Ok(result(method, value))))
}

/// An error as an answer, of a request that came no further.
pub(super) fn failed(id: &Value, told: &RpcError) -> Response {
    let told = error(told.clone());
    json_of(refused(told.code), wire::response(id, &Err(told)))
}

/// The status of an answer that is whole.
pub(super) fn status(message: &Value) -> StatusCode {
    match message["error"]["code"].as_i64() {
        Some(NO_METHOD) => StatusCode::NOT_FOUND,
        Some(HEADER_MISMATCH | NO_CAPABILITY | UNSUPPORTED) => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

fn refused(code: i64) -> StatusCode {
    match code {
        NO_METHOD => StatusCode::NOT_FOUND,
        PARSE | INVALID_REQUEST | INVALID_PARAMS | HEADER_MISMATCH | NO_CAPABILITY | UNSUPPORTED => {
            StatusCode::BAD_REQUEST
        }
        _ => StatusCode::OK,
    }
}

/// An answer in JSON.
pub(super) fn json_of(status: StatusCode, text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
