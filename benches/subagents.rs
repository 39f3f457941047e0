//! A hundred sub-agents under one session, on a model that answers at once: how long until all are done, and the most memory that
//! the process had by then. Kept on a disk, as a server does; the tree is looked at afterwards.
//!
//! `cargo bench --bench subagents` prints them.

#![allow(clippy::print_stdout, reason = "figures are what it is for")]

use std::sync::Arc;
use std::time::Instant;

use futures_util::stream;
use serde_json::json;
use simse::app::{App, Caller, Extras};
use simse::config::{Settings, Storage};
use simse::model::{Model, ModelEvent, ModelRequest, ModelStream, StopReason};
use simse::protocol::{CreateSession, Message, Prompt, ToolCallRequest, TurnStatus};
use tokio_util::sync::CancellationToken;

const SUBAGENTS: usize = 100;
const ROUNDS: usize = 5;

/// Starts them when it is prompted at the top, and answers at once otherwise.
struct Instantly;

impl Model for Instantly {
    fn id(&self) -> &str {
        "bench/instant"
    }

    fn stream(&self, request: ModelRequest, _: CancellationToken) -> ModelStream {
        let starts = request.messages.iter().all(|message| matches!(message, Message::User(_)))
            && request.tools.iter().any(|tool| tool.name == "spawn_agent");
        let mut events = Vec::new();
        if starts {
            for n in 0..SUBAGENTS {
                let arguments = json!({ "task": format!("task {n}") });
                let arguments = arguments.as_object().cloned().unwrap_or_default();
                let call = ToolCallRequest { id: format!("call_{n}"), name: "spawn_agent".into(), arguments };
                events.push(Ok(ModelEvent::Call(call)));
            }
            events.push(Ok(ModelEvent::Finished(StopReason::ToolUse)));
        } else {
            events.push(Ok(ModelEvent::Text("done".to_owned())));
            events.push(Ok(ModelEvent::Finished(StopReason::EndTurn)));
        }
        Box::pin(stream::iter(events))
    }
}

/// The most memory that the process had, in MB.
fn peak_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").trim().parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}

#[tokio::main]
async fn main() {
    let home = tempfile::tempdir().expect("a directory of its own");
    let work = home.path().join("work");
    std::fs::create_dir(&work).expect("a new directory");
    let mut settings = Settings::new(work.canonicalize().expect("it is there"));
    settings.storage = Storage::Directory(home.path().join("data"));
    let extras = Extras { models: vec![Arc::new(Instantly)], ..Extras::default() };
    let app = App::open(settings, extras).await.expect("the server opens");
    let caller = Caller::default();
    println!("before: {:.0} MB", peak_mb());
    for round in 0..ROUNDS {
        let body: CreateSession =
            serde_json::from_value(json!({ "model": "bench/instant" })).expect("a body that fits");
        let session = app.create_session(&caller, body).await.expect("a session is made").session_id;
        let began = Instant::now();
        let prompt: Prompt = serde_json::from_value(json!({ "prompt": "all of them" })).expect("a prompt that fits");
        let turn = app.prompt(&caller, &session, prompt).await.expect("a turn is begun").turn_id;
        let record = app.wait_turn(&caller, &session, &turn).await.expect("the turn has an end");
        let took = began.elapsed();
        assert_eq!(record.status, TurnStatus::Completed, "{record:?}");
        let runs = app.runs(&caller, Some(&session), (None, 1_000)).await.expect("its runs are told").items;
        let children = runs.iter().filter(|run| run.depth == 1 && run.root_session_id == session);
        let done = children.filter(|run| run.status == TurnStatus::Completed && run.result.as_deref() == Some("done"));
        assert_eq!((runs.len(), done.count()), (SUBAGENTS + 1, SUBAGENTS));
        println!("round {round}: {SUBAGENTS} sub-agents in {:.3} s, at most {:.0} MB", took.as_secs_f64(), peak_mb());
    }
    app.shutdown(std::time::Duration::from_secs(1)).await.expect("the server ends");
}
