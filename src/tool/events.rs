//! Events that a tool publishes while it runs, beside those that every call has.
//!
//! They come between the call's `tool.call.start` and its `tool.call.end`. Where nobody takes events, they are dropped.

use std::fmt;
use std::sync::Arc;

use crate::protocol::EventBody;

/// Takes a tool's events. The default takes none.
#[derive(Clone, Default)]
pub struct ToolEvents(Option<Arc<dyn Fn(EventBody) + Send + Sync>>);

impl ToolEvents {
    /// Hands each event to `take`, which must not block.
    pub fn new(take: impl Fn(EventBody) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(take)))
    }

    /// Hands in an event. Never blocks.
    pub fn publish(&self, event: EventBody) {
        if let Some(take) = &self.0 {
            take(event);
        }
    }
}

impl fmt::Debug for ToolEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ToolEvents").field(&self.0.is_some()).finish()
    }
}
