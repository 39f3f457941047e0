//! Undoes what turns did to files, and does it again: all of it, or nothing.
//!
//! Each path must be as the turns left it; one that somebody else has changed since stands against the whole. A path that is
//! already as it is to be is left as it is, so that one that was interrupted can be asked for again; it is told with the others.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::AtFlags;
use serde_json::json;

use super::Recording;
use super::judge::{Opened, judge};
use super::look::{is_gone, shown};
use super::report::{file_change, uncovered};
use crate::base::workspace::Workspace;
use crate::host::commit::{After, Change, Fetched, commit, recover};
use crate::host::fs_file::turns as take_turns;
use crate::protocol::{ApiError, FileChange, PathReason, SessionId, TurnId};
use crate::store::StoreError;
use crate::store::snapshots::{FileState, PathChange, RecordedTurn};

/// Paths that stand against an undo and are named.
const CONFLICTS_MAX: usize = 100;
/// Files that an answer names.
const FILES_MAX: usize = 1_000;

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// As it was before the turns.
    Undo,
    /// As it was after them.
    Redo,
}

/// What is to be undone or redone.
#[derive(Debug, Clone)]
pub struct UndoWanted {
    /// Which way.
    pub direction: Direction,
    /// Up to this turn. None: one turn.
    pub turn: Option<TurnId>,
    /// Without what cannot be undone.
    pub partial: bool,
    /// Turns for which sub-agents still work: none of them can be.
    pub worked_for: Vec<TurnId>,
}

/// What has been undone or redone.
#[derive(Debug)]
pub struct UndoDone {
    /// The turns, in the order in which it was done.
    pub turn_ids: Vec<TurnId>,
    /// What happened to which path: also to those that were as they are to be before it was asked for.
    pub files: Vec<FileChange>,
    /// These paths, in all.
    pub file_count: u64,
    /// Paths of these turns that stay as they are.
    pub left: Vec<PathReason>,
    numbers: Vec<i64>,
    direction: Direction,
}

/// One path on its way.
#[derive(Debug)]
pub(super) struct Way {
    /// As it has to be now.
    pub(super) from: FileState,
    /// As it is to be.
    pub(super) to: FileState,
    pub(super) mixed: bool,
}

/// One path that changes.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) path: PathBuf,
    pub(super) from: FileState,
    pub(super) to: FileState,
    /// What was there before it was looked into: what comes afterwards is somebody else's.
    pub(super) seen: Option<Metadata>,
}

impl Step {
    /// A directory makes way for something else.
    pub(super) fn makes_way(&self) -> bool {
        self.from.is_directory() && matches!(self.to, FileState::File { .. } | FileState::Link { .. })
    }
}

fn failed(error: &StoreError) -> ApiError {
    ApiError::internal(error.to_string())
}

