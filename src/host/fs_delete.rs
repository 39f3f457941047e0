//! `fs_delete`: takes away a file, a link, or a directory with all it holds.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use rustix::fs::AtFlags;
use rustix::io::Errno;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::fs_common::{
    PATH_ALIASES, blocking, changes_git, definition, flag, io_failed, no_directory_name, not_found, refused,
    text_argument,
};
use super::fs_file::{failing_preview, turn};
use super::fs_guard::Guard;
use super::search::{Entries, Kind, as_path, open_below};
use crate::base::BoxFuture;
use crate::base::workspace::{PathError, Workspace};
use crate::protocol::{ToolAnnotations, ToolCategory, ToolDefinition};
use crate::tool::{Arguments, PathSubject, Subject, Tool, ToolContext, ToolError, ToolOutput};

/// Names shown to the person who is asked.
const SHOWN_ENTRIES_MAX: usize = 50;

static DEFINITION: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let parameters = json!({
        "path": {"type": "string", "description": "The file or directory, relative to the working directory or absolute", "required": true},
        "recursive": {"type": "boolean", "description": "Needed for a directory: delete it and all it holds. Default: false"},
    });
    let description =
        "Deletes a file, or a directory with all it holds. Of a link, the link itself. There is no way back.";
    let mut definition = definition("fs_delete", ToolCategory::Edit, description, parameters);
    definition.annotations = Some(ToolAnnotations { destructive: Some(true), ..Default::default() });
    definition
});

/// The tool.
#[derive(Debug)]
pub struct FsDelete {
    workspace: Arc<Workspace>,
}

impl FsDelete {
    /// The tool for a workspace.
    pub fn new(workspace: Arc<Workspace>) -> Self {
        Self { workspace }
    }
}

impl Tool for FsDelete {
    fn definition(&self) -> &ToolDefinition {
        &DEFINITION
    }

    fn records_changes(&self) -> bool {
        true
    }

    fn aliases(&self) -> &'static [(&'static str, &'static str)] {
        PATH_ALIASES
    }

    fn subject(&self, arguments: &Arguments) -> Subject {
        entries(&self.workspace, arguments, &["path"])
    }

    fn insists(&self, arguments: &Arguments) -> bool {
        changes_git(&self.workspace, &self.subject(arguments))
    }

    fn preview<'a>(&'a self, arguments: &'a Arguments, context: &'a ToolContext) -> BoxFuture<'a, Option<Value>> {
        Box::pin(async move {
            let path = text_argument(arguments, "path").ok()?;
            let guard = Guard::preview(&self.workspace, context);
            let workspace = guard.workspace();
            blocking(move || Ok(preview((&workspace, &guard), &path))).await.ok()
        })
    }

    fn run<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let (path, recursive) = (text_argument(&arguments, "path")?, flag(&arguments, "recursive")?);
            let (guard, cancel) = (Guard::new(&self.workspace, context), context.cancel.clone());
            let workspace = guard.workspace();
            blocking(move || {
                let gone = delete((&workspace, &guard), &path, recursive, &cancel)?;
                guard.moved(&gone, None);
                Ok(format!("Deleted {path}").into())
            })
            .await
        })
    }
}

/// The entries that a call touches, links as themselves.
pub(super) fn entries(workspace: &Workspace, arguments: &Arguments, names: &[&str]) -> Subject {
    let given = names.iter().filter_map(|name| arguments.get(*name)?.as_str());
    let subject = |given: &str| {
        let resolved = workspace.entry_whereabouts(given);
        let below = resolved.as_ref().is_some_and(|path| path.symlink_metadata().is_ok_and(|found| found.is_dir()));
        PathSubject { given: given.to_owned(), resolved, below }
    };
    let paths: Vec<PathSubject> = given.map(subject).collect();
    if paths.is_empty() { Subject::None } else { Subject::Paths(paths) }
}

