//! What is read, where it goes, and what is refused: as tables.

use proptest::prelude::*;

use super::*;

/// A patch of the `*** Begin Patch` form that changes one file, applied to its text.
fn begin(content: &str, body: &str) -> Result<String, String> {
    let patch =
        parse(&format!("*** Begin Patch\n*** Update File: f\n{body}*** End Patch\n")).map_err(|e| e.to_string())?;
    let [file] = &patch.files[..] else { panic!("one file") };
    apply(content, &file.chunks, patch.form).map(|patched| patched.text).map_err(|e| e.to_string())
}

fn unified(content: &str, body: &str) -> Result<String, String> {
    let patch = parse(&format!("--- a/f\n+++ b/f\n{body}")).map_err(|e| e.to_string())?;
    let [file] = &patch.files[..] else { panic!("one file") };
    apply(content, &file.chunks, patch.form).map(|patched| patched.text).map_err(|e| e.to_string())
}

#[test]
fn chunks_go_where_their_lines_are() {
    let two =
        "class A:\n  def f(self):\n    x = 1\n    return x\n\nclass B:\n  def f(self):\n    x = 1\n    return x\n";
    let second = two.replacen("x = 1", "x = 0", 2).replacen("x = 0", "x = 1", 1);
    // more places than are told apart
    let (many, last) = ("}\n".repeat(12_000), format!("{})\n", "}\n".repeat(11_999)));
    #[rustfmt::skip]
    let table: &[(&str, &str, &str)] = &[
        ("a\nb\nc\n", "@@\n a\n-b\n+B\n c\n", "a\nB\nc\n"),
        ("a\nb\nc\n", "-b\n+B\n", "a\nB\nc\n"),
        ("a\nb\nc\nd\ne\n", "@@\n-a\n+A\n@@\n d\n+x\n e\n", "A\nb\nc\nd\nx\ne\n"),
        // chunks in another order than their places
        ("a\nb\nc\nd\n", "@@\n-d\n+D\n@@\n-a\n+A\n", "A\nb\nc\nD\n"),
        // headers choose among several
        (two, "@@ class B:\n@@   def f(self):\n-    x = 1\n+    x = 0\n", &second),
        (two, "@@ class B\n-    x = 1\n+    x = 0\n", &second),
        (two, "@@ class B: @@\n-    x = 1\n+    x = 0\n", &second),
        // a line of the block that is the header itself
        ("fn f() {\n  a\n}\n", "@@ fn f() {\n fn f() {\n-  a\n+  b\n }\n", "fn f() {\n  b\n}\n"),
        // new lines alone: behind the header, or at the end
        ("a\nb\nc\n", "@@ b\n+x\n", "a\nb\nx\nc\n"),
        ("a\nb\n", "@@\n+x\n", "a\nb\nx\n"),
        ("a\nb\n", "+x\n*** End of File\n", "a\nb\nx\n"),
        ("a\nb", "+x\n", "a\nb\nx"),
        ("", "+x\n", "x\n"),
        // the end of the file chooses
        ("x\ny\nx\n", "@@\n-x\n+z\n*** End of File\n", "x\ny\nz\n"),
        ("x\ny\nx\n\n", "@@\n-x\n+z\n*** End of File\n", "x\ny\nz\n\n"),
        // also where lines elsewhere are more alike than those at the end
        ("b\nx\nb", "@@\n-b\n+B\n*** End of File\n", "b\nx\nB"),
        ("b\nx\n  b\n", "@@\n-b\n+B\n*** End of File\n", "b\nx\n  B\n"),
        (&many, "@@\n-}\n+)\n*** End of File\n", &last),
        // lines without a sign, and blank ones that lost theirs
        ("a\n\nb\n", "@@\n a\n\n-b\n+c\n", "a\n\nc\n"),
        ("a\nb\n", "@@\na\n-b\n+c\n\n", "a\nc\n"),
        // a number, in the other form's way
        ("x\na\nx\nb\nx\n", "@@ -3,1 +3,1 @@ fn f\n-x\n+y\n", "x\na\ny\nb\nx\n"),
        ("a\nb\n", "--- a/f\n+++ b/f\n@@\n-a\n+A\n", "A\nb\n"),
    ];
    for (content, body, want) in table {
        assert_eq!(begin(content, body).as_deref(), Ok(*want), "{body}");
    }
}

