//! A started program and everything it starts, as one thing that can be ended.
//!
//! It leads a session without a terminal, or with one of its own; never with that of whoever started this process.
//! Its process group catches the ordinary descendants. One that leaves the group (`setsid`, a daemon)
//! still carries the mark in its environment, and on Linux it is looked for there; so are the children of
//! children, whatever they carry. What escapes: a daemon that leaves the group, scrubs its environment and
//! lets its parent die, before its end is asked for.
//!
//! Invariant: the group is signalled only while its leader is not reaped, so the number cannot be another's.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Command;
use tokio::time::timeout;

use super::keeper::Kept;
use super::leader::{Caged, Leader, hand_on, lead_session};
use super::sweep::{self, Seen};
use super::{Confinement, Invocation, Slate};
use crate::base::sandbox::{Cage, Program, start_free};

/// The variable that marks what was started here.
const MARK: &str = "SIMSE_PROCESS";
/// How long a killed process may take to be gone. Only one that hangs in the kernel takes longer.
const REAP_GRACE: Duration = Duration::from_secs(2);

/// A running program and its group.
pub(super) struct Group {
    pub(super) child: Leader,
    /// None once the program is reaped.
    leader: Option<Pid>,
    mark: String,
}

/// A command for `invocation`, without its standard streams.
pub(super) fn command(invocation: &Invocation) -> io::Result<Command> {
    command_in(invocation, cage(invocation)?)
}

/// What it puts on. Blocks for as long as it takes to start a program, the first time in a session.
fn cage(invocation: &Invocation) -> io::Result<Option<Cage>> {
    let Some(Confinement { policy, files, loopback }) = &invocation.confinement else { return Ok(None) };
    // Without a room all is prepared for this start alone, which works or says what is wrong.
    if let Some(Err(error)) = loopback.as_ref().map(|home| home.furnish(policy)) {
        tracing::debug!(%error, "no room for the programs of a session");
    }
    Cage::prepare(policy, &invocation.directory, files, loopback.clone())
        .map(Some)
        .map_err(|cause| io::Error::new(cause.kind(), format!("cannot prepare the sandbox: {cause}")))
}

