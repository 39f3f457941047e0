//! The HTTP door: routes, event streams, and the guard before them. Speaks to [`App`] and to nothing below it.

mod acp;
mod answer;
mod call;
mod connection;
mod dialogue;
mod framing;
mod guard;
mod hand_on;
mod headers;
mod held;
#[cfg(test)]
#[path = "../../fuzz/src/inside/wire.rs"]
mod inside;
mod intake;
mod io;
mod keys;
mod letters;
mod lifecycle;
mod lines;
mod listen;
mod log;
mod mcp;
mod metrics;
mod openapi;
mod out;
mod page;
mod peer;
mod pieces;
mod query;
mod rehearsal;
mod room;
mod routes;
mod socket;
mod sse;
mod stdio;
mod tls;
mod until;
mod write;
mod ws;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use self::guard::Guard;
use self::intake::Intake;
use self::keys::Keys;
use self::listen::{Ends, Listeners};
use self::socket::Socket;
use self::tls::Tls;

pub use self::acp::{AcpPipe, bridge_acp_pipe, serve_acp_pipe};
pub use self::mcp::{Attachment, bridge_mcp, serve_mcp};
pub use self::openapi::pretty as openapi_document;
pub use self::stdio::{Pipe, serve_pipe};
pub use self::tls::TlsFiles;

use crate::app::{App, NodeKey};
use crate::base::limit;
use crate::base::passed::Passed;
use crate::base::proof::ProofKey;
use crate::protocol::LimitView;

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
    /// The file of the named tokens beside it, which may come and go; see [`crate::config::tokens`].
    pub tokens_file: Option<PathBuf>,
    /// Certificate and key; what comes over the network then has to come by TLS.
    pub tls: Option<TlsFiles>,
    /// A Unix socket beside the address. Programs of the same user and of root are the owner there, without a token.
    pub socket: Option<PathBuf>,
    /// Largest body in bytes.
    pub body_bytes_max: usize,
    /// What has come of messages and bodies that are not whole yet, in bytes beyond the first 64 KiB of each, of all together.
    pub unfinished_bytes_max: usize,
    /// Open connections, at most.
    pub connections_max: usize,
    /// Time between two comments on a silent stream.
    pub heartbeat: Duration,
    /// Longest wait for a request's head, an idle connection's included.
    pub head_timeout: Duration,
    /// Longest wait for a whole request body, and for the rest of a WebSocket message that is begun.
    pub body_timeout: Duration,
    /// Longest time in which a client may take nothing of what is written to it.
    pub write_timeout: Duration,
    /// How long turns get to finish when the server stops: what sockets are told.
    pub shutdown_grace: Duration,
    /// Whether `GET /metrics` needs no token.
    pub metrics_open: bool,
    /// Whether `/mcp` shows what the conformance suite of MCP looks for.
    pub mcp_fixtures: bool,
}

