//! What tools and hooks ask the clients and tell them, and how each question comes to one end.

use super::*;
use crate::hook::{Hooks, Line};
use crate::protocol::{ClientQuestion, ClientReply, RequestId, ToolDefinition, VerdictSource};
use crate::tool::{Registry, ToolContext, ToolError, ToolOutput, function};

/// What a reply says, on one line.
fn told(reply: &ClientReply) -> String {
    match reply {
        ClientReply::Value(value) => value.to_string(),
        ClientReply::Cancelled { by, reason } => format!("{by:?}: {reason}"),
    }
}

/// Tools that ask what their arguments say: `ask` waits, `leave` asks and does not wait for the answer.
fn asking() -> Arc<Registry> {
    let registry = Registry::default();
    let definition = |name: &str| -> ToolDefinition {
        let text = json!({ "name": name, "description": "Asks.", "parameters": { "type": "object" } });
        serde_json::from_value(text).unwrap()
    };
    let question = |arguments: &crate::tool::Arguments| -> ClientQuestion {
        serde_json::from_value(arguments["question"].clone()).unwrap()
    };
    let ask = move |arguments: crate::tool::Arguments, context: ToolContext| async move {
        let patience = arguments.get("ms").and_then(Value::as_u64).map(Duration::from_millis);
        context.clients.notify(crate::protocol::NoticeLevel::Warning, "a question comes").unwrap();
        let reply = context.clients.ask(question(&arguments), patience).await;
        let reply = reply.map_err(|error| ToolError::failed(error.0.message))?;
        Ok(ToolOutput::from(told(&reply)))
    };
    let leave = move |arguments: crate::tool::Arguments, context: ToolContext| async move {
        tokio::select! {
            _ = context.clients.ask(question(&arguments), None) => Ok(ToolOutput::from("answered".to_owned())),
            () = tokio::time::sleep(Duration::from_millis(30)) => Ok(ToolOutput::from("left".to_owned())),
        }
    };
    registry.register(function(definition("ask"), ask)).unwrap();
    registry.register(function(definition("leave"), leave)).unwrap();
    let act = |_, _| std::future::ready(Ok(ToolOutput::from("did it".to_owned())));
    registry.register(function(definition("act"), act)).unwrap();
    Arc::new(registry)
}

async fn house(hooks: Option<Arc<dyn Hooks>>, change: impl FnOnce(&mut Settings)) -> House {
    let directory = tempfile::tempdir().unwrap();
    let mut settings = Settings::new(directory.path().to_owned());
    settings.storage = Storage::Memory;
    settings.permissions = PermissionConfig { default_policy: PermissionPolicy::Allow, rules: Vec::new() };
    change(&mut settings);
    let script = Arc::new(Script::default());
    let models: Vec<Arc<dyn Model>> = vec![Arc::clone(&script) as Arc<dyn Model>];
    let extras = Extras { models, registry: Some(asking()), hooks, ..Extras::default() };
    let app = App::open(settings, extras).await.unwrap();
    House { app, script, directory }
}

fn asks(question: &Value) -> Round {
    calls("ask", json!({ "question": question }))
}

async fn request(reader: &mut EventReader) -> RequestId {
    payload(&until(reader, "client.request").await)["requestId"].as_str().unwrap().parse().unwrap()
}

async fn answers(house: &House, id: &SessionId, body: Value) -> Result<crate::session::Resolved, ApiError> {
    house.app.feedback(&anyone(), id, serde_json::from_value(body).unwrap()).await
}

/// What the tool of the newest call has said.
async fn output(house: &House, id: &SessionId) -> String {
    let log = house.log(id).await;
    let end = log.iter().rfind(|event| event.kind == "tool.call.end").expect("a call has ended");
    payload(end)["output"].as_str().unwrap().to_owned()
}

fn field(error: &ApiError) -> (ErrorCode, String) {
    let named = error.0.details.as_ref().and_then(|details| details["field"].as_str()).unwrap_or_default();
    (error.code(), named.to_owned())
}

