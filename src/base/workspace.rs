//! Where a session may work: its working directory, and further roots.
//!
//! A caller's path is taken as Node's `path.resolve` takes it (relative to the working directory, `..`
//! by name), then every symlink on the way is followed, also those whose target does not exist yet.
//! What comes out names no link, and lies inside a root or is refused. That is a look; who then touches
//! the path does so by the handles of [`super::place`], which hold whatever is linked or renamed meanwhile.
//!
//! Not here: anything about file content, and ignore rules.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::beneath::{STEP, Way, way};
use super::show;

/// Links followed in one path before it counts as a loop. The kernel's own number.
const LINKS_MAX: usize = 40;

/// A path that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// It leads out of every root.
    #[error("Path \"{input}\" escapes the working directory \"{working_directory}\"")]
    Escapes {
        /// As the caller gave it.
        input: String,
        /// As the workspace was given it.
        working_directory: String,
    },
    /// It lies in what no tool may touch.
    #[error("Path \"{0}\" is or lies in the server's own data, which no tool touches")]
    Protected(String),
    /// It leads elsewhere than it did when the call was judged.
    #[error(
        "Path \"{0}\" does not lead any more to where it led when permission was given: a directory or a link on it was \
         exchanged meanwhile. Nothing was done there; look at what it is now, and call again if it is still right"
    )]
    Exchanged(String),
    /// No file can have that name.
    #[error("Path {0:?} contains a NUL character")]
    Nul(String),
    /// The file system said no while it was followed.
    #[error("Cannot resolve path \"{input}\": {cause}")]
    Unresolvable {
        /// As the caller gave it.
        input: String,
        /// The operating system's own error.
        #[source]
        cause: io::Error,
    },
    /// It is no directory that a session could work in.
    #[error("Working directory \"{0}\" does not exist or is not a directory")]
    NoDirectory(String),
    /// The working directory is not the one any more that a session was fitted out for.
    #[error(
        "Working directory \"{0}\" does not lead any more to where it led: it, or a directory above it, was exchanged for a link \
         meanwhile. Nothing was done"
    )]
    Led(String),
    /// It exists and is nothing that has bytes to read.
    #[error("Path \"{input}\" is {kind}, not a regular file")]
    NotAFile {
        /// As the caller gave it.
        input: String,
        /// Such as `a directory`.
        kind: &'static str,
    },
    /// It could not be opened.
    #[error("Cannot open \"{input}\": {cause}")]
    Open {
        /// As the caller gave it.
        input: String,
        /// The operating system's own error.
        #[source]
        cause: io::Error,
    },
}

impl PathError {
    /// Whether the path is good and merely names nothing.
    pub fn is_not_found(&self) -> bool {
        match self {
            Self::Open { cause, .. } | Self::Unresolvable { cause, .. } => cause.kind() == io::ErrorKind::NotFound,
            Self::Escapes { .. }
            | Self::Protected(_)
            | Self::Exchanged(_)
            | Self::Nul(_)
            | Self::NoDirectory(_)
            | Self::Led(_)
            | Self::NotAFile { .. } => false,
        }
    }
}

/// When a file that exists may be changed, by what the session knows of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StaleCheck {
    /// Only when it was read in this session and has not changed since.
    Strict,
    /// Not when it has changed since it was read. Replacing one that was never read is done, and said.
    #[default]
    Warn,
    /// Always.
    Off,
}

/// A path that a call was judged by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// Absolute, without links.
    pub path: PathBuf,
    /// What lies below it was judged with it.
    pub below: bool,
}

/// A working directory and the roots beside it.
///
/// Invariant: every root is absolute, without links and `..`, as it was when the workspace was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workspace {
    given: String,
    roots: Vec<PathBuf>,
    /// Absolute, without links; none holds a root.
    protected: Vec<PathBuf>,
    /// Absolute, without links.
    kept: Vec<PathBuf>,
    stale_check: StaleCheck,
    /// Whether a root that is missing may be made.
    makes_roots: bool,
    way: Way,
    /// Where alone its paths may lead. None: anywhere in the roots.
    judged: Option<Arc<[Judged]>>,
}

impl Workspace {
    /// A workspace whose working directory exists. `allowed` are further roots, relative ones against the
    /// working directory; they may come into being later.
    ///
    /// # Errors
    /// [`PathError::NoDirectory`] when `working_directory` is no directory, and what [`Workspace::lenient`] gives.
    pub fn new(working_directory: &Path, allowed: &[PathBuf]) -> Result<Self, PathError> {
        if !working_directory.is_dir() {
            return Err(PathError::NoDirectory(working_directory.to_string_lossy().into_owned()));
        }
        Self::lenient(working_directory, allowed)
    }

