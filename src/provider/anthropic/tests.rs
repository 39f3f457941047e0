//! Replies and conversations, as tables. The wire itself is tried in tests/it/anthropic.rs.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::Messages as Wired;
use super::assemble::Assembler;
use super::request::{Purpose, encode, tell};
use crate::base::limit;
use crate::model::{Messages, ModelError, ModelEvent, ModelRequest, StopReason};
use crate::protocol::{Message, Original, Part, Reasoning, ToolCallRequest, Usage};
use crate::provider::wire::{Assemble as _, Redactor, Spec, Wire as _};

fn spec() -> Spec {
    Spec { id: "anthropic/claude-sonnet-4-5".into(), model: "claude-sonnet-4-5".into(), ..Spec::default() }
}

fn assembler() -> Assembler {
    Assembler::new(&spec().id, Redactor::default())
}

fn start(index: u64, block: Value) -> Value {
    json!({ "type": "content_block_start", "index": index, "content_block": block })
}

fn delta(index: u64, delta: Value) -> Value {
    json!({ "type": "content_block_delta", "index": index, "delta": delta })
}

fn stop(index: u64) -> Value {
    json!({ "type": "content_block_stop", "index": index })
}

fn tool(index: u64, id: &str, pieces: &[&str]) -> Vec<Value> {
    let begun = json!({ "type": "tool_use", "id": id, "name": "t", "input": {} });
    let pieces = pieces.iter().map(|piece| delta(index, json!({ "type": "input_json_delta", "partial_json": piece })));
    [start(index, begun)].into_iter().chain(pieces).chain([stop(index)]).collect()
}

fn ended(reason: &str) -> Vec<Value> {
    let delta = json!({ "type": "message_delta", "delta": { "stop_reason": reason, "stop_sequence": null }, "usage": { "output_tokens": 7 } });
    vec![delta, json!({ "type": "message_stop" })]
}

fn begun() -> Value {
    let usage = json!({ "input_tokens": 10, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 100, "output_tokens": 1 });
    json!({ "type": "message_start", "message": { "id": "m", "type": "message", "role": "assistant", "content": [], "usage": usage } })
}

/// All events of a reply made of these, between its start and its end.
fn assemble(events: &[Value], reason: &str) -> Result<Vec<ModelEvent>, ModelError> {
    let mut assembler = assembler();
    for event in [begun()].iter().chain(events).chain(&ended(reason)) {
        assembler.take(event["type"].as_str().unwrap(), &event.to_string())?;
    }
    Ok(assembler.drain().collect())
}

/// The same without the tokens.
fn said(events: &[Value], reason: &str) -> Vec<ModelEvent> {
    let events = assemble(events, reason).unwrap();
    events.into_iter().filter(|event| !matches!(event, ModelEvent::Usage(_))).collect()
}

fn call(id: &str, arguments: Value) -> ToolCallRequest {
    let Value::Object(arguments) = arguments else { panic!("an object") };
    ToolCallRequest { id: id.into(), name: "t".into(), arguments }
}

fn user(text: &str) -> Message {
    Message::User(vec![Part::Text { text: text.into() }])
}

fn result(id: &str, output: &str, is_error: bool, parts: Vec<Part>) -> Message {
    Message::ToolResult { call_id: id.into(), name: "t".into(), output: output.into(), is_error, parts }
}

fn image(kind: &str) -> Part {
    Part::Image { media_type: kind.into(), data: "QQ==".into() }
}

/// What is sent of a conversation: roles, and blocks without the marks.
fn sent(messages: Vec<Message>) -> Value {
    let request = ModelRequest { messages: messages.into(), ..ModelRequest::default() };
    let mut body = body(&spec(), &request);
    for message in body["messages"].as_array_mut().unwrap() {
        for block in message["content"].as_array_mut().unwrap() {
            block.as_object_mut().unwrap().remove("cache_control");
        }
    }
    let messages = body["messages"].as_array().unwrap().iter();
    messages.map(|message| json!([message["role"], message["content"]])).collect()
}

