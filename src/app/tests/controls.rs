//! Interrupt, pause and resume, and who wins when they meet other things.

use super::*;
use crate::protocol::{Fork, RequestId};

/// A round of several calls of `fs_write`, to `1.txt`, `2.txt` …
fn writes(count: usize) -> Round {
    let call = |n: usize| {
        let arguments = json!({ "path": format!("{n}.txt"), "content": "x" });
        let arguments = arguments.as_object().cloned().unwrap_or_default();
        Ok(ModelEvent::Call(ToolCallRequest { id: format!("c{n}"), name: "fs_write".into(), arguments }))
    };
    let mut all: Vec<_> = (1..=count).map(call).collect();
    all.push(Ok(ModelEvent::Finished(StopReason::ToolUse)));
    Box::new(|_| events(all))
}

pub(super) async fn asked(reader: &mut EventReader) -> RequestId {
    payload(&until(reader, "permission.request").await)["requestId"].as_str().unwrap().parse().unwrap()
}

pub(super) async fn allow(house: &House, id: &SessionId, request: RequestId) {
    let body = Feedback { request_id: Some(request), allowed: Some(true), ..Feedback::default() };
    house.app.feedback(&anyone(), id, body).await.unwrap();
}

/// A control that is under way, in a task of its own.
macro_rules! begin {
    ($house:expr, $id:expr, $control:ident) => {{
        let (app, id) = (Arc::clone(&$house.app), $id.clone());
        tokio::spawn(async move { app.$control(&anyone(), &id, Control::default()).await })
    }};
}

/// Waits until a control that was begun has reached the session.
pub(super) async fn reached(reader: &mut EventReader, kind: &str) {
    while payload(&until(reader, "turn.control").await)["kind"] != kind {}
}

async fn version(house: &House, id: &SessionId) -> u64 {
    house.app.session(&anyone(), id).await.unwrap().version
}

fn said(error: &ApiError) -> (ErrorCode, &str) {
    (error.code(), error.0.message.as_str())
}

fn ends(kinds: &[String]) -> usize {
    kinds.iter().filter(|kind| matches!(kind.as_str(), "session.completed" | "session.error" | "abort")).count()
}

#[tokio::test]
async fn an_interrupt_ends_the_turn_between_two_calls_and_answers_all_of_them() {
    let house = open(Storage::Memory, asks_for_writes).await;
    house.plays([writes(3), says("after")]);
    let id = house.session().await;
    let mut reader = house.app.events(&anyone(), &id, 0).await.unwrap();
    let accepted = house.prompts(&id, "write", PromptMode::Queue).await.unwrap();
    asked(&mut reader).await;
    let late = house.prompts(&id, "and this", PromptMode::Steer).await.unwrap();
    assert_eq!(late.turn_id, accepted.turn_id);
    let interrupted = house.app.interrupt(&anyone(), &id, Control::default()).await.unwrap();
    assert_eq!(interrupted, Interrupted { interrupted: true, turn_id: accepted.turn_id.clone() });
    let record = house.app.turn(&anyone(), &id, &accepted.turn_id).await.unwrap();
    assert_eq!((record.status, record.reason.as_deref()), (TurnStatus::Interrupted, Some("interrupted by the client")));
    assert_eq!((record.stop_reason, record.prompt.as_str()), (Some(crate::protocol::TurnStop::Interrupted), "write"));
    let log = house.log(&id).await;
    let own: Vec<&Event> = log.iter().filter(|e| e.turn_id.as_ref() == Some(&accepted.turn_id)).collect();
    assert_eq!((record.first_seq, record.last_seq), (Some(own[0].seq), own.last().map(|e| e.seq)));
    let kinds: Vec<&str> = own.iter().map(|e| e.kind.as_ref()).collect();
    let count = |kind: &str| kinds.iter().filter(|k| **k == kind).count();
    assert_eq!((count("tool.call.start"), count("tool.call.end"), count("permission.request")), (3, 3, 1));
    assert_eq!(kinds[kinds.len() - 2..], ["loop.complete", "abort"]);
    // The message that came too late for it runs by itself, on a conversation in which each call has its result.
    until(&mut reader, "session.completed").await;
    let request = house.script.requests.lock().pop().unwrap();
    let results = request.messages.iter().filter(|m| matches!(m, Message::ToolResult { .. })).count();
    assert_eq!((results, request.messages.len()), (3, 6), "{:?}", request.messages);
    assert!(!house.directory.path().join("1.txt").exists(), "the question was answered with no");
}

