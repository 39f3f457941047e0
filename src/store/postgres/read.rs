//! Reading: every query that is not part of a write.

use std::collections::BTreeMap;
use std::sync::Arc;

use deadpool_postgres::Client;
use serde::de::DeserializeOwned;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement};

use super::fault::Fault;
use super::fork::{self, SEGMENTS, Segment};
use crate::base::clock;
use crate::protocol::{ClientId, Event, RequestId, SessionId, SessionStatus, Spending, TurnId};
use crate::store::lifecycle::line_of;
use crate::store::turn::TurnBody;
use crate::store::{
    ClientSpending, GrantRow, OutcomeRow, OutcomesKept, Said, SessionRow, StoreError, TurnRow, Which, record,
};

/// Bytes of log bodies in one answer, about.
const EVENTS_BYTES_MAX: i64 = 1 << 20;
/// Rows of the log that are read at once.
const ROWS_MAX: i64 = 1_024;

type Read<T> = Result<T, Fault>;

/// Rows of the log of session $1 up to event $3 that have events behind number $2: at most $4, and about $5 bytes.
pub(super) const ROWS: &str = "
    SELECT first, count, turn, at, body FROM (
        SELECT first, count, turn, at, body,
            sum(octet_length(body)) OVER (ORDER BY first) - octet_length(body) AS before
        FROM (
            SELECT first, count, turn, at, body FROM log
            WHERE session = $1 AND first <= $3 AND first + count - 1 > $2
                AND first >= coalesce((SELECT max(first) FROM log WHERE session = $1 AND first <= $2 + 1), 0)
            ORDER BY first LIMIT $4
        ) AS found
    ) AS counted
    WHERE before < $5 ORDER BY first";

const SESSION: &str =
    "SELECT id, client, status, version, created_at, updated_at, message_count, usage, settings, lineage, children,
    spent, shared FROM session";

fn unreadable(what: &str, cause: impl std::fmt::Display) -> Fault {
    Fault::Refused(format!("{what} is not what was written there: {cause}"))
}

fn json<T: DeserializeOwned>(row: &Row, column: usize) -> Read<T> {
    serde_json::from_str(row.get(column)).map_err(|cause| unreadable(row.columns()[column].name(), cause))
}

fn json_or_null<T: DeserializeOwned>(row: &Row, column: usize) -> Read<Option<T>> {
    let text: Option<&str> = row.get(column);
    let read = text.map(serde_json::from_str).transpose();
    read.map_err(|cause| unreadable(row.columns()[column].name(), cause))
}

fn id<T: std::str::FromStr<Err = crate::protocol::BadId>>(row: &Row, column: usize) -> Read<T> {
    row.get::<_, &str>(column).parse().map_err(|cause| unreadable(row.columns()[column].name(), cause))
}

