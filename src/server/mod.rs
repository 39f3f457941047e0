//! The HTTP door: routes, event streams, and the guard before them. Speaks to [`App`] and to nothing below it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;

use crate::app::App;
use crate::base::limit;

/// Where and how to listen.
#[derive(Debug, Clone)]
pub struct ListenOptions {
    /// Host name or address. Loopback unless `allow_public`.
    pub host: String,
    /// 0 takes any free port.
    pub port: u16,
    /// Allows an address that is not loopback; needs a token.
    pub allow_public: bool,
    /// The token that every request but `GET /health` must carry. None: no token.
    pub token: Option<SecretString>,
    /// Largest body in bytes.
    pub body_bytes_max: usize,
    /// Open connections, at most.
    pub connections_max: usize,
    /// Time between two comments on a silent stream.
    pub heartbeat: Duration,
    /// Longest wait for a request's head, an idle connection's included.
    pub head_timeout: Duration,
    /// Longest wait for a whole request body.
    pub body_timeout: Duration,
    /// Longest time in which a client may take nothing of what is written to it.
    pub write_timeout: Duration,
}

impl Default for ListenOptions {
    /// Any free port on 127.0.0.1, no token, and the limits of `base::limit`.
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: 0,
            allow_public: false,
            token: None,
            body_bytes_max: limit::BODY_BYTES_MAX,
            connections_max: limit::CONNECTIONS_MAX,
            heartbeat: Duration::from_millis(limit::HEARTBEAT_MS),
            head_timeout: Duration::from_millis(limit::HEAD_TIMEOUT_MS),
            body_timeout: Duration::from_millis(limit::BODY_TIMEOUT_MS),
            write_timeout: Duration::from_millis(limit::WRITE_TIMEOUT_MS),
        }
    }
}

/// The server could not start.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The port is taken.
    #[error("port {port} on {host} is in use; choose another with --port, or 0 for any free one")]
    PortInUse {
        /// The host.
        host: String,
        /// The port.
        port: u16,
    },
    /// A public address without the flag or the token.
    #[error("{0}")]
    NotAllowed(String),
    /// The system said no.
    #[error("cannot listen on {host}:{port}: {cause}")]
    Io {
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// The system's words.
        cause: std::io::Error,
    },
}

/// A server that listens.
pub struct Server {}

impl Server {
    /// Binds and answers. Every accepted request is answered.
    ///
    /// # Errors
    /// [`ListenError`] that says what stands in the way.
    pub async fn start(app: Arc<App>, options: ListenOptions) -> Result<Self, ListenError> {
        todo!()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        todo!()
    }

    /// Stops accepting, ends streams, waits for answers under way up to `grace`. Does not stop the application. Idempotent.
    pub async fn stop(&self, grace: Duration) {
        todo!()
    }
}
