//! An agent as a markdown file describes it: who it is (the text), with what it works, and which gates are shut to it.
//!
//! A definition only takes away: what a session, its rules or the server refuse stays refused whatever a file says.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::command::Reasoning;
use super::lineage::AgentTypeView;
use super::permission::{PermissionConfig, PermissionMode};
use super::whole;

/// What a list of tools of a definition calls all of them.
pub const ANY_TOOL: &str = "*";

/// Who may speak to an agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AgentKind {
    /// Sessions can have it as their agent, and other agents can delegate to it.
    #[default]
    Main,
    /// Only other agents can delegate to it; it delegates to nobody.
    Subagent,
}

/// What an agent may only do when its `policy` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum AgentGate {
    /// Changing files: the tools of the category `edit`, and the action `patch`.
    Patch,
    /// Ending its task with a packet: the action `finalize_task`.
    Finalize,
    /// Giving work to other agents: the tools of the category `subagent`.
    Delegate,
}

impl AgentGate {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Patch, Self::Finalize, Self::Delegate];

    /// Its name, as files write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Patch => "Patch",
            Self::Finalize => "Finalize",
            Self::Delegate => "Delegate",
        }
    }
}

/// How an agent and its model talk about calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum InteractionMode {
    /// The model answers in text and calls tools the way that its provider has for it; a person is there to be asked.
    #[default]
    Chat,
    /// The model answers with JSON actions, one after the other, until it finishes its task.
    Auto,
}

/// Where a definition comes from. What comes earlier in this list takes the place of what comes later under the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DefinitionSource {
    /// The project's folders.
    Project,
    /// A folder that the settings name.
    Settings,
    /// The user's folders.
    User,
    /// It is part of this program.
    BuiltIn,
}

/// An agent, as a markdown file defines it.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentDefinition {
    /// Its name.
    pub name: String,
    /// What it is for; models that may delegate to it are told.
    pub description: String,
    /// Who may speak to it.
    pub kind: AgentKind,
    /// How it talks with its model. None: as the session and the model have it.
    pub mode: Option<InteractionMode>,
    /// Its model, `provider/name`. None: that of whoever uses it.
    pub model: Option<String>,
    /// How much its model thinks. None: as whoever uses it has it.
    pub reasoning: Option<Reasoning>,
    /// The tools that it may use, by the names that models use. None: all.
    pub tools: Option<Vec<String>>,
    /// The gates that are open to it. None: no gate is shut, for its file says nothing of them.
    pub gates: Option<Vec<AgentGate>>,
    /// The agents that it may delegate to. None: all.
    pub delegate_targets: Option<Vec<String>>,
    /// Rules over its calls, beside all others: the stricter verdict counts.
    pub permissions: Option<PermissionConfig>,
    /// Rounds with the model in one turn, at most: the smaller of this and what else is set counts.
    pub max_iterations: Option<u32>,
    /// The skills that it is told of. None: all.
    pub skills: Option<Vec<String>>,
    /// Who it is: the text of the file. Empty: it has no text of its own.
    pub prompt: String,
    /// Where it comes from.
    pub source: DefinitionSource,
    /// Its file. None: it is built in.
    pub path: Option<PathBuf>,
}

impl AgentDefinition {
    /// Whether a gate is open to it.
    pub fn opens(&self, gate: AgentGate) -> bool {
        self.gates.as_ref().is_none_or(|open| open.contains(&gate))
    }

    /// Whether it may give work to the agent of that name.
    pub fn may_delegate_to(&self, target: &str) -> bool {
        self.kind == AgentKind::Main
            && self.opens(AgentGate::Delegate)
            && self.delegate_targets.as_ref().is_none_or(|names| names.iter().any(|name| name == target))
    }
}

/// What is to become of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PlanVerdict {
    /// It is carried out as it is.
    Approve,
    /// It is carried out as it stands in `plan`.
    Edit,
    /// Another one is wanted.
    Reject,
}

/// `POST /sessions/:id/plan`: what is to become of the plan that a session in plan mode answered its last prompt with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlanDecision {
    /// What.
    pub decision: PlanVerdict,
    /// The plan as it was edited; with `edit` alone, and not empty.
    #[serde(default)]
    pub plan: Option<String>,
    /// Words for the model: what is to be minded, or why it is rejected.
    #[serde(default)]
    pub message: Option<String>,
    /// The permission mode in which it is carried out; not `plan`, and not with `reject`. Default: that of new sessions, or `ask`.
    #[serde(default)]
    pub permission_mode: Option<PermissionMode>,
    /// Refuse unless the session has this version.
    #[serde(default, deserialize_with = "whole::optional")]
    pub if_version: Option<u64>,
}

/// A file that was left out, and why. The rest of its folder counts all the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DefinitionFault {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it, in words that name the field.
    pub reason: String,
}

/// An agent that sessions can use.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentView {
    /// Its name.
    pub name: String,
    /// `loop` (our own, driving a model), `acp` (an external process), or one that a markdown file defines and our own loop is:
    /// `main`, or `subagent`, to which only other agents can delegate.
    pub kind: String,
    /// What it is, for people.
    pub description: String,
    /// Whether it can be used now.
    pub available: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Where its markdown file comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<DefinitionSource>,
    /// Its file; absent of one that is built in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Its own model. Absent: that of whoever uses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How much its model thinks. Absent: as whoever uses it has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Reasoning>,
    /// How it talks with its model about calls. Absent: as the session and the model have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<InteractionMode>,
    /// The tools that it may use. Absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// The gates that are open to it. Absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Vec<AgentGate>>,
    /// The agents that it may delegate to. Absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegate_targets: Option<Vec<String>>,
    /// Its own limit of rounds in one turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iterations: Option<u32>,
    /// The skills that it is told of. Absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skills: Option<Vec<String>>,
}

/// Answer of `GET /agents`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentList {
    /// The agents.
    pub agents: Vec<AgentView>,
    /// The types of sub-agents.
    pub types: Vec<AgentTypeView>,
    /// Markdown files that were left out, and why.
    #[serde(default)]
    pub faults: Vec<DefinitionFault>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_delegates_only_where_its_kind_its_gates_and_its_targets_let_it() {
        let agent = |kind, gates: Option<&[AgentGate]>, targets: Option<&[&str]>| AgentDefinition {
            name: "a".into(),
            description: String::new(),
            kind,
            mode: None,
            model: None,
            reasoning: None,
            tools: None,
            gates: gates.map(<[_]>::to_vec),
            delegate_targets: targets.map(|names| names.iter().map(|name| (*name).to_owned()).collect()),
            permissions: None,
            max_iterations: None,
            skills: None,
            prompt: String::new(),
            source: DefinitionSource::Project,
            path: None,
        };
        use AgentGate::{Delegate, Patch};
        #[rustfmt::skip]
        let table = [
            (agent(AgentKind::Main, None, None), true),
            (agent(AgentKind::Main, Some(&[Patch, Delegate]), None), true),
            (agent(AgentKind::Main, Some(&[Patch]), None), false),
            (agent(AgentKind::Main, Some(&[]), Some(&["x"])), false),
            (agent(AgentKind::Main, None, Some(&["x"])), true),
            (agent(AgentKind::Main, None, Some(&["y"])), false),
            (agent(AgentKind::Subagent, Some(&[Delegate]), None), false),
        ];
        for (agent, want) in table {
            assert_eq!(agent.may_delegate_to("x"), want, "{agent:?}");
        }
    }
}
