//! The parallel walk: the workers of one search share a heap of directories and of shares of large directories.
//!
//! The first worker is the caller's thread; others are called once there is work for them, from the pool of the runtime
//! that the caller is in: to wake a thread that is there costs far less than to start one, and less again than a processor
//! that stands idle meanwhile. Who comes when all is done finds nothing to do, and nobody waits for him. Work is taken in the order
//! of the paths, which keeps few directories open and lets a search that has enough early results leave the rest out. What
//! a visitor finds is its own until the end: nothing is shared while walking but the heap.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering as Memory};
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::entries::{Entries, Kind, as_path, join, open_in};
use super::listed::{FileSystems, Listed};
use super::rules::{Rules, Verdict, prefix};
use super::shelf::{Shelf, Shelves, Slot};
use super::{Stop, by_path};
use crate::base::limit;
use crate::base::workspace::Workspace;
use crate::tool::Veil;

/// Directories kept open for what is still to be entered; what lies deeper is opened again from the top.
const OPEN_MAX: usize = 256;
/// Work that waits before another worker is worth its start.
const WAITING_MIN: usize = 3;
/// Times that a worker without work looks for some before it sleeps.
const LOOKS_MAX: usize = 8;
/// How long it watches between two looks, in the processor's own pauses: some microseconds.
const LOOK_SPINS: usize = 200;
/// With less work than this waiting, a directory's files are shared out in smaller parts: so all end at about the same time.
const WAITING_LOW: usize = 8;
/// The part then, of the usual one.
const PART_LOW: usize = 4;

static WORKERS: LazyLock<usize> = LazyLock::new(|| {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(limit::SEARCH_THREADS_MAX)
});

/// A walk to be made.
#[derive(Debug)]
pub(in crate::host) struct Walk {
    /// Where it begins: absolute, without links, a directory in the workspace.
    pub base: PathBuf,
    /// Opens the base, and says what in it is not looked at.
    pub workspace: Arc<Workspace>,
    /// Hidden names too.
    pub hidden: bool,
    /// What ignore files leave out, too.
    pub ignored: bool,
    /// What is passed over as if it were not there.
    pub veil: Option<Veil>,
    /// Directories that are not entered.
    pub skipped: Vec<&'static str>,
    /// Levels of directories that are entered, the base being the first.
    pub depth: usize,
    /// Files that one worker takes at a time from a large directory.
    pub share: usize,
    /// Files are read, not only looked at, and come to each visitor in the order of their names.
    pub reads: bool,
    /// What files held the last time is kept there.
    pub shelves: Option<&'static Shelves>,
}

/// A file, a link or something special, while its directory is open.
#[derive(Debug, Clone, Copy)]
pub(in crate::host) struct Place<'p> {
    /// Its directory.
    pub directory: BorrowedFd<'p>,
    /// Its name there.
    pub name: &'p [u8],
    /// Its path relative to the base.
    pub path: &'p [u8],
    /// What it is.
    pub kind: Kind,
    /// A read that gives less than it could has reached the end of the file.
    pub short_reads_end: bool,
    /// What it held the last time may be known.
    pub slot: Option<Slot<'p>>,
}

/// What one worker does with what the walk comes by.
pub(in crate::host) trait Visit: Send {
    /// Whether the directory at this path is to be entered.
    fn enters(&mut self, path: &[u8]) -> bool;

    /// Whether something at this path that is no directory could count. Asked of all names, before any rule is.
    fn takes(&mut self, path: &[u8]) -> bool;

