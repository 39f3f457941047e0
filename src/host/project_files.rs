//! The files of a session's directory for a person: what is in a directory, and which files some letters mean.
//!
//! Looked at with the same handles as the tools, so that no link leads out of the roots, and the server's own data stays unseen; so
//! does what is git's own. Names that cannot be shown as they are (control characters, no text) are left out.
//! What ignore files leave out is marked in a listing, and not among what is meant.

use std::collections::BinaryHeap;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::fs_common::SKIPPED_DIRECTORIES;
use super::fs_list::ignored;
use super::search::{Entries, Kind, Place, Rules, Stop, Verdict, Visit, Walk, as_path, prefix, searching};
use crate::base::letters::fit;
use crate::base::workspace::{PathError, Workspace};
use crate::base::{limit, show};
use crate::protocol::{ApiError, FileEntry, FileKind, FilesView};
use crate::tool::ToolError;

/// Names that a worker takes at a time.
const SHARE_FILES: usize = 4_096;

/// Looks at once: each takes all processors, and nobody's turns are to wait for many.
static LOOKS: Semaphore = Semaphore::const_new(2);

/// What a person wants to see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilesWanted {
    /// The directory.
    pub path: String,
    /// The letters of the files that are meant, anywhere below it. None: what is in the directory itself.
    pub query: Option<String>,
    /// The most entries.
    pub limit: usize,
}

/// Looks, when others have looked. What takes longer than [`limit::FILES_TIME_MS`] is answered with what was found until then.
///
/// # Errors
/// `NOT_FOUND` for a directory that is not there, `INVALID_ARGUMENT` for one that is none or lies where no tool may look, `CONFLICT`
/// when the session's own one is gone.
pub async fn project_files(workspace: Arc<Workspace>, wanted: FilesWanted) -> Result<FilesView, ApiError> {
    let _turn = LOOKS.acquire().await.map_err(|closed| ApiError::internal(closed.to_string()))?;
    workspace.is_there().map_err(|gone| ApiError::conflict(gone.to_string()))?;
    let base = place(&workspace, &wanted.path)?;
    let (never, time) = (CancellationToken::new(), Duration::from_millis(limit::FILES_TIME_MS));
    let path = wanted.path.clone();
    let look = move |stop: &Arc<Stop>| {
        let looked = match &wanted.query {
            None => list(&workspace, base, wanted.limit),
            Some(query) => find(&workspace, base, (query, wanted.limit), stop),
        };
        looked.map_err(|cause| ToolError::failed(cause.to_string()))
    };
    searching(&never, time, look)
        .await
        .map_err(|cause| ApiError::unfit("path", "a directory that can be read", format!("{path} ({cause})")))
}

/// The directory without links.
fn place(workspace: &Workspace, path: &str) -> Result<PathBuf, ApiError> {
    let refused = |error: PathError| match error {
        missing if missing.is_not_found() => ApiError::not_found(format!("directory {path}")),
        other => ApiError::unfit("path", "a directory inside of the session's", other.to_string()),
    };
    if !workspace.look_at(path).map_err(refused)?.is_dir() {
        return Err(ApiError::unfit("path", "a directory", path.to_owned()));
    }
    let base = workspace.resolve(path).map_err(refused)?;
    if is_gits(workspace, &base) {
        return Err(ApiError::unfit("path", "a directory of the project, not of git itself", path.to_owned()));
    }
    Ok(base)
}

/// Whether it lies in what git keeps for itself.
fn is_gits(workspace: &Workspace, real: &Path) -> bool {
    real.strip_prefix(workspace.working_directory()).unwrap_or(real).iter().any(|name| name == ".git")
}

/// What is in a directory.
fn list(workspace: &Workspace, base: PathBuf, most: usize) -> io::Result<FilesView> {
    let handle = workspace.open_directory(&base)?;
    let found = Entries::read(handle.as_fd())?;
    let above = Rules::above(&base, workspace.working_directory());
    let rules = Rules::within(above.as_ref(), handle.as_fd(), &found, prefix(&base));
    // What lies in a directory that is left out is left out with it.
    let within = base.ancestors().take_while(|path| *path != workspace.working_directory());
    let out = above.as_ref().is_some_and(|rules| {
        within.into_iter().any(|path| rules.verdict(path.as_os_str().as_bytes(), true) == Some(Verdict::Ignored))
    });
    let closed: Vec<_> = workspace.protected_below(&base).collect();
    let mut entries: Vec<FileEntry> = Vec::new();
    for (name, entry) in found.iter() {
        let path = base.join(as_path(name));
        let shut = name == b".git" || closed.iter().any(|path| path.as_os_str().as_bytes() == name);
        let Some(shown) = workspace.named(&path).to_str().filter(|_| !shut && show::is_plain(name)) else { continue };
        let ignored = out || rules.as_ref().is_some_and(|rules| ignored(rules, &base, name, entry.kind));
        entries.push(FileEntry { path: shown.to_owned(), kind: kind(workspace, entry.kind, shown), ignored });
    }
    let place = |entry: &FileEntry| entry.kind != FileKind::Directory;
    entries.sort_unstable_by(|a, b| place(a).cmp(&place(b)).then_with(|| a.path.cmp(&b.path)));
    let truncated = found.more || entries.len() > most;
    entries.truncate(most);
    Ok(FilesView { entries, truncated })
}

