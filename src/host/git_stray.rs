//! Parts of a repository that lie elsewhere: links in its own directory, and object stores that it borrows from.
//!
//! git follows them all. An unpacked archive with a link to somebody's other repository (or to any file, whose lines then stand in
//! a message) would show through the git tools what the file tools refuse. Looked at is what git reads; not the hooks, which no
//! look runs, and no single objects, whose links would have to name what they want to see.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::git_place::read_bytes;
use crate::base::workspace::real;

/// A part of a repository, and where it leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stray {
    /// The link or the file.
    pub part: PathBuf,
    /// Where it leads.
    pub to: PathBuf,
}

/// Directories that git reads all of.
const WHOLE: [&str; 8] = ["info", "logs", "rebase-apply", "rebase-merge", "refs", "reftable", "sequencer", "worktrees"];

/// How far stores borrow from each other: git goes five steps.
const BORROWED_MAX: usize = 8;

/// The first part of a repository with these directories that leads to no believed place.
pub(super) fn stray(directories: &[&Path], is_believed: &dyn Fn(&Path) -> bool) -> Option<Stray> {
    let mut walk = Walk { is_believed, seen: HashSet::new() };
    directories.iter().find_map(|directory| walk.repository(directory)).map(|found| *found)
}

struct Walk<'w> {
    is_believed: &'w dyn Fn(&Path) -> bool,
    /// Directories that were looked at: links may go round.
    seen: HashSet<PathBuf>,
}

impl Walk<'_> {
    fn repository(&mut self, git: &Path) -> Option<Box<Stray>> {
        self.entries(git, &mut |walk, name, path| match name.to_str() {
            Some("objects") => walk.objects(&path, 0),
            Some(name) if WHOLE.contains(&name) => walk.whole(&path),
            Some(_) | None => None,
        })
    }

    fn whole(&mut self, directory: &Path) -> Option<Box<Stray>> {
        self.entries(directory, &mut |walk, _, path| walk.whole(&path))
    }

    fn objects(&mut self, store: &Path, borrowed: usize) -> Option<Box<Stray>> {
        let found = self.entries(store, &mut |walk, name, path| match name.to_str() {
            Some("info" | "pack") => walk.whole(&path),
            Some(_) | None => None,
        });
        if found.is_some() || borrowed == BORROWED_MAX {
            return found;
        }
        let list = store.join("info/alternates");
        let text = fs::canonicalize(&list).ok().and_then(|list| read_bytes(&list))?;
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty() && !line.starts_with(b"#"));
        for line in lines {
            let named = store.join(OsStr::from_bytes(line));
            // Some versions of git take `..` by name, others as the kernel does. In quotation marks names are written otherwise.
            let places = [fs::canonicalize(&named).ok(), real(&named).ok()];
            for to in places.into_iter().flatten() {
                if line.starts_with(b"\"") || !(self.is_believed)(&to) {
                    return Some(Box::new(Stray { part: list, to }));
                }
                if let Some(found) = self.objects(&to, borrowed + 1) {
                    return Some(found);
                }
            }
        }
        None
    }

    /// Holds the links of a directory against what is believed, and goes on with what is a directory.
    fn entries(
        &mut self,
        directory: &Path,
        each: &mut dyn FnMut(&mut Self, &OsStr, PathBuf) -> Option<Box<Stray>>,
    ) -> Option<Box<Stray>> {
        if !self.seen.insert(directory.to_owned()) {
            return None;
        }
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let (name, part) = (entry.file_name(), entry.path());
            let Ok(kind) = entry.file_type() else { continue };
            let found = if kind.is_symlink() && name != "hooks" {
                let to = real(&part).ok()?;
                if !(self.is_believed)(&to) {
                    return Some(Box::new(Stray { part, to }));
                }
                if to.is_dir() { each(self, &name, to) } else { None }
            } else if kind.is_dir() {
                each(self, &name, part)
            } else {
                None
            };
            if found.is_some() {
                return found;
            }
        }
        None
    }
}
