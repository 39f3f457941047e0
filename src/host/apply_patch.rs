//! `apply_patch`: changes several files by one patch, all of them or none.
//!
//! The patch is read (`edit::patch`), held against the files (`patch_plan`), and only then made
//! (`commit`). What was interrupted by a crash is ended at the next call, or by [`recover_changes`].

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::commit::{Change, commit, recover};
use super::fs_common::{blocking, changes_git, definition, text_argument};
use super::fs_file::turns;
use super::fs_guard::Guard;
use super::patch_plan::{Ground, Plan, paths, plan};
use super::patch_told::{Side, Told};
use crate::base::workspace::Workspace;
use crate::base::{BoxFuture, limit};
use crate::config::change_records_directory;
use crate::edit::diff_between;
use crate::edit::patch::{Patch, parse};
use crate::protocol::{ToolAnnotations, ToolCategory, ToolDefinition};
use crate::tool::{Arguments, FileStamp, PathSubject, Subject, Tool, ToolContext, ToolError, ToolOutput};

static DEFINITION: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let parameters = json!({
        "patch": {"type": "string", "description": "The patch, from `*** Begin Patch` to `*** End Patch`, or a unified diff", "required": true},
    });
    let description = "Changes several files by one patch: all of it is applied, or nothing. Between `*** Begin Patch` and \
                       `*** End Patch` stand sections `*** Add File: PATH` (every line begins with +), `*** Delete File: \
                       PATH`, and `*** Update File: PATH`, which `*** Move to: PATH` may follow. An update has chunks: a \
                       line `@@`, or `@@ LINE` with a line of the file that stands before the change (a function, a class), \
                       then lines that begin with a space (they stay), - (they go) or + (they are new). Give three lines of \
                       context on each side, so that a chunk fits one place only. `*** End of File` after a chunk says that \
                       it ends the file. A unified diff (git diff) is taken as well. Paths are relative to the working \
                       directory.";
    let mut definition = definition("apply_patch", ToolCategory::Edit, description, parameters);
    definition.annotations = Some(ToolAnnotations { destructive: Some(true), ..Default::default() });
    definition
});

/// The tool.
#[derive(Debug)]
pub struct ApplyPatch {
    workspace: Arc<Workspace>,
    records: PathBuf,
}

impl ApplyPatch {
    /// The tool for a workspace. It keeps its notes where [`change_records_directory`] says.
    pub fn new(workspace: Arc<Workspace>) -> Self {
        Self::with_records(workspace, change_records_directory())
    }

    /// The same with notes in a directory that lies outside the workspace's roots.
    pub fn with_records(workspace: Arc<Workspace>, records: PathBuf) -> Self {
        Self { workspace, records }
    }

    fn call(&self, patch: String) -> PatchCall {
        PatchCall {
            workspace: Arc::clone(&self.workspace),
            base: self.workspace.working_directory().to_owned(),
            records: self.records.clone(),
            patch,
        }
    }
}

/// Ends what a crash interrupted in a workspace: a patch is then applied as a whole, or not at all. How many there were.
///
/// Blocks while it works on files.
pub fn recover_changes(workspace: &Workspace) -> usize {
    recover(workspace, &change_records_directory())
}

/// A patch that is to be applied, wherever it was typed.
#[derive(Debug, Clone)]
pub(super) struct PatchCall {
    pub workspace: Arc<Workspace>,
    /// What its paths are relative to. Inside the workspace.
    pub base: PathBuf,
    pub records: PathBuf,
    pub patch: String,
}

impl PatchCall {
    /// All its paths. None when it cannot be read: then it will not be applied either.
    pub(super) fn subject(&self) -> Subject {
        let Ok(patch) = parse(&self.patch) else { return Subject::None };
        let subject = |(given, resolved)| PathSubject { below: false, given, resolved };
        Subject::Paths(paths(&self.workspace, &self.base, &patch).into_iter().map(subject).collect())
    }

    /// What would change, for the person who is asked. Blocks.
    pub(super) fn preview(&self, guard: &Guard) -> Value {
        match self.read().and_then(|patch| plan(&self.ground(guard), &patch)) {
            Ok(plan) => preview(&plan),
            Err(error) => json!({ "error": verification(&error).to_string() }),
        }
    }

    /// Applies it. What the model is told. Blocks.
    pub(super) fn run(&self, guard: &Guard, cancel: &CancellationToken) -> Result<ToolOutput, ToolError> {
        recover(&self.workspace, &self.records);
        let patch = self.read().map_err(|e| verification(&e))?;
        let touched: Vec<PathBuf> =
            paths(&self.workspace, &self.base, &patch).into_iter().filter_map(|(_, path)| path).collect();
        let _turns = turns(touched.iter().map(PathBuf::as_path));
        let plan = plan(&self.ground(guard), &patch).map_err(|e| verification(&e))?;
        if cancel.is_cancelled() {
            return Err(ToolError::Aborted);
        }
        let _recorded = guard.recording(plan.changes.iter().map(|change| change.path.clone()));
        commit(&self.workspace, &self.records, &plan.changes)
            .map_err(|e| ToolError::failed(format!("the patch was not applied: {e}")))?;
        for change in &plan.changes {
            remember((&self.workspace, guard), change, plan.seen.contains(&change.path));
        }
        Ok(ToolOutput { text: done(&plan), details: Some(preview(&plan)), ..ToolOutput::default() })
    }

