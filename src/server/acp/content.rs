//! What a prompt is made of: from the protocol's blocks to our parts, and from our texts to its blocks. Pure.
//!
//! Nothing that a client sends is dropped without a word: what a model cannot be shown is refused, or stands in the text by
//! its address.

use serde_json::{Value, json};

use crate::protocol::{ApiError, Part};

/// The parts of a prompt.
///
/// # Errors
/// `INVALID_ARGUMENT` that names the block and what was expected.
pub(super) fn parts(blocks: &[Value]) -> Result<Vec<Part>, ApiError> {
    if blocks.is_empty() {
        return Err(ApiError::invalid("prompt", "at least one block"));
    }
    blocks.iter().enumerate().map(|(at, block)| part(block, &format!("prompt[{at}]"))).collect()
}

/// The text of blocks that may be nothing else.
///
/// # Errors
/// `INVALID_ARGUMENT` that names the block.
pub(super) fn text_of(blocks: &[Value], field: &str) -> Result<String, ApiError> {
    let texts = blocks.iter().enumerate().map(|(at, block)| match part(block, &format!("{field}[{at}]"))? {
        Part::Text { text } => Ok(text),
        Part::Image { .. } => Err(ApiError::invalid(&format!("{field}[{at}]"), "a text")),
    });
    Ok(texts.collect::<Result<Vec<_>, ApiError>>()?.join("\n\n"))
}

fn part(block: &Value, field: &str) -> Result<Part, ApiError> {
    let text = |name: &str| {
        let missing = || ApiError::invalid(&format!("{field}.{name}"), "a text");
        block[name].as_str().map(str::to_owned).ok_or_else(missing)
    };
    match block["type"].as_str() {
        Some("text") => Ok(Part::Text { text: text("text")? }),
        Some("image") => Ok(Part::Image { media_type: text("mimeType")?, data: text("data")? }),
        Some("resource_link") => Ok(Part::Text { text: link(&text("uri")?, &text("name")?) }),
        Some("resource") => resource(&block["resource"], &format!("{field}.resource")),
        Some("audio") => Err(ApiError::invalid(&format!("{field}.type"), "no audio: no model here is shown any")),
        kind => {
            let expected = "one of text, image, resource_link, resource";
            Err(ApiError::unfit(&format!("{field}.type"), expected, format!("`{}`", kind.unwrap_or_default())))
        }
    }
}

/// A file as a person would name it; anything else by its address.
fn link(uri: &str, name: &str) -> String {
    match path_of(uri) {
        Some(path) => format!("[@{name}]({path})"),
        None => format!("[@{name}]({uri})"),
    }
}

/// The path of a `file://` address.
fn path_of(uri: &str) -> Option<String> {
    let path = uri.strip_prefix("file://")?;
    let path = path.strip_prefix("localhost").unwrap_or(path);
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        let hex = |digit: Option<u8>| (digit? as char).to_digit(16);
        bytes.push(match byte {
            b'%' => u8::try_from(hex(rest.next())? * 16 + hex(rest.next())?).ok()?,
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok().filter(|path| path.starts_with('/'))
}

/// What the editor has put into the prompt whole.
fn resource(resource: &Value, field: &str) -> Result<Part, ApiError> {
    let missing = |name: &str| ApiError::invalid(&format!("{field}.{name}"), "a text");
    let uri = resource["uri"].as_str().ok_or_else(|| missing("uri"))?;
    if let Some(text) = resource["text"].as_str() {
        // Its own name may stand in it: what ends it is the last line.
        return Ok(Part::Text { text: format!("<context ref=\"{uri}\">\n{text}\n</context>") });
    }
    let data = resource["blob"].as_str().ok_or_else(|| missing("text"))?;
    match resource["mimeType"].as_str() {
        Some(media) if media.starts_with("image/") => {
            Ok(Part::Image { media_type: media.to_owned(), data: data.to_owned() })
        }
        media => {
            let expected = "a text or an image";
            Err(ApiError::unfit(&format!("{field}.mimeType"), expected, format!("`{}`", media.unwrap_or_default())))
        }
    }
}

/// A text as a block.
pub(super) fn text_block(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

/// A part as a block.
pub(super) fn block(part: &Part) -> Value {
    match part {
        Part::Text { text } => text_block(text),
        Part::Image { media_type, data } => json!({ "type": "image", "mimeType": media_type, "data": data }),
    }
}

/// What a program printed, so that no Markdown is made of it.
pub(super) fn fenced(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}\n{}\n{fence}", text.trim_end_matches('\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_become_parts_or_are_refused_by_name() {
        let said = |block: Value| match parts(&[block]) {
            Ok(parts) => match &parts[0] {
                Part::Text { text } => text.clone(),
                Part::Image { media_type, data } => format!("{media_type} {data}"),
            },
            Err(error) => error.to_string(),
        };
        #[rustfmt::skip]
        let table = [
            (json!({ "type": "text", "text": "a" }), "a"),
            (json!({ "type": "image", "mimeType": "image/png", "data": "AA==" }), "image/png AA=="),
            (json!({ "type": "resource_link", "uri": "file:///a%20b/%C3%A9", "name": "é" }), "[@é](/a b/é)"),
            (json!({ "type": "resource_link", "uri": "file:///a%zz", "name": "a" }), "[@a](file:///a%zz)"),
            (json!({ "type": "resource_link", "uri": "https://x/", "name": "x" }), "[@x](https://x/)"),
            (json!({ "type": "resource", "resource": { "uri": "file:///a", "text": "t" } }), "<context ref=\"file:///a\">\nt\n</context>"),
            (json!({ "type": "resource", "resource": { "uri": "file:///a", "blob": "AA==", "mimeType": "image/png" } }), "image/png AA=="),
            (json!({ "type": "resource", "resource": { "uri": "file:///a", "blob": "AA==" } }), "`prompt[0].resource.mimeType`: expected a text or an image, got ``"),
            (json!({ "type": "resource", "resource": {} }), "`prompt[0].resource.uri`: expected a text"),
            (json!({ "type": "audio", "mimeType": "audio/wav", "data": "" }), "`prompt[0].type`: expected no audio: no model here is shown any"),
            (json!({ "type": "video" }), "`prompt[0].type`: expected one of text, image, resource_link, resource, got `video`"),
            (json!({ "type": "text" }), "`prompt[0].text`: expected a text"),
            (json!(1), "`prompt[0].type`: expected one of text, image, resource_link, resource, got ``"),
        ];
        for (block, want) in table {
            assert_eq!(said(block.clone()), want, "{block}");
        }
        assert!(parts(&[]).is_err());
    }

    #[test]
    fn a_fence_is_longer_than_what_it_holds() {
        for (text, want) in [
            ("a\n", "```\na\n```"),
            ("", "```\n\n```"),
            ("```\nx\n```", "````\n```\nx\n```\n````"),
            ("`a`", "```\n`a`\n```"),
        ] {
            assert_eq!(fenced(text), want);
        }
    }
}
