//! What one turn spends, and what it is held to.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::account::{Account, ClientAccount, Tree, span_of};
use super::{Budgets, Ledger, report};
use crate::base::clock;
use crate::protocol::{
    ApiError, Budget, BudgetKind, BudgetNotice, BudgetScope, BudgetState, ClientId, SessionId, Spending,
};
use crate::store::{ClientSpending, Store, StoreError};

/// What is looked at before a request to a model.
const BEFORE_REQUESTS: [BudgetKind; 3] = [BudgetKind::Tokens, BudgetKind::CostUsd, BudgetKind::TimeMs];
/// What is looked at before a call of a tool.
const BEFORE_CALLS: [BudgetKind; 4] =
    [BudgetKind::Tokens, BudgetKind::CostUsd, BudgetKind::TimeMs, BudgetKind::ToolCalls];

/// What the client of a session is held to.
#[derive(Debug, Clone)]
struct ClientPart {
    account: Arc<ClientAccount>,
    budget: Budget,
    window_ms: u64,
}

/// The accounts on a session's path, and what they are held to.
#[derive(Debug)]
pub(in crate::session) struct Purse {
    tree: Arc<Tree>,
    /// The session's path, itself last.
    budgets: Budgets,
    /// None: the server holds clients to nothing.
    client: Option<ClientPart>,
    mine: Mutex<Mine>,
}

/// What the turn has spent by itself.
#[derive(Debug, Default)]
struct Mine {
    spent: Spending,
    ran: Duration,
    /// It runs, since then.
    since: Option<Instant>,
}

/// Whose turns are looked at.
#[derive(Debug, Clone)]
pub(in crate::session) struct Payer {
    pub(in crate::session) client: Option<ClientId>,
    pub(in crate::session) budgets: Budgets,
    /// What a client may spend, in so many milliseconds.
    pub(in crate::session) of_client: (Budget, u64),
}

impl Payer {
    /// Whether anybody is held to anything.
    pub(in crate::session) fn is_free(&self) -> bool {
        self.of_client.0.is_empty() && self.budgets.iter().all(|(_, budget)| budget.is_empty())
    }
}

impl Purse {
    /// That of a turn of which `known` is spent and not written down yet.
    ///
    /// # Errors
    /// What the store says.
    pub(in crate::session) async fn open(
        (ledger, store): (&Ledger, &dyn Store),
        payer: Payer,
        known: Spending,
    ) -> Result<Self, StoreError> {
        let Payer { client, budgets, of_client: (budget, window_ms) } = payer;
        let Some((root, _)) = budgets.first() else { return Err(StoreError::Closed) };
        let tree = ledger.tree(store, root).await?;
        let client = match budget.is_empty() {
            true => None,
            false => {
                let account = ledger.client(store, client.as_ref(), window_ms).await?;
                Some(ClientPart { account, budget, window_ms })
            }
        };
        let purse = Self { tree, budgets, client, mine: Mutex::default() };
        purse.know(known);
        Ok(purse)
    }

    pub(super) fn tree(&self) -> Arc<Tree> {
        Arc::clone(&self.tree)
    }

    /// Each account on the path, and the client's.
    fn each<T>(&self, mut act: impl FnMut(Option<&SessionId>, &Budget, &mut Account) -> Option<T>) -> Vec<T> {
        let mut all: Vec<T> = Vec::new();
        let mut accounts = self.tree.accounts.lock();
        for (id, budget) in self.budgets.iter().rev() {
            all.extend(act(Some(id), budget, accounts.entry(id.clone()).or_default()));
        }
        drop(accounts);
        if let Some(ClientPart { account, budget, window_ms }) = &self.client {
            let began = span_of(clock::now_ms(), *window_ms);
            all.extend(account.with(began, |account| act(None, budget, account)));
        }
        all
    }

