//! What some events tell: how a session begins, what of it changes, and how a turn is controlled.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::command::Configure;
use super::id::{GrantId, RequestId};
use super::lineage::Lineage;
use super::permission::PermissionConfig;

/// How a round with the model ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RoundKind {
    /// With an answer.
    Text,
    /// With tool calls.
    ToolUse,
}

/// What a session begins with. Logs of earlier versions do not say it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Beginning {
    /// All settings; those that are not named are as for any session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<Box<Configure>>,
    /// Rules of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<Box<PermissionConfig>>,
    /// Where it stands in its tree. Absent: above all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lineage: Option<Box<Lineage>>,
    /// Its log tells of every grant of the session, given or taken back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tells_grants: bool,
}

/// A grant of the session, as it was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Granted {
    /// Its id.
    pub grant_id: GrantId,
    /// The question that was answered with it.
    pub request_id: RequestId,
    /// The tool.
    pub tool_name: String,
    /// The command line that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Where that line starts: relative to the working directory of the session where it lies below it. Absent: in the
    /// working directory itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathBuf>,
    /// The paths that it is about, as they resolve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths: Option<Vec<PathBuf>>,
    /// When it was given, in milliseconds since 1970.
    pub created_at: u64,
    /// When it ends. Absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
}

/// Why a grant of the session is there no longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RevokeReason {
    /// A client took it back.
    Client,
    /// It had ended; this is told when the next one is given.
    Expired,
    /// The same was given again.
    Replaced,
    /// There were too many, and it was the oldest.
    Surplus,
    /// The session was imported: what was granted elsewhere is asked again here.
    Imported,
}

/// Settings that changed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Configured {
    /// Which ones.
    #[serde(flatten)]
    pub changes: Configure,
    /// The session's version with them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
}

/// A control of a turn that has no other event of its own when it is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ControlKind {
    /// A message waits for the turn's next boundary.
    Steer,
    /// It is to end at once.
    Abort,
    /// It is to end at its next boundary.
    Interrupt,
    /// It is to hold at its next boundary.
    Pause,
    /// It is no longer to hold.
    Resume,
}

/// Whether a number that is left out when it is 0 can be.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands in a reference")]
pub(super) fn is_zero(number: &u64) -> bool {
    *number == 0
}
