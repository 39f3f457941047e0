//! The data directory (contract.md, Doors): 0700, with `token`, and `server.json` while a server runs.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::Access;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use crate::base::proof::ProofKey;
use crate::base::{file, own_directory};

/// Largest file of ours that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
const TOKEN: &str = "token";
/// What the file system of `/proc` says that it is (linux/magic.h).
#[cfg(target_os = "linux")]
const PROC_SUPER_MAGIC: i64 = 0x9fa0;
/// The same of `/sys`.
#[cfg(target_os = "linux")]
const SYSFS_MAGIC: i64 = 0x6265_6572;
const SERVER: &str = "server.json";

/// Something in the data directory could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {path}: {cause}", path = path.display())]
pub struct DataDirectoryError {
    /// A verb phrase: "make the data directory".
    pub doing: &'static str,
    /// What it is about.
    pub path: PathBuf,
    /// The system's words.
    pub cause: io::Error,
}

impl DataDirectoryError {
    /// Whether it would have been done, had there been room on the disk.
    pub fn is_want_of_room(&self) -> bool {
        matches!(self.cause.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
    }
}

/// Who serves from a data directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerFile {
    /// Where it listens.
    pub url: String,
    /// Its port.
    pub port: u16,
    /// The Unix socket that it listens on beside that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
    /// Its process.
    pub pid: u32,
    /// Its version.
    pub version: String,
    /// By which it shows that it is this one. None: it cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<ProofKey>,
}

/// Makes the directory, for nobody else to read, unless it is there. One that is there is closed to others where it is ours.
///
/// # Errors
/// [`DataDirectoryError`] with the path; also when others may write there, see [`own_directory::prepare`].
pub fn prepare(directory: &Path) -> Result<(), DataDirectoryError> {
    own_directory::prepare(directory).map_err(|cause| error("use the data directory", directory, cause))
}

/// Whether other users of the machine can look into the directory.
pub fn is_open_to_others(directory: &Path) -> bool {
    fs::metadata(directory).is_ok_and(|found| found.permissions().mode() & 0o077 != 0)
}

/// Everything in the way of a server on this directory, as far as can be seen before. `auth`: it needs a token. Makes nothing.
pub fn faults(directory: &Path, auth: bool) -> Vec<DataDirectoryError> {
    if !directory.exists() {
        let above = directory.ancestors().skip(1).find(|above| above.exists());
        let above = above.filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        return check_writable(above)
            .err()
            .map(|cause| error("use the data directory", directory, cause))
            .into_iter()
            .collect();
    }
    let checked = own_directory::check(directory).and_then(|_| check_writable(directory));
    let unusable = checked.err().map(|cause| error("use the data directory", directory, cause));
    let unread = if auth { token_fault(directory) } else { None };
    unusable.into_iter().chain(unread).collect()
}

/// What is wrong with the token of the directory, if it has one.
pub fn token_fault(directory: &Path) -> Option<DataDirectoryError> {
    read_token(&token_file(directory)).err()
}

/// Whether something can be made there.
fn check_writable(directory: &Path) -> io::Result<()> {
    if !fs::metadata(directory)?.is_dir() {
        return Err(ErrorKind::NotADirectory.into());
    }
    // The kernel's own views say that one may write, and take no files.
    #[cfg(target_os = "linux")]
    {
        #[allow(clippy::unnecessary_cast, reason = "not everywhere the same type")]
        let kind = rustix::fs::statfs(directory)?.f_type as i64;
        if [PROC_SUPER_MAGIC, SYSFS_MAGIC].contains(&kind) {
            return Err(io::Error::new(ErrorKind::Unsupported, "no file can be made there"));
        }
    }
    Ok(rustix::fs::access(directory, Access::WRITE_OK | Access::EXEC_OK)?)
}

/// The path of the token file.
pub fn token_file(directory: &Path) -> PathBuf {
    directory.join(TOKEN)
}

