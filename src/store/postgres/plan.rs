//! What a group of commits makes of the tables, worked out before the database hears of it.
//!
//! Pure. Each commit is held against what the sessions are like behind the commits before it, and counts whole or not at all. What is
//! left is the end of it: of each row one value, so that a transaction is a handful of statements however many commits it has.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::protocol::{Event, SessionId, is_lifecycle};
use crate::store::chain::Chain;
use crate::store::lifecycle::{gone, line_of};
use crate::store::turn::TurnBody;
use crate::store::{
    ClientSpending, OutcomeRow, Question, SessionRow, StoreError, TurnRow, Write, check_fork, check_numbers, record,
};

/// Bytes of events in one row, about. More make several rows: a reader decodes rows whole.
const ROW_BYTES_MAX: usize = 64 << 10;

/// A session as the writer has to know it.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) number: i64,
    /// Whose it is; empty: nobody's.
    pub(super) client: String,
    pub(super) last_seq: u64,
    /// The chain to its last event.
    pub(super) chain: Chain,
    /// The node that has it, where it is known.
    pub(super) holder: Option<i64>,
}

/// What a fork shares, looked up before.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    /// The session in whose own rows the last common event lies.
    pub(super) base: i64,
    /// The chain to that event.
    pub(super) chain: Chain,
    /// So many forks in a row.
    pub(super) depth: usize,
}

/// The columns of a session's row.
#[derive(Debug)]
pub(super) struct SessionColumns {
    pub(super) row: SessionRow,
    pub(super) usage: String,
    pub(super) settings: String,
    pub(super) lineage: Option<String>,
    pub(super) children: Option<String>,
    pub(super) spent: Option<String>,
    pub(super) shared: Option<String>,
}

impl SessionColumns {
    fn of(row: &SessionRow) -> Result<Self, StoreError> {
        Ok(Self {
            usage: json(&row.usage)?,
            settings: json(&row.settings)?,
            lineage: row.lineage.as_deref().map(json).transpose()?,
            children: (!row.children.is_empty()).then(|| json(&row.children)).transpose()?,
            spent: (!row.spent.is_nothing()).then(|| json(&row.spent)).transpose()?,
            shared: (!row.shared.is_empty()).then(|| json(&row.shared)).transpose()?,
            row: row.clone(),
        })
    }
}

/// The end of a session's log.
#[derive(Debug)]
pub(super) struct End {
    /// Where it was. None: the session is new.
    pub(super) from: Option<u64>,
    pub(super) chain: Chain,
}

/// A row of the log.
#[derive(Debug)]
pub(super) struct LogRow {
    pub(super) session: i64,
    pub(super) first: u64,
    pub(super) count: u64,
    pub(super) turn: Option<String>,
    pub(super) at: u64,
    pub(super) body: Vec<u8>,
}

/// A lifecycle event that is listed for a client.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) client: String,
    pub(super) session: i64,
    /// Where the log has it. None: the session is gone.
    pub(super) seq: Option<u64>,
    /// Says that the session is gone, and when that was.
    pub(super) gone: Option<(String, u64)>,
}

/// A turn's row: whether it is open, and its words.
#[derive(Debug)]
pub(super) struct TurnColumns {
    pub(super) session: i64,
    pub(super) id: String,
    pub(super) open: bool,
    pub(super) body: String,
}

/// What happens to the outcomes of commands, of each name at most one thing.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    names: HashSet<String>,
    pub(super) saved: Vec<OutcomeRow>,
    pub(super) forgotten: Vec<String>,
}

/// What a transaction does.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) created: BTreeMap<i64, SessionColumns>,
    pub(super) updated: BTreeMap<i64, SessionColumns>,
    pub(super) deleted: Vec<i64>,
    /// A fork, its parent, and the last event that both have in common.
    pub(super) forks: BTreeMap<i64, (i64, u64)>,
    pub(super) ends: BTreeMap<i64, End>,
    pub(super) log: Vec<LogRow>,
    /// In the order in which they were first saved.
    pub(super) turns: Vec<TurnColumns>,
    pub(super) said: BTreeMap<(i64, u64), Option<String>>,
    pub(super) questions: Vec<(i64, u64, Question)>,
    pub(super) told: Vec<Told>,
    pub(super) grants: BTreeMap<String, Option<String>>,
    pub(super) spending: Vec<ClientSpending>,
    /// One behind the other.
    pub(super) outcomes: Vec<Outcomes>,
    /// Whether other nodes may be at the same names.
    pub(super) shares: bool,
    /// Events of sessions, before they are rows.
    events: BTreeMap<i64, Vec<Event>>,
    turn_at: HashMap<(i64, String), usize>,
}

