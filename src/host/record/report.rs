//! Shows what turns did: files with their kinds, line counts and diffs, within bounds that are said.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use super::Recording;
use super::look::shown;
use crate::base::limit;
use crate::base::workspace::Workspace;
use crate::edit::diff_between;
use crate::protocol::{
    ApiError, ChangeKind, ChangeReport, DiffView, FileChange, PathReason, SessionId, TurnChanges, TurnId,
};
use crate::store::StoreError;
use crate::store::snapshots::{FileState, PathChange, RecordedTurn, SnapshotStore};

/// Largest text that is compared line by line, in bytes.
const COMPARED_BYTES_MAX: u64 = 4 << 20;
/// Why something cannot be undone that others changed in between.
pub(super) const MIXED: &str = "somebody else changed it in between";
/// Why something cannot be undone that lies where the session may not work now.
pub(super) const ELSEWHERE: &str = "it lies outside of the directories in which this session may work now";

/// Which changes are to be shown.
#[derive(Debug, Clone, Default)]
pub struct DiffWanted {
    /// Of this turn. None: of all turns together that are not undone.
    pub turn: Option<TurnId>,
    /// Those behind this path, as it was shown.
    pub after: Option<String>,
    /// This path alone, as it was shown, and more of its diff.
    pub path: Option<String>,
}

/// Room for a report.
struct Room {
    files: usize,
    diff_bytes: usize,
}

impl Recording {
    /// What a turn changed, as its event tells it. None: nothing, and nothing is unknown. Blocking.
    pub(super) fn turn_report(
        &self,
        session: &SessionId,
        turn: &TurnId,
        workspace: &Workspace,
    ) -> Option<ChangeReport> {
        let look = || {
            let Some(turn) = self.store.turn(session, turn)? else { return Ok(None) };
            let changes = listed(self.store.changes(turn.number)?);
            let uncovered = uncovered(&self.store, workspace, &[&turn])?;
            if changes.is_empty() {
                return Ok(None);
            }
            let room = Room { files: limit::CHANGED_FILES_MAX, diff_bytes: limit::CHANGES_DIFF_BYTES_MAX };
            let report = report(&self.store, workspace, (changes, room))?;
            Ok::<_, StoreError>(Some(ChangeReport { uncovered, ..report }))
        };
        look().unwrap_or_else(|error| {
            tracing::warn!(%session, %turn, %error, "what a turn changed could not be told");
            None
        })
    }

    /// What turns of a session changed. Blocking.
    ///
    /// # Errors
    /// `NOT_FOUND` for a turn without a record, or a path that is not in it; `INTERNAL`.
    pub fn diff(&self, session: &SessionId, workspace: &Workspace, wanted: DiffWanted) -> Result<DiffView, ApiError> {
        let failed = |error: StoreError| ApiError::internal(error.to_string());
        let turns = self.store.turns(session).map_err(failed)?;
        let workspace = &self.where_turns_worked(workspace, &turns);
        let chosen: Vec<&RecordedTurn> = match &wanted.turn {
            Some(id) => {
                let found = turns.iter().find(|turn| turn.id == *id);
                vec![found.ok_or_else(|| ApiError::not_found(format!("recorded changes of turn {id}")))?]
            }
            None => turns.iter().filter(|turn| turn.undone == 0).collect(),
        };
        let mut changes = listed(composed(&self.store, &chosen).map_err(failed)?);
        let file_count = changes.len() as u64;
        let name = |change: &PathChange| shown(workspace, &change.path);
        changes.sort_by_key(name);
        if let Some(after) = &wanted.after {
            changes.retain(|change| name(change) > *after);
        }
        let mut room = Room { files: limit::CHANGED_FILES_MAX, diff_bytes: limit::CHANGES_DIFF_BYTES_MAX };
        if let Some(path) = &wanted.path {
            changes.retain(|change| name(change) == *path);
            if changes.is_empty() {
                return Err(ApiError::not_found(format!("recorded changes of the path {path}")));
            }
            room.diff_bytes = limit::CHANGE_DIFF_BYTES_MAX;
        }
        let uncovered = uncovered(&self.store, workspace, &chosen).map_err(failed)?;
        let report = report(&self.store, workspace, (changes, room)).map_err(failed)?;
        let next_cursor = report.files.last().filter(|_| report.truncated_count > 0).map(|file| file.path.clone());
        let newest = turns.iter().rev().take(limit::CHANGED_TURNS_MAX).rev();
        Ok(DiffView {
            session_id: session.clone(),
            turn_id: wanted.turn,
            turns: newest.map(turn_changes).collect(),
            report: ChangeReport { uncovered, file_count, ..report },
            next_cursor,
        })
    }
}

