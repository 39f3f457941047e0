//! What commands bring out of where nobody looks is somebody's: no undo deletes it.

use super::*;

const IGNORED: &[(&str, &str)] = &[(".gitignore", "ig/\n"), ("ig/x", "mine"), ("ig/deep/y", "mine too"), ("seen", "s")];

fn wanted(partial: bool) -> UndoWanted {
    UndoWanted { direction: Direction::Undo, turn: None, partial, worked_for: Vec::new() }
}

fn moved(house: &House, from: &str, to: &str) {
    fs::rename(house.path(from), house.path(to)).unwrap();
}

/// Undoes all that can be undone, in vain where it is to be everything. What is left, by path.
fn left(house: &House) -> Vec<String> {
    let refused = house.undo_with(&wanted(false)).unwrap_err();
    assert!(!conflicts(&refused).is_empty());
    house.undo_with(&wanted(true)).unwrap().left.into_iter().map(|left| left.path).collect()
}

#[test]
fn a_directory_that_came_out_of_sight_stays() {
    let house = House::new(IGNORED);
    house.command("turn_1", || {
        moved(&house, "ig", "vis");
        house.put("made", "new");
        house.put("seen", "changed");
    });
    let left = left(&house);
    for path in ["vis/x", "vis/deep/y"] {
        assert!(left.iter().any(|left| left == path), "{left:?}");
    }
    assert_eq!((house.text("vis/x"), house.text("vis/deep/y")), (Some("mine".into()), Some("mine too".into())));
    assert_eq!((house.text("made"), house.text("seen")), (None, Some("s".into())));
}

#[test]
fn a_file_of_git_and_one_that_took_the_place_of_another_stay() {
    let house = House::new(IGNORED);
    house.put(".git/keep", "kept");
    symlink("x", house.path("ig/link")).unwrap();
    house.command("turn_1", || {
        moved(&house, ".git/keep", "kept");
        moved(&house, "ig/link", "link");
        moved(&house, "ig/x", "seen");
    });
    left(&house);
    assert_eq!((house.text("kept"), house.text("seen")), (Some("kept".into()), Some("mine".into())));
    assert!(house.path("link").is_symlink());
}

#[test]
fn what_came_out_of_sight_stays_wherever_later_commands_move_it() {
    let house = House::new(IGNORED);
    house.command("turn_1", || moved(&house, "ig/x", "first"));
    house.command("turn_1", || moved(&house, "first", "second"));
    left(&house);
    assert_eq!(house.text("second"), Some("mine".into()));
}

#[test]
fn a_file_whose_content_was_not_kept_stays_where_it_was_moved() {
    let house = House::new(&[("d/x", "x"), ("seen", "s")]);
    let big = "b".repeat(usize::try_from(limit::SNAPSHOT_COMMAND_FILE_BYTES_MAX).unwrap() + 1);
    house.put("moved", &big);
    house.put("copied", &format!("{big}c"));
    house.command("turn_1", || {
        moved(&house, "moved", "d/moved");
        fs::copy(house.path("copied"), house.path("d/copied")).unwrap();
        fs::remove_file(house.path("copied")).unwrap();
        moved(&house, "seen", "d/seen");
    });
    left(&house);
    assert_eq!(house.text("d/moved").map(|text| text.len()), Some(big.len()));
    assert_eq!(house.text("d/copied").map(|text| text.len()), Some(big.len() + 1));
    assert_eq!((house.text("seen"), house.text("d/seen")), (Some("s".into()), None));
}
