//! A server's resources, as two tools of that server: one lists them and their templates, one reads them.
//!
//! They are there as long as the server offers resources, under names of its own (`mcp:<server>/resources/list`), so that rules about
//! the server are about them as well. A tool that the server itself calls so keeps its name, and ours is left out.

use std::sync::Arc;

use rmcp::model::{
    ClientRequest, ListResourceTemplatesRequest, ListResourcesRequest, PaginatedRequestParams, ReadResourceRequest,
    ReadResourceRequestParams, ServerResult,
};
use serde_json::{Map, Value, json};

use super::content::read_resource;
use super::link::Link;
use super::tool::ask_for;
use crate::base::{limit, text};
use crate::permission::Subject;
use crate::protocol::{ToolAnnotations, ToolCategory, ToolDefinition};
use crate::tool::{Arguments, BoxFuture, Tool, ToolContext, ToolError, ToolOutput};

/// Adds the tools of a server's resources to its others.
pub(super) fn resource_tools(link: &Arc<Link>, tools: &mut Vec<Arc<dyn Tool>>) {
    for does in [Does::List, Does::Read] {
        let tool = ResourceTool { definition: does.definition(link.name()), does, link: Arc::clone(link) };
        if tools.iter().all(|other| other.definition().name != tool.definition.name) {
            tools.push(Arc::new(tool));
        }
    }
}

#[derive(Clone, Copy)]
enum Does {
    List,
    Read,
}

impl Does {
    fn definition(self, server: &str) -> ToolDefinition {
        let (name, description, parameters) = match self {
            Self::List => (
                "list",
                format!(
                    "Lists the resources of the tool server {server}: addresses that can be read, and templates of addresses."
                ),
                json!({ "type": "object", "properties": {
                    "cursor": { "type": "string", "description": "Where the page before said that more follows." },
                } }),
            ),
            Self::Read => (
                "read",
                format!("Reads a resource of the tool server {server}."),
                json!({ "type": "object", "properties": {
                    "uri": { "type": "string", "description": "Its address, as listed or made from a template." },
                }, "required": ["uri"] }),
            ),
        };
        let Value::Object(parameters) = parameters else { unreachable!("it is written as an object") };
        ToolDefinition {
            category: Some(ToolCategory::Other),
            annotations: Some(ToolAnnotations { read_only: Some(true), ..ToolAnnotations::default() }),
            ..ToolDefinition::new(format!("mcp:{server}/resources/{name}"), description, parameters)
        }
    }
}

struct ResourceTool {
    does: Does,
    definition: ToolDefinition,
    link: Arc<Link>,
}

impl ResourceTool {
    async fn call(&self, arguments: &Arguments, context: &ToolContext) -> Result<ToolOutput, ToolError> {
        let given =
            |name: &str| arguments.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
        let output = match self.does {
            Does::List => self.list(given("cursor"), context).await?.into(),
            Does::Read => self.read(given("uri").unwrap_or_default(), context).await?,
        };
        Ok(ToolOutput { text: self.link.told(output.text), ..output })
    }

    async fn read(&self, uri: String, context: &ToolContext) -> Result<ToolOutput, ToolError> {
        let request = ReadResourceRequest::new(ReadResourceRequestParams::new(uri));
        match ask_for(&self.link, ClientRequest::ReadResourceRequest(request), context).await? {
            ServerResult::ReadResourceResult(read) => Ok(read_resource(read.contents)),
            _ => Err(self.strange()),
        }
    }

    /// One page of resources, and on the first one the templates.
    async fn list(&self, cursor: Option<String>, context: &ToolContext) -> Result<String, ToolError> {
        let first = cursor.is_none();
        let params = PaginatedRequestParams::default().with_cursor(cursor);
        let request = ClientRequest::ListResourcesRequest(ListResourcesRequest::with_param(params));
        let ServerResult::ListResourcesResult(page) = ask_for(&self.link, request, context).await? else {
            return Err(self.strange());
        };
        let mut lines: Vec<String> = page
            .resources
            .iter()
            .map(|one| line((&one.uri, &one.name), (one.mime_type.as_deref(), one.description.as_deref())))
            .collect();
        if first {
            lines.extend(self.templates(context).await);
        }
        if lines.is_empty() {
            return Ok("There are no resources.".to_owned());
        }
        if let Some(next) = page.next_cursor.filter(|next| !next.is_empty()) {
            lines.push(format!("(more with the cursor {})", json!(next)));
        }
        Ok(lines.join("\n"))
    }

    /// The templates. Many servers have none, and say so with an error.
    async fn templates(&self, context: &ToolContext) -> Vec<String> {
        let request = ListResourceTemplatesRequest::with_param(PaginatedRequestParams::default());
        let request = ClientRequest::ListResourceTemplatesRequest(request);
        let Ok(ServerResult::ListResourceTemplatesResult(page)) = ask_for(&self.link, request, context).await else {
            return Vec::new();
        };
        let shown = |one: &rmcp::model::ResourceTemplate| {
            let what = (one.mime_type.as_deref(), one.description.as_deref());
            format!("template {}", line((&one.uri_template, &one.name), what))
        };
        page.resource_templates.iter().map(shown).collect()
    }

    fn strange(&self) -> ToolError {
        ToolError::Failed(self.link.sentence("answered with what is no answer to that"))
    }
}

fn line((uri, name): (&str, &str), (kind, description): (Option<&str>, Option<&str>)) -> String {
    let kind = kind.map_or_else(String::new, |kind| format!(" ({kind})"));
    let description = description.unwrap_or_default().lines().next().unwrap_or_default();
    let description = text::head(description, limit::TITLE_CHARS_MAX);
    let description = if description.is_empty() { String::new() } else { format!(": {description}") };
    format!("{uri} \"{name}\"{kind}{description}")
}

impl Tool for ResourceTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn subject(&self, _: &Map<String, Value>) -> Subject {
        Subject::None
    }

    fn run<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move { self.call(&arguments, context).await })
    }
}