fn turn_changes(turn: &RecordedTurn) -> TurnChanges {
    TurnChanges {
        turn_id: turn.id.clone(),
        at: turn.at,
        file_count: turn.file_count,
        undone: turn.undone > 0,
        dropped: turn.dropped,
    }
}

/// What several turns did together, oldest first.
pub(super) fn composed(store: &SnapshotStore, turns: &[&RecordedTurn]) -> Result<Vec<PathChange>, StoreError> {
    let mut all: BTreeMap<PathBuf, PathChange> = BTreeMap::new();
    for turn in turns {
        for change in store.changes(turn.number)? {
            match all.get_mut(&change.path) {
                Some(known) => {
                    known.mixed |= change.mixed || known.after != change.before;
                    known.after = change.after;
                }
                None => drop(all.insert(change.path.clone(), change)),
            }
        }
    }
    Ok(all.into_values().collect())
}

/// Those that are told, in the order of their paths: directories come and go with what is in them, and are told when it is
/// nothing.
fn listed(changes: Vec<PathChange>) -> Vec<PathChange> {
    let changed: BTreeMap<PathBuf, PathChange> = changes
        .into_iter()
        .filter(|change| change.before != change.after)
        .map(|change| (change.path.clone(), change))
        .collect();
    let holds_another = |path: &Path| {
        let mut behind = changed.range::<Path, _>((Bound::Excluded(path), Bound::Unbounded));
        behind.next().is_some_and(|(next, _)| next.starts_with(path))
    };
    let is_told = |change: &&PathChange| match (&change.before, &change.after) {
        (FileState::Directory { .. }, FileState::Absent) | (FileState::Absent, FileState::Directory { .. }) => {
            !holds_another(&change.path)
        }
        (_, _) => true,
    };
    changed.values().filter(is_told).cloned().collect()
}

/// What is not known of turns.
pub(super) fn uncovered(
    store: &SnapshotStore,
    workspace: &Workspace,
    turns: &[&RecordedTurn],
) -> Result<Vec<PathReason>, StoreError> {
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    for turn in turns {
        if turn.dropped {
            let reason = format!("what turn {} changed was dropped to make room", turn.id);
            all.entry(".".to_owned()).or_insert(reason);
        }
        if turn.commands > 0 {
            let reason =
                format!("a command of turn {} had no end that was seen: what it changed is not known", turn.id);
            all.entry(".".to_owned()).or_insert(reason);
        }
        for (path, reason) in store.uncovered(turn.number)? {
            let whole = path == workspace.working_directory();
            let path = if whole { ".".to_owned() } else { shown(workspace, &path) };
            all.entry(path).or_insert(reason);
        }
    }
    Ok(all.into_iter().take(limit::UNCOVERED_MAX).map(|(path, reason)| PathReason { path, reason }).collect())
}

fn report(
    store: &SnapshotStore,
    workspace: &Workspace,
    (changes, mut room): (Vec<PathChange>, Room),
) -> Result<ChangeReport, StoreError> {
    let file_count = changes.len();
    let mut out = ChangeReport { file_count: file_count as u64, ..ChangeReport::default() };
    for change in changes.iter().take(room.files) {
        let (file, cut) = file_change(store, workspace, (change, room.diff_bytes))?;
        out.diff_truncated |= cut;
        room.diff_bytes -= file.diff.as_ref().map_or(0, String::len);
        out.files.push(file);
    }
    out.truncated_count = file_count.saturating_sub(room.files) as u64;
    Ok(out)
}

