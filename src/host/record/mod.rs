//! Records what turns do to files, in the store of snapshots (ADR 0029).
//!
//! Tools that know their paths bracket each change: how the path was is on disk before the change begins. What a command changed
//! is found by two looks at the working directories, one before it and one after; each costs a system call a name, and reads
//! only what is new. A turn that runs no tool costs nothing.
//!
//! What a sub-agent does in its parent's place is in its own record and in that of the turn that started it, up to the root:
//! whoever gave the work can look at all of it, and undo it (ADR 0148).

mod beyond;
mod judge;
mod look;
mod origin;
mod pieces;
mod report;
mod tree;
mod undo;

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::base::workspace::Workspace;
use crate::base::{BoxFuture, limit};
use crate::protocol::{ChangeReport, SessionId, TurnId};
use crate::store::StoreError;
use crate::store::snapshots::{Addition, FileState, RecordedTurn, SnapshotStore};
use crate::tool::ChangeRecorder;

pub use report::DiffWanted;
pub use undo::{Direction, UndoDone, UndoWanted};

use look::{Found, Look, Room};
use origin::FileClock;
use pieces::Pieces;
use tree::Tree;

/// Records for all sessions of a server.
#[derive(Debug)]
pub struct Recording {
    store: Arc<SnapshotStore>,
    /// Where the contents of working directories lie while commands may change them, and what time it is there.
    clock: FileClock,
    /// Under which directories sessions may work: absolute, without links.
    roots: Vec<PathBuf>,
    /// What is known of the working directories of sessions, the one used last behind the others.
    trees: Mutex<VecDeque<(SessionId, Arc<Mutex<Tree>>)>>,
    /// Of turns that run, whether there may be anything in their records: sub-agents put something there too.
    used: Mutex<HashMap<TurnId, Weak<AtomicBool>>>,
}

/// A turn, and the session that it is of.
pub type TurnOf = (SessionId, TurnId);

impl Recording {
    /// Records there. `home` is a directory for files without names.
    pub fn new(store: Arc<SnapshotStore>, home: &Path) -> Self {
        Self { store, clock: FileClock::of(home), roots: Vec::new(), trees: Mutex::default(), used: Mutex::default() }
    }

    /// The same where sessions may work under these directories (absolute, without links): what a turn did in one of them
    /// is shown and undone also when its session works in another one by now.
    #[must_use]
    pub fn under(self, roots: Vec<PathBuf>) -> Self {
        Self { roots, ..self }
    }

    /// A session's workspace and beside it where its turns worked, as far as sessions may work there now.
    fn where_turns_worked(&self, workspace: &Workspace, turns: &[RecordedTurn]) -> Workspace {
        let directories = turns.iter().filter_map(|turn| turn.directory.as_deref());
        let allowed = |directory: &&Path| self.roots.iter().any(|root| directory.starts_with(root));
        workspace.beside(directories.filter(allowed))
    }

    /// Where it records.
    pub fn store(&self) -> &Arc<SnapshotStore> {
        &self.store
    }

    /// Sessions of whose working directories something is known.
    pub fn trees(&self) -> usize {
        self.trees.lock().len()
    }

    /// The recorder of a turn that works there. `above`: the turns for which it works there, the nearest first.
    pub fn turn(
        self: &Arc<Self>,
        session: &SessionId,
        turn: &TurnId,
        (workspace, above): (Workspace, Vec<TurnOf>),
    ) -> Arc<Recorder> {
        let workspace = Arc::new(workspace);
        let recording = Arc::clone(self);
        let turns = std::iter::once((session.clone(), turn.clone())).chain(above).collect();
        let used = Arc::new(AtomicBool::new(false));
        self.watch(turn, &used);
        Arc::new(Recorder { recording, session: session.clone(), turns, workspace, running: Arc::default(), used })
    }

    /// Keeps in sight whether there is anything in the record of a turn that runs.
    fn watch(&self, turn: &TurnId, used: &Arc<AtomicBool>) {
        let mut all = self.used.lock();
        if all.len() == all.capacity() {
            all.retain(|_, used| used.strong_count() > 0);
        }
        all.insert(turn.clone(), Arc::downgrade(used));
    }

    /// Something comes into the record of a turn, which may be over.
    fn mark_used(&self, turn: &TurnId) {
        if let Some(used) = self.used.lock().get(turn).and_then(Weak::upgrade) {
            used.store(true, Ordering::Release);
        }
    }

    /// What is known of a session's working directories.
    fn tree(&self, session: &SessionId) -> Arc<Mutex<Tree>> {
        let mut trees = self.trees.lock();
        let at = trees.iter().position(|(id, _)| id == session);
        let tree = at.and_then(|at| trees.remove(at)).map_or_else(Arc::default, |(_, tree)| tree);
        trees.push_back((session.clone(), Arc::clone(&tree)));
        if trees.len() > limit::SNAPSHOT_TREES_MAX {
            trees.pop_front();
        }
        tree
    }

    /// Forgets a session that is deleted. Blocking.
    ///
    /// # Errors
    /// What the store says.
    pub fn forget(&self, session: &SessionId) -> Result<(), StoreError> {
        self.trees.lock().retain(|(id, _)| id != session);
        self.store.forget(session)
    }
}