/// The session that a write changes, where it is there already.
fn changed(write: &Write) -> Option<&SessionId> {
    match write {
        Write::UpdateSession(row) => Some(&row.id),
        Write::DeleteSession(id) | Write::Append(id, _) | Write::Said(id, ..) => Some(id),
        Write::SaveTurn(turn) => Some(&turn.record.session_id),
        Write::CreateSession(_)
        | Write::ForkSession { .. }
        | Write::SaveGrant(_)
        | Write::DeleteGrant(_)
        | Write::SaveSpending(_)
        | Write::SaveOutcome(_)
        | Write::ForgetOutcome(_) => None,
    }
}

/// Works out what a group does.
pub(super) struct Planner {
    /// The sessions that it names, as they are behind what was planned. None: there is none of that id.
    known: HashMap<SessionId, Option<Known>>,
    shared: HashMap<SessionId, Shared>,
    /// Numbers for new sessions, the next one last.
    numbers: Vec<i64>,
    /// The node whose sessions alone may be written to. None: any.
    node: Option<i64>,
    plan: Plan,
}

impl Planner {
    /// `known`: all sessions that the group names, as they are. `shared`: by the new session, what each fork shares. `numbers`: as many
    /// as there are new sessions, the highest first.
    pub(super) fn new(
        known: HashMap<SessionId, Option<Known>>,
        shared: HashMap<SessionId, Shared>,
        numbers: Vec<i64>,
    ) -> Self {
        Self { known, shared, numbers, node: None, plan: Plan::default() }
    }

    /// The same of a node that shares the database: what another one has is refused.
    pub(super) fn of_node(self, node: Option<i64>) -> Self {
        let plan = Plan { shares: node.is_some(), ..self.plan };
        Self { node, plan, ..self }
    }

    /// Takes a commit whole, or leaves it.
    ///
    /// # Errors
    /// Why it cannot happen; then nothing is planned of it.
    pub(super) fn take(&mut self, writes: &[Write]) -> Result<(), StoreError> {
        self.check(writes)?;
        // Words first: what cannot be put into them is found before anything is planned.
        let written = writes.iter().map(Written::of).collect::<Result<Vec<_>, _>>()?;
        for (write, written) in writes.iter().zip(written) {
            self.apply(write, written);
        }
        Ok(())
    }

    /// The plan, and what is known of the sessions behind it.
    pub(super) fn finish(mut self) -> (Plan, HashMap<SessionId, Option<Known>>) {
        let mut known: HashMap<i64, &mut Known> =
            self.known.values_mut().flatten().map(|known| (known.number, known)).collect();
        for (session, events) in std::mem::take(&mut self.plan.events) {
            // The tags of a row follow from the chain before it.
            let Some(end) = self.plan.ends.get_mut(&session) else { continue };
            let mut chain = end.chain;
            rows_of(session, &events, &mut chain, &mut self.plan.log);
            end.chain = chain;
            if let Some(known) = known.get_mut(&session) {
                known.chain = chain;
            }
        }
        (self.plan, self.known)
    }

    fn here(&self, id: &SessionId) -> Option<&Known> {
        self.known.get(id)?.as_ref()
    }

    /// Refuses to write to what another node has. What is planned to be made may be written to by who makes it.
    fn check_holder(&self, id: &SessionId) -> Result<(), StoreError> {
        let Some(known) = self.here(id) else { return Ok(()) };
        let ours = self.node.is_none() || known.holder == self.node || self.plan.created.contains_key(&known.number);
        if ours { Ok(()) } else { Err(StoreError::Elsewhere(id.clone())) }
    }

