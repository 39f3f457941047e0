//! What could not be written at the start, for want of room on the disk, is tried again until it is.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::App;
use crate::base::limit;

impl App {
    /// Goes on with what an earlier process left open, beside everything else, where the start could not deal with it.
    pub(super) async fn recover_later(self: &Arc<Self>) {
        if !self.sessions.recover_rest().await {
            tokio::spawn(keep_recovering(Arc::downgrade(self)));
        }
    }
}

/// Until all is written, or the application has gone.
async fn keep_recovering(app: Weak<App>) {
    loop {
        tokio::time::sleep(Duration::from_millis(limit::RECOVERY_PAUSE_MS)).await;
        let Some(app) = app.upgrade() else { return };
        if app.sessions.recover_rest().await {
            return;
        }
    }
}
