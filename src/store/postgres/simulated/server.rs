//! A server, as far as others meet it: it beats, watches, takes what others left behind, answers clients, and hands over.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Instant;

use super::database::{Append, Change, Held, Line, Said, Statement};
use super::world::{Event, HOPS_MAX, World, least_silence};
use super::writer::{Job, Writer, Written};
use super::{Chance, ROUND_MS, TREES};
use crate::store::postgres::node::{BEAT, BEAT_MAX, LOOK};
use crate::store::postgres::watched::{BLIND_MAX, Watched};
use crate::store::postgres::{AWAY_MAX, READ_PAUSE};

/// How long a server that drains waits for its turns.
pub(super) const GRACE_MS: u64 = 3_000;
/// After so long without a change of the own beat, silence is nobody's.
const OWN_SILENCE_MS: u128 = 2_000;
/// Behind the end of what was wrong with a server, until its beats come again.
const RECOVERS_MS: u64 = 6_000;
/// Pauses: between two looks whether a tree is at rest, and between two rounds of handing over.
const PAUSES_MS: (u64, u64) = (20, 100);

fn ms(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).expect("short")
}

/// A clock that is wrong, and goes wrong.
#[derive(Debug)]
pub(super) struct Clock {
    /// Microseconds.
    offset: u64,
    /// Microseconds in a second.
    rate: u64,
    stopped: u64,
}

impl Clock {
    /// What it shows, in microseconds.
    pub(super) fn at(&self, now: u64) -> u64 {
        self.offset + (now - self.stopped) * self.rate / 1_000
    }

    /// How long it takes to go on by so many milliseconds.
    pub(super) fn real(&self, local: u64) -> u64 {
        (local * 1_000_000).div_ceil(self.rate)
    }

    pub(super) fn stop(&mut self, ms: u64) {
        self.stopped += ms;
    }
}

/// Something that changes nothing when it is done again, and is until it is heard.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) statement: Statement,
    began: u64,
    then: Then,
}

/// For whom a tree is taken.
#[derive(Debug, Clone, Copy)]
pub(super) enum Why {
    Round,
    Asked(u32),
}

#[derive(Debug)]
enum Then {
    Looked { session: usize, hops: u32, epoch: u64 },
    Read { session: usize, hops: u32, epoch: u64 },
    ReadAgain(Append),
    Taken(usize, Why),
    Unfinished(usize, Why),
    Trees,
    Drained,
    Gave(usize),
    GaveRest(usize),
}

/// What a server waits for.
#[derive(Debug)]
pub(super) enum Purpose {
    Succeed(usize),
    Enter,
    BeatLine,
    Beat,
    WatchLine,
    Look,
    Declare,
    WriteLine,
    Happened,
    LookUp,
    Carry,
    Commit,
    Pool(Pool),
    Leave,
}

impl Purpose {
    /// What has no answer soon is given up.
    pub(super) fn is_watched(&self) -> bool {
        matches!(self, Self::Beat | Self::Look | Self::Declare)
    }
}

#[derive(Debug)]
pub(super) enum Timer {
    Beat,
    BeatMax(u64),
    Look,
    LookMax(u64),
    Round(u64),
    Retry(Box<Pool>),
    Write,
    Step(usize, usize),
    Rest(usize),
    Settle { session: usize, hops: u32, epoch: u64 },
    Deal(usize, Why),
    HandOver,
    Grace,
}

/// A session in memory.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) seq: u64,
    pub(super) turn: Option<usize>,
    /// Something of it is on its way to the database.
    pub(super) writes: bool,
}

