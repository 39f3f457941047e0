//! What turns did to files is undone, and done again, while no turn runs.
//!
//! The history stays: an event says what was undone, and the model is told at the next turn. The files come first, then the
//! event, then the note in the record of changes: an undo that a crash interrupted is asked for again, and finds done what is done.

use std::sync::Arc;

use super::Actor;
use crate::base::limit;
use crate::base::panics::broken;
use crate::base::workspace::Workspace;
use crate::config::change_records_directory;
use crate::host::{Direction, Recording, UndoDone, UndoWanted};
use crate::protocol::{ApiError, EventBody, TurnRecord, TurnStatus, Undo, Undone};
use crate::session::journal::Entry;
use crate::session::{stopping, store_failure};
use crate::store::Write;

impl Actor {
    pub(super) async fn undo(&mut self, undo: Undo, direction: Direction) -> Result<Undone, ApiError> {
        let (recording, workspace) = self.undoable(&undo).await?;
        let Undo { turn_id: turn, partial, .. } = undo;
        let wanted = UndoWanted { direction, turn, partial };
        let session = self.row.id.clone();
        let work = {
            let recording = Arc::clone(&recording);
            move || recording.undo(&session, (&workspace, &change_records_directory()), &wanted)
        };
        let done = tokio::task::spawn_blocking(work).await.map_err(|e| ApiError::internal(broken(e)))??;
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
    async fn undoable(&mut self, undo: &Undo) -> Result<(Arc<Recording>, Workspace), ApiError> {
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
