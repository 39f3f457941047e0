//! What a shell is told around a command, and what it tells as it ends: where it was left, and with which environment.
//!
//! It tells it on a file that it inherits and that has no name ([`Slate`]), so that no other program can tell it in its
//! place: whenever it moves, by functions in front of `cd` and its like, so that neither a trap of the
//! command's own nor another program in the shell's place (`exec`) keeps it from that; or by a trap at its exit, where
//! such a function would not do. Nothing here runs anything.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::base::limit;
use crate::base::process::Slate;
use crate::tool::{Arguments, ToolError};

/// Variables over an environment; None takes one out.
pub(super) type Variables = BTreeMap<OsString, Option<OsString>>;

/// Shells of which [`telling`] knows by what they move.
const KNOWN_SHELLS: [&str; 6] = ["sh", "bash", "dash", "ash", "ksh", "busybox"];
/// Words by which they do.
const MOVERS: [&str; 4] = ["cd", "chdir", "pushd", "popd"];
/// Words by which a shell can get past a function, or run what is not in sight.
const BLIND: [&str; 5] = ["eval", "source", "alias", "command", "builtin"];
/// Characters by which a word can become another one.
const EXPANSIONS: [char; 9] = ['$', '`', '*', '?', '[', '{', '\\', '~', '!'];
/// Characters between simple commands.
const BETWEEN: [char; 9] = ['\n', ';', '&', '|', '(', ')', '<', '>', '`'];
/// What a shell changes by itself, or what is ours.
const NOT_KEPT: [&str; 4] = ["PWD", "OLDPWD", "SHLVL", "_"];
/// Room for a report; what a shell may keep is far less.
pub(super) const REPORT_BYTES_MAX: u64 = 4 << 20;

/// What a shell said as it ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    /// Where it was.
    pub(super) directory: Option<PathBuf>,
    /// What it would have given to a program.
    pub(super) environment: Option<BTreeMap<OsString, OsString>>,
}

/// How a shell tells where it was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Telling {
    /// Whenever it moves.
    pub(super) moving: bool,
    /// As it exits. Costs a fork for each program that it would otherwise become in the end.
    pub(super) ending: bool,
}

impl Telling {
    /// Whether it tells at all.
    pub(super) fn any(self) -> bool {
        self.moving || self.ending
    }
}

/// How the shell of this command is made to tell where it was left. Not at all, when a plain command cannot move it.
pub(super) fn telling(shell: &Path, command: &str, environment: &[(OsString, OsString)]) -> Telling {
    let known = shell.file_name().is_some_and(|name| KNOWN_SHELLS.iter().any(|known| name == *known));
    // A function that comes with the environment can have any name.
    let has_functions = || environment.iter().any(|(name, _)| name.as_bytes().starts_with(b"BASH_FUNC_"));
    // The functions ask `/proc` whether they run in the shell itself.
    if !known || !cfg!(target_os = "linux") || has_functions() {
        return Telling { moving: false, ending: true };
    }
    let bare: String = command.chars().filter(|c| !matches!(c, '\'' | '"' | '\\')).collect();
    // A file is sourced by a `.` in front of its name; elsewhere it is a directory.
    let sources = |simple: &str| simple.split_whitespace().rev().skip(1).any(|word| word == ".");
    let blind = BLIND.iter().any(|word| bare.contains(word)) || bare.split(BETWEEN).any(sources);
    if !blind && !command.contains(EXPANSIONS) && !MOVERS.iter().any(|mover| bare.contains(mover)) {
        return Telling::default();
    }
    // What a function does would be in the trace.
    let words: Vec<&str> = bare.split_whitespace().collect();
    let traced = words.windows(2).any(|pair| pair[0] == "set" && pair[1].contains('x')) || bare.contains("xtrace");
    Telling { moving: !traced, ending: traced || blind }
}

