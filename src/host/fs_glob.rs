//! `fs_glob`: files by the pattern of their path, newest first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

use globset::{GlobBuilder, GlobMatcher};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::fs_common::{blocking, definition, path_subject, refused, text_argument};
use super::fs_walk::{WalkOptions, walker};
use crate::base::workspace::Workspace;
use crate::base::{BoxFuture, limit};
use crate::protocol::{ToolCategory, ToolDefinition};
use crate::tool::{Arguments, Subject, Tool, ToolContext, ToolError, ToolOutput};

/// Longest pattern in bytes.
const PATTERN_BYTES_MAX: usize = 4096;

static DEFINITION: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let parameters = json!({
        "pattern": {"type": "string", "description": "Such as `src/**/*.{ts,tsx}`, relative to the working directory: `*` and `?` stay within a name, `**` crosses directories", "required": true},
    });
    let description = "Finds files by a pattern, newest first. Ignored files (.gitignore), hidden ones and node_modules \
                       are left out, unless the pattern names them.";
    definition("fs_glob", ToolCategory::Search, description, parameters)
});

/// The tool.
#[derive(Debug)]
pub struct FsGlob {
    workspace: Arc<Workspace>,
}

impl FsGlob {
    /// The tool for a workspace.
    pub fn new(workspace: Arc<Workspace>) -> Self {
        Self { workspace }
    }
}

impl Tool for FsGlob {
    fn definition(&self) -> &ToolDefinition {
        &DEFINITION
    }

    fn subject(&self, arguments: &Arguments) -> Subject {
        let Some(pattern) = arguments.get("pattern").and_then(|pattern| pattern.as_str()) else { return Subject::None };
        let (directory, _) = split(pattern);
        let mut subject = path_subject(&self.workspace, &directory);
        pattern.clone_into(&mut subject.given);
        Subject::Paths(vec![subject])
    }

    fn run<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let pattern = text_argument(&arguments, "pattern")?;
            let (workspace, cancel) = (Arc::clone(&self.workspace), context.cancel.clone());
            blocking(move || glob(&workspace, &pattern, &cancel).map(ToolOutput::from)).await
        })
    }
}

/// A pattern's leading directories without wildcards, and the rest, which has at least one name.
fn split(pattern: &str) -> (String, String) {
    let is_plain = |name: &str| !name.contains(['*', '?', '[', '{', '\\']);
    let names: Vec<&str> = pattern.split('/').collect();
    let plain = names[..names.len() - 1].iter().take_while(|name| is_plain(name)).count();
    let mut directory = names[..plain].join("/");
    if plain > 0 && directory.is_empty() {
        "/".clone_into(&mut directory);
    }
    (directory, names[plain..].join("/"))
}

fn glob(workspace: &Workspace, pattern: &str, cancel: &CancellationToken) -> Result<String, ToolError> {
    if pattern.is_empty() || pattern.len() > PATTERN_BYTES_MAX {
        let expected = format!("expected a pattern of 1 to {PATTERN_BYTES_MAX} bytes");
        return Err(ToolError::BadArguments(format!("`pattern`: {expected}, got {}", pattern.len())));
    }
    let (directory, rest) = split(pattern);
    if rest.split('/').any(|name| name == "..") {
        return Err(refused(&workspace.escapes(pattern)));
    }
    // The message names what the caller wrote, and that is the pattern.
    let base = workspace.resolve(&directory).map_err(|e| match e {
        crate::base::workspace::PathError::Escapes { .. } => refused(&workspace.escapes(pattern)),
        other => refused(&other),
    })?;
    let matcher = GlobBuilder::new(&rest)
        .literal_separator(true)
        .backslash_escape(true)
        .build()
        .map_err(|e| ToolError::BadArguments(format!("`pattern`: {e}")))?
        .compile_matcher();
    let hidden = pattern.split('/').any(|name| name.starts_with('.') && name != "." && name != "..");
    let walk = walker(workspace, &base, pattern, WalkOptions { hidden, sorted: false });
    let (files, more) = Hunt { workspace, base: &base, matcher: &matcher, cancel }.newest(walk)?;
    if files.is_empty() {
        return Ok("No files found matching the pattern.".to_owned());
    }
    let mut lines: Vec<String> = files.iter().map(|path| workspace.shown(path)).collect();
    if more {
        lines.push(format!("(Results limited to {} entries)", files.len()));
    }
    Ok(lines.join("\n"))
}

/// What is looked for below one directory.
struct Hunt<'h> {
    workspace: &'h Workspace,
    base: &'h Path,
    matcher: &'h GlobMatcher,
    cancel: &'h CancellationToken,
}

impl Hunt<'_> {
    /// The newest of the files that match, and whether there are more. Holds no more than it gives.
    fn newest(&self, walk: ignore::Walk) -> Result<(Vec<PathBuf>, bool), ToolError> {
        // The oldest is on top, to be thrown out first.
        let mut kept: BinaryHeap<Reverse<(SystemTime, Reverse<PathBuf>)>> = BinaryHeap::new();
        let mut more = false;
        for entry in walk {
            if self.cancel.is_cancelled() {
                return Err(ToolError::Aborted);
            }
            // What cannot be read (a directory without permission, one that is just gone) is not there for us.
            let Some((modified, path)) = entry.ok().and_then(|entry| self.fits(&entry)) else { continue };
            kept.push(Reverse((modified, Reverse(path))));
            if kept.len() > limit::GLOB_FILES_MAX {
                kept.pop();
                more = true;
            }
        }
        let sorted = kept.into_sorted_vec().into_iter().map(|Reverse((_, Reverse(path)))| path);
        Ok((sorted.collect(), more))
    }

    /// The time and path of a file that matches.
    fn fits(&self, entry: &ignore::DirEntry) -> Option<(SystemTime, PathBuf)> {
        // The directory itself, or a file that stands where the pattern has a directory.
        let kind = entry.file_type().filter(|_| entry.depth() > 0)?;
        if !(kind.is_file() || kind.is_symlink()) || !self.matcher.is_match(entry.path().strip_prefix(self.base).ok()?)
        {
            return None;
        }
        let found = if kind.is_symlink() { self.behind_link(entry.path())? } else { entry.metadata().ok()? };
        Some((found.modified().ok()?, entry.path().to_owned()))
    }

    /// The file that a link leads to, if that lies inside the roots.
    fn behind_link(&self, path: &Path) -> Option<std::fs::Metadata> {
        let real = self.workspace.resolve(path.to_str()?).ok()?;
        std::fs::metadata(real).ok().filter(std::fs::Metadata::is_file)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::time::Duration;

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
        assert_eq!(lines.len(), limit::GLOB_FILES_MAX + 1);
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
}
