//! Counting without locks, and the text in which Prometheus reads the counts.
//!
//! What is counted belongs to whoever holds it, never to the process: several servers in one process each have their own
//! (`meters`). A count on the way of a request or an event is one atomic addition; a duration is three.
//!
//! Invariant: the label values of a [`Family`] are bounded: behind its limit everything counts as `other`.
//! `benches/metrics.rs` measures what a count costs.

pub mod meters;
mod page;
pub mod process;

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

pub use page::{Kind, Page};

/// The value of a label that would be one too many.
pub const OTHER: &str = "other";

/// Adds to a sum that never falls: at its end it stays.
fn grow(sum: &AtomicU64, more: u64) {
    let grown = |so_far: u64| Some(so_far.saturating_add(more));
    // It is never refused: there is always a next value.
    let _ = sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown);
}

/// A number that only grows, also by what others say.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds so much.
    pub fn add(&self, more: u64) {
        grow(&self.0, more);
    }

    /// Adds one.
    pub fn count(&self) {
        self.add(1);
    }

    /// How much it is.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How many of something there are now.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// One more, until what is given back is dropped.
    pub fn enter(self: &Arc<Self>) -> Entered {
        self.0.fetch_add(1, Ordering::Relaxed);
        Entered(Arc::clone(self))
    }

    /// How many there are.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One of those that a [`Gauge`] counts.
#[derive(Debug)]
pub struct Entered(Arc<Gauge>);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What the buckets of a [`Histogram`] are.
#[derive(Debug)]
pub struct Scale {
    /// The upper bounds, ascending, in the raw unit: nanoseconds, or things.
    pub bounds: &'static [u64],
    /// What one raw unit is in the unit of the metric.
    pub unit: f64,
}

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

/// Durations of what answers at once, such as a request or a commit: from a tenth of a millisecond to ten seconds.
pub const QUICK: Scale = Scale {
    bounds: &[
        MS / 10,
        MS / 4,
        MS / 2,
        MS,
        5 * MS / 2,
        5 * MS,
        10 * MS,
        25 * MS,
        50 * MS,
        100 * MS,
        250 * MS,
        500 * MS,
        S,
        5 * S / 2,
        5 * S,
        10 * S,
    ],
    unit: 1e-9,
};
/// Durations of what takes its time, such as a turn or a tool: from five milliseconds to an hour.
pub const SLOW: Scale = Scale {
    bounds: &[
        5 * MS,
        25 * MS,
        100 * MS,
        250 * MS,
        500 * MS,
        S,
        5 * S / 2,
        5 * S,
        10 * S,
        30 * S,
        60 * S,
        120 * S,
        300 * S,
        600 * S,
        1_800 * S,
        3_600 * S,
    ],
    unit: 1e-9,
};
/// Numbers of things that go together.
pub const SIZES: Scale = Scale { bounds: &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512], unit: 1.0 };

/// How often values lay under each of some bounds, and their sum.
#[derive(Debug)]
pub struct Histogram {
    scale: &'static Scale,
    /// One for each bound, and one for what lies above all of them.
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    /// An empty one.
    pub fn new(scale: &'static Scale) -> Self {
        let buckets = (0..=scale.bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { scale, buckets, sum: AtomicU64::new(0) }
    }

    /// Counts a value in the raw unit.
    pub fn record(&self, raw: u64) {
        let at = self.scale.bounds.partition_point(|bound| *bound < raw);
        if let Some(bucket) = self.buckets.get(at) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        grow(&self.sum, raw);
    }

    /// Counts a duration, of a scale whose raw unit is the nanosecond.
    pub fn took(&self, time: Duration) {
        self.record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// How many values it has seen.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).sum()
    }

    /// The upper bounds in the metric's unit with how many values were counted in each bucket alone, the last one
    /// without a bound; and the sum of all values.
    fn look(&self) -> (Vec<(f64, u64)>, f64) {
        #[allow(clippy::cast_precision_loss, reason = "a metric is a float: 53 bits of a sum are enough")]
        let unit = |raw: u64| raw as f64 * self.scale.unit;
        let bounds = self.scale.bounds.iter().map(|bound| unit(*bound)).chain([f64::INFINITY]);
        let counts = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed));
        (bounds.zip(counts).collect(), unit(self.sum.load(Ordering::Relaxed)))
    }
}

