//! Commands that run other commands, and the commands hidden in them.

use super::{DEPTH_MAX, Line, PARTS_MAX, Part, UNKNOWN};

/// They run what their arguments, their input or a file say, or change what later names mean.
const WRAPPERS: [&str; 48] = [
    ".",
    "alias",
    "ash",
    "bash",
    "builtin",
    "busybox",
    "chroot",
    "chrt",
    "command",
    "csh",
    "dash",
    "doas",
    "env",
    "eval",
    "exec",
    "find",
    "fish",
    "flock",
    "gdb",
    "ionice",
    "ksh",
    "ltrace",
    "nice",
    "nohup",
    "nsenter",
    "parallel",
    "prlimit",
    "runuser",
    "script",
    "setpriv",
    "setsid",
    "sh",
    "source",
    "ssh",
    "stdbuf",
    "strace",
    "su",
    "sudo",
    "systemd-run",
    "taskset",
    "tcsh",
    "time",
    "timeout",
    "trap",
    "unshare",
    "watch",
    "xargs",
    "zsh",
];
const SHELLS: [&str; 9] = ["ash", "bash", "csh", "dash", "fish", "ksh", "sh", "tcsh", "zsh"];
/// Arguments by which `find` does more than find.
const FIND_ACTIONS: [&str; 8] = ["-exec", "-execdir", "-ok", "-okdir", "-delete", "-fprint", "-fprintf", "-fls"];
/// Words of one command that are tried as the start of another.
const SUFFIXES_MAX: usize = 64;
/// Of such a command, words that are looked at.
const SUFFIX_WORDS_MAX: usize = 256;

/// Marks the wrappers among the parts, and adds what may be hidden in them.
pub(super) fn find_shadows(line: &mut Line, depth: usize) {
    for part in &mut line.parts {
        if runs_others(part) {
            part.opaque = true;
            hidden_in(part, depth, &mut line.shadows);
        }
    }
    line.shadows.dedup();
}

/// Whether a command may run commands that are not its own words.
fn runs_others(part: &Part) -> bool {
    let Some(name) = part.program() else { return true };
    let arguments = &part.words[1..];
    let first = arguments.first().map(String::as_str);
    if SHELLS.contains(&name) {
        // A script by name is a program like any other.
        return first.is_none_or(|a| a.starts_with(['-', '+']) || a.starts_with("/dev/") || a.contains(UNKNOWN));
    }
    match name {
        "env" => !arguments.is_empty(),
        "command" => !matches!(first, Some("-v" | "-V")),
        "find" => arguments.iter().any(|a| FIND_ACTIONS.contains(&a.as_str()) || a.contains(UNKNOWN)),
        _ => WRAPPERS.binary_search(&name).is_ok(),
    }
}

fn hidden_in(part: &Part, depth: usize, shadows: &mut Vec<Part>) {
    for start in 1..part.words.len().min(SUFFIXES_MAX) {
        shadows.push(suffix(&part.words, start));
    }
    lines_in(part, depth, shadows);
}

/// The words from `start` on. Of very many the last are unknown, which is never less strict.
fn suffix(words: &[String], start: usize) -> Part {
    let end = words.len().min(start + SUFFIX_WORDS_MAX);
    let mut words_of_it = words[start..end].to_vec();
    if end < words.len() {
        words_of_it.push(UNKNOWN.to_string());
    }
    Part::of(words_of_it)
}

/// Arguments that may be command lines themselves.
fn lines_in(part: &Part, depth: usize, shadows: &mut Vec<Part>) {
    for word in part.words.iter().skip(1).take(SUFFIXES_MAX) {
        if !word.contains([' ', '\t', '\n', ';', '|', '&', '$', '`', '(', '<', '>']) || shadows.len() > PARTS_MAX {
            continue;
        }
        if depth >= DEPTH_MAX {
            shadows.extend(fragments(word));
            continue;
        }
        let inner = Line::parse_at(word, depth + 1);
        shadows.extend(inner.parts);
        shadows.extend(inner.shadows);
    }
}

/// Whatever in an unreadable text may be a command: each run of words between two signs that end one.
pub(super) fn fragments(text: &str) -> Vec<Part> {
    let mut found = Vec::new();
    for piece in text.split([';', '|', '&', '(', ')', '{', '}', '<', '>', '\n', '`', '$', '"', '\'', '\0']) {
        let words: Vec<String> = piece.split_whitespace().map(|w| w.replace('\\', "")).collect();
        for start in 0..words.len().min(SUFFIXES_MAX) {
            if found.len() >= PARTS_MAX {
                return found;
            }
            found.push(suffix(&words, start));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_table_is_sorted() {
        assert!(super::WRAPPERS.is_sorted());
    }
}