#[tokio::test]
async fn each_kind_is_answered_once_and_what_does_not_fit_leaves_it_open() {
    let house = house(None, |_| {}).await;
    let id = house.session().await;
    let mut reader = house.app.events(&anyone(), &id, 0).await.unwrap();
    #[rustfmt::skip]
    let table = [
        (json!({ "kind": "select", "title": "Which?", "options": ["a", "b"] }), json!("c"), json!("b")),
        (json!({ "kind": "select", "title": "Which?", "options": ["a", "b"], "several": true }), json!("a"), json!(["b", "a"])),
        (json!({ "kind": "confirm", "title": "Sure?", "message": "It is big." }), json!("yes"), json!(false)),
        (json!({ "kind": "input", "title": "Name?" }), json!("a\nb"), json!("Ann")),
        (json!({ "kind": "editor", "title": "Text", "text": "old" }), json!(7), json!("new\ntext")),
    ];
    for (question, misfit, value) in table {
        house.plays([asks(&question), says("done")]);
        let accepted = house.prompts(&id, "ask", PromptMode::Queue).await.unwrap();
        let asked = payload(&until(&mut reader, "client.request").await);
        assert_eq!((&asked["question"], &asked["callId"]), (&question, &json!("call_1")));
        let request = asked["requestId"].clone();
        let view = house.app.session(&anyone(), &id).await.unwrap();
        assert_eq!(view.turn.map(|turn| turn.status), Some(TurnStatus::Waiting));
        let shown = serde_json::to_value(&view.requests).unwrap();
        assert_eq!(shown, json!([{ "type": "client.request", "payload": asked }]));

        let refused = answers(&house, &id, json!({ "requestId": request, "value": misfit })).await.unwrap_err();
        assert_eq!(field(&refused), (ErrorCode::InvalidArgument, "value".into()));
        let refused = answers(&house, &id, json!({ "requestId": request, "decision": "allow" })).await.unwrap_err();
        assert_eq!(field(&refused), (ErrorCode::InvalidArgument, "value".into()), "it is not about permission");
        let refused = answers(&house, &id, json!({ "callId": "call_1", "decision": "allow" })).await.unwrap_err();
        assert_eq!(refused.code(), ErrorCode::NotFound, "no call waits for permission");
        let body = json!({ "requestId": request, "value": value });
        let resolved = answers(&house, &id, body.clone()).await.unwrap();
        assert_eq!((resolved.cancelled, resolved.allowed), (Some(false), None));
        let response = payload(&until(&mut reader, "client.response").await);
        let want =
            json!({ "requestId": request, "callId": "call_1", "value": value, "cancelled": false, "by": "client" });
        assert_eq!(response, want);
        assert_eq!(answers(&house, &id, body).await.unwrap_err().code(), ErrorCode::Conflict);
        house.app.wait_turn(&anyone(), &id, &accepted.turn_id).await.unwrap();
        assert_eq!(output(&house, &id).await, value.to_string());
        assert_eq!(house.app.session(&anyone(), &id).await.unwrap().requests, []);
    }
    let notices = house.log(&id).await.into_iter().filter(|event| event.kind == "client.notice");
    let want = json!({ "callId": "call_1", "level": "warning", "text": "a question comes" });
    assert_eq!(notices.map(|notice| payload(&notice)).collect::<Vec<_>>(), vec![want; 5]);
}

