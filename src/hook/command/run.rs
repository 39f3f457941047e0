//! One run of a configured command: what it is given, how long it has, and what came of it.
//!
//! Invariants: it is given exactly one JSON object on its standard input and no credential of ours in its environment; at its limit of
//! time, and when nobody waits any more, its whole process group is ended; what is kept of its output is bounded.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, sleep_until};

use crate::base::limit;
use crate::base::process::{Captured, Ending, Invocation, environment, spawn};
use crate::config::{HookCommand, inherited_environment};

/// How long output is read after the command has ended, while something that it left holds the pipe.
const DRAIN_GRACE: Duration = Duration::from_millis(50);
/// Bytes that are read at once.
const CHUNK_BYTES: usize = 16 << 10;

/// What came of a run.
#[derive(Debug)]
pub(super) struct Ran {
    /// How it ended.
    pub(super) ending: Ending,
    /// What it wrote.
    pub(super) stdout: Captured,
    /// What it wrote to its error stream.
    pub(super) stderr: Captured,
}

/// Runs a command to its end.
///
/// # Errors
/// When it cannot be started.
pub(super) async fn run(hook: &HookCommand, input: Vec<u8>, directory: &Path) -> io::Result<Ran> {
    let invocation = Invocation {
        program: "/bin/sh".into(),
        arguments: vec!["-c".into(), hook.command.clone().into()],
        directory: directory.to_owned(),
        environment: environment(inherited_environment(), &BTreeMap::new()),
        confinement: None,
    };
    let mut program = spawn(&invocation)?;
    let (mut stdin, mut given) = (program.stdin.take(), 0);
    let (mut stdout, mut stderr) = (program.stdout.take(), program.stderr.take());
    let mut ran = Ran {
        ending: Ending::TimedOut,
        stdout: Captured::new(limit::HOOK_OUTPUT_BYTES_MAX),
        stderr: Captured::new(limit::HOOK_OUTPUT_BYTES_MAX),
    };
    let (mut one, mut two) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    let mut until = Instant::now() + Duration::from_millis(hook.time_ms());
    let mut ended = false;
    while !ended || stdout.is_some() || stderr.is_some() {
        tokio::select! {
            status = program.wait(), if !ended => {
                (ran.ending, ended, stdin) = (status?.into(), true, None);
                until = until.min(Instant::now() + DRAIN_GRACE);
            }
            count = read(&mut stdout, &mut one), if stdout.is_some() => take(&mut stdout, &mut ran.stdout, &one[..count]),
            count = read(&mut stderr, &mut two), if stderr.is_some() => take(&mut stderr, &mut ran.stderr, &two[..count]),
            written = write(&mut stdin, &input[given..]), if stdin.is_some() => {
                given += written;
                // One that does not want to read more has read enough.
                if written == 0 || given == input.len() {
                    stdin = None;
                }
            }
            () = sleep_until(until) => break,
        }
    }
    if !ended {
        program.stop(Duration::ZERO).await;
    }
    Ok(ran)
}

/// What comes next; 0 at the end.
async fn read(stream: &mut Option<impl AsyncRead + Unpin>, chunk: &mut [u8]) -> usize {
    match stream {
        Some(stream) => stream.read(chunk).await.unwrap_or(0),
        None => 0,
    }
}

fn take<S>(stream: &mut Option<S>, captured: &mut Captured, came: &[u8]) {
    captured.push(came);
    if came.is_empty() {
        *stream = None;
    }
}

async fn write(stdin: &mut Option<crate::base::process::ChildStdin>, rest: &[u8]) -> usize {
    match stdin {
        Some(stdin) => stdin.write(rest).await.unwrap_or(0),
        None => 0,
    }
}
