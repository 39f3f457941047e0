//! Who has a data directory: a server that runs already, or this process, which becomes one.
//!
//! Invariant: the data directory's token goes to nobody but the server that shows that it has that directory.

use std::path::Path;
use std::time::Duration;

use secrecy::SecretString;
use tokio::time::Instant;

use super::client::{Client, Way};
use super::running::{Running, StartError};
use crate::app::OpenError;
use crate::config::data_directory::{self, ServerFile};
use crate::config::{Launch, Options};
use crate::store::StoreError;

/// How long a data directory may be taken without a server that says so: one that starts, or one that is ending.
const STARTING: Duration = Duration::from_secs(10);
/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// Who has the sessions.
pub(super) enum Found {
    /// A server that runs already.
    Other(Box<Client>),
    /// This process.
    Own(Box<Running>),
}

/// A flag about where a server listens: what a configuration file says of that is for `simse serve`.
pub(super) fn of_a_door(options: &Options) -> Option<&'static str> {
    let flags = [
        (options.port.is_some(), "--port"),
        (options.host.is_some(), "--host"),
        (options.allow_public.is_some(), "--allow-public"),
        (options.no_auth.is_some(), "--no-auth"),
        (options.tls_cert.is_some(), "--tls-cert"),
        (options.tls_key.is_some(), "--tls-key"),
        (options.socket.is_some(), "--socket"),
        (options.port_file.is_some(), "--port-file"),
        (options.node_url.is_some(), "--node-url"),
        (options.node_labels.is_some(), "--node-labels"),
    ];
    flags.into_iter().find(|(given, _)| *given).map(|(_, flag)| flag)
}

/// The door of a server that was started beside something else: for this machine, on any port, with the token. It is none of several.
pub(super) fn with_a_door(mut launch: Launch) -> Launch {
    "127.0.0.1".clone_into(&mut launch.listen.host);
    launch.listen.port = 0;
    launch.listen.allow_public = false;
    launch.listen.auth = true;
    launch.listen.tls = None;
    launch.listen.socket = None;
    launch.port_file = None;
    launch.settings.stand_alone();
    launch
}

/// Finds who has the data directory, or takes it.
///
/// # Errors
/// [`StartError`] when nobody has it and it cannot be taken.
pub(super) async fn find(launch: &Launch) -> Result<Found, StartError> {
    let until = Instant::now() + STARTING;
    loop {
        if let Some(client) = neighbour(launch).await {
            return Ok(Found::Other(Box::new(client)));
        }
        match Running::start(launch).await {
            Ok(running) => return Ok(Found::Own(Box::new(running))),
            // It starts just now, or ends.
            Err(error) if is_taken(&error) && Instant::now() < until => tokio::time::sleep(LOOK).await,
            Err(error) => return Err(error),
        }
    }
}

fn is_taken(error: &StartError) -> bool {
    matches!(error, StartError::Store(OpenError::Store(StoreError::InUse { .. })))
}

/// The way to the server that says in the data directory that it has it, and shows that it is that one.
pub(super) async fn neighbour(launch: &Launch) -> Option<Client> {
    let directory = launch.data_directory.clone();
    let looked = tokio::task::spawn_blocking(move || {
        let file = ServerFile::read(&directory)?;
        Some((file, data_directory::token(&directory).ok()))
    });
    let (file, token) = looked.await.ok().flatten()?;
    let way = match (&file.socket, file.url.strip_prefix("http://")) {
        (Some(socket), _) => Way::Socket(socket.clone()),
        (None, Some(authority)) => Way::Network(authority.to_owned()),
        (None, None) => {
            tracing::warn!(
                url = file.url,
                "the server of this data directory speaks TLS alone; with --socket it could be reached"
            );
            return None;
        }
    };
    // What listens there may be something else: it is told no token before.
    let stranger = Client { way, token: None };
    let proved = stranger.shows(file.key.as_ref()?).await;
    let token = token.filter(|_| matches!(stranger.way, Way::Network(_)));
    proved.then_some(Client { token, ..stranger })
}

/// The data directory's token, if this is the way to its own server.
pub(super) async fn own_token(launch: &Launch, stranger: &Client) -> Option<SecretString> {
    let directory = launch.data_directory.clone();
    let looked = tokio::task::spawn_blocking(move || {
        Some((ServerFile::read(&directory)?.key?, data_directory::token(&directory).ok()?))
    });
    let (key, token) = looked.await.ok().flatten()?;
    let proved = stranger.shows(&key).await;
    if !proved {
        let url = stranger.way.shown();
        tracing::warn!(url, "the server does not show that it has this data directory: it gets no token");
    }
    proved.then_some(token)
}

/// The token in a file that `--token-file` names.
///
/// # Errors
/// What is wrong with it.
pub(super) fn token_of(path: &Path) -> Result<SecretString, String> {
    let found = data_directory::read_token(path).map_err(|error| format!("--token-file: {error}"))?;
    found.ok_or_else(|| format!("--token-file: {} is not there", path.display()))
}
