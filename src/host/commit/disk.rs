//! The single things that a commit does to the disk. Tests stop it before any one of them.

use std::borrow::Cow;
use std::cell::Cell;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags};

use super::record::Below;
use super::{After, AfterKind, Identity, identity, identity_at};
use crate::base::workspace::Workspace;
use crate::host::alone::alone;
use crate::host::fs_put::{is_unsupported, keep_owner, kept_permissions, rename_new};

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
#[derive(Debug)]
pub(super) struct Disk<'t> {
    /// Where the files lie that change. All of them are reached through it.
    pub(super) tree: &'t Workspace,
    /// Things to do until the fault, and the fault.
    due: Cell<Option<(usize, Fault)>>,
    crashed: Cell<bool>,
}

impl<'t> Disk<'t> {
    /// The disk as it is.
    pub(super) fn real(tree: &'t Workspace) -> Self {
        Self { tree, due: Cell::new(None), crashed: Cell::new(false) }
    }

    /// A disk that has its fault after so many things.
    #[cfg(test)]
    pub(super) fn faulty(tree: &'t Workspace, after: usize, fault: Fault) -> Self {
        Self { tree, due: Cell::new(Some((after, fault))), crashed: Cell::new(false) }
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
        let place = self.tree.reach(path)?;
        Ok(rustix::fs::mkdirat(place.directory(), place.name(), Mode::from_raw_mode(0o777))?)
    }

    /// Gives a directory these permissions, with those that its owner needs to work in it.
    pub(super) fn set_permissions(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.due()?;
        self.tree.reach(path)?.set_permissions(mode | 0o700)
    }

    /// Writes a new file to the end, on disk.
    pub(super) fn write(&self, path: &Path, after: &After) -> io::Result<Identity> {
        self.due()?;
        let place = self.tree.reach(path)?;
        if after.kind == AfterKind::Link {
            rustix::fs::symlinkat(after.bytes.as_slice(), place.directory(), place.name())?;
            return Ok(identity(&place.look()?));
        }
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let _alone = after.fetched.as_ref().and_then(|fetched| alone(fetched.bytes));
        let bytes = match &after.fetched {
            Some(fetched) => Cow::Owned((fetched.fetch)()?),
            None => Cow::Borrowed(&*after.bytes),
        };
        let opened = rustix::fs::openat(place.directory(), place.name(), flags, Mode::from_raw_mode(0o666))?;
        let mut file = File::from(opened);
        // A crash in the middle leaves half of it.
        let (half, rest) = bytes.split_at(bytes.len() / 2);
        file.write_all(half)?;
        self.due()?;
        file.write_all(rest)?;
        if let Some(like) = &after.like {
            keep_owner(&file, like);
            file.set_permissions(kept_permissions(like))?;
        }
        if let Some(executable) = after.executable {
            let mode = file.metadata()?.permissions().mode();
            let run = (mode & 0o444) >> 2;
            let mode = if executable { mode | run } else { mode & !0o111 };
            file.set_permissions(Permissions::from_mode(mode & 0o7777))?;
        }
        if let Some(mode) = after.mode {
            file.set_permissions(Permissions::from_mode(mode))?;
        }
        file.sync_data()?;
        Ok(identity(&file.metadata()?))
    }

    /// Gives a file a second name; where that cannot be, another name.
    pub(super) fn keep(&self, path: &Path, second: &Path) -> io::Result<()> {
        self.due()?;
        let (path, second) = (self.tree.reach(path)?, self.tree.reach(second)?);
        let (from, to) = ((path.directory(), path.name()), (second.directory(), second.name()));
        match rustix::fs::linkat(from.0, from.1, to.0, to.1, AtFlags::empty()) {
            Err(e) if e == rustix::io::Errno::EXIST => Err(e.into()),
            Err(_) => Ok(rustix::fs::renameat(from.0, from.1, to.0, to.1)?),
            Ok(()) => Ok(()),
        }
    }

    pub(super) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.due()?;
        let (from, to) = (self.tree.reach(from)?, self.tree.reach(to)?);
        Ok(rustix::fs::renameat(from.directory(), from.name(), to.directory(), to.name())?)
    }

    /// The same, where nothing may be written over.
    pub(super) fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.due()?;
        let (from, to) = (self.tree.reach(from)?, self.tree.reach(to)?);
        match rename_new((from.directory(), from.name()), (to.directory(), to.name())) {
            Err(e) if is_unsupported(&e) && to.look().is_ok() => Err(io::ErrorKind::AlreadyExists.into()),
            Err(e) if is_unsupported(&e) => {
                Ok(rustix::fs::renameat(from.directory(), from.name(), to.directory(), to.name())?)
            }
            done => done,
        }
    }

    /// Takes a file away. That it is gone already is as good.
    pub(super) fn remove(&self, path: &Path) -> io::Result<()> {
        self.due()?;
        let removed = self
            .tree
            .reach(path)
            .and_then(|place| Ok(rustix::fs::unlinkat(place.directory(), place.name(), AtFlags::empty())?));
        match removed {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }

    /// Takes a directory away with what is known to lie in it. What somebody else has put there or changed stays, and with it
    /// the directory.
    pub(super) fn remove_tree(&self, root: &Path, below: &[Below]) -> io::Result<()> {
        for Below { path, directory, id } in below.iter().rev() {
            let path = root.join(path);
            match identity_at(self.tree, &path) {
                Some(_) if *directory => self.remove_directory(&path)?,
                Some(now) if *id == Some(now) => self.remove(&path)?,
                Some(_) | None => {}
            }
        }
        self.remove_directory(root)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.due()?;
        let removed = self
            .tree
            .reach(path)
            .and_then(|place| Ok(rustix::fs::unlinkat(place.directory(), place.name(), AtFlags::REMOVEDIR)?));
        match removed {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }

    pub(super) fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.due()?;
        File::from(self.tree.open_directory(path)?).sync_all()
    }

    /// Gives a record another name. Records lie where no tool works, and are named by their paths.
    pub(super) fn rename_record(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.due()?;
        fs::rename(from, to)
    }

    /// Takes a record away. That it is gone already is as good.
    pub(super) fn remove_record(&self, path: &Path) -> io::Result<()> {
        self.due()?;
        match fs::remove_file(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }

    /// Puts the names of records on disk.
    pub(super) fn sync_records(&self, records: &Path) -> io::Result<()> {
        self.due()?;
        File::open(records)?.sync_all()
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
