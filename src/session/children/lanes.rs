//! Room for turns of sub-agents: so many run at once under one session above all, and in the whole server; more wait their turn.
//!
//! Each depth has room of its own. A turn may wait for those that it spawned, which are a depth below it, so that those never
//! wait for it: whatever is deepest runs, and ends.
//!
//! Invariant: room that is given back goes to who has waited longest among those that it is for.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc::Sender;

use crate::protocol::{Lineage, SessionId};
use crate::session::actor::Order;

/// Who waits for room.
struct Waiting {
    root: SessionId,
    session: SessionId,
    mail: Sender<Order>,
    /// How many may run under its root.
    running_max: usize,
}

#[derive(Default)]
struct Depth {
    /// Turns that run, by the session above all.
    running: HashMap<SessionId, usize>,
    total: usize,
    waiting: VecDeque<Waiting>,
}

#[derive(Default)]
struct State {
    depths: BTreeMap<usize, Depth>,
    /// Runs that are not over, by the session above all and by depth.
    open: BTreeMap<(SessionId, usize), usize>,
}

/// Who runs, and who waits.
pub(in crate::session) struct Lanes {
    state: Mutex<State>,
    server_max: usize,
}

/// Room for a turn. It is given back when this goes.
pub(in crate::session) struct Slot {
    lanes: Arc<Lanes>,
    root: SessionId,
    depth: usize,
}

/// A run that is not over. It counts until this goes.
pub(in crate::session) struct Unfinished {
    lanes: Arc<Lanes>,
    at: (SessionId, usize),
}

impl Lanes {
    /// Room for so many turns of each depth.
    pub(in crate::session) fn new(server_max: usize) -> Self {
        Self { state: Mutex::default(), server_max }
    }

    /// Room for a turn, or a place among those that wait: room is mailed then. Who waits already keeps its place.
    pub(in crate::session) fn take(
        self: &Arc<Self>,
        (session, lineage): (&SessionId, &Lineage),
        running_max: usize,
        mail: &Sender<Order>,
    ) -> Option<Slot> {
        let root = lineage.root()?.clone();
        let depth = lineage.depth();
        let mut state = self.state.lock();
        let of = state.depths.entry(depth).or_default();
        if of.waiting.iter().any(|waiting| waiting.session == *session) {
            return None;
        }
        let ahead = of.waiting.iter().any(|waiting| waiting.root == root);
        if !ahead && of.has_room(&root, running_max, self.server_max) {
            of.enter(&root);
            return Some(Slot { lanes: Arc::clone(self), root, depth });
        }
        of.waiting.push_back(Waiting { root, session: session.clone(), mail: mail.clone(), running_max });
        None
    }

    /// How many runs wait with a new one under the same root at the same depth, itself among them. None: it need not.
    pub(in crate::session) fn queued(&self, lineage: &Lineage, running_max: usize) -> Option<usize> {
        let at = (lineage.root()?.clone(), lineage.depth());
        let open = self.state.lock().open.get(&at).copied().unwrap_or(0);
        open.checked_sub(running_max).filter(|waiting| *waiting > 0)
    }

    /// Takes who no longer waits out.
    pub(in crate::session) fn leave(&self, session: &SessionId) {
        for of in self.state.lock().depths.values_mut() {
            of.waiting.retain(|waiting| waiting.session != *session);
        }
    }

    /// Counts a run under a root, unless so many are not over already.
    pub(in crate::session) fn open(
        self: &Arc<Self>,
        (root, depth): (&SessionId, usize),
        open_max: usize,
    ) -> Option<Unfinished> {
        let mut state = self.state.lock();
        let all: usize = state.open.iter().filter(|((of, _), _)| of == root).map(|(_, open)| open).sum();
        if all >= open_max {
            return None;
        }
        let at = (root.clone(), depth);
        *state.open.entry(at.clone()).or_default() += 1;
        Some(Unfinished { lanes: Arc::clone(self), at })
    }

    /// Whether a run under that root is not over.
    pub(in crate::session) fn has_open(&self, root: &SessionId) -> bool {
        let state = self.state.lock();
        let mut of_root = state.open.range((root.clone(), 0)..).take_while(|((of, _), _)| of == root);
        of_root.any(|(_, open)| *open > 0)
    }

    /// Turns that run, and those that wait, of all sessions.
    pub(in crate::session) fn counts(&self) -> (usize, usize) {
        let state = self.state.lock();
        let of = |count: &dyn Fn(&Depth) -> usize| state.depths.values().map(count).sum();
        (of(&|depth| depth.total), of(&|depth| depth.waiting.len()))
    }

