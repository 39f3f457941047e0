//! Takes a command line apart into its simple commands.
//!
//! Every command that the line can start is a [`Part`]: also those in substitutions, subshells, loops and
//! function bodies. A command hidden in another one's arguments (`sudo rm x`, `sh -c 'rm x'`) is a
//! *shadow*: good for finding what is denied, never for allowing.
//!
//! The line may be run by any POSIX-like shell, so what shells read differently is read by nobody:
//! `[[ ]]`, `(( ))`, `coproc`, `$'…'` and their kind are opaque.
//!
//! Invariant: what is not understood becomes an opaque part, and is never left out.

mod launch;
mod plain;
mod script;
mod sign;
mod special;
mod walk;
mod word;
mod wrap;
mod written;

pub(super) use special::GIT_VALUE_OPTIONS;
pub use written::{WrittenPath, written_paths};

use std::borrow::Cow;
use std::fmt::Write;

/// Stands in a word for what only the shell will know: the value of a variable, the files of a glob.
pub(super) const UNKNOWN: char = '\u{F8FF}';

/// More commands than this in one line are not judged one by one.
const PARTS_MAX: usize = 256;
/// Command lines inside command lines (`sh -c 'sh -c …'`) are followed so far.
const DEPTH_MAX: usize = 4;

/// One simple command.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Part {
    /// Variables set in front of it, or by it when it has no words.
    pub(super) assignments: Vec<(String, String)>,
    /// The program and its arguments, quoting removed.
    pub(super) words: Vec<String>,
    /// Where it writes, and what else of its redirections is not harmless.
    pub(super) redirects: Vec<Redirect>,
    /// The files that it is given to read by `<`: like arguments, for whoever denies them.
    pub(super) reads: Vec<String>,
    /// No pattern covers it: it runs what nobody has seen, or it cannot be read.
    pub(super) opaque: bool,
    /// It runs other commands: only a pattern that spells this many of its words covers it. 0: any pattern may.
    pub(super) spell: usize,
    /// What may be hidden in it, when it is not opaque.
    pub(super) hides: Vec<Part>,
    /// How what is unknown in it stands in the line, quoting removed.
    pub(super) typed: Vec<(Spot, String)>,
    /// Words whose front is known, and behind which the shell may make further ones.
    pub(super) apart: Vec<usize>,
    /// What it reads stands in the line, and was looked at: a here-document, a here-string.
    pub(super) fed: bool,
}

/// A place in a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Spot {
    /// This one of its words.
    Word(usize),
    /// The value of this one of its assignments.
    Value(usize),
    /// The file of this one of its redirections.
    Target(usize),
}

/// One redirection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Redirect {
    /// Such as `>` or `2>>`.
    pub(super) operator: String,
    /// The file.
    pub(super) target: String,
}

/// A command line, taken apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) parts: Vec<Part>,
    pub(super) shadows: Vec<Part>,
    /// Commands that launchers among the parts start for certain, such as `rm x` of `sudo rm x`. Also among the shadows.
    pub(super) inner: Vec<Part>,
    /// The values that its loops go through, of each by name; without those that only the shell will know.
    pub(super) loops: Vec<(String, Vec<String>)>,
    /// A function in it calls itself again and again.
    pub(super) bomb: bool,
}

/// Builtins that set variables.
const SETTERS: [&str; 5] = ["declare", "export", "local", "readonly", "typeset"];

impl Part {
    fn of(words: Vec<String>) -> Self {
        Self { words, ..Self::default() }
    }

    /// Something that is not understood.
    fn unreadable() -> Self {
        Self { words: vec![UNKNOWN.to_string()], opaque: true, ..Self::default() }
    }

    /// Whether nothing at all is known of it.
    pub(super) fn is_unreadable(&self) -> bool {
        self.opaque && self.words.len() == 1 && self.words[0].chars().all(|c| c == UNKNOWN)
    }

    /// Program and arguments as one text, one space between any two.
    pub(super) fn text(&self) -> String {
        self.words.join(" ")
    }

    /// The program's name, when it is known. Without its directory.
    pub(super) fn program(&self) -> Option<&str> {
        let word = self.words.first()?;
        let name = word.rsplit('/').next().unwrap_or(word);
        (!name.contains(UNKNOWN)).then_some(name)
    }

    /// How something in it stands in the line. None: all of it is known, or nothing.
    pub(super) fn typed_at(&self, spot: Spot) -> Option<&str> {
        self.typed.iter().find_map(|(at, text)| (*at == spot).then_some(text.as_str()))
    }

