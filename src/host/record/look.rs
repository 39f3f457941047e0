//! How a path is now: its state, and the content of a file. By open handles, never through a link.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::base::limit;
use crate::base::place::Place;
use crate::base::workspace::Workspace;
use crate::host::search::{Entries, as_path};
use crate::store::snapshots::{ContentId, FileState};

/// The permissions that are kept: not those to run as the owner or the group.
pub(in crate::host) const MODE: u32 = 0o1777;

/// What was found at a path.
#[derive(Debug)]
pub(in crate::host) struct Found {
    pub state: FileState,
    /// The content of a file that is kept.
    pub content: Option<Vec<u8>>,
}

impl Found {
    /// A state without a content.
    pub(in crate::host) fn of(state: FileState) -> Self {
        Self { state, content: None }
    }

    pub(in crate::host) fn unkept(reason: impl Into<String>) -> Self {
        Self::of(FileState::Unkept { reason: reason.into() })
    }
}

/// How a path is now. A file with more than `bytes_max` is not read.
pub(in crate::host) fn look(workspace: &Workspace, path: &Path, bytes_max: u64) -> Found {
    let place = match workspace.reach(path) {
        Ok(place) => place,
        Err(e) if is_gone(&e) => return Found::of(FileState::Absent),
        Err(e) => return Found::unkept(format!("it cannot be reached: {e}")),
    };
    match place.look() {
        Ok(found) => look_at(&place, &found, bytes_max),
        Err(e) if is_gone(&e) => Found::of(FileState::Absent),
        Err(e) => Found::unkept(format!("it cannot be looked at: {e}")),
    }
}

/// Whether nothing is at a path, by what the file system says.
pub(in crate::host) fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn look_at(place: &Place, found: &Metadata, bytes_max: u64) -> Found {
    if found.is_symlink() {
        return match rustix::fs::readlinkat(place.directory(), place.name(), Vec::new()) {
            Ok(target) => Found::of(FileState::Link { target: target.into_bytes() }),
            Err(e) => Found::unkept(format!("its link cannot be read: {e}")),
        };
    }
    if found.is_dir() {
        return Found::of(FileState::Directory { mode: found.mode() & MODE });
    }
    if !found.is_file() {
        return Found::unkept("it is neither a file nor a link nor a directory");
    }
    match place.open() {
        Ok(file) => read(file, bytes_max),
        Err(e) => Found::unkept(format!("it cannot be read: {e}")),
    }
}

/// How an open file is, and what it holds.
pub(in crate::host) fn read(file: std::fs::File, bytes_max: u64) -> Found {
    let found = match file.metadata() {
        Ok(found) if found.len() > bytes_max => return Found::unkept(too_large(found.len(), bytes_max)),
        Ok(found) => found,
        Err(e) => return Found::unkept(format!("it cannot be read: {e}")),
    };
    let mut content = Vec::with_capacity(usize::try_from(found.len()).unwrap_or(0) + 1);
    match file.take(bytes_max + 1).read_to_end(&mut content) {
        Ok(_) if content.len() as u64 > bytes_max => Found::unkept(too_large(content.len() as u64, bytes_max)),
        Ok(_) => {
            let (mode, bytes) = (found.mode() & MODE, content.len() as u64);
            let state = FileState::File { mode, bytes, content: ContentId::of(&content) };
            Found { state, content: Some(content) }
        }
        Err(e) => Found::unkept(format!("it cannot be read: {e}")),
    }
}

pub(in crate::host) fn too_large(bytes: u64, bytes_max: u64) -> String {
    format!("it has {bytes} bytes, and at most {bytes_max} are kept of one file")
}

/// What is at the paths and below them, directories that are missing above them included.
#[derive(Debug, Default)]
pub(in crate::host) struct Look {
    pub found: BTreeMap<PathBuf, Found>,
    /// What was left out, and why.
    pub left_out: Vec<(PathBuf, String)>,
    bytes: u64,
}

impl Look {
    /// Looks at them all.
    pub(in crate::host) fn at(workspace: &Workspace, paths: &[PathBuf]) -> Self {
        let mut seen = Self::default();
        for path in paths {
            seen.add(workspace, path);
            let missing = |above: &&Path| workspace.contains(above) && !workspace.holds_a_root(above);
            for above in path.ancestors().skip(1).take_while(missing) {
                if seen.found.contains_key(above) {
                    break;
                }
                match look(workspace, above, 0) {
                    // What is there stays, whatever comes into it.
                    Found { state: FileState::Directory { .. }, .. } => break,
                    found => drop(seen.found.insert(above.to_owned(), found)),
                }
            }
        }
        seen
    }

    /// Looks at one, and at what is below it.
    fn add(&mut self, workspace: &Workspace, path: &Path) {
        let mut todo = vec![path.to_owned()];
        while let Some(next) = todo.pop() {
            if self.found.len() >= limit::SNAPSHOT_CALL_ENTRIES_MAX {
                let most = limit::SNAPSHOT_CALL_ENTRIES_MAX;
                return self.left_out.push((path.to_owned(), format!("at most {most} names of one call are recorded")));
            }
            let room = limit::SNAPSHOT_CALL_BYTES_MAX.saturating_sub(self.bytes);
            let found = look(workspace, &next, limit::SNAPSHOT_FILE_BYTES_MAX.min(room));
            self.bytes += found.content.as_ref().map_or(0, |content| content.len() as u64);
            if matches!(found.state, FileState::Directory { .. }) {
                match below(workspace, &next) {
                    Ok(names) => todo.extend(names),
                    Err(e) => self.left_out.push((next.clone(), format!("it cannot be listed: {e}"))),
                }
            }
            self.found.insert(next, found);
        }
    }
}

pub(in crate::host) fn below(workspace: &Workspace, directory: &Path) -> io::Result<Vec<PathBuf>> {
    let open = workspace.open_directory(directory)?;
    let entries = Entries::read(open.as_fd())?;
    if entries.more {
        return Err(io::Error::other("it has more names than are read"));
    }
    Ok(entries.iter().map(|(name, _)| directory.join(as_path(name))).collect())
}

/// A path for people: relative to the working directory where it lies below it.
pub(in crate::host) fn shown(workspace: &Workspace, path: &Path) -> String {
    let below = path.strip_prefix(workspace.working_directory());
    let below = below.ok().filter(|below| !below.as_os_str().is_empty());
    String::from_utf8_lossy(below.unwrap_or(path).as_os_str().as_bytes()).into_owned()
}
