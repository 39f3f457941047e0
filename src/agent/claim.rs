//! Before a call writes: its paths are held for its session, or another session of the tree holds one of them, and it does not run.

use std::path::PathBuf;

use super::call::{Failure, Prepared};
use crate::protocol::{ErrorCode, ToolCategory};
use crate::tool::Subject;

impl Prepared {
    /// Holds what the call will write. A session that stands alone holds nothing, and asks nobody.
    ///
    /// # Errors
    /// Who holds it, and for how long at most.
    pub(super) fn claim_paths(&self) -> Result<(), Failure> {
        let category = self.tool.judged_as(&self.request.arguments).category;
        if !matches!(category, Some(ToolCategory::Edit | ToolCategory::Execute)) {
            return Ok(());
        }
        let Some(tree) = self.context.scope.tree.lock().clone().filter(|tree| tree.has_others()) else { return Ok(()) };
        // A command says nothing of what it writes.
        let Subject::Paths(paths) = self.tool.subject_in(&self.request.arguments, &self.context) else { return Ok(()) };
        let paths: Vec<PathBuf> = paths.into_iter().filter_map(|path| path.resolved).collect();
        tree.claim(&paths, None)
            .map_err(|held| Failure::execution(ErrorCode::Conflict, &self.request.name, &held.to_string()))
    }
}