#[derive(Debug)]
pub(super) struct Server {
    pub(super) clock: Clock,
    pub(super) is_alive: bool,
    pub(super) is_frozen: bool,
    /// Its machine says that nobody listens there: now, and at any time before.
    pub(super) refuses: bool,
    pub(super) has_refused: bool,
    has_entered: bool,
    pub(super) cut_until: Option<u64>,
    /// From when on nothing is wrong with it.
    pub(super) well_at: u64,
    /// Until when the database is at a transaction of it that takes long.
    pub(super) works_until: u64,
    /// What waits until it thaws.
    pub(super) held: Vec<Event>,
    pub(super) ops: BTreeMap<u64, Purpose>,
    pub(super) beat_line: Option<(Line, u64)>,
    ticked_at: u64,
    pub(super) watch_line: Option<(Line, u64)>,
    watched: Watched,
    round: u64,
    looks: bool,
    silent: Vec<(usize, u64)>,
    own: Option<(u64, Instant)>,
    seen: Rc<Vec<(usize, u64)>>,
    looked: Option<Instant>,
    /// Since when it sees without a gap, by the world's time.
    sight_since: u64,
    has_departed: bool,
    takes: bool,
    before: BTreeSet<usize>,
    trees: Vec<usize>,
    taking: usize,
    round_due: u64,
    pub(super) moving: BTreeSet<usize>,
    pub(super) believes: BTreeSet<usize>,
    pub(super) lives: BTreeMap<usize, Live>,
    pub(super) drains: bool,
    leaves: bool,
    gifts: Vec<usize>,
    giving: usize,
    /// Grows whenever something is given up.
    epoch: u64,
    pub(super) writer: Writer,
}

impl Server {
    pub(super) fn new(chance: &mut Chance) -> Self {
        let clock = Clock { offset: chance.below(600_000_000), rate: chance.between(990_000, 1_010_000), stopped: 0 };
        Self {
            clock,
            is_alive: true,
            refuses: false,
            has_refused: false,
            is_frozen: false,
            has_entered: false,
            cut_until: None,
            well_at: u64::MAX,
            works_until: 0,
            held: Vec::new(),
            ops: BTreeMap::new(),
            beat_line: None,
            ticked_at: 0,
            watch_line: None,
            watched: Watched::default(),
            round: 0,
            looks: false,
            silent: Vec::new(),
            own: None,
            seen: Rc::default(),
            looked: None,
            sight_since: 0,
            has_departed: false,
            takes: false,
            before: BTreeSet::new(),
            trees: Vec::new(),
            taking: 0,
            round_due: 0,
            moving: BTreeSet::new(),
            believes: BTreeSet::new(),
            lives: BTreeMap::new(),
            drains: false,
            leaves: false,
            gifts: Vec::new(),
            giving: 0,
            epoch: 0,
            writer: Writer::default(),
        }
    }

    pub(super) fn is_cut(&self, now: u64) -> bool {
        self.cut_until.is_some_and(|until| until > now)
    }

    /// What was wrong is over.
    pub(super) fn recovers(&mut self, now: u64) {
        if self.is_alive && !self.is_frozen && !self.is_cut(now) {
            self.well_at = now + RECOVERS_MS;
        }
    }
}

impl World {
    /// A process begins.
    pub(super) fn start(&mut self, before: Option<usize>) {
        let server = self.servers.len();
        self.servers.push(Server::new(&mut self.chance));
        match before {
            Some(number) => {
                let succeed = Statement::Declare { number, beat: None };
                self.ask(server, None, (succeed, Purpose::Succeed(number)));
            }
            None => drop(self.ask(server, None, (Statement::Enter, Purpose::Enter))),
        }
    }

    /// It has its number.
    pub(super) fn set_up(&mut self, server: usize) {
        let is_new = self.now > 0;
        let entered = &mut self.servers[server];
        (entered.has_entered, entered.well_at) = (true, self.now);
        let [tick, look, round] = [1_000, 250, ROUND_MS].map(|most| if is_new { 0 } else { self.chance.below(most) });
        self.wait(server, tick, Timer::Beat);
        self.wait(server, look, Timer::Look);
        self.wait(server, round, Timer::Round(0));
    }

