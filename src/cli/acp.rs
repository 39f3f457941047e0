//! `simse acp`: the agent of an editor, over the standard streams.
//!
//! Sessions are the same ones as everywhere: where a server has the data directory, the editor is led on to it. Where none has, this
//! is the server, with a door on this machine, so that a second editor, and any other client, finds the same sessions.
//!
//! Invariant: stdout carries the protocol and nothing else, as with `simse serve --stdio`.

use std::path::PathBuf;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::arguments::Acp;
use super::client::Client;
use super::found::{Found, find, of_a_door, with_a_door};
use super::log::Log;
use super::running::Running;
use super::serve::{exit_of, refuse};
use super::stdio::{Streams, take_streams};
use super::{Exit, signal};
use crate::base::limit;
use crate::config::{Launch, LogFormat, Options, strange_variables};
use crate::server::{AcpPipe, bridge_acp_pipe, serve_acp_pipe};

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
