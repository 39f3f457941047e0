//! `fs_grep`: lines that match a regular expression, in the order of their paths.
//!
//! The engine is ripgrep's: linear time whatever the expression, ignore files, binary files left out.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, LazyLock};

use globset::{GlobBuilder, GlobMatcher};
use grep_matcher::{LineTerminator, Matcher};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};
use rustix::fs::{Mode, OFlags};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::fs_common::{
    blocking, definition, flag, io_failed, not_found, open, optional_text, path_subject, refused, text_argument, whole,
};
use super::fs_walk::{WalkOptions, walker};
use crate::base::text;
use crate::base::workspace::Workspace;
use crate::base::{BoxFuture, limit};
use crate::protocol::{ToolCategory, ToolDefinition};
use crate::tool::{Arguments, Subject, Tool, ToolContext, ToolError, ToolOutput};

/// Lines of context on each side, at most.
const CONTEXT_LINES_MAX: usize = 20;
/// Bytes shown before the match, in a line that is cut.
const LEAD_BYTES: usize = 100;

static DEFINITION: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let parameters = json!({
        "pattern": {"type": "string", "description": "A regular expression (no look-around, no back references), or plain text with `literal`", "required": true},
        "path": {"type": "string", "description": "A directory or one file. Default: the working directory"},
        "glob": {"type": "string", "description": "Only files of that name, such as `*.{ts,tsx}` or, with a slash, that path, such as `src/**`. `!` in front: all but these"},
        "ignore_case": {"type": "boolean", "description": "Capital and small letters are the same. Default: false"},
        "literal": {"type": "boolean", "description": "The pattern is plain text. Default: false"},
        "context": {"type": "number", "description": format!("Lines to show around each match, up to {CONTEXT_LINES_MAX}. Default: 0")},
        "limit": {"type": "number", "description": format!("Matches to show, up to {}", limit::GREP_MATCHES_MAX)},
    });
    let description = "Finds lines by a regular expression and shows them as `file:line: text`, in the order of the paths. \
                       Ignored files (.gitignore), hidden ones, node_modules and binary files are left out, unless \
                       `path` names them.";
    definition("fs_grep", ToolCategory::Search, description, parameters)
});

/// The tool.
#[derive(Debug)]
pub struct FsGrep {
    workspace: Arc<Workspace>,
}

impl FsGrep {
    /// The tool for a workspace.
    pub fn new(workspace: Arc<Workspace>) -> Self {
        Self { workspace }
    }
}

impl Tool for FsGrep {
    fn definition(&self) -> &ToolDefinition {
        &DEFINITION
    }

    fn subject(&self, arguments: &Arguments) -> Subject {
        let given = arguments.get("path").and_then(|path| path.as_str()).unwrap_or(".");
        Subject::Paths(vec![path_subject(&self.workspace, given)])
    }

    fn run<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let query = Query::new(&arguments)?;
            let (workspace, cancel) = (Arc::clone(&self.workspace), context.cancel.clone());
            blocking(move || query.run(&workspace, &cancel).map(ToolOutput::from)).await
        })
    }
}

/// What is looked for, and where.
#[derive(Debug)]
struct Query {
    matcher: RegexMatcher,
    path: String,
    files: Option<FileFilter>,
    context: usize,
    limit: usize,
}

/// Which files of a directory are searched.
#[derive(Debug)]
struct FileFilter {
    glob: GlobMatcher,
    whole_path: bool,
    negated: bool,
}

impl FileFilter {
    fn new(pattern: &str) -> Result<Self, ToolError> {
        let (negated, pattern) = match pattern.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, pattern),
        };
        let pattern = pattern.strip_prefix("./").unwrap_or(pattern);
        let glob = GlobBuilder::new(pattern.trim_start_matches('/')).literal_separator(true).build();
        let glob = glob.map_err(|e| ToolError::BadArguments(format!("`glob`: {e}")))?.compile_matcher();
        Ok(Self { glob, whole_path: pattern.contains('/'), negated })
    }

    fn takes(&self, relative: &Path) -> bool {
        let held = if self.whole_path { Some(relative) } else { relative.file_name().map(Path::new) };
        held.is_some_and(|path| self.glob.is_match(path)) != self.negated
    }
}