fn body(spec: &Spec, request: &ModelRequest) -> Value {
    let told = Arc::new(tell(&request.tools).unwrap());
    serde_json::from_slice(&encode(spec, request, &told, Purpose::Answer).unwrap()).unwrap()
}

#[test]
fn every_kind_of_event() {
    let mut events = vec![
        json!({ "type": "ping" }),
        start(0, json!({ "type": "thinking", "thinking": "", "signature": "" })),
        delta(0, json!({ "type": "thinking_delta", "thinking": "hm" })),
        delta(0, json!({ "type": "signature_delta", "signature": "s1" })),
        stop(0),
        start(1, json!({ "type": "text", "text": "" })),
        delta(1, json!({ "type": "text_delta", "text": "Well ä\n" })),
        delta(1, json!({ "type": "citations_delta", "citation": { "type": "page_location" } })),
        json!({ "type": "something_new", "index": 9, "delta": { "type": "odd", "value": 3 } }),
        stop(1),
    ];
    events.extend(tool(2, "a", &["", "{\"x\":", "1}"]));
    let original = Original {
        wire: "anthropic-messages".into(),
        model: spec().id,
        items: vec![
            json!({ "type": "thinking", "thinking": "hm", "signature": "s1" }),
            json!({ "type": "text", "text": "Well ä\n" }),
            json!({ "type": "tool_use", "id": "a", "name": "t", "input": { "x": 1 } }),
        ],
        paused: false,
    };
    let (sent, all) = (113, 120);
    let usage = |output, total| {
        ModelEvent::Usage(Usage {
            input_tokens: sent,
            output_tokens: output,
            total_tokens: total,
            cached_input_tokens: 100,
            cache_write_tokens: 3,
            ..Usage::default()
        })
    };
    let want = vec![
        usage(1, 114),
        ModelEvent::Reasoning("hm".into()),
        ModelEvent::Text("Well ä\n".into()),
        ModelEvent::Call(call("a", json!({ "x": 1 }))),
        ModelEvent::Original(Arc::new(original)),
        usage(7, all),
        ModelEvent::Finished(StopReason::ToolUse),
    ];
    assert_eq!(assemble(&events, "tool_use").unwrap(), want);
}

#[test]
fn blocks_may_be_open_side_by_side() {
    let (mut first, mut second) = (tool(0, "a", &["{\"x\"", ":1}"]), tool(1, "b", &["{\"y\"", ":2}"]));
    let stops = [first.pop().unwrap(), second.pop().unwrap()];
    let woven: Vec<Value> = first.into_iter().zip(second).flat_map(|(a, b)| [a, b]).chain(stops).collect();
    let want = [ModelEvent::Call(call("a", json!({ "x": 1 }))), ModelEvent::Call(call("b", json!({ "y": 2 })))];
    assert_eq!(said(&woven, "tool_use")[..2], want);
}

#[test]
fn arguments_cut_at_any_byte_and_bad_ones() {
    let arguments = r#"{"a":"ä\"\\n","b":[1,{}]}"#;
    for cut in (0..=arguments.len()).filter(|at| arguments.is_char_boundary(*at)) {
        let (first, second) = arguments.split_at(cut);
        let [ModelEvent::Call(got), _] = &said(&tool(0, "a", &[first, second]), "tool_use")[..] else {
            panic!("{cut}")
        };
        assert_eq!(Value::Object(got.arguments.clone()), serde_json::from_str::<Value>(arguments).unwrap(), "{cut}");
    }
    #[rustfmt::skip]
    let table = [
        ("[1]", "tool_use", "got an array"), ("{\"a\":", "tool_use", "not a JSON object: EOF"),
        ("{\"a\": \"half", "max_tokens", "limit of tokens inside the arguments"),
        ("{\"a\": \"half", "model_context_window_exceeded", "limit of tokens inside the arguments"),
    ];
    for (arguments, reason, words) in table {
        let [ModelEvent::BadCall { problem, .. }, _] = &said(&tool(0, "a", &[arguments]), reason)[..] else { panic!() };
        assert!(problem.contains(words), "{problem}");
    }
    // No arguments are none; some servers give them with the block.
    assert_eq!(said(&tool(0, "a", &[]), "tool_use")[0], ModelEvent::Call(call("a", json!({}))));
    let whole = start(0, json!({ "type": "tool_use", "id": "a", "name": "t", "input": { "x": 1 } }));
    assert_eq!(said(&[whole], "tool_use")[0], ModelEvent::Call(call("a", json!({ "x": 1 }))));
}

