//! What directories and small files held when a search last read them, so that the next search need not read them again.
//!
//! An agent searches the same sources again and again. To ask whether a file is still the same costs a fourth of what
//! it costs to open, read and close it. What is kept of a directory and its files lies on its shelf; a directory gets one
//! when it is searched for the second time.
//!
//! Promises: a file, or a directory's list of names, is answered for from its shelf only while its number, its size and both its times are what they were
//! before it was read, and only when its last change lay [`SEARCH_SETTLED_MS`](limit::SEARCH_SETTLED_MS) back by then, so
//! that a later change cannot have left the times alone: a clock's step is some milliseconds, and a page that a program
//! writes through a mapping is written to the disk, and its next change noted, after 35 seconds. File systems
//! that do not note such changes have no shelves. Who may not open a file any more gets nothing either: that is a change too.
//! The shelves of the whole process hold a bounded number of bytes, and what nobody searched for a while is let go.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use rustix::fs::{AtFlags, FileType, Stat};

use super::entries::Entries;
use crate::base::{clock, limit};

/// A directory's device and number. Their widths, and those of sizes and times, differ between systems; all fit here.
type Number = (i128, i128);

/// What there is of the files of all directories.
#[derive(Debug)]
pub(in crate::host) struct Shelves {
    shelves: Mutex<HashMap<Number, Arc<Shelf>>>,
    bytes: Arc<AtomicUsize>,
    /// When shelves without use were looked for the last time.
    swept: AtomicU64,
    /// Somebody will look for them later.
    sweeping: AtomicBool,
    settled_ms: u64,
    bytes_max: usize,
}

/// Those of this process.
pub(in crate::host) static SHELVES: std::sync::LazyLock<Shelves> =
    std::sync::LazyLock::new(|| Shelves::new(limit::SEARCH_SETTLED_MS, limit::SEARCH_SHELVES_BYTES_MAX));

/// Directories that have a shelf in this process, and the bytes on all of them.
pub fn shelved() -> (usize, usize) {
    (SHELVES.shelves.lock().len(), SHELVES.bytes.load(Ordering::Relaxed))
}

/// What there is of the files of one directory.
#[derive(Debug)]
pub(in crate::host) struct Shelf {
    files: RwLock<HashMap<Box<[u8]>, Kept>>,
    listing: Mutex<Option<(Sight, Arc<Entries>)>>,
    used_ms: AtomicU64,
    /// Bytes of all shelves.
    bytes: Arc<AtomicUsize>,
}

impl Drop for Shelf {
    fn drop(&mut self) {
        let files: usize = self.files.get_mut().iter().map(|(name, kept)| kept.content.weight(name)).sum();
        let listing = self.listing.get_mut().as_ref().map_or(0, |(_, entries)| entries.bytes());
        self.bytes.fetch_sub(files + listing, Ordering::Relaxed);
    }
}

/// A file at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::host) struct Sight {
    number: Number,
    size: i128,
    written: (i128, i128),
    changed: (i128, i128),
}

#[derive(Debug, Clone)]
struct Kept {
    sight: Sight,
    content: Arc<Content>,
}

/// What a file held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::host) enum Content {
    /// All of it.
    Text(Box<[u8]>),
    /// It is no text, and a search of text leaves it out.
    Binary,
}

impl Content {
    /// Bytes that it counts for, with its name and place.
    fn weight(&self, name: &[u8]) -> usize {
        const PLACE: usize = size_of::<Kept>() + size_of::<Content>() + size_of::<Box<[u8]>>();
        let bytes = match self {
            Self::Text(bytes) => bytes.len(),
            Self::Binary => 0,
        };
        bytes + name.len() + PLACE
    }
}

impl Sight {
    /// A regular file as the system tells of it. None for anything else.
    fn of_file(stat: &Stat) -> Option<Self> {
        (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).then(|| Self::of(stat))
    }

    fn of(stat: &Stat) -> Self {
        Self {
            number: number_of(stat),
            size: i128::from(stat.st_size),
            written: (i128::from(stat.st_mtime), i128::from(stat.st_mtime_nsec)),
            changed: (i128::from(stat.st_ctime), i128::from(stat.st_ctime_nsec)),
        }
    }

