//! What waits and is large: it comes and goes.

use super::{Failed, Writer, json};
use crate::protocol::SessionId;
use crate::store::Said;
use crate::store::sqlite::said;

impl Writer {
    pub(super) fn save_said(&mut self, (id, at): (&SessionId, u64), said: Option<&Said>) -> Result<(), Failed> {
        let number = self.know(id)?.number;
        match said {
            Some(said) => said::keep(&self.connection, (number, at), json(said)?)?,
            None => said::forget(&self.connection, (number, at))?,
        }
        Ok(())
    }
}
