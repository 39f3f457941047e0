//! The history of a session, and what a model is shown of it.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::id::TurnId;
use super::tool::ToolCallRequest;

/// A piece of a message's content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Part {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// An image, inline.
    Image {
        /// Such as `image/png`.
        #[serde(rename = "mediaType")]
        media_type: String,
        /// Base64, without a `data:` prefix.
        data: String,
    },
}

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The person or program that prompts.
    User,
    /// The model.
    Assistant,
}

/// One entry of the history. Each is taken from one event of the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Item {
    /// Number of the event that it was taken from.
    pub seq: u64,
    /// Its turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    /// When, in milliseconds since 1970.
    pub at: u64,
    /// What.
    #[serde(flatten)]
    pub body: ItemBody,
}

/// The kinds of history entries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum ItemBody {
    /// A message of the user or the model.
    Message {
        /// Who.
        role: Role,
        /// What.
        content: Vec<Part>,
    },
    /// The model called a tool.
    ToolCall {
        /// The call's id.
        call_id: String,
        /// The tool's name.
        name: String,
        /// Its arguments.
        arguments: Map<String, Value>,
    },
    /// What came of a call.
    ToolResult {
        /// The call's id.
        call_id: String,
        /// The tool's name.
        name: String,
        /// What the model is told.
        output: String,
        /// Whether it failed.
        is_error: bool,
        /// What the model is shown beside the output: images.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        parts: Vec<Part>,
        /// What hooks found in it; the model is told behind the results of its reply.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        findings: Vec<String>,
    },
    /// The model is no longer shown what stands before it, but for the newest messages: this is what it is told instead.
    Summary {
        /// The summary.
        text: String,
        /// How many of the newest messages before it the model is still shown.
        kept: u64,
    },
}

/// A model's reply in the words of the wire that it came over: what has to be given back to it as it was, such as
/// signed or encrypted reasoning. Only the model that it came from is given it; others are told the text and the calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Original {
    /// The wire, such as `anthropic-messages`.
    pub wire: String,
    /// The model, `provider/name`.
    pub model: String,
    /// Its parts, in their order, as they came.
    pub items: Vec<Value>,
    /// Its provider has paused the reply: the model goes on with it where it is the last one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
}

/// One message as a model gets it.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// What the user says.
    User(Vec<Part>),
    /// What the model said and called.
    Assistant {
        /// Its text; may be empty when it only called tools.
        text: String,
        /// Its calls, in order.
        calls: Vec<ToolCallRequest>,
        /// The same in the words of its wire, where these are to be given back.
        original: Option<Arc<Original>>,
    },
    /// What came of a call.
    ToolResult {
        /// The call's id.
        call_id: String,
        /// The tool's name.
        name: String,
        /// What the model is told.
        output: String,
        /// Whether it failed.
        is_error: bool,
        /// What it is shown beside the output: images.
        parts: Vec<Part>,
    },
}

impl Message {
    /// What a model said and called, in our words alone.
    pub fn assistant(text: impl Into<String>, calls: Vec<ToolCallRequest>) -> Self {
        Self::Assistant { text: text.into(), calls, original: None }
    }
}