/// One of them, and whether its diff was cut.
pub(super) fn file_change(
    store: &SnapshotStore,
    workspace: &Workspace,
    (change, diff_bytes_max): (&PathChange, usize),
) -> Result<(FileChange, bool), StoreError> {
    let path = shown(workspace, &change.path);
    let (before, after) = (&change.before, &change.after);
    let kind = match (before, after) {
        (FileState::Absent, _) => ChangeKind::Added,
        (_, FileState::Absent) => ChangeKind::Deleted,
        (_, _) => ChangeKind::Modified,
    };
    let mut file =
        FileChange { path, kind, added: 0, removed: 0, diff: None, note: note(before, after), not_undoable: None };
    file.not_undoable = not_undoable(workspace, change);
    let (Some(old), Some(new)) = (text(store, before)?, text(store, after)?) else { return Ok((file, false)) };
    if old == new {
        return Ok((file, false));
    }
    let there = |state: &FileState, text: &'_ str| (*state != FileState::Absent).then(|| text.to_owned());
    let (old, new) = (there(before, &old), there(after, &new));
    let diff = diff_between((&file.path, old.as_deref()), (&file.path, new.as_deref()), diff_bytes_max);
    (file.added, file.removed) = (diff.added as u64, diff.removed as u64);
    let cut = diff.truncated;
    file.diff = Some(diff.text).filter(|text| !text.is_empty());
    Ok((file, cut))
}

/// Why it cannot be undone.
fn not_undoable(workspace: &Workspace, change: &PathChange) -> Option<String> {
    if !workspace.contains(&change.path) {
        return Some(ELSEWHERE.to_owned());
    }
    if change.mixed {
        return Some(MIXED.to_owned());
    }
    [&change.before, &change.after].into_iter().find_map(|state| match state {
        FileState::Unkept { reason } => Some(reason.clone()),
        FileState::Unfinished => Some("the server ended while it was being changed".to_owned()),
        FileState::Absent | FileState::File { .. } | FileState::Link { .. } | FileState::Directory { .. } => None,
    })
}

/// The text of a file; empty where none was. None: it is no text, or too long.
fn text(store: &SnapshotStore, state: &FileState) -> Result<Option<String>, StoreError> {
    match state {
        FileState::Absent => Ok(Some(String::new())),
        FileState::File { bytes, content, .. } if *bytes <= COMPARED_BYTES_MAX => {
            let bytes = store.content(content)?.filter(|bytes| !bytes.contains(&0));
            Ok(bytes.and_then(|bytes| String::from_utf8(bytes).ok()))
        }
        FileState::File { .. }
        | FileState::Link { .. }
        | FileState::Directory { .. }
        | FileState::Unkept { .. }
        | FileState::Unfinished => Ok(None),
    }
}

/// What a diff does not say.
fn note(before: &FileState, after: &FileState) -> Option<String> {
    match (before, after) {
        (FileState::File { mode: old, content: a, .. }, FileState::File { mode: new, content: b, .. })
            if old != new =>
        {
            let also = if a == b { "" } else { ", and its content" };
            Some(format!("mode {old:o} → {new:o}{also}"))
        }
        (FileState::Directory { mode: old }, FileState::Directory { mode: new }) => {
            Some(format!("mode {old:o} → {new:o} of a directory"))
        }
        (FileState::Absent, FileState::File { .. })
        | (FileState::File { .. }, FileState::Absent | FileState::File { .. }) => None,
        (before, after) => Some(format!("{} → {}", named(before), named(after))),
    }
}

fn named(state: &FileState) -> String {
    match state {
        FileState::Absent => "nothing".to_owned(),
        FileState::File { bytes, .. } => format!("a file of {bytes} bytes"),
        FileState::Link { target } => format!("a link to {}", String::from_utf8_lossy(target)),
        FileState::Directory { .. } => "a directory".to_owned(),
        FileState::Unkept { .. } => "something that is not kept".to_owned(),
        FileState::Unfinished => "something unknown".to_owned(),
    }
}
