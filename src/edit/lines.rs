//! Text as lines that remember their endings, and the endings that new text takes over.
//!
//! Only `\n` and `\r\n` end a line; a lone `\r` is a character like any other.

use std::cell::OnceCell;
use std::ops::Range;
use std::time::Duration;

use similar::{DiffOp, TextDiff};

/// Longest time spent on pairing lines; after it the pairing is coarser, never wrong.
const PAIRING_MS_MAX: u64 = 100;

/// Where a line lies, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line {
    /// Its first byte.
    pub start: usize,
    /// The end of its text, before its ending.
    pub end: usize,
    /// Where the next line starts, after its ending.
    pub next: usize,
}

/// A text and its lines. A final line ending starts no further line; the empty text has none.
#[derive(Debug)]
pub(super) struct Text<'t> {
    pub text: &'t str,
    pub lines: Vec<Line>,
    trimmed: OnceCell<Vec<&'t str>>,
}

impl<'t> Text<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        let mut lines = Vec::new();
        let mut start = 0;
        for at in memchr::memchr_iter(b'\n', text.as_bytes()) {
            let end = if text[start..at].ends_with('\r') { at - 1 } else { at };
            lines.push(Line { start, end, next: at + 1 });
            start = at + 1;
        }
        if start < text.len() {
            lines.push(Line { start, end: text.len(), next: text.len() });
        }
        Self { text, lines, trimmed: OnceCell::new() }
    }

    /// The text of line `index`, without its ending.
    pub(super) fn line(&self, index: usize) -> &'t str {
        let line = self.lines[index];
        &self.text[line.start..line.end]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &'t str> + '_ {
        self.lines.iter().map(|line| &self.text[line.start..line.end])
    }

    /// The lines without the blanks at their ends. Made once: most ways to look for a place need them.
    pub(super) fn trimmed(&self) -> &[&'t str] {
        self.trimmed.get_or_init(|| self.iter().map(str::trim).collect())
    }

    /// The index of the line that holds byte `at`; the last line for the end of the text.
    pub(super) fn line_at(&self, at: usize) -> usize {
        self.lines.partition_point(|line| line.next <= at).min(self.lines.len().saturating_sub(1))
    }

    fn ending(&self, index: usize) -> Option<&'t str> {
        let line = self.lines.get(index)?;
        (line.end < line.next).then(|| &self.text[line.end..line.next])
    }
}

/// `text` with every `\r\n` as `\n`, and a way back.
pub(super) struct Unified {
    pub text: String,
    /// Where in `text` a `\r` is missing, ascending.
    gone: Vec<usize>,
}

impl Unified {
    pub(super) fn new(text: &str) -> Self {
        let mut out = String::with_capacity(text.len());
        let mut gone = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find("\r\n") {
            out.push_str(&rest[..at]);
            gone.push(out.len());
            rest = &rest[at + 1..];
        }
        out.push_str(rest);
        Self { text: out, gone }
    }

    /// The byte of the first text that stands at `at` here. A line end's first byte, not its second.
    pub(super) fn raw(&self, at: usize) -> usize {
        at + self.gone.partition_point(|&gone| gone < at)
    }
}

/// `new` with the line endings of the place it goes to.
///
/// A line that stays keeps its own ending; a further one takes that of the line before it. A text
/// without any line ending has none to give, and `new` stays as it is.
pub(super) fn adapt_endings(content: &Text<'_>, place: &Range<usize>, new: &str) -> String {
    if !new.contains('\n') {
        return new.to_owned();
    }
    let pieces: Vec<&str> = new.split('\n').collect();
    let last = pieces.len() - 1;
    let bare = |index: usize| match pieces[index].strip_suffix('\r') {
        Some(text) if index < last => text,
        Some(_) | None => pieces[index],
    };
    let texts: Vec<&str> = (0..pieces.len()).map(bare).collect();
    let Some(endings) = place_endings(content, place, &texts) else { return new.to_owned() };
    let mut out = String::with_capacity(new.len() + texts.len());
    for (index, text) in texts.iter().enumerate() {
        out.push_str(text);
        if index < last {
            out.push_str(endings[index]);
        }
    }
    out
}

