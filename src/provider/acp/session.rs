//! The agent's program and its sessions: started when first needed, opened, gone on with, or begun anew.

use std::sync::Arc;

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::schema as acp;
use serde_json::Value;

use super::connection::{Connection, Fault, InUse};
use super::{Agent, Running};
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
}

/// What an agent says that it can do.
#[derive(Debug, Clone, Default)]
pub(super) struct Abilities {
    load: bool,
    resume: bool,
    images: bool,
    /// How it can be logged in to, in its words.
    logins: Vec<String>,
}

/// What a session can be set to.
#[derive(Debug, Default)]
struct Choices {
    modes: Option<acp::SessionModeState>,
    options: Vec<acp::SessionConfigOption>,
}

impl Agent {
    /// The session that the request goes on with, or a new one.
    pub async fn open_session(&self, asked: &AgentRequest) -> Result<Opened, ModelError> {
        let (connection, abilities, here) = self.connect().await?;
        let opened = |session: String, fresh| {
            let takes_images = abilities.images;
            Opened { connection: Arc::clone(&connection), _here: here, session, fresh, takes_images }
        };
        if let Some(known) = &asked.session {
            if connection.sessions.lock().contains(known) {
                return Ok(opened(known.clone(), false));
            }
            if let Some(choices) = self.reopen(&connection, &abilities, known, asked).await? {
                self.choose(&connection, known, choices).await?;
                connection.sessions.lock().insert(known.clone());
                return Ok(opened(known.clone(), false));
            }
        }
        let params = acp::NewSessionRequest::new(asked.directory.clone());
        let created = self.ask::<acp::NewSessionResponse>(&connection, "session/new", &params).await;
        let created = created.map_err(|fault| self.login_fault("session/new", fault, &abilities))?;
        let session = created.session_id.to_string();
        let choices = Choices { modes: created.modes, options: created.config_options.unwrap_or_default() };
        self.choose(&connection, &session, choices).await?;
        connection.sessions.lock().insert(session.clone());
        Ok(opened(session, true))
    }

    /// Opens a session of an earlier program again. None: it cannot be; the conversation is told to a new one.
    ///
    /// What the agent replays of it reaches no turn: our log has it already.
    async fn reopen(
        &self,
        connection: &Arc<Connection>,
        abilities: &Abilities,
        session: &str,
        asked: &AgentRequest,
    ) -> Result<Option<Choices>, ModelError> {
        let cwd = asked.directory.clone();
        let (method, answer) = if abilities.resume {
            let params = acp::ResumeSessionRequest::new(session.to_owned(), cwd);
            let answer = self.ask::<acp::ResumeSessionResponse>(connection, "session/resume", &params).await;
            let choices = |r: acp::ResumeSessionResponse| (r.modes, r.config_options);
            ("session/resume", answer.map(choices))
        } else if abilities.load {
            let params = acp::LoadSessionRequest::new(session.to_owned(), cwd);
            let answer = self.ask::<acp::LoadSessionResponse>(connection, "session/load", &params).await;
            ("session/load", answer.map(|r| (r.modes, r.config_options)))
        } else {
            return Ok(None);
        };
        match answer {
            Ok((modes, options)) => Ok(Some(Choices { modes, options: options.unwrap_or_default() })),
            Err(fault @ (Fault::Gone(_) | Fault::TimedOut(_))) => Err(self.fault(method, fault)),
            Err(fault @ (Fault::Refused(_) | Fault::Malformed(_))) => {
                let error = self.fault(method, fault);
                tracing::warn!(session, %error, "an agent's session cannot be gone on with; a new one is told of it");
                Ok(None)
            }
        }
    }

