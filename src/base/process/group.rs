//! A started program and everything it starts, as one thing that can be ended.
//!
//! Its process group catches the ordinary descendants. One that leaves the group (`setsid`, a daemon)
//! still carries the mark in its environment, and on Linux it is looked for there. What does both,
//! leaves the group and scrubs its environment, escapes.
//!
//! Invariant: the group is signalled only while its leader is not reaped, so the number cannot be another's.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::{Confinement, Invocation};
use crate::base::sandbox::Cage;

/// The variable that marks what was started here.
const MARK: &str = "SIMSE_PROCESS";
/// How long a killed process may take to be gone. Only one that hangs in the kernel takes longer.
const REAP_GRACE: Duration = Duration::from_secs(2);
/// Searches for marked processes: one that is starting another may be seen only the next time.
const SWEEPS_MAX: usize = 5;

/// A running program and its group.
pub(super) struct Group {
    pub(super) child: Child,
    /// None once the program is reaped.
    leader: Option<Pid>,
    mark: String,
}

/// A command for `invocation`, without its standard streams.
pub(super) fn command(invocation: &Invocation) -> io::Result<Command> {
    let mut command = Command::new(find(&invocation.program, invocation)?);
    command
        .args(&invocation.arguments)
        .current_dir(&invocation.directory)
        .env_clear()
        .envs(invocation.environment.iter().map(|(name, value)| (name, value)))
        .process_group(0)
        .kill_on_drop(true);
    if let Some(confinement) = &invocation.confinement {
        let Confinement { policy, files, loopback } = confinement;
        Cage::prepare(policy, &invocation.directory, files, loopback.clone())
            .map_err(|cause| io::Error::new(cause.kind(), format!("cannot prepare the sandbox: {cause}")))?
            .put_on(&mut command);
    }
    Ok(command)
}

/// The program's path. A name without a slash is looked for in the `PATH` that the program itself will see.
fn find(program: &OsStr, invocation: &Invocation) -> io::Result<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Ok(PathBuf::from(program));
    }
    let path = invocation.environment.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value);
    let path = path.cloned().unwrap_or_else(|| OsString::from("/usr/local/bin:/usr/bin:/bin"));
    path.as_bytes()
        .split(|&b| b == b':')
        .filter(|directory| directory.starts_with(b"/"))
        .map(|directory| Path::new(OsStr::from_bytes(directory)).join(program))
        .find(|candidate| is_executable(candidate))
        .ok_or_else(|| {
            let message = format!("no program {} in PATH", program.display());
            io::Error::new(io::ErrorKind::NotFound, message)
        })
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

impl Group {
    pub(super) fn spawn(mut command: Command, invocation: &Invocation) -> io::Result<Self> {
        let mark = uuid::Uuid::new_v4().simple().to_string();
        command.env(MARK, &mark);
        let child = command.spawn().map_err(|cause| explain(cause, invocation))?;
        let leader = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        Ok(Self { child, leader, mark })
    }

    /// Waits for the program's own end. Cancel-safe.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await;
        self.leader = None;
        status
    }

    /// Signals every process of the group. Nothing once the program is reaped.
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(leader) = self.leader {
            // An error means that nobody is left to hear it.
            let _nobody_left = kill_process_group(leader, signal);
        }
    }

    /// Kills the group and whatever carries its mark, and reaps the program.
    pub(super) async fn kill(&mut self) {
        self.signal(Signal::KILL);
        let mark = self.mark.clone();
        // A sweep that panicked found nothing more to kill.
        let _swept = tokio::task::spawn_blocking(move || sweep(&mark)).await;
        // One that hangs in the kernel is left to the runtime, which reaps it when it can.
        let _reaped = timeout(REAP_GRACE, self.wait()).await;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.leader.is_none() {
            return;
        }
        self.signal(Signal::KILL);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let mark = std::mem::take(&mut self.mark);
            runtime.spawn_blocking(move || sweep(&mark));
        }
    }
}

/// The operating system says "not found" for a missing program and a missing directory alike.
fn explain(cause: io::Error, invocation: &Invocation) -> io::Error {
    let directory = &invocation.directory;
    let message = if directory.is_dir() {
        format!("cannot start {}: {cause}", invocation.program.display())
    } else {
        format!("cannot start {} in {}: not a directory", invocation.program.display(), directory.display())
    };
    io::Error::new(cause.kind(), message)
}

/// Kills what carries the mark, until a search finds nothing more.
#[cfg(target_os = "linux")]
fn sweep(mark: &str) {
    let entry = format!("{MARK}={mark}");
    for _ in 0..SWEEPS_MAX {
        let found = std::fs::read_dir("/proc").into_iter().flatten().flatten().filter(|p| kill_if_marked(p, &entry));
        if found.count() == 0 {
            return;
        }
    }
}

/// Only where `/proc` can be asked.
#[cfg(not(target_os = "linux"))]
fn sweep(_mark: &str) {}

/// Whether the process was there, carried the mark, and was sent its end.
#[cfg(target_os = "linux")]
fn kill_if_marked(process: &std::fs::DirEntry, entry: &str) -> bool {
    use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};

    let id = process.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
    let environ = process.path().join("environ");
    let marked = || std::fs::read(&environ).is_ok_and(|all| all.split(|&b| b == 0).any(|one| one == entry.as_bytes()));
    let Some(id) = id.filter(|_| marked()) else { return false };
    // Asked again once the handle is held: then the number belongs to what the handle means.
    pidfd_open(id, PidfdFlags::empty()).is_ok_and(|handle| marked() && pidfd_send_signal(handle, Signal::KILL).is_ok())
}
