//! Settings that change between turns, and the records of turns.

use super::*;
use crate::host::DiffWanted;
use crate::protocol::{Fork, Reasoning, Undo};

fn names(entries: &[&str]) -> Option<Vec<String>> {
    Some(entries.iter().map(|entry| (*entry).to_owned()).collect())
}

#[tokio::test]
async fn settings_change_from_the_next_turn_on() {
    let house = open(Storage::Memory, |_| {}).await;
    let (feed, pieces) = mpsc::unbounded_channel();
    house.plays([follows(pieces), says("to the steer"), says("next")]);
    let id = house.session().await;
    let mut reader = house.app.events(&anyone(), &id, 0).await.unwrap();
    let first = house.prompts(&id, "hi", PromptMode::Queue).await.unwrap();
    until(&mut reader, "stream.start").await;
    let changes = Configure {
        tools: names(&["-bash"]),
        reasoning: Some(Reasoning::High),
        title: Some("T".into()),
        ..Configure::default()
    };
    let stale = house.app.configure(&anyone(), &id, (changes.clone(), Some(0))).await.unwrap_err();
    assert_eq!((stale.code(), stale.0.message.contains("has version 1, not 0")), (ErrorCode::Conflict, true));
    let view = house.app.configure(&anyone(), &id, (changes, Some(1))).await.unwrap();
    assert_eq!((view.version, view.reasoning, view.title.as_deref()), (2, Reasoning::High, Some("T")));
    assert_eq!((&view.tools, view.turn.is_some()), (&names(&["*", "-bash"]), true));
    let told = until(&mut reader, "session.configured").await;
    assert_eq!((told.seq, &told.turn_id), (view.last_seq, &None));
    assert_eq!(payload(&told), json!({ "tools": ["-bash"], "reasoning": "high", "title": "T", "version": 2 }));
    // The turn that runs goes on as it began, in its later rounds too.
    house.prompts(&id, "more", PromptMode::Steer).await.unwrap();
    feed.send("x").unwrap();
    drop(feed);
    house.app.wait_turn(&anyone(), &id, &first.turn_id).await.unwrap();
    let body = Prompt {
        prompt: PromptContent::Text("again".into()),
        mode: PromptMode::Queue,
        configure: Some(Configure { tools: names(&["-fs_read"]), ..Configure::default() }),
        turn: None,
        if_version: None,
    };
    let second = house.app.prompt(&anyone(), &id, body).await.unwrap();
    let record = house.app.wait_turn(&anyone(), &id, &second.turn_id).await.unwrap();
    let seen: Vec<(Reasoning, Vec<bool>)> = house
        .script
        .requests
        .lock()
        .iter()
        .map(|request| {
            let has = |name: &&str| request.tools.iter().any(|tool| tool.name == **name);
            (request.reasoning, ["bash", "fs_read", "fs_write"].iter().map(has).collect())
        })
        .collect();
    let before = (Reasoning::Auto, vec![true, true, true]);
    assert_eq!(seen, [before.clone(), before, (Reasoning::High, vec![false, false, true])]);
    // What changes with a prompt is told before its turn, and is no part of it.
    let log = house.log(&id).await;
    let at = log.iter().rposition(|event| event.kind == "session.configured").unwrap();
    assert_eq!((log[at + 1].kind.as_ref(), Some(log[at + 1].seq)), ("session.prompt", record.first_seq));
    let view = house.app.session(&anyone(), &id).await.unwrap();
    assert_eq!(view.tools, names(&["*", "-bash", "-fs_read"]));
}

#[tokio::test]
async fn a_session_moves_with_its_next_turn() {
    let house = open(Storage::Memory, |settings| settings.permissions.default_policy = PermissionPolicy::Allow).await;
    let place = |name: &str| house.directory.path().join(name);
    for name in ["one", "two"] {
        std::fs::create_dir(place(name)).unwrap();
    }
    let body = CreateSession { working_directory: Some("one".into()), ..CreateSession::default() };
    let id = house.app.create_session(&anyone(), body).await.unwrap().session_id;
    house.plays([runs("mkdir deep && cd deep"), says("a"), runs("touch here"), says("b")]);
    house.turn(&id, "go").await;
    let changes = Configure { working_directory: Some("two".into()), ..Configure::default() };
    let view = house.app.configure(&anyone(), &id, (changes, None)).await.unwrap();
    assert_eq!(view.working_directory, place("two").canonicalize().unwrap());
    house.turn(&id, "go").await;
    assert!(place("two/here").exists(), "the shell has moved, too");
    assert!(!place("one/deep/here").exists() && place("one/deep").exists());
}

