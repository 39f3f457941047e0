//! The reading end of a program's output: what is kept of it, who follows it, and where the whole of it goes.
//!
//! What follows and what is written to disk costs nothing until there is somebody who follows, or more than is kept.

use std::io;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep};

use super::{Captured, Slate};

/// One read.
const CHUNK_BYTES: usize = 64 * 1024;
/// Bytes that go to the disk at once; as much again waits behind them.
const SPILL_BYTES: usize = 256 * 1024;
/// Room in the pipe of a program that writes much: so many fewer times it waits for us.
#[cfg(target_os = "linux")]
const PIPE_BYTES: usize = 1 << 20;

/// What one look at the output of those left behind takes of it.
const SWALLOW_BYTES: usize = 16 * 1024;
/// Between two looks.
const SWALLOW_PAUSE: Duration = Duration::from_millis(50);

/// Hears of a program's output while it runs.
pub trait Follow: Send {
    /// The next bytes. Must not block.
    fn take(&mut self, bytes: &[u8]);
    /// When it wants to be woken; None: not before more bytes came.
    fn due(&self) -> Option<Instant>;
    /// Its time has come. Must not block.
    fn wake(&mut self);
}

/// Takes a whole output, piece by piece in order, once it is longer than what is kept. Runs where it may block; after
/// an error it is not called again.
pub type Spill = Box<dyn FnMut(&[u8]) -> io::Result<()> + Send>;

/// Who else gets a program's output.
#[derive(Default)]
pub struct Taps {
    /// Hears of it while it runs.
    pub follow: Option<Box<dyn Follow>>,
    /// Takes the whole of a long one.
    pub spill: Option<Spill>,
    /// What the program can write to beside its output.
    pub slate: Option<Slate>,
}

impl std::fmt::Debug for Taps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { follow, spill, slate } = self;
        f.debug_struct("Taps")
            .field("follow", &follow.is_some())
            .field("spill", &spill.is_some())
            .field("slate", slate)
            .finish()
    }
}

/// Reads what is there, up to a pipe full, and says whether more may come.
fn is_open_after_reading(reader: &pipe::Receiver) -> bool {
    let mut chunk = [0; SWALLOW_BYTES];
    for _ in 0..4 {
        match reader.try_read(&mut chunk) {
            Ok(count) if count > 0 => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return true,
            Ok(_) | Err(_) => return false,
        }
    }
    true
}

/// The reading end of a program's output.
pub(super) struct Tap {
    /// None: everybody has closed the other end, or it broke.
    reader: Option<pipe::Receiver>,
    chunk: Vec<u8>,
    output: Captured,
    follow: Option<Box<dyn Follow>>,
    spill: Option<Spiller>,
}

impl Tap {
    pub(super) fn new(reader: pipe::Receiver, output_bytes_max: usize, taps: Taps) -> Self {
        Self {
            reader: Some(reader),
            chunk: vec![0; CHUNK_BYTES],
            output: Captured::new(output_bytes_max),
            follow: taps.follow,
            spill: taps.spill.map(Spiller::new),
        }
    }

    /// Whether more may come.
    pub(super) fn is_open(&self) -> bool {
        self.reader.is_some()
    }

    /// When who follows wants to be woken.
    pub(super) fn due(&self) -> Option<Instant> {
        self.follow.as_ref()?.due()
    }

    /// Wakes who follows.
    pub(super) fn wake(&mut self) {
        if let Some(follow) = &mut self.follow {
            follow.wake();
        }
    }

    /// Waits for the next bytes. Cancel-safe.
    pub(super) async fn read_some(&mut self) {
        if let Some(spill) = &mut self.spill {
            spill.room().await;
        }
        let Some(reader) = &mut self.reader else { return };
        match reader.read(&mut self.chunk).await {
            Ok(count) if count > 0 => self.take(count),
            Ok(_) | Err(_) => self.reader = None,
        }
    }

    /// Reads until everybody has closed the other end. Cancel-safe.
    pub(super) async fn read_to_end(&mut self) {
        while self.is_open() {
            self.read_some().await;
        }
    }

