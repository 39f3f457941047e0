//! What MCP clients are told about the tools, and what they are told of a result.

use std::sync::Arc;

use serde_json::{Value, json};

use super::methods::{Outcome, listed, page};
use super::peer::Peer;
use super::sessions;
use super::wire::Request;
use crate::app::Carried;
use crate::protocol::{Part, ToolCallResult, ToolCategory, ToolDefinition};

/// Tools of one page.
const PAGE: usize = 100;

/// The tools whose results always have details; of others, what they have is told without being announced.
const DETAILED: [&str; 7] =
    ["fs_write", "fs_edit", "fs_multi_edit", "apply_patch", "exec_command", "write_stdin", "git_status"];

/// Answers `tools/list`. Who is bound to a session is told what that has.
pub(super) async fn list(peer: &Arc<Peer>, request: &Request) -> Outcome {
    let offered = match &peer.bound {
        Some(session) => peer.app.offered_tools_of(&peer.caller, session).await?,
        None => peer.app.offered_tools(),
    };
    let offered = offered.into_iter().map(|(definition, schema)| told(&definition, schema));
    let all: Vec<Value> = offered.chain(sessions::Tool::ALL.iter().map(|tool| tool.told())).collect();
    let (tools, next) = page(all, request, PAGE)?;
    Ok(listed("tools", tools, next))
}

/// The schema of a tool's arguments, by the name that clients know.
pub(super) fn schema_of(peer: &Peer, name: &str) -> Option<Value> {
    let offered = peer.app.offered_tools().into_iter();
    offered
        .map(|(definition, schema)| (wire_name(&definition.name), schema))
        .find(|(own, _)| own == name)
        .map(|of| of.1)
}

/// A tool's name as clients take it: letters, digits, `_`, `-` and `.`, which those of tool servers have not.
pub(super) fn wire_name(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    name.chars().map(|c| if plain(c) { c } else { '_' }).collect()
}

/// A tool as a client is told it.
fn told(definition: &ToolDefinition, schema: Value) -> Value {
    let hints = definition.annotations.clone().unwrap_or_default();
    let looks = matches!(definition.category, Some(ToolCategory::Read | ToolCategory::Search));
    let read_only = hints.read_only.unwrap_or(looks);
    let open = matches!(definition.category, Some(ToolCategory::Execute | ToolCategory::Other) | None);
    let title = hints.title.clone().unwrap_or_else(|| title(&definition.name));
    let mut annotations = json!({ "title": title, "readOnlyHint": read_only, "openWorldHint": open });
    if !read_only {
        annotations["destructiveHint"] = hints.destructive.unwrap_or(true).into();
        annotations["idempotentHint"] = false.into();
    }
    let mut told = json!({
        "name": wire_name(&definition.name),
        "title": title,
        "description": definition.description,
        "inputSchema": schema,
        "annotations": annotations,
    });
    if DETAILED.contains(&definition.name.as_str()) {
        told["outputSchema"] = output_schema();
    }
    told
}

/// A name for people where there is none: `fs_multi_edit` is `Fs multi edit`.
fn title(name: &str) -> String {
    let words = name.replace(['_', '-'], " ");
    let mut letters = words.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// What `structuredContent` of a host tool is.
fn output_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "output": { "type": "string", "description": "What the text says." },
            "durationMs": { "type": "integer", "minimum": 0, "description": "How long the tool ran." },
            "details": { "type": "object", "description": "What happened: the diff of a written file, the exit code of a command." },
            "findings": { "type": "array", "items": { "type": "string" }, "description": "What the server's checks found in it." },
        },
        "required": ["output"],
    })
}

/// What a client is told of a call.
pub(super) fn result(carried: &Carried, hint: Option<&str>) -> Value {
    let Carried { result, findings, .. } = carried;
    let mut content = vec![text(&result.output)];
    content.extend(result.parts.iter().map(part));
    content.extend(findings.iter().map(|finding| text(finding)));
    content.extend(hint.map(text));
    let mut told = json!({ "content": content, "isError": result.is_error });
    let detailed = DETAILED.contains(&result.name.as_str()) || matches!(result.details, Some(Value::Object(_)));
    if !result.is_error && detailed {
        told["structuredContent"] = structured(result, findings);
    }
    told
}

fn structured(result: &ToolCallResult, findings: &[String]) -> Value {
    let mut structured = json!({ "output": result.output });
    if let Some(duration) = result.duration_ms {
        structured["durationMs"] = duration.into();
    }
    if let Some(details @ Value::Object(_)) = &result.details {
        structured["details"] = details.clone();
    }
    if !findings.is_empty() {
        structured["findings"] = findings.into();
    }
    structured
}

/// A result that failed before the tool was there.
pub(super) fn failure(message: &str) -> Value {
    json!({ "content": [text(message)], "isError": true })
}

/// A text as content.
pub(super) fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn part(part: &Part) -> Value {
    match part {
        Part::Text { text: said } => text(said),
        Part::Image { media_type, data } => json!({ "type": "image", "mimeType": media_type, "data": data }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::ToolAnnotations;

    #[test]
    fn hints_are_what_the_definition_says_or_the_category_means() {
        let definition = |category, hints: Option<ToolAnnotations>| ToolDefinition {
            category,
            annotations: hints,
            ..ToolDefinition::new("fs_do_it", "d", serde_json::Map::new())
        };
        let hints = |read_only, destructive| Some(ToolAnnotations { title: None, destructive, read_only });
        #[rustfmt::skip]
        let table = [
            (Some(ToolCategory::Read), None, json!({ "title": "Fs do it", "readOnlyHint": true, "openWorldHint": false })),
            (Some(ToolCategory::Edit), hints(None, Some(false)), json!({ "title": "Fs do it", "readOnlyHint": false, "openWorldHint": false, "destructiveHint": false, "idempotentHint": false })),
            (None, None, json!({ "title": "Fs do it", "readOnlyHint": false, "openWorldHint": true, "destructiveHint": true, "idempotentHint": false })),
            (Some(ToolCategory::Read), hints(Some(false), None), json!({ "title": "Fs do it", "readOnlyHint": false, "openWorldHint": false, "destructiveHint": true, "idempotentHint": false })),
        ];
        for (category, hints, want) in table {
            assert_eq!(told(&definition(category, hints), json!({}))["annotations"], want);
        }
    }

    #[test]
    fn a_result_is_text_and_images_and_findings_and_structure() {
        let result = ToolCallResult {
            id: "1".into(),
            name: "bash".into(),
            output: "out".into(),
            is_error: false,
            duration_ms: Some(5),
            parts: vec![Part::Image { media_type: "image/png".into(), data: "AA".into() }],
            details: Some(json!({ "exitCode": 0 })),
        };
        let carried = Carried { result, findings: vec!["f".into()], failure: None };
        let told = super::result(&carried, Some("hint"));
        let kinds: Vec<_> =
            told["content"].as_array().unwrap().iter().map(|part| part["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["text", "image", "text", "text"]);
        let want = json!({ "output": "out", "durationMs": 5, "details": { "exitCode": 0 }, "findings": ["f"] });
        assert_eq!(told["structuredContent"], want);
    }
}
