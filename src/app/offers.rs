//! What sessions can have: tools, agents and models.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::wiring::allows;
use super::{App, Caller, agents, providers};
use crate::base::limit;
use crate::model::{Model, ModelFacts};
use crate::protocol::{
    AgentDefinition, AgentList, AgentState, AgentTypeView, AgentView, ApiError, Event, ModelPrices, ModelView,
    SessionId, ToolDefinition,
};
use crate::session::store_failure;
use crate::tool::told_schema;

/// When models on this machine were looked for. None: they were not.
#[derive(Debug, Default)]
pub(super) struct LocalModels(Option<Instant>);

impl App {
    /// The tools that sessions have now. A tool server adds its own once it is connected.
    pub fn tools(&self) -> Vec<ToolDefinition> {
        self.wardrobe.definitions()
    }

    /// The same, each with the JSON Schema of its arguments as every client's interface takes it.
    pub fn offered_tools(&self) -> Vec<(ToolDefinition, Value)> {
        let schema = |definition: ToolDefinition| (told_schema(&definition), definition);
        self.tools().into_iter().map(schema).map(|(schema, definition)| (definition, schema)).collect()
    }

    /// Those of [`Self::offered_tools`] that a session may use.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub async fn offered_tools_of(
        &self,
        caller: &Caller,
        id: &SessionId,
    ) -> Result<Vec<(ToolDefinition, Value)>, ApiError> {
        self.session(caller, id).await?;
        let row = self.store.session(id).await.map_err(|e| store_failure(&e))?;
        let row = row.ok_or_else(|| ApiError::not_found(format!("session {id}")))?;
        let agent = self.wardrobe.definition(&row.settings).await.map_err(ApiError)?;
        let has = |tool: &ToolDefinition| {
            row.settings.has_tool(&tool.name) && agent.as_ref().is_none_or(|agent| allows(agent, tool))
        };
        Ok(self.offered_tools().into_iter().filter(|(tool, _)| has(tool)).collect())
    }

    /// Our own agent, and the configured external ones.
    pub fn agents(&self) -> Vec<AgentView> {
        agents::list(&self.settings().acp_servers, &self.agents)
    }

    /// The types of sub-agents.
    pub fn agent_types(&self) -> Vec<AgentTypeView> {
        self.wardrobe.agent_types()
    }

    /// All agents that a session can name which works in that directory, those of markdown files too, and the files that are none.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a directory that is not there, or that no session may work in.
    pub async fn agents_in(&self, directory: Option<PathBuf>) -> Result<AgentList, ApiError> {
        let directory = self.working_directory("workingDirectory", directory).await?;
        let catalog = self.wardrobe.agent_catalog(&directory).await;
        let mut agents = self.agents();
        let reason = |agent: &AgentDefinition| {
            let model = agent.model.as_deref()?;
            match self.models.get(model) {
                None => Some(format!("its model `{model}` is not among those of GET /models")),
                Some(found) => found.available().err().map(|error| error.to_string()),
            }
        };
        agents.extend(catalog.agents.iter().map(|agent| agents::defined(agent, reason(agent))));
        Ok(AgentList { agents, types: self.agent_types(), faults: catalog.faults.clone() })
    }

    /// What the agent of a session has said last: its options, commands, plans. Read from the log.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub async fn agent_state(&self, caller: &Caller, id: &SessionId) -> Result<AgentState, ApiError> {
        let view = self.session(caller, id).await?;
        let (mut state, mut after) = (AgentState::default(), 0);
        loop {
            let events = self.store.events(id, after, limit::PAGE_ITEMS_MAX).await.map_err(|e| store_failure(&e))?;
            let Some(last) = events.last() else { break };
            after = last.seq;
            let telling = events.iter().filter(|event| AgentState::is_told_by(&event.kind));
            telling.filter_map(Event::body).for_each(|event| state.take(event));
        }
        Ok(AgentState { agent: view.agent, chosen: view.agent_options, ..state })
    }

    /// The models that sessions can name. Looks for those of servers on this machine, if it did not just do so.
    pub async fn models(&self) -> Vec<ModelView> {
        self.look_for_local_models().await;
        self.listed_models()
    }

    /// The same, as far as they are known.
    pub fn listed_models(&self) -> Vec<ModelView> {
        let default_id = self.models.default_id();
        let view = |model: &Arc<dyn Model>| view(model.as_ref(), model.id() == default_id);
        self.models.list().iter().map(view).collect()
    }

    async fn look_for_local_models(&self) {
        let settings = self.settings();
        if !settings.find_local_models {
            return;
        }
        let mut looked = self.local_models.lock().await;
        let known = Duration::from_millis(limit::LOCAL_MODELS_KNOWN_MS);
        if looked.0.is_none_or(|at| at.elapsed() >= known) {
            self.models.set_found(providers::found_locally(&settings).await);
            looked.0 = Some(Instant::now());
        }
    }
}

fn view(model: &dyn Model, default: bool) -> ModelView {
    let reason = model.available().err().map(|error| error.to_string());
    let id = model.id().to_owned();
    let seen = ModelView { id, available: reason.is_none(), reason, default, ..ModelView::default() };
    if model.is_agent() {
        return seen;
    }
    let images = model.takes_images();
    let ModelFacts { label, context_tokens, output_tokens_max, tools, reasoning, structured_output, prices, .. } =
        model.facts();
    let prices = prices.map(|prices| ModelPrices {
        input: prices.input,
        output: prices.output,
        cache_read: prices.cache_read,
        cache_write: prices.cache_write,
    });
    ModelView {
        label,
        context_tokens,
        output_tokens: output_tokens_max,
        images: Some(images),
        tools: Some(tools),
        reasoning: Some(reasoning),
        structured_output: Some(structured_output),
        prices,
        ..seen
    }
}
