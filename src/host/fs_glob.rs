//! `fs_glob`: files by the pattern of their path, newest first.
//!
//! The newest are exact, however large the tree: each worker of the walk keeps as many as a page can show, and nothing
//! is asked of the file system about a file whose path does not fit.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use globset::{Candidate, GlobBuilder, GlobSet, GlobSetBuilder};
use rustix::fs::AtFlags;
use serde_json::json;

use super::fs_common::{
    SKIPPED_DIRECTORIES, definition, flag, io_failed, list_argument, not_found, optional_text, path_subject, refused,
    text_argument, whole,
};
use super::search::{
    FileChoice, Kind, Place, Stop, Stopped, Visit, Walk, alternatives, as_path, by_path, names_hidden, searching,
};
use crate::base::workspace::{PathError, Workspace};
use crate::base::{BoxFuture, limit, show};
use crate::protocol::{ToolCategory, ToolDefinition};
use crate::tool::{Arguments, Subject, Tool, ToolContext, ToolError, ToolOutput, Veil};

/// Files that a worker takes at a time: looking at a path is quick.
const SHARE_FILES: usize = 4_096;

static DEFINITION: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let parameters = json!({
        "pattern": {"type": "string", "description": "Such as `src/**/*.{ts,tsx}`, relative to `path`: `*` and `?` stay within a name, `**` crosses directories. `!` in front: all files but these", "required": true},
        "path": {"type": "string", "description": "A directory. Default: the working directory"},
        "exclude": {"type": "string", "description": "Patterns of files to leave out, with commas between, such as `*.test.ts,gen/**`; one without a slash fits names at any depth"},
        "hidden": {"type": "boolean", "description": "Hidden files too. Default: only when the pattern names them"},
        "no_ignore": {"type": "boolean", "description": "Files too that .gitignore and .ignore leave out. Default: false"},
        "limit": {"type": "number", "description": format!("Files to name, up to {}", limit::GLOB_FILES_MAX)},
        "offset": {"type": "number", "description": "Files to leave out first, to go on with a limited result"},
    });
    let description = "Finds files by a pattern, newest first. Ignored files (.gitignore), hidden ones and node_modules \
                       are left out, unless the pattern names them.";
    definition("fs_glob", ToolCategory::Search, description, parameters)
});

/// Other names of its arguments that models use.
const ALIASES: [(&str, &str); 7] = [
    ("glob", "pattern"),
    ("globs", "pattern"),
    ("glob_pattern", "pattern"),
    ("directory", "path"),
    ("dir", "path"),
    ("ignore", "exclude"),
    ("max_results", "limit"),
];

/// The tool.
#[derive(Debug)]
pub struct FsGlob {
    workspace: Arc<Workspace>,
    time: Duration,
}

impl FsGlob {
    /// The tool for a workspace.
    pub fn new(workspace: Arc<Workspace>) -> Self {
        Self { workspace, time: Duration::from_millis(limit::SEARCH_TIME_MS) }
    }

    /// The same with another time limit for one search, after which it says what it has.
    pub fn with_time_limit(self, time: Duration) -> Self {
        Self { time, ..self }
    }
}

impl Tool for FsGlob {
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
        let text = |name: &str| arguments.get(name).and_then(|value| value.as_str());
        let Some(pattern) = text("pattern") else { return Subject::None };
        let (directory, _) = split(pattern);
        let mut subject = path_subject(&self.workspace, &beside(text("path").unwrap_or(""), &directory));
        pattern.clone_into(&mut subject.given);
        Subject::Paths(vec![subject])
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
                query.run((&workspace, &held), stop).map(ToolOutput::from)
            };
            searching(&context.cancel, self.time, search).await
        })
    }
}

