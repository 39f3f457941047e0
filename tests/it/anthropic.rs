//! Anthropic's Messages against a scripted server that speaks the true wire: what a session sends and is told, turn by turn.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use simse::config::Api;
use simse::model::{ModelError, ModelFacts, ModelRequest};
use simse::protocol::{ErrorCode, EventBody, TurnStatus};
use simse::provider::{HttpModelOptions, Key, Place, http_model};
use tokio_util::sync::CancellationToken;

use crate::support::model_server::{Answer, ModelServer, Script, Step, queue};
use crate::support::says::{PIXEL, Says, event};
use crate::support::sessions::{events, open, provider, session, turn};

const SIGNATURE: &str = "RXJVQkNrZ0lDQkFC/signed==";

/// A reply that thinks, says something and calls two tools, whose pieces come in turns.
fn thinks_and_calls() -> String {
    let begin = |index: u64, block: Value| {
        event(&json!({ "type": "content_block_start", "index": index, "content_block": block }))
    };
    let piece =
        |index: u64, delta: Value| event(&json!({ "type": "content_block_delta", "index": index, "delta": delta }));
    let part = |index, text: &str| piece(index, json!({ "type": "input_json_delta", "partial_json": text }));
    let usage = json!({ "input_tokens": 7, "cache_creation_input_tokens": 100, "cache_read_input_tokens": 1000, "output_tokens": 1 });
    let message = json!({ "id": "msg_1", "type": "message", "role": "assistant", "content": [], "usage": usage });
    let tool = |id: &str, name: &str| json!({ "type": "tool_use", "id": id, "name": name, "input": {} });
    [
        event(&json!({ "type": "message_start", "message": message })),
        event(&json!({ "type": "ping" })),
        begin(0, json!({ "type": "thinking", "thinking": "", "signature": "" })),
        piece(0, json!({ "type": "thinking_delta", "thinking": "Two ärrows" })),
        piece(0, json!({ "type": "thinking_delta", "thinking": ", one look." })),
        piece(0, json!({ "type": "signature_delta", "signature": SIGNATURE })),
        event(&json!({ "type": "content_block_stop", "index": 0 })),
        begin(1, json!({ "type": "redacted_thinking", "data": "aGlkZGVu" })),
        event(&json!({ "type": "content_block_stop", "index": 1 })),
        begin(2, json!({ "type": "text", "text": "" })),
        piece(2, json!({ "type": "text_delta", "text": "I look 😀." })),
        begin(3, tool("toolu_1", "fs_list")),
        begin(4, tool("toolu_2", "fs_read")),
        part(3, "{\"pa"),
        part(4, "{\"path\": \"ä."),
        part(3, "th\": \".\"}"),
        part(4, "txt\"}"),
        event(&json!({ "type": "content_block_stop", "index": 3 })),
        event(&json!({ "type": "content_block_stop", "index": 4 })),
        event(&json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" }, "usage": { "output_tokens": 50 } })),
        event(&json!({ "type": "message_stop" })),
    ]
    .concat()
}

fn in_pieces(said: &str, size: usize) -> Answer {
    Answer::steps(said.as_bytes().chunks(size).map(|piece| Step::Send(piece.to_vec().into())).collect())
}

#[tokio::test]
async fn a_turn_with_thinking_and_parallel_calls_in_odd_pieces() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("ä.txt"), "content of ä").unwrap();
    let says = Says(Api::Messages);
    let server =
        ModelServer::start(queue([in_pieces(&thinks_and_calls(), 7), says.answer("Done."), says.answer("A dot.")]))
            .await;
    let app = open(directory.path(), |settings| {
        let prices = json!({ "input": 1000.0, "output": 10_000.0, "cacheRead": 100.0, "cacheWrite": 2000.0 });
        settings.providers = vec![provider(json!({
            "name": "anthropic", "apiKey": "sk-ant-secret", "baseUrl": server.base_url(),
            "models": [{ "name": "claude-opus-5", "prices": prices }],
        }))];
        settings.model = Some("anthropic/claude-opus-5".into());
    })
    .await;
    let id = session(&app, json!({})).await;
    let done = turn(&app, &id, json!({ "prompt": "look around" })).await;
    assert_eq!((done.result.as_deref(), done.rounds), (Some("Done."), 2));
    let usage = serde_json::to_value(done.usage).unwrap();
    // 1,107 sent in the first round, of which 1,000 were known and 100 were put away; 10 in the second.
    assert_eq!(
        (&usage["inputTokens"], &usage["cachedInputTokens"], &usage["outputTokens"]),
        (&json!(1117), &json!(1000), &json!(55))
    );
    assert_eq!(usage["costUsd"], json!(0.867));
    let told = events(&app, &id).await;
    let thought: String = told
        .iter()
        .filter_map(|event| match event {
            EventBody::StreamReasoning { text } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(thought, "Two ärrows, one look.");

    let sent = server.requests();
    let first = sent[0].json();
    assert_eq!((sent[0].path.as_str(), sent[0].header("x-api-key")), ("/v1/messages", Some("sk-ant-secret")));
    assert_eq!((sent[0].header("anthropic-version"), sent[0].header("authorization")), (Some("2023-06-01"), None));
    assert_eq!(
        (&first["model"], &first["stream"], &first["max_tokens"]),
        (&json!("claude-opus-5"), &json!(true), &json!(128_000))
    );
    // What stays the same is kept over there: the tools, the system text, and the conversation up to its end.
    let kept = json!({ "type": "ephemeral" });
    let tools = first["tools"].as_array().unwrap();
    assert_eq!(tools.iter().filter(|tool| tool.get("cache_control").is_some()).count(), 1);
    assert_eq!((&tools.last().unwrap()["cache_control"], &first["system"][0]["cache_control"]), (&kept, &kept));
    assert_eq!(
        first["messages"],
        json!([{ "role": "user", "content": [{ "type": "text", "text": "look around", "cache_control": kept }] }])
    );

    let second = sent[1].json();
    let reply = &second["messages"][1];
    let want = json!([
        { "type": "thinking", "thinking": "Two ärrows, one look.", "signature": SIGNATURE },
        { "type": "redacted_thinking", "data": "aGlkZGVu" },
        { "type": "text", "text": "I look 😀." },
        { "type": "tool_use", "id": "toolu_1", "name": "fs_list", "input": { "path": "." } },
        { "type": "tool_use", "id": "toolu_2", "name": "fs_read", "input": { "path": "ä.txt" } },
    ]);
    assert_eq!(reply["content"], want, "to the letter");
    let results = second["messages"][2]["content"].as_array().unwrap();
    let ids: Vec<&Value> = results.iter().map(|result| &result["tool_use_id"]).collect();
    assert_eq!(ids, ["toolu_1", "toolu_2"]);
    assert!(results[1]["content"].as_str().unwrap().contains("content of ä"), "{results:?}");
    assert_eq!((results[0].get("cache_control"), &results[1]["cache_control"]), (None, &kept));
    assert_eq!(second["messages"][0]["content"][0]["cache_control"], kept, "and where the last request ended");

    // An image in the next prompt; all before it is as it was.
    let body = json!({ "prompt": [{ "type": "text", "text": "what is it?" }, { "type": "image", "mediaType": "image/png", "data": PIXEL }] });
    assert_eq!(turn(&app, &id, body).await.result.as_deref(), Some("A dot."));
    let third = server.requests()[2].json();
    let shown = json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": PIXEL }, "cache_control": kept });
    assert_eq!(third["messages"][4]["content"], json!([{ "type": "text", "text": "what is it?" }, shown]));
    assert_eq!((&third["messages"][1], &third["tools"], &third["system"]), (reply, &first["tools"], &first["system"]));
    let marked = third.to_string().matches("cache_control").count();
    assert_eq!(marked, 4, "no more than that is taken");
}

#[tokio::test]
async fn an_overloaded_provider_in_the_middle_of_a_stream_is_asked_again() {
    let directory = tempfile::tempdir().unwrap();
    let says = Says(Api::Messages);
    let begun = thinks_and_calls();
    let at = begun.find("event: message_delta").unwrap();
    let broken = Answer::raw(begun[..at].to_owned() + &says.error("overloaded"));
    let server = ModelServer::start(queue([broken, says.answer("Whole.")])).await;
    let app = open(directory.path(), |settings| {
        settings.providers =
            vec![provider(json!({ "name": "anthropic", "apiKey": "k", "baseUrl": server.base_url() }))];
        settings.model = Some("anthropic/claude-opus-5".into());
    })
    .await;
    let id = session(&app, json!({})).await;
    assert_eq!(turn(&app, &id, json!({ "prompt": "hi" })).await.result.as_deref(), Some("Whole."));
    let told = events(&app, &id).await;
    assert!(!told.iter().any(|event| matches!(event, EventBody::ToolCallStart { .. })), "nothing of it has run");
    let why = told.iter().find_map(|event| match event {
        EventBody::StreamRetry { error, .. } => Some(error.as_str()),
        _ => None,
    });
    assert!(why.is_some_and(|why| why.contains("Overloaded")), "{why:?}");
    assert_eq!(server.requests()[0].body, server.requests()[1].body, "the same is asked again");
}

fn model(server: &ModelServer, key: Key) -> Arc<dyn simse::model::Model> {
    let mut place = Place::new("anthropic", server.base_url(), std::time::Duration::from_secs(20));
    place.key = key;
    let options = HttpModelOptions {
        name: "claude-opus-5".into(),
        api: Api::Messages,
        facts: ModelFacts::default(),
        body: Map::new(),
    };
    http_model(options, &Arc::new(place))
}

#[tokio::test]
async fn tokens_are_counted_over_there() {
    let counts = |answer: Answer| async move {
        let server = ModelServer::start(queue([answer])).await;
        let request = ModelRequest { system: "be good".into(), ..ModelRequest::default() };
        let counted = model(&server, Key::Fixed("sk".into())).count_tokens(&request, &CancellationToken::new()).await;
        (counted, server.requests())
    };
    let json = |status, body: &str| Answer::status(status, &[("content-type", "application/json")], body);
    let (counted, sent) = counts(json(200, "{\"input_tokens\":2095}")).await;
    assert_eq!(counted, Ok(Some(2095)));
    let asked = sent[0].json();
    assert_eq!((sent[0].path.as_str(), sent[0].header("x-api-key")), ("/v1/messages/count_tokens", Some("sk")));
    assert_eq!((asked.get("stream"), asked.get("max_tokens")), (None, None));
    assert_eq!(asked["system"][0]["text"], json!("be good"));
    let (counted, _) = counts(json(200, "{\"tokens\":1}")).await;
    assert!(matches!(&counted, Err(ModelError::Malformed(why)) if why.contains("asked for a count")), "{counted:?}");
    let (counted, _) = counts(json(400, "{\"error\":{\"type\":\"invalid_request_error\",\"message\":\"no\"}}")).await;
    assert_eq!(counted.unwrap_err().kind(), "refused");
}

#[tokio::test]
async fn a_key_that_was_refused_is_read_anew_for_a_count_too() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    std::fs::write(&file, "old").unwrap();
    let path = file.clone();
    let script: Script = Arc::new(move |request| match request.header("x-api-key") {
        Some("new") => Answer::status(200, &[("content-type", "application/json")], "{\"input_tokens\":3}"),
        _ => {
            std::fs::write(&path, "new").unwrap();
            Answer::status(
                401,
                &[],
                "{\"error\":{\"type\":\"authentication_error\",\"message\":\"invalid x-api-key\"}}",
            )
        }
    });
    let server = ModelServer::start(script).await;
    let counted =
        model(&server, Key::File(file)).count_tokens(&ModelRequest::default(), &CancellationToken::new()).await;
    assert_eq!((counted, server.requests().len()), (Ok(Some(3)), 2));
}

