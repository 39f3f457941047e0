//! What an agent tells of its sessions: to the turn that runs, and what it says of itself to what is known of the session.

use serde_json::{Value, json};
use tokio::sync::mpsc::{self, error::SendError};

use super::super::known::Known;
use super::{Connection, INVALID_PARAMS, Incoming};
use crate::base::limit;

impl Connection {
    /// Takes an update: to its turn, or to what is known of its session.
    pub(super) async fn take_update(&self, mut params: Value) {
        let update = params["update"].take();
        let turn = self.turn_of(&params);
        let Some(session) = params["sessionId"].as_str() else { return };
        let said = match self.known(session, |known| known.take(&update)) {
            Some(None) => return,
            Some(Some(said)) => said,
            None => {
                match turn {
                    Some(turn) => drop(turn.send(Incoming::Update(update)).await),
                    None => tracing::debug!(agent = self.name, "an update of a session that no turn runs in"),
                }
                return;
            }
        };
        match turn {
            Some(turn) => {
                // A turn that has just had its end takes nothing more: the next one does.
                if let Err(SendError(Incoming::Said(said))) = turn.send(Incoming::Said(said)).await {
                    self.known(session, |known| known.wait(said));
                }
            }
            None => self.known(session, |known| known.wait(said)),
        }
    }

    /// Looks at, or changes, what is known of a session.
    pub fn known<T>(&self, session: &str, look: impl FnOnce(&mut Known) -> T) -> T {
        let mut all = self.known.lock();
        if let Some(known) = all.get_mut(session) {
            return look(known);
        }
        if all.len() >= 2 * limit::ACP_SESSIONS_MAX {
            // It talks of sessions that nobody has opened.
            return look(&mut Known::default());
        }
        look(all.entry(session.to_owned()).or_default())
    }

    /// The turn has its end: what comes for its session from now on is for the next one.
    pub(super) fn is_over(&self, turn: &mpsc::Sender<Incoming>) {
        let mut table = self.table.lock();
        let its = table.turns.values_mut().filter(|tell| tell.same_channel(turn));
        // Nobody takes what is sent there; that the session still has a turn stays true until it has gone.
        its.for_each(|tell| *tell = mpsc::channel(1).0);
    }
}

/// The answer to a request for which no turn runs.
pub(super) fn unserved(method: &str) -> Result<Value, (i64, String)> {
    match method {
        "session/request_permission" => Ok(json!({ "outcome": { "outcome": "cancelled" } })),
        "elicitation/create" => Ok(json!({ "action": "cancel" })),
        _ => Err((INVALID_PARAMS, "no turn runs in that session".to_owned())),
    }
}
