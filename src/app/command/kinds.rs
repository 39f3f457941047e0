//! The types of messages: whether each names a session, what stands in it, and what is answered. Reading them and the
//! OpenAPI document both go by this table.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde_json::{Value, json};

use super::parse::Operation;
use super::sharing;
use crate::app::bounds::narrow;
use crate::app::{Aborted, Accepted, Interrupted, Paused, Resolved, Resumed};
use crate::base::limit;
use crate::protocol::whole;
use crate::protocol::{
    AgentList, ApiError, BoardEntry, BoardKey, CommandList, Compact, Configure, Control, CreateSession, Deleted,
    ExplainCall, Feedback, Fork, GrantId, GrantView, Health, Item, ModelList, NewTask, Page, PermissionExplanation,
    Prompt, SessionView, SkillList, TaskView, ToolList, TurnId, TurnRecord, Undo, Undone,
};

/// Whether a session is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// It has to be.
    Must,
    /// It may be.
    May,
    /// None may be.
    Never,
}

/// A schema, made where its types are collected.
pub type Shape = fn(&mut SchemaGenerator) -> Schema;

/// A type of messages.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// Whether a session is named.
    pub names: Names,
    /// Its own fields.
    pub body: Shape,
    /// What is answered.
    pub answer: Shape,
}

const fn kind(name: &'static str, names: Names, body: Shape, answer: Shape) -> Kind {
    Kind { name, names, body, answer }
}

/// All of them.
pub const KINDS: &[Kind] = &[
    kind("create_session", Names::May, body::<CreateSession>, answer::<SessionView>),
    kind("delete_session", Names::Must, body::<Nothing>, answer::<Deleted>),
    kind("prompt", Names::Must, body::<Prompt>, answer::<Accepted>),
    kind("steer", Names::Must, steer, answer::<Accepted>),
    kind("compact", Names::Must, body::<Compact>, answer::<Accepted>),
    kind("configure", Names::Must, configure, answer::<SessionView>),
    kind("abort", Names::Must, body::<Control>, answer::<Aborted>),
    kind("interrupt", Names::Must, body::<Control>, answer::<Interrupted>),
    kind("pause", Names::Must, body::<Control>, answer::<Paused>),
    kind("resume", Names::Must, body::<Control>, answer::<Resumed>),
    kind("feedback", Names::Must, body::<Feedback>, answer::<Resolved>),
    kind("undo", Names::Must, body::<Undo>, answer::<Undone>),
    kind("redo", Names::Must, body::<Undo>, answer::<Undone>),
    kind("fork", Names::Must, body::<Fork>, answer::<SessionView>),
    kind("put_board_entry", Names::Must, sharing::put, answer::<BoardEntry>),
    kind("delete_board_entry", Names::Must, body::<BoardRef>, answer::<Deleted>),
    kind("clear_board", Names::Must, body::<Nothing>, answer::<Deleted>),
    kind("create_task", Names::Must, body::<NewTask>, answer::<TaskView>),
    kind("update_task", Names::Must, sharing::update, answer::<TaskView>),
    kind("delete_task", Names::Must, body::<TaskRef>, answer::<Deleted>),
    kind("revoke_grant", Names::May, body::<GrantRef>, answer::<Deleted>),
    kind("explain_permission", Names::May, body::<ExplainCall>, answer::<PermissionExplanation>),
    kind("get_session", Names::Must, body::<Showing>, answer::<SessionView>),
    kind("get_history", Names::Must, history, answer::<Page<Item>>),
    kind("get_turn", Names::Must, body::<TurnRef>, answer::<TurnRecord>),
    kind("list_turns", Names::Must, body::<Paging>, answer::<Page<TurnRecord>>),
    kind("list_sessions", Names::Never, body::<Paging>, answer::<Page<SessionView>>),
    kind("list_grants", Names::May, body::<Cursor>, answer::<Page<GrantView>>),
    kind("list_tools", Names::Never, body::<Nothing>, answer::<ToolList>),
    kind("list_agents", Names::Never, body::<Nothing>, answer::<AgentList>),
    kind("list_skills", Names::May, body::<Nothing>, answer::<SkillList>),
    kind("list_commands", Names::May, body::<Nothing>, answer::<CommandList>),
    kind("list_models", Names::Never, body::<Nothing>, answer::<ModelList>),
    kind("get_health", Names::Never, body::<Nothing>, answer::<Health>),
    kind("subscribe", Names::May, body::<SubscribeBody>, answer::<Subscribed>),
    kind("unsubscribe", Names::May, body::<Nothing>, answer::<Unsubscribed>),
];

/// No fields.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

/// Which grant.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct GrantRef {
    /// The grant.
    pub(super) grant_id: GrantId,
}

/// Which entry of the board.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct BoardRef {
    /// Its key.
    pub(super) key: BoardKey,
    /// Refuse unless the entry has this version.
    #[serde(default, deserialize_with = "whole::optional")]
    pub(super) if_version: Option<u64>,
}

/// Which task.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct TaskRef {
    /// The task.
    pub(super) task_id: String,
}

/// Which turn.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct TurnRef {
    /// The turn.
    pub(super) turn_id: TurnId,
}

