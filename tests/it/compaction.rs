//! Compaction, from outside: the server sums a conversation up by itself, when a client asks and when it does not fit; what the
//! model is sent before and after; what the log, the history and the records say; and the same after a restart.

use std::sync::Arc;

use serde_json::{Value, json};
use simse::app::{App, Caller, EventPage};
use simse::config::{Settings, Storage};
use simse::protocol::{Compact, EventBody, ItemBody, SessionId, TurnStatus};

use crate::support::http::within;
use crate::support::model_server::{Answer, ModelServer, Request, Script};
use crate::support::sessions::{events, open, provider, session, turn};

const SUMMARY: &str = "## Goal\nbuild it\n\n## State\nhalf\n\n## Decisions\nnone\n\n## Files\nnone\n\n## Next steps\ngo on\n\n## Open questions\nnone";

/// Whether a request wants a summary.
fn wants_summary(request: &Request) -> bool {
    messages(request).last().is_some_and(|last| last["content"].to_string().contains("## Open questions"))
}

fn messages(request: &Request) -> Vec<Value> {
    request.json()["messages"].as_array().cloned().unwrap_or_default()
}

/// Sums up where that is wanted, else answers.
fn answers(text: &'static str) -> Script {
    Arc::new(move |request| if wants_summary(request) { Answer::text(&[SUMMARY]) } else { Answer::text(&[text]) })
}

/// Settings with that server's model, whose window has so many tokens.
fn with_window(server: &ModelServer, tokens: u64) -> impl FnOnce(&mut Settings) {
    let entry = provider(json!({
        "name": "mine", "api": "openai-chat", "baseUrl": server.base_url(),
        "models": [{ "name": "m", "contextTokens": tokens }],
    }));
    move |settings| {
        settings.providers = vec![entry];
        settings.model = Some("mine/m".into());
    }
}

/// The text of a request's messages without the end of their list: what a longer one begins with.
fn sent(request: &Request) -> String {
    let body = String::from_utf8(request.body.to_vec()).unwrap();
    let from = body.find("\"messages\":[").expect("messages");
    let list: Vec<Value> = messages(request);
    let length: usize = list.iter().map(|message| serde_json::to_string(message).unwrap().len() + 1).sum();
    assert!(length > 0);
    let mut depth = 0_i32;
    let (mut inside, mut escaped) = (false, false);
    for (at, c) in body[from..].char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if inside => escaped = true,
            '"' => inside = !inside,
            '[' | '{' if !inside => depth += 1,
            ']' | '}' if !inside => {
                depth -= 1;
                if depth == 0 {
                    return body[from..from + at].to_owned();
                }
            }
            _ => {}
        }
    }
    panic!("no end: {body}");
}

fn kinds(all: &[(String, Value)]) -> Vec<&str> {
    all.iter().map(|(kind, _)| kind.as_str()).filter(|kind| kind.starts_with("compaction.")).collect()
}

async fn log(app: &App, id: &SessionId) -> Vec<(String, Value)> {
    let page = EventPage { limit: 1_000, ..EventPage::default() };
    let events = app.event_page(&Caller::default(), id, page).await.unwrap().items;
    events.iter().map(|event| (event.kind.to_string(), serde_json::from_str(event.payload.get()).unwrap())).collect()
}

/// Whatever is sent is the beginning of what is sent next, byte for byte, the request for the summary included: a provider that
/// keeps what it was sent has all of it. A summary begins anew, and from then on it is so again.
#[tokio::test]
async fn what_was_sent_stays_the_beginning_until_it_is_summed_up() {
    let directory = tempfile::tempdir().unwrap();
    let tool = |request: &Request| {
        let last = messages(request).pop().unwrap();
        if wants_summary(request) {
            Answer::text(&[SUMMARY])
        } else if last["role"] == "user" {
            Answer::calls("look", &[("c1", "fs_list", json!({ "path": "." }))])
        } else {
            Answer::text(&["done"])
        }
    };
    let server = ModelServer::start(Arc::new(tool)).await;
    let app = open(directory.path(), with_window(&server, 6_000)).await;
    let id = session(&app, json!({})).await;
    for at in 0..14 {
        let prompt = format!("{at} {}", "word ".repeat(1_000));
        assert_eq!(turn(&app, &id, json!({ "prompt": prompt })).await.result.as_deref(), Some("done"));
    }
    let requests = server.requests();
    let mut summaries = 0;
    for pair in requests.windows(2) {
        let (before, after) = (sent(&pair[0]), sent(&pair[1]));
        if wants_summary(&pair[0]) {
            summaries += 1;
            let all = messages(&pair[1]);
            assert!(all[1]["content"].to_string().contains("[Conversation summary]"), "{}", all[1]);
            assert!(after.len() < before.len() / 2, "{} of {}", after.len(), before.len());
            continue;
        }
        assert!(after.starts_with(&before), "\n{before}\n{after}");
        assert_eq!(pair[0].json()["tools"], pair[1].json()["tools"]);
    }
    assert!((1..=4).contains(&summaries), "{summaries}");
    let log = log(&app, &id).await;
    let count = |kind: &str| kinds(&log).iter().filter(|one| **one == kind).count();
    assert_eq!((count("compaction.start"), count("compaction.complete")), (summaries, summaries));
    // The newest turns stay word for word.
    let after = requests.iter().rposition(wants_summary).unwrap() + 1;
    let told = messages(&requests[after]);
    assert!(told.last().unwrap()["content"].to_string().len() > 5_000, "the prompt that is to be answered");
}