#[tokio::test]
async fn a_stuck_upstream_is_cut_and_the_session_stays_usable() {
    let house = open(Storage::Memory, |settings| settings.limits.interrupt_grace_ms = 50).await;
    house.plays([hangs(), says("again")]);
    let id = house.session().await;
    let mut reader = house.app.events(&anyone(), &id, 0).await.unwrap();
    let accepted = house.prompts(&id, "hi", PromptMode::Queue).await.unwrap();
    until(&mut reader, "stream.start").await;
    let turn_id = Some(accepted.turn_id.clone());
    let body = Control { reason: Some("too slow".into()), turn_id, ..Control::default() };
    house.app.interrupt(&anyone(), &id, body.clone()).await.unwrap();
    let record = house.app.turn(&anyone(), &id, &accepted.turn_id).await.unwrap();
    assert_eq!((record.status, record.reason.as_deref()), (TurnStatus::Interrupted, Some("too slow")));
    let last = house.log(&id).await.pop().unwrap();
    let told = payload(&last);
    assert_eq!((last.kind.as_ref(), &told["reason"], &told["version"]), ("abort", &json!("too slow"), &json!(2)));
    assert_eq!(told["spent"]["turns"], 1);
    let refused = house.app.interrupt(&anyone(), &id, body).await.unwrap_err();
    assert_eq!(said(&refused), (ErrorCode::Conflict, "turn already interrupted"));
    assert_eq!(house.app.session(&anyone(), &id).await.unwrap().status, SessionStatus::Aborted);
    assert_eq!(house.turn(&id, "go on").await.result.as_deref(), Some("again"));
}

#[tokio::test]
async fn a_control_that_loses_its_race_says_so() {
    let house = open(Storage::Memory, |_| {}).await;
    let id = house.session().await;
    let nothing = house.app.interrupt(&anyone(), &id, Control::default()).await.unwrap_err();
    assert_eq!(said(&nothing), (ErrorCode::Conflict, format!("nothing runs in session {id}").as_str()));
    for pause in [true, false] {
        let (feed, pieces) = mpsc::unbounded_channel();
        house.plays([follows(pieces)]);
        let last = house.app.session(&anyone(), &id).await.unwrap().last_seq;
        let mut reader = house.app.events(&anyone(), &id, last).await.unwrap();
        let accepted = house.prompts(&id, "hi", PromptMode::Queue).await.unwrap();
        until(&mut reader, "stream.start").await;
        let before = version(&house, &id).await;
        let lost = if pause {
            let control = begin!(house, id, pause);
            reached(&mut reader, "pause").await;
            feed.send("x").unwrap();
            drop(feed);
            control.await.unwrap().unwrap_err()
        } else {
            let control = begin!(house, id, interrupt);
            reached(&mut reader, "interrupt").await;
            feed.send("x").unwrap();
            drop(feed);
            control.await.unwrap().unwrap_err()
        };
        assert_eq!(said(&lost), (ErrorCode::Conflict, "turn already completed"));
        let details = json!({ "why": "turn_over", "turnId": accepted.turn_id, "status": "completed" });
        assert_eq!(lost.0.details, Some(details.clone()));
        assert_eq!(version(&house, &id).await, before, "what was refused has changed nothing");
        let late = house.app.pause(&anyone(), &id, Control::default()).await.unwrap_err();
        assert_eq!(
            (said(&late), late.0.details.clone()),
            ((ErrorCode::Conflict, "turn already completed"), Some(details))
        );
        let named = Control { turn_id: Some(accepted.turn_id), ..Control::default() };
        let late = house.app.abort(&anyone(), &id, named).await.unwrap_err();
        assert_eq!(said(&late), (ErrorCode::Conflict, "turn already completed"));
    }
    let stranger = Control { turn_id: Some("turn_x".parse().unwrap()), ..Control::default() };
    assert_eq!(house.app.pause(&anyone(), &id, stranger).await.unwrap_err().code(), ErrorCode::NotFound);
    let nothing = house.app.resume(&anyone(), &id, Control::default()).await.unwrap_err();
    assert_eq!(said(&nothing), (ErrorCode::Conflict, format!("nothing is paused in session {id}").as_str()));
}

