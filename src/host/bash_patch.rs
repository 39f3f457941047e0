//! A patch that was typed into `bash`: it is applied as one, and judged by the paths that it touches.
//!
//! No shell knows `apply_patch`, and models type it all the same. What is taken for a patch, and what is refused with
//! the way to write it, is decided in `edit::patch`; here it gets its directory.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;

use super::apply_patch::PatchCall;
use crate::base::workspace::Workspace;
use crate::config::change_records_directory;
use crate::edit::patch::{Typed, typed};
use crate::tool::{Arguments, ToolContext, ToolError};

/// What a call of `bash` is.
#[derive(Debug)]
pub(super) enum BashCall {
    /// A command for the shell.
    Shell,
    /// A patch.
    Patch(TypedPatch),
    /// Meant as a patch, and not taken: why.
    Refused(String),
}

/// A patch, and what it is relative to.
#[derive(Debug)]
pub(super) struct TypedPatch {
    pub call: PatchCall,
    /// Nothing in the call says where it works.
    anywhere: bool,
}

/// Looks at the arguments of a call. `may_write`: commands may change files.
pub(super) fn bash_call(workspace: &Arc<Workspace>, arguments: &Arguments, may_write: bool) -> BashCall {
    let text = |name: &str| arguments.get(name).and_then(Value::as_str);
    let (directory, patch) = match text("command").map(typed) {
        None | Some(Typed::Other) => return BashCall::Shell,
        Some(Typed::Refused(why)) => return BashCall::Refused(why.to_owned()),
        Some(Typed::Patch { directory, text }) => (directory, text),
    };
    if !may_write {
        let why = "commands may not change files here, and neither may a patch in one: call the tool apply_patch";
        return BashCall::Refused(why.to_owned());
    }
    let own = directory.as_deref().is_some_and(|directory| directory.starts_with('/'));
    let anywhere = text("cwd").is_none() && !own;
    let input: PathBuf = [text("cwd").unwrap_or(""), directory.as_deref().unwrap_or("")].iter().collect();
    match workspace.resolve(&input.to_string_lossy()) {
        Ok(base) => {
            let records = change_records_directory();
            let call = PatchCall { workspace: Arc::clone(workspace), base, records, patch };
            BashCall::Patch(TypedPatch { call, anywhere })
        }
        Err(error) => BashCall::Refused(error.to_string()),
    }
}

impl TypedPatch {
    /// Whether it would go where the shell is. Permission was given for paths in the working directory.
    ///
    /// # Errors
    /// The shell is somewhere else, and the call does not say where the patch belongs.
    pub(super) fn check(&self, context: &ToolContext) -> Result<(), ToolError> {
        let shell = context.scope.shell_directory.lock().clone();
        let working_directory = self.call.workspace.working_directory();
        match shell.filter(|shell| self.anywhere && shell != working_directory) {
            None => Ok(()),
            Some(shell) => Err(ToolError::failed(format!(
                "the shell is in \"{}\", and the patch does not say what its paths are relative to: give `cwd`, or call the \
                 tool apply_patch with paths relative to the working directory",
                shell.display()
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::super::bash::{Bash, BashOptions};
    use super::super::fs_common::testing::{call, call_in, context, preview, workspace};
    use super::*;
    use crate::tool::{Subject, Tool};

    fn patch(path: &str, old: &str, new: &str) -> String {
        format!(
            "apply_patch <<'EOF'\n*** Begin Patch\n*** Update File: {path}\n@@\n-{old}\n+{new}\n*** End Patch\nEOF\n"
        )
    }

    fn arguments(value: Value) -> Arguments {
        let Value::Object(arguments) = value else { panic!("an object") };
        arguments
    }

    #[test]
    fn a_patch_in_a_shell_is_a_patch() {
        let (home, workspace) = workspace(&[("a", "1\n"), ("sub/b", "2\n")]);
        let bash = Bash::new(workspace, BashOptions::default());
        let done = |path: &str| Ok(format!("Success. Updated the following files:\nM {path}"));
        assert_eq!(call(&bash, json!({"command": patch("a", "1", "one")})), done("a"));
        assert_eq!(call(&bash, json!({"command": format!("cd sub && {}", patch("b", "2", "3"))})), done("b"));
        assert_eq!(call(&bash, json!({"command": patch("b", "3", "4"), "cwd": "sub"})), done("b"));
        assert_eq!(fs::read_to_string(home.path().join("a")).unwrap(), "one\n");
        assert_eq!(fs::read_to_string(home.path().join("sub/b")).unwrap(), "4\n");
        let said = call(&bash, json!({"command": patch("a", "x", "y")})).unwrap_err();
        assert!(said.starts_with("apply_patch verification failed: a: "), "{said}");
        let shown = preview(&bash, json!({"command": patch("a", "one", "1")})).unwrap();
        assert_eq!(shown["diff"], "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-one\n+1\n");
        assert!(preview(&bash, json!({"command": "ls"})).is_none());
    }

    #[test]
    fn it_is_judged_by_its_paths() {
        let (home, workspace) = workspace(&[("a", "1\n"), ("sub/b", "2\n")]);
        let bash = Bash::new(workspace, BashOptions::default());
        let command = format!("cd sub; {}", patch("b", "2", "3"));
        let Subject::Paths(paths) = bash.subject(&arguments(json!({"command": command}))) else { panic!("paths") };
        assert_eq!(paths[0].resolved.as_deref(), Some(home.path().canonicalize().unwrap().join("sub/b").as_path()));
        let other = bash.subject(&arguments(json!({"command": "ls"})));
        assert_eq!(other, Subject::Command("ls".to_owned()));
    }

    #[test]
    fn what_is_not_taken_says_why() {
        let (home, workspace) = workspace(&[("a", "1\n"), ("sub/a", "1\n")]);
        let bash = Bash::new(workspace, BashOptions::default());
        let said = |command: String| call(&bash, json!({ "command": command })).unwrap_err();
        assert!(said(patch("a", "1", "2") + "ls\n").contains("must be the whole command"));
        assert!(said("*** Begin Patch\n*** End Patch".into()).contains("call the tool apply_patch"));
        assert!(said(format!("cd .. && {}", patch("a", "1", "2"))).contains("escapes the working directory"));
        assert!(said(patch("../x", "1", "2")).contains("escapes the working directory"));
        // The shell went elsewhere: permission would be for another file than the one that is meant.
        let context = context();
        call_in(&bash, json!({"command": "cd sub"}), &context).unwrap();
        let said = call_in(&bash, json!({"command": patch("a", "1", "2")}), &context).unwrap_err().to_string();
        assert!(said.contains("the shell is in") && said.contains("give `cwd`"), "{said}");
        call_in(&bash, json!({"command": patch("a", "1", "2"), "cwd": "sub"}), &context).unwrap();
        assert_eq!(fs::read_to_string(home.path().join("a")).unwrap(), "1\n");
        assert_eq!(fs::read_to_string(home.path().join("sub/a")).unwrap(), "2\n");
        let workspace = bash_workspace(&home);
        let refused = bash_call(&workspace, &arguments(json!({"command": patch("a", "1", "2")})), false);
        assert!(matches!(refused, BashCall::Refused(why) if why.contains("may not change files here")));
    }

    fn bash_workspace(home: &tempfile::TempDir) -> Arc<Workspace> {
        Arc::new(Workspace::new(home.path(), &[]).unwrap())
    }
}
