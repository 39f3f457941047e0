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
    /// The inside of a JSON array: type and payload by turns. Written by whoever has the event, not by JavaScript's
    /// thread.
    waiting: Mutex<String>,
    /// How many of them are pieces of output.
    pieces: AtomicUsize,
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
        let (kind, payload) = event.encode();
        let mut waiting = self.waiting.lock();
        let wake = waiting.is_empty();
        if !wake {
            waiting.push(',');
        }
        for piece in ["\"", &kind, "\",", payload.get()] {
            waiting.push_str(piece);
        }
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

    /// Takes what is there: a JSON array of type and payload by turns.
    #[napi(catch_unwind)]
    pub fn take(&self) -> JsText {
        let taken = std::mem::take(&mut *self.queue.waiting.lock());
        self.queue.pieces.store(0, Ordering::Release);
        js_text(format!("[{taken}]"))
    }
}
