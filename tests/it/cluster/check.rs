//! A session that has nothing left to do, held against what its client was told and saw.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use serde_json::Value;

use super::forked::beginning;
use super::ledger::Session;
use super::load::{Common, PATIENCE};
use super::nodes::LOOK;
use super::wire::Wanted;

/// How a turn ends.
const ENDS: [&str; 3] = ["session.completed", "session.error", "abort"];
/// What the error of a turn says that ran where a node ended.
pub const INTERRUPTED: &str = "interrupted by";

/// What the log says of a turn.
#[derive(Debug, Default)]
struct Turn {
    prompts: Vec<String>,
    ends: Vec<String>,
    /// It waited where a fork began, and goes no further there.
    is_left: bool,
}

/// Waits until a session has nothing left to do. The answer: the number of its last event.
pub async fn settled(common: &Common, id: &str) -> u64 {
    let client = common.ledger.lock().session(id).client.clone();
    let wanted = Wanted::get(&format!("/sessions/{id}")).by(client.as_deref());
    let begun = Instant::now();
    loop {
        let view = common.ask(&wanted).await;
        assert_eq!(view.status, 200, "{id}: {view:?}");
        if !view.value["turn"].is_object() && view.value["queued"].as_u64().unwrap_or(0) == 0 {
            return view.number("lastSeq");
        }
        assert!(begun.elapsed() < PATIENCE, "{id}: it has something left to do: {view:?}");
        tokio::time::sleep(LOOK).await;
    }
}

/// The log as two nodes have it, which is the same.
async fn log_of_two(common: &Common, id: &str) -> Vec<String> {
    let client = common.ledger.lock().session(id).client.clone();
    let mut logs: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    let (begun, first) = (Instant::now(), common.any());
    for number in (0..common.cluster.count()).map(|nth| (first + nth) % common.cluster.count()).cycle() {
        if !logs.contains_key(&number)
            && let Some(log) = common.cluster.try_log(number, (id, client.as_deref())).await
        {
            logs.insert(number, log);
        }
        if logs.len() == 2 {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{id}: no two nodes have a log");
        tokio::time::sleep(LOOK).await;
    }
    let (nodes, logs): (Vec<usize>, Vec<Vec<String>>) = logs.into_iter().unzip();
    let differs = logs[0].iter().zip(&logs[1]).find(|(one, two)| one != two);
    assert_eq!(differs, None, "{id}: nodes {nodes:?} have two logs");
    assert_eq!(logs[0].len(), logs[1].len(), "{id}: nodes {nodes:?} have logs of two lengths");
    logs.into_iter().next().expect("there are two")
}

/// The log of a fork's parent, which may have been checked long ago.
async fn log_of_parent(common: &Common, id: &str) -> Option<Vec<String>> {
    let (parent, client) = {
        let mut ledger = common.ledger.lock();
        let session = ledger.session(id);
        (session.fork.as_ref()?.parent.clone(), session.client.clone())
    };
    let begun = Instant::now();
    loop {
        let log = common.cluster.try_log(common.any(), (&parent, client.as_deref())).await;
        if log.is_some() {
            return log;
        }
        assert!(begun.elapsed() < PATIENCE, "{parent}: no node has its log");
        tokio::time::sleep(LOOK).await;
    }
}

/// Checks a session that has nothing left to do, and forgets it.
pub async fn check(common: &Common, id: &str) {
    let (log, parent) = (log_of_two(common, id).await, log_of_parent(common, id).await);
    let mut session = common.ledger.lock().sessions.remove(id).expect("it is known");
    if let (Some(fork), Some(log)) = (&mut session.fork, parent) {
        fork.log = log.iter().map(|event| serde_json::from_str(event).expect("JSON")).collect();
    }
    let marks = marks(&common.cluster.work().join(&session.directory));
    let faults = faults(&session, id, (&log, &marks));
    assert!(faults.is_empty(), "{id}: {}\n{}", faults.join("\n"), log.join("\n"));
    // What a fork shares was counted where it came from.
    let own = log.iter().rposition(|event| event.contains("\"session.forked\"")).map_or(0, |at| at + 1);
    let interrupted = log[own..].iter().filter(|event| event.contains("\"session.error\"")).count();
    let mut ledger = common.ledger.lock();
    ledger.count(super::CHECKED);
    (0..interrupted).for_each(|_| ledger.count("turns were interrupted"));
}

/// Holds a log against what a test was told and saw; no commands ran.
#[track_caller]
pub fn hold(session: &Session, id: &str, log: &[String]) {
    let faults = faults(session, id, (log, &BTreeMap::new()));
    assert!(faults.is_empty(), "{id}: {}\n{}", faults.join("\n"), log.join("\n"));
}

/// What the commands of turns left behind, by their tokens.
fn marks(directory: &Path) -> BTreeMap<String, String> {
    let mut marks = BTreeMap::new();
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if let Some(token) = name.strip_prefix("mark-") {
            marks.insert(token.to_owned(), std::fs::read_to_string(&path).expect("a mark"));
        }
    }
    marks
}

