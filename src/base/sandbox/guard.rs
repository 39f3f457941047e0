//! What of git repositories must stay as it is: what git runs or follows later, outside of the sandbox.
//!
//! Of the repository in a writable place itself nothing gets by: its directory cannot be moved, and neither hooks and
//! configuration nor those of its submodules and worktrees can be changed. Repositories below are found by a
//! bounded search, and guarded where they stand. New repositories are their makers' own.

use std::collections::VecDeque;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Names looked at in search of repositories, in one place; the shallow ones first.
const SEARCHED_NAMES_MAX: usize = 20_000;
/// Repositories that are guarded in one place.
const REPOSITORIES_MAX: usize = 100;
/// Submodules and worktrees of one repository that are guarded.
const PARTS_MAX: usize = 200;
/// Levels of directories that the name of a submodule may have.
const MODULE_LEVELS_MAX: usize = 5;
/// Bytes of a configuration or of a `.git` file that are looked at.
const READ_BYTES_MAX: u64 = 1 << 20;
/// Directories that hold other people's files, and many of them.
const UNSEARCHED: [&str; 1] = ["node_modules"];

/// What must not be moved, and what must not be changed; outer ones first.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Guarded {
    pub pinned: Vec<PathBuf>,
    pub frozen: Vec<PathBuf>,
    /// Names that are not there, and that git would follow: they must not come into being.
    pub absent: Vec<PathBuf>,
}

/// The repositories in a directory and below, as the paths of their `.git`. Blocks for as long as the search takes.
pub(super) fn repositories(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut todo = VecDeque::from([root.to_owned()]);
    let mut names = 0;
    while let Some(directory) = todo.pop_front() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            names += 1;
            if names > SEARCHED_NAMES_MAX || found.len() >= REPOSITORIES_MAX {
                return found;
            }
            let name = entry.file_name();
            if name == ".git" {
                found.push(entry.path());
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) && !UNSEARCHED.iter().any(|n| name == *n) {
                todo.push_back(entry.path());
            }
        }
    }
    found
}

/// What of these repositories (paths of their `.git`) is guarded, and of those that `writable` places themselves are.
pub(super) fn guarded(repositories: &[PathBuf], writable: &[PathBuf]) -> Guarded {
    let inside = |path: &Path| writable.iter().any(|place| path.starts_with(place));
    let mut guarded = Guarded::default();
    for place in writable.iter().filter(|place| place.join("HEAD").is_file() && place.join("objects").is_dir()) {
        guarded.repository(place);
    }
    for git in repositories {
        let Ok(found) = git.symlink_metadata() else { continue };
        if found.is_dir() {
            guarded.repository(git);
        } else if found.is_file() {
            // Of a worktree or a submodule; its directory is elsewhere.
            guarded.frozen.push(git.clone());
            if let Some(directory) = directory_of(git).filter(|directory| inside(directory.as_path())) {
                guarded.repository(&directory);
            }
        }
    }
    guarded
}

/// Where a `.git` file says that the repository is.
fn directory_of(file: &Path) -> Option<PathBuf> {
    let text = read(file)?;
    let path = text.strip_prefix("gitdir:")?.trim();
    fs::canonicalize(file.parent()?.join(path)).ok().filter(|path| path.is_dir())
}

fn read(file: &Path) -> Option<String> {
    let small = file.symlink_metadata().is_ok_and(|found| found.is_file() && found.len() <= READ_BYTES_MAX);
    small.then(|| fs::read(file).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())).flatten()
}

impl Guarded {
    /// A repository's own directory.
    fn repository(&mut self, git: &Path) {
        if self.pinned.iter().any(|known| known == git) || !git.is_dir() {
            return;
        }
        self.pinned.push(git.to_owned());
        let at = |name: &str| git.join(name);
        // What is not there cannot be laid over; git itself makes this directory in every new repository.
        if at("HEAD").exists() && at("hooks").symlink_metadata().is_err() {
            let _read_only_repository = fs::create_dir(at("hooks"));
        }
        // Read only where the configuration says so, which cannot change; git makes an empty one then too.
        let worktrees = read(&at("config")).is_some_and(|text| text.to_ascii_lowercase().contains("worktreeconfig"));
        if worktrees && at("config.worktree").symlink_metadata().is_err() {
            let _read_only_repository = fs::File::create_new(at("config.worktree"));
        }
        self.freeze(["hooks", "config", "config.worktree", "gitdir"].map(at));
        match at("commondir").symlink_metadata() {
            Ok(_) => self.freeze([at("commondir")]),
            Err(_) => self.absent.push(at("commondir")),
        }
        self.worktrees(&at("worktrees"));
        self.modules(&at("modules"), MODULE_LEVELS_MAX);
    }

