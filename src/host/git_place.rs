//! Where the repository of a directory lies, found as git finds it, without running git.
//!
//! A repository outside of the roots is worked on when it is the directory's own: it lies above, where no sandboxed
//! program could have put it, or it names the directory as its worktree or submodule itself. A `.git` file alone
//! proves nothing: a program can write one that leads to somebody's other repository.
//!
//! What the worktrees of a repository share (configuration, hooks, objects) git looks for where a file `commondir` says. A
//! program that goes on in the background can put one there at any moment, so that git is told by a variable instead, before
//! which it does not look at the file: see [`shared`].
//!
//! Nothing of a repository leads git out of the roots but what leads back: a `.git` that is a link or a file is believed when it
//! leads into the roots, or to a directory that names this one as its worktree or submodule. See also `git_stray`.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::git_stray::{Stray, stray};
use crate::base::workspace::Workspace;

/// Bytes of a file of git's that is looked at.
const READ_BYTES_MAX: u64 = 1 << 20;

/// The file that says where what is shared lies.
const COMMON: &str = "commondir";

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
        let own = named_by(top, &git)?;
        let common = read(&own.join(COMMON)).and_then(|text| target(&own, text.trim()));
        let is_worktree = is_worktree(&own, &git);
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

/// Where git is to find what the worktrees of a repository share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shared {
    /// In this directory, absolute and without links.
    In(PathBuf),
    /// This file leads somewhere else, and git did not put it there.
    Led(PathBuf),
    /// Part of the repository lies out of the roots, and does not lead back.
    Astray(Stray),
}

/// The same for the repository that git finds from the working directory. None: it finds none, or says by itself what is wrong with
/// it.
pub(super) fn shared(workspace: &Workspace) -> Option<Shared> {
    let (top, git, own) = found(workspace.working_directory())?;
    let leads = git.symlink_metadata().is_ok_and(|found| !found.is_dir());
    let is_back = || is_worktree(&own, &git) || worktree(&own).is_some_and(|back| back == top);
    let is_believed = |place: &Path| workspace.contains(place) && !workspace.protects(place);
    if leads && !is_believed(&own) && !is_back() {
        return Some(Shared::Astray(Stray { part: git, to: own }));
    }
    let shared = shared_of(own.clone());
    let Shared::In(common) = &shared else { return Some(shared) };
    let parts = [own.as_path(), common.as_path()];
    // Its working tree is its own as well.
    let tree = common.parent().filter(|_| common.ends_with(".git"));
    let is_own = |place: &Path| is_believed(place) || parts.into_iter().chain(tree).any(|part| place.starts_with(part));
    Some(stray(&parts, &is_own).map_or(shared, Shared::Astray))
}

/// The repository that git finds from `directory`: its working tree, what stands for its own directory there, and that directory
/// without links.
fn found(directory: &Path) -> Option<(PathBuf, PathBuf, PathBuf)> {
    for top in directory.ancestors() {
        let git = top.join(".git");
        if let Ok(found) = fs::metadata(&git) {
            if found.is_file() {
                let own = named_by(top, &fs::canonicalize(&git).ok()?)?;
                return Some((top.to_owned(), git, own));
            }
            if is_repository(&git) {
                let own = fs::canonicalize(&git).ok()?;
                return Some((top.to_owned(), git, own));
            }
        }
        if is_repository(top) {
            return Some((top.to_owned(), top.to_owned(), top.to_owned()));
        }
    }
    None
}

/// Where a `.git` file of `top` leads, read as git reads it: to the byte.
fn named_by(top: &Path, file: &Path) -> Option<PathBuf> {
    let text = read_bytes(file)?;
    let text = text.split(|byte| *byte == 0).next()?.strip_prefix(b"gitdir: ")?;
    let end = text.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r'))?;
    fs::canonicalize(top.join(OsStr::from_bytes(&text[..=end]))).ok()
}

/// Whether a repository's own directory is that of the linked worktree with this `.git`.
fn is_worktree(own: &Path, git: &Path) -> bool {
    read(&own.join("gitdir")).and_then(|text| target(own, text.trim())).is_some_and(|back| back == git)
}

/// Whether git takes a directory for a repository's own.
fn is_repository(git: &Path) -> bool {
    let may_be_entered =
        |name: &str| fs::metadata(git.join(name)).is_ok_and(|found| found.permissions().mode() & 0o111 != 0);
    let is_whole =
        || git.join(COMMON).symlink_metadata().is_ok() || may_be_entered("objects") && may_be_entered("refs");
    is_head(&git.join("HEAD")) && is_whole()
}

