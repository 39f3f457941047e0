//! What rules say of a call that no registry is about to run: a program with a loop of its own asks first.
//!
//! Where the tool itself is known it says what the call touches, as it does when it runs. Else the name has to do: for one
//! of simse's own tools, what that tool would make of the arguments, in the directory of the process. What cannot be
//! known then is taken the stricter way: an absolute path outside of that directory may lie in the directory that the
//! rules' relative patterns are about, and arguments that the tool would refuse are read as any tool might.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::permissions::{Looked, imagined, insisted};
use crate::base::workspace::Workspace;
use crate::host::{BashOptions, ExecOptions, GitOptions, bash_tool, exec_tools, filesystem_tools, git_tools};
use crate::permission::{Basis, Explanation, Facts, PathSubject, Rules, Verdict};
use crate::protocol::{PermissionExplanation, PermissionPolicy, ToolDefinition};
use crate::tool::{
    Arguments, Registry, Scope, Subject, Tool, argument_place, argument_subject, canonical, unreachable_path, validate,
};

/// Directories above a path that relative patterns are tried in; a path below more is asked about.
const PLACES_MAX: usize = 64;

/// A call as rules see it.
#[derive(Debug)]
pub struct Judged {
    /// Under the name that was given; under the tool's own, when that is another.
    names: Vec<Vec<Reading>>,
    insists: bool,
    problem: Option<String>,
}

/// One way to read a call.
#[derive(Debug, Clone)]
struct Reading {
    tool: String,
    definition: Option<ToolDefinition>,
    subject: Subject,
    place: Option<PathBuf>,
    /// What relative patterns are relative to.
    directory: Option<PathBuf>,
}

/// simse's own tools over the whole file system, to see what a call would touch. None of them ever runs.
#[derive(Debug, Default)]
pub struct Namesakes {
    made: Mutex<Option<(PathBuf, Arc<Registry>)>>,
}

impl Namesakes {
    /// Those that work in a directory. None: nobody can say where paths lead from there.
    fn of(&self, directory: &Path) -> Option<Arc<Registry>> {
        let mut made = self.made.lock();
        if let Some((place, tools)) = made.as_ref()
            && place == directory
        {
            return Some(Arc::clone(tools));
        }
        let workspace = Arc::new(Workspace::lenient(directory, &[PathBuf::from("/")]).ok()?);
        let tools = Arc::new(Registry::default());
        tools.extend(filesystem_tools(&workspace));
        tools.extend([bash_tool(&workspace, BashOptions::default())]);
        tools.extend(exec_tools(&workspace, ExecOptions::default()));
        tools.extend(git_tools(&workspace, &GitOptions::default()));
        *made = Some((directory.to_owned(), Arc::clone(&tools)));
        Some(tools)
    }
}

impl Judged {
    /// A call of a tool that is at hand. `directory` is what relative patterns are relative to. It may look at the file
    /// system to resolve a path.
    pub fn by_tool(tool: &dyn Tool, arguments: Arguments, (scope, directory): (Arc<Scope>, Option<PathBuf>)) -> Self {
        let Looked { definition, subject, place, insists, problem, .. } =
            Looked::at(tool, arguments, &imagined(None, scope));
        let tool = definition.name.clone();
        let reading =
            Reading { tool, definition: Some(definition), place: running(&subject, place), subject, directory };
        Self { names: vec![vec![reading]], insists, problem }
    }

    /// A call of which only the name is known, and perhaps what its caller says of the tool. `directory` is that of the
    /// process. It may look at the file system to resolve a path.
    pub fn by_name(
        (name, arguments): (&str, Arguments),
        definition: Option<ToolDefinition>,
        (namesakes, directory): (&Namesakes, Option<PathBuf>),
    ) -> Self {
        let plain = argument_subject(&arguments, |given| std::path::absolute(given).ok());
        let plain_place = running(&plain, argument_place(&arguments));
        let bad = |arguments: &Arguments| definition.as_ref().and_then(|known| validate(known, arguments).err());
        let reading = |tool: &str, definition: &Option<ToolDefinition>, (subject, place)| {
            let (tool, directory) = (tool.to_owned(), directory.clone());
            Reading { tool, definition: definition.clone(), subject, place, directory }
        };
        let tools = directory.as_deref().and_then(|directory| namesakes.of(directory));
        let Some(tool) = tools.as_ref().and_then(|tools| tools.get(name)) else {
            let problem = bad(&arguments).map(|bad| bad.0).or_else(|| unreachable_path(&plain));
            let readings = vec![reading(name, &definition, (plain, plain_place))];
            // Without a directory nobody can say what one of simse's own tools would touch.
            return Self { names: vec![readings], insists: tools.is_none(), problem };
        };
        let proper = canonical(tool.as_ref(), arguments);
        let problem = bad(&proper).map(|bad| bad.0).or_else(|| unreachable_path(&plain));
        let looked = Looked::at(tool.as_ref(), proper, &imagined(None, Arc::default()));
        let place = running(&looked.subject, looked.place);
        let own = Some(looked.definition);
        let mut names: Vec<Vec<Reading>> = Vec::new();
        for name in [name, &tool.definition().name] {
            if names.iter().flatten().any(|known| known.tool == name) {
                continue;
            }
            let mut readings = vec![
                reading(name, &definition, (looked.subject.clone(), place.clone())),
                reading(name, &own, (looked.subject.clone(), place.clone())),
            ];
            if looked.problem.is_some() {
                readings.push(reading(name, &definition, (plain.clone(), plain_place.clone())));
            }
            names.push(readings);
        }
        let mut judged = Self { names, insists: looked.insists, problem };
        judged.look_elsewhere();
        judged
    }

