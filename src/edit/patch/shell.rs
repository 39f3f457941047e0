//! Recognises a patch that was typed into a shell: `apply_patch <<'EOF' …`.
//!
//! Only a command that is nothing but a patch (behind a `cd`, perhaps) is taken as one. What begins like
//! one and goes on as something else is told, because no shell has such a program.

/// What a command line is, as far as patches go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Typed {
    /// Something for the shell.
    Other,
    /// A patch, and the directory that its paths are relative to, where a `cd` names one.
    Patch {
        /// As written after `cd`.
        directory: Option<String>,
        /// Its text.
        text: String,
    },
    /// Meant as a patch, and written in a way that is not taken. Why, and what to do.
    Refused(&'static str),
}

const NAMES: [&str; 2] = ["apply_patch", "applypatch"];
const HOW: &str = "a patch in a shell must be the whole command: `apply_patch <<'EOF'`, the patch, and `EOF` as the last \
                   line. Other commands go into calls of their own; or call the tool apply_patch";
const BARE: &str = "this is a patch and no command: call the tool apply_patch with it";

/// Looks at a command line.
pub fn typed(command: &str) -> Typed {
    let command = command.trim_start();
    if command.starts_with("*** Begin Patch") {
        return Typed::Refused(BARE);
    }
    let (directory, rest) = match after_cd(command) {
        Some((directory, rest)) => (Some(directory), rest),
        None => (None, command),
    };
    let named = NAMES.iter().find_map(|name| rest.strip_prefix(name));
    let text = match named.filter(|rest| rest.starts_with([' ', '\t', '\n', '<', '\'', '"'])) {
        Some(rest) => argument(rest.trim_start_matches([' ', '\t'])),
        None if named.is_some_and(|rest| rest.trim().is_empty()) => None,
        None => match piped(rest) {
            Some(text) => Some(text),
            None => return Typed::Other,
        },
    };
    match text {
        Some(text) => Typed::Patch { directory, text },
        None => Typed::Refused(HOW),
    }
}

/// The directory of a `cd` that the command begins with, and what comes after `&&` or `;`.
fn after_cd(command: &str) -> Option<(String, &str)> {
    let rest = command.strip_prefix("cd")?.strip_prefix([' ', '\t'])?.trim_start();
    let (directory, rest) = word(rest)?;
    let rest = rest.trim_start_matches([' ', '\t']);
    let rest = rest.strip_prefix("&&").or_else(|| rest.strip_prefix(';')).or_else(|| rest.strip_prefix('\n'))?;
    Some((directory, rest.trim_start()))
}

/// What stands behind the name: a here-document, or one quoted word.
fn argument(rest: &str) -> Option<String> {
    if let Some(document) = rest.strip_prefix("<<") {
        let (first, body) = document.split_once('\n')?;
        return here_document(first, body);
    }
    let (text, rest) = rest.starts_with(['\'', '"']).then(|| word(rest)).flatten()?;
    rest.trim().is_empty().then_some(text)
}

/// `cat <<'EOF' | apply_patch`.
fn piped(rest: &str) -> Option<String> {
    let document = rest.strip_prefix("cat")?.trim_start_matches([' ', '\t']).strip_prefix("<<")?;
    let (first, body) = document.split_once('\n')?;
    let (word, program) = first.split_once('|')?;
    NAMES.contains(&program.trim()).then(|| here_document(word, body)).flatten()
}

/// The lines up to the closing word, which must be the last.
fn here_document(word: &str, body: &str) -> Option<String> {
    let (word, tabs) = match word.strip_prefix('-') {
        Some(word) => (word, true),
        None => (word, false),
    };
    let word = word.trim();
    let quoted = ['\'', '"'].iter().find_map(|quote| word.strip_prefix(*quote)?.strip_suffix(*quote));
    let word = quoted.or_else(|| word.strip_prefix('\\')).unwrap_or(word);
    if word.is_empty() || !word.chars().all(|c| c.is_alphanumeric() || "_-.".contains(c)) {
        return None;
    }
    let mut text = String::with_capacity(body.len());
    let mut lines = body.split_inclusive('\n');
    for line in lines.by_ref() {
        let line = if tabs { line.trim_start_matches('\t') } else { line };
        if line.trim_end() == word {
            let rest: String = lines.collect();
            return rest.trim().is_empty().then_some(text);
        }
        text.push_str(line);
    }
    None
}

/// One word of a shell's language, its quotes taken off. None: the shell would put something else in its place.
fn word(text: &str) -> Option<(String, &str)> {
    let mut out = String::new();
    for (at, c) in text.char_indices() {
        match c {
            '\'' => {
                let inside = &text[at + 1..];
                let end = inside.find('\'')?;
                out.push_str(&inside[..end]);
                return continued(out, &text[at + end + 2..]);
            }
            '"' => {
                let (inside, rest) = double_quoted(&text[at + 1..])?;
                out.push_str(&inside);
                return continued(out, rest);
            }
            ' ' | '\t' | '\n' | ';' | '&' => return (!out.is_empty()).then(|| (out, &text[at..])),
            '$' | '`' | '\\' | '*' | '?' | '[' | '(' | ')' | '|' | '<' | '>' | '{' | '}' | '~' | '#' | '!' => {
                return None;
            }
            c => out.push(c),
        }
    }
    (!out.is_empty()).then_some((out, ""))
}

/// Goes on behind a quoted part of a word.
fn continued(mut out: String, rest: &str) -> Option<(String, &str)> {
    if rest.is_empty() || rest.starts_with([' ', '\t', '\n', ';', '&']) {
        return Some((out, rest));
    }
    let (more, rest) = word(rest)?;
    out.push_str(&more);
    Some((out, rest))
}

/// What stands in double quotes, and what follows them. A `$` is left as it is: in a patch it is meant so.
fn double_quoted(text: &str) -> Option<(String, &str)> {
    let mut out = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((out, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                '\n' => {}
                c @ ('"' | '\\' | '$' | '`') => out.push(c),
                c => out.extend(['\\', c]),
            },
            c => out.push(c),
        }
    }
    None
}
