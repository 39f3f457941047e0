//! A text file that becomes another text: what a person is shown before, and the change itself.
//!
//! For tools that plan a change from what the file holds. Invariant: calls on one file take turns, and between the look at
//! the file and its new content nobody is asked anything.

use std::sync::Arc;

use serde_json::Value;

use super::fs_common::blocking;
use super::fs_file::{Target, change_preview, failing_preview, read_text, turn};
use super::fs_guard::Guard;
use crate::base::workspace::Workspace;
use crate::tool::{ToolContext, ToolError, ToolOutput};

/// What a file is to become, and what is said when it has.
pub(super) struct Planned {
    /// The whole text.
    pub after: String,
    /// The answer.
    pub said: String,
}

/// A request to change one file.
pub(super) trait Change: Send + 'static {
    /// The file, as given.
    fn path(&self) -> &str;

    /// What a file with this text is to become.
    ///
    /// # Errors
    /// Why it stays what it is.
    fn plan(&self, before: &str) -> Result<Planned, ToolError>;
}

/// What a person is shown: the diff, or why there will be none.
pub(super) async fn preview(workspace: &Arc<Workspace>, context: &ToolContext, change: impl Change) -> Option<Value> {
    let guard = Guard::preview(workspace, context);
    let workspace = guard.workspace();
    let work = move || {
        Ok(match plan(&workspace, &guard, &change) {
            Ok((before, planned)) => {
                let mut shown = change_preview(change.path(), Some(&before), &planned.after);
                let linked = Target::find(&workspace, change.path()).ok().and_then(|target| target.linked());
                if let Some(linked) = linked {
                    shown["warning"] = linked.into();
                }
                shown
            }
            Err(error) => failing_preview(change.path(), &error),
        })
    };
    blocking(work).await.ok()
}

/// Makes the change.
///
/// # Errors
/// An abort, why the change cannot be planned, and what the file system says; then the file is what it was.
pub(super) async fn make(
    workspace: &Arc<Workspace>,
    context: &ToolContext,
    change: impl Change,
) -> Result<ToolOutput, ToolError> {
    let guard = Guard::new(workspace, context);
    let workspace = guard.workspace();
    let cancel = context.cancel.clone();
    blocking(move || {
        let path = change.path();
        let _turn = turn(Target::find(&workspace, path)?.path());
        let (before, planned) = plan(&workspace, &guard, &change)?;
        if cancel.is_cancelled() {
            return Err(ToolError::Aborted);
        }
        let target = Target::find(&workspace, path)?;
        let _recorded = guard.recording([target.path().to_owned()]);
        let stamp = target.write(&workspace, path, &planned.after)?;
        guard.wrote(target.path(), stamp, planned.after.as_bytes());
        let details = Some(change_preview(path, Some(&before), &planned.after));
        let linked = target.linked().map(|linked| format!("\n\n({linked})"));
        let text = planned.said + linked.as_deref().unwrap_or_default();
        Ok(ToolOutput { text, details, ..ToolOutput::default() })
    })
    .await
}

/// The file as it is, and as it would be.
fn plan(workspace: &Workspace, guard: &Guard, change: &impl Change) -> Result<(String, Planned), ToolError> {
    if let Ok(target) = Target::find(workspace, change.path()) {
        guard.check(&target, change.path())?;
    }
    let before = read_text(workspace, change.path())?;
    let planned = change.plan(&before)?;
    Ok((before, planned))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::super::fs_common::testing::{call, preview, workspace};
    use super::super::{ApplyPatch, FsEdit, FsMultiEdit, FsWrite};
    use super::*;
    use crate::tool::Tool;

    #[test]
    fn a_file_with_further_names_is_told() {
        let records = tempfile::tempdir().unwrap();
        for linked in [true, false] {
            let (home, workspace) = workspace(&[("a", "one\n")]);
            if linked {
                fs::hard_link(home.path().join("a"), home.path().join("b")).unwrap();
            }
            let at = || Arc::clone(&workspace);
            let one = json!({"old_string": "one", "new_string": "1"});
            let patch = "*** Begin Patch\n*** Update File: a\n@@\n-one\n+1\n*** End Patch";
            #[rustfmt::skip]
            let table: [(&dyn Tool, Value, &str); 4] = [
                (&FsWrite::new(at()), json!({"path": "a", "content": "1\n"}), "The file"), (&FsEdit::new(at()), json!({"path": "a", "old_string": "one", "new_string": "1"}), "The file"),
                (&FsMultiEdit::new(at()), json!({"path": "a", "edits": [one]}), "The file"), (&ApplyPatch::with_records(at(), records.path().join("x")), json!({"patch": patch}), "\"a\""),
            ];
            for (tool, arguments, name) in table {
                let want = format!("{name} had further hard links: they keep the old content.");
                let shown = preview(tool, arguments.clone()).unwrap();
                assert_eq!(shown["warning"].as_str().is_some_and(|warning| warning.contains(&want)), linked, "{shown}");
                let said = call(tool, arguments).unwrap();
                assert_eq!(said.contains(&want), linked, "{said}");
                assert_eq!(fs::read_to_string(home.path().join("a")).unwrap(), "1\n");
                fs::write(home.path().join("a"), "one\n").unwrap();
                if linked {
                    assert_eq!(fs::read_to_string(home.path().join("b")).unwrap(), "one\n");
                    fs::remove_file(home.path().join("b")).unwrap();
                    fs::hard_link(home.path().join("a"), home.path().join("b")).unwrap();
                }
            }
        }
    }
}
