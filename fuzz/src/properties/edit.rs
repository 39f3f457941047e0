//! Edits: nothing outside the named place changes, the place is the one that its tier describes, and an edit can be undone.

use std::fmt::Write;

use arbitrary::{Result, Unstructured};
use simse::edit::{EditError, Replaced, Step, Strategy, edit, edit_all, fuzzy_match};

const BOM: char = '\u{feff}';
const INDENTS: [&str; 6] = ["", "  ", "    ", "        ", "\t", "\t\t"];
const BODIES: [&str; 16] = [
    "",
    "a",
    "b",
    "}",
    "{",
    "x = 1;",
    "x  =  1;",
    "fn f(a: A) {",
    "fn f(a: B) {",
    "return total;",
    "let alpha_beta_gamma = compute(delta, 1);",
    "let alpha_beta_gamme = compute(delta, 1);",
    "let alpha_beta_gamma = compute(delta, 2);",
    "é😀 ü",
    "$& $1 \\0",
    "--- a/file",
];
const ENDS: [&str; 4] = ["", "", " ", "\t "];

/// One edit, and perhaps another one behind it.
#[derive(Debug)]
struct Input {
    content: String,
    old: String,
    new: String,
    replace_all: bool,
    second: (String, String),
}

/// The property of the target `edit`.
pub fn holds(data: &[u8]) {
    // Bytes that run out make an input that is short, not one that is none.
    if let Ok(input) = Input::of(&mut Unstructured::new(data)) {
        check(&input);
    }
}

impl Input {
    fn of(u: &mut Unstructured<'_>) -> Result<Self> {
        let crlf = u.ratio(1, 4)?;
        let mut lines = Vec::new();
        for _ in 0..u.int_in_range(0..=20)? {
            lines.push(line(u, crlf)?);
        }
        let mut content = lines.concat();
        if u.ratio(1, 3)? {
            content.truncate(content.trim_end_matches(['\r', '\n']).len());
        }
        if u.ratio(1, 10)? {
            content.insert(0, BOM);
        }
        let old = old(u, &lines, &content)?;
        let mut new = String::new();
        for _ in 0..u.int_in_range(0..=4)? {
            new.push_str(&line(u, crlf)?);
        }
        if u.ratio(1, 2)? {
            new.truncate(new.trim_end_matches(['\r', '\n']).len());
        }
        let second = (part(u, &new)?, free(u)?);
        Ok(Self { content, old, new, replace_all: u.ratio(1, 4)?, second })
    }
}

fn line(u: &mut Unstructured<'_>, crlf: bool) -> Result<String> {
    let indent = *u.choose(&INDENTS)?;
    let body = if u.ratio(1, 8)? { free(u)? } else { (*u.choose(&BODIES)?).to_owned() };
    let end = *u.choose(&ENDS)?;
    let other = u.ratio(1, 12)?;
    Ok(format!("{indent}{body}{end}{}", if crlf == other { "\n" } else { "\r\n" }))
}

