//! The clients: each owns a few sessions, asks any node for the next thing, and asks another one under the same key when none
//! answers. Each session has readers, who go from node to node behind the last event that they saw.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::check;
use super::forked::Fork;
use super::ledger::{Ledger, Session};
use super::nodes::{Cluster, LOOK};
use super::socket::Socket;
use super::wire::{Reply, Stream, Wanted};
use crate::crash::Chance;

/// Longest wait until some node does what is asked, over all faults.
pub const PATIENCE: Duration = Duration::from_secs(90);
/// Sessions that a client works with at a time; forks come beside them.
const SESSIONS: usize = 2;
/// With so many it makes no more forks.
const SESSIONS_MAX: usize = 4;
/// A session with so many prompts is checked, and another one made; and a fork.
const PROMPTS: [usize; 2] = [16, 5];
/// One command of so many goes over a socket.
const SOCKETS: u64 = 3;
/// Who follows a session.
const READERS: usize = 2;
/// The longest pause of a client between two things, in milliseconds.
const PACE_MS: u64 = 60;

/// What all clients share.
pub struct Common {
    pub cluster: Arc<Cluster>,
    pub ledger: Mutex<Ledger>,
    chance: Mutex<Chance>,
    /// Sockets that are open, by node and client. They stay so until they break.
    sockets: Mutex<HashMap<(usize, Option<String>), Arc<Socket>>>,
}

impl Common {
    pub fn new(cluster: Arc<Cluster>, seed: u64) -> Self {
        let (ledger, sockets) = (Mutex::default(), Mutex::default());
        Self { cluster, ledger, chance: Mutex::new(Chance::new(seed)), sockets }
    }

