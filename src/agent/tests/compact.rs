//! A conversation is summed up: when, from what, what the model goes on with, and what is left when it fails.

use super::*;
use crate::model::ModelFacts;
use crate::protocol::{Compaction, CompactionTrigger, PromptContent, TurnTask};

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

/// Four turns of about 500 tokens each, and a new prompt.
fn long() -> Vec<Message> {
    let mut messages = Vec::new();
    for turn in 0..4 {
        messages.push(Message::User(text(&format!("{turn} {}", "u".repeat(400)))));
        messages.push(Message::assistant("", vec![call(&turn.to_string(), "echo", json!({ "text": "e" }))]));
        messages.push(Message::ToolResult {
            call_id: turn.to_string(),
            name: "echo".into(),
            output: "o".repeat(1_200),
            is_error: false,
            parts: Vec::new(),
        });
        messages.push(Message::assistant("a".repeat(400), vec![]));
    }
    messages.push(Message::User(text("now")));
    messages
}

/// A turn with that window, whose replies are these.
fn turn(script: &Arc<Script>, log: &Arc<Log>, window: u64) -> TurnInput {
    let model = Arc::new(Window(Arc::clone(script), window));
    let compacting = Compacting { percent: 85, model: None };
    TurnInput { model, compacting, messages: long().into(), ..input(Arc::clone(script), log) }
}

fn made(log: &Log) -> Vec<Compaction> {
    log.find(|e| match e {
        EventBody::CompactionComplete { compaction, .. } => Some((**compaction).clone()),
        _ => None,
    })
}

fn failed(log: &Log) -> Vec<String> {
    log.find(|e| if let EventBody::CompactionFailed { error, .. } = e { Some(error.message.clone()) } else { None })
}

fn last_text(request: &ModelRequest) -> String {
    match request.messages.last() {
        Some(Message::User(parts)) => PromptContent::Parts(parts.clone()).text(),
        other => panic!("{other:?}"),
    }
}

/// A summary of the form that is asked for.
fn summary(of: &str) -> String {
    format!("## Goal\n{of}\n\n## State\nhalf")
}

fn sums(up: &str) -> Result<ModelEvent, ModelError> {
    says(&summary(up))
}

#[tokio::test]
async fn it_is_summed_up_before_it_fills_the_window_and_never_while_there_is_room() {
    for (window, sums_up) in [(2_500, true), (400_000, false)] {
        let log = Arc::new(Log::default());
        let script =
            Script::new([vec![says(&format!(" {} \n", summary("all"))), tokens(7), DONE], vec![says("ok"), DONE]]);
        let outcome = run_turn(turn(&script, &log, window), CancellationToken::new()).await;
        assert_eq!(outcome.ended, Ended::Completed);
        let asked = script.asked.lock();
        if !sums_up {
            assert_eq!((asked.len(), made(&log).len()), (1, 0));
            continue;
        }
        // What was sent before is sent once more as it was, with the task behind it.
        assert_eq!(asked[0].messages[..long().len()], long());
        assert!(last_text(&asked[0]).contains("## Open questions"), "{}", last_text(&asked[0]));
        assert_eq!((&asked[0].tools.len(), &asked[0].system), (&asked[1].tools.len(), &asked[1].system));
        // Then the summary, what the user said, and the newest messages; a call stays with its result.
        let made = &made(&log)[0];
        assert_eq!((made.summary.as_str(), made.trigger), (summary("all").as_str(), CompactionTrigger::Threshold));
        assert!(made.tokens_after < made.tokens_before, "{made:?}");
        let kept = usize::try_from(made.kept).unwrap();
        let all = long();
        let newest = &all[all.len() - kept..];
        assert!(kept > 1 && !matches!(newest[0], Message::ToolResult { .. }));
        let told = &asked[1].messages;
        assert_eq!(told[told.len() - kept..], *newest);
        let Message::User(parts) = &told[0] else { panic!() };
        assert_eq!(parts[0], Part::Text { text: format!("[Conversation summary]\n{}", summary("all")) });
        assert!(told[1..told.len() - kept].iter().all(|message| all.contains(message)));
        assert_eq!(outcome.messages[..told.len()], **told);
        assert_eq!(outcome.final_text, "ok");
        assert_eq!(outcome.progress.usage.input_tokens, 7, "the summary is paid for");
        assert_eq!(log.words()[..3], ["loop.start", "compaction.start", "compaction.complete"]);
        assert_consistent(&log);
    }
}