    /// Looks at a file. Only what is no directory, and is taken, comes here.
    fn file(&mut self, place: Place<'_>);

    /// Is told what could not be read.
    fn failed(&mut self, path: &[u8], cause: io::Error);
}

impl Walk {
    /// Walks until all is seen or `stop` says so. `visitor` makes one visitor a worker; they come back with what they found.
    ///
    /// # Errors
    /// The base cannot be opened.
    ///
    /// # Panics
    /// A worker has panicked.
    pub(in crate::host) fn run<V: Visit + 'static>(
        self,
        stop: &Arc<Stop>,
        visitor: impl Fn() -> V + Send + Sync + 'static,
    ) -> io::Result<Vec<V>> {
        let base = self.workspace.open_directory(&self.base)?;
        let home = self.workspace.working_directory();
        let rules = if self.ignored { None } else { Rules::above(&self.base, home) };
        let closed = self.workspace.protected_below(&self.base).map(|path| path.as_os_str().as_bytes().to_vec());
        let mut stem = self.base.as_os_str().as_bytes().to_vec();
        stem.resize(prefix(&self.base), b'/');
        let first = Task { path: Vec::new(), rules, work: Work::Enter { parent: None, depth: 0 } };
        let crew = Arc::new(Crew {
            base,
            closed: closed.collect(),
            stem,
            open: Arc::default(),
            heap: Mutex::new(Heap { tasks: BinaryHeap::from([first]), ..Heap::default() }),
            file_systems: FileSystems::default(),
            waiting: AtomicUsize::new(1),
            change: Condvar::new(),
            done: Mutex::new(Vec::new()),
            visitor: Box::new(visitor),
            stop: Arc::clone(stop),
            walk: self,
        });
        crew.work();
        crew.end();
        if let Some(shelves) = crew.walk.shelves {
            shelves.sweep_later();
        }
        let done = std::mem::take(&mut *crew.done.lock());
        Ok(done)
    }
}

/// A directory that was listed, open for those who take a share of it or enter what is in it.
struct Directory {
    handle: OwnedFd,
    path: Vec<u8>,
    files: Entries,
    short_reads_end: bool,
    shelf: Option<Arc<Shelf>>,
    open: Arc<AtomicUsize>,
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Memory::Relaxed);
    }
}

/// A piece of work, ordered by its path.
struct Task {
    path: Vec<u8>,
    rules: Option<Arc<Rules>>,
    work: Work,
}

enum Work {
    /// List the directory at the path. Without a parent it is opened from the base.
    Enter { parent: Option<Arc<Directory>>, depth: usize },
    /// Look at some files of a directory; the path is that of the first.
    Look { directory: Arc<Directory>, files: Range<usize> },
}

impl Ord for Task {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap gives the greatest.
        by_path(&other.path, &self.path)
    }
}

impl PartialOrd for Task {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Task {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Task {}

#[derive(Default)]
struct Heap {
    tasks: BinaryHeap<Task>,
    /// Workers that have a task.
    busy: usize,
    /// Workers that were called beside the first, whether or not they have come.
    called: usize,
    /// Those of them that have come and not left.
    present: usize,
    /// Whoever comes now comes too late.
    over: bool,
    /// One of them has panicked.
    panicked: bool,
}

/// What the workers of one walk share.
struct Crew<V> {
    walk: Walk,
    stop: Arc<Stop>,
    base: OwnedFd,
    /// Paths relative to the base that are passed over, whatever they are.
    closed: Vec<Vec<u8>>,
    /// The base with a slash at its end.
    stem: Vec<u8>,
    open: Arc<AtomicUsize>,
    heap: Mutex<Heap>,
    /// The file systems that it came by.
    file_systems: FileSystems,
    /// Tasks in the heap, for a look from outside.
    waiting: AtomicUsize,
    change: Condvar,
    done: Mutex<Vec<V>>,
    visitor: Box<dyn Fn() -> V + Send + Sync>,
}

/// Counts a worker as busy for as long as it lives, also when the work panics.
struct Busy<'b, V>(&'b Crew<V>);

impl<V> Drop for Busy<'_, V> {
    fn drop(&mut self) {
        let mut heap = self.0.heap.lock();
        heap.busy -= 1;
        if heap.busy == 0 {
            self.0.change.notify_all();
        }
    }
}

/// Counts a worker that was called as present, in the same way.
struct Present<'p, V>(&'p Crew<V>);

impl<V> Drop for Present<'_, V> {
    fn drop(&mut self) {
        let mut heap = self.0.heap.lock();
        heap.present -= 1;
        heap.panicked |= std::thread::panicking();
        if heap.present == 0 {
            self.0.change.notify_all();
        }
    }
}

