//! The script against a project in memory whose tests really depend on its source.

use std::time::Duration;

use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::Demo;
use super::repair::changes;
use super::report::{Report, read};
use crate::model::{Model, ModelError, ModelEvent, ModelRequest, StopReason};
use crate::protocol::{Message, Part, ToolCallRequest, ToolDefinition};

const PROMPT: &str = "A test of this repository fails. Find out why, correct the code, and commit the change.";

const SOURCE: &str = "/** Counts. */
export function itemCount(lines) {
  let count = 0
  return count
}

/** What everything costs. */
export function subtotal(lines) {
  let cents = 0
  for (const line of lines) {
    cents += line.priceCents + line.quantity // + nothing
  }
  return cents
}
";

const TEST_FILE: &str = "import test from 'node:test'

test('subtotal takes each price as often as its quantity says', () => {
  assert.equal(subtotal(lines), 985)
})
";

/// A project: its tests pass when `right` stands in its source.
struct Project {
    source: String,
    right: &'static str,
    got: i64,
    denied: Option<&'static str>,
    people: bool,
    ran: Vec<String>,
}

impl Project {
    fn new(right: &'static str, got: i64) -> Self {
        Self { source: SOURCE.into(), right, got, denied: None, people: false, ran: Vec::new() }
    }

    fn test_run(&self) -> String {
        let passed = self.source.contains(self.right);
        let name = "subtotal takes each price as often as its quantity says";
        let (pass, fail) = if passed { (4, 0) } else { (3, 1) };
        let got = self.got;
        let body = match (self.people, passed) {
            (false, true) => format!("ok 2 - {name}\n"),
            (false, false) => format!(
                "not ok 2 - {name}\n  ---\n  location: '/tmp/x/test/cart.test.js:3:1'\n  error: |-\n    Expected values to be \
                 strictly equal:\n    \n    {got} !== 985\n  ...\n"
            ),
            (true, true) => format!("✔ {name} (1.2ms)\n"),
            (true, false) => {
                format!("✖ {name} (1.4ms)\n✖ failing tests:\n\ntest at test/cart.test.js:3:1\n  {got} !== 985\n")
            }
        };
        let sign = if self.people { "ℹ" } else { "#" };
        let exit = if passed { "" } else { "[exit code 1]\n" };
        format!("{exit}{body}{sign} tests 4\n{sign} pass {pass}\n{sign} fail {fail}\n")
    }

    /// A tool's result, and whether it failed.
    fn run(&mut self, call: &ToolCallRequest) -> (String, bool) {
        let argument = |name: &str| call.arguments.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        self.ran.push(format!("{} {}{}", call.name, argument("command"), argument("message")).trim().to_owned());
        if self.denied == Some(call.name.as_str()) {
            return (format!("Permission denied for tool: \"{}\"", call.name), true);
        }
        let numbered = |text: &str| {
            text.lines().enumerate().map(|(at, line)| format!("{:>6}\t{line}", at + 1)).collect::<Vec<_>>().join("\n")
        };
        let output = match (call.name.as_str(), argument("path").as_str()) {
            ("fs_list", _) => "f package.json\nd src\nf src/cart.js\nd test\nf test/cart.test.js".into(),
            ("fs_read", "package.json") => numbered("{\n  \"scripts\": { \"test\": \"node --test\" }\n}"),
            ("fs_read", "test/cart.test.js") => numbered(TEST_FILE),
            ("fs_read", "src/cart.js") => numbered(&self.source),
            ("fs_grep", _) => {
                "src/cart.js:8: export function subtotal(lines) {\ntest/cart.test.js:1: const lines = []".into()
            }
            ("fs_edit", path) => {
                let (old, new) = (argument("old_string"), argument("new_string"));
                assert_eq!((path, self.source.matches(&old).count()), ("src/cart.js", 1), "{old}");
                self.source = self.source.replacen(&old, &new, 1);
                format!("Edited {path} using strategy: exact")
            }
            ("bash", _) if argument("command").starts_with("git add") => String::new(),
            ("bash", _) => self.test_run(),
            ("git_diff", _) => "-a\n+b".into(),
            ("git_commit", _) => format!("[main 1a2b3c4] {}\n 1 file changed", argument("message")),
            other => panic!("no such tool or file: {other:?}"),
        };
        (output, false)
    }
}

fn tools(names: &[&str]) -> Vec<ToolDefinition> {
    let tool = |name: &&str| serde_json::from_value(json!({ "name": name, "description": "" })).unwrap();
    names.iter().map(tool).collect()
}

fn all_tools() -> Vec<ToolDefinition> {
    tools(&["fs_list", "fs_read", "fs_grep", "fs_edit", "bash", "git_diff", "git_commit"])
}

fn user(text: &str) -> Message {
    Message::User(vec![Part::Text { text: text.into() }])
}