    /// Whether its last change lies `ms` back. A change in what is to come is none.
    fn is_settled(&self, now_ms: u64, ms: u64) -> bool {
        let last = self.changed.0.max(self.written.0);
        u64::try_from(last)
            .is_ok_and(|seconds| seconds.saturating_add(1).saturating_mul(1000).saturating_add(ms) <= now_ms)
    }
}

/// The number of what the system tells of.
fn number_of(stat: &Stat) -> Number {
    (i128::from(stat.st_dev), i128::from(stat.st_ino))
}

impl Shelves {
    /// None yet. `settled_ms`: what a file's last change must lie back; `bytes_max`: what all files together may take.
    pub(in crate::host) fn new(settled_ms: u64, bytes_max: usize) -> Self {
        Self {
            shelves: Mutex::default(),
            bytes: Arc::default(),
            swept: AtomicU64::new(0),
            sweeping: AtomicBool::new(false),
            settled_ms,
            bytes_max,
        }
    }

    /// The shelf of a directory that was searched before. The first time there is none.
    pub(super) fn of(&self, directory: &Stat) -> Option<Arc<Shelf>> {
        let number = number_of(directory);
        let now = clock::machine_ms();
        let mut shelves = self.shelves.lock();
        if let Some(shelf) = shelves.get(&number) {
            shelf.used_ms.store(now, Ordering::Relaxed);
            return Some(Arc::clone(shelf));
        }
        let full = shelves.len() >= limit::SEARCH_SHELVES_MAX || self.bytes.load(Ordering::Relaxed) >= self.bytes_max;
        if full && self.swept.load(Ordering::Relaxed) + 1000 <= now {
            self.sweep(&mut shelves, now);
        }
        if shelves.len() < limit::SEARCH_SHELVES_MAX {
            let bytes = Arc::clone(&self.bytes);
            let used_ms = AtomicU64::new(now);
            let shelf = Shelf { files: RwLock::default(), listing: Mutex::default(), used_ms, bytes };
            shelves.insert(number, Arc::new(shelf));
        }
        None
    }

    /// The names in the directory of `shelf`, sorted, which was found to be as `found` says before: as they are known, or as
    /// `read` gives them.
    ///
    /// # Errors
    /// Those of `read`.
    pub(super) fn listing(
        &self,
        shelf: &Shelf,
        found: &Stat,
        read: impl FnOnce() -> io::Result<Entries>,
    ) -> io::Result<Entries> {
        let sight = Sight::of(found);
        let known =
            shelf.listing.lock().as_ref().filter(|(seen, _)| *seen == sight).map(|(_, entries)| Arc::clone(entries));
        if let Some(entries) = known {
            return Ok(Entries::clone(&entries));
        }
        let mut entries = read()?;
        entries.sort();
        if !entries.more && self.has_room() && sight.is_settled(clock::machine_ms(), self.settled_ms) {
            self.bytes.fetch_add(entries.bytes(), Ordering::Relaxed);
            let old = shelf.listing.lock().replace((sight, Arc::new(entries.clone())));
            self.bytes.fetch_sub(old.map_or(0, |(_, entries)| entries.bytes()), Ordering::Relaxed);
        }
        Ok(entries)
    }

    /// Lets go what nobody used for a while.
    fn sweep(&self, shelves: &mut HashMap<Number, Arc<Shelf>>, now: u64) {
        self.swept.store(now, Ordering::Relaxed);
        shelves.retain(|_, shelf| shelf.used_ms.load(Ordering::Relaxed) + limit::SEARCH_SHELF_IDLE_MS > now);
        shelves.shrink_to_fit();
    }

    /// Sees to it that what nobody uses is let go although nobody searches any more, as long as the runtime lives.
    pub(super) fn sweep_later(&'static self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if self.sweeping.swap(true, Ordering::Relaxed) {
            return;
        }
        let sweeping = Sweeping(self);
        runtime.spawn(async move {
            let all = sweeping;
            loop {
                tokio::time::sleep(Duration::from_millis(limit::SEARCH_SHELF_IDLE_MS)).await;
                let mut shelves = all.0.shelves.lock();
                all.0.sweep(&mut shelves, clock::machine_ms());
                if shelves.is_empty() {
                    return;
                }
            }
        });
    }

    /// Whether there is room for more.
    fn has_room(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) < self.bytes_max
    }

    /// Bytes that they hold.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// Until it is dropped somebody sweeps: a runtime may end before its tasks do.
