//! What turns did to files, over HTTP: shown, undone, redone, with what stands against it; and across a `kill -9`.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use simse::config::Storage;
use simse::server::ListenOptions;

use crate::support::house::{Does, House};
use crate::support::http::Frame;
use crate::support::model_server::{Answer, ModelServer, Script};
use crate::support::program::Program;

async fn open() -> (House, tempfile::TempDir) {
    let data = tempfile::tempdir().unwrap();
    let storage = Storage::Directory(data.path().join("data"));
    let house = House::with(ListenOptions::default(), |settings| {
        settings.storage = storage;
        settings.permissions.default_policy = simse::protocol::PermissionPolicy::Allow;
    });
    (house.await, data)
}

fn last(frames: Vec<Frame>) -> Value {
    frames.into_iter().next_back().unwrap().data
}

fn write(path: &str, content: &str) -> Does {
    Does::Calls("fs_write", json!({ "path": path, "content": content }))
}

async fn prompt(house: &House, session: &str) -> String {
    let turn =
        house.call("POST", &format!("/sessions/{session}/prompt?wait=true"), Some(json!({ "prompt": "go" }))).await;
    assert_eq!((turn.status, &turn.json()["status"]), (200, &json!("completed")), "{turn:?}");
    turn.json()["turnId"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_is_shown_undone_and_redone() {
    let (house, _data) = open().await;
    let text = |name: &str| std::fs::read_to_string(house.work.path().join(name)).ok();
    std::fs::write(house.work.path().join("a"), "one\n").unwrap();
    let id = house.session(json!({})).await;
    house.round(&[write("a", "two\n"), Does::Calls("bash", json!({ "command": "echo 1 > b; cat b" }))]);
    let turn = prompt(&house, &id).await;

    let diff = house.call("GET", &format!("/sessions/{id}/diff?turn={turn}"), None).await.json();
    let files: Vec<Value> = diff["files"].as_array().unwrap().clone();
    let lines = |at: usize| (files[at]["path"].clone(), files[at]["kind"].clone(), files[at]["added"].clone());
    assert_eq!(lines(0), (json!("a"), json!("M"), json!(1)), "{diff}");
    assert_eq!(lines(1), (json!("b"), json!("A"), json!(1)), "{diff}");
    assert_eq!(files[0]["diff"], "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-one\n+two\n");
    assert_eq!(
        (&diff["fileCount"], &diff["truncatedCount"], &diff["nextCursor"]),
        (&json!(2), &json!(0), &Value::Null)
    );
    assert_eq!(diff["turns"][0]["turnId"], turn.as_str());
    let mut events = house.events(&id, "?types=turn.changes,changes.undone,changes.redone").await;
    let told = last(events.until("turn.changes").await);
    assert_eq!((&told["payload"]["files"], &told["turnId"]), (&diff["files"], &json!(turn)));

    let undone = house.call("POST", &format!("/sessions/{id}/undo"), Some(json!({}))).await;
    assert_eq!((undone.status, &undone.json()["turnIds"]), (200, &json!([turn])), "{undone:?}");
    assert_eq!((text("a").as_deref(), text("b")), (Some("one\n"), None));
    assert_eq!(last(events.until("changes.undone").await)["payload"]["paths"], json!(["a", "b"]));
    let nothing = house.call("POST", &format!("/sessions/{id}/undo"), None).await;
    assert_eq!((nothing.status, nothing.code().as_str()), (409, "CONFLICT"));
    let whole = house.call("GET", &format!("/sessions/{id}/diff"), None).await.json();
    assert_eq!((&whole["fileCount"], &whole["turns"][0]["undone"]), (&json!(0), &json!(true)));

    let redone = house.call("POST", &format!("/sessions/{id}/redo"), Some(json!({ "turnId": turn }))).await;
    assert_eq!(redone.status, 200, "{redone:?}");
    assert_eq!((text("a").as_deref(), text("b").as_deref()), (Some("two\n"), Some("1\n")));
    events.until("changes.redone").await;

    std::fs::write(house.work.path().join("b"), "theirs").unwrap();
    let refused = house.call("POST", &format!("/sessions/{id}/undo"), None).await;
    assert_eq!((refused.status, refused.json()["error"]["details"]["conflicts"][0]["path"].as_str()), (409, Some("b")));
    assert_eq!((text("a").as_deref(), text("b").as_deref()), (Some("two\n"), Some("theirs")), "nothing was touched");
}

/// An undo takes as long as its files do: meanwhile the session is there for all who look, and what changes it waits its turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_looked_at_while_files_are_undone() {
    let (house, _data) = open().await;
    let text = || std::fs::read_to_string(house.work.path().join("a")).ok();
    let id = house.session(json!({})).await;
    house.round(&[write("a", "new\n")]);
    prompt(&house, &id).await;
    let base = format!("/sessions/{id}");
    // Whoever changes files holds this lock, so the undo waits for it.
    let records = simse::config::change_records_directory();
    std::fs::create_dir_all(&records).unwrap();
    let lock = std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(records.join("lock")).unwrap();
    lock.lock().unwrap();
    let path = format!("{base}/undo");
    let undo = house.call("POST", &path, None);
    let meanwhile = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        for path in [&*base, "/sessions", &format!("{base}?snapshot=true"), &format!("{base}/turns")] {
            assert_eq!(house.call("GET", path, None).await.status, 200, "{path}");
        }
        for control in ["abort", "pause"] {
            let refused = house.call("POST", &format!("{base}/{control}"), None).await;
            assert_eq!((refused.status, text().as_deref()), (409, Some("new\n")), "{control}: {refused:?}");
        }
    };
    let behind = async {
        tokio::time::sleep(Duration::from_millis(600)).await;
        let renamed = Some(json!({ "title": "t" }));
        let changes = async { tokio::join!(house.call("PATCH", &base, renamed), house.call("POST", &path, None)) };
        let unlock = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            lock.unlock().unwrap();
        };
        tokio::join!(changes, unlock).0
    };
    let (undone, (), (renamed, again)) = tokio::join!(undo, meanwhile, behind);
    assert_eq!((undone.status, text()), (200, None), "{undone:?}");
    assert_eq!((renamed.status, again.status), (200, 409), "{renamed:?} {again:?}");
    assert!(undone.json()["version"].as_u64() < renamed.json()["version"].as_u64());
}