#[tokio::test]
async fn a_paused_turn_holds_between_two_calls_and_goes_on_before_all_others() {
    let house = open(Storage::Memory, asks_for_writes).await;
    house.plays([writes(2), says("to both"), says("queued")]);
    let id = house.session().await;
    let mut reader = house.app.events(&anyone(), &id, 0).await.unwrap();
    let first = house.prompts(&id, "write", PromptMode::Queue).await.unwrap();
    let request = asked(&mut reader).await;
    let queued = house.prompts(&id, "later", PromptMode::Queue).await.unwrap();
    let control = begin!(house, id, pause);
    reached(&mut reader, "pause").await;
    // It is on its way: prompts are taken, and a steer goes behind the pause.
    house.prompts(&id, "more", PromptMode::Steer).await.unwrap();
    allow(&house, &id, request).await;
    let paused = control.await.unwrap().unwrap();
    assert_eq!(paused, Paused { paused: true, turn_id: first.turn_id.clone(), status: TurnStatus::Paused });
    assert!(house.app.pause(&anyone(), &id, Control::default()).await.unwrap().paused, "a second one changes nothing");
    let view = house.app.session(&anyone(), &id).await.unwrap();
    assert_eq!((view.turn.as_ref().map(|turn| turn.status), view.queued), (Some(TurnStatus::Paused), 1));
    assert_eq!((view.status, view.version), (SessionStatus::Active, 4));
    for mode in [PromptMode::Queue, PromptMode::Steer, PromptMode::Reject] {
        let refused = house.prompts(&id, "no", mode).await.unwrap_err();
        let words = format!("session {id} is paused: turn {}", first.turn_id);
        assert_eq!(said(&refused), (ErrorCode::Conflict, words.as_str()));
    }
    assert!(house.directory.path().join("1.txt").exists() && !house.directory.path().join("2.txt").exists());
    let resumed = house.app.resume(&anyone(), &id, Control::default()).await.unwrap();
    assert_eq!(resumed, Resumed { resumed: true, turn_id: first.turn_id.clone() });
    let request = asked(&mut reader).await;
    allow(&house, &id, request).await;
    let record = house.app.wait_turn(&anyone(), &id, &first.turn_id).await.unwrap();
    assert_eq!((record.result.as_deref(), record.rounds), (Some("to both"), 2));
    assert_eq!(house.app.wait_turn(&anyone(), &id, &queued.turn_id).await.unwrap().result.as_deref(), Some("queued"));
    assert!(house.directory.path().join("2.txt").exists());
    let second = house.script.requests.lock()[1].clone();
    let shape: Vec<&str> = second
        .messages
        .iter()
        .map(|message| match message {
            Message::User(_) => "user",
            Message::Assistant { .. } => "assistant",
            Message::ToolResult { .. } => "result",
        })
        .collect();
    assert_eq!(shape, ["user", "assistant", "result", "result", "user"]);
    let kinds = house.kinds(&id).await;
    let at = |kind: &str| kinds.iter().position(|k| k == kind).unwrap_or_else(|| panic!("no {kind}: {kinds:?}"));
    assert!(at("turn.paused") < at("turn.resumed") && at("turn.resumed") < at("session.steer"));
    assert_eq!((ends(&kinds), kinds.iter().filter(|k| *k == "loop.start").count()), (2, 2));
}

