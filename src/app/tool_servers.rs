//! The tool servers that sessions have tools of: those that every session has, and those that belong to one session.
//!
//! Invariants: a server ends with its owner, the application or the session, and never with a connection of a client; of two servers
//! of one name a session has its own, and nothing of the other: names are kept apart by servers.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::task::TaskTracker;

use super::{App, Caller};
use crate::base::limit;
use crate::config::McpServer;
use crate::mcp::Servers;
use crate::protocol::{ApiError, ErrorCode, SessionId};
use crate::tool::Tool;

/// All of them.
pub(super) struct ToolServers {
    /// Those of every session.
    shared: Arc<Servers>,
    /// Those of single sessions.
    own: Mutex<HashMap<SessionId, Arc<Servers>>>,
    /// Rest after which a program is ended until it is needed again. None: never.
    idle: Option<Duration>,
    /// Servers that are being ended.
    ending: TaskTracker,
}

impl ToolServers {
    pub(super) fn new(shared: Servers, idle: Option<Duration>) -> Self {
        Self { shared: Arc::new(shared), own: Mutex::default(), idle, ending: TaskTracker::new() }
    }

    /// Begins to start those of every session.
    pub(super) fn start(&self) {
        self.shared.start();
    }

    /// Those of every session.
    pub(super) fn shared(&self) -> &Servers {
        &self.shared
    }

    /// Gives a session servers of its own instead of those that it had, and begins to start them. The directory is that of the
    /// session: there their programs start.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for names that are not apart and for too many, `RESOURCE_EXHAUSTED`.
    pub(super) fn attach(&self, session: &SessionId, servers: &[McpServer], directory: &Path) -> Result<(), ApiError> {
        let most = limit::MCP_SERVERS_OF_SESSION_MAX;
        if servers.len() > most {
            return Err(ApiError::unfit("mcpServers", format!("at most {most} servers"), servers.len().to_string()));
        }
        let made = Servers::new(servers, directory, self.idle)
            .map_err(|error| ApiError::invalid(&format!("mcpServers[{}].name", error.at), "a name of its own"))?;
        let mut own = self.own.lock();
        // Who opens a session again brings the same ones again: they go on.
        if own.get(session).is_some_and(|before| before.configured().eq(servers)) {
            return Ok(());
        }
        if own.len() >= limit::MCP_SESSIONS_WITH_SERVERS_MAX && !own.contains_key(session) {
            let message = "too many sessions have tool servers of their own; delete some";
            return Err(ApiError::new(ErrorCode::ResourceExhausted, message));
        }
        let before = if servers.is_empty() {
            own.remove(session)
        } else {
            let made = Arc::new(made);
            made.start();
            own.insert(session.clone(), made)
        };
        drop(own);
        self.end(before);
        Ok(())
    }

    /// Ends those of a session.
    pub(super) fn release(&self, session: &SessionId) {
        let before = self.own.lock().remove(session);
        self.end(before);
    }

    fn end(&self, servers: Option<Arc<Servers>>) {
        if let Some(servers) = servers {
            self.ending.spawn(async move { servers.close().await });
        }
    }

    /// Those that a session has, its own first.
    fn of(&self, session: &SessionId) -> Vec<Arc<Servers>> {
        let own = self.own.lock().get(session).map(Arc::clone);
        own.into_iter().chain([Arc::clone(&self.shared)]).collect()
    }

    /// How the servers of a session are configured, for who reaches them by itself: an agent.
    #[allow(dead_code, reason = "agents are handed them from the next change on")]
    pub(super) fn configured(&self, session: &SessionId) -> Vec<McpServer> {
        let mut found: Vec<McpServer> = Vec::new();
        for servers in self.of(session) {
            let new: Vec<McpServer> = servers.configured().cloned().collect();
            let apart = |one: &McpServer| found.iter().all(|other| other.name != one.name);
            let new: Vec<McpServer> = new.into_iter().filter(|one| apart(one)).collect();
            found.extend(new);
        }
        found
    }

    /// The tools of a session's servers, once those that are starting had their time.
    pub(super) async fn tools(&self, session: &SessionId, wants: impl Fn(&str) -> bool) -> Vec<Arc<dyn Tool>> {
        let all = self.of(session);
        futures_util::future::join_all(all.iter().map(|servers| servers.settle(&wants))).await;
        let (mut tools, mut hidden): (Vec<Arc<dyn Tool>>, Vec<String>) = (Vec::new(), Vec::new());
        for servers in all {
            let apart = |tool: &Arc<dyn Tool>| !hidden.iter().any(|prefix| tool.definition().name.starts_with(prefix));
            let new: Vec<Arc<dyn Tool>> = servers.tools().into_iter().filter(apart).collect();
            tools.extend(new);
            hidden.extend(servers.configured().map(|server| format!("mcp:{}/", server.name)));
        }
        tools
    }

    /// How many sessions have servers of their own.
    pub(super) fn owners(&self) -> usize {
        self.own.lock().len()
    }

    /// How many programs run or are being started, and how many there are at most.
    pub(super) fn programs(&self) -> (usize, usize) {
        let own: Vec<Arc<Servers>> = self.own.lock().values().map(Arc::clone).collect();
        let each = own.iter().map(|servers| servers.programs()).chain([self.shared.programs()]);
        each.fold((0, 0), |(running, most), (one, all)| (running + one, most + all))
    }

    /// Ends all of them and waits until their processes are gone.
    pub(super) async fn close(&self) {
        let own: Vec<Arc<Servers>> = self.own.lock().drain().map(|(_, servers)| servers).collect();
        own.into_iter().for_each(|servers| self.end(Some(servers)));
        self.shared.close().await;
        self.ending.close();
        self.ending.wait().await;
    }
}

impl App {
    /// Gives a session tool servers of its own instead of those that it had; none: it has none. It has their tools from its next
    /// turn on. They end with the session, or with the application.
    ///
    /// # Errors
    /// `NOT_FOUND`, `INVALID_ARGUMENT`, `RESOURCE_EXHAUSTED`.
    pub async fn attach_servers(&self, caller: &Caller, id: &SessionId, servers: &[McpServer]) -> Result<(), ApiError> {
        let view = self.session(caller, id).await?;
        self.wardrobe.servers().attach(id, servers, &view.working_directory)
    }
}
