//! Tier 4: the same block after its common indentation is taken off.
//!
//! Stricter than the trimming tiers in what it compares, and so able to choose among several places
//! that those find: lines keep their indentation against each other.

use super::indent::indent_of;
use super::line_trimmed;
use super::lines::Text;

/// The first lines of the places where `old` stands, at most `most`.
pub(super) fn find(content: &Text<'_>, old: &Text<'_>, most: usize) -> Vec<usize> {
    let wanted = without_indent(&old.iter().collect::<Vec<_>>());
    // A block that is equal without its indentation is equal after trimming.
    let candidates = line_trimmed::find(content, old, most);
    let same = |start: &usize| {
        let lines: Vec<&str> = (*start..*start + old.lines.len()).map(|index| content.line(index)).collect();
        without_indent(&lines) == wanted
    };
    candidates.into_iter().filter(same).collect()
}

/// The lines without what all that are not blank start with. Blank lines become empty.
fn without_indent(lines: &[&str]) -> Vec<String> {
    let full = || lines.iter().filter(|line| !line.trim().is_empty());
    let common = full().map(|line| indent_of(line)).reduce(common_start).unwrap_or("");
    let bare = |line: &&str| if line.trim().is_empty() { String::new() } else { line[common.len()..].to_owned() };
    lines.iter().map(bare).collect()
}

fn common_start<'t>(a: &'t str, b: &'t str) -> &'t str {
    // Indentation is ASCII, so every byte is a character.
    let same = a.bytes().zip(b.bytes()).take_while(|(x, y)| x == y).count();
    &a[..same]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_common_indentation_is_ignored() {
        #[rustfmt::skip]
        let table: &[(&str, &str, &[usize])] = &[
            ("  a\n    b\n", "a\n  b", &[0]), ("a\nb\n  a\n    b\n", "a\n  b", &[2]), ("\ta\n\t\tb", "a\n\tb", &[0]),
            ("  a\n  b", "a\n  b", &[]), ("  a\n\n  b", "a\n   \nb", &[0]), (" a \n", "a", &[]),
        ];
        for (content, old, want) in table {
            assert_eq!(find(&Text::new(content), &Text::new(old), 10), *want, "{content:?} {old:?}");
        }
    }
}
