//! The files of folders, parsed, and remembered for as long as they look the same.
//!
//! A look lists each folder and asks for each file's times, number and length; it reads only what is new or looks changed.
//! Bounded in folders and bytes: what was not looked at for longest is forgotten, and read again when it is wanted.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::base::{clock, file, limit};
use crate::protocol::DefinitionSource;

/// The file of a skill in its folder.
pub(super) const SKILL_FILE: &str = "SKILL.md";

/// How the files of a folder lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// `NAME.md`.
    Files,
    /// `NAME/SKILL.md`.
    Folders,
}

/// A folder that is looked at.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Place {
    /// The folder.
    pub directory: PathBuf,
    /// The tree that its files must lie in once links are followed. None: they may lie anywhere.
    pub within: Option<PathBuf>,
    /// Whose it is.
    pub source: DefinitionSource,
    /// Whether it may hold other files too: those are passed over in silence.
    pub shared: bool,
}

/// What became of a file.
#[derive(Debug)]
pub(super) enum Taken<T> {
    /// It defines this.
    One(Arc<T>),
    /// It has a fault, in words.
    Fault(Arc<str>),
    /// It is something else.
    Another,
}

impl<T> Clone for Taken<T> {
    fn clone(&self) -> Self {
        match self {
            Self::One(one) => Self::One(Arc::clone(one)),
            Self::Fault(why) => Self::Fault(Arc::clone(why)),
            Self::Another => Self::Another,
        }
    }
}

/// Makes something of a file's text.
pub(super) type Read<T> = fn(&str, &Path, &Place) -> Taken<T>;

/// How a file looks from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Look {
    file: (u64, u64),
    bytes: u64,
    changed: (i64, i64),
    touched: (i64, i64),
}

impl Look {
    fn of(found: &Metadata) -> Self {
        Self {
            file: (found.dev(), found.ino()),
            bytes: found.size(),
            changed: (found.mtime(), found.mtime_nsec()),
            touched: (found.ctime(), found.ctime_nsec()),
        }
    }

    /// Whether it may change again without looking so: clocks of file systems tick slowly.
    fn is_young(&self) -> bool {
        let touched_ms = self.touched.0.saturating_mul(1_000).saturating_add(self.touched.1 / 1_000_000);
        let now = i64::try_from(clock::machine_ms()).unwrap_or(i64::MAX);
        now.saturating_sub(touched_ms) < i64::try_from(limit::DEFINITION_YOUNG_MS).unwrap_or(i64::MAX)
    }
}

struct File<T> {
    path: PathBuf,
    look: Option<Look>,
    taken: Taken<T>,
}

struct Folder<T> {
    used: u64,
    bytes: u64,
    files: Vec<File<T>>,
}

/// The folders of one kind of definitions.
pub(super) struct Shelf<T> {
    layout: Layout,
    read: Read<T>,
    kept: Mutex<Kept<T>>,
}

struct Kept<T> {
    uses: u64,
    folders: HashMap<Place, Folder<T>>,
}

impl<T> std::fmt::Debug for Shelf<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shelf").field("layout", &self.layout).finish_non_exhaustive()
    }
}

impl<T> Shelf<T> {
    pub fn new(layout: Layout, read: Read<T>) -> Self {
        Self { layout, read, kept: Mutex::new(Kept { uses: 0, folders: HashMap::new() }) }
    }

    /// The files of a folder in the order of their names. Blocking.
    pub fn look(&self, place: &Place) -> Vec<(PathBuf, Taken<T>)> {
        let paths = self.list(&place.directory);
        let old = self.kept.lock().folders.remove(place);
        if paths.is_empty() {
            return Vec::new();
        }
        let mut old: HashMap<PathBuf, File<T>> = old
            .map(|folder| folder.files.into_iter().map(|file| (file.path.clone(), file)).collect())
            .unwrap_or_default();
        let files: Vec<File<T>> = paths.into_iter().map(|path| self.file((old.remove(&path), path), place)).collect();
        let found = files.iter().map(|file| (file.path.clone(), file.taken.clone())).collect();
        self.keep(place, files);
        found
    }

