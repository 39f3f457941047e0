//! Skills and slash commands, as callers see them: what they are for and where they come from. Their texts are read when they are used.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::agent_definition::{DefinitionFault, DefinitionSource};

/// A skill: a folder with a text that says how to do something, which a model loads when it is about to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SkillView {
    /// Its name.
    pub name: String,
    /// What it is for, and when.
    pub description: String,
    /// Where it comes from.
    pub source: DefinitionSource,
    /// Its file `SKILL.md`.
    pub path: PathBuf,
    /// The tools that may be used while it is. Absent: all that the session has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_tools: Option<Vec<String>>,
    /// What may follow its name, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argument_hint: Option<String>,
    /// Whether a prompt that begins with `/name` uses it.
    pub user_invocable: bool,
    /// Whether models are told of it.
    pub model_invocable: bool,
}

/// Answer of `GET /skills`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SkillList {
    /// The skills.
    pub skills: Vec<SkillView>,
    /// Files that were left out, and why.
    pub faults: Vec<DefinitionFault>,
}

/// What a prompt that begins with `/name` becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CommandKind {
    /// The text of a command's file.
    Command,
    /// The text of a skill.
    Skill,
}

/// A slash command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommandView {
    /// Its name, without the slash.
    pub name: String,
    /// What it does.
    pub description: String,
    /// Of which kind it is.
    pub kind: CommandKind,
    /// Where it comes from.
    pub source: DefinitionSource,
    /// Its file.
    pub path: PathBuf,
    /// What may follow its name, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argument_hint: Option<String>,
}

/// Answer of `GET /commands`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommandList {
    /// The commands.
    pub commands: Vec<CommandView>,
    /// Files that were left out, and why.
    pub faults: Vec<DefinitionFault>,
}