    /// The same for a working directory that may come into being later.
    ///
    /// # Errors
    /// [`PathError::Unresolvable`] when a root cannot be followed: no permission, a loop of links.
    pub fn lenient(working_directory: &Path, allowed: &[PathBuf]) -> Result<Self, PathError> {
        let given = working_directory.to_string_lossy().into_owned();
        let unresolvable =
            |path: &Path, cause| PathError::Unresolvable { input: path.to_string_lossy().into_owned(), cause };
        let base = std::path::absolute(working_directory).map_err(|cause| unresolvable(working_directory, cause))?;
        let mut roots = vec![real(&base).map_err(|cause| unresolvable(working_directory, cause))?];
        for path in allowed {
            let root = real(&base.join(path)).map_err(|cause| unresolvable(path, cause))?;
            if !roots.contains(&root) {
                roots.push(root);
            }
        }
        Ok(Self {
            given,
            roots,
            protected: Vec::new(),
            kept: Vec::new(),
            stale_check: StaleCheck::default(),
            makes_roots: true,
            way: way(),
            judged: None,
        })
    }

    /// The same with further roots (absolute, without links as they were): one where a link lies by now is reached by nobody.
    #[must_use]
    pub fn beside<'r>(&self, roots: impl Iterator<Item = &'r Path>) -> Self {
        let mut all = self.clone();
        for root in roots {
            if !all.contains(root) {
                all.roots.push(root.to_owned());
            }
        }
        all
    }

    /// The same, where a root that is missing is never made: it may be there on another machine.
    #[must_use]
    pub fn found(self) -> Self {
        Self { makes_roots: false, ..self }
    }

    /// Whether a root that is missing may be made.
    pub(super) fn makes_roots(&self) -> bool {
        self.makes_roots
    }

    /// Whether the working directory has come into being, and still is where it was.
    ///
    /// # Errors
    /// [`PathError::NoDirectory`], and [`PathError::Led`] when a link lies there now.
    pub fn is_there(&self) -> Result<(), PathError> {
        match self.way.open_absolute(self.working_directory(), STEP) {
            Ok(_) => Ok(()),
            Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                Err(PathError::Led(self.given.clone()))
            }
            Err(_) => Err(PathError::NoDirectory(self.given.clone())),
        }
    }

    /// The same without these places (absolute, without links) in its roots: the server's own data. One that a root lies in
    /// is left out, because whoever names such a root means it.
    #[must_use]
    pub fn without(self, protected: &[PathBuf]) -> Self {
        let holds_root = |place: &PathBuf| self.roots.iter().any(|root| root.starts_with(place));
        let protected = protected.iter().filter(|place| !holds_root(place)).cloned().collect();
        Self { protected, ..self }
    }

    /// The same with these files (absolute, without links), which nobody changes without being asked.
    #[must_use]
    pub fn keeping(self, kept: &[PathBuf]) -> Self {
        Self { kept: kept.to_vec(), ..self }
    }

    /// The same for one call: a caller's path is resolved to one of those that the call was judged by, or refused. What is done by
    /// the handles of [`super::place`] then is done there, whatever is exchanged for a link meanwhile.
    #[must_use]
    pub fn held_to(&self, judged: Arc<[Judged]>) -> Self {
        Self { judged: Some(judged), ..self.clone() }
    }

    /// The same, with paths resolved in this way.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn by(self, way: Way) -> Self {
        Self { way, ..self }
    }

    /// How paths are resolved.
    pub(super) fn way(&self) -> Way {
        self.way
    }

    /// The same with another rule for files that may have changed.
    #[must_use]
    pub fn with_stale_check(self, stale_check: StaleCheck) -> Self {
        Self { stale_check, ..self }
    }

    /// When a file that exists may be changed.
    pub fn stale_check(&self) -> StaleCheck {
        self.stale_check
    }

    /// The working directory, without links.
    pub fn working_directory(&self) -> &Path {
        &self.roots[0]
    }

    /// All roots, the working directory first.
    pub fn roots(&self) -> &[PathBuf] {
        &self.roots
    }

    /// Whether `path` (absolute, without links) is one of the roots, or one lies below it.
    ///
    /// Such a path is never deleted or moved.
    pub fn holds_a_root(&self, path: &Path) -> bool {
        self.roots.iter().any(|root| root.starts_with(path))
    }

    /// Whether `path` (absolute, without links) is or lies in what no tool may touch.
    pub fn protects(&self, path: &Path) -> bool {
        self.protected.iter().any(|place| path.starts_with(place))
    }

    /// Whether a change of `path` (absolute, without links) is one of a file that nobody changes without being asked: it is that file,
    /// or a directory that it lies in.
    pub fn keeps(&self, path: &Path) -> bool {
        self.kept.iter().any(|file| file.starts_with(path))
    }

    /// What no tool may touch and lies below `directory`, relative to it.
    pub fn protected_below<'w>(&'w self, directory: &'w Path) -> impl Iterator<Item = &'w Path> {
        self.protected.iter().filter_map(move |place| place.strip_prefix(directory).ok())
    }

    /// Whether `path` (absolute, without links) lies in a root.
    pub fn contains(&self, path: &Path) -> bool {
        self.roots.iter().any(|root| path.starts_with(root))
    }

    /// The real place of a caller's path, which need not exist. All links are followed.
    ///
    /// # Errors
    /// [`PathError`] when it leads out of the roots or cannot be followed.
    pub fn resolve(&self, input: &str) -> Result<PathBuf, PathError> {
        self.checked(input, real(&self.absolute(input)?))
    }

    /// The same, but the last name itself is kept: a link there means the link, not what it points at.
    ///
    /// # Errors
    /// As [`Workspace::resolve`].
    pub fn resolve_entry(&self, input: &str) -> Result<PathBuf, PathError> {
        self.checked(input, self.real_entry(input)?)
    }

    /// Whether an absolute path, of whatever bytes, is what [`Workspace::resolve_entry`] would give for it.
    pub fn leads_to_itself(&self, path: &Path) -> bool {
        path.is_absolute()
            && entry(path).is_ok_and(|real| real == path)
            && self.contains(path)
            && !self.protects(path)
            && self.was_judged(path)
    }

    /// Where a caller's path leads inside the roots, for who judges it: what is protected is found like all else.
    pub fn whereabouts(&self, input: &str) -> Option<PathBuf> {
        real(&self.absolute(input).ok()?).ok().filter(|path| self.contains(path))
    }

    /// The same where a link at the end is meant itself.
    pub fn entry_whereabouts(&self, input: &str) -> Option<PathBuf> {
        self.real_entry(input).ok()?.ok().filter(|path| self.contains(path))
    }

    /// How a path inside the workspace is named: relative to the working directory where it lies there.
    pub fn named<'p>(&self, path: &'p Path) -> &'p Path {
        path.strip_prefix(self.working_directory()).unwrap_or(path)
    }

    /// The same as text, on one line ([`show::name`]).
    pub fn shown(&self, path: &Path) -> String {
        show::name(self.named(path).as_os_str().as_bytes()).into_owned()
    }

    /// The refusal of `input`.
    pub fn escapes(&self, input: &str) -> PathError {
        PathError::Escapes { input: input.to_owned(), working_directory: self.given.clone() }
    }

    fn was_judged(&self, path: &Path) -> bool {
        let is = |one: &Judged| if one.below { path.starts_with(&one.path) } else { path == one.path };
        self.judged.as_ref().is_none_or(|judged| judged.iter().any(is))
    }

    fn absolute(&self, input: &str) -> Result<PathBuf, PathError> {
        if input.contains('\0') {
            return Err(PathError::Nul(input.to_owned()));
        }
        Ok(self.working_directory().join(input))
    }

    fn real_entry(&self, input: &str) -> Result<io::Result<PathBuf>, PathError> {
        Ok(entry(&self.absolute(input)?))
    }

    fn checked(&self, input: &str, found: io::Result<PathBuf>) -> Result<PathBuf, PathError> {
        let path = found.map_err(|cause| PathError::Unresolvable { input: input.to_owned(), cause })?;
        match (self.contains(&path), self.protects(&path)) {
            (true, false) if self.was_judged(&path) => Ok(path),
            (true, false) => Err(PathError::Exchanged(input.to_owned())),
            (true, true) => Err(PathError::Protected(input.to_owned())),
            (false, _) => Err(self.escapes(input)),
        }
    }
}

