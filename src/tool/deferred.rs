//! Tools that models are not told of one by one, because there are too many: two tools of ours find and call them.
//!
//! What a model is told is short and stays the same as long as the tools do, so that what a provider keeps of a prompt stays good:
//! what was found stands in the conversation and nowhere else. A call goes by the tool's own name everywhere but before the model:
//! hooks, rules, events and figures know nothing of the way round.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{Arguments, BoxFuture, Tool, ToolContext, ToolError, ToolOutput};
use crate::base::{limit, text};
use crate::protocol::{Message, ToolAnnotations, ToolCallRequest, ToolCategory, ToolDefinition};

/// Finds tools.
pub const SEARCH_TOOL: &str = "mcp_tool_search";
/// Calls one.
pub const CALL_TOOL: &str = "mcp_tool_call";

/// About how long a definition is as it is told, in bytes. Cheap: nothing is written.
pub fn told_bytes(definition: &ToolDefinition) -> usize {
    fn size(value: &Value) -> usize {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => 5,
            Value::String(text) => text.len() + 2,
            Value::Array(values) => values.iter().map(|value| size(value) + 1).sum::<usize>() + 2,
            Value::Object(members) => {
                members.iter().map(|(name, value)| name.len() + size(value) + 4).sum::<usize>() + 2
            }
        }
    }
    let parameters: usize = definition.parameters.iter().map(|(name, value)| name.len() + size(value) + 4).sum();
    definition.name.len() + definition.description.len() + parameters + 40
}

/// The two tools for these tools.
pub(super) fn deferring(tools: &[Arc<dyn Tool>]) -> [Arc<dyn Tool>; 2] {
    let tools: Arc<[Arc<dyn Tool>]> = tools.into();
    [Arc::new(Search::of(Arc::clone(&tools))), Arc::new(Call::default())]
}

/// The call that is meant by a call of [`CALL_TOOL`]: of which tool, with what. None: it is none, or says neither.
pub(super) fn meant(arguments: &Arguments) -> Option<(&str, Arguments)> {
    let name = arguments.get("name")?.as_str()?;
    let given = match arguments.get("arguments") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(given)) => given.clone(),
        // Some models write it down once more.
        Some(Value::String(text)) if text.trim().is_empty() => Map::new(),
        Some(Value::String(text)) => serde_json::from_str(text).ok()?,
        Some(_) => return None,
    };
    Some((name, given))
}

/// The conversation as the model said it: calls of tools that it knows by the way round. `deferred`: whether a tool of this name is
/// one of them.
pub(super) fn retell(messages: &mut [Message], deferred: impl Fn(&str) -> bool) {
    for message in messages {
        match message {
            Message::Assistant { calls, .. } => {
                for call in calls.iter_mut().filter(|call| deferred(&call.name)) {
                    let (name, given) = (std::mem::take(&mut call.name), std::mem::take(&mut call.arguments));
                    call.name = CALL_TOOL.to_owned();
                    call.arguments = Map::from_iter([("name".into(), name.into()), ("arguments".into(), given.into())]);
                }
            }
            Message::ToolResult { name, .. } if deferred(name) => *name = CALL_TOOL.to_owned(),
            Message::User(_) | Message::ToolResult { .. } => {}
        }
    }
}

/// Whether a conversation has such a call.
pub(super) fn has_call(messages: &[Message], deferred: impl Fn(&str) -> bool) -> bool {
    messages.iter().any(|message| match message {
        Message::Assistant { calls, .. } => calls.iter().any(|call| deferred(&call.name)),
        Message::User(_) | Message::ToolResult { .. } => false,
    })
}

/// `mcp:<server>/<tool>` in its two parts.
fn parts(name: &str) -> (&str, &str) {
    name.strip_prefix("mcp:").unwrap_or(name).split_once('/').unwrap_or(("", name))
}

