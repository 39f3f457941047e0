//! Budgets as callers see them.

use super::{App, Caller};
use crate::protocol::{ApiError, SessionBudgets, SessionId};

impl App {
    /// What a session's turns are held to, and what is spent of it.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub async fn budget(&self, caller: &Caller, id: &SessionId) -> Result<SessionBudgets, ApiError> {
        let row = self.own_row(caller, id).await?;
        self.sessions.budgets(&row).await
    }
}
