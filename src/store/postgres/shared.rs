//! A database that several servers share: who has which session, and who is there.
//!
//! A session's holder stands beside the end of its log. It changes in two ways alone: its holder gives it up, or its holder is over and
//! another node takes it. Whoever is over writes nothing more (see `node`), so what is taken has one writer.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use deadpool_postgres::Pool;
use tokio::sync::{broadcast, watch};
use tokio_postgres::Client;
use tokio_util::task::AbortOnDropHandle;

use super::connect::Reach;
use super::fault::Fault;
use super::letters::Mail;
use super::node::{LOOK, Node, declare_silent, others};
use super::read;
use super::tidings::Tidings;
use super::watched::{BLIND_MAX, Watched, refuses};
use crate::protocol::{ClientId, NodeState, NodeView, SessionId};
use crate::store::{
    BoxFuture, ClientSpending, Cluster, CommandsGiven, Held, Holder, Letters, Load, Presence, StoreError, Unfinished,
};

/// Whether the node of a row `log_end` is there.
const HAS_HOLDER: &str = "EXISTS (SELECT 1 FROM node WHERE node.number = log_end.holder AND NOT node.is_over)";
/// Whether it is not there, for who takes. A value, and not `NOT EXISTS`: that becomes a join, and who has waited for the row of another one
/// that was taking it would be told what the join had found before.
const IS_FREE: &str = "coalesce((SELECT node.is_over FROM node WHERE node.number = log_end.holder), true)";
/// Whether node `$2` reaches the workspace of a row `log_end`: where it has labels, they have one in common.
const IN_REACH: &str =
    "(log_end.labels = '{}' OR EXISTS (SELECT 1 FROM node WHERE node.number = $2 AND node.labels && log_end.labels))";
/// Longest wait until it is seen whether a node is there.
const UNSEEN_MAX: Duration = Duration::from_secs(10);
/// So long behind its own start, a node waits until it has seen the others beat before it lists them.
const NEW: Duration = Duration::from_millis(1_500);

/// The servers of a database, as one of them sees them.
pub(super) struct SharedDatabase {
    reach: Reach,
    pool: Pool,
    node: Node,
    secret: String,
    tidings: Arc<Tidings>,
    pub(super) mail: Mail,
    draining: AtomicBool,
    /// Nodes that were seen to beat since this one watches, and when last. Others may be there in their rows alone: in a database that was
    /// restored, all of the old ones are.
    beating: watch::Sender<HashMap<i64, Instant>>,
    since: Instant,
}

impl SharedDatabase {
    pub(super) async fn join(
        (reach, pool): (Reach, Pool),
        node: Node,
        tidings: Arc<Tidings>,
    ) -> Result<Arc<Self>, StoreError> {
        let client = pool.get().await.map_err(|error| Fault::from(error).told("open the database", &reach.place))?;
        let secret = secret(&client).await.map_err(|fault| fault.told("open the database", &reach.place))?;
        drop(client);
        let draining = AtomicBool::new(false);
        let beating = watch::Sender::new(HashMap::new());
        let mail = Mail::new((reach.clone(), pool.clone()), node.clone(), Arc::clone(&tidings));
        Ok(Arc::new(Self { reach, pool, node, secret, tidings, mail, draining, beating, since: Instant::now() }))
    }

    /// Looks after the letters, as long as what is returned lives.
    pub(super) fn keep_mail(self: &Arc<Self>) -> AbortOnDropHandle<()> {
        let database = Arc::clone(self);
        AbortOnDropHandle::new(tokio::spawn(async move { database.mail.keep().await }))
    }

    /// Watches the others, as long as what is returned lives.
    pub(super) fn watch(self: &Arc<Self>) -> AbortOnDropHandle<()> {
        let database = Arc::clone(self);
        AbortOnDropHandle::new(tokio::spawn(async move { database.keep_watching().await }))
    }