#[test]
fn reasons_to_stop() {
    let text = || vec![start(0, json!({ "type": "text", "text": "a" }))];
    #[rustfmt::skip]
    let table = [
        (text(), "end_turn", StopReason::EndTurn), (text(), "stop_sequence", StopReason::EndTurn), (text(), "pause_turn", StopReason::Paused), (tool(0, "a", &[]), "pause_turn", StopReason::ToolUse),
        (text(), "max_tokens", StopReason::Length), (vec![], "max_tokens", StopReason::Length), (text(), "refusal", StopReason::Refusal),
        (vec![], "refusal", StopReason::Refusal), (text(), "model_context_window_exceeded", StopReason::Length),
        (tool(0, "a", &[]), "end_turn", StopReason::ToolUse), (tool(0, "a", &["{}"]), "max_tokens", StopReason::Length),
        (text(), "a_new_one", StopReason::EndTurn),
    ];
    for (events, reason, want) in table {
        assert_eq!(said(&events, reason).last(), Some(&ModelEvent::Finished(want)), "{reason}");
    }
    let full = assemble(&[], "model_context_window_exceeded").unwrap_err();
    assert!(matches!(&full, ModelError::Overflow(_)), "{full:?}");
}

#[test]
fn errors_in_streams_have_their_kinds() {
    let error = |kind: &str, message: &str| json!({ "type": "error", "error": { "type": kind, "message": message } });
    #[rustfmt::skip]
    let table = [
        ("overloaded_error", "Overloaded", "transient"), ("rate_limit_error", "slowly", "transient"), ("api_error", "oops", "transient"),
        ("timeout_error", "late", "transient"), ("authentication_error", "who?", "unauthorized"), ("permission_error", "no", "unauthorized"),
        ("invalid_request_error", "what?", "refused"), ("not_found_error", "where?", "refused"), ("billing_error", "pay", "quota"),
        ("invalid_request_error", "prompt is too long: 200001 tokens > 200000 maximum", "context_overflow"), ("request_too_large", "too large", "context_overflow"),
    ];
    for (kind, message, want) in table {
        for event in ["error", ""] {
            let mut assembler = assembler();
            let failed = assembler.take(event, &error(kind, message).to_string()).unwrap_err();
            assert_eq!(failed.kind(), want, "{kind}: {failed}");
            assert!(failed.to_string().contains(message), "{failed}");
        }
        let failed = assembler().take_whole(&error(kind, message).to_string()).unwrap_err();
        assert_eq!(failed.kind(), want, "{kind}");
    }
    assert_eq!(assembler().take("error", "plain words").unwrap_err().kind(), "transient");
    for garbage in ["<html>", "{\"type\":", "[1]", "{\"type\":\"message_delta\",\"delta\":3}"] {
        assert_eq!(assembler().take("", garbage).unwrap_err().kind(), "malformed", "{garbage}");
    }
    assert_eq!(assembler().take_whole("{\"hello\":1}").unwrap_err().kind(), "malformed");
    assert_eq!(assembler().close().unwrap_err().kind(), "transient");
}

#[test]
fn errors_name_no_secrets() {
    let redact = Redactor::new(Some(&"sk-ant-very-secret".into()), "https://x");
    let mut assembler = Assembler::new("a/b", redact);
    let error = json!({ "type": "error", "error": { "type": "authentication_error", "message": "sk-ant-very-secret is no key" } });
    let words = assembler.take("error", &error.to_string()).unwrap_err().to_string();
    assert!(words.contains("*** is no key"), "{words}");
    let words = assembler.take("", "{\"sk-ant-very-secret").unwrap_err().to_string();
    assert!(!words.contains("secret"), "{words}");
}

