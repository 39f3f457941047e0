//! Reads unified diffs, as `git diff`, `git show`, `git format-patch` and `diff -u` write them.
//!
//! Whatever stands between the files' diffs (a commit's message) is passed over, as git does. Line
//! counts in `@@ -a,b +c,d @@` are believed as far as the lines agree with them: models count badly.

use super::begin::{is_no_newline, lose_newline};
use super::{Action, Chunk, ChunkLine, FileChange, LineKind, PatchError, Source};

const GIT: &str = "diff --git ";
const NOWHERE: &str = "/dev/null";
/// What tools put in front of the two names of a pair.
const PREFIXES: [(&str, &str); 8] =
    [("a/", "b/"), ("b/", "a/"), ("i/", "w/"), ("w/", "i/"), ("c/", "i/"), ("c/", "w/"), ("o/", "w/"), ("1/", "2/")];

/// Whether the text is of this form.
pub(super) fn is_unified(lines: &[Source<'_>]) -> bool {
    (0..lines.len()).any(|index| starts_file(lines, index))
}

fn starts_file(lines: &[Source<'_>], index: usize) -> bool {
    lines[index].text.starts_with(GIT) || starts_names(lines, index)
}

fn starts_names(lines: &[Source<'_>], index: usize) -> bool {
    let line = |index: usize| lines.get(index).map_or("", |line| line.text);
    line(index).starts_with("--- ") && line(index + 1).starts_with("+++ ")
}

/// What `@@ -a,b +c,d @@` tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Numbers {
    /// None: no number is told (`@@ ... @@`).
    pub old_start: Option<usize>,
    old_count: usize,
    new_count: usize,
}

/// Reads the first line of a hunk. None when it is none.
pub(super) fn hunk_numbers(line: &str) -> Option<Numbers> {
    let inside = line.strip_prefix("@@")?.trim_start();
    let (inside, _section) = inside.split_once("@@")?;
    let (old, new) = inside.trim().strip_prefix('-')?.split_once(" +")?;
    let pair = |text: &str| {
        let (start, count) = text.trim().split_once(',').unwrap_or((text.trim(), "1"));
        Some((start.parse::<usize>().ok()?, count.parse::<usize>().ok()?))
    };
    let ((old_start, old_count), (_, new_count)) = (pair(old)?, pair(new)?);
    Some(Numbers { old_start: Some(old_start), old_count, new_count })
}

/// Reads all files.
pub(super) fn parse(lines: &[Source<'_>]) -> Result<Vec<FileChange>, PatchError> {
    let mut reader = Reader { lines, next: 0 };
    let mut files = Vec::new();
    while reader.next < lines.len() {
        let line = lines[reader.next];
        if starts_file(lines, reader.next) {
            files.push(reader.file()?);
        } else if hunk_numbers(line.text).is_some() {
            return Err(PatchError::at(
                line.number,
                "a hunk without the lines `--- a/file` and `+++ b/file` before it",
            ));
        } else if line.text.starts_with("diff --cc ") || line.text.starts_with("diff --combined ") {
            return Err(PatchError::at(line.number, "the combined diff of a merge cannot be applied"));
        } else {
            reader.next += 1;
        }
    }
    Ok(files)
}

/// What the lines before the hunks say of a file.
#[derive(Default)]
struct Head {
    /// The pair of names as written, prefixes and all.
    git: Option<(String, String)>,
    names: Option<(String, String)>,
    from: Option<String>,
    to: Option<String>,
    copied: bool,
    added: bool,
    deleted: bool,
    executable: Option<bool>,
}

struct Reader<'l, 't> {
    lines: &'l [Source<'t>],
    next: usize,
}

impl<'t> Reader<'_, 't> {
    fn file(&mut self) -> Result<FileChange, PatchError> {
        let first = self.lines[self.next];
        let head = self.head()?;
        let mut chunks = Vec::new();
        while let Some(line) = self.lines.get(self.next) {
            let numbers = hunk_numbers(line.text);
            if numbers.is_none() && !line.text.starts_with("@@") {
                break;
            }
            self.next += 1;
            chunks.push(self.hunk(numbers, *line)?);
        }
        file_of(head, chunks, first)
    }

    fn head(&mut self) -> Result<Head, PatchError> {
        let mut head = Head::default();
        if let Some(names) = self.lines[self.next].text.strip_prefix(GIT) {
            head.git = git_names(names);
            self.next += 1;
        }
        while let Some(line) = self.lines.get(self.next) {
            if starts_names(self.lines, self.next) {
                let name = |text: &str| name_of(&text[4..]).ok_or_else(|| bad_name(*line));
                head.names = Some((name(line.text)?, name(self.lines[self.next + 1].text)?));
                self.next += 2;
                break;
            }
            if !extended(&mut head, *line)? {
                break;
            }
            self.next += 1;
        }
        Ok(head)
    }

    /// The lines of a hunk, its first one read.
    fn hunk(&mut self, numbers: Option<Numbers>, first: Source<'t>) -> Result<Chunk, PatchError> {
        let mut chunk =
            Chunk { old_start: numbers.and_then(|numbers| numbers.old_start), line: first.number, ..Chunk::default() };
        // Without counts: as far as the lines look like it.
        let (mut old, mut new) = numbers.map_or((0, 0), |numbers| (numbers.old_count, numbers.new_count));
        while let Some(line) = self.lines.get(self.next) {
            if is_no_newline(line.text) {
                lose_newline(&mut chunk);
                self.next += 1;
                continue;
            }
            let Some(read) = self.hunk_line((old, new)) else { break };
            old = old.saturating_sub(usize::from(read.kind != LineKind::Add));
            new = new.saturating_sub(usize::from(read.kind != LineKind::Remove));
            chunk.lines.push(read);
            self.next += 1;
        }
        if chunk.lines.is_empty() {
            return Err(PatchError::at(
                first.number,
                "no lines follow: expected lines that begin with ` `, `-` or `+`",
            ));
        }
        Ok(chunk)
    }

    /// The next line as one of a hunk that lacks so many old and new lines. None when the hunk is over.
    fn hunk_line(&self, lacking: (usize, usize)) -> Option<ChunkLine> {
        let counted = lacking != (0, 0);
        let text = self.lines[self.next].text;
        let kind = match text.as_bytes().first() {
            // The line feed of a blank line is often all that is left of it.
            None | Some(b'\r') if counted || self.goes_on() => return Some(ChunkLine::new(LineKind::Keep, text)),
            Some(b' ') => LineKind::Keep,
            Some(b'+') => LineKind::Add,
            // A signature, or the next file.
            Some(b'-') if !counted && (text.trim_end() == "--" || starts_names(self.lines, self.next)) => return None,
            // Names and a hunk are the next file, unless these two lines are the very ones that are lacking.
            Some(b'-') if lacking != (1, 1) && starts_names(self.lines, self.next) && self.starts_hunk(2) => {
                return None;
            }
            Some(b'-') => LineKind::Remove,
            _ => return None,
        };
        Some(ChunkLine::new(kind, &text[1..]))
    }

    fn starts_hunk(&self, further: usize) -> bool {
        self.lines.get(self.next + further).is_some_and(|line| hunk_numbers(line.text).is_some())
    }

    /// Whether the lines after a blank one still belong to the hunk.
    fn goes_on(&self) -> bool {
        let rest = &self.lines[self.next..];
        let Some(at) = rest.iter().position(|line| !line.text.trim().is_empty()) else { return false };
        let next = rest[at].text;
        next.starts_with([' ', '+', '-']) && next.trim_end() != "--" && !starts_names(self.lines, self.next + at)
    }
}

/// One of the lines that git puts between the names and the hunks. False when it is none.
fn extended(head: &mut Head, line: Source<'_>) -> Result<bool, PatchError> {
    let text = line.text;
    let refused = |what: &str| Err(PatchError::at(line.number, what));
    if text.starts_with("GIT binary patch") || text.starts_with("Binary files ") {
        return refused("a binary patch cannot be applied here: use `git apply` for it");
    }
    let name = |text: &str| name_of(text).ok_or_else(|| bad_name(line));
    let rest = |prefix: &str| text.strip_prefix(prefix);
    if let Some(mode) = rest("new file mode ") {
        head.added = true;
        head.executable = Some(mode_of(mode, line)?);
    } else if let Some(mode) = rest("deleted file mode ") {
        head.deleted = true;
        mode_of(mode, line)?;
    } else if let Some(mode) = rest("new mode ") {
        head.executable = Some(mode_of(mode, line)?);
    } else if let Some(mode) = rest("old mode ") {
        mode_of(mode, line)?;
    } else if let Some(from) = rest("rename from ").or_else(|| rest("rename old ")) {
        head.from = Some(name(from)?);
    } else if let Some(to) = rest("rename to ").or_else(|| rest("rename new ")) {
        head.to = Some(name(to)?);
    } else if let Some(from) = rest("copy from ") {
        (head.from, head.copied) = (Some(name(from)?), true);
    } else if let Some(to) = rest("copy to ") {
        head.to = Some(name(to)?);
    } else if let Some(mode) = rest("index ").and_then(|rest| rest.split(' ').nth(1)) {
        // The mode of a file whose content alone changes.
        mode_of(mode, line)?;
    } else {
        return Ok(["index ", "similarity index ", "dissimilarity index "].iter().any(|word| text.starts_with(word)));
    }
    Ok(true)
}

/// Whether the mode is that of a file that may be run.
fn mode_of(mode: &str, line: Source<'_>) -> Result<bool, PatchError> {
    match mode.trim() {
        "100644" | "100664" => Ok(false),
        "100755" => Ok(true),
        "120000" => Err(PatchError::at(line.number, "symbolic links are not patched")),
        "160000" => Err(PatchError::at(line.number, "submodules are not patched")),
        other => Err(PatchError::at(line.number, format!("`{other}` is not the mode of a file"))),
    }
}

fn bad_name(line: Source<'_>) -> PatchError {
    PatchError::at(line.number, "a file's name could not be read")
}

/// A name as it stands after `--- `: quoted, or up to a tab.
fn name_of(text: &str) -> Option<String> {
    if text.starts_with('"') {
        return unquoted(text).map(|(name, _)| name);
    }
    let name = text.split('\t').next().unwrap_or(text).trim_end_matches(['\r']);
    (!name.is_empty()).then(|| name.to_owned())
}

/// A name in C's quotes, and what follows it.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let inside = text.strip_prefix('"')?;
    let bytes = inside.as_bytes();
    let mut name = Vec::new();
    let mut at = 0;
    loop {
        let byte = *bytes.get(at)?;
        at += 1;
        match byte {
            b'"' => return Some((String::from_utf8(name).ok()?, inside.get(at..)?)),
            b'\\' => {
                let escape = *bytes.get(at)?;
                at += 1;
                name.push(match escape {
                    b'a' => 7,
                    b'b' => 8,
                    b't' => b'\t',
                    b'n' => b'\n',
                    b'v' => 11,
                    b'f' => 12,
                    b'r' => b'\r',
                    b'"' | b'\\' => escape,
                    b'0'..=b'3' => {
                        let digits = inside.get(at - 1..at + 2)?;
                        at += 2;
                        u8::from_str_radix(digits, 8).ok()?
                    }
                    _ => return None,
                });
            }
            byte => name.push(byte),
        }
    }
}

