//! Holds what is to be undone or redone against what is there: what can be done, what stands against it, what stays.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::look::{MODE, Room, below, look};
use super::report::{ELSEWHERE, MIXED};
use super::undo::{Step, Way};
use crate::base::limit;
use crate::base::workspace::Workspace;
use crate::store::snapshots::{FileState, PathChange};

/// What the owner of a file needs to read it.
const READ: u32 = 0o400;
/// What the owner of a directory needs to work in it.
const WORK: u32 = 0o700;

/// What is to be done, and what stands against it.
#[derive(Debug, Default)]
pub(super) struct Judged {
    pub(super) steps: Vec<Step>,
    /// What is as it is to be already: one that was interrupted has done it, or somebody by hand.
    pub(super) done: Vec<PathChange>,
    pub(super) conflicts: Vec<(PathBuf, String)>,
    pub(super) left: Vec<(PathBuf, String)>,
}

/// Files and directories that turns have closed, also for us: open for as long as this is there, so that they can be held
/// against what is known and be changed.
#[derive(Debug)]
pub(super) struct Opened<'w> {
    workspace: &'w Workspace,
    /// With the permissions that they had.
    paths: BTreeMap<PathBuf, u32>,
}

impl<'w> Opened<'w> {
    /// Opens what is as the turns have closed it.
    pub(super) fn new(workspace: &'w Workspace, ways: &BTreeMap<PathBuf, Way>) -> Self {
        let mut opened = Self { workspace, paths: BTreeMap::new() };
        // Outer ones come first.
        for (path, way) in ways {
            let Some((mode, needed)) = closed(&way.from) else { continue };
            let Ok(place) = workspace.reach(path) else { continue };
            let is_it = place.look().is_ok_and(|found| {
                let kind = if way.from.is_directory() { found.is_dir() } else { found.is_file() };
                kind && found.mode() & MODE == mode
            });
            if is_it && place.set_permissions(mode | needed).is_ok() {
                opened.paths.insert(path.clone(), mode);
            }
        }
        opened
    }

    /// These have been changed, and have the permissions that they are to have.
    pub(super) fn forget(&mut self, steps: &[Step]) {
        for step in steps {
            self.paths.remove(&step.path);
        }
    }

    /// What is there, with the permissions that it had.
    fn as_it_was(&self, path: &Path, mut now: FileState) -> FileState {
        if let (FileState::File { mode, .. } | FileState::Directory { mode }, Some(had)) =
            (&mut now, self.paths.get(path))
        {
            *mode = *had;
        }
        now
    }
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        for (path, mode) in self.paths.iter().rev() {
            if let Err(error) = self.workspace.reach(path).and_then(|place| place.set_permissions(*mode)) {
                tracing::warn!(path = %path.display(), %error, "permissions of a path could not be put back");
            }
        }
    }
}

/// The permissions of what its owner cannot look into, and those that are missing.
fn closed(state: &FileState) -> Option<(u32, u32)> {
    let (mode, needed) = match state {
        FileState::File { mode, .. } => (*mode, READ),
        FileState::Directory { mode } => (*mode, WORK),
        FileState::Absent | FileState::Link { .. } | FileState::Unkept { .. } | FileState::Unfinished => return None,
    };
    (mode & needed != needed).then_some((mode, needed))
}