#[tokio::test]
async fn what_fails_leaves_the_conversation_as_it_was_and_is_not_tried_in_circles() {
    let log = Arc::new(Log::default());
    let refused = || vec![Err(ModelError::Refused("not that".into()))];
    let round = || vec![calls("x", "echo", json!({ "text": "e" })), TOOLS];
    let script = Script::new([refused(), round(), round(), vec![says("ok"), DONE]]);
    let outcome = run_turn(turn(&script, &log, 2_500), CancellationToken::new()).await;
    assert_eq!((outcome.ended, failed(&log)), (Ended::Completed, vec!["not that".to_owned()]));
    assert_eq!(script.asked.lock().len(), 4, "a summary once, and three rounds");
    assert_eq!(script.asked.lock()[1].messages, long());
    assert_eq!(outcome.messages[..long().len()], long());
}

#[tokio::test]
async fn a_summary_that_is_too_long_itself_is_no_way_out_but_ends() {
    let log = Arc::new(Log::default());
    let endless = summary(&"s".repeat(20_000));
    let script = Script::new([vec![says(&endless), DONE], vec![says("ok"), DONE]]);
    let outcome = run_turn(turn(&script, &log, 2_500), CancellationToken::new()).await;
    assert_eq!((outcome.ended, made(&log).len(), script.asked.lock().len()), (Ended::Completed, 1, 2));
}

#[tokio::test]
async fn one_that_calls_tools_instead_is_given_a_transcript() {
    let log = Arc::new(Log::default());
    let script = Script::new([
        vec![calls("x", "echo", json!({ "text": "e" })), TOOLS],
        vec![sums("sum"), DONE],
        vec![says("ok"), DONE],
    ]);
    let outcome = run_turn(turn(&script, &log, 2_500), CancellationToken::new()).await;
    assert_eq!(outcome.ended, Ended::Completed);
    let asked = script.asked.lock();
    assert!(asked[1].tools.is_empty() && asked[1].system.starts_with("You sum up"), "{:?}", asked[1].system);
    let shown = last_text(&asked[1]);
    assert!(shown.contains("[Tool Result: echo]") && shown.contains("## Next steps"), "{shown}");
    assert!(!shown.contains("[User]\nnow"), "what stays is not summed up");
    assert_eq!(made(&log)[0].summary, summary("sum"));
    assert!(!log.words().contains(&"tool.call.start".to_owned()), "nothing was run for it");
}

#[tokio::test]
async fn what_is_no_summary_takes_nobodys_place() {
    let finished = |stop| Ok(ModelEvent::Finished(stop));
    #[rustfmt::skip]
    let table = [
        vec![says("Let me look at the tests first."), calls("x", "echo", json!({ "text": "e" })), TOOLS],
        vec![sums("a"), calls("x", "echo", json!({ "text": "e" })), TOOLS],
        vec![says("OK"), DONE],
        vec![says("I am sorry, I cannot help with that."), DONE],
        vec![sums("cut"), finished(StopReason::ContentFilter)],
        vec![sums("cut"), finished(StopReason::Refusal)],
        vec![sums("cut"), finished(StopReason::Length)],
        vec![DONE],
    ];
    for bad in table {
        let log = Arc::new(Log::default());
        let script = Script::new([bad.clone(), bad.clone(), vec![says("ok"), DONE], vec![says("ok"), DONE]]);
        let outcome = run_turn(turn(&script, &log, 2_500), CancellationToken::new()).await;
        assert_eq!((outcome.ended, made(&log).len(), failed(&log).len()), (Ended::Completed, 0, 1), "{bad:?}");
        assert_eq!(outcome.messages[..long().len()], long(), "{bad:?}");
    }
}

