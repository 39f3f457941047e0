//! A directory of a walk once its names are read, or known.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::Stat;

use super::entries::{Entries, FileSystem};
use super::shelf::{Shelf, Shelves};

/// A directory, and what is in it.
pub(super) struct Listed {
    pub handle: OwnedFd,
    /// Sorted where there is a shelf.
    pub entries: Entries,
    /// A read of its files that gives less than it could has reached the end.
    pub short_reads_end: bool,
    /// What is known of its files.
    pub shelf: Option<Arc<Shelf>>,
}

impl Listed {
    /// A directory whose files are looked at alone.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn to_look_at(handle: OwnedFd) -> io::Result<Self> {
        let entries = Entries::read(handle.as_fd())?;
        Ok(Self { handle, entries, short_reads_end: false, shelf: None })
    }

    /// A directory whose files are read.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn to_read(handle: OwnedFd, shelves: Option<&Shelves>, file_systems: &FileSystems) -> io::Result<Self> {
        // Before its names are read: what changes later has other times.
        let found = rustix::fs::fstat(&handle)?;
        let file_system = file_systems.of(&found, handle.as_fd());
        let shelves = shelves.filter(|_| file_system.notes_changes);
        let known = shelves.and_then(|shelves| Some((shelves, shelves.of(&found)?)));
        let read = || Entries::read(handle.as_fd());
        let entries = match &known {
            Some((shelves, shelf)) => shelves.listing(shelf, &found, read)?,
            None => read()?,
        };
        let (short_reads_end, shelf) = (file_system.short_reads_end, known.map(|(_, shelf)| shelf));
        Ok(Self { handle, entries, short_reads_end, shelf })
    }
}

/// The file systems that a walk came by.
#[derive(Debug, Default)]
pub(super) struct FileSystems(Mutex<Vec<(i128, FileSystem)>>);

impl FileSystems {
    /// That of a directory that was looked at.
    fn of(&self, found: &Stat, directory: BorrowedFd<'_>) -> FileSystem {
        let device = i128::from(found.st_dev);
        let mut known = self.0.lock();
        if let Some((_, file_system)) = known.iter().find(|(of, _)| *of == device) {
            return *file_system;
        }
        let file_system = FileSystem::of(directory);
        known.push((device, file_system));
        file_system
    }
}
