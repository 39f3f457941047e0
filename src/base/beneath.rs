//! Opens what lies below an open directory, and nothing else: the kernel resolves the path (`openat2`), and where it cannot,
//! each name is opened by itself in the directory before it.
//!
//! Neither way follows a link or goes up. Who calls has followed the links there were, so that one met here was put there in
//! between, and is an error (`ELOOP`). Both ways answer alike.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};
use std::sync::LazyLock;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

/// A directory that others are found in, whether or not it may be listed.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub const STEP: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// The same where such a handle needs the right to list.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub const STEP: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Times that the kernel is asked again when it met a rename.
#[cfg(any(target_os = "linux", target_os = "android"))]
const RENAMES_MAX: usize = 100;

/// How a path is resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// By the kernel, in one call.
    Kernel,
    /// Name by name.
    Names,
}

/// The best way that this machine has. Tried out once: an old kernel has no `openat2`, and a filter may refuse it.
pub fn way() -> Way {
    static FOUND: LazyLock<Way> = LazyLock::new(|| match kernel(CWD, Path::new("."), STEP, false) {
        Ok(_) => Way::Kernel,
        Err(_) => Way::Names,
    });
    *FOUND
}

impl Way {
    /// Opens `path`, which has plain names alone, below `directory`. An empty one is the directory itself.
    ///
    /// # Errors
    /// What the file system says; `ELOOP` for a link on the way or at its end.
    pub fn open(self, directory: BorrowedFd<'_>, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        match self {
            Self::Kernel => Ok(kernel(directory, path, flags, false)?),
            Self::Names => names(directory, path, flags),
        }
    }

    /// Opens an absolute path without links.
    ///
    /// # Errors
    /// As [`Way::open`].
    pub fn open_absolute(self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        match self {
            Self::Kernel => Ok(kernel(CWD, path, flags, true)?),
            Self::Names => {
                let top = rustix::fs::open("/", STEP, Mode::empty())?;
                let below = path.strip_prefix("/").unwrap_or(path);
                self.open(top.as_fd(), below, flags)
            }
        }
    }
}

/// Opens a name in a directory; a link there is refused.
///
/// # Errors
/// As [`Way::open`].
pub(super) fn open_name(directory: BorrowedFd<'_>, name: &OsStr, flags: OFlags) -> io::Result<OwnedFd> {
    match rustix::fs::openat(directory, name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
        Ok(opened) => Ok(opened),
        // A link that was to be a directory is "not a directory".
        Err(Errno::NOTDIR) if is_link(directory, name) => Err(Errno::LOOP.into()),
        Err(error) => Err(error.into()),
    }
}

fn is_link(directory: BorrowedFd<'_>, name: &OsStr) -> bool {
    let found = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode).is_symlink())
}

fn names(directory: BorrowedFd<'_>, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let mut open: Option<OwnedFd> = None;
    let mut left = path.components().peekable();
    while let Some(component) = left.next() {
        let name = match component {
            Component::Normal(name) => name,
            Component::CurDir => OsStr::new("."),
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(Errno::XDEV.into()),
        };
        let flags = if left.peek().is_some() { STEP } else { flags };
        open = Some(open_name(open.as_ref().map_or(directory, AsFd::as_fd), name, flags)?);
    }
    open.ok_or_else(|| Errno::INVAL.into())
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn kernel(directory: BorrowedFd<'_>, path: &Path, flags: OFlags, absolute: bool) -> Result<OwnedFd, Errno> {
    use rustix::fs::ResolveFlags;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let resolve = if absolute { resolve } else { resolve | ResolveFlags::BENEATH };
    // Asked not to follow, it would say of a link that it is no directory.
    let flags = flags.difference(OFlags::NOFOLLOW) | OFlags::CLOEXEC;
    for _ in 0..RENAMES_MAX {
        match rustix::fs::openat2(directory, path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            done => return done,
        }
    }
    Err(Errno::AGAIN)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn kernel(_: BorrowedFd<'_>, _: &Path, _: OFlags, _: bool) -> Result<OwnedFd, Errno> {
    Err(Errno::NOSYS)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn both_ways_answer_alike() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        fs::create_dir_all(home.join("in/a/b")).unwrap();
        fs::write(home.join("in/a/file"), "").unwrap();
        symlink("b", home.join("in/a/link")).unwrap();
        symlink("file", home.join("in/a/to_file")).unwrap();
        symlink(home.join("in"), home.join("in/a/b/up")).unwrap();
        let (file, step) = (OFlags::RDONLY, STEP);
        let code = |result: io::Result<OwnedFd>| result.err().and_then(|e| Errno::from_io_error(&e));
        #[rustfmt::skip]
        let table = [
            ("", step, None), ("a", step, None), ("a/b", step, None), ("a/file", file, None),
            ("a/link", step, Some(Errno::LOOP)), ("a/link/x", file, Some(Errno::LOOP)), ("a/to_file", file, Some(Errno::LOOP)),
            ("a/b/up/a/file", file, Some(Errno::LOOP)), ("a/none", file, Some(Errno::NOENT)), ("none/x", file, Some(Errno::NOENT)),
            ("a/file/x", file, Some(Errno::NOTDIR)), ("a/file", step, Some(Errno::NOTDIR)),
            ("..", step, Some(Errno::XDEV)), ("a/../../x", file, Some(Errno::XDEV)), ("/etc/passwd", file, Some(Errno::XDEV)),
        ];
        for way in [Way::Names, way()] {
            let top = way.open_absolute(&home.join("in"), STEP).unwrap();
            for (path, flags, want) in table {
                assert_eq!(code(way.open(top.as_fd(), Path::new(path), flags)), want, "{way:?} {path}");
            }
            assert_eq!(code(way.open_absolute(&home.join("in/a/link"), STEP)), Some(Errno::LOOP));
            assert!(way.open_absolute(Path::new("/"), STEP).is_ok());
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_kernel_resolves_by_itself() {
        // Linux has had the call since 5.6; a filter that refuses it is told by `way`, and the other way is as good.
        let filtered = matches!(kernel(CWD, Path::new("."), STEP, false), Err(Errno::PERM | Errno::NOSYS));
        assert_eq!(way() == Way::Names, filtered);
    }
}
