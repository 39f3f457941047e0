//! `fs_list`: what is in a directory, and below.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::fs_common::{
    SKIPPED_DIRECTORIES, blocking, definition, io_failed, not_found, optional_text, path_subject, refused, whole,
};
use crate::base::workspace::Workspace;
use crate::base::{BoxFuture, limit};
use crate::protocol::{ToolCategory, ToolDefinition};
use crate::tool::{Arguments, Subject, Tool, ToolContext, ToolError, ToolOutput};

static DEFINITION: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let parameters = json!({
        "path": {"type": "string", "description": "The directory. Default: the working directory"},
        "depth": {"type": "number", "description": format!("Levels below it to go down, up to {}; 0 lists its direct children alone. Default: 1", limit::LIST_DEPTH_MAX)},
    });
    let description = "Lists a directory: `d name` for a directory, followed by what is in it, `f name` for a file, `l name` \
                       for a link that leads nowhere or out. Does not go into .git and node_modules.";
    definition("fs_list", ToolCategory::Read, description, parameters)
});

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
            let path = optional_text(&arguments, "path")?.unwrap_or_else(|| ".".to_owned());
            let depth = whole(&arguments, "depth", 0)?.unwrap_or(1).min(limit::LIST_DEPTH_MAX);
            let (workspace, cancel) = (Arc::clone(&self.workspace), context.cancel.clone());
            blocking(move || list(&workspace, &path, depth, &cancel).map(ToolOutput::from)).await
        })
    }
}

fn list(workspace: &Workspace, path: &str, depth: usize, cancel: &CancellationToken) -> Result<String, ToolError> {
    let base = workspace.resolve(path).map_err(|e| refused(&e))?;
    match std::fs::metadata(&base) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return Err(ToolError::failed(format!("Path \"{path}\" is not a directory"))),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err(not_found(workspace, path)),
        Err(e) => return Err(io_failed("list", path, &e)),
    }
    let mut listing = Listing { workspace, cancel, lines: Vec::new(), more: false };
    listing.directory(&base, "", depth).map_err(|e| match e {
        Stop::Aborted => ToolError::Aborted,
        Stop::Io(e) => io_failed("list", path, &e),
    })?;
    if listing.lines.is_empty() {
        return Ok("Directory is empty.".to_owned());
    }
    if listing.more {
        listing.lines.push(format!("(Results limited to {} entries)", limit::LIST_ENTRIES_MAX));
    }
    Ok(listing.lines.join("\n"))
}

enum Stop {
    Aborted,
    Io(std::io::Error),
}

struct Listing<'l> {
    workspace: &'l Workspace,
    cancel: &'l CancellationToken,
    lines: Vec<String>,
    more: bool,
}

impl Listing<'_> {
    /// Adds what is in `directory`; `prefix` is its name in the listing, with a slash.
    fn directory(&mut self, directory: &Path, prefix: &str, depth: usize) -> Result<(), Stop> {
        if self.cancel.is_cancelled() {
            return Err(Stop::Aborted);
        }
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(directory).map_err(Stop::Io)? {
            let entry = entry.map_err(Stop::Io)?;
            entries.push((entry.file_name(), entry));
        }
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        for (name, entry) in entries {
            if self.lines.len() == limit::LIST_ENTRIES_MAX {
                self.more = true;
                return Ok(());
            }
            let shown = format!("{prefix}{}", name.to_string_lossy());
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            self.lines.push(format!("{} {shown}", self.letter(&entry)));
            if is_directory && depth > 0 && !SKIPPED_DIRECTORIES.iter().any(|skipped| name == *skipped) {
                match self.directory(&entry.path(), &format!("{shown}/"), depth - 1) {
                    // A directory below that cannot be read is named, and that is all.
                    Ok(()) | Err(Stop::Io(_)) => {}
                    Err(Stop::Aborted) => return Err(Stop::Aborted),
                }
            }
        }
        Ok(())
    }

    /// A link counts as what it leads to, if that is inside the roots.
    fn letter(&self, entry: &std::fs::DirEntry) -> char {
        let Ok(kind) = entry.file_type() else { return 'f' };
        if !kind.is_symlink() {
            return if kind.is_dir() { 'd' } else { 'f' };
        }
        let path = entry.path();
        let real = path.to_str().and_then(|path| self.workspace.resolve(path).ok());
        match real.and_then(|real| std::fs::metadata(real).ok()) {
            Some(found) if found.is_dir() => 'd',
            Some(_) => 'f',
            None => 'l',
        }
    }
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
        let text = call(&FsList::new(workspace), json!({})).unwrap();
        assert_eq!(text.lines().count(), limit::LIST_ENTRIES_MAX + 1);
        assert!(text.ends_with("f 01999\n(Results limited to 2000 entries)"));
    }
}
