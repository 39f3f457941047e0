//! `git_worktree`: further working directories of the same repository. Never throws work away.
//!
//! None is made in what git keeps for itself, where a branch's files would become hooks and settings.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use super::fs_common::{blocking, changes_git, flag, optional_text, paths, refused, text_argument};
use super::git_common::{Effect, Git, GitOptions, define, looking, name};
use super::git_place::{Shared, shared};
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
        let (workspace, given) = (Arc::clone(&self.git.workspace), path.clone());
        let real = blocking(move || place(&workspace, &given, add)).await?;
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

/// What a repository keeps for itself in its own directory, where worktrees may lie too when it is a bare one.
const KEPT: [&str; 7] = ["hooks", "info", "logs", "modules", "objects", "refs", "worktrees"];

/// The real place of a worktree to be made or taken away: git follows the link at its end as well.
fn place(workspace: &Workspace, given: &str, add: bool) -> Result<PathBuf, ToolError> {
    let real = workspace.resolve(given).map_err(|e| refused(&e))?;
    if real == workspace.working_directory() {
        return Err(ToolError::BadArguments(format!("`path`: expected a directory of its own, got {given:?}")));
    }
    let is_kept = || match shared(workspace) {
        Some(Shared::In(own)) => real.strip_prefix(own).is_ok_and(|below| {
            below.components().next().is_none_or(|first| KEPT.iter().any(|kept| first.as_os_str() == *kept))
        }),
        Some(Shared::Led(_) | Shared::Astray(_)) | None => false,
    };
    if add && (names_git(workspace, Path::new(given)) || names_git(workspace, &real) || is_kept()) {
        return Err(ToolError::failed(format!(
            "Path \"{given}\" lies in a repository's own directory: git would run what a branch puts there. Make the worktree elsewhere"
        )));
    }
    Ok(real)
}

/// Whether a path (what of it lies below a root) has a `.git` in it.
fn names_git(workspace: &Workspace, path: &Path) -> bool {
    let below = workspace.roots().iter().find_map(|root| path.strip_prefix(root).ok());
    let shown = if path.is_absolute() { below } else { Some(path) };
    shown.is_some_and(|path| path.components().any(|part| part.as_os_str().eq_ignore_ascii_case(".git")))
}

/// Whether a call only lists.
fn lists(arguments: &Arguments) -> bool {
    matches!(arguments.get("action"), None | Some(Value::Null)) || arguments["action"] == "list"
}

impl Tool for GitWorktree {
    fn definition(&self) -> &ToolDefinition {
        &DEFINITION
    }

    fn judged_as(&self, arguments: &Arguments) -> &ToolDefinition {
        if lists(arguments) { &LOOKING } else { &DEFINITION }
    }

    fn subject(&self, arguments: &Arguments) -> Subject {
        paths(&self.git.workspace, arguments, &["path"])
    }

    fn insists(&self, arguments: &Arguments) -> bool {
        let given = arguments.get("path").and_then(Value::as_str);
        let workspace = &self.git.workspace;
        !lists(arguments)
            && (given.is_some_and(|given| names_git(workspace, Path::new(given)))
                || changes_git(workspace, &self.subject(arguments)))
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

    #[tokio::test]
    async fn none_is_made_in_what_git_keeps() {
        let (repository, outside) = (Repository::new(), tempfile::tempdir().unwrap());
        let top = repository.directory.path();
        repository.git(&["switch", "-q", "-c", "ev"]);
        for (path, content) in [("pre-commit", "#!/bin/sh\n"), ("HEAD", "ref: refs/heads/x\n"), ("config", "[core]\n")]
        {
            repository.write(path, content);
        }
        repository.git(&["add", "-f", "."]);
        repository.git(&["commit", "-qm", "evil"]);
        repository.git(&["switch", "-q", "main"]);
        std::fs::remove_dir_all(top.join(".git/hooks")).unwrap();
        std::fs::create_dir(top.join("sub")).unwrap();
        for (link, to) in [("led", ".git"), ("end", ".git/hooks"), ("out", outside.path().to_str().unwrap())] {
            std::os::unix::fs::symlink(top.join(to), top.join(link)).unwrap();
        }
        let real = top.canonicalize().unwrap();
        let absolute = [real.join(".git/hooks"), real.join("sub/.git")].map(|path| path.to_str().unwrap().to_owned());
        let tool = GitWorktree::new(repository.workspace());
        let inside = [
            ".git/hooks",
            ".git/wt",
            ".git",
            "sub/.git",
            "sub/.git/x",
            ".GIT/x",
            ".git/../y",
            "led/hooks",
            "led/wt",
            "end",
        ];
        for path in inside.into_iter().chain(absolute.iter().map(String::as_str)) {
            let given = json!({"action": "add", "path": path, "branch": "ev"});
            assert!(tool.insists(given.as_object().unwrap()), "{path}");
            let error = repository.call(&tool, given).await.unwrap_err();
            assert!(error.contains("lies in a repository's own directory"), "{path}: {error}");
        }
        let error = repository.call(&tool, json!({"action": "add", "path": "out", "branch": "ev"})).await.unwrap_err();
        assert!(error.starts_with("Path \"out\" escapes"), "{error}");
        assert_eq!(repository.git(&["worktree", "list"]).lines().count(), 1);
        assert!(!top.join(".git/hooks").exists() && !top.join("sub/.git").exists());
        // What somebody has there is taken away when he says so.
        repository.git(&["worktree", "add", "-q", ".git/wt", "ev"]);
        for (action, path, want) in
            [("remove", ".git/wt", true), ("remove", "led/wt", true), ("list", ".git/wt", false), ("add", "x", false)]
        {
            let given = json!({"action": action, "path": path});
            assert_eq!(tool.insists(given.as_object().unwrap()), want, "{given}");
        }
        repository.call(&tool, json!({"action": "remove", "path": "led/wt"})).await.unwrap();
        assert!(!top.join(".git/wt").exists());
    }

    #[tokio::test]
    async fn a_bare_repository_has_worktrees_in_it_and_keeps_its_own() {
        let (source, bare) = (Repository::new(), Repository::empty());
        let from = source.directory.path().to_str().unwrap();
        bare.git(&["clone", "-q", "--bare", "--template=", from, "r.git"]);
        let workspace = Workspace::new(&bare.directory.path().join("r.git"), &[]).unwrap();
        let tool = GitWorktree::new(Arc::new(workspace));
        for path in ["hooks", "modules/x", "objects/x", "worktrees"] {
            let given = json!({"action": "add", "path": path, "branch": "main"});
            let error = bare.call(&tool, given).await.unwrap_err();
            assert!(error.contains("lies in a repository's own directory"), "{path}: {error}");
        }
        bare.call(&tool, json!({"action": "add", "path": "tree", "branch": "main"})).await.unwrap();
        assert_eq!(bare.read("r.git/tree/a"), "one\n");
    }
}
