//! One run of `fs_grep`: the walk with its workers, and the page that comes of what they found.
//!
//! A file is searched for its lines at once. Only the file in which a page begins or ends is searched again, for
//! exactly the lines that are shown.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use grep_regex::RegexMatcher;
use grep_searcher::SearcherBuilder;

use super::fs_common::{SKIPPED_DIRECTORIES, io_failed, not_found, open, refused};
use super::fs_glob::split;
use super::fs_grep::{Mode, Query};
use super::search::{
    Count, FileChoice, FileSearch, Found, Hit, Kind, Lines, Outcome, Place, Room, SHELVES, Source, Stop, Stopped,
    Tally, TypeChoice, Visit, Walk, alternatives, open_below, open_file,
};
use crate::base::workspace::{PathError, Workspace};
use crate::base::{limit, show, text};
use crate::tool::ToolError;

/// Files that a worker takes at a time.
const SHARE_FILES: usize = 32;

/// Where a query searches.
struct Scope {
    workspace: Arc<Workspace>,
    /// Finds what was given where it was when the call was judged.
    held: Arc<Workspace>,
    given: String,
    base: PathBuf,
    directory: bool,
    /// In front of each path that is named.
    prefix: Vec<u8>,
}

impl Scope {
    /// Where `query` searches, if that is inside the roots and there.
    ///
    /// # Errors
    /// What is wrong with its path.
    fn new((workspace, held): (&Arc<Workspace>, &Arc<Workspace>), query: &Query) -> Result<Self, ToolError> {
        let given = query.path.as_str();
        let base = held.resolve(given).map_err(|e| refused(&e))?;
        let directory = match held.look_at(given) {
            Ok(kind) => kind.is_dir(),
            Err(e) if e.is_not_found() => return Err(not_found(workspace, given)),
            Err(PathError::Open { cause, .. }) => return Err(io_failed("search", given, &cause)),
            Err(e) => return Err(refused(&e)),
        };
        let mut prefix = workspace.named(&base).as_os_str().as_bytes().to_vec();
        if directory && !prefix.is_empty() && !prefix.ends_with(b"/") {
            prefix.push(b'/');
        }
        let (workspace, held) = (Arc::clone(workspace), Arc::clone(held));
        Ok(Self { workspace, held, given: given.to_owned(), base, directory, prefix })
    }

    /// A glob as it is held against paths below the base.
    ///
    /// With a slash in front it begins at the base, as ripgrep has it. When nothing is there by that name it was meant from
    /// the root of the file system; then it has to stay inside the roots as every path.
    fn glob(&self, glob: &str) -> Result<String, ToolError> {
        if glob.starts_with('!') {
            return Ok(glob.to_owned());
        }
        let climbs = |glob: &String| glob.split('/').any(|name| name == "..");
        if alternatives(glob).iter().any(climbs) {
            return Err(refused(&self.workspace.escapes(glob)));
        }
        let (directory, rest) = split(glob);
        let Some(below) = directory.strip_prefix('/').filter(|below| !below.is_empty()) else {
            return Ok(glob.to_owned());
        };
        if self.workspace.look(&self.base.join(below)).is_ok() {
            return Ok(glob.to_owned());
        }
        let real = self.workspace.resolve(&directory).map_err(|e| match e {
            PathError::Escapes { .. } => refused(&self.workspace.escapes(glob)),
            other => refused(&other),
        })?;
        let below = real.strip_prefix(&self.base).ok().and_then(Path::to_str);
        Ok(below
            .map_or_else(|| glob.to_owned(), |below| format!("/{}/{rest}", globset::escape(below)).replace("//", "/")))
    }

    /// How a path below the base is shown.
    fn shown(&self, path: &[u8], line: &mut String) {
        line.clear();
        match (std::str::from_utf8(&self.prefix), std::str::from_utf8(path)) {
            (Ok(prefix), Ok(text)) if show::is_plain(&self.prefix) && show::is_plain(path) => {
                line.push_str(prefix);
                line.push_str(text);
            }
            _ => line.push_str(&show::name(&self.named(path))),
        }
    }

    /// The same before it is made fit to be shown.
    fn named(&self, path: &[u8]) -> Vec<u8> {
        [&self.prefix, path].concat()
    }

