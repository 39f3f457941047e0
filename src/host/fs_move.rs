//! `fs_move`: gives a file, a link or a directory another name. Never over something that exists.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::fs_common::{
    blocking, changes_git, definition, io_failed, no_directory_name, not_found, refused, text_argument,
};
use super::fs_delete::{entries, stays};
use super::fs_file::turn;
use super::fs_guard::Guard;
use super::fs_put::{is_unsupported, rename_new};
use crate::base::BoxFuture;
use crate::base::place::Place;
use crate::base::workspace::{PathError, Workspace};
use crate::protocol::{ToolAnnotations, ToolCategory, ToolDefinition};
use crate::tool::{Arguments, Subject, Tool, ToolContext, ToolError, ToolOutput};

static DEFINITION: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let parameters = json!({
        "source": {"type": "string", "description": "What to move, relative to the working directory or absolute", "required": true},
        "destination": {"type": "string", "description": "Its new path, which must not exist yet", "required": true},
    });
    let description = "Moves or renames a file or a directory. Missing directories are made. The destination is the new path \
                       itself, not a directory to put it in, and nothing is written over.";
    let mut definition = definition("fs_move", ToolCategory::Edit, description, parameters);
    definition.annotations = Some(ToolAnnotations { destructive: Some(true), ..Default::default() });
    definition
});

/// Other names of its arguments that models use.
const ALIASES: [(&str, &str); 8] = [
    ("from", "source"),
    ("src", "source"),
    ("old_path", "source"),
    ("source_path", "source"),
    ("to", "destination"),
    ("dest", "destination"),
    ("new_path", "destination"),
    ("destination_path", "destination"),
];

/// The tool.
#[derive(Debug)]
pub struct FsMove {
    workspace: Arc<Workspace>,
}

impl FsMove {
    /// The tool for a workspace.
    pub fn new(workspace: Arc<Workspace>) -> Self {
        Self { workspace }
    }
}

impl Tool for FsMove {
    fn definition(&self) -> &ToolDefinition {
        &DEFINITION
    }

    fn records_changes(&self) -> bool {
        true
    }

    fn aliases(&self) -> &'static [(&'static str, &'static str)] {
        &ALIASES
    }

    fn subject(&self, arguments: &Arguments) -> Subject {
        entries(&self.workspace, arguments, &["source", "destination"])
    }

    fn insists(&self, arguments: &Arguments) -> bool {
        changes_git(&self.workspace, &self.subject(arguments))
    }

    fn run<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let source = text_argument(&arguments, "source")?;
            let destination = text_argument(&arguments, "destination")?;
            let (guard, cancel) = (Guard::new(&self.workspace, context), context.cancel.clone());
            let workspace = guard.workspace();
            blocking(move || {
                let (from, to) = relocate((&workspace, &guard), &source, &destination, &cancel)?;
                guard.moved(&from, Some(&to));
                Ok(format!("Moved {source} → {destination}").into())
            })
            .await
        })
    }
}

fn relocate(
    (workspace, guard): (&Workspace, &Guard),
    source: &str,
    destination: &str,
    cancel: &CancellationToken,
) -> Result<(PathBuf, PathBuf), ToolError> {
    stays(workspace, source)?;
    let failed = |e: &std::io::Error| match e.kind() {
        ErrorKind::NotFound => not_found(workspace, source),
        _ => io_failed("move", source, e),
    };
    let from = workspace.entry_place(source).map_err(|e| match e {
        PathError::Open { cause, .. } => failed(&cause),
        error => refused(&error),
    })?;
    let to = workspace.resolve_entry(destination).map_err(|e| refused(&e))?;
    let _turn = turn(from.path());
    let found = from.look().map_err(|e| failed(&e))?;
    check_endings(found.is_dir(), source, destination)?;
    if to != from.path() && to.starts_with(from.path()) {
        return Err(ToolError::failed(format!("Cannot move \"{source}\" into itself, to \"{destination}\"")));
    }
    guard.check_entry(from.path(), &found, source)?;
    if cancel.is_cancelled() {
        return Err(ToolError::Aborted);
    }
    let _recorded = guard.recording([from.path().to_owned(), to.clone()]);
    let to = workspace.reach_made(&to).map_err(|e| io_failed("make the directory of", destination, &e))?;
    rename(&from, &to).map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => {
            ToolError::failed(format!("\"{destination}\" exists already, and nothing is written over"))
        }
        ErrorKind::CrossesDevices => ToolError::failed(format!(
            "\"{source}\" and \"{destination}\" lie on different file systems: copy it, then delete the first"
        )),
        _ => io_failed("move", source, &e),
    })?;
    Ok((from.path().to_owned(), to.path().to_owned()))
}

