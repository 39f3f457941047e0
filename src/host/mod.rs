//! The host's tools: one file a tool, its definition, permission subject, run and tests together.

mod alone;
mod apply_patch;
pub mod bash;
mod bash_patch;
mod bash_shell;
mod blackboard;
mod commit;
mod confine;
mod exec_command;
mod exec_look;
mod fs_change;
mod fs_common;
mod fs_delete;
mod fs_edit;
mod fs_file;
mod fs_glob;
mod fs_grep;
mod fs_grep_run;
mod fs_guard;
mod fs_list;
mod fs_missing;
mod fs_move;
mod fs_multi_edit;
mod fs_put;
mod fs_read;
mod fs_stat;
mod fs_write;
mod git_add;
mod git_blame;
mod git_branch;
mod git_commit;
mod git_common;
mod git_diff;
mod git_hostile;
#[cfg(test)]
mod git_led_tests;
mod git_log;
mod git_place;
mod git_pull;
mod git_push;
mod git_show;
mod git_stash;
mod git_status;
mod git_stray;
mod git_veil;
mod git_worktree;
#[cfg(test)]
mod held_tests;
#[cfg(test)]
mod kept_tests;
mod lock_paths;
mod notify_parent;
mod patch_plan;
mod patch_told;
mod project_files;
mod read_pruned;
mod record;
mod search;
mod send_to_peer;
mod skill;
mod subagents;
#[cfg(test)]
mod swap_tests;
mod tasks;
mod trees;
mod typed;
mod view_image;
mod way_out;
mod write_stdin;

use std::borrow::Borrow;
use std::sync::Arc;

use crate::base::workspace::Workspace;
use crate::protocol::ToolCategory;
use crate::tool::Tool;
use way_out::WayOut;

pub use apply_patch::{ApplyPatch, recover_changes};
pub use bash::{Bash, BashOptions};
pub use blackboard::{BOARD_READ, BOARD_WRITE, BoardRead, BoardWrite};
pub use confine::Sandbox;
pub use exec_command::{ExecCommand, ExecOptions};
pub use fs_delete::FsDelete;
pub use fs_edit::FsEdit;
pub use fs_glob::FsGlob;
pub use fs_grep::FsGrep;
pub use fs_list::FsList;
pub use fs_move::FsMove;
pub use fs_multi_edit::FsMultiEdit;
pub use fs_read::FsRead;
pub use fs_stat::FsStat;
pub use fs_write::FsWrite;
pub use git_add::GitAdd;
pub use git_blame::GitBlame;
pub use git_branch::GitBranch;
pub use git_commit::GitCommit;
pub use git_common::GitOptions;
pub use git_diff::GitDiff;
pub use git_log::GitLog;
pub use git_pull::GitPull;
pub use git_push::GitPush;
pub use git_show::GitShow;
pub use git_stash::GitStash;
pub use git_status::GitStatus;
pub use git_worktree::GitWorktree;
pub use lock_paths::{LOCK_PATHS, LockPaths, UNLOCK_PATHS, UnlockPaths};
pub use notify_parent::{NOTIFY_PARENT, NotifyParent};
pub use project_files::{FilesWanted, project_files};
pub use read_pruned::ReadPruned;
pub use record::{DiffWanted, Direction, Recorder, Recording, TurnOf, UndoDone, UndoWanted};
pub use search::shelved;
pub use send_to_peer::{SEND_TO_PEER, SendToPeer};
pub use skill::{Skill, SkillPlace};
pub use subagents::{SUBAGENT_TOOLS, merge_words, subagent_tools};
pub use tasks::{TASK_TOOLS, task_tools};
pub use trees::{Grounds, discard_tree, make_tree, put_back, tree_of, trees_in};
pub use view_image::ViewImage;
pub use write_stdin::WriteStdin;

