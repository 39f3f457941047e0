//! What a patch would make of the files that are there. Reads; writes nothing.
//!
//! Every path is held against the workspace, every change against the text it is for, before anything
//! is said to be possible. A unified diff is one step from one state of all files to another, as git has
//! it; the changes of the other form come one after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::io::{ErrorKind, Read};
use std::ops::Bound;
use std::os::fd::AsFd;
use std::path::{Component, Path, PathBuf};

use super::commit::{After, Change};
use super::fs_common::{io_failed, not_found, refused};
use super::fs_file::{Target, has_links};
use super::fs_guard::{Guard, Known};
use super::patch_told::{Side, Told, merged};
use super::search::{Entries, as_path};
use crate::base::limit;
use crate::base::workspace::{PathError, Workspace};
use crate::edit::patch::{Action, FileChange, Form, Found, Patch, apply};
use crate::tool::ToolError;

/// What would become of the files.
#[derive(Debug)]
pub(super) struct Plan {
    /// What is to be written and removed.
    pub changes: Vec<Change>,
    /// What is told about each file of the patch, in its order; one that several sections changed, once.
    pub told: Vec<Told>,
    /// Files of whose text the patch knows.
    pub seen: BTreeSet<PathBuf>,
    /// Files that are replaced as a whole, and were never read.
    replaced: Vec<String>,
    /// Files that have further names.
    linked: Vec<String>,
}

impl Plan {
    /// What a reader should know besides.
    pub(super) fn warnings(&self) -> impl Iterator<Item = String> {
        let unread = |given| format!("\"{given}\" was there, and was never read in this session.");
        let linked = |given| format!("\"{given}\" had further hard links: they keep the old content.");
        self.replaced.iter().map(unread).chain(self.linked.iter().map(linked))
    }
}

/// One file under the patch.
struct Entry {
    before: Option<Metadata>,
    now: Now,
}

/// What the patch has made of a file so far.
enum Now {
    Untouched,
    Gone,
    Bytes(Box<After>),
}

/// What a patch stands on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ground<'w> {
    pub workspace: &'w Workspace,
    /// What its paths are relative to. Inside the workspace.
    pub base: &'w Path,
    /// What the session knows of the files.
    pub guard: &'w Guard,
}

/// Plans one patch.
struct Planner<'w> {
    ground: &'w Ground<'w>,
    form: Form,
    /// Paths that a unified diff takes away: they are free for others from the start.
    leaving: BTreeSet<PathBuf>,
    seen: BTreeSet<PathBuf>,
    /// Files that the patch takes away, and that were never read.
    unread: BTreeSet<PathBuf>,
    replaced: Vec<String>,
    entries: BTreeMap<PathBuf, Entry>,
    read_bytes: u64,
}

/// Every path of a patch as the permission rules see it: as written, and where it leads.
pub(super) fn paths(workspace: &Workspace, base: &Path, patch: &Patch) -> Vec<(String, Option<PathBuf>)> {
    let mut out: Vec<(String, Option<PathBuf>)> = Vec::new();
    for file in &patch.files {
        for path in file.paths() {
            let input = base.join(path);
            // As the plan resolves them: but for an update, a link at the end is meant itself.
            let resolved = match file.action {
                Action::Update => workspace.resolve(&input.to_string_lossy()),
                Action::Add | Action::Delete | Action::Move(_) | Action::Copy(_) => {
                    workspace.resolve_entry(&input.to_string_lossy())
                }
            };
            let found = (path.to_owned(), resolved.ok());
            if !out.contains(&found) {
                out.push(found);
            }
        }
    }
    out
}