/// Records what one turn does.
#[derive(Debug, Clone)]
pub struct Recorder {
    recording: Arc<Recording>,
    session: SessionId,
    /// The turn itself, and those for which it works.
    turns: Arc<[TurnOf]>,
    workspace: Arc<Workspace>,
    /// Commands that run. Changes while the tree is held.
    running: Arc<AtomicUsize>,
    /// Whether there may be anything in the record.
    used: Arc<AtomicBool>,
}

impl Recorder {
    /// Puts it into the record. A record that cannot be written is told in the log: the call itself is more important.
    fn add(&self, addition: Addition) {
        let addition = Addition { directory: Some(self.workspace.working_directory().to_owned()), ..addition };
        for (session, turn) in &*self.turns {
            self.recording.mark_used(turn);
            if let Err(error) = self.recording.store.add(session, turn, &addition) {
                tracing::error!(%session, %turn, %error, "what a turn does to files could not be recorded");
            }
        }
    }

    fn command(&self, begins: bool) {
        for (session, turn) in &*self.turns {
            if let Err(error) = self.recording.store.command(session, turn, begins) {
                tracing::error!(%session, %turn, %error, "a command could not be noted");
            }
        }
    }

    fn uncovered(&self, path: &Path, reason: &str) {
        let uncovered = vec![(path.to_owned(), reason.to_owned())];
        self.add(Addition { uncovered, ..Addition::default() });
    }

    /// Does it on the blocking pool, also when nobody waits any more.
    fn blocking(&self, work: impl FnOnce(&Self) + Send + 'static) -> BoxFuture<'_, ()> {
        let this = self.clone();
        // One that panicked has recorded nothing.
        Box::pin(async move { drop(tokio::task::spawn_blocking(move || work(&this)).await) })
    }

    fn begin_command(&self) {
        let tree = self.recording.tree(&self.session);
        let mut tree = tree.lock();
        self.command(true);
        // One that runs beside others has begun to change things already.
        if self.running.fetch_add(1, Ordering::AcqRel) > 0 {
            return;
        }
        if let Err(why) = tree.learn(&self.workspace, &self.recording.clock) {
            self.uncovered(self.workspace.working_directory(), &why);
        }
    }

    fn end_command(&self) {
        let tree = self.recording.tree(&self.session);
        let mut tree = tree.lock();
        let mut pieces = Pieces::new(self);
        let told = tree.differences(&self.workspace, &mut |difference| {
            pieces.put(difference.path, (difference.before, difference.after));
            pieces.left()
        });
        let mut addition = pieces.into_rest();
        match told {
            Ok(()) => {
                let told = |(path, what): &(PathBuf, &str)| (path.clone(), (*what).to_owned());
                addition.uncovered.extend(tree.beyond.iter().take(limit::UNCOVERED_MAX).map(told));
            }
            Err(why) => addition.uncovered.push((self.workspace.working_directory().to_owned(), why)),
        }
        let over = tree.passed_over.iter().take(limit::UNCOVERED_MAX);
        let over: Vec<_> = over.map(|path| (path.clone(), "a directory that is not looked into".to_owned())).collect();
        addition.uncovered.extend(over);
        if self.running.fetch_sub(1, Ordering::AcqRel) > 1 {
            // The next look has to know what is new by now.
            let learned = tree.learn(&self.workspace, &self.recording.clock);
            addition.uncovered.extend(learned.err().map(|why| (self.workspace.working_directory().to_owned(), why)));
        }
        self.add(addition);
        self.command(false);
    }
}

impl ChangeRecorder for Recorder {
    fn before(&self, paths: &[PathBuf]) -> Vec<PathBuf> {
        let (mut seen, mut pieces) = (Vec::new(), Pieces::new(self));
        let uncovered = Look::at(&self.workspace, paths, &mut |path, found| {
            seen.push(path.clone());
            pieces.put(path, (found, Found::of(FileState::Unfinished)));
            pieces.left()
        });
        self.add(Addition { uncovered, ..pieces.into_rest() });
        seen
    }

    fn after(&self, paths: &[PathBuf], seen: &[PathBuf]) {
        let mut missing: BTreeSet<&Path> = seen.iter().map(PathBuf::as_path).collect();
        let mut pieces = Pieces::new(self);
        let uncovered = Look::at(&self.workspace, paths, &mut |path, now| {
            // What is below a directory that came here was not there.
            let before = if missing.remove(&*path) { FileState::Unfinished } else { FileState::Absent };
            pieces.put(path, (Found::of(before), now));
            pieces.left()
        });
        for path in missing {
            let room = Room { file: limit::SNAPSHOT_FILE_BYTES_MAX, call: pieces.left() };
            let now = look::look(&self.workspace, path, room);
            pieces.put(path.to_owned(), (Found::of(FileState::Unfinished), now));
        }
        self.add(Addition { uncovered, ..pieces.into_rest() });
    }

    fn command_begins(&self) -> BoxFuture<'_, ()> {
        self.blocking(Self::begin_command)
    }

    fn command_ended(&self) -> BoxFuture<'_, ()> {
        self.blocking(Self::end_command)
    }

    fn report(&self) -> BoxFuture<'_, Option<ChangeReport>> {
        let (recording, turns) = (Arc::clone(&self.recording), Arc::clone(&self.turns));
        let workspace = Arc::clone(&self.workspace);
        if !self.used.load(Ordering::Acquire) {
            return Box::pin(std::future::ready(None));
        }
        Box::pin(async move {
            let work =
                move || turns.first().and_then(|(session, turn)| recording.turn_report(session, turn, &workspace));
            tokio::task::spawn_blocking(work).await.ok().flatten()
        })
    }
}
