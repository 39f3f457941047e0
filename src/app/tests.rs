//! The whole of it below the doors: real store, real loop, a model that does what each test says.

use std::collections::VecDeque;
use std::path::Path;

use futures_util::StreamExt as _;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::config::Storage;
use crate::model::{ModelError, ModelEvent, ModelRequest, ModelStream, StopReason};
use crate::protocol::{
    Decision, Event, ItemBody, PermissionConfig, PermissionPolicy, PromptContent, PromptMode, SessionStatus,
    ToolCallRequest, TurnStatus, Usage,
};

/// What the model does in one round.
type Round = Box<dyn FnOnce(ModelRequest) -> ModelStream + Send>;

/// A model whose rounds a test hands in. Without one left it fails.
#[derive(Default)]
struct Script {
    rounds: Mutex<VecDeque<Round>>,
    requests: Mutex<Vec<ModelRequest>>,
}

impl Model for Script {
    fn id(&self) -> &str {
        "test/script"
    }

    fn stream(&self, request: ModelRequest, _cancel: CancellationToken) -> ModelStream {
        self.requests.lock().push(request.clone());
        match self.rounds.lock().pop_front() {
            Some(round) => round(request),
            None => events(vec![Err(ModelError::Refused("the script is over".into()))]),
        }
    }
}

fn events(all: Vec<Result<ModelEvent, ModelError>>) -> ModelStream {
    Box::pin(futures_util::stream::iter(all))
}

fn says(text: &str) -> Round {
    let usage = Usage { input_tokens: 3, output_tokens: 2, total_tokens: 5 };
    let all = vec![
        Ok(ModelEvent::Text(text.into())),
        Ok(ModelEvent::Usage(usage)),
        Ok(ModelEvent::Finished(StopReason::EndTurn)),
    ];
    Box::new(|_| events(all))
}

fn calls(name: &str, arguments: Value) -> Round {
    let arguments = arguments.as_object().cloned().unwrap_or_default();
    let call = ToolCallRequest { id: "call_1".into(), name: name.into(), arguments };
    Box::new(|_| events(vec![Ok(ModelEvent::Call(call)), Ok(ModelEvent::Finished(StopReason::ToolUse))]))
}

/// A round that says what is sent, and ends when the sender is dropped.
fn follows(mut feed: mpsc::UnboundedReceiver<&'static str>) -> Round {
    Box::new(move |_| {
        let pieces = futures_util::stream::poll_fn(move |context| feed.poll_recv(context))
            .map(|piece| Ok(ModelEvent::Text(piece.into())));
        Box::pin(pieces.chain(futures_util::stream::iter([Ok(ModelEvent::Finished(StopReason::EndTurn))])))
    })
}

/// A round that never says anything.
fn hangs() -> Round {
    Box::new(|_| Box::pin(futures_util::stream::pending()))
}

struct House {
    app: Arc<App>,
    script: Arc<Script>,
    directory: tempfile::TempDir,
}

async fn open(storage: Storage, change: impl FnOnce(&mut Settings)) -> House {
    let directory = tempfile::tempdir().unwrap();
    let mut settings = Settings::new(directory.path().to_owned());
    settings.storage = storage;
    change(&mut settings);
    let script = Arc::new(Script::default());
    let models: Vec<Arc<dyn Model>> = vec![Arc::clone(&script) as Arc<dyn Model>];
    let app = App::open(settings, Extras { models, ..Extras::default() }).await.unwrap();
    House { app, script, directory }
}

impl House {
    fn plays(&self, rounds: impl IntoIterator<Item = Round>) {
        self.script.rounds.lock().extend(rounds);
    }

    async fn session(&self) -> SessionId {
        self.app.create_session(&anyone(), CreateSession::default()).await.unwrap().session_id
    }

    async fn prompts(&self, id: &SessionId, text: &str, mode: PromptMode) -> Result<Accepted, ApiError> {
        let body = Prompt { prompt: PromptContent::Text(text.into()), mode, configure: None, if_version: None };
        self.app.prompt(&anyone(), id, body).await
    }

    /// Prompts and waits for the end.
    async fn turn(&self, id: &SessionId, text: &str) -> TurnRecord {
        let accepted = self.prompts(id, text, PromptMode::Queue).await.unwrap();
        self.app.wait_turn(&anyone(), id, &accepted.turn_id).await.unwrap()
    }

    async fn log(&self, id: &SessionId) -> Vec<Event> {
        let mut all = Vec::new();
        loop {
            let page = self.app.store.events(id, all.len() as u64, 1000).await.unwrap();
            if page.is_empty() {
                return all;
            }
            all.extend(page);
        }
    }

    async fn kinds(&self, id: &SessionId) -> Vec<String> {
        self.log(id).await.into_iter().map(|event| event.kind).collect()
    }
}

fn anyone() -> Caller {
    Caller::default()
}

/// Reads until an event of this type comes.
async fn until(reader: &mut EventReader, kind: &str) -> Event {
    loop {
        let before = reader.position();
        let batch = reader.next().await.unwrap().expect("the stream goes on");
        for event in batch.events.iter().filter(|event| event.seq > before) {
            if event.kind == kind {
                return event.clone();
            }
        }
    }
}

fn payload(event: &Event) -> Value {
    serde_json::from_str(event.payload.get()).unwrap()
}

#[tokio::test]
async fn a_prompt_becomes_a_turn_with_one_end() {
    let house = open(Storage::Memory, |_| {}).await;
    house.plays([says("hello")]);
    let id = house.session().await;
    let record = house.turn(&id, "hi").await;
    assert_eq!((record.status, record.result.as_deref(), record.rounds), (TurnStatus::Completed, Some("hello"), 1));
    let kinds = house.kinds(&id).await;
    let want = [
        "session.created",
        "session.prompt",
        "loop.start",
        "stream.start",
        "stream.delta",
        "stream.complete",
        "turn.complete",
        "loop.complete",
        "session.completed",
    ];
    assert_eq!(kinds, want);
    let log = house.log(&id).await;
    assert_eq!(log.iter().map(|e| e.seq).collect::<Vec<_>>(), (1..=want.len() as u64).collect::<Vec<_>>());
    assert!(log[1..].iter().all(|event| event.turn_id.as_ref() == Some(&record.turn_id)));
    let view = house.app.session(&anyone(), &id).await.unwrap();
    assert_eq!((view.status, view.version, view.message_count), (SessionStatus::Completed, 1, 2));
    assert_eq!((view.usage.total_tokens, view.turn, view.last_seq), (5, None, 9));
}
