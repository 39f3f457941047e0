//! Whole files: read as text, written at once or not at all, and what a person is shown of a change.

use std::collections::BTreeSet;
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};

use super::fs_common::{io_failed, no_directory_name, open, refused};
use super::fs_put::{Content, put};
use crate::base::limit;
use crate::base::place::Place;
use crate::base::workspace::{PathError, Workspace};
use crate::edit::unified_diff;
use crate::tool::{FileStamp, ToolError};

/// What is said of a file that was replaced under one of its names.
pub(super) const LINKED: &str = "The file had further hard links: they keep the old content.";

/// Calls that change the same file take turns; few enough locks that they need no tidying up.
static CHANGES: [Mutex<()>; 64] = [const { Mutex::new(()) }; 64];

/// Held while a file is read, changed and written back. Taken on the blocking pool only.
pub(super) fn turn(path: &Path) -> MutexGuard<'static, ()> {
    CHANGES[turn_index(path)].lock()
}

/// The same for several files at once, taken in one order by all.
pub(super) fn turns<'p>(paths: impl IntoIterator<Item = &'p Path>) -> Vec<MutexGuard<'static, ()>> {
    let indexes: BTreeSet<usize> = paths.into_iter().map(turn_index).collect();
    indexes.into_iter().map(|index| CHANGES[index].lock()).collect()
}

fn turn_index(path: &Path) -> usize {
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(path);
    usize::try_from(hash % CHANGES.len() as u64).unwrap_or(0)
}

/// The whole of a text file.
///
/// # Errors
/// Not there, not a regular file, too large, not UTF-8: each said with the path as given.
pub(super) fn read_text(workspace: &Workspace, input: &str) -> Result<String, ToolError> {
    let file = open(workspace, input)?;
    let most = limit::EDIT_FILE_BYTES_MAX;
    // Room for all of it, and for the empty read at its end.
    let size = file.metadata().map_or(0, |found| found.len().min(most));
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0) + 64);
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
    /// None: its directory is to be made.
    place: Option<Place>,
    existing: Option<Metadata>,
}

impl Target {
    /// Looks at the place that `input` names, through links inside the roots.
    ///
    /// # Errors
    /// Outside the roots, or there is something that is no regular file, or it may not be written; or the path can
    /// only be a directory's.
    pub(super) fn find(workspace: &Workspace, input: &str) -> Result<Self, ToolError> {
        no_directory_name(input)?;
        let place = match workspace.place(input) {
            Ok(place) => place,
            Err(error) if error.is_not_found() => {
                let path = workspace.resolve(input).map_err(|e| refused(&e))?;
                return Ok(Self { path, place: None, existing: None });
            }
            Err(PathError::Open { cause, .. }) => return Err(io_failed("write", input, &cause)),
            Err(error) => return Err(refused(&error)),
        };
        let existing = match place.look() {
            Ok(found) if found.is_file() => Some(found),
            Ok(found) => {
                let kind = if found.is_dir() { "a directory" } else { "not a regular file" };
                return Err(ToolError::failed(format!("Path \"{input}\" is {kind}")));
            }
            Err(e) if e.kind() == ErrorKind::NotFound => None,
            Err(e) => return Err(io_failed("write", input, &e)),
        };
        if existing.is_some() {
            let (may, plain) = (rustix::fs::Access::WRITE_OK, rustix::fs::AtFlags::empty());
            let writable = rustix::fs::accessat(place.directory(), place.name(), may, plain);
            writable.map_err(|e| io_failed("write", input, &e.into()))?;
        }
        Ok(Self { path: place.path().to_owned(), place: Some(place), existing })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What is there now. None: nothing.
    pub(super) fn existing(&self) -> Option<&Metadata> {
        self.existing.as_ref()
    }

    /// What is said of a new content, where the old one has names besides this.
    pub(super) fn linked(&self) -> Option<&'static str> {
        self.existing.as_ref().is_some_and(has_links).then_some(LINKED)
    }

    /// Whether the file that is there holds exactly this.
    pub(super) fn holds(&self, content: &[u8]) -> bool {
        let same_size = self.existing.as_ref().is_some_and(|found| found.len() == content.len() as u64);
        same_size && self.open().is_some_and(|file| same_bytes(file, content).unwrap_or(false))
    }

    /// Opens the file that is there. None when it cannot be read.
    pub(super) fn open(&self) -> Option<File> {
        self.place.as_ref()?.open().ok()
    }

    /// Puts `content` in this place, all of it or nothing. Parents are made; mode and owner of what was there are
    /// kept. Returns what the file system says of the new file.
    ///
    /// # Errors
    /// What the file system says; then what was there before still is.
    pub(super) fn write(&self, workspace: &Workspace, input: &str, content: &str) -> Result<FileStamp, ToolError> {
        let failed = |e: std::io::Error| io_failed("write", input, &e);
        let made;
        let place = match &self.place {
            Some(place) => place,
            None => {
                made = workspace.reach_made(&self.path).map_err(failed)?;
                &made
            }
        };
        put(place, Content { bytes: content.as_bytes(), replaces: self.existing.as_ref() }).map_err(failed)
    }
}

/// Whether a file has further names, which stay with its old content when it is replaced.
pub(super) fn has_links(found: &Metadata) -> bool {
    found.is_file() && found.nlink() > 1
}

fn same_bytes(mut file: impl Read, mut content: &[u8]) -> std::io::Result<bool> {
    let mut chunk = vec![0; 64 * 1024];
    loop {
        let got = file.read(&mut chunk)?;
        match content.split_at_checked(got) {
            Some((same, rest)) if got > 0 && same == &chunk[..got] => content = rest,
            _ => return Ok(got == 0 && content.is_empty()),
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