fn number(row: &Row, column: usize) -> u64 {
    u64::try_from(row.get::<_, i64>(column)).unwrap_or_default()
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn limited(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

async fn query(client: &Client, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Read<Vec<Row>> {
    let statement = client.prepare_cached(sql).await?;
    Ok(client.query(&statement, values).await?)
}

async fn one(client: &Client, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Read<Option<Row>> {
    let statement = client.prepare_cached(sql).await?;
    Ok(client.query_opt(&statement, values).await?)
}

fn session_row(row: &Row) -> Read<SessionRow> {
    let client: Option<&str> = row.get(1);
    Ok(SessionRow {
        id: id(row, 0)?,
        client: client.map(str::parse).transpose().map_err(|cause| unreadable("client", cause))?,
        status: status_of(row.get(2))?,
        version: number(row, 3),
        created_at: number(row, 4),
        updated_at: number(row, 5),
        message_count: number(row, 6),
        usage: json(row, 7)?,
        settings: json(row, 8)?,
        lineage: json_or_null(row, 9)?,
        children: json_or_null(row, 10)?.unwrap_or_default(),
        spent: json_or_null(row, 11)?.unwrap_or_default(),
        shared: json_or_null(row, 12)?.unwrap_or_default(),
    })
}

/// A session status as it is stored.
pub(super) fn status_number(status: SessionStatus) -> i16 {
    match status {
        SessionStatus::Created => 0,
        SessionStatus::Active => 1,
        SessionStatus::Completed => 2,
        SessionStatus::Aborted => 3,
    }
}

fn status_of(number: i16) -> Read<SessionStatus> {
    match number {
        0 => Ok(SessionStatus::Created),
        1 => Ok(SessionStatus::Active),
        2 => Ok(SessionStatus::Completed),
        3 => Ok(SessionStatus::Aborted),
        other => Err(unreadable("status", other)),
    }
}

/// A session's number. None: there is none of that id.
pub(super) async fn number_of(client: &Client, session: &SessionId) -> Read<Option<i64>> {
    let row = one(client, "SELECT number FROM session WHERE id = $1", &[&session.as_str()]).await?;
    Ok(row.map(|row| row.get(0)))
}

/// The number behind which a page goes on.
async fn below(client: &Client, after: Option<&SessionId>) -> Read<i64> {
    match after {
        Some(id) => number_of(client, id).await?.ok_or_else(|| StoreError::NoSession(id.clone()).into()),
        None => Ok(i64::MAX),
    }
}

pub(super) async fn session(client: &Client, id: &SessionId) -> Read<Option<SessionRow>> {
    let row = one(client, &format!("{SESSION} WHERE id = $1"), &[&id.as_str()]).await?;
    row.as_ref().map(session_row).transpose()
}

pub(super) async fn sessions(
    client: &Client,
    whose: Option<&ClientId>,
    after: Option<&SessionId>,
    limit: usize,
) -> Read<Vec<SessionRow>> {
    let (below, limit) = (below(client, after).await?, limited(limit));
    let behind = "AND number < $1 ORDER BY number DESC LIMIT $2";
    let rows = match whose {
        Some(whose) => {
            query(client, &format!("{SESSION} WHERE client = $3 {behind}"), &[&below, &limit, &whose.as_str()]).await
        }
        None => query(client, &format!("{SESSION} WHERE client IS NULL {behind}"), &[&below, &limit]).await,
    };
    rows?.iter().map(session_row).collect()
}

/// Sessions under a root, newest first.
pub(super) async fn family(
    client: &Client,
    root: &SessionId,
    after: Option<&SessionId>,
    limit: usize,
) -> Read<Vec<SessionRow>> {
    let (below, limit) = (below(client, after).await?, limited(limit));
    let sql = format!("{SESSION} WHERE root = $3 AND number < $1 ORDER BY number DESC LIMIT $2");
    query(client, &sql, &[&below, &limit, &root.as_str()]).await?.iter().map(session_row).collect()
}

/// Sessions that have not done with those under them, oldest first.
pub(super) async fn with_children(client: &Client) -> Read<Vec<SessionRow>> {
    let sql = format!("{SESSION} WHERE children IS NOT NULL ORDER BY number");
    query(client, &sql, &[]).await?.iter().map(session_row).collect()
}

/// Those of a session and of all under it.
pub(super) async fn with_children_under(client: &Client, root: &SessionId) -> Read<Vec<SessionRow>> {
    let sql = format!("{SESSION} WHERE children IS NOT NULL AND (id = $1 OR root = $1) ORDER BY number");
    query(client, &sql, &[&root.as_str()]).await?.iter().map(session_row).collect()
}

/// Whether another node that is there has begun a command under that name.
pub(super) async fn begun_elsewhere(client: &Client, name: &str, own: i64) -> Read<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM outcome JOIN node ON node.number = outcome.node AND NOT node.is_over
        WHERE outcome.name = $1 AND outcome.body IS NULL AND outcome.node <> $2)";
    Ok(one(client, sql, &[&name, &own]).await?.is_some_and(|row| row.get(0)))
}

/// Part of a log that is asked for.
pub(super) struct Stretch<'a> {
    pub(super) session: &'a SessionId,
    pub(super) segment: Segment,
    pub(super) after: u64,
    pub(super) limit: usize,
}

impl Stretch<'_> {
    /// Finds its rows; the statement is [`ROWS`].
    pub(super) async fn rows(&self, client: &tokio_postgres::Client, statement: &Statement) -> Read<Vec<Row>> {
        let (after, limit) = (signed(self.after), limited(self.limit).min(ROWS_MAX));
        let values: [&(dyn ToSql + Sync); 5] =
            [&self.segment.number, &after, &self.segment.upto, &limit, &EVENTS_BYTES_MAX];
        Ok(client.query(statement, &values).await?)
    }

    /// The events of the rows that were found, and their bytes.
    pub(super) fn events(&self, rows: &[Row]) -> Read<(Vec<Event>, i64)> {
        let (mut events, mut bytes) = (Vec::new(), 0);
        for row in rows {
            let (first_seq, count, body): (u64, u64, &[u8]) = (number(row, 0), number(row, 1), row.get(4));
            let turn: Option<&str> = row.get(2);
            let turn = turn.map(str::parse).transpose().map_err(|cause| unreadable("turn", cause))?;
            let stored = record::Row { session: self.session, turn, first_seq, at: number(row, 3), body };
            let parted = stored.parted(count);
            parted.and_then(|(row, _)| row.decode(self.after, &mut events)).map_err(|bad| StoreError::Damaged {
                session: self.session.clone(),
                seq: bad.seq,
                cause: bad.cause,
            })?;
            bytes += i64::try_from(body.len()).unwrap_or(i64::MAX);
        }
        // A row may go on behind what a fork shares.
        let upto = u64::try_from(self.segment.upto).unwrap_or_default();
        events.truncate(events.partition_point(|event| event.seq <= upto));
        Ok((events, bytes))
    }
}