impl Query {
    fn new(arguments: &Arguments) -> Result<Self, ToolError> {
        let pattern = text_argument(arguments, "pattern")?;
        if pattern.is_empty() {
            return Err(ToolError::BadArguments(
                "`pattern`: expected a regular expression, got an empty string".into(),
            ));
        }
        let context = whole(arguments, "context", 0)?.unwrap_or(0);
        if context > CONTEXT_LINES_MAX {
            let expected = format!("expected at most {CONTEXT_LINES_MAX} lines");
            return Err(ToolError::BadArguments(format!("`context`: {expected}, got {context}")));
        }
        let matcher = RegexMatcherBuilder::new()
            .case_insensitive(flag(arguments, "ignore_case")?)
            .fixed_strings(flag(arguments, "literal")?)
            .multi_line(true)
            .crlf(true)
            .size_limit(limit::REGEX_BYTES_MAX)
            .dfa_size_limit(limit::REGEX_BYTES_MAX)
            .build(&pattern)
            .map_err(|e| {
                ToolError::BadArguments(format!("`pattern` is no regular expression that can be used: {e}"))
            })?;
        Ok(Self {
            matcher,
            path: optional_text(arguments, "path")?.unwrap_or_else(|| ".".to_owned()),
            files: optional_text(arguments, "glob")?.map(|glob| FileFilter::new(&glob)).transpose()?,
            context,
            limit: whole(arguments, "limit", 1)?.unwrap_or(usize::MAX).min(limit::GREP_MATCHES_MAX),
        })
    }

    fn run(&self, workspace: &Workspace, cancel: &CancellationToken) -> Result<String, ToolError> {
        let base = workspace.resolve(&self.path).map_err(|e| refused(&e))?;
        let is_directory = match std::fs::metadata(&base) {
            Ok(kind) => kind.is_dir(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(not_found(workspace, &self.path)),
            Err(e) => return Err(io_failed("search", &self.path, &e)),
        };
        let searcher = SearcherBuilder::new()
            .line_terminator(LineTerminator::crlf())
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(limit::GREP_HEAP_BYTES_MAX))
            .before_context(self.context)
            .after_context(self.context)
            .build();
        let mut search = Search { query: self, workspace, cancel, searcher, found: Found::new(self.limit) };
        if is_directory {
            search.directory(&base)?;
        } else {
            search.file(open(workspace, &self.path)?, &workspace.shown(&base))?;
        }
        Ok(search.found.finish())
    }
}

/// One run of a query.
struct Search<'s> {
    query: &'s Query,
    workspace: &'s Workspace,
    cancel: &'s CancellationToken,
    searcher: Searcher,
    found: Found,
}

