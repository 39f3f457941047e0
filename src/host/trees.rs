//! Git working trees of sub-agents: made beside their parent's, and what was done there put back into it.
//!
//! A tree begins with what its parent's working tree has at that moment, what is not committed included. What is put back is the
//! difference to that, as a patch: all of it or nothing. Where it does not fit any more, the branch keeps it.
//!
//! They lie in `.simse/worktrees` of the directory that the parent works in, which its roots have and git ignores. Nothing of the
//! repository's own (hooks, filters) runs for any of this: nobody was asked.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::git_common::{Effect, Git, GitOptions};
use crate::base::workspace::Workspace;
use crate::base::{limit, text};
use crate::protocol::{ApiError, Merge, MergeOutcome, SessionId, Worktree};
use crate::tool::{ChangeRecorder, JudgedPaths, Line, Previewed, Recorded, Scope, ToolContext, ToolError, ToolEvents};

/// Where they lie, in the directory that the parent works in.
const PLACE: &str = ".simse/worktrees";
/// How their branches begin.
const BRANCHES: &str = "simse/";
/// Before every command: no hook runs.
const ALONE: [&str; 2] = ["-c", "core.hooksPath=/dev/null"];
/// Longest reason that is told, in bytes.
const REASON_BYTES_MAX: usize = 500;

/// Where a parent works, and how git is run there.
#[derive(Debug, Clone)]
pub struct Grounds {
    /// The directory.
    pub workspace: Arc<Workspace>,
    /// What git is held to.
    pub options: GitOptions,
}

/// git for one tree.
struct Trees {
    git: Git,
    context: ToolContext,
    /// The directory that the parent works in.
    directory: PathBuf,
}

impl Trees {
    fn of(grounds: &Grounds) -> Self {
        let git = Git::new(Arc::clone(&grounds.workspace)).with(grounds.options.clone()).alone(identity());
        let directory = grounds.workspace.working_directory().to_owned();
        Self { git, context: context(), directory }
    }

    /// Runs a command that changes something, and gives back what it says.
    async fn run(&self, arguments: &[&str]) -> Result<String, ToolError> {
        let all: Vec<&str> = ALONE.iter().chain(arguments).copied().collect();
        let said = self.git.run(Effect::Rework, &all, &self.context).await?;
        said.success().map(|output| output.text)
    }

    /// The same of one that says an object's name.
    async fn object(&self, arguments: &[&str]) -> Result<String, ToolError> {
        let said = self.run(arguments).await?;
        let is_name = |line: &&str| line.len() >= 40 && line.bytes().all(|byte| byte.is_ascii_hexdigit());
        let name = said.lines().rev().map(str::trim).find(is_name).map(str::to_owned);
        name.ok_or_else(|| {
            ToolError::failed(format!("git said no object's name: {}", text::head(&said, REASON_BYTES_MAX)))
        })
    }

    fn place(&self) -> PathBuf {
        self.directory.join(PLACE)
    }

    /// Removes a tree, and its branch unless that is to stay.
    async fn remove(&self, tree: &Worktree, keeps_branch: bool) {
        let directory = tree.directory.to_string_lossy();
        // What cannot be removed by git is no tree of it any more.
        if self.run(&["worktree", "remove", "--force", "--", &directory]).await.is_err() {
            let (left, place) = (tree.directory.clone(), self.place());
            let gone = move || if left.starts_with(place) { std::fs::remove_dir_all(left) } else { Ok(()) };
            drop(tokio::task::spawn_blocking(gone).await);
            drop(self.run(&["worktree", "prune"]).await);
        }
        if !keeps_branch {
            drop(self.run(&["branch", "-q", "-D", "--", &tree.branch]).await);
        }
        drop(tokio::fs::remove_file(self.patch(tree)).await);
    }

    fn patch(&self, tree: &Worktree) -> PathBuf {
        let name = tree.directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        self.place().join(format!("{name}.patch"))
    }
}

/// The surroundings of commands that belong to no call.
fn context() -> ToolContext {
    ToolContext {
        call_id: String::new(),
        session: None,
        cancel: CancellationToken::new(),
        scope: Arc::new(Scope::default()),
        events: ToolEvents::default(),
        veil: None,
        previewed: Previewed::default(),
        judged: JudgedPaths::default(),
        clients: Line::default(),
    }
}

