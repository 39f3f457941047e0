//! How a path is now: its state, and the content of a file. By open handles, never through a link.

use std::collections::BTreeSet;
use std::fs::Metadata;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use parking_lot::MutexGuard;

use crate::base::limit;
use crate::base::place::Place;
use crate::base::workspace::Workspace;
use crate::host::alone::{LARGE_BYTES, alone};
use crate::host::search::{Entries, as_path};
use crate::store::snapshots::{ContentId, FileState};

/// The permissions that are kept: not those to run as the owner or the group.
pub(in crate::host) const MODE: u32 = 0o1777;

/// What was found at a path.
#[derive(Debug)]
pub(in crate::host) struct Found {
    pub state: FileState,
    /// The content of a file that is kept.
    pub content: Option<Content>,
}

/// What a file holds.
#[derive(Debug)]
pub(in crate::host) struct Content {
    pub bytes: Vec<u8>,
    /// Held where it is large.
    pub alone: Option<MutexGuard<'static, ()>>,
}

/// How many bytes are kept.
#[derive(Debug, Clone, Copy)]
pub(in crate::host) struct Room {
    /// Of one file.
    pub file: u64,
    /// Of all that one call does, as far as they are not used up.
    pub call: u64,
}

impl Room {
    /// For one file, whatever else there is.
    pub(in crate::host) fn of_file(bytes: u64) -> Self {
        Self { file: bytes, call: u64::MAX }
    }

    fn most(self) -> u64 {
        self.file.min(self.call)
    }

    /// Why a file of that size is not kept. None: it is.
    pub(in crate::host) fn refuses(self, bytes: u64) -> Option<String> {
        if bytes > self.file {
            let most = self.file;
            Some(format!("it has {bytes} bytes, and at most {most} are kept of one file"))
        } else if bytes > self.call {
            let most = limit::SNAPSHOT_CALL_BYTES_MAX;
            Some(format!(
                "at most {most} bytes are kept of what one call changes, and its {bytes} are more than are left"
            ))
        } else {
            None
        }
    }
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

/// How a path is now. A file for which there is no room is not read.
pub(in crate::host) fn look(workspace: &Workspace, path: &Path, room: Room) -> Found {
    let place = match workspace.reach(path) {
        Ok(place) => place,
        Err(e) if is_gone(&e) => return Found::of(FileState::Absent),
        Err(e) => return Found::unkept(format!("it cannot be reached: {e}")),
    };
    match place.look() {
        Ok(found) => look_at(&place, &found, room),
        Err(e) if is_gone(&e) => Found::of(FileState::Absent),
        Err(e) => Found::unkept(format!("it cannot be looked at: {e}")),
    }
}

/// Whether nothing is at a path, by what the file system says.
pub(in crate::host) fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn look_at(place: &Place, found: &Metadata, room: Room) -> Found {
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
        Ok(file) => read(file, room),
        Err(e) => Found::unkept(format!("it cannot be read: {e}")),
    }
}

/// How an open file is, and what it holds.
pub(in crate::host) fn read(file: std::fs::File, room: Room) -> Found {
    let found = match file.metadata() {
        Ok(found) => found,
        Err(e) => return Found::unkept(format!("it cannot be read: {e}")),
    };
    if let Some(reason) = room.refuses(found.len()) {
        return Found::unkept(reason);
    }
    let alone = alone(found.len());
    // One that grows meanwhile is not read to its end.
    let most = if alone.is_some() { room.most() } else { room.most().min(LARGE_BYTES) };
    let mut bytes = Vec::with_capacity(usize::try_from(found.len()).unwrap_or(0) + 1);
    match file.take(most + 1).read_to_end(&mut bytes) {
        Ok(_) if bytes.len() as u64 > most => {
            let grown = || format!("it grew beyond {most} bytes while it was read");
            Found::unkept(room.refuses(bytes.len() as u64).unwrap_or_else(grown))
        }
        Ok(_) => {
            let mode = found.mode() & MODE;
            let state = FileState::File { mode, bytes: bytes.len() as u64, content: ContentId::of(&bytes) };
            Found { state, content: Some(Content { bytes, alone }) }
        }
        Err(e) => Found::unkept(format!("it cannot be read: {e}")),
    }
}

/// Finds what is at paths and below them, directories that are missing above them included, and hands each out with its place.
pub(in crate::host) struct Look<'l> {
    workspace: &'l Workspace,
    /// Takes what was found. It says how many bytes may still be kept.
    take: &'l mut dyn FnMut(PathBuf, Found) -> u64,
    found: BTreeSet<PathBuf>,
    /// Bytes that may still be kept.
    left: u64,
    /// What was left out, and why.
    left_out: Vec<(PathBuf, String)>,
}

impl Look<'_> {
    /// Looks at them all. What was left out, and why.
    pub(in crate::host) fn at(
        workspace: &Workspace,
        paths: &[PathBuf],
        take: &mut dyn FnMut(PathBuf, Found) -> u64,
    ) -> Vec<(PathBuf, String)> {
        let (found, left, left_out) = (BTreeSet::new(), limit::SNAPSHOT_CALL_BYTES_MAX, Vec::new());
        let mut seen = Look { workspace, take, found, left, left_out };
        paths.iter().for_each(|path| seen.add(path));
        for path in paths {
            let missing = |above: &&Path| workspace.contains(above) && !workspace.holds_a_root(above);
            for above in path.ancestors().skip(1).take_while(missing) {
                if seen.found.contains(above) {
                    break;
                }
                match look(workspace, above, Room::of_file(0)) {
                    // What is there stays, whatever comes into it.
                    Found { state: FileState::Directory { .. }, .. } => break,
                    found => seen.hand_out(above.to_owned(), found),
                }
            }
        }
        seen.left_out
    }

    fn hand_out(&mut self, path: PathBuf, found: Found) {
        self.left = (self.take)(path.clone(), found);
        self.found.insert(path);
    }

    /// Looks at one, and at what is below it.
    fn add(&mut self, path: &Path) {
        let mut todo = vec![path.to_owned()];
        while let Some(next) = todo.pop() {
            if self.found.contains(&next) {
                continue;
            }
            if self.found.len() >= limit::SNAPSHOT_CALL_ENTRIES_MAX {
                let most = limit::SNAPSHOT_CALL_ENTRIES_MAX;
                return self.left_out.push((path.to_owned(), format!("at most {most} names of one call are recorded")));
            }
            let found = look(self.workspace, &next, Room { file: limit::SNAPSHOT_FILE_BYTES_MAX, call: self.left });
            if found.state.is_directory() {
                match below(self.workspace, &next) {
                    Ok(names) => todo.extend(names),
                    Err(e) => self.left_out.push((next.clone(), format!("it cannot be listed: {e}"))),
                }
            }
            self.hand_out(next, found);
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
