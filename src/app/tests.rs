//! The whole of it below the doors: real store, real loop, a model that does what each test says.

use std::collections::VecDeque;
use std::path::Path;

use futures_util::StreamExt as _;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::base::BoxFuture;
use crate::config::{Names, Storage};
use crate::hook::Before;
use crate::model::{ModelError, ModelEvent, ModelRequest, ModelStream, StopReason};
use crate::protocol::{
    Configure, Control, Decision, Event, ExplainCall, Feedback, GrantScope, ItemBody, Message, Part, PermissionConfig,
    PermissionMode, PermissionPolicy, Prompt, PromptContent, PromptMode, SessionStatus, ToolCallRequest,
    ToolCallResult, TurnStatus, Usage, VerdictBasis,
};

mod controls;
mod hooked;
mod questions;
mod rebuilt;
mod settings;
mod waiting;

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
    let usage = Usage { input_tokens: 3, output_tokens: 2, total_tokens: 5, ..Usage::default() };
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
        let body =
            Prompt { prompt: PromptContent::Text(text.into()), mode, configure: None, turn: None, if_version: None };
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
        self.log(id).await.into_iter().map(|event| event.kind.into_owned()).collect()
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

#[tokio::test]
async fn an_abort_reaches_a_model_that_says_nothing() {
    let house = open(Storage::Memory, |_| {}).await;
    house.plays([hangs(), says("after")]);
    let id = house.session().await;
    let mut reader = house.app.events(&anyone(), &id, 0).await.unwrap();
    let accepted = house.prompts(&id, "hi", PromptMode::Queue).await.unwrap();
    until(&mut reader, "stream.start").await;
    let abort = Control { reason: Some("enough".into()), ..Control::default() };
    let aborted = house.app.abort(&anyone(), &id, abort.clone()).await.unwrap();
    assert_eq!(aborted, Aborted { aborted: true, turn_id: accepted.turn_id.clone() });
    let record = house.app.wait_turn(&anyone(), &id, &accepted.turn_id).await.unwrap();
    assert_eq!((record.status, record.reason.as_deref()), (TurnStatus::Aborted, Some("enough")));
    let last = house.log(&id).await.pop().unwrap();
    let said = payload(&last);
    assert_eq!((last.kind.as_ref(), &said["reason"], &said["version"]), ("abort", &json!("enough"), &json!(null)));
    assert_eq!((&said["spent"]["turns"], &said["spent"]["tokens"]), (&json!(1), &json!(null)));
    let view = house.app.session(&anyone(), &id).await.unwrap();
    assert_eq!((view.status, view.version), (SessionStatus::Aborted, 2));
    let again = house.app.abort(&anyone(), &id, abort).await.unwrap_err();
    assert_eq!(again.code(), ErrorCode::Conflict);
    assert_eq!(house.turn(&id, "go on").await.status, TurnStatus::Completed);
}

/// A prompt that would begin one more turn than may run at once is refused; those that wait in a busy session are no more.
#[tokio::test]
async fn no_more_turns_run_than_may() {
    let house = open(Storage::Memory, |settings| settings.limits.turns_max = 1).await;
    let (feed, pieces) = mpsc::unbounded_channel();
    house.plays([follows(pieces), says("second"), says("elsewhere")]);
    let (id, other) = (house.session().await, house.session().await);
    let first = house.prompts(&id, "one", PromptMode::Queue).await.unwrap();
    let second = house.prompts(&id, "two", PromptMode::Queue).await.unwrap();
    assert_eq!((first.status, second.status), (TurnStatus::Running, TurnStatus::Queued));
    for _ in 0..2 {
        let refused = house.prompts(&other, "three", PromptMode::Queue).await.unwrap_err();
        assert_eq!(refused.code(), ErrorCode::ResourceExhausted);
    }
    feed.send("x").unwrap();
    drop(feed);
    for turn in [first, second] {
        let record = house.app.wait_turn(&anyone(), &id, &turn.turn_id).await.unwrap();
        assert_eq!(record.status, TurnStatus::Completed);
    }
    // The end of a turn is told before its task is gone.
    let begins = async {
        loop {
            match house.prompts(&other, "four", PromptMode::Queue).await {
                Err(error) if error.code() == ErrorCode::ResourceExhausted => tokio::task::yield_now().await,
                begun => return begun.unwrap(),
            }
        }
    };
    let begun = tokio::time::timeout(Duration::from_secs(60), begins).await.unwrap();
    assert_eq!(house.app.wait_turn(&anyone(), &other, &begun.turn_id).await.unwrap().status, TurnStatus::Completed);
}

#[tokio::test]
async fn prompts_queue_or_are_refused_or_steer() {
    let house = open(Storage::Memory, |settings| settings.limits.queued_prompts_max = 2).await;
    let (feed, pieces) = mpsc::unbounded_channel();
    house.plays([follows(pieces), says("to the steer"), says("second"), says("third")]);
    let id = house.session().await;
    let mut reader = house.app.events(&anyone(), &id, 0).await.unwrap();
    let first = house.prompts(&id, "one", PromptMode::Queue).await.unwrap();
    assert_eq!((first.status, first.version), (TurnStatus::Running, 1));
    feed.send("x").unwrap();
    until(&mut reader, "stream.delta").await;
    let refused = house.prompts(&id, "no", PromptMode::Reject).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Conflict);
    let second = house.prompts(&id, "two", PromptMode::Queue).await.unwrap();
    assert_eq!((second.status, second.version), (TurnStatus::Queued, 2));
    assert_eq!(payload(&until(&mut reader, "turn.queued").await), json!({ "position": 1, "version": 2 }));
    let steered = house.prompts(&id, "more", PromptMode::Steer).await.unwrap();
    assert_eq!((steered.turn_id, steered.version), (first.turn_id.clone(), 3));
    let third = house.prompts(&id, "three", PromptMode::Queue).await.unwrap();
    let full = house.prompts(&id, "four", PromptMode::Queue).await.unwrap_err();
    assert_eq!(full.code(), ErrorCode::ResourceExhausted);
    let view = house.app.session(&anyone(), &id).await.unwrap();
    assert_eq!((view.queued, view.turn.map(|turn| turn.turn_id), view.version), (2, Some(first.turn_id.clone()), 4));
    drop(feed);
    for (turn, result) in [(first, "to the steer"), (second, "second"), (third, "third")] {
        let record = house.app.wait_turn(&anyone(), &id, &turn.turn_id).await.unwrap();
        assert_eq!(record.result.as_deref(), Some(result));
    }
    let prompts: Vec<Value> = house.log(&id).await.iter().filter(|e| e.kind == "session.prompt").map(payload).collect();
    assert_eq!(prompts.iter().map(|p| p["prompt"].as_str().unwrap()).collect::<Vec<_>>(), ["one", "two", "three"]);
    let last = house.script.requests.lock().pop().unwrap();
    assert_eq!(last.messages.len(), 7, "user, assistant, steer, assistant, user, assistant, user: {:?}", last.messages);
    assert_eq!(house.app.session(&anyone(), &id).await.unwrap().message_count, 8);
}