    fn ground<'c>(&'c self, guard: &'c Guard) -> Ground<'c> {
        Ground { workspace: guard.held(), base: &self.base, guard }
    }

    fn read(&self) -> Result<Patch, ToolError> {
        parse(&self.patch).map_err(|e| ToolError::failed(e.to_string()))
    }
}

/// Keeps up to date what the session knows of a file.
fn remember((workspace, guard): (&Workspace, &Guard), change: &Change, seen: bool) {
    let found = workspace.look(&change.path).ok();
    match (&change.after, found) {
        (Some(after), Some(found)) if seen => guard.wrote(&change.path, FileStamp::of(&found), &after.bytes),
        (Some(_), _) | (None, _) => guard.moved(&change.path, None),
    }
}

fn verification(error: &ToolError) -> ToolError {
    let said = format!("apply_patch verification failed: {error}");
    match error {
        ToolError::Conflict(_) => ToolError::Conflict(said),
        ToolError::Failed(_) | ToolError::BadArguments(_) | ToolError::Aborted | ToolError::AbortedAfter(_) => {
            ToolError::Failed(said)
        }
    }
}

fn done(plan: &Plan) -> String {
    let line = |told: &Told| {
        let note = if told.leniency.is_empty() {
            String::new()
        } else {
            format!(" (found without regard to {})", told.leniency)
        };
        format!("\n{} {}{note}", told.letter(), told.name())
    };
    let warned = plan.warnings().map(|warning| format!("\n\n(Warning: {warning})"));
    let lines = plan.told.iter().map(line).chain(warned).collect::<String>();
    format!("Success. Updated the following files:{lines}")
}

fn preview(plan: &Plan) -> Value {
    let (mut diff, mut added, mut removed, mut truncated) = (String::new(), 0, 0, false);
    let mut files = Vec::new();
    for told in &plan.told {
        let side = |side: &Option<Side>| {
            side.as_ref().map(|side| (side.given.clone(), String::from_utf8_lossy(&side.bytes).into_owned()))
        };
        let (before, after) = (side(&told.before), side(&told.after));
        let name = |side: &Option<(String, String)>, other: &Option<(String, String)>| {
            side.as_ref().or(other.as_ref()).map_or(String::new(), |(path, _)| path.clone())
        };
        let (old, new) = (name(&before, &after), name(&after, &before));
        let text = |side: &'_ Option<(String, String)>| side.as_ref().map(|(_, text)| text.clone());
        let (old_text, new_text) = (text(&before), text(&after));
        let left = limit::DIFF_BYTES_MAX.saturating_sub(diff.len());
        let one = diff_between((&old, old_text.as_deref()), (&new, new_text.as_deref()), left);
        if matches!(told.letter(), 'R' | 'C') {
            diff.push_str(&format!("{} from {old}\n{0} to {new}\n", if told.copied { "copy" } else { "rename" }));
        }
        diff.push_str(&one.text);
        added += one.added;
        removed += one.removed;
        truncated |= one.truncated;
        files.push(
            json!({ "kind": told.letter().to_string(), "path": new, "added": one.added, "removed": one.removed }),
        );
    }
    let mut shown = json!({ "files": files, "diff": diff, "added": added, "removed": removed, "truncated": truncated });
    let warnings: Vec<String> = plan.warnings().collect();
    if !warnings.is_empty() {
        shown["warning"] = warnings.join(" ").into();
    }
    shown
}

impl Tool for ApplyPatch {
    fn definition(&self) -> &ToolDefinition {
        &DEFINITION
    }

    fn records_changes(&self) -> bool {
        true
    }

    fn aliases(&self) -> &'static [(&'static str, &'static str)] {
        &[("input", "patch"), ("diff", "patch"), ("patch_text", "patch"), ("patchText", "patch")]
    }

    fn subject(&self, arguments: &Arguments) -> Subject {
        text_argument(arguments, "patch").map_or(Subject::None, |patch| self.call(patch).subject())
    }

    fn insists(&self, arguments: &Arguments) -> bool {
        changes_git(&self.workspace, &self.subject(arguments))
    }

    fn preview<'a>(&'a self, arguments: &'a Arguments, context: &'a ToolContext) -> BoxFuture<'a, Option<Value>> {
        Box::pin(async move {
            let call = self.call(text_argument(arguments, "patch").ok()?);
            let guard = Guard::preview(&self.workspace, context);
            blocking(move || Ok(call.preview(&guard))).await.ok()
        })
    }

    fn run<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let call = self.call(text_argument(&arguments, "patch")?);
            let (guard, cancel) = (Guard::new(&self.workspace, context), context.cancel.clone());
            blocking(move || call.run(&guard, &cancel)).await
        })
    }
}

#[cfg(test)]
mod tests;
