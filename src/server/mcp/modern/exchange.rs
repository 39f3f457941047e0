//! One request of 2026-07-28 on its way to its answer, and calls that wait for what their client is asked.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::stream;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::told;
use crate::base::limit;
use crate::server::Shared;
use crate::server::mcp::peer::Peer;
use crate::server::mcp::stream::{Reader, Stream};
use crate::server::mcp::wire::{self, INTERNAL, Incoming, Request, RpcError};
use crate::server::sse::{self, STILL_HERE};

/// How long further questions are waited for behind one: they are put together.
const TOGETHER: Duration = Duration::from_millis(20);
/// The member of a question's `_meta` by which it wants to be called.
pub(in crate::server::mcp) const CALLED: &str = "simse/called";

/// Calls that wait for answers, by the names that their clients were told. The oldest first.
#[derive(Default)]
pub(in crate::server::mcp) struct Parking(Mutex<VecDeque<(String, Parked)>>);

/// A call that waits.
struct Parked {
    /// What was asked for; the next request has to ask for the same.
    wanted: Value,
    work: Work,
    /// What it waits for: the question's name, its number, and the question.
    open: Vec<Question>,
}

struct Question {
    called: String,
    id: Value,
    asks: Value,
}

/// What is worked on. Dropped before its end, it is taken back.
struct Work {
    peer: Arc<Peer>,
    reader: Reader,
    stream: Arc<Stream>,
    /// What the request is called here: ids of others' requests may be the same.
    own: String,
    done: bool,
}

impl Drop for Work {
    fn drop(&mut self) {
        if !self.done {
            let params = json!({ "requestId": self.own }).as_object().cloned().unwrap_or_default();
            self.peer.hear(Incoming::Notification { method: "notifications/cancelled".into(), params });
        }
        self.peer.end_stream(&self.stream, false);
    }
}

impl Parking {
    fn put(&self, parked: Parked) -> String {
        let name = uuid::Uuid::new_v4().simple().to_string();
        let mut all = self.0.lock();
        let forgotten = if all.len() >= limit::MCP_REQUESTS_MAX { all.pop_front() } else { None };
        all.push_back((name.clone(), parked));
        drop(all);
        // What it takes back takes other locks.
        drop(forgotten);
        name
    }

    fn take(&self, name: &str, wanted: &Value) -> Option<Parked> {
        let mut all = self.0.lock();
        let at = all.iter().position(|(known, parked)| known == name && parked.wanted == *wanted)?;
        all.remove(at).map(|(_, parked)| parked)
    }

    /// The client is gone.
    pub(in crate::server::mcp) fn clear(&self) {
        let all = std::mem::take(&mut *self.0.lock());
        drop(all);
    }
}

/// What was asked for: all of it but what belongs to this one request.
fn wanted(request: &Request) -> Value {
    let mut params = request.params.clone();
    for own in ["_meta", "inputResponses", "requestState"] {
        params.remove(own);
    }
    json!([request.method, params])
}

/// The answers that a request brings.
fn responses(request: &Request) -> Result<Map<String, Value>, RpcError> {
    let answers = match request.params.get("inputResponses") {
        None => return Ok(Map::new()),
        Some(Value::Object(answers)) => answers.clone(),
        Some(_) => return Err(RpcError::params("`inputResponses`: expected an object")),
    };
    match answers.iter().find(|(_, answer)| !answer.is_object()) {
        Some((name, _)) => Err(RpcError::params(format!("`inputResponses.{name}`: expected an object"))),
        None => Ok(answers),
    }
}

/// A request on its way.
pub(super) struct Exchange {
    id: Value,
    method: String,
    wanted: Value,
    /// None: it waits elsewhere, or is over.
    work: Option<Work>,
    /// Answers that came before their questions.
    answers: Map<String, Value>,
    /// Questions without answers.
    open: Vec<Question>,
    later: VecDeque<Value>,
}

/// What there is to say.
enum Told {
    Meanwhile(Value),
    /// The answer.
    Last(Value),
}

