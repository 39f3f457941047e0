//! Long-term memory from the door to the disk: what one session notes, another finds after a restart; and the
//! embeddings wire, well and badly.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use simse::base::limit;
use simse::config::{MemorySettings, OpenAiSettings, Settings, Storage};
use simse::model::{Embedder, ModelError};
use simse::protocol::{PermissionPolicy, PermissionRule};
use simse::provider::{OpenAiOptions, Reach, openai_embedder};
use simse::server::ListenOptions;
use tokio_util::sync::CancellationToken;

use crate::support::house::{Does, House};
use crate::support::http::Frame;
use crate::support::model_server::{Answer, ModelServer, Script, Step, queue};

const KEY: &str = "sk-very-secret-key";

/// An answer of the embeddings route.
fn embeddings(vectors: &[Vec<f32>]) -> Answer {
    let entry =
        |(index, vector): (usize, &Vec<f32>)| json!({"object": "embedding", "index": index, "embedding": vector});
    let data: Vec<Value> = vectors.iter().enumerate().map(entry).collect();
    let usage = json!({"prompt_tokens": 8, "total_tokens": 8});
    let body = json!({"object": "list", "data": data, "model": "embed-1", "usage": usage});
    json_answer(200, &body.to_string())
}

fn json_answer(status: u16, body: &str) -> Answer {
    Answer::status(status, &[("content-type", "application/json")], body)
}

/// Knows two meanings: feet on four, and iron.
fn meanings() -> Script {
    Arc::new(|request| {
        assert_eq!(request.path, "/v1/embeddings");
        let about = |text: &Value, words: &[&str]| {
            let text = text.as_str().unwrap_or_default();
            f32::from(u8::from(words.iter().any(|word| text.contains(word))))
        };
        let body = request.json();
        let texts = body["input"].as_array().expect("a list of texts");
        let vector = |text: &Value| vec![about(text, &["cat", "feline"]), about(text, &["anvil", "forge"]), 0.01];
        embeddings(&texts.iter().map(vector).collect::<Vec<_>>())
    })
}

struct Place {
    data: tempfile::TempDir,
    work: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { data: tempfile::tempdir().unwrap(), work: tempfile::tempdir().unwrap() };
        for directory in ["one/.git", "one/deep", "two"] {
            std::fs::create_dir_all(place.work.path().join(directory)).unwrap();
        }
        place
    }

    /// A server over this place; everything may be remembered and forgotten unasked when `free`.
    async fn open(&self, base_url: Option<String>, free: bool) -> House {
        let work = self.work.path().canonicalize().unwrap();
        House::with(ListenOptions::default(), |settings: &mut Settings| {
            settings.working_directory = work;
            settings.storage = Storage::Directory(self.data.path().to_owned());
            settings.memory = MemorySettings { enabled: true, ..MemorySettings::default() };
            if let Some(base_url) = base_url {
                settings.openai = OpenAiSettings {
                    base_url: Some(base_url.into()),
                    api_key: Some(KEY.into()),
                    ..OpenAiSettings::default()
                };
                settings.memory.embedding_model = Some("openai/embed-1".into());
            }
            if free {
                settings.permissions.rules.push(PermissionRule {
                    tool: "memory_*".into(),
                    pattern: None,
                    policy: PermissionPolicy::Allow,
                    category: None,
                    annotations: None,
                });
            }
        })
        .await
    }
}

/// A session in a directory calls a tool; the call's events from its start to its end.
async fn call(house: &House, directory: &str, name: &'static str, arguments: Value) -> Vec<Frame> {
    let session = house.session(json!({ "workingDirectory": directory })).await;
    house.round(&[Does::Calls(name, arguments)]);
    house.prompt(&session, "go").await;
    let all = house.events(&session, "").await.until("session.completed").await;
    let from = all.iter().position(|frame| frame.kind() == "tool.call.start").unwrap();
    let to = all.iter().position(|frame| frame.kind() == "tool.call.end").unwrap();
    all[from..=to].to_vec()
}

fn payload(frame: &Frame) -> &Value {
    &frame.data["payload"]
}

fn output(frames: &[Frame]) -> &str {
    payload(frames.last().unwrap())["output"].as_str().unwrap()
}

fn kinds(frames: &[Frame]) -> Vec<&str> {
    frames.iter().map(Frame::kind).collect()
}

