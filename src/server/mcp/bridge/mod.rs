//! A pipe to an MCP client, led on to a server that runs already: lines here, streamable HTTP there (`line`).
//!
//! What comes is handed on as it is, and what the server says too, but for the ids of its questions: those of a server that was
//! started again begin anew, and a yes to an old question must not become one to a new question.
//!
//! A server that is gone is looked for again, with pauses that grow; one that has forgotten the client is greeted again in the
//! client's own words, with its subscriptions, and the client is told that lists may be others. What was never sent is sent then;
//! what may have been done already is sent again only where that changes nothing.
//!
//! Requests of 2026-07-28 go beside all that, each for itself (`alone`).
//!
//! Invariants: every request that was handed on has one answer, by the server or, when that is gone, an error; an answer to a
//! question goes to the server that asked it; nothing but whole messages is written into the output.

mod alone;
mod line;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use self::alone::Alone;
use self::line::{Lost, Messages, Pauses, Posted, Server};
use super::modern::Piped;
use super::wire::{self, INTERNAL, INVALID_REQUEST, Incoming, Request, RpcError};
use crate::base::http::{Answer, Way};
use crate::base::limit;
use crate::protocol::{ApiError, ErrorCode};
use crate::server::lines::{Line, line};
use crate::server::stdio::Pipe;

/// What is left for the last lines when all has ended.
const LAST_LINES: Duration = Duration::from_secs(1);
/// How long a word that takes a request back waits for the server to have that request.
const TAKEN_WAIT: Duration = Duration::from_secs(2);

/// What is said of a request that got nothing else.
const NO_ANSWER: &str = "the server has ended its answer without one to this request";

/// The server that a client is led on to.
#[derive(Debug)]
pub struct Attachment {
    /// The way to its `/mcp`.
    pub way: Way,
    /// The token that opens it.
    pub token: Option<SecretString>,
}

/// Leads a pipe on to a server, until the input ends or `stop` fires.
///
/// # Errors
/// Why the server did not take the client, or that the output takes nothing more.
pub async fn bridge_mcp<R, W>(to: Attachment, pipe: Pipe<R, W>, stop: CancellationToken) -> Result<(), ApiError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let Pipe { input, output, line_bytes_max, grace } = pipe;
    let (said, lines) = mpsc::channel(limit::MCP_REQUESTS_MAX);
    let (work, listening) = (TaskTracker::new(), Mutex::default());
    let bridge = Arc::new(Bridge {
        server: Server::new(to),
        said,
        open: Mutex::default(),
        asked: Mutex::default(),
        alone: Alone::default(),
        work,
        listening,
        silent: CancellationToken::new(),
    });
    let mut writing = tokio::spawn(write(output, lines));
    let ended = tokio::select! {
        ended = bridge.read(BufReader::new(input), line_bytes_max) => ended,
        () = stop.cancelled() => Ok(()),
        _ = &mut writing => return Err(ApiError::internal("the output takes nothing more")),
    };
    bridge.end(if ended.is_ok() { *grace.borrow() } else { Duration::ZERO }).await;
    drop(bridge);
    drop(tokio::time::timeout(LAST_LINES, writing).await);
    ended
}

async fn write<W: AsyncWrite + Unpin>(mut output: W, mut lines: mpsc::Receiver<String>) {
    while let Some(mut text) = lines.recv().await {
        text.push('\n');
        let written = async {
            output.write_all(text.as_bytes()).await?;
            output.flush().await
        };
        if let Err(cause) = written.await {
            tracing::warn!(%cause, "the output takes nothing more");
            return;
        }
    }
}

struct Bridge {
    server: Server,
    said: mpsc::Sender<String>,
    /// The client's requests that have no answer, by their ids as text; each token fires when the server has the request.
    open: Mutex<HashMap<String, (Value, CancellationToken)>>,
    /// Questions of the server that have no answer, by the ids that the client was told.
    asked: Mutex<HashMap<String, Value>>,
    /// Requests that belong to no session.
    alone: Alone,
    work: TaskTracker,
    /// What the server says by itself.
    listening: Mutex<Option<AbortOnDropHandle<()>>>,
    /// Nothing more comes from the client.
    silent: CancellationToken,
}

impl Bridge {
    async fn read<R: AsyncBufRead + Unpin>(
        self: &Arc<Self>,
        mut input: R,
        line_bytes_max: usize,
    ) -> Result<(), ApiError> {
        loop {
            match line(&mut input, line_bytes_max).await {
                Ok(Some(Line::Whole(text))) if text.trim_ascii().is_empty() => {}
                Ok(Some(Line::Whole(text))) => self.take(text).await?,
                Ok(Some(Line::TooLong)) => {
                    let message = format!("the line is longer than {line_bytes_max} bytes");
                    self.refuse(&Value::Null, RpcError::new(INVALID_REQUEST, message)).await;
                }
                Ok(None) => return Ok(()),
                Err(cause) => {
                    tracing::warn!(%cause, "the input cannot be read");
                    return Ok(());
                }
            }
        }
    }

