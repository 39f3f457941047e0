//! Turns that do things to files, and what is known of them afterwards.

mod below;
mod origin;
mod turned;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};

use serde_json::{Value, json};

use super::super::fs_common::testing::{call_in, context};
use super::super::{ApplyPatch, Bash, BashOptions, FsDelete, FsEdit, FsMove, FsWrite};
use super::*;
use crate::protocol::{ApiError, ChangeKind, ErrorCode};
use crate::tool::{Tool, ToolContext};

/// A session with a working directory and a record.
struct House {
    home: tempfile::TempDir,
    recording: Arc<Recording>,
    session: SessionId,
    workspace: Workspace,
    context: ToolContext,
}

impl House {
    fn new(files: &[(&str, &str)]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let wd = home.path().join("wd");
        fs::create_dir(&wd).unwrap();
        fs::create_dir(home.path().join("data")).unwrap();
        files.iter().for_each(|(path, text)| crate::host::fs_common::testing::put(&wd, path, text));
        let workspace = Workspace::new(&wd, &[]).unwrap();
        let recording = Self::open(home.path());
        Self { home, recording, session: "ses_1".parse().unwrap(), workspace, context: context() }
    }

    fn open(home: &Path) -> Arc<Recording> {
        let data = home.join("data");
        let store = SnapshotStore::open(&data.join("snapshots.db"), 1 << 30).unwrap();
        Arc::new(Recording::new(Arc::new(store), &data))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.workspace.working_directory().join(name)
    }

    fn put(&self, name: &str, text: &str) {
        crate::host::fs_common::testing::put(self.workspace.working_directory(), name, text);
    }

    fn text(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.path(name)).ok()
    }

    /// Does something in a turn.
    fn turn(&self, id: &str, work: impl FnOnce(&ToolContext, &Arc<Workspace>)) {
        let recorder = self.recording.turn(&self.session, &id.parse().unwrap(), (self.workspace.clone(), Vec::new()));
        *self.context.scope.recorder.lock() = Some(recorder);
        work(&self.context, &Arc::new(self.workspace.clone()));
        *self.context.scope.recorder.lock() = None;
    }

    /// The same with something that says nothing about what it does.
    fn command(&self, id: &str, work: impl FnOnce()) {
        let recorder = self.recording.turn(&self.session, &id.parse().unwrap(), (self.workspace.clone(), Vec::new()));
        recorder.begin_command();
        work();
        recorder.end_command();
    }

    fn undo(&self, direction: Direction, turn: Option<&str>) -> Result<UndoDone, ApiError> {
        let turn = turn.map(|id| id.parse().unwrap());
        self.undo_with(&UndoWanted { direction, turn, partial: false, worked_for: Vec::new() })
    }

    fn undo_with(&self, wanted: &UndoWanted) -> Result<UndoDone, ApiError> {
        let records = self.home.path().join("records");
        let done = self.recording.undo(&self.session, (&self.workspace, &records), wanted)?;
        self.recording.undone(&done)?;
        Ok(done)
    }

    fn kinds(&self, turn: Option<&str>) -> Vec<(String, ChangeKind)> {
        let wanted = DiffWanted { turn: turn.map(|id| id.parse().unwrap()), ..DiffWanted::default() };
        let view = self.recording.diff(&self.session, &self.workspace, wanted).unwrap();
        view.report.files.into_iter().map(|file| (file.path, file.kind)).collect()
    }
}

fn did(tool: &dyn Tool, arguments: Value, context: &ToolContext) {
    call_in(tool, arguments, context).unwrap();
}

fn conflicts(error: &ApiError) -> Vec<String> {
    assert_eq!(error.code(), ErrorCode::Conflict);
    let list = error.0.details.as_ref().unwrap()["conflicts"].as_array().unwrap().clone();
    list.iter().map(|one| format!("{}: {}", one["path"].as_str().unwrap(), one["reason"].as_str().unwrap())).collect()
}

