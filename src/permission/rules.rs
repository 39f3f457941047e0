//! The rules of one configuration, prepared once, and the verdict on a call.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use super::explain::{Explanation, PartVerdict};
use super::pattern::{Head, Hit, Judged, Pattern};
use super::shell::{Line, Part};
use super::{Floor, FloorHit, PathSubject, Subject};
use crate::base::glob;
use crate::protocol::{
    CategoryFilter, PermissionConfig, PermissionPolicy, PermissionRule, ToolAnnotations, ToolCategory, ToolDefinition,
};

/// Our tools that run commands as `bash` does: a rule about that is about them too.
const SHELLS_ALIKE: [&str; 2] = ["exec_command", "write_stdin"];

/// Our tools that take a patch where a command is expected, and apply it themselves: then they are judged by paths.
const PATCHING_SHELLS: [&str; 2] = ["bash", "exec_command"];

/// What our tool for patches says of itself.
static PATCHES: LazyLock<ToolAnnotations> =
    LazyLock::new(|| ToolAnnotations { destructive: Some(true), ..Default::default() });

/// What rules want to know about a call beside its subject.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The tool's name.
    pub tool: &'a str,
    /// The names of our other tools that do the like: a rule about one of them is about this one too.
    pub like: &'a [&'a str],
    /// Its category. None: the tool is not known, and no rule about categories matches.
    pub category: Option<ToolCategory>,
    /// Its annotations. What they leave open matches no rule about it.
    pub annotations: Option<&'a ToolAnnotations>,
    /// What relative patterns of paths are relative to, without links. None: only absolute ones can allow.
    pub working_directory: Option<&'a Path>,
    /// Where its command would start. None: nobody knows; in the working directory, or below it. A relative path is as the
    /// caller named it.
    pub place: Option<&'a Path>,
}

impl<'a> Facts<'a> {
    /// The facts of a tool; `definition` is None when there is none of that name.
    pub fn new(tool: &'a str, definition: Option<&'a ToolDefinition>, working_directory: Option<&'a Path>) -> Self {
        Self {
            tool,
            like: if SHELLS_ALIKE.contains(&tool) { &["bash"] } else { &[] },
            category: definition.map(|d| d.category.unwrap_or_default()),
            annotations: definition.and_then(|d| d.annotations.as_ref()),
            working_directory,
            place: None,
        }
    }

    /// The same for a command that would start there.
    #[must_use]
    pub fn at(self, place: Option<&'a Path>) -> Self {
        Self { place, ..self }
    }

    /// The same for a tool that does what these do, when there are any.
    #[must_use]
    pub fn like(self, tools: &'a [&'a str]) -> Self {
        if tools.is_empty() { self } else { Self { like: tools, ..self } }
    }

    /// What a patch that was typed into a shell is besides: a call of our tool for patches.
    fn as_patch(self, subject: &Subject) -> Option<Self> {
        let typed = PATCHING_SHELLS.contains(&self.tool) && matches!(subject, Subject::Paths(_));
        let (category, annotations) = (Some(ToolCategory::Edit), Some(&*PATCHES));
        typed.then_some(Self { tool: "apply_patch", like: &[], category, annotations, ..self })
    }

    /// Whether a command among its arguments is one for a shell, and not a word of its own.
    fn runs_commands(&self) -> bool {
        const SHELL_TOOLS: [&str; 3] = ["bash", "shell", "local_shell"];
        self.category == Some(ToolCategory::Execute)
            || SHELL_TOOLS.contains(&self.tool)
            || SHELLS_ALIKE.contains(&self.tool)
    }
}

/// What a verdict rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// This rule, by its place in the configuration.
    Rule(usize),
    /// No rule matched: the default policy.
    Default,
    /// This rule might match, depending on what only the shell will know; so it is asked.
    Uncertain(usize),
    /// This entry of the floor, by its place there: no rule was looked at.
    Floor(usize),
}

