//! A commit is stopped before every single thing that it does, in every way.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

use super::disk::Fault;
use super::recovery::recover_on;
use super::*;

/// A name that is no text.
const ODD: &[u8] = b"odd \xff";

/// A program that another test starts holds copies of open files, and of their locks, for a moment between fork and exec:
/// what is locked then is left to the next recovery.
const TRIES_MAX: usize = 100_000;

/// A directory with files, and one for the records.
struct Place {
    home: tempfile::TempDir,
    tree: Workspace,
}

impl Place {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir_all(home.path().join("wd/dir")).unwrap();
        fs::create_dir_all(home.path().join("wd/to file/deep/empty")).unwrap();
        #[rustfmt::skip]
        let files = [
            ("wd/changed", "old 1"), ("wd/dir/deleted", "old 2"), ("wd/moved", "old 3"), ("wd/other", "same"),
            ("wd/to dir", "old 4"), ("wd/named", "old 7"), ("wd/to file/a", "old 5"), ("wd/to file/deep/b", "old 6"),
        ];
        for (path, content) in files {
            fs::write(home.path().join(path), content).unwrap();
        }
        for (path, content) in [(ODD, "old 8"), (b"to file/odd \xfe", "old 9"), (b"odd gone \xfd/x", "old 10")] {
            let path = home.path().join("wd").join(OsStr::from_bytes(path));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        fs::set_permissions(home.path().join("wd/changed"), fs::Permissions::from_mode(0o750)).unwrap();
        let tree = Workspace::new(&home.path().join("wd"), &[]).unwrap();
        Self { home, tree }
    }

    fn disk(&self) -> Disk<'_> {
        Disk::real(&self.tree)
    }

    fn faulty(&self, after: usize, fault: Fault) -> Disk<'_> {
        Disk::faulty(&self.tree, after, fault)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.home.path().join("wd").join(path)
    }

    fn records(&self) -> PathBuf {
        self.home.path().join("state/changes")
    }

    fn change(&self, path: &str, after: Option<&str>) -> Change {
        self.change_of(path.as_bytes(), after)
    }

    /// The same for a name that need not be text.
    fn change_of(&self, path: &[u8], after: Option<&str>) -> Change {
        let path = self.home.path().join("wd").join(OsStr::from_bytes(path));
        let before = fs::symlink_metadata(&path).ok();
        let after = after.map(|text| After::file(text.as_bytes().to_vec(), before.clone()));
        Change { path, before, after }
    }

    fn directory(&self, path: &str, mode: u32) -> Change {
        Change { after: Some(After::directory(mode)), ..self.change(path, None) }
    }

    fn changes(&self) -> Vec<Change> {
        let moved = self.change("moved", None).before;
        let like = |path: &str| {
            let mut change = self.change(path, Some("new 3"));
            change.after.as_mut().unwrap().like = moved.clone();
            change
        };
        vec![
            self.change("changed", Some("new 1")),
            self.change("dir/deleted", None),
            self.change_of(ODD, Some("new 8")),
            self.change_of(b"to file/odd \xfe", None),
            self.change_of(b"odd gone \xfd/x", None),
            self.change_of(b"far/odd \xfc/new", Some("new 9")),
            self.change("moved", None),
            like("far/away/moved"),
            self.change("far/added", Some("")),
            self.change("to dir", None),
            self.change("to dir/deep/c", Some("new 4")),
            self.change("to dir/d", Some("new 5")),
            self.change("to file", Some("new 6")),
            self.change("to file/a", None),
            self.change("to file/deep", None),
            self.change("to file/deep/b", None),
            self.change("to file/deep/empty", None),
            self.directory("named", 0o750),
            self.directory("named/empty", 0o500),
            self.change("named/e", Some("new 7")),
            self.directory("alone", 0o710),
            self.directory("alone/deep", 0o000),
        ]
    }

    fn commit(&self, disk: &Disk<'_>) -> Result<(), CommitError> {
        commit_on(disk, &self.records(), &self.changes())
    }

    fn recover(&self, disk: &Disk<'_>) -> usize {
        recover_on(disk, &self.records())
    }

    /// Everything that lies there: path and content; of directories the path.
    fn state(&self) -> BTreeMap<String, String> {
        let mut out = BTreeMap::new();
        let mut todo = vec![self.at("")];
        while let Some(next) = todo.pop() {
            for entry in fs::read_dir(next).unwrap().flatten() {
                let name = entry.path().strip_prefix(self.at("")).unwrap().to_string_lossy().into_owned();
                if entry.file_type().unwrap().is_dir() {
                    todo.push(entry.path());
                    out.insert(name + "/", String::new());
                } else {
                    out.insert(name, fs::read_to_string(entry.path()).unwrap());
                }
            }
        }
        out
    }

    fn records_left(&self) -> Vec<String> {
        let entries = fs::read_dir(self.records()).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name != "lock").collect()
    }
}

