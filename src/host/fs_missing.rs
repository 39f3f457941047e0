//! What a path that names nothing may have meant: likely names where it leads, and the same name elsewhere.
//!
//! Bounded in entries looked at, so that a miss in a huge tree costs little.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::fs_common::SKIPPED_DIRECTORIES;
use super::search::{Entries, Place, Stop, Stopped, Visit, Walk, as_path};
use crate::base::text;
use crate::base::workspace::Workspace;

/// Entries of one directory that are looked at.
const ENTRIES_MAX: usize = 2_000;
/// Entries of the whole tree that are looked at for the same name.
const WALKED_MAX: usize = 20_000;
/// Paths that are named.
const NAMED_MAX: usize = 3;

/// Paths that exist and that `path` (absolute, inside the roots) may have meant, the likeliest first.
pub(super) fn alike(workspace: &Workspace, path: &Path) -> Vec<String> {
    let mut found = mended(workspace, path);
    if found.len() < NAMED_MAX {
        for elsewhere in same_name(workspace, path) {
            if !found.contains(&elsewhere) {
                found.push(elsewhere);
            }
        }
    }
    found.truncate(NAMED_MAX);
    found.iter().map(|path| workspace.shown(path)).collect()
}

/// The path with its wrong names replaced by like ones, from the first wrong name on.
fn mended(workspace: &Workspace, path: &Path) -> Vec<PathBuf> {
    let Some(root) = workspace.roots().iter().find(|root| path.starts_with(root)) else { return Vec::new() };
    let Ok(below) = path.strip_prefix(root) else { return Vec::new() };
    let mut candidates = vec![root.clone()];
    for name in below {
        let next = candidates.iter().flat_map(|directory| {
            let exact = directory.join(name);
            if workspace.look(&exact).is_ok() {
                vec![exact]
            } else {
                like_entries(workspace, directory, &name.to_string_lossy())
            }
        });
        candidates = next.take(NAMED_MAX).collect();
    }
    candidates
}

/// A directory that is a link, or has become one, is not looked into: it may lead out of the roots.
fn like_entries(workspace: &Workspace, directory: &Path, name: &str) -> Vec<PathBuf> {
    let listed = workspace.open_directory(directory).and_then(|open| Entries::read(open.as_fd()));
    let Ok(entries) = listed else { return Vec::new() };
    let names = entries.iter().take(ENTRIES_MAX).filter_map(|(name, _)| std::str::from_utf8(name).ok());
    let found = text::near_misses(name, names).into_iter().map(|name| directory.join(name));
    found.filter(|path| !workspace.protects(path)).collect()
}

/// What has the same name, whatever its case, elsewhere under the working directory: those first whose directories
/// are the most alike from behind.
fn same_name(workspace: &Workspace, path: &Path) -> Vec<PathBuf> {
    let Some(name) = path.file_name().map(OsStr::as_bytes) else { return Vec::new() };
    let walk = Walk {
        base: workspace.working_directory().to_owned(),
        workspace: Arc::new(workspace.clone()),
        hidden: false,
        ignored: false,
        veil: None,
        skipped: SKIPPED_DIRECTORIES.to_vec(),
        depth: usize::MAX,
        share: usize::MAX,
        reads: false,
        shelves: None,
    };
    let stop = Arc::<Stop>::default();
    let first = Namesakes { name: name.into(), stop: Arc::clone(&stop), seen: Arc::default(), found: Vec::new() };
    let Ok(workers) = walk.run(&stop, move || first.clone()) else { return Vec::new() };
    let relative = workers.iter().flat_map(|worker| &worker.found);
    let mut found: Vec<PathBuf> = relative.map(|path| workspace.working_directory().join(as_path(path))).collect();
    let common = |found: &Path| {
        let pairs = found.components().rev().zip(path.components().rev());
        pairs.skip(1).take_while(|(a, b)| a == b).count()
    };
    found.sort_by_cached_key(|found| (usize::MAX - common(found), found.components().count(), found.clone()));
    found
}

/// Collects what has one name, and ends the walk when enough was seen.
#[derive(Clone)]
struct Namesakes {
    name: Arc<[u8]>,
    stop: Arc<Stop>,
    seen: Arc<AtomicUsize>,
    found: Vec<Vec<u8>>,
}

impl Namesakes {
    fn see(&mut self, path: &[u8]) -> bool {
        if self.seen.fetch_add(1, Ordering::Relaxed) >= WALKED_MAX {
            self.stop.stop(Stopped::Late);
        }
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        name.eq_ignore_ascii_case(&self.name)
    }
}

impl Visit for Namesakes {
    fn enters(&mut self, path: &[u8]) -> bool {
        if self.see(path) {
            self.found.push(path.to_owned());
        }
        true
    }

    fn takes(&mut self, path: &[u8]) -> bool {
        self.see(path)
    }

    fn file(&mut self, place: Place<'_>) {
        self.found.push(place.path.to_owned());
    }

    // What cannot be read has no namesakes.
    fn failed(&mut self, _path: &[u8], _cause: io::Error) {}
}

#[cfg(test)]
mod tests {
    use super::super::fs_common::testing::workspace;
    use super::*;

    #[test]
    fn wrong_names_on_the_way_are_mended() {
        let files = [
            "src/host/fs_read.rs",
            "src/host/fs_write.rs",
            "docs/README.md",
            "other/host/deep/thing.rs",
            ".git/thing.rs",
        ];
        let files: Vec<(&str, &str)> = files.iter().map(|file| (*file, "x")).collect();
        let (_home, workspace) = workspace(&files);
        #[rustfmt::skip]
        let table: &[(&str, &[&str])] = &[
            ("src/host/fs_raed.rs", &["src/host/fs_read.rs"]),
            ("src/hots/fs_read.rs", &["src/host/fs_read.rs"]),
            ("scr/hots/fs_wriet.rs", &["src/host/fs_write.rs"]),
            ("docs/readme.MD", &["docs/README.md"]),
            ("README.md", &["docs/README.md"]),
            ("lib/host/thing.rs", &["other/host/deep/thing.rs"]),
            ("fs_write.rs", &["src/host/fs_write.rs"]),
            ("nothing/like/it", &[]),
        ];
        for (input, want) in table {
            let path = workspace.resolve(input).unwrap();
            let found = alike(&workspace, &path);
            assert_eq!(found.first().map(String::as_str), want.first().copied(), "{input}: {found:?}");
        }
    }

    #[test]
    fn nothing_outside_is_named() {
        let (home, workspace) = workspace(&[("a", "x")]);
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "").unwrap();
        std::os::unix::fs::symlink(outside.path(), home.path().join("out")).unwrap();
        for input in ["outx/secre", "ou/secret", "secre"] {
            let path = workspace.resolve(input).unwrap();
            assert!(alike(&workspace, &path).iter().all(|name| !name.contains("secret")), "{input}");
        }
    }

    #[test]
    fn the_most_alike_directory_comes_first_and_few_are_named() {
        let files = ["a/x/mod.rs", "b/mod.rs", "c/y/mod.rs", "d/z/mod.rs"].map(|file| (file, "x"));
        let (_home, workspace) = workspace(&files);
        let path = workspace.resolve("q/y/mod.rs").unwrap();
        assert_eq!(alike(&workspace, &path), ["c/y/mod.rs", "b/mod.rs", "a/x/mod.rs"]);
    }
}
