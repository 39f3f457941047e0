//! The HTTP side of the bridge: requests to the server, the client's session there, streams that are read on after a break.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use parking_lot::Mutex;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Attachment;
use crate::base::http::{Answer, HttpError};
use crate::base::limit;
use crate::base::sse::SseReader;
use crate::server::mcp::wire::{self, NO_SESSION, Request, RpcError};

/// What is taken as an answer.
const BOTH: &str = "application/json, text/event-stream";
/// Longest answer that is read, and longest message of a stream.
const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// Longest silence before the headers of an answer, and within a stream: the server says at times that it is still there.
const SILENCE: Duration = Duration::from_secs(300);
/// Longest refusal that is read.
const REFUSAL_READ_MAX: usize = 1 << 20;
/// Of a refusal that is repeated, in bytes.
const REFUSAL_BYTES_MAX: usize = 2_000;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Lost {
    /// It was never sent.
    #[error("{0}")]
    Unsent(HttpError),
    /// The line broke: it may have been done.
    #[error("{0}; what was asked for may have been done")]
    Broken(HttpError),
    /// A status that is no answer, and what was said with it.
    #[error("status {status}: {said}")]
    Refused {
        /// The status.
        status: u16,
        /// In words.
        said: String,
    },
    /// The server refuses it in the words of the protocol.
    #[error("{}", .0.message)]
    Said(RpcError),
    /// The server does not know the client's session any more.
    #[error("it has forgotten this client")]
    Forgotten,
}

impl Lost {
    /// Whether the server is there and says no.
    pub(super) fn refused(&self) -> bool {
        matches!(self, Self::Refused { status: 400..500, .. } | Self::Said(_))
    }

    /// Whether the client has to greet again.
    pub(super) fn forgotten(&self) -> bool {
        matches!(self, Self::Forgotten)
    }
}

/// A message that is sent.
pub(super) struct Posted {
    body: Bytes,
    /// What may have been done may be sent once more.
    again: bool,
    /// Headers that repeat what it says: it belongs to no session.
    own: Option<Vec<(String, String)>>,
}

impl Posted {
    /// One of the client's session. `again`: what may have been done may be sent once more.
    pub(super) fn new(body: impl Into<Bytes>, again: bool) -> Self {
        Self { body: body.into(), again, own: None }
    }

    /// One that says all by itself, with the headers that repeat it.
    pub(super) fn alone(body: impl Into<Bytes>, again: bool, headers: Vec<(String, String)>) -> Self {
        Self { body: body.into(), again, own: Some(headers) }
    }
}

/// Pauses that grow.
#[derive(Default)]
pub(super) struct Pauses(u32);

impl Pauses {
    /// Waits for the next one.
    pub(super) async fn wait(&mut self) {
        let ms = limit::MCP_RETRY_MS << self.0.min(6);
        self.0 += 1;
        tokio::time::sleep(Duration::from_millis(ms.min(limit::MCP_ATTACH_PAUSE_MS_MAX))).await;
    }
}

/// The server, and the client's session there.
pub(super) struct Server {
    to: Attachment,
    greeted: Mutex<Greeted>,
    /// One greets again, all wait.
    renewing: tokio::sync::Mutex<()>,
    /// It was there once.
    was_there: AtomicBool,
}

#[derive(Default)]
struct Greeted {
    /// What the client said of itself.
    hello: Option<Request>,
    session: Option<String>,
    version: Option<String>,
    /// How often it greeted.
    count: u64,
    /// What it wants to hear, to be said again: by method and address.
    wishes: BTreeMap<(String, String), Vec<u8>>,
}

impl Server {
    pub(super) fn new(to: Attachment) -> Self {
        let (greeted, renewing) = (Mutex::default(), tokio::sync::Mutex::default());
        Self { to, greeted, renewing, was_there: AtomicBool::new(false) }
    }

    pub(super) fn host(&self) -> &str {
        self.to.way.host()
    }