/// Whether git takes a file for the `HEAD` of a repository: it names a branch or a commit.
fn is_head(file: &Path) -> bool {
    if let Ok(to) = fs::read_link(file) {
        return to.as_os_str().as_bytes().starts_with(b"refs/");
    }
    let Some(text) = read_bytes(file) else { return false };
    match text.strip_prefix(b"ref:") {
        Some(named) => named.trim_ascii_start().starts_with(b"refs/"),
        None => text.len() >= 40 && text[..40].iter().all(u8::is_ascii_hexdigit),
    }
}

fn shared_of(own: PathBuf) -> Shared {
    let file = own.join(COMMON);
    if file.symlink_metadata().is_err() {
        return Shared::In(own);
    }
    // git puts it into the directory of a linked worktree, and it leads to the repository that this lies in.
    let linked = own.parent().filter(|above| above.ends_with("worktrees") && !own.ends_with(".git"));
    let named = read(&file).and_then(|text| target(&own, text.trim()));
    match (linked.and_then(Path::parent), named) {
        (Some(around), Some(named)) if around == named => Shared::In(named),
        _ => Shared::Led(file),
    }
}

pub(super) fn read_bytes(file: &Path) -> Option<Vec<u8>> {
    let small = file.symlink_metadata().is_ok_and(|found| found.is_file() && found.len() <= READ_BYTES_MAX);
    small.then(|| fs::read(file).ok()).flatten()
}

fn read(file: &Path) -> Option<String> {
    read_bytes(file).and_then(|bytes| String::from_utf8(bytes).ok())
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

    #[test]
    fn what_is_shared_is_found_as_git_finds_it() {
        let (place, other) = (Place::new(), Place::new());
        let top = place.directory.path().canonicalize().unwrap();
        let at = |path: &str| top.join(path);
        let source = other.directory.path().canonicalize().unwrap();
        place.git(&["worktree", "add", "-q", "trees/x"]);
        place.git(&[
            "-c",
            "protocol.file.allow=always",
            "submodule",
            "--quiet",
            "add",
            source.to_str().unwrap(),
            "module",
        ]);
        place.git(&["init", "-q", "--separate-git-dir", "apart", "separate"]);
        place.git(&["init", "-q", "--bare", "bare.git"]);
        place.git(&["init", "-q", "led"]);
        for directory in ["sub/deep", "empty/.git", "linked", "liar", "fake/worktrees"] {
            fs::create_dir_all(at(directory)).unwrap();
        }
        std::os::unix::fs::symlink(at("apart"), at("linked/.git")).unwrap();
        fs::write(at("liar/.git"), format!("gitdir: {}\n", at("led/.git").display())).unwrap();
        fs::write(at("led/.git/commondir"), format!("{}\n", source.join(".git").display())).unwrap();
        // One that looks like a worktree's, and is a repository's own.
        place.git(&["init", "-q", "fake/worktrees"]);
        fs::write(at("fake/worktrees/.git/commondir"), "../..\n").unwrap();
        let shared = |directory: &Path| {
            let roots = [top.clone(), directory.to_owned()];
            shared(&Workspace::new(directory, &roots).unwrap())
        };
        let within = |path: &str| Some(Shared::In(at(path)));
        let led = |path: &str| Some(Shared::Led(at(path)));
        #[rustfmt::skip]
        let table = [
            ("", within(".git")), ("sub/deep", within(".git")), ("empty", within(".git")), (".git/hooks", within(".git")),
            ("trees/x", within(".git")), (".git/worktrees/x", within(".git")), ("module", within(".git/modules/module")),
            ("separate", within("apart")), ("linked", within("apart")), ("bare.git", within("bare.git")), ("bare.git/refs", within("bare.git")),
            ("led", led("led/.git/commondir")), ("liar", led("led/.git/commondir")), ("fake/worktrees", led("fake/worktrees/.git/commondir")),
        ];
        for (directory, want) in table {
            assert_eq!(shared(&at(directory)), want, "{directory}");
        }
        // A worktree's is changed.
        for text in ["../../../led/.git\n", "/none\n", ""] {
            fs::write(at(".git/worktrees/x/commondir"), text).unwrap();
            assert_eq!(shared(&at("trees/x")), led(".git/worktrees/x/commondir"), "{text:?}");
        }
        assert_eq!(shared(Path::new("/")), None);
    }
}
