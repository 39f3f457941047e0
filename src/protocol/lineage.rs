//! Sessions that other sessions made: where each stands in its tree, what was asked of it, and what came of it.
//!
//! A run is a turn seen in that tree: the root's own, and those of the sessions under it.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::agent_definition::AgentKind;
use super::command::Reasoning;
use super::error::ErrorBody;
use super::event::EventBody;
use super::id::{SessionId, TurnId};
use super::item::Item;
use super::session::{TurnStatus, Usage};

/// Where a session stands in its tree.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Lineage {
    /// The sessions above it: the root first, its parent last.
    pub path: Vec<SessionId>,
    /// The turn of the parent that spawned it. Absent: a client made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    /// What its parent calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The agent that it is, or the type of agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The working tree that it has for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worktree: Option<Worktree>,
    /// How it works with those beside it.
    #[serde(default, skip_serializing_if = "Coordination::is_default")]
    pub coordination: Coordination,
}

impl Lineage {
    /// The session that made it.
    pub fn parent(&self) -> Option<&SessionId> {
        self.path.last()
    }

    /// The session above all.
    pub fn root(&self) -> Option<&SessionId> {
        self.path.first()
    }

    /// How many sessions are above it.
    pub fn depth(&self) -> usize {
        self.path.len()
    }
}

/// A git working tree of a session's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Worktree {
    /// Where it lies.
    pub directory: PathBuf,
    /// The top of the working tree that it was made from, and that what is done in it goes back to.
    pub repository: PathBuf,
    /// Its branch.
    pub branch: String,
    /// The commit that it began at.
    pub base: String,
}

/// Where a child works.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// Where its parent does.
    #[default]
    None,
    /// In a git working tree of its own; what it did there goes back when its run ends.
    Worktree,
}

/// How a sub-agent works with those beside it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Coordination {
    /// It answers its parent, and knows of nobody else.
    #[default]
    Hierarchical,
    /// It shares findings and tasks with the others of its tree.
    Blackboard,
    /// That, and those that the same parent has started as peers talk to each other.
    Peer,
}

impl Coordination {
    fn is_default(&self) -> bool {
        *self == Self::Hierarchical
    }
}

/// A run: a session, and a turn of it. As a text the two with a `:` between them, which no id has in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RunId {
    /// The session.
    pub session: SessionId,
    /// The turn.
    pub turn: TurnId,
}

/// A text that is no name of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected the id of a session and that of one of its turns, with `:` between them")]
pub struct BadRunId;

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.session, self.turn)
    }
}

impl FromStr for RunId {
    type Err = BadRunId;

    fn from_str(text: &str) -> Result<Self, BadRunId> {
        let (session, turn) = text.split_once(':').ok_or(BadRunId)?;
        let bad = |_| BadRunId;
        Ok(Self { session: session.parse().map_err(bad)?, turn: turn.parse().map_err(bad)? })
    }
}

impl Serialize for RunId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RunId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for RunId {
    fn schema_name() -> Cow<'static, str> {
        "RunId".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A run: the id of a session and that of one of its turns, with `:` between them.",
            "type": "string",
            "pattern": "^[A-Za-z0-9_.-]{1,256}:[A-Za-z0-9_.-]{1,256}$",
            "not": { "pattern": "^\\.{1,2}:|:\\.{1,2}$" },
        })
    }
}

/// A run of a sub-agent begins, or waits for room to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubagentStart {
    /// The run.
    pub run_id: RunId,
    /// The sub-agent's session.
    pub session_id: SessionId,
    /// The run that started it.
    pub parent_run_id: RunId,
    /// The call that did.
    pub call_id: String,
    /// What its parent calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The agent that it is, or the type of agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Its model.
    pub model: String,
    /// What it is to do, its first 4,000 bytes.
    pub task: String,
    /// Nobody waits for it: its result comes by itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub background: bool,
    /// The branch of the working tree that it has for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// How it works with those beside it.
    #[serde(default, skip_serializing_if = "Coordination::is_default")]
    pub coordination: Coordination,
}

/// A run of a sub-agent waits until others have ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubagentQueued {
    /// The run.
    pub run_id: RunId,
    /// The sub-agent's session.
    pub session_id: SessionId,
    /// Runs that wait with it, itself among them.
    pub position: u32,
}

