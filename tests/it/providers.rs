//! Providers of models as they are configured, against scripted servers: where requests go and what they carry, whom a turn asks
//! when a model fails, how much is asked at once, and answers that are recorded and given again.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use simse::app::{App, Caller, Extras};
use simse::config::{Settings, Storage, TapeSettings};
use simse::protocol::{EventBody, Prompt};

use crate::support::http::within;
use crate::support::model_server::{Answer, ModelServer, Script, queue};
use crate::support::sessions::{events, open, provider, session, turn};

fn said(text: &str) -> Answer {
    Answer::text(&[text])
}

#[tokio::test]
async fn a_provider_is_asked_at_its_address_with_its_key_its_headers_and_its_members() {
    let directory = tempfile::tempdir().unwrap();
    let server = ModelServer::start(queue([said("hello")])).await;
    let app = open(directory.path(), |settings| {
        settings.model = Some("mine/m-1".into());
        settings.providers = vec![provider(json!({
            "name": "mine", "api": "openai-chat", "baseUrl": server.base_url(), "apiKey": " sk-secret \n",
            "headers": { "X-Team": "blue" }, "body": { "temperature": 0.5, "seed": 1 },
            "models": [{ "name": "m-1", "label": "One", "contextTokens": 1000, "images": false, "body": { "seed": 7 },
                         "prices": { "input": 1.0, "output": 2.0 } }],
        }))];
    })
    .await;
    let id = session(&app, json!({})).await;
    let turn = turn(&app, &id, json!({ "prompt": "hi" })).await;
    assert_eq!(turn.result.as_deref(), Some("hello"));
    // The scripted server tells 10 tokens in and 5 out.
    assert_eq!(serde_json::to_value(turn.usage).unwrap()["costUsd"], json!(0.000_02));
    let asked = &server.requests()[0];
    assert_eq!(asked.header("authorization"), Some("Bearer sk-secret"));
    assert_eq!(asked.header("x-team"), Some("blue"));
    let body = asked.json();
    assert_eq!((&body["model"], &body["temperature"], &body["seed"]), (&json!("m-1"), &json!(0.5), &json!(7)));
    let models = app.models().await;
    let seen = models.iter().find(|model| model.id == "mine/m-1").expect("it is listed");
    assert_eq!((seen.label.as_deref(), seen.context_tokens, seen.images), (Some("One"), Some(1000), Some(false)));
    assert!(seen.default && seen.available && seen.prices.is_some());
}

#[tokio::test]
async fn a_key_in_a_file_is_read_anew_once_when_it_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("key");
    std::fs::write(&key, "sk-old\n").unwrap();
    let script: Script = Arc::new(|request| match request.header("authorization") {
        Some("Bearer sk-new") => said("in"),
        _ => Answer::status(401, &[], r#"{"error":{"message":"sk-old is wrong"}}"#),
    });
    let server = ModelServer::start(script).await;
    let app = open(directory.path(), |settings| {
        let (url, file) = (server.base_url(), key.display().to_string());
        settings.providers =
            vec![provider(json!({ "name": "mine", "api": "openai-chat", "baseUrl": url, "apiKeyFile": file }))];
        settings.model = Some("mine/m".into());
    })
    .await;
    let id = session(&app, json!({})).await;
    let refused = turn(&app, &id, json!({ "prompt": "hi" })).await;
    let error = refused.error.expect("it failed");
    assert_eq!(error.details.unwrap()["kind"], json!("unauthorized"));
    assert!(!error.message.contains("sk-old"), "{}", error.message);
    assert_eq!(server.requests().len(), 1, "the file says the same: asking again is of no use");
    std::fs::write(&key, "sk-new").unwrap();
    let taken = turn(&app, &id, json!({ "prompt": "hi" })).await;
    assert_eq!(taken.result.as_deref(), Some("in"));
    assert_eq!(server.requests().len(), 3, "refused once, and asked again with what stands there now");
}

