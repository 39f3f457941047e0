//! Finds the place that an old string means, and puts the new one there. Pure: text in, text out.
//!
//! Five tiers, strictest first; the first that finds exactly one place wins. A tier that finds none, or
//! several, falls through. What is found is replaced literally: `$&` is three characters.
//!
//! Invariants: no byte outside the place changes; new lines take over the line endings of the place; a
//! byte order mark stays; a text that ended with a line ending still does, and one that did not
//! does not. (typescript-api.md §5)

mod block_anchor;
mod diff;
mod distance;
mod exact;
mod indent;
mod indentation_flexible;
mod line_trimmed;
mod lines;
mod nearest;
pub mod patch;
mod whitespace_normalized;

use std::ops::Range;

use lines::Text;

pub use diff::{Diff, diff_between, unified_diff};
pub use nearest::NearLine;

/// Lines that are listed when there are several places.
const LINES_TOLD_MAX: usize = 10;
/// Most places of one tier that are told apart, and changed at once.
const PLACES_MAX: usize = 100_000;
const BOM: char = '\u{feff}';

/// How a place was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// The substring itself.
    Exact,
    /// The same lines after trimming both ends.
    LineTrimmed,
    /// The same after runs of blanks become one.
    WhitespaceNormalized,
    /// The same after the common indent is taken off.
    IndentationFlexible,
    /// First and last line found, and nearly the same between.
    BlockAnchor,
}

impl Strategy {
    /// All of them, in the order in which they are tried.
    pub const ALL: [Self; 5] =
        [Self::Exact, Self::LineTrimmed, Self::WhitespaceNormalized, Self::IndentationFlexible, Self::BlockAnchor];

    /// Its name for callers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::LineTrimmed => "line-trimmed",
            Self::WhitespaceNormalized => "whitespace-normalized",
            Self::IndentationFlexible => "indentation-flexible",
            Self::BlockAnchor => "block-anchor-levenshtein",
        }
    }
}

/// One place that was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// Its first line in the old text, from 1.
    pub line: usize,
    /// Lines it touched there.
    pub old_lines: usize,
    /// Lines it has become.
    pub new_lines: usize,
}

/// What came of an edit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replaced {
    /// The whole new text.
    pub text: String,
    /// How the places were found.
    pub strategy: Strategy,
    /// The places, in order; one, unless all were asked for.
    pub changes: Vec<Change>,
}

/// Why nothing was edited.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum EditError {
    /// There is nothing to look for.
    #[error("old_string is empty, and an empty string marks no place: use fs_write to write a whole file")]
    EmptyOld,
    /// Both strings are the same.
    #[error("old_string and new_string are the same: there is nothing to change")]
    SameStrings,
    /// The text would be what it was.
    #[error("The edit changes nothing: the file keeps its own line endings, and its end with or without a newline")]
    NoChange,
    /// No tier found anything.
    #[error("No match found for the provided old_string in the file{}", nearest::told(.0))]
    NoMatch(Vec<NearLine>),
    /// There are more places than are changed at once.
    #[error("old_string matches {PLACES_MAX} places or more in the file, too many to change at once")]
    TooMany,
    /// There are several places.
    #[error("{}", told_places(.places, *.more_lines, *.count))]
    Ambiguous {
        /// The lines in which they begin, from 1, each once; the first few.
        places: Vec<usize>,
        /// How many lines more there are.
        more_lines: usize,
        /// How many there are.
        count: usize,
    },
}

fn told_places(lines: &[usize], more_lines: usize, count: usize) -> String {
    let listed = lines.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let at = match (lines.len(), more_lines) {
        (1, 0) => format!("all in line {listed}"),
        (_, 0) => format!("at lines {listed}"),
        (_, more) => format!("at lines {listed} and {more} more"),
    };
    let or_more = if count == PLACES_MAX { " or more" } else { "" };
    format!(
        "old_string is ambiguous: it matches {count}{or_more} places in the file, {at}. Add surrounding lines until it \
         matches one, or set replace_all to change them all"
    )
}

/// Replaces the one place that `old` means. None when no tier finds exactly one; an empty `old` never does.
///
/// Source: typescript-api.md §5.
pub fn fuzzy_match(content: &str, old: &str, new: &str) -> Option<Replaced> {
    let edit = Edit::new(content, old, new);
    let (strategy, places) = edit.unique().ok()?;
    Some(edit.apply(strategy, &places))
}

