//! The protocol over HTTP, at `/acp`: `POST initialize` opens a connection, `POST` takes every other message, `GET` reads the
//! connection's stream or a session's, `DELETE` ends the connection. A `GET` that wants to become a WebSocket does.
//!
//! Who posts never waits for what it reads: a `POST` is answered when its message is taken, and what comes of it goes to the
//! streams.
//!
//! Invariants: a connection is its caller's alone, and nobody else learns that it is there. One that nobody reads and nobody
//! posts to ends by itself.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{ACCEPT, UPGRADE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use futures_util::stream;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::Peer;
use super::outlet::Outlet;
use super::rpc::{self, Incoming};
use super::streams::{Frame, Reader, Streams, Unread};
use crate::app::{App, Caller};
use crate::base::limit;
use crate::base::metrics::Entered;
use crate::protocol::{ApiError, ErrorCode};
use crate::server::answer::{Answer, Failure, json as json_answer};
use crate::server::call::Call;
use crate::server::headers::{last_event_id, single};
use crate::server::{Shared, sse, ws};

/// What names the connection of a client.
pub(in crate::server) const CONNECTION: HeaderName = HeaderName::from_static("acp-connection-id");
/// Names a session.
const SESSION: HeaderName = HeaderName::from_static("acp-session-id");
/// Longest name of a session in a header.
const SESSION_BYTES_MAX: usize = 1_024;

/// The connections that are open.
#[derive(Default)]
pub(in crate::server) struct Connections(Mutex<HashMap<String, Arc<Connection>>>);

/// A connection of a client over HTTP.
struct Connection {
    caller: Caller,
    peer: Peer,
    streams: Arc<Streams>,
    /// Messages are taken one after the other.
    order: tokio::sync::Mutex<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.streams.close();
    }
}

impl Connections {
    fn find(&self, call: &Call) -> Result<(String, Arc<Connection>), Failure> {
        let id = single(&call.head.headers, &CONNECTION)?;
        let id =
            id.ok_or_else(|| ApiError::invalid("Acp-Connection-Id", "the id that `initialize` was answered with"))?;
        let found = self.0.lock().get(id).filter(|connection| connection.caller == call.caller).cloned();
        let found = found.filter(|connection| !connection.streams.closed().is_cancelled());
        Ok((id.to_owned(), found.ok_or_else(|| ApiError::not_found("ACP connection of that id"))?))
    }

    /// How many are open.
    pub(in crate::server) fn count(&self) -> usize {
        self.0.lock().len()
    }

    fn add(&self, app: &App, connection: Arc<Connection>) -> Result<String, ApiError> {
        let mut open = self.0.lock();
        if open.len() >= limit::ACP_CONNECTIONS_MAX {
            let message = format!("{} ACP connections are open already", limit::ACP_CONNECTIONS_MAX);
            return Err(ApiError::new(ErrorCode::ResourceExhausted, message));
        }
        let id = app.named_here(&uuid::Uuid::new_v4().simple().to_string());
        open.insert(id.clone(), connection);
        Ok(id)
    }

    fn remove(&self, id: &str) {
        drop(self.0.lock().remove(id));
    }
}

/// Takes a message.
pub(in crate::server) async fn post(mut call: Call) -> Answer {
    call.no_query()?;
    let body = call.bytes().await?;
    let incoming = match rpc::read(&body) {
        Ok(incoming) => incoming,
        Err((_, error)) => return Err(error.refusal().into()),
    };
    let opens = matches!(&incoming, Incoming::Request { method, .. } if method == "initialize");
    if opens && !call.head.headers.contains_key(&CONNECTION) {
        return initialize(&call, incoming);
    }
    let (_, connection) = call.shared.acp.find(&call)?;
    check_session(&call.head.headers, &incoming)?;
    connection.streams.touch();
    if matches!(incoming, Incoming::Request { .. }) && !connection.streams.has_room() {
        let message = "more waits on the streams of this connection than they hold: read them";
        return Err(ApiError::new(ErrorCode::ResourceExhausted, message).into());
    }
    let _turn = connection.order.lock().await;
    match connection.peer.accept(incoming).await {
        Ok(()) => Ok(empty()),
        Err((_, error)) => Err(error.refusal().into()),
    }
}

/// Opens a connection, and answers at once.
fn initialize(call: &Call, incoming: Incoming) -> Answer {
    session_header(&call.head.headers)?;
    let Incoming::Request { id, params, .. } = incoming else {
        return Err(ApiError::internal("no request where one was seen").into());
    };
    let streams = Streams::new();
    let peer = Peer::new(Arc::clone(&call.shared.app), call.caller.clone(), Outlet::Streams(Arc::clone(&streams)));
    let answer = peer.core.initialize(&params);
    if answer.is_err() {
        return Ok(message(rpc::response(&id, answer)));
    }
    let connection = Connection { caller: call.caller.clone(), peer, streams, order: tokio::sync::Mutex::default() };
    let connection = Arc::new(connection);
    let name = call.shared.acp.add(&call.shared.app, Arc::clone(&connection))?;
    tokio::spawn(watch(Arc::downgrade(&call.shared), Arc::downgrade(&connection), name.clone()));
    let mut response = message(rpc::response(&id, answer));
    if let Ok(name) = HeaderValue::try_from(name) {
        response.headers_mut().insert(CONNECTION, name);
    }
    Ok(response)
}

