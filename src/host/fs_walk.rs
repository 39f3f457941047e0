//! Walks directories by the rules that the search tools share.
//!
//! Ignore files count (also outside a repository), hidden names are skipped, links are not followed, and
//! `.git` and `node_modules` are entered only when they are named.

use std::path::Path;

use ignore::WalkBuilder;

use super::fs_common::SKIPPED_DIRECTORIES;
use crate::base::workspace::Workspace;

/// What is walked besides the usual.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WalkOptions {
    /// Names that start with a dot too.
    pub hidden: bool,
    /// In the order of their paths.
    pub sorted: bool,
}

/// A walk from `base`, which is absolute and inside the roots. `asked` is what the caller wrote: it may name
/// directories that are skipped otherwise.
pub(super) fn walker(workspace: &Workspace, base: &Path, asked: &str, options: WalkOptions) -> ignore::Walk {
    let mut builder = WalkBuilder::new(base);
    builder.hidden(!options.hidden).require_git(false).follow_links(false).current_dir(workspace.working_directory());
    if options.sorted {
        builder.sort_by_file_name(Ord::cmp);
    }
    let named: Vec<&str> = asked.split('/').collect();
    let skipped: Vec<&str> = SKIPPED_DIRECTORIES.into_iter().filter(|name| !named.contains(name)).collect();
    builder.filter_entry(move |entry| {
        entry.depth() == 0 || !skipped.iter().any(|name| entry.file_name() == *name) || !is_directory(entry)
    });
    builder.build()
}

fn is_directory(entry: &ignore::DirEntry) -> bool {
    entry.file_type().is_some_and(|kind| kind.is_dir())
}
