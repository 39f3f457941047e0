//! `fs_list`: what is in a directory, and below, in the order of the paths.
//!
//! Each directory is opened relative to the one above it, and no link is followed; a link is told as what it leads to
//! when that lies inside the roots.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rustix::fs::AtFlags;
use serde_json::json;

use super::fs_common::{
    SKIPPED_DIRECTORIES, definition, flag, io_failed, not_found, optional_text, path_subject, refused, whole,
};
use super::search::{Entries, Kind, Rules, Stop, Stopped, Verdict, as_path, join, open_below, prefix, searching};
use crate::base::workspace::{PathError, Workspace};
use crate::base::{BoxFuture, limit, show, text};
use crate::protocol::{ToolCategory, ToolDefinition};
use crate::tool::{Arguments, Subject, Tool, ToolContext, ToolError, ToolOutput, Veil};

static DEFINITION: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let parameters = json!({
        "path": {"type": "string", "description": "The directory. Default: the working directory"},
        "depth": {"type": "number", "description": format!("Levels below it to go down, up to {}; 0 lists its direct children alone. Default: 1", limit::LIST_DEPTH_MAX)},
        "sizes": {"type": "boolean", "description": "Tell the size of each file in bytes. Default: false"},
        "gitignore": {"type": "boolean", "description": "Leave out what .gitignore and .ignore leave out. Default: false"},
        "offset": {"type": "number", "description": "Entries to leave out first, to go on with a limited listing"},
    });
    let description = "Lists a directory: `d name` for a directory, followed by what is in it, `f name` for a file, `l name` \
                       for a link that leads nowhere or out. Does not go into .git and node_modules.";
    definition("fs_list", ToolCategory::Read, description, parameters)
});

/// Other names of its arguments that models use.
const ALIASES: [(&str, &str); 4] =
    [("directory", "path"), ("dir", "path"), ("dir_path", "path"), ("directory_path", "path")];

/// The tool.
#[derive(Debug)]
pub struct FsList {
    workspace: Arc<Workspace>,
}

impl FsList {
    /// The tool for a workspace.
    pub fn new(workspace: Arc<Workspace>) -> Self {
        Self { workspace }
    }
}

impl Tool for FsList {
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
            let query = Query { veil: context.veil.clone(), ..Query::new(&arguments)? };
            let (workspace, held) = (Arc::clone(&self.workspace), context.judged.hold(&self.workspace));
            let list = move |stop: &Arc<Stop>| query.run((&workspace, &held), stop).map(ToolOutput::from);
            searching(&context.cancel, Duration::from_millis(limit::SEARCH_TIME_MS), list).await
        })
    }
}

/// What is listed.
#[derive(Debug)]
struct Query {
    path: String,
    depth: usize,
    sizes: bool,
    ignores: bool,
    offset: usize,
    veil: Option<Veil>,
}

impl Query {
    fn new(arguments: &Arguments) -> Result<Self, ToolError> {
        Ok(Self {
            path: optional_text(arguments, "path")?.unwrap_or_else(|| ".".to_owned()),
            depth: whole(arguments, "depth", 0)?.unwrap_or(1).min(limit::LIST_DEPTH_MAX),
            sizes: flag(arguments, "sizes")?,
            ignores: flag(arguments, "gitignore")?,
            offset: whole(arguments, "offset", 0)?.unwrap_or(0),
            veil: None,
        })
    }

    /// `held` finds the directory where it was judged; what links in it lead to is looked at in `workspace`.
    fn run(&self, (workspace, held): (&Workspace, &Workspace), stop: &Stop) -> Result<String, ToolError> {
        let path = self.path.as_str();
        let base = held.resolve(path).map_err(|e| refused(&e))?;
        match held.look_at(path) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => return Err(ToolError::failed(format!("Path \"{path}\" is not a directory"))),
            Err(e) if e.is_not_found() => return Err(not_found(workspace, path)),
            Err(PathError::Open { cause, .. }) => return Err(io_failed("list", path, &cause)),
            Err(e) => return Err(refused(&e)),
        }
        let rules = if self.ignores { Rules::above(&base, workspace.working_directory()) } else { None };
        let mut listing = Listing {
            query: self,
            workspace,
            stop,
            base,
            seen: 0,
            lines: Vec::new(),
            units: 0,
            more: false,
            quoted: false,
            nameless: false,
        };
        let open = workspace.open_directory(&listing.base);
        let listed = open.and_then(|open| listing.directory(open.as_fd(), b"", self.depth, rules));
        match stop.check() {
            Err(Stopped::Aborted) => return Err(ToolError::Aborted),
            Ok(()) | Err(Stopped::Late) => listed.map_err(|e| io_failed("list", path, &e))?,
        }
        Ok(listing.finish())
    }
}

