//! Tier 3: the same lines after every run of blanks became one, and the ends of each were trimmed.

use std::borrow::Cow;

use super::lines::{Text, places};

/// The first lines of the places where `old` stands, at most `most`.
pub(super) fn find(content: &Text<'_>, old: &Text<'_>, most: usize) -> Vec<usize> {
    places(&keys(content), &keys(old), most)
}

fn keys<'t>(text: &Text<'t>) -> Vec<Cow<'t, str>> {
    let key = |line: &&'t str| if is_normal(line) { Cow::Borrowed(*line) } else { Cow::Owned(normalized(line)) };
    text.trimmed().iter().map(key).collect()
}

/// Whether a trimmed line has no blanks but single spaces, as most lines have. False for what takes longer to tell.
fn is_normal(line: &str) -> bool {
    let mut last = 0;
    line.bytes().all(|byte| {
        let normal = (b' '..0x80).contains(&byte) && !(byte == b' ' && last == b' ');
        last = byte;
        normal
    })
}

fn normalized(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    for word in line.split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(word);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_blanks_is_one_and_none_is_none() {
        #[rustfmt::skip]
        let table: &[(&str, &str, &[usize])] = &[
            ("  let a\t =  1;\n", "let a = 1;", &[0]), ("let a=1;", "let a = 1;", &[]), ("a  b\na b", "a\tb", &[0, 1]),
        ];
        for (content, old, want) in table {
            assert_eq!(find(&Text::new(content), &Text::new(old), 10), *want, "{content:?} {old:?}");
        }
    }
}
