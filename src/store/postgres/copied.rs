//! All that the tables have, handed out row by row, and put into empty ones: see `store::copy`.

mod loading;

use tokio::sync::mpsc::Sender;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};

use super::connect::Reach;
use super::fault::Fault;
use super::node::{Home, Node};
use super::read::{self, spent_of};
use super::schema;
use crate::store::StoreError;
use crate::store::copy::{Kept, KeptListed, KeptRow, KeptSession};
use crate::store::lifecycle::line_of;

/// Rows that are read at once.
const PAGE: i64 = 500;
/// Bytes of the log that are read at once, about.
const PAGE_BYTES: i64 = 1 << 20;

pub(in crate::store) use loading::Loading;

/// A database that no server has, as long as this lives.
pub(in crate::store) struct Held {
    reach: Reach,
    client: Client,
    node: Node,
    _driven: tokio_util::task::AbortOnDropHandle<()>,
    _beating: tokio_util::task::AbortOnDropHandle<()>,
}

impl Held {
    /// Takes a database, and makes its tables where they are not there.
    pub(in crate::store) async fn take((url, password): (&str, Option<&str>)) -> Result<Self, StoreError> {
        let wrong = |cause| StoreError::Io { doing: "read the address of the database".into(), cause };
        let reach = Reach::of(url, password).map_err(wrong)?;
        let opened = |fault: Fault| fault.told("open the database", &reach.place);
        let (client, driven) = reach.line().await.map_err(opened)?;
        schema::migrate(&client, &reach.place).await?;
        // Of what a newer version has added nothing would be copied.
        schema::refuse_newer(&client, &reach.place).await?;
        let node = Node::join(&client, (&Home::held_by(None), false), &reach).await?;
        let line = reach.line().await.map_err(opened)?;
        let beating = node.beat(line, reach.clone()).await.map_err(opened)?;
        Ok(Self { reach, client, node, _driven: driven, _beating: beating })
    }

    fn told(&self, doing: &str, fault: impl Into<Fault>) -> StoreError {
        fault.into().told(doing, &self.reach.place)
    }

    /// Hands out everything. Ends when nobody takes it any more.
    pub(in crate::store) async fn read_all(&self, out: &Sender<Kept>) -> Result<(), StoreError> {
        Reader { client: &self.client, out }.all().await.map_err(|fault| self.told("read the database", fault))
    }

    /// Gives it back.
    pub(in crate::store) async fn leave(&self) -> Result<(), StoreError> {
        // What was begun and not ended is over.
        let _ = self.client.batch_execute("ROLLBACK").await;
        self.node.leave(&self.client).await.map_err(|fault| self.told("leave the database", fault))
    }

    /// Begins to take what comes, of which `next` has the highest number. All of it or nothing.
    pub(in crate::store) async fn load(&self, next: i64) -> Result<Loading<'_>, StoreError> {
        self.begin(next).await.map_err(|fault| self.told("copy into the database", fault))?;
        Ok(Loading::begun(self))
    }

    async fn begin(&self, next: i64) -> Result<(), Fault> {
        let tables =
            ["session", "doomed", "log", "outcome", "lifecycle", "lifecycle_newest", "saved_grant", "client_spending"];
        let sql = format!("SELECT {}", tables.map(|table| format!("EXISTS (SELECT 1 FROM {table})")).join(" OR "));
        if self.client.query_one(&sql, &[]).await?.get(0) {
            let what =
                "expected a database that is new: this one has sessions, or what deleted ones and commands left behind";
            let cause = format!("{}: {what}", self.reach.place);
            return Err(StoreError::Io { doing: "copy into a database".into(), cause }.into());
        }
        let mut number = 0;
        while number < next {
            number = schema::make_partition(&self.client, number).await?;
        }
        // It may take as long as it takes. Nobody writes meanwhile.
        let begin = format!(
            "BEGIN; SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0;
            UPDATE node SET written = written + 1 WHERE number = {}; SELECT setval('session_number', {}, false)",
            self.node.number,
            next.max(1)
        );
        Ok(self.client.batch_execute(&begin).await?)
    }
}

struct Reader<'a> {
    client: &'a Client,
    out: &'a Sender<Kept>,
}

