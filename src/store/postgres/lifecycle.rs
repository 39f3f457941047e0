//! The list of lifecycle events: a client's places, and where the log has the event.
//!
//! A row without `seq` says by itself, in `gone`, that a session was deleted. The newest place of each client stands in
//! `lifecycle_newest`; of one of whom nothing is left it goes, and `forgotten` has that place or a higher one: no place is given twice.

use std::collections::HashMap;

use deadpool_postgres::Client;
use tokio_postgres::Client as Line;

use super::fault::Fault;
use super::read;
use crate::protocol::{Event, SessionId};
use crate::store::StoreError;
use crate::store::lifecycle::{Bounds, EndsKept, LifecyclePage, PAGE_BYTES_MAX};

/// The place of a client's newest event; of one that has none, the place behind which its first one comes.
pub(super) async fn newest(client: &Client, whose: &str) -> Result<u64, Fault> {
    let sql =
        "SELECT coalesce((SELECT place FROM lifecycle_newest WHERE client = $1), (SELECT place FROM forgotten), 0)";
    let statement = client.prepare_cached(sql).await?;
    let row = client.query_one(&statement, &[&whose]).await?;
    Ok(u64::try_from(row.get::<_, i64>(0)).unwrap_or_default())
}

/// A client's events behind place `after`. One whose log is gone is left out.
pub(super) async fn page(client: &Client, whose: &str, after: u64, limit: usize) -> Result<LifecyclePage, Fault> {
    let sql =
        "SELECT place, seq, gone, session.id FROM lifecycle LEFT JOIN session ON session.number = lifecycle.session
        WHERE lifecycle.client = $1 AND place > $2 ORDER BY place LIMIT $3";
    let statement = client.prepare_cached(sql).await?;
    let (from, limit) = (i64::try_from(after).unwrap_or(i64::MAX), i64::try_from(limit).unwrap_or(i64::MAX));
    let rows = client.query(&statement, &[&whose, &from, &limit]).await?;
    let (mut page, mut bytes) = (LifecyclePage { entries: Vec::new(), upto: after }, 0);
    let mut sessions: HashMap<String, Option<SessionId>> = HashMap::new();
    for row in rows {
        page.upto = u64::try_from(row.get::<_, i64>(0)).unwrap_or_default();
        let (seq, gone, session): (Option<i64>, Option<&str>, Option<&str>) = (row.get(1), row.get(2), row.get(3));
        let event = match (seq, gone, session) {
            (Some(seq), _, Some(id)) => {
                let session = sessions.entry(id.to_owned()).or_insert_with(|| id.parse().ok());
                event_at(client, session.as_ref(), u64::try_from(seq).unwrap_or_default()).await?
            }
            (None, Some(words), _) => serde_json::from_str(words).ok(),
            _ => None,
        };
        let Some(event) = event else { continue };
        bytes += event.payload.get().len();
        page.entries.push((page.upto, event));
        if bytes >= PAGE_BYTES_MAX {
            break;
        }
    }
    Ok(page)
}

async fn event_at(client: &Client, session: Option<&SessionId>, seq: u64) -> Result<Option<Event>, Fault> {
    let Some(session) = session else { return Ok(None) };
    match read::events(client, session, seq.saturating_sub(1), 1).await {
        Ok(events) => Ok(events.into_iter().next().filter(|event| event.seq == seq)),
        // Who reads that session is told; the others go on.
        Err(Fault::Store(StoreError::Damaged { .. })) => Ok(None),
        Err(other) => Err(other),
    }
}

/// How many ends are told of, and when the newest one came that is no longer.
pub(super) async fn kept(line: &Line) -> Result<EndsKept, Fault> {
    let sql = "SELECT (SELECT count(*) FROM lifecycle WHERE gone IS NOT NULL), (SELECT at FROM forgotten)";
    let row = line.query_one(sql, &[]).await?;
    let number = |at: usize| u64::try_from(row.get::<_, i64>(at)).unwrap_or_default();
    Ok(EndsKept { count: number(0), forgotten_at: number(1) })
}

/// Forgets the oldest ends that are out of bounds, at most so many. How many they were.
pub(super) async fn forget(line: &Line, bounds: Bounds, limit: i64) -> Result<i64, Fault> {
    let over = i64::try_from(kept(line).await?.count.saturating_sub(bounds.count)).unwrap_or(i64::MAX).min(limit);
    let before = i64::try_from(bounds.before).unwrap_or(i64::MAX);
    let old = "SELECT EXISTS (SELECT 1 FROM lifecycle WHERE gone IS NOT NULL AND at < $1)";
    if over <= 0 && !line.query_one(old, &[&before]).await?.get::<_, bool>(0) {
        return Ok(0);
    }
    // Nobody gives places meanwhile: who has none left begins behind the newest that was ever forgotten.
    let sql = "WITH out AS (
            SELECT client, place, at FROM (
                SELECT client, place, at, row_number() OVER (ORDER BY at, client, place) AS nth FROM (
                    SELECT client, place, at FROM lifecycle WHERE gone IS NOT NULL ORDER BY at, client, place LIMIT $3
                ) AS oldest
            ) AS numbered WHERE nth <= $1 OR at < $2
        ), went AS (
            DELETE FROM lifecycle USING out WHERE lifecycle.client = out.client AND lifecycle.place = out.place
            RETURNING lifecycle.client, lifecycle.place, lifecycle.at
        ), emptied AS (
            DELETE FROM lifecycle_newest AS newest WHERE client IN (SELECT client FROM went) AND NOT EXISTS (
                SELECT 1 FROM lifecycle AS other WHERE other.client = newest.client
                    AND NOT EXISTS (SELECT 1 FROM went WHERE went.client = other.client AND went.place = other.place)
            ) RETURNING place
        ), noted AS (
            UPDATE forgotten SET place = greatest(place, (SELECT coalesce(max(place), 0) FROM emptied)),
                at = greatest(at, (SELECT coalesce(max(at), 0) FROM went))
        )
        SELECT count(*) FROM went";
    line.batch_execute("BEGIN; LOCK TABLE lifecycle_newest IN EXCLUSIVE MODE").await?;
    let went = match line.query_one(sql, &[&over.max(0), &before, &limit]).await {
        Ok(row) => row.get(0),
        Err(error) => {
            let _ = line.batch_execute("ROLLBACK").await;
            return Err(error.into());
        }
    };
    line.batch_execute("COMMIT").await?;
    Ok(went)
}