async fn reply(request: ModelRequest) -> (String, Vec<ToolCallRequest>) {
    let (mut text, mut calls, mut stop) = (String::new(), Vec::new(), None);
    let mut stream = Demo::new(Duration::ZERO).stream(request, CancellationToken::new());
    while let Some(event) = stream.next().await {
        match event.unwrap() {
            ModelEvent::Text(piece) => text.push_str(&piece),
            ModelEvent::Call(call) => calls.push(call),
            ModelEvent::Finished(reason) => stop = Some(reason),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(stop, Some(if calls.is_empty() { StopReason::EndTurn } else { StopReason::ToolUse }));
    (text, calls)
}

/// Runs a turn to its end; its messages, and the texts of all rounds.
async fn turn(project: &mut Project, mut messages: Vec<Message>) -> (Vec<Message>, Vec<String>) {
    let mut texts = Vec::new();
    for _ in 0..100 {
        let request =
            ModelRequest { messages: messages.clone().into(), tools: all_tools().into(), ..ModelRequest::default() };
        let (text, calls) = reply(request).await;
        texts.push(text.clone());
        messages.push(Message::assistant(text, calls.clone()));
        if calls.is_empty() {
            return (messages, texts);
        }
        for call in calls {
            let (output, is_error) = project.run(&call);
            messages.push(Message::ToolResult {
                call_id: call.id,
                name: call.name,
                output,
                is_error,
                parts: Vec::new(),
            });
        }
    }
    panic!("no end: {texts:?}");
}

#[tokio::test]
async fn the_first_change_is_right() {
    for people in [false, true] {
        let mut project = Project { people, ..Project::new("line.priceCents * line.quantity", 440) };
        let (_, texts) = turn(&mut project, vec![user(PROMPT)]).await;
        assert!(texts[0].contains("scripted model") && texts[0].contains("no language model"), "{}", texts[0]);
        #[rustfmt::skip]
        let want = [
            "fs_list", "fs_read", "bash node --test", "fs_read", "fs_grep", "fs_read", "fs_edit", "bash node --test",
            "git_diff", "bash git add -- 'src/cart.js'", "git_commit Fix subtotal: use * instead of +",
        ];
        assert_eq!(project.ran, want);
        let last = texts.last().unwrap();
        assert!(last.starts_with("Done.") && last.contains("[main 1a2b3c4]") && last.contains("All 4 tests"), "{last}");
        // Nothing but the operator has changed.
        assert_eq!(project.source, SOURCE.replace("priceCents + line", "priceCents * line"));
    }
}

#[tokio::test]
async fn the_second_change_is_right_and_the_first_is_put_back() {
    // The result is too large this time: taking away is tried first, and is wrong.
    let mut project = Project::new("line.priceCents * line.quantity", 1200);
    let (_, texts) = turn(&mut project, vec![user(PROMPT)]).await;
    let edits = project.ran.iter().filter(|call| *call == "fs_edit").count();
    let runs = project.ran.iter().filter(|call| *call == "bash node --test").count();
    assert_eq!((edits, runs), (3, 3));
    assert!(texts.iter().any(|text| text.starts_with("No: `subtotal takes")), "{texts:?}");
    assert!(texts.last().unwrap().starts_with("Done."));
    assert_eq!(project.source, SOURCE.replace("priceCents + line", "priceCents * line"));
}

#[tokio::test]
async fn it_gives_up_honestly_and_leaves_the_files_as_they_were() {
    let mut project = Project::new("nothing that it knows", 440);
    let (_, texts) = turn(&mut project, vec![user(PROMPT)]).await;
    let last = texts.last().unwrap();
    assert!(
        last.starts_with("I could not make it pass") && last.contains("still fails") && last.contains("# fail 1"),
        "{last}"
    );
    assert!(!project.ran.iter().any(|call| call.starts_with("git_commit")));
    assert_eq!(project.source, SOURCE);
}

#[tokio::test]
async fn nothing_to_repair() {
    let mut project = Project::new("export", 0);
    let (_, texts) = turn(&mut project, vec![user(PROMPT)]).await;
    assert_eq!(texts.last().unwrap(), "All 4 tests pass already. There is nothing to repair.");
    assert_eq!(project.ran, ["fs_list", "fs_read", "bash node --test"]);
}

#[tokio::test]
async fn a_tool_that_is_denied_ends_the_job() {
    for tool in ["fs_list", "bash", "fs_edit", "git_commit"] {
        let mut project = Project { denied: Some(tool), ..Project::new("line.priceCents * line.quantity", 440) };
        let (_, texts) = turn(&mut project, vec![user(PROMPT)]).await;
        let last = texts.last().unwrap();
        assert!(last.contains(&format!("Permission denied for tool: \"{tool}\"")), "{last}");
        assert_eq!(last.contains("still in the files"), tool == "git_commit", "{last}");
    }
}

#[tokio::test]
async fn anything_else_is_answered_with_what_it_is() {
    let mut project = Project::new("export", 0);
    let (messages, texts) = turn(&mut project, vec![user("Write me a poem.")]).await;
    assert!(texts[0].contains("scripted model") && texts[0].contains("OPENAI_API_KEY"), "{}", texts[0]);
    assert!(texts[1].starts_with("There are 5 entries"), "{}", texts[1]);
    // A second turn begins anew, a job after it too.
    let (messages, texts) = turn(&mut project, [messages, vec![user("And now?")]].concat()).await;
    assert!(texts[0].contains("scripted model"));
    let (_, texts) = turn(&mut project, [messages, vec![user(PROMPT)]].concat()).await;
    assert!(texts.last().unwrap().contains("nothing to repair"), "{texts:?}");
    let request = ModelRequest {
        messages: vec![user(PROMPT)].into(),
        tools: tools(&["fs_list"]).into(),
        ..ModelRequest::default()
    };
    let (text, calls) = reply(request).await;
    assert!(calls.is_empty() && text.contains("fs_read, fs_grep"), "{text}");
}

#[tokio::test]
async fn a_directory_with_little_in_it() {
    for (output, want) in [("Directory is empty.", "It is empty."), ("d src", "There is one entry in it: src.")] {
        let request =
            ModelRequest { messages: vec![user("hi")].into(), tools: all_tools().into(), ..ModelRequest::default() };
        let (text, calls) = reply(request.clone()).await;
        let (call_id, name) = (calls[0].id.clone(), calls[0].name.clone());
        let result = Message::ToolResult { call_id, name, output: output.into(), is_error: false, parts: Vec::new() };
        let messages = vec![user("hi"), Message::assistant(text, calls), result];
        let (text, _) = reply(ModelRequest { messages: messages.into(), ..request }).await;
        assert!(text.starts_with(want), "{text}");
    }
}

#[tokio::test]
async fn a_word_from_the_side_does_not_end_the_job() {
    let mut project = Project::new("line.priceCents * line.quantity", 440);
    let request =
        ModelRequest { messages: vec![user(PROMPT)].into(), tools: all_tools().into(), ..ModelRequest::default() };
    let (text, calls) = reply(request).await;
    let (output, is_error) = project.run(&calls[0]);
    let result = Message::ToolResult {
        call_id: calls[0].id.clone(),
        name: calls[0].name.clone(),
        output,
        is_error,
        parts: Vec::new(),
    };
    let messages = vec![user(PROMPT), Message::assistant(text, calls), result, user("be quick")];
    let (_, texts) = turn(&mut project, messages).await;
    assert!(texts.last().unwrap().starts_with("Done."), "{texts:?}");
}

#[tokio::test]
async fn cancel_ends_the_stream() {
    let cancel = CancellationToken::new();
    cancel.cancel();
    let request = ModelRequest { messages: vec![user("hi")].into(), ..ModelRequest::default() };
    let first = Demo::new(Duration::from_secs(60)).stream(request, cancel).next().await;
    assert_eq!(first, Some(Err(ModelError::Aborted)));
}

#[test]
fn reports() {
    let failing = |name: &str| vec![name.to_owned()];
    #[rustfmt::skip]
    let table = [
        ("# tests 2\n# fail 0\n", Report { tests: 2, passed: true, ..Report::default() }),
        ("# tests 0\n# fail 0\n", Report::default()),
        ("[exit code 1]\n# tests 2\n# fail 0\n", Report { tests: 2, ..Report::default() }),
        ("command not found", Report::default()),
        ("[exit code 1]\nnot ok 1 - /x/a.test.js\nnot ok 2 - adds # time=1\n  location: '/x/a.test.js:7:1'\n# tests 2\n# fail 1\n",
            Report { tests: 2, failing: failing("adds"), place: Some(("/x/a.test.js".into(), 7)), ..Report::default() }),
        ("[exit code 1]\n✖ adds (two) (1.5ms)\n  -1 !== 2.5\nℹ tests 1\nℹ fail 1\ntest at a.test.js:7:1\n",
            Report { tests: 1, failing: failing("adds (two)"), place: Some(("a.test.js".into(), 7)), got_and_wanted: Some((-1.0, 2.5)), passed: false }),
    ];
    for (output, want) in table {
        assert_eq!(read(output), want, "{output}");
    }
}

#[test]
fn changes_stay_inside_the_function_and_are_unique() {
    let lines = [
        "function a() {",
        "  return x - y",
        "}",
        "function b() {",
        "  // x - y",
        "  return x - y",
        "}",
        "let z = 1 - 2",
    ];
    let found = changes(&lines, 4, false);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].line, found[0].swap), (6, ("-", "+")));
    assert_eq!(found[0].old, "  // x - y\n  return x - y");
    assert_eq!(found[0].new, "  // x - y\n  return x + y");
}
