//! The clock: the only place that reads the time of day.
//!
//! A process that writes to a database beside others goes by the database's clock ([`follow`]), so that times which one server kept mean
//! the same to another one, however wrong the clocks of their machines are. What belongs to a machine, such as the times of its files, and
//! what is said to others than the users of this server, goes by [`machine_ms`].

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How far the clock that is followed is ahead of the steady one, in milliseconds.
static AHEAD: AtomicI64 = AtomicI64::new(OWN);
/// Instead of that: none is followed.
const OWN: i64 = i64::MIN;
/// Whether one is followed: a process has one time of day.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);
/// A clock that nobody sets: it counts from here.
static STEADY: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Now, in milliseconds since 1970, UTC: by the clock that is followed, else by the machine's.
pub fn now_ms() -> u64 {
    let now = match AHEAD.load(Ordering::Relaxed) {
        OWN => machine_ms(),
        ahead => u64::try_from(steady_ms(Instant::now()).saturating_add(ahead)).unwrap_or_default(),
    };
    #[cfg(test)]
    let now = now.saturating_add_signed(wrong::by());
    now
}

/// Now, in milliseconds since 1970, UTC, by the clock of this machine. 0 on one whose clock stands before that.
pub fn machine_ms() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}

/// By how many milliseconds this machine's clock is ahead of the one that is followed. None: none is.
pub fn machine_ahead_ms() -> Option<i64> {
    (AHEAD.load(Ordering::Relaxed) != OWN).then(|| {
        let ahead = i128::from(machine_ms()) - i128::from(now_ms());
        i64::try_from(ahead).unwrap_or(i64::MAX)
    })
}

/// From now on the time of day is that of a clock elsewhere, as it is [heard](Following::heard), until what is returned is gone. None:
/// another one is followed.
pub fn follow() -> Option<Following> {
    (!IS_TAKEN.swap(true, Ordering::AcqRel)).then_some(Following(()))
}

/// A clock elsewhere that the time of day follows.
#[derive(Debug)]
pub struct Following(());

impl Following {
    /// Notes what it said in an answer to what was sent then, and was heard just now.
    pub fn heard(&self, said_ms: u64, sent: Instant) {
        let known = AHEAD.load(Ordering::Relaxed);
        let ahead = ahead((known != OWN).then_some(known), said_ms, (steady_ms(sent), steady_ms(Instant::now())));
        AHEAD.store(ahead, Ordering::Relaxed);
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        AHEAD.store(OWN, Ordering::Relaxed);
        IS_TAKEN.store(false, Ordering::Release);
    }
}

/// It was read at some moment between the sending and the hearing: what is `known` stays as long as that can be true.
fn ahead(known: Option<i64>, said_ms: u64, (sent, heard): (i64, i64)) -> i64 {
    let said = i64::try_from(said_ms).unwrap_or(i64::MAX);
    let (least, most) = (said.saturating_sub(heard), said.saturating_sub(sent));
    known.unwrap_or_else(|| least.midpoint(most)).clamp(least, most.max(least))
}

fn steady_ms(at: Instant) -> i64 {
    let start = *STEADY;
    let whole = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    at.checked_duration_since(start).map_or_else(|| -whole(start.duration_since(at)), whole)
}

/// Now, in nanoseconds since 1970, UTC, by the clock of this machine.
pub fn now_ns() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
}

/// Now, as RFC 3339 in UTC, such as `2026-11-21T22:37:08.123Z`.
pub fn now_text() -> String {
    text_of_ms(now_ms())
}

/// Now by the clock of this machine, in the form of HTTP's `Date`, such as `Sat, 21 Nov 2026 22:37:08 GMT`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_of_a_clock_stays_as_long_as_it_can_be_true() {
        // Known, said, sent and heard; what is known then.
        let cases = [
            (None, 10_000, (100, 120), 9_890),
            (Some(9_890), 10_500, (600, 640), 9_890),
            (Some(9_890), 10_500, (600, 605), 9_895),
            (Some(9_890), 10_500, (612, 640), 9_888),
            // It was set, forth and back.
            (Some(9_890), 610_000, (100, 120), 609_880),
            (Some(609_880), 10_000, (100, 120), 9_900),
            // A process that stood still between the two learns nothing, and forgets nothing.
            (Some(9_890), 10_500, (600, 60_600), 9_890),
            (None, 0, (0, 0), 0),
            (None, u64::MAX, (-5, 5), i64::MAX - 3),
        ];
        for (known, said, times, wanted) in cases {
            assert_eq!(ahead(known, said, times), wanted, "{known:?} {said} {times:?}");
        }
    }

    #[test]
    fn the_steady_clock_counts_both_ways() {
        let start = *STEADY;
        assert_eq!(steady_ms(start + Duration::from_millis(5)), 5);
        let before = start.checked_sub(Duration::from_millis(5));
        assert!(before.is_none_or(|before| steady_ms(before) == -5));
    }

    #[test]
    fn texts_say_the_time_of_day() {
        let text = now_text();
        assert!(text.len() == 24 && text.ends_with('Z'), "{text}");
        let date = http_date();
        assert!(date.ends_with(" GMT") && date.contains(&format!(" {} ", &text[..4])), "{date} {text}");
    }
}
