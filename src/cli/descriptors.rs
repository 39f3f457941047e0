//! File descriptors: enough for all the connections and turns that may be, or fewer of these.
//!
//! A server that has none left can neither be asked nor be told to stop anything. So the soft limit is raised as far as it is needed, and
//! what does not fit is refused by the limits that say so.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::base::limit;
use crate::config::Launch;

/// Raises the limit of this process. The same launch, with fewer connections and turns where even the hard limit is too low for them.
pub(super) fn fit(launch: &Launch) -> Launch {
    let mut launch = launch.clone();
    let wanted = (launch.listen.connections_max, launch.settings.limits.turns_max);
    let (connections, turns) = share(wanted, raised(needed(wanted)));
    if (connections, turns) != wanted {
        tracing::warn!(
            connections,
            turns,
            "the limit of open files (`ulimit -n`) is too low for all connections and turns that may be; so many may be at once"
        );
    }
    (launch.listen.connections_max, launch.settings.limits.turns_max) = (connections, turns);
    launch
}

fn needed((connections, turns): (usize, usize)) -> u64 {
    let both = (connections as u64).saturating_add(turns as u64);
    both.saturating_add(limit::DESCRIPTORS_BESIDE)
}

/// How many descriptors there may be once the soft limit is as high as it can be, and no higher than is needed. None: as many as
/// one likes.
fn raised(needed: u64) -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let soft = current?;
    let wanted = maximum.map_or(needed, |hard| needed.min(hard));
    if soft >= wanted {
        return Some(soft);
    }
    match setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }) {
        Ok(()) => Some(wanted),
        Err(_) => Some(soft),
    }
}

/// Connections and turns for which that is enough.
fn share((connections, turns): (usize, usize), descriptors: Option<u64>) -> (usize, usize) {
    match descriptors {
        Some(few) if few < needed((connections, turns)) => {
            let part = |of: u64| usize::try_from(few / of).unwrap_or(usize::MAX).max(1);
            (connections.min(part(2)), turns.min(part(4)))
        }
        Some(_) | None => (connections, turns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_shared() {
        #[rustfmt::skip]
        let table = [
            ((10_000, 4_000), None, (10_000, 4_000)),
            ((10_000, 4_000), Some(15_024), (10_000, 4_000)),
            ((10_000, 4_000), Some(15_023), (7_511, 3_755)),
            ((10_000, 4_000), Some(1_024), (512, 256)),
            ((100, 4_000), Some(1_024), (100, 256)),
            ((usize::MAX, usize::MAX), Some(20_000), (10_000, 5_000)),
            ((5, 5), Some(3), (1, 1)),
        ];
        for (wanted, descriptors, fits) in table {
            assert_eq!(share(wanted, descriptors), fits, "{wanted:?} of {descriptors:?}");
        }
    }
}
