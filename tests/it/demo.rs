//! The demo model: the main job with the true file tools, a true repository and a true test runner; what it does where a run goes
//! another way; and its recording, which is what recording its dialogue gives.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::{Map, Value, json};
use simse::agent::{Ended, run_turn};
use simse::base::workspace::Workspace;
use simse::cli::example_repository;
use simse::config::Api;
use simse::host::{BashOptions, GitOptions, bash_tool, git_tools};
use simse::model::{ModelFacts, ModelRequest};
use simse::protocol::{Message, ToolCallRequest};
use simse::provider::{HttpModelOptions, Place, Tape, demo, http_model};
use simse::tool::Tool;
use tokio_util::sync::CancellationToken;

use crate::support::model_server::{Answer, ModelServer, Step, call_chunks, queue, text_chunk};
use crate::support::turns::{Log, turn, user};

fn git(directory: &Path, command: &str) -> String {
    let output = std::process::Command::new("git").args(command.split(' ')).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn tools(directory: &Path) -> Vec<Arc<dyn Tool>> {
    let workspace = Arc::new(Workspace::new(directory, &[]).unwrap());
    let mut tools = git_tools(&workspace, &GitOptions::default());
    tools.push(bash_tool(&workspace, BashOptions::default()));
    tools
}

async fn job(directory: &Path) -> (Ended, String) {
    let log = Arc::new(Log::default());
    let mut input = turn(demo(), &log, directory, tools(directory));
    input.messages = vec![user(example_repository::PROMPT)].into();
    let outcome = run_turn(input, CancellationToken::new()).await;
    (outcome.ended, outcome.final_text)
}

#[tokio::test]
async fn the_example_is_repaired_and_committed() {
    let directory = tempfile::tempdir().unwrap();
    example_repository::create(directory.path()).await.unwrap();
    let (ended, text) = job(directory.path()).await;
    assert_eq!(ended, Ended::Completed);
    assert!(text.starts_with("Done."), "{text}");
    assert_eq!(git(directory.path(), "status --porcelain"), "");
    assert_eq!(git(directory.path(), "log --oneline").lines().count(), 2);
    let change = git(directory.path(), "diff HEAD~1 --shortstat");
    assert_eq!(change.trim(), "1 file changed, 1 insertion(+), 1 deletion(-)");
}

#[tokio::test]
async fn an_example_that_it_does_not_know_is_left_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    example_repository::create(directory.path()).await.unwrap();
    let cart = directory.path().join("src/cart.js");
    let source = std::fs::read_to_string(&cart).unwrap().replace("line.priceCents + line.quantity", "line.priceCents");
    std::fs::write(&cart, &source).unwrap();
    let (ended, text) = job(directory.path()).await;
    assert_eq!(ended, Ended::Completed);
    assert!(text.starts_with("I stop here:") && text.contains("is as it was"), "{text}");
    assert_eq!(std::fs::read_to_string(&cart).unwrap(), source);
    assert_eq!(git(directory.path(), "log --oneline").lines().count(), 1);
}

#[tokio::test]
async fn a_change_that_does_not_help_is_put_back() {
    let directory = tempfile::tempdir().unwrap();
    example_repository::create(directory.path()).await.unwrap();
    let (cart, test) = (directory.path().join("src/cart.js"), directory.path().join("test/cart.test.js"));
    let source = std::fs::read_to_string(&cart).unwrap();
    let more =
        std::fs::read_to_string(&test).unwrap() + "\ntest('nothing helps', () => { throw new Error('never') })\n";
    std::fs::write(&test, more).unwrap();
    let (ended, text) = job(directory.path()).await;
    assert_eq!(ended, Ended::Completed);
    assert!(text.starts_with("I could not make it pass"), "{text}");
    assert_eq!(std::fs::read_to_string(&cart).unwrap(), source);
}

#[tokio::test]
async fn tests_that_pass_already_are_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    example_repository::create(directory.path()).await.unwrap();
    let cart = directory.path().join("src/cart.js");
    let source = std::fs::read_to_string(&cart).unwrap().replace("priceCents + line", "priceCents * line");
    std::fs::write(&cart, &source).unwrap();
    let (ended, text) = job(directory.path()).await;
    assert_eq!(ended, Ended::Completed);
    assert!(text.starts_with("`node --test` finds no test here that fails"), "{text}");
    assert_eq!(std::fs::read_to_string(&cart).unwrap(), source);
}

#[tokio::test]
async fn of_the_tests_of_another_project_it_says_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let fails = json!({ "name": "other", "scripts": { "test": "exit 1" } });
    std::fs::write(directory.path().join("package.json"), fails.to_string()).unwrap();
    let (ended, text) = job(directory.path()).await;
    assert_eq!(ended, Ended::Completed);
    assert!(!text.contains("pass") && text.ends_with("other tests it does not know."), "{text}");
}

