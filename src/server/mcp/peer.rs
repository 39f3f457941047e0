//! One MCP client: what it said of itself, what it has asked for, what it is asked, and the session that its calls run in.
//!
//! Knows nothing of how messages come and go: it takes them apart ones and says answers into streams (`stream`).
//!
//! Invariants: each request has one answer, unless it was cancelled; each question of ours ends, at the latest with the
//! client; nothing but `ping` is answered before `initialize` was.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::sync::{OnceCell, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::calls::Workplace;
use super::hello::Hello;
use super::methods;
use super::modern::Parking;
use super::roots;
use super::stream::Stream;
use super::watch::Watched;
use super::wire::{self, INTERNAL, INVALID_REQUEST, Incoming, Request, RpcError};
use crate::app::{App, Caller};
use crate::base::limit;
use crate::protocol::{Access, SessionId};

/// How much of what happens a client wants to hear, until it says: nothing below this.
const LEVEL: &str = "info";
/// Levels of log lines, the least first.
pub(super) const LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// A client.
pub(crate) struct Peer {
    /// Its name among all.
    pub(super) id: String,
    pub(super) app: Arc<App>,
    pub(super) caller: Caller,
    /// The session that its calls are to run in. None: one of its own.
    pub(super) bound: Option<SessionId>,
    /// Whether it is shown what the conformance suite looks for.
    pub(super) fixtures: bool,
    /// It calls for an agent: that is not asked about its own calls.
    unasked: AtomicBool,
    hello: OnceLock<Hello>,
    /// What belongs to no request of its own.
    pub(super) standing: Arc<Stream>,
    streams: Mutex<Streams>,
    /// Requests that are worked on, by their ids as text.
    running: Mutex<HashMap<String, CancellationToken>>,
    /// Questions that wait for its answer.
    asked: Mutex<HashMap<u64, oneshot::Sender<Result<Value, RpcError>>>>,
    next_question: AtomicU64,
    level: AtomicUsize,
    pub(super) watched: Watched,
    /// Calls that wait for what it is asked.
    pub(super) parking: Parking,
    pub(super) workplace: OnceCell<Workplace>,
    /// Fires when it is gone.
    pub(super) over: CancellationToken,
    /// Fires when nothing more comes from it: what it would be asked stays without an answer.
    silent: CancellationToken,
    touched: Mutex<Instant>,
}

#[derive(Default)]
struct Streams {
    next: u64,
    open: HashMap<u64, Arc<Stream>>,
    ended: VecDeque<Arc<Stream>>,
}

/// Where an answer goes, and what belongs to its request.
#[derive(Clone)]
pub(super) struct Lane {
    pub(super) stream: Arc<Stream>,
    /// Fires when the client wants no answer any more.
    pub(super) cancel: CancellationToken,
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peer").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Peer {
    /// A client that has said nothing yet.
    pub(super) fn new(
        id: String,
        (app, caller): (Arc<App>, Caller),
        (bound, fixtures): (Option<SessionId>, bool),
    ) -> Arc<Self> {
        let level = LEVELS.iter().position(|level| *level == LEVEL).unwrap_or_default();
        Arc::new(Self {
            id,
            app,
            caller,
            bound,
            fixtures,
            unasked: AtomicBool::new(false),
            hello: OnceLock::new(),
            standing: Stream::new(0),
            streams: Mutex::default(),
            running: Mutex::default(),
            asked: Mutex::default(),
            next_question: AtomicU64::new(1),
            level: AtomicUsize::new(level),
            watched: Watched::default(),
            parking: Parking::default(),
            workplace: OnceCell::new(),
            over: CancellationToken::new(),
            silent: CancellationToken::new(),
            touched: Mutex::new(Instant::now()),
        })
    }

    /// What it said of itself; nothing before it has.
    pub(super) fn hello(&self) -> Option<&Hello> {
        self.hello.get()
    }