#[test]
fn the_ladder_keeps_what_it_does_not_change() {
    #[rustfmt::skip]
    let table: &[(&str, &str, &str)] = &[
        // trailing blanks: the kept line keeps its own
        ("a  \nb\t\nc\n", "@@\n a\n-b\n+B\n c\n", "a  \nB\nc\n"),
        // indentation: new lines are indented as the place is
        ("    if x {\n        y();\n    }\n", "@@\n if x {\n-    y();\n+    z();\n+    w();\n }\n", "    if x {\n        z();\n        w();\n    }\n"),
        ("\tif x {\n\t\ty();\n\t}\n", "@@\n if x {\n-    y();\n+    z();\n }\n", "\tif x {\n\t\tz();\n\t}\n"),
        // typographic characters
        ("say \u{201c}hi\u{201d} \u{2014} now\nb\n", "@@\n say \"hi\" - now\n-b\n+c\n", "say \u{201c}hi\u{201d} \u{2014} now\nc\n"),
        // line endings and byte order mark
        ("a\r\nb\r\nc\r\n", "@@\n a\n-b\n+B\n+x\n c\n", "a\r\nB\r\nx\r\nc\r\n"),
        ("a\nb\r\nc\n", "@@\n-b\n+B\n", "a\nB\r\nc\n"),
        ("\u{feff}a\nb\n", "@@\n-a\n+A\n b\n", "\u{feff}A\nb\n"),
        ("\u{feff}a\nb\n", "@@\n+x\n a\n", "\u{feff}x\na\nb\n"),
        // the end of the file
        ("a\nb", "@@\n a\n-b\n+c\n", "a\nc"),
        ("a\nb", "@@\n a\n-b\n", "a"),
        ("a\nb", "@@\n b\n+c\n", "a\nb\nc"),
        ("a\r\nb", "@@\n b\n+c\n", "a\r\nb\r\nc"),
        ("a\n", "@@\n-a\n", ""),
    ];
    for (content, body, want) in table {
        assert_eq!(begin(content, body).as_deref(), Ok(*want), "{body}");
    }
}

#[test]
fn what_has_no_one_place_is_refused() {
    #[rustfmt::skip]
    let table: &[(&str, &str, &str)] = &[
        ("x\ny\nx\n", "@@\n-x\n+z\n", "is ambiguous: it fits at lines 1, 3. Add lines"),
        ("a\nb\n", "@@\n-c\n+d\n", "its lines are not in the file"),
        ("one\ntwo\nthree\nfour\n", "@@\n one\n two\n-thre\n+3\n four\n", "begins at line 1, but line 3 is \"three\" there, and \"thre\" in the patch"),
        ("a\nB\nc\n", "@@\n a\n-b\n+B\n c\n", "its new ones are, at line 1. Was it applied before?"),
        ("a\nb\n", "@@ class X\n-a\n+b\n", "follows `@@ class X`, but the file has no such line"),
        ("a\nclass X\nb\n", "@@ class X\n-a\n+z\n", "its lines are in the file at 1, before it"),
        ("a\nb\n", "@@\n-a\n+z\n*** End of File\n", "is marked `*** End of File`"),
        ("b\nx\nb\ny", "@@\n-b\n+B\n*** End of File\n", "is marked `*** End of File`"),
        ("b\nx\nb", "@@\n-c\n+B\n*** End of File\n", "its lines are not in the file"),
        ("f\na\nf\nb\n", "@@ f\n+x\n", "is ambiguous: it fits at lines 1, 3"),
        ("a\nb\n", "@@ -1,0 +2,1 @@\n+x\n", "a line number alone is no place"),
        // one place cannot be used twice
        ("a\nb\n", "@@\n-a\n+x\n@@\n-a\n+y\n", "overlaps a change before it: its lines are in the file at 1,"),
        ("1\n2\n3\n4\n", "@@\n 1\n-2\n+b\n 3\n@@\n 3\n-4\n+d\n", "overlaps a change before it: its lines are in the file at 3,"),
    ];
    for (content, body, want) in table {
        let said = begin(content, body).unwrap_err();
        assert!(said.contains(want), "{body}\n{said}");
        assert!(said.starts_with("the change at line "), "{said}");
    }
}

