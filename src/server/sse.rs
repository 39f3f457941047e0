//! Event streams (contract.md, The event stream): numbered frames, a first `ready`, comments on a silent line.
//!
//! A stream is a cursor into the log: it holds one batch at a time and takes the next when the
//! connection has room, so a slow client costs nothing here. A client that takes nothing at all
//! is cut off by the connection's write deadline and resumes by `Last-Event-ID`.
//!
//! Invariant: frames go out in the order of their numbers, each once.

use std::convert::Infallible;
use std::pin::Pin;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::Response;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::app::{Batch, EventReader, encode_frames};
use crate::base::clock;
use crate::base::metrics::Entered;
use crate::protocol::{Event, SessionId, TurnId};

/// Which events of a session a stream shows.
#[derive(Debug, Default)]
pub(crate) struct Selection {
    /// Only these types. None: all.
    pub(crate) types: Option<Vec<String>>,
    /// Only this turn's; the stream ends with the turn.
    pub(crate) turn: Option<TurnId>,
}

impl Selection {
    fn shows(&self, event: &Event) -> bool {
        self.turn.is_none() || self.turn == event.turn_id
    }

    fn takes(&self, event: &Event) -> bool {
        self.shows(event) && self.types.as_ref().is_none_or(|types| types.iter().any(|kind| *kind == event.kind))
    }

    /// Whether the stream is over behind this event.
    fn ends(&self, event: &Event) -> bool {
        self.turn.is_some()
            && self.shows(event)
            && matches!(event.kind.as_ref(), "session.completed" | "session.error" | "abort")
    }
}

/// A stream to be opened.
pub(crate) struct Opening {
    /// The session.
    pub(crate) session: SessionId,
    /// Its events.
    pub(crate) reader: EventReader,
    /// Which of them.
    pub(crate) selection: Selection,
    /// Time between two comments on a silent line.
    pub(crate) heartbeat: Duration,
    /// Ends it.
    pub(crate) stop: CancellationToken,
    /// It is one of those that are open.
    pub(crate) _open: Entered,
}

struct Feed {
    opening: Opening,
    first: Option<Bytes>,
    over: bool,
    /// Wakes when the line may have been silent for long. It is not set anew for each frame, nor is `stop`.
    silence: Pin<Box<Sleep>>,
    stop: Pin<Box<WaitForCancellationFutureOwned>>,
}

/// Answers with the stream; the headers and the first frame go out at once.
pub(crate) fn respond(opening: Opening) -> Response {
    let first = Some(ready_frame(&opening));
    let silence = Box::pin(tokio::time::sleep(opening.heartbeat));
    let stop = Box::pin(opening.stop.clone().cancelled_owned());
    let feed = Feed { opening, first, over: false, silence, stop };
    let frames = stream::unfold(feed, |mut feed| async move {
        let frame = feed.next().await?;
        Some((Ok::<_, Infallible>(frame), feed))
    });
    response(Body::from_stream(frames))
}

/// A comment on a silent line.
pub(super) const STILL_HERE: Bytes = Bytes::from_static(b": still here\n\n");

/// An answer with an event stream.
pub(super) fn response(frames: Body) -> Response {
    let mut response = Response::new(frames);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Says where the stream stands. It has no number: it is not in the log.
fn ready_frame(opening: &Opening) -> Bytes {
    let mut ready = json!({
        "type": "ready",
        "payload": { "position": opening.reader.position() },
        "sessionId": opening.session,
        "at": clock::now_ms(),
    });
    if let (Some(turn), Value::Object(fields)) = (&opening.selection.turn, &mut ready) {
        fields.insert("turnId".to_owned(), json!(turn));
    }
    Bytes::from(format!("data: {ready}\n\n"))
}

impl Feed {
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let until = Instant::now() + self.opening.heartbeat;
        while !self.over {
            let cursor = self.opening.reader.position();
            let batch = tokio::select! {
                // Events first: who watches a stop sees how the turns ended.
                biased;
                batch = self.opening.reader.next() => batch,
                () = &mut self.stop => return None,
                () = &mut self.silence => {
                    let silent = Instant::now() >= until;
                    self.silence.as_mut().reset(if silent { Instant::now() + self.opening.heartbeat } else { until });
                    if silent {
                        return Some(STILL_HERE);
                    }
                    continue;
                }
            };
            match batch {
                Ok(Some(batch)) => {
                    let frames = self.frames(cursor, &batch);
                    if !frames.is_empty() {
                        return Some(frames);
                    }
                }
                Ok(None) => return None,
                Err(error) => {
                    tracing::warn!(session = %self.opening.session, %error, "an event stream ended: the log failed");
                    return None;
                }
            }
        }
        None
    }

    /// The frames of a batch behind the cursor. Those that all readers share, where nothing is left out.
    fn frames(&mut self, cursor: u64, batch: &Batch) -> Bytes {
        let selection = &self.opening.selection;
        let start = batch.events.partition_point(|event| event.seq <= cursor);
        let events = batch.events.get(start..).unwrap_or_default();
        let end = events.iter().position(|event| selection.ends(event));
        self.over = end.is_some();
        let events = end.map_or(events, |end| events.get(..=end).unwrap_or(events));
        if events.iter().all(|event| selection.takes(event)) {
            let whole = events.len() == batch.events.len();
            return if whole { batch.frames() } else { Bytes::from(encode_frames(events)) };
        }
        let taken = events.iter().filter(|event| selection.takes(event));
        Bytes::from(taken.flat_map(|event| encode_frames(std::slice::from_ref(event))).collect::<Vec<u8>>())
    }
}