    /// Sets a session to the agent that the configuration names (`defaultAgent`).
    async fn choose(&self, connection: &Arc<Connection>, session: &str, choices: Choices) -> Result<(), ModelError> {
        let Some(wanted) = &self.options.default_agent else { return Ok(()) };
        let modes = choices.modes.as_ref();
        if let Some(modes) = modes.filter(|modes| modes.available_modes.iter().any(|mode| *mode.id.0 == **wanted)) {
            if *modes.current_mode_id.0 == **wanted {
                return Ok(());
            }
            let params = acp::SetSessionModeRequest::new(session.to_owned(), wanted.clone());
            let set = self.ask::<Value>(connection, "session/set_mode", &params).await;
            return set.map(drop).map_err(|fault| self.fault("session/set_mode", fault));
        }
        for option in choices.options.iter().filter(|option| is_agents(option)) {
            let Some((current, values)) = values_of(option) else { continue };
            if current == *wanted {
                return Ok(());
            }
            if values.contains(wanted) {
                let value = acp::SessionConfigOptionValue::value_id(wanted.clone());
                let params = acp::SetSessionConfigOptionRequest::new(session.to_owned(), option.id.clone(), value);
                let set = self.ask::<Value>(connection, "session/set_config_option", &params).await;
                return set.map(drop).map_err(|fault| self.fault("session/set_config_option", fault));
            }
        }
        self.not_offered(wanted, &choices)
    }

    fn not_offered(&self, wanted: &str, choices: &Choices) -> Result<(), ModelError> {
        let modes = choices.modes.iter().flat_map(|modes| &modes.available_modes).map(|mode| mode.id.to_string());
        let values = choices.options.iter().filter(|option| is_agents(option)).filter_map(values_of);
        let offered: Vec<String> = modes.chain(values.flat_map(|(_, values)| values)).collect();
        if offered.is_empty() {
            let name = self.name();
            tracing::warn!(agent = name, wanted, "`defaultAgent` names one, and the agent offers none to choose from");
            return Ok(());
        }
        let words = format!("`defaultAgent` is `{wanted}`, and it offers {}", offered.join(", "));
        Err(self.named(ModelError::Refused(words)))
    }

    /// The running program, started and greeted when there is none.
    async fn connect(&self) -> Result<(Arc<Connection>, Abilities, InUse), ModelError> {
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
        let (connection, task) = Connection::open((self.name(), &options.secrets), &what, stop).map_err(|error| {
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
        let files = acp::FileSystemCapabilities::new().write_text_file(self.options.serves_writes);
        let forms = acp::ElicitationCapabilities::new().form(acp::ElicitationFormCapabilities::new());
        let params = acp::InitializeRequest::new(ProtocolVersion::V1)
            .client_capabilities(acp::ClientCapabilities::new().fs(files).elicitation(forms))
            .client_info(acp::Implementation::new("simse", env!("CARGO_PKG_VERSION")));
        let greeted = self.ask::<acp::InitializeResponse>(connection, "initialize", &params).await;
        let greeted = greeted.map_err(|fault| self.fault("initialize", fault))?;
        if greeted.protocol_version != ProtocolVersion::V1 {
            let words = format!("it speaks version {} of the protocol, and not 1", greeted.protocol_version);
            return Err(self.named(ModelError::Unavailable(words)));
        }
        let can = greeted.agent_capabilities;
        Ok(Abilities {
            load: can.load_session,
            resume: can.session_capabilities.resume.is_some(),
            images: can.prompt_capabilities.image,
            logins: greeted.auth_methods.iter().map(|method| method.name().to_owned()).collect(),
        })
    }

    async fn ask<T: serde::de::DeserializeOwned>(
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

    /// A fault where a login may be missing.
    fn login_fault(&self, method: &str, fault: Fault, abilities: &Abilities) -> ModelError {
        match self.fault(method, fault) {
            ModelError::Unauthorized(words) if !abilities.logins.is_empty() => {
                ModelError::Unauthorized(format!("{words} (it knows: {})", abilities.logins.join(", ")))
            }
            error => error,
        }
    }
}

/// Whether an option chooses what answers: a mode, or an agent.
fn is_agents(option: &acp::SessionConfigOption) -> bool {
    matches!(option.category, Some(acp::SessionConfigOptionCategory::Mode)) || matches!(&*option.id.0, "mode" | "agent")
}

/// What is chosen in a list, and what can be.
fn values_of(option: &acp::SessionConfigOption) -> Option<(String, Vec<String>)> {
    let acp::SessionConfigKind::Select(select) = &option.kind else { return None };
    let values = match &select.options {
        acp::SessionConfigSelectOptions::Ungrouped(all) => all.iter().map(|one| one.value.to_string()).collect(),
        acp::SessionConfigSelectOptions::Grouped(groups) => {
            groups.iter().flat_map(|group| &group.options).map(|one| one.value.to_string()).collect()
        }
        _ => Vec::new(),
    };
    Some((select.current_value.to_string(), values))
}
