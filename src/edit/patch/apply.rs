//! Applies the chunks of one file to its text.

use super::place::{Found, Lines, Place, Seen, find};
use super::report::ChunkError;
use super::{Chunk, ChunkLine, Form, LineKind};
use crate::edit::BOM;
use crate::edit::indent::reindent;
use crate::edit::lines::Text;

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patched {
    /// The whole new text.
    pub text: String,
    /// For each chunk where it went, in the order of the patch.
    pub notes: Vec<Note>,
}

/// Where a chunk went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Note {
    /// Its first line in the old text, from 1.
    pub line: usize,
    /// How it was found.
    pub found: Found,
}

/// Applies `chunks`, all or none. `content` is empty for a file that comes into being.
///
/// New lines take over the line endings of their place, and its indentation where that was found to be another one;
/// the end of the text stays as it is, with a line feed or without. Where the patch was found byte for byte, its own
/// endings count.
///
/// # Errors
/// [`ChunkError`] of the first chunk that has no place, or several.
pub fn apply(content: &str, chunks: &[Chunk], form: Form) -> Result<Patched, ChunkError> {
    if content.is_empty() && chunks.iter().all(|chunk| chunk.lines.iter().all(|line| line.kind == LineKind::Add)) {
        return Ok(written(chunks));
    }
    let text = Text::new(content);
    let lines = Lines::new(&text);
    let mut taken: Vec<Place> = Vec::with_capacity(chunks.len());
    let mut drift = 0;
    for chunk in chunks {
        let place = find(&lines, chunk, &Seen { form, taken: &taken, drift })?;
        if let Some(start) = chunk.old_start.filter(|start| *start > 0 && place.count > 0) {
            drift = place.start.cast_signed() - (start - 1).cast_signed();
        }
        taken.push(place);
    }
    let notes = taken.iter().map(|place| Note { line: place.start + 1, found: place.found }).collect();
    let mut order: Vec<(&Place, &Chunk)> = taken.iter().zip(chunks).collect();
    order.sort_by_key(|(place, _)| place.start);
    Ok(Patched { text: spliced(&text, &order), notes })
}

/// The text of a new file.
fn written(chunks: &[Chunk]) -> Patched {
    let mut text = String::new();
    for line in chunks.iter().flat_map(|chunk| &chunk.lines) {
        text.push_str(&line.text);
        if line.newline {
            text.push('\n');
        }
    }
    Patched { text, notes: chunks.iter().map(|_| Note { line: 1, found: Found::Literal }).collect() }
}

fn spliced(text: &Text<'_>, order: &[(&Place, &Chunk)]) -> String {
    let mut out = Output { text, out: String::with_capacity(text.text.len()), own_start: false, own_end: false };
    let mut next = 0;
    for (place, chunk) in order {
        (next..place.start).for_each(|index| out.line(index));
        out.chunk(place, chunk);
        next = place.start + place.count;
    }
    (next..text.lines.len()).for_each(|index| out.line(index));
    out.finish()
}

struct Output<'o, 't> {
    text: &'o Text<'t>,
    out: String,
    /// The patch itself says how the text begins.
    own_start: bool,
    /// The patch itself says how the text ends.
    own_end: bool,
}

impl Output<'_, '_> {
    /// A line of the old text, as it is.
    fn line(&mut self, index: usize) {
        self.close_line(index);
        let line = self.text.lines[index];
        let raw = &self.text.text[line.start..line.next];
        // A byte order mark belongs to the text, not to what was its first line.
        let moved = !self.own_start && !self.out.is_empty();
        self.out.push_str(if moved && index == 0 { raw.strip_prefix(BOM).unwrap_or(raw) } else { raw });
    }

    /// Ends the last line, where something follows that it did not expect.
    fn close_line(&mut self, near: usize) {
        if !self.out.is_empty() && !self.out.ends_with('\n') {
            self.out.push_str(self.ending(near));
        }
    }

    fn chunk(&mut self, place: &Place, chunk: &Chunk) {
        let literal = place.found == Found::Literal;
        self.own_start |= literal && place.start == 0;
        let mut new = if literal { Vec::new() } else { self.reindented(place, chunk) }.into_iter();
        let mut at = place.start;
        for line in &chunk.lines[..place.lines] {
            match line.kind {
                LineKind::Keep => {
                    self.line(at);
                    at += 1;
                    new.next();
                }
                LineKind::Remove => at += 1,
                LineKind::Add => {
                    let near = at.saturating_sub(1);
                    self.close_line(near);
                    if literal {
                        self.out.push_str(&line.text);
                        self.out.push_str(if line.newline { "\n" } else { "" });
                    } else {
                        self.out.push_str(&new.next().unwrap_or_default());
                        self.out.push_str(self.ending(near));
                    }
                }
            }
        }
        if place.start + place.count == self.text.lines.len() {
            self.own_end = literal;
        }
    }

    /// The lines after the change, indented as their place is. For kept lines the text's own lines are taken instead.
    fn reindented(&self, place: &Place, chunk: &Chunk) -> Vec<String> {
        let lines = || chunk.lines[..place.lines].iter();
        let bare = |line: &'_ ChunkLine| line.bare().trim_start_matches(BOM).to_owned();
        let old: Vec<String> = lines().filter(|line| line.is_old()).map(bare).collect();
        let new: Vec<String> = lines().filter(|line| line.kind != LineKind::Remove).map(bare).collect();
        let old: Vec<&str> = old.iter().map(String::as_str).collect();
        let new: Vec<&str> = new.iter().map(String::as_str).collect();
        let there = |index| Some(self.text.line(index).trim_start_matches(BOM));
        let there: Vec<Option<&str>> = (place.start..place.start + place.count).map(there).collect();
        reindent(&old, &there, &new)
    }

    /// The line ending at line `index`: its own, or that of the nearest line before it, or after it.
    fn ending(&self, index: usize) -> &'static str {
        let of = |index: usize| {
            let line = self.text.lines.get(index)?;
            match line.next - line.end {
                0 => None,
                1 => Some("\n"),
                _ => Some("\r\n"),
            }
        };
        let before = (0..=index.min(self.text.lines.len())).rev().find_map(of);
        before.or_else(|| (index..self.text.lines.len()).find_map(of)).unwrap_or("\n")
    }

    /// The end of the text as it was, with a line feed or without; its byte order mark where it was.
    fn finish(mut self) -> String {
        let before = self.text.text;
        if !self.own_end && !before.is_empty() && !before.ends_with('\n') && self.out.ends_with('\n') {
            self.out.pop();
            if self.out.ends_with('\r') {
                self.out.pop();
            }
        } else if !self.own_end && before.ends_with('\n') && !self.out.is_empty() {
            self.close_line(self.text.lines.len());
        }
        if !self.own_start && before.starts_with(BOM) && !self.out.starts_with(BOM) {
            self.out.insert(0, BOM);
        }
        self.out
    }
}
