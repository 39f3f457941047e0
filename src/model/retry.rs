//! When a broken stream is tried again.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// How often, and with which pauses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Attempts in all; 1 means no retry.
    pub attempts_max: u32,
    /// Pause before the first retry; doubles with each, with jitter.
    pub base_delay: Duration,
    /// Longest pause, whatever the provider asks.
    pub delay_max: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { attempts_max: 3, base_delay: Duration::from_millis(500), delay_max: Duration::from_secs(30) }
    }
}

impl RetryPolicy {
    /// The pause after attempt number `failed` (from 1). `jitter` lies in 0..1 and takes up to half of it away.
    ///
    /// What the provider asked for counts when it is longer; nothing is longer than `delay_max`.
    pub fn delay(&self, failed: u32, retry_after: Option<Duration>, jitter: f64) -> Duration {
        let doublings = failed.saturating_sub(1).min(31);
        let full = self.base_delay.saturating_mul(1 << doublings).min(self.delay_max);
        let own = full.mul_f64(1.0 - jitter.clamp(0.0, 1.0) / 2.0);
        own.max(retry_after.unwrap_or_default()).min(self.delay_max)
    }
}

/// A number in 0..1 that differs from call to call. Not for secrets.
pub fn jitter() -> f64 {
    // Each RandomState has keys of its own; 53 bits fit an f64 exactly.
    #[allow(clippy::cast_precision_loss, reason = "the value is below 2^53")]
    let value = (RandomState::new().hash_one(0_u8) >> 11) as f64;
    #[allow(clippy::cast_precision_loss, reason = "2^53 is exact")]
    let range = (1_u64 << 53) as f64;
    value / range
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_limit_and_heed_the_provider() {
        let policy = RetryPolicy {
            attempts_max: 9,
            base_delay: Duration::from_millis(100),
            delay_max: Duration::from_millis(1000),
        };
        #[rustfmt::skip]
        let table = [
            // failed, asked (ms), jitter, want (ms)
            (1, None,       0.0, 100),
            (2, None,       0.0, 200),
            (4, None,       0.0, 800),
            (5, None,       0.0, 1000),
            (99, None,      0.0, 1000),
            (1, None,       1.0, 50),
            (3, None,       0.5, 300),
            (1, Some(700),  0.0, 700),
            (4, Some(700),  0.0, 800),
            (1, Some(9000), 0.0, 1000),
        ];
        for (failed, asked, jitter, want) in table {
            let got = policy.delay(failed, asked.map(Duration::from_millis), jitter);
            assert_eq!(got, Duration::from_millis(want), "{failed} {asked:?} {jitter}");
        }
    }

    #[test]
    fn jitter_lies_in_its_range_and_varies() {
        let values: Vec<f64> = (0..100).map(|_| jitter()).collect();
        assert!(values.iter().all(|v| (0.0..1.0).contains(v)));
        assert!(values.iter().any(|v| v != &values[0]));
    }
}
