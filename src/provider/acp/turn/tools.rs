//! Calls of our tools that the agent makes over MCP: they run in its turn, as every call of ours.
//!
//! Agents ask their user before they call a tool that they do not know, and that question comes here first. Who says yes to it has said
//! yes to that call, with those arguments: it is not asked about again when it comes, and what the rules deny stays denied.

use agent_client_protocol::v1::schema as acp;
use serde_json::Value;

use super::super::calls::said_of;
use super::super::door::{Call, wire_name};
use super::super::handed::{OUR_NAME, OUR_OTHER_NAME};
use super::Talk;
use super::serve::{Answered, Granted};
use crate::config::AcpPermissionPolicy;
use crate::model::Leave;
use crate::protocol::ToolDefinition;

/// Longest text of a question that a person sees whole.
const SHOWN_BYTES_MAX: usize = 1 << 10;

impl Talk {
    /// Has a call run. Its result goes back the way that it came.
    pub(super) async fn run_tool(&mut self, call: Call) {
        let Call { name, arguments, stop, reply } = call;
        self.requests += 1;
        let arguments = Value::Object(arguments);
        let asked = self.granted.remove(&Granted::Tool(name.clone(), arguments.to_string()));
        let leave = match self.agent.options.policy {
            AcpPermissionPolicy::AutoApprove => Leave::Full,
            AcpPermissionPolicy::Prompt if asked => Leave::Asked,
            AcpPermissionPolicy::Prompt | AcpPermissionPolicy::Deny => Leave::None,
        };
        let mut host = self.host_call((self.requests, &name), arguments, leave);
        host.stop = stop;
        let result = self.call(host).await;
        self.answers.push(Box::pin(async move {
            if let Some(result) = result.await {
                // The agent may have taken the call back.
                let _ = reply.send(result);
            }
            (0, Answered::Nothing)
        }));
    }

    /// The call of our tool that an agent's question is about, if it is about one.
    pub(super) fn tool_meant(&self, call: &acp::ToolCall) -> Option<Granted> {
        meant(&self.offered, call)
    }
}

fn meant(offered: &[ToolDefinition], call: &acp::ToolCall) -> Option<Granted> {
    // Some tell the arguments as the text that goes with the question, which is shown whole.
    let shown = || said_of(call).filter(|text| text.len() <= SHOWN_BYTES_MAX);
    let told = || shown().and_then(|text| serde_json::from_str::<Value>(&text).ok());
    let input = &call.raw_input.clone().or_else(told)?;
    // Some tell the call within: `{ server, tool, arguments }`.
    let arguments = Some(&input["arguments"]).filter(|inner| inner.is_object() && input["tool"].is_string());
    let arguments = arguments.unwrap_or(input);
    let said =
        [call.title.as_str(), call.name.as_deref().unwrap_or_default(), input["tool"].as_str().unwrap_or_default()];
    let names = |tool: &&ToolDefinition| {
        let name = wire_name(&tool.name);
        said.iter().any(|said| names(said, &name) || in_words(said, &name))
    };
    // Of names that are within one another the longest is meant.
    let tool = offered.iter().filter(names).max_by_key(|tool| tool.name.len())?;
    arguments.is_object().then(|| Granted::Tool(tool.name.clone(), arguments.to_string()))
}

/// Whether a tool of that name is named: alone, or behind the name of its server (`mcp__simse__notify`, `simse.notify`).
fn names(said: &str, name: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-';
    said.match_indices(name).any(|(at, _)| {
        let (before, behind) = (&said[..at], &said[at + name.len()..]);
        let begins = before.ends_with("__") || !before.ends_with(|c: char| is_name(c) || c == '_');
        begins && !behind.starts_with(|c: char| is_name(c) || c == '_')
    })
}

/// Whether a tool of that name is named as a title for people, behind its server: `simse: memory add`.
fn in_words(said: &str, name: &str) -> bool {
    let rest = said.strip_prefix(OUR_OTHER_NAME).or_else(|| said.strip_prefix(OUR_NAME));
    rest.and_then(|rest| rest.strip_prefix(": ")).is_some_and(|words| words == name.replace('_', " "))
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    #[test]
    fn a_question_is_about_our_tool_when_it_names_it_and_its_arguments() {
        let tools = ["notify", "notify_all", "mcp:a/b"].map(|name| ToolDefinition::new(name, "d", Map::new()));
        let args = json!({ "text": "x" });
        let granted = |name: &str| Some(Granted::Tool(name.to_owned(), args.to_string()));
        #[rustfmt::skip]
        let table = [
            ("mcp__simse__notify", Some(args.clone()), granted("notify")),
            ("mcp__simse__notify_all", Some(args.clone()), granted("notify_all")),
            ("notify (simse MCP Server)", Some(args.clone()), granted("notify")),
            ("mcp__simse__mcp_a_b", Some(args.clone()), granted("mcp:a/b")),
            ("Tool: simse/notify", Some(json!({ "server": "simse", "tool": "notify", "arguments": args })), granted("notify")),
            ("notify", None, None),
            ("unnotify", Some(args.clone()), None),
            ("notify-more", Some(args.clone()), None),
            ("bash", Some(args.clone()), None),
            ("simse: notify all", Some(args.clone()), granted("notify_all")),
            ("simse: mcp a b", Some(args.clone()), granted("mcp:a/b")),
            ("other: mcp a b", Some(args.clone()), None),
        ];
        for (title, input, want) in table {
            let mut call = acp::ToolCall::new("1", title);
            call.raw_input = input;
            assert_eq!(meant(&tools, &call), want, "{title}");
        }
        let text = |text: &str| vec![acp::ToolCallContent::from(acp::ContentBlock::from(text))];
        #[rustfmt::skip]
        let table = [
            (text(r#"{"text":"x"}"#), granted("notify")), (text("because"), None), (text("[1]"), None),
            (text(&format!(r#"{{"text":"{}"}}"#, "x".repeat(2_000))), None),
        ];
        for (content, want) in table {
            let call = acp::ToolCall::new("1", "notify (simse MCP Server)").content(content);
            assert_eq!(meant(&tools, &call), want, "{call:?}");
        }
    }
}
