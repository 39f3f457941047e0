//! A program that is followed while it runs: on a terminal of its own, or with its output in a pipe.
//!
//! On a terminal it leads a session, and the terminal controls it: it can be typed to, Ctrl-C reaches what is in
//! front, and its size can change. On a pipe its input is empty. Either way stdout and stderr come as one stream, and
//! it is started as everything else here: environment, sandbox, the mark by which what it starts is found again.
//!
//! Invariant: the other side of the terminal is open in the program alone, so that its end is seen; ours is never
//! inherited by another program.

#![allow(unsafe_code, reason = "to be woken by a terminal it has to be registered")]

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;
use tokio::io::AsyncReadExt;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe;
use tokio::time::timeout;

use super::group::Group;
use super::{Ending, Invocation, TERM_GRACE};

/// How large a terminal says it is, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub columns: u16,
}

impl Default for TerminalSize {
    fn default() -> Self {
        Self { rows: 24, columns: 80 }
    }
}

impl From<TerminalSize> for Winsize {
    fn from(size: TerminalSize) -> Self {
        Self { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 }
    }
}

/// A program that runs. Dropping it kills its group and what carries its mark.
pub struct Followed {
    group: Group,
}

/// What a program writes.
pub struct FollowedOutput(Source);

enum Source {
    Pipe(pipe::Receiver),
    Terminal(Arc<AsyncFd<OwnedFd>>),
}

/// The side of a terminal at which one sits.
#[derive(Debug, Clone)]
pub struct Terminal {
    side: Arc<AsyncFd<OwnedFd>>,
}

/// Starts a program: with a size on a terminal, without on a pipe.
///
/// # Errors
/// When it cannot be started: no such program, no such directory, no permission, no terminal left.
pub fn follow(
    invocation: &Invocation,
    size: Option<TerminalSize>,
) -> io::Result<(Followed, FollowedOutput, Option<Terminal>)> {
    let Some(size) = size else {
        let (reader, writer) = io::pipe()?;
        let reader = pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?;
        let group = Group::spawn_writing(invocation, writer, None)?;
        return Ok((Followed { group }, FollowedOutput(Source::Pipe(reader)), None));
    };
    let (ours, theirs) = open_terminal(size)?;
    let group = Group::spawn_on(invocation, theirs)?;
    // SAFETY: an owned descriptor stays open and the same for as long as it is registered.
    let side = Arc::new(unsafe { AsyncFd::register(ours) }?);
    let output = FollowedOutput(Source::Terminal(Arc::clone(&side)));
    Ok((Followed { group }, output, Some(Terminal { side })))
}

/// A new terminal: our side, which does not block, and the program's.
fn open_terminal(size: TerminalSize) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
    #[cfg(target_os = "linux")]
    let flags = flags | OpenptFlags::CLOEXEC;
    let ours = rustix::pty::openpt(flags)?;
    #[cfg(not(target_os = "linux"))]
    rustix::io::fcntl_setfd(&ours, rustix::io::FdFlags::CLOEXEC)?;
    rustix::pty::grantpt(&ours)?;
    rustix::pty::unlockpt(&ours)?;
    let name = rustix::pty::ptsname(&ours, Vec::new())?;
    let theirs = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::termios::tcsetwinsize(&ours, size.into())?;
    rustix::fs::fcntl_setfl(&ours, rustix::fs::fcntl_getfl(&ours)? | OFlags::NONBLOCK)?;
    Ok((ours, theirs))
}

impl Followed {
    /// Waits for its own end. Cancel-safe.
    ///
    /// # Errors
    /// What the operating system says.
    pub async fn wait(&mut self) -> io::Result<Ending> {
        self.group.wait().await.map(Ending::from)
    }

    /// Interrupts it and its group, as Ctrl-C does on a terminal.
    pub fn interrupt(&self) {
        self.group.signal(Signal::INT);
    }

    /// Ends it: asks its group to, gives it until `quiet` or a moment, then kills the group and what carries its mark.
    pub async fn end(&mut self, quiet: impl Future<Output = ()>) {
        let found = self.group.ask_to_end().await;
        // Its own end is not waited for: once the leader is reaped, its group can no longer be named.
        let _was_quiet = timeout(TERM_GRACE, quiet).await;
        self.group.kill(found).await;
    }
}

impl FollowedOutput {
    /// Reads what is there, or waits for more. 0: nothing more will come. Cancel-safe.
    pub async fn read(&mut self, chunk: &mut [u8]) -> usize {
        match &mut self.0 {
            // What broke gives nothing more.
            Source::Pipe(pipe) => pipe.read(chunk).await.unwrap_or(0),
            Source::Terminal(side) => read_terminal(side, chunk).await,
        }
    }
}

/// Linux says EIO when nobody has the other side open any more.
async fn read_terminal(side: &AsyncFd<OwnedFd>, chunk: &mut [u8]) -> usize {
    loop {
        let Ok(mut ready) = side.readable().await else { return 0 };
        match ready.try_io(|side| Ok(rustix::io::read(side.get_ref(), &mut *chunk)?)) {
            Ok(Ok(count)) => return count,
            Ok(Err(cause)) if cause.kind() == io::ErrorKind::Interrupted => {}
            Ok(Err(_)) => return 0,
            Err(_would_block) => {}
        }
    }
}

