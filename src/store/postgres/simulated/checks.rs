//! What is held against the promises: every commit, every declaration, every taking, and who believes what.

use std::collections::{BTreeMap, BTreeSet};

use super::database::{Append, Change, Database};

/// So many trees must be left behind by one node, and so many nodes be well, for their shares to be measured.
const MEASURED: (usize, usize) = (40, 10);
/// What goes wrong where more than nodes are gone.
const NOT_CALM: [&str; 6] = ["frozen", "cut off", "restarted", "stalled", "unheard", "slow"];
/// How long what one node left behind is shared out, at most.
const SHARING_MS: u64 = 5_000;

#[derive(Debug)]
struct Turn {
    session: usize,
    /// When the node that ran it was gone, and the database there.
    left_at: Option<u64>,
    closings: u32,
}

/// What a node that is over has left behind, and who took how much of it.
#[derive(Debug)]
struct Share {
    at: u64,
    left: usize,
    taken: BTreeMap<usize, usize>,
}

/// What happened in a world.
#[derive(Debug, Clone, Default)]
pub(super) struct Figures {
    /// Milliseconds from the end of a node to the end of each turn that it left open.
    pub(super) takeovers: Vec<u64>,
    /// The same of worlds in which nothing else goes wrong.
    pub(super) calm: Vec<u64>,
    /// The greatest part of what a node left that one other node took, in percent.
    pub(super) shares: Vec<usize>,
    pub(super) counts: BTreeMap<&'static str, u64>,
}

impl Figures {
    pub(super) fn add(&mut self, other: Self) {
        self.takeovers.extend(other.takeovers);
        self.calm.extend(other.calm);
        self.shares.extend(other.shares);
        for (what, count) in other.counts {
            *self.counts.entry(what).or_default() += count;
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Checks {
    pub(super) now: u64,
    /// What is against the promises.
    pub(super) breaches: Vec<String>,
    pub(super) figures: Figures,
    /// Times that the database was away, or took no writes.
    pub(super) disturbances: u64,
    /// By session, how many events its log has.
    ends: Vec<u64>,
    /// Events that stand in a log, by their id.
    written: BTreeSet<usize>,
    turns: Vec<Turn>,
    /// By session, the servers that take it for theirs.
    believers: BTreeMap<usize, BTreeSet<usize>>,
    shares: BTreeMap<usize, Share>,
}

impl Checks {
    pub(super) fn new(sessions: usize) -> Self {
        Self { ends: vec![0; sessions], ..Self::default() }
    }

    pub(super) fn count(&mut self, what: &'static str) {
        *self.figures.counts.entry(what).or_default() += 1;
    }

    pub(super) fn breach(&mut self, what: String) {
        self.breaches.push(format!("{} ms: {what}", self.now));
    }

    /// A turn that is about to begin.
    pub(super) fn turn(&mut self, session: usize) -> usize {
        self.turns.push(Turn { session, left_at: None, closings: 0 });
        self.turns.len() - 1
    }

    /// The node that runs it is gone.
    pub(super) fn left(&mut self, turn: usize) {
        self.turns[turn].left_at = Some(self.now);
    }

    /// How long takeovers take is not measured over a time in which the database is away.
    pub(super) fn disturbed(&mut self) {
        for turn in &mut self.turns {
            turn.left_at = None;
        }
        self.shares.clear();
        self.disturbances += 1;
    }

    pub(super) fn committed(&mut self, node: usize, append: Append, (was_over, holder): (bool, Option<usize>)) {
        let Append { id, session, seq, change } = append;
        self.count("events");
        if was_over {
            self.breach(format!("(a) node {node} is over, and event {seq} of session {session} was committed"));
        }
        if holder != Some(node) {
            self.breach(format!("(a) node {node} committed event {seq} of session {session}, which {holder:?} holds"));
        }
        if self.ends[session] + 1 != seq {
            self.breach(format!("(b) event {seq} of session {session} behind {}", self.ends[session]));
        }
        self.ends[session] = seq;
        if !self.written.insert(id) {
            self.breach(format!("(b) event {seq} of session {session} was written twice"));
        }
        if let Change::Closes(turn) = change {
            let Turn { session: of, left_at, closings } = &mut self.turns[turn];
            *closings += 1;
            let (twice, of, left_at) = (*closings > 1, *of, left_at.take());
            if twice || of != session {
                self.breach(format!("(d) turn {turn} of session {session} has ended once more"));
            }
            self.figures.takeovers.extend(left_at.map(|left_at| self.now - left_at));
        }
    }

    /// What a writer was told.
    pub(super) fn told(&mut self, append: &Append, is_done: bool) {
        if self.written.contains(&append.id) != is_done {
            let Append { seq, session, .. } = append;
            self.breach(format!("(b) event {seq} of session {session}: it was said {is_done}, and is not so"));
        }
    }

    /// (c): of those that take a session for theirs one at most is not over.
    pub(super) fn believes(&mut self, server: usize, session: usize, database: &Database) {
        let believers = self.believers.entry(session).or_default();
        believers.insert(server);
        believers.retain(|other| *other == server || !database.is_over(*other));
        if believers.len() > 1 && !database.is_over(server) {
            let who = format!("(c) {believers:?} take session {session} for theirs at once");
            self.breach(who);
        }
    }

    pub(super) fn believes_no_more(&mut self, server: usize, session: usize) {
        if let Some(believers) = self.believers.get_mut(&session) {
            believers.remove(&server);
        }
    }

    /// A node was declared over that had left so many open turns, where so many others are well.
    pub(super) fn over(&mut self, number: usize, left: usize, well: usize) {
        if left >= MEASURED.0 && well >= MEASURED.1 {
            self.shares.insert(number, Share { at: self.now, left, taken: BTreeMap::new() });
        }
    }

    pub(super) fn taken(&mut self, by: usize, session: usize, (from, database): (Option<usize>, &Database)) {
        self.count("taken");
        let is_open = database.ends[session].open.is_some();
        let Some(share) = from.and_then(|from| self.shares.get_mut(&from)).filter(|_| is_open) else { return };
        if self.now <= share.at + SHARING_MS {
            *share.taken.entry(by).or_default() += 1;
        }
    }

    /// (f): nobody took more than half.
    pub(super) fn close(&mut self) {
        if !NOT_CALM.iter().any(|what| self.figures.counts.contains_key(what)) {
            self.figures.calm.clone_from(&self.figures.takeovers);
        }
        for (number, Share { left, taken, .. }) in std::mem::take(&mut self.shares) {
            let Some((by, most)) = taken.into_iter().max_by_key(|(_, count)| *count) else { continue };
            self.figures.shares.push(most * 100 / left);
            if most * 2 > left {
                self.breach(format!("(f) node {by} took {most} of {left} sessions that node {number} had left"));
            }
        }
    }
}
