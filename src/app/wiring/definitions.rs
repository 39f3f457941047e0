//! The agents of a working directory, as sessions and doors have them.

use std::path::Path;
use std::sync::Arc;

use super::Wardrobe;
use crate::config::{AgentCatalog, AgentFolders, Settings};
use crate::prompt::directories_up;
use crate::protocol::OWN_AGENT;

/// Finds agents where the settings say; none has the name of our own or of an external one.
pub(super) fn agent_folders(settings: &Settings) -> AgentFolders {
    let external = settings.acp_servers.iter().map(|server| server.name.clone());
    AgentFolders::new(settings.definitions.clone(), external.chain([OWN_AGENT.to_owned()]).collect())
}

impl Wardrobe {
    /// The agents that a session in this directory can name: files that changed count from now on.
    pub(in crate::app) async fn agent_catalog(&self, directory: &Path) -> Arc<AgentCatalog> {
        let (folders, root) = (Arc::clone(&self.agents), self.lore.root_dir().map(Path::to_owned));
        let directory = directory.to_owned();
        let look = move || folders.look(&directories_up(&directory, root.as_deref()));
        // Who cannot be read is told of there; what breaks altogether leaves a session without such agents.
        Arc::new(tokio::task::spawn_blocking(look).await.unwrap_or_default())
    }
}