    /// What the client is told that a question of the server is called.
    pub(super) fn own_name(&self, id: &Value) -> String {
        let id = id.as_str().map_or_else(|| id.to_string(), str::to_owned);
        format!("{}.{id}", self.greeted.lock().count)
    }

    /// Keeps what has to be said again to a server that has forgotten the client.
    pub(super) fn remember(&self, request: &Request, text: &[u8]) {
        let uri = request.params.get("uri").and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut greeted = self.greeted.lock();
        match request.method.as_str() {
            "resources/subscribe" if greeted.wishes.len() >= limit::MCP_CLIENT_SUBSCRIPTIONS_MAX => {}
            "resources/subscribe" | "logging/setLevel" => {
                drop(greeted.wishes.insert((request.method.clone(), uri), text.to_owned()));
            }
            "resources/unsubscribe" => {
                drop(greeted.wishes.remove(&("resources/subscribe".to_owned(), uri)));
            }
            _ => {}
        }
    }

    /// Sends the client's `initialize`, and gives what the server answered to it.
    ///
    /// # Errors
    /// [`Lost`], after the pauses of a server that is not there yet.
    pub(super) async fn greet(&self, hello: &Request) -> Result<Result<Value, RpcError>, Lost> {
        let answer = self.hello(hello, limit::MCP_ATTACH_WAIT_MS).await?;
        if answer.is_ok() {
            self.greeted.lock().hello = Some(hello.clone());
        }
        Ok(answer)
    }

    async fn hello(&self, hello: &Request, wait_ms: u64) -> Result<Result<Value, RpcError>, Lost> {
        let message = json!({ "jsonrpc": "2.0", "id": hello.id, "method": hello.method, "params": hello.params });
        let posted = Posted::new(message.to_string(), true);
        // Of a session that is over, nothing is said.
        (self.greeted.lock().session, self.greeted.lock().version) = (None, None);
        let mut answer = self.patiently(&posted, wait_ms).await?;
        let session = answer.header("mcp-session-id").map(str::to_owned);
        let text = answer.text(MESSAGE_BYTES_MAX).await;
        let strange = || Lost::Refused { status: answer.status, said: head(&text) };
        let said: Value = match answer.content_type.as_str() {
            "text/event-stream" => first_of(&text).ok_or_else(strange)?,
            _ => serde_json::from_str(&text).map_err(|_| strange())?,
        };
        if let Some(error) = said.get("error").filter(|_| answer.status == 200 || said["jsonrpc"] == "2.0") {
            return Ok(Err(wire::told_error(error)));
        }
        let result = said.get("result").cloned().ok_or_else(strange)?;
        let mut greeted = self.greeted.lock();
        greeted.version = result["protocolVersion"].as_str().map(str::to_owned);
        greeted.session = session;
        greeted.count += 1;
        Ok(Ok(result))
    }

    /// Greets again, in the client's words, with all that it wanted to hear. Once, where several find that it must.
    ///
    /// # Errors
    /// [`Lost`].
    pub(super) async fn renew(&self) -> Result<(), Lost> {
        let before = self.greeted.lock().count;
        let _one = self.renewing.lock().await;
        if self.greeted.lock().count != before {
            return Ok(());
        }
        let Some(mut hello) = self.greeted.lock().hello.clone() else { return Err(Lost::Forgotten) };
        // The answer is for nobody else.
        hello.id = "simse-again".into();
        if let Err(error) = self.hello(&hello, limit::MCP_ATTACH_AGAIN_MS).await? {
            return Err(Lost::Refused { status: 400, said: error.message });
        }
        let begun = wire::notification("notifications/initialized", &json!({})).into_bytes();
        let wishes: Vec<Vec<u8>> = self.greeted.lock().wishes.values().cloned().collect();
        for text in std::iter::once(begun).chain(wishes) {
            self.patiently(&Posted::new(text, true), limit::MCP_ATTACH_AGAIN_MS).await?.finish();
        }
        tracing::info!(host = self.host(), "the server was started anew, and has greeted the client again");
        Ok(())
    }

