//! Answers that are data: what each wire is told of the schema, what comes of answers that fit and of those that do not, and who is
//! refused.

use rusqlite::Connection;
use serde_json::{Value, json};
use simse::app::{App, Caller};
use simse::config::{Api, Storage};
use simse::protocol::{ErrorCode, EventBody, Prompt, SessionId, TurnStatus};

use crate::log::simse;
use crate::support::model_server::{Answer, ModelServer, queue};
use crate::support::says::{Says, WIRES, event};
use crate::support::sessions::{events, open, provider, session, turn};

fn schema() -> Value {
    json!({ "type": "object", "properties": { "n": { "type": "integer", "minimum": 1 } }, "required": ["n"], "additionalProperties": false })
}

fn asks(prompt: &str) -> Value {
    json!({ "prompt": prompt, "turn": { "outputSchema": schema() } })
}

/// Where a wire has the schema.
fn told(api: Api, body: &Value) -> Value {
    let at = match api {
        Api::Chat => "/response_format/json_schema/schema",
        Api::Responses => "/text/format/schema",
        Api::Messages => "/output_config/format/schema",
        Api::Gemini => "/generationConfig/responseJsonSchema",
    };
    body.pointer(at).cloned().unwrap_or_default()
}

/// A model of a generation that is held to schemas by its provider.
fn newest(api: Api) -> &'static str {
    match api {
        Api::Messages => "claude-opus-5",
        Api::Gemini => "gemini-3.8-flash",
        Api::Chat | Api::Responses => "m",
    }
}

#[tokio::test]
async fn an_answer_that_fits_is_data_over_each_wire_and_one_that_does_not_is_asked_for_once_more() {
    let directory = tempfile::tempdir().unwrap();
    for api in WIRES {
        let says = Says(api);
        let calls = Answer::raw(
            says.text("I look.") + &says.calls(&[("c1", "fs_list", json!({ "path": "." }))]) + &says.end("tool_calls"),
        );
        let answers = [calls, says.answer("{\"n\": 0}"), says.answer("{\"n\": 7}"), says.answer("as you like")];
        let server = ModelServer::start(queue(answers)).await;
        let app = open(directory.path(), |settings| {
            settings.providers =
                vec![provider(json!({ "name": "p", "api": api.name(), "apiKey": "k", "baseUrl": server.base_url() }))];
            settings.model = Some(format!("p/{}", newest(api)));
        })
        .await;
        let id = session(&app, json!({})).await;
        let done = turn(&app, &id, asks("how many?")).await;
        assert_eq!(
            (done.status, done.result.as_deref()),
            (TurnStatus::Completed, Some("{\"n\": 7}")),
            "{api:?} {:?}",
            done.error
        );
        assert_eq!((done.output, done.rounds, done.usage.total_tokens), (Some(json!({ "n": 7 })), 2, 45), "{api:?}");
        let sent: Vec<Value> = server.requests().iter().map(|request| request.json()).collect();
        let held: Vec<Value> = sent.iter().map(|body| told(api, body)).collect();
        let want = if api == Api::Messages {
            json!({ "type": "object", "properties": { "n": { "type": "integer", "description": "(minimum: 1)" } }, "required": ["n"], "additionalProperties": false })
        } else {
            schema()
        };
        assert_eq!(held, [want.clone(), want.clone(), want], "{api:?}");
        // The model is told what is wrong; who reads is told that the answer is void.
        let last = sent[2].to_string();
        assert!(
            last.contains("This answer cannot be used: \\\"n\\\"") && last.contains("{\\\"n\\\": 0}"),
            "{api:?} {last}"
        );
        let log = events(&app, &id).await;
        let retry = log.iter().find_map(|event| match event {
            EventBody::StreamRetry { error, attempt, .. } => Some((error.clone(), *attempt)),
            _ => None,
        });
        let (error, attempt) = retry.expect("it is told");
        assert!(error.contains("does not fit `turn.outputSchema`: \"n\"") && attempt == 2, "{api:?} {error} {attempt}");
        let end = log.iter().find_map(|event| match event {
            EventBody::SessionCompleted { output, .. } => Some(output.clone()),
            _ => None,
        });
        assert_eq!(end, Some(Some(json!({ "n": 7 }))), "{api:?}");
        // It held for this turn, and what was void is not in the conversation.
        let plain = turn(&app, &id, json!({ "prompt": "and now?" })).await;
        assert_eq!((plain.result.as_deref(), plain.output), (Some("as you like"), None));
        let after = server.requests()[3].json();
        assert_eq!(told(api, &after), Value::Null);
        let after = after.to_string();
        assert!(
            !after.contains("cannot be used") && !after.contains("{\\\"n\\\": 0}") && after.contains("{\\\"n\\\": 7}"),
            "{api:?} {after}"
        );
    }
}

