//! Tool servers of a session as clients see them, and what clients say about them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The tool servers of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct McpView {
    /// Each of them, its own first.
    pub servers: Vec<McpServerView>,
    /// The file `.mcp.json` of the project that it works in, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<McpProjectView>,
}

/// A tool server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct McpServerView {
    /// Its name; its tools are called `mcp:<name>/<tool>`.
    pub name: String,
    /// Whose it is.
    pub of: McpOwner,
    /// How it is: `connected`, `resting`, `starting`, `needs login`, `stopped`, `down: …`.
    pub state: String,
    /// How many tools it has.
    pub tools: usize,
}

/// Whose a tool server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum McpOwner {
    /// The session's alone.
    Session,
    /// The project's, which was trusted.
    Project,
    /// Every session's, by the configuration.
    Server,
}

/// A project's file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct McpProjectView {
    /// Where it is.
    pub file: String,
    /// Whether anything of it may be started.
    pub state: McpTrust,
    /// SHA-256 of its content; absent where it cannot be read. Who trusts it says this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// What would be started, as it is written.
    pub servers: Vec<McpProjectServer>,
    /// What is wrong with it, or with single servers of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// Whether a project's file is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum McpTrust {
    /// The user said yes to this very content.
    Trusted,
    /// Nobody said yes to it: nothing of it is started.
    Untrusted,
    /// It cannot be read.
    Broken,
}

/// A server of a project's file, as it is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct McpProjectServer {
    /// Its name.
    pub name: String,
    /// Its program and arguments, or its address.
    pub runs: String,
    /// The names of the variables or headers that it would be given.
    pub given: Vec<String>,
}

/// Whether a project's file is to be trusted.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TrustProject {
    /// The hash of the content that was seen. Another one is there: nothing changes.
    pub hash: String,
    /// `false` takes the trust back, and ends what was started. Default: true.
    #[serde(default = "yes")]
    pub trusted: bool,
}

fn yes() -> bool {
    true
}

/// What a client asks a tool server itself.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AskMcp {
    /// The server.
    pub server: String,
    /// In the protocol's words: `prompts/list`, `prompts/get`, `resources/list`, `resources/templates/list`, `resources/read` or
    /// `completion/complete`.
    #[schemars(extend("enum" = ["prompts/list", "prompts/get", "resources/list", "resources/templates/list", "resources/read", "completion/complete"]))]
    pub method: String,
    /// With what.
    #[serde(default)]
    pub params: Map<String, Value>,
}

/// What it answered, in the protocol's words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct McpAnswer {
    /// The answer.
    pub result: Value,
}