    /// Sends a message, also to a server that has to be waited for or greeted again.
    ///
    /// # Errors
    /// [`Lost`].
    pub(super) async fn post(&self, posted: &Posted) -> Result<Answer, Lost> {
        let mut renewed = false;
        // One that was never there is not waited for as long as one that comes back.
        let was_there = posted.own.is_none() || self.was_there.load(Ordering::Relaxed);
        let wait_ms = if was_there { limit::MCP_ATTACH_AGAIN_MS } else { limit::MCP_ATTACH_WAIT_MS };
        loop {
            match self.patiently(posted, wait_ms).await {
                Err(Lost::Forgotten) if !renewed && posted.own.is_none() => {
                    renewed = true;
                    self.renew().await?;
                }
                done => return done,
            }
        }
    }

    async fn patiently(&self, posted: &Posted, wait_ms: u64) -> Result<Answer, Lost> {
        let until = Instant::now() + Duration::from_millis(wait_ms);
        let mut pauses = Pauses::default();
        loop {
            let lost = match self.request(&Method::POST, Some(posted), "").await {
                Ok(answer) => return Ok(answer),
                Err(lost) => lost,
            };
            let may = match &lost {
                Lost::Unsent(_) => true,
                Lost::Broken(_) => posted.again,
                Lost::Refused { status, .. } => matches!(status, 502..=504),
                Lost::Forgotten | Lost::Said(_) => false,
            };
            if !may || Instant::now() >= until {
                return Err(lost);
            }
            pauses.wait().await;
        }
    }

    /// Opens the stream of what belongs to no request, behind a place that was read.
    ///
    /// # Errors
    /// [`Lost`].
    pub(super) async fn open(&self, place: &str) -> Result<Answer, Lost> {
        self.request(&Method::GET, None, place).await
    }

    /// Reads on a stream whose line broke, once the server is there again.
    ///
    /// # Errors
    /// [`Lost`]: the rest is not kept.
    pub(super) async fn resume(&self, place: &str) -> Result<Answer, Lost> {
        let until = Instant::now() + Duration::from_millis(limit::MCP_ATTACH_AGAIN_MS);
        let mut pauses = Pauses::default();
        loop {
            match self.open(place).await {
                Err(Lost::Unsent(_) | Lost::Broken(_)) if Instant::now() < until => pauses.wait().await,
                done => return done,
            }
        }
    }

    /// Says that the client is gone.
    pub(super) async fn leave(&self) {
        if self.greeted.lock().session.is_some() {
            drop(self.request(&Method::DELETE, None, "").await);
        }
    }

    async fn request(&self, method: &Method, posted: Option<&Posted>, place: &str) -> Result<Answer, Lost> {
        let token = self.to.token.as_ref().map(|token| format!("Bearer {}", token.expose_secret()));
        let own = posted.and_then(|posted| posted.own.as_ref());
        let (session, version) = match own {
            Some(_) => (None, None),
            None => {
                let greeted = self.greeted.lock();
                (greeted.session.clone(), greeted.version.clone())
            }
        };
        let headers = [
            ("Accept", Some(BOTH)),
            ("Content-Type", posted.is_some().then_some("application/json")),
            ("Authorization", token.as_deref()),
            ("Mcp-Session-Id", session.as_deref()),
            ("MCP-Protocol-Version", version.as_deref()),
            ("Last-Event-ID", Some(place).filter(|place| !place.is_empty())),
        ];
        let own = own.into_iter().flatten().map(|(name, value)| (name.as_str(), value.as_str()));
        let headers = headers.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let headers: Vec<(&str, &str)> = headers.chain(own).collect();
        let body = posted.map(|posted| posted.body.clone());
        let sent = self.to.way.send(method, &headers, (body, SILENCE)).await;
        let answer = sent.map_err(|error| match error {
            HttpError::Cut { .. } | HttpError::Silent { .. } => Lost::Broken(error),
            other => Lost::Unsent(other),
        })?;
        self.was_there.store(true, Ordering::Relaxed);
        if (200..300).contains(&answer.status) { Ok(answer) } else { Err(refusal(answer).await) }
    }
}

