//! Reads the `*** Begin Patch` form.
//!
//! Lenient where nothing can be lost by it: a missing first line, a blank line that lost its space, a
//! line of context that lost it. Strict where something may be: a patch without its last line may have
//! been cut.

use super::{Action, Chunk, ChunkLine, FileChange, LineKind, PatchError, Source};

const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";
const ADD: &str = "*** Add File:";
const DELETE: &str = "*** Delete File:";
const UPDATE: &str = "*** Update File:";
const MOVE: &str = "*** Move to:";
const END_OF_FILE: &str = "*** End of File";

/// Whether the text is of this form.
pub(super) fn is_begin(lines: &[Source<'_>]) -> bool {
    let Some(first) = lines.first() else { return false };
    let first = first.text.trim();
    first == BEGIN || [ADD, DELETE, UPDATE].iter().any(|marker| first.starts_with(marker))
}

/// Reads all files.
pub(super) fn parse(lines: &[Source<'_>]) -> Result<Vec<FileChange>, PatchError> {
    let Some(end) = lines.iter().rposition(|line| !line.text.trim().is_empty()) else { return Ok(Vec::new()) };
    if lines[end].text.trim() != END {
        let what = format!("the patch ends without `{END}`, so its end may be missing");
        return Err(PatchError::at(lines[end].number, what));
    }
    let begin = usize::from(lines[0].text.trim() == BEGIN);
    let mut reader = Reader { lines: &lines[begin..end.max(begin)], next: 0 };
    let mut files = Vec::new();
    while let Some(line) = reader.take() {
        if let Some(file) = reader.file(line)? {
            files.push(file);
        }
    }
    Ok(files)
}

struct Reader<'l, 't> {
    lines: &'l [Source<'t>],
    next: usize,
}

impl<'t> Reader<'_, 't> {
    fn peek(&self) -> Option<Source<'t>> {
        self.lines.get(self.next).copied()
    }

    fn take(&mut self) -> Option<Source<'t>> {
        let line = self.peek()?;
        self.next += 1;
        Some(line)
    }

    /// The next line, unless it begins something else.
    fn take_body(&mut self) -> Option<Source<'t>> {
        let line = self.peek()?;
        let marker = line.text.starts_with("*** ") && line.text.trim_end() != END_OF_FILE;
        if marker { None } else { self.take() }
    }

    /// The file that `line` names; None for a blank line.
    fn file(&mut self, line: Source<'t>) -> Result<Option<FileChange>, PatchError> {
        let text = line.text.trim();
        if text.is_empty() {
            return Ok(None);
        }
        let (path, action, chunks) = if let Some(path) = text.strip_prefix(ADD) {
            (path, Action::Add, self.added()?)
        } else if let Some(path) = text.strip_prefix(DELETE) {
            (path, Action::Delete, Vec::new())
        } else if let Some(path) = text.strip_prefix(UPDATE) {
            let action = self.moved()?;
            (path, action, self.chunks()?)
        } else {
            let expected = format!("expected `{ADD} …`, `{DELETE} …`, `{UPDATE} …` or `{END}`");
            let got = crate::base::text::head(text, 80);
            return Err(PatchError::at(line.number, format!("{expected}, got {got:?}")));
        };
        if action == Action::Update && chunks.is_empty() {
            return Err(PatchError::at(line.number, "this file is to be updated, but no change follows"));
        }
        let path = path_of(path, line)?;
        Ok(Some(FileChange { path, action, chunks, executable: None, line: line.number }))
    }

    fn moved(&mut self) -> Result<Action, PatchError> {
        let Some(line) = self.peek() else { return Ok(Action::Update) };
        let Some(to) = line.text.trim().strip_prefix(MOVE) else { return Ok(Action::Update) };
        self.next += 1;
        Ok(Action::Move(path_of(to, line)?))
    }

    /// The lines of a new file: one chunk, or none for an empty file.
    fn added(&mut self) -> Result<Vec<Chunk>, PatchError> {
        let mut chunk = Chunk { line: self.peek().map_or(0, |line| line.number), ..Chunk::default() };
        let mut blank = 0;
        while let Some(line) = self.take_body() {
            match line.text.strip_prefix('+') {
                Some(text) => {
                    // Blank lines between two lines have lost their sign; those at the end are no lines.
                    chunk.lines.extend((0..blank).map(|_| ChunkLine::new(LineKind::Add, "")));
                    blank = 0;
                    chunk.lines.push(ChunkLine::new(LineKind::Add, text));
                }
                None if line.text.trim().is_empty() => blank += 1,
                None if line.text.trim_end() == END_OF_FILE => {}
                None if is_no_newline(line.text) => lose_newline(&mut chunk),
                None => {
                    let what = "every line of a new file begins with `+`";
                    return Err(PatchError::at(line.number, format!("{what}, this one does not")));
                }
            }
        }
        Ok(if chunk.lines.is_empty() { Vec::new() } else { vec![chunk] })
    }

    fn chunks(&mut self) -> Result<Vec<Chunk>, PatchError> {
        self.skip_diff_header();
        let mut chunks: Vec<Chunk> = Vec::new();
        let mut chunk = Chunk::default();
        while let Some(line) = self.take_body() {
            if let Some(header) = line.text.strip_prefix("@@") {
                if !chunk.lines.is_empty() {
                    chunks.push(std::mem::take(&mut chunk));
                }
                start_at(&mut chunk, header, line);
                continue;
            }
            if chunk.line == 0 {
                if line.text.trim().is_empty() {
                    continue;
                }
                chunk.line = line.number;
            }
            if line.text.trim_end() == END_OF_FILE {
                chunk.at_end = true;
                chunks.push(std::mem::take(&mut chunk));
            } else if is_no_newline(line.text) {
                lose_newline(&mut chunk);
            } else {
                chunk.lines.push(line_of(line.text));
            }
        }
        if chunk.line > 0 {
            chunks.push(chunk);
        }
        match chunks.iter().find(|chunk| chunk.lines.is_empty()) {
            Some(chunk) => {
                Err(PatchError::at(chunk.line, "no lines follow: expected lines that begin with ` `, `-` or `+`"))
            }
            None => Ok(chunks),
        }
    }

    /// Some write the two header lines of a unified diff below the file's name.
    fn skip_diff_header(&mut self) {
        let at = |index: usize| self.lines.get(self.next + index).map_or("", |line| line.text);
        if at(0).starts_with("--- ") && at(1).starts_with("+++ ") {
            self.next += 2;
        }
    }
}

