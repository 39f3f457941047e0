//! Grants that outlive their sessions: they come and go.

use super::{Failed, Writer, json};
use crate::protocol::GrantId;
use crate::store::GrantRow;

impl Writer {
    pub(super) fn save_grant(&self, row: &GrantRow) -> Result<(), Failed> {
        let sql = "INSERT INTO saved_grant (id, body) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET body = ?2";
        self.connection.prepare_cached(sql)?.execute((row.grant.id.as_str(), json(row)?))?;
        Ok(())
    }

    pub(super) fn delete_grant(&self, id: &GrantId) -> Result<(), Failed> {
        self.connection.prepare_cached("DELETE FROM saved_grant WHERE id = ?")?.execute([id.as_str()])?;
        Ok(())
    }
}
