//! Turns of the loop over the true wire, with the true file tools.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use simse::agent::{Ended, run_turn};
use simse::model::Model;
use simse::protocol::{ErrorCode, EventBody, Message};
use simse::provider::{OpenAiOptions, Reach, openai};
use tokio_util::sync::CancellationToken;

use crate::support::model_server::{Answer, ModelServer, Step, call_chunks, end, queue, text_chunk};
use crate::support::turns::{Log, turn};

fn model(server: &ModelServer) -> Arc<dyn Model> {
    openai(OpenAiOptions {
        model: "m".into(),
        base_url: Some(server.base_url()),
        api_key: None,
        idle_timeout: Duration::from_secs(20),
        images: true,
        reach: Reach::default(),
    })
}

#[tokio::test]
async fn files_are_written_and_read_and_the_results_go_back() {
    let directory = tempfile::tempdir().unwrap();
    let server = ModelServer::start(queue([
        Answer::calls("I write.", &[("w", "fs_write", json!({"path": "a.txt", "content": "hello\n"}))]),
        Answer::calls("", &[("r", "fs_read", json!({"path": "a.txt"})), ("x", "fs_read", json!({"path": "gone.txt"}))]),
        Answer::text(&["It says ", "hello."]),
    ]))
    .await;
    let log = Arc::new(Log::default());
    let outcome = run_turn(turn(model(&server), &log, directory.path(), vec![]), CancellationToken::new()).await;
    assert_eq!(
        (outcome.ended, outcome.final_text.as_str(), outcome.progress.rounds),
        (Ended::Completed, "It says hello.", 3)
    );
    assert_eq!(outcome.progress.usage.total_tokens, 45);
    assert_eq!(std::fs::read_to_string(directory.path().join("a.txt")).unwrap(), "hello\n");
    let requests = server.requests();
    let last = requests[2].json();
    let messages = last["messages"].as_array().unwrap();
    let roles: Vec<_> = messages.iter().map(|m| m["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant", "tool", "tool"]);
    assert_eq!(messages[2], json!({"role": "tool", "tool_call_id": "w", "content": "Wrote 6 bytes to a.txt"}));
    assert!(messages[4]["content"].as_str().unwrap().contains("1\thello"), "{last}");
    assert!(messages[5]["content"].as_str().unwrap().starts_with("Tool \"fs_read\" execution failed: "), "{last}");
    let names: Vec<&str> =
        last["tools"].as_array().unwrap().iter().filter_map(|t| t["function"]["name"].as_str()).collect();
    assert!(names.starts_with(&["fs_read", "fs_write", "fs_edit"]), "{names:?}");
}

#[tokio::test]
async fn a_stream_that_breaks_behind_a_call_runs_it_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log.txt");
    std::fs::write(&path, "x\n").unwrap();
    let edit = json!({"path": "log.txt", "old_string": "x", "new_string": "xx"}).to_string();
    let cut = format!("{}{}", text_chunk("I edit."), call_chunks(0, "e", "fs_edit", &edit));
    let server = ModelServer::start(queue([
        Answer::steps(vec![Step::Send(cut.clone().into()), Step::Cut]),
        Answer::status(503, &[("retry-after-ms", "5")], "busy"),
        Answer::raw(format!("{cut}{}", end("tool_calls"))),
        Answer::text(&["Edited."]),
    ]))
    .await;
    let log = Arc::new(Log::default());
    let outcome = run_turn(turn(model(&server), &log, directory.path(), vec![]), CancellationToken::new()).await;
    assert_eq!(outcome.ended, Ended::Completed);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "xx\n");
    let retries: Vec<u32> = log
        .0
        .lock()
        .iter()
        .filter_map(|e| if let EventBody::StreamRetry { attempt, .. } = e { Some(*attempt) } else { None })
        .collect();
    assert_eq!(retries, [2, 3]);
    assert_eq!(outcome.messages.len(), 4);
}

#[tokio::test]
async fn a_refused_key_fails_the_turn_at_once() {
    let server = ModelServer::start(queue([Answer::status(401, &[], "{\"error\": {\"message\": \"bad key\"}}")])).await;
    let log = Arc::new(Log::default());
    let directory = tempfile::tempdir().unwrap();
    let outcome = run_turn(turn(model(&server), &log, directory.path(), vec![]), CancellationToken::new()).await;
    let Ended::Failed(error) = outcome.ended else { panic!("{:?}", outcome.ended) };
    assert_eq!((error.code, error.message.contains("bad key")), (ErrorCode::UpstreamUnavailable, true));
    assert_eq!(server.requests().len(), 1);
    assert_eq!(log.words(), ["loop.start", "stream.start", "stream.complete", "loop.complete"]);
}

#[tokio::test]
async fn arguments_cut_by_the_limit_of_tokens_are_told_to_the_model() {
    let body =
        format!("{}{}", call_chunks(0, "w", "fs_write", "{\"path\": \"a.txt\", \"content\": \"half"), end("length"));
    let server = ModelServer::start(queue([Answer::raw(body), Answer::text(&["I see."])])).await;
    let log = Arc::new(Log::default());
    let directory = tempfile::tempdir().unwrap();
    let outcome = run_turn(turn(model(&server), &log, directory.path(), vec![]), CancellationToken::new()).await;
    assert_eq!(outcome.ended, Ended::Completed);
    assert!(!directory.path().join("a.txt").exists());
    let Message::ToolResult { output, is_error: true, .. } = &outcome.messages[2] else { panic!("{outcome:?}") };
    assert!(output.contains("limit of tokens inside the arguments"), "{output}");
    // What went wrong goes back as arguments that are JSON.
    let call = &server.requests()[1].json()["messages"][1]["tool_calls"][0];
    assert_eq!(call["function"]["arguments"], "{}");
}

#[tokio::test]
async fn abort_reaches_a_stream_that_is_silent() {
    let server = ModelServer::start(queue([Answer::silence_after(&["so ", "far"])])).await;
    let log = Arc::new(Log::default());
    let directory = tempfile::tempdir().unwrap();
    let cancel = CancellationToken::new();
    let running = tokio::spawn(run_turn(turn(model(&server), &log, directory.path(), vec![]), cancel.clone()));
    log.has("stream.delta").await;
    cancel.cancel();
    let outcome = tokio::time::timeout(Duration::from_secs(5), running).await.unwrap().unwrap();
    assert_eq!(outcome.ended, Ended::Aborted);
    assert_eq!(log.words().last().map(String::as_str), Some("loop.complete"));
}
