//! A server that has just started, held against what the clients were told before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::ledger::{Existence, Files, Ledger, Session, Word};
use crate::support::program::Program;

/// How often everything is read again from the first event, in lives.
const WHOLE_EVERY: u64 = 16;

impl Session {
    /// Goes on judging the log, whose numbers follow without gaps.
    fn judge(&mut self, id: &str, seq: u64, data: &str) {
        let event: Value = serde_json::from_str(data).expect("JSON");
        assert_eq!((event["seq"].as_u64(), event["sessionId"].as_str()), (Some(seq), Some(id)), "{data}");
        self.judged = seq;
        let kind = event["type"].as_str().expect("a type");
        let payload = &event["payload"];
        self.questions.judge(&event);
        if matches!(kind, "session.prompt" | "session.steer") {
            let said = payload["prompt"].as_str().expect("a text");
            let token = said.split(' ').nth(1).expect("a token").to_owned();
            let opened = kind == "session.prompt";
            assert_eq!(self.tokens.insert(token, (seq, opened)), None, "{id}: {data}: ran twice");
        }
        if let ("session.configured", Some(title)) = (kind, payload["title"].as_str()) {
            assert!(self.titled.insert(title.to_owned()), "{id}: {data}: configured twice");
            self.title = Some(title.to_owned());
        }
        if let ("tool.call.end", Some("bash"), Some(false)) =
            (kind, payload["name"].as_str(), payload["isError"].as_bool())
            && let Some(token) = payload["callId"].as_str().and_then(|call| call.strip_prefix("call_"))
        {
            assert!(self.ran.insert(token.to_owned()), "{id}: {data}: it ran twice");
        }
        let Some(turn) = event["turnId"].as_str() else { return };
        let at = event["at"].as_u64().expect("a time");
        let log = self.turns.entry(turn.to_owned()).or_default();
        assert_eq!(log.ended, None, "{id}: {data} comes behind the end of its turn");
        match kind {
            "session.prompt" => log.began_at = at,
            "turn.paused" => (log.pauses, log.holds) = (log.pauses + 1, true),
            "turn.resumed" => log.holds = false,
            "session.completed" | "session.error" | "abort" => log.ended = Some(kind.to_owned()),
            _ => {}
        }
    }

    /// What holds at any time after a restart that began at `begun`; `view` is what the server says of it now.
    fn hold(&self, id: &str, view: &Value, begun: u64) {
        for (turn, log) in &self.turns {
            let began_before = log.began_at > 0 && log.began_at < begun;
            let over = !began_before || log.ended.is_some();
            assert!(over || log.holds, "{id}: turn {turn} runs since before the restart: {log:?}");
            if !over {
                let now = (view["turn"]["turnId"].as_str(), view["turn"]["status"].as_str());
                assert_eq!(now, (Some(turn.as_str()), Some("paused")), "{id}: a paused turn stays paused: {view}");
            }
        }
        self.questions.hold(id, &self.answers, &self.turns, begun);
        for shown in view["requests"].as_array().into_iter().flatten() {
            let request = shown["payload"]["requestId"].as_str().expect("an id");
            assert!(!self.answers.contains_key(request), "{id}: {request} is asked, and its answer was acknowledged");
        }
        for (token, prompted) in &self.prompts {
            assert!(prompted.word != Word::No || !self.tokens.contains_key(token), "{id}: {token} was refused and ran");
        }
        for turn in &self.stopped {
            let ended = self.turns.get(turn).and_then(|log| log.ended.as_deref());
            assert_eq!(ended, Some("abort"), "{id}: the end of {turn} was acknowledged");
        }
        for turn in &self.paused {
            let pauses = self.turns.get(turn).map_or(0, |log| log.pauses);
            assert!(pauses > 0, "{id}: the pause of {turn} was acknowledged");
        }
        for (title, acknowledged) in &self.titles {
            assert_eq!(self.titled.contains(title), *acknowledged, "{id}: {title} was acknowledged, or refused");
        }
        if let (Some(title), false) = (&self.title, self.is_fork) {
            assert_eq!(view["title"].as_str(), Some(title.as_str()), "{id}: the last title of the log");
        }
        // What was queued runs in the order in which it was sent.
        let mut queued: Vec<(&String, u64)> = Vec::new();
        for (token, (seq, opened)) in &self.tokens {
            if *opened && self.prompts.get(token).is_some_and(|p| p.mode != "steer") {
                queued.push((token, *seq));
            }
        }
        assert!(queued.is_sorted_by_key(|(_, seq)| *seq), "{id}: not in order: {queued:?}");
    }

