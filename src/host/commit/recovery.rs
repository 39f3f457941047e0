//! Ends what a crash interrupted: forward when the change counted as made, backward when not.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::AtFlags;

use super::disk::Disk;
use super::record::{Below, COMMITTING, PREPARING, Record, Step, UNFINISHED, is_own, lock_directory};
use super::{identity_at, is_as_known};
use crate::base::workspace::Workspace;

/// Longest record that is read, in bytes: paths of the most files that one change has.
const RECORD_BYTES_MAX: u64 = 32 << 20;

/// Ends all changes of `tree` below `records` that nobody works on any more. How many.
///
/// A record that cannot be read, or one that leads outside, is left alone and told in the log.
pub(in crate::host) fn recover(tree: &Workspace, records: &Path) -> usize {
    recover_on(&Disk::real(tree), records)
}

pub(super) fn recover_on(disk: &Disk<'_>, records: &Path) -> usize {
    // Mostly there is no such directory, or nothing in it.
    if !has_records(records) || !is_own(records).unwrap_or(false) {
        return 0;
    }
    let Ok(_lock) = lock_directory(records) else { return 0 };
    let mut done = 0;
    // What counts as made first: its files must not be taken for left-overs.
    for state in [COMMITTING, PREPARING, UNFINISHED] {
        for path in with_state(records, state) {
            match end(disk, &path, state) {
                Ok(true) => done += 1,
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(record = %path.display(), %error, "a change that was interrupted could not be ended")
                }
            }
        }
    }
    done
}

fn has_records(records: &Path) -> bool {
    [COMMITTING, PREPARING, UNFINISHED].iter().any(|state| !with_state(records, state).is_empty())
}

fn with_state(records: &Path, state: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(records).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == state));
    paths.sort();
    paths
}

/// Ends one change. False: somebody works on it, or it is none of ours.
fn end(disk: &Disk<'_>, path: &Path, state: &str) -> io::Result<bool> {
    let file = match File::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        opened => opened?,
    };
    if file.try_lock().is_err() {
        return Ok(false);
    }
    if state == UNFINISHED {
        // Nothing was done under it.
        disk.remove_record(path)?;
        return Ok(false);
    }
    if file.metadata()?.len() > RECORD_BYTES_MAX {
        return Err(io::Error::other("the record is too long"));
    }
    let record: Record = serde_json::from_reader(io::BufReader::new(&file))?;
    if !record.is_sound(disk.tree) {
        return Ok(false);
    }
    if state == PREPARING {
        let counts = path.with_extension(COMMITTING).exists();
        if !counts {
            drop_fresh(disk.tree, &record);
        }
        disk.remove_record(path)?;
        return Ok(!counts);
    }
    match forward(disk, &record) {
        Ok(()) => finish(disk, &record),
        Err(error) if disk.crashed() => return Err(error),
        Err(error) => {
            tracing::warn!(%error, "an interrupted change could not be completed; it is taken back");
            backward(disk, &record)?;
        }
    }
    disk.remove_record(&path.with_extension(PREPARING))?;
    disk.remove_record(path)?;
    Ok(true)
}

/// Takes away what was written for a change that does not count; last first, so that what is left after a crash is a
/// beginning of it.
pub(super) fn drop_fresh(tree: &Workspace, record: &Record) {
    record.steps.iter().rev().for_each(|step| drop_fresh_of(tree, step));
    record.made.iter().rev().for_each(|directory| unlink(tree, directory, AtFlags::REMOVEDIR));
}

fn drop_fresh_of(tree: &Workspace, step: &Step) {
    let Some(fresh) = &step.fresh else { return };
    let Some(below) = &step.fresh_below else { return unlink(tree, fresh, AtFlags::empty()) };
    for Below { path, directory, .. } in below.iter().rev() {
        unlink(tree, &fresh.join(path), if *directory { AtFlags::REMOVEDIR } else { AtFlags::empty() });
    }
    unlink(tree, fresh, AtFlags::REMOVEDIR);
}

