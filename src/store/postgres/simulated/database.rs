//! The database as far as servers meet in it: the rows of nodes, the ends of logs with their holders, turns that are open, who has locked
//! what, and transactions that are under way.
//!
//! As PostgreSQL does it (`READ COMMITTED`): a statement that waited for a row looks at it anew, but what it read of other tables is as old
//! as the statement. A write that changes nothing waits for no disk.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use super::{Chance, IDLE_MS, LOCK_MS, Rules, TREES};

/// A connection.
pub(super) type Line = u64;

/// A row that can be locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Node(usize),
    End(usize),
}

/// What an event does to the turn of its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Opens(usize),
    Goes,
    Closes(usize),
}

/// One event of a log. Its id is never given twice.
#[derive(Debug, Clone, Copy)]
pub(super) struct Append {
    pub(super) id: usize,
    pub(super) session: usize,
    pub(super) seq: u64,
    pub(super) change: Change,
}

#[derive(Debug, Clone)]
pub(super) enum Statement {
    Connect,
    Enter,
    Beat,
    Others,
    Declare {
        number: usize,
        beat: Option<u64>,
    },
    LookUp(Vec<usize>),
    /// All of a transaction but its end.
    Carry {
        nth: u64,
        appends: Vec<Append>,
    },
    Commit,
    Happened(u64),
    Look(usize),
    Read(usize),
    Take {
        session: usize,
        again: bool,
    },
    LeftBehind,
    LetGo(usize),
    LetGoBut(BTreeSet<usize>),
    Drain,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    Here,
    Elsewhere(usize),
    Free,
}

#[derive(Debug, Clone)]
pub(super) enum Said {
    Lost,
    Again,
    Stale,
    Over,
    Done,
    Count(usize),
    Beats(Rc<Vec<(usize, u64)>>),
    Ends(Vec<(usize, u64, Option<usize>)>),
    Held(Held),
    Stands { seq: u64, open: Option<usize> },
    Trees(Vec<usize>),
}

/// A statement, and who waits for what it says.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) from: usize,
    pub(super) op: u64,
    pub(super) line: Line,
    pub(super) statement: Statement,
}

/// What a declaration saw when it began.
#[derive(Debug, Clone, Copy)]
pub(super) struct Glimpse {
    matches: bool,
    pub(super) at: u64,
    /// When the node had beaten last.
    pub(super) beaten_at: u64,
}

/// What goes on in the database by itself.
#[derive(Debug, Clone, Copy)]
pub(super) enum Inside {
    Worked(Line, u64),
    Idle(Line, u64),
    LockOut(Key, u64),
    Gone(usize),
    Flows(u64),
}

/// What comes of a statement.
#[derive(Debug)]
pub(super) enum Out {
    Answer { to: usize, op: u64, said: Said },
    Later(u64, Inside),
}

/// What has become so.
#[derive(Debug)]
pub(super) enum Fact {
    /// A transaction takes so long.
    Works(usize, u64),
    Committed {
        node: usize,
        append: Append,
        was_over: bool,
        holder: Option<usize>,
    },
    Over {
        number: usize,
        by: usize,
        watched: bool,
        glimpse: Glimpse,
        left: usize,
    },
    Taken {
        by: usize,
        session: usize,
        from: Option<usize>,
    },
}

#[derive(Debug, Clone)]
enum Effect {
    Enter,
    Beat,
    Over { number: usize, watched: bool, glimpse: Glimpse },
    Take(usize),
    LetGo(Vec<usize>),
    Drain,
    Commit,
}

#[derive(Debug)]
enum Waiting {
    Statement(Asked, Option<Glimpse>),
    Moves(Line),
}

