//! What one holder of a budget has spent, the time of what runs now included.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::protocol::{Budget, BudgetKind, ClientId, SessionId, Spending};

/// What was spent, and what runs.
#[derive(Debug, Clone, Default)]
pub(super) struct Account {
    /// Without the time since this server knows of it.
    spent: Spending,
    /// What other servers say was spent there.
    elsewhere: Spending,
    ran: Duration,
    running: u32,
    since: Option<Instant>,
}

impl Account {
    /// One of which so much is known.
    pub(super) fn with(spent: Spending) -> Self {
        Self { spent, ..Self::default() }
    }

    /// All of it, now.
    pub(super) fn total(&self, now: Instant) -> Spending {
        self.own(now).plus(self.elsewhere)
    }

    /// What was spent on this server.
    pub(super) fn own(&self, now: Instant) -> Spending {
        let time_ms = u64::try_from(self.ran_until(now).as_millis()).unwrap_or(u64::MAX);
        self.spent.plus(Spending { time_ms, ..Spending::default() })
    }

    pub(super) fn add(&mut self, more: Spending) {
        self.spent = self.spent.plus(more);
    }

    /// So many more run from now on, or less.
    pub(super) fn runs(&mut self, now: Instant, begins: bool) {
        self.ran = self.ran_until(now);
        self.since = Some(now);
        self.running = if begins { self.running.saturating_add(1) } else { self.running.saturating_sub(1) };
    }

    /// How long it is until the time of a budget is over, if all goes on as it does. None: it has no limit.
    pub(super) fn left(&self, budget: &Budget, now: Instant) -> Option<Duration> {
        let limit = budget.limit(BudgetKind::TimeMs)?;
        let left = Duration::from_millis(limit.saturating_sub(self.total(now).time_ms));
        Some(left / self.running.max(1))
    }

    fn ran_until(&self, now: Instant) -> Duration {
        let since = self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        self.ran.saturating_add(since.saturating_mul(self.running))
    }
}

/// Those of a session that is above all, and of the sessions under it.
#[derive(Debug)]
pub(in crate::session) struct Tree {
    pub(super) accounts: Mutex<HashMap<SessionId, Account>>,
    /// One call at a time is looked at and counted.
    pub(super) calls: Mutex<()>,
    /// Something has begun or ended: what was reckoned of time is to be reckoned anew.
    pub(super) moved: watch::Sender<()>,
}

impl Tree {
    pub(super) fn of(accounts: HashMap<SessionId, Account>) -> Self {
        Self { accounts: Mutex::new(accounts), calls: Mutex::new(()), moved: watch::Sender::default() }
    }
}

/// A client's, in a span of time.
#[derive(Debug)]
pub(super) struct ClientAccount {
    pub(super) client: Option<ClientId>,
    state: Mutex<Span>,
    /// When it was asked for what is spent elsewhere, last.
    asked: Mutex<Option<Instant>>,
    pub(super) moved: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Span {
    /// When it began, in milliseconds since 1970.
    began: u64,
    account: Account,
    /// What other servers say was spent there, and in the span that began when.
    elsewhere: (u64, Spending),
}

impl Span {
    /// What was spent elsewhere counts in its own span.
    fn count_elsewhere(&mut self) {
        let (began, spent) = self.elsewhere;
        self.account.elsewhere = if began == self.began { spent } else { Spending::default() };
    }
}

/// When the span of time began in which `now` lies; all of them have one length.
pub(super) fn span_of(now_ms: u64, window_ms: u64) -> u64 {
    now_ms - now_ms % window_ms.max(1)
}

impl ClientAccount {
    pub(super) fn new(client: Option<ClientId>, (began, spent): (u64, Spending)) -> Self {
        let state = Mutex::new(Span { began, account: Account::with(spent), ..Span::default() });
        Self { client, state, asked: Mutex::default(), moved: watch::Sender::default() }
    }

    /// Whether it is known what was spent elsewhere so long ago.
    pub(super) fn is_known_since(&self, longest: Duration) -> bool {
        self.asked.lock().is_some_and(|asked| asked.elapsed() <= longest)
    }

