//! The JSON actions that a model answers with which does not call tools by its provider's own means: read, and told how to write.
//!
//! Pure. An action is a whole JSON object with a known `type` that begins a line of the reply; several come in their order. Prose
//! around them is what the model thinks aloud, and nothing is ever made of it: a sentence that names a command or a file is no
//! call, and neither is JSON inside a line or inside a block of code of another language. What looks like an action and cannot be
//! read makes the whole reply unreadable: half of it is never run.

use serde_json::{Map, Value, json};

use crate::protocol::{Message, Part, ToolCallRequest, ToolDefinition};
use crate::tool::told_schema;

/// The tool that carries out the action `patch`.
const PATCH_TOOL: &str = "apply_patch";
/// Where the `type` of an action stands that breaks off, in bytes from its beginning.
const HEAD_BYTES: usize = 400;
/// What begins and ends a block of code.
const FENCE: &str = "```";

/// What a model wants to happen.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Action {
    /// A call of a tool: its name and arguments.
    Tool(String, Map<String, Value>),
    /// The task is done, and this is what came of it.
    Finalize(Map<String, Value>),
    /// There is nothing more to do; in words.
    Done(String),
}

/// The actions of a reply, in their order.
///
/// # Errors
/// What is wrong with it, in words for the model.
pub(super) fn parse(reply: &str) -> Result<Vec<Action>, String> {
    let mut actions = Vec::new();
    let mut rest = reply;
    let mut foreign = false;
    while !rest.is_empty() {
        let line = rest.split_inclusive('\n').next().unwrap_or(rest);
        let start = line.trim_start();
        if let Some(language) = start.strip_prefix(FENCE) {
            let language = language.trim();
            foreign = !foreign && !matches!(language, "" | "json" | "jsonc" | "JSON");
        } else if !foreign && start.starts_with(['{', '[']) {
            let from = line.len() - start.len();
            if let Some((values, length)) = value(&rest[from..])? {
                for value in values {
                    actions.push(action(value)?);
                }
                rest = &rest[from + length..];
                continue;
            }
        }
        rest = &rest[line.len()..];
    }
    match actions.is_empty() {
        true => {
            Err("it has no action: expected JSON objects with a `type`, each at the beginning of a line".to_owned())
        }
        false => Ok(actions),
    }
}

/// The objects of the JSON value that a text begins with, and its length. None: it is something else than actions.
fn value(text: &str) -> Result<Option<(Vec<Map<String, Value>>, usize)>, String> {
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    match stream.next() {
        Some(Ok(Value::Object(object))) if object.contains_key("type") => {
            Ok(Some((vec![object], stream.byte_offset())))
        }
        Some(Ok(Value::Array(entries))) if !entries.is_empty() && entries.iter().all(|e| e.get("type").is_some()) => {
            let objects = entries.into_iter().filter_map(|entry| match entry {
                Value::Object(object) => Some(object),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => None,
            });
            Ok(Some((objects.collect(), stream.byte_offset())))
        }
        Some(Ok(_)) | None => Ok(None),
        // Other braces are prose, such as a piece of code; an action that breaks off is not.
        Some(Err(error)) => match begins_like_an_action(text) {
            true => Err(format!("an action is no JSON: {error}")),
            false => Ok(None),
        },
    }
}

fn begins_like_an_action(text: &str) -> bool {
    let inside = text.trim_start_matches(['[', '{', ' ', '\t', '\r', '\n']);
    let head = &text[..text.floor_char_boundary(HEAD_BYTES)];
    inside.starts_with('"') && head.contains("\"type\"")
}

fn action(mut object: Map<String, Value>) -> Result<Action, String> {
    let kind = object.remove("type");
    match kind.as_ref().and_then(Value::as_str) {
        Some("tool") => {
            let name =
                text(&mut object, &["tool", "name"]).ok_or("an action `tool` has no `tool`: expected its name")?;
            let arguments = match take(&mut object, &["args", "arguments", "input"]) {
                Some(Value::Object(arguments)) => arguments,
                None => Map::new(),
                Some(other) => return Err(format!("`args` of the tool `{name}`: expected an object, got {other}")),
            };
            Ok(Action::Tool(name, arguments))
        }
        Some("patch") => {
            let patch =
                text(&mut object, &["patch", "diff"]).ok_or("an action `patch` has no `patch`: expected a text")?;
            Ok(Action::Tool(PATCH_TOOL.to_owned(), Map::from_iter([("patch".to_owned(), patch.into())])))
        }
        Some("finalize_task") => match take(&mut object, &["packet"]) {
            Some(Value::Object(packet)) => Ok(Action::Finalize(packet)),
            Some(other) => Err(format!("`packet`: expected an object, got {other}")),
            None => Err("an action `finalize_task` has no `packet`: expected an object".to_owned()),
        },
        Some("done") => Ok(Action::Done(text(&mut object, &["message", "result", "text"]).unwrap_or_default())),
        Some(_) | None => {
            let came = kind.unwrap_or_default();
            Err(format!("`type`: expected `tool`, `patch`, `finalize_task` or `done`, got {came}"))
        }
    }
}

