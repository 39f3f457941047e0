//! What the clients were told, and what the log must therefore say after every restart.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;

use crate::support::program::Program;

/// How often everything is read again from the first event, in lives.
const WHOLE_EVERY: u64 = 16;

/// Whether somebody was told that something happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Word {
    /// The server went before it answered: either.
    Perhaps,
    /// It was refused.
    No,
    /// It was acknowledged, with this turn.
    Yes(String),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Existence {
    /// The answer to the creation never came.
    PerhapsMade,
    Made,
    /// The answer to the deletion never came.
    PerhapsGone,
    Gone,
}

#[derive(Debug)]
struct Prompted {
    mode: &'static str,
    word: Word,
}

/// What the log says of a turn.
#[derive(Debug, Default)]
struct TurnLog {
    began_at: u64,
    ended: Option<String>,
}

#[derive(Debug)]
struct Session {
    owner: u64,
    existence: Existence,
    prompts: BTreeMap<String, Prompted>,
    /// Acknowledged aborts, by turn.
    aborted: BTreeSet<String>,
    /// Acknowledged answers, by request.
    answers: BTreeMap<String, bool>,
    /// Records of turns that were over.
    records: BTreeMap<String, Value>,
    version: u64,
    /// Every event that anybody saw.
    seen: BTreeMap<u64, String>,
    /// How far the log was judged.
    judged: u64,
    turns: BTreeMap<String, TurnLog>,
    /// Where in the log a prompt's token stands: the event's number, and whether it opened a turn.
    tokens: BTreeMap<String, (u64, bool)>,
    responses: BTreeMap<String, bool>,
}

/// How often the clients were told something.
#[derive(Debug, Default)]
pub struct Told {
    sessions: usize,
    prompts: usize,
    answers: usize,
    aborts: usize,
    deletions: usize,
    cut: usize,
    /// Turns that a restart ended.
    interrupted: usize,
}

impl Told {
    pub fn counts(&self) -> [(&'static str, usize); 7] {
        [
            ("sessions were made", self.sessions),
            ("prompts were accepted", self.prompts),
            ("questions were answered", self.answers),
            ("turns were aborted", self.aborts),
            ("sessions were deleted", self.deletions),
            ("requests were cut off", self.cut),
            ("turns were interrupted", self.interrupted),
        ]
    }
}

pub struct Ledger {
    work: PathBuf,
    sessions: BTreeMap<String, Session>,
    next: u64,
    lives: u64,
    pub told: Told,
}

impl Ledger {
    pub fn new(work: &Path) -> Self {
        Self { work: work.to_owned(), sessions: BTreeMap::new(), next: 0, lives: 0, told: Told::default() }
    }

    fn session(&mut self, id: &str) -> &mut Session {
        self.sessions.get_mut(id).expect("the clients know their sessions")
    }

    /// The server is gone. What nobody answered stays open; its streams have ended.
    pub fn next_life(&mut self, round: u64) {
        self.lives = round + 1;
        let words = self.sessions.values().flat_map(|session| session.prompts.values());
        self.told.cut = words.filter(|prompted| prompted.word == Word::Perhaps).count().max(self.told.cut);
    }

    pub fn sessions_of(&self, owner: u64) -> Vec<String> {
        let own = self.sessions.iter().filter(|(_, s)| s.owner == owner && s.existence == Existence::Made);
        own.map(|(id, _)| id.clone()).collect()
    }

    pub fn prompts(&self, id: &str) -> usize {
        self.sessions[id].prompts.len()
    }

    pub fn newest(&self, id: &str) -> u64 {
        self.sessions[id].seen.keys().next_back().copied().unwrap_or(0)
    }

    pub fn creating(&mut self, owner: u64) -> String {
        self.next += 1;
        let id = format!("s{}", self.next);
        let session = Session {
            owner,
            existence: Existence::PerhapsMade,
            prompts: BTreeMap::new(),
            aborted: BTreeSet::new(),
            answers: BTreeMap::new(),
            records: BTreeMap::new(),
            version: 0,
            seen: BTreeMap::new(),
            judged: 0,
            turns: BTreeMap::new(),
            tokens: BTreeMap::new(),
            responses: BTreeMap::new(),
        };
        self.sessions.insert(id.clone(), session);
        id
    }

