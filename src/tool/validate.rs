//! TBD by the loop's author.

use serde_json::Value;

use super::Arguments;
use crate::protocol::ToolDefinition;

/// Arguments that do not fit the definition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadArguments(pub String);

/// Holds arguments against a definition: which argument, what was expected, what came.
///
/// # Errors
/// [`BadArguments`] that names the argument.
pub fn validate(_definition: &ToolDefinition, _arguments: &Arguments) -> Result<(), BadArguments> {
    Ok(())
}

/// The definition's parameters as a JSON Schema object, for a model.
pub fn json_schema(_definition: &ToolDefinition) -> Value {
    Value::Null
}