    fn check(&self, writes: &[Write]) -> Result<(), StoreError> {
        // What is otherwise behind the writes before: the last event; None: it is gone.
        let mut over: HashMap<&SessionId, Option<u64>> = HashMap::new();
        for write in writes {
            let last = |id: &SessionId| match over.get(id) {
                Some(last) => *last,
                None => self.here(id).map(|known| known.last_seq),
            };
            let there = |id: &SessionId| last(id).ok_or_else(|| StoreError::NoSession(id.clone()));
            if let Some(id) = changed(write) {
                self.check_holder(id)?;
            }
            match write {
                Write::CreateSession(row) | Write::ForkSession { row, .. } if last(&row.id).is_some() => {
                    return Err(StoreError::Taken(row.id.clone()));
                }
                Write::CreateSession(row) => drop(over.insert(&row.id, Some(0))),
                Write::ForkSession { row, parent, at, .. } => {
                    check_fork(parent, *at, there(parent)?)?;
                    let shared = self.shared.get(&row.id).ok_or_else(|| StoreError::Io {
                        doing: "fork a session".into(),
                        cause: format!("{parent} is made in the same moment"),
                    })?;
                    if shared.depth > crate::base::limit::FORK_DEPTH_MAX {
                        let forks_max = crate::base::limit::FORK_DEPTH_MAX;
                        return Err(StoreError::TooDeep { session: parent.clone(), forks_max });
                    }
                    over.insert(&row.id, Some(*at));
                }
                Write::UpdateSession(row) => drop(there(&row.id)?),
                Write::SaveTurn(turn) => drop(there(&turn.record.session_id)?),
                Write::Said(id, ..) => drop(there(id)?),
                Write::DeleteSession(id) => {
                    there(id)?;
                    over.insert(id, None);
                }
                Write::Append(id, events) => {
                    let last = there(id)?;
                    check_numbers(last, events)?;
                    over.insert(id, Some(events.last().map_or(last, |event| event.seq)));
                }
                Write::SaveGrant(_)
                | Write::DeleteGrant(_)
                | Write::SaveSpending(_)
                | Write::SaveOutcome(_)
                | Write::ForgetOutcome(_) => {}
            }
        }
        Ok(())
    }

    /// Does what [`Self::check`] has found possible.
    fn apply(&mut self, write: &Write, written: Written) {
        match (write, written) {
            (Write::CreateSession(row), Written::Session(columns)) => {
                self.create(row, columns, (0, Chain::default()));
            }
            (Write::ForkSession { row, at, .. }, Written::Session(columns)) => {
                let Some(shared) = self.shared.get(&row.id).cloned() else { return };
                if let Some(number) = self.create(row, columns, (*at, shared.chain)) {
                    self.plan.forks.insert(number, (shared.base, *at));
                }
            }
            (Write::UpdateSession(row), Written::Session(columns)) => {
                let Some(number) = self.here(&row.id).map(|known| known.number) else { return };
                match self.plan.created.get_mut(&number) {
                    Some(created) => *created = *columns,
                    None => drop(self.plan.updated.insert(number, *columns)),
                }
            }
            (Write::DeleteSession(id), _) => self.delete(id),
            (Write::Append(id, events), _) => self.append(id, events),
            (Write::SaveTurn(turn), Written::Turn(body)) => self.save_turn(turn, body),
            (Write::Said(id, at, _), Written::Said(body)) => {
                if let Some(number) = self.here(id).map(|known| known.number) {
                    self.plan.said.insert((number, *at), body);
                }
            }
            (Write::SaveGrant(row), Written::Grant(body)) => {
                self.plan.grants.insert(row.grant.id.to_string(), Some(body));
            }
            (Write::DeleteGrant(id), _) => drop(self.plan.grants.insert(id.to_string(), None)),
            (Write::SaveSpending(row), _) => self.plan.spending.push(row.as_ref().clone()),
            (Write::SaveOutcome(row), _) => self.outcomes_of(&row.name).saved.push(row.as_ref().clone()),
            (Write::ForgetOutcome(name), _) => self.outcomes_of(name).forgotten.push(name.clone()),
            _ => {}
        }
    }

    fn create(&mut self, row: &SessionRow, columns: Box<SessionColumns>, (seq, chain): (u64, Chain)) -> Option<i64> {
        let number = self.numbers.pop()?;
        // One under another goes where that one is: who has it is looked up when it is asked for.
        let holder = self.node.filter(|_| row.lineage.as_ref().and_then(|lineage| lineage.root()).is_none());
        let known = Known { number, client: line_of(row.client.as_ref()).to_owned(), last_seq: seq, chain, holder };
        self.known.insert(row.id.clone(), Some(known));
        self.plan.created.insert(number, *columns);
        self.plan.ends.insert(number, End { from: None, chain });
        Some(number)
    }

