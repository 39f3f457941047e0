//! Requests and the assembling of replies, as tables. The wire itself is tried in tests/it/failing.rs.

use std::sync::Arc;

use serde_json::{Value, json};

use super::assemble::Assembler;
use super::request::{encode, tell};
use super::{NAME, Responses};
use crate::base::limit;
use crate::model::{Messages, ModelError, ModelEvent, ModelFacts, ModelRequest};
use crate::protocol::{Message, Original, Part, Reasoning, ToolCallRequest};
use crate::provider::wire::{Assemble, Redactor, Spec, State, Wire as _};

const MODEL: &str = "openai/m";

fn spec() -> Spec {
    let facts = ModelFacts { reasoning: false, ..ModelFacts::default() };
    Spec { id: MODEL.into(), model: "m".into(), facts, ..Spec::default() }
}

fn assembler() -> Assembler {
    Assembler::new(MODEL, Redactor::default())
}

fn assemble(events: &[Value]) -> Result<Vec<ModelEvent>, ModelError> {
    let mut assembler = assembler();
    for event in events {
        assembler.take(event["type"].as_str().unwrap_or_default(), &event.to_string())?;
    }
    assembler.close()?;
    assert_eq!(assembler.state(), State::Done);
    Ok(assembler.drain().collect())
}

