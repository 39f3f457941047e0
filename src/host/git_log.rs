//! `git_log`: the newest commits.

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use super::fs_common::{flag, whole};
use super::git_common::{Effect, Git, GitOptions, define};
use crate::base::BoxFuture;
use crate::base::workspace::Workspace;
use crate::protocol::{ToolCategory, ToolDefinition};
use crate::tool::{Arguments, Tool, ToolContext, ToolError, ToolOutput};

/// Commits that are shown when none are asked for.
const COUNT: usize = 10;

static DEFINITION: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let parameters = json!({
        "count": {"type": "number", "description": format!("How many commits. Default: {COUNT}")},
        "oneline": {"type": "boolean", "description": "One line a commit. Default: true"},
    });
    define("git_log", ToolCategory::Read, "Shows the newest commits, newest first.", parameters)
});

/// The tool.
#[derive(Debug)]
pub struct GitLog {
    git: Git,
}

impl GitLog {
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

impl Tool for GitLog {
    fn definition(&self) -> &ToolDefinition {
        &DEFINITION
    }

    fn run<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let count = format!("--max-count={}", whole(&arguments, "count", 1)?.unwrap_or(COUNT).min(1_000_000));
            let oneline = matches!(arguments.get("oneline"), None | Some(Value::Null)) || flag(&arguments, "oneline")?;
            let form = if oneline { "--oneline" } else { "--format=medium" };
            let command = ["log", "--no-show-signature", "--no-ext-diff", "--no-textconv", form, &count];
            self.git.run(Effect::Look, &command, context).await?.success()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::git_common::testing::Repository;
    use super::*;

    #[tokio::test]
    async fn the_newest_first() {
        let repository = Repository::new();
        let tool = GitLog::new(repository.workspace());
        for number in 2..=12 {
            repository.git(&["commit", "-q", "--allow-empty", "-m", &format!("number {number}")]);
        }
        let lines = repository.call(&tool, json!({})).await.unwrap();
        assert_eq!(lines.lines().count(), 10);
        assert!(lines.lines().next().unwrap().ends_with(" number 12"), "{lines}");
        let two = repository.call(&tool, json!({"count": 2, "oneline": false})).await.unwrap();
        assert_eq!(two.matches("Author: T <t@example.org>").count(), 2);
        let bad = repository.call(&tool, json!({"count": 0})).await;
        assert_eq!(bad, Err("`count`: expected a whole number from 1, got 0".into()));
        let bad = repository.call(&tool, json!({"oneline": "no"})).await;
        assert_eq!(bad, Err("`oneline`: expected true or false, got \"no\"".into()));
    }

    #[tokio::test]
    async fn without_commits_git_says_so() {
        let repository = Repository::empty();
        let error = repository.call(&GitLog::new(repository.workspace()), json!({})).await.unwrap_err();
        assert_eq!(error, "fatal: your current branch 'main' does not have any commits yet");
    }
}
