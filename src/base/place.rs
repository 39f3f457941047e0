//! What lies in a workspace, by open handles: the directory of a path is opened without a link on the way, and all that is
//! done to the path is done to a name in that directory.
//!
//! Invariant: whatever others rename or link meanwhile, nothing outside the roots is opened, made, changed or taken away. A
//! path that runs into a link that was not there before is followed anew, a few times, and then refused.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
#[cfg(any(target_os = "linux", target_os = "android"))]
use std::os::fd::AsRawFd;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::beneath::{STEP, open_name};
use super::workspace::{PathError, Workspace, refuse_special};

/// Times that a path is followed when directories on it are exchanged for links.
const TRIES_MAX: usize = 20;

/// A name in an open directory of the workspace; something may be there, or nothing.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    directory: OwnedFd,
    name: OsString,
}

impl Place {
    /// Absolute, without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its directory. Not every system lets such a handle be listed or put on disk.
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Its name there.
    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// What is there; a link is told as one.
    ///
    /// # Errors
    /// What the file system says, such as that nothing is there.
    pub fn look(&self) -> io::Result<Metadata> {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            File::from(rustix::fs::openat(self.directory(), &self.name, flags, Mode::empty())?).metadata()
        }
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        std::fs::symlink_metadata(&self.path)
    }

    /// Opens the file that is there for reading. Never waits for a pipe.
    ///
    /// # Errors
    /// What the file system says; a link is refused.
    pub fn open(&self) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        open_name(self.directory(), &self.name, flags).map(File::from)
    }

    /// Gives the file or directory that is there these permissions, also where nobody may open it. Those to run as the owner
    /// or the group stay as they are.
    ///
    /// # Errors
    /// What the file system says; a link is refused.
    pub fn set_permissions(&self, mode: u32) -> io::Result<()> {
        let wanted = |found: &Metadata| Mode::from_raw_mode((found.mode() & 0o6000) | (mode & 0o1777));
        #[cfg(any(target_os = "linux", target_os = "android"))]
        {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let open = File::from(rustix::fs::openat(self.directory(), &self.name, flags, Mode::empty())?);
            let found = open.metadata()?;
            if found.is_symlink() {
                return Err(Errno::LOOP.into());
            }
            // Such a handle has no permissions to be set; its name among the open files leads to what it stands for.
            Ok(rustix::fs::chmod(format!("/proc/self/fd/{}", open.as_raw_fd()), wanted(&found))?)
        }
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        {
            let found = self.look()?;
            if found.is_symlink() {
                return Err(Errno::LOOP.into());
            }
            let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
            Ok(rustix::fs::chmodat(self.directory(), &self.name, wanted(&found), flags)?)
        }
    }

    /// Opens the directory that is there, to be listed.
    ///
    /// # Errors
    /// As [`Place::open`].
    pub fn open_directory(&self) -> io::Result<OwnedFd> {
        open_name(self.directory(), &self.name, OFlags::RDONLY | OFlags::DIRECTORY)
    }
}

impl Workspace {
    /// The place that a caller's path names, links followed. Its directory exists.
    ///
    /// # Errors
    /// [`PathError`]: outside the roots, protected, or without its directory.
    pub fn place(&self, input: &str) -> Result<Place, PathError> {
        self.followed(input, |input| self.resolve(input))
    }

    /// The same, but a link at the end is meant itself.
    ///
    /// # Errors
    /// As [`Workspace::place`].
    pub fn entry_place(&self, input: &str) -> Result<Place, PathError> {
        self.followed(input, |input| self.resolve_entry(input))
    }

    fn followed(&self, input: &str, resolve: impl Fn(&str) -> Result<PathBuf, PathError>) -> Result<Place, PathError> {
        let mut last = Errno::LOOP.into();
        for _ in 0..TRIES_MAX {
            match self.reach(&resolve(input)?) {
                Ok(place) => return Ok(place),
                Err(cause) if is_new_link(&cause) => last = cause,
                Err(cause) => return Err(PathError::Open { input: input.to_owned(), cause }),
            }
        }
        Err(PathError::Unresolvable { input: input.to_owned(), cause: last })
    }

