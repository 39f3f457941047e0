//! Tools as callers see them: definitions, calls, results, figures.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::item::Part;

/// What a tool does, in one word. Permission rules can name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ToolCategory {
    /// Looks at something.
    Read,
    /// Changes files.
    Edit,
    /// Finds something.
    Search,
    /// Runs a program.
    Execute,
    /// Long-term memory.
    Memory,
    /// A virtual file system.
    Vfs,
    /// Task lists.
    Task,
    /// Other agents.
    Subagent,
    /// None of these.
    #[default]
    Other,
}

/// One category or several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a category, or a list of categories")]
pub enum CategoryFilter {
    /// Exactly this one.
    One(ToolCategory),
    /// Any of these.
    Any(Vec<ToolCategory>),
}

/// Hints about a tool's effect. Absent means unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolAnnotations {
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// May destroy something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destructive: Option<bool>,
    /// Changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
}

/// What the model and the client are told about a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolDefinition {
    /// Unique in its registry.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// The arguments: name → `{type, description, required?}` (typescript-api.md §2), or a JSON Schema
    /// object (one with `"type": "object"` and `properties`). Order is kept.
    #[serde(default)]
    pub parameters: Map<String, Value>,
    /// What it does, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<ToolCategory>,
    /// Hints about its effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<ToolAnnotations>,
    /// Longest run, in milliseconds. Absent: the registry's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Longest output in UTF-16 units. Absent: the registry's default; 0: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_chars: Option<usize>,
}

impl ToolDefinition {
    /// A definition without hints. `parameters` in either form (see [`parameters`](Self::parameters)).
    pub fn new(name: impl Into<String>, description: impl Into<String>, parameters: Map<String, Value>) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            parameters,
            category: None,
            annotations: None,
            timeout_ms: None,
            max_output_chars: None,
        }
    }
}

/// Answer of `GET /tools`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolList {
    /// The tools.
    pub tools: Vec<ToolDefinition>,
}

/// One call that a model or a program makes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolCallRequest {
    /// Unique in its turn.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments by name.
    #[serde(default)]
    pub arguments: Map<String, Value>,
}

/// What came of a call. There is exactly one for each call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolCallResult {
    /// The call's id.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// What the model is told.
    pub output: String,
    /// Whether it failed.
    pub is_error: bool,
    /// How long the tool ran. Absent when it never started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// What the model is shown beside the output: images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
    /// What happened, for programs and people: the diff of a written file. The model is not told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
}

/// What a turn that pauses between two calls still has to do before it asks its model again.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Held {
    /// Calls of the model's last reply that have not begun, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<HeldCall>,
    /// Tokens of that round, when the provider said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<super::session::Usage>,
    /// Why the turn has to end behind them, if it has to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
}

/// A call that has not begun.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeldCall {
    /// The call.
    pub request: ToolCallRequest,
    /// Why it is answered without running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<super::error::ErrorBody>,
}

/// Figures of one tool since its registration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolMetrics {
    /// The tool's name.
    pub name: String,
    /// Calls that reached the tool.
    pub call_count: u64,
    /// Of these, how many failed.
    pub error_count: u64,
    /// Time of all calls together.
    pub total_duration_ms: f64,
    /// Mean time of a call.
    pub avg_duration_ms: f64,
    /// When the last call ended.
    pub last_called_at: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A number is handed on as the very number that was written: a last digit may be a price or a key.
        #[test]
        fn numbers_are_read_as_they_were_written(numbers in proptest::collection::vec(proptest::num::f64::NORMAL | proptest::num::f64::SUBNORMAL | proptest::num::f64::ZERO, 1..40)) {
            let text = serde_json::json!({ "id": "1", "name": "n", "arguments": { "a": numbers } }).to_string();
            let read: ToolCallRequest = serde_json::from_str(&text).unwrap();
            let list = read.arguments["a"].as_array().unwrap();
            let back: Vec<u64> = list.iter().map(|n| n.as_f64().unwrap().to_bits()).collect();
            prop_assert_eq!(back, numbers.iter().map(|n| n.to_bits()).collect::<Vec<_>>());
            prop_assert_eq!(serde_json::to_string(&read).unwrap(), text);
        }
    }
}