/// Names of files are bytes: some are no text.
#[test]
fn files_whose_names_are_no_text_are_undone_and_done_again() {
    let house = House::new(&[("seen", "s")]);
    let odd = |name: &[u8]| house.workspace.working_directory().join(OsStr::from_bytes(name));
    let (gone, changed, made) = (odd(b"gone \xff"), odd(b"changed \xfe"), odd(b"made \xfd/x"));
    fs::write(&gone, "g").unwrap();
    fs::write(&changed, "old").unwrap();
    let all = || [&gone, &changed, &made].map(|path| fs::read_to_string(path).ok());
    let before = all();
    house.command("turn_1", || {
        fs::remove_file(&gone).unwrap();
        fs::write(&changed, "new content").unwrap();
        fs::create_dir(made.parent().unwrap()).unwrap();
        fs::write(&made, "m").unwrap();
    });
    let after = all();
    house.undo(Direction::Undo, None).unwrap();
    assert_eq!(all(), before);
    assert!(!made.parent().unwrap().exists());
    house.undo(Direction::Redo, None).unwrap();
    assert_eq!(all(), after);
}

/// What one call may have kept is bounded; what is beyond that says so, and the rest comes back.
#[test]
fn what_is_too_much_for_one_call_says_so() {
    const FILES: u64 = limit::SNAPSHOT_CALL_BYTES_MAX / MOST + 2;
    const MOST: u64 = limit::SNAPSHOT_FILE_BYTES_MAX - 1;
    let put = |house: &House| {
        fs::create_dir(house.path("large")).unwrap();
        (0..FILES).for_each(|n| fs::File::create(house.path(&format!("large/{n}"))).unwrap().set_len(MOST).unwrap());
    };
    let says = |house: &House| {
        let said = conflicts(&house.undo(Direction::Undo, None).unwrap_err());
        let want = format!("at most {} bytes are kept of what one call changes", limit::SNAPSHOT_CALL_BYTES_MAX);
        assert!(said.iter().all(|line| line.contains(&want)), "{said:?}");
        said.len() as u64
    };
    let house = House::new(&[]);
    put(&house);
    house.turn("turn_1", |context, workspace| {
        did(&FsDelete::new(Arc::clone(workspace)), json!({"path": "large", "recursive": true}), context);
    });
    let over = says(&house);
    assert!(over > 0 && over < FILES, "{over}");
    let wanted = UndoWanted { direction: Direction::Undo, turn: None, partial: true, worked_for: Vec::new() };
    assert_eq!(house.undo_with(&wanted).unwrap().left.len() as u64, over);
    assert_eq!(fs::read_dir(house.path("large")).unwrap().count() as u64, FILES - over);
    let house = House::new(&[]);
    house.command("turn_1", || put(&house));
    assert_eq!(says(&house), over);
}