/// Who commits what is only kept.
fn identity() -> BTreeMap<String, String> {
    let names = ["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"].map(|name| (name.to_owned(), "simse".to_owned()));
    let addresses =
        ["GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"].map(|name| (name.to_owned(), "simse@localhost".to_owned()));
    names.into_iter().chain(addresses).collect()
}

/// Makes a working tree for a session, and says where in it the session works.
///
/// # Errors
/// `INVALID_ARGUMENT` with the field `isolation`: there is no repository, or none with a commit.
pub async fn make_tree(grounds: &Grounds, id: &SessionId) -> Result<(Worktree, PathBuf), ApiError> {
    let refused = |error: ToolError| {
        ApiError::unfit(
            "isolation",
            "`worktree` in a git repository that has a commit",
            text::head(&error.to_string(), REASON_BYTES_MAX),
        )
    };
    let trees = Trees::of(grounds);
    let look = ["rev-parse", "--show-toplevel", "--show-prefix", "HEAD"];
    let lines = trees.git.lines(&look, &trees.context).await.map_err(refused)?;
    let [top, prefix, head] = lines.as_slice() else {
        return Err(refused(ToolError::failed(format!("git said {} lines", lines.len()))));
    };
    let place = trees.place();
    let hide = {
        let place = place.clone();
        move || std::fs::create_dir_all(&place).and_then(|()| std::fs::write(place.join(".gitignore"), "*\n"))
    };
    let hidden = tokio::task::spawn_blocking(hide).await;
    let io = |cause: String| ApiError::internal(format!("{}: {cause}", place.display()));
    hidden.map_err(|cause| io(cause.to_string()))?.map_err(|cause| io(cause.to_string()))?;
    let base = base_of(grounds, (id, &place), head).await.map_err(refused)?;
    let tree = Worktree {
        directory: place.join(id.as_str()),
        repository: PathBuf::from(top),
        branch: format!("{BRANCHES}{id}"),
        base,
    };
    let directory = tree.directory.to_string_lossy();
    trees.run(&["worktree", "add", "-q", "-b", &tree.branch, "--", &directory, &tree.base]).await.map_err(refused)?;
    let works = tree.directory.join(prefix.trim_end_matches('/'));
    Ok((tree, works))
}

/// A commit with what the working tree has now. It is on no branch.
async fn base_of(grounds: &Grounds, (id, place): (&SessionId, &Path), head: &str) -> Result<String, ToolError> {
    let index = place.join(format!("{id}.index"));
    let mut variables = identity();
    variables.insert("GIT_INDEX_FILE".to_owned(), index.to_string_lossy().into_owned());
    let mut trees = Trees::of(grounds);
    trees.git = trees.git.alone(variables);
    let made = async {
        trees.run(&["read-tree", head]).await?;
        let paths = trees.git.pathspecs(None, Some(":/"));
        let all: Vec<&str> = ALONE.iter().copied().chain(["add", "-A"]).collect();
        trees.git.run_on(Effect::Rework, (&all[..], &paths), &trees.context).await?.success()?;
        let tree = trees.object(&["write-tree"]).await?;
        trees.object(&["commit-tree", &tree, "-p", head, "-m", "Where a sub-agent begins"]).await
    };
    let made = made.await;
    drop(tokio::fs::remove_file(&index).await);
    made
}

/// Puts what was done in a tree back into the working tree that it was made from, and removes it. `completed`: the work was
/// done; of work that was not, the branch keeps what there is. What changes there is recorded. Twice is once.
pub async fn put_back(
    grounds: &Grounds,
    (tree, completed): (&Worktree, bool),
    recorder: Option<Arc<dyn ChangeRecorder>>,
) -> Merge {
    let trees = Trees::of(grounds);
    if !tree.directory.is_dir() {
        let left = trees.git.lines(&["rev-parse", "--verify", "-q", &tree.branch], &trees.context).await.is_ok();
        // It was put back and removed, or kept, before the end of an earlier process.
        let (outcome, branch) =
            if left { (MergeOutcome::Failed, Some(tree.branch.clone())) } else { (MergeOutcome::Merged, None) };
        return Merge { outcome, branch, paths: Vec::new(), reason: None };
    }
    match put_back_in(&trees, grounds, (tree, completed), recorder).await {
        Ok(merge) => {
            trees.remove(tree, merge.branch.is_some()).await;
            merge
        }
        Err(error) => {
            let reason = Some(text::head(&error.to_string(), REASON_BYTES_MAX).to_owned());
            // What could not even be kept on the branch stays where it is.
            let branch = Some(tree.branch.clone());
            Merge { outcome: MergeOutcome::Failed, branch, paths: Vec::new(), reason }
        }
    }
}

