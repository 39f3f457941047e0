//! Servers in the hands of a program: it connects and disconnects them by name, and asks what it likes.
//!
//! A server that was connected and ends is started again by the next request, as everywhere in this module.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use rmcp::model::{ClientRequest, ErrorCode};
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::ask::{AskError, ask};
use super::drawer::Logins;
use super::link::{Link, NEEDS_LOGIN, Status};
use super::login::log_in;
use super::{DuplicateServer, Identity, OnProgress, Place, Program, check_names};
use crate::config::McpServer;
use crate::tool::Line;

/// How often somebody logs in for one request: a server that is never content gets no further.
const LOGINS_MAX: u32 = 3;

/// What can be asked.
const METHODS: [&str; 11] = [
    "tools/list",
    "tools/call",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "prompts/list",
    "prompts/get",
    "resources/subscribe",
    "resources/unsubscribe",
    "completion/complete",
    "logging/setLevel",
];

/// Why a server did not do what it was asked for. The texts are sentences.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// No connection could be made.
    #[error("{0}")]
    Connection(String),
    /// There is no connection. Connect first.
    #[error("{0}")]
    NotConnected(String),
    /// The server refused, or broke off.
    #[error("{0}")]
    Failed(String),
    /// It wants a login, or more than the one that there is.
    #[error("{0}")]
    NeedsLogin(String),
    /// The caller cancelled.
    #[error("aborted")]
    Aborted,
}

/// Servers that a program connects by itself. Dropping it ends their processes.
pub struct Client {
    servers: Vec<McpServer>,
    place: Arc<Place>,
    running: Mutex<HashMap<String, Running>>,
}

/// A server that was asked for.
struct Running {
    link: Arc<Link>,
    stop: CancellationToken,
    tasks: TaskTracker,
    _stop: DropGuard,
}

impl Client {
    /// A client of these servers; their programs start in `directory` unless they name another, and are told to work in `roots`.
    /// Starts nothing.
    ///
    /// # Errors
    /// [`DuplicateServer`].
    pub fn new(
        servers: Vec<McpServer>,
        (directory, roots): (PathBuf, Vec<PathBuf>),
        identity: Identity,
        program: Program,
    ) -> Result<Self, DuplicateServer> {
        check_names(&servers)?;
        let (roots, program) = (watch::Sender::new(roots), Some(program));
        let logins = Logins::default();
        let place = Arc::new(Place { directory, identity, logins, roots, program, has_clients: false, idle: None });
        Ok(Self { servers, place, running: Mutex::default() })
    }

    /// Connects a server, unless it is connected. Inside a runtime.
    ///
    /// # Errors
    /// [`ClientError::Connection`], also for a name that no server has.
    pub async fn connect(&self, name: &str) -> Result<(), ClientError> {
        for login in 0.. {
            let tried = self.try_connect(name).await;
            let wants_login = matches!(&tried, Err(ClientError::NeedsLogin(_)));
            if !wants_login || login >= LOGINS_MAX || !self.log_in(name).await? {
                return tried;
            }
        }
        Err(ClientError::Aborted)
    }

    async fn try_connect(&self, name: &str) -> Result<(), ClientError> {
        let link = self.begin(name)?;
        let why = match link.outcome(|_| false).await {
            Status::Ready(_) => return Ok(()),
            Status::Down(down) => link.sentence(&format!("cannot be connected: {}", down.reason)),
            Status::Idle | Status::Connecting | Status::Resting | Status::Closed => link.sentence("was disconnected"),
        };
        // What did not come up is not kept trying, unless another has begun anew.
        let same = |running: &Running| Arc::ptr_eq(&running.link, &link);
        let mut running = self.running.lock();
        if running.get(name).is_some_and(same) {
            running.remove(name);
        }
        drop(running);
        Err(if why.contains(NEEDS_LOGIN) { ClientError::NeedsLogin(why) } else { ClientError::Connection(why) })
    }

    fn begin(&self, name: &str) -> Result<Arc<Link>, ClientError> {
        let mut running = self.running.lock();
        // One that is down is not waited for: who connects wants a start now.
        if let Some(running) = running.get(name).filter(|running| !running.link.is_down()) {
            return Ok(Arc::clone(&running.link));
        }
        let Some(server) = self.servers.iter().find(|server| server.name == name) else {
            let known: Vec<&str> = self.servers.iter().map(|server| server.name.as_str()).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(ClientError::Connection(format!("there is no MCP server `{name}`; known are {known}")));
        };
        let link = Arc::new(Link::new(server.clone(), Arc::clone(&self.place)));
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        tasks.spawn(Arc::clone(&link).supervise(stop.clone()));
        tasks.close();
        let guard = stop.clone().drop_guard();
        running.insert(name.to_owned(), Running { link: Arc::clone(&link), stop, tasks, _stop: guard });
        Ok(link)
    }

