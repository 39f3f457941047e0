//! `git_add`: stages changes for the next commit.

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use super::fs_common::{optional_text, paths, refused};
use super::git_common::{Effect, Git, GitOptions, define};
use crate::base::BoxFuture;
use crate::base::workspace::Workspace;
use crate::protocol::{ToolCategory, ToolDefinition};
use crate::tool::{Arguments, Subject, Tool, ToolContext, ToolError, ToolOutput};

static DEFINITION: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let parameters = json!({
        "path": {"type": "string", "description": "The file or directory. Default: everything below the working directory"},
    });
    let description = "Stages changes, new and deleted files for the next commit, and says what is staged then.";
    define("git_add", ToolCategory::Edit, description, parameters)
});

/// The tool.
#[derive(Debug)]
pub struct GitAdd {
    git: Git,
}

impl GitAdd {
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

impl Tool for GitAdd {
    fn definition(&self) -> &ToolDefinition {
        &DEFINITION
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
            let path = optional_text(&arguments, "path")?.unwrap_or_else(|| ".".to_owned());
            self.git.workspace.resolve_entry(&path).map_err(|e| refused(&e))?;
            let paths = self.git.pathspecs(Some(path.as_str()).filter(|path| *path != "."), Some("."));
            self.git.run_on(Effect::Record, (&["add", "--all"], &paths), context).await?.success()?;
            let staged = ["diff", "--cached", "--name-status", "--no-ext-diff"];
            let said = self.git.run(Effect::Look, &staged, context).await?.success()?;
            Ok(if said.text.is_empty() { "Nothing is staged.".to_owned().into() } else { said })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::git_common::testing::Repository;
    use super::*;

    #[tokio::test]
    async fn one_path_or_everything() {
        let repository = Repository::new();
        let tool = GitAdd::new(repository.workspace());
        assert_eq!(repository.call(&tool, json!({})).await.unwrap(), "Nothing is staged.");
        repository.write("-n", "dash\n");
        repository.write("*", "star\n");
        std::fs::remove_file(repository.directory.path().join("a")).unwrap();
        assert_eq!(repository.call(&tool, json!({"path": "-n"})).await.unwrap(), "A\t-n\n");
        assert_eq!(repository.call(&tool, json!({"path": "*"})).await.unwrap(), "A\t*\nA\t-n\n");
        assert_eq!(repository.call(&tool, json!({})).await.unwrap(), "A\t*\nA\t-n\nD\ta\n");
    }

    #[tokio::test]
    async fn refusals() {
        let repository = Repository::new();
        let tool = GitAdd::new(repository.workspace());
        let error = repository.call(&tool, json!({"path": "none"})).await.unwrap_err();
        assert_eq!(error, "fatal: pathspec 'none' did not match any files");
        let error = repository.call(&tool, json!({"path": "../x"})).await.unwrap_err();
        assert!(error.starts_with("Path \"../x\" escapes"), "{error}");
    }

    #[tokio::test]
    async fn the_servers_own_data_is_passed_over() {
        let repository = Repository::new();
        let top = repository.directory.path().canonicalize().unwrap();
        let workspace = Arc::new(Workspace::clone(&repository.workspace()).without(&[top.join("x/data")]));
        let tool = |name: &str| {
            let tools = crate::host::git_tools(&workspace, &GitOptions::default());
            tools.into_iter().find(|tool| tool.definition().name == name).unwrap()
        };
        for file in ["x/data/token", "x/data/log", "x/seen", "*", ":(x"] {
            repository.write(file, "1\n");
        }
        let status = repository.call(tool("git_status").as_ref(), json!({})).await.unwrap();
        assert!(status.contains("x/") && !status.contains("data"), "{status}");
        for (path, want) in
            [(Some("*"), "A\t*\n"), (Some("x"), "A\t*\nA\tx/seen\n"), (None, "A\t*\nA\t:(x\nA\tx/seen\n")]
        {
            assert_eq!(repository.call(tool("git_add").as_ref(), json!({ "path": path })).await.unwrap(), want);
        }
        let refused = repository.call(tool("git_add").as_ref(), json!({"path": "x/data/token"})).await.unwrap_err();
        assert!(refused.contains("the server's own data"), "{refused}");
        repository.call(tool("git_stash").as_ref(), json!({})).await.unwrap();
        assert_eq!(repository.read("x/data/token"), "1\n", "not put aside");
        assert!(!top.join("x/seen").exists());
        repository.call(tool("git_stash").as_ref(), json!({"action": "pop"})).await.unwrap();
        repository.git(&["reset", "-q"]);
        repository.call(tool("git_commit").as_ref(), json!({"message": "all"})).await.unwrap();
        assert_eq!(repository.git(&["ls-files"]), "*\n:(x\na\nx/seen\n");
        // What was recorded before is not shown as it is now.
        repository.git(&["add", "x/data/log"]);
        repository.git(&["commit", "-qm", "log"]);
        repository.write("x/data/log", "secret\n");
        repository.write("x/seen", "2\n");
        let diff = repository.call(tool("git_diff").as_ref(), json!({})).await.unwrap();
        assert!(diff.contains("x/seen") && !diff.contains("secret"), "{diff}");
    }
}