    /// Other servers say so much was spent there in the span that began then; they were asked at that moment.
    pub(super) fn know_elsewhere(&self, elsewhere: (u64, Spending), asked: Instant) {
        *self.asked.lock() = Some(asked);
        let mut span = self.state.lock();
        let before = span.account.elsewhere;
        span.elsewhere = elsewhere;
        span.count_elsewhere();
        let has_changed = span.account.elsewhere != before;
        drop(span);
        if has_changed {
            self.moved.send_replace(());
        }
    }

    /// Does something with what is spent in the span in which we are, and says when that began. What runs from the one before
    /// into this one counts in each for its own part.
    pub(super) fn with<T>(&self, began: u64, act: impl FnOnce(&mut Account) -> T) -> T {
        let mut span = self.state.lock();
        if span.began > began {
            // The clock was set back. What is spent stays spent, and is over when the span is in which we are now.
            span.began = began;
            span.count_elsewhere();
        }
        if span.began < began {
            let running = span.account.running;
            let since = Some(Instant::now());
            let account = Account { running, since, ..Account::default() };
            *span = Span { began, account, elsewhere: span.elsewhere };
            span.count_elsewhere();
        }
        act(&mut span.account)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_runs_side_by_side_counts_each() {
        let mut account = Account::with(Spending { time_ms: 100, turns: 1, ..Spending::default() });
        let budget = Budget { time_ms: Some(1_000), ..Budget::default() };
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        account.runs(at(0), true);
        assert_eq!(account.total(at(50)).time_ms, 150);
        assert_eq!(account.left(&budget, at(100)), Some(Duration::from_millis(800)));
        account.runs(at(100), true);
        assert_eq!(account.left(&budget, at(100)), Some(Duration::from_millis(400)));
        assert_eq!(account.total(at(200)).time_ms, 400);
        account.runs(at(200), false);
        account.runs(at(300), false);
        assert_eq!((account.total(at(900)).time_ms, account.total(at(900)).turns), (500, 1));
        assert_eq!(account.left(&Budget::default(), at(900)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_clients_account_begins_anew_with_its_span() {
        assert_eq!([0, 99, 100, 250].map(|now| span_of(now, 100)), [0, 0, 100, 200]);
        let account = ClientAccount::new(None, (100, Spending { tokens: 7, ..Spending::default() }));
        let tokens = |began| account.with(began, |account| account.total(Instant::now()).tokens);
        account.with(100, |account| account.add(Spending { tokens: 3, ..Spending::default() }));
        assert_eq!(tokens(100), 10);
        assert_eq!(tokens(200), 0);
        // A clock that was set back gives nothing back.
        account.with(200, |account| account.add(Spending { tokens: 2, ..Spending::default() }));
        assert_eq!(tokens(100), 2);
        // Nor does it take the next span away.
        assert_eq!(tokens(200), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_spent_elsewhere_counts_and_is_not_this_servers() {
        let account = ClientAccount::new(None, (100, Spending { tokens: 7, ..Spending::default() }));
        let tokens = |began| {
            account.with(began, |account| (account.own(Instant::now()).tokens, account.total(Instant::now()).tokens))
        };
        let spent = |tokens| Spending { tokens, ..Spending::default() };
        let mut moved = account.moved.subscribe();
        assert!(!account.is_known_since(Duration::from_secs(1)));
        account.know_elsewhere((100, spent(5)), Instant::now());
        assert_eq!((tokens(100), moved.has_changed().ok()), ((7, 12), Some(true)));
        moved.mark_unchanged();
        account.know_elsewhere((100, spent(5)), Instant::now());
        assert!(account.is_known_since(Duration::from_secs(1)) && moved.has_changed().ok() == Some(false));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(!account.is_known_since(Duration::from_secs(1)));
        account.know_elsewhere((0, spent(50)), Instant::now());
        assert_eq!(tokens(100), (7, 7), "that was another span");
        account.know_elsewhere((200, spent(5)), Instant::now());
        assert_eq!([tokens(100), tokens(200)], [(7, 7), (0, 5)], "that one had not begun here yet");
    }
}