impl Terminal {
    /// Types some of the bytes: as many as the program has room for, at least one. Cancel-safe.
    ///
    /// # Errors
    /// When nobody has the other side open any more.
    pub async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.side.writable().await?;
            match ready.try_io(|side| Ok(rustix::io::write(side.get_ref(), bytes)?)) {
                Ok(Err(cause)) if cause.kind() == io::ErrorKind::Interrupted => {}
                Ok(done) => return done,
                Err(_would_block) => {}
            }
        }
    }

    /// Changes the size; the program in front hears of it.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn resize(&self, size: TerminalSize) -> io::Result<()> {
        Ok(rustix::termios::tcsetwinsize(self.side.get_ref(), size.into())?)
    }

    /// Whether it hands on whole lines, and so takes no more of one than it has room for.
    pub fn takes_lines(&self) -> bool {
        use rustix::termios::LocalModes;
        rustix::termios::tcgetattr(self.side.get_ref()).is_ok_and(|set| set.local_modes.contains(LocalModes::ICANON))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn shell(script: &str) -> Invocation {
        Invocation {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            directory: "/".into(),
            environment: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())],
            confinement: None,
        }
    }

    async fn read_until(output: &mut FollowedOutput, sign: &str) -> String {
        let mut all = Vec::new();
        let mut chunk = [0; 1024];
        let reading = async {
            while !String::from_utf8_lossy(&all).contains(sign) {
                let count = output.read(&mut chunk).await;
                assert_ne!(count, 0, "it ended after {:?}", String::from_utf8_lossy(&all));
                all.extend_from_slice(&chunk[..count]);
            }
        };
        timeout(Duration::from_secs(20), reading).await.unwrap();
        String::from_utf8(all).unwrap()
    }

    async fn rest(output: &mut FollowedOutput) -> String {
        let mut all = Vec::new();
        let mut chunk = [0; 1024];
        loop {
            match timeout(Duration::from_secs(20), output.read(&mut chunk)).await.unwrap() {
                0 => return String::from_utf8(all).unwrap(),
                count => all.extend_from_slice(&chunk[..count]),
            }
        }
    }

    #[tokio::test]
    async fn a_terminal_is_the_programs_own() {
        let script =
            "test -t 0 && test -t 1 && test -t 2 && echo yes > /dev/tty; stty size; read x; echo got $x; exit 3";
        let (mut program, mut output, terminal) = follow(&shell(script), Some(TerminalSize::default())).unwrap();
        assert_eq!(read_until(&mut output, "80\r\n").await, "yes\r\n24 80\r\n");
        assert_eq!(terminal.unwrap().write(b"hi\n").await.unwrap(), 3);
        assert_eq!(rest(&mut output).await, "hi\r\ngot hi\r\n");
        assert_eq!(program.wait().await.unwrap(), Ending::Exited(3));
    }

    #[tokio::test]
    async fn a_new_size_and_an_interrupt_arrive() {
        let script = "trap 'stty size' WINCH; trap 'echo caught; exit 0' INT; echo ready; while :; do sleep 0.05; done";
        let (mut program, mut output, terminal) = follow(&shell(script), Some(TerminalSize::default())).unwrap();
        let terminal = terminal.unwrap();
        read_until(&mut output, "ready").await;
        terminal.resize(TerminalSize { rows: 50, columns: 132 }).unwrap();
        read_until(&mut output, "50 132").await;
        terminal.write(b"\x03").await.unwrap();
        read_until(&mut output, "caught").await;
        assert_eq!(program.wait().await.unwrap(), Ending::Exited(0));
    }

    #[tokio::test]
    async fn on_a_pipe_there_is_no_input_and_no_terminal() {
        let script = "test -t 1 || echo none; cat; echo err >&2; trap 'echo int; exit 5' INT; echo ready; while :; do sleep 0.05; done";
        let (mut program, mut output, terminal) = follow(&shell(script), None).unwrap();
        assert!(terminal.is_none());
        assert_eq!(read_until(&mut output, "ready\n").await, "none\nerr\nready\n");
        program.interrupt();
        assert_eq!(rest(&mut output).await, "int\n");
        assert_eq!(program.wait().await.unwrap(), Ending::Exited(5));
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn whatever_it_started_ends_with_it() {
        for size in [None, Some(TerminalSize::default())] {
            let script = "trap '' TERM HUP; setsid sleep 600 & echo $!; sleep 600; sleep 600";
            let (mut program, mut output, _terminal) = follow(&shell(script), size).unwrap();
            let id = read_until(&mut output, "\n").await.trim().to_owned();
            program.end(std::future::pending()).await;
            assert_eq!(program.wait().await.unwrap(), Ending::Signalled(9));
            // It was killed; with much to do the system takes a moment to see to that.
            let left = || std::fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
            let gone = async {
                while left() {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            };
            timeout(Duration::from_secs(20), gone).await.unwrap();
        }
    }

    #[tokio::test]
    async fn what_cannot_be_started_says_why() {
        for size in [None, Some(TerminalSize::default())] {
            let nothing = Invocation { program: "/no/such".into(), ..shell("") };
            let error = follow(&nothing, size).err().unwrap().to_string();
            assert!(error.starts_with("cannot start /no/such: "), "{error}");
        }
    }
}
