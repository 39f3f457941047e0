//! The host tools without anything else of simse: a registry, rules, somebody who is asked, hooks, and the events of a call.
//!
//! `cargo run --example tools_only`

#![allow(clippy::print_stdout, reason = "an example says what it does")]

use std::error::Error;
use std::sync::Arc;

use serde_json::{Value, json};
use simse::agent::{Asker, CallEnvironment, CancellationToken, RulesGate, run_call};
use simse::base::BoxFuture;
use simse::base::workspace::Workspace;
use simse::hook::{Before, Handler, HookSystem};
use simse::host::{BashOptions, GitOptions, bash_tool, filesystem_tools, git_tools};
use simse::permission::Rules;
use simse::protocol::{EventBody, ToolCallRequest};
use simse::tool::Registry;

/// Answers what the rules ask. A real one shows the call to a person.
struct YesToFiles;

impl Asker for YesToFiles {
    fn ask<'a>(
        &'a self,
        request: &'a ToolCallRequest,
        preview: Option<&'a serde_json::Value>,
        _cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, bool> {
        println!("  asked about {}", request.name);
        if let Some(diff) = preview.and_then(|preview| preview["diff"].as_str()) {
            println!("{diff}");
        }
        Box::pin(std::future::ready(request.name.starts_with("fs_")))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    // No tool leaves this folder, by no path and no link.
    let workspace = Arc::new(Workspace::new(folder.path(), &[])?);
    let registry = Arc::new(Registry::default());
    registry.extend(filesystem_tools(&workspace));
    registry.register(bash_tool(&workspace, BashOptions::default()))?;
    registry.extend(git_tools(&workspace, &GitOptions::default()));

    // The last rule that matches wins. Of a command line each part is judged, and the strictest counts.
    let rules = serde_json::from_value(json!({
        "defaultPolicy": "ask",
        "rules": [
            {"tool": "*", "policy": "allow", "annotations": {"readOnly": true}},
            {"tool": "bash", "pattern": "echo *", "policy": "allow"},
            {"tool": "bash", "pattern": "rm *", "policy": "deny"},
        ],
    }))?;
    let gate = RulesGate::new(Rules::new(&rules), workspace.working_directory()).asking(Arc::new(YesToFiles));

    // A hook before each call may change or block it.
    let hooks = HookSystem::default();
    hooks.register(Handler::BeforeTool(Arc::new(|request| {
        let secret = request.arguments.get("path").and_then(Value::as_str).is_some_and(|path| path.ends_with(".env"));
        let blocked = secret.then(|| Before::Blocked { reason: "no secrets".to_owned() });
        Box::pin(std::future::ready(Ok(blocked)))
    })));

    let environment = CallEnvironment {
        hooks: Arc::new(hooks),
        sink: Some(Arc::new(|event: EventBody| {
            if let EventBody::ToolCallStart { name, .. } = event {
                println!("  event: {name} starts");
            }
        })),
        ..CallEnvironment::new(Arc::clone(&registry), Arc::new(gate))
    };
    for (name, arguments) in [
        ("fs_write", json!({"path": "a.txt", "content": "one\ntwo\n"})),
        ("fs_edit", json!({"path": "a.txt", "old_string": "two", "new_string": "three"})),
        ("bash", json!({"command": "echo done"})),
        ("bash", json!({"command": "echo done && rm a.txt"})),
        ("bash", json!({"command": "make"})),
        ("fs_read", json!({"path": ".env"})),
        ("fs_read", json!({"path": "../outside"})),
        ("fs_read", json!({"path": 7})),
    ] {
        let Value::Object(arguments) = arguments else { unreachable!("the arguments of this example are objects") };
        let request = ToolCallRequest { id: "1".to_owned(), name: name.to_owned(), arguments };
        // There is always a result; what went wrong is told in it, for the model.
        let outcome = run_call(&environment, request, &CancellationToken::new()).await;
        let said = outcome.result.output.replace(&*folder.path().to_string_lossy(), "FOLDER");
        let end = if outcome.result.is_error { "failed" } else { "ok" };
        println!("{name} {end}: {}", said.lines().next().unwrap_or_default());
    }
    let calls: u64 = registry.metrics().iter().map(|tool| tool.call_count).sum();
    println!("{calls} calls reached their tool");
    Ok(())
}

// Prints:
//   event: fs_write starts
//   asked about fs_write
// --- /dev/null
// +++ b/a.txt
// @@ -0,0 +1,2 @@
// +one
// +two
//
// fs_write ok: Wrote 8 bytes to a.txt
//   event: fs_edit starts
//   asked about fs_edit
// --- a/a.txt
// +++ b/a.txt
// @@ -1,2 +1,2 @@
//  one
// -two
// +three
//
// fs_edit ok: Edited a.txt using strategy: exact
//   event: bash starts
// bash ok: done
//   event: bash starts
// bash failed: Permission denied for tool: "bash" (rule 2 (tool "bash", pattern "rm *") denies `rm a.txt`)
//   event: bash starts
//   asked about bash
// bash failed: Permission denied for tool: "bash"
//   event: fs_read starts
// fs_read failed: Tool "fs_read" was blocked: no secrets
//   event: fs_read starts
// fs_read failed: Tool "fs_read" execution failed: Path "../outside" escapes the working directory "FOLDER"
//   event: fs_read starts
// fs_read failed: Tool "fs_read" execution failed: argument "path": expected a string, got the number 7
// 4 calls reached their tool
