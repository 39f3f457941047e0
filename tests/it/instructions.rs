//! Instruction files on the wire: what stands in the system text, what a model is told when it gets to a folder, and what changes of both.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use simse::app::App;
use simse::config::Storage;
use simse::protocol::{EventBody, TurnStatus};

use crate::support::model_server::{Answer, ModelServer, Script};
use crate::support::sessions::{events, open, provider, session, turn};

/// Reads the file that the prompt names, and answers when it has.
fn script() -> Script {
    Arc::new(|request| {
        let body = request.json();
        let last = body["messages"].as_array().and_then(|all| all.last()).cloned().unwrap_or_default();
        let asks = last["content"].as_str().filter(|text| last["role"] == "user" && text.starts_with("read "));
        match asks.map(|text| text.trim_start_matches("read ")) {
            Some(paths) => {
                let call = |(n, path): (usize, &str)| (format!("call_{n}_{path}"), json!({ "path": path }));
                let calls: Vec<(String, Value)> = paths.split(' ').enumerate().map(call).collect();
                let calls: Vec<_> = calls.iter().map(|(id, given)| (id.as_str(), "fs_read", given.clone())).collect();
                Answer::calls("", &calls)
            }
            None => Answer::text(&["so it is"]),
        }
    })
}

async fn begin(home: &Path, server: &ModelServer, model: &str) -> Arc<App> {
    open(&home.join("work"), |settings| {
        settings.storage = Storage::Directory(home.join("data"));
        settings.providers = vec![provider(json!({ "name": "p", "api": "openai-chat", "baseUrl": server.base_url() }))];
        settings.model = Some(format!("p/{model}"));
    })
    .await
}

/// `work` with a repository's root, and instruction files in folders.
fn project(home: &Path) {
    let files = [
        ("work/.git/HEAD", "ref: refs/heads/feat/one\n"),
        ("work/AGENTS.md", "top\n@docs/style.md\n"),
        ("work/docs/style.md", "imported style\n"),
        ("work/a/AGENTS.md", "instructions of a"),
        ("work/a/b/CLAUDE.md", "instructions of b"),
        ("work/a/b/x.rs", "fn x() {}\n"),
        ("work/a/y.rs", "fn y() {}\n"),
        ("work/z.rs", "fn z() {}\n"),
    ];
    for (path, text) in files {
        let path = home.join(path);
        fs::create_dir_all(path.parent().expect("a parent")).unwrap();
        fs::write(path, text).unwrap();
    }
}

fn system(body: &Value) -> String {
    body["messages"][0]["content"].as_str().expect("a system text").to_owned()
}

/// How often a text is in the conversation of the last request.
fn count(server: &ModelServer, text: &str) -> usize {
    server.requests().last().expect("a request").json()["messages"].to_string().matches(text).count()
}