#[test]
fn an_answer_that_is_not_streamed() {
    let whole = json!({
        "type": "message", "stop_reason": "tool_use", "usage": { "input_tokens": 2, "output_tokens": 3 },
        "content": [
            { "type": "redacted_thinking", "data": "xx" }, { "type": "text", "text": "a" },
            { "type": "tool_use", "id": "a", "name": "t", "input": { "x": 1 } },
        ],
    });
    let mut assembler = assembler();
    assembler.take_whole(&whole.to_string()).unwrap();
    let events: Vec<ModelEvent> = assembler.drain().collect();
    assert_eq!(events[0], ModelEvent::Text("a".into()));
    let [.., ModelEvent::Call(got), ModelEvent::Original(original), _, ModelEvent::Finished(StopReason::ToolUse)] =
        &events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!((got, json!(original.items)), (&call("a", json!({ "x": 1 })), whole["content"].clone()));
}

#[test]
fn a_reply_has_a_limit() {
    let mebibyte = "x".repeat(1 << 20);
    let count = limit::MODEL_REPLY_BYTES_MAX >> 20;
    for piece in [json!({ "text": mebibyte }), json!({ "partial_json": mebibyte }), json!({ "signature": mebibyte })] {
        let error = assemble(&vec![delta(0, piece); count + 1], "end_turn").unwrap_err();
        assert!(matches!(&error, ModelError::Malformed(words) if words.contains("longer than")), "{error:?}");
    }
    let blocks: Vec<Value> = (0..1_001).map(|at| start(at, json!({ "type": "text", "text": "" }))).collect();
    assert_eq!(assemble(&blocks, "end_turn").unwrap_err().kind(), "malformed");
    let large = start(0, json!({ "type": "redacted_thinking", "data": mebibyte }));
    assert_eq!(assemble(&vec![large; count + 1], "end_turn").unwrap_err().kind(), "malformed");
}

