//! A server's list of tools, as definitions: bounded, and without what cannot be one.
//!
//! One tool that cannot be used does not cost the others: it is left out, and the log says why.

use std::sync::Arc;

use rmcp::model::{ClientRequest, ListToolsRequest, PaginatedRequestParams, ServerResult, Tool};
use rmcp::{Peer, RoleClient, ServiceError};
use serde_json::{Map, Value, json};

use super::drawer::Wanted;
use super::explain::request_failed;
use super::login::wanted_by;
use crate::base::limit;
use crate::protocol::{ToolAnnotations, ToolCategory, ToolDefinition};
use crate::tool::check_output_schema;

/// A tool of a server.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Listed {
    /// Its name there.
    pub(super) name: String,
    /// Its definition here, named `mcp:<server>/<tool>`.
    pub(super) definition: ToolDefinition,
    /// What its structured content is held to. None: it names no form, or one that we cannot hold an answer to.
    pub(super) output: Option<Arc<Map<String, Value>>>,
}

/// Why there is no list.
#[derive(Debug)]
pub(super) enum Unlisted {
    /// The server wants a login.
    Login(Wanted),
    /// Another reason.
    Failed(String),
}

impl std::fmt::Display for Unlisted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Login(_) => f.write_str("it wants a login"),
            Self::Failed(why) => f.write_str(why),
        }
    }
}

impl From<ServiceError> for Unlisted {
    fn from(error: ServiceError) -> Self {
        let wanted = match &error {
            ServiceError::TransportSend(failed) => wanted_by(failed.error.as_ref()),
            _ => None,
        };
        wanted.map_or_else(|| Self::Failed(request_failed(&error, None)), Self::Login)
    }
}

/// Asks for all pages of the list.
///
/// # Errors
/// Why the server did not list its tools.
pub(super) async fn list_tools(peer: &Peer<RoleClient>, server: &str) -> Result<Vec<Listed>, Unlisted> {
    let mut listed: Vec<Listed> = Vec::new();
    let mut cursor: Option<String> = None;
    for _ in 0..limit::MCP_PAGES_MAX {
        let params = PaginatedRequestParams::default().with_cursor(cursor.clone());
        let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(params));
        let (tools, next) = page(peer.send_request(request).await?).map_err(Unlisted::Failed)?;
        for tool in tools {
            if listed.len() == limit::MCP_TOOLS_MAX {
                tracing::warn!(
                    server,
                    most = limit::MCP_TOOLS_MAX,
                    "an MCP server has too many tools; the rest is left out"
                );
                return Ok(listed);
            }
            match tool.and_then(|tool| definition(server, &tool)) {
                Ok(one) if listed.iter().any(|other| other.name == one.name) => {
                    tracing::warn!(server, tool = one.name, "an MCP server lists a tool twice; the first counts");
                }
                Ok(one) => listed.push(one),
                Err(reason) => tracing::warn!(server, reason, "a tool of an MCP server is left out"),
            }
        }
        match next.filter(|next| !next.is_empty() && Some(next) != cursor.as_ref()) {
            Some(next) => cursor = Some(next),
            None => return Ok(listed),
        }
    }
    tracing::warn!(
        server,
        most = limit::MCP_PAGES_MAX,
        "the list of an MCP server has too many pages; the rest is left out"
    );
    Ok(listed)
}

/// The tools of a page, each of which may be none, and the next page's cursor.
fn page(result: ServerResult) -> Result<(Vec<Result<Tool, String>>, Option<String>), String> {
    match result {
        ServerResult::ListToolsResult(page) => Ok((page.tools.into_iter().map(Ok).collect(), page.next_cursor)),
        // A page with a tool that is none: the others count.
        ServerResult::CustomResult(page) => {
            let Value::Object(mut page) = page.0 else { return Err("its list of tools is none".into()) };
            let Some(Value::Array(tools)) = page.remove("tools") else {
                return Err("its list of tools is none".into());
            };
            let next = page.get("nextCursor").and_then(Value::as_str).map(str::to_owned);
            let tool = |value: Value| {
                let name = value.get("name").and_then(Value::as_str).unwrap_or("?").to_owned();
                serde_json::from_value(value).map_err(|error| format!("{}: {error}", shown(&name)))
            };
            Ok((tools.into_iter().map(tool).collect(), next))
        }
        _ => Err("its list of tools is none".into()),
    }
}

/// A tool's definition, or why it cannot be used.
fn definition(server: &str, tool: &Tool) -> Result<Listed, String> {
    let name = tool.name.as_ref();
    let bad = |why: &str| format!("{}: {why}", shown(name));
    let length = name.chars().count();
    if !(1..=limit::MCP_TOOL_NAME_CHARS_MAX).contains(&length)
        // A wildcard in a name would be one in every rule about it.
        || name.chars().any(|c| c.is_whitespace() || c.is_control() || matches!(c, '*' | '?'))
    {
        let most = limit::MCP_TOOL_NAME_CHARS_MAX;
        return Err(bad(&format!("expected a name of 1 to {most} characters without blanks, `*` and `?`")));
    }
    let parameters = parameters(&tool.input_schema).map_err(|why| bad(&why))?;
    let hints = tool.annotations.as_ref();
    let title = hints.and_then(|hints| hints.title.as_ref()).or(tool.title.as_ref());
    let annotations = ToolAnnotations {
        title: title.map(|title| clip(title, limit::TITLE_CHARS_MAX)),
        destructive: hints.and_then(|hints| hints.destructive_hint),
        read_only: hints.and_then(|hints| hints.read_only_hint),
    };
    let definition = ToolDefinition {
        name: format!("mcp:{server}/{name}"),
        description: clip(tool.description.as_deref().unwrap_or_default(), limit::MCP_DESCRIPTION_CHARS_MAX),
        parameters,
        category: Some(ToolCategory::Other),
        annotations: (annotations != ToolAnnotations::default()).then_some(annotations),
        timeout_ms: None,
        max_output_chars: None,
    };
    let output = tool.output_schema.clone().filter(|schema| can_be_held(schema));
    Ok(Listed { name: name.to_owned(), definition, output })
}