    /// The version that is spoken with it.
    pub(super) fn version(&self) -> &'static str {
        self.hello().map_or(wire::VERSIONS[0], |hello| hello.version)
    }

    /// It says what it is.
    ///
    /// # Errors
    /// When it has said so before.
    pub(super) fn greet(&self, hello: Hello) -> Result<(), RpcError> {
        self.hello.set(hello).map_err(|_| RpcError::new(INVALID_REQUEST, "initialized already"))
    }

    /// It calls for an agent of the session that its calls run in: it is asked nothing from now on.
    pub(super) fn ask_nothing(&self) {
        self.unasked.store(true, Ordering::Relaxed);
    }

    /// Whether forms can be put to it, and its answers count.
    pub(super) fn can_be_asked(&self) -> bool {
        let fills = self.hello().is_some_and(|hello| hello.fills_forms);
        // Who was given one session does not answer for it.
        fills
            && self.caller.only.is_none()
            && !self.unasked.load(Ordering::Relaxed)
            && self.caller.needs(Access::Work).is_ok()
    }

    /// Something came from it.
    pub(super) fn touch(&self) {
        *self.touched.lock() = Instant::now();
    }

    /// Whether it may go for another one: nothing came for long, and nothing is worked on.
    pub(super) fn is_idle(&self) -> bool {
        self.touched.lock().elapsed().as_millis() > u128::from(limit::MCP_IDLE_MS) && self.running.lock().is_empty()
    }

    /// A stream for the answers to what came together.
    pub(super) fn new_stream(&self) -> Arc<Stream> {
        let mut streams = self.streams.lock();
        streams.next += 1;
        let stream = Stream::new(streams.next);
        streams.open.insert(stream.number, Arc::clone(&stream));
        stream
    }

    /// A stream that is or was open, by its number.
    pub(super) fn stream(&self, number: u64) -> Option<Arc<Stream>> {
        if number == 0 {
            return Some(Arc::clone(&self.standing));
        }
        let streams = self.streams.lock();
        let ended = || streams.ended.iter().find(|stream| stream.number == number);
        streams.open.get(&number).or_else(ended).cloned()
    }

    /// All answers are in a stream. It is kept for a while, for a client whose line breaks now; `kept`: unless nobody ever needs it.
    pub(super) fn end_stream(&self, stream: &Stream, kept: bool) {
        stream.close();
        let mut streams = self.streams.lock();
        let Some(stream) = streams.open.remove(&stream.number).filter(|_| kept) else { return };
        streams.ended.push_back(stream);
        if streams.ended.len() > limit::MCP_ENDED_STREAMS_MAX {
            // Those that were read to their end go first.
            let at = streams.ended.iter().position(|stream| stream.is_done()).unwrap_or_default();
            streams.ended.remove(at);
        }
    }

    /// Takes a message that wants no answer.
    pub(super) fn hear(self: &Arc<Self>, message: Incoming) {
        match message {
            Incoming::Response { id, outcome } => self.answered(&id, outcome),
            Incoming::Notification { method, params } if method == "notifications/cancelled" => self.cancel(&params),
            Incoming::Notification { method, .. } if method == "notifications/roots/list_changed" => {
                roots::changed(self)
            }
            Incoming::Notification { method, .. } => tracing::trace!(method, "an MCP client says"),
            Incoming::Request(_) => {}
        }
    }

    fn cancel(&self, params: &Map<String, Value>) {
        let id = params.get("requestId").map(Value::to_string).unwrap_or_default();
        if let Some(cancel) = self.running.lock().get(&id) {
            cancel.cancel();
        }
    }

    fn answered(&self, id: &Value, outcome: Result<Value, RpcError>) {
        let asked = id.as_u64().and_then(|id| self.asked.lock().remove(&id));
        match asked {
            Some(waiting) => drop(waiting.send(outcome)),
            None => tracing::debug!(%id, "an MCP client answers what was not asked, or no longer"),
        }
    }

    /// Works on a request; its answer comes into the stream.
    pub(super) async fn answer(self: &Arc<Self>, request: Request, stream: &Arc<Stream>) {
        let id = request.id.clone();
        let key = id.to_string();
        let cancel = match self.admit(&key) {
            Ok(cancel) => cancel,
            Err(error) => return stream.say(wire::response(&id, &Err(error))),
        };
        let lane = Lane { stream: Arc::clone(stream), cancel: cancel.clone() };
        let work = std::panic::AssertUnwindSafe(methods::answer(self, &request, &lane)).catch_unwind();
        let outcome = work
            .await
            .unwrap_or_else(|_| Err(RpcError::new(INTERNAL, "the request broke off by a fault of the server")));
        self.running.lock().remove(&key);
        // Who took a request back hears no more of it.
        if !cancel.is_cancelled() {
            stream.say(wire::response(&id, &outcome));
        }
    }

    fn admit(&self, key: &str) -> Result<CancellationToken, RpcError> {
        let mut running = self.running.lock();
        if running.len() >= limit::MCP_REQUESTS_MAX {
            let message = format!("{} requests are worked on already", limit::MCP_REQUESTS_MAX);
            return Err(RpcError::new(INTERNAL, message));
        }
        if running.contains_key(key) {
            return Err(RpcError::new(INVALID_REQUEST, format!("`id`: {key} is worked on already")));
        }
        let cancel = self.over.child_token();
        running.insert(key.to_owned(), cancel.clone());
        Ok(cancel)
    }

    /// Asks the client something. Its answer comes, or an error from who has fallen silent; none comes when the question is
    /// taken back, which is what its end does to one that is open.
    pub(super) fn question(
        self: &Arc<Self>,
        stream: &Arc<Stream>,
        (method, params): (&str, &Value),
    ) -> (Question, oneshot::Receiver<Result<Value, RpcError>>) {
        let id = self.next_question.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        match self.silent.is_cancelled() {
            true => drop(sender.send(Err(silence()))),
            false => {
                self.asked.lock().insert(id, sender);
                stream.say(wire::request(id, method, params));
            }
        }
        (Question { peer: Arc::downgrade(self), stream: Arc::clone(stream), id }, answer)
    }

    /// How much it wants to hear.
    pub(super) fn set_level(&self, level: usize) {
        self.level.store(level, Ordering::Relaxed);
    }

    /// Tells it something, if it wants to hear that much.
    pub(super) fn log(&self, stream: &Stream, level: &str, text: &str) {
        let Some(rank) = LEVELS.iter().position(|known| *known == level) else { return };
        if rank >= self.level.load(Ordering::Relaxed) {
            let params = json!({ "level": level, "logger": "simse", "data": text });
            stream.hint(wire::notification("notifications/message", &params));
        }
    }

    /// Nothing more comes from it; what it has asked for goes on.
    pub(super) fn fall_silent(&self) {
        self.silent.cancel();
        for (_, waiting) in std::mem::take(&mut *self.asked.lock()) {
            let _ = waiting.send(Err(silence()));
        }
    }

    /// It is gone: what it asked for is given up.
    pub(super) fn end(&self) {
        self.over.cancel();
        self.parking.clear();
        self.standing.close();
        let streams = std::mem::take(&mut *self.streams.lock());
        for stream in streams.open.values() {
            stream.close();
        }
        self.asked.lock().clear();
    }
}

fn silence() -> RpcError {
    RpcError::new(INTERNAL, "nothing more comes from the client")
}

/// A question to the client. At its end one without an answer is taken back.
pub(super) struct Question {
    peer: Weak<Peer>,
    stream: Arc<Stream>,
    id: u64,
}

impl Drop for Question {
    fn drop(&mut self) {
        let Some(peer) = self.peer.upgrade() else { return };
        if peer.asked.lock().remove(&self.id).is_some() {
            let params = json!({ "requestId": self.id, "reason": "nobody waits for the answer any more" });
            self.stream.say(wire::notification("notifications/cancelled", &params));
        }
    }
}
