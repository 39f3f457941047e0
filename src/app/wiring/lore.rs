//! What a session is told of the place that it works in: instruction files, the date, the branch.
//!
//! Files are read again only when one of them has changed, come or gone; a turn looks at their marks. What stands in the system text
//! stands before everything else that is sent, so what changes by itself (the date, the branch) stays as it was first told as long as a
//! provider may keep the beginning of the prompt.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::base::{BoxFuture, clock, limit};
use crate::config::InstructionDiscovery;
use crate::prompt::{Found, branch_of, directories_up};
use crate::protocol::SessionId;
use crate::tool::{Guide, Guided};

/// Instruction files, and what sessions were told of their surroundings.
#[derive(Debug)]
pub(super) struct Lore {
    discovery: InstructionDiscovery,
    /// What was found for which directories; the newest first.
    found: Mutex<VecDeque<(Vec<PathBuf>, Arc<Found>)>>,
    /// The newest first.
    told: Mutex<VecDeque<(SessionId, Surroundings)>>,
}

/// What changes by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Surroundings {
    /// Such as `2026-11-21`.
    pub(super) date: String,
    /// The branch that was checked out.
    pub(super) branch: Option<String>,
    directory: PathBuf,
    since_ms: u64,
    used_ms: u64,
}

impl Lore {
    pub(super) fn new(discovery: InstructionDiscovery) -> Self {
        Self { discovery, found: Mutex::default(), told: Mutex::default() }
    }

    /// Where the walk up from a working directory ends. None: at the repository's root.
    pub(super) fn root_dir(&self) -> Option<&Path> {
        self.discovery.root_dir.as_deref()
    }

    /// The instruction files of a directory and those above it. Who cannot be read is left out, and never keeps a turn from running.
    pub(super) async fn files(self: &Arc<Self>, directory: &Path) -> Arc<Found> {
        if !self.discovery.auto_inject {
            return Arc::default();
        }
        let (lore, directory) = (Arc::clone(self), directory.to_owned());
        tokio::task::spawn_blocking(move || lore.look(&directory)).await.unwrap_or_default()
    }

    fn look(&self, directory: &Path) -> Arc<Found> {
        let directories = directories_up(directory, self.discovery.root_dir.as_deref());
        let known = self.found.lock().iter().find(|(of, _)| *of == directories).map(|(_, found)| Arc::clone(found));
        if let Some(known) = known
            && known.is_current()
        {
            return known;
        }
        let tree = directories.first().map_or(directory, PathBuf::as_path);
        let found = Arc::new(Found::within(tree, &directories, &self.discovery.patterns));
        let mut all = self.found.lock();
        all.retain(|(of, _)| *of != directories);
        all.truncate(limit::INSTRUCTION_SETS_MAX - 1);
        all.push_front((directories, Arc::clone(&found)));
        found
    }

    /// What a session is told of its surroundings: as before while its turns follow each other.
    pub(super) async fn surroundings(&self, session: &SessionId, directory: &Path) -> Surroundings {
        let now_ms = clock::now_ms();
        if let Some(told) = self.again(session, directory, now_ms) {
            return told;
        }
        let of = directory.to_owned();
        let branch = tokio::task::spawn_blocking(move || branch_of(&of)).await.unwrap_or_default();
        let date = clock::now_text().chars().take("2026-11-21".len()).collect();
        let new = Surroundings { date, branch, directory: directory.to_owned(), since_ms: now_ms, used_ms: now_ms };
        let mut all = self.told.lock();
        all.retain(|(of, _)| of != session);
        all.truncate(limit::SURROUNDINGS_MAX - 1);
        all.push_front((session.clone(), new.clone()));
        new
    }

    fn again(&self, session: &SessionId, directory: &Path, now_ms: u64) -> Option<Surroundings> {
        let mut all = self.told.lock();
        let at = all.iter().position(|(of, _)| of == session)?;
        let (of, mut told) = all.remove(at)?;
        let holds = told.directory == directory
            && is_within(now_ms, told.used_ms, limit::SURROUNDINGS_IDLE_MS)
            && is_within(now_ms, told.since_ms, limit::SURROUNDINGS_KEPT_MS);
        if !holds {
            return None;
        }
        told.used_ms = now_ms;
        all.push_front((of, told.clone()));
        Some(told)
    }

