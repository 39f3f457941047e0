//! Finds the place of a chunk: the lines that it keeps and removes, as they stand in the text.
//!
//! A ladder of five steps, strictest first; the first that finds anything decides. What decides among
//! several places is what the patch says of them: the headers before them, the line number, the end of the
//! file. Where that leaves two that are about as likely, there is no place.

use std::cell::OnceCell;

use super::report::{ChunkError, ChunkProblem, miss};
use super::{Chunk, ChunkLine, Form, LineKind};
use crate::edit::lines::{Text, places};

/// Places of one chunk that are told apart.
const PLACES_MAX: usize = 10_000;
/// Where a line number names none of several places, the nearest must be nearer by this factor, and this many lines.
const NEARER: (usize, usize) = (2, 3);

/// How the lines of a chunk were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Found {
    /// Byte for byte, line endings too.
    Literal,
    /// The same lines with other endings.
    Exact,
    /// The same after the ends of the lines were trimmed.
    TrailingBlanks,
    /// The same after both ends of the lines were trimmed.
    Trimmed,
    /// The same after typographic dashes, quotes and blanks became plain ones.
    Folded,
}

impl Found {
    const ALL: [Self; 5] = [Self::Literal, Self::Exact, Self::TrailingBlanks, Self::Trimmed, Self::Folded];

    /// What was not minded, for the one who wrote the patch. Empty: nothing.
    pub fn leniency(self) -> &'static str {
        match self {
            Self::Literal | Self::Exact => "",
            Self::TrailingBlanks => "blanks at the ends of lines",
            Self::Trimmed => "indentation",
            Self::Folded => "typographic characters",
        }
    }
}

/// Where a chunk goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// Its first line, or the line before which new ones go.
    pub start: usize,
    /// Lines of the text that it stands for.
    pub count: usize,
    /// Lines of the chunk that count: blank ones at its end may be none of the file's.
    pub lines: usize,
    pub found: Found,
}

impl Place {
    fn overlaps(&self, other: &Self) -> bool {
        self.start < other.start + other.count && other.start < self.start + self.count
    }
}

/// The lines of a text under every step of the ladder, each made when it is first asked for.
pub(super) struct Lines<'t> {
    pub text: &'t Text<'t>,
    keys: [OnceCell<Vec<String>>; 5],
}

impl<'t> Lines<'t> {
    pub(super) fn new(text: &'t Text<'t>) -> Self {
        Self { text, keys: Default::default() }
    }

    fn len(&self) -> usize {
        self.text.lines.len()
    }

    /// The line behind the last that is not blank.
    fn end(&self) -> usize {
        self.keys(Found::Trimmed).iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1)
    }

    fn keys(&self, found: Found) -> &[String] {
        self.keys[found as usize].get_or_init(|| {
            let raw = |index: usize| {
                let line = self.text.lines[index];
                &self.text.text[line.start..line.next]
            };
            (0..self.len()).map(|index| key(found, raw(index))).collect()
        })
    }
}

/// A line, its ending included, as a step of the ladder sees it.
fn key(found: Found, raw: &str) -> String {
    if found == Found::Literal {
        return raw.to_owned();
    }
    let line = raw.strip_suffix('\n').unwrap_or(raw);
    let line = line.strip_suffix('\r').unwrap_or(line);
    let line = line.strip_prefix(crate::edit::BOM).unwrap_or(line);
    match found {
        Found::Literal | Found::Exact => line.to_owned(),
        Found::TrailingBlanks => line.trim_end().to_owned(),
        Found::Trimmed => line.trim().to_owned(),
        Found::Folded => folded(line.trim()),
    }
}

fn folded(line: &str) -> String {
    let plain = |c: char| match c {
        '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{fe58}' | '\u{fe63}' | '\u{ff0d}' => '-',
        '\u{2018}'..='\u{201b}' | '\u{2032}' => '\'',
        '\u{201c}'..='\u{201f}' | '\u{2033}' | '\u{ab}' | '\u{bb}' => '"',
        '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => ' ',
        c => c,
    };
    line.chars().map(plain).collect::<String>().replace('\u{2026}', "...").trim().to_owned()
}

fn raw(line: &ChunkLine) -> String {
    format!("{}{}", line.text, if line.newline { "\n" } else { "" })
}

/// What is known when a chunk is looked for.
pub(super) struct Seen<'p> {
    pub form: Form,
    /// The places of the chunks before it.
    pub taken: &'p [Place],
    /// How far the chunk before it was from where its number said.
    pub drift: isize,
}

impl Seen<'_> {
    /// The first line after the chunk before.
    fn cursor(&self) -> usize {
        self.taken.last().map_or(0, |place| place.start + place.count)
    }

    fn is_free(&self, place: &Place) -> bool {
        !self.taken.iter().any(|taken| taken.overlaps(place))
    }
}