/// The token of the directory; made at the first call.
///
/// # Errors
/// [`DataDirectoryError`] with the path, for an empty file too.
pub fn token(directory: &Path) -> Result<SecretString, DataDirectoryError> {
    let path = token_file(directory);
    if let Some(token) = read_token(&path)? {
        return Ok(token);
    }
    let made = format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
    match place(&path, made.as_bytes(), false) {
        Ok(()) => Ok(made.into()),
        // Another process was faster: its token counts.
        Err(cause) if cause.kind() == ErrorKind::AlreadyExists => {
            read_token(&path)?.ok_or_else(|| error("read the token file", &path, ErrorKind::NotFound.into()))
        }
        Err(cause) => Err(error("write the token file", &path, cause)),
    }
}

/// The token in a file. None: there is no such file.
///
/// # Errors
/// [`DataDirectoryError`] with the path: it cannot be read, others could, or it has no token.
pub fn read_token(path: &Path) -> Result<Option<SecretString>, DataDirectoryError> {
    let advice = format!(
        "other users can read it. Delete it, and the next start makes a new one; or keep it by `chmod 600 {}`",
        path.display()
    );
    let Some(bytes) = read_private(path, "read the token file", &advice)? else { return Ok(None) };
    let text = String::from_utf8(bytes).unwrap_or_default();
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|b| b.is_ascii_graphic()) {
        let problem =
            "expected one word of visible ASCII characters; delete the file, and the next start makes a new one";
        return Err(error("read the token file", path, io::Error::new(ErrorKind::InvalidData, problem)));
    }
    Ok(Some(token.to_owned().into()))
}

/// The content of a file that is for us alone; None: there is none. One that others could touch is refused with `advice`.
pub(super) fn read_private(
    path: &Path,
    doing: &'static str,
    advice: &str,
) -> Result<Option<Vec<u8>>, DataDirectoryError> {
    let (bytes, found) = match file::read_small(path, FILE_BYTES_MAX) {
        Ok(read) => read,
        Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(error(doing, path, cause)),
    };
    // Who could read it may have done so.
    let mode = found.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let problem = format!("expected mode 0600, found {mode:04o}: {advice}");
        return Err(error(doing, path, io::Error::new(ErrorKind::InvalidData, problem)));
    }
    Ok(Some(bytes))
}

impl ServerFile {
    /// Writes it.
    ///
    /// # Errors
    /// [`DataDirectoryError`] with the path.
    pub fn write(&self, directory: &Path) -> Result<(), DataDirectoryError> {
        let path = directory.join(SERVER);
        let text = serde_json::to_vec_pretty(self).map_err(|cause| error("write", &path, cause.into()))?;
        place(&path, &text, true).map_err(|cause| error("write", &path, cause))
    }

    /// What stands there. None: nothing that can be read.
    pub fn read(directory: &Path) -> Option<Self> {
        serde_json::from_slice(&file::read_small(&directory.join(SERVER), FILE_BYTES_MAX).ok()?.0).ok()
    }

    /// Takes it away, if it is still this one.
    pub fn remove(&self, directory: &Path) {
        if Self::read(directory).as_ref() == Some(self) {
            // Gone already is as good.
            drop(fs::remove_file(directory.join(SERVER)));
        }
    }
}

/// Whether [`write_file`] could put a file there, as far as can be seen before.
///
/// # Errors
/// There is something that is no regular file, or no directory to put it in.
pub fn check_place(path: &Path) -> Result<(), DataDirectoryError> {
    let checked = file::check_replaceable(path).and_then(|()| fs::metadata(parent_of(path)));
    checked.map(drop).map_err(|cause| error("write", path, cause))
}