/// A pattern's leading directories without wildcards, and the rest, which has at least one name.
pub(super) fn split(pattern: &str) -> (String, String) {
    if pattern.starts_with('!') {
        return (String::new(), pattern.to_owned());
    }
    let is_plain = |name: &str| !name.contains(['*', '?', '[', '{', '\\']);
    let names: Vec<&str> = pattern.split('/').collect();
    let plain = names[..names.len() - 1].iter().take_while(|name| is_plain(name)).count();
    let mut directory = names[..plain].join("/");
    if plain > 0 && directory.is_empty() {
        "/".clone_into(&mut directory);
    }
    (directory, names[plain..].join("/"))
}

/// `directory` as seen from `path`.
fn beside(path: &str, directory: &str) -> String {
    if path.is_empty() || directory.starts_with('/') { directory.to_owned() } else { format!("{path}/{directory}") }
}

/// What is looked for.
#[derive(Debug)]
struct Query {
    pattern: String,
    path: Option<String>,
    /// Globs that take files out.
    outs: Vec<String>,
    hidden: bool,
    ignored: bool,
    veil: Option<Veil>,
    limit: usize,
    offset: usize,
}

impl Query {
    fn new(arguments: &Arguments) -> Result<Self, ToolError> {
        let pattern = text_argument(arguments, "pattern")?;
        if pattern.is_empty() || pattern.len() > limit::GLOB_BYTES_MAX {
            let expected = format!("expected a pattern of 1 to {} bytes", limit::GLOB_BYTES_MAX);
            return Err(ToolError::BadArguments(format!("`pattern`: {expected}, got {}", pattern.len())));
        }
        let offset = whole(arguments, "offset", 0)?.unwrap_or(0);
        if offset > limit::SEARCH_OFFSET_MAX {
            let most = limit::SEARCH_OFFSET_MAX;
            return Err(ToolError::BadArguments(format!("`offset`: expected at most {most}, got {offset}")));
        }
        let outs = list_argument(arguments, "exclude")?;
        Ok(Self {
            hidden: flag(arguments, "hidden")? || names_hidden(&pattern),
            path: optional_text(arguments, "path")?,
            outs: outs.into_iter().map(|glob| if glob.starts_with('!') { glob } else { format!("!{glob}") }).collect(),
            ignored: flag(arguments, "no_ignore")?,
            veil: None,
            limit: whole(arguments, "limit", 1)?.unwrap_or(usize::MAX).min(limit::GLOB_FILES_MAX),
            offset,
            pattern,
        })
    }

    /// `held` finds the directory where it was judged.
    fn run(&self, (workspace, held): (&Arc<Workspace>, &Workspace), stop: &Arc<Stop>) -> Result<String, ToolError> {
        let pattern = self.pattern.as_str();
        let (directory, rest) = split(pattern);
        if alternatives(&rest).iter().any(|plain| plain.split('/').any(|name| name == "..")) {
            return Err(refused(&workspace.escapes(pattern)));
        }
        if let Some(path) = &self.path {
            self.check_path(workspace, path)?;
        }
        workspace.is_there().map_err(|e| refused(&e))?;
        // The message names what the caller wrote, and that is the pattern.
        let base = beside(self.path.as_deref().unwrap_or(""), &directory);
        let base = held.resolve(&base).map_err(|e| match e {
            PathError::Escapes { .. } => refused(&workspace.escapes(pattern)),
            other => refused(&other),
        })?;
        let (wanted, outs) = match pattern.strip_prefix('!') {
            Some(_) => (None, [&[pattern.to_owned()], self.outs.as_slice()].concat()),
            None => (Some(matcher(&rest)?), self.outs.clone()),
        };
        let choice = FileChoice::new("exclude", &outs)?;
        let named: Vec<&str> = pattern.split('/').chain(self.path.iter().flat_map(|path| path.split('/'))).collect();
        let walk = Walk {
            base: base.clone(),
            workspace: Arc::clone(workspace),
            hidden: self.hidden,
            ignored: self.ignored,
            veil: self.veil.clone(),
            skipped: SKIPPED_DIRECTORIES.into_iter().filter(|name| !named.contains(name)).collect(),
            depth: if wanted.is_none() || rest.contains("**") { usize::MAX } else { rest.split('/').count() },
            share: SHARE_FILES,
            reads: false,
            shelves: None,
        };
        let room = self.offset + self.limit;
        let hunt = Arc::new(Hunt { workspace: Arc::clone(workspace), base, wanted, room });
        let newest = hunt.run(walk, stop, choice).map_err(|e| io_failed("search", pattern, &e))?;
        match stop.check() {
            Err(Stopped::Aborted) => Err(ToolError::Aborted),
            late => Ok(self.page(&hunt, newest, late.is_err())),
        }
    }

