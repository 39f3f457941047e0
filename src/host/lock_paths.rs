//! `lock_paths` and `unlock_paths`: a session of a tree says where it is going to write, before it does.
//!
//! Writing by itself holds a path, too; these are for several that belong together.

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde_json::{Value, json};

use super::blackboard::tree_of;
use super::fs_common::definition;
use crate::base::workspace::Workspace;
use crate::base::{BoxFuture, limit};
use crate::protocol::{ToolCategory, ToolDefinition};
use crate::tool::{Arguments, Tool, ToolContext, ToolError, ToolOutput};

/// The name of the tool that holds paths.
pub const LOCK_PATHS: &str = "lock_paths";
/// The name of the tool that gives them up.
pub const UNLOCK_PATHS: &str = "unlock_paths";

static LOCK: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let parameters = json!({
        "paths": {"type": "array", "items": {"type": "string"}, "description": "Files, or directories with all in them", "required": true},
        "ttl_ms": {"type": "number", "description": "For how long at most, in milliseconds; 300,000 if left out, 1,800,000 at most"},
    });
    let description = "Holds paths for you, so that no other agent of this piece of work writes there, until you give them up, your \
        turn ends, or the time is over. Each path is acquired or denied by itself; denied ones say who holds them. Writing a file \
        holds it by itself: use this for several that belong together.";
    definition(LOCK_PATHS, ToolCategory::Other, description, parameters)
});

static UNLOCK: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let parameters = json!({
        "paths": {"type": "array", "items": {"type": "string"}, "description": "As they were held; all, if left out"},
    });
    definition(UNLOCK_PATHS, ToolCategory::Other, "Gives up paths that you hold.", parameters)
});

/// Holds paths.
#[derive(Debug)]
pub struct LockPaths {
    workspace: Arc<Workspace>,
}

/// Gives them up.
#[derive(Debug)]
pub struct UnlockPaths {
    workspace: Arc<Workspace>,
}

impl LockPaths {
    /// One inside `workspace`.
    pub fn new(workspace: Arc<Workspace>) -> Self {
        Self { workspace }
    }
}

impl UnlockPaths {
    /// One inside `workspace`.
    pub fn new(workspace: Arc<Workspace>) -> Self {
        Self { workspace }
    }
}

/// The paths of a call, as they were given and as they resolve. None: it names none.
fn paths_of(workspace: &Workspace, arguments: &Arguments) -> Result<Option<Vec<(String, PathBuf)>>, ToolError> {
    let Some(given) = arguments.get("paths").filter(|given| !given.is_null()) else { return Ok(None) };
    let most = limit::LOCK_PATHS_MAX;
    let expected = || ToolError::BadArguments(format!("`paths`: expected a list of 1 to {most} paths"));
    let given: Vec<String> = serde_json::from_value(given.clone()).map_err(|_| expected())?;
    if given.is_empty() || given.len() > most {
        return Err(expected());
    }
    let resolved = given.into_iter().map(|path| match workspace.resolve(&path) {
        Ok(resolved) => Ok((path, resolved)),
        Err(error) => Err(ToolError::failed(error.to_string())),
    });
    resolved.collect::<Result<_, _>>().map(Some)
}

/// For how long.
fn patience(arguments: &Arguments) -> Result<Duration, ToolError> {
    let Some(given) = arguments.get("ttl_ms").filter(|given| !given.is_null()) else {
        return Ok(Duration::from_millis(limit::LOCK_MS));
    };
    #[allow(clippy::cast_precision_loss, reason = "less than half an hour")]
    let within = given.as_f64().filter(|ms| (1.0..=limit::LOCK_MS_MAX as f64).contains(ms));
    let expected = || format!("`ttl_ms`: expected a number from 1 to {}, got {given}", limit::LOCK_MS_MAX);
    within.map(|ms| Duration::from_secs_f64(ms / 1e3)).ok_or_else(|| ToolError::BadArguments(expected()))
}

fn output(told: Value) -> ToolOutput {
    ToolOutput { text: told.to_string(), details: Some(told), ..ToolOutput::default() }
}

impl Tool for LockPaths {
    fn definition(&self) -> &ToolDefinition {
        &LOCK
    }

    fn records_changes(&self) -> bool {
        // It touches no files.
        true
    }

    fn may_repeat(&self, _: &Arguments) -> bool {
        // What was denied may be free by then.
        true
    }

    fn run<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let none = || ToolError::BadArguments("`paths`: expected at least one path, got none".to_owned());
            let paths = paths_of(&self.workspace, &arguments)?.ok_or_else(none)?;
            let patience = patience(&arguments)?;
            let tree = tree_of(context)?;
            let (mut acquired, mut denied) = (Vec::new(), Vec::new());
            for (given, path) in paths {
                match tree.claim(&[path], Some(patience)) {
                    Ok(()) => acquired.push(given),
                    Err(held) => denied.push(json!({
                        "path": given,
                        "by": held.by.name.as_deref().unwrap_or(held.by.session_id.as_str()),
                        "expiresInMs": u64::try_from(held.left.as_millis()).unwrap_or(u64::MAX),
                    })),
                }
            }
            Ok(output(json!({ "acquired": acquired, "denied": denied })))
        })
    }
}

impl Tool for UnlockPaths {
    fn definition(&self) -> &ToolDefinition {
        &UNLOCK
    }

    fn records_changes(&self) -> bool {
        // It touches no files.
        true
    }

    fn run<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let paths = paths_of(&self.workspace, &arguments)?;
            let paths: Option<Vec<PathBuf>> = paths.map(|paths| paths.into_iter().map(|(_, path)| path).collect());
            let released = tree_of(context)?.release(paths.as_deref());
            Ok(output(json!({ "released": released.len() })))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::fs_common::testing::{call, workspace};
    use super::*;

    #[test]
    fn what_does_not_fit_is_named() {
        let (_home, workspace) = workspace(&[("a.txt", "a")]);
        let lock = LockPaths::new(Arc::clone(&workspace));
        for (given, names) in [
            (json!({"paths": []}), "`paths`: expected a list of 1 to 100 paths"),
            (json!({"paths": vec!["a"; 101]}), "`paths`: expected a list of 1 to 100 paths"),
            (json!({"paths": ["../../etc/passwd"]}), "etc/passwd"),
            (json!({"paths": ["a.txt"], "ttl_ms": 0}), "`ttl_ms`: expected a number from 1 to 1800000"),
            (json!({"paths": ["a.txt"], "ttl_ms": 1_800_001}), "`ttl_ms`: expected a number from 1 to 1800000"),
            (json!({"paths": ["a.txt"]}), "no session"),
        ] {
            let said = call(&lock, given).expect_err("refused");
            assert!(said.contains(names), "{said}");
        }
        let said = call(&UnlockPaths::new(workspace), json!({})).expect_err("no session");
        assert!(said.contains("no session"), "{said}");
    }
}
