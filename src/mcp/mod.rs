//! The MCP client: servers that are configured, their lives, and their tools as [`Tool`]s.
//!
//! [`Servers`] belong to whoever made them, an application or a session, and never to a connection of a client.
//! Each has a task of its own that starts it, lists its tools, notices its end and, when it is needed again, starts
//! it once more after a pause that grows. Nothing here fails because a server is missing: its tools are missing then.
//!
//! [`Client`] is the same in the hands of a program, which connects and asks by itself.
//!
//! - `link`: one server's life. `ask`: one request to it. `connection`: one run of it: process or HTTP session, negotiation, end.
//! - `listing`: its list of tools, bounded. `tool`: one of them. `content`: what a call answered, as text.
//! - `greeting`: which revision of the protocol is spoken with it. `rounds`: requests that it ends with questions of its own.
//! - `handler`: what a server is told about us and asks of us. `order`: what it tells by itself, before what it says next. `answers`: what it is answered. `elicit`: what it asks a
//!   person meanwhile, `sample`: a model. `resource`: its resources as tools.
//! - `login`: how one logs in at a server, with `exchange`, `key` and `vouched`. `drawer`: where that is kept. `signer`: what goes with
//!   requests. `dpop`: keys that tokens are bound to.
//! - `pipe`: what comes out of a server's process. `explain`: what went wrong, in our words.
//!
//! Invariants: a program that was started is ended with its group, at the latest when [`Servers`] are dropped; a
//! call is sent once and never repeated, because it may have been carried out; a tool's name is
//! `mcp:<server>/<tool>`, and no server's name contains `/`, so that names of two servers never meet.

mod answers;
mod ask;
mod client;
mod connection;
mod content;
mod dpop;
mod drawer;
mod elicit;
mod exchange;
mod explain;
mod greeting;
mod handler;
#[cfg(test)]
#[path = "../../fuzz/src/inside/servers.rs"]
mod inside;
mod key;
mod link;
mod listing;
mod login;
mod order;
mod pipe;
mod resource;
mod rounds;
mod sample;
mod signer;
mod tool;
mod vouched;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::base::{BoxFuture, limit};
use crate::config::{McpServer, McpTransport};
use crate::tool::Tool;

use link::Link;

pub use client::{Client, ClientError};
pub use content::read_answer;
pub use drawer::Logins;
pub use login::log_in;

/// Who we say that we are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// A name for people.
    pub name: String,
    /// Its version.
    pub version: String,
}

impl Default for Identity {
    fn default() -> Self {
        Self { name: "simse".into(), version: env!("CARGO_PKG_VERSION").into() }
    }
}

/// What a server tells by itself.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum News {
    /// Its tools are others now.
    ToolsChanged,
    /// Its resources are others now.
    ResourcesChanged,
    /// Its prompts are others now.
    PromptsChanged,
    /// A resource that was subscribed to is another now.
    ResourceUpdated {
        /// Which.
        uri: String,
    },
    /// A message for a log.
    Log {
        /// How much it matters, in the protocol's words.
        level: String,
        /// What of the server says it.
        #[serde(skip_serializing_if = "Option::is_none")]
        logger: Option<String>,
        /// What it says.
        data: serde_json::Value,
    },
}

/// How far a request is.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Progress {
    /// So far.
    pub progress: f64,
    /// Of how much, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    /// In words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Is told how far a request is. Must not block.
pub type OnProgress = Arc<dyn Fn(Progress) + Send + Sync>;

/// Answers a server: `{server, method, params}` in the protocol's words; its result, or why it is refused.
pub type Answering = Arc<
    dyn Fn(serde_json::Value, CancellationToken) -> BoxFuture<'static, Result<serde_json::Value, String>> + Send + Sync,
>;

/// A program that connects servers by itself, and speaks for its user.
#[derive(Clone)]
pub struct Program {
    /// Is told what a server of this name tells. Must not block.
    pub told: Arc<dyn Fn(&str, News) + Send + Sync>,
    /// Answers what servers ask.
    pub answer: Answering,
    /// Whether it has models answer (`sampling/createMessage`).
    pub samples: bool,
    /// Whether it has forms filled in (`elicitation/create`).
    pub elicits: bool,
    /// Whether it has pages opened as well (`elicitation/create` with an address). Counts where it has forms filled in.
    pub opens_pages: bool,
    /// Has a person open an address to log in at a server of this name. None: nobody logs in.
    pub opens: Option<Opening>,
}

/// Has a person open an address: a server's name, and the address.
pub type Opening = Arc<dyn Fn(&str, String) -> BoxFuture<'static, ()> + Send + Sync>;

/// What the servers of one owner have in common.
struct Place {
    /// Where their programs start.
    directory: PathBuf,
    identity: Identity,
    /// Where the logins at servers are kept.
    logins: Logins,
    /// The directories that servers are told to work in.
    roots: watch::Sender<Vec<PathBuf>>,
    /// None: nobody but sessions.
    program: Option<Program>,
    /// Whether there are sessions, whose clients can be asked.
    has_clients: bool,
    /// Rest after which the program of a server is ended until it is needed again. None: never.
    idle: Option<Duration>,
}

impl Place {
    fn tell(&self, server: &str, news: News) {
        if let Some(program) = &self.program {
            (program.told)(server, news);
        }
    }
}

/// Two servers have one name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a name of its own, got `{name}` once more")]
pub struct DuplicateServer {
    /// Which of the servers, from 0.
    pub at: usize,
    /// The name.
    pub name: String,
}

