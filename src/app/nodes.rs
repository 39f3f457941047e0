//! Several servers over one store: where what is asked of a session is done, who is there, and how one of them goes.

mod commands;
mod handed;
mod signed;

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::{App, Caller, EventReader};
use crate::protocol::{
    Access, ApiError, ClientId, Drained, NodeList, NodeState, NodeView, SessionId, TokenName, TokenRole,
};
pub use crate::session::Whereabouts;
use crate::session::{is_nobodys, store_failure};
pub use crate::store::Holder;

pub(super) use commands::Ways;
pub use handed::{ANSWER_BYTES_MAX, Arrived, Handing, LETTERS_MAX, LetterId, URGENT_LETTERS_MAX, Unanswered};
pub use signed::{Answers, BETWEEN_NODES, HOPS, LEAVES, NodeKey};

/// Where a node takes commands that came over a line of another one.
pub const COMMAND_PATH: &str = "/-/command";
/// Where a node says that it is there.
pub const HERE_PATH: &str = "/-/here";

/// How long the node that follows one that was lost is waited for.
pub const PATIENCE: Duration = Duration::from_secs(15);
/// Pause between two looks at who has a session.
pub const PAUSE: Duration = Duration::from_millis(200);
/// Time between two looks whether the node that was asked is still there.
const LOOK: Duration = Duration::from_secs(1);

/// Who calls, as one node tells another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallerPassed {
    /// See [`Caller::client`].
    pub client: Option<ClientId>,
    /// See [`Caller::role`].
    pub role: TokenRole,
    /// See [`Caller::only`].
    pub only: Option<SessionId>,
    /// The name of the token that was shown, where it is a named one.
    pub token: Option<TokenName>,
}

impl CallerPassed {
    /// As the node that hands on knows it.
    pub fn of(caller: &Caller, token: Option<TokenName>) -> Self {
        Self { client: caller.client.clone(), role: caller.role, only: caller.only.clone(), token }
    }

    /// As the value of a header.
    pub fn to_header(&self) -> String {
        // Plain data: it can be written.
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    /// What such a value says. None: it is none.
    pub fn of_header(value: &[u8]) -> Option<Self> {
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(value).ok()?).ok()
    }

    /// As the node that takes it up knows it.
    pub fn into_caller(self) -> (Caller, Option<TokenName>) {
        (Caller { client: self.client, role: self.role, only: self.only }, self.token)
    }
}

impl App {
    /// By what the servers of the store know one another. None: this one has it alone.
    pub fn node_key(&self) -> Option<NodeKey> {
        self.store.cluster().map(|cluster| NodeKey::of(&*cluster))
    }

    /// Whether what was asked of it in vain, or waited for in vain (`waits`), is answered better by whoever has its sessions next.
    pub fn is_leaving(&self, waits: bool) -> bool {
        let drains = || self.store.cluster().is_some_and(|cluster| cluster.is_draining());
        self.sessions.is_stopping() || waits && drains()
    }

    /// Waits until another server was put in this one's place. It writes nothing more then, and is of no use.
    pub fn taken_over(&self) -> impl Future<Output = ()> + Send + use<> {
        self.store.taken_over()
    }

    /// Reads the session's events behind number `after`.
    ///
    /// # Errors
    /// `NOT_FOUND`, `INVALID_ARGUMENT` (a number that lies ahead of the log), `RESOURCE_EXHAUSTED` (too many streams).
    pub async fn events(&self, caller: &Caller, id: &SessionId, after: u64) -> Result<EventReader, ApiError> {
        let streams_max = self.settings().limits.streams_per_session_max;
        caller.reaches(id)?;
        let reader = match self.sessions.whereabouts(id, true).await {
            Ok(Whereabouts::Here) => {
                let live = self.live(caller, id).await?;
                self.sessions.until_known(&live, after).await?;
                live.read(after, streams_max)?
            }
            Err(error) if !is_nobodys(&error) => return Err(error),
            Ok(Whereabouts::At(_)) | Err(_) => {
                self.sessions.read_log(caller.client.as_ref(), id, (after, streams_max)).await?
            }
        };
        // Who may not answer is nobody who could be asked.
        Ok(if caller.only.is_some() { reader.unattended() } else { reader })
    }

    /// Whether other servers may share the store.
    pub fn is_among_nodes(&self) -> bool {
        self.store.cluster().is_some()
    }

    /// Where what is asked of a session is done. `takes`: it changes the session, and is done here where nobody has it.
    ///
    /// # Errors
    /// What the store says.
    pub async fn whereabouts(&self, id: &SessionId, takes: bool) -> Result<Whereabouts, ApiError> {
        self.sessions.whereabouts(id, takes).await
    }

