//! The WebSocket: one message a frame of text, pings on a silent line, and an orderly end.
//!
//! What passes on it is our own dialogue (`/ws`), or the Agent Client Protocol (`/acp`).
//!
//! Reading and writing are tasks of their own, so that a client that writes much before it reads cannot lock itself
//! and us up. A client that takes nothing is cut off by the connection's write deadline; one that does not answer
//! pings, by the time that a pong may take. Either comes back and goes on by `after`.
//!
//! Invariants: a message is taken within `body_bytes_max` bytes and `body_timeout`, and as the room of all allows; compression is
//! never agreed on. Behind a ping nothing is
//! read until its answer is on its way: who sends pings and takes no answers is read no further. The socket counts as a connection
//! until it has ended.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::AsyncReadExt as _;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::handshake::server::create_response_with_body;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::acp::Peer;
use super::answer::{Answer, Failure};
use super::call::Call;
use super::dialogue::{Dialogue, ready, shutdown};
use super::listen::Berth;
use super::out::{self, Frame};
use super::pieces::{Bounds, Fault, Pieces};
use crate::app::Caller;
use crate::base::limit;
use crate::protocol::ApiError;

/// Bytes that tungstenite gathers before it writes.
const WRITE_BUFFER_BYTES: usize = 16 << 10;

/// Bytes that it takes in at once.
const READ_BUFFER_BYTES: usize = 16 << 10;
/// How long a client that was refused may go on sending: were the line cut meanwhile, its system would throw away what it was told.
const LINGER: Duration = Duration::from_secs(1);

type Line = Pieces<TokioIo<Upgraded>>;
type WebSocket = WebSocketStream<Line>;

/// What is spoken on a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Language {
    /// Our own.
    Own,
    /// The Agent Client Protocol.
    Acp,
}

/// Whoever takes the messages of a socket.
enum Talk {
    Own(Box<Dialogue>),
    Acp(Peer),
}

impl Talk {
    async fn take(&mut self, text: &[u8]) -> bool {
        match self {
            Self::Own(dialogue) => dialogue.take(text).await,
            Self::Acp(peer) => peer.take(text).await,
        }
    }

    async fn refuse(&self, error: ApiError) -> bool {
        match self {
            Self::Own(dialogue) => dialogue.refuse((None, None), error).await,
            Self::Acp(peer) => peer.refuse(error).await,
        }
    }
}

/// Turns the request into a socket.
pub(super) async fn open(call: Call) -> Answer {
    open_in(call, Language::Own).await
}

/// The same for a client of the Agent Client Protocol.
pub(super) async fn open_acp(call: Call) -> Answer {
    open_in(call, Language::Acp).await
}

async fn open_in(call: Call, language: Language) -> Answer {
    call.no_query()?;
    let Call { shared, caller, mut head, .. } = call;
    let (berth, upgrade) = (head.extensions.remove::<Berth>(), head.extensions.remove::<OnUpgrade>());
    let refused = |cause: &dyn std::fmt::Display| {
        let expected = format!("the head of a WebSocket of version 13: {cause}");
        Failure::with_status(ApiError::invalid("Upgrade", expected), 426)
    };
    let agreed = create_response_with_body(&Request::from_parts(head, ()), Body::empty);
    let agreed = agreed.map_err(|cause| refused(&cause))?;
    let upgrade = upgrade.ok_or_else(|| refused(&"the connection cannot become one"))?;
    tokio::spawn(async move {
        match (upgrade.await, berth) {
            (Ok(line), Some(berth)) => {
                let serving = Box::pin(serve(TokioIo::new(line), shared, (caller, language)));
                berth.hold(serving).await;
            }
            (Ok(_), None) => tracing::error!("a socket without a berth"),
            (Err(cause), _) => tracing::debug!(%cause, "a socket did not come to be"),
        }
    });
    Ok(agreed)
}

/// Why a socket ends from our side.
#[derive(Debug, Clone, Copy)]
enum End {
    /// The server has stopped.
    Stopped,
    /// The client no longer answers.
    Deaf,
    /// Something is wrong with what comes.
    Refused(Fault),
    /// What says that it is text is not UTF-8.
    NoText,
}

impl End {
    fn frame(self) -> CloseFrame {
        let (code, reason) = match self {
            Self::Stopped => (CloseCode::Away, "the server has stopped"),
            Self::Deaf => (CloseCode::Away, "no answer to a ping"),
            Self::Refused(Fault::TooLarge) => (CloseCode::Size, "the message is larger than the limit"),
            Self::Refused(Fault::NoRoom) => (CloseCode::Again, "RESOURCE_EXHAUSTED: no room for a large message now"),
            Self::Refused(Fault::Late) => (CloseCode::Policy, "TIMEOUT: a message was begun and did not come in time"),
            Self::Refused(Fault::Broken) => (CloseCode::Protocol, "this is no frame of a WebSocket"),
            Self::NoText => (CloseCode::Invalid, "a text that is not UTF-8"),
        };
        CloseFrame { code, reason: reason.into() }
    }
}