impl Recording {
    /// Undoes or redoes turns of a session in which no turn runs. `records` is where notes about it lie. What was done is
    /// noted by [`Recording::undone`]. Blocking.
    ///
    /// # Errors
    /// `NOT_FOUND` for a turn without a record; `CONFLICT` with all paths that stand against it: then nothing has changed.
    pub fn undo(
        &self,
        session: &SessionId,
        (workspace, records): (&Workspace, &Path),
        wanted: &UndoWanted,
    ) -> Result<UndoDone, ApiError> {
        let all = self.store.turns(session).map_err(|e| failed(&e))?;
        let workspace = &self.where_turns_worked(workspace, &all);
        recover(workspace, records);
        let chosen = chosen(&all, wanted)?;
        if let Some(turn) = chosen.iter().find(|turn| wanted.worked_for.contains(&turn.id)) {
            let message = format!("a sub-agent still works for turn {}; end it or wait for its end", turn.id);
            return Err(ApiError::conflict(message).with_details(json!({ "why": "busy", "turnId": turn.id })));
        }
        let ways = self.ways(&chosen, wanted.direction).map_err(|e| failed(&e))?;
        let _turns = take_turns(ways.keys().map(PathBuf::as_path));
        let mut opened = Opened::new(workspace, &ways);
        let judged = judge((workspace, &opened), ways, wanted.partial);
        if !judged.conflicts.is_empty() {
            return Err(refused(workspace, wanted.direction, &judged.conflicts));
        }
        let stayed = self.perform((workspace, records), &judged.steps)?;
        opened.forget(&judged.steps);
        drop(opened);
        let mut left: Vec<PathReason> = uncovered(&self.store, workspace, &chosen).map_err(|e| failed(&e))?;
        let named = |(path, reason): (PathBuf, String)| PathReason { path: shown(workspace, &path), reason };
        left.extend(judged.left.into_iter().chain(stayed).map(named));
        let mut files = Vec::new();
        let step = |step: Step| PathChange { path: step.path, before: step.from, after: step.to, mixed: false };
        let mut changes: Vec<PathChange> = judged.steps.into_iter().map(step).chain(judged.done).collect();
        changes.sort_by(|a, b| a.path.cmp(&b.path));
        for change in changes.iter().take(FILES_MAX) {
            files.push(file_change(&self.store, workspace, (change, 0)).map_err(|e| failed(&e))?.0);
        }
        files.iter_mut().for_each(|file| file.diff = None);
        Ok(UndoDone {
            turn_ids: chosen.iter().map(|turn| turn.id.clone()).collect(),
            files,
            file_count: changes.len() as u64,
            left,
            numbers: chosen.iter().map(|turn| turn.number).collect(),
            direction: wanted.direction,
        })
    }

    /// Notes that it was done. Blocking.
    ///
    /// # Errors
    /// `INTERNAL`; it may be asked for again.
    pub fn undone(&self, done: &UndoDone) -> Result<(), ApiError> {
        self.store.set_undone(&done.numbers, done.direction == Direction::Undo).map_err(|e| failed(&e))
    }

    /// From where to where each path goes, turn by turn.
    pub(super) fn ways(
        &self,
        turns: &[&RecordedTurn],
        direction: Direction,
    ) -> Result<BTreeMap<PathBuf, Way>, StoreError> {
        let mut ways: BTreeMap<PathBuf, Way> = BTreeMap::new();
        for turn in turns {
            for PathChange { path, before, after, mixed } in self.store.changes(turn.number)? {
                let (from, to) = match direction {
                    Direction::Undo => (after, before),
                    Direction::Redo => (before, after),
                };
                match ways.get_mut(&path) {
                    Some(way) => {
                        way.mixed |= mixed || way.to != from;
                        way.to = to;
                    }
                    None => drop(ways.insert(path, Way { from, to, mixed })),
                }
            }
        }
        Ok(ways)
    }

    /// Does it. What is left of it stays as it is.
    pub(super) fn perform(
        &self,
        (workspace, records): (&Workspace, &Path),
        steps: &[Step],
    ) -> Result<Vec<(PathBuf, String)>, ApiError> {
        let ways: BTreeSet<&Path> = steps.iter().filter(|step| step.makes_way()).map(|step| &*step.path).collect();
        let goes_with_another = |path: &Path| path.ancestors().skip(1).any(|above| ways.contains(above));
        let mut changes = Vec::new();
        for Step { path, from, to, seen } in steps {
            let after = match to {
                // Its permissions come afterwards.
                FileState::Directory { .. } if from.is_directory() => continue,
                FileState::Directory { mode } => Some(After::directory(*mode)),
                FileState::File { mode, bytes, content } => {
                    let (store, id) = (Arc::clone(&self.store), *content);
                    let missing = || io::Error::other("its content is no longer kept");
                    let fetch = move || store.content(&id).map_err(io::Error::other)?.ok_or_else(missing);
                    let fetched = Fetched { bytes: *bytes, fetch: Box::new(fetch) };
                    let like = seen.clone().filter(Metadata::is_file);
                    Some(After { mode: Some(*mode), ..After::fetched(fetched, like) })
                }
                FileState::Link { target } => Some(After::link(target.clone())),
                // One that holds something by now stays.
                FileState::Absent if from.is_directory() && !goes_with_another(path) => continue,
                FileState::Absent | FileState::Unkept { .. } | FileState::Unfinished => None,
            };
            changes.push(Change { path: path.clone(), before: seen.clone(), after });
        }
        let undone = commit(workspace, records, &changes);
        undone.map_err(|e| ApiError::conflict(format!("nothing was changed: {e}")))?;
        Ok(directories(workspace, steps))
    }
}

