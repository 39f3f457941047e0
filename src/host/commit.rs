//! Changes several files at once: all of them, or none.
//!
//! New contents are written beside their places first. Then a record of what is to be done is put on
//! disk, and from that moment on the change counts as made: what was left undone by a crash is done by
//! [`recover`]. Before that moment a crash leaves files that nobody sees, and `recover` takes them
//! away. When something fails on the way, what was done is undone, from copies that are kept until the end.
//!
//! Where a file and a directory take each other's place, all that changes below is one step: the new tree is built beside,
//! the old one goes aside as a whole.
//!
//! Invariant: after a commit, a failed one, or a crash and a recovery, the files are all as they were
//! or all as they were to be; a file that somebody else has changed since stays as that one left it. Every step opens
//! the directory that it works in by [`crate::base::place`], so that none leads out of the workspace.
//! (docs/adr/0012)

mod disk;
mod exact;
mod record;
mod recovery;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::io;
use std::ops::Bound;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use disk::Disk;
use record::{Below, OpenRecord, Record, Step};

pub(super) use recovery::recover;

use super::search::{Entries, as_path};
use crate::base::workspace::Workspace;

/// One file that changes; or a directory that comes, or that goes with one above it.
#[derive(Debug)]
pub(super) struct Change {
    /// Absolute, without links in its directory.
    pub path: PathBuf,
    /// What is there now.
    pub before: Option<Metadata>,
    /// What is to be there: nothing, or these bytes.
    pub after: Option<After>,
}

/// What a file becomes.
#[derive(Debug)]
pub(super) struct After {
    /// Its content, where it is not fetched.
    pub bytes: Vec<u8>,
    /// Where its content is fetched from when it is written.
    pub fetched: Option<Fetched>,
    /// Whose mode and owner it takes. None: those of a new file.
    pub like: Option<Metadata>,
    /// Whether it may be run. None: as `like`.
    pub executable: Option<bool>,
    /// Its permissions, whatever it is like. None: as the others say.
    pub mode: Option<u32>,
    /// What it is.
    pub kind: AfterKind,
}

/// A content that is fetched when it is needed.
pub(super) struct Fetched {
    /// Its size.
    pub bytes: u64,
    /// Fetches it.
    pub fetch: Box<dyn Fn() -> io::Result<Vec<u8>> + Send + Sync>,
}

impl std::fmt::Debug for Fetched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fetched").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// What a path becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterKind {
    /// A regular file.
    File,
    /// A symbolic link: the bytes are where it leads.
    Link,
    /// A directory, whose owner may work in it whatever else its permissions are.
    Directory,
}

impl After {
    /// A file with this content, like another or new.
    pub fn file(bytes: Vec<u8>, like: Option<Metadata>) -> Self {
        Self { bytes, fetched: None, like, executable: None, mode: None, kind: AfterKind::File }
    }

    /// The same, with a content that is in memory only while it is written.
    pub fn fetched(fetched: Fetched, like: Option<Metadata>) -> Self {
        Self { fetched: Some(fetched), ..Self::file(Vec::new(), like) }
    }

    /// A link that leads there.
    pub fn link(target: Vec<u8>) -> Self {
        Self { kind: AfterKind::Link, ..Self::file(target, None) }
    }

    /// A directory with these permissions.
    pub fn directory(mode: u32) -> Self {
        Self { kind: AfterKind::Directory, mode: Some(mode), ..Self::file(Vec::new(), None) }
    }

    fn is_directory(&self) -> bool {
        self.kind == AfterKind::Directory
    }
}

/// A file with this content, whatever its name. Numbers of files are given again, so its time and size count too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    device: u64,
    number: u64,
    bytes: u64,
    modified_s: i64,
    modified_ns: i64,
}

fn identity(found: &Metadata) -> Identity {
    Identity {
        device: found.dev(),
        number: found.ino(),
        bytes: found.len(),
        modified_s: found.mtime(),
        modified_ns: found.mtime_nsec(),
    }
}

/// Who is at a path of the tree. None: nothing.
fn identity_at(tree: &Workspace, path: &Path) -> Option<Identity> {
    tree.look(path).ok().map(|found| identity(&found))
}

/// What is done at one path: a change, and those below it where a file and a directory take each other's place.
#[derive(Debug)]
struct Unit<'c> {
    top: &'c Change,
    below: Vec<&'c Change>,
}

/// All changes, in their order.
#[derive(Debug)]
struct Sorted<'c> {
    units: Vec<Unit<'c>>,
    /// Directories that come where nothing is. They are made beforehand.
    made: Vec<&'c Change>,
}