    /// Opens a file that was found before.
    fn open(&self, path: &[u8]) -> io::Result<OwnedFd> {
        if !self.directory {
            return open(&self.held, &self.given).map(OwnedFd::from).map_err(|e| io::Error::other(e.to_string()));
        }
        let base = self.workspace.open_directory(&self.base)?;
        match path.iter().rposition(|byte| *byte == b'/') {
            Some(at) => open_file(open_below(base.as_fd(), &path[..at])?.as_fd(), &path[at + 1..]),
            None => open_file(base.as_fd(), path),
        }
    }
}

/// One run of a query.
pub(super) struct Search {
    query: Query,
    scope: Scope,
    matcher: Arc<RegexMatcher>,
    /// What files of older encodings are read as can decide.
    decodes: bool,
    stop: Arc<Stop>,
}

impl Search {
    /// A search that can begin: its pattern is compiled.
    ///
    /// # Errors
    /// What is wrong with its path, or with the pattern, and a glob that leads out of the roots.
    pub(super) fn new(
        query: Query,
        workspaces: (&Arc<Workspace>, &Arc<Workspace>),
        stop: &Arc<Stop>,
    ) -> Result<Self, ToolError> {
        let scope = Scope::new(workspaces, &query)?;
        let globs = query.globs.iter().map(|glob| scope.glob(glob)).collect::<Result<_, _>>()?;
        let matcher = Arc::new(query.pattern.compile()?);
        let decodes = query.pattern.hangs_on_encoding();
        Ok(Self { query: Query { globs, ..query }, scope, matcher, decodes, stop: Arc::clone(stop) })
    }

    /// Searches, and answers with the text for the model.
    ///
    /// # Errors
    /// An abort, and a directory or a named file that cannot be read.
    pub(super) fn run(self: &Arc<Self>) -> Result<String, ToolError> {
        let tally = Arc::new(Tally::new(self.query.offset + self.query.limit, limit::FILE_OUTPUT_CHARS_MAX));
        let binary = if self.scope.directory { self.directory(&tally).map(|()| false)? } else { self.file(&tally)? };
        match self.stop.check() {
            Err(Stopped::Aborted) => return Err(ToolError::Aborted),
            Ok(()) | Err(Stopped::Late) => {}
        }
        let mut page = Page::new(self);
        let mut found = tally.finish();
        page.fill(&mut found);
        if let Err(Stopped::Aborted) = self.stop.check() {
            return Err(ToolError::Aborted);
        }
        Ok(page.finish(&found, binary))
    }

    fn directory(self: &Arc<Self>, tally: &Arc<Tally>) -> Result<(), ToolError> {
        let query = &self.query;
        let choice = FileChoice::new("glob", &query.globs)?;
        let types = if query.types.is_empty() { None } else { Some(TypeChoice::new(&query.types)?) };
        let named: Vec<&str> =
            query.path.split('/').chain(query.globs.iter().flat_map(|glob| glob.split('/'))).collect();
        let walk = Walk {
            base: self.scope.base.clone(),
            workspace: Arc::clone(&self.scope.workspace),
            hidden: query.hidden,
            ignored: query.ignored,
            veil: query.veil.clone(),
            skipped: SKIPPED_DIRECTORIES.into_iter().filter(|name| !named.contains(name)).collect(),
            depth: usize::MAX,
            share: SHARE_FILES,
            reads: true,
            // What is known of binary files is that they are.
            shelves: (!query.binary).then(|| &*SHELVES),
        };
        let (search, tally) = (Arc::clone(self), Arc::clone(tally));
        let visitor = move || Visitor {
            search: Arc::clone(&search),
            tally: Arc::clone(&tally),
            choice: choice.share(),
            types: types.clone(),
            files: search.files(&Arc::new(RegexMatcher::clone(&search.matcher))),
            shown: String::new(),
        };
        walk.run(&self.stop, visitor).map_err(|e| io_failed("search", &self.scope.given, &e))?;
        Ok(())
    }

    /// A worker's own search of files; its matcher shares no cache with those of others.
    fn files(&self, matcher: &Arc<RegexMatcher>) -> FileSearch {
        let query = &self.query;
        let content = query.mode == Mode::Content;
        let mut searcher = SearcherBuilder::new();
        searcher.line_number(content).multi_line(query.pattern.multiline);
        if content {
            searcher.before_context(query.before).after_context(query.after);
        }
        FileSearch::new(Arc::clone(matcher), &mut searcher, (query.binary, self.decodes))
    }

