//! The write-ahead log: moved into the database beside the writer, and begun anew before it grows.
//!
//! A log is begun anew only when all of it is in the database, and while writing goes on there is always something that is
//! not. So the helper goes over it until little is left, and the writer moves that little itself, between two of its
//! transactions: some milliseconds, where the whole would take hundreds.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};

use crate::store::layer::Layer;

/// Frames (pages of 2 KiB) from which the log is moved into the database beside the writer: 16 MiB.
const FRAMES_WANTED: u64 = 8 << 10;
/// Frames above which the writer waits for a checkpoint: 64 MiB.
const FRAMES_MAX: u64 = 32 << 10;
/// Times that the helper goes over the log before the writer does the rest.
const PASSES_MAX: u32 = 4;
/// A pass that takes no longer than this left little behind.
const SHORT_PASS: Duration = Duration::from_millis(10);

/// The log of the writer's connection.
pub(super) struct Wal {
    wanted: SyncSender<Wish>,
    seen: Arc<Seen>,
    /// The helper was told, and has not answered yet.
    asked: bool,
}

/// What is wanted of the helper.
enum Wish {
    /// Move what there is while the writer goes on.
    Beside,
    /// Nothing else goes on: move all, and cut the log.
    AtRest,
}

#[derive(Default)]
struct Seen {
    /// Frames of the log behind the last transaction.
    frames: AtomicU64,
    /// The helper has been over it, and little is left.
    little_left: AtomicBool,
}

impl Wal {
    /// Watches the log of `connection`, and starts the helper.
    pub(super) fn start(
        connection: &mut Connection,
        (path, layer): (&Path, Layer),
    ) -> std::io::Result<(Self, JoinHandle<()>)> {
        let seen = Arc::new(Seen::default());
        let counted = Arc::clone(&seen);
        let hook = move |_: &mut rusqlite::hooks::Wal, frames| {
            counted.frames.store(u64::try_from(frames).unwrap_or(0), Ordering::Release);
            Ok(())
        };
        connection.wal_hook(Some(hook)).map_err(std::io::Error::other)?;
        let (wanted, wishes) = sync_channel(1);
        let (path, shared) = (path.to_owned(), Arc::clone(&seen));
        let helper = std::thread::Builder::new().name("simse-checkpoint".into());
        let helper = helper.spawn(move || help((&path, layer), &wishes, &shared))?;
        Ok((Self { wanted, seen, asked: false }, helper))
    }

    /// Between two transactions of the writer's.
    pub(super) fn look(&mut self, connection: &Connection) {
        if self.seen.little_left.swap(false, Ordering::AcqRel) {
            self.asked = false;
            // The next transaction begins the log anew, unless somebody reads in it just now.
            checkpoint(connection, "PASSIVE");
            return;
        }
        let frames = self.seen.frames.load(Ordering::Acquire);
        if frames > FRAMES_MAX {
            checkpoint(connection, "TRUNCATE");
        } else if frames > FRAMES_WANTED && !self.asked {
            self.asked = self.wanted.try_send(Wish::Beside).is_ok();
        }
    }

    /// Nothing was written for a while.
    pub(super) fn rest(&self) {
        let _ = self.wanted.try_send(Wish::AtRest);
    }
}

/// Moves all of the log, and cuts it. A reader may still be at it; then the last of it is moved at the next opening.
pub(super) fn close(connection: &Connection) {
    checkpoint(connection, "TRUNCATE");
}

fn checkpoint(connection: &Connection, mode: &str) {
    if let Err(error) = connection.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |_| Ok(())) {
        tracing::warn!(%error, "the write-ahead log could not be emptied");
    }
}

/// Moves the log into the database whenever asked.
fn help((path, layer): (&Path, Layer), wishes: &Receiver<Wish>, seen: &Seen) {
    let mut connection = None;
    while let Ok(wish) = wishes.recv() {
        if let Some(connection) = connection_or_new(&mut connection, (path, layer)) {
            match wish {
                Wish::AtRest => checkpoint(connection, "TRUNCATE"),
                Wish::Beside => go_over(connection),
            }
        }
        if matches!(wish, Wish::Beside) {
            seen.little_left.store(true, Ordering::Release);
        }
    }
}

fn go_over(connection: &Connection) {
    for _ in 0..PASSES_MAX {
        let began = Instant::now();
        checkpoint(connection, "PASSIVE");
        if began.elapsed() <= SHORT_PASS {
            return;
        }
    }
}

fn connection_or_new<'a>(slot: &'a mut Option<Connection>, (path, layer): (&Path, Layer)) -> Option<&'a Connection> {
    if slot.is_none() {
        *slot = layer.connect(path, OpenFlags::default()).ok();
    }
    slot.as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes more than the log may hold, without a pause in which all of it could be moved.
    #[test]
    fn the_log_begins_anew_while_writing_goes_on() {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("x.db");
        let mut connection = Connection::open(&path).expect("opened");
        let set =
            "PRAGMA page_size=2048; PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0; CREATE TABLE t (body BLOB)";
        connection.execute_batch(set).expect("set up");
        let (mut wal, helper) = Wal::start(&mut connection, (&path, Layer::default())).expect("started");
        let (mut before, mut begun_anew, mut most) = (0, 0, 0);
        let mut rows = 0;
        let until = Instant::now() + Duration::from_secs(60);
        while begun_anew < 3 && Instant::now() < until {
            connection.execute("INSERT INTO t VALUES (zeroblob(1000000))", []).expect("written");
            rows += 1;
            let frames = wal.seen.frames.load(Ordering::Acquire);
            begun_anew += u64::from(frames < before);
            (before, most) = (frames, most.max(frames));
            wal.look(&connection);
        }
        assert_eq!(begun_anew, 3, "after {rows} MB");
        assert!(most > FRAMES_WANTED, "{most}");
        close(&connection);
        drop(wal);
        helper.join().expect("it ends with the writer");
        assert_eq!(std::fs::metadata(home.path().join("x.db-wal")).map_or(0, |facts| facts.len()), 0);
        let held: u64 = connection.query_row("SELECT sum(length(body)) FROM t", [], |row| row.get(0)).expect("read");
        assert_eq!(held, rows * 1_000_000);
    }
}