#[derive(Debug)]
struct Transaction {
    node: usize,
    nth: u64,
    appends: Vec<Append>,
    keys: Vec<Key>,
    op: u64,
    /// A statement of it is under way.
    runs: bool,
    /// Nobody is there any more.
    orphan: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Row {
    pub(super) is_there: bool,
    pub(super) is_over: bool,
    is_draining: bool,
    written: u64,
    beat: u64,
    pub(super) beaten_at: u64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct End {
    pub(super) holder: Option<usize>,
    pub(super) seq: u64,
    pub(super) open: Option<usize>,
}

#[derive(Debug)]
pub(super) struct Database {
    rules: Rules,
    pub(super) now: u64,
    /// Grows with each restart: connections of an earlier one are gone.
    pub(super) boot: u64,
    pub(super) is_away: bool,
    /// Writes end when it is over; it can be read.
    stall: Option<u64>,
    pub(super) rows: Vec<Row>,
    pub(super) ends: Vec<End>,
    /// Sessions with an open turn.
    pub(super) open: BTreeSet<usize>,
    locks: BTreeMap<Key, Line>,
    waiting: BTreeMap<Key, VecDeque<Waiting>>,
    /// Writes that wait for the disk.
    pending: Vec<(Asked, Effect, Vec<Key>)>,
    transactions: BTreeMap<Line, Transaction>,
    /// Nodes whose connections are closed.
    gone: BTreeSet<usize>,
    /// The next transaction of a node takes so long.
    pub(super) slow: BTreeMap<usize, u64>,
    pub(super) out: Vec<Out>,
    pub(super) facts: Vec<Fact>,
    chance: Chance,
}

impl Database {
    pub(super) fn new((seed, rules): (u64, Rules), sessions: usize) -> Self {
        Self {
            rules,
            now: 0,
            boot: 0,
            is_away: false,
            stall: None,
            rows: Vec::new(),
            ends: vec![End::default(); sessions],
            open: BTreeSet::new(),
            locks: BTreeMap::new(),
            waiting: BTreeMap::new(),
            pending: Vec::new(),
            transactions: BTreeMap::new(),
            gone: BTreeSet::new(),
            slow: BTreeMap::new(),
            out: Vec::new(),
            facts: Vec::new(),
            chance: Chance(seed ^ 0xdb),
        }
    }

    pub(super) fn row(&mut self, number: usize) -> &mut Row {
        if self.rows.len() <= number {
            self.rows.resize(number + 1, Row::default());
        }
        &mut self.rows[number]
    }

    pub(super) fn takes_writes(&self) -> bool {
        !self.is_away && self.stall.is_none()
    }

    pub(super) fn is_over(&self, number: usize) -> bool {
        self.rows.get(number).is_none_or(|row| !row.is_there || row.is_over)
    }

    pub(super) fn has_holder(&self, session: usize) -> bool {
        self.ends[session].holder.is_some_and(|holder| !self.is_over(holder))
    }

    fn say(&mut self, asked: &Asked, said: Said) {
        self.out.push(Out::Answer { to: asked.from, op: asked.op, said });
    }

    pub(super) fn carry_out(&mut self, asked: Asked) {
        self.row(asked.from);
        self.look_at(asked, None);
    }

    /// `glimpse`: what it saw before it waited.
    fn look_at(&mut self, asked: Asked, glimpse: Option<Glimpse>) {
        let from = asked.from;
        match asked.statement.clone() {
            Statement::Connect => self.say(&asked, Said::Done),
            Statement::Enter => self.write(asked, Effect::Enter, Vec::new()),
            Statement::Beat if self.is_over(from) => self.say(&asked, Said::Count(0)),
            Statement::Beat => self.write(asked, Effect::Beat, Vec::new()),
            Statement::Others => {
                let rows = self.rows.iter().enumerate().filter(|(_, row)| row.is_there && !row.is_over);
                let beats = rows.map(|(number, row)| (number, row.beat)).collect();
                self.say(&asked, Said::Beats(Rc::new(beats)));
            }
            Statement::Declare { number, beat } => self.declare(asked, (number, beat), glimpse),
            Statement::LookUp(sessions) => {
                let ends = sessions.into_iter().map(|session| (session, &self.ends[session]));
                let ends = ends.map(|(session, end)| (session, end.seq, end.holder)).collect();
                self.say(&asked, Said::Ends(ends));
            }
            Statement::Carry { nth, appends } => self.mark(asked, nth, appends),
            Statement::Commit => self.commit(asked),
            Statement::Happened(nth) => {
                if self.waits((Key::Node(from), asked.line), || Waiting::Statement(asked.clone(), None)) {
                    return;
                }
                let happened = self.rows[from].written == nth;
                self.say(&asked, Said::Count(usize::from(happened)));
            }
            Statement::Look(session) => {
                let held = match self.ends[session].holder.filter(|_| self.has_holder(session)) {
                    Some(holder) if holder == from => Held::Here,
                    Some(holder) => Held::Elsewhere(holder),
                    None => Held::Free,
                };
                self.say(&asked, Said::Held(held));
            }
            Statement::Read(session) => {
                let End { seq, open, .. } = self.ends[session];
                self.say(&asked, Said::Stands { seq, open });
            }
            Statement::Take { session, again } => self.take(asked, session, again),
            Statement::LeftBehind => {
                let mut left: Vec<usize> = self.open.iter().copied().filter(|id| !self.has_holder(*id)).collect();
                for at in 0..left.len().min(TREES.0) {
                    let other = at + self.chance.pick(left.len() - at);
                    left.swap(at, other);
                }
                left.truncate(TREES.0);
                self.say(&asked, Said::Trees(left));
            }
            Statement::LetGo(session) => {
                let held = self.ends[session].holder == Some(from);
                self.let_go(asked, if held { vec![session] } else { Vec::new() });
            }
            Statement::LetGoBut(kept) => {
                let held = |(id, end): &(usize, &End)| end.holder == Some(from) && !kept.contains(id);
                let held = self.ends.iter().enumerate().filter(held).map(|(id, _)| id).collect();
                self.let_go(asked, held);
            }
            Statement::Drain => self.write(asked, Effect::Drain, Vec::new()),
        }
    }

    /// Whether somebody else has the row: then it waits for it.
    fn waits(&mut self, (key, line): (Key, Line), who: impl FnOnce() -> Waiting) -> bool {
        if self.locks.get(&key).is_none_or(|holder| *holder == line) {
            return false;
        }
        let who = who();
        let op = match &who {
            Waiting::Statement(asked, _) => asked.op,
            Waiting::Moves(line) => self.transactions.get(line).map_or(0, |transaction| transaction.op),
        };
        self.waiting.entry(key).or_default().push_back(who);
        self.out.push(Out::Later(LOCK_MS, Inside::LockOut(key, op)));
        true
    }

    fn declare(&mut self, asked: Asked, (number, beat): (usize, Option<u64>), glimpse: Option<Glimpse>) {
        let row = self.row(number).clone();
        if !row.is_there {
            return self.say(&asked, Said::Count(0));
        }
        let matches = !self.rules.compares_beat || beat.is_none_or(|beat| beat == row.beat);
        let glimpse = glimpse.unwrap_or(Glimpse { matches, at: self.now, beaten_at: row.beaten_at });
        let key = Key::Node(number);
        if beat.is_some() && self.rules.passes_locked && self.locks.contains_key(&key) {
            return self.say(&asked, Said::Count(0));
        }
        if self.waits((key, asked.line), || Waiting::Statement(asked.clone(), Some(glimpse))) {
            return;
        }
        if !glimpse.matches {
            return self.say(&asked, Said::Count(0));
        }
        self.write(asked, Effect::Over { number, watched: beat.is_some(), glimpse }, vec![key]);
    }

    fn take(&mut self, asked: Asked, session: usize, again: bool) {
        let own = again && self.rules.knows_own_taking && self.ends[session].holder == Some(asked.from);
        let is_free = own || !self.rules.looks_for_holder || !self.has_holder(session);
        if !is_free || self.is_over(asked.from) || self.rows[asked.from].is_draining {
            return self.say(&asked, Said::Count(0));
        }
        let key = Key::End(session);
        if !self.waits((key, asked.line), || Waiting::Statement(asked.clone(), None)) {
            self.write(asked, Effect::Take(session), vec![key]);
        }
    }

    fn let_go(&mut self, asked: Asked, sessions: Vec<usize>) {
        if sessions.is_empty() {
            return self.say(&asked, Said::Count(0));
        }
        let keys: Vec<Key> = sessions.iter().map(|session| Key::End(*session)).collect();
        for key in &keys {
            if self.waits((*key, asked.line), || Waiting::Statement(asked.clone(), None)) {
                return;
            }
        }
        self.write(asked, Effect::LetGo(sessions), keys);
    }

    /// Begins a transaction, unless its node is over.
    fn mark(&mut self, asked: Asked, nth: u64, appends: Vec<Append>) {
        let (node, line, key) = (asked.from, asked.line, Key::Node(asked.from));
        let mut keys = Vec::new();
        if self.rules.fences {
            if self.waits((key, line), || Waiting::Statement(asked.clone(), None)) {
                return;
            }
            if self.is_over(node) {
                return self.say(&asked, Said::Over);
            }
            self.locks.insert(key, line);
            keys.push(key);
        }
        let transaction =
            Transaction { node, nth, appends, keys, op: asked.op, runs: true, orphan: self.gone.contains(&node) };
        self.transactions.insert(line, transaction);
        let work = self.slow.remove(&node).unwrap_or_else(|| self.chance.below(4));
        self.facts.push(Fact::Works(node, work));
        self.out.push(Out::Later(work, Inside::Worked(line, nth)));
    }

    /// Moves the ends of its logs: what comes behind the mark.
    fn move_ends(&mut self, line: Line) {
        let Some(transaction) = self.transactions.get(&line) else { return };
        let (node, nth) = (transaction.node, transaction.nth);
        let appends = transaction.appends.clone();
        let sessions: BTreeSet<usize> = appends.iter().map(|append| append.session).collect();
        let mut is_as_planned = true;
        for session in sessions {
            let key = Key::End(session);
            if self.waits((key, line), || Waiting::Moves(line)) {
                return;
            }
            let end = &self.ends[session];
            let first = appends.iter().find(|append| append.session == session).map_or(0, |append| append.seq);
            is_as_planned &= end.seq + 1 == first && (!self.rules.compares_holder || end.holder == Some(node));
            self.locks.insert(key, line);
            if let Some(transaction) = self.transactions.get_mut(&line) {
                transaction.keys.push(key);
            }
        }
        let Some(transaction) = self.transactions.get_mut(&line) else { return };
        transaction.runs = false;
        let (op, orphan) = (transaction.op, transaction.orphan);
        if orphan || !is_as_planned {
            self.roll_back(line);
        }
        if !orphan {
            let said = if is_as_planned { Said::Done } else { Said::Stale };
            self.out.push(Out::Answer { to: node, op, said });
            self.out.push(Out::Later(IDLE_MS, Inside::Idle(line, nth)));
        }
    }

    fn commit(&mut self, asked: Asked) {
        match self.transactions.get_mut(&asked.line) {
            Some(transaction) => {
                (transaction.runs, transaction.op) = (true, asked.op);
                self.write(asked, Effect::Commit, Vec::new());
            }
            // It was given up here; the connection is gone with it.
            None => self.say(&asked, Said::Lost),
        }
    }

    fn roll_back(&mut self, line: Line) {
        if let Some(transaction) = self.transactions.remove(&line) {
            self.give_back(&transaction.keys);
        }
    }

    fn give_back(&mut self, keys: &[Key]) {
        for key in keys {
            self.locks.remove(key);
        }
        for key in keys {
            for who in self.waiting.remove(key).unwrap_or_default() {
                match who {
                    Waiting::Statement(asked, glimpse) => self.look_at(asked, glimpse),
                    Waiting::Moves(line) => self.move_ends(line),
                }
            }
        }
    }

    /// Does it now, or when the disk takes it.
    fn write(&mut self, asked: Asked, effect: Effect, keys: Vec<Key>) {
        if self.stall.is_some() {
            for key in &keys {
                self.locks.insert(*key, asked.line);
            }
            self.pending.push((asked, effect, keys));
        } else {
            let said = self.apply(&asked, effect);
            self.say(&asked, said);
        }
    }

    fn apply(&mut self, asked: &Asked, effect: Effect) -> Said {
        let (by, now) = (asked.from, self.now);
        match effect {
            Effect::Enter => {
                let row = self.row(by);
                (row.is_there, row.beaten_at) = (true, now);
            }
            Effect::Beat => {
                let row = self.row(by);
                (row.beat, row.beaten_at) = (row.beat + 1, now);
            }
            Effect::Over { number, watched, glimpse } => {
                if !std::mem::replace(&mut self.row(number).is_over, true) {
                    let left = self.open.iter().filter(|id| self.ends[**id].holder == Some(number)).count();
                    self.facts.push(Fact::Over { number, by, watched, glimpse, left });
                }
            }
            Effect::Take(session) => {
                let from = self.ends[session].holder.replace(by);
                self.facts.push(Fact::Taken { by, session, from });
            }
            Effect::LetGo(sessions) => {
                for session in &sessions {
                    self.ends[*session].holder = None;
                }
                return Said::Count(sessions.len());
            }
            Effect::Drain => self.row(by).is_draining = true,
            Effect::Commit => return self.end_transaction(asked),
        }
        Said::Count(1)
    }

    fn end_transaction(&mut self, asked: &Asked) -> Said {
        let Some(Transaction { node, nth, appends, keys, .. }) = self.transactions.remove(&asked.line) else {
            return Said::Lost;
        };
        self.rows[node].written = nth;
        for append in appends {
            let was_over = self.is_over(node);
            let end = &mut self.ends[append.session];
            self.facts.push(Fact::Committed { node, append, was_over, holder: end.holder });
            end.seq += 1;
            match append.change {
                Change::Opens(turn) => {
                    end.open = Some(turn);
                    self.open.insert(append.session);
                }
                Change::Closes(_) => {
                    end.open = None;
                    self.open.remove(&append.session);
                }
                Change::Goes => {}
            }
        }
        self.give_back(&keys);
        Said::Done
    }

    pub(super) fn go_on(&mut self, inside: Inside) {
        let is = |found: Option<&Transaction>, nth| found.is_some_and(|transaction| transaction.nth == nth);
        match inside {
            Inside::Worked(line, nth) if is(self.transactions.get(&line), nth) => self.move_ends(line),
            Inside::Idle(line, nth) => {
                let idles = |transaction: &&Transaction| !transaction.runs && transaction.nth == nth;
                if self.transactions.get(&line).filter(idles).is_some() {
                    self.roll_back(line);
                }
            }
            Inside::LockOut(key, op) => self.give_up(key, op),
            Inside::Gone(node) => {
                self.gone.insert(node);
                let lines: Vec<Line> =
                    self.transactions.iter().filter(|(_, t)| t.node == node).map(|(l, _)| *l).collect();
                for line in lines {
                    match self.transactions.get_mut(&line) {
                        // What runs is ended first; nobody hears of it.
                        Some(transaction) if transaction.runs => transaction.orphan = true,
                        _ => self.roll_back(line),
                    }
                }
            }
            Inside::Flows(boot) if boot == self.boot && self.stall.is_some_and(|until| until <= self.now) => {
                self.stall = None;
                for (asked, effect, keys) in std::mem::take(&mut self.pending) {
                    let said = self.apply(&asked, effect);
                    self.say(&asked, said);
                    self.give_back(&keys);
                }
            }
            Inside::Worked(..) | Inside::Flows(_) => {}
        }
    }

    /// A statement has waited for a lock for too long.
    fn give_up(&mut self, key: Key, op: u64) {
        let transactions = &self.transactions;
        let op_of = |who: &Waiting| match who {
            Waiting::Statement(asked, _) => Some(asked.op),
            Waiting::Moves(line) => transactions.get(line).map(|transaction| transaction.op),
        };
        let Some(waiting) = self.waiting.get_mut(&key) else { return };
        let Some(at) = waiting.iter().position(|who| op_of(who) == Some(op)) else { return };
        match waiting.remove(at) {
            Some(Waiting::Statement(asked, _)) => self.say(&asked, Said::Again),
            Some(Waiting::Moves(line)) => {
                if let Some(transaction) = self.transactions.get(&line) {
                    self.out.push(Out::Answer { to: transaction.node, op, said: Said::Again });
                }
                self.roll_back(line);
            }
            None => {}
        }
    }

    /// No write ends before then.
    pub(super) fn stall(&mut self, until: u64) {
        self.stall = Some(self.stall.map_or(until, |before| before.max(until)));
        self.out.push(Out::Later(until.saturating_sub(self.now), Inside::Flows(self.boot)));
    }

    /// All that is under way is lost, or happened and nobody hears of it.
    pub(super) fn go_away(&mut self, keeps: bool) {
        let waiting = std::mem::take(&mut self.waiting).into_values().flatten();
        for who in waiting {
            if let Waiting::Statement(asked, _) = who {
                self.say(&asked, Said::Lost);
            }
        }
        let pending = std::mem::take(&mut self.pending);
        for (asked, effect, _) in pending {
            if keeps {
                drop(self.apply(&asked, effect));
            }
            self.say(&asked, Said::Lost);
        }
        for transaction in std::mem::take(&mut self.transactions).into_values() {
            if transaction.runs {
                self.out.push(Out::Answer { to: transaction.node, op: transaction.op, said: Said::Lost });
            }
        }
        self.locks.clear();
        (self.boot, self.is_away, self.stall) = (self.boot + 1, true, None);
    }

    /// Puts a session into the world as it is at its beginning.
    pub(super) fn begin(&mut self, session: usize, holder: usize) {
        self.ends[session].holder = Some(holder);
    }
}