    /// Searches the one file that was named. True when it is binary.
    fn file(&self, tally: &Tally) -> Result<bool, ToolError> {
        let file = OwnedFd::from(open(&self.scope.held, &self.scope.given)?);
        let mut files = self.files(&self.matcher);
        let mut shown = String::new();
        self.scope.shown(b"", &mut shown);
        match self.look(&mut files, Source::Open { file, short_reads_end: false, slot: None }, &shown) {
            Ok(Some(hit)) => tally.add(b"", hit),
            Ok(None) => return Ok(true),
            Err(e) => tally.failed(b"", self.why(&e)),
        }
        Ok(false)
    }

    /// Why a file could not be searched. The searcher knows of its buffer alone, not of what did not fit into it.
    fn why(&self, cause: &io::Error) -> String {
        let said = cause.to_string();
        let most = limit::GREP_HEAP_BYTES_MAX;
        match (said.starts_with("configured allocation limit"), self.query.pattern.multiline) {
            (true, true) => format!("it has more than {most} bytes, the most that is searched across lines"),
            (true, false) => format!("a line of it has more than {most} bytes"),
            (false, _) => said,
        }
    }

    /// What a file gives at first sight. None when it is binary.
    fn look(&self, files: &mut FileSearch, file: Source<'_>, shown: &str) -> io::Result<Option<Hit>> {
        let query = &self.query;
        let most = query.offset + query.limit;
        let enough = match query.mode {
            Mode::Files => 1,
            Mode::Count => usize::MAX,
            // The page begins somewhere behind: only then is it known where lines are wanted.
            Mode::Content if query.offset > 0 => most + 1,
            Mode::Content => {
                let room = Room { skip: 0, matches: most, units: limit::FILE_OUTPUT_CHARS_MAX };
                let mut lines = Lines::new(&self.matcher, shown, room, query.before);
                let outcome = files.run(file, &self.stop, &mut lines)?;
                return Ok((outcome == Outcome::Searched).then(|| lines.hit()));
            }
        };
        let mut count = Count { matches: 0, most: enough };
        let outcome = files.run(file, &self.stop, &mut count)?;
        let matches = count.matches;
        let entries = if query.mode == Mode::Content { matches } else { matches.min(1) };
        Ok((outcome == Outcome::Searched).then(|| Hit { matches, entries, ..Hit::default() }))
    }
}

/// One worker's view of the search.
struct Visitor {
    search: Arc<Search>,
    tally: Arc<Tally>,
    choice: FileChoice,
    types: Option<TypeChoice>,
    files: FileSearch,
    /// The path as it is shown; one allocation for all files.
    shown: String,
}

impl Visit for Visitor {
    fn enters(&mut self, path: &[u8]) -> bool {
        self.choice.enters(path) && self.tally.wants(path)
    }

    fn takes(&mut self, path: &[u8]) -> bool {
        self.types.as_ref().is_none_or(|types| types.takes(path)) && self.choice.takes(path)
    }

    fn file(&mut self, place: Place<'_>) {
        if place.kind != Kind::File || !self.tally.wants(place.path) {
            return;
        }
        self.search.scope.shown(place.path, &mut self.shown);
        let Place { directory, name, short_reads_end, slot, .. } = place;
        let known = slot.and_then(|slot| slot.find(directory)).map(Source::Known);
        let source = match known {
            Some(known) => Ok(known),
            None => open_file(directory, name).map(|file| Source::Open { file, short_reads_end, slot }),
        };
        let found = source.and_then(|source| self.search.look(&mut self.files, source, &self.shown));
        match found {
            Ok(Some(hit)) if hit.entries > 0 => self.tally.add(place.path, hit),
            Ok(Some(_) | None) => {}
            Err(cause) => self.failed(place.path, cause),
        }
    }

    fn failed(&mut self, path: &[u8], cause: io::Error) {
        // A file that is gone, or became a link, was not there. One that a stop cut short is no failure of its own.
        let gone = cause.kind() == io::ErrorKind::NotFound
            || cause.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error());
        if !gone && self.search.stop.check().is_ok() {
            self.tally.failed(path, self.search.why(&cause));
        }
    }
}

/// What is shown of what was found.
struct Page<'p> {
    search: &'p Search,
    text: String,
    units: usize,
    /// Entries that it shows.
    entries: usize,
    /// Entries up to its end, with those before it.
    seen: usize,
    /// There are more than it shows.
    more: bool,
    /// Some paths are shown in quotes; some are no text.
    quoted: bool,
    nameless: bool,
}