    /// Who tells a session of instruction files below the directories that it works in: its working directory, and then the
    /// others. None: nobody is to.
    pub(super) fn guide(&self, tops: Vec<PathBuf>) -> Option<Arc<dyn Guide>> {
        let patterns = || self.discovery.patterns.clone();
        self.discovery.auto_inject.then(|| Arc::new(Below { tops, patterns: patterns() }) as Arc<dyn Guide>)
    }
}

/// Whether so much time has not passed since. A clock that was set back over it knows nothing of that.
fn is_within(now_ms: u64, since_ms: u64, most_ms: u64) -> bool {
    now_ms.checked_sub(since_ms).is_some_and(|passed| passed < most_ms)
}

/// Looks below a session's directories.
#[derive(Debug)]
struct Below {
    /// The working directory, and then the others.
    tops: Vec<PathBuf>,
    patterns: Vec<String>,
}

/// Directories between a top and a file that are looked at, at most.
const DEPTH_MAX: usize = 64;

impl Below {
    /// The directories around a path that the system text says nothing of, outermost first, and the one that they lie in.
    fn around(&self, path: &Path) -> Option<(PathBuf, Vec<PathBuf>)> {
        let (at, top) = self.tops.iter().enumerate().find(|(_, top)| path.starts_with(top) && path != top.as_path())?;
        let inside = |directory: &&Path| directory.starts_with(top) && (at > 0 || *directory != top.as_path());
        let mut directories: Vec<PathBuf> =
            path.ancestors().skip(1).take_while(inside).take(DEPTH_MAX).map(Path::to_owned).collect();
        directories.reverse();
        Some((top.clone(), directories))
    }
}

