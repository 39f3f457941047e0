//! Sees to it that no start takes for ever: a program of a session may stop another one before that has begun, and who
//! started it would wait. It is killed then.
//!
//! Invariant: a number is looked at only while its start waits, and so before anybody reaps it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::process::{Pid, Signal, kill_process};

/// Between two looks. What begins by itself is there long before the second.
const LOOK: Duration = Duration::from_millis(250);

struct Starts {
    waiting: Vec<(Arc<AtomicI32>, bool)>,
    watched: bool,
    /// Nobody looks until he is woken. Who looks anyway is not woken: that costs more than the rest of a watch.
    rests: bool,
}

static STARTS: Mutex<Starts> = Mutex::new(Starts { waiting: Vec::new(), watched: false, rests: false });
static CHANGED: Condvar = Condvar::new();

/// A start that is watched as long as this lives.
pub(super) struct Watched(Arc<AtomicI32>);

impl Watched {
    /// Not one that nobody can stop.
    pub(super) fn begin(needed: bool) -> Self {
        let number = Arc::new(AtomicI32::new(0));
        if !needed {
            return Self(number);
        }
        let mut starts = STARTS.lock();
        starts.waiting.push((Arc::clone(&number), false));
        if !starts.watched {
            // Without a thread to be had it is not watched; the next start tries again.
            starts.watched = std::thread::Builder::new().name("simse-starts".into()).spawn(watch).is_ok();
        }
        let rests = std::mem::take(&mut starts.rests);
        drop(starts);
        if rests {
            CHANGED.notify_one();
        }
        Self(number)
    }

    /// Where the number of what is started comes to stand before that runs.
    pub(super) fn number(&self) -> &AtomicI32 {
        &self.0
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        STARTS.lock().waiting.retain(|(number, _)| !Arc::ptr_eq(number, &self.0));
    }
}

fn watch() {
    let mut starts = STARTS.lock();
    loop {
        if starts.waiting.is_empty() {
            starts.rests = true;
            CHANGED.wait(&mut starts);
            starts.rests = false;
        }
        CHANGED.wait_for(&mut starts, LOOK);
        for (number, seen) in &mut starts.waiting {
            let id = Pid::from_raw(number.load(Ordering::Acquire));
            // One that was there the last time, too.
            if let Some(id) = id.filter(|id| std::mem::replace(seen, true) && is_stopped(*id)) {
                let _already_gone = kill_process(id, Signal::KILL);
            }
        }
    }
}

fn is_stopped(id: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['T', 't']))
}
