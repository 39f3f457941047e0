//! Before a call writes: its paths are held for its session, or another session of the tree holds one of them, and it does not run.
//!
//! Of a command the paths count that its line names as written; what else it writes nobody knows before, and nothing is held for it.
//! While a command runs, what it holds does not run out.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio_util::task::AbortOnDropHandle;

use super::call::{Failure, Prepared};
use crate::base::limit;
use crate::permission::{WrittenPath, written_paths};
use crate::protocol::{ErrorCode, ToolCategory};
use crate::tool::{Subject, Tree};

/// What a call holds, as long as this is there.
#[derive(Debug, Default)]
pub(super) struct Holding {
    _renews: Option<AbortOnDropHandle<()>>,
}

impl Prepared {
    /// Holds what the call will write. A session that stands alone holds nothing, and asks nobody.
    ///
    /// # Errors
    /// Who holds it, and for how long at most.
    pub(super) async fn claim_paths(&self) -> Result<Holding, Failure> {
        let category = self.tool.judged_as(&self.request.arguments).category;
        if !matches!(category, Some(ToolCategory::Edit | ToolCategory::Execute)) {
            return Ok(Holding::default());
        }
        let tree = self.context.scope.tree.lock().clone().filter(|tree| tree.has_others());
        let Some(tree) = tree else { return Ok(Holding::default()) };
        let (paths, runs) = match self.tool.subject_in(&self.request.arguments, &self.context) {
            Subject::Paths(paths) => (paths.into_iter().filter_map(|path| path.resolved).collect(), false),
            Subject::Command(command) => (self.written_by(&command).await, true),
            Subject::None => return Ok(Holding::default()),
        };
        let refused = |held: crate::tool::HeldPath| {
            Failure::execution(ErrorCode::Conflict, &self.request.name, &held.to_string())
        };
        tree.claim(&paths, None).map_err(refused)?;
        let lasts = runs && !paths.is_empty();
        let renewed = lasts.then(|| AbortOnDropHandle::new(tokio::spawn(renew(Arc::downgrade(&tree), paths))));
        Ok(Holding { _renews: renewed })
    }

    /// The paths that a command names as written, from where it starts. Those that cannot be followed are left out.
    async fn written_by(&self, command: &str) -> Vec<PathBuf> {
        let written = written_paths(command);
        let place = self.tool.place(&self.request.arguments, &self.context);
        let Some(place) = place.filter(|place| place.is_absolute() && !written.is_empty()) else { return Vec::new() };
        let followed =
            tokio::task::spawn_blocking(move || written.iter().flat_map(|path| followed(&place, path)).collect());
        // A look that panicked found nothing.
        followed.await.unwrap_or_default()
    }
}

/// Where something that is written lies. May look at the file system.
fn followed(place: &Path, written: &WrittenPath) -> Vec<PathBuf> {
    let place = written.under.as_ref().map_or_else(|| place.to_owned(), |under| place.join(under));
    let path = place.join(&written.path);
    let all = match written.within.is_empty() || !path.is_dir() {
        true => vec![path],
        false => written.within.iter().map(|name| path.join(name)).collect(),
    };
    all.iter().filter_map(|path| real(path)).collect()
}

/// A path that may not be there yet, with the links of what is there followed: as tools of files name it.
fn real(path: &Path) -> Option<PathBuf> {
    let mut behind = PathBuf::new();
    let mut at = path;
    loop {
        if let Ok(real) = std::fs::canonicalize(at) {
            return Some(if behind.as_os_str().is_empty() { real } else { real.join(behind) });
        }
        // Behind `..` of what is not there nobody can look.
        let name = at.file_name()?;
        behind = if behind.as_os_str().is_empty() { PathBuf::from(name) } else { Path::new(name).join(behind) };
        at = at.parent()?;
    }
}

/// Holds paths anew before their time is over, until nobody wants it any more.
async fn renew(tree: Weak<dyn Tree>, paths: Vec<PathBuf>) {
    loop {
        tokio::time::sleep(Duration::from_millis(limit::LOCK_MS / 2)).await;
        let Some(tree) = tree.upgrade() else { return };
        // Nobody else can have taken them: they had not run out.
        drop(tree.claim(&paths, None));
    }
}
