//! The calls of a client, in a session of its own: made with the first of them, seen by everybody as any other session.
//!
//! One reader follows the session's events and tells each call what becomes of it: what its program writes becomes progress,
//! and questions become forms (`questions`). A client that can be asked counts as somebody who is there; one that cannot does not.
//!
//! Invariants: an answer goes out behind all that was said about its call, and when the call's end is in the log; a call that
//! its client takes back is aborted, with its processes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

use super::methods::{Called, Outcome};
use super::peer::{Lane, Peer, Question};
use super::questions;
use super::roots;
use super::stream::Stream;
use super::tools;
use super::wire::{self, RpcError};
use crate::app::{Batch, CALLS_MODEL_ID, ClientCall, EventReader};
use crate::protocol::{
    CreateSession, ErrorCode, EventBody, NoticeLevel, RequestId, SessionId, SessionView, ToolCallRequest, TurnId,
};

/// Longest wait for a call's end to be read where it is known already.
const READ_TIME: Duration = Duration::from_secs(5);
/// Longest text of a progress, in bytes.
const PROGRESS_BYTES_MAX: usize = 2_000;

/// The session of a client, and who follows it.
pub(super) struct Workplace {
    pub(super) session: SessionId,
    listeners: Arc<Listeners>,
    _follower: AbortOnDropHandle<()>,
}

/// Those who wait for what becomes of calls.
#[derive(Default)]
pub(super) struct Listeners {
    calls: Mutex<HashMap<String, Listener>>,
}

struct Listener {
    stream: Arc<Stream>,
    progress: Option<Value>,
    told: u64,
    /// Questions about it, each until it has its end.
    open: HashMap<RequestId, Question>,
    /// Sessions that it has started.
    below: HashSet<SessionId>,
    /// A question came that its client could not be asked.
    unasked: bool,
    ended: Option<oneshot::Sender<bool>>,
}

/// Runs a call and answers with what came of it.
pub(super) async fn run(peer: &Arc<Peer>, called: Called<'_>, lane: &Lane) -> Outcome {
    let place = match peer.workplace.get_or_try_init(|| open(peer, &lane.stream)).await {
        Ok(place) => place,
        Err(error) => return Ok(tools::failure(&error.message)),
    };
    let id = format!("call_{}", TurnId::generate().as_str().trim_start_matches("turn_"));
    let heard = place.listeners.listen(&id, lane, called.progress);
    let request = ToolCallRequest { id: id.clone(), name: called.name.to_owned(), arguments: called.arguments };
    let call = ClientCall { request, cancel: lane.cancel.clone() };
    let carried = peer.app.call(&peer.caller, &place.session, call).await;
    let known = carried.is_ok();
    let unasked = match tokio::time::timeout(READ_TIME, heard).await {
        Ok(Ok(unasked)) if known => unasked,
        _ => false,
    };
    place.listeners.calls.lock().remove(&id);
    let carried = match carried {
        Ok(carried) => carried,
        Err(error) if error.code() == ErrorCode::NotFound => {
            return Ok(tools::failure(&format!("{error}: it was deleted; a new connection gets a new one")));
        }
        Err(error) => return Ok(tools::failure(&error.to_string())),
    };
    let refused = carried.failure.as_ref().is_some_and(|failure| failure.code == ErrorCode::Forbidden);
    Ok(tools::result(&carried, (refused && unasked).then_some(questions::CANNOT_ASK)))
}

/// Makes the session, and follows it.
async fn open(peer: &Arc<Peer>, stream: &Arc<Stream>) -> Result<Workplace, RpcError> {
    let session = match &peer.bound {
        Some(id) => theirs(peer, id).await?,
        None => own(peer, stream).await?,
    };
    let (id, after) = (session.session_id, session.last_seq);
    let reader = reader(peer, &id, after).await?;
    let listeners = Arc::<Listeners>::default();
    // It holds no client: with the client, it ends.
    let follower = follow(Arc::downgrade(peer), id.clone(), Arc::clone(&listeners), reader);
    Ok(Workplace { session: id, listeners, _follower: AbortOnDropHandle::new(tokio::spawn(follower)) })
}

/// The session that the client has named. Where an agent answers in it, the calls are that agent's, and a person is asked elsewhere.
async fn theirs(peer: &Peer, id: &SessionId) -> Result<SessionView, RpcError> {
    let session = peer.app.session(&peer.caller, id).await?;
    if session.model != CALLS_MODEL_ID {
        peer.ask_nothing();
    }
    Ok(session)
}

/// A session for this client's calls.
async fn own(peer: &Arc<Peer>, stream: &Arc<Stream>) -> Result<SessionView, RpcError> {
    let client = peer.hello().map_or("unknown", |hello| hello.client.as_str());
    let body = CreateSession { title: Some(format!("MCP: {client}")), ..CreateSession::default() };
    Ok(roots::session(peer, stream, body).await?)
}

/// A reader of a session that counts as somebody who can be asked where the client can be.
pub(super) async fn reader(peer: &Peer, session: &SessionId, after: u64) -> Result<EventReader, RpcError> {
    let reader = match peer.can_be_asked() {
        true => peer.app.events(&peer.caller, session, after).await,
        false => peer.app.overhear(&peer.caller, session, after).await,
    };
    Ok(reader?)
}

