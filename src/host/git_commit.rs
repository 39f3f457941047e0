//! `git_commit`: records what is staged, or else everything.

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use super::fs_common::text_argument;
use super::git_common::{Effect, Git, GitOptions, define};
use crate::base::BoxFuture;
use crate::base::workspace::Workspace;
use crate::protocol::{ToolCategory, ToolDefinition};
use crate::tool::{Arguments, Tool, ToolContext, ToolError, ToolOutput};

static DEFINITION: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let parameters = json!({
        "message": {"type": "string", "description": "The commit message", "required": true},
    });
    let description = "Commits what is staged. When nothing is staged, stages every change below the working directory \
                       first, new and deleted files included, and commits that.";
    define("git_commit", ToolCategory::Edit, description, parameters)
});

/// The tool.
#[derive(Debug)]
pub struct GitCommit {
    git: Git,
}

impl GitCommit {
    /// The tool for a workspace.
    pub fn new(workspace: Arc<Workspace>) -> Self {
        Self { git: Git::new(workspace) }
    }

    /// The same, held to what the options say.
    #[must_use]
    pub fn with(self, options: GitOptions) -> Self {
        Self { git: self.git.with(options) }
    }

    async fn commit(&self, arguments: Arguments, context: &ToolContext) -> Result<ToolOutput, ToolError> {
        let message = match arguments.get("message") {
            None | Some(serde_json::Value::Null) => String::new(),
            Some(_) => text_argument(&arguments, "message")?,
        };
        if message.trim().is_empty() {
            return Err(ToolError::failed("Commit message is required"));
        }
        if message.contains('\0') {
            return Err(ToolError::BadArguments("`message`: expected a text without NUL characters".to_owned()));
        }
        let staged = ["diff", "--cached", "--quiet", "--no-ext-diff"];
        let staged = self.git.run(Effect::Look, &staged, context).await?;
        match staged.code {
            0 => {
                let everything = self.git.pathspecs(None, Some("."));
                self.git.run_on(Effect::Record, (&["add", "--all"], &everything), context).await?.success()?;
            }
            1 => {}
            _ => return staged.success(),
        }
        let message = format!("--message={message}");
        self.git.run(Effect::Record, &["commit", &message], context).await?.success()
    }
}

impl Tool for GitCommit {
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
        Box::pin(self.commit(arguments, context))
    }
}

#[cfg(test)]
mod tests {
    use super::super::git_common::testing::Repository;
    use super::*;

    #[tokio::test]
    async fn everything_when_nothing_is_staged() {
        let repository = Repository::empty();
        let tool = GitCommit::new(repository.workspace());
        repository.write("a", "one\n");
        repository.write("b/c", "one\n");
        let said = repository.call(&tool, json!({"message": "-m first\n\n# kept\n"})).await.unwrap();
        assert!(said.contains("-m first") && said.contains("2 files changed"), "{said}");
        assert_eq!(repository.git(&["log", "-1", "--format=%B"]).trim_end(), "-m first\n\n# kept");
        std::fs::remove_file(repository.directory.path().join("a")).unwrap();
        repository.write("b/c", "two\n");
        repository.call(&tool, json!({"message": "second"})).await.unwrap();
        assert_eq!(repository.git(&["status", "--porcelain"]), "");
        assert_eq!(repository.git(&["ls-files"]), "b/c\n");
    }

    #[tokio::test]
    async fn only_what_is_staged_when_something_is() {
        let repository = Repository::new();
        repository.write("a", "two\n");
        repository.write("b", "new\n");
        repository.git(&["add", "b"]);
        let tool = GitCommit::new(repository.workspace());
        repository.call(&tool, json!({"message": "b alone"})).await.unwrap();
        assert_eq!(repository.git(&["status", "--porcelain"]), " M a\n");
    }

    #[tokio::test]
    async fn refusals_are_gits_own() {
        let repository = Repository::new();
        let tool = GitCommit::new(repository.workspace());
        for arguments in [json!({}), json!({"message": ""}), json!({"message": " \n"}), json!({"message": null})] {
            assert_eq!(repository.call(&tool, arguments).await, Err("Commit message is required".into()));
        }
        let error = repository.call(&tool, json!({"message": "x"})).await.unwrap_err();
        assert!(error.contains("nothing to commit, working tree clean"), "{error}");
        let error = repository.call(&tool, json!({"message": 5})).await.unwrap_err();
        assert_eq!(error, "`message`: expected a string, got 5");
        repository.write(".git/hooks/pre-commit", "#!/bin/sh\necho the tests fail >&2\nexit 1\n");
        use std::os::unix::fs::PermissionsExt;
        let hook = repository.directory.path().join(".git/hooks/pre-commit");
        std::fs::set_permissions(hook, std::fs::Permissions::from_mode(0o755)).unwrap();
        repository.write("a", "two\n");
        assert_eq!(repository.call(&tool, json!({"message": "x"})).await, Err("the tests fail".into()));
    }
}