impl Exchange {
    /// Begins to work on a request, or goes on with one that waited.
    ///
    /// # Errors
    /// When its answers cannot be read, or it names no call that waits.
    pub(super) fn open(peer: Arc<Peer>, request: Request) -> Result<Self, RpcError> {
        let (id, method, wanted) = (request.id.clone(), request.method.clone(), wanted(&request));
        let mut answers = responses(&request)?;
        let (work, mut open) = match request.params.get("requestState") {
            None => (Work::begin(peer, request), Vec::new()),
            Some(name) => {
                let parked = name.as_str().and_then(|name| peer.parking.take(name, &wanted));
                let unknown = "`requestState`: expected that of a call that waits for answers; call anew";
                let Parked { work, open, .. } = parked.ok_or_else(|| RpcError::params(unknown))?;
                (work, open)
            }
        };
        open.retain(|question| match answers.remove(&question.called) {
            Some(answer) => {
                work.peer.hear(Incoming::Response { id: question.id.clone(), outcome: Ok(answer) });
                false
            }
            None => true,
        });
        Ok(Self { id, method, wanted, work: Some(work), answers, open, later: VecDeque::new() })
    }

    /// The answer: in JSON, or at the end of a stream where there is something to say before it.
    pub(super) async fn respond(mut self, shared: &Arc<Shared>) -> Response {
        let soon = Duration::from_millis(limit::MCP_STREAM_AFTER_MS);
        let first = match tokio::time::timeout(soon, self.next()).await {
            Ok(Some(Told::Last(message))) => return told::json_of(told::status(&message), message.to_string()),
            Ok(Some(Told::Meanwhile(message))) => Some(message),
            Ok(None) => return told::json_of(StatusCode::OK, String::new()),
            Err(_) => None,
        };
        let first = first.map(|message| frame(&message));
        let (shared, open) = (Arc::clone(shared), shared.app.meters().streams.enter());
        let frames = stream::unfold((self, shared, first, open), |(mut exchange, shared, first, open)| async move {
            let piece = match first {
                Some(first) => first,
                None => exchange.piece(&shared).await?,
            };
            Some((Ok::<_, Infallible>(piece), (exchange, shared, None, open)))
        });
        sse::response(Body::from_stream(frames))
    }

    /// Says all that there is to say into a stream.
    pub(super) async fn tell(mut self, said: &Stream) {
        while let Some(told) = self.next().await {
            match told {
                Told::Meanwhile(message) => said.say(message.to_string()),
                Told::Last(message) => return said.say(message.to_string()),
            }
        }
    }

    async fn piece(&mut self, shared: &Shared) -> Option<Bytes> {
        let (ending, heartbeat) = (shared.streams.clone(), shared.options.heartbeat);
        tokio::select! {
            biased;
            told = self.next() => match told? {
                Told::Meanwhile(message) | Told::Last(message) => Some(frame(&message)),
            },
            () = ending.cancelled() => None,
            () = tokio::time::sleep(heartbeat) => Some(STILL_HERE),
        }
    }

    /// What there is to say next. None: nothing more. Cancel-safe.
    async fn next(&mut self) -> Option<Told> {
        // What was asked before and is not answered is asked again at once.
        if !self.open.is_empty() {
            return self.ask_client().await;
        }
        loop {
            let message = match self.later.pop_front() {
                Some(message) => message,
                None => match self.work.as_mut()?.read().await {
                    Some(message) => message,
                    None => return self.last(Err(RpcError::new(INTERNAL, "the request broke off"))),
                },
            };
            let is_named = message.get("method").is_some();
            match (is_named, message.get("id").is_some()) {
                (true, true) => {
                    self.note(message);
                    if !self.open.is_empty() {
                        return self.ask_client().await;
                    }
                }
                // It takes back what is not asked on this line.
                (true, false) if message["method"] == "notifications/cancelled" => {}
                (true, false) => return Some(Told::Meanwhile(message)),
                (false, _) => {
                    let outcome = match message.get("error") {
                        Some(error) => Err(told::error(wire::told_error(error))),
                        None => Ok(message["result"].clone()),
                    };
                    return self.last(outcome);
                }
            }
        }
    }