/// All that is wrong with a log, and with the marks that its commands left.
fn faults(session: &Session, id: &str, (log, marks): (&[String], &BTreeMap<String, String>)) -> Vec<String> {
    let mut faults = Vec::new();
    let events: Vec<Value> = log.iter().map(|event| serde_json::from_str(event).expect("JSON")).collect();
    for (event, seq) in events.iter().zip(1_u64..) {
        if (event["seq"].as_u64(), event["sessionId"].as_str()) != (Some(seq), Some(id)) {
            faults.push(format!("number {seq} was due: {event}"));
        }
        let message = &event["payload"]["error"]["message"];
        if event["type"] == "session.error" && !message.as_str().is_some_and(|text| text.contains(INTERRUPTED)) {
            faults.push(format!("a turn failed by itself: {event}"));
        }
    }
    for (seq, data) in &session.seen {
        let at = usize::try_from(*seq).expect("few");
        if log.get(at.wrapping_sub(1)) != Some(data) {
            faults.push(format!("event {seq} was seen, and is not in the log: {data}"));
        }
    }
    let forked = beginning(session.fork.as_ref(), id, &events, &mut faults);
    turns((session, forked), &events, &mut faults);
    titles(session, &events, &mut faults);
    commands(session, &events, (marks, &mut faults));
    faults
}

/// Each prompt that was acknowledged is one turn with one end, in the order in which they were sent.
fn turns((session, forked): (&Session, usize), events: &[Value], faults: &mut Vec<String>) {
    let mut turns: BTreeMap<&str, Turn> = BTreeMap::new();
    let mut tokens: Vec<(String, &str)> = Vec::new();
    for (event, seq) in events.iter().zip(1..) {
        let Some(turn) = event["turnId"].as_str() else { continue };
        let kind = event["type"].as_str().expect("a type");
        let log = turns.entry(turn).or_default();
        if !log.ends.is_empty() {
            faults.push(format!("behind the end of its turn: {event}"));
        }
        if kind == "session.prompt" {
            let said = event["payload"]["prompt"].as_str().expect("a text");
            let token = said.split(' ').nth(1).unwrap_or_default().to_owned();
            log.prompts.push(token.clone());
            // Those before were promised to a client of the parent.
            if seq > forked {
                tokens.push((token, turn));
            }
        }
        if ENDS.contains(&kind) {
            log.ends.push(kind.to_owned());
            log.is_left = kind == "abort" && seq < forked;
        }
    }
    for (turn, log) in &turns {
        let begins = log.prompts.len() == 1 || log.is_left && log.prompts.is_empty();
        if !begins || log.ends.len() != 1 {
            faults.push(format!("turn {turn} has not one beginning and one end: {log:?}"));
        }
    }
    for turn in &session.aborted {
        if turns.get(turn.as_str()).is_none_or(|log| log.ends != ["abort"]) {
            faults.push(format!("the abort of {turn} was acknowledged: {:?}", turns.get(turn.as_str())));
        }
    }
    for (token, promised) in &session.prompts {
        let found: Vec<&str> = tokens.iter().filter(|(there, _)| there == token).map(|(_, turn)| *turn).collect();
        if found != promised.as_deref().into_iter().collect::<Vec<_>>() {
            faults.push(format!("{token} was promised turn {promised:?}, and is {found:?}"));
        }
    }
    for (token, turn) in &tokens {
        if !session.prompts.contains_key(token) {
            faults.push(format!("nobody asked for turn {turn}: {token}"));
        }
    }
    if !tokens.is_sorted_by(|(one, _), (two, _)| one <= two) {
        faults.push(format!("not in the order in which they were sent: {tokens:?}"));
    }
}

/// Changes that were acknowledged are there once, those that were refused are not.
fn titles(session: &Session, events: &[Value], faults: &mut Vec<String>) {
    for (title, acknowledged) in &session.titles {
        let is_it =
            |event: &&Value| event["type"] == "session.configured" && event["payload"]["title"] == title.as_str();
        let times = events.iter().filter(is_it).count();
        if times != usize::from(*acknowledged) {
            faults.push(format!("{title}: acknowledged: {acknowledged}, and {times} times in the log"));
        }
    }
}

