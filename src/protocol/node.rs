//! Servers that share a database, as they are told.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    /// It takes sessions.
    Active,
    /// It takes none, and hands over those that it has.
    Draining,
    /// It has left, or was silent for too long: it writes nothing more.
    Over,
}

/// A server among those that share a database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeView {
    /// Never given twice: who starts again is another node.
    pub number: i64,
    /// Machine and process.
    pub name: String,
    /// Where the others reach it. None: it has the database alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Its version of the program.
    pub version: String,
    /// How it is.
    pub state: NodeState,
    /// Whether it is the one that answers.
    pub is_self: bool,
    /// Sessions that it has in memory, about.
    pub sessions: u64,
    /// Turns that run on it, about.
    pub running: u64,
    /// Labels of the workspaces that it reaches.
    pub labels: Vec<String>,
}

/// Answer of `GET /nodes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeList {
    /// The newest first. Of a server that has its store alone: itself.
    pub nodes: Vec<NodeView>,
}

/// Answer of `POST /drain`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Drained {
    /// It takes no sessions from now on.
    pub draining: bool,
    /// Trees of sessions in which something still runs.
    pub left: u64,
}