#[tokio::test]
async fn a_paused_turn_outlives_the_server_and_then_goes_on() {
    let data = tempfile::tempdir().unwrap();
    let storage = || Storage::Directory(data.path().to_owned());
    let house = open(storage(), asks_for_writes).await;
    house.plays([writes(2)]);
    let id = house.session().await;
    let mut reader = house.app.events(&anyone(), &id, 0).await.unwrap();
    let first = house.prompts(&id, "write", PromptMode::Queue).await.unwrap();
    let request = asked(&mut reader).await;
    let queued = house.prompts(&id, "later", PromptMode::Queue).await.unwrap();
    let control = begin!(house, id, pause);
    reached(&mut reader, "pause").await;
    house.prompts(&id, "more", PromptMode::Steer).await.unwrap();
    allow(&house, &id, request).await;
    control.await.unwrap().unwrap();
    let before = house.app.session(&anyone(), &id).await.unwrap();
    drop(reader);
    house.app.shutdown(Duration::from_secs(9)).await.unwrap();
    let House { directory, .. } = house;
    let again = open(storage(), |settings| {
        asks_for_writes(settings);
        settings.allowed_roots = vec![directory.path().to_owned()];
    });
    let house = again.await;
    house.plays([says("to both"), says("queued")]);
    let view = house.app.session(&anyone(), &id).await.unwrap();
    assert_eq!((view.turn.clone(), view.queued), (before.turn, 1));
    assert_eq!((view.message_count, view.version), (before.message_count, before.version));
    assert_eq!(house.prompts(&id, "no", PromptMode::Queue).await.unwrap_err().code(), ErrorCode::Conflict);
    let mut reader = house.app.events(&anyone(), &id, view.last_seq).await.unwrap();
    house.app.resume(&anyone(), &id, Control::default()).await.unwrap();
    let request = asked(&mut reader).await;
    allow(&house, &id, request).await;
    let record = house.app.wait_turn(&anyone(), &id, &first.turn_id).await.unwrap();
    assert_eq!((record.result.as_deref(), record.rounds), (Some("to both"), 2), "{record:?}");
    assert_eq!(house.app.wait_turn(&anyone(), &id, &queued.turn_id).await.unwrap().result.as_deref(), Some("queued"));
    assert!(directory.path().join("1.txt").exists() && directory.path().join("2.txt").exists());
    let request = house.script.requests.lock()[0].clone();
    assert_eq!(request.messages.len(), 5, "user, assistant, two results, steer: {:?}", request.messages);
    let log = house.log(&id).await;
    assert_eq!(log.iter().map(|e| e.seq).collect::<Vec<_>>(), (1..=log.len() as u64).collect::<Vec<_>>());
    let kinds = house.kinds(&id).await;
    assert_eq!((ends(&kinds), kinds.iter().filter(|k| *k == "loop.start").count()), (2, 2));
    assert_eq!(kinds.iter().filter(|k| *k == "session.steer").count(), 1);
}

