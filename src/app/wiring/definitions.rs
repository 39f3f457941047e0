//! The agents of a working directory, as sessions and doors have them, and what they leave of a session's tools.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Wardrobe;
use crate::config::{AgentCatalog, AgentFolders, Catalog, CommandDefinition, Finder, Settings, commands, skills};
use crate::host::{Skill, SkillPlace};
use crate::model::Model;
use crate::prompt::{directories_up, skills_text};
use crate::protocol::{
    AgentDefinition, AgentGate, AgentKind, ErrorBody, ErrorCode, InteractionMode, OWN_AGENT, SkillView, ToolCategory,
    ToolDefinition,
};
use crate::store::SessionSettings;
use crate::tool::{SKILL_TOOL, Tool, means};

/// Tools that are named to a model that called another one.
const TOOLS_NAMED_MAX: usize = 30;

/// Finds what markdown files define, where the settings say.
pub(super) struct Defined {
    agents: Arc<AgentFolders>,
    skills: Arc<Finder<SkillView>>,
    commands: Arc<Finder<CommandDefinition>>,
    /// Some directory that was looked at has skills.
    has_skills: AtomicBool,
}

impl Defined {
    /// No agent has the name of our own or of an external one.
    pub(super) fn new(settings: &Settings) -> Self {
        let external = settings.acp_servers.iter().map(|server| server.name.clone());
        let reserved = external.chain([OWN_AGENT.to_owned()]).collect();
        let folders = &settings.definitions;
        Self {
            agents: Arc::new(AgentFolders::new(folders.clone(), reserved)),
            skills: Arc::new(skills(folders)),
            commands: Arc::new(commands(folders)),
            has_skills: AtomicBool::new(false),
        }
    }

    /// The tool that loads skills, where there are some.
    pub(super) fn skill_definition(&self) -> Option<ToolDefinition> {
        let place = || SkillPlace { finder: Arc::clone(&self.skills), directories: Vec::new(), only: None };
        self.has_skills.load(Ordering::Relaxed).then(|| Skill::new(place()).definition().clone())
    }
}

/// Why an agent may not use a tool, in words for the model. None: it may.
pub(super) fn why_not(agent: &AgentDefinition, tool: &ToolDefinition) -> Option<String> {
    let name = &agent.name;
    // Who is told of skills may load them.
    let loads = tool.name == SKILL_TOOL && agent.skills.as_ref().is_some_and(|skills| !skills.is_empty());
    if let Some(tools) = &agent.tools
        && !loads
        && !tools.iter().any(|entry| means(entry, &tool.name))
    {
        let named: Vec<&str> = tools.iter().take(TOOLS_NAMED_MAX).map(String::as_str).collect();
        let more = if tools.len() > named.len() { ", …" } else { "" };
        return Some(format!("the agent `{name}` may not use it: its tools are {}{more}", named.join(", ")));
    }
    match tool.category {
        Some(ToolCategory::Edit) if !agent.opens(AgentGate::Patch) => {
            Some(format!("the agent `{name}` may not change files: its policy does not name `Patch`"))
        }
        // A shell changes files as well. Who names one among its tools has it none the less.
        Some(ToolCategory::Execute) if !agent.opens(AgentGate::Patch) && agent.tools.is_none() => Some(format!(
            "the agent `{name}` may not run what could change files: its policy does not name `Patch`, and its file names no tools"
        )),
        Some(ToolCategory::Subagent) if agent.kind == AgentKind::Subagent => {
            Some(format!("the agent `{name}` is a sub-agent, which delegates to nobody"))
        }
        Some(ToolCategory::Subagent) if !agent.opens(AgentGate::Delegate) => {
            Some(format!("the agent `{name}` may not delegate: its policy does not name `Delegate`"))
        }
        Some(_) | None => None,
    }
}

/// Whether an agent may use a tool.
pub(in crate::app) fn allows(agent: &AgentDefinition, tool: &ToolDefinition) -> bool {
    why_not(agent, tool).is_none()
}

/// How an agent and its model talk about calls: as the session says, or the agent's file; else as the model can.
pub(super) fn mode(settings: &SessionSettings, agent: Option<&AgentDefinition>, model: &dyn Model) -> InteractionMode {
    let said = settings.interaction_mode.or_else(|| agent?.mode);
    if model.is_agent() {
        return InteractionMode::Chat;
    }
    said.unwrap_or(if model.facts().tools { InteractionMode::Chat } else { InteractionMode::Auto })
}

impl Wardrobe {
    /// The agents that a session in this directory can name: files that changed count from now on.
    pub(in crate::app) async fn agent_catalog(&self, directory: &Path) -> Arc<AgentCatalog> {
        let folders = Arc::clone(&self.defined.agents);
        Arc::new(self.look(directory, move |directories| folders.look(directories)).await)
    }