/// The servers with how many tools they have, and some of their names, within a limit of bytes.
fn index(tools: &[Arc<dyn Tool>]) -> String {
    let mut servers: Vec<(&str, Vec<&str>)> = Vec::new();
    for tool in tools {
        let (server, name) = parts(&tool.definition().name);
        match servers.iter_mut().find(|(other, _)| *other == server) {
            Some((_, names)) => names.push(name),
            None => servers.push((server, vec![name])),
        }
    }
    let room = limit::DEFERRED_INDEX_BYTES / servers.len().max(1);
    let mut told = String::new();
    for (at, (server, names)) in servers.iter().enumerate() {
        if told.len() > limit::DEFERRED_INDEX_BYTES {
            // Writing to a text does not fail.
            let _ = write!(told, "; and {} more servers", servers.len() - at);
            break;
        }
        let start = told.len();
        let _ = write!(told, "{}{server} ({} tools)", if at == 0 { "" } else { "; " }, names.len());
        for (at, name) in names.iter().enumerate() {
            if told.len() - start + name.len() > room {
                told.push_str(" …");
                break;
            }
            told.push_str(if at == 0 { ": " } else { ", " });
            told.push_str(name);
        }
    }
    told
}

/// [`SEARCH_TOOL`].
struct Search {
    definition: ToolDefinition,
    tools: Arc<[Arc<dyn Tool>]>,
}

impl Search {
    fn of(tools: Arc<[Arc<dyn Tool>]>) -> Self {
        let description = format!(
            "Finds tools of tool servers, with their arguments; call one with {CALL_TOOL}. Servers: {}.",
            index(&tools)
        );
        let parameters = object(json!({ "type": "object", "properties": {
            "query": { "type": "string", "description": "Words about what it does, or its name; empty: all names." },
            "server": { "type": "string" },
        }, "required": ["query"] }));
        let definition = ToolDefinition {
            category: Some(ToolCategory::Read),
            annotations: Some(ToolAnnotations { read_only: Some(true), ..ToolAnnotations::default() }),
            ..ToolDefinition::new(SEARCH_TOOL, description, parameters)
        };
        Self { definition, tools }
    }

    fn find(&self, query: &str, server: Option<&str>) -> String {
        let of_server = |tool: &&Arc<dyn Tool>| {
            server.is_none_or(|server| parts(&tool.definition().name).0.eq_ignore_ascii_case(server))
        };
        let all: Vec<&Arc<dyn Tool>> = self.tools.iter().filter(of_server).collect();
        let words: Vec<String> = words(query);
        if words.is_empty() {
            return listed(&all, "There are no such tools.");
        }
        let mut found: Vec<(usize, &Arc<dyn Tool>)> = all
            .iter()
            .map(|tool| (score(tool.definition(), (query.trim(), &words)), *tool))
            .filter(|(score, _)| *score > 0)
            .collect();
        // Those that fit alike stay in their order.
        found.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
        if found.first().is_some_and(|(score, _)| *score == usize::MAX) {
            found.retain(|(score, _)| *score == usize::MAX);
        }
        let found: Vec<&Arc<dyn Tool>> = found.into_iter().map(|(_, tool)| tool).collect();
        let mut told = String::new();
        let mut shown = 0;
        for tool in &found {
            let definition = tool.definition();
            let description = text::head(&definition.description, limit::DEFERRED_DESCRIPTION_BYTES);
            let arguments = Value::Object(definition.parameters.clone());
            let one = format!("{}\n{description}\narguments: {arguments}\n\n", definition.name);
            if shown == limit::DEFERRED_FOUND_MAX || (shown > 0 && told.len() + one.len() > limit::DEFERRED_FOUND_BYTES)
            {
                break;
            }
            told.push_str(&one);
            shown += 1;
        }
        if shown == found.len() && shown > 0 {
            return told.trim_end().to_owned();
        }
        told.push_str(&listed(&found[shown..], "No tool fits these words; with an empty query all names are told."));
        told
    }
}

/// Names alone, within a limit.
fn listed(tools: &[&Arc<dyn Tool>], none: &str) -> String {
    if tools.is_empty() {
        return none.to_owned();
    }
    let mut told = String::from("Others, by name:");
    for (at, tool) in tools.iter().enumerate() {
        if told.len() > limit::DEFERRED_NAMES_BYTES {
            let _ = write!(told, "\n(and {} more)", tools.len() - at);
            break;
        }
        let _ = write!(told, "\n{}", tool.definition().name);
    }
    told
}

fn words(query: &str) -> Vec<String> {
    let split = |c: char| !c.is_alphanumeric();
    query.split(split).filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
}