    /// A `path` that is no directory inside the roots is told as such.
    fn check_path(&self, workspace: &Workspace, path: &str) -> Result<(), ToolError> {
        match workspace.look_at(path) {
            Ok(found) if found.is_dir() => Ok(()),
            Ok(_) => Err(ToolError::failed(format!("Path \"{path}\" is not a directory"))),
            Err(e) if e.is_not_found() => Err(not_found(workspace, path)),
            Err(PathError::Open { cause, .. }) => Err(io_failed("search", path, &cause)),
            Err(e) => Err(refused(&e)),
        }
    }

    /// The text for the model.
    fn page(&self, hunt: &Hunt, newest: Newest, late: bool) -> String {
        let (found, more) = (newest.files.len(), newest.more);
        let files = newest.files.into_sorted_vec();
        let page = || files.iter().skip(self.offset);
        let mut lines: Vec<String> = page().map(|file| hunt.shown(&file.path)).collect();
        let shown = lines.len();
        if shown == 0 && found > 0 {
            lines.push(format!("No more files: there are {found} in all."));
        } else if shown == 0 {
            lines.push("No files found matching the pattern.".to_owned());
        }
        if late {
            lines.push(
                "(Stopped by the time limit: there may be more, and newer ones. Search a smaller directory)".to_owned(),
            );
        }
        let any = |is: fn(&[u8]) -> bool| page().any(|file| is(&hunt.named(&file.path)));
        lines.extend(show::notes(any(|path| !show::is_plain(path)), any(show::is_nameless)).map(str::to_owned));
        if more {
            if self.offset + shown <= limit::SEARCH_OFFSET_MAX {
                lines.push(format!("(Go on with `offset`: {})", self.offset + shown));
            }
            lines.push(format!("(Results limited to {shown} entries)"));
        }
        lines.join("\n")
    }
}

/// The pattern's matcher.
fn matcher(pattern: &str) -> Result<GlobSet, ToolError> {
    let bad = |e: globset::Error| ToolError::BadArguments(format!("`pattern`: {e}"));
    let mut set = GlobSetBuilder::new();
    for plain in alternatives(pattern) {
        let glob = GlobBuilder::new(&plain).literal_separator(true).backslash_escape(true).build();
        // What is wrong is said of the pattern as it was written.
        set.add(glob.map_err(|e| bad(GlobBuilder::new(pattern).build().err().unwrap_or(e)))?);
    }
    set.build().map_err(bad)
}

/// A file, ordered so that the newest comes first, and of equally old ones the first by path.
#[derive(Debug, PartialEq, Eq)]
struct File {
    modified: (i64, i64),
    path: Box<[u8]>,
}

impl Ord for File {
    fn cmp(&self, other: &Self) -> Ordering {
        other.modified.cmp(&self.modified).then_with(|| by_path(&self.path, &other.path))
    }
}

impl PartialOrd for File {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The newest files so far, never more than there is room for.
#[derive(Debug, Default)]
struct Newest {
    /// The oldest is on top, to be thrown out first.
    files: BinaryHeap<File>,
    /// Some were thrown out.
    more: bool,
}

impl Newest {
    /// Whether a file could be among the newest.
    fn wants(&self, modified: (i64, i64), path: &[u8], room: usize) -> bool {
        self.files.len() < room
            || self.files.peek().is_some_and(|oldest| match modified.cmp(&oldest.modified) {
                Ordering::Greater => true,
                Ordering::Equal => by_path(path, &oldest.path).is_lt(),
                Ordering::Less => false,
            })
    }