#[tokio::test]
async fn versions_and_settings_change_with_a_prompt() {
    let house = open(Storage::Memory, |_| {}).await;
    house.plays([says("a"), says("b")]);
    let id = house.session().await;
    let mut body = Prompt {
        prompt: PromptContent::Text("hi".into()),
        mode: PromptMode::Queue,
        configure: Some(crate::protocol::Configure { title: Some("T".into()), ..Default::default() }),
        turn: None,
        if_version: Some(1),
    };
    let refused = house.app.prompt(&anyone(), &id, body.clone()).await.unwrap_err();
    assert_eq!((refused.code(), refused.0.message.contains("has version 0, not 1")), (ErrorCode::Conflict, true));
    body.if_version = Some(0);
    let accepted = house.app.prompt(&anyone(), &id, body.clone()).await.unwrap();
    house.app.wait_turn(&anyone(), &id, &accepted.turn_id).await.unwrap();
    let view = house.app.session(&anyone(), &id).await.unwrap();
    assert_eq!((view.title.as_deref(), view.version), (Some("T"), 1));
    body.configure = Some(crate::protocol::Configure { model: Some("no/model".into()), ..Default::default() });
    assert_eq!(house.app.prompt(&anyone(), &id, body).await.unwrap_err().code(), ErrorCode::InvalidArgument);
}

fn asks_for_writes(settings: &mut Settings) {
    settings.permissions = PermissionConfig { default_policy: PermissionPolicy::Ask, rules: Vec::new() };
}

fn write_round(text: &str) -> Round {
    calls("fs_write", json!({ "path": "a.txt", "content": text }))
}

#[tokio::test]
async fn a_question_waits_for_its_answer_and_always_lasts() {
    let house = open(Storage::Memory, asks_for_writes).await;
    house.plays([write_round("1"), says("done"), write_round("2"), says("done"), write_round("3"), says("done")]);
    let id = house.session().await;
    let mut reader = house.app.events(&anyone(), &id, 0).await.unwrap();
    let file = house.directory.path().join("a.txt");
    let answers = [Decision::Deny, Decision::AllowAlways];
    for (decision, content) in answers.into_iter().zip([None, Some("2")]) {
        let accepted = house.prompts(&id, "write", PromptMode::Queue).await.unwrap();
        let asked = until(&mut reader, "permission.request").await;
        let view = house.app.session(&anyone(), &id).await.unwrap();
        assert_eq!(view.turn.map(|turn| turn.status), Some(TurnStatus::Waiting));
        let request_id: crate::protocol::RequestId = payload(&asked)["requestId"].as_str().unwrap().parse().unwrap();
        let body = Feedback { request_id: Some(request_id), decision: Some(decision), ..Feedback::default() };
        let answered = house.app.feedback(&anyone(), &id, body.clone()).await.unwrap();
        assert_eq!((answered.call_id.as_deref(), answered.allowed), (Some("call_1"), Some(content.is_some())));
        assert_eq!(house.app.feedback(&anyone(), &id, body).await.unwrap_err().code(), ErrorCode::Conflict);
        let said = payload(&until(&mut reader, "permission.response").await);
        assert_eq!((said["allowed"].as_bool(), said["by"].as_str()), (Some(content.is_some()), Some("client")));
        house.app.wait_turn(&anyone(), &id, &accepted.turn_id).await.unwrap();
        assert_eq!(std::fs::read_to_string(&file).ok().as_deref(), content);
    }
    house.turn(&id, "write").await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "3");
    let kinds = house.kinds(&id).await;
    let count = |kind: &str| kinds.iter().filter(|k| *k == kind).count();
    assert_eq!((count("permission.request"), count("permission.response")), (2, 2));
    let unknown = Feedback { call_id: Some("none".into()), allowed: Some(true), ..Feedback::default() };
    assert_eq!(house.app.feedback(&anyone(), &id, unknown).await.unwrap_err().code(), ErrorCode::NotFound);
}

#[tokio::test]
async fn what_is_asked_each_time_offers_no_always_and_what_cannot_run_is_not_asked() {
    let house = open(Storage::Memory, asks_for_writes).await;
    std::fs::create_dir(house.directory.path().join(".git")).unwrap();
    let hook = |text: &str| calls("fs_write", json!({ "path": ".git/x", "content": text }));
    house.plays([calls("fs_write", json!({ "path": ".git/x" })), says("done")]);
    house.plays([hook("1"), says("done"), hook("2"), says("done")]);
    let id = house.session().await;
    house.turn(&id, "write").await;
    assert!(!house.kinds(&id).await.iter().any(|kind| kind == "permission.request"), "it cannot run");
    let mut reader = house.app.events(&anyone(), &id, 0).await.unwrap();
    for content in ["1", "2"] {
        let accepted = house.prompts(&id, "write", PromptMode::Queue).await.unwrap();
        let asked = payload(&until(&mut reader, "permission.request").await);
        assert_eq!(asked["options"], json!(["allow", "deny"]));
        let request_id = Some(asked["requestId"].as_str().unwrap().parse().unwrap());
        let body = Feedback { request_id, decision: Some(Decision::AllowAlways), ..Feedback::default() };
        assert_eq!(house.app.feedback(&anyone(), &id, body).await.unwrap().allowed, Some(true));
        house.app.wait_turn(&anyone(), &id, &accepted.turn_id).await.unwrap();
        assert_eq!(std::fs::read_to_string(house.directory.path().join(".git/x")).unwrap(), content);
        assert_eq!(house.app.grants(&anyone(), (Some(&id), None)).await.unwrap().items, [], "it reaches no further");
    }
}