/// The two names of a `diff --git` line. Without quotes they have no border but that they are the same.
fn git_names(text: &str) -> Option<(String, String)> {
    let text = text.trim_end_matches('\r');
    if text.starts_with('"') {
        let (old, rest) = unquoted(text)?;
        return Some((old, name_of(rest.strip_prefix(' ')?)?));
    }
    if let Some(at) = text.find(" \"") {
        return Some((text[..at].to_owned(), unquoted(&text[at + 1..])?.0));
    }
    let borders = text.match_indices(' ').map(|(at, _)| (&text[..at], &text[at + 1..]));
    let same = |(old, new): &(&str, &str)| {
        let (old, new) = stripped(old, new);
        old == new
    };
    let (old, new) = borders.clone().find(same).or_else(|| borders.clone().next())?;
    Some((old.to_owned(), new.to_owned()))
}

/// Both names without what tools put in front of them.
fn stripped<'n>(old: &'n str, new: &'n str) -> (&'n str, &'n str) {
    let pair = |(a, b): &(&str, &str)| match (old == NOWHERE, new == NOWHERE) {
        (false, false) => Some((old.strip_prefix(a)?, new.strip_prefix(b)?)),
        (true, false) => Some((old, new.strip_prefix(b)?)),
        (false, true) => Some((old.strip_prefix(a)?, new)),
        (true, true) => None,
    };
    // Of one name alone only the usual prefix is believed to be one.
    let usual = usize::from(old == NOWHERE || new == NOWHERE);
    let known = if usual == 1 { &PREFIXES[..1] } else { &PREFIXES[..] };
    known.iter().find_map(pair).unwrap_or((old, new))
}