    pub(super) fn ring(&mut self, server: usize, timer: Timer) {
        match timer {
            Timer::Beat => self.tick(server),
            Timer::BeatMax(op) => {
                if self.servers[server].ops.remove(&op).is_some() {
                    self.servers[server].beat_line = None;
                    self.next_tick(server);
                }
            }
            Timer::Look => self.look(server),
            Timer::LookMax(round) => {
                if self.servers[server].looks && self.servers[server].round == round {
                    self.end_look(server, false);
                }
            }
            Timer::Round(due) => {
                if self.servers[server].round_due == due && !self.servers[server].takes {
                    self.take_round(server);
                }
            }
            Timer::Retry(pool) => self.ask_pool(server, *pool),
            Timer::Write => self.try_write(server),
            Timer::Step(session, turn) => self.step(server, session, turn),
            Timer::Rest(session) => {
                let rests = |live: &Live| live.turn.is_none() && !live.writes;
                if self.servers[server].lives.get(&session).is_some_and(rests) {
                    self.forget(server, session);
                }
            }
            Timer::Settle { session, hops, epoch } => self.settle_here(server, session, (hops, epoch)),
            Timer::Deal(session, why) => self.pool(server, Statement::Read(session), Then::Unfinished(session, why)),
            Timer::HandOver => self.hand_over(server),
            Timer::Grace => self.leave(server),
        }
    }

    pub(super) fn hear(&mut self, server: usize, op: u64, said: Said) {
        if !self.servers[server].is_alive {
            return;
        }
        let Some(purpose) = self.servers[server].ops.remove(&op) else { return };
        let line = matches!(said, Said::Done).then_some((op, self.database.boot));
        match purpose {
            Purpose::Succeed(before) if matches!(said, Said::Lost | Said::Again) => {
                self.vanish(server);
                self.after(500, Event::Start(Some(before)));
            }
            Purpose::Succeed(_) => drop(self.ask(server, None, (Statement::Enter, Purpose::Enter))),
            Purpose::Enter if matches!(said, Said::Count(1)) => self.set_up(server),
            Purpose::Enter => {
                self.vanish(server);
                self.after(500, Event::Start(None));
            }
            Purpose::BeatLine => {
                self.servers[server].beat_line = line;
                if line.is_some() { self.send_beat(server) } else { self.next_tick(server) }
            }
            Purpose::Beat => match said {
                Said::Count(0) => self.end(server),
                said => {
                    if !matches!(said, Said::Count(1)) {
                        self.servers[server].beat_line = None;
                    }
                    self.next_tick(server);
                }
            },
            Purpose::WatchLine => {
                self.servers[server].watch_line = line;
                if line.is_some() { self.send_look(server) } else { self.wait(server, ms(LOOK), Timer::Look) }
            }
            Purpose::Look => match said {
                Said::Beats(beats) => self.see(server, &beats),
                _ => self.end_look(server, false),
            },
            Purpose::Declare => match said {
                Said::Count(_) => self.declare_next(server),
                _ => self.end_look(server, false),
            },
            Purpose::Pool(pool) => self.hear_pool(server, pool, said),
            Purpose::Leave => self.vanish(server),
            purpose => self.hear_write(server, (purpose, line), said),
        }
    }

    /// It has learned that it is over, and joins again as another one.
    pub(super) fn end(&mut self, server: usize) {
        let leaves = self.servers[server].leaves;
        self.vanish(server);
        if !leaves {
            self.checks.count("joined again");
            let after = self.chance.between(100, 1_500);
            self.after(after, Event::Start(None));
        }
    }

    fn tick(&mut self, server: usize) {
        self.servers[server].ticked_at = self.now;
        if self.servers[server].beat_line.is_some() {
            self.send_beat(server);
        } else {
            self.ask(server, None, (Statement::Connect, Purpose::BeatLine));
        }
    }

    fn send_beat(&mut self, server: usize) {
        let line = self.servers[server].beat_line;
        let op = self.ask(server, line, (Statement::Beat, Purpose::Beat));
        self.wait(server, ms(BEAT_MAX), Timer::BeatMax(op));
    }

    fn next_tick(&mut self, server: usize) {
        let due = self.servers[server].ticked_at + self.servers[server].clock.real(ms(BEAT));
        self.at(due.max(self.now), Event::Timer(server, Timer::Beat));
    }

    fn look(&mut self, server: usize) {
        if self.servers[server].watch_line.is_some() {
            self.send_look(server);
        } else {
            self.ask(server, None, (Statement::Connect, Purpose::WatchLine));
        }
    }

    fn send_look(&mut self, server: usize) {
        let watching = &mut self.servers[server];
        (watching.round, watching.looks) = (watching.round + 1, true);
        let (line, round) = (watching.watch_line, watching.round);
        self.ask(server, line, (Statement::Others, Purpose::Look));
        self.wait(server, ms(BLIND_MAX), Timer::LookMax(round));
    }