async fn over_chat(directory: &std::path::Path, answers: Vec<Answer>) -> (std::sync::Arc<App>, ModelServer, SessionId) {
    let server = ModelServer::start(queue(answers)).await;
    let app = open(directory, |settings| {
        settings.storage = Storage::Directory(directory.join("data"));
        settings.providers = vec![provider(json!({ "name": "p", "api": "openai-chat", "baseUrl": server.base_url() }))];
        settings.model = Some("p/m".into());
    })
    .await;
    let id = session(&app, json!({})).await;
    (app, server, id)
}

#[tokio::test]
async fn who_does_not_fit_twice_and_who_was_cut_fails_with_its_kind() {
    let says = Says(Api::Chat);
    #[rustfmt::skip]
    let table = [
        (vec![says.answer("seven"), says.answer("{\"n\":\"7\"}")], 2, "output_invalid", "\"n\": expected an integer, got the string \"7\""),
        (vec![Answer::raw(says.text("{\"n\":") + &says.end("length"))], 1, "max_tokens", "it reached its limit of tokens; it is not one JSON value"),
        (vec![Answer::raw(says.text("no") + &says.end("content_filter"))], 1, "content_filter", "cut the model's answer for its content"),
        (vec![says.answer(" "), says.answer("")], 2, "blank", "No response received"),
    ];
    for (answers, requests, kind, words) in table {
        let directory = tempfile::tempdir().unwrap();
        let (app, server, id) = over_chat(directory.path(), answers).await;
        let failed = turn(&app, &id, asks("how many?")).await;
        let error = failed.error.expect("it fails");
        assert_eq!((error.details.unwrap()["kind"].as_str(), server.requests().len()), (Some(kind), requests));
        assert!(error.message.contains(words), "{}", error.message);
        assert_eq!((failed.status, failed.output), (TurnStatus::Failed, None));
    }
}