fn sorted(changes: &[Change]) -> Sorted<'_> {
    let written: BTreeSet<&Path> =
        changes.iter().filter(|change| change.after.is_some()).map(|change| change.path.as_path()).collect();
    let holds_written = |path: &Path| {
        let mut next = written.range::<Path, _>((Bound::Excluded(path), Bound::Unbounded));
        next.next().is_some_and(|next| next.starts_with(path))
    };
    let turns = |change: &&Change| {
        let was_directory = change.before.as_ref().map(Metadata::is_dir);
        match (was_directory, &change.after) {
            (Some(was), Some(after)) => was != after.is_directory(),
            (Some(false), None) => holds_written(&change.path),
            (Some(true) | None, None) | (None, Some(_)) => false,
        }
    };
    let tops: BTreeSet<&Path> = changes.iter().filter(turns).map(|change| change.path.as_path()).collect();
    let above =
        |change: &Change| change.path.ancestors().skip(1).find(|above| tops.contains(above)).map(Path::to_owned);
    let mut below: BTreeMap<PathBuf, Vec<&Change>> = BTreeMap::new();
    let (mut units, mut made) = (Vec::new(), Vec::new());
    for change in changes {
        match above(change) {
            Some(top) => below.entry(top).or_default().push(change),
            None if change.after.as_ref().is_some_and(After::is_directory) && change.before.is_none() => {
                made.push(change);
            }
            None => units.push(Unit { top: change, below: Vec::new() }),
        }
    }
    for unit in &mut units {
        unit.below = below.remove(&unit.top.path).unwrap_or_default();
    }
    Sorted { units, made }
}

/// Whether a directory holds what is known to lie in it, and nothing else.
fn is_as_known(tree: &Workspace, root: &Path, below: &[Below]) -> io::Result<bool> {
    let known: BTreeSet<&Path> = below.iter().map(|below| below.path.as_path()).collect();
    let inner = below.iter().filter(|below| below.directory).map(|below| Some(below.path.as_path()));
    for directory in std::iter::once(None).chain(inner) {
        let open = tree.open_directory(&directory.map_or_else(|| root.to_owned(), |inner| root.join(inner)))?;
        let entries = Entries::read(open.as_fd())?;
        let foreign = |name: &[u8]| !known.contains(directory.unwrap_or(Path::new("")).join(as_path(name)).as_path());
        if entries.more || entries.iter().any(|(name, _)| foreign(name)) {
            return Ok(false);
        }
    }
    let mut files = below.iter().filter(|below| !below.directory);
    Ok(files.all(|file| file.id.is_some() && identity_at(tree, &root.join(&file.path)) == file.id))
}

/// A change that was not made.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommitError {
    /// Nothing has changed.
    #[error("cannot {doing} \"{path}\": {cause}", path = .path.display())]
    Undone {
        /// A verb phrase.
        doing: &'static str,
        /// What it was about.
        path: PathBuf,
        /// The system's own words.
        #[source]
        cause: io::Error,
    },
    /// Somebody else has changed the file in between; nothing has changed by us.
    #[error("\"{}\" was changed by somebody else in the meantime: read it again", .0.display())]
    Overtaken(PathBuf),
    /// It is not what it was, and could not be put back.
    #[error("the files are changed in part, and could not be put back: {0}. The next call tries it again")]
    Stuck(io::Error),
}

impl CommitError {
    fn at<'p>(doing: &'static str, path: &'p Path) -> impl FnOnce(io::Error) -> Self + use<'p> {
        move |cause| Self::Undone { doing, path: path.to_owned(), cause }
    }
}

/// Makes all changes in `tree`, or none. `records` is where notes about it lie.
///
/// # Errors
/// [`CommitError`]; but for [`CommitError::Stuck`] all files are as they were.
pub(super) fn commit(tree: &Workspace, records: &Path, changes: &[Change]) -> Result<(), CommitError> {
    commit_on(&Disk::real(tree), records, changes)
}

fn commit_on(disk: &Disk<'_>, records: &Path, changes: &[Change]) -> Result<(), CommitError> {
    if changes.is_empty() {
        return Ok(());
    }
    let mut record = Record::plan(disk.tree, changes);
    let mut open =
        OpenRecord::prepare(disk, records, &record).map_err(CommitError::at("write down the change in", records))?;
    let prepared = prepare(disk, &mut record, changes)
        .and_then(|()| open.commit(disk, &record).map_err(CommitError::at("write down the change in", records)));
    if let Err(error) = prepared {
        if !disk.crashed() {
            recovery::drop_fresh(disk.tree, &record);
            open.remove();
        }
        return Err(error);
    }
    if let Err(error) = perform(disk, &record, changes) {
        if disk.crashed() {
            return Err(error);
        }
        recovery::backward(&Disk::real(disk.tree), &record).map_err(CommitError::Stuck)?;
        open.remove();
        return Err(error);
    }
    recovery::finish(disk, &record);
    if !disk.crashed() {
        open.remove();
    }
    Ok(())
}

