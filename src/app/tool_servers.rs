//! The tool servers that sessions have tools of: those that every session has, those of a project, and those that belong to one session.
//!
//! Invariants: a server ends with its owner (the application, the project's trust, the session) and never with a connection of a client;
//! nothing of a project's file is started that the user has not said yes to; of servers of one name a session has its own before the
//! project's before the configured one, and nothing of the others: names are kept apart by servers.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{App, Caller};
use crate::base::limit;
use crate::config::McpServer;
use crate::config::projects::{BadProjectFile, ProjectFile, Trusted};
use crate::mcp::{ClientError, Logins, Servers};
use crate::protocol::{
    Access, ApiError, AskMcp, ErrorCode, McpAnswer, McpOwner, McpProjectServer, McpProjectView, McpServerView,
    McpTrust, McpView, SessionId, TrustProject,
};
use crate::tool::Tool;

/// What clients may ask servers themselves. Tools are called by turns, under permission.
const ASKED_BY_CLIENTS: [&str; 6] = [
    "prompts/list",
    "prompts/get",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "completion/complete",
];

/// Where the parts of the surroundings are that servers need.
pub(super) struct Around {
    /// Where programs of servers of every session start.
    pub(super) directory: PathBuf,
    /// Under which sessions work; canonical.
    pub(super) roots: Vec<PathBuf>,
    /// Where trust and logins are kept. None: in memory.
    pub(super) data: Option<PathBuf>,
    /// Rest after which a program is ended until it is needed again. None: never.
    pub(super) idle: Option<Duration>,
}

/// All of them.
pub(super) struct ToolServers {
    /// Those of every session.
    shared: Arc<Servers>,
    /// Those of single sessions.
    own: Mutex<HashMap<SessionId, Arc<Servers>>>,
    /// Those of projects that are trusted, by their files.
    projects: Mutex<HashMap<PathBuf, Project>>,
    around: Around,
    logins: Logins,
    /// What is trusted, where it is kept nowhere else.
    trusted: Mutex<Trusted>,
    /// Servers that are being ended.
    ending: TaskTracker,
}

/// The servers of a project's file.
#[derive(Clone)]
struct Project {
    hash: String,
    /// Where its programs start.
    directory: PathBuf,
    servers: Arc<Servers>,
    problems: Vec<String>,
}

/// A project's file, and whether it is trusted.
struct Found {
    file: Result<ProjectFile, BadProjectFile>,
    trusted: bool,
}

