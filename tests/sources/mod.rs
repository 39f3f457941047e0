//! Reads the crate's own sources for the checks beside this folder: which code is there, and which of it ships.
//!
//! It knows just enough of Rust to tell code from comments, strings and tests; it does not parse. Blanking keeps
//! every byte offset and line number, so that what is found in the code can be looked up in the text.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// One Rust file.
pub struct Source {
    /// From the checkout's root, such as `src/bus/mod.rs`.
    pub path: String,
    /// As it stands.
    pub text: String,
    /// The text with comments and the insides of strings blanked.
    pub code: String,
    /// The code with everything behind `#[cfg(test)]` blanked: what ships.
    pub production: String,
    /// Lines that ship, comments and empty ones included.
    pub shipped_lines: usize,
}

impl Source {
    /// Takes a file apart. `is_test`: the whole file is one.
    pub fn new(path: &str, text: &str, is_test: bool) -> Self {
        let code = blank_prose(text);
        let tests = if is_test { vec![0..code.len()] } else { test_ranges(&code) };
        let mut production = code.clone();
        let mut shipped_lines = text.lines().count();
        for range in tests {
            shipped_lines -= text[range.clone()].lines().count().min(shipped_lines);
            production.replace_range(range.clone(), &blank_all(&code[range]));
        }
        Self { path: path.into(), text: text.into(), code, production, shipped_lines }
    }

    /// The module under `src/` that the file belongs to: `bus` for `src/bus/mod.rs`, `main` for `src/main.rs`.
    pub fn owner(&self) -> &str {
        let inside = self.path.strip_prefix("src/").unwrap_or(&self.path);
        inside.split('/').next().map_or(inside, |first| first.strip_suffix(".rs").unwrap_or(first))
    }
}

/// Line number of a byte offset, from 1.
pub fn line_of(text: &str, offset: usize) -> usize {
    text[..offset].bytes().filter(|&byte| byte == b'\n').count() + 1
}

/// The checkout's root.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// All Rust files below these folders, in the order of their paths.
pub fn read(folders: &[&str]) -> Vec<Source> {
    let mut paths = Vec::new();
    for folder in folders {
        collect(&root().join(folder), &mut paths);
    }
    paths.sort();
    let texts: Vec<(String, String)> = paths
        .iter()
        .map(|path| {
            let name = path.strip_prefix(root()).expect("found below the root").to_string_lossy().into_owned();
            (name, fs::read_to_string(path).expect("a source file can be read"))
        })
        .collect();
    let tests: BTreeSet<String> = texts.iter().flat_map(|(path, text)| test_files(path, &blank_prose(text))).collect();
    texts.iter().map(|(path, text)| Source::new(path, text, is_test(path, &tests))).collect()
}

