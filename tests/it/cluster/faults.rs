//! What happens to nodes and to their database while clients work: one thing after another, and between two of them all nodes are
//! there again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::load::Common;
use super::nodes::Cluster;
use crate::crash::Chance;

/// The longest time between two faults, in milliseconds.
const GAP_MS: u64 = 1_500;
/// The longest time until a node that was killed is started again: before the others have declared it over, or after it.
const AWAY_MS: u64 = 6_000;
/// A pause of a node that costs it nothing, at most.
const MOMENT_MS: u64 = 1_500;

#[derive(Debug, Clone, Copy)]
enum Fault {
    Kill,
    Freeze,
    Moment,
    Cut,
    Stop,
    Database,
}

const FAULTS: [Fault; 6] = [Fault::Kill, Fault::Freeze, Fault::Moment, Fault::Cut, Fault::Stop, Fault::Database];
/// What happens in every run, however short it is.
const ALWAYS: [Fault; 3] = [Fault::Kill, Fault::Freeze, Fault::Database];

/// Lets one fault after another happen, until it is time and each of those that always do has.
pub async fn happen(common: &Arc<Common>, mut chance: Chance, until: Instant) {
    let cluster = &common.cluster;
    let mut due = ALWAYS.to_vec();
    while Instant::now() < until || !due.is_empty() {
        // The moment is the point: there is no signal to wait for.
        tokio::time::sleep(Duration::from_millis(chance.below(GAP_MS))).await;
        for number in 0..cluster.count() {
            assert!(cluster.runs(number), "node {number} ended by itself: {}", cluster.said(number));
        }
        let fault = match due.len() {
            0 => *chance.pick(&FAULTS),
            left => due.swap_remove(usize::try_from(chance.below(left as u64)).expect("few")),
        };
        let number = usize::try_from(chance.below(cluster.count() as u64)).expect("few");
        let other = (number + 1) % cluster.count();
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
            Fault::Stop => {
                let code = cluster.stop(number).await;
                assert_eq!(code, Some(0), "node {number}: {}", cluster.said(number));
                cluster.restart(number).await;
            }
            Fault::Database => cluster.database("restart"),
        }
        cluster.until_active(other, cluster.count()).await;
        common.count(match fault {
            Fault::Kill => "nodes were killed",
            Fault::Freeze => "nodes were frozen",
            Fault::Moment => "nodes were frozen for a moment",
            Fault::Cut => "nodes were cut off",
            Fault::Stop => "nodes were stopped",
            Fault::Database => "the database was restarted",
        });
    }
}

async fn killed(cluster: &Cluster, number: usize, chance: &mut Chance) {
    cluster.kill(number).await;
    tokio::time::sleep(Duration::from_millis(chance.below(AWAY_MS))).await;
    cluster.restart(number).await;
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
