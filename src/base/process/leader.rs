//! A started program: the standard library's, or one that the sandbox started in a room.
//!
//! Invariant: its number is given up only by the wait that reaps it. One that is dropped before is killed, and reaped as
//! soon as it is gone.

#![allow(
    unsafe_code,
    reason = "what happens between fork and exec; to be woken by a descriptor it has to be registered"
)]

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tokio::io::unix::AsyncFd;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use super::Slate;
use crate::base::sandbox::{Started, Stay};

/// Makes a program the leader of a session, and so of a group. With `on_terminal` its standard input, a terminal, controls
/// the session; without, no terminal does: that of whoever started us could else be read, and typed into.
pub(super) fn lead_session(command: &mut Command, on_terminal: bool) {
    let lead = move || {
        rustix::process::setsid()?;
        if on_terminal {
            rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
        }
        Ok(())
    };
    // SAFETY: `lead` makes two system calls, and neither allocates nor takes a lock.
    unsafe {
        command.pre_exec(lead);
    }
}

/// Lets a program inherit it, under the number that it has here.
pub(super) fn hand_on(command: &mut Command, slate: &Slate) {
    let file = slate.file();
    let keep = move || Ok(rustix::io::fcntl_setfd(&*file, rustix::io::FdFlags::empty())?);
    // SAFETY: `keep` makes one system call, and neither allocates nor takes a lock.
    unsafe {
        command.pre_exec(keep);
    }
}

/// A program that was started.
pub(super) enum Leader {
    /// By the standard library.
    Standard(Child),
    /// By the sandbox.
    Caged(Caged),
}

impl Leader {
    /// Its number. None once it was waited for.
    pub(super) fn id(&self) -> Option<u32> {
        match self {
            Self::Standard(child) => child.id(),
            Self::Caged(caged) => caged.state.as_ref().and_then(|(id, _)| u32::try_from(id.as_raw_pid()).ok()),
        }
    }

    /// Waits for its end. Cancel-safe.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        match self {
            Self::Standard(child) => child.wait().await,
            Self::Caged(caged) => caged.wait().await,
        }
    }

    /// The pipes on its standard streams, where there are any.
    pub(super) fn streams(&mut self) -> (Option<ChildStdin>, Option<ChildStdout>, Option<ChildStderr>) {
        match self {
            Self::Standard(child) => (child.stdin.take(), child.stdout.take(), child.stderr.take()),
            Self::Caged(_) => (None, None, None),
        }
    }
}

/// One that the sandbox started.
pub(super) struct Caged {
    /// Its number, and what can be read when it has ended. None once it is reaped.
    state: Option<(Pid, AsyncFd<OwnedFd>)>,
    status: ExitStatus,
    stay: Option<Stay>,
}

impl Caged {
    pub(super) fn new(started: Started) -> io::Result<Self> {
        let Started { id, handle, stay } = started;
        // SAFETY: an owned descriptor stays open and the same for as long as it is registered.
        match unsafe { AsyncFd::register(handle) } {
            Ok(handle) => Ok(Self { state: Some((id, handle)), status: ExitStatus::default(), stay }),
            Err(cause) => {
                let _already_gone = kill_process(id, Signal::KILL);
                let _status = waitpid(Some(id), WaitOptions::empty());
                Err(cause.into())
            }
        }
    }

    async fn wait(&mut self) -> io::Result<ExitStatus> {
        if let Some((id, handle)) = &self.state {
            self.status = reap(*id, handle).await?;
            self.state = None;
            self.stay = None;
        }
        Ok(self.status)
    }
}

/// Waits for a program's end. Cancel-safe: nothing is awaited once it is reaped.
async fn reap(id: Pid, handle: &AsyncFd<OwnedFd>) -> io::Result<ExitStatus> {
    loop {
        let mut ready = handle.readable().await?;
        if let Some((_, status)) = waitpid(Some(id), WaitOptions::NOHANG)? {
            return Ok(ExitStatus::from_raw(status.as_raw()));
        }
        ready.clear_ready();
    }
}

impl Drop for Caged {
    fn drop(&mut self) {
        let Some((id, handle)) = self.state.take() else { return };
        let stay = self.stay.take();
        let _already_gone = kill_process(id, Signal::KILL);
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(async move {
                let status = reap(id, &handle).await;
                drop(stay);
                status
            })),
            // Without a runtime nobody could wait; a killed process is gone soon, unless it hangs in the kernel.
            Err(_) => {
                let wait = move || waitpid(Some(id), WaitOptions::empty());
                let _thread = std::thread::Builder::new().name("simse-reaper".into()).spawn(wait);
            }
        }
    }
}
