//! What servers send that is not as it should be and does no harm: ids of calls that are there twice or not at all, figures that
//! are none, and keys like words in recordings. And what prompts would cost, as providers count.

use serde_json::{Value, json};
use simse::app::Caller;
use simse::config::{Api, TapeSettings};
use simse::protocol::{ErrorCode, EventBody, TurnStatus};

use crate::support::model_server::{Answer, ModelServer, Step, queue};
use crate::support::says::{Says, WIRES, content};
use crate::support::sessions::{events, open, provider, session, turn};

fn listed(says: Says, ids: &[&str]) -> Answer {
    let calls: Vec<(&str, &str, Value)> = ids.iter().map(|id| (*id, "fs_list", json!({ "path": "." }))).collect();
    Answer::raw(says.calls(&calls) + &says.end("tool_calls"))
}

/// The ids of a request's calls, and those of their results, in order.
fn ids(value: &Value, calls: &mut Vec<String>, results: &mut Vec<String>) {
    let word = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    match value {
        Value::Object(members) => {
            let kind = word(value, "type");
            match kind.as_deref() {
                Some("function") => calls.extend(word(value, "id")),
                Some("tool_use") => calls.extend(word(value, "id")),
                Some("function_call") => calls.extend(word(value, "call_id")),
                Some("function_call_output") => results.extend(word(value, "call_id")),
                _ => {}
            }
            results.extend(word(value, "tool_use_id").or(word(value, "tool_call_id")));
            calls.extend(members.get("functionCall").and_then(|call| word(call, "id")));
            results.extend(members.get("functionResponse").and_then(|result| word(result, "id")));
            members.values().for_each(|value| ids(value, calls, results));
        }
        Value::Array(all) => all.iter().for_each(|value| ids(value, calls, results)),
        _ => {}
    }
}

#[tokio::test]
async fn an_id_that_comes_again_is_another_one_in_what_is_sent() {
    let directory = tempfile::tempdir().unwrap();
    for api in WIRES {
        let says = Says(api);
        // Gemini's thoughts are signed: such replies go back as they came, ids and all.
        let signed = |id: &str| {
            let call = json!({ "functionCall": { "id": id, "name": "fs_list", "args": { "path": "." } }, "thoughtSignature": "s" });
            Answer::raw(content(&json!([call]), None) + &says.end("tool_calls"))
        };
        let once = |id: &str| if api == Api::Gemini { signed(id) } else { listed(says, &[id]) };
        let answers = [
            once("functions.x:0"),
            says.answer("one"),
            listed(says, &["same", "same"]),
            once("same"),
            says.answer("two"),
            once("functions.x:0"),
            says.answer("three"),
        ];
        let server = ModelServer::start(queue(answers)).await;
        let app = open(directory.path(), |settings| {
            settings.providers =
                vec![provider(json!({ "name": "p", "api": api.name(), "apiKey": "k", "baseUrl": server.base_url() }))];
            settings.model = Some("p/gemini-3.8-flash".into());
        })
        .await;
        let id = session(&app, json!({})).await;
        for prompt in ["one", "two", "three"] {
            let done = turn(&app, &id, json!({ "prompt": prompt })).await;
            assert_eq!(done.result.as_deref(), Some(prompt), "{api:?} {:?}", done.error);
        }
        let mut before = (Vec::new(), Vec::new());
        for request in server.requests() {
            let (mut calls, mut results) = (Vec::new(), Vec::new());
            // Tools are no calls.
            let mut body = request.json();
            body.as_object_mut().unwrap().remove("tools");
            ids(&body, &mut calls, &mut results);
            assert_eq!(calls, results, "{api:?}: each result has the id of its call");
            let once: std::collections::HashSet<&String> = calls.iter().collect();
            assert_eq!(once.len(), calls.len(), "{api:?}: {calls:?}");
            assert_eq!(
                (&calls[..before.0.len()], &results[..before.1.len()]),
                (&before.0[..], &before.1[..]),
                "{api:?}: as before"
            );
            before = (calls, results);
        }
        // Gemini's calls have ids only where they go back as they came.
        assert_eq!(before.0.len(), if api == Api::Gemini { 3 } else { 5 }, "{api:?} {:?}", before.0);
    }
}

#[tokio::test]
async fn figures_that_are_none_lose_no_reply() {
    let directory = tempfile::tempdir().unwrap();
    for api in WIRES {
        let says = Says(api);
        for (ten, five, want) in [("2.6", "-1", 3), ("\"12\"", "null", 12), ("[]", "{}", 0), ("true", "\"x\"", 0)] {
            let said = says.text("fine")
                + &says.end("stop").replace(":10", &format!(":{ten}")).replace(":5", &format!(":{five}"));
            assert!(said.contains(&format!(":{ten}")), "{api:?} {said}");
            let server = ModelServer::start(queue([Answer::raw(said)])).await;
            let app = open(directory.path(), |settings| {
                settings.providers = vec![provider(
                    json!({ "name": "p", "api": api.name(), "apiKey": "k", "baseUrl": server.base_url() }),
                )];
                settings.model = Some("p/m".into());
            })
            .await;
            let id = session(&app, json!({})).await;
            let done = turn(&app, &id, json!({ "prompt": "hi" })).await;
            assert_eq!(
                (done.status, done.result.as_deref()),
                (TurnStatus::Completed, Some("fine")),
                "{api:?} {ten} {:?}",
                done.error
            );
            assert_eq!((done.usage.input_tokens, done.usage.output_tokens), (want, 0), "{api:?} {ten} {five}");
        }
    }
}

