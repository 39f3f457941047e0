//! Tier 1: the old string itself, character for character.
//!
//! A text that holds `\r\n` is also searched with its line ends unified, because readers are shown
//! lines without their endings and write `\n` for all of them.

use std::ops::Range;

use memchr::memmem;

use super::lines::Unified;

/// Where `old` stands in `content`, as byte ranges, overlapping ones too. At most `most`; empty for an empty `old`.
pub(super) fn find(content: &str, old: &str, most: usize) -> Vec<Range<usize>> {
    if old.is_empty() {
        return Vec::new();
    }
    let found: Vec<Range<usize>> =
        all(content, old).filter(|place| !splits_an_ending(content, place)).take(most).collect();
    if !found.is_empty() || !(content.contains("\r\n") || old.contains("\r\n")) {
        return found;
    }
    let (content, old) = (Unified::new(content), old.replace("\r\n", "\n"));
    all(&content.text, &old).take(most).map(|place| content.raw(place.start)..content.raw(place.end)).collect()
}

fn all<'t>(content: &'t str, old: &'t str) -> impl Iterator<Item = Range<usize>> + 't {
    let finder = memmem::Finder::new(old.as_bytes()).into_owned();
    let step = old.chars().next().map_or(1, char::len_utf8);
    let mut from = 0;
    std::iter::from_fn(move || {
        let at = from + finder.find(content.as_bytes().get(from..)?)?;
        from = at + step;
        Some(at..at + old.len())
    })
}

/// Whether one end of the place lies between `\r` and `\n`.
fn splits_an_ending(content: &str, place: &Range<usize>) -> bool {
    let inside = |at: usize| content[..at].ends_with('\r') && content[at..].starts_with('\n');
    inside(place.start) || inside(place.end)
}

#[cfg(test)]
mod tests {
    use super::find;

    #[test]
    fn places_of_the_substring() {
        type Row = (&'static str, &'static str, &'static [(usize, usize)]);
        #[rustfmt::skip]
        let table: &[Row] = &[
            ("foo\nbar\nfoo\n", "foo", &[(0, 3), (8, 11)]), ("aaa", "aa", &[(0, 2), (1, 3)]), ("abc", "b", &[(1, 2)]),
            ("abc", "", &[]), ("", "a", &[]), ("äö", "ö", &[(2, 4)]), ("a\r\nb\r\nc", "a\nb", &[(0, 4)]),
            ("a\r\nb", "\n", &[(1, 3)]), ("a\nb", "a\r\nb", &[(0, 3)]), ("a\r\nb\n", "b\n", &[(3, 5)]),
            ("x\r\ny\nx\r\n", "x\n", &[(0, 3), (5, 8)]), ("a\r\n", "a\r", &[]),
        ];
        for (content, old, want) in table {
            let found: Vec<(usize, usize)> = find(content, old, 10).iter().map(|at| (at.start, at.end)).collect();
            assert_eq!(found, *want, "{content:?} {old:?}");
        }
    }
}
