//! Kept outputs and the sandbox: `fs_read` pages them, and no command gets at them. The server's settings in a root, which no tool changes
//! unasked, and elsewhere, where no command sees them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};

use super::bash::{Bash, BashOptions};
use super::confine::Sandbox;
use super::fs_common::testing::{context, workspace};
use super::fs_read::FsRead;
use crate::base::sandbox::{Mode, support};
use crate::base::workspace::Workspace;
use crate::tool::{Estate, Outputs, Tool, ToolContext};

async fn said(tool: &dyn Tool, arguments: Value, context: &ToolContext) -> (String, Value) {
    let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
    let output = tool.run(arguments, context).await.unwrap();
    (output.text, output.details.unwrap_or_default())
}

/// The calls of one session.
fn session(estate: &Arc<Estate>, name: &str) -> ToolContext {
    let context = context();
    context.scope.take_share(estate.share(name));
    context
}

#[tokio::test]
async fn no_command_gets_at_a_kept_output() {
    let missing = support().missing();
    if !missing.is_empty() {
        eprintln!("not tested here, because {}", missing.join("; "));
        return;
    }
    // One lies where every command may write.
    let (place, temporary) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/var/tmp").unwrap());
    for home in [place.path(), temporary.path()] {
        out_of_reach(home).await;
    }
}

#[tokio::test]
async fn settings_are_kept_in_a_root_and_out_of_sight_elsewhere() {
    let (work, workspace) = workspace(&[("conf/s.toml", "openai_api_key = 'k'\n"), ("conf/other", "")]);
    let (_other, elsewhere) = super::fs_common::testing::workspace(&[("a", "")]);
    let file = work.path().canonicalize().unwrap().join("conf/s.toml");
    let settings = vec![file.clone()];
    let kept = Arc::new(Workspace::clone(&workspace).keeping(&settings));
    let write = super::fs_write::FsWrite::new(Arc::clone(&kept));
    let delete = super::fs_delete::FsDelete::new(kept);
    for (path, want) in [("conf/s.toml", true), ("conf/../conf/s.toml", true), ("conf/other", false), ("conf", true)] {
        let Value::Object(arguments) = json!({"path": path, "content": "x"}) else { panic!("an object") };
        assert_eq!(write.insists(&arguments), want, "{path}");
        assert_eq!(delete.insists(&arguments), want, "{path}");
    }
    if !support().missing().is_empty() {
        eprintln!("not tested in a sandbox, because {}", support().missing().join("; "));
        return;
    }
    let sandbox = Sandbox { mode: Mode::WorkspaceWrite, settings, ..Sandbox::default() };
    let bash = |workspace: &Arc<Workspace>| {
        Bash::new(Arc::clone(workspace), BashOptions { sandbox: sandbox.clone(), ..BashOptions::default() })
    };
    let line = json!({"command": format!("cat {0}; echo x >> {0} || echo refused", file.display())});
    let (inside, _) = said(&bash(&workspace), line.clone(), &context()).await;
    assert!(inside.contains("openai_api_key") && inside.contains("refused"), "{inside}");
    // There it is nothing: what is written to it goes nowhere.
    let (outside, _) = said(&bash(&elsewhere), line, &context()).await;
    assert!(!outside.contains("openai_api_key"), "{outside}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "openai_api_key = 'k'\n");
}

async fn out_of_reach(place: &Path) {
    let (_work, workspace) = workspace(&[("a", "")]);
    let sandbox = Sandbox { mode: Mode::WorkspaceWrite, ..Sandbox::default() };
    let bash =
        Bash::new(Arc::clone(&workspace), BashOptions { sandbox, output_bytes_max: 100, ..BashOptions::default() });
    let estate = Arc::new(Estate::keeping(Outputs::new(vec![place.join("own/outputs")], 1 << 20)));
    let (one, two) = (session(&estate, "one"), session(&estate, "two"));
    // What was prepared for a session's commands was prepared before there was any output.
    assert_eq!(said(&bash, json!({"command": "echo hi"}), &two).await.0, "hi\n");
    let (_, details) = said(&bash, json!({"command": "seq 30000"}), &one).await;
    let path = PathBuf::from(details["outputPath"].as_str().unwrap());
    let (file, directory) = (path.display(), path.parent().unwrap().display());
    let outputs = place.join("own/outputs").display().to_string();
    let commands = [
        format!("cat {file}"),
        format!("ls {directory}"),
        format!("echo x > {file}"),
        format!("rm -f {file}; test ! -e {file} && false"),
        format!("rm -rf {directory} && false"),
        format!("mv {outputs} {outputs}2"),
        format!("chmod 777 {file}"),
        format!("mkdir -p {directory} && echo x > {file}"),
        format!("umount {outputs}"),
    ];
    for context in [&one, &two] {
        for command in &commands {
            let (text, _) = said(&bash, json!({ "command": command }), context).await;
            assert!(text.starts_with("[exit code "), "{command}: {text}");
        }
    }
    let read = FsRead::new(workspace);
    let (text, _) = said(&read, json!({"path": path, "offset": 20_000, "limit": 1}), &one).await;
    assert!(text.contains(" 20000\t20000\n"), "{text}");
    assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 30_000);
}
