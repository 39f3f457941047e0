//! The chat-completions provider against a scripted server that speaks the true wire, well and badly.

use std::time::Duration;

use futures_util::StreamExt;
use serde_json::{Value, json};
use simse::model::{Model, ModelError, ModelEvent, ModelRequest, StopReason};
use simse::protocol::{Message, Part, Reasoning, ToolCallRequest, Usage};
use simse::provider::{OpenAiOptions, Reach, openai};
use tokio_util::sync::CancellationToken;

use crate::support::binary::Serving;
use crate::support::model_server::{Answer, ModelServer, Step, call_chunks, end, queue, text_chunk};

const KEY: &str = "sk-very-secret-key";

fn model(base_url: &str) -> std::sync::Arc<dyn Model> {
    model_with_patience(base_url, Duration::from_secs(20))
}

fn model_with_patience(base_url: &str, idle_timeout: Duration) -> std::sync::Arc<dyn Model> {
    openai(OpenAiOptions {
        model: "test-model".into(),
        base_url: Some(base_url.into()),
        api_key: Some(KEY.into()),
        idle_timeout,
        images: true,
        reach: Reach::default(),
    })
}

fn hello() -> ModelRequest {
    ModelRequest {
        messages: vec![Message::User(vec![Part::Text { text: "hello".into() }])].into(),
        ..ModelRequest::default()
    }
}

type Events = Vec<Result<ModelEvent, ModelError>>;

async fn ask(answer: Answer) -> Events {
    let server = ModelServer::start(queue([answer])).await;
    joined(model(&server.base_url()).stream(hello(), CancellationToken::new()).collect().await)
}

/// The same with all neighbouring pieces as one: how many a text has depends on how it comes.
fn joined(events: Events) -> Events {
    let mut all: Events = Vec::new();
    for event in events {
        let left = match (all.last_mut(), event) {
            (Some(Ok(before)), Ok(event)) => before.join(event).map(Ok),
            (_, event) => Some(event),
        };
        all.extend(left);
    }
    all
}

fn text(text: &str) -> Result<ModelEvent, ModelError> {
    Ok(ModelEvent::Text(text.into()))
}

fn call(id: &str, name: &str, arguments: Value) -> Result<ModelEvent, ModelError> {
    let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
    Ok(ModelEvent::Call(ToolCallRequest { id: id.into(), name: name.into(), arguments }))
}

fn usage() -> Result<ModelEvent, ModelError> {
    Ok(ModelEvent::Usage(Usage { input_tokens: 10, output_tokens: 5, total_tokens: 15, ..Usage::default() }))
}

fn finished(reason: StopReason) -> Result<ModelEvent, ModelError> {
    Ok(ModelEvent::Finished(reason))
}

#[tokio::test]
async fn text_tokens_and_the_end() {
    let events = ask(Answer::text(&["Hel", "lo ä", "😀"])).await;
    assert_eq!(events, [text("Hello ä😀"), usage(), finished(StopReason::EndTurn)]);
}

#[tokio::test]
async fn connections_are_used_again() {
    let server = ModelServer::start(queue([Answer::text(&["ok"])])).await;
    for _ in 0..20 {
        let events: Events = model(&server.base_url()).stream(hello(), CancellationToken::new()).collect().await;
        assert_eq!(events.last(), Some(&finished(StopReason::EndTurn)));
    }
    assert_eq!(server.requests().len(), 20);
    // A request that comes on the heels of another may open one more; each its own would be 20.
    assert!(server.connections() < 10, "{}", server.connections());
}

