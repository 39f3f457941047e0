//! Patches: no text makes the reader panic, what a patch does not take away stays, and a diff says what happened.
//!
//! The input is text: a file's content, U+001E, and a patch.

use std::collections::BTreeMap;

use simse::edit::patch::{Action, Chunk, FileChange, Form, LineKind, Patch, apply, parse, typed};
use simse::edit::{diff_between, unified_diff};

const BOM: char = '\u{feff}';

/// The property of the target `patch`.
pub fn holds(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (content, patch) = text.split_once('\u{1e}').unwrap_or(("", &text));
    // What is typed into a shell may be a patch, or hold one.
    let _whatever = typed(patch);
    if let Ok(read) = parse(patch) {
        well_formed(&read, patch);
        for file in &read.files {
            applies(content, file, read.form, patch);
        }
    }
    round_trip(content, patch);
}

/// A patch that was read names files, and lines that it has.
fn well_formed(read: &Patch, patch: &str) {
    let lines = patch.lines().count();
    assert!(!read.files.is_empty(), "no file: {patch:?}");
    for file in &read.files {
        assert!(file.paths().all(|path| !path.is_empty()), "a file without a name: {patch:?}");
        assert!((1..=lines).contains(&file.line), "line {} of {lines}: {patch:?}", file.line);
        for chunk in &file.chunks {
            assert!((1..=lines).contains(&chunk.line), "line {} of {lines}: {patch:?}", chunk.line);
            // What is added to a text stands in it.
            for line in chunk.lines.iter().filter(|line| line.kind == LineKind::Add) {
                let text = line.text.trim();
                assert!(patch.contains(text), "{text:?} is not in {patch:?}");
            }
        }
    }
}

/// A patch that fits changes as many lines as it names, and no other ones.
fn applies(content: &str, file: &FileChange, form: Form, patch: &str) {
    let Ok(patched) = apply(content, &file.chunks, form) else { return };
    let told = || format!("{content:?} became {:?} by {patch:?}", patched.text);
    assert_eq!(patched.notes.len(), file.chunks.len(), "{}", told());
    let lines =
        |kind| file.chunks.iter().flat_map(|chunk: &Chunk| &chunk.lines).filter(|line| line.kind == kind).count();
    // The last line may get or lose an ending, and with it a carriage return.
    let (gone, new) = (missing(content, &patched.text), missing(&patched.text, content));
    assert!(gone <= lines(LineKind::Remove) + 1, "{gone} lines are lost: {}", told());
    assert!(new <= lines(LineKind::Add) + 1, "{new} lines are new: {}", told());
    if file.action == Action::Update && !content.is_empty() && lines(LineKind::Remove) == 0 && lines(LineKind::Add) == 0
    {
        assert_eq!(patched.text, content, "nothing was to change: {}", told());
    }
}

/// How many lines of one text are not in the other.
fn missing(from: &str, to: &str) -> usize {
    let mut counts: BTreeMap<&str, isize> = BTreeMap::new();
    let bare = |line: &'_ str| -> usize { line.len() - line.trim_start_matches(BOM).len() };
    for line in to.lines() {
        *counts.entry(&line[bare(line)..]).or_default() += 1;
    }
    for line in from.lines() {
        *counts.entry(&line[bare(line)..]).or_default() -= 1;
    }
    counts.values().filter(|count| **count < 0).map(|count| count.unsigned_abs()).sum()
}

/// The diff between two texts, read as a patch, makes the one of the other; and back.
fn round_trip(before: &str, after: &str) {
    if before == after {
        return;
    }
    for (from, to) in [(before, after), (after, before)] {
        let diff = diff_between(("f", Some(from)), ("f", Some(to)), usize::MAX);
        let told = || format!("from {from:?} to {to:?}:\n{}", diff.text);
        let patch = parse(&diff.text).unwrap_or_else(|error| panic!("{error}: {}", told()));
        let [file] = patch.files.as_slice() else { panic!("not one file: {}", told()) };
        let patched = apply(from, &file.chunks, patch.form).unwrap_or_else(|error| panic!("{error}: {}", told()));
        assert_eq!(patched.text, to, "{}", told());
        assert!(diff.added + diff.removed > 0, "{}", told());
    }
    // A diff that is cut ends with a line.
    let cut = unified_diff("f", None, after, 40);
    assert!(cut.text.len() <= 40 || !cut.truncated, "{cut:?}");
}
