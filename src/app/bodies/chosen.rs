//! Which agent a session has, and which model comes with it.
//!
//! Explicit comes before the agent's own, and that before the default: a model that is named beside an agent counts; else the one
//! of its file; else the one that is there. What a file says of model and reasoning is taken when the agent is chosen.

use std::path::Path;
use std::sync::Arc;

use crate::app::App;
use crate::app::agents::model_of;
use crate::model::Model as _;
use crate::protocol::{AgentDefinition, AgentKind, ApiError, Configure, ErrorCode, OWN_AGENT, SessionView, agent_of};

impl App {
    /// The markdown agent of that name, as a session in that directory has it. None: it is our own, or an external one.
    pub(super) async fn defined_agent(
        &self,
        field: &str,
        name: Option<&str>,
        directory: &Path,
    ) -> Result<Option<Arc<AgentDefinition>>, ApiError> {
        let Some(name) = name.filter(|name| !name.is_empty() && *name != OWN_AGENT && !self.is_external(name)) else {
            return Ok(None);
        };
        let catalog = self.wardrobe.agent_catalog(directory).await;
        let Some(found) = catalog.get(name) else {
            let why = catalog.fault_of(name).map(|fault| format!(", whose file has a fault: {}", fault.reason));
            let came = format!("`{name}`{}", why.unwrap_or_default());
            return Err(ApiError::unfit(field, "an agent of GET /agents", came));
        };
        match found.kind {
            AgentKind::Main => Ok(Some(Arc::clone(found))),
            AgentKind::Subagent => {
                let came = format!("`{name}`, to which only other agents can delegate");
                Err(ApiError::unfit(field, "an agent that is no sub-agent", came))
            }
        }
    }

    fn is_external(&self, name: &str) -> bool {
        self.agents.iter().any(|known| known.id() == model_of(name))
    }

    /// The model of a new session with a markdown agent, or else with the agent of that name.
    pub(super) fn model_beside(
        &self,
        defined: Option<&AgentDefinition>,
        (agent, model): (Option<&str>, Option<String>),
    ) -> Result<String, ApiError> {
        let Some(defined) = defined else { return self.chosen_model(agent, model) };
        self.chosen_model(None, model.or(self.model_of_file(defined)?))
    }

    /// The model that an agent's file names, which is there.
    fn model_of_file(&self, defined: &AgentDefinition) -> Result<Option<String>, ApiError> {
        match &defined.model {
            Some(model) if self.models.get(model).is_none() => {
                let message = format!(
                    "the agent `{}` cannot be used: its model `{model}` is not among those of GET /models",
                    defined.name
                );
                Err(ApiError::new(ErrorCode::UpstreamUnavailable, message))
            }
            model => Ok(model.clone()),
        }
    }

    /// Another agent of a session, and what comes with it where nothing else is said.
    pub(super) async fn choose_agent(
        &self,
        (place, name): (&str, &str),
        now: &SessionView,
        changes: &mut Configure,
    ) -> Result<(), ApiError> {
        let field = format!("{place}agent");
        let directory = changes.working_directory.as_deref().unwrap_or(&now.working_directory);
        let defined = self.defined_agent(&field, Some(name), directory).await?;
        let drives = agent_of(changes.model.as_deref().unwrap_or(&now.model)) == OWN_AGENT;
        if let Some(defined) = &defined {
            let own = if changes.model.is_none() { self.model_of_file(defined)? } else { None };
            changes.reasoning = changes.reasoning.or(defined.reasoning);
            changes.model = changes.model.take().or(own).or_else(|| (!drives).then(|| self.own_model()));
        } else if name.is_empty() || name == OWN_AGENT {
            if !drives {
                changes.model = Some(self.chosen_model(Some(OWN_AGENT), changes.model.take())?);
            }
        } else {
            changes.model = Some(self.chosen_model(Some(name), changes.model.take())?);
        }
        changes.agent = Some(defined.map_or_else(|| OWN_AGENT.to_owned(), |agent| agent.name.clone()));
        Ok(())
    }

    /// The model of a new session: of the agent that is named, as it is named, or the default one.
    fn chosen_model(&self, agent: Option<&str>, model: Option<String>) -> Result<String, ApiError> {
        let model = match (agent, model) {
            (None, model) => model.unwrap_or_else(|| self.models.default_id()),
            (Some(OWN_AGENT), None) => self.own_model(),
            (Some(OWN_AGENT), Some(model)) if agent_of(&model) != OWN_AGENT => {
                let expected = format!("a model that the agent `{OWN_AGENT}` can drive");
                return Err(ApiError::unfit("model", expected, format!("`{model}`")));
            }
            (Some(OWN_AGENT), Some(model)) => model,
            (Some(agent), _) if !self.agents.iter().any(|known| known.id() == model_of(agent)) => {
                return Err(ApiError::unfit("agent", "an agent of GET /agents", format!("`{agent}`")));
            }
            (Some(agent), Some(model)) if model != model_of(agent) => {
                let expected = format!("none beside the agent `{agent}`, which chooses its own");
                return Err(ApiError::unfit("model", expected, format!("`{model}`")));
            }
            (Some(agent), _) => model_of(agent),
        };
        self.check_model("model", &model)?;
        match self.agents.iter().find(|agent| agent.id() == model).map(|agent| agent.available()) {
            Some(Err(error)) => {
                let message = format!("the agent `{}` cannot be used: {error}", agent_of(&model));
                Err(ApiError::new(ErrorCode::UpstreamUnavailable, message))
            }
            Some(Ok(())) | None => Ok(model),
        }
    }

    /// What our own loop drives when nobody names a model.
    fn own_model(&self) -> String {
        let default = self.models.default_id();
        let own = |id: &String| agent_of(id) == OWN_AGENT;
        let listed = self.models.list().into_iter().map(|model| model.id().to_owned());
        std::iter::once(default.clone()).chain(listed).find(own).unwrap_or(default)
    }
}
