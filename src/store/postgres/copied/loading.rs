//! What another store had, put into empty tables.

use tokio_postgres::Client;
use tokio_postgres::types::ToSql;

use super::Held;
use crate::store::StoreError;
use crate::store::copy::{Kept, KeptListed, KeptRow, KeptSession};
use crate::store::postgres::fault::Fault;

/// What is written at once: things, and bytes of the log, about.
const BATCH: (usize, usize) = (2_000, 4 << 20);

/// What is written at once.
#[derive(Default)]
struct Batch {
    things: usize,
    bytes: usize,
    sessions: Vec<KeptSession>,
    ends: Columns3<i64, i64, Vec<u8>>,
    ghosts: Vec<i64>,
    forks: Columns3<i64, i64, i64>,
    turns: (Vec<i64>, Vec<String>, Vec<bool>, Vec<String>),
    rows: (Vec<i64>, Vec<KeptRow>),
    said: Columns3<i64, i64, String>,
    questions: (Vec<i64>, Vec<i64>, Vec<String>, Vec<String>),
    listed: Vec<(String, i64, KeptListed)>,
}

type Columns3<A, B, C> = (Vec<A>, Vec<B>, Vec<C>);

fn push3<A, B, C>(columns: &mut Columns3<A, B, C>, (a, b, c): (A, B, C)) {
    columns.0.push(a);
    columns.1.push(b);
    columns.2.push(c);
}

/// Takes what another store had. Until its end nothing of it can be seen; without it nothing is there.
pub(in crate::store) struct Loading<'a> {
    held: &'a Held,
    /// The session that comes.
    number: i64,
    batch: Batch,
}

impl<'a> Loading<'a> {
    pub(super) fn begun(held: &'a Held) -> Self {
        Self { held, number: 0, batch: Batch::default() }
    }

    /// Takes the next thing.
    pub(in crate::store) async fn put(&mut self, kept: Kept) -> Result<(), StoreError> {
        self.put_one(kept).await.map_err(|fault| self.held.told("copy into the database", fault))
    }

    async fn put_one(&mut self, kept: Kept) -> Result<(), Fault> {
        let (batch, client) = (&mut self.batch, &self.held.client);
        batch.things += 1;
        match kept {
            Kept::Next(_) => {}
            Kept::Fork { session, parent, at } => push3(&mut batch.forks, (session, parent, at)),
            Kept::Session(session) => {
                self.number = session.number;
                batch.sessions.push(*session);
            }
            Kept::Ghost(number) => {
                self.number = number;
                batch.ghosts.push(number);
            }
            Kept::Turn { id, open, body } => {
                batch.bytes += body.len();
                let (sessions, ids, opens, bodies) = &mut batch.turns;
                sessions.push(self.number);
                ids.push(id);
                opens.push(open);
                bodies.push(body);
            }
            Kept::Row(row) => {
                batch.bytes += row.body.len();
                batch.rows.0.push(self.number);
                batch.rows.1.push(row);
            }
            Kept::End { seq, head } => {
                push3(&mut batch.ends, (self.number, i64::try_from(seq).unwrap_or(i64::MAX), head));
            }
            Kept::Said { at, body } => {
                batch.bytes += body.len();
                push3(&mut batch.said, (self.number, at, body));
            }
            Kept::Question { seq, id, call } => {
                let (sessions, seqs, ids, calls) = &mut batch.questions;
                sessions.push(self.number);
                seqs.push(seq);
                ids.push(id);
                calls.push(call);
            }
            Kept::Listed { client, place, of } => batch.listed.push((client, place, of)),
            Kept::Newest { client: whose, place } => {
                let sql = "INSERT INTO lifecycle_newest (client, place) VALUES ($1, $2)";
                client.execute(sql, &[&whose, &place]).await?;
            }
            Kept::Forgotten { place, at } => {
                client.execute("UPDATE forgotten SET place = $1, at = $2", &[&place, &at]).await?;
            }
            Kept::Grant { id, body } => {
                client.execute("INSERT INTO saved_grant (id, body) VALUES ($1, $2)", &[&id, &body]).await?;
            }
            Kept::Spending { client: whose, began, body } => {
                let sql = "INSERT INTO client_spending (client, began, body) VALUES ($1, $2, $3)";
                client.execute(sql, &[&whose, &began, &body]).await?;
            }
            Kept::Outcome { name, at, fingerprint, body } => {
                let sql = "INSERT INTO outcome (name, at, fingerprint, body) VALUES ($1, $2, $3, $4)";
                client.execute(sql, &[&name, &at, &fingerprint, &body]).await?;
            }
        }
        if self.batch.things >= BATCH.0 || self.batch.bytes >= BATCH.1 {
            return self.flush().await;
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        let (batch, client) = (std::mem::take(&mut self.batch), &self.held.client);
        let Batch { sessions, ends, ghosts, forks, turns, rows, said, questions, listed, .. } = batch;
        put_sessions(client, &sessions).await?;
        let sql = "INSERT INTO doomed (session) SELECT unnest($1::bigint[])";
        client.execute(sql, &[&ghosts]).await?;
        let sql = "INSERT INTO log_end (session, seq, head) SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bytea[]) AS new (s, q, h)
            WHERE EXISTS (SELECT 1 FROM session WHERE number = s)";
        client.execute(sql, &[&ends.0, &ends.1, &ends.2]).await?;
        let sql =
            "INSERT INTO fork (session, parent, at) SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[])";
        client.execute(sql, &[&forks.0, &forks.1, &forks.2]).await?;
        let sql = "INSERT INTO turn (session, id, open, body)
            SELECT session, id, open, body FROM unnest($1::bigint[], $2::text[], $3::boolean[], $4::text[])
                WITH ORDINALITY AS new (session, id, open, body, nth) ORDER BY nth";
        client.execute(sql, &[&turns.0, &turns.1, &turns.2, &turns.3]).await?;
        put_rows(client, &rows.0, &rows.1).await?;
        let sql = "INSERT INTO said (session, at, body) SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[])";
        client.execute(sql, &[&said.0, &said.1, &said.2]).await?;
        let sql = "INSERT INTO question (session, seq, id, call)
            SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[])";
        client.execute(sql, &[&questions.0, &questions.1, &questions.2, &questions.3]).await?;
        put_listed(client, &listed).await
    }