impl<V: Visit + 'static> Crew<V> {
    /// One worker's whole life.
    fn work(self: &Arc<Self>) {
        let mut worker = Worker { crew: self, visitor: (self.visitor)(), path: self.stem.clone() };
        while let Some(task) = self.next() {
            let _busy = Busy(self);
            match task.work {
                Work::Look { directory, files } => worker.look(&directory, files),
                Work::Enter { .. } => worker.enter(task),
            }
        }
        self.done.lock().push(worker.visitor);
    }

    /// The life of a worker that was called.
    fn help(crew: &Weak<Self>) {
        let Some(crew) = crew.upgrade() else { return };
        let mut heap = crew.heap.lock();
        if heap.over {
            return;
        }
        heap.present += 1;
        drop(heap);
        let _present = Present(&crew);
        crew.work();
    }

    /// Waits for those who are still here, and lets nobody else in.
    fn end(&self) {
        let mut heap = self.heap.lock();
        heap.over = true;
        while heap.present > 0 {
            self.change.wait(&mut heap);
        }
        assert!(!heap.panicked, "a worker of the walk panicked");
    }

    /// The next piece of work. None when there is none and nobody makes more.
    fn next(&self) -> Option<Task> {
        let mut heap = self.heap.lock();
        let mut looks = LOOKS_MAX;
        loop {
            if self.stop.check().is_err() {
                return None;
            }
            if let Some(task) = heap.tasks.pop() {
                heap.busy += 1;
                self.waiting.store(heap.tasks.len(), Memory::Relaxed);
                return Some(task);
            }
            if heap.busy == 0 {
                return None;
            }
            if looks > 0 {
                // Others finish a directory in less time than it takes to fall asleep and to be woken.
                looks -= 1;
                MutexGuard::unlocked(&mut heap, || self.watch());
                continue;
            }
            self.change.wait(&mut heap);
        }
    }

    /// Waits a moment for work without giving up the processor.
    fn watch(&self) {
        for _ in 0..LOOK_SPINS {
            if self.waiting.load(Memory::Relaxed) > 0 {
                return;
            }
            std::hint::spin_loop();
        }
    }

    /// Adds work, and calls a worker when there is enough of it.
    fn add(self: &Arc<Self>, tasks: Vec<Task>) {
        if tasks.is_empty() {
            return;
        }
        let mut heap = self.heap.lock();
        heap.tasks.extend(tasks);
        self.waiting.store(heap.tasks.len(), Memory::Relaxed);
        let calls = heap.tasks.len() >= WAITING_MIN && heap.called + 1 < *WORKERS;
        heap.called += usize::from(calls);
        drop(heap);
        self.change.notify_all();
        // Outside a runtime those that are there do it all.
        if calls && let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let crew = Arc::downgrade(self);
            drop(runtime.spawn_blocking(move || Self::help(&crew)));
        }
    }
}

/// One worker: its visitor, and the path that it is at.
struct Worker<'c, V> {
    crew: &'c Arc<Crew<V>>,
    visitor: V,
    /// Absolute; begins with the crew's stem.
    path: Vec<u8>,
}

