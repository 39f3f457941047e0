//! Configured hooks: commands in the file of a real program, from the prompt to the model's next request.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::support::model_server::{Answer, ModelServer};
use crate::support::program::Program;

const CONFIG: &str = r#"
default_policy = "allow"

[[hooks]]
event = "session.start"
command = "env > environment; echo 'the house rules'"

[[hooks]]
event = "prompt.submit"
command = "if grep -q secret; then echo 'that is secret' >&2; exit 2; fi"

[[hooks]]
event = "tool.result.validate"
matcher = "fs_write|fs_edit"
command = "cat > seen; if grep -n TODO a.txt >&2; then exit 2; fi"

[[hooks]]
event = "tool.execute.before"
matcher = "bash"
command = "exit 1"

[[hooks]]
event = "turn.stop"
command = "[ -e stopped ] || { touch stopped; echo 'look again' >&2; exit 2; }"

[[hooks]]
event = "notification"
command = "cat >> news"
timeoutMs = 5000
"#;

/// A model that answers in this order, and what it was asked.
async fn model(answers: Vec<Answer>) -> (ModelServer, Arc<Mutex<Vec<Value>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (answers, log) = (Mutex::new(answers.into_iter()), Arc::clone(&asked));
    let script = Arc::new(move |request: &crate::support::model_server::Request| {
        log.lock().push(request.json());
        answers.lock().next().unwrap_or_else(|| Answer::text(&["the script is over"]))
    });
    (ModelServer::start(script).await, asked)
}

/// What the user's side has said in a request, a text each.
fn said(request: &Value) -> Vec<String> {
    let users = request["messages"].as_array().unwrap().iter().filter(|message| message["role"] == "user");
    users
        .map(|message| match &message["content"] {
            Value::String(text) => text.clone(),
            parts => {
                parts.as_array().unwrap().iter().map(|p| p["text"].as_str().unwrap()).collect::<Vec<_>>().join(" | ")
            }
        })
        .collect()
}

#[tokio::test]
async fn commands_of_the_file_hear_of_a_turn_and_have_their_say() {
    let home = tempfile::tempdir().unwrap();
    let (data, work, config) = (home.path().join("data"), home.path().join("work"), home.path().join("c.toml"));
    std::fs::create_dir(&work).unwrap();
    std::fs::write(&config, CONFIG).unwrap();
    let write =
        |id: &str, text: &str| Answer::calls("", &[(id, "fs_write", json!({ "path": "a.txt", "content": text }))]);
    let answers = vec![
        write("c1", "one\nTODO two\n"),
        Answer::calls("", &[("c2", "bash", json!({ "command": "touch ran" }))]),
        write("c3", "one\ntwo\n"),
        Answer::text(&["lazy"]),
        Answer::text(&["done"]),
    ];
    let (model, asked) = model(answers).await;
    let program = Program::serve_as(&data, &work, &model.base_url(), Some(&config)).await;
    let (_, session) = program.call("POST", "/sessions", Some(json!({}))).await;
    let path = format!("/sessions/{}/prompt?wait=true", session["sessionId"].as_str().unwrap());
    let (status, refused) = program.call("POST", &path, Some(json!({ "prompt": "the secret" }))).await;
    assert_eq!((status, &refused["error"]["details"]["reason"]), (403, &json!("that is secret")), "{refused}");
    let (_, turn) = program.call("POST", &path, Some(json!({ "prompt": "write" }))).await;
    assert_eq!((&turn["status"], &turn["result"]), (&json!("completed"), &json!("done")), "{turn}");

    let asked = asked.lock().clone();
    let prompt = "write | [Added by a hook]\nthe house rules";
    assert_eq!(said(&asked[0]), [prompt]);
    assert_eq!(said(&asked[1]), [prompt, "2:TODO two"], "what is found is in the next request");
    assert_eq!(said(&asked[3]), [prompt, "2:TODO two"], "nothing was found any more");
    assert_eq!(said(&asked[4]), [prompt, "2:TODO two", "look again"]);
    let refusal = asked[2]["messages"].to_string();
    assert!(refusal.contains("was blocked: hooks[3] failed: it ended with exit code 1"), "{refusal}");
    assert!(!work.join("ran").exists(), "a guard that fails lets nothing pass");

    let seen: Value = serde_json::from_slice(&std::fs::read(work.join("seen")).unwrap()).unwrap();
    assert_eq!((&seen["event"], &seen["turnId"]), (&json!("tool.result.validate"), &turn["turnId"]));
    assert_eq!(seen["request"]["arguments"]["path"], "a.txt");
    let environment = std::fs::read_to_string(work.join("environment")).unwrap();
    assert!(environment.contains("PATH=") && !environment.contains("SIMSE_INTERRUPT_GRACE_MS"), "{environment}");
    // It is told behind the turn's back.
    let begin = std::time::Instant::now();
    let heard = |news: &str| news.contains("\"kind\":\"turn_ended\"") && news.contains("\"status\":\"completed\"");
    let news = || std::fs::read_to_string(work.join("news")).unwrap_or_default();
    while !heard(&news()) && begin.elapsed() < std::time::Duration::from_secs(20) {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert!(heard(&news()), "{}", news());
    program.kill().await;
}
