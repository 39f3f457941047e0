//! What the record keeps, for how long, and what it says of what is gone.

use super::*;

struct Kept {
    home: tempfile::TempDir,
    store: SnapshotStore,
    session: SessionId,
}

impl Kept {
    fn new(bytes_max: u64) -> Self {
        let home = tempfile::tempdir().unwrap();
        let store = SnapshotStore::open(&home.path().join("snapshots.db"), bytes_max).unwrap();
        Self { home, store, session: "ses_1".parse().unwrap() }
    }

    /// Records that `path` went from one text to another; None: it was not there.
    fn change(&self, turn: &str, path: &str, (before, after): (Option<&str>, Option<&str>)) {
        let state = |text: Option<&str>| text.map_or(FileState::Absent, file);
        let contents = [before, after].into_iter().flatten();
        let contents = contents.map(|text| (ContentId::of(text.as_bytes()), text.as_bytes().to_vec())).collect();
        let change = PathChange { path: path.into(), before: state(before), after: state(after), mixed: false };
        let addition = Addition { changes: vec![change], contents, ..Addition::default() };
        self.store.add(&self.session, &turn.parse().unwrap(), &addition).unwrap();
    }

    fn turns(&self) -> Vec<RecordedTurn> {
        self.store.turns(&self.session).unwrap()
    }

    fn changes(&self, turn: usize) -> Vec<(String, FileState, FileState, bool)> {
        let changes = self.store.changes(self.turns()[turn].number).unwrap();
        changes.into_iter().map(|c| (c.path.display().to_string(), c.before, c.after, c.mixed)).collect()
    }

    fn has(&self, text: &str) -> bool {
        self.store.content(&ContentId::of(text.as_bytes())).unwrap().is_some_and(|found| found == text.as_bytes())
    }
}

fn file(text: &str) -> FileState {
    FileState::File { mode: 0o644, bytes: text.len() as u64, content: ContentId::of(text.as_bytes()) }
}

#[test]
fn the_oldest_before_and_the_newest_after_count() {
    let kept = Kept::new(1 << 20);
    kept.change("turn_1", "/a", (Some("one"), Some("two")));
    kept.change("turn_1", "/a", (Some("two"), Some("three")));
    assert_eq!(kept.changes(0), [("/a".to_owned(), file("one"), file("three"), false)]);
    assert!(kept.has("one") && kept.has("three") && !kept.has("two"), "what lies between is not kept");
    kept.change("turn_1", "/a", (Some("theirs"), Some("four")));
    assert_eq!(kept.changes(0), [("/a".to_owned(), file("one"), file("four"), true)]);
    kept.change("turn_2", "/b", (None, Some("new")));
    kept.change("turn_2", "/b", (Some("new"), None));
    assert_eq!((kept.changes(1), kept.has("new")), (vec![], false), "it is as it was");
}

#[test]
fn contents_are_kept_once_and_for_as_long_as_they_are_needed() {
    let kept = Kept::new(1 << 20);
    let long = "the same line again\n".repeat(100);
    kept.change("turn_1", "/a", (None, Some(&long)));
    let stored = kept.store.size().0;
    assert!(stored > 0 && stored < long.len() as u64 / 4, "{stored}");
    kept.change("turn_2", "/b", (None, Some(&long)));
    assert_eq!(kept.store.size().0, stored);
    let other: SessionId = "ses_2".parse().unwrap();
    kept.store.forget(&other).unwrap();
    assert!(kept.has(&long));
    kept.store.forget(&kept.session).unwrap();
    assert_eq!((kept.store.size().0, kept.has(&long), kept.turns()), (0, false, vec![]));
}

#[test]
fn whole_turns_go_first_that_are_the_oldest() {
    let kept = Kept::new(250);
    for turn in 1..=4 {
        kept.change(&format!("turn_{turn}"), "/a", (None, Some(&turn.to_string().repeat(100))));
    }
    let dropped: Vec<_> =
        kept.turns().iter().map(|turn| (turn.id.to_string(), turn.dropped, turn.file_count)).collect();
    let row = |turn: &str, dropped, count| (turn.to_owned(), dropped, count);
    let want = [row("turn_1", true, 0), row("turn_2", true, 0), row("turn_3", false, 1), row("turn_4", false, 1)];
    assert_eq!(dropped, want);
    kept.change("turn_5", "/a", (None, Some(&"5".repeat(255))));
    assert!(!kept.has(&"5".repeat(255)) && kept.turns()[3].dropped && !kept.turns()[4].dropped);
    assert_eq!(kept.changes(4), [("/a".to_owned(), FileState::Absent, unkept(255, 250), false)]);
    assert_eq!(kept.store.size(), (0, 250));
}

