//! How sub-agents work with those beside them, as their parent has it: what tools they have for that, and what they are told of it.

use crate::host::{BOARD_READ, BOARD_WRITE, NOTIFY_PARENT, SEND_TO_PEER, TASK_TOOLS};
use crate::protocol::{Coordination, ToolDefinition};
use crate::store::SessionSettings;

/// What one is told that shares what it knows.
const BLACKBOARD: &str = "You work on a part of something that other agents work on at the same time. Read the blackboard \
    (blackboard_read) and the tasks (task_list) before you begin. Put there (blackboard_write) what others need: findings, decisions, \
    interfaces; under keys that say what it is. Take a task by setting it in_progress, and set it completed when it is done.";
/// What one is told more that can talk to those beside it.
const PEER: &str = "You can tell another of these agents something directly (send_to_peer), and they you: such a message begins \
    with [Sub-agent …]. Do it for what concerns that one alone and now; everything else belongs on the blackboard.";

/// The tools for it.
fn tools_of(how: Coordination) -> Vec<&'static str> {
    let mut names = Vec::new();
    if how != Coordination::Hierarchical {
        names.extend([BOARD_READ, BOARD_WRITE, NOTIFY_PARENT]);
        names.extend(TASK_TOOLS);
    }
    if how == Coordination::Peer {
        names.push(SEND_TO_PEER);
    }
    names
}

/// Gives a new session what it needs to work so, of the tools that its parent has.
pub(super) fn coordinate(settings: &mut SessionSettings, how: Coordination, parents: &[ToolDefinition]) {
    if let Some(own) = &mut settings.tools {
        if how != Coordination::Peer {
            own.retain(|name| name != SEND_TO_PEER);
        }
        let there = |name: &&&str| parents.iter().any(|tool| tool.name == **name);
        for name in tools_of(how).iter().filter(there) {
            if !own.iter().any(|other| other == name) {
                own.push((*name).to_owned());
            }
        }
    }
    let told = match how {
        Coordination::Hierarchical => return,
        Coordination::Blackboard => BLACKBOARD.to_owned(),
        Coordination::Peer => format!("{BLACKBOARD}\n\n{PEER}"),
    };
    let before = settings.instructions.take().map(|text| format!("{text}\n\n")).unwrap_or_default();
    settings.instructions = Some(format!("{before}{told}"));
}
