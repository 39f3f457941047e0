//! What the sessions of a tree share, where the session above all has it: each change is an event of its log, and the row that
//! knows where it stands is written in the same commit.

use std::sync::Arc;

use serde::Serialize;
use tokio::sync::oneshot;

use super::Actor;
use crate::base::clock;
use crate::protocol::{ApiError, BoardDeletion, BoardEntry, Deleted, EventBody, TaskView, TreeMember};
use crate::session::board::{Author, Board, BoardChange, Tasks};
use crate::session::journal::Entry;
use crate::session::places::follow;
use crate::session::receipt::Receipt;
use crate::session::{stopping, store_failure};
use crate::store::Write;
use crate::tool::TaskOrder;

/// What it is told about the board of its tree.
pub(in crate::session) enum BoardOrder {
    /// What stands there.
    Look(oneshot::Sender<Result<Vec<Arc<BoardEntry>>, ApiError>>),
    /// Something is put there, or taken off. It is written down before it is answered, and so is the receipt of who asks for it
    /// by a command.
    Change(Box<(BoardChange, Slip)>, oneshot::Sender<Result<Option<Arc<BoardEntry>>, ApiError>>),
    /// Which tasks there are.
    Tasks(oneshot::Sender<Result<Vec<TaskView>, ApiError>>),
    /// The list of tasks changes, by somebody of the tree who is called so; None: by a client. It is written down before it is
    /// answered.
    ChangeTasks(Box<(TaskOrder, Option<TreeMember>, Slip)>, oneshot::Sender<Result<Option<TaskView>, ApiError>>),
    /// All of it is taken off.
    Clear(Slip, oneshot::Sender<Result<(), ApiError>>),
}

/// What a command leaves in the commit of its effect.
pub(in crate::session) type Slip = Option<Arc<Receipt>>;

/// The rows of a receipt, for what will be answered.
fn rows<T: Serialize>(slip: &Slip, answer: impl FnOnce() -> T) -> Result<Vec<Write>, ApiError> {
    slip.as_ref().map_or_else(|| Ok(Vec::new()), |receipt| receipt.take(&answer(), None::<u64>))
}

/// The task that these events are about, as they leave it. None: it is gone.
fn view_after(mut tasks: Tasks, events: &[EventBody]) -> Option<TaskView> {
    events.iter().for_each(|event| tasks.take(event));
    let id = match events.first() {
        Some(EventBody::TaskCreate(change) | EventBody::TaskUpdate(change)) => &change.task.id,
        _ => return None,
    };
    tasks.views().into_iter().find(|view| view.task.id == *id)
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
                let (change, slip) = *change;
                let changed = self.change_board(change, slip).await;
                let _ = reply.send(changed);
            }
            BoardOrder::Tasks(reply) => {
                let tasks = self.board().await.map(|board| board.tasks().views());
                let _ = reply.send(tasks);
            }
            BoardOrder::ChangeTasks(order, reply) => {
                let (order, by, slip) = *order;
                let changed = self.change_tasks(order, by, slip).await;
                let _ = reply.send(changed);
            }
            BoardOrder::Clear(slip, reply) => {
                let cleared = self.clear_board(slip).await;
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

    async fn change_board(&mut self, change: BoardChange, slip: Slip) -> Result<Option<Arc<BoardEntry>>, ApiError> {
        self.may_share()?;
        self.board().await?.check(&change)?;
        let BoardChange { key, value, by, .. } = change;
        let updated_at = clock::now_ms();
        let make = |seq| {
            vec![match value {
                Some(value) => {
                    let entry = BoardEntry { key, value, version: seq, by, updated_at };
                    EventBody::BlackboardSet(Box::new(entry))
                }
                None => EventBody::BlackboardDelete(BoardDeletion { key, by }),
            }]
        };
        let told = |events: &[EventBody]| match events.first() {
            Some(EventBody::BlackboardSet(entry)) => rows(&slip, || entry),
            _ => rows(&slip, || Deleted { deleted: true }),
        };
        let events = self.share(make, told).await?;
        Ok(events.into_iter().find_map(|event| match event {
            EventBody::BlackboardSet(entry) => Some(Arc::new(*entry)),
            _ => None,
        }))
    }

    async fn change_tasks(
        &mut self,
        order: TaskOrder,
        by: Option<TreeMember>,
        slip: Slip,
    ) -> Result<Option<TaskView>, ApiError> {
        self.may_share()?;
        // The session above all is whoever it is, and so is a client; the others are told apart.
        let other = by.as_ref().filter(|by| by.session_id != self.row.id);
        let label = other.map(|by| by.name.clone().unwrap_or_else(|| by.session_id.to_string()));
        let author = Author { by, label, now_ms: clock::now_ms() };
        let tasks = self.board().await?.tasks().clone();
        let events = match order {
            TaskOrder::Create(input) => tasks.create(input, &author)?,
            TaskOrder::Update(id, input) => tasks.update(&id, input, &author)?,
            TaskOrder::Delete(id) => vec![tasks.delete(&id, &author)?],
        };
        let view = view_after(tasks, &events);
        let told = |_: &[EventBody]| match &view {
            Some(view) => rows(&slip, || view),
            None => rows(&slip, || Deleted { deleted: true }),
        };
        self.share(|_| events, told).await?;
        Ok(view)
    }

    async fn clear_board(&mut self, slip: Slip) -> Result<(), ApiError> {
        self.may_share()?;
        let keys: Vec<_> = self.row.shared.board.keys().cloned().collect();
        if keys.is_empty() {
            return Ok(());
        }
        self.board().await?;
        let gone = |key| EventBody::BlackboardDelete(BoardDeletion { key, by: None });
        let told = |_: &[EventBody]| rows(&slip, || Deleted { deleted: true });
        self.share(|_| keys.into_iter().map(gone).collect(), told).await.map(drop)
    }

    /// Whether anything may be changed of what the tree shares.
    fn may_share(&self) -> Result<(), ApiError> {
        if self.deleting.is_some() {
            return Err(ApiError::not_found(format!("session {}", self.row.id)));
        }
        if self.is_closing() { Err(stopping()) } else { Ok(()) }
    }

    /// Writes down what `make` makes of the next event's number, together with the row that then knows where it stands, and with
    /// the rows of who asked for it.
    async fn share(
        &mut self,
        make: impl FnOnce(u64) -> Vec<EventBody>,
        rows: impl FnOnce(&[EventBody]) -> Result<Vec<Write>, ApiError>,
    ) -> Result<Vec<EventBody>, ApiError> {
        let turn = self.running.as_ref().map(|running| running.row.record.turn_id.clone());
        if turn.is_none() {
            // Nothing runs, so what failed before is no longer anybody's.
            self.live.journal.reopen();
        }
        let mut row = self.row.clone();
        let mut made = Err(ApiError::internal("the change was not made"));
        let written = self.live.journal.record(|seq| {
            let events = make(seq);
            let mut writes = match rows(&events) {
                Ok(rows) => rows,
                Err(called_back) => {
                    made = Err(called_back);
                    return Entry::default();
                }
            };
            for (at, event) in (seq..).zip(&events) {
                follow(&mut row.shared, at, event);
            }
            writes.push(Write::UpdateSession(Box::new(row.clone())));
            let told = events.iter().map(|event| (turn.clone(), event.clone())).collect();
            made = Ok(events);
            Entry { events: told, writes }
        });
        written.await.map_err(|error| store_failure(&error))?;
        let events = made?;
        self.row = row;
        let board = self.board.get_or_insert_default();
        events.iter().for_each(|event| board.take(event));
        Ok(events)
    }
}
