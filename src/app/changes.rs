//! What turns did to files: shown, undone and redone; and sessions forked.

use std::sync::Arc;

use super::{App, Caller};
use crate::host::{DiffWanted, Direction};
use crate::protocol::{ApiError, DiffView, SessionId, Undo, Undone};
use crate::session::{Workbench as _, store_failure};

impl App {
    /// What a turn of a session did to files, or all its turns together. Pages go by path.
    ///
    /// # Errors
    /// `NOT_FOUND` for the session, a turn without a record, or a path that is not in it; `CONFLICT` when nothing is recorded here.
    pub async fn diff(&self, caller: &Caller, id: &SessionId, wanted: DiffWanted) -> Result<DiffView, ApiError> {
        self.sessions.view(caller.client.as_ref(), id).await?;
        let row = self.store.session(id).await.map_err(|e| store_failure(&e))?;
        let row = row.ok_or_else(|| ApiError::not_found(format!("session {id}")))?;
        let Some((recording, workspace)) = self.wardrobe.changes(&row.settings) else {
            let why = "what turns do to files is not recorded here: the server keeps no data, or was told not to";
            return Err(ApiError::conflict(why));
        };
        let work = move || recording.diff(&row.id, &workspace, wanted);
        tokio::task::spawn_blocking(work).await.map_err(|e| ApiError::internal(e.to_string()))?
    }

    /// Undoes what turns did to files: all of it or nothing, and only where nobody has changed it since.
    ///
    /// # Errors
    /// `NOT_FOUND`; `CONFLICT` while a turn runs, when there is nothing to be undone, or with the paths that stand against it.
    pub async fn undo(&self, caller: &Caller, id: &SessionId, body: Undo) -> Result<Undone, ApiError> {
        self.live(caller, id).await?.undo(body, Direction::Undo).await
    }

    /// Does again what was undone.
    ///
    /// # Errors
    /// As [`App::undo`].
    pub async fn redo(&self, caller: &Caller, id: &SessionId, body: Undo) -> Result<Undone, ApiError> {
        self.live(caller, id).await?.undo(body, Direction::Redo).await
    }

    /// Closes the record of changes.
    pub(super) async fn close_record(&self) -> Result<(), ApiError> {
        let Some(recording) = self.wardrobe.recording().map(Arc::clone) else { return Ok(()) };
        let closed = tokio::task::spawn_blocking(move || recording.store().close()).await;
        closed.map_err(|e| ApiError::internal(e.to_string()))?.map_err(|e| ApiError::internal(e.to_string()))
    }
}
