//! Where a file came from that a command left behind: whether the command made it, or it was there before, out of sight.
//!
//! What a command brought out of an ignored directory or out of `.git` is somebody's only copy, and an undo must not delete
//! it. Taken for new is only what was made and written after the command began; everything else stays.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::tree::Stamp;
use crate::base::clock;
use crate::base::workspace::Workspace;

/// Longest wait for the clock of the file system. Its ticks are 10 ms at most; it may have been set back.
const TICK_MAX: Duration = Duration::from_millis(50);

/// Why something is left alone that may be somebody's.
const FROM_OUT_OF_SIGHT: &str = "nothing says that the command made it: it may have come from where nobody looks";
/// Why a file is left alone that may be all that is left of another one.
const MAY_BE_ANOTHER: &str = "it may be a file that the command moved and whose content was not kept";

/// The moment before a command begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Began(SystemTime);

impl Began {
    /// Now. File systems tell time in ticks: it waits for the next one, so that what comes has other times than what is there.
    pub(super) fn now(home: &Path) -> Self {
        let began = UNIX_EPOCH + Duration::from_nanos(clock::now_ns());
        let until = Instant::now() + TICK_MAX;
        let has_passed = || {
            let made = tempfile::tempfile_in(home).and_then(|file| file.metadata()?.modified());
            // Without an answer nobody knows; then files of the same tick are left alone.
            made.map_or(true, |made| made > began)
        };
        while !has_passed() && Instant::now() < until {
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
