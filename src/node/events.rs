//! What happens during a batch, on its way to the JavaScript event bus.
//!
//! Events wait in a queue; JavaScript is woken once for many, takes what is there, and takes the rest
//! when the batch ends: so an event never comes after the result that it leads to.
//!
//! Invariant: at most four events for each call of the batch, so the caller bounds the queue.

use std::sync::Arc;

use napi_derive::napi;
use parking_lot::Mutex;

use super::bridge::{Bridge, NativeBridge};
use super::text::{JsText, js_text};
use crate::agent::{Sink, SinkError};
use crate::base::BoxFuture;
use crate::protocol::EventBody;

/// A queue of events, and whom to wake for them.
pub(super) struct EventQueue {
    bridge: Arc<Bridge>,
    batch: u32,
    /// The inside of a JSON array: type and payload by turns. Written by whoever has the event, not by JavaScript's
    /// thread.
    waiting: Mutex<String>,
}

impl Sink for EventQueue {
    fn emit(&self, event: EventBody) -> Result<(), SinkError> {
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
        Self { queue: Arc::new(EventQueue { bridge, batch, waiting: Mutex::default() }) }
    }

    /// Takes what is there: a JSON array of type and payload by turns.
    #[napi(catch_unwind)]
    pub fn take(&self) -> JsText {
        let taken = std::mem::take(&mut *self.queue.waiting.lock());
        js_text(format!("[{taken}]"))
    }
}