    /// Disconnects a server and waits until its processes are gone. Harmless when it is not connected.
    pub async fn disconnect(&self, name: &str) {
        let Some(running) = self.running.lock().remove(name) else { return };
        running.stop.cancel();
        running.tasks.wait().await;
    }

    /// Tells the servers that they work in these directories from now on.
    pub fn set_roots(&self, roots: Vec<PathBuf>) {
        self.place.roots.send_replace(roots);
    }

    /// The servers that are connected now, in the order of the configuration.
    pub fn connected(&self) -> Vec<String> {
        let running = self.running.lock();
        let is_ready = |server: &&McpServer| running.get(&server.name).is_some_and(|running| running.link.is_ready());
        self.servers.iter().filter(is_ready).map(|server| server.name.clone()).collect()
    }

    /// Asks a server that was connected; its answer as it stands in the protocol. One that wants a login, or more than it gave, is
    /// asked again once somebody has logged in: what it refused for that it has not carried out.
    ///
    /// # Errors
    /// [`ClientError`]; nothing else is sent twice.
    pub async fn request(
        &self,
        name: &str,
        (method, params): (&str, Map<String, Value>),
        (on_progress, cancel): (Option<OnProgress>, &CancellationToken),
    ) -> Result<Value, ClientError> {
        for login in 0.. {
            let link = self.running.lock().get(name).map(|running| Arc::clone(&running.link));
            let link =
                link.ok_or_else(|| ClientError::NotConnected(format!("the MCP server `{name}` is not connected")))?;
            let asked = request(&link, (method, params.clone()), (on_progress.clone(), cancel)).await;
            let wants_login = matches!(&asked, Err(ClientError::NeedsLogin(_)));
            if !wants_login || login >= LOGINS_MAX || !self.log_in(name).await? {
                return asked;
            }
        }
        Err(ClientError::Aborted)
    }

    /// Has somebody log in at a server. False: nobody does.
    async fn log_in(&self, name: &str) -> Result<bool, ClientError> {
        let server = self.servers.iter().find(|server| server.name == name);
        let opens = self.place.program.as_ref().and_then(|program| program.opens.clone());
        let (Some(server), Some(opens)) = (server, opens) else { return Ok(false) };
        let own = name.to_owned();
        log_in(server, &self.place.logins, move |address| opens(&own, address))
            .await
            .map_err(ClientError::NeedsLogin)?;
        Ok(true)
    }
}

/// Asks a server; its answer as it stands in the protocol.
pub(super) async fn request(
    link: &Link,
    (method, params): (&str, Map<String, Value>),
    (on_progress, cancel): (Option<OnProgress>, &CancellationToken),
) -> Result<Value, ClientError> {
    if !METHODS.contains(&method) {
        return Err(ClientError::Failed(format!("expected one of {}, got `{method}`", METHODS.join(", "))));
    }
    let told = params.clone();
    let request: ClientRequest = serde_json::from_value(json!({ "method": method, "params": params }))
        .map_err(|error| ClientError::Failed(format!("{method}: {error}")))?;
    if let Some(told) = tell_newest(link, (method, &told), cancel).await? {
        return told.map(|()| json!({})).map_err(ClientError::Failed);
    }
    let underway = link.calls().begin(&Line::default(), on_progress);
    let answer = match ask(link, (request, Some(&underway)), cancel).await {
        // What a server does not have, it has none of.
        Err(AskError::Refused(error)) if error.code == ErrorCode::METHOD_NOT_FOUND && method.ends_with("/list") => {
            return Ok(json!({}));
        }
        answer => answer,
    };
    let answer = answer.map_err(|error| match error {
        AskError::Aborted => ClientError::Aborted,
        AskError::NotConnected(why) if why.contains(NEEDS_LOGIN) => ClientError::NeedsLogin(why),
        AskError::NotConnected(why) => ClientError::NotConnected(why),
        AskError::Refused(error) => {
            ClientError::Failed(link.sentence(&format!("refused {method}: {}", link.refusal(&error))))
        }
        AskError::NeedsLogin(why) => ClientError::NeedsLogin(why),
        AskError::Broken(why) => ClientError::Failed(why),
    })?;
    link.remember(method, &told);
    serde_json::to_value(answer).map_err(|error| ClientError::Failed(error.to_string()))
}

/// What is no request in the newest revision. None: this one is.
async fn tell_newest(
    link: &Link,
    told: (&str, &Map<String, Value>),
    cancel: &CancellationToken,
) -> Result<Option<Result<(), String>>, ClientError> {
    if !matches!(told.0, "resources/subscribe" | "resources/unsubscribe" | "logging/setLevel") {
        return Ok(None);
    }
    let _in_use = link.in_use();
    let telling = async {
        match link.ready().await {
            Ok(peer) => link.tell_newest(&peer, told).await,
            // The request finds the same out, and says it.
            Err(_) => None,
        }
    };
    tokio::select! {
        told = telling => Ok(told),
        () = cancel.cancelled() => Err(ClientError::Aborted),
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("connected", &self.connected()).finish_non_exhaustive()
    }
}