/// The tools that read, search and change files inside `workspace`, in the order in which they are told.
///
/// Takes the workspace shared or for keeps.
pub fn filesystem_tools(workspace: impl Borrow<Arc<Workspace>>) -> Vec<Arc<dyn Tool>> {
    let workspace = || Arc::clone(workspace.borrow());
    vec![
        Arc::new(FsRead::new(workspace())),
        Arc::new(FsWrite::new(workspace())),
        Arc::new(FsEdit::new(workspace())),
        Arc::new(FsMultiEdit::new(workspace())),
        Arc::new(ApplyPatch::new(workspace())),
        Arc::new(FsGlob::new(workspace())),
        Arc::new(FsGrep::new(workspace())),
        Arc::new(FsList::new(workspace())),
        Arc::new(FsStat::new(workspace())),
        Arc::new(FsDelete::new(workspace())),
        Arc::new(FsMove::new(workspace())),
        Arc::new(ViewImage::new(workspace())),
    ]
}

/// What sessions share with the others of their tree: the board, the list of tasks, a word to the parent, and where they write.
pub fn sharing_tools(workspace: &Arc<Workspace>) -> Vec<Arc<dyn Tool>> {
    let mut tools: Vec<Arc<dyn Tool>> =
        vec![Arc::new(BoardWrite), Arc::new(BoardRead), Arc::new(NotifyParent), Arc::new(SendToPeer)];
    tools.extend(task_tools());
    tools.push(Arc::new(LockPaths::new(Arc::clone(workspace))));
    tools.push(Arc::new(UnlockPaths::new(Arc::clone(workspace))));
    tools
}

/// The shell, inside `workspace`.
pub fn bash_tool(workspace: &Arc<Workspace>, options: BashOptions) -> Arc<dyn Tool> {
    Arc::new(Bash::new(Arc::clone(workspace), options))
}

/// Commands that go on after the call, inside `workspace`, and what goes on with them.
pub fn exec_tools(workspace: &Arc<Workspace>, options: ExecOptions) -> Vec<Arc<dyn Tool>> {
    vec![
        Arc::new(ExecCommand::new(Arc::clone(workspace), options.clone())),
        Arc::new(WriteStdin::new(Arc::clone(workspace), options)),
    ]
}

/// The git tools, in the order in which they are told. With a sandbox, those that change something can be asked to run
/// outside of it for one call.
pub fn git_tools(workspace: &Arc<Workspace>, options: &GitOptions) -> Vec<Arc<dyn Tool>> {
    let inside = git_family(workspace, options);
    if options.sandbox.level().is_none() {
        return inside;
    }
    let outside = git_family(workspace, &GitOptions::default());
    let both = inside.into_iter().zip(outside);
    both.map(|(inside, outside)| match inside.definition().category {
        Some(ToolCategory::Edit | ToolCategory::Execute) => Arc::new(WayOut::new(inside, outside)) as Arc<dyn Tool>,
        Some(_) | None => inside,
    })
    .collect()
}

fn git_family(workspace: &Arc<Workspace>, options: &GitOptions) -> Vec<Arc<dyn Tool>> {
    let (workspace, options) = (|| Arc::clone(workspace), || options.clone());
    vec![
        Arc::new(GitStatus::new(workspace()).with(options())),
        Arc::new(GitDiff::new(workspace()).with(options())),
        Arc::new(GitLog::new(workspace()).with(options())),
        Arc::new(GitCommit::new(workspace()).with(options())),
        Arc::new(GitBranch::new(workspace()).with(options())),
        Arc::new(GitAdd::new(workspace()).with(options())),
        Arc::new(GitStash::new(workspace()).with(options())),
        Arc::new(GitPush::new(workspace()).with(options())),
        Arc::new(GitPull::new(workspace()).with(options())),
        Arc::new(GitShow::new(workspace()).with(options())),
        Arc::new(GitBlame::new(workspace()).with(options())),
        Arc::new(GitWorktree::new(workspace()).with(options())),
    ]
}