    /// How often something happened so far.
    pub fn told(&self) -> BTreeMap<&'static str, usize> {
        self.ledger.lock().told.clone()
    }

    pub fn count(&self, what: &'static str) {
        self.ledger.lock().count(what);
    }

    /// Some node.
    pub fn any(&self) -> usize {
        usize::try_from(self.chance.lock().below(self.cluster.count() as u64)).expect("few")
    }

    /// Asks one node once, through one of its two doors: the same key is the same command at both.
    async fn ask_at(&self, number: usize, wanted: &Wanted) -> Option<Reply> {
        if wanted.command().is_none() || !self.chance.lock().once_in(SOCKETS) {
            return wanted.ask(self.cluster.at(number)).await;
        }
        let place = (number, wanted.client().map(str::to_owned));
        let open = self.sockets.lock().get(&place).cloned();
        let socket = match open {
            Some(open) => open,
            None => {
                let socket = Arc::new(Socket::open(self.cluster.at(number), wanted.client()).await?);
                self.sockets.lock().insert(place.clone(), Arc::clone(&socket));
                socket
            }
        };
        let reply = socket.ask(wanted).await;
        match &reply {
            Some(_) => self.count("commands were answered over sockets"),
            None => {
                // Unless another one is there by now.
                let mut sockets = self.sockets.lock();
                if sockets.get(&place).is_some_and(|now| Arc::ptr_eq(now, &socket)) {
                    sockets.remove(&place);
                }
            }
        }
        reply
    }

    /// Asks one node after the other until one has decided. What is asked has no effect, or a key.
    pub async fn ask(&self, wanted: &Wanted) -> Reply {
        let begun = Instant::now();
        loop {
            let number = self.any();
            let reply = self.ask_at(number, wanted).await;
            if let Some(reply) = reply.clone().filter(Reply::is_decided) {
                return reply;
            }
            self.count("requests were asked for again");
            assert!(begun.elapsed() < PATIENCE, "{wanted:?}: the last was node {number}: {reply:?}");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Asks two nodes for the same at once, and then any. At most one of them does it; all say the same in `field`.
    async fn ask_twice(&self, wanted: &Wanted, field: &str) -> Reply {
        let one = self.any();
        let two = (one + 1) % self.cluster.count();
        let (first, second) = tokio::join!(self.ask_at(one, wanted), self.ask_at(two, wanted));
        let last = self.ask(wanted).await;
        let told = [first, second].into_iter().flatten().filter(Reply::is_decided);
        let all = told.chain([last.clone()]);
        let all: Vec<Reply> = all.collect();
        let told = || format!("{wanted:?}: {all:?}");
        assert!(all.iter().filter(|reply| !reply.replayed).count() <= 1, "it was done twice: {}", told());
        assert!(all.iter().all(|reply| reply.value[field] == last.value[field]), "{}", told());
        last
    }

    /// Holds the list of a client's sessions against those that it made: each is there once, and no other one is.
    pub async fn counted(&self, client: Option<&str>) {
        let (mut there, mut cursor) = (BTreeSet::new(), String::new());
        loop {
            let page = self.ask(&Wanted::get(&format!("/sessions?limit=200{cursor}")).by(client)).await;
            assert_eq!(page.status, 200, "{page:?}");
            for view in page.value["items"].as_array().expect("a list") {
                let id = view["sessionId"].as_str().expect("an id").to_owned();
                assert!(there.insert(id), "it is listed twice: {view}");
            }
            match page.value["nextCursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        let made = self.ledger.lock().made.clone().into_iter();
        let made: BTreeSet<String> = made.filter(|(whose, _)| whose.as_deref() == client).map(|(_, id)| id).collect();
        let strange: Vec<&String> = made.symmetric_difference(&there).collect();
        assert!(strange.is_empty(), "{client:?}: they were made twice, or are gone: {strange:?}");
    }
}

/// What a session's reader is to come to; `u64::MAX` as long as that is not known.
struct Reader {
    goal: watch::Sender<u64>,
    task: JoinHandle<()>,
}

impl Reader {
    fn start(common: &Arc<Common>, id: &str, chance: Chance) -> Self {
        let (goal, wanted) = watch::channel(u64::MAX);
        Self { goal, task: tokio::spawn(read(Arc::clone(common), id.to_owned(), wanted, chance)) }
    }
}

/// Reads a session's events, each once and in order, from one node for a while and then from another one.
async fn read(common: Arc<Common>, id: String, goal: watch::Receiver<u64>, mut chance: Chance) {
    let client = common.ledger.lock().session(&id).client.clone();
    let mut next = 1;
    while next <= *goal.borrow() {
        let at = common.cluster.at(common.any());
        let Some(mut stream) = Stream::open(at, (&id, client.as_deref()), next - 1).await else {
            tokio::time::sleep(LOOK).await;
            continue;
        };
        common.count("streams went on elsewhere");
        let mut left = 1 + chance.below(400);
        while left > 0 && next <= *goal.borrow() {
            let Some((seq, data)) = stream.next().await else { break };
            assert_eq!(seq, next, "{id}: a stream of the node at {at}: out of order, doubled, or with a gap");
            common.ledger.lock().saw(&id, seq, data);
            (next, left) = (next + 1, left - 1);
        }
    }
}

/// A session, its readers, and what was asked for in it.
struct Own {
    id: String,
    readers: Vec<Reader>,
    /// Prompts that were answered: token, request, turn.
    asked: Vec<(String, Wanted, String)>,
    is_fork: bool,
}

struct Client {
    number: u64,
    name: Option<String>,
    common: Arc<Common>,
    chance: Chance,
    own: Vec<Own>,
    retiring: JoinSet<()>,
}

/// One client, until it is over; then what it has made is checked.
pub async fn client(number: u64, common: Arc<Common>, over: CancellationToken) {
    let chance = Chance::new(common.chance.lock().next());
    let name = number.is_multiple_of(2).then(|| format!("client-{number}"));
    let mut client = Client { number, name, common, chance, own: Vec::new(), retiring: JoinSet::new() };
    while !over.is_cancelled() {
        client.step().await;
        // The pace of a client: nothing is waited for.
        tokio::time::sleep(Duration::from_millis(client.chance.below(PACE_MS))).await;
        while let Some(checked) = client.retiring.try_join_next() {
            checked.expect("a check found something wrong");
        }
    }
    for own in std::mem::take(&mut client.own) {
        client.retire(own);
    }
    while let Some(checked) = client.retiring.join_next().await {
        checked.expect("a check found something wrong");
    }
    if let Some(name) = &client.name {
        client.common.counted(Some(name)).await;
    }
}

impl Client {
    fn key(&self) -> String {
        self.common.ledger.lock().name("k")
    }

    fn by(&self, wanted: Wanted) -> Wanted {
        wanted.by(self.name.as_deref())
    }

    fn retire(&mut self, own: Own) {
        self.retiring.spawn(retired(Arc::clone(&self.common), own));
    }

    async fn step(&mut self) {
        if self.own.len() < SESSIONS {
            return self.create().await;
        }
        let at = usize::try_from(self.chance.below(self.own.len() as u64)).expect("few");
        if self.own[at].asked.len() >= PROMPTS[usize::from(self.own[at].is_fork)] {
            let own = self.own.swap_remove(at);
            return self.retire(own);
        }
        match self.chance.below(18) {
            16 | 17 => self.fork(at).await,
            0 | 1 => self.abort(at).await,
            2 | 3 => self.configure(at).await,
            4 => {
                self.look(at).await;
            }
            5 | 6 => self.again(at).await,
            7 | 8 => self.settle(at).await,
            _ => self.prompt(at).await,
        }
    }

    /// A session, with an id that was chosen or without.
    async fn create(&mut self) {
        let directory = self.common.ledger.lock().name("s");
        std::fs::create_dir(self.common.cluster.work().join(&directory)).expect("a new directory");
        let rules = json!({ "defaultPolicy": "allow", "rules": [] });
        let mut body = json!({ "workingDirectory": directory, "toolPermissions": rules });
        body["title"] = format!("of client {}", self.number).into();
        if self.chance.once_in(2) {
            body["sessionId"] = directory.as_str().into();
        }
        let wanted = self.by(Wanted::post("/sessions", body)).keyed(&self.key());
        let made = match self.chance.once_in(3) {
            true => self.common.ask_twice(&wanted, "sessionId").await,
            false => self.common.ask(&wanted).await,
        };
        assert!(made.is_ok(), "{wanted:?}: {made:?}");
        let id = made.text("sessionId");
        self.own(id, Session { client: self.name.clone(), directory, ..Session::default() });
        self.common.count("sessions were made");
    }

    /// From now on a session is one of its own.
    fn own(&mut self, id: String, session: Session) {
        let is_fork = session.fork.is_some();
        self.common.ledger.lock().enter(&id, session);
        let readers = (0..READERS).map(|_| Reader::start(&self.common, &id, Chance::new(self.chance.next())));
        let readers = readers.collect();
        self.own.push(Own { id, readers, asked: Vec::new(), is_fork });
    }

    /// A session that goes on from an event of another one: any that was seen, or the newest.
    async fn fork(&mut self, at: usize) {
        if self.own.len() >= SESSIONS_MAX {
            return;
        }
        let parent = self.own[at].id.clone();
        let (newest, directory, title) = {
            let mut ledger = self.common.ledger.lock();
            (ledger.newest(&parent), ledger.session(&parent).directory.clone(), ledger.name("f"))
        };
        let mut body = json!({ "title": title });
        let shared = (newest > 0 && self.chance.once_in(2)).then(|| 1 + self.chance.below(newest));
        if let Some(shared) = shared {
            body["at"] = shared.into();
        }
        if self.chance.once_in(2) {
            body["newSessionId"] = title.into();
        }
        let wanted = self.by(Wanted::post(&format!("/sessions/{parent}/fork"), body)).keyed(&self.key());
        let made = match self.chance.once_in(3) {
            true => self.common.ask_twice(&wanted, "sessionId").await,
            false => self.common.ask(&wanted).await,
        };
        assert!(made.is_ok(), "{wanted:?}: {made:?}");
        let fork = Some(Fork { parent, at: shared, newest, log: Vec::new() });
        self.own(made.text("sessionId"), Session { client: self.name.clone(), directory, fork, ..Session::default() });
        self.common.count("sessions were forked");
    }

    async fn prompt(&mut self, at: usize) {
        let id = self.own[at].id.clone();
        let what = *self.chance.pick(&["quick", "quick", "slow", "slow", "run", "write"]);
        let token = self.common.ledger.lock().token(&id);
        let body = json!({ "prompt": format!("{what} {token}"), "mode": "queue" });
        let wanted = self.by(Wanted::post(&format!("/sessions/{id}/prompt"), body)).keyed(&self.key());
        let accepted = if self.chance.once_in(4) {
            self.common.count("prompts were sent twice at once");
            self.common.ask_twice(&wanted, "turnId").await
        } else {
            self.common.ask(&wanted).await
        };
        assert!(accepted.is_ok(), "{wanted:?}: {accepted:?}");
        let turn = accepted.text("turnId");
        self.common.ledger.lock().promised(&id, &token, turn.clone());
        self.common.count("prompts were accepted");
        self.own[at].asked.push((token, wanted, turn));
    }

    /// Sends a prompt again that was answered: nothing is done, and the answer names the same turn.
    async fn again(&mut self, at: usize) {
        if self.own[at].asked.is_empty() {
            return;
        }
        let (token, wanted, _) = self.chance.pick(&self.own[at].asked).clone();
        let said = self.common.ask(&wanted).await;
        assert!(said.is_ok() && said.replayed, "{wanted:?}: was it done again? {said:?}");
        self.common.ledger.lock().promised(&self.own[at].id, &token, said.text("turnId"));
        self.common.count("prompts were sent again");
    }

    /// Waits for the end of the newest turn.
    async fn settle(&mut self, at: usize) {
        let Some((_, _, turn)) = self.own[at].asked.last() else { return };
        let wanted = self.by(Wanted::get(&format!("/sessions/{}/turns/{turn}", self.own[at].id)));
        let begun = Instant::now();
        loop {
            let record = self.common.ask(&wanted).await;
            assert_eq!(record.status, 200, "{wanted:?}: it was promised: {record:?}");
            if record.value["endedAt"].is_u64() {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "it does not end: {record:?}");
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn abort(&mut self, at: usize) {
        let id = self.own[at].id.clone();
        let path = format!("/sessions/{id}/abort");
        let wanted = self.by(Wanted::post(&path, json!({ "reason": "enough" }))).keyed(&self.key());
        let said = self.common.ask(&wanted).await;
        if said.is_ok() {
            self.common.ledger.lock().session(&id).aborted.insert(said.text("turnId"));
            self.common.count("turns were aborted");
        } else {
            // Too late; or who did it ended before it said so.
            assert!(said.status == 409 || said.is_cut(), "{wanted:?}: {said:?}");
        }
    }

    /// The version that a session has now.
    async fn look(&mut self, at: usize) -> u64 {
        let id = &self.own[at].id;
        let before = {
            let mut ledger = self.common.ledger.lock();
            (ledger.newest(id), ledger.session(id).version)
        };
        let view = self.common.ask(&self.by(Wanted::get(&format!("/sessions/{id}")))).await;
        assert_eq!(view.status, 200, "{id}: {view:?}");
        let now = (view.number("lastSeq"), view.number("version"));
        self.common.ledger.lock().viewed(id, before, now);
        now.1
    }

    /// One change, or two at once, of the version that the session has: at most one is done.
    async fn configure(&mut self, at: usize) {
        let version = self.look(at).await;
        let id = self.own[at].id.clone();
        let changing = || {
            let title = self.common.ledger.lock().name("c");
            let wanted = Wanted::patch(&format!("/sessions/{id}"), json!({ "title": title }));
            (title, self.by(wanted).keyed(&self.key()).at_version(version))
        };
        let ((one, first), (two, second)) = (changing(), changing());
        let mut said = Vec::new();
        if self.chance.once_in(2) {
            let (first, second) = tokio::join!(self.common.ask(&first), self.common.ask(&second));
            assert!(!(first.is_ok() && second.is_ok()), "{id}: two changes of version {version}: {first:?} {second:?}");
            said.extend([(one, first), (two, second)]);
        } else {
            said.push((one, self.common.ask(&first).await));
        }
        for (title, said) in said {
            assert!(said.is_ok() || said.status == 409, "{id}: {said:?}");
            if said.is_ok() {
                self.common.count("sessions were configured");
            }
            self.common.ledger.lock().session(&id).titles.insert(title, said.is_ok());
        }
    }
}

/// Waits until a session has nothing left to do and everybody has read all of it; then it is checked.
async fn retired(common: Arc<Common>, own: Own) {
    let last = check::settled(&common, &own.id).await;
    for Reader { goal, task } in own.readers {
        goal.send_replace(last);
        let read = tokio::time::timeout(PATIENCE, task).await;
        let read = read.unwrap_or_else(|_| panic!("{}: a reader does not come to event {last}", own.id));
        read.expect("a reader found something wrong");
    }
    check::check(&common, &own.id).await;
}
