//! The one place that starts other programs, and the one that ends them.
//!
//! [`run`] takes a program to its end with its output captured; [`spawn`] starts one that is talked to
//! over pipes; [`follow`] one that is looked at while it runs, on a terminal if need be. All start it in a process
//! group of its own, with exactly the environment they are given (see [`environment`]), and end the whole group: on
//! time-out, on cancellation, and when the future or the handle is dropped. On Linux a descendant that left the group
//! is found by a mark in its environment.
//!
//! Invariants: [`run`] returns soon after the program itself ends, whatever still holds its output open;
//! the output is bounded whatever it writes; the id of a process that may be gone is never signalled.

mod attended;
mod capture;
mod environment;
mod group;
mod keeper;
mod kin;
mod leader;
mod piped;
mod pty;
mod slate;
mod sweep;
mod tap;

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::unix::pipe;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

pub use attended::attended;
pub use capture::Captured;
pub use environment::{environment, hide_own, is_secret_name, is_secret_value, trusted_environment};
pub use kin::{Family, Kin};
pub use piped::{Piped, spawn};
pub use pty::{Followed, FollowedOutput, Terminal, TerminalSize, follow};
pub use slate::Slate;
pub use tap::{Follow, Spill, Taps};
pub use tokio::process::{ChildStderr, ChildStdin, ChildStdout};

use super::panics::broken;
use super::sandbox::{Loopback, Policy};
use group::Group;
use tap::Tap;

/// Between the request to end and the end: what a group has for tidying up.
const TERM_GRACE: Duration = Duration::from_millis(250);
/// How long output is read after the program has ended, while something else holds the pipe.
const DRAIN_GRACE: Duration = Duration::from_millis(50);

/// What to start.
#[derive(Debug, Clone)]
pub struct Invocation {
    /// A path, or a name that is looked for in the `PATH` of `environment`.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Where it starts.
    pub directory: PathBuf,
    /// Its whole environment: nothing else is inherited.
    pub environment: Vec<(OsString, OsString)>,
    /// What it and all that it starts are held to. None: nothing.
    pub confinement: Option<Confinement>,
}

/// What a program is held to, see [`super::sandbox`].
#[derive(Debug, Clone)]
pub struct Confinement {
    /// What it may do.
    pub policy: Arc<Policy>,
    /// Files that it may write besides; they exist.
    pub files: Vec<PathBuf>,
    /// Where it meets others that are kept from the network. None: it is alone.
    pub loopback: Option<Arc<Loopback>>,
}

/// Limits of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLimits {
    /// After this it is ended.
    pub timeout: Duration,
    /// Bytes of output that are kept: half from the start, half from the end.
    pub output_bytes_max: usize,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// By itself, with this code.
    Exited(i32),
    /// By a signal of this number that was not ours.
    Signalled(i32),
    /// At the time limit; its group was ended.
    TimedOut,
    /// By the cancellation token; its group was ended.
    Cancelled,
}

impl Ending {
    /// The exit code as a shell tells it: a signal counts as 128 and its number. None: we ended it.
    pub fn code(self) -> Option<i32> {
        match self {
            Self::Exited(code) => Some(code),
            Self::Signalled(signal) => Some(128 + signal),
            Self::TimedOut | Self::Cancelled => None,
        }
    }
}

impl From<ExitStatus> for Ending {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Exited(code),
            (None, signal) => Self::Signalled(signal.unwrap_or(0)),
        }
    }
}

/// What came of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// How it ended.
    pub ending: Ending,
    /// stdout and stderr in the order they came, whatever the ending.
    pub output: Captured,
}

/// Runs a program to its end. Its standard input is empty.
///
/// A child that it left behind does not hold the call up, and goes on when the program ended by itself;
/// its further output is read and thrown away. Dropping the future kills the group.
///
/// # Errors
/// When it cannot be started: no such program, no such directory, no permission.
pub async fn run(invocation: &Invocation, limits: RunLimits, cancel: &CancellationToken) -> io::Result<Finished> {
    run_tapped(invocation, limits, cancel, Taps::default()).await
}

/// The same; `taps` get the output too. What they spill is written when this returns.
///
/// # Errors
/// As [`run`].
pub async fn run_tapped(
    invocation: &Invocation,
    limits: RunLimits,
    cancel: &CancellationToken,
    taps: Taps,
) -> io::Result<Finished> {
    // Starting a program can take a millisecond. Whoever polls first, such as Node's thread, gets its thread back before.
    tokio::task::yield_now().await;
    let (mut group, mut tap) = match &invocation.confinement {
        None => start(invocation, limits.output_bytes_max, taps)?,
        // A program that runs in the same place may hold it up.
        Some(_) => {
            let (invocation, bytes_max) = (invocation.clone(), limits.output_bytes_max);
            spawn_blocking(move || start(&invocation, bytes_max, taps))
                .await
                .map_err(|e| io::Error::other(broken(e)))??
        }
    };
    let ending = tokio::select! {
        biased;
        () = cancel.cancelled() => Ending::Cancelled,
        () = sleep(limits.timeout) => Ending::TimedOut,
        status = wait_and_read(&mut group, &mut tap) => status?.into(),
    };
    match ending {
        // What it wrote is in the pipe already; only what it does not wait for can come later.
        Ending::Exited(_) | Ending::Signalled(_) => drop(timeout(DRAIN_GRACE, tap.read_to_end()).await),
        Ending::TimedOut | Ending::Cancelled => {
            let found = group.ask_to_end().await;
            drop(timeout(TERM_GRACE, tap.read_to_end()).await);
            group.kill(found).await;
        }
    }
    tap.read_what_is_there();
    match ending {
        Ending::Exited(_) | Ending::Signalled(_) => tap.swallow(),
        Ending::TimedOut | Ending::Cancelled => {}
    }
    if let Some(home) = invocation.confinement.as_ref().and_then(|confinement| confinement.loopback.as_ref()) {
        home.tidy();
    }
    Ok(Finished { ending, output: tap.finish().await })
}

/// One pipe for both streams, so that their order is kept.
fn start(invocation: &Invocation, output_bytes_max: usize, taps: Taps) -> io::Result<(Group, Tap)> {
    let (reader, writer) = io::pipe()?;
    let reader = pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?;
    let group = Group::spawn_writing(invocation, writer, taps.slate.as_ref())?;
    Ok((group, Tap::new(reader, output_bytes_max, taps)))
}

async fn wait_and_read(group: &mut Group, tap: &mut Tap) -> io::Result<ExitStatus> {
    loop {
        let due = tap.due();
        tokio::select! {
            biased;
            status = group.wait() => return status,
            () = tap.read_some(), if tap.is_open() => {}
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
        }
        if due.is_some_and(|due| due <= Instant::now()) {
            tap.wake();
        }
    }
}

#[cfg(test)]
mod tests;