struct Sweeping(&'static Shelves);

impl Drop for Sweeping {
    fn drop(&mut self) {
        self.0.sweeping.store(false, Ordering::Relaxed);
    }
}

/// A file's place on a shelf.
#[derive(Debug, Clone, Copy)]
pub(in crate::host) struct Slot<'s> {
    shelves: &'s Shelves,
    shelf: &'s Shelf,
    name: &'s [u8],
}

impl<'s> Slot<'s> {
    /// The place of the file `name` of a shelf's directory.
    pub(super) fn new(shelves: &'s Shelves, shelf: &'s Shelf, name: &'s [u8]) -> Self {
        Self { shelves, shelf, name }
    }

    /// What the file holds, when that is known and has not changed.
    pub(in crate::host) fn find(&self, directory: BorrowedFd<'_>) -> Option<Arc<Content>> {
        let kept = self.shelf.files.read().get(self.name).cloned()?;
        let stat = rustix::fs::statat(directory, self.name, AtFlags::SYMLINK_NOFOLLOW);
        if stat.ok().as_ref().and_then(Sight::of_file) == Some(kept.sight) {
            return Some(kept.content);
        }
        self.clear();
        None
    }

    /// Looks at an open file that is about to be read. None when it is not to be kept.
    pub(super) fn sight(&self, file: impl AsFd) -> Option<Sight> {
        if !self.shelves.has_room() {
            return None;
        }
        let sight = Sight::of_file(&rustix::fs::fstat(file).ok()?)?;
        let small = sight.size <= i128::from(limit::SEARCH_SHELF_FILE_BYTES_MAX);
        (small && sight.is_settled(clock::machine_ms(), self.shelves.settled_ms)).then_some(sight)
    }

    /// Keeps what was read after a file was seen so.
    pub(super) fn keep(&self, sight: Sight, content: Content) {
        let held = match &content {
            Content::Text(text) => i128::try_from(text.len()).ok(),
            Content::Binary => Some(sight.size),
        };
        let weight = content.weight(self.name);
        // Who got less or more than the size has met a change.
        if held != Some(sight.size) || self.shelves.bytes.load(Ordering::Relaxed) + weight > self.shelves.bytes_max {
            return;
        }
        let kept = Kept { sight, content: Arc::new(content) };
        let mut files = self.shelf.files.write();
        self.shelves.bytes.fetch_add(weight, Ordering::Relaxed);
        if let Some(old) = files.insert(self.name.into(), kept) {
            self.shelves.bytes.fetch_sub(old.content.weight(self.name), Ordering::Relaxed);
        }
    }

