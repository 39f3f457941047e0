//! A tool whose handler is a JavaScript function.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};

use super::bridge::{Bridge, CallFailure};
use super::error::to_json;
use crate::permission::{PathSubject, Subject};
use crate::protocol::ToolDefinition;
use crate::tool::{Arguments, BoxFuture, Tool, ToolContext, ToolError, ToolOutput};

/// Arguments that name files, by the names the host tools use.
const PATH_ARGUMENTS: [&str; 3] = ["path", "source", "destination"];

/// Calls handler number `handler` of the JavaScript registry `target`.
pub(super) struct JsTool {
    pub(super) definition: ToolDefinition,
    pub(super) bridge: Arc<Bridge>,
    pub(super) target: u32,
    pub(super) handler: u32,
}

/// What permission patterns are held against, for a tool that only its arguments describe: a command, else paths.
pub(super) fn subject_of(arguments: &Arguments) -> Subject {
    if let Some(Value::String(command)) = arguments.get("command") {
        return Subject::Command(command.clone());
    }
    let given = PATH_ARGUMENTS.iter().filter_map(|name| arguments.get(*name).and_then(Value::as_str));
    let paths: Vec<PathSubject> = given.map(path_subject).collect();
    if paths.is_empty() { Subject::None } else { Subject::Paths(paths) }
}

/// A path as it resolves: through links as far as it exists, its `..` taken out in any case.
fn path_subject(given: &str) -> PathSubject {
    let resolved = std::path::absolute(given).ok().and_then(resolve);
    PathSubject { given: given.to_owned(), resolved }
}

fn resolve(path: PathBuf) -> Option<PathBuf> {
    let mut rest: Vec<std::ffi::OsString> = Vec::new();
    let mut at = path;
    loop {
        if let Ok(real) = at.canonicalize() {
            return Some(rest.iter().rev().fold(real, |p, part| p.join(part)));
        }
        // `..` behind something that does not exist cannot be resolved: it then matches no pattern that allows.
        rest.push(at.file_name()?.to_owned());
        if !at.pop() {
            return None;
        }
    }
}

impl Tool for JsTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
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
            let input = to_json(&json!({
                "handler": self.handler,
                "arguments": arguments,
                "callId": context.call_id,
                "sessionId": context.session,
            }));
            match self.bridge.call(self.target, "tool", input, &context.cancel).await {
                Ok(text) => Ok(ToolOutput::from(text)),
                Err(CallFailure::Threw(message)) => Err(ToolError::Failed(message)),
                Err(CallFailure::BadInput(message)) => Err(ToolError::BadArguments(message)),
                Err(CallFailure::Aborted) => Err(ToolError::Aborted),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(value: Value) -> Arguments {
        match value {
            Value::Object(map) => map,
            other => panic!("an object, not {other}"),
        }
    }

    #[test]
    fn a_command_comes_before_paths_and_paths_are_resolved() {
        assert_eq!(subject_of(&arguments(json!({"a": 1}))), Subject::None);
        assert_eq!(subject_of(&arguments(json!({"command": "ls", "path": "x"}))), Subject::Command("ls".into()));
        let Subject::Paths(paths) = subject_of(&arguments(json!({"path": "/tmp/../tmp/none/file"}))) else {
            panic!("paths");
        };
        let tmp = std::path::Path::new("/tmp").canonicalize().unwrap();
        assert_eq!(paths[0].resolved.as_deref(), Some(tmp.join("none/file").as_path()));
        let Subject::Paths(paths) = subject_of(&arguments(json!({"path": "/tmp/none/../../etc/passwd"}))) else {
            panic!("paths");
        };
        assert_eq!(paths[0].resolved, None);
    }
}
