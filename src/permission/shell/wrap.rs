//! Commands that run other commands, and the commands hidden in them.

use super::launch::{Script, command_starts, inner_start, is_code, is_shell, known_up_to, runs_others, script};
use super::special::{git_aliases, writes};
use super::{DEPTH_MAX, Line, PARTS_MAX, Part, Spot, UNKNOWN};

/// Words of one command that are tried as the start of another.
const SUFFIXES_MAX: usize = 64;
/// Of such a command, words that are looked at.
const SUFFIX_WORDS_MAX: usize = 256;
/// An argument with one of these may be a command line.
const LINE_SIGNS: [char; 10] = [' ', '\t', '\n', ';', '|', '&', '$', '`', '(', '<'];

/// Variables whose value some program runs: by their whole name, or by how it ends.
const RUN_VARIABLES: [&str; 10] =
    ["BASH_ENV", "ENV", "PS4", "PS1", "LESSOPEN", "LESSCLOSE", "RUSTC_WRAPPER", "CC", "CXX", "MAKEFLAGS"];
const RUN_VARIABLE_ENDS: [&str; 7] = ["_COMMAND", "PAGER", "EDITOR", "VISUAL", "ASKPASS", "_SSH", "_DIFF"];

/// Marks the launchers among the parts, and adds what may be hidden in them.
pub(super) fn find_shadows(line: &mut Line, depth: usize) {
    let mut reads_script = false;
    let mut held = 0;
    for part in &mut line.parts {
        part.redirects.extend(writes(part));
        if runs_others(part) {
            let mut hidden = Vec::new();
            let unseen = unknown_script(part, &mut hidden);
            reads_script |= unseen;
            hidden_in(part, depth, &mut hidden);
            started_by(part, depth, &mut line.inner);
            let known = !unseen && !part.opaque && !part.fed;
            let spell = known_up_to(part).filter(|&words| {
                // Of code nobody knows what it runs; of a launcher it is known, or no pattern covers it.
                known && (words < part.words.len() || hidden.iter().all(|hidden| hidden.program().is_some()))
            });
            match spell.filter(|_| held + hidden.len() + line.shadows.len() <= PARTS_MAX) {
                Some(words) => {
                    held += hidden.len();
                    part.spell = words;
                    part.hides = hidden;
                }
                None => {
                    part.opaque = true;
                    line.shadows.extend(hidden);
                }
            }
        }
        if part.assignments.iter().any(|(name, _)| name.starts_with("GIT_CONFIG")) {
            // Aliases, and programs that git starts, by name and number.
            line.shadows.push(Part::unreadable());
        }
        for (_, value) in part.assignments.iter().filter(|(name, _)| is_run(name)) {
            line_in(value, depth, &mut line.shadows);
        }
    }
    if reads_script {
        // `echo rm x | sh`: what is printed may be what is run.
        for part in line.parts.iter().filter(|part| matches!(part.program(), Some("echo" | "printf"))) {
            line_in(&part.words[1..].join(" "), depth, &mut line.shadows);
            lines_in(part, depth, &mut line.shadows);
        }
    }
    line.shadows.dedup();
}

fn is_run(variable: &str) -> bool {
    RUN_VARIABLES.contains(&variable) || RUN_VARIABLE_ENDS.iter().any(|end| variable.ends_with(end))
}

/// Takes note of a script that nobody here has seen: it may be anything. True: there is one.
fn unknown_script(part: &Part, shadows: &mut Vec<Part>) -> bool {
    let unknown = !part.fed && script(part) == Script::Unknown;
    if unknown {
        shadows.push(Part::unreadable());
    }
    unknown
}

fn hidden_in(part: &Part, depth: usize, shadows: &mut Vec<Part>) {
    words_of(part, depth, shadows);
    let Some(name) = part.program() else { return };
    match script(part) {
        Script::Inline(codes) if is_shell(name) => codes.iter().for_each(|code| line_in(code, depth, shadows)),
        Script::Inline(codes) => codes.iter().for_each(|code| foreign(code, shadows)),
        Script::None if is_code(name) => part.words[1..].iter().for_each(|code| foreign(code, shadows)),
        Script::None | Script::File | Script::Unknown => {}
    }
    git_aliases(part).iter().for_each(|line| line_in(line, depth, shadows));
    if name == "git" && part.words.iter().any(|word| word.contains("ext::")) {
        shadows.push(Part::unreadable());
    }
    fed_with_names(part, name, depth, shadows);
}

/// Code of another language: whatever looks like a command may be one, and so may the rest.
fn foreign(code: &str, shadows: &mut Vec<Part>) {
    if shadows.len() <= PARTS_MAX {
        shadows.extend(fragments(code));
        shadows.push(Part::unreadable());
    }
}

/// The commands that a launcher or a shell starts for certain: where it is known where they begin.
fn started_by(part: &Part, depth: usize, inner: &mut Vec<Part>) {
    if depth >= DEPTH_MAX || inner.len() > PARTS_MAX {
        return;
    }
    let lines: Vec<String> = match (script(part), part.program()) {
        (Script::Inline(codes), Some(name)) if is_shell(name) => codes.into_iter().map(str::to_owned).collect(),
        (_, Some("eval")) => vec![part.words[1..].join(" ")],
        (_, Some("trap" | "ssh" | "watch")) => part.words[1..].iter().filter(|w| w.contains(' ')).cloned().collect(),
        (_, _) => Vec::new(),
    };
    for line in lines {
        let line = Line::parse_at(&line, depth + 1);
        inner.extend(line.parts);
        inner.extend(line.inner);
    }
    for start in command_starts(part).into_iter().chain(inner_start(part)) {
        if start < part.words.len() {
            let command = suffix(part, start);
            started_by(&command, depth + 1, inner);
            inner.push(command);
        }
    }
}

