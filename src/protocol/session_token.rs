//! Tokens that reach one session: as they are asked for, shown once, and listed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::id::{SessionId, SessionTokenId};
use super::whole;

/// What the bearer of a session's token may do there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SessionTokenRole {
    /// Looks.
    ReadOnly,
    /// Prompts, calls tools, aborts, undoes. Answers no questions, and changes no settings.
    #[default]
    Operator,
}

/// `POST /sessions/:id/tokens`. Every field may be left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NewSessionToken {
    /// What its bearer may do. Default: `operator`.
    pub role: SessionTokenRole,
    /// After so many milliseconds it counts no longer. Default: it counts as long as the session is there.
    #[serde(deserialize_with = "whole::optional", skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
}

/// A session's token, without the token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionTokenView {
    /// Its id.
    pub token_id: SessionTokenId,
    /// What it reaches.
    pub session_id: SessionId,
    /// What its bearer may do there.
    pub role: SessionTokenRole,
    /// When it was made, in milliseconds since 1970.
    pub created_at: u64,
    /// When it ends, in milliseconds since 1970. Absent: with its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
}

/// A token that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MadeSessionToken {
    /// The token. It is told this once, and kept nowhere.
    pub token: String,
    /// The rest of it.
    #[serde(flatten)]
    pub about: SessionTokenView,
}

/// A session's tokens, the oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionTokenList {
    /// Those that count.
    pub tokens: Vec<SessionTokenView>,
}
