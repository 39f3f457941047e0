//! The lines of one file as they are shown: `file:line: text` for a match, `file-line- text` around it.
//!
//! A line that is too long is cut to the part around its match. Matches can be skipped, for a page that begins in the
//! middle of a file; then what is shown before the first is still its true surroundings.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use grep_matcher::Matcher;
use grep_regex::RegexMatcher;
use grep_searcher::{Searcher, Sink, SinkContext, SinkMatch};

use super::tally::Hit;
use crate::base::{limit, show};

/// Bytes shown before the match, in a line that is cut.
const LEAD_BYTES: usize = 100;

/// How much of a file is shown.
#[derive(Debug, Clone, Copy)]
pub(in crate::host) struct Room {
    /// Matches to leave out first.
    pub skip: usize,
    /// Matches to show; one more is counted.
    pub matches: usize,
    /// Length of the lines, in UTF-16 units.
    pub units: usize,
}

/// Takes the lines of one file.
#[derive(Debug)]
pub(in crate::host) struct Lines<'s> {
    matcher: &'s Arc<RegexMatcher>,
    shown: &'s str,
    room: Room,
    /// It began with matches to skip.
    skips: bool,
    /// Lines before a match that are shown.
    before: usize,
    /// Lines that were skipped, as many as may stand before the first match that is shown.
    skipped: VecDeque<(u64, String)>,
    hit: Hit,
    /// There was no room for all.
    pub full: bool,
}

impl<'s> Lines<'s> {
    /// Nothing so far. `shown` is the file's path in front of each line.
    pub(in crate::host) fn new(matcher: &'s Arc<RegexMatcher>, shown: &'s str, room: Room, before: usize) -> Self {
        Self {
            matcher,
            shown,
            room,
            skips: room.skip > 0,
            before,
            skipped: VecDeque::new(),
            hit: Hit::default(),
            full: false,
        }
    }

    /// What the file gave. Where there was no room for all its lines, it is longer than the room.
    pub(in crate::host) fn hit(self) -> Hit {
        let cut = self.full && self.hit.matches <= self.room.matches;
        let units = if cut { self.room.units + 1 } else { self.hit.units };
        Hit { entries: self.hit.matches, units, ..self.hit }
    }

    /// Adds a line. False when there is no room for it.
    fn add(&mut self, line: &str) -> bool {
        let units = line.encode_utf16().count() + 1;
        if self.hit.units + units > self.room.units {
            self.full = true;
            return false;
        }
        if !self.hit.text.is_empty() {
            self.hit.text.push('\n');
        }
        self.hit.text.push_str(line);
        self.hit.units += units;
        true
    }

    fn line(&self, bytes: &[u8], separator: char, number: u64) -> String {
        format!("{}{separator}{number}{separator} {}", self.shown, shortened(bytes, self.matcher))
    }

    /// Keeps a line that is not shown, in case it stands right before one that is.
    fn pass(&mut self, bytes: &[u8], number: u64) {
        if self.before > 0 {
            if self.skipped.len() == self.before {
                self.skipped.pop_front();
            }
            self.skipped.push_back((number, shortened(bytes, self.matcher)));
        }
    }

    /// Shows the skipped lines that stand right before line `number`.
    fn surroundings(&mut self, number: u64) -> bool {
        let before = u64::try_from(self.before).unwrap_or(u64::MAX);
        let lines = std::mem::take(&mut self.skipped);
        lines.into_iter().filter(|(at, _)| at.saturating_add(before) >= number).all(|(at, text)| {
            let line = format!("{}-{at}- {text}", self.shown);
            self.add(&line)
        })
    }
}

impl Sink for Lines<'_> {
    type Error = io::Error;

    fn matched(&mut self, _searcher: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        let first = found.line_number().unwrap_or_default();
        if self.room.skip > 0 {
            self.room.skip -= 1;
            for (number, line) in (first..).zip(found.lines()) {
                self.pass(line, number);
            }
            return Ok(true);
        }
        if self.hit.matches == self.room.matches {
            self.hit.matches += 1;
            self.full = true;
            return Ok(false);
        }
        if !self.surroundings(first) {
            return Ok(false);
        }
        for (at, (number, line)) in (first..).zip(found.lines()).enumerate() {
            let line = self.line(line, ':', number);
            if !self.add(&line) {
                return Ok(false);
            }
            // Of a match over many lines the first may be all that there is room for.
            self.hit.matches += usize::from(at == 0);
        }
        Ok(true)
    }

    fn context(&mut self, _searcher: &Searcher, context: &SinkContext<'_>) -> io::Result<bool> {
        let number = context.line_number().unwrap_or_default();
        if self.skips && self.hit.matches == 0 {
            self.pass(context.bytes(), number);
            return Ok(true);
        }
        let line = self.line(context.bytes(), '-', number);
        Ok(self.add(&line))
    }

    fn context_break(&mut self, _searcher: &Searcher) -> io::Result<bool> {
        Ok(self.hit.matches == 0 || self.add("--"))
    }
}

/// Counts the matches of one file, up to a number.
#[derive(Debug)]
pub(in crate::host) struct Count {
    /// Those that were found.
    pub matches: usize,
    /// It is enough then.
    pub most: usize,
}

impl Sink for Count {
    type Error = io::Error;

    fn matched(&mut self, _searcher: &Searcher, _found: &SinkMatch<'_>) -> io::Result<bool> {
        self.matches += 1;
        Ok(self.matches < self.most)
    }
}

/// A line without its ending; a long one is cut to the part around the match.
fn shortened(bytes: &[u8], matcher: &RegexMatcher) -> String {
    let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let most = limit::GREP_LINE_BYTES_MAX;
    if line.len() <= most {
        return show::line(line).0.into_owned();
    }
    let at = matcher.find(line).ok().flatten().map_or(0, |found| found.start());
    let boundary = |at: usize| (at..line.len()).find(|&at| line[at] & 0xc0 != 0x80).unwrap_or(line.len());
    let start = if at + LEAD_BYTES <= most { 0 } else { boundary(at - LEAD_BYTES) };
    let mut end = (start + most).min(line.len());
    while end < line.len() && end > start && line[end] & 0xc0 == 0x80 {
        end -= 1;
    }
    let ahead = if start > 0 { "…" } else { "" };
    format!("{ahead}{} [line cut: {} bytes in all]", show::line(&line[start..end]).0, line.len())
}
