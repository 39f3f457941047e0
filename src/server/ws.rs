//! The WebSocket: one message a frame of text, pings on a silent line, and an orderly end.
//!
//! Reading and writing are tasks of their own, so that a client that writes much before it reads cannot lock itself
//! and us up. A client that takes nothing is cut off by the connection's write deadline; one that does not answer
//! pings, by the time that a pong may take. Either comes back and goes on by `after`.
//!
//! Invariants: a message is taken within `body_bytes_max` bytes, and compression is never agreed on. Behind a ping nothing is
//! read until its answer is on its way: who sends pings and takes no answers is read no further. The socket counts as a connection
//! until it has ended.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::answer::{Answer, Failure};
use super::call::Call;
use super::dialogue::{Dialogue, ready, shutdown};
use super::listen::Berth;
use super::out::{self, Frame};
use crate::app::Caller;
use crate::base::limit;
use crate::protocol::ApiError;

/// Bytes that tungstenite gathers before it writes.
const WRITE_BUFFER_BYTES: usize = 16 << 10;

/// Turns the request into a socket.
pub(super) async fn open(mut call: Call) -> Answer {
    call.no_query()?;
    let asked = WebSocketUpgrade::from_request_parts(&mut call.head, &call.shared).await;
    let upgrade = asked.map_err(|cause| {
        let expected = format!("the head of a WebSocket of version 13: {cause}");
        Failure::with_status(ApiError::invalid("Upgrade", expected), 426)
    })?;
    let (shared, caller) = (Arc::clone(&call.shared), call.caller.clone());
    let berth = call.head.extensions.remove::<Berth>();
    let bytes_max = shared.options.body_bytes_max;
    let upgrade = upgrade
        .max_message_size(bytes_max)
        .max_frame_size(bytes_max)
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .on_failed_upgrade(|cause| tracing::debug!(%cause, "a socket did not come to be"));
    Ok(upgrade.on_upgrade(move |socket| async move {
        match berth {
            Some(berth) => berth.hold(serve(socket, shared, caller)).await,
            None => tracing::error!("a socket without a berth"),
        }
    }))
}

/// Why a socket ends from our side.
#[derive(Debug, Clone, Copy)]
enum End {
    /// The server has stopped.
    Stopped,
    /// The client no longer answers.
    Deaf,
    /// A message was too large.
    TooLarge,
    /// Something that is no WebSocket came.
    Broken,
}

impl End {
    fn frame(self) -> CloseFrame {
        let (code, reason) = match self {
            Self::Stopped => (close_code::AWAY, "the server has stopped"),
            Self::Deaf => (close_code::AWAY, "no answer to a ping"),
            Self::TooLarge => (close_code::SIZE, "the message is larger than the limit"),
            Self::Broken => (close_code::PROTOCOL, "this is no frame of a WebSocket"),
        };
        CloseFrame { code, reason: reason.into() }
    }
}

async fn serve(socket: WebSocket, shared: Arc<Shared>, caller: Caller) {
    let _open = shared.app.meters().sockets.enter();
    let (sink, stream) = socket.split();
    let (out, frames) = out::channel();
    shared.outs.add(&out);
    let gone = CancellationToken::new();
    let (heard, hearing) = watch::channel(Instant::now());
    let (end, ending) = watch::channel(None);
    out.say(ready("websocket")).await;
    let (answer, answers) = mpsc::channel(1);
    let writer = Writer { sink, frames, answers, hearing, ending, gone: gone.clone(), shared: Arc::clone(&shared) };
    let writing = tokio::spawn(writer.run());
    let reader = Reader { stream, heard, answer, dialogue: Dialogue::new(Arc::clone(&shared.app), caller, out) };
    let ended = tokio::select! {
        ended = reader.run() => ended,
        () = gone.cancelled() => None,
        () = shared.streams.cancelled() => Some(End::Stopped),
    };
    // Nothing more is said by anybody but the writer's last word.
    end.send_replace(Some(ended));
    drop(writing.await);
}

struct Reader {
    stream: SplitStream<WebSocket>,
    heard: watch::Sender<Instant>,
    /// Has the answer to a ping written.
    answer: mpsc::Sender<oneshot::Sender<()>>,
    dialogue: Dialogue,
}

