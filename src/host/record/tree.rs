//! What is known of the working directories between commands: each name's stamp, and what files hold that a command may
//! change.
//!
//! A walk costs a look at each name and reads only what is new since the last one. Contents lie in a file without a name, which goes
//! with this. Everything is bounded; what does not fit is told as not covered.
//!
//! Of each `.git` it is known whether its commits and branches are others. Passed over are they and directories that ignore files leave out: build outputs and installed packages. Single files
//! that they leave out, such as `.env`, are looked at.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, Stat};

use super::beyond::{BITS, OWNERS_BITS, Others, Repositories, repository};
use super::look::{Content, Found, MODE, Room, read};
use super::origin::{Before, Began, FileClock};
use crate::base::workspace::Workspace;
use crate::base::{clock, limit};
use crate::host::search::{Entries, Kind, Rules, Verdict, join, open_below, open_file, prefix};
use crate::store::snapshots::{ContentId, FileState};

/// A file that changed so shortly before it was looked at may change again without another time stamp.
const RACY_MS: i128 = 50;

/// What the file system says of a name; a changed file has another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) file: (u64, u64),
    pub(super) mode: u32,
    pub(super) bytes: i64,
    pub(super) modified: (i64, i64),
    pub(super) changed: (i64, i64),
}

impl Stamp {
    pub(super) fn of(found: &Stat) -> Self {
        // The widths of these fields differ from system to system.
        #[allow(clippy::useless_conversion, clippy::unnecessary_cast, reason = "not everywhere the same types")]
        Self {
            file: (found.st_dev as u64, found.st_ino as u64),
            mode: found.st_mode as u32,
            bytes: found.st_size as i64,
            modified: (found.st_mtime as i64, found.st_mtime_nsec as i64),
            changed: (found.st_ctime as i64, found.st_ctime_nsec as i64),
        }
    }

    pub(super) fn is_file(&self) -> bool {
        #[allow(clippy::unnecessary_cast, reason = "not everywhere the same type")]
        let mode = self.mode as rustix::fs::RawMode;
        Kind::from(FileType::from_raw_mode(mode)) == Kind::File
    }

    /// Whether a change that comes now may leave the same stamp behind.
    fn is_racy(&self, now_ms: u64) -> bool {
        let changed = i128::from(self.changed.0) * 1_000 + i128::from(self.changed.1) / 1_000_000;
        i128::from(now_ms) - changed < RACY_MS
    }
}

/// What is kept of a name.
#[derive(Debug, Clone)]
enum Kept {
    /// A file's content, in the arena.
    At { from: u64, bytes: u64 },
    /// Anything else.
    State(FileState),
}

#[derive(Debug, Clone)]
struct Known {
    stamp: Stamp,
    kept: Kept,
    /// Its stamp does not tell all.
    racy: bool,
}

impl Known {
    /// Whether nothing says what it held.
    fn is_unkept(&self) -> bool {
        matches!(self.kept, Kept::State(FileState::Unkept { .. }))
    }

    /// What is kept of a file that nobody may read any more: its content, as long as it has not been written to.
    fn closed(&self, now: Stamp) -> Option<Self> {
        let written = |stamp: Stamp| (stamp.file, stamp.bytes, stamp.modified);
        let is_same = matches!(self.kept, Kept::At { .. }) && !self.racy && written(self.stamp) == written(now);
        is_same.then(|| Self { stamp: now, ..self.clone() })
    }
}

/// A name that a command has changed.
#[derive(Debug)]
pub(super) struct Difference {
    pub path: PathBuf,
    pub before: Found,
    pub after: Found,
}