/// Takes over what stands behind `@@`: a line of the file, or line numbers.
fn start_at(chunk: &mut Chunk, header: &str, line: Source<'_>) {
    if chunk.line == 0 {
        chunk.line = line.number;
    }
    if let Some(numbers) = super::unified::hunk_numbers(line.text) {
        chunk.old_start = numbers.old_start;
        return;
    }
    let header = header.strip_suffix("@@").unwrap_or(header);
    let header = header.strip_prefix(' ').unwrap_or(header).trim_end();
    if !header.trim().is_empty() {
        chunk.headers.push(header.to_owned());
    }
}

fn line_of(text: &str) -> ChunkLine {
    let kinds = [(' ', LineKind::Keep), ('-', LineKind::Remove), ('+', LineKind::Add)];
    let known = kinds.iter().find_map(|(sign, kind)| Some((text.strip_prefix(*sign)?, *kind)));
    // A line without a sign can only be context: if it is not in the file, the chunk has no place.
    let (text, kind) = known.unwrap_or((text, LineKind::Keep));
    ChunkLine::new(kind, text)
}

/// Whether this is the line by which diffs say that a file's last line has no line feed.
pub(super) fn is_no_newline(text: &str) -> bool {
    text.starts_with("\\ ")
}

pub(super) fn lose_newline(chunk: &mut Chunk) {
    if let Some(last) = chunk.lines.last_mut() {
        last.newline = false;
    }
}

fn path_of(text: &str, line: Source<'_>) -> Result<String, PatchError> {
    match text.trim() {
        "" => Err(PatchError::at(line.number, "no path follows")),
        path => Ok(path.to_owned()),
    }
}
