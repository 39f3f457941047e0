//! `git_push`: sends commits to another repository. Never by force.

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use super::fs_common::{flag, optional_text};
use super::git_common::{Effect, Git, GitOptions, define, name};
use crate::base::BoxFuture;
use crate::base::workspace::Workspace;
use crate::protocol::{ToolAnnotations, ToolCategory, ToolDefinition};
use crate::tool::{Arguments, Tool, ToolContext, ToolError, ToolOutput};

static DEFINITION: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let parameters = json!({
        "remote": {"type": "string", "description": "The name of the remote. Default: the branch's own, else origin"},
        "branch": {"type": "string", "description": "The branch. Default: the one we are on"},
        "set_upstream": {"type": "boolean", "description": "Remembers it as the branch's own remote. Default: false"},
    });
    let description = "Sends commits to a remote. Never overwrites what is there.";
    ToolDefinition {
        annotations: Some(ToolAnnotations { destructive: Some(true), ..ToolAnnotations::default() }),
        ..define("git_push", ToolCategory::Execute, description, parameters)
    }
});

/// The tool.
#[derive(Debug)]
pub struct GitPush {
    git: Git,
}

impl GitPush {
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

impl Tool for GitPush {
    fn definition(&self) -> &ToolDefinition {
        &DEFINITION
    }

    fn preview<'a>(&'a self, _: &'a Arguments, context: &'a ToolContext) -> BoxFuture<'a, Option<Value>> {
        Box::pin(self.git.programs(context))
    }

    fn run<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let remote = optional_text(&arguments, "remote")?.map(|r| name("remote", r, "remote")).transpose()?;
            let branch = optional_text(&arguments, "branch")?.map(|b| name("branch", b, "branch")).transpose()?;
            let upstream = flag(&arguments, "set_upstream")?;
            let mut command = vec!["push", "--no-force", "--no-recurse-submodules"];
            if upstream {
                command.push("--set-upstream");
            }
            if remote.is_some() || branch.is_some() || upstream {
                command.push(remote.as_deref().unwrap_or("origin"));
                command.push(branch.as_deref().unwrap_or("HEAD"));
            }
            self.git.run(Effect::Remote, &command, context).await?.success()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::git_common::testing::Repository;
    use super::super::git_pull::GitPull;
    use super::*;

    fn other(repository: &Repository) -> tempfile::TempDir {
        let bare = tempfile::tempdir().unwrap();
        repository.git(&["init", "-q", "--bare", "-b", "main", bare.path().to_str().unwrap()]);
        repository.git(&["remote", "add", "origin", bare.path().to_str().unwrap()]);
        bare
    }

    #[tokio::test]
    async fn commits_go_there_and_come_back() {
        let (here, there) = (Repository::new(), Repository::empty());
        let bare = other(&here);
        there.git(&["remote", "add", "origin", bare.path().to_str().unwrap()]);
        let (push, pull) = (GitPush::new(here.workspace()), GitPull::new(there.workspace()));
        let error = here.call(&push, json!({})).await.unwrap_err();
        assert!(error.contains("no upstream branch"), "{error}");
        here.call(&push, json!({"set_upstream": true})).await.unwrap();
        there.call(&pull, json!({"remote": "origin", "branch": "main"})).await.unwrap();
        assert_eq!(there.read("a"), "one\n");

        here.git(&["commit", "-q", "--amend", "-m", "rewritten"]);
        let error = here.call(&push, json!({})).await.unwrap_err();
        assert!(error.contains("[rejected]") && error.contains("non-fast-forward"), "{error}");
        there.write("b", "b\n");
        there.git(&["add", "b"]);
        there.git(&["commit", "-qm", "b"]);
        there.call(&GitPush::new(there.workspace()), json!({"remote": "origin", "branch": "main"})).await.unwrap();
        let error = here.call(&GitPull::new(here.workspace()), json!({})).await.unwrap_err();
        assert!(error.contains("fatal: Not possible to fast-forward"), "{error}");
    }

    #[tokio::test]
    async fn neither_options_nor_addresses() {
        let repository = Repository::new();
        let tool = GitPush::new(repository.workspace());
        for (field, bad) in [
            ("remote", "--receive-pack=touch owned"),
            ("remote", "ext::sh -c true"),
            ("branch", "+main"),
            ("branch", ":main"),
            ("branch", "--delete"),
        ] {
            let mut arguments = serde_json::Map::new();
            arguments.insert(field.to_owned(), bad.into());
            let error = repository.call(&tool, arguments.into()).await.unwrap_err();
            assert_eq!(error, format!("`{field}`: expected the name of a {field}, got {bad:?}"));
        }
        let error = repository.call(&tool, json!({"remote": "nowhere"})).await.unwrap_err();
        assert!(error.starts_with("fatal: 'nowhere' does not appear to be a git repository"), "{error}");
    }
}
