//! `git_show`: one commit with its changes, or a file as it was.

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use super::fs_common::{flag, optional_text, path_subject, paths, refused};
use super::git_common::{Effect, Git, GitOptions, define, revision};
use super::git_veil::{check_revision, is_file, is_range, kept_below, named_file, seen};
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
        let named = arguments.get("revision").and_then(Value::as_str).and_then(|it| named_file(&self.git, it));
        let file = named.map(|file| path_subject(&self.git.workspace, &file.to_string_lossy()));
        match (paths(&self.git.workspace, arguments, &["path"]), file) {
            (Subject::Paths(paths), file) => Subject::Paths(paths.into_iter().chain(file).collect()),
            (Subject::None | Subject::Command(_), Some(file)) => Subject::Paths(vec![file]),
            (subject, None) => subject,
        }
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
            let revision = revision("revision", optional_text(&arguments, "revision")?)?;
            check_revision(&self.git, &revision, context).await?;
            let mut command = vec!["show", "--no-show-signature", "--no-ext-diff", "--no-textconv"];
            if flag(&arguments, "stat")? {
                command.push("--stat");
            }
            command.extend(["--end-of-options", &revision]);
            let path = optional_text(&arguments, "path")?;
            if let Some(path) = &path {
                self.git.workspace.resolve_entry(path).map_err(|e| refused(&e))?;
            }
            if path.is_none() && is_file(&revision) {
                return self.git.run(Effect::Look, &command, context).await?.success();
            }
            // All that each parent differs in: more than a merge shows.
            let names =
                ["log", "-m", "--no-ext-diff", "--no-textconv", "--name-only", "-z", "--no-renames", "--format="];
            let walk = if is_range(&revision) { &[][..] } else { &["--no-walk"] };
            let names = [&names[..], walk, &["--end-of-options", &revision]].concat();
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
