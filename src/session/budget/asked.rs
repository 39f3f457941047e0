//! What of budgets is asked for beside turns: how they stand, and whether a prompt can be taken.

use super::{Budgets, Payer, Purse, payer};
use crate::protocol::{ApiError, SessionBudgets, Spending};
use crate::session::manager::{Manager, Shelf};
use crate::session::store_failure;
use crate::store::SessionRow;

impl Manager {
    /// What a session's turns are held to, and what is spent of it.
    ///
    /// # Errors
    /// What the store says; `NOT_FOUND` when one above it is gone.
    pub async fn budgets(&self, row: &SessionRow) -> Result<SessionBudgets, ApiError> {
        let payer = self.payer(row).await?;
        Ok(SessionBudgets { budgets: opened(&self.shelf, payer).await?.states() })
    }

    async fn payer(&self, row: &SessionRow) -> Result<Payer, ApiError> {
        let above = self.above(row).await?;
        let budgets: Budgets =
            above.iter().chain([row]).map(|row| (row.id.clone(), row.settings.budget.unwrap_or_default())).collect();
        Ok(payer(&self.shelf.terms, row.client.clone(), budgets))
    }

    /// Whether a session can have a further turn.
    ///
    /// # Errors
    /// `CONFLICT` or `RESOURCE_EXHAUSTED` that says what is spent, with `why: "budget"`.
    pub(in crate::session) async fn afford(&self, row: &SessionRow) -> Result<(), ApiError> {
        // Most have no budget, and then nothing is asked of the store.
        if row.lineage.is_none() && row.settings.budget.is_none() {
            let limits = self.shelf.terms.limits.read();
            if limits.session_budget.is_empty() && limits.client_budget.is_empty() {
                return Ok(());
            }
        }
        let payer = self.payer(row).await?;
        if payer.is_free() {
            return Ok(());
        }
        opened(&self.shelf, payer).await?.afford_turn()
    }
}

async fn opened(shelf: &Shelf, payer: Payer) -> Result<Purse, ApiError> {
    let opened = Purse::open((&shelf.ledger, shelf.store.as_ref()), payer, Spending::default()).await;
    opened.map_err(|error| store_failure(&error))
}