impl<V: Visit + 'static> Worker<'_, V> {
    /// Lists a directory, puts what is below it on the heap, and looks at its files.
    fn enter(&mut self, task: Task) {
        let Task { path, rules, work: Work::Enter { parent, depth } } = task else { return };
        if !self.visitor.enters(&path) {
            return;
        }
        let Listed { handle, mut entries, short_reads_end, shelf } = match self.list(&path, parent.as_deref()) {
            Ok(listed) => listed,
            // What is gone, or is no directory any more, was not there.
            Err(cause) if matches!(cause.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return,
            Err(cause) => return self.visitor.failed(&path, cause),
        };
        drop(parent);
        if entries.more {
            self.visitor.failed(&path, io::Error::other("has more names than are read"));
        }
        self.go_to(&path);
        let walk = &self.crew.walk;
        let rules = match walk.ignored {
            true => None,
            false => Rules::within(rules.as_ref(), handle.as_fd(), &entries, self.path.len()),
        };
        let descends = depth + 1 < walk.depth;
        entries.retain(|name, entry| self.keeps(name, entry.kind, rules.as_deref(), descends));
        if walk.reads && shelf.is_none() {
            entries.sort();
        }
        let mut below = Vec::new();
        entries.retain(|name, entry| {
            if entry.kind == Kind::Directory {
                below.push(join(&path, name));
            }
            entry.kind != Kind::Directory
        });
        self.crew.open.fetch_add(1, Memory::Relaxed);
        let open = Arc::clone(&self.crew.open);
        let directory = Arc::new(Directory { handle, path, files: entries, short_reads_end, shelf, open });
        let low = walk.reads && self.crew.waiting.load(Memory::Relaxed) + below.len() < WAITING_LOW;
        let share = if low { (walk.share / PART_LOW).max(1) } else { walk.share };
        let mut tasks = shares(&directory, share);
        let parent = (self.crew.open.load(Memory::Relaxed) < OPEN_MAX).then_some(&directory);
        tasks.extend(below.into_iter().map(|path| Task {
            path,
            rules: rules.clone(),
            work: Work::Enter { parent: parent.cloned(), depth: depth + 1 },
        }));
        self.crew.add(tasks);
        self.look(&directory, 0..directory.files.len().min(share));
    }

    /// Opens and lists the directory at `path`.
    fn list(&self, path: &[u8], parent: Option<&Directory>) -> io::Result<Listed> {
        let handle = open_in(self.crew.base.as_fd(), parent.map(|parent| parent.handle.as_fd()), path)?;
        match self.crew.walk.reads {
            true => Listed::to_read(handle, self.crew.walk.shelves, &self.crew.file_systems),
            false => Listed::to_look_at(handle),
        }
    }

    /// Sets the path to a directory of the walk, with a slash at its end.
    fn go_to(&mut self, directory: &[u8]) {
        self.path.truncate(self.crew.stem.len());
        self.path.extend_from_slice(directory);
        if !directory.is_empty() {
            self.path.push(b'/');
        }
    }

    /// Whether an entry of the directory that the path is at belongs to the walk.
    fn keeps(&mut self, name: &[u8], kind: Kind, rules: Option<&Rules>, descends: bool) -> bool {
        let directory = kind == Kind::Directory;
        if directory && (!descends || self.crew.walk.skipped.iter().any(|skipped| skipped.as_bytes() == name)) {
            return false;
        }
        let shown = self.crew.walk.hidden || !name.starts_with(b".");
        // Without rules nothing brings back what is hidden.
        if !shown && rules.is_none() {
            return false;
        }
        let at = self.path.len();
        self.path.extend_from_slice(name);
        let below = &self.path[self.crew.stem.len()..];
        let taken = !self.crew.closed.iter().any(|closed| closed == below) && (directory || self.visitor.takes(below));
        let verdict = match rules {
            Some(rules) if taken => rules.verdict(&self.path, directory),
            Some(_) | None => None,
        };
        let kept = match verdict {
            Some(Verdict::Ignored) => false,
            Some(Verdict::Wanted) => true,
            None => shown,
        };
        let seen = taken && kept && !self.crew.walk.veil.as_ref().is_some_and(|veil| veil.hides(as_path(&self.path)));
        self.path.truncate(at);
        seen
    }

    /// Shows files of a directory to the visitor.
    fn look(&mut self, directory: &Directory, files: Range<usize>) {
        self.go_to(&directory.path);
        let at = self.path.len();
        for entry in files.filter_map(|file| directory.files.get(file)) {
            if self.crew.stop.check().is_err() {
                return;
            }
            let name = directory.files.name(entry);
            self.path.truncate(at);
            self.path.extend_from_slice(name);
            let path = &self.path[self.crew.stem.len()..];
            self.visitor.file(Place {
                directory: directory.handle.as_fd(),
                name,
                path,
                kind: entry.kind,
                short_reads_end: directory.short_reads_end,
                slot: directory
                    .shelf
                    .as_deref()
                    .zip(self.crew.walk.shelves)
                    .map(|(shelf, all)| Slot::new(all, shelf, name)),
            });
        }
    }
}

/// The files of a large directory that are left to whoever has time.
fn shares(directory: &Arc<Directory>, share: usize) -> Vec<Task> {
    let count = directory.files.len();
    let starts = (share..count).step_by(share);
    let tasks = starts.filter_map(|start| {
        let first = directory.files.name(directory.files.get(start)?);
        let work = Work::Look { directory: Arc::clone(directory), files: start..count.min(start + share) };
        Some(Task { path: join(&directory.path, first), rules: None, work })
    });
    tasks.collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, AtomicU64};
    use std::time::Duration;

    use super::super::entries::FileSystem;
    use super::super::{Stopped, open_file};
    use super::*;

    /// Notes what it is shown, and what the first bytes are.
    #[derive(Default)]
    struct Notes {
        paths: Vec<String>,
        /// Files that have a place on a shelf.
        slots: usize,
        foreign: usize,
        failures: Vec<String>,
    }

    impl Visit for Notes {
        fn enters(&mut self, path: &[u8]) -> bool {
            !path.ends_with(b"closed")
        }