impl Guide for Below {
    fn at<'a>(&'a self, paths: &'a [PathBuf], guided: &'a Guided) -> BoxFuture<'a, Vec<String>> {
        Box::pin(async move {
            let mut told = Vec::new();
            for path in paths {
                // Who reads or writes one knows what it says.
                if self.patterns.iter().any(|pattern| path.ends_with(pattern)) {
                    guided.tells(path);
                }
                let Some((top, directories)) = self.around(path) else { continue };
                let fresh = guided.fresh(directories);
                if fresh.is_empty() {
                    continue;
                }
                let patterns = self.patterns.clone();
                let look = move || Found::within(&top, &fresh, &patterns).files;
                let found = tokio::task::spawn_blocking(look).await.unwrap_or_default();
                told.extend(
                    found.iter().filter(|file| guided.tells(&file.path)).map(crate::prompt::Instructions::told),
                );
            }
            told
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn project() -> (tempfile::TempDir, PathBuf) {
        let home = tempfile::tempdir().unwrap();
        let top = home.path().canonicalize().unwrap();
        for directory in ["w/.git", "w/a/b/c", "w/d", "other/e"] {
            fs::create_dir_all(top.join(directory)).unwrap();
        }
        for file in ["w/AGENTS.md", "w/a/AGENTS.md", "w/a/b/c/CLAUDE.md", "other/AGENTS.md", "AGENTS.md"] {
            fs::write(top.join(file), format!("text of {file}")).unwrap();
        }
        (home, top)
    }

    #[tokio::test]
    async fn a_clock_that_was_set_forth_and_back_does_not_stay_in_what_is_told() {
        let (_home, top) = project();
        let (lore, session) = (Lore::new(InstructionDiscovery::default()), SessionId::generate());
        let date = async || lore.surroundings(&session, &top).await.date;
        let first = date().await;
        clock::wrong::set(1_000 * 86_400_000);
        let ahead = date().await;
        clock::wrong::set(0);
        let back = date().await;
        assert!(ahead != first && back == first, "{first}, {ahead}, {back}");
    }

    fn tops(top: &Path) -> Vec<PathBuf> {
        vec![top.join("w"), top.join("other")]
    }

    #[tokio::test]
    async fn a_folder_s_instructions_are_told_when_a_call_first_gets_there() {
        let (_home, top) = project();
        let lore = Lore::new(InstructionDiscovery::default());
        let guide = lore.guide(tops(&top)).unwrap();
        let guided = Guided::default();
        #[rustfmt::skip]
        let table: &[(&str, &[&str])] = &[
            ("w/x.rs", &[]), ("w/a/x.rs", &["w/a/AGENTS.md"]), ("w/a/y.rs", &[]),
            ("w/a/b/c/x.rs", &["w/a/b/c/CLAUDE.md"]), ("w/d/x.rs", &[]), ("w/a/b/c/z.rs", &[]),
            ("other/e/x.rs", &["other/AGENTS.md"]), ("AGENTS.md", &[]), ("w", &[]),
        ];
        for (path, want) in table {
            let told = guide.at(&[top.join(path)], &guided).await;
            let want: Vec<String> = want
                .iter()
                .map(|file| format!("Instructions from {}:\n\ntext of {file}", top.join(file).display()))
                .collect();
            assert_eq!(told, want, "{path}");
        }
        let other = Guided::default();
        other.begin(|| vec![top.join("w/a/AGENTS.md")]);
        assert!(guide.at(&[top.join("w/a/x.rs")], &other).await.is_empty(), "the conversation has it");
        assert!(guide.at(&[top.join("w/a/b/c/CLAUDE.md")], &other).await.is_empty(), "who reads it knows it");
        let off = Lore::new(InstructionDiscovery { auto_inject: false, ..InstructionDiscovery::default() });
        assert!(off.guide(tops(&top)).is_none());
    }

    #[tokio::test]
    async fn files_are_read_again_when_they_change() {
        let (_home, top) = project();
        let lore = Arc::new(Lore::new(InstructionDiscovery::default()));
        let first = lore.files(&top.join("w/a")).await;
        let texts: Vec<&str> = first.files.iter().map(|file| file.content.as_str()).collect();
        assert_eq!(texts, ["text of w/AGENTS.md", "text of w/a/AGENTS.md"]);
        assert!(Arc::ptr_eq(&first, &lore.files(&top.join("w/a")).await), "nothing was read");
        fs::write(top.join("w/CLAUDE.md"), "new").unwrap();
        let second = lore.files(&top.join("w/a")).await;
        assert_eq!((second.files.len(), second.files[0].content.as_str()), (3, "new"));
        for n in 0..2 * limit::INSTRUCTION_SETS_MAX {
            lore.files(&top.join(format!("w/{n}"))).await;
        }
        assert_eq!(lore.found.lock().len(), limit::INSTRUCTION_SETS_MAX);
    }

    #[tokio::test]
    async fn surroundings_stay_as_they_were_told_while_turns_follow_each_other() {
        let (_home, top) = project();
        let lore = Lore::new(InstructionDiscovery::default());
        let id: SessionId = "s".parse().unwrap();
        let head = top.join("w/.git/HEAD");
        fs::write(&head, "ref: refs/heads/one\n").unwrap();
        let first = lore.surroundings(&id, &top.join("w")).await;
        assert_eq!((first.branch.as_deref(), first.date.len()), (Some("one"), 10));
        fs::write(&head, "ref: refs/heads/two\n").unwrap();
        assert_eq!(lore.surroundings(&id, &top.join("w")).await.branch.as_deref(), Some("one"));
        let other = lore.surroundings(&"t".parse().unwrap(), &top.join("w")).await;
        assert_eq!(other.branch.as_deref(), Some("two"));
        assert_eq!(lore.surroundings(&id, &top.join("w/a")).await.branch.as_deref(), Some("two"), "it works elsewhere");
        let since = lore.surroundings(&id, &top.join("w/a")).await.since_ms;
        let later = |ms: u64| lore.again(&id, &top.join("w/a"), since + ms).is_some();
        assert!(later(limit::SURROUNDINGS_IDLE_MS - 1) && later(2 * limit::SURROUNDINGS_IDLE_MS - 2));
        assert!(!later(4 * limit::SURROUNDINGS_IDLE_MS), "nothing keeps a prompt so long");
    }
}
