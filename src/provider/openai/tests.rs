//! The assembling of replies, as tables. The wire itself is tried in tests/it/openai.rs.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::assemble::Assembler;
use super::request::{encode, tell};
use super::{CHAT, Chat, VERSION};
use crate::base::limit;
use crate::model::{Messages, ModelError, ModelEvent, ModelRequest, StopReason};
use crate::protocol::{Cost, Message, Part, ToolCallRequest};
use crate::provider::wire::{Assemble as _, Redactor, Spec, Wire as _, route_url};

fn spec() -> Spec {
    Spec { id: "openai/m".into(), model: "m".into(), ..Spec::default() }
}

/// All events of chunks whose deltas these are, and then the reason to stop.
fn assemble(deltas: &[Value], finish_reason: &str) -> Result<Vec<ModelEvent>, ModelError> {
    let mut assembler = Assembler::new("openai/m", Redactor::default());
    for delta in deltas {
        assembler.take("", &json!({ "choices": [{ "delta": delta }] }).to_string())?;
    }
    assembler.take("", &json!({ "choices": [{ "delta": {}, "finish_reason": finish_reason }] }).to_string())?;
    assembler.take("", "[DONE]")?;
    Ok(assembler.drain().collect())
}

/// Calls as `(id, name, arguments)`; of a bad one the problem in place of the arguments.
fn calls(deltas: &[Value], finish_reason: &str) -> Vec<(String, String, String)> {
    let events = assemble(deltas, finish_reason).unwrap();
    let calls = events.into_iter().filter_map(|event| match event {
        ModelEvent::Call(call) => Some((call.id, call.name, Value::Object(call.arguments).to_string())),
        ModelEvent::BadCall { id, name, problem } => Some((id, name, problem)),
        _ => None,
    });
    calls.collect()
}

fn piece(index: Option<u64>, id: Option<&str>, name: Option<&str>, arguments: Option<&str>) -> Value {
    let mut call = json!({ "function": {} });
    if let Some(index) = index {
        call["index"] = index.into();
    }
    if let Some(id) = id {
        call["id"] = id.into();
    }
    if let Some(name) = name {
        call["function"]["name"] = name.into();
    }
    if let Some(arguments) = arguments {
        call["function"]["arguments"] = arguments.into();
    }
    json!({ "tool_calls": [call] })
}

#[test]
fn calls_come_together_from_any_pieces() {
    #[rustfmt::skip]
    let table: &[(&str, Vec<Value>, &[(&str, &str, &str)])] = &[
        ("interleaved", vec![
            piece(Some(0), Some("a"), Some("x"), Some("")), piece(Some(1), Some("b"), Some("y"), Some("{\"n\"")),
            piece(Some(0), None, None, Some("{\"m\":1")), piece(Some(1), None, None, Some(":2}")), piece(Some(0), None, None, Some("}")),
        ], &[("a", "x", "{\"m\":1}"), ("b", "y", "{\"n\":2}")]),
        ("a late id and a name in two pieces", vec![
            piece(Some(0), None, Some("fs_"), Some("{")), piece(Some(0), Some(""), Some("read"), None), piece(Some(0), Some("a"), None, Some("}")),
        ], &[("a", "fs_read", "{}")]),
        ("a name that is repeated", vec![
            piece(Some(0), Some("a"), Some("x"), Some("{")), piece(Some(0), Some("a"), Some("x"), Some("}")),
        ], &[("a", "x", "{}")]),
        ("no index, found by id or by being the last", vec![
            piece(None, Some("a"), Some("x"), Some("{\"m\"")), piece(None, None, None, Some(":1}")), piece(None, Some("b"), Some("y"), Some("{}")),
            piece(None, Some("b"), None, Some(" ")),
        ], &[("a", "x", "{\"m\":1}"), ("b", "y", "{}")]),
        ("index 0 for every call", vec![
            piece(Some(0), Some("a"), Some("x"), Some("{}")), piece(Some(0), Some("b"), Some("x"), Some("{\"m\"")), piece(Some(0), None, None, Some(":1}")),
        ], &[("a", "x", "{}"), ("b", "x", "{\"m\":1}")]),
        ("indexes with gaps", vec![piece(Some(7), Some("a"), Some("x"), None), piece(Some(3), Some("b"), Some("y"), Some(" "))],
            &[("a", "x", "{}"), ("b", "y", "{}")]),
    ];
    for (what, deltas, want) in table {
        let want: Vec<_> = want.iter().map(|(i, n, a)| ((*i).to_owned(), (*n).to_owned(), (*a).to_owned())).collect();
        assert_eq!(calls(deltas, "tool_calls"), want, "{what}");
    }
}