#[tokio::test]
async fn a_paused_turn_can_be_ended_and_its_session_deleted() {
    for (at, how) in ["abort", "interrupt", "delete"].into_iter().enumerate() {
        let house = open(Storage::Memory, asks_for_writes).await;
        house.plays([writes(2), says("late"), says("queued")]);
        let id = house.session().await;
        let mut reader = house.app.events(&anyone(), &id, 0).await.unwrap();
        let first = house.prompts(&id, "write", PromptMode::Queue).await.unwrap();
        let request = asked(&mut reader).await;
        let control = begin!(house, id, pause);
        reached(&mut reader, "pause").await;
        house.prompts(&id, "more", PromptMode::Steer).await.unwrap();
        let queued = house.prompts(&id, "later", PromptMode::Queue).await.unwrap();
        allow(&house, &id, request).await;
        control.await.unwrap().unwrap();
        let before = house.app.session(&anyone(), &id).await.unwrap();
        let status = match how {
            "abort" => {
                house.app.abort(&anyone(), &id, Control::default()).await.unwrap();
                TurnStatus::Aborted
            }
            "interrupt" => {
                house.app.interrupt(&anyone(), &id, Control::default()).await.unwrap();
                TurnStatus::Interrupted
            }
            _ => {
                house.app.delete_session(&anyone(), &id).await.unwrap();
                assert_eq!(house.app.session(&anyone(), &id).await.unwrap_err().code(), ErrorCode::NotFound);
                continue;
            }
        };
        let record = house.app.wait_turn(&anyone(), &id, &first.turn_id).await.unwrap();
        assert_eq!(record.status, status, "{at}");
        let after = house.app.session(&anyone(), &id).await.unwrap();
        assert_eq!(after.version, before.version + 1, "{how} is a change, of which who has the version before is told");
        let content = PromptContent::Text("stale".into());
        let (mode, if_version) = (PromptMode::Queue, Some(before.version));
        let stale = Prompt { prompt: content, mode, configure: None, turn: None, if_version };
        assert_eq!(house.app.prompt(&anyone(), &id, stale).await.unwrap_err().code(), ErrorCode::Conflict);
        let log = house.log(&id).await;
        let own: Vec<&Event> = log.iter().filter(|e| e.turn_id.as_ref() == Some(&first.turn_id)).collect();
        let end = own.last().expect("nothing comes behind the end");
        assert_eq!((end.kind.as_ref(), &payload(end)["version"]), ("abort", &json!(after.version)));
        // What was said for it runs before what waited already.
        let queued = house.app.wait_turn(&anyone(), &id, &queued.turn_id).await.unwrap();
        assert_eq!(queued.result.as_deref(), Some("queued"));
        let kinds = house.kinds(&id).await;
        assert_eq!((ends(&kinds), kinds.iter().filter(|k| *k == "loop.complete").count()), (3, 3), "{kinds:?}");
        assert!(!house.directory.path().join("2.txt").exists());
    }
}

#[tokio::test]
async fn a_resume_that_is_faster_than_its_pause_lets_the_turn_run() {
    let house = open(Storage::Memory, asks_for_writes).await;
    house.plays([writes(1), says("done")]);
    let id = house.session().await;
    let mut reader = house.app.events(&anyone(), &id, 0).await.unwrap();
    let first = house.prompts(&id, "write", PromptMode::Queue).await.unwrap();
    let request = asked(&mut reader).await;
    let control = begin!(house, id, pause);
    reached(&mut reader, "pause").await;
    house.app.resume(&anyone(), &id, Control::default()).await.unwrap();
    let lost = control.await.unwrap().unwrap_err();
    let words = format!("turn {} was resumed before it paused", first.turn_id);
    assert_eq!(said(&lost), (ErrorCode::Conflict, words.as_str()));
    allow(&house, &id, request).await;
    let record = house.app.wait_turn(&anyone(), &id, &first.turn_id).await.unwrap();
    assert_eq!(record.result.as_deref(), Some("done"));
    assert!(!house.kinds(&id).await.iter().any(|kind| kind == "turn.paused"));
}

