//! What of git repositories must stay as it is: what git runs or follows later, outside of the sandbox.
//!
//! Of the repository in a writable place itself nothing gets by: its directory cannot be moved, and neither hooks and
//! configuration nor those of its submodules and worktrees can be changed, nor what those name: a directory of hooks, a
//! further configuration, the end of a link. Repositories below are found by a bounded search, and guarded where they
//! stand. New repositories are their makers' own. Not held: a name that is not there yet, and `~` in a configuration.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use super::git_config::settings;

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
/// Settings of one configuration that are looked at.
const READ_SETTINGS_MAX: usize = 10_000;
/// Links on one way.
const LINKS_MAX: usize = 40;
/// Levels of configurations that name further ones.
const INCLUDE_LEVELS_MAX: usize = 5;
/// Directories that hold other people's files, and many of them.
const UNSEARCHED: [&str; 1] = ["node_modules"];

/// What must not be moved, and what must not be changed; outer ones first.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Guarded {
    pub pinned: Vec<PathBuf>,
    /// Links that must not be exchanged.
    pub links: Vec<PathBuf>,
    pub frozen: Vec<PathBuf>,
    /// Names that are not there, and that git would follow: they must not come into being.
    pub absent: Vec<PathBuf>,
    /// Where programs can write.
    writable: Vec<PathBuf>,
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
    let mut guarded = Guarded { writable: writable.to_vec(), ..Guarded::default() };
    for place in writable.iter().filter(|place| place.join("HEAD").is_file() && place.join("objects").is_dir()) {
        guarded.repository(place, place);
    }
    for git in repositories {
        let Ok(found) = git.symlink_metadata() else { continue };
        let tree = git.parent().unwrap_or(git);
        let directory = if found.is_symlink() {
            guarded.lead(git)
        } else if found.is_file() {
            // Of a worktree or a submodule; its directory is elsewhere.
            guarded.frozen.push(git.clone());
            directory_of(git)
        } else {
            Some(git.clone())
        };
        if let Some(directory) = directory.filter(|directory| found.is_dir() || guarded.inside(directory)) {
            guarded.repository(&directory, tree);
            // A worktree shares the configuration of another directory.
            let common = read(&directory.join("commondir")).map(|text| directory.join(text.trim()).join("config"));
            if let Some(config) = common {
                guarded.named_in(&config, tree, INCLUDE_LEVELS_MAX);
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
    fn inside(&self, path: &Path) -> bool {
        self.writable.iter().any(|place| path.starts_with(place) && path != place)
    }

    /// A repository's own directory, and a working tree of it.
    fn repository(&mut self, git: &Path, tree: &Path) {
        if !git.is_dir() {
            return;
        }
        if !self.pinned.iter().any(|known| known == git) {
            self.pinned.push(git.to_owned());
            self.own_directory(git);
        }
        // The same repository may have other trees, where the same words lead elsewhere.
        self.named_in(&git.join("config"), tree, INCLUDE_LEVELS_MAX);
        self.named_in(&git.join("config.worktree"), tree, INCLUDE_LEVELS_MAX);
    }

    fn own_directory(&mut self, git: &Path) {
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
        for name in ["hooks", "config", "config.worktree", "gitdir"] {
            self.freeze(&at(name));
        }
        match at("commondir").symlink_metadata() {
            Ok(_) => self.freeze(&at("commondir")),
            Err(_) => self.absent.push(at("commondir")),
        }
        self.worktrees(&at("worktrees"));
        self.modules(&at("modules"), MODULE_LEVELS_MAX);
    }

    /// What a configuration leads to in a working tree: a directory of hooks, further configurations.
    fn named_in(&mut self, config: &Path, tree: &Path, levels: usize) {
        let Some(text) = fs::canonicalize(config).ok().and_then(|file| read(&file)) else { return };
        for (section, name, value) in settings(&text).into_iter().take(READ_SETTINGS_MAX) {
            let Some(value) = value.filter(|value| !value.is_empty() && !value.starts_with('~')) else { continue };
            match (section.as_str(), name.as_str()) {
                ("core", "hookspath") => self.freeze_named(&tree.join(value)),
                ("include" | "includeif", "path") if levels > 0 => {
                    let further = config.parent().unwrap_or(config).join(value);
                    if self.freeze_named(&further) {
                        self.named_in(&further, tree, levels - 1);
                    }
                    continue;
                }
                _ => continue,
            };
        }
    }

    /// What a name of somebody's choice leads to, where it exists and is no part of the way to the repository itself.
    /// Whether it was found.
    fn freeze_named(&mut self, place: &Path) -> bool {
        let Some(end) = self.lead(place) else { return false };
        if self.inside(&end) && !self.pinned.iter().any(|git| git.starts_with(&end)) {
            self.freeze(&end);
        }
        true
    }

    /// What exists of this, and what it leads to when it is a link; of a directory, what its links lead to.
    fn freeze(&mut self, place: &Path) {
        let Ok(found) = place.symlink_metadata() else { return };
        let end = if found.is_symlink() { self.lead(place) } else { Some(place.to_owned()) };
        let Some(end) = end else { return };
        if self.frozen.contains(&end) {
            return;
        }
        if !found.is_symlink() || self.inside(&end) {
            self.frozen.push(end.clone());
        }
        for entry in fs::read_dir(&end).into_iter().flatten().flatten().take(PARTS_MAX) {
            let leads = entry.file_type().is_ok_and(|kind| kind.is_symlink()).then(|| self.lead(&entry.path()));
            let file = leads.flatten().filter(|end| self.inside(end) && end.is_file() && !self.frozen.contains(end));
            self.frozen.extend(file);
        }
    }

    /// Where a way ends that may have links in it; None: nowhere. What of it could be exchanged in a writable place
    /// is held: its links and its directories.
    fn lead(&mut self, place: &Path) -> Option<PathBuf> {
        let parts = |path: &Path| -> Vec<OsString> {
            path.components().rev().map(|part| part.as_os_str().to_owned()).collect()
        };
        let mut todo = parts(place);
        let mut at = PathBuf::from("/");
        let mut links = 0;
        while let Some(part) = todo.pop() {
            match Path::new(&part).components().next()? {
                Component::RootDir => at = PathBuf::from("/"),
                Component::ParentDir => drop(at.pop()),
                Component::CurDir | Component::Prefix(_) => {}
                Component::Normal(name) => {
                    let next = at.join(name);
                    let found = next.symlink_metadata().ok()?;
                    if found.is_symlink() {
                        links += 1;
                        if links > LINKS_MAX {
                            return None;
                        }
                        todo.extend(parts(&fs::read_link(&next).ok()?));
                        self.hold(next, true);
                    } else {
                        if found.is_dir() && !todo.is_empty() {
                            self.hold(next.clone(), false);
                        }
                        at = next;
                    }
                }
            }
        }
        Some(at)
    }

    fn hold(&mut self, place: PathBuf, link: bool) {
        let held = self.pinned.contains(&place) || self.links.contains(&place) || self.frozen.contains(&place);
        if self.inside(&place) && !held {
            if link { self.links.push(place) } else { self.pinned.push(place) }
        }
    }

    fn worktrees(&mut self, directory: &Path) {
        let parts = directories(directory);
        if !parts.is_empty() {
            self.pinned.push(directory.to_owned());
        }
        for part in parts {
            for name in ["commondir", "gitdir", "config.worktree"] {
                self.freeze(&part.join(name));
            }
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
            if part.join("HEAD").is_file() { self.repository(&part, &part) } else { self.modules(&part, levels - 1) }
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

    #[test]
    fn what_links_and_configurations_lead_to_is_guarded() {
        use std::os::unix::fs::symlink;
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        let at = |path: &str| home.join(path);
        repository(&at("real"));
        symlink("real", at(".git")).unwrap();
        for directory in ["scripts/deep", "tools/hooks", "more"] {
            fs::create_dir_all(at(directory)).unwrap();
        }
        for file in ["scripts/deep/pc", "more/one", "more/two", "tools/hooks/pre-push"] {
            fs::write(at(file), "").unwrap();
        }
        symlink("../../scripts/link", at("real/hooks/pre-commit")).unwrap();
        symlink("deep/pc", at("scripts/link")).unwrap();
        symlink("../nothing", at("real/hooks/post-commit")).unwrap();
        symlink("/etc/passwd", at("real/hooks/pre-push")).unwrap();
        let config = "[core]\nhooksPath = tools/hooks\n[include]\npath = ../more/one\npath = ~/x\npath = ../none\n";
        fs::write(at("real/config"), config).unwrap();
        fs::write(at("more/one"), "[includeIf \"onbranch:x\"]\npath = two\n[core]\nhooksPath = .\n").unwrap();
        let guarded = guarded(&[at(".git")], std::slice::from_ref(&home));
        let below = |paths: &[PathBuf]| -> Vec<String> {
            let mut below: Vec<String> =
                paths.iter().map(|path| path.strip_prefix(&home).unwrap().display().to_string()).collect();
            below.sort();
            below
        };
        assert_eq!(
            below(&guarded.frozen),
            ["more/one", "more/two", "real/config", "real/hooks", "scripts/deep/pc", "tools/hooks",]
        );
        assert_eq!(
            below(&guarded.links),
            [".git", "real/hooks/post-commit", "real/hooks/pre-commit", "real/hooks/pre-push", "scripts/link",]
        );
        assert_eq!(below(&guarded.pinned), ["more", "real", "scripts", "scripts/deep", "tools"]);
    }
}
