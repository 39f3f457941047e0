//! `fs_delete`: takes away a file, a link, or a directory with all it holds.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::fs_common::{PATH_ALIASES, blocking, definition, flag, io_failed, not_found, refused, text_argument};
use super::fs_file::{failing_preview, turn};
use super::fs_guard::Guard;
use crate::base::BoxFuture;
use crate::base::workspace::Workspace;
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

    fn aliases(&self) -> &'static [(&'static str, &'static str)] {
        PATH_ALIASES
    }

    fn subject(&self, arguments: &Arguments) -> Subject {
        entries(&self.workspace, arguments, &["path"])
    }

    fn preview<'a>(&'a self, arguments: &'a Arguments, _context: &'a ToolContext) -> BoxFuture<'a, Option<Value>> {
        Box::pin(async move {
            let path = text_argument(arguments, "path").ok()?;
            let workspace = Arc::clone(&self.workspace);
            blocking(move || Ok(preview(&workspace, &path))).await.ok()
        })
    }

    fn run<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let (path, recursive) = (text_argument(&arguments, "path")?, flag(&arguments, "recursive")?);
            let (workspace, cancel) = (Arc::clone(&self.workspace), context.cancel.clone());
            let guard = Guard::new(&workspace, context);
            blocking(move || {
                let real = workspace.resolve_entry(&path).map_err(|e| refused(&e))?;
                delete(&workspace, &path, recursive, &cancel)?;
                guard.moved(&real, None);
                Ok(format!("Deleted {path}").into())
            })
            .await
        })
    }
}

/// The entries that a call touches, links as themselves.
pub(super) fn entries(workspace: &Workspace, arguments: &Arguments, names: &[&str]) -> Subject {
    let given = names.iter().filter_map(|name| arguments.get(*name)?.as_str());
    let subject = |given: &str| PathSubject { given: given.to_owned(), resolved: workspace.resolve_entry(given).ok() };
    let paths: Vec<PathSubject> = given.map(subject).collect();
    if paths.is_empty() { Subject::None } else { Subject::Paths(paths) }
}

fn delete(workspace: &Workspace, path: &str, recursive: bool, cancel: &CancellationToken) -> Result<(), ToolError> {
    let real = workspace.resolve_entry(path).map_err(|e| refused(&e))?;
    if workspace.holds_a_root(&real) {
        return Err(ToolError::failed(format!("Path \"{path}\" is or holds a root of the workspace, which stays")));
    }
    let _turn = turn(&real);
    let found = match std::fs::symlink_metadata(&real) {
        Ok(found) => found,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err(not_found(workspace, path)),
        Err(e) => return Err(io_failed("delete", path, &e)),
    };
    if cancel.is_cancelled() {
        return Err(ToolError::Aborted);
    }
    let done = match (found.is_dir(), recursive) {
        (false, _) => std::fs::remove_file(&real),
        (true, true) => std::fs::remove_dir_all(&real),
        (true, false) => {
            let why = "is a directory: set recursive to true to delete it and all it holds";
            return Err(ToolError::failed(format!("Path \"{path}\" {why}")));
        }
    };
    done.map_err(|e| io_failed("delete", path, &e))
}

/// What would be gone: the first names, and whether there are more.
fn preview(workspace: &Workspace, path: &str) -> Value {
    let real = match workspace.resolve_entry(path) {
        Ok(real) => real,
        Err(error) => return failing_preview(path, &refused(&error)),
    };
    let (mut paths, mut more) = (vec![workspace.shown(&real)], false);
    let mut todo = vec![real];
    while let Some(next) = todo.pop() {
        let is_directory = |path: &Path| std::fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
        let Some(children) = is_directory(&next).then(|| std::fs::read_dir(&next).ok()).flatten() else { continue };
        for child in children.flatten() {
            if paths.len() == SHOWN_ENTRIES_MAX {
                more = true;
                todo.clear();
                break;
            }
            paths.push(workspace.shown(&child.path()));
            todo.push(child.path());
        }
    }
    paths.sort();
    json!({ "path": path, "paths": paths, "truncated": more })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

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
    fn a_person_is_shown_what_goes() {
        let (_home, workspace) = workspace(&[("dir/a", ""), ("dir/b/c", "")]);
        let tool = FsDelete::new(workspace);
        let shown = preview(&tool, json!({"path": "dir"})).unwrap();
        assert_eq!(shown["paths"], json!(["dir", "dir/a", "dir/b", "dir/b/c"]));
        assert!(preview(&tool, json!({"path": "../x"})).unwrap()["error"].is_string());
    }
}