impl Reader {
    /// Takes messages until there are none. Gives back why we end it.
    async fn run(mut self) -> Option<End> {
        while let Some(message) = self.stream.next().await {
            let message = match message {
                Ok(message) => message,
                Err(cause) => return broken(&cause),
            };
            self.heard.send_replace(Instant::now());
            let goes_on = match message {
                Message::Text(text) => self.dialogue.take(text.as_bytes()).await,
                Message::Binary(_) => {
                    let error = ApiError::invalid("message", "a frame of text, not a binary one");
                    self.dialogue.refuse((None, None), error).await
                }
                // tungstenite has put its answer beside what is to be written, however much that is.
                Message::Ping(_) => {
                    let (written, wait) = oneshot::channel();
                    self.answer.send(written).await.is_ok() && wait.await.is_ok()
                }
                Message::Pong(_) => true,
                Message::Close(_) => return None,
            };
            if !goes_on {
                return None;
            }
        }
        None
    }
}

/// What an error of the line says about how to end it.
fn broken(cause: &axum::Error) -> Option<End> {
    let text = cause.to_string();
    tracing::debug!(cause = text, "a socket ended badly");
    if text.contains("Space limit exceeded") {
        Some(End::TooLarge)
    } else if text.contains("IO error") || text.contains("Connection") || text.contains("without closing handshake") {
        None
    } else {
        Some(End::Broken)
    }
}

struct Writer {
    sink: SplitSink<WebSocket, Message>,
    frames: mpsc::Receiver<Frame>,
    answers: mpsc::Receiver<oneshot::Sender<()>>,
    hearing: watch::Receiver<Instant>,
    /// Set when it is to end, with how.
    ending: watch::Receiver<Option<Option<End>>>,
    /// Fires when nothing can be written any more.
    gone: CancellationToken,
    shared: Arc<Shared>,
}

impl Writer {
    async fn run(mut self) {
        let end = self.write().await;
        self.gone.cancel();
        if let Some(end) = end {
            // Who has gone does not miss it.
            drop(self.sink.send(Message::Close(Some(end.frame()))).await);
        }
        drop(self.sink.close().await);
    }

    /// Writes what there is. Gives back how it is to end.
    async fn write(&mut self) -> Option<End> {
        let (ping, pong) = (Duration::from_millis(limit::PING_MS), Duration::from_millis(limit::PONG_MS));
        let mut pinged = None;
        let mut stopping = self.shared.accepting.is_cancelled();
        let farewell = || Message::Text(shutdown(self.shared.options.shutdown_grace).into());
        loop {
            let heard = *self.hearing.borrow();
            // Whatever comes shows that somebody is there.
            pinged = pinged.filter(|at| *at > heard);
            let next = pinged.map_or(heard + ping, |at| at + pong);
            let mut _room = None;
            let frame = tokio::select! {
                biased;
                end = async { self.ending.wait_for(Option::is_some).await.ok().and_then(|end| *end).flatten() } => {
                    if matches!(end, Some(End::Stopped)) && !stopping {
                        drop(self.sink.send(farewell()).await);
                    }
                    return end;
                }
                () = self.shared.accepting.cancelled(), if !stopping => {
                    stopping = true;
                    farewell()
                }
                () = tokio::time::sleep_until(next) => {
                    // It may have been heard meanwhile.
                    if *self.hearing.borrow() != heard {
                        continue;
                    }
                    if pinged.is_some() {
                        return Some(End::Deaf);
                    }
                    pinged = Some(Instant::now());
                    Message::Ping(bytes::Bytes::new())
                }
                Some(written) = self.answers.recv() => {
                    if let Err(cause) = self.sink.flush().await {
                        tracing::debug!(%cause, "a socket takes nothing more");
                        return None;
                    }
                    // A reader that has gone waits for nothing.
                    let _ = written.send(());
                    continue;
                }
                frame = self.frames.recv() => match frame {
                    Some(Frame { text, room }) => {
                        // Free again when it is written.
                        _room = Some(room);
                        Message::Text(text.into())
                    }
                    None => return None,
                },
            };
            if let Err(cause) = self.sink.send(frame).await {
                tracing::debug!(%cause, "a socket takes nothing more");
                return None;
            }
        }
    }
}