#[tokio::test]
async fn a_pause_that_an_end_overtakes_is_refused_at_once() {
    // Nobody here would wait for the pause's own patience.
    let house = open(Storage::Memory, |settings| settings.limits.interrupt_grace_ms = 3_600_000).await;
    for (ends, why) in [("interrupt", "being_interrupted"), ("abort", "being_aborted")] {
        let (feed, pieces) = mpsc::unbounded_channel();
        house.plays([follows(pieces)]);
        let id = house.session().await;
        let mut reader = house.app.events(&anyone(), &id, 0).await.unwrap();
        house.prompts(&id, "hi", PromptMode::Queue).await.unwrap();
        until(&mut reader, "stream.start").await;
        let pause = begin!(house, id, pause);
        reached(&mut reader, "pause").await;
        let (app, ended) = (Arc::clone(&house.app), id.clone());
        let end = tokio::spawn(async move {
            match ends {
                "abort" => app.abort(&anyone(), &ended, Control::default()).await.map(drop),
                _ => app.interrupt(&anyone(), &ended, Control::default()).await.map(drop),
            }
        });
        let lost = pause.await.unwrap().unwrap_err();
        assert_eq!(
            (lost.code(), &lost.0.details.as_ref().unwrap()["why"]),
            (ErrorCode::Conflict, &json!(why)),
            "{ends}"
        );
        // Only now does an interrupted turn come to its boundary, which is its end: whoever was first has it.
        drop(feed);
        let _either = end.await.unwrap();
    }
}

#[tokio::test]
async fn the_version_counts_what_was_done_and_nothing_that_was_refused() {
    let house = open(Storage::Memory, asks_for_writes).await;
    house.plays([writes(2)]);
    let id = house.session().await;
    let mut reader = house.app.events(&anyone(), &id, 0).await.unwrap();
    house.prompts(&id, "write", PromptMode::Queue).await.unwrap();
    let request = asked(&mut reader).await;
    // Not answered yet, and then resumed.
    let pause = begin!(house, id, pause);
    reached(&mut reader, "pause").await;
    assert_eq!(version(&house, &id).await, 1, "a pause that has not its answer yet");
    house.app.resume(&anyone(), &id, Control::default()).await.unwrap();
    assert!(pause.await.unwrap().is_err());
    assert_eq!(version(&house, &id).await, 2, "the resume alone");
    // One that holds.
    let pause = begin!(house, id, pause);
    reached(&mut reader, "pause").await;
    allow(&house, &id, request).await;
    assert!(pause.await.unwrap().unwrap().paused);
    assert_eq!(version(&house, &id).await, 3);
    house.app.pause(&anyone(), &id, Control::default()).await.unwrap();
    assert_eq!(version(&house, &id).await, 3, "it was paused already");
    house.app.resume(&anyone(), &id, Control::default()).await.unwrap();
    asked(&mut reader).await;
    // One that an interrupt supersedes.
    let pause = begin!(house, id, pause);
    reached(&mut reader, "pause").await;
    house.app.interrupt(&anyone(), &id, Control::default()).await.unwrap();
    assert!(pause.await.unwrap().is_err());
    assert_eq!(version(&house, &id).await, 5, "the resume and the interrupt");
    for control in ["abort", "interrupt", "pause", "resume"] {
        let body = Control::default();
        let refused = match control {
            "abort" => house.app.abort(&anyone(), &id, body).await.err(),
            "interrupt" => house.app.interrupt(&anyone(), &id, body).await.err(),
            "pause" => house.app.pause(&anyone(), &id, body).await.err(),
            _ => house.app.resume(&anyone(), &id, body).await.err(),
        };
        assert_eq!(refused.map(|error| error.code()), Some(ErrorCode::Conflict), "{control}");
    }
    let versions: Vec<_> = house.log(&id).await.iter().filter_map(|e| payload(e)["version"].as_u64()).collect();
    assert_eq!((version(&house, &id).await, versions), (5, vec![1, 2, 3, 4, 5]), "each stands in the log once");
}