#[test]
fn hunks_go_where_their_numbers_and_lines_are() {
    let many = "x\na\nx\nb\nx\nc\n";
    let far: String = (0..40).map(|n| if n % 20 == 5 { "same\n".to_owned() } else { format!("{n}\n") }).collect();
    let far_first = far.replacen("same\n", "SAME\n", 1);
    #[rustfmt::skip]
    let table: &[(&str, &str, &str)] = &[
        ("a\nb\nc\n", "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n", "a\nB\nc\n"),
        // the number decides among several
        (many, "@@ -3 +3 @@\n-x\n+y\n", "x\na\ny\nb\nx\nc\n"),
        // a wrong number, one place
        ("a\nb\nc\nd\n", "@@ -1,2 +1,2 @@\n c\n-d\n+D\n", "a\nb\nc\nD\n"),
        // a wrong number, one place far nearer than the other
        (&far, "@@ -8,1 +8,1 @@\n-same\n+SAME\n 6\n", &far_first),
        // wrong counts
        ("a\nb\nc\nd\n", "@@ -1,9 +1,9 @@\n a\n-b\n+B\n c\n", "a\nB\nc\nd\n"),
        ("a\nb\nc\nd\n", "@@ -1,1 +1,1 @@\n a\n-b\n+B\n c\n", "a\nB\nc\nd\n"),
        ("a\nb\n", "@@ ... @@\n a\n-b\n+B\n", "a\nB\n"),
        // a mail's signature is no removed line
        ("a\nb\n-\n", "@@ -1,2 +1,2 @@\n a\n-b\n+B\n-- \n2.43.0\n", "a\nB\n-\n"),
        // blank lines that lost their space
        ("a\n\nb\nc\n", "@@ -1,4 +1,4 @@\n a\n\n-b\n+B\n c\n", "a\n\nB\nc\n"),
        // line feeds at the end, come and gone
        ("a", "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n", "b\n"),
        ("a\n", "@@ -1 +1 @@\n-a\n+b\n\\ No newline at end of file\n", "b"),
        ("a", "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n", "b"),
        ("a", "@@ -1 +1,2 @@\n-a\n\\ No newline at end of file\n+a\n+b\n", "a\nb\n"),
        // the note was forgotten: the end stays as it is
        ("a\nb", "@@ -1,2 +1,2 @@\n a\n-b\n+c\n", "a\nc"),
        // carriage returns: as they are in the patch, or as they are in the file
        ("a\r\nb\r\n", "@@ -1,2 +1,2 @@\n a\r\n-b\r\n+c\r\n", "a\r\nc\r\n"),
        ("a\r\nb\r\n", "@@ -1,2 +1,2 @@\n a\n-b\n+c\n", "a\r\nc\r\n"),
        ("a\nb\n", "@@ -1,2 +1,2 @@\n a\r\n-b\r\n+c\r\n", "a\nc\n"),
        ("a\nb\n", "@@ -1,2 +1,2 @@\n-a\n-b\n+a\r\n+b\r\n", "a\r\nb\r\n"),
        // changed lines that look like names
        ("-- x\nb\n", "@@ -1,2 +1,2 @@\n--- x\n+++ y\n b\n", "++ y\nb\n"),
        ("a\n-- x\nb\nc\nd\n", "@@ -1,2 +1,2 @@\n a\n--- x\n+++ y\n@@ -4,2 +4,2 @@\n c\n-d\n+D\n", "a\n++ y\nb\nc\nD\n"),
        ("", "@@ -0,0 +1,2 @@\n+a\n+b\n", "a\nb\n"),
        ("\u{feff}a\n", "@@ -1 +1 @@\n-\u{feff}a\n+a\n", "a\n"),
    ];
    for (content, body, want) in table {
        assert_eq!(unified(content, body).as_deref(), Ok(*want), "{body}");
    }
    let said = unified(many, "@@ -2 +2 @@\n-x\n+y\n").unwrap_err();
    assert!(said.contains("it fits at lines 1, 3, 5"), "{said}");
}