    fn delete(&mut self, id: &SessionId) {
        let Some(Some(known)) = self.known.insert(id.clone(), None) else { return };
        let (number, plan) = (known.number, &mut self.plan);
        let was_there = plan.created.remove(&number).is_none();
        plan.updated.remove(&number);
        plan.ends.remove(&number);
        plan.events.remove(&number);
        plan.said.retain(|(of, _), _| *of != number);
        plan.questions.retain(|(of, ..)| *of != number);
        plan.told.retain(|told| told.session != number || told.seq.is_none());
        plan.turns.retain(|turn| turn.session != number);
        plan.turn_at = plan.turns.iter().enumerate().map(|(at, turn)| ((turn.session, turn.id.clone()), at)).collect();
        if was_there {
            plan.deleted.push(number);
        } else {
            plan.forks.remove(&number);
        }
        let event = gone(id, known.last_seq);
        // An event is always words.
        let words = serde_json::to_string(&event).unwrap_or_default();
        plan.told.push(Told { client: known.client, session: number, seq: None, gone: Some((words, event.at)) });
    }

    fn append(&mut self, id: &SessionId, events: &[Event]) {
        let Some(known) = self.known.get_mut(id).and_then(Option::as_mut) else { return };
        let Some(last) = events.last() else { return };
        let (number, from) = (known.number, known.last_seq);
        known.last_seq = last.seq;
        self.plan.ends.entry(number).or_insert(End { from: Some(from), chain: known.chain });
        self.plan.events.entry(number).or_default().extend(events.iter().cloned());
        let asked = events.iter().filter_map(|event| Some((number, event.seq, Question::of(event)?)));
        self.plan.questions.extend(asked);
        let listed = events.iter().filter(|event| is_lifecycle(&event.kind));
        let client = &known.client;
        self.plan.told.extend(listed.map(|event| Told {
            client: client.clone(),
            session: number,
            seq: Some(event.seq),
            gone: None,
        }));
    }

    fn save_turn(&mut self, turn: &TurnRow, body: String) {
        let Some(session) = self.here(&turn.record.session_id).map(|known| known.number) else { return };
        let (id, open) = (turn.record.turn_id.to_string(), !turn.record.status.is_terminal());
        let plan = &mut self.plan;
        match plan.turn_at.get(&(session, id.clone())).and_then(|at| plan.turns.get_mut(*at)) {
            Some(known) => (known.open, known.body) = (open, body),
            None => {
                plan.turn_at.insert((session, id.clone()), plan.turns.len());
                plan.turns.push(TurnColumns { session, id, open, body });
            }
        }
    }

    /// Where something about a name goes: what is about the same name comes one behind the other.
    fn outcomes_of(&mut self, name: &str) -> &mut Outcomes {
        let outcomes = &mut self.plan.outcomes;
        if outcomes.last().is_none_or(|last| last.names.contains(name)) {
            outcomes.push(Outcomes::default());
        }
        let last = outcomes.len() - 1;
        outcomes[last].names.insert(name.to_owned());
        &mut outcomes[last]
    }
}

/// A write's rows, in words.
enum Written {
    Session(Box<SessionColumns>),
    Turn(String),
    Said(Option<String>),
    Grant(String),
    Nothing,
}

impl Written {
    fn of(write: &Write) -> Result<Self, StoreError> {
        Ok(match write {
            Write::CreateSession(row) | Write::UpdateSession(row) | Write::ForkSession { row, .. } => {
                Self::Session(Box::new(SessionColumns::of(row)?))
            }
            Write::SaveTurn(turn) => Self::Turn(json(&TurnBody::of(turn))?),
            Write::Said(_, _, said) => Self::Said(said.as_deref().map(json).transpose()?),
            Write::SaveGrant(row) => Self::Grant(json(row)?),
            Write::DeleteSession(_)
            | Write::Append(..)
            | Write::DeleteGrant(_)
            | Write::SaveSpending(_)
            | Write::SaveOutcome(_)
            | Write::ForgetOutcome(_) => Self::Nothing,
        })
    }
}

/// Rows of events that follow one another, each of one turn.
fn rows_of(session: i64, events: &[Event], chain: &mut Chain, out: &mut Vec<LogRow>) {
    let mut rest = events;
    while let Some(first) = rest.first() {
        let (mut body, mut tags, mut count) = (Vec::new(), Vec::new(), 0);
        for event in rest.iter().take_while(|event| event.turn_id == first.turn_id) {
            record::encode_line(&mut body, first.at, event);
            chain.push(event);
            tags.extend(chain.tag());
            count += 1;
            if body.len() >= ROW_BYTES_MAX {
                break;
            }
        }
        rest = &rest[count..];
        body.extend(tags);
        let turn = first.turn_id.as_ref().map(|turn| turn.as_str().to_owned());
        out.push(LogRow { session, first: first.seq, count: count as u64, turn, at: first.at, body });
    }
}