/// One ending for each of the new lines. None when the content has no ending at all.
fn place_endings<'t>(content: &Text<'t>, place: &Range<usize>, new: &[&str]) -> Option<Vec<&'t str>> {
    let first = content.line_at(place.start);
    let end = content.line_at(place.end).max(first);
    let nearest = || {
        let before = (0..first).rev().find_map(|index| content.ending(index));
        before.or_else(|| (end..content.lines.len()).find_map(|index| content.ending(index)))
    };
    let default = (first..=end).find_map(|index| content.ending(index)).or_else(nearest)?;
    let own: Vec<&str> = (first..=end).map(|index| content.ending(index).unwrap_or(default)).collect();
    if own.iter().all(|ending| *ending == default) {
        return Some(vec![default; new.len()]);
    }
    let old: Vec<&str> = (first..=end).map(|index| content.line(index).trim()).collect();
    let new: Vec<&str> = new.iter().map(|line| line.trim()).collect();
    Some(pair(&old, &new).into_iter().map(|index| own[index]).collect())
}

/// For each new line the old line it stands for: itself, the one it replaces, or the one before it.
pub(super) fn pair(old: &[&str], new: &[&str]) -> Vec<usize> {
    let diff = TextDiff::configure().timeout(Duration::from_millis(PAIRING_MS_MAX)).diff_slices(old, new);
    let top = old.len().saturating_sub(1);
    let mut out = vec![0; new.len()];
    for op in diff.ops() {
        match *op {
            DiffOp::Equal { old_index, new_index, len } => {
                (0..len).for_each(|k| out[new_index + k] = old_index + k);
            }
            DiffOp::Replace { old_index, old_len, new_index, new_len } => {
                (0..new_len).for_each(|k| out[new_index + k] = old_index + k.min(old_len.saturating_sub(1)));
            }
            DiffOp::Insert { old_index, new_index, new_len } => {
                (0..new_len).for_each(|k| out[new_index + k] = old_index.saturating_sub(1).min(top));
            }
            DiffOp::Delete { .. } => {}
        }
    }
    out
}

/// Every place, overlapping ones too, where `needle` stands in `hay`, at most `most`. Time is linear.
pub(super) fn places<K: PartialEq>(hay: &[K], needle: &[K], most: usize) -> Vec<usize> {
    if needle.is_empty() {
        return Vec::new();
    }
    // Knuth, Morris, Pratt: fallback[i] is the longest proper border of needle[..=i].
    let mut fallback = vec![0; needle.len()];
    let mut matched = 0;
    for at in 1..needle.len() {
        while matched > 0 && needle[at] != needle[matched] {
            matched = fallback[matched - 1];
        }
        matched += usize::from(needle[at] == needle[matched]);
        fallback[at] = matched;
    }
    let mut out = Vec::new();
    matched = 0;
    for (at, item) in hay.iter().enumerate() {
        while matched > 0 && (matched == needle.len() || *item != needle[matched]) {
            matched = fallback[matched - 1];
        }
        matched += usize::from(*item == needle[matched]);
        if matched == needle.len() {
            out.push(at + 1 - matched);
            if out.len() == most {
                break;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_their_endings() {
        let text = Text::new("a\r\n\nb\rc");
        assert_eq!(text.iter().collect::<Vec<_>>(), ["a", "", "b\rc"]);
        assert_eq!((text.ending(0), text.ending(1), text.ending(2)), (Some("\r\n"), Some("\n"), None));
        assert!(Text::new("").lines.is_empty());
        assert_eq!(Text::new("\n").lines.len(), 1);
    }

    #[test]
    fn overlapping_places_are_all_found() {
        let table: &[(&[u8], &[u8], &[usize])] = &[
            (b"aaaa", b"aa", &[0, 1, 2]),
            (b"abab", b"ab", &[0, 2]),
            (b"ab", b"abc", &[]),
            (b"", b"a", &[]),
            (b"a", b"", &[]),
            (b"aabaaab", b"aaab", &[3]),
        ];
        for (hay, needle, want) in table {
            assert_eq!(places(hay, needle, usize::MAX), *want, "{hay:?} {needle:?}");
        }
    }

    #[test]
    fn the_way_back_from_unified_endings() {
        let unified = Unified::new("a\r\nb\nc\r\n");
        assert_eq!(unified.text, "a\nb\nc\n");
        assert_eq!((0..=6).map(|at| unified.raw(at)).collect::<Vec<_>>(), [0, 1, 3, 4, 5, 6, 8]);
    }
}