    fn add(&mut self, modified: (i64, i64), path: &[u8], room: usize) {
        if !self.wants(modified, path, room) {
            self.more = true;
            return;
        }
        self.files.push(File { modified, path: path.into() });
        if self.files.len() > room {
            self.files.pop();
            self.more = true;
        }
    }
}

/// One search.
struct Hunt {
    workspace: Arc<Workspace>,
    base: PathBuf,
    /// None: all files.
    wanted: Option<GlobSet>,
    room: usize,
}

impl Hunt {
    fn run(self: &Arc<Self>, walk: Walk, stop: &Arc<Stop>, choice: FileChoice) -> io::Result<Newest> {
        let hunt = Arc::clone(self);
        let visitor = move || Hunter { hunt: Arc::clone(&hunt), choice: choice.share(), newest: Newest::default() };
        let hunters = match walk.run(stop, visitor) {
            Ok(hunters) => hunters,
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Vec::new(),
            Err(e) => return Err(e),
        };
        let mut all = Newest::default();
        for hunter in hunters {
            all.more |= hunter.newest.more;
            for file in hunter.newest.files {
                all.add(file.modified, &file.path, self.room);
            }
        }
        Ok(all)
    }

    fn shown(&self, path: &[u8]) -> String {
        self.workspace.shown(&self.base.join(as_path(path)))
    }

    /// The same before it is made fit to be shown.
    fn named(&self, path: &[u8]) -> Vec<u8> {
        self.workspace.named(&self.base.join(as_path(path))).as_os_str().as_bytes().to_vec()
    }

    /// When a file that fits was changed. None: it is none, or leads out of the roots.
    fn modified(&self, place: &Place<'_>) -> Option<(i64, i64)> {
        match place.kind {
            Kind::File => {
                let found = rustix::fs::statat(place.directory, place.name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
                Some((found.st_mtime, i64::try_from(found.st_mtime_nsec).unwrap_or_default()))
            }
            Kind::Link => {
                let found = self.workspace.look_at(self.base.join(as_path(place.path)).to_str()?).ok()?;
                let found = Some(found).filter(std::fs::Metadata::is_file)?.modified().ok()?;
                Some(match found.duration_since(SystemTime::UNIX_EPOCH) {
                    Ok(since) => (i64::try_from(since.as_secs()).ok()?, i64::from(since.subsec_nanos())),
                    Err(before) => (-i64::try_from(before.duration().as_secs()).ok()? - 1, 0),
                })
            }
            Kind::Directory | Kind::Other => None,
        }
    }
}

/// One worker of a hunt.
struct Hunter {
    hunt: Arc<Hunt>,
    choice: FileChoice,
    newest: Newest,
}

impl Visit for Hunter {
    fn enters(&mut self, path: &[u8]) -> bool {
        self.choice.enters(path)
    }

    fn takes(&mut self, path: &[u8]) -> bool {
        let fits = match &self.hunt.wanted {
            Some(wanted) => wanted.is_match_candidate(&Candidate::new(as_path(path))),
            None => true,
        };
        fits && self.choice.takes(path)
    }

    fn file(&mut self, place: Place<'_>) {
        if let Some(modified) = self.hunt.modified(&place) {
            self.newest.add(modified, place.path, self.hunt.room);
        }
    }

    // What cannot be read (a directory without permission, one that is just gone) is not there for us.
    fn failed(&mut self, _path: &[u8], _cause: io::Error) {}
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::super::fs_common::testing::{aborted, call, put, workspace};
    use super::*;

    fn age(home: &Path, path: &str, seconds: u64) {
        let file = fs::File::options().append(true).open(home.join(path)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(2_000_000_000 - seconds)).unwrap();
    }