impl<'p> Page<'p> {
    fn new(search: &'p Search) -> Self {
        let (text, quoted, nameless) = (String::new(), false, false);
        Self { search, text, units: 0, entries: 0, seen: 0, more: false, quoted, nameless }
    }

    fn fill(&mut self, found: &mut Found) {
        let query = &self.search.query;
        for (path, hit) in &found.hits {
            if self.seen + hit.entries <= query.offset {
                self.seen += hit.entries;
                continue;
            }
            if self.more || self.entries == query.limit {
                self.more = true;
                return;
            }
            let added = match query.mode {
                Mode::Content => self.lines_of(path, hit),
                Mode::Files | Mode::Count => {
                    self.name_of(path, hit);
                    Ok(())
                }
            };
            let named = self.search.scope.named(path);
            self.quoted |= !show::is_plain(&named);
            self.nameless |= show::is_nameless(&named);
            if let Err(cause) = added {
                found.failures.push((path.clone(), cause.to_string()));
            }
        }
    }

    /// Adds a file's lines, as many as there is room for.
    fn lines_of(&mut self, path: &[u8], hit: &Hit) -> io::Result<()> {
        let query = &self.search.query;
        let skip = query.offset.saturating_sub(self.seen);
        self.seen += hit.entries;
        let room = Room {
            skip,
            matches: query.limit - self.entries,
            units: limit::FILE_OUTPUT_CHARS_MAX.saturating_sub(self.units + "--\n".len()),
        };
        if !hit.text.is_empty() && hit.matches <= room.matches && hit.units <= room.units {
            self.append(&hit.text, hit.units);
            self.entries += hit.matches;
            return Ok(());
        }
        let mut shown = String::new();
        self.search.scope.shown(path, &mut shown);
        let mut lines = Lines::new(&self.search.matcher, &shown, room, query.before);
        let mut files = self.search.files(&self.search.matcher);
        files.run(
            Source::Open { file: self.search.scope.open(path)?, short_reads_end: false, slot: None },
            &self.search.stop,
            &mut lines,
        )?;
        self.more |= lines.full;
        let again = lines.hit();
        self.append(&again.text, again.units);
        self.entries += again.matches.min(room.matches);
        Ok(())
    }

    /// Adds a file's name, and its count where that is asked for.
    fn name_of(&mut self, path: &[u8], hit: &Hit) {
        self.seen += hit.entries;
        let mut line = String::new();
        self.search.scope.shown(path, &mut line);
        if self.search.query.mode == Mode::Count {
            line += &format!(":{}", hit.matches);
        }
        let units = line.encode_utf16().count() + 1;
        if self.units + units > limit::FILE_OUTPUT_CHARS_MAX {
            self.more = true;
            return;
        }
        self.append(&line, units);
        self.entries += 1;
    }

    fn append(&mut self, text: &str, units: usize) {
        let query = &self.search.query;
        if !self.text.is_empty() && !text.is_empty() {
            let apart = query.mode == Mode::Content && query.before + query.after > 0;
            self.text.push_str(if apart { "\n--\n" } else { "\n" });
            self.units += if apart { "--\n".len() } else { 0 };
        }
        self.text.push_str(text);
        self.units += units;
    }

    /// The text for the model: the entries, then what they do not say.
    fn finish(mut self, found: &Found, binary: bool) -> String {
        let query = &self.search.query;
        if self.entries == 0 && self.seen > 0 {
            self.text = format!("No more matches: there are {} in all.", self.seen);
        } else if self.entries == 0 {
            "No matches found.".clone_into(&mut self.text);
        }
        let mut shown = String::new();
        if binary {
            self.search.scope.shown(b"", &mut shown);
            self.text += &format!("\n({shown} is a binary file: `binary`: true searches it as text)");
        }
        if let Some((path, why)) = found.failures.first() {
            let count = text::counted(found.failures.len(), "file");
            self.search.scope.shown(path, &mut shown);
            self.text += &format!("\n({count} could not be searched, such as {shown}: {why})");
        }
        if self.search.stop.check().is_err() {
            self.text += "\n(Stopped by the time limit: there may be more. Search a smaller directory, or fewer files by `glob`)";
        }
        for note in show::notes(self.quoted, self.nameless) {
            self.text += &format!("\n{note}");
        }
        if self.more {
            let next = query.offset + self.entries;
            if next <= limit::SEARCH_OFFSET_MAX {
                self.text += &format!("\n(Go on with `offset`: {next})");
            }
            self.text += &format!("\n(Results limited to {} entries)", self.entries);
        }
        self.text
    }
}
