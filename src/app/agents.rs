//! The agents that a session can name: our own loop, and the configured external ones.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::OpenError;
use super::wiring::host_tool_names;
use crate::base::limit;
use crate::base::process::trusted_environment;
use crate::config::{AcpPermissionPolicy, AcpServer, Names, Settings, inherited_environment};
use crate::model::Model;
use crate::protocol::{ACP_PREFIX, AgentDefinition, AgentKind, AgentView, OWN_AGENT};
use crate::provider::{AcpAgent, AcpOffer, AcpOptions, AcpServices, Errands};

/// The tools that read and write files and run commands for agents.
const READING_TOOL: &str = "fs_read";
const WRITING_TOOL: &str = "fs_write";
const RUNNING_TOOL: &str = "bash";

/// The configured agents. Starts none.
pub(super) fn configured(settings: &Settings, tools: Option<&[String]>) -> Result<Vec<Arc<AcpAgent>>, OpenError> {
    let servers = &settings.acp_servers;
    for (at, server) in servers.iter().enumerate() {
        let problem = if server.name == OWN_AGENT {
            format!("a name other than `{OWN_AGENT}`, which is our own agent's")
        } else if servers[..at].iter().any(|earlier| earlier.name == server.name) {
            format!("a name of its own, got `{}` once more", server.name)
        } else {
            continue;
        };
        let field = match settings.names {
            Names::Flags => format!("acp_servers[{at}].name"),
            Names::Members => format!("acpServers.{at}.name"),
        };
        return Err(OpenError::Setting { field, expected: problem });
    }
    let has = |tool: &str| tools.is_none_or(|names| names.iter().any(|name| name == tool));
    let serves = AcpServices { reads: has(READING_TOOL), writes: has(WRITING_TOOL), commands: has(RUNNING_TOOL) };
    let theirs: Arc<[String]> = host_tool_names(settings).into();
    let offer = |server: &AcpServer| AcpOffer {
        tools: server.tools.clone(),
        mcp_servers: server.mcp_servers,
        theirs: Arc::clone(&theirs),
        bridge: settings.tool_bridge.clone(),
    };
    let made = |server| AcpAgent::new(AcpOptions { offer: offer(server), ..options(settings, server, serves) });
    Ok(servers.iter().map(|server| Arc::new(made(server))).collect())
}

/// The same as models: their turns take what is put on the desk of their session meanwhile.
pub(super) fn beside(agents: &[Arc<AcpAgent>], errands: &Errands) -> Vec<Arc<dyn Model>> {
    agents.iter().map(|agent| errands.beside(Arc::clone(agent) as Arc<dyn Model>)).collect()
}

fn options(settings: &Settings, server: &AcpServer, serves: AcpServices) -> AcpOptions {
    AcpOptions {
        policy: server.permission_policy.unwrap_or(AcpPermissionPolicy::Prompt),
        serves: AcpServices {
            reads: serves.reads && server.files,
            writes: serves.writes && server.files,
            commands: serves.commands && server.terminals,
        },
        idle: Some(settings.limits.agent_idle_ms).filter(|idle| *idle > 0).map(Duration::from_millis),
        ..alone(server, &settings.working_directory)
    }
}

/// An agent by itself: it asks about everything, is served nothing, and stays.
fn alone(server: &AcpServer, directory: &Path) -> AcpOptions {
    AcpOptions {
        name: server.name.clone(),
        command: server.command.clone(),
        args: server.args.clone(),
        directory: directory.join(server.cwd.clone().unwrap_or_default()),
        environment: trusted_environment(inherited_environment(), &server.env),
        secrets: server.secrets(),
        default_agent: server.default_agent.clone(),
        timeout: Duration::from_millis(server.timeout_ms.unwrap_or(limit::ACP_TIMEOUT_MS)),
        auth_method: server.auth_method.clone(),
        policy: AcpPermissionPolicy::Prompt,
        exit_grace: Duration::from_millis(server.exit_grace_ms),
        serves: AcpServices::default(),
        offer: AcpOffer::default(),
        idle: None,
    }
}

