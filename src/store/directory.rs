//! The data directory: made for its owner alone, held by one process at a time.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::base::{file, limit, own_directory};
use crate::store::StoreError;

/// Largest `server.json` that is looked into, in bytes.
const SERVER_BYTES_MAX: u64 = 64 << 10;
/// Pause between two looks at a lock whose holder is gone.
const LOCK_PAUSE: Duration = Duration::from_millis(5);
/// Numbered directories that are tried under one place.
const NUMBERED_MAX: u32 = 1_000;

/// Makes the directory, and those above it, where they are not there; refuses one that others may write into.
fn make(directory: &Path) -> Result<(), StoreError> {
    own_directory::prepare(directory).map_err(|e| failure("use the data directory", directory, &e))
}

/// Makes a file that only its owner can read, where it is not there.
pub(super) fn make_private_file(path: &Path) -> Result<(), StoreError> {
    open(path).map(drop).map_err(|e| failure("open the database", path, &e))
}

/// The lock of a data directory, held as long as this lives.
///
/// It is given back by word and not only by closing the file: a program that is just being started holds a copy of
/// every open file for a moment.
#[derive(Debug)]
pub struct Lock(File);

impl Lock {
    /// What no other lock on a machine that is up now is called. None: the system does not say.
    pub(super) fn identity(&self) -> Option<String> {
        use std::os::unix::fs::MetadataExt as _;
        let since_start = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let found = self.0.metadata().ok()?;
        Some(format!("{} {}:{}", since_start.trim(), found.dev(), found.ino()))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing does it all the same, if later.
        let _ = self.0.unlock();
    }
}

/// Makes the directory where it is not there, and takes its lock.
///
/// # Errors
/// [`StoreError::InUse`]; [`StoreError::Io`] that names the path.
pub fn hold_directory(directory: &Path) -> Result<Lock, StoreError> {
    make(directory)?;
    lock(directory)
}

/// The same of the first of the directories `under/0`, `under/1` … that no other process holds.
///
/// # Errors
/// As [`hold_directory`]; [`StoreError::InUse`] when all are held.
pub fn hold_first_free(under: &Path) -> Result<(PathBuf, Lock), StoreError> {
    make(under)?;
    lock_first_free(under)
}

/// Takes the directory's lock. Of a process that was killed a program that it was just starting may hold a copy for a
/// moment longer: that is waited for.
fn lock(directory: &Path) -> Result<Lock, StoreError> {
    let path = directory.join("lock");
    let file = open(&path).map_err(|e| failure("open the lock of the data directory", &path, &e))?;
    let until = Instant::now() + Duration::from_millis(limit::LEFT_LOCK_WAIT_MS);
    loop {
        match file.try_lock() {
            Ok(()) => {
                sign(&file);
                return Ok(Lock(file));
            }
            Err(TryLockError::WouldBlock) if is_left(&file) && Instant::now() < until => std::thread::sleep(LOCK_PAUSE),
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::InUse { directory: directory.to_owned(), holder: holder(directory) });
            }
            Err(TryLockError::Error(e)) => return Err(failure("lock the data directory", &path, &e)),
        }
    }
}

/// Writes into a lock whose it is. One that nobody could sign is not waited for.
fn sign(mut file: &File) {
    let name = std::process::id().to_string();
    let signed = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(name.as_bytes()));
    if let Err(error) = signed {
        tracing::debug!(%error, "the lock of the data directory does not say whose it is");
    }
}

/// Whether a lock's holder is known and no longer there.
fn is_left(mut file: &File) -> bool {
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.take(20).read_to_string(&mut text));
    let pid = read.ok().and_then(|_| text.parse::<u32>().ok());
    let gone = |pid: u32| !Path::new("/proc").join(pid.to_string()).exists();
    // Where there is no /proc, nobody can be seen to be gone.
    pid.is_some_and(gone) && Path::new("/proc/self").exists()
}

/// Who has a directory that is only looked at.
pub(super) enum Hold {
    /// We, until this is dropped.
    Ours(Lock),
    /// Another process.
    Elsewhere,
    /// Nobody ever had it.
    NoLock,
}

