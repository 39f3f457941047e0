//! Prompts that wait: how much they may be, how little of them is in memory, and that not a word of them is lost.

use super::controls::{allow, asked};
use super::*;
use crate::base::limit;
use crate::session::transfer;
use crate::store::{Inspection, SqliteStore, Store};

/// Prompts that wait are bounded in bytes as well, those for the running turn among them. One that is refused leaves nothing.
#[tokio::test]
async fn prompts_that_wait_are_bounded_in_bytes() {
    let house = open(Storage::Memory, |settings| settings.limits.queued_bytes_max = 10_000).await;
    let (feed, pieces) = mpsc::unbounded_channel();
    house.plays([follows(pieces), says("to the steer"), says("second"), says("third")]);
    let id = house.session().await;
    let first = house.prompts(&id, &"1".repeat(20_000), PromptMode::Queue).await.unwrap();
    assert_eq!(first.status, TurnStatus::Running, "it does not wait");
    let mut reader = house.app.events(&anyone(), &id, 0).await.unwrap();
    feed.send("x").unwrap();
    until(&mut reader, "stream.delta").await;
    let large = "x".repeat(6_000);
    let second = house.prompts(&id, &large, PromptMode::Queue).await.unwrap();
    for mode in [PromptMode::Queue, PromptMode::Steer] {
        let version = house.app.session(&anyone(), &id).await.unwrap().version;
        let refused = house.prompts(&id, &large, mode).await.unwrap_err();
        assert_eq!(refused.code(), ErrorCode::ResourceExhausted, "{mode:?}");
        let details = json!({ "field": "prompt", "limit": "queued_bytes_max", "value": 10_000 });
        assert_eq!(refused.0.details, Some(details), "{mode:?}");
        let view = house.app.session(&anyone(), &id).await.unwrap();
        assert_eq!((view.version, view.queued), (version, 1), "{mode:?}");
    }
    house.prompts(&id, "a short one", PromptMode::Steer).await.unwrap();
    assert_eq!(
        house.prompts(&id, &"x".repeat(4_000), PromptMode::Queue).await.unwrap_err().code(),
        ErrorCode::ResourceExhausted
    );
    let third = house.prompts(&id, &"x".repeat(3_900), PromptMode::Queue).await.unwrap();
    let told = house.used(&id, "queuedBytesOfASession").await;
    assert!((9_900..=10_000).contains(&told), "{told}");
    drop(feed);
    for (turn, result) in [(first, "to the steer"), (second, "second"), (third, "third")] {
        let record = house.app.wait_turn(&anyone(), &id, &turn.turn_id).await.unwrap();
        assert_eq!(record.result.as_deref(), Some(result));
    }
    assert_eq!(house.used(&id, "queuedBytesOfASession").await, 0);
    assert_eq!(house.used(&id, "queuedMemoryBytes").await, 0);
}

impl House {
    /// What is counted under a name, by now.
    async fn used(&self, id: &SessionId, name: &str) -> u64 {
        // Whoever is behind it in the line finds it counted.
        self.app.session(&anyone(), id).await.unwrap();
        self.app.limits().into_iter().find(|limit| limit.name == name).unwrap().used
    }
}

fn large(number: usize) -> String {
    format!("{number} \u{e8} \"\\ ").repeat(2_000)
}

/// What the turns of a session were told, in order.
async fn told(house: &House, id: &SessionId, kind: &str) -> Vec<String> {
    let log = house.log(id).await;
    let of_kind = log.iter().filter(|event| event.kind == kind).map(payload);
    of_kind.map(|payload| payload["prompt"].as_str().unwrap().to_owned()).collect()
}