impl Default for ListenOptions {
    /// Any free port on 127.0.0.1, no token, and the limits of `base::limit`.
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: 0,
            allow_public: false,
            token: None,
            tokens_file: None,
            tls: None,
            socket: None,
            body_bytes_max: limit::BODY_BYTES_MAX,
            unfinished_bytes_max: limit::UNFINISHED_BYTES_MAX,
            connections_max: limit::CONNECTIONS_MAX,
            heartbeat: Duration::from_millis(limit::HEARTBEAT_MS),
            head_timeout: Duration::from_millis(limit::HEAD_TIMEOUT_MS),
            body_timeout: Duration::from_millis(limit::BODY_TIMEOUT_MS),
            write_timeout: Duration::from_millis(limit::WRITE_TIMEOUT_MS),
            shutdown_grace: Duration::from_millis(limit::SHUTDOWN_GRACE_MS),
            metrics_open: false,
            mcp_fixtures: false,
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
    /// Certificate or key cannot be used.
    #[error("TLS, {path}: {problem}", path = path.display())]
    Tls {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The Unix socket cannot be made.
    #[error("cannot listen on the socket {path}: {problem}", path = path.display())]
    Socket {
        /// Where it was to be.
        path: PathBuf,
        /// What stands in the way.
        problem: String,
    },
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

/// What every request needs.
pub(crate) struct Shared {
    app: Arc<App>,
    guard: Guard,
    /// What the servers of the store know one another by. None: it has the store alone.
    node_key: Option<NodeKey>,
    /// By which it shows that it is this server.
    proof_key: ProofKey,
    options: ListenOptions,
    tls: Option<Tls>,
    /// A permit for each connection.
    room: Arc<Semaphore>,
    /// A permit for each connection that is told that it may not come in.
    refusals: Arc<Semaphore>,
    /// Ends every event stream.
    streams: CancellationToken,
    /// Fires when the server is about to end.
    ending: CancellationToken,
    /// What waits for sockets.
    outs: out::Outs,
    /// What is not whole yet.
    intake: Arc<Intake>,
    /// ACP clients over HTTP.
    acp: acp::http::Connections,
    /// Clients of `/mcp`.
    mcp: mcp::Peers,
}

impl Shared {
    /// What is bounded in the whole server, and how full it is.
    fn limits(&self) -> Vec<LimitView> {
        let of = |name, all: usize, permits: &Semaphore| {
            LimitView::new(name, all.saturating_sub(permits.available_permits()), all)
        };
        let (frames, frame_bytes) = self.outs.fullest();
        let mut limits = vec![
            of("connections", self.options.connections_max, &self.room),
            of("refusals", listen::REFUSALS_MAX, &self.refusals),
            LimitView::new("unfinishedBytes", self.intake.used(), self.options.unfinished_bytes_max),
            LimitView::new("tokens", self.guard.keys().count(), limit::TOKENS_MAX),
            LimitView::new("tokenNames", self.guard.keys().names(), limit::TOKEN_NAMES_MAX),
            LimitView::new("mcpClients", self.mcp.count(), limit::MCP_SESSIONS_MAX),
            LimitView::new("framesOfASocket", frames, limit::FRAMES_WAITING_MAX),
            LimitView::new("frameBytesOfASocket", frame_bytes, limit::FRAMES_WAITING_BYTES_MAX),
            LimitView::new("acpConnections", self.acp.count(), limit::ACP_CONNECTIONS_MAX),
        ];
        limits.extend(self.app.limits());
        limits
    }
}

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    socket: Option<PathBuf>,
    proof_key: ProofKey,
    /// Fires when the server is about to end.
    ending: CancellationToken,
    /// Fires when no new connections are taken.
    closed: CancellationToken,
    /// Whether what comes meanwhile is taken for whoever follows.
    is_among_nodes: bool,
    streams: CancellationToken,
    drain: watch::Sender<Option<Duration>>,
    done: CancellationToken,
}

impl Server {
    /// Binds and answers. Every accepted request is answered.
    ///
    /// # Errors
    /// [`ListenError`] that says what stands in the way.
    pub async fn start(app: Arc<App>, options: ListenOptions) -> Result<Self, ListenError> {
        Self::start_on(app, options, Passed::default()).await
    }

