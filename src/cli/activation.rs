//! Sockets that a supervisor opened before this process was there (systemd's `LISTEN_FDS`): the server listens on them, and their
//! addresses count.
//!
//! Invariant: a setting that says another address is refused, not passed over.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};

use crate::base::passed::{Passed, take};
use crate::config::{Launch, Supervision};

/// Why the sockets cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum ActivationError {
    /// What was passed is none that can be used.
    #[error("{0}")]
    Socket(#[from] io::Error),
    /// Another address is asked for.
    #[error(
        "the socket that was passed is {passed}, and {setting} says {said}: leave the setting out, or make both the same"
    )]
    Elsewhere {
        /// Its address.
        passed: SocketAddr,
        /// The setting.
        setting: &'static str,
        /// What it says.
        said: String,
    },
    /// Nobody listens.
    #[error("sockets were passed, and with --stdio nobody listens on any")]
    Stdio,
}

/// Takes the sockets of this process, and puts their address into the launch. Before anything listens.
///
/// # Errors
/// [`ActivationError`].
pub(super) fn activate(launch: &mut Launch, stdio: bool) -> Result<Passed, ActivationError> {
    let passed = take(&Supervision::of_this_process().passed)?;
    if stdio && (passed.network.is_some() || passed.local.is_some()) {
        return Err(ActivationError::Stdio);
    }
    if let Some(listener) = &passed.network {
        settle(launch, listener.local_addr()?)?;
    }
    Ok(passed)
}

/// The launch listens at this address.
fn settle(launch: &mut Launch, passed: SocketAddr) -> Result<(), ActivationError> {
    let elsewhere = |setting, said: String| Err(ActivationError::Elsewhere { passed, setting, said });
    match launch.said.port {
        Some(port) if port != passed.port() => return elsewhere("--port", port.to_string()),
        Some(_) | None => launch.listen.port = passed.port(),
    }
    match &launch.said.host {
        // The name that was chosen is the one that clients use.
        Some(host) => {
            let mut known = (host.as_str(), passed.port()).to_socket_addrs()?;
            if !known.any(|address| address.ip() == passed.ip()) {
                return elsewhere("--host", host.clone());
            }
        }
        None => launch.listen.host = passed.ip().to_string(),
    }
    Ok(())
}
