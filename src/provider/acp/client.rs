//! An agent in the hands of a program that keeps no sessions of ours: it starts the agent, opens its sessions, lists, closes
//! and deletes them. Prompts go the way of every model ([`Model::stream`](crate::model::Model::stream)).

use agent_client_protocol::v1::schema as acp;
use serde_json::Value;

use super::AcpAgent;
use super::session::Abilities;
use crate::model::{AgentRequest, ModelError};
use crate::protocol::AgentOption;

/// Pages of one list of sessions, at most.
const PAGES_MAX: usize = 100;

/// A session of the agent's that is open.
#[derive(Debug, Clone, PartialEq)]
pub struct AcpSession {
    /// The agent's own id of it.
    pub id: String,
    /// It is new: what was asked for is gone, or nothing was.
    pub fresh: bool,
    /// What it can be set to, and is.
    pub options: Vec<AgentOption>,
}

/// What an agent does with sessions beside opening them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AcpAbilities {
    /// It goes on with sessions of an earlier program.
    pub load: bool,
    /// It lists them.
    pub list: bool,
    /// It deletes them.
    pub delete: bool,
}

impl From<&Abilities> for AcpAbilities {
    fn from(can: &Abilities) -> Self {
        Self { load: can.load || can.resume, list: can.list, delete: can.delete }
    }
}

impl AcpAgent {
    /// Starts the program, unless it runs: what it can do.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub async fn start(&self) -> Result<AcpAbilities, ModelError> {
        let (_, abilities, _here) = self.agent.connect().await?;
        Ok(AcpAbilities::from(&abilities))
    }

    /// Opens the session that is asked for, or a new one, and sets it as it is asked.
    ///
    /// # Errors
    /// Why it cannot be opened, or not be set so.
    pub async fn open(&self, asked: &AgentRequest) -> Result<AcpSession, ModelError> {
        let opened = self.agent.open_session(asked).await?;
        let options = opened.connection.known(&opened.session, |known| known.choices());
        Ok(AcpSession { id: opened.session, fresh: opened.fresh, options })
    }

    /// The agent's sessions in its own words (`SessionInfo`). None: it does not list them.
    ///
    /// # Errors
    /// Why it gives no answer.
    pub async fn list_sessions(&self) -> Result<Option<Vec<Value>>, ModelError> {
        let (connection, abilities, _here) = self.agent.connect().await?;
        if !abilities.list {
            return Ok(None);
        }
        let mut all = Vec::new();
        let mut cursor: Option<String> = None;
        for _ in 0..PAGES_MAX {
            let params = acp::ListSessionsRequest::new().cursor(cursor.clone());
            let answer = self.agent.ask::<Value>(&connection, "session/list", &params).await;
            let mut answer = answer.map_err(|fault| self.agent.fault("session/list", fault))?;
            if let Value::Array(page) = answer["sessions"].take() {
                all.extend(page);
            }
            let next = answer["nextCursor"].as_str().map(str::to_owned);
            if next.is_none() || next == cursor {
                break;
            }
            cursor = next;
        }
        Ok(Some(all))
    }

    /// Deletes a session. False: the agent deletes none.
    ///
    /// # Errors
    /// Why it does not.
    pub async fn delete_session(&self, session: &str) -> Result<bool, ModelError> {
        let (connection, abilities, _here) = self.agent.connect().await?;
        if !abilities.delete {
            return Ok(false);
        }
        let params = acp::DeleteSessionRequest::new(session.to_owned());
        let answer = self.agent.ask::<Value>(&connection, "session/delete", &params).await;
        answer.map_err(|fault| self.agent.fault("session/delete", fault))?;
        connection.sessions.lock().remove(session);
        Ok(true)
    }

    /// Tells the agent that a session is not used any more, where it wants to know. Nothing is said of how that went.
    pub async fn close_session(&self, session: &str) {
        if self.load().is_none() {
            // Nobody runs that would have it open.
            return;
        }
        let Ok((connection, abilities, _here)) = self.agent.connect().await else { return };
        connection.sessions.lock().remove(session);
        if abilities.close {
            let params = acp::CloseSessionRequest::new(session.to_owned());
            if let Err(fault) = self.agent.ask::<Value>(&connection, "session/close", &params).await {
                let error = self.agent.fault("session/close", fault);
                tracing::debug!(session, %error, "an agent did not close a session");
            }
        }
    }
}
