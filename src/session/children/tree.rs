//! The sessions under one, as the store has them.

use crate::base::limit;
use crate::protocol::{ApiError, SessionId};
use crate::session::manager::Manager;
use crate::session::store_failure;
use crate::store::SessionRow;

impl Manager {
    /// All sessions under one, however deep, newest first.
    ///
    /// # Errors
    /// What the store says.
    pub async fn under(&self, row: &SessionRow) -> Result<Vec<SessionRow>, ApiError> {
        let root = row.lineage.as_ref().and_then(|lineage| lineage.root()).unwrap_or(&row.id);
        let (mut found, mut after): (Vec<SessionRow>, Option<SessionId>) = (Vec::new(), None);
        loop {
            let page = self.shelf.store.family(root, after.as_ref(), limit::PAGE_ITEMS_MAX).await;
            let page = page.map_err(|error| store_failure(&error))?;
            let Some(last) = page.last().map(|row| row.id.clone()) else { return Ok(found) };
            let more = page.len() >= limit::PAGE_ITEMS_MAX;
            let under = |row: &SessionRow, of: &SessionId| row.lineage.as_ref().is_some_and(|l| l.path.contains(of));
            found.extend(page.into_iter().filter(|other| under(other, &row.id)));
            if !more {
                return Ok(found);
            }
            after = Some(last);
        }
    }

    /// The sessions above one, the root first. Each is there: none goes without those under it.
    ///
    /// # Errors
    /// What the store says, or `NOT_FOUND`.
    pub(in crate::session) async fn above(&self, row: &SessionRow) -> Result<Vec<SessionRow>, ApiError> {
        let path = row.lineage.as_ref().map(|lineage| lineage.path.as_slice()).unwrap_or_default();
        let mut rows = Vec::with_capacity(path.len());
        for id in path {
            let row = self.shelf.store.session(id).await.map_err(|error| store_failure(&error))?;
            rows.push(row.ok_or_else(|| ApiError::not_found(format!("session {id}")))?);
        }
        Ok(rows)
    }
}
