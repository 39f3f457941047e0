//! What is to be known of the places that calls touch: instruction files in folders below the working directory, which a model is told of
//! when it first gets there. The seam; the application fills it.
//!
//! Their texts are findings of the call: behind the results of its round, and in the log. So a conversation that is read
//! from the log has them where they were.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::BoxFuture;
use crate::base::limit;

/// Who knows it.
pub trait Guide: Send + Sync + std::fmt::Debug {
    /// What is to be known of these places (absolute, without links) and was not told in this session: texts for the model.
    fn at<'a>(&'a self, paths: &'a [PathBuf], guided: &'a Guided) -> BoxFuture<'a, Vec<String>>;
}

/// What a session was told of so far.
#[derive(Debug, Default)]
pub struct Guided(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// It is known what the conversation has of it.
    begun: bool,
    /// Files whose texts were told.
    told: HashSet<PathBuf>,
    /// Directories that were looked at.
    looked: HashSet<PathBuf>,
}

impl Guided {
    /// Takes over what the conversation has of it already, the first time.
    pub fn begin(&self, told: impl FnOnce() -> Vec<PathBuf>) {
        let mut known = self.0.lock();
        if !std::mem::replace(&mut known.begun, true) {
            known.told.extend(told());
        }
    }

    /// Of these directories those that were never looked at; from now on they were.
    pub fn fresh(&self, directories: impl IntoIterator<Item = PathBuf>) -> Vec<PathBuf> {
        let mut known = self.0.lock();
        let mut fresh = Vec::new();
        for directory in directories {
            if known.looked.len() >= limit::GUIDED_DIRECTORIES_MAX {
                break;
            }
            if known.looked.insert(directory.clone()) {
                fresh.push(directory);
            }
        }
        fresh
    }

    /// Whether a file is told for the first time; from now on it was.
    pub fn tells(&self, path: &Path) -> bool {
        self.0.lock().told.insert(path.to_owned())
    }

    /// The conversation has it no longer: who gets there again is told again.
    pub fn forget(&self) {
        let mut known = self.0.lock();
        known.told.clear();
        known.looked.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_told_and_looked_at_once() {
        let guided = Guided::default();
        guided.begin(|| vec!["/w/a/AGENTS.md".into()]);
        guided.begin(|| panic!("it has begun"));
        let all = || ["/w/a", "/w/a/b", "/w/a"].map(PathBuf::from);
        assert_eq!(guided.fresh(all()), [PathBuf::from("/w/a"), "/w/a/b".into()]);
        assert!(guided.fresh(all()).is_empty());
        assert!(!guided.tells(Path::new("/w/a/AGENTS.md")) && guided.tells(Path::new("/w/a/b/AGENTS.md")));
        guided.forget();
        assert!(guided.tells(Path::new("/w/a/AGENTS.md")));
        let many = (0..2 * limit::GUIDED_DIRECTORIES_MAX).map(|n| PathBuf::from(n.to_string()));
        assert_eq!(guided.fresh(many).len(), limit::GUIDED_DIRECTORIES_MAX, "there is an end");
    }
}
