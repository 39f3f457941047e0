//! Many large prompts that wait: they lie on the disk, not in memory, also when the process has been killed.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::model_server::{Answer, ModelServer, queue};
use crate::support::program::Program;

/// Prompts that wait for their turn, and messages that wait for the one that runs.
const QUEUED: usize = 26;
const STEERS: usize = 4;

/// Something of 1.9 MB that no other prompt says.
fn large(number: usize) -> String {
    format!("{number:02} ").repeat(1_900_000 / 3)
}

async fn limits(program: &Program) -> BTreeMap<String, u64> {
    let (status, health) = program.call("GET", "/health?verbose=true", None).await;
    assert_eq!(status, 200, "{health}");
    let told = health["limits"].as_array().expect("a list").iter();
    told.map(|limit| (limit["name"].as_str().expect("a name").to_owned(), limit["used"].as_u64().expect("a number")))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_begins_with_what_waits_on_the_disk_and_loses_none_of_it() {
    let home = tempfile::tempdir().unwrap();
    let (data, work, config) = (home.path().join("data"), home.path().join("work"), home.path().join("config.toml"));
    std::fs::create_dir(&work).unwrap();
    std::fs::write(&config, "queued_bytes_max = 60000000\n").unwrap();
    let silent = ModelServer::start(queue([Answer::silence()])).await;
    let program = Program::serve_as(&data, &work, &silent.base_url(), Some(&config)).await;
    program.call("POST", "/sessions", Some(json!({ "sessionId": "s" }))).await;
    let prompt = async |program: &Program, text: &str, mode: &str| {
        program.call("POST", "/sessions/s/prompt", Some(json!({ "prompt": text, "mode": mode }))).await
    };
    prompt(&program, "begin", "queue").await;
    silent.came(1).await;
    for number in 0..QUEUED {
        let (status, answer) = prompt(&program, &large(number), "queue").await;
        assert_eq!(status, 202, "{answer}");
    }
    for number in 0..STEERS {
        let (status, answer) = prompt(&program, &large(50 + number), "steer").await;
        assert_eq!(status, 202, "{answer}");
    }
    let said = ((QUEUED + STEERS) * large(0).len()) as u64;
    let told = limits(&program).await;
    assert!(told["queuedBytesOfASession"] >= said, "{told:?}");
    assert!(told["queuedMemoryBytes"] < 1_000_000, "{told:?}");
    // Over the bound nothing is accepted, and nothing is written.
    let mut accepted = 0;
    let refused = loop {
        match prompt(&program, &large(99), "queue").await {
            (202, _) => accepted += 1,
            refused => break refused,
        }
    };
    assert_eq!((refused.0, refused.1["error"]["code"].as_str()), (429, Some("RESOURCE_EXHAUSTED")), "{}", refused.1);
    assert_eq!(refused.1["error"]["details"]["limit"], "queued_bytes_max", "{}", refused.1);
    program.kill().await;

    // Behind it a silent model has the first of them, and all others wait on the disk. The bound is that of the defaults
    // now: what was accepted counts all the same.
    let model = ModelServer::start(queue([Answer::silence(), Answer::status(400, &[], "{}")])).await;
    let program = Program::serve(&data, &work, &model.base_url()).await;
    model.came(1).await;
    let told = limits(&program).await;
    assert!(told["queuedBytesOfASession"] >= said - large(0).len() as u64, "{told:?}");
    assert!(told["queuedMemoryBytes"] < 1_000_000, "{told:?}");
    // Held in memory, they took more than this, beside what the program takes by itself.
    let most = program.most_resident_mb();
    assert!(2 * most * 1_000_000 < 5 * said, "{most} MB of {said} bytes");

    let (status, answer) = program.call("POST", "/sessions/s/abort", Some(json!({}))).await;
    assert_eq!(status, 200, "{answer}");
    let mut events = program.events("s", 0).await;
    let (mut heard, mut ended) = (Vec::new(), 0);
    while ended < 1 + QUEUED + STEERS + accepted {
        let (_, data) = events.next().await.expect("the log goes on");
        let event: Value = serde_json::from_str(&data).expect("json");
        match event["type"].as_str() {
            Some("session.prompt") => heard.push(event["payload"]["prompt"].as_str().expect("a text").to_owned()),
            Some("session.error" | "abort") => ended += 1,
            _ => {}
        }
    }
    // What came too late for the turn that was killed is heard before the rest.
    let order = (50..50 + STEERS).chain(0..QUEUED).chain(std::iter::repeat_n(99, accepted));
    let want = std::iter::once("begin".to_owned()).chain(order.map(large));
    assert!(
        heard.iter().eq(&want.collect::<Vec<_>>()),
        "{:?}",
        heard.iter().map(|text| &text[..2]).collect::<Vec<_>>()
    );
    assert_eq!(limits(&program).await["queuedMemoryBytes"], 0);
}