    /// What holds when nothing is left to do.
    fn hold_at_the_end(&self, id: &str) {
        for (token, prompted) in &self.prompts {
            if let Word::Yes(turn) = &prompted.word {
                let (seq, opened) =
                    self.tokens.get(token).unwrap_or_else(|| panic!("{id}: {token} was accepted and lost"));
                let event: Value = serde_json::from_str(&self.seen[seq]).expect("JSON");
                // A steer whose turn ended first gets a turn of its own.
                let kept = prompted.mode == "steer" && *opened;
                assert!(kept || event["turnId"] == turn.as_str(), "{id}: {token} was promised turn {turn}: {event}");
            }
        }
        for (turn, log) in &self.turns {
            assert!(log.ended.is_some(), "{id}: turn {turn} never ended");
        }
    }
}

impl Ledger {
    /// What holds between sessions.
    fn hold_together(&self, end: bool) {
        for (id, one, two) in &self.races {
            let Some(session) = self.sessions.get(id) else { continue };
            let both = session.titled.contains(one) && session.titled.contains(two);
            assert!(!both, "{id}: {one} and {two} were changes of the same version");
        }
        for ((id, token), (other, needed)) in &self.needs {
            let (Some(session), Some(other)) = (self.sessions.get(id), self.sessions.get(other)) else { continue };
            if !session.tokens.contains_key(token) {
                continue;
            }
            let refused = other.prompts.get(needed).is_some_and(|prompted| prompted.word == Word::No);
            assert!(!refused, "{id}: {token} ran, and needed {needed}, which was refused");
            // The log of one that was deleted has gone with it.
            let shows = end && other.existence == Existence::Made;
            assert!(!shows || other.tokens.contains_key(needed), "{id}: {token} ran without {needed}");
        }
    }

    /// What commands left behind on the disk.
    fn hold_files(&self) {
        let mut by_directory: BTreeMap<&str, BTreeSet<&String>> = BTreeMap::new();
        for session in self.sessions.values().filter(|session| session.existence == Existence::Made) {
            session.questions.hold_told(&self.work);
            by_directory.entry(&session.directory).or_default().extend(&session.ran);
        }
        let none = Files::default();
        for (directory, ran) in by_directory {
            let place = self.work.join(directory);
            for entry in std::fs::read_dir(&place).expect("a directory") {
                let path = entry.expect("an entry").path();
                let name = path.file_name().expect("a name").to_string_lossy().into_owned();
                if name.starts_with("mark-") {
                    let text = std::fs::read_to_string(&path).expect("a mark");
                    assert!(text.is_empty() || text == "x\n", "{}: it ran twice: {text:?}", path.display());
                }
            }
            let files = self.files.get(directory).unwrap_or(&none);
            if files.unknown {
                continue;
            }
            for (path, there) in &files.paths {
                assert_eq!(place.join(path).exists(), *there, "{directory}/{path}: undone or redone");
            }
            for token in ran {
                let mark = format!("mark-{token}");
                let undone = files.paths.contains_key(&mark);
                assert!(undone || place.join(&mark).exists(), "{directory}: {token} ran to its end and left no mark");
            }
        }
    }
}

/// Holds a server that has just started against the ledger. At the end, once it has nothing left to do.
pub async fn check(program: &Program, ledger: &Arc<Mutex<Ledger>>, begun: u64, end: bool) {
    list(program, ledger).await;
    let (all, whole) = {
        let ledger = ledger.lock();
        (ledger.sessions.keys().cloned().collect::<Vec<_>>(), end || ledger.lives.is_multiple_of(WHOLE_EVERY))
    };
    for id in all {
        check_session(program, ledger, &id, (begun, end, whole)).await;
    }
    let ledger = &mut *ledger.lock();
    ledger.sessions.retain(|_, session| end || session.existence != Existence::Gone);
    ledger.hold_together(end);
    ledger.hold_files();
    let sessions = &ledger.sessions;
    ledger.races.retain(|(id, ..)| sessions.contains_key(id));
    ledger.needs.retain(|((id, _), (other, _))| sessions.contains_key(id) && sessions.contains_key(other));
}

/// The list of sessions has none that nobody made.
async fn list(program: &Program, ledger: &Arc<Mutex<Ledger>>) {
    let mut cursor = String::new();
    let mut forks = BTreeSet::new();
    loop {
        let (status, page) = program.call("GET", &format!("/sessions?limit=200{cursor}"), None).await;
        assert_eq!(status, 200, "{page}");
        let mut ledger = ledger.lock();
        for view in page["items"].as_array().expect("a list") {
            let (id, title) = (view["sessionId"].as_str().expect("an id"), view["title"].as_str().unwrap_or_default());
            if ledger.sessions.contains_key(id) {
                continue;
            }
            assert!(forks.insert(title.to_owned()), "forked twice: {view}");
            if let Some(owner) = ledger.lost_forks.remove(title) {
                ledger.adopt(owner, id, view["workingDirectory"].as_str().expect("a path"));
            } else {
                assert!(ledger.will_be_forked(title), "nobody made it: {view}");
                ledger.found_forks.insert(title.to_owned());
            }
        }
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return,
        }
    }
}