fn take(object: &mut Map<String, Value>, names: &[&str]) -> Option<Value> {
    names.iter().find_map(|name| object.remove(*name))
}

fn text(object: &mut Map<String, Value>, names: &[&str]) -> Option<String> {
    match take(object, names)? {
        Value::String(text) => Some(text),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// What the system text says of actions: how they look, and which tools there are.
pub(super) fn guide(tools: &[ToolDefinition], finalizes: bool) -> String {
    let mut text = String::from(
        "\n\nYou work by actions. Answer with JSON objects and nothing else, each beginning on a line of its own; several are \
         carried out in their order, and you are told what came of them. Strings are JSON strings: line ends are \\n.\n\n\
         {\"type\": \"tool\", \"tool\": NAME, \"args\": {…}} calls a tool.\n",
    );
    if tools.iter().any(|tool| tool.name == PATCH_TOOL) {
        text.push_str(
            "{\"type\": \"patch\", \"patch\": TEXT} changes files by a patch: `*** Begin Patch` or a unified diff.\n",
        );
    }
    if finalizes {
        text.push_str(
            "{\"type\": \"finalize_task\", \"packet\": {\"title\": TEXT, \"user_stories\": [TEXT], \"acceptance_criteria\": \
             [TEXT], \"mermaid_wireframe\": TEXT or null}} ends the task with what came of it.\n",
        );
    }
    text.push_str(
        "{\"type\": \"done\", \"message\": TEXT} ends the task, with your answer to the user.\n\nThe tools:\n",
    );
    for tool in tools {
        text.push_str(&format!("\n- {}: {}\n  args: {}\n", tool.name, tool.description.trim(), told_schema(tool)));
    }
    text
}

/// The conversation in words alone: calls as the actions that they were, results as what the user says.
pub(super) fn retell(messages: &[Message]) -> Vec<Message> {
    let mut told: Vec<Message> = Vec::with_capacity(messages.len());
    for message in messages {
        match message {
            Message::User(parts) => say(&mut told, parts.clone()),
            Message::Assistant { text, calls, .. } => {
                // Its own actions stand in its text; calls that it made otherwise do not.
                let spoken = parse(text).is_ok() || calls.is_empty();
                let made = (!spoken).then(|| calls.iter().map(as_action)).into_iter().flatten();
                let lines = std::iter::once(text.clone()).filter(|text| !text.is_empty()).chain(made);
                told.push(Message::assistant(lines.collect::<Vec<_>>().join("\n"), Vec::new()));
            }
            Message::ToolResult { name, output, is_error, parts, .. } => {
                let how = if *is_error { "failed" } else { "gave" };
                let text = format!("`{name}` {how}:\n{output}");
                say(&mut told, std::iter::once(Part::Text { text }).chain(parts.iter().cloned()).collect());
            }
        }
    }
    told
}

fn as_action(call: &ToolCallRequest) -> String {
    json!({ "type": "tool", "tool": call.name, "args": call.arguments }).to_string()
}

/// Adds to what the user says last: providers want turns to alternate.
fn say(told: &mut Vec<Message>, parts: Vec<Part>) {
    match told.last_mut() {
        Some(Message::User(last)) => last.extend(parts),
        Some(Message::Assistant { .. } | Message::ToolResult { .. }) | None => told.push(Message::User(parts)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, arguments: Value) -> Action {
        let Value::Object(arguments) = arguments else { panic!("an object") };
        Action::Tool(name.into(), arguments)
    }

    #[test]
    fn actions_are_found_in_their_order_and_nothing_is_made_of_prose() {
        let done = || Action::Done("ok".into());
        let packet = || Action::Finalize(Map::from_iter([("title".to_owned(), "t".into())]));
        let generics = "fn a<T: Fn(&str) -> Option<Vec<{}>>>() { let x = \"}{\"; }";
        let written = json!({"type": "tool", "tool": "Write", "args": {"path": "a.rs", "content": generics}});
        #[rustfmt::skip]
        let table = [
            (r#"{"type":"tool","tool":"Read","args":{"path":"a"}}"#.to_owned(), vec![tool("Read", json!({"path": "a"}))]),
            ("I look first.\n```json\n{\"type\": \"tool\",\n \"name\": \"Read\"}\n```\nThen more.".into(), vec![tool("Read", json!({}))]),
            (written.to_string(), vec![tool("Write", json!({"path": "a.rs", "content": generics}))]),
            ("{\"type\":\"tool\",\"tool\":\"a\"}{\"type\":\"tool\",\"tool\":\"b\"}\n\n  {\"type\":\"finalize_task\",\"packet\":{\"title\":\"t\"}}".into(),
             vec![tool("a", json!({})), tool("b", json!({})), packet()]),
            (r#"[{"type":"tool","tool":"a"},{"type":"done","message":"ok"}]"#.into(), vec![tool("a", json!({})), done()]),
            ("{\"type\":\"patch\",\"diff\":\"--- a\\n+++ b\\n\"}".into(), vec![tool("apply_patch", json!({"patch": "--- a\n+++ b\n"}))]),
            ("Such as\n```ts\n{\"type\":\"tool\",\"tool\":\"rm\"}\n```\n{\"type\":\"done\",\"message\":\"ok\"}".into(), vec![done()]),
            ("{ not json }\n[1, 2]\n{}\n{\"a\": 1}\n{\"type\":\"done\",\"result\":\"ok\"}".into(), vec![done()]),
        ];
        for (reply, want) in table {
            assert_eq!(parse(&reply), Ok(want), "{reply}");
        }
        for prose in [
            "",
            "I will run `rm -rf build` now.",
            "Call Read with {\"type\":\"tool\",\"tool\":\"Read\"} next.",
            "Read(a.rs)",
            "<tool>Read</tool>",
            "{\"path\": \"a\"}",
            "```sh\n{\"type\":\"tool\",\"tool\":\"rm\"}\n```",
        ] {
            assert!(parse(prose).is_err_and(|why| why.contains("it has no action")), "{prose}");
        }
    }

    #[test]
    fn an_action_that_cannot_be_read_makes_the_whole_reply_unreadable() {
        #[rustfmt::skip]
        let table = [
            ("{\"type\":\"tool\",\"tool\":\"a\"}\n{\"type\":\"tool\",\"tool\":\"b\"", "no JSON"),
            ("{\"type\":\"fly\"}", "`type`: expected `tool`, `patch`, `finalize_task` or `done`, got \"fly\""),
            ("{\"type\":1}", "got 1"),
            ("{\"type\":\"tool\"}", "has no `tool`"),
            ("{\"type\":\"tool\",\"tool\":\"a\",\"args\":[1]}", "`args` of the tool `a`: expected an object, got [1]"),
            ("{\"type\":\"patch\"}", "has no `patch`"),
            ("{\"type\":\"finalize_task\"}", "has no `packet`"),
            ("{\"type\":\"finalize_task\",\"packet\":\"x\"}", "`packet`: expected an object"),
        ];
        for (reply, want) in table {
            assert!(parse(reply).is_err_and(|why| why.contains(want)), "{reply}: {:?}", parse(reply));
        }
    }

    #[test]
    fn a_conversation_is_told_in_words_and_turns_alternate() {
        let call = ToolCallRequest { id: "1".into(), name: "a".into(), arguments: Map::new() };
        let user = |text: &str| Message::User(vec![Part::Text { text: text.into() }]);
        let result = |output: &str, is_error| Message::ToolResult {
            call_id: "1".into(),
            name: "a".into(),
            output: output.into(),
            is_error,
            parts: Vec::new(),
        };
        let own = r#"{"type":"tool","tool":"a"}"#;
        let messages = [
            user("go"),
            Message::assistant(own, vec![call.clone()]),
            result("one", false),
            result("two", true),
            user("found"),
            Message::assistant("By other means.", vec![call]),
            result("three", false),
        ];
        let told = retell(&messages);
        let texts: Vec<String> = told
            .iter()
            .map(|message| match message {
                Message::User(parts) => {
                    let text = |part: &Part| match part {
                        Part::Text { text } => text.clone(),
                        Part::Image { .. } => "image".into(),
                    };
                    format!("user: {}", parts.iter().map(text).collect::<Vec<_>>().join(" | "))
                }
                Message::Assistant { text, calls, .. } => format!("model: {text}{}", calls.len()),
                Message::ToolResult { .. } => "result".into(),
            })
            .collect();
        let want = [
            "user: go".to_owned(),
            format!("model: {own}0"),
            "user: `a` gave:\none | `a` failed:\ntwo | found".into(),
            "model: By other means.\n{\"type\":\"tool\",\"tool\":\"a\",\"args\":{}}0".into(),
            "user: `a` gave:\nthree".into(),
        ];
        assert_eq!(texts, want);
    }

    #[test]
    fn the_guide_names_what_may_be_done_and_nothing_else() {
        let tool = |name: &str| -> ToolDefinition {
            let parameters = json!({"path": {"type": "string", "required": true}});
            serde_json::from_value(json!({"name": name, "description": "It does.", "parameters": parameters})).unwrap()
        };
        let all = guide(&[tool("fs_read"), tool(PATCH_TOOL)], true);
        for word in ["\"patch\"", "finalize_task", "\"done\"", "- fs_read: It does.", "\"path\""] {
            assert!(all.contains(word), "{word}: {all}");
        }
        let less = guide(&[tool("fs_read")], false);
        assert!(!less.contains("finalize_task") && !less.contains("\"patch\""), "{less}");
    }
}