async fn serve(line: TokioIo<Upgraded>, shared: Arc<Shared>, (caller, language): (Caller, Language)) {
    let _open = shared.app.meters().sockets.enter();
    let (socket, fault) = socket(line, &shared).await;
    let (sink, stream) = socket.split();
    let (out, frames) = out::channel();
    shared.outs.add(&out);
    let gone = CancellationToken::new();
    let (heard, hearing) = watch::channel(Instant::now());
    let (end, ending) = watch::channel(None);
    if language == Language::Own {
        out.say(ready("websocket")).await;
    }
    let (answer, answers) = mpsc::channel(1);
    let (gone_too, shared_too) = (gone.clone(), Arc::clone(&shared));
    let writer = Writer { sink, frames, answers, hearing, ending, gone: gone_too, shared: shared_too, language };
    let writing = tokio::spawn(writer.run());
    let app = Arc::clone(&shared.app);
    let talk = match language {
        Language::Own => Talk::Own(Box::new(Dialogue::new(app, caller, out))),
        Language::Acp => Talk::Acp(Peer::on_line(app, caller, out)),
    };
    let mut reader = Reader { stream, fault, heard, answer, talk };
    let ended = tokio::select! {
        ended = reader.run() => ended,
        () = gone.cancelled() => None,
        () = shared.streams.cancelled() => Some(End::Stopped),
    };
    // Nothing more is said by anybody but the writer's last word.
    end.send_replace(Some(ended));
    let Reader { stream, .. } = reader;
    let Ok(sink) = writing.await else { return };
    if let (Some(End::Refused(_) | End::NoText), Ok(socket)) = (ended, stream.reunite(sink)) {
        hear_out(socket.into_inner().into_inner()).await;
    }
}

async fn socket(line: TokioIo<Upgraded>, shared: &Shared) -> (WebSocket, Arc<OnceLock<Fault>>) {
    let bytes_max = shared.options.body_bytes_max;
    let bounds = Bounds { bytes_max, time: shared.options.body_timeout, intake: Arc::clone(&shared.intake) };
    let (line, fault) = Pieces::new(line, bounds);
    let config = WebSocketConfig::default()
        .max_message_size(Some(bytes_max))
        .max_frame_size(Some(bytes_max))
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES);
    (WebSocketStream::from_raw_socket(line, Role::Server, Some(config)).await, fault)
}

/// Takes in what a client that was refused is still sending, a little, and keeps none of it.
async fn hear_out(mut line: TokioIo<Upgraded>) {
    let hearing = async {
        let mut rest = [0; 4096];
        while matches!(line.read(&mut rest).await, Ok(1..)) {}
    };
    // A client that goes on does not want to know.
    drop(tokio::time::timeout(LINGER, hearing).await);
}

struct Reader {
    stream: SplitStream<WebSocket>,
    /// What was wrong, once reading has failed for it.
    fault: Arc<OnceLock<Fault>>,
    heard: watch::Sender<Instant>,
    /// Has the answer to a ping written.
    answer: mpsc::Sender<oneshot::Sender<()>>,
    talk: Talk,
}

impl Reader {
    /// Takes messages until there are none. Gives back why we end it.
    async fn run(&mut self) -> Option<End> {
        while let Some(message) = self.stream.next().await {
            let message = match message {
                Ok(message) => message,
                Err(cause) => {
                    return self.fault.get().map_or_else(|| broken(&cause), |fault| Some(End::Refused(*fault)));
                }
            };
            self.heard.send_replace(Instant::now());
            let goes_on = match message {
                Message::Text(text) => self.talk.take(text.as_bytes()).await,
                Message::Binary(_) => {
                    let error = ApiError::invalid("message", "a frame of text, not a binary one");
                    self.talk.refuse(error).await
                }
                // tungstenite has put its answer beside what is to be written, however much that is.
                Message::Ping(_) => {
                    let (written, wait) = oneshot::channel();
                    self.answer.send(written).await.is_ok() && wait.await.is_ok()
                }
                Message::Pong(_) | Message::Frame(_) => true,
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
fn broken(cause: &Error) -> Option<End> {
    tracing::debug!(%cause, "a socket ended badly");
    match cause {
        Error::Capacity(_) => Some(End::Refused(Fault::TooLarge)),
        Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => None,
        Error::Utf8(_) => Some(End::NoText),
        Error::Protocol(_) | Error::AttackAttempt => Some(End::Refused(Fault::Broken)),
        _ => None,
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
    language: Language,
}

impl Writer {
    async fn run(mut self) -> SplitSink<WebSocket, Message> {
        let end = self.write().await;
        self.gone.cancel();
        if let Some(end) = end {
            // Who has gone does not miss it.
            drop(self.sink.send(Message::Close(Some(end.frame()))).await);
        }
        drop(self.sink.close().await);
        self.sink
    }

    /// Writes what there is. Gives back how it is to end.
    async fn write(&mut self) -> Option<End> {
        let (ping, pong) = (Duration::from_millis(limit::PING_MS), Duration::from_millis(limit::PONG_MS));
        let mut pinged = None;
        // The other protocol has no word for it.
        let mut stopping = self.shared.ending.is_cancelled() || self.language == Language::Acp;
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
                () = self.shared.ending.cancelled(), if !stopping => {
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
