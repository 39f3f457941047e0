//! Imports in instruction files: a line that is `@path` alone stands for the text of that file.
//!
//! The path is meant from the file that has the line. What cannot be imported stays as it is written: a file outside the
//! tree, one that is no text, one that is not there, one that imports itself by some way, one too deep, one too many.

use std::path::{Component, Path, PathBuf};

use super::instructions::Reader;
use crate::base::limit;

/// Endings of what may be imported; a file without one may be, too, unless it is hidden.
const TEXTS: [&str; 7] = ["md", "markdown", "mdc", "mdx", "txt", "rst", "adoc"];

/// The path that a line imports. None: it is an ordinary line.
fn import(line: &str) -> Option<&str> {
    let path = line.trim().strip_prefix('@')?;
    let plain = !path.is_empty() && !path.contains(char::is_whitespace) && !path.contains('@');
    plain.then_some(path)
}

/// Whether a file may be a text that is meant to be read: nothing hidden, and no code or data.
fn is_text(path: &Path) -> bool {
    let hidden = path.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'));
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    !hidden && ending.is_none_or(|ending| TEXTS.contains(&ending.as_str()))
}

/// The fence that a line opens or closes: its sign and how many of them.
fn fence(line: &str) -> Option<(char, usize)> {
    let line = line.trim_start();
    let sign = line.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let count = line.chars().take_while(|c| *c == sign).count();
    (count >= 3).then_some((sign, count))
}

/// Puts the texts of imported files in the places of their lines. `file`: where the text comes from, without links.
pub(super) fn expand(reader: &mut Reader<'_>, (file, text): (&Path, &str), above: &mut Vec<PathBuf>) -> String {
    if !text.contains('@') {
        return text.to_owned();
    }
    above.push(file.to_owned());
    let mut open: Option<(char, usize)> = None;
    let mut expanded = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        match (open, fence(line)) {
            (None, Some(begins)) => open = Some(begins),
            (Some((sign, count)), Some((other, more))) if sign == other && more >= count => open = None,
            (None, None) => {
                if let Some(path) = import(line)
                    && let Some(imported) = imported(reader, (file, path), above)
                {
                    expanded.push_str(imported.trim_end());
                    expanded.push('\n');
                    continue;
                }
            }
            (Some(_), _) => {}
        }
        expanded.push_str(line);
    }
    above.pop();
    expanded
}

fn imported(reader: &mut Reader<'_>, (file, path): (&Path, &str), above: &mut Vec<PathBuf>) -> Option<String> {
    let given = Path::new(path);
    // `~` and absolute paths belong to one machine.
    let relative =
        given.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir | Component::ParentDir));
    if !relative || path.starts_with('~') || above.len() > limit::IMPORT_DEPTH_MAX {
        return None;
    }
    let (real, text) =
        reader.import(&file.parent()?.join(given), |real| is_text(real) && !above.iter().any(|one| one == real))?;
    let inner = expand(reader, (&real, &text), above);
    Some(inner)
}

#[cfg(test)]
mod tests {
    use super::super::discover;
    use super::*;
    use std::fs;

    /// What `AGENTS.md` of a repository with these files says.
    fn told(files: &[(&str, &str)]) -> String {
        let home = tempfile::tempdir().unwrap();
        let top = home.path().canonicalize().unwrap();
        fs::write(top.join("outside.md"), "OUTSIDE").unwrap();
        let repo = top.join("repo");
        fs::create_dir(&repo).unwrap();
        for (path, text) in files {
            let path = repo.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            match text.strip_prefix("-> ") {
                Some(to) => std::os::unix::fs::symlink(to, path).unwrap(),
                None => fs::write(path, text).unwrap(),
            }
        }
        let found = discover(&[repo], &["AGENTS.md".to_owned()]);
        found.iter().map(|file| file.content.as_str()).collect()
    }