#[test]
fn what_our_tools_do_is_undone_and_done_again() {
    let house = House::new(&[("edited", "one\ntwo\n"), ("gone/x", "x"), ("gone/deep/y", "y"), ("moved", "m")]);
    fs::set_permissions(house.path("edited"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::set_permissions(house.path("gone/deep"), fs::Permissions::from_mode(0o750)).unwrap();
    symlink("x", house.path("gone/link")).unwrap();
    house.turn("turn_1", |context, workspace| {
        did(
            &FsEdit::new(Arc::clone(workspace)),
            json!({"path": "edited", "old_string": "two", "new_string": "2"}),
            context,
        );
        did(&FsWrite::new(Arc::clone(workspace)), json!({"path": "new/dir/file", "content": "n\n"}), context);
        did(&FsDelete::new(Arc::clone(workspace)), json!({"path": "gone", "recursive": true}), context);
        did(&FsMove::new(Arc::clone(workspace)), json!({"source": "moved", "destination": "there/moved"}), context);
        let patch = "*** Begin Patch\n*** Add File: added\n+a\n*** Update File: edited\n@@\n-one\n+1\n*** End Patch\n";
        did(&ApplyPatch::new(Arc::clone(workspace)), json!({"patch": patch}), context);
        assert!(
            call_in(
                &FsEdit::new(Arc::clone(workspace)),
                json!({"path": "added", "old_string": "?", "new_string": "!"}),
                context
            )
            .is_err()
        );
    });
    use ChangeKind::{Added as A, Deleted as D, Modified as M};
    let want = [("added", A), ("edited", M), ("gone/deep/y", D), ("gone/link", D), ("gone/x", D), ("moved", D)];
    let want = want.into_iter().chain([("new/dir/file", A), ("there/moved", A)]);
    assert_eq!(house.kinds(None), want.map(|(path, kind)| (path.to_owned(), kind)).collect::<Vec<_>>());

    let undone = house.undo(Direction::Undo, None).unwrap();
    assert_eq!(undone.turn_ids, ["turn_1".parse().unwrap()]);
    assert_eq!(house.text("edited").as_deref(), Some("one\ntwo\n"));
    assert_eq!(fs::metadata(house.path("edited")).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!((house.text("gone/x").as_deref(), house.text("gone/deep/y").as_deref()), (Some("x"), Some("y")));
    assert_eq!(fs::metadata(house.path("gone/deep")).unwrap().permissions().mode() & 0o777, 0o750);
    assert_eq!(fs::read_link(house.path("gone/link")).unwrap(), Path::new("x"));
    assert_eq!(house.text("moved").as_deref(), Some("m"));
    let gone = ["new", "there", "added"];
    assert!(gone.iter().all(|name| !house.path(name).exists()), "directories that the turn made go, too");
    assert_eq!(house.kinds(None), []);

    house.undo(Direction::Redo, None).unwrap();
    assert_eq!(house.text("edited").as_deref(), Some("1\n2\n"));
    assert_eq!(house.text("new/dir/file").as_deref(), Some("n\n"));
    assert!(!house.path("gone").exists() && !house.path("moved").exists());
    let nothing = house.undo(Direction::Redo, None).unwrap_err();
    assert_eq!(nothing.code(), ErrorCode::Conflict);
}

#[test]
fn what_a_command_does_is_found_with_what_was_there_before() {
    let house = House::new(&[
        (".gitignore", "/target\n.env\n"),
        (".env", "SECRET=1"),
        ("target/out", "built"),
        ("src/a", "a"),
        ("src/run", "#!"),
        ("src/gone", "g"),
        ("src/same", "s"),
        ("dir/empty/", ""),
    ]);
    let latin = b"caf\xe9\0".to_vec();
    fs::write(house.path("src/latin"), &latin).unwrap();
    symlink("a", house.path("src/link")).unwrap();
    house.command("turn_1", || {
        house.put("src/a", "A");
        house.put("src/made/new", "n");
        house.put(".env", "SECRET=2");
        house.put("target/out", "built again");
        fs::remove_file(house.path("src/gone")).unwrap();
        fs::remove_dir(house.path("dir/empty")).unwrap();
        fs::write(house.path("src/latin"), b"x").unwrap();
        fs::remove_file(house.path("src/link")).unwrap();
        symlink("run", house.path("src/link")).unwrap();
        fs::set_permissions(house.path("src/run"), fs::Permissions::from_mode(0o755)).unwrap();
        // The same bytes again are no change.
        house.put("src/same", "s");
    });
    use ChangeKind::{Added as A, Deleted as D, Modified as M};
    let want = [
        (".env", M),
        ("dir/empty", D),
        ("src/a", M),
        ("src/gone", D),
        ("src/latin", M),
        ("src/link", M),
        ("src/made/new", A),
        ("src/run", M),
    ];
    assert_eq!(house.kinds(Some("turn_1")), want.map(|(path, kind)| (path.to_owned(), kind)));
    let left = house.undo(Direction::Undo, None).unwrap().left;
    assert_eq!(house.text(".env").as_deref(), Some("SECRET=1"));
    assert_eq!(house.text("src/a").as_deref(), Some("a"));
    assert_eq!(house.text("src/gone").as_deref(), Some("g"));
    assert_eq!(fs::read(house.path("src/latin")).unwrap(), latin);
    assert_eq!(fs::read_link(house.path("src/link")).unwrap(), Path::new("a"));
    assert_eq!(fs::metadata(house.path("src/run")).unwrap().permissions().mode() & 0o111, 0);
    assert!(house.path("dir/empty").is_dir() && !house.path("src/made").exists());
    assert_eq!(house.text("target/out").as_deref(), Some("built again"));
    let left: Vec<_> = left.iter().map(|left| left.path.as_str()).collect();
    assert_eq!(left, ["target"], "it is said what was not looked into");
}

/// The command itself, by the shell.
#[test]
fn a_shell_command_between_two_looks() {
    let house = House::new(&[("a", "1\n")]);
    house.turn("turn_1", |context, workspace| {
        let recorder = context.scope.recorder.lock().clone().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(recorder.command_begins());
        did(
            &Bash::new(Arc::clone(workspace), BashOptions::default()),
            json!({"command": "echo 2 >> a; echo new > b"}),
            context,
        );
        runtime.block_on(recorder.command_ended());
        let report = runtime.block_on(recorder.report()).unwrap();
        let files: Vec<_> = report.files.iter().map(|file| (file.path.as_str(), file.added, file.removed)).collect();
        assert_eq!(files, [("a", 1, 0), ("b", 1, 0)]);
        assert!(report.files[0].diff.as_ref().unwrap().contains("+2\n"));
    });
    house.undo(Direction::Undo, None).unwrap();
    assert_eq!((house.text("a").as_deref(), house.text("b")), (Some("1\n"), None));
}

#[test]
fn what_others_changed_stands_against_all_of_it() {
    let house = House::new(&[("a", "1"), ("b", "1"), ("c", "1")]);
    house.command("turn_1", || ["a", "b", "c", "d"].iter().for_each(|name| house.put(name, "2")));
    house.put("b", "theirs");
    fs::remove_file(house.path("c")).unwrap();
    house.put("d", "theirs");
    let refused = house.undo(Direction::Undo, None).unwrap_err();
    let since = "somebody else has changed it since";
    let want = [
        format!("b: {since}: it holds something else"),
        format!("c: {since}: it is gone"),
        format!("d: {since}: it holds something else"),
    ];
    assert_eq!(conflicts(&refused), want);
    assert_eq!(house.text("a").as_deref(), Some("2"), "nothing was undone");
    // Who puts things right by hand is no conflict.
    house.put("b", "1");
    house.put("c", "1");
    house.put("d", "2");
    house.undo(Direction::Undo, None).unwrap();
    assert_eq!((house.text("a").as_deref(), house.text("d")), (Some("1"), None));
}

#[test]
fn several_turns_go_in_order_and_come_back() {
    let house = House::new(&[("a", "0")]);
    for turn in ["1", "2", "3"] {
        house.command(&format!("turn_{turn}"), || house.put("a", turn));
    }
    assert_eq!(house.undo(Direction::Undo, Some("turn_9")).unwrap_err().code(), ErrorCode::NotFound);
    let undone = house.undo(Direction::Undo, Some("turn_2")).unwrap();
    assert_eq!(undone.turn_ids, ["turn_3".parse().unwrap(), "turn_2".parse().unwrap()]);
    assert_eq!(house.text("a").as_deref(), Some("1"));
    assert_eq!(house.undo(Direction::Undo, Some("turn_3")).unwrap_err().code(), ErrorCode::Conflict);
    assert_eq!(house.undo(Direction::Redo, None).unwrap().turn_ids, ["turn_2".parse().unwrap()]);
    assert_eq!(house.text("a").as_deref(), Some("2"));
    house.undo(Direction::Redo, None).unwrap();
    assert_eq!(house.text("a").as_deref(), Some("3"));
    // Somebody works between two turns: each can be undone by itself alone.
    house.put("a", "theirs");
    house.command("turn_4", || house.put("a", "4"));
    let refused = house.undo(Direction::Undo, Some("turn_3")).unwrap_err();
    assert_eq!(conflicts(&refused), ["a: somebody else changed it in between"]);
    house.undo(Direction::Undo, None).unwrap();
    assert_eq!(house.text("a").as_deref(), Some("theirs"));
}

#[test]
fn what_is_not_kept_is_said_and_never_touched() {
    let house = House::new(&[("small", "1")]);
    let large = vec![b'x'; usize::try_from(limit::SNAPSHOT_COMMAND_FILE_BYTES_MAX).unwrap() + 1];
    fs::write(house.path("large"), &large).unwrap();
    house.command("turn_1", || {
        house.put("small", "2");
        fs::write(house.path("large"), b"cut").unwrap();
    });
    let refused = house.undo(Direction::Undo, None).unwrap_err();
    assert!(conflicts(&refused)[0].starts_with("large: it has 1048577 bytes"), "{refused:?}");
    assert_eq!(house.text("small").as_deref(), Some("2"));
    let wanted = UndoWanted { direction: Direction::Undo, turn: None, partial: true, worked_for: Vec::new() };
    let done = house.undo_with(&wanted).unwrap();
    assert_eq!(done.left[0].path, "large");
    assert_eq!((house.text("small").as_deref(), house.text("large").as_deref()), (Some("1"), Some("cut")));
}

#[test]
fn large_files_of_our_own_tools_come_back() {
    let house = House::new(&[]);
    let large = "line\n".repeat(400_000);
    house.put("large", &large);
    house.turn("turn_1", |context, workspace| {
        did(&FsWrite::new(Arc::clone(workspace)), json!({"path": "large", "content": "short"}), context);
    });
    house.undo(Direction::Undo, None).unwrap();
    assert!(house.text("large").is_some_and(|text| text == large));
}

#[test]
fn what_was_cut_off_is_known_after_a_restart() {
    let mut house = House::new(&[("a", "1"), ("b", "1")]);
    let recorder =
        house.recording.turn(&house.session, &"turn_1".parse().unwrap(), (house.workspace.clone(), Vec::new()));
    let paths = [house.path("a")];
    let seen = recorder.before(&paths);
    assert_eq!(seen, paths);
    recorder.begin_command();
    // The process ends here, the file half way there; another one comes.
    house.put("a", "2");
    drop(recorder);
    house.recording = House::open(house.home.path());
    let refused = house.undo(Direction::Undo, None).unwrap_err();
    assert_eq!(conflicts(&refused), ["a: the server ended while it was being changed"]);
    let view = house.recording.diff(&house.session, &house.workspace, DiffWanted::default()).unwrap();
    assert!(view.report.uncovered[0].reason.contains("had no end that was seen"), "{view:?}");
    house.put("a", "1");
    house.undo(Direction::Undo, None).unwrap();
}

#[test]
fn an_undo_that_was_interrupted_is_asked_for_again() {
    let house = House::new(&[("a", "1"), ("b", "1"), ("gone/x", "x"), ("gone/deep/y", "y")]);
    house.command("turn_1", || {
        ["a", "b", "made/z"].iter().for_each(|name| house.put(name, "2"));
        fs::remove_dir_all(house.path("gone")).unwrap();
    });
    let records = house.home.path().join("records");
    for (direction, text, left) in [(Direction::Undo, "1", "made"), (Direction::Redo, "2", "gone/deep")] {
        let wanted = UndoWanted { direction, turn: None, partial: false, worked_for: Vec::new() };
        // Nobody came to note it, and the last that it does was not done: directories.
        let done = house.recording.undo(&house.session, (&house.workspace, &records), &wanted).unwrap();
        fs::create_dir_all(house.path(left)).unwrap();
        let again = house.undo(direction, None).unwrap();
        assert_eq!((again.file_count, house.text("a").as_deref()), (done.file_count, Some(text)));
        assert_eq!(again.files, done.files, "log, client and model hear of what the first one did");
        assert!(!house.path(left).exists(), "{direction:?}");
        assert_eq!(house.path("gone").exists(), direction == Direction::Undo);
    }
    assert_eq!(house.kinds(None).len(), 5);
}

#[test]
fn a_report_has_its_bounds() {
    let house = House::new(&[]);
    house.command("turn_1", || {
        for n in 0..30 {
            house.put(&format!("f{n:02}"), &format!("{}\n", "x".repeat(990)));
        }
    });
    let diff = |wanted| house.recording.diff(&house.session, &house.workspace, wanted).unwrap();
    let first = diff(DiffWanted::default());
    assert_eq!((first.report.files.len(), first.report.file_count, first.report.truncated_count), (20, 30, 10));
    let shown: usize = first.report.files.iter().filter_map(|file| file.diff.as_ref()).map(String::len).sum();
    assert!(first.report.diff_truncated && shown <= limit::CHANGES_DIFF_BYTES_MAX && shown > 10_000, "{shown}");
    let rest = diff(DiffWanted { after: first.next_cursor, ..DiffWanted::default() });
    assert_eq!((rest.report.files.len(), rest.report.files[0].path.as_str(), rest.next_cursor), (10, "f20", None));
    let one = diff(DiffWanted { path: Some("f19".into()), ..DiffWanted::default() });
    assert!(one.report.files[0].diff.as_ref().unwrap().ends_with("xx\n"));
}

#[test]
fn a_tree_that_is_too_large_is_said() {
    let house = House::new(&[]);
    let many = house.path("many");
    fs::create_dir(&many).unwrap();
    (0..limit::SNAPSHOT_TREE_ENTRIES_MAX).for_each(|n| drop(fs::File::create(many.join(n.to_string()))));
    house.command("turn_1", || house.put("a", "1"));
    let view = house.recording.diff(&house.session, &house.workspace, DiffWanted::default()).unwrap();
    assert!(view.report.uncovered[0].reason.contains("too many to look for"), "{view:?}");
    assert_eq!(view.report.uncovered[0].path, ".");
}

/// Of a repository in the directory, of a submodule, of one that comes and of one that goes it is told that it is not undone.
#[test]
fn repositories_that_lie_deeper_are_told() {
    let house = House::new(&[("r/f", "x"), ("mods/sub/HEAD", "main"), ("s/.git", "gitdir: ../mods/sub\n")]);
    for name in ["r/.git/HEAD", "r/.git/logs/HEAD", "gone/.git/HEAD"] {
        house.put(name, "one");
    }
    let told = |work: &dyn Fn()| {
        house.command("turn_1", work);
        let view = house.recording.diff(&house.session, &house.workspace, DiffWanted::default()).unwrap();
        let paths = view.report.uncovered.into_iter().map(|uncovered| uncovered.path);
        paths.filter(|path| path.ends_with(".git")).collect::<Vec<_>>()
    };
    assert_eq!(told(&|| house.put("r/f", "y")), [""; 0]);
    assert_eq!(told(&|| house.put("r/.git/logs/HEAD", "one, two")), ["r/.git"]);
    assert_eq!(told(&|| house.put("mods/sub/HEAD", "another")), ["r/.git", "s/.git"]);
    assert_eq!(told(&|| fs::remove_dir_all(house.path("gone/.git")).unwrap()), ["gone/.git", "r/.git", "s/.git"]);
    assert_eq!(told(&|| house.put("new/.git/HEAD", "x")), ["gone/.git", "new/.git", "r/.git", "s/.git"]);
}

/// What an undo does not put back is told: rights to run as somebody, and the permissions of the working directory itself.
#[test]
fn permissions_that_are_not_undone_are_told() {
    let house = House::new(&[("tool", "t"), ("plain", "p"), ("gone", "g"), ("shared/x", "x")]);
    let mode = |name: &str, mode: u32| fs::set_permissions(house.path(name), fs::Permissions::from_mode(mode)).unwrap();
    mode("tool", 0o4755);
    mode("gone", 0o2755);
    mode("shared", 0o2770);
    house.command("turn_1", || house.put("shared/x", "y"));
    let told = || {
        let view = house.recording.diff(&house.session, &house.workspace, DiffWanted::default()).unwrap();
        view.report.uncovered.into_iter().map(|uncovered| uncovered.path).collect::<Vec<_>>()
    };
    assert_eq!(told(), [""; 0]);
    house.command("turn_2", || {
        mode("tool", 0o755);
        fs::remove_file(house.path("gone")).unwrap();
        mode("shared", 0o770);
        mode("plain", 0o700);
        mode("", 0o711);
    });
    let told = told();
    assert_eq!(told.len(), 4, "{told:?}");
    assert!(["gone", "shared", "tool"].iter().all(|name| told.iter().any(|path| path == name)), "{told:?}");
}

#[test]
fn our_own_data_and_git_are_passed_over() {
    let mut house = House::new(&[("a", "1"), (".git/HEAD", "ref: refs/heads/main\n"), ("own/x", "1")]);
    house.workspace = house.workspace.clone().without(&[house.path("own")]);
    house.command("turn_1", || {
        house.put(".git/HEAD", "ref: refs/heads/other\n");
        house.put("own/x", "2");
    });
    assert_eq!(house.kinds(Some("turn_1")), []);
    let view = house.recording.diff(&house.session, &house.workspace, DiffWanted::default()).unwrap();
    assert_eq!(view.report.uncovered[0].path, ".git");
}

/// Everything in the working directory: links and where they lead, permissions, contents.
fn tree(house: &House) -> Vec<String> {
    let (mut all, mut todo) = (Vec::new(), vec![house.path("")]);
    while let Some(directory) = todo.pop() {
        // What is closed is told by its permissions.
        for entry in fs::read_dir(&directory).into_iter().flatten().map(Result::unwrap) {
            let found = entry.path().symlink_metadata().unwrap();
            let holds = match () {
                () if found.is_symlink() => fs::read_link(entry.path()).unwrap().display().to_string(),
                () if found.is_dir() => {
                    todo.push(entry.path());
                    "/".to_owned()
                }
                () => fs::read_to_string(entry.path()).unwrap_or_default(),
            };
            all.push(format!("{} {:o} {holds}", entry.path().display(), found.permissions().mode()));
        }
    }
    all.sort();
    all
}

/// What it is, what the turn does, what somebody else does then, whether it is done again after having been undone, what stands
/// against it, what is there afterwards when nothing does.
type Case = (
    &'static str,
    fn(&House),
    fn(&House),
    bool,
    &'static [&'static str],
    &'static [(&'static str, Option<&'static str>)],
);

fn nothing(_: &House) {}

fn edits(house: &House) {
    house.put("a", "2");
    house.put("b", "2");
}

fn makes(house: &House) {
    house.put("made", "m");
}

fn removes(house: &House) {
    fs::remove_file(house.path("a")).unwrap();
}

fn replaces_by_link(house: &House, name: &str) {
    fs::rename(house.path(name), house.home.path().join("kept")).unwrap();
    symlink(house.home.path().join("kept"), house.path(name)).unwrap();
}

#[rustfmt::skip]
const CASES: &[Case] = &[
    ("nobody came",              edits, nothing, false, &[], &[("a", Some("1")), ("b", Some("1"))]),
    ("a time alone is no change", edits, |h| h.put("a", "2"), false, &[], &[("a", Some("1"))]),
    ("edited, as long as before", edits, |h| h.put("a", "3"), false, &["a: it holds something else"], &[]),
    ("edited, both",             edits, |h| { h.put("a", "3"); h.put("b", "longer"); }, false, &["a: it holds something else", "b: it holds something else"], &[]),
    ("removed",                  edits, removes, false, &["a: it is gone"], &[]),
    ("other permissions",        edits, |h| fs::set_permissions(h.path("a"), fs::Permissions::from_mode(0o600)).unwrap(), false, &["a: it has other permissions"], &[]),
    ("a link to the same content", edits, |h| replaces_by_link(h, "a"), false, &["a: it holds something else"], &[]),
    ("a directory instead",      edits, |h| { removes(h); h.put("a/x", "x"); }, false, &["a: it holds something else"], &[]),
    ("put right by hand",        edits, |h| h.put("a", "1"), false, &[], &[("a", Some("1")), ("b", Some("1"))]),
    ("made, then edited",        makes, |h| h.put("made", "theirs"), false, &["made: it holds something else"], &[]),
    ("made, then removed",       makes, |h| fs::remove_file(h.path("made")).unwrap(), false, &[], &[("made", None)]),
    ("removed, then made anew",  removes, |h| h.put("a", "theirs"), false, &["a: it is there again"], &[]),
    ("removed, then restored",   removes, |h| h.put("a", "1"), false, &[], &[("a", Some("1"))]),
    ("moved, then edited",       |h| fs::rename(h.path("a"), h.path("z")).unwrap(), |h| h.put("z", "theirs"), false, &["z: it holds something else"], &[]),
    ("moved, and its place taken", |h| fs::rename(h.path("a"), h.path("z")).unwrap(), |h| h.put("a", "theirs"), false, &["a: it is there again"], &[]),
    ("a made directory that holds something now", |h| h.put("new/own", "1"), |h| h.put("new/theirs", "t"), false, &[], &[("new/own", None), ("new/theirs", Some("t"))]),
    ("a file where a directory was", |h| fs::remove_dir_all(h.path("dir")).unwrap(), |h| h.put("dir", "theirs"), false, &["dir: it is there again"], &[]),
    ("the directory leads elsewhere", |h| h.put("dir/x", "2"), |h| replaces_by_link(h, "dir"), false, &["dir/x: it holds something else"], &[]),
    ("again, nobody came",       edits, nothing, true, &[], &[("a", Some("2")), ("b", Some("2"))]),
    ("again, edited",            edits, |h| h.put("b", "theirs"), true, &["b: it holds something else"], &[]),
    ("again, its place taken",   makes, |h| h.put("made", "theirs"), true, &["made: it is there again"], &[]),
    ("again, removed",           edits, removes, true, &["a: it is gone"], &[]),
    ("again, removed already",   removes, removes, true, &[], &[("a", None)]),
];

#[test]
fn whatever_others_did_is_said_and_left_as_it_is() {
    for (what, does, theirs, again, want, after) in CASES {
        let house = House::new(&[("a", "1"), ("b", "1"), ("dir/x", "x")]);
        house.command("turn_1", || does(&house));
        let direction = if *again {
            house.undo(Direction::Undo, None).unwrap();
            Direction::Redo
        } else {
            Direction::Undo
        };
        theirs(&house);
        let before = tree(&house);
        match house.undo(direction, None) {
            Ok(_) => {
                assert!(want.is_empty(), "{what}: it was done");
                after.iter().for_each(|(name, text)| assert_eq!(house.text(name).as_deref(), *text, "{what}: {name}"));
            }
            Err(refused) => {
                let said = conflicts(&refused);
                let told = |one: &String| one.replace("somebody else has changed it since: ", "");
                assert_eq!(said.iter().map(told).collect::<Vec<_>>(), *want, "{what}");
                assert_eq!(tree(&house), before, "{what}: nothing was touched");
            }
        }
    }
}

#[test]
fn what_somebody_writes_while_it_is_undone_stays() {
    let house = House::new(&[("a", "1"), ("b", "1")]);
    house.command("turn_1", || edits(&house));
    let turns = house.recording.store.turns(&house.session).unwrap();
    let ways = house.recording.ways(&turns.iter().collect::<Vec<_>>(), Direction::Undo).unwrap();
    let opened = super::judge::Opened::new(&house.workspace, &ways);
    let judged = super::judge::judge((&house.workspace, &opened), ways, false);
    assert!(judged.conflicts.is_empty() && judged.steps.len() == 2, "{judged:?}");
    // Between the look and the change.
    house.put("b", "theirs");
    let records = house.home.path().join("records");
    let refused = house.recording.perform((&house.workspace, &records), &judged.steps).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Conflict);
    assert_eq!((house.text("a").as_deref(), house.text("b").as_deref()), (Some("2"), Some("theirs")), "{refused:?}");
}

#[test]
fn what_lies_where_the_session_may_not_work_now_stands_against_it_and_says_so() {
    let house = House::new(&[("f", "before")]);
    house.command("turn_1", || house.put("f", "after"));
    let other = house.home.path().join("other");
    fs::create_dir(&other).unwrap();
    let moved = House { workspace: Workspace::new(&other, &[]).unwrap(), ..house };
    let reason = "it lies outside of the directories in which this session may work now";
    let view = moved.recording.diff(&moved.session, &moved.workspace, DiffWanted::default()).unwrap();
    assert_eq!(view.report.files[0].not_undoable.as_deref(), Some(reason));
    let told = conflicts(&moved.undo(Direction::Undo, None).unwrap_err());
    assert!(told.len() == 1 && told[0].ends_with(reason), "{told:?}");
    let file = moved.home.path().canonicalize().unwrap().join("wd/f");
    assert_eq!(fs::read_to_string(&file).unwrap(), "after");
    // Where sessions may work there too, it is undone.
    let data = moved.home.path().join("data");
    let roots = vec![moved.home.path().canonicalize().unwrap()];
    let recording = Arc::new(Recording::new(Arc::clone(moved.recording.store()), &data).under(roots));
    let moved = House { recording, ..moved };
    moved.undo(Direction::Undo, None).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "before");
    // A link that lies there since is not followed.
    moved.undo(Direction::Redo, None).unwrap();
    let (real, away) = (moved.home.path().join("wd"), moved.home.path().join("away"));
    fs::rename(&real, &away).unwrap();
    symlink(&away, &real).unwrap();
    moved.undo(Direction::Undo, None).unwrap_err();
    assert_eq!(fs::read_to_string(away.join("f")).unwrap(), "after");
}