/// How well a tool fits: its name counts more than its description, the whole name most.
fn score(definition: &ToolDefinition, (query, words): (&str, &[String])) -> usize {
    if definition.name == query || parts(&definition.name).1 == query {
        return usize::MAX;
    }
    let (name, description) = (definition.name.to_lowercase(), definition.description.to_lowercase());
    words.iter().map(|word| 3 * usize::from(name.contains(word)) + usize::from(description.contains(word))).sum()
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

impl Tool for Search {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn run<'a>(&'a self, arguments: Arguments, _: &'a ToolContext) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        let given = |name: &str| arguments.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let found = self.find(given("query").unwrap_or_default(), given("server"));
        Box::pin(std::future::ready(Ok(found.into())))
    }
}

/// [`CALL_TOOL`], of which only the calls arrive here that mean no tool.
struct Call {
    definition: ToolDefinition,
}

impl Default for Call {
    fn default() -> Self {
        let parameters = object(json!({ "type": "object", "properties": {
            "name": { "type": "string", "description": "As found, such as mcp:server/tool." },
            "arguments": { "type": "object" },
        }, "required": ["name"] }));
        let description = format!("Calls a tool that {SEARCH_TOOL} found.");
        Self {
            definition: ToolDefinition {
                category: Some(ToolCategory::Read),
                ..ToolDefinition::new(CALL_TOOL, description, parameters)
            },
        }
    }
}

impl Tool for Call {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn run<'a>(&'a self, arguments: Arguments, _: &'a ToolContext) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        let named = arguments.get("name").and_then(Value::as_str).unwrap_or_default();
        let named = text::head(named, limit::MCP_TOOL_NAME_CHARS_MAX).to_owned();
        let why = format!(
            "expected the name of a tool that {SEARCH_TOOL} finds and its arguments as an object, got \"{named}\""
        );
        Box::pin(std::future::ready(Err(ToolError::BadArguments(why))))
    }
}

/// What a call is called by models that spell names in their own way, for a tool of this name.
pub(super) fn is_spelt(given: &str, name: &str) -> bool {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    let squeezed = |text: &str| {
        let mut squeezed = String::with_capacity(text.len());
        text.chars().map(plain).for_each(|c| {
            if c != '_' || !squeezed.ends_with('_') {
                squeezed.push(c);
            }
        });
        squeezed
    };
    squeezed(given) == squeezed(name)
}