    /// The place at a path that names no link and lies in a root, as [`Workspace::resolve`] gives them.
    ///
    /// # Errors
    /// What the file system says; `ELOOP` when a directory on the way has become a link.
    pub fn reach(&self, path: &Path) -> io::Result<Place> {
        let (root, below) = self.root_of(path)?;
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Errno::ISDIR.into());
        };
        let directory = match below.parent() {
            Some(above) => {
                let top = self.way().open_absolute(root, STEP)?;
                if above.as_os_str().is_empty() { top } else { self.way().open(top.as_fd(), above, STEP)? }
            }
            // The root itself.
            None => self.way().open_absolute(parent, STEP)?,
        };
        Ok(Place { path: path.to_owned(), directory, name: name.to_owned() })
    }

    /// The same, with the directories made that are missing.
    ///
    /// # Errors
    /// As [`Workspace::reach`].
    pub fn reach_made(&self, path: &Path) -> io::Result<Place> {
        match self.reach(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            reached => return reached,
        }
        let (root, below) = self.root_of(path)?;
        let Some(name) = below.file_name() else { return Err(io::ErrorKind::NotFound.into()) };
        let mut directory = match self.way().open_absolute(root, STEP) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                if !self.makes_roots() {
                    let gone = format!("the directory {} is not there, on this machine", root.display());
                    return Err(io::Error::new(io::ErrorKind::NotFound, gone));
                }
                std::fs::create_dir_all(root)?;
                self.way().open_absolute(root, STEP)?
            }
            opened => opened?,
        };
        for component in below.parent().unwrap_or(Path::new("")).components() {
            let Component::Normal(name) = component else { return Err(Errno::XDEV.into()) };
            directory = match open_name(directory.as_fd(), name, STEP) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    match rustix::fs::mkdirat(&directory, name, Mode::from_raw_mode(0o777)) {
                        Ok(()) | Err(Errno::EXIST) => open_name(directory.as_fd(), name, STEP)?,
                        Err(e) => return Err(e.into()),
                    }
                }
                opened => opened?,
            };
        }
        Ok(Place { path: path.to_owned(), directory, name: name.to_owned() })
    }

    /// Opens a directory at such a path, to be listed.
    ///
    /// # Errors
    /// As [`Workspace::reach`].
    pub fn open_directory(&self, path: &Path) -> io::Result<OwnedFd> {
        let (root, below) = self.root_of(path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        if below.as_os_str().is_empty() {
            return self.way().open_absolute(root, flags);
        }
        let top = self.way().open_absolute(root, STEP)?;
        self.way().open(top.as_fd(), below, flags)
    }

    /// What is at such a path; a link is told as one.
    ///
    /// # Errors
    /// As [`Workspace::reach`].
    pub fn look(&self, path: &Path) -> io::Result<Metadata> {
        match self.reach(path) {
            Ok(place) => place.look(),
            // The root of the file system has no name.
            Err(e) if Errno::from_io_error(&e) == Some(Errno::ISDIR) => std::fs::symlink_metadata(path),
            Err(e) => Err(e),
        }
    }

    /// What a caller's path leads to, links followed.
    ///
    /// # Errors
    /// As [`Workspace::place`]; nothing is there.
    pub fn look_at(&self, input: &str) -> Result<Metadata, PathError> {
        let opened = |cause| PathError::Open { input: input.to_owned(), cause };
        match self.place(input) {
            Err(PathError::Open { cause, .. }) if Errno::from_io_error(&cause) == Some(Errno::ISDIR) => {
                std::fs::symlink_metadata("/").map_err(opened)
            }
            place => place?.look().map_err(opened),
        }
    }

    /// Opens a regular file for reading, and never hangs: pipes, devices and directories are refused.
    ///
    /// # Errors
    /// [`PathError`]: outside the roots, nothing there, not a regular file.
    pub fn open(&self, input: &str) -> Result<File, PathError> {
        let failed = |cause| PathError::Open { input: input.to_owned(), cause };
        let mut last = Errno::LOOP.into();
        for _ in 0..TRIES_MAX {
            let place = match self.place(input) {
                Err(PathError::Open { cause, .. }) if Errno::from_io_error(&cause) == Some(Errno::ISDIR) => {
                    return Err(PathError::NotAFile { input: input.to_owned(), kind: "a directory" });
                }
                place => place?,
            };
            // A look before the open: opening a device can have effects, and a socket cannot be opened.
            let found = place.look().map_err(failed)?;
            if found.is_symlink() {
                continue;
            }
            refuse_special(input, &found)?;
            match place.open() {
                Ok(file) => {
                    refuse_special(input, &file.metadata().map_err(failed)?)?;
                    return Ok(file);
                }
                Err(cause) if is_new_link(&cause) => last = cause,
                Err(cause) => return Err(failed(cause)),
            }
        }
        Err(failed(last))
    }

    /// The root that `path` lies in, and the rest below it.
    fn root_of<'p>(&'p self, path: &'p Path) -> io::Result<(&'p Path, &'p Path)> {
        let found = self.roots().iter().find_map(|root| Some((root.as_path(), path.strip_prefix(root).ok()?)));
        match found {
            Some(found) if !self.protects(path) => Ok(found),
            Some(_) | None => Err(io::Error::new(io::ErrorKind::PermissionDenied, "it lies outside the roots")),
        }
    }
}

