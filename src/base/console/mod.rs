//! Programs that go on while one looks at what they write: each a [`Console`], and the table of them.
//!
//! A console is driven by a task of its own, which reads what the program writes as it comes, so that the program
//! never waits for a reader and memory stays bounded. Whoever looks takes what is new since the last look, and may wait
//! for the program's end; who holds a terminal may type.
//!
//! Invariants: a console that is dropped ends its program and all that this started; its end is told once all that
//! it wrote is there to be read.

mod table;
mod unread;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::limit;
use super::process::{Ending, Follow, Followed, FollowedOutput, Invocation, Terminal, TerminalSize, follow};

pub use table::{Consoles, Gone, NoConsole};
pub use unread::{Piece, Unread};

/// How long output is read after the program has ended, while something else holds it open.
const DRAIN_GRACE: Duration = Duration::from_millis(50);
/// One read.
const CHUNK_BYTES: usize = 16 * 1024;

/// A program that runs, or has ended and may still have something to say.
#[derive(Debug)]
pub struct Console {
    command: String,
    confined: bool,
    shared: Arc<Shared>,
    /// None: it has no input, or has ended.
    terminal: Mutex<Option<Terminal>>,
    has_terminal: bool,
    interrupts: mpsc::Sender<()>,
    stop: CancellationToken,
    driver: AbortHandle,
    typing: tokio::sync::Mutex<()>,
    line: Mutex<TypedLine>,
}

struct Shared {
    unread: Mutex<Unread>,
    follow: Mutex<Option<Box<dyn Follow>>>,
    ended: watch::Sender<Option<Ending>>,
}

impl Shared {
    /// Takes in what the program wrote.
    fn take(&self, bytes: &[u8]) {
        self.unread.lock().push(bytes);
        if let Some(follow) = &mut *self.follow.lock() {
            follow.take(bytes);
        }
    }

    /// When who follows wants to be woken.
    fn due(&self) -> Option<Instant> {
        self.follow.lock().as_ref().and_then(|follow| follow.due())
    }

    fn wake(&self) {
        if let Some(follow) = &mut *self.follow.lock() {
            follow.wake();
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("ended", &self.ended.borrow()).finish_non_exhaustive()
    }
}

/// As long as it lives, somebody hears of what the program writes.
#[derive(Debug)]
pub struct Following<'a>(&'a Console);

impl Drop for Following<'_> {
    fn drop(&mut self) {
        // Not under the lock: the end of it may have something to publish.
        let follow = self.0.shared.follow.lock().take();
        drop(follow);
    }
}

/// What was typed and not sent off with an end of line yet: what is typed next goes on with it.
#[derive(Debug, Default)]
pub struct TypedLine {
    /// The text.
    pub begun: String,
    /// What it was when a call was judged, by the id of the call; the newest last.
    pub judged: Vec<(String, String)>,
}

