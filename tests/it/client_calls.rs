//! Calls that a client makes in a session that a model of ours answers: a turn between its turns, under the session's permissions, and
//! in what the model is told afterwards.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use simse::app::{App, Caller, Carried, ClientCall};
use simse::config::{Api, Storage};
use simse::protocol::{
    ApiError, ErrorCode, EventBody, PermissionPolicy, SessionId, ToolCallRequest, TurnRecord, TurnStatus,
};
use tokio_util::sync::CancellationToken;

use crate::support::http::within;
use crate::support::model_server::{Answer, ModelServer, queue};
use crate::support::says::{Says, WIRES};
use crate::support::sessions::{events, open, provider, session, turn};

async fn call(app: &App, id: &SessionId, (name, arguments): (&str, Value)) -> Result<Carried, ApiError> {
    let arguments: Map<String, Value> = arguments.as_object().unwrap().clone();
    let request = ToolCallRequest { id: format!("call_{}", uuid()), name: name.to_owned(), arguments };
    let errand = ClientCall { request, cancel: CancellationToken::new() };
    within(app.call(&Caller::default(), id, errand)).await
}

fn uuid() -> String {
    simse::protocol::TurnId::generate().as_str().trim_start_matches("turn_").to_owned()
}

/// What a wire was sent, as `user`, `assistant`, `calls N` and `results N`, one after the other.
fn shape(api: Api, sent: &Value) -> Vec<String> {
    let list = |name: &str| sent[name].as_array().unwrap().clone();
    let count = |list: &Value, holds: &dyn Fn(&Value) -> bool| {
        list.as_array().map_or(0, |list| list.iter().filter(|item| holds(item)).count())
    };
    let told = |role: &str, calls: usize, results: usize| match (calls, results) {
        (0, 0) => role.to_owned(),
        (calls, 0) => format!("calls {calls}"),
        (_, results) => format!("results {results}"),
    };
    match api {
        Api::Chat => list("messages")
            .iter()
            .filter(|message| message["role"] != "system" && message["role"] != "developer")
            .map(|message| {
                let calls = count(&message["tool_calls"], &|_| true);
                told(message["role"].as_str().unwrap(), calls, usize::from(message["role"] == "tool"))
            })
            .collect(),
        Api::Responses => list("input")
            .iter()
            .filter(|item| item["role"] != "system" && item["role"] != "developer")
            .map(|item| match item["type"].as_str() {
                Some("function_call") => "calls 1".to_owned(),
                Some("function_call_output") => "results 1".to_owned(),
                _ => item["role"].as_str().unwrap_or("assistant").to_owned(),
            })
            .collect(),
        Api::Messages => list("messages")
            .iter()
            .map(|message| {
                let of = |kind: &'static str| move |block: &Value| block["type"] == kind;
                let calls = count(&message["content"], &of("tool_use"));
                let results = count(&message["content"], &of("tool_result"));
                // Results come first, in the message behind their calls.
                assert!(results == 0 || message["content"][0]["type"] == "tool_result", "{message}");
                told(message["role"].as_str().unwrap(), calls, results)
            })
            .collect(),
        Api::Gemini => list("contents")
            .iter()
            .map(|content| {
                let calls = count(&content["parts"], &|part| part.get("functionCall").is_some());
                let results = count(&content["parts"], &|part| part.get("functionResponse").is_some());
                let role = if content["role"] == "model" { "assistant" } else { "user" };
                told(role, calls, results)
            })
            .collect(),
    }
}

/// A program whose sessions have that model and may do anything.
async fn allowing(directory: &Path, server: &ModelServer) -> Arc<App> {
    open(directory, |settings| {
        settings.providers = vec![provider(json!({ "name": "p", "api": "openai-chat", "baseUrl": server.base_url() }))];
        settings.model = Some("p/m".into());
        settings.permissions.default_policy = PermissionPolicy::Allow;
        settings.permissions.rules.clear();
    })
    .await
}