#[tokio::test]
async fn what_is_sent() {
    let server = ModelServer::start(queue([Answer::text(&["ok"])])).await;
    let call_made = ToolCallRequest {
        id: "c1".into(),
        name: "fs_read".into(),
        arguments: serde_json::from_value(json!({"path": "a", "limit": 2})).unwrap(),
    };
    let definition = json!({
        "name": "fs_read", "description": "reads",
        "parameters": {"path": {"type": "string", "description": "p", "required": true}},
    });
    let image = Part::Image { media_type: "image/png".into(), data: "QUJD".into() };
    let request = ModelRequest {
        system: "be good".into(),
        messages: vec![
            Message::User(vec![Part::Text { text: "look".into() }, image]),
            Message::assistant("", vec![call_made]),
            Message::ToolResult {
                call_id: "c1".into(),
                name: "fs_read".into(),
                output: "x".into(),
                is_error: false,
                parts: Vec::new(),
            },
            Message::assistant("fine", vec![]),
            Message::User(vec![Part::Text { text: "more".into() }]),
        ]
        .into(),
        tools: vec![serde_json::from_value(definition).unwrap()].into(),
        reasoning: Reasoning::Xhigh,
        ..ModelRequest::default()
    };
    let events: Events = model(&server.base_url()).stream(request, CancellationToken::new()).collect().await;
    assert_eq!(events.last(), Some(&finished(StopReason::EndTurn)));
    let requests = server.requests();
    assert_eq!(requests[0].path, "/v1/chat/completions");
    assert_eq!(requests[0].header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    assert_eq!(requests[0].header("accept"), Some("text/event-stream"));
    let want = json!({
        "model": "test-model",
        "reasoning_effort": "xhigh",
        "messages": [
            {"role": "system", "content": "be good"},
            {"role": "user", "content": [
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
            ]},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "fs_read", "arguments": "{\"path\":\"a\",\"limit\":2}"}},
            ]},
            {"role": "tool", "tool_call_id": "c1", "content": "x"},
            {"role": "assistant", "content": "fine"},
            {"role": "user", "content": "more"},
        ],
        "tools": [{"type": "function", "function": {
            "name": "fs_read", "description": "reads",
            "parameters": {
                "type": "object", "properties": {"path": {"type": "string", "description": "p"}}, "required": ["path"],
            },
        }}],
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    assert_eq!(requests[0].json(), want);
}

#[tokio::test]
async fn calls_between_text() {
    let made = [("a", "fs_read", json!({"path": "ä/ö"})), ("b", "bash", json!({}))];
    let events = ask(Answer::calls("Let me look.", &made)).await;
    let want = [
        text("Let me look."),
        call("a", "fs_read", json!({"path": "ä/ö"})),
        call("b", "bash", json!({})),
        usage(),
        finished(StopReason::ToolUse),
    ];
    assert_eq!(events, want);
}

#[tokio::test]
async fn any_cut_of_the_bytes_gives_the_same_events() {
    let body =
        format!("\u{FEFF}: hi\n\n{}{}{}", text_chunk("ä😀"), call_chunks(0, "a", "echo", "{\"t\":\"ö\"}"), end("stop"));
    let want = [text("ä😀"), call("a", "echo", json!({"t": "ö"})), usage(), finished(StopReason::ToolUse)];
    for body in [body.clone(), body.replace('\n', "\r\n"), body.replace('\n', "\r")] {
        let whole = ask(Answer::raw(body.clone())).await;
        assert_eq!(whole, want);
        let bytes = body.as_bytes();
        for size in [1, 7, 64] {
            let steps = bytes.chunks(size).map(|piece| Step::Send(piece.to_vec().into())).collect();
            assert_eq!(ask(Answer::steps(steps)).await, want, "pieces of {size}");
        }
    }
}