    pub fn created(&mut self, id: &str) {
        self.told.sessions += 1;
        self.session(id).existence = Existence::Made;
    }

    pub fn deleting(&mut self, id: &str) {
        self.session(id).existence = Existence::PerhapsGone;
    }

    pub fn deleted(&mut self, id: &str) {
        self.told.deletions += 1;
        self.session(id).existence = Existence::Gone;
    }

    /// A new token for a prompt. Tokens sort in the order in which they were sent.
    pub fn prompting(&mut self, id: &str, mode: &'static str) -> String {
        self.next += 1;
        let token = format!("t{:08}", self.next);
        self.session(id).prompts.insert(token.clone(), Prompted { mode, word: Word::Perhaps });
        token
    }

    pub fn prompted(&mut self, id: &str, token: &str, word: Word) {
        self.told.prompts += usize::from(matches!(word, Word::Yes(_)));
        self.session(id).prompts.get_mut(token).expect("it was sent").word = word;
    }

    pub fn aborted(&mut self, id: &str, turn: &str) {
        self.told.aborts += 1;
        self.session(id).aborted.insert(turn.to_owned());
    }

    pub fn answered(&mut self, id: &str, request: &str, allowed: bool) {
        self.told.answers += 1;
        self.session(id).answers.insert(request.to_owned(), allowed);
    }

    pub fn finished(&mut self, id: &str, record: &Value) {
        let turn = record["turnId"].as_str().expect("an id").to_owned();
        assert_eq!(self.session(id).records.insert(turn, record.clone()), None);
    }

    pub fn viewed(&mut self, id: &str, view: &Value) {
        let version = view["version"].as_u64().expect("a number");
        let session = self.session(id);
        assert!(version >= session.version, "{id}: version {version} came after {}", session.version);
        session.version = version;
    }

    /// An event as a stream showed it. The answer: the request, when it is a question.
    pub fn saw(&mut self, id: &str, seq: u64, data: &str) -> Option<String> {
        let session = self.session(id);
        match session.seen.get(&seq) {
            Some(before) => assert_eq!(before, data, "{id}: event {seq} is what it was"),
            None => drop(session.seen.insert(seq, data.to_owned())),
        }
        if !data.contains("\"permission.request\"") {
            return None;
        }
        let event: Value = serde_json::from_str(data).expect("JSON");
        (event["type"] == "permission.request").then(|| event["payload"]["requestId"].as_str().unwrap().to_owned())
    }
}

impl Session {
    /// Goes on judging the log, whose numbers follow without gaps.
    fn judge(&mut self, id: &str, seq: u64, data: &str) {
        let event: Value = serde_json::from_str(data).expect("JSON");
        assert_eq!((event["seq"].as_u64(), event["sessionId"].as_str()), (Some(seq), Some(id)), "{data}");
        self.judged = seq;
        let kind = event["type"].as_str().expect("a type");
        if kind == "permission.response" {
            let request = event["payload"]["requestId"].as_str().expect("an id").to_owned();
            let allowed = event["payload"]["allowed"].as_bool().expect("a verdict");
            assert_eq!(self.responses.insert(request, allowed), None, "{id}: {data}: answered twice");
        }
        if matches!(kind, "session.prompt" | "session.steer") {
            let said = event["payload"]["prompt"].as_str().expect("a text");
            let token = said.split(' ').nth(1).expect("a token").to_owned();
            let opened = kind == "session.prompt";
            assert_eq!(self.tokens.insert(token, (seq, opened)), None, "{id}: {data}: ran twice");
        }
        let Some(turn) = event["turnId"].as_str() else { return };
        let at = event["at"].as_u64().expect("a time");
        let log = self.turns.entry(turn.to_owned()).or_default();
        assert_eq!(log.ended, None, "{id}: {data} comes behind the end of its turn");
        match kind {
            "session.prompt" => log.began_at = at,
            "session.completed" | "session.error" | "abort" => log.ended = Some(kind.to_owned()),
            _ => {}
        }
    }