    /// Program and arguments as they stand in the line, quoting removed. None: they are known, all of them, or nobody
    /// knows how they stand there.
    pub(super) fn typed_text(&self) -> Option<String> {
        if self.typed.is_empty() {
            return None;
        }
        let text = self.typed_words();
        (!text.contains(UNKNOWN)).then_some(text)
    }

    fn typed_words(&self) -> String {
        let word = |(at, word): (usize, &String)| self.typed_at(Spot::Word(at)).unwrap_or(word).to_owned();
        self.words.iter().enumerate().map(word).collect::<Vec<_>>().join(" ")
    }

    /// The whole of it for people, as it was typed; `…` for what stands nowhere in the line.
    pub(super) fn shown(&self) -> String {
        let mut text = String::new();
        for (at, (name, value)) in self.assignments.iter().enumerate() {
            let _infallible = write!(text, "{name}={} ", self.typed_at(Spot::Value(at)).unwrap_or(value));
        }
        text.push_str(&self.typed_words());
        for (at, redirect) in self.redirects.iter().enumerate() {
            let target = self.typed_at(Spot::Target(at)).unwrap_or(&redirect.target);
            let _infallible = write!(text, " {} {target}", redirect.operator);
        }
        text.trim().replace(UNKNOWN, "…")
    }

    /// The arguments as the program may get them: behind a word that the shell may take apart stands any other.
    fn arguments(&self) -> Cow<'_, [String]> {
        let known = self.words.get(1..).unwrap_or_default();
        if self.apart.is_empty() {
            return Cow::Borrowed(known);
        }
        let mut all = Vec::with_capacity(known.len() + self.apart.len());
        // What follows a name and `=` is not taken apart by the builtins that set variables, where it could do harm.
        let sets = self.program().is_some_and(|name| SETTERS.contains(&name));
        let is_value = |word: &str| sets && word.split(UNKNOWN).next().is_some_and(|front| front.contains('='));
        for (at, word) in self.words.iter().enumerate().skip(1) {
            all.push(word.clone());
            if self.apart.contains(&at) && !is_value(word) {
                all.push(UNKNOWN.to_string());
            }
        }
        Cow::Owned(all)
    }

    pub(super) fn has_unknown(&self) -> bool {
        let redirects = self.redirects.iter().map(|r| &r.target);
        let values = self.assignments.iter().map(|(_, value)| value);
        self.words.iter().chain(redirects).chain(values).any(|text| text.contains(UNKNOWN))
    }
}

impl Line {
    /// Takes a command line apart. Cannot fail: what is not understood is an opaque part.
    pub(super) fn parse(command: &str) -> Self {
        Self::parse_at(command, 0)
    }

    fn parse_at(command: &str, depth: usize) -> Self {
        let mut line = plain::parse(command).unwrap_or_else(|| walk::parse(command, depth));
        wrap::find_shadows(&mut line, depth);
        if line.parts.len() > PARTS_MAX || line.shadows.len() > PARTS_MAX {
            line.parts.truncate(PARTS_MAX);
            line.shadows.truncate(PARTS_MAX);
            line.parts.push(Part::unreadable());
        }
        line
    }

    /// Takes over what another line runs.
    fn take(&mut self, other: Self) {
        self.parts.extend(other.parts);
        self.shadows.extend(other.shadows);
        self.inner.extend(other.inner);
        self.loops.extend(other.loops);
        self.bomb |= other.bomb;
    }

    /// All commands of it, as what may be hidden in another one.
    fn hidden(self) -> impl Iterator<Item = Part> {
        let parts = self.parts.into_iter().flat_map(|mut part| {
            let hides = std::mem::take(&mut part.hides);
            std::iter::once(part).chain(hides)
        });
        parts.chain(self.shadows)
    }

    /// A line that is not understood. Whatever in it may be a command is a shadow.
    fn unreadable(command: &str) -> Self {
        let (shadows, inner) = (wrap::fragments(command), wrap::beginnings(command));
        Self { parts: vec![Part::unreadable()], shadows, inner, ..Self::default() }
    }
}

/// The simple commands of a line, as a person can read them: as they were typed, quoting removed.
///
/// For showing what a call would run; not for deciding.
pub fn command_parts(command: &str) -> Vec<String> {
    Line::parse(command).parts.iter().map(Part::shown).collect()
}
