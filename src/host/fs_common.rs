//! What the file tools share: definitions, arguments, subjects, the blocking pool, and errors with advice.

use serde_json::Value;
use std::fs::File;
use std::path::Path;

use super::fs_missing::alike;
use crate::base::text;
use crate::base::workspace::{PathError, Workspace};
use crate::protocol::{ToolAnnotations, ToolCategory, ToolDefinition};
use crate::tool::{Arguments, PathSubject, Subject, ToolError};

/// Other names of `path` that models use.
pub(super) const PATH_ALIASES: &[(&str, &str)] =
    &[("file", "path"), ("filepath", "path"), ("file_path", "path"), ("filePath", "path")];

/// Directories that are walked only when they are asked for by name.
pub(super) const SKIPPED_DIRECTORIES: [&str; 2] = [".git", "node_modules"];

/// A tool's definition. `parameters` is an object in the simple form of typescript-api.md §2.
pub(super) fn definition(name: &str, category: ToolCategory, description: &str, parameters: Value) -> ToolDefinition {
    let annotations = match category {
        ToolCategory::Read | ToolCategory::Search => ToolAnnotations { read_only: Some(true), ..Default::default() },
        _ => ToolAnnotations::default(),
    };
    ToolDefinition {
        name: name.to_owned(),
        description: description.to_owned(),
        parameters: match parameters {
            Value::Object(parameters) => parameters,
            _ => Arguments::new(),
        },
        category: Some(category),
        annotations: Some(annotations),
        timeout_ms: None,
        max_output_chars: None,
    }
}

/// A text argument that must be there.
pub(super) fn text_argument(arguments: &Arguments, name: &str) -> Result<String, ToolError> {
    optional_text(arguments, name)?.ok_or_else(|| bad(name, "a string", None))
}

/// A text argument that may be left out.
pub(super) fn optional_text(arguments: &Arguments, name: &str) -> Result<Option<String>, ToolError> {
    match arguments.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(bad(name, "a string", Some(other))),
    }
}

/// Texts with commas between, in one argument that may be left out. A comma inside `{}` or `[]`, or after `\\`, does not count.
pub(super) fn list_argument(arguments: &Arguments, name: &str) -> Result<Vec<String>, ToolError> {
    let Some(given) = optional_text(arguments, name)? else { return Ok(Vec::new()) };
    let mut parts = vec![String::new()];
    let (mut depth, mut escaped) = (0_usize, false);
    for c in given.chars() {
        match c {
            ',' if depth == 0 && !escaped => {
                parts.push(String::new());
                continue;
            }
            '{' | '[' if !escaped => depth += 1,
            '}' | ']' if !escaped => depth = depth.saturating_sub(1),
            _ => {}
        }
        escaped = c == '\\' && !escaped;
        if let Some(part) = parts.last_mut() {
            part.push(c);
        }
    }
    let parts: Vec<String> = parts.iter().map(|part| part.trim().to_owned()).collect();
    match parts.iter().all(String::is_empty) {
        true => Err(bad(name, "at least one", arguments.get(name))),
        false => Ok(parts.into_iter().filter(|part| !part.is_empty()).collect()),
    }
}

/// A true or false that may be left out: then it is false.
pub(super) fn flag(arguments: &Arguments, name: &str) -> Result<bool, ToolError> {
    match arguments.get(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(other) => Err(bad(name, "true or false", Some(other))),
    }
}

/// A whole number, at least `min`, that may be left out.
pub(super) fn whole(arguments: &Arguments, name: &str, min: u64) -> Result<Option<usize>, ToolError> {
    let given = match arguments.get(name) {
        None | Some(Value::Null) => return Ok(None),
        Some(given) => given,
    };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be whole and in range")]
    let number = given
        .as_u64()
        .or_else(|| given.as_f64().filter(|n| n.fract() == 0.0 && (0.0..9e15).contains(n)).map(|n| n as u64));
    match number.filter(|&number| number >= min).and_then(|number| usize::try_from(number).ok()) {
        Some(number) => Ok(Some(number)),
        None => Err(bad(name, &format!("a whole number from {min}"), Some(given))),
    }
}

fn bad(name: &str, expected: &str, got: Option<&Value>) -> ToolError {
    let got = got.map_or_else(|| "nothing".to_owned(), |value| text::head(&value.to_string(), 80).to_owned());
    ToolError::BadArguments(format!("`{name}`: expected {expected}, got {got}"))
}

/// The paths that a call touches, for the permission rules. `names` are those of its arguments.
pub(super) fn paths(workspace: &Workspace, arguments: &Arguments, names: &[&str]) -> Subject {
    let given = names.iter().filter_map(|name| arguments.get(*name)?.as_str());
    let paths: Vec<PathSubject> = given.map(|given| path_subject(workspace, given)).collect();
    if paths.is_empty() { Subject::None } else { Subject::Paths(paths) }
}

/// One path for the permission rules.
pub(super) fn path_subject(workspace: &Workspace, given: &str) -> PathSubject {
    PathSubject { below: false, given: given.to_owned(), resolved: workspace.whereabouts(given) }
}

/// Whether a change of these paths has to be asked about whatever the rules allow: one is, or lies in, the own directory of a
/// repository, and what stands there is run by git later (hooks, configuration); or one is a file that is kept: what stands
/// there the server does at its next start.
pub(super) fn changes_git(workspace: &Workspace, subject: &Subject) -> bool {
    let Subject::Paths(paths) = subject else { return false };
    let named = |path: &Path| path.components().any(|part| part.as_os_str().eq_ignore_ascii_case(".git"));
    paths.iter().any(|path| match &path.resolved {
        Some(resolved) => {
            let below = workspace.roots().iter().find_map(|root| resolved.strip_prefix(root).ok());
            workspace.keeps(resolved) || below.is_some_and(named)
        }
        None => named(Path::new(&path.given)),
    })
}