/// Path, what happens, chunks.
fn told(text: &str) -> Result<Vec<String>, String> {
    let patch = parse(text).map_err(|e| e.to_string())?;
    let one = |file: &FileChange| {
        let x = match file.executable {
            None => "",
            Some(true) => " +x",
            Some(false) => " -x",
        };
        format!("{:?} {} {}{x}", file.action, file.path, file.chunks.len())
    };
    Ok(patch.files.iter().map(one).collect())
}

#[test]
fn files_are_read_in_both_forms() {
    let all = "*** Begin Patch\n*** Add File: new.txt\n+a\n\n+b\n*** Delete File: old.txt\n*** Update File: a.txt\n*** Move to: b.txt\n\
               @@\n-x\n+y\n*** Update File: c d.txt\n*** Move to: e.txt\n*** Add File: empty\n*** End Patch";
    let want =
        ["Add new.txt 1", "Delete old.txt 0", "Move(\"b.txt\") a.txt 1", "Move(\"e.txt\") c d.txt 0", "Add empty 0"];
    let wrapped = [
        all.to_owned(),
        format!("\n\n{all}\n\n"),
        format!("```patch\n{all}\n```\n"),
        format!("<<'EOF'\n{all}\nEOF"),
        format!("apply_patch <<\"PATCH\"\n{all}\nPATCH\n"),
        format!("```\ncat <<EOF\n{all}\nEOF\n```"),
        all.replace('\n', "\r\n"),
        all.lines().map(|line| format!("  {line}\n")).collect(),
        all.replace("*** End Patch", "  *** End Patch  ").replace("*** Begin Patch", " *** Begin Patch "),
        all.strip_prefix("*** Begin Patch\n").unwrap().to_owned(),
    ];
    for text in wrapped {
        assert_eq!(told(&text).unwrap(), want, "{text}");
    }
    let git = "commit 123\n\n    message\n\ndiff --git a/x.txt b/x.txt\nindex 1..2 100644\n--- a/x.txt\n+++ b/x.txt\n@@ -1 +1 @@\n-a\n+b\n\
               diff --git a/new b/new\nnew file mode 100755\nindex 0..1\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+a\n\
               diff --git a/old b/old\ndeleted file mode 100644\nindex 1..0\n--- a/old\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n\
               diff --git a/from b/to\nsimilarity index 100%\nrename from from\nrename to to\n\
               diff --git a/p b/q\nsimilarity index 90%\ncopy from p\ncopy to q\n--- a/p\n+++ b/q\n@@ -1 +1 @@\n-a\n+b\n\
               diff --git a/run b/run\nold mode 100644\nnew mode 100755\n\
               diff --git \"a/\\303\\244 \\\"q\\\".txt\" \"b/\\303\\244 \\\"q\\\".txt\"\nnew file mode 100644\nindex 0..0\n\
               diff --git a/with space.txt b/with space.txt\ndeleted file mode 100644\nindex 0..0\n";
    #[rustfmt::skip]
    let want = ["Update x.txt 1", "Add new 1 +x", "Delete old 1", "Move(\"to\") from 0", "Copy(\"q\") p 1", "Update run 0 +x",
                "Add ä \"q\".txt 0 -x", "Delete with space.txt 0"];
    assert_eq!(told(git).unwrap(), want);
    #[rustfmt::skip]
    let names = [
        ("--- src/x\t2026-01-01\n+++ src/x\t2026-01-02\n@@ -1 +1 @@\n-a\n+b\n", "Update src/x 1"),
        ("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n", "Update x 1"),
        ("--- a/x\n+++ a/x\n@@ -1 +1 @@\n-a\n+b\n", "Update a/x 1"),
        ("--- i/x\n+++ w/x\n@@ -1 +1 @@\n-a\n+b\n", "Update x 1"),
        ("diff --git x x\n--- x\n+++ x\n@@ -1 +1 @@\n-a\n+b\n", "Update x 1"),
        ("--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+b\n", "Add x 1"),
        ("--- /dev/null\n+++ i/x\n@@ -0,0 +1 @@\n+b\n", "Add i/x 1"),
        ("--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-b\n", "Delete x 1"),
    ];
    for (text, want) in names {
        assert_eq!(told(text).unwrap(), [want], "{text}");
    }
}