/// What failed once is tried again when a good deal has come, and not before.
#[tokio::test]
async fn what_was_tried_in_vain_is_tried_again_later() {
    let log = Arc::new(Log::default());
    let round = || vec![calls("x", "echo", json!({ "text": "e".repeat(300) })), TOOLS];
    let refused = vec![Err(ModelError::Refused("not now".into()))];
    // The first round is not enough to try it again, the second one is.
    let script = Script::new([refused, round(), round(), vec![sums("late"), DONE], vec![says("ok"), DONE]]);
    let outcome = run_turn(turn(&script, &log, 2_500), CancellationToken::new()).await;
    assert_eq!((outcome.ended, failed(&log).len(), made(&log).len()), (Ended::Completed, 1, 1));
    assert_eq!((outcome.final_text.as_str(), script.asked.lock().len()), ("ok", 5));
}

#[tokio::test]
async fn another_model_sums_up_where_one_is_set_and_the_own_one_where_it_fails() {
    for fails in [false, true] {
        let log = Arc::new(Log::default());
        let other = match fails {
            true => Script::new([vec![Err(ModelError::Spent("no money".into()))]]),
            false => Script::new([vec![sums("theirs"), DONE]]),
        };
        let script = match fails {
            true => Script::new([vec![sums("own"), DONE], vec![says("ok"), DONE]]),
            false => Script::new([vec![says("ok"), DONE]]),
        };
        let mut turn = turn(&script, &log, 2_500);
        turn.compacting.model = Some(Arc::clone(&other) as Arc<dyn Model>);
        run_turn(turn, CancellationToken::new()).await;
        assert_eq!(made(&log)[0].summary, summary(if fails { "own" } else { "theirs" }));
        assert!(other.asked.lock()[0].system.starts_with("You sum up"));
    }
}

#[tokio::test]
async fn hooks_may_change_the_summary() {
    let log = Arc::new(Log::default());
    let script = Script::new([vec![sums("sum"), DONE], vec![says("ok"), DONE]]);
    let mut turn = turn(&script, &log, 2_500);
    turn.environment.hooks = Arc::new(Meddler);
    run_turn(turn, CancellationToken::new()).await;
    assert_eq!(made(&log)[0].summary, summary("sum") + " and more");
}

#[tokio::test]
async fn a_turn_that_does_nothing_else() {
    let compact = |focus: Option<&str>| Some(TurnTask::Compact { focus: focus.map(str::to_owned) });
    let log = Arc::new(Log::default());
    let script = Script::new([vec![sums("sum"), DONE]]);
    let messages = long()[..16].to_vec();
    let input =
        TurnInput { task: compact(Some("the tests")), messages: messages.into(), ..turn(&script, &log, 400_000) };
    let outcome = run_turn(input, CancellationToken::new()).await;
    assert_eq!((outcome.ended, outcome.final_text.as_str()), (Ended::Completed, summary("sum").as_str()));
    assert_eq!((outcome.messages.len(), outcome.progress.rounds), (1, 0), "all of it is summed up");
    assert_eq!(log.words(), ["compaction.start", "compaction.complete"]);
    assert!(last_text(&script.asked.lock()[0]).ends_with("keep above all: the tests"));
    // There is nothing more: that is told, and no model asked.
    let again = TurnInput { task: compact(None), messages: outcome.messages, ..turn(&script, &log, 400_000) };
    let Ended::Failed(error) = run_turn(again, CancellationToken::new()).await.ended else { panic!() };
    assert_eq!((error.details, script.asked.lock().len()), (Some(json!({ "kind": "not_compacted" })), 1));
}

