//! Finds started processes in `/proc` and signals them: by a mark in their environment, and by descent.
//!
//! Invariant: a process is named by its number and the time of its start (or asked again once the kernel's handle of
//! it is held), so the number of one that is gone is never signalled. Everything here blocks.

use rustix::process::{Pid, Signal};

/// Searches for marked processes: one that is starting another may be seen only the next time.
const SWEEPS_MAX: usize = 5;

/// A process that was seen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    id: Pid,
    /// Its process group's number.
    pub(super) group: i32,
    /// When it was started, in the kernel's ticks.
    started: u64,
}

/// Kills what has a marked entry in its environment, until a search finds nothing more.
pub(super) fn kill_marked(marked: &dyn Fn(&[u8]) -> bool) {
    for _ in 0..SWEEPS_MAX {
        if signal_marked(Signal::KILL, marked) == 0 {
            return;
        }
    }
}

#[cfg(target_os = "linux")]
pub(super) use proc::{descendants, running_since, signal, signal_marked};

#[cfg(target_os = "linux")]
mod proc {
    use std::collections::HashMap;

    use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

    use super::Seen;

    /// Signals what has a marked entry in its environment; how many that were.
    pub(in super::super) fn signal_marked(sent: Signal, marked: &dyn Fn(&[u8]) -> bool) -> usize {
        let is_marked = |id: Pid| {
            let environ = std::fs::read(format!("/proc/{id}/environ"));
            environ.is_ok_and(|all| all.split(|&b| b == 0).any(marked))
        };
        let hit = |id: &Pid| {
            // Asked again once the handle is held: then the number belongs to what the handle means.
            is_marked(*id)
                && pidfd_open(*id, PidfdFlags::empty())
                    .is_ok_and(|handle| is_marked(*id) && pidfd_send_signal(handle, sent).is_ok())
        };
        all().filter(hit).count()
    }

    /// All that descends from `root`, without it.
    pub(in super::super) fn descendants(root: Pid) -> Vec<Seen> {
        let mut children: HashMap<i32, Vec<Seen>> = HashMap::new();
        for (seen, parent) in all().filter_map(look) {
            children.entry(parent).or_default().push(seen);
        }
        let mut open = vec![root.as_raw_pid()];
        let mut found = Vec::new();
        while let Some(parent) = open.pop() {
            let born = children.remove(&parent).unwrap_or_default();
            open.extend(born.iter().map(|seen| seen.id.as_raw_pid()));
            found.extend(born);
        }
        found
    }

    /// When the process of that number was started. None: there is none, or nothing of it but its exit code.
    pub(in super::super) fn running_since(id: i32) -> Option<u64> {
        let id = Pid::from_raw(id)?;
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        let state = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace().next()?;
        look(id).map(|(seen, _)| seen.started).filter(|_| !matches!(state, "Z" | "X"))
    }

    /// Signals those that are still there.
    pub(in super::super) fn signal(sent: Signal, seen: &[Seen]) {
        for Seen { id, started, .. } in seen {
            let same = || look(*id).is_some_and(|(now, _)| now.started == *started);
            // One that has gone needs no signal.
            let _ = pidfd_open(*id, PidfdFlags::empty())
                .is_ok_and(|handle| same() && pidfd_send_signal(handle, sent).is_ok());
        }
    }

    fn all() -> impl Iterator<Item = Pid> {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
    }

    /// A process and its parent's number.
    fn look(id: Pid) -> Option<(Seen, i32)> {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // The name in parentheses may hold anything, also spaces and parentheses.
        let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
        let parent = fields.nth(1)?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        let started = fields.nth(16)?.parse().ok()?;
        Some((Seen { id, group, started }, parent))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn this_process_is_seen_as_its_parents_child() {
            let own = rustix::process::getpid();
            let (seen, parent) = look(own).unwrap();
            assert_eq!(Some(parent), rustix::process::getppid().map(|id| id.as_raw_pid()));
            let started_ticks = seen.started;
            assert_eq!(look(own).unwrap().0.started, started_ticks);
            assert!(descendants(Pid::from_raw(parent).unwrap()).iter().any(|seen| seen.id == own));
        }
    }
}

/// Only where `/proc` can be asked.
#[cfg(not(target_os = "linux"))]
pub(super) fn signal_marked(_sent: Signal, _marked: &dyn Fn(&[u8]) -> bool) -> usize {
    0
}

/// Only where `/proc` can be asked.
#[cfg(not(target_os = "linux"))]
pub(super) fn running_since(_id: i32) -> Option<u64> {
    None
}

/// Only where `/proc` can be asked.
#[cfg(not(target_os = "linux"))]
pub(super) fn descendants(_root: Pid) -> Vec<Seen> {
    Vec::new()
}

/// Only where `/proc` can be asked.
#[cfg(not(target_os = "linux"))]
pub(super) fn signal(_sent: Signal, _seen: &[Seen]) {}
