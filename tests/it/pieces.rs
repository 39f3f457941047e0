//! Replies that come in odd pieces, over each of the wires: characters that were cut in two, and answers that nobody asked for.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::{Map, Value, json};
use simse::config::Api;
use simse::model::{ModelError, ModelEvent, ModelFacts, ModelRequest, StopReason};
use simse::protocol::Message;
use simse::provider::{HttpModelOptions, Place, http_model};
use tokio_util::sync::CancellationToken;

use crate::support::http::within;
use crate::support::model_server::{Answer, ModelServer, Step, call_chunks, queue};
use crate::support::says::{Says, WIRES, content, event};

/// What a model over this wire makes of an answer.
async fn heard(api: Api, answer: Answer) -> Vec<Result<ModelEvent, ModelError>> {
    let server = ModelServer::start(queue([answer])).await;
    let place = Arc::new(Place::new("mine", server.base_url(), Duration::from_secs(20)));
    let options = HttpModelOptions { name: "m".into(), api, facts: ModelFacts::default(), body: Map::new() };
    let request = ModelRequest { messages: vec![Message::User(vec![])].into(), ..ModelRequest::default() };
    within(http_model(options, &place).stream(request, CancellationToken::new()).collect()).await
}

/// All of its text, and the arguments of its calls. It has ended well.
fn said(events: &[Result<ModelEvent, ModelError>]) -> (String, Vec<Value>) {
    let (mut text, mut calls) = (String::new(), Vec::new());
    for event in events {
        match event.as_ref().expect("it does not fail") {
            ModelEvent::Text(piece) => text.push_str(piece),
            ModelEvent::Call(call) => calls.push(Value::Object(call.arguments.clone())),
            ModelEvent::BadCall { problem, .. } => panic!("{problem}"),
            _ => {}
        }
    }
    assert!(matches!(events.last(), Some(Ok(ModelEvent::Finished(_)))), "{events:?}");
    (text, calls)
}

/// Pieces of one text, as they are written in JSON.
fn text_pieces(api: Api, pieces: &[&str]) -> Vec<String> {
    let piece = |piece: &&str| match api {
        Api::Messages => {
            let delta = json!({ "type": "text_delta", "text": "@" });
            event(&json!({ "type": "content_block_delta", "index": 0, "delta": delta })).replace('@', piece)
        }
        api => Says(api).text("@").replace('@', piece),
    };
    pieces.iter().map(piece).collect()
}

/// Pieces of the arguments of one call, as they are written in JSON.
fn call_pieces(api: Api, pieces: &[&str]) -> Vec<String> {
    let begun = match api {
        Api::Chat => call_chunks(0, "c1", "count", ""),
        api => Says(api).half_call(""),
    };
    let piece = |piece: &&str| {
        match api {
            Api::Chat => {
                let call = json!({ "index": 0, "function": { "arguments": "@" } });
                format!("data: {}\n\n", json!({ "choices": [{ "index": 0, "delta": { "tool_calls": [call] } }] }))
            }
            Api::Responses => {
                event(&json!({ "type": "response.function_call_arguments.delta", "output_index": 1, "delta": "@" }))
            }
            _ => {
                let delta = json!({ "type": "input_json_delta", "partial_json": "@" });
                event(&json!({ "type": "content_block_delta", "index": 1, "delta": delta }))
            }
        }
        .replace('@', piece)
    };
    std::iter::once(begun).chain(pieces.iter().map(piece)).collect()
}

