//! The statements of the writer. A transaction is one of each that has something to do, sent behind one another without waiting.

use std::collections::BTreeMap;

use futures_util::future::try_join_all;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};

use crate::protocol::{ClientId, SessionId};
use crate::store::chain::Chain;
use crate::store::postgres::fault::Fault;
use crate::store::postgres::plan::{End, Known, Plan, SessionColumns};
use crate::store::postgres::read::{COUNT_OUTCOMES, outcomes_of, status_number};
use crate::store::{OutcomeRow, OutcomesKept, StoreError};

/// Outcomes that may go with each that comes.
const SWEPT: i64 = 4;

macro_rules! statements {
    ($($name:ident: $sql:expr,)*) => {
        /// Ready on one connection.
        pub(super) struct Statements {
            $($name: Statement,)*
        }

        impl Statements {
            pub(super) async fn prepare(client: &Client) -> Result<Self, Fault> {
                Ok(Self { $($name: client.prepare($sql).await?,)* })
            }
        }
    };
}

statements! {
    look_up: "SELECT session.id, number, coalesce(client, ''), seq, head, holder FROM session
        JOIN log_end ON log_end.session = number WHERE id = ANY ($1)",
    numbers: "SELECT nextval('session_number') FROM generate_series(1, $1::bigint)",
    mark: "UPDATE node SET written = $2 WHERE number = $1 AND NOT is_over",
    delete_sessions: "DELETE FROM session WHERE number = ANY ($1)",
    delete_ends: "DELETE FROM log_end WHERE session = ANY ($1)",
    doom: "INSERT INTO doomed (session) SELECT unnest($1::bigint[])",
    create_sessions: "INSERT INTO session (number, id, client, status, version, created_at, updated_at, message_count, usage, settings,
            root, lineage, children, spent, shared)
        SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::smallint[], $5::bigint[], $6::bigint[], $7::bigint[],
            $8::bigint[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[])",
    // What is made under a session goes where that one is.
    create_ends: "INSERT INTO log_end (session, seq, head, holder, labels)
        SELECT new.session, new.seq, new.head, coalesce(above.holder, $4),
            coalesce(above.labels, (SELECT labels FROM node WHERE number = $4), '{}')
        FROM unnest($1::bigint[], $2::bigint[], $3::bytea[], $5::text[]) AS new (session, seq, head, root)
        LEFT JOIN session ON session.id = new.root LEFT JOIN log_end AS above ON above.session = session.number",
    update_sessions: "UPDATE session SET status = new.status, version = new.version, updated_at = new.updated_at,
            message_count = new.message_count, usage = new.usage, settings = new.settings, children = new.children,
            spent = new.spent, shared = new.shared
        FROM unnest($1::bigint[], $2::smallint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::text[], $8::text[],
            $9::text[], $10::text[]) AS new (number, status, version, updated_at, message_count, usage, settings, children, spent, shared)
        WHERE session.number = new.number",
    move_ends: "UPDATE log_end SET seq = new.seq, head = new.head
        FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bytea[]) AS new (session, was, seq, head)
        WHERE log_end.session = new.session AND log_end.seq = new.was AND ($5::bigint IS NULL OR log_end.holder = $5)",
    append: "INSERT INTO log (session, first, count, turn, at, body)
        SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::bytea[])",
    save_turns: "INSERT INTO turn (session, id, open, body)
        SELECT session, id, open, body FROM unnest($1::bigint[], $2::text[], $3::boolean[], $4::text[])
            WITH ORDINALITY AS new (session, id, open, body, nth) ORDER BY nth
        ON CONFLICT (session, id) DO UPDATE SET open = excluded.open, body = excluded.body",
    keep_said: "INSERT INTO said (session, at, body) SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[])
        ON CONFLICT (session, at) DO UPDATE SET body = excluded.body",
    forget_said: "DELETE FROM said USING unnest($1::bigint[], $2::bigint[]) AS old (session, at)
        WHERE said.session = old.session AND said.at = old.at",
    ask: "INSERT INTO question (session, seq, id, call) SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[])",
    fork: "INSERT INTO fork (session, parent, at) SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[])",
    save_grants: "INSERT INTO saved_grant (id, body) SELECT * FROM unnest($1::text[], $2::text[])
        ON CONFLICT (id) DO UPDATE SET body = excluded.body",
    delete_grants: "DELETE FROM saved_grant WHERE id = ANY ($1)",
    forget_spending: "DELETE FROM client_spending WHERE began < $1",
    // Who has the database alone has added up what others had spent.
    forget_node_spending: "DELETE FROM node_spending WHERE began < $1 OR client = $2",
    save_node_spending: "INSERT INTO node_spending (client, node, began, body) VALUES ($1, $2, $3, $4)
        ON CONFLICT (client, node) DO UPDATE SET began = excluded.began, body = excluded.body",
    save_spending: "INSERT INTO client_spending (client, began, body) VALUES ($1, $2, $3)
        ON CONFLICT (client) DO UPDATE SET began = excluded.began, body = excluded.body",
    save_outcomes: "INSERT INTO outcome (name, at, fingerprint, body, node)
        SELECT name, at, fingerprint, body, $6 FROM unnest($1::text[], $2::bigint[], $3::bytea[], $4::text[])
            WITH ORDINALITY AS new (name, at, fingerprint, body, nth) ORDER BY nth
        ON CONFLICT (name) DO UPDATE SET at = excluded.at, fingerprint = excluded.fingerprint, body = excluded.body, node = $6,
            number = CASE WHEN outcome.at < $5 THEN excluded.number ELSE outcome.number END
        WHERE outcome.at < $5 OR (outcome.body IS NULL AND excluded.body IS NOT NULL AND (outcome.node = $6
            OR NOT EXISTS (SELECT 1 FROM node WHERE number = outcome.node AND NOT is_over)))",
    // Behind the saving: whose row it is by now says who was first. Who saves waits for whoever is at the same name.
    begun_elsewhere: "SELECT EXISTS (SELECT 1 FROM outcome WHERE name = ANY ($1) AND at >= $2 AND node IS DISTINCT FROM $3)",
    forget_outcomes: "DELETE FROM outcome WHERE name = ANY ($1) AND body IS NULL AND (node = $2 OR node IS NULL)",
    count_outcomes: COUNT_OUTCOMES,
    // What another one is sweeping is left to it: two that wait for each other's would be in each other's way.
    sweep_outcomes: "DELETE FROM outcome WHERE number IN (SELECT number FROM outcome WHERE number IN (
            SELECT number FROM (SELECT number, at FROM outcome ORDER BY number LIMIT $1) AS oldest WHERE at < $2 OR at > $3)
        FOR UPDATE SKIP LOCKED)",
    // The row of a client is held until the end: its places become visible in their order, whoever else writes.
    tell: "WITH new AS (
            SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[])
                WITH ORDINALITY AS new (client, session, seq, gone, at, nth)
        ), counted AS (
            INSERT INTO lifecycle_newest AS known (client, place)
            SELECT client, count(*) + (SELECT place FROM forgotten) FROM new GROUP BY client ORDER BY client
            ON CONFLICT (client) DO UPDATE SET
                place = known.place + excluded.place - (SELECT place FROM forgotten)
            RETURNING client, place
        )
        INSERT INTO lifecycle (client, place, session, seq, gone, at)
        SELECT new.client,
            counted.place - count(*) OVER (PARTITION BY new.client) + row_number() OVER (PARTITION BY new.client ORDER BY nth),
            session, seq, gone, at
        FROM new JOIN counted ON counted.client = new.client",
}