/// Makes directories, and writes new contents beside their places.
fn prepare(disk: &Disk<'_>, record: &mut Record, changes: &[Change]) -> Result<(), CommitError> {
    let Sorted { units, made } = sorted(changes);
    for directory in &record.made {
        let mode = made.iter().find(|change| change.path == *directory).and_then(|change| change.after.as_ref()?.mode);
        let done = match (disk.make_directory(directory), mode) {
            (Ok(()), Some(mode)) => disk.set_permissions(directory, mode),
            // Somebody else has made it.
            (Err(e), _) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            (done, _) => done,
        };
        done.map_err(CommitError::at("make the directory", directory))?;
    }
    for (step, unit) in record.steps.iter_mut().zip(units) {
        let Some(fresh) = &step.fresh else { continue };
        let written = match (&mut step.fresh_below, &unit.top.after) {
            (Some(below), _) => write_tree(disk, fresh, below, &unit),
            (None, Some(after)) => disk.write(fresh, after),
            (None, None) => continue,
        };
        step.fresh_id = Some(written.map_err(CommitError::at("write", &unit.top.path))?);
    }
    Ok(())
}

/// Writes a directory with all that is to lie in it.
fn write_tree(disk: &Disk<'_>, fresh: &Path, below: &mut [Below], unit: &Unit<'_>) -> io::Result<Identity> {
    let files: BTreeMap<&Path, &After> =
        unit.below.iter().filter_map(|change| Some((change.path.as_path(), change.after.as_ref()?))).collect();
    let finish = |at: &Path, path: &Path, after: Option<&After>| {
        disk.sync_directory(at)?;
        match after.or(files.get(path).copied()).and_then(|after| after.mode) {
            Some(mode) => disk.set_permissions(at, mode),
            None => Ok(()),
        }
    };
    disk.make_directory(fresh)?;
    for Below { path, directory, id } in below.iter_mut() {
        let at = fresh.join(&path);
        match files.get(unit.top.path.join(&path).as_path()) {
            Some(after) if !*directory => *id = Some(disk.write(&at, after)?),
            Some(_) | None => disk.make_directory(&at)?,
        }
    }
    for inner in below.iter().rev().filter(|below| below.directory) {
        finish(&fresh.join(&inner.path), &unit.top.path.join(&inner.path), None)?;
    }
    finish(fresh, &unit.top.path, unit.top.after.as_ref())?;
    Ok(identity(&disk.tree.look(fresh)?))
}

/// Puts everything in its place.
fn perform(disk: &Disk<'_>, record: &Record, changes: &[Change]) -> Result<(), CommitError> {
    let made = |change: &Change| record.made.contains(&change.path);
    for change in changes.iter().filter(|change| !made(change)) {
        if identity_at(disk.tree, &change.path) != change.before.as_ref().map(identity) {
            return Err(CommitError::Overtaken(change.path.clone()));
        }
    }
    for step in &record.steps {
        step.perform(disk).map_err(CommitError::at("change", &step.target))?;
    }
    let synced = record.directories().iter().try_for_each(|directory| disk.sync_directory(directory));
    synced.map_err(CommitError::at("put on disk the changes of", &changes[0].path))
}

impl Step {
    /// A file and a directory take each other's place, or two directories.
    fn turns(&self) -> bool {
        self.fresh_below.is_some() || self.old_below.is_some()
    }

    /// Puts what was there aside, and the new in its place. Also the rest of it.
    fn turn(&self, disk: &Disk<'_>, fresh: &Path) -> io::Result<()> {
        if identity_at(disk.tree, &self.old).is_none() {
            disk.rename_new(&self.target, &self.old)?;
        }
        if let Some(below) = &self.old_below
            && !is_as_known(disk.tree, &self.old, below)?
        {
            return Err(io::Error::other("somebody else has put something there, or changed it"));
        }
        disk.rename_new(fresh, &self.target)
    }

    /// Puts one file in its place, or takes it away. What was there stays reachable under the step's second name.
    fn perform(&self, disk: &Disk<'_>) -> io::Result<()> {
        if let (true, Some(fresh)) = (self.turns(), &self.fresh) {
            return self.turn(disk, fresh);
        }
        if self.old_id.is_some() {
            disk.keep(&self.target, &self.old)?;
        }
        match &self.fresh {
            Some(fresh) if self.old_id.is_some() => disk.rename(fresh, &self.target),
            Some(fresh) => disk.rename_new(fresh, &self.target),
            None => disk.remove(&self.target),
        }
    }
}

#[cfg(test)]
mod tests;
