//! What the clients asked for and what they were told. `check` holds the log and the disk against it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::asking::{Question, Questions, said_yes};
use super::now_ms;
use super::wire::{Asked, Said};

/// For how long outcomes are asked for again. The server remembers them for longer.
const REMEMBERED_MS: u64 = 8 * 60 * 1_000;
/// Answers that are asked for again.
const KEPT: usize = 600;

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
pub enum Existence {
    /// The answer to the creation never came.
    PerhapsMade,
    Made,
    /// The answer to the deletion never came.
    PerhapsGone,
    Gone,
}

#[derive(Debug)]
pub struct Prompted {
    pub mode: &'static str,
    pub word: Word,
}

/// What the log says of a turn.
#[derive(Debug, Default)]
pub struct TurnLog {
    pub began_at: u64,
    pub ended: Option<String>,
    pub pauses: usize,
    /// The last that was said of it is that it holds.
    pub holds: bool,
}

/// What is known of the files of a directory, which one session and its forks share.
#[derive(Debug, Default)]
pub struct Files {
    /// By what was acknowledged: paths that are there, and paths that are not.
    pub paths: BTreeMap<String, bool>,
    /// An undo or a redo was cut off: any of them may be as it was before.
    pub unknown: bool,
}

#[derive(Debug)]
pub struct Session {
    pub owner: u64,
    pub existence: Existence,
    pub directory: String,
    pub is_fork: bool,
    pub prompts: BTreeMap<String, Prompted>,
    /// Acknowledged aborts and interrupts, by turn.
    pub stopped: BTreeSet<String>,
    /// Acknowledged pauses, by turn.
    pub paused: BTreeSet<String>,
    /// Acknowledged answers, by request.
    pub answers: BTreeMap<String, bool>,
    /// Titles, and whether they were acknowledged or refused.
    pub titles: BTreeMap<String, bool>,
    /// Records of turns that were over.
    pub records: BTreeMap<String, Value>,
    pub version: u64,
    /// Every event that anybody saw.
    pub seen: BTreeMap<u64, String>,
    /// The newest event that says whether a turn holds, and what it says.
    holds: (u64, bool),
    /// How far the log was judged.
    pub judged: u64,
    pub turns: BTreeMap<String, TurnLog>,
    /// Where in the log a prompt's token stands: the event's number, and whether it opened a turn.
    pub tokens: BTreeMap<String, (u64, bool)>,
    pub questions: Questions,
    /// Titles in the log, and the last one.
    pub titled: BTreeSet<String>,
    pub title: Option<String>,
    /// Tokens of commands that the log says were run to their end.
    pub ran: BTreeSet<String>,
}

impl Session {
    pub fn new(owner: u64, directory: String) -> Self {
        Self {
            owner,
            existence: Existence::PerhapsMade,
            directory,
            is_fork: false,
            prompts: BTreeMap::new(),
            stopped: BTreeSet::new(),
            paused: BTreeSet::new(),
            answers: BTreeMap::new(),
            titles: BTreeMap::new(),
            records: BTreeMap::new(),
            version: 0,
            seen: BTreeMap::new(),
            holds: (0, false),
            judged: 0,
            turns: BTreeMap::new(),
            tokens: BTreeMap::new(),
            questions: Questions::default(),
            titled: BTreeSet::new(),
            title: None,
            ran: BTreeSet::new(),
        }
    }
}

/// A command whose answer has not come.
#[derive(Debug)]
struct Pending {
    owner: u64,
    asked: Asked,
    at: u64,
}

/// A command and its answer.
#[derive(Debug)]
struct Kept {
    owner: u64,
    asked: Asked,
    said: Said,
    at: u64,
}

pub struct Ledger {
    pub work: PathBuf,
    pub sessions: BTreeMap<String, Session>,
    pub files: BTreeMap<String, Files>,
    pending: BTreeMap<u64, Pending>,
    kept: Vec<Kept>,
    /// Titles of which at most one is in the log of a session.
    pub races: Vec<(String, String, String)>,
    /// A prompt (session, token) that is in the log only if another one is.
    pub needs: Vec<((String, String), (String, String))>,
    /// Titles of forks that nobody can ask for again, and their owners.
    pub lost_forks: BTreeMap<String, u64>,
    /// Titles of forks that are there and will be asked for again.
    pub found_forks: BTreeSet<String>,
    next: u64,
    pub lives: u64,
    /// How often something happened.
    pub told: BTreeMap<&'static str, usize>,
}

impl Ledger {
    pub fn new(work: &Path) -> Self {
        Self {
            work: work.to_owned(),
            sessions: BTreeMap::new(),
            files: BTreeMap::new(),
            pending: BTreeMap::new(),
            kept: Vec::new(),
            races: Vec::new(),
            needs: Vec::new(),
            lost_forks: BTreeMap::new(),
            found_forks: BTreeSet::new(),
            next: 0,
            lives: 0,
            told: BTreeMap::new(),
        }
    }

