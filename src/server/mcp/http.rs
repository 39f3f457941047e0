//! MCP over HTTP (`POST`, `GET` and `DELETE /mcp`): one endpoint, one session a client, answers as JSON or as a stream.
//!
//! Behind the guard as every route: who calls is known, and a session of the protocol belongs to its caller alone; for anybody else
//! it is not there.
//!
//! Invariants: a body that is no message changes nothing; a session that has ended is not found, so that its client begins anew;
//! a line that breaks cancels nothing, and its stream can be read on by `Last-Event-ID`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use futures_util::future::join_all;
use futures_util::stream;
use serde_json::Value;
use tokio_util::task::AbortOnDropHandle;

use super::modern::{self, MODERN};
use super::peer::Peer;
use super::stream::Reader;
use super::watch;
use super::wire::{self, BATCHED, INVALID_REQUEST, Incoming, NO_SESSION, PRIMED_SINCE, RpcError, VERSIONS};
use crate::app::Caller;
use crate::base::limit;
use crate::protocol::{ApiError, SessionId};
use crate::server::Shared;
use crate::server::answer::{Answer, Failure};
use crate::server::call::Call;
use crate::server::headers::{LAST_EVENT_ID, single};
use crate::server::sse::{self, STILL_HERE};

/// What names the session of a client.
pub(in crate::server) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// Why a request is refused before it reaches a client's session.
enum Refusal {
    /// As every route refuses.
    Here(Failure),
    /// As the protocol does.
    Rpc(StatusCode, Value, RpcError),
}

impl<E: Into<Failure>> From<E> for Refusal {
    fn from(error: E) -> Self {
        Self::Here(error.into())
    }
}

fn refuse(status: StatusCode, code: i64, message: impl Into<String>) -> Refusal {
    Refusal::Rpc(status, Value::Null, RpcError::new(code, message))
}

fn answer(outcome: Result<Response, Refusal>) -> Answer {
    match outcome {
        Ok(response) => Ok(response),
        Err(Refusal::Here(failure)) => Err(failure),
        Err(Refusal::Rpc(status, id, error)) => Ok(json(status, wire::response(&id, &Err(error)))),
    }
}

fn json(status: StatusCode, text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Takes messages.
pub(crate) async fn post(call: Call) -> Answer {
    answer(take(call).await)
}

/// Opens the standing stream, or goes on with one.
pub(crate) async fn get(call: Call) -> Answer {
    let (peer, reader) = match open(&call) {
        Ok(opened) => opened,
        Err(refusal) => return answer(Err(refusal)),
    };
    let shared = Arc::clone(&call.shared);
    let standing = reader.stream().number == 0;
    let watching = if standing { watch::lists(&peer).await } else { Vec::new() };
    answer(Ok(respond(&shared, peer, reader, watching)))
}

/// Ends a client's session.
pub(crate) async fn delete(call: Call) -> Answer {
    let ended = || -> Result<Response, Refusal> {
        call.shared.mcp.remove(peer(&call)?.as_ref());
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        Ok(response)
    };
    answer(ended())
}

async fn take(mut call: Call) -> Result<Response, Refusal> {
    let bound = bound(&call)?;
    if !accepts(&call, "application/json") || !accepts(&call, "text/event-stream") {
        let message = "`Accept`: expected application/json and text/event-stream";
        return Err(refuse(StatusCode::NOT_ACCEPTABLE, INVALID_REQUEST, message));
    }
    let (messages, listed) = {
        let body = call.bytes().await?;
        wire::read(&body).map_err(|(id, error)| Refusal::Rpc(StatusCode::BAD_REQUEST, id, error))?
    };
    if let [Incoming::Request(request)] = messages.as_slice()
        && !listed
        && modern::is_meant(&call, request)
    {
        return Ok(modern::answer(modern::Came::with(&call), bound, request.clone()).await);
    }
    if is_modern(&call)? {
        return modern_rest(&messages);
    }
    check_version(&call)?;
    if let [Incoming::Request(request)] = messages.as_slice()
        && request.method == "initialize"
        && peer(&call).is_err()
    {
        return initialize((&Arc::clone(&call.shared), &call.caller.clone()), (request.clone(), bound)).await;
    }
    let peer = peer(&call)?;
    if listed && (peer.version() != BATCHED || messages.len() > limit::MCP_BATCH_MAX) {
        let message = format!("expected one message (a list of at most {} only in {BATCHED})", limit::MCP_BATCH_MAX);
        return Err(refuse(StatusCode::BAD_REQUEST, INVALID_REQUEST, message));
    }
    let mut requests = Vec::new();
    for message in messages {
        match message {
            Incoming::Request(request) => requests.push(request),
            other => peer.hear(other),
        }
    }
    if requests.is_empty() {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::ACCEPTED;
        return Ok(response);
    }
    let stream = peer.new_stream();
    let reader = stream.read(0);
    // It is worked on whether or not the line holds.
    let (worker, answers) = (Arc::clone(&peer), Arc::clone(&stream));
    tokio::spawn(async move {
        join_all(requests.into_iter().map(|request| worker.answer(request, &answers))).await;
        worker.end_stream(&answers, true);
    });
    Ok(first_or_stream(&call.shared, peer, reader, listed).await)
}

/// Whether a message belongs to no session, and says that it is of the version that has none.
fn is_modern(call: &Call) -> Result<bool, Refusal> {
    let headers = &call.head.headers;
    Ok(single(headers, &VERSION)? == Some(MODERN) && single(headers, &SESSION)?.is_none())
}

/// What is no single request, in a version that has nothing else but notifications, which change nothing.
fn modern_rest(messages: &[Incoming]) -> Result<Response, Refusal> {
    match messages {
        [Incoming::Notification { .. }] => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::ACCEPTED;
            Ok(response)
        }
        _ => Err(refuse(StatusCode::BAD_REQUEST, INVALID_REQUEST, format!("expected one request ({MODERN})"))),
    }
}

