//! What happens to nodes and to their database while clients work: one thing after another, and between two of them all nodes are
//! there again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use super::load::Common;
use super::nodes::{Cluster, LOOK, PATIENCE};
use super::wire::Wanted;
use crate::crash::{Chance, now_ms, say, setting};

/// The longest time between two faults, in milliseconds.
const GAP_MS: u64 = 1_500;
/// The longest time until a node that was killed is started again: before the others have declared it over, or after it.
const AWAY_MS: u64 = 6_000;
/// How long the database stands still, at most: nobody is declared over for it.
const STALL_MS: u64 = 8_000;
/// How far a clock is set, in seconds either way, at most: longer than anything is kept for its time.
const WRONG: u64 = 1_200;
/// A pause of a node that costs it nothing, at most.
const MOMENT_MS: u64 = 1_500;

#[derive(Debug, Clone, Copy)]
enum Fault {
    Kill,
    Freeze,
    Moment,
    Cut,
    Stop,
    Drain,
    Database,
    Stall,
    Clock,
}

const FAULTS: [Fault; 9] = [
    Fault::Kill,
    Fault::Freeze,
    Fault::Moment,
    Fault::Cut,
    Fault::Stop,
    Fault::Drain,
    Fault::Database,
    Fault::Stall,
    Fault::Clock,
];
/// What happens in every run, however short it is.
const ALWAYS: [Fault; 6] = [Fault::Clock, Fault::Kill, Fault::Freeze, Fault::Drain, Fault::Database, Fault::Stall];

/// Lets one fault after another happen, until it is time and each of those that always do has.
pub async fn happen(common: &Arc<Common>, mut chance: Chance, until: Instant) {
    let cluster = &common.cluster;
    let can = |fault: &Fault| !matches!(fault, Fault::Clock) || cluster.clock(0).is_some();
    let all: Vec<Fault> = FAULTS.into_iter().filter(can).collect();
    let mut due: Vec<Fault> = ALWAYS.into_iter().filter(can).collect();
    let tells = setting("SIMSE_CLUSTER_PROGRESS").is_some();
    while Instant::now() < until || !due.is_empty() {
        // The moment is the point: there is no signal to wait for.
        tokio::time::sleep(Duration::from_millis(chance.below(GAP_MS))).await;
        for number in 0..cluster.count() {
            assert!(cluster.runs(number), "node {number} ended by itself: {}", cluster.said(number));
        }
        let fault = match due.len() {
            0 => *chance.pick(&all),
            left => due.swap_remove(usize::try_from(chance.below(left as u64)).expect("few")),
        };
        let number = usize::try_from(chance.below(cluster.count() as u64)).expect("few");
        let other = (number + 1) % cluster.count();
        if tells {
            say(&format!("{}: {fault:?} of node {number} at {}", now_ms(), cluster.at(number)));
        }
        match fault {
            Fault::Kill => killed(cluster, number, &mut chance).await,
            Fault::Freeze => {
                cluster.freeze(number);
                silent(cluster, number, other).await;
            }
            Fault::Moment => {
                cluster.freeze(number);
                tokio::time::sleep(Duration::from_millis(chance.below(MOMENT_MS))).await;
                cluster.thaw(number);
            }
            Fault::Cut => {
                cluster.cut(number);
                silent(cluster, number, other).await;
            }
            Fault::Stop => stopped(cluster, number).await,
            Fault::Drain => {
                drained(cluster, number).await;
                stopped(cluster, number).await;
            }
            Fault::Database => cluster.database("restart"),
            Fault::Stall => {
                cluster.database("freeze");
                tokio::time::sleep(Duration::from_millis(chance.below(STALL_MS))).await;
                cluster.database("thaw");
            }
            Fault::Clock => {
                let ahead = i64::try_from(chance.below(2 * WRONG)).expect("minutes") - WRONG.cast_signed();
                cluster.clock(number).expect("it can be set").set(ahead);
            }
        }
        // Each of them: one that has just begun knows nobody whom it has not seen.
        for number in 0..cluster.count() {
            cluster.until_active(number, cluster.count()).await;
        }
        common.count(match fault {
            Fault::Kill => "nodes were killed",
            Fault::Freeze => "nodes were frozen",
            Fault::Moment => "nodes were frozen for a moment",
            Fault::Cut => "nodes were cut off",
            Fault::Stop => "nodes were stopped",
            Fault::Drain => "nodes were drained",
            Fault::Database => "the database was restarted",
            Fault::Stall => "the database stood still",
            Fault::Clock => "clocks were set",
        });
    }
}

async fn killed(cluster: &Cluster, number: usize, chance: &mut Chance) {
    cluster.kill(number).await;
    tokio::time::sleep(Duration::from_millis(chance.below(AWAY_MS))).await;
    cluster.restart(number).await;
}

async fn stopped(cluster: &Cluster, number: usize) {
    let code = cluster.stop(number).await;
    assert_eq!(code, Some(0), "node {number}: {}", cluster.said(number));
    cluster.restart(number).await;
}

/// A node hands over all that it has, and takes nothing more; it goes on answering.
async fn drained(cluster: &Cluster, number: usize) {
    let begun = Instant::now();
    loop {
        let said = cluster.ask(number, &Wanted::post("/drain", json!({}))).await;
        assert!(said.is_ok() && said.value["draining"] == true, "node {number}: {said:?}");
        if said.number("left") == 0 {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "node {number} keeps sessions: {said:?}");
        tokio::time::sleep(LOOK).await;
    }
}

/// A node has fallen silent. It is declared over; when it is heard again it ends, and another process takes its place.
async fn silent(cluster: &Cluster, number: usize, other: usize) {
    cluster.until_over(other, number).await;
    cluster.thaw(number);
    cluster.mend(number);
    let code = cluster.ended(number).await;
    assert_eq!(code, Some(1), "node {number}: {}", cluster.said(number));
    cluster.restart(number).await;
}