#[tokio::test]
async fn statuses_and_their_kinds() {
    let said = format!("{{\"error\": {{\"message\": \"it says {KEY} no\", \"type\": \"x\"}}}}");
    let quota = "{\"error\": {\"message\": \"it says *** no\", \"code\": \"insufficient_quota\"}}";
    #[rustfmt::skip]
    let table: &[(u16, &[(&str, &str)], &str, &str, Option<u64>)] = &[
        (401, &[], &said, "unauthorized", None),
        (403, &[], &said, "unauthorized", None),
        (400, &[], &said, "refused", None),
        (404, &[], &said, "refused", None),
        (422, &[], &said, "refused", None),
        (307, &[("location", "http://127.0.0.1:1/")], &said, "refused", None),
        (408, &[], &said, "transient", None),
        (425, &[], &said, "transient", None),
        (429, &[("retry-after", "3")], &said, "transient", Some(3000)),
        (429, &[], quota, "quota", None),
        (500, &[], &said, "transient", None),
        (503, &[("retry-after-ms", "70")], &said, "transient", Some(70)),
        (529, &[], "{\"detail\": \"it says *** no\"}", "transient", None),
        (502, &[], "<html>it says *** no</html>", "transient", None),
        (400, &[], "{\"error\": \"it says *** no\"}", "refused", None),
    ];
    for (status, headers, body, kind, wait_ms) in table {
        let events = ask(Answer::status(*status, headers, body)).await;
        let [Err(error)] = &events[..] else { panic!("{status}: {events:?}") };
        let words = error.to_string();
        assert!(words.contains(&status.to_string()) && words.contains("it says *** no"), "{words}");
        assert!(!words.contains(KEY), "{words}");
        let wait = if let ModelError::Transient { retry_after, .. } = error { *retry_after } else { None };
        assert_eq!((error.kind(), wait), (*kind, wait_ms.map(Duration::from_millis)), "{status} {body}");
    }
}

#[tokio::test]
async fn half_a_character_ends_no_reply() {
    let piece = |escaped: &str| text_chunk("@").replace('@', escaped);
    let said = ["a", r"\ude00", r"\ud83d", r"\ud83d\ude00", "b"].map(piece).concat();
    let events = ask(Answer::raw(said + &end("stop"))).await;
    assert_eq!(events, [text("a\u{fffd}\u{fffd}😀b"), usage(), finished(StopReason::EndTurn)]);
}

#[tokio::test]
async fn a_connection_that_is_cut_is_worth_another_try() {
    let events = ask(Answer::cut(&["so ", "far"])).await;
    assert_eq!(events[..1], [text("so far")]);
    assert!(matches!(events[1..], [Err(ModelError::Transient { .. })]), "{events:?}");
    // An orderly end of the body without the end of the reply is the same.
    let events = ask(Answer::raw(text_chunk("so far"))).await;
    assert!(matches!(events[1..], [Err(ModelError::Transient { .. })]), "{events:?}");
    let events = ask(Answer::raw("")).await;
    assert!(matches!(events[..], [Err(ModelError::Transient { .. })]), "{events:?}");
}

#[tokio::test]
async fn the_end_may_be_missing_when_the_reason_to_stop_has_come() {
    let whole = format!("{}{}", text_chunk("all"), end("stop"));
    let (until_done, _) = whole.split_once("data: [DONE]").unwrap();
    let want = [text("all"), usage(), finished(StopReason::EndTurn)];
    assert_eq!(ask(Answer::raw(until_done.to_owned())).await, want);
    let cut = Answer::steps(vec![Step::Send(until_done.to_owned().into()), Step::Cut]);
    assert_eq!(ask(cut).await, want);
}

#[tokio::test]
async fn garbage_is_malformed() {
    for body in ["data: <html>\n\n", "data: {\"choices\": 3}\n\n", "data: {\"choices\"\n\n"] {
        let events = ask(Answer::raw(format!("{}{body}", text_chunk("a")))).await;
        assert!(matches!(&events[..], [Ok(_), Err(ModelError::Malformed(_))]), "{events:?}");
    }
}