/// Holds each path against what is there.
pub(super) fn judge(
    (workspace, opened): (&Workspace, &Opened<'_>),
    ways: BTreeMap<PathBuf, Way>,
    partial: bool,
) -> Judged {
    let mut judged = Judged::default();
    let mut links: BTreeSet<PathBuf> = BTreeSet::new();
    for (path, Way { from, to, mixed }) in ways {
        if !workspace.contains(&path) {
            let stands = if partial { &mut judged.left } else { &mut judged.conflicts };
            stands.push((path, ELSEWHERE.to_owned()));
            continue;
        }
        let seen = workspace.look(&path).ok();
        let now = opened.as_it_was(&path, look(workspace, &path, Room::of_file(limit::SNAPSHOT_FILE_BYTES_MAX)).state);
        // Where a link is that is judged itself, nothing lies below, wherever it leads.
        let is_below_link = path.ancestors().skip(1).any(|above| links.contains(above));
        let now = if is_below_link { FileState::Absent } else { now };
        if matches!(now, FileState::Link { .. }) {
            links.insert(path.clone());
        }
        if is_done(&now, (&from, &to)) {
            if from != to {
                judged.done.push(PathChange { path, before: from, after: to, mixed });
            }
            continue;
        }
        if mixed {
            judged.conflicts.push((path, MIXED.to_owned()));
            continue;
        }
        let unknown = [&from, &to].into_iter().find_map(|state| match state {
            FileState::Unkept { reason } => Some(reason.clone()),
            FileState::Unfinished => Some("the server ended while it was being changed".to_owned()),
            FileState::Absent | FileState::File { .. } | FileState::Link { .. } | FileState::Directory { .. } => None,
        });
        match unknown {
            Some(reason) if partial => judged.left.push((path, reason)),
            Some(reason) => judged.conflicts.push((path, reason)),
            None if !is_as_left(&now, (&from, &to)) => {
                judged.conflicts.push((path, format!("somebody else has changed it since: {}", differs(&now, &from))));
            }
            None => judged.steps.push(Step { path, from: now, to, seen }),
        }
    }
    leave_what_is_in_the_way(workspace, &mut judged, partial);
    if partial {
        leave_what_has_no_place(workspace, &mut judged);
    }
    judged
}

/// A directory makes way for something else only when all that lies in it goes.
fn leave_what_is_in_the_way(workspace: &Workspace, judged: &mut Judged, partial: bool) {
    let going: BTreeSet<&Path> =
        judged.steps.iter().filter(|step| step.to == FileState::Absent).map(|step| &*step.path).collect();
    let known: BTreeSet<&Path> = judged.conflicts.iter().map(|(path, _)| &**path).collect();
    let (mut staying, mut conflicts) = (Vec::new(), Vec::new());
    for top in judged.steps.iter().filter(|step| step.makes_way()) {
        let found = strangers(workspace, &top.path, &going);
        if let (Some((_, why)), true) = (found.first(), partial) {
            staying.push((top.path.clone(), why.clone()));
        } else {
            conflicts.extend(found.into_iter().filter(|(path, _)| !known.contains(&**path)));
        }
    }
    judged.steps.retain(|step| !staying.iter().any(|(path, _)| *path == step.path));
    judged.left.extend(staying);
    judged.conflicts.extend(conflicts);
}

/// What lies in a directory and is not `going`.
fn strangers(workspace: &Workspace, top: &Path, going: &BTreeSet<&Path>) -> Vec<(PathBuf, String)> {
    let (mut found, mut todo) = (Vec::new(), vec![top.to_owned()]);
    while let Some(next) = todo.pop() {
        let names = match below(workspace, &next) {
            Ok(names) => names,
            Err(e) => {
                found.push((next, format!("what lies in it cannot be listed: {e}")));
                continue;
            }
        };
        for path in names {
            if !going.contains(&*path) {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                found.push((path, format!("its directory is to make way, and \"{name}\" in it is somebody else's")));
            } else if workspace.look(&path).is_ok_and(|found| found.is_dir()) {
                todo.push(path);
            }
        }
    }
    found
}

/// What is to come into a directory stays away where something else stays in the directory's place.
fn leave_what_has_no_place(workspace: &Workspace, judged: &mut Judged) {
    let is_file = |path: &&Path| workspace.look(path).is_ok_and(|found| !found.is_dir());
    let stays: BTreeSet<PathBuf> =
        judged.left.iter().map(|(path, _)| &**path).filter(is_file).map(Path::to_owned).collect();
    for step in std::mem::take(&mut judged.steps) {
        match step.path.ancestors().skip(1).find(|above| stays.contains(*above)) {
            Some(above) if step.to != FileState::Absent => {
                let name = above.file_name().unwrap_or_default().to_string_lossy();
                judged.left.push((step.path.clone(), format!("\"{name}\" above it stays as it is")));
            }
            Some(_) | None => judged.steps.push(step),
        }
    }
}

/// Whether a path is as it is to be already.
fn is_done(now: &FileState, (from, to): (&FileState, &FileState)) -> bool {
    match (now, to) {
        // Whoever changed the permissions of a directory that is to be made has made it. One of ours that was interrupted is
        // open to its owner.
        (FileState::Directory { mode: now }, FileState::Directory { mode: to }) => {
            now == to || (!from.is_directory() && *now != to | WORK)
        }
        _ => now == to,
    }
}

/// Whether a path is as the turns left it; also when somebody was interrupted who had opened it.
fn is_as_left(now: &FileState, (from, to): (&FileState, &FileState)) -> bool {
    match (now, from, to) {
        // Directories that go, go with any permissions.
        (FileState::Directory { mode: now }, FileState::Directory { mode: from }, FileState::Directory { .. }) => {
            now == from || *now == from | WORK
        }
        (FileState::Directory { .. }, _, FileState::Directory { .. }) => true,
        (FileState::Directory { .. }, FileState::Directory { .. }, _) => true,
        (FileState::File { mode: now, content: a, .. }, FileState::File { mode: from, content: b, .. }, _) => {
            a == b && (now == from || *now == from | READ)
        }
        _ => now == from,
    }
}

fn differs(now: &FileState, wanted: &FileState) -> String {
    match (now, wanted) {
        (FileState::Absent, _) => "it is gone".to_owned(),
        (_, FileState::Absent) => "it is there again".to_owned(),
        (FileState::File { content: a, .. }, FileState::File { content: b, .. }) if a == b => {
            "it has other permissions".to_owned()
        }
        (FileState::Directory { .. }, FileState::Directory { .. }) => "it has other permissions".to_owned(),
        (_, _) => "it holds something else".to_owned(),
    }
}
