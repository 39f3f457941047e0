//! Who is at the other end of a connection.

use std::fmt;
use std::net::SocketAddr;

/// The other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    /// Over the network, which loopback is too: nobody in particular.
    Network(SocketAddr),
    /// Over the Unix socket, and the kernel says: of the same user, or root.
    Local,
    /// Another server of the store, through its database.
    Letter,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(address) => address.fmt(f),
            Self::Local => f.write_str("socket"),
            Self::Letter => f.write_str("database"),
        }
    }
}