/// Plans a whole patch.
///
/// # Errors
/// The first thing that stands against it, with the file's name.
pub(super) fn plan(ground: &Ground<'_>, patch: &Patch) -> Result<Plan, ToolError> {
    let mut planner = Planner {
        ground,
        form: patch.form,
        leaving: BTreeSet::new(),
        seen: BTreeSet::new(),
        unread: BTreeSet::new(),
        replaced: Vec::new(),
        entries: BTreeMap::new(),
        read_bytes: 0,
    };
    if patch.form == Form::Unified {
        for file in &patch.files {
            if matches!(file.action, Action::Delete | Action::Move(_)) {
                let path = planner.resolve(&file.path, true)?;
                planner.check(&path, file)?;
                planner.leaving.insert(path);
            }
        }
    }
    let told = patch.files.iter().map(|file| planner.file(file)).collect::<Result<Vec<_>, _>>()?;
    planner.check_nesting()?;
    let (seen, replaced) = (std::mem::take(&mut planner.seen), std::mem::take(&mut planner.replaced));
    let changes = planner.changes();
    if changes.is_empty() {
        return Err(ToolError::failed("the patch changes nothing: every file already is as it would be"));
    }
    let told = merged(told, patch.form);
    let linked =
        changes.iter().filter(|change| change.after.is_some() && change.before.as_ref().is_some_and(has_links));
    let linked = linked.map(|change| name_of(ground.workspace, &told, &change.path)).collect();
    Ok(Plan { changes, told, seen, replaced, linked })
}