/// What the server says of a session. None: there is none, as it may be.
async fn view_of(program: &Program, ledger: &Arc<Mutex<Ledger>>, id: &str) -> Option<Value> {
    let (status, view) = program.call("GET", &format!("/sessions/{id}"), None).await;
    let mut ledger = ledger.lock();
    let may_come = ledger.will_be_made(id);
    let session = ledger.sessions.get_mut(id).expect("it is known");
    session.existence = match (session.existence, status) {
        (Existence::Made | Existence::PerhapsMade | Existence::PerhapsGone, 200) => Existence::Made,
        (Existence::PerhapsMade, 404) if may_come => Existence::PerhapsMade,
        (Existence::Gone | Existence::PerhapsMade | Existence::PerhapsGone, 404) => Existence::Gone,
        (existence, status) => panic!("{id}: {existence:?} and {status}: {view}"),
    };
    (status == 200).then_some(view)
}

/// Waits until a session has nothing left to do; what holds goes on.
async fn settled(program: &Program, id: &str, mut view: Value) -> Value {
    while view["turn"].is_object() || view["queued"] != 0 {
        if view["turn"]["status"] == "paused" {
            program.call("POST", &format!("/sessions/{id}/resume"), Some(json!({}))).await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        view = program.call("GET", &format!("/sessions/{id}"), None).await.1;
    }
    view
}

async fn check_session(
    program: &Program,
    ledger: &Arc<Mutex<Ledger>>,
    id: &str,
    (begun, end, whole): (u64, bool, bool),
) {
    let Some(mut view) = view_of(program, ledger, id).await else { return };
    if end {
        view = settled(program, id, view).await;
    }
    ledger.lock().viewed(id, &view);
    let last = view["lastSeq"].as_u64().expect("a number");
    let (newest, judged) = {
        let ledger = ledger.lock();
        (ledger.newest(id), ledger.sessions[id].judged)
    };
    assert!(newest <= last, "{id}: event {newest} was seen and the log ends at {last}");
    let mut at = if whole { 0 } else { judged };
    if at < last {
        let mut events = program.events(id, at).await;
        while at < last {
            let (seq, data) = events.next().await.expect("the log goes on");
            at += 1;
            assert_eq!(seq, at, "{id}: numbers follow without gaps");
            let mut ledger = ledger.lock();
            ledger.saw(id, seq, &data);
            let session = ledger.sessions.get_mut(id).expect("it is known");
            let own = !session.is_fork;
            if seq > session.judged {
                session.judge(id, seq, &data);
            }
            if own && seq > judged && data.contains("interrupted by restart") && data.contains("session.error") {
                ledger.count("turns were ended by a restart");
            }
        }
    }
    records(program, ledger, id, whole).await;
    let ledger = ledger.lock();
    let session = &ledger.sessions[id];
    session.hold(id, &view, begun);
    if end {
        session.hold_at_the_end(id);
    }
}

/// The records of the turns: those that were over are what they were, the others fit the log.
async fn records(program: &Program, ledger: &Arc<Mutex<Ledger>>, id: &str, whole: bool) {
    let promised: Vec<String> = {
        let ledger = ledger.lock();
        let session = &ledger.sessions[id];
        let words = session.prompts.values().map(|prompted| prompted.word.clone());
        let turns = words.filter_map(|word| if let Word::Yes(turn) = word { Some(turn) } else { None });
        turns.filter(|turn| whole || !session.records.contains_key(turn)).collect()
    };
    for turn in promised {
        let (status, record) = program.call("GET", &format!("/sessions/{id}/turns/{turn}"), None).await;
        assert_eq!(status, 200, "{id}: turn {turn} was promised: {record}");
        let mut ledger = ledger.lock();
        let session = ledger.sessions.get_mut(id).expect("it is known");
        if let Some(before) = session.records.get(&turn) {
            assert_eq!(before, &record, "{id}: a record that was over");
        }
        let said = record["status"].as_str().expect("a status");
        let ended = session.turns.get(&turn).and_then(|log| log.ended.as_deref());
        match ended {
            Some("session.completed") => assert_eq!(said, "completed", "{id}: {record}"),
            Some("session.error") => assert_eq!(said, "failed", "{id}: {record}"),
            Some(_) => assert!(matches!(said, "aborted" | "interrupted"), "{id}: {record}"),
            // It goes on while this is read.
            None => {}
        }
        if ended.is_some() {
            session.records.insert(turn, record);
        }
    }
}
