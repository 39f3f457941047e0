//! Rows of sessions. Where a session stands in its tree never changes.

use super::known::Known;
use super::{Failed, Writer, json};
use crate::protocol::SessionId;
use crate::store::chain::Chain;
use crate::store::sqlite::read;
use crate::store::{SessionRow, StoreError};

impl Writer {
    pub(super) fn create_session(&mut self, row: &SessionRow) -> Result<(), Failed> {
        if self.known.contains_key(&row.id) || read::number_of(&self.connection, &row.id)?.is_some() {
            return Err(StoreError::Taken(row.id.clone()).into());
        }
        let mut insert = self.connection.prepare_cached(
            "INSERT INTO session
             (number, id, client, status, version, created_at, updated_at, message_count, usage, settings, root, lineage,
             children, spent, shared)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
        )?;
        // Never that of one whose rows are still there. One that is rolled back is not given again.
        let number = self.next_number;
        self.next_number += 1;
        insert.execute((
            number,
            row.id.as_str(),
            row.client.as_ref().map(crate::protocol::ClientId::as_str),
            read::status_number(row.status),
            row.version,
            row.created_at,
            row.updated_at,
            row.message_count,
            json(&row.usage)?,
            json(&row.settings)?,
            row.lineage.as_ref().and_then(|lineage| lineage.root()).map(SessionId::as_str),
            row.lineage.as_deref().map(json).transpose()?,
            children_of(row)?,
            spent_of(row)?,
            shared_of(row)?,
        ))?;
        let known = Known::at((number, 0), (Chain::default(), 0));
        drop(insert);
        self.remember(row.id.clone(), known);
        Ok(())
    }

    pub(super) fn update_session(&mut self, row: &SessionRow) -> Result<(), Failed> {
        let known = self.know(&row.id)?;
        known.anchored = known.chain.seq();
        let (number, chain) = (known.number, known.chain);
        let head = (chain.seq() > 0).then_some(chain);
        let mut update = self.connection.prepare_cached(
            "UPDATE session SET status = ?2, version = ?3, updated_at = ?4, message_count = ?5, usage = ?6,
             settings = ?7, head_seq = ?8, head = ?9, children = ?10, spent = ?11, shared = ?12 WHERE number = ?1",
        )?;
        update.execute((
            number,
            read::status_number(row.status),
            row.version,
            row.updated_at,
            row.message_count,
            json(&row.usage)?,
            json(&row.settings)?,
            head.map(|chain| chain.seq()),
            head.as_ref().map(Chain::value),
            children_of(row)?,
            spent_of(row)?,
            shared_of(row)?,
        ))?;
        Ok(())
    }
}

/// Runs that are not done with. None: there are none, and no index has the session.
fn children_of(row: &SessionRow) -> Result<Option<String>, StoreError> {
    (!row.children.is_empty()).then(|| json(&row.children)).transpose()
}

/// What its turns have spent. None: nothing.
fn spent_of(row: &SessionRow) -> Result<Option<String>, StoreError> {
    (!row.spent.is_nothing()).then(|| json(&row.spent)).transpose()
}

/// Where what its tree shares stands. None: nothing is shared.
fn shared_of(row: &SessionRow) -> Result<Option<String>, StoreError> {
    (!row.shared.is_empty()).then(|| json(&row.shared)).transpose()
}
