//! The clients: each owns a few sessions, does one thing after another with them through both doors, and writes down what it
//! was told. In the next life it asks again for what nobody answered, and for some of what somebody did.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::asking::Question;
use super::ledger::Ledger;
use super::wire::{Asked, PATIENCE, Said, Socket, ask, call};

/// Sessions that a client makes by itself; forks come beside them.
const SESSIONS: usize = 2;
/// A client with more sessions than this deletes one.
const SESSIONS_MAX: usize = 4;
/// A session with more prompts than this is deleted.
const PROMPTS: usize = 24;
/// How many old answers are asked for again in each life.
const AGAIN: u64 = 3;

/// Numbers that look like chance and follow from a seed (splitmix64).
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Once in so many times.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[usize::try_from(self.below(all.len() as u64)).expect("few")]
    }
}

type Shared = Arc<Mutex<Ledger>>;

/// Sends a command over HTTP, and writes down that and what comes of it.
async fn over_http(port: u16, ledger: &Shared, owner: u64, asked: Asked) -> Option<Said> {
    let number = ledger.lock().sending(owner, &asked);
    let said = ask(port, &asked).await?;
    ledger.lock().settle(number, &said, false);
    Some(said)
}

/// Answers a question of a session.
async fn answer(port: u16, ledger: Shared, (owner, session, question): (u64, String, Question), mut chance: Chance) {
    let allowed = chance.below(3) > 0;
    let mut asked = Asked::of("feedback", &session, question.answer(allowed));
    asked.key = chance.once_in(2).then(|| ledger.lock().name("k"));
    let _ = over_http(port, &ledger, owner, asked).await;
}

/// Reads a session's stream from behind the newest event that anybody saw of it, until the server goes or the session
/// ends, and answers its questions.
async fn reader(port: u16, session: String, ledger: Shared, (owner, mut chance): (u64, Chance)) {
    let after = ledger.lock().newest(&session);
    let head =
        format!("GET /sessions/{session}/events HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nlast-event-id: {after}\r\n\r\n");
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    if stream.write_all(head.as_bytes()).await.is_err() {
        return;
    }
    let mut lines = BufReader::new(stream);
    let (mut line, mut seq, mut want) = (String::new(), None, after + 1);
    loop {
        line.clear();
        let read = tokio::time::timeout(PATIENCE, lines.read_line(&mut line)).await.expect("a stream says something");
        // A frame that breaks off shows nothing.
        if read.unwrap_or(0) == 0 || !line.ends_with('\n') {
            return;
        }
        if let Some(text) = line.strip_prefix("id: ") {
            seq = text.trim().parse::<u64>().ok();
        }
        let (Some(data), Some(number)) = (line.strip_prefix("data: "), seq) else { continue };
        if number == want {
            want += 1;
        } else {
            assert!(number < want, "{session}: event {number} came where {want} was due");
            continue;
        }
        let question = ledger.lock().saw(&session, number, data.trim_end());
        if let Some(question) = question {
            let chance = Chance::new(chance.next());
            answer(port, Arc::clone(&ledger), (owner, session.clone(), question), chance).await;
        }
    }
}

/// One client in one life of the server.
struct Client {
    number: u64,
    port: u16,
    ledger: Shared,
    chance: Chance,
    readers: JoinSet<()>,
    socket: Arc<Socket>,
}

