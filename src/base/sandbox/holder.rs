//! The process that holds the name spaces of one session open, and is the first of its numbers: all that the session runs
//! there ends when it does, whatever it has done to hide.
//!
//! It is `cat` on a pipe of which this process alone has the other end, so that it ends when we do, however that comes
//! about; until then it sleeps. What loses its parent becomes its child, and the kernel takes such a child's end for seen.
//!
//! Promises: no program of the session can trace it or change it: it is held to rules of its own, that no program of the
//! session is subject to and that let it write nowhere. It cannot be killed from inside. Its number is given up only when
//! it is reaped here.

#![allow(unsafe_code, reason = "what happens between fork and exec")]

use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process, pidfd_open, waitid, waitpid,
};

use super::child::{self, Gear, Spaces};
use super::{Level, Policy, Support, linux};

/// A program that reads its input to the end.
const READERS: [&str; 4] = ["/bin/cat", "/usr/bin/cat", "/usr/local/bin/cat", "/run/current-system/sw/bin/cat"];

/// Open as long as this process lives. Nobody writes.
static LIFE: LazyLock<Option<(PipeReader, PipeWriter)>> = LazyLock::new(|| io::pipe().ok());

/// It, running.
#[derive(Debug)]
pub(super) struct Holder {
    id: Pid,
    /// Whether it begins numbers of its own, and has a `/proc` of those.
    pub(super) numbers: bool,
}

impl Holder {
    /// Starts one on a kernel that can do just this. Blocks until it waits.
    ///
    /// # Errors
    /// When the kernel refuses, or there is no program that reads.
    pub(super) fn start(support: Support) -> io::Result<Self> {
        let life = LIFE.as_ref().ok_or(io::ErrorKind::Unsupported)?.0.try_clone()?;
        let program = READERS.iter().find(|path| Path::new(path).exists()).ok_or(io::ErrorKind::NotFound)?;
        let nowhere = Policy {
            level: Level::ReadOnly,
            network: false,
            writable: Vec::new(),
            hidden: Vec::new(),
            kept: Vec::new(),
            git_settings: false,
        };
        let gear = linux::rules(support, &nowhere, &[], false)?;
        let numbers = support.processes;
        let spaces = Spaces { numbers, ..Spaces::new(&[], Vec::new(), Path::new("/")) };
        let (mut told, tell) = io::pipe()?;
        let mut command = Command::new(program);
        command.env_clear().current_dir("/").stdin(life).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: `begin` makes system calls only, on what was prepared before the fork.
        unsafe {
            command.pre_exec(move || begin(&spaces, &gear, &tell));
        }
        let first = command.spawn();
        // Ours of the other end, so that there is an end.
        drop(command);
        let mut number = [0; 4];
        let id = told.read_exact(&mut number).ok().and_then(|()| Pid::from_raw(i32::from_ne_bytes(number)));
        let holder = id.map(|id| Self { id, numbers });
        // It has ended by now: the holder goes on as its brother.
        let _exit_code = first?.wait();
        holder.filter(Self::lives).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Whether it is there.
    pub(super) fn lives(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        matches!(waitid(WaitId::Pid(self.id), options), Ok(None))
    }

    /// The kernel's handle of it, by which its name spaces can be entered.
    ///
    /// # Errors
    /// When there are too many open files.
    pub(super) fn handle(&self) -> io::Result<OwnedFd> {
        // The number is its own as long as it is not reaped.
        Ok(pidfd_open(self.id, PidfdFlags::empty())?)
    }

    /// Whether it is certain that nothing runs there that lost its parent.
    pub(super) fn has_no_children(&self) -> bool {
        let children = std::fs::read(format!("/proc/{0}/task/{0}/children", self.id));
        self.numbers && children.is_ok_and(|numbers| numbers.is_empty())
    }

    /// Ends it, and all that has a number of its.
    pub(super) fn end(&self) {
        let _already_gone = kill_process(self.id, Signal::KILL);
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.end();
        let id = self.id;
        // It is gone once all that it held is, and reaped by whoever started that.
        let wait = move || waitpid(Some(id), WaitOptions::empty());
        let _thread = std::thread::Builder::new().name("simse-reaper".into()).spawn(wait);
    }
}

/// Becomes what will be the holder, in a child.
fn begin(spaces: &Spaces, gear: &Gear, tell: &PipeWriter) -> io::Result<()> {
    spaces.part()?;
    child::raise_loopback()?;
    go_on_as_brother(tell)?;
    rustix::process::setsid()?;
    // SAFETY: system calls on numbers. What else this process was given open is closed with the start of the program.
    unsafe {
        if libc::signal(libc::SIGCHLD, libc::SIG_IGN) == libc::SIG_ERR {
            return Err(io::Error::last_os_error());
        }
        // An older kernel leaves open what others left open.
        libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
    }
    // What is mounted later outside is seen; what is mounted here is not.
    mount_change(c"/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    if spaces.numbers {
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount(c"proc", c"/proc", c"proc", flags, None)?;
    }
    gear.put_on()
}

/// Goes on as another child of the same parent: new numbers begin with the next process, not with this one.
fn go_on_as_brother(tell: &PipeWriter) -> io::Result<()> {
    let flags = libc::c_long::from(libc::CLONE_PARENT | libc::SIGCHLD);
    // SAFETY: a fork, in a process that has one thread; what goes on makes system calls only.
    match unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) } {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        id => {
            let number = i32::try_from(id).unwrap_or_default().to_ne_bytes();
            let done = rustix::io::write(tell, &number).is_ok();
            // SAFETY: it ends this process at once; nothing of the parent's is dropped or flushed.
            unsafe { libc::_exit(i32::from(!done)) }
        }
    }
}
