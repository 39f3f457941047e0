//! Patches on real files: what they make of them, and that they make all or nothing.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::super::fs_common::testing::{aborted, call, preview, put, workspace};
use super::*;

/// A workspace with files, and the tool on it.
struct Place {
    home: tempfile::TempDir,
    tool: ApplyPatch,
    _records: tempfile::TempDir,
}

fn place(files: &[(&str, &str)]) -> Place {
    let (home, workspace) = workspace(files);
    let records = tempfile::tempdir().unwrap();
    let tool = ApplyPatch::with_records(workspace, records.path().join("changes"));
    Place { home, tool, _records: records }
}

impl Place {
    fn patch(&self, patch: &str) -> Result<String, String> {
        call(&self.tool, json!({ "patch": patch }))
    }

    fn begin(&self, body: &str) -> Result<String, String> {
        self.patch(&format!("*** Begin Patch\n{body}*** End Patch\n"))
    }

    /// All files: path and text, sorted.
    fn files(&self) -> Vec<(String, String)> {
        let mut out = Vec::new();
        let mut todo = vec![self.home.path().to_owned()];
        while let Some(next) = todo.pop() {
            for entry in fs::read_dir(next).unwrap().flatten() {
                if entry.file_type().unwrap().is_dir() {
                    todo.push(entry.path());
                } else {
                    let name = entry.path().strip_prefix(self.home.path()).unwrap().to_string_lossy().into_owned();
                    out.push((name, String::from_utf8_lossy(&fs::read(entry.path()).unwrap_or_default()).into_owned()));
                }
            }
        }
        out.sort();
        out
    }

    fn holds(&self, want: &[(&str, &str)]) {
        let want: Vec<(String, String)> =
            want.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        assert_eq!(self.files(), want);
    }
}

