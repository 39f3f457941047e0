//! The log as the truth: sessions that real runs have made are checked, exported, imported, and read again to the byte.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::model_server::{Answer, ModelServer, Script};
use crate::support::program::Program;

/// Does what the prompt says.
fn script() -> Script {
    std::sync::Arc::new(|request| {
        let messages = request.json()["messages"].clone();
        let messages = messages.as_array().cloned().unwrap_or_default();
        let last = messages.last().filter(|last| last["role"] == "user").map(Value::to_string).unwrap_or_default();
        if last.contains("slow") {
            let words: Vec<String> = (0..2_000).map(|n| format!("w{n} ")).collect();
            return Answer::paced(&words.iter().map(String::as_str).collect::<Vec<_>>(), Duration::from_micros(500));
        }
        match () {
            () if last.contains("fail") => Answer::status(400, &[], r#"{"error":{"message":"not so"}}"#),
            () if last.contains("call") => {
                Answer::calls("so", &[("c1", "fs_list", json!({})), ("c2", "fs_read", json!({ "path": "none" }))])
            }
            () => Answer::text(&["all ", "è ", "well"]),
        }
    })
}

async fn prompt(program: &Program, session: &str, text: &str) -> Value {
    let path = format!("/sessions/{session}/prompt?wait=true");
    let (status, record) = program.call("POST", &path, Some(json!({ "prompt": text }))).await;
    assert_eq!(status, 200, "{record}");
    record
}

async fn begun(program: &Program, session: &str, text: &str) -> u64 {
    let (_, view) = program.call("GET", &format!("/sessions/{session}"), None).await;
    let last = view["lastSeq"].as_u64().unwrap();
    let path = format!("/sessions/{session}/prompt");
    assert_eq!(program.call("POST", &path, Some(json!({ "prompt": text }))).await.0, 202);
    last
}

/// Waits until the model's text runs.
async fn streams(program: &Program, session: &str, after: u64) {
    let mut events = program.events(session, after).await;
    while !events.next().await.expect("the stream goes on").1.contains("stream.delta") {}
}

async fn simse(arguments: &[&str], data: &Path) -> (i32, String, String) {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_simse"));
    command.args(arguments).arg("--data-dir").arg(data).env("HOME", data).env_remove("SIMSE_CONFIG");
    let Output { status, stdout, stderr } = command.output().await.expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (status.code().expect("no signal"), text(stdout), text(stderr))
}

/// The last `count` events of a stream from the first on.
async fn stream(program: &Program, session: &str) -> Vec<String> {
    let (_, view) = program.call("GET", &format!("/sessions/{session}"), None).await;
    let mut events = program.events(session, 0).await;
    let mut lines = Vec::new();
    for _ in 0..view["lastSeq"].as_u64().unwrap() {
        lines.push(events.next().await.expect("the log goes on").1);
    }
    lines
}

/// A server that has run turns of every kind, with one killed in its midst.
async fn worked(data: &Path, work: &Path, model: &ModelServer) -> Program {
    let program = Program::serve(data, work, &model.base_url()).await;
    for session in ["s", "other"] {
        assert_eq!(program.call("POST", "/sessions", Some(json!({ "sessionId": session }))).await.0, 201);
    }
    assert_eq!(prompt(&program, "s", "hello").await["status"], "completed");
    assert_eq!(prompt(&program, "s", "fail").await["status"], "failed");
    assert_eq!(prompt(&program, "s", "call").await["status"], "completed");
    let at = begun(&program, "s", "slow").await;
    begun(&program, "s", "queued behind it").await;
    streams(&program, "s", at).await;
    let steer = json!({ "prompt": "steered", "mode": "steer" });
    assert_eq!(program.call("POST", "/sessions/s/prompt", Some(steer)).await.0, 202);
    assert_eq!(program.call("POST", "/sessions/s/abort", Some(json!({ "reason": "enough" }))).await.0, 200);
    // Behind what the abort left queued.
    assert_eq!(prompt(&program, "s", "and now?").await["status"], "completed");
    let at = begun(&program, "s", "slow again").await;
    streams(&program, "s", at).await;
    begun(&program, "s", "queued at the end").await;
    program.kill().await;
    let program = Program::serve(data, work, &model.base_url()).await;
    assert_eq!(prompt(&program, "s", "after it").await["status"], "completed");
    program
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_real_runs_leave_is_sound_and_travels_to_the_byte() {
    let home = tempfile::tempdir().unwrap();
    let (data, work) = (home.path().join("data"), home.path().join("work"));
    std::fs::create_dir(&work).unwrap();
    let model = ModelServer::start(script()).await;
    let program = worked(&data, &work, &model).await;
    let events = stream(&program, "s").await;
    let again = stream(&program, "s").await;
    assert_eq!(events, again, "two clients see one order");

    // Every view follows from the log, while a server runs and afterwards.
    let (code, said, note) = simse(&["check", "--heads"], &data).await;
    assert!(code == 0 && said.contains("nothing is wrong") && note.contains("a server has"), "{code} {said} {note}");
    let (code, exported, _) = simse(&["export", "s"], &data).await;
    assert_eq!(code, 0);
    let refused = home.path().join("live.jsonl");
    std::fs::write(&refused, &exported).unwrap();
    let (code, _, why) = simse(&["import", refused.to_str().unwrap(), "--new-id"], &data).await;
    assert!(code == 3 && why.contains("in use"), "{code} {why}");
    let file = home.path().join("s.jsonl");
    assert_eq!(simse(&["export", "s", "--out", file.to_str().unwrap()], &data).await.0, 0);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), exported);
    let (_, view) = program.call("GET", "/sessions/s", None).await;
    let (_, history) = program.call("GET", "/sessions/s/history?limit=1000", None).await;
    program.kill().await;
    let (code, said, _) = simse(&["check"], &data).await;
    assert!(code == 0 && said.contains("2 sessions"), "{code} {said}");

    // The file has the very events that were streamed.
    let lines: Vec<&str> = exported.lines().collect();
    let in_file: Vec<&str> = lines.iter().filter_map(|l| l.strip_prefix(r#"{"event":"#)?.strip_suffix('}')).collect();
    assert_eq!(in_file, events);
    let head: Value = serde_json::from_str(lines.last().unwrap()).unwrap();
    let (_, heads, _) = simse(&["check", "--heads"], &data).await;
    assert!(heads.contains(&format!("s\t{}\t{}", events.len(), head["end"]["chain"].as_str().unwrap())), "{heads}");

    // In another place it is the same session, and goes on.
    let place = home.path().join("place");
    let path = file.to_str().unwrap();
    assert_eq!(simse(&["import", path], &place).await.0, 0);
    let (code, _, why) = simse(&["import", path], &place).await;
    assert!(code == 1 && why.contains("exists already"), "{code} {why}");
    let (code, renamed, _) = simse(&["import", path, "--new-id", "--client", "ada"], &place).await;
    assert_eq!(code, 0);
    assert_eq!(simse(&["check"], &place).await.0, 0);
    let program = Program::serve(&place, &work, &model.base_url()).await;
    assert_eq!(stream(&program, "s").await, events);
    assert_eq!(program.call("GET", "/sessions/s", None).await.1, view);
    assert_eq!(program.call("GET", "/sessions/s/history?limit=1000", None).await.1, history);
    assert_eq!(prompt(&program, "s", "here").await["status"], "completed");
    assert_eq!(program.call("GET", &format!("/sessions/{}", renamed.trim()), None).await.0, 404, "another client's");
    program.kill().await;
    assert_eq!(simse(&["check"], &place).await.0, 0);

    files_made_by_hand_are_refused(&exported, home.path()).await;
}

async fn files_made_by_hand_are_refused(exported: &str, home: &Path) {
    let lines: Vec<&str> = exported.lines().collect();
    let last = lines.len();
    let with = |at: usize, from: &str, to: &str| {
        let mut lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        assert!(lines[at - 1].contains(from), "{}: {from}", lines[at - 1]);
        lines[at - 1] = lines[at - 1].replacen(from, to, 1);
        lines.join("\n")
    };
    let without = |at: usize| [&lines[..at - 1], &lines[at..]].concat().join("\n");
    let prompt = 1 + lines.iter().position(|line| line.contains("session.prompt")).unwrap();
    let session = 1 + lines.iter().position(|line| line.starts_with(r#"{"session":"#)).unwrap();
    let chain = format!("line {last}, `end.chain`");
    #[rustfmt::skip]
    let table = [
        (String::new(),                                                     "line 1, `end`".to_owned()),
        ("no JSON".into(),                                                  "line 1, ".into()),
        (with(1, "\"version\":1", "\"version\":2"),                         "line 1, `head.version`".into()),
        (with(1, "simse.session", "other"),                                 "line 1, `head.format`".into()),
        (without(1),                                                        "line 1, `head`".into()),
        (without(3),                                                        "line 3, `event.seq`".into()),
        (with(2, "session.created", "session.made"),                        "line 2, `event`".into()),
        (with(prompt, "\"prompt\":", "\"promt\":"),                         format!("line {prompt}, `event`")),
        (with(prompt, "\"seq\":", "\"extra\":1,\"seq\":"),                  format!("line {prompt}, `event.extra`")),
        (with(prompt, "\"sessionId\":\"s\",\"turnId\"", "\"sessionId\":\"t\",\"turnId\""), format!("line {prompt}, `event.sessionId`")),
        (with(prompt, "hello", "hallo"),                                    chain.clone()),
        (with(prompt, "\"at\":1", "\"at\":2"),                              chain.clone()),
        (with(session, "\"message_count\":", "\"message_count\":1"),        format!("line {last}, `session`: expected views")),
        (with(session, "\"status\":\"completed\"", "\"status\":\"done\""),  format!("line {session}, `session.status`")),
        (with(last, "\"events\":", "\"events\":1"),                         format!("line {last}, `end`")),
        (with(last, "\"chain\":\"", "\"chain\":\"0"),                       chain),
        (without(last),                                                     format!("line {last}, `end`")),
        (without(session),                                                  format!("line {session}, `turn`")),
        (format!("{exported}{{}}\n"),                                       format!("line {}, ", last + 1)),
    ];
    let (place, file) = (home.join("never"), home.join("wrong.jsonl"));
    for (text, want) in table {
        std::fs::write(&file, &text).unwrap();
        let (code, said, why) = simse(&["import", file.to_str().unwrap()], &place).await;
        assert!(code == 1 && said.is_empty() && why.contains(&want), "{want}: {code} {why}");
    }
    assert!(!place.exists(), "a file that is refused leaves nothing");
}
