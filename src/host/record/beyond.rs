//! What commands change and no undo puts back: it is told.
//!
//! Commits and branches are git's, rights to run as somebody are nobody's to give back, and the roots themselves lie in what is not ours.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::fs::{AtFlags, FileType};

use super::tree::{Handles, Stamp};
use crate::host::search::{Kind, join, open_file};

/// To run as the owner, or as the group: an undo gives no program such a right.
pub(super) const OWNERS_BITS: u32 = 0o6000;
/// What is told of them.
pub(super) const BITS: &str = "its bits to run as its owner or group (setuid, setgid) are not put back";
/// Bytes of a `.git` that says where the repository is.
const LINK_BYTES_MAX: u64 = 8 << 10;

/// What is others' to keep.
#[derive(Debug, Default)]
pub(super) struct Others {
    /// Each `.git`, as far as it tells of commits and branches.
    repositories: Repositories,
    /// The roots' own permissions.
    permissions: Vec<(PathBuf, u32)>,
}

impl Others {
    /// As it is now.
    pub(super) fn of(repositories: Repositories, roots: &Handles) -> Self {
        Self { repositories, permissions: permissions(roots) }
    }

    /// What of it is others now, and what of that is not undone.
    pub(super) fn changed(&self, now: &Self, passed_over: &[PathBuf]) -> Vec<(PathBuf, &'static str)> {
        let changed = changed_repositories(&self.repositories, &now.repositories, passed_over);
        let is_other =
            |(root, mode): &&(PathBuf, u32)| now.permissions.iter().any(|now| now.0 == *root && now.1 != *mode);
        let roots = self.permissions.iter().filter(is_other);
        let roots = roots.map(|(root, _)| (root.clone(), "its own permissions are not undone"));
        let git = "commits, branches and git's index are not undone";
        changed.into_iter().map(|path| (path, git)).chain(roots).collect()
    }
}

/// The permissions of the roots themselves.
fn permissions(handles: &Handles) -> Vec<(PathBuf, u32)> {
    let of =
        |(root, handle): &(PathBuf, OwnedFd)| Some((root.clone(), Stamp::of(&rustix::fs::fstat(handle).ok()?).mode));
    handles.iter().filter_map(of).collect()
}

/// What tells of commits and branches, by the `.git` that it lies in: of each its own stamp, and those of what changes with them.
pub(super) type Repositories = BTreeMap<Vec<u8>, [Option<Stamp>; 4]>;

/// Those that are others now, are new, or are gone.
fn changed_repositories(before: &Repositories, now: &Repositories, passed_over: &[PathBuf]) -> Vec<PathBuf> {
    let names: BTreeSet<&Vec<u8>> = before.keys().chain(now.keys()).collect();
    let changed = names.into_iter().filter(|name| before.get(*name) != now.get(*name));
    let paths = changed.map(|name| PathBuf::from(OsStr::from_bytes(name)));
    // What is passed over since is not gone.
    paths.filter(|path| !passed_over.iter().any(|over| path.starts_with(over))).collect()
}

/// How the repository of an open directory is.
pub(super) fn repository(directory: &OwnedFd) -> [Option<Stamp>; 4] {
    let stamp = |name: &[u8]| {
        let found = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let stamp = Stamp::of(&found);
        // Of a directory only which one it is: what git puts there for a moment changes its times.
        Some(match Kind::from(FileType::from_raw_mode(found.st_mode)) {
            Kind::Directory => Stamp { bytes: 0, modified: (0, 0), changed: (0, 0), ..stamp },
            Kind::File | Kind::Link | Kind::Other => stamp,
        })
    };
    let own = stamp(b".git");
    let elsewhere = own.filter(Stamp::is_file).and_then(|_| led_to(directory));
    let at = elsewhere.as_deref().unwrap_or(b".git");
    let [head, log, packed] = ["HEAD", "logs/HEAD", "packed-refs"].map(|name| stamp(&join(at, name.as_bytes())));
    [own, head, log, packed]
}

/// Where a `.git` that is a file says that the repository is: a submodule's, a worktree's.
fn led_to(directory: &OwnedFd) -> Option<Vec<u8>> {
    let mut said = Vec::new();
    let file = File::from(open_file(directory.as_fd(), b".git").ok()?);
    io::Read::read_to_end(&mut io::Read::take(file, LINK_BYTES_MAX), &mut said).ok()?;
    Some(said.strip_prefix(b"gitdir: ")?.trim_ascii_end().to_vec())
}