/// Values of one statement; their lifetimes end with it.
type Values<'a> = [&'a (dyn ToSql + Sync)];

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl Statements {
    /// The sessions of those ids that are there.
    pub(super) async fn look_up(&self, client: &Client, ids: &[&str]) -> Result<Vec<(SessionId, Known)>, Fault> {
        let mut found = Vec::with_capacity(ids.len());
        for row in client.query(&self.look_up, &[&ids]).await? {
            let (id, seq): (&str, i64) = (row.get(0), row.get(3));
            let id: SessionId = id.parse().map_err(|error| Fault::Refused(format!("session {id}: {error}")))?;
            let seq = u64::try_from(seq).unwrap_or_default();
            let head: &[u8] = row.get(4);
            let chain = if seq == 0 { Some(Chain::default()) } else { Chain::resumed(seq, head) };
            let chain = chain.ok_or_else(|| Fault::Refused(format!("session {id}: the head of its log is none")))?;
            let (number, client, holder) = (row.get(1), row.get(2), row.get(5));
            found.push((id, Known { number, client, last_seq: seq, chain, holder }));
        }
        Ok(found)
    }

    /// Numbers for new sessions, the highest first.
    pub(super) async fn numbers(&self, client: &Client, count: i64) -> Result<Vec<i64>, Fault> {
        let rows = client.query(&self.numbers, &[&count]).await?;
        Ok(rows.iter().rev().map(|row| row.get(0)).collect())
    }

    /// Begins the transaction of a node that has that number, and does all of it but its end. How many outcomes there are then, where that
    /// has changed.
    ///
    /// # Errors
    /// [`Fault::Over`] when the node is: then nothing of it may be committed.
    pub(super) async fn carry_out(
        &self,
        client: &Client,
        plan: &Plan,
        (node, nth): (i64, i64),
    ) -> Result<Option<OutcomesKept>, Fault> {
        let begin = async {
            client.batch_execute("BEGIN").await?;
            Ok::<_, Fault>(())
        };
        let mark = async {
            let marked = client.execute(&self.mark, &[&node, &nth]).await?;
            if marked == 1 { Ok(()) } else { Err(Fault::Over) }
        };
        // Each is sent when it is polled first: in this order, without waiting for the one before. Outcomes come last, for they are several
        // statements that wait for one another: what several servers write is locked in one order.
        let (begun, marked, sessions, logs, told, others) = tokio::join!(
            biased;
            begin,
            mark,
            self.sessions(client, plan),
            self.logs(client, plan, node),
            self.told(client, plan),
            self.others(client, plan, node),
        );
        let (outcomes, last) = others.map_or_else(|fault| (None, Some(fault)), |outcomes| (outcomes, None));
        let faults = [begun, marked, sessions, logs, told].map(Result::err).into_iter().chain([last]);
        cause_of(faults.flatten()).map_or(Ok(outcomes), Err)
    }

    async fn sessions(&self, client: &Client, plan: &Plan) -> Result<(), Fault> {
        if !plan.deleted.is_empty() {
            let gone: &Values<'_> = &[&plan.deleted];
            let statements = [&self.delete_sessions, &self.delete_ends, &self.doom];
            try_join_all(statements.map(|statement| client.execute(statement, gone))).await?;
        }
        if !plan.created.is_empty() {
            self.create(client, &plan.created).await?;
        }
        if !plan.updated.is_empty() {
            self.update(client, &plan.updated).await?;
        }
        if !plan.forks.is_empty() {
            let forks = plan.forks.iter().map(|(session, (parent, at))| (*session, (*parent, number(*at))));
            let (sessions, of): (Vec<i64>, (Vec<i64>, Vec<i64>)) = forks.unzip();
            client.execute(&self.fork, &[&sessions, &of.0, &of.1]).await?;
        }
        Ok(())
    }

    async fn create(&self, client: &Client, created: &BTreeMap<i64, SessionColumns>) -> Result<(), Fault> {
        let numbers: Vec<i64> = created.keys().copied().collect();
        let all: Vec<&SessionColumns> = created.values().collect();
        let rows = || all.iter().map(|columns| &columns.row);
        let ids: Vec<&str> = rows().map(|row| row.id.as_str()).collect();
        let clients: Vec<Option<&str>> = rows().map(|row| row.client.as_ref().map(ClientId::as_str)).collect();
        let root = |row: &crate::store::SessionRow| Some(row.lineage.as_ref()?.root()?.to_string());
        let roots: Vec<Option<String>> = rows().map(root).collect();
        let created_at: Vec<i64> = rows().map(|row| number(row.created_at)).collect();
        let lineage: Vec<Option<&str>> = all.iter().map(|columns| columns.lineage.as_deref()).collect();
        let Facts { status, version, updated_at, messages, usage, settings, children, spent, shared } = Facts::of(&all);
        let values: &Values<'_> = &[
            &numbers,
            &ids,
            &clients,
            &status,
            &version,
            &created_at,
            &updated_at,
            &messages,
            &usage,
            &settings,
            &roots,
            &lineage,
            &children,
            &spent,
            &shared,
        ];
        client.execute(&self.create_sessions, values).await?;
        Ok(())
    }

    async fn update(&self, client: &Client, updated: &BTreeMap<i64, SessionColumns>) -> Result<(), Fault> {
        let numbers: Vec<i64> = updated.keys().copied().collect();
        let all: Vec<&SessionColumns> = updated.values().collect();
        let Facts { status, version, updated_at, messages, usage, settings, children, spent, shared } = Facts::of(&all);
        let values: &Values<'_> =
            &[&numbers, &status, &version, &updated_at, &messages, &usage, &settings, &children, &spent, &shared];
        let changed = client.execute(&self.update_sessions, values).await?;
        if changed == numbers.len() as u64 { Ok(()) } else { Err(Fault::Stale) }
    }

    async fn logs(&self, client: &Client, plan: &Plan, node: i64) -> Result<(), Fault> {
        let (new, moved): (Vec<(&i64, &End)>, Vec<_>) = plan.ends.iter().partition(|(_, end)| end.from.is_none());
        if !new.is_empty() {
            let sessions: Vec<i64> = new.iter().map(|(session, _)| **session).collect();
            let seqs: Vec<i64> = new.iter().map(|(_, end)| number(end.chain.seq())).collect();
            let heads: Vec<&[u8]> = new.iter().map(|(_, end)| end.chain.value()).collect();
            let root = |session: &i64| Some(plan.created.get(session)?.row.lineage.as_ref()?.root()?.to_string());
            let roots: Vec<Option<String>> = sessions.iter().map(root).collect();
            client.execute(&self.create_ends, &[&sessions, &seqs, &heads, &node, &roots]).await?;
        }
        if !moved.is_empty() {
            let sessions: Vec<i64> = moved.iter().map(|(session, _)| **session).collect();
            let was: Vec<i64> = moved.iter().map(|(_, end)| number(end.from.unwrap_or_default())).collect();
            let seqs: Vec<i64> = moved.iter().map(|(_, end)| number(end.chain.seq())).collect();
            let heads: Vec<&[u8]> = moved.iter().map(|(_, end)| end.chain.value()).collect();
            let holder = plan.shares.then_some(node);
            let changed = client.execute(&self.move_ends, &[&sessions, &was, &seqs, &heads, &holder]).await?;
            if changed != sessions.len() as u64 {
                return Err(Fault::Stale);
            }
        }
        if plan.log.is_empty() {
            return Ok(());
        }
        let rows = &plan.log;
        let sessions: Vec<i64> = rows.iter().map(|row| row.session).collect();
        let firsts: Vec<i64> = rows.iter().map(|row| number(row.first)).collect();
        let counts: Vec<i64> = rows.iter().map(|row| number(row.count)).collect();
        let turns: Vec<Option<&str>> = rows.iter().map(|row| row.turn.as_deref()).collect();
        let times: Vec<i64> = rows.iter().map(|row| number(row.at)).collect();
        let bodies: Vec<&[u8]> = rows.iter().map(|row| row.body.as_slice()).collect();
        client.execute(&self.append, &[&sessions, &firsts, &counts, &turns, &times, &bodies]).await?;
        Ok(())
    }

    async fn others(&self, client: &Client, plan: &Plan, node: i64) -> Result<Option<OutcomesKept>, Fault> {
        let ((), (), (), (), outcomes) = tokio::try_join!(
            biased;
            self.turns(client, plan),
            self.said(client, plan),
            self.questions(client, plan),
            self.grants(client, plan, node),
            self.outcomes(client, plan, node),
        )?;
        Ok(outcomes)
    }

    async fn turns(&self, client: &Client, plan: &Plan) -> Result<(), Fault> {
        if plan.turns.is_empty() {
            return Ok(());
        }
        let sessions: Vec<i64> = plan.turns.iter().map(|turn| turn.session).collect();
        let ids: Vec<&str> = plan.turns.iter().map(|turn| turn.id.as_str()).collect();
        let open: Vec<bool> = plan.turns.iter().map(|turn| turn.open).collect();
        let bodies: Vec<&str> = plan.turns.iter().map(|turn| turn.body.as_str()).collect();
        client.execute(&self.save_turns, &[&sessions, &ids, &open, &bodies]).await?;
        Ok(())
    }

    async fn said(&self, client: &Client, plan: &Plan) -> Result<(), Fault> {
        let (mut kept, mut gone) = ((Vec::new(), Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
        for ((session, at), body) in &plan.said {
            match body {
                Some(body) => {
                    kept.0.push(*session);
                    kept.1.push(number(*at));
                    kept.2.push(body.as_str());
                }
                None => {
                    gone.0.push(*session);
                    gone.1.push(number(*at));
                }
            }
        }
        if !kept.0.is_empty() {
            client.execute(&self.keep_said, &[&kept.0, &kept.1, &kept.2]).await?;
        }
        if !gone.0.is_empty() {
            client.execute(&self.forget_said, &[&gone.0, &gone.1]).await?;
        }
        Ok(())
    }

    async fn questions(&self, client: &Client, plan: &Plan) -> Result<(), Fault> {
        if plan.questions.is_empty() {
            return Ok(());
        }
        let sessions: Vec<i64> = plan.questions.iter().map(|(session, ..)| *session).collect();
        let seqs: Vec<i64> = plan.questions.iter().map(|(_, seq, _)| number(*seq)).collect();
        let ids: Vec<&str> = plan.questions.iter().map(|(.., asked)| asked.request_id.as_str()).collect();
        let calls: Vec<&str> = plan.questions.iter().map(|(.., asked)| asked.call_id.as_str()).collect();
        client.execute(&self.ask, &[&sessions, &seqs, &ids, &calls]).await?;
        Ok(())
    }

    async fn grants(&self, client: &Client, plan: &Plan, node: i64) -> Result<(), Fault> {
        let saved = plan.grants.iter().filter_map(|(id, body)| Some((id.as_str(), body.as_deref()?)));
        let (ids, bodies): (Vec<&str>, Vec<&str>) = saved.unzip();
        if !ids.is_empty() {
            client.execute(&self.save_grants, &[&ids, &bodies]).await?;
        }
        let gone: Vec<&str> =
            plan.grants.iter().filter(|(_, body)| body.is_none()).map(|(id, _)| id.as_str()).collect();
        if !gone.is_empty() {
            client.execute(&self.delete_grants, &[&gone]).await?;
        }
        for row in &plan.spending {
            let (name, began) = (row.client.as_ref().map_or("", ClientId::as_str), number(row.began));
            let body = serde_json::to_string(&row.spent).map_err(|error| Fault::Refused(error.to_string()))?;
            client.execute(&self.forget_spending, &[&began]).await?;
            let alone = (!plan.shares).then_some(name);
            client.execute(&self.forget_node_spending, &[&began, &alone]).await?;
            if plan.shares {
                client.execute(&self.save_node_spending, &[&name, &node, &began, &body]).await?;
            } else {
                client.execute(&self.save_spending, &[&name, &began, &body]).await?;
            }
        }
        Ok(())
    }

    async fn outcomes(&self, client: &Client, plan: &Plan, node: i64) -> Result<Option<OutcomesKept>, Fault> {
        if plan.outcomes.is_empty() {
            return Ok(None);
        }
        let (mut swept, mut gone) = (0, None);
        for round in &plan.outcomes {
            if !round.forgotten.is_empty() {
                client.execute(&self.forget_outcomes, &[&round.forgotten, &node]).await?;
            }
            // Rows of one moment have expired at the same: but for what a test makes up.
            let mut rest = round.saved.as_slice();
            while let Some(first) = rest.first() {
                let same = rest.iter().take_while(|row| row.expired_before == first.expired_before).count();
                let (rows, behind) = rest.split_at(same);
                rest = behind;
                let expired = number(first.expired_before);
                // Who is at the same names takes them in the same order.
                let mut rows: Vec<&OutcomeRow> = rows.iter().collect();
                rows.sort_unstable_by(|one, other| one.name.cmp(&other.name));
                let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
                let times: Vec<i64> = rows.iter().map(|row| number(row.at)).collect();
                let prints: Vec<&[u8]> = rows.iter().map(|row| row.fingerprint.as_slice()).collect();
                let bodies: Vec<Option<&str>> = rows.iter().map(|row| row.body.as_deref()).collect();
                client.execute(&self.save_outcomes, &[&names, &times, &prints, &bodies, &expired, &node]).await?;
                if plan.shares && client.query_one(&self.begun_elsewhere, &[&names, &expired, &node]).await?.get(0) {
                    return Err(Fault::Store(StoreError::Begun));
                }
                swept += SWEPT * i64::try_from(rows.len()).unwrap_or(1);
                gone = Some((expired, number(first.wrong_behind)));
            }
        }
        // Behind all of them: who is swept up behind waits for nobody's name.
        if let Some((expired, wrong)) = gone {
            client.execute(&self.sweep_outcomes, &[&swept, &expired, &wrong]).await?;
        }
        let row = client.query_opt(&self.count_outcomes, &[]).await?;
        Ok(Some(row.as_ref().map_or_else(OutcomesKept::default, outcomes_of)))
    }

    async fn told(&self, client: &Client, plan: &Plan) -> Result<(), Fault> {
        if plan.told.is_empty() {
            return Ok(());
        }
        let clients: Vec<&str> = plan.told.iter().map(|told| told.client.as_str()).collect();
        let sessions: Vec<i64> = plan.told.iter().map(|told| told.session).collect();
        let seqs: Vec<Option<i64>> = plan.told.iter().map(|told| told.seq.map(number)).collect();
        let gone: Vec<Option<&str>> = plan.told.iter().map(|told| Some(told.gone.as_ref()?.0.as_str())).collect();
        let times: Vec<Option<i64>> = plan.told.iter().map(|told| Some(number(told.gone.as_ref()?.1))).collect();
        client.execute(&self.tell, &[&clients, &sessions, &seqs, &gone, &times]).await?;
        Ok(())
    }
}

/// Why a transaction failed: behind one statement that fails all others do, for no reason of their own.
fn cause_of(faults: impl Iterator<Item = Fault>) -> Option<Fault> {
    let (causes, behind): (Vec<Fault>, Vec<Fault>) = faults.partition(|fault| !matches!(fault, Fault::Aborted));
    causes.into_iter().chain(behind).next()
}

/// Columns of sessions that change.
struct Facts<'a> {
    status: Vec<i16>,
    version: Vec<i64>,
    updated_at: Vec<i64>,
    messages: Vec<i64>,
    usage: Vec<&'a str>,
    settings: Vec<&'a str>,
    children: Vec<Option<&'a str>>,
    spent: Vec<Option<&'a str>>,
    shared: Vec<Option<&'a str>>,
}

