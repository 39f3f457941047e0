//! Commands as they are run: what they are given, what becomes of what they say, and how they end.

use std::path::Path;
use std::time::Duration;

use super::*;
use crate::hook::{EndReason, StartSource, StopKind};
use crate::protocol::{CompactionTrigger, Part, PromptMode};

fn hooks(entries: &[(&str, Option<&str>, &str)], directory: &Path) -> CommandHooks {
    let command = |(event, matcher, command): &(&str, Option<&str>, &str)| HookCommand {
        event: (*event).to_owned(),
        matcher: matcher.map(str::to_owned),
        command: (*command).to_owned(),
        timeout_ms: None,
    };
    let hooks = CommandHooks::new(entries.iter().map(command).collect(), directory.to_owned());
    CommandHooks { whose: Some(whose(directory)), ..hooks }
}

fn whose(directory: &Path) -> Whose {
    Whose {
        session_id: "ses_1".parse().unwrap(),
        root_session_id: None,
        turn_id: Some("turn_1".parse().unwrap()),
        working_directory: directory.to_owned(),
    }
}

fn request(name: &str) -> ToolCallRequest {
    let arguments = Map::from_iter([("path".to_owned(), Value::from("a \"b\"\n"))]);
    ToolCallRequest { id: "c".into(), name: name.into(), arguments }
}

fn result(output: &str) -> ToolCallResult {
    ToolCallResult {
        id: "c".into(),
        name: "fs_write".into(),
        output: output.into(),
        is_error: false,
        duration_ms: None,
        parts: Vec::new(),
        details: None,
    }
}

fn submitted(directory: &Path, prompt: &str) -> Submitted {
    Submitted { whose: whose(directory), prompt: prompt.into(), parts: None, mode: PromptMode::Queue }
}

#[tokio::test]
async fn a_command_is_given_the_event_and_starts_where_the_session_works() {
    let room = tempfile::tempdir().unwrap();
    let place = room.path().canonicalize().unwrap();
    let hooks = hooks(&[("tool.execute.before", None, "cat > given; pwd > where; env > environment")], &place);
    assert_eq!(hooks.before_tool(request("bash")).await, Before::Continue(request("bash")));
    let given: Value = serde_json::from_slice(&std::fs::read(place.join("given")).unwrap()).unwrap();
    let want = json!({
        "event": "tool.execute.before", "sessionId": "ses_1", "turnId": "turn_1", "workingDirectory": place,
        "request": { "id": "c", "name": "bash", "arguments": { "path": "a \"b\"\n" } },
    });
    assert_eq!(given, want);
    assert_eq!(std::fs::read_to_string(place.join("where")).unwrap().trim(), place.display().to_string());
    let environment = std::fs::read_to_string(place.join("environment")).unwrap();
    assert!(environment.contains("PATH=") && environment.contains("NO_COLOR=1"), "{environment}");
}

#[tokio::test]
async fn before_a_tool_the_first_block_or_failure_ends_it() {
    let room = tempfile::tempdir().unwrap();
    let place = room.path();
    let change = "echo '{\"arguments\": {\"path\": \"b\"}}'";
    #[rustfmt::skip]
    let table: &[(&[(&str, Option<&str>, &str)], Result<&str, &str>)] = &[
        (&[("tool.execute.before", None, "echo fine; exit 0")], Ok("a \"b\"\n")),
        (&[("tool.execute.before", None, change)], Ok("b")),
        (&[("tool.execute.before", Some("bash"), "exit 2"), ("turn.stop", None, "exit 2")], Ok("a \"b\"\n")),
        (&[("tool.execute.before", Some("bash|fs_*"), "echo not there >&2; exit 2"), ("tool.execute.before", None, "touch never")], Err("not there")),
        (&[("tool.execute.before", None, "echo '{\"blocked\": true, \"reason\": \"no\"}'")], Err("no")),
        (&[("tool.execute.before", None, change), ("tool.execute.before", None, "echo oh >&2; exit 1")], Err("hooks[1] failed: it ended with exit code 1: oh")),
        (&[("tool.execute.before", None, "kill -9 $$")], Err("hooks[0] failed: it was ended by signal 9")),
    ];
    for (entries, want) in table {
        let said = hooks(entries, place).before_tool(request("fs_write")).await;
        match (said, want) {
            (Before::Continue(request), Ok(path)) => assert_eq!(request.arguments["path"], *path, "{entries:?}"),
            (Before::Blocked { reason }, Err(why)) => assert_eq!(reason, *why, "{entries:?}"),
            (said, want) => panic!("{entries:?}: {said:?}, not {want:?}"),
        }
    }
    assert!(!place.join("never").exists(), "what stands behind a block is not run");
    let gone = hooks(&[("tool.execute.before", None, "true")], &place.join("gone"));
    let Before::Blocked { reason } = gone.before_tool(request("x")).await else { panic!() };
    assert!(reason.starts_with("hooks[0] failed: it cannot be started"), "{reason}");
}

