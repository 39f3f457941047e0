//! A conversation that was made shorter: what stands in the place of what the model is no longer shown.
//!
//! The log keeps every message. From such a record and the messages before it, whoever reads the log makes the very conversation
//! that the model goes on with.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::session::Usage;

/// Why a conversation is made shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CompactionTrigger {
    /// A client asked for it.
    Manual,
    /// It was about to fill the model's window.
    Threshold,
    /// The provider said that it does not fit.
    Overflow,
}

/// What a turn does that answers no prompt. It is hidden: its opening is no message, and lists of turns leave it out unless asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum TurnTask {
    /// It makes the conversation shorter.
    Compact {
        /// What the summary is to keep above all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        focus: Option<String>,
    },
}

/// The files that the work was about so far, the last ones last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TouchedFiles {
    /// Changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
    /// Read and not changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<String>,
}

/// A file that the model is shown again, as it was then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AttachedFile {
    /// Its path, as it was named.
    pub path: String,
    /// What the tool that reads files said of it.
    pub text: String,
}

/// A conversation that was made shorter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Compaction {
    /// Why.
    pub trigger: CompactionTrigger,
    /// What the model is told in the place of the messages that went: goal, state, decisions, files, next steps, open questions.
    pub summary: String,
    /// How many of the newest messages stay as they are, behind the summary.
    pub kept: u64,
    /// Which of the messages before those stay word for word behind the summary, what the user said: how far each lies in front
    /// of them, 1 is the last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub carried: Vec<u64>,
    /// The files of the work.
    #[serde(default, skip_serializing_if = "is_untouched")]
    pub files: TouchedFiles,
    /// Files that the model is shown again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attached: Vec<AttachedFile>,
    /// About how many tokens the conversation had.
    pub tokens_before: u64,
    /// About how many it has.
    pub tokens_after: u64,
    /// What the summary cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

fn is_untouched(files: &TouchedFiles) -> bool {
    *files == TouchedFiles::default()
}
