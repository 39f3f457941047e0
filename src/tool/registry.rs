//! The tools of one session or program, by name, in the order they came.
//!
//! Registering a name again replaces the tool in its place. Reading is lock-free enough for the hot
//! path: a lookup clones one `Arc`.

use std::sync::Arc;

use parking_lot::RwLock;

use super::{Scope, Tool};
use crate::base::{clock, limit};
use crate::protocol::{ToolDefinition, ToolMetrics};

/// A definition that cannot be registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// It has no name.
    #[error("a tool needs a name: `name` must be a non-empty string")]
    NoName,
}

struct Entry {
    tool: Arc<dyn Tool>,
    metrics: ToolMetrics,
}

/// Tools by name.
pub struct Registry {
    entries: RwLock<Vec<Entry>>,
    /// Longest run of a tool that sets none itself; None: no limit.
    pub default_timeout_ms: Option<u64>,
    /// Longest output of a tool that sets none itself, in UTF-16 units; 0: no limit.
    pub output_chars_max: usize,
    /// State of calls that belong to no session.
    pub scope: Arc<Scope>,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").field("tools", &self.names()).finish_non_exhaustive()
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self {
            entries: RwLock::default(),
            default_timeout_ms: Some(limit::TOOL_TIMEOUT_MS),
            output_chars_max: limit::OUTPUT_CHARS_MAX,
            scope: Arc::default(),
        }
    }
}

impl Registry {
    /// Adds a tool, or replaces the one of the same name.
    ///
    /// # Errors
    /// [`RegistryError::NoName`] for an empty name.
    pub fn register(&self, tool: Arc<dyn Tool>) -> Result<(), RegistryError> {
        let name = tool.definition().name.clone();
        if name.is_empty() {
            return Err(RegistryError::NoName);
        }
        let entry = Entry { metrics: no_metrics(&name), tool };
        let mut entries = self.entries.write();
        match entries.iter_mut().find(|e| e.metrics.name == name) {
            Some(old) => *old = entry,
            None => entries.push(entry),
        }
        Ok(())
    }

    /// Takes a tool out. False when there is none of that name.
    pub fn unregister(&self, name: &str) -> bool {
        let mut entries = self.entries.write();
        let before = entries.len();
        entries.retain(|e| e.metrics.name != name);
        entries.len() < before
    }

    /// The tool of that name.
    pub fn get(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.entries.read().iter().find(|e| e.metrics.name == name).map(|e| Arc::clone(&e.tool))
    }

    /// All definitions, in the order of registration.
    pub fn definitions(&self) -> Vec<ToolDefinition> {
        self.entries.read().iter().map(|e| e.tool.definition().clone()).collect()
    }

    /// All names, in the order of registration.
    pub fn names(&self) -> Vec<String> {
        self.entries.read().iter().map(|e| e.metrics.name.clone()).collect()
    }

    /// How many tools there are.
    pub fn len(&self) -> usize {
        self.entries.read().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Counts one finished call.
    pub fn record(&self, name: &str, duration_ms: f64, is_error: bool) {
        if let Some(entry) = self.entries.write().iter_mut().find(|e| e.metrics.name == name) {
            let m = &mut entry.metrics;
            m.call_count += 1;
            m.error_count += u64::from(is_error);
            m.total_duration_ms += duration_ms;
            #[allow(clippy::cast_precision_loss, reason = "a count of calls stays far below 2^52")]
            let count = m.call_count as f64;
            m.avg_duration_ms = m.total_duration_ms / count;
            m.last_called_at = clock::now_ms();
        }
    }

    /// Figures of all tools that were called.
    pub fn metrics(&self) -> Vec<ToolMetrics> {
        self.entries.read().iter().filter(|e| e.metrics.call_count > 0).map(|e| e.metrics.clone()).collect()
    }

    /// Forgets all figures.
    pub fn clear_metrics(&self) {
        for entry in self.entries.write().iter_mut() {
            entry.metrics = no_metrics(&entry.metrics.name.clone());
        }
    }
}

fn no_metrics(name: &str) -> ToolMetrics {
    ToolMetrics {
        name: name.to_owned(),
        call_count: 0,
        error_count: 0,
        total_duration_ms: 0.0,
        avg_duration_ms: 0.0,
        last_called_at: 0,
    }
}
