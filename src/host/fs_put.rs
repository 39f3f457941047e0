//! Puts a file in its place: the whole of it or nothing, also when the machine stops in between.
//!
//! The content goes to a file beside the place, without a name where the file system can do that, and to the disk;
//! then it gets the place's name in one step. A name that a crash leaves behind ([`PREFIX`]) is removed by a
//! later write into the same directory.

use std::collections::HashSet;
use std::fs::{File, Metadata, Permissions};
use std::io::{Error, Result, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

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
    /// What is there now, whose mode and owner are kept. None: nothing may be there.
    pub replaces: Option<&'c Metadata>,
}

/// Puts a file at `path`, which lies in `parent`. Returns what the file system says of it.
///
/// # Errors
/// What the file system says; then what was there before still is.
pub(super) fn put(parent: &Path, path: &Path, content: Content<'_>) -> Result<FileStamp> {
    sweep(parent);
    let directory = File::open(parent)?;
    let written = match put_unnamed(parent, path, content) {
        Err(e) if is_unsupported(&e) => put_named(parent, path, content)?,
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
fn put_unnamed(parent: &Path, path: &Path, content: Content<'_>) -> Result<File> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::openat(CWD, parent, flags, Mode::from_raw_mode(0o666))?);
    fill(&mut file, content)?;
    let own = format!("/proc/self/fd/{}", file.as_raw_fd());
    let link = |to: &Path| rustix::fs::linkat(CWD, &own, CWD, to, AtFlags::SYMLINK_FOLLOW);
    if content.replaces.is_none() {
        // The kernel refuses to write over what came to be there meanwhile. A missing /proc is told apart from that.
        link(path).map_err(|e| if e == Errno::NOENT { Errno::NOTSUP } else { e })?;
        return Ok(file);
    }
    let named = names().make_in(parent, |name| link(name).map_err(Error::from));
    let named = named.map_err(|e| if e.kind() == std::io::ErrorKind::NotFound { Errno::NOTSUP.into() } else { e })?;
    named.into_temp_path().persist(path).map_err(|e| e.error)?;
    Ok(file)
}

/// Through a file with a name of its own.
fn put_named(parent: &Path, path: &Path, content: Content<'_>) -> Result<File> {
    let mut file = names().permissions(Permissions::from_mode(0o666)).tempfile_in(parent)?;
    fill(file.as_file_mut(), content)?;
    match content.replaces {
        Some(_) => file.persist(path).map_err(|e| e.error),
        None => file.persist_noclobber(path).map_err(|e| e.error),
    }
}

fn names() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(PREFIX).suffix(SUFFIX);
    builder
}

fn fill(file: &mut File, content: Content<'_>) -> Result<()> {
    file.write_all(content.bytes)?;
    if let Some(existing) = content.replaces {
        // First the owner: a change of it takes the special bits away.
        keep_owner(file, existing);
        file.set_permissions(existing.permissions())?;
    }
    file.sync_all()
}

/// Whether the file system, or the machine, cannot do this at all.
fn is_unsupported(error: &Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::NOTSUP | Errno::ISDIR | Errno::INVAL | Errno::NOSYS))
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
fn sweep(directory: &Path) {
    {
        let mut swept = SWEPT.lock();
        if swept.len() >= SWEPT_MAX {
            swept.clear();
        }
        if !swept.insert(directory.to_owned()) {
            return;
        }
    }
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries.take(SWEEP_ENTRIES_MAX).filter_map(Result::ok) {
        let ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX));
        if ours && is_leftover(&entry) {
            let removed = std::fs::remove_file(entry.path());
            tracing::debug!(file = %entry.path().display(), ?removed, "an unfinished file of an earlier run");
        }
    }
}

fn is_leftover(entry: &std::fs::DirEntry) -> bool {
    let old = |found: &Metadata| found.modified().ok()?.elapsed().ok();
    entry.metadata().is_ok_and(|found| found.is_file() && old(&found).is_some_and(|age| age > LEFTOVER_AGE))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

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
            way(home.path(), &path, Content { bytes: b"one", replaces: None }).unwrap();
            let taken = way(home.path(), &path, Content { bytes: b"two", replaces: None }).unwrap_err();
            assert_eq!(taken.kind(), std::io::ErrorKind::AlreadyExists, "made meanwhile by somebody else");
            assert_eq!(fs::read(&path).unwrap(), b"one");
            fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
            let before = fs::metadata(&path).unwrap();
            let file = way(home.path(), &path, Content { bytes: b"three", replaces: Some(&before) }).unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"three");
            let after = fs::metadata(&path).unwrap();
            assert_eq!((after.mode(), after.ino()), (before.mode(), file.metadata().unwrap().ino()));
            assert_eq!(listed(home.path()), ["a"]);
        }
    }

    /// Only a privileged user can give files away, so only such a one sees that they are given back.
    #[test]
    fn the_owner_and_special_bits_are_kept() {
        for way in [put_unnamed, put_named] {
            let home = tempfile::tempdir().unwrap();
            let path = home.path().join("a");
            fs::write(&path, "x").unwrap();
            let given = std::os::unix::fs::chown(&path, Some(1234), Some(4321)).is_ok();
            fs::set_permissions(&path, Permissions::from_mode(0o6755)).unwrap();
            let before = fs::metadata(&path).unwrap();
            way(home.path(), &path, Content { bytes: b"y", replaces: Some(&before) }).unwrap();
            let after = fs::metadata(&path).unwrap();
            assert_eq!((after.uid(), after.gid(), after.mode()), (before.uid(), before.gid(), before.mode()));
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
        put(home.path(), &home.path().join("new"), Content { bytes: b"", replaces: None }).unwrap();
        assert_eq!(listed(home.path()), [".simse-b2.tmp", ".simse-x", "a.tmp", "new"]);
    }
}