/// One client, until the server goes.
pub async fn client(number: u64, port: u16, ledger: Shared, seed: u64) {
    let mut chance = Chance::new(seed);
    let questions: Arc<Mutex<JoinSet<()>>> = Arc::default();
    let sees = {
        let (ledger, questions) = (Arc::clone(&ledger), Arc::clone(&questions));
        let chances = Mutex::new(Chance::new(chance.next()));
        Arc::new(move |session: &str, seq: u64, text: &str| {
            let question = ledger.lock().saw(session, seq, text);
            if let Some(question) = question {
                let chance = Chance::new(chances.lock().next());
                let what = (number, session.to_owned(), question);
                questions.lock().spawn(answer(port, Arc::clone(&ledger), what, chance));
            }
        })
    };
    let Some(socket) = Socket::open(port, sees).await else { return };
    let mut client = Client { number, port, ledger, chance, readers: JoinSet::new(), socket };
    let _ = client.live().await;
    let Client { mut readers, socket, .. } = client;
    while let Some(ended) = readers.join_next().await {
        ended.expect("a reader found something wrong");
    }
    socket.finished().await;
    let mut questions = std::mem::take(&mut *questions.lock());
    while let Some(ended) = questions.join_next().await {
        ended.expect("an answer was wrong");
    }
}

impl Client {
    /// Until the server goes.
    async fn live(&mut self) -> Option<()> {
        let own = self.ledger.lock().sessions_of(self.number);
        // Before anybody reads: an answer to a question of this life is under way, and not to be asked for again.
        let unanswered = self.ledger.lock().unanswered(self.number);
        for session in own {
            self.follow(&session).await?;
        }
        self.catch_up(unanswered).await?;
        loop {
            self.step().await?;
        }
    }

    /// Reads a session's events, in one of the two ways.
    async fn follow(&mut self, session: &str) -> Option<()> {
        if self.chance.once_in(2) {
            let after = self.ledger.lock().newest(session);
            let there = self.socket.subscribe(session, after).await?;
            assert!(there, "{session}: it is there and cannot be subscribed to");
        } else {
            let chance = Chance::new(self.chance.next());
            let (port, ledger) = (self.port, Arc::clone(&self.ledger));
            self.readers.spawn(reader(port, session.to_owned(), ledger, (self.number, chance)));
        }
        Some(())
    }

    /// Asks again for what was not answered, in the order in which it was asked, and for some of what was.
    async fn catch_up(&mut self, unanswered: Vec<(u64, Asked)>) -> Option<()> {
        for (number, asked) in unanswered {
            let said = self.through_some_door(&asked).await?;
            let made = self.ledger.lock().settle(number, &said, true);
            if let Some(session) = made {
                self.follow(&session).await?;
            }
        }
        for _ in 0..AGAIN {
            let old = self.ledger.lock().some_answer(self.number, self.chance.next());
            let Some((asked, before)) = old else { break };
            let said = self.through_some_door(&asked).await?;
            self.ledger.lock().repeated(&asked, &before, &said);
        }
        Some(())
    }

    async fn through_some_door(&mut self, asked: &Asked) -> Option<Said> {
        if asked.needs_socket() || self.chance.once_in(2) {
            self.socket.ask(asked).await
        } else {
            ask(self.port, asked).await
        }
    }

    /// Asks, mostly with a key, and now and then twice at once.
    async fn ask(&mut self, mut asked: Asked) -> Option<Said> {
        if asked.key.is_none() && self.chance.below(4) > 0 {
            asked.key = Some(self.ledger.lock().name("k"));
        }
        let number = self.ledger.lock().sending(self.number, &asked);
        let twice = asked.key.is_some() && !asked.needs_socket() && self.chance.once_in(6);
        let said = if twice {
            let (one, two) = tokio::join!(ask(self.port, &asked), self.socket.ask(&asked));
            if let (Some(one), Some(two)) = (&one, &two) {
                self.ledger.lock().twins(&asked, one, two);
            }
            one.or(two)?
        } else {
            self.through_some_door(&asked).await?
        };
        let made = self.ledger.lock().settle(number, &said, false);
        if let Some(session) = made {
            self.follow(&session).await?;
        }
        Some(said)
    }

