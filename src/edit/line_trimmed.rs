//! Tier 2: the same lines after trimming both ends of each.

use super::lines::{Text, places};

/// The first lines of the places where `old` stands, at most `most`.
pub(super) fn find(content: &Text<'_>, old: &Text<'_>, most: usize) -> Vec<usize> {
    places(content.trimmed(), old.trimmed(), most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_trimmed_and_insides_are_not() {
        #[rustfmt::skip]
        let table: &[(&str, &str, &[usize])] = &[
            ("  a\n\tb \nc\n", "a\nb", &[0]), ("a\na\na\n", "a\na", &[0, 1]), ("a  b", "a b", &[]),
            ("foobar", "foo", &[]), ("x\n\n y", "x\n \ny", &[0]),
        ];
        for (content, old, want) in table {
            assert_eq!(find(&Text::new(content), &Text::new(old), 10), *want, "{content:?} {old:?}");
        }
    }
}