#[tokio::test]
async fn a_key_like_a_word_leaves_recordings_whole() {
    let directory = tempfile::tempdir().unwrap();
    for key in ["x", "null", "1234", "content", "12345678"] {
        let outside = tempfile::tempdir().unwrap();
        let tape = outside.path().join("tape.jsonl");
        let said = "x is null, 1234 or 12345678";
        let server = ModelServer::start(queue([Answer::text(&[said])])).await;
        let entry = json!({ "name": "p", "api": "openai-chat", "apiKey": key, "baseUrl": server.base_url() });
        let app = open(directory.path(), |settings| {
            settings.providers = vec![provider(entry.clone())];
            settings.model = Some("p/m".into());
            settings.tape = TapeSettings::Record(tape.clone());
        })
        .await;
        let id = session(&app, json!({})).await;
        let live = turn(&app, &id, json!({ "prompt": "hi" })).await;
        assert_eq!(live.result.as_deref(), Some(said), "{key} {:?}", live.error);
        let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
        while std::fs::read_to_string(&tape).unwrap_or_default().lines().count() < 1 {
            assert!(tokio::time::Instant::now() < deadline, "it is written");
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        let app = open(directory.path(), |settings| settings.tape = TapeSettings::Replay(tape.clone(), 0.0)).await;
        let id = session(&app, json!({})).await;
        let again = turn(&app, &id, json!({ "prompt": "hi" })).await;
        assert_eq!(again.result.as_deref(), Some(said), "{key} {:?}", again.error);
        let blank = events(&app, &id).await.into_iter().any(|event| matches!(event, EventBody::StreamRetry { .. }));
        assert!(!blank, "{key}");
    }
}

#[tokio::test]
async fn a_prompt_is_counted_by_those_who_count() {
    let directory = tempfile::tempdir().unwrap();
    for api in WIRES {
        let counted = match api {
            Api::Messages => json!({ "input_tokens": 12 }),
            _ => json!({ "totalTokens": 12 }),
        };
        let broken = json!({ "error": { "message": "no", "type": "overloaded_error", "code": 529 } });
        let server = ModelServer::start(queue([
            Answer::status(200, &[("content-type", "application/json")], &counted.to_string()),
            Answer::status(529, &[], &broken.to_string()),
            Answer::steps(vec![Step::Send("{".into()), Step::Cut]).under(200, &[("content-type", "application/json")]),
        ]))
        .await;
        let app = open(directory.path(), |settings| {
            let entry = json!({ "name": "p", "api": api.name(), "apiKey": "k", "baseUrl": server.base_url() });
            settings.providers = vec![provider(entry)];
            settings.model = Some("p/m".into());
        })
        .await;
        let count = |body: Value| {
            let app = std::sync::Arc::clone(&app);
            async move { app.count_tokens(&Caller::default(), serde_json::from_value(body).unwrap()).await }
        };
        let asked = json!({ "prompt": "hello", "system": "Be brief.", "tools": true });
        if !matches!(api, Api::Messages | Api::Gemini) {
            let refused = count(asked).await.expect_err("it does not count").0;
            assert_eq!((refused.code, server.requests().len()), (ErrorCode::Conflict, 0), "{api:?}");
            assert_eq!(refused.details.unwrap()["why"], "no_token_count");
            continue;
        }
        let told = count(asked).await.expect("counted");
        assert_eq!((told.model.as_str(), told.tokens), ("p/m", 12), "{api:?}");
        let sent = &server.requests()[0];
        assert!(sent.path.contains("ount"), "{api:?} {}", sent.path);
        let body = sent.json().to_string();
        assert!(["hello", "Be brief.", "fs_read"].iter().all(|word| body.contains(word)), "{api:?} {body}");
        let failed = count(json!({ "prompt": "again" })).await.expect_err("it is overloaded").0;
        assert_eq!(
            (failed.code, failed.details.unwrap()["kind"].as_str()),
            (ErrorCode::UpstreamUnavailable, Some("transient"))
        );
        let cut = count(json!({ "prompt": "again" })).await.expect_err("it is cut").0;
        assert_eq!(cut.details.unwrap()["kind"], "transient", "{}", cut.message);
        for (body, field) in
            [(json!({ "prompt": "" }), "prompt"), (json!({ "prompt": "x", "model": "none/m" }), "model")]
        {
            let refused = count(body).await.expect_err("refused").0;
            assert_eq!(
                (refused.code, refused.details.unwrap()["field"].as_str()),
                (ErrorCode::InvalidArgument, Some(field))
            );
        }
    }
}