    fn end_look(&mut self, server: usize, is_well: bool) {
        let watching = &mut self.servers[server];
        watching.looks = false;
        watching.ops.retain(|_, purpose| !matches!(purpose, Purpose::Look | Purpose::Declare));
        if !is_well {
            watching.watch_line = None;
        }
        self.wait(server, ms(LOOK), Timer::Look);
    }

    fn see(&mut self, server: usize, beats: &Rc<Vec<(usize, u64)>>) {
        let (now, at, rules) = (self.local(server), self.now, self.rules);
        let watching = &mut self.servers[server];
        let others = || beats.iter().filter(move |(number, _)| *number != server);
        let beats_of = |(number, beat): &(usize, u64)| (number_of(*number), i64::try_from(*beat).expect("few"));
        let was_blind = watching.looked.is_none_or(|looked| now.duration_since(looked) > BLIND_MAX);
        if was_blind {
            watching.sight_since = at;
        }
        if let Some(looked) = watching.looked.filter(|_| was_blind && !rules.knows_own_blindness) {
            let seen = Rc::clone(&watching.seen);
            let mut between = looked;
            while now.duration_since(between) > BEAT {
                between += BEAT;
                watching.watched.note(seen.iter().map(beats_of), between);
            }
        }
        watching.looked = Some(now);
        let there = others().map(|(number, _)| number_of(*number)).collect();
        let departed = watching.watched.there.difference(&there).next().is_some();
        let own = beats.iter().find(|(number, _)| *number == server).map(|(_, beat)| *beat);
        match (own, watching.own) {
            (Some(beat), Some((before, since))) if beat == before => {
                if rules.needs_own_beat && now.duration_since(since).as_millis() > OWN_SILENCE_MS {
                    watching.watched = Watched::default();
                }
            }
            (own, _) => watching.own = own.map(|beat| (beat, now)),
        }
        watching.watched.note(others().map(beats_of), now);
        watching.watched.there = there;
        watching.seen = Rc::clone(beats);
        let suspect = others().map(|(number, _)| *number).filter(|number| {
            let watched = &self.servers[server].watched;
            self.servers[*number].refuses && watched.is_suspect(number_of(*number), now)
        });
        for number in suspect.collect::<Vec<_>>() {
            self.servers[server].watched.note_refusal(number_of(number));
            self.checks.count("refused");
        }
        let watching = &mut self.servers[server];
        let is_silent = |(number, _): &&(usize, u64)| watching.watched.is_silent(number_of(*number), now);
        watching.silent = others().filter(is_silent).copied().collect();
        watching.silent.reverse();
        if departed {
            self.depart(server);
        }
        let (silent, seen_for) = (&self.servers[server].silent, self.now - self.servers[server].sight_since);
        if silent.iter().any(|(number, _)| seen_for < least_silence(self.servers[*number].has_refused)) {
            self.checks.breach(format!("(e) node {server} could not see, and says that others were silent"));
        }
        self.declare_next(server);
    }

    fn declare_next(&mut self, server: usize) {
        let watching = &mut self.servers[server];
        let line = watching.watch_line;
        match watching.silent.pop() {
            Some((number, beat)) => {
                let declare = Statement::Declare { number, beat: Some(beat) };
                self.return_silent(number);
                self.ask(server, line, (declare, Purpose::Declare));
            }
            None => self.end_look(server, true),
        }
    }

    /// Sessions may be there that nobody has.
    pub(super) fn depart(&mut self, server: usize) {
        self.servers[server].has_departed = true;
        if self.servers[server].has_entered && !self.servers[server].takes {
            self.take_round(server);
        }
    }

    fn take_round(&mut self, server: usize) {
        let taking = &mut self.servers[server];
        (taking.takes, taking.has_departed) = (true, false);
        taking.before.clear();
        self.look_for_trees(server);
    }

    fn look_for_trees(&mut self, server: usize) {
        if self.servers[server].drains {
            self.end_round(server)
        } else {
            self.pool(server, Statement::LeftBehind, Then::Trees)
        }
    }