/// Where it was.
fn delete(
    (workspace, guard): (&Workspace, &Guard),
    path: &str,
    recursive: bool,
    cancel: &CancellationToken,
) -> Result<PathBuf, ToolError> {
    stays(workspace, path)?;
    let failed = |e: &io::Error| match e.kind() {
        io::ErrorKind::NotFound => not_found(workspace, path),
        _ => io_failed("delete", path, e),
    };
    let place = workspace.entry_place(path).map_err(|e| match e {
        PathError::Open { cause, .. } => failed(&cause),
        error => refused(&error),
    })?;
    let _turn = turn(place.path());
    let found = place.look().map_err(|e| failed(&e))?;
    if !found.is_dir() {
        // `x/` means a directory: the file or the link `x` is not what was named.
        no_directory_name(path)?;
    }
    guard.check_entry(place.path(), &found, path)?;
    if cancel.is_cancelled() {
        return Err(ToolError::Aborted);
    }
    let _recorded = (recursive || !found.is_dir()).then(|| guard.recording([place.path().to_owned()]));
    let done = match (found.is_dir(), recursive) {
        (false, _) => rustix::fs::unlinkat(place.directory(), place.name(), AtFlags::empty()).map_err(io::Error::from),
        (true, true) => remove_tree(place.directory(), place.name().as_bytes()),
        (true, false) => {
            let why = "is a directory: set recursive to true to delete it and all it holds";
            return Err(ToolError::failed(format!("Path \"{path}\" {why}")));
        }
    };
    done.map_err(|e| io_failed("delete", path, &e))?;
    Ok(place.path().to_owned())
}

/// Refuses to take or move away what is, or holds, a root or the server's own data.
pub(super) fn stays(workspace: &Workspace, path: &str) -> Result<(), ToolError> {
    let real = workspace.resolve_entry(path).map_err(|e| refused(&e))?;
    if workspace.holds_a_root(&real) {
        return Err(ToolError::failed(format!("Path \"{path}\" is or holds a root of the workspace, which stays")));
    }
    if workspace.protected_below(&real).next().is_some() {
        return Err(ToolError::failed(format!("Path \"{path}\" holds the server's own data, which stays")));
    }
    Ok(())
}

/// A directory that is being emptied.
struct Level {
    handle: OwnedFd,
    name: Vec<u8>,
    left: Vec<(Vec<u8>, Kind)>,
    /// There are more names than were read at once.
    more: bool,
}