#[tokio::test]
async fn whoever_fails_for_good_is_stood_in_for() {
    let directory = tempfile::tempdir().unwrap();
    let spent = r#"{"error":{"code":"insufficient_quota","message":"no money"}}"#;
    let down = ModelServer::start(Arc::new(move |_| Answer::status(429, &[], spent))).await;
    let dead = ModelServer::start(Arc::new(|_| Answer::status(401, &[], "{}"))).await;
    let fine = ModelServer::start(queue([said("from the third"), said("again")])).await;
    let app = open(directory.path(), |settings| {
        let entry = |name: &str, server: &ModelServer| {
            provider(json!({ "name": name, "api": "openai-chat", "baseUrl": server.base_url(), "apiKey": "k" }))
        };
        settings.providers = vec![entry("one", &down), entry("two", &dead), entry("three", &fine)];
        settings.model = Some("one/m".into());
        settings.model_fallbacks = vec!["two/m".into(), "three/m".into()];
    })
    .await;
    let id = session(&app, json!({})).await;
    for want in ["from the third", "again"] {
        let turn = turn(&app, &id, json!({ "prompt": "hi" })).await;
        assert_eq!(turn.result.as_deref(), Some(want));
    }
    let asked = events(&app, &id).await.into_iter().filter_map(|event| match event {
        EventBody::StreamRetry { model, error, .. } => Some((model, error)),
        _ => None,
    });
    let asked: Vec<(Option<String>, String)> = asked.collect();
    let models: Vec<Option<&str>> = asked.iter().map(|(model, _)| model.as_deref()).collect();
    assert_eq!(models, [Some("two/m"), Some("three/m"), Some("two/m"), Some("three/m")], "each turn begins anew");
    assert!(asked[0].1.contains("no money"), "{asked:?}");
    assert_eq!((down.requests().len(), dead.requests().len(), fine.requests().len()), (2, 2, 2));
}

#[tokio::test]
async fn a_list_of_fallbacks_names_each_once() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| provider(json!({ "name": name, "api": "openai-chat", "baseUrl": "http://127.0.0.1:9/v1" }));
    let mut settings = Settings::new(directory.path().canonicalize().unwrap());
    settings.providers = vec![at("one"), at("two"), at("three")];
    settings.model = Some("one/m".into());
    settings.model_fallbacks = ["two/m", "three/m", "two/m"].map(str::to_owned).to_vec();
    let refused = App::open(settings, Extras::default()).await.map(drop).unwrap_err().to_string();
    assert!(refused.contains("fallbacks") && refused.contains("got `two/m` twice"), "{refused}");
}

#[tokio::test]
async fn what_the_request_itself_is_to_blame_for_is_not_asked_elsewhere() {
    let directory = tempfile::tempdir().unwrap();
    let first =
        ModelServer::start(Arc::new(|_| Answer::status(400, &[], r#"{"error":{"message":"no such tool"}}"#))).await;
    let other = ModelServer::start(queue([said("no")])).await;
    let app = open(directory.path(), |settings| {
        let entry = |name: &str, server: &ModelServer| {
            provider(json!({ "name": name, "api": "openai-chat", "baseUrl": server.base_url() }))
        };
        settings.providers = vec![entry("one", &first), entry("two", &other)];
        settings.model = Some("one/m".into());
        settings.model_fallbacks = vec!["two/m".into()];
    })
    .await;
    let id = session(&app, json!({})).await;
    let failed = turn(&app, &id, json!({ "prompt": "hi" })).await;
    assert_eq!(failed.error.unwrap().details.unwrap()["kind"], json!("refused"));
    assert!(other.requests().is_empty());
}

#[tokio::test]
async fn requests_of_all_sessions_together_keep_to_a_providers_bounds() {
    let directory = tempfile::tempdir().unwrap();
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (inside, highest) = (Arc::clone(&now), Arc::clone(&most));
    let script: Script = Arc::new(move |_| {
        highest.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        let leaves = Arc::clone(&inside);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(30)).await;
            leaves.fetch_sub(1, Ordering::SeqCst);
        });
        Answer::paced(&["a", "b"], Duration::from_millis(30))
    });
    let server = ModelServer::start(script).await;
    let app = open(directory.path(), |settings| {
        settings.providers = vec![provider(
            json!({ "name": "mine", "api": "openai-chat", "baseUrl": server.base_url(), "concurrency": 2 }),
        )];
        settings.model = Some("mine/m".into());
    })
    .await;
    let mut turns = Vec::new();
    for _ in 0..6 {
        let (app, id) = (Arc::clone(&app), session(&app, json!({})).await);
        turns.push(tokio::spawn(async move { turn(&app, &id, json!({ "prompt": "hi" })).await }));
    }
    for done in turns {
        assert_eq!(done.await.unwrap().result.as_deref(), Some("ab"));
    }
    assert_eq!(server.requests().len(), 6);
    assert!(most.load(Ordering::SeqCst) <= 2, "{most:?} at once");
}

