//! `git_worktree`: further working directories of the same repository. Never throws work away.

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use super::fs_common::{flag, optional_text, paths, refused, text_argument};
use super::git_common::{Effect, Git, GitOptions, define, looking, name};
use crate::base::BoxFuture;
use crate::base::workspace::Workspace;
use crate::protocol::{ToolCategory, ToolDefinition};
use crate::tool::{Arguments, Subject, Tool, ToolContext, ToolError, ToolOutput};

static DEFINITION: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let parameters = json!({
        "action": {"type": "string", "enum": ["list", "add", "remove"], "description": "Default: list"},
        "path": {"type": "string", "description": "With add and remove: the directory, inside the working directory"},
        "branch": {"type": "string", "description": "With add: the branch to check out. Default: a new one named like the directory"},
        "create": {"type": "boolean", "description": "With add: makes the branch, from where we are. Default: false"},
    });
    let description = "Lists, makes and removes further working directories of the repository. A directory with changes is not removed.";
    define("git_worktree", ToolCategory::Edit, description, parameters)
});

/// A call that only lists.
static LOOKING: LazyLock<ToolDefinition> = LazyLock::new(|| looking(&DEFINITION));

/// The tool.
#[derive(Debug)]
pub struct GitWorktree {
    git: Git,
}

impl GitWorktree {
    /// The tool for a workspace.
    pub fn new(workspace: Arc<Workspace>) -> Self {
        Self { git: Git::new(workspace) }
    }

    /// The same, held to what the options say.
    #[must_use]
    pub fn with(self, options: GitOptions) -> Self {
        Self { git: self.git.with(options) }
    }

    async fn change(&self, arguments: Arguments, context: &ToolContext, add: bool) -> Result<ToolOutput, ToolError> {
        let path = text_argument(&arguments, "path")?;
        let real = self.git.workspace.resolve_entry(&path).map_err(|e| refused(&e))?;
        if real == self.git.workspace.working_directory() {
            let problem = format!("`path`: expected a directory of its own, got {path:?}");
            return Err(ToolError::BadArguments(problem));
        }
        let branch = optional_text(&arguments, "branch")?.map(|b| name("branch", b, "branch")).transpose()?;
        let create = flag(&arguments, "create")?;
        let real = real.to_string_lossy();
        let mut command = vec!["worktree"];
        match (add, &branch, create) {
            (false, None, false) => command.extend(["remove", "--", &real]),
            (true, Some(branch), true) => command.extend(["add", "-b", branch, "--", &real]),
            (true, Some(branch), false) => command.extend(["add", "--", &real, branch]),
            (true, None, false) => command.extend(["add", "--", &real]),
            (true, None, true) => {
                let problem = "`branch`: expected the name of the branch to create, got nothing";
                return Err(ToolError::BadArguments(problem.to_owned()));
            }
            (false, _, _) => {
                return Err(ToolError::BadArguments(
                    "`branch`: expected nothing with the action \"remove\"".to_owned(),
                ));
            }
        }
        let said = self.git.run(Effect::Rework, &command, context).await?.success()?;
        Ok(if said.text.is_empty() { format!("Removed the worktree {path}\n").into() } else { said })
    }
}

impl Tool for GitWorktree {
    fn definition(&self) -> &ToolDefinition {
        &DEFINITION
    }

    fn judged_as(&self, arguments: &Arguments) -> &ToolDefinition {
        let looks = matches!(arguments.get("action"), None | Some(Value::Null)) || arguments["action"] == "list";
        if looks { &LOOKING } else { &DEFINITION }
    }

    fn subject(&self, arguments: &Arguments) -> Subject {
        paths(&self.git.workspace, arguments, &["path"])
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
            match optional_text(&arguments, "action")?.as_deref() {
                None | Some("list") => self.git.run(Effect::Look, &["worktree", "list"], context).await?.success(),
                Some("add") => self.change(arguments, context, true).await,
                Some("remove") => self.change(arguments, context, false).await,
                Some(other) => {
                    let expected = "`action`: expected \"list\", \"add\" or \"remove\"";
                    Err(ToolError::BadArguments(format!("{expected}, got {other:?}")))
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::git_common::testing::Repository;
    use super::*;

    #[tokio::test]
    async fn made_listed_and_removed() {
        let repository = Repository::new();
        let tool = GitWorktree::new(repository.workspace());
        repository
            .call(&tool, json!({"action": "add", "path": "trees/x", "branch": "work/x", "create": true}))
            .await
            .unwrap();
        assert_eq!(repository.read("trees/x/a"), "one\n");
        let list = repository.call(&tool, json!({})).await.unwrap();
        assert!(list.contains("[main]") && list.contains("[work/x]"), "{list}");
        repository.write("trees/x/a", "changed\n");
        let error = repository.call(&tool, json!({"action": "remove", "path": "trees/x"})).await.unwrap_err();
        assert!(error.contains("contains modified or untracked files"), "{error}");
        assert_eq!(repository.read("trees/x/a"), "changed\n");
        repository.write("trees/x/a", "one\n");
        let said = repository.call(&tool, json!({"action": "remove", "path": "trees/x"})).await.unwrap();
        assert_eq!(said, "Removed the worktree trees/x\n");
        assert!(!repository.directory.path().join("trees/x").exists());
    }

    #[tokio::test]
    async fn refusals() {
        let repository = Repository::new();
        let tool = GitWorktree::new(repository.workspace());
        #[rustfmt::skip]
        let table = [
            (json!({"action": "add", "path": "../x"}), "Path \"../x\" escapes"),
            (json!({"action": "add", "path": "."}), "`path`: expected a directory of its own"),
            (json!({"action": "add", "path": "x", "branch": "--force"}), "`branch`: expected the name of a branch"),
            (json!({"action": "add", "path": "x", "create": true}), "`branch`: expected the name of the branch to create"),
            (json!({"action": "remove", "path": "x", "branch": "y"}), "`branch`: expected nothing"),
            (json!({"action": "prune"}), "`action`: expected \"list\", \"add\" or \"remove\", got \"prune\""),
            (json!({"action": "add"}), "`path`: expected"),
        ];
        for (arguments, begins) in table {
            let error = repository.call(&tool, arguments.clone()).await.unwrap_err();
            assert!(error.starts_with(begins), "{arguments}: {error}");
        }
    }
}
