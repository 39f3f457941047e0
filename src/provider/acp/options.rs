//! What an agent's session is set to: the configured mode, the session's own choices, how much it is to think.
//!
//! Set when the agent's session is opened, and when what was chosen has changed since: in between the agent may change it
//! itself. What was chosen and is not offered fails the turn, with the list of what is. What the words mean is the agent's
//! affair: no permission is ever read from a mode's name.

use std::sync::Arc;

use agent_client_protocol::v1::schema as acp;
use serde_json::Value;

use super::Agent;
use super::connection::Connection;
use super::known::{MODE, Said};
use crate::model::{AgentRequest, ModelError};
use crate::protocol::{AgentOption, AgentSetting, EventBody, NoticeLevel, Reasoning};

/// What a level of thought may be called, other than by our name.
fn names_of(level: Reasoning) -> &'static [&'static str] {
    match level {
        Reasoning::Auto => &[],
        Reasoning::None => &["none", "off", "disabled"],
        Reasoning::Minimal => &["minimal", "min"],
        Reasoning::Low => &["low"],
        Reasoning::Medium => &["medium", "med"],
        Reasoning::High => &["high"],
        Reasoning::Xhigh => &["xhigh", "extra_high", "max"],
    }
}

impl Agent {
    /// Sets a session to what is chosen for it.
    pub async fn choose(
        &self,
        connection: &Arc<Connection>,
        session: &str,
        asked: &AgentRequest,
    ) -> Result<(), ModelError> {
        let chosen = (asked.options.clone(), asked.reasoning);
        if connection.known(session, |known| known.applied.as_ref() == Some(&chosen)) {
            return Ok(());
        }
        let fresh = connection.known(session, |known| known.applied.is_none());
        if fresh
            && let Some(wanted) = &self.options.default_agent
            && !asked.options.contains_key(MODE)
        {
            self.choose_agent(connection, session, wanted).await?;
        }
        for (id, setting) in &asked.options {
            self.set_option(connection, session, (id, setting)).await?;
        }
        self.choose_level(connection, session, asked.reasoning).await?;
        connection.known(session, |known| known.applied = Some(chosen));
        Ok(())
    }

    /// The agent or mode that the configuration names (`defaultAgent`).
    async fn choose_agent(&self, connection: &Arc<Connection>, session: &str, wanted: &str) -> Result<(), ModelError> {
        let choices = connection.known(session, |known| known.choices());
        let all: Vec<&AgentOption> = choices.iter().filter(|option| is_agents(option)).collect();
        let offering = all.iter().find(|option| option.values.iter().any(|one| one.value == wanted));
        if let Some(option) = offering {
            let setting = AgentSetting::Value(wanted.to_owned());
            return self.set_option(connection, session, (&option.id, &setting)).await;
        }
        let offered: Vec<&str> = all.iter().flat_map(|option| &option.values).map(|one| one.value.as_str()).collect();
        if offered.is_empty() {
            let name = self.name();
            tracing::warn!(agent = name, wanted, "`defaultAgent` names one, and the agent offers none to choose from");
            return Ok(());
        }
        let words = format!("`defaultAgent` is `{wanted}`, and it offers {}", offered.join(", "));
        Err(self.named(ModelError::Refused(words)))
    }

    async fn choose_level(
        &self,
        connection: &Arc<Connection>,
        session: &str,
        level: Reasoning,
    ) -> Result<(), ModelError> {
        let names = names_of(level);
        if names.is_empty() {
            return Ok(());
        }
        let choices = connection.known(session, |known| known.choices());
        let levels = choices.iter().find(|option| option.category.as_deref() == Some("thought_level"));
        let fitting = levels.and_then(|option| {
            let value =
                names.iter().find_map(|name| option.values.iter().find(|one| one.value.eq_ignore_ascii_case(name)))?;
            Some((option.id.clone(), AgentSetting::Value(value.value.clone())))
        });
        if let Some((id, setting)) = fitting {
            return self.set_option(connection, session, (&id, &setting)).await;
        }
        let wanted = level.effort().unwrap_or_default();
        let offered = levels.map_or_else(
            || "lets nobody choose how much it thinks".to_owned(),
            |option| format!("offers {}", listed(option)),
        );
        let text = format!("`reasoning` is `{wanted}`, and the agent `{}` {offered}: it goes on as it is", self.name());
        let notice = EventBody::ClientNotice { call_id: None, level: NoticeLevel::Warning, text };
        connection.known(session, |known| known.wait(Said::Event(notice)));
        Ok(())
    }

    /// Sets one option, unless it is set so already.
    pub async fn set_option(
        &self,
        connection: &Arc<Connection>,
        session: &str,
        (id, setting): (&str, &AgentSetting),
    ) -> Result<(), ModelError> {
        let (choices, is_mode) = connection.known(session, |known| (known.choices(), known.is_mode(id)));
        let Some(option) = choices.iter().find(|option| option.id == id) else {
            let ids: Vec<&str> = choices.iter().map(|option| option.id.as_str()).collect();
            let offered = if ids.is_empty() { "none".to_owned() } else { ids.join(", ") };
            let words = format!("`agentOptions` names `{id}`, and of options it offers {offered}");
            return Err(self.named(ModelError::Refused(words)));
        };
        if option.value == *setting {
            return Ok(());
        }
        if !offers(option, setting) {
            let words = format!("its option `{id}` cannot be `{setting}`: it offers {}", listed(option));
            return Err(self.named(ModelError::Refused(words)));
        }
        let (method, answer) = match setting {
            AgentSetting::Value(mode) if is_mode => {
                let params = acp::SetSessionModeRequest::new(session.to_owned(), mode.clone());
                ("session/set_mode", self.ask::<Value>(connection, "session/set_mode", &params).await)
            }
            _ => {
                let value = match setting {
                    AgentSetting::Flag(on) => acp::SessionConfigOptionValue::boolean(*on),
                    AgentSetting::Value(value) => acp::SessionConfigOptionValue::value_id(value.clone()),
                };
                let params = acp::SetSessionConfigOptionRequest::new(session.to_owned(), id.to_owned(), value);
                let method = "session/set_config_option";
                (method, self.ask::<Value>(connection, method, &params).await)
            }
        };
        let answer = answer.map_err(|fault| self.fault(method, fault))?;
        connection.known(session, |known| {
            let told = known.was_set(id, setting, &answer);
            known.wait(told);
        });
        Ok(())
    }
}

/// Whether an option chooses what answers: a mode, or an agent.
fn is_agents(option: &AgentOption) -> bool {
    option.category.as_deref() == Some(MODE) || matches!(option.id.as_str(), "mode" | "agent")
}

fn offers(option: &AgentOption, setting: &AgentSetting) -> bool {
    match setting {
        AgentSetting::Flag(_) => option.values.is_empty() && matches!(option.value, AgentSetting::Flag(_)),
        AgentSetting::Value(value) => option.values.iter().any(|one| one.value == *value),
    }
}

fn listed(option: &AgentOption) -> String {
    let values: Vec<&str> = option.values.iter().map(|one| one.value.as_str()).collect();
    if values.is_empty() { "true and false".to_owned() } else { values.join(", ") }
}
