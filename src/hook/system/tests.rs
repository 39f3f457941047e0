//! Handlers by themselves and in a row.

use serde_json::Map;

use super::*;
use crate::hook::{HookRow, News, NoHooks, StartSource, StopKind, TurnNews, Whose};
use crate::protocol::{CompactionTrigger, Part, PromptMode, TurnStatus};

fn request() -> ToolCallRequest {
    ToolCallRequest { id: "c".into(), name: "t".into(), arguments: Map::new() }
}

fn result(output: &str) -> ToolCallResult {
    ToolCallResult {
        id: "c".into(),
        name: "t".into(),
        output: output.into(),
        is_error: false,
        duration_ms: None,
        parts: Vec::new(),
        details: None,
    }
}

fn now<T: Send + 'static>(answer: Result<Option<T>, String>) -> Answer<T> {
    Box::pin(std::future::ready(answer))
}

/// A handler before a tool: renames it, blocks it, says nothing, fails, or panics.
fn before(word: &'static str) -> Handler {
    Handler::BeforeTool(Arc::new(move |request| match word {
        "nothing" => now(Ok(None)),
        "block" => now(Ok(Some(Before::Blocked { reason: "no".into() }))),
        "fail" => now(Err("broken".into())),
        "panic" => Box::pin(async { panic!("oh") }),
        _ => {
            let name = format!("{}{word}", request.name);
            now(Ok(Some(Before::Continue(ToolCallRequest { name, ..request }))))
        }
    }))
}

#[tokio::test]
async fn before_a_tool() {
    #[rustfmt::skip]
    let table: &[(&[&str], Result<&str, &str>)] = &[
        (&[], Ok("t")),
        (&["a", "nothing", "b"], Ok("tab")),
        (&["a", "block", "fail"], Err("no")),
        (&["fail", "block"], Err("a hook failed: broken")),
        (&["a", "panic", "b"], Err("a hook failed: the hook panicked")),
    ];
    for (words, want) in table {
        let hooks = HookSystem::default();
        for word in *words {
            hooks.register(before(word));
        }
        let want = match want {
            Ok(name) => Before::Continue(ToolCallRequest { name: (*name).into(), ..request() }),
            Err(reason) => Before::Blocked { reason: (*reason).into() },
        };
        assert_eq!(hooks.before_tool(request()).await, want, "{words:?}");
    }
}

#[tokio::test]
async fn chains_keep_the_value_of_before_a_failure() {
    let hooks = HookSystem::default();
    for word in ["a", "", "fail", "b"] {
        let changed = move |text: String| match word {
            "" => now(Ok(None)),
            "fail" => now(Err("broken".into())),
            _ => now(Ok(Some(text + word))),
        };
        hooks.register(Handler::TransformSystem(Arc::new(changed)));
        hooks.register(Handler::Compacting(Arc::new(move |messages: Vec<Message>, summary| {
            changed(format!("{summary}{}", messages.len()))
        })));
        hooks.register(Handler::AfterTool(Arc::new(move |_, r: ToolCallResult| match word {
            "" => now(Ok(None)),
            "fail" => now(Err("broken".into())),
            _ => now(Ok(Some(result(&(r.output + word))))),
        })));
        hooks.register(Handler::ValidateResult(Arc::new(move |_, _| match word {
            "" => now(Ok(None)),
            "fail" => now(Err("broken".into())),
            _ => now(Ok(Some(vec![word.to_owned(), "x".into()]))),
        })));
        hooks.register(Handler::TransformMessages(Arc::new(move |mut messages: Vec<Message>| match word {
            "" => now(Ok(None)),
            "fail" => now(Err("broken".into())),
            _ => {
                messages.push(Message::User(vec![Part::Text { text: word.into() }]));
                now(Ok(Some(messages)))
            }
        })));
    }
    assert_eq!(hooks.transform_system("s".into()).await, "sab");
    assert_eq!(hooks.compacting(&[], "s".into()).await, "s0a0b");
    assert_eq!(hooks.after_tool(&request(), result("o")).await.output, "oab");
    assert_eq!(hooks.validate_result(&request(), &result("o")).await, ["a", "x", "b", "x"]);
    assert_eq!(hooks.transform_messages(Vec::new()).await.len(), 2);
}

