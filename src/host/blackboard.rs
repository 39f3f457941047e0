//! `blackboard_write` and `blackboard_read`: values under keys that all sessions of a tree share.
//!
//! They only ask [`Tree`](crate::tool::Tree), which a session fills: whose board it is and how much there may be on it is decided
//! there.

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use super::fs_common::{definition, optional_text, text_argument};
use crate::base::BoxFuture;
use crate::protocol::{ApiError, BoardEntry, BoardKey, ToolCategory, ToolDefinition};
use crate::tool::{Arguments, Tool, ToolContext, ToolError, ToolOutput, Tree};

/// The name of the tool that changes the board.
pub const BOARD_WRITE: &str = "blackboard_write";
/// The name of the tool that looks at it.
pub const BOARD_READ: &str = "blackboard_read";

/// Puts something on the board, or takes it off.
#[derive(Debug, Default)]
pub struct BoardWrite;

/// Looks at the board.
#[derive(Debug, Default)]
pub struct BoardRead;

static WRITE: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let parameters = json!({
        "key": {"type": "string", "description": "Under which key, such as findings/api: letters, digits, _ - . : and /", "required": true},
        "value": {"type": "string", "description": "A text; a JSON object or list is kept as one"},
        "if_version": {"type": "number", "description": "Only if the entry still has this version, as you have read it; 0: only if there is none"},
        "delete": {"type": "boolean", "description": "Take the entry off the board, instead of a value"},
    });
    let description = "Puts a value on the blackboard that you share with the agent that started you and all agents under it, or \
        takes one off. For findings, decisions and interfaces that others need. Give `if_version` when you change what you have \
        read: another agent may have changed it meanwhile.";
    definition(BOARD_WRITE, ToolCategory::Other, description, parameters)
});

static READ: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let parameters = json!({
        "key": {"type": "string", "description": "The entry with this key"},
        "prefix": {"type": "string", "description": "All entries whose keys begin so"},
    });
    let description = "Reads the blackboard that the agents of this piece of work share. Without a key or a prefix: which entries \
        there are.";
    definition(BOARD_READ, ToolCategory::Read, description, parameters)
});

/// What a session shares with the others of its tree.
pub(super) fn tree_of(context: &ToolContext) -> Result<Arc<dyn Tree>, ToolError> {
    let tree = context.scope.tree.lock().clone();
    tree.ok_or_else(|| ToolError::failed("there is no session here that could share anything"))
}

pub(super) fn refused(error: &ApiError) -> ToolError {
    ToolError::failed(error.to_string())
}

fn key_of(text: &str) -> Result<BoardKey, ToolError> {
    text.parse().map_err(|cause| ToolError::BadArguments(format!("`key`: {cause}")))
}

/// What is to stand there. An object or a list that is written down is kept as one.
fn value_of(text: String) -> Value {
    match serde_json::from_str::<Value>(&text) {
        Ok(value @ (Value::Object(_) | Value::Array(_))) => value,
        Ok(_) | Err(_) => Value::String(text),
    }
}

fn told(entry: &BoardEntry) -> Value {
    let mut told = head(entry);
    told["value"] = entry.value.clone();
    told
}

/// An entry without its value.
fn head(entry: &BoardEntry) -> Value {
    let by = match &entry.by {
        None => "a client",
        Some(by) => by.name.as_deref().unwrap_or(by.session_id.as_str()),
    };
    json!({ "key": entry.key, "version": entry.version, "by": by })
}

fn output(told: Value) -> ToolOutput {
    ToolOutput { text: told.to_string(), details: Some(told), ..ToolOutput::default() }
}

impl Tool for BoardWrite {
    fn definition(&self) -> &ToolDefinition {
        &WRITE
    }

    fn records_changes(&self) -> bool {
        // It touches no files.
        true
    }

