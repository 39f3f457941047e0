//! Messages of a conversation in the form in which hooks see them (typescript-api.md §7).

use serde_json::{Map, Value, json};

use crate::protocol::{Message, Part};

fn read<T: serde::de::DeserializeOwned>(value: Value) -> Option<T> {
    serde_json::from_value(value).ok()
}

/// A message in the form of typescript-api.md §7; what that form has no room for stands beside it.
pub fn show_message(message: &Message) -> Value {
    match message {
        Message::User(parts) => match parts.as_slice() {
            [Part::Text { text }] => json!({ "role": "user", "content": text }),
            _ => json!({ "role": "user", "content": text_of(parts), "parts": parts }),
        },
        Message::Assistant { text, calls, .. } if calls.is_empty() => json!({ "role": "assistant", "content": text }),
        Message::Assistant { text, calls, .. } => json!({ "role": "assistant", "content": text, "toolCalls": calls }),
        Message::ToolResult { call_id, name, output, is_error, parts } => {
            let mut shown = json!({
                "role": "tool_result", "content": output, "toolCallId": call_id, "toolName": name, "isError": is_error,
            });
            if !parts.is_empty() {
                shown["parts"] = json!(parts);
            }
            shown
        }
    }
}

fn text_of(parts: &[Part]) -> String {
    let texts = parts.iter().filter_map(|part| match part {
        Part::Text { text } => Some(text.as_str()),
        Part::Image { .. } => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// Messages in that form. None: it is another one.
pub fn read_messages(value: Value) -> Option<Vec<Message>> {
    let Value::Array(messages) = value else { return None };
    messages.into_iter().map(read_message).collect()
}

fn read_message(value: Value) -> Option<Message> {
    let Value::Object(mut fields) = value else { return None };
    let content = text_field(&mut fields, "content")?;
    match text_field(&mut fields, "role")?.as_str() {
        "user" | "system" => Some(Message::User(read_parts(&mut fields, content)?)),
        "assistant" => {
            let calls = fields.remove("toolCalls").map_or(Some(Vec::new()), read)?;
            Some(Message::assistant(content, calls))
        }
        "tool_result" => Some(Message::ToolResult {
            call_id: text_field(&mut fields, "toolCallId")?,
            name: text_field(&mut fields, "toolName").unwrap_or_default(),
            output: content,
            is_error: fields.get("isError") == Some(&Value::Bool(true)),
            parts: fields.remove("parts").map_or(Some(Vec::new()), read)?,
        }),
        _ => None,
    }
}

/// The parts; `content` counts when a hook changed it, images stay.
fn read_parts(fields: &mut Map<String, Value>, content: String) -> Option<Vec<Part>> {
    let Some(parts) = fields.remove("parts") else { return Some(vec![Part::Text { text: content }]) };
    let parts: Vec<Part> = read(parts)?;
    if text_of(&parts) == content {
        return Some(parts);
    }
    let images = parts.into_iter().filter(|part| matches!(part, Part::Image { .. }));
    Some(std::iter::once(Part::Text { text: content }).chain(images).collect())
}

fn text_field(fields: &mut Map<String, Value>, name: &str) -> Option<String> {
    match fields.remove(name) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::ToolCallRequest;

    #[test]
    fn messages_survive_the_way_to_javascript_and_back() {
        let call = ToolCallRequest {
            id: "c1".into(),
            name: "fs_read".into(),
            arguments: Map::from_iter([("a".into(), json!(1))]),
        };
        let image = Part::Image { media_type: "image/png".into(), data: "AA==".into() };
        let messages = vec![
            Message::User(vec![Part::Text { text: "hello".into() }]),
            Message::User(vec![Part::Text { text: "look".into() }, image.clone()]),
            Message::assistant("", vec![call]),
            Message::assistant("done", Vec::new()),
            Message::ToolResult {
                call_id: "c1".into(),
                name: "view_image".into(),
                output: "x".into(),
                is_error: true,
                parts: vec![image],
            },
        ];
        let shown = Value::Array(messages.iter().map(show_message).collect());
        assert_eq!(read_messages(shown), Some(messages));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for value in [json!("x"), json!([1]), json!([{"role": "user"}]), json!([{"role": "robot", "content": ""}])] {
            assert_eq!(read_messages(value.clone()), None, "{value}");
        }
    }
}