#[tokio::test]
async fn what_is_unregistered_runs_no_more() {
    let hooks = HookSystem::default();
    let first = hooks.register(before("a"));
    hooks.register(before("b"));
    hooks.unregister(first);
    hooks.unregister(first);
    let want = Before::Continue(ToolCallRequest { name: "tb".into(), ..request() });
    assert_eq!(hooks.before_tool(request()).await, want);
}

fn whose() -> Whose {
    Whose { session_id: "s".parse().unwrap(), root_session_id: None, turn_id: None, working_directory: "/w".into() }
}

fn submitted(prompt: &str) -> Submitted {
    let image = Part::Image { media_type: "image/png".into(), data: "AA==".into() };
    let parts = Some(vec![Part::Text { text: prompt.into() }, image]);
    Submitted { whose: whose(), prompt: prompt.into(), parts, mode: PromptMode::Queue }
}

fn stopping() -> TurnStopping {
    TurnStopping { whose: None, ended: StopKind::Completed, text: "done".into(), rounds: 1, continued: 0, error: None }
}

fn before_compaction(focus: Option<&str>) -> BeforeCompaction {
    BeforeCompaction {
        whose: Some(whose()),
        trigger: CompactionTrigger::Manual,
        focus: focus.map(str::to_owned),
        message_count: 1,
        estimated_chars: 2,
    }
}

/// A hook at a prompt, by a word.
fn at_prompt(word: &'static str) -> Handler {
    Handler::PromptSubmit(Arc::new(move |submitted: Submitted| match word {
        "nothing" => now(Ok(None)),
        "block" => now(Ok(Some(Submission::Blocked { reason: "no".into() }))),
        "fail" => now(Err("broken".into())),
        _ => {
            assert_eq!(submitted.parts.map(|parts| parts.len()), Some(2), "its image stays");
            let (prompt, context) = (Some(submitted.prompt + word), vec![word.to_owned()]);
            now(Ok(Some(Submission::Continue { prompt, context })))
        }
    }))
}

#[tokio::test]
async fn prompts_are_chained_and_the_first_block_or_failure_ends_it() {
    #[rustfmt::skip]
    let table: &[(&[&str], Result<(Option<&str>, &[&str]), &str>)] = &[
        (&[], Ok((None, &[]))),
        (&["nothing"], Ok((None, &[]))),
        (&["a", "nothing", "b"], Ok((Some("pab"), &["a", "b"]))),
        (&["a", "block", "fail"], Err("no")),
        (&["a", "fail", "b"], Err("a hook failed: broken")),
    ];
    for (words, want) in table {
        let want = match want {
            Ok((prompt, context)) => Submission::Continue {
                prompt: prompt.map(str::to_owned),
                context: context.iter().map(|text| (*text).to_owned()).collect(),
            },
            Err(reason) => Submission::Blocked { reason: (*reason).into() },
        };
        let hooks = HookSystem::default();
        words.iter().for_each(|word| {
            hooks.register(at_prompt(word));
        });
        assert_eq!(hooks.prompt_submit(submitted("p")).await, want, "{words:?}");
        // Each by itself and in a row is the same.
        let each = words.iter().map(|word| {
            let hooks = HookSystem::default();
            hooks.register(at_prompt(word));
            Arc::new(hooks) as Arc<dyn Hooks>
        });
        assert_eq!(HookRow::new(each.collect()).prompt_submit(submitted("p")).await, want, "{words:?} in a row");
    }
}

