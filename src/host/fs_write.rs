//! `fs_write`: a whole file, at once or not at all.

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use super::fs_common::{PATH_ALIASES, blocking, changes_git, definition, paths, text_argument};
use super::fs_file::{Target, change_preview, failing_preview, read_text, turn};
use super::fs_guard::{Guard, Known};
use crate::base::BoxFuture;
use crate::base::workspace::Workspace;
use crate::protocol::{ToolAnnotations, ToolCategory, ToolDefinition};
use crate::tool::{Arguments, FileStamp, Subject, Tool, ToolContext, ToolError, ToolOutput};

static DEFINITION: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let parameters = json!({
        "path": {"type": "string", "description": "The file, relative to the working directory or absolute", "required": true},
        "content": {"type": "string", "description": "The whole new content", "required": true},
    });
    let description = "Writes a whole file, and replaces what was there. Missing directories are made. To change a part \
                       of a file use fs_edit.";
    let mut definition = definition("fs_write", ToolCategory::Edit, description, parameters);
    definition.annotations = Some(ToolAnnotations { destructive: Some(true), ..Default::default() });
    definition
});

static ALIASES: LazyLock<Vec<(&str, &str)>> =
    LazyLock::new(|| [PATH_ALIASES, &[("contents", "content"), ("text", "content")]].concat());

/// The tool.
#[derive(Debug)]
pub struct FsWrite {
    workspace: Arc<Workspace>,
}

impl FsWrite {
    /// The tool for a workspace.
    pub fn new(workspace: Arc<Workspace>) -> Self {
        Self { workspace }
    }
}

impl Tool for FsWrite {
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
            let guard = Guard::preview(&self.workspace, context);
            let job = Job { guard, ..self.job(arguments, context).ok()? };
            blocking(move || Ok(job.preview())).await.ok()
        })
    }

    fn run<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let job = self.job(&arguments, context)?;
            let cancel = context.cancel.clone();
            blocking(move || {
                let _turn = turn(Target::find(&job.workspace, &job.path)?.path());
                if cancel.is_cancelled() {
                    return Err(ToolError::Aborted);
                }
                job.run()
            })
            .await
        })
    }
}

impl FsWrite {
    fn job(&self, arguments: &Arguments, context: &ToolContext) -> Result<Job, ToolError> {
        let guard = Guard::new(&self.workspace, context);
        Ok(Job {
            workspace: guard.workspace(),
            guard,
            path: text_argument(arguments, "path")?,
            content: text_argument(arguments, "content")?,
        })
    }
}

/// One call.
struct Job {
    workspace: Arc<Workspace>,
    guard: Guard,
    path: String,
    content: String,
}

impl Job {
    fn run(&self) -> Result<ToolOutput, ToolError> {
        let Self { workspace, guard, path, content } = self;
        let target = Target::find(workspace, path)?;
        let known = guard.check(&target, path)?;
        let bytes = content.len();
        if let Some(found) = target.existing().filter(|_| target.holds(content.as_bytes())) {
            guard.wrote(target.path(), FileStamp::of(found), content.as_bytes());
            let text = format!("Unchanged: {path} holds exactly these {bytes} bytes already");
            return Ok(text.into());
        }
        let details = self.change(&target);
        let _recorded = guard.recording([target.path().to_owned()]);
        let stamp = target.write(workspace, path, content)?;
        guard.wrote(target.path(), stamp, content.as_bytes());
        let mut text = format!("Wrote {bytes} bytes to {path}");
        for note in notes(&target, known) {
            text.push_str("\n\n(");
            text.push_str(&note);
            text.push(')');
        }
        Ok(ToolOutput { text, details: Some(details), ..ToolOutput::default() })
    }

    fn preview(&self) -> Value {
        let found = Target::find(&self.workspace, &self.path);
        let checked = found.and_then(|target| self.guard.check(&target, &self.path).map(|known| (target, known)));
        match checked {
            Ok((target, known)) => {
                let mut shown = self.change(&target);
                let notes = notes(&target, known);
                if !notes.is_empty() {
                    shown["warning"] = notes.join(" ").into();
                }
                shown
            }
            Err(error) => failing_preview(&self.path, &error),
        }
    }

    fn change(&self, target: &Target) -> Value {
        let Self { workspace, path, content, .. } = self;
        if target.existing().is_none() {
            return change_preview(path, None, content);
        }
        match read_text(workspace, path) {
            Ok(before) => change_preview(path, Some(&before), content),
            // It can be replaced without being readable as text; the person is told what is lost.
            Err(error) => json!({ "path": path, "isNew": false, "replaces": error.to_string() }),
        }
    }
}

