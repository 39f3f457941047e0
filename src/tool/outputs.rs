//! Whole outputs of commands that were too long to be shown, in files that a later call reads.
//!
//! The files lie in a directory that only this user can enter, and go with the session they belong to; the directory
//! goes with the server or the registry. What a process that was killed left behind is removed by the next one that
//! keeps an output. All such directories of a user have one home, which is no place for temporary files as long as there
//! is another: the sandbox hides it from commands, so that none reads or changes what another session was shown. A command
//! without a sandbox can: so everything is written, read and removed in the directory that was opened as it was made,
//! whatever its path leads to by now, and what is no file of ours any more is not read.
//!
//! Invariants: what is kept is bounded, a file and all together (also while it is written), the oldest go first; a session
//! finds its own alone; no link is followed.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};

use crate::base::{beneath, limit};
use crate::config::{state_directory, temporary_state_directory};

/// The home's name.
const HOME: &str = "outputs";
/// How the directories begin.
const FRONT: &str = "simse-output-";
/// How the files end; in front of it stands a number.
const BACK: &str = ".txt";
/// The file in each that its owner keeps locked.
const LOCK: &str = "lock";
/// A directory without a lock is being made; one as old as this was not made to its end.
const MAKING: Duration = Duration::from_secs(60);
/// A directory that can be listed.
const LISTED: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// A file that is read: what is none, such as a pipe, holds nobody up.
const READ: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
/// A file that is made.
const MADE: OFlags =
    OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// For the owner alone.
const OWNER: Mode = Mode::RUSR.union(Mode::WUSR);

/// The kept outputs of one server, or one registry.
#[derive(Debug)]
pub struct Outputs {
    /// Where their home may be, the best first.
    homes: Vec<PathBuf>,
    home: OnceLock<PathBuf>,
    /// What had to be made for it, the innermost first.
    made: Mutex<Vec<PathBuf>>,
    total_bytes_max: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    directory: Option<Arc<Directory>>,
    /// Oldest first.
    kept: VecDeque<Kept>,
    /// What is kept, and what is written just now.
    total_bytes: u64,
    /// Number of the last file.
    last: u64,
}

/// A directory of ours. Removed when it is dropped.
#[derive(Debug)]
struct Directory {
    path: PathBuf,
    name: String,
    /// The directory itself, and the one that it lies in.
    handle: OwnedFd,
    home: OwnedFd,
    /// Held as long as the directory is in use.
    _lock: File,
}

#[derive(Debug)]
struct Kept {
    member: String,
    file: Place,
    /// What was written: device and number.
    identity: (u64, u64),
    bytes: u64,
}

/// A file in a directory of ours.
#[derive(Debug, Clone)]
struct Place {
    directory: Arc<Directory>,
    name: String,
}

/// An output that is being written. Its file is removed when it is dropped before [`OutputFile::keep`].
#[derive(Debug)]
pub struct OutputFile {
    outputs: Arc<Outputs>,
    member: String,
    place: Place,
    file: File,
    identity: (u64, u64),
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
        Self { homes, home: OnceLock::new(), made: Mutex::default(), total_bytes_max, state: Mutex::default() }
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
            let missing = home.ancestors().take_while(|place| place.symlink_metadata().is_err());
            let missing: Vec<PathBuf> = missing.map(Path::to_owned).collect();
            let made = make_home(home);
            self.made.lock().extend(missing);
            match made {
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
        let place = {
            let mut state = self.state.lock();
            let directory = match state.directory.take() {
                Some(directory) if directory.is_there() => directory,
                // Somebody tidied up, or put something else there.
                Some(_) | None => Arc::new(Directory::make(self.home()?)?),
            };
            state.directory = Some(Arc::clone(&directory));
            state.last += 1;
            Place { directory, name: format!("{}{BACK}", state.last) }
        };
        let file = File::from(rustix::fs::openat(&place.directory.handle, place.name.as_str(), MADE, OWNER)?);
        let identity = identity(&file.metadata()?);
        let member = member.to_owned();
        Ok(OutputFile { outputs: Arc::clone(self), member, place, file, identity, bytes: 0, kept: false })
    }

