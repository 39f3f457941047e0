//! The lines of one file as they are shown: `file:line: text` for a match, `file-line- text` around it.
//!
//! A line that is too long is cut to the part around its match. Matches can be skipped, for a page that begins in the
//! middle of a file; then what is shown before the first is still its true surroundings. What stands before a match is shown
//! with it or not at all.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use grep_matcher::Matcher;
use grep_regex::RegexMatcher;
use grep_searcher::{Searcher, Sink, SinkContext, SinkContextKind, SinkMatch};

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
    /// Lines that are not shown yet, as many as may stand before the next match that is.
    waiting: VecDeque<(u64, String)>,
    /// What comes next does not follow what was shown.
    apart: bool,
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
            waiting: VecDeque::new(),
            apart: false,
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
        let units = units(line);
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
            if self.waiting.len() == self.before {
                self.waiting.pop_front();
            }
            self.waiting.push_back((number, shortened(bytes, self.matcher)));
        }
    }

    /// Shows a match's first line behind those that stand right before it, or none of them.
    fn begin(&mut self, bytes: &[u8], number: u64) -> bool {
        let before = u64::try_from(self.before).unwrap_or(u64::MAX);
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        let near = waiting.filter(|(at, _)| at.saturating_add(before) >= number);
        let near = near.map(|(at, text)| format!("{}-{at}- {text}", self.shown));
        let apart = std::mem::take(&mut self.apart).then(|| "--".to_owned());
        let mut lines: Vec<String> = apart.into_iter().chain(near).chain([self.line(bytes, ':', number)]).collect();
        let units = |lines: &[String]| lines.iter().map(|line| units(line)).sum::<usize>();
        // Nothing has more room than a page: there a match is shown with less around it, so that there is no end of pages.
        let whole_page = self.room.units + "--\n".len() >= limit::FILE_OUTPUT_CHARS_MAX;
        while whole_page && self.hit.text.is_empty() && lines.len() > 1 && units(&lines) > self.room.units {
            lines.remove(0);
        }
        self.full |= self.hit.units + units(&lines) > self.room.units;
        !self.full && lines.iter().all(|line| self.add(line))
    }
}

/// The length of a line in UTF-16 units, with its ending.
fn units(line: &str) -> usize {
    line.encode_utf16().count() + 1
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
        let mut lines = (first..).zip(found.lines());
        if !lines.next().is_none_or(|(number, line)| self.begin(line, number)) {
            return Ok(false);
        }
        // Of a match over many lines the first may be all that there is room for.
        self.hit.matches += 1;
        Ok(lines.all(|(number, line)| {
            let line = self.line(line, ':', number);
            self.add(&line)
        }))
    }

    fn context(&mut self, _searcher: &Searcher, context: &SinkContext<'_>) -> io::Result<bool> {
        let number = context.line_number().unwrap_or_default();
        if *context.kind() == SinkContextKind::Before || (self.skips && self.hit.matches == 0) {
            self.pass(context.bytes(), number);
            return Ok(true);
        }
        let line = self.line(context.bytes(), '-', number);
        Ok(self.add(&line))
    }

    fn context_break(&mut self, _searcher: &Searcher) -> io::Result<bool> {
        self.apart |= self.hit.matches > 0;
        Ok(true)
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