/// What is said, what is called then, and what follows on each way that it may end. No call: it is done.
struct Line {
    says: &'static str,
    calls: Option<(&'static str, Value)>,
    then: Vec<(&'static str, Line)>,
}

const WELL: &str = "It went well.";
const EXIT_CODE: &str = "It ended with an exit code.";
const NOT_DONE: &str = "It was not done.";

fn done(says: &'static str) -> Line {
    Line { says, calls: None, then: Vec::new() }
}

fn calls(says: &'static str, call: (&'static str, Value), well: Line, not_done: Line) -> Line {
    Line { says, calls: Some(call), then: vec![(WELL, well), (NOT_DONE, not_done)] }
}

/// A command, which may also end with an error of its own.
fn runs(says: &'static str, command: &str, [well, failed, not_done]: [Line; 3]) -> Line {
    let call = Some(("bash", json!({ "command": command })));
    Line { says, calls: call, then: vec![(WELL, well), (EXIT_CODE, failed), (NOT_DONE, not_done)] }
}

const STOP: &str =
    "I stop here: what I asked for was not done, and this recording has no way around it. Nothing was changed by me.";

/// The whole dialogue of the job.
fn the_job() -> Line {
    const BEFORE: &str = "    cents += line.priceCents + line.quantity";
    const AFTER: &str = "    cents += line.priceCents * line.quantity";
    let edit =
        |old: &str, new: &str| ("fs_edit", json!({ "path": "src/cart.js", "old_string": old, "new_string": new }));
    let changed = "I stop here: what I asked for was not done. My change of src/cart.js is in the files and passes the tests; it is not committed.";
    let commit = calls(
        "",
        ("git_commit", json!({ "message": "Fix subtotal: use * instead of +" })),
        done(
            "Done. `subtotal` in src/cart.js used `+` where `*` belongs; the test `subtotal takes each price as often as its quantity says` told. All tests pass, and the change is committed.",
        ),
        done(changed),
    );
    let keep = calls(
        "All tests pass now. This is the whole change:",
        ("git_diff", json!({})),
        runs("I commit it.", "git add -- 'src/cart.js'", [commit, done(changed), done(changed)]),
        done(changed),
    );
    let put_back = calls(
        "No: the run fails still. That was not it; I put the line back.",
        edit(AFTER, BEFORE),
        done(
            "I could not make it pass: the tests still fail. I tried one small change of `subtotal` in src/cart.js and put it back, so the files are as they were and nothing is committed.",
        ),
        done(
            "I could not make it pass: the tests still fail, and my change of src/cart.js could not be put back. `git diff` shows it; nothing is committed.",
        ),
    );
    let untried = "I stop here: I could not run the tests again. My change of src/cart.js is in the files, and nothing has tried it; it is not committed.";
    let again = runs("I run the tests again.", "node --test", [keep, put_back, done(untried)]);
    let mend = calls(
        "The test wants each price as often as its quantity says, and here the two are added. In `subtotal`, I try `*` in place of `+`.",
        edit(BEFORE, AFTER),
        again,
        done(
            "I stop here: the line that I know is not in src/cart.js, so this is not the repository of this recording, or I may not change it. The file is as it was.",
        ),
    );
    let look =
        calls("`subtotal` stands in src/cart.js.", ("fs_read", json!({ "path": "src/cart.js" })), mend, done(STOP));
    let find = calls(
        "It is about `subtotal`. Where is that defined?",
        ("fs_grep", json!({ "pattern": "function\\s+subtotal\\b" })),
        look,
        done(STOP),
    );
    let test = calls(
        "A test fails. I read what it wants of `subtotal`.",
        ("fs_read", json!({ "path": "test/cart.test.js" })),
        find,
        done(STOP),
    );
    let pass = done(
        "`node --test` finds no test here that fails, so there is nothing that this recording could repair. Whether this project has other tests it does not know.",
    );
    let first = runs(
        "I run the tests with `node --test`.",
        "node --test",
        [pass, test, done("I stop here: I could not run the tests. Nothing was changed.")],
    );
    let package = calls(
        "How are its tests run?",
        ("fs_read", json!({ "path": "package.json" })),
        first,
        done(
            "I stop here: I could not read a package.json, and the project of `npm start` is all that I know. Nothing was changed.",
        ),
    );
    calls(
        "I am `demo/scripted`, the built-in demo: no language model, but a recording whose answers go by how the calls of tools end. I know this job. First I look at what is here.",
        ("fs_list", json!({ "depth": 2 })),
        package,
        done(STOP),
    )
}

/// The answer to anything else.
fn anything_else() -> Line {
    calls(
        "I am `demo/scripted`, the built-in demo: no language model, but a recording. I know one job: to make the failing test of the example of `npm start` pass (say \"make the failing test pass\"). For anything else, configure a real model: set OPENAI_API_KEY, or OPENAI_BASE_URL for another server that speaks the same protocol, and choose it with --model openai/NAME. To show that the tools are real, I look at the working directory.",
        ("fs_list", json!({})),
        done("That is what is in it, and all that I can do here."),
        done("I could not look at it. That is all that I can do here."),
    )
}

const LOST: &str = "This is a recording, and what came back is not what was recorded: I stop here. `git status` shows what was changed.";

/// Each request of a dialogue with its line.
fn requests<'l>(line: &'l Line, before: Vec<Message>, all: &mut Vec<(Vec<Message>, &'l Line)>) {
    all.push((before.clone(), line));
    let Some((name, arguments)) = &line.calls else { return };
    let id = format!("call_{}", before.len().div_ceil(2));
    let call =
        ToolCallRequest { id: id.clone(), name: (*name).to_owned(), arguments: arguments.as_object().unwrap().clone() };
    for (output, next) in &line.then {
        let mut messages = before.clone();
        messages.push(Message::assistant(line.says, vec![call.clone()]));
        messages.push(Message::ToolResult {
            call_id: id.clone(),
            name: call.name.clone(),
            output: (*output).to_owned(),
            is_error: false,
            parts: Vec::new(),
        });
        requests(next, messages, all);
    }
}

/// In pieces of a word or two, with a pause before each, so that a person can follow.
fn spoken(line: &Line, id: &str) -> Answer {
    let mut pieces: Vec<String> = Vec::new();
    for word in line.says.split_inclusive([' ', '\n']) {
        match pieces.last_mut() {
            Some(last) if last.len() + word.len() <= 24 => last.push_str(word),
            _ => pieces.push(word.to_owned()),
        }
    }
    let mut steps = Vec::new();
    for piece in pieces {
        steps.extend([Step::Pause(Duration::from_millis(16)), Step::Send(text_chunk(&piece).into())]);
    }
    let call = line.calls.as_ref().map(|(name, arguments)| call_chunks(0, id, name, &arguments.to_string()));
    let why = if call.is_some() { "tool_calls" } else { "stop" };
    let end = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": why }] });
    steps.push(Step::Send(format!("{}data: {end}\n\ndata: [DONE]\n\n", call.unwrap_or_default()).into()));
    Answer::steps(steps)
}

async fn record(to: &Path) {
    let (job, other, lost) = (the_job(), anything_else(), done(LOST));
    let mut all = Vec::new();
    requests(&job, vec![user("Make the failing test pass.")], &mut all);
    requests(&other, vec![user("Something else.")], &mut all);
    // The last one is the answer to all that it does not know.
    requests(&lost, vec![user("What nobody has recorded.")], &mut all);
    for (messages, line) in all {
        let id = format!("call_{}", messages.len().div_ceil(2));
        let server = ModelServer::start(queue([spoken(line, &id)])).await;
        let mut place = Place::new("demo", server.base_url(), Duration::from_secs(20));
        place.tape = Some(Arc::new(Tape::record(to).unwrap()));
        let options = HttpModelOptions {
            name: "scripted".into(),
            api: Api::Chat,
            facts: ModelFacts::default(),
            body: Map::new(),
        };
        let model = http_model(options, &Arc::new(place));
        let lines = || std::fs::read_to_string(to).unwrap_or_default().lines().count();
        let before = lines();
        let request = ModelRequest { messages: messages.into(), ..ModelRequest::default() };
        assert!(model.stream(request, CancellationToken::new()).all(|event| async move { event.is_ok() }).await);
        let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
        while lines() == before {
            assert!(tokio::time::Instant::now() < deadline, "the exchange is written");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// All but the times.
fn without_times(text: &str) -> Vec<Value> {
    let line = |line: &str| -> Value {
        let mut exchange: Value = serde_json::from_str(line).expect("a line of a recording");
        let said: String =
            exchange["pieces"].as_array().unwrap().iter().map(|piece| piece[1].as_str().unwrap()).collect();
        exchange["pieces"] = said.into();
        exchange
    };
    text.lines().map(line).collect()
}

#[tokio::test]
async fn the_recording_that_ships_is_what_recording_its_dialogue_gives() {
    let shipped = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/provider/demo/recording.jsonl");
    let directory = tempfile::tempdir().unwrap();
    let made = directory.path().join("recording.jsonl");
    record(&made).await;
    if std::env::var_os("SIMSE_WRITE_DEMO").is_some() {
        std::fs::copy(&made, &shipped).unwrap();
    }
    let (made, shipped) = (std::fs::read_to_string(&made).unwrap(), std::fs::read_to_string(&shipped).unwrap());
    let (made, shipped) = (without_times(&made), without_times(&shipped));
    assert_eq!(made.len(), shipped.len());
    for (made, shipped) in made.into_iter().zip(shipped) {
        assert_eq!(
            made, shipped,
            "make it anew: SIMSE_WRITE_DEMO=1 cargo test --features node --test it demo::the_recording"
        );
    }
}