#[test]
fn files_are_added_updated_moved_and_deleted() {
    let place = place(&[("a.txt", "one\ntwo\n"), ("old.txt", "x\n"), ("from.txt", "1\n2\n"), ("bytes", "")]);
    fs::write(place.home.path().join("bytes"), b"\xff\x00").unwrap();
    fs::set_permissions(place.home.path().join("from.txt"), fs::Permissions::from_mode(0o755)).unwrap();
    let said = place.begin(
        "*** Add File: new/deep.txt\n+hello\n*** Update File: a.txt\n@@\n one\n-two\n+2\n*** Delete File: old.txt\n\
         *** Update File: from.txt\n*** Move to: far/to.txt\n@@\n-1\n+eins\n*** Update File: bytes\n*** Move to: bytes2\n",
    );
    let want = "Success. Updated the following files:\nA new/deep.txt\nM a.txt\nD old.txt\nR from.txt → far/to.txt\nR bytes → bytes2";
    assert_eq!(said.as_deref(), Ok(want));
    assert_eq!(fs::read(place.home.path().join("bytes2")).unwrap(), b"\xff\x00");
    fs::remove_file(place.home.path().join("bytes2")).unwrap();
    place.holds(&[("a.txt", "one\n2\n"), ("far/to.txt", "eins\n2\n"), ("new/deep.txt", "hello\n")]);
    let mode = fs::metadata(place.home.path().join("far/to.txt")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
}

#[test]
fn a_file_in_two_sections_is_told_once() {
    let place = place(&[("a", "1\n2\n"), ("b", "x\n"), ("c", "y\n")]);
    let two = "*** Update File: a\n@@\n-1\n+one\n*** Update File: c\n@@\n-y\n+z\n*** Update File: ./a\n@@\n-2\n+two\n\
               *** Add File: n\n+1\n*** Update File: n\n@@\n-1\n+one\n*** Delete File: b\n*** Add File: b\n+new\n";
    let patch = format!("*** Begin Patch\n{two}*** End Patch\n");
    let shown = preview(&place.tool, json!({ "patch": patch })).unwrap();
    let paths: Vec<&str> = shown["files"].as_array().unwrap().iter().filter_map(|file| file["path"].as_str()).collect();
    assert_eq!(paths, ["a", "c", "n", "b"]);
    assert_eq!(
        shown["diff"].as_str().unwrap().matches("+++ b/a\n@@ -1,2 +1,2 @@\n-1\n-2\n+one\n+two\n").count(),
        1,
        "{shown}"
    );
    let told = "Success. Updated the following files:\nM a\nM c\nA n\nM b";
    let warned = "\"b\" was there, and was never read in this session.";
    assert_eq!(shown["warning"], warned);
    assert_eq!(place.begin(two), Ok(format!("{told}\n\n(Warning: {warned})")));
    place.holds(&[("a", "one\ntwo\n"), ("b", "new\n"), ("c", "z\n"), ("n", "one\n")]);
}

#[test]
fn nothing_can_lie_below_a_file_of_the_patch() {
    let place = place(&[("d/f", "1\n")]);
    for (body, path, above) in [
        ("*** Add File: a\n+1\n*** Add File: a/b\n+2\n", "a/b", "a"),
        ("*** Add File: x/y/z\n+1\n*** Add File: x\n+2\n", "x/y/z", "x"),
        ("*** Update File: d/f\n*** Move to: g\n@@\n-1\n+2\n*** Add File: g/h\n+2\n", "g/h", "g"),
    ] {
        let why = format!("the patch makes \"{above}\" a file, and nothing can lie below a file");
        assert_eq!(place.begin(body), Err(format!("apply_patch verification failed: {path}: {why}")));
        place.holds(&[("d/f", "1\n")]);
    }
}

#[test]
fn a_file_and_a_directory_take_each_others_place() {
    let diff = |path: &str, old: &str, new: &str| {
        let name =
            |side: &str, text: &str| if text.is_empty() { "/dev/null".to_owned() } else { format!("{side}/{path}") };
        let kind = if old.is_empty() { "new file mode 100644\n" } else { "deleted file mode 100644\n" };
        let hunk = if old.is_empty() { format!("@@ -0,0 +1 @@\n+{new}") } else { format!("@@ -1 +0,0 @@\n-{old}") };
        format!("diff --git a/{path} b/{path}\n{kind}--- {}\n+++ {}\n{hunk}\n", name("a", old), name("b", new))
    };
    let all = |changes: &[(&str, &str, &str)]| {
        changes.iter().map(|(path, old, new)| diff(path, old, new)).collect::<String>()
    };
    #[rustfmt::skip]
    let table: &[(&[(&str, &str)], String, &[(&str, &str)])] = &[
        (&[("x", "1\n")], all(&[("x", "1", ""), ("x/y", "", "2"), ("x/z/w", "", "3")]), &[("x/y", "2\n"), ("x/z/w", "3\n")]),
        (&[("x/y", "1\n"), ("x/z/w", "2\n")], all(&[("x", "", "3"), ("x/y", "1", ""), ("x/z/w", "2", "")]), &[("x", "3\n")]),
        (&[("x", "1\n")], "diff --git a/x b/x/y\nsimilarity index 100%\nrename from x\nrename to x/y\n".into(), &[("x/y", "1\n")]),
        (&[("x/y", "1\n")], "diff --git a/x/y b/x\nsimilarity index 100%\nrename from x/y\nrename to x\n".into(), &[("x", "1\n")]),
        (&[("x", "1\n")], "*** Begin Patch\n*** Delete File: x\n*** Add File: x/y\n+2\n*** Update File: x/y\n@@\n-2\n+3\n*** End Patch".into(), &[("x/y", "3\n")]),
        (&[("x/y", "1\n")], "*** Begin Patch\n*** Delete File: x/y\n*** Add File: x\n+2\n*** Update File: x\n@@\n-2\n+3\n*** End Patch".into(), &[("x", "3\n")]),
        (&[("x/y", "1\n"), ("b", "2\n")], "*** Begin Patch\n*** Update File: x/y\n*** Move to: z\n*** Update File: b\n*** Move to: x\n*** End Patch".into(), &[("x", "2\n"), ("z", "1\n")]),
        (&[("x/y", "1\n"), ("b", "2\n")], "*** Begin Patch\n*** Delete File: x/y\n*** Add File: x\n+2\n*** Delete File: x\n*** End Patch".into(), &[("b", "2\n")]),
    ];
    for (before, patch, after) in table {
        let place = place(before);
        let shown = preview(&place.tool, json!({ "patch": patch })).unwrap();
        assert!(shown["error"].is_null(), "{patch}{shown}");
        place.patch(patch).unwrap_or_else(|said| panic!("{patch}{said}"));
        place.holds(after);
    }
    #[rustfmt::skip]
    let refused: &[(&[(&str, &str)], String, &str)] = &[
        (&[("x/y", "1\n"), ("x/z/w", "2\n")], all(&[("x", "", "3"), ("x/y", "1", "")]), "x: it is a directory, and the patch leaves \"x/z\" in it"),
        (&[("x/z/v", "1\n"), ("x/z/w", "2\n")], all(&[("x", "", "3"), ("x/z/w", "2", "")]), "x: it is a directory, and the patch leaves \"x/z/v\" in it"),
        (&[("x/y", "1\n")], all(&[("x", "", "3")]), "x: it is a directory"), (&[("x", "1\n")], all(&[("x/y", "", "3")]), "Not a directory"),
        (&[("x/y", "1\n")], all(&[("x", "", "3"), ("x/y", "1", ""), ("x/z", "", "2")]), "the patch makes \"x\" a file, and nothing can lie below a file"),
        (&[("x/y", "1\n")], "*** Begin Patch\n*** Add File: x\n+2\n*** Delete File: x/y\n*** End Patch".into(), "x: it is a directory"),
        (&[("x/y", "1\n")], "*** Begin Patch\n*** Delete File: x/y\n*** Delete File: x\n*** End Patch".into(), "x: it is a directory"),
        (&[("x/y", "1\n")], "*** Begin Patch\n*** Delete File: x/y\n*** Update File: x\n@@\n-1\n+2\n*** End Patch".into(), "x: it is a directory"),
    ];
    for (before, patch, want) in refused {
        let place = place(before);
        let said = place.patch(patch).unwrap_err();
        assert!(said.contains(want), "{patch}{said}");
        place.holds(before);
    }
}

#[test]
fn changes_of_one_file_follow_each_other() {
    let place = place(&[("a", "1\n2\n"), ("b", "x\n")]);
    place
        .begin(
            "*** Update File: a\n@@\n-1\n+one\n*** Update File: a\n@@\n one\n-2\n+two\n*** Delete File: b\n*** Add File: b\n+new\n\
             *** Add File: c\n+c\n*** Update File: c\n@@\n-c\n+C\n*** Update File: a\n*** Move to: d\n",
        )
        .unwrap();
    place.holds(&[("b", "new\n"), ("c", "C\n"), ("d", "one\ntwo\n")]);
}

#[test]
fn a_unified_diff_is_one_step_for_all_files() {
    let place = place(&[("a", "1\n"), ("b", "2\n"), ("run", "x\n"), ("gone", "g\n")]);
    let said = place.patch(
        "diff --git a/a b/b\nsimilarity index 100%\nrename from a\nrename to b\n\
         diff --git a/b b/a\nsimilarity index 100%\nrename from b\nrename to a\n\
         diff --git a/run b/run\nold mode 100644\nnew mode 100755\n\
         diff --git a/run b/copy\nsimilarity index 50%\ncopy from run\ncopy to copy\n--- a/run\n+++ b/copy\n@@ -1 +1 @@\n-x\n+y\n\
         diff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-g\n\
         diff --git a/new b/new\nnew file mode 100755\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+n\n\\ No newline at end of file\n",
    );
    assert!(said.as_ref().unwrap().contains("R a → b\nR b → a\nM run\nC run → copy\nD gone\nA new"), "{said:?}");
    place.holds(&[("a", "2\n"), ("b", "1\n"), ("copy", "y\n"), ("new", "n"), ("run", "x\n")]);
    for (path, executable) in [("run", true), ("new", true), ("copy", false), ("a", false)] {
        let mode = fs::metadata(place.home.path().join(path)).unwrap().permissions().mode();
        assert_eq!(mode & 0o100 != 0, executable, "{path}");
    }
}

#[test]
fn what_does_not_fit_changes_nothing() {
    let files = [("a", "1\n2\n1\n"), ("b", "x\n"), ("dir/c", "c\n")];
    let place = place(&files);
    fs::write(place.home.path().join("latin"), b"\xe9\n").unwrap();
    symlink("/etc", place.home.path().join("out")).unwrap();
    symlink("b", place.home.path().join("link")).unwrap();
    let before = place.files();
    let good = "*** Add File: new\n+n\n*** Update File: b\n@@\n-x\n+y\n*** Delete File: dir/c\n";
    let wd = place.home.path().display().to_string();
    let escapes = |path: &str| format!("Path \"{path}\" escapes the working directory \"{wd}\"");
    #[rustfmt::skip]
    let table = [
        ("*** Update File: a\n@@\n-1\n+one\n", "a: the change at line 10 of the patch is ambiguous: it fits at lines 1, 3".to_owned()),
        ("*** Update File: a\n@@\n-3\n+one\n", "a: the change at line 10 of the patch does not fit".into()), ("*** Update File: nope\n@@\n-3\n+one\n", "No such file or directory: \"nope\"".into()),
        ("*** Add File: a\n+x\n", "a: it exists already: update it, or delete it first".into()), ("*** Update File: a\n*** Move to: b\n", "b: it exists already".into()),
        ("*** Update File: latin\n@@\n-x\n+y\n", "latin: it is not valid UTF-8 (first at byte 0)".into()), ("*** Delete File: dir\n", "dir: it is a directory".into()),
        ("*** Update File: dir\n@@\n-x\n+y\n", "dir: it is a directory".into()), ("*** Delete File: nope\n", "No such file".into()), ("*** Delete File: b\n*** Delete File: b\n", "b: the patch has deleted or moved it before this".into()),
        ("*** Add File: ../x\n+x\n", escapes("../x")), ("*** Add File: /etc/x\n+x\n", escapes("/etc/x")), ("*** Add File: out/x\n+x\n", escapes("out/x")),
        ("*** Update File: a\n*** Move to: ../x\n", escapes("../x")), ("*** Update File: out/hosts\n@@\n-x\n+y\n", escapes("out/hosts")), ("*** Delete File: out/hosts\n", escapes("out/hosts")),
        ("*** Add File: dir/../x\n+x\n", "dir/../x: paths in a patch are relative to the working directory, without `..`".into()),
        ("*** Add File: a/b\n+x\n", "Not a directory".into()), ("*** Add File: x/\n+x\n", "it names a directory".into()), ("*** Add File: .\n+x\n", ".: it is a directory".into()),
        ("*** Update File: link\n*** Move to: x\n", "link: it is a symbolic link".into()), ("*** Frob\n", "line 9 of the patch: expected".into()),
    ];
    for (bad, want) in table {
        let said = place.begin(&format!("{good}{bad}")).unwrap_err();
        assert!(said.contains(&want), "{bad}{said}");
        assert!(said.starts_with("apply_patch verification failed: ") || bad.contains("a/b"), "{said}");
        assert_eq!(place.files(), before, "{bad}");
    }
    let absolute = place.begin(&format!("*** Update File: {wd}/b\n@@\n-x\n+y\n")).unwrap_err();
    assert!(absolute.contains("paths in a patch are relative to the working directory"), "{absolute}");
    let deletes = "--- a/a\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-1\n-2\n";
    assert!(place.patch(deletes).unwrap_err().contains("it holds more than the patch takes away"));
    assert!(place.begin("*** Update File: b\n@@\n x\n").unwrap_err().contains("the patch changes nothing"));
    aborted(&place.tool, json!({ "patch": format!("*** Begin Patch\n{good}*** End Patch") }));
    assert_eq!(place.files(), before);
}

#[test]
fn links_are_written_through_and_deleted_themselves() {
    let place = place(&[("a", "1\n"), ("b", "2\n")]);
    symlink("a", place.home.path().join("to_a")).unwrap();
    symlink("b", place.home.path().join("to_b")).unwrap();
    place.begin("*** Update File: to_a\n@@\n-1\n+one\n*** Delete File: to_b\n").unwrap();
    assert!(fs::symlink_metadata(place.home.path().join("to_a")).unwrap().is_symlink());
    place.holds(&[("a", "one\n"), ("b", "2\n"), ("to_a", "one\n")]);
}

#[test]
fn what_was_not_minded_is_said() {
    let place = place(&[("a", "  one\n  two\n")]);
    let said = place.begin("*** Update File: a\n@@\n one\n-two\n+2\n").unwrap();
    assert!(said.ends_with("M a (found without regard to indentation)"), "{said}");
    place.holds(&[("a", "  one\n  2\n")]);
}

#[test]
fn the_rules_see_every_path() {
    let place = place(&[("a", "1\n"), ("dir/", "")]);
    symlink("/etc/passwd", place.home.path().join("out")).unwrap();
    let patch = "*** Begin Patch\n*** Update File: a\n*** Move to: dir/b\n*** Add File: c\n+x\n*** Delete File: out\n*** Update File: out\n@@\n-x\n+y\n*** End Patch";
    let Value::Object(arguments) = json!({ "patch": patch }) else { panic!() };
    let Subject::Paths(paths) = place.tool.subject(&arguments) else { panic!("paths") };
    let home = place.home.path().canonicalize().unwrap();
    let seen: Vec<_> = paths.iter().map(|path| (path.given.as_str(), path.resolved.clone())).collect();
    let at = |path: &str| Some(home.join(path));
    // Of a link that is deleted itself, and of one that is followed, each its own.
    let want = [("a", at("a")), ("dir/b", at("dir/b")), ("c", at("c")), ("out", at("out")), ("out", None)];
    assert_eq!(seen, want);
    let Value::Object(arguments) = json!({ "patch": "nonsense" }) else { panic!() };
    assert_eq!(place.tool.subject(&arguments), Subject::None);
}

#[test]
fn a_person_is_shown_the_whole_diff() {
    let place = place(&[("a", "1\n"), ("b", "2\n"), ("c", "3\n")]);
    let patch = "*** Begin Patch\n*** Update File: a\n@@\n-1\n+one\n*** Delete File: b\n*** Add File: d\n+4\n*** Update File: c\n*** Move to: e\n*** End Patch";
    let shown = preview(&place.tool, json!({ "patch": patch })).unwrap();
    let want = "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+one\n--- a/b\n+++ /dev/null\n@@ -1 +0,0 @@\n-2\n\
                --- /dev/null\n+++ b/d\n@@ -0,0 +1 @@\n+4\nrename from c\nrename to e\n";
    assert_eq!(shown["diff"], want);
    assert_eq!((&shown["added"], &shown["removed"], &shown["truncated"]), (&json!(2), &json!(2), &json!(false)));
    assert_eq!(shown["files"][3], json!({"kind": "R", "path": "e", "added": 0, "removed": 0}));
    let refused = preview(&place.tool, json!({ "patch": patch.replace("-1", "-7") })).unwrap();
    assert!(refused["error"].as_str().unwrap().starts_with("apply_patch verification failed: a: "), "{refused}");
}

/// Calls of one reply run side by side: none may overwrite what another one wrote.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn patches_of_one_file_take_turns() {
    let words: Vec<String> = (0..20).map(|n| format!("word{n:02}")).collect();
    let place = place(&[]);
    put(place.home.path(), "a", &(words.join("\n") + "\n"));
    put(place.home.path(), "b", "x\n");
    let tool = Arc::new(place.tool);
    let calls = words.iter().map(|word| {
        let (tool, word) = (Arc::clone(&tool), word.clone());
        tokio::spawn(async move {
            let upper = word.to_uppercase();
            let patch = format!(
                "*** Begin Patch\n*** Update File: a\n@@\n-{word}\n+{upper}\n*** Add File: {word}\n+x\n*** End Patch"
            );
            let Value::Object(arguments) = json!({ "patch": patch }) else { panic!() };
            tool.run(arguments, &super::super::fs_common::testing::context()).await
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap().unwrap();
    }
    assert_eq!(fs::read_to_string(place.home.path().join("a")).unwrap(), words.join("\n").to_uppercase() + "\n");
    assert_eq!(fs::read_dir(place.home.path()).unwrap().count(), 22);
}

/// The stale-file check holds for patches, and what they write is known afterwards.
#[test]
fn files_that_changed_since_they_were_read_are_left_alone() {
    use super::super::fs_common::testing::call_in;
    use crate::host::FsRead;

    let place = place(&[("a", "one\ntwo\n"), ("b", "x\n")]);
    let context = super::super::fs_common::testing::context();
    let read = FsRead::new(Arc::clone(&place.tool.workspace));
    let run = |body: &str| {
        let patch = format!("*** Begin Patch\n*** Update File: b\n@@\n-x\n+y\n*** Update File: a\n{body}*** End Patch");
        call_in(&place.tool, json!({ "patch": patch }), &context).map_err(|e| e.to_string())
    };
    call_in(&read, json!({"path": "a"}), &context).unwrap();
    put(place.home.path(), "a", "one\nTWO\n");
    let said = run("@@\n-one\n+1\n").unwrap_err();
    assert!(said.starts_with("apply_patch verification failed: \"a\" has changed since"), "{said}");
    place.holds(&[("a", "one\nTWO\n"), ("b", "x\n")]);
    call_in(&read, json!({"path": "a"}), &context).unwrap();
    run("@@\n-one\n+1\n").unwrap();
    let again = "*** Begin Patch\n*** Update File: a\n@@\n-1\n+2\n*** End Patch";
    call_in(&place.tool, json!({ "patch": again }), &context).unwrap();
    place.holds(&[("a", "2\nTWO\n"), ("b", "y\n")]);
}