    #[test]
    fn a_line_that_is_a_path_is_the_text_of_that_file() {
        #[rustfmt::skip]
        let table: &[(&[(&str, &str)], &str)] = &[
            (&[("AGENTS.md", "a\n@docs/b.md\nc\n"), ("docs/b.md", "b\n\n")], "a\nb\nc\n"),
            (&[("AGENTS.md", "@docs/b.md"), ("docs/b.md", "@c.txt\nb"), ("docs/c.txt", "c")], "c\nb\n"),
            (&[("AGENTS.md", "  @./b.md  \n"), ("b.md", "@docs/../c.md"), ("c.md", "c"), ("docs/x", "")], "c\n"),
            (&[("AGENTS.md", "@NOTES\n"), ("NOTES", "n")], "n\n"),
            // What is no import, and what cannot be one.
            (&[("AGENTS.md", "see @b.md\n@b.md and\nme@b.md\n@\n"), ("b.md", "b")], "see @b.md\n@b.md and\nme@b.md\n@\n"),
            (&[("AGENTS.md", "```\n@b.md\n```\n@b.md\n"), ("b.md", "b")], "```\n@b.md\n```\nb\n"),
            (&[("AGENTS.md", "~~~~sh\n```\n@b.md\n~~~\n@b.md\n~~~~\n@b.md\n"), ("b.md", "b")], "~~~~sh\n```\n@b.md\n~~~\n@b.md\n~~~~\nb\n"),
            (&[("AGENTS.md", "@gone.md\n@../outside.md\n@/etc/hostname\n@~/x.md\n@link.md\n"), ("link.md", "-> ../outside.md")],
                "@gone.md\n@../outside.md\n@/etc/hostname\n@~/x.md\n@link.md\n"),
            (&[("AGENTS.md", "@.env\n@key.pem\n@dir\n@.hidden.md\n"), (".env", "S"), ("key.pem", "S"), ("dir/x", ""), (".hidden.md", "S")],
                "@.env\n@key.pem\n@dir\n@.hidden.md\n"),
            // In a circle, and twice.
            (&[("AGENTS.md", "@b.md\n"), ("b.md", "b\n@AGENTS.md\n@b.md\n")], "b\n@AGENTS.md\n@b.md\n"),
            (&[("AGENTS.md", "@b.md\n@b.md\n"), ("b.md", "b")], "b\n@b.md\n"),
        ];
        for (files, want) in table {
            assert_eq!(told(files), *want, "{files:?}");
        }
    }

    #[test]
    fn imports_have_an_end() {
        let names: Vec<(String, String)> =
            (0..20).map(|n| (format!("{n}.md"), format!("{n}\n@{}.md\n", n + 1))).collect();
        let mut files: Vec<(&str, &str)> = names.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        files.push(("AGENTS.md", "@0.md\n"));
        let deep = told(&files);
        assert!(deep.contains(&format!("@{}.md", limit::IMPORT_DEPTH_MAX)) && !deep.contains("\n10\n"), "{deep}");
        let many: Vec<(String, String)> = (0..200).map(|n| (format!("{n}.md"), format!("text {n}"))).collect();
        let mut files: Vec<(&str, &str)> = many.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        let all: String = (0..200).map(|n| format!("@{n}.md\n")).collect();
        files.push(("AGENTS.md", &all));
        let wide = told(&files);
        assert_eq!(wide.lines().filter(|line| line.starts_with("text ")).count(), limit::IMPORTS_MAX);
        assert_eq!(wide.lines().filter(|line| line.starts_with('@')).count(), 200 - limit::IMPORTS_MAX);
        let large = "x".repeat(limit::INSTRUCTION_FILE_BYTES_MAX);
        let names: Vec<String> = (0..9).map(|n| format!("{n}.md")).collect();
        let mut files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), large.as_str())).collect();
        files.push(("AGENTS.md", &all));
        assert!(told(&files).len() < limit::INSTRUCTION_FILES_BYTES_MAX + 5_000);
    }
}