#[test]
fn what_came_goes_back_as_it_came_to_the_same_model_alone() {
    let thought = |signature: &str| {
        vec![
            start(0, json!({ "type": "thinking", "thinking": "", "signature": "" })),
            delta(0, json!({ "type": "thinking_delta", "thinking": "so \"x\"\n" })),
            delta(0, json!({ "type": "signature_delta", "signature": signature })),
            stop(0),
            start(1, json!({ "type": "redacted_thinking", "data": "zz" })),
            start(2, json!({ "type": "server_tool_use", "id": "srv", "name": "web_search", "input": {} })),
            delta(2, json!({ "type": "input_json_delta", "partial_json": "{\"q\":1}" })),
        ]
    };
    let mut events = thought("sig==");
    events.extend(tool(3, "functions.t:0", &["{\"x\":1.0}"]));
    let made = said(&events, "tool_use");
    let [.., ModelEvent::Call(got), ModelEvent::Original(original), _] = &made[..] else { panic!("{made:?}") };
    let want = json!([
        { "type": "thinking", "thinking": "so \"x\"\n", "signature": "sig==" },
        { "type": "redacted_thinking", "data": "zz" },
        { "type": "server_tool_use", "id": "srv", "name": "web_search", "input": { "q": 1 } },
        { "type": "tool_use", "id": "functions.t:0", "name": "t", "input": { "x": 1.0 } },
    ]);
    assert_eq!(json!(original.items), want);
    let talk = |original: Option<Arc<Original>>, calls: Vec<ToolCallRequest>| {
        let results: Vec<Message> = calls.iter().map(|call| result(&call.id, "o", false, vec![])).collect();
        let reply = Message::Assistant { text: "said".into(), calls, original };
        sent([user("a"), reply].into_iter().chain(results).collect())
    };
    let same = talk(Some(Arc::clone(original)), vec![got.clone()]);
    assert_eq!((&same[1][1], &same[2][1][0]["tool_use_id"]), (&want, &json!("functions.t:0")));
    // Of another model, of another wire, or about other calls: in our words, with an id that is taken.
    let other = |change: fn(&mut Original)| {
        let mut other = (**original).clone();
        change(&mut other);
        talk(Some(Arc::new(other)), vec![got.clone()])
    };
    for told in [
        other(|original| original.model.push('x')),
        other(|original| original.wire = "gemini".into()),
        other(|original| drop(original.items.pop())),
        talk(None, vec![got.clone()]),
    ] {
        let id = told[1][1][1]["id"].as_str().unwrap();
        assert!(id.starts_with("functions_t_0_") && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'), "{id}");
        assert_eq!(told[1][1][0], json!({ "type": "text", "text": "said" }));
        assert_eq!(told[2][1][0]["tool_use_id"], id);
    }
    // Thinking that the limit cut before its signature is not taken.
    let cut = said(&thought("")[..4], "max_tokens");
    let [.., ModelEvent::Original(original), _] = &cut[..] else { panic!("{cut:?}") };
    assert!(original.items.is_empty());
}

#[test]
fn any_conversation_becomes_one_that_is_taken() {
    let text = |text: &str| json!({ "type": "text", "text": text });
    let shown = json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "QQ==" } });
    let used = |id: &str| json!({ "type": "tool_use", "id": id, "name": "t", "input": {} });
    let came = |id: &str, content: Value| json!({ "type": "tool_result", "tool_use_id": id, "content": content });
    let failed = |id: &str, content: &str| json!({ "type": "tool_result", "tool_use_id": id, "content": content, "is_error": true });
    let lost = |id: &str| failed(id, "This call was not run.");
    let silent = |id: &str| json!({ "type": "tool_result", "tool_use_id": id });
    let calls = |ids: &[&str]| Message::assistant("", ids.iter().map(|id| call(id, json!({}))).collect());
    let says = |text: &str| Message::assistant(text, vec![]);
    let ok = |id: &str| result(id, "o", false, vec![]);
    let (u, m) = (|content: Value| json!(["user", content]), |content: Value| json!(["assistant", content]));
    #[rustfmt::skip]
    let table = [
        ("plain", vec![user("a")], json!([u(json!([text("a")]))])),
        ("nothing at all", vec![], json!([u(json!([text("Go on.")]))])),
        ("nothing but blanks", vec![user(" \n"), says("")], json!([u(json!([text("Go on.")]))])),
        ("the model begins and ends", vec![says("x")], json!([u(json!([text("Go on.")])), m(json!([text("x")])), u(json!([text("Go on.")]))])),
        ("two of the user", vec![user("a"), says(" "), user(""), user("b")], json!([u(json!([text("a"), text("b")]))])),
        ("results of one reply stand together, first", vec![user("a"), calls(&["1", "2"]), ok("2"), user("s"), result("1", "", false, vec![]), user("t")],
            json!([u(json!([text("a")])), m(json!([used("1"), used("2")])), u(json!([came("2", json!("o")), silent("1"), text("s"), text("t")]))])),
        ("calls without results", vec![user("a"), calls(&["1", "2"]), ok("1"), says("x"), user("b")],
            json!([u(json!([text("a")])), m(json!([used("1"), used("2")])), u(json!([came("1", json!("o")), lost("2")])), m(json!([text("x")])), u(json!([text("b")]))])),
        ("calls, and then the model again", vec![user("a"), calls(&["1"]), calls(&["2"]), ok("2")],
            json!([u(json!([text("a")])), m(json!([used("1")])), u(json!([lost("1")])), m(json!([used("2")])), u(json!([came("2", json!("o"))]))])),
        ("calls at the end", vec![user("a"), says("x"), calls(&["1"])],
            json!([u(json!([text("a")])), m(json!([text("x"), used("1")])), u(json!([lost("1")]))])),
        ("results without calls, and twice", vec![ok("0"), user("a"), calls(&["1"]), ok("1"), ok("1")],
            json!([u(json!([text("What t said: o"), text("a")])), m(json!([used("1")])), u(json!([came("1", json!("o")), text("What t said: o")]))])),
        ("images", vec![Message::User(vec![image("image/png"), image("image/tiff")]), calls(&["1", "2", "3"]), result("1", "o", false, vec![image("image/png")]),
                result("2", "", true, vec![image("image/png")]), result("3", "", false, vec![image("image/png")])],
            json!([u(json!([shown, text("(An image of the kind image/tiff, which cannot be shown to you.)")])), m(json!([used("1"), used("2"), used("3")])),
                u(json!([came("1", json!([text("o"), shown])), failed("2", "It failed."), came("3", json!([shown])), shown]))])),
    ];
    for (what, messages, want) in table {
        assert_eq!(sent(messages), want, "{what}");
    }
}