#[tokio::test]
async fn after_a_tool_results_are_changed_and_checked() {
    let room = tempfile::tempdir().unwrap();
    let rename = "sed 's/.*\"output\":\"\\([a-z]*\\)\".*/{\"output\": \"<\\1>\"}/'";
    let entries = [
        ("tool.execute.after", Some("fs_write"), rename),
        ("tool.execute.after", Some("bash"), "exit 2"),
        ("tool.execute.after", None, "echo formatted; exit 0"),
        ("tool.execute.after", None, "exit 1"),
    ];
    let changed = hooks(&entries, room.path()).after_tool(&request("fs_write"), result("out")).await;
    assert_eq!((changed.output.as_str(), changed.is_error), ("<out>", false));
    let objects = hooks(&[("tool.execute.after", None, "echo bad >&2; exit 2")], room.path());
    let changed = objects.after_tool(&request("fs_write"), result("out")).await;
    assert_eq!((changed.output.as_str(), changed.is_error), ("out\n\n[A hook objects] bad", true));

    let entries = [
        ("tool.result.validate", None, "echo 'line 1: bad' >&2; exit 2"),
        ("tool.result.validate", None, "echo 'line 2: odd'"),
        ("tool.result.validate", None, "exit 1"),
        ("tool.result.validate", None, "echo '{\"findings\": [\"three\", \"four\"]}'"),
        ("tool.result.validate", Some("bash"), "echo never"),
        ("tool.result.validate", None, "true"),
    ];
    let findings = hooks(&entries, room.path()).validate_result(&request("fs_write"), &result("out")).await;
    assert_eq!(findings, ["line 1: bad", "line 2: odd", "three", "four"]);
}

#[tokio::test]
async fn prompts_are_changed_added_to_and_refused() {
    let room = tempfile::tempdir().unwrap();
    let place = room.path();
    let entries = [
        ("prompt.submit", None, "echo '{\"prompt\": \"better\", \"context\": \"one\"}'"),
        ("prompt.submit", None, "grep -o '\"prompt\":\"[a-z]*\"'"),
        ("prompt.submit", None, "echo '[\"three\", \"four\"]'"),
    ];
    let said = hooks(&entries, place).prompt_submit(submitted(place, "raw")).await;
    let context = ["one", "\"prompt\":\"better\"", "three", "four"].map(str::to_owned).to_vec();
    assert_eq!(said, Submission::Continue { prompt: Some("better".into()), context });
    for (command, why) in [("echo no >&2; exit 2", "no"), ("exit 3", "hooks[0] failed: it ended with exit code 3")] {
        let said = hooks(&[("prompt.submit", None, command)], place).prompt_submit(submitted(place, "raw")).await;
        assert_eq!(said, Submission::Blocked { reason: why.into() });
    }
}

#[tokio::test]
async fn texts_summaries_and_messages() {
    let room = tempfile::tempdir().unwrap();
    let place = room.path();
    let entries = [
        ("prompt.system.transform", None, "echo more"),
        ("prompt.system.transform", None, "exit 1"),
        ("prompt.system.transform", None, "sed 's/.*\"prompt\":\"\\([a-z]*\\).*/{\"prompt\": \"\\1!\"}/'"),
        ("session.compacting", None, "echo 'and this'"),
        ("prompt.messages.transform", None, "echo '{\"messages\": [{\"role\": \"user\", \"content\": \"only\"}]}'"),
        ("prompt.messages.transform", None, "echo '{\"messages\": 7}'"),
    ];
    let hooks = hooks(&entries, place);
    assert_eq!(hooks.transform_system("be".into()).await, "be!");
    assert_eq!(hooks.compacting(&[], "sum".into()).await, "sum\n\nand this");
    let only = Message::User(vec![Part::Text { text: "only".into() }]);
    assert_eq!(hooks.transform_messages(Vec::new()).await, [only]);
    assert!(hooks.hears_messages() && !hooks.hears(CallPoint::Before) && !hooks.attends(Point::TurnStop));
}