fn file_of(head: Head, chunks: Vec<Chunk>, first: Source<'_>) -> Result<FileChange, PatchError> {
    let Some((old, new)) = head.names.as_ref().or(head.git.as_ref()) else { return Err(bad_name(first)) };
    let (old, new) = stripped(old, new);
    let moved = head.from.is_some() || head.to.is_some();
    let added = head.added || old == NOWHERE;
    let deleted = head.deleted || new == NOWHERE;
    let existing = if deleted { old } else { new };
    let (path, action) = match (added, deleted, moved) {
        (true, true, _) => return Err(PatchError::at(first.number, "a file cannot be both added and deleted")),
        (true, false, _) => (new.to_owned(), Action::Add),
        (false, true, _) => (existing.to_owned(), Action::Delete),
        (false, false, false) => (existing.to_owned(), Action::Update),
        (false, false, true) => {
            let (Some(from), Some(to)) = (head.from, head.to) else { return Err(bad_name(first)) };
            (from, if head.copied { Action::Copy(to) } else { Action::Move(to) })
        }
    };
    if action == Action::Update && chunks.is_empty() && head.executable.is_none() {
        return Err(PatchError::at(first.number, format!("no change of `{path}` follows")));
    }
    let executable = if deleted { None } else { head.executable };
    let change = FileChange { path, action, chunks, executable, line: first.number };
    // `+++ b/` and `""` are what is left of a name.
    if change.paths().any(str::is_empty) { Err(bad_name(first)) } else { Ok(change) }
}
