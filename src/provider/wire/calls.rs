//! The arguments of calls, as models write them: one JSON object, or something else that the model is told of.

use serde_json::{Map, Value};

use crate::base::limit;
use crate::model::ModelEvent;
use crate::protocol::ToolCallRequest;

/// A call whose arguments have come to their end. `length`: the model was cut off by its limit of tokens.
pub(in crate::provider) fn call_of((id, name): (String, String), arguments: &str, length: bool) -> ModelEvent {
    let bad = |problem: String| ModelEvent::BadCall { id: id.clone(), name: name.clone(), problem };
    if name.is_empty() {
        return bad("the call names no tool".into());
    }
    match arguments_of(arguments) {
        // None have come, which is not that there are none.
        Ok(_) if length && arguments.trim().is_empty() => bad(cut_inside(arguments)),
        Ok(arguments) => ModelEvent::Call(ToolCallRequest { id, name, arguments }),
        Err(Unread::Other(problem)) => bad(problem),
        Err(Unread::NoJson(_)) if length => bad(cut_inside(arguments)),
        Err(Unread::NoJson(error)) => bad(format!("the arguments are not a JSON object: {error}")),
    }
}

fn cut_inside(arguments: &str) -> String {
    format!(
        "the reply reached its limit of tokens inside the arguments, after {} bytes of them; \
         nothing was run. Use fewer or shorter arguments",
        arguments.len()
    )
}

/// What is wrong with arguments.
enum Unread {
    NoJson(serde_json::Error),
    Other(String),
}

/// Arguments as they are given back to a model, and kept: none where they cannot be read.
pub(in crate::provider) fn arguments_or_none(arguments: &str) -> Map<String, Value> {
    arguments_of(arguments).unwrap_or_default()
}

fn arguments_of(arguments: &str) -> Result<Map<String, Value>, Unread> {
    if arguments.trim().is_empty() {
        return Ok(Map::new());
    }
    let kind = match serde_json::from_str::<Value>(arguments).map_err(Unread::NoJson)? {
        Value::Object(arguments) if arguments.values().all(|value| is_flat(value, limit::CALL_LEVELS_MAX)) => {
            return Ok(arguments);
        }
        Value::Object(_) => {
            let max = limit::CALL_LEVELS_MAX;
            return Err(Unread::Other(format!("the arguments are nested more than {max} deep")));
        }
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
    };
    Err(Unread::Other(format!("the arguments must be one JSON object, got {kind}")))
}

/// Whether a value has at most so many levels.
fn is_flat(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(all) => levels > 0 && all.iter().all(|value| is_flat(value, levels - 1)),
        Value::Object(all) => levels > 0 && all.values().all(|value| is_flat(value, levels - 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}
