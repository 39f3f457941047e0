//! The commands that change what the sessions of a tree share: its board and its tasks.
//!
//! What they are about (`key`, `taskId`) stands beside the fields that the route of the same operation takes as its body.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::json;

use super::fields::Fields;
use super::kinds::{BoardRef, Nothing, TaskRef, body};
use crate::app::bounds::CHANGES_OF_TASKS;
use crate::app::parse_json;
use crate::base::limit;
use crate::protocol::{ApiError, BoardKey, ChangeTask, NewTask, PutBoardEntry};

/// A change of what a tree shares.
#[derive(Debug, Clone, PartialEq)]
pub enum Sharing {
    /// `put_board_entry`.
    Put(BoardKey, PutBoardEntry),
    /// `delete_board_entry`, of this version alone if one is named.
    Take(BoardKey, Option<u64>),
    /// `clear_board`.
    Clear,
    /// `create_task`.
    Create(NewTask),
    /// `update_task`.
    Update(String, ChangeTask),
    /// `delete_task`.
    Delete(String),
}

impl Sharing {
    /// Its type.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Put(..) => "put_board_entry",
            Self::Take(..) => "delete_board_entry",
            Self::Clear => "clear_board",
            Self::Create(_) => "create_task",
            Self::Update(..) => "update_task",
            Self::Delete(_) => "delete_task",
        }
    }

    /// Of a type, with the fields that are its own. None: it is not one of these.
    pub(super) fn read(kind: &str, body: &[u8], whole: &str) -> Result<Option<Self>, ApiError> {
        Ok(Some(match kind {
            "put_board_entry" => {
                let (key, rest) = beside(body, whole, ("key", "the key of an entry"))?;
                let key: String = key;
                let key = key.parse().map_err(|cause| ApiError::unread("key", &cause))?;
                Self::Put(key, parse_json(&rest, whole)?)
            }
            "delete_board_entry" => {
                let BoardRef { key, if_version } = parse_json(body, whole)?;
                Self::Take(key, if_version)
            }
            "clear_board" => {
                parse_json::<Nothing>(body, whole)?;
                Self::Clear
            }
            "create_task" => {
                let task: NewTask = parse_json(body, whole)?;
                check_subject(Some(&task.subject))?;
                check_ids("blockedBy", task.blocked_by.as_deref())?;
                Self::Create(task)
            }
            "update_task" => {
                let (id, rest) = beside(body, whole, ("taskId", "the id of a task"))?;
                let change: ChangeTask = parse_json(&rest, whole)?;
                if change == ChangeTask::default() {
                    return Err(ApiError::invalid(whole, format!("at least one of {}", CHANGES_OF_TASKS.join(", "))));
                }
                check_subject(change.subject.as_ref())?;
                check_ids("addBlocks", change.add_blocks.as_deref())?;
                check_ids("addBlockedBy", change.add_blocked_by.as_deref())?;
                Self::Update(id, change)
            }
            "delete_task" => Self::Delete(parse_json::<TaskRef>(body, whole)?.task_id),
            _ => return Ok(None),
        }))
    }

    /// Holds it to a version of what it is about. False: it is about nothing that has versions of its own.
    ///
    /// # Errors
    /// `CONFLICT`, as it names another one itself: nothing has both.
    pub(super) fn hold_to(&mut self, version: u64) -> Result<bool, ApiError> {
        let said = match self {
            Self::Put(_, PutBoardEntry { if_version, .. }) | Self::Take(_, if_version) => if_version,
            Self::Clear | Self::Create(_) | Self::Update(..) | Self::Delete(_) => return Ok(false),
        };
        match *said {
            Some(own) if own != version => {
                let message = format!("`ifVersion` is {own} and `If-Match` {version}: no entry has both versions");
                let details = json!({ "field": "ifVersion", "expected": version, "got": own });
                Err(ApiError::conflict(message).with_details(details))
            }
            Some(_) | None => {
                *said = Some(version);
                Ok(true)
            }
        }
    }
}

/// A field that says what it is about, and the text of all others.
fn beside(body: &[u8], whole: &str, (name, what): (&str, &str)) -> Result<(String, Vec<u8>), ApiError> {
    let mut fields: Fields = parse_json(body, whole)?;
    let about = fields.typed::<String>(name, what)?.ok_or_else(|| ApiError::invalid(name, what))?;
    Ok((about, fields.text()))
}

fn check_subject(subject: Option<&String>) -> Result<(), ApiError> {
    match subject.is_some_and(|subject| subject.trim().is_empty()) {
        true => Err(ApiError::invalid("subject", "a text that says something")),
        false => Ok(()),
    }
}

fn check_ids(field: &str, ids: Option<&[String]>) -> Result<(), ApiError> {
    let count = ids.map_or(0, <[String]>::len);
    match count > limit::TASKS_MAX {
        true => Err(ApiError::unfit(field, format!("at most {} ids", limit::TASKS_MAX), format!("{count}"))),
        false => Ok(()),
    }
}

/// A body with a field more, that says what it is about.
fn about<T: JsonSchema>(generator: &mut SchemaGenerator, name: &str, what: &serde_json::Value) -> Schema {
    let mut schema = body::<T>(generator);
    if let Some(properties) = schema.pointer_mut("/properties").and_then(serde_json::Value::as_object_mut) {
        properties.insert(name.to_owned(), what.clone());
    }
    let mut required = schema.get("required").and_then(|list| list.as_array().cloned()).unwrap_or_default();
    required.push(name.into());
    schema.insert("required".to_owned(), required.into());
    schema
}

/// The fields of `put_board_entry`.
pub(super) fn put(generator: &mut SchemaGenerator) -> Schema {
    let key = generator.subschema_for::<BoardKey>().to_value();
    about::<PutBoardEntry>(generator, "key", &key)
}

/// The fields of `update_task`.
pub(super) fn update(generator: &mut SchemaGenerator) -> Schema {
    about::<ChangeTask>(generator, "taskId", &json!({ "description": "The task.", "type": "string" }))
}
