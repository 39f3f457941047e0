//! Why a chunk has no place, in words that help to write it right.

use std::fmt::Write;

use super::{Chunk, ChunkLine, LineKind};
use crate::edit::lines::{Text, places};
use crate::edit::nearest::{self, NearLine};

/// Lines that are named of several places.
const LINES_SHOWN_MAX: usize = 10;
/// Comparisons of lines that are made to find the likeliest place.
const WORK_MAX: usize = 20_000_000;
/// Characters of a line that are shown.
const LINE_CHARS_MAX: usize = 160;

/// A chunk that cannot be applied.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("the change at line {line} of the patch {problem}")]
pub struct ChunkError {
    /// Where the chunk begins in the patch, from 1.
    pub line: usize,
    /// What is wrong.
    pub problem: ChunkProblem,
}

/// What is wrong with a chunk.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ChunkProblem {
    /// Its old lines stand nowhere.
    #[error("does not fit: its lines are not in the file{0}")]
    Missing(String),
    /// Its new lines stand there already.
    #[error(
        "does not fit: its old lines are not in the file, but its new ones are, at line {line}. Was it applied before?"
    )]
    Applied {
        /// Their first line, from 1.
        line: usize,
    },
    /// Its old lines stand at several places.
    #[error("is ambiguous: it fits at lines {}. Add lines around it, or a line `@@ …` that names the function or class", shown(.lines, *.count))]
    Several {
        /// Their first lines, from 1; the first few.
        lines: Vec<usize>,
        /// How many there are.
        count: usize,
    },
    /// No line is what a header says.
    #[error("follows `@@ {header}`, but the file has no such line{near}")]
    NoHeader {
        /// The header.
        header: String,
        /// The nearest lines, as the end of the sentence.
        near: String,
    },
    /// Its lines stand before its header only.
    #[error("does not fit behind its `@@` line: its lines are in the file at {}, before it", shown(.lines, *.count))]
    BeforeHeader {
        /// Their first lines, from 1; the first few.
        lines: Vec<usize>,
        /// How many there are.
        count: usize,
    },
    /// Its old lines stand only where a change before it stands.
    #[error(
        "overlaps a change before it: its lines are in the file at {}, but some of them belong to that change. Put what overlaps into one change, with each line once",
        shown(.lines, *.count)
    )]
    Taken {
        /// Their first lines, from 1; the first few.
        lines: Vec<usize>,
        /// How many there are.
        count: usize,
    },
    /// It says `*** End of File` and fits elsewhere.
    #[error("is marked `*** End of File`, but its lines are not the last of the file")]
    NotAtEnd,
    /// It has new lines only, and a number.
    #[error("has new lines only, and a line number alone is no place: add a line that stands before or after them")]
    NoContext,
}

impl ChunkProblem {
    pub(super) fn several(starts: &[usize]) -> Self {
        Self::Several { lines: first_lines(starts), count: starts.len() }
    }

    pub(super) fn before_header(starts: &[usize]) -> Self {
        Self::BeforeHeader { lines: first_lines(starts), count: starts.len() }
    }

    pub(super) fn taken(starts: &[usize]) -> Self {
        Self::Taken { lines: first_lines(starts), count: starts.len() }
    }

    pub(super) fn no_header(text: &Text<'_>, header: &str) -> Self {
        let near = nearest::find(text, &Text::new(header));
        Self::NoHeader { header: header.to_owned(), near: told(&near) }
    }
}

fn first_lines(starts: &[usize]) -> Vec<usize> {
    starts.iter().take(LINES_SHOWN_MAX).map(|start| start + 1).collect()
}

fn shown(lines: &[usize], count: usize) -> String {
    let mut text = lines.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    if count > lines.len() {
        let _infallible = write!(text, " and {} more", count - lines.len());
    }
    text
}

fn told(near: &[NearLine]) -> String {
    if near.is_empty() { String::new() } else { nearest::told(near) }
}

/// Why nothing was found: applied already, or where the likeliest place differs, or the nearest lines.
pub(super) fn miss(text: &Text<'_>, chunk: &Chunk) -> ChunkProblem {
    let lines: Vec<&str> = text.iter().map(str::trim).collect();
    let trimmed = |kind: LineKind| -> Vec<&str> {
        let wanted = |line: &&ChunkLine| line.kind == LineKind::Keep || line.kind == kind;
        chunk.lines.iter().filter(wanted).map(|line| line.text.trim()).collect()
    };
    let (old, new) = (trimmed(LineKind::Remove), trimmed(LineKind::Add));
    if old != new
        && new.iter().any(|line| !line.is_empty())
        && let Some(start) = places(&lines, &new, 1).first()
    {
        return ChunkProblem::Applied { line: start + 1 };
    }
    if let Some((start, differs)) = likeliest(&lines, &old) {
        let cut = |line: &str| line.chars().take(LINE_CHARS_MAX).collect::<String>();
        let there =
            lines.get(start + differs).map_or("the end of the file".to_owned(), |line| format!("{:?}", cut(line)));
        return ChunkProblem::Missing(format!(
            ". The likeliest place begins at line {}, but line {} is {there} there, and {:?} in the patch",
            start + 1,
            start + differs + 1,
            cut(old[differs]),
        ));
    }
    let old_text = old.join("\n");
    let near = nearest::find(text, &Text::new(&old_text));
    ChunkProblem::Missing(nearest::told(&near))
}

/// The place where most of the lines stand, and which of them is the first that does not. None: no place has half of
/// them, or it would take too long to find out.
fn likeliest(lines: &[&str], old: &[&str]) -> Option<(usize, usize)> {
    if lines.len().saturating_mul(old.len()) > WORK_MAX {
        return None;
    }
    let same = |start: usize| {
        let pairs = old.iter().zip(lines.get(start..).unwrap_or(&[]));
        pairs.filter(|(old, line)| old == line && !old.is_empty()).count()
    };
    let best = (0..lines.len()).max_by_key(|start| (same(*start), std::cmp::Reverse(*start)))?;
    let full = old.iter().filter(|line| !line.is_empty()).count();
    if same(best) * 2 < full || same(best) == 0 {
        return None;
    }
    let differs = old.iter().enumerate().position(|(at, old)| lines.get(best + at) != Some(old))?;
    Some((best, differs))
}