#[tokio::test]
async fn settings_that_do_not_hold_are_refused_by_field_and_change_nothing() {
    let house = open(Storage::Memory, |_| {}).await;
    let id = house.session().await;
    let before = house.app.session(&anyone(), &id).await.unwrap();
    let set = |change: fn(&mut Configure)| {
        let mut changes = Configure::default();
        change(&mut changes);
        changes
    };
    #[rustfmt::skip]
    let table: [(&str, fn(&mut Configure)); 7] = [
        ("", |_| ()),
        ("model", |c| c.model = Some("a/b".into())),
        ("title", |c| c.title = Some("a\nb".into())),
        ("tools[1]", |c| c.tools = names(&["-bash", "-fly"])),
        ("tools[0]", |c| c.tools = names(&["+*"])),
        ("tools", |c| c.tools = Some(vec!["bash".into(); limit::TOOL_ENTRIES_MAX + 1])),
        ("workingDirectory", |c| c.working_directory = Some("no-such".into())),
    ];
    for (field, change) in table {
        let refused = house.app.configure(&anyone(), &id, (set(change), None)).await.unwrap_err();
        let named = if field.is_empty() { "body" } else { field };
        assert_eq!((refused.code(), &refused.0.details.unwrap()["field"]), (ErrorCode::InvalidArgument, &json!(named)));
        if !field.is_empty() {
            let body = Prompt {
                prompt: PromptContent::Text("hi".into()),
                mode: PromptMode::Queue,
                configure: Some(set(change)),
                turn: None,
                if_version: None,
            };
            let refused = house.app.prompt(&anyone(), &id, body).await.unwrap_err();
            assert_eq!(refused.0.details.unwrap()["field"], format!("configure.{field}"));
        }
    }
    assert_eq!(house.app.session(&anyone(), &id).await.unwrap(), before);
    let stranger = Caller { client: Some("c".parse().unwrap()), ..Caller::default() };
    let title = set(|c| c.title = Some("t".into()));
    let refused = house.app.configure(&stranger, &id, (title, None)).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::NotFound);
}

#[tokio::test]
async fn turns_are_listed_newest_first_and_as_they_are_now() {
    let house = open(Storage::Memory, asks_for_writes).await;
    house.plays([says("a"), says("b"), write_round("x"), says("c"), says("d")]);
    let id = house.session().await;
    let mut reader = house.app.events(&anyone(), &id, 0).await.unwrap();
    for prompt in ["one", "two"] {
        house.turn(&id, prompt).await;
    }
    house.prompts(&id, "three", PromptMode::Queue).await.unwrap();
    until(&mut reader, "permission.request").await;
    house.prompts(&id, "four", PromptMode::Queue).await.unwrap();
    let page = house.app.turns(&anyone(), &id, (None, 3), false).await.unwrap();
    let seen: Vec<_> = page.items.iter().map(|turn| (turn.prompt.as_str(), turn.status, turn.rounds)).collect();
    let want = [("four", TurnStatus::Queued, 0), ("three", TurnStatus::Waiting, 1), ("two", TurnStatus::Completed, 1)];
    assert_eq!(seen, want);
    assert_eq!(page.next_cursor.as_deref(), Some(page.items[2].turn_id.as_str()));
    let page = house.app.turns(&anyone(), &id, (page.next_cursor.as_deref(), 3), false).await.unwrap();
    assert_eq!((page.items.len(), page.items[0].prompt.as_str(), page.next_cursor), (1, "one", None));
    for cursor in ["turn_none", "no id at all"] {
        let refused = house.app.turns(&anyone(), &id, (Some(cursor), 3), false).await.unwrap_err();
        assert_eq!(refused.0.details.unwrap()["field"], "cursor", "{cursor}");
    }
    let stranger = Caller { client: Some("c".parse().unwrap()), ..Caller::default() };
    assert_eq!(house.app.turns(&stranger, &id, (None, 3), false).await.unwrap_err().code(), ErrorCode::NotFound);
    house.app.delete_session(&anyone(), &id).await.unwrap();
}

/// On threads of their own: what waits for each other takes a runtime with it, and its clocks.
#[test]
fn settings_change_while_a_turn_talks() {
    let (told, done) = std::sync::mpsc::channel();
    let work = async move {
        let house = open(Storage::Memory, |_| {}).await;
        let id = house.session().await;
        let (feed, pieces) = mpsc::unbounded_channel();
        house.plays([follows(pieces)]);
        let accepted = house.prompts(&id, "hi", PromptMode::Queue).await.unwrap();
        let talk = std::thread::spawn(move || {
            for _ in 0..20_000 {
                feed.send("word ").unwrap();
                std::thread::yield_now();
            }
        });
        for n in 0..300 {
            let changes = Configure { title: Some(format!("T{n}")), ..Configure::default() };
            house.app.configure(&anyone(), &id, (changes, None)).await.unwrap();
        }
        talk.join().unwrap();
        let record = house.app.wait_turn(&anyone(), &id, &accepted.turn_id).await.unwrap();
        told.send(record.result.map(|text| text.len())).unwrap();
    };
    let run = move || {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(work)
    };
    std::thread::spawn(run);
    let length =
        done.recv_timeout(std::time::Duration::from_secs(120)).expect("the turn and the changes wait for each other");
    assert_eq!(length, Some(20_000 * 5));
}

