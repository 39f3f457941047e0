//! What a started program may do, held to by the operating system: Landlock for files and signals, name
//! spaces for what lies inside an allowed place and must stay as it is, seccomp for sockets.
//!
//! A [`Policy`] says it in words; [`Cage::prepare`] opens what is needed for one start, and
//! [`Cage::put_on`] makes the program put it on between fork and exec, so that neither it nor anything it
//! starts can take it off again. [`Cage::start`] does the same at a fraction of the cost, where a room was prepared. What this kernel cannot do is told by [`support`] and never passed over:
//! who starts programs asks it first and says so.
//!
//! Promises: reading is free except for hidden places; writing works in the writable places, a few
//! devices and nowhere else; a program cannot signal or trace what runs outside; without network it has a
//! loopback of its own, or no sockets at all. Not here: limits of memory or time.

#[cfg(target_os = "linux")]
mod child;
#[cfg(target_os = "linux")]
mod filter;
#[cfg(target_os = "linux")]
mod git_config;
#[cfg(target_os = "linux")]
mod guard;
#[cfg(target_os = "linux")]
mod holder;
#[cfg(target_os = "linux")]
mod home;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod other;
#[cfg(target_os = "linux")]
mod room;
mod signs;
#[cfg(target_os = "linux")]
mod start;
#[cfg(target_os = "linux")]
mod watch;

use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use rustix::process::Pid;
use serde::{Deserialize, Serialize};

#[cfg(target_os = "linux")]
pub use home::Loopback;
#[cfg(target_os = "linux")]
pub use linux::Cage;
#[cfg(not(target_os = "linux"))]
pub use other::{Cage, Loopback};
pub use signs::{Denial, Sign, denial};

/// Whether and how far programs are confined, as a setting says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// They read, and write nowhere.
    ReadOnly,
    /// They write under the working directory and where temporary files lie.
    WorkspaceWrite,
    /// They may do what this process may do.
    #[default]
    Off,
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::ReadOnly => "read-only",
            Self::WorkspaceWrite => "workspace-write",
            Self::Off => "off",
        })
    }
}

/// How far a confined program may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// It reads, and writes nowhere.
    ReadOnly,
    /// It writes in the writable places and where temporary files lie.
    WorkspaceWrite,
}

/// What a program may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// How far it may go.
    pub level: Level,
    /// Whether it may talk to the network, and to other programs through sockets.
    pub network: bool,
    /// Directories (absolute, without links) under which it may write, at [`Level::WorkspaceWrite`]. Nothing starts while a link lies there.
    pub writable: Vec<PathBuf>,
    /// Directories or files (absolute) whose content it may not see.
    pub hidden: Vec<PathBuf>,
    /// Files (absolute) in writable places that it may see and not change.
    pub kept: Vec<PathBuf>,
    /// Whether the hooks and the configuration of git repositories in writable places, and what is kept, may change: what
    /// stands there is run later, outside.
    pub git_settings: bool,
}

/// What this machine's kernel can hold a program to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Support {
    /// Landlock's version; 0: there is none, and no confinement of files.
    pub landlock: u8,
    /// Whether a program can get its own view of mounts and its own loopback.
    pub namespaces: bool,
    /// Whether the programs of a session can have numbers of their own, by which they see and signal each other alone.
    pub processes: bool,
    /// Whether sockets can be refused.
    pub seccomp: bool,
}

impl Support {
    /// What cannot be held to, each a clause for people; empty when nothing is missing.
    pub fn missing(self) -> Vec<&'static str> {
        let rows = [
            (self.landlock == 0, "the kernel has no Landlock: commands can write anywhere"),
            (
                (1..3).contains(&self.landlock),
                "Landlock is older than version 3: commands can truncate files outside the working directory",
            ),
            (
                (3..6).contains(&self.landlock) && !self.processes,
                "Landlock is older than version 6: commands can signal other processes of this user",
            ),
            (!self.seccomp, "the kernel has no seccomp: commands can open sockets"),
            (!self.namespaces, "no name spaces: commands can change git hooks, and have no loopback network"),
            (
                self.namespaces && !self.processes,
                "no name spaces for processes: commands see what else runs, cannot end what an earlier one left running, and \
                 leave programs behind that hide",
            ),
        ];
        rows.into_iter().filter(|(is, _)| *is).map(|(_, clause)| clause).collect()
    }
}

/// What [`Cage::start`] and [`start_free`] start. It leads a session and a process group of its own.
#[derive(Debug)]
pub struct Program {
    /// The file.
    pub path: CString,
    /// Its arguments, its name first.
    pub arguments: Vec<CString>,
    /// Its environment, `NAME=value` each.
    pub environment: Vec<CString>,
    /// Its standard input, output and error.
    pub streams: [OwnedFd; 3],
    /// Whether its standard input is a terminal that is to control its session.
    pub on_terminal: bool,
    /// What it inherits besides, under the number that it has here.
    pub kept: Option<Arc<File>>,
}

/// A program that was started.
#[derive(Debug)]
pub struct Started {
    /// Its number, and that of its group.
    pub id: Pid,
    /// The kernel's handle of it: there is something to read when the program has ended.
    pub handle: OwnedFd,
    /// To be held until it is reaped.
    pub stay: Option<Stay>,
}

/// What a program lives in, and what would be given back if nobody held it.
pub type Stay = Arc<dyn std::fmt::Debug + Send + Sync>;

/// What this machine can do. Tried out once, with a program that does nothing.
pub fn support() -> Support {
    static FOUND: LazyLock<Support> = LazyLock::new(Cage::probe);
    *FOUND
}

/// Starts a program that is held to nothing, at the same small cost.
///
/// # Errors
/// What the kernel says: no such program, no such directory, no permission. [`std::io::ErrorKind::Unsupported`] where it cannot.
pub fn start_free(program: &Program, directory: &CStr) -> std::io::Result<Started> {
    #[cfg(target_os = "linux")]
    return start::start_free(program, directory);
    #[cfg(not(target_os = "linux"))]
    return Err(std::io::ErrorKind::Unsupported.into());
}

#[cfg(test)]
mod tests;