/// How a run of a sub-agent ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubagentEnd {
    /// The run.
    pub run_id: RunId,
    /// The sub-agent's session.
    pub session_id: SessionId,
    /// How: `completed`, `failed`, `aborted` or `interrupted`.
    pub status: TurnStatus,
    /// Its final text, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// Why it did not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
    /// How long it took from when it was asked for.
    pub duration_ms: u64,
    /// Rounds with its model.
    pub rounds: u32,
    /// Its tokens.
    pub usage: Usage,
    /// What became of what it did in a working tree of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge: Option<Merge>,
}

/// What became of what a sub-agent did in a working tree of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Merge {
    /// How it went.
    pub outcome: MergeOutcome,
    /// The branch, where it was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Files that were changed there, the first of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Why nothing was put back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How putting back went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MergeOutcome {
    /// It is in the parent's working tree.
    Merged,
    /// There was nothing.
    Unchanged,
    /// Something else has changed there meanwhile: nothing was put back, and the branch has it.
    Conflict,
    /// It could not be done: nothing was put back, and the branch has what there is.
    Failed,
}

/// A sub-agent asks something, told to the clients of the session above all.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubagentRequest {
    /// The session that asks.
    pub session_id: SessionId,
    /// Its question as it stands in its own log: `permission.request` or `client.request`. It is answered here or there.
    pub request: Box<EventBody>,
}

/// Such a question has its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubagentResponse {
    /// The session that asked.
    pub session_id: SessionId,
    /// The end as it stands in its own log: `permission.response` or `client.response`.
    pub response: Box<EventBody>,
}

/// A run as `GET /runs` shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunView {
    /// The run.
    pub run_id: RunId,
    /// Its session.
    pub session_id: SessionId,
    /// Its turn.
    pub turn_id: TurnId,
    /// The session above all.
    pub root_session_id: SessionId,
    /// The session that made its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_session_id: Option<SessionId>,
    /// The run that spawned its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_run_id: Option<RunId>,
    /// How many sessions are above its own.
    pub depth: u32,
    /// The agent: its name or type, else what answers.
    pub agent: String,
    /// Whether it stands above all.
    pub agent_kind: AgentKind,
    /// What its parent calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How it works with those beside it. Absent: it stands above all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coordination: Option<Coordination>,
    /// Its model.
    pub model: String,
    /// Where it works.
    pub working_directory: PathBuf,
    /// Where it is.
    pub status: TurnStatus,
    /// What was asked, its first 4,000 bytes.
    pub prompt: String,
    /// When it was accepted.
    pub created_at: u64,
    /// When work began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<u64>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<u64>,
    /// Its final text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
    /// Why it was ended by somebody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Rounds with its model.
    pub rounds: u32,
    /// Its tokens.
    pub usage: Usage,
    /// Calls of tools. Only of a single run that is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<u32>,
}

/// What a run's conversation adds up to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunSummary {
    /// Messages: the user's, the model's, and results of tools.
    pub message_count: u64,
    /// What the user, or the parent, said.
    pub user_messages: u64,
    /// What the model said.
    pub assistant_messages: u64,
    /// Results of tools.
    pub tool_results: u64,
    /// When work began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<u64>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<u64>,
}

/// `GET /runs/:id/context`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunContext {
    /// The run.
    pub run: RunView,
    /// What its conversation adds up to.
    pub summary: RunSummary,
    /// With `view=raw`: the conversation, a page of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<Vec<Item>>,
    /// With `view=raw`: give it back as `cursor` for the next page; null at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// `POST /runs/:id/cancel`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CancelRun {
    /// Why, for the record.
    pub reason: Option<String>,
}

/// Answer to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CancelledRuns {
    /// The run, and those under it that were not over.
    pub cancelled_run_ids: Vec<RunId>,
}

/// A type of sub-agent, as `GET /agents` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentTypeView {
    /// Its name.
    pub name: String,
    /// What it is good for.
    pub description: String,
    /// Its model. Absent: that of whoever spawns it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How much it thinks. Absent: as much as whoever spawns it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Reasoning>,
    /// Whether it has only tools that look, unless it is given others.
    pub read_only: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_a_session_and_a_turn() {
        let run: RunId = "s.1:turn_2".parse().expect("one");
        assert_eq!(
            (run.session.as_str(), run.turn.as_str(), run.to_string().as_str()),
            ("s.1", "turn_2", "s.1:turn_2")
        );
        for text in ["", "s", "s:", ":t", "s:t:u", "s t:u"] {
            assert_eq!(text.parse::<RunId>(), Err(BadRunId), "{text}");
        }
    }
}