/// Refuses what is no regular file.
pub(super) fn refuse_special(input: &str, found: &Metadata) -> Result<(), PathError> {
    let kind = found.file_type();
    let table = [
        (kind.is_dir(), "a directory"),
        (kind.is_fifo(), "a named pipe"),
        (kind.is_socket(), "a socket"),
        (kind.is_char_device() || kind.is_block_device(), "a device"),
        (!kind.is_file(), "something special"),
    ];
    match table.iter().find(|(is, _)| *is) {
        Some((_, kind)) => Err(PathError::NotAFile { input: input.to_owned(), kind }),
        None => Ok(()),
    }
}

/// Follows every link of an absolute path but one at its end.
fn entry(path: &Path) -> io::Result<PathBuf> {
    let path = by_name(path);
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return real(&path) };
    Ok(real(parent)?.join(name))
}

/// `path` without `.` and `..`, by name alone.
fn by_name(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => out.push(component),
        }
    }
    out
}

/// Follows every link of an absolute path. What does not exist is taken by name.
pub(crate) fn real(path: &Path) -> io::Result<PathBuf> {
    let mut todo: VecDeque<OsString> = names(&by_name(path)).collect();
    let mut out = PathBuf::from("/");
    let mut links = 0;
    while let Some(name) = todo.pop_front() {
        if name == ".." {
            out.pop();
            continue;
        }
        out.push(&name);
        match out.symlink_metadata() {
            Ok(found) if found.is_symlink() => {}
            Ok(_) => continue,
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => continue,
            Err(e) => return Err(e),
        }
        links += 1;
        if links > LINKS_MAX {
            return Err(Errno::LOOP.into());
        }
        let target = std::fs::read_link(&out)?;
        out.pop();
        if target.is_absolute() {
            out = PathBuf::from("/");
        }
        for name in names(&target).rev() {
            todo.push_front(name);
        }
    }
    Ok(out)
}

