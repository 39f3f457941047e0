//! `git_diff`: what has changed since the last commit, or since it was staged.

use std::sync::{Arc, LazyLock};

use serde_json::json;

use super::fs_common::{flag, optional_text, paths, refused};
use super::git_common::{Effect, Git, GitOptions, define};
use super::git_veil::{kept_below, seen};
use crate::base::BoxFuture;
use crate::base::workspace::Workspace;
use crate::protocol::{ToolCategory, ToolDefinition};
use crate::tool::{Arguments, Subject, Tool, ToolContext, ToolError, ToolOutput};

static DEFINITION: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let parameters = json!({
        "staged": {"type": "boolean", "description": "Shows what is staged for the next commit. Default: what is not"},
        "path": {"type": "string", "description": "Only this file or directory"},
    });
    let description = "Shows changes as a diff. New files are in it only once they are staged. Empty: no changes.";
    define("git_diff", ToolCategory::Read, description, parameters)
});

/// The tool.
#[derive(Debug)]
pub struct GitDiff {
    git: Git,
}

impl GitDiff {
    /// The tool for a workspace.
    pub fn new(workspace: Arc<Workspace>) -> Self {
        Self { git: Git::new(workspace) }
    }

    /// The same, held to what the options say.
    #[must_use]
    pub fn with(self, options: GitOptions) -> Self {
        Self { git: self.git.with(options) }
    }
}

impl Tool for GitDiff {
    fn definition(&self) -> &ToolDefinition {
        &DEFINITION
    }

    fn subject(&self, arguments: &Arguments) -> Subject {
        paths(&self.git.workspace, arguments, &["path"])
    }

    fn searches(&self) -> bool {
        true
    }

    fn run<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            // Programs that the repository names for showing files are not run.
            let mut command = vec!["diff", "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty"];
            if flag(&arguments, "staged")? {
                command.push("--cached");
            }
            let path = optional_text(&arguments, "path")?;
            if let Some(path) = &path {
                self.git.workspace.resolve_entry(path).map_err(|e| refused(&e))?;
            }
            let names = [command.as_slice(), &["--name-only", "-z", "--no-renames"]].concat();
            let paths = kept_below(&self.git, path.as_deref()).await;
            let paths = seen(&self.git, (&names, paths), context).await?;
            self.git.run_on(Effect::Look, (&command, &paths), context).await?.success()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::git_common::testing::Repository;
    use super::*;

    #[tokio::test]
    async fn changes_staged_or_not_of_all_or_one() {
        let repository = Repository::new();
        let tool = GitDiff::new(repository.workspace());
        assert_eq!(repository.call(&tool, json!({})).await.unwrap(), "");
        repository.write("a", "two\n");
        repository.write("-b", "new\n");
        repository.write("*", "star\n");
        repository.git(&["add", "--", "-b", ":(literal)*"]);
        #[rustfmt::skip]
        let table = [
            (json!({}), vec!["-one\n+two\n"], vec!["+new"]),
            (json!({"staged": true}), vec!["+new", "+star"], vec!["+two"]),
            (json!({"path": "a"}), vec!["+two"], vec![]),
            (json!({"staged": true, "path": "-b"}), vec!["+new"], vec!["+star"]),
            (json!({"staged": true, "path": "*"}), vec!["+star"], vec!["+new"]),
            (json!({"path": "none"}), vec![], vec!["+"]),
        ];
        for (arguments, inside, outside) in table {
            let text = repository.call(&tool, arguments.clone()).await.unwrap();
            assert!(inside.iter().all(|part| text.contains(part)), "{arguments}: {text}");
            assert!(!outside.iter().any(|part| text.contains(part)), "{arguments}: {text}");
        }
    }

    #[tokio::test]
    async fn paths_stay_inside_and_no_program_is_run() {
        let repository = Repository::new();
        let tool = GitDiff::new(repository.workspace());
        for path in ["../x", "/etc/passwd"] {
            let error = repository.call(&tool, json!({"path": path})).await.unwrap_err();
            assert!(error.starts_with(&format!("Path \"{path}\" escapes")), "{error}");
        }
        let error = repository.call(&tool, json!({"path": "--output=owned"})).await.unwrap();
        assert!(error.is_empty() && !repository.directory.path().join("owned").exists());
        repository.git(&["config", "diff.external", "touch owned; true"]);
        repository.git(&["config", "diff.x.textconv", "touch owned; cat"]);
        repository.write(".gitattributes", "a diff=x\n");
        repository.write("a", "two\n");
        assert!(repository.call(&tool, json!({})).await.unwrap().contains("+two"));
        assert!(!repository.directory.path().join("owned").exists());
    }
}
