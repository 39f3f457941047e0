//! The way for a single call to leave the sandbox when a person agrees: its two arguments, and a tool that is there twice,
//! inside and outside.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::base::BoxFuture;
use crate::protocol::ToolDefinition;
use crate::tool::{Arguments, Subject, Tool, ToolContext, ToolError, ToolOutput};

/// The argument by which a call asks to run outside.
const OUTSIDE: &str = "outside_sandbox";
/// The argument that says why.
const JUSTIFICATION: &str = "justification";

/// The same tool twice: inside and outside of the sandbox.
pub(super) struct WayOut {
    inside: Arc<dyn Tool>,
    outside: Arc<dyn Tool>,
    definition: ToolDefinition,
}

impl WayOut {
    /// A tool that runs inside, and outside where a call asks for it.
    pub(super) fn new(inside: Arc<dyn Tool>, outside: Arc<dyn Tool>) -> Self {
        let mut definition = inside.definition().clone();
        offer(&mut definition);
        Self { inside, outside, definition }
    }
}

/// Adds the two arguments to a definition.
pub(super) fn offer(definition: &mut ToolDefinition) {
    let outside = "Run this call outside the sandbox; the user is asked";
    let why = "With outside_sandbox: why, in one sentence for the user";
    definition.parameters.insert(OUTSIDE.into(), json!({"type": "boolean", "description": outside}));
    definition.parameters.insert(JUSTIFICATION.into(), json!({"type": "string", "description": why}));
}

/// Whether a call asks to run outside.
pub(super) fn leaves(arguments: &Arguments) -> bool {
    arguments.get(OUTSIDE) == Some(&Value::Bool(true))
}

/// Whether a call that runs says why it leaves, when it does.
///
/// # Errors
/// It leaves, and says nothing.
pub(super) fn check_leave(arguments: &Arguments) -> Result<bool, ToolError> {
    if !leaves(arguments) {
        return Ok(false);
    }
    match arguments.get(JUSTIFICATION) {
        Some(Value::String(why)) if !why.trim().is_empty() => Ok(true),
        None | Some(Value::Null | Value::String(_)) => Err(ToolError::BadArguments(format!(
            "`{JUSTIFICATION}`: expected the reason why the call must leave the sandbox, got nothing"
        ))),
        Some(other) => Err(ToolError::BadArguments(format!("`{JUSTIFICATION}`: expected a string, got {other}"))),
    }
}

impl Tool for WayOut {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn aliases(&self) -> &'static [(&'static str, &'static str)] {
        self.inside.aliases()
    }

    fn subject(&self, arguments: &Arguments) -> Subject {
        self.inside.subject(arguments)
    }

    fn judged_as(&self, arguments: &Arguments) -> &ToolDefinition {
        self.inside.judged_as(arguments)
    }

    fn insists(&self, arguments: &Arguments) -> bool {
        leaves(arguments) || self.inside.insists(arguments)
    }

    fn check(&self, arguments: &Arguments) -> Result<(), ToolError> {
        check_leave(arguments).map(drop)
    }

    fn preview<'a>(&'a self, arguments: &'a Arguments, context: &'a ToolContext) -> BoxFuture<'a, Option<Value>> {
        self.inside.preview(arguments, context)
    }

    fn run<'a>(
        &'a self,
        mut arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let tool = if check_leave(&arguments)? { &self.outside } else { &self.inside };
            arguments.remove(OUTSIDE);
            arguments.remove(JUSTIFICATION);
            tool.run(arguments, context).await
        })
    }
}

impl std::fmt::Debug for WayOut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WayOut").field("name", &self.definition.name).finish_non_exhaustive()
    }
}
