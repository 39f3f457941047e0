//! Patches of several files: read from text, and applied to texts. Pure: nothing here knows a file system.
//!
//! Two forms are read: the `*** Begin Patch` form, and unified diffs as `git diff` and `diff -u` write
//! them. Both are met as models write them: wrapped in a here-document or a code fence, with wrong line
//! counts, with lines that lost their trailing blanks or their indentation.
//!
//! Invariants: a chunk is applied at the one place where its old lines stand, or not at all; lines that it
//! keeps stay byte for byte as they are in the text, whatever the patch says of their blanks.

mod apply;
mod begin;
mod place;
mod report;
mod shell;
mod unified;
mod unwrap;

pub use apply::{Note, Patched, apply};
pub use place::Found;
pub use report::{ChunkError, ChunkProblem};
pub use shell::{Typed, typed};

use crate::base::limit;

/// A patch as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    /// How it was written.
    pub form: Form,
    /// What it does, in its order; at least one.
    pub files: Vec<FileChange>,
}

/// How a patch was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `*** Begin Patch`: places are told by lines alone.
    Begin,
    /// A unified diff: places are told by lines and their numbers.
    Unified,
}

/// What a patch does to one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// The file, as written.
    pub path: String,
    /// What happens to it.
    pub action: Action,
    /// The changes of its text, in order. Of an added file, all of its text.
    pub chunks: Vec<Chunk>,
    /// Whether it may be run afterwards. None: as before.
    pub executable: Option<bool>,
    /// The line of the patch that names it, from 1.
    pub line: usize,
}

/// What happens to a file, its text aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// It comes into being.
    Add,
    /// It goes away.
    Delete,
    /// It stays where it is.
    Update,
    /// It goes to another path.
    Move(String),
    /// It stays, and another path gets a changed copy.
    Copy(String),
}

impl FileChange {
    /// Every path that is touched.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        let to = match &self.action {
            Action::Move(to) | Action::Copy(to) => Some(to.as_str()),
            Action::Add | Action::Delete | Action::Update => None,
        };
        std::iter::once(self.path.as_str()).chain(to)
    }
}

/// Lines that stand together, and what becomes of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chunk {
    /// Lines behind which the chunk stands, outermost first (`@@ class A`).
    pub headers: Vec<String>,
    /// The number of its first old line, from 1, where the patch tells one; 0 in an empty file.
    pub old_start: Option<usize>,
    /// Its lines, in order.
    pub lines: Vec<ChunkLine>,
    /// It ends with the file.
    pub at_end: bool,
    /// Where it begins in the patch: a line, from 1.
    pub line: usize,
}

/// One line of a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkLine {
    /// What becomes of it.
    pub kind: LineKind,
    /// Its text. A carriage return at its end is part of it.
    pub text: String,
    /// Whether a line feed ends it.
    pub newline: bool,
}

/// What becomes of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineKind {
    /// It stays.
    Keep,
    /// It goes.
    Remove,
    /// It is new.
    Add,
}

impl ChunkLine {
    fn new(kind: LineKind, text: &str) -> Self {
        Self { kind, text: text.to_owned(), newline: true }
    }

    /// Whether it stands in the text before the change.
    fn is_old(&self) -> bool {
        match self.kind {
            LineKind::Keep | LineKind::Remove => true,
            LineKind::Add => false,
        }
    }

    /// The text without a carriage return at its end.
    fn bare(&self) -> &str {
        self.text.strip_suffix('\r').unwrap_or(&self.text)
    }
}

/// A patch that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// It is empty.
    #[error("the patch is empty")]
    Empty,
    /// It is longer than any that is read.
    #[error("the patch has {bytes} bytes, more than {most}", most = limit::PATCH_BYTES_MAX)]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// It is neither of the two forms.
    #[error("it is no patch: expected `*** Begin Patch` or a unified diff (`--- a/file`, `+++ b/file`, `@@ … @@`)")]
    NoPatch,
    /// It names no file.
    #[error("the patch changes no file")]
    NoFiles,
    /// It touches more files than any that is read.
    #[error("the patch touches more than {most} files", most = limit::PATCH_FILES_MAX)]
    TooManyFiles,
    /// A line is not what may stand there.
    #[error("line {line} of the patch: {what}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong, and what was expected.
        what: String,
    },
}

impl PatchError {
    fn at(line: usize, what: impl Into<String>) -> Self {
        Self::Line { line, what: what.into() }
    }
}

/// Reads a patch of either form.
///
/// # Errors
/// [`PatchError`]: what was expected, and at which line.
pub fn parse(text: &str) -> Result<Patch, PatchError> {
    if text.len() > limit::PATCH_BYTES_MAX {
        return Err(PatchError::TooLong { bytes: text.len() });
    }
    if text.trim().is_empty() {
        return Err(PatchError::Empty);
    }
    let lines = unwrap::lines(text);
    let (form, files) = if begin::is_begin(&lines) {
        (Form::Begin, begin::parse(&lines)?)
    } else if unified::is_unified(&lines) {
        (Form::Unified, unified::parse(&lines)?)
    } else {
        return Err(PatchError::NoPatch);
    };
    if files.is_empty() {
        return Err(PatchError::NoFiles);
    }
    if files.len() > limit::PATCH_FILES_MAX {
        return Err(PatchError::TooManyFiles);
    }
    Ok(Patch { form, files })
}

/// A line of the patch's text: its number from 1, and its text without its ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Source<'t> {
    number: usize,
    text: &'t str,
}

#[cfg(test)]
mod tests;
