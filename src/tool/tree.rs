//! The seam by which a tool reaches what the sessions of a tree share. A session fills it, for the time of a turn.

use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::BoxFuture;
use crate::protocol::{ApiError, BoardEntry, BoardKey, TaskItem, TaskStatus, TaskView, TreeMember};

/// What a task is to be, or what of it changes: an update names what it changes alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskInput {
    /// What is to be done.
    pub subject: Option<String>,
    /// What belongs to it.
    pub description: Option<String>,
    /// What is shown while it is worked on. Empty: nothing.
    pub active_form: Option<String>,
    /// Who works on it. Empty: nobody.
    pub owner: Option<String>,
    /// Where it stands.
    pub status: Option<TaskStatus>,
    /// Tasks that wait for it from now on.
    pub adds: Vec<String>,
    /// Tasks that it waits for from now on.
    pub adds_by: Vec<String>,
}

impl TaskInput {
    /// Makes this of a task, but for those that wait for it.
    pub fn apply(self, task: &mut TaskItem, now_ms: u64) {
        task.subject = self.subject.unwrap_or_else(|| std::mem::take(&mut task.subject));
        task.description = self.description.unwrap_or_else(|| std::mem::take(&mut task.description));
        for (is, becomes) in [(&mut task.active_form, self.active_form), (&mut task.owner, self.owner)] {
            if let Some(text) = becomes {
                *is = (!text.is_empty()).then_some(text);
            }
        }
        task.status = self.status.unwrap_or(task.status);
        for id in self.adds_by {
            if !task.blocked_by.contains(&id) {
                task.blocked_by.push(id);
            }
        }
        task.updated_at = now_ms;
    }
}

/// What is to happen to the list of tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskOrder {
    /// One is added.
    Create(TaskInput),
    /// The one of this id changes.
    Update(String, TaskInput),
    /// The one of this id goes.
    Delete(String),
}

/// A path that another session of the tree holds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{path} is being written by another agent of this work, {by}, which holds it for {seconds} s more at most: do something else, \
     and look at the file again before you change it",
    path = path.display(), by = by.name.as_deref().unwrap_or(by.session_id.as_str()), seconds = left.as_secs() + 1
)]
pub struct HeldPath {
    /// The path that was wanted.
    pub path: PathBuf,
    /// Who holds it, or something above or below it.
    pub by: TreeMember,
    /// For how long, if nobody renews it.
    pub left: Duration,
}

/// What the sessions of a tree share.
pub trait Tree: Debug + Send + Sync + 'static {
    /// What stands on the board, in the order of the keys.
    ///
    /// # Errors
    /// Why that cannot be told.
    fn entries(&self) -> BoxFuture<'_, Result<Vec<Arc<BoardEntry>>, ApiError>>;

    /// Puts a value on the board, or takes it off (None): where its version is the one that is named, if one is; 0: where there is
    /// none. What stands there then.
    ///
    /// # Errors
    /// `CONFLICT`, `NOT_FOUND`, `RESOURCE_EXHAUSTED` or `INVALID_ARGUMENT`: then nothing has changed.
    fn put(
        &self,
        key: BoardKey,
        value_and_version: (Option<Value>, Option<u64>),
    ) -> BoxFuture<'_, Result<Option<Arc<BoardEntry>>, ApiError>>;

    /// All tasks, in the order in which they were created.
    ///
    /// # Errors
    /// Why that cannot be told.
    fn tasks(&self) -> BoxFuture<'_, Result<Vec<TaskView>, ApiError>>;

    /// Changes the list of tasks. The task that it is about, as it is then; None: it is gone.
    ///
    /// # Errors
    /// `NOT_FOUND`, `CONFLICT`, `RESOURCE_EXHAUSTED` or `INVALID_ARGUMENT`: then nothing has changed.
    fn change_tasks(&self, order: TaskOrder) -> BoxFuture<'_, Result<Option<TaskView>, ApiError>>;

    /// Tells the session that has made this one something: into what it does, or as the next thing to do.
    ///
    /// # Errors
    /// `CONFLICT`: there is none, or why it is not told.
    fn notify_parent(&self, message: String) -> BoxFuture<'_, Result<(), ApiError>>;

    /// Tells a session beside this one something, into what it does. Both were started as peers.
    ///
    /// # Errors
    /// `CONFLICT`: this one was not, or that one is not at work; `NOT_FOUND`, with those that there are.
    fn send_to_peer<'a>(&'a self, who: &'a str, message: String) -> BoxFuture<'a, Result<(), ApiError>>;

    /// Whether there are others that could write at the same time. If not, nothing need be held.
    fn has_others(&self) -> bool;

    /// Holds paths for this session, all of them or none: for so long, as it has asked; or (None) because it writes them now.
    ///
    /// # Errors
    /// The first that another session holds.
    fn claim(&self, paths: &[PathBuf], patience: Option<Duration>) -> Result<(), HeldPath>;

    /// Gives up what this session holds of these paths. None: all of it. Those that it held.
    fn release(&self, paths: Option<&[PathBuf]>) -> Vec<PathBuf>;
}