async fn put_back_in(
    trees: &Trees,
    grounds: &Grounds,
    (tree, completed): (&Worktree, bool),
    recorder: Option<Arc<dyn ChangeRecorder>>,
) -> Result<Merge, ToolError> {
    let inside = tree.directory.to_string_lossy();
    trees.run(&["-C", &inside, "add", "-A"]).await?;
    let now = trees.object(&["-C", &inside, "write-tree"]).await?;
    let base = &tree.base;
    let begun = trees.object(&["rev-parse", &format!("{base}^{{tree}}")]).await?;
    if now == begun {
        return Ok(Merge { outcome: MergeOutcome::Unchanged, branch: None, paths: Vec::new(), reason: None });
    }
    let head = trees.object(&["-C", &inside, "rev-parse", "HEAD"]).await?;
    let kept = trees.object(&["commit-tree", &now, "-p", &head, "-m", "What a sub-agent did"]).await?;
    trees.run(&["update-ref", &format!("refs/heads/{}", tree.branch), &kept]).await?;
    let names = ["diff", "--name-only", "-z", "--no-renames", base.as_str(), now.as_str()];
    let paths = trees.git.names((&names[..], &trees.git.pathspecs(None, None)), &trees.context).await?;
    let told = |outcome, keeps_branch: bool, reason: Option<String>| Merge {
        outcome,
        branch: keeps_branch.then(|| tree.branch.clone()),
        paths: paths.iter().take(limit::MERGED_PATHS_MAX).cloned().collect(),
        reason,
    };
    if !completed {
        let reason = Some("it did not complete".to_owned());
        return Ok(told(MergeOutcome::Failed, true, reason));
    }
    let out_of_reach = paths.iter().find(|path| !may_change(&grounds.workspace, &tree.repository.join(path)));
    if let Some(path) = out_of_reach {
        let reason = Some(format!("{path} is not for it to change"));
        return Ok(told(MergeOutcome::Failed, true, reason));
    }
    let patch = trees.patch(tree);
    write_patch(trees, &patch, (base, &now)).await?;
    let file = patch.to_string_lossy().into_owned();
    if tokio::fs::metadata(&patch).await.is_ok_and(|facts| facts.len() > limit::MERGE_BYTES_MAX as u64) {
        let reason = Some(format!("it is more than {} bytes", limit::MERGE_BYTES_MAX));
        return Ok(told(MergeOutcome::Failed, true, reason));
    }
    let top = tree.repository.to_string_lossy();
    let run = async |more: &[&str]| {
        let apply = ["-C", &top, "apply", "--whitespace=nowarn"];
        let arguments: Vec<&str> = apply.iter().chain(more).copied().chain([file.as_str()]).collect();
        trees.run(&arguments).await
    };
    if let Err(error) = run(&["--check"]).await {
        // An earlier process may have put it back, and not come further.
        if run(&["--check", "--reverse"]).await.is_ok() {
            return Ok(told(MergeOutcome::Merged, false, None));
        }
        let reason = Some(text::head(&error.to_string(), REASON_BYTES_MAX).to_owned());
        return Ok(told(MergeOutcome::Conflict, true, reason));
    }
    let changing = paths.iter().filter_map(|path| resolved(&grounds.workspace, &tree.repository.join(path))).collect();
    let recorded = recording(recorder, changing).await;
    let applied = run(&[]).await;
    drop(tokio::task::spawn_blocking(move || drop(recorded)).await);
    match applied {
        Ok(_) => Ok(told(MergeOutcome::Merged, false, None)),
        Err(error) => {
            let reason = Some(text::head(&error.to_string(), REASON_BYTES_MAX).to_owned());
            Ok(told(MergeOutcome::Failed, true, reason))
        }
    }
}

