//! Puts a file in its place: the whole of it or nothing, also when the machine stops in between.
//!
//! The content goes to a file beside the place, without a name where the file system can do that, and to the disk;
//! then it gets the place's name in one step. A name that a crash leaves behind ([`PREFIX`]) is removed by a
//! later write into the same directory. All of it happens in the place's open directory, wherever its path leads by then.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, Permissions};
use std::io::{Error, Result, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::base::place::Place;
use crate::tool::FileStamp;

/// How the names of unfinished files begin and end.
const PREFIX: &str = ".simse-";
const SUFFIX: &str = ".tmp";
/// Age from which an unfinished file is a leftover: writing one takes moments.
const LEFTOVER_AGE: Duration = Duration::from_secs(600);
/// Entries of a directory that are looked at for leftovers.
const SWEEP_ENTRIES_MAX: usize = 10_000;
/// Directories of which is remembered that they were swept.
const SWEPT_MAX: usize = 1_000;

static SWEPT: LazyLock<Mutex<HashSet<PathBuf>>> = LazyLock::new(Mutex::default);

/// What is put somewhere.
#[derive(Debug, Clone, Copy)]
pub(super) struct Content<'c> {
    /// The whole file.
    pub bytes: &'c [u8],
    /// What is there now, whose mode ([`kept_permissions`]) and owner are kept. None: nothing may be there.
    pub replaces: Option<&'c Metadata>,
}

/// Puts a file in a place. Returns what the file system says of it.
///
/// # Errors
/// What the file system says; then what was there before still is.
pub(super) fn put(place: &Place, content: Content<'_>) -> Result<FileStamp> {
    let here = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = File::from(rustix::fs::openat(place.directory(), ".", here, Mode::empty())?);
    sweep(place, &directory);
    let written = match put_unnamed(place, content) {
        Err(e) if is_unsupported(&e) => put_named(place, content)?,
        written => written?,
    };
    // Some file systems cannot, and then nothing more can be done.
    match directory.sync_all() {
        Err(e) if is_unsupported(&e) => {}
        synced => synced?,
    }
    Ok(FileStamp::of(&written.metadata()?))
}

/// Through a file that has no name until it is whole.
fn put_unnamed(place: &Place, content: Content<'_>) -> Result<File> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::openat(place.directory(), ".", flags, Mode::from_raw_mode(0o666))?);
    fill(&mut file, content)?;
    let own = format!("/proc/self/fd/{}", file.as_raw_fd());
    // The kernel refuses to write over what came to be there meanwhile. A missing /proc is told apart from that.
    let link = |to: &OsStr| {
        let linked = rustix::fs::linkat(CWD, &own, place.directory(), to, AtFlags::SYMLINK_FOLLOW);
        linked.map_err(|e| if e == Errno::NOENT { Errno::NOTSUP } else { e })
    };
    if content.replaces.is_none() {
        link(place.name())?;
        return Ok(file);
    }
    let (name, ()) = with_new_name(link)?;
    take_over(place, &name)?;
    Ok(file)
}

/// Through a file with a name of its own.
fn put_named(place: &Place, content: Content<'_>) -> Result<File> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let make = |name: &OsStr| rustix::fs::openat(place.directory(), name, flags, Mode::from_raw_mode(0o666));
    let (name, file) = with_new_name(make)?;
    let mut file = File::from(file);
    let put = fill(&mut file, content).and_then(|()| match content.replaces {
        Some(_) => take_over(place, &name),
        None => take_free(place, &name),
    });
    if put.is_err() {
        // Gone already, or swept later.
        let _left_over = rustix::fs::unlinkat(place.directory(), &name, AtFlags::empty());
    }
    put.map(|()| file)
}

/// Gives the file of that name the place's, over what is there.
fn take_over(place: &Place, name: &OsStr) -> Result<()> {
    let renamed = rustix::fs::renameat(place.directory(), name, place.directory(), place.name());
    if renamed.is_err() {
        let _left_over = rustix::fs::unlinkat(place.directory(), name, AtFlags::empty());
    }
    Ok(renamed?)
}

/// The same where nothing is; two names for a moment, where the file system cannot rename so.
fn take_free(place: &Place, name: &OsStr) -> Result<()> {
    let directory = place.directory();
    match rename_new((directory, name), (directory, place.name())) {
        Err(e) if is_unsupported(&e) => {
            rustix::fs::linkat(directory, name, directory, place.name(), AtFlags::empty())?;
            Ok(rustix::fs::unlinkat(directory, name, AtFlags::empty())?)
        }
        done => done,
    }
}

/// Renames where the name is free: the kernel decides.
///
/// # Errors
/// What the file system says; some cannot do it at all.
pub(super) fn rename_new(from: (BorrowedFd<'_>, &OsStr), to: (BorrowedFd<'_>, &OsStr)) -> Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
    {
        Ok(rustix::fs::renameat_with(from.0, from.1, to.0, to.1, rustix::fs::RenameFlags::NOREPLACE)?)
    }
    #[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
    {
        let _ = (from, to);
        Err(Errno::NOSYS.into())
    }
}

