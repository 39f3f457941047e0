//! Hooks at the end of a turn and before a summary.

use super::*;
use crate::hook::{BeforeCompaction, CompactionSaid, Point, StopKind, TurnStopping};
use crate::protocol::{CompactionTrigger, TurnTask};

/// Makes a turn go on with these texts, one after the other, and notes what it was told.
#[derive(Default)]
struct Stops {
    texts: Mutex<VecDeque<Vec<&'static str>>>,
    told: Mutex<Vec<TurnStopping>>,
    /// Says the same each time.
    forever: bool,
}

impl Hooks for Stops {
    fn attends(&self, point: Point) -> bool {
        point == Point::TurnStop
    }
    fn turn_stop(&self, stop: TurnStopping) -> BoxFuture<'_, Vec<String>> {
        self.told.lock().push(stop);
        let texts = if self.forever { vec!["more"] } else { self.texts.lock().pop_front().unwrap_or_default() };
        Box::pin(std::future::ready(texts.into_iter().map(str::to_owned).collect()))
    }
}

fn stops(texts: &[&[&'static str]]) -> Arc<Stops> {
    let texts = texts.iter().map(|texts| texts.to_vec()).collect();
    Arc::new(Stops { texts: Mutex::new(texts), ..Stops::default() })
}

fn continued(log: &Log) -> Vec<Vec<String>> {
    log.find(|e| if let EventBody::TurnContinued { texts } = e { Some(texts.clone()) } else { None })
}

#[tokio::test]
async fn a_hook_makes_a_turn_go_on_and_the_model_is_told_why() {
    let log = Arc::new(Log::default());
    let script = Script::new([vec![says("Done."), DONE], vec![says("Tested."), DONE]]);
    let hooks = stops(&[&["run the tests", " "], &[" "]]);
    let mut input = input(Arc::clone(&script), &log);
    input.environment.hooks = Arc::clone(&hooks) as Arc<dyn Hooks>;
    let outcome = run_turn(input, CancellationToken::new()).await;
    assert_eq!((outcome.ended, outcome.final_text.as_str()), (Ended::Completed, "Tested."));
    assert_eq!(outcome.progress.continued, 1);
    let messages = [
        Message::User(text("hello")),
        Message::assistant("Done.", vec![]),
        Message::User(text("run the tests")),
        Message::assistant("Tested.", vec![]),
    ];
    assert_eq!(outcome.messages, messages);
    assert_eq!(script.asked.lock()[1].messages, messages[..3]);
    assert_eq!(continued(&log), [["run the tests"]]);
    #[rustfmt::skip]
    let want = [
        "loop.start", "stream.start", "stream.delta", "stream.complete", "turn.complete", "turn.continued",
        "stream.start", "stream.delta", "stream.complete", "turn.complete", "loop.complete",
    ];
    assert_eq!(log.words(), want);
    let told = hooks.told.lock();
    let said: Vec<_> = told.iter().map(|stop| (stop.ended, stop.text.as_str(), stop.rounds, stop.continued)).collect();
    assert_eq!(said, [(StopKind::Completed, "Done.", 1, 0), (StopKind::Completed, "Tested.", 2, 1)]);
}

#[tokio::test]
async fn no_hook_makes_a_turn_go_on_forever_or_past_its_limit_of_rounds() {
    for (rounds_max, want) in [(100, (9, 8)), (3, (3, 2))] {
        let log = Arc::new(Log::default());
        let script = Script::new([vec![says("Done."), DONE]]);
        let hooks = Arc::new(Stops { forever: true, ..Stops::default() });
        let mut input = TurnInput { iterations_max: rounds_max, ..input(Arc::clone(&script), &log) };
        input.environment.hooks = hooks;
        let outcome = run_turn(input, CancellationToken::new()).await;
        assert_eq!(outcome.ended, Ended::Completed, "the answer is there");
        assert_eq!((outcome.progress.rounds, continued(&log).len()), want);
    }
    // What was counted before a pause counts after it.
    let log = Arc::new(Log::default());
    let script = Script::new([vec![says("Done."), DONE]]);
    let progress = Progress { begun: true, rounds: 8, continued: 7, ..Progress::default() };
    let mut input = TurnInput { iterations_max: 100, progress, ..input(script, &log) };
    input.environment.hooks = Arc::new(Stops { forever: true, ..Stops::default() });
    run_turn(input, CancellationToken::new()).await;
    assert_eq!(continued(&log).len(), 1);
}

#[tokio::test]
async fn a_turn_that_fails_is_told_of_and_does_not_go_on() {
    let refused = vec![Err(ModelError::Refused("not that".into()))];
    let round = || vec![calls("x", "echo", json!({ "text": "e" })), TOOLS];
    let table = [
        (Script::new([refused]), 10, StopKind::Failed, Some("not that")),
        (Script::new([round()]), 1, StopKind::IterationLimit, None),
    ];
    for (script, iterations_max, ended, error) in table {
        let log = Arc::new(Log::default());
        let hooks = Arc::new(Stops { forever: true, ..Stops::default() });
        let mut input = TurnInput { iterations_max, ..input(script, &log) };
        input.environment.hooks = Arc::clone(&hooks) as Arc<dyn Hooks>;
        run_turn(input, CancellationToken::new()).await;
        let told = hooks.told.lock();
        let [stop] = &told[..] else { panic!("{told:?}") };
        assert_eq!((stop.ended, stop.error.as_deref()), (ended, error));
        assert_eq!(continued(&log).len(), 0);
    }
}

#[tokio::test]
async fn who_ends_a_turn_from_outside_is_not_held_up() {
    let log = Arc::new(Log::default());
    let script =
        Arc::new(Script { replies: Mutex::new([vec![says("half")]].into()), asked: Mutex::default(), hangs: true });
    let hooks = Arc::new(Stops { forever: true, ..Stops::default() });
    let mut input = input(Arc::clone(&script), &log);
    input.environment.hooks = Arc::clone(&hooks) as Arc<dyn Hooks>;
    let cancel = CancellationToken::new();
    let turn = tokio::spawn(run_turn(input, cancel.clone()));
    while script.asked.lock().is_empty() {
        tokio::task::yield_now().await;
    }
    cancel.cancel();
    assert_eq!(turn.await.unwrap().ended, Ended::Aborted);
    assert!(hooks.told.lock().is_empty());
}

/// Has something to say before a summary.
struct Compacts(Mutex<Vec<BeforeCompaction>>, CompactionSaid);

impl Hooks for Compacts {
    fn attends(&self, point: Point) -> bool {
        point == Point::CompactBefore
    }
    fn compact_before(&self, before: BeforeCompaction) -> BoxFuture<'_, CompactionSaid> {
        self.0.lock().push(before);
        Box::pin(std::future::ready(self.1.clone()))
    }
}

fn compacting(script: &Arc<Script>, log: &Arc<Log>, said: CompactionSaid) -> (TurnInput, Arc<Compacts>) {
    let hooks = Arc::new(Compacts(Mutex::default(), said));
    let messages = vec![
        Message::User(text(&"u".repeat(4_000))),
        Message::assistant("a".repeat(4_000), vec![]),
        Message::User(text("more")),
        Message::assistant("a".repeat(400), vec![]),
    ];
    let task = Some(TurnTask::Compact { focus: Some("the tests".into()) });
    let mut input = TurnInput { task, messages: messages.into(), ..input(Arc::clone(script), log) };
    input.environment.hooks = Arc::clone(&hooks) as Arc<dyn Hooks>;
    (input, hooks)
}

#[tokio::test]
async fn a_hook_gives_a_summary_something_to_look_at() {
    let log = Arc::new(Log::default());
    let script = Script::new([vec![says("## Goal\nall\n\n## State\nhalf"), DONE]]);
    let (input, hooks) = compacting(&script, &log, CompactionSaid::Continue { focus: Some(" the docs ".into()) });
    assert_eq!(run_turn(input, CancellationToken::new()).await.ended, Ended::Completed);
    let asked = format!("{:?}", script.asked.lock()[0].messages);
    assert!(asked.contains("the docs") && !asked.contains("the tests"), "{asked}");
    let told = hooks.0.lock();
    assert_eq!((told[0].focus.as_deref(), told[0].trigger), (Some("the tests"), CompactionTrigger::Manual));
    assert_eq!(told[0].message_count, 4);
}

#[tokio::test]
async fn a_hook_holds_a_summary_back_that_is_not_needed() {
    let log = Arc::new(Log::default());
    let script = Script::new([vec![says("never"), DONE]]);
    let (input, _) = compacting(&script, &log, CompactionSaid::Blocked { reason: "not yet".into() });
    let outcome = run_turn(input, CancellationToken::new()).await;
    let Ended::Failed(error) = outcome.ended else { panic!("{:?}", outcome.ended) };
    assert_eq!(error.message, "a hook holds it back: not yet");
    assert_eq!(error.details, Some(json!({ "kind": "not_compacted" })));
    assert_eq!((outcome.messages.len(), script.asked.lock().len(), log.words().len()), (4, 0, 0), "nothing was done");
}

#[tokio::test]
async fn a_summary_without_which_the_turn_cannot_go_on_is_made_all_the_same() {
    let log = Arc::new(Log::default());
    let too_long = vec![Err(ModelError::Overflow("too long".into()))];
    let script = Script::new([too_long, vec![says("## Goal\nall\n\n## State\nhalf"), DONE], vec![says("ok"), DONE]]);
    let (input, hooks) = compacting(&script, &log, CompactionSaid::Blocked { reason: "not yet".into() });
    let mut messages = input.messages.to_vec();
    messages.push(Message::User(text("now")));
    let outcome =
        run_turn(TurnInput { task: None, messages: messages.into(), ..input }, CancellationToken::new()).await;
    assert_eq!((outcome.ended, outcome.final_text.as_str()), (Ended::Completed, "ok"));
    assert_eq!(hooks.0.lock()[0].trigger, CompactionTrigger::Overflow);
}
