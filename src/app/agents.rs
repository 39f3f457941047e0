//! The agents that a session can name: our own loop, and the configured external ones.

use std::path::Path;

use crate::config::{AcpServer, find_program};
use crate::protocol::AgentView;

/// The name of our own loop.
pub(super) const OWN_AGENT: &str = "simse";

/// All agents, our own first. Looks for programs on the disk and starts none.
pub(super) fn list(servers: &[AcpServer]) -> Vec<AgentView> {
    let own = AgentView {
        name: OWN_AGENT.into(),
        kind: "loop".into(),
        description: "Answers with the session's model and tools.".into(),
        available: true,
        reason: None,
    };
    std::iter::once(own).chain(servers.iter().map(external)).collect()
}

fn external(server: &AcpServer) -> AgentView {
    let reason = unavailable(server);
    AgentView {
        name: server.name.clone(),
        kind: "acp".into(),
        description: format!("The ACP agent `{}`.", server.command),
        available: false,
        reason: Some(reason),
    }
}

/// Why a session cannot be answered by this agent.
pub(super) fn unavailable(server: &AcpServer) -> String {
    let directory = server.cwd.as_deref().unwrap_or_else(|| Path::new("."));
    if find_program(&server.command, directory).is_none() {
        return format!("the program `{}` is not installed", server.command);
    }
    "this version lists ACP agents and does not drive them yet".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(command: &str) -> AcpServer {
        AcpServer {
            name: "a".into(),
            command: command.into(),
            args: Vec::new(),
            cwd: None,
            env: std::collections::BTreeMap::new(),
            default_agent: None,
            timeout_ms: None,
            permission_policy: None,
        }
    }

    #[test]
    fn an_agent_says_why_it_cannot_be_used() {
        assert!(unavailable(&server("/no/such/agent")).contains("not installed"));
        assert!(unavailable(&server("sh")).contains("does not drive them yet"));
    }

    #[test]
    fn our_own_comes_first_and_can_be_used() {
        let agents = list(&[server("sh")]);
        let names: Vec<(&str, bool)> = agents.iter().map(|a| (a.name.as_str(), a.available)).collect();
        assert_eq!(names, [("simse", true), ("a", false)]);
    }
}
