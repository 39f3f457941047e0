//! `git_pull`: brings commits from another repository, when ours are all in them.

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use super::fs_common::optional_text;
use super::git_common::{Effect, Git, GitOptions, define, name};
use crate::base::BoxFuture;
use crate::base::workspace::Workspace;
use crate::protocol::{ToolCategory, ToolDefinition};
use crate::tool::{Arguments, Tool, ToolContext, ToolError, ToolOutput};

static DEFINITION: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let parameters = json!({
        "remote": {"type": "string", "description": "The name of the remote. Default: the branch's own"},
        "branch": {"type": "string", "description": "The branch there. Needs `remote`"},
    });
    let description =
        "Brings new commits of a remote branch to ours. Refuses when both sides have commits of their own.";
    define("git_pull", ToolCategory::Execute, description, parameters)
});

/// The tool.
#[derive(Debug)]
pub struct GitPull {
    git: Git,
}

impl GitPull {
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

impl Tool for GitPull {
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
            if branch.is_some() && remote.is_none() {
                let message = "`remote`: expected the name of a remote beside `branch`, got nothing";
                return Err(ToolError::BadArguments(message.to_owned()));
            }
            let mut command = vec!["pull", "--no-rebase", "--ff-only", "--no-edit", "--no-recurse-submodules"];
            command.extend(remote.as_deref());
            command.extend(branch.as_deref());
            self.git.run(Effect::Remote, &command, context).await?.success()
        })
    }
}

#[cfg(test)]
mod tests {
    // That commits come over is tested beside `git_push`.
    use super::super::git_common::testing::Repository;
    use super::*;

    #[tokio::test]
    async fn refusals() {
        let repository = Repository::new();
        let tool = GitPull::new(repository.workspace());
        let error = repository.call(&tool, json!({})).await.unwrap_err();
        assert!(error.contains("There is no tracking information for the current branch"), "{error}");
        let error = repository.call(&tool, json!({"branch": "main"})).await.unwrap_err();
        assert_eq!(error, "`remote`: expected the name of a remote beside `branch`, got nothing");
        let error = repository.call(&tool, json!({"remote": "--upload-pack=touch owned"})).await.unwrap_err();
        assert_eq!(error, "`remote`: expected the name of a remote, got \"--upload-pack=touch owned\"");
    }
}
