//! The stale-file check: a file that has changed since the session last read it is not changed blindly.
//!
//! [`Guard::check`] comes first in everything that changes a file, while the file's `turn` is held;
//! [`Guard::saw`] and [`Guard::wrote`] keep what the session knows up to date. Who changed the file does not matter:
//! a person, a formatter run by `bash`, another session.

use std::fs::Metadata;
use std::hash::Hasher;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::fs_file::Target;
use crate::base::workspace::{StaleCheck, Workspace};
use crate::tool::{FileMark, FileStamp, Recorded, Scope, ToolContext, ToolError};

/// What a session knows of the files it works on, and what follows from it.
#[derive(Debug, Clone)]
pub(super) struct Guard {
    scope: Arc<Scope>,
    workspace: Arc<Workspace>,
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
    pub(super) fn new(workspace: &Arc<Workspace>, context: &ToolContext) -> Self {
        let mode = workspace.stale_check();
        Self { scope: Arc::clone(&context.scope), workspace: Arc::clone(workspace), mode }
    }

    /// Records a change of these paths (absolute, without links), which goes on for as long as the answer is held. Blocking.
    pub(super) fn recording(&self, paths: impl IntoIterator<Item = PathBuf>) -> Recorded {
        Recorded::begin(self.scope.recorder.lock().clone(), paths)
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
        if stamp.bytes() == mark.stamp.bytes() && mark.hash.is_some() && self.hash_of(target) == mark.hash {
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
        let found = to.and_then(|to| Some((to, FileStamp::of(&self.workspace.look(to).ok()?))));
        if let (Some(mark), Some((to, stamp))) = (mark, found)
            && mark.stamp.renamed_to(&stamp)
        {
            self.scope.files.set(to, FileMark { stamp, ..mark });
        }
    }

    /// Takes the bytes of a file while it is read, for [`Guard::saw`].
    pub(super) fn hasher(&self) -> impl Hasher + use<> {
        self.scope.files.hasher()
    }

    fn hash_of(&self, target: &Target) -> Option<u64> {
        let mut file = target.open()?;
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

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::{Value, json};

    use super::super::fs_common::testing::{call_in, context, preview_in, workspace};
    use super::super::{FsDelete, FsEdit, FsMove, FsRead, FsWrite};
    use super::*;
    use crate::tool::Tool;

    /// A session with one file, `a`, and what its tools say.
    struct Session {
        home: tempfile::TempDir,
        context: ToolContext,
        workspace: Arc<Workspace>,
    }

    impl Session {
        fn new(mode: StaleCheck) -> Self {
            let (home, workspace) = workspace(&[("a", "one\ntwo\n")]);
            let workspace = Arc::new(Workspace::clone(&workspace).with_stale_check(mode));
            Self { home, context: context(), workspace }
        }

        fn run(&self, tool: &dyn Tool, arguments: Value) -> Result<String, String> {
            call_in(tool, arguments, &self.context).map_err(|e| e.to_string())
        }

        fn read(&self) {
            self.run(&FsRead::new(Arc::clone(&self.workspace)), json!({"path": "a", "limit": 1})).unwrap();
        }

        fn write(&self, content: &str) -> Result<String, String> {
            self.run(&FsWrite::new(Arc::clone(&self.workspace)), json!({"path": "a", "content": content}))
        }

        fn edit(&self, old: &str, new: &str) -> Result<String, String> {
            let arguments = json!({"path": "a", "old_string": old, "new_string": new});
            self.run(&FsEdit::new(Arc::clone(&self.workspace)), arguments)
        }

        /// Somebody else writes the file, without another size.
        fn change(&self, content: &str) {
            fs::write(self.home.path().join("a"), content).unwrap();
        }

        fn content(&self) -> String {
            fs::read_to_string(self.home.path().join("a")).unwrap()
        }
    }

    #[test]
    fn a_file_that_changed_since_it_was_read_is_left_alone() {
        for mode in [StaleCheck::Warn, StaleCheck::Strict] {
            let session = Session::new(mode);
            session.read();
            session.change("one\nTWO\n");
            let said = session.edit("one", "1").unwrap_err();
            assert!(
                said.starts_with("\"a\" has changed since this session last read it (8 bytes then, 8 now)"),
                "{said}"
            );
            assert_eq!(session.write("new").unwrap_err(), said);
            let write = FsWrite::new(Arc::clone(&session.workspace));
            let shown = preview_in(&write, json!({"path": "a", "content": "x"}), &session.context).unwrap();
            assert_eq!(shown["error"].as_str(), Some(said.as_str()));
            assert_eq!(session.content(), "one\nTWO\n");
            session.read();
            session.edit("one", "1").unwrap();
            assert_eq!(session.content(), "1\nTWO\n");
        }
    }

    #[test]
    fn own_changes_and_mere_touching_are_no_change() {
        let session = Session::new(StaleCheck::Strict);
        session.read();
        session.edit("one", "1").unwrap();
        session.edit("two", "2").unwrap();
        assert_eq!(session.write("3\n").as_deref(), Ok("Wrote 2 bytes to a"));
        session.change("3\n");
        assert_eq!(session.write("4\n").as_deref(), Ok("Wrote 2 bytes to a"), "written again with the same content");
        fs::remove_file(session.home.path().join("a")).unwrap();
        assert_eq!(session.write("5\n").as_deref(), Ok("Wrote 2 bytes to a"), "there is nothing to lose");
    }

    #[test]
    fn a_file_that_was_never_read() {
        let session = Session::new(StaleCheck::Strict);
        let said = "\"a\" was not read in this session, so it is left alone: read it with fs_read first";
        assert_eq!(session.write("x").unwrap_err(), said);
        assert_eq!(session.edit("one", "1").unwrap_err(), said);
        let session = Session::new(StaleCheck::Warn);
        session.edit("one", "1").unwrap();
        assert_eq!(session.write("y").as_deref(), Ok("Wrote 1 bytes to a"), "the edit has seen it");
        let said = Session::new(StaleCheck::Warn).write("x").unwrap();
        assert!(said.starts_with("Wrote 1 bytes to a\n\n(Warning: ") && said.contains("never read"), "{said}");
        let session = Session::new(StaleCheck::Off);
        session.read();
        session.change("other");
        assert_eq!(session.write("x").as_deref(), Ok("Wrote 1 bytes to a"));
    }

    #[test]
    fn what_is_known_moves_and_goes_with_the_file() {
        let session = Session::new(StaleCheck::Strict);
        session.read();
        let mv = FsMove::new(Arc::clone(&session.workspace));
        session.run(&mv, json!({"source": "a", "destination": "b"})).unwrap();
        session.run(&mv, json!({"source": "b", "destination": "a"})).unwrap();
        session.edit("one", "1").unwrap();
        session.run(&FsDelete::new(Arc::clone(&session.workspace)), json!({"path": "a"})).unwrap();
        session.change("somebody else's");
        assert!(session.write("x").unwrap_err().contains("was not read"));
    }
}