#[tokio::test]
async fn a_question_without_an_answer_is_cancelled_and_says_why() {
    let confirm = json!({ "kind": "confirm", "title": "Sure?" });
    // Its own patience.
    let house = house(None, |_| {}).await;
    let id = house.session().await;
    let mut reader = house.app.events(&anyone(), &id, 0).await.unwrap();
    house.plays([calls("ask", json!({ "question": confirm, "ms": 20 })), says("done")]);
    house.turn(&id, "ask").await;
    assert_eq!(output(&house, &id).await, "Timeout: nobody answered within 20 ms");
    let late = request(&mut reader).await;
    let refused = answers(&house, &id, json!({ "requestId": late, "value": true })).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Conflict, "it has expired");

    // A client that would not.
    house.plays([asks(&confirm), says("done")]);
    let accepted = house.prompts(&id, "ask", PromptMode::Queue).await.unwrap();
    let open = request(&mut reader).await;
    let body = json!({ "requestId": open, "cancelled": true, "message": "ask me later" });
    assert_eq!(answers(&house, &id, body).await.unwrap().cancelled, Some(true));
    house.app.wait_turn(&anyone(), &id, &accepted.turn_id).await.unwrap();
    assert_eq!(output(&house, &id).await, "Client: ask me later");

    // Who asked has gone on.
    house.plays([calls("leave", json!({ "question": confirm })), says("done")]);
    assert_eq!(house.turn(&id, "leave").await.status, TurnStatus::Completed);
    assert_eq!(output(&house, &id).await, "left");

    // An abort.
    house.plays([asks(&confirm)]);
    let accepted = house.prompts(&id, "ask", PromptMode::Queue).await.unwrap();
    while request(&mut reader).await == open {}
    until(&mut reader, "client.response").await;
    request(&mut reader).await;
    house.app.abort(&anyone(), &id, Control::default()).await.unwrap();
    let record = house.app.wait_turn(&anyone(), &id, &accepted.turn_id).await.unwrap();
    assert_eq!(record.status, TurnStatus::Aborted);
    let log = house.log(&id).await;
    let ends: Vec<String> = log
        .iter()
        .filter(|event| event.kind == "client.response")
        .map(|event| payload(event)["by"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(ends, ["timeout", "client", "abort", "abort"], "one end for each");
    assert_eq!(log.iter().filter(|event| event.kind == "client.request").count(), 4);
}

#[tokio::test]
async fn where_no_client_is_a_question_is_cancelled_at_once() {
    let house = house(None, |settings| settings.limits.client_grace_ms = 20).await;
    let id = house.session().await;
    house.plays([asks(&json!({ "kind": "confirm", "title": "Sure?" })), says("done")]);
    let accepted = house.prompts(&id, "ask", PromptMode::Queue).await.unwrap();
    let live = house.app.live(&anyone(), &id).await.unwrap();
    let mut durable = live.watch_for_test();
    // Nobody reads and nobody waits: what we look at is the store.
    while !house.kinds(&id).await.iter().any(|kind| kind == "session.completed") {
        durable.changed().await.unwrap();
    }
    assert_eq!(output(&house, &id).await, "NoClient: no client is connected who could be asked");
    assert_eq!(house.app.turn(&anyone(), &id, &accepted.turn_id).await.unwrap().status, TurnStatus::Completed);
}

#[tokio::test]
async fn a_question_that_cannot_be_put_is_the_tools_own_failure() {
    let house = house(None, |_| {}).await;
    let id = house.session().await;
    house.plays([asks(&json!({ "kind": "select", "title": "Which?", "options": [] })), says("done")]);
    house.turn(&id, "ask").await;
    let said = output(&house, &id).await;
    assert!(said.contains("options") && said.contains("1 to 1000 texts, got 0"), "{said}");
    assert!(!house.kinds(&id).await.iter().any(|kind| kind == "client.request"), "nobody has seen it");
}

/// Asks before each call whether it may be made.
#[derive(Default)]
struct Doorman(Line);

impl Hooks for Doorman {
    fn with_clients(&self, line: Line) -> Option<Arc<dyn Hooks>> {
        Some(Arc::new(Self(line)))
    }
    fn before_tool(&self, call: ToolCallRequest) -> BoxFuture<'_, Before> {
        Box::pin(async move {
            let title = format!("Call {}?", call.name);
            let question = ClientQuestion::Confirm { title, message: None };
            match self.0.for_call(&call.id).ask(question, None).await {
                Ok(ClientReply::Value(Value::Bool(true))) => Before::Continue(call),
                reply => Before::Blocked { reason: told(&reply.unwrap()) },
            }
        })
    }
    fn after_tool<'a>(&'a self, _: &'a ToolCallRequest, result: ToolCallResult) -> BoxFuture<'a, ToolCallResult> {
        Box::pin(std::future::ready(result))
    }
    fn validate_result<'a>(&'a self, _: &'a ToolCallRequest, _: &'a ToolCallResult) -> BoxFuture<'a, Vec<String>> {
        Box::pin(std::future::ready(Vec::new()))
    }
    fn transform_system(&self, prompt: String) -> BoxFuture<'_, String> {
        Box::pin(std::future::ready(prompt))
    }
    fn transform_messages(&self, messages: Vec<Message>) -> BoxFuture<'_, Vec<Message>> {
        Box::pin(std::future::ready(messages))
    }
    fn compacting<'a>(&'a self, _: &'a [Message], summary: String) -> BoxFuture<'a, String> {
        Box::pin(std::future::ready(summary))
    }
}