#[test]
fn arguments_cut_at_any_byte() {
    let arguments = r#"{"a":"ä\"\\n","b":[1,{}]}"#;
    for cut in (0..=arguments.len()).filter(|at| arguments.is_char_boundary(*at)) {
        let (first, second) = arguments.split_at(cut);
        let deltas = [piece(Some(0), Some("a"), Some("x"), Some(first)), piece(Some(0), None, None, Some(second))];
        assert_eq!(calls(&deltas, "stop")[0].2, arguments, "cut at {cut}");
    }
}

#[test]
fn arguments_that_are_no_object() {
    #[rustfmt::skip]
    let table = [
        ("[1]", "tool_calls", "got an array"), ("\"{}\"", "tool_calls", "got a string"), ("null", "tool_calls", "got null"),
        ("{\"a\":", "tool_calls", "not a JSON object: EOF"), ("{\"a\": \"half", "length", "limit of tokens inside the arguments"),
        ("{} {}", "stop", "trailing"),
    ];
    for (arguments, reason, words) in table {
        let got = calls(&[piece(Some(0), Some("a"), Some("x"), Some(arguments))], reason);
        assert!(got[0].2.contains(words), "{arguments}: {}", got[0].2);
    }
    let got = calls(&[piece(Some(0), Some("a"), None, Some("{}"))], "stop");
    assert_eq!(got[0].2, "the call names no tool");
}

#[test]
fn reasons_to_stop() {
    let call = || piece(Some(0), Some("a"), Some("x"), Some("{}"));
    #[rustfmt::skip]
    let table = [
        (vec![], "stop", StopReason::EndTurn), (vec![call()], "stop", StopReason::ToolUse), (vec![call()], "tool_calls", StopReason::ToolUse),
        (vec![], "length", StopReason::Length), (vec![call()], "length", StopReason::Length),
        (vec![], "content_filter", StopReason::ContentFilter), (vec![], "eos", StopReason::EndTurn), (vec![], "end_turn", StopReason::EndTurn),
        (vec![], "model_length", StopReason::Length), (vec![], "max_tokens", StopReason::Length), (vec![call()], "tool_use", StopReason::ToolUse),
        (vec![call()], "end_turn", StopReason::ToolUse), (vec![], "sensitive", StopReason::ContentFilter), (vec![], "refusal", StopReason::Refusal),
        (vec![json!({"refusal": "no"})], "stop", StopReason::Refusal), (vec![json!({"refusal": ""})], "stop", StopReason::EndTurn),
        (vec![json!({"refusal": "no"}), call()], "stop", StopReason::ToolUse),
    ];
    for (deltas, word, want) in table {
        let events = assemble(&deltas, word).unwrap();
        assert_eq!(events.last(), Some(&ModelEvent::Finished(want)), "{word}");
    }
    for word in ["error", "abort", "network_error", "insufficient_system_resource"] {
        let error = assemble(&[json!({"content": "half"})], word).unwrap_err();
        assert!(matches!(&error, ModelError::Transient { message, .. } if message.contains(word)), "{error:?}");
    }
}