/// A few characters of any kind.
fn free(u: &mut Unstructured<'_>) -> Result<String> {
    let bytes = u.int_in_range(0..=12)?;
    let bytes = u.bytes(bytes.min(u.len()))?;
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

/// Some of a text, cut between characters.
fn part(u: &mut Unstructured<'_>, text: &str) -> Result<String> {
    let from = text.floor_char_boundary(u.int_in_range(0..=text.len())?);
    let to = text.ceil_char_boundary(u.int_in_range(from..=text.len())?);
    Ok(text[from..to].to_owned())
}

/// What is looked for: some of the content, some of its lines as they are misquoted, or anything.
fn old(u: &mut Unstructured<'_>, lines: &[String], content: &str) -> Result<String> {
    match u.int_in_range(0..=5)? {
        0 => free(u),
        1 => part(u, content),
        _ => {
            let from = u.int_in_range(0..=lines.len())?;
            let to = u.int_in_range(from..=lines.len().min(from + 8))?;
            let mut old = String::new();
            for line in &lines[from..to] {
                old.push_str(&misquoted(u, line)?);
            }
            if u.ratio(1, 2)? {
                old.truncate(old.trim_end_matches(['\r', '\n']).len());
            }
            Ok(old)
        }
    }
}

/// A line as models quote it.
fn misquoted(u: &mut Unstructured<'_>, line: &str) -> Result<String> {
    Ok(match u.int_in_range(0..=12)? {
        0..=3 => line.to_owned(),
        4 => line.trim_start_matches([' ', '\t']).to_owned(),
        5 => format!("{}\n", line.trim_end()),
        6 => format!("  {line}"),
        7 => line.replace('\t', "    "),
        8 => line.replace("    ", "\t"),
        9 => line.replace("  ", " "),
        10 => line.replace("\r\n", "\n"),
        11 if line.trim().is_empty() => String::new(),
        11 => line.replacen(['a', 'e'], "o", 1),
        _ => format!("{}  \n", line.trim_end_matches(['\r', '\n'])),
    })
}

fn check(input: &Input) {
    let Input { content, old, new, replace_all, second } = input;
    let made = edit(content, old, new, *replace_all);
    if !replace_all {
        agree(&made, fuzzy_match(content, old, new).as_ref(), input);
    }
    steps_follow(input, &made, second);
    let Ok(replaced) = made else { return };
    assert!(replaced.text != *content, "an edit that changes nothing: {input:?}");
    assert!(!content.starts_with(BOM) || replaced.text.starts_with(BOM), "the byte order mark is lost: {input:?}");
    outside_stays(input, &replaced);
    if !replace_all {
        assert_eq!(replaced.changes.len(), 1, "{input:?}");
        place_fits(input, &replaced);
        undone(input, &replaced);
    }
}

/// Both functions find the same place.
fn agree(made: &std::result::Result<Replaced, EditError>, found: Option<&Replaced>, input: &Input) {
    match (made, found) {
        (Ok(made), found) => assert_eq!(Some(made), found, "{input:?}"),
        (Err(EditError::SameStrings | EditError::NoChange), _) | (Err(_), None) => {}
        (Err(error), Some(found)) => panic!("{error} and yet {found:?}: {input:?}"),
    }
}

/// Several edits are one after the other, or none.
fn steps_follow(input: &Input, first: &std::result::Result<Replaced, EditError>, second: &(String, String)) {
    let step = |old: &str, new: &str, replace_all| Step { old: old.to_owned(), new: new.to_owned(), replace_all };
    let steps = [step(&input.old, &input.new, input.replace_all), step(&second.0, &second.1, true)];
    let together = edit_all(&input.content, &steps).ok().map(|(text, _)| text);
    let apart = first.as_ref().ok().and_then(|made| edit(&made.text, &second.0, &second.1, true).ok()).map(|r| r.text);
    assert_eq!(together, apart, "{input:?}");
}

/// The lines that no change names are there byte for byte, in their order.
fn outside_stays(input: &Input, replaced: &Replaced) {
    let lines: Vec<&str> = input.content.split_inclusive('\n').collect();
    let (mut next, mut rest) = (0, replaced.text.as_str());
    for change in &replaced.changes {
        // Several changes of one line are one of it.
        if change.line > next {
            let kept = lines[next..change.line - 1].concat();
            let at = rest.find(&kept).unwrap_or_else(|| panic!("lost {kept:?}: {input:?} gave {replaced:?}"));
            assert!(next > 0 || at == 0, "moved {kept:?}: {input:?} gave {replaced:?}");
            rest = &rest[at + kept.len()..];
        }
        next = next.max(change.line - 1 + change.old_lines);
    }
    let kept = lines.get(next..).unwrap_or_default().concat();
    assert!(rest.ends_with(&kept), "lost {kept:?}: {input:?} gave {replaced:?}");
}

/// The place is what the tier says, and where the tier tells places apart there is no other one.
fn place_fits(input: &Input, replaced: &Replaced) {
    let bare =
        |text: &str| text.strip_prefix(BOM).filter(|_| input.content.starts_with(BOM)).unwrap_or(text).to_owned();
    let (content, old) = (bare(&input.content), bare(&input.old));
    let lines: Vec<&str> = content.lines().collect();
    let wanted: Vec<&str> = old.lines().collect();
    let at = replaced.changes[0].line - 1;
    let windows = |same: &dyn Fn(&str, &str) -> bool| -> Vec<usize> {
        let fits = |start: &usize| lines[*start..*start + wanted.len()].iter().zip(&wanted).all(|(a, b)| same(a, b));
        (0..=lines.len().saturating_sub(wanted.len()))
            .filter(|at| at + wanted.len() <= lines.len())
            .filter(fits)
            .collect()
    };
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    match replaced.strategy {
        Strategy::Exact => {
            if !content.contains('\r') && !old.contains('\r') {
                assert_eq!(count(&content, &old), 1, "not the only place: {input:?}");
            }
        }
        Strategy::LineTrimmed => assert_eq!(windows(&|a, b| a.trim() == b.trim()), [at], "{input:?} gave {replaced:?}"),
        Strategy::WhitespaceNormalized => {
            assert_eq!(windows(&|a, b| words(a) == words(b)), [at], "{input:?} gave {replaced:?}");
        }
        Strategy::IndentationFlexible => {
            assert!(windows(&|a, b| a.trim() == b.trim()).contains(&at), "{input:?} gave {replaced:?}");
        }
        Strategy::BlockAnchor => {
            let block = &lines[at..(at + replaced.changes[0].old_lines).min(lines.len())];
            let ends = |lines: &[&str]| -> Option<(String, String)> {
                let full = || lines.iter().map(|line| line.trim()).filter(|line| !line.is_empty());
                Some((full().next()?.to_owned(), full().next_back()?.to_owned()))
            };
            assert_eq!(ends(block), ends(&wanted), "{input:?} gave {replaced:?}");
        }
    }
}

/// How often `part` stands in `text`, overlapping places too.
fn count(text: &str, part: &str) -> usize {
    text.char_indices().filter(|(at, _)| text[*at..].starts_with(part)).count()
}

/// Where the new string stands as it was given, and nowhere else, the edit back gives the old text.
fn undone(input: &Input, replaced: &Replaced) {
    let Input { content, old, new, .. } = input;
    let odd = |text: &str| text.contains(['\r', BOM]);
    if replaced.strategy != Strategy::Exact || new.is_empty() || odd(content) || odd(old) || odd(new) {
        return;
    }
    let literal = content.replacen(old.as_str(), new, 1);
    if replaced.text != literal {
        // Only the end of the text may be another one: with a line feed or without, as it was.
        let (one, other) = (replaced.text.trim_end_matches('\n'), literal.trim_end_matches('\n'));
        assert!(content.ends_with(old.as_str()) && one == other, "{input:?} gave {replaced:?}, not {literal:?}");
        return;
    }
    if count(&replaced.text, new) == 1 {
        let mut told = String::new();
        let back = edit(&replaced.text, new, old, false).unwrap_or_else(|error| {
            let _infallible = write!(told, "{error}: {input:?}");
            panic!("{told}")
        });
        assert_eq!(back.text, *content, "{input:?} was not undone");
    }
}