impl<'a> Facts<'a> {
    fn of(all: &[&'a SessionColumns]) -> Self {
        Self {
            status: all.iter().map(|columns| status_number(columns.row.status)).collect(),
            version: all.iter().map(|columns| number(columns.row.version)).collect(),
            updated_at: all.iter().map(|columns| number(columns.row.updated_at)).collect(),
            messages: all.iter().map(|columns| number(columns.row.message_count)).collect(),
            usage: all.iter().map(|columns| columns.usage.as_str()).collect(),
            settings: all.iter().map(|columns| columns.settings.as_str()).collect(),
            children: all.iter().map(|columns| columns.children.as_deref()).collect(),
            spent: all.iter().map(|columns| columns.spent.as_deref()).collect(),
            shared: all.iter().map(|columns| columns.shared.as_deref()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_statements_that_fail_together_the_first_says_why() {
        let told = |faults: Vec<Fault>| cause_of(faults.into_iter()).map(|fault| format!("{fault:?}"));
        assert_eq!(told(vec![]), None);
        assert_eq!(told(vec![Fault::Aborted]).as_deref(), Some("Aborted"));
        let again = || Fault::Again("deadlock".into());
        assert_eq!(told(vec![Fault::Aborted, again(), Fault::Aborted]).as_deref(), Some("Again(\"deadlock\")"));
        assert_eq!(told(vec![again(), Fault::Over]).as_deref(), Some("Again(\"deadlock\")"));
    }
}