fn command_in(invocation: &Invocation, cage: Option<Cage>) -> io::Result<Command> {
    let mut command = Command::new(find(&invocation.program, invocation)?);
    command
        .args(&invocation.arguments)
        .current_dir(&invocation.directory)
        .env_clear()
        .envs(invocation.environment.iter().map(|(name, value)| (name, value)))
        .kill_on_drop(true);
    if let Some(cage) = cage {
        cage.put_on(&mut command);
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
    /// Starts a program that reads nothing and writes both of its outputs there. `slate` is for what it says beside that.
    pub(super) fn spawn_writing(
        invocation: &Invocation,
        writer: io::PipeWriter,
        slate: Option<&Slate>,
    ) -> io::Result<Self> {
        let nothing = std::fs::File::open("/dev/null")?;
        let streams = [nothing.into(), writer.try_clone()?.into(), writer.into()];
        Self::spawn_with(invocation, streams, (false, slate))
    }

    /// Starts a program on a terminal, which controls its session.
    pub(super) fn spawn_on(invocation: &Invocation, terminal: OwnedFd) -> io::Result<Self> {
        let streams = [terminal.try_clone()?, terminal.try_clone()?, terminal];
        Self::spawn_with(invocation, streams, (true, None))
    }

    fn spawn_with(
        invocation: &Invocation,
        streams: [OwnedFd; 3],
        (on_terminal, slate): (bool, Option<&Slate>),
    ) -> io::Result<Self> {
        let cage = cage(invocation)?;
        if cage.as_ref().is_none_or(Cage::can_start) {
            let [input, output, error] = &streams;
            let streams = [input.try_clone()?, output.try_clone()?, error.try_clone()?];
            match Self::start(cage.as_ref(), invocation, (streams, on_terminal, slate)) {
                Err(cause) if cause.kind() == io::ErrorKind::Unsupported => {}
                done => return done,
            }
        }
        let mut command = command_in(invocation, cage)?;
        let [input, output, error] = streams;
        command.stdin(input).stdout(output).stderr(error);
        if let Some(slate) = slate {
            hand_on(&mut command, slate);
        }
        lead_session(&mut command, on_terminal);
        Self::spawn_leader(command, invocation)
    }

    /// The same without a copy of this process: in the sandbox where it has prepared for that, or without one.
    fn start(
        cage: Option<&Cage>,
        invocation: &Invocation,
        (streams, on_terminal, slate): ([OwnedFd; 3], bool, Option<&Slate>),
    ) -> io::Result<Self> {
        let mark = uuid::Uuid::new_v4().simple().to_string();
        let path = text(find(&invocation.program, invocation)?.into_os_string())?;
        let arguments = invocation.arguments.iter().map(|argument| text(argument.clone()));
        let program = Program {
            arguments: [Ok(path.clone())].into_iter().chain(arguments).collect::<io::Result<_>>()?,
            environment: entries(&invocation.environment, &mark)?,
            streams,
            on_terminal,
            kept: slate.map(Slate::file),
            path,
        };
        let started = match cage {
            Some(cage) => cage.start(&program),
            None => start_free(&program, &text(invocation.directory.clone().into_os_string())?),
        };
        let started = started.map_err(|cause| explain(cause, invocation))?;
        let leader = Some(started.id);
        Ok(Self { child: Leader::Caged(Caged::new(started)?), leader, mark })
    }

    /// Starts a command as the leader of a session, which has no terminal.
    pub(super) fn spawn(mut command: Command, invocation: &Invocation) -> io::Result<Self> {
        lead_session(&mut command, false);
        Self::spawn_leader(command, invocation)
    }

    /// The same for a command that makes itself the leader of a group.
    fn spawn_leader(mut command: Command, invocation: &Invocation) -> io::Result<Self> {
        let mark = uuid::Uuid::new_v4().simple().to_string();
        command.env(MARK, &mark);
        let child = command.spawn().map_err(|cause| explain(cause, invocation))?;
        let leader = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        Ok(Self { child: Leader::Standard(child), leader, mark })
    }

    /// Has all of it ended when this process is killed. None: it has ended already.
    pub(super) fn keep(&self) -> Option<Kept> {
        self.leader.map(|leader| Kept::new(&self.mark, leader))
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

    /// Asks the group and all that descends from it to end; what was found, for [`Group::kill`]: one that is in the group still
    /// may leave it meanwhile.
    pub(super) async fn ask_to_end(&self) -> Vec<Seen> {
        let Some(leader) = self.leader else { return Vec::new() };
        let look = tokio::task::spawn_blocking(move || sweep::descendants(leader));
        // A look that panicked found nobody.
        let found = look.await.unwrap_or_default();
        let beyond: Vec<Seen> = found.iter().filter(|seen| seen.group != leader.as_raw_pid()).copied().collect();
        // First of all the group: a shell of it shall not wonder about its children's end.
        self.signal(Signal::TERM);
        let tell = move || {
            sweep::signal(Signal::TERM, &beyond);
            found
        };
        tokio::task::spawn_blocking(tell).await.unwrap_or_default()
    }

    /// Kills the group, whatever carries its mark, and what was found before; and reaps the program.
    pub(super) async fn kill(&mut self, found: Vec<Seen>) {
        self.signal(Signal::KILL);
        let mark = self.mark.clone();
        let work = move || {
            sweep::signal(Signal::KILL, &found);
            kill_marked(&mark);
        };
        // A sweep that panicked found nothing more to kill.
        let _swept = tokio::task::spawn_blocking(work).await;
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
            runtime.spawn_blocking(move || kill_marked(&mark));
        }
    }
}

/// As the kernel takes it.
fn text(text: OsString) -> io::Result<CString> {
    CString::new(text.into_vec()).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a text with a NUL in it"))
}

/// An environment as the kernel takes it: each name once, the last value counts.
fn entries(environment: &[(OsString, OsString)], mark: &str) -> io::Result<Vec<CString>> {
    let given = environment.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()));
    let all: BTreeMap<&OsStr, &OsStr> = given.chain([(OsStr::new(MARK), OsStr::new(mark))]).collect();
    all.into_iter().map(|(name, value)| text([name, OsStr::new("="), value].into_iter().collect())).collect()
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

/// Kills what carries the mark of one start.
fn kill_marked(mark: &str) {
    let entry = format!("{MARK}={mark}");
    sweep::kill_marked(&|one| one == entry.as_bytes());
}