/// The answer to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// What to do.
    pub policy: PermissionPolicy,
    /// Why.
    pub basis: Basis,
    /// A deny rule may match, depending on what only the shell will know.
    pub may_be_denied: bool,
}

impl Verdict {
    fn new(policy: PermissionPolicy, basis: Basis) -> Self {
        Self { policy, basis, may_be_denied: false }
    }

    fn strictness(self) -> u8 {
        match (self.policy, self.basis) {
            (PermissionPolicy::Allow, _) => 0,
            (PermissionPolicy::Ask, Basis::Rule(_) | Basis::Default | Basis::Floor(_)) => 1,
            // Of two questions the one that says more.
            (PermissionPolicy::Ask, Basis::Uncertain(_)) => 2,
            (PermissionPolicy::Deny, _) => 3,
        }
    }

    /// The stricter of two; the first when they are alike.
    fn or_stricter(self, other: Self) -> Self {
        let stricter = if other.strictness() > self.strictness() { other } else { self };
        Self { may_be_denied: self.may_be_denied || other.may_be_denied, ..stricter }
    }
}

#[derive(Debug, Clone)]
struct Rule {
    index: usize,
    tool: String,
    policy: PermissionPolicy,
    category: Option<CategoryFilter>,
    annotations: Option<ToolAnnotations>,
    /// None: the rule is about the whole tool.
    pattern: Option<Pattern>,
    /// It allows the whole tool by a pattern, `*`, and no pattern allows what nobody can read.
    only_readable: bool,
    /// Its tool is a name and no glob.
    literal: bool,
    /// The first word of the commands that it can be about.
    head: Head,
}

/// A rule about the call's tool. Small, so that many are gone through quickly.
#[derive(Clone, Copy)]
struct Candidate<'r> {
    head: Head,
    rule: &'r Rule,
}

/// The rules of one configuration, prepared once.
#[derive(Debug, Clone)]
pub struct Rules {
    default_policy: PermissionPolicy,
    rules: Vec<Rule>,
    floor: Option<Arc<Floor>>,
}

/// Prepares the rules and decides. For one call; who decides often keeps [`Rules`].
pub fn decide(config: &PermissionConfig, facts: Facts<'_>, subject: &Subject) -> Verdict {
    Rules::new(config).decide(facts, subject)
}

impl Rules {
    /// Prepares a configuration. Cannot fail: every text is a pattern.
    pub fn new(config: &PermissionConfig) -> Self {
        let rule = |(index, rule): (usize, &PermissionRule)| {
            let pattern = rule.pattern.as_deref().filter(|p| !Pattern::is_everything(p)).map(Pattern::new);
            let allows = rule.policy == PermissionPolicy::Allow;
            Rule {
                index,
                literal: !rule.tool.contains(['*', '?']),
                tool: rule.tool.clone(),
                policy: rule.policy,
                category: rule.category.clone(),
                annotations: rule.annotations.clone(),
                only_readable: allows && pattern.is_none() && rule.pattern.is_some(),
                head: pattern.as_ref().map_or(0, |pattern| pattern.head(allows)),
                pattern,
            }
        };
        let rules = config.rules.iter().enumerate().map(rule).collect();
        Self { default_policy: config.default_policy, rules, floor: None }
    }

    /// The same over a floor: what that denies, no rule lifts.
    #[must_use]
    pub fn over(self, floor: Arc<Floor>) -> Self {
        Self { floor: Some(floor), ..self }
    }

    /// Decides about a call. Cannot fail.
    pub fn decide(&self, facts: Facts<'_>, subject: &Subject) -> Verdict {
        self.judge(facts, subject, None)
    }

    /// Decides, and says about each part of the call why.
    pub fn explain(&self, facts: Facts<'_>, subject: &Subject) -> Explanation {
        let mut parts = Vec::new();
        let verdict = self.judge(facts, subject, Some(&mut parts));
        Explanation { verdict, parts }
    }

