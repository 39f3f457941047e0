//! The stale-file check: a file that has changed since the session last read it is not changed blindly.
//!
//! [`Guard::check`] comes first in everything that changes a file, while the file's `turn` is held;
//! [`Guard::saw`] and [`Guard::wrote`] keep what the session knows up to date. Who changed the file does not matter:
//! a person, a formatter run by `bash`, another session.

use std::fs::{File, Metadata};
use std::hash::Hasher;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use super::fs_file::Target;
use crate::base::workspace::{StaleCheck, Workspace};
use crate::tool::{FileMark, FileStamp, Scope, ToolContext, ToolError};

/// What a session knows of the files it works on, and what follows from it.
#[derive(Debug, Clone)]
pub(super) struct Guard {
    scope: Arc<Scope>,
    mode: StaleCheck,
}

/// What the session knows of a file that is about to be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// There is none yet.
    New,
    /// It was read or written, and is as it was then; or nobody wants to know.
    Seen,
    /// It is there, and was never read.
    Unseen,
}

impl Guard {
    /// The guard of one call.
    pub(super) fn new(workspace: &Workspace, context: &ToolContext) -> Self {
        Self { scope: Arc::clone(&context.scope), mode: workspace.stale_check() }
    }

    /// Whether the file may be changed. `input` is the path as the caller gave it.
    ///
    /// # Errors
    /// It changed since it was last read; or, when the check is strict, was never read.
    pub(super) fn check(&self, target: &Target, input: &str) -> Result<Known, ToolError> {
        let Some(found) = target.existing() else { return Ok(Known::New) };
        let mark = match (self.mode, self.scope.files.get(target.path())) {
            (StaleCheck::Off, _) => return Ok(Known::Seen),
            (StaleCheck::Warn, None) => return Ok(Known::Unseen),
            (StaleCheck::Strict, None) => {
                return Err(ToolError::failed(format!(
                    "\"{input}\" was not read in this session, so it is left alone: read it with fs_read first"
                )));
            }
            (StaleCheck::Strict | StaleCheck::Warn, Some(mark)) => mark,
        };
        let stamp = FileStamp::of(found);
        if stamp == mark.stamp {
            return Ok(Known::Seen);
        }
        if stamp.bytes() == mark.stamp.bytes() && mark.hash.is_some() && self.hash_of(target.path()) == mark.hash {
            // Touched, not changed.
            self.scope.files.set(target.path(), FileMark { stamp, hash: mark.hash });
            return Ok(Known::Seen);
        }
        Err(ToolError::failed(format!(
            "\"{input}\" has changed since this session last read it ({} bytes then, {} now), so it is left alone: \
             read it again with fs_read, then make the change that is still right",
            mark.stamp.bytes(),
            stamp.bytes()
        )))
    }

    /// The file was read. `found` is how it was when the reading began; `hash` that of its whole content, when all of
    /// it was seen.
    pub(super) fn saw(&self, path: &Path, found: &Metadata, hash: Option<u64>) {
        self.scope.files.set(path, FileMark { stamp: FileStamp::of(found), hash });
    }

    /// The session itself wrote the file: it knows what is in it.
    pub(super) fn wrote(&self, path: &Path, stamp: FileStamp, content: &[u8]) {
        let mut hasher = self.scope.files.hasher();
        hasher.write(content);
        self.scope.files.set(path, FileMark { stamp, hash: Some(hasher.finish()) });
    }

    /// The file has another path now. None: it is gone.
    pub(super) fn moved(&self, from: &Path, to: Option<&Path>) {
        let mark = self.scope.files.get(from);
        self.scope.files.forget(from);
        if let (Some(mark), Some(to)) = (mark, to) {
            self.scope.files.set(to, mark);
        }
    }

    /// Takes the bytes of a file while it is read, for [`Guard::saw`].
    pub(super) fn hasher(&self) -> impl Hasher + use<> {
        self.scope.files.hasher()
    }

    fn hash_of(&self, path: &Path) -> Option<u64> {
        let mut file = File::open(path).ok()?;
        let mut hasher = self.hasher();
        let mut chunk = vec![0; 64 * 1024];
        loop {
            match file.read(&mut chunk).ok()? {
                0 => return Some(hasher.finish()),
                got => hasher.write(&chunk[..got]),
            }
        }
    }
}
