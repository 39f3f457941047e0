//! What a client of 2026-07-28 is told by itself (`subscriptions/listen`): a request whose answer is a stream of notifications.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::response::Response;
use futures_util::stream;
use serde_json::{Map, Value, json};
use tokio_util::task::AbortOnDropHandle;

use super::Came;
use super::said::Said;
use super::told;
use crate::protocol::SessionId;
use crate::server::Shared;
use crate::server::mcp::peer::Peer;
use crate::server::mcp::resources;
use crate::server::mcp::stream::Reader;
use crate::server::mcp::wire::{self, Request, RpcError};
use crate::server::mcp::{fixtures, watch};
use crate::server::sse::{self, STILL_HERE};

/// Kinds of changes, as they are asked for and as they are told.
const LISTS: [(&str, &str); 2] = [
    ("toolsListChanged", "notifications/tools/list_changed"),
    ("resourcesListChanged", "notifications/resources/list_changed"),
];
const UPDATED: &str = "notifications/resources/updated";
/// The member of `_meta` that says for which request something is told.
pub(in crate::server::mcp) const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// What somebody hears who listens, however it is told.
pub(super) struct Ear {
    peer: Arc<Peer>,
    reader: Reader,
    id: Value,
    wanted: Vec<&'static str>,
    first: Option<Value>,
    _watching: Vec<AbortOnDropHandle<()>>,
}

/// Somebody who listens over a line of his own. Nobody else has this client: with the line it ends.
struct Listener {
    shared: Arc<Shared>,
    ear: Ear,
    over: bool,
    _open: crate::base::metrics::Entered,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.shared.mcp.remove(&self.ear.peer);
    }
}

/// Opens a stream of what is asked for.
pub(super) async fn open(
    came: &Came,
    (said, bound): (&Said, Option<SessionId>),
    request: &Request,
) -> Result<Response, RpcError> {
    let peer = came.shared.mcp.make(&came.shared.app, (&came.caller, bound))?;
    let ear = match Ear::open(&peer, (said, request)).await {
        Ok(ear) => ear,
        Err(error) => {
            came.shared.mcp.remove(&peer);
            return Err(error);
        }
    };
    let (shared, open) = (Arc::clone(&came.shared), came.shared.app.meters().streams.enter());
    let listener = Listener { shared, ear, over: false, _open: open };
    let frames = stream::unfold(listener, |mut listener| async move {
        let piece = listener.piece().await?;
        Some((Ok::<_, Infallible>(piece), listener))
    });
    Ok(sse::response(Body::from_stream(frames)))
}

impl Ear {
    /// Takes in what is asked for, and says first what of it is given.
    ///
    /// # Errors
    /// When that cannot be read.
    pub(super) async fn open(peer: &Arc<Peer>, (said, request): (&Said, &Request)) -> Result<Self, RpcError> {
        let filter = request.params.get("notifications").and_then(Value::as_object);
        let filter = filter.ok_or_else(|| RpcError::params("`notifications`: expected an object"))?;
        peer.greet(said.hello.clone())?;
        let mut ear = Self {
            reader: peer.standing.read(0),
            id: request.id.clone(),
            wanted: Vec::new(),
            first: None,
            _watching: watch::lists(peer).await.into_iter().chain(fixtures::watch(peer)).collect(),
            peer: Arc::clone(peer),
        };
        ear.subscribe(filter).await?;
        Ok(ear)
    }

    async fn subscribe(&mut self, filter: &Map<String, Value>) -> Result<(), RpcError> {
        let mut given = Map::new();
        for (asked, told) in LISTS {
            if filter.get(asked).and_then(Value::as_bool) == Some(true) {
                self.wanted.push(told);
                given.insert(asked.to_owned(), true.into());
            }
        }
        let mut uris = Vec::new();
        for uri in filter.get("resourceSubscriptions").and_then(Value::as_array).into_iter().flatten() {
            let uri = uri
                .as_str()
                .ok_or_else(|| RpcError::params("`notifications.resourceSubscriptions`: expected texts"))?;
            // What is not there is left out of what is given.
            if resources::subscribe(&self.peer, uri).await.is_ok() {
                uris.push(uri);
            }
        }
        if !uris.is_empty() {
            self.wanted.push(UPDATED);
            given.insert("resourceSubscriptions".to_owned(), uris.into());
        }
        let method = "notifications/subscriptions/acknowledged";
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": { "notifications": given } });
        self.first = Some(self.tagged(message));
        Ok(())
    }

    fn tagged(&self, mut message: Value) -> Value {
        message["params"]["_meta"][SUBSCRIPTION] = self.id.clone();
        message
    }

    /// What is heard next. None: nothing more. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Value> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        loop {
            let (_, text) = self.reader.next().await?;
            self.peer.touch();
            let message: Value = serde_json::from_str(&text).unwrap_or_default();
            if self.wanted.iter().any(|wanted| message["method"] == *wanted) {
                return Some(self.tagged(message));
            }
        }
    }

    /// The answer to who listened, when there is nothing more.
    pub(super) fn end(&self) -> Value {
        serde_json::from_str(&over(&self.id)).unwrap_or_default()
    }
}

/// The answer to who listened.
pub(in crate::server::mcp) fn over(id: &Value) -> String {
    let mut result = told::result("subscriptions/listen", json!({}));
    result["_meta"][SUBSCRIPTION] = id.clone();
    wire::response(id, &Ok(result))
}

impl Listener {
    async fn piece(&mut self) -> Option<Bytes> {
        if self.over {
            return None;
        }
        let framed = |message: Value| Bytes::from(format!("data: {message}\n\n"));
        tokio::select! {
            biased;
            message = self.ear.next() => Some(framed(message?)),
            () = self.shared.streams.cancelled() => {
                self.over = true;
                Some(framed(self.ear.end()))
            }
            () = tokio::time::sleep(self.shared.options.heartbeat) => {
                self.ear.peer.touch();
                Some(STILL_HERE)
            }
        }
    }
}
