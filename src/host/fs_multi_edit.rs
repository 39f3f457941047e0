//! `fs_multi_edit`: several edits of one file, all of them or none.

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use super::fs_change::{self, Change, Planned};
use super::fs_common::{PATH_ALIASES, changes_git, definition, flag, paths, text_argument};
use super::fs_edit::EDIT_ALIASES;
use crate::base::workspace::Workspace;
use crate::base::{BoxFuture, limit, text};
use crate::edit::{self, Step, Strategy};
use crate::protocol::{ToolCategory, ToolDefinition};
use crate::tool::{Arguments, Subject, Tool, ToolContext, ToolError, ToolOutput};

static DEFINITION: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let edit = json!({
        "type": "object",
        "properties": {
            "old_string": {"type": "string", "description": "The text to replace, with enough lines around it to be the only such place"},
            "new_string": {"type": "string", "description": "The text to put there, literally"},
            "replace_all": {"type": "boolean", "description": "Replace every place, not the only one. Default: false"},
        },
        "required": ["old_string", "new_string"],
    });
    let parameters = json!({
        "path": {"type": "string", "description": "The file, relative to the working directory or absolute", "required": true},
        "edits": {"type": "array", "description": "The edits, in order; each sees what those before it have made", "items": edit, "required": true},
    });
    let description = "Makes several edits in one text file, in order: all of them, or none when one cannot be made. Each \
                       edit is one of fs_edit and finds its place in the same ways.";
    definition("fs_multi_edit", ToolCategory::Edit, description, parameters)
});

/// The tool.
#[derive(Debug)]
pub struct FsMultiEdit {
    workspace: Arc<Workspace>,
}

impl FsMultiEdit {
    /// The tool for a workspace.
    pub fn new(workspace: Arc<Workspace>) -> Self {
        Self { workspace }
    }
}

struct Request {
    path: String,
    steps: Vec<Step>,
}

impl Request {
    fn new(arguments: &Arguments) -> Result<Self, ToolError> {
        let path = text_argument(arguments, "path")?;
        let expected = |got: &str| ToolError::BadArguments(format!("`edits`: expected a list of edits, got {got}"));
        let edits = match arguments.get("edits") {
            None | Some(Value::Null) => return Err(expected("nothing")),
            Some(Value::Array(edits)) if edits.is_empty() => return Err(expected("an empty one")),
            Some(Value::Array(edits)) if edits.len() > limit::EDITS_MAX => {
                let (most, got) = (limit::EDITS_MAX, edits.len());
                return Err(ToolError::BadArguments(format!("`edits`: expected at most {most} edits, got {got}")));
            }
            Some(Value::Array(edits)) => edits,
            Some(_) => return Err(expected("something else")),
        };
        let steps = edits.iter().enumerate().map(|(index, edit)| step(index, edit)).collect::<Result<_, _>>()?;
        Ok(Self { path, steps })
    }
}

impl Change for Request {
    fn path(&self) -> &str {
        &self.path
    }

    fn plan(&self, before: &str) -> Result<Planned, ToolError> {
        let edited = edit::edit_all(before, &self.steps);
        let (after, strategies) = edited.map_err(|e| ToolError::failed(e.to_string()))?;
        if before == after {
            return Err(ToolError::failed("the edits undo each other: the file would be what it is"));
        }
        Ok(Planned { after, said: done(&self.path, &strategies) })
    }
}

/// What an edit has.
const EDIT_FIELDS: [&str; 3] = ["old_string", "new_string", "replace_all"];

/// One edit. Its arguments have the names, and the other names, that they have in `fs_edit`.
fn step(index: usize, edit: &Value) -> Result<Step, ToolError> {
    let Value::Object(given) = edit else {
        return Err(ToolError::BadArguments(format!(
            "`edits[{index}]`: expected an object with old_string and new_string"
        )));
    };
    let mut given = given.clone();
    for (alias, name) in EDIT_ALIASES {
        if !given.contains_key(name)
            && let Some(value) = given.remove(alias)
        {
            given.insert(name.to_owned(), value);
        }
    }
    if let Some(unknown) = given.keys().find(|key| !EDIT_FIELDS.contains(&key.as_str())) {
        let (shown, known) = (text::head(unknown, 80), EDIT_FIELDS.join(", "));
        return Err(ToolError::BadArguments(format!("`edits[{index}]`: `{shown}` is unknown: expected only {known}")));
    }
    let named = |error: ToolError| ToolError::BadArguments(format!("`edits[{index}]`: {error}"));
    Ok(Step {
        old: text_argument(&given, "old_string").map_err(named)?,
        new: text_argument(&given, "new_string").map_err(named)?,
        replace_all: flag(&given, "replace_all").map_err(named)?,
    })
}

