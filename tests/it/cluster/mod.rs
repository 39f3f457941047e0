//! Several servers over one PostgreSQL: any of them answers for any session, and one that is killed, frozen or cut off costs
//! nothing but the turns that ran there, which say so.
//!
//! `nodes` starts the servers and does things to them, `relay` is the way to the database that can be cut, `net` a whole network
//! that can, `wire` asks one of them. `together`, `taken`, `apart`, `letters`, `lines`, `clocks` and `restored` are short tests of single promises. Below is the long one: clients (`load`) work with all nodes
//! at once, over HTTP and over a `socket`, while `faults` happen to these; what every client was told and saw is in the `ledger`, and
//! `check` (for forks with `forked`) holds it against the log, as two nodes have it. A session is checked once it has had its prompts, so a long run needs no more memory.
//!
//! By hand, for an hour, with a program that nobody builds anew meanwhile:
//!
//! ```sh
//! cargo build && cp target/debug/simse /tmp/simse
//! SIMSE_TEST_PROGRAM=/tmp/simse SIMSE_CLUSTER_SECONDS=3600 SIMSE_CLUSTER_PROGRESS=1 \
//!     cargo test --test it -- --nocapture cluster::clients_lose_nothing
//! ```
//!
//! `SIMSE_CLUSTER_SEED` (a failure names it), `SIMSE_CLUSTER_NODES` and `SIMSE_CLUSTER_CLIENTS` change the rest. With
//! `SIMSE_CLUSTER_KEEP=1` the data directories and what the nodes said stay where they are.

mod apart;
mod check;
mod clocks;
mod faults;
mod forked;
mod ledger;
mod letters;
mod lines;
mod load;
mod net;
mod nodes;
mod relay;
mod restored;
mod shared;
mod socket;
mod taken;
mod together;
mod wire;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::crash::{Chance, now_ms, say, setting};
use load::{Common, client};
use nodes::Cluster;

/// How long a usual run is.
const SECONDS: u64 = 20;
/// Servers of the long test.
const NODES: u64 = 3;
/// Clients that work side by side. Every other one has a name of its own.
const CLIENTS: u64 = 6;

/// What is counted at a session's end.
pub const CHECKED: &str = "sessions were checked";
/// How long a run goes on behind its time, without faults, until enough has happened: it depends on how fast the machine is.
const LONGER: Duration = Duration::from_secs(90);

/// What happens in every run, and how often at least. A run in which nothing happened shows nothing.
const LEAST: [(&str, usize); 16] = [
    ("nodes were killed", 1),
    ("nodes were frozen", 1),
    ("nodes were drained", 1),
    ("the database was restarted", 1),
    ("the database stood still", 1),
    ("sessions were made", 6),
    ("sessions were forked", 3),
    ("commands were answered over sockets", 20),
    (CHECKED, 6),
    ("prompts were accepted", 50),
    ("prompts were sent twice at once", 3),
    ("prompts were sent again", 3),
    ("sessions were configured", 3),
    ("turns were aborted", 1),
    ("requests were asked for again", 5),
    ("streams went on elsewhere", 20),
];

/// The same, where clocks can be set.
const WITH_CLOCKS: (&str, usize) = ("clocks were set", 1);

fn lacking(common: &Common) -> Vec<&'static str> {
    let told = common.told();
    let so_often = |what: &str| told.get(what).copied().unwrap_or(0);
    let wanted = LEAST.into_iter().chain(common.cluster.clock(0).map(|_| WITH_CLOCKS));
    wanted.filter(|(what, least)| so_often(what) < *least).map(|(what, _)| what).collect()
}

/// Waits until the clients have done enough, so far as that is not seen only behind their end.
async fn enough(common: &Common) {
    let begun = Instant::now();
    while begun.elapsed() < LONGER && lacking(common).iter().any(|what| *what != CHECKED) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Lets clients work until `over`, and until everything that they have made is checked.
async fn worked(common: &Arc<Common>, clients: u64, over: &CancellationToken) {
    let mut running = JoinSet::new();
    for number in 0..clients {
        running.spawn(client(number, Arc::clone(common), over.clone()));
    }
    while let Some(ended) = running.join_next().await {
        ended.expect("a client found something wrong");
    }
    // Those without a name share their sessions.
    common.counted(None).await;
}

/// Says now and then how far a run is.
async fn progress(common: Arc<Common>) {
    loop {
        tokio::time::sleep(Duration::from_secs(60)).await;
        say(&format!("{:?}", common.told()));
    }
}

async fn run(cluster: Arc<Cluster>, seed: u64) {
    let seconds = Duration::from_secs(setting("SIMSE_CLUSTER_SECONDS").unwrap_or(SECONDS));
    let clients = setting("SIMSE_CLUSTER_CLIENTS").unwrap_or(CLIENTS);
    let common = Arc::new(Common::new(Arc::clone(&cluster), seed));
    let watched = setting("SIMSE_CLUSTER_PROGRESS").map(|_| tokio::spawn(progress(Arc::clone(&common))));
    let over = CancellationToken::new();
    let injecting = {
        let (common, over) = (Arc::clone(&common), over.clone());
        // However it ends, the clients have an end too.
        tokio::spawn(async move {
            let _ends = over.drop_guard();
            faults::happen(&common, Chance::new(seed), Instant::now() + seconds).await;
            enough(&common).await;
        })
    };
    worked(&common, clients, &over).await;
    injecting.await.expect("a fault had not the effect that it has");
    if let Some(watched) = watched {
        watched.abort();
    }
    let told = common.told();
    say(&format!("{seconds:?}, seed {seed}: {told:?}"));
    let lacking = lacking(&common);
    assert!(lacking.is_empty(), "too rarely: {lacking:?}, of {told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn clients_lose_nothing_while_nodes_come_and_go() {
    let nodes = usize::try_from(setting("SIMSE_CLUSTER_NODES").unwrap_or(NODES)).expect("few");
    let cluster = match clocks::can_be_set() {
        true => Cluster::with_clocks(&vec![0; nodes]).await,
        false => Cluster::start(nodes).await,
    };
    let Some(cluster) = cluster else { return };
    let seed = setting("SIMSE_CLUSTER_SEED").unwrap_or_else(now_ms);
    let home = cluster.home().to_owned();
    let keep = setting("SIMSE_CLUSTER_KEEP").is_some();
    if keep {
        cluster.keep();
    }
    if let Err(failed) = tokio::spawn(run(cluster, seed)).await {
        let failed = failed.into_panic();
        let said = failed.downcast_ref::<String>().cloned();
        let said = said.or_else(|| failed.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let kept = if keep { format!(" (kept in {})", home.display()) } else { String::new() };
        panic!("SIMSE_CLUSTER_SEED={seed}: {}{kept}", said.unwrap_or_default());
    }
}