/// Whether answers can be held to a schema of theirs.
fn can_be_held(schema: &Map<String, Value>) -> bool {
    let small = serde_json::to_string(schema).is_ok_and(|text| text.len() <= limit::OUTPUT_SCHEMA_BYTES_MAX);
    small && check_output_schema("outputSchema", schema).is_ok()
}

/// The schema of the arguments: an object's, in the form that the registry knows as a JSON Schema.
fn parameters(schema: &Map<String, Value>) -> Result<Map<String, Value>, String> {
    match schema.get("type") {
        None => {}
        Some(Value::String(kind)) if kind == "object" => {}
        Some(_) => return Err("expected an input schema of type \"object\"".into()),
    }
    if schema.get("properties").is_some_and(|properties| !properties.is_object()) {
        return Err("expected `properties` of the input schema to be an object".into());
    }
    let bytes = serde_json::to_string(schema).map_or(usize::MAX, |text| text.len());
    if bytes > limit::MCP_SCHEMA_BYTES_MAX {
        let most = limit::MCP_SCHEMA_BYTES_MAX;
        return Err(format!("expected an input schema of at most {most} bytes, got {bytes}"));
    }
    let mut parameters = Map::from_iter([("type".to_owned(), json!("object"))]);
    // Which dialect it is says nothing to a model, and some models' servers refuse the word.
    parameters.extend(schema.iter().filter(|(word, _)| *word != "$schema").map(|(k, v)| (k.clone(), v.clone())));
    if !parameters.contains_key("properties") {
        parameters.insert("properties".into(), json!({}));
    }
    Ok(parameters)
}

fn clip(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A name as a log may show it.
fn shown(name: &str) -> String {
    format!("\"{}\"", clip(name, 80).escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defined(tool: Value) -> Result<Value, String> {
        let tool: Tool = serde_json::from_value(tool).map_err(|error| error.to_string())?;
        Ok(serde_json::to_value(definition("s", &tool)?.definition).unwrap())
    }

    #[test]
    fn a_tool_becomes_a_definition() {
        let tool = json!({
            "name": "x/y", "title": "From outside", "description": "Does.",
            "inputSchema": { "$schema": "s", "type": "object", "properties": { "a": { "type": "string" } }, "required": ["a"] },
            "annotations": { "title": "Inside", "readOnlyHint": true, "destructiveHint": false, "openWorldHint": true },
        });
        let want = json!({
            "name": "mcp:s/x/y", "description": "Does.",
            "parameters": { "type": "object", "properties": { "a": { "type": "string" } }, "required": ["a"] },
            "category": "other", "annotations": { "title": "Inside", "destructive": false, "readOnly": true },
        });
        assert_eq!(defined(tool), Ok(want));
        let plain = json!({ "name": "t", "inputSchema": {} });
        let want = json!({
            "name": "mcp:s/t", "description": "", "parameters": { "type": "object", "properties": {} }, "category": "other",
        });
        assert_eq!(defined(plain), Ok(want));
    }

    #[test]
    fn what_cannot_be_a_tool() {
        let schema = json!({ "type": "object" });
        #[rustfmt::skip]
        let table = [
            (json!({ "name": "", "inputSchema": schema }), "name of 1 to"),
            (json!({ "name": "a b", "inputSchema": schema }), "without blanks"),
            (json!({ "name": "*", "inputSchema": schema }), "without blanks"),
            (json!({ "name": "n".repeat(129), "inputSchema": schema }), "name of 1 to"),
            (json!({ "name": "a", "inputSchema": { "type": "string" } }), "type \"object\""),
            (json!({ "name": "a", "inputSchema": { "type": ["object"] } }), "type \"object\""),
            (json!({ "name": "a", "inputSchema": { "properties": [] } }), "`properties`"),
            (json!({ "name": "a", "inputSchema": { "description": "d".repeat(70_000) } }), "at most 65536 bytes"),
        ];
        for (tool, want) in table {
            let reason = defined(tool).unwrap_err();
            assert!(reason.contains(want) && reason.len() < 300, "{reason}");
        }
    }

    #[test]
    fn a_page_with_a_tool_that_is_none_has_the_others() {
        let good = json!({ "name": "good", "inputSchema": {} });
        let text = json!({ "tools": [good, { "name": "bad" }, 5], "nextCursor": "c" }).to_string();
        let (tools, next) = page(serde_json::from_str(&text).unwrap()).unwrap();
        let names: Vec<Result<String, ()>> =
            tools.into_iter().map(|t| t.map(|t| t.name.into_owned()).map_err(drop)).collect();
        assert_eq!((names, next.as_deref()), (vec![Ok("good".into()), Err(()), Err(())], Some("c")));
    }

    #[test]
    fn long_descriptions_are_cut() {
        let tool = json!({ "name": "t", "description": "ä".repeat(9_000), "inputSchema": {} });
        let description = defined(tool).unwrap()["description"].as_str().unwrap().to_owned();
        assert_eq!(description.chars().count(), limit::MCP_DESCRIPTION_CHARS_MAX + 1);
    }
}