/// An agent that a program drives without sessions of ours. Starts nothing.
pub fn acp_agent(server: &AcpServer, directory: &Path) -> AcpAgent {
    AcpAgent::new(alone(server, directory))
}

/// All agents, our own first. Looks for programs on the disk and starts none.
pub(super) fn list(servers: &[AcpServer], agents: &[Arc<AcpAgent>]) -> Vec<AgentView> {
    let own = AgentView {
        name: OWN_AGENT.into(),
        kind: "loop".into(),
        description: "Answers with the session's model and tools.".into(),
        available: true,
        ..AgentView::default()
    };
    let external = servers.iter().zip(agents).map(|(server, agent)| {
        let reason = agent.available().err().map(|error| error.to_string());
        AgentView {
            name: server.name.clone(),
            kind: "acp".into(),
            description: format!("The ACP agent `{}`.", server.command),
            available: reason.is_none(),
            reason,
            ..AgentView::default()
        }
    });
    std::iter::once(own).chain(external).collect()
}

/// An agent that a markdown file defines. `reason`: why it cannot be used.
pub(super) fn defined(agent: &AgentDefinition, reason: Option<String>) -> AgentView {
    let kind = match agent.kind {
        AgentKind::Main => "main",
        AgentKind::Subagent => "subagent",
    };
    AgentView {
        name: agent.name.clone(),
        kind: kind.into(),
        description: agent.description.clone(),
        available: reason.is_none(),
        reason,
        source: Some(agent.source),
        path: agent.path.clone(),
        model: agent.model.clone(),
        reasoning: agent.reasoning,
        mode: agent.mode,
        tools: agent.tools.clone(),
        policy: agent.gates.clone(),
        delegate_targets: agent.delegate_targets.clone(),
        max_iterations: agent.max_iterations,
        skills: agent.skills.clone(),
    }
}

/// The id of the model that is the agent of that name.
pub(super) fn model_of(agent: &str) -> String {
    format!("{ACP_PREFIX}{agent}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{AcpMcpServers, AcpTools};

    fn settings(servers: &[(&str, &str)]) -> Settings {
        let server = |(name, command): &(&str, &str)| AcpServer {
            name: (*name).into(),
            command: (*command).into(),
            args: Vec::new(),
            cwd: None,
            env: std::collections::BTreeMap::new(),
            default_agent: None,
            timeout_ms: None,
            permission_policy: None,
            auth_method: None,
            files: true,
            terminals: true,
            tools: AcpTools::default(),
            mcp_servers: AcpMcpServers::default(),
            exit_grace_ms: 0,
        };
        let acp_servers = servers.iter().map(server).collect();
        Settings { acp_servers, ..Settings::new("/".into()) }
    }

    #[test]
    fn our_own_comes_first_and_the_others_say_why_they_cannot_be_used() {
        let settings = settings(&[("a", "sh"), ("b", "/no/such/agent")]);
        let agents = list(&settings.acp_servers, &configured(&settings, None).unwrap());
        let seen: Vec<(&str, bool)> = agents.iter().map(|a| (a.name.as_str(), a.available)).collect();
        assert_eq!(seen, [("simse", true), ("a", true), ("b", false)]);
        assert!(agents[2].reason.as_deref().is_some_and(|reason| reason.contains("`/no/such/agent` is not installed")));
    }

    #[test]
    fn a_name_is_its_own() {
        for servers in [&[("simse", "sh")][..], &[("a", "sh"), ("b", "sh"), ("a", "sh")]] {
            let refused = configured(&settings(servers), None).unwrap_err().to_string();
            assert!(
                refused.starts_with(&format!("acp_servers[{}].name: expected a name", servers.len() - 1)),
                "{refused}"
            );
        }
    }
}
