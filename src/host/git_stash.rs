//! `git_stash`: puts changes aside and brings them back.

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use super::fs_common::optional_text;
use super::git_common::{Effect, Git, GitOptions, Pathspecs, define, looking};
use super::git_veil::kept_below;
use crate::base::BoxFuture;
use crate::base::workspace::Workspace;
use crate::protocol::{ToolCategory, ToolDefinition};
use crate::tool::{Arguments, Tool, ToolContext, ToolError, ToolOutput};

static DEFINITION: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let parameters = json!({
        "action": {
            "type": "string",
            "enum": ["push", "pop", "apply", "list"],
            "description": "push puts all changes aside, new files too; pop brings the newest back and forgets it, apply keeps it; list shows them. Default: push",
        },
        "message": {"type": "string", "description": "With push: what it is"},
    });
    define("git_stash", ToolCategory::Edit, "Puts changes aside, or brings them back.", parameters)
});

/// A call that only lists.
static LOOKING: LazyLock<ToolDefinition> = LazyLock::new(|| looking(&DEFINITION));

/// The tool.
#[derive(Debug)]
pub struct GitStash {
    git: Git,
}

impl GitStash {
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

impl Tool for GitStash {
    fn definition(&self) -> &ToolDefinition {
        &DEFINITION
    }

    fn judged_as(&self, arguments: &Arguments) -> &ToolDefinition {
        let looks = arguments.get("action").and_then(Value::as_str) == Some("list");
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
            let action = optional_text(&arguments, "action")?.unwrap_or_else(|| "push".to_owned());
            let message = optional_text(&arguments, "message")?;
            if message.is_some() && action != "push" {
                return Err(ToolError::BadArguments(format!("`message`: expected nothing with the action {action:?}")));
            }
            let message = message.map(|message| format!("--message={message}"));
            let mut command = vec!["stash", &action];
            let mut paths = Pathspecs::default();
            let effect = match action.as_str() {
                "push" => {
                    command.push("--include-untracked");
                    command.extend(message.as_deref());
                    paths = kept_below(&self.git, None).await.signed();
                    Effect::Rework
                }
                "pop" | "apply" => {
                    command.push("--index");
                    Effect::Rework
                }
                "list" => Effect::Look,
                other => {
                    let expected = "`action`: expected \"push\", \"pop\", \"apply\" or \"list\"";
                    return Err(ToolError::BadArguments(format!("{expected}, got {other:?}")));
                }
            };
            self.git.run_on(effect, (&command, &paths), context).await?.success()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::git_common::testing::Repository;
    use super::*;

    #[tokio::test]
    async fn aside_and_back() {
        let repository = Repository::new();
        let tool = GitStash::new(repository.workspace());
        repository.write("a", "two\n");
        repository.write("new", "new\n");
        repository.git(&["add", "a"]);
        repository.call(&tool, json!({"message": "-x later"})).await.unwrap();
        assert_eq!(repository.git(&["status", "--porcelain"]), "");
        let list = repository.call(&tool, json!({"action": "list"})).await.unwrap();
        assert!(list.contains("stash@{0}: On main: -x later"), "{list}");
        repository.call(&tool, json!({"action": "pop"})).await.unwrap();
        assert_eq!(repository.git(&["status", "--porcelain"]), "M  a\n?? new\n");
        assert_eq!(repository.call(&tool, json!({"action": "list"})).await.unwrap(), "");
    }

    #[tokio::test]
    async fn refusals() {
        let repository = Repository::new();
        let tool = GitStash::new(repository.workspace());
        let error = repository.call(&tool, json!({"action": "pop"})).await.unwrap_err();
        assert_eq!(error, "No stash entries found.");
        let error = repository.call(&tool, json!({"action": "clear"})).await.unwrap_err();
        assert_eq!(error, "`action`: expected \"push\", \"pop\", \"apply\" or \"list\", got \"clear\"");
        let error = repository.call(&tool, json!({"action": "pop", "message": "x"})).await.unwrap_err();
        assert_eq!(error, "`message`: expected nothing with the action \"pop\"");
    }
}