fn unlink(tree: &Workspace, path: &Path, flags: AtFlags) {
    // Not every file was written, and a directory that holds something by now stays.
    drop(tree.reach(path).map(|place| rustix::fs::unlinkat(place.directory(), place.name(), flags)));
}

/// Does what is left to be done.
fn forward(disk: &Disk<'_>, record: &Record) -> io::Result<()> {
    let changed = |step: &Step| io::Error::other(format!("{} was changed since", step.target.display()));
    for step in &record.steps {
        let now = identity_at(disk.tree, &step.target);
        let kept = || identity_at(disk.tree, &step.old).is_some();
        match &step.fresh {
            // Done, or somebody has taken it away.
            Some(fresh) if identity_at(disk.tree, fresh).is_none() => {}
            Some(fresh) if now.is_none() && (step.old_id.is_none() || kept()) => {
                if step.turns() {
                    step.turn(disk, fresh)?;
                } else {
                    disk.rename_new(fresh, &step.target)?;
                }
            }
            Some(fresh) if now.is_some() && now == step.old_id && step.turns() => step.turn(disk, fresh)?,
            Some(fresh) if now.is_some() && now == step.old_id => {
                if !kept() {
                    disk.keep(&step.target, &step.old)?;
                }
                disk.rename(fresh, &step.target)?;
            }
            Some(_) => return Err(changed(step)),
            None if now.is_some() && now == step.old_id => {
                if !kept() {
                    disk.keep(&step.target, &step.old)?;
                }
                disk.remove(&step.target)?;
            }
            None => {}
        }
    }
    record.directories().iter().try_for_each(|directory| disk.sync_directory(directory))
}

/// Takes back what was done. A file that somebody else has changed since stays.
pub(super) fn backward(disk: &Disk<'_>, record: &Record) -> io::Result<()> {
    for step in record.steps.iter().rev() {
        let now = identity_at(disk.tree, &step.target);
        let kept = identity_at(disk.tree, &step.old).is_some();
        let done = now.is_some() && now == step.fresh_id;
        if now.is_none() && kept {
            disk.rename_new(&step.old, &step.target)?;
        } else if step.turns() {
            turn_back(disk, step, done && kept)?;
        } else if done && kept {
            disk.rename(&step.old, &step.target)?;
        } else if done {
            disk.remove(&step.target)?;
        } else if kept {
            disk.remove(&step.old)?;
        }
    }
    drop_fresh(disk.tree, record);
    record.directories().iter().try_for_each(|directory| match disk.tree.open_directory(directory) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(_) | Err(_) => disk.sync_directory(directory),
    })
}

/// Takes back a step between a file and a directory, if it was made and nobody has touched what came of it.
fn turn_back(disk: &Disk<'_>, step: &Step, made: bool) -> io::Result<()> {
    let own = |below: &Vec<Below>| is_as_known(disk.tree, &step.target, below).unwrap_or(false);
    match &step.fresh {
        Some(fresh) if made && step.fresh_below.as_ref().is_none_or(own) => {
            disk.rename_new(&step.target, fresh)?;
            disk.rename_new(&step.old, &step.target)?;
            drop_fresh_of(disk.tree, step);
        }
        Some(_) | None if identity_at(disk.tree, &step.old).is_some() => {
            tracing::warn!(path = %step.old.display(), "what was there before a change was left here: somebody else has changed what came of it");
        }
        Some(_) | None => {}
    }
    Ok(())
}

/// Takes away the second names. One that cannot be removed now is removed by nobody, and told.
pub(super) fn finish(disk: &Disk<'_>, record: &Record) {
    for step in &record.steps {
        let removed = match &step.old_below {
            Some(below) => disk.remove_tree(&step.old, below),
            None => disk.remove(&step.old),
        };
        if let Err(e) = removed
            && !disk.crashed()
        {
            tracing::warn!(path = %step.old.display(), error = %e, "the old content of a changed file was left behind");
        }
    }
}
