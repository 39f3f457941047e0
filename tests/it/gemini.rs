//! Gemini's generateContent against a scripted server that speaks the true wire: what a session sends and is told, turn by turn;
//! and a session that goes from wire to wire.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use simse::config::Api;
use simse::model::{ModelFacts, ModelRequest};
use simse::protocol::{EventBody, TurnStop};
use simse::provider::{HttpModelOptions, Key, Place, http_model};
use tokio_util::sync::CancellationToken;

use crate::support::model_server::{Answer, ModelServer, Step, queue};
use crate::support::says::{PIXEL, Says, WIRES, content, event};
use crate::support::sessions::{events, open, provider, session, turn};

const GEMINI: Says = Says(Api::Gemini);

fn thought(text: &str) -> String {
    content(&json!([{ "text": text, "thought": true }]), None)
}

#[tokio::test]
async fn a_turn_with_thoughts_signatures_and_parallel_calls_in_odd_pieces() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("ä.txt"), "content of ä").unwrap();
    let parts = json!([
        { "functionCall": { "name": "fs_list", "args": { "path": "." } }, "thoughtSignature": "c2lnbmVk" },
        { "functionCall": { "name": "fs_read", "args": { "path": "ä.txt" } } },
    ]);
    let mut end: Value =
        serde_json::from_str(content(&json!([{ "text": "" }]), Some("STOP")).trim_start_matches("data: ")).unwrap();
    end["usageMetadata"] = json!({ "promptTokenCount": 1100, "cachedContentTokenCount": 1000, "candidatesTokenCount": 10, "thoughtsTokenCount": 40, "totalTokenCount": 1150 });
    let said = thought("Two ")
        + &thought("looks.")
        + &GEMINI.text("I look 😀.")
        + &content(&parts, None)
        + &format!("data: {end}\r\n\r\n");
    let pieces = Answer::steps(said.as_bytes().chunks(5).map(|piece| Step::Send(piece.to_vec().into())).collect());
    let signed = content(&json!([{ "text": "Done." }]), None)
        + &content(&json!([{ "text": "", "thoughtSignature": "bGFzdA==" }]), Some("STOP"));
    let server = ModelServer::start(queue([pieces, Answer::raw(signed), GEMINI.answer("A dot.")])).await;
    let app = open(directory.path(), |settings| {
        let prices = json!({ "input": 1000.0, "output": 10_000.0, "cacheRead": 100.0 });
        settings.providers = vec![provider(json!({
            "name": "gemini", "apiKey": "AIza-secret", "baseUrl": server.base_url(),
            "models": [{ "name": "gemini-3.8-flash", "prices": prices }],
        }))];
        settings.model = Some("gemini/gemini-3.8-flash".into());
    })
    .await;
    let id = session(&app, json!({})).await;
    let done = turn(&app, &id, json!({ "prompt": "look around" })).await;
    assert_eq!((done.result.as_deref(), done.rounds), (Some("Done."), 2));
    let usage = serde_json::to_value(done.usage).unwrap();
    assert_eq!((&usage["inputTokens"], &usage["cachedInputTokens"]), (&json!(1110), &json!(1000)));
    assert_eq!((&usage["outputTokens"], &usage["reasoningTokens"]), (&json!(55), &json!(40)));
    assert_eq!(usage["costUsd"], json!(0.76));
    let told = events(&app, &id).await;
    let thoughts: String = told
        .iter()
        .filter_map(|event| match event {
            EventBody::StreamReasoning { text } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(thoughts, "Two looks.");

    let sent = server.requests();
    let first = sent[0].json();
    assert_eq!(sent[0].path, "/v1/models/gemini-3.8-flash:streamGenerateContent?alt=sse");
    assert_eq!((sent[0].header("x-goog-api-key"), sent[0].header("authorization")), (Some("AIza-secret"), None));
    assert_eq!(first["contents"], json!([{ "role": "user", "parts": [{ "text": "look around" }] }]));
    assert_eq!(first["generationConfig"]["thinkingConfig"], json!({ "includeThoughts": true }));
    let tools = first["tools"][0]["functionDeclarations"].as_array().unwrap();
    assert!(tools.iter().any(|tool| tool["name"] == "fs_read" && tool["parametersJsonSchema"]["type"] == "object"));

    let second = sent[1].json();
    let mut want = vec![json!({ "text": "I look 😀." })];
    want.extend(parts.as_array().unwrap().iter().cloned());
    assert_eq!(second["contents"][1], json!({ "role": "model", "parts": want }), "signatures stand where they stood");
    let results = second["contents"][2]["parts"].as_array().unwrap();
    let names: Vec<&Value> = results.iter().map(|part| &part["functionResponse"]["name"]).collect();
    assert_eq!(names, ["fs_list", "fs_read"]);
    assert!(results[1]["functionResponse"]["response"]["output"].as_str().unwrap().contains("content of ä"));

    let body = json!({ "prompt": [{ "type": "text", "text": "what is it?" }, { "type": "image", "mediaType": "image/png", "data": PIXEL }] });
    assert_eq!(turn(&app, &id, body).await.result.as_deref(), Some("A dot."));
    let third = server.requests()[2].json();
    assert_eq!(third["contents"][3]["parts"][1]["thoughtSignature"], json!("bGFzdA=="), "also on an empty part");
    let shown = json!({ "inlineData": { "mimeType": "image/png", "data": PIXEL } });
    assert_eq!(third["contents"][4]["parts"], json!([{ "text": "what is it?" }, shown]));
    assert_eq!(third["contents"][1], second["contents"][1]);
}

#[tokio::test]
async fn a_call_that_cannot_be_read_is_made_anew_and_a_blocked_prompt_is_not_asked_twice() {
    let directory = tempfile::tempdir().unwrap();
    let garbled = json!({ "candidates": [{ "content": {}, "finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": "Malformed function call: print(" }] });
    let blocked = json!({ "promptFeedback": { "blockReason": "PROHIBITED_CONTENT" }, "usageMetadata": { "promptTokenCount": 3 } });
    let answers = [
        Answer::raw(format!("data: {garbled}\n\n")),
        GEMINI.answer("Well."),
        Answer::raw(format!("data: {blocked}\n\n")),
        Answer::raw(GEMINI.text("so far") + &content(&json!([]), Some("RECITATION"))),
    ];
    let server = ModelServer::start(queue(answers)).await;
    let app = open(directory.path(), |settings| {
        settings.providers = vec![provider(json!({ "name": "gemini", "apiKey": "k", "baseUrl": server.base_url() }))];
        settings.model = Some("gemini/gemini-3.8-flash".into());
    })
    .await;
    let id = session(&app, json!({})).await;
    assert_eq!(turn(&app, &id, json!({ "prompt": "hi" })).await.result.as_deref(), Some("Well."));
    let why = events(&app, &id).await.into_iter().find_map(|event| match event {
        EventBody::StreamRetry { error, .. } => Some(error),
        _ => None,
    });
    assert!(why.as_ref().is_some_and(|why| why.contains("Malformed function call: print(")), "{why:?}");
    let failed = turn(&app, &id, json!({ "prompt": "worse" })).await.error.expect("it fails");
    assert_eq!(failed.details, Some(json!({ "kind": "content_filter" })));
    assert!(failed.message.contains("PROHIBITED_CONTENT"), "{}", failed.message);
    assert_eq!(server.requests().len(), 3);
    let cut = turn(&app, &id, json!({ "prompt": "a poem" })).await;
    assert_eq!((cut.result.as_deref(), cut.stop_reason), (Some("so far"), Some(TurnStop::ContentFilter)));
}

#[tokio::test]
async fn bad_keys_and_how_long_to_wait_are_understood() {
    let bad = json!([{ "error": { "code": 400, "status": "INVALID_ARGUMENT", "message": "API key not valid.",
        "details": [{ "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID" }] } }]);
    let busy = json!({ "error": { "code": 429, "status": "RESOURCE_EXHAUSTED", "message": "slowly",
        "details": [{ "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.07s" }] } });
    let json_type = [("content-type", "application/json")];
    let server = ModelServer::start(queue([
        Answer::status(400, &json_type, &bad.to_string()),
        Answer::status(429, &json_type, &busy.to_string()),
        Answer::status(200, &json_type, "{\"totalTokens\":31,\"totalBillableCharacters\":96}"),
    ]))
    .await;
    let mut place = Place::new("gemini", server.base_url(), Duration::from_secs(20));
    place.key = Key::Fixed("AIza".into());
    let options = HttpModelOptions {
        name: "gemini-3.8-flash".into(),
        api: Api::Gemini,
        facts: ModelFacts::default(),
        body: Map::new(),
    };
    let model = http_model(options, &Arc::new(place));
    let (request, cancel) =
        (ModelRequest { system: "be good".into(), ..ModelRequest::default() }, CancellationToken::new());
    assert_eq!(model.count_tokens(&request, &cancel).await.unwrap_err().kind(), "unauthorized");
    let error = model.count_tokens(&request, &cancel).await.unwrap_err();
    let simse::model::ModelError::Transient { retry_after: Some(wait), .. } = error else { panic!("{error:?}") };
    assert_eq!(wait, Duration::from_secs_f64(34.07));
    assert_eq!(model.count_tokens(&request, &cancel).await, Ok(Some(31)));
    let asked = &server.requests()[2];
    assert_eq!(asked.path, "/v1/models/gemini-3.8-flash:countTokens");
    assert_eq!(asked.json()["generateContentRequest"]["systemInstruction"]["parts"][0]["text"], json!("be good"));
}

/// What a model of that wire thinks before its call, with words that it alone may be told again.
fn secret(api: Api) -> String {
    let mark = format!("sig-{}", api.name());
    match api {
        Api::Chat => {
            let delta = json!({ "choices": [{ "index": 0, "delta": { "reasoning_details": [{ "type": "reasoning.encrypted", "data": mark }] }, "finish_reason": null }] });
            format!("data: {delta}\n\n")
        }
        Api::Responses => {
            let item = json!({ "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": mark });
            event(&json!({ "type": "response.output_item.done", "output_index": 0, "item": item }))
        }
        Api::Messages => {
            let block = json!({ "type": "thinking", "thinking": "hm", "signature": mark });
            event(&json!({ "type": "content_block_start", "index": 0, "content_block": block }))
        }
        Api::Gemini => content(&json!([{ "text": "hm", "thoughtSignature": mark }]), None),
    }
}

#[tokio::test]
async fn a_session_goes_from_wire_to_wire_and_nobody_is_told_what_was_signed_for_another() {
    let directory = tempfile::tempdir().unwrap();
    let mut servers = Vec::new();
    for api in WIRES {
        let says = Says(api);
        let calls = [("id.1/of a call", "fs_list", json!({ "path": "." })), ("id2", "fs_list", json!({ "path": "." }))];
        let calls = Answer::raw(secret(api) + &says.calls(&calls) + &says.end("tool_calls"));
        servers.push(ModelServer::start(queue([calls, says.answer(api.name()), says.answer("again")])).await);
    }
    let app = open(directory.path(), |settings| {
        let entry = |(api, server): (Api, &ModelServer)| {
            provider(json!({ "name": api.name(), "api": api.name(), "apiKey": "k", "baseUrl": server.base_url() }))
        };
        settings.providers = WIRES.into_iter().zip(&servers).map(entry).collect();
        settings.model = Some("openai-chat/m".into());
    })
    .await;
    let id = session(&app, json!({})).await;
    let order = [Api::Messages, Api::Gemini, Api::Responses, Api::Chat];
    for api in order {
        let body =
            json!({ "prompt": format!("for {}", api.name()), "configure": { "model": format!("{}/m", api.name()) } });
        assert_eq!(turn(&app, &id, body).await.result.as_deref(), Some(api.name()));
    }
    for api in order {
        let body = json!({ "prompt": "once more", "configure": { "model": format!("{}/m", api.name()) } });
        assert_eq!(turn(&app, &id, body).await.result.as_deref(), Some("again"), "{api:?}");
    }
    for (api, server) in WIRES.into_iter().zip(&servers) {
        let sent = server.requests();
        assert_eq!(sent.len(), 3);
        let last = String::from_utf8(sent[2].body.to_vec()).unwrap();
        for other in WIRES {
            let mark = format!("\"sig-{}\"", other.name());
            assert_eq!(last.contains(&mark), other == api, "{api:?} of {other:?}: {last}");
            assert!(last.contains(&format!("for {}", other.name())), "{api:?} is told what was asked");
        }
        // Whatever the ids were, each wire is sent some that it takes, and the same for call and result.
        let sent = sent[2].json();
        match api {
            Api::Messages => {
                let blocks: Vec<&Value> = sent["messages"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .flat_map(|m| m["content"].as_array().unwrap())
                    .collect();
                let ids = |kind: &str, name: &str| -> Vec<Value> {
                    blocks.iter().filter(|block| block["type"] == kind).map(|block| block[name].clone()).collect()
                };
                let (used, results) = (ids("tool_use", "id"), ids("tool_result", "tool_use_id"));
                assert_eq!((used.len(), &used), (8, &results));
                // Its own go back as they came; the others' in the letters that it takes.
                let foreign = used.iter().skip(2).filter_map(Value::as_str);
                assert!(
                    foreign.clone().count() == 6
                        && foreign.clone().all(|id| id.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))),
                    "{used:?}"
                );
            }
            Api::Gemini => {
                let count = |name: &str| {
                    sent["contents"]
                        .as_array()
                        .unwrap()
                        .iter()
                        .flat_map(|c| c["parts"].as_array().unwrap())
                        .filter(|part| part.get(name).is_some())
                        .count()
                };
                assert_eq!((count("functionCall"), count("functionResponse")), (8, 8));
            }
            Api::Chat | Api::Responses => {}
        }
    }
}
