//! What a looking git tool does not get to see: files above the working directory, and files that the rules deny.
//!
//! The files of an output are asked for by name first; those that are hidden are then left out of the output itself.
//! A revision that names a file (`HEAD:a`) has that file for a subject, as a path has. What names no file (the id of a
//! blob) is refused where something is hidden: nobody can say which file it was.

use std::path::PathBuf;
use std::sync::Arc;

use super::fs_common::refused;
use super::git_common::{Git, Pathspecs};
use super::git_place::repository;
use crate::base::panics::broken;
use crate::tool::{ToolContext, ToolError};

/// Files that an output may leave out: so many fit on a command line.
const HIDDEN_MAX: usize = 2_000;

/// The file that a revision names: `HEAD:a`, `:a` of the index, `:2:a`. As its path, absolute.
pub(super) fn named_file(git: &Git, revision: &str) -> Option<PathBuf> {
    let path = split(revision)?;
    let directory = git.workspace.working_directory();
    if path.is_empty() || path == "." || path == ".." || path.starts_with("./") || path.starts_with("../") {
        // git takes these from where it runs, but the empty one.
        let base = if path.is_empty() { top(git) } else { directory.to_owned() };
        return Some(base.join(path));
    }
    Some(top(git).join(path))
}

/// Whether a revision names a file.
pub(super) fn is_file(revision: &str) -> bool {
    split(revision).is_some()
}

/// Whether a revision means the commits between two others.
pub(super) fn is_range(revision: &str) -> bool {
    revision.contains("..") || revision.starts_with('^') || ["^!", "^@", "^-"].iter().any(|end| revision.contains(end))
}

fn top(git: &Git) -> PathBuf {
    let directory = git.workspace.working_directory();
    repository(directory).map_or_else(|| directory.to_owned(), |found| found.top)
}

/// What stands behind the first colon outside of braces.
fn split(revision: &str) -> Option<&str> {
    if revision.starts_with(":/") {
        // A commit by its message.
        return None;
    }
    let mut depth = 0_usize;
    let at = revision.char_indices().find(|(_, c)| {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && *c == ':'
    })?;
    let rest = &revision[at.0 + 1..];
    let stage = at.0 == 0 && matches!(rest.as_bytes(), [b'0'..=b'3', b':', ..]);
    Some(if stage { &rest[2..] } else { rest })
}

/// Refuses a revision that shows something from above the working directory, or something that nobody can place.
pub(super) async fn check_revision(git: &Git, revision: &str, context: &ToolContext) -> Result<(), ToolError> {
    let (here, asked) = (git.clone(), revision.to_owned());
    let (file, below) = placed(here, asked).await?;
    if let Some(file) = file {
        let real = git.workspace.resolve_entry(&file.to_string_lossy()).map_err(|e| refused(&e))?;
        if context.veil.as_ref().is_some_and(|veil| veil.hides(&real)) {
            return Err(ToolError::failed(format!("{revision} names a file that the rules deny")));
        }
        return Ok(());
    }
    if context.veil.is_none() && !below {
        return Ok(());
    }
    let kind = git.lines(&["cat-file", "-t", &format!("{revision}^{{}}")], context).await.unwrap_or_default();
    if kind.first().is_some_and(|kind| matches!(kind.as_str(), "blob" | "tree")) {
        return Err(ToolError::failed(format!("{revision} is no commit: name a file as REVISION:PATH")));
    }
    Ok(())
}

/// The file that a revision names, and whether the working directory lies below the repository's top.
async fn placed(git: Git, revision: String) -> Result<(Option<PathBuf>, bool), ToolError> {
    let look = move || (named_file(&git, &revision), top(&git) != git.workspace.working_directory());
    tokio::task::spawn_blocking(look).await.map_err(|e| ToolError::failed(broken(e)))
}

/// The files of a command: `path`, or the working directory where that is not the repository's top.
pub(super) async fn kept_below(git: &Git, path: Option<&str>) -> Pathspecs {
    let workspace = Arc::clone(&git.workspace);
    let look =
        move || repository(workspace.working_directory()).is_some_and(|it| it.top != workspace.working_directory());
    let below = tokio::task::spawn_blocking(look).await.unwrap_or(true);
    git.pathspecs(path, below.then_some("."))
}

