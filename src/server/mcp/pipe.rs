//! MCP over a pipe: one message a line, in and out, for the one program that started us.
//!
//! A line that cannot be read, or is too long, is answered and ends nothing. At the end of the input what was asked is still worked
//! on for the time that a stop has; what would be asked of the client then has no answer. Then the application ends.
//!
//! Invariant: nothing but whole messages is written into the output.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde_json::Value;
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::modern::Piped;
use super::peer::Peer;
use super::stream::{Reader, Stream};
use super::watch;
use super::wire::{self, BATCHED, INVALID_REQUEST, Incoming, RpcError};
use crate::app::{App, Caller};
use crate::base::{BoxFuture, limit};
use crate::protocol::ApiError;
use crate::server::lines::{Line, line};
use crate::server::stdio::Pipe;

/// What is left for lines that are on their way when all has ended.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Serves the owner as an MCP server over a pipe until its input ends or `stop` fires, then stops the application.
///
/// # Errors
/// When not everything could be stored.
pub async fn serve_mcp<R, W>(
    app: Arc<App>,
    pipe: Pipe<R, W>,
    (stop, fixtures): (CancellationToken, bool),
) -> Result<(), ApiError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let Pipe { input, output, line_bytes_max, grace } = pipe;
    let peer = Peer::new("stdio".to_owned(), (Arc::clone(&app), Caller::default()), (None, fixtures));
    let said = Arc::clone(&peer.standing);
    let writing = tokio::spawn(write(output, said.read(0)));
    let modern = Piped::new(&app, fixtures);
    let work = FuturesUnordered::new();
    let mut desk = Desk { peer: Arc::clone(&peer), modern: Arc::clone(&modern), said, watching: Vec::new(), work };
    let finished = CancellationToken::new();
    {
        let reading = desk.read(BufReader::new(input), line_bytes_max);
        tokio::select! {
            () = reading => {}
            () = stop.cancelled() => {}
        }
    }
    peer.fall_silent();
    modern.fall_silent();
    let grace = *grace.borrow();
    // Who is gone is answered as far as it goes.
    drop(tokio::time::timeout(grace, desk.settle()).await);
    finished.cancel();
    desk.watching.clear();
    let stored = app.shutdown(if desk.work.is_empty() { Duration::ZERO } else { LAST_LINES }).await;
    drop(tokio::time::timeout(LAST_LINES, desk.settle()).await);
    peer.end();
    modern.end();
    drop(tokio::time::timeout(LAST_LINES, writing).await);
    stored
}

async fn write<W: AsyncWrite + Unpin>(mut output: W, mut said: Reader) {
    let written = async {
        while let Some((_, text)) = said.next().await {
            output.write_all(text.as_bytes()).await?;
            output.write_all(b"\n").await?;
            output.flush().await?;
        }
        Ok::<_, std::io::Error>(())
    };
    if let Err(cause) = written.await {
        tracing::warn!(%cause, "the output takes nothing more");
    }
}

/// What is worked on.
struct Desk {
    peer: Arc<Peer>,
    modern: Arc<Piped>,
    said: Arc<Stream>,
    /// For a client of an older version: nothing before it has greeted.
    watching: Vec<AbortOnDropHandle<()>>,
    work: FuturesUnordered<BoxFuture<'static, ()>>,
}

impl Desk {
    /// Takes lines until there are none.
    async fn read<R: AsyncBufRead + Unpin>(&mut self, mut input: R, line_bytes_max: usize) {
        loop {
            let mut reading = std::pin::pin!(line(&mut input, line_bytes_max));
            let read = loop {
                tokio::select! {
                    biased;
                    read = &mut reading => break read,
                    Some(()) = self.work.next(), if !self.work.is_empty() => {}
                }
            };
            match read {
                Ok(Some(Line::Whole(text))) if text.trim_ascii().is_empty() => {}
                Ok(Some(Line::Whole(text))) => self.take(&text).await,
                Ok(Some(Line::TooLong)) => {
                    let message = format!("the line is longer than {line_bytes_max} bytes");
                    self.refuse(&Value::Null, RpcError::new(INVALID_REQUEST, message));
                }
                Ok(None) => return,
                Err(cause) => {
                    tracing::warn!(%cause, "the input cannot be read");
                    return;
                }
            }
        }
    }

    fn refuse(&self, id: &Value, error: RpcError) {
        self.said.say(wire::response(id, &Err(error)));
    }

    async fn take(&mut self, text: &[u8]) {
        let (messages, listed) = match wire::read(text) {
            Ok(read) => read,
            Err((id, error)) => return self.refuse(&id, error),
        };
        if listed && (self.peer.version() != BATCHED || messages.len() > limit::MCP_BATCH_MAX) {
            let message =
                format!("expected one message (a list of at most {} only in {BATCHED})", limit::MCP_BATCH_MAX);
            return self.refuse(&Value::Null, RpcError::new(INVALID_REQUEST, message));
        }
        for message in messages {
            match message {
                Incoming::Request(request) if !listed && Piped::is_meant(&request) => {
                    let (modern, said) = (Arc::clone(&self.modern), Arc::clone(&self.said));
                    let mut work: BoxFuture<'static, ()> = Box::pin(modern.answer(request, said));
                    if (&mut work).now_or_never().is_none() {
                        self.work.push(work);
                    }
                }
                Incoming::Notification { method, params }
                    if method == "notifications/cancelled"
                        && params.get("requestId").is_some_and(|id| self.modern.take_back(&id.to_string())) => {}
                Incoming::Request(request) => {
                    let (peer, said) = (Arc::clone(&self.peer), Arc::clone(&self.said));
                    let greets = request.method == "initialize";
                    let mut work: BoxFuture<'static, ()> = Box::pin(async move { peer.answer(request, &said).await });
                    // What comes behind a greeting is read in the version that it settles, and what came before it is
                    // judged before it.
                    if greets {
                        work.await;
                        self.watch().await;
                    } else if (&mut work).now_or_never().is_none() {
                        self.work.push(work);
                    }
                }
                other => self.peer.hear(other),
            }
        }
    }

    /// Who has greeted is told of what changes.
    async fn watch(&mut self) {
        if self.watching.is_empty() && self.peer.hello().is_some() {
            self.watching = watch::lists(&self.peer).await;
        }
    }

    /// Waits until nothing is worked on.
    async fn settle(&mut self) {
        while self.work.next().await.is_some() {}
    }
}
