//! A session that begins with the log of another one.

use super::{Failed, Writer};
use crate::protocol::SessionId;
use crate::store::SessionRow;
use crate::store::chain::Chain;
use crate::store::sqlite::fork;

impl Writer {
    /// Behind event `at`; `chain` is the chain to it, for who has followed it.
    pub(super) fn fork(
        &mut self,
        row: &SessionRow,
        parent: &SessionId,
        (at, chain): (u64, Option<Chain>),
    ) -> Result<(), Failed> {
        let known = self.know(parent)?;
        let (of, last_seq, here) = (known.number, known.last_seq, known.chain);
        crate::store::check_fork(parent, at, last_seq)?;
        // What a fork shares is in the log itself.
        self.fresh.gather(&self.connection, of)?;
        self.create_session(row)?;
        let number = self.know(&row.id)?.number;
        let chain = chain.into_iter().chain([here]).find(|chain| chain.seq() == at);
        let chain = fork::join(&self.connection, number, (parent, of), (at, chain))?;
        let known = self.know(&row.id)?;
        (known.last_seq, known.chain, known.anchored) = (at, chain, at);
        Ok(())
    }
}
