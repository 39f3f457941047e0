//! The rules of typescript-api.md §5, as tables and as properties.

use super::{BOM, Change, EditError, Step, edit, edit_all, fuzzy_match};
use proptest::prelude::*;

fn run(content: &str, old: &str, new: &str) -> Option<(String, &'static str)> {
    fuzzy_match(content, old, new).map(|replaced| (replaced.text, replaced.strategy.name()))
}

/// content, old, new → text, strategy
type Row = (&'static str, &'static str, &'static str, Option<(&'static str, &'static str)>);

fn check(table: &[Row]) {
    for (content, old, new, want) in table {
        let got = run(content, old, new);
        let got = got.as_ref().map(|(text, strategy)| (text.as_str(), *strategy));
        assert_eq!(got, *want, "{old:?} -> {new:?} in {content:?}");
    }
}

#[test]
fn every_tier_in_its_turn() {
    #[rustfmt::skip]
    check(&[
        ("a b c", "b", "X", Some(("a X c", "exact"))),
        ("foo\nbar\nfoo\n", "foo", "X", None),
        ("x", "", "y", None), ("", "", "y", None), ("\n", "", "y", None), ("a\n\nb\n", "  ", "y", None), ("\n", "\n\n", "y", None),
        ("a", "a", "$& $1 $$", Some(("$& $1 $$", "exact"))),
        ("aaa", "aa", "b", None),
        ("foobar\nfoo\n", "foo", "X", Some(("foobar\nX\n", "line-trimmed"))),
        ("  a\n  b\n", "a \nb", "a\nc", Some(("  a\n  c\n", "line-trimmed"))),
        ("let  a =\t1;\nx\n", "let a = 1;", "let a = 2;", Some(("let a = 2;\nx\n", "whitespace-normalized"))),
        ("if a {\nb\n}\n  if a {\n    b\n  }\n", "if a {\n  b\n}", "if c {\n  b\n}",
            Some(("if a {\nb\n}\n  if c {\n    b\n  }\n", "indentation-flexible"))),
        ("fn f() {\n    let sum = a + b;\n    sum\n}\n", "fn f() {\n    let sun = a + b;\n    sum\n}", "fn f() {\n    a + b\n}",
            Some(("fn f() {\n    a + b\n}\n", "block-anchor-levenshtein"))),
        ("one\ntwo\n", "three", "x", None),
    ]);
}

#[test]
fn replaced_lines_are_indented_like_the_place() {
    let class = "class A:\n    def f(self):\n        return 1\n\n    def g(self):\n        return 2\n";
    let method = "class A:\n    def f(self):\n        x = 1\n        return x\n\n    def g(self):\n        return 2\n";
    #[rustfmt::skip]
    check(&[
        (class, "def f(self):\n    return 1\n", "def f(self):\n    x = 1\n    return x\n", Some((method, "line-trimmed"))),
        ("\tif x {\n\t\ty();\n\t}\n", "if x {\n    y();\n}", "if x {\n    if z {\n        y();\n    }\n}",
            Some(("\tif x {\n\t\tif z {\n\t\t\ty();\n\t\t}\n\t}\n", "line-trimmed"))),
        ("  f( a,  b )\n", "f( a, b )", "f(\n  a,\n  b,\n)", Some(("  f(\n    a,\n    b,\n  )\n", "whitespace-normalized"))),
        ("    begin\n      alpha beta gamma\n    end\n", "begin\n  alpha beta gamme\nend", "begin\n  delta\nend",
            Some(("    begin\n      delta\n    end\n", "block-anchor-levenshtein"))),
    ]);
}

#[test]
fn line_endings_are_those_of_the_place() {
    #[rustfmt::skip]
    check(&[
        ("a\r\nb\r\nc\r\n", "b", "x\ny", Some(("a\r\nx\r\ny\r\nc\r\n", "exact"))),
        ("a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\n", Some(("x\r\ny\r\nc\r\n", "exact"))),
        ("a\r\n  b\r\nc\r\n", "a\nb\n", "x\nb\ny\n", Some(("x\r\n  b\r\n  y\r\nc\r\n", "line-trimmed"))),
        ("a\nb\n", "a\r\nb", "x\r\ny\r\nz", Some(("x\ny\nz\n", "exact"))),
        // mixed: outside nothing changes, inside each line keeps its own
        ("a\r\nb\nc\r\nd\n", "b\nc", "b\nX\nc", Some(("a\r\nb\nX\nc\r\nd\n", "exact"))),
        ("a\r\nb\nc\r\nd\n", "a\nb\nc\nd", "A\nb\nc\nd", Some(("A\r\nb\nc\r\nd\n", "exact"))),
        ("a\r\nb\nc\r\nd\n", "c", "c\ne", Some(("a\r\nb\nc\r\ne\r\nd\n", "exact"))),
        ("a\nb\r\nlast", "last", "x\ny", Some(("a\nb\r\nx\r\ny", "exact"))),
        // a text without any ending has none to give
        ("a", "a", "b\r\nc", Some(("b\r\nc", "exact"))),
        // a lone carriage return is a character
        ("a\rb\n", "b", "x\ny", Some(("a\rx\ny\n", "exact"))),
    ]);
}

#[test]
fn bom_and_last_newline_stay() {
    #[rustfmt::skip]
    check(&[
        ("\u{feff}a\nb\n", "a", "x", Some(("\u{feff}x\nb\n", "exact"))),
        ("\u{feff}a\nb\n", "\u{feff}a\n", "\u{feff}x\n", Some(("\u{feff}x\nb\n", "exact"))),
        ("\u{feff}a\n", "\u{feff}", "x", None),
        ("a\nb", "b", "c\n", Some(("a\nc", "exact"))),
        ("a\nb", "  b\n", "c\n\n", Some(("a\nc", "line-trimmed"))),
        ("a\nb\n", "b\n", "c", Some(("a\nc\n", "exact"))),
        ("a\r\nb\r\n", "b\r\n", "c", Some(("a\r\nc\r\n", "exact"))),
        ("a\nb\n", "\nb\n", "", Some(("a\n", "exact"))),
        ("a\nb\n", "b\n", "", Some(("a\n", "exact"))),
        ("a\n", "a\n", "", Some(("", "exact"))),
        ("a\n  b\nc\n", "a\nb\n", "", Some(("c\n", "line-trimmed"))),
        ("a\n  b\nc\n", "a\nb\n", "x", Some(("x\nc\n", "line-trimmed"))),
    ]);
}

#[test]
fn errors_name_the_lines() {
    let said = |content: &str, old: &str, new: &str| edit(content, old, new, false).unwrap_err().to_string();
    assert!(said("a", "", "b").contains("use fs_write"));
    assert!(said("a", "a", "a").contains("the same"));
    let several = said("foo\nbar\nfoo\n", "foo", "x");
    assert!(
        several.contains("ambiguous") && several.contains("2 places") && several.contains("lines 1, 3"),
        "{several}"
    );
    let many = said(&"foo\n".repeat(20), "foo", "x");
    for (content, want) in [
        ("x = x\n", "2 places in the file, all in line 1. Add"),
        ("y\nx x\nx x\n", "4 places in the file, at lines 2, 3. Add"),
    ] {
        let told = edit(content, "x", "z", false).unwrap_err().to_string();
        assert!(told.contains(want), "{told}");
    }
    assert!(many.contains("20 places") && many.contains("9, 10 and 10 more"), "{many}");
    let miss = said("let total = 1;\nother\n", "let totale = 2;\nmore", "x");
    assert!(miss.starts_with("No match found for the provided old_string in the file"), "{miss}");
    assert!(miss.contains("     1\tlet total = 1;"), "{miss}");
    assert!(said("abc\n", "zzzzzzz", "x").contains("no line resembles it"));
    assert_eq!(edit("a\r\nb\r\n", "a\nb", "a\r\nb", false), Err(EditError::NoChange));
}

#[test]
fn all_places_on_request() {
    let all = |content: &str, old: &str, new: &str| edit(content, old, new, true).map(|r| (r.text, r.changes.len()));
    assert_eq!(all("foo\nbar\nfoo", "foo", "x\n"), Ok(("x\n\nbar\nx".to_owned(), 2)));
    assert_eq!(all("aaaa", "aa", "b"), Ok(("bb".to_owned(), 2)));
    assert_eq!(all(" a\nb\n\n  a\nb\n", "a \nb", "x\nb"), Ok((" x\nb\n\n  x\nb\n".to_owned(), 2)));
    assert_eq!(all("a\r\na\r\n", "a\n", "b\n"), Ok(("b\r\nb\r\n".to_owned(), 2)));
    assert!(all("abc", "x", "y").is_err());
}

#[test]
fn several_edits_follow_each_other_or_none_is_made() {
    let step = |old: &str, new: &str, replace_all: bool| Step { old: old.to_owned(), new: new.to_owned(), replace_all };
    let steps = [
        step("one", "1", false),
        step("1\n  two", "1\n  2", false),
        step("three", "3", true),
        step("2 ", "zwei", false),
    ];
    let (text, strategies) = edit_all("one\n  two\nthree three\n", &steps).unwrap();
    assert_eq!(text, "1\n  zwei\n3 3\n");
    let names: Vec<&str> = strategies.iter().map(|strategy| strategy.name()).collect();
    assert_eq!(names, ["exact", "exact", "exact", "line-trimmed"]);
    let said = edit_all("one\n", &[step("one", "two", false), step("one", "three", false)]).unwrap_err();
    assert_eq!((said.number, said.count), (2, 2));
    let said = said.to_string();
    assert!(said.starts_with("edit 2 of 2: No match found") && said.ends_with("None of the edits was made"), "{said}");
    assert_eq!(edit_all("a", &[]).unwrap().0, "a");
}

#[test]
fn changes_tell_the_lines() {
    let replaced = fuzzy_match("a\nb\nc\nd\n", "b\nc\n", "x\ny\nz\n").unwrap();
    assert_eq!(replaced.changes, [Change { line: 2, old_lines: 2, new_lines: 3 }]);
    let replaced = fuzzy_match("a\nb\n", "b", "").unwrap();
    assert_eq!(replaced.changes, [Change { line: 2, old_lines: 1, new_lines: 0 }]);
}

#[test]
fn a_large_file_is_edited_soon() {
    let started = std::time::Instant::now();
    let content: String = (0..200_000).map(|n| format!("    line number {n}\n")).collect();
    assert_eq!(run(&content, "line number 199999", "x").unwrap().1, "exact");
    assert_eq!(run(&content, "\tline number 77 \nline number 78", "x").unwrap().1, "line-trimmed");
    assert!(edit(&content, "no such thing\nat all", "x", false).is_err());
    let same = "a\n".repeat(300_000);
    assert!(edit(&same, &(" a\n".repeat(50_000) + "b"), "x", false).is_err());
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
}

fn lines() -> impl Strategy<Value = String> {
    let line = "[ \t]{0,4}(a|b|ab  c|fn f\\(\\) \\{|\\}|é😀|)[ ]?(\r\n|\n)";
    (proptest::collection::vec(line, 0..12), "(\u{feff})?", "(end)?")
        .prop_map(|(lines, bom, end)| bom + &lines.concat() + &end)
}

proptest! {
    /// Whatever the tier: what stands before and after the place is there byte for byte, and nothing panics.
    #[test]
    fn no_byte_outside_the_place_changes(content in lines(), old in "([ab{}\\(\\) fn\r]{0,6}\n?){1,3}", new in "([xyé ]{0,4}\r?\n?){0,4}") {
        if let Some(replaced) = fuzzy_match(&content, &old, &new) {
            let [change] = replaced.changes[..] else { panic!("one change") };
            let before: String = content.split_inclusive('\n').take(change.line - 1).collect();
            let after: String = content.split_inclusive('\n').skip(change.line - 1 + change.old_lines).collect();
            prop_assert!(replaced.text.starts_with(&before), "{:?}", replaced);
            prop_assert!(replaced.text.ends_with(&after), "{:?}", replaced);
            prop_assert!(replaced.text.len() >= before.len() + after.len());
            prop_assert_eq!(replaced.text.starts_with(BOM), content.starts_with(BOM));
        }
    }

    /// An exact place in the middle of the text is replaced by exactly the new string, when no line ends are in play.
    #[test]
    fn an_exact_place_is_replaced_literally(before in "[ab\n]{0,20}", after in "[ab\n]{1,20}", new in "[$&\\\\xy]{0,10}") {
        let content = format!("{before}NEEDLE{after}");
        prop_assert_eq!(run(&content, "NEEDLE", &new), Some((format!("{before}{new}{after}"), "exact")));
    }

    /// A file of one kind of line ending stays so.
    #[test]
    fn crlf_stays_crlf(lines in proptest::collection::vec("[abc]{1,3}", 1..8), at in 0usize..8, new in "[xy\n]{1,6}") {
        let content: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        let old = &lines[at % lines.len()];
        if let Some((text, _)) = run(&content, old, &new) {
            prop_assert_eq!(text.matches('\n').count(), text.matches("\r\n").count(), "{:?}", text);
        }
    }

    /// A block quoted with other indentation is found, and what replaces it is indented as the block was.
    #[test]
    fn a_shifted_block_comes_back_in_place(
        indents in proptest::collection::vec(1usize..5, 3..15), from in 0usize..12, len in 1usize..6,
        ending in "\r\n|\n", tabs: bool, quoted_tabs: bool,
    ) {
        let line = |index: usize, levels: usize, tabs: bool, word: &str| {
            format!("{}{word}{index}", if tabs { "\t".repeat(levels) } else { "    ".repeat(levels) })
        };
        let content = |word: &dyn Fn(usize) -> &'static str| -> String {
            indents.iter().enumerate().map(|(n, &levels)| line(n, levels, tabs, word(n)) + &ending).collect()
        };
        let from = from.min(indents.len() - 1);
        let block = from..(from + len).min(indents.len());
        let base = *indents[block.clone()].iter().min().expect("not empty");
        let quote = |word: &str| -> String {
            block.clone().map(|n| line(n, indents[n] - base, quoted_tabs, word) + "\n").collect()
        };
        let want = content(&|n| if block.contains(&n) { "new" } else { "old" });
        let got = run(&content(&|_| "old"), &quote("old"), &quote("new"));
        prop_assert_eq!(got.map(|(text, _)| text), Some(want));
    }
}