/// What is known of the roots of one session.
#[derive(Debug, Default)]
pub(super) struct Tree {
    known: HashMap<Vec<u8>, Known>,
    arena: Option<File>,
    /// Bytes in the arena, those that nobody needs any more included.
    used: u64,
    /// What no undo puts back.
    others: Others,
    /// What the last command has changed and no undo puts back, and what of it.
    pub beyond: Vec<(PathBuf, &'static str)>,
    /// Why nothing is known.
    blind: Option<String>,
    /// When it was learned.
    began: Option<Began>,
    /// Files that commands brought into sight: somebody's, wherever they go.
    foreign: HashSet<(u64, u64)>,
    /// Directories that are passed over.
    pub passed_over: Vec<PathBuf>,
}

impl Tree {
    /// Learns how everything is now, before a command. The error says why that is not possible.
    pub(super) fn learn(&mut self, workspace: &Workspace, clock: &FileClock) -> Result<(), String> {
        let home = clock.home();
        if self.used > limit::SNAPSHOT_TREE_BYTES_MAX {
            // Much of it is out of date.
            *self = Self { foreign: std::mem::take(&mut self.foreign), ..Self::default() };
        }
        let walked = Walked::of(workspace).inspect_err(|why| self.blind = Some(why.clone()))?;
        self.blind = None;
        let now_ms = clock::machine_ms();
        let mut known = HashMap::with_capacity(walked.names.len());
        for (path, name) in walked.names {
            let old = self.known.remove(&path).filter(|old| old.stamp == name.stamp && !old.racy);
            let new = old.unwrap_or_else(|| {
                let racy = name.stamp.is_racy(now_ms);
                Known { stamp: name.stamp, kept: self.keep(&walked.handles, &path, &name, home), racy }
            });
            known.insert(path, new);
        }
        self.known = known;
        if !self.foreign.is_empty() {
            let there: HashSet<_> = self.known.values().map(|known| known.stamp.file).collect();
            self.foreign.retain(|file| there.contains(file));
        }
        self.passed_over = walked.passed_over;
        self.others = Others::of(walked.repositories, &walked.handles);
        self.began = Some(Began::now(clock, workspace.working_directory()));
        Ok(())
    }

    /// Hands out what has changed since, one after the other; it is now known as it is. `take` says how many bytes may still be
    /// kept. The error says why it cannot be told: then nothing was handed out.
    pub(super) fn differences(
        &mut self,
        workspace: &Workspace,
        take: &mut dyn FnMut(Difference) -> u64,
    ) -> Result<(), String> {
        if let Some(why) = &self.blind {
            return Err(why.clone());
        }
        let mut walked = Walked::of(workspace)?;
        let others = Others::of(std::mem::take(&mut walked.repositories), &walked.handles);
        self.beyond = self.others.changed(&others, &walked.passed_over);
        let mut gone = std::mem::take(&mut self.known);
        let mut changed = Vec::new();
        for (path, name) in &walked.names {
            let old = gone.remove(path);
            let at = PathBuf::from(OsStr::from_bytes(path));
            // It may have been there before: nobody has looked.
            if old.is_none() && self.passed_over.iter().any(|over| at.starts_with(over)) {
                continue;
            }
            match old {
                Some(same) if same.stamp == name.stamp && !same.racy => drop(self.known.insert(path.clone(), same)),
                old => changed.push((path, name, at, old)),
            }
        }
        let before = self.before(changed.iter().filter_map(|(.., old)| old.as_ref()).chain(gone.values()));
        let mut left = limit::SNAPSHOT_CALL_BYTES_MAX;
        for (path, name, at, old) in changed {
            let room = Room { file: limit::SNAPSHOT_FILE_BYTES_MAX, call: left };
            let found = name.look(&walked.handles, path, room);
            let closed = matches!(found.state, FileState::Unkept { .. })
                .then(|| old.as_ref().and_then(|old| old.closed(name.stamp)))
                .flatten();
            let was = old.as_ref().map_or(Found::of(FileState::Absent), |old| self.recall(old));
            let mut after = closed.as_ref().map_or(found, |closed| self.recall(closed));
            self.known.extend(closed.map(|closed| (path.clone(), closed)));
            let bits = |stamp: Option<&Stamp>| stamp.map_or(0, |stamp| stamp.mode & OWNERS_BITS);
            let (had, has) = (bits(old.as_ref().map(|old| &old.stamp)), bits(Some(&name.stamp)));
            if old.is_some() && (had != has || (had != 0 && was.state != after.state)) {
                self.beyond.push((at.clone(), BITS));
            }
            if was.state == after.state && !matches!(after.state, FileState::Unkept { .. }) {
                continue;
            }
            // What has come, but was not made by the command, is somebody's: an undo leaves it where it is.
            if old.as_ref().is_none_or(|old| old.stamp.file != name.stamp.file)
                && let Some(why) = before.stays((workspace, self.began), (&at, &name.stamp), &self.foreign)
            {
                self.foreign.insert(name.stamp.file);
                after = Found::unkept(why);
            }
            left = take(Difference { path: at, before: was, after });
        }
        for (path, old) in gone {
            // What is passed over since is not gone.
            let path = PathBuf::from(OsStr::from_bytes(&path));
            if walked.passed_over.iter().any(|over| path.starts_with(over)) {
                continue;
            }
            if old.stamp.mode & OWNERS_BITS != 0 {
                self.beyond.push((path.clone(), BITS));
            }
            let (before, after) = (self.recall(&old), Found::of(FileState::Absent));
            take(Difference { path, before, after });
        }
        let new = |over: &PathBuf| !self.passed_over.contains(over);
        let new: Vec<PathBuf> = walked.passed_over.into_iter().filter(new).collect();
        self.passed_over.extend(new);
        Ok(())
    }

