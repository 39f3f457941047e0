//! `git_blame`: who changed each line of a file last, and in which commit.

use std::sync::{Arc, LazyLock};

use serde_json::json;

use super::fs_common::{optional_text, paths, refused, text_argument, whole};
use super::git_common::{Effect, Git, GitOptions, define, revision};
use crate::base::BoxFuture;
use crate::base::workspace::Workspace;
use crate::protocol::{ToolCategory, ToolDefinition};
use crate::tool::{Arguments, Subject, Tool, ToolContext, ToolError, ToolOutput};

static DEFINITION: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let parameters = json!({
        "path": {"type": "string", "description": "The file", "required": true},
        "from": {"type": "number", "description": "The first line, from 1. Default: 1"},
        "to": {"type": "number", "description": "The last line. Default: the last of the file"},
        "revision": {"type": "string", "description": "As it was in this commit. Default: as it is now"},
    });
    define(
        "git_blame",
        ToolCategory::Read,
        "Shows for each line of a file the commit that changed it last.",
        parameters,
    )
});

/// The tool.
#[derive(Debug)]
pub struct GitBlame {
    git: Git,
}

impl GitBlame {
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

impl Tool for GitBlame {
    fn definition(&self) -> &ToolDefinition {
        &DEFINITION
    }

    fn subject(&self, arguments: &Arguments) -> Subject {
        paths(&self.git.workspace, arguments, &["path"])
    }

    fn run<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let path = text_argument(&arguments, "path")?;
            self.git.workspace.resolve_entry(&path).map_err(|e| refused(&e))?;
            let (from, to) = (whole(&arguments, "from", 1)?, whole(&arguments, "to", 1)?);
            let lines = match (from, to) {
                (Some(from), Some(to)) if to < from => {
                    let problem = format!("`to`: expected a line from {from} on, got {to}");
                    return Err(ToolError::BadArguments(problem));
                }
                (None, None) => None,
                (from, Some(to)) => Some(format!("-L{},{to}", from.unwrap_or(1))),
                (Some(from), None) => Some(format!("-L{from},")),
            };
            let given = optional_text(&arguments, "revision")?;
            let revision = given.map(|given| revision("revision", Some(given))).transpose()?;
            // A list of revisions that the repository's configuration names may be any file: a bad line of it would be told.
            let mut command = vec!["blame", "--no-ignore-revs-file", "--no-textconv", "--no-progress", "--date=short"];
            command.extend(lines.as_deref());
            command.extend(revision.as_deref());
            command.extend(["--", &path]);
            self.git.run(Effect::Look, &command, context).await?.success()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::git_common::testing::Repository;
    use super::*;

    #[tokio::test]
    async fn lines_with_their_commits() {
        let repository = Repository::new();
        repository.write("a", "one\ntwo\nthree\n");
        repository.git(&["commit", "-qam", "second"]);
        let tool = GitBlame::new(repository.workspace());
        #[rustfmt::skip]
        let table = [
            (json!({"path": "a"}), 3, vec![" 1) one", " 3) three"]),
            (json!({"path": "a", "from": 2}), 2, vec![" 2) two"]),
            (json!({"path": "a", "to": 1}), 1, vec![" 1) one"]),
            (json!({"path": "a", "from": 2, "to": 2}), 1, vec!["(T "]),
            (json!({"path": "a", "revision": "HEAD~1"}), 1, vec!["one"]),
        ];
        for (arguments, count, inside) in table {
            let text = repository.call(&tool, arguments.clone()).await.unwrap();
            assert_eq!(text.lines().count(), count, "{arguments}: {text}");
            assert!(inside.iter().all(|part| text.contains(part)), "{arguments}: {text}");
        }
    }

    #[tokio::test]
    async fn refusals() {
        let repository = Repository::new();
        let tool = GitBlame::new(repository.workspace());
        #[rustfmt::skip]
        let table = [
            (json!({"path": "a", "from": 3, "to": 2}), "`to`: expected a line from 3 on, got 2"),
            (json!({"path": "../x"}), "Path \"../x\" escapes"),
            (json!({"path": "a", "revision": "--contents=/etc/passwd"}), "`revision`: expected a revision"),
            (json!({"path": "none"}), "fatal: "),
            (json!({}), "`path`: expected"),
        ];
        for (arguments, begins) in table {
            let error = repository.call(&tool, arguments.clone()).await.unwrap_err();
            assert!(error.starts_with(begins), "{arguments}: {error}");
        }
    }
}