/// The script for a command. `slate` is where the shell tells; `environment` whether it tells that too.
///
/// A report is the directory, a newline and NUL, then variables that end with NUL, then NUL. A later one is written over an
/// earlier one from its beginning.
pub(super) fn script(command: &str, telling: Telling, slate: Option<&Slate>, environment: bool) -> String {
    let Some(slate) = slate else { return command.to_owned() };
    let slate = slate.path();
    let mut front = String::new();
    for mover in MOVERS.iter().filter(|mover| telling.moving && (**mover == "cd" || command.contains(**mover))) {
        // A subshell is elsewhere on its own.
        front.push_str(&format!(
            "{mover}() {{ command {mover} \"$@\" || return; command test /proc/self -ef /proc/$$ || return 0; \
             {{ {{ command pwd -P; command printf '\\0\\0'; }} 1<>{slate}; }} 2>/dev/null || :; }}; "
        ));
    }
    if telling.ending || environment {
        let env = if environment { "; command env -0 2>/dev/null" } else { "" };
        front.push_str(&format!(
            "trap {} EXIT; ",
            quoted(&format!(
                "{{ {{ command pwd -P; command printf '\\0'{env}; command printf '\\0'; }} 1<>{slate}; }} 2>/dev/null"
            ))
        ));
    }
    front + command
}

/// One word of a shell's language that means `text`.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// What the shell said.
pub(super) fn read_report(report: impl Read) -> Report {
    let mut report = BufReader::new(report.take(REPORT_BYTES_MAX));
    let Some(line) = entry(&mut report) else { return Report::default() };
    let path = line.strip_suffix(b"\n").filter(|path| path.starts_with(b"/"));
    let mut all = BTreeMap::new();
    let whole = loop {
        match entry(&mut report) {
            None => break false,
            Some(end) if end.is_empty() => break true,
            Some(entry) => all.extend(variable(&entry)),
        }
    };
    Report {
        directory: path.map(|path| PathBuf::from(OsString::from_vec(path.to_vec()))),
        // A program that could not be started told nothing, and there always is something to tell.
        environment: Some(all).filter(|all| whole && !all.is_empty()),
    }
}

/// What comes before the next NUL. None: there is none.
fn entry(report: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    report.read_until(0, &mut bytes).ok()?;
    (bytes.pop()? == 0).then_some(bytes)
}

fn variable(entry: &[u8]) -> Option<(OsString, OsString)> {
    let at = entry.iter().position(|&b| b == b'=')?;
    let text = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
    Some((text(&entry[..at]), text(&entry[at + 1..])))
}

/// What has to be laid over `before` to get `after`; None: more than is kept.
pub(super) fn changes(before: &[(OsString, OsString)], after: &BTreeMap<OsString, OsString>) -> Option<Variables> {
    let kept = |name: &OsStr| !NOT_KEPT.iter().any(|own| name == *own) && !name.as_bytes().starts_with(b"SIMSE_");
    let before: BTreeMap<&OsString, &OsString> = before.iter().map(|(name, value)| (name, value)).collect();
    let gone = before.keys().filter(|name| !after.contains_key(**name)).map(|name| ((*name).clone(), None));
    let set = after.iter().filter(|(name, value)| before.get(name) != Some(value));
    let set = set.map(|(name, value)| (name.clone(), Some(value.clone())));
    let changes: Variables = gone.chain(set).filter(|(name, _)| kept(name)).collect();
    (bytes_of(&changes) <= limit::SHELL_ENVIRONMENT_BYTES_MAX).then_some(changes)
}

/// Lays variables over an environment.
pub(super) fn lay_over(environment: Vec<(OsString, OsString)>, over: &[&Variables]) -> Vec<(OsString, OsString)> {
    if over.iter().all(|variables| variables.is_empty()) {
        return environment;
    }
    let mut all: BTreeMap<OsString, OsString> = environment.into_iter().collect();
    for (name, value) in over.iter().flat_map(|variables| variables.iter()) {
        match value {
            Some(value) => all.insert(name.clone(), value.clone()),
            None => all.remove(name),
        };
    }
    all.into_iter().collect()
}

