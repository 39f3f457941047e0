//! The rules of one configuration, prepared once, and the verdict on a call.

use std::path::Path;

use super::pattern::{Hit, Judged, Pattern};
use super::shell::{Line, Part};
use super::{PathSubject, Subject};
use crate::base::glob;
use crate::protocol::{
    CategoryFilter, PermissionConfig, PermissionPolicy, PermissionRule, ToolAnnotations, ToolCategory, ToolDefinition,
};

/// What rules want to know about a call beside its subject.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The tool's name.
    pub tool: &'a str,
    /// Its category. None: the tool is not known, and no rule about categories matches.
    pub category: Option<ToolCategory>,
    /// Its annotations. What they leave open matches no rule about it.
    pub annotations: Option<&'a ToolAnnotations>,
    /// What relative patterns of paths are relative to, without links. None: only absolute ones can allow.
    pub working_directory: Option<&'a Path>,
}

impl<'a> Facts<'a> {
    /// The facts of a tool; `definition` is None when there is none of that name.
    pub fn new(tool: &'a str, definition: Option<&'a ToolDefinition>, working_directory: Option<&'a Path>) -> Self {
        Self {
            tool,
            category: definition.map(|d| d.category.unwrap_or_default()),
            annotations: definition.and_then(|d| d.annotations.as_ref()),
            working_directory,
        }
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
}

/// The answer to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// What to do.
    pub policy: PermissionPolicy,
    /// Why.
    pub basis: Basis,
}

impl Verdict {
    fn strictness(self) -> u8 {
        match self.policy {
            PermissionPolicy::Allow => 0,
            PermissionPolicy::Ask => 1,
            PermissionPolicy::Deny => 2,
        }
    }

    /// The stricter of two; the first when they are alike.
    fn or_stricter(self, other: Self) -> Self {
        if other.strictness() > self.strictness() { other } else { self }
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
}

/// The rules of one configuration, prepared once.
#[derive(Debug, Clone)]
pub struct Rules {
    default_policy: PermissionPolicy,
    rules: Vec<Rule>,
}

/// Prepares the rules and decides. For one call; who decides often keeps [`Rules`].
pub fn decide(config: &PermissionConfig, facts: Facts<'_>, subject: &Subject) -> Verdict {
    Rules::new(config).decide(facts, subject)
}

impl Rules {
    /// Prepares a configuration. Cannot fail: every text is a pattern.
    pub fn new(config: &PermissionConfig) -> Self {
        let rule = |(index, rule): (usize, &PermissionRule)| Rule {
            index,
            tool: rule.tool.clone(),
            policy: rule.policy,
            category: rule.category.clone(),
            annotations: rule.annotations.clone(),
            pattern: rule.pattern.as_deref().filter(|p| !Pattern::is_everything(p)).map(Pattern::new),
        };
        Self { default_policy: config.default_policy, rules: config.rules.iter().enumerate().map(rule).collect() }
    }

    /// Decides about a call. Cannot fail.
    pub fn decide(&self, facts: Facts<'_>, subject: &Subject) -> Verdict {
        // The last rule first, and none behind one that always matches.
        let mut rules: Vec<&Rule> = Vec::new();
        for rule in self.rules.iter().rev().filter(|rule| rule.is_about(facts)) {
            rules.push(rule);
            if rule.pattern.is_none() {
                break;
            }
        }
        match subject {
            Subject::Command(command) => self.decide_line(&rules, &Line::parse(command)),
            Subject::Paths(paths) if !paths.is_empty() => {
                self.strictest(paths.iter().map(|path| self.decide_path(&rules, path, facts.working_directory)))
            }
            Subject::Paths(_) | Subject::None => self.first(&rules, |_, _| Hit::No),
        }
    }

    fn decide_line(&self, rules: &[&Rule], line: &Line) -> Verdict {
        let nothing = [Part::default()];
        let parts = if line.parts.is_empty() { &nothing[..] } else { &line.parts };
        let own = self.strictest(parts.iter().map(|part| {
            let judged = Judged::new(part);
            self.first(rules, |policy, pattern| match policy {
                PermissionPolicy::Allow if pattern.covers(&judged) => Hit::Certain,
                PermissionPolicy::Allow => Hit::No,
                PermissionPolicy::Ask | PermissionPolicy::Deny => pattern.hits(&judged),
            })
        }));
        line.shadows.iter().fold(own, |verdict, part| verdict.or_stricter(shadow_verdict(rules, part, verdict)))
    }

    fn decide_path(&self, rules: &[&Rule], path: &PathSubject, working_directory: Option<&Path>) -> Verdict {
        self.first(rules, |policy, pattern| {
            let matches = match policy {
                PermissionPolicy::Allow => pattern.covers_path(path, working_directory),
                PermissionPolicy::Ask | PermissionPolicy::Deny => pattern.hits_path(path, working_directory),
            };
            if matches { Hit::Certain } else { Hit::No }
        })
    }

    /// What the first rule says that matches for certain, made stricter by those before it that only may.
    fn first(&self, rules: &[&Rule], matches: impl Fn(PermissionPolicy, &Pattern) -> Hit) -> Verdict {
        let mut uncertain = None;
        let certain =
            rules.iter().find(|rule| match rule.pattern.as_ref().map_or(Hit::Certain, |p| matches(rule.policy, p)) {
                Hit::Certain => true,
                Hit::Possible => {
                    uncertain = uncertain.or(Some(rule.index));
                    false
                }
                Hit::No => false,
            });
        let verdict = match certain {
            Some(rule) => Verdict { policy: rule.policy, basis: Basis::Rule(rule.index) },
            None => Verdict { policy: self.default_policy, basis: Basis::Default },
        };
        match uncertain {
            Some(index) => {
                verdict.or_stricter(Verdict { policy: PermissionPolicy::Ask, basis: Basis::Uncertain(index) })
            }
            None => verdict,
        }
    }

    fn strictest(&self, verdicts: impl Iterator<Item = Verdict>) -> Verdict {
        verdicts.reduce(Verdict::or_stricter).unwrap_or(Verdict { policy: self.default_policy, basis: Basis::Default })
    }
}

/// A command that another one may run: what is denied stays denied, and nothing is allowed by it.
fn shadow_verdict(rules: &[&Rule], part: &Part, otherwise: Verdict) -> Verdict {
    let judged = Judged::new(part);
    let mut uncertain = None;
    for rule in rules {
        let Some(pattern) = &rule.pattern else { break };
        let hit = match rule.policy {
            PermissionPolicy::Allow if pattern.covers(&judged) => break,
            PermissionPolicy::Allow => Hit::No,
            PermissionPolicy::Ask | PermissionPolicy::Deny => pattern.hits(&judged),
        };
        match hit {
            Hit::Certain => return Verdict { policy: rule.policy, basis: Basis::Rule(rule.index) },
            Hit::Possible => uncertain = uncertain.or(Some(rule.index)),
            Hit::No => {}
        }
    }
    uncertain.map_or(otherwise, |index| Verdict { policy: PermissionPolicy::Ask, basis: Basis::Uncertain(index) })
}

impl Rule {
    fn is_about(&self, facts: Facts<'_>) -> bool {
        (self.tool == facts.tool || glob::matches(&self.tool, facts.tool))
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