    /// All has come. Before anybody can see it `compare` is given all that is there now.
    pub(in crate::store) async fn finish(
        mut self,
        compare: impl AsyncFnOnce(&Held) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let told = |fault: Fault| self.held.told("copy into the database", fault);
        let flushed = self.flush().await;
        flushed.map_err(|fault| self.held.told("copy into the database", fault))?;
        if let Err(error) = compare(self.held).await {
            // A connection that is gone has rolled back by itself.
            let _ = self.held.client.batch_execute("ROLLBACK").await;
            return Err(error);
        }
        let asked = "SELECT is_over FROM node WHERE number = $1";
        let over = self.held.client.query_one(asked, &[&self.held.node.number]).await;
        if over.map_err(|error| told(error.into()))?.get(0) {
            return Err(StoreError::TakenOver);
        }
        let analyzed = "COMMIT; ANALYZE session, log, turn, lifecycle";
        self.held.client.batch_execute(analyzed).await.map_err(|error| told(error.into()))
    }
}

async fn put_sessions(client: &Client, all: &[KeptSession]) -> Result<(), Fault> {
    let numbers = |of: fn(&KeptSession) -> i64| all.iter().map(of).collect::<Vec<_>>();
    let texts = |of: fn(&KeptSession) -> &str| all.iter().map(of).collect::<Vec<_>>();
    let maybe = |of: fn(&KeptSession) -> Option<&str>| all.iter().map(of).collect::<Vec<_>>();
    let sql = "INSERT INTO session (number, id, client, status, version, created_at, updated_at, message_count, usage, settings, root,
            lineage, children, spent, shared)
        SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::smallint[], $5::bigint[], $6::bigint[], $7::bigint[],
            $8::bigint[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[])";
    let status: Vec<i16> = all.iter().map(|session| session.status).collect();
    let values: [&(dyn ToSql + Sync); 15] = [
        &numbers(|session| session.number),
        &texts(|session| &session.id),
        &maybe(|session| session.client.as_deref()),
        &status,
        &numbers(|session| session.version),
        &numbers(|session| session.created_at),
        &numbers(|session| session.updated_at),
        &numbers(|session| session.message_count),
        &texts(|session| &session.usage),
        &texts(|session| &session.settings),
        &maybe(|session| session.root.as_deref()),
        &maybe(|session| session.lineage.as_deref()),
        &maybe(|session| session.children.as_deref()),
        &maybe(|session| session.spent.as_deref()),
        &maybe(|session| session.shared.as_deref()),
    ];
    client.execute(sql, &values).await?;
    Ok(())
}

async fn put_rows(client: &Client, sessions: &[i64], rows: &[KeptRow]) -> Result<(), Fault> {
    let firsts: Vec<i64> = rows.iter().map(|row| row.first).collect();
    let counts: Vec<i64> = rows.iter().map(|row| row.count).collect();
    let turns: Vec<Option<&str>> = rows.iter().map(|row| row.turn.as_deref()).collect();
    let times: Vec<i64> = rows.iter().map(|row| row.at).collect();
    let bodies: Vec<&[u8]> = rows.iter().map(|row| row.body.as_slice()).collect();
    let sql = "INSERT INTO log (session, first, count, turn, at, body)
        SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::bytea[])";
    client.execute(sql, &[&sessions, &firsts, &counts, &turns, &times, &bodies]).await?;
    Ok(())
}

async fn put_listed(client: &Client, listed: &[(String, i64, KeptListed)]) -> Result<(), Fault> {
    let clients: Vec<&str> = listed.iter().map(|(client, ..)| client.as_str()).collect();
    let places: Vec<i64> = listed.iter().map(|(_, place, _)| *place).collect();
    let mut of = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (.., listed) in listed {
        let (session, seq, words, at) = match listed {
            // Its number is not needed any more.
            KeptListed::Gone { words, at } => (0, None, Some(words.as_str()), Some(*at)),
            KeptListed::Event { session, seq } => (*session, Some(*seq), None, None),
        };
        of.0.push(session);
        of.1.push(seq);
        of.2.push(words);
        of.3.push(at);
    }
    let sql = "INSERT INTO lifecycle (client, place, session, seq, gone, at)
        SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[])";
    client.execute(sql, &[&clients, &places, &of.0, &of.1, &of.2, &of.3]).await?;
    Ok(())
}