/// A directory may be written with a slash behind its name, in either place; anything else is not one.
fn check_endings(is_directory: bool, source: &str, destination: &str) -> Result<(), ToolError> {
    let shown = |given: &str| given.trim_end_matches('/').to_owned();
    let (source_named, destination_named) = match is_directory {
        true => (shown(source), shown(destination)),
        false => (source.to_owned(), destination.to_owned()),
    };
    no_directory_name(&source_named)?;
    no_directory_name(&destination_named)
}

/// Renames where the name is free. The kernel decides; where it cannot, a look before.
fn rename(from: &Place, to: &Place) -> std::io::Result<()> {
    match rename_new((from.directory(), from.name()), (to.directory(), to.name())) {
        Err(e) if is_unsupported(&e) && to.look().is_ok() => Err(ErrorKind::AlreadyExists.into()),
        Err(e) if is_unsupported(&e) => {
            Ok(rustix::fs::renameat(from.directory(), from.name(), to.directory(), to.name())?)
        }
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::super::fs_common::testing::{aborted, call, workspace};
    use super::*;

    #[test]
    fn things_move() {
        let (home, workspace) = workspace(&[("a", "1"), ("dir/x", "2")]);
        symlink("a", home.path().join("link")).unwrap();
        let tool = FsMove::new(workspace);
        let run = |from: &str, to: &str| call(&tool, json!({"source": from, "destination": to}));
        assert_eq!(run("a", "new/deep/b").as_deref(), Ok("Moved a → new/deep/b"));
        assert_eq!(run("dir", "new/dir").as_deref(), Ok("Moved dir → new/dir"));
        assert_eq!(run("new/dir/", "new/other/").as_deref(), Ok("Moved new/dir/ → new/other/"));
        assert_eq!(run("new/other", "new/dir").as_deref(), Ok("Moved new/other → new/dir"));
        assert_eq!(run("link", "new/link").as_deref(), Ok("Moved link → new/link"));
        assert_eq!(fs::read_to_string(home.path().join("new/deep/b")).unwrap(), "1");
        assert_eq!(fs::read_to_string(home.path().join("new/dir/x")).unwrap(), "2");
        assert!(fs::symlink_metadata(home.path().join("new/link")).unwrap().is_symlink());
    }

    #[test]
    fn what_is_not_moved_says_why_and_stays() {
        let (home, workspace) = workspace(&[("a", "1"), ("b", "2"), ("dir/x", "3")]);
        symlink("/etc", home.path().join("out")).unwrap();
        let tool = FsMove::new(workspace);
        let said = |from: &str, to: &str| call(&tool, json!({"source": from, "destination": to})).unwrap_err();
        #[rustfmt::skip]
        let table = [
            ("a", "b", "\"b\" exists already"), ("a", "dir", "exists already"), ("a", "a", "exists already"),
            ("nope", "c", "No such file"), (".", "c", "a root of the workspace"), ("dir", "dir/sub", "into itself"),
            ("a", "../c", "escapes the working directory"), ("../a", "c", "escapes"), ("a", "out/c", "escapes"),
            ("a", "b/c", "Cannot make the directory of \"b/c\""),
            ("a", "c/", "\"c/\" ends in \"/\", so it can only be a directory"), ("a", "dir/", "ends in \"/\""),
            ("a", "c/.", "ends in \".\""), ("a", "dir/..", "ends in \"..\""), ("dir", "c/.", "ends in \".\""),
            ("a/", "c", "\"a/\" ends in \"/\""),
        ];
        for (from, to, want) in table {
            assert!(said(from, to).contains(want), "{from} {to}: {}", said(from, to));
        }
        aborted(&tool, json!({"source": "a", "destination": "c"}));
        assert_eq!(fs::read_to_string(home.path().join("a")).unwrap(), "1");
        assert_eq!(fs::read_to_string(home.path().join("b")).unwrap(), "2");
    }
}
