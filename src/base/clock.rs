//! The clock: the only place that reads the time of day.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Now, in milliseconds since 1970, UTC. 0 on a machine whose clock stands before that.
pub fn now_ms() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
    #[cfg(test)]
    let now = now.saturating_add_signed(wrong::by());
    now
}

/// Now, in nanoseconds since 1970, UTC.
pub fn now_ns() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
}

/// Now, as RFC 3339 in UTC, such as `2026-11-21T22:37:08.123Z`.
pub fn now_text() -> String {
    jiff::Timestamp::now().round(jiff::Unit::Millisecond).unwrap_or_else(|_| jiff::Timestamp::now()).to_string()
}

/// Now, in the form of HTTP's `Date`, such as `Sat, 21 Nov 2026 22:37:08 GMT`.
pub fn http_date() -> String {
    let now = jiff::Timestamp::now();
    jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&now).unwrap_or_default()
}

/// A file's time in the same form, always with three digits of a second. Times outside the calendar are its ends.
pub fn text_of(time: SystemTime) -> String {
    let time = jiff::Timestamp::try_from(time)
        .unwrap_or_else(|_| if time < UNIX_EPOCH { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX });
    format!("{time:.3}")
}

/// Milliseconds since 1970 in the same form.
pub fn text_of_ms(ms: u64) -> String {
    text_of(UNIX_EPOCH.checked_add(Duration::from_millis(ms)).unwrap_or(UNIX_EPOCH))
}

/// A clock that somebody has set: tests on one thread, which others do not see.
#[cfg(test)]
pub(crate) mod wrong {
    use std::cell::Cell;

    thread_local! {
        static BY_MS: Cell<i64> = const { Cell::new(0) };
    }

    /// By how much it is wrong, in milliseconds.
    pub(crate) fn by() -> i64 {
        BY_MS.get()
    }

    /// Sets it.
    pub(crate) fn set(by_ms: i64) {
        BY_MS.set(by_ms);
    }
}