/// What the turns of a deleted session did is nobody's: not that of the next one with its id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_later_session_of_the_same_id_has_nothing_to_undo() {
    let (data, work) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let open = |bytes_max: u64| {
        let (storage, work) = (Storage::Directory(data.path().join("data")), work.path().canonicalize().unwrap());
        House::with(ListenOptions::default(), move |settings| {
            settings.working_directory = work;
            settings.storage = storage;
            settings.permissions.default_policy = simse::protocol::PermissionPolicy::Allow;
            settings.limits.snapshot_bytes_max = bytes_max;
        })
    };
    let house = open(1 << 20).await;
    for id in ["again", "gone"] {
        house.session(json!({ "sessionId": id })).await;
        house.round(&[write(id, "secret\n")]);
        prompt(&house, id).await;
    }
    house.close().await;
    // Where nothing is recorded nothing is forgotten either.
    let house = open(0).await;
    for id in ["again", "gone"] {
        assert_eq!(house.call("DELETE", &format!("/sessions/{id}"), None).await.status, 200, "{id}");
    }
    house.session(json!({ "sessionId": "again" })).await;
    house.close().await;
    let house = open(1 << 20).await;
    let diff = house.call("GET", "/sessions/again/diff", None).await.json();
    assert_eq!((&diff["fileCount"], &diff["turns"]), (&json!(0), &json!([])), "{diff}");
    house.round(&[write("b", "mine\n")]);
    let turn = prompt(&house, "again").await;
    let undone = house.call("POST", "/sessions/again/undo", None).await.json();
    assert_eq!(undone["turnIds"], json!([turn]), "{undone}");
    assert_eq!(house.call("POST", "/sessions/again/undo", None).await.status, 409);
    // Of sessions that are gone nothing is kept, as soon as the server comes to it.
    let file = data.path().join("data/snapshots.db");
    let left = || {
        let open = rusqlite::Connection::open_with_flags(&file, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
        open.query_row("SELECT count(*) FROM turn WHERE session = 'gone'", [], |row| row.get::<_, i64>(0)).unwrap()
    };
    while left() > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_files_of_a_session_are_seen_and_no_others() {
    let (house, _data) = open().await;
    let put = |path: &str, text: &str| {
        let file = house.work.path().join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    };
    put(".gitignore", "out/\n");
    put("src/deep/wanted.rs", "1");
    put("out/wanted.o", "2");
    std::os::unix::fs::symlink("/etc", house.work.path().join("etc")).unwrap();
    let id = house.session(json!({})).await;
    let files = async |query: &str| house.call("GET", &format!("/sessions/{id}/files{query}"), None).await.json();
    let top = json!([
        { "path": "out", "kind": "directory", "ignored": true },
        { "path": "src", "kind": "directory" },
        { "path": ".gitignore", "kind": "file" },
        { "path": "etc", "kind": "link" },
    ]);
    assert_eq!(files("").await, json!({ "entries": top, "truncated": false }));
    assert_eq!(files("?path=src").await["entries"], json!([{ "path": "src/deep", "kind": "directory" }]));
    let wanted = json!([{ "path": "src/deep/wanted.rs", "kind": "file" }]);
    for query in ["?query=wan", "?query=WANTED&path=src", "?query=sdw&limit=1"] {
        assert_eq!(files(query).await, json!({ "entries": wanted, "truncated": false }), "{query}");
    }
    assert_eq!(files("?limit=1").await["truncated"], true);
    #[rustfmt::skip]
    let table = [
        ("?path=nowhere", 404, "directory nowhere"), ("?path=.gitignore", 400, "`path`"), ("?path=..", 400, "`path`"), ("?path=etc", 400, "`path`"),
        ("?path=/", 400, "`path`"), ("?limit=0", 400, "`limit`"), ("?limit=10001", 400, "`limit`"), ("?find=a", 400, "`find`"),
    ];
    for (query, status, words) in table {
        let reply = house.call("GET", &format!("/sessions/{id}/files{query}"), None).await;
        let said = reply.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(reply.status == status && said.contains(words), "{query}: {} {said}", reply.status);
    }
    let long = house.call("GET", &format!("/sessions/{id}/files?query={}", "a".repeat(1_001)), None).await;
    assert_eq!((long.status, long.code().as_str()), (400, "INVALID_ARGUMENT"));
    // A directory that is gone says so, and comes back.
    std::fs::rename(house.work.path().join("src"), house.work.path().join("gone")).unwrap();
    assert_eq!(house.call("GET", &format!("/sessions/{id}/files?path=src"), None).await.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_asked_for_says_why() {
    let (house, _data) = open().await;
    let id = house.session(json!({})).await;
    let base = format!("/sessions/{id}");
    #[rustfmt::skip]
    let table = [
        ("GET",  "/diff?turn=turn_0",        None,                               404, "NOT_FOUND"),
        ("GET",  "/diff?path=a",             None,                               404, "NOT_FOUND"),
        ("GET",  "/diff?path=a&cursor=b",    None,                               400, "INVALID_ARGUMENT"),
        ("GET",  "/diff?page=2",             None,                               400, "INVALID_ARGUMENT"),
        ("POST", "/undo",                    None,                               409, "CONFLICT"),
        ("POST", "/undo",                    Some(json!({"turnId": "turn_0"})),  404, "NOT_FOUND"),
        ("POST", "/redo",                    Some(json!({"turns": 2})),          400, "INVALID_ARGUMENT"),
        ("POST", "/undo",                    Some(json!({"ifVersion": 7})),      409, "CONFLICT"),
    ];
    for (method, path, body, status, code) in table {
        let reply = house.call(method, &format!("{base}{path}"), body).await;
        assert_eq!((reply.status, reply.code().as_str()), (status, code), "{method} {path}: {reply:?}");
    }
    house.round(&[Does::Waits, Does::Calls("fs_read", json!({ "path": "a" }))]);
    let going = house.call("POST", &format!("{base}/prompt"), Some(json!({ "prompt": "wait" }))).await.json();
    // Whoever waits for the end of a turn that is paused waits for ever.
    for (why, status, words) in [("busy", "running", "wait for its end"), ("paused", "paused", "resume or abort it")] {
        if why == "paused" {
            let pause = format!("{base}/pause");
            let mut events = house.events(&id, "").await;
            let goes_on = async {
                // It is accepted: the turn is to hold behind what it does now.
                events.until("turn.control").await;
                house.go_on();
            };
            let (paused, ()) = tokio::join!(house.call("POST", &pause, None), goes_on);
            assert_eq!(paused.json()["paused"], true, "{paused:?}");
        }
        let refused = house.call("POST", &format!("{base}/undo"), None).await;
        let error = &refused.json()["error"];
        assert!(refused.status == 409 && error["message"].as_str().unwrap().contains(words), "{refused:?}");
        assert_eq!(error["details"], json!({ "why": why, "turnId": going["turnId"], "status": status }));
    }
    let elsewhere = house.call("GET", "/sessions/none/diff", None).await;
    assert_eq!(elsewhere.status, 404);
    let none = House::open().await;
    let id = none.session(json!({})).await;
    let off = none.call("GET", &format!("/sessions/{id}/diff"), None).await;
    assert_eq!((off.status, off.code().as_str()), (409, "CONFLICT"));
}

/// Writes a file, then says what the next prompt is told of it.
fn script() -> Script {
    Arc::new(|request| {
        let messages = request.json()["messages"].clone();
        let all = messages.as_array().cloned().unwrap_or_default();
        let last = all.last().cloned().unwrap_or_default();
        if last["role"] == "tool" {
            return Answer::text(&["done"]);
        }
        if last["content"].to_string().contains("recall") {
            let told = messages.to_string().contains("The user undid");
            return Answer::text(&[if told { "told" } else { "not told" }]);
        }
        Answer::calls("", &[("call_1", "fs_write", json!({ "path": "a", "content": "two" }))])
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_outlives_a_kill_and_the_model_is_told() {
    let home = tempfile::tempdir().unwrap();
    let (data, work) = (home.path().join("data"), home.path().join("work"));
    std::fs::create_dir(&work).unwrap();
    std::fs::write(work.join("a"), "one").unwrap();
    let model = ModelServer::start(script()).await;
    let program = Program::serve(&data, &work, &model.base_url()).await;
    let rules = json!({ "defaultPolicy": "allow", "rules": [] });
    program.call("POST", "/sessions", Some(json!({ "sessionId": "s", "toolPermissions": rules }))).await;
    let (_, turn) = program.call("POST", "/sessions/s/prompt?wait=true", Some(json!({ "prompt": "go" }))).await;
    assert_eq!(std::fs::read_to_string(work.join("a")).unwrap(), "two", "{turn}");
    program.kill().await;

    let program = Program::serve(&data, &work, &model.base_url()).await;
    let (status, undone) = program.call("POST", "/sessions/s/undo", Some(json!({}))).await;
    assert_eq!((status, &undone["turnIds"]), (200, &json!([turn["turnId"]])), "{undone}");
    assert_eq!(std::fs::read_to_string(work.join("a")).unwrap(), "one");
    program.kill().await;

    let program = Program::serve(&data, &work, &model.base_url()).await;
    let (_, turn) = program.call("POST", "/sessions/s/prompt?wait=true", Some(json!({ "prompt": "recall" }))).await;
    assert_eq!(turn["result"], "told", "{turn}");
    let (status, _) = program.call("POST", "/sessions/s/redo", Some(json!({}))).await;
    assert_eq!((status, std::fs::read_to_string(work.join("a")).unwrap().as_str()), (200, "two"));
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(data.join("snapshots.db")).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
}

/// Calls the command that the prompt is.
fn does_what_it_is_told() -> Script {
    Arc::new(|request| {
        let messages = request.json()["messages"].clone();
        let last = messages.as_array().and_then(|all| all.last()).cloned().unwrap_or_default();
        if last["role"] == "tool" {
            return Answer::text(&["done"]);
        }
        let command = last["content"].as_str().map_or_else(|| last["content"][0]["text"].clone(), Value::from);
        Answer::calls("", &[("call_1", "bash", json!({ "command": command }))])
    })
}

async fn ask(program: &Program, command: &str) -> Value {
    let body = json!({ "prompt": command });
    let (status, turn) = program.call("POST", "/sessions/s/prompt?wait=true", Some(body)).await;
    assert_eq!((status, &turn["status"]), (200, &json!("completed")), "{turn}");
    turn
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_and_a_directory_take_each_others_place_and_go_back() {
    let home = tempfile::tempdir().unwrap();
    let (data, work) = (home.path().join("data"), home.path().join("work"));
    std::fs::create_dir_all(work.join("directory")).unwrap();
    std::fs::write(work.join("file"), "one").unwrap();
    std::fs::write(work.join("directory/in"), "two").unwrap();
    let text = |name: &str| std::fs::read_to_string(work.join(name)).ok();
    let all = || [text("file"), text("file/in"), text("directory"), text("directory/in")];
    let held = |all: [Option<&str>; 4]| all.map(|text| text.map(str::to_owned));
    let (before, after) = ([Some("one"), None, None, Some("two")], [None, Some("deep"), Some("flat"), None]);
    let model = ModelServer::start(does_what_it_is_told()).await;
    let program = Program::serve(&data, &work, &model.base_url()).await;
    let rules = json!({ "defaultPolicy": "allow", "rules": [] });
    program.call("POST", "/sessions", Some(json!({ "sessionId": "s", "toolPermissions": rules }))).await;
    ask(&program, "rm file && mkdir file && printf deep > file/in && rm -r directory && printf flat > directory").await;
    assert_eq!(all(), held(after));
    for (route, want) in [("undo", before), ("redo", after), ("undo", before)] {
        let (status, done) = program.call("POST", &format!("/sessions/s/{route}"), Some(json!({}))).await;
        assert_eq!((status, &done["left"], all()), (200, &Value::Null, held(want)), "{route}: {done}");
    }
    program.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_other_roots_all_that_works_with_files_is_refused_alike() {
    let home = tempfile::tempdir().unwrap();
    let (data, work, other) = (home.path().join("data"), home.path().join("work"), home.path().join("other"));
    std::fs::create_dir(&work).unwrap();
    std::fs::create_dir(&other).unwrap();
    let model = ModelServer::start(does_what_it_is_told()).await;
    let program = Program::serve(&data, &work, &model.base_url()).await;
    let rules = json!({ "defaultPolicy": "allow", "rules": [] });
    program.call("POST", "/sessions", Some(json!({ "sessionId": "s", "toolPermissions": rules }))).await;
    ask(&program, "printf 1 > a").await;
    ask(&program, "printf 2 > b").await;
    assert_eq!(program.call("POST", "/sessions/s/undo", Some(json!({}))).await.0, 200);
    program.kill().await;

    let program = Program::serve(&data, &other, &model.base_url()).await;
    let (_, turn) =
        program.call("POST", "/sessions/s/prompt?wait=true", Some(json!({ "prompt": "printf 3 > c" }))).await;
    assert_eq!(turn["status"], "failed", "{turn}");
    let words = &turn["error"]["message"];
    assert!(words.as_str().unwrap().contains("under an allowed root"), "{turn}");
    for (method, route, body) in [
        ("POST", "undo", Some(json!({}))),
        ("POST", "redo", Some(json!({}))),
        ("GET", "diff", None),
        ("POST", "fork", Some(json!({}))),
    ] {
        let (status, refused) = program.call(method, &format!("/sessions/s/{route}"), body).await;
        let said = (status, &refused["error"]["message"], &refused["error"]["details"]["field"]);
        assert_eq!(said, (400, words, &json!("workingDirectory")), "{route}: {refused}");
    }
    assert_eq!((work.join("a").exists(), work.join("b").exists(), work.join("c").exists()), (true, false, false));
    program.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_turn_did_is_undone_also_from_another_directory() {
    let home = tempfile::tempdir().unwrap();
    let (data, work) = (home.path().join("data"), home.path().join("work"));
    for name in ["one", "two"] {
        std::fs::create_dir_all(work.join(name)).unwrap();
        std::fs::write(work.join(name).join("f"), "before").unwrap();
    }
    let text = |name: &str| std::fs::read_to_string(work.join(name)).unwrap();
    let model = ModelServer::start(does_what_it_is_told()).await;
    let program = Program::serve(&data, &work, &model.base_url()).await;
    let session = json!({
        "sessionId": "s", "workingDirectory": "one", "toolPermissions": { "defaultPolicy": "allow", "rules": [] },
    });
    program.call("POST", "/sessions", Some(session)).await;
    ask(&program, "printf after > f").await;
    let (status, moved) = program.call("PATCH", "/sessions/s", Some(json!({ "workingDirectory": "two" }))).await;
    assert_eq!(status, 200, "{moved}");
    let (_, diff) = program.call("GET", "/sessions/s/diff", None).await;
    assert_eq!((&diff["fileCount"], &diff["files"][0]["notUndoable"]), (&json!(1), &Value::Null), "{diff}");
    for (route, want) in [("undo", "before"), ("redo", "after"), ("undo", "before")] {
        let (status, done) = program.call("POST", &format!("/sessions/s/{route}"), Some(json!({}))).await;
        assert_eq!((status, text("one/f").as_str(), text("two/f").as_str()), (200, want, "before"), "{route}: {done}");
    }
    program.kill().await;
}

/// Of what a command leaves behind, and of what comes back, only a piece is in memory at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_files_are_recorded_and_brought_back_in_little_memory() {
    const FILES: usize = 11;
    const MIB: usize = 20;
    // A program built for development has some 90 of itself in memory by then.
    const MOST_MB: u64 = 180;
    let home = tempfile::tempdir().unwrap();
    let (data, work) = (home.path().join("data"), home.path().join("work"));
    std::fs::create_dir(&work).unwrap();
    let model = ModelServer::start(does_what_it_is_told()).await;
    let program = Program::serve(&data, &work, &model.base_url()).await;
    let rules = json!({ "defaultPolicy": "allow", "rules": [] });
    program.call("POST", "/sessions", Some(json!({ "sessionId": "s", "toolPermissions": rules }))).await;
    let write = format!("for n in $(seq {FILES}); do yes line $n | head -c {MIB}M > f$n; done");
    ask(&program, &write).await;
    let sizes =
        || (1..=FILES).map(|n| std::fs::metadata(work.join(format!("f{n}"))).map_or(0, |found| found.len())).sum();
    let all: u64 = sizes();
    assert_eq!(all, ((FILES * MIB) << 20) as u64);
    let recorded = program.most_resident_mb();
    assert!(recorded < MOST_MB, "{recorded} MB for {all} bytes");
    for (route, want) in [("undo", 0), ("redo", all)] {
        let (status, done) = program.call("POST", &format!("/sessions/s/{route}"), Some(json!({}))).await;
        let files = done["files"].as_array().map_or(0, Vec::len);
        assert_eq!((status, files, sizes()), (200, FILES, want), "{route}: {done}");
    }
    let most = program.most_resident_mb();
    assert!(most < MOST_MB, "{most} MB for {all} bytes");
    program.kill().await;
}