/// Of large prompts and messages the beginning alone stays in memory; all of them are heard whole, and in their order.
#[tokio::test]
async fn what_is_large_waits_on_the_disk() {
    let data = tempfile::tempdir().unwrap();
    let house = open(Storage::Directory(data.path().to_owned()), asks_for_writes).await;
    let write = calls("fs_write", json!({ "path": "a.txt", "content": "x" }));
    house.plays([write, says("heard"), says("one"), says("two"), says("three")]);
    let id = house.session().await;
    let mut reader = house.app.events(&anyone(), &id, 0).await.unwrap();
    house.prompts(&id, "begin", PromptMode::Queue).await.unwrap();
    let request = asked(&mut reader).await;
    for (number, mode) in
        [PromptMode::Queue, PromptMode::Steer, PromptMode::Steer, PromptMode::Queue].iter().enumerate()
    {
        house.prompts(&id, &large(number), *mode).await.unwrap();
    }
    let instructions = Some(large(9));
    let body = Prompt {
        prompt: PromptContent::Text("small".into()),
        mode: PromptMode::Queue,
        configure: Some(Configure { instructions, ..Configure::default() }),
        turn: None,
        if_version: None,
    };
    let last = house.app.prompt(&anyone(), &id, body).await.unwrap();
    let said: usize = [0, 1, 2, 3, 9].into_iter().map(|number| large(number).len()).sum();
    assert!(house.used(&id, "queuedBytesOfASession").await >= said as u64);
    let held = 5 * (limit::TURN_PROMPT_BYTES_MAX + limit::QUEUED_TURN_BYTES) as u64;
    let used = house.used(&id, "queuedMemoryBytes").await;
    assert!((1..=held).contains(&used), "{used} of {said}");
    // What is shown of them is what is shown of others.
    let view = house.app.snapshot(&anyone(), &id, 9).await.unwrap();
    let queue = view.snapshot.unwrap().queue;
    let shown = |text: &str| text[..text.floor_char_boundary(limit::TURN_PROMPT_BYTES_MAX)].to_owned();
    let want = [shown(&large(0)), shown(&large(3)), "small".to_owned()];
    assert_eq!(queue.iter().map(|turn| turn.prompt.clone()).collect::<Vec<_>>(), want);
    allow(&house, &id, request).await;
    house.app.wait_turn(&anyone(), &id, &last.turn_id).await.unwrap();
    assert!(told(&house, &id, "session.steer").await == [large(1), large(2)]);
    assert!(told(&house, &id, "session.prompt").await == ["begin".to_owned(), large(0), large(3), "small".to_owned()]);
    let heard = house.script.requests.lock().clone();
    let words = |request: &ModelRequest| format!("{:?}", request.messages);
    assert!(words(&heard[1]).contains(&format!("{:?}", large(2))), "the model hears all of it");
    assert!(heard[4].system.contains(large(9).trim()) && !heard[3].system.contains(large(9).trim()));
    assert_eq!(house.used(&id, "queuedMemoryBytes").await, 0);
    house.app.shutdown(Duration::ZERO).await.unwrap();
    super::rebuilt::sound(data.path(), (0, "at the end"));
}

/// A file of a session has all that was said to turns that wait, and a store that it is imported into keeps that apart again.
#[tokio::test]
async fn what_is_large_and_waits_is_exported_whole() {
    let data = tempfile::tempdir().unwrap();
    let house = open(Storage::Directory(data.path().to_owned()), |_| {}).await;
    house.plays([hangs()]);
    let id = house.session().await;
    let mut reader = house.app.events(&anyone(), &id, 0).await.unwrap();
    house.prompts(&id, "begin", PromptMode::Queue).await.unwrap();
    until(&mut reader, "stream.start").await;
    house.prompts(&id, &large(1), PromptMode::Queue).await.unwrap();
    house.prompts(&id, &large(2), PromptMode::Steer).await.unwrap();
    let mut file = Vec::new();
    transfer::export(&Inspection::open(data.path()).unwrap(), &id, &mut file).unwrap();
    let text = String::from_utf8(file.clone()).unwrap();
    let words = |number| json!(large(number)).to_string();
    assert!(text.contains(&words(1)) && text.contains(&words(2)));
    let forged = text.replace(&words(1), r#"{"at":2,"bytes":5}"#);
    let refused = transfer::Imported::read(&mut forged.as_bytes()).err().unwrap().to_string();
    assert!(refused.contains("all that was said to it"), "{refused}");
    house.app.shutdown(Duration::ZERO).await.unwrap();
    let other = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(other.path()).unwrap());
    let imported = transfer::Imported::read(&mut file.as_slice()).unwrap();
    crate::store::commit(&store, imported.into_changes()).await.unwrap();
    let mut said = Vec::new();
    for turn in store.open_turns().await.unwrap() {
        assert!(turn.held_bytes() <= 2 * limit::TURN_PROMPT_BYTES_MAX, "{}", turn.held_bytes());
        for at in turn.places() {
            said.push(store.said(&id, at).await.unwrap().unwrap().content.text());
        }
    }
    assert!(said == [large(2), large(1)]);
    store.close().await.unwrap();
    super::rebuilt::sound(other.path(), (0, "where it was imported"));
}

/// Messages that came too late for their turn become turns of their own, before those that wait.
#[tokio::test]
async fn what_is_large_and_late_is_heard_first() {
    let data = tempfile::tempdir().unwrap();
    let house = open(Storage::Directory(data.path().to_owned()), |_| {}).await;
    house.plays([hangs()]);
    let id = house.session().await;
    let mut reader = house.app.events(&anyone(), &id, 0).await.unwrap();
    house.prompts(&id, "begin", PromptMode::Queue).await.unwrap();
    until(&mut reader, "stream.start").await;
    house.prompts(&id, &large(3), PromptMode::Queue).await.unwrap();
    house.prompts(&id, &large(1), PromptMode::Steer).await.unwrap();
    house.prompts(&id, &large(2), PromptMode::Steer).await.unwrap();
    house.app.abort(&anyone(), &id, Control::default()).await.unwrap();
    // The script is over: each turn that begins fails at once.
    for _ in 0..3 {
        until(&mut reader, "session.error").await;
    }
    let heard = told(&house, &id, "session.prompt").await;
    let want = ["begin".to_owned(), large(1), large(2), large(3)];
    assert!(heard == want, "{:?}", heard.iter().map(|text| text.get(..2)).collect::<Vec<_>>());
    house.app.shutdown(Duration::ZERO).await.unwrap();
    super::rebuilt::sound(data.path(), (0, "at the end"));
}
