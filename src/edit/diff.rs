//! Unified diffs for people: in permission questions and results.

use std::fmt::Write;
use std::time::Duration;

use similar::udiff::UnifiedHunkHeader;
use similar::{DiffOp, TextDiff};

use crate::base::text;

/// Longest time for one diff; after it the diff is coarser, never wrong.
const DIFF_MS_MAX: u64 = 200;
/// Unchanged lines around a change.
const CONTEXT_LINES: usize = 3;
/// Bytes that are compared at once.
const CHUNK: usize = 4096;

/// A diff, and what it counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Diff {
    /// In unified form; empty when nothing differs.
    pub text: String,
    /// Lines that are new.
    pub added: usize,
    /// Lines that are gone.
    pub removed: usize,
    /// Whether `text` was cut.
    pub truncated: bool,
}

/// The unified diff from `old` to `new` under the name `path`, cut to `bytes_max` at the end of a line.
///
/// None for `old` is a file that did not exist.
pub fn unified_diff(path: &str, old: Option<&str>, new: &str, bytes_max: usize) -> Diff {
    diff_between((path, old), (path, Some(new)), bytes_max)
}

/// The same between two files, each with its name. None for a text is a file that does not exist.
pub fn diff_between(old: (&str, Option<&str>), new: (&str, Option<&str>), bytes_max: usize) -> Diff {
    let (before, after) = (old.1.unwrap_or(""), new.1.unwrap_or(""));
    let name = |side: &str, (path, text): (&str, Option<&str>)| match text {
        Some(_) => format!("{side}/{path}"),
        None => "/dev/null".to_owned(),
    };
    let head = format!("--- {}\n+++ {}\n", name("a", old), name("b", new));
    let mut diff = changes(before, after, Middle::of(before, after), &head)
        .or_else(|| changes(before, after, Middle::whole(before, after), &head))
        .unwrap_or_default();
    diff.truncated = diff.text.len() > bytes_max;
    if diff.truncated {
        let cut = text::head(&diff.text, bytes_max);
        let end = cut.rfind('\n').map_or(cut.len(), |at| at + 1);
        diff.text.truncate(end);
    }
    diff
}

/// What lies between the lines that two texts have in common at their beginning and at their end, but for the context of a
/// change: all that is looked at, however long the texts are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Middle {
    /// Bytes before it, the same in both.
    start: usize,
    /// Where it ends in the old text, and in the new one.
    ends: (usize, usize),
}

impl Middle {
    fn whole(before: &str, after: &str) -> Self {
        Self { start: 0, ends: (before.len(), after.len()) }
    }

    fn of(before: &str, after: &str) -> Self {
        let (a, b) = (before.as_bytes(), after.as_bytes());
        let mut start = common_start(a, b);
        // Back to where a line begins, and over the lines of the context.
        for _ in 0..=CONTEXT_LINES {
            start = memchr::memrchr(b'\n', &a[..start.saturating_sub(1)]).map_or(0, |at| at + 1);
        }
        let mut same = common_end(&a[start..], &b[start..]);
        // On to where a line begins, and over the lines of the context.
        for _ in 0..=CONTEXT_LINES {
            same = memchr::memchr(b'\n', &a[a.len() - same..]).map_or(0, |at| same - at - 1);
        }
        Self { start, ends: (a.len() - same, b.len() - same) }
    }
}

/// Bytes that two texts have in common at their beginning.
fn common_start(a: &[u8], b: &[u8]) -> usize {
    let same = a.chunks(CHUNK).zip(b.chunks(CHUNK)).take_while(|(a, b)| a == b).map(|(a, _)| a.len()).sum::<usize>();
    same + a[same..].iter().zip(&b[same..]).take_while(|(a, b)| a == b).count()
}

/// Bytes that two texts have in common at their end.
fn common_end(a: &[u8], b: &[u8]) -> usize {
    let same = a.rchunks(CHUNK).zip(b.rchunks(CHUNK)).take_while(|(a, b)| a == b).map(|(a, _)| a.len()).sum::<usize>();
    let (a, b) = (&a[..a.len() - same], &b[..b.len() - same]);
    same + a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count()
}

/// The changes in the middle of two texts. None when their context goes beyond it: among lines that are all the same, the
/// place of a change is a matter of choice.
fn changes(before: &str, after: &str, middle: Middle, head: &str) -> Option<Diff> {
    let (old, new) = (&before[middle.start..middle.ends.0], &after[middle.start..middle.ends.1]);
    // As everywhere, a lone carriage return ends no line.
    let old: Vec<&str> = old.split_inclusive('\n').collect();
    let new: Vec<&str> = new.split_inclusive('\n').collect();
    let diff = TextDiff::configure().timeout(Duration::from_millis(DIFF_MS_MAX)).diff_slices(&old, &new);
    let changed = |op: &&DiffOp| !matches!(op, DiffOp::Equal { .. });
    let context = |cut: bool, op: Option<&DiffOp>| {
        !cut || op.is_none_or(|op| matches!(op, DiffOp::Equal { len, .. } if *len >= CONTEXT_LINES))
    };
    let ends_cut = middle.ends.0 < before.len();
    if !(context(middle.start > 0, diff.ops().first()) && context(ends_cut, diff.ops().last())) {
        return None;
    }
    let ops = || diff.ops().iter().filter(changed);
    let mut out = Diff {
        text: String::new(),
        added: ops().map(|op| op.new_range().len()).sum(),
        removed: ops().map(|op| op.old_range().len()).sum(),
        truncated: false,
    };
    let lines_before = memchr::memchr_iter(b'\n', &before.as_bytes()[..middle.start]).count();
    for hunk in diff.unified_diff().context_radius(CONTEXT_LINES).iter_hunks() {
        let ops: Vec<DiffOp> = hunk.ops().iter().map(|op| moved(*op, lines_before)).collect();
        if out.text.is_empty() {
            out.text.push_str(head);
        }
        let _infallible = writeln!(out.text, "{}", UnifiedHunkHeader::new(&ops));
        for change in hunk.iter_changes() {
            let end = if change.value().ends_with('\n') { "" } else { "\n\\ No newline at end of file\n" };
            let _infallible = write!(out.text, "{}{}{end}", change.tag(), change.value());
        }
    }
    Some(out)
}