#[test]
fn what_cannot_be_read_says_why() {
    let begin = |body: &str| format!("*** Begin Patch\n{body}\n*** End Patch");
    let git = |body: &str| format!("diff --git a/x b/x\n{body}\n");
    #[rustfmt::skip]
    let table = [
        (String::new(), "the patch is empty"), ("hello".into(), "it is no patch: expected `*** Begin Patch` or a unified diff"),
        (begin(""), "changes no file"), ("*** Begin Patch\n*** Delete File: a\n".into(), "line 2 of the patch: the patch ends without `*** End Patch`"),
        (begin("*** Update File: a"), "line 2 of the patch: this file is to be updated, but no change follows"),
        (begin("*** Update File: a\n@@\n@@ x"), "no lines follow"), (begin("*** Delete File:"), "no path follows"),
        (begin("*** Frobnicate File: a"), "line 2 of the patch: expected `*** Add File: …`"), (begin("*** Add File: a\n+x\ny"), "line 4 of the patch: every line of a new file begins with `+`"),
        (begin("*** Update File: a\n*** Move to:\n"), "line 3 of the patch: no path follows"),
        (git("Binary files a/x and b/x differ"), "line 2 of the patch: a binary patch cannot be applied"), (git("index 1..2\nGIT binary patch"), "a binary patch"),
        (git("new file mode 120000"), "symbolic links are not patched"), (git("index 1..2 120000"), "symbolic links are not patched"), (git("old mode 160000"), "submodules"), (git(""), "no change of `x` follows"),
        (git("new file mode 777"), "`777` is not the mode of a file"), ("--- a/x\n+++ b/x\n@@ -1 +1 @@\n".into(), "line 3 of the patch: no lines follow"),
        ("x\n@@ -1 +1 @@\n-a\n+b\n--- a/x\n+++ b/x\n".into(), "a hunk without the lines"),
        ("--- a/y\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\ndiff --cc x\n".into(), "the combined diff of a merge"),
        (begin(&"*** Delete File: a\n".repeat(1001)), "more than 1000 files"), ("x".repeat(5_000_000), "has 5000000 bytes, more than"),
        (git("rename from a\nindex 1..2"), "a file's name could not be read"), ("diff --git \"a/\\xff\" b/x\nold mode 100644\n".into(), "name could not be read"),
        ("--- /dev/null\n+++ b/\n@@ -0,0 +1 @@\n+a\n".into(), "line 1 of the patch: a file's name could not be read"),
        (git("rename from a\nrename to \"\""), "line 1 of the patch: a file's name could not be read"),
    ];
    for (text, want) in table {
        let said = parse(&text).unwrap_err().to_string();
        assert!(said.contains(want), "{said}\n{}", &text[..text.len().min(200)]);
    }
}