    fn give_back(self: &Arc<Self>, root: &SessionId, depth: usize) {
        let mut state = self.state.lock();
        let Some(of) = state.depths.get_mut(&depth) else { return };
        of.leave(root);
        let Some((next, slot)) = self.hand_on(of, depth) else { return };
        drop(state);
        let mail = next.mail;
        // Whoever waited may be busy; room that nobody takes comes back by itself.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { drop(mail.send(Order::Slot(slot)).await) });
        }
    }

    /// Gives free room to who has waited longest among those that may have it.
    fn hand_on(self: &Arc<Self>, of: &mut Depth, depth: usize) -> Option<(Waiting, Slot)> {
        let fits = |waiting: &Waiting| of.has_room(&waiting.root, waiting.running_max, self.server_max);
        let at = of.waiting.iter().position(fits)?;
        let next = of.waiting.remove(at)?;
        of.enter(&next.root);
        let slot = Slot { lanes: Arc::clone(self), root: next.root.clone(), depth };
        Some((next, slot))
    }
}

impl Depth {
    fn has_room(&self, root: &SessionId, running_max: usize, server_max: usize) -> bool {
        self.total < server_max && self.running.get(root).copied().unwrap_or(0) < running_max
    }

    fn enter(&mut self, root: &SessionId) {
        *self.running.entry(root.clone()).or_default() += 1;
        self.total += 1;
    }

    fn leave(&mut self, root: &SessionId) {
        self.total = self.total.saturating_sub(1);
        if let Some(running) = self.running.get_mut(root) {
            *running -= 1;
            if *running == 0 {
                self.running.remove(root);
            }
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.lanes.give_back(&self.root, self.depth);
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let mut state = self.lanes.state.lock();
        if let Some(open) = state.open.get_mut(&self.at) {
            *open -= 1;
            if *open == 0 {
                state.open.remove(&self.at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    fn under(root: &str, depth: usize) -> Lineage {
        let path = std::iter::once(root.to_owned()).chain((1..depth).map(|n| format!("{root}-{n}")));
        Lineage { path: path.map(|id| id.parse().expect("an id")).collect(), ..Lineage::default() }
    }

    #[tokio::test]
    async fn room_goes_to_who_waited_longest_and_each_depth_has_its_own() {
        let lanes = Arc::new(Lanes::new(3));
        let (mail, mut orders) = mpsc::channel(8);
        let take = |session: &str, lineage: &Lineage| lanes.take((&session.parse().expect("an id"), lineage), 2, &mail);
        let (a, b) = (under("a", 1), under("b", 1));
        let first = take("a1", &a).expect("room");
        let second = take("a2", &a).expect("room");
        assert!(take("a3", &a).is_none() && take("a3", &a).is_none() && take("a4", &a).is_none());
        assert_eq!(lanes.counts(), (2, 2), "who waits has one place");
        let third = take("b1", &b).expect("another root has its own");
        assert!(take("b2", &b).is_none(), "the server is full");
        let deeper = take("a5", &under("a", 2)).expect("another depth has its own");
        drop(third);
        let Some(Order::Slot(for_b)) = orders.recv().await else { panic!("`a` is full, `b` is not") };
        assert_eq!(for_b.root.as_str(), "b");
        lanes.leave(&"a3".parse().expect("an id"));
        drop(first);
        let Some(Order::Slot(for_a)) = orders.recv().await else { panic!("the one that still waits") };
        assert_eq!((for_a.root.as_str(), lanes.counts()), ("a", (4, 0)));
        drop((second, deeper, for_a, for_b));
        assert_eq!(lanes.counts(), (0, 0));
    }

    #[test]
    fn runs_that_are_not_over_have_an_end() {
        let lanes = Arc::new(Lanes::new(1));
        let (root, other) = ("a".parse().expect("an id"), "b".parse().expect("an id"));
        let one = lanes.open((&root, 1), 1).expect("room");
        assert!(lanes.open((&root, 2), 1).is_none() && lanes.open((&other, 1), 1).is_some());
        assert_eq!((lanes.queued(&under("a", 1), 1), lanes.queued(&under("a", 2), 1)), (None, None));
        let two = lanes.open((&root, 1), 2).expect("room");
        assert_eq!((lanes.queued(&under("a", 1), 1), lanes.queued(&under("b", 1), 1)), (Some(1), None));
        drop((one, two));
        assert!(lanes.open((&root, 1), 1).is_some());
    }
}