#[tokio::test]
async fn a_session_switches_models_in_the_middle_for_a_prompt_and_for_good() {
    let directory = tempfile::tempdir().unwrap();
    let call = [("c1", "fs_list", json!({ "path": "." }))];
    let first = ModelServer::start(queue([Answer::calls("looking", &call), said("one")])).await;
    let second = ModelServer::start(queue([said("two")])).await;
    let app = open(directory.path(), |settings| {
        let entry = |name: &str, server: &ModelServer| {
            provider(json!({ "name": name, "api": "openai-chat", "baseUrl": server.base_url() }))
        };
        settings.providers = vec![entry("one", &first), entry("two", &second)];
        settings.model = Some("one/m".into());
    })
    .await;
    let id = session(&app, json!({})).await;
    assert_eq!(turn(&app, &id, json!({ "prompt": "hi" })).await.result.as_deref(), Some("one"));
    let body = json!({ "prompt": "and you?", "configure": { "model": "two/m" } });
    assert_eq!(turn(&app, &id, body).await.result.as_deref(), Some("two"));
    let sent = second.requests()[0].json();
    let roles: Vec<&str> = sent["messages"].as_array().unwrap().iter().filter_map(|m| m["role"].as_str()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "assistant", "user"], "it is told all of it");
}

/// One that fails for good.
fn fails() -> Script {
    Arc::new(|_| Answer::status(401, &[], "{}"))
}

/// Three providers, of which the first does as it is told and the others answer with their names.
async fn three(directory: &Path, storage: &Storage, first: Script) -> (Arc<App>, [ModelServer; 3]) {
    let [two, three] = ["two", "three"].map(|name| ModelServer::start(Arc::new(move |_| said(name))));
    let servers = [ModelServer::start(first).await, two.await, three.await];
    let app = open(directory, |settings| {
        settings.storage = storage.clone();
        settings.providers = ["one", "two", "three"]
            .iter()
            .zip(&servers)
            .map(|(name, server)| {
                provider(json!({ "name": name, "api": "openai-chat", "baseUrl": server.base_url(), "apiKey": "k" }))
            })
            .collect();
        settings.model = Some("one/m".into());
        settings.model_fallbacks = vec!["two/m".into()];
    })
    .await;
    (app, servers)
}

#[tokio::test]
async fn a_session_has_fallbacks_of_its_own_and_so_has_a_turn() {
    let directory = tempfile::tempdir().unwrap();
    let (app, _servers) = three(directory.path(), &Storage::Memory, fails()).await;
    let caller = Caller::default();
    let id = session(&app, json!({})).await;
    assert_eq!(app.session(&caller, &id).await.unwrap().model_fallbacks, None);
    let answers = async |body: Value| turn(&app, &id, body).await.result;
    assert_eq!(answers(json!({ "prompt": "hi" })).await.as_deref(), Some("two"), "the server's");
    let own = json!({ "prompt": "hi", "configure": { "modelFallbacks": ["three/m"] } });
    assert_eq!(answers(own).await.as_deref(), Some("three"), "its own");
    assert_eq!(app.session(&caller, &id).await.unwrap().model_fallbacks.as_deref(), Some(&["three/m".to_owned()][..]));
    let once = json!({ "prompt": "hi", "turn": { "modelFallbacks": ["two/m", "three/m"] } });
    assert_eq!(answers(once).await.as_deref(), Some("two"), "the turn's");
    assert_eq!(answers(json!({ "prompt": "hi", "turn": { "modelFallbacks": [] } })).await, None, "none, once");
    assert_eq!(answers(json!({ "prompt": "hi", "turn": {} })).await.as_deref(), Some("three"));
    assert_eq!(answers(json!({ "prompt": "hi", "configure": { "modelFallbacks": [] } })).await, None, "none");
    let servers = json!({ "prompt": "hi", "configure": { "modelFallbacks": ["*"] } });
    assert_eq!(answers(servers).await.as_deref(), Some("two"), "the server's again");
    let id = session(&app, json!({ "modelFallbacks": ["three/m"] })).await;
    assert_eq!(turn(&app, &id, json!({ "prompt": "hi" })).await.result.as_deref(), Some("three"));
}

