//! Which tools a session has: ours or the program's, those of the memory, and those of the tool servers.

use std::path::PathBuf;
use std::sync::Arc;

use super::{Wardrobe, host_tools};
use crate::base::limit;
use crate::base::workspace::Workspace;
use crate::protocol::SessionId;
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
    /// Those of the tool servers, which come and go.
    remote: Vec<Arc<dyn Tool>>,
    registry: Arc<Registry>,
}

impl Fitted {
    /// Whether it is what a session with these settings would be fitted out with.
    fn fits(&self, settings: &SessionSettings, workspace: &Workspace, remote: &[Arc<dyn Tool>]) -> bool {
        let same =
            |(one, other): (&Arc<dyn Tool>, &Arc<dyn Tool>)| std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other));
        self.directory == settings.working_directory
            && self.workspace == *workspace
            && self.tools == settings.tools
            && self.without_tools == settings.without_tools
            && self.remote.len() == remote.len()
            && self.remote.iter().zip(remote).all(same)
    }
}

impl Wardrobe {
    /// The tools of a session with these settings.
    pub(in crate::app) async fn registry(&self, session: &SessionId, settings: &SessionSettings) -> Arc<Registry> {
        let wanted = |name: &str| settings.has_tool(name);
        let all = settings.tools.is_none() && settings.without_tools.is_empty();
        let wants = |prefix: &str| settings.tools.as_ref().is_none_or(|n| n.iter().any(|n| n.starts_with(prefix)));
        let remote = self.servers.tools((session, &settings.working_directory), wants).await;
        let Some(given) = &self.given else { return self.own_registry(settings, remote) };
        let more = self.memory_tools(&settings.working_directory);
        if all && more.is_empty() && remote.is_empty() {
            return Arc::clone(given);
        }
        let mut registry = Registry::default();
        registry.default_timeout_ms = given.default_timeout_ms;
        registry.output_chars_max = given.output_chars_max;
        registry.adopt(given, wanted);
        registry.extend(more.into_iter().filter(|tool| wanted(&tool.definition().name)));
        self.add_remote(&registry, remote.into_iter().filter(|tool| wanted(&tool.definition().name)).collect());
        Arc::new(registry)
    }

    /// Adds the tools of tool servers; where they are many, without telling models of each.
    fn add_remote(&self, registry: &Registry, remote: Vec<Arc<dyn Tool>>) {
        let bytes: usize = remote.iter().map(|tool| told_bytes(tool.definition())).sum();
        if bytes <= self.told_bytes_max { registry.extend(remote) } else { registry.defer(remote) }
    }

    /// Our own tools, and those of the tool servers: the same again where a session is set as one before it was.
    fn own_registry(&self, settings: &SessionSettings, remote: Vec<Arc<dyn Tool>>) -> Arc<Registry> {
        let wanted = |tool: &Arc<dyn Tool>| settings.has_tool(&tool.definition().name);
        let registry = Registry::default();
        let workspace = self.held_workspace(settings);
        let workspace = workspace.inspect_err(|problem| {
            let directory = settings.working_directory.display();
            tracing::warn!(%directory, problem, "a session has no host tools");
        });
        let mut fitted = self.fitted.lock();
        if let Ok(workspace) = &workspace {
            if let Some(at) = fitted.iter().position(|one| one.fits(settings, workspace, &remote))
                && let Some(found) = fitted.remove(at)
            {
                let registry = Arc::clone(&found.registry);
                fitted.push_front(found);
                return registry;
            }
            registry.extend(host_tools(workspace.clone(), &self.sandbox).into_iter().filter(wanted));
        }
        registry.extend(self.memory_tools(&settings.working_directory).into_iter().filter(wanted));
        self.add_remote(&registry, remote.iter().filter(|tool| wanted(tool)).cloned().collect());
        let registry = Arc::new(registry);
        if let Ok(workspace) = workspace {
            fitted.truncate(limit::FITTED_MAX - 1);
            fitted.push_front(Fitted {
                directory: settings.working_directory.clone(),
                workspace,
                tools: settings.tools.clone(),
                without_tools: settings.without_tools.clone(),
                remote,
                registry: Arc::clone(&registry),
            });
        }
        registry
    }
}