/// Words of who does not want to answer are no answer, whatever they look like, and neither is what the provider took back.
#[tokio::test]
async fn a_refusal_is_no_answer_even_where_it_fits() {
    let fits = "{\"n\":7}";
    let chat = |delta: Value, why: &str| {
        format!("data: {}\n\n", json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": why }] }))
    };
    let refusal = json!({ "type": "refusal", "refusal": fits });
    let message = json!({ "type": "message", "role": "assistant", "content": [refusal] });
    let done = json!({ "type": "response.output_item.done", "output_index": 0, "item": message });
    let delta = json!({ "type": "response.refusal.delta", "output_index": 0, "delta": fits });
    #[rustfmt::skip]
    let table = [
        (Api::Chat, chat(json!({ "refusal": fits }), "stop") + "data: [DONE]\n\n", "refusal"),
        (Api::Chat, chat(json!({ "refusal": fits }), "length") + "data: [DONE]\n\n", "refusal"),
        (Api::Chat, chat(json!({ "content": fits }), "refusal") + "data: [DONE]\n\n", "refusal"),
        (Api::Chat, Says(Api::Chat).text(fits) + &Says(Api::Chat).end("content_filter"), "content_filter"),
        (Api::Responses, event(&delta) + &Says(Api::Responses).end("stop"), "refusal"),
        (Api::Responses, event(&delta) + &Says(Api::Responses).end("length"), "refusal"),
        (Api::Responses, event(&done) + &Says(Api::Responses).end("stop"), "refusal"),
        (Api::Responses, Says(Api::Responses).text(fits) + &Says(Api::Responses).end("content_filter"), "content_filter"),
        (Api::Messages, Says(Api::Messages).text(fits) + &Says(Api::Messages).end("refusal"), "refusal"),
        (Api::Gemini, Says(Api::Gemini).text(fits) + &Says(Api::Gemini).end("refusal"), "content_filter"),
    ];
    for (api, answer, kind) in table {
        let directory = tempfile::tempdir().unwrap();
        let server = ModelServer::start(queue(vec![Answer::raw(answer.clone())])).await;
        let app = open(directory.path(), |settings| {
            let at = json!({ "name": "p", "api": api.name(), "apiKey": "k", "baseUrl": server.base_url() });
            settings.providers = vec![provider(at)];
            settings.model = Some("p/m".into());
        })
        .await;
        let id = session(&app, json!({})).await;
        let failed = turn(&app, &id, asks("how many?")).await;
        let told = failed.error.as_ref().and_then(|error| error.details.as_ref()?["kind"].as_str().map(str::to_owned));
        assert_eq!(
            (told.as_deref(), &failed.output, server.requests().len()),
            (Some(kind), &None, 1),
            "{api:?} {answer}"
        );
        assert_eq!(failed.result, None);
    }
}

#[tokio::test]
async fn a_schema_waits_with_its_prompt_over_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let says = Says(Api::Chat);
    let (app, server, id) =
        over_chat(directory.path(), vec![Answer::silence(), says.answer("```json\n{\"n\": 3}\n```")]).await;
    let prompt = |body: Value| serde_json::from_value::<Prompt>(body).unwrap();
    let caller = Caller::default();
    app.prompt(&caller, &id, prompt(json!({ "prompt": "first" }))).await.expect("accepted");
    let queued = app.prompt(&caller, &id, prompt(asks("how many?"))).await.expect("queued");
    server.came(1).await;
    // A turn that runs keeps what it began with.
    let mut steer = asks("quick");
    steer["mode"] = "steer".into();
    let refused = app.prompt(&caller, &id, prompt(steer)).await.expect_err("refused");
    assert_eq!(refused.0.code, ErrorCode::Conflict);
    app.shutdown(std::time::Duration::ZERO).await.expect("it stops");
    let again = open(directory.path(), |settings| {
        settings.storage = Storage::Directory(directory.path().join("data"));
        settings.providers = vec![provider(json!({ "name": "p", "api": "openai-chat", "baseUrl": server.base_url() }))];
        settings.model = Some("p/m".into());
    })
    .await;
    let done = crate::support::http::within(again.wait_turn(&caller, &id, &queued.turn_id)).await.expect("it ends");
    assert_eq!(done.output, Some(json!({ "n": 3 })), "{done:?}");
    let kept = again.turn(&caller, &id, &queued.turn_id).await.expect("it is kept");
    assert_eq!((kept.output, kept.result), (done.output, done.result));
    again.shutdown(std::time::Duration::from_secs(10)).await.expect("it stops");
    // Log and record agree about it.
    let data = directory.path().join("data");
    let (code, out, err) = simse(&["check"], &data).await;
    assert_eq!(code, 0, "{out}{err}");
    let database = Connection::open(data.join("simse.db")).unwrap();
    let changed = database.execute("UPDATE turn SET body = replace(body, '{\"n\":3}', '{\"n\":4}')", []).unwrap();
    assert!(changed > 0);
    drop(database);
    let (code, out, err) = simse(&["check"], &data).await;
    assert!(code == 1 && (out.clone() + &err).contains("output"), "{out}{err}");
}