/// Writes a small file as a whole: a reader sees all of it or nothing. Readable by its owner alone.
/// What is no regular file is not replaced.
///
/// # Errors
/// The system's words.
pub fn write_file(path: &Path, content: &[u8]) -> Result<(), DataDirectoryError> {
    check_place(path)?;
    place(path, content, true).map_err(|cause| error("write", path, cause))
}

pub(super) fn place(path: &Path, content: &[u8], replace: bool) -> io::Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(parent_of(path))?;
    file.write_all(content)?;
    file.as_file().sync_all()?;
    let placed = if replace { file.persist(path) } else { file.persist_noclobber(path) };
    placed.map(drop).map_err(|refused| refused.error)
}

fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

pub(super) fn error(doing: &'static str, path: &Path, cause: io::Error) -> DataDirectoryError {
    DataDirectoryError { doing, path: path.to_owned(), cause }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use secrecy::ExposeSecret;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn the_token_is_made_once_and_for_us_alone() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("a/b");
        prepare(&directory).unwrap();
        assert_eq!(mode(&directory), 0o700);
        let first = token(&directory).unwrap();
        assert_eq!(first.expose_secret().len(), 64);
        assert_eq!(mode(&token_file(&directory)), 0o600);
        assert_eq!(token(&directory).unwrap().expose_secret(), first.expose_secret());
    }

    #[test]
    fn a_token_that_others_can_read_is_refused_and_left_alone() {
        let home = tempfile::tempdir().unwrap();
        let first = token(home.path()).unwrap();
        let file = token_file(home.path());
        for open in [0o640, 0o604, 0o620, 0o644, 0o666] {
            fs::set_permissions(&file, Permissions::from_mode(open)).unwrap();
            let error = token(home.path()).unwrap_err().to_string();
            let want = format!("expected mode 0600, found {open:04o}");
            assert!(error.contains(&want) && error.contains("chmod 600") && error.contains("Delete"), "{error}");
            assert_eq!(mode(&file), open);
            assert!(!error.contains(first.expose_secret()));
        }
        fs::set_permissions(&file, Permissions::from_mode(0o400)).unwrap();
        assert_eq!(token(home.path()).unwrap().expose_secret(), first.expose_secret());
    }

    #[test]
    fn a_damaged_token_file_is_refused() {
        let home = tempfile::tempdir().unwrap();
        for text in ["", " \n", "two words", "\u{e9}"] {
            fs::write(token_file(home.path()), text).unwrap();
            fs::set_permissions(token_file(home.path()), Permissions::from_mode(0o600)).unwrap();
            let error = token(home.path()).unwrap_err().to_string();
            assert!(error.contains("token") && error.contains("delete the file"), "{error}");
        }
    }

    #[test]
    fn what_is_not_ours_alone_is_told_or_refused() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("mine.txt"), "x").unwrap();
        fs::set_permissions(home.path(), Permissions::from_mode(0o755)).unwrap();
        prepare(home.path()).unwrap();
        assert!(mode(home.path()) == 0o755 && is_open_to_others(home.path()));
        fs::set_permissions(home.path(), Permissions::from_mode(0o777)).unwrap();
        let error = prepare(home.path()).unwrap_err().to_string();
        let place = home.path().display().to_string();
        assert!(error.starts_with(&format!("cannot use the data directory {place}: other users may write")), "{error}");
    }

    #[test]
    fn only_the_own_server_file_is_taken_away() {
        let home = tempfile::tempdir().unwrap();
        let (url, version, key) = ("http://127.0.0.1:1".into(), "0".into(), Some(ProofKey::random()));
        let ours = ServerFile { url, port: 1, socket: None, pid: 7, version, key };
        let theirs = ServerFile { pid: 8, ..ours.clone() };
        ours.write(home.path()).unwrap();
        theirs.write(home.path()).unwrap();
        ours.remove(home.path());
        assert_eq!(ServerFile::read(home.path()), Some(theirs.clone()));
        theirs.remove(home.path());
        assert_eq!(ServerFile::read(home.path()), None);
    }
}