        fn takes(&mut self, path: &[u8]) -> bool {
            !path.ends_with(b"refused")
        }

        fn file(&mut self, place: Place<'_>) {
            self.paths.push(String::from_utf8_lossy(place.path).into_owned());
            self.slots += usize::from(place.slot.is_some());
            let Ok(file) = open_file(place.directory, place.name) else { return };
            let mut start = [0; 8];
            let read = rustix::io::read(file, &mut start).unwrap_or(0);
            self.foreign += usize::from(start[..read].starts_with(b"outside"));
        }

        fn failed(&mut self, path: &[u8], cause: io::Error) {
            self.failures.push(format!("{}: {cause}", String::from_utf8_lossy(path)));
        }
    }

    /// Workers come from here.
    static RUNTIME: LazyLock<tokio::runtime::Runtime> =
        LazyLock::new(|| tokio::runtime::Builder::new_current_thread().build().unwrap());

    fn walk_of(base: &Path) -> Walk {
        Walk {
            base: base.to_owned(),
            workspace: Arc::new(Workspace::new(base, &[]).unwrap()),
            hidden: true,
            ignored: true,
            veil: None,
            skipped: vec!["skipped"],
            depth: usize::MAX,
            share: 4,
            reads: true,
            shelves: None,
        }
    }

    fn walk(base: &Path, change: impl FnOnce(&mut Walk)) -> (BTreeSet<String>, Vec<Notes>) {
        let mut walk = walk_of(base);
        change(&mut walk);
        let _inside = RUNTIME.enter();
        let notes = walk.run(&Arc::default(), Notes::default).unwrap();
        let all: Vec<String> = notes.iter().flat_map(|notes| notes.paths.iter().cloned()).collect();
        let set: BTreeSet<String> = all.iter().cloned().collect();
        assert_eq!(all.len(), set.len(), "nothing is shown twice");
        (set, notes)
    }

    fn home() -> (tempfile::TempDir, PathBuf) {
        let home = tempfile::tempdir().unwrap();
        let real = home.path().canonicalize().unwrap();
        (home, real)
    }

    #[test]
    fn every_file_is_seen_once_whoever_takes_it() {
        let (_home, base) = home();
        let mut want = BTreeSet::new();
        for n in 0..900 {
            let path = format!("{}/{}/f{n}", n % 3, n % 40);
            fs::create_dir_all(base.join(&path).parent().unwrap()).unwrap();
            fs::write(base.join(&path), "").unwrap();
            want.insert(path);
        }
        for n in 0..100 {
            fs::write(base.join(format!("wide{n}")), "").unwrap();
            want.insert(format!("wide{n}"));
        }
        for directory in ["skipped", "1/closed"] {
            fs::create_dir(base.join(directory)).unwrap();
            fs::write(base.join(directory).join("x"), "").unwrap();
        }
        fs::write(base.join("refused"), "").unwrap();
        for share in [1, 7, 10_000] {
            assert_eq!(walk(&base, |walk| walk.share = share).0, want);
        }
        let top: BTreeSet<String> = want.iter().filter(|path| !path.contains('/')).cloned().collect();
        assert_eq!(walk(&base, |walk| walk.depth = 1).0, top);
        let two: BTreeSet<String> = want.iter().filter(|path| path.matches('/').count() < 2).cloned().collect();
        assert_eq!(walk(&base, |walk| walk.depth = 2).0, two);
    }

    #[test]
    fn a_tree_deeper_than_what_is_kept_open_is_walked_to_its_end() {
        let (_home, base) = home();
        let mut directory = base.clone();
        let depth = OPEN_MAX + 60;
        // Two ways at each level keep each level open until the other way was taken.
        for level in 0..depth {
            fs::create_dir(directory.join("z")).unwrap();
            fs::write(directory.join("z/f"), level.to_string()).unwrap();
            directory.push("a");
            fs::create_dir(&directory).unwrap();
        }
        let (seen, notes) = walk(&base, |_| {});
        assert_eq!(seen.len(), depth);
        assert!(notes.iter().all(|notes| notes.failures.is_empty()));
        assert!(seen.contains(&format!("{}z/f", "a/".repeat(depth - 1))));
    }