/// `find -exec`, `xargs` and their kind: what comes from outside takes the place of a sign, and stands at the end.
fn fed_with_names(part: &Part, name: &str, depth: usize, shadows: &mut Vec<Part>) {
    let appended = matches!(name, "xargs" | "parallel");
    for start in command_starts(part) {
        let sign = part.words.iter().enumerate().find_map(|(at, word)| match word.strip_prefix("-I") {
            Some("") if appended => part.words.get(at + 1).map(String::as_str),
            attached => attached.filter(|_| appended),
        });
        let (sign, unknown) = (sign.filter(|sign| !sign.is_empty()).unwrap_or("{}"), UNKNOWN.to_string());
        let words = part.words.get(start..).unwrap_or_default().iter().take(SUFFIX_WORDS_MAX);
        let mut words: Vec<String> = words.map(|word| word.replace(sign, &unknown)).collect();
        if appended && (!words.is_empty() || name == "parallel") {
            words.push(unknown);
        }
        let command = Part::of(words);
        if depth < DEPTH_MAX && shadows.len() <= PARTS_MAX && runs_others(&command) && !command.words.is_empty() {
            unknown_script(&command, shadows);
            hidden_in(&command, depth + 1, shadows);
        }
        shadows.push(command);
    }
}

/// Each tail of the words as a command, and each word as a line.
fn words_of(part: &Part, depth: usize, shadows: &mut Vec<Part>) {
    for start in 1..part.words.len().min(SUFFIXES_MAX) {
        let tail = suffix(part, start);
        // As an argument a dot is nearly always a directory.
        let is_directory = tail.words[0] == "." && !matches!(part.program(), Some("builtin" | "command" | "eval"));
        if !is_directory {
            unknown_script(&tail, shadows);
        }
        shadows.push(tail);
    }
    lines_in(part, depth, shadows);
}

/// The words from `start` on. Of very many the last are unknown, which is never less strict.
fn suffix(part: &Part, start: usize) -> Part {
    let end = part.words.len().min(start + SUFFIX_WORDS_MAX);
    let mut words = part.words[start..end].to_vec();
    if end < part.words.len() {
        words.push(UNKNOWN.to_string());
    }
    let typed = part.typed.iter().filter_map(|(spot, text)| match spot {
        Spot::Word(at) => (start..end).contains(at).then(|| (Spot::Word(at - start), text.clone())),
        Spot::Value(_) | Spot::Target(_) => None,
    });
    let apart = part.apart.iter().filter(|at| (start..end).contains(*at)).map(|at| at - start);
    Part { typed: typed.collect(), apart: apart.collect(), ..Part::of(words) }
}

/// Arguments that may be command lines themselves, or hold one behind `=` or behind an option's letter.
fn lines_in(part: &Part, depth: usize, shadows: &mut Vec<Part>) {
    for word in part.words.iter().skip(1).take(SUFFIXES_MAX) {
        // The end of `find -exec` is no line.
        if word.contains(LINE_SIGNS) && word != ";" {
            line_in(word, depth, shadows);
        }
        let value = word.split_once('=').map(|(_, value)| value.trim_start_matches('!'));
        let shell_out = word.strip_prefix('!');
        let attached = word.strip_prefix('-').and_then(|rest| rest.get(1..));
        for hidden in [value, attached, shell_out].into_iter().flatten().filter(|text| !text.is_empty()) {
            line_in(hidden, depth, shadows);
        }
    }
}

/// A text that may be a command line.
fn line_in(text: &str, depth: usize, shadows: &mut Vec<Part>) {
    if shadows.len() > PARTS_MAX || text.is_empty() {
        return;
    }
    if depth >= DEPTH_MAX {
        // Quoting is not followed any more: it may be anything.
        shadows.extend(fragments(text));
        shadows.push(Part::unreadable());
        return;
    }
    shadows.extend(Line::parse_at(text, depth + 1).hidden());
}

/// What an unreadable text begins its pieces with.
pub(super) fn beginnings(text: &str) -> Vec<Part> {
    let bare = |word: &str| word.replace(['\\', '"', '\''], "").replace('*', &UNKNOWN.to_string());
    let pieces = text.split([';', '|', '&', '(', ')', '{', '}', '\n', '`', '\0']).take(PARTS_MAX);
    let words = pieces.map(|piece| piece.split_whitespace().map(bare).collect::<Vec<_>>());
    words.filter(|words| !words.is_empty()).map(|words| suffix(&Part::of(words), 0)).collect()
}

/// Whatever in an unreadable text may be a command: each run of words between two signs that end one.
pub(super) fn fragments(text: &str) -> Vec<Part> {
    let mut found = Vec::new();
    for piece in
        text.split([';', '|', '&', '!', ':', '=', ',', '(', ')', '{', '}', '<', '>', '\n', '`', '$', '"', '\'', '\0'])
    {
        let words = Part::of(piece.split_whitespace().map(|w| w.replace('\\', "")).collect());
        for start in 0..words.words.len().min(SUFFIXES_MAX) {
            if found.len() >= PARTS_MAX {
                return found;
            }
            found.push(suffix(&words, start));
        }
    }
    found
}