fn new_state() -> BTreeMap<String, String> {
    let entries = [
        ("alone/", ""),
        ("alone/deep/", ""),
        ("changed", "new 1"),
        ("dir/", ""),
        ("far/", ""),
        ("far/added", ""),
        ("far/away/", ""),
        ("far/away/moved", "new 3"),
        ("far/odd \u{fffd}/", ""),
        ("far/odd \u{fffd}/new", "new 9"),
        ("named/", ""),
        ("named/e", "new 7"),
        ("named/empty/", ""),
        ("odd gone \u{fffd}/", ""),
        ("odd \u{fffd}", "new 8"),
        ("other", "same"),
        ("to dir/", ""),
        ("to dir/d", "new 5"),
        ("to dir/deep/", ""),
        ("to dir/deep/c", "new 4"),
        ("to file", "new 6"),
    ];
    entries.into_iter().map(|(path, text)| (path.to_owned(), text.to_owned())).collect()
}

#[test]
fn all_is_done() {
    let place = Place::new();
    place.commit(&place.disk()).unwrap();
    assert_eq!(place.state(), new_state());
    assert!(place.records_left().is_empty());
    let mode = fs::metadata(place.at("changed")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o750);
    for (path, want) in [("named", 0o750), ("named/empty", 0o700), ("alone", 0o710), ("alone/deep", 0o700)] {
        assert_eq!(fs::metadata(place.at(path)).unwrap().permissions().mode() & 0o777, want, "{path}");
    }
    assert_eq!(fs::metadata(place.records()).unwrap().permissions().mode() & 0o777, 0o700);
}

/// However it fails, the files are as they were, and nothing else lies there.
#[test]
fn a_failure_at_any_step_changes_nothing() {
    for step in 0.. {
        let place = Place::new();
        let before = place.state();
        let disk = place.faulty(step, Fault::Fails);
        let result = place.commit(&disk);
        if disk.is_sound() {
            assert!(step > 15, "{step} steps");
            result.unwrap();
            break;
        }
        match result {
            Err(_) => assert_eq!(place.state(), before, "step {step}"),
            // All was done but the tidying up.
            Ok(()) => {
                let tidy: BTreeMap<_, _> =
                    place.state().into_iter().filter(|(name, _)| !name.contains(".old")).collect();
                assert_eq!(tidy, new_state(), "step {step}");
            }
        }
        assert!(place.records_left().is_empty(), "step {step}: {:?}", place.records_left());
        assert_eq!(place.recover(&place.disk()), 0);
    }
}

/// Wherever the process ends, the next one finds all of it done, or nothing; also when it is stopped itself.
#[test]
fn a_crash_at_any_step_leaves_all_or_nothing() {
    let (mut done, mut undone) = (0, 0);
    for step in 0.. {
        let place = Place::new();
        let before = place.state();
        let disk = place.faulty(step, Fault::Crash);
        let _ = place.commit(&disk);
        if disk.is_sound() {
            break;
        }
        // The recovery crashes too, at each of its steps in turn, until one gets through.
        for again in 0.. {
            let second = place.faulty(again, Fault::Crash);
            place.recover(&second);
            if second.is_sound() && (place.records_left().is_empty() || again > TRIES_MAX) {
                break;
            }
        }
        let after = place.state();
        assert!(after == before || after == new_state(), "step {step}: {after:?}");
        if after == before {
            undone += 1
        } else {
            done += 1
        }
        assert!(place.records_left().is_empty(), "step {step}: {:?}", place.records_left());
    }
    assert!(done > 5 && undone > 5, "{done} done, {undone} undone");
}

/// What somebody changed between the crash and the recovery stays; the rest is all or nothing.
#[test]
fn what_others_changed_since_a_crash_stays() {
    for step in 0.. {
        let place = Place::new();
        let disk = place.faulty(step, Fault::Crash);
        let _ = place.commit(&disk);
        if disk.is_sound() {
            break;
        }
        fs::write(place.at("changed"), "theirs").unwrap();
        for _ in 0..TRIES_MAX {
            place.recover(&place.disk());
            if place.records_left().is_empty() {
                break;
            }
        }
        let after = place.state();
        assert_eq!(after["changed"], "theirs", "step {step}");
        let gone = |path: &str| !after.contains_key(path);
        let new = gone("dir/deleted") && gone("moved") && !gone("far/away/moved") && !gone("far/added");
        let old = !gone("dir/deleted") && !gone("moved") && gone("far/away/moved") && gone("far/added");
        assert!(new != old, "step {step}: {after:?}");
        assert!(place.records_left().is_empty(), "step {step}");
        assert!(after.keys().all(|name| !name.contains(".simse")), "step {step}: {after:?}");
    }
}

