//! The single things that a commit does to the disk. Tests stop it before any one of them.

use std::cell::Cell;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;

use super::{After, Identity, identity};
use crate::host::fs_put::keep_owner;

/// What happens instead of the thing that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// It fails.
    Fails,
    /// The process ends: nothing more happens.
    #[cfg(test)]
    Crash,
}

/// The disk, and the fault that it has.
#[derive(Debug, Default)]
pub(super) struct Disk {
    /// Things to do until the fault, and the fault.
    due: Cell<Option<(usize, Fault)>>,
    crashed: Cell<bool>,
}

impl Disk {
    /// The disk as it is.
    pub(super) fn real() -> Self {
        Self::default()
    }

    /// A disk that has its fault after so many things.
    #[cfg(test)]
    pub(super) fn faulty(after: usize, fault: Fault) -> Self {
        Self { due: Cell::new(Some((after, fault))), crashed: Cell::new(false) }
    }

    /// Whether the process counts as ended.
    pub(super) fn crashed(&self) -> bool {
        self.crashed.get()
    }

    /// Whether the fault has not come yet.
    #[cfg(test)]
    pub(super) fn is_sound(&self) -> bool {
        self.due.get().is_some()
    }

    /// Called before each thing.
    fn due(&self) -> io::Result<()> {
        let fault = match self.due.get() {
            _ if self.crashed() => return Err(io::Error::other("the process has ended")),
            None => return Ok(()),
            Some((0, fault)) => fault,
            Some((left, fault)) => {
                self.due.set(Some((left - 1, fault)));
                return Ok(());
            }
        };
        self.due.set(None);
        self.crashed.set(fault != Fault::Fails);
        Err(io::Error::other("the disk is at fault"))
    }

    pub(super) fn make_directory(&self, path: &Path) -> io::Result<()> {
        self.due()?;
        fs::create_dir(path)
    }

    /// Writes a new file to the end, on disk.
    pub(super) fn write(&self, path: &Path, after: &After) -> io::Result<Identity> {
        self.due()?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o666).open(path)?;
        // A crash in the middle leaves half of it.
        let (half, rest) = after.bytes.split_at(after.bytes.len() / 2);
        file.write_all(half)?;
        self.due()?;
        file.write_all(rest)?;
        if let Some(like) = &after.like {
            keep_owner(&file, like);
            file.set_permissions(like.permissions())?;
        }
        if let Some(executable) = after.executable {
            let mode = file.metadata()?.permissions().mode();
            let run = (mode & 0o444) >> 2;
            let mode = if executable { mode | run } else { mode & !0o111 };
            file.set_permissions(Permissions::from_mode(mode & 0o7777))?;
        }
        file.sync_data()?;
        Ok(identity(&file.metadata()?))
    }

    /// Gives a file a second name; where that cannot be, another name.
    pub(super) fn keep(&self, path: &Path, second: &Path) -> io::Result<()> {
        self.due()?;
        match fs::hard_link(path, second) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(e),
            Err(_) => fs::rename(path, second),
            Ok(()) => Ok(()),
        }
    }

    pub(super) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.due()?;
        fs::rename(from, to)
    }

    /// The same, where nothing may be written over.
    pub(super) fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.due()?;
        match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) if to.symlink_metadata().is_err() => fs::rename(from, to),
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => Err(Errno::EXIST.into()),
            done => done.map_err(io::Error::from),
        }
    }

    /// Takes a file away. That it is gone already is as good.
    pub(super) fn remove(&self, path: &Path) -> io::Result<()> {
        self.due()?;
        match fs::remove_file(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }

    pub(super) fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.due()?;
        File::open(path)?.sync_all()
    }

    /// Puts a small file on disk. The caller holds its lock.
    pub(super) fn write_record(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        self.due()?;
        let (half, rest) = bytes.split_at(bytes.len() / 2);
        file.write_all(half)?;
        self.due()?;
        file.write_all(rest)?;
        file.sync_data()
    }
}
