//! A node that is killed, frozen, cut off from the database or told to end: its sessions go on at another one, and nothing that
//! it does later counts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::check::{INTERRUPTED, hold};
use super::ledger::Session;
use super::load::Common;
use super::nodes::{Cluster, LOOK, PATIENCE};
use super::wire::{Stream, Wanted};
use super::worked;
use crate::crash::{now_ms, say};
use crate::support::program;

/// How soon a session is usable again whose node has gone.
const TAKEN: Duration = Duration::from_secs(10);
/// Pieces of a text after which a turn is in its midst.
pub(super) const MIDST: usize = 20;

pub(super) type Seen = BTreeMap<u64, String>;

/// Takes in events up to the nth one of a kind, each once and in order.
pub(super) async fn seen_until(stream: &mut Stream, seen: &mut Seen, (kind, times): (&str, usize)) {
    let kind = format!("\"type\":\"{kind}\"");
    while seen.values().filter(|data| data.contains(&kind)).count() < times {
        let (seq, data) = stream.next().await.expect("the stream goes on");
        assert_eq!(seq, seen.len() as u64 + 1, "numbers follow without gaps");
        seen.insert(seq, data);
    }
}

pub(super) fn interrupted(record: &Value) {
    assert_eq!(record["status"], "failed", "{record}");
    let why = record["error"]["message"].as_str().unwrap_or_default();
    assert!(why.contains(INTERRUPTED), "{record}");
}