impl ToolServers {
    pub(super) fn new(shared: Servers, logins: Logins, around: Around) -> Self {
        Self {
            shared: Arc::new(shared),
            own: Mutex::default(),
            projects: Mutex::default(),
            around,
            logins,
            trusted: Mutex::default(),
            ending: TaskTracker::new(),
        }
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
        let made = Servers::with_logins(servers, (directory, &self.logins), self.around.idle)
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

    /// The file of the project that a directory belongs to. None: there is none.
    async fn look(&self, directory: &Path) -> Option<Found> {
        let (directory, roots, data) = (directory.to_owned(), self.around.roots.clone(), self.around.data.clone());
        let look = move || {
            let file = ProjectFile::find(&directory, &roots)?;
            let kept = data.map(|data| Trusted::read(&data)).transpose();
            // What cannot be read trusts nothing.
            Some((file, kept.inspect_err(|error| tracing::warn!(%error, "no project is trusted")).unwrap_or_default()))
        };
        let (file, kept) = tokio::task::spawn_blocking(look).await.ok().flatten()?;
        let trusts = |file: &ProjectFile| match &kept {
            Some(kept) => kept.holds(file),
            None => self.around.data.is_none() && self.trusted.lock().holds(file),
        };
        let trusted = file.as_ref().is_ok_and(trusts);
        Some(Found { file, trusted })
    }

    /// The servers of the project that a directory belongs to, started as far as it is trusted.
    async fn project(&self, directory: &Path) -> Option<Project> {
        let Found { file, trusted } = self.look(directory).await?;
        let mut projects = self.projects.lock();
        let (path, hash) = match &file {
            Ok(file) => (&file.path, Some(file.hash.as_str()).filter(|_| trusted)),
            Err(bad) => (&bad.path, None),
        };
        if let Some(known) = projects.get(path) {
            if Some(known.hash.as_str()) == hash {
                return Some(known.clone());
            }
            let before = projects.remove(path).map(|project| project.servers);
            self.end(before);
        }
        let file = file.ok().filter(|_| trusted)?;
        if projects.len() >= limit::MCP_PROJECTS_MAX {
            tracing::warn!(file = %file.path.display(), "too many projects have tool servers; those of this one are left out");
            return None;
        }
        let (configured, problems) = file.servers();
        for problem in &problems {
            tracing::warn!(file = %file.path.display(), problem, "a tool server of a project is left out");
        }
        // Names are the members of an object: each is there once.
        let servers = Servers::with_logins(&configured, (file.directory(), &self.logins), self.around.idle).ok()?;
        servers.start();
        let directory = file.directory().to_owned();
        let project = Project { hash: file.hash.clone(), directory, servers: Arc::new(servers), problems };
        projects.insert(file.path.clone(), project.clone());
        Some(project)
    }

    /// Those that a session has, its own first.
    async fn of(&self, session: &SessionId, directory: &Path) -> Vec<(McpOwner, Arc<Servers>)> {
        let project = self.project(directory).await.map(|project| (McpOwner::Project, project.servers));
        let own = self.own.lock().get(session).map(|servers| (McpOwner::Session, Arc::clone(servers)));
        own.into_iter().chain(project).chain([(McpOwner::Server, Arc::clone(&self.shared))]).collect()
    }

    /// The tools of a session's servers, once those that are starting had their time.
    pub(super) async fn tools(
        &self,
        (session, directory): (&SessionId, &Path),
        wants: impl Fn(&str) -> bool,
    ) -> Vec<Arc<dyn Tool>> {
        let all = self.of(session, directory).await;
        futures_util::future::join_all(all.iter().map(|(_, servers)| servers.settle(&wants))).await;
        let (mut tools, mut hidden): (Vec<Arc<dyn Tool>>, Vec<String>) = (Vec::new(), Vec::new());
        for (_, servers) in all {
            let apart = |tool: &Arc<dyn Tool>| !hidden.iter().any(|prefix| tool.definition().name.starts_with(prefix));
            let new: Vec<Arc<dyn Tool>> = servers.tools().into_iter().filter(apart).collect();
            tools.extend(new);
            hidden.extend(servers.configured().map(|server| format!("mcp:{}/", server.name)));
        }
        tools
    }

    /// Those that a session has, as an agent can start them itself: programs by the place where they lie. Of servers of one name
    /// the first counts, as with their tools.
    pub(super) async fn told(&self, session: &SessionId, directory: &Path) -> Arc<[McpServer]> {
        let project = self.project(directory).await.map(|project| (project.directory, project.servers));
        let own = self.own.lock().get(session).map(|servers| (directory.to_owned(), Arc::clone(servers)));
        let shared = (self.around.directory.clone(), Arc::clone(&self.shared));
        let mut told: Vec<McpServer> = Vec::new();
        for (place, servers) in own.into_iter().chain(project).chain([shared]) {
            for server in servers.configured() {
                if told.iter().all(|other| other.name != server.name) {
                    told.push(server.clone().started_from(&place));
                }
            }
        }
        told.into()
    }

    /// How many sessions have servers of their own.
    pub(super) fn owners(&self) -> usize {
        self.own.lock().len()
    }

    /// How many programs run or are being started, and how many there are at most.
    pub(super) fn programs(&self) -> (usize, usize) {
        let mut all: Vec<Arc<Servers>> = self.own.lock().values().map(Arc::clone).collect();
        all.extend(self.projects.lock().values().map(|project| Arc::clone(&project.servers)));
        let each = all.iter().map(|servers| servers.programs()).chain([self.shared.programs()]);
        each.fold((0, 0), |(running, most), (one, all)| (running + one, most + all))
    }

    /// Ends all of them and waits until their processes are gone.
    pub(super) async fn close(&self) {
        let own: Vec<Arc<Servers>> = self.own.lock().drain().map(|(_, servers)| servers).collect();
        own.into_iter().for_each(|servers| self.end(Some(servers)));
        let projects: Vec<Project> = self.projects.lock().drain().map(|(_, project)| project).collect();
        projects.into_iter().for_each(|project| self.end(Some(project.servers)));
        self.shared.close().await;
        self.ending.close();
        self.ending.wait().await;
    }

    async fn view(&self, session: &SessionId, directory: &Path) -> McpView {
        let mut servers: Vec<McpServerView> = Vec::new();
        for (of, some) in self.of(session, directory).await {
            for (name, state, tools) in some.facts() {
                if servers.iter().all(|other| other.name != name) {
                    servers.push(McpServerView { name, of, state, tools });
                }
            }
        }
        let found = self.look(directory).await;
        let project = found.map(|found| self.project_view(found));
        McpView { servers, project }
    }

    fn project_view(&self, Found { file, trusted }: Found) -> McpProjectView {
        match file {
            Err(bad) => McpProjectView {
                file: bad.path.display().to_string(),
                state: McpTrust::Broken,
                hash: None,
                servers: Vec::new(),
                problems: vec![bad.problem],
            },
            Ok(file) => {
                let problems = self.projects.lock().get(&file.path).map(|project| project.problems.clone());
                let shown = file.shown().into_iter();
                McpProjectView {
                    file: file.path.display().to_string(),
                    state: if trusted { McpTrust::Trusted } else { McpTrust::Untrusted },
                    servers: shown
                        .map(|one| McpProjectServer { name: one.name, runs: one.runs, given: one.given })
                        .collect(),
                    hash: Some(file.hash),
                    problems: problems.unwrap_or_default(),
                }
            }
        }
    }

    /// Trusts the file of a directory's project, or no longer.
    async fn trust(&self, directory: &Path, TrustProject { hash, trusted }: TrustProject) -> Result<(), ApiError> {
        let none =
            || ApiError::not_found(format_args!("{} of this session's project", crate::config::projects::PROJECT_FILE));
        let found = self.look(directory).await.ok_or_else(none)?;
        let file = found.file.map_err(|bad| ApiError::conflict(bad.to_string()))?;
        if file.hash != hash {
            let details =
                serde_json::json!({ "field": "hash", "expected": "the hash of the content that is there now" });
            let message = "the file is another than the one that was seen: look at it again";
            return Err(ApiError::conflict(message).with_details(details));
        }
        let said = trusted.then_some(hash);
        match self.around.data.clone() {
            None => self.trusted.lock().set(&file.path, said.as_deref()),
            Some(data) => {
                let keep = move || Trusted::keep(&data, &file.path, said.as_deref());
                let kept = tokio::task::spawn_blocking(keep).await;
                let kept = kept.map_err(|panic| ApiError::internal(crate::base::panics::broken(panic)))?;
                kept.map_err(|error| ApiError::internal(error.to_string()))?;
            }
        }
        // Starts it, or ends it.
        self.project(directory).await;
        Ok(())
    }

    async fn ask(&self, (session, directory): (&SessionId, &Path), asked: AskMcp) -> Result<McpAnswer, ApiError> {
        let AskMcp { server, method, params } = asked;
        if !ASKED_BY_CLIENTS.contains(&method.as_str()) {
            return Err(ApiError::unfit("method", format!("one of {}", ASKED_BY_CLIENTS.join(", ")), method));
        }
        let cancel = CancellationToken::new();
        // Who waits no longer has the server told.
        let _end = cancel.clone().drop_guard();
        for (_, servers) in self.of(session, directory).await {
            if let Some(answer) = servers.request(&server, (&method, params.clone()), &cancel).await {
                return answer.map(|result| McpAnswer { result }).map_err(|error| match error {
                    ClientError::Aborted => ApiError::internal("aborted"),
                    other => ApiError::new(ErrorCode::UpstreamUnavailable, other.to_string()),
                });
            }
        }
        Err(ApiError::not_found(format_args!("MCP server {server}")))
    }
}

impl App {
    /// Gives a session tool servers of its own instead of those that it had; none: it has none. It has their tools from its next
    /// turn on. They end with the session, or with the application.
    ///
    /// # Errors
    /// `NOT_FOUND`, `INVALID_ARGUMENT`, `RESOURCE_EXHAUSTED`.
    pub async fn attach_servers(&self, caller: &Caller, id: &SessionId, servers: &[McpServer]) -> Result<(), ApiError> {
        caller.at_large()?;
        let view = self.session(caller, id).await?;
        self.wardrobe.servers().attach(id, servers, &view.working_directory)
    }