    async fn keep_watching(&self) {
        let mut line: Option<(Client, AbortOnDropHandle<()>)> = None;
        let mut watched = Watched::default();
        loop {
            tokio::time::sleep(LOOK).await;
            if line.as_ref().is_none_or(|(client, _)| client.is_closed()) {
                line = self.reach.line().await.ok();
            }
            let Some((client, _)) = &line else { continue };
            let looked = tokio::time::timeout(BLIND_MAX, self.look_round(client, &mut watched)).await;
            if !matches!(looked, Ok(Ok(()))) {
                line = None;
            }
        }
    }

    async fn look_round(&self, client: &Client, watched: &mut Watched) -> Result<(), Fault> {
        let all = others(client).await?;
        let now = Instant::now();
        let own = all.iter().find(|node| node.number == self.node.number).map(|node| node.beat);
        let Some(own) = own else {
            // It is over itself: it judges nobody.
            *watched = Watched::default();
            return Ok(());
        };
        let others: Vec<_> = all.into_iter().filter(|node| node.number != self.node.number).collect();
        let there: HashSet<i64> = others.iter().map(|node| node.number).collect();
        if watched.there.iter().any(|number| !there.contains(number)) {
            self.tidings.note_departure();
        }
        self.tidings.set_company(!there.is_empty());
        watched.note_own(own, now);
        let beaten = watched.note(others.iter().map(|node| (node.number, node.beat)), now);
        self.beating.send_modify(|beating| {
            beating.retain(|number, _| there.contains(number));
            beating.extend(beaten.into_iter().map(|number| (number, now)));
        });
        watched.there = there;
        let refused = futures_util::future::join_all(
            others.iter().filter(|node| watched.is_suspect(node.number, now)).map(refuses),
        );
        refused.await.into_iter().flatten().for_each(|number| watched.note_refusal(number));
        for node in others {
            if !watched.is_silent(node.number, now) {
                continue;
            }
            if declare_silent(client, node.number, node.beat).await? {
                // Nobody has to wait until they see it themselves.
                self.tidings.note_departure();
                self.tidings.tell_freed();
                tracing::warn!(node = node.number, name = node.name, "a server was silent: it is declared over");
            }
        }
        Ok(())
    }

    async fn query<T, F>(
        &self,
        doing: &str,
        look: impl Fn(deadpool_postgres::Client) -> F + Send + Sync,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Fault>> + Send,
        T: Send,
    {
        if self.node.is_over() {
            return Err(StoreError::TakenOver);
        }
        super::persist((&self.pool, &self.reach), doing, look).await
    }
}

/// What all nodes of a database know; the first one makes it up.
async fn secret(client: &Client) -> Result<String, Fault> {
    let make = "INSERT INTO cluster (one, secret)
        VALUES (true, replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', '')) ON CONFLICT DO NOTHING";
    client.execute(make, &[]).await?;
    Ok(client.query_one("SELECT secret FROM cluster", &[]).await?.get(0))
}

async fn look(client: &deadpool_postgres::Client, own: i64, id: &SessionId) -> Result<Held, Fault> {
    let sql = format!(
        "SELECT coalesce(session.root, session.id), node.number, node.name, node.url, log_end.labels, {IN_REACH}
        FROM session JOIN log_end ON log_end.session = session.number
        LEFT JOIN node ON node.number = log_end.holder AND NOT node.is_over
        WHERE session.id = $1"
    );
    let statement = client.prepare_cached(&sql).await?;
    let Some(row) = client.query_opt(&statement, &[&id.as_str(), &own]).await? else { return Ok(Held::Nowhere) };
    let root: SessionId = row.get::<_, &str>(0).parse().map_err(|_| Fault::Refused("an id that is none".into()))?;
    let (number, name, url): (Option<i64>, Option<String>, Option<String>) = (row.get(1), row.get(2), row.get(3));
    Ok(match (number, name, url) {
        (Some(number), ..) if number == own => Held::Here { root },
        (Some(number), Some(name), Some(url)) => Held::Elsewhere(Holder { number, name, url }),
        _ if row.get(5) => Held::Free { root },
        _ => Held::OutOfReach { labels: row.get(4) },
    })
}

async fn take(client: &Client, own: i64, root: &SessionId) -> Result<bool, Fault> {
    let sql = format!(
        "WITH free AS (
            SELECT log_end.session FROM log_end JOIN session ON session.number = log_end.session
            WHERE (session.id = $1 OR session.root = $1) AND {IS_FREE} AND {IN_REACH}
            ORDER BY 1 FOR UPDATE OF log_end
        )
        UPDATE log_end SET holder = $2 FROM free WHERE log_end.session = free.session
            AND EXISTS (SELECT 1 FROM node WHERE number = $2 AND NOT is_over AND NOT is_draining)"
    );
    if client.execute(&sql, &[&root.as_str(), &own]).await? > 0 {
        return Ok(true);
    }
    // It may have happened before, and that was not heard.
    let sql = "SELECT EXISTS (SELECT 1 FROM log_end JOIN session ON session.number = log_end.session
        WHERE (session.id = $1 OR session.root = $1) AND log_end.holder = $2)";
    Ok(client.query_one(sql, &[&root.as_str(), &own]).await?.get(0))
}