    /// Looks on the blocking pool. Who cannot be read is told of there; what breaks altogether leaves a session without such things.
    async fn look<T: Default + Send + 'static>(
        &self,
        directory: &Path,
        look: impl FnOnce(&[PathBuf]) -> T + Send + 'static,
    ) -> T {
        let (directory, root) = (directory.to_owned(), self.lore.root_dir().map(Path::to_owned));
        let look = move || look(&directories_up(&directory, root.as_deref()));
        tokio::task::spawn_blocking(look).await.unwrap_or_default()
    }

    /// The skills of a directory.
    pub(in crate::app) async fn skill_catalog(&self, directory: &Path) -> Catalog<SkillView> {
        let finder = Arc::clone(&self.defined.skills);
        let catalog = self.look(directory, move |directories| finder.look(directories)).await;
        if !catalog.all.is_empty() {
            self.defined.has_skills.store(true, Ordering::Relaxed);
        }
        catalog
    }

    /// The commands of a directory.
    pub(in crate::app) async fn command_catalog(&self, directory: &Path) -> Catalog<CommandDefinition> {
        let finder = Arc::clone(&self.defined.commands);
        self.look(directory, move |directories| finder.look(directories)).await
    }

    /// The tool that loads a session's skills. None: it has none.
    pub(super) async fn skill_tool(
        &self,
        settings: &SessionSettings,
        agent: Option<&AgentDefinition>,
    ) -> Option<Arc<dyn Tool>> {
        let (place, usable) = self.usable_skills(settings, agent).await?;
        (!usable.is_empty()).then(|| Arc::new(Skill::new(place)) as Arc<dyn Tool>)
    }

    /// What the system text says of them.
    pub(super) async fn skills_told(&self, settings: &SessionSettings, agent: Option<&AgentDefinition>) -> String {
        let found = self.usable_skills(settings, agent).await;
        skills_text(found.iter().flat_map(|(_, usable)| usable).map(Arc::as_ref))
    }

    /// The skills that the model of a session may use.
    async fn usable_skills(
        &self,
        settings: &SessionSettings,
        agent: Option<&AgentDefinition>,
    ) -> Option<(SkillPlace, Vec<Arc<SkillView>>)> {
        let finder = Arc::clone(&self.defined.skills);
        let only = agent.and_then(|agent| agent.skills.clone());
        let look = move |directories: &[PathBuf]| {
            let place = SkillPlace { finder, directories: directories.to_owned(), only };
            let usable = place.usable();
            Some((place, usable))
        };
        let found = self.look(&settings.working_directory, look).await?;
        if !found.1.is_empty() {
            self.defined.has_skills.store(true, Ordering::Relaxed);
        }
        Some(found)
    }

    /// The agent of a markdown file that a session works as, as it is now.
    ///
    /// # Errors
    /// It is gone: what it may not do is not known any more, and so nothing is done.
    pub(in crate::app) async fn definition(
        &self,
        settings: &SessionSettings,
    ) -> Result<Option<Arc<AgentDefinition>>, ErrorBody> {
        let Some(name) = &settings.agent else { return Ok(None) };
        let catalog = self.agent_catalog(&settings.working_directory).await;
        if let Some(found) = catalog.get(name) {
            return Ok(Some(Arc::clone(found)));
        }
        let why = catalog.fault_of(name).map(|fault| format!(" ({}: {})", fault.path.display(), fault.reason));
        let message = format!(
            "no markdown file defines the agent `{name}` any more{}; bring it back, or choose another agent",
            why.unwrap_or_default()
        );
        Err(ErrorBody { code: ErrorCode::UpstreamUnavailable, message, details: None })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::protocol::DefinitionSource;

    #[test]
    fn an_agent_has_the_tools_that_its_file_names_and_its_gates_let_through() {
        let agent = |tools: Option<&[&str]>, gates: Option<&[AgentGate]>, kind| AgentDefinition {
            name: "a".into(),
            description: String::new(),
            kind,
            mode: None,
            model: None,
            reasoning: None,
            tools: tools.map(|names| names.iter().map(|name| (*name).to_owned()).collect()),
            gates: gates.map(<[_]>::to_vec),
            delegate_targets: None,
            permissions: None,
            max_iterations: None,
            skills: None,
            prompt: String::new(),
            source: DefinitionSource::Project,
            path: None,
        };
        let tool = |name: &str, category: &str| -> ToolDefinition {
            serde_json::from_value(json!({"name": name, "description": "", "category": category})).unwrap()
        };
        use AgentKind::{Main, Subagent};
        let all = [
            tool("fs_read", "read"),
            tool("fs_write", "edit"),
            tool("git_log", "search"),
            tool("spawn_agent", "subagent"),
            tool("bash", "execute"),
        ];
        #[rustfmt::skip]
        let table = [
            (agent(None, None, Main), [true, true, true, true, true]),
            (agent(Some(&["Read", "Write", "git_*"]), None, Main), [true, true, true, false, false]),
            (agent(Some(&["Read", "Write"]), Some(&[]), Main), [true, false, false, false, false]),
            (agent(Some(&["Read", "Bash"]), Some(&[]), Main), [true, false, false, false, true]),
            (agent(None, Some(&[AgentGate::Patch]), Main), [true, true, true, false, true]),
            (agent(None, Some(&[AgentGate::Delegate]), Main), [true, false, true, true, false]),
            (agent(None, Some(&AgentGate::ALL), Subagent), [true, true, true, false, true]),
            (agent(Some(&[]), None, Main), [false, false, false, false, false]),
        ];
        for (agent, want) in table {
            let may = [0, 1, 2, 3, 4].map(|at: usize| why_not(&agent, &all[at]).is_none());
            assert_eq!(may, want, "{agent:?}");
        }
        let named = why_not(&agent(Some(&["Read"]), None, Main), &all[1]);
        assert_eq!(named.as_deref(), Some("the agent `a` may not use it: its tools are Read"));
    }
}
