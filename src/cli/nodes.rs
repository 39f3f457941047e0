//! `simse nodes` and `simse drain`: the servers that share a database, and how one of them goes. Both ask a server that runs.

use std::time::Duration;

use serde_json::to_string;
use tokio::time::{Instant, sleep_until};

use super::arguments::{Drain, Nodes};
use super::client::{Client, ClientError};
use super::reach::Refusal;
use super::{Exit, screen};
use crate::base::text::counted;
use crate::protocol::{Drained, NodeList, NodeState, NodeView};

/// Pause between two looks at what is left.
const LOOK: Duration = Duration::from_secs(1);
/// What the columns are.
const HEAD: [&str; 8] = ["number", "state", "name", "url", "version", "sessions", "running", "labels"];

/// Lists the servers, the newest first.
pub(super) async fn list(arguments: Nodes) -> Exit {
    ended(listed(arguments).await)
}

/// Has a server hand over what it has, and waits for that. Exit code 1: something is left.
pub(super) async fn drain(arguments: Drain) -> Exit {
    ended(drained(arguments).await)
}

fn ended(done: Result<(), Refusal>) -> Exit {
    match done {
        Ok(()) => Exit::Ok,
        Err((exit, words)) => {
            screen::last(words);
            exit
        }
    }
}

async fn listed(arguments: Nodes) -> Result<(), Refusal> {
    let client = arguments.there.server().await?;
    let list: NodeList = client.read("/nodes").await.map_err(failed)?;
    let lines: Vec<String> = match arguments.json {
        true => list.nodes.iter().map(|node| to_string(node).unwrap_or_default()).collect(),
        false => table(&list.nodes),
    };
    for line in lines {
        screen::line(&line);
    }
    Ok(())
}

async fn drained(arguments: Drain) -> Result<(), Refusal> {
    let client = arguments.there.server().await?;
    let wait = Duration::from_secs(arguments.wait.into());
    match hand_over(&client, wait).await.map_err(failed)? {
        0 => screen::line("drained"),
        _ if wait.is_zero() => {}
        left => {
            let left = sessions(left);
            let words = format!("{left} left after {} s: what runs goes on, and is handed over then", arguments.wait);
            return Err((Exit::Failed, words));
        }
    }
    Ok(())
}

fn failed(error: ClientError) -> Refusal {
    (Exit::Failed, error.to_string())
}

/// Hands over, and looks until nothing is left or the wait is over. How much is left.
async fn hand_over(client: &Client, wait: Duration) -> Result<u64, ClientError> {
    let until = Instant::now() + wait;
    let (mut left, mut told) = (asked(client).await?, u64::MAX);
    loop {
        if left > 0 && left < told {
            screen::line(&format!("draining: {} left", sessions(left)));
            told = left;
        }
        if left == 0 || Instant::now() >= until {
            return Ok(left);
        }
        sleep_until(until.min(Instant::now() + LOOK)).await;
        left = in_memory(client).await?;
        // What is told there is a second old: who hands over has the last word.
        if left == 0 || Instant::now() >= until {
            left = asked(client).await?;
        }
    }
}

/// Asks the server to hand over what it has. How much it could not yet.
async fn asked(client: &Client) -> Result<u64, ClientError> {
    let answer = client.call("POST", "/drain", None).await?;
    let read = serde_json::from_value::<Drained>(answer);
    let read = read.map_err(|cause| ClientError::Broken { call: "POST /drain".to_owned(), cause: cause.into() })?;
    Ok(read.left)
}

/// The sessions that the server has in memory, about.
async fn in_memory(client: &Client) -> Result<u64, ClientError> {
    let list: NodeList = client.read("/nodes").await?;
    Ok(list.nodes.iter().find(|node| node.is_self).map_or(0, |node| node.sessions))
}

fn sessions(count: u64) -> String {
    counted(usize::try_from(count).unwrap_or(usize::MAX), "session")
}

/// The servers in lines, below what the columns are.
fn table(nodes: &[NodeView]) -> Vec<String> {
    let rows: Vec<[String; 8]> = std::iter::once(HEAD.map(str::to_owned)).chain(nodes.iter().map(row)).collect();
    let widths: [usize; 8] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let line = |row: &[String; 8]| {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

fn row(node: &NodeView) -> [String; 8] {
    let state = match node.state {
        NodeState::Active => "active",
        NodeState::Draining => "draining",
        NodeState::Over => "over",
    };
    let labels = if node.labels.is_empty() { "-".to_owned() } else { node.labels.join(",") };
    [
        node.number.to_string(),
        state.to_owned(),
        screen::short(&node.name, 100),
        screen::short(node.url.as_deref().unwrap_or("-"), 200),
        screen::short(&node.version, 40),
        node.sessions.to_string(),
        node.running.to_string(),
        screen::short(&labels, 200),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_stand_in_columns() {
        let node = |number, state, url: Option<&str>, labels: &[&str]| NodeView {
            number,
            name: format!("box (pid {number})"),
            url: url.map(str::to_owned),
            version: "0.1.0".to_owned(),
            state,
            is_self: false,
            sessions: 12,
            running: 3,
            labels: labels.iter().map(|label| (*label).to_owned()).collect(),
        };
        let nodes = [
            node(10, NodeState::Active, Some("http://10.0.0.7:4000"), &["eu", "gpu"]),
            node(9, NodeState::Draining, Some("http://h:1\u{1b}"), &[]),
            node(1, NodeState::Over, None, &["a"]),
        ];
        let lines = [
            "number  state     name          url                   version  sessions  running  labels",
            "10      active    box (pid 10)  http://10.0.0.7:4000  0.1.0    12        3        eu,gpu",
            "9       draining  box (pid 9)   http://h:1\u{fffd}           0.1.0    12        3        -",
            "1       over      box (pid 1)   -                     0.1.0    12        3        a",
        ];
        assert_eq!(table(&nodes), lines);
        assert_eq!(table(&[]), ["number  state  name  url  version  sessions  running  labels"]);
    }
}
