//! The agent's program and its sessions: started when first needed, opened, gone on with, or begun anew.

use std::path::PathBuf;
use std::sync::Arc;

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::schema as acp;
use serde_json::{Value, json};

use super::connection::{Connection, Fault, InUse};
use super::door::Room;
use super::handed::{ours, shares};
use super::{AUTH_REQUIRED, Agent, Running};
use crate::base::limit;
use crate::base::process::Invocation;
use crate::model::{AgentRequest, ModelError};

/// A session that is ready for a prompt.
#[derive(Debug)]
pub(super) struct Opened {
    pub connection: Arc<Connection>,
    /// Its program is not given up meanwhile.
    pub _here: InUse,
    /// The agent's id of it.
    pub session: String,
    /// It is new, and knows nothing of the conversation.
    pub fresh: bool,
    pub takes_images: bool,
    /// It can be told things while it works.
    pub steers: bool,
    /// The tools of ours that it can call, if it was given any.
    pub room: Option<Arc<Room>>,
}

/// What an agent says that it can do.
#[derive(Debug, Clone, Default)]
pub(super) struct Abilities {
    pub load: bool,
    pub resume: bool,
    /// It makes a second session out of one.
    pub fork: bool,
    /// It lists sessions, deletes and closes them.
    pub list: bool,
    pub delete: bool,
    pub close: bool,
    images: bool,
    steers: bool,
    /// It connects MCP servers over HTTP.
    http_tools: bool,
    /// A session of it works in more than one directory.
    directories: bool,
    /// How it can be logged in to: ids, and names for people.
    logins: Vec<(String, String)>,
}

impl Abilities {
    fn login_words(&self) -> String {
        let words = self.logins.iter().map(|(id, name)| if id == name { id.clone() } else { format!("{name} ({id})") });
        words.collect::<Vec<_>>().join(", ")
    }

    /// The directories beside the first that it is told of: who does not say that it takes some is told of none, for some refuse the
    /// session then.
    fn further(&self, asked: &AgentRequest) -> Vec<PathBuf> {
        if self.directories { asked.directories.clone() } else { Vec::new() }
    }
}

/// Whether what is advertised beside the protocol is there.
fn supports(advertised: &Value) -> bool {
    advertised["supported"] == true
}

/// Whether a login is missing.
fn wants_login(fault: &Fault) -> bool {
    matches!(fault, Fault::Refused(error) if error.code == AUTH_REQUIRED)
}

impl Agent {
    /// The session that the request goes on with, or a new one.
    pub async fn open_session(&self, asked: &AgentRequest) -> Result<Opened, ModelError> {
        let (connection, abilities, here) = self.connect().await?;
        let opened = |session: String, fresh, room| {
            let (takes_images, steers) = (abilities.images, abilities.steers);
            Opened { connection: Arc::clone(&connection), _here: here, session, fresh, takes_images, steers, room }
        };
        let (servers, room) = self.tools_for(&connection, &abilities, asked).await;
        if let Some(known) = asked.session.as_ref().filter(|_| asked.fork) {
            if let Some(session) = self.fork(&connection, &abilities, (known, &servers), asked).await? {
                self.choose(&connection, &session, asked).await?;
                connection.sessions.lock().insert(session.clone());
                return Ok(opened(session, false, room));
            }
        } else if let Some(known) = &asked.session {
            let open = connection.sessions.lock().contains(known);
            if open || self.reopen(&connection, &abilities, (known, &servers), asked).await? {
                self.choose(&connection, known, asked).await?;
                connection.sessions.lock().insert(known.clone());
                return Ok(opened(known.clone(), false, room));
            }
        }
        let params = acp::NewSessionRequest::new(asked.directory.clone())
            .additional_directories(abilities.further(asked))
            .mcp_servers(servers);
        let mut created = self.ask::<Value>(&connection, "session/new", &params).await;
        if created.as_ref().is_err_and(wants_login) && self.log_in(&connection, &abilities).await? {
            created = self.ask::<Value>(&connection, "session/new", &params).await;
        }
        let created = created.map_err(|fault| self.login_fault("session/new", fault, &abilities))?;
        let Some(session) = created["sessionId"].as_str().map(str::to_owned) else {
            let fault = Fault::Malformed("its answer to session/new: `sessionId` is missing".to_owned());
            return Err(self.fault("session/new", fault));
        };
        connection.known(&session, |known| known.opened(&created));
        self.choose(&connection, &session, asked).await?;
        connection.sessions.lock().insert(session.clone());
        Ok(opened(session, true, room))
    }

