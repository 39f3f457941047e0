//! Where the repository of a directory lies, found as git finds it, without running git.
//!
//! A repository outside of the roots is worked on when it is the directory's own: it lies above, where no sandboxed
//! program could have put it, or it names the directory as its worktree or submodule itself. A `.git` file alone
//! proves nothing: a program can write one that leads to somebody's other repository.

use std::fs;
use std::path::{Path, PathBuf};

/// Bytes of a file of git's that is looked at.
const READ_BYTES_MAX: u64 = 1 << 20;

/// A repository, as absolute paths without links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Repository {
    /// Its working tree.
    pub top: PathBuf,
    /// Its own directory, and the one that it shares with other worktrees: mostly the same.
    pub directories: Vec<PathBuf>,
}

/// The repository that `directory` (absolute, without links) is in. None: none that is surely its own.
pub(super) fn repository(directory: &Path) -> Option<Repository> {
    for top in directory.ancestors() {
        let git = top.join(".git");
        let Ok(found) = git.symlink_metadata() else { continue };
        if found.is_dir() {
            return Some(Repository { top: top.to_owned(), directories: vec![git] });
        }
        let own = read(&git).and_then(|text| target(top, text.strip_prefix("gitdir:")?.trim()))?;
        let common = read(&own.join("commondir")).and_then(|text| target(&own, text.trim()));
        let back = read(&own.join("gitdir")).and_then(|text| target(&own, text.trim()));
        let is_worktree = back.is_some_and(|back| back == git);
        let is_submodule = || worktree(&own).is_some_and(|back| back == top);
        return match common {
            Some(common) if is_worktree && own.starts_with(&common) => {
                Some(Repository { top: top.to_owned(), directories: vec![own, common] })
            }
            None if is_submodule() => Some(Repository { top: top.to_owned(), directories: vec![own] }),
            Some(_) | None => None,
        };
    }
    None
}

fn read(file: &Path) -> Option<String> {
    let small = file.symlink_metadata().is_ok_and(|found| found.is_file() && found.len() <= READ_BYTES_MAX);
    small.then(|| fs::read_to_string(file).ok()).flatten()
}

fn target(base: &Path, text: &str) -> Option<PathBuf> {
    fs::canonicalize(base.join(text)).ok()
}

/// What the configuration of a submodule's repository says of its working tree.
fn worktree(git: &Path) -> Option<PathBuf> {
    let config = read(&git.join("config"))?;
    let line = config.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        key.trim().eq_ignore_ascii_case("worktree").then(|| value.trim().trim_matches('"').to_owned())
    })?;
    target(git, &line)
}

#[cfg(test)]
mod tests {
    use super::super::git_common::testing::Repository as Place;
    use super::*;

    #[test]
    fn worktrees_and_submodules_are_their_own_and_foreign_ones_are_not() {
        let (place, other) = (Place::new(), Place::new());
        let top = place.directory.path().canonicalize().unwrap();
        fs::create_dir_all(top.join("sub/deep")).unwrap();
        place.git(&["worktree", "add", "-q", "trees/x"]);
        let source = other.directory.path().to_str().unwrap();
        place.git(&["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", source, "module"]);
        fs::create_dir(top.join("liar")).unwrap();
        fs::write(top.join("liar/.git"), format!("gitdir: {source}/.git\n")).unwrap();
        let at = |path: &str| top.join(path);
        let own = |top: &str, directories: &[&str]| {
            Some(Repository { top: at(top), directories: directories.iter().map(|path| at(path)).collect() })
        };
        #[rustfmt::skip]
        let table = [
            ("sub/deep", Some(Repository { top: top.clone(), directories: vec![at(".git")] })),
            ("trees/x", own("trees/x", &[".git/worktrees/x", ".git"])), ("module", own("module", &[".git/modules/module"])),
            ("liar", None),
        ];
        for (directory, want) in table {
            assert_eq!(repository(&at(directory)), want, "{directory}");
        }
        assert_eq!(repository(Path::new("/")), None);
    }
}
