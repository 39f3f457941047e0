//! Servers over one PostgreSQL, and what can be done to them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::clocks;
use super::net::{self, Net};
use super::relay::Relay;
use super::wire::{Reply, Stream, TOKEN, Wanted};
use crate::crash;
use crate::support::model_server::{Answer, ModelServer, Script};
use crate::support::postgres::Postgres;
use crate::support::program;

/// Longest wait for anything that must happen.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How often a node is given another port because its own was taken meanwhile.
const PORTS: usize = 5;
/// How long between two looks at something that is waited for.
pub const LOOK: Duration = Duration::from_millis(20);
/// Words of a long answer, and the time between them: 4 s.
const LONG: (usize, Duration) = (400, Duration::from_millis(10));

/// As for the crash runs, and `long`: words for seconds, `open`: words, and no end, and `ticks`: calls without end.
fn script() -> Script {
    let usual = crash::script();
    let words: Vec<String> = (0..LONG.0).map(|n| format!("w{n} ")).collect();
    Arc::new(move |request| {
        let (said, called) = crash::last_prompt(request);
        if said.contains("open") {
            return Answer::silence_after(&["so ", "far "]);
        }
        if said.contains("ticks") {
            let tick = serde_json::json!({ "command": format!("echo {} >> ticks; sleep 0.1", uuid::Uuid::new_v4()) });
            return Answer::calls("", &[(&uuid::Uuid::new_v4().to_string(), "bash", tick)]);
        }
        if called || !said.contains("long") {
            return usual(request);
        }
        Answer::paced(&words.iter().map(String::as_str).collect::<Vec<_>>(), LONG.1)
    })
}

/// One of the servers. Its number is its place in the cluster, over all its processes.
struct Node {
    host: IpAddr,
    port: AtomicU16,
    child: Mutex<Option<Child>>,
    /// Its way to the database.
    relay: Relay,
    data: PathBuf,
    arguments: Vec<&'static str>,
    /// Its next process runs the program of an earlier release.
    is_older: AtomicBool,
    /// Where the others are told that it is, if not where it listens.
    known_at: Mutex<Option<String>>,
    /// What says by how much its clock is wrong.
    clock: Option<clocks::Clock>,
}

impl Node {
    /// What its processes say on stderr.
    fn said(&self) -> PathBuf {
        self.data.with_extension("said")
    }
}

/// A PostgreSQL, a model, and servers. All of it ends with this, the servers first.
pub struct Cluster {
    nodes: Vec<Node>,
    model: ModelServer,
    /// The way to the model, where it is at another address than the nodes.
    asking: Option<Relay>,
    net: Option<Net>,
    postgres: Arc<Postgres>,
    database: &'static str,
    work: PathBuf,
    home: Mutex<TempDir>,
}

/// What a cluster is made of.
struct Ground {
    net: Option<Net>,
    postgres: Arc<Postgres>,
    database: &'static str,
    /// Where its sessions work. None: in a directory of its own.
    work: Option<PathBuf>,
    /// What each node is told beside the usual.
    arguments: Vec<Vec<&'static str>>,
    /// Each begins with the program of an earlier release.
    is_older: bool,
    /// Seconds that each one's clock is ahead. None: all have the machine's.
    clocks: Option<Vec<i64>>,
}

impl Ground {
    /// None: there is no PostgreSQL on this machine.
    fn new() -> Option<Self> {
        Some(Self::over(Arc::new(tokio::task::block_in_place(Postgres::start)?)))
    }

    fn over(postgres: Arc<Postgres>) -> Self {
        let (database, arguments) = ("postgres", Vec::new());
        Self { net: None, postgres, database, work: None, arguments, is_older: false, clocks: None }
    }
}

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn free_port() -> u16 {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    free.local_addr().expect("bound").port()
}

fn port_of(model: &ModelServer) -> u16 {
    let url = model.base_url();
    let port = url.trim_end_matches("/v1").rsplit(':').next().and_then(|port| port.parse().ok());
    port.unwrap_or_else(|| panic!("{url} names no port"))
}

