//! What an external agent says of itself and its work, in our words: plans, commands, options, how full it is.
//!
//! None of it is part of the conversation. The newest of each kind counts.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::event::EventBody;

/// What is chosen of an agent's options: the option's id, and what it is set to.
pub type AgentOptions = BTreeMap<String, AgentSetting>;

/// What an option of an agent is set to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a text, or true or false")]
pub enum AgentSetting {
    /// On or off.
    Flag(bool),
    /// The `value` of one of its values.
    Value(String),
}

impl std::fmt::Display for AgentSetting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Flag(on) => write!(f, "{on}"),
            Self::Value(value) => f.write_str(value),
        }
    }
}

/// The plan of an agent. A later one with the same id, or also without one, takes its place.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentPlan {
    /// Its id, of an agent that has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_id: Option<String>,
    /// Its steps, in their order; none: there is no plan any more.
    pub entries: Vec<PlanEntry>,
    /// The plan as a text, of an agent that tells it so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// A step of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanEntry {
    /// What is to be done.
    pub content: String,
    /// `high`, `medium` or `low`.
    pub priority: String,
    /// `pending`, `in_progress` or `completed`.
    pub status: String,
}

/// The commands that an agent understands at the front of a prompt, as `/name`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentCommands {
    /// All of them.
    pub commands: Vec<AgentCommand>,
}

/// A command of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentCommand {
    /// Its name, without the slash.
    pub name: String,
    /// What it does.
    pub description: String,
    /// What may follow it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// What an agent's session can be set to, and is set to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentChoices {
    /// All of them. The agent's modes are the option of the category `mode`.
    pub options: Vec<AgentOption>,
}

/// An option of an agent's session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentOption {
    /// What `agentOptions` calls it.
    pub id: String,
    /// Its name, for people.
    pub name: String,
    /// What it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What it is about, such as `mode`, `model` or `thought_level`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// What it is set to.
    pub value: AgentSetting,
    /// What it can be set to; none of one that is true or false.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<AgentValue>,
}

/// What an option can be set to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentValue {
    /// What `agentOptions` calls it.
    pub value: String,
    /// Its name, for people.
    pub name: String,
    /// What it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// How full an agent's context is, and what its session has cost.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentUsage {
    /// Tokens in its context now.
    pub used: u64,
    /// Tokens that it holds.
    pub size: u64,
    /// What the session has cost so far, where the agent knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<AgentCost>,
}

/// An amount of money.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentCost {
    /// How much.
    pub amount: f64,
    /// Of what, such as `USD`.
    pub currency: String,
}

/// An agent makes its context shorter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentCompaction {
    /// Which time it is, in the agent's words.
    pub compaction_id: String,
    /// `in_progress`, `completed`, `failed`, or a later word.
    pub status: String,
    /// What it keeps in the place of what it leaves out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Answer of `GET /sessions/:id/agent`: what the agent of a session has said last.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentState {
    /// The agent.
    pub agent: String,
    /// The agent's own id of its session; absent before the first prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_session_id: Option<String>,
    /// What its session can be set to (`agentOptions`), and is set to; none before the first prompt.
    pub options: Vec<AgentOption>,
    /// What was chosen of these for the session. Set again whenever the agent's session is opened.
    pub chosen: AgentOptions,
    /// The commands that it understands.
    pub commands: Vec<AgentCommand>,
    /// Its plans.
    pub plans: Vec<AgentPlan>,
    /// How full its context is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<AgentUsage>,
}

impl AgentState {
    /// Takes in the next event of the log.
    pub fn take(&mut self, event: EventBody) {
        match event {
            EventBody::AgentSession { agent_session_id, .. }
                if self.agent_session_id.as_ref() != Some(&agent_session_id) =>
            {
                // What was said of another one does not hold for this one.
                *self = Self { agent_session_id: Some(agent_session_id), ..Self::default() };
            }
            EventBody::SessionForked { .. } => *self = Self::default(),
            EventBody::AgentOptions(AgentChoices { options }) => self.options = options,
            EventBody::AgentCommands(AgentCommands { commands }) => self.commands = commands,
            EventBody::AgentPlan(plan) => {
                self.plans.retain(|old| old.plan_id != plan.plan_id);
                if !plan.entries.is_empty() || plan.text.is_some() {
                    self.plans.push(plan);
                }
            }
            EventBody::AgentUsage(usage) => self.usage = Some(usage),
            _ => {}
        }
    }

    /// Whether an event of that type can change it.
    pub fn is_told_by(kind: &str) -> bool {
        matches!(
            kind,
            "agent.session" | "agent.plan" | "agent.commands" | "agent.options" | "agent.usage" | "session.forked"
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn state(events: &[Value]) -> Value {
        let mut state = AgentState::default();
        for event in events {
            let body: EventBody = serde_json::from_value(event.clone()).unwrap();
            assert!(AgentState::is_told_by(body.kind()), "{event}");
            state.take(body);
        }
        serde_json::to_value(state).unwrap()
    }

    #[test]
    fn the_newest_of_each_kind_counts_and_a_new_session_of_the_agent_begins_anew() {
        let session = |id: &str| json!({"type": "agent.session", "payload": {"model": "acp/a", "agentSessionId": id}});
        let step = |text: &str| json!([{"content": text, "priority": "high", "status": "pending"}]);
        let plan = |entries: Value| json!({"type": "agent.plan", "payload": {"entries": entries}});
        let other = json!({"type": "agent.plan", "payload": {"planId": "b", "entries": step("b")}});
        let usage = json!({"type": "agent.usage", "payload": {"used": 1, "size": 2}});
        let all = [session("s"), plan(step("x")), other, plan(step("y")), usage, session("s")];
        let seen = state(&all);
        assert_eq!(seen["plans"].as_array().unwrap().len(), 2);
        assert_eq!((&seen["plans"][1]["entries"][0]["content"], &seen["usage"]["used"]), (&json!("y"), &json!(1)));
        let gone = state(&[&all[..], &[plan(json!([]))]].concat());
        assert_eq!(gone["plans"][0]["planId"], "b");
        let anew = state(&[&all[..], &[session("t")]].concat());
        assert_eq!((&anew["plans"], anew.get("usage")), (&json!([]), None));
    }
}