#[tokio::test]
async fn a_reply_that_was_paused_goes_on_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let says = Says(Api::Messages);
    let searches = |text: &str| {
        let block = json!({ "type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {} });
        let piece = json!({ "type": "input_json_delta", "partial_json": "{\"query\":\"ä\"}" });
        let delta = json!({ "stop_reason": "pause_turn" });
        let said = if text.is_empty() { String::new() } else { says.text(text) };
        Answer::raw(
            said + &event(&json!({ "type": "content_block_start", "index": 1, "content_block": block }))
                + &event(&json!({ "type": "content_block_delta", "index": 1, "delta": piece }))
                + &event(
                    &json!({ "type": "message_delta", "delta": delta, "usage": { "input_tokens": 10, "output_tokens": 5 } }),
                )
                + &event(&json!({ "type": "message_stop" })),
        )
    };
    let used =
        json!({ "type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": { "query": "ä" } });
    let text = |text: &str| json!({ "type": "text", "text": text });
    let mut answers = vec![searches("I search."), searches(""), says.answer("Found."), says.answer("Yes.")];
    answers.extend((0..30).map(|_| searches("Still.")));
    let server = ModelServer::start(queue(answers)).await;
    let (data, url) = (directory.path().join("data"), server.base_url());
    let opened = || {
        open(directory.path(), |settings| {
            settings.storage = simse::config::Storage::Directory(data.clone());
            settings.providers =
                vec![provider(json!({ "name": "p", "api": "anthropic-messages", "apiKey": "k", "baseUrl": url }))];
            settings.model = Some("p/claude-opus-5".into());
        })
    };
    let app = opened().await;
    let id = session(&app, json!({})).await;
    let done = turn(&app, &id, json!({ "prompt": "search" })).await;
    assert_eq!(
        (done.result.as_deref(), done.rounds, done.usage.total_tokens),
        (Some("I search.Found."), 3, 45),
        "{:?}",
        done.error
    );
    let messages = |at: usize| server.requests()[at].json()["messages"].clone();
    let last = |at: usize| messages(at).as_array().unwrap().last().unwrap().clone();
    assert_eq!(last(1), json!({ "role": "assistant", "content": [text("I search."), used] }));
    assert_eq!(last(2), json!({ "role": "assistant", "content": [text("I search."), used, used] }));
    // All of it is one reply in the next turn, also of the next process.
    app.shutdown(std::time::Duration::from_secs(10)).await.expect("it stops");
    let app = opened().await;
    let more = turn(&app, &id, json!({ "prompt": "sure?" })).await;
    assert_eq!(more.result.as_deref(), Some("Yes."), "{:?}", more.error);
    assert_eq!(
        messages(3)[1],
        json!({ "role": "assistant", "content": [text("I search."), used, used, text("Found.")] })
    );
    assert_eq!(messages(3).as_array().unwrap().len(), 3);
    // Not for ever: it has an end of its own.
    let endless = turn(&app, &id, json!({ "prompt": "on and on" })).await;
    let error = endless.error.expect("it has no end");
    let kind = error.details.unwrap()["kind"].clone();
    assert_eq!((kind, error.code), (json!("pause_turn"), ErrorCode::UpstreamUnavailable), "{}", error.message);
    assert_eq!((endless.rounds, endless.status), (17, TurnStatus::Failed));
}

/// Pieces of one reply are one answer; words of who does not want to answer are none.
#[tokio::test]
async fn an_answer_that_was_paused_is_data_as_a_whole() {
    let directory = tempfile::tempdir().unwrap();
    let says = Says(Api::Messages);
    let ends = |text: &str, why: &str| {
        let delta = json!({ "type": "message_delta", "delta": { "stop_reason": why }, "usage": { "input_tokens": 10, "output_tokens": 5 } });
        Answer::raw(says.text(text) + &event(&delta) + &event(&json!({ "type": "message_stop" })))
    };
    let answers = vec![ends("{\"n\":", "pause_turn"), ends("7", "pause_turn"), ends("}", "end_turn")]
        .into_iter()
        // What does not fit is told with its beginning before it.
        .chain([ends("{\"n\":", "pause_turn"), ends("\"x\"}", "end_turn"), ends("{\"n\":8}", "end_turn")])
        .chain([ends("{\"n\":", "pause_turn"), ends("9}", "refusal")]);
    let server = ModelServer::start(queue(answers)).await;
    let url = server.base_url();
    let app = open(directory.path(), |settings| {
        settings.providers =
            vec![provider(json!({ "name": "p", "api": "anthropic-messages", "apiKey": "k", "baseUrl": url }))];
        settings.model = Some("p/claude-opus-5".into());
    })
    .await;
    let id = session(&app, json!({})).await;
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"], "additionalProperties": false });
    let asks = json!({ "prompt": "how many?", "turn": { "outputSchema": schema } });
    let done = turn(&app, &id, asks.clone()).await;
    assert_eq!((done.output, done.result.as_deref()), (Some(json!({ "n": 7 })), Some("{\"n\":7}")), "{:?}", done.error);
    let done = turn(&app, &id, asks.clone()).await;
    let told = server.requests()[5].json()["messages"].to_string();
    assert!(told.contains("cannot be used"), "{told}");
    assert_eq!((done.output, done.rounds), (Some(json!({ "n": 8 })), 2), "{:?}", done.error);
    let refused = turn(&app, &id, asks).await;
    let kind = refused.error.as_ref().and_then(|error| error.details.clone()).unwrap()["kind"].clone();
    assert_eq!((kind, refused.output), (json!("refusal"), None));
}

#[tokio::test]
async fn a_reply_that_was_paused_is_answered_anew_by_another_model() {
    let directory = tempfile::tempdir().unwrap();
    let says = Says(Api::Messages);
    let delta = json!({ "type": "message_delta", "delta": { "stop_reason": "pause_turn" }, "usage": { "input_tokens": 10, "output_tokens": 5 } });
    let pauses = says.text("I search. ") + &event(&delta) + &event(&json!({ "type": "message_stop" }));
    let spent = "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"no money\"}}";
    for (api, other) in [(Api::Chat, "openai-chat"), (Api::Messages, "anthropic-messages")] {
        let down = ModelServer::start(queue([Answer::raw(pauses.clone()), Answer::status(403, &[], spent)])).await;
        let fine = ModelServer::start(queue([Says(api).answer("{\"n\":7}"), Says(api).answer("more")])).await;
        let app = open(directory.path(), |settings| {
            let entry = |name: &str, api: &str, server: &ModelServer| {
                provider(json!({ "name": name, "api": api, "apiKey": "k", "baseUrl": server.base_url() }))
            };
            settings.providers = vec![entry("p", "anthropic-messages", &down), entry("q", other, &fine)];
            settings.model = Some("p/claude-opus-5".into());
            settings.model_fallbacks = vec!["q/m".into()];
        })
        .await;
        let id = session(&app, json!({})).await;
        let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"], "additionalProperties": false });
        let done = turn(&app, &id, json!({ "prompt": "how many?", "turn": { "outputSchema": schema } })).await;
        assert_eq!(done.result.as_deref(), Some("{\"n\":7}"), "{other} {:?}", done.error);
        assert_eq!((done.output, down.requests().len()), (Some(json!({ "n": 7 })), 2), "{other}");
        let sent = fine.requests()[0].json()["messages"].to_string();
        assert!(sent.contains("how many?") && !sent.contains("I search."), "{other} {sent}");
        assert!(!sent.contains("Go on."), "{other} {sent}");
    }
}
