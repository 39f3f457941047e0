//! Permission settings and verdicts.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::id::{GrantId, SessionId};
use super::object;
use super::tool::{CategoryFilter, ToolAnnotations};

/// What to do with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PermissionPolicy {
    /// Run it.
    Allow,
    /// Ask the client; no answer is no.
    Ask,
    /// Refuse it.
    Deny,
}

/// One rule. The last one that matches wins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PermissionRule {
    /// Glob over the tool's name: `*` and `?`, everything else literal, anchored.
    pub tool: String,
    /// Glob over the command (shell tools) or the path (file tools).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// What to do when the rule matches.
    pub policy: PermissionPolicy,
    /// Only tools of this category.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<CategoryFilter>,
    /// Only tools that carry these annotations.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub annotations: Option<ToolAnnotations>,
}

impl PermissionRule {
    /// The first rule that can match nothing, so that a refusal would refuse nothing: its place, the member at fault, and what is
    /// expected there. Doors hold what they are given against this; what was stored is read as it is.
    pub fn fault(rules: &[Self]) -> Option<(usize, &'static str, &'static str)> {
        let faults = rules.iter().enumerate().filter_map(|(at, rule)| {
            if matches!(&rule.category, Some(CategoryFilter::Any(any)) if any.is_empty()) {
                return Some((at, "category", "a category, or a list of at least one"));
            }
            (rule.pattern.as_deref() == Some("")).then_some((at, "pattern", "a pattern that is not empty, or none"))
        });
        faults.min_by_key(|(at, ..)| *at)
    }
}

/// A default and the rules over it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PermissionConfig {
    /// What happens when no rule matches.
    pub default_policy: PermissionPolicy,
    /// In order; the last one that matches wins.
    #[serde(default, deserialize_with = "object::list")]
    pub rules: Vec<PermissionRule>,
}

/// How much a session does without asking. The floor and what a rule denies stand in every mode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PermissionMode {
    /// Only looks: whatever may change something is refused, and says so.
    Plan,
    /// As the rules say.
    #[default]
    Ask,
    /// Edits of files inside the roots run unasked, where no rule of their own asks.
    AcceptEdits,
    /// Nothing is asked that no rule denies, or may deny.
    Auto,
}

/// How far an answer of a client reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GrantScope {
    /// This one call.
    Once,
    /// Calls like it for the rest of the session.
    Session,
    /// Calls like it in all sessions of the client that work in the same directory.
    Project,
    /// Calls like it in all sessions of the client.
    Always,
}

/// A saved grant, as `GET /permissions/grants` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GrantView {
    /// Its id.
    pub grant_id: GrantId,
    /// `session`, `project` or `always`.
    pub scope: GrantScope,
    /// The tool.
    pub tool: String,
    /// The command line that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Where that line starts: relative to the working directory of a session where it lies below it. Absent: in the
    /// working directory itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathBuf>,
    /// The paths that it is about, as they resolve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths: Option<Vec<PathBuf>>,
    /// The session, of a grant for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// The working directory, of a grant for a project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<PathBuf>,
    /// When it was given, in milliseconds since 1970.
    pub created_at: u64,
    /// When it ends. Absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
}

/// What a verdict rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum VerdictBasis {
    /// A rule.
    Rule,
    /// No rule matched.
    Default,
    /// A rule that may match, depending on what only the shell will know.
    Uncertain,
    /// The floor, which no rule lifts.
    Floor,
    /// The session's mode.
    Mode,
    /// A grant that a client gave.
    Grant,
    /// The gates or the rules of an agent's file.
    Agent,
}

/// Why a call would be allowed, asked or denied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PermissionExplanation {
    /// What would happen.
    pub decision: PermissionPolicy,
    /// What that rests on.
    pub source: VerdictBasis,
    /// The rule, by its place in the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<usize>,
    /// The same in words.
    pub reason: String,
    /// Why the call could not run at all, whatever is decided: its arguments, or a path that leads out of the roots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The session's mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<PermissionMode>,
    /// The saved grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<GrantId>,
    /// The session above this one whose rules or agent decide. Absent: its own do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// The agent whose file decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The parts of a command, or the paths, each with its own answer; the strictest is the whole's.
    pub parts: Vec<ExplainedPart>,
}

/// One part of an explained call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedPart {
    /// A command or a path; empty for a call that has neither.
    pub part: String,
    /// It stands inside another command's arguments, and may run.
    pub hidden: bool,
    /// Its own answer.
    pub decision: PermissionPolicy,
    /// What that rests on.
    pub source: VerdictBasis,
    /// The rule, by its place in the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<usize>,
    /// The same in words.
    pub reason: String,
}

/// Who decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum VerdictSource {
    /// A configured rule or the default policy.
    Policy,
    /// The floor: nobody may.
    Floor,
    /// The session's mode.
    Mode,
    /// The agent's own gates and rules.
    Agent,
    /// A client's answer.
    Client,
    /// The program that embeds the server (`onPermissionRequest`).
    Program,
    /// An `allow_always` that a client gave earlier.
    Grant,
    /// Nobody answered in time.
    Timeout,
    /// No client was there to be asked.
    NoClient,
    /// The turn was aborted, or the server stopped, before an answer came.
    Abort,
    /// A hook.
    Hook,
}

/// The end of one permission question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PermissionVerdict {
    /// Whether the call may run.
    pub allowed: bool,
    /// Who decided.
    pub by: VerdictSource,
    /// Why, for the model and the log. Empty when there is nothing to say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// `POST /permissions/explain`: what would happen to this call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExplainCall {
    /// In this session. None: in a new one.
    #[serde(default)]
    pub session_id: Option<SessionId>,
    /// The call's id, where a whole call is handed in. Nothing rests on it.
    #[serde(default)]
    pub id: Option<String>,
    /// The tool; `name`, as in a call, says the same.
    #[serde(alias = "name")]
    pub tool: String,
    /// Its arguments.
    #[serde(default)]
    pub arguments: Map<String, Value>,
}