#[tokio::test]
async fn a_model_for_one_turn_alone_outlives_a_restart_and_no_turn() {
    let (directory, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let storage = Storage::Directory(data.path().to_owned());
    let slow: Script = Arc::new(|_| Answer::paced(&["a"; 1_000], Duration::from_millis(20)));
    let (app, servers) = three(directory.path(), &storage, slow).await;
    let caller = Caller::default();
    let id = session(&app, json!({ "model": "two/m" })).await;
    let once = json!({ "prompt": "hi", "turn": { "model": "three/m", "reasoning": "high" } });
    assert_eq!(turn(&app, &id, once.clone()).await.result.as_deref(), Some("three"));
    assert_eq!(app.session(&caller, &id).await.unwrap().model, "two/m");
    assert_eq!(turn(&app, &id, json!({ "prompt": "hi" })).await.result.as_deref(), Some("two"));
    let given = async |app: &App, body: Value| {
        let accepted = app.prompt(&caller, &id, serde_json::from_value(body).unwrap()).await;
        accepted.map(|accepted| accepted.turn_id).map_err(|refused| refused.0)
    };
    given(&app, json!({ "prompt": "slow", "turn": { "model": "one/m" } })).await.unwrap();
    let steer = json!({ "prompt": "hi", "mode": "steer", "turn": { "model": "three/m" } });
    let refused = given(&app, steer).await.expect_err("it runs").details.expect("details");
    assert_eq!((&refused["field"], &refused["why"]), (&json!("turn"), &json!("under_way")));
    let waits = given(&app, once).await.unwrap();
    let last = given(&app, json!({ "prompt": "hi" })).await.unwrap();
    app.shutdown(Duration::ZERO).await.unwrap();
    drop(servers);
    let (app, _servers) = three(directory.path(), &storage, fails()).await;
    for (turn, want) in [(waits, "three"), (last, "two")] {
        let record = within(app.wait_turn(&caller, &id, &turn)).await.unwrap();
        assert_eq!(record.result.as_deref(), Some(want), "{record:?}");
    }
    let told: Vec<Value> = events(&app, &id)
        .await
        .iter()
        .filter(|event| matches!(event, EventBody::SessionPrompt { .. }))
        .map(|event| serde_json::to_value(event).unwrap()["payload"]["turn"]["model"].clone())
        .collect();
    let (one, three) = (json!("one/m"), json!("three/m"));
    assert_eq!(told, [three.clone(), Value::Null, one, three, Value::Null]);
    app.shutdown(Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn settings_of_a_turn_that_cannot_be_are_refused_by_their_place() {
    let directory = tempfile::tempdir().unwrap();
    let (app, _servers) = three(directory.path(), &Storage::Memory, fails()).await;
    let id = session(&app, json!({ "model": "two/m" })).await;
    let many: Vec<String> = (0..17).map(|at| format!("two/m{at}")).collect();
    #[rustfmt::skip]
    let table = [
        (json!({ "model": "none/m" }), "turn.model"),
        (json!({ "modelFallbacks": ["two/m", "none/m"] }), "turn.modelFallbacks[1]"),
        (json!({ "modelFallbacks": ["two/m", "two/m"] }), "turn.modelFallbacks[1]"),
        (json!({ "modelFallbacks": ["*", "two/m"] }), "turn.modelFallbacks[0]"),
        (json!({ "modelFallbacks": many }), "turn.modelFallbacks"),
        (json!({ "agentOptions": { "a": "b" } }), "turn.agentOptions"),
    ];
    for (only, field) in table {
        let body: Prompt = serde_json::from_value(json!({ "prompt": "hi", "turn": only })).unwrap();
        let refused = app.prompt(&Caller::default(), &id, body).await.expect_err("refused");
        assert_eq!(refused.0.details.expect("details")["field"], json!(field), "{only}");
    }
}

/// A recording of two prompts, one of them with a tool call; and the events of the log.
async fn recorded(directory: &Path, tape: &Path) -> Vec<String> {
    let call = [("c1", "fs_list", json!({ "path": "." }))];
    let server =
        ModelServer::start(queue([Answer::calls("looking: sk-very-secret", &call), said("done"), said("two")])).await;
    let app = open(directory, |settings| {
        settings.providers = vec![provider(
            json!({ "name": "mine", "api": "openai-chat", "baseUrl": server.base_url(), "apiKey": "sk-very-secret" }),
        )];
        settings.model = Some("mine/m".into());
        settings.tape = TapeSettings::Record(tape.to_owned());
    })
    .await;
    let told = told(&app).await;
    app.shutdown(Duration::ZERO).await.unwrap();
    // An exchange is written behind the turn's back.
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while std::fs::read_to_string(tape).unwrap_or_default().lines().count() < 3 {
        assert!(tokio::time::Instant::now() < deadline, "three exchanges are written");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    told
}

/// What came of the two prompts: texts, calls and results.
async fn told(app: &App) -> Vec<String> {
    let id = session(app, json!({})).await;
    turn(app, &id, json!({ "prompt": "list" })).await;
    turn(app, &id, json!({ "prompt": "more" })).await;
    let told = events(app, &id).await.into_iter().filter_map(|event| match event {
        EventBody::StreamComplete { text, .. } => Some(text),
        EventBody::ToolCallStart { name, args, .. } => Some(format!("{name} {}", Value::Object(args))),
        EventBody::ToolCallEnd { output, .. } => Some(output),
        EventBody::SessionError { error, .. } => Some(format!("error: {}", error.message)),
        _ => None,
    });
    told.collect()
}

#[tokio::test]
async fn answers_are_recorded_without_keys_and_given_again_offline() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("a.txt"), "a").unwrap();
    let outside = tempfile::tempdir().unwrap();
    let tape = outside.path().join("tape.jsonl");
    let live = recorded(directory.path(), &tape).await;
    let text = std::fs::read_to_string(&tape).unwrap();
    assert!(!text.contains("sk-very-secret"), "no key in it");
    assert_eq!(text.lines().count(), 3);
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(std::fs::metadata(&tape).unwrap().permissions().mode() & 0o777, 0o600);
    }
    for speed in [0.0, 1.0] {
        let app = open(directory.path(), |settings| settings.tape = TapeSettings::Replay(tape.clone(), speed)).await;
        let again = told(&app).await;
        let hidden: Vec<String> = live.iter().map(|text| text.replace("sk-very-secret", "***")).collect();
        assert_eq!(again.len(), hidden.len(), "{again:?}");
        assert_eq!(again[1..], hidden[1..], "speed {speed}");
        let models = app.models().await;
        assert_eq!(models.iter().map(|model| model.id.as_str()).collect::<Vec<_>>(), ["mine/m", "demo/scripted"]);
        let id = session(&app, json!({})).await;
        let over = turn(&app, &id, json!({ "prompt": "one too many" })).await;
        let error = over.error.expect("there is no further answer");
        assert!(error.message.contains("no further answer of `mine/m` (it has 3)"), "{}", error.message);
    }
}

#[tokio::test]
async fn a_recording_that_cannot_be_used_is_told_by_its_line() {
    let directory = tempfile::tempdir().unwrap();
    let tape = directory.path().join("tape.jsonl");
    let open = |text: &str| {
        std::fs::write(&tape, text).unwrap();
        let mut settings = Settings::new(directory.path().canonicalize().unwrap());
        settings.tape = TapeSettings::Replay(tape.clone(), 0.0);
        App::open(settings, Extras::default())
    };
    let line = r#"{"v":2,"model":"a/b","wire":"openai-chat","sha256":"","request":{},"status":200,"contentType":"","pieces":[],"ended":"end"}"#;
    for (text, want) in [("{", "line 1: EOF"), (line, "line 1: expected version 1"), ("\n\n[]", "line 3")] {
        let error = open(text).await.expect_err("refused").to_string();
        assert!(error.contains("replay_models): expected a recording") && error.contains(want), "{error}");
    }
}

#[tokio::test]
async fn a_session_that_nobody_named_gets_a_title_from_the_small_model() {
    let directory = tempfile::tempdir().unwrap();
    let large = ModelServer::start(queue([said("done"), said("done"), said("done")])).await;
    let small = ModelServer::start(queue([said("\"Fix the build.\"\n")])).await;
    let app = open(directory.path(), |settings| {
        let entry = |name: &str, server: &ModelServer| {
            provider(json!({ "name": name, "api": "openai-chat", "baseUrl": server.base_url() }))
        };
        settings.providers = vec![entry("large", &large), entry("small", &small)];
        settings.model = Some("large/m".into());
        settings.small_model = Some("small/m".into());
    })
    .await;
    let named = session(&app, json!({ "title": "Mine" })).await;
    turn(&app, &named, json!({ "prompt": "the build is broken" })).await;
    let id = session(&app, json!({})).await;
    turn(&app, &id, json!({ "prompt": "the build is broken" })).await;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    let caller = Caller::default();
    while app.session(&caller, &id).await.unwrap().title.is_none() {
        assert!(tokio::time::Instant::now() < deadline, "a title comes");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(app.session(&caller, &id).await.unwrap().title.as_deref(), Some("Fix the build"));
    turn(&app, &id, json!({ "prompt": "more" })).await;
    assert_eq!(app.session(&caller, &named).await.unwrap().title.as_deref(), Some("Mine"));
    let asked = small.requests();
    assert_eq!(asked.len(), 1, "once, and not for the one that has a title");
    let shown = asked[0].json()["messages"][1]["content"].to_string();
    assert!(shown.contains("the build is broken") && shown.contains("done"), "{shown}");
}