fn collect(folder: &Path, into: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.map(|entry| entry.expect("a folder entry can be read").path()) {
        if path.is_dir() {
            collect(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

fn is_test(path: &str, tests: &BTreeSet<String>) -> bool {
    path.starts_with("tests/")
        || path.starts_with("fuzz/")
        || tests.iter().any(|test| path == format!("{test}.rs") || path.starts_with(&format!("{test}/")))
}

/// Files that `#[cfg(test)] mod name;` lines name, without their ending.
fn test_files(path: &str, code: &str) -> Vec<String> {
    let folder = match path.strip_suffix("/mod.rs").or_else(|| path.strip_suffix("/lib.rs")) {
        Some(folder) => folder.to_owned(),
        None => path.strip_suffix(".rs").unwrap_or(path).to_owned(),
    };
    let mut found = Vec::new();
    for (at, _) in code.match_indices(CFG_TEST) {
        let item = &code[at + CFG_TEST.len()..item_end(code, at + CFG_TEST.len())];
        let words: Vec<&str> = item.split_whitespace().collect();
        if let Some(place) = words.iter().position(|&word| word == "mod")
            && let Some(name) = words.get(place + 1).and_then(|word| word.strip_suffix(';'))
        {
            found.push(format!("{folder}/{name}"));
        }
    }
    found
}

const CFG_TEST: &str = "#[cfg(test)]";

fn blank_all(code: &str) -> String {
    code.chars().map(|c| if c == '\n' { "\n".into() } else { " ".repeat(c.len_utf8()) }).collect()
}

/// The items behind `#[cfg(test)]`.
fn test_ranges(code: &str) -> Vec<std::ops::Range<usize>> {
    let mut found: Vec<std::ops::Range<usize>> = Vec::new();
    for (at, _) in code.match_indices(CFG_TEST) {
        if found.last().is_none_or(|range| range.end <= at) {
            found.push(at..item_end(code, at + CFG_TEST.len()));
        }
    }
    found
}

/// Where the item that begins at `from` ends: behind its first `;` outside brackets, or its block.
fn item_end(code: &str, from: usize) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b'{' | b'(' | b'[' => depth += 1,
            b'}' if depth == 1 => return at + 1,
            b'}' | b')' | b']' => depth = depth.saturating_sub(1),
            b';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

/// Blanks comments and the insides of string and character literals; offsets and lines stay.
pub fn blank_prose(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let (inside, end) = prose_at(text, at);
        for byte in out.iter_mut().take(inside.end).skip(inside.start).filter(|byte| **byte != b'\n') {
            *byte = b' ';
        }
        at = end.max(at + 1);
    }
    String::from_utf8(out).expect("whole characters are blanked")
}

/// What is to be blanked at this place, and where to go on.
fn prose_at(text: &str, at: usize) -> (std::ops::Range<usize>, usize) {
    let rest = &text.as_bytes()[at..];
    let nothing = (at..at, at + 1);
    let word_before = at > 0 && is_word(text.as_bytes()[at - 1]);
    match rest {
        [b'/', b'/', ..] => {
            let end = at + rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
            (at..end, end)
        }
        [b'/', b'*', ..] => {
            let end = block_comment_end(rest) + at;
            (at..end, end)
        }
        [b'"', ..] => quoted(rest, at, 1, b'"'),
        [b'b', b'"', ..] | [b'c', b'"', ..] if !word_before => quoted(rest, at, 2, b'"'),
        [b'r', ..] if !word_before => raw_string(rest, at, 1).unwrap_or(nothing),
        [b'b', b'r', ..] | [b'c', b'r', ..] if !word_before => raw_string(rest, at, 2).unwrap_or(nothing),
        [b'\'', ..] if is_character(&text[at..]) => quoted(rest, at, 1, b'\''),
        _ => nothing,
    }
}

/// True for a byte of a name.
pub fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Tells `'a'` and `'\n'` from a lifetime.
fn is_character(rest: &str) -> bool {
    let mut characters = rest.chars().skip(1);
    match characters.next() {
        Some('\\') => true,
        Some(_) => characters.next() == Some('\''),
        None => false,
    }
}

fn quoted(rest: &[u8], at: usize, open: usize, close: u8) -> (std::ops::Range<usize>, usize) {
    let mut end = open;
    while end < rest.len() && rest[end] != close {
        end += if rest[end] == b'\\' { 2 } else { 1 };
    }
    let end = end.min(rest.len());
    (at + open..at + end, at + end + 1)
}

fn raw_string(rest: &[u8], at: usize, prefix: usize) -> Option<(std::ops::Range<usize>, usize)> {
    let hashes = rest[prefix..].iter().take_while(|&&byte| byte == b'#').count();
    let open = prefix + hashes + 1;
    if rest.get(open - 1) != Some(&b'"') {
        return None;
    }
    let close = [&b"\""[..], &vec![b'#'; hashes]].concat();
    let end =
        rest[open..].windows(close.len()).position(|window| window == close).map_or(rest.len(), |place| open + place);
    Some((at + open..at + end, at + end + close.len()))
}

fn block_comment_end(rest: &[u8]) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at + 1 < rest.len() {
        match &rest[at..at + 2] {
            b"/*" => (depth, at) = (depth + 1, at + 2),
            b"*/" if depth == 1 => return at + 2,
            b"*/" => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_blanked_and_offsets_stay() {
        #[rustfmt::skip]
        let table = [
            ("a // crate::x\nb",            "a            \nb"),
            ("a /* b /* c */ d */ e",       "a                   e"),
            (r#"f("crate::x")"#,            r#"f("        ")"#),
            (r##"r#"a"b"# c"##,             r##"r#"   "# c"##),
            (r#"b"x\"y" z"#,                r#"b"    " z"#),
            ("'a' 'b 'static",              "' ' 'b 'static"),
            (r"'\'' x",                     r"'  ' x"),
            ("\"ä\" x",                     "\"  \" x"),
            ("var\"s\"",                    "var\" \""),
        ];
        for (text, want) in table {
            assert_eq!(blank_prose(text), want, "{text}");
        }
    }

    #[test]
    fn tests_do_not_ship() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests { fn b() { crate::x(); } }\nfn c() {}\n#[cfg(test)]\nuse crate::y;\nfn d() {}";
        let production = Source::new("src/bus/mod.rs", text, false).production;
        let words: Vec<&str> = production.split_whitespace().collect();
        assert_eq!(words, ["fn", "a()", "{}", "fn", "c()", "{}", "fn", "d()", "{}"]);
        assert_eq!(production.len(), text.len());
    }

    #[test]
    fn a_test_module_in_its_own_file_is_a_test() {
        assert_eq!(test_files("src/bus/mod.rs", "#[cfg(test)]\nmod cases;"), ["src/bus/cases"]);
        assert_eq!(test_files("src/bus/fan.rs", "#[cfg(test)] pub(crate) mod cases;"), ["src/bus/fan/cases"]);
        assert!(test_files("src/bus/mod.rs", "mod cases;").is_empty());
    }
}
