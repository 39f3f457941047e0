//! Searches one open file: whole in memory when it is small, else by ripgrep's rolling buffer.
//!
//! A file is binary when its first quarter of a megabyte holds a NUL and does not begin as UTF-16; a NUL that comes
//! later ends what is searched of it, whatever is asked. One buffer a worker serves all its files.
//!
//! A file that is no UTF-8 is searched as the text that is shown of it, where the pattern can tell (`Pattern::hangs_on_encoding`).

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use grep_matcher::LineTerminator;
use grep_regex::RegexMatcher;
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink};

use super::Stop;
use super::decoded::{Decoded, decoded, is_utf16};
use super::shelf::{Content, Slot};
use crate::base::limit;

/// What one read asks for; most sources are smaller.
const FIRST_BYTES: usize = 64 << 10;
/// Files up to this size are searched in memory.
const WHOLE_BYTES: usize = 256 << 10;

/// How a search of one file ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::host) enum Outcome {
    /// What the sink has is right.
    Searched,
    /// It is no text: the sink was told nothing.
    Binary,
}

/// What is searched.
#[derive(Debug)]
pub(in crate::host) enum Source<'s> {
    /// A file that was opened.
    Open {
        /// At its beginning.
        file: OwnedFd,
        /// A read that gives less than it could has reached its end.
        short_reads_end: bool,
        /// What it holds may be kept there. Only for searches of text.
        slot: Option<Slot<'s>>,
    },
    /// What a file holds.
    Known(Arc<Content>),
}

/// A matcher and its buffers, for one worker.
#[derive(Debug)]
pub(in crate::host) struct FileSearch {
    matcher: Arc<RegexMatcher>,
    searcher: Searcher,
    /// Binary files are searched as if they were text.
    binary: bool,
    /// Files that are no UTF-8 are decoded first.
    decodes: bool,
    buffer: Vec<u8>,
}

impl FileSearch {
    /// A search with ripgrep's settings but for binary files, which `binary` says to search, and those of older encodings,
    /// which `decodes` says to decode.
    pub(in crate::host) fn new(
        matcher: Arc<RegexMatcher>,
        searcher: &mut SearcherBuilder,
        (binary, decodes): (bool, bool),
    ) -> Self {
        let searcher = searcher
            .line_terminator(LineTerminator::crlf())
            .heap_limit(Some(limit::GREP_HEAP_BYTES_MAX))
            .binary_detection(BinaryDetection::none())
            .build();
        Self { matcher, searcher, binary, decodes, buffer: Vec::new() }
    }

    /// Searches a file from its beginning, or what is known of it.
    ///
    /// # Errors
    /// The file cannot be read, or a line is longer than fits.
    pub(in crate::host) fn run(
        &mut self,
        source: Source<'_>,
        stop: &Stop,
        mut sink: impl Sink<Error = io::Error>,
    ) -> io::Result<Outcome> {
        let (file, short_reads_end, slot) = match source {
            Source::Known(content) => match &*content {
                Content::Text(text) => {
                    let decoded = if self.decodes { decoded(text) } else { None };
                    self.searcher.search_slice(&*self.matcher, decoded.as_deref().unwrap_or(text), &mut sink)?;
                    return Ok(Outcome::Searched);
                }
                Content::Binary => return Ok(Outcome::Binary),
            },
            Source::Open { file, short_reads_end, slot } => (file, short_reads_end, slot),
        };
        // Before it is read: what changes later has other times.
        let kept = slot.and_then(|slot| Some((slot, slot.sight(&file)?)));
        let Some(read) = self.fill(&file, short_reads_end)? else {
            if let Some((slot, sight)) = kept {
                slot.keep(sight, Content::Binary);
            }
            return Ok(Outcome::Binary);
        };
        let start = &self.buffer[..read];
        if read < self.buffer.len() {
            if let Some((slot, sight)) = kept {
                slot.keep(sight, Content::Text(start.into()));
            }
            let decoded = if self.decodes { decoded(start) } else { None };
            self.searcher.search_slice(&*self.matcher, decoded.as_deref().unwrap_or(start), &mut sink)?;
            return Ok(Outcome::Searched);
        }
        let detection = if self.binary { BinaryDetection::none() } else { BinaryDetection::quit(0) };
        self.searcher.set_binary_detection(detection);
        let utf16 = is_utf16(start);
        let reader = start.chain(Stoppable { file: File::from(file), stop });
        let searched = if self.decodes && !utf16 {
            self.searcher.search_reader(&*self.matcher, Decoded::new(reader), &mut sink)
        } else {
            self.searcher.search_reader(&*self.matcher, reader, &mut sink)
        };
        self.searcher.set_binary_detection(BinaryDetection::none());
        searched.map(|()| Outcome::Searched)
    }

    /// Reads the start of a file into the buffer, which is longer than what was read when that is the whole file.
    /// None when it is binary.
    fn fill(&mut self, file: &OwnedFd, short_reads_end: bool) -> io::Result<Option<usize>> {
        if self.buffer.is_empty() {
            self.buffer.resize(FIRST_BYTES, 0);
        }
        let mut read = 0;
        loop {
            let more = match rustix::io::read(file.as_fd(), &mut self.buffer[read..]) {
                Ok(0) => return Ok(Some(read)),
                Ok(more) => more,
                Err(rustix::io::Errno::INTR) => continue,
                Err(e) => return Err(e.into()),
            };
            if !self.binary && !is_utf16(&self.buffer) && memchr::memchr(0, &self.buffer[read..read + more]).is_some() {
                return Ok(None);
            }
            read += more;
            if short_reads_end && read < self.buffer.len() {
                return Ok(Some(read));
            }
            if read == self.buffer.len() {
                if read >= WHOLE_BYTES {
                    return Ok(Some(read));
                }
                self.buffer.resize((2 * read).min(WHOLE_BYTES), 0);
            }
        }
    }
}

/// A file whose reading ends when the search does.
struct Stoppable<'s> {
    file: File,
    stop: &'s Stop,
}

impl Read for Stoppable<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.stop.check() {
            Ok(()) => self.file.read(buffer),
            Err(_) => Err(io::Error::other("stopped")),
        }
    }
}
