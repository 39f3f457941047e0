//! What turns did to files, as callers see it; and the bodies of undo, redo and fork.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::id::{SessionId, TurnId};
use super::whole;

/// What became of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ChangeKind {
    /// It was not there.
    #[serde(rename = "A")]
    Added,
    /// It holds something else, or has another mode.
    #[serde(rename = "M")]
    Modified,
    /// It is gone.
    #[serde(rename = "D")]
    Deleted,
}

/// One path that changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileChange {
    /// Relative to the session's working directory where it lies below it, else absolute.
    pub path: String,
    /// What became of it.
    pub kind: ChangeKind,
    /// Lines that are new.
    pub added: u64,
    /// Lines that are gone.
    pub removed: u64,
    /// The unified diff. None: it is no text, only its mode changed, or there was no more room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// What stands instead of a diff, such as `binary file, 10 bytes → 12 bytes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Why it cannot be undone. None: it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_undoable: Option<String>,
}

/// Something that is not recorded, or not undone, and why.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct PathReason {
    /// The path, shown as those of [`FileChange`].
    pub path: String,
    /// Why.
    pub reason: String,
}

/// What changed, within bounds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangeReport {
    /// The first of them, by path.
    pub files: Vec<FileChange>,
    /// How many there are.
    pub file_count: u64,
    /// How many of them `files` leaves out.
    pub truncated_count: u64,
    /// Whether diffs were cut or left out for lack of room.
    pub diff_truncated: bool,
    /// What was not looked at or could not be kept: it may have changed, and is not undone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uncovered: Vec<PathReason>,
}

/// A turn in `GET /sessions/:id/diff`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnChanges {
    /// The turn.
    pub turn_id: TurnId,
    /// When its first change was recorded.
    pub at: u64,
    /// Paths that it changed.
    pub file_count: u64,
    /// Whether its changes are undone now.
    pub undone: bool,
    /// Its record was dropped to make room: it can neither be shown nor undone.
    pub dropped: bool,
}

/// `GET /sessions/:id/diff`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiffView {
    /// The session.
    pub session_id: SessionId,
    /// The turn that was asked for. None: all turns together that are not undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    /// The newest turns that changed files, oldest first.
    pub turns: Vec<TurnChanges>,
    /// What changed.
    #[serde(flatten)]
    pub report: ChangeReport,
    /// Where the next page begins. None: there is none.
    pub next_cursor: Option<String>,
}

/// `POST /sessions/:id/undo` and `/redo`. Every field may be left out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Undo {
    /// Undo: this turn and all later ones. Redo: what was undone, up to this turn. Default: one turn, the last.
    pub turn_id: Option<TurnId>,
    /// Do the rest although some paths cannot be undone; they are named in the answer. A path that somebody else
    /// has changed stands against it all the same.
    pub partial: bool,
    /// Refuse unless the session has this version.
    #[serde(deserialize_with = "whole::optional")]
    pub if_version: Option<u64>,
}

/// Answer to an undo or a redo.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Undone {
    /// The turns, in the order in which they were undone or redone.
    pub turn_ids: Vec<TurnId>,
    /// What happened to which path.
    pub files: Vec<FileChange>,
    /// Paths of these turns that stay as they are, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<PathReason>,
    /// The session's version now.
    pub version: u64,
}

/// `POST /sessions/:id/fork`. Every field may be left out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Fork {
    /// The last event that the fork has in common with this session. Default: its newest.
    #[serde(deserialize_with = "whole::optional")]
    pub at: Option<u64>,
    /// A chosen id for the fork; one is made otherwise.
    pub new_session_id: Option<SessionId>,
    /// Its title. Default: this session's.
    pub title: Option<String>,
}