/// The log cannot tell a path that is no text, so a yes to it reaches no further.
#[cfg(unix)]
#[tokio::test]
async fn a_place_that_is_no_text_is_asked_about_each_time() {
    use std::os::unix::ffi::OsStrExt as _;
    let house = open(Storage::Memory, asks_for_writes).await;
    let odd = house.directory.path().join(std::ffi::OsStr::from_bytes(b"d\xff"));
    std::fs::create_dir(&odd).unwrap();
    std::os::unix::fs::symlink(&odd, house.directory.path().join("l")).unwrap();
    let write = |text: &str| calls("fs_write", json!({ "path": "l/f", "content": text }));
    house.plays([write("1"), says("done"), write("2"), says("done")]);
    let id = house.session().await;
    let mut reader = house.app.events(&anyone(), &id, 0).await.unwrap();
    for (content, scope) in [("1", None), ("2", Some(GrantScope::Project))] {
        let accepted = house.prompts(&id, "write", PromptMode::Queue).await.unwrap();
        let asked = payload(&until(&mut reader, "permission.request").await);
        assert_eq!(asked["options"], json!(["allow", "deny"]));
        let request_id = Some(asked["requestId"].as_str().unwrap().parse().unwrap());
        let decision = Some(if scope.is_some() { Decision::Allow } else { Decision::AllowAlways });
        let body = Feedback { request_id, decision, scope, ..Feedback::default() };
        assert_eq!(house.app.feedback(&anyone(), &id, body).await.unwrap().allowed, Some(true));
        house.app.wait_turn(&anyone(), &id, &accepted.turn_id).await.unwrap();
        assert_eq!(std::fs::read_to_string(odd.join("f")).unwrap(), content);
        assert_eq!(house.app.grants(&anyone(), (None, None)).await.unwrap().items, [], "it reaches no further");
    }
}

#[tokio::test]
async fn silence_absence_and_abort_are_a_no() {
    type Change = fn(&mut Settings);
    let quick_deadline: Change = |settings| {
        asks_for_writes(settings);
        settings.limits.permission_timeout_ms = 30;
    };
    let quick_grace: Change = |settings| {
        asks_for_writes(settings);
        settings.limits.client_grace_ms = 30;
    };
    for (change, watched, by) in
        [(quick_deadline, true, "timeout"), (quick_grace, false, "no-client"), (asks_for_writes, true, "abort")]
    {
        let house = open(Storage::Memory, change).await;
        house.plays([write_round("1"), says("done")]);
        let id = house.session().await;
        let mut reader = house.app.events(&anyone(), &id, 0).await.unwrap();
        let accepted = house.prompts(&id, "write", PromptMode::Queue).await.unwrap();
        until(&mut reader, "permission.request").await;
        if by == "abort" {
            house.app.abort(&anyone(), &id, Control::default()).await.unwrap();
        }
        let said = if watched {
            let said = until(&mut reader, "permission.response").await;
            until(&mut reader, if by == "abort" { "abort" } else { "session.completed" }).await;
            payload(&said)
        } else {
            drop(reader);
            // Nobody is there: look without being counted.
            let topic = house.app.live(&anyone(), &id).await.unwrap();
            let mut watch = topic.watch_for_test();
            loop {
                let log = house.log(&id).await;
                if let Some(said) = log.iter().find(|event| event.kind == "permission.response") {
                    break payload(said);
                }
                watch.changed().await.unwrap();
            }
        };
        assert_eq!((said["allowed"].as_bool(), said["by"].as_str()), (Some(false), Some(by)), "{said}");
        house.app.wait_turn(&anyone(), &id, &accepted.turn_id).await.unwrap();
        assert!(!house.directory.path().join("a.txt").exists());
        let kinds = house.kinds(&id).await;
        assert_eq!(kinds.iter().filter(|kind| *kind == "permission.response").count(), 1);
        assert_eq!(kinds.iter().filter(|kind| *kind == "tool.call.end").count(), 1);
    }
}

#[tokio::test]
async fn another_clients_session_is_not_there() {
    let house = open(Storage::Memory, |_| {}).await;
    let id = house.session().await;
    let stranger = Caller { client: Some("c".parse().unwrap()), ..Caller::default() };
    let app = &house.app;
    let prompt = Prompt {
        prompt: PromptContent::Text("x".into()),
        mode: PromptMode::Queue,
        configure: None,
        turn: None,
        if_version: None,
    };
    let allowed = Feedback { call_id: Some("c".into()), allowed: Some(true), ..Feedback::default() };
    // In memory or not, the answer is the same.
    for _ in 0..2 {
        let refusals = [
            app.session(&stranger, &id).await.err(),
            app.delete_session(&stranger, &id).await.err(),
            app.prompt(&stranger, &id, prompt.clone()).await.err(),
            app.abort(&stranger, &id, Control::default()).await.err(),
            app.feedback(&stranger, &id, allowed.clone()).await.err(),
            app.history(&stranger, &id, 0, 9).await.err(),
            app.events(&stranger, &id, 0).await.err(),
            app.turn(&stranger, &id, &TurnId::generate()).await.err(),
        ];
        assert!(refusals.iter().all(|e| e.as_ref().is_some_and(|e| e.code() == ErrorCode::NotFound)), "{refusals:?}");
        assert_eq!(app.sessions(&stranger, None, 9).await.unwrap().items, []);
        let cursor = app.sessions(&stranger, Some(id.as_str()), 9).await.unwrap_err();
        assert_eq!(cursor.code(), ErrorCode::InvalidArgument, "as for a session that never was: {cursor}");
        app.events(&anyone(), &id, 0).await.unwrap();
    }
}