    /// Opens a kept output of `member`. None: this is not the path of one, and never was. Blocking.
    ///
    /// # Errors
    /// It has made room for newer ones, or something else stands in its place.
    pub fn open(&self, member: &str, path: &Path) -> Option<io::Result<File>> {
        let state = self.state.lock();
        let kept = state.kept.iter().find(|kept| kept.member == member && kept.file.path() == path);
        let Some(Kept { file, identity, .. }) = kept else {
            let gone = |message: &str| Some(Err(io::Error::new(io::ErrorKind::NotFound, message)));
            if state.was(path) {
                return gone("no output of this session is kept there any more: the oldest make room for new ones");
            }
            drop(state);
            let message =
                "this output is gone: whole outputs are kept until the server ends, and it has been started again";
            return if self.was_forsaken(path) { gone(message) } else { None };
        };
        let (place, identity) = (file.clone(), *identity);
        drop(state);
        Some(place.read(identity))
    }

    /// Whether a process that is gone kept an output there.
    fn was_forsaken(&self, path: &Path) -> bool {
        let begins =
            |directory: &Path| directory.file_name().is_some_and(|n| n.as_bytes().starts_with(FRONT.as_bytes()));
        let Some(directory) = path.parent().filter(|directory| begins(directory)) else { return false };
        // It goes with its last output.
        let is_home = |home: &PathBuf| {
            let real = std::fs::canonicalize(home);
            directory.parent() == Some(real.as_deref().unwrap_or(home))
        };
        self.homes.iter().any(is_home) && directory.symlink_metadata().is_err()
    }

    /// Removes what processes that are gone have kept. Blocking.
    pub fn remove_forsaken(&self) {
        for home in &self.homes {
            let real = std::fs::canonicalize(home).and_then(|home| beneath::way().open_absolute(&home, LISTED));
            // Mostly there is none.
            real.iter().for_each(remove_forsaken);
        }
    }

    /// Removes the outputs of `member`. Blocking.
    pub fn forget(&self, member: &str) {
        let mut state = self.state.lock();
        let (gone, kept) = std::mem::take(&mut state.kept).into_iter().partition(|kept| kept.member == member);
        state.kept = kept;
        state.remove(gone);
    }

    /// Removes all of them, their directory, and what was made for their home as far as it is empty. Blocking.
    pub fn clear(&self) {
        let mut state = self.state.lock();
        let gone = std::mem::take(&mut state.kept);
        state.remove(gone);
        state.directory = None;
        for place in std::mem::take(&mut *self.made.lock()) {
            // Others may have put something there.
            let _kept = std::fs::remove_dir(place);
        }
    }

    /// Makes room for so many bytes of an output that is being written; for how many there is some.
    fn reserve(&self, wanted: u64) -> u64 {
        let mut state = self.state.lock();
        while state.total_bytes.saturating_add(wanted) > self.total_bytes_max
            && let Some(oldest) = state.kept.pop_front()
        {
            state.remove(VecDeque::from([oldest]));
        }
        let granted = wanted.min(self.total_bytes_max.saturating_sub(state.total_bytes));
        state.total_bytes += granted;
        granted
    }
}

impl State {
    fn remove(&mut self, gone: VecDeque<Kept>) {
        for Kept { file, bytes, .. } in gone {
            self.total_bytes = self.total_bytes.saturating_sub(bytes);
            file.remove();
        }
    }

    /// Whether an output lay there, of whomever.
    fn was(&self, path: &Path) -> bool {
        let ours = self.directory.as_ref().is_some_and(|directory| path.parent() == Some(&directory.path));
        let number = path.file_name().and_then(OsStr::to_str).and_then(|name| name.strip_suffix(BACK)?.parse().ok());
        ours && number.is_some_and(|number: u64| number <= self.last)
    }
}

impl Place {
    fn path(&self) -> PathBuf {
        self.directory.path.join(&self.name)
    }