#[tokio::test]
async fn a_client_asks_for_it_and_a_restart_knows_of_it() {
    let (directory, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = ModelServer::start(answers("done")).await;
    let stored = |settings: &mut Settings| settings.storage = Storage::Directory(data.path().to_owned());
    let caller = Caller::default();
    let app = open(directory.path(), |settings| {
        with_window(&server, 200_000)(settings);
        stored(settings);
    })
    .await;
    let id = session(&app, json!({})).await;
    for prompt in ["first", "second"] {
        turn(&app, &id, json!({ "prompt": prompt })).await;
    }
    let before = app.session(&caller, &id).await.unwrap();
    let body = Compact { focus: Some(" the tests ".into()), if_version: Some(before.version) };
    let accepted = app.compact(&caller, &id, body).await.unwrap();
    let record = within(app.wait_turn(&caller, &id, &accepted.turn_id)).await.unwrap();
    assert_eq!((record.status, record.result.as_deref()), (TurnStatus::Completed, Some(SUMMARY)));
    assert_eq!(serde_json::to_value(&record.task).unwrap(), json!({ "kind": "compact", "focus": "the tests" }));
    let asked = server.requests().pop().unwrap();
    assert!(messages(&asked).pop().unwrap()["content"].to_string().contains("keep above all: the tests"));
    // It is no message, and hidden; what it cost counts.
    let after = app.session(&caller, &id).await.unwrap();
    assert_eq!((after.message_count, after.version), (before.message_count, before.version + 1));
    assert!(after.usage.input_tokens > before.usage.input_tokens);
    let turns = async |hidden| app.turns(&caller, &id, (None, 9), hidden).await.unwrap().items.len();
    assert_eq!((turns(false).await, turns(true).await), (2, 3));
    let history = app.history(&caller, &id, 0, 99).await.unwrap().items;
    assert_eq!(history.len(), 5, "{history:?}");
    assert!(matches!(&history[4].body, ItemBody::Summary { text, kept: 0 } if text == SUMMARY), "{:?}", history[4]);
    assert!(history[..4].iter().all(|item| matches!(item.body, ItemBody::Message { .. })));
    app.shutdown(std::time::Duration::from_secs(10)).await.unwrap();
    drop(app);
    // The log says it all: another process goes on with the very same conversation.
    let app = open(directory.path(), |settings| {
        with_window(&server, 200_000)(settings);
        stored(settings);
    })
    .await;
    turn(&app, &id, json!({ "prompt": "third" })).await;
    let told = messages(&server.requests().pop().unwrap());
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told[1]["content"].to_string().contains("[Conversation summary]\\n## Goal\\nbuild it"), "{}", told[1]);
    assert!(told[2]["content"].to_string().contains("third"));
    // Once more: what there is since is summed up with the summary before it.
    let accepted = app.compact(&caller, &id, Compact::default()).await.unwrap();
    within(app.wait_turn(&caller, &id, &accepted.turn_id)).await.unwrap();
    let refused = app.compact(&caller, &id, Compact { if_version: Some(1), ..Compact::default() }).await.unwrap_err();
    assert!(refused.to_string().contains("version"), "{refused}");
    let accepted = app.compact(&caller, &id, Compact::default()).await.unwrap();
    let record = within(app.wait_turn(&caller, &id, &accepted.turn_id)).await.unwrap();
    assert_eq!(record.status, TurnStatus::Failed, "there is nothing left");
    assert_eq!(record.error.unwrap().details, Some(json!({ "kind": "not_compacted" })));
    let long = Compact { focus: Some("x".repeat(4_001)), ..Compact::default() };
    assert!(
        app.compact(&caller, &id, long).await.unwrap_err().to_string().starts_with("`focus`: expected at most 4000")
    );
}

