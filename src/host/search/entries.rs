//! Directories and files by open handles: a listing with one allocation for all names, and opens that follow no link.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};

use crate::base::limit;

/// Bytes that one system call lists.
const LISTING_BYTES: usize = 32 << 10;

/// What a name in a directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::host) enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A symbolic link.
    Link,
    /// A pipe, a socket, a device.
    Other,
}

impl From<FileType> for Kind {
    fn from(kind: FileType) -> Self {
        match kind {
            FileType::Directory => Self::Directory,
            FileType::RegularFile => Self::File,
            FileType::Symlink => Self::Link,
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => Self::Other,
        }
    }
}

/// One name in an [`Entries`].
#[derive(Debug, Clone, Copy)]
pub(in crate::host) struct Entry {
    start: u32,
    len: u16,
    /// What it is.
    pub kind: Kind,
}

/// What is in a directory, `.` and `..` left out.
#[derive(Debug, Default, Clone)]
pub(in crate::host) struct Entries {
    names: Vec<u8>,
    list: Vec<Entry>,
    /// There are more than were read.
    pub more: bool,
}

impl Entries {
    /// Lists an open directory, in the order in which the file system gives the names.
    ///
    /// # Errors
    /// What the file system says.
    pub(in crate::host) fn read(directory: BorrowedFd<'_>) -> io::Result<Self> {
        let mut entries = Self { names: Vec::with_capacity(512), list: Vec::with_capacity(32), more: false };
        list(directory, &mut entries)?;
        Ok(entries)
    }

    /// All names and kinds.
    pub(in crate::host) fn iter(&self) -> impl Iterator<Item = (&[u8], Entry)> {
        self.list.iter().map(|entry| (self.name(*entry), *entry))
    }

    /// How many there are.
    pub(in crate::host) fn len(&self) -> usize {
        self.list.len()
    }

    /// Bytes that they take.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.names.len() + self.list.len() * size_of::<Entry>()
    }

    /// The name of an entry of this listing.
    pub(in crate::host) fn name(&self, entry: Entry) -> &[u8] {
        &self.names[entry.start as usize..entry.start as usize + usize::from(entry.len)]
    }

    /// An entry by its place.
    pub(in crate::host) fn get(&self, at: usize) -> Option<Entry> {
        self.list.get(at).copied()
    }

    /// Keeps those that `wanted` holds of.
    pub(in crate::host) fn retain(&mut self, mut wanted: impl FnMut(&[u8], Entry) -> bool) {
        let names = &self.names;
        self.list.retain(|entry| {
            let start = entry.start as usize;
            wanted(&names[start..start + usize::from(entry.len)], *entry)
        });
    }

    /// Sorts by name, byte by byte.
    pub(in crate::host) fn sort(&mut self) {
        let names = &self.names;
        let name = |entry: &Entry| &names[entry.start as usize..entry.start as usize + usize::from(entry.len)];
        self.list.sort_unstable_by(|a, b| name(a).cmp(name(b)));
    }

    /// Adds one. False when there are as many as fit.
    fn push(&mut self, name: &[u8], kind: Kind) -> bool {
        let place = u32::try_from(self.names.len()).ok().zip(u16::try_from(name.len()).ok());
        let (true, Some((start, len))) = (self.list.len() < limit::DIRECTORY_ENTRIES_MAX, place) else {
            self.more = true;
            return false;
        };
        self.names.extend_from_slice(name);
        self.list.push(Entry { start, len, kind });
        true
    }
}

/// Not every file system tells the kind with the name.
fn kind_of(directory: BorrowedFd<'_>, name: &[u8], told: FileType) -> Kind {
    match told {
        FileType::Unknown => rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_or(Kind::Other, |found| FileType::from_raw_mode(found.st_mode).into()),
        known => known.into(),
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn list(directory: BorrowedFd<'_>, entries: &mut Entries) -> io::Result<()> {
    thread_local! {
        static BUFFER: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    BUFFER.with_borrow_mut(|buffer| {
        buffer.reserve(LISTING_BYTES);
        let mut listing = rustix::fs::RawDir::new(directory, buffer.spare_capacity_mut());
        while let Some(entry) = listing.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." && !entries.push(name, kind_of(directory, name, entry.file_type())) {
                break;
            }
        }
        Ok(())
    })
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn list(directory: BorrowedFd<'_>, entries: &mut Entries) -> io::Result<()> {
    for entry in rustix::fs::Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." && !entries.push(name, kind_of(directory, name, entry.file_type())) {
            break;
        }
    }
    Ok(())
}

/// Opens `name` in `directory`, which must be a directory itself and no link to one.
///
/// # Errors
/// What the file system says.
fn open_directory(directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(directory, name, flags, Mode::empty())?)
}

/// Opens the directory `path` below `base`, step by step.
///
/// # Errors
/// What the file system says.
pub(in crate::host) fn open_below(base: BorrowedFd<'_>, path: &[u8]) -> io::Result<OwnedFd> {
    let mut open: Option<OwnedFd> = None;
    for name in path.split(|byte| *byte == b'/') {
        let next = open_directory(open.as_ref().map_or(base, AsFd::as_fd), name)?;
        open = Some(next);
    }
    open.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
}

/// Opens the directory `path` below `base`, in its parent where that is open. The empty path is the base itself.
///
/// # Errors
/// What the file system says.
pub(super) fn open_in(base: BorrowedFd<'_>, parent: Option<BorrowedFd<'_>>, path: &[u8]) -> io::Result<OwnedFd> {
    match parent {
        Some(parent) => open_directory(parent, path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)),
        None if path.is_empty() => open_directory(base, b"."),
        None => open_below(base, path),
    }
}

/// What is known of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct FileSystem {
    /// A read that gives less than it could has reached the end of a regular file.
    ///
    /// So it is on those that keep their files on a disk or in memory; it saves a call a file to know it. Elsewhere (a file
    /// system in a program, the kernel's own pretended files) only an empty read is the end.
    pub short_reads_end: bool,
    /// Every change of a file's content changes its times, also one through a mapping once the page was on the disk.
    pub notes_changes: bool,
}

impl FileSystem {
    /// The one that `directory` lies on.
    pub(super) fn of(directory: BorrowedFd<'_>) -> Self {
        #[cfg(target_os = "linux")]
        {
            // ext2 to ext4, XFS, Btrfs, F2FS.
            const ON_DISK: [u64; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010];
            // tmpfs, overlayfs, ZFS.
            const OTHERS: [u64; 3] = [0x0102_1994, 0x794c_7630, 0x2fc1_2fc1];
            let kind = rustix::fs::fstatfs(directory).ok().and_then(|found| u64::try_from(found.f_type).ok());
            let notes_changes = kind.is_some_and(|kind| ON_DISK.contains(&kind));
            Self { notes_changes, short_reads_end: notes_changes || kind.is_some_and(|kind| OTHERS.contains(&kind)) }
        }
        #[cfg(not(target_os = "linux"))]
        {
            let _ = directory;
            Self::default()
        }
    }
}

/// Opens `name` in `directory` for reading, and never hangs: no link is followed, no pipe is waited for.
///
/// # Errors
/// What the file system says.
pub(in crate::host) fn open_file(directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY;
    Ok(rustix::fs::openat(directory, name, flags, Mode::empty())?)
}

/// Bytes as a path.
pub(in crate::host) fn as_path(bytes: &[u8]) -> &std::path::Path {
    std::path::Path::new(OsStr::from_bytes(bytes))
}

/// A name below a directory, which may be the base (the empty path).
pub(in crate::host) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(directory.len() + 1 + name.len());
    path.extend_from_slice(directory);
    if !directory.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}
