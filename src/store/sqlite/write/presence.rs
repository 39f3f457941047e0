//! Whether the database is still where it was. What is written to one that was taken away is gone with it, and nobody would notice.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::store::StoreError;
use crate::store::directory;

/// How long it is not looked again.
const LOOK: Duration = Duration::from_secs(1);

/// The database as it lay there when it was opened.
pub(super) struct Presence {
    path: PathBuf,
    file: Option<(u64, u64)>,
    looked_at: Instant,
    is_gone: bool,
}

impl Presence {
    /// As it lies there now.
    pub(super) fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), file: identity(path), looked_at: Instant::now(), is_gone: false }
    }

    /// Whether it is there, as far as that was seen within the last second.
    ///
    /// # Errors
    /// It was taken away, or another lies there.
    pub(super) fn check(&mut self) -> Result<(), StoreError> {
        if self.looked_at.elapsed() >= LOOK {
            self.look();
        }
        if !self.is_gone {
            return Ok(());
        }
        let cause = "it was taken away, or something else lies there now";
        Err(directory::failure("find the database where it was", &self.path, &io::Error::other(cause)))
    }

    fn look(&mut self) {
        (self.looked_at, self.is_gone) = (Instant::now(), identity(&self.path) != self.file);
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_away_is_missed_until_it_is_back() {
        let home = tempfile::tempdir().expect("a directory");
        let at = |name: &str| home.path().join(name);
        std::fs::write(at("x"), "").expect("written");
        let mut presence = Presence::of(&at("x"));
        let mut is_there = || {
            presence.look();
            presence.check().is_ok()
        };
        assert!(is_there());
        std::fs::rename(at("x"), at("away")).expect("moved");
        assert!(!is_there());
        std::fs::write(at("x"), "").expect("written");
        assert!(!is_there(), "another one");
        std::fs::rename(at("away"), at("x")).expect("moved");
        assert!(is_there());
    }
}