impl Reader<'_> {
    async fn give(&self, kept: Kept) -> Result<(), Fault> {
        // Who takes nothing any more has a reason of its own, and tells it.
        self.out.send(kept).await.map_err(|_| Fault::Store(StoreError::Closed))
    }

    async fn rows(&self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Fault> {
        Ok(self.client.query(sql, values).await?)
    }

    async fn all(&self) -> Result<(), Fault> {
        let next = "SELECT CASE WHEN is_called THEN last_value + 1 ELSE last_value END FROM session_number";
        self.give(Kept::Next(self.client.query_one(next, &[]).await?.get(0))).await?;
        let forks = "WITH RECURSIVE read (number) AS (
                SELECT number FROM session
                UNION
                SELECT fork.parent FROM read JOIN fork ON fork.session = read.number
            )
            SELECT read.number, fork.parent, fork.at, EXISTS (SELECT 1 FROM session WHERE session.number = read.number)
            FROM read LEFT JOIN fork ON fork.session = read.number ORDER BY read.number";
        let mut ghosts = Vec::new();
        for row in self.rows(forks, &[]).await? {
            let session: i64 = row.get(0);
            if let (Some(parent), Some(at)) = (row.get(1), row.get(2)) {
                self.give(Kept::Fork { session, parent, at }).await?;
            }
            if !row.get::<_, bool>(3) {
                ghosts.push(session);
            }
        }
        self.sessions(ghosts).await?;
        self.listed().await?;
        self.rest().await
    }

    /// Hands out sessions, and those that are gone and still read, by their numbers.
    async fn sessions(&self, ghosts: Vec<i64>) -> Result<(), Fault> {
        let sql = "SELECT number, id, client, status, version, created_at, updated_at, message_count, usage, settings, root, lineage,
                children, spent, shared, seq, head FROM session JOIN log_end ON log_end.session = number
            WHERE number > $1 ORDER BY number LIMIT $2";
        let sql = self.client.prepare(sql).await?;
        let under = Under::prepare(self.client).await?;
        let (mut after, mut ghosts) = (0, ghosts.into_iter().peekable());
        loop {
            let page = self.client.query(&sql, &[&after, &PAGE]).await?;
            for row in &page {
                let session = session_of(row);
                while let Some(ghost) = ghosts.next_if(|ghost| *ghost < session.number) {
                    self.give(Kept::Ghost(ghost)).await?;
                    self.under(&under, ghost, true).await?;
                }
                after = session.number;
                self.give(Kept::Session(Box::new(session))).await?;
                self.under(&under, after, false).await?;
            }
            if page.is_empty() {
                break;
            }
        }
        for ghost in ghosts {
            self.give(Kept::Ghost(ghost)).await?;
            self.under(&under, ghost, true).await?;
        }
        Ok(())
    }

    /// Hands out what stands under a number.
    async fn under(&self, sql: &Under, number: i64, is_ghost: bool) -> Result<(), Fault> {
        let mut after: i64 = i64::MIN;
        loop {
            let page = self.client.query(&sql.turns, &[&number, &after, &PAGE]).await?;
            for row in &page {
                after = row.get(0);
                self.give(Kept::Turn { id: row.get(1), open: row.get(2), body: row.get(3) }).await?;
            }
            if page.is_empty() {
                break;
            }
        }
        let mut after: i64 = 0;
        loop {
            let page = self.client.query(&sql.log, &[&number, &after, &i64::MAX, &PAGE, &PAGE_BYTES]).await?;
            for row in &page {
                let (first, count): (i64, i64) = (row.get(0), row.get(1));
                after = first + count - 1;
                let (turn, at, body) = (row.get(2), row.get(3), row.get(4));
                self.give(Kept::Row(KeptRow { first, count, turn, at, body })).await?;
            }
            if page.is_empty() {
                break;
            }
        }
        if is_ghost {
            return Ok(());
        }
        for row in self.client.query(&sql.said, &[&number]).await? {
            self.give(Kept::Said { at: row.get(0), body: row.get(1) }).await?;
        }
        for row in self.client.query(&sql.questions, &[&number]).await? {
            self.give(Kept::Question { seq: row.get(0), id: row.get(1), call: row.get(2) }).await?;
        }
        Ok(())
    }

    async fn listed(&self) -> Result<(), Fault> {
        let sql = "SELECT lifecycle.client, place, lifecycle.session, seq, gone, at FROM lifecycle
            LEFT JOIN session ON session.number = lifecycle.session
            WHERE (gone IS NOT NULL OR session.number IS NOT NULL) AND (lifecycle.client, place) > ($1, $2)
            ORDER BY lifecycle.client, place LIMIT $3";
        let sql = self.client.prepare(sql).await?;
        let mut after = (String::new(), -1_i64);
        loop {
            let page = self.client.query(&sql, &[&after.0, &after.1, &PAGE]).await?;
            for row in &page {
                let (client, place): (String, i64) = (row.get(0), row.get(1));
                let of = match row.get::<_, Option<String>>(4) {
                    Some(words) => KeptListed::Gone { words, at: row.get::<_, Option<i64>>(5).unwrap_or_default() },
                    None => {
                        KeptListed::Event { session: row.get(2), seq: row.get::<_, Option<i64>>(3).unwrap_or_default() }
                    }
                };
                after = (client.clone(), place);
                self.give(Kept::Listed { client, place, of }).await?;
            }
            if page.is_empty() {
                break;
            }
        }
        for row in self.rows("SELECT client, place FROM lifecycle_newest ORDER BY client", &[]).await? {
            self.give(Kept::Newest { client: row.get(0), place: row.get(1) }).await?;
        }
        let row = self.client.query_one("SELECT place, at FROM forgotten", &[]).await?;
        self.give(Kept::Forgotten { place: row.get(0), at: row.get(1) }).await
    }

    async fn rest(&self) -> Result<(), Fault> {
        for row in self.rows("SELECT id, body FROM saved_grant ORDER BY id", &[]).await? {
            self.give(Kept::Grant { id: row.get(0), body: row.get(1) }).await?;
        }
        // Of all servers that have shared it: whoever has the copy has it alone.
        let sql =
            "SELECT client, began, body FROM client_spending UNION ALL SELECT client, began, body FROM node_spending";
        for row in spent_of(&self.rows(sql, &[]).await?)? {
            let body = serde_json::to_string(&row.spent).map_err(|error| Fault::Refused(error.to_string()))?;
            let (client, began) =
                (line_of(row.client.as_ref()).to_owned(), i64::try_from(row.began).unwrap_or(i64::MAX));
            self.give(Kept::Spending { client, began, body }).await?;
        }
        let sql = "SELECT number, name, at, fingerprint, body FROM outcome WHERE number > $1 ORDER BY number LIMIT $2";
        let mut after: i64 = 0;
        loop {
            let page = self.rows(sql, &[&after, &PAGE]).await?;
            for row in &page {
                after = row.get(0);
                let (name, at, fingerprint, body) = (row.get(1), row.get(2), row.get(3), row.get(4));
                self.give(Kept::Outcome { name, at, fingerprint, body }).await?;
            }
            if page.is_empty() {
                return Ok(());
            }
        }
    }
}

