//! Files and directories that take each other's place, directories by themselves, and what turns close.

use super::*;

fn mode(house: &House, name: &str, mode: u32) {
    fs::set_permissions(house.path(name), fs::Permissions::from_mode(mode)).unwrap();
}

fn made(house: &House, name: &str, bits: u32) {
    fs::create_dir(house.path(name)).unwrap();
    mode(house, name, bits);
}

/// A file becomes a directory with others in it, one of them empty.
fn to_directory(house: &House) {
    fs::remove_file(house.path("f")).unwrap();
    house.put("f/a", "x");
    house.put("f/deep/b", "y");
    made(house, "f/empty", 0o700);
    symlink("a", house.path("f/link")).unwrap();
    mode(house, "f", 0o750);
}

/// A directory becomes a file.
fn to_file(house: &House) {
    fs::remove_dir_all(house.path("d")).unwrap();
    house.put("d", "now a file");
}

/// A file that is larger than any that is kept.
fn large(house: &House, name: &str) {
    fs::File::create(house.path(name)).unwrap().set_len(limit::SNAPSHOT_FILE_BYTES_MAX + 1).unwrap();
}

fn partial() -> UndoWanted {
    UndoWanted { direction: Direction::Undo, turn: None, partial: true, worked_for: Vec::new() }
}