/// A single answer that comes soon is JSON; whatever else there is to say makes a stream of it.
async fn first_or_stream(shared: &Arc<Shared>, peer: Arc<Peer>, mut reader: Reader, listed: bool) -> Response {
    let soon = tokio::time::timeout(Duration::from_millis(limit::MCP_STREAM_AFTER_MS), reader.peek());
    match (soon.await, listed) {
        (Ok(Some((_, text))), false) if is_answer(&text) => {
            drop(reader.next().await);
            json(StatusCode::OK, text.to_string())
        }
        (Ok(None), _) => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::ACCEPTED;
            response
        }
        _ => respond(shared, peer, reader, Vec::new()),
    }
}

/// Whether a message of ours answers a request: ours of another kind name a method.
fn is_answer(text: &str) -> bool {
    serde_json::from_str::<Value>(text).is_ok_and(|message| message.get("method").is_none())
}

async fn initialize(
    (shared, caller): (&Arc<Shared>, &Caller),
    (request, bound): (wire::Request, Option<SessionId>),
) -> Result<Response, Refusal> {
    if let Some(id) = &bound {
        // Before anything is asked of it.
        shared.app.session(caller, id).await?;
    }
    let peer = shared.mcp.make(&shared.app, (caller, bound))?;
    let stream = peer.new_stream();
    let mut reader = stream.read(0);
    peer.answer(request, &stream).await;
    peer.end_stream(&stream, false);
    let text = reader.next().await.map(|(_, text)| text.to_string()).unwrap_or_default();
    let greeted = peer.hello().is_some();
    let mut response = json(if greeted { StatusCode::OK } else { StatusCode::BAD_REQUEST }, text);
    match HeaderValue::try_from(peer.id.as_str()) {
        Ok(id) if greeted => drop(response.headers_mut().insert(SESSION, id)),
        _ => shared.mcp.remove(&peer),
    }
    Ok(response)
}

/// The stream that is wanted.
fn open(call: &Call) -> Result<(Arc<Peer>, Reader), Refusal> {
    if !accepts(call, "text/event-stream") {
        return Err(refuse(StatusCode::NOT_ACCEPTABLE, INVALID_REQUEST, "`Accept`: expected text/event-stream"));
    }
    if is_modern(call)? {
        let message = format!("there is no stream to open in {MODERN}: `subscriptions/listen` is one");
        return Err(refuse(StatusCode::METHOD_NOT_ALLOWED, INVALID_REQUEST, message));
    }
    check_version(call)?;
    let peer = peer(call)?;
    let Some(seen) = single(&call.head.headers, &LAST_EVENT_ID)? else {
        let reader = peer.standing.read(peer.standing.taken());
        return Ok((peer, reader));
    };
    let place = seen.split_once('-').and_then(|(stream, number)| Some((stream.parse().ok()?, number.parse().ok()?)));
    let found = place.and_then(|(stream, number)| Some((peer.stream(stream)?, number)));
    // Who comes for what was never said would come for ever.
    let found = found.filter(|(stream, number)| !stream.ends_at(*number));
    let Some((stream, number)) = found else {
        let message = "`Last-Event-ID`: expected that of a stream that is kept";
        return Err(refuse(StatusCode::BAD_REQUEST, INVALID_REQUEST, message));
    };
    Ok((peer, stream.read(number)))
}