#[tokio::test]
async fn a_deleted_session_ends_its_turn_and_its_readers() {
    let house = open(Storage::Memory, |_| {}).await;
    house.plays([hangs()]);
    let id = house.session().await;
    let mut reader = house.app.events(&anyone(), &id, 0).await.unwrap();
    let accepted = house.prompts(&id, "hi", PromptMode::Queue).await.unwrap();
    until(&mut reader, "stream.start").await;
    let waiting = tokio::spawn({
        let (app, id) = (Arc::clone(&house.app), id.clone());
        async move { app.wait_turn(&anyone(), &id, &accepted.turn_id).await }
    });
    let live = house.app.live(&anyone(), &id).await.unwrap();
    let queued = house.prompts(&id, "never", PromptMode::Queue).await.unwrap();
    let unheard = tokio::spawn(async move { live.wait(&queued.turn_id).await });
    tokio::task::yield_now().await;
    assert!(house.app.delete_session(&anyone(), &id).await.unwrap().deleted);
    while let Some(batch) = reader.next().await.unwrap() {
        assert!(batch.last_seq() > 0);
    }
    assert_eq!(waiting.await.unwrap().unwrap().status, TurnStatus::Aborted);
    assert_eq!(unheard.await.unwrap().unwrap_err().code(), ErrorCode::NotFound, "it is gone, the server is not");
    assert_eq!(house.app.session(&anyone(), &id).await.unwrap_err().code(), ErrorCode::NotFound);
    assert_eq!(house.prompts(&id, "hi", PromptMode::Queue).await.unwrap_err().code(), ErrorCode::NotFound);
}

#[tokio::test]
async fn the_limit_of_rounds_is_an_error_that_says_so() {
    let house = open(Storage::Memory, |settings| settings.limits.max_iterations = 2).await;
    let look = |path: &str| calls("fs_list", json!({ "path": path }));
    house.plays([look("."), look("./"), says("never")]);
    let id = house.session().await;
    let record = house.turn(&id, "hi").await;
    let error = record.error.unwrap();
    assert_eq!((record.status, error.code), (TurnStatus::Failed, ErrorCode::ResourceExhausted));
    assert_eq!(error.message, "the turn reached its limit of 2 rounds with the model");
    assert_eq!(house.app.session(&anyone(), &id).await.unwrap().status, SessionStatus::Completed);
}

async fn reopened(house: House, change: impl FnOnce(&mut Settings)) -> House {
    let storage = house.app.settings().storage.clone();
    house.app.shutdown(Duration::ZERO).await.unwrap();
    open(storage, change).await
}

#[tokio::test]
async fn after_a_restart_it_is_all_there_and_goes_on() {
    let data = tempfile::tempdir().unwrap();
    let house = open(Storage::Directory(data.path().to_owned()), |_| {}).await;
    house.plays([calls("fs_list", json!({})), says("first"), hangs()]);
    let id = house.session().await;
    house.turn(&id, "one").await;
    let (log, view) = (house.log(&id).await, house.app.session(&anyone(), &id).await.unwrap());
    let history = house.app.history(&anyone(), &id, 0, 99).await.unwrap();
    let kinds: Vec<&ItemBody> = history.items.iter().map(|item| &item.body).collect();
    assert!(matches!(
        kinds.as_slice(),
        [ItemBody::Message { .. }, ItemBody::ToolCall { .. }, ItemBody::ToolResult { .. }, ItemBody::Message { .. }]
    ));
    // One runs and one waits when the server ends.
    let running = house.prompts(&id, "two", PromptMode::Queue).await.unwrap();
    let queued = house.prompts(&id, "three", PromptMode::Queue).await.unwrap();
    let house = reopened(house, |_| {}).await;
    house.plays([says("third")]);
    let record = house.app.turn(&anyone(), &id, &running.turn_id).await.unwrap();
    assert_eq!((record.status, record.reason.as_deref()), (TurnStatus::Aborted, Some("the server was stopped")));
    let record = house.app.wait_turn(&anyone(), &id, &queued.turn_id).await.unwrap();
    assert_ne!(record.status, TurnStatus::Queued, "{record:?}");
    let after = house.log(&id).await;
    let json = |events: &[Event]| serde_json::to_string(events).unwrap();
    assert_eq!(json(&after[..log.len()]), json(&log));
    assert_eq!(after.iter().map(|e| e.seq).collect::<Vec<_>>(), (1..=after.len() as u64).collect::<Vec<_>>());
    let again = house.app.session(&anyone(), &id).await.unwrap();
    assert_eq!((again.created_at, again.message_count >= view.message_count), (view.created_at, true));
    let first = house.app.history(&anyone(), &id, 0, 2).await.unwrap();
    assert_eq!((&first.items[..], first.next_cursor), (&history.items[..2], Some(history.items[1].seq.to_string())));
}

/// A house over a database whose faults the test decides about.
async fn on_disk(data: &Path) -> (House, Arc<crate::store::SqliteStore>) {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(crate::store::SqliteStore::open(data).unwrap());
    let settings = Settings::new(directory.path().to_owned());
    let script = Arc::new(Script::default());
    let models: Vec<Arc<dyn Model>> = vec![Arc::clone(&script) as Arc<dyn Model>];
    let opened = (Arc::clone(&store) as Arc<dyn Store>, None);
    let app = App::open_over(opened, settings, Extras { models, ..Extras::default() }).await.unwrap();
    (House { app, script, directory }, store)
}

