//! What is asked of the recording. The job itself is tried in tests/it/demo.rs.

use futures_util::StreamExt;
use serde_json::Map;
use tokio_util::sync::CancellationToken;

use super::{Demo, ENDED_BADLY, JOB, NOT_DONE, OTHER, WENT_WELL, in_few_words};
use crate::model::{Model, ModelError, ModelEvent, ModelRequest, StopReason};
use crate::protocol::{Message, Part, ToolCallRequest};

fn user(text: &str) -> Message {
    Message::User(vec![Part::Text { text: text.into() }])
}

fn called(id: &str) -> Message {
    Message::assistant("so", vec![ToolCallRequest { id: id.into(), name: "t".into(), arguments: Map::new() }])
}

fn came(id: &str, output: &str, is_error: bool) -> Message {
    Message::ToolResult { call_id: id.into(), name: "t".into(), output: output.into(), is_error, parts: Vec::new() }
}

async fn events(demo: &Demo, messages: Vec<Message>) -> Vec<Result<ModelEvent, ModelError>> {
    let request = ModelRequest { messages: messages.into(), ..ModelRequest::default() };
    demo.stream(request, CancellationToken::new()).collect().await
}

fn text(events: &[Result<ModelEvent, ModelError>]) -> String {
    let text = |event: &Result<ModelEvent, ModelError>| match event {
        Ok(ModelEvent::Text(text)) => Some(text.clone()),
        _ => None,
    };
    events.iter().filter_map(text).collect()
}

#[test]
fn what_differs_from_run_to_run_is_not_asked() {
    let job = "A test of this repository fails. Find out why.";
    let short = |messages: Vec<Message>| in_few_words(&messages).messages.to_vec();
    let asked = vec![user(JOB), called("call_1"), came("call_1", WENT_WELL, false)];
    #[rustfmt::skip]
    let table = [
        // A turn before, a word from the side, and ids that were given anew.
        (vec![user("hi"), Message::assistant("ho", vec![]), user(job), called("x_9"), came("x_9", "1.2 ms", false), user("hurry")], asked.clone()),
        (vec![user(job), called("a"), came("a", "[exit code 1]\nnot ok", true)], vec![user(JOB), called("call_1"), came("call_1", ENDED_BADLY, false)]),
        (vec![user(job), called("a"), came("a", "denied", true)], vec![user(JOB), called("call_1"), came("call_1", NOT_DONE, false)]),
        // Behind an aborted call a new turn begins.
        (vec![user(job), called("a"), came("a", "t: aborted", true), user("what are you?")], vec![user(OTHER)]),
        (vec![], vec![user(OTHER)]),
    ];
    for (messages, want) in table {
        assert_eq!(short(messages.clone()), want, "{messages:?}");
    }
    let request = in_few_words(&[user(job)]);
    assert!(request.system.is_empty() && request.tools.is_empty() && request.output_schema.is_none());
}

#[tokio::test]
async fn it_says_what_it_is_as_often_as_it_is_asked() {
    let demo = Demo::new(0.0);
    for _ in 0..2 {
        for prompt in ["Make the failing test pass.", "What are you?"] {
            let events = events(&demo, vec![user(prompt)]).await;
            let said = text(&events);
            assert!(said.contains("`demo/scripted`") && said.contains("no language model, but a recording"), "{said}");
            let [.., Ok(ModelEvent::Call(call)), Ok(ModelEvent::Finished(StopReason::ToolUse))] = &events[..] else {
                panic!("{events:?}")
            };
            assert_eq!((call.name.as_str(), call.id.as_str()), ("fs_list", "call_1"));
        }
    }
    let facts = demo.facts();
    assert!(demo.available().is_ok() && !facts.images && !facts.reasoning && !facts.structured_output);
}

#[tokio::test]
async fn what_it_does_not_know_ends_it() {
    let events = events(&Demo::new(0.0), vec![user("fix the test"), called("a"), came("a", "", false)]).await;
    assert!(text(&events).starts_with("This is a recording"), "{events:?}");
    assert_eq!(events.last(), Some(&Ok(ModelEvent::Finished(StopReason::EndTurn))));
}

#[tokio::test]
async fn cancel_ends_the_stream() {
    let cancel = CancellationToken::new();
    let request = ModelRequest { messages: vec![user("hi")].into(), ..ModelRequest::default() };
    let mut stream = Demo::new(1.0).stream(request, cancel.clone());
    assert!(matches!(stream.next().await, Some(Ok(ModelEvent::Text(_)))));
    cancel.cancel();
    let rest: Vec<_> = stream.collect().await;
    assert!(matches!(&rest[..], [.., Err(ModelError::Aborted)]), "{rest:?}");
}
