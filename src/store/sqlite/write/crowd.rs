//! The pause between transactions when many write at once, so that what they write goes together.

use std::time::{Duration, Instant};

/// From so many commits in a transaction on, others are on their way: the next one waits for them.
const CROWD: usize = 16;
/// How much longer than such a transaction the pause behind it is, so that a crowd takes a quarter of the writer's time.
const CROWD_REST: u32 = 3;
/// Longest pause behind one. A delta is on its way for some tens of milliseconds at most.
const CROWD_REST_MAX: Duration = Duration::from_millis(8);

/// Many write at once. A transaction costs as much for one as for fifty, so each of theirs is left time to grow.
#[derive(Default)]
pub(super) struct Crowd {
    /// Until when the next transaction waits.
    until: Option<Instant>,
}

impl Crowd {
    /// A transaction of so many commits has taken so long.
    pub(super) fn came(&mut self, commits: usize, took: Duration) {
        self.until = (commits >= CROWD).then(|| Instant::now() + (took * CROWD_REST).min(CROWD_REST_MAX));
    }

    /// Where the last transaction was one of many commits: until its pause is over.
    pub(super) fn wait(&mut self) {
        if let Some(until) = self.until.take() {
            std::thread::sleep(until.saturating_duration_since(Instant::now()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_crowd_is_waited_for_and_not_for_long() {
        let pause = |commits, took| {
            let mut crowd = Crowd::default();
            crowd.came(commits, Duration::from_millis(took));
            crowd.until.map(|until| until.saturating_duration_since(Instant::now()))
        };
        assert_eq!([pause(1, 50), pause(CROWD - 1, 50)], [None, None]);
        assert!(pause(CROWD, 1).is_some_and(|pause| pause <= Duration::from_millis(3)));
        assert!(pause(CROWD, 500).is_some_and(|pause| pause <= CROWD_REST_MAX));
        // A lone commit behind a crowd's ends the pauses.
        let mut crowd = Crowd::default();
        crowd.came(CROWD, Duration::from_millis(1));
        crowd.came(1, Duration::from_millis(1));
        assert!(crowd.until.is_none());
    }
}