/// Makes the call that is meant of one that goes the way round.
pub(super) fn unwrap(request: &mut ToolCallRequest, find: impl Fn(&str) -> Option<String>) {
    let call = (request.name == CALL_TOOL).then(|| meant(&request.arguments)).flatten();
    if let Some((name, given)) = call
        && let Some(name) = find(name)
    {
        (request.name, request.arguments) = (name, given);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::Registry;
    use crate::tool::function;

    fn tool(name: &str, description: &str) -> Arc<dyn Tool> {
        let parameters = object(json!({ "type": "object", "properties": { "text": { "type": "string" } } }));
        let definition = ToolDefinition::new(name, description, parameters);
        function(definition, |_: Arguments, _: ToolContext| async { Ok(ToolOutput::default()) })
    }

    fn many() -> Vec<Arc<dyn Tool>> {
        let about = |n: usize| if n == 7 { "Opens an issue in a repository." } else { "Does something." };
        (0..500).map(|n| tool(&format!("mcp:server{}/tool_number_{n}", n % 5), about(n))).collect()
    }

    fn deferred() -> Registry {
        let registry = Registry::default();
        registry.extend([tool("ours", "Ours.")]);
        registry.defer(many());
        registry
    }

    #[test]
    fn five_hundred_tools_are_told_in_two_thousand_bytes() {
        let registry = deferred();
        let told = registry.definitions();
        let names: Vec<&str> = told.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["ours", SEARCH_TOOL, CALL_TOOL]);
        let wire: usize = told[1..]
            .iter()
            .map(|one| json!({ "type": "function", "function": { "name": one.name, "description": one.description, "parameters": one.parameters } }))
            .map(|one| one.to_string().len() + 1)
            .sum();
        assert!(wire <= 2_000, "{wire}");
        assert!(
            told[1].description.contains("server0 (100 tools): tool_number_0, ")
                && told[1].description.contains("server4 (100 tools)")
        );
        assert_eq!(registry.definitions(), deferred().definitions(), "the same tools are told in the same words");
        let whole: usize = many().iter().map(|tool| told_bytes(tool.definition())).sum();
        assert!((50_000..100_000).contains(&whole), "{whole}");
    }

    #[test]
    fn a_call_that_goes_the_way_round_is_the_tools_own_and_is_told_as_it_was_made() {
        let registry = deferred();
        let call = |name: &str, arguments: Value| ToolCallRequest {
            id: "1".into(),
            name: name.into(),
            arguments: object(arguments),
        };
        #[rustfmt::skip]
        let table = [
            (json!({ "name": "mcp:server1/tool_number_1", "arguments": { "text": "a" } }), "mcp:server1/tool_number_1", json!({ "text": "a" })),
            (json!({ "name": "mcp__server1__tool_number_1", "arguments": "{\"text\":\"a\"}" }), "mcp:server1/tool_number_1", json!({ "text": "a" })),
            (json!({ "name": "mcp:server1/tool_number_1" }), "mcp:server1/tool_number_1", json!({})),
            (json!({ "name": "mcp:server1/none" }), CALL_TOOL, json!({ "name": "mcp:server1/none" })),
            (json!({ "name": "ours", "arguments": {} }), CALL_TOOL, json!({ "name": "ours", "arguments": {} })),
            (json!({ "name": "mcp:server1/tool_number_1", "arguments": 5 }), CALL_TOOL, json!({ "name": "mcp:server1/tool_number_1", "arguments": 5 })),
        ];
        for (given, name, arguments) in table {
            let mut request = call(CALL_TOOL, given.clone());
            registry.unwrap_call(&mut request);
            assert_eq!((request.name.as_str(), Value::from(request.arguments)), (name, arguments), "{given}");
        }
        let real = call("mcp:server1/tool_number_1", json!({ "text": "a" }));
        let result = |name: &str| Message::ToolResult {
            call_id: "1".into(),
            name: name.into(),
            output: "o".into(),
            is_error: false,
            parts: vec![],
        };
        let mut messages = vec![
            Message::assistant("", vec![real.clone(), call("ours", json!({}))]),
            result(&real.name),
            result("ours"),
        ];
        let (by, retold) = (registry.retells(), messages.iter().filter(|one| registry.is_retold(one)).count());
        assert!(by.is_some() && by == deferred().retells() && retold == 1);
        messages.iter_mut().for_each(|message| registry.retell(message));
        let round = call(CALL_TOOL, json!({ "name": real.name, "arguments": { "text": "a" } }));
        assert_eq!(
            messages,
            [Message::assistant("", vec![round, call("ours", json!({}))]), result(CALL_TOOL), result("ours")]
        );
        assert!(!messages.iter().any(|one| registry.is_retold(one)));
        assert_eq!(Registry::default().retells(), None);
    }

    #[test]
    fn tools_are_found_by_name_and_by_words() {
        let search = Search::of(many().into());
        let first = |query: &str, server: Option<&str>| {
            search.find(query, server).lines().next().unwrap_or_default().to_owned()
        };
        #[rustfmt::skip]
        let table = [
            ("open an issue", None, "mcp:server2/tool_number_7"),
            ("mcp:server3/tool_number_103", None, "mcp:server3/tool_number_103"),
            ("tool_number_104", Some("server4"), "mcp:server4/tool_number_104"),
            ("", Some("server4"), "Others, by name:"),
            ("zebra", None, "No tool fits these words; with an empty query all names are told."),
            ("tool", Some("none"), "No tool fits these words; with an empty query all names are told."),
        ];
        for (query, server, want) in table {
            assert_eq!(first(query, server), want, "{query}");
        }
        let found = search.find("tool number", None);
        assert!(
            found.len() < limit::DEFERRED_FOUND_BYTES + limit::DEFERRED_NAMES_BYTES + 200 && found.contains("(and "),
            "{}",
            found.len()
        );
        assert!(found.contains(r#"arguments: {"type":"object","properties":{"text":{"type":"string"}}}"#));
    }
}