    fn place() -> (tempfile::TempDir, FsGlob) {
        let files = [
            "a.rs",
            "src/b.rs",
            "src/deep/c.rs",
            "src/d.ts",
            ".hidden/e.rs",
            "out/f.rs",
            "node_modules/m/g.rs",
            "..dots/h.rs",
            "src/[x].rs",
        ];
        let (home, workspace) = workspace(&[(".gitignore", "out/\n")]);
        for (index, path) in files.iter().enumerate() {
            put(home.path(), path, "");
            age(home.path(), path, index as u64);
        }
        (home, FsGlob::new(workspace))
    }

    #[test]
    fn patterns_find_files_newest_first() {
        let (home, tool) = place();
        #[rustfmt::skip]
        let table = [
            ("**/*.rs", "a.rs\nsrc/b.rs\nsrc/deep/c.rs\nsrc/[x].rs"), ("*.rs", "a.rs"), ("src/*.rs", "src/b.rs\nsrc/[x].rs"),
            ("src/**/*.{rs,ts}", "src/b.rs\nsrc/deep/c.rs\nsrc/d.ts\nsrc/[x].rs"), ("src/?.ts", "src/d.ts"), ("a.rs", "a.rs"),
            ("{src,out}/*.ts", "src/d.ts"), ("./a.*", "a.rs"), ("src/../a.rs", "a.rs"), ("*.py", "No files found matching the pattern."),
            ("missing/*.rs", "No files found matching the pattern."), (".hidden/*", ".hidden/e.rs"), ("out/*.rs", "out/f.rs"),
            ("node_modules/**/*.rs", "node_modules/m/g.rs"), ("..dots/*", "..dots/h.rs"), ("a.rs/*", "No files found matching the pattern."), ("src/\\[x\\].rs", "src/[x].rs"),
        ];
        for (pattern, want) in table {
            assert_eq!(call(&tool, json!({"pattern": pattern})).as_deref(), Ok(want), "{pattern}");
        }
        let absolute = format!("{}/src/*.ts", home.path().canonicalize().unwrap().display());
        assert_eq!(call(&tool, json!({"pattern": absolute})).as_deref(), Ok("src/d.ts"));
    }

    #[test]
    fn patterns_stay_inside() {
        let (home, tool) = place();
        symlink("/etc", home.path().join("etc")).unwrap();
        symlink("/etc/passwd", home.path().join("passwd.rs")).unwrap();
        symlink("a.rs", home.path().join("z.rs")).unwrap();
        let wd = home.path().display();
        for pattern in ["../*", "/etc/*", "/*", "src/../../*", "*/../../x", "etc/*"] {
            let want = format!("Path \"{pattern}\" escapes the working directory \"{wd}\"");
            assert_eq!(call(&tool, json!({"pattern": pattern})), Err(want));
        }
        assert_eq!(call(&tool, json!({"pattern": "*.rs"})).as_deref(), Ok("a.rs\nz.rs"));
        assert_eq!(call(&tool, json!({"pattern": "**/passwd"})).as_deref(), Ok("No files found matching the pattern."));
    }

    #[test]
    fn the_cap_comes_after_the_order() {
        let (home, workspace) = workspace(&[]);
        for n in 0..limit::GLOB_FILES_MAX + 5 {
            let name = format!("{n}.txt");
            put(home.path(), &name, "");
            age(home.path(), &name, (limit::GLOB_FILES_MAX + 5 - n) as u64);
        }
        let text = call(&FsGlob::new(workspace), json!({"pattern": "*"})).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), limit::GLOB_FILES_MAX + 2);
        assert_eq!(lines[lines.len() - 2], "(Go on with `offset`: 1000)");
        assert_eq!(lines[0], format!("{}.txt", limit::GLOB_FILES_MAX + 4));
        assert_eq!(lines[lines.len() - 1], "(Results limited to 1000 entries)");
        assert!(!text.contains("\n4.txt"), "the oldest five are those left out");
    }

    #[test]
    fn bad_patterns_say_why() {
        let (_home, tool) = place();
        let said = |pattern: &str| call(&tool, json!({"pattern": pattern})).unwrap_err();
        assert!(said("a[").starts_with("`pattern`: error parsing glob"), "{}", said("a["));
        assert!(said("").contains("1 to 4096"));
        assert!(said(&"a".repeat(5000)).contains("got 5000"));
        aborted(&tool, json!({"pattern": "*"}));
    }

