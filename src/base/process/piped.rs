//! A long-lived program that is talked to over pipes.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::time::timeout;

use super::group::{Group, command};
use super::keeper::Kept;
use super::{Invocation, TERM_GRACE};

/// A running program with its three streams, each of which may be taken once.
///
/// Dropping it kills its whole group.
pub struct Piped {
    /// What it reads. Dropping it is the end of its input.
    pub stdin: Option<ChildStdin>,
    /// What it writes.
    pub stdout: Option<ChildStdout>,
    /// What it writes to its error stream. Must be read, or the program stops when the pipe is full.
    pub stderr: Option<ChildStderr>,
    group: Group,
    /// Behind the group: what is dropped has been killed before its number is given up.
    kept: Option<Kept>,
}

impl std::fmt::Debug for Piped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Piped").field("id", &self.group.child.id()).finish_non_exhaustive()
    }
}

/// Starts a program in a session and a group of its own, with a pipe on each standard stream. It ends with this process, also when
/// that is killed.
///
/// # Errors
/// When it cannot be started: no such program, no such directory, no permission.
pub fn spawn(invocation: &Invocation) -> io::Result<Piped> {
    let mut command = command(invocation)?;
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut group = Group::spawn(command, invocation)?;
    let (stdin, stdout, stderr) = group.child.streams();
    let kept = group.keep();
    Ok(Piped { stdin, stdout, stderr, group, kept })
}

impl Piped {
    /// Its process id. None once it has ended and was waited for.
    pub fn id(&self) -> Option<u32> {
        self.group.child.id()
    }

    /// Waits for its end. Cancel-safe.
    ///
    /// # Errors
    /// What the operating system says.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.group.wait().await;
        // Its number is another's soon.
        self.kept = None;
        status
    }

    /// Ends it and its group: closes its input, waits `grace` for it to go by itself, asks it to end, kills what is left.
    pub async fn stop(mut self, grace: Duration) {
        drop(self.stdin.take());
        let mut found = Vec::new();
        if timeout(grace, self.group.wait()).await.is_err() {
            found = self.group.ask_to_end().await;
            // Not waited for: once the leader is reaped, its group can no longer be named.
            tokio::time::sleep(TERM_GRACE).await;
        }
        self.group.kill(found).await;
    }
}