    /// One thing. None: the server has gone.
    async fn step(&mut self) -> Option<()> {
        let own = self.ledger.lock().sessions_of(self.number);
        if own.len() < SESSIONS {
            return self.create().await;
        }
        let session = self.chance.pick(&own).clone();
        if own.len() > SESSIONS_MAX || self.ledger.lock().prompts(&session) >= PROMPTS {
            let said = self.ask(Asked::of("delete_session", &session, json!({}))).await?;
            assert!(said.ok, "{session}: {said:?}");
            return Some(());
        }
        if self.ledger.lock().is_paused(&session) && self.chance.below(3) > 0 {
            let kind = *self.chance.pick(&["resume", "resume", "resume", "interrupt", "abort"]);
            return self.ask(Asked::of(kind, &session, json!({}))).await.map(drop);
        }
        match self.chance.below(32) {
            0 => self.control("abort", &session).await,
            1 | 2 => self.control("interrupt", &session).await,
            3..=5 => self.control("pause", &session).await,
            6 => self.ask(Asked::of("resume", &session, json!({}))).await.map(drop),
            7 => self.look(&session).await,
            8 | 9 => {
                let title = self.ledger.lock().name("c");
                self.ask(Asked::of("configure", &session, json!({ "title": title }))).await.map(drop)
            }
            10 | 11 => self.race(&session).await,
            12 => self.fork(&session).await,
            13..=15 => self.undo(&session).await,
            16 | 17 => {
                let other = self.chance.pick(&own).clone();
                self.depend(&session, &other).await
            }
            _ => self.prompt(&session).await,
        }
    }

    async fn create(&mut self) -> Option<()> {
        let policy = if self.chance.once_in(3) { "ask" } else { "allow" };
        let (session, directory) = self.ledger.lock().creating(self.number);
        let fields = json!({
            "sessionId": session,
            "workingDirectory": directory,
            "toolPermissions": { "defaultPolicy": policy, "rules": [] }
        });
        let said = self.ask(Asked::of("create_session", "", fields)).await?;
        assert!(said.ok, "{session}: {said:?}");
        Some(())
    }

    /// A control, mostly of a turn that has work for a while.
    async fn control(&mut self, kind: &'static str, session: &str) -> Option<()> {
        if self.chance.below(3) > 0 {
            let what = *self.chance.pick(&["slow", "run", "write"]);
            let asked = self.prompting(session, what, "queue");
            self.ask(asked).await?;
        }
        self.ask(Asked::of(kind, session, json!({ "reason": "enough" }))).await.map(drop)
    }

    async fn look(&mut self, session: &str) -> Option<()> {
        let (status, view) = call(self.port, "GET", &format!("/sessions/{session}"), None).await?;
        assert_eq!(status, 200, "{session}: {view}");
        self.ledger.lock().viewed(session, &view);
        let (status, page) = call(self.port, "GET", &format!("/sessions/{session}/history?limit=5"), None).await?;
        assert_eq!(status, 200, "{session}: {page}");
        Some(())
    }

    fn prompting(&mut self, session: &str, what: &str, mode: &'static str) -> Asked {
        let token = self.ledger.lock().prompting(session, mode);
        let mut fields = json!({ "prompt": format!("{what} {token}") });
        if self.chance.once_in(8) {
            fields["configure"] = json!({ "title": format!("with-{token}") });
        }
        // The command `steer` says its mode by its name.
        if mode == "steer" && self.chance.once_in(2) {
            return Asked::of("steer", session, fields);
        }
        fields["mode"] = mode.into();
        Asked::of("prompt", session, fields)
    }

    async fn prompt(&mut self, session: &str) -> Option<()> {
        let what = *self.chance.pick(&["quick", "quick", "slow", "run", "write", "write", "sure"]);
        let mode = *self.chance.pick(&["queue", "queue", "queue", "steer", "reject"]);
        let mut asked = self.prompting(session, what, mode);
        if mode == "steer" {
            // What it runs with is what the turn runs with.
            asked.fields.remove("configure");
        }
        if what == "quick" && mode == "queue" && self.chance.once_in(4) {
            return self.finished_prompt(session, asked).await.map(drop);
        }
        self.ask(asked).await.map(drop)
    }

