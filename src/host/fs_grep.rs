//! `fs_grep`: lines that match a regular expression, in the order of their paths.
//!
//! The engine is ripgrep's: linear time whatever the expression, ignore files, binary files left out. The walk is our
//! own (`search`), and so is the page: the first matches in the order of the paths, whichever thread found them.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde_json::json;

use super::fs_common::{definition, flag, list_argument, optional_text, path_subject, text_argument, whole};
use super::fs_grep_run::Search;
use super::search::{Pattern, Stop, names_hidden, searching};
use crate::base::workspace::Workspace;
use crate::base::{BoxFuture, limit, text};
use crate::protocol::{ToolCategory, ToolDefinition};
use crate::tool::{Arguments, Subject, Tool, ToolContext, ToolError, ToolOutput, Veil};

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

/// Other names of its arguments that models use, ripgrep's options among them.
const ALIASES: [(&str, &str); 21] = [
    ("query", "pattern"),
    ("regex", "pattern"),
    ("directory", "path"),
    ("dir", "path"),
    ("file", "path"),
    ("filepath", "path"),
    ("file_path", "path"),
    ("globs", "glob"),
    ("include", "glob"),
    ("output_mode", "mode"),
    ("case_insensitive", "ignore_case"),
    ("ignoreCase", "ignore_case"),
    ("-i", "ignore_case"),
    ("fixed_strings", "literal"),
    ("-A", "after"),
    ("-B", "before"),
    ("-C", "context"),
    ("context_lines", "context"),
    ("max_results", "limit"),
    ("maxResults", "limit"),
    ("head_limit", "limit"),
];

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

    fn aliases(&self) -> &'static [(&'static str, &'static str)] {
        &ALIASES
    }

    fn searches(&self) -> bool {
        true
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
            let (workspace, held) = (Arc::clone(&self.workspace), context.judged.hold(&self.workspace));
            let veil = context.veil.clone();
            let search = move |stop: &Arc<Stop>| {
                let query = Query { veil, ..Query::new(&arguments)? };
                Arc::new(Search::new(query, (&workspace, &held), stop)?).run().map(ToolOutput::from)
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
    pub veil: Option<Veil>,
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
            veil: None,
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

    use super::super::fs_common::testing::{aborted, call, call_in, context, put, workspace};
    use super::super::{FsGlob, FsList};
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
    fn a_veil_is_passed_over_by_every_search() {
        let (home, grep) = place();
        let workspace = Arc::clone(&grep.workspace);
        let hidden = home.path().canonicalize().unwrap().join("a");
        let veiled = move |path: &std::path::Path| path.starts_with(&hidden) || path.ends_with(".env");
        let context = crate::tool::ToolContext { veil: Some(Veil::new(veiled)), ..context() };
        let (glob, list) = (FsGlob::new(Arc::clone(&workspace)), FsList::new(workspace));
        #[rustfmt::skip]
        let table: [(&dyn Tool, serde_json::Value, &[&str], &[&str]); 4] = [
            (&grep, json!({"pattern": "one", "hidden": true}), &["a.rs:1", "b.txt:1"], &["z.rs", ".env"]),
            (&grep, json!({"pattern": "one", "path": "a"}), &["No matches"], &["z.rs"]),
            (&glob, json!({"pattern": "**/*", "hidden": true}), &["a.rs", "b.txt"], &["z.rs", ".env"]),
            (&list, json!({"depth": 3}), &["a.rs", "b.txt"], &["z.rs", ".env", "d a"]),
        ];
        for (tool, arguments, shown, hidden) in table {
            let text = call_in(tool, arguments.clone(), &context).unwrap();
            assert!(shown.iter().all(|name| text.contains(name)), "{arguments}: {text}");
            assert!(!hidden.iter().any(|name| text.contains(name)), "{arguments}: {text}");
        }
    }

    #[test]
    fn matches_come_in_the_order_of_the_paths() {
        let (_home, tool) = place();
        #[rustfmt::skip]
        let table = [
            (json!({"pattern": "one"}), "a/z.rs:1: fn one() {}\na.rs:1: // one\nb.txt:1: one\nlatin.txt:1: café one"),
            (json!({"pattern": "^one$", "ignore_case": true}), "b.txt:1: one\nb.txt:3: ONE"),
            (json!({"pattern": r"\{\}$"}), "a/z.rs:1: fn one() {}"),
            (json!({"pattern": "one", "path": "b.txt"}), "b.txt:1: one"),
            (json!({"pattern": "one", "path": "a"}), "a/z.rs:1: fn one() {}"),
            (json!({"pattern": "one", "path": ".env"}), ".env:1: one"),
            (json!({"pattern": "one", "path": "out"}), "out/x.txt:1: one"),
            (json!({"pattern": "one", "path": "node_modules"}), "node_modules/m.js:1: one"),
            (json!({"pattern": "one", "glob": "*.{rs,py}"}), "a/z.rs:1: fn one() {}\na.rs:1: // one"),
            (json!({"pattern": "one", "glob": "a/**"}), "a/z.rs:1: fn one() {}"),
            (json!({"pattern": "one", "glob": "!*.rs"}), "b.txt:1: one\nlatin.txt:1: café one"),
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
    fn files_of_older_encodings_are_found_by_what_is_shown() {
        let (home, workspace) = workspace(&[("utf8", "caf\u{e9} 1\n"), ("plain", "cafe\n")]);
        fs::write(home.path().join("old"), b"caf\xe9 2\r\ncaf\xe9\xe9\nx\n").unwrap();
        let large = [&b"plain\n".repeat(60_000)[..], b"x\ncaf\xe9 3\n"].concat();
        fs::write(home.path().join("large"), large).unwrap();
        let tool = FsGrep::new(workspace);
        let (large, old, utf8) = ("large:60002: caf\u{e9} 3", "old:1: caf\u{e9} 2", "utf8:1: caf\u{e9} 1");
        #[rustfmt::skip]
        let table = [
            (json!({"pattern": "caf\u{e9} "}), format!("{large}\n{old}\n{utf8}")), (json!({"pattern": "caf. "}), format!("{large}\n{old}\n{utf8}")),
            (json!({"pattern": "CAF\u{c9} ", "ignore_case": true}), format!("{large}\n{old}\n{utf8}")), (json!({"pattern": "caf\u{e9} ", "literal": true}), format!("{large}\n{old}\n{utf8}")),
            (json!({"pattern": "^caf\\w{2}$"}), "old:2: caf\u{e9}\u{e9}".into()), (json!({"pattern": "caf", "word": true}), "No matches found.".into()),
            (json!({"pattern": "(?-u:\\xe9) 2"}), old.into()), (json!({"pattern": "\u{e9}\nx", "multiline": true}), "old:2: caf\u{e9}\u{e9}\nold:3: x".into()),
            (json!({"pattern": "\u{e9} .", "mode": "count"}), "large:1\nold:1\nutf8:1".into()), (json!({"pattern": "\u{e9} .", "limit": 1, "offset": 1}), format!("{old}\n(Go on with `offset`: 2)\n(Results limited to 1 entries)")),
            (json!({"pattern": "^.{4}$", "path": "old"}), "No matches found.".into()), (json!({"pattern": "^.{6}$", "path": "old"}), old.into()),
        ];
        for (arguments, want) in table {
            assert_eq!(call(&tool, arguments.clone()).as_deref(), Ok(want.as_str()), "{arguments}");
        }
    }

    #[test]
    fn odd_names_stay_on_one_line_in_every_search() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;

        let (home, workspace) = workspace(&[("a\nb.txt", "one\n"), ("\u{1b}[31m/x", "one\n"), ("it's", "one\n")]);
        let (grep, glob, list) =
            (FsGrep::new(Arc::clone(&workspace)), FsGlob::new(Arc::clone(&workspace)), FsList::new(workspace));
        let json_note = "(A path in double quotes is written as a JSON string)";
        #[rustfmt::skip]
        let table: [(&dyn Tool, serde_json::Value, String); 7] = [
            (&grep, json!({"pattern": "one"}), format!("\"\\u001b[31m/x\":1: one\n\"a\\nb.txt\":1: one\nit's:1: one\n{json_note}")),
            (&grep, json!({"pattern": "one", "limit": 1}), format!("\"\\u001b[31m/x\":1: one\n{json_note}\n(Go on with `offset`: 1)\n(Results limited to 1 entries)")),
            (&grep, json!({"pattern": "one", "path": "a\nb.txt", "mode": "count"}), format!("\"a\\nb.txt\":1\n{json_note}")),
            (&grep, json!({"pattern": "one", "path": "\u{1b}[31m"}), format!("\"\\u001b[31m/x\":1: one\n{json_note}")),
            (&grep, json!({"pattern": "one", "path": "it's"}), "it's:1: one".to_owned()),
            (&glob, json!({"pattern": "a*"}), format!("\"a\\nb.txt\"\n{json_note}")),
            (&list, json!({}), format!("d \"\\u001b[31m\"\nf \"\\u001b[31m/x\"\nf \"a\\nb.txt\"\nf it's\n{json_note}")),
        ];
        for (tool, arguments, want) in table {
            assert_eq!(call(tool, arguments.clone()).as_deref(), Ok(want.as_str()), "{arguments}");
        }
        let said = call(&grep, json!({"pattern": "one", "path": "a\nc.txt"})).unwrap_err();
        assert!(said.ends_with(r#"Did you mean "a\nb.txt"?"#), "{said}");
        let nameless = home.path().join(OsStr::from_bytes(b"ba\xffd"));
        if fs::write(nameless, "two\n").is_err() {
            return; // Not every file system has such names.
        }
        let note = "(A path in double quotes is written as a JSON string)\n(A path with \\x is not UTF-8: no argument can name it)";
        assert_eq!(call(&grep, json!({"pattern": "two"})), Ok(format!("\"ba\\xffd\":1: two\n{note}")));
        assert_eq!(call(&glob, json!({"pattern": "b*"})), Ok(format!("\"ba\\xffd\"\n{note}")));
        assert!(call(&list, json!({})).unwrap().contains("\nf \"ba\\xffd\"\n"));
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
        for glob in ["../**", "a/../../x", "/etc/*", "/etc/**/*.conf", "{..,a}/*", "*.rs,../*"] {
            let bad = glob.strip_prefix("*.rs,").unwrap_or(glob);
            let want = format!("Path \"{bad}\" escapes the working directory \"{wd}\"");
            for path in [".", "b.txt"] {
                assert_eq!(said(json!({"pattern": "one", "path": path, "glob": glob})), want);
            }
        }
        let absolute = format!("{}/a/*.rs", home.path().canonicalize().unwrap().display());
        for glob in ["/a/*", "/a/**", "!../x,a/*", absolute.as_str()] {
            let found = call(&tool, json!({"pattern": "one", "glob": glob}));
            assert_eq!(found.as_deref(), Ok("a/z.rs:1: fn one() {}"), "{glob}");
        }
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
    fn a_line_that_is_too_long_to_search_is_told_as_that() {
        let (home, workspace) = workspace(&[]);
        put(home.path(), "line", &"x".repeat(limit::GREP_HEAP_BYTES_MAX + 1));
        let tool = FsGrep::new(workspace);
        let most = limit::GREP_HEAP_BYTES_MAX;
        for (multiline, why) in [
            (false, format!("a line of it has more than {most} bytes")),
            (true, format!("it has more than {most} bytes, the most that is searched across lines")),
        ] {
            let want = format!("No matches found.\n(1 file could not be searched, such as line: {why})");
            for path in [".", "line"] {
                let said = call(&tool, json!({"pattern": "y", "path": path, "multiline": multiline}));
                assert_eq!(said.as_deref(), Ok(want.as_str()), "{path}");
            }
        }
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

    /// A tree with every kind of rule and content; what is found in it is what `rg --no-require-git` finds.
    fn odd_place() -> (tempfile::TempDir, FsGrep) {
        let (home, workspace) = workspace(&[
            (".gitignore", "*.log\n/build\n!keep.log\n.cache/\n"),
            (".ignore", "secret*\n!.github\n"),
            ("a.txt", "alpha\nAlpha beta\nalphabet\n"),
            ("crlf.txt", "alpha\r\nbeta\r\n"),
            ("keep.log", "alpha\n"),
            ("drop.log", "alpha\n"),
            ("build/b.txt", "alpha\n"),
            ("secret.txt", "alpha\n"),
            (".github/w.yml", "on: alpha\n"),
            (".hidden/h.txt", "alpha\n"),
            ("sub/.gitignore", "!drop.log\nlocal\n"),
            ("sub/drop.log", "alpha\n"),
            ("sub/local", "alpha\n"),
            ("sub/build/c.rs", "alpha\n"),
            ("sub/inner/.ignore", "*.txt\n"),
            ("sub/inner/x.txt", "alpha\n"),
            ("sub/inner/y.rs", "fn alpha() {\n    beta(1)\n}\n"),
            ("own/.git/HEAD", "ref\n"),
            ("own/in.log", "alpha\n"),
            ("bin.dat", "alpha\n\0"),
            ("empty", ""),
            ("no_end", "alpha"),
            ("bom.txt", "\u{feff}alpha\n"),
        ]);
        let late = "y\n".repeat(200_000) + "alpha\n" + &"y\n".repeat(100_000) + "\0";
        fs::write(home.path().join("late.bin"), late).unwrap();
        fs::write(home.path().join("utf16.txt"), b"\xff\xfea\0l\0p\0h\0a\0\n\0").unwrap();
        fs::write(home.path().join("latin"), b"caf\xe9 alpha\n").unwrap();
        (home, FsGrep::new(workspace))
    }

    #[test]
    fn files_are_chosen_as_ripgrep_does() {
        let (_home, tool) = odd_place();
        let plain = ".github/w.yml a.txt bom.txt crlf.txt keep.log late.bin latin no_end own/in.log sub/build/c.rs sub/drop.log sub/inner/y.rs utf16.txt";
        #[rustfmt::skip]
        let table = [
            (json!({}), plain),
            (json!({"hidden": true}), ".github/w.yml .hidden/h.txt a.txt bom.txt crlf.txt keep.log late.bin latin no_end own/in.log sub/build/c.rs sub/drop.log sub/inner/y.rs utf16.txt"),
            (json!({"no_ignore": true}), "a.txt bom.txt build/b.txt crlf.txt drop.log keep.log late.bin latin no_end own/in.log secret.txt sub/build/c.rs sub/drop.log sub/inner/x.txt sub/inner/y.rs sub/local utf16.txt"),
            (json!({"binary": true, "glob": "*.{dat,bin}"}), "bin.dat late.bin"),
            (json!({"glob": "*.rs"}), "sub/build/c.rs sub/inner/y.rs"),
            (json!({"glob": "*.rs, !**/inner/**"}), "sub/build/c.rs"),
            (json!({"glob": "!sub/,!*.{txt,yml}"}), "keep.log late.bin latin no_end own/in.log"),
            (json!({"glob": ".hidden/**"}), ".hidden/h.txt"),
            (json!({"type": "rust,yaml"}), ".github/w.yml sub/build/c.rs sub/inner/y.rs"),
            (json!({"type": "!rust, !txt", "path": "sub"}), "sub/drop.log"),
            (json!({"path": "sub/inner"}), "sub/inner/y.rs"),
            (json!({"path": "build"}), "build/b.txt"),
            (json!({"path": "own"}), "own/in.log"),
            (json!({"path": "secret.txt"}), "secret.txt"),
        ];
        for (arguments, want) in table {
            let mut all = arguments.as_object().unwrap().clone();
            all.extend([("pattern".to_owned(), json!("alpha")), ("mode".to_owned(), json!("files_with_matches"))]);
            let got = call(&tool, serde_json::Value::Object(all)).unwrap();
            assert_eq!(got.lines().collect::<Vec<_>>().join(" "), want, "{arguments}");
        }
    }

    #[test]
    fn patterns_match_as_asked() {
        let (_home, tool) = odd_place();
        #[rustfmt::skip]
        let table = [
            (json!({"pattern": "ALPHA", "ignore_case": true, "path": "a.txt", "mode": "count"}), "a.txt:3"),
            (json!({"pattern": "alpha", "smart_case": true, "path": "a.txt", "mode": "count"}), "a.txt:3"),
            (json!({"pattern": "Alpha", "smart_case": true, "path": "a.txt"}), "a.txt:2: Alpha beta"),
            (json!({"pattern": "alpha", "word": true, "path": "a.txt"}), "a.txt:1: alpha"),
            (json!({"pattern": "a$", "path": "crlf.txt"}), "crlf.txt:1: alpha\ncrlf.txt:2: beta"),
            (json!({"pattern": "alpha\\(\\) \\{\\n.*\\n\\}", "multiline": true}), "sub/inner/y.rs:1: fn alpha() {\nsub/inner/y.rs:2:     beta(1)\nsub/inner/y.rs:3: }"),
            (json!({"pattern": "alpha.*?1", "multiline": true, "glob": "*.rs", "mode": "count"}), "sub/inner/y.rs:1"),
            (json!({"pattern": "^.lpha", "path": "utf16.txt"}), "utf16.txt:1: alpha"),
            (json!({"pattern": "^alpha", "path": "bom.txt"}), "bom.txt:1: alpha"),
            (json!({"pattern": "beta", "path": "sub", "before": 1}), "sub/inner/y.rs-1- fn alpha() {\nsub/inner/y.rs:2:     beta(1)"),
            (json!({"pattern": "beta", "path": "sub", "context": 1, "before": 0}), "sub/inner/y.rs:2:     beta(1)\nsub/inner/y.rs-3- }"),
            (json!({"pattern": "beta", "after": 0, "context": 1}), "a.txt-1- alpha\na.txt:2: Alpha beta\n--\ncrlf.txt-1- alpha\ncrlf.txt:2: beta\n--\nsub/inner/y.rs-1- fn alpha() {\nsub/inner/y.rs:2:     beta(1)"),
            (json!({"pattern": "alpha", "glob": "*.{txt,log}", "mode": "count"}), "a.txt:2\nbom.txt:1\ncrlf.txt:1\nkeep.log:1\nown/in.log:1\nsub/drop.log:1\nutf16.txt:1"),
            (json!({"pattern": "alpha", "mode": "count", "limit": 1, "offset": 1, "glob": "*.txt"}), "bom.txt:1\n(Go on with `offset`: 2)\n(Results limited to 1 entries)"),
            (json!({"pattern": "nothing", "mode": "count"}), "No matches found."),
            (json!({"pattern": "alpha", "offset": 50}), "No more matches: there are 14 in all."),
        ];
        for (arguments, want) in table {
            assert_eq!(call(&tool, arguments.clone()).as_deref(), Ok(want), "{arguments}");
        }
    }

    #[test]
    fn pages_together_are_the_whole() {
        let (home, workspace) = workspace(&[]);
        for file in 0..40 {
            let lines: Vec<String> = (0..file % 7 * 3).map(|n| format!("{}hit {n}", "pad\n".repeat(n % 3))).collect();
            put(home.path(), &format!("d{}/f{file}", file % 5), &lines.join("\n"));
        }
        let tool = FsGrep::new(workspace);
        for around in [0, 1, 2] {
            let ask = |offset: usize, limit: usize| {
                call(&tool, json!({"pattern": "hit", "context": around, "offset": offset, "limit": limit})).unwrap()
            };
            let matches = |text: &str| -> Vec<String> {
                text.lines().filter(|line| line.contains(": hit")).map(str::to_owned).collect()
            };
            let whole = matches(&ask(0, 1_000));
            assert_eq!(whole.len(), (0..40).map(|file| file % 7 * 3).sum::<usize>());
            for limit in [1, 5, 7, 100] {
                let mut paged = Vec::new();
                while paged.len() < whole.len() {
                    let page = ask(paged.len(), limit);
                    let next = paged.len() + limit.min(whole.len() - paged.len());
                    let more =
                        page.ends_with(&format!("(Go on with `offset`: {next})\n(Results limited to {limit} entries)"));
                    assert_eq!(more, next < whole.len(), "{page}");
                    paged.extend(matches(&page));
                    assert_eq!(paged.len(), next, "{page}");
                }
                assert_eq!(paged, whole);
            }
        }
        // What stands before the first match of a page is its true surroundings.
        let (home, workspace) = super::super::fs_common::testing::workspace(&[]);
        put(home.path(), "f", "hit 1\nb\nhit 2\nc\nd\ne\nhit 3\n");
        let tool = FsGrep::new(workspace);
        let page = |offset: usize| call(&tool, json!({"pattern": "hit", "before": 2, "offset": offset})).unwrap();
        assert_eq!(page(1), "f-1- hit 1\nf-2- b\nf:3: hit 2\n--\nf-5- d\nf-6- e\nf:7: hit 3");
        assert_eq!(page(2), "f-5- d\nf-6- e\nf:7: hit 3");
        // What stands before a match that is not shown is not shown either, whatever ends the page.
        let text = call(&tool, json!({"pattern": "hit", "context": 1, "limit": 2})).unwrap();
        let want = "f:1: hit 1\nf-2- b\nf:3: hit 2\nf-4- c\n(Go on with `offset`: 2)\n(Results limited to 2 entries)";
        assert_eq!(text, want);
        let wide = format!("{}hit\n", format!("{}\n", "x".repeat(450)).repeat(9)).repeat(100);
        put(home.path(), "wide", &wide);
        let page = |path: &str, offset: usize| {
            let text = call(&tool, json!({"pattern": "hit", "before": 8, "path": path, "offset": offset})).unwrap();
            let (lines, more) = text.split_once("\n(Go on").unwrap();
            assert!(
                lines.starts_with(&format!("{path}-")) && lines.ends_with(": hit") && lines.len() > 30_000,
                "{lines}"
            );
            (lines.to_owned(), lines.matches(": hit").count(), more.to_owned())
        };
        let (_, first, more) = page("wide", 0);
        assert!(
            more.starts_with(&format!(" with `offset`: {first})"))
                && page("wide", first).0.contains(": hit\n--\nwide-")
        );
        // One that fills more than a page with its surroundings is shown with less of them.
        let deep = ["d"; 14].map(|name| name.repeat(250)).join("/") + "/f";
        put(
            home.path(),
            &deep,
            &"x\n".repeat(20).repeat(3).replace("x\nx\nx\nx\nx\nx\nx\nx\nx\nx\n", "x\nx\nx\nx\nx\nx\nx\nx\nx\nhit\n"),
        );
        let text = call(&tool, json!({"pattern": "hit", "before": 20, "path": deep, "offset": 1})).unwrap();
        assert!(text.contains(&format!("{deep}:20: hit\n(Go on with `offset`: 2)")), "{text}");
    }

    #[test]
    fn time_over_says_what_there_is() {
        let (home, workspace) = workspace(&[]);
        for file in 0..200 {
            put(home.path(), &format!("d{file}/f"), &"x".repeat(10_000));
        }
        let tool = FsGrep::new(workspace).with_time_limit(Duration::ZERO);
        let text = call(&tool, json!({"pattern": "(x+x+)+y"})).unwrap();
        let late =
            "(Stopped by the time limit: there may be more. Search a smaller directory, or fewer files by `glob`)";
        assert_eq!(text, format!("No matches found.\n{late}"));
    }

    #[test]
    fn odd_arguments_say_why() {
        let (_home, tool) = odd_place();
        let said = |arguments| call(&tool, arguments).unwrap_err();
        assert_eq!(
            said(json!({"pattern": "a", "mode": "lines"})),
            "`mode`: expected `content`, `files_with_matches` or `count`, got \"lines\""
        );
        assert!(said(json!({"pattern": "a", "offset": 100_001})).contains("at most 100000"));
        assert!(said(json!({"pattern": "a", "type": "nope"})).starts_with("`type`: expected a known file type"));
        assert!(said(json!({"pattern": "a", "before": 21})).starts_with("`before`: expected at most 20"));
        assert_eq!(
            said(json!({"pattern": "a\\nb"})),
            "`pattern`: it matches a line end, which needs `multiline`: true"
        );
    }
}
