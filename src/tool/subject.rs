//! What permission patterns are held against, for a tool that only its arguments describe.

use std::path::PathBuf;

use serde_json::Value;

use super::Arguments;
use crate::permission::{PathSubject, Subject};

/// Arguments that are command lines, by the names the host tools use: what is typed to a program is judged as one.
const COMMAND_ARGUMENTS: [&str; 3] = ["command", "cmd", "chars"];
/// Arguments that name files, by the names the host tools use.
const PATH_ARGUMENTS: [&str; 3] = ["path", "source", "destination"];
/// An argument that names several, by the name that tool servers use.
const PATHS_ARGUMENT: &str = "paths";

/// Arguments that name the directory of a command.
const DIRECTORY_ARGUMENTS: [&str; 4] = ["cwd", "workdir", "workingDirectory", "working_directory"];

/// The directory that a call names for its command, as it names it.
pub fn argument_place(arguments: &Arguments) -> Option<PathBuf> {
    let given = DIRECTORY_ARGUMENTS.iter().filter_map(|name| arguments.get(*name)).find_map(Value::as_str);
    given.filter(|given| !given.is_empty()).map(PathBuf::from)
}

/// A command, else paths, else nothing. `absolute` makes a path absolute, or says that it cannot be.
pub fn argument_subject(arguments: &Arguments, absolute: impl Fn(&str) -> Option<PathBuf>) -> Subject {
    let commands = COMMAND_ARGUMENTS.iter().filter_map(|name| arguments.get(*name)).filter_map(Value::as_str);
    let commands: Vec<&str> = commands.collect();
    match commands.as_slice() {
        [] => {}
        [command] => return Subject::Command((*command).to_owned()),
        // Which of them is run only the tool knows: each is judged, and no pattern allows them together.
        several => {
            let eval = |command: &&str| format!("eval '{}'", command.replace('\'', r"'\''"));
            return Subject::Command(several.iter().map(eval).collect::<Vec<_>>().join("; "));
        }
    }
    let several = arguments.get(PATHS_ARGUMENT).and_then(Value::as_array).into_iter().flatten();
    let given = PATH_ARGUMENTS.iter().filter_map(|name| arguments.get(*name)).chain(several).filter_map(Value::as_str);
    let paths: Vec<PathSubject> = given
        .map(|given| PathSubject { below: false, given: given.to_owned(), resolved: absolute(given).and_then(resolve) })
        .collect();
    if paths.is_empty() { Subject::None } else { Subject::Paths(paths) }
}

/// Why a call on these paths cannot run: one of them leads where it may not, or nowhere.
pub fn unreachable_path(subject: &Subject) -> Option<String> {
    let Subject::Paths(paths) = subject else { return None };
    let lost = paths.iter().find(|path| path.resolved.is_none())?;
    Some(format!("the path \"{}\" leads out of the allowed directories, or cannot be resolved", lost.given))
}

/// Through links as far as it exists, its `..` taken out in any case.
fn resolve(path: PathBuf) -> Option<PathBuf> {
    let mut rest: Vec<std::ffi::OsString> = Vec::new();
    let mut at = path;
    loop {
        if let Ok(real) = at.canonicalize() {
            return Some(rest.iter().rev().fold(real, |p, part| p.join(part)));
        }
        // `..` behind something that does not exist cannot be resolved: it then matches no pattern that allows.
        rest.push(at.file_name()?.to_owned());
        if !at.pop() {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn subject_of(value: Value) -> Subject {
        let Value::Object(arguments) = value else { panic!("an object, not {value}") };
        argument_subject(&arguments, |given| std::path::absolute(given).ok())
    }

    #[test]
    fn a_command_comes_before_paths_and_paths_are_resolved() {
        assert_eq!(subject_of(json!({"a": 1})), Subject::None);
        assert_eq!(subject_of(json!({"command": "ls", "path": "x"})), Subject::Command("ls".into()));
        assert_eq!(subject_of(json!({"cmd": "ls"})), Subject::Command("ls".into()));
        let both = subject_of(json!({"command": "cat <<E", "cmd": "rm 'x"}));
        assert_eq!(both, Subject::Command(r"eval 'cat <<E'; eval 'rm '\''x'".into()));
        assert_eq!(subject_of(json!({"session_id": "1000", "chars": "rm x\n"})), Subject::Command("rm x\n".into()));
        let Subject::Paths(paths) = subject_of(json!({"path": "/tmp/../tmp/none/file"})) else { panic!("paths") };
        let tmp = std::path::Path::new("/tmp").canonicalize().unwrap();
        assert_eq!(paths[0].resolved.as_deref(), Some(tmp.join("none/file").as_path()));
        let Subject::Paths(paths) = subject_of(json!({"path": "/tmp/none/../../etc/passwd"})) else { panic!("paths") };
        assert_eq!(paths[0].resolved, None);
        let Subject::Paths(paths) = subject_of(json!({"path": "/a", "paths": ["/b", 5, "/c"]})) else {
            panic!("paths")
        };
        assert_eq!(paths.iter().map(|p| p.given.as_str()).collect::<Vec<_>>(), ["/a", "/b", "/c"]);
        let Value::Object(arguments) = json!({"path": "/tmp"}) else { panic!("an object") };
        let nowhere = vec![PathSubject { below: false, given: "/tmp".into(), resolved: None }];
        assert_eq!(argument_subject(&arguments, |_| None), Subject::Paths(nowhere));
    }
}