#[tokio::test]
async fn a_model_finds_the_calls_of_a_client_in_its_history_over_each_wire() {
    let directory = tempfile::tempdir().unwrap();
    for api in WIRES {
        let says = Says(api);
        let server = ModelServer::start(queue([says.answer("first"), says.answer("second")])).await;
        let app = open(directory.path(), |settings| {
            settings.providers =
                vec![provider(json!({ "name": "p", "api": api.name(), "apiKey": "k", "baseUrl": server.base_url() }))];
            settings.model = Some("p/m".into());
            settings.permissions.default_policy = PermissionPolicy::Allow;
            settings.permissions.rules.clear();
        })
        .await;
        let id = session(&app, json!({})).await;
        assert_eq!(turn(&app, &id, json!({ "prompt": "hello" })).await.result.as_deref(), Some("first"));
        let written = json!({ "path": format!("{}.txt", api.name()), "content": "by a client" });
        let done = call(&app, &id, ("fs_write", written)).await.unwrap();
        assert!(!done.result.is_error, "{api:?} {done:?}");
        let failed = call(&app, &id, ("fs_read", json!({ "path": "nothing-here" }))).await.unwrap();
        assert!(failed.result.is_error, "{api:?} {failed:?}");
        assert_eq!(app.session(&Caller::default(), &id).await.unwrap().model, "p/m", "it is the session's still");
        assert_eq!(turn(&app, &id, json!({ "prompt": "go on" })).await.result.as_deref(), Some("second"));
        let sent = server.requests()[1].json();
        let tidy = shape(api, &sent);
        let calls = tidy.iter().filter(|said| said.starts_with("calls")).count();
        assert_eq!(calls, 2, "{api:?} {tidy:?} {sent}");
        for (at, said) in tidy.iter().enumerate() {
            let next = tidy.get(at + 1).map(String::as_str);
            assert!(
                said != "calls 1" || next == Some("results 1"),
                "{api:?}: results come behind their calls: {tidy:?}"
            );
            assert!(said != "results 1" || tidy[at - 1] == "calls 1", "{api:?}: {tidy:?}");
        }
        // Of the four, one insists on it.
        if api == Api::Messages {
            let roles: Vec<&str> =
                sent["messages"].as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap()).collect();
            assert!(roles.windows(2).all(|two| two[0] != two[1]), "{api:?}: the roles take turns: {roles:?}");
        }
        let text = sent.to_string();
        assert!(text.contains("by a client") && text.contains("nothing-here") && text.contains("go on"), "{text}");
    }
}

#[tokio::test]
async fn a_call_waits_for_the_turn_that_is_on_keeps_to_the_rules_and_can_be_undone() {
    let directory = tempfile::tempdir().unwrap();
    let deltas = ["a "; 20];
    let server = ModelServer::start(queue([Answer::paced(&deltas, Duration::from_millis(40))])).await;
    let app = open(directory.path(), |settings| {
        settings.storage = Storage::Directory(directory.path().join("data"));
        settings.providers = vec![provider(json!({ "name": "p", "api": "openai-chat", "baseUrl": server.base_url() }))];
        settings.model = Some("p/m".into());
    })
    .await;
    let id = session(&app, json!({ "permissionMode": "accept-edits" })).await;
    let body = serde_json::from_value(json!({ "prompt": "talk" })).unwrap();
    let talking = app.prompt(&Caller::default(), &id, body).await.unwrap();
    within(server.came(1)).await;
    let written = json!({ "path": "one.txt", "content": "by a client" });
    let done = call(&app, &id, ("fs_write", written)).await.unwrap();
    assert!(!done.result.is_error, "{done:?}");
    let over = within(app.wait_turn(&Caller::default(), &id, &talking.turn_id)).await.unwrap();
    assert_eq!(over.result.map(|text| text.trim().len()), Some(39));
    // What the session's rules ask about is asked, and nobody is there.
    let asked = call(&app, &id, ("bash", json!({ "command": "true" }))).await.unwrap();
    assert_eq!(asked.failure.map(|failure| failure.code), Some(ErrorCode::Forbidden));
    let order: Vec<&str> = events(&app, &id)
        .await
        .iter()
        .filter_map(|event| match event {
            EventBody::SessionCompleted { .. } => Some("turn"),
            EventBody::ToolCallStart { .. } => Some("call"),
            _ => None,
        })
        .collect();
    assert_eq!(order.iter().position(|what| *what == "turn"), Some(0), "the call came behind the turn: {order:?}");
    assert_eq!(std::fs::read_to_string(directory.path().join("one.txt")).unwrap(), "by a client");
    let last = || serde_json::from_value(json!({})).unwrap();
    let undone = app.undo(&Caller::default(), &id, last()).await;
    if directory.path().join("one.txt").exists() {
        // The last turn was that of the refused call, which changed nothing.
        app.undo(&Caller::default(), &id, last()).await.unwrap_or_else(|error| panic!("{error}, after {undone:?}"));
    }
    assert!(!directory.path().join("one.txt").exists());
}

