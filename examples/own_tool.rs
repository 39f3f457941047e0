//! Tools of a program's own beside the host tools: a function, and one whose calls are judged by the path that they touch.
//!
//! `cargo run --example own_tool`

#![allow(clippy::print_stdout, reason = "an example says what it does")]

use std::error::Error;
use std::sync::Arc;

use serde_json::{Value, json};
use simse::agent::{CallEnvironment, CancellationToken, RulesGate, run_call};
use simse::base::BoxFuture;
use simse::base::workspace::Workspace;
use simse::permission::Rules;
use simse::protocol::{ToolCallRequest, ToolCategory, ToolDefinition};
use simse::tool::{Arguments, PathSubject, Registry, Subject, Tool, ToolContext, ToolError, ToolOutput, function};

/// Counts the lines of a file of the workspace.
struct CountLines {
    definition: ToolDefinition,
    workspace: Arc<Workspace>,
}

impl CountLines {
    fn new(workspace: Arc<Workspace>) -> Self {
        let parameters = json!({"path": {"type": "string", "description": "The file", "required": true}});
        let definition = ToolDefinition::new("count_lines", "Counts the lines of a file.", object(parameters));
        Self { definition: ToolDefinition { category: Some(ToolCategory::Read), ..definition }, workspace }
    }
}

impl Tool for CountLines {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    /// What the patterns of permission rules are held against. Asked before the arguments are checked.
    fn subject(&self, arguments: &Arguments) -> Subject {
        let given = arguments.get("path").and_then(Value::as_str).unwrap_or_default().to_owned();
        let resolved = self.workspace.resolve(&given).ok();
        Subject::Paths(vec![PathSubject { given, resolved, below: false }])
    }

    fn run<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            // By now the arguments fit the definition, and permission was given.
            let path = arguments["path"].as_str().unwrap_or_default().to_owned();
            let (workspace, cancel) = (Arc::clone(&self.workspace), context.cancel.clone());
            // What blocks belongs on a thread for it.
            let count = tokio::task::spawn_blocking(move || {
                let file = workspace.open(&path).map_err(|error| ToolError::failed(error.to_string()))?;
                if cancel.is_cancelled() {
                    return Err(ToolError::Aborted);
                }
                let text = std::io::read_to_string(file).map_err(|error| ToolError::failed(error.to_string()))?;
                Ok(text.lines().count())
            });
            let count = count.await.map_err(|error| ToolError::failed(error.to_string()))??;
            Ok(ToolOutput::from(format!("{count} lines")))
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("poem.txt"), "one\ntwo\n")?;
    std::fs::write(folder.path().join("secret.txt"), "three\n")?;
    let workspace = Arc::new(Workspace::new(folder.path(), &[])?);

    let registry = Arc::new(Registry::default());
    registry.register(Arc::new(CountLines::new(Arc::clone(&workspace))))?;
    let parameters = json!({"a": {"type": "number", "required": true}, "b": {"type": "number", "required": true}});
    registry.register(function(
        ToolDefinition::new("add", "Adds two numbers.", object(parameters)),
        |arguments, _context| async move {
            let number = |name: &str| arguments[name].as_f64().unwrap_or_default();
            Ok(ToolOutput::from((number("a") + number("b")).to_string()))
        },
    ))?;

    let rules = json!({"defaultPolicy": "allow", "rules": [{"tool": "*", "pattern": "secret*", "policy": "deny"}]});
    let rules = Rules::new(&serde_json::from_value(rules)?);
    let gate = RulesGate::new(rules, workspace.working_directory());
    let environment = CallEnvironment::new(registry, Arc::new(gate));
    for (name, arguments) in [
        ("add", json!({"a": 1, "b": 2.5})),
        ("add", json!({"a": 1, "b": "x"})),
        ("count_lines", json!({"path": "poem.txt"})),
        ("count_lines", json!({"path": "./secret.txt"})),
        ("subtract", json!({})),
    ] {
        let request = ToolCallRequest { id: "1".to_owned(), name: name.to_owned(), arguments: object(arguments) };
        let outcome = run_call(&environment, request, &CancellationToken::new()).await;
        println!("{}", outcome.result.output);
    }
    Ok(())
}

fn object(value: Value) -> Arguments {
    match value {
        Value::Object(fields) => fields,
        _ => Arguments::new(),
    }
}

// Prints:
// 3.5
// Tool "add" execution failed: argument "b": expected a number, got the string "x"
// 2 lines
// Permission denied for tool: "count_lines" (rule 0 (tool "*", pattern "secret*") denies `./secret.txt`)
// Tool not found: "subtract"