    pub fn count(&mut self, what: &'static str) {
        *self.told.entry(what).or_default() += 1;
    }

    /// A name that nothing else has. Later ones sort behind earlier ones.
    pub fn name(&mut self, kind: &str) -> String {
        self.next += 1;
        format!("{kind}{:08}", self.next)
    }

    /// The server is gone. What nobody answered stays open; what nobody can ask for again stays so for ever.
    pub fn next_life(&mut self, round: u64) {
        self.lives = round + 1;
        let long_ago = now_ms().saturating_sub(REMEMBERED_MS);
        let all = std::mem::take(&mut self.pending);
        for (number, pending) in all {
            self.count("requests were cut off");
            if matches!(pending.asked.kind, "undo" | "redo") {
                self.files_of(&pending.asked.session).unknown = true;
            }
            if pending.asked.key.is_some() && pending.at > long_ago {
                self.pending.insert(number, pending);
            } else if pending.asked.kind == "fork" {
                let title = pending.asked.token().expect("a title").to_owned();
                self.lost_forks.insert(title, pending.owner);
            }
        }
        let surplus = self.kept.len().saturating_sub(KEPT);
        self.kept.drain(..surplus);
        self.kept.retain(|kept| kept.at > long_ago);
    }

    fn files_of(&mut self, session: &str) -> &mut Files {
        let directory = self.sessions.get(session).map_or("", |session| &session.directory);
        self.files.entry(directory.to_owned()).or_default()
    }

    pub fn sessions_of(&self, owner: u64) -> Vec<String> {
        let own = self.sessions.iter().filter(|(_, s)| s.owner == owner && s.existence == Existence::Made);
        own.map(|(id, _)| id.clone()).collect()
    }

    pub fn prompts(&self, id: &str) -> usize {
        self.sessions[id].prompts.len()
    }

    pub fn newest(&self, id: &str) -> u64 {
        self.sessions.get(id).and_then(|session| session.seen.keys().next_back().copied()).unwrap_or(0)
    }

    pub fn is_paused(&self, id: &str) -> bool {
        self.sessions[id].holds.1
    }

    /// Whether somebody will ask again for a session that may be there.
    pub fn will_be_made(&self, id: &str) -> bool {
        let creates = self.pending.values().filter(|pending| pending.asked.kind == "create_session");
        creates.into_iter().any(|pending| pending.asked.fields["sessionId"] == id)
    }

    /// Whether a fork with this title will be asked for again.
    pub fn will_be_forked(&self, title: &str) -> bool {
        self.pending.values().any(|pending| pending.asked.kind == "fork" && pending.asked.token() == Some(title))
    }

    /// A new session, and the directory of its own that it works in.
    pub fn creating(&mut self, owner: u64) -> (String, String) {
        let id = self.name("s");
        std::fs::create_dir(self.work.join(&id)).expect("a new directory");
        self.sessions.insert(id.clone(), Session::new(owner, id.clone()));
        (id.clone(), id)
    }

    /// A new token for a prompt. Tokens sort in the order in which they were sent.
    pub fn prompting(&mut self, id: &str, mode: &'static str) -> String {
        let token = self.name("t");
        if let Some(session) = self.sessions.get_mut(id) {
            session.prompts.insert(token.clone(), Prompted { mode, word: Word::Perhaps });
        }
        token
    }

    /// A command goes out. The answer: its number.
    pub fn sending(&mut self, owner: u64, asked: &Asked) -> u64 {
        self.next += 1;
        if asked.kind == "delete_session"
            && let Some(session) = self.sessions.get_mut(&asked.session)
        {
            session.existence = Existence::PerhapsGone;
        }
        self.pending.insert(self.next, Pending { owner, asked: asked.clone(), at: now_ms() });
        self.next
    }

    /// Two changes of one version go out.
    pub fn racing(&mut self, owner: u64, (one, two): (&Asked, &Asked)) -> (u64, u64) {
        let token = |asked: &Asked| asked.token().expect("a title").to_owned();
        self.races.push((one.session.clone(), token(one), token(two)));
        (self.sending(owner, one), self.sending(owner, two))
    }

    /// Two prompts go out, the second of which needs the first.
    pub fn depending(&mut self, owner: u64, (one, two): (&Asked, &Asked)) -> (u64, u64) {
        let place = |asked: &Asked| (asked.session.clone(), asked.token().expect("a token").to_owned());
        self.needs.push((place(two), place(one)));
        (self.sending(owner, one), self.sending(owner, two))
    }