/// A link counts as what it leads to, if that may be looked at.
fn kind(workspace: &Workspace, kind: Kind, path: &str) -> FileKind {
    match kind {
        Kind::Directory => FileKind::Directory,
        Kind::File => FileKind::File,
        Kind::Other => FileKind::Other,
        Kind::Link if workspace.resolve(path).is_ok_and(|real| is_gits(workspace, &real)) => FileKind::Link,
        Kind::Link => match workspace.look_at(path) {
            Ok(found) if found.is_dir() => FileKind::Directory,
            Ok(found) if found.is_file() => FileKind::File,
            Ok(_) | Err(_) => FileKind::Link,
        },
    }
}

/// The files that the letters mean.
fn find(
    workspace: &Arc<Workspace>,
    base: PathBuf,
    (query, most): (&str, usize),
    stop: &Arc<Stop>,
) -> io::Result<FilesView> {
    let walk = Walk {
        base: base.clone(),
        workspace: Arc::clone(workspace),
        // Who writes a point means a hidden name.
        hidden: query.split('/').any(|name| name.starts_with('.')),
        ignored: false,
        veil: None,
        skipped: SKIPPED_DIRECTORIES.to_vec(),
        depth: usize::MAX,
        share: SHARE_FILES,
        reads: false,
        shelves: None,
    };
    // As paths are told: relative, and without a point in front.
    let query = query.trim_start_matches("./").trim_start_matches('/').to_owned();
    let (shared, below) = (Arc::clone(workspace), base.clone());
    let finder = move || Finder {
        workspace: Arc::clone(&shared),
        base: below.clone(),
        query: query.clone(),
        best: Best::of(most),
    };
    let finders = walk.run(stop, finder)?;
    let mut best = Best::of(most);
    for finder in finders {
        best.more |= finder.best.more;
        finder.best.found.into_iter().for_each(|found| best.add(found));
    }
    let truncated = best.more || stop.check().is_err();
    let path = |found: Meant| workspace.named(&base.join(found.path)).to_str().map(str::to_owned);
    let entry = |path: String| FileEntry { path, kind: FileKind::File, ignored: false };
    let entries = best.found.into_sorted_vec().into_iter().filter_map(path).map(entry).collect();
    Ok(FilesView { entries, truncated })
}

/// A file that may be meant; the less the better.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Meant {
    misfit: usize,
    length: usize,
    path: String,
}

/// The best so far.
#[derive(Debug)]
struct Best {
    /// The worst is on top, to be thrown out first.
    found: BinaryHeap<Meant>,
    most: usize,
    /// Some were thrown out.
    more: bool,
}

impl Best {
    fn of(most: usize) -> Self {
        Self { found: BinaryHeap::new(), most, more: false }
    }

    fn add(&mut self, meant: Meant) {
        self.found.push(meant);
        if self.found.len() > self.most {
            self.found.pop();
            self.more = true;
        }
    }
}

/// One worker of a search.
struct Finder {
    workspace: Arc<Workspace>,
    base: PathBuf,
    query: String,
    best: Best,
}

impl Finder {
    fn misfit(&self, path: &[u8]) -> Option<(usize, String)> {
        let path = std::str::from_utf8(path).ok().filter(|path| show::is_plain(path.as_bytes()))?;
        Some((fit(path, &self.query)?, path.to_owned()))
    }
}

impl Visit for Finder {
    fn enters(&mut self, _path: &[u8]) -> bool {
        true
    }

    fn takes(&mut self, path: &[u8]) -> bool {
        self.misfit(path).is_some()
    }

    fn file(&mut self, place: Place<'_>) {
        let Some((misfit, path)) = self.misfit(place.path) else { return };
        let is_file = match place.kind {
            Kind::File => true,
            // One that leads out of the roots is nobody's to open.
            Kind::Link => {
                let path = self.base.join(&path);
                path.to_str().is_some_and(|path| kind(&self.workspace, Kind::Link, path) == FileKind::File)
            }
            Kind::Directory | Kind::Other => false,
        };
        if is_file {
            self.best.add(Meant { misfit, length: path.len(), path });
        }
    }

    // What cannot be read is not there for us.
    fn failed(&mut self, _path: &[u8], _cause: io::Error) {}
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    use super::super::fs_common::testing::{put, workspace};
    use super::*;
    use crate::protocol::ErrorCode;

