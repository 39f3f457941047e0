//! `fs_grep`: lines that match a regular expression, in the order of their paths.
//!
//! The engine is ripgrep's: linear time whatever the expression, ignore files, binary files left out. The walk is our
//! own (`search`), and so is the page: the first matches in the order of the paths, whichever thread found them.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde_json::json;

use super::fs_common::{definition, flag, list_argument, optional_text, path_subject, text_argument, whole};
use super::fs_grep_run::{Scope, Search};
use super::search::{Pattern, Stop, names_hidden, searching};
use crate::base::workspace::Workspace;
use crate::base::{BoxFuture, limit, text};
use crate::protocol::{ToolCategory, ToolDefinition};
use crate::tool::{Arguments, Subject, Tool, ToolContext, ToolError, ToolOutput};

/// Lines of context on each side, at most.
const CONTEXT_LINES_MAX: usize = 20;

static DEFINITION: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let parameters = json!({
        "pattern": {"type": "string", "description": "A regular expression (no look-around, no back references), or plain text with `literal`", "required": true},
        "path": {"type": "string", "description": "A directory or one file. Default: the working directory"},
        "glob": {"type": "string", "description": "Only files of that name, such as `*.{ts,tsx}` or, with a slash, that path below `path`, such as `src/**`. `!` in front: all but these. Several with commas between: the last that fits decides"},
        "type": {"type": "string", "description": "Only files of a type, such as `rust`, `ts`, `py`. `!` in front: all but these. Several with commas between"},
        "mode": {"type": "string", "enum": ["content", "files_with_matches", "count"], "description": "`content`: the lines; `files_with_matches`: the paths alone; `count`: `file:matching lines`. Default: content"},
        "ignore_case": {"type": "boolean", "description": "Capital and small letters are the same. Default: false"},
        "smart_case": {"type": "boolean", "description": "They are the same unless the pattern has a capital letter. Default: false"},
        "literal": {"type": "boolean", "description": "The pattern is plain text. Default: false"},
        "word": {"type": "boolean", "description": "Whole words alone. Default: false"},
        "multiline": {"type": "boolean", "description": "A match may span lines: `\\n` and `.` match line ends. Default: false"},
        "context": {"type": "number", "description": format!("Lines to show around each match, up to {CONTEXT_LINES_MAX}. Default: 0")},
        "before": {"type": "number", "description": "Lines to show before each match, instead of `context`"},
        "after": {"type": "number", "description": "Lines to show after each match, instead of `context`"},
        "limit": {"type": "number", "description": format!("Matches (or files, by `mode`) to show, up to {}", limit::GREP_MATCHES_MAX)},
        "offset": {"type": "number", "description": "Matches (or files) to leave out first, to go on with a limited result"},
        "hidden": {"type": "boolean", "description": "Hidden files too. Default: false"},
        "no_ignore": {"type": "boolean", "description": "Files too that .gitignore and .ignore leave out. Default: false"},
        "binary": {"type": "boolean", "description": "Binary files too, as if they were text. Default: false"},
    });
    let description = "Finds lines by a regular expression and shows them as `file:line: text`, in the order of the paths. \
                       Ignored files (.gitignore), hidden ones, node_modules and binary files are left out; the first \
                       three are searched when `path` names them.";
    definition("fs_grep", ToolCategory::Search, description, parameters)
});

/// The tool.
#[derive(Debug)]
pub struct FsGrep {
    workspace: Arc<Workspace>,
    time: Duration,
}

impl FsGrep {
    /// The tool for a workspace.
    pub fn new(workspace: Arc<Workspace>) -> Self {
        Self { workspace, time: Duration::from_millis(limit::SEARCH_TIME_MS) }
    }

    /// The same with another time limit for one search, after which it says what it has.
    pub fn with_time_limit(self, time: Duration) -> Self {
        Self { time, ..self }
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
            let workspace = Arc::clone(&self.workspace);
            let search = move |stop: &Stop| {
                let query = Query::new(&arguments)?;
                let scope = Scope::new(&workspace, &query)?;
                Search::new(&query, &scope, stop)?.run().map(ToolOutput::from)
            };
            searching(&context.cancel, self.time, search).await
        })
    }
}