impl Search<'_> {
    fn directory(&mut self, base: &Path) -> Result<(), ToolError> {
        for entry in walker(self.workspace, base, &self.query.path, WalkOptions { hidden: false, sorted: true }) {
            if self.cancel.is_cancelled() {
                return Err(ToolError::Aborted);
            }
            if self.found.more {
                break;
            }
            match entry {
                Ok(entry) => self.entry(base, &entry)?,
                Err(e) => self.found.unreadable(e.to_string()),
            }
        }
        Ok(())
    }

    fn entry(&mut self, base: &Path, entry: &ignore::DirEntry) -> Result<(), ToolError> {
        let relative = entry.path().strip_prefix(base).unwrap_or(entry.path());
        let wanted = self.query.files.as_ref().is_none_or(|files| files.takes(relative));
        if !wanted || !entry.file_type().is_some_and(|kind| kind.is_file()) {
            return Ok(());
        }
        let shown = self.workspace.shown(entry.path());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY;
        match rustix::fs::open(entry.path(), flags, Mode::empty()) {
            Ok(file) => self.file(File::from(file), &shown),
            Err(e) => {
                self.found.unreadable(format!("{shown}: {}", io::Error::from(e)));
                Ok(())
            }
        }
    }

    fn file(&mut self, file: File, shown: &str) -> Result<(), ToolError> {
        let before = self.found.mark();
        let matcher = &self.query.matcher;
        let mut lines = Lines { matcher, shown, found: &mut self.found, binary: false };
        let result = self.searcher.search_reader(matcher, Abortable { file, cancel: self.cancel }, &mut lines);
        let binary = lines.binary;
        if self.cancel.is_cancelled() {
            return Err(ToolError::Aborted);
        }
        if binary {
            self.found.back_to(before);
        }
        if let Err(e) = result {
            self.found.unreadable(format!("{shown}: {e}"));
        }
        Ok(())
    }
}

/// A file whose reading ends with an abort.
struct Abortable<'c> {
    file: File,
    cancel: &'c CancellationToken,
}

impl Read for Abortable<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancel.is_cancelled() {
            return Err(io::Error::other("aborted"));
        }
        self.file.read(buffer)
    }
}

/// The output so far.
#[derive(Debug)]
struct Found {
    text: String,
    units: usize,
    matches: usize,
    limit: usize,
    /// There are more matches than are shown.
    more: bool,
    unreadable: usize,
    first_unreadable: Option<String>,
}

impl Found {
    fn new(limit: usize) -> Self {
        Self { text: String::new(), units: 0, matches: 0, limit, more: false, unreadable: 0, first_unreadable: None }
    }

    /// Adds a line. False when there is no room for it.
    fn add(&mut self, line: &str) -> bool {
        let units = line.encode_utf16().count() + 1;
        if self.units + units > limit::FILE_OUTPUT_CHARS_MAX {
            self.more = true;
            return false;
        }
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(line);
        self.units += units;
        true
    }

    fn mark(&self) -> (usize, usize, usize) {
        (self.text.len(), self.units, self.matches)
    }

    fn back_to(&mut self, (bytes, units, matches): (usize, usize, usize)) {
        self.text.truncate(bytes);
        (self.units, self.matches, self.more) = (units, matches, false);
    }

    fn unreadable(&mut self, why: String) {
        self.unreadable += 1;
        self.first_unreadable.get_or_insert(why);
    }

    fn finish(mut self) -> String {
        if self.matches == 0 {
            "No matches found.".clone_into(&mut self.text);
        } else if self.more {
            self.text += &format!("\n(Results limited to {} entries)", self.matches);
        }
        if let Some(why) = self.first_unreadable {
            let count = text::counted(self.unreadable, "file");
            self.text += &format!("\n({count} could not be searched, such as {why})");
        }
        self.text
    }
}

/// Takes the lines of one file.
struct Lines<'s> {
    matcher: &'s RegexMatcher,
    shown: &'s str,
    found: &'s mut Found,
    binary: bool,
}

impl Lines<'_> {
    fn line(&self, bytes: &[u8], separator: char, number: Option<u64>) -> String {
        let number = number.unwrap_or_default();
        format!("{}{separator}{number}{separator} {}", self.shown, shortened(bytes, self.matcher))
    }
}

impl Sink for Lines<'_> {
    type Error = io::Error;

    fn matched(&mut self, _searcher: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        if self.found.matches == self.found.limit {
            self.found.more = true;
            return Ok(false);
        }
        let line = self.line(found.bytes(), ':', found.line_number());
        let added = self.found.add(&line);
        self.found.matches += usize::from(added);
        Ok(added)
    }

    fn context(&mut self, _searcher: &Searcher, context: &SinkContext<'_>) -> Result<bool, io::Error> {
        let line = self.line(context.bytes(), '-', context.line_number());
        Ok(self.found.add(&line))
    }

    fn context_break(&mut self, _searcher: &Searcher) -> Result<bool, io::Error> {
        Ok(self.found.add("--"))
    }

    fn binary_data(&mut self, _searcher: &Searcher, _offset: u64) -> Result<bool, io::Error> {
        self.binary = true;
        Ok(false)
    }
}

