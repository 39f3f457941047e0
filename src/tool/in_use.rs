//! The skill that a turn uses, as far as it takes tools away.

use std::path::PathBuf;

use super::aliases::means;
use crate::permission::{Facts, Rules, Subject};
use crate::protocol::{PermissionConfig, PermissionPolicy, PermissionRule};

/// The name of the tool that loads skills.
pub const SKILL_TOOL: &str = "skill";

/// A skill that names its tools.
#[derive(Debug, Clone)]
pub struct SkillInUse {
    name: String,
    tools: Vec<Allowed>,
    /// What relative patterns of paths are relative to, without links.
    directory: PathBuf,
}

/// A tool that may be used.
#[derive(Debug, Clone)]
struct Allowed {
    /// As its file has it.
    entry: String,
    /// By a name that models use.
    tool: String,
    /// What its calls may be about. None: anything.
    only: Option<Rules>,
}

impl Allowed {
    fn of(entry: &str) -> Self {
        let (tool, pattern) = tool_and_pattern(entry);
        let only = pattern.map(|pattern| {
            let rule = PermissionRule {
                tool: "*".to_owned(),
                pattern: Some(pattern),
                policy: PermissionPolicy::Allow,
                category: None,
                annotations: None,
            };
            Rules::new(&PermissionConfig { default_policy: PermissionPolicy::Deny, rules: vec![rule] })
        });
        Self { entry: entry.to_owned(), tool: tool.to_owned(), only }
    }
}

/// The tool of an entry such as `Bash(git:*)`, and the pattern of its calls as rules have it: `git:*` is `git *`.
fn tool_and_pattern(entry: &str) -> (&str, Option<String>) {
    let Some((tool, rest)) = entry.split_once('(') else { return (entry, None) };
    let pattern = rest.strip_suffix(')').unwrap_or(rest).trim();
    let pattern = match pattern.strip_suffix(":*") {
        Some(front) => format!("{front} *"),
        None => pattern.to_owned(),
    };
    (tool.trim(), Some(pattern).filter(|pattern| pattern != "*"))
}

impl SkillInUse {
    /// A skill with the tools that its file names, as `allowedTools` of [`crate::protocol::SkillView`] has them, for a session that
    /// works in this directory, which is without links.
    pub fn new(name: String, tools: &[String], directory: PathBuf) -> Self {
        Self { name, tools: tools.iter().map(|entry| Allowed::of(entry)).collect(), directory }
    }

    /// Why a tool may not be used meanwhile. None: it may, as far as that is known without its arguments.
    pub fn why_not(&self, tool: &str) -> Option<String> {
        let may = tool == SKILL_TOOL || self.tools.iter().any(|allowed| means(&allowed.tool, tool));
        (!may).then(|| self.words())
    }

    /// Why a call may not be made meanwhile. None: it may.
    pub fn why_not_this(&self, facts: Facts<'_>, subject: &Subject) -> Option<String> {
        let facts = Facts { working_directory: Some(&self.directory), ..facts };
        let may = |allowed: &Allowed| {
            let rules = allowed.only.as_ref();
            means(&allowed.tool, facts.tool)
                && rules.is_none_or(|rules| rules.decide(facts, subject).policy == PermissionPolicy::Allow)
        };
        (facts.tool != SKILL_TOOL && !self.tools.iter().any(may)).then(|| self.words())
    }

    fn words(&self) -> String {
        let tools: Vec<&str> = self.tools.iter().map(|allowed| allowed.entry.as_str()).collect();
        format!(
            "the skill `{}` is in use, which allows only {}; call `{SKILL_TOOL}` with `done` when you are done with it",
            self.name,
            tools.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_held_against_what_a_call_is_about() {
        let skill = SkillInUse::new(
            "release".into(),
            &["Bash(git:*)".into(), "Bash(npm test)".into(), "Edit(docs/**)".into(), "Read".into(), "Grep(*)".into()],
            "/w".into(),
        );
        let command = |line: &str| Subject::Command(line.into());
        let path = |given: &str| {
            let resolved = Some(format!("/w/{given}").into());
            Subject::Paths(vec![crate::permission::PathSubject { below: false, given: given.into(), resolved }])
        };
        #[rustfmt::skip]
        let table = [
            ("bash", command("git log"), true),
            ("bash", command("git"), true),
            ("bash", command("git log && git diff"), true),
            ("bash", command("npm test"), true),
            ("bash", command("npm test --all"), false),
            ("bash", command("git log; rm x"), false),
            ("bash", command("gitk"), false),
            ("bash", command("echo $(rm x)"), false),
            ("fs_edit", path("docs/a/b.md"), true),
            ("fs_edit", path("src/a.rs"), false),
            ("fs_read", path("src/a.rs"), true),
            ("fs_grep", path("src"), true),
            ("fs_write", path("docs/a.md"), false),
            ("skill", Subject::None, true),
        ];
        for (tool, subject, may) in table {
            let facts = Facts::new(tool, None, None);
            assert_eq!(skill.why_not_this(facts, &subject).is_none(), may, "{tool} {subject:?}");
        }
        assert!(skill.why_not("bash").is_none() && skill.why_not("fs_write").is_some());
        assert!(
            skill.why_not("web").is_some_and(|why| why.contains("only Bash(git:*), Bash(npm test), Edit(docs/**)"))
        );
    }
}
