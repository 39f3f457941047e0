//! The files of a session's directory, as a person looks at them.

use super::{App, Caller};
use crate::host::{FilesWanted, project_files};
use crate::protocol::{ApiError, FilesView, SessionId};
use crate::session::{Workbench as _, store_failure};

impl App {
    /// What is in a directory of the one that a session works in, or which files below it some letters mean. Names alone: what is in
    /// a file is for tools, whose calls are judged.
    ///
    /// # Errors
    /// `NOT_FOUND` for the session or the directory, `INVALID_ARGUMENT` for a path that is no directory or lies elsewhere, `CONFLICT`
    /// when the session's own directory is gone.
    pub async fn files(&self, caller: &Caller, id: &SessionId, wanted: FilesWanted) -> Result<FilesView, ApiError> {
        self.session(caller, id).await?;
        let row = self.store.session(id).await.map_err(|e| store_failure(&e))?;
        let row = row.ok_or_else(|| ApiError::not_found(format!("session {id}")))?;
        self.wardrobe.place(&row.settings)?;
        project_files(self.wardrobe.grounds(&row.settings)?.workspace, wanted).await
    }
}