/// Servers and their tools. Dropping them ends their processes.
pub struct Servers {
    links: Vec<Arc<Link>>,
    tasks: TaskTracker,
    stop: CancellationToken,
    _stop: DropGuard,
}

impl std::fmt::Debug for Servers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.links.iter().map(|link| link.name()).collect();
        f.debug_struct("Servers").field("names", &names).finish_non_exhaustive()
    }
}

impl Servers {
    /// Servers whose programs start in `directory` unless they name another. Starts nothing. A program that was asked nothing
    /// for as long as `idle` is ended until it is needed again; one that is asked something never is.
    ///
    /// # Errors
    /// [`DuplicateServer`].
    pub fn new(configured: &[McpServer], directory: &Path, idle: Option<Duration>) -> Result<Self, DuplicateServer> {
        Self::with_logins(configured, (directory, &Logins::default()), idle)
    }

    /// The same with logins that are kept.
    ///
    /// # Errors
    /// [`DuplicateServer`].
    pub fn with_logins(
        configured: &[McpServer],
        (directory, logins): (&Path, &Logins),
        idle: Option<Duration>,
    ) -> Result<Self, DuplicateServer> {
        check_names(configured)?;
        let (directory, identity) = (directory.to_owned(), Identity::default());
        let roots = watch::Sender::new(vec![directory.clone()]);
        let logins = logins.clone();
        let place = Place { directory, identity, logins, roots, program: None, has_clients: true, idle };
        let place = Arc::new(place);
        let links = configured.iter().map(|server| Arc::new(Link::new(server.clone(), Arc::clone(&place)))).collect();
        let stop = CancellationToken::new();
        Ok(Self { links, tasks: TaskTracker::new(), _stop: stop.clone().drop_guard(), stop })
    }

    /// How they are configured, in that order.
    pub fn configured(&self) -> impl Iterator<Item = &McpServer> {
        self.links.iter().map(|link| link.spec())
    }

    /// Begins to start all of them, in the background. Once; inside a runtime.
    pub fn start(&self) {
        for link in &self.links {
            self.tasks.spawn(Arc::clone(link).supervise(self.stop.clone()));
        }
        self.tasks.close();
    }

    /// Has servers that are down started again, and waits a bounded time for those that never ran and have not failed
    /// twice, as far as somebody wants their tools. Cancel-safe.
    pub async fn settle(&self, wants: impl Fn(&str) -> bool) {
        let wanted: Vec<&Arc<Link>> = self.links.iter().filter(|link| wants(link.prefix())).collect();
        let first_starts = futures_util::future::join_all(wanted.iter().map(|link| link.settled()));
        if timeout(Duration::from_millis(limit::MCP_TURN_WAIT_MS), first_starts).await.is_err() {
            wanted.iter().for_each(|link| link.wait_no_longer());
        }
    }

    /// The tools of all servers, server by server, as they listed them last. Those of a server that ended are among
    /// them: a call has it started again.
    pub fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.links.iter().flat_map(|link| link.tools().to_vec()).collect()
    }

    /// The tools of the servers that are connected now, or rest.
    pub fn connected_tools(&self) -> Vec<Arc<dyn Tool>> {
        self.links.iter().filter(|link| link.is_ready()).flat_map(|link| link.tools().to_vec()).collect()
    }

    /// Tells the servers that they work in these directories from now on.
    pub fn set_roots(&self, roots: &[PathBuf]) {
        for link in &self.links {
            link.set_roots(roots);
        }
    }

    /// How many programs run or are being started, and how many there are at most.
    pub fn programs(&self) -> (usize, usize) {
        let is_program = |link: &&Arc<Link>| matches!(link.spec().transport, McpTransport::Stdio { .. });
        let running = self.links.iter().filter(|link| link.runs_a_program()).count();
        (running, self.links.iter().filter(is_program).count())
    }

    /// Asks a server of this name, in the protocol's words. None: there is none.
    ///
    /// # Errors
    /// [`ClientError`]; nothing is sent twice.
    pub async fn request(
        &self,
        name: &str,
        asked: (&str, serde_json::Map<String, serde_json::Value>),
        cancel: &CancellationToken,
    ) -> Option<Result<serde_json::Value, ClientError>> {
        let link = self.links.iter().find(|link| link.name() == name)?;
        Some(client::request(link, asked, (None, cancel)).await)
    }

    /// Each server's name and how it is: `connected`, `resting`, `starting`, `needs login`, `stopped`, `down: …`; and how many tools it has.
    pub fn facts(&self) -> Vec<(String, String, usize)> {
        self.links.iter().map(|link| (link.name().to_owned(), link.state(), link.tools().len())).collect()
    }

    /// Each server's name and how it is: `connected`, `resting`, `starting`, `needs login`, `down: …`.
    pub fn states(&self) -> Vec<(String, String)> {
        self.links.iter().map(|link| (link.name().to_owned(), link.state())).collect()
    }

    /// Whether a server that is not connected now may have a tool of this name.
    pub fn may_have(&self, tool: &str) -> bool {
        self.links.iter().any(|link| tool.starts_with(link.prefix()) && !link.is_ready())
    }

    /// Ends all of them and waits until their processes are gone.
    pub async fn close(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Each server has a name of its own.
fn check_names(configured: &[McpServer]) -> Result<(), DuplicateServer> {
    for (at, server) in configured.iter().enumerate() {
        if configured[..at].iter().any(|other| other.name == server.name) {
            return Err(DuplicateServer { at, name: server.name.clone() });
        }
    }
    Ok(())
}
