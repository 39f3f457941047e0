//! The time of day of a server whose store is a database: the database's, which is the same for all servers of it.
//!
//! A server hears it when it joins, before it does anything else, and with each beat. So the clocks of the servers' machines may be wrong,
//! and may be set while they run. Where several databases are open in one process, it goes by the clock of the first.

use std::time::Instant;

use tokio_postgres::Client;

use super::fault::Fault;
use crate::base::clock::{self, Following};

/// In a statement: now, in milliseconds since 1970.
pub(super) const NOW_MS: &str = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint";
/// The clock of a machine that is wrong by less is not spoken of.
const TOLD_MS: i64 = 5_000;

/// The clock of a database.
#[derive(Debug, Default)]
pub(super) struct DatabaseClock {
    /// Whether this process goes by it.
    following: Option<Following>,
    /// By how much the machine's was said to be ahead.
    told_ms: i64,
}

impl DatabaseClock {
    /// Looks at it.
    pub(super) async fn read(client: &Client) -> Result<Self, Fault> {
        let sent = Instant::now();
        let row = client.query_one(&format!("SELECT {NOW_MS}"), &[]).await?;
        let mut clock = Self::default();
        clock.heard(row.get(0), sent);
        Ok(clock)
    }

    /// Notes what it said in answer to what was sent then.
    pub(super) fn heard(&mut self, said_ms: i64, sent: Instant) {
        if self.following.is_none() {
            self.following = clock::follow();
        }
        let Some(following) = &self.following else { return };
        following.heard(u64::try_from(said_ms).unwrap_or_default(), sent);
        self.tell(clock::machine_ahead_ms().unwrap_or_default());
    }

    /// Says when the machine's clock is not what it was said to be.
    fn tell(&mut self, ahead_ms: i64) {
        if ahead_ms.abs_diff(self.told_ms) < TOLD_MS.unsigned_abs() {
            return;
        }
        self.told_ms = ahead_ms;
        if ahead_ms.abs() < TOLD_MS {
            tracing::info!("the clock of this machine agrees with the database's again");
            return;
        }
        tracing::warn!(ahead_ms, "the clock of this machine is not the database's, by which this server goes");
    }
}