#[tokio::test]
async fn a_full_disk_fails_the_turn_and_space_brings_the_session_back() {
    let data = tempfile::tempdir().unwrap();
    let (house, store) = on_disk(data.path()).await;
    let (feed, pieces) = mpsc::unbounded_channel();
    house.plays([says("fine"), follows(pieces), says("again"), says("once more")]);
    let id = house.session().await;
    house.turn(&id, "one").await;
    // Behind the first turn: two of a type in one batch would be taken for one.
    let last_seq = house.app.session(&anyone(), &id).await.unwrap().last_seq;
    let mut reader = house.app.events(&anyone(), &id, last_seq).await.unwrap();
    let accepted = house.prompts(&id, "two", PromptMode::Queue).await.unwrap();
    feed.send("seen").unwrap();
    until(&mut reader, "stream.delta").await;
    let seen = reader.position();
    store.limit_pages(1);
    feed.send(Box::leak("lost ".repeat(4000).into_boxed_str())).unwrap();
    drop(feed);
    let record = house.app.wait_turn(&anyone(), &id, &accepted.turn_id).await.unwrap();
    let message = record.error.map(|error| error.message).unwrap_or_default();
    assert!(
        record.status == TurnStatus::Failed && message.contains("full") && message.contains("simse.db"),
        "{message}"
    );
    let refused = house.prompts(&id, &"three ".repeat(4000), PromptMode::Queue).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Internal, "{refused}");
    store.limit_pages(0);
    let record = house.turn(&id, "four").await;
    assert_eq!(record.result.as_deref(), Some("again"), "{record:?}");
    // A prompt that was refused leaves nothing behind for the one after it.
    store.limit_pages(1);
    house.prompts(&id, &"five ".repeat(4000), PromptMode::Queue).await.unwrap_err();
    store.limit_pages(0);
    let record = house.turn(&id, "six").await;
    assert_eq!(record.result.as_deref(), Some("once more"), "{record:?}");
    let log = house.log(&id).await;
    assert_eq!(log.iter().map(|e| e.seq).collect::<Vec<_>>(), (1..=log.len() as u64).collect::<Vec<_>>());
    let kinds: Vec<&str> = log[usize::try_from(seen).unwrap()..].iter().map(|event| event.kind.as_ref()).collect();
    assert_eq!(kinds[..3], ["stream.complete", "loop.complete", "session.error"], "{kinds:?}");
    assert_eq!(kinds.iter().filter(|kind| **kind == "session.prompt").count(), 2);
    let stored = house.app.turn(&anyone(), &id, &accepted.turn_id).await.unwrap();
    assert_eq!(stored.status, TurnStatus::Failed);
}

#[tokio::test]
async fn a_stop_says_that_it_could_not_store_the_end_of_a_turn() {
    let data = tempfile::tempdir().unwrap();
    let (house, store) = on_disk(data.path()).await;
    let (feed, pieces) = mpsc::unbounded_channel();
    house.plays([follows(pieces)]);
    let id = house.session().await;
    let mut reader = house.app.events(&anyone(), &id, 0).await.unwrap();
    let accepted = house.prompts(&id, "one", PromptMode::Queue).await.unwrap();
    feed.send("seen").unwrap();
    until(&mut reader, "stream.delta").await;
    store.refuse_writes(true);
    feed.send("lost").unwrap();
    drop(feed);
    let record = house.app.wait_turn(&anyone(), &id, &accepted.turn_id).await.unwrap();
    assert_eq!(record.status, TurnStatus::Failed);
    let stop = tokio::time::timeout(Duration::from_secs(60), house.app.shutdown(Duration::ZERO));
    let refused = stop.await.expect("a stop ends").unwrap_err();
    assert!(refused.0.message.contains(id.as_str()), "{refused}");
}

#[tokio::test]
async fn bodies_that_do_not_fit_are_refused_by_field() {
    let house = open(Storage::Memory, |settings| settings.limits.sessions_max = 1).await;
    let file = house.directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let caller = anyone();
    let create = |change: &dyn Fn(&mut CreateSession)| {
        let mut body = CreateSession::default();
        change(&mut body);
        house.app.create_session(&caller, body)
    };
    let outside = Path::new("/").to_owned();
    #[rustfmt::skip]
    let table: Vec<(&str, Box<dyn Fn(&mut CreateSession)>)> = vec![
        ("workingDirectory", Box::new(|b| b.working_directory = Some("no-such".into()))),
        ("workingDirectory", Box::new(move |b| b.working_directory = Some(outside.clone()))),
        ("workingDirectory", Box::new(move |b| b.working_directory = Some(file.clone()))),
        ("model", Box::new(|b| b.model = Some("a/b".into()))),
        ("agent", Box::new(|b| b.agent = Some("nobody".into()))),
        ("title", Box::new(|b| b.title = Some("a\nb".into()))),
        ("title", Box::new(|b| b.title = Some("x".repeat(257)))),
        ("tools[1]", Box::new(|b| b.tools = Some(vec!["bash".into(), "fly".into()]))),
    ];
    for (field, change) in table {
        let error = create(&change).await.unwrap_err();
        assert_eq!((error.code(), &error.0.details.unwrap()["field"]), (ErrorCode::InvalidArgument, &json!(field)));
    }
    let made = create(&|b| b.session_id = Some("mine".parse().unwrap())).await.unwrap();
    assert_eq!((made.session_id.as_str(), made.status, made.version), ("mine", SessionStatus::Created, 0));
    assert_eq!(create(&|_| ()).await.unwrap_err().code(), ErrorCode::ResourceExhausted);
    house.app.delete_session(&anyone(), &made.session_id).await.unwrap();
    create(&|b| b.session_id = Some("mine".parse().unwrap())).await.unwrap();
}