/// A provider says that it does not fit: it is summed up from a transcript, and the turn goes on.
#[tokio::test]
async fn what_a_provider_finds_too_long_is_summed_up_and_sent_again() {
    let directory = tempfile::tempdir().unwrap();
    let script = |request: &Request| {
        let all = messages(request);
        let length: usize = all.iter().map(|message| message["content"].to_string().len()).sum();
        match wants_summary(request) {
            // A transcript fits, because it was cut.
            true if length < 20_000 => Answer::text(&[SUMMARY]),
            _ if length > 12_000 => {
                let error = json!({ "error": { "message": "This model's maximum context length is 3000 tokens.",
                    "type": "invalid_request_error", "code": "context_length_exceeded" } });
                Answer::status(400, &[("content-type", "application/json")], &error.to_string())
            }
            _ => Answer::text(&["done"]),
        }
    };
    let server = ModelServer::start(Arc::new(script)).await;
    // It is said to have a large window.
    let app = open(directory.path(), with_window(&server, 1_000_000)).await;
    let id = session(&app, json!({})).await;
    let mut compacted = 0;
    for at in 0..9 {
        let turn = turn(&app, &id, json!({ "prompt": format!("{at} {}", "word ".repeat(500)) })).await;
        assert_eq!((turn.status, turn.result.as_deref()), (TurnStatus::Completed, Some("done")), "{turn:?}");
        compacted = kinds(&log(&app, &id).await).iter().filter(|kind| **kind == "compaction.complete").count();
    }
    assert!((1..=4).contains(&compacted), "{compacted}");
    let all = events(&app, &id).await;
    let trigger = all.iter().find_map(|event| match event {
        EventBody::CompactionComplete { compaction, .. } => Some(compaction.clone()),
        _ => None,
    });
    assert_eq!(serde_json::to_value(trigger.unwrap().trigger).unwrap(), "overflow");
}

/// Files that the work was about are shown again as they are now, by the tool that reads them and within the rules.
#[tokio::test]
async fn files_of_the_work_are_shown_again() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["seen.txt", "secret.txt", "gone.txt"] {
        std::fs::write(directory.path().join(name), "as it was\n").unwrap();
    }
    let script = |request: &Request| {
        let last = messages(request).pop().unwrap();
        if wants_summary(request) {
            Answer::text(&[SUMMARY])
        } else if last["role"] == "user" && last["content"].to_string().contains("look") {
            let read = |id, name: &str| (id, "fs_read", json!({ "path": name }));
            let write = ("c4", "fs_write", json!({ "path": "made.txt", "content": "new\n" }));
            Answer::calls("", &[read("c1", "seen.txt"), read("c2", "secret.txt"), read("c3", "gone.txt"), write])
        } else {
            Answer::text(&["done"])
        }
    };
    let server = ModelServer::start(Arc::new(script)).await;
    let app = open(directory.path(), |settings| {
        with_window(&server, 200_000)(settings);
        settings.permissions = serde_json::from_value(json!({ "defaultPolicy": "allow", "rules": [] })).unwrap();
    })
    .await;
    let caller = Caller::default();
    let rules =
        json!({ "defaultPolicy": "allow", "rules": [{ "tool": "fs_write", "pattern": "*", "policy": "allow" }] });
    let id = session(&app, json!({ "toolPermissions": rules })).await;
    turn(&app, &id, json!({ "prompt": "look" })).await;
    std::fs::write(directory.path().join("seen.txt"), "as it is\n").unwrap();
    std::fs::remove_file(directory.path().join("gone.txt")).unwrap();
    let accepted = app.compact(&caller, &id, Compact::default()).await.unwrap();
    within(app.wait_turn(&caller, &id, &accepted.turn_id)).await.unwrap();
    turn(&app, &id, json!({ "prompt": "go on" })).await;
    let told = messages(&server.requests().pop().unwrap());
    let shown = told[1]["content"].to_string();
    for want in ["Files changed so far: made.txt", "Files read so far: seen.txt, secret.txt, gone.txt"] {
        assert!(shown.contains(want), "{want}: {shown}");
    }
    assert!(shown.contains("[The file seen.txt as it is now]") && shown.contains("as it is"), "{shown}");
    assert!(shown.contains("[The file made.txt as it is now]"), "{shown}");
    assert!(!shown.contains("[The file gone.txt"), "{shown}");
    let calls = events(&app, &id).await;
    let calls = calls.iter().filter(|event| matches!(event, EventBody::ToolCallStart { .. })).count();
    assert_eq!(calls, 4, "looking again is no call of the model");
    // A second one, before which nothing was read, shows them again as they are by then.
    std::fs::write(directory.path().join("seen.txt"), "as it became\n").unwrap();
    let accepted = app.compact(&caller, &id, Compact::default()).await.unwrap();
    within(app.wait_turn(&caller, &id, &accepted.turn_id)).await.unwrap();
    turn(&app, &id, json!({ "prompt": "go on" })).await;
    let shown = messages(&server.requests().pop().unwrap())[1]["content"].to_string();
    assert!(shown.contains("[The file seen.txt as it is now]") && shown.contains("as it became"), "{shown}");
    assert!(shown.contains("[The file made.txt as it is now]"), "{shown}");
    assert!(shown.contains("Files changed so far: made.txt"), "{shown}");
}
