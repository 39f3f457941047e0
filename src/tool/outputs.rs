//! Whole outputs of commands that were too long to be shown, in files that a later call reads.
//!
//! The files lie in a directory that only this user can enter, and go with the session they belong to; the directory
//! goes with the server or the registry. What a process that was killed left behind is removed by the next one that
//! keeps an output. All such directories of a user have one home, which is no place for temporary files as long as there
//! is another: the sandbox hides it from commands, so that none reads or changes what another session was shown.
//!
//! Invariants: what is kept is bounded, a file and all together, the oldest go first; a session finds its own alone.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use rustix::fs::FlockOperation;

use crate::base::limit;
use crate::config::{state_directory, temporary_state_directory};

/// The home's name.
const HOME: &str = "outputs";
/// How the directories begin.
const FRONT: &str = "simse-output-";
/// The file in each that its owner keeps locked.
const LOCK: &str = "lock";
/// A directory without a lock is being made; one as old as this was not made to its end.
const MAKING: Duration = Duration::from_secs(60);

/// The kept outputs of one server, or one registry.
#[derive(Debug)]
pub struct Outputs {
    /// Where their home may be, the best first.
    homes: Vec<PathBuf>,
    home: OnceLock<PathBuf>,
    total_bytes_max: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    directory: Option<Directory>,
    /// Oldest first.
    kept: VecDeque<Kept>,
    total_bytes: u64,
    /// Number of the last file.
    last: u64,
}

/// A directory of ours. Removed when it is dropped.
#[derive(Debug)]
struct Directory {
    path: PathBuf,
    /// Held as long as the directory is in use.
    _lock: File,
}

#[derive(Debug)]
struct Kept {
    member: String,
    path: PathBuf,
    bytes: u64,
}

/// An output that is being written. Its file is removed when it is dropped before [`OutputFile::keep`].
#[derive(Debug)]
pub struct OutputFile {
    outputs: Arc<Outputs>,
    member: String,
    path: PathBuf,
    file: File,
    bytes: u64,
    kept: bool,
}

/// A whole output in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptOutput {
    /// Where it is.
    pub path: PathBuf,
    /// Its size; less than what came when that was more than is kept of one output.
    pub bytes: u64,
}

impl Default for Outputs {
    fn default() -> Self {
        let homes = state_directory().into_iter().chain([temporary_state_directory()]);
        Self::new(homes.map(|home| home.join(HOME)).collect(), limit::KEPT_OUTPUTS_BYTES_MAX)
    }
}

impl Outputs {
    /// Outputs in a directory of their own below the first of `homes` that can be had, all together at most
    /// `total_bytes_max`. Nothing is made yet.
    pub fn new(homes: Vec<PathBuf>, total_bytes_max: u64) -> Self {
        Self { homes, home: OnceLock::new(), total_bytes_max, state: Mutex::default() }
    }

    /// Where the outputs of this user lie, those of other processes too, when that is known already.
    pub fn known_home(&self) -> Option<&Path> {
        self.home.get().map(PathBuf::as_path)
    }

    /// The same; made when it is not there. Blocking.
    ///
    /// # Errors
    /// What the file system says of the last place that was tried.
    pub fn home(&self) -> io::Result<&Path> {
        if let Some(home) = self.home.get().filter(|home| home.is_dir()) {
            return Ok(home);
        }
        let mut failed = io::Error::from(io::ErrorKind::NotFound);
        for home in &self.homes {
            match make_home(home) {
                Ok(home) => return Ok(self.home.get_or_init(|| home)),
                Err(cause) => failed = cause,
            }
        }
        Err(failed)
    }

    /// A new file for an output of `member`. Blocking.
    ///
    /// # Errors
    /// What the file system says.
    pub fn begin(self: &Arc<Self>, member: &str) -> io::Result<OutputFile> {
        let mut state = self.state.lock();
        let directory = match state.directory.take() {
            Some(directory) if directory.path.is_dir() => directory,
            // Somebody tidied up.
            Some(_) | None => Directory::make(self.home()?)?,
        };
        let path = directory.path.join(format!("{}.txt", state.last + 1));
        state.directory = Some(directory);
        state.last += 1;
        drop(state);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(OutputFile { outputs: Arc::clone(self), member: member.to_owned(), path, file, bytes: 0, kept: false })
    }

