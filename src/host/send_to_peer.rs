//! `send_to_peer`: what a sub-agent tells one that works beside it, where their parent has them work as peers.

use std::sync::LazyLock;

use serde_json::json;

use super::blackboard::{refused, tree_of};
use super::fs_common::text_argument;
use crate::base::{BoxFuture, limit};
use crate::protocol::{ToolAnnotations, ToolCategory, ToolDefinition};
use crate::tool::{Arguments, Tool, ToolContext, ToolError, ToolOutput};

/// The tool's name.
pub const SEND_TO_PEER: &str = "send_to_peer";

static DEFINITION: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let parameters = json!({
        "to": {"type": "string", "description": "Its name or id; a wrong one is answered with those that there are", "required": true},
        "message": {"type": "string", "description": "What to tell it", "required": true},
    });
    ToolDefinition {
        name: SEND_TO_PEER.to_owned(),
        description: "Tells another agent that works beside you something: it reads it at its next step. Only for sub-agents that \
            were started as peers."
            .to_owned(),
        parameters: parameters.as_object().cloned().unwrap_or_default(),
        category: Some(ToolCategory::Other),
        // It changes nothing but what somebody knows who works on the same.
        annotations: Some(ToolAnnotations { read_only: Some(true), ..ToolAnnotations::default() }),
        timeout_ms: None,
        max_output_chars: None,
    }
});

/// The tool.
#[derive(Debug, Default)]
pub struct SendToPeer;

impl Tool for SendToPeer {
    fn definition(&self) -> &ToolDefinition {
        &DEFINITION
    }

    fn run<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let (to, message) = (text_argument(&arguments, "to")?, text_argument(&arguments, "message")?);
            let bytes_max = limit::SUBAGENT_TASK_BYTES_MAX;
            if message.trim().is_empty() || message.len() > bytes_max {
                let expected = format!("`message`: expected a text of at most {bytes_max} bytes that says something");
                return Err(ToolError::BadArguments(expected));
            }
            tree_of(context)?.send_to_peer(&to, message).await.map_err(|error| refused(&error))?;
            Ok(format!("{to} was told.").into())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::fs_common::testing::call;
    use super::*;

    #[test]
    fn a_message_says_something_to_somebody() {
        for (message, why) in [(" ", "`message`: expected"), ("found it", "no session")] {
            let said = call(&SendToPeer, json!({ "to": "a", "message": message })).expect_err("refused");
            assert!(said.contains(why), "{said}");
        }
    }
}
