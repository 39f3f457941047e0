//! `fs_edit`: replaces one place of a file, found by its text.

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use super::fs_change::{self, Change, Planned};
use super::fs_common::{PATH_ALIASES, changes_git, definition, flag, paths, text_argument};
use crate::base::BoxFuture;
use crate::base::workspace::Workspace;
use crate::edit;
use crate::protocol::{ToolCategory, ToolDefinition};
use crate::tool::{Arguments, Subject, Tool, ToolContext, ToolError, ToolOutput};

static DEFINITION: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let parameters = json!({
        "path": {"type": "string", "description": "The file, relative to the working directory or absolute", "required": true},
        "old_string": {"type": "string", "description": "The text to replace, without line numbers, with enough lines around it to be the only such place", "required": true},
        "new_string": {"type": "string", "description": "The text to put there, literally", "required": true},
        "replace_all": {"type": "boolean", "description": "Replace every place, not the only one. Default: false"},
    });
    let description = "Replaces old_string by new_string in a text file. The place is found exactly or, failing that, with \
                       other indentation and blanks, or by its first and last line; it must be the only one. Line \
                       endings, byte order mark and the end of the file stay as they are.";
    definition("fs_edit", ToolCategory::Edit, description, parameters)
});

/// Other names of an edit's strings that models use.
pub(super) const EDIT_ALIASES: [(&str, &str); 9] = [
    ("old", "old_string"),
    ("oldString", "old_string"),
    ("search", "old_string"),
    ("from", "old_string"),
    ("new", "new_string"),
    ("newString", "new_string"),
    ("replace", "new_string"),
    ("to", "new_string"),
    ("replaceAll", "replace_all"),
];

static ALIASES: LazyLock<Vec<(&str, &str)>> = LazyLock::new(|| [PATH_ALIASES, &EDIT_ALIASES].concat());

/// The tool.
#[derive(Debug)]
pub struct FsEdit {
    workspace: Arc<Workspace>,
}

impl FsEdit {
    /// The tool for a workspace.
    pub fn new(workspace: Arc<Workspace>) -> Self {
        Self { workspace }
    }
}

struct Request {
    path: String,
    old: String,
    new: String,
    all: bool,
}

impl Request {
    fn new(arguments: &Arguments) -> Result<Self, ToolError> {
        Ok(Self {
            path: text_argument(arguments, "path")?,
            old: text_argument(arguments, "old_string")?,
            new: text_argument(arguments, "new_string")?,
            all: flag(arguments, "replace_all")?,
        })
    }
}

impl Change for Request {
    fn path(&self) -> &str {
        &self.path
    }

    fn plan(&self, before: &str) -> Result<Planned, ToolError> {
        let replaced = edit::edit(before, &self.old, &self.new, self.all);
        let replaced = replaced.map_err(|e| ToolError::failed(e.to_string()))?;
        let said = format!("Edited {} using strategy: {}", self.path, replaced.strategy.name());
        Ok(Planned { after: replaced.text, said })
    }
}

impl Tool for FsEdit {
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::fs_common::testing::{aborted, call, context, preview, workspace};
    use super::*;

    #[test]
    fn edits_tell_their_strategy() {
        let (home, workspace) = workspace(&[("a", "fn f() {\r\n    one();\r\n}\r\n"), ("b", "x x x\n")]);
        let tool = FsEdit::new(workspace);
        let run = |path: &str, old: &str, new: &str, all: bool| {
            call(&tool, json!({"path": path, "old_string": old, "new_string": new, "replace_all": all}))
        };
        assert_eq!(run("a", "one();\n", "two();\n$&\n", false).as_deref(), Ok("Edited a using strategy: exact"));
        assert_eq!(run("a", "  two();", "three();", false).as_deref(), Ok("Edited a using strategy: exact"));
        assert_eq!(run("a", "three(); ", "  four();", false).as_deref(), Ok("Edited a using strategy: line-trimmed"));
        assert_eq!(fs::read_to_string(home.path().join("a")).unwrap(), "fn f() {\r\n    four();\r\n$&\r\n}\r\n");
        assert_eq!(run("b", "x", "y", true).as_deref(), Ok("Edited b using strategy: exact"));
        assert_eq!(fs::read_to_string(home.path().join("b")).unwrap(), "y y y\n");
    }

    #[test]
    fn what_cannot_be_edited_says_why_and_nothing_changes() {
        let (home, workspace) = workspace(&[("a", "one\ntwo\none\n"), ("dir/", "")]);
        fs::write(home.path().join("latin"), b"caf\xe9 one\n").unwrap();
        let tool = FsEdit::new(workspace);
        let said = |path: &str, old: &str| {
            call(&tool, json!({"path": path, "old_string": old, "new_string": "new"})).unwrap_err()
        };
        #[rustfmt::skip]
        let table = [
            ("a", "thre", "No match found for the provided old_string in the file"), ("a", "one", "at lines 1, 3"),
            ("a", "", "use fs_write"), ("a", "new", "the same"), ("dir", "x", "is a directory"), ("nope", "x", "No such file"),
            ("latin", "one", "not valid UTF-8 (first at byte 3)"), ("../a", "one", "escapes the working directory"),
            ("a/", "one", "ends in \"/\", so it can only be a directory"), ("dir/.", "x", "ends in \".\""), ("dir/..", "x", "ends in \"..\""),
        ];
        for (path, old, want) in table {
            assert!(said(path, old).contains(want), "{}", said(path, old));
        }
        aborted(&tool, json!({"path": "a", "old_string": "two", "new_string": "2"}));
        assert_eq!(fs::read(home.path().join("a")).unwrap(), b"one\ntwo\none\n");
        assert_eq!(fs::read(home.path().join("latin")).unwrap(), b"caf\xe9 one\n");
        let big = "x".repeat(usize::try_from(crate::base::limit::EDIT_FILE_BYTES_MAX).unwrap() + 1);
        fs::write(home.path().join("big"), big).unwrap();
        assert!(said("big", "y").contains("larger than"), "{}", said("big", "y"));
    }

    #[test]
    fn a_person_is_shown_the_diff_or_the_reason() {
        let (_home, workspace) = workspace(&[("a", "one\n")]);
        let tool = FsEdit::new(workspace);
        let shown = |old: &str| preview(&tool, json!({"path": "a", "old_string": old, "new_string": "two"})).unwrap();
        assert_eq!(shown("one")["diff"], "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-one\n+two\n");
        assert!(shown("xxx")["error"].as_str().unwrap().contains("No match found"));
    }

    /// Calls of one reply run side by side: none may overwrite what another one wrote.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn edits_of_one_file_take_turns() {
        let words: Vec<String> = (0..40).map(|n| format!("word{n:02}")).collect();
        let (home, workspace) = workspace(&[("a", &(words.join("\n") + "\n"))]);
        let tool = Arc::new(FsEdit::new(workspace));
        let calls = words.iter().map(|word| {
            let (tool, word) = (Arc::clone(&tool), word.clone());
            tokio::spawn(async move {
                let arguments = json!({"path": "a", "old_string": word, "new_string": word.to_uppercase()});
                let Value::Object(arguments) = arguments else { panic!() };
                tool.run(arguments, &context()).await
            })
        });
        for call in calls.collect::<Vec<_>>() {
            call.await.unwrap().unwrap();
        }
        assert_eq!(fs::read_to_string(home.path().join("a")).unwrap(), words.join("\n").to_uppercase() + "\n");
    }
}