    /// Takes a question in; one that was answered beforehand, by a name that it gave itself, is answered.
    fn note(&mut self, mut message: Value) {
        let id = message["id"].clone();
        let mut called = None;
        if let Some(params) = message.get_mut("params").and_then(Value::as_object_mut)
            && let Some(Value::Object(mut meta)) = params.remove("_meta")
        {
            called = meta.remove(CALLED);
            if !meta.is_empty() {
                params.insert("_meta".into(), meta.into());
            }
        }
        let named = called.and_then(|called| called.as_str().map(str::to_owned));
        let answer = named.as_ref().and_then(|named| self.answers.remove(named));
        if let (Some(answer), Some(work)) = (answer, &self.work) {
            return work.peer.hear(Incoming::Response { id, outcome: Ok(answer) });
        }
        let called = named.unwrap_or_else(|| format!("question_{id}"));
        let asks = json!({ "method": message["method"], "params": message["params"] });
        self.open.push(Question { called, id, asks });
    }

    /// Ends the request with its questions; the call waits.
    async fn ask_client(&mut self) -> Option<Told> {
        while let Some(work) = &mut self.work
            && let Ok(read) = tokio::time::timeout(TOGETHER, work.read()).await
        {
            match read {
                Some(message) if message.get("method").is_some() && message.get("id").is_some() => self.note(message),
                Some(message) => self.later.push_back(message),
                None => break,
            }
        }
        // It was over meanwhile: nobody waits for what is asked.
        if let Some(at) = self.later.iter().position(|message| message.get("method").is_none()) {
            self.open.clear();
            let answer = self.later.remove(at)?;
            self.later.clear();
            let outcome = match answer.get("error") {
                Some(error) => Err(told::error(wire::told_error(error))),
                None => Ok(answer["result"].clone()),
            };
            return self.last(outcome);
        }
        let work = self.work.take()?;
        let open = std::mem::take(&mut self.open);
        let asked: Map<String, Value> = open.iter().map(|asked| (asked.called.clone(), asked.asks.clone())).collect();
        let peer = Arc::clone(&work.peer);
        let state = peer.parking.put(Parked { wanted: self.wanted.clone(), work, open });
        let result = json!({ "resultType": "input_required", "inputRequests": asked, "requestState": state });
        Some(Told::Last(self.message(Ok(result))))
    }

    fn last(&mut self, outcome: Result<Value, RpcError>) -> Option<Told> {
        let mut work = self.work.take()?;
        work.done = true;
        Some(Told::Last(self.message(outcome)))
    }

    fn message(&self, outcome: Result<Value, RpcError>) -> Value {
        let outcome = outcome.map(|result| told::result(&self.method, result));
        serde_json::from_str(&wire::response(&self.id, &outcome)).unwrap_or_default()
    }
}

impl Work {
    fn begin(peer: Arc<Peer>, request: Request) -> Self {
        let own = format!("own_{}", uuid::Uuid::new_v4().simple());
        let stream = peer.new_stream();
        let reader = stream.read(0);
        let (worker, answers) = (Arc::clone(&peer), Arc::clone(&stream));
        let request = Request { id: own.clone().into(), ..request };
        tokio::spawn(async move {
            worker.answer(request, &answers).await;
            answers.close();
        });
        Self { peer, reader, stream, own, done: false }
    }

    /// The next message. None: there are no more. Cancel-safe.
    async fn read(&mut self) -> Option<Value> {
        loop {
            let (_, text) = self.reader.next().await?;
            self.peer.touch();
            if let Ok(message) = serde_json::from_str(&text) {
                return Some(message);
            }
        }
    }
}

fn frame(message: &Value) -> Bytes {
    Bytes::from(format!("data: {message}\n\n"))
}
