//! The search tools: the files of a folder that `.gitignore` leaves, by name and by content, run side by side.
//!
//! `cargo run --example search`

#![allow(clippy::print_stdout, reason = "an example says what it does")]

use std::error::Error;
use std::fs;
use std::sync::Arc;

use serde_json::{Value, json};
use simse::agent::{CallEnvironment, CancellationToken, RulesGate, run_batch};
use simse::base::workspace::Workspace;
use simse::config::default_permissions;
use simse::host::filesystem_tools;
use simse::permission::Rules;
use simse::protocol::ToolCallRequest;
use simse::tool::Registry;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    for (path, text) in [
        ("src/lib.rs", "pub fn answer() -> u32 {\n    42\n}\n"),
        ("src/main.rs", "fn main() {\n    answer();\n}\n"),
        ("target/main.rs", "answer answer answer\n"),
        (".gitignore", "target/\n"),
    ] {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().expect("it lies in the folder"))?;
        fs::write(path, text)?;
    }

    let workspace = Arc::new(Workspace::new(folder.path(), &[])?);
    let registry = Arc::new(Registry::default());
    registry.extend(filesystem_tools(&workspace));
    // Looking and searching are allowed; everything else would have to be asked, and nobody is there.
    let gate = RulesGate::new(Rules::new(&default_permissions()), workspace.working_directory());
    let environment = CallEnvironment::new(registry, Arc::new(gate));

    let calls = vec![
        call("1", "fs_glob", json!({"pattern": "**/*.rs"})),
        call("2", "fs_grep", json!({"pattern": r"\banswer\(\)"})),
        call("3", "fs_read", json!({"path": "src/lib.rs", "offset": 2, "limit": 1})),
        call("4", "fs_write", json!({"path": "new", "content": "x"})),
    ];
    for outcome in run_batch(&environment, calls, 8, &CancellationToken::new()).await {
        let mut lines: Vec<&str> = outcome.result.output.lines().collect();
        if outcome.result.name == "fs_glob" {
            // Newest first; these are all of one moment.
            lines.sort_unstable();
        }
        println!("== {}\n{}", outcome.result.name, lines.join("\n"));
    }
    Ok(())
}

/// A call as a model would make it.
fn call(id: &str, name: &str, arguments: Value) -> ToolCallRequest {
    let Value::Object(arguments) = arguments else { unreachable!("the arguments of this example are objects") };
    ToolCallRequest { id: id.to_owned(), name: name.to_owned(), arguments }
}

// Prints:
// == fs_glob
// src/lib.rs
// src/main.rs
// == fs_grep
// src/lib.rs:1: pub fn answer() -> u32 {
// src/main.rs:2:     answer();
// == fs_read
//      2	    42
//
// (Showing lines 2-2 of 3. Read on with offset: 3)
// == fs_write
// Permission denied for tool: "fs_write" (nobody is there who could be asked)
