//! Budgets: what a session with all under it may spend, and what a client may in a span of time.
//!
//! A session's own budget holds for it and for the sessions under it; so that of the one above all is its tree's, and what a
//! session spends counts on its whole path. A client's budget is the server's word. What is spent is kept in the rows of the
//! sessions when a turn ends, and of the client with each reply; in between it is in memory, where all turns that run see it
//! at once.
//!
//! Promises: no request to a model and no call of a tool begins when what it takes is gone; what runs when the time is over is
//! cut off. So tokens and money are passed at most by the requests that are under way, and calls by none but those that begin
//! in the same moment. What a client spends on another server of the same store is known here a second later. Where nobody set a budget, nothing is asked of the store but the rows of a tree, once.

mod account;
mod asked;
mod kept;
mod purse;
mod report;
mod turn;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

pub(super) use self::account::Tree;
use self::account::{Account, ClientAccount, span_of};
use self::kept::{Kept, Readers};
pub(super) use self::purse::{Payer, Purse, Works};
use self::report::exceeded;
pub(super) use self::turn::{purse, run_within};
use super::Terms;
use super::live::Live;
use crate::base::clock;
use crate::protocol::{Budget, ClientId, SessionId, Spending};
use crate::store::{Cluster, SessionRow, Store, StoreError};

/// Rows that are read at once.
const PAGE: usize = 200;

/// How old what is known of other servers may be when a turn is looked at first.
const KNOWN_MAX: Duration = Duration::from_secs(1);
/// Clients that are asked for at once.
const CLIENTS: usize = 500;

/// What all of a server's sessions and clients have spent, as far as somebody asks.
#[derive(Default)]
pub(super) struct Ledger {
    /// The other servers of the store.
    cluster: Option<Arc<dyn Cluster>>,
    trees: Mutex<Kept<SessionId, Weak<Tree>>>,
    clients: Mutex<Kept<Option<ClientId>, Arc<ClientAccount>>>,
    readers: Readers,
}

/// A session's budget and those of the sessions above it, the one above all first.
pub(super) type Budgets = Vec<(SessionId, Budget)>;

/// Whom a turn is paid by: the sessions on its path, each with its budget, and their client. The server's budget of a session
/// holds for the one above all.
fn payer(terms: &Terms, client: Option<ClientId>, mut budgets: Budgets) -> Payer {
    let limits = terms.limits.read();
    if let Some((_, root)) = budgets.first_mut() {
        *root = root.within(limits.session_budget);
    }
    Payer { client, budgets, of_client: (limits.client_budget, limits.budget_window_ms) }
}

impl Ledger {
    /// One of a server among those others.
    pub(super) fn new(cluster: Option<Arc<dyn Cluster>>) -> Self {
        Self { cluster, ..Self::default() }
    }

    /// Looks for what clients whose turns run here have spent on other servers.
    ///
    /// # Errors
    /// What the store says.
    pub(super) async fn look_elsewhere(&self) -> Result<(), StoreError> {
        let held: Vec<_> =
            self.clients.lock().each().filter(|account| Arc::strong_count(account) > 1).cloned().collect();
        for accounts in held.chunks(CLIENTS) {
            self.know_elsewhere(accounts).await?;
        }
        Ok(())
    }

    async fn know_elsewhere(&self, accounts: &[Arc<ClientAccount>]) -> Result<(), StoreError> {
        let Some(cluster) = &self.cluster else { return Ok(()) };
        let clients: Vec<_> = accounts.iter().map(|account| account.client.clone()).collect();
        let asked = Instant::now();
        let spent = cluster.spent_elsewhere(&clients).await?;
        let spent: HashMap<_, _> = spent.into_iter().map(|row| (row.client, (row.began, row.spent))).collect();
        for account in accounts {
            account.know_elsewhere(spent.get(&account.client).copied().unwrap_or_default(), asked);
        }
        Ok(())
    }

    /// The purse of a turn of which `known` is spent and not written down yet. What is spent in the tree is known as long as the
    /// session is in memory.
    ///
    /// # Errors
    /// What the store says.
    pub(super) async fn purse(&self, live: &Live, payer: Payer, known: Spending) -> Result<Arc<Purse>, StoreError> {
        let purse = Purse::open((self, live.store.as_ref()), payer, known).await?;
        let _ = live.tree.set(purse.tree());
        Ok(Arc::new(purse))
    }

    /// What is spent in the tree under `root`.
    ///
    /// # Errors
    /// What the store says.
    async fn tree(&self, store: &dyn Store, root: &SessionId) -> Result<Arc<Tree>, StoreError> {
        let known = |trees: &Kept<SessionId, Weak<Tree>>| trees.get(root).and_then(Weak::upgrade);
        if let Some(tree) = known(&self.trees.lock()) {
            return Ok(tree);
        }
        let _alone = self.readers.of(root).lock().await;
        if let Some(tree) = known(&self.trees.lock()) {
            return Ok(tree);
        }
        let tree = Arc::new(Tree::of(spent_in(store, root).await?));
        self.trees.lock().insert(root.clone(), Arc::downgrade(&tree), |tree| tree.strong_count() > 0);
        Ok(tree)
    }

    /// What a client has spent in the span of time in which we are.
    ///
    /// # Errors
    /// What the store says.
    async fn client(
        &self,
        store: &dyn Store,
        client: Option<&ClientId>,
        window_ms: u64,
    ) -> Result<Arc<ClientAccount>, StoreError> {
        let key = client.cloned();
        let is_fresh = |account: &&Arc<ClientAccount>| self.cluster.is_none() || account.is_known_since(KNOWN_MAX);
        if let Some(account) = self.clients.lock().get(&key).filter(is_fresh) {
            return Ok(Arc::clone(account));
        }
        let _alone = self.readers.of(&key).lock().await;
        let known = self.clients.lock().get(&key).cloned();
        if let Some(account) = known {
            if !is_fresh(&&account) {
                self.know_elsewhere(std::slice::from_ref(&account)).await?;
            }
            return Ok(account);
        }
        let began = span_of(clock::now_ms(), window_ms);
        let kept = store.spending(client).await?.filter(|row| row.began >= began);
        // Of one that lies ahead the clock was set back since.
        let spent = kept.map(|row| row.spent).unwrap_or_default();
        let account = Arc::new(ClientAccount::new(key.clone(), (began, spent)));
        self.know_elsewhere(std::slice::from_ref(&account)).await?;
        // What is written down can be read again.
        self.clients.lock().insert(key, Arc::clone(&account), |account| Arc::strong_count(account) > 1);
        Ok(account)
    }
}

/// What the rows of a tree say: each session's account has what it and all under it have spent.
async fn spent_in(store: &dyn Store, root: &SessionId) -> Result<HashMap<SessionId, Account>, StoreError> {
    let mut sums: HashMap<SessionId, Spending> = HashMap::new();
    let mut add = |row: &SessionRow| {
        let path = row.lineage.iter().flat_map(|lineage| lineage.path.iter());
        for id in path.chain([&row.id]) {
            let sum = sums.entry(id.clone()).or_default();
            *sum = sum.plus(row.spent);
        }
    };
    if let Some(row) = store.session(root).await? {
        add(&row);
    }
    let mut after = None;
    loop {
        let page = store.family(root, after.as_ref(), PAGE).await?;
        page.iter().for_each(&mut add);
        match page.last() {
            Some(last) if page.len() == PAGE => after = Some(last.id.clone()),
            _ => break,
        }
    }
    Ok(sums.into_iter().map(|(id, spent)| (id, Account::with(spent))).collect())
}