/// Makes a data directory, with the token that all nodes have.
fn furnish(data: &Path) {
    std::fs::DirBuilder::new().mode(0o700).create(data).expect("a directory");
    let mut options = std::fs::File::options();
    let mut file = options.write(true).create_new(true).mode(0o600).open(data.join("token")).expect("a file");
    std::io::Write::write_all(&mut file, TOKEN.as_bytes()).expect("written");
}

impl Cluster {
    /// Starts so many nodes, and waits until they know of each other. None: there is no PostgreSQL on this machine.
    pub async fn start(count: usize) -> Option<Arc<Self>> {
        Self::with(&vec![&[][..]; count]).await
    }

    /// The same, each with arguments of its own.
    pub async fn with(arguments: &[&[&'static str]]) -> Option<Arc<Self>> {
        let arguments: Vec<Vec<&'static str>> = arguments.iter().map(|own| own.to_vec()).collect();
        Some(Self::begun(arguments.len(), Ground { arguments, ..Ground::new()? }).await)
    }

    /// The same with the program of an earlier release.
    pub async fn older(count: usize) -> Option<Arc<Self>> {
        Some(Self::begun(count, Ground { is_older: true, ..Ground::new()? }).await)
    }

    /// The same with clocks that are so many seconds ahead, and can be set. None: this machine cannot do that, either.
    pub async fn with_clocks(ahead: &[i64]) -> Option<Arc<Self>> {
        let clocks = clocks::can_be_set().then(|| ahead.to_vec())?;
        Some(Self::begun(ahead.len(), Ground { clocks: Some(clocks), ..Ground::new()? }).await)
    }

    /// The clock of a node, where it can be set.
    pub fn clock(&self, number: usize) -> Option<&clocks::Clock> {
        self.nodes[number].clock.as_ref()
    }

    /// From its next start on the others are told that a node is there.
    pub fn known_at(&self, number: usize, address: SocketAddr) {
        *self.nodes[number].known_at.lock() = Some(format!("http://{address}"));
    }

    /// From its next start on a node runs the program of an earlier release, or this one. Whether it ran the earlier one before.
    pub fn become_older(&self, number: usize, is_older: bool) -> bool {
        self.nodes[number].is_older.swap(is_older, Ordering::Relaxed)
    }

    /// The same, with a network between them. None: this machine does not allow that, either.
    pub async fn apart(count: usize) -> Option<Arc<Self>> {
        let net = Some(tokio::task::block_in_place(|| Net::start(count))?);
        Some(Self::begun(count, Ground { net, ..Ground::new()? }).await)
    }

    /// Starts so many others over another database of the same PostgreSQL, whose sessions work at the same place.
    pub async fn over(&self, database: &'static str, count: usize) -> Arc<Self> {
        let (postgres, work) = (Arc::clone(&self.postgres), Some(self.work.clone()));
        Self::begun(count, Ground { database, work, ..Ground::over(postgres) }).await
    }

    async fn begun(count: usize, ground: Ground) -> Arc<Self> {
        let Ground { net, postgres, database, work, arguments, is_older, clocks } = ground;
        let home = tempfile::tempdir().expect("a directory");
        let work = work.unwrap_or_else(|| {
            let own = home.path().join("work");
            std::fs::create_dir(&own).expect("a directory");
            own
        });
        let here = net.as_ref().map_or(LOOPBACK, |net| net.host().into());
        let mut nodes = Vec::new();
        for number in 0..count {
            let data = home.path().join(format!("node-{number}"));
            furnish(&data);
            let clock = clocks.as_ref().map(|ahead| clocks::Clock::new(data.with_extension("clock"), ahead[number]));
            nodes.push(Node {
                host: net.as_ref().map_or(LOOPBACK, |net| net.node(number).into()),
                port: AtomicU16::new(net.as_ref().map_or_else(free_port, |_| net::PORT)),
                child: Mutex::new(None),
                relay: Relay::start(here, postgres.port()).await,
                data,
                arguments: arguments.get(number).cloned().unwrap_or_default(),
                is_older: AtomicBool::new(is_older),
                known_at: Mutex::default(),
                clock,
            });
        }
        let model = ModelServer::start_on(0, script(), false).await;
        let asking = match &net {
            Some(_) => Some(Relay::start(here, port_of(&model)).await),
            None => None,
        };
        let home = Mutex::new(home);
        let cluster = Arc::new(Self { nodes, model, asking, net, postgres, database, work, home });
        for number in 0..count {
            cluster.restart(number).await;
        }
        for number in 0..count {
            cluster.until_active(number, count).await;
        }
        cluster
    }

    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// Where a node listens.
    pub fn at(&self, number: usize) -> SocketAddr {
        let node = &self.nodes[number];
        SocketAddr::new(node.host, node.port.load(Ordering::Relaxed))
    }

    fn url(&self, number: usize) -> String {
        format!("http://{}", self.at(number))
    }

    /// The PostgreSQL of all its databases.
    pub fn postgres(&self) -> &Postgres {
        &self.postgres
    }

    /// Where the sessions work.
    pub fn work(&self) -> &Path {
        &self.work
    }

    /// What it leaves on the disk.
    pub fn home(&self) -> PathBuf {
        self.home.lock().path().to_owned()
    }

    /// Leaves it there.
    pub fn keep(&self) {
        self.home.lock().disable_cleanup(true);
    }

    /// Starts a node that does not run, over the data directory that it had.
    pub async fn restart(&self, number: usize) {
        for _ in 0..PORTS {
            let Err(said) = self.begin(number).await else { return };
            assert!(said.contains("is in use; choose another"), "node {number} did not start: {said}");
            self.nodes[number].port.store(free_port(), Ordering::Relaxed);
        }
        panic!("node {number} found no free port");
    }

    fn command(&self, number: usize) -> Command {
        let node = &self.nodes[number];
        let built = if node.is_older.load(Ordering::Relaxed) { program::older() } else { program::built() };
        let store = format!("postgres://simse@{}/{}?sslmode=disable", node.relay.at, self.database);
        let mut command = match &self.net {
            Some(net) => {
                // It becomes the program: signals reach that.
                let mut command = Command::new("ip");
                command.args(["netns", "exec", &net.inside(number)]).arg(built);
                command
            }
            None => Command::new(built),
        };
        command.args(["serve", "--model", "openai/m", "--log-level", "warn", "--allow-public"]);
        let model = self.asking.as_ref().map(|relay| format!("http://{}/v1", relay.at));
        command.args(["--openai-base-url", &model.unwrap_or_else(|| self.model.base_url()), "--store", &store]);
        command.args(["--host", &node.host.to_string(), "--port", &self.at(number).port().to_string()]);
        let known_at = node.known_at.lock().clone();
        command.args(["--node-url", &known_at.unwrap_or_else(|| self.url(number))]);
        command.args(&node.arguments).arg("--data-dir").arg(&node.data).arg("--cwd").arg(&self.work);
        command.arg("--port-file").arg(node.data.with_extension("port"));
        command.env("SIMSE_INTERRUPT_GRACE_MS", "300").env_remove("OPENAI_API_KEY").env_remove("PGPASSWORD");
        if let Some(clock) = &node.clock {
            clock.give(&mut command);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
        command
    }

    /// What it said, when it ended instead.
    async fn begin(&self, number: usize) -> Result<(), String> {
        let node = &self.nodes[number];
        assert!(node.child.lock().is_none(), "node {number} runs");
        let port_file = node.data.with_extension("port");
        let _ = std::fs::remove_file(&port_file);
        let said = std::fs::File::options().append(true).create(true).open(node.said()).expect("a file");
        let mut child = self.command(number).stderr(said).spawn().expect("it starts");
        let begun = Instant::now();
        while std::fs::read_to_string(&port_file).map_or(true, |text| text.trim().is_empty()) {
            if child.try_wait().expect("its status").is_some() {
                return Err(self.said(number));
            }
            assert!(begun.elapsed() < PATIENCE, "node {number} does not listen: {}", self.said(number));
            tokio::time::sleep(LOOK).await;
        }
        *node.child.lock() = Some(child);
        Ok(())
    }

    /// All that a node has said.
    pub fn said(&self, number: usize) -> String {
        std::fs::read_to_string(self.nodes[number].said()).unwrap_or_default()
    }

    /// Whether its process is there.
    pub fn runs(&self, number: usize) -> bool {
        let mut child = self.nodes[number].child.lock();
        child.as_mut().is_some_and(|child| child.try_wait().expect("its status").is_none())
    }

    fn signal(&self, number: usize, signal: Signal) {
        let child = self.nodes[number].child.lock();
        let id = child.as_ref().and_then(Child::id).and_then(|id| i32::try_from(id).ok());
        let id = id.and_then(rustix::process::Pid::from_raw).unwrap_or_else(|| panic!("node {number} does not run"));
        rustix::process::kill_process(id, signal).expect("it is ours");
    }

    /// SIGKILL.
    pub async fn kill(&self, number: usize) {
        let child = self.nodes[number].child.lock().take();
        child.expect("it runs").kill().await.expect("killed");
    }

    /// SIGSTOP: it is there, and does nothing.
    pub fn freeze(&self, number: usize) {
        self.signal(number, Signal::STOP);
    }

    /// SIGCONT.
    pub fn thaw(&self, number: usize) {
        self.signal(number, Signal::CONT);
    }

    /// Cuts its way to the database.
    pub fn cut(&self, number: usize) {
        let relay = &self.nodes[number].relay;
        match &self.net {
            Some(net) => net.cut(number, relay.at.port()),
            None => relay.cut(),
        }
    }

    /// All ways of a node are whole again.
    pub fn mend(&self, number: usize) {
        match &self.net {
            Some(net) => net.mend(number),
            None => self.nodes[number].relay.mend(),
        }
    }

    /// Cuts two nodes from one another, in silence.
    pub fn part(&self, one: usize, two: usize) {
        self.net.as_ref().expect("there is a network between them").part(one, two);
    }

    /// Makes its way to the database slow. False: that cannot be done here.
    pub fn slow(&self, number: usize, delay: Duration) -> bool {
        match &self.net {
            Some(net) => net.slow(number, delay),
            None => {
                self.nodes[number].relay.slow(delay);
                true
            }
        }
    }

    /// Waits for the end of a node: its exit code.
    pub async fn ended(&self, number: usize) -> Option<i32> {
        let child = self.nodes[number].child.lock().take();
        let mut child = child.expect("it runs");
        let status = tokio::time::timeout(PATIENCE, child.wait()).await;
        let status = status.unwrap_or_else(|_| panic!("node {number} does not end: {}", self.said(number)));
        status.expect("its status").code()
    }

    /// SIGTERM, and its end.
    pub async fn stop(&self, number: usize) -> Option<i32> {
        self.signal(number, Signal::TERM);
        self.ended(number).await
    }

    /// `stop`, `start` or `restart` of the database, as by a crash; `freeze` and `thaw`.
    pub fn database(&self, word: &str) {
        tokio::task::block_in_place(|| self.postgres.tell(word));
    }

    /// Asks one node until it answers. What is asked has no effect, or a key.
    pub async fn ask(&self, number: usize, wanted: &Wanted) -> Reply {
        let begun = Instant::now();
        loop {
            let reply = wanted.ask(self.at(number)).await;
            if let Some(reply) = reply.clone().filter(Reply::is_decided) {
                return reply;
            }
            assert!(begun.elapsed() < PATIENCE, "node {number}: {wanted:?}: {reply:?}: {}", self.said(number));
            tokio::time::sleep(LOOK).await;
        }
    }

    pub async fn get(&self, number: usize, path: &str) -> Reply {
        self.ask(number, &Wanted::get(path)).await
    }

    /// Makes a session.
    pub async fn create(&self, number: usize, session: &str) {
        let rules = json!({ "defaultPolicy": "allow", "rules": [] });
        let body = json!({ "sessionId": session, "toolPermissions": rules });
        let made = self.ask(number, &Wanted::post("/sessions", body).keyed(&format!("make-{session}"))).await;
        assert_eq!(made.status, 201, "{made:?}");
    }

    /// Prompts; the text is its key. The answer: the turn.
    pub async fn prompt(&self, number: usize, session: &str, text: &str) -> String {
        let path = format!("/sessions/{session}/prompt");
        let wanted = Wanted::post(&path, json!({ "prompt": text })).keyed(&text.replace(' ', "-"));
        let accepted = self.ask(number, &wanted).await;
        assert!(accepted.is_ok(), "{accepted:?}");
        accepted.text("turnId")
    }

    /// The record of a turn once it has ended.
    pub async fn turn(&self, number: usize, session: &str, turn: &str) -> Value {
        let begun = Instant::now();
        loop {
            let record = self.get(number, &format!("/sessions/{session}/turns/{turn}")).await;
            assert_eq!(record.status, 200, "{record:?}");
            if record.value["endedAt"].is_u64() {
                return record.value;
            }
            assert!(begun.elapsed() < PATIENCE, "it does not end: {record:?}");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// A session's events behind number `after`, from one node.
    pub async fn events(&self, number: usize, session: &str, after: u64) -> Stream {
        let begun = Instant::now();
        loop {
            if let Some(stream) = Stream::open(self.at(number), (session, None), after).await {
                return stream.patient(PATIENCE);
            }
            assert!(begun.elapsed() < PATIENCE, "node {number} does not stream");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The state of node `of`, as node `number` sees it: of its process that is not over, if there is one.
    pub async fn state(&self, number: usize, of: usize) -> Option<String> {
        let told = self.get(number, "/nodes").await;
        let url = self.url(of);
        let nodes = told.value["nodes"].as_array().unwrap_or_else(|| panic!("no list: {told:?}"));
        let own = nodes.iter().filter(|node| node["url"] == url.as_str());
        own.filter_map(|node| node["state"].as_str()).find(|state| *state != "over").map(str::to_owned)
    }

    /// Waits until node `number` sees so many active nodes.
    pub async fn until_active(&self, number: usize, count: usize) {
        let begun = Instant::now();
        loop {
            let told = self.get(number, "/nodes").await;
            let nodes = told.value["nodes"].as_array().unwrap_or_else(|| panic!("no list: {told:?}"));
            if nodes.iter().filter(|node| node["state"] == "active").count() == count {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "node {number} sees no {count} active nodes: {told:?}");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until node `number` knows that node `of` is over.
    pub async fn until_over(&self, number: usize, of: usize) {
        let begun = Instant::now();
        while self.state(number, of).await.is_some() {
            assert!(begun.elapsed() < PATIENCE, "node {of} is not declared over");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// A session's log as one node has it. None: it does not answer now.
    pub async fn try_log(&self, number: usize, (session, client): (&str, Option<&str>)) -> Option<Vec<String>> {
        let (mut cursor, mut log) = ("0".to_owned(), Vec::new());
        loop {
            let path = format!("/sessions/{session}/history?events=true&limit=1000&cursor={cursor}");
            let page = Wanted::get(&path).by(client).ask(self.at(number)).await.filter(Reply::is_decided)?;
            assert_eq!(page.status, 200, "{page:?}");
            log.extend(page.value["items"].as_array().expect("a list").iter().map(Value::to_string));
            match page.value["nextCursor"].as_str() {
                Some(next) => next.clone_into(&mut cursor),
                None => return Some(log),
            }
        }
    }

    /// A session's log, which all nodes that run have alike.
    pub async fn log(&self, session: &str) -> Vec<String> {
        let mut logs = Vec::new();
        for number in (0..self.count()).filter(|number| self.runs(*number)) {
            let log = self.try_log(number, (session, None)).await;
            logs.push(log.unwrap_or_else(|| panic!("node {number} does not answer")));
        }
        assert!(logs.windows(2).all(|two| two[0] == two[1]), "{session}: two nodes have two logs: {logs:#?}");
        logs.pop().expect("a node runs")
    }
}