/// A directory that is no longer under a root, whether the roots or the directory have changed, is nobody's place to work.
#[tokio::test]
async fn a_session_works_under_the_roots_of_now() {
    let allow = |settings: &mut Settings| settings.permissions.default_policy = PermissionPolicy::Allow;
    let house = open(Storage::Memory, allow).await;
    let (inside, outside) = (house.directory.path().join("sub"), tempfile::tempdir().unwrap());
    std::fs::create_dir(&inside).unwrap();
    std::fs::write(outside.path().join("secret"), "s").unwrap();
    let body = CreateSession { working_directory: Some("sub".into()), ..CreateSession::default() };
    let id = house.app.create_session(&anyone(), body).await.unwrap().session_id;
    house.plays([runs("touch mine"), says("a")]);
    assert_eq!(house.turn(&id, "go").await.status, TurnStatus::Completed);

    std::fs::remove_dir_all(&inside).unwrap();
    std::os::unix::fs::symlink(outside.path(), &inside).unwrap();
    house.plays([runs("touch theirs"), says("b")]);
    let record = house.turn(&id, "go").await;
    let error = record.error.unwrap();
    assert_eq!((record.status, error.code), (TurnStatus::Failed, ErrorCode::InvalidArgument));
    assert!(error.message.contains("under an allowed root") && error.message.contains("which leads to"), "{error:?}");
    assert!(!outside.path().join("theirs").exists(), "nothing has run");
    let (undo, redo) = (Undo::default(), Undo::default());
    let all = [
        ("undo", house.app.undo(&anyone(), &id, undo).await.unwrap_err()),
        ("redo", house.app.redo(&anyone(), &id, redo).await.unwrap_err()),
        ("diff", house.app.diff(&anyone(), &id, DiffWanted::default()).await.unwrap_err()),
        ("fork", house.app.fork(&anyone(), &id, Fork::default()).await.unwrap_err()),
    ];
    for (what, refused) in all {
        let said = (refused.code(), &refused.0.message, &refused.0.details.as_ref().unwrap()["field"]);
        assert_eq!(said, (ErrorCode::InvalidArgument, &error.message, &json!("workingDirectory")), "{what}");
    }

    // It is a directory again, and works.
    std::fs::remove_file(&inside).unwrap();
    std::fs::create_dir(&inside).unwrap();
    assert_eq!(house.turn(&id, "go").await.status, TurnStatus::Completed);
    assert!(inside.join("theirs").exists());
}

/// What is looked at before tool servers are waited for is looked at again after it.
#[tokio::test]
async fn a_directory_that_is_exchanged_while_tool_servers_are_waited_for_is_nobodys_place() {
    let (held, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (began, go) = (held.path().join("began"), held.path().join("go"));
    let waits = format!("touch {}; until test -e {}; do sleep 0.01; done", began.display(), go.display());
    let house = open(Storage::Memory, |settings| {
        settings.permissions.default_policy = PermissionPolicy::Allow;
        settings.mcp_servers = serde_json::from_value(json!([{
            "name": "slow", "command": "/bin/sh", "args": ["-c", waits],
        }]))
        .unwrap();
    })
    .await;
    let inside = house.directory.path().join("sub");
    std::fs::create_dir(&inside).unwrap();
    let body = CreateSession { working_directory: Some("sub".into()), ..CreateSession::default() };
    let id = house.app.create_session(&anyone(), body).await.unwrap().session_id;
    house.plays([runs("touch theirs"), says("a")]);
    let exchange = async {
        while !began.exists() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        std::fs::remove_dir(&inside).unwrap();
        std::os::unix::fs::symlink(outside.path(), &inside).unwrap();
        std::fs::write(&go, "").unwrap();
    };
    let (record, ()) = tokio::join!(house.turn(&id, "go"), exchange);
    assert_eq!((record.status, record.error.unwrap().code), (TurnStatus::Failed, ErrorCode::InvalidArgument));
    assert!(!outside.path().join("theirs").exists(), "nothing has run");
}

/// Whether there is a directory outside of the roots is not told: the same is said of one that is there and of one that is not.
#[tokio::test]
async fn what_lies_outside_of_the_roots_is_not_told() {
    let house = open(Storage::Memory, |_| {}).await;
    let outside = tempfile::tempdir().unwrap();
    let (there, missing) = (outside.path().to_owned(), outside.path().join("nothing"));
    let inside = house.directory.path().join("nothing");
    let mut said = Vec::new();
    for directory in [&there, &missing, &inside] {
        let body = CreateSession { working_directory: Some(directory.clone()), ..CreateSession::default() };
        let refused = house.app.create_session(&anyone(), body).await.unwrap_err();
        assert_eq!(refused.code(), ErrorCode::InvalidArgument);
        said.push(refused.to_string().replace(&directory.display().to_string(), "DIRECTORY"));
    }
    assert_eq!(said[0], said[1]);
    assert!(said[0].contains("under an allowed root") && said[2].contains("an existing directory"), "{said:?}");
}
