//! `simse serve --stdio`: the server for the program that started it, over its standard streams.
//!
//! Invariant: stdout carries the protocol and nothing else. What it was is taken away before anything runs, and
//! file descriptor 1 leads to stderr: a library or a child that prints does not get between the lines.

use std::fs::File;
use std::io;
use std::sync::Arc;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::stdio::{dup2_stdout, stderr, stdin, stdout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::descriptors;
use super::reload::Reloader;
use super::running::open;
use super::serve::{Told, exit_of, refuse};
use super::supervised::Supervised;
use super::{Exit, signal};
use crate::config::Launch;
use crate::server::{Pipe, serve_pipe};

/// Lowest file descriptor of what stdout was: above the standard streams.
const ABOVE_STREAMS: i32 = 3;

/// The two ends of the pipe.
pub(super) struct Streams {
    pub(super) input: File,
    pub(super) output: File,
}

impl Streams {
    /// Input and output, to be read and written in the background.
    pub(super) fn files(self) -> (tokio::fs::File, tokio::fs::File) {
        (tokio::fs::File::from_std(self.input), tokio::fs::File::from_std(self.output))
    }
}

/// Takes stdin and stdout for the protocol. From then on what is printed goes to stderr.
///
/// # Errors
/// What the system says.
pub(super) fn take_streams() -> io::Result<Streams> {
    let input = fcntl_dupfd_cloexec(stdin(), ABOVE_STREAMS)?;
    let output = fcntl_dupfd_cloexec(stdout(), ABOVE_STREAMS)?;
    dup2_stdout(stderr())?;
    Ok(Streams { input: File::from(input), output: File::from(output) })
}

/// Serves until the input ends, or a signal.
pub(super) async fn run(launch: &Launch, streams: Streams, (given, log): Told<'_>) -> Exit {
    let stop = match signal::stop_requested() {
        Ok(stop) => stop,
        Err(cause) => return refuse(launch.log_format, Exit::CannotStart, format!("no signals: {cause}")),
    };
    let mut launch = descriptors::fit(launch);
    // It has no door for others.
    launch.settings.stand_alone();
    let launch = &launch;
    let app = match open(launch).await {
        Ok(app) => app,
        Err(error) => {
            return refuse(launch.log_format, exit_of(&error), error);
        }
    };
    log.copy_to(app.tracer());
    let end = CancellationToken::new();
    // A supervisor's socket in its environment is that of whoever started it.
    let reloader = Reloader::new(given, launch.clone(), (Arc::clone(&app), log.clone(), Supervised::default()));
    let grace = reloader.grace();
    let reloading = AbortOnDropHandle::new(tokio::spawn(reloader.run(end.clone())));
    let (input, output) = streams.files();
    let pipe = Pipe { input, output, line_bytes_max: launch.listen.body_bytes_max, grace };
    let served = serve_pipe(app, pipe, stop).await;
    end.cancel();
    drop(reloading.await);
    match served {
        Ok(()) => Exit::Ok,
        Err(error) => {
            log.problem(format_args!("not everything could be stored: {error}"));
            Exit::Failed
        }
    }
}
