//! What happens during a batch, on its way to the JavaScript event bus.
//!
//! Events wait in a queue; JavaScript is woken once for many, takes what is there, and takes the rest
//! when the batch ends: so an event never comes after the result that it leads to.
//!
//! Invariant: at most four events for each call of the batch, so the caller bounds the queue; of the pieces of output
//! that a running call writes, only so many wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use napi_derive::napi;
use parking_lot::Mutex;

use super::bridge::{Bridge, NativeBridge};
use super::text::{JsText, js_text};
use crate::agent::{Sink, SinkError};
use crate::base::BoxFuture;
use crate::protocol::EventBody;

/// Pieces of output that wait to be taken, at most; they are only a preview.
const PIECES_MAX: usize = 64;

/// A queue of events, and whom to wake for them.
pub(super) struct EventQueue {
    bridge: Arc<Bridge>,
    batch: u32,
    waiting: Mutex<Waiting>,
    /// How many of them are pieces of output.
    pieces: AtomicUsize,
}

/// Events as the beginning of a JSON array: a type, and a list of the payloads that came one after the other; by turns. Written
/// by whoever has the event, not by JavaScript's thread, and read there much faster than type and payload by turns.
#[derive(Default)]
struct Waiting {
    json: Vec<u8>,
    /// The type whose list is open.
    kind: &'static str,
}

impl Waiting {
    fn push(&mut self, event: &EventBody) {
        let kind = event.kind();
        if self.json.is_empty() || kind != self.kind {
            let before = if self.json.is_empty() { "[" } else { "]," };
            self.json.extend_from_slice(format!("{before}\"{kind}\",[").as_bytes());
            self.kind = kind;
        } else {
            self.json.push(b',');
        }
        event.append_payload(&mut self.json);
    }

    fn into_json(mut self) -> String {
        self.json.extend_from_slice(if self.json.is_empty() { b"[]" } else { b"]]" });
        // What serde writes is UTF-8.
        String::from_utf8(self.json).unwrap_or_else(|_| "[]".to_owned())
    }
}

/// The events that a tool publishes by itself; those around its call are made by JavaScript.
pub(super) struct OwnEvents(pub(super) Arc<EventQueue>);

impl Sink for OwnEvents {
    fn emit(&self, event: EventBody) -> Result<(), SinkError> {
        match event {
            EventBody::ToolCallStart { .. }
            | EventBody::ToolTimeout { .. }
            | EventBody::ToolCallError { .. }
            | EventBody::ToolCallEnd { .. } => Ok(()),
            own => self.0.emit(own),
        }
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), SinkError>> {
        self.0.ready()
    }
}

impl Sink for EventQueue {
    fn emit(&self, event: EventBody) -> Result<(), SinkError> {
        let is_piece = matches!(event, EventBody::ToolCallOutput { .. });
        if is_piece && self.pieces.fetch_add(1, Ordering::AcqRel) >= PIECES_MAX {
            return Ok(());
        }
        let mut waiting = self.waiting.lock();
        let wake = waiting.json.is_empty();
        waiting.push(&event);
        drop(waiting);
        if wake {
            self.bridge.notify(self.batch, "events");
        }
        Ok(())
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), SinkError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// The events of one batch.
#[napi]
pub struct NativeEvents {
    pub(super) queue: Arc<EventQueue>,
}

#[napi]
impl NativeEvents {
    /// A queue that wakes JavaScript with operation `events` and the batch's number.
    #[napi(constructor, catch_unwind)]
    pub fn new(bridge: &NativeBridge, batch: u32) -> Self {
        let bridge = Arc::clone(&bridge.inner);
        Self { queue: Arc::new(EventQueue { bridge, batch, waiting: Mutex::default(), pieces: AtomicUsize::new(0) }) }
    }

    /// Takes what is there: a JSON array of a type and a list of payloads, by turns.
    #[napi(catch_unwind)]
    pub fn take(&self) -> JsText {
        let taken = std::mem::take(&mut *self.queue.waiting.lock());
        self.queue.pieces.store(0, Ordering::Release);
        js_text(taken.into_json())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_one_type_stand_together_and_keep_their_order() {
        let delta = |text: &str| EventBody::StreamDelta { text: text.into() };
        let mut waiting = Waiting::default();
        for event in [delta("a\"b"), delta("ü"), EventBody::StreamStart {}, delta("c")] {
            waiting.push(&event);
        }
        let want =
            r#"["stream.delta",[{"text":"a\"b"},{"text":"ü"}],"stream.start",[{}],"stream.delta",[{"text":"c"}]]"#;
        assert_eq!(waiting.into_json(), want);
        assert_eq!(Waiting::default().into_json(), "[]");
    }
}