    fn list(&self, directory: &Path) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
        let mut paths: Vec<PathBuf> = entries.filter_map(|entry| self.wanted(&entry.ok()?.path())).collect();
        paths.sort();
        paths.truncate(limit::DEFINITIONS_OF_FOLDER_MAX);
        paths
    }

    fn wanted(&self, path: &Path) -> Option<PathBuf> {
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        match self.layout {
            Layout::Files => (!hidden && path.extension().is_some_and(|end| end == "md")).then(|| path.to_owned()),
            Layout::Folders => Some(path.join(SKILL_FILE)).filter(|file| !hidden && fs::symlink_metadata(file).is_ok()),
        }
    }

    /// A file as it was, or read again.
    fn file(&self, (old, path): (Option<File<T>>, PathBuf), place: &Place) -> File<T> {
        let look = fs::metadata(&path).ok().map(|found| Look::of(&found));
        match old {
            Some(old) if look.is_some() && old.look == look => old,
            Some(_) | None => {
                let taken = self.take(&path, place);
                // One that is young is read again at the next look.
                File { look: look.filter(|look| !look.is_young()), taken, path }
            }
        }
    }

    fn take(&self, path: &Path, place: &Place) -> Taken<T> {
        let fault = |why: String| if place.shared { Taken::Another } else { Taken::Fault(why.into()) };
        if let Some(tree) = &place.within
            && !fs::canonicalize(path).is_ok_and(|real| real.starts_with(tree))
        {
            return fault(format!("expected a file inside {}, once links are followed", tree.display()));
        }
        match file::read_small(path, limit::DEFINITION_FILE_BYTES_MAX) {
            Ok((bytes, _)) => match String::from_utf8(bytes) {
                Ok(text) => (self.read)(&text, path, place),
                Err(_) => fault("expected text in UTF-8".into()),
            },
            Err(cause) => fault(cause.to_string()),
        }
    }

    /// Remembers a folder, and forgets what was not looked at for longest where that is too much.
    fn keep(&self, place: &Place, files: Vec<File<T>>) {
        let bytes = files.iter().filter_map(|file| Some(file.look?.bytes)).sum();
        let mut kept = self.kept.lock();
        kept.uses += 1;
        let used = kept.uses;
        kept.folders.insert(place.clone(), Folder { used, bytes, files });
        let too_many = |kept: &Kept<T>| {
            let bytes: u64 = kept.folders.values().map(|folder| folder.bytes).sum();
            let most = u64::try_from(limit::DEFINITION_BYTES_KEPT_MAX).unwrap_or(u64::MAX);
            kept.folders.len() > 1 && (kept.folders.len() > limit::DEFINITION_FOLDERS_MAX || bytes > most)
        };
        while too_many(&kept) {
            let oldest = kept.folders.iter().min_by_key(|(_, folder)| folder.used).map(|(place, _)| place.clone());
            let Some(oldest) = oldest else { break };
            kept.folders.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    static READS: AtomicUsize = AtomicUsize::new(0);

    fn place(directory: &Path) -> Place {
        Place { directory: directory.to_owned(), within: None, source: DefinitionSource::User, shared: false }
    }

    fn counted() -> Shelf<String> {
        Shelf::new(Layout::Files, |text, _, _| {
            READS.fetch_add(1, Ordering::Relaxed);
            Taken::One(Arc::new(text.to_owned()))
        })
    }

    /// A file that has lain there for an hour.
    fn old(path: &Path, text: &str) {
        fs::write(path, text).unwrap();
    }

    fn texts(found: &[(PathBuf, Taken<String>)]) -> Vec<String> {
        let text = |(path, taken): &(PathBuf, Taken<String>)| match taken {
            Taken::One(text) => format!("{}: {text}", path.file_name().unwrap().display()),
            Taken::Fault(why) => format!("fault: {why}"),
            Taken::Another => "another".to_owned(),
        };
        found.iter().map(text).collect()
    }

    #[test]
    fn files_come_in_the_order_of_their_names_and_follow_every_change() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let shelf = counted();
        assert!(shelf.look(&place(&at("none"))).is_empty());
        old(&at("b.md"), "b");
        old(&at("a.md"), "a");
        for other in ["a.txt", ".hidden.md", "md"] {
            old(&at(other), "no");
        }
        fs::create_dir(at("dir.md")).unwrap();
        let look = || texts(&shelf.look(&place(directory.path())));
        let first = look();
        assert_eq!(first[..2], ["a.md: a", "b.md: b"]);
        assert!(first[2].starts_with("fault: ") && first.len() == 3, "{first:?}");
        old(&at("b.md"), "B");
        assert_eq!(look()[1], "b.md: B", "of the same length, at once");
        fs::remove_file(at("a.md")).unwrap();
        fs::rename(at("b.md"), at("c.md")).unwrap();
        assert_eq!(look()[0], "c.md: B");
    }

    #[test]
    fn what_looks_the_same_is_not_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.md");
        fs::write(&path, "a").unwrap();
        let reads: fn(&str, &Path, &Place) -> Taken<String> = |_, _, _| Taken::Another;
        let shelf = Shelf::new(Layout::Files, reads);
        let look = Look::of(&fs::metadata(&path).unwrap());
        assert!(look.is_young(), "it was made just now");
        assert!(!Look { touched: (0, 0), ..look }.is_young());
        let kept = File { path: path.clone(), look: Some(look), taken: Taken::One(Arc::new("kept".to_owned())) };
        shelf.keep(&place(directory.path()), vec![kept]);
        assert_eq!(texts(&shelf.look(&place(directory.path()))), ["a.md: kept"]);
        fs::write(&path, "other").unwrap();
        assert_eq!(texts(&shelf.look(&place(directory.path()))), ["another"]);
    }

    #[test]
    fn a_projects_files_stay_in_its_tree() {
        let outside = tempfile::tempdir().unwrap();
        let project = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "secret").unwrap();
        fs::write(project.path().join("own"), "own").unwrap();
        std::os::unix::fs::symlink(outside.path().join("secret"), project.path().join("a.md")).unwrap();
        std::os::unix::fs::symlink("own", project.path().join("b.md")).unwrap();
        std::os::unix::fs::symlink("nothing", project.path().join("c.md")).unwrap();
        let within = Some(project.path().canonicalize().unwrap());
        let place = Place { within, source: DefinitionSource::Project, ..place(project.path()) };
        let found = texts(&counted().look(&place));
        assert!(found[0].starts_with("fault: expected a file inside"), "{found:?}");
        assert_eq!(found[1], "b.md: own");
        assert!(found[2].starts_with("fault: "), "{found:?}");
    }

    #[test]
    fn no_more_folders_are_kept_than_may_be() {
        let shelf = counted();
        let folder = |at: usize| place(Path::new(&format!("/f{at}")));
        let file = || File { path: PathBuf::new(), look: None, taken: Taken::Another };
        for at in 0..limit::DEFINITION_FOLDERS_MAX + 2 {
            shelf.keep(&folder(at), vec![file()]);
        }
        let kept = shelf.kept.lock();
        assert_eq!(kept.folders.len(), limit::DEFINITION_FOLDERS_MAX);
        assert!(!kept.folders.contains_key(&folder(1)) && kept.folders.contains_key(&folder(2)));
    }
}
