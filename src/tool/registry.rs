//! The tools of one session or program, by name, in the order they came.
//!
//! Registering a name again replaces the tool in its place. Reading is lock-free enough for the hot
//! path: a lookup clones one `Arc`.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use super::aliases::proper_name;
use super::deferred;
use super::{Scope, Tool};
use crate::base::{clock, limit};
use crate::protocol::{Message, ToolCallRequest, ToolDefinition, ToolMetrics};

/// A definition that cannot be registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// It has no name.
    #[error("a tool needs a name: `name` must be a non-empty string")]
    NoName,
}

#[derive(Clone)]
struct Entry {
    name: Arc<str>,
    tool: Arc<dyn Tool>,
    /// Shared with the registry that the entry was taken from.
    metrics: Arc<Mutex<ToolMetrics>>,
}

impl Entry {
    fn new(tool: Arc<dyn Tool>) -> Self {
        let name = Arc::from(tool.definition().name.as_str());
        Self { metrics: Arc::new(Mutex::new(no_metrics(&name))), name, tool }
    }
}

/// Tools by name.
pub struct Registry {
    entries: RwLock<Vec<Entry>>,
    /// The names of those that models are not told of one by one.
    deferred: RwLock<HashSet<Arc<str>>>,
    /// Those that are there and not for this session's agent: their names, and why.
    withheld: RwLock<HashMap<String, Arc<str>>>,
    /// The definitions of all of them. None: not asked for since something changed.
    told: Mutex<Option<Arc<[ToolDefinition]>>>,
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
            deferred: RwLock::default(),
            withheld: RwLock::default(),
            told: Mutex::default(),
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
        let entry = Entry::new(tool);
        if entry.name.is_empty() {
            return Err(RegistryError::NoName);
        }
        let mut entries = self.entries.write();
        match entries.iter_mut().find(|e| e.name == entry.name) {
            Some(old) => *old = entry,
            None => entries.push(entry),
        }
        drop(entries);
        self.changed();
        Ok(())
    }

    /// Takes over the tools of `other` that are `wanted` and whose names are free, with their figures: calls through
    /// either registry count in both.
    pub fn adopt(&self, other: &Self, wanted: impl Fn(&str) -> bool) {
        let entries: Vec<Entry> = other.entries.read().iter().filter(|e| wanted(&e.name)).cloned().collect();
        self.append(entries);
    }

    /// Adds tools at the end, as far as their names are free. For many at once.
    pub fn extend(&self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) {
        self.append(tools.into_iter().map(Entry::new).filter(|e| !e.name.is_empty()).collect());
    }

    /// The same for tools that models are not told of one by one: two tools beside them find and call them. Once.
    pub fn defer(&self, tools: Vec<Arc<dyn Tool>>) {
        let taken: HashSet<Arc<str>> = self.entries.read().iter().map(|e| Arc::clone(&e.name)).collect();
        let free = |tool: &Arc<dyn Tool>| !taken.contains(tool.definition().name.as_str());
        let tools: Vec<Arc<dyn Tool>> = tools.into_iter().filter(free).collect();
        if tools.is_empty() {
            return;
        }
        let names = tools.iter().map(|tool| Arc::from(tool.definition().name.as_str()));
        self.deferred.write().extend(names);
        self.extend(deferred::deferring(&tools));
        self.extend(tools);
    }

    /// A tool that is there is not for this session's agent. Whoever calls it all the same is told why.
    pub fn withhold(&self, name: &str, why: &str) {
        self.withheld.write().insert(name.to_owned(), why.into());
    }

    /// Why a tool that is not here is not here, where that is known. Under any name that models call it by.
    pub fn why_withheld(&self, name: &str) -> Option<Arc<str>> {
        let withheld = self.withheld.read();
        withheld.get(name).or_else(|| withheld.get(proper_name(name)?)).map(Arc::clone)
    }

    fn is_deferred(&self, name: &str) -> bool {
        self.deferred.read().contains(name)
    }

    /// Makes the call that is meant of one that goes the way round to a tool that was deferred.
    pub fn unwrap_call(&self, request: &mut ToolCallRequest) {
        let deferred = self.deferred.read();
        if deferred.is_empty() {
            return;
        }
        let find = |given: &str| {
            let spelt = || deferred.iter().find(|name| deferred::is_spelt(given, name));
            deferred.get(given).or_else(spelt).map(|name| name.to_string())
        };
        deferred::unwrap(request, find);
        if self.get(&request.name).is_none()
            && let Some(name) = find(&request.name)
        {
            request.name = name;
        }
    }

    /// What says which calls [`retell`](Self::retell) puts in other words: the same as long as the same tools are deferred. None: it puts
    /// none.
    pub fn retells(&self) -> Option<u64> {
        let deferred = self.deferred.read();
        let one = |name: &Arc<str>| {
            let mut hasher = DefaultHasher::new();
            name.hash(&mut hasher);
            hasher.finish()
        };
        // They stand in no order.
        (!deferred.is_empty()).then(|| deferred.iter().map(one).fold(0, u64::wrapping_add))
    }

    /// Whether a message is put in other words.
    pub fn is_retold(&self, message: &Message) -> bool {
        deferred::has_call(std::slice::from_ref(message), |name| self.is_deferred(name))
    }

    /// Puts calls of tools that were deferred as the model made them.
    pub fn retell(&self, message: &mut Message) {
        deferred::retell(std::slice::from_mut(message), |name| self.is_deferred(name));
    }

    fn append(&self, mut new: Vec<Entry>) {
        let mut entries = self.entries.write();
        let mut taken: HashSet<Arc<str>> = entries.iter().map(|e| Arc::clone(&e.name)).collect();
        new.retain(|e| taken.insert(Arc::clone(&e.name)));
        entries.append(&mut new);
        drop(entries);
        self.changed();
    }

    /// Takes a tool out. False when there is none of that name.
    pub fn unregister(&self, name: &str) -> bool {
        let mut entries = self.entries.write();
        let before = entries.len();
        entries.retain(|e| *e.name != *name);
        let found = entries.len() < before;
        drop(entries);
        self.changed();
        found
    }

    /// What was told of the tools is no longer true. Called when the entries are free again.
    fn changed(&self) {
        *self.told.lock() = None;
    }

    /// The tool of that name; failing that, the one of ours that models call so: `Read` is `fs_read`.
    pub fn get(&self, name: &str) -> Option<Arc<dyn Tool>> {
        let entries = self.entries.read();
        let find = |name: &str| entries.iter().find(|e| *e.name == *name).map(|e| Arc::clone(&e.tool));
        find(name).or_else(|| find(proper_name(name)?))
    }

    /// All definitions that models are told of, in the order of registration. The same ones again until a tool comes or goes.
    pub fn definitions(&self) -> Arc<[ToolDefinition]> {
        let mut told = self.told.lock();
        let deferred = self.deferred.read();
        let is_told = |e: &&Entry| !deferred.contains(&e.name);
        let make = || self.entries.read().iter().filter(is_told).map(|e| e.tool.definition().clone()).collect();
        Arc::clone(told.get_or_insert_with(make))
    }

    /// All names, in the order of registration.
    pub fn names(&self) -> Vec<String> {
        self.entries.read().iter().map(|e| e.name.to_string()).collect()
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
        let found = self.entries.read().iter().find(|e| *e.name == *name).map(|e| Arc::clone(&e.metrics));
        let Some(metrics) = found else { return };
        let mut m = metrics.lock();
        m.call_count += 1;
        m.error_count += u64::from(is_error);
        m.total_duration_ms += duration_ms;
        #[allow(clippy::cast_precision_loss, reason = "a count of calls stays far below 2^52")]
        let count = m.call_count as f64;
        m.avg_duration_ms = m.total_duration_ms / count;
        m.last_called_at = clock::now_ms();
    }

    /// Figures of all tools that were called.
    pub fn metrics(&self) -> Vec<ToolMetrics> {
        let entries = self.entries.read();
        entries.iter().map(|e| e.metrics.lock().clone()).filter(|m| m.call_count > 0).collect()
    }

    /// Forgets all figures.
    pub fn clear_metrics(&self) {
        for entry in self.entries.read().iter() {
            *entry.metrics.lock() = no_metrics(&entry.name);
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
