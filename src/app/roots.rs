//! The roots under which sessions work, and whether one still does.

use std::path::{Path, PathBuf};

use super::OpenError;
use crate::config::{Names, Setting, Settings};
use crate::protocol::ApiError;

/// The canonical roots under which working directories may lie.
pub(super) fn roots(settings: &Settings) -> Result<Vec<PathBuf>, OpenError> {
    let own = canonical(settings.names, Setting::WorkingDirectory, &settings.working_directory)?;
    if settings.allowed_roots.is_empty() {
        return Ok(vec![own]);
    }
    settings.allowed_roots.iter().map(|root| canonical(settings.names, Setting::AllowedRoots, root)).collect()
}

/// Roots, as a caller is told.
pub(super) fn shown(roots: &[PathBuf]) -> String {
    let shown: Vec<String> = roots.iter().map(|root| root.display().to_string()).collect();
    shown.join(", ")
}

/// A directory of the settings, without links.
pub(super) fn canonical(names: Names, setting: Setting, path: &Path) -> Result<PathBuf, OpenError> {
    let found = std::fs::canonicalize(path).ok().filter(|real| real.is_dir());
    found.ok_or_else(|| OpenError::Setting {
        field: names.of(setting),
        expected: format!("an existing directory, got {}", path.display()),
    })
}

/// The further roots of the file tools, without links; those that are there.
pub(super) fn further_roots(settings: &Settings) -> Vec<PathBuf> {
    let path = |path: &PathBuf| std::fs::canonicalize(settings.working_directory.join(path)).ok();
    settings.allowed_paths.iter().filter_map(path).collect()
}

/// Whether a session may work in a directory, which leads to that real one now. Roots may be others than when it was made, and a
/// link may lie there.
///
/// # Errors
/// `INVALID_ARGUMENT` with the field `workingDirectory`.
pub(super) fn held(roots: &[PathBuf], (directory, real): (&Path, &Path)) -> Result<(), ApiError> {
    if roots.iter().any(|root| real.starts_with(root)) {
        return Ok(());
    }
    let leads = if real == directory { String::new() } else { format!(", which leads to {}", real.display()) };
    let expected = format!("a directory under an allowed root ({})", shown(roots));
    Err(ApiError::unfit("workingDirectory", expected, format!("{}{leads}", directory.display())))
}
