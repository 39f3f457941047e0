//! Which tools a session has: ours or the program's, those of the memory, and those of the tool servers.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use super::definitions::why_not;
use super::{Wardrobe, host_tools};
use crate::base::limit;
use crate::base::workspace::Workspace;
use crate::protocol::{AgentDefinition, SessionId, ToolDefinition};
use crate::store::SessionSettings;
use crate::tool::{Registry, Tool, told_bytes};

/// The tools of sessions that work in one place and may use the same ones. They keep nothing between calls: what
/// belongs to a session is in its [`Scope`](crate::tool::Scope).
pub(super) struct Fitted {
    directory: PathBuf,
    /// As its links lead now.
    workspace: Workspace,
    tools: Option<Vec<String>>,
    without_tools: Vec<String>,
    /// Whose tools they are.
    agent: Option<Arc<AgentDefinition>>,
    /// Whether they load skills.
    skills: bool,
    /// Those of the tool servers, which come and go.
    remote: Vec<Arc<dyn Tool>>,
    registry: Arc<Registry>,
}

impl Fitted {
    /// Whether it is what a session with these settings would be fitted out with.
    fn fits(
        &self,
        (settings, agent): Dressed<'_>,
        workspace: &Workspace,
        (remote, skills): (&[Arc<dyn Tool>], bool),
    ) -> bool {
        let same =
            |(one, other): (&Arc<dyn Tool>, &Arc<dyn Tool>)| std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other));
        self.directory == settings.working_directory
            && self.workspace == *workspace
            && self.tools == settings.tools
            && self.without_tools == settings.without_tools
            && self.agent.as_ref() == agent
            && self.skills == skills
            && self.remote.len() == remote.len()
            && self.remote.iter().zip(remote).all(same)
    }
}

/// Whose tools are wanted: a session's with these settings, and of its agent.
pub(in crate::app) type Dressed<'a> = (&'a SessionSettings, Option<&'a Arc<AgentDefinition>>);

/// Whether a session has a tool. What its agent alone has not is withheld: a call of it is told why.
fn is_had((settings, agent): Dressed<'_>, definition: &ToolDefinition, registry: &Registry) -> bool {
    if !settings.has_tool(&definition.name) {
        return false;
    }
    let Some(why) = agent.and_then(|agent| why_not(agent, definition)) else { return true };
    registry.withhold(&definition.name, &why);
    false
}

impl Wardrobe {
    /// The tools of a session with these settings.
    pub(in crate::app) async fn registry(&self, session: &SessionId, (settings, agent): Dressed<'_>) -> Arc<Registry> {
        let all = settings.tools.is_none() && settings.without_tools.is_empty() && agent.is_none();
        let wants = |prefix: &str| settings.tools.as_ref().is_none_or(|n| n.iter().any(|n| n.starts_with(prefix)));
        let remote = self.servers.tools((session, &settings.working_directory), wants).await;
        let skill = self.skill_tool(settings, agent.map(Arc::as_ref)).await;
        let Some(given) = &self.given else { return self.own_registry((settings, agent), (remote, skill)) };
        let mut more = self.memory_tools(&settings.working_directory);
        more.extend(skill.filter(|skill| given.get(&skill.definition().name).is_none()));
        if all && more.is_empty() && remote.is_empty() {
            return Arc::clone(given);
        }
        let mut registry = Registry::default();
        registry.default_timeout_ms = given.default_timeout_ms;
        registry.output_chars_max = given.output_chars_max;
        let wanted = |definition: &ToolDefinition| is_had((settings, agent), definition, &registry);
        let names = given.names().into_iter();
        let theirs: HashSet<String> =
            names.filter(|name| given.get(name).is_some_and(|tool| wanted(tool.definition()))).collect();
        registry.adopt(given, |name| theirs.contains(name));
        registry.extend(more.into_iter().filter(|tool| wanted(tool.definition())));
        self.add_remote(&registry, remote.into_iter().filter(|tool| wanted(tool.definition())).collect());
        Arc::new(registry)
    }

    /// Adds the tools of tool servers; where they are many, without telling models of each.
    fn add_remote(&self, registry: &Registry, remote: Vec<Arc<dyn Tool>>) {
        let bytes: usize = remote.iter().map(|tool| told_bytes(tool.definition())).sum();
        if bytes <= self.told_bytes_max { registry.extend(remote) } else { registry.defer(remote) }
    }

    /// Our own tools, and those of the tool servers: the same again where a session is set as one before it was.
    fn own_registry(
        &self,
        (settings, agent): Dressed<'_>,
        (remote, skill): (Vec<Arc<dyn Tool>>, Option<Arc<dyn Tool>>),
    ) -> Arc<Registry> {
        let registry = Registry::default();
        let wanted = |tool: &Arc<dyn Tool>| is_had((settings, agent), tool.definition(), &registry);
        let workspace = self.held_workspace(settings);
        let workspace = workspace.inspect_err(|problem| {
            let directory = settings.working_directory.display();
            tracing::warn!(%directory, problem, "a session has no host tools");
        });
        let mut fitted = self.fitted.lock();
        if let Ok(workspace) = &workspace {
            if let Some(at) =
                fitted.iter().position(|one| one.fits((settings, agent), workspace, (&remote, skill.is_some())))
                && let Some(found) = fitted.remove(at)
            {
                let registry = Arc::clone(&found.registry);
                fitted.push_front(found);
                return registry;
            }
            registry.extend(host_tools(workspace.clone(), &self.sandbox).into_iter().filter(wanted));
        }
        let skills = skill.is_some();
        registry.extend(self.memory_tools(&settings.working_directory).into_iter().chain(skill).filter(wanted));
        self.add_remote(&registry, remote.iter().filter(|tool| wanted(tool)).cloned().collect());
        let registry = Arc::new(registry);
        if let Ok(workspace) = workspace {
            fitted.truncate(limit::FITTED_MAX - 1);
            fitted.push_front(Fitted {
                directory: settings.working_directory.clone(),
                workspace,
                tools: settings.tools.clone(),
                without_tools: settings.without_tools.clone(),
                agent: agent.cloned(),
                skills,
                remote,
                registry: Arc::clone(&registry),
            });
        }
        registry
    }
}