/// Takes the directory's lock where it is free and there. Writes nothing.
pub(super) fn hold(directory: &Path) -> Result<Hold, StoreError> {
    let path = directory.join("lock");
    let failed = |e: io::Error| failure("lock the data directory", &path, &e);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Hold::NoLock),
        Err(e) => return Err(failed(e)),
    };
    match file.try_lock() {
        Ok(()) => Ok(Hold::Ours(Lock(file))),
        Err(TryLockError::WouldBlock) => Ok(Hold::Elsewhere),
        Err(TryLockError::Error(e)) => Err(failed(e)),
    }
}

/// Takes the lock of the first numbered directory that is free.
fn lock_first_free(under: &Path) -> Result<(PathBuf, Lock), StoreError> {
    for number in 0..NUMBERED_MAX {
        let directory = under.join(number.to_string());
        make(&directory)?;
        match lock(&directory) {
            Ok(file) => return Ok((directory, file)),
            Err(StoreError::InUse { .. }) => {}
            Err(other) => return Err(other),
        }
    }
    Err(StoreError::InUse { directory: under.to_owned(), holder: format!(" (all {NUMBERED_MAX} places are)") })
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Who holds the directory, from the file that a running server leaves there. Empty when it is not known.
fn holder(directory: &Path) -> String {
    let read = || -> Option<String> {
        let (text, _) = file::read_small(&directory.join("server.json"), SERVER_BYTES_MAX).ok()?;
        let facts: serde_json::Value = serde_json::from_slice(&text).ok()?;
        Some(format!(" (pid {}, {})", facts.get("pid")?, facts.get("url")?.as_str()?))
    };
    read().unwrap_or_default()
}

pub(super) fn failure(doing: &str, path: &Path, cause: &io::Error) -> StoreError {
    StoreError::Io { doing: doing.to_owned(), cause: format!("{}: {cause}", path.display()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holder_is_told_who_the_first_is() {
        let directory = tempfile::tempdir().expect("a directory");
        let first = lock(directory.path()).expect("free");
        let place = directory.path().display().to_string();
        let said = lock(directory.path()).expect_err("held").to_string();
        assert_eq!(said, format!("the data directory {place} is in use by another simse process"));

        std::fs::write(directory.path().join("server.json"), r#"{"pid": 7, "url": "http://127.0.0.1:1"}"#)
            .expect("written");
        let said = lock(directory.path()).expect_err("held").to_string();
        assert!(said.ends_with("simse process (pid 7, http://127.0.0.1:1)"), "{said}");
        drop(first);
        lock(directory.path()).expect("free again");
    }

    #[test]
    fn a_lock_that_a_killed_process_left_to_its_child_is_waited_for() {
        let directory = tempfile::tempdir().expect("a directory");
        drop(lock(directory.path()).expect("free"));
        let path = directory.path().join("lock");
        let signed = std::fs::read_to_string(&path).expect("read");
        assert_eq!(signed, std::process::id().to_string());
        // No process has this number.
        std::fs::write(&path, u32::MAX.to_string()).expect("written");
        let left = File::open(&path).expect("there");
        left.lock().expect("free");
        let child = std::thread::spawn(move || {
            // There is no signal for somebody who waits.
            std::thread::sleep(LOCK_PAUSE * 4);
            drop(left);
        });
        drop(lock(directory.path()).expect("free in the end"));
        child.join().expect("ends");
        let again = lock(directory.path()).expect("free");
        lock(directory.path()).expect_err("held by somebody who is there");
        drop(again);
    }

    #[test]
    fn the_first_free_number_is_taken() {
        let under = tempfile::tempdir().expect("a directory");
        let (zero, held) = lock_first_free(under.path()).expect("free");
        let (one, _held) = lock_first_free(under.path()).expect("free");
        assert_eq!((zero.clone(), one), (under.path().join("0"), under.path().join("1")));
        drop(held);
        assert_eq!(lock_first_free(under.path()).expect("free").0, zero);
    }

    #[test]
    fn what_cannot_be_made_is_named() {
        let parent = tempfile::NamedTempFile::new().expect("a file");
        let directory = parent.path().join("data");
        let said = make(&directory).expect_err("a file is in the way").to_string();
        assert!(said.contains(&directory.display().to_string()) && said.contains("use the data directory"), "{said}");
    }

    #[cfg(unix)]
    #[test]
    fn it_is_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let parent = tempfile::tempdir().expect("a directory");
        let directory = parent.path().join("data");
        make(&directory).expect("made");
        let file = directory.join("simse.db");
        make_private_file(&file).expect("made");
        let mode = |path: &Path| path.metadata().expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(&directory), mode(&file)), (0o700, 0o600));
    }
}