    fn run<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let key = key_of(&text_argument(&arguments, "key")?)?;
            let value = optional_text(&arguments, "value")?.map(value_of);
            let deletes = arguments.get("delete").and_then(Value::as_bool).unwrap_or(false);
            if deletes == value.is_some() {
                return Err(ToolError::BadArguments("`value`: expected a text, or `delete` and no value".to_owned()));
            }
            let if_version = match arguments.get("if_version").filter(|given| !given.is_null()) {
                None => None,
                Some(given) => Some(given.as_u64().or_else(|| whole(given.as_f64()?)).ok_or_else(|| {
                    ToolError::BadArguments(format!("`if_version`: expected the version of an entry, got {given}"))
                })?),
            };
            let tree = tree_of(context)?;
            let entry = tree.put(key.clone(), (value, if_version)).await.map_err(|error| refused(&error))?;
            Ok(output(match entry {
                Some(entry) => head(&entry),
                None => json!({ "key": key, "deleted": true }),
            }))
        })
    }
}

/// A whole number that came with a point.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "held against its bounds before")]
fn whole(number: f64) -> Option<u64> {
    (number.fract() == 0.0 && (0.0..9e15).contains(&number)).then_some(number as u64)
}

impl Tool for BoardRead {
    fn definition(&self) -> &ToolDefinition {
        &READ
    }

    fn may_repeat(&self, _: &Arguments) -> bool {
        // Others change it meanwhile.
        true
    }

    fn run<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let (key, prefix) = (optional_text(&arguments, "key")?, optional_text(&arguments, "prefix")?);
            if key.is_some() && prefix.is_some() {
                return Err(ToolError::BadArguments("`prefix`: expected nothing beside `key`".to_owned()));
            }
            let key = key.as_deref().map(key_of).transpose()?;
            let entries = tree_of(context)?.entries().await.map_err(|error| refused(&error))?;
            if let Some(key) = key {
                let found = entries.iter().find(|entry| entry.key == key);
                let keys = || entries.iter().map(|entry| entry.key.as_str()).collect::<Vec<_>>().join(", ");
                let none =
                    || ToolError::failed(format!("`{key}` is not on the board; what is: {}", or_nothing(keys())));
                return found.map(|entry| output(told(entry))).ok_or_else(none);
            }
            Ok(output(match prefix {
                Some(prefix) => {
                    entries.iter().filter(|entry| entry.key.as_str().starts_with(&prefix)).map(|e| told(e)).collect()
                }
                None => entries.iter().map(|entry| head(entry)).collect(),
            }))
        })
    }
}

fn or_nothing(keys: String) -> String {
    if keys.is_empty() { "nothing".to_owned() } else { keys }
}

#[cfg(test)]
mod tests {
    use super::super::fs_common::testing::call;
    use super::*;

    #[test]
    fn without_a_session_there_is_nothing_to_share() {
        for (tool, arguments) in
            [(&BoardWrite as &dyn Tool, json!({ "key": "k", "value": "v" })), (&BoardRead, json!({}))]
        {
            let said = call(tool, arguments).expect_err("no session");
            assert!(said.contains("no session"), "{said}");
        }
    }

    #[test]
    fn what_does_not_fit_is_named() {
        #[rustfmt::skip]
        let table = [
            (json!({"key": "k"}), "`value`: expected a text, or `delete`"),
            (json!({"key": "k", "value": "v", "delete": true}), "`value`: expected a text, or `delete`"),
            (json!({"key": "/k", "value": "v"}), "`key`: expected 1 to 128"),
            (json!({"key": "k", "value": "v", "if_version": 1.5}), "`if_version`: expected the version"),
            (json!({"key": "k", "value": "v", "if_version": -1}), "`if_version`: expected the version"),
        ];
        for (given, names) in table {
            let said = call(&BoardWrite, given).expect_err("refused");
            assert!(said.contains(names), "{said}");
        }
        let said = call(&BoardRead, json!({"key": "k", "prefix": "p"})).expect_err("refused");
        assert!(said.contains("`prefix`: expected nothing beside `key`"), "{said}");
    }

    #[test]
    fn an_object_that_is_written_down_is_kept_as_one() {
        #[rustfmt::skip]
        let table = [
            (r#"{"a": 1}"#, json!({"a": 1})), ("[1, 2]", json!([1, 2])), ("12", json!("12")), ("null", json!("null")), ("{a", json!("{a")),
        ];
        for (text, want) in table {
            assert_eq!(value_of(text.to_owned()), want);
        }
    }
}
