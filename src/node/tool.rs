//! A tool whose handler is a JavaScript function.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::bridge::{Bridge, CallFailure};
use super::error::to_json;
use crate::permission::Subject;
use crate::protocol::{Part, ToolDefinition};
use crate::tool::{Arguments, BoxFuture, Tool, ToolContext, ToolError, ToolOutput, argument_subject};

/// Calls handler number `handler` of the JavaScript registry `target`, which keeps it while this lives: a call keeps
/// the tool that it was resolved to, whatever is registered under its name meanwhile.
pub(super) struct JsTool {
    pub(super) definition: ToolDefinition,
    pub(super) bridge: Arc<Bridge>,
    pub(super) target: u32,
    pub(super) handler: u32,
    /// Whether arguments are held against a schema of the handler's.
    pub(super) checks: bool,
}

/// What permission patterns are held against, for a tool that only its arguments describe: a command, else paths.
pub(super) fn subject_of(arguments: &Arguments) -> Subject {
    argument_subject(arguments, |given| std::path::absolute(given).ok())
}

/// What a handler is called with.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Input<'a> {
    handler: u32,
    arguments: &'a Arguments,
    call_id: &'a str,
    session_id: Option<&'a str>,
}

/// What a handler gives back that is more than a text, as JSON behind [`MORE`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct HandlerOutput {
    output: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    parts: Vec<Part>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    details: Option<Value>,
}

impl From<ToolOutput> for HandlerOutput {
    fn from(output: ToolOutput) -> Self {
        let ToolOutput { text, parts, details } = output;
        Self { output: text, parts, details }
    }
}

/// What an answer begins with that is no plain text. `js/registry.cjs` puts a text that begins so into the other form.
const MORE: &str = "\u{1}simse:";

fn output_of(answer: String) -> Result<ToolOutput, ToolError> {
    let Some(json) = answer.strip_prefix(MORE) else { return Ok(ToolOutput::from(answer)) };
    let read: HandlerOutput = serde_json::from_str(json).map_err(|e| ToolError::failed(format!("its answer: {e}")))?;
    Ok(ToolOutput { text: read.output, parts: read.parts, details: read.details })
}

impl Drop for JsTool {
    fn drop(&mut self) {
        self.bridge.release(self.target, self.handler);
    }
}

impl Tool for JsTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    /// What a handler reads of its arguments is its own affair.
    fn takes_unknown(&self) -> bool {
        true
    }

    fn checks_arguments(&self) -> bool {
        self.checks
    }

    fn subject(&self, arguments: &Arguments) -> Subject {
        subject_of(arguments)
    }

    fn run<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let session = context.session.as_ref().map(ToString::to_string);
            let input = to_json(&Input {
                handler: self.handler,
                arguments: &arguments,
                call_id: &context.call_id,
                session_id: session.as_deref(),
            });
            drop(arguments);
            match self.bridge.call_with((self.target, "tool"), input, &context.clients, &context.cancel).await {
                Ok(answer) => output_of(answer),
                Err(CallFailure::Threw(message)) => Err(ToolError::Failed(message)),
                Err(CallFailure::BadInput(message)) => Err(ToolError::BadArguments(message)),
                Err(CallFailure::Aborted) => Err(ToolError::Aborted),
            }
        })
    }
}