#[test]
fn tokens_and_money() {
    #[rustfmt::skip]
    let table = [
        (json!({"usage": {"prompt_tokens": 9, "completion_tokens": 4, "cost": 0.25,
            "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 2}, "completion_tokens_details": {"reasoning_tokens": 1}}}), [9, 4, 13, 3, 2, 1], 0.25),
        (json!({"usage": {"prompt_tokens": 9, "prompt_cache_hit_tokens": 3, "total_tokens": 9}}), [9, 0, 9, 3, 0, 0], 0.0),
        (json!({"choices": [{"usage": {"prompt_tokens": 1, "completion_tokens": 2}}]}), [1, 2, 3, 0, 0, 0], 0.0),
        (json!({"usage": {"prompt_tokens": 1}, "choices": [{"usage": null}]}), [1, 0, 1, 0, 0, 0], 0.0),
    ];
    for (chunk, want, cost) in table {
        let mut assembler = Assembler::new("openai/m", Redactor::default());
        assembler
            .take("", &json!({"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]}).to_string())
            .unwrap();
        assembler.take("", &chunk.to_string()).unwrap();
        assembler.close().unwrap();
        let used =
            assembler.drain().find_map(|event| if let ModelEvent::Usage(used) = event { Some(used) } else { None });
        let used = used.expect("tokens");
        let got = [
            used.input_tokens,
            used.output_tokens,
            used.total_tokens,
            used.cached_input_tokens,
            used.cache_write_tokens,
            used.reasoning_tokens,
        ];
        assert_eq!((got, used.cost), (want, Cost::of_dollars(cost)), "{chunk}");
    }
}

/// What a reply of these deltas is given back as, to the model of that id.
fn given_back(deltas: &[Value], id: &str) -> Value {
    let events = assemble(deltas, "stop").unwrap();
    let (mut text, mut calls, mut original) = (String::new(), Vec::new(), None);
    for event in events {
        match event {
            ModelEvent::Text(more) => text.push_str(&more),
            ModelEvent::Call(call) => calls.push(call),
            ModelEvent::Original(own) => original = Some(own),
            _ => {}
        }
    }
    let messages = Messages::from(vec![Message::Assistant { text, calls, original }]);
    let request = ModelRequest { messages, ..ModelRequest::default() };
    let spec = Spec { id: id.into(), ..spec() };
    let body = encode(&spec, &request, &Arc::new(tell(&[]).expect("no tools"))).expect("JSON");
    serde_json::from_slice::<Value>(&body).expect("JSON")["messages"][0].clone()
}

#[test]
fn a_model_is_given_back_what_it_wants_back_and_no_other_is() {
    let call = piece(Some(0), Some("a"), Some("x"), Some("{}"));
    let mut signed = call.clone();
    signed["tool_calls"][0]["extra_content"] = json!({"google": {"thought_signature": "sig"}});
    let detail = |detail: Value| json!({"reasoning_details": [detail]});
    let details = [
        json!({"reasoning": "shown", "reasoning_details": [{"type": "reasoning.text", "text": "so ", "index": 0, "format": "f"}]}),
        detail(json!({"type": "reasoning.text", "text": "on", "index": 0})),
        detail(json!({"type": "reasoning.text", "signature": "s", "index": 0})),
        detail(json!({"type": "reasoning.encrypted", "data": "x", "id": "1", "index": 1})),
        detail(json!({"type": "reasoning.encrypted", "data": "y", "id": "2", "index": 1})),
        json!({"content": "a"}),
    ];
    let merged = json!([
        {"type": "reasoning.text", "text": "so on", "index": 0, "format": "f", "signature": "s"},
        {"type": "reasoning.encrypted", "data": "x", "id": "1", "index": 1},
        {"type": "reasoning.encrypted", "data": "y", "id": "2", "index": 1},
    ]);
    let thinks = |word: &str| json!({"reasoning_content": word});
    let wire_call = json!({"id": "a", "type": "function", "function": {"name": "x", "arguments": "{}"}});
    let mut with_extra = wire_call.clone();
    with_extra["extra_content"] = signed["tool_calls"][0]["extra_content"].clone();
    #[rustfmt::skip]
    let table = [
        (details.to_vec(), json!({"role": "assistant", "content": "a", "reasoning_details": merged}), json!({"role": "assistant", "content": "a"})),
        (vec![thinks("h"), thinks("m"), call.clone()], json!({"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [wire_call]}),
            json!({"role": "assistant", "content": null, "tool_calls": [wire_call]})),
        // Without a call nobody needs its thoughts, and some refuse them.
        (vec![thinks("hm"), json!({"content": "a"})], json!({"role": "assistant", "content": "a"}), json!({"role": "assistant", "content": "a"})),
        (vec![signed], json!({"role": "assistant", "content": null, "tool_calls": [with_extra]}), json!({"role": "assistant", "content": null, "tool_calls": [wire_call]})),
        (vec![json!({"reasoning": "hm"}), call.clone()], json!({"role": "assistant", "content": null, "tool_calls": [wire_call]}), json!({"role": "assistant", "content": null, "tool_calls": [wire_call]})),
    ];
    for (deltas, own, others) in table {
        assert_eq!(given_back(&deltas, "openai/m"), own, "{deltas:?}");
        assert_eq!(given_back(&deltas, "openai/other"), others, "{deltas:?}");
    }
}

#[test]
fn what_only_some_know_is_sent_to_them_alone_and_settings_go_first() {
    let sent = |vendor: bool, settings: Value| {
        let body = settings.as_object().cloned().unwrap_or_default();
        let spec = Spec { vendor, body, ..spec() };
        let request = ModelRequest {
            cache_key: Some("ses_1".into()),
            reasoning: crate::protocol::Reasoning::Low,
            output_schema: Some(Arc::new(json!({"type": "object"}))),
            ..ModelRequest::default()
        };
        let body = encode(&spec, &request, &Arc::new(tell(&[]).expect("no tools"))).expect("JSON");
        let text = String::from_utf8(body.to_vec()).expect("text");
        for name in ["reasoning_effort", "response_format", "stream_options", "prompt_cache_key"] {
            assert!(text.matches(&format!("\"{name}\":")).count() <= 1, "{name} in {text}");
        }
        serde_json::from_str::<Value>(&text).expect("JSON")
    };
    let (own, others) = (sent(true, json!({})), sent(false, json!({})));
    assert_eq!((&own["prompt_cache_key"], others.get("prompt_cache_key")), (&json!("ses_1"), None));
    assert_eq!((&others["reasoning_effort"], others.get("max_completion_tokens")), (&json!("low"), None));
    assert_eq!(others["response_format"]["json_schema"]["schema"], json!({"type": "object"}));
    let settings = json!({"reasoning_effort": "max", "stream_options": {}, "max_completion_tokens": 9});
    let given = sent(true, settings);
    assert_eq!((&given["reasoning_effort"], &given["stream_options"]), (&json!("max"), &json!({})));
    assert_eq!(given["max_completion_tokens"], 9);
    let vendor = |base: &str| Chat.url(base, "m").starts_with(Chat.vendor().expect("one"));
    assert!(vendor("https://api.openai.com/v1") && vendor("https://api.openai.com"));
    assert!(
        !vendor("https://openrouter.ai/api/v1")
            && !vendor("http://127.0.0.1:8080")
            && !vendor("https://api.openai.com.x/v1")
    );
}

#[test]
fn reasoning_and_refusal() {
    let deltas =
        [json!({"reasoning_content": "hm"}), json!({"reasoning": "so"}), json!({"content": null, "refusal": "no"})];
    let events = assemble(&deltas, "stop").unwrap();
    let want = [ModelEvent::Reasoning("hm".into()), ModelEvent::Reasoning("so".into()), ModelEvent::Text("no".into())];
    assert_eq!(events[..3], want);
}

#[test]
fn spellings_of_others() {
    let deltas = [
        json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}),
        json!({"tool_calls": [{"id": "a", "function": {"name": "x", "arguments": {"n": 1}}}]}),
    ];
    let events = assemble(&deltas, "stop").unwrap();
    assert_eq!(events[..2], [ModelEvent::Reasoning("hm".into()), ModelEvent::Text("ab".into())]);
    assert_eq!(calls(&deltas, "stop"), [("a".into(), "x".into(), "{\"n\":1}".into())]);
    // An empty reason to stop is none.
    let mut assembler = Assembler::new("openai/m", Redactor::default());
    assembler
        .take("", "{\"choices\": [{\"delta\": {\"content\": \"a\"}, \"finish_reason\": \"\"}], \"usage\": {}}")
        .unwrap();
    assert!(assembler.close().is_err());
}

#[test]
fn a_reply_has_a_limit() {
    let mebibyte = "x".repeat(1 << 20);
    let count = limit::MODEL_REPLY_BYTES_MAX >> 20;
    for delta in [json!({ "content": mebibyte }), piece(Some(0), Some("a"), Some("x"), Some(&mebibyte))] {
        let error = assemble(&vec![delta; count + 1], "stop").unwrap_err();
        assert!(matches!(&error, ModelError::Malformed(words) if words.contains("longer than")), "{error:?}");
    }
}

#[test]
fn addresses() {
    #[rustfmt::skip]
    let table = [
        ("https://api.openai.com/v1", "https://api.openai.com/v1/chat/completions"),
        ("https://api.openai.com", "https://api.openai.com/v1/chat/completions"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080/v1/chat/completions"),
        ("https://host/v1beta/openai/", "https://host/v1beta/openai/chat/completions"),
        ("https://host/v1/chat/completions", "https://host/v1/chat/completions"),
        ("https://host/v1?version=2", "https://host/v1/chat/completions?version=2"),
        ("https://host/v1/chat/completions?version=2&a=b/c", "https://host/v1/chat/completions?version=2&a=b/c"),
        ("https://host?a=/b#c", "https://host/v1/chat/completions?a=/b"),
    ];
    for (base, want) in table {
        assert_eq!(route_url(base, VERSION, CHAT), want);
    }
}

/// What a conversation is sent as after each of these many messages: once with what was kept of the request before, and once
/// written anew.
fn sent_both_ways(messages: &[Message], systems: &[&str]) -> Vec<(Bytes, Bytes)> {
    let told = Arc::new(tell(&[]).expect("no tools"));
    let mut grown = Messages::default();
    let each = messages.iter().zip(systems.iter().cycle()).map(|(message, system)| {
        grown.push(message.clone());
        let request = |messages| ModelRequest { system: (*system).to_owned(), messages, ..ModelRequest::default() };
        let kept = encode(&spec(), &request(grown.clone()), &told).expect("plain text");
        let anew = encode(&spec(), &request(grown.to_vec().into()), &told).expect("plain text");
        (kept, anew)
    });
    each.collect()
}

#[test]
fn what_is_added_to_a_request_is_what_would_be_written_anew() {
    let user = |text: &str| Message::User(vec![Part::Text { text: text.into() }]);
    let image = || Part::Image { media_type: "image/png".into(), data: "QQ==".into() };
    let called = |parts| Message::ToolResult {
        call_id: "c".into(),
        name: "mcp:x/y".into(),
        output: "\"o\"\n".into(),
        is_error: false,
        parts,
    };
    let call = ToolCallRequest { id: "c".into(), name: "mcp:x/y".into(), arguments: serde_json::Map::new() };
    let round = [
        user("a"),
        Message::assistant("", vec![call.clone(), call]),
        called(vec![image()]),
        called(Vec::new()),
        Message::assistant("said [", Vec::new()),
        user(&"long ".repeat(2_000)),
    ];
    // From nothing kept over copies to what is never copied.
    let all: Vec<Message> = round.iter().cycle().take(120).cloned().collect();
    for systems in [&["be good"][..], &[""], &["one", "one", "one", "another"]] {
        for (at, (kept, anew)) in sent_both_ways(&all, systems).into_iter().enumerate() {
            assert!(kept == anew, "after {} messages, {systems:?}", at + 1);
            let json: Value = serde_json::from_slice(&kept).expect("JSON");
            assert_eq!(json["stream"], true);
        }
    }
}

#[test]
fn other_tools_make_another_request() {
    let tools = |name: &str| {
        let tool = json!({ "name": name, "description": "d", "parameters": {} });
        Arc::new(tell(&[serde_json::from_value(tool).expect("a tool")]).expect("JSON"))
    };
    let call = ToolCallRequest { id: "c".into(), name: "a/b".into(), arguments: serde_json::Map::new() };
    let mut messages = Messages::from(vec![Message::User(vec![Part::Text { text: "x".repeat(20_000) }])]);
    messages.push(Message::assistant("", vec![call]));
    let request = ModelRequest { messages, ..ModelRequest::default() };
    for name in ["a/b", "a__b", "c"] {
        let (told, fresh) =
            (tools(name), ModelRequest { messages: request.messages.to_vec().into(), ..request.clone() });
        assert_eq!(encode(&spec(), &request, &told), encode(&spec(), &fresh, &told), "{name}");
        let sent: Value = serde_json::from_slice(&encode(&spec(), &request, &told).expect("JSON")).expect("JSON");
        assert_eq!(sent["tools"].as_array().map(Vec::len), Some(1));
    }
}

/// What only differs in its text from the chunk before is not read anew.
mod alike {
    use proptest::prelude::*;

    use super::*;

    fn read(pieces: &[(u8, String)], padded: bool) -> Vec<ModelEvent> {
        let mut assembler = Assembler::new("openai/m", Redactor::default());
        for (number, (kind, text)) in pieces.iter().enumerate() {
            let delta = match kind {
                0..=3 => json!({ "content": text }),
                4 => json!({ "reasoning_content": text }),
                5 => json!({ "content": text, "reasoning": text }),
                6 => json!({ "content": text, "refusal": text }),
                7 => json!({ "content": [{ "type": "text", "text": text }] }),
                8 => piece(Some(0), Some("a"), Some("t"), Some(text)),
                _ => json!({ "content": text, "tool_calls": [{ "index": 0, "function": { "arguments": text } }] }),
            };
            let mut chunk =
                json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": null }], "error": null });
            if *kind == 1 {
                chunk["usage"] = json!({ "prompt_tokens": text.len() });
            }
            if padded {
                // No two of them are alike.
                chunk["number"] = number.into();
            }
            assembler.take("", &chunk.to_string()).unwrap();
        }
        assembler.take("", &json!({ "choices": [{ "delta": {}, "finish_reason": "stop" }] }).to_string()).unwrap();
        assembler.take("", "[DONE]").unwrap();
        assembler.drain().collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn say_what_they_would_when_read(pieces in proptest::collection::vec((0_u8..10, "[a-c\"\\\\é\n{}]{0,3}"), 0..40)) {
            prop_assert_eq!(read(&pieces, false), read(&pieces, true));
        }
    }
}