    /// What a client was not answered, in the order in which it was sent. It is asked for again now.
    pub fn unanswered(&mut self, owner: u64) -> Vec<(u64, Asked)> {
        let long_ago = now_ms().saturating_sub(REMEMBERED_MS);
        let own = self.pending.iter().filter(|(_, pending)| pending.owner == owner && pending.at > long_ago);
        let own: Vec<_> = own.map(|(number, pending)| (*number, pending.asked.clone())).collect();
        for (_, asked) in own.iter().filter(|(_, asked)| asked.kind == "delete_session") {
            if let Some(session) = self.sessions.get_mut(&asked.session) {
                session.existence = Existence::PerhapsGone;
            }
        }
        own
    }

    /// Something that a client was answered.
    pub fn some_answer(&self, owner: u64, chance: u64) -> Option<(Asked, Said)> {
        let long_ago = now_ms().saturating_sub(REMEMBERED_MS);
        let own = self.kept.iter().filter(|kept| kept.owner == owner && kept.at > long_ago);
        let own: Vec<&Kept> = own.collect();
        let at = chance.checked_rem(own.len() as u64)?;
        let kept = own[usize::try_from(at).expect("few")];
        Some((kept.asked.clone(), kept.said.clone()))
    }

    /// The answer to something that was answered before is the same.
    pub fn repeated(&mut self, asked: &Asked, before: &Said, now: &Said) {
        assert_eq!((now.ok, &now.value), (before.ok, &before.value), "{asked:?} was answered otherwise before");
        assert!(now.replayed, "{asked:?}: was it done again? {now:?}");
        self.count("answers were given again");
    }

    /// The answers to the same command, sent twice at once, are the same.
    pub fn twins(&mut self, asked: &Asked, one: &Said, two: &Said) {
        if [one, two].iter().any(|said| said.code() == "RESOURCE_EXHAUSTED") {
            return;
        }
        assert_eq!((one.ok, &one.value), (two.ok, &two.value), "{asked:?}");
        assert!(!one.ok || one.replayed != two.replayed, "{asked:?}: one of them was done: {one:?} {two:?}");
        self.count("commands came twice at once");
    }

    /// An answer has come. The answer: a session that is new with it.
    pub fn settle(&mut self, number: u64, said: &Said, again: bool) -> Option<String> {
        let Pending { owner, asked, .. } = self.pending.remove(&number).expect("it was sent");
        if again {
            self.judge_again(&asked, said);
        }
        assert!(!asked.rides() || !said.is_cut(), "{asked:?}: whether it was done stands in the log");
        assert!(again || !said.is_cut(), "{asked:?}: it was never asked before: {said:?}");
        let known = ["CONFLICT", "RESOURCE_EXHAUSTED", "INVALID_ARGUMENT", "NOT_FOUND"].contains(&said.code());
        assert!(said.ok || known || said.is_cut(), "{asked:?}: {said:?}");
        let lasts = said.ok || said.is_cut() || (said.code() == "CONFLICT" && asked.depends_on.is_empty());
        if asked.key.is_some() && lasts {
            self.kept.push(Kept { owner, asked: asked.clone(), said: said.clone(), at: now_ms() });
        }
        self.believe(owner, &asked, said)
    }

    /// What is in the log already is answered and not done.
    fn judge_again(&mut self, asked: &Asked, said: &Said) {
        self.count("commands were given again");
        if said.replayed {
            self.count("commands given again had been done");
        }
        let session = self.sessions.get(&asked.session);
        let token = asked.token().unwrap_or_default();
        let logged = match asked.kind {
            "fork" => self.found_forks.contains(token),
            "create_session" => {
                let id = asked.fields["sessionId"].as_str().unwrap_or_default();
                self.sessions.get(id).is_some_and(|session| session.existence == Existence::Made)
            }
            "configure" => session.is_some_and(|session| session.titled.contains(token)),
            "prompt" | "steer" => session.is_some_and(|session| session.tokens.contains_key(token)),
            _ => false,
        };
        assert!(!logged || (said.ok && said.replayed), "{asked:?}: it is in the log, and now: {said:?}");
    }

