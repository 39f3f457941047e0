//! Where a file came from that a command left behind: whether the command made it, or it was there before, out of sight.
//!
//! What a command brought out of an ignored directory or out of `.git` is somebody's only copy, and an undo must not delete
//! it. Taken for new is only what was made and written after the command began; everything else stays.

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::{FileExt as _, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use super::tree::Stamp;
use crate::base::clock;
use crate::base::workspace::Workspace;

/// Longest wait for the clock of the file system. Its ticks are 10 ms at most; it may have been set back.
const TICK_MAX: Duration = Duration::from_millis(50);

/// Why something is left alone that may be somebody's.
const FROM_OUT_OF_SIGHT: &str = "nothing says that the command made it: it may have come from where nobody looks";
/// Why a file is left alone that may be all that is left of another one.
const MAY_BE_ANOTHER: &str = "it may be a file that the command moved and whose content was not kept";

/// What time it is for the file system of a directory: a file without a name in it is asked.
///
/// File systems tell time in ticks of some milliseconds. One with finer times (Linux 6.13 and later: ext4, btrfs, XFS, tmpfs) gives
/// an exact one to a file that changes after somebody has asked for its time, and from then on nobody an earlier one; so there
/// is nothing to wait for.
#[derive(Debug)]
pub(super) struct FileClock {
    home: PathBuf,
    file: Mutex<Option<File>>,
}

impl FileClock {
    /// Of that directory's file system.
    pub(super) fn of(home: &Path) -> Self {
        Self { home: home.to_owned(), file: Mutex::default() }
    }

    /// Where it asks.
    pub(super) fn home(&self) -> &Path {
        &self.home
    }

    /// Whether all that is made from now on in a directory has a later time than that.
    fn is_past(&self, began: SystemTime, directory: &Path) -> std::io::Result<bool> {
        let device = std::fs::metadata(directory)?.dev();
        let mut kept = self.file.lock();
        let file = match kept.take() {
            Some(file) => file,
            None => tempfile::tempfile_in(&self.home)?,
        };
        let file = kept.insert(file);
        if file.metadata()?.dev() != device {
            // The other one may tell ticks alone: so does a new file, which nobody has asked.
            return Ok(tempfile::tempfile_in(&self.home)?.metadata()?.modified()? > began);
        }
        // The first change may still be told in ticks: it is another one than that of the last answer.
        for _ in 0..2 {
            file.write_at(&[0], 0)?;
            if file.metadata()?.modified()? > began {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The moment before a command begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Began(SystemTime);

impl Began {
    /// Now, in that directory. It waits until the file system tells another time than it told for what is there.
    pub(super) fn now(clock: &FileClock, directory: &Path) -> Self {
        let began = UNIX_EPOCH + Duration::from_nanos(clock::now_ns());
        let until = Instant::now() + TICK_MAX;
        // Without an answer nobody knows; then files of the same tick are left alone.
        while !clock.is_past(began, directory).unwrap_or(true) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        Self(began)
    }

    /// Whether what is there was made and written since. A file system that does not tell when says no.
    fn has_made(self, workspace: &Workspace, path: &Path, stamp: &Stamp) -> bool {
        let Ok(found) = workspace.look(path) else { return false };
        let is_after = |time: std::io::Result<SystemTime>| time.is_ok_and(|time| time > self.0);
        // One that was copied with its times, or moved from another file system, has its old ones.
        (found.dev(), found.ino()) == stamp.file && is_after(found.created()) && is_after(found.modified())
    }
}

/// What was in sight before a command.
#[derive(Debug, Default)]
pub(super) struct Before {
    /// What an undo can put back.
    pub(super) kept: HashSet<(u64, u64)>,
    /// Sizes of files that changed or went, and whose content was not kept.
    pub(super) lost: HashSet<i64>,
}

impl Before {
    /// Why something that has come must not be taken away again. None: it may be.
    pub(super) fn stays(
        &self,
        (workspace, began): (&Workspace, Option<Began>),
        (path, stamp): (&Path, &Stamp),
        foreign: &HashSet<(u64, u64)>,
    ) -> Option<&'static str> {
        if foreign.contains(&stamp.file) {
            return Some(FROM_OUT_OF_SIGHT);
        }
        if self.kept.contains(&stamp.file) {
            return None;
        }
        if stamp.is_file() && self.lost.contains(&stamp.bytes) {
            return Some(MAY_BE_ANOTHER);
        }
        let is_made = began.is_some_and(|began| began.has_made(workspace, path, stamp));
        (!is_made).then_some(FROM_OUT_OF_SIGHT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_behind_the_moment_has_a_later_time_and_what_was_there_has_not() {
        let place = tempfile::tempdir().unwrap();
        let clock = FileClock::of(place.path());
        for round in 0..200 {
            let at = |name: &str| place.path().join(format!("{name}{round}"));
            std::fs::write(at("before"), "x").unwrap();
            let began = Began::now(&clock, place.path());
            std::fs::write(at("behind"), "x").unwrap();
            let time = |name: &str| std::fs::metadata(at(name)).unwrap().modified().unwrap();
            assert!(time("before") <= began.0, "round {round}");
            assert!(time("behind") > began.0, "round {round}");
        }
    }

    #[test]
    fn another_file_system_is_waited_for_and_a_home_that_is_gone_is_not() {
        let place = tempfile::tempdir().unwrap();
        let clock = FileClock::of(place.path());
        let began = UNIX_EPOCH + Duration::from_nanos(clock::now_ns());
        let until = Instant::now() + Duration::from_secs(20);
        while !clock.is_past(began, Path::new("/proc")).unwrap() {
            assert!(Instant::now() < until, "time goes on");
        }
        let gone = FileClock::of(&place.path().join("gone"));
        assert!(gone.is_past(began, place.path()).is_err());
        Began::now(&gone, place.path());
    }
}
