//! Machines whose clocks are wrong, and are set while servers run there: what was kept at one server holds at the others all the same.
//!
//! It takes Debian's `faketime`, a library that tells a program another time of day. The steady clock and the files' times stay.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::Command;

use super::nodes::Cluster;
use super::taken::killed;
use super::together::done_once;
use super::wire::{TOKEN, Wanted};
use crate::crash::{now_ms, say};
use crate::support::http::request;

/// Seconds that clocks are ahead: in any direction longer than the outcome of a command is kept.
const AHEAD: [i64; 2] = [900, -900];
/// The test's own clock, which is the database's, is this near to what servers say.
const NEAR_MS: u64 = 60_000;

/// The library, where this machine has it.
fn library() -> Option<PathBuf> {
    let found = std::fs::read_dir("/usr/lib").ok()?.flatten().map(|of| of.path().join("faketime/libfaketimeMT.so.1"));
    found.into_iter().find(|path| path.exists())
}

/// Whether clocks can be set here.
pub fn can_be_set() -> bool {
    let can = library().is_some();
    if !can {
        say("left out: clocks that are wrong (Debian's `faketime` is not there)");
    }
    can
}

/// The clock of one server.
pub struct Clock(PathBuf);

impl Clock {
    /// One that is so many seconds ahead.
    pub fn new(file: PathBuf, ahead: i64) -> Self {
        let clock = Self(file);
        clock.set(ahead);
        clock
    }

    /// Sets it, also while the server runs.
    pub fn set(&self, ahead: i64) {
        let new = self.0.with_extension("clock.new");
        std::fs::write(&new, format!("{ahead:+}\n")).expect("written");
        std::fs::rename(&new, &self.0).expect("in its place");
    }

    /// A program has this clock.
    pub fn give(&self, command: &mut Command) {
        command.env("LD_PRELOAD", library().expect("it is there")).env("FAKETIME_TIMESTAMP_FILE", &self.0);
        command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
    }
}

/// The times of a session's events, as all nodes have them.
async fn times(cluster: &Cluster, session: &str) -> Vec<u64> {
    let log = cluster.log(session).await.into_iter();
    let events = log.map(|event| serde_json::from_str::<Value>(&event).expect("JSON"));
    events.map(|event| event["at"].as_u64().unwrap_or_else(|| panic!("no time: {event}"))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_can_be_given_and_set() {
    if !can_be_set() {
        return;
    }
    let home = tempfile::tempdir().expect("a directory");
    let clock = Clock::new(home.path().join("node.clock"), AHEAD[0]);
    let said = async |path: &Path| {
        let mut date = Command::new("date");
        clock.give(date.arg("+%s"));
        let said = date.output().await.unwrap_or_else(|error| panic!("{path:?}: {error}"));
        String::from_utf8_lossy(&said.stdout).trim().parse::<i64>().expect("seconds")
    };
    for ahead in [AHEAD[0], AHEAD[1], 0] {
        clock.set(ahead);
        let here = i64::try_from(now_ms() / 1_000).expect("seconds");
        let off = said(&clock.0).await - here;
        assert!((off - ahead).abs() < 60, "{off} of {ahead}");
    }
}

/// By how many seconds a node says that its machine's clock is ahead.
async fn told_ahead(cluster: &Cluster, number: usize) -> f64 {
    let at = cluster.at(number);
    let page = request(at, "GET", "/metrics").header("authorization", &format!("Bearer {TOKEN}")).send(at).await;
    let page = String::from_utf8(page.body).expect("a page");
    let line = page.lines().find_map(|line| line.strip_prefix("simse_machine_clock_ahead_seconds "));
    line.and_then(|ahead| ahead.parse().ok()).unwrap_or_else(|| panic!("it is not told: {page}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_key_counts_at_nodes_whose_clocks_are_wrong() {
    let Some(cluster) = Cluster::with_clocks(&AHEAD).await else { return };
    done_once(&cluster).await;
    for (number, ahead) in AHEAD.into_iter().enumerate() {
        let told = told_ahead(&cluster, number).await;
        #[allow(clippy::cast_precision_loss, reason = "minutes")]
        let off = (told - ahead as f64).abs();
        assert!(off < 60.0, "node {number}: {told}");
        let said = cluster.said(number);
        assert!(said.contains("the clock of this machine is not the database's"), "node {number}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_goes_on_at_a_node_whose_clock_is_wrong() {
    let Some(cluster) = Cluster::with_clocks(&AHEAD).await else { return };
    killed(&cluster).await;
    let times = times(&cluster, "s").await;
    assert!(times.iter().all(|at| at.abs_diff(now_ms()) < NEAR_MS), "now {}: {times:?}", now_ms());
    assert!(times.is_sorted_by(|one, two| *one <= two + 1_000), "{times:?}");
}

/// An hour forth, and an hour back, while what is kept is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_set_forgets_nothing_and_keeps_nothing_longer() {
    let Some(cluster) = Cluster::with_clocks(&[0, 0]).await else { return };
    cluster.create(0, "s").await;
    let turn = cluster.prompt(0, "s", "quick t1").await;
    assert_eq!(cluster.turn(1, "s", &turn).await["status"], "completed");
    let token = json!({ "role": "read-only", "expiresInMs": 1_800_000 });
    let token = cluster.ask(0, &Wanted::post("/sessions/s/tokens", token)).await;
    assert!(token.is_ok(), "{token:?}");
    for ahead in [3_600, -3_600] {
        for number in [0, 1] {
            cluster.clock(number).expect("it can be set").set(ahead);
            // A beat later it has been noticed, if it can be.
            tokio::time::sleep(Duration::from_millis(1_200)).await;
            for asked in [0, 1] {
                assert_eq!(
                    cluster.prompt(asked, "s", "quick t1").await,
                    turn,
                    "node {number} by {ahead}, asked: {asked}"
                );
            }
            let health = cluster.get(number, "/health").await.text("timestamp");
            let off = health.parse::<jiff::Timestamp>().expect("a time").as_millisecond();
            let off = u64::try_from(off).expect("this century").abs_diff(now_ms());
            assert!(off < NEAR_MS, "node {number} by {ahead}: {health}");
            let view = cluster.get(number, "/sessions/s/tokens").await;
            assert!(view.is_ok() && view.value.to_string().contains(&token.text("tokenId")), "{view:?}");
        }
    }
    let times = times(&cluster, "s").await;
    assert!(times.iter().all(|at| at.abs_diff(now_ms()) < NEAR_MS), "now {}: {times:?}", now_ms());
}
