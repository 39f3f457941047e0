//! How many commands a client may give in a minute: two shares, one for controls, so that who has used up the
//! other can still stop what runs.
//!
//! A share is full when it has not been used for a minute, and fills up evenly. Full ones are not remembered.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::base::limit;
use crate::protocol::{ApiError, ErrorCode};

/// What of a share is left, and when that was so.
#[derive(Debug, Clone, Copy)]
struct Share {
    left: f64,
    at: Instant,
}

/// All shares.
#[derive(Debug)]
pub(super) struct Rate {
    per_minute: AtomicU32,
    shares: Mutex<HashMap<(String, bool), Share>>,
}

impl Rate {
    /// So many commands a minute for each client; 0: as many as they like.
    pub(super) fn new(per_minute: u32) -> Self {
        Self { per_minute: per_minute.into(), shares: Mutex::default() }
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
        let filled = |share: Share| {
            let left = share.left + now.duration_since(share.at).as_secs_f64() * all / 60.0;
            Share { left: left.min(all), at: now }
        };
        let mut shares = self.shares.lock();
        if shares.len() >= limit::RATED_CLIENTS_MAX {
            shares.retain(|_, share| filled(*share).left < all);
        }
        let full = shares.len() >= limit::RATED_CLIENTS_MAX;
        let key = (client.to_owned(), control);
        let share = shares.get(&key).map_or(Share { left: all, at: now }, |share| filled(*share));
        let refused = share.left < 1.0 || (full && !shares.contains_key(&key));
        if refused {
            let message = format!("{} commands a minute are allowed, and all are used; wait a little", per_minute);
            return Err(ApiError::new(ErrorCode::ResourceExhausted, message));
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
}
