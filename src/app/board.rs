//! What the sessions of a tree share, as clients see it: whichever session of a tree is named, the board is that of the one above
//! all.

use std::sync::Arc;

use super::command::{Performed, Sharing};
use super::{App, Caller};
use crate::base::limit;
use crate::protocol::{
    ApiError, BoardEntry, BoardKey, ChangeTask, Deleted, NewTask, Page, PutBoardEntry, SessionId, TaskView,
};
use crate::session::{BoardChange, Live, Receipt};
use crate::tool::{TaskInput, TaskOrder};

impl App {
    /// The session above all, of a tree of the caller. Who reaches one session alone reaches what that one shares, as its model
    /// does.
    async fn root_of(&self, caller: &Caller, id: &SessionId) -> Result<Arc<Live>, ApiError> {
        let row = self.own_row(caller, id).await?;
        let root = row.lineage.as_ref().and_then(|lineage| lineage.root()).unwrap_or(&row.id);
        self.sessions.live(caller.client.as_ref(), root).await
    }

    /// A page of the board, in the order of the keys: only those that begin with `prefix`, behind the key `after`.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub async fn board(
        &self,
        caller: &Caller,
        id: &SessionId,
        (prefix, after, limit): (Option<String>, Option<BoardKey>, usize),
    ) -> Result<Page<BoardEntry>, ApiError> {
        let entries = self.root_of(caller, id).await?.board().await?;
        let prefix = prefix.unwrap_or_default();
        let limit = limit.clamp(1, limit::PAGE_ITEMS_MAX);
        let is_meant = |entry: &&Arc<BoardEntry>| {
            entry.key.as_str().starts_with(&prefix) && after.as_ref().is_none_or(|after| entry.key > *after)
        };
        let mut found = entries.iter().filter(is_meant);
        let items: Vec<BoardEntry> = found.by_ref().take(limit).map(|entry| BoardEntry::clone(entry)).collect();
        let more = found.next().is_some();
        let next_cursor = items.last().filter(|_| more).map(|entry| entry.key.to_string());
        Ok(Page { items, next_cursor })
    }

    /// An entry of the board.
    ///
    /// # Errors
    /// As [`Self::board`].
    pub async fn board_entry(&self, caller: &Caller, id: &SessionId, key: &BoardKey) -> Result<BoardEntry, ApiError> {
        let entries = self.root_of(caller, id).await?.board().await?;
        let found = entries.iter().find(|entry| entry.key == *key);
        found.map(|entry| BoardEntry::clone(entry)).ok_or_else(|| none(key))
    }

    /// Changes what a tree shares, for a client. The receipt goes into the commit of the change.
    ///
    /// # Errors
    /// `NOT_FOUND`; `CONFLICT` for another version, `RESOURCE_EXHAUSTED`, `INVALID_ARGUMENT`: then nothing has changed.
    pub(super) async fn share(
        &self,
        caller: &Caller,
        id: &SessionId,
        (sharing, receipt): (Sharing, Arc<Receipt>),
    ) -> Result<Performed, ApiError> {
        let (root, receipt) = (self.root_of(caller, id).await?, Some(receipt));
        let order = match sharing {
            Sharing::Put(key, PutBoardEntry { value, if_version }) => {
                let change = BoardChange { key: key.clone(), value: Some(value), if_version, by: None };
                let entry = root.change_board(change, receipt).await?;
                return Performed::of(&entry.ok_or_else(|| none(&key))?, None);
            }
            Sharing::Take(key, if_version) => {
                let change = BoardChange { key, value: None, if_version, by: None };
                root.change_board(change, receipt).await?;
                return Performed::of(&Deleted { deleted: true }, None);
            }
            Sharing::Clear => {
                root.clear_board(receipt).await?;
                return Performed::of(&Deleted { deleted: true }, None);
            }
            Sharing::Create(task) => TaskOrder::Create(new(task)),
            Sharing::Update(id, change) => TaskOrder::Update(id, changed(change)),
            Sharing::Delete(id) => TaskOrder::Delete(id),
        };
        match root.change_tasks(order, None, receipt).await? {
            Some(task) => Performed::of(&task, None),
            None => Performed::of(&Deleted { deleted: true }, None),
        }
    }

    /// A page of the tasks of a tree, in the order in which they were created: those behind `after`.
    ///
    /// # Errors
    /// As [`Self::board`].
    pub async fn tasks(
        &self,
        caller: &Caller,
        id: &SessionId,
        (after, limit): (u64, usize),
    ) -> Result<Page<TaskView>, ApiError> {
        let tasks = self.root_of(caller, id).await?.tasks().await?;
        let limit = limit.clamp(1, limit::PAGE_ITEMS_MAX);
        let number = |view: &TaskView| view.task.id.parse::<u64>().unwrap_or(u64::MAX);
        let mut items: Vec<TaskView> = tasks.into_iter().filter(|view| number(view) > after).collect();
        let more = items.len() > limit;
        items.truncate(limit);
        let next_cursor = items.last().filter(|_| more).map(|view| view.task.id.clone());
        Ok(Page { items, next_cursor })
    }
}

fn new(task: NewTask) -> TaskInput {
    let NewTask { subject, description, active_form, owner, status, blocked_by } = task;
    let (adds, adds_by) = (Vec::new(), blocked_by.unwrap_or_default());
    TaskInput { subject: Some(subject), description, active_form, owner, status, adds, adds_by }
}

fn changed(change: ChangeTask) -> TaskInput {
    let ChangeTask { status, subject, description, active_form, owner, add_blocks, add_blocked_by } = change;
    let (adds, adds_by) = (add_blocks.unwrap_or_default(), add_blocked_by.unwrap_or_default());
    TaskInput { subject, description, active_form, owner, status, adds, adds_by }
}

fn none(key: &BoardKey) -> ApiError {
    ApiError::not_found(format!("`{key}` on the board"))
}
