//! `fs_stat`: size, time, type and permissions of one path.

use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, LazyLock};

use serde_json::json;

use super::fs_common::{PATH_ALIASES, blocking, definition, io_failed, not_found, paths, refused, text_argument};
use crate::base::workspace::{PathError, Workspace};
use crate::base::{BoxFuture, clock};
use crate::protocol::{ToolCategory, ToolDefinition};
use crate::tool::{Arguments, Subject, Tool, ToolContext, ToolError, ToolOutput};

static DEFINITION: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let parameters = json!({
        "path": {"type": "string", "description": "The file or directory, relative to the working directory or absolute", "required": true},
    });
    let description = "Tells size in bytes, time of the last change, type and permissions of a path, as JSON.";
    definition("fs_stat", ToolCategory::Read, description, parameters)
});

/// The tool.
#[derive(Debug)]
pub struct FsStat {
    workspace: Arc<Workspace>,
}

impl FsStat {
    /// The tool for a workspace.
    pub fn new(workspace: Arc<Workspace>) -> Self {
        Self { workspace }
    }
}

impl Tool for FsStat {
    fn definition(&self) -> &ToolDefinition {
        &DEFINITION
    }

    fn aliases(&self) -> &'static [(&'static str, &'static str)] {
        PATH_ALIASES
    }

    fn subject(&self, arguments: &Arguments) -> Subject {
        paths(&self.workspace, arguments, &["path"])
    }

    fn run<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let path = text_argument(&arguments, "path")?;
            let (workspace, cancel) = (context.judged.hold(&self.workspace), context.cancel.clone());
            blocking(move || if cancel.is_cancelled() { Err(ToolError::Aborted) } else { stat(&workspace, &path) })
                .await
        })
    }
}

fn stat(workspace: &Workspace, path: &str) -> Result<ToolOutput, ToolError> {
    let found = match workspace.look_at(path) {
        Ok(found) => found,
        Err(e) if e.is_not_found() => return Err(not_found(workspace, path)),
        Err(PathError::Open { cause, .. }) => return Err(io_failed("look at", path, &cause)),
        Err(e) => return Err(refused(&e)),
    };
    let kind = match found.file_type() {
        kind if kind.is_file() => "file",
        kind if kind.is_dir() => "directory",
        _ => "other",
    };
    let modified = found.modified().map(clock::text_of).map_err(|e| io_failed("look at", path, &e))?;
    let permissions = format!("{:03o}", found.permissions().mode() & 0o7777);
    let told = json!({"size": found.len(), "modified": modified, "type": kind, "permissions": permissions});
    Ok(told.to_string().into())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::time::{Duration, SystemTime};

    use super::super::fs_common::testing::{aborted, call, workspace};
    use super::*;

    #[test]
    fn the_figures_of_a_path() {
        let (home, workspace) = workspace(&[("a", "four"), ("dir/", "")]);
        let file = fs::File::options().append(true).open(home.path().join("a")).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123)).unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o640)).unwrap();
        symlink("a", home.path().join("link")).unwrap();
        symlink("/etc", home.path().join("out")).unwrap();
        let tool = FsStat::new(workspace);
        let said = |path: &str| call(&tool, json!({"path": path}));
        let want = r#"{"size":4,"modified":"2023-11-14T22:13:20.123Z","type":"file","permissions":"640"}"#;
        assert_eq!(said("a").as_deref(), Ok(want));
        assert_eq!(said("link").as_deref(), Ok(want));
        assert!(said("dir").unwrap().contains(r#""type":"directory""#));
        assert_eq!(said("b").unwrap_err(), "No such file or directory: \"b\"");
        assert!(said("out").unwrap_err().contains("escapes the working directory"));
        aborted(&tool, json!({"path": "a"}));
    }
}
