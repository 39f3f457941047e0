//! `git_status`: what is changed, staged and new.

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use super::git_common::{Effect, Git, GitOptions, define};
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
        Self { git: Git::new(workspace) }
    }

    /// The same, held to what the options say.
    #[must_use]
    pub fn with(self, options: GitOptions) -> Self {
        Self { git: self.git.with(options) }
    }
}

impl Tool for GitStatus {
    fn definition(&self) -> &ToolDefinition {
        &DEFINITION
    }

    fn run<'a>(&'a self, _: Arguments, context: &'a ToolContext) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let paths = self.git.pathspecs(None, None);
            let mut said = self
                .git
                .run_on(Effect::Look, (&["status", "--long", "--ignore-submodules=dirty"], &paths), context)
                .await?
                .success()?;
            let porcelain = ["status", "--porcelain=v2", "--branch", "-z", "--ignore-submodules=dirty"];
            let listed = self.git.run_on(Effect::Look, (&porcelain, &paths), context).await?.success()?;
            said.details = Some(details(&listed.text));
            Ok(said)
        })
    }
}

/// The status for programs: branch, upstream, and each changed file with its two letters (index, working directory).
fn details(porcelain: &str) -> Value {
    let mut facts = serde_json::Map::new();
    let mut files = Vec::new();
    let mut fields = porcelain.split('\0');
    while let Some(field) = fields.next() {
        let file = |at: usize, skip: usize| -> Option<Value> {
            let letters: Vec<char> = field.get(at..at + 2)?.chars().collect();
            let path = field.splitn(skip + 1, ' ').nth(skip)?;
            let shown = |c: char| if c == '.' { " ".to_owned() } else { c.to_string() };
            Some(json!({ "path": path, "index": shown(letters[0]), "workingDirectory": shown(letters[1]) }))
        };
        match field.split_once(' ') {
            Some(("#", header)) => {
                let (name, value) = header.split_once(' ').unwrap_or((header, ""));
                match name {
                    "branch.oid" => drop(facts.insert("commit".into(), value.into())),
                    "branch.head" => drop(facts.insert("branch".into(), value.into())),
                    "branch.upstream" => drop(facts.insert("upstream".into(), value.into())),
                    "branch.ab" => {
                        let number =
                            |sign: char| value.split(' ').find_map(|n| n.strip_prefix(sign)?.parse::<u64>().ok());
                        facts.insert("ahead".into(), number('+').into());
                        facts.insert("behind".into(), number('-').into());
                    }
                    _ => {}
                }
            }
            Some(("1", _)) => files.extend(file(2, 8)),
            Some(("u", _)) => files.extend(file(2, 10)),
            Some(("2", _)) => {
                let moved = file(2, 9);
                let from = fields.next().unwrap_or("");
                files.extend(moved.map(|mut moved| {
                    moved["from"] = from.into();
                    moved
                }));
            }
            Some(("?", path)) => files.push(json!({ "path": path, "index": "?", "workingDirectory": "?" })),
            Some(_) | None => {}
        }
    }
    facts.insert("files".into(), files.into());
    Value::Object(facts)
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
    async fn programs_get_it_in_fields() {
        let repository = Repository::new();
        let tool = GitStatus::new(repository.workspace());
        repository.write("b", "one\n");
        repository.git(&["add", "b"]);
        repository.git(&["commit", "-qm", "second"]);
        repository.git(&["mv", "b", "new name"]);
        repository.write("a", "two\n");
        repository.write("ä b", "new\n");
        let output = tool.run(Arguments::new(), &repository.context).await.unwrap();
        let mut told = output.details.unwrap();
        assert_eq!(told["commit"].as_str().map(str::len), Some(40));
        told["commit"] = "".into();
        let files = json!([
            {"path": "a", "index": " ", "workingDirectory": "M"},
            {"path": "new name", "index": "R", "workingDirectory": " ", "from": "b"},
            {"path": "ä b", "index": "?", "workingDirectory": "?"},
        ]);
        assert_eq!(told, json!({"commit": "", "branch": "main", "files": files}));
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