#[tokio::test]
async fn who_answers_in_actions_is_shown_a_transcript() {
    let (script, log) = (Script::new([vec![sums("sum"), DONE]]), Arc::new(Log::default()));
    let compact = |focus: Option<&str>| Some(TurnTask::Compact { focus: focus.map(str::to_owned) });
    let messages = long()[..16].to_vec();
    let input = TurnInput {
        task: compact(None),
        mode: crate::protocol::InteractionMode::Auto,
        messages: messages.into(),
        ..turn(&script, &log, 400_000)
    };
    let outcome = run_turn(input, CancellationToken::new()).await;
    assert_eq!((outcome.ended, outcome.final_text.as_str()), (Ended::Completed, summary("sum").as_str()));
    let asked = script.asked.lock();
    assert_eq!((asked.len(), asked[0].messages.len()), (1, 1));
    assert!(asked[0].system.starts_with("You sum up"), "{}", asked[0].system);
}

/// Never answers.
struct Silent;

impl Model for Silent {
    fn id(&self) -> &str {
        "test/silent"
    }
    fn facts(&self) -> ModelFacts {
        ModelFacts { context_tokens: Some(2_500), ..ModelFacts::default() }
    }
    fn stream(&self, _: ModelRequest, _: CancellationToken) -> ModelStream {
        Box::pin(futures_util::stream::pending())
    }
}

/// Wants the turn to end once it is looked at.
struct Interrupts;

impl Steering for Interrupts {
    fn take(&self) -> BoxFuture<'_, Result<Vec<Vec<Part>>, SinkError>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
    fn waits(&self) -> bool {
        false
    }
    fn wish(&self) -> Wish {
        Wish::Interrupt
    }
    fn called(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

#[tokio::test]
async fn it_stops_when_it_is_told_to() {
    let task = Some(TurnTask::Compact { focus: None });
    for aborts in [true, false] {
        let log = Arc::new(Log::default());
        let script = Script::new([vec![DONE]]);
        let cancel = CancellationToken::new();
        let mut input = TurnInput { task: task.clone(), model: Arc::new(Silent), ..turn(&script, &log, 2_500) };
        if aborts {
            let later = cancel.clone();
            tokio::spawn(async move { later.cancel() });
        } else {
            input.steering = Arc::new(Interrupts);
        }
        let outcome = run_turn(input, cancel).await;
        assert_eq!(outcome.ended, if aborts { Ended::Aborted } else { Ended::Interrupted });
        assert_eq!((failed(&log).len(), outcome.messages), (1, long().into()));
    }
}

/// What stands before it is summed up, from what can be sent; the failure says what no summary can help.
#[tokio::test]
async fn a_prompt_longer_than_the_window_is_not_sent_for_a_summary_and_its_failure_says_so() {
    let log = Arc::new(Log::default());
    let too_long = || vec![Err(ModelError::Overflow("too long".into()))];
    let script = Script::new([vec![sums("old"), DONE], too_long(), too_long(), too_long()]);
    let mut input = turn(&script, &log, 2_500);
    let huge = "h".repeat(40_000);
    let mut messages = long();
    messages.push(Message::User(text(&huge)));
    input.messages = messages.into();
    let outcome = run_turn(input, CancellationToken::new()).await;
    let first = script.asked.lock()[0].clone();
    assert!(first.system.starts_with("You sum up"), "{:?}", first.system);
    assert!(!last_text(&first).contains("hhhh"), "what cannot fit is not sent");
    assert_eq!(made(&log)[0].summary, summary("old"));
    let Ended::Failed(error) = outcome.ended else { panic!("{:?}", outcome.ended) };
    let want = "too long; the last message alone has about 10000 tokens, and the model's window has 2500";
    assert!(error.message.ends_with(want), "{}", error.message);
}