#[tokio::test]
async fn around_sessions_and_turns() {
    let room = tempfile::tempdir().unwrap();
    let place = room.path();
    let entries = [
        ("session.start", None, "grep -o '\"source\":\"[a-z]*\"'"),
        ("session.end", None, "grep -o '\"reason\":\"[a-z]*\"' > ended"),
        ("turn.stop", None, "echo chatter"),
        ("turn.stop", None, "echo 'run the tests' >&2; exit 2"),
        ("session.compact.before", None, "echo '{\"focus\": \"the docs\"}'"),
        ("session.compact.before", None, "exit 9"),
    ];
    let all = hooks(&entries, place);
    let start = SessionStart { whose: whose(place), source: StartSource::Resumed };
    assert_eq!(all.session_start(start).await, ["\"source\":\"resumed\""]);
    all.session_end(SessionEnd { whose: whose(place), reason: EndReason::Idle }).await;
    assert_eq!(std::fs::read_to_string(place.join("ended")).unwrap().trim(), "\"reason\":\"idle\"");
    let stop = TurnStopping {
        whose: Some(whose(place)),
        ended: StopKind::Completed,
        text: "t".into(),
        rounds: 1,
        continued: 0,
        error: None,
    };
    assert_eq!(all.turn_stop(stop).await, ["run the tests"]);
    let before = BeforeCompaction {
        whose: None,
        trigger: CompactionTrigger::Manual,
        focus: None,
        message_count: 1,
        estimated_chars: 1,
    };
    let said = all.compact_before(before.clone()).await;
    assert_eq!(said, CompactionSaid::Continue { focus: Some("the docs".into()) });
    let blocks = hooks(&[("session.compact.before", None, "echo later >&2; exit 2")], place);
    assert_eq!(blocks.compact_before(before).await, CompactionSaid::Blocked { reason: "later".into() });
}

#[tokio::test]
async fn what_takes_too_long_is_ended_with_all_that_it_started() {
    let room = tempfile::tempdir().unwrap();
    let place = room.path();
    let mut slow = hooks(&[("tool.execute.before", None, "sleep 1000 & echo $! > child; wait")], place);
    slow.commands = slow.commands.iter().map(|c| HookCommand { timeout_ms: Some(300), ..c.clone() }).collect();
    let Before::Blocked { reason } = slow.before_tool(request("x")).await else { panic!() };
    assert_eq!(reason, "hooks[0] failed: it did not end in its time");
    let child = std::fs::read_to_string(place.join("child")).unwrap();
    let begin = std::time::Instant::now();
    while Path::new("/proc").join(child.trim()).join("cmdline").metadata().is_ok_and(|_| runs(child.trim()))
        && begin.elapsed() < Duration::from_secs(8)
    {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!runs(child.trim()), "its child is gone too");
}

/// Whether the process still sleeps: one that is only waited for has no command line.
fn runs(process: &str) -> bool {
    std::fs::read(format!("/proc/{process}/cmdline")).is_ok_and(|line| line.starts_with(b"sleep"))
}

#[tokio::test]
async fn one_that_does_not_read_or_writes_without_end_is_no_trouble() {
    let room = tempfile::tempdir().unwrap();
    let place = room.path();
    let long = ToolCallRequest {
        arguments: Map::from_iter([("text".to_owned(), Value::from("x".repeat(1_000_000)))]),
        ..request("x")
    };
    let deaf = hooks(&[("tool.execute.before", None, "true")], place);
    assert!(matches!(deaf.before_tool(long.clone()).await, Before::Continue(_)));
    let loud =
        hooks(&[("tool.result.validate", None, "head -c 5000000 /dev/zero | tr '\\0' x; cat > /dev/null")], place);
    let findings = loud.validate_result(&long, &result("out")).await;
    assert!(findings[0].len() < 1_001_000 && findings[0].contains("[truncated: 5000000 bytes total"));
    let leaves = hooks(&[("tool.result.validate", None, "sleep 5 & echo done")], place);
    assert_eq!(
        leaves.validate_result(&long, &result("out")).await,
        ["done"],
        "what it leaves does not hold the call up"
    );
}