    fn end_round(&mut self, server: usize) {
        let taking = &mut self.servers[server];
        (taking.takes, taking.round_due) = (false, taking.round_due + 1);
        let due = taking.round_due;
        self.wait(server, ROUND_MS, Timer::Round(due));
        if self.servers[server].has_departed {
            self.take_round(server);
        }
    }

    fn take_next(&mut self, server: usize) {
        while self.servers[server].taking < TREES.1 {
            let Some(session) = self.servers[server].trees.pop() else { break };
            if self.take_tree(server, session, Why::Round) {
                self.servers[server].taking += 1;
            }
        }
        if self.servers[server].taking == 0 {
            self.look_for_trees(server);
        }
    }

    /// False: somebody is at it.
    fn take_tree(&mut self, server: usize, session: usize, why: Why) -> bool {
        let taking = &mut self.servers[server];
        // What is in memory here was taken already.
        if taking.lives.contains_key(&session) || !taking.moving.insert(session) {
            return false;
        }
        self.pool(server, Statement::Take { session, again: false }, Then::Taken(session, why));
        true
    }

    fn taken(&mut self, server: usize, (session, why): (usize, Why)) {
        let taking = &mut self.servers[server];
        taking.moving.remove(&session);
        if !taking.lives.contains_key(&session) {
            self.believe_no_more(server, session);
        }
        match why {
            Why::Round => {
                self.servers[server].taking -= 1;
                self.take_next(server);
            }
            Why::Asked(hops) => self.after(1, Event::Client { server, session, hops: hops + 1 }),
        }
    }

    fn pool(&mut self, server: usize, statement: Statement, then: Then) {
        self.ask_pool(server, Pool { statement, began: self.now, then });
    }

    fn ask_pool(&mut self, server: usize, pool: Pool) {
        self.ask(server, None, (pool.statement.clone(), Purpose::Pool(pool)));
    }

    fn hear_pool(&mut self, server: usize, mut pool: Pool, said: Said) {
        let is_lost = matches!(said, Said::Lost | Said::Again);
        if is_lost && self.now - pool.began < ms(AWAY_MAX) {
            if let Statement::Take { again, .. } = &mut pool.statement {
                *again = true;
            }
            return self.wait(server, ms(READ_PAUSE), Timer::Retry(Box::new(pool)));
        }
        match (pool.then, said) {
            (Then::Looked { session, hops, epoch }, Said::Held(held)) => {
                self.looked(server, (session, held), (hops, epoch));
            }
            (Then::Read { session, hops, epoch }, Said::Stands { seq, .. }) => {
                self.wake(server, (session, seq), (hops, epoch));
            }
            (Then::ReadAgain(append), Said::Stands { seq, open }) => self.read_again(server, append, (seq, open)),
            (Then::ReadAgain(append), _) => {
                let pool =
                    Pool { statement: Statement::Read(append.session), began: self.now, then: Then::ReadAgain(append) };
                self.wait(server, 1_000, Timer::Retry(Box::new(pool)));
            }
            (Then::Taken(session, why), Said::Count(1)) => {
                self.believe(server, session);
                self.pool(server, Statement::Read(session), Then::Unfinished(session, why));
            }
            (Then::Unfinished(session, why), Said::Stands { seq, open: Some(turn) }) => {
                let append = Append { id: self.append_id(), session, seq: seq + 1, change: Change::Closes(turn) };
                self.hand_in(server, Job { append, why: Some(why) });
            }
            (then @ Then::Taken(..), _) if is_lost && self.rules.knows_own_taking => {
                let pool = Pool { statement: pool.statement, began: self.now, then };
                self.wait(server, 1_000, Timer::Retry(Box::new(pool)));
            }
            (Then::Unfinished(session, why), _) if is_lost && self.rules.deals_again => {
                self.wait(server, 1_000, Timer::Deal(session, why));
            }
            (Then::Taken(session, why) | Then::Unfinished(session, why), _) => self.taken(server, (session, why)),
            (Then::Trees, Said::Trees(trees)) => {
                let taking = &mut self.servers[server];
                // One that could not be taken is not tried again and again.
                taking.trees = trees.into_iter().filter(|tree| taking.before.insert(*tree)).collect();
                if self.servers[server].trees.is_empty() { self.end_round(server) } else { self.take_next(server) }
            }
            (Then::Trees, _) => self.end_round(server),
            (Then::Drained, _) => self.hand_over(server),
            (Then::Gave(session), _) => {
                self.gave(server, !is_lost);
                self.servers[server].moving.remove(&session);
                self.give_next(server);
            }
            (Then::GaveRest(busy), said) => {
                self.gave(server, !matches!(said, Said::Count(0)));
                if busy == 0 { self.leave(server) } else { self.wait(server, PAUSES_MS.1, Timer::HandOver) }
            }
            (Then::Looked { .. } | Then::Read { .. }, _) => {}
        }
    }