fn message(text: &str) -> Value {
    let content = json!([{ "type": "output_text", "text": text, "annotations": [] }]);
    json!({ "type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content })
}

fn function(id: &str, name: &str, arguments: &str) -> Value {
    json!({ "type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": name, "arguments": arguments, "status": "completed" })
}

fn reasoning(encrypted: &str) -> Value {
    json!({ "type": "reasoning", "id": "rs_1", "summary": [{ "type": "summary_text", "text": "so" }], "encrypted_content": encrypted })
}

fn added(index: u64, mut item: Value) -> Value {
    if item["type"] == "function_call" {
        item["arguments"] = "".into();
    }
    item["status"] = "in_progress".into();
    json!({ "type": "response.output_item.added", "output_index": index, "item": item })
}

fn done(index: u64, item: Value) -> Value {
    json!({ "type": "response.output_item.done", "output_index": index, "item": item })
}

fn delta(kind: &str, index: u64, delta: &str) -> Value {
    json!({ "type": format!("response.{kind}.delta"), "output_index": index, "item_id": format!("i{index}"), "delta": delta })
}

fn ended(output: &[Value]) -> Value {
    let usage = json!({
        "input_tokens": 10, "input_tokens_details": { "cached_tokens": 4 },
        "output_tokens": 5, "output_tokens_details": { "reasoning_tokens": 2 }, "total_tokens": 15,
    });
    json!({ "type": "response.completed", "response": { "status": "completed", "output": output, "usage": usage } })
}

fn incomplete(reason: &str) -> Value {
    let details = json!({ "reason": reason });
    json!({ "type": "response.incomplete", "response": { "status": "incomplete", "incomplete_details": details, "output": [] } })
}

/// One word for each event; of runs of texts their sum.
fn words(events: Vec<ModelEvent>) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for event in events {
        let word = match event {
            ModelEvent::Text(text) => format!("\"{text}\""),
            ModelEvent::Reasoning(text) => format!("~{text}~"),
            ModelEvent::Call(call) => format!("{}:{}{}", call.id, call.name, Value::Object(call.arguments)),
            ModelEvent::BadCall { id, name, problem } => format!("{id}:{name}! {problem}"),
            ModelEvent::Original(original) => format!("{} items", original.items.len()),
            ModelEvent::Usage(usage) => format!(
                "{}/{} {}/{} {}",
                usage.cached_input_tokens,
                usage.input_tokens,
                usage.reasoning_tokens,
                usage.output_tokens,
                usage.total_tokens
            ),
            ModelEvent::Finished(stop) => format!("{stop:?}"),
            other => panic!("{other:?}"),
        };
        words.push(word);
    }
    words
}

#[test]
fn replies_come_together_from_whatever_servers_send() {
    let (usage, end) = ("4/10 2/5 15", "EndTurn");
    let call = || function("c1", "read", "{\"a\":1}");
    let unnumbered = |mut event: Value| {
        event.as_object_mut().expect("an event").remove("output_index");
        event
    };
    let of = |mut event: Value, id: &str| {
        event["item_id"] = id.into();
        unnumbered(event)
    };
    let refusal = json!({ "type": "message", "id": "m", "role": "assistant", "content": [{ "type": "refusal", "refusal": "no" }] });
    #[rustfmt::skip]
    let table: Vec<(&str, Vec<Value>, Vec<&str>)> = vec![
        ("a text in pieces", vec![
            json!({ "type": "response.created", "response": {} }), added(0, message("")), json!({ "type": "response.content_part.added", "output_index": 0, "part": {} }),
            delta("output_text", 0, "he"), delta("output_text", 0, "llo"), json!({ "type": "response.output_text.done", "output_index": 0, "text": "hello" }),
            done(0, message("hello")), ended(&[message("hello")]),
        ], vec!["\"he\"", "\"llo\"", usage, end]),
        ("the whole with the end alone", vec![ended(&[reasoning("x"), message("hello"), call()])],
            vec!["~so~", "\"hello\"", "c1:read{\"a\":1}", "3 items", usage, "ToolUse"]),
        ("items without pieces, and an end without items", vec![done(0, message("hello")), done(1, call()), ended(&[])],
            vec!["\"hello\"", "c1:read{\"a\":1}", usage, "ToolUse"]),
        ("reasoning, in paragraphs, comes back with all", vec![
            added(0, reasoning("")), json!({ "type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": 0 }), delta("reasoning_summary_text", 0, "so"),
            json!({ "type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": 1 }), delta("reasoning_summary_text", 0, "on"),
            done(0, reasoning("x")), added(1, message("")), delta("output_text", 1, "a"), done(1, message("a")), ended(&[reasoning("x"), message("a")]),
        ], vec!["~so~", "~\n\n~", "~on~", "\"a\"", "2 items", usage, end]),
        ("open reasoning", vec![delta("reasoning_text", 0, "hm"), done(0, json!({ "type": "reasoning", "summary": [], "content": [{ "type": "reasoning_text", "text": "hm" }] })), ended(&[])],
            vec!["~hm~", "1 items", usage, end]),
        ("arguments that never end, in an item that is done", vec![
            added(0, call()), delta("function_call_arguments", 0, "{\"a\""), delta("function_call_arguments", 0, ":1}"), done(0, function("c1", "read", "")), ended(&[]),
        ], vec!["c1:read{\"a\":1}", usage, "ToolUse"]),
        ("arguments in the done item alone", vec![added(0, call()), done(0, call()), ended(&[call()])], vec!["c1:read{\"a\":1}", usage, "ToolUse"]),
        ("an item that is never done", vec![
            added(0, call()), delta("function_call_arguments", 0, "{\"a\":1}"), json!({ "type": "response.function_call_arguments.done", "output_index": 0, "arguments": "{\"a\":2}" }), ended(&[]),
        ], vec!["c1:read{\"a\":2}", usage, "ToolUse"]),
        ("two calls without numbers, told apart by their ids", vec![
            unnumbered(added(0, function("c1", "a", ""))), unnumbered(added(1, function("c2", "b", ""))),
            of(delta("function_call_arguments", 0, "{\"x\":1}"), "fc_c1"), of(delta("function_call_arguments", 0, "{\"y\""), "fc_c2"), of(delta("function_call_arguments", 0, ":2}"), "fc_c2"),
            unnumbered(done(0, function("c1", "a", "{\"x\":1}"))), unnumbered(done(1, function("c2", "b", "{\"y\":2}"))), ended(&[]),
        ], vec!["c1:a{\"x\":1}", "c2:b{\"y\":2}", usage, "ToolUse"]),
        ("an object in the place of arguments", vec![done(0, json!({ "type": "function_call", "call_id": "c", "name": "a", "arguments": { "x": 1 } })), ended(&[])],
            vec!["c:a{\"x\":1}", usage, "ToolUse"]),
        ("a refusal in pieces", vec![added(0, message("")), delta("refusal", 0, "n"), delta("refusal", 0, "o"), done(0, refusal.clone()), ended(&[])],
            vec!["\"n\"", "\"o\"", "1 items", usage, "Refusal"]),
        ("a refusal at the end alone", vec![ended(&[refusal])], vec!["\"no\"", "1 items", usage, "Refusal"]),
        ("events of the future", vec![json!({ "type": "response.dream.delta", "delta": { "x": 1 }, "item_id": 7 }), json!({ "type": "x" }), delta("output_text", 0, "a"), ended(&[])],
            vec!["\"a\"", usage, end]),
        ("a phase", vec![done(0, json!({ "type": "message", "role": "assistant", "phase": "final_answer", "content": [{ "type": "output_text", "text": "a" }] })), ended(&[])],
            vec!["\"a\"", "1 items", usage, end]),
        ("cut by the limit", vec![delta("output_text", 0, "a"), incomplete("max_output_tokens")], vec!["\"a\"", "Length"]),
        ("cut inside its reasoning", vec![done(0, reasoning("x")), incomplete("max_output_tokens")], vec!["~so~", "Length"]),
        ("cut for its content", vec![delta("output_text", 0, "a"), incomplete("content_filter")], vec!["\"a\"", "ContentFilter"]),
        ("cut inside the arguments", vec![added(0, call()), delta("function_call_arguments", 0, "{\"a"), incomplete("max_output_tokens")],
            vec!["c1:read! the reply reached its limit of tokens inside the arguments, after 3 bytes of them; nothing was run. Use fewer or shorter arguments", "Length"]),
        ("something behind the end", vec![delta("output_text", 0, "a"), ended(&[]), delta("output_text", 0, "b"), ended(&[])], vec!["\"a\"", usage, end]),
    ];
    for (what, events, want) in table {
        assert_eq!(words(assemble(&events).unwrap_or_else(|error| panic!("{what}: {error:?}"))), want, "{what}");
    }
}

#[test]
fn failures_and_their_kinds() {
    let failed = |code: &str, message: &str| json!({ "type": "response.failed", "response": { "status": "failed", "error": { "code": code, "message": message } } });
    #[rustfmt::skip]
    let table = [
        (failed("rate_limit_exceeded", "Rate limit reached. Please try again in 11s"), "transient"),
        (failed("server_error", "sorry"), "transient"),
        (failed("context_length_exceeded", "Your input exceeds the context window of this model."), "context_overflow"),
        (failed("insufficient_quota", "You exceeded your current quota"), "quota"),
        (failed("invalid_prompt", "no"), "refused"),
        (failed("image_content_policy_violation", "no"), "content_filter"),
        (failed("image_too_large", "no"), "refused"),
        (json!({ "type": "response.failed", "response": { "status": "failed", "error": null } }), "transient"),
        (json!({ "type": "error", "code": "server_error", "message": "m", "param": null }), "transient"),
        (json!({ "type": "error", "code": "context_length_exceeded", "message": "m" }), "context_overflow"),
        (json!({ "type": "error", "error": { "type": "invalid_request_error", "code": "invalid_api_key", "message": "m" } }), "unauthorized"),
        (json!({ "error": { "code": 503, "message": "m" } }), "transient"),
        (json!({ "hello": 1 }), "malformed"),
        (json!({ "type": "response.completed" }), "malformed"),
        (json!({ "type": "response.output_text.delta", "delta": { "x": 1 } }), "malformed"),
        (json!({ "type": "response.completed", "response": { "status": "failed" } }), "transient"),
    ];
    for (event, kind) in table {
        let error = assemble(&[delta("output_text", 0, "a"), event.clone()]).unwrap_err();
        assert_eq!(error.kind(), kind, "{event}: {error}");
    }
    for (data, kind) in [("[DONE]", "transient"), ("<html>", "malformed"), ("{\"type\"", "malformed")] {
        assert_eq!(assembler().take("", data).unwrap_err().kind(), kind, "{data}");
    }
    assert_eq!(assemble(&[delta("output_text", 0, "a")]).unwrap_err().kind(), "transient", "the end is missing");
    let mut after = assembler();
    after.take("", &ended(&[message("a")]).to_string()).unwrap();
    after.take("", "[DONE]").unwrap();
    assert_eq!(after.state(), State::Done);
}

#[test]
fn an_answer_in_one_piece() {
    let whole = |body: Value| {
        let mut assembler = assembler();
        assembler.take_whole(&body.to_string()).map(|()| words(assembler.drain().collect()))
    };
    let body = ended(&[reasoning("x"), message("a"), function("c", "read", "{}")])["response"].clone();
    assert_eq!(whole(body).unwrap(), ["~so~", "\"a\"", "c:read{}", "3 items", "4/10 2/5 15", "ToolUse"]);
    assert_eq!(
        whole(json!({ "error": { "code": "insufficient_quota", "message": "m" } })).unwrap_err().kind(),
        "quota"
    );
    assert_eq!(whole(json!({ "hello": 1 })).unwrap_err().kind(), "malformed");
}

#[test]
fn a_reply_has_a_limit() {
    let mebibyte = "x".repeat(1 << 20);
    let count = (limit::MODEL_REPLY_BYTES_MAX >> 20) + 1;
    for event in [delta("output_text", 0, &mebibyte), delta("function_call_arguments", 0, &mebibyte)] {
        let error = assemble(&vec![event; count]).unwrap_err();
        assert!(matches!(&error, ModelError::Malformed(words) if words.contains("longer than")), "{error:?}");
    }
    let many: Vec<Value> = (0..2_000).map(|index| added(index, message(""))).collect();
    let error = assemble(&many).unwrap_err();
    assert!(matches!(&error, ModelError::Malformed(words) if words.contains("1000 items")), "{error:?}");
}

fn body(spec: &Spec, request: &ModelRequest) -> Value {
    let told = Arc::new(tell(&request.tools).expect("JSON"));
    serde_json::from_slice(&encode(spec, request, &told).expect("JSON")).expect("JSON")
}

fn user(text: &str) -> Message {
    Message::User(vec![Part::Text { text: text.into() }])
}

fn request(messages: Vec<Message>) -> ModelRequest {
    ModelRequest { messages: messages.into(), ..ModelRequest::default() }
}

fn call(id: &str) -> ToolCallRequest {
    ToolCallRequest {
        id: id.into(),
        name: "mcp:x/y".into(),
        arguments: json!({ "a": 1 }).as_object().cloned().unwrap_or_default(),
    }
}

fn result(id: &str, output: &str, parts: Vec<Part>) -> Message {
    Message::ToolResult { call_id: id.into(), name: "mcp:x/y".into(), output: output.into(), is_error: false, parts }
}

#[test]
fn what_is_sent() {
    let image = || Part::Image { media_type: "image/png".into(), data: "QUJD".into() };
    let long = "x".repeat(70);
    let definition =
        json!({ "name": "mcp:x/y", "description": "d", "parameters": { "p": { "type": "string", "required": true } } });
    let all = ModelRequest {
        system: "be good".into(),
        tools: vec![serde_json::from_value(definition).expect("a tool")].into(),
        cache_key: Some("ses_1".into()),
        ..request(vec![
            Message::User(vec![Part::Text { text: "look".into() }, image()]),
            Message::assistant("I look.", vec![call("c1"), call(&long)]),
            result("c1", "o", vec![]),
            result(&long, "", vec![image()]),
        ])
    };
    let sent = body(&spec(), &all);
    let short = sent["input"][3]["call_id"].as_str().expect("an id").to_owned();
    assert!(short.len() == 64 && short.starts_with("xxx"), "{short}");
    let image = json!({ "type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,QUJD" });
    let want = json!({
        "model": "m",
        "instructions": "be good",
        "input": [
            { "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "look" }, image] },
            { "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "I look." }] },
            { "type": "function_call", "call_id": "c1", "name": "mcp__x__y", "arguments": "{\"a\":1}" },
            { "type": "function_call", "call_id": short, "name": "mcp__x__y", "arguments": "{\"a\":1}" },
            { "type": "function_call_output", "call_id": "c1", "output": "o" },
            { "type": "function_call_output", "call_id": short, "output": [image] },
        ],
        "parallel_tool_calls": true,
        "prompt_cache_key": "ses_1",
        "store": false,
        "stream": true,
        "tools": [{
            "type": "function", "name": "mcp__x__y", "description": "d", "strict": false,
            "parameters": { "type": "object", "properties": { "p": { "type": "string" } }, "required": ["p"] },
        }],
    });
    assert_eq!(sent, want);
}

#[test]
fn settings_and_facts_decide_what_else_is_sent() {
    let members = |reasons: bool, reasoning: Reasoning, settings: Value| {
        let facts = ModelFacts { reasoning: reasons, reasoning_known: true, ..ModelFacts::default() };
        let spec = Spec { facts, body: settings.as_object().cloned().unwrap_or_default(), ..spec() };
        let schema = Some(Arc::new(json!({ "type": "object" })));
        body(&spec, &ModelRequest { reasoning, output_schema: schema, ..request(vec![user("a")]) })
    };
    let sent = members(true, Reasoning::Auto, json!({}));
    assert_eq!(
        (&sent["reasoning"], &sent["include"]),
        (&json!({ "summary": "auto" }), &json!(["reasoning.encrypted_content"]))
    );
    assert_eq!(
        sent["text"]["format"],
        json!({ "type": "json_schema", "name": "answer", "schema": { "type": "object" }, "strict": false })
    );
    assert_eq!(members(true, Reasoning::High, json!({}))["reasoning"], json!({ "effort": "high", "summary": "auto" }));
    let sent = members(
        true,
        Reasoning::None,
        json!({ "store": true, "include": [], "text": { "verbosity": "low" }, "max_output_tokens": 9 }),
    );
    assert_eq!(sent["reasoning"]["effort"], "none");
    assert_eq!((&sent["store"], &sent["include"], &sent["max_output_tokens"]), (&json!(true), &json!([]), &json!(9)));
    assert_eq!((&sent["text"]["verbosity"], &sent["text"]["format"]["type"]), (&json!("low"), &json!("json_schema")));
    let plain = members(false, Reasoning::High, json!({}));
    assert_eq!((plain.get("reasoning"), plain.get("include"), plain.get("tools")), (None, None, None));
    // Of one that nothing is known of nothing is said, unless it is asked for or its name at the vendor's tells.
    let unknown = |model: &str, vendor: bool, reasoning: Reasoning| {
        let spec = Spec { facts: ModelFacts::default(), model: model.into(), vendor, ..spec() };
        body(&spec, &ModelRequest { reasoning, ..request(vec![user("a")]) }).get("reasoning").is_some()
    };
    #[rustfmt::skip]
    let table = [
        ("m", false, Reasoning::Auto, false), ("m", false, Reasoning::Low, true), ("gpt-9", true, Reasoning::Auto, true),
        ("gpt-4o-2024-05-13", true, Reasoning::Auto, false), ("ft:gpt-4.1:us", true, Reasoning::Auto, false), ("gpt-4.9", true, Reasoning::High, true),
    ];
    for (model, vendor, reasoning, want) in table {
        assert_eq!(unknown(model, vendor, reasoning), want, "{model} {vendor} {reasoning:?}");
    }
    // No member stands there twice.
    let settings = json!({ "store": true, "stream": true, "text": {}, "reasoning": {}, "prompt_cache_key": "k" });
    let spec = Spec {
        body: settings.as_object().cloned().unwrap_or_default(),
        ..Spec { facts: ModelFacts::default(), ..spec() }
    };
    let request =
        ModelRequest { cache_key: Some("x".into()), output_schema: Some(Arc::new(json!({}))), ..request(vec![]) };
    let sent = encode(&spec, &request, &Arc::new(tell(&[]).expect("JSON"))).expect("JSON");
    let text = String::from_utf8(sent.to_vec()).expect("text");
    for name in ["store", "stream", "text", "reasoning", "prompt_cache_key"] {
        assert_eq!(text.matches(&format!("\"{name}\":")).count(), 1, "{name} in {text}");
    }
}

#[test]
fn items_go_back_as_they_came_to_the_model_that_they_came_from() {
    let odd = json!({ "type": "odd", "zeta": [1.5, null], "alpha": { "b": 1, "a": 2 } });
    let items = vec![reasoning("secret"), odd, message("so"), function("c1", "mcp__x__y", "{ \"a\" : 1 }")];
    let sent = |original: Original, calls: &[&str], spec: &Spec| {
        let calls = calls.iter().map(|id| call(id)).collect();
        let said = Message::Assistant { text: "so".into(), calls, original: Some(Arc::new(original)) };
        let sent = body(spec, &request(vec![user("a"), said]));
        sent["input"].as_array().expect("a list")[1..].to_vec()
    };
    let original = |wire: &str, model: &str, items: &[Value]| Original {
        wire: wire.into(),
        model: model.into(),
        items: items.to_vec(),
        paused: false,
    };
    let own = sent(original(NAME, MODEL, &items), &["c1"], &spec());
    assert_eq!(serde_json::to_string(&own).ok(), serde_json::to_string(&items).ok(), "byte for byte");
    for (other, calls) in [
        (original(NAME, "openai/other", &items), vec!["c1"]),
        (original("openai-chat", MODEL, &items), vec!["c1"]),
        (original(NAME, MODEL, &items), vec!["c2"]),
        (original(NAME, MODEL, &items), vec!["c1", "c2"]),
        (original(NAME, MODEL, &items), vec![]),
    ] {
        let told = sent(other.clone(), &calls, &spec());
        assert_eq!(told[0]["content"], json!([{ "type": "output_text", "text": "so" }]), "{other:?}");
        let ids: Vec<&str> = told[1..].iter().filter_map(|item| item["call_id"].as_str()).collect();
        assert_eq!(ids, calls);
    }
    // What is kept on the other side alone is not there, unless it is to be.
    let bare = [json!({ "type": "reasoning", "id": "rs", "summary": [] }), message("so")];
    assert_eq!(sent(original(NAME, MODEL, &bare), &[], &spec()), bare[1..]);
    let stores = Spec { body: json!({ "store": true }).as_object().cloned().unwrap_or_default(), ..spec() };
    assert_eq!(sent(original(NAME, MODEL, &bare), &[], &stores), bare);
}

#[test]
fn what_is_added_to_a_request_is_what_would_be_written_anew() {
    let told = Arc::new(tell(&[]).expect("no tools"));
    let items = vec![reasoning("x"), function("c", "mcp__x__y", "{}")];
    let original = Some(Arc::new(Original { wire: NAME.into(), model: MODEL.into(), items, paused: false }));
    let round = [
        user("a"),
        Message::Assistant { text: String::new(), calls: vec![call("c")], original },
        result("c", "\"o\"\n[", vec![Part::Image { media_type: "image/png".into(), data: "QQ==".into() }]),
        Message::assistant("said [", vec![]),
        user(&"long ".repeat(2_000)),
    ];
    let mut grown = Messages::default();
    for (at, message) in round.iter().cycle().take(60).enumerate() {
        grown.push(message.clone());
        let request = |messages| ModelRequest { system: "s".into(), messages, ..ModelRequest::default() };
        let kept = encode(&spec(), &request(grown.clone()), &told).expect("JSON");
        let anew = encode(&spec(), &request(grown.to_vec().into()), &told).expect("JSON");
        assert!(kept == anew, "after {} messages", at + 1);
    }
}

#[test]
fn addresses() {
    #[rustfmt::skip]
    let table = [
        ("https://api.openai.com/v1", "https://api.openai.com/v1/responses"), ("http://127.0.0.1:8080/", "http://127.0.0.1:8080/v1/responses"),
        ("https://host/api/codex", "https://host/api/codex/responses"), ("https://host/v1/responses?v=2", "https://host/v1/responses?v=2"),
    ];
    for (base, want) in table {
        assert_eq!(Responses.url(base, "m"), want);
    }
}
