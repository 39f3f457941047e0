//! Permission settings and verdicts.

use serde::{Deserialize, Serialize};

use super::tool::{CategoryFilter, ToolAnnotations};

/// What to do with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<ToolAnnotations>,
}

/// A default and the rules over it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PermissionConfig {
    /// What happens when no rule matches.
    pub default_policy: PermissionPolicy,
    /// In order; the last one that matches wins.
    #[serde(default)]
    pub rules: Vec<PermissionRule>,
}

/// Who decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VerdictSource {
    /// A configured rule or the default policy.
    Policy,
    /// A client's answer.
    Client,
    /// The program that embeds the server (`onPermissionRequest`).
    Program,
    /// An `allow_always` that a client gave earlier in this session.
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