/// What a reader of the result should know besides.
fn notes(target: &Target, known: Known) -> Vec<String> {
    let unseen = known == Known::Unseen;
    let unseen = unseen.then(|| "Warning: the file that was there was never read in this session.".to_owned());
    unseen.into_iter().chain(target.linked().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::super::fs_common::testing::{aborted, call, preview, workspace};
    use super::*;

    #[test]
    fn files_are_written_with_their_parents() {
        let (home, workspace) = workspace(&[("a", "old")]);
        let tool = FsWrite::new(workspace);
        #[rustfmt::skip]
        let table = [("a", "näw\n", "Wrote 5 bytes to a"), ("x/y/z.txt", "1", "Wrote 1 bytes to x/y/z.txt"), ("./x/../e", "", "Wrote 0 bytes to ./x/../e")];
        for (path, content, want) in table {
            let said = call(&tool, json!({"path": path, "content": content})).unwrap();
            assert_eq!(said.lines().next(), Some(want));
            assert_eq!(fs::read_to_string(home.path().join(path)).unwrap(), content);
        }
        let left: Vec<_> = fs::read_dir(home.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| !name.to_string_lossy().contains("simse")), "{left:?}");
    }

    #[test]
    fn mode_is_kept_and_links_are_written_through() {
        let (home, workspace) = workspace(&[("run.sh", "old"), ("dir/", "")]);
        let at = |name: &str| home.path().join(name);
        fs::set_permissions(at("run.sh"), fs::Permissions::from_mode(0o750)).unwrap();
        symlink("../run.sh", at("dir/link")).unwrap();
        let before = fs::metadata(at("run.sh")).unwrap();
        call(&FsWrite::new(workspace), json!({"path": "dir/link", "content": "new"})).unwrap();
        let after = fs::metadata(at("run.sh")).unwrap();
        assert_eq!(fs::read_to_string(at("run.sh")).unwrap(), "new");
        assert!(fs::symlink_metadata(at("dir/link")).unwrap().is_symlink());
        assert_eq!(after.mode(), before.mode());
        assert_ne!(after.ino(), before.ino(), "replaced, not written over");
    }

    #[test]
    fn a_new_file_has_the_usual_mode() {
        let (home, workspace) = workspace(&[]);
        fs::write(home.path().join("usual"), "").unwrap();
        call(&FsWrite::new(workspace), json!({"path": "new", "content": ""})).unwrap();
        let mode = |name: &str| fs::metadata(home.path().join(name)).unwrap().mode();
        assert_eq!(mode("new"), mode("usual"));
    }

    #[test]
    fn what_cannot_be_written_says_why_and_nothing_changes() {
        let (home, workspace) = workspace(&[("a", "x"), ("dir/", "")]);
        symlink("/etc", home.path().join("out")).unwrap();
        let tool = FsWrite::new(workspace);
        let said = |path: &str| call(&tool, json!({"path": path, "content": "y"})).unwrap_err();
        assert_eq!(said("dir"), "Path \"dir\" is a directory");
        let wrong = |path: &str, ending: &str| {
            format!(
                "Path \"{path}\" ends in \"{ending}\", so it can only be a directory: give the path of the file itself"
            )
        };
        for (path, ending) in [("z/", "/"), ("a/", "/"), ("new/z//", "/"), ("new/.", "."), ("new/..", ".."), (".", ".")]
        {
            assert_eq!(said(path), wrong(path, ending));
        }
        assert_eq!(said(""), "Path \"\" is empty: give the path of the file itself");
        assert!(!home.path().join("z").exists() && !home.path().join("new").exists());
        assert_eq!(said("a/b"), "Cannot write \"a/b\": Not a directory (os error 20)");
        for escape in ["../a", "/etc/simse", "out/simse", "out/new/simse"] {
            let want = format!("Path \"{escape}\" escapes the working directory \"{}\"", home.path().display());
            assert_eq!(said(escape), want);
        }
        assert_eq!(call(&tool, json!({"path": "a"})).unwrap_err(), "`content`: expected a string, got nothing");
        aborted(&tool, json!({"path": "a", "content": "y"}));
        assert_eq!(fs::read_to_string(home.path().join("a")).unwrap(), "x");
        assert!(!std::path::Path::new("/etc/new").exists());
    }

    #[test]
    fn a_person_is_shown_the_diff() {
        let (home, workspace) = workspace(&[("a", "x\n")]);
        fs::write(home.path().join("latin"), b"\xe9").unwrap();
        let tool = FsWrite::new(workspace);
        let shown = |path: &str| preview(&tool, json!({"path": path, "content": "y\n"})).unwrap();
        assert_eq!(shown("a")["diff"], "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-x\n+y\n");
        assert_eq!((&shown("a")["added"], &shown("a")["isNew"]), (&json!(1), &json!(false)));
        assert_eq!((&shown("new")["isNew"], &shown("new")["removed"]), (&json!(true), &json!(0)));
        assert!(shown("../b")["error"].as_str().unwrap().contains("escapes"));
        assert!(shown("latin")["replaces"].as_str().unwrap().contains("UTF-8"));
        assert_eq!(fs::read_to_string(home.path().join("a")).unwrap(), "x\n");
    }

    #[test]
    fn a_full_disk_leaves_the_old_file() {
        let (home, workspace) = workspace(&[("a", "old")]);
        // A directory without room for a further file stands in for the disk: nothing can be made in it.
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o555)).unwrap();
        let result = call(&FsWrite::new(workspace), json!({"path": "a", "content": "new"}));
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let text = fs::read_to_string(home.path().join("a")).unwrap();
        // A privileged user may write everywhere; then the write is whole.
        assert!(if result.is_ok() { text == "new" } else { text == "old" }, "{result:?} {text}");
    }
}