impl Console {
    /// Starts a program: with a size on a terminal. `command` is what it is called when it is listed.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(invocation: &Invocation, size: Option<TerminalSize>, command: &str) -> io::Result<Arc<Self>> {
        Self::start_followed(invocation, size, (command, None))
    }

    /// The same; somebody hears of what it writes from the first byte on, until [`Console::following`] ends.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_followed(
        invocation: &Invocation,
        size: Option<TerminalSize>,
        (command, heard): (&str, Option<Box<dyn Follow>>),
    ) -> io::Result<Arc<Self>> {
        let (program, output, terminal) = follow(invocation, size)?;
        let unread = Mutex::new(Unread::new(limit::CONSOLE_OUTPUT_BYTES_MAX));
        let shared = Arc::new(Shared { unread, follow: Mutex::new(heard), ended: watch::Sender::new(None) });
        let (interrupts, interrupted) = mpsc::channel(1);
        let stop = CancellationToken::new();
        let driver = Driver { program, output, shared: Arc::clone(&shared), interrupted, stop: stop.clone() };
        let driver = tokio::spawn(driver.run()).abort_handle();
        Ok(Arc::new(Self {
            command: command.to_owned(),
            confined: invocation.confinement.is_some(),
            shared,
            has_terminal: terminal.is_some(),
            terminal: Mutex::new(terminal),
            interrupts,
            stop,
            driver,
            typing: tokio::sync::Mutex::default(),
            line: Mutex::default(),
        }))
    }

    /// What it is called.
    pub fn command(&self) -> &str {
        &self.command
    }

    /// Whether it was started in a sandbox.
    pub fn is_confined(&self) -> bool {
        self.confined
    }

    /// Whether it was started on a terminal.
    pub fn has_terminal(&self) -> bool {
        self.has_terminal
    }

    /// What was typed on the line that is not sent off yet.
    pub fn line(&self) -> &Mutex<TypedLine> {
        &self.line
    }

    /// How the program ended. None: it runs.
    pub fn ending(&self) -> Option<Ending> {
        *self.shared.ended.borrow()
    }

    /// Waits for the program's end, at most so long. None: it runs. Cancel-safe.
    pub async fn wait(&self, longest: Duration) -> Option<Ending> {
        let mut ended = self.shared.ended.subscribe();
        let _in_time = timeout(longest, ended.wait_for(Option::is_some)).await;
        self.ending()
    }

    /// Lets somebody hear of what the program writes from now on; None: whoever does already.
    pub fn following(&self, heard: Option<Box<dyn Follow>>) -> Following<'_> {
        if heard.is_some() {
            let before = std::mem::replace(&mut *self.shared.follow.lock(), heard);
            drop(before);
        }
        Following(self)
    }

    /// Takes what it wrote since this was asked last.
    pub fn take(&self) -> Piece {
        // First, or what came between the two would have its end cut off.
        let over = self.ending().is_some();
        self.shared.unread.lock().take(over)
    }

    /// Types, at most until `deadline`; how many bytes the program's terminal took. None: it has none, or has ended.
    pub async fn write(&self, bytes: &[u8], deadline: Instant) -> Option<usize> {
        let _one_at_a_time = self.typing.lock().await;
        let terminal = self.open_terminal()?;
        let mut typed = 0;
        while typed < bytes.len() {
            match timeout_at(deadline, terminal.write(&bytes[typed..])).await {
                Ok(Ok(count)) => typed += count,
                Ok(Err(_)) | Err(_) => break,
            }
        }
        Some(typed)
    }

    /// Changes the size of the terminal. None: it has none, or has ended.
    pub fn resize(&self, size: TerminalSize) -> Option<io::Result<()>> {
        self.open_terminal().map(|terminal| terminal.resize(size))
    }

    /// Whether its terminal takes no more of a line than it has room for.
    pub fn takes_lines(&self) -> bool {
        self.open_terminal().is_some_and(|terminal| terminal.takes_lines())
    }

    fn open_terminal(&self) -> Option<Terminal> {
        let mut terminal = self.terminal.lock();
        if self.ending().is_some() {
            // What the program left behind learns by this that its terminal is gone.
            *terminal = None;
        }
        terminal.clone()
    }

    /// Interrupts the program and its group. Nothing when it has ended.
    pub fn interrupt(&self) {
        // One that waits already is enough.
        let _full_or_over = self.interrupts.try_send(());
    }

    /// Begins to end the program and all that it started.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Ends the program and all that it started, and waits for that.
    pub async fn end(&self) {
        self.stop();
        // Only a process that hangs in the kernel takes longer.
        self.wait(Duration::from_millis(limit::CONSOLE_END_MS_MAX)).await;
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        // The program goes with the task.
        self.driver.abort();
    }
}

/// Reads what the program writes, and sees to its end.
struct Driver {
    program: Followed,
    output: FollowedOutput,
    shared: Arc<Shared>,
    interrupted: mpsc::Receiver<()>,
    stop: CancellationToken,
}

impl Driver {
    async fn run(mut self) {
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut open = true;
        let ending = loop {
            let due = self.shared.due();
            tokio::select! {
                biased;
                ending = self.program.wait() => break ending,
                () = self.stop.cancelled() => break self.end(&mut chunk, open).await,
                Some(()) = self.interrupted.recv() => self.program.interrupt(),
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => self.shared.wake(),
                count = self.output.read(&mut chunk), if open => {
                    open = count > 0;
                    self.shared.take(&chunk[..count]);
                }
            }
        };
        if open {
            // What it wrote is there already; only what it does not wait for can come later.
            let _somebody_holds_it = timeout(DRAIN_GRACE, self.read_to_end(&mut chunk)).await;
        }
        // A program whose end the system does not tell is as good as killed.
        self.shared.ended.send_replace(Some(ending.unwrap_or(Ending::Signalled(9))));
    }

    async fn end(&mut self, chunk: &mut [u8], open: bool) -> io::Result<Ending> {
        let Self { program, output, shared, .. } = self;
        let quiet = async {
            if open {
                read_to_end(output, shared, chunk).await;
            } else {
                std::future::pending::<()>().await;
            }
        };
        program.end(quiet).await;
        program.wait().await
    }

    async fn read_to_end(&mut self, chunk: &mut [u8]) {
        read_to_end(&mut self.output, &self.shared, chunk).await;
    }
}

async fn read_to_end(output: &mut FollowedOutput, shared: &Shared, chunk: &mut [u8]) {
    loop {
        match output.read(chunk).await {
            0 => return,
            count => shared.take(&chunk[..count]),
        }
    }
}

#[cfg(test)]
mod tests;
