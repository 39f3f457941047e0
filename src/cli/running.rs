//! The whole server in this process: application, door, token, `server.json`; and the orderly end of it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use tokio_util::task::AbortOnDropHandle;

use super::client::{Client, Way};
use super::descriptors;
use crate::app::{App, Extras, OpenError};
use crate::base::limit;
use crate::base::passed::Passed;
use crate::config::data_directory::{self, DataDirectoryError, ServerFile};
use crate::config::{Launch, Settings, ToolBridge, own_program, tokens};
use crate::protocol::ApiError;
use crate::server::{ListenError, ListenOptions, Server, TlsFiles};
use crate::store::StoreError;

/// What is left of the time to stop when all turns have ended: for answers that are on their way.
const ANSWERS_GRACE: Duration = Duration::from_secs(1);

/// The server cannot start.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    /// A setting does not hold.
    #[error(transparent)]
    Setting(OpenError),
    /// The store said no.
    #[error(transparent)]
    Store(OpenError),
    /// The data directory.
    #[error(transparent)]
    Data(#[from] DataDirectoryError),
    /// The port.
    #[error(transparent)]
    Listen(#[from] ListenError),
}

/// A server that runs.
pub(super) struct Running {
    /// The application.
    pub(super) app: Arc<App>,
    /// Where it listens, such as `http://127.0.0.1:4100`.
    pub(super) url: String,
    /// `host:port`, as in the URL.
    authority: String,
    /// Its port.
    pub(super) port: u16,
    /// What clients must bring.
    pub(super) token: Option<SecretString>,
    server: Server,
    file: ServerFile,
    /// Writes that file as soon as there is room for it. None: it is written.
    announcing: Option<AbortOnDropHandle<()>>,
    launch: Launch,
}

impl Running {
    /// Opens the application, then the door, and says in the data directory where it is.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left running then.
    pub(super) async fn start(launch: &Launch) -> Result<Self, StartError> {
        Self::start_on(launch, Passed::default()).await
    }

    /// The same on sockets that listen already.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left running then.
    pub(super) async fn start_on(launch: &Launch, passed: Passed) -> Result<Self, StartError> {
        if let Some(file) = launch.port_file.clone() {
            blocking(move || data_directory::check_place(&file)).await?;
        }
        let launch = &descriptors::fit(launch);
        let app = open(launch).await?;
        match Self::open_door(&app, launch, passed).await {
            Ok(running) => Ok(running),
            Err(error) => {
                if let Err(cause) = app.shutdown(Duration::ZERO).await {
                    tracing::warn!(%cause, "after a start that failed");
                }
                Err(error)
            }
        }
    }

    async fn open_door(app: &Arc<App>, launch: &Launch, passed: Passed) -> Result<Self, StartError> {
        let directory = launch.data_directory.clone();
        let token = match launch.listen.auth {
            true => Some(blocking(move || data_directory::token(&directory)).await?),
            false => None,
        };
        let server = Server::start_on(Arc::clone(app), options(launch, token.clone()), passed).await?;
        let port = server.address().port();
        let authority = match launch.listen.host.contains(':') {
            true => format!("[{}]:{port}", launch.listen.host),
            false => format!("{}:{port}", launch.listen.host),
        };
        let url = format!("{}://{authority}", if launch.listen.tls.is_some() { "https" } else { "http" });
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let socket = server.socket().map(Path::to_owned);
        let file = ServerFile {
            url: url.clone(),
            port,
            socket,
            pid: std::process::id(),
            version,
            key: Some(server.proof_key()),
        };
        let announcing = match announce(&file, launch).await {
            Ok(()) => None,
            // A full disk refuses what has to be written, and this has not.
            Err(error) if error.is_want_of_room() => {
                tracing::warn!(%error, "programs do not find this server by its data directory until there is room");
                Some(AbortOnDropHandle::new(tokio::spawn(keep_announcing(file.clone(), launch.clone()))))
            }
            Err(error) => {
                server.stop(Duration::ZERO).await;
                return Err(error.into());
            }
        };
        let (app, launch) = (Arc::clone(app), launch.clone());
        Ok(Self { app, url, authority, port, token, server, file, announcing, launch })
    }

    /// Tells the port to whoever waits for it in the file of `--port-file`.
    ///
    /// # Errors
    /// The file cannot be written. The server runs on.
    pub(super) async fn write_port_file(&self) -> Result<(), DataDirectoryError> {
        let Some(file) = self.launch.port_file.clone() else { return Ok(()) };
        let port = format!("{}\n", self.port);
        blocking(move || data_directory::write_file(&file, port.as_bytes())).await
    }

    /// The way for a program of this machine. Behind TLS it is the socket: the certificate may be for other names.
    pub(super) fn client(&self) -> Client {
        let way = match self.server.socket().filter(|_| self.launch.listen.tls.is_some()) {
            Some(path) => Way::Socket(path.to_owned()),
            None => Way::Network(self.authority.clone()),
        };
        Client { way, token: self.token.clone() }
    }

    /// The Unix socket that it listens on beside its address.
    pub(super) fn socket(&self) -> Option<&Path> {
        self.server.socket()
    }

    /// How long a stop waits for running turns.
    pub(super) fn set_grace(&mut self, shutdown_grace_ms: u64) {
        self.launch.shutdown_grace_ms = shutdown_grace_ms;
    }

    /// Whether what it is told can be read on its way from other machines.
    pub(super) fn talks_in_the_clear(&self) -> bool {
        self.launch.listen.tls.is_none() && !self.server.address().ip().is_loopback()
    }

    /// Takes no new connections, lets turns finish, aborts the rest, stores, ends.
    ///
    /// # Errors
    /// When not everything could be stored.
    pub(super) async fn stop(self) -> Result<(), ApiError> {
        self.server.close_door();
        let stored = self.app.shutdown(Duration::from_millis(self.launch.shutdown_grace_ms)).await;
        self.server.stop(ANSWERS_GRACE).await;
        drop(self.announcing);
        let directory = self.launch.data_directory;
        let removal = move || {
            self.file.remove(&directory);
            Ok(())
        };
        drop(blocking(removal).await);
        stored
    }
}

/// Says in the data directory where the server is.
async fn announce(file: &ServerFile, launch: &Launch) -> Result<(), DataDirectoryError> {
    let (file, directory) = (file.clone(), launch.data_directory.clone());
    blocking(move || file.write(&directory)).await
}

/// The same, tried until it is done.
async fn keep_announcing(file: ServerFile, launch: Launch) {
    loop {
        tokio::time::sleep(Duration::from_millis(limit::RECOVERY_PAUSE_MS)).await;
        if announce(&file, &launch).await.is_ok() {
            return;
        }
    }
}

/// Where and how the door is, as the launch says.
pub(super) fn options(launch: &Launch, token: Option<SecretString>) -> ListenOptions {
    ListenOptions {
        host: launch.listen.host.clone(),
        port: launch.listen.port,
        allow_public: launch.listen.allow_public,
        token,
        tokens_file: launch.listen.auth.then(|| tokens::tokens_file(&launch.data_directory)),
        body_bytes_max: launch.listen.body_bytes_max,
        unfinished_bytes_max: limit::UNFINISHED_BYTES_MAX,
        tls: launch.listen.tls.clone().map(|(certificate, key)| TlsFiles { certificate, key }),
        socket: launch.listen.socket.clone(),
        connections_max: launch.listen.connections_max,
        head_timeout: Duration::from_millis(launch.listen.head_timeout_ms),
        body_timeout: Duration::from_millis(launch.listen.body_timeout_ms),
        write_timeout: Duration::from_millis(launch.listen.write_timeout_ms),
        heartbeat: Duration::from_millis(launch.listen.heartbeat_ms),
        shutdown_grace: Duration::from_millis(launch.shutdown_grace_ms),
        metrics_open: launch.listen.metrics_open,
        mcp_fixtures: launch.listen.mcp_fixtures,
    }
}

/// Opens the application alone.
///
/// # Errors
/// [`StartError`].
pub(super) async fn open(launch: &Launch) -> Result<Arc<App>, StartError> {
    let directory = launch.data_directory.clone();
    blocking(move || data_directory::prepare(&directory)).await?;
    let settings = Settings { tool_bridge: own_bridge(), ..launch.settings.clone() };
    let app = App::open(settings, Extras::default()).await.map_err(|error| explain(error, launch))?;
    app.tell_config(launch.shown());
    Ok(app)
}

/// This program, as what joins agents' tool clients to it. None: the system does not say where it lies.
fn own_bridge() -> Option<ToolBridge> {
    own_program().map(|program| ToolBridge { program, args: vec!["bridge".to_owned()] })
}

/// Adds who holds the directory, when it says so.
fn explain(error: OpenError, launch: &Launch) -> StartError {
    match error {
        OpenError::Store(StoreError::InUse { directory, holder }) => {
            let found = ServerFile::read(&launch.data_directory).filter(|_| holder.is_empty());
            let holder = found.map_or(holder, |file| format!(" (pid {}, {})", file.pid, file.url));
            StartError::Store(OpenError::Store(StoreError::InUse { directory, holder }))
        }
        OpenError::Store(_) => StartError::Store(error),
        OpenError::Setting { .. } => StartError::Setting(error),
    }
}

/// File work, off the threads that serve.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, DataDirectoryError> + Send + 'static,
) -> Result<T, DataDirectoryError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(failed) => std::panic::resume_unwind(failed.into_panic()),
    }
}
