//! What turns did to files is undone, and done again, while no turn runs.
//!
//! The history stays: an event says what was undone, and the model is told at the next turn. The files come first, then the
//! event, then the note in the record of changes: an undo that a crash interrupted is asked for again, and finds done what is done.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{Actor, Order};
use crate::base::limit;
use crate::base::panics::broken;
use crate::base::workspace::Workspace;
use crate::config::change_records_directory;
use crate::host::{Direction, Recording, UndoDone, UndoWanted};
use crate::protocol::{ApiError, EventBody, TurnRecord, TurnStatus, Undo, Undone};
use crate::session::journal::Entry;
use crate::session::manager::Counted;
use crate::session::{disown, stopping, store_failure};
use crate::store::Write;

/// An undo or a redo that works on files: in a task of its own, as long as that takes, so that the session can be looked at.
pub(super) struct Undoing {
    direction: Direction,
    recording: Arc<Recording>,
    reply: Reply,
    /// The end of the server waits for it.
    _counted: Counted,
}

type Reply = oneshot::Sender<Result<Undone, ApiError>>;

impl Actor {
    /// Sets it to work, or says why not.
    pub(super) async fn undo(&mut self, undo: Undo, direction: Direction, reply: Reply) {
        let (recording, workspace) = match self.undoable(&undo).await {
            Ok(undoable) => undoable,
            Err(error) => return drop(reply.send(Err(error))),
        };
        let worked_for = self.row.children.iter().filter(|run| !run.ended).map(|run| run.by.clone()).collect();
        let wanted = UndoWanted { direction, turn: undo.turn_id, partial: undo.partial, worked_for };
        let (live, session, record) = (Arc::clone(&self.live), self.row.id.clone(), Arc::clone(&recording));
        let work = async move {
            disown(&*live.store, &record, &session).await?;
            let work = move || record.undo(&session, (&workspace, &change_records_directory()), &wanted);
            tokio::task::spawn_blocking(work).await.map_err(|e| ApiError::internal(broken(e)))?
        };
        let live = Arc::clone(&self.live);
        tokio::spawn(async move {
            let done = tokio::spawn(work).await.unwrap_or_else(|e| Err(ApiError::internal(broken(e))));
            // The actor lives as long as it waits for this.
            let _ = live.mail.send(Order::Undid(Box::new(done))).await;
        });
        self.undoing = Some(Undoing { direction, recording, reply, _counted: self.shelf.count() });
    }

    /// The files are as they are to be: that is written down, and answered.
    pub(super) async fn undid(&mut self, done: Result<UndoDone, ApiError>) {
        let Some(Undoing { direction, recording, reply, _counted }) = self.undoing.take() else { return };
        let answer = match done {
            Ok(done) => self.note_undone(done, direction, recording).await,
            Err(error) => Err(error),
        };
        let _ = reply.send(answer);
    }

    async fn note_undone(
        &mut self,
        done: UndoDone,
        direction: Direction,
        recording: Arc<Recording>,
    ) -> Result<Undone, ApiError> {
        // From here on the conversation is what the log says.
        self.conversation = None;
        let mut row = self.changed();
        row.updated_at = crate::base::clock::now_ms();
        let write = Write::UpdateSession(Box::new(row.clone()));
        let event = event_of(&done, direction, row.version);
        self.live.journal.reopen();
        let written = self.live.journal.record(|_| Entry { events: vec![(None, event)], writes: vec![write] }).await;
        written.map_err(|e| store_failure(&e))?;
        self.row = row;
        let noted = tokio::task::spawn_blocking(move || recording.undone(&done).map(|()| done)).await;
        let done = noted.map_err(|e| ApiError::internal(broken(e)))??;
        let UndoDone { turn_ids, files, left, .. } = done;
        Ok(Undone { turn_ids, files, left, version: self.row.version })
    }

    /// Whether anything may be undone now, and by whom.
    async fn undoable(&self, undo: &Undo) -> Result<(Arc<Recording>, Workspace), ApiError> {
        if self.deleting.is_some() {
            return Err(ApiError::not_found(format!("session {}", self.row.id)));
        }
        if self.is_closing() {
            return Err(stopping());
        }
        let version = self.row.version;
        if let Some(wanted) = undo.if_version.filter(|wanted| *wanted != version) {
            let message = format!("session {} has version {version}, not {wanted}", self.row.id);
            let details = serde_json::json!({ "field": "ifVersion", "expected": version, "got": wanted });
            return Err(ApiError::conflict(message).with_details(details));
        }
        if let Some(running) = &self.running {
            return Err(self.is_held(&running.record(!self.asks.is_empty())));
        }
        if !self.queue.is_empty() || self.owed.is_some() {
            return Err(ApiError::conflict(format!(
                "session {} is busy: a turn is about to begin or to end",
                self.row.id
            )));
        }
        self.bench.place(&self.row.settings)?;
        self.bench.changes(&self.row.settings).ok_or_else(|| {
            ApiError::conflict(
                "what turns do to files is not recorded here: the server keeps no data, or was told not to",
            )
        })
    }

    /// The refusal beside a turn that is not over.
    fn is_held(&self, turn: &TurnRecord) -> ApiError {
        let (id, status) = (&turn.turn_id, turn.status);
        let (why, what) = match status {
            // Whoever waits for its end waits for ever.
            TurnStatus::Paused => ("paused", "is paused; resume or abort it"),
            _ => ("busy", "runs; abort it or wait for its end"),
        };
        ApiError::conflict(format!("session {} is {why}: turn {id} {what}", self.row.id))
            .with_details(serde_json::json!({ "why": why, "turnId": id, "status": status }))
    }

    /// Forgets what the turns of a deleted session did.
    pub(super) async fn forget_changes(&self) {
        let Some((recording, _)) = self.bench.changes(&self.row.settings) else { return };
        let session = self.row.id.clone();
        let forgotten = tokio::task::spawn_blocking(move || recording.forget(&session)).await;
        if let Ok(Err(error)) = forgotten {
            tracing::warn!(session = %self.row.id, %error, "what a deleted session did to files is still recorded");
        }
    }
}

fn event_of(done: &UndoDone, direction: Direction, version: u64) -> EventBody {
    let turn_ids = done.turn_ids.clone();
    let paths = done.files.iter().take(limit::CHANGED_FILES_MAX).map(|file| file.path.clone()).collect();
    let (path_count, version) = (done.file_count, Some(version));
    match direction {
        Direction::Undo => EventBody::ChangesUndone { turn_ids, paths, path_count, version },
        Direction::Redo => EventBody::ChangesRedone { turn_ids, paths, path_count, version },
    }
}