    async fn refuse(&self, id: &Value, error: RpcError) {
        // Who takes no lines is noticed by the one who writes them.
        drop(self.said.send(wire::response(id, &Err(error))).await);
    }

    async fn take(self: &Arc<Self>, text: Vec<u8>) -> Result<(), ApiError> {
        let (messages, listed) = match wire::read(&text) {
            Ok(read) => read,
            Err((id, error)) => {
                self.refuse(&id, error).await;
                return Ok(());
            }
        };
        if !listed {
            for message in messages {
                self.take_one(message, &text).await?;
            }
            return Ok(());
        }
        let ids = messages.into_iter().filter_map(|message| match message {
            Incoming::Request(request) => Some(request.id),
            Incoming::Notification { .. } | Incoming::Response { .. } => None,
        });
        self.begin(ids.collect(), text, false);
        Ok(())
    }

    async fn take_one(self: &Arc<Self>, message: Incoming, text: &[u8]) -> Result<(), ApiError> {
        match message {
            Incoming::Request(request) if request.method == "initialize" => return self.greet(&request).await,
            Incoming::Request(request) if Piped::is_meant(&request) => self.begin_alone(request, text.to_owned()).await,
            Incoming::Request(request) => {
                self.server.remember(&request, text);
                let changes_nothing = request.method != "tools/call";
                self.begin(vec![request.id], text.to_owned(), changes_nothing);
            }
            Incoming::Notification { method, params } => {
                if method == "notifications/cancelled" {
                    let id = params.get("requestId").map(Value::to_string).unwrap_or_default();
                    if self.alone.take_back(&id) {
                        return Ok(());
                    }
                    let taken = self.open.lock().get(&id).map(|(_, taken)| taken.clone());
                    if let Some(taken) = taken {
                        drop(tokio::time::timeout(TAKEN_WAIT, taken.cancelled()).await);
                    }
                    // Who took a request back hears no more of it.
                    self.open.lock().remove(&id);
                }
                self.tell(text.to_owned()).await;
            }
            Incoming::Response { id, outcome } => {
                let told = id.as_str().map(str::to_owned).unwrap_or_else(|| id.to_string());
                let asked = self.asked.lock().remove(&told);
                match asked {
                    Some(id) => self.tell(wire::response(&id, &outcome).into_bytes()).await,
                    None => tracing::debug!(%id, "an MCP client answers what was not asked, or no longer"),
                }
            }
        }
        Ok(())
    }

    /// The client says what it is: the server hears it, and from then on is listened to.
    async fn greet(self: &Arc<Self>, request: &Request) -> Result<(), ApiError> {
        match self.server.greet(request).await {
            Ok(answer) => {
                drop(self.said.send(wire::response(&request.id, &answer)).await);
                if answer.is_ok() {
                    let bridge = Arc::clone(self);
                    let listening = tokio::spawn(async move { bridge.listen().await });
                    *self.listening.lock() = Some(AbortOnDropHandle::new(listening));
                }
                Ok(())
            }
            Err(lost) => {
                let error = self.unreachable(&lost);
                self.refuse(&request.id, error.clone().into()).await;
                Err(error)
            }
        }
    }

    fn unreachable(&self, lost: &Lost) -> ApiError {
        let code = if lost.refused() { ErrorCode::Forbidden } else { ErrorCode::UpstreamUnavailable };
        ApiError::new(code, format!("the simse server at {}: {lost}", self.server.host()))
    }

    /// Hands on what wants no answer.
    async fn tell(&self, text: Vec<u8>) {
        if let Err(lost) = self.server.post(&Posted::new(text, true)).await {
            tracing::warn!(%lost, "the server was not told what an MCP client said");
        }
    }

    /// Hands on what wants answers, beside the rest.
    fn begin(self: &Arc<Self>, ids: Vec<Value>, text: Vec<u8>, again: bool) {
        let taken = CancellationToken::new();
        let keys: Vec<String> = ids.iter().map(Value::to_string).collect();
        self.open.lock().extend(keys.iter().cloned().zip(ids.into_iter().map(|id| (id, taken.clone()))));
        let bridge = Arc::clone(self);
        self.work.spawn(async move {
            let outcome = bridge.exchange(&keys, (text, again), &taken).await;
            let why = match outcome {
                Ok(()) => RpcError::new(INTERNAL, NO_ANSWER),
                Err(Lost::Said(error)) => error,
                Err(lost) => RpcError::new(INTERNAL, bridge.unreachable(&lost).0.message),
            };
            for key in keys {
                let left = bridge.open.lock().remove(&key);
                if let Some((id, _)) = left {
                    bridge.refuse(&id, why.clone()).await;
                }
            }
        });
    }