    /// The same on sockets that listen already. The host and the port of the options have to be theirs; where no socket is
    /// passed, one is made.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_on(app: Arc<App>, options: ListenOptions, passed: Passed) -> Result<Self, ListenError> {
        check_allowed(&options).await?;
        let tls = match options.tls.clone() {
            Some(files) => Some(Tls::read(files).await?),
            None => None,
        };
        let (host, port) = (options.host.clone(), options.port);
        let listener = match passed.network {
            Some(listener) => TcpListener::from_std(listener),
            None => TcpListener::bind((host.as_str(), port)).await,
        };
        let bound = listener.and_then(|listener| Ok((listener.local_addr()?, listener)));
        let (address, listener) = bound.map_err(|cause| match cause.kind() {
            std::io::ErrorKind::AddrInUse => ListenError::PortInUse { host: host.clone(), port },
            _ => ListenError::Io { host: host.clone(), port, cause },
        })?;
        let local = match (passed.local, options.socket.clone()) {
            (Some(listener), path) => Some(Socket::passed(listener, path)?),
            (None, Some(path)) => Some(Socket::open(path).await?),
            (None, None) => None,
        };
        let socket = local.as_ref().and_then(|socket| socket.path()).map(Path::to_owned);
        let any_host = options.allow_public && options.token.is_some();
        let keys = Keys::new(options.token.clone(), options.tokens_file.clone());
        let keys = keys.with_sessions(Arc::clone(app.session_tokens()));
        keys.reload().await;
        let guard = Guard::new(&options.host, address.port(), any_host, keys);
        let guard = if tls.is_some() { guard.secured() } else { guard };
        let node_key = app.node_key();
        let guard = guard.with_open_metrics(options.metrics_open).among_nodes(node_key.clone());
        let streams = CancellationToken::new();
        let (ending, closed, done) = (CancellationToken::new(), CancellationToken::new(), CancellationToken::new());
        let is_among_nodes = node_key.is_some();
        let stop = streams.clone();
        let room = Arc::new(Semaphore::new(options.connections_max));
        let refusals = Arc::new(Semaphore::new(listen::REFUSALS_MAX));
        let intake = Intake::new(options.unfinished_bytes_max);
        let proof_key = ProofKey::random();
        let mcp = mcp::Peers::new(options.mcp_fixtures);
        let shared = Shared {
            app,
            guard,
            node_key,
            proof_key: proof_key.clone(),
            options,
            tls,
            room,
            refusals,
            streams: stop,
            ending: ending.clone(),
            outs: out::Outs::default(),
            intake,
            acp: acp::http::Connections::default(),
            mcp,
        };
        let shared = Arc::new(shared);
        let router = routes::router(Arc::clone(&shared));
        let (drain, drained) = watch::channel(None);
        let ends = Ends { closed: closed.clone(), drain: drained, done: done.clone() };
        tokio::spawn(listen::run(Listeners { network: listener, local }, router, shared, ends));
        Ok(Self { address, socket, proof_key, ending, closed, is_among_nodes, streams, drain, done })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The Unix socket that it listens on beside that.
    pub fn socket(&self) -> Option<&Path> {
        self.socket.as_deref()
    }

    /// By which who was told it knows that it is this server: see `GET /proof/:nonce`.
    pub fn proof_key(&self) -> ProofKey {
        self.proof_key.clone()
    }

    /// Takes no new connections; those that are open go on, their streams too. For the time in which turns finish. Where other servers
    /// share the store, it takes them until its stop: what it is asked waits for whoever follows, and who asks how it is hears that it ends.
    pub fn close_door(&self) {
        self.ending.cancel();
        if !self.is_among_nodes {
            self.closed.cancel();
        }
    }

    /// Stops accepting, ends streams, waits for answers under way up to `grace`. Does not stop the application. Idempotent.
    pub async fn stop(&self, grace: Duration) {
        self.ending.cancel();
        self.closed.cancel();
        self.streams.cancel();
        self.drain.send_if_modified(|now| now.replace(now.unwrap_or(grace)).is_none());
        self.done.cancelled().await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ending.cancel();
        self.closed.cancel();
        self.streams.cancel();
    }
}

/// Another address than loopback needs the flag and a token.
async fn check_allowed(options: &ListenOptions) -> Result<(), ListenError> {
    let (host, port) = (options.host.as_str(), options.port);
    if options.token.as_ref().is_some_and(|token| token.expose_secret().is_empty()) {
        return Err(ListenError::NotAllowed("the token is empty; a token needs at least one character".to_owned()));
    }
    let found = tokio::net::lookup_host((host, port)).await;
    let found = found.map_err(|cause| ListenError::Io { host: host.to_owned(), port, cause })?;
    let public = found.into_iter().any(|address| !address.ip().is_loopback());
    let refuse = |why: &str| Err(ListenError::NotAllowed(format!("{host} can be reached from other machines: {why}")));
    match (public, options.allow_public, options.token.is_some()) {
        (false, _, _) | (true, true, true) => Ok(()),
        (true, false, _) => refuse("that needs --allow-public, and a token"),
        (true, true, false) => refuse("that needs a token; leave out --no-auth"),
    }
}
