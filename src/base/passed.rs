//! Sockets that whoever started this process opened for it (`sd_listen_fds`): they listen already, from descriptor 3 on.
//!
//! Invariants: each is taken once. Whatever is not a socket that listens is refused and left alone, so nothing that belongs to another
//! part of the process is taken for one. What is taken is not handed on to programs that are started.

#![allow(unsafe_code, reason = "a descriptor that was there when the process began has no owner yet")]

use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::os::fd::{AsFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::FdFlags;
use rustix::net::{AddressFamily, SocketType, sockopt};

/// The first descriptor behind the standard streams.
const FIRST: RawFd = 3;

/// The sockets that were passed.
#[derive(Debug, Default)]
pub struct Passed {
    /// Over the network.
    pub network: Option<TcpListener>,
    /// On a path.
    pub local: Option<UnixListener>,
}

/// Takes the sockets with these names, the first of them descriptor 3. An empty list takes none.
///
/// # Errors
/// When a descriptor is no socket that listens, or there is more than one of a kind. The name is told.
pub fn take(names: &[String]) -> io::Result<Passed> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if names.is_empty() {
        return Ok(Passed::default());
    }
    if TAKEN.swap(true, Ordering::AcqRel) {
        return Err(io::Error::new(ErrorKind::AlreadyExists, "the sockets that were passed are taken already"));
    }
    let mut passed = Passed::default();
    for (name, number) in names.iter().zip(FIRST..) {
        let said = |cause: io::Error| {
            io::Error::new(cause.kind(), format!("the socket `{name}` that was passed (descriptor {number}): {cause}"))
        };
        check(number).map_err(said)?;
        // SAFETY: the descriptor is open and a socket that listens. The process listens nowhere yet, so it is one that was there at its
        // beginning, for us; and they are taken once, so nobody else owns it.
        let socket = unsafe { OwnedFd::from_raw_fd(number) };
        add(&mut passed, socket).map_err(said)?;
    }
    Ok(passed)
}

/// Whether a number is a socket of streams that listens.
fn check(number: RawFd) -> io::Result<()> {
    let expected = |what: &str| io::Error::new(ErrorKind::InvalidInput, format!("expected {what}"));
    // SAFETY: the number is looked at and not kept. One that is not open is refused by the first call; `-1` cannot come, they begin at 3.
    let looked = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_getfd(looked)?;
    let kind = sockopt::socket_type(looked).map_err(|_| expected("a socket"))?;
    if kind != SocketType::STREAM || !sockopt::socket_acceptconn(looked)? {
        return Err(expected("a socket of streams that listens (ListenStream=, and Accept=no)"));
    }
    Ok(())
}

fn add(passed: &mut Passed, socket: OwnedFd) -> io::Result<()> {
    let expected = |what: &str| Err(io::Error::new(ErrorKind::InvalidInput, format!("expected {what}")));
    rustix::io::fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    match sockopt::socket_domain(socket.as_fd())? {
        AddressFamily::INET | AddressFamily::INET6 if passed.network.is_none() => {
            passed.network = Some(socket.into());
            Ok(())
        }
        AddressFamily::UNIX if passed.local.is_none() => {
            passed.local = Some(socket.into());
            Ok(())
        }
        AddressFamily::INET | AddressFamily::INET6 | AddressFamily::UNIX => {
            expected("one address and one path at most")
        }
        _ => expected("an address, or a path"),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn only_what_listens_is_taken_for_a_socket() {
        let home = tempfile::tempdir().unwrap();
        let network = TcpListener::bind("127.0.0.1:0").unwrap();
        let local = UnixListener::bind(home.path().join("s")).unwrap();
        let client = std::net::TcpStream::connect(network.local_addr().unwrap()).unwrap();
        let file = std::fs::File::open(home.path()).unwrap();
        let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        check(network.as_raw_fd()).unwrap();
        check(local.as_raw_fd()).unwrap();
        for (number, says) in [
            (client.as_raw_fd(), "that listens"),
            (datagrams.as_raw_fd(), "that listens"),
            (file.as_raw_fd(), "expected a socket"),
            (1_000_000, "Bad file descriptor"),
        ] {
            let error = check(number).unwrap_err().to_string();
            assert!(error.contains(says), "{number}: {error}");
        }
    }

    #[test]
    fn one_of_each_kind_is_kept_and_not_handed_on() {
        let home = tempfile::tempdir().unwrap();
        let socket = || OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap());
        let mut passed = Passed::default();
        let first = socket();
        rustix::io::fcntl_setfd(&first, FdFlags::empty()).unwrap();
        add(&mut passed, first).unwrap();
        add(&mut passed, UnixListener::bind(home.path().join("s")).unwrap().into()).unwrap();
        assert!(add(&mut passed, socket()).unwrap_err().to_string().contains("one address"));
        let (network, local) = (passed.network.unwrap(), passed.local.unwrap());
        assert_eq!(rustix::io::fcntl_getfd(&network).unwrap(), FdFlags::CLOEXEC);
        assert_eq!(network.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(local.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    }
}