#[tokio::test]
async fn what_one_session_notes_another_finds_after_a_restart() {
    let place = Place::new();
    let model = ModelServer::start(meanings()).await;
    let house = place.open(Some(model.base_url()), true).await;
    let tools = house.call("GET", "/tools", None).await.json();
    let tools: Vec<&str> = tools["tools"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    assert_eq!(tools[tools.len() - 3..], ["memory_search", "memory_add", "memory_delete"]);

    let note = json!({"text": "The cat has to be fed at noon", "topic": "house"});
    let frames = call(&house, "one/deep", "memory_add", note).await;
    assert_eq!(kinds(&frames), ["tool.call.start", "memory.add", "tool.call.end"]);
    let id = payload(&frames[1])["id"].as_str().unwrap().to_owned();
    assert_eq!(payload(&frames[1]), &json!({"id": id, "contentLength": 29}));
    assert_eq!(output(&frames), format!("Remembered: {id}"));
    let sent = &model.requests()[0];
    assert_eq!(sent.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    let want = json!({"model": "embed-1", "input": ["The cat has to be fed at noon"], "encoding_format": "float"});
    assert_eq!(sent.json(), want);
    house.close().await;

    let house = place.open(Some(model.base_url()), true).await;
    // Another directory of the same repository; no word in common.
    let frames = call(&house, "one", "memory_search", json!({"query": "feline"})).await;
    assert_eq!(kinds(&frames), ["tool.call.start", "memory.search", "tool.call.end"]);
    let searched = payload(&frames[1]);
    assert_eq!((&searched["query"], &searched["resultCount"]), (&json!("feline"), &json!(1)));
    assert!(searched["durationMs"].is_u64() && searched.get("degraded").is_none(), "{searched}");
    assert_eq!(output(&frames), format!("1. [house] (score: 1.00, id: {id})\n   The cat has to be fed at noon"));
    // Another project knows nothing of it, not even how to forget it.
    let frames = call(&house, "two", "memory_search", json!({"query": "cat"})).await;
    assert_eq!(output(&frames), "Nothing is remembered about that.");
    let frames = call(&house, "two", "memory_delete", json!({ "id": id })).await;
    assert_eq!(kinds(&frames), ["tool.call.start", "tool.call.error", "tool.call.end"]);

    let frames = call(&house, "one", "memory_delete", json!({ "id": id })).await;
    assert_eq!(kinds(&frames), ["tool.call.start", "memory.delete", "tool.call.end"]);
    assert_eq!(payload(&frames[1]), &json!({ "id": id }));
    let frames = call(&house, "one", "memory_search", json!({"query": "cat"})).await;
    assert_eq!(output(&frames), "Nothing is remembered about that.");
    house.close().await;
}

#[tokio::test]
async fn an_endpoint_that_fails_costs_meanings_and_no_texts() {
    let place = Place::new();
    let error = r#"{"error":{"message":"no such key","type":"invalid_request_error","code":"invalid_api_key"}}"#;
    let model = ModelServer::start(queue([json_answer(401, error)])).await;
    let house = place.open(Some(model.base_url()), true).await;
    let frames = call(&house, "one", "memory_add", json!({"text": "The cat has to be fed at noon"})).await;
    assert_eq!(kinds(&frames), ["tool.call.start", "memory.add", "tool.call.end"]);
    let frames = call(&house, "one", "memory_search", json!({"query": "when is the cat fed?"})).await;
    let degraded = payload(&frames[1])["degraded"].as_str().unwrap();
    assert!(degraded.contains("no such key") && output(&frames).contains(degraded), "{degraded}");
    assert!(output(&frames).starts_with("1. (score: 1.00, id: mem_"), "{}", output(&frames));
    // After the first failure the endpoint is left alone.
    assert_eq!(model.requests().len(), 1);
    house.close().await;
    // It works again: the text is understood with the next search.
    let model = ModelServer::start(meanings()).await;
    let house = place.open(Some(model.base_url()), true).await;
    let frames = call(&house, "one", "memory_search", json!({"query": "feline"})).await;
    assert!(output(&frames).contains("fed at noon"), "{}", output(&frames));
    house.close().await;
}

#[tokio::test]
async fn searching_is_allowed_and_noting_is_asked() {
    let place = Place::new();
    let house = place.open(None, false).await;
    let frames = call(&house, "one", "memory_search", json!({"query": "cat"})).await;
    assert_eq!(kinds(&frames), ["tool.call.start", "memory.search", "tool.call.end"]);
    for (name, arguments) in [("memory_add", json!({"text": "x"})), ("memory_delete", json!({"id": "mem_1"}))] {
        let session = house.session(json!({})).await;
        let mut events = house.events(&session, "").await;
        house.round(&[Does::Calls(name, arguments)]);
        let body = json!({ "prompt": "go" });
        house.call("POST", &format!("/sessions/{session}/prompt"), Some(body)).await;
        let seen = events.until("permission.request").await;
        let asked = payload(seen.last().unwrap());
        assert_eq!(asked["toolName"], name);
        let answer = json!({ "requestId": asked["requestId"], "decision": "deny" });
        let reply = house.call("POST", &format!("/sessions/{session}/feedback"), Some(answer)).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let rest = events.until("session.completed").await;
        assert!(kinds(&rest).iter().all(|kind| !kind.starts_with("memory.")), "{:?}", kinds(&rest));
    }
    house.close().await;
}

#[tokio::test]
async fn switched_off_there_is_neither_tool_nor_file() {
    let house = House::open().await;
    let tools = house.call("GET", "/tools", None).await;
    assert!(!String::from_utf8_lossy(&tools.body).contains("memory_"), "{tools:?}");
    house.close().await;
    let place = Place::new();
    let data = place.data.path().to_owned();
    let there = || Path::new(&data).join("memory.db").exists();
    let house = House::with(ListenOptions::default(), |s| s.storage = Storage::Directory(data.clone())).await;
    house.close().await;
    assert!(!there());
    place.open(None, false).await.close().await;
    assert!(there());
}

fn embedder(base_url: &str, idle_timeout: Duration) -> Arc<dyn Embedder> {
    openai_embedder(OpenAiOptions {
        model: "embed-1".into(),
        base_url: Some(base_url.into()),
        api_key: Some(KEY.into()),
        idle_timeout,
        images: true,
        reach: Reach::default(),
    })
}

#[tokio::test]
async fn every_bad_answer_is_an_error_of_its_kind() {
    let long = format!("{{\"data\":[{}", " ".repeat(limit::EMBEDDING_REPLY_BYTES_MAX));
    let echo = format!(r#"{{"error":{{"message":"bad key {KEY}"}}}}"#);
    #[rustfmt::skip]
    let table: Vec<(&str, Answer, fn(&ModelError) -> bool, &str)> = vec![
        ("busy", Answer::status(429, &[("retry-after", "3")], "{}"), |e| matches!(e, ModelError::Transient { retry_after: Some(s), .. } if s.as_secs() == 3), "429"),
        ("down", json_answer(503, "overloaded"), |e| matches!(e, ModelError::Transient { .. }), "overloaded"),
        ("key", json_answer(401, &echo), |e| matches!(e, ModelError::Unauthorized(_)), "bad key ***"),
        ("none", json_answer(404, "{}"), |e| matches!(e, ModelError::Refused(_)), "404"),
        ("page", json_answer(200, "<html>"), |e| matches!(e, ModelError::Malformed(_)), "the embeddings"),
        ("too few", embeddings(&[vec![1.0]]), |e| matches!(e, ModelError::Malformed(_)), "expected 2 vectors, got 1"),
        ("lengths", embeddings(&[vec![1.0], vec![1.0, 2.0]]), |e| matches!(e, ModelError::Malformed(_)), "one length"),
        ("wide", embeddings(&vec![vec![1.0; limit::EMBEDDING_DIMENSIONS_MAX + 1]; 2]), |e| matches!(e, ModelError::Malformed(_)), "from 1 to 8192"),
        ("endless", json_answer(200, &long), |e| matches!(e, ModelError::Malformed(_)), "longer than"),
        ("cut", Answer::steps(vec![Step::Send(Bytes::from_static(b"{\"data\":[")), Step::Cut]), |e| matches!(e, ModelError::Transient { .. }), "broke"),
        ("silent", Answer::silence(), |e| matches!(e, ModelError::Transient { .. }), "nothing for"),
        ("moved", json_answer(302, ""), |e| matches!(e, ModelError::Refused(_)), "redirects"),
    ];
    let texts = ["a".to_owned(), "b".to_owned()];
    for (what, answer, kind, words) in table {
        let server = ModelServer::start(queue([answer])).await;
        let idle = if what == "silent" { Duration::from_millis(50) } else { Duration::from_secs(20) };
        let asked = embedder(&server.base_url(), idle);
        let error = asked.embed(&texts, &CancellationToken::new()).await.expect_err(what);
        assert!(kind(&error) && error.to_string().contains(words), "{what}: {error:?}");
        assert!(!error.to_string().contains(KEY), "{what}: {error}");
    }
    let server = ModelServer::start(queue([embeddings(&[vec![1.0, 2.0], vec![0.5, -1.0]])])).await;
    let vectors = embedder(&server.base_url(), Duration::from_secs(20)).embed(&texts, &CancellationToken::new()).await;
    assert_eq!(vectors, Ok(vec![vec![1.0, 2.0], vec![0.5, -1.0]]));
    // A cancelled request ends at once.
    let server = ModelServer::start(queue([Answer::silence()])).await;
    let cancel = CancellationToken::new();
    let asked = embedder(&server.base_url(), Duration::from_secs(600));
    let (result, ()) = tokio::join!(asked.embed(&texts, &cancel), async {
        server.came(1).await;
        cancel.cancel();
    });
    assert_eq!(result, Err(ModelError::Aborted));
}
