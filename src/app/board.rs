//! What the sessions of a tree share, as clients see it: whichever session of a tree is named, the board is that of the one above
//! all.

use std::sync::Arc;

use super::{App, Caller};
use crate::base::limit;
use crate::protocol::{Access, ApiError, BoardEntry, BoardKey, Deleted, Page, PutBoardEntry, SessionId, TaskView};
use crate::session::{BoardChange, Live};

impl App {
    /// The session above all, of a tree of the caller.
    async fn root_of(&self, caller: &Caller, id: &SessionId) -> Result<Arc<Live>, ApiError> {
        caller.at_large()?;
        let row = self.own_row(caller, id).await?;
        let root = row.lineage.as_ref().and_then(|lineage| lineage.root()).unwrap_or(&row.id);
        self.sessions.live(caller.client.as_ref(), root).await
    }

    /// A page of the board, in the order of the keys: only those that begin with `prefix`, behind the key `after`.
    ///
    /// # Errors
    /// `FORBIDDEN` for the bearer of a token of one session, `NOT_FOUND`.
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

    /// Puts a value on the board. `if_match`: the version that the request's head asks for.
    ///
    /// # Errors
    /// As [`Self::board`]; `CONFLICT` for another version, `RESOURCE_EXHAUSTED`, `INVALID_ARGUMENT`.
    pub async fn put_board_entry(
        &self,
        caller: &Caller,
        (id, key): (&SessionId, BoardKey),
        (body, if_match): (PutBoardEntry, Option<u64>),
    ) -> Result<BoardEntry, ApiError> {
        caller.needs(Access::Work)?;
        if let (Some(one), Some(other)) = (body.if_version, if_match)
            && one != other
        {
            let message = format!("`ifVersion` is {one} and `If-Match` {other}: no entry has both versions");
            let details = serde_json::json!({ "field": "ifVersion", "expected": other, "got": one });
            return Err(ApiError::conflict(message).with_details(details));
        }
        let if_version = body.if_version.or(if_match);
        let change = BoardChange { key: key.clone(), value: Some(body.value), if_version, by: None };
        let entry = self.root_of(caller, id).await?.change_board(change).await?;
        entry.map(|entry| BoardEntry::clone(&entry)).ok_or_else(|| none(&key))
    }

    /// Takes an entry off the board.
    ///
    /// # Errors
    /// As [`Self::put_board_entry`].
    pub async fn delete_board_entry(
        &self,
        caller: &Caller,
        (id, key): (&SessionId, BoardKey),
        if_version: Option<u64>,
    ) -> Result<Deleted, ApiError> {
        caller.needs(Access::Work)?;
        let change = BoardChange { key, value: None, if_version, by: None };
        self.root_of(caller, id).await?.change_board(change).await?;
        Ok(Deleted { deleted: true })
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

    /// Takes everything off the board.
    ///
    /// # Errors
    /// As [`Self::board`].
    pub async fn clear_board(&self, caller: &Caller, id: &SessionId) -> Result<Deleted, ApiError> {
        caller.needs(Access::Work)?;
        self.root_of(caller, id).await?.clear_board().await?;
        Ok(Deleted { deleted: true })
    }
}

fn none(key: &BoardKey) -> ApiError {
    ApiError::not_found(format!("`{key}` on the board"))
}