    #[test]
    fn a_stop_ends_all_workers() {
        let (_home, base) = home();
        for n in 0..50 {
            fs::create_dir(base.join(format!("d{n}"))).unwrap();
            fs::write(base.join(format!("d{n}/f")), "").unwrap();
        }
        let walk = walk_of(&base);
        let stop = Arc::<Stop>::default();
        stop.stop(Stopped::Late);
        let notes = walk.run(&stop, Notes::default).unwrap();
        assert!(notes.iter().all(|notes| notes.paths.is_empty()));
    }

    /// One of two: the first waits at its first file until the second has one.
    struct Meets {
        first: bool,
        met: Arc<(Mutex<bool>, Condvar)>,
        panics: bool,
    }

    impl Visit for Meets {
        fn enters(&mut self, _: &[u8]) -> bool {
            true
        }

        fn takes(&mut self, _: &[u8]) -> bool {
            true
        }

        fn file(&mut self, _: Place<'_>) {
            let mut met = self.met.0.lock();
            if !self.first {
                *met = true;
                self.met.1.notify_all();
                assert!(!self.panics, "as it was told");
                return;
            }
            while !*met {
                assert!(!self.met.1.wait_for(&mut met, Duration::from_secs(120)).timed_out(), "nobody came");
            }
        }

        fn failed(&mut self, _: &[u8], _: io::Error) {}
    }

    #[test]
    fn whoever_is_called_comes_and_fails_for_all() {
        if *WORKERS < 2 {
            return;
        }
        let (_home, base) = home();
        for n in 0..20 {
            fs::create_dir(base.join(format!("d{n}"))).unwrap();
            fs::write(base.join(format!("d{n}/f")), "").unwrap();
        }
        let _inside = RUNTIME.enter();
        for panics in [false, true] {
            let walk = walk_of(&base);
            let (met, made) = (Arc::default(), AtomicUsize::new(0));
            let visitor = move || {
                let first = made.fetch_add(1, Memory::Relaxed) == 0;
                Meets { first, met: Arc::clone(&met), panics }
            };
            let run = std::panic::AssertUnwindSafe(|| walk.run(&Arc::default(), visitor));
            match std::panic::catch_unwind(run) {
                Ok(visitors) => assert!(!panics && visitors.unwrap().len() > 1),
                Err(_) => assert!(panics),
            }
        }
    }

    #[test]
    fn a_directory_that_becomes_a_link_leads_nowhere() {
        let (_home, base) = home();
        let inside = base.join("in");
        fs::create_dir_all(inside.join("dir/deep")).unwrap();
        fs::create_dir_all(base.join("out/deep")).unwrap();
        for (path, text) in
            [("in/dir/a", "inside"), ("in/dir/deep/b", "inside"), ("out/a", "outside"), ("out/deep/b", "outside")]
        {
            fs::write(base.join(path), text).unwrap();
        }
        let done = AtomicBool::new(false);
        let swaps = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Memory::Relaxed) {
                    fs::rename(inside.join("dir"), base.join("away")).unwrap();
                    symlink(base.join("out"), inside.join("dir")).unwrap();
                    fs::remove_file(inside.join("dir")).unwrap();
                    fs::rename(base.join("away"), inside.join("dir")).unwrap();
                    swaps.fetch_add(1, Memory::Relaxed);
                }
            });
            let mut foreign = 0;
            while swaps.load(Memory::Relaxed) < 10_000 {
                foreign += walk(&inside, |_| {}).1.iter().map(|notes| notes.foreign).sum::<usize>();
            }
            done.store(true, Memory::Relaxed);
            assert_eq!(foreign, 0, "nothing outside was read");
        });
    }

    #[test]
    fn a_directory_has_a_shelf_from_the_second_walk_on() {
        let (_home, base) = home();
        fs::create_dir(base.join("a")).unwrap();
        fs::write(base.join("f"), "1").unwrap();
        fs::write(base.join("a/f"), "2").unwrap();
        let known = FileSystem::of(fs::File::open(&base).unwrap().as_fd()).notes_changes;
        let shelves: &'static Shelves = Box::leak(Box::new(Shelves::new(0, 1 << 20)));
        let slots = |shelves| {
            let (_, notes) = walk(&base, |walk| walk.shelves = shelves);
            notes.iter().map(|notes| notes.slots).sum::<usize>()
        };
        assert_eq!(slots(None), 0);
        assert_eq!(slots(Some(shelves)), 0, "the first walk");
        assert_eq!(slots(Some(shelves)), if known { 2 } else { 0 }, "the second walk");
        assert_eq!(slots(None), 0);
    }
}