    /// What holds at any time after a restart that began at `begun`.
    fn hold(&self, id: &str, begun: u64) {
        for (turn, log) in &self.turns {
            let began_before = log.began_at > 0 && log.began_at < begun;
            assert!(!began_before || log.ended.is_some(), "{id}: turn {turn} runs since before the restart: {log:?}");
        }
        for (request, allowed) in &self.answers {
            assert_eq!(self.responses.get(request), Some(allowed), "{id}: the answer to {request}");
        }
        for (token, prompted) in &self.prompts {
            assert!(prompted.word != Word::No || !self.tokens.contains_key(token), "{id}: {token} was refused and ran");
        }
        for turn in &self.aborted {
            let ended = self.turns.get(turn).and_then(|log| log.ended.as_deref());
            assert_eq!(ended, Some("abort"), "{id}: the abort of {turn} was acknowledged");
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

/// Holds a server that has just started against the ledger. At the end, once it has nothing left to do.
pub async fn check(program: &Program, ledger: &Arc<Mutex<Ledger>>, begun: u64, end: bool) {
    let (all, whole) = {
        let ledger = ledger.lock();
        (ledger.sessions.keys().cloned().collect::<Vec<_>>(), end || ledger.lives.is_multiple_of(WHOLE_EVERY))
    };
    for id in all {
        check_session(program, ledger, &id, (begun, end, whole)).await;
    }
    let ledger = &mut *ledger.lock();
    ledger.sessions.retain(|_, session| end || session.existence != Existence::Gone);
    let text = std::fs::read_to_string(ledger.work.join("ran.log")).unwrap_or_default();
    let mut ran = BTreeSet::new();
    for token in text.lines() {
        assert!(ran.insert(token), "the command of {token} ran twice");
    }
}

async fn check_session(
    program: &Program,
    ledger: &Arc<Mutex<Ledger>>,
    id: &str,
    (begun, end, whole): (u64, bool, bool),
) {
    let path = format!("/sessions/{id}");
    let (status, mut view) = program.call("GET", &path, None).await;
    let existence = {
        let mut ledger = ledger.lock();
        let session = ledger.session(id);
        session.existence = match (session.existence, status) {
            (Existence::Made | Existence::PerhapsMade | Existence::PerhapsGone, 200) => Existence::Made,
            (Existence::Gone | Existence::PerhapsMade | Existence::PerhapsGone, 404) => Existence::Gone,
            (existence, status) => panic!("{id}: {existence:?} and {status}: {view}"),
        };
        session.existence
    };
    if existence == Existence::Gone {
        return;
    }
    while end && (view["turn"].is_object() || view["queued"] != 0) {
        tokio::time::sleep(Duration::from_millis(20)).await;
        view = program.call("GET", &path, None).await.1;
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
            let session = ledger.session(id);
            if seq > session.judged {
                session.judge(id, seq, &data);
            }
            ledger.told.interrupted +=
                usize::from(seq > judged && data.contains("interrupted by restart") && data.contains("session.error"));
        }
    }
    records(program, ledger, id).await;
    let ledger = ledger.lock();
    let session = &ledger.sessions[id];
    session.hold(id, begun);
    if end {
        session.hold_at_the_end(id);
    }
}

/// The records of the turns: those that were over are what they were, the others fit the log.
async fn records(program: &Program, ledger: &Arc<Mutex<Ledger>>, id: &str) {
    let promised: Vec<String> = {
        let ledger = ledger.lock();
        let words = ledger.sessions[id].prompts.values().map(|prompted| prompted.word.clone());
        words.filter_map(|word| if let Word::Yes(turn) = word { Some(turn) } else { None }).collect()
    };
    for turn in promised {
        let (status, record) = program.call("GET", &format!("/sessions/{id}/turns/{turn}"), None).await;
        assert_eq!(status, 200, "{id}: turn {turn} was promised: {record}");
        let mut ledger = ledger.lock();
        let session = ledger.session(id);
        if let Some(before) = session.records.get(&turn) {
            assert_eq!(before, &record, "{id}: a record that was over");
        }
        let said = record["status"].as_str().expect("a status");
        let ended = session.turns.get(&turn).and_then(|log| log.ended.as_deref());
        match ended {
            Some("session.completed") => assert_eq!(said, "completed", "{id}: {record}"),
            Some("session.error") => assert_eq!(said, "failed", "{id}: {record}"),
            Some(_) => assert_eq!(said, "aborted", "{id}: {record}"),
            // It goes on while this is read.
            None => {}
        }
        if ended.is_some() {
            session.records.insert(turn, record);
        }
    }
}