#[tokio::test]
async fn a_hook_asks_the_clients_of_the_session_whose_turn_it_is() {
    let house = house(Some(Arc::new(Doorman::default())), |_| {}).await;
    let (one, other) = (house.session().await, house.session().await);
    let mut quiet = house.app.events(&anyone(), &other, 0).await.unwrap();
    let mut reader = house.app.events(&anyone(), &one, 0).await.unwrap();
    for (value, want) in [(true, "did it"), (false, "Tool \"act\" was blocked: false")] {
        house.plays([calls("act", json!({})), says("done")]);
        let accepted = house.prompts(&one, "look", PromptMode::Queue).await.unwrap();
        let asked = payload(&until(&mut reader, "client.request").await);
        assert_eq!((&asked["question"]["title"], &asked["callId"]), (&json!("Call act?"), &json!("call_1")));
        answers(&house, &one, json!({ "requestId": asked["requestId"], "value": value })).await.unwrap();
        house.app.wait_turn(&anyone(), &one, &accepted.turn_id).await.unwrap();
        assert_eq!(output(&house, &one).await, want);
    }
    assert_eq!(until(&mut quiet, "session.created").await.seq, 1);
    assert_eq!(house.kinds(&other).await, ["session.created"], "the other session is not asked");
}

#[tokio::test]
async fn many_questions_at_once_and_many_notices_have_an_end() {
    let registry = Registry::default();
    let definition = json!({ "name": "flood", "description": "Asks.", "parameters": { "type": "object" } });
    let flood = |_, context: ToolContext| async move {
        for n in 0..limit::NOTICES_MAX + 5 {
            context.clients.notify(crate::protocol::NoticeLevel::Info, n.to_string()).unwrap();
        }
        let confirm = || ClientQuestion::Confirm { title: "Sure?".into(), message: None };
        let all =
            (0..limit::OPEN_REQUESTS_MAX + 3).map(|_| context.clients.ask(confirm(), Some(Duration::from_millis(200))));
        let replies = futures_util::future::join_all(all).await;
        let refused = |reply: &Result<ClientReply, ApiError>| {
            matches!(reply, Ok(ClientReply::Cancelled { by: VerdictSource::Policy, .. }))
        };
        Ok(ToolOutput::from(replies.iter().filter(|reply| refused(reply)).count().to_string()))
    };
    registry.register(function(serde_json::from_value(definition).unwrap(), flood)).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut settings = Settings::new(directory.path().to_owned());
    settings.storage = Storage::Memory;
    settings.permissions = PermissionConfig { default_policy: PermissionPolicy::Allow, rules: Vec::new() };
    let script = Arc::new(Script::default());
    let models: Vec<Arc<dyn Model>> = vec![Arc::clone(&script) as Arc<dyn Model>];
    let extras = Extras { models, registry: Some(Arc::new(registry)), ..Extras::default() };
    let house = House { app: App::open(settings, extras).await.unwrap(), script, directory };
    let id = house.session().await;
    let _here = house.app.events(&anyone(), &id, 0).await.unwrap();
    house.plays([calls("flood", json!({})), says("done")]);
    house.turn(&id, "go").await;
    assert_eq!(output(&house, &id).await, "3");
    let kinds = house.kinds(&id).await;
    let count = |kind: &str| kinds.iter().filter(|k| *k == kind).count();
    assert_eq!(count("client.notice"), limit::NOTICES_MAX + 1);
    assert_eq!(
        (count("client.request"), count("client.response")),
        (limit::OPEN_REQUESTS_MAX, limit::OPEN_REQUESTS_MAX)
    );
}