impl Level {
    fn open(directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<Self> {
        let mut level =
            Self { handle: open_below(directory, name)?, name: name.to_owned(), left: Vec::new(), more: false };
        level.list()?;
        Ok(level)
    }

    fn list(&mut self) -> io::Result<()> {
        let entries = Entries::read(self.handle.as_fd())?;
        self.left = entries.iter().map(|(name, entry)| (name.to_owned(), entry.kind)).collect();
        self.more = entries.more;
        Ok(())
    }
}

/// Takes a directory away with all it holds, by open handles: no link is followed, whoever makes one meanwhile.
fn remove_tree(directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    let mut levels = vec![Level::open(directory, name)?];
    while let Some(level) = levels.last_mut() {
        match level.left.pop() {
            Some((name, Kind::Directory)) => {
                let below = Level::open(level.handle.as_fd(), &name)?;
                levels.push(below);
            }
            Some((name, Kind::File | Kind::Link | Kind::Other)) => {
                match rustix::fs::unlinkat(&level.handle, name.as_slice(), AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(e) => return Err(e.into()),
                }
            }
            None if level.more => {
                // Listed anew, from the beginning.
                level.handle = open_below(level.handle.as_fd(), b".")?;
                level.list()?;
            }
            None => {
                let Some(empty) = levels.pop() else { return Ok(()) };
                let above = levels.last().map_or(directory, |level| level.handle.as_fd());
                rustix::fs::unlinkat(above, empty.name.as_slice(), AtFlags::REMOVEDIR)?;
            }
        }
    }
    Ok(())
}

/// What would be gone: the first names, and whether there are more.
fn preview((workspace, guard): (&Workspace, &Guard), path: &str) -> Value {
    let real = match workspace.resolve_entry(path) {
        Ok(real) => real,
        Err(error) => return failing_preview(path, &refused(&error)),
    };
    if let Ok(found) = workspace.look(&real)
        && let Err(error) = guard.check_entry(&real, &found, path)
    {
        return failing_preview(path, &error);
    }
    let (mut paths, mut more) = (vec![workspace.shown(&real)], false);
    let mut todo = vec![real];
    while let Some(next) = todo.pop() {
        // What is no directory is not opened as one.
        let listed = workspace.open_directory(&next).and_then(|open| Entries::read(open.as_fd()));
        let Ok(children) = listed else { continue };
        for (name, entry) in children.iter() {
            if paths.len() == SHOWN_ENTRIES_MAX {
                more = true;
                todo.clear();
                break;
            }
            let child = next.join(as_path(name));
            paths.push(workspace.shown(&child));
            if entry.kind == Kind::Directory {
                todo.push(child);
            }
        }
    }
    paths.sort();
    json!({ "path": path, "paths": paths, "truncated": more })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::super::fs_common::testing::{aborted, call, preview, workspace};
    use super::*;

    #[test]
    fn files_links_and_directories_go() {
        let (home, workspace) = workspace(&[("a", ""), ("dir/x/y", ""), ("kept/z", "")]);
        symlink("kept", home.path().join("link")).unwrap();
        symlink("/etc/passwd", home.path().join("out")).unwrap();
        let tool = FsDelete::new(workspace);
        for (path, recursive) in [("a", false), ("dir", true), ("link", false), ("out", false)] {
            let want = format!("Deleted {path}");
            assert_eq!(call(&tool, json!({"path": path, "recursive": recursive})), Ok(want));
            assert!(fs::symlink_metadata(home.path().join(path)).is_err(), "{path}");
        }
        assert!(home.path().join("kept/z").exists() && Path::new("/etc/passwd").exists());
    }

    #[test]
    fn what_is_not_deleted_says_why_and_stays() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir_all(home.path().join("wd/root/sub")).unwrap();
        fs::create_dir_all(home.path().join("wd/other")).unwrap();
        symlink("/etc", home.path().join("wd/out")).unwrap();
        let roots = [home.path().join("wd/root/sub")];
        let workspace = Arc::new(Workspace::new(&home.path().join("wd"), &roots).unwrap());
        let tool = FsDelete::new(workspace);
        let said = |path: &str| call(&tool, json!({"path": path, "recursive": true})).unwrap_err();
        for root in [".", "", "other/..", "root", "root/sub"] {
            assert!(said(root).contains("a root of the workspace"), "{root}: {}", said(root));
        }
        for outside in ["..", "/etc/hosts", "out/hosts", "../wd2"] {
            assert!(said(outside).contains("escapes the working directory"), "{outside}: {}", said(outside));
        }
        assert_eq!(said("nothing"), "No such file or directory: \"nothing\"");
        let said = call(&tool, json!({"path": "other"})).unwrap_err();
        assert!(said.contains("set recursive to true"), "{said}");
        aborted(&tool, json!({"path": "other", "recursive": true}));
        assert!(home.path().join("wd/other").exists() && home.path().join("wd/root/sub").exists());
    }

    #[test]
    fn a_directorys_name_deletes_no_file_and_no_link() {
        let (home, workspace) = workspace(&[("file", "x"), ("dir/", ""), ("other/", "")]);
        symlink("dir", home.path().join("link")).unwrap();
        let tool = FsDelete::new(workspace);
        for (path, ending) in [("file/", "/"), ("file//", "/"), ("file/.", "."), ("link/", "/")] {
            let said = call(&tool, json!({"path": path, "recursive": true})).unwrap_err();
            let want = format!("Path \"{path}\" ends in \"{ending}\", so it can only be a directory");
            assert!(said.starts_with(&want), "{said}");
        }
        assert!(home.path().join("file").exists() && home.path().join("link").exists());
        for path in ["dir/", "other/."] {
            assert_eq!(call(&tool, json!({"path": path, "recursive": true})), Ok(format!("Deleted {path}")));
        }
        assert!(!home.path().join("dir").exists() && !home.path().join("other").exists());
    }

    #[test]
    fn a_person_is_shown_what_goes() {
        let (_home, workspace) = workspace(&[("dir/a", ""), ("dir/b/c", "")]);
        let tool = FsDelete::new(workspace);
        let shown = preview(&tool, json!({"path": "dir"})).unwrap();
        assert_eq!(shown["paths"], json!(["dir", "dir/a", "dir/b", "dir/b/c"]));
        assert!(preview(&tool, json!({"path": "../x"})).unwrap()["error"].is_string());
    }
}
