//! The one place that starts other programs, and the one that ends them.
//!
//! [`run`] takes a program to its end with its output captured; [`spawn`] starts one that is talked to
//! over pipes. Both start it in a process group of its own, with exactly the environment they are given
//! (see [`environment`]), and both end the whole group: on time-out, on cancellation, and when the future
//! or the handle is dropped. On Linux a descendant that left the group is found by a mark in its environment.
//!
//! Invariants: [`run`] returns soon after the program itself ends, whatever still holds its output open;
//! the output is bounded whatever it writes; the id of a process that may be gone is never signalled.

mod capture;
mod environment;
mod group;
mod piped;

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

pub use capture::Captured;
pub use environment::{environment, hide_own, trusted_environment};
pub use piped::{Piped, spawn};
pub use tokio::process::{ChildStderr, ChildStdin, ChildStdout};

use super::sandbox::{Loopback, Policy};
use group::Group;

/// Between the request to end and the end: what a group has for tidying up.
const TERM_GRACE: Duration = Duration::from_millis(250);
/// How long output is read after the program has ended, while something else holds the pipe.
const DRAIN_GRACE: Duration = Duration::from_millis(50);
/// One read.
const CHUNK_BYTES: usize = 64 * 1024;

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
/// its further output has no reader. Dropping the future kills the group.
///
/// # Errors
/// When it cannot be started: no such program, no such directory, no permission.
pub async fn run(invocation: &Invocation, limits: RunLimits, cancel: &CancellationToken) -> io::Result<Finished> {
    // Starting a program can take a millisecond. Whoever polls first, such as Node's thread, gets its thread back before.
    tokio::task::yield_now().await;
    let (mut group, mut tap) = start(invocation, limits.output_bytes_max)?;
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
            group.signal(Signal::TERM);
            drop(timeout(TERM_GRACE, tap.read_to_end()).await);
            group.kill().await;
            tap.read_what_is_there();
        }
    }
    Ok(Finished { ending, output: tap.output })
}

/// One pipe for both streams, so that their order is kept.
fn start(invocation: &Invocation, output_bytes_max: usize) -> io::Result<(Group, Tap)> {
    let (reader, writer) = io::pipe()?;
    let reader = pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?;
    let mut command = group::command(invocation)?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let group = Group::spawn(command, invocation)?;
    Ok((group, Tap { reader: Some(reader), chunk: vec![0; CHUNK_BYTES], output: Captured::new(output_bytes_max) }))
}

async fn wait_and_read(group: &mut Group, tap: &mut Tap) -> io::Result<ExitStatus> {
    loop {
        tokio::select! {
            biased;
            status = group.wait() => return status,
            () = tap.read_to_end(), if tap.reader.is_some() => {}
        }
    }
}

/// The reading end of a program's output.
struct Tap {
    /// None: everybody has closed the other end, or it broke.
    reader: Option<pipe::Receiver>,
    chunk: Vec<u8>,
    output: Captured,
}

impl Tap {
    /// Reads until everybody has closed the other end. Cancel-safe.
    async fn read_to_end(&mut self) {
        while let Some(reader) = &mut self.reader {
            match reader.read(&mut self.chunk).await {
                Ok(count) if count > 0 => self.output.push(&self.chunk[..count]),
                Ok(_) | Err(_) => self.reader = None,
            }
        }
    }

    /// Reads what can be had without waiting, at most one full pipe.
    fn read_what_is_there(&mut self) {
        for _ in 0..16 {
            let Some(reader) = &self.reader else { return };
            match reader.try_read(&mut self.chunk) {
                Ok(count) if count > 0 => self.output.push(&self.chunk[..count]),
                Ok(_) | Err(_) => self.reader = None,
            }
        }
    }
}

#[cfg(test)]
mod tests;