    /// Opens it where it is still the file of that identity.
    fn read(&self, wanted: (u64, u64)) -> io::Result<File> {
        let file = File::from(rustix::fs::openat(&self.directory.handle, self.name.as_str(), READ, Mode::empty())?);
        let found = file.metadata()?;
        if found.is_file() && identity(&found) == wanted {
            return Ok(file);
        }
        Err(io::Error::new(io::ErrorKind::NotFound, "the output is gone: something else was put in its place"))
    }

    fn remove(&self) {
        // Somebody else may have removed it.
        let _gone = rustix::fs::unlinkat(&self.directory.handle, self.name.as_str(), AtFlags::empty());
    }
}

impl OutputFile {
    /// Writes the next bytes, as far as one output may go, and all of them. Blocking.
    ///
    /// # Errors
    /// What the file system says.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let room = limit::KEPT_OUTPUT_BYTES_MAX.saturating_sub(self.bytes).min(bytes.len() as u64);
        let granted = self.outputs.reserve(room);
        self.bytes += granted;
        self.file.write_all(&bytes[..usize::try_from(granted).unwrap_or(usize::MAX)])
    }

    /// Keeps what was written.
    pub fn keep(mut self) -> KeptOutput {
        self.kept = true;
        let (file, bytes) = (self.place.clone(), self.bytes);
        let told = KeptOutput { path: file.path(), bytes };
        let kept = Kept { member: self.member.clone(), file, identity: self.identity, bytes };
        self.outputs.state.lock().kept.push_back(kept);
        told
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if !self.kept {
            self.place.remove();
            let mut state = self.outputs.state.lock();
            state.total_bytes = state.total_bytes.saturating_sub(self.bytes);
        }
    }
}

impl Directory {
    fn make(home: &Path) -> io::Result<Self> {
        let (path, home) = (home, beneath::way().open_absolute(home, LISTED)?);
        remove_forsaken(&home);
        let name = format!("{FRONT}{}", uuid::Uuid::new_v4().simple());
        rustix::fs::mkdirat(&home, name.as_str(), Mode::RWXU)?;
        let handle = rustix::fs::openat(&home, name.as_str(), LISTED, Mode::empty())?;
        let lock = File::from(rustix::fs::openat(&handle, LOCK, MADE, OWNER)?);
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { path: path.join(&name), name, handle, home, _lock: lock })
    }

    /// Whether its path leads to it.
    fn is_there(&self) -> bool {
        let found = || Some((self.path.symlink_metadata().ok()?, rustix::fs::fstat(&self.handle).ok()?));
        found().is_some_and(|(found, own)| identity(&found) == (own.st_dev, own.st_ino))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        remove(&self.home, &self.name, &self.handle);
    }
}

