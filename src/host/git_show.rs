//! `git_show`: one commit with its changes, or a file as it was.

use std::sync::{Arc, LazyLock};

use serde_json::json;

use super::fs_common::{flag, optional_text, paths, refused};
use super::git_common::{Effect, Git, GitOptions, define, revision};
use crate::base::BoxFuture;
use crate::base::workspace::Workspace;
use crate::protocol::{ToolCategory, ToolDefinition};
use crate::tool::{Arguments, Subject, Tool, ToolContext, ToolError, ToolOutput};

static DEFINITION: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let parameters = json!({
        "revision": {"type": "string", "description": "A commit, branch or tag, or REVISION:PATH for a file as it was. Default: HEAD"},
        "path": {"type": "string", "description": "Only the changes of this file or directory"},
        "stat": {"type": "boolean", "description": "Only which files changed, and how much. Default: false"},
    });
    define("git_show", ToolCategory::Read, "Shows a commit with its changes, or a file as it was in one.", parameters)
});

/// The tool.
#[derive(Debug)]
pub struct GitShow {
    git: Git,
}

impl GitShow {
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

impl Tool for GitShow {
    fn definition(&self) -> &ToolDefinition {
        &DEFINITION
    }

    fn subject(&self, arguments: &Arguments) -> Subject {
        paths(&self.git.workspace, arguments, &["path"])
    }

    fn run<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let revision = revision("revision", optional_text(&arguments, "revision")?)?;
            let mut command = vec!["show", "--no-show-signature", "--no-ext-diff", "--no-textconv"];
            if flag(&arguments, "stat")? {
                command.push("--stat");
            }
            command.extend(["--end-of-options", &revision]);
            let path = optional_text(&arguments, "path")?;
            if let Some(path) = &path {
                self.git.workspace.resolve_entry(path).map_err(|e| refused(&e))?;
                command.extend(["--", path]);
            }
            self.git.run(Effect::Look, &command, context).await?.success()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::git_common::testing::Repository;
    use super::*;

    #[tokio::test]
    async fn a_commit_a_part_of_it_and_a_file_as_it_was() {
        let repository = Repository::new();
        repository.write("a", "two\n");
        repository.write("b", "new\n");
        repository.git(&["add", "."]);
        repository.git(&["commit", "-qm", "second"]);
        let tool = GitShow::new(repository.workspace());
        #[rustfmt::skip]
        let table = [
            (json!({}), vec!["second", "+two", "+new"], vec![]),
            (json!({"path": "b"}), vec!["+new"], vec!["+two"]),
            (json!({"stat": true}), vec!["2 files changed"], vec!["+two"]),
            (json!({"revision": "HEAD~1"}), vec!["first", "+one"], vec!["+two"]),
            (json!({"revision": "HEAD~1:a"}), vec!["one\n"], vec!["two"]),
        ];
        for (arguments, inside, outside) in table {
            let text = repository.call(&tool, arguments.clone()).await.unwrap();
            assert!(inside.iter().all(|part| text.contains(part)), "{arguments}: {text}");
            assert!(!outside.iter().any(|part| text.contains(part)), "{arguments}: {text}");
        }
    }

    #[tokio::test]
    async fn options_and_paths_outside_are_refused() {
        let repository = Repository::new();
        let tool = GitShow::new(repository.workspace());
        for bad in ["--output=owned", "-p", "", "a b", "x\0y"] {
            let error = repository.call(&tool, json!({"revision": bad})).await.unwrap_err();
            assert!(error.starts_with("`revision`: expected a revision"), "{error}");
        }
        let error = repository.call(&tool, json!({"path": "../x"})).await.unwrap_err();
        assert!(error.starts_with("Path \"../x\" escapes"), "{error}");
        let error = repository.call(&tool, json!({"revision": "none"})).await.unwrap_err();
        assert!(error.contains("none"), "{error}");
        assert!(!repository.directory.path().join("owned").exists());
    }
}