    /// What exists of these. A link is not laid over; its directory is pinned, and what it leads to is not ours.
    fn freeze<const N: usize>(&mut self, places: [PathBuf; N]) {
        let exists = |place: &PathBuf| place.symlink_metadata().is_ok_and(|found| !found.is_symlink());
        self.frozen.extend(places.into_iter().filter(exists));
    }

    fn worktrees(&mut self, directory: &Path) {
        let parts = directories(directory);
        if !parts.is_empty() {
            self.pinned.push(directory.to_owned());
        }
        for part in parts {
            self.freeze(["commondir", "gitdir", "config.worktree"].map(|name| part.join(name)));
            self.pinned.push(part);
        }
    }

    /// Submodules, whose names may have slashes.
    fn modules(&mut self, directory: &Path, levels: usize) {
        let parts = directories(directory);
        if parts.is_empty() || levels == 0 {
            return;
        }
        self.pinned.push(directory.to_owned());
        for part in parts {
            if part.join("HEAD").is_file() { self.repository(&part) } else { self.modules(&part, levels - 1) }
        }
    }
}

/// The directories in a directory, sorted, as many as are guarded.
fn directories(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let entries = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut found: Vec<PathBuf> = entries.take(PARTS_MAX).map(|entry| entry.path()).collect();
    found.sort();
    found
}

/// Who is at a path; None: nothing. A mount on a file ends when the file's name is given to another one.
pub(super) fn identity(path: &Path) -> Option<(u64, u64)> {
    path.symlink_metadata().ok().map(|found| (found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(git: &Path) {
        fs::create_dir_all(git.join("hooks")).unwrap();
        fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::write(git.join("config"), "[core]\n").unwrap();
    }

    #[test]
    fn repositories_are_found_and_what_git_runs_in_them() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        let at = |path: &str| home.join(path);
        for git in [".git", ".git/modules/a", ".git/modules/deep/b", "sub/nested/.git", "node_modules/x/.git"] {
            repository(&at(git));
        }
        fs::create_dir_all(at(".git/worktrees/w")).unwrap();
        for (path, text) in [
            (".git/worktrees/w/commondir", "../..\n"),
            (".git/worktrees/w/gitdir", "/elsewhere/.git\n"),
            (".git/modules/a/config", "[extensions]\n\tworktreeConfig = true\n"),
        ] {
            fs::write(at(path), text).unwrap();
        }
        fs::create_dir(at("a")).unwrap();
        fs::write(at("a/.git"), "gitdir: ../.git/modules/a\n").unwrap();
        fs::remove_dir_all(at(".git/modules/deep/b/hooks")).unwrap();
        let mut found = repositories(&home);
        found.sort();
        assert_eq!(found, [at(".git"), at("a/.git"), at("sub/nested/.git")]);
        let guarded = guarded(&found, std::slice::from_ref(&home));
        let below = |paths: &[PathBuf]| -> Vec<String> {
            paths.iter().map(|path| path.strip_prefix(&home).unwrap().display().to_string()).collect()
        };
        #[rustfmt::skip]
        let frozen = [
            ".git/hooks", ".git/config", ".git/worktrees/w/commondir", ".git/worktrees/w/gitdir", ".git/modules/a/hooks",
            ".git/modules/a/config", ".git/modules/a/config.worktree", ".git/modules/deep/b/hooks", ".git/modules/deep/b/config",
            "a/.git", "sub/nested/.git/hooks", "sub/nested/.git/config",
        ];
        assert_eq!(below(&guarded.frozen), frozen);
        #[rustfmt::skip]
        let pinned = [
            ".git", ".git/worktrees", ".git/worktrees/w", ".git/modules", ".git/modules/a", ".git/modules/deep",
            ".git/modules/deep/b", "sub/nested/.git",
        ];
        assert_eq!(below(&guarded.pinned), pinned);
        let absent = [
            ".git/commondir",
            ".git/modules/a/commondir",
            ".git/modules/deep/b/commondir",
            "sub/nested/.git/commondir",
        ];
        assert_eq!(below(&guarded.absent), absent);
    }
}