#[tokio::test]
async fn what_is_no_schema_and_who_cannot_be_held_to_one_is_refused_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let (app, server, id) = over_chat(directory.path(), vec![Says(Api::Chat).answer("no")]).await;
    let refused = |schema: Value, configure: Value| {
        let app = &app;
        let id = &id;
        async move {
            let body = json!({ "prompt": "x", "configure": configure, "turn": { "outputSchema": schema } });
            let body = serde_json::from_value::<Prompt>(body).unwrap();
            app.prompt(&Caller::default(), id, body).await.expect_err("refused")
        }
    };
    #[rustfmt::skip]
    let table = [
        (json!({}), "turn.outputSchema.type", "expected \"object\", got nothing"),
        (json!({ "type": "object", "properties": { "n": { "type": "int" } } }), "turn.outputSchema.properties.n.type", "expected a type of JSON"),
        (json!({ "type": "object", "properties": { "n": { "$ref": "http://x/y" } } }), "turn.outputSchema.properties.n.$ref", "nothing is fetched"),
        (json!({ "type": "object", "description": "x".repeat(40_000) }), "turn.outputSchema", "at most 32768 bytes"),
    ];
    for (schema, field, words) in table {
        let error = refused(schema, json!({})).await.0;
        assert_eq!(
            (error.code, &error.details.as_ref().unwrap()["field"]),
            (ErrorCode::InvalidArgument, &json!(field))
        );
        assert!(error.message.contains(words) && error.message.contains(field), "{}", error.message);
    }
    let error = refused(schema(), json!({ "model": "demo/scripted" })).await.0;
    assert_eq!(error.code, ErrorCode::Conflict);
    assert_eq!(error.details.as_ref().unwrap()["why"], json!("no_structured_output"));
    assert!(error.message.contains("demo/scripted"), "{}", error.message);
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_schema_that_doubles_with_each_level_ends_the_turn_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let says = Says(Api::Chat);
    let server = ModelServer::start(queue([says.answer("{\"c\": 1}")])).await;
    let app = open(directory.path(), |settings| {
        settings.providers =
            vec![provider(json!({ "name": "p", "api": "openai-chat", "apiKey": "k", "baseUrl": server.base_url() }))];
        settings.model = Some("p/m".to_owned());
    })
    .await;
    let id = session(&app, json!({})).await;
    let twice = json!({ "anyOf": [{ "$ref": "#/$defs/a" }, { "$ref": "#/$defs/a" }] });
    let schema = json!({ "type": "object", "properties": { "c": { "$ref": "#/$defs/a" } }, "$defs": { "a": twice } });
    let ended = turn(&app, &id, json!({ "prompt": "go", "turn": { "outputSchema": schema } })).await;
    let error = ended.error.expect("it failed");
    assert!(error.message.contains("too many forms within forms"), "{}", error.message);
}

#[tokio::test]
async fn an_answer_without_a_word_is_asked_for_once_more_and_then_told_with_its_reason() {
    let directory = tempfile::tempdir().unwrap();
    let nothing = || Answer::text(&[]);
    let (app, server, id) = over_chat(
        directory.path(),
        vec![nothing(), Answer::text(&["```JSON\n{\"n\": 3}\n```"]), nothing(), nothing(), nothing()],
    )
    .await;
    let done = turn(&app, &id, asks("how many?")).await;
    // The second try belongs to its round.
    assert_eq!((done.output, done.rounds), (Some(json!({ "n": 3 })), 1), "{:?}", done.error);
    let asked = server.requests()[1].json()["messages"].to_string();
    assert!(asked.contains("This answer cannot be used: it is empty"), "{asked}");
    let failed = turn(&app, &id, asks("and now?")).await;
    assert_eq!((failed.status, server.requests().len()), (TurnStatus::Failed, 4));
    let blank = json!({ "kind": "blank", "stopReason": "end_turn" });
    assert_eq!(failed.error.and_then(|error| error.details), Some(blank.clone()));
    let plain = turn(&app, &id, json!({ "prompt": "well?" })).await;
    assert_eq!(plain.error.and_then(|error| error.details), Some(blank));
}
