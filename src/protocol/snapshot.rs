//! A session at one moment, whole enough that its event stream goes on from there.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Display, Item, TurnId, TurnRecord};

/// A session as it is behind one event: its stream read with `after` = `seq` goes on without a gap or a repeat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// Number of the newest event that is in it.
    pub seq: u64,
    /// The newest items of the history, the oldest first.
    pub items: Vec<Item>,
    /// Give it to the history as `cursor`, with `back`, for what lies before the items; null when they begin with the first.
    pub before: Option<String>,
    /// What the turn that runs or is paused has begun and not ended. Absent when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<Underway>,
    /// The turns that wait, in the order in which they will run.
    pub queue: Vec<TurnRecord>,
}

/// What a turn has begun and not ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Underway {
    /// The turn.
    pub turn_id: TurnId,
    /// What the model says now, so far: the pieces of `stream.delta` since `stream.start` or `stream.retry`. Absent when it says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// What it thinks beside that, so far: the pieces of `stream.reasoning`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// Calls that run or wait for an answer, in the order in which they began.
    pub calls: Vec<OpenCall>,
    /// What tools and hooks have put onto the clients' screens and not taken away. Absent when there is nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub displays: Vec<Display>,
}

/// A call that has no result yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OpenCall {
    /// The call's id.
    pub call_id: String,
    /// The tool's name.
    pub name: String,
    /// Its arguments.
    pub arguments: Map<String, Value>,
    /// When it began, in milliseconds since 1970.
    pub at: u64,
    /// The end of what it has written so far: the pieces of `tool.call.output`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
    /// Bytes of it that are left out in front; absent when none are.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skipped_bytes: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}