/// What is told of a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Its line.
    Content,
    /// Its file.
    Files,
    /// Its file and how many there are.
    Count,
}

/// What is looked for, and where.
#[derive(Debug)]
pub(super) struct Query {
    pub pattern: Pattern,
    pub path: String,
    pub globs: Vec<String>,
    pub types: Vec<String>,
    pub mode: Mode,
    pub before: usize,
    pub after: usize,
    pub limit: usize,
    pub offset: usize,
    pub hidden: bool,
    pub ignored: bool,
    pub binary: bool,
}

impl Query {
    fn new(arguments: &Arguments) -> Result<Self, ToolError> {
        let on = |name| flag(arguments, name);
        let pattern = Pattern {
            text: text_argument(arguments, "pattern")?,
            literal: on("literal")?,
            ignore_case: on("ignore_case")?,
            smart_case: on("smart_case")?,
            word: on("word")?,
            multiline: on("multiline")?,
        };
        let around = lines(arguments, "context")?.unwrap_or(0);
        let globs = list_argument(arguments, "glob")?;
        let hidden = on("hidden")? || globs.iter().any(|glob| !glob.starts_with('!') && names_hidden(glob));
        let offset = whole(arguments, "offset", 0)?.unwrap_or(0);
        if offset > limit::SEARCH_OFFSET_MAX {
            let most = limit::SEARCH_OFFSET_MAX;
            return Err(ToolError::BadArguments(format!("`offset`: expected at most {most}, got {offset}")));
        }
        Ok(Self {
            pattern,
            path: optional_text(arguments, "path")?.unwrap_or_else(|| ".".to_owned()),
            globs,
            types: list_argument(arguments, "type")?,
            mode: mode(arguments)?,
            before: lines(arguments, "before")?.unwrap_or(around),
            after: lines(arguments, "after")?.unwrap_or(around),
            limit: whole(arguments, "limit", 1)?.unwrap_or(usize::MAX).min(limit::GREP_MATCHES_MAX),
            offset,
            hidden,
            ignored: on("no_ignore")?,
            binary: on("binary")?,
        })
    }
}

fn lines(arguments: &Arguments, name: &str) -> Result<Option<usize>, ToolError> {
    let lines = whole(arguments, name, 0)?;
    match lines.filter(|lines| *lines > CONTEXT_LINES_MAX) {
        Some(lines) => {
            let expected = format!("expected at most {CONTEXT_LINES_MAX} lines");
            Err(ToolError::BadArguments(format!("`{name}`: {expected}, got {lines}")))
        }
        None => Ok(lines),
    }
}

fn mode(arguments: &Arguments) -> Result<Mode, ToolError> {
    match optional_text(arguments, "mode")?.as_deref() {
        None | Some("content") => Ok(Mode::Content),
        Some("files_with_matches") => Ok(Mode::Files),
        Some("count") => Ok(Mode::Count),
        Some(other) => {
            let expected = "expected `content`, `files_with_matches` or `count`";
            Err(ToolError::BadArguments(format!("`mode`: {expected}, got \"{}\"", text::head(other, 80))))
        }
    }
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
            (json!({"pattern": "one", "limit": 2}), "a/z.rs:1: fn one() {}\na.rs:1: // one\n(Go on with `offset`: 2)\n(Results limited to 2 entries)"),
            (json!({"pattern": "two", "limit": 1}), "b.txt:2: two"),
            (json!({"pattern": "three"}), "No matches found."),
            (json!({"pattern": "one", "path": "nul.bin"}), "No matches found.\n(nul.bin is a binary file: `binary`: true searches it as text)"),
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
        assert!(text.ends_with("f:1000: match this\n(Go on with `offset`: 1000)\n(Results limited to 1000 entries)"));
        let text = call(&tool, json!({"pattern": "match", "path": "g"})).unwrap();
        let shown = text.lines().count() - 2;
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
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
        let tool = FsGrep::new(workspace);
        assert_eq!(call(&tool, json!({"pattern": "root"})).as_deref(), Ok("a:1: root one"));
        assert!(call(&tool, json!({"pattern": "root", "path": "etc"})).unwrap_err().contains("escapes"));
        assert!(call(&tool, json!({"pattern": "root", "path": "fifo"})).unwrap_err().contains("named pipe"));
    }
}
