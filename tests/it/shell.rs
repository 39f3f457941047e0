//! `bash` as a session meets it: heard while it runs, its whole output paged later, its leftovers gone with it.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use simse::config::Storage;
use simse::protocol::PermissionPolicy;
use simse::server::ListenOptions;

use crate::support::house::{Does, House};
use crate::support::http::Frame;

async fn house(data: &Path) -> House {
    let data = data.to_owned();
    House::with(ListenOptions::default(), |settings| {
        settings.permissions.default_policy = PermissionPolicy::Allow;
        settings.storage = Storage::Directory(data);
    })
    .await
}

fn bash(command: &str) -> Does {
    Does::Calls("bash", json!({ "command": command }))
}

fn payload<'a>(frame: &'a Frame, name: &str) -> &'a str {
    frame.data["payload"][name].as_str().unwrap()
}

/// Runs the prompt of this number, and gives the payloads of its calls' ends.
async fn ends(house: &House, session: &str, turn: usize) -> Vec<Value> {
    let mut stream = house.events(session, "").await;
    house.prompt(session, "go").await;
    for _ in 1..turn {
        stream.until("session.completed").await;
    }
    let seen = stream.until("session.completed").await;
    let ends = seen.iter().filter(|frame| frame.kind() == "tool.call.end");
    ends.map(|frame| frame.data["payload"].clone()).collect()
}

#[tokio::test]
async fn what_a_command_writes_is_heard_by_who_listens() {
    let data = tempfile::tempdir().unwrap();
    let house = house(data.path()).await;
    let session = house.session(json!({})).await;
    house.round(&[bash("echo one; echo two >&2; while ! [ -e go ]; do sleep 0.01; done; echo three")]);
    house.round(&[Does::Says("done")]);
    let mut stream = house.events(&session, "").await;
    let running = house.prompt(&session, "go");
    let hears = async {
        let mut pieces = String::new();
        while pieces != "one\ntwo\n" {
            let frame = stream.event().await;
            assert_ne!(frame.kind(), "tool.call.end", "{pieces:?}");
            if frame.kind() == "tool.call.output" {
                assert_eq!(payload(&frame, "name"), "bash");
                pieces += payload(&frame, "text");
            }
        }
        // Only now can it end.
        std::fs::write(house.work.path().join("go"), "").unwrap();
        let rest = stream.until("tool.call.end").await;
        assert_eq!(payload(rest.last().unwrap(), "output"), "one\ntwo\nthree\n");
    };
    tokio::join!(running, hears);
    drop(stream);

    let unheard = house.session(json!({})).await;
    house.round(&[bash("echo one; sleep 0.3; echo two; sleep 0.3; echo three")]);
    house.round(&[Does::Says("done")]);
    house.prompt(&unheard, "go").await;
    let seen = house.events(&unheard, "").await.until("session.completed").await;
    assert!(seen.iter().any(|frame| frame.kind() == "tool.call.end"));
    assert!(seen.iter().all(|frame| frame.kind() != "tool.call.output"), "nobody listened, nothing was written down");
    house.close().await;
}

#[tokio::test]
async fn a_long_output_is_paged_in_its_session_and_goes_with_it() {
    let data = tempfile::tempdir().unwrap();
    let house = house(data.path()).await;
    let (first, second) = (house.session(json!({})).await, house.session(json!({})).await);
    let mut kept: Vec<PathBuf> = Vec::new();
    for session in [&first, &second] {
        house.round(&[bash("seq 30000")]);
        house.round(&[Does::Says("done")]);
        let ends = ends(&house, session, 1).await;
        let path = ends[0]["details"]["outputPath"].as_str().unwrap();
        assert!(ends[0]["output"].as_str().unwrap().ends_with(&format!("; the whole is in {path}, see fs_read]")));
        kept.push(path.into());
    }
    let read = |path: &Path| Does::Calls("fs_read", json!({"path": path, "offset": 20_000, "limit": 1}));
    house.round(&[read(&kept[0])]);
    house.round(&[read(&kept[1])]);
    house.round(&[bash(&format!("tail -n 1 {}", kept[0].display()))]);
    house.round(&[Does::Says("done")]);
    let outputs: Vec<String> =
        ends(&house, &first, 2).await.iter().map(|end| end["output"].as_str().unwrap().to_owned()).collect();
    assert!(outputs[0].contains("\n 20000\t20000\n") || outputs[0].starts_with(" 20000\t20000\n"), "{outputs:?}");
    assert!(outputs[1].contains("no output of this session is kept there"), "another session's: {outputs:?}");
    // What a command could read it could also find of another session.
    assert!(outputs[2].starts_with("[exit code 1]\ntail: cannot open"), "{outputs:?}");
    let deleted = house.call("DELETE", &format!("/sessions/{first}"), None).await;
    assert_eq!(deleted.status, 200);
    assert_eq!(kept.iter().map(|path| path.exists()).collect::<Vec<_>>(), [false, true]);
    house.close().await;
    assert!(!kept[1].exists(), "it went with the server");
}
