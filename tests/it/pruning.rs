//! A long session from the wire's side: what a model is sent of old outputs, what stays the same from request to request and over a
//! restart, and how it reads again what it is no longer shown.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use simse::app::App;
use simse::config::Storage;
use simse::protocol::TurnStatus;

use crate::support::model_server::{Answer, ModelServer, Script};
use crate::support::sessions::{open, provider, session, turn};

/// So long a file is one output of some 11,000 tokens.
const LINES: usize = 900;

fn files(work: &Path) {
    for name in ["a", "b", "c", "d", "e", "f"] {
        let line = |n: usize| format!("line {n:04} of {name}: {}\n", "x".repeat(28));
        std::fs::write(work.join(format!("{name}.txt")), (0..LINES).map(line).collect::<String>()).unwrap();
    }
}

/// Does what the prompt says: `read` reads all files, `again` reads what was pruned of `a.txt`, anything else is answered.
fn script() -> Script {
    Arc::new(|request| {
        let body = request.json();
        let messages = body["messages"].as_array().expect("messages");
        let last = messages.last().expect("one");
        match (last["role"].as_str(), last["content"].as_str()) {
            (Some("user"), Some("read")) => {
                let read = |name: &str| (format!("call_{name}"), json!({ "path": format!("{name}.txt") }));
                let calls: Vec<(String, Value)> = ["a", "b", "c", "d", "e", "f"].into_iter().map(read).collect();
                let calls: Vec<_> = calls.iter().map(|(id, given)| (id.as_str(), "fs_read", given.clone())).collect();
                Answer::calls("", &calls)
            }
            (Some("user"), Some("again")) => Answer::calls(
                "",
                &[("call_again", "read_pruned", json!({ "tool": "fs_read", "containing": "a.txt", "limit": 400 }))],
            ),
            (Some("user"), Some("list")) => Answer::calls("", &[("call_list", "read_pruned", json!({}))]),
            _ => Answer::text(&["so it is"]),
        }
    })
}

async fn begin(home: &Path, server: &ModelServer) -> Arc<App> {
    open(&home.join("work"), |settings| {
        settings.storage = Storage::Directory(home.join("data"));
        settings.providers = vec![provider(json!({ "name": "p", "api": "openai-chat", "baseUrl": server.base_url() }))];
        settings.model = Some("p/gpt-5".into());
    })
    .await
}

/// The messages of each request, as they were sent.
fn sent(server: &ModelServer) -> Vec<Vec<String>> {
    let texts = |body: Value| body["messages"].as_array().expect("messages").iter().map(Value::to_string).collect();
    server.requests().iter().map(|request| texts(request.json())).collect()
}

fn pruned(messages: &[String]) -> usize {
    messages.iter().filter(|message| message.contains("[OUTPUT PRUNED — ")).count()
}

#[tokio::test]
async fn old_outputs_go_once_and_what_was_sent_stays_the_beginning_of_what_is_sent_next() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join("work")).unwrap();
    files(&home.path().join("work"));
    let server = ModelServer::start(script()).await;
    let app = begin(home.path(), &server).await;
    let id = session(&app, json!({})).await;
    for prompt in ["read", "and?", "and now?", "more", "list", "again", "go on"] {
        let done = turn(&app, &id, json!({ "prompt": prompt })).await;
        assert_eq!(done.status, TurnStatus::Completed, "{prompt}: {:?}", done.error);
    }
    let all = sent(&server);
    let counts: Vec<usize> = all.iter().map(|messages| pruned(messages)).collect();
    // The newest output of all does not count, and of the others the newest 40,000 tokens are spared.
    let first = counts.iter().position(|count| *count > 0).expect("some are pruned");
    assert_eq!(counts[first], 2, "{counts:?}");
    assert_eq!(
        all[first].iter().filter(|one| one.contains("\"role\":\"user\"")).count(),
        3,
        "two turns after the one that read"
    );
    for (before, after) in all.iter().zip(&all[1..]) {
        if pruned(before) == pruned(after) {
            assert_eq!(before[..], after[..before.len()], "what was sent is the beginning of what is sent next");
        }
    }
    // Tools do not come and go with it: they stand before all messages.
    let tools: Vec<Value> = server.requests().iter().map(|request| request.json()["tools"].clone()).collect();
    assert!(tools.iter().all(|one| *one == tools[0]) && tools[0].to_string().contains("read_pruned"));
    // The model is given it again.
    let answer = |id: &str| {
        let last = all.last().expect("requests").iter();
        last.filter(|one| one.contains("\"role\":\"tool\""))
            .find(|one| one.contains(&format!("\"{id}\"")))
            .cloned()
            .expect("a result")
    };
    assert!(answer("call_a").contains("[OUTPUT PRUNED — "), "{}", answer("call_a"));
    let again = answer("call_again");
    assert!(
        again.contains("Output of fs_read {\\\"path\\\":\\\"a.txt\\\"} (callId call_a), characters 0 to 400 of ")
            && again.contains("line 0000 of a: "),
        "{again}"
    );
    assert!(answer("call_list").contains("callId call_f") && answer("call_list").contains("callId call_a"));
    // A server that begins anew sends the very same, and goes on.
    app.shutdown(Duration::ZERO).await.unwrap();
    let app = begin(home.path(), &server).await;
    turn(&app, &id, json!({ "prompt": "after all" })).await;
    let after = sent(&server);
    let (before, after) = (&all[all.len() - 1], &after[after.len() - 1]);
    assert_eq!(before[..], after[..before.len()]);
    app.shutdown(Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn a_session_reads_its_own_calls_only() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join("work")).unwrap();
    files(&home.path().join("work"));
    let server = ModelServer::start(script()).await;
    let app = begin(home.path(), &server).await;
    let (one, other) = (session(&app, json!({})).await, session(&app, json!({})).await);
    turn(&app, &one, json!({ "prompt": "read" })).await;
    turn(&app, &other, json!({ "prompt": "again" })).await;
    turn(&app, &other, json!({ "prompt": "list" })).await;
    let all = sent(&server);
    let last = all.last().expect("requests").join("\n");
    assert!(last.contains("no earlier call with an output of 200 characters or more fits"), "{last}");
    assert!(last.contains("No earlier call has an output of 200 characters or more."), "{last}");
    app.shutdown(Duration::ZERO).await.unwrap();
}