/// A session of the owner with these prompts, and what was seen of it.
pub(super) fn session<const N: usize>(prompts: [(&str, &String); N], seen: Seen) -> Session {
    let prompts = prompts.map(|(token, turn)| (token.to_owned(), Some(turn.clone())));
    Session { prompts: prompts.into(), seen, ..Session::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_session_of_a_killed_node_goes_on_at_another_one() {
    let Some(cluster) = Cluster::start(2).await else { return };
    killed(&cluster).await;
}

/// Node 0 is killed in the midst of a turn, and is back in the end.
pub(super) async fn killed(cluster: &Cluster) {
    cluster.create(0, "s").await;
    let running = cluster.prompt(0, "s", "long t1").await;
    let queued = cluster.prompt(1, "s", "quick t2").await;
    let (mut live, mut seen) = (cluster.events(1, "s", 0).await, Seen::new());
    seen_until(&mut live, &mut seen, ("stream.delta", MIDST)).await;
    cluster.kill(0).await;
    let killed = Instant::now();
    let next = cluster.prompt(1, "s", "quick t3").await;
    interrupted(&cluster.turn(1, "s", &running).await);
    for turn in [&queued, &next] {
        let record = cluster.turn(1, "s", turn).await;
        assert_eq!(record["status"], "completed", "{record}");
    }
    assert!(killed.elapsed() < TAKEN, "it took {:?}", killed.elapsed());
    assert_eq!(cluster.prompt(1, "s", "quick t2").await, queued, "the same key is the same turn");
    // Who reads at the node that is left has never noticed.
    seen_until(&mut live, &mut seen, ("session.completed", 2)).await;
    cluster.restart(0).await;
    cluster.until_active(0, 2).await;
    let turns = [("t1", &running), ("t2", &queued), ("t3", &next)];
    hold(&session(turns, seen), "s", &cluster.log("s").await);
}

/// Node 0 falls silent in the midst of a turn, is followed, and is heard again.
pub(super) async fn silent(cluster: &Cluster, falls: impl Fn(&Cluster), wakes: impl Fn(&Cluster)) {
    cluster.create(0, "s").await;
    let running = cluster.prompt(0, "s", "long t1").await;
    let queued = cluster.prompt(0, "s", "quick t2").await;
    let (mut live, mut seen) = (cluster.events(0, "s", 0).await, Seen::new());
    seen_until(&mut live, &mut seen, ("stream.delta", MIDST)).await;
    falls(cluster);
    let silent = Instant::now();
    cluster.until_over(1, 0).await;
    interrupted(&cluster.turn(1, "s", &running).await);
    let record = cluster.turn(1, "s", &queued).await;
    assert_eq!(record["status"], "completed", "{record}");
    assert!(silent.elapsed() < TAKEN, "it took {:?}", silent.elapsed());
    let taken = cluster.try_log(1, ("s", None)).await.expect("it answers");
    wakes(cluster);
    let code = cluster.ended(0).await;
    let said = cluster.said(0);
    assert!(code == Some(1) && said.contains("taken over"), "{code:?}: {said}");
    // What it has shown since is there, too.
    while let Some((seq, data)) = live.next().await {
        assert_eq!(seq, seen.len() as u64 + 1, "numbers follow without gaps");
        seen.insert(seq, data);
    }
    assert_eq!(cluster.log("s").await, taken, "nothing of it came late");
    let next = cluster.prompt(1, "s", "quick t3").await;
    let record = cluster.turn(1, "s", &next).await;
    assert_eq!(record["status"], "completed", "{record}");
    let turns = [("t1", &running), ("t2", &queued), ("t3", &next)];
    hold(&session(turns, seen), "s", &cluster.log("s").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_wakes_late_writes_nothing_more_and_ends() {
    let Some(cluster) = Cluster::start(2).await else { return };
    silent(&cluster, |cluster| cluster.freeze(0), |cluster| cluster.thaw(0)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_cut_off_from_the_database_is_followed() {
    let Some(cluster) = Cluster::start(2).await else { return };
    silent(&cluster, |cluster| cluster.cut(0), |cluster| cluster.mend(0)).await;
}

/// Waits until so many prompts more were accepted.
async fn accepted(common: &Common, more: usize) {
    let now = || common.told().get("prompts were accepted").copied().unwrap_or(0);
    let (begun, before) = (Instant::now(), now());
    while now() < before + more {
        assert!(begun.elapsed() < PATIENCE, "too little is accepted: {:?}", common.told());
        tokio::time::sleep(LOOK).await;
    }
}

/// Clients work with two nodes, of which one after the other ends and starts anew, as this says.
async fn in_order(cluster: Arc<Cluster>, rounds: &[(usize, bool)]) {
    let common = Arc::new(Common::new(Arc::clone(&cluster), now_ms()));
    let over = CancellationToken::new();
    let working = {
        let (common, over) = (Arc::clone(&common), over.clone());
        tokio::spawn(async move { worked(&common, 4, &over).await })
    };
    let mut cut_by_older = 0;
    for (number, becomes_older) in rounds.iter().copied() {
        accepted(&common, 40).await;
        let before = cut_off(&cluster, number);
        let code = cluster.stop(number).await;
        assert_eq!(code, Some(0), "{}", cluster.said(number));
        let cut = cut_off(&cluster, number) - before;
        // The other one serves alone.
        accepted(&common, 10).await;
        if cluster.become_older(number, becomes_older) {
            cut_by_older += cut;
        } else {
            assert_eq!(cut, 0, "turns end before they are handed over: {}", cluster.said(number));
        }
        cluster.restart(number).await;
        cluster.until_active(number, 2).await;
    }
    over.cancel();
    working.await.expect("the clients lost something");
    let told = common.told();
    let interrupted = told.get("turns were interrupted").copied().unwrap_or(0);
    assert!(interrupted <= cut_by_older, "turns end before they are handed over: {told:?}");
    if interrupted > 0 {
        say(&format!("the earlier release cut off {interrupted} turns when it was told to end, and said so"));
    }
}

/// How many turns the processes of a node have cut off, as they say themselves.
fn cut_off(cluster: &Cluster, number: usize) -> usize {
    cluster.said(number).matches("a turn's end could not be written").count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_that_is_told_to_end_hands_over_and_loses_nothing() {
    let Some(cluster) = Cluster::start(2).await else { return };
    in_order(cluster, &[(0, false), (1, false)]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_at_a_node_that_ends_for_a_turn_of_another_one_is_told_so() {
    let Some(cluster) = Cluster::start(2).await else { return };
    cluster.create(1, "s").await;
    let wanted = Wanted::post("/sessions/s/prompt?wait=true", json!({ "prompt": "long t1" }));
    let at = cluster.at(0);
    let waits = tokio::spawn(async move { wanted.ask_within(at, PATIENCE).await });
    let (mut live, mut seen) = (cluster.events(1, "s", 0).await, Seen::new());
    seen_until(&mut live, &mut seen, ("stream.delta", MIDST)).await;
    assert_eq!(cluster.stop(0).await, Some(0), "{}", cluster.said(0));
    let told = waits.await.expect("no panic").expect("it is answered");
    let why = told.value["error"]["message"].as_str().unwrap_or_default();
    assert!(told.status == 503 && why.contains("stopping") && why.contains("may have been done"), "{told:?}");
    seen_until(&mut live, &mut seen, ("stream.delta", 2 * MIDST)).await;
}

/// With the program of an earlier release beside this one, both ways.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nodes_are_replaced_by_newer_ones_and_by_older_ones_again() {
    if program::older() == program::built() {
        say("left out: `SIMSE_TEST_OLDER_PROGRAM` names no program of an earlier release");
        return;
    }
    let Some(cluster) = Cluster::older(2).await else { return };
    in_order(cluster, &[(0, false), (0, true), (1, false), (0, false)]).await;
}