/// A listing so far.
struct Listing<'l> {
    query: &'l Query,
    workspace: &'l Workspace,
    stop: &'l Stop,
    base: PathBuf,
    /// Entries that were come by.
    seen: usize,
    lines: Vec<String>,
    units: usize,
    /// There are more than there is room for.
    more: bool,
    /// Some names are shown in quotes; some are no text.
    quoted: bool,
    nameless: bool,
}

impl Listing<'_> {
    /// Adds what is in the directory at `path`, which is open as `handle`, and below.
    fn directory(
        &mut self,
        handle: BorrowedFd<'_>,
        path: &[u8],
        depth: usize,
        rules: Option<Arc<Rules>>,
    ) -> io::Result<()> {
        let mut entries = Entries::read(handle)?;
        self.more |= entries.more;
        entries.sort();
        let absolute = self.base.join(as_path(path));
        let rules = match self.query.ignores {
            true => Rules::within(rules.as_ref(), handle, &entries, prefix(&absolute)),
            false => None,
        };
        let workspace = self.workspace;
        let closed: Vec<&Path> = workspace.protected_below(&absolute).collect();
        for (name, entry) in entries.iter() {
            if self.more || self.stop.check().is_err() {
                return Ok(());
            }
            let below = join(path, name);
            if closed.iter().any(|path| path.as_os_str().as_bytes() == name) {
                continue;
            }
            if rules.as_ref().is_some_and(|rules| ignored(rules, &absolute, name, entry.kind)) {
                continue;
            }
            let veil = self.query.veil.as_ref();
            if veil.is_some_and(|veil| veil.hides(&absolute.join(as_path(name)))) {
                continue;
            }
            self.entry(handle, &below, name, entry.kind);
            let enters = entry.kind == Kind::Directory && depth > 0;
            if enters && !SKIPPED_DIRECTORIES.iter().any(|skipped| skipped.as_bytes() == name) {
                // A directory below that cannot be read is named, and that is all.
                let _ = open_below(handle, name)
                    .and_then(|open| self.directory(open.as_fd(), &below, depth - 1, rules.clone()));
            }
        }
        Ok(())
    }

    /// Adds one entry, when the page has begun and has room.
    fn entry(&mut self, directory: BorrowedFd<'_>, path: &[u8], name: &[u8], kind: Kind) {
        self.seen += 1;
        if self.seen <= self.query.offset {
            return;
        }
        let mut line = format!("{} {}", self.letter(path, kind), show::name(path));
        if self.query.sizes
            && kind == Kind::File
            && let Ok(found) = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
        {
            line += &format!(" ({})", text::counted(usize::try_from(found.st_size).unwrap_or_default(), "byte"));
        }
        let units = line.encode_utf16().count() + 1;
        let full = self.units + units > limit::FILE_OUTPUT_CHARS_MAX || self.lines.len() == limit::LIST_ENTRIES_MAX;
        if full {
            self.more = true;
            return;
        }
        self.units += units;
        self.lines.push(line);
        self.quoted |= !show::is_plain(path);
        self.nameless |= show::is_nameless(path);
    }

    /// A link counts as what it leads to, if that is inside the roots.
    fn letter(&self, path: &[u8], kind: Kind) -> char {
        match kind {
            Kind::Directory => 'd',
            Kind::File | Kind::Other => 'f',
            Kind::Link => {
                let path = self.base.join(as_path(path));
                match path.to_str().and_then(|path| self.workspace.look_at(path).ok()) {
                    Some(found) if found.is_dir() => 'd',
                    Some(_) => 'f',
                    None => 'l',
                }
            }
        }
    }

    fn finish(mut self) -> String {
        let shown = self.lines.len();
        if shown == 0 && self.seen > 0 {
            self.lines.push(format!("No more entries: there are {} in all.", self.seen));
        } else if shown == 0 {
            self.lines.push("Directory is empty.".to_owned());
        }
        if self.stop.check().is_err() {
            self.lines.push("(Stopped by the time limit: there may be more)".to_owned());
        }
        self.lines.extend(show::notes(self.quoted, self.nameless).map(str::to_owned));
        if self.more {
            self.lines.push(format!("(Go on with `offset`: {})", self.query.offset + shown));
            self.lines.push(format!("(Results limited to {shown} entries)"));
        }
        self.lines.join("\n")
    }
}