/// Of several that expect the same version one is done: it is looked at in one go with the change.
#[tokio::test]
async fn of_two_that_expect_the_same_version_one_is_done() {
    let house = open(Storage::Memory, |_| {}).await;
    for kinds in
        [["abort", "abort"], ["configure", "abort"], ["abort", "delete"], ["steer", "delete"], ["pause", "abort"]]
    {
        let (feed, pieces) = mpsc::unbounded_channel();
        house.plays([follows(pieces)]);
        let id = house.session().await;
        let mut reader = house.app.events(&anyone(), &id, 0).await.unwrap();
        house.prompts(&id, "hi", PromptMode::Queue).await.unwrap();
        until(&mut reader, "stream.start").await;
        let before = version(&house, &id).await;
        let doing = kinds.map(|kind| {
            let (app, id, held) = (Arc::clone(&house.app), id.clone(), Some(before));
            tokio::spawn(async move {
                let control = Control { if_version: held, ..Control::default() };
                match kind {
                    "abort" => app.abort(&anyone(), &id, control).await.err(),
                    "pause" => app.pause(&anyone(), &id, control).await.err(),
                    "delete" => app.delete_session_at(&anyone(), &id, held).await.err(),
                    "steer" => {
                        let prompt = PromptContent::Text("more".into());
                        let (mode, configure) = (PromptMode::Steer, None);
                        app.prompt(&anyone(), &id, Prompt { prompt, mode, configure, turn: None, if_version: held })
                            .await
                            .err()
                    }
                    _ => {
                        let changes = Configure { title: Some("t".into()), ..Configure::default() };
                        app.configure(&anyone(), &id, (changes, held)).await.err()
                    }
                }
            })
        });
        let mut refused = Vec::new();
        for one in doing {
            refused.extend(tokio::time::timeout(Duration::from_secs(60), one).await.unwrap().unwrap());
        }
        assert_eq!(refused.len(), 1, "{kinds:?}: {refused:?}");
        assert!([ErrorCode::Conflict, ErrorCode::NotFound].contains(&refused[0].code()), "{kinds:?}: {refused:?}");
        // A message that waits would make its turn ask for what the next one is to be told.
        drop(house.app.delete_session(&anyone(), &id).await);
        drop(feed);
    }
}

/// A paused turn has no place among those that run, and gets one again when there is one.
#[tokio::test]
async fn a_paused_turn_goes_on_when_there_is_room_for_it() {
    let house = open(Storage::Memory, |settings| {
        asks_for_writes(settings);
        settings.limits.turns_max = 1;
    })
    .await;
    let (feed, pieces) = mpsc::unbounded_channel();
    house.plays([writes(1), follows(pieces), says("done")]);
    let (id, other) = (house.session().await, house.session().await);
    let mut reader = house.app.events(&anyone(), &id, 0).await.unwrap();
    let first = house.prompts(&id, "write", PromptMode::Queue).await.unwrap();
    let request = asked(&mut reader).await;
    let pause = begin!(house, id, pause);
    reached(&mut reader, "pause").await;
    allow(&house, &id, request).await;
    assert!(pause.await.unwrap().unwrap().paused);
    let begun = house.prompts(&other, "hi", PromptMode::Queue).await.unwrap();
    let before = version(&house, &id).await;
    let refused = house.app.resume(&anyone(), &id, Control::default()).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::ResourceExhausted);
    assert_eq!(version(&house, &id).await, before);
    drop(feed);
    house.app.wait_turn(&anyone(), &other, &begun.turn_id).await.unwrap();
    let resumes = async {
        // The end of a turn is told before its task is gone.
        while let Err(error) = house.app.resume(&anyone(), &id, Control::default()).await {
            assert_eq!(error.code(), ErrorCode::ResourceExhausted);
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), resumes).await.unwrap();
    let record = house.app.wait_turn(&anyone(), &id, &first.turn_id).await.unwrap();
    assert_eq!(record.status, TurnStatus::Completed);
}