    /// A client wants something of a session.
    pub(super) fn serve(&mut self, server: usize, session: usize, hops: u32) {
        if hops > HOPS_MAX {
            return;
        }
        let serving = &self.servers[server];
        if !serving.is_alive || !serving.has_entered {
            let server = self.chance.pick(self.servers.len());
            return self.after(100, Event::Client { server, session, hops: hops + 1 });
        }
        if serving.lives.contains_key(&session) {
            return self.act(server, session);
        }
        let epoch = serving.epoch;
        self.pool(server, Statement::Look(session), Then::Looked { session, hops, epoch });
    }

    fn looked(&mut self, server: usize, (session, held): (usize, Held), (hops, epoch): (u32, u64)) {
        let later = Event::Client { server, session, hops: hops + 1 };
        match held {
            Held::Here if self.servers[server].moving.contains(&session) => {
                self.wait(server, PAUSES_MS.0, Timer::Settle { session, hops, epoch });
            }
            Held::Here => self.pool(server, Statement::Read(session), Then::Read { session, hops, epoch }),
            Held::Elsewhere(holder) => {
                let delay = self.delay();
                self.after(delay, Event::Client { server: holder, session, hops: hops + 1 });
            }
            Held::Free if self.servers[server].drains => {
                let server = self.chance.pick(self.servers.len());
                self.after(PAUSES_MS.0, Event::Client { server, session, hops: hops + 1 });
            }
            Held::Free => {
                if !self.take_tree(server, session, Why::Asked(hops)) {
                    self.after(PAUSES_MS.0, later);
                }
            }
        }
    }

    /// Somebody here was at the tree.
    fn settle_here(&mut self, server: usize, session: usize, (hops, epoch): (u32, u64)) {
        if self.servers[server].moving.contains(&session) {
            self.wait(server, PAUSES_MS.0, Timer::Settle { session, hops, epoch });
        } else if self.rules.wakes_outside_moves {
            self.serve(server, session, hops + 1);
        } else {
            self.pool(server, Statement::Read(session), Then::Read { session, hops, epoch });
        }
    }

    fn wake(&mut self, server: usize, (session, seq): (usize, u64), (hops, epoch): (u32, u64)) {
        let waking = &mut self.servers[server];
        let moves = waking.epoch != epoch || waking.giving > 0 || waking.moving.contains(&session);
        if moves && self.rules.wakes_outside_moves {
            return self.after(PAUSES_MS.0, Event::Client { server, session, hops: hops + 1 });
        }
        waking.lives.entry(session).or_insert(Live { seq, turn: None, writes: false });
        self.believe(server, session);
        self.act(server, session);
    }

    /// Begins a turn, unless one is there.
    fn act(&mut self, server: usize, session: usize) {
        let Some(live) = self.servers[server].lives.get_mut(&session) else { return };
        if live.turn.is_none() && !live.writes {
            let turn = self.checks.turn(session);
            live.turn = Some(turn);
            self.write(server, session, Change::Opens(turn));
        }
    }

    fn write(&mut self, server: usize, session: usize, change: Change) {
        let id = self.append_id();
        let Some(live) = self.servers[server].lives.get_mut(&session) else { return };
        live.writes = true;
        let append = Append { id, session, seq: live.seq + 1, change };
        self.hand_in(server, Job { append, why: None });
    }

    fn step(&mut self, server: usize, session: usize, turn: usize) {
        let steps = |live: &Live| live.turn == Some(turn) && !live.writes;
        if self.servers[server].lives.get(&session).is_some_and(steps) {
            let change = if self.chance.once_in(5) { Change::Closes(turn) } else { Change::Goes };
            self.write(server, session, change);
        }
    }