    fn state(&self, id: Option<&SessionId>, limits: Budget, spent: Spending) -> BudgetState {
        let resets_at = self.client.as_ref().filter(|_| id.is_none()).map(|client| {
            let began = span_of(clock::now_ms(), client.window_ms);
            began.saturating_add(client.window_ms)
        });
        let scope = if id.is_some() { BudgetScope::Session } else { BudgetScope::Client };
        BudgetState { scope, session_id: id.cloned(), limits, spent, resets_at }
    }

    /// Counts what was spent before this server knew of the turn. Its client's account has that in it.
    fn know(&self, known: Spending) {
        if known.is_nothing() {
            return;
        }
        let mut mine = self.mine.lock();
        mine.spent = mine.spent.plus(known);
        drop(mine);
        let mut accounts = self.tree.accounts.lock();
        for (id, _) in &self.budgets {
            accounts.entry(id.clone()).or_default().add(known);
        }
    }

    /// Counts what is spent. Given back: the budgets of which something is nearly gone with it.
    pub(in crate::session) fn charge(&self, more: Spending) -> Vec<BudgetNotice> {
        if more.is_nothing() {
            return Vec::new();
        }
        {
            let mut mine = self.mine.lock();
            mine.spent = mine.spent.plus(more);
        }
        let now = Instant::now();
        let nearly = self.each(|id, budget, account| {
            let before = account.total(now);
            account.add(more);
            let after = account.total(now);
            let kinds = BudgetKind::ALL.into_iter().filter(|kind| more.amount(*kind) > 0);
            let crossed =
                kinds.filter(|kind| budget.is_nearly_gone(*kind, &after) && !budget.is_nearly_gone(*kind, &before));
            let crossed: Vec<BudgetKind> = crossed.collect();
            (!crossed.is_empty()).then(|| (crossed, id.cloned(), *budget, after))
        });
        let notices = nearly.into_iter().flat_map(|(kinds, id, budget, spent)| {
            let state = self.state(id.as_ref(), budget, spent);
            kinds.into_iter().map(move |kind| BudgetNotice { kind, state: state.clone() })
        });
        notices.collect()
    }

    /// The turn works from now on.
    pub(in crate::session) fn begin(&self) {
        if self.mine.lock().since.replace(Instant::now()).is_none() {
            self.runs(true);
        }
    }

    /// It no longer does. Once is enough.
    pub(in crate::session) fn end(&self) {
        let mut mine = self.mine.lock();
        let Some(since) = mine.since.take() else { return };
        mine.ran += since.elapsed();
        drop(mine);
        self.runs(false);
    }

    fn runs(&self, begins: bool) {
        let now = Instant::now();
        self.each(|_, _, account| {
            account.runs(now, begins);
            None::<()>
        });
        self.tree.moved.send_replace(());
        if let Some(client) = &self.client {
            client.account.moved.send_replace(());
        }
    }

    /// What the turn has spent by itself.
    pub(in crate::session) fn spent(&self) -> Spending {
        let mine = self.mine.lock();
        let ran = mine.ran + mine.since.map_or(Duration::ZERO, |since| since.elapsed());
        let time_ms = u64::try_from(ran.as_millis()).unwrap_or(u64::MAX);
        mine.spent.plus(Spending { time_ms, ..Spending::default() })
    }

    /// What is gone of what a turn needs to begin.
    pub(in crate::session) fn gone_for_turn(&self) -> Option<BudgetNotice> {
        self.gone(&[BudgetKind::Turns, BudgetKind::Tokens, BudgetKind::CostUsd, BudgetKind::TimeMs])
    }

    /// What is gone of what a request to a model needs; and calls beyond all that were allowed, which an agent makes by itself.
    pub(in crate::session) fn gone_for_request(&self) -> Option<BudgetNotice> {
        self.gone(&BEFORE_REQUESTS).or_else(|| {
            let beyond = |budget: &Budget, spent: &Spending| {
                budget.tool_calls.is_some_and(|limit| spent.tool_calls > limit).then_some(BudgetKind::ToolCalls)
            };
            self.first(beyond)
        })
    }

