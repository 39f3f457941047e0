//! Which method does what. Each answers with its result or an error of the protocol; what fails inside a tool is a result.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::fixtures;
use super::peer::{LEVELS, Lane, Peer};
use super::wire::{INVALID_REQUEST, NO_METHOD, Request, RpcError};
use super::{calls, hello, resources, sessions, tools};

/// What came of a request.
pub(super) type Outcome = Result<Value, RpcError>;

/// Answers a request.
pub(super) async fn answer(peer: &Arc<Peer>, request: &Request, lane: &Lane) -> Outcome {
    match (request.method.as_str(), peer.hello().is_some()) {
        ("ping", _) => return Ok(json!({})),
        ("initialize", _) => return hello::answer(peer, request),
        (_, false) => return Err(RpcError::new(INVALID_REQUEST, "not initialized: `initialize` comes first")),
        (_, true) => {}
    }
    if peer.fixtures
        && let Some(outcome) = fixtures::answer(peer, request, lane).await
    {
        return outcome;
    }
    match request.method.as_str() {
        "logging/setLevel" => set_level(peer, request),
        "tools/list" => tools::list(peer, request).await,
        "tools/call" => call(peer, request, lane).await,
        "resources/list" => resources::list(peer, request).await,
        "resources/templates/list" => resources::templates(peer, request),
        "resources/read" => resources::read(peer, request.text("uri")?).await,
        "resources/subscribe" => resources::subscribe(peer, request.text("uri")?).await,
        "resources/unsubscribe" => resources::unsubscribe(peer, request.text("uri")?),
        "completion/complete" => resources::complete(peer, request).await,
        other => Err(RpcError::new(NO_METHOD, format!("no method `{other}`"))),
    }
}

fn set_level(peer: &Peer, request: &Request) -> Outcome {
    let wanted = request.text("level")?;
    let level = LEVELS.iter().position(|level| *level == wanted);
    let level = level.ok_or_else(|| RpcError::params(format!("`level`: expected one of {}", LEVELS.join(", "))))?;
    peer.set_level(level);
    Ok(json!({}))
}

/// A tool that is called: of the sessions', or of a session's.
async fn call(peer: &Arc<Peer>, request: &Request, lane: &Lane) -> Outcome {
    let name = request.text("name")?;
    let arguments = match request.params.get("arguments") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(arguments)) => arguments.clone(),
        Some(_) => return Err(RpcError::params("`arguments`: expected an object")),
    };
    let called = Called { name, arguments, progress: request.progress_token() };
    match sessions::Tool::named(name) {
        Some(tool) => tool.run(peer, called, lane).await,
        None => match peer.app.tools().into_iter().find(|tool| tools::wire_name(&tool.name) == name) {
            Some(tool) => calls::run(peer, Called { name: &tool.name, ..called }, lane).await,
            None => Err(RpcError::params(format!("Unknown tool: {name}"))),
        },
    }
}

/// A call of a tool, as it came.
pub(super) struct Called<'a> {
    pub(super) name: &'a str,
    pub(super) arguments: Map<String, Value>,
    pub(super) progress: Option<Value>,
}

/// A part of a list, from where the cursor says, and the cursor behind it.
pub(super) fn page<T>(all: Vec<T>, request: &Request, most: usize) -> Result<(Vec<T>, Option<String>), RpcError> {
    let begin = match request.params.get("cursor") {
        None | Some(Value::Null) => 0,
        Some(cursor) => cursor
            .as_str()
            .and_then(|text| text.parse::<usize>().ok())
            .filter(|begin| *begin > 0)
            .ok_or_else(|| RpcError::params("`cursor`: expected the `nextCursor` of the page before"))?,
    };
    let end = begin.saturating_add(most).min(all.len());
    let next = (end < all.len()).then(|| end.to_string());
    Ok((all.into_iter().skip(begin).take(most).collect(), next))
}

/// A list as it is answered with.
pub(super) fn listed(name: &str, items: Vec<Value>, next: Option<String>) -> Value {
    let mut result = json!({ name: items });
    if let Some(next) = next {
        result["nextCursor"] = next.into();
    }
    result
}