    /// Reads what can be had without waiting, at most one full pipe.
    pub(super) fn read_what_is_there(&mut self) {
        for _ in 0..16 {
            let Some(reader) = &self.reader else { return };
            match reader.try_read(&mut self.chunk) {
                Ok(count) if count > 0 => self.take(count),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Ok(_) | Err(_) => self.reader = None,
            }
        }
    }

    /// Goes on reading for who was left behind with the other end, and throws it away: who writes to a pipe without a
    /// reader is ended by it. A flood of it waits, so that it takes no processor.
    pub(super) fn swallow(&mut self) {
        if let Some(reader) = self.reader.take() {
            drop(tokio::spawn(async move {
                while reader.readable().await.is_ok() && is_open_after_reading(&reader) {
                    sleep(SWALLOW_PAUSE).await;
                }
            }));
        }
    }

    fn take(&mut self, count: usize) {
        let bytes = &self.chunk[..count];
        if let Some(spill) = &mut self.spill {
            if let Some(all) = self.output.all_before_cut(count) {
                #[cfg(target_os = "linux")]
                if let Some(reader) = &self.reader {
                    // A pipe that stays small is only slower.
                    let _ = rustix::pipe::fcntl_setpipe_size(reader, PIPE_BYTES);
                }
                spill.begin(&all);
            }
            spill.push(bytes);
        }
        self.output.push(bytes);
        if let Some(follow) = &mut self.follow {
            follow.take(bytes);
        }
    }

    /// What is kept, once the rest of a long output is on disk.
    pub(super) async fn finish(self) -> Captured {
        if let Some(spill) = self.spill {
            spill.finish().await;
        }
        self.output
    }
}

/// One piece of work for the blocking pool, and what it gives back.
type Job = JoinHandle<(Spill, Vec<u8>, io::Result<()>)>;

/// Hands a long output to its [`Spill`]: one piece is written while the next one fills.
struct Spiller {
    /// None: a job has it, or it failed.
    spill: Option<Spill>,
    waiting: Vec<u8>,
    job: Option<Job>,
    begun: bool,
}

impl Spiller {
    fn new(spill: Spill) -> Self {
        Self { spill: Some(spill), waiting: Vec::new(), job: None, begun: false }
    }

    fn begin(&mut self, all: &[u8]) {
        self.begun = true;
        self.waiting.extend_from_slice(all);
    }

    /// Takes the next bytes. Nothing before the beginning, and after a failure.
    fn push(&mut self, bytes: &[u8]) {
        if !self.begun || (self.spill.is_none() && self.job.is_none()) {
            return;
        }
        self.waiting.extend_from_slice(bytes);
        if self.waiting.len() >= SPILL_BYTES {
            self.submit(Vec::new());
        }
    }

    /// Starts to write what waits, unless something is being written.
    fn submit(&mut self, empty: Vec<u8>) {
        let Some(mut spill) = self.spill.take() else { return };
        let bytes = std::mem::replace(&mut self.waiting, empty);
        self.job = Some(spawn_blocking(move || {
            let done = spill(&bytes);
            let mut empty = bytes;
            empty.clear();
            (spill, empty, done)
        }));
    }

    /// Waits until what is written has left room for more. Cancel-safe.
    async fn room(&mut self) {
        while self.waiting.len() >= SPILL_BYTES {
            if !self.settle().await {
                return;
            }
        }
    }

    /// Waits for the job under way and starts the next one. False: there is none.
    async fn settle(&mut self) -> bool {
        let Some(job) = &mut self.job else { return false };
        let done = job.await;
        self.job = None;
        match done {
            Ok((spill, empty, Ok(()))) => {
                self.spill = Some(spill);
                if !self.waiting.is_empty() {
                    self.submit(empty);
                }
            }
            // A full disk: the rest is only counted.
            Ok((_, _, Err(_))) | Err(_) => self.waiting = Vec::new(),
        }
        true
    }

    /// Writes the rest.
    async fn finish(mut self) {
        if self.begun && self.job.is_none() && !self.waiting.is_empty() {
            self.submit(Vec::new());
        }
        while self.settle().await {}
    }
}
