//! What a call answered, as text for the model.
//!
//! Texts come as they are. Images of the kinds that models take are handed on; what cannot be shown (other images,
//! sound, binary resources) is named with its type and size. Structured content is for programs (the result's
//! details); the model is shown it when there is no text: a server that sends it is to send it as text too. Where it does not fit
//! the form that the server gave for it, programs do not get it, and the model is told: the call has run all the same.

use rmcp::model::{CallToolResult, ContentBlock, ImageContent, Resource, ResourceContents};
use serde_json::{Map, Value, json};

use crate::base::limit;
use crate::protocol::Part;
use crate::tool::{ToolError, ToolOutput, hold_to};

/// Images that models take.
const SHOWN_IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// A part of an answer.
struct Piece {
    /// Whether it was a text; others are described.
    is_text: bool,
    text: String,
    image: Option<Part>,
}

/// The form that structured content is to have.
type Form<'a> = Option<&'a Map<String, Value>>;

/// The result of a call; an answer that is marked as an error is one.
pub(super) fn outcome(answer: CallToolResult, form: Form<'_>) -> Result<ToolOutput, ToolError> {
    let pieces = answer.content.into_iter().map(piece).collect();
    assemble(pieces, (answer.structured_content, form), answer.is_error == Some(true))
}

/// The same for an answer some parts of which are of no kind that the protocol knows. None: it is no answer at all.
pub(super) fn lenient_outcome(answer: Value, form: Form<'_>) -> Option<Result<ToolOutput, ToolError>> {
    let Value::Object(mut answer) = answer else { return None };
    let Some(Value::Array(content)) = answer.remove("content") else { return None };
    let part = |value: Value| match serde_json::from_value::<ContentBlock>(value.clone()) {
        Ok(block) => piece(block),
        Err(_) => described(value.to_string()),
    };
    let is_error = answer.get("isError") == Some(&Value::Bool(true));
    let structured = answer.remove("structuredContent");
    Some(assemble(content.into_iter().map(part).collect(), (structured, form), is_error))
}

/// An answer that came to a program's own client: `content` and what goes with it, in JSON. None: it is no answer.
pub fn read_answer(answer: Value) -> Option<Result<ToolOutput, ToolError>> {
    lenient_outcome(answer, None)
}