#[tokio::test]
async fn a_setting_that_does_not_hold_is_named_as_its_giver_calls_it() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    std::os::unix::fs::symlink("loop", at("loop")).unwrap();
    type Change = fn(&mut Settings, PathBuf);
    #[rustfmt::skip]
    let table: [(Change, &str, &str, &str); 4] = [
        (|s, p| s.working_directory = p, "none", "--cwd (SIMSE_CWD, cwd)", "workingDirectory"),
        (|s, p| s.allowed_roots = vec![p], "none", "--root (SIMSE_ROOT, root)", "allowedRoots"),
        (|s, p| s.allowed_paths = vec![p], "loop", "--allowed-path (SIMSE_ALLOWED_PATH, allowed_path)", "allowedPaths"),
        (|s, _| s.model = Some("no/such".into()), "none", "--model (SIMSE_MODEL, model)", "model"),
    ];
    for (change, path, flag, member) in table {
        for (names, want) in [(Names::Flags, flag), (Names::Members, member)] {
            let mut settings = Settings { names, ..Settings::new(home.path().to_owned()) };
            change(&mut settings, at(path));
            let error = App::open(settings, Extras::default()).await.err().unwrap().to_string();
            assert!(error.starts_with(&format!("{want}: expected ")), "{error}");
        }
    }
}

fn explained(session: Option<&SessionId>, tool: &str, arguments: Value) -> ExplainCall {
    let Value::Object(arguments) = arguments else { panic!("an object") };
    ExplainCall { session_id: session.cloned(), id: None, tool: tool.into(), arguments }
}

#[tokio::test]
async fn a_yes_reaches_as_far_as_it_says_and_can_be_taken_back() {
    let house = open(Storage::Memory, asks_for_writes).await;
    house.plays([write_round("1"), says("done"), write_round("2"), says("done"), write_round("3"), says("done")]);
    let first = house.session().await;
    let mut reader = house.app.events(&anyone(), &first, 0).await.unwrap();
    let accepted = house.prompts(&first, "write", PromptMode::Queue).await.unwrap();
    until(&mut reader, "permission.request").await;
    let body = Feedback {
        call_id: Some("call_1".into()),
        decision: Some(Decision::Allow),
        scope: Some(GrantScope::Project),
        expires_in_ms: Some(600_000),
        ..Feedback::default()
    };
    house.app.feedback(&anyone(), &first, body).await.unwrap();
    house.app.wait_turn(&anyone(), &first, &accepted.turn_id).await.unwrap();
    // Another session in the same directory: nobody is asked.
    let second = house.session().await;
    house.turn(&second, "write").await;
    assert_eq!(std::fs::read_to_string(house.directory.path().join("a.txt")).unwrap(), "2");
    assert!(!house.kinds(&second).await.iter().any(|kind| kind == "permission.request"));
    let write = || explained(Some(&second), "fs_write", json!({ "path": "a.txt", "content": "x" }));
    let told = house.app.explain(&anyone(), write()).await.unwrap();
    let listed = house.app.grants(&anyone(), (None, None)).await.unwrap().items;
    assert_eq!((told.decision, told.source), (PermissionPolicy::Allow, VerdictBasis::Grant));
    assert_eq!(listed.iter().map(|g| Some(g.grant_id.clone())).collect::<Vec<_>>(), [told.grant]);
    assert_eq!((listed[0].scope, listed[0].tool.as_str()), (GrantScope::Project, "fs_write"));
    assert!(listed[0].expires_at.unwrap() > listed[0].created_at && listed[0].working_directory.is_some());
    let other = Caller { client: Some("other".parse().unwrap()), ..Caller::default() };
    assert_eq!(house.app.grants(&other, (None, None)).await.unwrap().items, []);
    let id = listed[0].grant_id.clone();
    assert_eq!(house.app.revoke_grant(&other, (id.clone(), None)).await.unwrap_err().code(), ErrorCode::NotFound);
    house.app.revoke_grant(&anyone(), (id.clone(), None)).await.unwrap();
    assert_eq!(house.app.revoke_grant(&anyone(), (id, None)).await.unwrap_err().code(), ErrorCode::NotFound);
    assert_eq!(house.app.explain(&anyone(), write()).await.unwrap().decision, PermissionPolicy::Ask);
    // A session's own: listed and taken back with the session.
    let mut reader = house.app.events(&anyone(), &second, 0).await.unwrap();
    let accepted = house.prompts(&second, "write", PromptMode::Queue).await.unwrap();
    until(&mut reader, "permission.request").await;
    let body =
        Feedback { call_id: Some("call_1".into()), decision: Some(Decision::AllowAlways), ..Feedback::default() };
    house.app.feedback(&anyone(), &second, body).await.unwrap();
    house.app.wait_turn(&anyone(), &second, &accepted.turn_id).await.unwrap();
    assert_eq!(house.app.grants(&anyone(), (Some(&first), None)).await.unwrap().items, []);
    let own = house.app.grants(&anyone(), (Some(&second), None)).await.unwrap().items.remove(0);
    assert_eq!((own.scope, own.session_id.as_ref()), (GrantScope::Session, Some(&second)));
    let all = house.app.grants(&anyone(), (None, None)).await.unwrap();
    assert_eq!((all.items, all.next_cursor), (vec![own.clone()], None), "without a session: those of all of them");
    assert_eq!(house.app.grants(&other, (None, None)).await.unwrap().items, []);
    let odd = [(Some(&second), Some("x")), (None, Some("no such")), (None, Some("ses_gone"))];
    for query in odd {
        let error = house.app.grants(&anyone(), query).await.unwrap_err();
        assert_eq!(error.0.details.unwrap()["field"], "cursor", "{query:?}");
    }
    assert_eq!(house.app.explain(&anyone(), write()).await.unwrap().source, VerdictBasis::Grant);
    house.app.revoke_grant(&anyone(), (own.grant_id, Some(&second))).await.unwrap();
    assert_eq!(house.app.explain(&anyone(), write()).await.unwrap().decision, PermissionPolicy::Ask);
}