#[test]
fn one_turn_has_no_more_than_there_is_room_for() {
    let kept = Kept::new(250);
    kept.change("turn_1", "/other", (None, Some("somebody else's")));
    let (old, new) = ("o".repeat(150), "n".repeat(200));
    kept.change("turn_2", "/a", (Some(&old), Some(&new)));
    // What it replaced is worth more than what came out.
    assert_eq!(kept.changes(1), [("/a".to_owned(), file(&old), unkept(200, 250), false)]);
    kept.change("turn_2", "/b", (Some("short"), Some(&old)));
    assert_eq!(kept.changes(1)[1], ("/b".to_owned(), file("short"), file(&old), false), "contents are kept once");
    kept.change("turn_2", "/c", (Some(&new), Some("small")));
    assert_eq!(kept.changes(1)[2], ("/c".to_owned(), unkept(200, 250), file("small"), false));
    assert_eq!(kept.store.size(), (160, 250));
    assert!(kept.turns()[0].dropped && !kept.turns()[1].dropped);
    kept.store.forget(&kept.session).unwrap();
    assert_eq!(kept.store.size(), (0, 250));
}

fn unkept(bytes: u64, most: u64) -> FileState {
    FileState::Unkept { reason: format!("it has {bytes} bytes, and at most {most} are kept of all files together") }
}

#[test]
fn what_is_recorded_outlives_the_process() {
    let Kept { home, store, session } = Kept::new(1 << 20);
    let kept = Kept { home, store, session };
    kept.change("turn_1", "/a\u{e9}", (Some("one"), None));
    kept.store.command(&kept.session, &"turn_1".parse().unwrap(), true).unwrap();
    kept.store.set_undone(&[kept.turns()[0].number], true).unwrap();
    let Kept { home, store, session } = kept;
    drop(store);
    let store = SnapshotStore::open(&home.path().join("snapshots.db"), 1 << 20).unwrap();
    let kept = Kept { home, store, session };
    assert_eq!(kept.changes(0), [("/a\u{e9}".to_owned(), file("one"), FileState::Absent, false)]);
    assert!(kept.has("one") && kept.turns()[0].undone == 1 && kept.turns()[0].commands == 1);
    kept.store.set_undone(&[kept.turns()[0].number], false).unwrap();
    assert_eq!(kept.turns()[0].undone, 0);
    kept.store.close().unwrap();
    assert_eq!(kept.store.turns(&kept.session).err(), Some(StoreError::Closed));
}

#[test]
fn what_is_not_recorded_is_said_once() {
    let kept = Kept::new(1 << 20);
    let uncovered = vec![(PathBuf::from("/x"), "too large".to_owned()), (PathBuf::from("/x"), "again".to_owned())];
    let addition = Addition { uncovered, ..Addition::default() };
    kept.store.add(&kept.session, &"turn_1".parse().unwrap(), &addition).unwrap();
    let found = kept.store.uncovered(kept.turns()[0].number).unwrap();
    assert_eq!(found, [(PathBuf::from("/x"), "too large".to_owned())]);
}

#[test]
fn the_file_is_made_with_the_first_change() {
    let kept = Kept::new(1 << 20);
    let path = kept.home.path().join("snapshots.db");
    let none: ContentId = ContentId::of(b"none");
    assert_eq!((kept.turns(), kept.store.content(&none)), (vec![], Ok(None)));
    kept.store.forget(&kept.session).unwrap();
    assert!(!path.exists(), "nothing was changed");
    kept.change("turn_1", "/a", (None, Some("one")));
    assert!(path.exists() && kept.has("one"));
    let unused = Kept::new(1 << 20);
    unused.store.close().unwrap();
    let closed = unused.store.forget(&unused.session);
    assert_eq!((closed, unused.home.path().join("snapshots.db").exists()), (Err(StoreError::Closed), false));
    // One that is there and cannot be read is said at the opening, not in the middle of a turn.
    let wrong = unused.home.path().join("wrong.db");
    std::fs::write(&wrong, "this is a text and no database, long enough to be read as a header of one").unwrap();
    let said = SnapshotStore::open(&wrong, 1).unwrap_err().to_string();
    assert!(said.contains("wrong.db"), "{said}");
}
