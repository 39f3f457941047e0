//! The seam by which tools say what they are about to do to files, so that it can be shown and undone.
//!
//! A tool that knows its paths brackets the change: [`Recorded`] is held from before it until after it. What a command
//! changes nobody knows beforehand: the loop says when one begins and when it has ended. Whoever records never fails a
//! call: what could not be recorded is part of the record.

use std::path::PathBuf;
use std::sync::Arc;

use crate::base::BoxFuture;
use crate::protocol::ChangeReport;

/// Records what the calls of one turn do to files.
pub trait ChangeRecorder: Send + Sync + std::fmt::Debug + 'static {
    /// These paths are about to change, and nobody else changes them by our tools meanwhile. Directories with all that is in
    /// them. What was looked at: these, what is below them, and what is missing above them. Blocking.
    fn before(&self, paths: &[PathBuf]) -> Vec<PathBuf>;

    /// They have changed, or have not; `seen` is what [`ChangeRecorder::before`] has looked at. Blocking.
    fn after(&self, paths: &[PathBuf], seen: &[PathBuf]);

    /// A command begins. Returns when what it may change is known.
    fn command_begins(&self) -> BoxFuture<'_, ()>;

    /// A command has ended.
    fn command_ended(&self) -> BoxFuture<'_, ()>;

    /// What changed in the turn. None: nothing.
    fn report(&self) -> BoxFuture<'_, Option<ChangeReport>>;
}

/// Held while a tool changes paths that it knows. Made and dropped on the blocking pool.
#[derive(Debug)]
pub struct Recorded {
    recorder: Option<Arc<dyn ChangeRecorder>>,
    paths: Vec<PathBuf>,
    seen: Vec<PathBuf>,
}

impl Recorded {
    /// The paths are about to change. Absolute, without links.
    pub fn begin(recorder: Option<Arc<dyn ChangeRecorder>>, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        let Some(recorder) = recorder else { return Self { recorder: None, paths: Vec::new(), seen: Vec::new() } };
        let paths: Vec<PathBuf> = paths.into_iter().collect();
        let seen = recorder.before(&paths);
        Self { recorder: Some(recorder), paths, seen }
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        if let Some(recorder) = &self.recorder {
            recorder.after(&self.paths, &self.seen);
        }
    }
}
