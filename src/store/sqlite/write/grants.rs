//! What is of no session: grants that outlive theirs, and what clients have spent.

use super::{Failed, Writer, json};
use crate::protocol::{ClientId, GrantId};
use crate::store::{ClientSpending, GrantRow};

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

    pub(super) fn save_spending(&self, row: &ClientSpending) -> Result<(), Failed> {
        self.connection.prepare_cached("DELETE FROM client_spending WHERE began < ?")?.execute([row.began])?;
        let sql = "INSERT INTO client_spending (client, began, body) VALUES (?1, ?2, ?3)
                   ON CONFLICT (client) DO UPDATE SET began = ?2, body = ?3";
        let name = row.client.as_ref().map_or("", ClientId::as_str);
        self.connection.prepare_cached(sql)?.execute((name, row.began, json(&row.spent)?))?;
        Ok(())
    }
}
