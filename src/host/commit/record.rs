//! The record of a change that is being made, and the file that it lies in.
//!
//! `<id>.preparing` says what may lie around; `<id>.committing` says what is to be done. Who works on a
//! change holds a lock on its file, so a record without a lock is one that nobody works on any more.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::disk::Disk;
use super::exact;
use super::{Change, Identity, Sorted, Unit, identity, sorted};
use crate::base::workspace::Workspace;

pub(super) const PREPARING: &str = "preparing";
pub(super) const COMMITTING: &str = "committing";
/// A record that is being written.
pub(super) const UNFINISHED: &str = "unfinished";
const LOCK: &str = "lock";
const VERSION: u32 = 2;

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    version: u32,
    /// Names the change, and the files that it makes.
    pub id: String,
    pub steps: Vec<Step>,
    /// Directories that are made for it, outer ones first.
    #[serde(with = "exact::list")]
    pub made: Vec<PathBuf>,
}

/// What is to be done at one path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Step {
    #[serde(with = "exact")]
    pub target: PathBuf,
    /// Where its new content lies until then. None: it is to be gone.
    #[serde(with = "exact::option")]
    pub fresh: Option<PathBuf>,
    pub fresh_id: Option<Identity>,
    /// The new content is a directory, and this lies in it.
    #[serde(default)]
    pub fresh_below: Option<Vec<Below>>,
    /// The second name of what was there.
    #[serde(with = "exact")]
    pub old: PathBuf,
    /// Who was there. None: nothing.
    pub old_id: Option<Identity>,
    /// What was there is a directory, and this lies in it.
    #[serde(default)]
    pub old_below: Option<Vec<Below>>,
}

/// Something in a directory that comes or goes as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Below {
    /// Where, from the directory on.
    #[serde(with = "exact")]
    pub path: PathBuf,
    /// It is a directory itself.
    pub directory: bool,
    /// Which file it is. None: it is a directory, or not written yet.
    pub id: Option<Identity>,
}

/// `files`, in `top`, and the directories that they lie in; outer ones first.
fn below<'c>(top: &Path, files: impl Iterator<Item = &'c Change>) -> Vec<Below> {
    let mut all = BTreeMap::new();
    for change in files {
        let Ok(path) = change.path.strip_prefix(top) else { continue };
        for above in path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
            all.insert(above.to_owned(), None);
        }
        let (directory, id) = match (&change.after, &change.before) {
            (Some(after), _) => (after.is_directory(), None),
            (None, Some(before)) => (before.is_dir(), Some(identity(before))),
            (None, None) => (false, None),
        };
        all.insert(path.to_owned(), (!directory).then_some(id));
    }
    let entry = |(path, file): (PathBuf, Option<Option<Identity>>)| Below {
        path,
        directory: file.is_none(),
        id: file.flatten(),
    };
    all.into_iter().map(entry).collect()
}

impl Record {
    pub(super) fn plan(tree: &Workspace, changes: &[Change]) -> Self {
        let id = uuid::Uuid::new_v4().simple().to_string();
        let beside = |path: &Path, name: String| path.parent().unwrap_or(Path::new("/")).join(name);
        let Sorted { units, made } = sorted(changes);
        let step = |(index, Unit { top, below: inside }): (usize, &Unit<'_>)| {
            let written = || inside.iter().copied().filter(|change| change.after.is_some());
            let taken = || inside.iter().copied().filter(|change| change.before.is_some() && change.after.is_none());
            let was_directory = top.before.as_ref().is_some_and(Metadata::is_dir);
            let is_tree = match &top.after {
                Some(after) => after.is_directory(),
                None => written().next().is_some(),
            };
            let fresh_below = is_tree.then(|| below(&top.path, written()));
            let comes = top.after.is_some() || fresh_below.is_some();
            Step {
                target: top.path.clone(),
                fresh: comes.then(|| beside(&top.path, format!(".simse-{id}-{index}.new"))),
                fresh_id: None,
                fresh_below,
                old: beside(&top.path, format!(".simse-{id}-{index}.old")),
                old_id: top.before.as_ref().map(identity),
                old_below: was_directory.then(|| below(&top.path, taken())),
            }
        };
        let steps = units.iter().enumerate().map(step).collect();
        let writes = units.iter().map(|unit| unit.top).filter(|change| change.after.is_some());
        let missing = |path: &&Path| tree.contains(path) && tree.look(path).is_err();
        let wanted = made.iter().map(|change| change.path.as_path());
        let wanted = wanted.chain(writes.filter_map(|change| change.path.parent()));
        // In the order of their names, so outer ones come first.
        let made: BTreeSet<PathBuf> =
            wanted.flat_map(|path| path.ancestors().take_while(missing).map(Path::to_owned)).collect();
        Self { version: VERSION, id, steps, made: made.into_iter().collect() }
    }