/// Writes down how the one tree becomes the other.
async fn write_patch(trees: &Trees, patch: &Path, (from, to): (&str, &str)) -> Result<(), ToolError> {
    let output = format!("--output={}", patch.display());
    let diff = ["diff", "--binary", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv"];
    let diff: Vec<&str> = diff.into_iter().chain([output.as_str(), from, to]).collect();
    trees.run(&diff).await.map(drop)
}

/// What is there before the patch is in the record. None: nobody records.
async fn recording(recorder: Option<Arc<dyn ChangeRecorder>>, paths: Vec<PathBuf>) -> Option<Recorded> {
    let recorder = recorder?;
    tokio::task::spawn_blocking(move || Recorded::begin(Some(recorder), paths)).await.ok()
}

/// Whether the tools of the parent could change that path.
fn may_change(workspace: &Workspace, path: &Path) -> bool {
    let names_git = path.components().any(|part| part.as_os_str().eq_ignore_ascii_case(".git"));
    !names_git && resolved(workspace, path).is_some_and(|path| !workspace.keeps(&path))
}

/// The path without links, where it lies under a root.
fn resolved(workspace: &Workspace, path: &Path) -> Option<PathBuf> {
    path.to_str().and_then(|path| workspace.resolve(path).ok())
}

/// Removes a tree in which nobody will work.
pub async fn discard_tree(grounds: &Grounds, tree: &Worktree) {
    Trees::of(grounds).remove(tree, false).await;
}

/// Trees that lie there, by the ids of their sessions.
pub async fn trees_in(directory: &Path) -> Vec<SessionId> {
    let place = directory.join(PLACE);
    let look = move || {
        let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
        let trees = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        trees.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    };
    tokio::task::spawn_blocking(look).await.unwrap_or_default()
}

/// The tree of a session of which nothing else is known.
pub fn tree_of(directory: &Path, id: &SessionId) -> Worktree {
    let (place, branch) = (directory.join(PLACE).join(id.as_str()), format!("{BRANCHES}{id}"));
    Worktree { directory: place, repository: directory.to_owned(), branch, base: String::new() }
}

#[cfg(test)]
mod tests {
    use super::super::git_common::testing::Repository;
    use super::*;

    fn grounds(repository: &Repository) -> Grounds {
        Grounds { workspace: repository.workspace(), options: GitOptions::default() }
    }

    async fn made(repository: &Repository) -> Worktree {
        make_tree(&grounds(repository), &SessionId::generate()).await.expect("made").0
    }

    fn branches(repository: &Repository) -> usize {
        repository.git(&["branch", "--list", "simse/*"]).lines().count()
    }

    #[tokio::test]
    async fn what_was_done_is_put_back_whole_and_the_tree_goes() {
        let repository = Repository::new();
        repository.write("a", "one\nnot committed\n");
        repository.write("new", "nor this\n");
        let (tree, works) = make_tree(&grounds(&repository), &SessionId::generate()).await.expect("made");
        assert_eq!(works, tree.directory);
        let read = |name: &str| std::fs::read_to_string(tree.directory.join(name)).expect("there");
        assert_eq!((read("a").as_str(), read("new").as_str()), ("one\nnot committed\n", "nor this\n"));
        assert!(!repository.git(&["status", "--porcelain"]).contains(".simse"), "git does not see them");
        std::fs::write(tree.directory.join("a"), "one\nnot committed\nmore\n").expect("written");
        std::fs::write(tree.directory.join("b"), [0, 159, 146, 150]).expect("written");
        std::fs::remove_file(tree.directory.join("new")).expect("removed");
        // Somebody works beside it.
        repository.write("c", "beside\n");
        let merge = put_back(&grounds(&repository), (&tree, true), None).await;
        assert_eq!((merge.outcome, merge.branch, merge.reason), (MergeOutcome::Merged, None, None));
        assert_eq!(merge.paths, ["a", "b", "new"]);
        assert_eq!(repository.read("a"), "one\nnot committed\nmore\n");
        assert_eq!(std::fs::read(repository.directory.path().join("b")).expect("there"), [0, 159, 146, 150]);
        assert!(!repository.directory.path().join("new").exists() && !tree.directory.exists());
        assert_eq!((branches(&repository), repository.git(&["worktree", "list"]).lines().count()), (0, 1));
        assert_eq!(repository.git(&["diff", "--cached", "--name-only"]), "", "the index is as it was");
        let again = put_back(&grounds(&repository), (&tree, true), None).await;
        assert_eq!(
            (again.outcome, repository.read("a").as_str()),
            (MergeOutcome::Merged, "one\nnot committed\nmore\n")
        );
    }

    #[tokio::test]
    async fn what_does_not_fit_is_kept_on_the_branch_and_nothing_is_half_done() {
        let repository = Repository::new();
        let tree = made(&repository).await;
        std::fs::write(tree.directory.join("a"), "theirs\n").expect("written");
        std::fs::write(tree.directory.join("fits"), "it would\n").expect("written");
        repository.write("a", "mine\n");
        let merge = put_back(&grounds(&repository), (&tree, true), None).await;
        assert_eq!((merge.outcome, merge.branch.as_ref()), (MergeOutcome::Conflict, Some(&tree.branch)));
        assert_eq!(repository.read("a"), "mine\n");
        assert!(!repository.directory.path().join("fits").exists() && !tree.directory.exists());
        assert_eq!(repository.git(&["show", &format!("{}:a", tree.branch)]), "theirs\n");
    }

    #[tokio::test]
    async fn nothing_and_half_work_are_told_as_such() {
        let repository = Repository::new();
        let tree = made(&repository).await;
        assert_eq!(put_back(&grounds(&repository), (&tree, true), None).await.outcome, MergeOutcome::Unchanged);
        assert_eq!((branches(&repository), tree.directory.exists()), (0, false));
        let tree = made(&repository).await;
        std::fs::write(tree.directory.join("a"), "half\n").expect("written");
        let merge = put_back(&grounds(&repository), (&tree, false), None).await;
        assert_eq!((merge.outcome, merge.branch.as_ref()), (MergeOutcome::Failed, Some(&tree.branch)));
        assert_eq!((repository.read("a").as_str(), branches(&repository)), ("one\n", 1));
        let tree = made(&repository).await;
        assert_eq!(trees_in(repository.workspace().working_directory()).await.len(), 1);
        discard_tree(&grounds(&repository), &tree).await;
        assert_eq!((trees_in(repository.workspace().working_directory()).await.len(), branches(&repository)), (0, 1));
    }

    #[tokio::test]
    async fn without_a_repository_there_is_none() {
        let place = tempfile::tempdir().expect("a directory");
        let workspace = Arc::new(Workspace::new(place.path(), &[]).expect("one"));
        let grounds = Grounds { workspace, options: GitOptions::default() };
        let refused = make_tree(&grounds, &SessionId::generate()).await.expect_err("no repository");
        assert!(refused.to_string().starts_with("`isolation`: expected `worktree` in a git repository"), "{refused}");
    }

    #[tokio::test]
    async fn no_hook_and_no_filter_of_the_repository_runs() {
        use std::os::unix::fs::PermissionsExt as _;
        let repository = Repository::new();
        let spy = repository.directory.path().join(".git/hooks/post-checkout");
        let canary = repository.directory.path().join(".git/canary");
        std::fs::create_dir_all(spy.parent().expect("hooks")).expect("made");
        std::fs::write(&spy, format!("#!/bin/sh\ntouch {0}\ncat\n", canary.display())).expect("written");
        std::fs::set_permissions(&spy, std::fs::Permissions::from_mode(0o755)).expect("set");
        let spy = spy.to_string_lossy().into_owned();
        repository.git(&["config", "filter.f.clean", &spy]);
        repository.git(&["config", "filter.f.smudge", &spy]);
        repository.write(".gitattributes", "* filter=f\n");
        let tree = made(&repository).await;
        std::fs::write(tree.directory.join("a"), "more\n").expect("written");
        put_back(&grounds(&repository), (&tree, true), None).await;
        assert!(!canary.exists());
    }
}