#[tokio::test]
async fn a_character_that_was_cut_in_two_is_one_in_texts_and_in_arguments() {
    for api in WIRES {
        let says = Says(api);
        let whole =
            text_pieces(api, &["a", r"\ud83d", r"\ude00\ud83e", r"\udd80", "b", r"\ude00", r"\ud83d", "c", r"d\ud83d"])
                .concat();
        let want = ("a😀🦀b\u{fffd}\u{fffd}cd\u{fffd}".to_owned(), vec![]);
        assert_eq!(said(&heard(api, Answer::raw(whole + &says.end("stop"))).await), want, "{api:?}");
        // Also where what says that the stream lives comes in between, each event by itself, with CRLF.
        let ping = event(&json!({ "type": "ping" }));
        let mut steps: Vec<Step> = Vec::new();
        for piece in text_pieces(api, &["a", r"\ud83d", r"\ude00b"]) {
            for part in [
                piece.replace('\n', "\r\n"),
                if api == Api::Messages { ping.clone() } else { ": lives\r\n\r\n".to_owned() },
            ] {
                steps.push(Step::Send(part.into()));
            }
        }
        steps.push(Step::Send(says.end("stop").into()));
        assert_eq!(said(&heard(api, Answer::steps(steps)).await).0, "a😀b", "{api:?}");
        if api == Api::Gemini {
            continue;
        }
        // As the wire writes the character, and as the model does.
        for pieces in [[r#"{\"n\":\"\ud83d"#, r#"\ude00\"}"#], [r#"{\"n\":\"\\ud83d"#, r#"\\ude00\"}"#]] {
            let whole = call_pieces(api, &pieces).concat();
            let events = heard(api, Answer::raw(whole + &says.end("tool_calls"))).await;
            assert_eq!(said(&events).1, [json!({ "n": "😀" })], "{api:?} {pieces:?}");
        }
    }
}

/// A server, or what stands before it, may give several answers; one was asked for.
#[tokio::test]
async fn of_several_answers_the_first_one_counts_wherever_it_stands() {
    let chunk = |choices: Value| format!("data: {}\n\n", json!({ "choices": choices }));
    let choice = |index: u64, text: &str| json!({ "index": index, "delta": { "content": text } });
    let stop = |index: u64, why: &str| json!({ "index": index, "delta": {}, "finish_reason": why });
    let call = |index: u64| json!({ "index": index, "delta": { "tool_calls": [{ "index": 0, "id": "c", "function": { "name": "count", "arguments": "{}" } }] } });
    let chat = [
        chunk(json!([choice(0, "a")])),
        chunk(json!([choice(1, "X")])),
        chunk(json!([choice(1, "Y"), choice(0, "b")])),
        chunk(json!([choice(0, "c")])),
        chunk(json!([choice(0, "d"), choice(1, "Z")])),
        chunk(json!([choice(0, "e"), choice(1, "Z")])),
        chunk(json!([call(1)])),
        chunk(json!([stop(1, "length")])),
        chunk(json!([{ "index": 1, "error": { "message": "it broke" } }])),
        chunk(json!([{ "delta": { "content": "f" } }])),
        chunk(json!([stop(1, "tool_calls"), stop(0, "stop")])),
        "data: [DONE]\n\n".to_owned(),
    ];
    let events = heard(Api::Chat, Answer::raw(chat.concat())).await;
    assert_eq!(said(&events), ("abcdef".to_owned(), vec![]));
    assert_eq!(events.last(), Some(&Ok(ModelEvent::Finished(StopReason::EndTurn))));
    // The same of one that does not stream.
    let message =
        |index: u64, text: &str| json!({ "index": index, "message": { "content": text }, "finish_reason": "stop" });
    let body = json!({ "choices": [message(1, "X"), message(0, "ours")] }).to_string();
    assert_eq!(
        said(&heard(Api::Chat, Answer::status(200, &[("content-type", "application/json")], &body)).await).0,
        "ours"
    );
    let candidate = |index: u64, text: &str, finish: Option<&str>| json!({ "index": index, "content": { "parts": [{ "text": text }] }, "finishReason": finish });
    let several = |all: Value| format!("data: {}\n\n", json!({ "candidates": all }));
    let gemini = several(json!([candidate(1, "X", None), candidate(0, "a", None)]))
        + &several(json!([candidate(1, "Y", Some("SAFETY"))]))
        + &content(&json!([{ "text": "b" }]), Some("STOP"));
    let events = heard(Api::Gemini, Answer::raw(gemini)).await;
    assert_eq!(said(&events).0, "ab");
    assert_eq!(events.last(), Some(&Ok(ModelEvent::Finished(StopReason::EndTurn))));
}

/// Who has said that it is done is waited for a moment, in all: neither signs of life nor half a character make it longer.
#[tokio::test]
async fn the_end_is_waited_for_once_whatever_still_lives() {
    let stop = |content: &str| {
        let delta = json!({ "content": "@" });
        let chunk = json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": "stop" }] });
        format!("data: {chunk}\n\n").replace('@', content)
    };
    let of_messages =
        |api: Api| Says(api).text("a") + Says(api).end("stop").split_once("event: message_stop").unwrap().0;
    let lives = ": lives\n\n".to_owned();
    let ping = event(&json!({ "type": "ping" }));
    let table = [
        (Api::Chat, stop("a"), lives.clone(), "a"),
        (Api::Chat, stop("a"), "data: {\"choices\":[]}\n\n".to_owned(), "a"),
        (Api::Chat, stop(r"a\ud83d"), lives, "a\u{fffd}"),
        (Api::Chat, stop(r"a\ud83d"), String::new(), "a\u{fffd}"),
        (Api::Messages, of_messages(Api::Messages), ping, "a"),
        (
            Api::Gemini,
            content(&json!([{ "text": "a" }]), Some("STOP")),
            "data: {\"usageMetadata\":{}}\n\n".to_owned(),
            "a",
        ),
    ];
    let asked = table.map(|(api, said, lives, want)| async move {
        let mut steps = vec![Step::Send(said.into())];
        for _ in 0..100 {
            steps.extend([Step::Pause(Duration::from_millis(700)), Step::Send(lives.clone().into())]);
        }
        (heard(api, Answer::steps(steps)).await, want, format!("{api:?} {lives}"))
    });
    for (events, want, what) in futures_util::future::join_all(asked).await {
        assert_eq!(said(&events).0, want, "{what}");
    }
}

/// Half a character waits for the other one, and nobody waits for it for long.
#[tokio::test]
async fn half_a_character_before_a_long_pause_is_told_and_the_rest_is_heard() {
    let says = Says(Api::Chat);
    let [first, rest] = text_pieces(Api::Chat, &[r"a\ud83d", "b"]).try_into().unwrap();
    let steps = vec![
        Step::Send(first.into()),
        Step::Pause(Duration::from_secs(7)),
        Step::Send((rest + &says.end("stop")).into()),
    ];
    assert_eq!(said(&heard(Api::Chat, Answer::steps(steps)).await).0, "a\u{fffd}b");
}