/// Counts of one kind, told apart by one label.
#[derive(Debug)]
pub struct Family<T> {
    members: RwLock<HashMap<Box<str>, Arc<T>>>,
    members_max: usize,
}

impl<T: Default> Family<T> {
    /// An empty one, for at most so many values of its label beside [`OTHER`].
    pub fn new(members_max: usize) -> Self {
        Self { members: RwLock::default(), members_max }
    }

    /// The counts of this value.
    pub fn of(&self, value: &str) -> Arc<T> {
        if let Some(found) = self.members.read().unwrap_or_else(PoisonError::into_inner).get(value) {
            return Arc::clone(found);
        }
        let mut members = self.members.write().unwrap_or_else(PoisonError::into_inner);
        let full = members.len() >= self.members_max && !members.contains_key(value);
        Arc::clone(members.entry(if full { OTHER } else { value }.into()).or_default())
    }

    /// All of them, by value.
    pub fn list(&self) -> Vec<(Box<str>, Arc<T>)> {
        let members = self.members.read().unwrap_or_else(PoisonError::into_inner);
        let mut list: Vec<_> = members.iter().map(|(value, counts)| (value.clone(), Arc::clone(counts))).collect();
        list.sort_by(|a, b| a.0.cmp(&b.0));
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_lies_in_the_first_bucket_that_holds_it() {
        let sizes = Histogram::new(&SIZES);
        for size in [0, 1, 2, 3, 512, 513, 9_000] {
            sizes.record(size);
        }
        let (buckets, sum) = sizes.look();
        let counts: Vec<u64> = buckets.iter().map(|(_, count)| *count).collect();
        assert_eq!(counts, [2, 1, 1, 0, 0, 0, 0, 0, 0, 1, 2]);
        assert!((sum - 10_031.0).abs() < f64::EPSILON);
        assert_eq!(sizes.count(), 7);
        let quick = Histogram::new(&QUICK);
        quick.took(Duration::from_millis(3));
        let (buckets, sum) = quick.look();
        assert_eq!(buckets.iter().find(|(_, count)| *count == 1).map(|(bound, _)| *bound), Some(0.005));
        assert!((sum - 0.003).abs() < 1e-9, "{sum}");
    }

    #[test]
    fn what_grows_never_falls() {
        let (counter, histogram) = (Counter::default(), Histogram::new(&SLOW));
        for (more, want) in [(10, 10), (u64::MAX, u64::MAX), (1, u64::MAX), (0, u64::MAX)] {
            counter.add(more);
            histogram.record(more);
            assert_eq!((counter.get(), histogram.sum.load(Ordering::Relaxed)), (want, want), "{more}");
        }
        counter.count();
        assert_eq!(counter.get(), u64::MAX);
    }

    #[test]
    fn scales_ascend() {
        for scale in [&QUICK, &SLOW, &SIZES] {
            assert!(scale.bounds.is_sorted_by(|a, b| a < b), "{:?}", scale.bounds);
        }
    }

    #[test]
    fn label_values_are_bounded() {
        let family: Family<Counter> = Family::new(2);
        for value in ["a", "b", "a", "c", "d", "b"] {
            family.of(value).count();
        }
        let list: Vec<_> = family.list().into_iter().map(|(value, count)| (value.to_string(), count.get())).collect();
        assert_eq!(list, [("a".to_owned(), 2), ("b".to_owned(), 2), (OTHER.to_owned(), 2)]);
    }

    #[test]
    fn a_gauge_counts_those_that_are_there() {
        let gauge = Arc::new(Gauge::default());
        let one = gauge.enter();
        let two = gauge.enter();
        drop(one);
        assert_eq!(gauge.get(), 1);
        drop(two);
        assert_eq!(gauge.get(), 0);
    }
}
