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
/// `INVALID_ARGUMENT` with that field.
pub(super) fn held(roots: &[PathBuf], field: &str, (directory, real): (&Path, &Path)) -> Result<(), ApiError> {
    if roots.iter().any(|root| real.starts_with(root)) {
        return Ok(());
    }
    let leads = if real == directory { String::new() } else { format!(", which leads to {}", real.display()) };
    let expected = format!("a directory under an allowed root ({})", shown(roots));
    Err(ApiError::unfit(field, expected, format!("{}{leads}", directory.display())))
}

/// What a directory is to those who may work under the roots.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A directory under one of them, without links.
    Allowed(PathBuf),
    /// There is no such directory, as far as it lies under one of them.
    Missing,
    /// It would lie elsewhere. Whether it does is not said: what is there is nobody's business who works here.
    Elsewhere,
}

/// Looks a directory up.
pub(super) fn look_up(roots: &[PathBuf], wanted: &Path) -> Found {
    let is_under = |real: &Path| roots.iter().any(|root| real.starts_with(root));
    if let Ok(real) = std::fs::canonicalize(wanted) {
        return match (is_under(&real), real.is_dir()) {
            (true, true) => Found::Allowed(real),
            (true, false) => Found::Missing,
            (false, _) => Found::Elsewhere,
        };
    }
    for above in wanted.ancestors() {
        match std::fs::canonicalize(above) {
            Ok(real) if is_under(&real) => return Found::Missing,
            Ok(_) => return Found::Elsewhere,
            // A link whose end is not there: where that would be, nobody says.
            Err(_) if std::fs::symlink_metadata(above).is_ok() => return Found::Elsewhere,
            Err(_) => {}
        }
    }
    Found::Elsewhere
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// What is there and what is not looks the same outside of the roots.
    #[test]
    fn what_lies_elsewhere_is_not_told() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        for directory in ["root/sub", "out/there"] {
            std::fs::create_dir_all(home.join(directory)).unwrap();
        }
        for file in ["root/file", "out/file"] {
            std::fs::write(home.join(file), "x").unwrap();
        }
        for (link, to) in [("in", "sub"), ("led", "../out"), ("dangling", "../out/nothing"), ("deep", "../out/there")] {
            symlink(to, home.join("root").join(link)).unwrap();
        }
        let roots = [home.join("root")];
        #[rustfmt::skip]
        let table = [
            ("root", Found::Allowed(home.join("root"))), ("root/sub", Found::Allowed(home.join("root/sub"))),
            ("root/in", Found::Allowed(home.join("root/sub"))), ("root/sub/..", Found::Allowed(home.join("root"))),
            ("root/nothing", Found::Missing), ("root/nothing/below", Found::Missing), ("root/file", Found::Missing), ("root/file/below", Found::Missing),
            ("root/in/nothing", Found::Missing), ("root/nothing/../../out", Found::Missing), ("root/nothing/../../gone", Found::Missing),
            ("out", Found::Elsewhere), ("out/there", Found::Elsewhere), ("out/nothing", Found::Elsewhere), ("gone", Found::Elsewhere), ("gone/below", Found::Elsewhere),
            ("out/file", Found::Elsewhere), ("out/file/below", Found::Elsewhere), ("root/../out", Found::Elsewhere), ("root/../gone", Found::Elsewhere),
            ("root/led", Found::Elsewhere), ("root/led/there", Found::Elsewhere), ("root/led/nothing", Found::Elsewhere),
            ("root/dangling", Found::Elsewhere), ("root/dangling/below", Found::Elsewhere), ("root/deep", Found::Elsewhere), ("root/deep/x", Found::Elsewhere),
        ];
        for (wanted, want) in table {
            assert_eq!(look_up(&roots, &home.join(wanted)), want, "{wanted}");
        }
    }
}