    /// The directories whose entries change.
    pub(super) fn directories(&self) -> BTreeSet<&Path> {
        self.steps.iter().filter_map(|step| step.target.parent()).collect()
    }

    /// Every path that it names lies in `tree` and still leads to itself, and none is more than it may be.
    pub(super) fn is_sound(&self, tree: &Workspace) -> bool {
        let inside = |path: &Path| tree.leads_to_itself(path);
        let beside = |step: &Step, path: &Path| {
            let own = format!(".simse-{}-", self.id);
            path.parent() == step.target.parent()
                && path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(&own))
        };
        let plain = |path: &Path| {
            path.components().next().is_some() && path.components().all(|part| matches!(part, Component::Normal(_)))
        };
        let sound = |step: &Step| {
            let fresh = step.fresh.as_ref().is_none_or(|fresh| beside(step, fresh));
            let below = step.fresh_below.iter().chain(&step.old_below).flatten().all(|below| plain(&below.path));
            inside(&step.target) && beside(step, &step.old) && fresh && below
        };
        (1..=VERSION).contains(&self.version)
            && self.steps.iter().all(sound)
            && self.made.iter().all(|path| inside(path))
    }
}

/// Keeps all others from looking at records and from making any, while one is made or looked at.
pub(super) fn lock_directory(records: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(records.join(LOCK))?;
    file.lock()?;
    Ok(file)
}

/// Makes the directory, for nobody else.
fn make_directory(records: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(records)?;
    if is_own(records)? {
        Ok(())
    } else {
        Err(io::Error::other("it belongs to somebody else, or others may write to it"))
    }
}

/// Whether the directory belongs to this user, and nobody else may write to it.
pub(super) fn is_own(records: &Path) -> io::Result<bool> {
    let found = fs::symlink_metadata(records)?;
    Ok(found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o022 == 0)
}

/// A record on disk, and its lock.
#[derive(Debug)]
pub(super) struct OpenRecord {
    directory: PathBuf,
    id: String,
    /// Their locks go when this does.
    files: Vec<File>,
}

impl OpenRecord {
    /// Writes down what may lie around from now on.
    pub(super) fn prepare(disk: &Disk<'_>, records: &Path, record: &Record) -> io::Result<Self> {
        make_directory(records)?;
        let mut open = Self { directory: records.to_owned(), id: record.id.clone(), files: Vec::new() };
        match open.write(disk, record, PREPARING) {
            Ok(()) => Ok(open),
            Err(error) => {
                if !disk.crashed() {
                    open.remove();
                }
                Err(error)
            }
        }
    }

    /// From here on the change counts as made.
    pub(super) fn commit(&mut self, disk: &Disk<'_>, record: &Record) -> io::Result<()> {
        self.write(disk, record, COMMITTING)
    }

    fn write(&mut self, disk: &Disk<'_>, record: &Record, state: &str) -> io::Result<()> {
        let bytes = serde_json::to_vec(record)?;
        let path = self.path(UNFINISHED);
        let lock = lock_directory(&self.directory)?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.lock()?;
        drop(lock);
        let written = disk.write_record(&mut file, &bytes);
        self.files.push(file);
        written?;
        disk.rename_record(&path, &self.path(state))?;
        disk.sync_records(&self.directory)
    }

    fn path(&self, state: &str) -> PathBuf {
        self.directory.join(format!("{}.{state}", self.id))
    }

    /// Takes it away: there is nothing left to be done. What counts most goes last.
    pub(super) fn remove(self) {
        for state in [UNFINISHED, PREPARING, COMMITTING] {
            if let Err(e) = fs::remove_file(self.path(state))
                && e.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(error = %e, "a record of a finished change could not be removed");
            }
        }
    }
}