/// Does `make` with a name that nothing has.
fn with_new_name<T>(make: impl Fn(&OsStr) -> std::result::Result<T, Errno>) -> Result<(OsString, T)> {
    loop {
        let name = OsString::from(format!("{PREFIX}{}{SUFFIX}", uuid::Uuid::new_v4().simple()));
        match make(&name) {
            Ok(made) => return Ok((name, made)),
            // One chance in 2^122; the next name is another.
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn fill(file: &mut File, content: Content<'_>) -> Result<()> {
    file.write_all(content.bytes)?;
    if let Some(existing) = content.replaces {
        keep_owner(file, existing);
        file.set_permissions(kept_permissions(existing))?;
    }
    file.sync_all()
}

/// Whether the file system, or the machine, cannot do this at all.
pub(super) fn is_unsupported(error: &Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::NOTSUP | Errno::ISDIR | Errno::INVAL | Errno::NOSYS))
}

/// The permissions of a file that gets another content: those it had, but it no longer runs as its owner or group. What was
/// trusted so is gone; the kernel does the same when somebody else writes into it.
pub(super) fn kept_permissions(before: &Metadata) -> Permissions {
    let special = (Mode::SUID | Mode::SGID).bits();
    Permissions::from_mode(before.mode() & 0o7777 & !special)
}

/// Gives the file to whom it belonged, where that is allowed. Without the right to, it belongs to the writer.
pub(super) fn keep_owner(file: &File, before: &Metadata) {
    let Ok(now) = file.metadata() else { return };
    if (now.uid(), now.gid()) != (before.uid(), before.gid()) {
        let owner = rustix::fs::Uid::from_raw(before.uid());
        let group = rustix::fs::Gid::from_raw(before.gid());
        if let Err(e) = rustix::fs::fchown(file, Some(owner), Some(group)) {
            tracing::debug!(error = %e, "the owner of a written file could not be kept");
        }
    }
}

/// Removes what an earlier crash left in a directory; looks once, until many others were looked at.
fn sweep(place: &Place, directory: &File) {
    let Some(parent) = place.path().parent() else { return };
    {
        let mut swept = SWEPT.lock();
        if swept.len() >= SWEPT_MAX {
            swept.clear();
        }
        if !swept.insert(parent.to_owned()) {
            return;
        }
    }
    let Ok(entries) = rustix::fs::Dir::read_from(directory) else { return };
    for entry in entries.take(SWEEP_ENTRIES_MAX).filter_map(std::result::Result::ok) {
        let name = entry.file_name();
        let ours = name.to_str().is_ok_and(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX));
        if ours && is_leftover(place, name) {
            let removed = rustix::fs::unlinkat(place.directory(), name, AtFlags::empty());
            tracing::debug!(directory = %parent.display(), ?name, ?removed, "an unfinished file of an earlier run");
        }
    }
}

fn is_leftover(place: &Place, name: &std::ffi::CStr) -> bool {
    let Ok(found) = rustix::fs::statat(place.directory(), name, AtFlags::SYMLINK_NOFOLLOW) else { return false };
    let modified = u64::try_from(found.st_mtime).map(|s| SystemTime::UNIX_EPOCH + Duration::from_secs(s));
    let old = modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > LEFTOVER_AGE));
    FileType::from_raw_mode(found.st_mode).is_file() && old
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::base::workspace::Workspace;

    fn place(directory: &Path, name: &str) -> Place {
        Workspace::new(directory, &[]).unwrap().place(name).unwrap()
    }

    fn listed(directory: &Path) -> Vec<String> {
        let names = fs::read_dir(directory).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    /// Both ways must do the same.
    #[test]
    fn a_file_is_put_in_its_place_with_and_without_a_name_before() {
        for way in [put_unnamed, put_named] {
            let home = tempfile::tempdir().unwrap();
            let path = home.path().join("a");
            way(&place(home.path(), "a"), Content { bytes: b"one", replaces: None }).unwrap();
            let taken = way(&place(home.path(), "a"), Content { bytes: b"two", replaces: None }).unwrap_err();
            assert_eq!(taken.kind(), std::io::ErrorKind::AlreadyExists, "made meanwhile by somebody else");
            assert_eq!(fs::read(&path).unwrap(), b"one");
            fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
            let before = fs::metadata(&path).unwrap();
            let file = way(&place(home.path(), "a"), Content { bytes: b"three", replaces: Some(&before) }).unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"three");
            let after = fs::metadata(&path).unwrap();
            assert_eq!((after.mode(), after.ino()), (before.mode(), file.metadata().unwrap().ino()));
            assert_eq!(listed(home.path()), ["a"]);
        }
    }

    /// Only a privileged user can give files away, so only such a one sees that they are given back.
    #[test]
    fn the_owner_is_kept_and_nothing_runs_as_him() {
        for way in [put_unnamed, put_named] {
            let home = tempfile::tempdir().unwrap();
            let path = home.path().join("a");
            fs::write(&path, "x").unwrap();
            let given = std::os::unix::fs::chown(&path, Some(1234), Some(4321)).is_ok();
            fs::set_permissions(&path, Permissions::from_mode(0o7755)).unwrap();
            let before = fs::metadata(&path).unwrap();
            way(&place(home.path(), "a"), Content { bytes: b"y", replaces: Some(&before) }).unwrap();
            let after = fs::metadata(&path).unwrap();
            assert_eq!((after.uid(), after.gid()), (before.uid(), before.gid()));
            assert_eq!((before.mode() & 0o7777, after.mode() & 0o7777), (0o7755, 0o1755));
            assert_eq!(given, after.uid() == 1234);
        }
    }

    #[test]
    fn what_a_crash_left_is_removed_and_nothing_else() {
        let home = tempfile::tempdir().unwrap();
        let old = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        for (name, aged) in [(".simse-a1.tmp", true), (".simse-b2.tmp", false), (".simse-x", true), ("a.tmp", true)] {
            let file = File::create(home.path().join(name)).unwrap();
            if aged {
                file.set_modified(old).unwrap();
            }
        }
        put(&place(home.path(), "new"), Content { bytes: b"", replaces: None }).unwrap();
        assert_eq!(listed(home.path()), [".simse-b2.tmp", ".simse-x", "a.tmp", "new"]);
    }
}
