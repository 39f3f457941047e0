//! The whole server inside a program: with a model of its own, its events from Rust, and the door for everybody else.
//!
//! `cargo run --example server`

#![allow(clippy::print_stdout, reason = "an example says what it does")]

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use serde_json::json;
use simse::agent::CancellationToken;
use simse::app::{App, Caller, Extras};
use simse::config::Settings;
use simse::model::{Model, ModelEvent, ModelRequest, ModelStream, StopReason};
use simse::protocol::{Message, ToolCallRequest};
use simse::server::{ListenOptions, Server};

/// A model that lists the directory, then says what it saw. A real one talks to a provider.
struct Looker;

impl Model for Looker {
    fn id(&self) -> &str {
        "example/looker"
    }

    fn stream(&self, request: ModelRequest, _cancel: CancellationToken) -> ModelStream {
        let seen = matches!(request.messages.last(), Some(Message::ToolResult { .. }));
        let events = if seen {
            vec![ModelEvent::Text("There is one file.".to_owned()), ModelEvent::Finished(StopReason::EndTurn)]
        } else {
            let request =
                ToolCallRequest { id: "call_1".to_owned(), name: "fs_list".to_owned(), arguments: Default::default() };
            vec![ModelEvent::Call(request), ModelEvent::Finished(StopReason::ToolUse)]
        };
        Box::pin(stream::iter(events.into_iter().map(Ok)))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("a.txt"), "hello\n")?;

    // Kept in memory; `Storage::Directory` keeps sessions on disk.
    let settings =
        Settings { model: Some("example/looker".to_owned()), ..Settings::new(folder.path().canonicalize()?) };
    let app = App::open(settings, Extras { models: vec![Arc::new(Looker)], ..Extras::default() }).await?;
    // Any free port of this machine. Without a token every program here may use it; see `ListenOptions::token`.
    let server = Server::start(Arc::clone(&app), ListenOptions::default()).await?;
    println!("listens on {}", server.address().ip());

    // The same application from Rust, without the wire: bodies have the names of the routes'.
    let caller = Caller::default();
    let session = app.create_session(&caller, serde_json::from_value(json!({"title": "a look around"}))?).await?;
    let mut events = app.events(&caller, &session.session_id, 0).await?;
    app.prompt(&caller, &session.session_id, serde_json::from_value(json!({"prompt": "What is here?"}))?).await?;
    'turn: while let Some(batch) = events.next().await? {
        for event in batch.events.iter() {
            match event.kind.as_ref() {
                "tool.call.start" | "stream.delta" => println!("{}: {}", event.kind, event.payload.get()),
                "session.completed" => break 'turn,
                _ => {}
            }
        }
    }

    // Turns that run get their time, the rest is aborted; then the door is closed.
    app.shutdown(Duration::from_secs(5)).await?;
    server.stop(Duration::from_secs(1)).await;
    println!("stopped");
    Ok(())
}

// Prints:
// listens on 127.0.0.1
// tool.call.start: {"callId":"call_1","name":"fs_list","args":{}}
// stream.delta: {"text":"There is one file."}
// stopped
