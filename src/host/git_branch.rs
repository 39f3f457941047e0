//! `git_branch`: shows, switches to and makes branches. Never throws work away.

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use super::fs_common::{flag, optional_text};
use super::git_common::{Effect, Git, GitOptions, define, looking, name};
use crate::base::BoxFuture;
use crate::base::workspace::Workspace;
use crate::protocol::{ToolCategory, ToolDefinition};
use crate::tool::{Arguments, Tool, ToolContext, ToolError, ToolOutput};

static DEFINITION: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let parameters = json!({
        "name": {"type": "string", "description": "The branch to switch to. Left out: lists the branches"},
        "create": {"type": "boolean", "description": "Makes the branch, from where we are. Default: false"},
    });
    let description = "Lists the branches, or switches to one. Changes that are not committed come along; where they \
                       would be lost, git refuses.";
    define("git_branch", ToolCategory::Edit, description, parameters)
});

/// A call that only lists.
static LOOKING: LazyLock<ToolDefinition> = LazyLock::new(|| looking(&DEFINITION));

/// The tool.
#[derive(Debug)]
pub struct GitBranch {
    git: Git,
}

impl GitBranch {
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

impl Tool for GitBranch {
    fn definition(&self) -> &ToolDefinition {
        &DEFINITION
    }

    fn judged_as(&self, arguments: &Arguments) -> &ToolDefinition {
        let looks = matches!(arguments.get("name"), None | Some(Value::Null));
        if looks { &LOOKING } else { &DEFINITION }
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
            let create = flag(&arguments, "create")?;
            let Some(given) = optional_text(&arguments, "name")? else {
                if create {
                    let message = "`name`: expected the name of the branch to create, got nothing";
                    return Err(ToolError::BadArguments(message.to_owned()));
                }
                return self.git.run(Effect::Look, &["branch", "--list"], context).await?.success();
            };
            let branch = name("name", given, "branch")?;
            // Ignored files count as work too: by default git would write over them.
            let how = if create { "--create" } else { "--no-force" };
            let command = ["switch", "--no-overwrite-ignore", "--no-recurse-submodules", how, &branch];
            self.git.run(Effect::Rework, &command, context).await?.success()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::git_common::testing::Repository;
    use super::*;

    #[tokio::test]
    async fn list_create_and_switch() {
        let repository = Repository::new();
        let tool = GitBranch::new(repository.workspace());
        let made = repository.call(&tool, json!({"name": "work/x", "create": true})).await.unwrap();
        assert_eq!(made, "Switched to a new branch 'work/x'\n");
        assert_eq!(repository.call(&tool, json!({})).await.unwrap(), "  main\n* work/x\n");
        repository.write("a", "changed\n");
        let back = repository.call(&tool, json!({"name": "main"})).await.unwrap();
        assert!(back.contains("Switched to branch 'main'"), "{back}");
        assert_eq!(repository.read("a"), "changed\n");
    }

    #[tokio::test]
    async fn no_work_is_lost() {
        let repository = Repository::new();
        repository.git(&["switch", "-qc", "other"]);
        repository.write("a", "other\n");
        repository.write("made", "other\n");
        repository.write("ignored", "other\n");
        repository.git(&["add", "."]);
        repository.git(&["commit", "-qm", "other"]);
        repository.git(&["switch", "-q", "main"]);
        let tool = GitBranch::new(repository.workspace());
        for (file, reason) in
            [("a", "local changes"), ("made", "untracked working tree files"), ("ignored", "untracked")]
        {
            repository.write(".git/info/exclude", "ignored\n");
            repository.write(file, "mine\n");
            let error = repository.call(&tool, json!({"name": "other"})).await.unwrap_err();
            assert!(error.starts_with("error: ") && error.contains(reason), "{error}");
            assert_eq!(repository.read(file), "mine\n");
            if file == "a" {
                repository.git(&["checkout", "-q", "a"]);
            } else {
                std::fs::remove_file(repository.directory.path().join(file)).unwrap();
            }
        }
        // The name of a file is no branch: what `checkout` would have thrown away stays.
        repository.write("a", "mine\n");
        let error = repository.call(&tool, json!({"name": "a"})).await.unwrap_err();
        assert_eq!(error, "fatal: invalid reference: a");
        assert_eq!(repository.read("a"), "mine\n");
    }

    #[tokio::test]
    async fn names_are_checked() {
        let repository = Repository::new();
        let tool = GitBranch::new(repository.workspace());
        repository.write("a", "mine\n");
        for bad in ["-f", "--discard-changes", "--orphan", "", "x y", "HEAD~1"] {
            let error = repository.call(&tool, json!({"name": bad, "create": bad.len() % 2 == 0})).await.unwrap_err();
            assert_eq!(error, format!("`name`: expected the name of a branch, got {bad:?}"));
        }
        let error = repository.call(&tool, json!({"create": true})).await.unwrap_err();
        assert_eq!(error, "`name`: expected the name of the branch to create, got nothing");
        let error = repository.call(&tool, json!({"name": "main", "create": true})).await.unwrap_err();
        assert_eq!(error, "fatal: a branch named 'main' already exists");
        assert_eq!(repository.read("a"), "mine\n");
    }
}
