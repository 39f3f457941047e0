//! What an agent's session gets of tools that are not the agent's: the session's MCP servers, which it connects itself where they can
//! be told in the protocol, and one server of ours with the tools of the session that the agent is let call (docs/adr/0100).
//!
//! Invariant: what cannot be told to the agent (a login, a working directory, a form that it does not take) is not told by halves: the
//! tools of such a server are among ours.

use agent_client_protocol::v1::schema as acp;

use super::AcpOffer;
use super::door::Room;
use crate::config::{AcpMcpServers, AcpTools, McpServer, McpTransport, TOOL_DOOR, TOOL_KEY, ToolBridge, find_program};
use crate::model::AgentRequest;
use crate::protocol::ToolDefinition;

/// What our own server is called.
pub(super) const OUR_NAME: &str = "simse";
/// And where a server of the session is called so.
pub(super) const OUR_OTHER_NAME: &str = "simse-tools";
/// What the names of tool servers' tools begin with.
const REMOTE: &str = "mcp:";

/// The servers that the agent connects itself, and the tools that it is let call through us.
pub(super) fn shares(
    asked: &AgentRequest,
    offer: &AcpOffer,
    takes_http: bool,
) -> (Vec<acp::McpServer>, Vec<ToolDefinition>) {
    let mut direct = Vec::new();
    if offer.mcp_servers == AcpMcpServers::Direct {
        direct.extend(asked.servers.iter().filter_map(|server| Some((server, told(server, takes_http)?))));
    }
    let connects = |tool: &str| {
        let server = tool.strip_prefix(REMOTE).and_then(|rest| rest.split_once('/')).map(|(server, _)| server);
        server.is_some_and(|server| direct.iter().any(|(one, _)| one.name == server))
    };
    let may = |tool: &ToolDefinition| {
        let (name, remote) = (&tool.name, tool.name.starts_with(REMOTE));
        let lets = match &offer.tools {
            AcpTools::None => false,
            AcpTools::Own => !offer.theirs.contains(name),
            AcpTools::All => true,
            AcpTools::Named(names) => names.contains(name) || remote && offer.mcp_servers == AcpMcpServers::Through,
        };
        lets && !(remote && (offer.mcp_servers == AcpMcpServers::None || connects(name)))
    };
    let tools = if offer.bridge.is_some() {
        asked.tools.iter().filter(|tool| may(tool)).cloned().collect()
    } else {
        Vec::new()
    };
    (direct.into_iter().map(|(_, told)| told).collect(), tools)
}

/// A server in the protocol's words. None: it cannot be told.
fn told(server: &McpServer, takes_http: bool) -> Option<acp::McpServer> {
    match &server.transport {
        McpTransport::Stdio { command, args, env, cwd: None } => {
            // Whoever starts it may look elsewhere than we do.
            let program = find_program(command, std::path::Path::new("/")).unwrap_or_else(|| command.into());
            let env = env.iter().map(|(name, value)| acp::EnvVariable::new(name, value)).collect();
            let told = acp::McpServerStdio::new(&server.name, program).args(args.clone()).env(env);
            Some(acp::McpServer::Stdio(told))
        }
        McpTransport::Http { url, headers, oauth: None } if takes_http => {
            let headers = headers.iter().map(|(name, value)| acp::HttpHeader::new(name, value)).collect();
            Some(acp::McpServer::Http(acp::McpServerHttp::new(&server.name, url).headers(headers)))
        }
        McpTransport::Stdio { .. } | McpTransport::Http { .. } => None,
    }
}

/// Our own server, as an agent that has these others starts it.
pub(super) fn ours(bridge: &ToolBridge, room: &Room, others: &[acp::McpServer]) -> acp::McpServer {
    let name = |server: &acp::McpServer| match server {
        acp::McpServer::Stdio(one) => one.name.clone(),
        acp::McpServer::Http(one) => one.name.clone(),
        _ => String::new(),
    };
    let taken = others.iter().any(|other| name(other) == OUR_NAME);
    let env = vec![acp::EnvVariable::new(TOOL_DOOR, room.door()), acp::EnvVariable::new(TOOL_KEY, room.key())];
    let told = acp::McpServerStdio::new(if taken { OUR_OTHER_NAME } else { OUR_NAME }, &bridge.program);
    acp::McpServer::Stdio(told.args(bridge.args.clone()).env(env))
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    fn server(entry: serde_json::Value) -> McpServer {
        serde_json::from_value(entry).expect("an entry")
    }

    fn offer(tools: AcpTools, mcp_servers: AcpMcpServers) -> AcpOffer {
        let bridge = Some(ToolBridge { program: "/simse".into(), args: Vec::new() });
        AcpOffer { tools, mcp_servers, theirs: vec!["bash".to_owned()].into(), bridge }
    }

    #[test]
    fn an_agent_gets_what_it_can_connect_and_the_rest_through_us() {
        let servers = vec![
            server(json!({ "name": "plain", "command": "/bin/x", "args": ["a"], "env": { "K": "v" } })),
            server(json!({ "name": "placed", "command": "/bin/x", "cwd": "/tmp" })),
            server(json!({ "name": "web", "url": "http://127.0.0.1/m", "headers": { "A": "b" } })),
            server(json!({ "name": "login", "url": "http://127.0.0.1/m", "oauth": {} })),
        ];
        let names = ["bash", "notify", "mcp:plain/t", "mcp:placed/t", "mcp:web/t", "mcp:login/t"];
        let tools: Vec<ToolDefinition> = names.iter().map(|name| ToolDefinition::new(*name, "d", Map::new())).collect();
        let asked = AgentRequest { servers: servers.into(), tools: tools.into(), ..AgentRequest::default() };
        let named = AcpTools::Named(vec!["bash".to_owned()]);
        use AcpMcpServers::{Direct, None as Not, Through};
        #[rustfmt::skip]
        let table = [
            (AcpTools::Own, Direct, true, 2, vec!["notify", "mcp:placed/t", "mcp:login/t"]),
            (AcpTools::Own, Direct, false, 1, vec!["notify", "mcp:placed/t", "mcp:web/t", "mcp:login/t"]),
            (AcpTools::Own, Through, true, 0, vec!["notify", "mcp:plain/t", "mcp:placed/t", "mcp:web/t", "mcp:login/t"]),
            (AcpTools::All, Not, true, 0, vec!["bash", "notify"]),
            (AcpTools::None, Direct, true, 2, vec![]),
            (named.clone(), Direct, true, 2, vec!["bash"]),
            (named, Through, true, 0, vec!["bash", "mcp:plain/t", "mcp:placed/t", "mcp:web/t", "mcp:login/t"]),
        ];
        for (tools, handing, http, direct, through) in table {
            let (servers, tools) = shares(&asked, &offer(tools.clone(), handing), http);
            let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
            assert_eq!((servers.len(), names), (direct, through), "{handing:?} {http}");
        }
        let (servers, tools) = shares(&asked, &AcpOffer { bridge: None, ..offer(AcpTools::All, Direct) }, true);
        assert!(tools.is_empty(), "nothing joins it to us");
        let plain = serde_json::to_value(&servers[0]).unwrap();
        assert_eq!(
            plain,
            json!({ "name": "plain", "command": "/bin/x", "args": ["a"], "env": [{ "name": "K", "value": "v" }] })
        );
        let web = serde_json::to_value(&servers[1]).unwrap();
        let want = json!({ "type": "http", "name": "web", "url": "http://127.0.0.1/m", "headers": [{ "name": "A", "value": "b" }] });
        assert_eq!(web, want);
    }
}