/// What an answer says that is none.
async fn refusal(mut answer: Answer) -> Lost {
    let status = answer.status;
    let text = answer.text(REFUSAL_READ_MAX).await;
    let said: Value = serde_json::from_str(&text).unwrap_or_default();
    if status == 404 && said["error"]["code"] == NO_SESSION {
        return Lost::Forgotten;
    }
    match said.get("error") {
        Some(error) if said["jsonrpc"] == "2.0" && error["code"].is_i64() => Lost::Said(wire::told_error(error)),
        _ => Lost::Refused { status, said: words(&said, &text) },
    }
}

/// The messages of an answer, one by one.
pub(super) struct Messages {
    answer: Answer,
    /// None: it is no stream, and was read.
    reader: Option<SseReader>,
    read: VecDeque<Value>,
}

impl Messages {
    /// Those of an answer.
    ///
    /// # Errors
    /// [`Lost`]: it says nothing that is a message.
    pub(super) async fn of(mut answer: Answer) -> Result<Self, Lost> {
        if answer.content_type == "text/event-stream" {
            let reader = Some(SseReader::new(MESSAGE_BYTES_MAX));
            return Ok(Self { answer, reader, read: VecDeque::new() });
        }
        let text = answer.text(MESSAGE_BYTES_MAX).await;
        let read: VecDeque<Value> = match serde_json::from_str(&text) {
            Ok(Value::Array(messages)) => messages.into(),
            Ok(message @ Value::Object(_)) => [message].into(),
            _ if text.is_empty() => VecDeque::new(),
            _ => return Err(Lost::Refused { status: answer.status, said: head(&text) }),
        };
        Ok(Self { answer, reader: None, read })
    }

    /// Where the stream can be read on; empty where it cannot.
    pub(super) fn place(&self) -> &str {
        self.reader.as_ref().map_or("", SseReader::last_id)
    }

    /// The next one. None: there are no more.
    ///
    /// # Errors
    /// [`Lost`]: it broke.
    pub(super) async fn next(&mut self) -> Result<Option<Value>, Lost> {
        loop {
            if let Some(message) = self.read.pop_front() {
                return Ok(Some(message));
            }
            let Some(reader) = &mut self.reader else { return Ok(None) };
            let Some(piece) = self.answer.chunk().await.map_err(Lost::Broken)? else { return Ok(None) };
            let read = &mut self.read;
            let pushed = reader.push(&piece, |_, data| {
                read.extend(serde_json::from_str::<Value>(data).ok().filter(Value::is_object));
            });
            pushed.map_err(|error| Lost::Refused { status: self.answer.status, said: error.to_string() })?;
        }
    }
}

/// What a refusal says, in the words of the server.
fn words(said: &Value, text: &str) -> String {
    let message = said["error"]["message"].as_str().map(str::to_owned);
    message.unwrap_or_else(|| if text.trim().is_empty() { "no reason given".to_owned() } else { head(text) })
}

fn head(text: &str) -> String {
    crate::base::text::head(text.trim(), REFUSAL_BYTES_MAX).to_owned()
}

/// The first answer of a stream.
fn first_of(text: &str) -> Option<Value> {
    let mut found = None;
    let mut reader = SseReader::new(MESSAGE_BYTES_MAX);
    let read = reader.push(text.as_bytes(), |_, data| {
        let message = serde_json::from_str::<Value>(data).ok().filter(|message| message.get("method").is_none());
        found = found.take().or(message.filter(Value::is_object));
    });
    read.ok().and(found)
}
