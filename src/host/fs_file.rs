//! Whole files: read as text, written at once or not at all.

use std::fs::{File, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};

use super::fs_common::{io_failed, open, refused};
use crate::base::limit;
use crate::base::workspace::Workspace;
use crate::edit::unified_diff;
use crate::tool::ToolError;

/// Calls that change the same file take turns; few enough locks that they need no tidying up.
static CHANGES: [Mutex<()>; 64] = [const { Mutex::new(()) }; 64];

/// Held while a file is read, changed and written back. Taken on the blocking pool only.
pub(super) fn turn(path: &Path) -> MutexGuard<'static, ()> {
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(path);
    let index = usize::try_from(hash % CHANGES.len() as u64).unwrap_or(0);
    CHANGES[index].lock()
}

/// The whole of a text file.
///
/// # Errors
/// Not there, not a regular file, too large, not UTF-8: each said with the path as given.
pub(super) fn read_text(workspace: &Workspace, input: &str) -> Result<String, ToolError> {
    let file = open(workspace, input)?;
    let mut bytes = Vec::new();
    let most = limit::EDIT_FILE_BYTES_MAX;
    file.take(most + 1).read_to_end(&mut bytes).map_err(|e| io_failed("read", input, &e))?;
    if bytes.len() as u64 > most {
        return Err(ToolError::failed(format!("\"{input}\" is larger than {most} bytes, the most that is edited")));
    }
    String::from_utf8(bytes).map_err(|e| {
        ToolError::failed(format!(
            "\"{input}\" is not valid UTF-8 (first at byte {}): it is left alone, because an edit would not keep \
             its other bytes as they are",
            e.utf8_error().valid_up_to()
        ))
    })
}

/// Where a path leads, and what is there now: None for nothing.
pub(super) struct Target {
    path: PathBuf,
    existing: Option<std::fs::Metadata>,
}

impl Target {
    /// Looks at the place that `input` names, through links inside the roots.
    ///
    /// # Errors
    /// Outside the roots, or there is something that is no regular file, or it may not be written.
    pub(super) fn find(workspace: &Workspace, input: &str) -> Result<Self, ToolError> {
        let path = workspace.resolve(input).map_err(|e| refused(&e))?;
        let existing = match std::fs::symlink_metadata(&path) {
            Ok(found) if found.is_file() => Some(found),
            Ok(found) => {
                let kind = if found.is_dir() { "a directory" } else { "not a regular file" };
                return Err(ToolError::failed(format!("Path \"{input}\" is {kind}")));
            }
            Err(e) if e.kind() == ErrorKind::NotFound => None,
            Err(e) => return Err(io_failed("write", input, &e)),
        };
        if existing.is_some() {
            let writable = rustix::fs::access(&path, rustix::fs::Access::WRITE_OK);
            writable.map_err(|e| io_failed("write", input, &e.into()))?;
        }
        Ok(Self { path, existing })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn exists(&self) -> bool {
        self.existing.is_some()
    }

    /// Writes `content` beside the place, and moves it there when it is on disk. Parents are made; mode and owner of
    /// what was there are kept.
    ///
    /// # Errors
    /// What the file system says; then what was there before still is.
    pub(super) fn write(&self, workspace: &Workspace, input: &str, content: &str) -> Result<(), ToolError> {
        let failed = |e: std::io::Error| io_failed("write", input, &e);
        let Some(parent) = self.path.parent() else { return Err(refused(&workspace.escapes(input))) };
        if self.existing.is_none() {
            std::fs::create_dir_all(parent).map_err(failed)?;
            if workspace.resolve(input).map_err(|e| refused(&e))? != self.path {
                return Err(refused(&workspace.escapes(input)));
            }
        }
        let mut builder = tempfile::Builder::new();
        builder.prefix(".simse-").suffix(".tmp").permissions(Permissions::from_mode(0o666));
        let mut file = builder.tempfile_in(parent).map_err(failed)?;
        file.write_all(content.as_bytes()).map_err(failed)?;
        if let Some(existing) = &self.existing {
            keep_owner(file.as_file(), existing);
            file.as_file().set_permissions(existing.permissions()).map_err(failed)?;
        }
        file.as_file().sync_data().map_err(failed)?;
        file.persist(&self.path).map_err(|e| failed(e.error))?;
        Ok(())
    }
}

/// Gives the file to whom it belonged, where that is allowed. Without the right to, it belongs to the writer.
fn keep_owner(file: &File, before: &std::fs::Metadata) {
    let Ok(now) = file.metadata() else { return };
    if (now.uid(), now.gid()) != (before.uid(), before.gid()) {
        let owner = rustix::fs::Uid::from_raw(before.uid());
        let group = rustix::fs::Gid::from_raw(before.gid());
        if let Err(e) = rustix::fs::fchown(file, Some(owner), Some(group)) {
            tracing::debug!(error = %e, "the owner of a written file could not be kept");
        }
    }
}

/// What a person is shown before a file changes.
pub(super) fn change_preview(path: &str, before: Option<&str>, after: &str) -> Value {
    let diff = unified_diff(path, before, after, limit::DIFF_BYTES_MAX);
    json!({
        "path": path,
        "isNew": before.is_none(),
        "diff": diff.text,
        "added": diff.added,
        "removed": diff.removed,
        "truncated": diff.truncated,
    })
}

/// What a person is shown when the call will fail anyway.
pub(super) fn failing_preview(path: &str, error: &ToolError) -> Value {
    json!({ "path": path, "error": error.to_string() })
}