#[test]
fn patches_typed_into_a_shell() {
    let patch = "*** Begin Patch\n*** Delete File: a\n*** End Patch\n";
    let taken =
        |directory: Option<&str>| Typed::Patch { directory: directory.map(str::to_owned), text: patch.to_owned() };
    let table = [
        (format!("apply_patch <<'EOF'\n{patch}EOF"), taken(None)),
        (format!(" applypatch << EOF\n{patch}EOF\n\n"), taken(None)),
        (format!("apply_patch <<\"END_OF-IT\"\n{patch}END_OF-IT\n"), taken(None)),
        (format!("apply_patch <<-EOF\n\t{}\tEOF", patch.replace("\n", "\n\t").trim_end_matches('\t')), taken(None)),
        (format!("cd src && apply_patch <<'EOF'\n{patch}EOF\n"), taken(Some("src"))),
        (format!("cd 'a b'/c; apply_patch <<'EOF'\n{patch}EOF\n"), taken(Some("a b/c"))),
        (format!("cat <<'EOF' | apply_patch\n{patch}EOF\n"), taken(None)),
        (format!("apply_patch '{patch}'"), taken(None)),
        (format!("apply_patch \"{patch}\"\n"), taken(None)),
    ];
    for (command, want) in table {
        assert_eq!(typed(&command), want, "{command}");
    }
    let refused = [
        format!("apply_patch <<'EOF'\n{patch}EOF\ncargo test"),
        format!("apply_patch <<'EOF' && ls\n{patch}EOF\n"),
        format!("apply_patch <<'EOF'\n{patch}"),
        "apply_patch".to_owned(),
        "apply_patch a.patch".to_owned(),
        patch.to_owned(),
    ];
    for command in refused {
        assert!(matches!(typed(&command), Typed::Refused(_)), "{command}");
    }
    for command in [
        "ls",
        "apply_patches <<E\nE",
        "cd src && ls",
        "cat <<E\nx\nE",
        "cd $X && ls",
        "echo apply_patch <<E\nE",
        "git apply <<E\nE",
    ] {
        assert_eq!(typed(command), Typed::Other, "{command}");
    }
}

/// A unified diff between two texts, as git would write it.
fn diff(old: &str, new: &str) -> String {
    crate::edit::unified_diff("f", Some(old), new, usize::MAX).text
}

fn some_lines() -> impl Strategy<Value = String> {
    let line = "[ \t]{0,2}(a|b|c|fn f\\(\\)|\\}|é|)[ ]?(\r\n|\n)";
    (proptest::collection::vec(line, 0..25), "(\u{feff})?", "(end)?")
        .prop_map(|(lines, bom, end)| bom + &lines.concat() + &end)
}

proptest! {
    /// The difference of two texts, applied to the first, gives the second; taken back, the first.
    #[test]
    fn a_diff_leads_there_and_back(old in some_lines(), new in some_lines()) {
        for (from, to) in [(&old, &new), (&new, &old)] {
            let text = diff(from, to);
            if !text.is_empty() {
                let patch = parse(&text).unwrap();
                let patched = apply(from, &patch.files[0].chunks, patch.form).map(|patched| patched.text);
                prop_assert_eq!(patched.as_ref(), Ok(to), "{}", text);
            }
        }
    }

    /// Nothing that is read or applied panics, and what is kept stays byte for byte.
    #[test]
    fn lines_that_are_kept_stay(content in some_lines(), body in "(@@( a| fn f)?\n|[ +-][ \t]?(a|b|c|\\}|é|)[ ]?\n){1,12}") {
        if let Ok(text) = begin(&content, &body) {
            let removed = body.lines().filter(|line| line.starts_with('-')).count();
            let kept: Vec<&str> = content.trim_start_matches('\u{feff}').lines().collect();
            let there: Vec<&str> = text.trim_start_matches('\u{feff}').lines().collect();
            // All but the removed lines are there, in their order: the longest common subsequence has them.
            let mut row = vec![0; there.len() + 1];
            for line in &kept {
                let mut before = 0;
                for (at, other) in there.iter().enumerate() {
                    let here = row[at + 1];
                    row[at + 1] = if line == other { before + 1 } else { here.max(row[at]) };
                    before = here;
                }
            }
            prop_assert!(row[there.len()] + removed >= kept.len(), "{:?} -> {:?}", content, text);
            prop_assert_eq!(text.starts_with('\u{feff}') , content.starts_with('\u{feff}'));
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in "((\\*\\*\\* (Begin Patch|End Patch|Add File: a|Update File: b|Move to: c|Delete File: d|End of File)|diff --git a/x b/x|--- a/x|\\+\\+\\+ b/x|@@( -[0-9],[0-9] \\+[0-9] @@)?|[ +-]?[ab]?|rename from x|\\\\ No newline|<<EOF|EOF|```)(\r?\n)?){1,20}") {
        let _ = parse(&text);
        let _ = typed(&text);
    }
}
