//! Word to whoever supervises this process (`sd_notify`): one datagram a message, to the socket that it named.
//!
//! A supervisor that has gone, or a socket that cannot be written to, is no reason to fail: what could not be said is lost.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The way to the supervisor.
#[derive(Debug)]
pub struct Supervisor {
    socket: UnixDatagram,
    address: SocketAddr,
}

impl Supervisor {
    /// The one at this address: a path, or `@` and a name in the abstract namespace.
    ///
    /// # Errors
    /// When the address is neither, or the system has no sockets left.
    pub fn at(address: &OsStr) -> io::Result<Self> {
        let bytes = address.as_bytes();
        let address = match bytes.split_first() {
            Some((b'@', name)) => SocketAddr::from_abstract_name(name)?,
            Some((b'/', _)) => SocketAddr::from_pathname(address)?,
            _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, "expected a path, or @ and a name")),
        };
        let socket = UnixDatagram::unbound()?;
        // A full queue of a supervisor that does not read must not hold up anything.
        socket.set_nonblocking(true)?;
        Ok(Self { socket, address })
    }

    /// Says something: lines such as `READY=1`.
    ///
    /// # Errors
    /// What the system says.
    pub fn say(&self, message: &str) -> io::Result<()> {
        self.socket.send_to_addr(message.as_bytes(), &self.address).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(socket: &UnixDatagram) -> String {
        let mut message = [0; 100];
        let length = socket.recv(&mut message).unwrap();
        String::from_utf8(message[..length].to_vec()).unwrap()
    }

    #[test]
    fn a_path_and_an_abstract_name_are_reached() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        Supervisor::at(path.as_os_str()).unwrap().say("READY=1").unwrap();
        assert_eq!(heard(&socket), "READY=1");
        let name = format!("simse-test-{}", uuid::Uuid::now_v7());
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        Supervisor::at(OsStr::new(&format!("@{name}"))).unwrap().say("STOPPING=1\nSTATUS=x").unwrap();
        assert_eq!(heard(&socket), "STOPPING=1\nSTATUS=x");
        drop(socket);
        assert!(Supervisor::at(OsStr::new(&format!("@{name}"))).unwrap().say("READY=1").is_err());
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for address in ["", "relative/path", "vsock:2:1"] {
            assert_eq!(
                Supervisor::at(OsStr::new(address)).unwrap_err().kind(),
                io::ErrorKind::InvalidInput,
                "{address}"
            );
        }
    }
}