    /// The tool servers of a session, and the file of its project.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub async fn mcp(&self, caller: &Caller, id: &SessionId) -> Result<McpView, ApiError> {
        let view = self.session(caller, id).await?;
        Ok(self.wardrobe.servers().view(id, &view.working_directory).await)
    }

    /// Trusts the file of a session's project as it was seen, or takes that back.
    ///
    /// # Errors
    /// `FORBIDDEN`, `NOT_FOUND`, `CONFLICT` (it is another file by now, or none that can be read).
    pub async fn trust_project(
        &self,
        caller: &Caller,
        id: &SessionId,
        body: TrustProject,
    ) -> Result<McpView, ApiError> {
        caller.at_large()?;
        caller.needs(Access::Administer)?;
        let view = self.session(caller, id).await?;
        self.wardrobe.servers().trust(&view.working_directory, body).await?;
        self.mcp(caller, id).await
    }

    /// Asks a tool server of a session for prompts, resources and completions.
    ///
    /// # Errors
    /// `NOT_FOUND`, `INVALID_ARGUMENT`, `UPSTREAM_UNAVAILABLE`.
    pub async fn ask_mcp(&self, caller: &Caller, id: &SessionId, body: AskMcp) -> Result<McpAnswer, ApiError> {
        caller.at_large()?;
        let view = self.session(caller, id).await?;
        self.wardrobe.servers().ask((id, &view.working_directory), body).await
    }
}