    /// What the rules name below a directory that a tool may look around in: what they deny it, and with `asks` what
    /// they want to be asked about. None: they name nothing.
    pub fn hidden(&self, facts: Facts<'_>, asks: bool) -> Option<Hidden> {
        let mut rules = Vec::new();
        for rule in self.rules.iter().rev().filter(|rule| rule.is_about(facts)) {
            rules.push(rule.clone());
            if rule.pattern.is_none() {
                break;
            }
        }
        let hidden = Hidden { rules, asks, working_directory: facts.working_directory.map(Path::to_owned) };
        hidden.rules.iter().any(|rule| rule.pattern.is_some() && hidden.stops(rule)).then_some(hidden)
    }

    /// The policy of a rule, by its place in the configuration.
    pub fn policy_of(&self, index: usize) -> Option<PermissionPolicy> {
        self.rules.get(index).map(|rule| rule.policy)
    }

    /// A rule in words: `tool "bash", pattern "rm *"`.
    pub(super) fn shown(&self, index: usize) -> String {
        let Some(rule) = self.rules.get(index) else { return String::new() };
        match &rule.pattern {
            Some(pattern) => format!("tool {:?}, pattern {:?}", rule.tool, pattern.raw()),
            None => format!("tool {:?}", rule.tool),
        }
    }

    /// What happens when no rule matches.
    pub(super) fn default_policy(&self) -> PermissionPolicy {
        self.default_policy
    }

    /// Of a call that is two things at once the stricter verdict counts.
    fn judge(&self, facts: Facts<'_>, subject: &Subject, told: Option<&mut Vec<PartVerdict>>) -> Verdict {
        let Some(patch) = facts.as_patch(subject) else { return self.judge_as(facts, subject, told) };
        let (own, other) = (self.judge_as(facts, subject, None), self.judge_as(patch, subject, None));
        let decisive = if other.strictness() > own.strictness() { patch } else { facts };
        let may_be_denied = own.may_be_denied || other.may_be_denied;
        Verdict { may_be_denied, ..self.judge_as(decisive, subject, told) }
    }

    fn judge_as(&self, facts: Facts<'_>, subject: &Subject, told: Option<&mut Vec<PartVerdict>>) -> Verdict {
        // The last rule first, and none behind one that always matches.
        let mut rules: Vec<Candidate<'_>> = Vec::with_capacity(self.rules.len());
        for rule in self.rules.iter().rev().filter(|rule| rule.is_about(facts)) {
            rules.push(Candidate { head: rule.head, rule });
            if rule.pattern.is_none() && !rule.only_readable {
                break;
            }
        }
        let mut told = Told(told);
        match subject {
            Subject::Command(command) => {
                let line = Line::parse(command);
                let floor = self.floor.as_ref().filter(|_| facts.runs_commands());
                let known = facts.place.filter(|place| place.is_absolute());
                let (place, sure) = (known.or(facts.working_directory), known.is_some());
                let hit = floor.and_then(|f| f.check_line((command, &line), place, sure));
                match hit {
                    Some(hit) => floored(hit, &mut told),
                    None => self.decide_line(&rules, &line, &mut told),
                }
            }
            Subject::Paths(paths) if !paths.is_empty() => {
                let hit = self.floor.as_ref().and_then(|f| f.check(subject, facts.working_directory));
                match hit {
                    Some(hit) => floored(hit, &mut told),
                    None => self.strictest(paths.iter().map(|path| {
                        let verdict = self.decide_path(&rules, path, facts.working_directory);
                        told.hears(verdict, false, || path.given.clone())
                    })),
                }
            }
            Subject::Paths(_) | Subject::None => {
                told.hears(self.first(&rules, true, |_| true, |_, _| Hit::No), false, String::new)
            }
        }
    }

