//! The log on stderr, written by a thread of its own.
//!
//! A stderr that nobody reads must not hold up the server: lines wait in a bounded queue, and those
//! that find it full are dropped and counted.

use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::Registry;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::reload::{Handle, Layer};
use tracing_subscriber::util::SubscriberInitExt as _;

use super::copies::Copies;
use super::panics;
use super::screen::sentence;
use crate::base::trace::Tracer;
use crate::config::{Launch, LogFilter, LogFormat, LogLevel};

/// Lines that may wait.
const LINES_MAX: usize = 8_192;
/// Bytes that are written at once.
const WRITE_BYTES: usize = 64 << 10;
/// Where lines come faster than this one after another, they are written so seldom.
const GATHER: Duration = Duration::from_millis(5);
/// How long the end waits for lines that are still to be written.
const FLUSH: Duration = Duration::from_millis(500);
/// A file of the log that is larger begins anew.
const FILE_BYTES_MAX: u64 = 4 << 20;

enum Message {
    Line(Vec<u8>),
    Flush(SyncSender<()>),
}

/// The way to the writing thread.
#[derive(Clone)]
pub(super) struct Log {
    queue: SyncSender<Message>,
    format: LogFormat,
    dropped: Arc<AtomicU64>,
    /// What is logged; None where another log is the process's.
    levels: Option<Handle<Targets, Registry>>,
    /// The way to the collector, once there is one.
    copies: Arc<OnceLock<Tracer>>,
}

impl Log {
    /// Starts the thread and makes it the log of the whole process. A second log is an error of ours and stays silent.
    pub(super) fn start(launch: &Launch) -> Self {
        Self::start_on(launch, io::stderr())
    }

    /// The same into a file, where the terminal shows something else. A file that has become large begins anew; what cannot be
    /// written is not logged.
    pub(super) fn to_file(launch: &Launch, file: &Path) -> Self {
        let large = std::fs::metadata(file).is_ok_and(|found| found.len() > FILE_BYTES_MAX);
        let mut options = std::fs::OpenOptions::new();
        // Its owner's alone.
        options.create(true).write(true).append(!large).truncate(large).mode(0o600);
        match options.open(file) {
            Ok(file) => Self::start_on(launch, file),
            Err(_) => Self::start_on(launch, io::sink()),
        }
    }

    fn start_on(launch: &Launch, out: impl io::Write + Send + 'static) -> Self {
        let (format, level, filter) = (launch.log_format, launch.log_level, launch.log_filter.as_ref());
        let (queue, lines) = sync_channel(LINES_MAX);
        let (filtered, handle) = Layer::new(levels(level, filter));
        let copies = Arc::<OnceLock<Tracer>>::default();
        let copied = launch.settings.collector.is_some().then(|| Copies(Arc::clone(&copies)));
        let log = Self { queue, format, dropped: Arc::default(), levels: Some(handle), copies };
        let dropped = Arc::clone(&log.dropped);
        if let Err(cause) =
            std::thread::Builder::new().name("log".to_owned()).spawn(move || write_all((&lines, format), &dropped, out))
        {
            super::screen::problem(format_args!("there will be no log: {cause}"));
        }
        let lines = tracing_subscriber::fmt::layer().with_target(false).with_writer(log.clone());
        let registry = tracing_subscriber::registry().with(filtered).with(copied);
        let started = match format {
            LogFormat::Text => registry.with(lines.with_ansi(false)).try_init(),
            LogFormat::Json => registry.with(lines.json().flatten_event(true).with_span_list(false)).try_init(),
        };
        drop(started);
        panics::watch();
        log
    }

    /// Logs so much from now on.
    pub(super) fn set(&self, level: LogLevel, filter: Option<&LogFilter>) {
        if let Some(levels) = &self.levels {
            // Gone with the log of the process.
            let _ = levels.reload(self::levels(level, filter));
        }
    }

    /// From now on the collector gets a copy of each line, where one is configured.
    pub(super) fn copy_to(&self, tracer: &Tracer) {
        // There is one server, and so one way.
        let _ = self.copies.set(tracer.clone());
    }

    /// Waits a little while for the collector.
    pub(super) async fn deliver(&self) {
        if let Some(tracer) = self.copies.get() {
            tracer.flush().await;
        }
    }

