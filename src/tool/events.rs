//! Events that a tool publishes while it runs, beside those that every call has.
//!
//! They come between the call's `tool.call.start` and its `tool.call.end`. Where nobody takes events, they are dropped.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::ear::Ear;
use crate::protocol::EventBody;

type Take = Arc<dyn Fn(EventBody) + Send + Sync>;
type Wanted = Arc<dyn Fn() -> bool + Send + Sync>;

/// Takes a tool's events. The default takes none.
#[derive(Clone, Default)]
pub struct ToolEvents {
    take: Option<Take>,
    /// None: always.
    wanted: Option<Wanted>,
    /// How often it was said that the work goes on.
    beats: Arc<AtomicU64>,
    ear: Option<Arc<dyn Ear>>,
}

impl ToolEvents {
    /// Hands each event to `take`, which must not block.
    pub fn new(take: impl Fn(EventBody) + Send + Sync + 'static) -> Self {
        Self { take: Some(Arc::new(take)), ..Self::default() }
    }

    /// The same; `wanted` says whether somebody listens now.
    #[must_use]
    pub fn while_wanted(self, wanted: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { wanted: Some(Arc::new(wanted)), ..self }
    }

    /// The same for a call to which somebody listens.
    #[must_use]
    pub fn heard_by(self, ear: Option<Arc<dyn Ear>>) -> Self {
        Self { ear, ..self }
    }

    /// Who listens to the call.
    pub fn ear(&self) -> Option<&Arc<dyn Ear>> {
        self.ear.as_ref()
    }

    /// Whether somebody takes events at all.
    pub fn are_taken(&self) -> bool {
        self.take.is_some()
    }

    /// Whether somebody listens now: what is only a preview need not be published else.
    pub fn are_wanted(&self) -> bool {
        self.are_taken() && self.wanted.as_ref().is_none_or(|wanted| wanted())
    }

    /// Says that the work goes on: the time that the call may take begins anew, within bounds.
    pub fn goes_on(&self) {
        self.beats.fetch_add(1, Ordering::Relaxed);
    }

    /// How often that was said.
    pub fn beats(&self) -> u64 {
        self.beats.load(Ordering::Relaxed)
    }

    /// Hands in an event. Never blocks.
    pub fn publish(&self, event: EventBody) {
        if let Some(take) = &self.take {
            take(event);
        }
    }
}

impl fmt::Debug for ToolEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ToolEvents").field(&self.are_taken()).finish()
    }
}