/// Replaces the one place that `old` means, or every place of the first tier that finds any.
///
/// # Errors
/// [`EditError`]: nothing to look for, nothing found, several found, nothing changed.
pub fn edit(content: &str, old: &str, new: &str, replace_all: bool) -> Result<Replaced, EditError> {
    if old.is_empty() {
        return Err(EditError::EmptyOld);
    }
    if old == new {
        return Err(EditError::SameStrings);
    }
    let edit = Edit::new(content, old, new);
    let (strategy, places) = if replace_all { edit.every()? } else { edit.unique()? };
    let replaced = edit.apply(strategy, &places);
    if replaced.text == content { Err(EditError::NoChange) } else { Ok(replaced) }
}

/// One of several edits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What is looked for.
    pub old: String,
    /// What is put there.
    pub new: String,
    /// At every place, not the only one.
    pub replace_all: bool,
}

/// Why none of several edits was made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("edit {number} of {count}: {problem}. None of the edits was made")]
pub struct StepError {
    /// Which one it is, from 1.
    pub number: usize,
    /// How many there are.
    pub count: usize,
    /// What is wrong with it.
    pub problem: EditError,
}

/// Makes several edits, each in the text that those before it have made. What came of it, and how each place was found.
///
/// # Errors
/// [`StepError`] of the first that cannot be made.
pub fn edit_all(content: &str, steps: &[Step]) -> Result<(String, Vec<Strategy>), StepError> {
    let mut text = content.to_owned();
    let mut strategies = Vec::with_capacity(steps.len());
    for (index, step) in steps.iter().enumerate() {
        let failed = |problem| StepError { number: index + 1, count: steps.len(), problem };
        let replaced = edit(&text, &step.old, &step.new, step.replace_all).map_err(failed)?;
        text = replaced.text;
        strategies.push(replaced.strategy);
    }
    Ok((text, strategies))
}

/// A place that a tier found.
#[derive(Debug, Clone)]
struct Place<'t> {
    /// Its bytes, in the text after the byte order mark.
    range: Range<usize>,
    /// For the tiers that compare lines: for each old line, the line it was found at.
    found: Option<Vec<Option<&'t str>>>,
}

struct Edit<'t> {
    bom: &'t str,
    content: Text<'t>,
    old: Text<'t>,
    new: &'t str,
}

impl<'t> Edit<'t> {
    fn new(content: &'t str, old: &'t str, new: &'t str) -> Self {
        let (bom, body) = match content.strip_prefix(BOM) {
            Some(body) => (&content[..BOM.len_utf8()], body),
            None => ("", content),
        };
        let bare = |text: &'t str| if bom.is_empty() { text } else { text.strip_prefix(BOM).unwrap_or(text) };
        Self { bom, content: Text::new(body), old: Text::new(bare(old)), new: bare(new) }
    }

    /// The first tier that finds exactly one place.
    fn unique(&self) -> Result<(Strategy, Vec<Place<'t>>), EditError> {
        let mut several = None;
        for strategy in Strategy::ALL {
            let places = self.places(strategy);
            match places.len() {
                0 => {}
                1 => return Ok((strategy, places)),
                _ => several = several.or(Some(places)),
            }
        }
        Err(match several {
            Some(places) => {
                let line = |place: &Place<'_>| self.content.line_at(place.range.start) + 1;
                let mut lines: Vec<usize> = places.iter().map(line).collect();
                lines.dedup();
                let more_lines = lines.len().saturating_sub(LINES_TOLD_MAX);
                lines.truncate(LINES_TOLD_MAX);
                EditError::Ambiguous { places: lines, more_lines, count: places.len() }
            }
            None => EditError::NoMatch(nearest::find(&self.content, &self.old)),
        })
    }

    /// All places of the first tier that finds any, without those that overlap an earlier one.
    fn every(&self) -> Result<(Strategy, Vec<Place<'t>>), EditError> {
        for strategy in Strategy::ALL {
            let mut places = self.places(strategy);
            if places.len() == PLACES_MAX {
                return Err(EditError::TooMany);
            }
            let mut end = 0;
            places.retain(|place| {
                let free = place.range.start >= end;
                if free {
                    end = place.range.end.max(place.range.start + 1);
                }
                free
            });
            if !places.is_empty() {
                return Ok((strategy, places));
            }
        }
        Err(EditError::NoMatch(nearest::find(&self.content, &self.old)))
    }