pub(super) async fn events(client: &Client, session: &SessionId, after: u64, limit: usize) -> Read<Vec<Event>> {
    let Some(number) = number_of(client, session).await? else { return Ok(Vec::new()) };
    let statement = client.prepare_cached(ROWS).await?;
    let (mut out, mut bytes) = (Vec::new(), 0);
    for segment in fork::segments_behind(client, number, signed(after)).await? {
        let stretch = Stretch { session, segment, after, limit };
        let rows = stretch.rows(client, &statement).await?;
        let (events, weight) = stretch.events(&rows)?;
        let is_whole = rows.len() < usize::try_from(limited(limit).min(ROWS_MAX)).unwrap_or(usize::MAX);
        out.extend(events);
        bytes += weight;
        if out.len() >= limit || bytes >= EVENTS_BYTES_MAX || !is_whole {
            break;
        }
    }
    out.truncate(limit);
    Ok(out)
}

pub(super) async fn last_seq(client: &Client, session: &SessionId) -> Read<u64> {
    let sql = "SELECT seq FROM session JOIN log_end ON log_end.session = number WHERE session.id = $1";
    Ok(one(client, sql, &[&session.as_str()]).await?.map_or(0, |row| number(&row, 0)))
}

pub(super) async fn asked(client: &Client, session: &SessionId, which: &Which) -> Read<bool> {
    let Some(number) = number_of(client, session).await? else { return Ok(false) };
    let sql = format!(
        "{SEGMENTS} SELECT EXISTS (SELECT 1 FROM segment JOIN question ON question.session = segment.session
            WHERE question.seq <= segment.upto AND ($2::text IS NULL OR id = $2) AND ($3::text IS NULL OR call = $3))"
    );
    let id = which.request_id.as_ref().map(RequestId::as_str);
    let row = one(client, &sql, &[&number, &id, &which.call_id]).await?;
    Ok(row.is_some_and(|row| row.get(0)))
}

pub(super) async fn turn(client: &Client, session: &SessionId, turn: &TurnId) -> Read<Option<TurnRow>> {
    let Some(number) = number_of(client, session).await? else { return Ok(None) };
    let sql = format!(
        "{SEGMENTS} SELECT depth, upto, body FROM segment JOIN turn ON turn.session = segment.session AND turn.id = $2 ORDER BY depth"
    );
    for row in query(client, &sql, &[&number, &turn.as_str()]).await? {
        let body: TurnBody = json(&row, 2)?;
        if row.get::<_, i32>(0) == 0 || body.is_shared(self::number(&row, 1)) {
            return Ok(Some(body.into_row(session.clone(), turn.clone())));
        }
    }
    Ok(None)
}