impl Cluster for SharedDatabase {
    fn secret(&self) -> &str {
        &self.secret
    }

    fn own(&self) -> i64 {
        self.node.number
    }

    fn look<'a>(&'a self, id: &'a SessionId) -> BoxFuture<'a, Result<Held, StoreError>> {
        let own = self.node.number;
        let look = move |line: deadpool_postgres::Client| async move { look(&line, own, id).await };
        Box::pin(async move {
            let (mut beating, begun) = (self.beating.subscribe(), Instant::now());
            loop {
                let found = self.query("look who has a session", look).await?;
                let Held::Elsewhere(holder) = &found else { return Ok(found) };
                if beating.borrow_and_update().contains_key(&holder.number) {
                    return Ok(found);
                }
                if begun.elapsed() > UNSEEN_MAX {
                    let cause = format!("it is not known yet whether {} is there", holder.name);
                    return Err(StoreError::Away { doing: "look who has a session".into(), cause });
                }
                // It beats, or is over a moment later.
                drop(tokio::time::timeout(LOOK, beating.changed()).await);
            }
        })
    }

    fn hears(&self, node: i64, since: Instant) -> BoxFuture<'_, ()> {
        let mut beating = self.beating.subscribe();
        Box::pin(async move {
            // The sender is our own.
            drop(beating.wait_for(|beating| beating.get(&node).is_some_and(|at| *at > since)).await);
        })
    }

    fn take<'a>(&'a self, root: &'a SessionId) -> BoxFuture<'a, Result<bool, StoreError>> {
        let own = self.node.number;
        let take = move |line: deadpool_postgres::Client| async move { take(&line, own, root).await };
        Box::pin(self.query("take a session", take))
    }

    fn let_go<'a>(&'a self, root: &'a SessionId) -> BoxFuture<'a, Result<(), StoreError>> {
        let own = self.node.number;
        let work = move |line: deadpool_postgres::Client| async move {
            let sql = "UPDATE log_end SET holder = NULL FROM session WHERE session.number = log_end.session
                AND (session.id = $1 OR session.root = $1) AND log_end.holder = $2";
            line.execute(sql, &[&root.as_str(), &own]).await?;
            Ok(())
        };
        Box::pin(async move {
            self.tidings.note_let_go();
            self.query("give up a session", work).await?;
            self.tidings.tell_freed();
            Ok(())
        })
    }

    fn let_go_but<'a>(&'a self, kept: &'a [SessionId]) -> BoxFuture<'a, Result<u64, StoreError>> {
        let own = self.node.number;
        let work = move |line: deadpool_postgres::Client| async move {
            let sql = "UPDATE log_end SET holder = NULL FROM session WHERE session.number = log_end.session
                AND log_end.holder = $2 AND NOT (coalesce(session.root, session.id) = ANY ($1))";
            let kept: Vec<&str> = kept.iter().map(SessionId::as_str).collect();
            Ok(line.execute(sql, &[&kept, &own]).await?)
        };
        Box::pin(async move {
            self.tidings.note_let_go();
            let freed = self.query("give up sessions", work).await?;
            if freed > 0 {
                self.tidings.tell_freed();
            }
            Ok(freed)
        })
    }

    fn unfinished<'a>(&'a self, root: &'a SessionId) -> BoxFuture<'a, Result<Unfinished, StoreError>> {
        let work = move |line: deadpool_postgres::Client| async move {
            let turns = read::open_turns_under(&line, root).await?;
            let with_children = read::with_children_under(&line, root).await?;
            Ok(Unfinished { turns, with_children })
        };
        Box::pin(self.query("read what a session has left open", work))
    }

    fn left_behind(&self, limit: usize) -> BoxFuture<'_, Result<Vec<SessionId>, StoreError>> {
        let (limit, own) = (i64::try_from(limit).unwrap_or(i64::MAX), self.node.number);
        let work = move |line: deadpool_postgres::Client| async move {
            let sql = format!(
                "SELECT root FROM (
                    SELECT DISTINCT coalesce(session.root, session.id) AS root FROM session
                    JOIN log_end ON log_end.session = session.number
                    WHERE (session.number IN (SELECT session FROM turn WHERE open) OR session.children IS NOT NULL)
                        AND NOT {HAS_HOLDER} AND {IN_REACH}
                ) AS left_behind ORDER BY random() LIMIT $1"
            );
            let rows = line.query(&sql, &[&limit, &own]).await?;
            let root = |row: &tokio_postgres::Row| row.get::<_, &str>(0).parse();
            rows.iter().map(root).collect::<Result<_, _>>().map_err(|_| Fault::Refused("an id that is none".into()))
        };
        Box::pin(self.query("look for sessions that nobody has", work))
    }

    fn departures(&self) -> watch::Receiver<u64> {
        self.tidings.departures()
    }

    fn follow<'a>(&'a self, id: &'a SessionId) -> BoxFuture<'a, Result<watch::Receiver<u64>, StoreError>> {
        let work = move |line: deadpool_postgres::Client| async move {
            let Some(number) = read::number_of(&line, id).await? else { return Ok(None) };
            // Before the look: what comes between is not missed.
            let followed = self.tidings.follow(number, 0);
            self.tidings.follow(number, read::last_seq(&line, id).await?);
            Ok(Some(followed))
        };
        Box::pin(async move {
            let followed = self.query("follow a session", work).await?;
            followed.ok_or_else(|| StoreError::NoSession(id.clone()))
        })
    }

    fn keep_note<'a>(&'a self, kind: &'a str, id: &'a str, body: String) -> BoxFuture<'a, Result<(), StoreError>> {
        let body = Arc::new(body);
        let work = move |line: deadpool_postgres::Client| {
            let body = Arc::clone(&body);
            async move {
                let sql = "INSERT INTO note (kind, id, body) VALUES ($1, $2, $3)
                    ON CONFLICT (kind, id) DO UPDATE SET body = excluded.body";
                line.execute(sql, &[&kind, &id, &body.as_str()]).await?;
                Ok(())
            }
        };
        Box::pin(async move {
            self.query("keep what all servers know", work).await?;
            self.tidings.tell_changed();
            Ok(())
        })
    }

    fn forget_notes<'a>(&'a self, kind: &'a str, ids: Vec<String>) -> BoxFuture<'a, Result<(), StoreError>> {
        let ids = Arc::new(ids);
        let work = move |line: deadpool_postgres::Client| {
            let ids = Arc::clone(&ids);
            async move {
                line.execute("DELETE FROM note WHERE kind = $1 AND id = ANY ($2)", &[&kind, &*ids]).await?;
                Ok(())
            }
        };
        Box::pin(async move {
            self.query("forget what all servers know", work).await?;
            self.tidings.tell_changed();
            Ok(())
        })
    }

    fn notes<'a>(&'a self, kind: &'a str) -> BoxFuture<'a, Result<Vec<String>, StoreError>> {
        let work = move |line: deadpool_postgres::Client| async move {
            let rows = line.query("SELECT body FROM note WHERE kind = $1 ORDER BY id", &[&kind]).await?;
            Ok(rows.iter().map(|row| row.get(0)).collect())
        };
        Box::pin(self.query("read what all servers know", work))
    }

    fn spent_elsewhere<'a>(
        &'a self,
        clients: &'a [Option<ClientId>],
    ) -> BoxFuture<'a, Result<Vec<ClientSpending>, StoreError>> {
        let own = self.node.number;
        let work =
            move |line: deadpool_postgres::Client| async move { read::spent_but_on(&line, (clients, own)).await };
        Box::pin(self.query("look for what clients have spent on other servers", work))
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.tidings.changes()
    }

    fn nodes(&self) -> BoxFuture<'_, Result<Vec<NodeView>, StoreError>> {
        let own = self.node.number;
        let work = move |line: deadpool_postgres::Client| async move {
            let sql =
                "SELECT number, name, url, version, is_over, is_draining, coalesce(awake, 0), coalesce(running, 0),
                    labels FROM node LEFT JOIN node_beat ON node_beat.node = number ORDER BY number DESC LIMIT 200";
            Ok(line.query(sql, &[]).await?.iter().map(|row| view_of(row, own)).collect::<Vec<_>>())
        };
        Box::pin(async move {
            let mut beating = self.beating.subscribe();
            loop {
                let mut nodes = self.query("list the servers", work).await?;
                let seen = beating.borrow_and_update().clone();
                let is_seen =
                    |node: &NodeView| node.is_self || node.state == NodeState::Over || seen.contains_key(&node.number);
                let left = NEW.saturating_sub(self.since.elapsed());
                if left.is_zero() || nodes.iter().all(is_seen) {
                    // One that was not seen to beat may be there in its row alone.
                    nodes.retain(is_seen);
                    return Ok(nodes);
                }
                drop(tokio::time::timeout(left, beating.changed()).await);
            }
        })
    }

    fn tell_load(&self, load: Load) {
        self.node.tell_load(load);
    }

    fn tell_presence(&self, presence: Presence) {
        self.tidings.tell_presence(presence);
    }

    fn presence(&self) -> broadcast::Receiver<Presence> {
        self.tidings.presence()
    }

    fn tell_commands(&self, given: Vec<CommandsGiven>) {
        self.tidings.tell_commands(given);
    }

    fn commands(&self) -> broadcast::Receiver<Vec<CommandsGiven>> {
        self.tidings.commands()
    }

    fn letters(&self) -> &dyn Letters {
        &self.mail
    }

    fn drain(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.draining.store(true, Ordering::Release);
        let own = self.node.number;
        let work = move |line: deadpool_postgres::Client| async move {
            line.execute("UPDATE node SET is_draining = true WHERE number = $1", &[&own]).await?;
            Ok(())
        };
        Box::pin(self.query("say that this server takes no sessions", work))
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }
}

fn view_of(row: &tokio_postgres::Row, own: i64) -> NodeView {
    let (is_over, is_draining): (bool, bool) = (row.get(4), row.get(5));
    let count = |at: usize| u64::try_from(row.get::<_, i64>(at)).unwrap_or_default();
    let number = row.get(0);
    NodeView {
        number,
        name: row.get(1),
        url: row.get(2),
        version: row.get(3),
        state: match (is_over, is_draining) {
            (true, _) => NodeState::Over,
            (false, true) => NodeState::Draining,
            (false, false) => NodeState::Active,
        },
        is_self: number == own,
        sessions: if is_over { 0 } else { count(6) },
        running: if is_over { 0 } else { count(7) },
        labels: row.get(8),
    }
}