#[test]
fn what_is_sent_beside_the_conversation() {
    let tool =
        json!({ "name": "mcp:a/b", "description": "d", "parameters": { "x": { "type": "string", "required": true } } });
    let other = json!({ "name": "c", "description": "e", "parameters": {} });
    let tools = vec![serde_json::from_value(tool).unwrap(), serde_json::from_value(other).unwrap()];
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer", "minimum": 1 } } });
    let request = ModelRequest {
        system: "be good".into(),
        messages: vec![user("a"), Message::assistant("x", vec![]), user("b")].into(),
        tools: tools.into(),
        reasoning: Reasoning::High,
        output_schema: Some(Arc::new(schema)),
        ..ModelRequest::default()
    };
    let mut spec = Spec { id: "anthropic/claude-opus-5-5".into(), model: "claude-opus-5-5".into(), ..Spec::default() };
    spec.facts.output_tokens_max = Some(128_000);
    spec.body = Map::from_iter([("service_tier".to_owned(), json!("auto"))]);
    let mark = json!({ "type": "ephemeral" });
    let (marked, plain) = (
        |text: &str| json!([{ "type": "text", "text": text, "cache_control": mark }]),
        json!([{ "type": "text", "text": "x" }]),
    );
    let want = json!({
        "model": "claude-opus-5-5",
        "thinking": { "type": "adaptive", "display": "summarized", "block_binding": { "prefix_mismatch_behavior": "drop_block" } },
        "messages": [
            { "role": "user", "content": marked("a") }, { "role": "assistant", "content": plain }, { "role": "user", "content": marked("b") },
        ],
        "max_tokens": 128_000,
        "system": marked("be good"),
        "tools": [
            { "name": "mcp__a__b", "description": "d", "input_schema": { "type": "object", "properties": { "x": { "type": "string" } }, "required": ["x"] } },
            { "name": "c", "description": "e", "input_schema": { "type": "object", "properties": {} }, "cache_control": mark },
        ],
        "output_config": { "effort": "high", "format": { "type": "json_schema", "schema": {
            "type": "object", "properties": { "n": { "type": "integer", "description": "(minimum: 1)" } }, "additionalProperties": false,
        } } },
        "stream": true,
        "service_tier": "auto",
    });
    assert_eq!(body(&spec, &request), want);
    // What is counted has no length and no stream.
    let told = Arc::new(tell(&request.tools).unwrap());
    let counted: Value = serde_json::from_slice(&encode(&spec, &request, &told, Purpose::Count).unwrap()).unwrap();
    let mut want = want;
    for word in ["max_tokens", "stream", "service_tier"] {
        want.as_object_mut().unwrap().remove(word);
    }
    assert_eq!(counted, want);
    assert_eq!((Wired.headers(&spec).len(), Wired.headers(&super::tests::spec()).len()), (2, 1));
    assert_eq!((Wired.counted("{\"input_tokens\":12}"), Wired.counted("{}")), (Some(12), None));
}