    /// What was in sight before a command that has changed these, or taken them away.
    fn before<'k>(&'k self, went: impl Iterator<Item = &'k Known> + Clone) -> Before {
        let kept = went.clone().chain(self.known.values()).filter(|known| !known.is_unkept());
        let lost = went.clone().filter(|known| known.is_unkept() && known.stamp.is_file());
        Before {
            kept: kept.map(|known| known.stamp.file).collect(),
            lost: lost.map(|known| known.stamp.bytes).collect(),
        }
    }

    /// Keeps what a name holds, as far as there is room.
    fn keep(&mut self, handles: &Handles, path: &[u8], name: &Name, home: &Path) -> Kept {
        let found = name.look(handles, path, Room::of_file(limit::SNAPSHOT_COMMAND_FILE_BYTES_MAX));
        let Some(Content { bytes: content, .. }) = found.content else { return Kept::State(found.state) };
        let bytes = content.len() as u64;
        let refused = |reason: String| Kept::State(FileState::Unkept { reason });
        if self.used + bytes > limit::SNAPSHOT_TREE_BYTES_MAX {
            let most = limit::SNAPSHOT_TREE_BYTES_MAX;
            return refused(format!("a command changed it, and at most {most} bytes are kept in case one does"));
        }
        let from = self.used;
        match self.arena(home).and_then(|arena| arena.write_all_at(&content, from)) {
            Ok(()) => {
                self.used += bytes;
                Kept::At { from, bytes }
            }
            Err(e) => refused(format!("a command changed it, and it could not be kept before: {e}")),
        }
    }

    fn arena(&mut self, home: &Path) -> io::Result<&File> {
        match &mut self.arena {
            Some(arena) => Ok(arena),
            none => Ok(none.insert(tempfile::tempfile_in(home)?)),
        }
    }

    /// How a name was.
    fn recall(&self, known: &Known) -> Found {
        let (from, bytes) = match &known.kept {
            Kept::State(state) => return Found::of(state.clone()),
            Kept::At { from, bytes } => (*from, *bytes),
        };
        let mut held = vec![0; usize::try_from(bytes).unwrap_or(0)];
        let read = self.arena.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into());
        match read.and_then(|arena| arena.read_exact_at(&mut held, from)) {
            Ok(()) => {
                let state = FileState::File { mode: known.stamp.mode & MODE, bytes, content: ContentId::of(&held) };
                Found { state, content: Some(Content { bytes: held, alone: None }) }
            }
            Err(e) => Found::unkept(format!("what it was before a command cannot be read: {e}")),
        }
    }
}

/// The roots, open.
pub(super) type Handles = Vec<(PathBuf, OwnedFd)>;

/// A name that a walk came by.
#[derive(Debug)]
struct Name {
    stamp: Stamp,
    kind: Kind,
    /// Which root it is in.
    root: usize,
}

impl Name {
    /// What is there.
    fn look(&self, handles: &Handles, path: &[u8], room: Room) -> Found {
        let stamp = &self.stamp;
        let refused = u64::try_from(stamp.bytes).ok().and_then(|bytes| room.refuses(bytes));
        let gone = |e: io::Error| Found::unkept(format!("it cannot be read: {e}"));
        match self.kind {
            Kind::Directory => Found::of(FileState::Directory { mode: stamp.mode & MODE }),
            Kind::Other => Found::unkept("it is neither a file nor a link nor a directory"),
            Kind::File => {
                if let Some(reason) = refused {
                    return Found::unkept(reason);
                }
                match self.directory(handles, path).and_then(|(directory, name)| open_file(directory.as_fd(), name)) {
                    Ok(file) => read(File::from(file), room),
                    Err(e) => gone(e),
                }
            }
            Kind::Link => {
                let target = self.directory(handles, path).and_then(|(directory, name)| {
                    Ok(rustix::fs::readlinkat(directory, name, Vec::new())?.into_bytes())
                });
                match target {
                    Ok(target) => Found::of(FileState::Link { target }),
                    Err(e) => gone(e),
                }
            }
        }
    }