#[tokio::test]
async fn errors_inside_a_stream() {
    #[rustfmt::skip]
    let table = [
        ("data: {\"error\": {\"message\": \"too busy\", \"type\": \"overloaded_error\"}}\n\n", "transient"),
        ("data: {\"error\": {\"message\": \"too busy\", \"code\": 503}}\n\n", "transient"),
        ("data: {\"error\": {\"message\": \"network timeout\", \"code\": 400}}\n\n", "refused"),
        ("data: {\"error\": {\"message\": \"too long\", \"code\": \"context_length_exceeded\"}}\n\n", "context_overflow"),
        ("data: {\"error\": {\"message\": \"who\", \"code\": \"401\"}}\n\n", "unauthorized"),
        ("event: error\ndata: {\"message\": \"too busy\"}\n\n", "transient"),
        ("event: error\ndata: plain words\n\n", "transient"),
    ];
    for (body, kind) in table {
        let events = ask(Answer::raw(format!("{}{body}", text_chunk("a")))).await;
        let [Ok(_), Err(error)] = &events[..] else { panic!("{body}: {events:?}") };
        assert_eq!(error.kind(), kind, "{body}");
    }
}

#[tokio::test]
async fn a_server_that_does_not_stream_is_understood() {
    let headers = &[("content-type", "application/json; charset=utf-8")];
    let whole = json!({
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
            "role": "assistant", "content": "Well.",
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "echo", "arguments": "{\"t\": 1}"}}],
        }}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5},
    });
    let events = ask(Answer::status(200, headers, &whole.to_string())).await;
    assert_eq!(events, [text("Well."), call("a", "echo", json!({"t": 1})), usage(), finished(StopReason::ToolUse)]);
    let events = ask(Answer::status(200, headers, "{\"error\": {\"message\": \"no\", \"code\": 400}}")).await;
    assert!(matches!(&events[..], [Err(ModelError::Refused(_))]), "{events:?}");
    let events = ask(Answer::status(200, headers, "{\"hello\": 1}")).await;
    assert!(matches!(&events[..], [Err(ModelError::Malformed(_))]), "{events:?}");
}

#[tokio::test]
async fn silence_is_transient_before_and_between() {
    let patience = Duration::from_millis(1_500);
    for (answer, before) in [(Answer::silence(), 0), (Answer::silence_after(&["a", "b"]), 1)] {
        let server = ModelServer::start(queue([answer])).await;
        let stream = model_with_patience(&server.base_url(), patience).stream(hello(), CancellationToken::new());
        let events = joined(stream.collect().await);
        assert_eq!(events.len(), before + 1, "{events:?}");
        let Some(Err(ModelError::Transient { message, .. })) = events.last() else { panic!("{events:?}") };
        assert!(message.contains("sent nothing for 1500 ms"), "{message}");
    }
}

#[tokio::test]
async fn cancel_ends_the_stream_at_once() {
    for answer in [Answer::silence(), Answer::silence_after(&["a"])] {
        let server = ModelServer::start(queue([answer])).await;
        let cancel = CancellationToken::new();
        let stream = model(&server.base_url()).stream(hello(), cancel.clone());
        let events = tokio::spawn(stream.collect::<Events>());
        server.came(1).await;
        cancel.cancel();
        assert_eq!(events.await.unwrap().last(), Some(&Err(ModelError::Aborted)));
    }
}

#[tokio::test]
async fn base_addresses_with_and_without_their_version() {
    let server = ModelServer::start(queue([Answer::text(&["ok"])])).await;
    let base = server.base_url();
    let root = base.strip_suffix("/v1").unwrap();
    for (given, path) in [
        (root.to_owned(), "/v1/chat/completions"),
        (format!("{root}/"), "/v1/chat/completions"),
        (base.clone(), "/v1/chat/completions"),
        (format!(" {base}/ "), "/v1/chat/completions"),
        (format!("{root}/api/v3"), "/api/v3/chat/completions"),
        (format!("{base}/chat/completions"), "/v1/chat/completions"),
    ] {
        let events: Events = model(&given).stream(hello(), CancellationToken::new()).collect().await;
        assert!(events.iter().all(Result::is_ok), "{given}: {events:?}");
        assert_eq!(server.requests().last().unwrap().path, path, "{given}");
    }
}