/// Removes directories and sets their permissions once the files are in their places. Those that stay as they are, and why.
fn directories(workspace: &Workspace, steps: &[Step]) -> Vec<(PathBuf, String)> {
    let mut left = Vec::new();
    // What is deeper comes later in the order of paths.
    for Step { path, .. } in steps.iter().rev().filter(|step| step.from.is_directory() && step.to == FileState::Absent)
    {
        let removed = workspace
            .reach(path)
            .and_then(|place| Ok(rustix::fs::unlinkat(place.directory(), place.name(), AtFlags::REMOVEDIR)?));
        match removed {
            Err(e) if !is_gone(&e) => left.push((path.clone(), format!("it stays: {e}"))),
            Ok(()) | Err(_) => {}
        }
    }
    for Step { path, to, .. } in steps.iter().rev() {
        let FileState::Directory { mode } = to else { continue };
        if let Err(e) = workspace.reach(path).and_then(|place| place.set_permissions(*mode)) {
            left.push((path.clone(), format!("its permissions cannot be set to {mode:o}: {e}")));
        }
    }
    left
}

/// The turns that are meant, in the order in which they go.
fn chosen<'t>(all: &'t [RecordedTurn], wanted: &UndoWanted) -> Result<Vec<&'t RecordedTurn>, ApiError> {
    let undone = wanted.direction == Direction::Redo;
    let word = if undone { "redone" } else { "undone" };
    let counts = |turn: &&RecordedTurn| (turn.undone > 0) == undone && (turn.file_count > 0 || turn.dropped);
    let mut open: Vec<&RecordedTurn> = all.iter().filter(counts).collect();
    match wanted.direction {
        Direction::Undo => open.reverse(),
        Direction::Redo => open.sort_by_key(|turn| std::cmp::Reverse(turn.undone)),
    }
    let count = match &wanted.turn {
        None if open.is_empty() => {
            return Err(ApiError::conflict(format!("no changes of this session are there to be {word}")));
        }
        None => 1,
        Some(id) => match (open.iter().position(|turn| turn.id == *id), all.iter().any(|turn| turn.id == *id)) {
            (Some(at), _) => at + 1,
            (None, true) => return Err(ApiError::conflict(format!("turn {id} has nothing left to be {word}"))),
            (None, false) => return Err(ApiError::not_found(format!("recorded changes of turn {id}"))),
        },
    };
    open.truncate(count);
    match open.iter().find(|turn| turn.dropped) {
        Some(turn) => {
            let message = format!("what turn {} changed was dropped to make room, so it cannot be {word}", turn.id);
            Err(ApiError::conflict(message))
        }
        None => Ok(open),
    }
}

fn refused(workspace: &Workspace, direction: Direction, conflicts: &[(PathBuf, String)]) -> ApiError {
    let word = if direction == Direction::Undo { "undone" } else { "redone" };
    let first = conflicts.first().map(|(path, reason)| format!("{}: {reason}", shown(workspace, path)));
    let more = conflicts.len().saturating_sub(1);
    let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
    let message = format!("nothing was {word}: {}{more}", first.unwrap_or_default());
    let list = conflicts.iter().take(CONFLICTS_MAX);
    let list: Vec<_> = list.map(|(path, reason)| json!({ "path": shown(workspace, path), "reason": reason })).collect();
    ApiError::conflict(message).with_details(json!({ "conflicts": list, "conflictCount": conflicts.len() }))
}