    fn clear(&self) {
        if let Some(old) = self.shelf.files.write().remove(self.name) {
            self.shelves.bytes.fetch_sub(old.content.weight(self.name), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, FileTimes};
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;
    use std::time::SystemTime;

    use super::super::entries::open_file;
    use super::*;

    /// A directory, its file `f`, and a shelf for it.
    struct Case {
        home: tempfile::TempDir,
        directory: File,
        shelves: Shelves,
        shelf: Arc<Shelf>,
    }

    impl Case {
        fn new(settled_ms: u64, bytes_max: usize) -> Self {
            let home = tempfile::tempdir().unwrap();
            fs::write(home.path().join("f"), "first").unwrap();
            let directory = File::open(home.path()).unwrap();
            let shelves = Shelves::new(settled_ms, bytes_max);
            let found = rustix::fs::fstat(&directory).unwrap();
            assert!(shelves.of(&found).is_none(), "once is not again");
            let shelf = shelves.of(&found).unwrap();
            Self { home, directory, shelves, shelf }
        }

        fn slot(&self) -> Slot<'_> {
            Slot::new(&self.shelves, &self.shelf, b"f")
        }

        fn find(&self) -> Option<Content> {
            self.slot().find(self.directory.as_fd()).map(|content| (*content).clone())
        }

        /// Reads the file as a search does. True when it is kept.
        fn read(&self) -> bool {
            let file = open_file(self.directory.as_fd(), b"f").unwrap();
            let Some(sight) = self.slot().sight(&file) else { return false };
            self.slot().keep(sight, Content::Text(fs::read(self.home.path().join("f")).unwrap().into()));
            self.find().is_some()
        }
    }

    /// The test's seconds begin in the past, so that a file made now is settled.
    const AT_ONCE: u64 = 0;

    fn wait_for_the_next_second() {
        let start = clock::machine_ms() / 1000;
        while clock::machine_ms() / 1000 <= start {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[test]
    fn what_changed_in_any_way_is_read_again() {
        type Change = fn(&Path);
        let same_length_and_times: Change = |f| {
            let before = f.metadata().unwrap();
            fs::write(f, "other").unwrap();
            let times = FileTimes::new().set_modified(before.modified().unwrap()).set_accessed(SystemTime::now());
            File::options().write(true).open(f).unwrap().set_times(times).unwrap();
        };
        let changes: [(&str, Change); 9] = [
            ("written", |f| fs::write(f, "longer than before").unwrap()),
            ("written with its old times", same_length_and_times),
            ("one byte", |f| File::options().write(true).open(f).unwrap().write_all(b"g").unwrap()),
            ("added to", |f| File::options().append(true).open(f).unwrap().write_all(b"g").unwrap()),
            ("cut", |f| File::options().write(true).open(f).unwrap().set_len(2).unwrap()),
            ("another in its place", |f| {
                fs::write(f.with_extension("new"), "other").unwrap();
                fs::rename(f.with_extension("new"), f).unwrap();
            }),
            ("a link in its place", |f| {
                fs::rename(f, f.with_extension("old")).unwrap();
                symlink(f.with_extension("old"), f).unwrap();
            }),
            ("not to be read", |f| fs::set_permissions(f, fs::Permissions::from_mode(0o000)).unwrap()),
            ("gone", |f| fs::remove_file(f).unwrap()),
        ];
        let cases: Vec<_> = changes.iter().map(|(what, change)| (what, change, Case::new(AT_ONCE, 1 << 20))).collect();
        wait_for_the_next_second();
        for (what, change, case) in cases {
            assert_eq!(case.find(), None, "{what}: nothing is known at first");
            assert!(case.read(), "{what}");
            assert_eq!(case.find(), Some(Content::Text((*b"first").into())), "{what}");
            change(&case.home.path().join("f"));
            assert_eq!(case.find(), None, "{what}");
            assert_eq!(case.shelves.bytes(), 0, "{what}: what is wrong is let go");
        }
    }

    #[test]
    fn names_are_known_until_the_directory_changes() {
        let names = |entries: &Entries| entries.iter().map(|(name, _)| name.to_vec()).collect::<Vec<_>>();
        let case = Case::new(AT_ONCE, 1 << 20);
        fs::write(case.home.path().join("b"), "").unwrap();
        fs::write(case.home.path().join("a"), "").unwrap();
        let reads = std::cell::Cell::new(0);
        let list = || {
            let found = rustix::fs::fstat(&case.directory).unwrap();
            let directory = File::open(case.home.path()).unwrap();
            let read = || {
                reads.set(reads.get() + 1);
                Entries::read(directory.as_fd())
            };
            names(&case.shelves.listing(&case.shelf, &found, read).unwrap())
        };
        assert_eq!(list(), [b"a", b"b", b"f"]);
        assert_eq!((list().len(), reads.get()), (3, 2), "it was changed in this second");
        assert_eq!(case.shelves.bytes(), 0);
        wait_for_the_next_second();
        for reads_then in [3, 3, 3] {
            assert_eq!((list(), reads.get()), (vec![b"a".to_vec(), b"b".to_vec(), b"f".to_vec()], reads_then));
        }
        assert!(case.shelves.bytes() > 0);
        fs::write(case.home.path().join("b"), "its content is none of the directory's").unwrap();
        assert_eq!((list().len(), reads.get()), (3, 3));
        fs::rename(case.home.path().join("b"), case.home.path().join("c")).unwrap();
        assert_eq!((list(), reads.get()), (vec![b"a".to_vec(), b"c".to_vec(), b"f".to_vec()], 4));
        wait_for_the_next_second();
        list();
        // Once more only where the second ended between the renaming and the look behind it.
        let before = reads.get();
        assert_eq!((list().len(), reads.get()), (3, before));
        fs::remove_file(case.home.path().join("c")).unwrap();
        fs::create_dir(case.home.path().join("c")).unwrap();
        assert_eq!((list().len(), reads.get()), (3, before + 1), "a directory in the place of a file");
    }

    #[test]
    fn only_what_rests_is_small_and_was_read_whole_is_kept() {
        let young = Case::new(3_600_000, 1 << 20);
        wait_for_the_next_second();
        assert!(!young.read(), "it was changed in the last hour");

        let large = Case::new(AT_ONCE, 1 << 20);
        let size = usize::try_from(limit::SEARCH_SHELF_FILE_BYTES_MAX).unwrap() + 1;
        fs::write(large.home.path().join("f"), vec![b'x'; size]).unwrap();
        let cut = Case::new(AT_ONCE, 1 << 20);
        let pipe = Case::new(AT_ONCE, 1 << 20);
        wait_for_the_next_second();
        assert!(!large.read());
        let file = open_file(cut.directory.as_fd(), b"f").unwrap();
        let sight = cut.slot().sight(&file).unwrap();
        cut.slot().keep(sight, Content::Text((*b"fir").into()));
        assert_eq!(cut.find(), None, "less was read than the file had");
        assert!(pipe.slot().sight(&pipe.directory).is_none(), "a directory is no file");
        let future = SystemTime::now() + Duration::from_secs(1_000);
        let times = FileTimes::new().set_modified(future);
        File::options().write(true).open(pipe.home.path().join("f")).unwrap().set_times(times).unwrap();
        assert!(!pipe.read(), "it was changed in the future");
    }

    #[test]
    fn the_bytes_are_bounded_and_come_back() {
        let case = Case::new(AT_ONCE, 2_000);
        for number in 0..100 {
            fs::write(case.home.path().join(number.to_string()), [b'x'; 100]).unwrap();
        }
        wait_for_the_next_second();
        let names: Vec<String> = (0..100).map(|number: u32| number.to_string()).collect();
        let kept = names.iter().filter(|name| {
            let slot = Slot::new(&case.shelves, &case.shelf, name.as_bytes());
            let file = open_file(case.directory.as_fd(), name.as_bytes()).unwrap();
            if let Some(sight) = slot.sight(&file) {
                slot.keep(sight, Content::Text([b'x'; 100].into()));
            }
            slot.find(case.directory.as_fd()).is_some()
        });
        let kept = kept.count();
        assert!((3..20).contains(&kept), "{kept}");
        assert!((1_000..=2_000).contains(&case.shelves.bytes()), "{}", case.shelves.bytes());
        case.shelves.sweep(&mut case.shelves.shelves.lock(), clock::machine_ms() + limit::SEARCH_SHELF_IDLE_MS);
        assert_eq!(case.shelves.shelves.lock().len(), 0);
        let Case { shelves, shelf, home: _home, directory } = case;
        assert!(Slot::new(&shelves, &shelf, b"0").find(directory.as_fd()).is_some(), "who holds it still has it");
        drop(shelf);
        assert_eq!(shelves.bytes(), 0);
    }

    #[test]
    fn the_number_of_shelves_is_bounded() {
        let shelves = Shelves::new(AT_ONCE, 1 << 20);
        let count = u64::try_from(limit::SEARCH_SHELVES_MAX).unwrap();
        let here = rustix::fs::stat(".").unwrap();
        let of = |inode| {
            let mut found = here;
            found.st_ino = inode;
            shelves.of(&found).is_some()
        };
        assert!(!(0..count + 10).any(of));
        assert_eq!([0, count - 1, count].map(of), [true, true, false]);
    }
}
