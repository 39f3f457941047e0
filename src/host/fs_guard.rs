//! The stale-file check: a file that has changed since the session last read it is not changed blindly.
//!
//! [`Guard::check`] comes first in everything that changes a file, while the file's `turn` is held;
//! [`Guard::saw`] and [`Guard::wrote`] keep what the session knows up to date. A file that changes while somebody is asked about the
//! call is left alone as well: what was shown is what is done. Who changed the file does not matter:
//! a person, a formatter run by `bash`, another session.

use std::fs::{File, Metadata};
use std::hash::Hasher;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::fs_file::Target;
use crate::base::workspace::{StaleCheck, Workspace};
use crate::tool::{FileMark, FileStamp, Previewed, Recorded, Scope, ToolContext, ToolError};

/// What a session knows of the files it works on, and what follows from it.
#[derive(Debug, Clone)]
pub(super) struct Guard {
    scope: Arc<Scope>,
    workspace: Arc<Workspace>,
    mode: StaleCheck,
    previewed: Previewed,
    /// It is a preview: what is looked at is remembered for the run.
    previews: bool,
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
        let (scope, workspace) = (Arc::clone(&context.scope), context.judged.hold(workspace));
        Self { scope, workspace, mode, previewed: context.previewed.clone(), previews: false }
    }

    /// The same for the preview of a call: the call itself then is held to what the preview saw.
    pub(super) fn preview(workspace: &Arc<Workspace>, context: &ToolContext) -> Self {
        Self { previews: true, ..Self::new(workspace, context) }
    }

    /// The workspace of the call: its paths lead where they led when it was judged.
    pub(super) fn workspace(&self) -> Arc<Workspace> {
        Arc::clone(&self.workspace)
    }

    /// The same, borrowed.
    pub(super) fn held(&self) -> &Workspace {
        &self.workspace
    }

    /// Records a change of these paths (absolute, without links), which goes on for as long as the answer is held. Blocking.
    pub(super) fn recording(&self, paths: impl IntoIterator<Item = PathBuf>) -> Recorded {
        Recorded::begin(self.scope.recorder.lock().clone(), paths)
    }

    /// Whether the file may be changed. `input` is the path as the caller gave it.
    ///
    /// # Errors
    /// It changed since it was last read, or since somebody was asked; or, when the check is strict, was never read.
    pub(super) fn check(&self, target: &Target, input: &str) -> Result<Known, ToolError> {
        self.as_previewed(target.path(), target.existing(), input)?;
        let Some(found) = target.existing() else { return Ok(Known::New) };
        self.check_file((target.path(), found), input, || target.open())
    }

    /// The same for what is to be taken or moved away: a file; of a directory the files that the session knows; a link as
    /// itself, which holds nothing. `path` names no other link.
    ///
    /// # Errors
    /// What [`Guard::check`] gives, of the first file that is not as it was.
    pub(super) fn check_entry(&self, path: &Path, found: &Metadata, input: &str) -> Result<(), ToolError> {
        self.as_previewed(path, Some(found), input)?;
        let open = |path: &Path| self.workspace.open(&path.to_string_lossy()).ok();
        if found.is_file() {
            return self.check_file((path, found), input, || open(path)).map(drop);
        }
        if !found.is_dir() || self.mode == StaleCheck::Off {
            return Ok(());
        }
        for (path, _) in self.scope.files.below(path) {
            if let Some(found) = self.workspace.look(&path).ok().filter(Metadata::is_file) {
                self.check_file((&path, &found), &self.workspace.shown(&path), || open(&path))?;
            }
        }
        Ok(())
    }

    /// Whether what is there is what was there when somebody was asked about the call. In a preview it is remembered.
    ///
    /// # Errors
    /// It is not: what was approved is not what would be done.
    pub(super) fn as_previewed(&self, path: &Path, found: Option<&Metadata>, input: &str) -> Result<(), ToolError> {
        let stamp = found.map(FileStamp::of);
        if self.previews {
            self.previewed.set(path, stamp);
            return Ok(());
        }
        if self.mode == StaleCheck::Off || self.previewed.get(path).is_none_or(|then| then == stamp) {
            return Ok(());
        }
        Err(ToolError::failed(format!(
            "\"{input}\" has changed since the question about this call was asked, so it is left alone: read it again \
             with fs_read, then make the change that is still right"
        )))
    }

    fn check_file(
        &self,
        (path, found): (&Path, &Metadata),
        input: &str,
        open: impl FnOnce() -> Option<File>,
    ) -> Result<Known, ToolError> {
        let mark = match (self.mode, self.scope.files.get(path)) {
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
        if stamp.bytes() == mark.stamp.bytes() && mark.hash.is_some() && self.hash_of(open()) == mark.hash {
            // Touched, not changed.
            self.scope.files.set(path, FileMark { stamp, hash: mark.hash });
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

    fn hash_of(&self, file: Option<File>) -> Option<u64> {
        let mut file = file?;
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
    use super::super::{ApplyPatch, FsDelete, FsEdit, FsMove, FsRead, FsWrite};
    use super::*;
    use crate::tool::Tool;

    /// A session with one file, `a`, and what its tools say.
    struct Session {
        home: tempfile::TempDir,
        context: ToolContext,
        workspace: Arc<Workspace>,
        records: tempfile::TempDir,
    }

    impl Session {
        fn new(mode: StaleCheck) -> Self {
            let (home, workspace) = workspace(&[("a", "one\ntwo\n")]);
            let workspace = Arc::new(Workspace::clone(&workspace).with_stale_check(mode));
            Self { home, context: context(), workspace, records: tempfile::tempdir().unwrap() }
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

    /// Each way to take a file away, or to replace it as a whole.
    fn removals(session: &Session) -> Vec<(&'static str, Box<dyn Tool>, Value)> {
        let workspace = || Arc::clone(&session.workspace);
        let patch = |body: &str| json!({ "patch": format!("*** Begin Patch\n{body}\n*** End Patch") });
        let records = session.records.path().to_owned();
        let apply = || Box::new(ApplyPatch::with_records(workspace(), records.clone())) as Box<dyn Tool>;
        let git = "diff --git a/a b/b\nsimilarity index 100%\nrename from a\nrename to b\n";
        vec![
            ("fs_delete", Box::new(FsDelete::new(workspace())), json!({"path": "a"})),
            ("fs_delete of a directory", Box::new(FsDelete::new(workspace())), json!({"path": "d", "recursive": true})),
            ("fs_move", Box::new(FsMove::new(workspace())), json!({"source": "a", "destination": "b"})),
            ("fs_move of a directory", Box::new(FsMove::new(workspace())), json!({"source": "d", "destination": "e"})),
            ("Delete", apply(), patch("*** Delete File: a")),
            ("Move", apply(), patch("*** Update File: a\n*** Move to: b")),
            ("Delete and Add", apply(), patch("*** Delete File: a\n*** Add File: a\n+mine")),
            ("rename", apply(), json!({ "patch": git })),
        ]
    }

    #[test]
    fn what_takes_a_file_away_is_held_to_what_was_read() {
        for mode in [StaleCheck::Warn, StaleCheck::Strict] {
            for at in 0..removals(&Session::new(mode)).len() {
                let session = Session::new(mode);
                fs::create_dir(session.home.path().join("d")).unwrap();
                fs::write(session.home.path().join("d/x"), "one\n").unwrap();
                let (what, tool, arguments) = removals(&session).swap_remove(at);
                session.read();
                session.run(&FsRead::new(Arc::clone(&session.workspace)), json!({"path": "d/x"})).unwrap();
                session.change("one\nTWO\n");
                fs::write(session.home.path().join("d/x"), "two\n").unwrap();
                let said = session.run(tool.as_ref(), arguments.clone()).expect_err(what);
                assert!(said.contains("has changed since this session last read it"), "{mode:?}, {what}: {said}");
                assert_eq!(session.content(), "one\nTWO\n");
                session.read();
                session.run(&FsRead::new(Arc::clone(&session.workspace)), json!({"path": "d/x"})).unwrap();
                session.run(tool.as_ref(), arguments).unwrap_or_else(|e| panic!("{mode:?}, {what}, read again: {e}"));
            }
        }
    }

    #[test]
    fn what_takes_an_unread_file_away() {
        for at in [0, 2, 4, 5, 6, 7] {
            let session = Session::new(StaleCheck::Strict);
            let (what, tool, arguments) = removals(&session).swap_remove(at);
            let said = session.run(tool.as_ref(), arguments).expect_err(what);
            assert!(said.contains("\"a\" was not read in this session"), "{what}: {said}");
            let session = Session::new(StaleCheck::Warn);
            let (_, tool, arguments) = removals(&session).swap_remove(at);
            let said = session.run(tool.as_ref(), arguments).unwrap();
            assert_eq!(said.contains("never read in this session"), at == 6, "{what}: {said}");
            let session = Session::new(StaleCheck::Off);
            let (_, tool, arguments) = removals(&session).swap_remove(at);
            session.read();
            session.change("other\n");
            session.run(tool.as_ref(), arguments).unwrap();
        }
    }

    #[test]
    fn what_changed_while_the_question_was_open_is_left_alone() {
        let fresh = || {
            let mut session = Session::new(StaleCheck::Warn);
            session.context.previewed = Previewed::default();
            session
        };
        let edits: Vec<(&str, fn(&Session) -> Box<dyn Tool>, Value)> = vec![
            ("fs_write", |s| Box::new(FsWrite::new(Arc::clone(&s.workspace))), json!({"path": "a", "content": "mine"})),
            ("new", |s| Box::new(FsWrite::new(Arc::clone(&s.workspace))), json!({"path": "n", "content": "mine"})),
            (
                "fs_edit",
                |s| Box::new(FsEdit::new(Arc::clone(&s.workspace))),
                json!({"path": "a", "old_string": "one", "new_string": "1"}),
            ),
            ("fs_delete", |s| Box::new(FsDelete::new(Arc::clone(&s.workspace))), json!({"path": "a"})),
            (
                "patch",
                |s| Box::new(ApplyPatch::with_records(Arc::clone(&s.workspace), s.records.path().to_owned())),
                json!({"patch": "*** Begin Patch\n*** Delete File: a\n*** Add File: n\n+mine\n*** End Patch"}),
            ),
        ];
        for (what, tool, arguments) in edits {
            let session = fresh();
            let made = tool(&session);
            preview_in(made.as_ref(), arguments.clone(), &session.context);
            fs::write(session.home.path().join("a"), "one, and what the user typed\n").unwrap();
            fs::write(session.home.path().join("n"), "the user's\n").unwrap();
            let said = session.run(made.as_ref(), arguments.clone()).expect_err(what);
            assert!(said.contains("has changed since the question about this call was asked"), "{what}: {said}");
            assert_eq!(session.content(), "one, and what the user typed\n");
            assert_eq!(fs::read_to_string(session.home.path().join("n")).unwrap(), "the user's\n");
            let session = fresh();
            let made = tool(&session);
            preview_in(made.as_ref(), arguments.clone(), &session.context);
            session.run(made.as_ref(), arguments).unwrap_or_else(|e| panic!("{what}, unchanged: {e}"));
        }
    }
}
