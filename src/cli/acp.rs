//! `simse acp`: the agent of an editor, over the standard streams.
//!
//! Sessions are the same ones as everywhere: where a server has the data directory, the editor is led on to it. Where none has, this
//! is the server, with a door on this machine, so that a second editor, and any other client, finds the same sessions.
//!
//! Invariant: stdout carries the protocol and nothing else, as with `simse serve --stdio`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::arguments::Acp;
use super::client::{Client, Way};
use super::log::Log;
use super::running::{Running, StartError};
use super::serve::{exit_of, refuse};
use super::stdio::{Streams, take_streams};
use super::{Exit, signal};
use crate::app::OpenError;
use crate::base::limit;
use crate::config::data_directory::{self, ServerFile};
use crate::config::{Launch, LogFormat, Options, strange_variables};
use crate::server::{AcpPipe, bridge_acp_pipe, serve_acp_pipe};
use crate::store::StoreError;

/// How long a data directory may be taken without a server that says so: one that starts, or one that is ending.
const STARTING: Duration = Duration::from_secs(10);
/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// Who has the sessions.
enum Found {
    /// A server that runs already.
    Other(Box<Client>),
    /// This process.
    Own(Box<Running>),
}

/// Serves the editor until it closes the input, or a signal.
pub(super) async fn run(arguments: Acp) -> Exit {
    // Before anything can print.
    let streams = match take_streams() {
        Ok(streams) => streams,
        Err(cause) => return refuse(LogFormat::Text, Exit::CannotStart, format!("stdout cannot be used: {cause}")),
    };
    if let Some(flag) = of_a_door(&arguments.options) {
        let words = format!("{flag} is of no use here: the door of an editor's agent is on this machine, on any port");
        return refuse(LogFormat::Text, Exit::Usage, words);
    }
    // The editor is this user's, and says where to work: its projects lie where they lie.
    let own = Options { root: Some(vec![PathBuf::from("/")]), ..Options::default() };
    let launch = match Launch::resolve(arguments.options, arguments.config, own) {
        Ok(launch) => with_a_door(launch),
        Err(error) => return refuse(LogFormat::Text, Exit::Usage, error),
    };
    let log = Log::start(&launch);
    for said in strange_variables() {
        tracing::warn!("{said}");
    }
    let exit = serve(&launch, streams, &log).await;
    log.deliver().await;
    log.flush();
    exit
}

/// A flag about where a server listens. What a configuration file says of that is for `simse serve`.
fn of_a_door(options: &Options) -> Option<&'static str> {
    let flags = [
        (options.port.is_some(), "--port"),
        (options.host.is_some(), "--host"),
        (options.allow_public.is_some(), "--allow-public"),
        (options.no_auth.is_some(), "--no-auth"),
        (options.tls_cert.is_some(), "--tls-cert"),
        (options.tls_key.is_some(), "--tls-key"),
        (options.socket.is_some(), "--socket"),
        (options.port_file.is_some(), "--port-file"),
    ];
    flags.into_iter().find(|(given, _)| *given).map(|(_, flag)| flag)
}

/// The door of a server that an editor has started: for this machine, on any port, with the token.
fn with_a_door(mut launch: Launch) -> Launch {
    "127.0.0.1".clone_into(&mut launch.listen.host);
    launch.listen.port = 0;
    launch.listen.allow_public = false;
    launch.listen.auth = true;
    launch.listen.tls = None;
    launch.listen.socket = None;
    launch
}

async fn serve(launch: &Launch, streams: Streams, log: &Log) -> Exit {
    let stop = match signal::stop_requested() {
        Ok(stop) => stop,
        Err(cause) => return refuse(launch.log_format, Exit::CannotStart, format!("no signals: {cause}")),
    };
    let found = match find(launch).await {
        Ok(found) => found,
        Err(error) => return refuse(launch.log_format, exit_of(&error), error),
    };
    let (input, output) = streams.files();
    let pipe = AcpPipe { input, output, line_bytes_max: limit::ACP_LINE_BYTES_MAX };
    match found {
        Found::Own(running) => own(*running, pipe, stop, log).await,
        Found::Other(client) => other(&client, (launch, pipe), stop, log).await,
    }
}

type Pipe = AcpPipe<tokio::fs::File, tokio::fs::File>;

async fn own(running: Running, pipe: Pipe, stop: CancellationToken, log: &Log) -> Exit {
    log.copy_to(running.app.tracer());
    tracing::info!(url = running.url, pid = std::process::id(), "an editor's agent, with a door for others");
    let app = Arc::clone(&running.app);
    match serve_acp_pipe(app, pipe, stop, running.stop()).await {
        Ok(()) => Exit::Ok,
        Err(error) => {
            log.problem(format_args!("not everything could be stored: {error}"));
            Exit::Failed
        }
    }
}

async fn other(client: &Client, (launch, pipe): (&Launch, Pipe), stop: CancellationToken, log: &Log) -> Exit {
    let line = match client.way.connect().await {
        Ok(line) => line,
        Err(cause) => return refuse(launch.log_format, Exit::CannotStart, format!("the server that runs: {cause}")),
    };
    // It takes messages as large as its bodies.
    let pipe = AcpPipe { line_bytes_max: launch.listen.body_bytes_max, ..pipe };
    match bridge_acp_pipe((line, client.way.host()), client.token.as_ref(), pipe, stop).await {
        Ok(()) => Exit::Ok,
        Err(error) => {
            log.problem(format_args!("{error}"));
            Exit::Failed
        }
    }
}

/// Finds who has the data directory, or takes it.
async fn find(launch: &Launch) -> Result<Found, StartError> {
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