/// The one place of a chunk.
///
/// # Errors
/// [`ChunkError`]: there is none, or there are several, and which.
pub(super) fn find(lines: &Lines<'_>, chunk: &Chunk, seen: &Seen<'_>) -> Result<Place, ChunkError> {
    let refused = |problem| Err(ChunkError { line: chunk.line, problem });
    if !chunk.lines.iter().any(ChunkLine::is_old) {
        return insertion(lines, chunk, seen);
    }
    let search = Search { lines, chunk, seen };
    let from = if chunk.at_end { lines.end() } else { 0 };
    if let Some(places) = search.ladder(from) {
        return search.choose(places);
    }
    if chunk.at_end && search.ladder(0).is_some() {
        return refused(ChunkProblem::NotAtEnd);
    }
    let alone = Seen { taken: &[], ..*seen };
    if let Some(places) = (Search { lines, chunk, seen: &alone }).ladder(0) {
        let starts: Vec<usize> = places.iter().map(|place| place.start).collect();
        return refused(ChunkProblem::taken(&starts));
    }
    refused(miss(lines.text, chunk))
}

/// How many lines the chunk has without kept blank lines at its end. None: it ends in none, or is nothing else.
fn without_blank_end(chunk: &Chunk) -> Option<usize> {
    let blank = |line: &ChunkLine| line.kind == LineKind::Keep && line.text.trim().is_empty();
    let last = chunk.lines.iter().rposition(|line| !blank(line))?;
    let count = last + 1;
    let old = chunk.lines[..count].iter().any(ChunkLine::is_old);
    (count < chunk.lines.len() && old).then_some(count)
}

/// New lines without any old ones: behind their header, or at the end.
fn insertion(lines: &Lines<'_>, chunk: &Chunk, seen: &Seen<'_>) -> Result<Place, ChunkError> {
    let at = |start| Ok(Place { start, count: 0, lines: chunk.lines.len(), found: Found::Exact });
    let refused = |problem| Err(ChunkError { line: chunk.line, problem });
    if lines.len() == 0 {
        return at(0);
    }
    if !chunk.headers.is_empty() {
        let search = Search { lines, chunk, seen };
        return match search.headers()?.as_slice() {
            [one] => at(one + 1),
            several => refused(ChunkProblem::several(several)),
        };
    }
    if chunk.old_start.is_some() || seen.form == Form::Unified {
        return refused(ChunkProblem::NoContext);
    }
    at(lines.len())
}

struct Search<'s, 't> {
    lines: &'s Lines<'t>,
    chunk: &'s Chunk,
    seen: &'s Seen<'s>,
}

impl Search<'_, '_> {
    /// What the first step of the ladder finds that finds anything. Places that end before line `end` are none.
    fn ladder(&self, end: usize) -> Option<Vec<Place>> {
        // Blank lines at the end of a chunk are often only the gap before what follows.
        let counts = [Some(self.chunk.lines.len()), without_blank_end(self.chunk)].into_iter().flatten();
        let mut steps = counts.flat_map(|count| Found::ALL.map(|found| (found, count)));
        steps.find_map(|(found, count)| Some(self.places(found, count, end)).filter(|places| !places.is_empty()))
    }

    /// All free places that a step of the ladder finds: those after the chunk before, or else any.
    fn places(&self, found: Found, count: usize, end: usize) -> Vec<Place> {
        let old = || self.chunk.lines[..count].iter().filter(|line| line.is_old());
        let needle: Vec<String> = old().map(|line| key(found, &raw(line))).collect();
        let first = end.saturating_sub(needle.len());
        let starts = places(&self.lines.keys(found)[first..], &needle, PLACES_MAX);
        let place = |start| Place { start: first + start, count: needle.len(), lines: count, found };
        let all: Vec<Place> = starts.into_iter().map(place).filter(|place| self.seen.is_free(place)).collect();
        let cursor = self.seen.cursor();
        let after: Vec<Place> = all.iter().copied().filter(|place| place.start >= cursor).collect();
        if after.is_empty() { all } else { after }
    }

    fn choose(&self, mut places: Vec<Place>) -> Result<Place, ChunkError> {
        let refused = |problem| Err(ChunkError { line: self.chunk.line, problem });
        if !self.chunk.headers.is_empty() {
            places = self.behind_headers(&places)?;
        }
        if places.len() > 1 && self.seen.form == Form::Unified {
            places = self.at_the_ends(places);
        }
        if let [one] = places[..] {
            return Ok(one);
        }
        let starts: Vec<usize> = places.iter().map(|place| place.start).collect();
        let nearest = self.chunk.old_start.and_then(|start| self.nearest(&starts, start.saturating_sub(1)));
        match nearest {
            Some(index) => Ok(places[index]),
            None => refused(ChunkProblem::several(&starts)),
        }
    }