    /// A prompt whose caller waits for the end of its turn. Without a key: what it was told is a record, not an outcome.
    async fn finished_prompt(&mut self, session: &str, asked: Asked) -> Option<bool> {
        let number = self.ledger.lock().sending(self.number, &asked);
        let path = format!("/sessions/{session}/prompt?wait=true");
        let (status, mut value) = call(self.port, "POST", &path, Some(&Value::Object(asked.fields.clone()))).await?;
        let ok = status == 200;
        let mut ledger = self.ledger.lock();
        if ok {
            ledger.finished(session, &value);
        } else {
            value = value["error"].take();
        }
        ledger.settle(number, &Said { ok, value, replayed: false }, false);
        Some(ok)
    }

    /// Two changes of the same version: one comes too late.
    async fn race(&mut self, session: &str) -> Option<()> {
        let (status, view) = call(self.port, "GET", &format!("/sessions/{session}"), None).await?;
        assert_eq!(status, 200, "{session}: {view}");
        let [one, two] = [(); 2].map(|()| {
            let title = self.ledger.lock().name("c");
            let key = self.ledger.lock().name("k");
            let mut asked = Asked::of("configure", session, json!({ "title": title }));
            (asked.key, asked.if_version) = (Some(key), view["version"].as_u64());
            asked
        });
        let numbers = self.ledger.lock().racing(self.number, (&one, &two));
        let (first, second) = tokio::join!(ask(self.port, &one), self.socket.ask(&two));
        let mut ledger = self.ledger.lock();
        for (number, said) in [(numbers.0, &first), (numbers.1, &second)] {
            said.as_ref().map(|said| ledger.settle(number, said, false));
        }
        let (first, second) = (first?, second?);
        assert!(!(first.ok && second.ok), "{session}: two changes of version {}", view["version"]);
        Some(())
    }

    async fn fork(&mut self, session: &str) -> Option<()> {
        let newest = self.ledger.lock().newest(session);
        let mut fields = json!({ "title": self.ledger.lock().name("f") });
        if self.chance.once_in(2) {
            fields["newSessionId"] = self.ledger.lock().name("fork").into();
        }
        if newest > 0 && self.chance.once_in(2) {
            fields["at"] = (1 + self.chance.below(newest)).into();
        }
        let said = self.ask(Asked::of("fork", session, fields)).await?;
        assert!(said.ok || said.code() == "RESOURCE_EXHAUSTED", "{session}: {said:?}");
        Some(())
    }

    /// Lets a turn do something to files, undoes it, and perhaps does it again.
    async fn undo(&mut self, session: &str) -> Option<()> {
        let asked = self.prompting(session, "write", "queue");
        self.finished_prompt(session, asked).await?;
        let undone = self.ask(Asked::of("undo", session, json!({}))).await?;
        if undone.ok && self.chance.once_in(2) {
            self.ask(Asked::of("redo", session, json!({}))).await?;
        }
        Some(())
    }

    /// A command, and at once another one that needs it.
    async fn depend(&mut self, session: &str, other: &str) -> Option<()> {
        let [mut one, mut two] = [session, other].map(|session| self.prompting(session, "quick", "queue"));
        let [id, key, other_key] = ["i", "k", "k"].map(|kind| self.ledger.lock().name(kind));
        (one.id, one.key) = (Some(id.clone()), Some(key));
        (two.depends_on, two.key) = (vec![id], Some(other_key));
        let numbers = self.ledger.lock().depending(self.number, (&one, &two));
        let first = self.socket.start(&one).await?;
        let second = self.socket.start(&two).await?;
        let (first, second) = (first.end().await, second.end().await);
        let mut ledger = self.ledger.lock();
        for (number, said) in [(numbers.0, &first), (numbers.1, &second)] {
            said.as_ref().map(|said| ledger.settle(number, said, false));
        }
        Some(())
    }
}
