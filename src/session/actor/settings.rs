//! What the next turns work with: settings that a client changes between them.

use std::sync::Arc;

use super::{Actor, NewSettings};
use crate::protocol::{ApiError, Configured, EventBody, SessionView};
use crate::session::journal::Entry;
use crate::session::policy::Policy;
use crate::session::settings::configure;
use crate::session::{stopping, store_failure};
use crate::store::Write;

impl Actor {
    /// Changes the settings. A turn that runs goes on with those that it has.
    pub(super) async fn configure(&mut self, new: NewSettings) -> Result<SessionView, ApiError> {
        if self.deleting.is_some() {
            return Err(ApiError::not_found(format!("session {}", self.row.id)));
        }
        if self.is_closing() {
            return Err(stopping());
        }
        self.check_version(new.if_version)?;
        let mut row = self.changed();
        configure(&mut row.settings, &new.changes);
        let mut answer = Err(ApiError::internal("the change was not made"));
        let mut view = self.view_as(&row, 0);
        let entry = |next_seq: u64| {
            // The receipt has the answer in it, and that has the number of the event.
            view.last_seq = next_seq;
            let rows = new.receipt.as_ref().map_or_else(|| Ok(Vec::new()), |receipt| receipt.take(&view, row.version));
            let mut writes = match rows {
                Ok(rows) => rows,
                Err(called_back) => {
                    answer = Err(called_back);
                    return Entry::default();
                }
            };
            writes.push(Write::UpdateSession(Box::new(row.clone())));
            answer = Ok(view);
            let configured = Configured { changes: new.changes, version: Some(row.version) };
            Entry { events: vec![(None, EventBody::SessionConfigured(configured))], writes }
        };
        if self.running.is_none() {
            // What failed before is no longer anybody's.
            self.live.journal.reopen();
        }
        let written = self.live.journal.record(entry).await;
        written.map_err(|e| store_failure(&e))?;
        let view = answer?;
        self.row = row;
        self.move_in();
        Ok(view)
    }

    /// Lets permissions and the shell follow the session to where it works now. A turn that runs stays where it is.
    pub(super) fn move_in(&mut self) {
        let works = self.running.as_ref().is_some_and(|running| running.work.is_some());
        let settings = &self.row.settings;
        let now = (settings.working_directory.as_path(), settings.additional_directories.as_slice());
        let (directory, further) = self.policy.places();
        if works || (directory, further) == now {
            return;
        }
        // A directory more leaves the shell where it is.
        let leaves = directory != now.0 || !further.iter().all(|place| now.1.contains(place));
        self.policy = Arc::new(Policy::new(&self.terms, &self.row));
        if leaves {
            self.scope.shell_directory.lock().take();
        }
    }
}
