//! What a call answered, as text for the model.
//!
//! Texts come as they are. What the model cannot be shown (images, sound, binary resources) is named with its type
//! and size. Structured content is shown when there is no text: a server that sends it is to send it as text too.

use rmcp::model::{CallToolResult, ContentBlock, Resource, ResourceContents};
use serde_json::Value;

use crate::tool::{ToolError, ToolOutput};

/// The result of a call; an answer that is marked as an error is one.
pub(super) fn outcome(answer: CallToolResult) -> Result<ToolOutput, ToolError> {
    let parts = answer.content.into_iter().map(|block| (matches!(block, ContentBlock::Text(_)), shown(block)));
    assemble(parts.collect(), answer.structured_content, answer.is_error == Some(true))
}

/// The same for an answer some parts of which are of no kind that the protocol knows. None: it is no answer at all.
pub(super) fn lenient_outcome(answer: Value) -> Option<Result<ToolOutput, ToolError>> {
    let Value::Object(mut answer) = answer else { return None };
    let Some(Value::Array(content)) = answer.remove("content") else { return None };
    let part = |value: Value| match serde_json::from_value::<ContentBlock>(value.clone()) {
        Ok(block) => (matches!(block, ContentBlock::Text(_)), shown(block)),
        Err(_) => (false, value.to_string()),
    };
    let is_error = answer.get("isError") == Some(&Value::Bool(true));
    Some(assemble(content.into_iter().map(part).collect(), answer.remove("structuredContent"), is_error))
}

/// `parts`: whether it is a text, and the text.
fn assemble(parts: Vec<(bool, String)>, structured: Option<Value>, is_error: bool) -> Result<ToolOutput, ToolError> {
    let has_text = parts.iter().any(|(is_text, text)| *is_text && !text.is_empty());
    let structured = structured.filter(|_| !has_text).map(|value| format!("{value:#}"));
    let texts: Vec<String> = parts.into_iter().map(|(_, text)| text).chain(structured).collect();
    let text = texts.join("\n");
    match is_error {
        true if text.trim().is_empty() => Err(ToolError::failed("the tool reports an error and does not say which")),
        true => Err(ToolError::Failed(text)),
        false => Ok(ToolOutput::from(text)),
    }
}

fn shown(block: ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text,
        ContentBlock::Image(image) => binary("image", Some(&image.mime_type), &image.data),
        ContentBlock::Audio(audio) => binary("audio", Some(&audio.mime_type), &audio.data),
        ContentBlock::Resource(embedded) => resource(embedded.resource),
        ContentBlock::ResourceLink(link) => linked(&link),
        _ => "[content of an unknown kind]".to_owned(),
    }
}

fn resource(contents: ResourceContents) -> String {
    match contents {
        ResourceContents::TextResourceContents { uri, mime_type, text, .. } => {
            let kind = mime_type.map_or_else(String::new, |kind| format!(" ({kind})"));
            format!("[resource {uri}{kind}]\n{text}")
        }
        ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
            binary(&format!("resource {uri}"), mime_type.as_deref(), &blob)
        }
        _ => "[a resource of an unknown kind]".to_owned(),
    }
}

fn linked(link: &Resource) -> String {
    let facts = [link.mime_type.clone(), link.size.map(|bytes| format!("{bytes} bytes"))];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    let facts = if facts.is_empty() { String::new() } else { format!(" ({})", facts.join(", ")) };
    let description = link.description.as_ref().map_or_else(String::new, |text| format!(": {text}"));
    format!("[link to the resource {} \"{}\"{facts}{description}]", link.uri, link.name)
}

/// Names what is in base64, with the size of what it stands for.
fn binary(what: &str, kind: Option<&str>, base64: &str) -> String {
    let padding = base64.bytes().rev().take_while(|&b| b == b'=').count();
    let bytes = (base64.len() / 4 * 3).saturating_sub(padding);
    format!("[{what}, {}, {bytes} bytes, not shown]", kind.unwrap_or("of an unknown type"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(answer: Value) -> Result<String, String> {
        let strict = serde_json::from_value::<CallToolResult>(answer.clone()).ok().map(outcome);
        let outcome = strict.or_else(|| lenient_outcome(answer)).expect("an answer");
        outcome.map(|output| output.text).map_err(|error| error.to_string())
    }

    #[test]
    fn all_kinds_of_content_become_text() {
        let ok = |text: &str| Ok::<String, String>(text.to_owned());
        let text = |text: &str| json!({ "type": "text", "text": text });
        #[rustfmt::skip]
        let table: Vec<(Value, Result<String, String>)> = vec![
            (json!({ "content": [text("a"), text("b")] }), ok("a\nb")),
            (json!({ "content": [] }), ok("")),
            (json!({ "content": [text("a")], "structuredContent": { "x": 1 } }), ok("a")),
            (json!({ "content": [], "structuredContent": { "x": 1 } }), ok("{\n  \"x\": 1\n}")),
            (json!({ "structuredContent": [1] }), ok("[\n  1\n]")),
            (json!({ "content": [{ "type": "image", "data": "AAECAw==", "mimeType": "image/png" }] }), ok("[image, image/png, 4 bytes, not shown]")),
            (json!({ "content": [{ "type": "audio", "data": "AAEC", "mimeType": "audio/wav" }] }), ok("[audio, audio/wav, 3 bytes, not shown]")),
            (json!({ "content": [{ "type": "resource", "resource": { "uri": "file:///a", "mimeType": "text/plain", "text": "t" } }] }), ok("[resource file:///a (text/plain)]\nt")),
            (json!({ "content": [{ "type": "resource", "resource": { "uri": "file:///a", "blob": "AAEC" } }] }), ok("[resource file:///a, of an unknown type, 3 bytes, not shown]")),
            (json!({ "content": [{ "type": "resource_link", "uri": "file:///a", "name": "n", "size": 5, "description": "d" }] }), ok("[link to the resource file:///a \"n\" (5 bytes): d]")),
            (json!({ "content": [text("a"), { "type": "hologram", "x": 1 }] }), ok("a\n{\"type\":\"hologram\",\"x\":1}")),
            (json!({ "content": [text("no such file")], "isError": true }), Err("no such file".into())),
            (json!({ "content": [], "isError": true }), Err("the tool reports an error and does not say which".into())),
            (json!({ "content": [{ "type": "hologram" }], "isError": true }), Err("{\"type\":\"hologram\"}".into())),
        ];
        for (answer, want) in table {
            assert_eq!(said(answer.clone()), want, "{answer}");
        }
        assert!(lenient_outcome(json!({ "other": 1 })).is_none());
    }
}