#[tokio::test]
async fn a_folder_s_instructions_come_when_a_call_gets_there_once_and_over_a_restart() {
    let home = tempfile::tempdir().unwrap();
    project(home.path());
    let server = ModelServer::start(script()).await;
    let app = begin(home.path(), &server, "m").await;
    let id = session(&app, json!({})).await;
    let ask = async |app: &App, prompt: &str| {
        let done = turn(app, &id, json!({ "prompt": prompt })).await;
        assert_eq!(done.status, TurnStatus::Completed, "{prompt}: {:?}", done.error);
    };
    ask(&app, "read z.rs").await;
    let first = server.requests()[0].json();
    let told = system(&first);
    assert!(told.contains("\n\ntop\nimported style") && !told.contains("instructions of"), "{told}");
    assert!(told.contains("\nGit branch when this was written: feat/one\n"), "{told}");
    assert_eq!(count(&server, "instructions of a"), 0);
    // Two calls of one round get there side by side.
    ask(&app, "read a/y.rs a/b/x.rs").await;
    let last = server.requests().last().unwrap().json();
    let messages = last["messages"].as_array().unwrap();
    let behind = messages.last().unwrap();
    assert_eq!(behind["role"], "user", "behind the results of the round");
    let words = behind.to_string();
    assert!(words.contains("Instructions from ") && words.contains("a/AGENTS.md:\\n\\ninstructions of a"), "{words}");
    assert!(words.contains("a/b/CLAUDE.md:\\n\\ninstructions of b"), "{words}");
    ask(&app, "read a/y.rs").await;
    assert_eq!((count(&server, "instructions of a"), count(&server, "instructions of b")), (1, 1));
    // They are in the log, as findings of the calls that got there.
    let found: Vec<String> = events(&app, &id)
        .await
        .into_iter()
        .flat_map(|event| match event {
            EventBody::ToolCallEnd { findings, .. } => findings,
            _ => Vec::new(),
        })
        .collect();
    assert_eq!(found.len(), 2, "{found:?}");
    let before = server.requests().last().unwrap().json()["messages"].clone();
    app.shutdown(Duration::ZERO).await.unwrap();
    let app = begin(home.path(), &server, "m").await;
    ask(&app, "read a/b/x.rs").await;
    assert_eq!((count(&server, "instructions of a"), count(&server, "instructions of b")), (1, 1), "once in a session");
    let after = server.requests().last().unwrap().json()["messages"].clone();
    let (before, after) = (before.as_array().unwrap(), after.as_array().unwrap());
    assert_eq!(before[..], after[..before.len()], "the log says the same");
    app.shutdown(Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn files_that_change_are_read_again_and_what_changes_by_itself_stays() {
    let home = tempfile::tempdir().unwrap();
    project(home.path());
    let server = ModelServer::start(script()).await;
    let app = begin(home.path(), &server, "m").await;
    let id = session(&app, json!({})).await;
    let mut said = Vec::new();
    let changes: [(&str, &str); 4] = [
        ("work/z.rs", "no instructions"),
        ("work/.git/HEAD", "ref: refs/heads/two\n"),
        ("work/docs/style.md", "another style\n"),
        ("work/CLAUDE.md", "come lately\n"),
    ];
    for (path, text) in changes {
        turn(&app, &id, json!({ "prompt": "go on" })).await;
        fs::write(home.path().join(path), text).unwrap();
        turn(&app, &id, json!({ "prompt": "go on" })).await;
        said.push(system(&server.requests().last().unwrap().json()));
    }
    assert_eq!(said[0], said[1], "a branch that changes does not change what stands before everything else");
    assert!(said[1].contains("imported style") && said[2].contains("top\nanother style"), "{}", said[2]);
    assert!(said[3].contains("come lately"), "{}", said[3]);
    // A new session is told how things are.
    let other = session(&app, json!({})).await;
    turn(&app, &other, json!({ "prompt": "go on" })).await;
    assert!(system(&server.requests().last().unwrap().json()).contains("Git branch when this was written: two\n"));
    app.shutdown(Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn a_model_is_given_the_text_of_its_family() {
    let home = tempfile::tempdir().unwrap();
    project(home.path());
    for (model, words) in [
        ("gpt-5", "do not hand it back half way"),
        ("claude-opus-5", "<work>"),
        ("gemini-3-pro", "# Ground rules"),
        ("qwen3-coder:30b", "Follow these steps for every task"),
        ("llama3.2:3b", "In each step make one call"),
        ("m", "look, change, check, report"),
    ] {
        let server = ModelServer::start(script()).await;
        let app = begin(home.path(), &server, model).await;
        let id = session(&app, json!({})).await;
        turn(&app, &id, json!({ "prompt": "go on" })).await;
        let told = system(&server.requests()[0].json());
        assert!(told.starts_with("You are a coding agent") && told.contains(words), "{model}: {told}");
        app.shutdown(Duration::ZERO).await.unwrap();
    }
}