/// A directory on the way was exchanged for a link since the path was followed.
fn is_new_link(cause: &io::Error) -> bool {
    Errno::from_io_error(cause) == Some(Errno::LOOP)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::super::beneath::{Way, way};
    use super::*;

    fn home() -> (tempfile::TempDir, PathBuf) {
        let home = tempfile::tempdir().unwrap();
        let real = home.path().canonicalize().unwrap();
        (home, real)
    }

    #[test]
    fn a_link_that_came_later_is_refused_by_both_ways() {
        for way in [way(), Way::Names] {
            let (_home, home) = home();
            fs::create_dir_all(home.join("wd/a/b")).unwrap();
            fs::create_dir_all(home.join("out/b")).unwrap();
            fs::write(home.join("out/b/secret"), "outside").unwrap();
            let workspace = Workspace::new(&home.join("wd"), &[]).unwrap().by(way);
            let path = workspace.resolve("a/b/secret").unwrap();
            fs::rename(home.join("wd/a"), home.join("wd/old")).unwrap();
            symlink(home.join("out"), home.join("wd/a")).unwrap();
            for refused in
                [workspace.reach(&path).err(), workspace.reach_made(&path).err(), workspace.look(&path).err()]
            {
                assert_eq!(refused.and_then(|e| Errno::from_io_error(&e)), Some(Errno::LOOP), "{way:?}");
            }
            assert!(workspace.open_directory(path.parent().unwrap()).is_err());
            // Who asks with the caller's words is told that it leads out.
            assert!(matches!(workspace.place("a/b/secret"), Err(PathError::Escapes { .. })));
        }
    }

    #[test]
    fn links_between_roots_are_followed_and_opened_in_the_other_root() {
        let (_home, home) = home();
        fs::create_dir_all(home.join("wd")).unwrap();
        fs::create_dir_all(home.join("beside/deep")).unwrap();
        fs::write(home.join("beside/deep/file"), "x").unwrap();
        symlink("../beside/deep", home.join("wd/to")).unwrap();
        let workspace = Workspace::new(&home.join("wd"), &[home.join("beside")]).unwrap();
        assert_eq!(workspace.place("to/file").unwrap().path(), home.join("beside/deep/file"));
        assert_eq!(std::io::read_to_string(workspace.open("to/file").unwrap()).unwrap(), "x");
        assert!(workspace.look_at("to").unwrap().is_dir() && workspace.look_at(".").unwrap().is_dir());
        assert!(workspace.look(&home.join("wd/to")).unwrap().is_symlink());
    }

    #[test]
    fn directories_are_made_inside_alone() {
        let (_home, home) = home();
        fs::create_dir_all(home.join("wd")).unwrap();
        let workspace = Workspace::new(&home.join("wd"), &[]).unwrap();
        let place = workspace.reach_made(&home.join("wd/x/y/z")).unwrap();
        assert!(home.join("wd/x/y").is_dir() && place.look().is_err() && place.name() == "z");
        assert!(workspace.reach_made(&home.join("other/x")).is_err() && !home.join("other").exists());
        fs::remove_dir_all(home.join("wd")).unwrap();
        workspace.reach_made(&home.join("wd/a/b")).unwrap();
        std::fs::remove_dir_all(home.join("wd")).unwrap();
        let refused = workspace.clone().found().reach_made(&home.join("wd/a/b")).err().map(|e| e.to_string());
        assert!(refused.is_some_and(|text| text.contains("is not there")) && !home.join("wd").exists());
        workspace.reach_made(&home.join("wd/a/b")).unwrap();
        assert!(home.join("wd/a").is_dir(), "a root that was not there yet is made");
    }

    #[test]
    fn the_whole_file_system_may_be_a_root() {
        let workspace = Workspace::new(Path::new("/"), &[]).unwrap();
        assert!(workspace.look_at(".").unwrap().is_dir());
        assert!(workspace.open("/").unwrap_err().to_string().contains("is a directory"));
        assert!(
            workspace.open_directory(Path::new("/")).is_ok() && workspace.open_directory(Path::new("/etc")).is_ok()
        );
        assert!(workspace.open("etc/passwd").is_ok());
    }
}
