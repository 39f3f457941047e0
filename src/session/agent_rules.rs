//! What the agent of a session may not do, whatever the rules allow: its gates and its own rules, held against each call.
//!
//! They only take away. The tools that are not its own are not in its registry at all; here is what shows only in a call: a patch
//! that is typed into a shell, a target of a delegation, a rule about a command or a path.

use std::sync::Arc;

use super::{Terms, Workbench};
use crate::permission::{Facts, Hidden, Rules, Subject};
use crate::protocol::{
    AgentDefinition, AgentGate, ErrorBody, ErrorCode, PermissionMode, PermissionPolicy, ToolCategory,
};
use crate::store::SessionRow;
use crate::tool::Arguments;

/// The members in which calls of the category `subagent` name the agent that they are for.
const TARGETS: [&str; 4] = ["agent", "agent_type", "agentType", "target_agent_id"];

/// The gates and rules of an agent, prepared for a turn.
#[derive(Debug, Clone)]
pub(super) struct AgentRules {
    definition: Arc<AgentDefinition>,
    rules: Option<Rules>,
}

/// What the agent's own file says of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Own {
    /// Nothing against it.
    GoesOn,
    /// Somebody has to be asked at least.
    Asked,
    /// No. Why, in words for the model.
    Refused(String),
}

impl AgentRules {
    pub(super) fn new(definition: Arc<AgentDefinition>) -> Self {
        let rules = definition.permissions.as_ref().map(Rules::new);
        Self { definition, rules }
    }

    /// The agent's name.
    pub(super) fn name(&self) -> &str {
        &self.definition.name
    }

    /// What its file says of a call with these arguments, which is about this.
    pub(super) fn rule(&self, facts: Facts<'_>, (subject, arguments): (&Subject, &Arguments)) -> Own {
        if let Some(why) = self.shut(facts.category, (subject, arguments)) {
            return Own::Refused(why);
        }
        let Some(rules) = &self.rules else { return Own::GoesOn };
        match rules.decide(facts, subject).policy {
            PermissionPolicy::Allow => Own::GoesOn,
            PermissionPolicy::Ask => Own::Asked,
            PermissionPolicy::Deny => {
                let told = rules.explain(facts, subject).describe(rules);
                Own::Refused(format!("by the rules of the agent `{}`: {}", self.definition.name, told.reason))
            }
        }
    }

    /// The gate that is shut to a call.
    fn shut(&self, category: Option<ToolCategory>, (subject, arguments): (&Subject, &Arguments)) -> Option<String> {
        let name = &self.definition.name;
        // What is typed into a shell and is about paths is a patch: a command is about itself.
        let patches = match category {
            Some(ToolCategory::Edit) => true,
            Some(ToolCategory::Execute) => matches!(subject, Subject::Paths(_)),
            Some(_) | None => false,
        };
        match category {
            _ if patches && !self.definition.opens(AgentGate::Patch) => {
                Some(format!("the agent `{name}` may not change files: its policy does not name `Patch`"))
            }
            Some(ToolCategory::Subagent) => {
                let named = TARGETS.iter().find_map(|member| arguments.get(*member)?.as_str());
                let target = named.filter(|target| !self.definition.may_delegate_to(target))?;
                Some(format!("the agent `{name}` may not delegate to `{target}`"))
            }
            Some(_) | None => None,
        }
    }

    /// What its rules name that a search passes over.
    pub(super) fn hidden(&self, facts: Facts<'_>, mode: PermissionMode) -> Option<Hidden> {
        self.rules.as_ref()?.hidden(facts, mode != PermissionMode::Auto)
    }
}

/// What the agents may not do that the sessions above one work as.
///
/// # Errors
/// One of them is gone: what it may not do is not known any more.
pub(super) async fn agents_above(bench: &dyn Workbench, above: &[SessionRow]) -> Result<Vec<AgentRules>, ErrorBody> {
    let mut agents = Vec::new();
    for row in above {
        let Some(name) = &row.settings.agent else { continue };
        let catalog = bench.agents(&row.settings.working_directory).await;
        let Some(definition) = catalog.get(name) else {
            let message =
                format!("no markdown file defines the agent `{name}` any more, which session {} works as", row.id);
            return Err(ErrorBody { code: ErrorCode::UpstreamUnavailable, message, details: None });
        };
        agents.push(AgentRules::new(Arc::clone(definition)));
    }
    Ok(agents)
}

/// Rounds of a turn: the server's limit, or the agent's own where that is smaller.
pub(super) fn iterations(terms: &Terms, agent: Option<&AgentDefinition>) -> u32 {
    let limit = terms.limits.read().max_iterations;
    agent.and_then(|agent| agent.max_iterations).map_or(limit, |own| own.min(limit))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::protocol::{AgentKind, DefinitionSource, PermissionConfig, PermissionRule, ToolDefinition};

    #[test]
    fn gates_targets_and_rules_are_held_against_each_call() {
        let rule = |pattern: &str, policy| PermissionRule {
            tool: "bash".into(),
            pattern: Some(pattern.into()),
            policy,
            category: None,
            annotations: None,
        };
        let rules = vec![rule("rm *", PermissionPolicy::Deny), rule("git *", PermissionPolicy::Ask)];
        let definition = AgentDefinition {
            name: "plan".into(),
            description: String::new(),
            kind: AgentKind::Main,
            mode: None,
            model: None,
            reasoning: None,
            tools: None,
            gates: Some(vec![AgentGate::Delegate]),
            delegate_targets: Some(vec!["explore".into()]),
            permissions: Some(PermissionConfig { default_policy: PermissionPolicy::Allow, rules }),
            max_iterations: None,
            skills: None,
            prompt: String::new(),
            source: DefinitionSource::Project,
            path: None,
        };
        let agent = AgentRules::new(Arc::new(definition));
        let command = |line: &str| Subject::Command(line.into());
        #[rustfmt::skip]
        let table = [
            ("bash", "execute", json!({}), command("ls"), None),
            ("bash", "execute", json!({}), command("git push"), Some("")),
            ("bash", "execute", json!({}), command("ls; rm x"), Some("by the rules of the agent `plan`: ")),
            // A patch that is typed into the shell is judged as what it is.
            ("apply_patch", "edit", json!({}), Subject::None, Some("may not change files: its policy does not name `Patch`")),
            ("spawn_agent", "subagent", json!({"agent_type": "explore"}), Subject::None, None),
            ("spawn_agent", "subagent", json!({"agent_type": "build"}), Subject::None, Some("may not delegate to `build`")),
            ("wait_agents", "subagent", json!({}), Subject::None, None),
        ];
        for (name, category, arguments, subject, want) in table {
            let definition: ToolDefinition =
                serde_json::from_value(json!({"name": name, "description": "", "category": category})).unwrap();
            let serde_json::Value::Object(arguments) = arguments else { panic!("an object") };
            let own = agent.rule(Facts::new(name, Some(&definition), None), (&subject, &arguments));
            match (own, want) {
                (Own::GoesOn, None) | (Own::Asked, Some("")) => {}
                (Own::Refused(why), Some(want)) if !want.is_empty() => assert!(why.contains(want), "{why}"),
                (own, want) => panic!("{name} {subject:?}: {own:?}, not {want:?}"),
            }
        }
    }
}
