//! What sessions can have: tools, agents and models.

use std::sync::Arc;

use super::{App, agents};
use crate::model::Model;
use crate::protocol::{AgentView, ModelView, ToolDefinition};

impl App {
    /// The tools that sessions have now. A tool server adds its own once it is connected.
    pub fn tools(&self) -> Vec<ToolDefinition> {
        self.wardrobe.definitions()
    }

    /// The agents that sessions can name.
    pub fn agents(&self) -> Vec<AgentView> {
        agents::list(&self.settings().acp_servers, &self.agents)
    }

    /// The models that sessions can name.
    pub fn models(&self) -> Vec<ModelView> {
        let default_id = self.models.default_id();
        let view = |model: &Arc<dyn Model>| {
            let reason = model.available().err().map(|error| error.to_string());
            let default = model.id() == default_id;
            ModelView { id: model.id().to_owned(), available: reason.is_none(), reason, default }
        };
        self.models.list().iter().map(view).collect()
    }
}