/// The same without the files that the rules deny. `list` is the command that names them, each ended by a NUL.
pub(super) async fn seen(
    git: &Git,
    (list, paths): (&[&str], Pathspecs),
    context: &ToolContext,
) -> Result<Pathspecs, ToolError> {
    let Some(veil) = &context.veil else { return Ok(paths) };
    let names = git.names((list, &paths), context).await?;
    let (veil, here) = (veil.clone(), git.clone());
    let hidden = move || {
        let top = top(&here);
        names.into_iter().filter(|name| veil.hides(&top.join(name))).collect::<Vec<String>>()
    };
    let hidden = tokio::task::spawn_blocking(hidden).await.map_err(|e| ToolError::failed(broken(e)))?;
    if hidden.len() > HIDDEN_MAX || hidden.iter().any(|name| name.contains('\u{fffd}')) {
        return Err(ToolError::failed("too much of it is denied by the rules to leave it out: name a `path`"));
    }
    Ok(paths.without(&hidden))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::git_common::testing::Repository;
    use super::super::{GitDiff, GitShow, GitStash};
    use super::*;
    use crate::base::workspace::Workspace;
    use crate::permission::Subject;
    use crate::tool::{Tool, Veil};

    /// A repository with `top.txt`, `sec/k` and `sub/a`, each changed since its first commit, and staged.
    fn changed() -> Repository {
        let repository = Repository::new();
        std::fs::create_dir(repository.directory.path().join("sec")).unwrap();
        std::fs::create_dir(repository.directory.path().join("sub")).unwrap();
        for text in ["first", "second", "third"] {
            for name in ["top.txt", "sec/k", "sub/a"] {
                repository.write(name, &format!("{text} of {name}\n"));
            }
            repository.git(&["add", "."]);
            if text != "third" {
                repository.git(&["commit", "-qm", text]);
            }
        }
        repository
    }

    #[test]
    fn a_revision_may_name_a_file() {
        #[rustfmt::skip]
        let table = [
            ("HEAD:a", Some("a")), ("HEAD:", Some("")), (":a/b", Some("a/b")), (":2:a", Some("a")), ("HEAD:2:a", Some("2:a")),
            ("main@{12:30}:a", Some("a")), ("HEAD^{/x:y}", None), (":/x:y", None), ("HEAD~1", None), ("a..b", None),
        ];
        for (revision, want) in table {
            assert_eq!(split(revision), want, "{revision}");
        }
    }

    #[tokio::test]
    async fn what_the_rules_deny_is_left_out() {
        let repository = changed();
        let root = repository.directory.path().canonicalize().unwrap();
        let sec = root.join("sec");
        let veil = Veil::new(move |path| path.starts_with(&sec));
        let (show, diff) = (GitShow::new(repository.workspace()), GitDiff::new(repository.workspace()));
        assert!(show.searches() && diff.searches());
        let blob = repository.git(&["rev-parse", "HEAD:sec/k"]).trim().to_owned();
        let table: [(&dyn Tool, _, bool); 6] = [
            (&show, json!({}), true),
            (&show, json!({"stat": true}), true),
            (&show, json!({"revision": "HEAD~1..HEAD"}), true),
            (&diff, json!({"staged": true}), true),
            (&show, json!({"revision": "HEAD:sec/k"}), false),
            (&show, json!({"revision": blob}), false),
        ];
        for (tool, arguments, shows) in table {
            let open = repository.call(tool, arguments.clone()).await.unwrap();
            assert!(open.contains("sec/k"), "{arguments}, without rules: {open}");
            match repository.call_under(tool, arguments.clone(), veil.clone()).await {
                Ok(text) => assert!(shows && text.contains("top.txt") && !text.contains("sec/"), "{arguments}: {text}"),
                Err(why) => assert!(!shows, "{arguments}: {why}"),
            }
        }
    }

    #[tokio::test]
    async fn nothing_above_the_working_directory_is_shown_or_changed() {
        let repository = changed();
        let below = Arc::new(Workspace::new(&repository.directory.path().join("sub"), &[]).unwrap());
        let show = GitShow::new(Arc::clone(&below));
        for revision in ["HEAD:top.txt", "HEAD:../top.txt", ":top.txt", "HEAD:", "HEAD^{tree}"] {
            let said = repository.call(&show, json!({ "revision": revision })).await;
            assert!(said.is_err(), "{revision}: {said:?}");
        }
        for revision in ["HEAD:sub/a", "HEAD:./a"] {
            let said = repository.call(&show, json!({ "revision": revision })).await.unwrap();
            assert_eq!(said, "second of sub/a\n");
        }
        let diff = GitDiff::new(Arc::clone(&below));
        for said in [repository.call(&show, json!({})).await, repository.call(&diff, json!({"staged": true})).await] {
            let said = said.unwrap();
            assert!(said.contains("sub/a") && !said.contains("top.txt"), "{said}");
        }
        repository.call(&GitStash::new(below), json!({})).await.unwrap();
        let left = |name: &str| std::fs::read_to_string(repository.directory.path().join(name)).unwrap();
        assert_eq!((left("top.txt"), left("sub/a")), ("third of top.txt\n".into(), "second of sub/a\n".into()));
    }

    #[test]
    fn the_file_of_a_revision_is_its_subject() {
        let repository = changed();
        let tool = GitShow::new(repository.workspace());
        let serde_json::Value::Object(arguments) = json!({"revision": "HEAD:sec/k"}) else { panic!("an object") };
        let Subject::Paths(paths) = tool.subject(&arguments) else { panic!("paths") };
        let root = repository.directory.path().canonicalize().unwrap();
        assert_eq!(paths[0].resolved.as_deref(), Some(root.join("sec/k").as_path()));
    }
}