    /// Counts a call of a tool. Given back: the budgets of which nearly all calls are gone with it.
    ///
    /// # Errors
    /// What is gone of what it needs; then it is not counted.
    pub(in crate::session) fn take_call(&self) -> Result<Vec<BudgetNotice>, BudgetNotice> {
        let _alone = self.tree.calls.lock();
        match self.gone(&BEFORE_CALLS) {
            Some(gone) => Err(gone),
            None => Ok(self.charge(Spending { tool_calls: 1, ..Spending::default() })),
        }
    }

    fn gone(&self, kinds: &[BudgetKind]) -> Option<BudgetNotice> {
        self.first(|budget, spent| kinds.iter().copied().find(|kind| budget.is_gone(*kind, spent)))
    }

    fn first(&self, which: impl Fn(&Budget, &Spending) -> Option<BudgetKind>) -> Option<BudgetNotice> {
        let now = Instant::now();
        let found = self.each(|id, budget, account| {
            let spent = account.total(now);
            which(budget, &spent).map(|kind| (kind, id.cloned(), *budget, spent))
        });
        let (kind, id, budget, spent) = found.into_iter().next()?;
        Some(BudgetNotice { kind, state: self.state(id.as_ref(), budget, spent) })
    }

    /// Ends when the time of a budget is over, while the turn runs.
    pub(in crate::session) async fn time_over(&self) {
        let mut of_tree = self.tree.moved.subscribe();
        let mut of_client = self.client.as_ref().map(|client| client.account.moved.subscribe());
        loop {
            let now = Instant::now();
            let left = self.each(|_, budget, account| account.left(budget, now)).into_iter().min();
            let left = async move {
                match left {
                    Some(left) => tokio::time::sleep(left).await,
                    None => std::future::pending().await,
                }
            };
            let clients = async {
                match &mut of_client {
                    // The sender lives as long as the purse.
                    Some(moved) => drop(moved.changed().await),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = left => if self.gone(&[BudgetKind::TimeMs]).is_some() { return },
                _ = of_tree.changed() => {}
                () = clients => {}
            }
        }
    }

    /// All budgets, the session's own first; one without limits is left out, unless it is the session's own.
    pub(in crate::session) fn states(&self) -> Vec<BudgetState> {
        let now = Instant::now();
        let own = self.budgets.last().map(|(id, _)| id.clone());
        let all = self.each(|id, budget, account| {
            let told = !budget.is_empty() || id == own.as_ref();
            told.then(|| (id.cloned(), *budget, account.total(now)))
        });
        all.into_iter().map(|(id, budget, spent)| self.state(id.as_ref(), budget, spent)).collect()
    }

    /// What is to be kept of the client's account. None: it is held to nothing.
    pub(in crate::session) fn row_of_client(&self) -> Option<ClientSpending> {
        let ClientPart { account, window_ms, .. } = self.client.as_ref()?;
        let began = span_of(clock::now_ms(), *window_ms);
        let spent = account.with(began, |account| account.own(Instant::now()));
        Some(ClientSpending { client: account.client.clone(), began, spent })
    }

    /// Why no turn may begin.
    ///
    /// # Errors
    /// `CONFLICT` for a session's budget, `RESOURCE_EXHAUSTED` for a client's, which comes back.
    pub(in crate::session) fn afford_turn(&self) -> Result<(), ApiError> {
        self.gone_for_turn().map_or(Ok(()), |notice| Err(report::refusal(&notice)))
    }
}

/// Ends what a turn runs, when it is dropped.
pub(in crate::session) struct Works(Arc<Purse>);

impl Works {
    /// The turn works from now on.
    pub(in crate::session) fn begin(purse: &Arc<Purse>) -> Self {
        purse.begin();
        Self(Arc::clone(purse))
    }
}

impl Drop for Works {
    fn drop(&mut self) {
        self.0.end();
    }
}