    /// A hunk that begins with the file, or has no context at its end because the file ends there.
    fn at_the_ends(&self, places: Vec<Place>) -> Vec<Place> {
        let begins = self.chunk.old_start.is_some_and(|start| start <= 1);
        let ends = self.chunk.lines.last().is_some_and(|line| line.kind != LineKind::Keep);
        let fits =
            |place: &&Place| (!begins || place.start == 0) && (!ends || place.start + place.count == self.lines.len());
        let fitting: Vec<Place> = places.iter().filter(fits).copied().collect();
        if fitting.is_empty() { places } else { fitting }
    }

    /// The place that the line number means: that very line, or one far nearer to it than any other.
    fn nearest(&self, starts: &[usize], expected: usize) -> Option<usize> {
        let drifted = expected.saturating_add_signed(self.seen.drift);
        let by = |line: usize| {
            let mut order: Vec<(usize, usize)> =
                starts.iter().enumerate().map(|(index, start)| (start.abs_diff(line), index)).collect();
            order.sort_unstable();
            order
        };
        let (plain, order) = (by(expected), by(drifted));
        let [(best, index), (second, _), ..] = order[..] else { return None };
        let clear = best == 0 || best * NEARER.0 + NEARER.1 <= second;
        (plain.first()?.1 == index && clear).then_some(index)
    }

    /// The lines that the innermost header may be.
    fn headers(&self) -> Result<Vec<usize>, ChunkError> {
        let mut from: Option<Vec<usize>> = None;
        for header in &self.chunk.headers {
            let found = self.header(header);
            let narrowed: Vec<usize> = match &from {
                None => found,
                Some(outer) => {
                    let mut inner: Vec<usize> =
                        outer.iter().filter_map(|at| found.iter().copied().find(|line| line > at)).collect();
                    inner.sort_unstable();
                    inner.dedup();
                    inner
                }
            };
            if narrowed.is_empty() {
                let problem = ChunkProblem::no_header(self.lines.text, header);
                return Err(ChunkError { line: self.chunk.line, problem });
            }
            from = Some(narrowed);
        }
        Ok(from.unwrap_or_default())
    }

    /// Lines that a header names: whole ones, or else those that begin with it, or else those that hold it.
    fn header(&self, header: &str) -> Vec<usize> {
        let cursor = self.seen.cursor();
        let matching = |found: Found, fits: &dyn Fn(&str, &str) -> bool| {
            let wanted = key(found, header);
            let keys = self.lines.keys(found).iter().enumerate();
            let all: Vec<usize> = keys.filter(|(_, line)| fits(line, &wanted)).map(|(index, _)| index).collect();
            let after: Vec<usize> = all.iter().copied().filter(|line| *line >= cursor).collect();
            if after.is_empty() { all } else { after }
        };
        let whole = Found::ALL.iter().skip(1).map(|found| matching(*found, &|line, wanted| line == wanted));
        let start = std::iter::once_with(|| matching(Found::Folded, &|line, wanted| line.starts_with(wanted)));
        let inside = std::iter::once_with(|| matching(Found::Folded, &|line, wanted| line.contains(wanted)));
        whole.chain(start).chain(inside).find(|lines| !lines.is_empty()).unwrap_or_default()
    }

    /// The places that stand behind the headers: for each line that may be the header, those in its own block, or else
    /// any after it.
    fn behind_headers(&self, places: &[Place]) -> Result<Vec<Place>, ChunkError> {
        let headers = self.headers()?;
        let mut chosen: Vec<Place> = Vec::new();
        for (index, header) in headers.iter().enumerate() {
            let next = headers.get(index + 1).copied().unwrap_or(usize::MAX);
            let after = || places.iter().filter(|place| place.start >= *header && place.start < next);
            let end = self.block_end(*header);
            let inside: Vec<Place> = after().filter(|place| place.start < end).copied().collect();
            chosen.extend(if inside.is_empty() { after().copied().collect() } else { inside });
        }
        if chosen.is_empty() {
            let lines = places.iter().map(|place| place.start).collect::<Vec<_>>();
            return Err(ChunkError { line: self.chunk.line, problem: ChunkProblem::before_header(&lines) });
        }
        Ok(chosen)
    }

    /// The line after the block that a line opens: the next one that is indented no deeper and begins something.
    fn block_end(&self, header: usize) -> usize {
        let keys = self.lines.keys(Found::Exact);
        let indent = |line: &str| line.len() - line.trim_start().len();
        let own = indent(&keys[header]);
        let begins = |line: &String| {
            indent(line) <= own && line.trim_start().starts_with(|c: char| c.is_alphanumeric() || "_@#".contains(c))
        };
        keys.iter().skip(header + 1).position(begins).map_or(keys.len(), |at| header + 1 + at)
    }
}
