//! Changes several files at once: all of them, or none.
//!
//! New contents are written beside their places first. Then a record of what is to be done is put on
//! disk, and from that moment on the change counts as made: what was left undone by a crash is done by
//! [`recover`]. Before that moment a crash leaves files that nobody sees, and `recover` takes them
//! away. When something fails on the way, what was done is undone, from copies that are kept until the end.
//!
//! Invariant: after a commit, a failed one, or a crash and a recovery, the files are all as they were
//! or all as they were to be; a file that somebody else has changed since stays as that one left it. Every step opens
//! the directory that it works in by [`crate::base::place`], so that none leads out of the workspace.
//! (docs/adr/0012)

mod disk;
mod record;
mod recovery;

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use disk::Disk;
use record::{OpenRecord, Record, Step};

pub(super) use recovery::recover;

use crate::base::workspace::Workspace;

/// One file that changes.
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
    /// Its content.
    pub bytes: Vec<u8>,
    /// Whose mode and owner it takes. None: those of a new file.
    pub like: Option<Metadata>,
    /// Whether it may be run. None: as `like`.
    pub executable: Option<bool>,
    /// Its permissions, whatever it is like. None: as the others say.
    pub mode: Option<u32>,
    /// It is a symbolic link, and the bytes are where it leads.
    pub link: bool,
}

impl After {
    /// A file with this content, like another or new.
    pub fn file(bytes: Vec<u8>, like: Option<Metadata>) -> Self {
        Self { bytes, like, executable: None, mode: None, link: false }
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
    for directory in &record.made {
        match disk.make_directory(directory) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                return Err(CommitError::at("make the directory", directory)(e));
            }
            Ok(()) | Err(_) => {}
        }
    }
    for (step, change) in record.steps.iter_mut().zip(changes) {
        let Some(after) = &change.after else { continue };
        let Some(fresh) = &step.fresh else { continue };
        step.fresh_id = Some(disk.write(fresh, after).map_err(CommitError::at("write", &change.path))?);
    }
    Ok(())
}

/// Puts everything in its place.
fn perform(disk: &Disk<'_>, record: &Record, changes: &[Change]) -> Result<(), CommitError> {
    for change in changes {
        if identity_at(disk.tree, &change.path) != change.before.as_ref().map(identity) {
            return Err(CommitError::Overtaken(change.path.clone()));
        }
    }
    for step in &record.steps {
        step.perform(disk).map_err(CommitError::at("change", &step.target))?;
    }
    let synced = record.directories().iter().try_for_each(|directory| disk.sync_directory(directory));
    synced.map_err(CommitError::at("put on disk the changes of", &record.steps[0].target))
}

impl Step {
    /// Puts one file in its place, or takes it away. What was there stays reachable under the step's second name.
    fn perform(&self, disk: &Disk<'_>) -> io::Result<()> {
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
