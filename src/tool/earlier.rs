//! The outputs of a session's earlier calls: the seam through which a tool reads them again. The session fills it.

use serde_json::{Map, Value};

use super::BoxFuture;

/// Which calls are looked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WantedCalls {
    /// The one of this id.
    pub call_id: Option<String>,
    /// Those of this tool.
    pub tool: Option<String>,
    /// None of this one, unless it is named by its id.
    pub without: Option<&'static str>,
    /// Those whose arguments contain this text, as JSON.
    pub containing: Option<String>,
    /// Those whose output has at least so many characters.
    pub chars_min: usize,
    /// So many newer ones are passed over.
    pub skip: usize,
    /// At most so many.
    pub count_max: usize,
}

impl WantedCalls {
    /// Whether a call is among them, as far as its output does not matter.
    pub fn fits(&self, call_id: &str, tool: &str, arguments: &Map<String, Value>) -> bool {
        self.call_id.as_deref().is_none_or(|wanted| wanted == call_id)
            && self.tool.as_deref().is_none_or(|wanted| wanted == tool)
            && (self.call_id.is_some() || self.without.is_none_or(|other| other != tool))
            && self.containing.as_deref().is_none_or(|wanted| {
                let told = serde_json::to_string(arguments).unwrap_or_default();
                told.contains(wanted)
                    || arguments.values().any(|value| value.as_str().is_some_and(|text| text.contains(wanted)))
            })
    }
}

/// An earlier call, and what came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct EarlierCall {
    /// Its id.
    pub call_id: String,
    /// The tool.
    pub tool: String,
    /// What it was called with.
    pub arguments: Map<String, Value>,
    /// What it said, whole.
    pub output: String,
}

/// Who has the outputs of a session's earlier calls.
pub trait EarlierCalls: Send + Sync + std::fmt::Debug {
    /// The calls that are wanted, the newest first.
    ///
    /// # Errors
    /// A sentence on why they cannot be read.
    fn find<'a>(&'a self, wanted: &'a WantedCalls) -> BoxFuture<'a, Result<Vec<EarlierCall>, String>>;
}