/// The names of a path, `..` among them.
fn names(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::{FileType, Mode};

    /// `wd` with links of every kind, `beside` (allowed) and `outside` (not).
    fn place() -> (tempfile::TempDir, Workspace) {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        for dir in ["wd/src", "wd/..dots", "beside", "outside/deep", "wd2"] {
            fs::create_dir_all(at(dir)).unwrap();
        }
        for file in ["wd/a.txt", "wd/src/b.txt", "beside/c.txt", "outside/secret", "wd2/x"] {
            fs::write(at(file), file).unwrap();
        }
        symlink(at("wd/a.txt"), at("wd/in")).unwrap();
        symlink("src", at("wd/dir")).unwrap();
        symlink("../beside/c.txt", at("wd/to_beside")).unwrap();
        symlink(at("outside/secret"), at("wd/out")).unwrap();
        symlink("../outside", at("wd/outdir")).unwrap();
        symlink("../outside/not_yet", at("wd/dangling_out")).unwrap();
        symlink("src/not_yet", at("wd/dangling_in")).unwrap();
        symlink("loop", at("wd/loop")).unwrap();
        symlink("missing/../../outside/secret", at("wd/sly")).unwrap();
        let workspace = Workspace::new(&at("wd"), &[PathBuf::from("../beside")]).unwrap();
        (home, workspace)
    }

    #[test]
    fn paths_inside_resolve() {
        let (home, workspace) = place();
        let home = home.path().canonicalize().unwrap();
        #[rustfmt::skip]
        let table = [
            ("a.txt", "wd/a.txt"), ("./src/../a.txt", "wd/a.txt"), ("..dots", "wd/..dots"), ("...", "wd/..."),
            ("", "wd"), (".", "wd"), ("in", "wd/a.txt"), ("dir/b.txt", "wd/src/b.txt"), ("dir/new/x", "wd/src/new/x"),
            ("to_beside", "beside/c.txt"), ("../beside/new", "beside/new"), ("dangling_in", "wd/src/not_yet"),
            ("nope/../a.txt", "wd/a.txt"), ("a.txt/x", "wd/a.txt/x"), ("../wd/a.txt", "wd/a.txt"),
            ("outdir/../a.txt", "wd/a.txt"),
        ];
        for (input, want) in table {
            assert_eq!(workspace.resolve(input).unwrap(), home.join(want), "{input}");
            let absolute = home.join("wd").join(input);
            assert_eq!(workspace.resolve(absolute.to_str().unwrap()).unwrap(), home.join(want), "absolute {input}");
        }
    }

    #[test]
    fn paths_outside_are_refused_in_these_words() {
        let (home, workspace) = place();
        let wd = home.path().join("wd");
        let inputs = [
            "..",
            "../outside/secret",
            "../wd2/x",
            "/etc/passwd",
            "/",
            "out",
            "outdir/secret",
            "outdir/new/file",
            "dangling_out",
            "sly",
            "src/../../outside",
            "outdir",
        ];
        for input in inputs {
            let want = format!("Path \"{input}\" escapes the working directory \"{}\"", wd.display());
            assert_eq!(workspace.resolve(input).unwrap_err().to_string(), want);
            if input != "/" {
                assert!(workspace.open(input).is_err(), "{input}");
            }
        }
    }

    #[test]
    fn odd_inputs_say_why() {
        let (_home, workspace) = place();
        let said = |input: &str| workspace.open(input).unwrap_err().to_string();
        assert!(said("a\0b").contains("NUL"), "{}", said("a\0b"));
        assert!(said("loop").starts_with("Cannot resolve path \"loop\": Too many levels"), "{}", said("loop"));
        assert_eq!(said("src"), "Path \"src\" is a directory, not a regular file");
        assert!(said("nope").starts_with("Cannot open \"nope\": No such file"), "{}", said("nope"));
        assert!(workspace.open("nope").unwrap_err().is_not_found());
        assert!(said("a.txt/x").contains("Not a directory"), "{}", said("a.txt/x"));
    }

    #[test]
    fn pipes_sockets_and_devices_do_not_hang() {
        let (home, workspace) = place();
        let fifo = home.path().join("wd/fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(home.path().join("wd/socket")).unwrap();
        assert_eq!(
            workspace.open("fifo").unwrap_err().to_string(),
            "Path \"fifo\" is a named pipe, not a regular file"
        );
        assert_eq!(
            workspace.open("socket").unwrap_err().to_string(),
            "Path \"socket\" is a socket, not a regular file"
        );
        let devices = Workspace::new(Path::new("/dev"), &[]).unwrap();
        assert_eq!(devices.open("zero").unwrap_err().to_string(), "Path \"zero\" is a device, not a regular file");
    }

    #[test]
    fn an_entry_is_the_link_itself() {
        let (home, workspace) = place();
        let home = home.path().canonicalize().unwrap();
        assert_eq!(workspace.resolve_entry("out").unwrap(), home.join("wd/out"));
        assert_eq!(workspace.resolve_entry("dir/b.txt").unwrap(), home.join("wd/src/b.txt"));
        assert_eq!(workspace.resolve_entry("src/..").unwrap(), home.join("wd"), "the root is found as such");
        assert!(workspace.resolve_entry("outdir/secret").is_err());
        assert!(workspace.resolve_entry("..").is_err());
        assert!(workspace.holds_a_root(&home.join("wd")) && workspace.holds_a_root(&home));
        assert!(!workspace.holds_a_root(&home.join("wd/src")));
    }

    #[test]
    fn a_working_directory_that_is_a_link_is_the_directory_behind_it() {
        let (home, _) = place();
        let link = home.path().join("link");
        symlink(home.path().join("wd"), &link).unwrap();
        let workspace = Workspace::new(&link, &[]).unwrap();
        assert!(workspace.resolve("a.txt").is_ok());
        assert!(workspace.resolve(link.join("a.txt").to_str().unwrap()).is_ok());
        let refused = workspace.resolve("../x").unwrap_err().to_string();
        assert_eq!(refused, format!("Path \"../x\" escapes the working directory \"{}\"", link.display()));
    }

    #[test]
    fn what_is_protected_is_refused_and_nothing_beside_it() {
        let (home, workspace) = place();
        let at = |name: &str| home.path().canonicalize().unwrap().join(name);
        symlink("src/deep", at("wd/to_deep")).unwrap();
        let workspace = workspace.without(&[at("wd/src/deep"), at("outside"), at("wd"), at("")]);
        for input in ["src/deep", "src/deep/x", "to_deep/x", "src/../src/deep"] {
            let said = workspace.resolve(input).unwrap_err().to_string();
            assert_eq!(said, format!("Path \"{input}\" is or lies in the server's own data, which no tool touches"));
            assert!(workspace.whereabouts(input).is_some(), "who judges it sees where it leads");
        }
        assert!(workspace.resolve_entry("src/deep").is_err() && workspace.resolve_entry("to_deep").is_ok());
        assert!(workspace.resolve("src/deeper").is_ok() && workspace.resolve("src").is_ok());
        assert_eq!(workspace.protected_below(&at("wd/src")).collect::<Vec<_>>(), [Path::new("deep")]);
        assert!(workspace.whereabouts("out").is_none());
    }

    #[test]
    fn a_missing_working_directory_is_said_or_awaited() {
        let home = tempfile::tempdir().unwrap();
        let missing = home.path().join("later");
        let said = Workspace::new(&missing, &[]).unwrap_err().to_string();
        assert_eq!(said, format!("Working directory \"{}\" does not exist or is not a directory", missing.display()));
        let workspace = Workspace::lenient(&missing, &[]).unwrap();
        fs::create_dir(&missing).unwrap();
        fs::write(missing.join("a"), "x").unwrap();
        assert!(workspace.open("a").is_ok());
    }
}