impl Tool for FsMultiEdit {
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
        paths(&self.workspace, arguments, &["path"])
    }

    fn insists(&self, arguments: &Arguments) -> bool {
        changes_git(&self.workspace, &self.subject(arguments))
    }

    fn preview<'a>(&'a self, arguments: &'a Arguments, context: &'a ToolContext) -> BoxFuture<'a, Option<Value>> {
        Box::pin(async move {
            let request = Request::new(arguments).ok()?;
            fs_change::preview(&self.workspace, context, request).await
        })
    }

    fn run<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move { fs_change::make(&self.workspace, context, Request::new(&arguments)?).await })
    }
}

fn done(path: &str, strategies: &[Strategy]) -> String {
    let names: Vec<&str> = strategies.iter().map(|strategy| strategy.name()).collect();
    let (edits, word) = match names.len() {
        1 => ("1 edit".to_owned(), "strategy"),
        count => (format!("{count} edits"), "strategies"),
    };
    format!("Edited {path} with {edits} using {word}: {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::fs_common::testing::{aborted, call, preview, workspace};
    use super::*;

    #[test]
    fn edits_are_made_in_order() {
        let (home, workspace) = workspace(&[("a", "one\r\ntwo two\r\n  three\r\n")]);
        let tool = FsMultiEdit::new(workspace);
        let edits = json!([
            {"old_string": "one\ntwo", "new_string": "1\n2"},
            {"search": "2 two", "replace": "2 2"},
            {"old": "2", "new": "zwei", "replace_all": true},
            {"oldString": "three ", "newString": "3"},
        ]);
        let said = call(&tool, json!({"path": "a", "edits": edits}));
        let want = "Edited a with 4 edits using strategies: exact, exact, exact, line-trimmed";
        assert_eq!(said.as_deref(), Ok(want));
        assert_eq!(fs::read_to_string(home.path().join("a")).unwrap(), "1\r\nzwei zwei\r\n  3\r\n");
        let one = json!({"path": "a", "edits": [{"old_string": "1", "new_string": "I"}]});
        assert_eq!(call(&tool, one).as_deref(), Ok("Edited a with 1 edit using strategy: exact"));
    }

    #[test]
    fn when_one_cannot_be_made_none_is() {
        let (home, workspace) = workspace(&[("a", "one\ntwo\ntwo\n")]);
        let tool = FsMultiEdit::new(workspace);
        let good = json!({"old_string": "one", "new_string": "1"});
        let edit = |old: &str, new: &str| json!({"old_string": old, "new_string": new});
        #[rustfmt::skip]
        let table = [
            (json!([good, edit("three", "3")]), "edit 2 of 2: No match found"), (json!([good, edit("two", "2"), good]), "edit 2 of 3: old_string is ambiguous"),
            (json!([good, edit("one", "2")]), "edit 2 of 2: No match found"), (json!([good, edit("", "2")]), "use fs_write"),
            (json!([good, edit("1", "one")]), "the edits undo each other"), (json!([]), "`edits`: expected a list of edits, got an empty one"),
            (json!("x"), "`edits`: expected a list of edits"), (json!([good, 1]), "`edits[1]`: expected an object"), (Value::Null, "got nothing"),
            (json!([good, {"old_string": "a"}]), "`edits[1]`: `new_string`: expected a string, got nothing"), (json!(vec![good.clone(); 1001]), "expected at most 1000 edits, got 1001"),
            (json!([{"old_string": "a", "new_string": "b", "all": true}]), "`edits[0]`: `all` is unknown: expected only old_string, new_string, replace_all"),
            (json!([{"old_string": "a", "new_string": "b", "replace_all": "yes"}]), "`edits[0]`: `replace_all`: expected true or false"),
        ];
        for (edits, want) in table {
            let said = call(&tool, json!({"path": "a", "edits": edits})).unwrap_err();
            assert!(said.contains(want), "{said}");
        }
        aborted(&tool, json!({"path": "a", "edits": [good]}));
        assert!(call(&tool, json!({"path": "../a", "edits": [good]})).unwrap_err().contains("escapes"));
        assert_eq!(fs::read_to_string(home.path().join("a")).unwrap(), "one\ntwo\ntwo\n");
    }

    #[test]
    fn a_person_is_shown_one_diff_or_the_reason() {
        let (_home, workspace) = workspace(&[("a", "one\ntwo\n")]);
        let tool = FsMultiEdit::new(workspace);
        let edits = json!([{"old_string": "one", "new_string": "1"}, {"old_string": "two", "new_string": "2"}]);
        let shown = preview(&tool, json!({"path": "a", "edits": edits})).unwrap();
        assert_eq!(shown["diff"], "--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n-one\n-two\n+1\n+2\n");
        let shown = preview(&tool, json!({"path": "a", "edits": [{"old_string": "x", "new_string": "y"}]})).unwrap();
        assert!(shown["error"].as_str().unwrap().starts_with("edit 1 of 1: No match found"));
    }
}