type Round = (&'static str, fn(&House));

#[rustfmt::skip]
const ROUNDS: &[Round] = &[
    ("a file becomes a directory",        to_directory),
    ("a directory becomes a file",        to_file),
    ("both, with others",                 |h| { to_directory(h); to_file(h); h.put("other", "2"); }),
    ("two change places",                 |h| { fs::rename(h.path("f"), h.path("t")).unwrap(); fs::rename(h.path("d"), h.path("f")).unwrap(); fs::rename(h.path("t"), h.path("d")).unwrap(); }),
    ("a directory becomes a link",        |h| { fs::remove_dir_all(h.path("d")).unwrap(); symlink("f", h.path("d")).unwrap(); }),
    ("a link becomes a directory",        |h| { fs::remove_file(h.path("l")).unwrap(); h.put("l/x", "1"); }),
    ("an empty directory becomes a file", |h| { fs::remove_dir(h.path("empty")).unwrap(); h.put("empty", ""); }),
    ("a file becomes an empty directory", |h| { fs::remove_file(h.path("f")).unwrap(); made(h, "f", 0o711); }),
    ("deep in a directory",               |h| { fs::remove_file(h.path("d/in/y")).unwrap(); h.put("d/in/y/z/w", "1"); }),
    ("an empty directory is made",        |h| made(h, "new", 0o700)),
    ("directories in each other",         |h| { made(h, "new", 0o750); made(h, "new/in", 0o705); made(h, "new/in/it", 0o755); }),
    ("an empty directory is removed",     |h| fs::remove_dir(h.path("empty")).unwrap()),
    ("a whole directory is removed",      |h| fs::remove_dir_all(h.path("d")).unwrap()),
    ("a directory is emptied and goes",   |h| { fs::remove_file(h.path("d/x")).unwrap(); fs::remove_dir_all(h.path("d/in")).unwrap(); fs::remove_dir(h.path("d")).unwrap(); }),
    ("permissions of a directory",        |h| mode(h, "d", 0o700)),
    ("permissions, and what is in it",    |h| { mode(h, "d", 0o700); h.put("d/x", "2"); h.put("d/new", "n"); mode(h, "d/in", 0o711); }),
    ("a directory is closed to writing",  |h| { h.put("d/x", "2"); fs::remove_file(h.path("d/in/y")).unwrap(); h.put("d/in/n", "n"); mode(h, "d/in", 0o555); mode(h, "d", 0o500); }),
    ("a made directory is closed",        |h| { h.put("new/in/x", "1"); mode(h, "new/in", 0o555); mode(h, "new", 0o555); }),
    ("an empty directory is closed",      |h| mode(h, "empty", 0o000)),
    ("a directory is closed",             |h| mode(h, "d", 0o000)),
    ("a closed directory is made",        |h| made(h, "new", 0o000)),
    ("a file is closed",                  |h| mode(h, "f", 0o000)),
    ("a file becomes a closed directory", |h| { fs::remove_file(h.path("f")).unwrap(); h.put("f/a", "x"); mode(h, "f", 0o500); }),
];

fn house() -> House {
    let house = House::new(&[("f", "a file"), ("d/x", "1"), ("d/in/y", "2"), ("empty/", ""), ("other", "1")]);
    symlink("f", house.path("l")).unwrap();
    mode(&house, "d", 0o751);
    mode(&house, "d/in", 0o775);
    mode(&house, "empty", 0o710);
    house
}

/// So long that the look before a command trusts what it sees: a file that was just written is taken for one that may be
/// written again unseen.
fn settle() {
    std::thread::sleep(std::time::Duration::from_millis(60));
}

#[test]
fn they_are_undone_and_done_again_as_they_were() {
    for (what, does) in ROUNDS {
        let house = house();
        settle();
        let before = tree(&house);
        house.command("turn_1", || does(&house));
        let after = tree(&house);
        assert_ne!(before, after, "{what}");
        assert!(!house.kinds(None).is_empty(), "{what}: it is told");
        for again in 0..2 {
            let undone = house.undo(Direction::Undo, None).unwrap_or_else(|e| panic!("{what}, {again}: {e:?}"));
            let told: Vec<_> = undone.left.iter().filter(|left| !left.reason.contains("not looked into")).collect();
            assert!(told.is_empty(), "{what}, {again}: {told:?}");
            assert_eq!(tree(&house), before, "{what}, {again}: undone");
            house.undo(Direction::Redo, None).unwrap_or_else(|e| panic!("{what}, {again}: {e:?}"));
            assert_eq!(tree(&house), after, "{what}, {again}: done again");
        }
        house.undo(Direction::Undo, None).unwrap();
    }
}

#[test]
fn a_turn_that_closes_again_what_one_before_it_has_made() {
    let house = house();
    settle();
    let before = tree(&house);
    house.command("turn_1", || to_directory(&house));
    house.command("turn_2", || {
        house.put("f/a", "other");
        house.put("f/more", "m");
        fs::remove_dir(house.path("f/empty")).unwrap();
        mode(&house, "f", 0o700);
    });
    let between = tree(&house);
    house.command("turn_3", || {
        fs::remove_dir_all(house.path("f")).unwrap();
        house.put("f", "a file again");
    });
    let after = tree(&house);
    house.undo(Direction::Undo, None).unwrap();
    assert_eq!(tree(&house), between);
    house.undo(Direction::Undo, Some("turn_1")).unwrap();
    assert_eq!(tree(&house), before);
    house.undo(Direction::Redo, Some("turn_3")).unwrap();
    assert_eq!(tree(&house), after);
    house.undo(Direction::Undo, Some("turn_1")).unwrap();
    assert_eq!(tree(&house), before);
}

#[test]
fn a_patch_that_turns_both_is_undone() {
    let house = house();
    let before = tree(&house);
    let patch = "*** Begin Patch\n*** Delete File: f\n*** Add File: f/a\n+x\n*** Delete File: d/x\n*** Delete File: d/in/y\n\
                 *** Add File: d\n+file\n*** End Patch\n";
    house.turn("turn_1", |context, workspace| {
        did(&ApplyPatch::new(Arc::clone(workspace)), json!({"patch": patch}), context);
    });
    let after = tree(&house);
    assert_eq!((house.text("f/a").as_deref(), house.text("d").as_deref()), (Some("x\n"), Some("file\n")));
    house.undo(Direction::Undo, None).unwrap();
    assert_eq!(tree(&house), before);
    house.undo(Direction::Redo, None).unwrap();
    assert_eq!(tree(&house), after);
}

#[test]
fn what_is_somebodys_own_in_a_directory_stands_against_it() {
    for theirs in ["f/theirs", "f/deep/theirs", "f/empty/theirs"] {
        let house = house();
        house.command("turn_1", || {
            to_directory(&house);
            house.put("other", "2");
        });
        house.put(theirs, "t");
        let before = tree(&house);
        let refused = house.undo(Direction::Undo, None).unwrap_err();
        let said = "its directory is to make way, and \"theirs\" in it is somebody else's";
        assert_eq!(conflicts(&refused), [format!("{theirs}: {said}")]);
        assert_eq!(tree(&house), before, "nothing was touched");

        let done = house.undo_with(&partial()).unwrap();
        let left: Vec<_> = done.left.iter().map(|left| left.path.as_str()).collect();
        assert!(left.contains(&"f"), "{:?}", done.left);
        assert_eq!((house.text(theirs).as_deref(), house.text("other").as_deref()), (Some("t"), Some("1")));
        assert_eq!(house.text("f/a"), None, "what the turn made is gone");
        // It is theirs no longer: what was left is done with the next one.
        house.undo(Direction::Redo, None).unwrap();
        assert_eq!((house.text(theirs).as_deref(), house.text("f/a").as_deref()), (Some("t"), Some("x")));
        fs::remove_file(house.path(theirs)).unwrap();
        house.undo(Direction::Undo, None).unwrap();
        assert_eq!(house.text("f").as_deref(), Some("a file"));
    }
}

#[test]
fn what_is_not_kept_in_a_directory_stays_with_it() {
    let house = house();
    house.command("turn_1", || {
        to_directory(&house);
        large(&house, "f/large");
    });
    let refused = house.undo(Direction::Undo, None).unwrap_err();
    assert!(conflicts(&refused)[0].starts_with("f/large: it has"), "{refused:?}");
    let done = house.undo_with(&partial()).unwrap();
    let left: Vec<_> = done.left.iter().map(|left| left.path.as_str()).collect();
    assert_eq!(left, ["f/large", "f"], "{:?}", done.left);
    assert!(house.path("f/large").is_file() && house.text("f/a").is_none());
}

#[test]
fn what_has_no_place_stays_away_in_part() {
    let house = house();
    house.command("turn_1", || {
        fs::remove_dir_all(house.path("d")).unwrap();
        large(&house, "d");
        house.put("other", "2");
    });
    let done = house.undo_with(&partial()).unwrap();
    let left: Vec<_> = done.left.iter().map(|left| left.path.as_str()).collect();
    assert_eq!(left, ["d", "d/in", "d/in/y", "d/x"], "{:?}", done.left);
    assert!(house.path("d").is_file() && house.text("other").as_deref() == Some("1"));
}

#[test]
fn other_permissions_of_somebody_stand_against_it() {
    let house = house();
    house.command("turn_1", || mode(&house, "d", 0o700));
    mode(&house, "d", 0o711);
    let refused = house.undo(Direction::Undo, None).unwrap_err();
    assert_eq!(conflicts(&refused), ["d: somebody else has changed it since: it has other permissions"]);
    mode(&house, "d", 0o751);
    assert_eq!(house.undo(Direction::Undo, None).unwrap().file_count, 1, "somebody has done it by hand: it is told");
}

/// Somebody is interrupted who had opened what a turn had closed.
#[test]
fn what_was_opened_and_left_so_is_undone() {
    for (name, closed, open) in [("d", 0o500, 0o700), ("f", 0o200, 0o600)] {
        let house = house();
        settle();
        let before = tree(&house);
        house.command("turn_1", || mode(&house, name, closed));
        mode(&house, name, open);
        house.undo(Direction::Undo, None).unwrap();
        assert_eq!(tree(&house), before, "{name}");
    }
}

#[test]
fn what_is_refused_leaves_closed_things_closed() {
    let house = house();
    settle();
    house.command("turn_1", || {
        house.put("other", "2");
        mode(&house, "d", 0o500);
        mode(&house, "f", 0o000);
    });
    house.put("other", "theirs");
    let before = tree(&house);
    house.undo(Direction::Undo, None).unwrap_err();
    assert_eq!(tree(&house), before);
}

#[test]
fn directories_are_told_by_what_is_in_them_or_by_themselves() {
    let house = house();
    house.command("turn_1", || {
        mode(&house, "d", 0o700);
        house.put("new/in/x", "1");
        made(&house, "bare", 0o700);
        fs::remove_dir(house.path("empty")).unwrap();
    });
    let view = house.recording.diff(&house.session, &house.workspace, DiffWanted::default()).unwrap();
    let files: Vec<_> = view.report.files.iter().map(|file| (file.path.as_str(), file.note.as_deref())).collect();
    let want = [
        ("bare", Some("nothing → a directory")),
        ("d", Some("mode 751 → 700 of a directory")),
        ("empty", Some("a directory → nothing")),
        ("new/in/x", None),
    ];
    assert_eq!(files, want);
}

/// What comes into sight during a turn was there before: undoing the turn must not take it away.
#[test]
fn what_was_out_of_sight_is_not_taken_for_new() {
    let house = House::new(&[(".gitignore", "/target\n"), ("target/out", "built"), ("closed/x", "1")]);
    mode(&house, "closed", 0o000);
    house.command("turn_1", || {
        house.put(".gitignore", "\n");
        mode(&house, "closed", 0o755);
    });
    house.undo(Direction::Undo, None).unwrap();
    assert_eq!(
        (house.text(".gitignore").as_deref(), house.text("target/out").as_deref()),
        (Some("/target\n"), Some("built"))
    );
    assert_eq!(fs::metadata(house.path("closed")).unwrap().permissions().mode() & 0o777, 0);
    mode(&house, "closed", 0o755);
    assert_eq!(house.text("closed/x").as_deref(), Some("1"));
}
