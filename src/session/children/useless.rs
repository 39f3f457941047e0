//! Tools of working together that can never be of use to a session, by where it stands: its model is not told of them. Pure.
//!
//! It goes by what stays as it is for a session's whole life, and by the depth that the server allows: never by who is there at the
//! moment. So the list of tools stays the same from turn to turn, and with it the beginning of what is sent.

use crate::host::{LOCK_PATHS, NOTIFY_PARENT, SEND_TO_PEER, SUBAGENT_TOOLS, UNLOCK_PATHS};
use crate::protocol::{Coordination, Lineage};

/// The names of those.
pub(in crate::session) fn of_no_use(lineage: Option<&Lineage>, depth_max: usize) -> Vec<&'static str> {
    let (depth, is_peer) =
        lineage.map_or((0, false), |lineage| (lineage.depth(), lineage.coordination == Coordination::Peer));
    let mut names = Vec::new();
    if lineage.is_none() {
        names.push(NOTIFY_PARENT);
    }
    if !is_peer {
        names.push(SEND_TO_PEER);
    }
    // Nothing can stand under it, whoever would start it.
    if depth >= depth_max {
        names.extend(SUBAGENT_TOOLS);
        // And nothing beside it.
        if lineage.is_none() {
            names.extend([LOCK_PATHS, UNLOCK_PATHS]);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_session_can_never_use_goes_by_where_it_stands() {
        let under = |depth: usize, coordination| {
            let path = (0..depth).map(|at| format!("s{at}").parse().unwrap()).collect();
            Lineage { path, coordination, ..Lineage::default() }
        };
        let (hierarchical, peer) = (under(1, Coordination::Hierarchical), under(1, Coordination::Peer));
        let deep = under(3, Coordination::Blackboard);
        let all = |more: &[&'static str]| SUBAGENT_TOOLS.iter().chain(more).copied().collect::<Vec<_>>();
        #[rustfmt::skip]
        let table = [
            (None, 3, vec![NOTIFY_PARENT, SEND_TO_PEER]),
            (None, 0, all(&[NOTIFY_PARENT, SEND_TO_PEER, LOCK_PATHS, UNLOCK_PATHS])),
            (Some(&hierarchical), 3, vec![SEND_TO_PEER]),
            (Some(&peer), 3, vec![]),
            (Some(&peer), 1, all(&[])),
            (Some(&deep), 3, all(&[SEND_TO_PEER])),
        ];
        for (lineage, depth_max, mut want) in table {
            let mut names = of_no_use(lineage, depth_max);
            names.sort_unstable();
            want.sort_unstable();
            assert_eq!(names, want, "{lineage:?} {depth_max}");
        }
    }
}