/// The same change so many lines further down.
fn moved(op: DiffOp, lines: usize) -> DiffOp {
    match op {
        DiffOp::Equal { old_index, new_index, len } => {
            DiffOp::Equal { old_index: old_index + lines, new_index: new_index + lines, len }
        }
        DiffOp::Delete { old_index, old_len, new_index } => {
            DiffOp::Delete { old_index: old_index + lines, old_len, new_index: new_index + lines }
        }
        DiffOp::Insert { old_index, new_index, new_len } => {
            DiffOp::Insert { old_index: old_index + lines, new_index: new_index + lines, new_len }
        }
        DiffOp::Replace { old_index, old_len, new_index, new_len } => {
            DiffOp::Replace { old_index: old_index + lines, old_len, new_index: new_index + lines, new_len }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use similar::TextDiff;

    use super::{Middle, changes, diff_between, unified_diff};

    #[test]
    fn the_form_of_a_diff() {
        let diff = unified_diff("x.txt", Some("a\nb\nc\n"), "a\nB\nc\nd", 1000);
        assert_eq!(
            diff.text,
            "--- a/x.txt\n+++ b/x.txt\n@@ -1,3 +1,4 @@\n a\n-b\n+B\n c\n+d\n\\ No newline at end of file\n"
        );
        assert_eq!((diff.added, diff.removed, diff.truncated), (2, 1, false));
        let new = unified_diff("x.txt", None, "a\n", 1000);
        assert_eq!(new.text, "--- /dev/null\n+++ b/x.txt\n@@ -0,0 +1 @@\n+a\n");
        assert_eq!(unified_diff("x", Some("a"), "a", 1000).text, "");
        let carriage = unified_diff("x", Some("a\rb\nc\r"), "a\rB\nc\r", 1000);
        let want = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n-a\rb\n+a\rB\n c\r\n\\ No newline at end of file\n";
        assert_eq!((carriage.text.as_str(), carriage.added), (want, 1), "a lone carriage return ends no line");
        let gone = diff_between(("x", Some("a\n")), ("x", None), 1000);
        assert_eq!(gone.text, "--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n");
    }

    #[test]
    fn cut_at_a_line_end() {
        let diff = unified_diff("x", None, &"ä\n".repeat(100), 50);
        assert!(diff.truncated && diff.text.ends_with("+ä\n") && diff.text.len() <= 50, "{diff:?}");
    }

    #[test]
    fn shuffled_input_ends_soon() {
        let old: String = (0..30_000_u64).map(|n| format!("{}\n", n * 7919 % 30_011)).collect();
        let new: String = (0..30_000_u64).map(|n| format!("{}\n", n * 104_729 % 30_011)).collect();
        let started = std::time::Instant::now();
        assert!(unified_diff("x", Some(&old), &new, 1 << 20).added > 0);
        assert!(started.elapsed().as_secs() < 10, "{:?}", started.elapsed());
    }

    #[test]
    fn a_change_far_inside_has_its_lines_and_its_context() {
        let lines = |change: &str| -> String {
            (1..=5_000).map(|n| if n == 4_000 { change.to_owned() } else { format!("{n}\n") }).collect()
        };
        let (old, new) = (lines("old\n"), lines("new\nand more\n"));
        let want = "--- a/x\n+++ b/x\n@@ -3997,7 +3997,8 @@\n 3997\n 3998\n 3999\n-old\n+new\n+and more\n 4001\n 4002\n 4003\n";
        let diff = unified_diff("x", Some(&old), &new, 1000);
        assert_eq!((diff.text.as_str(), diff.added, diff.removed), (want, 2, 1));
        let middle = Middle::of(&old, &new);
        assert!(middle.ends.0 - middle.start < 100, "{middle:?}");
        let same = "same\n".repeat(50);
        let one_more = unified_diff("x", Some(&same), &(same.clone() + "same\n"), 1000);
        assert_eq!(
            (one_more.added, one_more.removed, one_more.text.matches("\n same").count()),
            (1, 0, 3),
            "{one_more:?}"
        );
    }

    proptest! {
        /// Only the middle is looked at, and what is told is what the whole of both texts tells.
        #[test]
        fn the_middle_is_enough(
            before in "([abc]{1,2}\n){0,12}[ab]?",
            old in "([abcxy]\n){0,4}",
            new in "([abcxy]\n){0,4}",
            after in "([abc]{1,2}\n){0,12}[ab]?",
        ) {
            let (old, new) = (format!("{before}{old}{after}"), format!("{before}{new}{after}"));
            let diff = unified_diff("x", Some(&old), &new, usize::MAX);
            let whole = changes(&old, &new, Middle::whole(&old, &new), "--- a/x\n+++ b/x\n").unwrap();
            prop_assert_eq!((diff.added, diff.removed), (whole.added, whole.removed));
            let plain = TextDiff::from_lines(old.as_str(), new.as_str());
            let plain = plain.unified_diff().context_radius(3).header("a/x", "b/x").to_string();
            prop_assert_eq!(&whole.text, &plain);
            prop_assert_eq!(diff.text.lines().count(), plain.lines().count());
        }
    }
}