    /// Relative patterns may be about any directory above an absolute path that does not lie in the process's.
    fn look_elsewhere(&mut self) {
        for readings in &mut self.names {
            for reading in readings.clone() {
                let Subject::Paths(paths) = &reading.subject else { continue };
                let strange = paths.iter().filter_map(|path| elsewhere(path, reading.directory.as_deref()));
                let mut above: Vec<&Path> = strange.flat_map(|path| path.ancestors().skip(1)).collect();
                above.sort_unstable();
                above.dedup();
                self.insists |= above.len() > PLACES_MAX;
                let there = |place: &&Path| Reading { directory: Some(place.to_path_buf()), ..reading.clone() };
                readings.extend(above.iter().take(PLACES_MAX).map(there));
            }
        }
    }

    /// What the rules say, and why.
    pub fn explain(&self, rules: &Rules) -> PermissionExplanation {
        // There is a reading in any case.
        let nothing = || rules.explain(Facts::new("", None, None), &Subject::None);
        let told = self.decisive(rules).map_or_else(nothing, |(reading, _)| reading.explain(rules));
        PermissionExplanation { problem: self.problem.clone(), ..insisted(told.describe(rules), self.insists) }
    }

    /// What the rules say.
    pub fn decide(&self, rules: &Rules) -> PermissionPolicy {
        match self.decisive(rules).map(|(_, verdict)| verdict.policy) {
            Some(PermissionPolicy::Allow) if self.insists => PermissionPolicy::Ask,
            Some(policy) => policy,
            None => PermissionPolicy::Deny,
        }
    }

    /// The reading that counts.
    fn decisive(&self, rules: &Rules) -> Option<Said<'_>> {
        let judge = |reading| (reading, Reading::decide(reading, rules));
        self.names.iter().filter_map(|readings| readings.iter().map(judge).reduce(stricter)).reduce(|given, own| {
            match (given.1.basis == Basis::Default, own.1.basis == Basis::Default) {
                // A rule about either name counts before what holds where there is none.
                (true, false) => own,
                (false, true) => given,
                (true, true) | (false, false) => stricter(given, own),
            }
        })
    }
}

impl Reading {
    fn facts(&self) -> Facts<'_> {
        Facts::new(&self.tool, self.definition.as_ref(), self.directory.as_deref()).at(self.place.as_deref())
    }

    fn decide(&self, rules: &Rules) -> Verdict {
        rules.decide(self.facts(), &self.subject)
    }

    fn explain(&self, rules: &Rules) -> Explanation {
        rules.explain(self.facts(), &self.subject)
    }
}

/// The path, when relative patterns cannot be held against it.
fn elsewhere<'p>(path: &'p PathSubject, directory: Option<&Path>) -> Option<&'p Path> {
    let given = Path::new(&path.given);
    let found = path.resolved.as_deref().unwrap_or(given);
    (given.is_absolute() && directory.is_none_or(|directory| !found.starts_with(directory))).then_some(found)
}

/// Where a command would start; nothing else starts anywhere.
fn running(subject: &Subject, place: Option<PathBuf>) -> Option<PathBuf> {
    match subject {
        Subject::Command(_) => place,
        Subject::None | Subject::Paths(_) => None,
    }
}

type Said<'r> = (&'r Reading, Verdict);