/// Handlers at all points that add a word, and one that fails at each of them.
fn words(word: &'static str) -> HookSystem {
    let hooks = HookSystem::default();
    hooks.register(Handler::SessionStart(Arc::new(move |_| now(Ok(Some(vec![word.to_owned()]))))));
    hooks.register(Handler::SessionStart(Arc::new(|_| now(Err("broken".into())))));
    hooks.register(Handler::TurnStop(Arc::new(move |stop: TurnStopping| {
        now(Ok(Some(vec![format!("{word} {} {}", stop.text, stop.continued)])))
    })));
    hooks.register(Handler::TurnStop(Arc::new(|_| Box::pin(async { panic!("oh") }))));
    hooks.register(Handler::CompactBefore(Arc::new(move |before: BeforeCompaction| {
        let focus = Some(before.focus.unwrap_or_default() + word);
        now(Ok(Some(CompactionSaid::Continue { focus })))
    })));
    hooks.register(Handler::CompactBefore(Arc::new(|_| now(Err("broken".into())))));
    hooks
}

#[tokio::test]
async fn around_sessions_and_turns_a_failure_leaves_out_one_answer() {
    let row = HookRow::new(vec![Arc::new(words("a")), Arc::new(NoHooks), Arc::new(words("b"))]);
    let start = SessionStart { whose: whose(), source: StartSource::New };
    assert_eq!(row.session_start(start).await, ["a", "b"]);
    assert_eq!(row.turn_stop(stopping()).await, ["a done 0", "b done 0"]);
    let said = row.compact_before(before_compaction(Some("f"))).await;
    assert_eq!(said, CompactionSaid::Continue { focus: Some("fab".into()) });
    let silent = HookSystem::default();
    assert_eq!(silent.compact_before(before_compaction(Some("f"))).await, CompactionSaid::Continue { focus: None });
    let blocks = HookSystem::default();
    blocks.register(Handler::CompactBefore(Arc::new(|_| {
        now(Ok(Some(CompactionSaid::Blocked { reason: "later".into() })))
    })));
    let row = HookRow::new(vec![Arc::new(blocks), Arc::new(words("b"))]);
    assert_eq!(row.compact_before(before_compaction(None)).await, CompactionSaid::Blocked { reason: "later".into() });
}

#[tokio::test]
async fn who_is_at_a_point_is_known_and_nobody_is_at_the_others() {
    let hooks = HookSystem::default();
    let heard = Arc::new(parking_lot::Mutex::new(0));
    let ears = Arc::clone(&heard);
    let registration = hooks.register(Handler::Notification(Arc::new(move |_| {
        *ears.lock() += 1;
        now(Ok(None))
    })));
    let points = [
        Point::SessionStart,
        Point::SessionEnd,
        Point::PromptSubmit,
        Point::TurnStop,
        Point::CompactBefore,
        Point::Notification,
    ];
    let row = HookRow::new(vec![Arc::new(NoHooks), Arc::new(hooks.clone())]);
    for point in points {
        assert_eq!(
            (hooks.attends(point), row.attends(point)),
            (point == Point::Notification, point == Point::Notification)
        );
    }
    let ended = TurnNews { status: TurnStatus::Completed, stop_reason: None, result: Some("r".into()), error: None };
    let news = Notification { whose: whose(), news: News::TurnEnded(ended) };
    row.notified(news.clone()).await;
    assert_eq!(*heard.lock(), 1);
    let shown = serde_json::json!({ "sessionId": "s", "workingDirectory": "/w", "kind": "turn_ended", "status": "completed", "result": "r" });
    assert_eq!(serde_json::to_value(&news).unwrap(), shown);
    hooks.unregister(registration);
    assert!(!row.attends(Point::Notification));
}

#[tokio::test(start_paused = true)]
async fn who_works_too_long_has_failed() {
    let hooks = HookSystem::default();
    let never = Handler::BeforeTool(Arc::new(|_| Box::pin(std::future::pending())));
    hooks.register_within(never, Duration::from_millis(50));
    let Before::Blocked { reason } = hooks.before_tool(request()).await else { panic!() };
    assert_eq!(reason, "a hook failed: the hook did not answer within 50 ms");
    let never = Handler::TransformSystem(Arc::new(|_| Box::pin(std::future::pending())));
    hooks.register(never);
    assert_eq!(hooks.transform_system("as it was".into()).await, "as it was");
}
