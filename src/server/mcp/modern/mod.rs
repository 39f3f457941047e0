//! Requests of 2026-07-28: each says by itself which version it speaks and what its client can, and belongs to no session of the
//! protocol.
//!
//! What the server has to ask meanwhile ends the request with a result that says so (`input_required`); the call goes on waiting
//! here, and the client's next request brings the answers and the call's name (`requestState`). Calls of a client that says the
//! same of itself share a session of ours, as those of an older client do (`calls`).
//!
//! - `said`: what a request says of itself, and whether its headers say the same. `exchange`: its way to its answer. `listen`:
//!   what a client is told by itself. `told`: how answers are put. `pipe`: the same over a pipe.
//!
//! Invariants: nothing is taken from a request for the next one but what that one names; a call's name is good for the caller who
//! was told it, for the same request, and once; a line that breaks takes its request back.

mod exchange;
mod listen;
mod pipe;
mod said;
mod told;

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName};
use axum::response::Response;
use serde_json::Value;

use self::exchange::Exchange;
pub(super) use self::exchange::{CALLED, Parking};
pub(super) use self::listen::{SUBSCRIPTION, over};
pub(super) use self::pipe::Piped;
use self::said::Said;
pub(super) use self::said::{headers, repeat, repeated};
use super::wire::{NO_METHOD, Request, RpcError};
use crate::app::Caller;
use crate::protocol::SessionId;
use crate::server::Shared;
use crate::server::call::Call;
use crate::server::headers::single;

/// The version.
pub(super) const MODERN: &str = "2026-07-28";
/// Headers and members do not say the same.
pub(super) const HEADER_MISMATCH: i64 = -32020;
/// The client does not offer what the request needs.
pub(super) const NO_CAPABILITY: i64 = -32021;
/// A version that is not spoken.
pub(super) const UNSUPPORTED: i64 = -32022;

const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// What older versions have and this one has not.
const REMOVED: [&str; 5] = ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"];

/// Whether a message speaks this version, or wants one that nobody knows: then it is refused as this version refuses.
pub(super) fn is_meant(call: &Call, request: &Request) -> bool {
    if said::names_version(request) {
        return true;
    }
    let headers = &call.head.headers;
    let in_session = !matches!(single(headers, &SESSION), Ok(None));
    matches!(single(headers, &VERSION), Ok(Some(version)) if !in_session && !super::wire::VERSIONS.contains(&version))
}

/// Where a request came from.
pub(super) struct Came {
    shared: Arc<Shared>,
    caller: Caller,
    headers: HeaderMap,
}

impl Came {
    /// As a call says.
    pub(super) fn with(call: &Call) -> Self {
        Self { shared: Arc::clone(&call.shared), caller: call.caller.clone(), headers: call.head.headers.clone() }
    }
}

/// Answers a request.
pub(super) async fn answer(came: Came, bound: Option<SessionId>, request: Request) -> Response {
    let id = request.id.clone();
    match begun(&came, bound, request).await {
        Ok(response) => response,
        Err(error) => told::failed(&id, &error),
    }
}

async fn begun(came: &Came, bound: Option<SessionId>, request: Request) -> Result<Response, RpcError> {
    let said = Said::read(&request)?;
    said.check_headers(&came.headers, &request)?;
    refuse_removed(&request)?;
    if let Some(id) = &bound {
        came.shared.app.session(&came.caller, id).await?;
    }
    if request.method == "subscriptions/listen" {
        return listen::open(came, (&said, bound), &request).await;
    }
    let peer = came.shared.mcp.stateless(&came.shared.app, (&came.caller, bound), (&said.hello, said.level))?;
    if request.method == "server/discover" {
        return Ok(told::done(&request.id, &request.method, told::discovered(&peer)));
    }
    said::check_parameters(&peer, &came.headers, &request)?;
    let exchange = Exchange::open(peer, request)?;
    Ok(exchange.respond(&came.shared).await)
}

fn refuse_removed(request: &Request) -> Result<(), RpcError> {
    if REMOVED.contains(&request.method.as_str()) {
        return Err(RpcError::new(NO_METHOD, format!("no method `{}` in {MODERN}", request.method)));
    }
    Ok(())
}

/// The value of a member of `_meta`.
fn meta<'a>(request: &'a Request, name: &str) -> Option<&'a Value> {
    request.params.get("_meta")?.get(name)
}