    fn places(&self, strategy: Strategy) -> Vec<Place<'t>> {
        // Blank lines alone mark no place by their likeness.
        if strategy != Strategy::Exact && self.old.text.trim().is_empty() {
            return Vec::new();
        }
        let (content, old) = (&self.content, &self.old);
        let blocks = |starts: Vec<usize>| starts.into_iter().map(|start| self.lines(start)).collect();
        match strategy {
            Strategy::Exact => {
                let place = |range| Place { range, found: None };
                exact::find(content.text, old.text, PLACES_MAX).into_iter().map(place).collect()
            }
            Strategy::LineTrimmed => blocks(line_trimmed::find(content, old, PLACES_MAX)),
            Strategy::WhitespaceNormalized => blocks(whitespace_normalized::find(content, old, PLACES_MAX)),
            Strategy::IndentationFlexible => blocks(indentation_flexible::find(content, old, PLACES_MAX)),
            Strategy::BlockAnchor => block_anchor::find(content, old)
                .map(|block| {
                    let found = block_anchor::correspondence(content, block, old);
                    Place { range: self.range(block.start, block.count), found: Some(found) }
                })
                .into_iter()
                .collect(),
        }
    }

    /// As many lines as the old string has, from `start`.
    fn lines(&self, start: usize) -> Place<'t> {
        let count = self.old.lines.len();
        let found = (start..start + count).map(|index| Some(self.content.line(index))).collect();
        Place { range: self.range(start, count), found: Some(found) }
    }

    /// The bytes of whole lines, without the last one's ending. With it, when lines are deleted.
    fn range(&self, start: usize, count: usize) -> Range<usize> {
        let last = self.content.lines[start + count - 1];
        let deleted = self.new.is_empty() && self.old.text.ends_with('\n');
        self.content.lines[start].start..if deleted { last.next } else { last.end }
    }

    fn apply(&self, strategy: Strategy, places: &[Place<'t>]) -> Replaced {
        let body = self.content.text;
        let mut text = String::with_capacity(self.bom.len() + body.len() + self.new.len() * places.len());
        text.push_str(self.bom);
        let mut changes = Vec::with_capacity(places.len());
        let mut done = 0;
        for place in places {
            text.push_str(&body[done..place.range.start]);
            let mut new = lines::adapt_endings(&self.content, &place.range, &self.replacement(place));
            if place.range.end == body.len() {
                self.keep_last_newline(&mut new, text.len() == self.bom.len() || text.ends_with('\n'));
            }
            text.push_str(&new);
            changes.push(self.change(&place.range, &new));
            done = place.range.end;
        }
        text.push_str(&body[done..]);
        Replaced { text, strategy, changes }
    }

    fn change(&self, range: &Range<usize>, new: &str) -> Change {
        let first = self.content.line_at(range.start);
        let last = if range.is_empty() { first } else { self.content.line_at(range.end - 1) };
        Change { line: first + 1, old_lines: last - first + 1, new_lines: Text::new(new).lines.len() }
    }

    /// The new text for a place: as it is for an exact one, re-indented for lines.
    fn replacement(&self, place: &Place<'_>) -> String {
        let Some(found) = &place.found else { return self.new.to_owned() };
        let ends = |text: &str| text.ends_with('\n');
        // Whole lines are replaced without the ending of the last; both strings then lose theirs.
        let new = if ends(self.old.text) && ends(self.new) {
            let new = &self.new[..self.new.len() - 1];
            new.strip_suffix('\r').unwrap_or(new)
        } else {
            self.new
        };
        if new.is_empty() {
            return String::new();
        }
        let old: Vec<&str> = self.old.iter().collect();
        let lines: Vec<&str> = new.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).collect();
        indent::reindent(&old, found, &lines).join("\n")
    }

    /// Makes the new end of the text end as the old one did. `at_line_start`: nothing stands before `new` in its line.
    fn keep_last_newline(&self, new: &mut String, at_line_start: bool) {
        let body = self.content.text;
        if !body.ends_with('\n') {
            while new.ends_with('\n') {
                new.pop();
                if new.ends_with('\r') {
                    new.pop();
                }
            }
        } else if !(new.ends_with('\n') || new.is_empty() && at_line_start) {
            new.push_str(if body.ends_with("\r\n") { "\r\n" } else { "\n" });
        }
    }
}

#[cfg(test)]
mod tests;