    /// Its directory, opened without a link on the way, and its name there.
    fn directory<'p>(&self, handles: &Handles, path: &'p [u8]) -> io::Result<(OwnedFd, &'p [u8])> {
        let (root, handle) = handles.get(self.root).ok_or(io::ErrorKind::NotFound)?;
        let below = path.get(prefix(root)..).ok_or(io::ErrorKind::NotFound)?;
        match below.iter().rposition(|byte| *byte == b'/') {
            Some(at) => Ok((open_below(handle.as_fd(), &below[..at])?, &below[at + 1..])),
            None => Ok((open_below(handle.as_fd(), b".")?, below)),
        }
    }
}

/// All names of a workspace at one moment.
struct Walked {
    handles: Handles,
    names: Vec<(Vec<u8>, Name)>,
    passed_over: Vec<PathBuf>,
    repositories: Repositories,
    until: Instant,
}

impl Walked {
    fn of(workspace: &Workspace) -> Result<Self, String> {
        let until = Instant::now() + Duration::from_millis(limit::SNAPSHOT_LOOK_MS_MAX);
        let mut walked = Self {
            handles: Vec::new(),
            names: Vec::new(),
            passed_over: Vec::new(),
            repositories: BTreeMap::new(),
            until,
        };
        for (at, root) in workspace.roots().iter().enumerate() {
            let inside = workspace
                .roots()
                .iter()
                .enumerate()
                .any(|(other, above)| other != at && root.starts_with(above) && (root != above || other < at));
            if inside {
                continue;
            }
            match workspace.open_directory(root) {
                Ok(handle) => walked.handles.push((root.clone(), handle)),
                Err(e) if super::look::is_gone(&e) => continue,
                Err(e) => return Err(format!("{} cannot be opened: {e}", root.display())),
            }
            let rules = Rules::above(root, workspace.working_directory());
            walked.walk(workspace, walked.handles.len() - 1, rules)?;
        }
        Ok(walked)
    }

    fn walk(&mut self, workspace: &Workspace, root: usize, rules: Option<Arc<Rules>>) -> Result<(), String> {
        let (base, handle) = &self.handles[root];
        let top = open_below(handle.as_fd(), b".").map_err(|e| format!("{} cannot be opened: {e}", base.display()))?;
        let mut todo = vec![(base.as_os_str().as_bytes().to_vec(), top, rules)];
        while let Some((path, directory, above)) = todo.pop() {
            // What cannot be listed has nothing in it that could be told.
            let Ok(entries) = Entries::read(directory.as_fd()) else {
                self.passed_over.push(PathBuf::from(OsStr::from_bytes(&path)));
                continue;
            };
            let slash = prefix(Path::new(OsStr::from_bytes(&path)));
            let rules = Rules::within(above.as_ref(), directory.as_fd(), &entries, slash);
            for (name, _) in entries.iter() {
                self.check_room()?;
                let full = join(&path, name);
                if name == b".git" {
                    self.repositories.insert(full, repository(&directory));
                    continue;
                }
                if workspace.protects(Path::new(OsStr::from_bytes(&full))) {
                    continue;
                }
                let Ok(found) = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
                let kind = Kind::from(FileType::from_raw_mode(found.st_mode));
                if kind == Kind::Directory {
                    let ignored = rules.as_ref().and_then(|rules| rules.verdict(&full, true));
                    let open = open_below(directory.as_fd(), name);
                    if ignored == Some(Verdict::Ignored) {
                        self.passed_over.push(PathBuf::from(OsStr::from_bytes(&full)));
                        continue;
                    }
                    match open {
                        Ok(open) => todo.push((full.clone(), open, rules.clone())),
                        // It is there, with its permissions; what is in it is not known.
                        Err(_) => self.passed_over.push(PathBuf::from(OsStr::from_bytes(&full))),
                    }
                }
                // Of a directory only that it is there, and its permissions.
                let stamp = match (kind, Stamp::of(&found)) {
                    (Kind::Directory, stamp) => Stamp { bytes: 0, modified: (0, 0), changed: (0, 0), ..stamp },
                    (Kind::File | Kind::Link | Kind::Other, stamp) => stamp,
                };
                self.names.push((full, Name { stamp, kind, root }));
            }
        }
        Ok(())
    }

    fn check_room(&self) -> Result<(), String> {
        if self.names.len() >= limit::SNAPSHOT_TREE_ENTRIES_MAX {
            let most = limit::SNAPSHOT_TREE_ENTRIES_MAX;
            return Err(format!("there are more than {most} names, too many to look for what commands change"));
        }
        if self.names.len() % 256 == 255 && Instant::now() > self.until {
            let most = limit::SNAPSHOT_LOOK_MS_MAX;
            return Err(format!(
                "looking at all names takes longer than {most} ms, so what commands change is not known"
            ));
        }
        Ok(())
    }
}