    fn step_later(&mut self, server: usize, session: usize, turn: Option<usize>) {
        let after = self.chance.between(100, 2_500);
        match turn {
            Some(turn) => self.wait(server, after, Timer::Step(session, turn)),
            None => self.wait(server, after, Timer::Rest(session)),
        }
    }

    fn forget(&mut self, server: usize, session: usize) {
        self.servers[server].lives.remove(&session);
        self.believe_no_more(server, session);
    }

    /// What became of something that was to be written.
    pub(super) fn written(&mut self, server: usize, Job { append, why }: Job, written: Written) {
        match written {
            Written::Done => self.checks.told(&append, true),
            Written::Refused | Written::Over => self.checks.told(&append, false),
            Written::Away => {}
        }
        let session = append.session;
        match (why, written) {
            (Some(why), Written::Away) if self.rules.deals_again => self.wait(server, 1_000, Timer::Deal(session, why)),
            (Some(why), _) => self.taken(server, (session, why)),
            (None, Written::Away) => self.pool(server, Statement::Read(session), Then::ReadAgain(append)),
            (None, Written::Refused | Written::Over) => self.forget(server, session),
            (None, Written::Done) => {
                let Some(live) = self.servers[server].lives.get_mut(&session) else { return };
                (live.seq, live.writes) = (append.seq, false);
                if matches!(append.change, Change::Closes(_)) {
                    live.turn = None;
                }
                let turn = live.turn;
                self.step_later(server, session, turn);
            }
        }
    }

    /// The database did not say for long whether it happened.
    fn read_again(&mut self, server: usize, append: Append, (seq, open): (u64, Option<usize>)) {
        let session = append.session;
        let Some(live) = self.servers[server].lives.get_mut(&session) else { return };
        (live.seq, live.writes) = (seq, false);
        if open != live.turn {
            live.turn = None;
        }
        let turn = live.turn;
        self.step_later(server, session, turn);
    }

    pub(super) fn begin_draining(&mut self, server: usize) {
        self.pool(server, Statement::Drain, Then::Drained);
    }

    /// Gives up what nothing runs in.
    fn hand_over(&mut self, server: usize) {
        let giving = &mut self.servers[server];
        if giving.leaves {
            return;
        }
        let rests = |(session, live): &(&usize, &Live)| {
            live.turn.is_none() && !live.writes && !giving.moving.contains(*session)
        };
        let rests: Vec<usize> = giving.lives.iter().filter(rests).map(|(session, _)| *session).collect();
        giving.gifts.clone_from(&rests);
        giving.moving.extend(rests.iter().copied());
        for session in rests {
            self.forget(server, session);
        }
        self.give_next(server);
    }

    fn give_next(&mut self, server: usize) {
        let giving = &mut self.servers[server];
        if giving.leaves {
            return;
        }
        (giving.writer.has_let_go, giving.giving, giving.epoch) = (true, giving.giving + 1, giving.epoch + 1);
        if let Some(session) = giving.gifts.pop() {
            return self.pool(server, Statement::LetGo(session), Then::Gave(session));
        }
        let mut busy: BTreeSet<usize> = giving.lives.keys().copied().collect();
        if self.rules.wakes_outside_moves {
            busy.extend(giving.moving.iter().copied());
        }
        let count = busy.len();
        self.pool(server, Statement::LetGoBut(busy), Then::GaveRest(count));
    }

    fn gave(&mut self, server: usize, some: bool) {
        let giving = &mut self.servers[server];
        (giving.giving, giving.epoch) = (giving.giving - 1, giving.epoch + 1);
        if some {
            let delay = self.delay();
            self.after(delay, Event::Freed(server));
        }
    }

    fn leave(&mut self, server: usize) {
        if !std::mem::replace(&mut self.servers[server].leaves, true) {
            let leave = Statement::Declare { number: server, beat: None };
            self.ask(server, None, (leave, Purpose::Leave));
        }
    }
}

/// As the database has it.
fn number_of(server: usize) -> i64 {
    i64::try_from(server).expect("few")
}