/// Newest first: places follow the order in which turns came to be.
pub(super) async fn turns(
    client: &Client,
    session: &SessionId,
    after: Option<&TurnId>,
    limit: usize,
) -> Read<Vec<TurnRow>> {
    let Some(number) = number_of(client, session).await? else { return Ok(Vec::new()) };
    let mut segments = fork::segments_behind(client, number, 0).await?;
    segments.reverse();
    let (first, mut below) = match after {
        Some(after) => {
            let sql = format!(
                "{SEGMENTS} SELECT depth, place FROM segment JOIN turn ON turn.session = segment.session AND turn.id = $2
                    ORDER BY depth LIMIT 1"
            );
            let row = one(client, &sql, &[&number, &after.as_str()]).await?;
            let row = row.ok_or_else(|| StoreError::NoTurn(after.clone()))?;
            (usize::try_from(row.get::<_, i32>(0)).unwrap_or_default(), row.get(1))
        }
        None => (0, i64::MAX),
    };
    // One in the middle of which a session was forked has a row in each: the newest counts.
    let sql = "SELECT id, body, place FROM turn WHERE session = $1 AND place < $2
        AND NOT EXISTS (SELECT 1 FROM turn AS newer WHERE newer.session = ANY ($4) AND newer.id = turn.id)
        ORDER BY place DESC LIMIT $3";
    let mut turns = Vec::new();
    for (at, segment) in segments.iter().enumerate().skip(first) {
        let newer: Vec<i64> = segments[..at].iter().map(|segment| segment.number).collect();
        loop {
            let wanted = limited(limit.saturating_sub(turns.len()));
            if wanted == 0 {
                return Ok(turns);
            }
            let rows = query(client, sql, &[&segment.number, &below, &wanted, &newer]).await?;
            for row in &rows {
                let body: TurnBody = json(row, 1)?;
                if at == 0 || body.is_shared(u64::try_from(segment.upto).unwrap_or_default()) {
                    turns.push(body.into_row(session.clone(), id(row, 0)?));
                }
            }
            match rows.last().filter(|_| limited(rows.len()) == wanted) {
                Some(row) => below = row.get(2),
                None => break,
            }
        }
        below = i64::MAX;
    }
    Ok(turns)
}

pub(super) async fn open_turns(client: &Client) -> Read<Vec<TurnRow>> {
    let sql = "SELECT session.id, turn.id, turn.body FROM turn JOIN session ON session.number = turn.session
        WHERE turn.open ORDER BY turn.session, turn.place";
    let rows = query(client, sql, &[]).await?;
    rows.iter().map(|row| Ok(json::<TurnBody>(row, 2)?.into_row(id(row, 0)?, id(row, 1)?))).collect()
}

/// Those of a session and of all under it.
pub(super) async fn open_turns_under(client: &Client, root: &SessionId) -> Read<Vec<TurnRow>> {
    let sql =
        "SELECT session.id, turn.id, turn.body FROM session JOIN turn ON turn.session = session.number AND turn.open
        WHERE session.id = $1 OR session.root = $1 ORDER BY turn.session, turn.place";
    let rows = query(client, sql, &[&root.as_str()]).await?;
    rows.iter().map(|row| Ok(json::<TurnBody>(row, 2)?.into_row(id(row, 0)?, id(row, 1)?))).collect()
}

pub(super) async fn said(client: &Client, session: &SessionId, at: u64) -> Read<Option<Arc<Said>>> {
    let sql = "SELECT body FROM session JOIN said ON said.session = number WHERE session.id = $1 AND said.at = $2";
    let Some(row) = one(client, sql, &[&session.as_str(), &signed(at)]).await? else { return Ok(None) };
    let said = serde_json::from_str(row.get(0)).map_err(|cause| StoreError::Damaged {
        session: session.clone(),
        seq: at,
        cause: cause.to_string(),
    })?;
    Ok(Some(Arc::new(said)))
}

/// Oldest first, about: ids are ordered by the time of the machines where they were given.
pub(super) async fn grants(client: &Client) -> Read<Vec<GrantRow>> {
    query(client, "SELECT body FROM saved_grant ORDER BY id", &[]).await?.iter().map(|row| json(row, 0)).collect()
}

