//! A session's settings, changed between its turns.

use std::sync::Arc;

use super::bounds::check_some;
use super::{App, Caller};
use crate::protocol::{ApiError, Configure, SessionId, SessionView};
use crate::session::{NewSettings, Receipt};

impl App {
    /// Changes a session's settings, from the next turn on.
    ///
    /// # Errors
    /// `NOT_FOUND`; `INVALID_ARGUMENT` that names the setting; `CONFLICT` when the session has another version than
    /// `if_version`.
    pub async fn configure(
        &self,
        caller: &Caller,
        id: &SessionId,
        (changes, if_version): (Configure, Option<u64>),
    ) -> Result<SessionView, ApiError> {
        self.configure_with((caller, id), (changes, if_version), None).await
    }

    /// The same, as a command that leaves its receipt in the same commit.
    pub(super) async fn configure_with(
        &self,
        (caller, id): (&Caller, &SessionId),
        (changes, if_version): (Configure, Option<u64>),
        receipt: Option<Arc<Receipt>>,
    ) -> Result<SessionView, ApiError> {
        caller.at_large()?;
        check_some("body", &changes)?;
        let changes = self.checked_settings((caller, id), ("", changes)).await?;
        self.live(caller, id).await?.configure(NewSettings { changes, if_version, receipt }).await
    }
}