/// What somebody puts into a directory that is to become a file, or into one that became of a file, is never lost.
#[test]
fn what_others_put_into_a_directory_stays() {
    for (step, into) in (0..).flat_map(|step| [(step, "to file"), (step, "to dir")]) {
        let place = Place::new();
        let before = place.state();
        let disk = place.faulty(step, Fault::Crash);
        let _ = place.commit(&disk);
        if disk.is_sound() {
            break;
        }
        let theirs = format!("{into}/theirs");
        let put = place.at(into).is_dir();
        if put {
            fs::write(place.at(&theirs), "theirs").unwrap();
        }
        for _ in 0..TRIES_MAX {
            place.recover(&place.disk());
            if place.records_left().is_empty() {
                break;
            }
        }
        let mut after = place.state();
        assert_eq!(after.remove(&theirs).is_some(), put, "step {step}: {after:?}");
        assert!(after == before || after == new_state(), "step {step}, {into}: {after:?}");
        assert!(place.records_left().is_empty(), "step {step}");
    }
}

#[test]
fn a_directory_that_is_to_become_a_file_holds_nothing_else() {
    for name in ["to file/theirs", "to file/deep/theirs"] {
        let place = Place::new();
        let changes = place.changes();
        fs::write(place.at(name), "theirs").unwrap();
        let before = place.state();
        assert!(commit(&place.tree, &place.records(), &changes).is_err(), "{name}");
        assert_eq!(place.state(), before);
        assert!(place.records_left().is_empty());
    }
}

#[test]
fn a_change_in_the_meantime_is_seen() {
    let place = Place::new();
    let changes = place.changes();
    fs::write(place.at("dir/deleted"), "theirs, longer").unwrap();
    let before = place.state();
    let result = commit(&place.tree, &place.records(), &changes);
    assert!(matches!(result, Err(CommitError::Overtaken(path)) if path == place.at("dir/deleted")));
    assert_eq!(place.state(), before);
    let elsewhere = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), place.at("far")).unwrap();
    let outside = commit(&place.tree, &place.records(), &place.changes());
    assert!(
        matches!(outside, Err(CommitError::Undone { .. })),
        "a directory of the change leads elsewhere: {outside:?}"
    );
    fs::remove_file(place.at("far")).unwrap();
    assert_eq!(place.state(), before);
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}

#[test]
fn a_change_that_somebody_works_on_is_left_alone() {
    let place = Place::new();
    let record = Record::plan(&place.tree, &place.changes());
    let open = OpenRecord::prepare(&place.disk(), &place.records(), &record).unwrap();
    assert_eq!(place.recover(&place.disk()), 0);
    assert_eq!(place.records_left().len(), 1);
    drop(open);
    assert_eq!(place.recover(&place.disk()), 1);
    assert!(place.records_left().is_empty());
}

#[test]
fn a_record_that_leads_elsewhere_is_not_followed() {
    let place = Place::new();
    let before = place.state();
    let made = (10..80).find(|step| {
        let _ = place.commit(&place.faulty(*step, Fault::Crash));
        let made = place.records_left().iter().any(|name| name.ends_with(".committing"));
        if !made {
            place.recover(&place.disk());
        }
        made
    });
    assert!(made.is_some());
    let left = place.records_left();
    let other = Workspace::new(&place.home.path().join("state"), &[]).unwrap();
    assert_eq!(recover(&other, &place.records()), 0);
    assert_eq!(place.records_left(), left, "another workspace's is left to it");
    // A record whose names are not those of its own files.
    let forged = Record::plan(&place.tree, &place.changes());
    let mut text = serde_json::to_value(&forged).unwrap();
    text["steps"][0]["fresh"] = serde_json::json!(place.at("other"));
    fs::write(place.records().join("forged.committing"), text.to_string()).unwrap();
    fs::write(place.records().join("torn.committing"), "{\"version\":").unwrap();
    place.recover(&place.disk());
    assert_eq!(place.state()["other"], "same");
    assert!(place.state() == before || place.state() == new_state());
    // In a directory that others may write to nothing is believed.
    fs::set_permissions(place.records(), fs::Permissions::from_mode(0o777)).unwrap();
    assert_eq!(place.recover(&place.disk()), 0);
}