    fn decide_line(&self, rules: &[Candidate<'_>], line: &Line, told: &mut Told<'_>) -> Verdict {
        let nothing = [Part::default()];
        let parts = if line.parts.is_empty() { &nothing[..] } else { &line.parts };
        let mut hidden = Vec::new();
        let own = self.strictest(parts.iter().map(|part| {
            let judged = Judged::new(part);
            let verdict = self.first(
                rules,
                !part.is_unreadable(),
                |head| judged.may_be(head),
                |policy, pattern| match policy {
                    PermissionPolicy::Allow if pattern.covers(&judged) => Hit::Certain,
                    PermissionPolicy::Allow => Hit::No,
                    PermissionPolicy::Ask | PermissionPolicy::Deny => pattern.hits(&judged),
                },
            );
            if !part.hides.is_empty() {
                // A rule that spells how a command is run has said so about all that the command runs.
                let spelt = match verdict {
                    Verdict { policy: PermissionPolicy::Allow, basis: Basis::Rule(index), .. } => Some(index),
                    Verdict { .. } => None,
                };
                hidden.extend(part.hides.iter().map(|hidden| (later(rules, spelt), hidden)));
            }
            told.hears(verdict, false, || part.shown())
        }));
        let hidden = hidden.into_iter().chain(line.shadows.iter().map(|part| (rules, part)));
        hidden.fold(own, |verdict, (rules, part)| match shadow_verdict(rules, part) {
            Some(shadow) => verdict.or_stricter(told.hears(shadow, true, || part.shown())),
            None => verdict,
        })
    }

    fn decide_path(&self, rules: &[Candidate<'_>], path: &PathSubject, working_directory: Option<&Path>) -> Verdict {
        self.first(
            rules,
            true,
            |_| true,
            |policy, pattern| match policy {
                PermissionPolicy::Allow if pattern.covers_path(path, working_directory) => Hit::Certain,
                PermissionPolicy::Allow => Hit::No,
                PermissionPolicy::Ask | PermissionPolicy::Deny => pattern.hits_path(path, working_directory),
            },
        )
    }

    /// What the first rule says that matches for certain, made stricter by those before it that only may.
    fn first(
        &self,
        rules: &[Candidate<'_>],
        readable: bool,
        may_be: impl Fn(Head) -> bool,
        matches: impl Fn(PermissionPolicy, &Pattern) -> Hit,
    ) -> Verdict {
        let mut unsure = Unsure::default();
        let certain = rules.iter().filter(|c| may_be(c.head)).map(|c| c.rule).find(|rule| {
            let whole = if readable || !rule.only_readable { Hit::Certain } else { Hit::No };
            match rule.pattern.as_ref().map_or(whole, |p| matches(rule.policy, p)) {
                Hit::Certain => true,
                Hit::Possible => {
                    unsure.add(rule);
                    false
                }
                Hit::No => false,
            }
        });
        let verdict = match certain {
            Some(rule) => Verdict::new(rule.policy, Basis::Rule(rule.index)),
            None => Verdict::new(self.default_policy, Basis::Default),
        };
        unsure.verdict().map_or(verdict, |unsure| verdict.or_stricter(unsure))
    }

    fn strictest(&self, verdicts: impl Iterator<Item = Verdict>) -> Verdict {
        verdicts.reduce(Verdict::or_stricter).unwrap_or(Verdict::new(self.default_policy, Basis::Default))
    }
}

/// What the rules deny a tool, or want to be asked about, by name.
#[derive(Debug, Clone)]
pub struct Hidden {
    /// The last rule first.
    rules: Vec<Rule>,
    asks: bool,
    working_directory: Option<PathBuf>,
}

impl Hidden {
    /// Whether a path, absolute and without links, is named.
    pub fn names(&self, path: &Path) -> bool {
        let subject = PathSubject { given: path.display().to_string(), resolved: Some(path.to_owned()), below: false };
        let directory = self.working_directory.as_deref();
        let last = self.rules.iter().find(|rule| match (&rule.pattern, rule.policy) {
            (None, _) => true,
            (Some(pattern), PermissionPolicy::Allow) => pattern.covers_path(&subject, directory),
            (Some(pattern), PermissionPolicy::Ask | PermissionPolicy::Deny) => {
                pattern.hits_path(&subject, directory) == Hit::Certain
            }
        });
        last.is_some_and(|rule| rule.pattern.is_some() && self.stops(rule))
    }

    fn stops(&self, rule: &Rule) -> bool {
        match rule.policy {
            PermissionPolicy::Allow => false,
            PermissionPolicy::Ask => self.asks,
            PermissionPolicy::Deny => true,
        }
    }
}

/// Who wants to hear about the parts, when there is somebody.
struct Told<'t>(Option<&'t mut Vec<PartVerdict>>);

impl Told<'_> {
    fn hears(&mut self, verdict: Verdict, hidden: bool, text: impl FnOnce() -> String) -> Verdict {
        if let Some(parts) = &mut self.0 {
            parts.push(PartVerdict { text: text(), hidden, verdict });
        }
        verdict
    }
}

/// Those of the rules, the last first, that stand behind this one.
fn later<'a, 'r>(rules: &'a [Candidate<'r>], index: Option<usize>) -> &'a [Candidate<'r>] {
    let end = index.and_then(|index| rules.iter().position(|candidate| candidate.rule.index == index));
    &rules[..end.unwrap_or(rules.len())]
}