/// No client has an empty name: that row is of all that say none.
/// What a client has spent, in the newest span of time in which it has spent anything. `node`: on that one; else on all.
pub(super) async fn spending(
    client: &Client,
    (whose, node): (Option<&ClientId>, Option<i64>),
) -> Read<Option<ClientSpending>> {
    let sql = "SELECT client, began, body FROM node_spending WHERE client = $1 AND ($2::bigint IS NULL OR node = $2)
        UNION ALL SELECT client, began, body FROM client_spending WHERE client = $1 AND $2::bigint IS NULL";
    let statement = client.prepare_cached(sql).await?;
    let rows = client.query(&statement, &[&line_of(whose), &node]).await?;
    Ok(spent_of(&rows)?.pop())
}

/// What clients have spent on all nodes but that one.
pub(super) async fn spent_but_on(
    client: &Client,
    (clients, node): (&[Option<ClientId>], i64),
) -> Read<Vec<ClientSpending>> {
    let names: Vec<&str> = clients.iter().map(|client| line_of(client.as_ref())).collect();
    let sql = "SELECT client, began, body FROM node_spending WHERE client = ANY ($1) AND node <> $2
        UNION ALL SELECT client, began, body FROM client_spending WHERE client = ANY ($1)";
    let statement = client.prepare_cached(sql).await?;
    spent_of(&client.query(&statement, &[&names, &node]).await?)
}

/// What began so far ahead of now began by a clock that was set back since, or by that of an older server, which is wrong.
const CLOCKS_APART_MS: u64 = 60_000;

/// Adds up, for each client, what lies in its newest span of time. What lies ahead of now was reckoned by a clock that was wrong.
pub(super) fn spent_of(rows: &[Row]) -> Read<Vec<ClientSpending>> {
    let mut sums: BTreeMap<&str, ClientSpending> = BTreeMap::new();
    let wrong_behind = clock::now_ms().saturating_add(CLOCKS_APART_MS);
    for row in rows {
        let (name, began, spent) = (row.get::<_, &str>(0), number(row, 1), json(row, 2)?);
        if began > wrong_behind {
            continue;
        }
        let client = (!name.is_empty()).then(|| name.parse()).transpose();
        let client = client.map_err(|cause| unreadable("client", cause))?;
        let sum = sums.entry(name).or_insert_with(|| ClientSpending { client, began, spent: Spending::default() });
        if began > sum.began {
            (sum.began, sum.spent) = (began, spent);
        } else if began == sum.began {
            sum.spent = sum.spent.plus(spent);
        }
    }
    Ok(sums.into_values().collect())
}

pub(super) async fn outcome(client: &Client, name: &str) -> Read<Option<OutcomeRow>> {
    let row = one(client, "SELECT at, fingerprint, body FROM outcome WHERE name = $1", &[&name]).await?;
    let read = |row: Row| {
        let fingerprint = row.get::<_, &[u8]>(1).try_into().map_err(|cause| unreadable("fingerprint", cause))?;
        let (name, at, body) = (name.to_owned(), number(&row, 0), row.get(2));
        Ok(OutcomeRow { name, at, fingerprint, expired_before: 0, wrong_behind: u64::MAX, body })
    };
    row.map(read).transpose()
}

/// How many outcomes there are, about: numbers are given in order, and the oldest go first.
pub(super) const COUNT_OUTCOMES: &str =
    "SELECT (SELECT max(number) FROM outcome) - number + 1, at FROM outcome ORDER BY number LIMIT 1";

pub(super) fn outcomes_of(row: &Row) -> OutcomesKept {
    OutcomesKept { count: number(row, 0), oldest_at: number(row, 1) }
}

pub(super) async fn outcomes_kept(client: &tokio_postgres::Client) -> Read<OutcomesKept> {
    Ok(client.query_opt(COUNT_OUTCOMES, &[]).await?.as_ref().map_or_else(OutcomesKept::default, outcomes_of))
}

pub(super) async fn session_count(client: &Client) -> Read<u64> {
    Ok(one(client, "SELECT count(*) FROM session", &[]).await?.map_or(0, |row| number(&row, 0)))
}