/// Runs `work` where it may block.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(e) if e.is_panic() => std::panic::resume_unwind(e.into_panic()),
        Err(_) => Err(ToolError::Aborted),
    }
}

/// A path error for the model.
pub(super) fn refused(error: &PathError) -> ToolError {
    match error {
        PathError::Exchanged(_) | PathError::Led(_) => ToolError::Conflict(error.to_string()),
        PathError::Escapes { .. }
        | PathError::Protected(_)
        | PathError::Nul(_)
        | PathError::Unresolvable { .. }
        | PathError::NoDirectory(_)
        | PathError::NotAFile { .. }
        | PathError::Open { .. } => ToolError::failed(error.to_string()),
    }
}

/// Refuses a path that can only mean a directory where one of something else is due.
///
/// Resolving takes such endings off, and the call would change something that was not named.
pub(super) fn no_directory_name(input: &str) -> Result<(), ToolError> {
    let last = input.rsplit('/').next().unwrap_or_default();
    if !matches!(last, "" | "." | "..") {
        return Ok(());
    }
    let ending = if last.is_empty() && input.is_empty() {
        "is empty".to_owned()
    } else {
        format!("ends in \"{}\", so it can only be a directory", if last.is_empty() { "/" } else { last })
    };
    Err(ToolError::failed(format!("Path \"{input}\" {ending}: give the path of the file itself")))
}

/// Opens a regular file. A name that is missing is told with those that it may have meant.
pub(super) fn open(workspace: &Workspace, input: &str) -> Result<File, ToolError> {
    workspace.open(input).map_err(
        |error| {
            if error.is_not_found() { not_found(workspace, input) } else { refused(&error) }
        },
    )
}

/// Nothing is there by that name. Where the working directory itself is missing, that is what is said.
pub(super) fn not_found(workspace: &Workspace, input: &str) -> ToolError {
    if let Err(error) = workspace.is_there() {
        return refused(&error);
    }
    let meant = workspace.resolve(input).map(|path| alike(workspace, &path)).unwrap_or_default();
    match meant.as_slice() {
        [] => ToolError::failed(format!("No such file or directory: \"{input}\"")),
        _ => ToolError::failed(format!(
            "No such file or directory: \"{input}\". Did you mean {}?",
            meant.iter().map(|name| in_quotes(name)).collect::<Vec<_>>().join(", ")
        )),
    }
}

/// A shown path in quotation marks; one that is written as a JSON string has them.
fn in_quotes(shown: &str) -> String {
    if shown.starts_with('"') { shown.to_owned() } else { format!("\"{shown}\"") }
}

/// What an operation on the file system failed with.
pub(super) fn io_failed(doing: &str, input: &str, cause: &std::io::Error) -> ToolError {
    ToolError::failed(format!("Cannot {doing} \"{input}\": {cause}"))
}

#[cfg(test)]
pub(super) mod testing {
    //! A workspace on a temporary directory, and calls on it.

    use std::path::Path;
    use std::sync::Arc;

    use serde_json::Value;
    use tokio_util::sync::CancellationToken;

    use crate::base::workspace::Workspace;
    use crate::tool::{Tool, ToolContext, ToolError};

    /// A temporary directory with these files (`a/` makes a directory), and a workspace on it.
    pub(crate) fn workspace(files: &[(&str, &str)]) -> (tempfile::TempDir, Arc<Workspace>) {
        let home = tempfile::tempdir().unwrap();
        for (path, content) in files {
            put(home.path(), path, content);
        }
        let workspace = Arc::new(Workspace::new(home.path(), &[]).unwrap());
        (home, workspace)
    }

    /// Writes one file, parents made.
    pub(crate) fn put(home: &Path, path: &str, content: &str) {
        let file = home.join(path);
        if path.ends_with('/') {
            std::fs::create_dir_all(file).unwrap();
            return;
        }
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, content).unwrap();
    }

    pub(crate) fn context() -> ToolContext {
        ToolContext {
            call_id: "call_1".to_owned(),
            session: None,
            cancel: CancellationToken::new(),
            scope: Arc::default(),
            events: Default::default(),
            veil: None,
            previewed: Default::default(),
            judged: Default::default(),
            clients: Default::default(),
        }
    }

    /// Runs a tool and waits for it.
    pub(crate) fn call(tool: &dyn Tool, arguments: Value) -> Result<String, String> {
        call_in(tool, arguments, &context()).map_err(|e| e.to_string())
    }

    pub(crate) fn call_in(tool: &dyn Tool, arguments: Value, context: &ToolContext) -> Result<String, ToolError> {
        let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(tool.run(arguments, context)).map(|output| output.text)
    }

    /// What a person would be shown.
    pub(crate) fn preview(tool: &dyn Tool, arguments: Value) -> Option<Value> {
        preview_in(tool, arguments, &context())
    }

    pub(crate) fn preview_in(tool: &dyn Tool, arguments: Value, context: &ToolContext) -> Option<Value> {
        let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(tool.preview(&arguments, context))
    }

    /// The same call after an abort.
    pub(crate) fn aborted(tool: &dyn Tool, arguments: Value) {
        let context = context();
        context.cancel.cancel();
        assert_eq!(call_in(tool, arguments, &context), Err(ToolError::Aborted));
    }
}
