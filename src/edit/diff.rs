//! Unified diffs for people: in permission questions and results.

use std::time::Duration;

use similar::TextDiff;

use crate::base::text;

/// Longest time for one diff; after it the diff is coarser, never wrong.
const DIFF_MS_MAX: u64 = 200;
/// Unchanged lines around a change.
const CONTEXT_LINES: usize = 3;

/// A diff, and what it counts.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
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
    let diff = TextDiff::configure().timeout(Duration::from_millis(DIFF_MS_MAX)).diff_lines(before, after);
    let count = |tag| diff.iter_all_changes().filter(|change| change.tag() == tag).count();
    let (added, removed) = (count(similar::ChangeTag::Insert), count(similar::ChangeTag::Delete));
    let name = |side: &str, (path, text): (&str, Option<&str>)| match text {
        Some(_) => format!("{side}/{path}"),
        None => "/dev/null".to_owned(),
    };
    let mut out =
        diff.unified_diff().context_radius(CONTEXT_LINES).header(&name("a", old), &name("b", new)).to_string();
    let truncated = out.len() > bytes_max;
    if truncated {
        let cut = text::head(&out, bytes_max);
        let end = cut.rfind('\n').map_or(cut.len(), |at| at + 1);
        out.truncate(end);
    }
    Diff { text: out, added, removed, truncated }
}

#[cfg(test)]
mod tests {
    use super::{diff_between, unified_diff};

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
}
