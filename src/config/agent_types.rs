//! Types of sub-agents: which model works for which kind of task, and how much it thinks.
//!
//! Some are always there; the configuration changes them, and adds others. What a type leaves open is as with whoever starts the
//! sub-agent, and what a call says goes before both. Whether a model is there is seen when it is used.

use serde::Deserialize;

use crate::base::limit;
use crate::protocol::Reasoning;

/// A type of sub-agents.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentType {
    /// Its name.
    pub name: String,
    /// What it is good for.
    #[serde(default)]
    pub description: Option<String>,
    /// Its model. None: that of whoever starts it.
    #[serde(default)]
    pub model: Option<String>,
    /// How much it thinks. None: as much as whoever starts it.
    #[serde(default)]
    pub reasoning: Option<Reasoning>,
    /// Its tools, of those of whoever starts it; `*`: all. None: those that only look.
    #[serde(default)]
    pub tools: Option<Vec<String>>,
}

/// Name, what it is good for, how much it thinks, and whether it has all tools.
const ALWAYS: [(&str, &str, Reasoning, bool); 5] = [
    ("default", "general tasks", Reasoning::High, false),
    ("explorer", "browsing, searching, exploring code", Reasoning::Medium, false),
    ("worker", "coding tasks", Reasoning::High, true),
    ("research", "deep analysis, complex questions", Reasoning::High, false),
    ("simple", "trivial tasks, quick lookups", Reasoning::Medium, false),
];
/// The type whose model is the one for small work, where there is one.
const SMALL: &str = "simple";

impl AgentType {
    /// All types: those that are always there, as the configuration changes them, and those that it adds.
    pub fn all(configured: &[Self], small_model: Option<&str>) -> Vec<Self> {
        let always = ALWAYS.map(|(name, description, reasoning, works)| Self {
            name: name.to_owned(),
            description: Some(description.to_owned()),
            model: small_model.filter(|_| name == SMALL).map(str::to_owned),
            reasoning: Some(reasoning),
            tools: works.then(|| vec!["*".to_owned()]),
        });
        let mut all = Vec::from(always);
        for given in configured {
            match all.iter_mut().find(|known| known.name == given.name) {
                Some(known) => known.change(given),
                None => all.push(given.clone()),
            }
        }
        all
    }

    fn change(&mut self, given: &Self) {
        let Self { name: _, description, model, reasoning, tools } = given.clone();
        self.description = description.or(self.description.take());
        self.model = model.or(self.model.take());
        self.reasoning = reasoning.or(self.reasoning);
        self.tools = tools.or(self.tools.take());
    }

    /// What is wrong with a list of them: which one, its member, and what was expected.
    pub fn fault(all: &[Self]) -> Option<(usize, &'static str, String)> {
        if all.len() > limit::AGENT_TYPES_MAX {
            let expected = format!("at most {} types, got {}", limit::AGENT_TYPES_MAX, all.len());
            return Some((limit::AGENT_TYPES_MAX, "name", expected));
        }
        all.iter().enumerate().find_map(|(at, kind)| {
            let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
            let chars = limit::SUBAGENT_NAME_CHARS_MAX;
            if !(1..=chars).contains(&kind.name.chars().count()) || !kind.name.chars().all(allowed) {
                let expected = format!("1 to {chars} letters, digits, `_`, `-` or `.`, got `{}`", kind.name);
                return Some((at, "name", expected));
            }
            if all[..at].iter().any(|other| other.name == kind.name) {
                return Some((at, "name", format!("a name of its own, got `{}` once more", kind.name)));
            }
            let long = kind.description.as_ref().is_some_and(|text| text.len() > limit::AGENT_WORD_BYTES_MAX);
            if long {
                return Some((at, "description", format!("at most {} bytes", limit::AGENT_WORD_BYTES_MAX)));
            }
            let named = kind.model.as_ref().is_some_and(|model| !model.contains('/'));
            if named {
                return Some((at, "model", "`provider/name`".to_owned()));
            }
            let many = kind.tools.as_ref().is_some_and(|tools| tools.len() > limit::TOOL_ENTRIES_MAX);
            many.then(|| (at, "tools", format!("at most {} names", limit::TOOL_ENTRIES_MAX)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> AgentType {
        toml::from_str(text).expect("one")
    }

    #[test]
    fn what_is_configured_goes_over_what_is_always_there() {
        let given =
            [read("name = 'worker'\nmodel = 'a/b'"), read("name = 'mine'\nreasoning = 'low'\ntools = ['fs_read']")];
        let all = AgentType::all(&given, Some("s/s"));
        let names: Vec<&str> = all.iter().map(|kind| kind.name.as_str()).collect();
        assert_eq!(names, ["default", "explorer", "worker", "research", "simple", "mine"]);
        let worker = &all[2];
        assert_eq!((worker.model.as_deref(), worker.reasoning), (Some("a/b"), Some(Reasoning::High)));
        assert_eq!(worker.tools, Some(vec!["*".to_owned()]));
        assert_eq!((all[4].model.as_deref(), all[0].model.as_deref()), (Some("s/s"), None));
        assert_eq!((&all[5], AgentType::fault(&given)), (&given[1], None));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let kind = |name: &str| AgentType { name: name.into(), ..AgentType::default() };
        #[rustfmt::skip]
        let table = [
            (vec![kind("")], (0, "name")), (vec![kind("a b")], (0, "name")), (vec![kind("a"), kind("a")], (1, "name")),
            (vec![kind("a"), AgentType { model: Some("b".into()), ..kind("b") }], (1, "model")),
            (vec![AgentType { description: Some("x".repeat(3_000)), ..kind("b") }], (0, "description")),
        ];
        for (given, want) in table {
            assert_eq!(AgentType::fault(&given).map(|(at, member, _)| (at, member)), Some(want), "{given:?}");
        }
        assert!(toml::from_str::<AgentType>("name = 'a'\nmodle = 'x/y'").is_err());
    }
}