#[test]
fn settings_have_the_last_word_and_short_windows_short_replies() {
    let request =
        ModelRequest { messages: vec![user("a")].into(), reasoning: Reasoning::High, ..ModelRequest::default() };
    let mut spec = spec();
    assert_eq!(body(&spec, &request)["max_tokens"], 32_000);
    spec.facts.context_tokens = Some(8_192);
    assert_eq!(body(&spec, &request)["max_tokens"], 4_096);
    assert_eq!(body(&spec, &request)["thinking"]["budget_tokens"], 2_048);
    spec.body =
        Map::from_iter([("max_tokens".to_owned(), json!(9)), ("thinking".to_owned(), json!({ "type": "disabled" }))]);
    let told = Arc::new(tell(&[]).unwrap());
    let text = String::from_utf8(encode(&spec, &request, &told, Purpose::Answer).unwrap().to_vec()).unwrap();
    assert_eq!((text.matches("\"max_tokens\"").count(), text.matches("\"thinking\"").count()), (1, 1), "{text}");
    // Beside what they say of it an answer is still held to its schema; where its provider does not do that it is told in words.
    let schema = Some(Arc::new(json!({ "type": "object" })));
    let held = ModelRequest { output_schema: schema, ..request };
    let newest = Spec {
        model: "claude-opus-5".into(),
        body: Map::from_iter([("output_config".to_owned(), json!({ "effort": "low" }))]),
        ..self::spec()
    };
    let sent = body(&newest, &held);
    assert_eq!(
        (&sent["output_config"]["effort"], &sent["output_config"]["format"]["type"]),
        (&json!("low"), &json!("json_schema"))
    );
    let older = Spec { model: "claude-sonnet-4".into(), body: Map::new(), ..newest };
    let sent = body(&older, &held);
    assert_eq!(sent.get("output_config"), None);
    assert!(sent["system"][0]["text"].as_str().unwrap().contains("It fits this JSON Schema"), "{sent}");
}

#[test]
fn a_turn_that_was_begun_without_thinking_goes_on_without() {
    let thought = |text: &str, id: &str| {
        let items = vec![
            json!({ "type": "thinking", "thinking": text, "signature": "s" }),
            json!({ "type": "tool_use", "id": id, "name": "t", "input": {} }),
        ];
        let original = Original { wire: "anthropic-messages".into(), model: spec().id, items, paused: false };
        Message::Assistant { text: String::new(), calls: vec![call(id, json!({}))], original: Some(Arc::new(original)) }
    };
    let calls = |id: &str| Message::assistant("", vec![call(id, json!({}))]);
    let ok = |id: &str| result(id, "o", false, vec![]);
    #[rustfmt::skip]
    let table = [
        (vec![user("a")], true), (vec![user("a"), thought("h", "1"), ok("1")], true), (vec![user("a"), calls("1"), ok("1")], false),
        (vec![user("a"), calls("1"), ok("1"), user("b")], true), (vec![user("a"), thought("h", "1"), ok("1"), calls("2"), ok("2")], true),
        (vec![user("a"), calls("1"), ok("1"), thought("h", "2"), ok("2")], false),
    ];
    for (messages, thinks) in table {
        let request = ModelRequest { messages: messages.into(), reasoning: Reasoning::Low, ..ModelRequest::default() };
        assert_eq!(body(&spec(), &request).get("thinking").is_some(), thinks, "{:?}", request.messages);
    }
}

#[test]
fn calls_need_tools_to_be_there() {
    let messages = vec![user("a"), Message::assistant("", vec![call("1", json!({}))]), result("1", "o", false, vec![])];
    let request = ModelRequest { messages: messages.into(), ..ModelRequest::default() };
    let body = body(&spec(), &request);
    assert_eq!((&body["tool_choice"], body["tools"].as_array().map(Vec::len)), (&json!({ "type": "none" }), Some(1)));
}

#[test]
fn addresses() {
    #[rustfmt::skip]
    let table = [
        ("https://api.anthropic.com", "https://api.anthropic.com/v1/messages", "https://api.anthropic.com/v1/messages/count_tokens"),
        ("https://api.anthropic.com/v1/", "https://api.anthropic.com/v1/messages", "https://api.anthropic.com/v1/messages/count_tokens"),
        ("https://host/anthropic/v1/messages", "https://host/anthropic/v1/messages", "https://host/anthropic/v1/messages/count_tokens"),
        ("https://host/v1?beta=true", "https://host/v1/messages?beta=true", "https://host/v1/messages/count_tokens?beta=true"),
    ];
    for (base, url, count) in table {
        assert_eq!((Wired.url(base, "m"), Wired.count_url(base, "m").unwrap()), (url.to_owned(), count.to_owned()));
    }
}

