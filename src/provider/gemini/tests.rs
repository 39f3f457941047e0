//! Replies and conversations, as tables. The wire itself is tried in tests/it/gemini.rs.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::GenerateContent;
use super::assemble::Assembler;
use super::request::{Purpose, encode, tell};
use crate::base::limit;
use crate::model::{Messages, ModelError, ModelEvent, ModelRequest, StopReason};
use crate::protocol::{Message, Original, Part, Reasoning, ToolCallRequest, Usage};
use crate::provider::wire::{Assemble as _, Redactor, Spec, Wire as _};

fn spec() -> Spec {
    Spec { id: "gemini/gemini-3.8-flash".into(), model: "gemini-3.8-flash".into(), ..Spec::default() }
}

fn assembler() -> Assembler {
    Assembler::new(&spec().id, Redactor::default())
}

fn chunk(parts: Value, finish: Option<&str>) -> Value {
    json!({ "candidates": [{ "content": { "role": "model", "parts": parts }, "finishReason": finish, "index": 0 }] })
}

fn assemble(parts: &[Value], finish: &str) -> Result<Vec<ModelEvent>, ModelError> {
    let mut assembler = assembler();
    for part in parts {
        assembler.take("", &chunk(json!([part]), None).to_string())?;
    }
    assembler.take("", &chunk(json!([]), Some(finish)).to_string())?;
    assembler.close()?;
    Ok(assembler.drain().collect())
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

fn body(spec: &Spec, request: &ModelRequest) -> Value {
    let told = Arc::new(tell(&request.tools).unwrap());
    serde_json::from_slice(&encode(spec, request, &told, Purpose::Answer).unwrap()).unwrap()
}

fn sent(spec: &Spec, messages: Vec<Message>) -> Value {
    let request = ModelRequest { messages: messages.into(), ..ModelRequest::default() };
    let body = body(spec, &request);
    let contents = body["contents"].as_array().unwrap().iter();
    contents.map(|content| json!([content["role"], content["parts"]])).collect()
}

#[test]
fn every_kind_of_part() {
    let mut assembler = assembler();
    let usage = |output: u64| json!({ "promptTokenCount": 100, "cachedContentTokenCount": 40, "candidatesTokenCount": output, "thoughtsTokenCount": 5, "totalTokenCount": 105 + output });
    let mut first = chunk(json!([{ "text": "hm", "thought": true }]), None);
    first["usageMetadata"] = usage(1);
    let mut last = chunk(
        json!([{ "functionCall": { "id": "a", "name": "t", "args": { "x": 1 } }, "thoughtSignature": "sig" }, { "inlineData": {} }]),
        Some("STOP"),
    );
    last["usageMetadata"] = usage(9);
    for chunk in [first, chunk(json!([{ "text": "Well " }]), None), chunk(json!([{ "text": "ä\n" }]), None), last] {
        assembler.take("", &chunk.to_string()).unwrap();
    }
    assembler.close().unwrap();
    let items = vec![
        json!({ "text": "Well ä\n" }),
        json!({ "functionCall": { "id": "a", "name": "t", "args": { "x": 1 } }, "thoughtSignature": "sig" }),
    ];
    let want = vec![
        ModelEvent::Reasoning("hm".into()),
        ModelEvent::Text("Well ".into()),
        ModelEvent::Text("ä\n".into()),
        ModelEvent::Call(call("a", json!({ "x": 1 }))),
        ModelEvent::Original(Arc::new(Original { wire: "gemini".into(), model: spec().id, items, paused: false })),
        ModelEvent::Usage(Usage {
            input_tokens: 100,
            output_tokens: 14,
            total_tokens: 114,
            cached_input_tokens: 40,
            reasoning_tokens: 5,
            ..Usage::default()
        }),
        ModelEvent::Finished(StopReason::ToolUse),
    ];
    assert_eq!(assembler.drain().collect::<Vec<_>>(), want);
}

#[test]
fn calls_without_ids_get_their_own_and_bad_ones_are_told() {
    let part = |args: Value| json!({ "functionCall": { "name": "t", "args": args } });
    let events = assemble(&[part(json!({ "x": 1 })), part(json!({ "x": 1 })), part(Value::Null)], "STOP").unwrap();
    let ids: std::collections::HashSet<&str> = events
        .iter()
        .filter_map(|event| match event {
            ModelEvent::Call(call) => Some(call.id.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!((ids.len(), events.last()), (3, Some(&ModelEvent::Finished(StopReason::ToolUse))));
    let events = assemble(&[part(json!([1])), json!({ "functionCall": { "args": {} } })], "STOP").unwrap();
    let problems: Vec<&str> = events
        .iter()
        .filter_map(|event| match event {
            ModelEvent::BadCall { problem, .. } => Some(problem.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(problems, ["the arguments must be one JSON object, got an array", "the call names no tool"]);
}

#[test]
fn a_call_beside_a_text_and_one_that_nobody_can_read() {
    let part = json!({ "text": "", "functionCall": { "name": "t", "args": { "x": 1 } }, "thoughtSignature": "s" });
    let events = assemble(&[part], "STOP").unwrap();
    let [ModelEvent::Call(made), ModelEvent::Original(original), ModelEvent::Finished(StopReason::ToolUse)] =
        &events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!(made.arguments, *json!({ "x": 1 }).as_object().unwrap());
    let kept = json!([{ "functionCall": { "name": "t", "args": { "x": 1 } }, "thoughtSignature": "s" }]);
    assert_eq!(json!(original.items), kept);
    let both = assemble(&[json!({ "text": "so", "functionCall": { "name": "t" } })], "STOP").unwrap();
    assert!(matches!(&both[..], [ModelEvent::Text(text), ModelEvent::Call(_), _] if text == "so"), "{both:?}");
    // Deeper than any log could be read again: the model is told, and the call goes back without them.
    for levels in [120, 10_000] {
        let deep = format!("{{\"x\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
        let chunk = format!(
            "{{\"candidates\":[{{\"content\":{{\"parts\":[{{\"functionCall\":{{\"id\":\"a\",\"name\":\"t\",\"args\":{deep}}},\"thoughtSignature\":\"s\"}}]}},\"finishReason\":\"STOP\"}}]}}"
        );
        let mut assembler = assembler();
        assembler.take("", &chunk).unwrap();
        assembler.close().unwrap();
        let events: Vec<ModelEvent> = assembler.drain().collect();
        let [ModelEvent::BadCall { problem, .. }, ModelEvent::Original(original), _] = &events[..] else {
            panic!("{events:?}")
        };
        assert!(problem.contains("nested more than 100 deep") || problem.contains("recursion"), "{problem}");
        assert_eq!(original.items[0]["functionCall"], json!({ "id": "a", "name": "t", "args": {} }));
    }
}

#[test]
fn a_call_that_was_named_anew_keeps_its_signature() {
    let part = |signature: &str| json!({ "functionCall": { "id": "x", "name": "t", "args": {} }, "thoughtSignature": signature });
    let events = assemble(&[part("s1"), part("s2")], "STOP").unwrap();
    let Some(ModelEvent::Original(original)) = events.iter().find(|event| matches!(event, ModelEvent::Original(_)))
    else {
        panic!()
    };
    // So the loop calls them.
    let calls = vec![call("x", json!({})), call("x_2", json!({}))];
    let reply = Message::Assistant { text: String::new(), calls, original: Some(Arc::clone(original)) };
    let all = sent(&spec(), vec![user("a"), reply, result("x_2", "2", false, vec![]), result("x", "1", false, vec![])]);
    let mut second = part("s2");
    second["functionCall"]["id"] = "x_2".into();
    assert_eq!(all[1][1], json!([part("s1"), second]));
    let came = |id: &str, output: &str| json!({ "functionResponse": { "id": id, "name": "t", "response": { "output": output } } });
    assert_eq!(all[2][1], json!([came("x", "1"), came("x_2", "2")]));
}

#[test]
fn reasons_to_stop() {
    let text = || vec![json!({ "text": "a" })];
    #[rustfmt::skip]
    let table = [
        ("STOP", StopReason::EndTurn), ("MAX_TOKENS", StopReason::Length), ("SAFETY", StopReason::ContentFilter), ("RECITATION", StopReason::ContentFilter),
        ("BLOCKLIST", StopReason::ContentFilter), ("PROHIBITED_CONTENT", StopReason::ContentFilter), ("SPII", StopReason::ContentFilter),
        ("IMAGE_SAFETY", StopReason::ContentFilter), ("LANGUAGE", StopReason::ContentFilter), ("NEW_ONE", StopReason::EndTurn),
    ];
    for (reason, want) in table {
        assert_eq!(assemble(&text(), reason).unwrap().last(), Some(&ModelEvent::Finished(want)), "{reason}");
    }
    for reason in
        ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "OTHER", "MALFORMED_RESPONSE", "TOO_MANY_TOOL_CALLS"]
    {
        assert_eq!(assemble(&text(), reason).unwrap_err().kind(), "transient", "{reason}");
    }
    let blocked = assembler().take("", "{\"promptFeedback\":{\"blockReason\":\"PROHIBITED_CONTENT\"}}").unwrap_err();
    assert!(matches!(&blocked, ModelError::Blocked(words) if words.contains("PROHIBITED_CONTENT")), "{blocked:?}");
    assert_eq!(assembler().close().unwrap_err().kind(), "transient");
}

#[test]
fn errors_have_their_kinds() {
    #[rustfmt::skip]
    let table = [
        (400, "INVALID_ARGUMENT", "what?", "refused"), (401, "UNAUTHENTICATED", "who?", "unauthorized"), (403, "PERMISSION_DENIED", "no", "unauthorized"),
        (404, "NOT_FOUND", "where?", "refused"), (429, "RESOURCE_EXHAUSTED", "slowly", "transient"), (503, "UNAVAILABLE", "busy", "transient"),
        (400, "INVALID_ARGUMENT", "The input token count (1100000) exceeds the maximum number of tokens allowed (1048576).", "context_overflow"),
    ];
    for (code, status, message, want) in table {
        let error = json!({ "error": { "code": code, "message": message, "status": status } });
        for body in [error.to_string(), json!([error]).to_string()] {
            assert_eq!(assembler().take("", &body).unwrap_err().kind(), want, "{body}");
            assert_eq!(assembler().take_whole(&body).unwrap_err().kind(), want, "{body}");
        }
    }
    for garbage in ["<html>", "{\"candidates\":3}", "{\"candidates\"", "[1]"] {
        assert_eq!(assembler().take("", garbage).unwrap_err().kind(), "malformed", "{garbage}");
    }
    assert_eq!(assembler().take_whole("{\"hello\":1}").unwrap_err().kind(), "malformed");
    let mut secret = Assembler::new("g/m", Redactor::new(Some(&"AIza-very-secret".into()), "https://x"));
    let error = json!({ "error": { "code": 400, "message": "AIza-very-secret is no key" } }).to_string();
    let words = secret.take("", &error).unwrap_err().to_string();
    assert!(words.contains("*** is no key"), "{words}");
}

#[test]
fn an_answer_that_is_not_streamed() {
    let chunks = json!([chunk(json!([{ "text": "a" }]), None), chunk(json!([{ "text": "b" }]), Some("STOP"))]);
    for body in [chunks, chunk(json!([{ "text": "a" }, { "text": "b" }]), Some("STOP"))] {
        let mut assembler = assembler();
        assembler.take_whole(&body.to_string()).unwrap();
        let want =
            [ModelEvent::Text("a".into()), ModelEvent::Text("b".into()), ModelEvent::Finished(StopReason::EndTurn)];
        assert_eq!(assembler.drain().collect::<Vec<_>>(), want);
    }
}

#[test]
fn a_reply_has_a_limit() {
    let mebibyte = "x".repeat(1 << 20);
    let count = limit::MODEL_REPLY_BYTES_MAX >> 20;
    for part in [
        json!({ "text": mebibyte }),
        json!({ "text": "", "thoughtSignature": mebibyte }),
        json!({ "functionCall": { "name": "t", "args": { "x": mebibyte } } }),
        json!({ "executableCode": { "code": mebibyte } }),
    ] {
        let error = assemble(&vec![part; count + 1], "STOP").unwrap_err();
        assert!(matches!(&error, ModelError::Malformed(words) if words.contains("longer than")), "{error:?}");
    }
    let calls = vec![json!({ "functionCall": { "name": "t" } }); 1_001];
    assert_eq!(assemble(&calls, "STOP").unwrap_err().kind(), "malformed");
}

#[test]
fn what_came_goes_back_as_it_came_to_the_same_model_alone() {
    let parts = [
        json!({ "text": "thought", "thought": true }),
        json!({ "text": "said" }),
        json!({ "functionCall": { "name": "t", "args": { "x": 1.0 } }, "thoughtSignature": "s1" }),
        json!({ "functionCall": { "id": "b", "name": "t" } }),
        json!({ "executableCode": { "code": "1" } }),
        json!({ "text": "", "thoughtSignature": "s2" }),
    ];
    let events = assemble(&parts, "STOP").unwrap();
    let [_, _, ModelEvent::Call(first), ModelEvent::Call(second), ModelEvent::Original(original), _] = &events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!(json!(original.items), json!(parts[1..]));
    let talk = |spec: &Spec, original: Original| {
        let calls = vec![first.clone(), second.clone()];
        let results = [result(&second.id, "2", false, vec![]), result(&first.id, "1", true, vec![])];
        let reply = Message::Assistant { text: "said".into(), calls, original: Some(Arc::new(original)) };
        sent(spec, [user("a"), reply].into_iter().chain(results).collect())
    };
    let same = talk(&spec(), (**original).clone());
    assert_eq!(same[1][1], json!(parts[1..]));
    let want = json!([
        { "functionResponse": { "name": "t", "response": { "error": "1" } } },
        { "functionResponse": { "id": "b", "name": "t", "response": { "output": "2" } } },
    ]);
    assert_eq!(same[2][1], want);
    // Of another model: in our words, with the wire's own word for a signature where one is asked for.
    let signed = |signature: Option<&str>| {
        let mut call = json!({ "functionCall": { "name": "t", "args": { "x": 1.0 } } });
        if let Some(signature) = signature {
            call["thoughtSignature"] = signature.into();
        }
        json!([{ "text": "said" }, call, { "functionCall": { "name": "t", "args": {} } }])
    };
    let other = Original { model: "other".into(), ..(**original).clone() };
    assert_eq!(talk(&spec(), other.clone())[1][1], signed(Some("skip_thought_signature_validator")));
    let older = Spec { model: "gemini-2.5-pro".into(), ..spec() };
    assert_eq!(talk(&older, other)[1][1], signed(None));
    let fewer = Original { items: original.items[..1].to_vec(), ..(**original).clone() };
    assert_eq!(talk(&older, fewer)[1][1], signed(None));
}

#[test]
fn any_conversation_becomes_one_that_is_taken() {
    let older = Spec { model: "gemini-2.5-pro".into(), ..spec() };
    let text = |text: &str| json!({ "text": text });
    let used = || json!({ "functionCall": { "name": "t", "args": {} } });
    let came = |word: &str, output: &str| json!({ "functionResponse": { "name": "t", "response": { word: output } } });
    let lost = || came("error", "This call was not run.");
    let image = || Part::Image { media_type: "image/png".into(), data: "QQ==".into() };
    let shown = json!({ "inlineData": { "mimeType": "image/png", "data": "QQ==" } });
    let calls = |ids: &[&str]| Message::assistant("", ids.iter().map(|id| call(id, json!({}))).collect());
    let says = |text: &str| Message::assistant(text, vec![]);
    let ok = |id: &str| result(id, id, false, vec![]);
    let (u, m) = (|parts: Value| json!(["user", parts]), |parts: Value| json!(["model", parts]));
    #[rustfmt::skip]
    let table = [
        ("plain", vec![user("a")], json!([u(json!([text("a")]))])),
        ("nothing", vec![user(" "), says("")], json!([u(json!([text("Go on.")]))])),
        ("the model begins and ends", vec![says("x")], json!([u(json!([text("Go on.")])), m(json!([text("x")])), u(json!([text("Go on.")]))])),
        ("results in the order of the calls", vec![user("a"), calls(&["1", "2"]), ok("2"), user("s"), ok("1")],
            json!([u(json!([text("a")])), m(json!([used(), used()])), u(json!([came("output", "1"), came("output", "2")])), u(json!([text("s")]))])),
        ("calls without results", vec![user("a"), calls(&["1"]), calls(&["2"])],
            json!([u(json!([text("a")])), m(json!([used()])), u(json!([lost()])), m(json!([used()])), u(json!([lost()]))])),
        ("results without calls, and images", vec![result("0", "o", false, vec![image()]), user("a")],
            json!([u(json!([text("What t said: o"), text("What t shows:"), shown, text("a")]))])),
        ("images of results", vec![user("a"), calls(&["1"]), result("1", "o", true, vec![image()])],
            json!([u(json!([text("a")])), m(json!([used()])), u(json!([came("error", "o")])), u(json!([text("What t shows:"), shown]))])),
    ];
    for (what, messages, want) in table {
        assert_eq!(sent(&older, messages), want, "{what}");
    }
    // Newer ones take what a tool shows in its result, where it is of a kind that goes there.
    let other = Part::Image { media_type: "image/gif".into(), data: "QQ==".into() };
    let talk = vec![user("a"), calls(&["1"]), result("1", "o", false, vec![image(), other])];
    let mut within = came("output", "1");
    within["functionResponse"]["response"]["output"] = "o".into();
    within["functionResponse"]["parts"] = json!([shown]);
    let told = sent(&spec(), talk);
    assert_eq!(told[2], u(json!([within])));
    assert_eq!(told[3][1][1], text("(An image of the kind image/gif, which cannot be shown to you.)"));
}

#[test]
fn what_is_sent_beside_the_conversation() {
    let tool =
        json!({ "name": "mcp:a/b", "description": "d", "parameters": { "x": { "type": "string", "required": true } } });
    let other = json!({ "name": "c", "description": "e", "parameters": {} });
    let tools = vec![serde_json::from_value(tool).unwrap(), serde_json::from_value(other).unwrap()];
    let request = ModelRequest {
        system: "be good".into(),
        messages: vec![user("a")].into(),
        tools: tools.into(),
        reasoning: Reasoning::Low,
        output_schema: Some(Arc::new(json!({ "type": "object" }))),
        ..ModelRequest::default()
    };
    let mut spec = spec();
    spec.facts.output_tokens_max = Some(65_536);
    spec.body = Map::from_iter([
        ("safetySettings".to_owned(), json!([])),
        ("generationConfig".to_owned(), json!({ "temperature": 0, "maxOutputTokens": 9 })),
    ]);
    let mut want = json!({
        "contents": [{ "role": "user", "parts": [{ "text": "a" }] }],
        "systemInstruction": { "parts": [{ "text": "be good" }] },
        "tools": [{ "functionDeclarations": [
            { "name": "mcp__a__b", "description": "d", "parametersJsonSchema": { "type": "object", "properties": { "x": { "type": "string" } }, "required": ["x"] } },
            { "name": "c", "description": "e" },
        ] }],
        "generationConfig": {
            "maxOutputTokens": 9, "temperature": 0, "thinkingConfig": { "includeThoughts": true, "thinkingLevel": "LOW" },
            "responseMimeType": "application/json", "responseJsonSchema": { "type": "object" },
        },
        "safetySettings": [],
    });
    assert_eq!(body(&spec, &request), want);
    // A count is of the same request.
    let told = Arc::new(tell(&request.tools).unwrap());
    let counted: Value = serde_json::from_slice(&encode(&spec, &request, &told, Purpose::Count).unwrap()).unwrap();
    want.as_object_mut().unwrap().remove("safetySettings");
    want["model"] = "models/gemini-3.8-flash".into();
    assert_eq!(counted, json!({ "generateContentRequest": want }));
    assert_eq!((GenerateContent.counted("{\"totalTokens\":12}"), GenerateContent.counted("{}")), (Some(12), None));
    // Older ones take a schema or tools.
    let older = Spec { model: "gemini-2.5-pro".into(), ..Spec::default() };
    let sent = body(&older, &request);
    assert_eq!(sent["generationConfig"].get("responseJsonSchema"), None);
    let words = sent["systemInstruction"]["parts"][1]["text"].as_str().unwrap();
    assert!(words.ends_with("It fits this JSON Schema:\n{\"type\":\"object\"}"), "{words}");
}

#[test]
fn addresses() {
    let streams = "streamGenerateContent?alt=sse";
    #[rustfmt::skip]
    let table = [
        ("https://g.example", format!("https://g.example/v1beta/models/m:{streams}"), "https://g.example/v1beta/models/m:countTokens"),
        ("https://g.example/v1beta/", format!("https://g.example/v1beta/models/m:{streams}"), "https://g.example/v1beta/models/m:countTokens"),
        ("https://g.example?a=b", format!("https://g.example/v1beta/models/m:{streams}&a=b"), "https://g.example/v1beta/models/m:countTokens?a=b"),
    ];
    for (base, url, count) in table {
        for model in ["m", "models/m"] {
            assert_eq!(
                (GenerateContent.url(base, model), GenerateContent.count_url(base, model).unwrap()),
                (url.clone(), count.to_owned())
            );
        }
    }
}

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
        result("2.x", "o", false, vec![Part::Image { media_type: "image/png".into(), data: "QQ==".into() }]),
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
        let contents = json["contents"].as_array().unwrap();
        assert_eq!((&contents[0]["role"], &contents[contents.len() - 1]["role"]), (&json!("user"), &json!("user")));
    }
}