fn floored(hit: FloorHit, told: &mut Told<'_>) -> Verdict {
    let verdict = Verdict::new(PermissionPolicy::Deny, Basis::Floor(hit.entry));
    told.hears(verdict, false, || hit.part)
}

/// A command that another one may run: what is denied stays denied, and nothing is allowed by it. None: it
/// changes nothing.
fn shadow_verdict(rules: &[Candidate<'_>], part: &Part) -> Option<Verdict> {
    let judged = Judged::new(part);
    let mut unsure = Unsure::default();
    for rule in rules.iter().filter(|candidate| judged.may_be(candidate.head)).map(|candidate| candidate.rule) {
        let Some(pattern) = &rule.pattern else { break };
        let hit = match rule.policy {
            PermissionPolicy::Allow if pattern.covers(&judged) => break,
            PermissionPolicy::Allow => Hit::No,
            PermissionPolicy::Ask | PermissionPolicy::Deny => pattern.hits(&judged),
        };
        match hit {
            Hit::Certain => return Some(Verdict::new(rule.policy, Basis::Rule(rule.index))),
            Hit::Possible => unsure.add(rule),
            Hit::No => {}
        }
    }
    unsure.verdict()
}

/// Rules that may match.
#[derive(Default)]
struct Unsure {
    /// The last of them, in the order of the configuration.
    last: Option<usize>,
    denies: bool,
}

impl Unsure {
    fn add(&mut self, rule: &Rule) {
        self.last = self.last.or(Some(rule.index));
        self.denies |= rule.policy == PermissionPolicy::Deny;
    }

    fn verdict(&self) -> Option<Verdict> {
        let basis = Basis::Uncertain(self.last?);
        Some(Verdict { policy: PermissionPolicy::Ask, basis, may_be_denied: self.denies })
    }
}

impl Rule {
    fn is_about(&self, facts: Facts<'_>) -> bool {
        let is_named = |tool: &str| self.tool == tool || (!self.literal && glob::matches(&self.tool, tool));
        (is_named(facts.tool) || facts.like.iter().any(|tool| is_named(tool)))
            && self.category.as_ref().is_none_or(|filter| facts.category.is_some_and(|c| names(filter, c)))
            && self.annotations.as_ref().is_none_or(|wanted| {
                let given = facts.annotations.cloned().unwrap_or_default();
                (wanted.title.is_none() || wanted.title == given.title)
                    && (wanted.destructive.is_none() || wanted.destructive == given.destructive)
                    && (wanted.read_only.is_none() || wanted.read_only == given.read_only)
            })
    }
}

fn names(filter: &CategoryFilter, category: ToolCategory) -> bool {
    match filter {
        CategoryFilter::One(one) => *one == category,
        CategoryFilter::Any(any) => any.contains(&category),
    }
}
