//! What keeps long-lived programs from outliving us when we are killed: nobody drops anything then.
//!
//! A shell waits at the other end of a pipe that we alone hold, and is told which programs run. The pipe ends with us, however we end;
//! then the shell asks the groups of those programs, and on Linux whatever carries their marks, to end, and kills what is left a
//! second later (`keeper.sh`). There is one for the whole process, from the first such program on. A signal of the kernel at
//! the parent's death (`PR_SET_PDEATHSIG`) would do less: it comes when the *thread* ends that started the program, and its
//! children never hear it.
//!
//! Invariant: a program is told of right after its start and until it has been waited for: the number of its group is nobody else's.

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{ChildStdin, Command, Stdio};

use parking_lot::Mutex;
use rustix::process::Pid;

/// What the shell runs.
const SCRIPT: &str = include_str!("keeper.sh");
/// Where it finds its programs.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

static KEEPER: Mutex<Keeper> = Mutex::new(Keeper { pipe: None, kept: Vec::new(), unsaid: VecDeque::new() });

struct Keeper {
    pipe: Option<ChildStdin>,
    /// What it has been told of: for one that has to be started anew.
    kept: Vec<(String, i32)>,
    /// What the pipe had no room for.
    unsaid: VecDeque<String>,
}

/// A program that ends when this process does. Dropped when it has ended.
#[derive(Debug)]
pub(super) struct Kept(String);

impl Kept {
    /// Has the program that carries this mark and leads a group ended with this process.
    pub(super) fn new(mark: &str, leader: Pid) -> Self {
        let mut keeper = KEEPER.lock();
        let entry = (mark.to_owned(), leader.as_raw_pid());
        let line = told(&entry);
        keeper.kept.push(entry);
        keeper.tell(line);
        Self(mark.to_owned())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let mut keeper = KEEPER.lock();
        keeper.kept.retain(|(mark, _)| *mark != self.0);
        let line = format!("- {}\n", self.0);
        keeper.tell(line);
    }
}

fn told((mark, leader): &(String, i32)) -> String {
    format!("+ {mark} {leader}\n")
}

impl Keeper {
    /// Tells the shell; one that is not there, or was ended by somebody, is started and told everything.
    fn tell(&mut self, line: String) {
        self.unsaid.push_back(line);
        // One that is slow is told later, and never left: at the end of its pipe it would end what it keeps.
        while let (Some(pipe), Some(line)) = (&mut self.pipe, self.unsaid.front()) {
            match pipe.write(line.as_bytes()) {
                Ok(_) => drop(self.unsaid.pop_front()),
                Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.pipe = None,
            }
        }
        if self.pipe.is_some() {
            return;
        }
        self.unsaid.clear();
        let all: String = self.kept.iter().map(told).collect();
        match start(&all) {
            Ok(pipe) => self.pipe = Some(pipe),
            Err(cause) => tracing::warn!(%cause, "programs would go on, should this process be killed"),
        }
    }
}

/// Starts the shell, in a group of its own: what is typed at a terminal does not reach it.
fn start(all: &str) -> io::Result<ChildStdin> {
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(SCRIPT).arg("simse-keeper").env_clear().env("PATH", PATH).current_dir("/").process_group(0);
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let mut pipe = shell.stdin.take().ok_or_else(|| io::Error::other("it has no input"))?;
    pipe.write_all(all.as_bytes())?;
    // From now on a line that finds no room waits here. It is written as a whole or not at all: it is short.
    let flags = rustix::fs::fcntl_getfl(&pipe)?;
    rustix::fs::fcntl_setfl(&pipe, flags | rustix::fs::OFlags::NONBLOCK)?;
    // It ends with us, or is buried with us.
    drop(shell);
    Ok(pipe)
}
