//! The globs of rules and names: what the plain definition says, and never slow.

use arbitrary::{Result, Unstructured};
use simse::base::glob::matches;

const SIGNS: [char; 8] = ['a', 'b', '*', '?', '/', 'é', '\n', '['];

/// The property of the target `glob`.
pub fn holds(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let Ok((pattern, text)) = input(&mut u) else { return };
    assert_eq!(matches(&pattern, &text), plainly(&pattern, &text), "{pattern:?} against {text:?}");
    assert!(matches("*", &text) && matches(&format!("*{text}*").replace("**", "*"), &text), "{text:?}");
    if !text.contains(['*', '?']) {
        assert!(matches(&text, &text), "{text:?}");
    }
    // A million steps would be felt; the definition of stars by trying out would take as many as there are atoms.
    assert!(!matches(&format!("{}{}", "*a?".repeat(500), '\u{1}'), &text.repeat(20)));
}

fn input(u: &mut Unstructured<'_>) -> Result<(String, String)> {
    if u.ratio(1, 4)? {
        let pattern = u.arbitrary::<&str>()?.chars().take(64).collect();
        return Ok((pattern, u.arbitrary::<&str>()?.chars().take(256).collect()));
    }
    Ok((signs(u, 16)?, signs(u, 48)?))
}

fn signs(u: &mut Unstructured<'_>, most: usize) -> Result<String> {
    (0..u.int_in_range(0..=most)?).map(|_| u.choose(&SIGNS).copied()).collect()
}

/// The definition as a table: whether the first `p` of the pattern match the first `t` of the text.
fn plainly(pattern: &str, text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    let mut row = vec![false; text.len() + 1];
    row[0] = true;
    for sign in pattern.chars() {
        let mut next = vec![false; text.len() + 1];
        next[0] = sign == '*' && row[0];
        for t in 1..=text.len() {
            next[t] = match sign {
                '*' => row[t] || next[t - 1],
                '?' => row[t - 1],
                other => row[t - 1] && other == text[t - 1],
            };
        }
        row = next;
    }
    row[text.len()]
}
