//! What the writer remembers of a session, so that a commit looks up nothing.
//!
//! It is forgotten with any commit that fails: then the tables say how it is.

use std::collections::VecDeque;

use crate::protocol::TurnId;
use crate::store::chain::Chain;

/// A session.
pub(super) struct Known {
    pub(super) number: i64,
    pub(super) last_seq: u64,
    /// The turns last written, newest first, and their places: the one that runs, and those that wait.
    pub(super) turns: VecDeque<(TurnId, i64)>,
    /// The largest of the ids of its turns; one that is larger still is new. None: not looked up yet.
    pub(super) newest: Option<String>,
    /// The key of the turn that came last. None: not looked up yet.
    pub(super) last_turn: Option<i64>,
    /// The chain to its last event.
    pub(super) chain: Chain,
    /// The event to which its row has the chain.
    pub(super) anchored: u64,
}

impl Known {
    /// A session with that number and newest event, of whose turns nothing is known.
    pub(super) fn at((number, last_seq): (i64, u64), (chain, anchored): (Chain, u64)) -> Self {
        Self { number, last_seq, turns: VecDeque::new(), newest: None, last_turn: None, chain, anchored }
    }
}