/// What a conversation is sent as after each of these many messages: once with what was kept of the request before, and once
/// written anew.
fn sent_both_ways(messages: &[Message]) -> Vec<(Bytes, Bytes)> {
    let told = Arc::new(tell(&[]).expect("no tools"));
    let mut grown = Messages::default();
    let each = messages.iter().map(|message| {
        grown.push(message.clone());
        let request = |messages| ModelRequest { messages, ..ModelRequest::default() };
        let kept = encode(&spec(), &request(grown.clone()), &told, Purpose::Answer).expect("plain text");
        let anew = encode(&spec(), &request(grown.to_vec().into()), &told, Purpose::Answer).expect("plain text");
        (kept, anew)
    });
    each.collect()
}

#[test]
fn what_is_added_to_a_request_is_what_would_be_written_anew() {
    let calls = |ids: &[&str]| Message::assistant("", ids.iter().map(|id| call(id, json!({ "x": "[" }))).collect());
    let round = [
        user("a"),
        calls(&["1", "2.x"]),
        result("2.x", "o", false, vec![image("image/png")]),
        result("1", "o", true, Vec::new()),
        Message::assistant("said [", Vec::new()),
        user(" "),
        Message::assistant(" ", Vec::new()),
        user(&"long ".repeat(2_000)),
        calls(&["3"]),
        Message::assistant("again", Vec::new()),
        Message::assistant("and again", Vec::new()),
        result("9", "dangling", false, Vec::new()),
    ];
    let all: Vec<Message> = round.iter().cycle().take(150).cloned().collect();
    for (at, (kept, anew)) in sent_both_ways(&all).into_iter().enumerate() {
        assert!(kept == anew, "after {} messages", at + 1);
        let json: Value = serde_json::from_slice(&kept).expect("JSON");
        let marks = kept.windows(15).filter(|piece| *piece == b"\"cache_control\"").count();
        assert!(marks <= 2, "{marks}");
        let roles: Vec<&str> =
            json["messages"].as_array().unwrap().iter().map(|m| m["role"].as_str().unwrap()).collect();
        assert_eq!((roles[0], *roles.last().unwrap()), ("user", "user"));
    }
}

/// Any words in any pieces come out as they went in.
mod pieces {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn do_not_matter(words in "\\PC{1,40}", cuts in proptest::collection::vec(0_usize..40, 0..6)) {
            let mut at: Vec<usize> = cuts.into_iter().map(|cut| cut.min(words.chars().count())).collect();
            at.sort_unstable();
            let chars: Vec<char> = words.chars().collect();
            let bounds: Vec<usize> = [0].into_iter().chain(at).chain([chars.len()]).collect();
            let pieces = bounds.windows(2).map(|pair| chars[pair[0]..pair[1]].iter().collect::<String>());
            let events: Vec<Value> = pieces.map(|piece| delta(0, json!({ "type": "text_delta", "text": piece }))).collect();
            let got: String = said(&events, "end_turn").into_iter().filter_map(|event| match event {
                ModelEvent::Text(text) => Some(text),
                _ => None,
            }).collect();
            prop_assert_eq!(got, words);
        }
    }
}

/// What only differs in its text from the event before is not read anew.
mod alike {
    use proptest::prelude::*;

    use super::*;

    /// Pieces of blocks that are open at once, and all of their events.
    fn read(pieces: &[(u64, u8, String)], padded: bool) -> Vec<ModelEvent> {
        let mut assembler = assembler();
        let mut take = |event: Value| assembler.take(event["type"].as_str().unwrap(), &event.to_string()).unwrap();
        take(begun());
        for (number, (index, kind, text)) in pieces.iter().enumerate() {
            let mut event = delta(
                *index,
                match kind {
                    0 => json!({ "type": "text_delta", "text": text }),
                    1 => json!({ "type": "thinking_delta", "thinking": text }),
                    2 => json!({ "type": "input_json_delta", "partial_json": text }),
                    _ => json!({ "type": "signature_delta", "signature": text }),
                },
            );
            if padded {
                // No two of them are alike.
                event["number"] = number.into();
            }
            take(event);
        }
        ended("end_turn").into_iter().for_each(take);
        assembler.drain().collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn say_what_they_would_when_read(pieces in proptest::collection::vec((0_u64..2, 0_u8..4, "[a-c\"\\\\é\n{}]{0,3}"), 0..40)) {
            prop_assert_eq!(read(&pieces, false), read(&pieces, true));
        }
    }
}