/// A line without its ending; a long one is cut to the part around the match.
fn shortened(bytes: &[u8], matcher: &RegexMatcher) -> String {
    let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let most = limit::GREP_LINE_BYTES_MAX;
    if line.len() <= most {
        return String::from_utf8_lossy(line).into_owned();
    }
    let at = matcher.find(line).ok().flatten().map_or(0, |found| found.start());
    let boundary = |at: usize| (at..line.len()).find(|&at| line[at] & 0xc0 != 0x80).unwrap_or(line.len());
    let start = if at + LEAD_BYTES <= most { 0 } else { boundary(at - LEAD_BYTES) };
    let mut end = (start + most).min(line.len());
    while end < line.len() && end > start && line[end] & 0xc0 == 0x80 {
        end -= 1;
    }
    let ahead = if start > 0 { "…" } else { "" };
    format!("{ahead}{} [line cut: {} bytes in all]", String::from_utf8_lossy(&line[start..end]), line.len())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::super::fs_common::testing::{aborted, call, put, workspace};
    use super::*;

    fn place() -> (tempfile::TempDir, FsGrep) {
        let (home, workspace) = workspace(&[
            ("b.txt", "one\ntwo\nONE\n"),
            ("a/z.rs", "fn one() {}\r\n"),
            ("a.rs", "// one\n"),
            (".gitignore", "out\n"),
            ("out/x.txt", "one\n"),
            (".env", "one\n"),
            ("node_modules/m.js", "one\n"),
            ("nul.bin", "one\n\0\n"),
        ]);
        fs::write(home.path().join("latin.txt"), b"caf\xe9 one\n").unwrap();
        (home, FsGrep::new(workspace))
    }

    #[test]
    fn matches_come_in_the_order_of_the_paths() {
        let (_home, tool) = place();
        #[rustfmt::skip]
        let table = [
            (json!({"pattern": "one"}), "a/z.rs:1: fn one() {}\na.rs:1: // one\nb.txt:1: one\nlatin.txt:1: caf\u{fffd} one"),
            (json!({"pattern": "^one$", "ignore_case": true}), "b.txt:1: one\nb.txt:3: ONE"),
            (json!({"pattern": r"\{\}$"}), "a/z.rs:1: fn one() {}"),
            (json!({"pattern": "one", "path": "b.txt"}), "b.txt:1: one"),
            (json!({"pattern": "one", "path": "a"}), "a/z.rs:1: fn one() {}"),
            (json!({"pattern": "one", "path": ".env"}), ".env:1: one"),
            (json!({"pattern": "one", "path": "out"}), "out/x.txt:1: one"),
            (json!({"pattern": "one", "path": "node_modules"}), "node_modules/m.js:1: one"),
            (json!({"pattern": "one", "glob": "*.{rs,py}"}), "a/z.rs:1: fn one() {}\na.rs:1: // one"),
            (json!({"pattern": "one", "glob": "a/**"}), "a/z.rs:1: fn one() {}"),
            (json!({"pattern": "one", "glob": "!*.rs"}), "b.txt:1: one\nlatin.txt:1: caf\u{fffd} one"),
            (json!({"pattern": "one() {", "literal": true}), "a/z.rs:1: fn one() {}"),
            (json!({"pattern": "two", "context": 1}), "b.txt-1- one\nb.txt:2: two\nb.txt-3- ONE"),
            (json!({"pattern": "one", "limit": 2}), "a/z.rs:1: fn one() {}\na.rs:1: // one\n(Results limited to 2 entries)"),
            (json!({"pattern": "two", "limit": 1}), "b.txt:2: two"),
            (json!({"pattern": "three"}), "No matches found."),
            (json!({"pattern": "one", "path": "nul.bin"}), "No matches found."),
        ];
        for (arguments, want) in table {
            assert_eq!(call(&tool, arguments.clone()).as_deref(), Ok(want), "{arguments}");
        }
    }

    #[test]
    fn bad_arguments_say_why() {
        let (home, tool) = place();
        let said = |arguments| call(&tool, arguments).unwrap_err();
        assert!(said(json!({"pattern": "(a"})).contains("unclosed group"), "{}", said(json!({"pattern": "(a"})));
        assert!(said(json!({"pattern": "(?=a)"})).contains("look-around"), "{}", said(json!({"pattern": "(?=a)"})));
        assert!(said(json!({"pattern": "((a{1000}){1000}){1000}"})).contains("size limit"));
        assert!(said(json!({"pattern": ""})).contains("empty"));
        assert!(said(json!({"pattern": "a", "glob": "["})).starts_with("`glob`: "));
        assert!(said(json!({"pattern": "a", "context": 21})).contains("at most 20"));
        assert!(said(json!({"pattern": "a", "path": "b.tx"})).contains("Did you mean \"b.txt\"?"));
        let wd = home.path().display();
        assert_eq!(
            said(json!({"pattern": "a", "path": "../"})),
            format!("Path \"../\" escapes the working directory \"{wd}\"")
        );
        aborted(&tool, json!({"pattern": "one"}));
        aborted(&tool, json!({"pattern": "one", "path": "b.txt"}));
    }

    #[test]
    fn a_catastrophic_expression_and_long_lines_end_soon() {
        let (home, workspace) = workspace(&[]);
        put(home.path(), "long", &("a".repeat(200_000) + "X" + &"ä".repeat(1_000) + "\n"));
        let tool = FsGrep::new(workspace);
        assert_eq!(call(&tool, json!({"pattern": "(a+)+$"})).as_deref(), Ok("No matches found."));
        let text = call(&tool, json!({"pattern": "X"})).unwrap();
        assert!(
            text.starts_with("long:1: …aaaa")
                && text.contains("aXä")
                && text.ends_with("ä [line cut: 202001 bytes in all]"),
            "{text}"
        );
        assert!(text.len() < 600);
    }

    #[test]
    fn much_output_is_capped_and_said() {
        let (home, workspace) = workspace(&[]);
        put(home.path(), "f", &"match this\n".repeat(5_000));
        put(home.path(), "g", &("match ".to_owned() + &"x".repeat(400) + "\n").repeat(5_000));
        let tool = FsGrep::new(workspace);
        let text = call(&tool, json!({"pattern": "match"})).unwrap();
        assert!(text.ends_with("f:1000: match this\n(Results limited to 1000 entries)"));
        let text = call(&tool, json!({"pattern": "match", "path": "g"})).unwrap();
        let shown = text.lines().count() - 1;
        assert!(
            text.ends_with(&format!("(Results limited to {shown} entries)")) && text.len() < limit::OUTPUT_CHARS_MAX
        );
    }

    #[test]
    fn links_and_pipes_are_not_followed() {
        let (home, workspace) = workspace(&[("a", "root one\n")]);
        symlink("/etc/passwd", home.path().join("passwd")).unwrap();
        symlink("/etc", home.path().join("etc")).unwrap();
        let fifo = home.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let tool = FsGrep::new(workspace);
        assert_eq!(call(&tool, json!({"pattern": "root"})).as_deref(), Ok("a:1: root one"));
        assert!(call(&tool, json!({"pattern": "root", "path": "etc"})).unwrap_err().contains("escapes"));
        assert!(call(&tool, json!({"pattern": "root", "path": "fifo"})).unwrap_err().contains("named pipe"));
    }
}
