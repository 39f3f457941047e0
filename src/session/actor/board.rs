//! What the sessions of a tree share, where the session above all has it: each change is an event of its log, and the row that
//! knows where it stands is written in the same commit.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::Actor;
use crate::base::clock;
use crate::protocol::{ApiError, BoardDeletion, BoardEntry, EventBody, TaskView, TreeMember};
use crate::session::board::{Author, Board, BoardChange};
use crate::session::journal::Entry;
use crate::session::places::follow;
use crate::session::{stopping, store_failure};
use crate::store::Write;
use crate::tool::TaskOrder;

/// What it is told about the board of its tree.
pub(in crate::session) enum BoardOrder {
    /// What stands there.
    Look(oneshot::Sender<Result<Vec<Arc<BoardEntry>>, ApiError>>),
    /// Something is put there, or taken off. It is written down before it is answered.
    Change(Box<BoardChange>, oneshot::Sender<Result<Option<Arc<BoardEntry>>, ApiError>>),
    /// Which tasks there are.
    Tasks(oneshot::Sender<Result<Vec<TaskView>, ApiError>>),
    /// The list of tasks changes, by somebody of the tree who is called so. It is written down before it is answered.
    ChangeTasks(Box<(TaskOrder, TreeMember)>, oneshot::Sender<Result<Option<TaskView>, ApiError>>),
    /// All of it is taken off.
    Clear(oneshot::Sender<Result<(), ApiError>>),
}

impl Actor {
    /// Does what it is told about the board.
    pub(super) async fn of_board(&mut self, order: BoardOrder) {
        // Who has stopped waiting for an answer does not miss it.
        match order {
            BoardOrder::Look(reply) => {
                let board = self.board().await.map(|board| board.entries());
                let _ = reply.send(board);
            }
            BoardOrder::Change(change, reply) => {
                let changed = self.change_board(*change).await;
                let _ = reply.send(changed);
            }
            BoardOrder::Tasks(reply) => {
                let tasks = self.board().await.map(|board| board.tasks().views());
                let _ = reply.send(tasks);
            }
            BoardOrder::ChangeTasks(order, reply) => {
                let (order, by) = *order;
                let changed = self.change_tasks(order, by).await;
                let _ = reply.send(changed);
            }
            BoardOrder::Clear(reply) => {
                let cleared = self.clear_board().await;
                let _ = reply.send(cleared);
            }
        }
    }

    /// The board, read where it was not yet since the session was woken.
    async fn board(&mut self) -> Result<&mut Board, ApiError> {
        if self.board.is_none() {
            let board = Board::read(self.shelf.store.as_ref(), &self.row.id, &self.row.shared).await;
            self.board = Some(board.map_err(|error| store_failure(&error))?);
        }
        Ok(self.board.get_or_insert_default())
    }

    async fn change_board(&mut self, change: BoardChange) -> Result<Option<Arc<BoardEntry>>, ApiError> {
        self.may_share()?;
        self.board().await?.check(&change)?;
        let BoardChange { key, value, by, .. } = change;
        let updated_at = clock::now_ms();
        let events = self
            .share(|seq| {
                vec![match value {
                    Some(value) => {
                        let (key, by) = (key.clone(), by.clone());
                        EventBody::BlackboardSet(Box::new(BoardEntry { key, value, version: seq, by, updated_at }))
                    }
                    None => EventBody::BlackboardDelete(BoardDeletion { key: key.clone(), by: by.clone() }),
                }]
            })
            .await?;
        Ok(events.into_iter().find_map(|event| match event {
            EventBody::BlackboardSet(entry) => Some(Arc::new(*entry)),
            _ => None,
        }))
    }

    async fn change_tasks(&mut self, order: TaskOrder, by: TreeMember) -> Result<Option<TaskView>, ApiError> {
        self.may_share()?;
        // The session above all is whoever it is; the others are told apart.
        let name = by.name.clone().unwrap_or_else(|| by.session_id.to_string());
        let label = Some(name).filter(|_| by.session_id != self.row.id);
        let author = Author { by: Some(by), label, now_ms: clock::now_ms() };
        let tasks = self.board().await?.tasks();
        let events = match order {
            TaskOrder::Create(input) => tasks.create(input, &author)?,
            TaskOrder::Update(id, input) => tasks.update(&id, input, &author)?,
            TaskOrder::Delete(id) => vec![tasks.delete(&id, &author)?],
        };
        let events = self.share(|_| events).await?;
        let id = events.first().and_then(|event| match event {
            EventBody::TaskCreate(change) | EventBody::TaskUpdate(change) => Some(change.task.id.clone()),
            _ => None,
        });
        let views = self.board().await?.tasks().views();
        Ok(views.into_iter().find(|view| Some(&view.task.id) == id.as_ref()))
    }

    async fn clear_board(&mut self) -> Result<(), ApiError> {
        self.may_share()?;
        let keys: Vec<_> = self.row.shared.board.keys().cloned().collect();
        if keys.is_empty() {
            return Ok(());
        }
        self.board().await?;
        let gone = |key| EventBody::BlackboardDelete(BoardDeletion { key, by: None });
        self.share(|_| keys.into_iter().map(gone).collect()).await.map(drop)
    }

    /// Whether anything may be changed of what the tree shares.
    fn may_share(&self) -> Result<(), ApiError> {
        if self.deleting.is_some() {
            return Err(ApiError::not_found(format!("session {}", self.row.id)));
        }
        if self.is_closing() { Err(stopping()) } else { Ok(()) }
    }

    /// Writes down what `make` makes of the next event's number, together with the row that then knows where it stands.
    async fn share(&mut self, make: impl FnOnce(u64) -> Vec<EventBody>) -> Result<Vec<EventBody>, ApiError> {
        let turn = self.running.as_ref().map(|running| running.row.record.turn_id.clone());
        if turn.is_none() {
            // Nothing runs, so what failed before is no longer anybody's.
            self.live.journal.reopen();
        }
        let (mut row, mut events) = (self.row.clone(), Vec::new());
        let written = self.live.journal.record(|seq| {
            events = make(seq);
            for (at, event) in (seq..).zip(&events) {
                follow(&mut row.shared, at, event);
            }
            let told = events.iter().map(|event| (turn.clone(), event.clone())).collect();
            Entry { events: told, writes: vec![Write::UpdateSession(Box::new(row.clone()))] }
        });
        written.await.map_err(|error| store_failure(&error))?;
        self.row = row;
        let board = self.board.get_or_insert_default();
        events.iter().for_each(|event| board.take(event));
        Ok(events)
    }
}