async fn follow(peer: std::sync::Weak<Peer>, session: SessionId, listeners: Arc<Listeners>, mut reader: EventReader) {
    let mut seen = reader.position();
    while let Ok(Some(batch)) = reader.next().await {
        let Some(peer) = peer.upgrade() else { return };
        listeners.take(&peer, &session, (&batch, seen));
        seen = batch.last_seq();
    }
    // Nothing more will be read: nobody waits for it.
    listeners.calls.lock().clear();
}

impl Listeners {
    fn listen(&self, id: &str, lane: &Lane, progress: Option<Value>) -> oneshot::Receiver<bool> {
        let (ended, heard) = oneshot::channel();
        let (stream, open) = (Arc::clone(&lane.stream), HashMap::new());
        let below = HashSet::new();
        let listener = Listener { stream, progress, told: 0, open, below, unasked: false, ended: Some(ended) };
        self.calls.lock().insert(id.to_owned(), listener);
        heard
    }

    fn take(&self, peer: &Arc<Peer>, session: &SessionId, (batch, seen): (&Batch, u64)) {
        for event in batch.events.iter().filter(|event| event.seq > seen) {
            if !TOLD.contains(&event.kind.as_ref()) {
                continue;
            }
            let Some(body) = event.body() else { continue };
            let mut calls = self.calls.lock();
            match body {
                EventBody::SubagentStart(start) => {
                    if let Some(listener) = calls.get_mut(&start.call_id) {
                        listener.below.insert(start.session_id);
                    }
                }
                // It is answered here as if this session asked.
                EventBody::SubagentRequest(asked) => {
                    if let Some(listener) = above(&mut calls, &asked.session_id) {
                        listener.take(peer, session, *asked.request);
                    }
                }
                EventBody::SubagentResponse(ended) => {
                    for listener in calls.values_mut() {
                        listener.take(peer, session, EventBody::clone(&ended.response));
                    }
                }
                body => {
                    let Some(listener) = call_of(&body).and_then(|id| calls.get_mut(id)) else { continue };
                    listener.take(peer, session, body);
                }
            }
        }
    }
}

/// Whose call a session below works for: the one that has started it, else one that has started any, for those further below.
fn above<'a>(calls: &'a mut HashMap<String, Listener>, session: &SessionId) -> Option<&'a mut Listener> {
    let started = |listener: &Listener| listener.below.contains(session);
    let id = calls.iter().find(|(_, listener)| started(listener));
    let id = id.or_else(|| calls.iter().find(|(_, listener)| !listener.below.is_empty())).map(|(id, _)| id.clone())?;
    calls.get_mut(&id)
}

/// The events that a call is told of.
const TOLD: [&str; 10] = [
    "tool.call.output",
    "tool.call.end",
    "permission.request",
    "permission.response",
    "client.request",
    "client.response",
    "client.notice",
    "subagent.start",
    "subagent.request",
    "subagent.response",
];

fn call_of(body: &EventBody) -> Option<&str> {
    match body {
        EventBody::ToolCallOutput { call_id, .. }
        | EventBody::ToolCallEnd { call_id, .. }
        | EventBody::PermissionRequest { call_id, .. }
        | EventBody::PermissionResponse { call_id, .. } => Some(call_id),
        EventBody::ClientRequest { call_id, .. }
        | EventBody::ClientResponse { call_id, .. }
        | EventBody::ClientNotice { call_id, .. } => call_id.as_deref(),
        _ => None,
    }
}

impl Listener {
    fn take(&mut self, peer: &Arc<Peer>, session: &SessionId, body: EventBody) {
        match body {
            EventBody::ToolCallOutput { text, .. } => self.progress(&text),
            EventBody::ToolCallEnd { .. } => {
                self.open.clear();
                if let Some(ended) = self.ended.take() {
                    let _ = ended.send(self.unasked);
                }
            }
            EventBody::PermissionRequest { ref request_id, .. } | EventBody::ClientRequest { ref request_id, .. } => {
                let request_id = request_id.clone();
                match questions::put(peer, session, (&self.stream, body)) {
                    Some(open) => drop(self.open.insert(request_id, open)),
                    None => self.unasked = true,
                }
            }
            EventBody::PermissionResponse { request_id, .. } | EventBody::ClientResponse { request_id, .. } => {
                self.open.remove(&request_id);
            }
            EventBody::ClientNotice { level, text, .. } => peer.log(&self.stream, level_of(level), &text),
            _ => {}
        }
    }

    fn progress(&mut self, text: &str) {
        let Some(token) = &self.progress else { return };
        self.told += 1;
        self.stream.hint(progress(token, self.told, text));
    }
}

/// A progress that says so much.
pub(super) fn progress(token: &Value, count: u64, text: &str) -> String {
    let begin = text.ceil_char_boundary(text.len().saturating_sub(PROGRESS_BYTES_MAX));
    let message = text.get(begin..).unwrap_or_default();
    let params = json!({ "progressToken": token, "progress": count, "message": message });
    wire::notification("notifications/progress", &params)
}

/// How log lines call it.
pub(super) fn level_of(level: NoticeLevel) -> &'static str {
    match level {
        NoticeLevel::Info => "info",
        NoticeLevel::Warning => "warning",
        NoticeLevel::Error => "error",
    }
}