impl Planner<'_> {
    fn file(&mut self, file: &FileChange) -> Result<Told, ToolError> {
        match &file.action {
            Action::Add => self.add(file),
            Action::Delete => self.delete(file),
            Action::Update => self.update(file),
            Action::Move(to) => self.relocate(file, to, true),
            Action::Copy(to) => self.relocate(file, to, false),
        }
    }

    /// Refuses a patch that makes one path a file and puts another below it.
    fn check_nesting(&self) -> Result<(), ToolError> {
        let made = |path: &Path| self.entries.get(path).is_some_and(|entry| matches!(entry.now, Now::Bytes(_)));
        for path in self.entries.keys().filter(|path| made(path)) {
            if let Some(above) = path.ancestors().skip(1).find(|above| made(above)) {
                let shown = |path: &Path| self.ground.workspace.shown(path);
                let why = format!("the patch makes \"{}\" a file, and nothing can lie below a file", shown(above));
                return Err(failed(&shown(path), &why));
            }
        }
        Ok(())
    }

    fn add(&mut self, file: &FileChange) -> Result<Told, ToolError> {
        let (bytes, _) = self.applied(file, Vec::new())?;
        let path = self.free(&file.path)?;
        let before = self.entry(&path, &file.path)?.before.clone();
        self.ground.guard.as_previewed(&path, before.as_ref(), &file.path)?;
        if self.unread.remove(&path) {
            self.replaced.push(file.path.clone());
        }
        let like = before.filter(Metadata::is_file);
        self.put(&path, &bytes, (like, file.executable));
        self.seen.insert(path.clone());
        let after = Some(Side::new(&file.path, &path, bytes));
        Ok(Told { copied: false, leniency: String::new(), before: None, after })
    }

    fn delete(&mut self, file: &FileChange) -> Result<Told, ToolError> {
        let path = self.resolve(&file.path, true)?;
        let entry = self.entry(&path, &file.path)?;
        let is_link = entry.before.as_ref().is_some_and(Metadata::is_symlink);
        self.check(&path, file)?;
        let bytes = if is_link { Vec::new() } else { self.current(&path, &file.path)? };
        if !file.chunks.is_empty() {
            let (rest, _) = self.applied(file, bytes.clone())?;
            if !rest.is_empty() {
                let why = "the patch deletes it, but it holds more than the patch takes away";
                return Err(failed(&file.path, why));
            }
        }
        self.entry(&path, &file.path)?.now = Now::Gone;
        let before = Some(Side::new(&file.path, &path, bytes));
        Ok(Told { copied: false, leniency: String::new(), before, after: None })
    }

    fn update(&mut self, file: &FileChange) -> Result<Told, ToolError> {
        let path = self.resolve(&file.path, false)?;
        self.check(&path, file)?;
        let before = self.current(&path, &file.path)?;
        let (bytes, leniency) = self.applied(file, before.clone())?;
        let like = self.like(&path, &file.path)?;
        self.put(&path, &bytes, (like, file.executable));
        self.seen.insert(path.clone());
        let side = |bytes| Some(Side::new(&file.path, &path, bytes));
        Ok(Told { copied: false, leniency, before: side(before), after: side(bytes) })
    }

    /// A move, or a copy.
    fn relocate(&mut self, file: &FileChange, to: &str, leaves: bool) -> Result<Told, ToolError> {
        let path = self.resolve(&file.path, true)?;
        if self.entry(&path, &file.path)?.before.as_ref().is_some_and(Metadata::is_symlink) {
            return Err(failed(&file.path, "it is a symbolic link: move it with fs_move"));
        }
        self.check(&path, file)?;
        let before = match self.form {
            // Moves and copies of a unified diff begin at the state before all of it.
            Form::Unified => self.on_disk(&path, &file.path)?,
            Form::Begin => self.current(&path, &file.path)?,
        };
        let (bytes, leniency) = self.applied(file, before.clone())?;
        let like = self.entry(&path, &file.path)?.before.clone();
        if !file.chunks.is_empty() {
            self.seen.insert(self.resolve(to, true)?);
        }
        let target = if leaves && self.resolve(to, true)? == path { path.clone() } else { self.free(to)? };
        if target != path {
            let there = self.entry(&target, to)?.before.clone();
            self.ground.guard.as_previewed(&target, there.as_ref(), to)?;
        }
        let form = self.form;
        let entry = self.entry(&path, &file.path)?;
        if leaves && !(form == Form::Unified && matches!(entry.now, Now::Bytes(_))) {
            entry.now = Now::Gone;
        }
        self.put(&target, &bytes, (like, file.executable));
        let (before, after) = (Side::new(&file.path, &path, before), Side::new(to, &target, bytes));
        Ok(Told { copied: !leaves, leniency, before: Some(before), after: Some(after) })
    }

    /// Whether a file that is changed or taken away is still the one that the session knows.
    fn check(&mut self, path: &Path, file: &FileChange) -> Result<(), ToolError> {
        let own = self.entries.get(path).is_some_and(|entry| !matches!(entry.now, Now::Untouched));
        let is_file = self.ground.workspace.look(path).is_ok_and(|found| found.is_file());
        let stays = match file.action {
            Action::Add | Action::Copy(_) => file.chunks.is_empty(),
            Action::Delete | Action::Update | Action::Move(_) => false,
        };
        if own || stays || !is_file {
            return Ok(());
        }
        let target = Target::find(self.ground.workspace, &path.to_string_lossy())?;
        let known = self.ground.guard.check(&target, &file.path)?;
        // Lines that a patch quotes it has seen.
        if known == Known::Unseen && file.chunks.is_empty() {
            self.unread.insert(path.to_owned());
        }
        Ok(())
    }

    /// A text with its changes, and what was not minded.
    fn applied(&self, file: &FileChange, before: Vec<u8>) -> Result<(Vec<u8>, String), ToolError> {
        if file.chunks.is_empty() {
            return Ok((before, String::new()));
        }
        let text = String::from_utf8(before).map_err(|e| {
            let at = e.utf8_error().valid_up_to();
            failed(&file.path, &format!("it is not valid UTF-8 (first at byte {at}), and is left alone"))
        })?;
        let patched = apply(&text, &file.chunks, self.form).map_err(|e| failed(&file.path, &e.to_string()))?;
        let found = patched.notes.iter().map(|note| note.found).max().unwrap_or(Found::Literal);
        Ok((patched.text.into_bytes(), found.leniency().to_owned()))
    }

    fn put(&mut self, path: &Path, bytes: &[u8], (like, executable): (Option<Metadata>, Option<bool>)) {
        if let Some(entry) = self.entries.get_mut(path) {
            entry.now = Now::Bytes(Box::new(After { executable, ..After::file(bytes.to_vec(), like) }));
        }
    }

    /// Where a path of the patch leads. `entry`: a link there is meant itself.
    fn resolve(&self, given: &str, entry: bool) -> Result<PathBuf, ToolError> {
        let input = self.ground.base.join(given);
        let text = input.to_string_lossy();
        let resolved =
            if entry { self.ground.workspace.resolve_entry(&text) } else { self.ground.workspace.resolve(&text) };
        let path = resolved.map_err(|error| match error {
            PathError::Escapes { .. } => refused(&self.ground.workspace.escapes(given)),
            error => refused(&error),
        })?;
        if given.ends_with('/') {
            return Err(failed(given, "it names a directory"));
        }
        let plain = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
        if !Path::new(given).components().all(plain) {
            return Err(failed(given, "paths in a patch are relative to the working directory, without `..`"));
        }
        Ok(path)
    }

    /// Whether the patch takes a path away: by now, or, in a unified diff, at all.
    fn goes(&self, path: &Path) -> bool {
        let gone = |entry: &Entry| matches!(entry.now, Now::Gone) && entry.before.is_some();
        self.leaving.contains(path) || self.entries.get(path).is_some_and(gone)
    }

    /// Whether it takes something away that lies in a directory.
    fn goes_below(&self, directory: &Path) -> bool {
        let inside = (Bound::Excluded(directory), Bound::Unbounded);
        let leaving = self.leaving.range::<Path, _>(inside).next().is_some_and(|path| path.starts_with(directory));
        let mut known = self.entries.range::<Path, _>(inside).take_while(|(path, _)| path.starts_with(directory));
        leaving || known.any(|(path, _)| self.goes(path))
    }

    /// What stays in a directory that is to make way for a file. None: nothing.
    fn stays_in(&self, directory: &Path) -> std::io::Result<Option<PathBuf>> {
        let mut todo = vec![directory.to_owned()];
        while let Some(next) = todo.pop() {
            let open = self.ground.workspace.open_directory(&next)?;
            let entries = Entries::read(open.as_fd())?;
            for (name, _) in entries.iter() {
                let path = next.join(as_path(name));
                match (self.goes(&path), self.goes_below(&path)) {
                    (true, _) => {}
                    (false, true) => todo.push(path),
                    (false, false) => return Ok(Some(path)),
                }
            }
            if entries.more {
                return Ok(Some(next));
            }
        }
        Ok(None)
    }

    /// What is known of a file; looked up at the first time. A directory is one that the patch takes files from: nothing but a
    /// file can come of it.
    fn entry(&mut self, path: &Path, given: &str) -> Result<&mut Entry, ToolError> {
        if !self.entries.contains_key(path) {
            let mut above = path.ancestors().skip(1);
            let before = match self.ground.workspace.look(path) {
                Ok(found) if found.is_file() || found.is_symlink() => Some(found),
                Ok(found) if found.is_dir() && self.goes_below(path) => Some(found),
                Ok(found) if found.is_dir() => return Err(failed(given, "it is a directory")),
                Ok(_) => return Err(failed(given, "it is not a regular file")),
                Err(e) if e.kind() == ErrorKind::NotFound => None,
                Err(e) if e.kind() == ErrorKind::NotADirectory && above.any(|above| self.goes(above)) => None,
                Err(e) => return Err(io_failed("look at", given, &e)),
            };
            self.entries.insert(path.to_owned(), Entry { before, now: Now::Untouched });
        }
        self.entries.get_mut(path).ok_or_else(|| ToolError::failed("the file was not looked at"))
    }

    /// A path where nothing is, or nothing any more.
    fn free(&mut self, given: &str) -> Result<PathBuf, ToolError> {
        let path = self.resolve(given, true)?;
        if self.ground.workspace.holds_a_root(&path) {
            return Err(failed(given, "it is a directory"));
        }
        let leaving = self.leaving.contains(&path);
        let entry = self.entry(&path, given)?;
        let is_directory = entry.before.as_ref().is_some_and(Metadata::is_dir);
        if is_directory && matches!(entry.now, Now::Untouched) {
            return match self.stays_in(&path) {
                Ok(None) => Ok(path),
                Ok(Some(stays)) => {
                    let stays = self.ground.workspace.shown(&stays);
                    Err(failed(given, &format!("it is a directory, and the patch leaves \"{stays}\" in it")))
                }
                Err(e) => Err(io_failed("list", given, &e)),
            };
        }
        let free = match &entry.now {
            Now::Gone => true,
            Now::Untouched => entry.before.is_none() || leaving,
            Now::Bytes(_) => false,
        };
        if free {
            return Ok(path);
        }
        Err(failed(given, "it exists already: update it, or delete it first"))
    }

    /// The mode and owner that a changed file keeps.
    fn like(&mut self, path: &Path, given: &str) -> Result<Option<Metadata>, ToolError> {
        let entry = self.entry(path, given)?;
        Ok(match &entry.now {
            Now::Bytes(after) => after.like.clone(),
            Now::Untouched | Now::Gone => entry.before.clone(),
        })
    }

    /// The bytes of a file as the patch has made them so far.
    fn current(&mut self, path: &Path, given: &str) -> Result<Vec<u8>, ToolError> {
        match &self.entry(path, given)?.now {
            Now::Bytes(after) => Ok(after.bytes.clone()),
            Now::Gone => Err(failed(given, "the patch has deleted or moved it before this")),
            Now::Untouched => self.on_disk(path, given),
        }
    }

    fn on_disk(&mut self, path: &Path, given: &str) -> Result<Vec<u8>, ToolError> {
        let before = &self.entry(path, given)?.before;
        if before.as_ref().is_some_and(Metadata::is_dir) {
            return Err(failed(given, "it is a directory"));
        }
        if before.is_none() {
            let named = self.ground.workspace.named(path).to_string_lossy();
            return Err(not_found(self.ground.workspace, &named));
        }
        let file = self.ground.workspace.open(&path.to_string_lossy()).map_err(|e| refused(&e))?;
        let most = limit::EDIT_FILE_BYTES_MAX;
        let mut bytes = Vec::new();
        file.take(most + 1).read_to_end(&mut bytes).map_err(|e| io_failed("read", given, &e))?;
        if bytes.len() as u64 > most {
            return Err(failed(given, &format!("it is larger than {most} bytes, the most that is patched")));
        }
        self.read_bytes += bytes.len() as u64;
        if self.read_bytes > limit::PATCH_READ_BYTES_MAX {
            let most = limit::PATCH_READ_BYTES_MAX;
            return Err(failed(given, &format!("with it the files of the patch have more than {most} bytes")));
        }
        Ok(bytes)
    }

    /// Whether the file at a path holds exactly this.
    fn holds(&self, path: &Path, bytes: &[u8]) -> bool {
        let mut old = Vec::new();
        let file = self.ground.workspace.open(&path.to_string_lossy());
        file.is_ok_and(|file| {
            file.take(bytes.len() as u64 + 1).read_to_end(&mut old).is_ok() && old.as_slice() == bytes
        })
    }

    /// What is to be done, without what would change nothing.
    fn changes(mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        for (path, entry) in std::mem::take(&mut self.entries) {
            let (before, now) = (entry.before, entry.now);
            match (now, &before) {
                (Now::Untouched, _) | (Now::Gone, None) => {}
                // What made way for a file that is gone again.
                (Now::Gone, Some(directory)) if directory.is_dir() => {}
                (Now::Gone, Some(_)) => changes.push(Change { path, before, after: None }),
                (Now::Bytes(after), _) => {
                    let stays = before.as_ref().is_some_and(Metadata::is_file) && after.executable.is_none();
                    if !(stays && self.holds(&path, &after.bytes)) {
                        changes.push(Change { path, before, after: Some(*after) });
                    }
                }
            }
        }
        changes
    }
}

/// How the patch names a file that is there after it.
fn name_of(workspace: &Workspace, told: &[Told], path: &Path) -> String {
    let sides = || told.iter().filter_map(|told| told.after.as_ref());
    sides().find(|side| side.path == path).map_or_else(|| workspace.shown(path), |side| side.given.clone())
}

/// What stands against the patch, about one file.
fn failed(given: &str, why: &str) -> ToolError {
    ToolError::failed(format!("{given}: {why}"))
}
