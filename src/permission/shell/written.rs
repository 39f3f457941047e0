//! The files that a command line writes, as far as it says them itself.
//!
//! Named are the files behind `>`, and those of programs whose arguments say them: `tee`, `touch`, `rm`, `rmdir`, `mv`, `cp`, `sed -i`,
//! and what [`super::special::writes`] knows. What only the shell will know (variables, globs) is left out, and so is a
//! relative path behind a change of the directory that is not the first thing the line does. Nothing here decides about permission.

use super::special::writes;
use super::{Line, Part, UNKNOWN};

/// A file or directory that a command writes, as its line names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenPath {
    /// The path, as it was typed.
    pub path: String,
    /// Where the path is a directory: what is written into it. Empty: the directory itself and all in it.
    pub within: Vec<String>,
    /// The directory that the line goes to first, if the path is relative to that.
    pub under: Option<String>,
}

/// What a command line writes. Pure; never more than the line says.
pub fn written_paths(command: &str) -> Vec<WrittenPath> {
    let line = Line::parse(command);
    let moves = |part: &Part| part.program().is_some_and(|name| ["cd", "pushd", "popd"].contains(&name));
    let first = line.parts.first().filter(|part| moves(part));
    let goes = first.and_then(|part| match part.words.as_slice() {
        [name, to] if name == "cd" && is_known(to) && !to.starts_with(['-', '~']) => Some(to.clone()),
        _ => None,
    });
    let rest = usize::from(goes.is_some());
    let lost = line.parts.iter().skip(rest).chain(&line.inner).any(moves);
    let mut found: Vec<WrittenPath> = Vec::new();
    for part in line.parts.iter().chain(&line.inner) {
        for (path, within) in of_part(part) {
            let fits = is_known(&path) && !path.starts_with('~') && (path.starts_with('/') || !lost);
            let under = goes.clone().filter(|_| !path.starts_with('/'));
            let written = WrittenPath { path, within, under };
            if fits && !written.path.starts_with("/dev/") && !found.contains(&written) {
                found.push(written);
            }
        }
    }
    found
}

fn is_known(word: &str) -> bool {
    !word.is_empty() && !word.contains(UNKNOWN) && !word.contains(['*', '?', '['])
}

fn of_part(part: &Part) -> Vec<(String, Vec<String>)> {
    let alone = |path: String| (path, Vec::new());
    let redirects = part.redirects.iter().filter(|redirect| {
        // `>&2` and the like name no file.
        redirect.operator.contains('>') && !redirect.target.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
    });
    let mut found: Vec<_> = redirects.map(|redirect| alone(redirect.target.clone())).collect();
    found.extend(writes(part).into_iter().map(|redirect| alone(redirect.target)));
    // What may be an option, or several words, makes all behind it unknown.
    if part.opaque || !part.apart.is_empty() {
        return found;
    }
    let words = part.words.get(1..).unwrap_or_default();
    match part.program() {
        Some("tee" | "rm" | "rmdir") => found.extend(operands(words, "").into_iter().map(alone)),
        Some("touch") => found.extend(operands(words, "drt").into_iter().map(alone)),
        Some("sed") => found.extend(edited(words).into_iter().map(alone)),
        Some(name @ ("mv" | "cp")) => found.extend(transferred(name, words)),
        Some(_) | None => {}
    }
    found
}

/// The words that are no options. `letters`: options that take the next word.
fn operands(words: &[String], letters: &str) -> Vec<String> {
    let (mut found, mut options, mut rest) = (Vec::new(), true, words.iter());
    while let Some(word) = rest.next() {
        match word.strip_prefix('-').filter(|option| options && !option.is_empty()) {
            Some("-") => options = false,
            Some(option) if !option.starts_with('-') && option.ends_with(|last| letters.contains(last)) => {
                rest.next();
            }
            Some(_) => {}
            None => found.push(word.clone()),
        }
    }
    found
}

/// The files of a `sed` that changes them.
fn edited(words: &[String]) -> Vec<String> {
    let short = |word: &String| word.starts_with('-') && !word.starts_with("--");
    let has = |letter: char, long: &str| {
        words.iter().any(|word| (short(word) && word.contains(letter)) || word.starts_with(long))
    };
    if !has('i', "--in-place") {
        return Vec::new();
    }
    let mut files = operands(words, "ef");
    let scripts = has('e', "--expression") || has('f', "--file");
    if !scripts && !files.is_empty() {
        files.remove(0);
    }
    files
}

/// What `mv` and `cp` write: where they put it, and for `mv` where it was.
fn transferred(name: &str, words: &[String]) -> Vec<(String, Vec<String>)> {
    // A target that stands in front is not looked for.
    let elsewhere = |word: &String| word.starts_with("--target") || (word.starts_with("-t") && word.len() >= 2);
    if words.iter().any(elsewhere) {
        return Vec::new();
    }
    let mut sources = operands(words, "S");
    let Some(target) = sources.pop().filter(|_| !sources.is_empty()) else { return Vec::new() };
    let last = |path: &String| path.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_owned();
    let names: Vec<String> = sources.iter().map(last).filter(|name| is_known(name) && name != "..").collect();
    let mut found = vec![];
    // Where not all names are known, what comes into a directory is not either.
    if names.len() == sources.len() {
        found.push((target, names));
    }
    if name == "mv" {
        found.extend(sources.into_iter().map(|source| (source, Vec::new())));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(command: &str) -> Vec<String> {
        let show = |written: WrittenPath| {
            let under = written.under.map(|under| format!("{under}:")).unwrap_or_default();
            let within =
                if written.within.is_empty() { String::new() } else { format!("<{}", written.within.join(",")) };
            format!("{under}{}{within}", written.path)
        };
        written_paths(command).into_iter().map(show).collect()
    }

    #[test]
    fn a_line_says_what_it_writes_and_nothing_is_guessed() {
        #[rustfmt::skip]
        let table: &[(&str, &[&str])] = &[
            ("echo x > a.txt", &["a.txt"]),
            ("echo x >> 'a b.txt' 2>&1", &["a b.txt"]),
            ("make 2> err.log > /dev/null", &["err.log"]),
            ("cat a | tee -a b c", &["b", "c"]),
            ("rm -rf build; rmdir -- -d", &["build", "-d"]),
            ("touch -d yesterday a", &["a"]),
            ("sed -i 's/a/b/' x y", &["x", "y"]),
            ("sed -i.bak -e s/a/b/ x", &["x"]),
            ("sed 's/i/b/' x", &[]),
            ("mv a b", &["b<a", "a"]),
            ("cp -r src/x src/y dir", &["dir<x,y"]),
            ("cp -t dir a b", &[]),
            ("cd sub && echo x > a", &["sub:a"]),
            ("cd sub && echo x > /abs", &["/abs"]),
            ("echo x > a; cd sub; echo y > b", &[]),
            ("cd \"$D\" && echo x > a", &[]),
            ("echo x > $F; rm *.txt; echo y > ok", &["ok"]),
            ("rm $OPTIONS a", &[]),
            ("sudo rm x", &["x"]),
            ("ls -l; cat a", &[]),
            ("", &[]),
        ];
        for (command, want) in table {
            assert_eq!(told(command), *want, "{command}");
        }
    }
}