#[tokio::test]
async fn a_grant_counts_in_the_directory_that_it_was_given_in() {
    let house = open(Storage::Memory, asks_for_writes).await;
    std::fs::create_dir(house.directory.path().join("sub")).unwrap();
    #[rustfmt::skip]
    let steps = [
        (json!({"command": "pwd"}), Some(Decision::AllowAlways)), (json!({"command": "pwd"}), None), (json!({"command": "pwd", "cwd": "sub"}), Some(Decision::Deny)),
        (json!({"command": "cd sub"}), Some(Decision::Allow)), (json!({"command": "pwd"}), Some(Decision::AllowAlways)), (json!({"command": "pwd"}), None),
        (json!({"command": "pwd", "cwd": "."}), None), (json!({"command": "ls", "cwd": "."}), Some(Decision::Deny)),
    ];
    house.plays(steps.iter().flat_map(|(arguments, _)| [calls("bash", arguments.clone()), says("done")]));
    let id = house.session().await;
    let mut reader = house.app.events(&anyone(), &id, 0).await.unwrap();
    for (at, (arguments, answer)) in steps.iter().enumerate() {
        let told = house.app.explain(&anyone(), explained(Some(&id), "bash", arguments.clone())).await.unwrap();
        assert_eq!(told.source == VerdictBasis::Grant, answer.is_none(), "step {at}: {told:?}");
        let accepted = house.prompts(&id, "go", PromptMode::Queue).await.unwrap();
        if let Some(decision) = answer {
            until(&mut reader, "permission.request").await;
            let body = Feedback { call_id: Some("call_1".into()), decision: Some(*decision), ..Feedback::default() };
            house.app.feedback(&anyone(), &id, body).await.unwrap();
        }
        house.app.wait_turn(&anyone(), &id, &accepted.turn_id).await.unwrap();
        let asked = house.kinds(&id).await.iter().filter(|kind| *kind == "permission.request").count();
        assert_eq!(asked, steps[..=at].iter().filter(|(_, answer)| answer.is_some()).count(), "step {at}");
    }
    let places: Vec<Option<PathBuf>> =
        house.app.grants(&anyone(), (None, None)).await.unwrap().items.into_iter().map(|grant| grant.cwd).collect();
    assert_eq!(places, [None, Some("sub".into())]);
}

#[tokio::test]
async fn a_mode_comes_with_the_session_and_changes_with_a_prompt() {
    let house = open(Storage::Memory, asks_for_writes).await;
    house.plays([write_round("1"), says("done"), write_round("2"), says("done")]);
    let body = CreateSession { permission_mode: Some(PermissionMode::Plan), ..CreateSession::default() };
    let view = house.app.create_session(&anyone(), body).await.unwrap();
    assert_eq!(view.permission_mode, PermissionMode::Plan);
    let id = view.session_id;
    house.turn(&id, "write").await;
    let file = house.directory.path().join("a.txt");
    assert!(!file.exists());
    let ends: Vec<Value> = house.log(&id).await.iter().filter(|e| e.kind == "tool.call.end").map(payload).collect();
    assert!(ends[0]["output"].as_str().unwrap().contains("the session is in plan mode"), "{ends:?}");
    let body = Prompt {
        prompt: PromptContent::Text("now".into()),
        mode: PromptMode::Queue,
        configure: Some(Configure { permission_mode: Some(PermissionMode::Auto), ..Configure::default() }),
        turn: None,
        if_version: None,
    };
    let accepted = house.app.prompt(&anyone(), &id, body).await.unwrap();
    house.app.wait_turn(&anyone(), &id, &accepted.turn_id).await.unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "2");
    assert_eq!(house.app.session(&anyone(), &id).await.unwrap().permission_mode, PermissionMode::Auto);
}

#[tokio::test]
async fn an_explanation_needs_no_session_and_names_the_floor() {
    let house = open(Storage::Memory, asks_for_writes).await;
    let told =
        house.app.explain(&anyone(), explained(None, "bash", json!({ "command": "ls; rm -rf /" }))).await.unwrap();
    assert_eq!((told.decision, told.source), (PermissionPolicy::Deny, VerdictBasis::Floor));
    assert!(told.reason.contains("remove-root"), "{}", told.reason);
    let told = house.app.explain(&anyone(), explained(None, "bash", json!({ "command": "ls; make" }))).await.unwrap();
    assert_eq!(told.parts.iter().map(|part| part.part.as_str()).collect::<Vec<_>>(), ["ls", "make"]);
    assert_eq!((told.decision, told.mode), (PermissionPolicy::Ask, Some(PermissionMode::Ask)));
    assert_eq!(told.problem, None);
    let read = async |arguments| house.app.explain(&anyone(), explained(None, "Read", arguments)).await.unwrap();
    assert_eq!(read(json!({ "file": "a.txt" })).await.problem, None);
    let bad = read(json!({ "path": 5 })).await;
    assert_eq!(bad.problem.as_deref(), Some("argument \"path\": expected a string, got the number 5"));
    let out = read(json!({ "path": "../../etc/passwd" })).await.problem.unwrap();
    assert!(out.starts_with("the path \"../../etc/passwd\" leads out"), "{out}");
    let call = json!({ "id": "1", "name": "bash", "arguments": { "command": "ls" } });
    let call: ExplainCall = serde_json::from_value(call).unwrap();
    assert_eq!(house.app.explain(&anyone(), call).await.unwrap().problem, None);
    let unknown = house.app.explain(&anyone(), explained(None, "none", json!({}))).await.unwrap_err();
    assert_eq!(unknown.code(), ErrorCode::NotFound);
    let strange = SessionId::generate();
    let nowhere = house.app.explain(&anyone(), explained(Some(&strange), "bash", json!({ "command": "ls" }))).await;
    assert_eq!(nowhere.unwrap_err().code(), ErrorCode::NotFound);
}

/// Finds something in the result of each call but the first.
struct Critic;

