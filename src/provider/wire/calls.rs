//! The arguments of calls, as models write them: one JSON object, or something else that the model is told of.

use serde_json::{Map, Value};

use crate::model::ModelEvent;
use crate::protocol::ToolCallRequest;

/// A call whose arguments have come to their end. `length`: the model was cut off by its limit of tokens.
pub(in crate::provider) fn call_of((id, name): (String, String), arguments: &str, length: bool) -> ModelEvent {
    let bad = |problem: String| ModelEvent::BadCall { id: id.clone(), name: name.clone(), problem };
    if name.is_empty() {
        return bad("the call names no tool".into());
    }
    if arguments.trim().is_empty() {
        return ModelEvent::Call(ToolCallRequest { id, name, arguments: Map::new() });
    }
    match serde_json::from_str::<Value>(arguments) {
        Ok(Value::Object(arguments)) => ModelEvent::Call(ToolCallRequest { id, name, arguments }),
        Ok(other) => {
            let kind = match other {
                Value::Null => "null",
                Value::Bool(_) => "a boolean",
                Value::Number(_) => "a number",
                Value::String(_) => "a string",
                Value::Array(_) | Value::Object(_) => "an array",
            };
            bad(format!("the arguments must be one JSON object, got {kind}"))
        }
        Err(_) if length => bad(format!(
            "the reply reached its limit of tokens inside the arguments, after {} bytes of them; \
             nothing was run. Use fewer or shorter arguments",
            arguments.len()
        )),
        Err(error) => bad(format!("the arguments are not a JSON object: {error}")),
    }
}