    /// Whether this is the path of an output of `member`.
    pub fn holds(&self, member: &str, path: &Path) -> bool {
        self.state.lock().kept.iter().any(|kept| kept.member == member && kept.path == path)
    }

    /// Removes the outputs of `member`. Blocking.
    pub fn forget(&self, member: &str) {
        let mut state = self.state.lock();
        let (gone, kept) = std::mem::take(&mut state.kept).into_iter().partition(|kept| kept.member == member);
        state.kept = kept;
        state.remove(gone);
    }

    /// Removes all of them, and their directory. Blocking.
    pub fn clear(&self) {
        let mut state = self.state.lock();
        state.kept.clear();
        state.total_bytes = 0;
        state.directory = None;
    }

    fn keep(&self, kept: Kept) {
        let mut state = self.state.lock();
        state.total_bytes += kept.bytes;
        state.kept.push_back(kept);
        while state.total_bytes > self.total_bytes_max
            && let Some(oldest) = state.kept.pop_front()
        {
            state.remove(VecDeque::from([oldest]));
        }
    }
}

impl State {
    fn remove(&mut self, gone: VecDeque<Kept>) {
        for Kept { path, bytes, .. } in gone {
            self.total_bytes = self.total_bytes.saturating_sub(bytes);
            // Somebody else may have removed it.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl OutputFile {
    /// Writes the next bytes, as far as one output may go. Blocking.
    ///
    /// # Errors
    /// What the file system says.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let room = usize::try_from(limit::KEPT_OUTPUT_BYTES_MAX.saturating_sub(self.bytes)).unwrap_or(usize::MAX);
        let bytes = &bytes[..bytes.len().min(room)];
        self.file.write_all(bytes)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Keeps what was written.
    pub fn keep(mut self) -> KeptOutput {
        self.kept = true;
        let (path, bytes) = (self.path.clone(), self.bytes);
        self.outputs.keep(Kept { member: self.member.clone(), path: path.clone(), bytes });
        KeptOutput { path, bytes }
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if !self.kept {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Directory {
    fn make(parent: &Path) -> io::Result<Self> {
        remove_forsaken(parent);
        let path = parent.join(format!("{FRONT}{}", uuid::Uuid::new_v4().simple()));
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        let lock = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path.join(LOCK))?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { path, _lock: lock })
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// A directory that is ours alone, and so is the one it lies in; its real path.
fn make_home(home: &Path) -> io::Result<PathBuf> {
    std::fs::DirBuilder::new().mode(0o700).recursive(true).create(home)?;
    let own = rustix::process::geteuid().as_raw();
    for path in home.parent().into_iter().chain([home]) {
        if path.symlink_metadata()?.uid() != own {
            let message = format!("{} belongs to somebody else", path.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
        }
    }
    std::fs::canonicalize(home)
}

/// Removes the directories of processes that are gone.
fn remove_forsaken(parent: &Path) {
    let own = rustix::process::geteuid().as_raw();
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let ours = || entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == own);
        if !entry.file_name().to_string_lossy().starts_with(FRONT) || !ours() {
            continue;
        }
        let path = entry.path();
        let forsaken = match File::open(path.join(LOCK)) {
            Ok(lock) => rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok(),
            Err(_) => entry.metadata().is_ok_and(|found| is_old(&found)),
        };
        if forsaken {
            let _ = std::fs::remove_dir_all(path);
        }
    }
}

fn is_old(found: &std::fs::Metadata) -> bool {
    let now = SystemTime::UNIX_EPOCH + Duration::from_millis(crate::base::clock::now_ms());
    found.modified().is_ok_and(|made| now.duration_since(made).is_ok_and(|age| age > MAKING))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(outputs: &Arc<Outputs>, member: &str, text: &[u8]) -> PathBuf {
        let mut file = outputs.begin(member).unwrap();
        file.write(text).unwrap();
        file.keep().path
    }

    #[test]
    fn each_session_finds_its_own_and_they_go_with_it() {
        let home = tempfile::tempdir().unwrap();
        let outputs = Arc::new(Outputs::new(vec![home.path().join(HOME)], 1000));
        let (one, two) = (kept(&outputs, "a", b"1"), kept(&outputs, "b", b"2"));
        assert!(outputs.holds("a", &one) && outputs.holds("b", &two));
        assert!(!outputs.holds("a", &two), "another's");
        assert_eq!(std::fs::read(&one).unwrap(), b"1");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&one), mode(one.parent().unwrap())), (0o600, 0o700));
        outputs.forget("a");
        assert!(!one.exists() && !outputs.holds("a", &one) && two.exists());
        drop(outputs);
        assert_eq!(std::fs::read_dir(home.path().join(HOME)).unwrap().count(), 0, "the directory has gone");
    }

    #[test]
    fn the_home_is_the_first_that_is_ours() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().canonicalize().unwrap().join(name);
        std::fs::write(at("file"), "").unwrap();
        let outputs =
            Arc::new(Outputs::new(vec![at("file/outputs"), "/proc/self/outputs".into(), at("deep/outputs")], 9));
        assert_eq!(outputs.known_home(), None);
        assert!(kept(&outputs, "a", b"1").starts_with(at("deep/outputs")));
        assert_eq!(outputs.known_home(), Some(at("deep/outputs").as_path()));
        let nowhere = Arc::new(Outputs::new(vec![at("file/outputs")], 9));
        assert_eq!(nowhere.begin("a").unwrap_err().kind(), io::ErrorKind::NotADirectory);
    }

