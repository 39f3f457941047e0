//! The sessions under one, as the store has them.

use crate::base::limit;
use crate::host::TurnOf;
use crate::protocol::{ApiError, SessionId, TurnId};
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

/// The turns above one in whose place it works, the nearest first: those that gave the work, up to a session that has a working
/// tree for itself. `above`: the sessions above its own, the root first.
pub(in crate::session) fn works_for(row: &SessionRow, turn: &TurnId, above: &[SessionRow]) -> Vec<TurnOf> {
    let (mut turns, mut below, mut turn) = (Vec::new(), row, turn);
    for parent in above.iter().rev() {
        let Some(lineage) = below.lineage.as_ref().filter(|lineage| lineage.worktree.is_none()) else { break };
        let run = parent.children.iter().find(|run| run.session == below.id && run.turn == *turn);
        // What a client gives it to do counts for whoever made it.
        let Some(by) = run.map(|run| &run.by).or(lineage.turn_id.as_ref()) else { break };
        turns.push((parent.id.clone(), by.clone()));
        (below, turn) = (parent, by);
    }
    turns
}