/// Statements for what stands under a number.
struct Under {
    turns: tokio_postgres::Statement,
    log: tokio_postgres::Statement,
    said: tokio_postgres::Statement,
    questions: tokio_postgres::Statement,
}

impl Under {
    async fn prepare(client: &Client) -> Result<Self, Fault> {
        let turns = "SELECT place, id, open, body FROM turn WHERE session = $1 AND place > $2 ORDER BY place LIMIT $3";
        Ok(Self {
            turns: client.prepare(turns).await?,
            log: client.prepare(read::ROWS).await?,
            said: client.prepare("SELECT at, body FROM said WHERE session = $1 ORDER BY at").await?,
            questions: client.prepare("SELECT seq, id, call FROM question WHERE session = $1 ORDER BY seq").await?,
        })
    }
}

fn session_of(row: &Row) -> KeptSession {
    KeptSession {
        number: row.get(0),
        id: row.get(1),
        client: row.get(2),
        status: row.get(3),
        version: row.get(4),
        created_at: row.get(5),
        updated_at: row.get(6),
        message_count: row.get(7),
        usage: row.get(8),
        settings: row.get(9),
        root: row.get(10),
        lineage: row.get(11),
        children: row.get(12),
        spent: row.get(13),
        shared: row.get(14),
        head: Some((row.get(15), row.get(16))).filter(|(seq, _): &(i64, Vec<u8>)| *seq > 0),
    }
}
