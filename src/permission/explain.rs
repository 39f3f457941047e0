//! Why a call is allowed, asked or denied: the verdict, and the verdict on each of its parts, in words.

use super::{Basis, FLOOR, Rules, Verdict};
use crate::protocol::{ExplainedPart, PermissionExplanation, PermissionPolicy, VerdictBasis};

/// Why a call is judged as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The verdict on the whole: the strictest of its parts'.
    pub verdict: Verdict,
    /// The commands of a command line, or the paths; one without a text for a call that has neither.
    pub parts: Vec<PartVerdict>,
}

/// The verdict on one part of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartVerdict {
    /// The command or the path, for people.
    pub text: String,
    /// It stands inside another command's arguments, and may run.
    pub hidden: bool,
    /// The verdict.
    pub verdict: Verdict,
}

impl Explanation {
    /// For callers: everything by name, and in words. `rules` are those that made it.
    pub fn describe(&self, rules: &Rules) -> PermissionExplanation {
        let parts = self.parts.iter().map(|part| {
            let (source, rule) = basis(part.verdict.basis);
            let reason = reason(part.verdict, &part.text, rules);
            ExplainedPart {
                part: part.text.clone(),
                hidden: part.hidden,
                decision: part.verdict.policy,
                source,
                rule,
                reason,
            }
        });
        let (source, rule) = basis(self.verdict.basis);
        // The part that the verdict on the whole comes from.
        let decisive = self
            .parts
            .iter()
            .find(|part| (part.verdict.policy, part.verdict.basis) == (self.verdict.policy, self.verdict.basis))
            .map_or("", |part| &part.text);
        PermissionExplanation {
            decision: self.verdict.policy,
            source,
            rule,
            reason: reason(self.verdict, decisive, rules),
            problem: None,
            mode: None,
            grant: None,
            session_id: None,
            agent: None,
            parts: parts.collect(),
        }
    }
}

fn basis(basis: Basis) -> (VerdictBasis, Option<usize>) {
    match basis {
        Basis::Rule(index) => (VerdictBasis::Rule, Some(index)),
        Basis::Uncertain(index) => (VerdictBasis::Uncertain, Some(index)),
        Basis::Default => (VerdictBasis::Default, None),
        Basis::Floor(_) => (VerdictBasis::Floor, None),
    }
}

fn reason(verdict: Verdict, part: &str, rules: &Rules) -> String {
    let what = if part.is_empty() { "the call".to_owned() } else { format!("`{part}`") };
    let does = match verdict.policy {
        PermissionPolicy::Allow => "allows",
        PermissionPolicy::Ask => "asks about",
        PermissionPolicy::Deny => "denies",
    };
    match verdict.basis {
        Basis::Rule(index) => format!("rule {index} ({}) {does} {what}", rules.shown(index)),
        Basis::Uncertain(index) => {
            format!(
                "rule {index} ({}) may be about {what}: what it runs cannot be known beforehand",
                rules.shown(index)
            )
        }
        Basis::Default => {
            let default = match rules.default_policy() {
                PermissionPolicy::Allow => "allow",
                PermissionPolicy::Ask => "ask",
                PermissionPolicy::Deny => "deny",
            };
            format!("no rule is about {what}; the default is {default}")
        }
        Basis::Floor(entry) => FLOOR
            .get(entry)
            .map_or_else(String::new, |entry| format!("{what} is never allowed ({}): {}", entry.name, entry.reason)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::permission::tests::{ALLOW, ASK, DENY, rule};
    use crate::permission::{Facts, Floor, Subject};
    use crate::protocol::PermissionConfig;

    #[test]
    fn each_part_is_told_with_its_reason() {
        let rules = vec![rule("bash", "git *", ALLOW), rule("bash", "rm *", DENY), rule("fs_*", "", ALLOW)];
        let rules = Rules::new(&PermissionConfig { default_policy: ASK, rules }).over(Arc::new(Floor::default()));
        let explain =
            |tool: &str, subject: Subject| rules.explain(Facts::new(tool, None, None), &subject).describe(&rules);
        let command = |line: &str| explain("bash", Subject::Command(line.into()));

        let said = command("git status; sudo rm x; make");
        assert_eq!((said.decision, said.source, said.rule), (DENY, VerdictBasis::Rule, Some(1)));
        assert_eq!(said.reason, "rule 1 (tool \"bash\", pattern \"rm *\") denies `rm x`");
        let parts: Vec<_> = said.parts.iter().map(|p| (p.part.as_str(), p.hidden, p.decision, p.rule)).collect();
        let want = [
            ("git status", false, ALLOW, Some(0)),
            ("sudo rm x", false, ASK, None),
            ("make", false, ASK, None),
            ("rm x", true, DENY, Some(1)),
        ];
        assert_eq!(parts, want);

        #[rustfmt::skip]
        let table = [
            ("git log", ALLOW, VerdictBasis::Rule, "rule 0 (tool \"bash\", pattern \"git *\") allows `git log`"),
            ("make", ASK, VerdictBasis::Default, "no rule is about `make`; the default is ask"),
            ("$X y", ASK, VerdictBasis::Uncertain, "rule 1 (tool \"bash\", pattern \"rm *\") may be about `$X y`: what it runs cannot be known beforehand"),
            ("git log; rm -rf /", DENY, VerdictBasis::Floor, "`rm -rf /` is never allowed (remove-root): it would remove the file system, a home directory or a system directory as a whole"),
        ];
        for (line, decision, source, reason) in table {
            let said = command(line);
            assert_eq!((said.decision, said.source, said.reason.as_str()), (decision, source, reason), "{line}");
        }
        let said = explain("fs_list", Subject::None);
        assert_eq!((said.decision, said.reason.as_str()), (ALLOW, "rule 2 (tool \"fs_*\") allows the call"));
    }

    #[test]
    fn what_is_explained_is_what_is_decided() {
        let config = PermissionConfig {
            default_policy: ASK,
            rules: vec![rule("bash", "ls *", ALLOW), rule("bash", "* x", DENY)],
        };
        let rules = Rules::new(&config);
        for line in ["ls", "ls x", "make", "ls; $X", "", "sh -c 'a x'", "ls '"] {
            let (facts, subject) = (Facts::new("bash", None, None), Subject::Command(line.into()));
            assert_eq!(rules.explain(facts, &subject).verdict, rules.decide(facts, &subject), "{line}");
        }
    }
}
