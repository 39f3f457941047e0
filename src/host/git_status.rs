//! `git_status`: what is changed, staged and new.

use std::sync::{Arc, LazyLock};

use serde_json::json;

use super::git_common::{Effect, Git, define};
use crate::base::BoxFuture;
use crate::base::workspace::Workspace;
use crate::protocol::{ToolCategory, ToolDefinition};
use crate::tool::{Arguments, Tool, ToolContext, ToolError, ToolOutput};

static DEFINITION: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let description = "Shows the branch, and which files are staged, changed or new.";
    define("git_status", ToolCategory::Read, description, json!({}))
});

/// The tool.
#[derive(Debug)]
pub struct GitStatus {
    git: Git,
}

impl GitStatus {
    /// The tool for a workspace.
    pub fn new(workspace: Arc<Workspace>) -> Self {
        Self { git: Git { workspace } }
    }
}

impl Tool for GitStatus {
    fn definition(&self) -> &ToolDefinition {
        &DEFINITION
    }

    fn run<'a>(&'a self, _: Arguments, context: &'a ToolContext) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move { self.git.run(Effect::Look, &["status"], context).await?.success() })
    }
}

#[cfg(test)]
mod tests {
    use super::super::git_common::testing::Repository;
    use super::*;

    #[tokio::test]
    async fn what_is_staged_changed_and_new() {
        let repository = Repository::new();
        let tool = GitStatus::new(repository.workspace());
        assert!(repository.call(&tool, json!({})).await.unwrap().contains("nothing to commit, working tree clean"));
        repository.write("a", "two\n");
        repository.write("ä b", "new\n");
        repository.write("c", "staged\n");
        repository.git(&["add", "c"]);
        let text = repository.call(&tool, json!({})).await.unwrap();
        for line in ["On branch main", "modified:   a", "new file:   c", "\tä b"] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }

    #[tokio::test]
    async fn outside_a_repository_git_says_so() {
        let repository = Repository::new();
        std::fs::remove_dir_all(repository.directory.path().join(".git")).unwrap();
        let tool = GitStatus::new(repository.workspace());
        let error = repository.call(&tool, json!({})).await.unwrap_err();
        assert!(error.starts_with("fatal: not a git repository"), "{error}");
    }

    #[tokio::test]
    async fn looking_runs_nothing_of_the_repository() {
        let repository = Repository::new();
        repository.write("spy", "#!/bin/sh\ntouch seen\n");
        repository.write(".git/hooks/post-index-change", "#!/bin/sh\ntouch seen\n");
        repository.git(&["config", "core.fsmonitor", "sh spy"]);
        repository.git(&["add", "spy"]);
        for script in ["spy", ".git/hooks/post-index-change"] {
            use std::os::unix::fs::PermissionsExt;
            let path = repository.directory.path().join(script);
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let seen = repository.directory.path().join("seen");
        let _made_by_the_set_up = std::fs::remove_file(&seen);
        repository.write("a", "one\n");
        repository.call(&GitStatus::new(repository.workspace()), json!({})).await.unwrap();
        assert!(!seen.exists());
    }
}