fn json<T: serde::Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value)
        .map_err(|e| StoreError::Io { doing: "put a row into words".into(), cause: e.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{TurnId, TurnStatus};
    use crate::store::conformance::{append, create, save, session_id};

    fn planner(there: &[(&str, i64, u64)], numbers: &[i64]) -> Planner {
        let known = there.iter().map(|(id, number, last_seq)| {
            let (client, chain, holder) = (String::new(), Chain::default(), None);
            let known = Known { number: *number, client, last_seq: *last_seq, chain, holder };
            (session_id(id), Some(known))
        });
        Planner::new(known.collect(), HashMap::new(), numbers.iter().rev().copied().collect())
    }

    #[test]
    fn a_group_is_one_value_of_each_row() {
        let mut planner = planner(&[("a", 1, 2)], &[7]);
        let turn = TurnId::generate();
        let status = [TurnStatus::Queued, TurnStatus::Running, TurnStatus::Completed];
        for (seq, status) in (3..).zip(status) {
            planner.take(&[append("a", Some(&turn), seq..=seq), save("a", &turn, status)]).expect("planned");
        }
        planner.take(&[create("b"), append("b", None, 1..=1)]).expect("planned");
        let (plan, known) = planner.finish();
        let rows: Vec<_> = plan.log.iter().map(|row| (row.session, row.first, row.count)).collect();
        assert_eq!(rows, [(1, 3, 3), (7, 1, 1)], "what follows one another is one row");
        assert_eq!(plan.turns.iter().map(|turn| (turn.session, turn.open)).collect::<Vec<_>>(), [(1, false)]);
        assert_eq!((plan.ends[&1].from, plan.ends[&1].chain.seq(), plan.ends[&7].from), (Some(2), 5, None));
        assert_eq!(plan.created.keys().collect::<Vec<_>>(), [&7]);
        let last = |id: &str| known[&session_id(id)].as_ref().map(|known| (known.last_seq, known.chain.seq()));
        assert_eq!((last("a"), last("b")), (Some((5, 5)), Some((1, 1))));
    }

    #[test]
    fn what_cannot_happen_leaves_nothing_and_takes_nobody_with_it() {
        let mut planner = planner(&[("a", 1, 2), ("b", 2, 0)], &[7, 8]);
        planner.take(&[append("a", None, 3..=3)]).expect("planned");
        let gap = planner.take(&[append("b", None, 1..=1), create("c"), append("a", None, 9..=9)]);
        assert!(matches!(gap, Err(StoreError::Io { .. })), "{gap:?}");
        assert_eq!(planner.take(&[create("a")]), Err(StoreError::Taken(session_id("a"))));
        assert_eq!(planner.take(&[append("none", None, 1..=1)]), Err(StoreError::NoSession(session_id("none"))));
        planner.take(&[create("c"), append("a", None, 4..=4)]).expect("planned");
        let (plan, _) = planner.finish();
        assert_eq!(plan.log.iter().map(|row| (row.session, row.first, row.count)).collect::<Vec<_>>(), [(1, 3, 2)]);
        assert_eq!(plan.created.keys().collect::<Vec<_>>(), [&7]);
    }

    #[test]
    fn what_comes_and_goes_in_one_group_leaves_its_end_alone() {
        let mut planner = planner(&[("a", 1, 2)], &[7]);
        let turn = TurnId::generate();
        planner
            .take(&[Write::DeleteSession(session_id("a")), create("a"), append("a", Some(&turn), 1..=1)])
            .expect("ok");
        planner.take(&[save("a", &turn, TurnStatus::Running), Write::DeleteSession(session_id("a"))]).expect("planned");
        assert_eq!(planner.take(&[append("a", None, 1..=1)]), Err(StoreError::NoSession(session_id("a"))));
        let (plan, known) = planner.finish();
        assert_eq!(plan.deleted, [1]);
        assert!(plan.created.is_empty() && plan.log.is_empty() && plan.turns.is_empty() && plan.ends.is_empty());
        assert_eq!(plan.told.iter().map(|told| (told.session, told.seq)).collect::<Vec<_>>(), [(1, None), (7, None)]);
        assert!(known[&session_id("a")].is_none());
    }
}
