//! `notify_parent`: what a sub-agent finds while it works, told to the agent that has started it, and to no other.

use std::sync::LazyLock;

use serde_json::json;

use super::blackboard::{refused, tree_of};
use super::fs_common::text_argument;
use crate::base::{BoxFuture, limit};
use crate::protocol::{ToolAnnotations, ToolCategory, ToolDefinition};
use crate::tool::{Arguments, Tool, ToolContext, ToolError, ToolOutput};

/// The tool's name.
pub const NOTIFY_PARENT: &str = "notify_parent";

static DEFINITION: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let message = json!({"type": "string", "description": "What it should know before you are done", "required": true});
    ToolDefinition {
        name: NOTIFY_PARENT.to_owned(),
        description:
            "Tells the agent that has started you something while you work: it reads it at its next step. Your final \
            answer reaches it in any case. Only for sub-agents."
                .to_owned(),
        parameters: json!({ "message": message }).as_object().cloned().unwrap_or_default(),
        category: Some(ToolCategory::Other),
        // It changes nothing but what somebody knows who hears of all this anyway.
        annotations: Some(ToolAnnotations { read_only: Some(true), ..ToolAnnotations::default() }),
        timeout_ms: None,
        max_output_chars: None,
    }
});

/// The tool.
#[derive(Debug, Default)]
pub struct NotifyParent;

impl Tool for NotifyParent {
    fn definition(&self) -> &ToolDefinition {
        &DEFINITION
    }

    fn run<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let message = text_argument(&arguments, "message")?;
            let bytes_max = limit::SUBAGENT_TASK_BYTES_MAX;
            if message.trim().is_empty() || message.len() > bytes_max {
                let expected = format!("`message`: expected a text of at most {bytes_max} bytes that says something");
                return Err(ToolError::BadArguments(expected));
            }
            tree_of(context)?.notify_parent(message).await.map_err(|error| refused(&error))?;
            Ok("Your parent was told.".to_owned().into())
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
            let said = call(&NotifyParent, json!({ "message": message })).expect_err("refused");
            assert!(said.contains(why), "{said}");
        }
    }
}