    #[test]
    fn options_choose_further() {
        let (home, tool) = place();
        #[rustfmt::skip]
        let table = [
            (json!({"pattern": "*.rs", "path": "src"}), "src/b.rs\nsrc/[x].rs"),
            (json!({"pattern": "deep/*", "path": "src/../src"}), "src/deep/c.rs"),
            (json!({"pattern": "**/*.rs", "exclude": "deep/, [*"}), ""),
            (json!({"pattern": "**/*.rs", "exclude": "deep/,\\[*"}), "a.rs\nsrc/b.rs"),
            (json!({"pattern": "**/*.rs", "exclude": "!src/**"}), "a.rs"),
            (json!({"pattern": "!*.rs"}), "src/d.ts"),
            (json!({"pattern": "!src/**"}), "a.rs"),
            (json!({"pattern": "**/*.rs", "hidden": true}), "a.rs\nsrc/b.rs\nsrc/deep/c.rs\n.hidden/e.rs\n..dots/h.rs\nsrc/[x].rs"),
            (json!({"pattern": "**/*.rs", "no_ignore": true}), "a.rs\nsrc/b.rs\nsrc/deep/c.rs\nout/f.rs\nsrc/[x].rs"),
            (json!({"pattern": "*/f.rs", "no_ignore": true}), "out/f.rs"),
            (json!({"pattern": "**/*.rs", "limit": 2}), "a.rs\nsrc/b.rs\n(Go on with `offset`: 2)\n(Results limited to 2 entries)"),
            (json!({"pattern": "**/*.rs", "limit": 2, "offset": 2}), "src/deep/c.rs\nsrc/[x].rs"),
            (json!({"pattern": "**/*.rs", "offset": 9}), "No more files: there are 4 in all."),
        ];
        for (arguments, want) in table {
            let got = call(&tool, arguments.clone());
            match want {
                "" => assert!(got.unwrap_err().starts_with("`exclude`: error parsing glob"), "{arguments}"),
                _ => assert_eq!(got.as_deref(), Ok(want), "{arguments}"),
            }
        }
        let said = |arguments| call(&tool, arguments).unwrap_err();
        assert_eq!(said(json!({"pattern": "*", "path": "a.rs"})), "Path \"a.rs\" is not a directory");
        assert!(said(json!({"pattern": "*", "path": "scr"})).contains("Did you mean \"src\"?"));
        let wd = home.path().display();
        let escapes = |given: &str| format!("Path \"{given}\" escapes the working directory \"{wd}\"");
        assert_eq!(said(json!({"pattern": "*", "path": ".."})), escapes(".."));
        assert_eq!(said(json!({"pattern": "../../*", "path": "src"})), escapes("../../*"));
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config::with_cases(64))]
        #[test]
        fn the_newest_are_those_of_a_full_sort(
            times in proptest::collection::vec(0_i64..20, 0..60),
            room in 1_usize..12,
            workers in 1_usize..4,
        ) {
            let mut parts: Vec<Newest> = (0..workers).map(|_| Newest::default()).collect();
            let mut sorted: Vec<File> = Vec::new();
            for (n, time) in times.iter().enumerate() {
                let path = format!("{}/{n}", n % 3);
                parts[n % workers].add((*time, 0), path.as_bytes(), room);
                sorted.push(File { modified: (*time, 0), path: path.as_bytes().into() });
            }
            sorted.sort();
            let mut all = Newest::default();
            for part in parts {
                all.more |= part.more;
                for file in part.files {
                    all.add(file.modified, &file.path, room);
                }
            }
            proptest::prop_assert_eq!(all.more, sorted.len() > room);
            sorted.truncate(room);
            proptest::prop_assert_eq!(all.files.into_sorted_vec(), sorted);
        }
    }
}