#[tokio::test]
async fn a_pause_that_takes_long_is_on_its_way() {
    let house = open(Storage::Memory, |settings| settings.limits.interrupt_grace_ms = 20).await;
    let (feed, pieces) = mpsc::unbounded_channel();
    house.plays([follows(pieces), says("to the steer")]);
    let id = house.session().await;
    let mut reader = house.app.events(&anyone(), &id, 0).await.unwrap();
    let first = house.prompts(&id, "hi", PromptMode::Queue).await.unwrap();
    until(&mut reader, "stream.start").await;
    let paused = house.app.pause(&anyone(), &id, Control { reason: Some("tea".into()), ..Control::default() }).await;
    assert_eq!(paused.unwrap(), Paused { paused: false, turn_id: first.turn_id.clone(), status: TurnStatus::Running });
    house.prompts(&id, "more", PromptMode::Steer).await.unwrap();
    feed.send("x").unwrap();
    drop(feed);
    assert_eq!(payload(&until(&mut reader, "turn.paused").await), json!({ "reason": "tea", "version": 3 }));
    let undone = house.app.undo(&anyone(), &id, crate::protocol::Undo::default()).await.unwrap_err();
    assert!(undone.0.message.ends_with("is paused; resume or abort it"), "{undone:?}");
    house.app.resume(&anyone(), &id, Control::default()).await.unwrap();
    let record = house.app.wait_turn(&anyone(), &id, &first.turn_id).await.unwrap();
    assert_eq!(record.result.as_deref(), Some("to the steer"));
}

#[tokio::test]
async fn a_fork_of_a_paused_session_is_at_rest_and_the_session_stays_paused() {
    let house = open(Storage::Memory, asks_for_writes).await;
    house.plays([writes(2), says("in the fork"), says("to both"), says("queued")]);
    let id = house.session().await;
    let mut reader = house.app.events(&anyone(), &id, 0).await.unwrap();
    let first = house.prompts(&id, "write", PromptMode::Queue).await.unwrap();
    let request = asked(&mut reader).await;
    let control = begin!(house, id, pause);
    reached(&mut reader, "pause").await;
    house.prompts(&id, "more", PromptMode::Steer).await.unwrap();
    let queued = house.prompts(&id, "later", PromptMode::Queue).await.unwrap();
    allow(&house, &id, request).await;
    control.await.unwrap().unwrap();
    let before = house.app.session(&anyone(), &id).await.unwrap();
    let fork = house.app.fork(&anyone(), &id, Fork::default()).await.unwrap();
    // There the turn has ended, and so has what waited: it goes on with what it is told itself.
    assert_eq!((fork.turn.as_ref(), fork.queued, fork.status), (None, 0, SessionStatus::Aborted));
    let turns = house.app.turns(&anyone(), &fork.session_id, (None, 9), false).await.unwrap().items;
    let ends: Vec<_> = turns.iter().map(|turn| (turn.turn_id.clone(), turn.status)).collect();
    let aborted = |turn: &Accepted| (turn.turn_id.clone(), TurnStatus::Aborted);
    assert!(ends.contains(&aborted(&first)) && ends.contains(&aborted(&queued)), "{ends:?}");
    assert!(ends.iter().all(|(_, status)| *status == TurnStatus::Aborted), "{ends:?}");
    let nothing = house.app.resume(&anyone(), &fork.session_id, Control::default()).await.unwrap_err();
    assert_eq!(nothing.code(), ErrorCode::Conflict);
    assert_eq!(house.turn(&fork.session_id, "go on").await.result.as_deref(), Some("in the fork"));
    // Here nothing has changed.
    assert_eq!(house.app.session(&anyone(), &id).await.unwrap(), before);
    house.app.resume(&anyone(), &id, Control::default()).await.unwrap();
    let request = asked(&mut reader).await;
    allow(&house, &id, request).await;
    let record = house.app.wait_turn(&anyone(), &id, &first.turn_id).await.unwrap();
    assert_eq!(record.result.as_deref(), Some("to both"));
    assert_eq!(house.app.wait_turn(&anyone(), &id, &queued.turn_id).await.unwrap().result.as_deref(), Some("queued"));
    assert!(house.directory.path().join("2.txt").exists());
}