/// Where a list goes on.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Cursor {
    /// The `nextCursor` of the page before.
    #[serde(default)]
    pub(super) cursor: Option<String>,
}

/// Which part of a list.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Paging {
    /// The `nextCursor` of the page before.
    #[serde(default)]
    cursor: Option<String>,
    /// At most so many entries.
    #[serde(default, deserialize_with = "whole::optional")]
    #[schemars(range(min = 1, max = limit::PAGE_ITEMS_MAX))]
    limit: Option<u64>,
}

impl Paging {
    pub(super) fn checked(self) -> Result<(Option<String>, usize), ApiError> {
        Ok((self.cursor, entries(self.limit)?))
    }
}

/// The entries of a page.
fn entries(limit: Option<u64>) -> Result<usize, ApiError> {
    match usize::try_from(limit.unwrap_or(limit::PAGE_ITEMS as u64)) {
        Ok(limit @ 1..=limit::PAGE_ITEMS_MAX) => Ok(limit),
        _ => Err(ApiError::invalid("limit", format!("a number from 1 to {}", limit::PAGE_ITEMS_MAX))),
    }
}

/// How a session is shown.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Showing {
    /// With where it is exactly, so that a subscription `after` its `seq` goes on from there.
    #[serde(default)]
    snapshot: bool,
    /// With `snapshot`: at most so many items of the history.
    #[serde(default, deserialize_with = "whole::optional")]
    #[schemars(range(min = 1, max = limit::PAGE_ITEMS_MAX))]
    limit: Option<u64>,
}

impl Showing {
    pub(super) fn checked(self) -> Result<Option<usize>, ApiError> {
        match (self.snapshot, self.limit) {
            (true, limit) => entries(limit).map(Some),
            (false, None) => Ok(None),
            (false, Some(_)) => Err(ApiError::invalid("limit", "`snapshot: true` beside it")),
        }
    }
}

/// Which part of the history.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryPaging {
    /// The `nextCursor` of the page before.
    #[serde(default)]
    cursor: Option<String>,
    /// From the newest item on, the newest first; `cursor` may be `before` of a snapshot too.
    #[serde(default)]
    back: bool,
    /// At most so many entries.
    #[serde(default, deserialize_with = "whole::optional")]
    #[schemars(range(min = 1, max = limit::PAGE_ITEMS_MAX))]
    limit: Option<u64>,
}

impl HistoryPaging {
    pub(super) fn checked(self) -> Result<Operation, ApiError> {
        let limit = entries(self.limit)?;
        let at = self.cursor.as_deref().map(number_of).transpose()?;
        Ok(Operation::GetHistory(at, limit, self.back))
    }
}

/// A cursor that is the number of an event, in the form that its schema says.
fn number_of(cursor: &str) -> Result<u64, ApiError> {
    let plain = (1..=19).contains(&cursor.len()) && cursor.bytes().all(|byte| byte.is_ascii_digit());
    let number = if plain { cursor.parse().ok() } else { None };
    number.ok_or_else(|| ApiError::invalid("cursor", "the `nextCursor` of the page before"))
}

/// Which events.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SubscribeBody {
    /// Those behind this number of a session's, or behind this place in the stream over all sessions. Default: all.
    #[serde(default)]
    #[schemars(schema_with = "begin")]
    pub(super) after: Option<Value>,
    /// Only those of these types. Default: of all.
    #[serde(default)]
    pub(super) types: Option<Vec<String>>,
}

/// What is answered to `subscribe`.
#[derive(JsonSchema)]
#[schemars(inline)]
struct Subscribed {
    /// The number, or the place, behind which the events begin.
    #[allow(dead_code, reason = "for its schema alone")]
    position: u64,
}

/// What is answered to `unsubscribe`.
#[derive(JsonSchema)]
#[schemars(inline)]
struct Unsubscribed {
    /// Always true.
    #[allow(dead_code, reason = "for its schema alone")]
    unsubscribed: bool,
}

/// A number; over all sessions also what comes next.
fn begin(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({ "anyOf": [{ "type": "integer", "minimum": 0 }, { "const": "newest" }] })
}

pub(super) fn body<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = T::json_schema(generator).to_value();
    narrow(&T::schema_name(), &mut schema);
    schema.try_into().unwrap_or_default()
}

fn answer<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// A prompt that says no other mode.
fn steer(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = body::<Prompt>(generator);
    if let Some(mode) = schema.pointer_mut("/properties/mode") {
        *mode = json!({ "description": "`steer`, or nothing.", "type": "string", "const": "steer" });
    }
    schema
}

/// A change that changes something.
fn configure(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = body::<Configure>(generator);
    schema.insert("anyOf".to_owned(), crate::app::any_setting()["anyOf"].clone());
    schema
}

/// Its cursor is the number of an event.
fn history(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = body::<HistoryPaging>(generator);
    if let Some(cursor) = schema.pointer_mut("/properties/cursor").and_then(serde_json::Value::as_object_mut) {
        cursor.insert("pattern".to_owned(), "^[0-9]{1,19}$".into());
    }
    schema
}