/// The stricter of two; the first when they are alike.
fn stricter<'r>(first: Said<'r>, second: Said<'r>) -> Said<'r> {
    let rank = |policy: PermissionPolicy| match policy {
        PermissionPolicy::Allow => 0,
        PermissionPolicy::Ask => 1,
        PermissionPolicy::Deny => 2,
    };
    if rank(second.1.policy) > rank(first.1.policy) { second } else { first }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::protocol::{PermissionConfig, PermissionPolicy::*, PermissionRule};

    fn rule(tool: &str, pattern: &str, policy: PermissionPolicy) -> PermissionRule {
        serde_json::from_value(json!({"tool": tool, "pattern": pattern, "policy": policy})).unwrap()
    }

    fn rules(default_policy: PermissionPolicy, rules: Vec<PermissionRule>) -> Rules {
        Rules::new(&PermissionConfig { default_policy, rules })
    }

    fn object(value: Value) -> Arguments {
        let Value::Object(arguments) = value else { panic!("an object, not {value}") };
        arguments
    }

    /// What is said of a call of which only the name is known, by a process in `directory`.
    fn said(rules: &Rules, directory: &Path, name: &str, arguments: Value) -> PermissionPolicy {
        let namesakes = Namesakes::default();
        let judged = Judged::by_name((name, object(arguments)), None, (&namesakes, Some(directory.to_owned())));
        let decided = judged.decide(rules);
        assert_eq!(judged.explain(rules).decision, decided, "what is explained is what is decided");
        decided
    }

    #[test]
    fn a_name_of_ours_is_judged_as_our_tool_would_run() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        std::fs::create_dir(home.join("sec")).unwrap();
        std::os::unix::fs::symlink("sec", home.join("link")).unwrap();
        let patch = "*** Begin Patch\n*** Add File: sec/n\n+x\n*** End Patch";
        let typed = format!("apply_patch <<'E'\n{patch}\nE");
        let allowed = rules(Ask, vec![rule("bash", "ls *", Allow), rule("exec_command", "echo *", Allow)]);
        let denied = rules(Allow, vec![rule("*", "sec/*", Deny), rule("bash", "rm *", Deny)]);
        let absolute = home.join("sec/k");
        #[rustfmt::skip]
        let table = [
            (&allowed, "bash", json!({"command": "ls"}), Allow),
            (&allowed, "Bash", json!({"cmd": "ls"}), Allow),
            (&allowed, "bash", json!({"command": "ls", "env": {"PATH": "/evil"}}), Ask),
            (&allowed, "bash", json!({"command": "ls", "env": {"LD_PRELOAD": "/evil"}}), Ask),
            (&allowed, "bash", json!({"command": "ls", "env": {"BASH_ENV": "/evil"}}), Ask),
            (&allowed, "bash", json!({"command": "ls", "cmd": "make"}), Ask),
            (&allowed, "exec_command", json!({"cmd": "echo a"}), Allow),
            (&allowed, "exec_command", json!({"cmd": "echo a", "shell": "./evil.sh"}), Ask),
            (&allowed, "exec_command", json!({"cmd": "echo a", "login": true}), Ask),
            (&denied, "fs_read", json!({"path": "a"}), Allow),
            (&denied, "fs_read", json!({"path": "sec/k"}), Deny),
            (&denied, "fs_read", json!({"path": "link/k"}), Deny),
            (&denied, "fs_read", json!({"path": absolute}), Deny),
            (&denied, "fs_read", json!({"path": "/elsewhere/sec/k"}), Deny),
            (&denied, "fs_read", json!({"path": "/elsewhere/k"}), Allow),
            (&denied, "fs_read", json!({"file": "sec/k"}), Deny),
            (&denied, "Read", json!({"file_path": "sec/k"}), Deny),
            (&denied, "fs_read", json!({"file": "a", "path": "sec/k"}), Deny),
            (&denied, "fs_glob", json!({"pattern": "sec/*"}), Deny),
            (&denied, "fs_move", json!({"from": "sec", "to": "z"}), Ask),
            (&denied, "fs_delete", json!({"path": "sec"}), Ask),
            (&denied, "apply_patch", json!({"input": patch}), Deny),
            (&denied, "bash", json!({"command": patch}), Deny),
            (&denied, "bash", json!({"command": typed}), Deny),
            (&denied, "Bash", json!({"command": "rm x"}), Deny),
            (&denied, "fs_write", json!({"path": ".git/hooks/x", "content": ""}), Ask),
            (&denied, "other", json!({"path": "sec/k"}), Deny),
        ];
        for (rules, name, arguments, want) in table {
            let got = said(rules, &home, name, arguments.clone());
            assert!(got == want, "{name} {arguments}: {got:?}, not {want:?}");
        }
    }

    #[test]
    fn a_rule_about_the_name_that_was_given_holds_and_a_category_too() {
        let place = std::env::temp_dir();
        let own = rules(Deny, vec![rule("Read", "*", Allow)]);
        assert_eq!(said(&own, &place, "Read", json!({"path": "x"})), Allow);
        assert_eq!(said(&own, &place, "fs_read", json!({"path": "x"})), Deny);
        let edits: PermissionRule =
            serde_json::from_value(json!({"tool": "*", "category": "edit", "policy": "deny"})).unwrap();
        let edits = rules(Allow, vec![edits]);
        assert_eq!(said(&edits, &place, "fs_write", json!({"path": "x", "content": ""})), Deny);
        assert_eq!(said(&edits, &place, "fs_read", json!({"path": "x"})), Allow);
    }

    #[test]
    fn without_a_directory_a_tool_of_ours_is_not_allowed() {
        let namesakes = Namesakes::default();
        let all = rules(Allow, Vec::new());
        let judged = Judged::by_name(("fs_read", object(json!({"path": "x"}))), None, (&namesakes, None));
        assert_eq!((judged.decide(&all), judged.explain(&all).decision), (Ask, Ask));
    }
}