/// A command runs at most once, and has run when the log says so. The log knows of it, unless the node ended before it had
/// written that down: then the turn was interrupted.
fn commands(session: &Session, events: &[Value], (marks, faults): (&BTreeMap<String, String>, &mut Vec<String>)) {
    let calls = |kind: &str, token: &str| {
        let call = format!("call_{token}");
        events.iter().filter(|event| event["type"] == kind && event["payload"]["callId"] == call.as_str()).count()
    };
    let is_interrupted = |token: &str| {
        let said = format!("run {token}");
        let prompt = events.iter().find(|event| event["payload"]["prompt"] == said.as_str());
        prompt.is_some_and(|prompt| {
            events.iter().any(|event| event["type"] == "session.error" && event["turnId"] == prompt["turnId"])
        })
    };
    // Its parent and its forks have left theirs there, too.
    for (token, text) in marks.iter().filter(|(token, _)| token.ends_with(&session.ending)) {
        if !text.is_empty() && text != "x\n" {
            faults.push(format!("the command of {token} ran twice: {text:?}"));
        }
        let times = calls("tool.call.start", token);
        if times > 1 || times == 0 && !is_interrupted(token) {
            faults.push(format!("the command of {token} ran, and the log does not know of it"));
        }
    }
    for event in events.iter().filter(|event| event["type"] == "tool.call.end" && event["payload"]["name"] == "bash") {
        let payload = &event["payload"];
        let token = payload["callId"].as_str().and_then(|call| call.strip_prefix("call_")).unwrap_or_default();
        if payload["isError"] == false && marks.get(token).is_none_or(|text| text != "x\n") {
            faults.push(format!("the command of {token} ran to its end, and left nothing: {event}"));
        }
    }
}

/// The check, held against made-up faults.
mod self_test {
    use serde_json::json;

    use super::*;

    fn event(seq: u64, kind: &str, payload: Value) -> String {
        json!({ "seq": seq, "sessionId": "s", "turnId": "u", "type": kind, "payload": payload }).to_string()
    }

    fn sound() -> (Session, Vec<String>, BTreeMap<String, String>) {
        let log = vec![
            json!({ "seq": 1, "sessionId": "s", "type": "session.configured", "payload": { "title": "c" } })
                .to_string(),
            event(2, "session.prompt", json!({ "prompt": "run t" })),
            event(3, "tool.call.start", json!({ "callId": "call_t", "name": "bash" })),
            event(4, "tool.call.end", json!({ "callId": "call_t", "name": "bash", "isError": false })),
            event(5, "session.completed", json!({})),
        ];
        let session = Session {
            prompts: BTreeMap::from([("t".to_owned(), Some("u".to_owned()))]),
            titles: BTreeMap::from([("c".to_owned(), true), ("d".to_owned(), false)]),
            seen: (1..).zip(log.clone()).collect(),
            ..Session::default()
        };
        (session, log, BTreeMap::from([("t".to_owned(), "x\n".to_owned())]))
    }

    /// Something that is done to what is sound.
    type Harm = fn(&mut Session, &mut Vec<String>, &mut BTreeMap<String, String>);

    #[test]
    fn each_fault_is_seen() {
        #[rustfmt::skip]
        let table: &[(&str, Harm)] = &[
            ("event 5 was seen",              |_, log, _| log.truncate(4)),
            ("number 3 was due",              |_, log, _| drop(log.remove(2))),
            ("number 2 was due",              |_, log, _| log.insert(1, log[0].clone())),
            ("event 9 was seen",              |session, _, _| drop(session.seen.insert(9, "late".to_owned()))),
            ("not one beginning and one end", |_, log, _| log.truncate(4)),
            ("behind the end of its turn",    |_, log, _| log.push(event(6, "stream.delta", json!({})))),
            ("not one beginning and one end", |_, log, _| log.push(event(6, "abort", json!({})))),
            ("a turn failed by itself",       |_, log, _| log[4] = event(5, "session.error", json!({ "error": { "message": "why" } }))),
            ("t was promised turn",           |session, _, _| drop(session.prompts.insert("t".to_owned(), Some("v".to_owned())))),
            ("v was promised turn",           |session, _, _| drop(session.prompts.insert("v".to_owned(), Some("v".to_owned())))),
            ("turn v has not one beginning",  |_, log, _| log.push(json!({ "seq": 6, "sessionId": "s", "turnId": "v", "type": "abort" }).to_string())),
            ("it is to be None",              |_, log, _| log[0] = json!({ "seq": 1, "sessionId": "s", "type": "session.forked", "payload": { "sessionId": "s" } }).to_string()),
            ("nobody asked for turn u",       |session, _, _| session.prompts.clear()),
            ("the abort of u",                |session, _, _| { session.aborted.insert("u".to_owned()); }),
            ("c: acknowledged: false",        |session, _, _| { session.titles.insert("c".to_owned(), false); }),
            ("d: acknowledged: true",         |session, _, _| { session.titles.insert("d".to_owned(), true); }),
            ("ran twice",                     |_, _, marks| drop(marks.insert("t".to_owned(), "x\nx\n".to_owned()))),
            ("does not know of it",           |_, _, marks| drop(marks.insert("v".to_owned(), "x\n".to_owned()))),
            ("left nothing",                  |_, _, marks| marks.clear()),
        ];
        let (session, log, marks) = sound();
        assert_eq!(faults(&session, "s", (&log, &marks)), [""; 0]);
        for (want, harm) in table {
            let (mut session, mut log, mut marks) = sound();
            harm(&mut session, &mut log, &mut marks);
            let found = faults(&session, "s", (&log, &marks));
            assert!(found.iter().any(|fault| fault.contains(want)), "{want}: {found:?}");
        }
    }
}