    /// A fork of another session of ours, in the agent's words. None: it cannot be had; the conversation is told to a new session.
    async fn fork(
        &self,
        connection: &Arc<Connection>,
        abilities: &Abilities,
        (parent, servers): (&str, &[acp::McpServer]),
        asked: &AgentRequest,
    ) -> Result<Option<String>, ModelError> {
        if !abilities.fork {
            return Ok(None);
        }
        let mut params = json!({ "sessionId": parent, "cwd": asked.directory, "mcpServers": servers });
        let further = abilities.further(asked);
        if !further.is_empty() {
            params["additionalDirectories"] = json!(further);
        }
        match self.ask::<Value>(connection, "session/fork", &params).await {
            Ok(answer) if answer["sessionId"].is_string() => {
                let session = answer["sessionId"].as_str().unwrap_or_default().to_owned();
                connection.known(&session, |known| known.opened(&answer));
                Ok(Some(session))
            }
            Err(fault @ (Fault::Gone(_) | Fault::TimedOut(_))) => Err(self.fault("session/fork", fault)),
            other => {
                tracing::warn!(
                    session = parent,
                    ?other,
                    "an agent's session cannot be forked; a new one is told of it"
                );
                Ok(None)
            }
        }
    }

    /// The tool servers that its session is opened with, and the room of our own tools. A session that is open keeps what it was
    /// opened with; what its room offers changes with each turn.
    async fn tools_for(
        &self,
        connection: &Arc<Connection>,
        abilities: &Abilities,
        asked: &AgentRequest,
    ) -> (Vec<acp::McpServer>, Option<Arc<Room>>) {
        let offer = &self.options.offer;
        let (mut servers, tools) = shares(asked, offer, abilities.http_tools);
        let is_open = asked.session.as_ref().is_some_and(|known| connection.sessions.lock().contains(known));
        let room = connection.room(asked.host.as_ref(), tools, !is_open).await;
        let room = room.unwrap_or_else(|error| {
            tracing::warn!(agent = self.name(), %error, "an agent cannot be given our tools");
            None
        });
        if let (Some(room), Some(bridge)) = (&room, &offer.bridge) {
            let own = ours(bridge, room, &servers);
            servers.push(own);
        }
        (servers, room)
    }

    /// Opens a session of an earlier program again. False: it cannot be; the conversation is told to a new one.
    ///
    /// What the agent replays of it reaches no turn: our log has it already.
    async fn reopen(
        &self,
        connection: &Arc<Connection>,
        abilities: &Abilities,
        (session, servers): (&str, &[acp::McpServer]),
        asked: &AgentRequest,
    ) -> Result<bool, ModelError> {
        let (cwd, servers, further) = (asked.directory.clone(), servers.to_vec(), abilities.further(asked));
        let (method, answer) = if abilities.resume {
            let params = acp::ResumeSessionRequest::new(session.to_owned(), cwd);
            let params = params.additional_directories(further).mcp_servers(servers);
            ("session/resume", self.ask::<Value>(connection, "session/resume", &params).await)
        } else if abilities.load {
            let params = acp::LoadSessionRequest::new(session.to_owned(), cwd);
            let params = params.additional_directories(further).mcp_servers(servers);
            ("session/load", self.ask::<Value>(connection, "session/load", &params).await)
        } else {
            return Ok(false);
        };
        match answer {
            Ok(answer) => {
                connection.known(session, |known| known.opened(&answer));
                Ok(true)
            }
            Err(fault @ (Fault::Gone(_) | Fault::TimedOut(_))) => Err(self.fault(method, fault)),
            Err(fault @ (Fault::Refused(_) | Fault::Malformed(_))) => {
                let error = self.fault(method, fault);
                tracing::warn!(session, %error, "an agent's session cannot be gone on with; a new one is told of it");
                Ok(false)
            }
        }
    }

    /// The running program, started and greeted when there is none.
    pub async fn connect(&self) -> Result<(Arc<Connection>, Abilities, InUse), ModelError> {
        let mut current = self.current.lock().await;
        if let Some(running) = current.as_ref() {
            let connection = &running.connection;
            let full = connection.sessions.lock().len() >= limit::ACP_SESSIONS_MAX;
            if full {
                connection.retire();
            }
            if let Some(here) = connection.enter() {
                return Ok((Arc::clone(connection), running.abilities.clone(), here));
            }
        }
        if self.closing.is_cancelled() {
            return Err(self.named(ModelError::Unavailable("the server is stopping".into())));
        }
        let running = self.start().await?;
        let (connection, abilities) = (Arc::clone(&running.connection), running.abilities.clone());
        let here = connection.enter().ok_or_else(|| {
            let why = connection.over().unwrap_or_else(|| "its program was ended".to_owned());
            self.named(ModelError::Unavailable(why))
        })?;
        *current = Some(running);
        Ok((connection, abilities, here))
    }

