//! What is done when a model fails for good: room is made once, others are asked once each.

use super::*;
use crate::model::ModelFacts;
use crate::protocol::Original;

/// A model of another name.
struct Named(&'static str, Arc<Script>, bool);

impl Model for Named {
    fn id(&self) -> &str {
        self.0
    }
    fn is_agent(&self) -> bool {
        self.2
    }
    fn stream(&self, request: ModelRequest, cancel: CancellationToken) -> ModelStream {
        self.1.stream(request, cancel)
    }
}

fn named(id: &'static str, script: &Arc<Script>) -> Arc<dyn Model> {
    Arc::new(Named(id, Arc::clone(script), false))
}

fn answers(text: &str) -> Arc<Script> {
    Script::new([vec![says(text), tokens(1), DONE]])
}

fn fails(error: ModelError) -> Arc<Script> {
    Script::new([vec![says("half"), tokens(10), Err(error)]])
}

fn overflow() -> ModelError {
    ModelError::Overflow("too long".into())
}

/// `(attempt, model)` of each retry.
fn retries(log: &Log) -> Vec<(u32, Option<String>)> {
    log.find(
        |e| if let EventBody::StreamRetry { attempt, model, .. } = e { Some((*attempt, model.clone())) } else { None },
    )
}

fn prunes(log: &Log) -> usize {
    log.find(|e| matches!(e, EventBody::CompactionPrune { .. }).then_some(())).len()
}

/// A turn of a session in which two outputs are long.
fn long_input(model: &Arc<Script>, log: &Arc<Log>) -> TurnInput {
    let long = |id: &str| Message::ToolResult {
        call_id: id.into(),
        name: "echo".into(),
        output: "x".repeat(50_000),
        is_error: false,
        parts: Vec::new(),
    };
    let said = |id: &str| Message::assistant("", vec![call(id, "echo", json!({ "text": id }))]);
    let messages = vec![
        Message::User(text("do")),
        said("1"),
        long("1"),
        said("2"),
        long("2"),
        Message::assistant("done", vec![]),
        Message::User(text("hello")),
    ];
    TurnInput { messages: messages.into(), ..input(Arc::clone(model), log) }
}

#[tokio::test]
async fn others_are_asked_in_their_order_and_once_each() {
    let transient = ModelError::Transient { message: "cut".into(), retry_after: None };
    #[rustfmt::skip]
    let table = [
        // (how the first fails, the attempts at it, whether others are asked)
        (transient, 3, true),
        (ModelError::Unauthorized("x".into()), 1, true),
        (ModelError::Spent("x".into()), 1, true),
        (ModelError::Malformed("x".into()), 1, true),
        (ModelError::Unavailable("x".into()), 1, true),
        (ModelError::Refused("x".into()), 1, false),
        (ModelError::Blocked("x".into()), 1, false),
    ];
    for (error, attempts, rescued) in table {
        let log = Arc::new(Log::default());
        let (first, spent, last) = (fails(error.clone()), fails(ModelError::Spent("x".into())), answers("saved"));
        let agent: Arc<dyn Model> = Arc::new(Named("acp/a", answers("agent"), true));
        let again = named("test/script", &last);
        let fallbacks = vec![agent, again, named("b/b", &spent), named("c/c", &last)];
        let turn = TurnInput { fallbacks, ..input(Arc::clone(&first), &log) };
        let outcome = run_turn(turn, CancellationToken::new()).await;
        assert_eq!(first.asked.lock().len(), attempts, "{error:?}");
        assert_eq!((spent.asked.lock().len(), last.asked.lock().len()), (usize::from(rescued), usize::from(rescued)));
        assert_consistent(&log);
        if !rescued {
            assert!(matches!(outcome.ended, Ended::Failed(_)), "{error:?}");
            continue;
        }
        assert_eq!((outcome.ended, outcome.final_text.as_str()), (Ended::Completed, "saved"), "{error:?}");
        let n = u32::try_from(attempts).unwrap();
        let own = (2..=n).map(|attempt| (attempt, None));
        let others = [(n + 1, Some("b/b".to_owned())), (n + 2, Some("c/c".to_owned()))];
        assert_eq!(retries(&log), own.chain(others).collect::<Vec<_>>(), "{error:?}");
        // Nothing of what failed is left, except what it cost.
        assert_eq!(outcome.messages[1..], [Message::assistant("saved", vec![])]);
        assert_eq!(outcome.progress.usage.input_tokens, 10 * (u64::from(n) + 1) + 1);
    }
}

#[tokio::test]
async fn the_one_that_stands_in_goes_on_with_the_turn_and_nobody_twice() {
    let log = Arc::new(Log::default());
    let first = fails(ModelError::Spent("x".into()));
    let second = Script::new([
        vec![calls("a", "echo", json!({ "text": "1" })), TOOLS],
        vec![Err(ModelError::Spent("y".into()))],
    ]);
    let turn = TurnInput { fallbacks: vec![named("b/b", &second)], ..input(Arc::clone(&first), &log) };
    let outcome = run_turn(turn, CancellationToken::new()).await;
    assert_eq!((first.asked.lock().len(), second.asked.lock().len()), (1, 2));
    let Ended::Failed(error) = outcome.ended else { panic!("{:?}", outcome.ended) };
    assert_eq!((error.message.as_str(), error.details), ("y", Some(json!({ "kind": "quota" }))));
    assert_eq!(log.words().iter().filter(|word| *word == "tool.call.end").count(), 1);
    assert_consistent(&log);
}

#[tokio::test]
async fn room_is_made_once_and_then_the_failure_has_its_kind() {
    // It does not fit, whatever is left out.
    let log = Arc::new(Log::default());
    let never = fails(overflow());
    let outcome = run_turn(long_input(&never, &log), CancellationToken::new()).await;
    let Ended::Failed(error) = &outcome.ended else { panic!("{:?}", outcome.ended) };
    assert_eq!(error.details, Some(json!({ "kind": "context_overflow" })));
    let asked: Vec<usize> = turns_own(&never).iter().map(chars).collect();
    assert!(asked.len() == 2 && asked[1] < asked[0] / 4, "{asked:?}");
    assert_eq!((prunes(&log), retries(&log)), (1, vec![(2, None)]));
    let words = log.words();
    let at = |word: &str| words.iter().position(|w| w == word).unwrap();
    assert!(
        at("stream.start") < at("compaction.start")
            && at("compaction.start") < at("compaction.prune")
            && at("compaction.prune") + 1 == at("stream.retry"),
        "{words:?}"
    );
    // In the next turn too it ends: there is nothing more that could go.
    let mut messages = outcome.messages.clone();
    messages.push(Message::User(text("again")));
    let log = Arc::new(Log::default());
    let turn = TurnInput { messages, ..input(Arc::clone(&never), &log) };
    let outcome = run_turn(turn, CancellationToken::new()).await;
    assert!(matches!(outcome.ended, Ended::Failed(_)));
    assert!(turns_own(&never).len() <= 4, "no turn asks more than twice");
    assert!(never.asked.lock().len() <= 4 + 2 * 4, "and for a summary only so often");
    // It fits then.
    let log = Arc::new(Log::default());
    let once = Script::new([
        vec![Err(overflow())],
        vec![says("## Goal\nall\n## State\nhalf"), DONE],
        vec![says("fits"), DONE],
    ]);
    let outcome = run_turn(long_input(&once, &log), CancellationToken::new()).await;
    assert_eq!((outcome.ended, outcome.final_text.as_str()), (Ended::Completed, "fits"));
    assert_eq!((compactions(&log), prunes(&log), retries(&log)), (1, 0, vec![(2, None)]));
    assert!(
        outcome
            .messages
            .iter()
            .all(|message| !matches!(message, Message::ToolResult { output, .. } if output.len() > 100))
    );
}

#[tokio::test]
async fn another_with_more_room_is_asked_behind_that() {
    let log = Arc::new(Log::default());
    let (small, large) = (fails(overflow()), answers("fits"));
    let turn = TurnInput { fallbacks: vec![named("b/large", &large)], ..long_input(&small, &log) };
    let outcome = run_turn(turn, CancellationToken::new()).await;
    assert_eq!(outcome.ended, Ended::Completed);
    assert_eq!((turns_own(&small).len(), large.asked.lock().len(), prunes(&log)), (2, 1, 1));
    assert_eq!(retries(&log), [(2, None), (3, Some("b/large".into()))]);
    // Where nothing can go it is the next thing that is done.
    let log = Arc::new(Log::default());
    let (small, large) = (fails(overflow()), answers("fits"));
    let turn = TurnInput { fallbacks: vec![named("b/large", &large)], ..input(Arc::clone(&small), &log) };
    let outcome = run_turn(turn, CancellationToken::new()).await;
    assert_eq!(outcome.ended, Ended::Completed);
    assert_eq!((small.asked.lock().len(), prunes(&log)), (1, 0));
}

/// A window of so many tokens.
struct Window(Arc<Script>, u64);

impl Model for Window {
    fn id(&self) -> &str {
        "test/window"
    }
    fn facts(&self) -> ModelFacts {
        ModelFacts { context_tokens: Some(self.1), ..ModelFacts::default() }
    }
    fn stream(&self, request: ModelRequest, cancel: CancellationToken) -> ModelStream {
        self.0.stream(request, cancel)
    }
}

#[tokio::test]
async fn a_window_that_is_full_without_a_word_is_an_overflow() {
    let length = || Ok(ModelEvent::Finished(StopReason::Length));
    #[rustfmt::skip]
    let table = [
        // (what comes first, the window, requests)
        (vec![tokens(1_000), length()], 1_000, 2),
        (vec![tokens(995), length()], 1_000, 2),
        (vec![tokens(500), length()], 1_000, 1),
        (vec![length()], 1_000, 1),
        (vec![says("word"), tokens(1_000), length()], 1_000, 1),
    ];
    for (first, window, requests) in table {
        let log = Arc::new(Log::default());
        let script = Script::new([first, vec![says("## Goal\nall\n## State\nhalf"), DONE], vec![says("fits"), DONE]]);
        let model = Arc::new(Window(Arc::clone(&script), window));
        let outcome = run_turn(TurnInput { model, ..long_input(&script, &log) }, CancellationToken::new()).await;
        assert_eq!((turns_own(&script).len(), compactions(&log)), (requests, requests - 1));
        assert_consistent(&log);
        assert_eq!(outcome.final_text == "fits", requests == 2);
    }
}

/// The requests of the turn itself, and not those for a summary.
fn turns_own(script: &Script) -> Vec<ModelRequest> {
    script.asked.lock().iter().filter(|request| request.system == "be good").cloned().collect()
}

fn compactions(log: &Log) -> usize {
    log.find(|e| matches!(e, EventBody::CompactionComplete { .. }).then_some(())).len()
}

fn chars(request: &ModelRequest) -> usize {
    format!("{:?}", request.messages).len()
}

/// Takes out the first reply, and changes nothing else.
struct Forgets;

impl Hooks for Forgets {
    fn before_tool(&self, request: ToolCallRequest) -> BoxFuture<'_, Before> {
        Box::pin(std::future::ready(Before::Continue(request)))
    }
    fn after_tool<'a>(&'a self, _: &'a ToolCallRequest, r: ToolCallResult) -> BoxFuture<'a, ToolCallResult> {
        Box::pin(std::future::ready(r))
    }
    fn validate_result<'a>(&'a self, _: &'a ToolCallRequest, _: &'a ToolCallResult) -> BoxFuture<'a, Vec<String>> {
        Box::pin(std::future::ready(Vec::new()))
    }
    fn transform_system(&self, prompt: String) -> BoxFuture<'_, String> {
        Box::pin(std::future::ready(prompt))
    }
    fn transform_messages(&self, messages: Vec<Message>) -> BoxFuture<'_, Vec<Message>> {
        let bare = messages.into_iter().map(|message| match message {
            Message::Assistant { text, calls, .. } => Message::Assistant { text, calls, original: None },
            other => other,
        });
        Box::pin(std::future::ready(bare.skip(2).collect()))
    }
    fn compacting<'a>(&'a self, _: &'a [Message], summary: String) -> BoxFuture<'a, String> {
        Box::pin(std::future::ready(summary))
    }
}

#[tokio::test]
async fn replies_that_hooks_left_as_they_were_keep_their_own_words() {
    let log = Arc::new(Log::default());
    let script = answers("ok");
    let said = |words: &str| {
        let items = vec![json!({ "type": "reasoning", "of": words })];
        let original = Original { wire: "w".into(), model: "m".into(), items, paused: false };
        Message::Assistant { text: words.into(), calls: Vec::new(), original: Some(Arc::new(original)) }
    };
    let user = || Message::User(text("u"));
    let all = vec![user(), said("one"), user(), said("two"), user(), said("three"), user()];
    let mut turn = TurnInput { messages: all.clone().into(), ..input(Arc::clone(&script), &log) };
    turn.environment.hooks = Arc::new(Forgets);
    run_turn(turn, CancellationToken::new()).await;
    assert_eq!(script.asked.lock()[0].messages, all[2..]);
}
