//! What a server was set to, as a person looks at it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One setting of the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SettingView {
    /// As in the configuration file; `--help` and the variables spell it their way.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// What was said. Secrets are `(hidden)`. Absent: nothing was, and the default holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// What holds when nothing is said, in words. Absent: then there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// Where the value comes from: `argument`, the variable's name, the path of the file, or `program`: the command that was started has
    /// it by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Whether a change in the file counts without a restart.
    pub at_once: bool,
}

/// `GET /config`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigView {
    /// The configuration file that was read. Absent: there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Every setting there is, in the order of `--help`, as they are in force. Empty in a server that another program embeds: that program
    /// has its settings.
    pub settings: Vec<SettingView>,
}
