//! Command lines of any text: nothing panics, nothing takes long, and the parts of the machinery agree.
//!
//! The input is the command line itself.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use simse::permission::{Facts, Floor, Grants, PathSubject, Rules, Subject, Verdict, command_parts};
use simse::protocol::{GrantId, PermissionConfig, PermissionPolicy, PermissionRule};

/// Rules of one kind each: everything denied, some allowed, some denied.
pub(super) struct Sets {
    nothing: Rules,
    pub(super) some: Rules,
    pub(super) not_some: Rules,
}

pub(super) static SETS: LazyLock<Sets> = LazyLock::new(|| {
    use PermissionPolicy::{Allow, Ask, Deny};
    let rules = |default_policy, patterns: &[&str], policy| {
        let rule = |pattern: &&str| PermissionRule {
            tool: "bash".to_owned(),
            pattern: Some((*pattern).to_owned()),
            policy,
            category: None,
            annotations: None,
        };
        Rules::new(&PermissionConfig { default_policy, rules: patterns.iter().map(rule).collect() })
    };
    let allowed = [
        "ls *", "echo *", "cat *", "true", "git *", "test *", "cd *", "sed *", "awk *", "find *", "xargs *", "sh *",
        "env *",
    ];
    Sets {
        nothing: rules(Allow, &["*"], Deny),
        some: rules(Ask, &allowed, Allow),
        not_some: rules(Allow, &["rm *", "git push *", "* > *.git/hooks/*"], Deny),
    }
});

/// What is decided about a command line.
pub(super) fn verdict(rules: &Rules, line: &str) -> Verdict {
    rules.decide(facts(), &Subject::Command(line.to_owned()))
}

fn facts() -> Facts<'static> {
    Facts::new("bash", None, Some(Path::new("/work/tree")))
}

pub(super) fn strictness(policy: PermissionPolicy) -> u8 {
    match policy {
        PermissionPolicy::Allow => 0,
        PermissionPolicy::Ask => 1,
        PermissionPolicy::Deny => 2,
    }
}

/// The property of the target `command`.
pub fn holds(data: &[u8]) {
    let line = String::from_utf8_lossy(data);
    let subject = Subject::Command(line.to_string());
    let sets = &*SETS;
    assert_eq!(sets.nothing.decide(facts(), &subject).policy, PermissionPolicy::Deny, "{line:?}");
    for rules in [&sets.some, &sets.not_some] {
        let explained = rules.explain(facts(), &subject);
        assert_eq!(explained.verdict, rules.decide(facts(), &subject), "{line:?}");
        let strictest = explained.parts.iter().map(|part| strictness(part.verdict.policy)).max();
        assert_eq!(strictest, Some(strictness(explained.verdict.policy)), "{line:?}: {explained:?}");
    }
    assert!(command_parts(&line).len() <= 300, "{line:?}");
    granted(&line, &subject);
    below_the_floor(&line, &subject);
    beside(&line);
    as_a_path(&line);
}

/// What was granted is granted; and never what stands beside it.
fn granted(line: &str, subject: &Subject) {
    let mut grants = Grants::default();
    let covers = |grants: &Grants, line: String| {
        Grants::covering(&[grants], ("bash", &Subject::Command(line), None), 1).is_some()
    };
    assert!(!covers(&grants, line.to_owned()), "{line:?}");
    grants.add(&GrantId::generate(), ("bash", subject, None), None);
    assert!(covers(&grants, line.to_owned()), "{line:?} is granted and asked again");
    // On a line of its own a further command begins, if the line before is whole.
    for more in [format!("{line}\nshutdown-now x"), format!("shutdown-now x; {line}")] {
        if !line.contains("shutdown-now") {
            assert!(!covers(&grants, more.clone()), "{more:?} is granted by {line:?}");
        }
    }
}

/// The floor denies over every rule.
fn below_the_floor(line: &str, subject: &Subject) {
    let floor = Floor::new(vec![PathBuf::from("/data")], Some(PathBuf::from("/home/u")));
    let hit = floor.check(subject, Some(Path::new("/work/tree")));
    if let Some(hit) = hit {
        let over = SETS.some.clone().over(Arc::new(floor));
        assert_eq!(verdict(&over, line).policy, PermissionPolicy::Deny, "{line:?}: {hit:?}");
    }
}

/// What is denied alone is denied behind anything that is whole by itself.
fn beside(line: &str) {
    const WHOLE: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ._/-=;&|:,%@+";
    if !line.chars().all(|c| WHOLE.contains(c)) {
        return;
    }
    for sign in ["\n", " ;", " &&", "|", "&"] {
        let both = format!("{line}{sign} rm x");
        let got = verdict(&SETS.not_some, &both);
        assert!(got.policy != PermissionPolicy::Allow, "{both:?} is allowed");
        if !command_parts(&both).iter().any(|part| part.contains('…')) {
            assert_eq!(got.policy, PermissionPolicy::Deny, "{both:?}");
        }
    }
}

/// The same text as a path: no panic, and a whole-tool rule decides.
fn as_a_path(line: &str) {
    let path = PathSubject {
        given: line.to_owned(),
        resolved: Some(Path::new("/work/tree").join(line)),
        below: line.len().is_multiple_of(2),
    };
    let subject = Subject::Paths(vec![path]);
    for rules in [&SETS.some, &SETS.not_some] {
        let _whatever = rules.decide(facts(), &subject);
    }
    assert_eq!(SETS.nothing.decide(facts(), &subject).policy, PermissionPolicy::Deny, "{line:?}");
}
