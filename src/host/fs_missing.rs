//! What a path that names nothing may have meant: likely names where it leads, and the same name elsewhere.
//!
//! Bounded in entries looked at, so that a miss in a huge tree costs little.

use std::path::{Path, PathBuf};

use ignore::WalkBuilder;

use super::fs_common::SKIPPED_DIRECTORIES;
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
            if exact.symlink_metadata().is_ok() {
                vec![exact]
            } else {
                like_entries(directory, &name.to_string_lossy())
            }
        });
        candidates = next.take(NAMED_MAX).collect();
    }
    candidates
}

fn like_entries(directory: &Path, name: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let names = entries.take(ENTRIES_MAX).filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let names: Vec<String> = names.collect();
    text::near_misses(name, names.iter().map(String::as_str)).into_iter().map(|name| directory.join(name)).collect()
}

/// Files of the same name, whatever its case, elsewhere under the working directory: those first whose directories
/// are the most alike from behind.
fn same_name(workspace: &Workspace, path: &Path) -> Vec<PathBuf> {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return Vec::new() };
    let mut builder = WalkBuilder::new(workspace.working_directory());
    builder.require_git(false).filter_entry(|entry| !SKIPPED_DIRECTORIES.iter().any(|skip| entry.file_name() == *skip));
    let same = |found: &Path| {
        found.file_name().and_then(|other| other.to_str()).is_some_and(|other| other.eq_ignore_ascii_case(name))
    };
    let walked = builder.build().take(WALKED_MAX).filter_map(Result::ok);
    let mut found: Vec<PathBuf> = walked.map(ignore::DirEntry::into_path).filter(|found| same(found)).collect();
    let common = |found: &Path| {
        let pairs = found.components().rev().zip(path.components().rev());
        pairs.skip(1).take_while(|(a, b)| a == b).count()
    };
    found.sort_by_cached_key(|found| (usize::MAX - common(found), found.components().count(), found.clone()));
    found
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
    fn the_most_alike_directory_comes_first_and_few_are_named() {
        let files = ["a/x/mod.rs", "b/mod.rs", "c/y/mod.rs", "d/z/mod.rs"].map(|file| (file, "x"));
        let (_home, workspace) = workspace(&files);
        let path = workspace.resolve("q/y/mod.rs").unwrap();
        assert_eq!(alike(&workspace, &path), ["c/y/mod.rs", "b/mod.rs", "a/x/mod.rs"]);
    }
}