    fn look(workspace: &Arc<Workspace>, path: &str, query: Option<&str>, limit: usize) -> Result<FilesView, ApiError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let wanted = FilesWanted { path: path.to_owned(), query: query.map(str::to_owned), limit };
        runtime.block_on(project_files(Arc::clone(workspace), wanted))
    }

    /// `d src`, `f a.rs`, `l away`; `!` in front of what is ignored.
    fn told(view: &FilesView) -> String {
        let line = |entry: &FileEntry| {
            let letter = match entry.kind {
                FileKind::Directory => "d",
                FileKind::File => "f",
                FileKind::Link => "l",
                FileKind::Other => "o",
            };
            format!("{}{letter} {}", if entry.ignored { "!" } else { "" }, entry.path)
        };
        view.entries.iter().map(line).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn a_directory_is_listed_with_what_is_ignored_and_where_links_lead() {
        let (home, workspace) = workspace(&[
            (".gitignore", "out/\n*.log\n"),
            (".git/config", ""),
            ("b.rs", ""),
            ("a.log", ""),
            ("src/x.rs", ""),
            ("src/deep/y.rs", ""),
            ("out/z", ""),
            ("empty/", ""),
        ]);
        symlink("src", home.path().join("to_src")).unwrap();
        symlink("b.rs", home.path().join("to_b")).unwrap();
        symlink("/etc", home.path().join("away")).unwrap();
        symlink(".git", home.path().join("to_git")).unwrap();
        std::fs::write(home.path().join("two\nlines"), "").unwrap();
        std::fs::write(home.path().join(std::ffi::OsStr::from_bytes(b"no\xfftext")), "").unwrap();
        let list = |path: &str| told(&look(&workspace, path, None, 100).unwrap());
        let top = "d empty, !d out, d src, d to_src, f .gitignore, !f a.log, l away, f b.rs, f to_b, l to_git";
        assert_eq!(list("."), top);
        assert_eq!(list("src"), "d src/deep, f src/x.rs");
        // Through a link it is told by where it lies.
        assert_eq!(list("to_src/deep"), "f src/deep/y.rs");
        assert_eq!(list("out"), "!f out/z");
        assert_eq!(list("empty"), "");
        let cut = look(&workspace, ".", None, 2).unwrap();
        assert_eq!((told(&cut).as_str(), cut.truncated), ("d empty, !d out", true));
    }

    #[test]
    fn letters_find_the_files_that_are_meant() {
        let (home, workspace) = workspace(&[
            (".gitignore", "out/\n"),
            (".env", ""),
            ("src/server/routes.rs", ""),
            ("src/router.rs", ""),
            ("docs/routes.md", ""),
            ("out/routes.rs", ""),
            ("node_modules/m/routes.js", ""),
        ]);
        symlink("/etc/passwd", home.path().join("passwd")).unwrap();
        put(home.path(), ".git/routes", "");
        symlink(".git/routes", home.path().join("routes.link")).unwrap();
        let find = |path: &str, query: &str| told(&look(&workspace, path, Some(query), 100).unwrap());
        #[rustfmt::skip]
        let table = [
            (".", "routes", "f docs/routes.md, f src/server/routes.rs, f src/router.rs"),
            (".", "ROUTES.rs", "f src/server/routes.rs"),
            (".", "./src/server", "f src/server/routes.rs"), ("src", "/router.rs", "f src/router.rs"),
            (".", "srv/rou", "f src/server/routes.rs"),
            ("src", "rout", "f src/router.rs, f src/server/routes.rs"),
            (".", ".env", "f .env"),
            (".", "nothing", ""),
        ];
        for (path, query, want) in table {
            assert_eq!(find(path, query), want, "{path} {query}");
        }
        let all = look(&workspace, ".", Some(""), 100).unwrap();
        assert_eq!(told(&all), "f src/router.rs, f docs/routes.md, f src/server/routes.rs");
        let one = look(&workspace, ".", Some("rout"), 1).unwrap();
        assert_eq!((told(&one).as_str(), one.truncated), ("f src/router.rs", true));
    }

    #[test]
    fn what_cannot_be_looked_at_says_why() {
        let (home, workspace) = workspace(&[("b.txt", "")]);
        let refused = |path: &str| look(&workspace, path, None, 10).unwrap_err().0;
        assert_eq!(refused("missing").code, ErrorCode::NotFound);
        put(home.path(), ".git/config", "");
        symlink(".git", home.path().join("link")).unwrap();
        for path in ["b.txt", "..", "/etc", "a\0b", ".git", "link", "./.git/"] {
            let refused = refused(path);
            assert_eq!(refused.code, ErrorCode::InvalidArgument, "{path}");
            assert!(refused.message.contains("path"), "{}", refused.message);
        }
        put(home.path(), "data/secret", "");
        let data = home.path().canonicalize().unwrap().join("data");
        let apart = Arc::new(Workspace::new(home.path(), &[]).unwrap().without(&[data]));
        assert_eq!(told(&look(&apart, ".", None, 10).unwrap()), "f b.txt, l link");
        assert_eq!(told(&look(&apart, ".", Some("secret"), 10).unwrap()), "");
        assert_eq!(look(&apart, "data", None, 10).unwrap_err().0.code, ErrorCode::InvalidArgument);
        std::fs::rename(home.path(), home.path().with_extension("gone")).unwrap();
        assert_eq!(look(&workspace, ".", None, 10).unwrap_err().0.code, ErrorCode::Conflict);
        std::fs::rename(home.path().with_extension("gone"), home.path()).unwrap();
    }
}
