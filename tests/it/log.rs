//! The log as the truth: sessions that real runs have made are checked, exported, imported, and read again to the byte.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::http::within;
use crate::support::model_server::{Answer, ModelServer, Script};
use crate::support::program::Program;

/// Does what the prompt says.
pub(super) fn script() -> Script {
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
            () if last.contains("write") => {
                Answer::calls("so", &[("c9", "fs_write", json!({ "path": "made.txt", "content": "x" }))])
            }
            () if last.contains("call") => {
                Answer::calls("so", &[("c1", "fs_list", json!({})), ("c2", "fs_read", json!({ "path": "none" }))])
            }
            () => Answer::text(&["all ", "è ", "well"]),
        }
    })
}

pub(super) async fn prompt(program: &Program, session: &str, text: &str) -> Value {
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

pub(super) async fn simse(arguments: &[&str], data: &Path) -> (i32, String, String) {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_simse"));
    command.args(arguments).arg("--data-dir").arg(data).env("HOME", data).env_remove("SIMSE_CONFIG");
    let Output { status, stdout, stderr } = within(command.kill_on_drop(true).output()).await.expect("it runs");
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
pub(super) async fn worked(data: &Path, work: &Path, model: &ModelServer) -> Program {
    let program = Program::serve(data, work, &model.base_url()).await;
    for session in ["s", "other"] {
        assert_eq!(program.call("POST", "/sessions", Some(json!({ "sessionId": session }))).await.0, 201);
    }
    assert_eq!(prompt(&program, "s", "hello").await["status"], "completed");
    let settings = json!({ "title": "a title", "tools": ["-bash"], "instructions": "Be brief.", "reasoning": "low" });
    assert_eq!(program.call("PATCH", "/sessions/s", Some(settings)).await.0, 200);
    assert_eq!(program.call("PATCH", "/sessions/s", Some(json!({ "tools": ["+bash", "-fs_write"] }))).await.0, 200);
    let changing = json!({ "prompt": "hello again", "configure": { "permissionMode": "plan", "instructions": "" } });
    assert_eq!(program.call("POST", "/sessions/s/prompt?wait=true", Some(changing)).await.0, 200);
    assert_eq!(prompt(&program, "s", "fail").await["status"], "failed");
    assert_eq!(prompt(&program, "s", "call").await["status"], "completed");
    let at = begun(&program, "s", "slow").await;
    begun(&program, "s", "queued behind it").await;
    streams(&program, "s", at).await;
    let steer = json!({ "prompt": "steered", "mode": "steer" });
    assert_eq!(program.call("POST", "/sessions/s/prompt", Some(steer)).await.0, 202);
    let later = json!({ "prompt": "later", "configure": { "title": "another title" } });
    assert_eq!(program.call("POST", "/sessions/s/prompt", Some(later)).await.0, 202);
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
    assert_eq!(pages(&program, "s", "&limit=7").await, events, "pages of the log are the stream");
    let ends = pages(&program, "s", "&types=session.completed,abort,session.error").await;
    let want = events.iter().filter(|e| {
        ["session.completed", "abort", "session.error"].iter().any(|kind| e.contains(&format!(r#""type":"{kind}""#)))
    });
    assert_eq!(ends, want.cloned().collect::<Vec<_>>());
    for (query, field) in [("types=abort", "types"), ("events=true&types=nothing", "types"), ("events=1", "events")] {
        let (status, body) = program.call("GET", &format!("/sessions/s/history?{query}"), None).await;
        assert_eq!((status, body["error"]["details"]["field"].as_str()), (400, Some(field)), "{query}: {body}");
    }

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
    assert!(code == 1 && why.contains("is taken"), "{code} {why}");
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
        (with(session, "\"message_count\":", "\"message_count\":1"),        format!("line {session}, `session`: expected views")),
        (with(session, "\"version\":", "\"version\":1"),                    format!("line {session}, `session`: expected views")),
        (with(session, "another title", "a third one"),                     format!("line {session}, `session`: expected views")),
        (with(session, "\"reasoning\":\"low\"", "\"reasoning\":\"high\""), format!("line {session}, `session`: expected views")),
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

/// What was granted in a session does not come along with its file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grants_are_in_the_log_and_stay_where_they_were_given() {
    let home = tempfile::tempdir().unwrap();
    let (data, work, place) = (home.path().join("data"), home.path().join("work"), home.path().join("place"));
    std::fs::create_dir(&work).unwrap();
    let model = ModelServer::start(script()).await;
    let program = Program::serve(&data, &work, &model.base_url()).await;
    let rules = json!({ "defaultPolicy": "ask", "rules": [] });
    program.call("POST", "/sessions", Some(json!({ "sessionId": "s", "toolPermissions": rules }))).await;
    begun(&program, "s", "call").await;
    let mut events = program.events("s", 0).await;
    let mut kinds = Vec::new();
    while kinds.last().is_none_or(|kind| kind != "session.completed") {
        let event: Value = serde_json::from_str(&events.next().await.expect("the stream goes on").1).unwrap();
        if event["type"] == "permission.request" {
            let answer = json!({ "requestId": event["payload"]["requestId"], "decision": "allow_always" });
            assert_eq!(program.call("POST", "/sessions/s/feedback", Some(answer)).await.0, 200);
        }
        kinds.push(event["type"].as_str().unwrap().to_owned());
    }
    assert!(kinds.contains(&"permission.granted".to_owned()), "{kinds:?}");
    let (_, held) = program.call("GET", "/permissions/grants?sessionId=s", None).await;
    assert!(!held["items"].as_array().unwrap().is_empty(), "{held}");
    program.kill().await;
    assert_eq!(simse(&["check"], &data).await.0, 0);
    let file = home.path().join("s.jsonl");
    assert_eq!(simse(&["export", "s", "--out", file.to_str().unwrap()], &data).await.0, 0);
    let (code, _, why) = simse(&["import", file.to_str().unwrap()], &place).await;
    assert_eq!(code, 0, "{why}");
    let (code, said, _) = simse(&["check"], &place).await;
    assert!(code == 0 && said.contains("nothing is wrong"), "{said}");
    let program = Program::serve(&place, &work, &model.base_url()).await;
    let (_, held) = program.call("GET", "/permissions/grants?sessionId=s", None).await;
    assert_eq!(held["items"], json!([]));
    let last = stream(&program, "s").await.pop().unwrap();
    assert!(last.contains("permission.revoked") && last.contains(r#""reason":"imported""#), "{last}");
    program.kill().await;
}

/// The pages of a log, raw: each page's events as text.
async fn pages(program: &Program, session: &str, query: &str) -> Vec<String> {
    let (mut cursor, mut items) = ("0".to_owned(), Vec::new());
    loop {
        let path = format!("/sessions/{session}/history?events=true&cursor={cursor}{query}");
        let body = program.text("GET", &path, None).await.1;
        let page: Value = serde_json::from_str(&body).unwrap();
        let events = page["items"].as_array().unwrap().iter().map(Value::to_string);
        let events: Vec<String> = events.collect();
        let next = &page["nextCursor"];
        // Not only the same values: the same text.
        assert_eq!(body, format!(r#"{{"items":[{}],"nextCursor":{next}}}"#, events.join(",")));
        items.extend(events);
        match next.as_str() {
            Some(next) => next.clone_into(&mut cursor),
            None => return items,
        }
    }
}

fn long_row(id: &str) -> simse::store::SessionRow {
    let settings = json!({ "working_directory": "/", "model": "demo/scripted" });
    let usage = json!({ "inputTokens": 0, "outputTokens": 0, "totalTokens": 0 });
    let row = json!({
        "id": id, "client": null, "status": "created", "version": 0, "created_at": 1, "updated_at": 1,
        "message_count": 0, "usage": usage, "settings": settings,
    });
    serde_json::from_value(row).unwrap()
}

/// A session of so many events, put into a store.
async fn long_session(store: &std::sync::Arc<dyn simse::store::Store>, id: &str, count: u64) {
    let text = |seq| {
        let (kind, payload) = match seq {
            1 => ("session.created", format!(r#"{{"sessionId":"{id}"}}"#)),
            seq => ("stream.delta", format!(r#"{{"text":"word number {seq} "}}"#)),
        };
        serde_json::from_str(&format!(
            r#"{{"seq":{seq},"type":"{kind}","payload":{payload},"sessionId":"{id}","at":1700000000000}}"#
        ))
        .unwrap()
    };
    let create = simse::store::Write::CreateSession(Box::new(long_row(id)));
    simse::store::commit(store, vec![create]).await.unwrap();
    let mut next = 1;
    while next <= count {
        let last = (next + 999).min(count);
        let events = std::sync::Arc::new((next..=last).map(text).collect());
        simse::store::commit(store, vec![simse::store::Write::Append(id.parse().unwrap(), events)]).await.unwrap();
        next = last + 1;
    }
}

#[tokio::test]
async fn a_reader_of_a_long_log_takes_little_at_a_time_and_loses_nothing() {
    const COUNT: u64 = 100_000;
    let home = tempfile::tempdir().unwrap();
    let store: std::sync::Arc<dyn simse::store::Store> =
        std::sync::Arc::new(simse::store::SqliteStore::open(home.path()).unwrap());
    long_session(&store, "long", COUNT).await;
    store.close().await.unwrap();
    let mut settings = simse::config::Settings::new(home.path().to_owned());
    settings.storage = simse::config::Storage::Directory(home.path().to_owned());
    let app = simse::app::App::open(settings, simse::app::Extras::default()).await.unwrap();
    let (caller, id) = (simse::app::Caller::default(), "long".parse().unwrap());
    // One that stands still all the time holds nothing.
    let still = app.events(&caller, &id, 0).await.unwrap();
    let mut reader = app.events(&caller, &id, 0).await.unwrap();
    let (mut at, mut largest) = (0, 0);
    while at < COUNT {
        let batch = reader.next().await.unwrap().expect("there is more");
        largest = largest.max(batch.events.iter().map(|event| event.payload.get().len()).sum());
        for event in batch.events.iter() {
            assert_eq!(event.seq, at + 1);
            at = event.seq;
        }
    }
    assert!(largest <= 1 << 20, "{largest} bytes at once");
    assert_eq!(still.position(), 0);
    let mut end = app.events(&caller, &id, COUNT - 3).await.unwrap();
    assert_eq!(end.next().await.unwrap().expect("three").events.len(), 3);
    drop((still, reader, end));
    app.shutdown(Duration::ZERO).await.unwrap();
}

/// Items may be as large as they like: both ways through the history, and the picture of the session, show all of them, at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_items_are_in_every_view() {
    const PAGES_MAX: usize = 40;
    let home = tempfile::tempdir().unwrap();
    let (data, work) = (home.path().join("data"), home.path().join("work"));
    std::fs::create_dir(&work).unwrap();
    // As large as it was asked.
    let echo: Script = std::sync::Arc::new(|request| {
        let messages = request.json()["messages"].clone();
        let last = messages.as_array().and_then(|all| all.last()).map(|last| last["content"].to_string().len());
        Answer::text(&["y".repeat(last.unwrap_or_default()).as_str()])
    });
    let model = ModelServer::start(echo).await;
    // They are more than any window has room for: nothing is to be summed up here.
    let config = home.path().join("simse.toml");
    std::fs::write(&config, "compact_percent = 0\n").unwrap();
    let program = Program::serve_as(&data, &work, &model.base_url(), Some(&config)).await;
    program.call("POST", "/sessions", Some(json!({ "sessionId": "s" }))).await;
    let sizes = [600_000, 1_900_000, 10, 1_100_000];
    for (turns, size) in (1..).zip(sizes) {
        prompt(&program, "s", &"x".repeat(size)).await;
        let expected = 2 * turns;
        let walk = async |way: &str| {
            let (mut seqs, mut cursor) = (Vec::<u64>::new(), String::new());
            for _ in 0..PAGES_MAX {
                let (status, page) =
                    program.call("GET", &format!("/sessions/s/history?limit=1000{way}{cursor}"), None).await;
                assert_eq!(status, 200, "{page}");
                let bytes = page.to_string().len();
                assert!(bytes < 16 << 20, "{bytes} bytes in a page");
                seqs.extend(page["items"].as_array().unwrap().iter().map(|item| item["seq"].as_u64().unwrap()));
                let Some(next) = page["nextCursor"].as_str() else { return seqs };
                cursor = format!("&cursor={next}");
            }
            panic!("{PAGES_MAX} pages, and no end: {seqs:?}");
        };
        let forward = walk("").await;
        let mut back = walk("&back=true").await;
        back.reverse();
        assert_eq!((forward.len(), &forward), (expected, &back), "behind {turns} turns");
        let (_, view) = program.call("GET", "/sessions/s?snapshot=true", None).await;
        let items = view["snapshot"]["items"].as_array().unwrap();
        assert_eq!(
            (&view["messageCount"], items.last().map(|item| &item["seq"])),
            (&json!(expected), forward.last().map(|seq| json!(seq)).as_ref())
        );
        assert!(items.len() == expected || view["snapshot"]["before"].is_string(), "{} items", items.len());
    }
    program.kill().await;
}