    /// Says why something cannot go on, behind what was logged. Where stderr takes nothing nobody waits for it, unlike
    /// [`problem`](super::screen::problem).
    pub(super) fn problem(&self, text: impl std::fmt::Display) {
        let line = Message::Line(format!("{}\n", sentence(self.format, "ERROR", &text.to_string())).into_bytes());
        if self.queue.try_send(line).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until what was logged so far is written, or a little while. That something is missing then could only be said where
    /// nothing is taken.
    pub(super) fn flush(&self) {
        let end = Instant::now() + FLUSH;
        let (done, wait) = sync_channel(1);
        let mut asked = self.queue.try_send(Message::Flush(done));
        while let Err(TrySendError::Full(message)) = asked {
            if Instant::now() >= end {
                return;
            }
            std::thread::sleep(GATHER);
            asked = self.queue.try_send(message);
        }
        // Late, or without a thread that writes.
        let _ = wait.recv_timeout(end.saturating_duration_since(Instant::now()));
    }
}

/// Everything at `level`, single modules at theirs, but nothing of the crate that speaks MCP: it repeats whole messages and addresses, with what is
/// secret in them. Why a server cannot be used is said by us.
fn levels(level: LogLevel, filter: Option<&LogFilter>) -> Targets {
    let single =
        filter.into_iter().flat_map(LogFilter::levels).map(|(module, level)| (module.to_owned(), threshold(level)));
    Targets::new().with_default(threshold(level)).with_targets(single).with_target("rmcp", LevelFilter::OFF)
}

fn threshold(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
    }
}

/// Writes what comes: a line at once, and the lines of a busy server together, since each write wakes this thread and costs
/// those that work a processor.
fn write_all((lines, format): (&Receiver<Message>, LogFormat), dropped: &AtomicU64, mut out: impl Write) {
    let mut last = None::<Instant>;
    let mut text = Vec::new();
    while let Ok(first) = lines.recv() {
        if last.is_some_and(|last| last.elapsed() < GATHER) {
            std::thread::sleep(GATHER);
        }
        let missing = dropped.swap(0, Ordering::Relaxed);
        if missing > 0 {
            let said = format!("{missing} lines of the log were dropped: stderr was too slow");
            let line = match format {
                LogFormat::Text => format!("[{said}]\n"),
                LogFormat::Json => format!("{}\n", sentence(format, "WARN", &said)),
            };
            text.extend_from_slice(line.as_bytes());
        }
        let mut waiting = None;
        let mut next = Some(first);
        while let Some(message) = next {
            match message {
                Message::Line(line) => text.extend_from_slice(&line),
                Message::Flush(done) => waiting = Some(done),
            }
            // What comes behind a flush is not waited for.
            next = if waiting.is_none() && text.len() < WRITE_BYTES { lines.try_recv().ok() } else { None };
        }
        // Where stderr is gone there is nobody to tell.
        drop(out.write_all(&text));
        text.clear();
        last = Some(Instant::now());
        if let Some(done) = waiting {
            // Who asked may have gone.
            let _ = done.send(());
        }
    }
}

/// One line on its way; sent when it is complete.
pub(super) struct Line {
    text: Vec<u8>,
    log: Log,
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.log.queue.try_send(Message::Line(std::mem::take(&mut self.text))).is_err() {
            self.log.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line { text: Vec::with_capacity(256), log: self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn single_modules_have_their_own_level_and_the_mcp_crate_has_none() {
        let filter: LogFilter = "simse::store=debug,rmcp=debug,simse::mcp=off".parse().unwrap();
        let levels = levels(LogLevel::Info, Some(&filter));
        #[rustfmt::skip]
        let table = [
            ("simse::server", Level::INFO, true), ("simse::server", Level::DEBUG, false), ("simse::store::sqlite", Level::DEBUG, true),
            ("simse::mcp::client", Level::ERROR, false), ("rmcp::transport", Level::ERROR, false), ("hyper", Level::WARN, true),
        ];
        for (target, level, want) in table {
            assert_eq!(levels.would_enable(target, &level), want, "{target} {level}");
        }
    }

    #[test]
    fn lines_are_written_whole_and_in_order_and_many_of_them_together() {
        struct Counted(Arc<parking_lot::Mutex<(Vec<u8>, usize)>>);
        impl Write for Counted {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                let mut written = self.0.lock();
                written.0.extend_from_slice(bytes);
                written.1 += 1;
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let written = Arc::<parking_lot::Mutex<(Vec<u8>, usize)>>::default();
        let (queue, lines) = sync_channel(LINES_MAX);
        let dropped = Arc::new(AtomicU64::new(3));
        let (out, missing) = (Counted(Arc::clone(&written)), Arc::clone(&dropped));
        let (done, wait) = sync_channel(1);
        let mut expected = b"[3 lines of the log were dropped: stderr was too slow]\n".to_vec();
        for number in 0..8_000 {
            let line = format!("line {number} {}\n", "x".repeat(number % 90));
            expected.extend_from_slice(line.as_bytes());
            queue.send(Message::Line(line.into_bytes())).unwrap();
        }
        queue.send(Message::Flush(done)).unwrap();
        let writer = std::thread::spawn(move || write_all((&lines, LogFormat::Text), &missing, out));
        wait.recv().unwrap();
        let (text, writes) = std::mem::take(&mut *written.lock());
        assert_eq!(text, expected);
        assert!(writes <= expected.len() / WRITE_BYTES + 1, "{writes} writes");
        // One line is not held back until another comes.
        queue.send(Message::Line(b"alone\n".to_vec())).unwrap();
        while written.lock().0 != b"alone\n" {
            std::thread::yield_now();
        }
        drop(queue);
        writer.join().unwrap();
    }
}
