//! Sessions that begin with the log of another one. Rows are shared, not copied: a fork knows its parent and the last event that both
//! have in common, and whoever reads goes from the parent's rows over into its own.
//!
//! Invariant: a parent has, of what it shares, all it needs in its own rows and those of its parents. What a fork reads is not swept up.

use tokio_postgres::Client;

use super::fault::Fault;
use super::read::{self, Stretch};
use crate::protocol::SessionId;
use crate::store::chain::Chain;

/// A stretch of a log that lies under one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    /// The number of the session under which it was written.
    pub(super) number: i64,
    /// Its last event that counts.
    pub(super) upto: i64,
}

/// Where the log of a session lies: its own part first, then those of its parents.
pub(super) const SEGMENTS: &str = "WITH RECURSIVE segment (session, upto, depth) AS (
        SELECT $1::bigint, 9223372036854775807::bigint, 0
        UNION ALL
        SELECT fork.parent, fork.at, depth + 1 FROM segment JOIN fork ON fork.session = segment.session
    )";

/// Where the events of a session behind number `after` lie, oldest first.
pub(super) async fn segments_behind(
    client: &deadpool_postgres::Client,
    number: i64,
    after: i64,
) -> Result<Vec<Segment>, Fault> {
    let sql = "WITH RECURSIVE segment (session, upto, depth) AS (
            SELECT $1::bigint, 9223372036854775807::bigint, 0
            UNION ALL
            SELECT fork.parent, fork.at, depth + 1 FROM segment
            JOIN fork ON fork.session = segment.session AND fork.at > $2
        ) SELECT session, upto FROM segment ORDER BY depth DESC";
    let statement = client.prepare_cached(sql).await?;
    let rows = client.query(&statement, &[&number, &after]).await?;
    Ok(rows.iter().map(|row| Segment { number: row.get(0), upto: row.get(1) }).collect())
}

/// The session in whose own rows event `at` of a session lies, and how many forks in a row a fork of it would be.
pub(super) async fn base_of(client: &Client, number: i64, at: u64) -> Result<(i64, usize), Fault> {
    let sql = format!("{SEGMENTS} SELECT session, upto FROM segment ORDER BY depth");
    let rows = client.query(&sql, &[&number]).await?;
    let at = i64::try_from(at).unwrap_or(i64::MAX);
    // Each stretch above ends earlier: the last one that still has the event.
    let above = rows.iter().take_while(|row| row.get::<_, i64>(1) >= at).count().max(1);
    let base = rows.get(above - 1).map_or(number, |row| row.get(0));
    Ok((base, rows.len() + 1 - above))
}

/// The chain of a session to event `at`: followed from the beginning.
pub(super) async fn chain_at(client: &Client, (session, number): (&SessionId, i64), at: u64) -> Result<Chain, Fault> {
    let sql = format!("{SEGMENTS} SELECT session, upto FROM segment ORDER BY depth DESC");
    let rows = client.query(&sql, &[&number]).await?;
    let statement = client.prepare(read::ROWS).await?;
    let mut chain = Chain::default();
    for row in &rows {
        let segment = Segment { number: row.get(0), upto: row.get(1) };
        let last = u64::try_from(segment.upto).unwrap_or(u64::MAX).min(at);
        while chain.seq() < last {
            let stretch = Stretch { session, segment, after: chain.seq(), limit: usize::MAX };
            let rows = stretch.rows(client, &statement).await?;
            let before = chain.seq();
            for event in stretch.events(&rows)?.0.iter().take_while(|event| event.seq <= last) {
                chain.push(event);
            }
            if chain.seq() == before {
                break;
            }
        }
    }
    if chain.seq() == at {
        return Ok(chain);
    }
    Err(Fault::Refused(format!("event {at} of session {session} is not there")))
}
