//! The host's tools: one file a tool, its definition, permission subject, run and tests together.

pub mod bash;
mod fs_common;
mod fs_delete;
mod fs_edit;
mod fs_file;
mod fs_glob;
mod fs_grep;
mod fs_list;
mod fs_move;
mod fs_read;
mod fs_stat;
mod fs_walk;
mod fs_write;

use std::borrow::Borrow;
use std::sync::Arc;

use crate::base::workspace::Workspace;
use crate::tool::Tool;

pub use fs_delete::FsDelete;
pub use fs_edit::FsEdit;
pub use fs_glob::FsGlob;
pub use fs_grep::FsGrep;
pub use fs_list::FsList;
pub use fs_move::FsMove;
pub use fs_read::FsRead;
pub use fs_stat::FsStat;
pub use fs_write::FsWrite;

/// The tools that read, search and change files inside `workspace`, in the order in which they are told.
///
/// Takes the workspace shared or for keeps.
pub fn filesystem_tools(workspace: impl Borrow<Arc<Workspace>>) -> Vec<Arc<dyn Tool>> {
    let workspace = || Arc::clone(workspace.borrow());
    vec![
        Arc::new(FsRead::new(workspace())),
        Arc::new(FsWrite::new(workspace())),
        Arc::new(FsEdit::new(workspace())),
        Arc::new(FsGlob::new(workspace())),
        Arc::new(FsGrep::new(workspace())),
        Arc::new(FsList::new(workspace())),
        Arc::new(FsStat::new(workspace())),
        Arc::new(FsDelete::new(workspace())),
        Arc::new(FsMove::new(workspace())),
    ]
}