/// Ends a connection that is over, or that nobody comes back to.
async fn watch(shared: Weak<Shared>, connection: Weak<Connection>, name: String) {
    let pause = Duration::from_millis(limit::ACP_DESERTED_MS / 4);
    loop {
        let Some(streams) = connection.upgrade().map(|connection| Arc::clone(&connection.streams)) else { return };
        let Some(stop) = shared.upgrade().map(|shared| shared.streams.clone()) else { return };
        let over = tokio::select! {
            () = tokio::time::sleep(pause) => streams.deserted_at().is_some_and(|at| at <= tokio::time::Instant::now()),
            () = streams.closed().cancelled() => true,
            () = stop.cancelled() => true,
        };
        if over {
            streams.close();
            if let Some(shared) = shared.upgrade() {
                shared.acp.remove(&name);
            }
            return;
        }
    }
}

/// What names a session in its parameters names it in the head too: whoever stands between can go by that.
fn check_session(headers: &HeaderMap, incoming: &Incoming) -> Result<(), ApiError> {
    let named = session_header(headers)?;
    let wanted = match incoming {
        Incoming::Request { params, .. } | Incoming::Notification { params, .. } => params.session(),
        Incoming::Response { .. } => None,
    };
    match (named, wanted) {
        (_, None) => Ok(()),
        (Some(named), Some(wanted)) if named == wanted => Ok(()),
        (_, Some(_)) => Err(ApiError::invalid("Acp-Session-Id", "the `sessionId` of the parameters")),
    }
}

fn session_header(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let named = single(headers, &SESSION)?;
    let fits = |name: &str| (1..=SESSION_BYTES_MAX).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic());
    if named.is_some_and(|name| !fits(name)) {
        let expected = format!("1 to {SESSION_BYTES_MAX} visible ASCII characters");
        return Err(ApiError::invalid("Acp-Session-Id", expected));
    }
    Ok(named.map(str::to_owned))
}

/// Reads a stream, or becomes a WebSocket.
pub(in crate::server) async fn get(call: Call) -> Answer {
    let headers = &call.head.headers;
    if headers.contains_key(UPGRADE) {
        return ws::open_acp(call).await;
    }
    call.no_query()?;
    let accepts = |value: &HeaderValue| {
        value.to_str().is_ok_and(|text| text.contains("text/event-stream") || text.contains("*/*"))
    };
    if !headers.get_all(ACCEPT).iter().any(accepts) {
        return Err(Failure::with_status(ApiError::invalid("Accept", "text/event-stream"), 406));
    }
    let (_, connection) = call.shared.acp.find(&call)?;
    let (session, after) = (session_header(headers)?, last_event_id(headers)?);
    let reader = connection.streams.read(session, after).map_err(|unread| match unread {
        Unread::Taken => ApiError::conflict("somebody reads this stream already"),
        Unread::Gone => ApiError::conflict("what came behind that message is no longer there; load the session again")
            .with_details(json!({ "field": "Last-Event-ID", "expected": "the number of a message that was sent a short while ago" })),
        Unread::TooMany => ApiError::new(ErrorCode::ResourceExhausted, "this connection has too many streams"),
    })?;
    let feed = Feed {
        reader,
        heartbeat: call.shared.options.heartbeat,
        first: true,
        _open: call.shared.app.meters().streams.enter(),
    };
    let frames = stream::unfold(feed, |mut feed| async move {
        let frame = feed.next().await?;
        Some((Ok::<_, Infallible>(frame), feed))
    });
    Ok(sse::response(Body::from_stream(frames)))
}

/// Ends a connection.
pub(in crate::server) async fn delete(call: Call) -> Answer {
    call.no_query()?;
    let (id, connection) = call.shared.acp.find(&call)?;
    connection.streams.close();
    call.shared.acp.remove(&id);
    Ok(empty())
}

struct Feed {
    reader: Reader,
    heartbeat: Duration,
    first: bool,
    /// It is one of those that are open.
    _open: Entered,
}

impl Feed {
    async fn next(&mut self) -> Option<Bytes> {
        // The head goes out at once.
        if std::mem::take(&mut self.first) {
            return Some(sse::STILL_HERE);
        }
        match tokio::time::timeout(self.heartbeat, self.reader.next()).await {
            Ok(Some(Frame { number, text })) => Some(Bytes::from(format!("id: {number}\ndata: {text}\n\n"))),
            Ok(None) => None,
            Err(_) => Some(sse::STILL_HERE),
        }
    }
}

fn empty() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

fn message(text: String) -> Response {
    // It was written as JSON just now.
    let value: Value = serde_json::from_str(&text).unwrap_or_default();
    json_answer(StatusCode::OK, &value)
}
