//! Tools that a model is not told of, because they can never be of use where it works: they would cost tokens in each request.
//!
//! They are there all the same: a call of one is answered as ever, and sub-agents get them from those above.
//!
//! Invariant: as long as a registry tells the same tools, so does this, in the same order: what is sent stays the beginning of what
//! is sent next.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::protocol::ToolDefinition;
use crate::tool::Registry;

/// A list of definitions, and what is left of it.
type Left = (Arc<[ToolDefinition]>, Arc<[ToolDefinition]>);

/// The names of those.
#[derive(Debug, Default)]
pub struct Untold {
    names: Vec<&'static str>,
    last: Mutex<Option<Left>>,
}

impl Untold {
    /// These names.
    pub fn new(names: Vec<&'static str>) -> Self {
        Self { names, last: Mutex::default() }
    }

    /// What of a registry's tools a model is told.
    pub fn left_of(&self, registry: &Registry) -> Arc<[ToolDefinition]> {
        let all = registry.definitions();
        if self.names.is_empty() {
            return all;
        }
        let mut last = self.last.lock();
        if let Some((of, left)) = last.as_ref()
            && Arc::ptr_eq(of, &all)
        {
            return Arc::clone(left);
        }
        let left: Arc<[ToolDefinition]> =
            all.iter().filter(|tool| !self.names.contains(&tool.name.as_str())).cloned().collect();
        *last = Some((all, Arc::clone(&left)));
        left
    }
}
