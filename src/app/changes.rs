//! What turns did to files: shown, undone and redone; and sessions forked.

use std::sync::Arc;

use super::{App, Caller};
use crate::base::panics::broken;
use crate::host::{DiffWanted, Direction};
use crate::protocol::{ApiError, DiffView, Fork, SessionId, SessionView, Undo, Undone};
use crate::session::{NewFork, Receipt, Workbench as _, disown, store_failure};

impl App {
    /// What a turn of a session did to files, or all its turns together. Pages go by path.
    ///
    /// # Errors
    /// `NOT_FOUND` for the session, a turn without a record, or a path that is not in it; `CONFLICT` when nothing is recorded here.
    pub async fn diff(&self, caller: &Caller, id: &SessionId, wanted: DiffWanted) -> Result<DiffView, ApiError> {
        self.session(caller, id).await?;
        let row = self.store.session(id).await.map_err(|e| store_failure(&e))?;
        let row = row.ok_or_else(|| ApiError::not_found(format!("session {id}")))?;
        self.wardrobe.place(&row.settings)?;
        let Some((recording, workspace)) = self.wardrobe.changes(&row.settings) else {
            let why = "what turns do to files is not recorded here: the server keeps no data, or was told not to";
            return Err(ApiError::conflict(why));
        };
        disown(&*self.store, &recording, id).await?;
        let work = move || recording.diff(&row.id, &workspace, wanted);
        tokio::task::spawn_blocking(work).await.map_err(|e| ApiError::internal(broken(e)))?
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

    /// Makes a session that goes on from an event of another one: the log up to it is shared, what comes then is its own.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an event that is not there, a title that is none or a directory under no allowed root, `NOT_FOUND`, `CONFLICT` (the id is taken),
    /// `RESOURCE_EXHAUSTED`.
    pub async fn fork(&self, caller: &Caller, id: &SessionId, body: Fork) -> Result<SessionView, ApiError> {
        self.fork_with(caller, id, (body, None)).await
    }

    /// The same, as a command that leaves its receipt in the same commit.
    pub(super) async fn fork_with(
        &self,
        caller: &Caller,
        id: &SessionId,
        (body, receipt): (Fork, Option<&Receipt>),
    ) -> Result<SessionView, ApiError> {
        caller.at_large()?;
        super::bodies::check_title("title", body.title.as_deref())?;
        self.session(caller, id).await?;
        let parent = self.store.session(id).await.map_err(|e| store_failure(&e))?;
        let parent = parent.ok_or_else(|| ApiError::not_found(format!("session {id}")))?;
        // A session is not made where none may work, from whatever it is made.
        self.wardrobe.place(&parent.settings)?;
        let Fork { at, new_session_id, title } = body;
        let fork = NewFork { id: new_session_id.unwrap_or_else(SessionId::generate), at, title };
        self.counted(self.sessions.fork(parent, fork, receipt)).await
    }

    /// Closes the record of changes.
    pub(super) async fn close_record(&self) -> Result<(), ApiError> {
        let Some(recording) = self.wardrobe.recording().map(Arc::clone) else { return Ok(()) };
        let closed = tokio::task::spawn_blocking(move || recording.store().close()).await;
        closed.map_err(|e| ApiError::internal(broken(e)))?.map_err(|e| ApiError::internal(e.to_string()))
    }
}