#[tokio::test]
async fn a_call_that_is_taken_back_while_it_waits_never_runs() {
    let directory = tempfile::tempdir().unwrap();
    let deltas = ["a "; 20];
    let server = ModelServer::start(queue([
        Answer::paced(&deltas, Duration::from_millis(40)),
        Says(Api::Chat).answer("second"),
    ]))
    .await;
    let app = allowing(directory.path(), &server).await;
    let id = session(&app, json!({})).await;
    let body = serde_json::from_value(json!({ "prompt": "talk" })).unwrap();
    let talking = app.prompt(&Caller::default(), &id, body).await.unwrap();
    within(server.came(1)).await;
    let arguments = json!({ "path": "one.txt", "content": "by a client" }).as_object().unwrap().clone();
    let request = ToolCallRequest { id: "call_1".into(), name: "fs_write".into(), arguments };
    let errand = ClientCall { request, cancel: CancellationToken::new() };
    let (cancel, caller) = (errand.cancel.clone(), Caller::default());
    let (told, ()) = tokio::join!(within(app.call(&caller, &id, errand)), async {
        // It waits behind the turn that is on.
        let waits = |turn: &TurnRecord| turn.status == TurnStatus::Queued;
        while !app.turns(&caller, &id, (None, 10), false).await.unwrap().items.iter().any(waits) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        cancel.cancel();
    });
    assert_eq!(told.unwrap_err().code(), ErrorCode::Conflict);
    let over = within(app.wait_turn(&caller, &id, &talking.turn_id)).await.unwrap();
    assert_eq!(over.result.map(|text| text.trim().len()), Some(39));
    for one in app.turns(&caller, &id, (None, 10), false).await.unwrap().items {
        let over = within(app.wait_turn(&caller, &id, &one.turn_id)).await.unwrap();
        let its_own = one.turn_id == talking.turn_id;
        assert_eq!(over.status, if its_own { TurnStatus::Completed } else { TurnStatus::Aborted }, "{over:?}");
    }
    assert_eq!(turn(&app, &id, json!({ "prompt": "go on" })).await.result.as_deref(), Some("second"));
    let sent = server.requests()[1].json().to_string();
    assert!(sent.contains("go on") && !sent.contains("call of a client") && !sent.contains("No call"), "{sent}");
    assert!(!directory.path().join("one.txt").exists());
    let called = |event: &EventBody| matches!(event, EventBody::ToolCallStart { .. });
    assert!(!events(&app, &id).await.iter().any(called));
}

#[tokio::test]
async fn what_a_user_says_during_a_call_is_for_the_model_and_before_the_calls_behind_it() {
    let directory = tempfile::tempdir().unwrap();
    let server = ModelServer::start(queue([Says(Api::Chat).answer("heard")])).await;
    let app = allowing(directory.path(), &server).await;
    let (id, caller) = (session(&app, json!({})).await, Caller::default());
    let first = json!({ "command": "while [ ! -e go ]; do sleep 0.02; done" });
    let said = async {
        while !events(&app, &id).await.iter().any(|event| matches!(event, EventBody::ToolCallStart { .. })) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let body = serde_json::from_value(json!({ "prompt": "hear this", "mode": "steer" })).unwrap();
        let accepted = app.prompt(&caller, &id, body).await.unwrap();
        assert_eq!(accepted.status, TurnStatus::Queued, "nobody is there who could hear it now");
        let behind = call(&app, &id, ("bash", json!({ "command": "true" })));
        let opened = async {
            // The second call has asked for a turn of its own.
            let waits = |turn: &&TurnRecord| turn.status == TurnStatus::Queued;
            while app.turns(&caller, &id, (None, 10), false).await.unwrap().items.iter().filter(waits).count() < 2 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            std::fs::write(directory.path().join("go"), "").unwrap();
        };
        let (behind, ()) = tokio::join!(behind, opened);
        assert!(!behind.unwrap().result.is_error);
        let over = within(app.wait_turn(&caller, &id, &accepted.turn_id)).await.unwrap();
        assert_eq!(over.result.as_deref(), Some("heard"));
    };
    let (held, ()) = tokio::join!(call(&app, &id, ("bash", first)), within(said));
    assert!(!held.unwrap().result.is_error);
    let order: Vec<&str> = events(&app, &id)
        .await
        .iter()
        .filter_map(|event| match event {
            EventBody::SessionCompleted { result, .. } if result == "heard" => Some("answer"),
            EventBody::ToolCallStart { .. } => Some("call"),
            _ => None,
        })
        .collect();
    assert_eq!(order, ["call", "answer", "call"]);
}

#[tokio::test]
async fn a_session_s_own_tools_are_offered_to_who_calls_in_it() {
    let directory = tempfile::tempdir().unwrap();
    let app = open(directory.path(), |_| {}).await;
    let caller = Caller::default();
    let names = async |id: &SessionId| -> Vec<String> {
        app.offered_tools_of(&caller, id).await.unwrap().into_iter().map(|(tool, _)| tool.name).collect()
    };
    let body = |tools: Value| serde_json::from_value(json!({ "tools": tools })).unwrap();
    let one = app.create_call_session(&caller, body(json!(["fs_read"]))).await.unwrap().session_id;
    assert_eq!(names(&one).await, ["fs_read"]);
    let most = app.create_call_session(&caller, body(json!(["*", "-bash"]))).await.unwrap().session_id;
    let most = names(&most).await;
    assert!(most.len() + 1 == app.offered_tools().len() && !most.contains(&"bash".to_owned()), "{most:?}");
}