    async fn start(&self) -> Result<Running, ModelError> {
        let options = &self.options;
        let program = super::program(options).map_err(|error| self.named(error))?;
        let what = Invocation {
            program: program.into_os_string(),
            arguments: options.args.iter().map(Into::into).collect(),
            directory: options.directory.clone(),
            environment: options.environment.clone(),
            // It is trusted as the server is, and confines its own commands.
            confinement: None,
        };
        let stop = self.closing.child_token();
        // A greeting that is given up takes the program with it.
        let guard = stop.clone().drop_guard();
        let (connection, task) = Connection::open((self.name(), &options.secrets, options.exit_grace), &what, stop)
            .map_err(|error| {
                self.named(ModelError::Unavailable(format!("`{}` cannot be started: {error}", options.command)))
            })?;
        self.tasks.spawn(async move { drop(task.await) });
        let abilities = self.greet(&connection).await?;
        let stop = guard.disarm();
        if let Some(idle) = self.options.idle {
            let (connection, name) = (Arc::clone(&connection), self.name().to_owned());
            self.tasks.spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = connection.unused(idle) => {
                        tracing::debug!(agent = name, "no turn uses an agent's program; it is ended");
                        connection.retire();
                    }
                }
            });
        }
        Ok(Running { connection, abilities })
    }

    async fn greet(&self, connection: &Arc<Connection>) -> Result<Abilities, ModelError> {
        let serves = self.options.serves;
        let files = acp::FileSystemCapabilities::new().read_text_file(serves.reads).write_text_file(serves.writes);
        let forms = acp::ElicitationCapabilities::new().form(acp::ElicitationFormCapabilities::new());
        let switches =
            acp::SessionConfigOptionsCapabilities::new().boolean(acp::BooleanConfigOptionCapabilities::new());
        let session = acp::ClientSessionCapabilities::new()
            .compaction(acp::CompactionCapabilities::new())
            .config_options(switches)
            .notices(acp::NoticeCapabilities::new());
        // A habit of agents beside the protocol: what their own terminals show comes with their calls.
        let habits = serde_json::Map::from_iter([("terminal_output".to_owned(), Value::Bool(true))]);
        let capabilities = acp::ClientCapabilities::new()
            .fs(files)
            .terminal(serves.commands)
            .elicitation(forms)
            .session(session)
            .meta(habits);
        let params = acp::InitializeRequest::new(ProtocolVersion::V1)
            .client_capabilities(capabilities)
            .client_info(acp::Implementation::new("simse", env!("CARGO_PKG_VERSION")));
        let said = self.ask::<Value>(connection, "initialize", &params).await;
        let said = said.map_err(|fault| self.fault("initialize", fault))?;
        // Not in the stable protocol.
        let fork = said["agentCapabilities"]["sessionCapabilities"]["fork"].is_object();
        let greeted: acp::InitializeResponse = serde_json::from_value(said).map_err(|error| {
            self.fault("initialize", Fault::Malformed(format!("its answer to initialize: {error}")))
        })?;
        if greeted.protocol_version != ProtocolVersion::V1 {
            let words = format!("it speaks version {} of the protocol, and not 1", greeted.protocol_version);
            return Err(self.named(ModelError::Unavailable(words)));
        }
        // Beside the protocol, and advertised there or beside what the agent can do.
        let steers = |meta: Option<&acp::Meta>| meta.is_some_and(|meta| meta.get("steering").is_some_and(supports));
        let steers = steers(greeted.meta.as_ref()) || steers(greeted.agent_capabilities.meta.as_ref());
        let can = greeted.agent_capabilities;
        Ok(Abilities {
            load: can.load_session,
            fork,
            resume: can.session_capabilities.resume.is_some(),
            list: can.session_capabilities.list.is_some(),
            delete: can.session_capabilities.delete.is_some(),
            close: can.session_capabilities.close.is_some(),
            images: can.prompt_capabilities.image,
            http_tools: can.mcp_capabilities.http,
            directories: can.session_capabilities.additional_directories.is_some(),
            steers,
            logins: greeted.auth_methods.iter().map(|one| (one.id().to_string(), one.name().to_owned())).collect(),
        })
    }

    pub(super) async fn ask<T: serde::de::DeserializeOwned>(
        &self,
        connection: &Arc<Connection>,
        method: &str,
        params: &impl serde::Serialize,
    ) -> Result<T, Fault> {
        let answer = connection.request(method, params, self.options.timeout).await;
        if matches!(answer, Err(Fault::TimedOut(_))) {
            // What hangs once is not asked again.
            connection.retire();
        }
        answer
    }

    /// Logs in by the method that is configured (`authMethod`). False: none is.
    async fn log_in(&self, connection: &Arc<Connection>, abilities: &Abilities) -> Result<bool, ModelError> {
        let Some(method) = &self.options.auth_method else { return Ok(false) };
        if !abilities.logins.iter().any(|(id, _)| id == method) {
            let words = format!("`authMethod` is `{method}`, and it knows {}", abilities.login_words());
            return Err(self.named(ModelError::Unauthorized(words)));
        }
        let answer =
            self.ask::<Value>(connection, "authenticate", &acp::AuthenticateRequest::new(method.clone())).await;
        match answer {
            Ok(_) => Ok(true),
            Err(Fault::Refused(error)) => {
                let words = format!("it cannot be logged in to by `{method}`: {}", error.message);
                Err(self.named(ModelError::Unauthorized(words)))
            }
            Err(fault) => Err(self.fault("authenticate", fault)),
        }
    }

    /// A fault where a login may be missing.
    fn login_fault(&self, method: &str, fault: Fault, abilities: &Abilities) -> ModelError {
        match self.fault(method, fault) {
            ModelError::Unauthorized(words) if !abilities.logins.is_empty() => {
                ModelError::Unauthorized(format!("{words} (it knows: {}; see `authMethod`)", abilities.login_words()))
            }
            error => error,
        }
    }
}
