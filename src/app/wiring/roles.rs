//! What sub-agents of a name are: the types of the settings.

use super::Wardrobe;
use crate::app::OpenError;
use crate::config::{AgentType, Names, Settings};
use crate::protocol::{AgentTypeView, ApiError};
use crate::session::AgentRole;

/// The types of sub-agents that the settings make.
///
/// # Errors
/// [`OpenError::Setting`] that names the type and its member.
pub(in crate::app) fn agent_types(settings: &Settings) -> Result<Vec<AgentType>, OpenError> {
    if let Some((at, member, expected)) = AgentType::fault(&settings.agent_types) {
        let field = match settings.names {
            Names::Flags => format!("agent_types[{at}].{member}"),
            Names::Members => format!("agentTypes.{at}.{member}"),
        };
        return Err(OpenError::Setting { field, expected });
    }
    Ok(AgentType::all(&settings.agent_types, settings.small_model.as_deref()))
}

impl Wardrobe {
    /// Takes other types, from the next sub-agent on.
    pub(in crate::app) fn set_agent_types(&self, types: Vec<AgentType>) {
        *self.agent_types.write() = types;
    }

    /// The types, as they are told.
    pub(in crate::app) fn agent_types(&self) -> Vec<AgentTypeView> {
        let view = |kind: &AgentType| AgentTypeView {
            name: kind.name.clone(),
            description: kind.description.clone().unwrap_or_default(),
            model: kind.model.clone(),
            reasoning: kind.reasoning,
            read_only: kind.tools.is_none(),
        };
        self.agent_types.read().iter().map(view).collect()
    }

    /// What a sub-agent of that type is.
    pub(super) fn role_of_type(&self, name: &str) -> Option<AgentRole> {
        let types = self.agent_types.read();
        let kind = types.iter().find(|kind| kind.name == name)?;
        let (model, tools) = (kind.model.clone(), kind.tools.clone());
        Some(AgentRole { model, reasoning: kind.reasoning, tools, ..AgentRole::default() })
    }

    /// The names of all types.
    pub(super) fn type_names(&self) -> Vec<String> {
        self.agent_types.read().iter().map(|kind| kind.name.clone()).collect()
    }

    /// Whether there is such a model.
    pub(super) fn knows_model(&self, model: &str) -> Result<(), ApiError> {
        if self.models.get(model).is_some() {
            return Ok(());
        }
        let listed = self.models.list();
        let known: Vec<&str> = listed.iter().map(|model| model.id()).collect();
        Err(ApiError::unfit("model", format!("a model that there is ({})", known.join(", ")), format!("`{model}`")))
    }
}