    #[test]
    fn the_oldest_go_first_and_an_unfinished_one_at_once() {
        let home = tempfile::tempdir().unwrap();
        let outputs = Arc::new(Outputs::new(vec![home.path().join(HOME)], 10));
        let paths: Vec<PathBuf> = (0..4).map(|_| kept(&outputs, "a", b"1234")).collect();
        let there: Vec<bool> = paths.iter().map(|path| path.exists() && outputs.holds("a", path)).collect();
        assert_eq!(there, [false, false, true, true]);
        let mut unfinished = outputs.begin("a").unwrap();
        unfinished.write(b"x").unwrap();
        let path = unfinished.path.clone();
        assert!(path.exists());
        drop(unfinished);
        assert!(!path.exists() && !outputs.holds("a", &path));
    }

    #[test]
    fn what_a_killed_process_left_is_removed_and_nothing_else() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(HOME).join(name);
        let outputs = Arc::new(Outputs::new(vec![home.path().join(HOME)], 10));
        let used = kept(&outputs, "a", b"1");
        for name in ["simse-output-dead", "simse-output-new", "other-dead"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        for name in ["simse-output-dead", "other-dead"] {
            std::fs::write(at(name).join(LOCK), "").unwrap();
        }
        std::os::unix::fs::symlink(at("other-dead"), at("simse-output-link")).unwrap();
        let others = Arc::new(Outputs::new(vec![home.path().join(HOME)], 10));
        kept(&others, "a", b"1");
        assert!(used.exists(), "its owner lives");
        let left = ["simse-output-dead", "simse-output-new", "other-dead", "simse-output-link"];
        assert_eq!(left.map(|name| at(name).symlink_metadata().is_ok()), [false, true, true, true]);
    }

    #[test]
    fn a_directory_that_was_tidied_away_is_made_again() {
        let home = tempfile::tempdir().unwrap();
        let outputs = Arc::new(Outputs::new(vec![home.path().join(HOME)], 10));
        let path = kept(&outputs, "a", b"1");
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
        assert_eq!(std::fs::read(kept(&outputs, "a", b"2")).unwrap(), b"2");
    }
}