fn identity(found: &std::fs::Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

/// A directory that is ours alone, and so is the one it lies in; its real path.
fn make_home(home: &Path) -> io::Result<PathBuf> {
    std::fs::DirBuilder::new().mode(0o700).recursive(true).create(home)?;
    let own = rustix::process::geteuid().as_raw();
    for path in home.parent().into_iter().chain([home]) {
        let found = path.symlink_metadata()?;
        if found.uid() != own || found.mode() & 0o022 != 0 {
            let message = format!("{} belongs to somebody else, or others can write in it", path.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
        }
    }
    std::fs::canonicalize(home)
}

/// Removes the directories of processes that are gone.
fn remove_forsaken(home: &OwnedFd) {
    let own = rustix::process::geteuid().as_raw();
    for name in names(home) {
        if !name.as_bytes().starts_with(FRONT.as_bytes()) {
            continue;
        }
        let Ok(directory) = rustix::fs::openat(home, name.as_os_str(), LISTED, Mode::empty()) else { continue };
        let directory = File::from(directory);
        let Some(found) = directory.metadata().ok().filter(|found| found.uid() == own) else { continue };
        let forsaken = match rustix::fs::openat(&directory, LOCK, READ, Mode::empty()) {
            Ok(lock) => rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok(),
            Err(_) => is_old(&found),
        };
        if forsaken {
            remove(home, &name, &OwnedFd::from(directory));
        }
    }
}

/// Removes what we put in a directory of ours, then the directory. What somebody else put there stays, and it with it.
fn remove(home: &OwnedFd, name: impl AsRef<OsStr>, directory: &OwnedFd) {
    for name in names(directory) {
        if name == LOCK || name.as_bytes().ends_with(BACK.as_bytes()) {
            let _gone = rustix::fs::unlinkat(directory, name.as_os_str(), AtFlags::empty());
        }
    }
    // A link, or what is not empty, is left as it is.
    let _left = rustix::fs::unlinkat(home, name.as_ref(), AtFlags::REMOVEDIR);
}

/// The names in a directory.
fn names(directory: &OwnedFd) -> Vec<std::ffi::OsString> {
    let entries = rustix::fs::Dir::read_from(directory.as_fd()).into_iter().flatten().flatten();
    entries.map(|entry| OsStr::from_bytes(entry.file_name().to_bytes()).to_owned()).collect()
}

fn is_old(found: &std::fs::Metadata) -> bool {
    let now = SystemTime::UNIX_EPOCH + Duration::from_millis(crate::base::clock::machine_ms());
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

    fn holds(outputs: &Outputs, member: &str, path: &Path) -> bool {
        matches!(outputs.open(member, path), Some(Ok(_)))
    }

    fn words(outputs: &Outputs, member: &str, path: &Path) -> String {
        outputs.open(member, path).unwrap().unwrap_err().to_string()
    }

    #[test]
    fn each_session_finds_its_own_and_they_go_with_it() {
        let home = tempfile::tempdir().unwrap();
        let outputs = Arc::new(Outputs::new(vec![home.path().join(HOME)], 1000));
        let (one, two) = (kept(&outputs, "a", b"1"), kept(&outputs, "b", b"2"));
        assert!(holds(&outputs, "a", &one) && holds(&outputs, "b", &two));
        assert!(!holds(&outputs, "a", &two), "another's");
        assert_eq!(std::fs::read(&one).unwrap(), b"1");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&one), mode(one.parent().unwrap())), (0o600, 0o700));
        outputs.forget("a");
        assert!(!one.exists() && !holds(&outputs, "a", &one) && two.exists());
        drop(outputs);
        assert_eq!(std::fs::read_dir(home.path().join(HOME)).unwrap().count(), 0, "the directory has gone");
    }

    #[test]
    fn what_was_made_for_the_home_goes_in_the_end_unless_others_use_it() {
        let home = tempfile::tempdir().unwrap();
        let deep = home.path().join("a/b").join(HOME);
        let [ours, other] = [(); 2].map(|()| Arc::new(Outputs::new(vec![deep.clone()], 1000)));
        let (one, two) = (kept(&ours, "a", b"1"), kept(&other, "a", b"2"));
        ours.clear();
        assert!(!one.exists() && two.exists());
        other.clear();
        assert!(deep.exists(), "it was there before");
        std::fs::remove_dir_all(home.path().join("a")).unwrap();
        let again = kept(&ours, "a", b"1");
        ours.clear();
        assert!(!again.exists() && home.path().exists() && !home.path().join("a").exists());
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
        let there: Vec<bool> = paths.iter().map(|path| path.exists() && holds(&outputs, "a", path)).collect();
        assert_eq!(there, [false, false, true, true]);
        let mut unfinished = outputs.begin("a").unwrap();
        unfinished.write(b"x").unwrap();
        let path = unfinished.place.path();
        assert!(path.exists());
        drop(unfinished);
        assert!(!path.exists() && !holds(&outputs, "a", &path));
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
    fn an_output_of_a_process_that_is_gone_is_known_as_one() {
        let home = tempfile::tempdir().unwrap();
        let at = home.path().canonicalize().unwrap().join(HOME);
        let open = || Arc::new(Outputs::new(vec![at.clone()], 10));
        let killed = at.join("simse-output-dead");
        std::fs::create_dir_all(&killed).unwrap();
        std::fs::write(killed.join(LOCK), "").unwrap();
        std::fs::write(killed.join("1.txt"), "1").unwrap();
        let (next, lives) = (open(), open());
        let theirs = kept(&lives, "a", b"1");
        next.remove_forsaken();
        assert!(!killed.exists() && theirs.exists());
        assert!(words(&next, "a", &killed.join("1.txt")).contains("started again"));
        assert!(next.open("a", &theirs).is_none(), "somebody else's is none");
        lives.clear();
        std::fs::remove_dir(&at).unwrap();
        assert!(words(&next, "a", &theirs).contains("started again"), "also when nothing is left there");
        for other in [at.join("other/1.txt"), home.path().join("simse-output-dead/1.txt"), at.clone()] {
            assert!(next.open("a", &other).is_none(), "{}", other.display());
        }
    }

    #[test]
    fn a_directory_that_was_tidied_away_is_made_again() {
        let home = tempfile::tempdir().unwrap();
        let outputs = Arc::new(Outputs::new(vec![home.path().join(HOME)], 10));
        let path = kept(&outputs, "a", b"1");
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
        assert_eq!(std::fs::read(kept(&outputs, "a", b"2")).unwrap(), b"2");
    }

    /// A command that is held to nothing puts something else in a place of ours.
    #[test]
    fn nothing_is_written_read_or_removed_through_a_link() {
        let (home, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let theirs = |number: u64| outside.path().join(format!("{number}.txt"));
        let outputs = Arc::new(Outputs::new(vec![home.path().join(HOME)], 1000));
        let first = kept(&outputs, "a", b"ours");
        let unfinished = outputs.begin("a").unwrap();
        for number in [1, 2, 4] {
            std::fs::write(theirs(number), "theirs").unwrap();
        }
        let directory = first.parent().unwrap();
        std::fs::rename(directory, directory.with_extension("old")).unwrap();
        std::os::unix::fs::symlink(outside.path(), directory).unwrap();
        let mut read = String::new();
        io::Read::read_to_string(&mut outputs.open("a", &first).unwrap().unwrap(), &mut read).unwrap();
        assert_eq!(read, "ours", "what was kept, wherever its directory is now");
        drop(unfinished);
        let third = kept(&outputs, "a", b"new");
        assert_ne!(third.parent(), first.parent(), "a directory of ours, not theirs");
        outputs.forget("a");
        assert!(!third.exists());
        drop(outputs);
        let left: Vec<bool> = (1..=4).map(|number| theirs(number).exists()).collect();
        assert_eq!(left, [true, true, false, true], "nothing was made or removed there");
    }

    #[test]
    fn what_is_no_file_of_ours_any_more_is_not_read() {
        let home = tempfile::tempdir().unwrap();
        let outputs = Arc::new(Outputs::new(vec![home.path().join(HOME)], 1000));
        let replaced: [fn(&Path); 3] = [
            |path| rustix::fs::mkfifoat(rustix::fs::CWD, path, OWNER).unwrap(),
            |path| std::fs::write(path, "other").unwrap(),
            |path| std::fs::create_dir(path).unwrap(),
        ];
        for put in replaced {
            let path = kept(&outputs, "a", b"1");
            // Still held by a name, so that its number is not given to what is put in its place.
            std::fs::rename(&path, path.with_extension("moved")).unwrap();
            put(&path);
            assert_eq!(words(&outputs, "a", &path), "the output is gone: something else was put in its place");
        }
        let path = kept(&outputs, "a", b"1");
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        assert!(outputs.open("a", &path).unwrap().is_err(), "a link");
    }

    #[test]
    fn what_is_being_written_counts_too_and_what_made_room_says_so() {
        let home = tempfile::tempdir().unwrap();
        let outputs = Arc::new(Outputs::new(vec![home.path().join(HOME)], 10));
        let first = kept(&outputs, "a", b"1234");
        let mut begun = [outputs.begin("a").unwrap(), outputs.begin("a").unwrap()];
        for file in &mut begun {
            file.write(b"1234567").unwrap();
        }
        assert!(words(&outputs, "a", &first).starts_with("no output of this session is kept there any more"));
        assert!(outputs.open("a", &first.with_file_name("99.txt")).is_none(), "there never was one");
        let bytes = begun.map(|file| file.keep().bytes);
        assert_eq!(bytes, [7, 3], "ten in all");
        outputs.forget("a");
        assert_eq!(outputs.state.lock().total_bytes, 0);
    }
}