    fn believe(&mut self, owner: u64, asked: &Asked, said: &Said) -> Option<String> {
        match asked.kind {
            "create_session" => return self.made(asked, said),
            "fork" => return self.forked(owner, asked, said),
            "undo" | "redo" => self.changed(asked, said),
            _ => {}
        }
        if said.ok {
            self.count(match asked.kind {
                "delete_session" => "sessions were deleted",
                "prompt" if asked.fields["mode"] != "steer" => "prompts were accepted",
                "prompt" | "steer" => "turns were steered",
                "configure" => "sessions were configured",
                "abort" => "turns were aborted",
                "interrupt" => "turns were interrupted",
                "pause" => "turns were paused",
                "resume" => "turns were resumed",
                "feedback" if asked.fields.contains_key("value") => "questions of tools were answered",
                "feedback" => "questions were answered",
                "undo" | "redo" => "turns were undone or redone",
                other => panic!("{other} is counted"),
            });
        }
        let turn = || said.value["turnId"].as_str().expect("an id").to_owned();
        let token = asked.token().unwrap_or_default().to_owned();
        let session = self.sessions.get_mut(&asked.session)?;
        match asked.kind {
            "delete_session" if said.ok => session.existence = Existence::Gone,
            // It was there when this life began, and nothing was done in it.
            "delete_session" if said.is_cut() => session.existence = Existence::Made,
            "prompt" | "steer" => {
                let word = if said.ok { Word::Yes(turn()) } else { Word::No };
                session.prompts.get_mut(&token).expect("it was sent").word = word;
            }
            "configure" => drop(session.titles.insert(token, said.ok)),
            "abort" | "interrupt" if said.ok => drop(session.stopped.insert(turn())),
            "pause" if said.ok && said.value["paused"] == true => drop(session.paused.insert(turn())),
            "feedback" if said.ok => {
                let request = asked.fields["requestId"].as_str().expect("an id").to_owned();
                session.answers.insert(request, said_yes(&Value::Object(asked.fields.clone())));
            }
            _ => {}
        }
        None
    }

    fn made(&mut self, asked: &Asked, said: &Said) -> Option<String> {
        let id = asked.fields["sessionId"].as_str().expect("an id").to_owned();
        let session = self.sessions.get_mut(&id)?;
        assert!(said.ok, "{id}: {said:?}");
        let new = session.existence != Existence::Made;
        session.existence = Existence::Made;
        self.count("sessions were made");
        new.then_some(id)
    }

    fn forked(&mut self, owner: u64, asked: &Asked, said: &Said) -> Option<String> {
        if !said.ok {
            return None;
        }
        self.count("sessions were forked");
        let id = said.value["sessionId"].as_str().expect("an id").to_owned();
        if let Some(wanted) = asked.fields.get("newSessionId") {
            assert_eq!(*wanted, id.as_str(), "{asked:?}");
        }
        self.found_forks.remove(asked.token().expect("a title"));
        let place = said.value["workingDirectory"].as_str().expect("a path");
        self.adopt(owner, &id, place);
        Some(id)
    }

    /// A fork is one of the sessions from now on. It works where its parent works.
    pub fn adopt(&mut self, owner: u64, id: &str, place: &str) {
        let directory = Path::new(place).file_name().expect("a name").to_string_lossy().into_owned();
        let mut session = Session::new(owner, directory);
        (session.existence, session.is_fork) = (Existence::Made, true);
        assert!(self.sessions.insert(id.to_owned(), session).is_none(), "{id}: a fork is new");
    }

    /// Every turn only makes new files: undone they are away, redone they are back.
    fn changed(&mut self, asked: &Asked, said: &Said) {
        let files = self.files_of(&asked.session);
        if said.is_cut() {
            files.unknown = true;
        }
        if said.ok {
            for file in said.value["files"].as_array().expect("a list") {
                let path = file["path"].as_str().expect("a path").to_owned();
                files.paths.insert(path, asked.kind == "redo");
            }
        }
    }

    pub fn finished(&mut self, id: &str, record: &Value) {
        let turn = record["turnId"].as_str().expect("an id").to_owned();
        if let Some(session) = self.sessions.get_mut(id) {
            assert_eq!(session.records.insert(turn, record.clone()), None);
        }
    }

    pub fn viewed(&mut self, id: &str, view: &Value) {
        let version = view["version"].as_u64().expect("a number");
        let session = self.sessions.get_mut(id).expect("the clients know their sessions");
        assert!(version >= session.version, "{id}: version {version} came after {}", session.version);
        session.version = version;
    }

    /// An event as a stream showed it. The answer: the question, when it is one.
    pub fn saw(&mut self, id: &str, seq: u64, data: &str) -> Option<Question> {
        let session = self.sessions.get_mut(id)?;
        match session.seen.get(&seq) {
            Some(before) => assert_eq!(before, data, "{id}: event {seq} is what it was"),
            None => drop(session.seen.insert(seq, data.to_owned())),
        }
        let is = |kind: &str| data.contains(&format!("\"type\":\"{kind}\""));
        if seq > session.holds.0 {
            let ends = ["turn.resumed", "abort", "session.prompt", "session.error", "session.completed"];
            if is("turn.paused") {
                session.holds = (seq, true);
            } else if session.holds.1 && ends.into_iter().any(is) {
                session.holds = (seq, false);
            }
        }
        Question::of(data)
    }
}
