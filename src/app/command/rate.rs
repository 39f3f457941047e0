//! How many commands a client may give in a minute: two shares, one for controls, so that who has used up the
//! other can still stop what runs.
//!
//! A share is full when it has not been used for a minute, and fills up evenly. Full ones are not remembered. Where several servers share a
//! store, each takes out of its shares what clients have used on the others, as soon as it hears of it: about a second later.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::base::limit;
use crate::protocol::{ApiError, ErrorCode};
use crate::store::CommandsGiven;

/// What of a share is left, and when that was so.
#[derive(Debug, Clone, Copy)]
struct Share {
    left: f64,
    at: Instant,
}

impl Share {
    /// As it is then, of `all` a minute.
    fn filled(self, now: Instant, all: f64) -> Self {
        let left = self.left + now.duration_since(self.at).as_secs_f64() * all / 60.0;
        Self { left: left.min(all), at: now }
    }
}

/// All shares.
#[derive(Debug)]
pub(super) struct Rate {
    per_minute: AtomicU32,
    shares: Mutex<HashMap<(String, bool), Share>>,
    /// What was taken here since others were told; none: there is nobody to tell.
    taken: Option<Mutex<HashMap<(String, bool), u32>>>,
}

impl Rate {
    /// So many commands a minute for each client; 0: as many as they like.
    pub(super) fn new(per_minute: u32) -> Self {
        Self { per_minute: per_minute.into(), shares: Mutex::default(), taken: None }
    }

    /// The same of a server among others, whom it tells of what was taken.
    pub(super) fn among_others(self) -> Self {
        Self { taken: Some(Mutex::default()), ..self }
    }

    /// What was taken here since the last time.
    pub(super) fn taken(&self) -> Vec<CommandsGiven> {
        let Some(taken) = &self.taken else { return Vec::new() };
        let taken = std::mem::take(&mut *taken.lock());
        let given = |((client, control), count)| CommandsGiven { client, control, count };
        taken.into_iter().map(given).collect()
    }

    /// Takes out what was used on another server. What was used there beyond the share is made up for: nothing is allowed here until it has
    /// filled again.
    pub(super) fn take_elsewhere(&self, given: Vec<CommandsGiven>) {
        let per_minute = self.per_minute.load(Ordering::Relaxed);
        if per_minute == 0 {
            return;
        }
        let (now, all) = (Instant::now(), f64::from(per_minute));
        let mut shares = self.shares.lock();
        for CommandsGiven { client, control, count } in given {
            let key = (client, control);
            let known = shares.get(&key).map(|share| share.filled(now, all));
            if known.is_none() && shares.len() >= limit::RATED_CLIENTS_MAX {
                continue;
            }
            let left = known.map_or(all, |share| share.left) - f64::from(count);
            shares.insert(key, Share { left: left.max(-all), at: now });
        }
    }

    /// Another number from now on. What is left of a share is no more than a full one.
    pub(super) fn set(&self, per_minute: u32) {
        self.per_minute.store(per_minute, Ordering::Relaxed);
    }

    /// Shares that are not full.
    pub(super) fn count(&self) -> usize {
        self.shares.lock().len()
    }

    /// Takes one out of a client's share.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` when nothing is left.
    pub(super) fn take(&self, client: &str, control: bool) -> Result<(), ApiError> {
        let per_minute = self.per_minute.load(Ordering::Relaxed);
        if per_minute == 0 {
            return Ok(());
        }
        let (now, all) = (Instant::now(), f64::from(per_minute));
        let mut shares = self.shares.lock();
        if shares.len() >= limit::RATED_CLIENTS_MAX {
            shares.retain(|_, share| share.filled(now, all).left < all);
        }
        let full = shares.len() >= limit::RATED_CLIENTS_MAX;
        let key = (client.to_owned(), control);
        let share = shares.get(&key).map_or(Share { left: all, at: now }, |share| share.filled(now, all));
        let refused = share.left < 1.0 || (full && !shares.contains_key(&key));
        if refused {
            let message = format!("{} commands a minute are allowed, and all are used; wait a little", per_minute);
            return Err(ApiError::new(ErrorCode::ResourceExhausted, message));
        }
        if let Some(taken) = &self.taken {
            *taken.lock().entry(key.clone()).or_default() += 1;
        }
        shares.insert(key, Share { left: share.left - 1.0, ..share });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_share_is_used_up_and_fills_again() {
        let rate = Rate::new(2);
        let take = |client: &str, control| rate.take(client, control).is_ok();
        assert_eq!([take("a", false), take("a", false), take("a", false)], [true, true, false]);
        assert!(take("a", true), "controls have a share of their own");
        assert!(take("b", false), "so has everybody else");
        tokio::time::advance(Duration::from_secs(29)).await;
        assert!(!take("a", false));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!([take("a", false), take("a", false)], [true, false]);
        let free = Rate::new(0);
        assert!((0..100).all(|_| free.take("a", false).is_ok()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_share_is_one_of_all_servers() {
        let [one, two] = [0; 2].map(|_| Rate::new(6).among_others());
        let taken = |rate: &Rate, times: u32| (0..times).filter(|_| rate.take("a", false).is_ok()).count();
        assert_eq!([taken(&one, 4), taken(&two, 4)], [4, 4], "nobody has told them yet");
        let (of_one, of_two) = (one.taken(), two.taken());
        assert_eq!(of_one, [CommandsGiven { client: "a".into(), control: false, count: 4 }]);
        assert!(one.taken().is_empty(), "it is told once");
        one.take_elsewhere(of_two);
        two.take_elsewhere(of_one);
        assert_eq!([taken(&one, 1), taken(&two, 1)], [0, 0]);
        assert!(one.take("a", true).is_ok() && two.take("b", false).is_ok());
        // Two that were too many are made up for.
        tokio::time::advance(Duration::from_secs(20)).await;
        assert_eq!([taken(&one, 1), taken(&two, 1)], [0, 0]);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!([taken(&one, 2), taken(&two, 2)], [1, 1]);
        let alone = Rate::new(6);
        assert!(alone.take("a", false).is_ok() && alone.taken().is_empty());
    }
}