/// A tool's message cannot hold images, and nothing may stand between the results of one reply.
#[tokio::test]
async fn images_of_tools_come_behind_all_results_of_their_reply() {
    let server = ModelServer::start(queue([Answer::text(&["ok"])])).await;
    let image = |data: &str| Part::Image { media_type: "image/png".into(), data: data.into() };
    let call = |id: &str| ToolCallRequest { id: id.into(), name: "view_image".into(), arguments: Default::default() };
    let result = |id: &str, parts: Vec<Part>| Message::ToolResult {
        call_id: id.into(),
        name: "view_image".into(),
        output: format!("o{id}"),
        is_error: false,
        parts,
    };
    let request = ModelRequest {
        messages: vec![
            Message::assistant("", vec![call("1"), call("2"), call("3")]),
            result("1", vec![image("QQ==")]),
            result("2", vec![]),
            result("3", vec![image("Qg==")]),
            Message::assistant("", vec![call("4")]),
            result("4", vec![image("Qw==")]),
        ]
        .into(),
        ..ModelRequest::default()
    };
    let _: Events = model(&server.base_url()).stream(request, CancellationToken::new()).collect().await;
    let sent = server.requests()[0].json();
    let messages = sent["messages"].as_array().unwrap();
    let roles: Vec<&str> = messages.iter().map(|m| m["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["assistant", "tool", "tool", "tool", "user", "assistant", "tool", "user"]);
    let want = json!([
        {"type": "text", "text": "What view_image (call 1) shows:"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ=="}},
        {"type": "text", "text": "What view_image (call 3) shows:"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,Qg=="}},
    ]);
    assert_eq!(messages[4]["content"], want);
    assert_eq!(messages[7]["content"][1]["image_url"]["url"], "data:image/png;base64,Qw==");
}

#[tokio::test]
async fn what_cannot_be_used_says_why_before_anything_is_sent() {
    let options = |base_url: Option<&str>, key: Option<&str>| OpenAiOptions {
        model: "m".into(),
        base_url: base_url.map(str::to_owned),
        api_key: key.map(Into::into),
        idle_timeout: Duration::from_secs(1),
        images: true,
        reach: Reach::default(),
    };
    let error = openai(options(None, None)).available().unwrap_err();
    assert!(matches!(&error, ModelError::Unauthorized(words) if words.contains("OPENAI_API_KEY")), "{error:?}");
    assert_eq!(openai(options(None, Some("k"))).available(), Ok(()));
    assert_eq!(openai(options(Some("http://127.0.0.1:1"), None)).available(), Ok(()));
    let bad = openai(options(Some("ftp://x/v1"), None));
    assert!(matches!(bad.available(), Err(ModelError::Unavailable(words)) if words.contains("base URL")));
    let events: Events = bad.stream(hello(), CancellationToken::new()).collect().await;
    assert!(matches!(&events[..], [Err(ModelError::Unavailable(_))]), "{events:?}");
}

#[tokio::test]
async fn what_failed_last_time_is_not_available_until_it_works_again() {
    let bad_key = format!("{{\"error\": {{\"message\": \"{KEY} is no key\"}}}}");
    let server = ModelServer::start(queue([
        Answer::text(&["ok"]),
        Answer::status(401, &[], &bad_key),
        Answer::status(429, &[], "slowly"),
        Answer::text(&["ok"]),
        Answer::status(503, &[], "busy"),
        Answer::status(400, &[], "too long"),
        Answer::status(404, &[], "no such model"),
        Answer::cut(&["half"]),
    ]))
    .await;
    let model = model(&server.base_url());
    let table =
        [None, Some("status 401: *** is no key"), Some("status 401"), None, Some("503"), None, Some("404"), None];
    for (step, want) in table.into_iter().enumerate() {
        let _: Events = model.stream(hello(), CancellationToken::new()).collect().await;
        let told = model.available().err().map(|error| error.to_string());
        match (&told, want) {
            (None, None) => {}
            (Some(told), Some(want)) => assert!(told.contains(want) && told.contains("last asked"), "{step}: {told}"),
            _ => panic!("{step}: {told:?}"),
        }
    }
}

#[tokio::test]
async fn a_model_that_nobody_can_reach_is_told_so_by_health_and_the_list() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let home = tempfile::tempdir().unwrap();
    let arguments = ["--openai-base-url", &format!("http://{free}/v1"), "--model", "openai/m"];
    let serving = Serving::start(&home, &arguments).await;
    let told = async || {
        let models = serving.request("GET", "/models").send(serving.address).await.json();
        let listed =
            models["models"].as_array().unwrap().iter().find(|model| model["id"] == "openai/m").unwrap().clone();
        let health = serving.request("GET", "/health").send(serving.address).await;
        assert_eq!(health.status, 200);
        let checks = health.json()["checks"].clone();
        (listed, checks["model"].clone(), checks["providers"].clone())
    };
    let turn = async |session: &str| {
        let create = serving.request("POST", "/sessions").json(&json!({ "sessionId": session }));
        assert_eq!(create.send(serving.address).await.status, 201);
        let path = format!("/sessions/{session}/prompt?wait=true");
        let prompt = serving.request("POST", &path).json(&json!({ "prompt": "x" }));
        prompt.send(serving.address).await.json()["status"].clone()
    };
    let (listed, model, providers) = told().await;
    assert_eq!(
        (&listed["available"], &model["status"], &providers["status"]),
        (&json!(true), &json!("ok"), &json!("ok"))
    );
    assert_eq!(turn("a").await, "failed");
    let (listed, model, providers) = told().await;
    assert_eq!(listed["available"], false, "{listed}");
    assert_eq!((&model["status"], &providers["status"]), (&json!("unavailable"), &json!("degraded")));
    for reason in [&listed["reason"], &model["reason"], &providers["unavailable"]["openai/m"]] {
        assert!(reason.as_str().unwrap().contains("Connection refused"), "{reason}");
    }
    // Somebody listens there now.
    let _there = ModelServer::start_on(free.port(), queue([Answer::text(&["ok"])]), true).await;
    assert_eq!(turn("b").await, "completed");
    let (listed, model, providers) = told().await;
    assert_eq!(
        (&listed["available"], &model["status"], &providers["status"]),
        (&json!(true), &json!("ok"), &json!("ok"))
    );
    assert_eq!(listed.get("reason"), None);
    serving.stop_well().await;
}

#[tokio::test]
async fn keys_as_they_come_from_files() {
    let server = ModelServer::start(queue([Answer::text(&["ok"])])).await;
    #[rustfmt::skip]
    let table = [(" sk-1\n", Some(Some("Bearer sk-1"))), (" \n", Some(None)), ("sk\n1", None)];
    for (key, want) in table {
        let (base_url, idle_timeout) = (Some(server.base_url()), Duration::from_secs(20));
        let model = openai(OpenAiOptions {
            model: "m".into(),
            base_url,
            api_key: Some(key.into()),
            idle_timeout,
            images: true,
            reach: Reach::default(),
        });
        let events: Events = model.stream(hello(), CancellationToken::new()).collect().await;
        match want {
            Some(header) => assert_eq!(server.requests().last().unwrap().header("authorization"), header, "{key:?}"),
            None => {
                let [Err(ModelError::Unavailable(words))] = &events[..] else { panic!("{events:?}") };
                assert!(!words.contains("sk"), "{words}");
            }
        }
    }
}

#[tokio::test]
async fn an_event_without_end_is_refused() {
    let endless = Answer::steps(vec![Step::Send(vec![b'x'; 9 << 20].into()), Step::Hang]);
    let events = ask(endless).await;
    assert!(matches!(&events[..], [Err(ModelError::Malformed(_))]), "{events:?}");
}
