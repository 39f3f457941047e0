//! When a broken stream is tried again.

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