fn bytes_of(variables: &Variables) -> usize {
    variables.iter().map(|(name, value)| name.len() + value.as_ref().map_or(0, |value| value.len()) + 2).sum()
}

/// The variables that a call names.
pub(super) fn given(arguments: &Arguments, name: &str) -> Result<Variables, ToolError> {
    let bad = |what: String| ToolError::BadArguments(format!("`{name}`: expected {what}"));
    let named = match arguments.get(name) {
        None | Some(Value::Null) => return Ok(Variables::new()),
        Some(Value::Object(named)) => named,
        Some(other) => return Err(bad(format!("an object of texts by name, got {other}"))),
    };
    let mut variables = Variables::new();
    for (variable, value) in named {
        if !is_name(variable) {
            return Err(bad(format!("names of variables (letters, digits and `_`), got {variable:?}")));
        }
        let value = match value {
            Value::Null => None,
            Value::String(text) if !text.contains('\0') => Some(text.into()),
            other => return Err(bad(format!("a text without NUL, or null, for {variable}, got {other}"))),
        };
        variables.insert(variable.into(), value);
    }
    let (most, bytes) = (limit::SHELL_ENVIRONMENT_BYTES_MAX, bytes_of(&variables));
    if bytes > most { Err(bad(format!("at most {most} bytes, got {bytes}"))) } else { Ok(variables) }
}

fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.chars().all(plain) && text.starts_with(|c: char| !c.is_ascii_digit()) && !text.starts_with("SIMSE_")
}