/// Whether the rules leave out a name in a directory.
pub(super) fn ignored(rules: &Rules, directory: &Path, name: &[u8], kind: Kind) -> bool {
    let mut path = directory.as_os_str().as_bytes().to_vec();
    path.resize(prefix(directory), b'/');
    path.extend_from_slice(name);
    rules.verdict(&path, kind == Kind::Directory) == Some(Verdict::Ignored)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::fs_common::testing::{aborted, call, put, workspace};
    use super::*;

    #[test]
    fn directories_are_followed_by_their_children() {
        let (home, workspace) = workspace(&[
            ("b.txt", ""),
            ("a/x/y.rs", ""),
            ("a/w.rs", ""),
            (".env", ""),
            ("node_modules/m/i.js", ""),
            ("empty/", ""),
        ]);
        symlink("a", home.path().join("to_a")).unwrap();
        symlink("b.txt", home.path().join("to_b")).unwrap();
        symlink("/etc", home.path().join("to_etc")).unwrap();
        let tool = FsList::new(workspace);
        let top = "f .env\nd a\n…d empty\nd node_modules\nd to_a\nf to_b\nl to_etc";
        let top = |a: &str, b: &str| {
            top.replace("d empty", &format!("{b}d empty")).replace('…', a).replace("d empty", "f b.txt\nd empty")
        };
        #[rustfmt::skip]
        let table = [
            (json!({}), top("f a/w.rs\nd a/x\n", "")),
            (json!({"depth": 0}), top("", "")),
            (json!({"depth": 9}), top("f a/w.rs\nd a/x\nf a/x/y.rs\n", "")),
            (json!({"path": "a", "depth": 1}), "f w.rs\nd x\nf x/y.rs".to_owned()),
            (json!({"path": "to_a/x"}), "f y.rs".to_owned()),
            (json!({"path": "node_modules"}), "d m\nf m/i.js".to_owned()),
            (json!({"path": "empty"}), "Directory is empty.".to_owned()),
        ];
        for (arguments, want) in table {
            assert_eq!(call(&tool, arguments.clone()), Ok(want), "{arguments}");
        }
    }

    #[test]
    fn what_cannot_be_listed_says_why() {
        let (home, workspace) = workspace(&[("b.txt", ""), ("src/", "")]);
        let tool = FsList::new(workspace);
        let said = |arguments| call(&tool, arguments).unwrap_err();
        assert_eq!(said(json!({"path": "b.txt"})), "Path \"b.txt\" is not a directory");
        assert_eq!(said(json!({"path": "scr"})), "No such file or directory: \"scr\". Did you mean \"src\"?");
        assert!(said(json!({"path": ".."})).contains("escapes the working directory"));
        assert_eq!(said(json!({"depth": -1})), "`depth`: expected a whole number from 0, got -1");
        aborted(&tool, json!({}));
        drop(home);
    }

    #[test]
    fn long_listings_are_capped_and_said() {
        let (home, workspace) = workspace(&[]);
        for n in 0..=limit::LIST_ENTRIES_MAX {
            put(home.path(), &format!("{n:05}"), "");
        }
        let tool = FsList::new(workspace);
        let text = call(&tool, json!({})).unwrap();
        assert_eq!(text.lines().count(), limit::LIST_ENTRIES_MAX + 2);
        assert!(text.ends_with("f 01999\n(Go on with `offset`: 2000)\n(Results limited to 2000 entries)"));
        assert_eq!(call(&tool, json!({"offset": 2000})).as_deref(), Ok("f 02000"));
        assert_eq!(call(&tool, json!({"offset": 3000})).as_deref(), Ok("No more entries: there are 2001 in all."));
    }

    #[test]
    fn sizes_and_ignore_files_are_told_when_asked_for() {
        let (home, workspace) = workspace(&[
            (".gitignore", "out/\n*.log\n!keep.log\n"),
            ("a.txt", "abc"),
            ("b.log", ""),
            ("keep.log", "x"),
            ("out/o.txt", ""),
            ("src/.ignore", "gen\n"),
            ("src/gen/g.rs", ""),
            ("src/out/x.rs", ""),
            ("src/s.rs", "fn s() {}\n"),
        ]);
        symlink("a.txt", home.path().join("to_a")).unwrap();
        let tool = FsList::new(workspace);
        #[rustfmt::skip]
        let table = [
            (json!({"gitignore": true}), "f .gitignore\nf a.txt\nf keep.log\nd src\nf src/.ignore\nf src/s.rs\nf to_a"),
            (json!({"path": "src", "gitignore": true}), "f .ignore\nf s.rs"),
            (json!({"path": "src", "depth": 0, "sizes": true}), "f .ignore (4 bytes)\nd gen\nd out\nf s.rs (10 bytes)"),
            (json!({"depth": 0, "sizes": true, "gitignore": true}), "f .gitignore (21 bytes)\nf a.txt (3 bytes)\nf keep.log (1 byte)\nd src\nf to_a"),
            (json!({"depth": 0, "offset": 6}), "f to_a"),
        ];
        for (arguments, want) in table {
            assert_eq!(call(&tool, arguments.clone()).as_deref(), Ok(want), "{arguments}");
        }
    }
}