/// The session of ours that a client's calls are to run in (`?session=`), where it names one.
fn bound(call: &Call) -> Result<Option<SessionId>, ApiError> {
    let mut query = call.query()?;
    let named = query.text("session");
    query.finish(&["session"])?;
    let parsed = named.map(|id| id.parse::<SessionId>()).transpose();
    let named = parsed.map_err(|cause| ApiError::unread("session", &cause))?;
    match (named, &call.caller.only) {
        // A token for one session needs no word of it, and leads to no other.
        (None, Some(only)) => Ok(Some(only.clone())),
        (Some(id), Some(only)) if id != *only => Err(ApiError::confined(only)),
        (named, _) => Ok(named),
    }
}

/// The client's session that a request names.
fn peer(call: &Call) -> Result<Arc<Peer>, Refusal> {
    let Some(id) = single(&call.head.headers, &SESSION)? else {
        let message = "`Mcp-Session-Id`: expected that of the answer to `initialize`";
        return Err(refuse(StatusCode::BAD_REQUEST, INVALID_REQUEST, message));
    };
    let peer = call.shared.mcp.find(id, (&call.caller, bound(call)?.as_ref()));
    let peer = peer.ok_or_else(|| refuse(StatusCode::NOT_FOUND, NO_SESSION, "no such session: initialize anew"))?;
    peer.touch();
    Ok(peer)
}

/// A version that is named is one that is spoken.
fn check_version(call: &Call) -> Result<(), Refusal> {
    match single(&call.head.headers, &VERSION)? {
        Some(version) if !VERSIONS.contains(&version) => {
            let message = format!("`MCP-Protocol-Version`: expected one of {}", VERSIONS.join(", "));
            Err(refuse(StatusCode::BAD_REQUEST, INVALID_REQUEST, message))
        }
        _ => Ok(()),
    }
}

fn accepts(call: &Call, wanted: &str) -> bool {
    let accepted = call.head.headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let whole = wanted.split('/').next().unwrap_or_default();
    accepted.flat_map(|value| value.split(',')).any(|one| {
        let essence = one.split(';').next().unwrap_or_default().trim();
        essence.eq_ignore_ascii_case(wanted) || essence == "*/*" || essence.strip_suffix("/*") == Some(whole)
    })
}

/// What a stream in the form of HTTP needs.
struct Feed {
    shared: Arc<Shared>,
    peer: Arc<Peer>,
    reader: Reader,
    first: Option<Bytes>,
    _watching: Vec<AbortOnDropHandle<()>>,
    _open: crate::base::metrics::Entered,
}

fn respond(shared: &Arc<Shared>, peer: Arc<Peer>, reader: Reader, watching: Vec<AbortOnDropHandle<()>>) -> Response {
    // Where it goes on if the line breaks at once.
    let first = (peer.version() >= PRIMED_SINCE).then(|| {
        let (stream, at, retry) = (reader.stream().number, reader.position(), limit::MCP_COME_BACK_MS);
        Bytes::from(format!("id: {stream}-{at}\nretry: {retry}\ndata: \n\n"))
    });
    let open = shared.app.meters().streams.enter();
    let feed = Feed { shared: Arc::clone(shared), peer, reader, first, _watching: watching, _open: open };
    let frames = stream::unfold(feed, |mut feed| async move {
        let frame = feed.next().await?;
        Some((Ok::<_, Infallible>(frame), feed))
    });
    sse::response(Body::from_stream(frames))
}

impl Feed {
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        tokio::select! {
            biased;
            message = self.reader.next() => {
                let (number, text) = message?;
                self.peer.touch();
                Some(Bytes::from(format!("id: {}-{number}\ndata: {text}\n\n", self.reader.stream().number)))
            }
            () = self.shared.streams.cancelled() => None,
            () = tokio::time::sleep(self.shared.options.heartbeat) => {
                self.peer.touch();
                Some(STILL_HERE)
            }
        }
    }
}