    /// What is kept in this process alone, and found by its name on every node: a connection of an MCP or ACP client.
    pub fn named_here(&self, name: &str) -> String {
        let own = self.store.cluster().map(|cluster| cluster.own());
        own.map_or_else(|| name.to_owned(), |own| format!("n{own}-{name}"))
    }

    /// Where that is; here, where it is nowhere.
    ///
    /// # Errors
    /// What the store says.
    pub async fn whereabouts_of_named(&self, name: &str) -> Result<Whereabouts, ApiError> {
        let number = name.strip_prefix('n').and_then(|rest| rest.split_once('-')?.0.parse::<i64>().ok());
        let (Some(cluster), Some(number)) = (self.store.cluster(), number) else { return Ok(Whereabouts::Here) };
        if number == cluster.own() {
            return Ok(Whereabouts::Here);
        }
        let nodes = cluster.nodes().await.map_err(|error| store_failure(&error))?;
        let there = nodes.into_iter().find(|node| node.number == number && node.state != NodeState::Over);
        let holder = there.and_then(|node| Some(Holder { number, name: node.name, url: node.url? }));
        Ok(holder.map_or(Whereabouts::Here, Whereabouts::At))
    }

    /// Waits until another node than that one has a session, or nobody.
    pub async fn is_lost(&self, session: &SessionId, holder: &Holder) {
        self.until_not_at(holder, || self.whereabouts(session, false)).await;
    }

    /// Waits until a node is there no longer that has what is named so.
    pub async fn is_gone(&self, name: &str, holder: &Holder) {
        self.until_not_at(holder, || self.whereabouts_of_named(name)).await;
    }

    async fn until_not_at<F>(&self, holder: &Holder, look: impl Fn() -> F)
    where
        F: Future<Output = Result<Whereabouts, ApiError>>,
    {
        let mut departures = self.store.cluster().map(|cluster| cluster.departures());
        loop {
            let departure = async {
                match &mut departures {
                    // The sender lives as long as the store.
                    Some(departures) => drop(departures.changed().await),
                    None => std::future::pending().await,
                }
            };
            drop(tokio::time::timeout(LOOK, departure).await);
            match look().await {
                Ok(Whereabouts::At(now)) if now.number == holder.number => {}
                Ok(_) => return,
                // The database is away: nobody knows.
                Err(_) => {}
            }
        }
    }

    /// Where a new session is made: here, unless this server takes none, or another one has much less to do.
    ///
    /// # Errors
    /// What the store says.
    pub async fn place_for_new(&self) -> Result<Whereabouts, ApiError> {
        self.sessions.place_for_new().await
    }

    /// The servers that share the store.
    ///
    /// # Errors
    /// `FORBIDDEN` to all but owners; what the store says.
    pub async fn nodes(&self, caller: &Caller) -> Result<NodeList, ApiError> {
        caller.needs(Access::Administer)?;
        caller.at_large()?;
        let nodes = match self.store.cluster() {
            Some(cluster) => cluster.nodes().await.map_err(|error| store_failure(&error))?,
            None => vec![self.alone()],
        };
        Ok(NodeList { nodes })
    }

    /// The one server of a store.
    fn alone(&self) -> NodeView {
        let now = self.sessions.now();
        NodeView {
            number: 1,
            name: crate::store::node_name(),
            url: None,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            state: NodeState::Active,
            is_self: true,
            sessions: now.awake,
            running: now.running + now.waiting,
            labels: Vec::new(),
        }
    }

    /// Hands its sessions over to the other servers of the store: what nothing runs in at once, the rest between turns. From now on it takes
    /// none.
    ///
    /// # Errors
    /// `FORBIDDEN` to all but owners; `CONFLICT` where it has the store alone, or is the last that takes sessions; what the store says.
    pub async fn drain(&self, caller: &Caller) -> Result<Drained, ApiError> {
        caller.needs(Access::Administer)?;
        caller.at_large()?;
        let nobody = |expected: &str| {
            Err(ApiError::conflict(format!("there is nobody to hand sessions over to: expected {expected}")))
        };
        let Some(cluster) = self.store.cluster() else { return nobody("a server that shares its store with others") };
        if !cluster.is_draining() && !self.sessions.others_take(&*cluster).await? {
            return nobody("another server that takes sessions and reaches the same workspaces");
        }
        let left = self.sessions.hand_over(Duration::ZERO).await?;
        if left > 0 {
            self.sessions.keep_handing_over();
        }
        Ok(Drained { draining: true, left })
    }
}
