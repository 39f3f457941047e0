//! What sub-agents do in their parent's place: it is in both records, whoever else of the tree looks at the same moment.

use super::*;

/// Who records for a sub-agent of turn `turn_1`.
fn below(house: &House, session: &str) -> Arc<Recorder> {
    let above = vec![(house.session.clone(), "turn_1".parse().unwrap())];
    let (session, turn) = (session.parse().unwrap(), "turn_below".parse().unwrap());
    house.recording.turn(&session, &turn, (house.workspace.clone(), above))
}

/// One of our tools changes a file.
fn writes(house: &House, recorder: &Recorder, text: &str) {
    let paths = [house.path("a")];
    let seen = recorder.before(&paths);
    house.put("a", text);
    recorder.after(&paths, &seen);
}

type Work = fn(&House, [&Arc<Recorder>; 2]);

/// Each leaves one file, `a`, as it was before anybody changed it when the turn above is undone.
#[test]
fn those_who_look_at_the_same_change_do_not_stand_against_each_other() {
    let table: [(&str, Work); 5] = [
        ("one after another", |house, [one, other]| {
            writes(house, one, "1");
            writes(house, other, "2");
        }),
        ("a command around one write", |house, [one, other]| {
            one.begin_command();
            writes(house, other, "1");
            one.end_command();
        }),
        ("a command that ends in the middle of a write", |house, [one, other]| {
            one.begin_command();
            let paths = [house.path("a")];
            let seen = other.before(&paths);
            house.put("a", "half");
            one.end_command();
            house.put("a", "whole");
            other.after(&paths, &seen);
        }),
        ("a command that begins between two writes", |house, [one, other]| {
            writes(house, other, "1");
            one.begin_command();
            writes(house, other, "2");
            one.end_command();
        }),
        ("two commands, one inside of the other", |house, [one, other]| {
            one.begin_command();
            other.begin_command();
            house.put("a", "1");
            other.end_command();
            house.put("a", "2");
            one.end_command();
        }),
    ];
    for (name, work) in table {
        let house = House::new(&[("a", "before")]);
        let above =
            house.recording.turn(&house.session, &"turn_1".parse().unwrap(), (house.workspace.clone(), Vec::new()));
        assert!(!above.used.load(Ordering::Acquire), "{name}");
        work(&house, [&below(&house, "ses_2"), &below(&house, "ses_3")]);
        // It runs still, and will tell of it.
        assert!(above.used.load(Ordering::Acquire), "{name}");
        assert_eq!(house.kinds(Some("turn_1")), [("a".to_owned(), ChangeKind::Modified)], "{name}");
        let done = house.undo(Direction::Undo, None).unwrap();
        assert_eq!((done.left.len(), house.text("a").as_deref()), (0, Some("before")), "{name}");
    }
}

#[test]
fn what_somebody_else_changed_in_between_still_stands_against_it() {
    let house = House::new(&[("a", "before")]);
    writes(&house, &below(&house, "ses_2"), "1");
    house.put("a", "theirs");
    writes(&house, &below(&house, "ses_3"), "2");
    let refused = house.undo(Direction::Undo, None).unwrap_err();
    assert_eq!(conflicts(&refused), ["a: somebody else changed it in between"]);
    // Of the one that came behind that, nobody was in between.
    let session: SessionId = "ses_3".parse().unwrap();
    let wanted = UndoWanted { direction: Direction::Undo, turn: None, partial: false, worked_for: Vec::new() };
    house.recording.undo(&session, (&house.workspace, &house.home.path().join("records")), &wanted).unwrap();
    assert_eq!(house.text("a").as_deref(), Some("theirs"));
}

#[test]
fn a_turn_for_which_somebody_works_is_not_undone() {
    let house = House::new(&[("a", "before")]);
    writes(&house, &below(&house, "ses_2"), "1");
    let worked_for = vec!["turn_1".parse().unwrap()];
    let wanted = UndoWanted { direction: Direction::Undo, turn: None, partial: true, worked_for };
    let refused = house.undo_with(&wanted).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Conflict);
    assert_eq!(refused.0.message, "a sub-agent still works for turn turn_1; end it or wait for its end");
    assert_eq!(house.text("a").as_deref(), Some("1"));
}
