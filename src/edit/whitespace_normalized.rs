//! Tier 3: the same lines after every run of blanks became one, and the ends of each were trimmed.

use super::lines::{Text, places};

/// The first lines of the places where `old` stands, at most `most`.
pub(super) fn find(content: &Text<'_>, old: &Text<'_>, most: usize) -> Vec<usize> {
    let keys = |text: &Text<'_>| text.iter().map(normalized).collect::<Vec<_>>();
    places(&keys(content), &keys(old), most)
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
