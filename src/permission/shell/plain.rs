//! The quick way through the command lines that nearly every call is made of.
//!
//! Only characters that mean the same to every shell, only `&&`, `||`, `;`, `|` and line ends between
//! commands, only whole-word or partial quotes without expansions in them. Anything else is not for here.

use super::{Line, Part};

/// Words that begin something else than a simple command.
const RESERVED: [&str; 22] = [
    "!", "[[", "]]", "{", "}", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if",
    "in", "select", "then", "time", "until", "while",
];

/// The simple commands of a plain line. None: it is not plain.
pub(super) fn parse(command: &str) -> Option<Line> {
    let mut parts = Vec::new();
    let mut words = Vec::new();
    let mut rest = command;
    loop {
        rest = rest.trim_start_matches([' ', '\t']);
        let Some(&first) = rest.as_bytes().first() else { break };
        if matches!(first, b'&' | b'|' | b';' | b'\n') {
            // A missing command on either side is the parser's to judge.
            parts.push(finish(&mut words)?);
            let length = operator(rest)?;
            rest = rest[length..].trim_start_matches([' ', '\t']);
            let may_end = length == 1 && first != b'|';
            if !may_end && rest.is_empty() {
                return None;
            }
            continue;
        }
        if let Some(after) = harmless_redirect(rest) {
            rest = after;
            continue;
        }
        let (word, after) = one_word(rest)?;
        words.push(word);
        rest = after;
    }
    if !words.is_empty() {
        parts.push(finish(&mut words)?);
    }
    (!parts.is_empty()).then_some(Line { parts, ..Line::default() })
}

/// The length of the operator at the start. None: not one of the plain ones.
fn operator(text: &str) -> Option<usize> {
    let two = text.get(..2).unwrap_or("");
    match (two, &text[..1]) {
        ("&&" | "||", _) => Some(2),
        ("|&" | ";;" | ";&", _) | (_, "&") => None,
        (_, "|" | ";" | "\n") => Some(1),
        (_, _) => None,
    }
}

/// What follows `2>&1`, `>/dev/null` and their kind, which change nothing. None: something else stands there.
fn harmless_redirect(text: &str) -> Option<&str> {
    let text = text.strip_prefix(|c: char| c.is_ascii_digit()).unwrap_or(text).strip_prefix('>')?;
    let after = match text.strip_prefix('&') {
        Some(number) => number.strip_prefix(|c: char| c.is_ascii_digit())?,
        None => text.strip_prefix('>').unwrap_or(text).trim_start_matches(' ').strip_prefix("/dev/null")?,
    };
    let ends = after.is_empty() || after.starts_with([' ', '\t', '\n', ';', '|', '&']);
    ends.then_some(after)
}

fn finish(words: &mut Vec<String>) -> Option<Part> {
    let first = words.first()?;
    if first.is_empty() || first.contains('=') || RESERVED.contains(&first.as_str()) {
        return None;
    }
    Some(Part::of(std::mem::take(words)))
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'/' | b':' | b'=' | b'@' | b'%' | b'+' | b',' | b'-')
}

/// The word at the start, quoting removed, and what follows it.
fn one_word(text: &str) -> Option<(String, &str)> {
    let mut word = String::new();
    let mut rest = text;
    loop {
        let end = rest.bytes().position(|b| !is_plain(b)).unwrap_or(rest.len());
        word.push_str(&rest[..end]);
        rest = &rest[end..];
        match rest.as_bytes().first() {
            None | Some(b' ' | b'\t' | b'\n' | b';' | b'|' | b'&') => return Some((word, rest)),
            Some(&quote @ (b'\'' | b'"')) => {
                let (inside, after) = rest[1..].split_once(char::from(quote))?;
                let forbidden: &[char] = if quote == b'"' { &['$', '`', '\\', '\0'] } else { &['\0'] };
                if inside.contains(forbidden) {
                    return None;
                }
                word.push_str(inside);
                rest = after;
            }
            Some(_) => return None,
        }
    }
}
