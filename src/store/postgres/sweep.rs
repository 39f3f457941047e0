//! Takes away what deleted sessions leave behind, a little at a time.
//!
//! Deleting a session takes out its row, and with it everything by which it could be found; its number goes into the table `doomed`. The
//! rows under that number are taken out later, in slices between other commits, so that nobody waits for a long log to go; those of
//! the log all at once where no session of a whole partition is left. What a fork still reads stays.

use tokio_postgres::Client;

use super::fault::Fault;
use super::{lifecycle, read, schema};
use crate::store::CommitMeter;
use crate::store::lifecycle::Bounds;

/// Rows of one slice, at most. A slice is what a commit may have to wait for.
const SLICE_ROWS: i64 = 256;
/// Sessions of one slice, at most.
const SLICE_SESSIONS: i64 = 64;

/// Sessions whose rows are to go, and are read by no fork. Those that another process is at are left to it.
const NEXT: &str = "SELECT session FROM doomed WHERE NOT EXISTS (SELECT 1 FROM fork WHERE fork.parent = doomed.session)
    ORDER BY session LIMIT $1 FOR UPDATE SKIP LOCKED";

/// Takes out one slice. False: there is nothing more.
pub(super) async fn slice(client: &Client, bounds: Bounds, meter: &CommitMeter) -> Result<bool, Fault> {
    client.batch_execute("BEGIN").await?;
    let more = match rows(client).await {
        Ok(more) => {
            client.batch_execute("COMMIT").await?;
            more
        }
        Err(fault) => {
            let _ = client.batch_execute("ROLLBACK").await;
            return Err(fault);
        }
    };
    let more = more || lifecycle::forget(client, bounds, SLICE_ROWS).await? == SLICE_ROWS;
    *meter.ends.lock() = lifecycle::kept(client).await?;
    *meter.outcomes.lock() = read::outcomes_kept(client).await?;
    Ok(more)
}

/// Takes out rows as far as there is room; of sessions that have none left, the numbers. False: there is nothing more.
async fn rows(client: &Client) -> Result<bool, Fault> {
    let next = client.query(NEXT, &[&SLICE_SESSIONS]).await?;
    let numbers: Vec<i64> = next.iter().map(|row| row.get(0)).collect();
    if numbers.is_empty() {
        return Ok(false);
    }
    drop_partition(client, numbers[0]).await?;
    let mut room = SLICE_ROWS;
    for (table, key) in [("log", "first"), ("turn", "id"), ("said", "at"), ("question", "seq"), ("lifecycle", "place")]
    {
        let only = if table == "lifecycle" { "AND seq IS NOT NULL" } else { "" };
        let client_too = if table == "lifecycle" { ", client" } else { "" };
        let sql = format!(
            "DELETE FROM {table} WHERE (session, {key}{client_too}) IN (
                SELECT session, {key}{client_too} FROM {table} WHERE session = ANY ($1) {only} LIMIT $2)"
        );
        let went = client.execute(&sql, &[&numbers, &room]).await?;
        room -= i64::try_from(went).unwrap_or(i64::MAX);
        if room <= 0 {
            return Ok(true);
        }
    }
    // What it shares with others is now theirs alone, and may go as well.
    client.execute("DELETE FROM fork WHERE session = ANY ($1)", &[&numbers]).await?;
    client.execute("DELETE FROM doomed WHERE session = ANY ($1)", &[&numbers]).await?;
    Ok(true)
}

/// Drops the partition of the log that a session had its rows in, where no session of it is left, none is read by a fork, and none is
/// still to come.
async fn drop_partition(client: &Client, number: i64) -> Result<(), Fault> {
    let (nth, from, upto) = schema::partition_of(number);
    let sql = "SELECT to_regclass($3) IS NOT NULL
            AND NOT EXISTS (SELECT 1 FROM session WHERE number >= $1 AND number < $2)
            AND NOT EXISTS (SELECT 1 FROM fork WHERE parent >= $1 AND parent < $2)
            AND (SELECT last_value FROM session_number) >= $2 + ($2 - $1)";
    let table = format!("log_{nth}");
    if client.query_one(sql, &[&from, &upto, &table]).await?.get(0) {
        client.batch_execute(&format!("ALTER TABLE log DETACH PARTITION {table}; DROP TABLE {table}")).await?;
        tracing::info!(table, "no session is left of a part of the log: it is gone");
    }
    Ok(())
}
