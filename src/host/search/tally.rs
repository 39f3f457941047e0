//! What the workers of a grep found, in the order of the paths, and no more of it than can be shown.
//!
//! Files come in any order. Once those with the first paths fill a page, everything behind them is dropped, and the
//! workers are told to leave the rest of the tree alone. So the result is that of a search in order, whoever was first.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering as Memory};

use parking_lot::Mutex;

use super::by_path;

/// Files that could not be read, remembered for what is said about them.
const FAILURES_MAX: usize = 1_000;

/// What one file gave.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::host) struct Hit {
    /// Matches, or those that were counted before it was enough.
    pub matches: usize,
    /// What it adds to the page, in entries.
    pub entries: usize,
    /// Its lines.
    pub text: String,
    /// The length of the lines in UTF-16 units.
    pub units: usize,
}

/// A path in the order of a walk.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Key(Vec<u8>);

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        by_path(&self.0, &other.0)
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Debug, Default)]
struct Kept {
    hits: BTreeMap<Key, Hit>,
    entries: usize,
    units: usize,
    failures: BTreeMap<Key, String>,
}

/// The hits of a search, shared by its workers.
#[derive(Debug)]
pub(in crate::host) struct Tally {
    /// More entries than these fill a page.
    entries_max: usize,
    /// More units than these fill it too.
    units_max: usize,
    kept: Mutex<Kept>,
    /// The page is full: only what comes before its last file can still count.
    full: AtomicBool,
}

/// A finished tally: hits and failures in the order of the paths.
#[derive(Debug, Default)]
pub(in crate::host) struct Found {
    /// The hits.
    pub hits: Vec<(Vec<u8>, Hit)>,
    /// What could not be read, and why.
    pub failures: Vec<(Vec<u8>, String)>,
}

impl Tally {
    /// A tally that is full beyond these.
    pub(in crate::host) fn new(entries_max: usize, units_max: usize) -> Self {
        Self { entries_max, units_max, kept: Mutex::default(), full: AtomicBool::new(false) }
    }

    /// Whether what is at (or below) this path can still count.
    pub(in crate::host) fn wants(&self, path: &[u8]) -> bool {
        if !self.full.load(Memory::Relaxed) {
            return true;
        }
        let kept = self.kept.lock();
        kept.hits.last_key_value().is_none_or(|(last, _)| by_path(path, &last.0).is_le())
    }

    /// Adds what a file gave.
    pub(in crate::host) fn add(&self, path: &[u8], hit: Hit) {
        let mut kept = self.kept.lock();
        kept.entries += hit.entries;
        kept.units += hit.units;
        kept.hits.insert(Key(path.to_vec()), hit);
        while let Some(last) = kept.hits.last_entry() {
            let (entries, units) = (last.get().entries, last.get().units);
            if kept.entries - entries <= self.entries_max && kept.units - units <= self.units_max {
                break;
            }
            kept.hits.pop_last();
            kept.entries -= entries;
            kept.units -= units;
        }
        if kept.entries > self.entries_max || kept.units > self.units_max {
            self.full.store(true, Memory::Relaxed);
        }
    }

    /// Notes what could not be read.
    pub(in crate::host) fn failed(&self, path: &[u8], why: String) {
        let mut kept = self.kept.lock();
        kept.failures.insert(Key(path.to_vec()), why);
        if kept.failures.len() > FAILURES_MAX {
            kept.failures.pop_last();
        }
    }

    /// What is left when the search is over. Failures behind the last hit of a full page are none of it.
    pub(in crate::host) fn finish(&self) -> Found {
        let mut kept = std::mem::take(&mut *self.kept.lock());
        if self.full.load(Memory::Relaxed)
            && let Some((last, _)) = kept.hits.last_key_value()
        {
            kept.failures.retain(|path, _| path <= last);
        }
        Found {
            hits: kept.hits.into_iter().map(|(path, hit)| (path.0, hit)).collect(),
            failures: kept.failures.into_iter().map(|(path, why)| (path.0, why)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hit(entries: usize, units: usize) -> Hit {
        Hit { matches: entries, entries, units, text: String::new() }
    }

    #[test]
    fn the_first_paths_win_whoever_comes_first() {
        let tally = Tally::new(3, 100);
        tally.add(b"c", hit(2, 0));
        tally.add(b"d", hit(2, 0));
        assert!(tally.wants(b"d") && tally.wants(b"b/x") && !tally.wants(b"e"), "full with c and d");
        tally.failed(b"z", "late".to_owned());
        tally.failed(b"a", "early".to_owned());
        tally.add(b"b", hit(2, 0));
        assert!(tally.wants(b"c") && !tally.wants(b"c/x"), "full with b and c");
        tally.add(b"a.rs", hit(0, 101));
        assert!(tally.wants(b"a/x") && !tally.wants(b"b"), "one file can fill it");
        let found = tally.finish();
        assert_eq!(found.hits.iter().map(|(path, _)| path.as_slice()).collect::<Vec<_>>(), [b"a.rs"]);
        assert_eq!(found.failures, [(b"a".to_vec(), "early".to_owned())]);
    }

    proptest! {
        #[test]
        fn the_order_of_arrival_does_not_matter(
            files in proptest::collection::btree_map("[ab/]{1,3}", (1_usize..4, 0_usize..4), 0..12),
            entries_max in 0_usize..8,
            seed in any::<u64>(),
        ) {
            let files: Vec<_> = files.into_iter().collect();
            let mut shuffled = files.clone();
            shuffled.sort_by_key(|(path, _)| {
                path.bytes().fold(seed, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15))
            });
            let run = |files: &[(String, (usize, usize))]| {
                let tally = Tally::new(entries_max, 6);
                for (path, (entries, units)) in files {
                    if tally.wants(path.as_bytes()) {
                        tally.add(path.as_bytes(), hit(*entries, *units));
                    }
                }
                tally.finish().hits
            };
            prop_assert_eq!(run(&files), run(&shuffled));
        }
    }
}