fn assemble(
    pieces: Vec<Piece>,
    (structured, form): (Option<Value>, Form<'_>),
    is_error: bool,
) -> Result<ToolOutput, ToolError> {
    let has_text = pieces.iter().any(|piece| piece.is_text && !piece.text.is_empty());
    let shown = structured.as_ref().filter(|_| !has_text).map(|value| format!("{value:#}"));
    let (mut texts, mut parts) = (Vec::with_capacity(pieces.len() + 1), Vec::new());
    for piece in pieces {
        texts.push(piece.text);
        parts.extend(piece.image);
    }
    texts.extend(shown);
    // An error has the form of an error.
    let misfit = form.filter(|_| !is_error).zip(structured.as_ref()).and_then(|(form, it)| hold_to(form, it).err());
    let structured = structured.filter(|_| misfit.is_none());
    texts.extend(misfit.map(|why| format!("[its structured content does not fit the tool's outputSchema: {why}]")));
    let text = texts.join("\n");
    match is_error {
        true if text.trim().is_empty() => Err(ToolError::failed("the tool reports an error and does not say which")),
        true => Err(ToolError::Failed(text)),
        false => {
            let details = structured.filter(|value| !repeats(value, &text)).and_then(details);
            Ok(ToolOutput { text, parts, details })
        }
    }
}

/// Whether structured content is nothing but the text under some name, as some servers send it.
fn repeats(structured: &Value, text: &str) -> bool {
    let only = structured.as_object().filter(|members| members.len() == 1).and_then(|members| members.values().next());
    only.and_then(Value::as_str) == Some(text)
}

/// Structured content for programs, unless it is large.
fn details(structured: Value) -> Option<Value> {
    let small = serde_json::to_string(&structured).is_ok_and(|text| text.len() <= limit::MCP_STRUCTURED_BYTES_MAX);
    small.then(|| json!({ "structuredContent": structured }))
}

fn piece(block: ContentBlock) -> Piece {
    match block {
        ContentBlock::Text(text) => Piece { is_text: true, text: text.text, image: None },
        ContentBlock::Image(image) => shown_image(image),
        ContentBlock::Audio(audio) => described(binary("audio", Some(&audio.mime_type), &audio.data)),
        ContentBlock::Resource(embedded) => resource_piece(embedded.resource),
        ContentBlock::ResourceLink(link) => described(linked(&link)),
        _ => described("[content of an unknown kind]".to_owned()),
    }
}

fn described(text: String) -> Piece {
    Piece { is_text: false, text, image: None }
}

/// An image that models can be shown. None: another kind, or none at all.
pub(super) fn image(image: &ImageContent) -> Option<Part> {
    let media_type = image.mime_type.to_ascii_lowercase();
    let is_base64 = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=');
    let fits = !image.data.is_empty() && image.data.len().is_multiple_of(4) && image.data.bytes().all(is_base64);
    let shown = fits && SHOWN_IMAGES.contains(&media_type.as_str());
    shown.then(|| Part::Image { media_type, data: image.data.clone() })
}

fn shown_image(content: ImageContent) -> Piece {
    match image(&content) {
        None => described(binary("image", Some(&content.mime_type), &content.data)),
        Some(part) => {
            let kind = content.mime_type.to_ascii_lowercase();
            let text = format!("[image, {kind}, {} bytes]", decoded_bytes(&content.data));
            Piece { is_text: false, text, image: Some(part) }
        }
    }
}

/// What a server read, as text and images.
pub(super) fn read_resource(contents: Vec<ResourceContents>) -> ToolOutput {
    let pieces: Vec<Piece> = contents.into_iter().map(resource_piece).collect();
    let (mut texts, mut parts) = (Vec::with_capacity(pieces.len()), Vec::new());
    for piece in pieces {
        texts.push(piece.text);
        parts.extend(piece.image);
    }
    ToolOutput { text: texts.join("\n"), parts, details: None }
}

fn resource_piece(contents: ResourceContents) -> Piece {
    if let ResourceContents::BlobResourceContents { mime_type: Some(kind), blob, .. } = &contents {
        let part = image(&ImageContent::new(blob.clone(), kind.clone()));
        if part.is_some() {
            let text = resource(contents).replace(", not shown", "");
            return Piece { is_text: false, text, image: part };
        }
    }
    described(resource(contents))
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
    format!("[{what}, {}, {} bytes, not shown]", kind.unwrap_or("of an unknown type"), decoded_bytes(base64))
}

fn decoded_bytes(base64: &str) -> usize {
    let padding = base64.bytes().rev().take_while(|&b| b == b'=').count();
    (base64.len() / 4 * 3).saturating_sub(padding)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(answer: Value) -> Result<String, String> {
        let strict = serde_json::from_value::<CallToolResult>(answer.clone()).ok().map(|answer| outcome(answer, None));
        let outcome = strict.or_else(|| lenient_outcome(answer, None)).expect("an answer");
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
            (json!({ "content": [{ "type": "image", "data": "AAECAw==", "mimeType": "image/png" }] }), ok("[image, image/png, 4 bytes]")),
            (json!({ "content": [{ "type": "image", "data": "<svg/>", "mimeType": "image/svg+xml" }] }), ok("[image, image/svg+xml, 3 bytes, not shown]")),
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
        assert!(lenient_outcome(json!({ "other": 1 }), None).is_none());
    }

    #[test]
    fn images_are_handed_on_and_structured_content_is_for_programs() {
        let image = |kind: &str, data: &str| json!({ "type": "image", "data": data, "mimeType": kind });
        let content = json!([image("image/PNG", "AAEC"), image("image/png", "AAE"), image("image/bmp", "AAEC")]);
        let answer = json!({ "content": content, "structuredContent": { "x": 1 } });
        let output = outcome(serde_json::from_value(answer).unwrap(), None).unwrap();
        assert_eq!(output.parts, [Part::Image { media_type: "image/png".into(), data: "AAEC".into() }]);
        assert_eq!(output.details, Some(json!({ "structuredContent": { "x": 1 } })));
        let twice = json!({ "content": [{ "type": "text", "text": "t" }], "structuredContent": { "content": "t" } });
        assert_eq!(outcome(serde_json::from_value(twice).unwrap(), None).unwrap().details, None);
        let large = json!({ "structuredContent": "x".repeat(limit::MCP_STRUCTURED_BYTES_MAX) });
        assert_eq!(outcome(serde_json::from_value(large).unwrap(), None).unwrap().details, None);
    }

    #[test]
    fn structured_content_that_does_not_fit_is_told_and_not_given_to_programs() {
        let form = json!({ "type": "object", "properties": { "n": { "type": "number" } }, "required": ["n"] });
        let form = form.as_object().unwrap();
        let text = |text: &str| json!([{ "type": "text", "text": text }]);
        let note = "[its structured content does not fit the tool's outputSchema: ";
        let cases = [
            (json!({ "content": text("a"), "structuredContent": { "n": 1 } }), true),
            (json!({ "content": text("a"), "structuredContent": { "n": "1" } }), false),
            (json!({ "content": text("a"), "structuredContent": [1] }), false),
        ];
        for (answer, fits) in cases {
            let strict = outcome(serde_json::from_value(answer.clone()).unwrap(), Some(form)).unwrap();
            let lenient = lenient_outcome(answer.clone(), Some(form)).unwrap().unwrap();
            for output in [strict, lenient] {
                assert_eq!(output.details.is_some(), fits, "{answer}");
                assert_eq!(output.text.contains(note), !fits, "{}", output.text);
                assert!(output.text.starts_with('a'), "{}", output.text);
            }
        }
        let error = json!({ "content": text("broke"), "structuredContent": {}, "isError": true });
        let error = outcome(serde_json::from_value(error).unwrap(), Some(form)).unwrap_err();
        assert_eq!(error, ToolError::Failed("broke".into()), "an error has a form of its own");
    }
}