impl Hooks for Critic {
    fn before_tool(&self, request: ToolCallRequest) -> BoxFuture<'_, Before> {
        NoHooks.before_tool(request)
    }
    fn after_tool<'a>(&'a self, _: &'a ToolCallRequest, result: ToolCallResult) -> BoxFuture<'a, ToolCallResult> {
        Box::pin(std::future::ready(result))
    }
    fn validate_result<'a>(&'a self, call: &'a ToolCallRequest, _: &'a ToolCallResult) -> BoxFuture<'a, Vec<String>> {
        let found = match call.id.as_str() {
            "call_1" => Vec::new(),
            id => vec![format!("{id} looks odd"), "and long".to_owned()],
        };
        Box::pin(std::future::ready(found))
    }
    fn transform_system(&self, prompt: String) -> BoxFuture<'_, String> {
        NoHooks.transform_system(prompt)
    }
    fn transform_messages(&self, messages: Vec<Message>) -> BoxFuture<'_, Vec<Message>> {
        NoHooks.transform_messages(messages)
    }
    fn compacting<'a>(&'a self, _: &'a [Message], summary: String) -> BoxFuture<'a, String> {
        Box::pin(std::future::ready(summary))
    }
}

#[tokio::test]
async fn what_hooks_found_is_in_the_conversation_after_a_restart_too() {
    let (data, work) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let start = async || {
        let mut settings = Settings::new(work.path().to_owned());
        settings.storage = Storage::Directory(data.path().to_owned());
        let script = Arc::new(Script::default());
        let models: Vec<Arc<dyn Model>> = vec![Arc::clone(&script) as Arc<dyn Model>];
        let extras = Extras { models, hooks: Some(Arc::new(Critic)), ..Extras::default() };
        (App::open(settings, extras).await.unwrap(), script)
    };
    let turn = async |app: &App, id: &SessionId, text: &str| {
        let prompt = PromptContent::Text(text.into());
        let body = Prompt { prompt, mode: PromptMode::Queue, configure: None, turn: None, if_version: None };
        let accepted = app.prompt(&anyone(), id, body).await.unwrap();
        app.wait_turn(&anyone(), id, &accepted.turn_id).await.unwrap()
    };
    let (app, script) = start().await;
    let id = app.create_session(&anyone(), CreateSession::default()).await.unwrap().session_id;
    let calls: Round = Box::new(|_| {
        let call = |id: &str| {
            // Not the same three times: that would be a loop.
            let path = if id == "call_3" { "./." } else { "." };
            let arguments = json!({ "path": path }).as_object().unwrap().clone();
            Ok(ModelEvent::Call(ToolCallRequest { id: id.into(), name: "fs_list".into(), arguments }))
        };
        let finished = Ok(ModelEvent::Finished(StopReason::ToolUse));
        events(vec![call("call_1"), call("call_2"), call("call_3"), finished])
    });
    script.rounds.lock().extend([calls, says("looked"), says("ok")]);
    assert_eq!(turn(&app, &id, "look").await.status, TurnStatus::Completed);
    assert_eq!(turn(&app, &id, "again").await.status, TurnStatus::Completed);
    let live = script.requests.lock().last().unwrap().messages.clone();
    let said = ["call_2 looks odd", "and long", "call_3 looks odd", "and long"];
    let found = Message::User(said.map(|text| Part::Text { text: text.into() }).to_vec());
    assert_eq!(live.iter().position(|message| *message == found), Some(5), "{live:?}");
    app.shutdown(Duration::from_secs(5)).await.unwrap();
    drop(app);

    let (app, script) = start().await;
    script.rounds.lock().extend([says("fine")]);
    assert_eq!(turn(&app, &id, "after").await.status, TurnStatus::Completed);
    let rebuilt = script.requests.lock().last().unwrap().messages.clone();
    assert_eq!(rebuilt[..live.len()], live[..]);
    assert_eq!(rebuilt.len(), live.len() + 2);
    let history = app.history(&anyone(), &id, 0, 100).await.unwrap();
    let found = history.items.iter().filter_map(|item| match &item.body {
        ItemBody::ToolResult { call_id, findings, .. } => Some((call_id.clone(), findings.len())),
        _ => None,
    });
    let mut found: Vec<_> = found.collect();
    found.sort();
    assert_eq!(found, [("call_1".into(), 0), ("call_2".into(), 2), ("call_3".into(), 2)]);
    app.shutdown(Duration::from_secs(5)).await.unwrap();
}

/// A round that runs a command line.
fn runs(command: &str) -> Round {
    calls("bash", json!({ "command": command }))
}

/// Whether a process with this command line is there. A session's processes have numbers of their own.
fn is_running(words: &[&str]) -> bool {
    let line = words.iter().map(|word| format!("{word}\0")).collect::<String>();
    let lines = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path().join("cmdline"));
    lines.filter_map(|path| std::fs::read(path).ok()).any(|text| text == line.as_bytes())
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn what_a_session_leaves_running_goes_with_it_or_with_the_server() {
    let allow = |settings: &mut Settings| settings.permissions.default_policy = PermissionPolicy::Allow;
    let house = open(Storage::Memory, allow).await;
    let (first, second) = (house.session().await, house.session().await);
    // Times that nobody else sleeps for.
    let own = std::process::id();
    let times = [format!("600.{own}1"), format!("600.{own}2")];
    let left = |at: usize| is_running(&["sleep", &times[at]]);
    for (id, at) in [(&first, 0), (&second, 1)] {
        // In a group of its own as well, as a daemon would be.
        let command = format!("setsid sleep {} > log 2>&1 &", times[at]);
        house.plays([runs(&command), says("started")]);
        assert_eq!(house.turn(id, "start").await.status, TurnStatus::Completed);
        house.plays([runs("true"), says("still there")]);
        assert_eq!(house.turn(id, "look").await.status, TurnStatus::Completed);
        // On a busy machine it may not yet be what it is to become.
        let begin = std::time::Instant::now();
        while !left(at) && begin.elapsed() < Duration::from_secs(8) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(left(at), "it goes on from call to call and from turn to turn");
    }
    house.app.delete_session(&anyone(), &first).await.unwrap();
    assert!(!left(0), "it went with its session");
    assert!(left(1), "another session's goes on");
    house.app.shutdown(Duration::from_secs(1)).await.unwrap();
    assert!(!left(1), "it went with the server");
}