    async fn exchange(
        &self,
        keys: &[String],
        (text, again): (Vec<u8>, bool),
        taken: &CancellationToken,
    ) -> Result<(), Lost> {
        let mut answer = self.server.post(&Posted::new(text, again)).await?;
        taken.cancel();
        let mut place = String::new();
        loop {
            let cut = self.relay(answer, &mut place).await;
            let is_open = |key: &String| self.open.lock().contains_key(key);
            if !keys.iter().any(is_open) || place.is_empty() {
                return cut;
            }
            // Its line broke, or the server has hung up: the rest is fetched.
            answer = self.server.resume(&place).await?;
        }
    }

    /// Hands on what an answer has, to its end; `place` becomes where a stream can be read on.
    async fn relay(&self, answer: Answer, place: &mut String) -> Result<(), Lost> {
        let mut messages = Messages::of(answer).await?;
        let ended = loop {
            match messages.next().await {
                Ok(Some(message)) => self.hear(message).await,
                Ok(None) => break Ok(()),
                Err(lost) => break Err(lost),
            }
        };
        if !messages.place().is_empty() {
            messages.place().clone_into(place);
        }
        ended
    }

    /// Reads what belongs to no request; a line that breaks is opened again after a pause.
    async fn listen(&self) {
        let mut place = String::new();
        let mut pauses = Pauses::default();
        loop {
            match self.server.open(&place).await {
                Ok(answer) => {
                    pauses = Pauses::default();
                    if let Err(lost) = self.relay(answer, &mut place).await {
                        tracing::debug!(%lost, "the stream of the server broke");
                    }
                }
                Err(lost) if lost.forgotten() => {
                    place.clear();
                    match self.server.renew().await {
                        Ok(()) => self.tell_of_change().await,
                        Err(lost) => tracing::warn!(%lost, "the server does not take the client again"),
                    }
                }
                // It offers no such stream.
                Err(lost) if lost.refused() => return std::future::pending().await,
                Err(lost) => tracing::debug!(%lost, "the server is not there"),
            }
            pauses.wait().await;
        }
    }

    async fn tell_of_change(&self) {
        for what in ["tools", "resources"] {
            let method = format!("notifications/{what}/list_changed");
            drop(self.said.send(wire::notification(&method, &json!({}))).await);
        }
    }

    /// Takes a message of the server, for the client.
    async fn hear(&self, mut message: Value) {
        let is_named = message.get("method").is_some();
        match (message.get("id").cloned(), is_named) {
            (Some(id), true) => {
                if self.silent.is_cancelled() {
                    let nobody = RpcError::new(INTERNAL, "nothing more comes from the client");
                    return self.tell(wire::response(&id, &Err(nobody)).into_bytes()).await;
                }
                let told = self.server.own_name(&id);
                self.asked.lock().insert(told.clone(), id);
                message["id"] = told.into();
            }
            (Some(id), false) => {
                if self.open.lock().remove(&id.to_string()).is_none() {
                    return tracing::debug!(%id, "the server answers what nobody waits for");
                }
            }
            (None, _) if message["method"] == "notifications/cancelled" => {
                let told = self.server.own_name(&message["params"]["requestId"]);
                self.asked.lock().remove(&told);
                message["params"]["requestId"] = told.into();
            }
            (None, _) => {}
        }
        drop(self.said.send(message.to_string()).await);
    }

    /// The input has ended: what was asked is waited for, as long as that; then the server is told that the client is gone.
    async fn end(&self, grace: Duration) {
        self.silent.cancel();
        let asked = std::mem::take(&mut *self.asked.lock());
        for (_, id) in asked {
            let nobody = RpcError::new(INTERNAL, "nothing more comes from the client");
            self.tell(wire::response(&id, &Err(nobody)).into_bytes()).await;
        }
        self.work.close();
        drop(tokio::time::timeout(grace, self.work.wait()).await);
        self.listening.lock().take();
        drop(tokio::time::timeout(LAST_LINES, self.server.leave()).await);
        let left = std::mem::take(&mut *self.open.lock());
        let alone = self.alone.give_up();
        for id in left.into_values().map(|(id, _)| id).chain(alone) {
            self.refuse(&id, RpcError::new(INTERNAL, "the input has ended, and this request was given up")).await;
        }
    }
}