/// The command as permission rules see it: what it is given beyond the command line is done by it, in front.
pub(super) fn judged(command: &str, given: &Variables) -> String {
    let mut line = String::new();
    for (name, value) in given {
        let name = name.to_string_lossy();
        match value {
            Some(value) => line.push_str(&format!("export {name}={}; ", quoted(&value.to_string_lossy()))),
            None => line.push_str(&format!("unset {name}; ")),
        }
    }
    line + command
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_plain_command_is_known_to_stay() {
        let (stays, moving) = (Telling::default(), Telling { moving: true, ending: false });
        let (both, ending) = (Telling { moving: true, ending: true }, Telling { moving: false, ending: true });
        #[rustfmt::skip]
        let table = [
            ("true", stays), ("ls -la src/a.txt | head -3 && cargo test", stays), ("echo a; exit 3", stays),
            ("git log --oneline 2>&1 >out", stays), ("./run.sh ..", stays), ("echo 'a b' \"c\"", stays),
            ("cat <<E\nx\nE", stays), ("exec x", stays), ("trap 'echo x' EXIT", stays), ("x() { y; }", moving),
            ("cd sub", moving), ("c''d sub", moving), ("\"c\"d sub", moving), ("(cd sub)", moving), ("c\\d sub", moving),
            ("chdir sub", moving), ("pushd a", moving), ("popd", moving), ("cd sub && exec x", moving),
            ("cd sub; trap 'echo x' EXIT", moving), ("$X sub", moving), ("c* sub", moving), ("?d sub", moving),
            ("[c]d sub", moving), ("{c,x}d sub", moving), ("set -e; cd sub", moving), ("`x` sub", moving),
            ("cd . && ls .", moving), ("ls .", stays), (". ./x", both), ("true;. x", both), ("source x", both), ("eval x", both), ("alias x=y", both),
            ("command cd sub", both), ("b''uiltin cd sub", both), ("com\\mand cd sub", both),
            ("set -x; cd sub", ending), ("set -eux; cd sub", ending), ("set -o xtrace; cd sub", ending),
        ];
        for (command, want) in table {
            assert_eq!(telling(Path::new("/bin/sh"), command, &[]), want, "{command}");
        }
        assert_eq!(telling(Path::new("/usr/bin/fish"), "true", &[]), ending, "a shell that is not known");
        let function = [(OsString::from("BASH_FUNC_go%%"), OsString::from("() {  cd /; }"))];
        assert_eq!(telling(Path::new("bash"), "go", &function), ending);
    }

    #[test]
    fn reports_are_read() {
        let read = |bytes: &[u8]| read_report(bytes);
        let directory = |path: &str| Report { directory: Some(path.into()), environment: None };
        for nothing in [&b""[..], b"/a\n", b"relative\n\0\0", b"\0\0", b"\0\0\0\0"] {
            assert_eq!(read(nothing), Report::default(), "{nothing:?}");
        }
        assert_eq!(read(b"/a b\n\0\0"), directory("/a b"));
        assert_eq!(read(b"/a\nb=c\n\0\0"), directory("/a\nb=c"));
        assert_eq!(read(b"/a\n\0\0nger\n\0X=1\0\0"), directory("/a"), "an earlier one was longer");
        assert_eq!(read(b"/a\n\0X=1\0Y="), directory("/a"), "it was cut off");
        let both = read(b"/a\nb\n\0X=1\n2\0Y=\0Z=a=b\0\0");
        assert_eq!(both.directory, Some("/a\nb".into()));
        let all: Vec<_> = both.environment.unwrap().into_iter().collect();
        let want = [("X", "1\n2"), ("Y", ""), ("Z", "a=b")].map(|(name, value)| (name.into(), value.into()));
        assert_eq!(all, want);
    }

    #[test]
    fn changes_bring_one_environment_to_the_other() {
        let pairs = |of: &[(&str, &str)]| -> Vec<(OsString, OsString)> {
            of.iter().map(|(name, value)| (name.into(), value.into())).collect()
        };
        let before = pairs(&[("A", "1"), ("B", "2"), ("C", "3"), ("PWD", "/")]);
        let after = pairs(&[("A", "1"), ("B", "9"), ("D", "4"), ("PWD", "/x"), ("_", "env"), ("SIMSE_KIN", "k")]);
        let changed = changes(&before, &after.into_iter().collect()).unwrap();
        let want: Variables = [("B", Some("9")), ("C", None), ("D", Some("4"))]
            .map(|(name, value)| (name.into(), value.map(OsString::from)))
            .into();
        assert_eq!(changed, want);
        assert_eq!(lay_over(before.clone(), &[&changed]), pairs(&[("A", "1"), ("B", "9"), ("D", "4"), ("PWD", "/")]));
        let large = [("X".into(), OsString::from("x".repeat(limit::SHELL_ENVIRONMENT_BYTES_MAX)))].into();
        assert_eq!(changes(&before, &large), None);
    }

    #[test]
    fn bad_variables_name_what_is_wrong() {
        let refused = |env: Value| match json!({ "env": env }) {
            Value::Object(arguments) => given(&arguments, "env").unwrap_err().to_string(),
            _ => String::new(),
        };
        #[rustfmt::skip]
        let table = [
            (json!("A=1"), "`env`: expected an object of texts by name, got \"A=1\""),
            (json!({"A B": "1"}), "`env`: expected names of variables (letters, digits and `_`), got \"A B\""),
            (json!({"1A": "1"}), "`env`: expected names of variables (letters, digits and `_`), got \"1A\""),
            (json!({"": "1"}), "`env`: expected names of variables (letters, digits and `_`), got \"\""),
            (json!({"SIMSE_KIN": "1"}), "`env`: expected names of variables (letters, digits and `_`), got \"SIMSE_KIN\""),
            (json!({"A": 1}), "`env`: expected a text without NUL, or null, for A, got 1"),
            (json!({"A": "x".repeat(70_000)}), "`env`: expected at most 65536 bytes, got 70003"),
        ];
        for (env, want) in table {
            assert_eq!(refused(env), want);
        }
    }

    #[test]
    fn rules_see_what_a_command_is_given() {
        let variables = [("A", Some("it's")), ("B", None)].map(|(n, v)| (n.into(), v.map(OsString::from))).into();
        assert_eq!(judged("git fetch", &variables), r"export A='it'\''s'; unset B; git fetch");
        assert_eq!(judged("git fetch", &Variables::new()), "git fetch");
    }
}
