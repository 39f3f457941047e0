//! The Unix socket: who may reach it, and its coming and going.
//!
//! The socket is for its owner alone (0600), and the kernel says who is at the other end: the same user, or root. They
//! are the owner of the server and need no token.
//!
//! Invariant: a socket that somebody listens on is neither replaced nor removed, nor is anything that is no socket.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener as Passed, UnixStream as Probe};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, Mode};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::net::{UnixListener, UnixStream};

use super::ListenError;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1_024;

/// A socket that listens.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) listener: UnixListener,
    place: Place,
}

/// Whose a socket's file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// We made it, and take it away.
    Ours,
    /// It was there, and stays.
    Another,
}

/// The file of a socket; removed with it, which is why it stands behind the listener.
#[derive(Debug)]
struct Place {
    /// None: it is known by no path.
    path: Option<PathBuf>,
    owner: Owner,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let (Some(path), Owner::Ours) = (&self.path, self.owner) {
            // Where somebody listens it is another's by now; where nothing is there is nothing to do.
            drop(make_room(path));
        }
    }
}

impl Socket {
    /// Makes the socket. One that is there and that nobody listens on is replaced.
    ///
    /// # Errors
    /// [`ListenError::Socket`] that says what stands in the way.
    pub(super) async fn open(path: PathBuf) -> Result<Self, ListenError> {
        let named = path.clone();
        let opened = tokio::task::spawn_blocking(move || open(&named));
        let opened = opened.await.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()));
        let listening = opened.and_then(|listener| {
            let place = Place { path: Some(path.clone()), owner: Owner::Ours };
            Ok(Self { listener: UnixListener::from_std(listener)?, place })
        });
        listening.map_err(|cause| ListenError::Socket { path, problem: cause.to_string() })
    }

    /// One that listens already, and outlives us.
    ///
    /// # Errors
    /// [`ListenError::Socket`] when it cannot be used, or is not where it was to be.
    pub(super) fn passed(listener: Passed, wanted: Option<PathBuf>) -> Result<Self, ListenError> {
        let refused = |problem: String| ListenError::Socket { path: wanted.clone().unwrap_or_default(), problem };
        let address = listener.local_addr().map_err(|cause| refused(cause.to_string()))?;
        let path = address.as_pathname().map(Path::to_owned);
        if wanted.is_some() && wanted != path {
            return Err(refused("expected the path of the socket that was passed, or none".to_owned()));
        }
        let listener = UnixListener::from_std(listener).map_err(|cause| refused(cause.to_string()))?;
        Ok(Self { listener, place: Place { path, owner: Owner::Another } })
    }

    /// Where it is. None: it has no path.
    pub(super) fn path(&self) -> Option<&Path> {
        self.place.path.as_deref()
    }
}

fn open(path: &Path) -> io::Result<std::os::unix::net::UnixListener> {
    make_room(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // So that there is no moment in which others could connect: the file gets the mode that the socket has.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &address_of(path)?)?;
    rustix::fs::chmod(path, Mode::RUSR | Mode::WUSR)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// What stands in the way of a socket, whoever listens there now. Makes and removes nothing.
pub(super) fn fault(path: &Path) -> Option<ListenError> {
    let looked = address_of(path).and_then(|_| is_socket(path)).and_then(|_| {
        let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Ok(rustix::fs::access(above, Access::WRITE_OK | Access::EXEC_OK)?)
    });
    looked.err().map(|cause| ListenError::Socket { path: path.to_owned(), problem: cause.to_string() })
}

fn address_of(path: &Path) -> io::Result<SocketAddrUnix> {
    let expected = || io::Error::new(io::ErrorKind::InvalidInput, "expected a path of at most 107 bytes");
    SocketAddrUnix::new(path).map_err(|_| expected())
}

/// Whether a socket is there. What is something else is refused.
fn is_socket(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => Ok(true),
        Ok(_) => Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is something that is no socket")),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(cause) => Err(cause),
    }
}

/// Takes a socket away that nobody listens on.
fn make_room(path: &Path) -> io::Result<()> {
    if !is_socket(path)? {
        return Ok(());
    }
    match Probe::connect(path) {
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another program listens there")),
        Err(cause) if cause.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(cause) => Err(cause),
    }
}

/// Whether the program at the other end of a connection is of this user, or of root. None: the system does not say.
pub(super) fn is_ours(stream: &UnixStream) -> Option<bool> {
    let peer = stream.peer_cred().ok()?;
    Some(may_enter(peer.uid(), rustix::process::geteuid().as_raw()))
}

fn may_enter(peer: u32, own: u32) -> bool {
    peer == own || peer == 0
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_same_user_and_root_may_enter() {
        for (peer, own, may) in
            [(1000, 1000, true), (0, 1000, true), (0, 0, true), (1001, 1000, false), (1000, 0, false)]
        {
            assert_eq!(may_enter(peer, own), may, "{peer} {own}");
        }
    }

    #[tokio::test]
    async fn only_a_socket_without_a_listener_is_replaced() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("s");
        let socket = Socket::open(path.clone()).await.unwrap();
        assert_eq!(fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let error = Socket::open(path.clone()).await.unwrap_err().to_string();
        assert!(error.contains("another program listens there"), "{error}");
        // As a crash leaves it.
        let Socket { listener, place } = socket;
        drop(listener);
        let second = Socket::open(path.clone()).await.unwrap();
        drop(place);
        assert!(path.exists(), "the first one's end is not the second one's");
        drop(second);
        assert!(!path.exists());
        // What is no socket stays.
        fs::write(&path, "mine").unwrap();
        let error = Socket::open(path.clone()).await.unwrap_err().to_string();
        assert!(error.contains("no socket"), "{error}");
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(home.path().join("elsewhere"), &path).unwrap();
        assert!(Socket::open(path.clone()).await.is_err() && path.is_symlink());
        let long = home.path().join("x".repeat(120));
        assert!(Socket::open(long).await.unwrap_err().to_string().contains("at most 107 bytes"));
    }
}
