//! The world: its time, who sends what to whom, and how long that takes.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, Instant};

use super::checks::{Checks, Figures};
use super::database::{Append, Asked, Change, Database, Fact, Inside, Line, Out, Said, Statement};
use super::faults::{Ambush, Fault};
use super::server::{Live, Purpose, Server, Timer};
use super::{Chance, IDLE_MS, Rules, Size};
use crate::store::postgres::connect::SENT_MAX;
use crate::store::postgres::node::{GONE_MAX, SILENCE_MAX};

/// When faults begin and end to begin.
pub(super) const FAULTS_MS: (u64, u64) = (3_000, 11_000);
/// How long everything may take behind the last fault.
const SETTLED_MS: u64 = 10_000;
/// A transaction that takes longer is a fault.
const SLOW_MS: u64 = 100;
/// Time that the database takes to give up many sessions, at most.
const GIVING_MS: u64 = 300;
/// After so long the other machine counts as gone, as in `connect`.
const SENT_MS: u64 = SENT_MAX.as_secs() * 1_000;
/// Pauses between the attempts of a connection, and its end: as the system makes them in the five seconds that it has.
const ATTEMPTS_MS: [u64; 3] = [1_000, 2_000, 2_000];
/// How much faster than ours a clock may be, in a hundred parts, and what is lost in fractions.
const CLOCK_WRONG: (u64, u64) = (1, 5);
/// So many breaches are enough.
const BREACHES_MAX: usize = 30;
/// Times that a client is sent on.
pub(super) const HOPS_MAX: u32 = 8;

#[derive(Debug)]
pub(super) enum Event {
    Arrive {
        asked: Asked,
        boot: u64,
        tries: usize,
    },
    /// `boot`: of the database that says it. None: it has arrived.
    Answer {
        to: usize,
        op: u64,
        said: Said,
        boot: Option<u64>,
    },
    Timer(usize, Timer),
    Client {
        server: usize,
        session: usize,
        hops: u32,
    },
    Inside(Inside),
    /// A node has given up sessions.
    Freed(usize),
    Fault(Fault),
    /// It is to be found out by now that a node is gone.
    Missed {
        server: usize,
        since: u64,
        disturbances: u64,
    },
    /// A process begins, at the home of that one.
    Start(Option<usize>),
    End,
}

pub(super) struct World {
    pub(super) rules: Rules,
    pub(super) now: u64,
    nth: u64,
    events: BTreeMap<(u64, u64), Event>,
    pub(super) chance: Chance,
    pub(super) base: Instant,
    pub(super) database: Database,
    pub(super) servers: Vec<Server>,
    pub(super) checks: Checks,
    pub(super) ambushes: Vec<Ambush>,
    /// Who connects while the database is away waits, instead of being refused.
    pub(super) hangs: bool,
    /// When the last fault was over.
    pub(super) quiet_at: u64,
    last_op: u64,
    last_append: usize,
    trace: DefaultHasher,
}

impl World {
    pub(super) fn new((seed, rules): (u64, Rules), size: Size) -> Self {
        let mut world = Self {
            rules,
            now: 0,
            nth: 0,
            events: BTreeMap::new(),
            chance: Chance(seed),
            base: Instant::now(),
            database: Database::new((seed, rules), size.sessions),
            servers: Vec::new(),
            checks: Checks::new(size.sessions),
            ambushes: Vec::new(),
            hangs: false,
            quiet_at: 0,
            last_op: 0,
            last_append: 0,
            trace: DefaultHasher::new(),
        };
        for number in 0..size.servers {
            world.servers.push(Server::new(&mut world.chance));
            world.database.row(number).is_there = true;
            world.set_up(number);
        }
        let busy = 2 + world.chance.below(4);
        for session in 0..size.sessions {
            world.settle(session, size.servers, busy);
        }
        world.plan_faults();
        for _ in 0..size.servers * 40 {
            let at = world.chance.below(FAULTS_MS.1 + SETTLED_MS);
            let (server, session) = (world.chance.pick(size.servers), world.chance.pick(size.sessions));
            world.at(at, Event::Client { server, session, hops: 0 });
        }
        world.at(FAULTS_MS.1, Event::End);
        world
    }

    /// Gives a session to one of the first servers; one in `busy` has a turn that runs.
    fn settle(&mut self, session: usize, servers: usize, busy: u64) {
        let holder = self.chance.pick(servers);
        self.database.begin(session, holder);
        if !self.chance.once_in(busy) {
            return;
        }
        let turn = self.checks.turn(session);
        let append = Append { id: self.append_id(), session, seq: 1, change: Change::Opens(turn) };
        self.checks.committed(holder, append, (false, Some(holder)));
        (self.database.ends[session].seq, self.database.ends[session].open) = (1, Some(turn));
        self.database.open.insert(session);
        self.servers[holder].lives.insert(session, Live { seq: 1, turn: Some(turn), writes: false });
        self.believe(holder, session);
        let after = self.chance.between(1, 6_000);
        self.wait(holder, after, Timer::Step(session, turn));
    }

    pub(super) fn run(mut self) -> (Vec<String>, Figures, u64) {
        while let Some(((at, nth), event)) = self.events.pop_first() {
            (self.now, self.database.now, self.checks.now) = (at, at, at);
            (at, nth).hash(&mut self.trace);
            if matches!(event, Event::End) {
                if at >= self.quiet_at + SETTLED_MS {
                    break;
                }
                let end = self.quiet_at + SETTLED_MS;
                self.at(end, Event::End);
                continue;
            }
            self.happen(event);
            self.flush();
            if self.checks.breaches.len() >= BREACHES_MAX {
                break;
            }
        }
        if self.checks.breaches.is_empty() {
            self.check_end();
        }
        self.checks.close();
        (self.checks.breaches, self.checks.figures, self.trace.finish())
    }

    fn happen(&mut self, event: Event) {
        let to = match &event {
            Event::Answer { to, boot: None, .. } => Some(*to),
            Event::Timer(to, _) | Event::Client { server: to, .. } => Some(*to),
            _ => None,
        };
        if let Some(server) = to.and_then(|to| self.servers.get_mut(to))
            && server.is_frozen
        {
            server.held.push(event);
            return;
        }
        match event {
            Event::Arrive { asked, boot, tries } => self.arrive(asked, boot, tries),
            Event::Answer { to, op, said, boot: None } => self.hear(to, op, said),
            Event::Answer { to, op, said, boot: Some(boot) } => self.bring((to, op), said, boot),
            Event::Timer(server, timer) if self.servers[server].is_alive => self.ring(server, timer),
            Event::Client { server, session, hops } => self.serve(server, session, hops),
            Event::Inside(inside) => self.database.go_on(inside),
            Event::Freed(by) => {
                for server in 0..self.servers.len() {
                    let hears = server != by && !self.servers[server].is_cut(self.now) && !self.chance.once_in(10);
                    if hears && self.servers[server].is_alive && !self.servers[server].is_frozen {
                        self.depart(server);
                    }
                }
            }
            Event::Fault(fault) => self.strike(fault),
            Event::Missed { server, since, disturbances } => {
                if self.checks.disturbances == disturbances && self.database.takes_writes() {
                    self.missed(server, since);
                }
            }
            Event::Start(before) => self.start(before),
            Event::Timer(..) | Event::End => {}
        }
    }

    pub(super) fn at(&mut self, at: u64, event: Event) {
        self.nth += 1;
        self.events.insert((at, self.nth), event);
    }

    pub(super) fn after(&mut self, after: u64, event: Event) {
        self.at(self.now + after, event);
    }

    /// So many milliseconds later by a server's own clock.
    pub(super) fn wait(&mut self, server: usize, after: u64, timer: Timer) {
        let after = self.servers[server].clock.real(after);
        self.after(after, Event::Timer(server, timer));
    }

    /// A server's own time.
    pub(super) fn local(&self, server: usize) -> Instant {
        self.base + Duration::from_micros(self.servers[server].clock.at(self.now))
    }

    pub(super) fn delay(&mut self) -> u64 {
        if self.chance.once_in(60) { self.chance.between(12, 250) } else { self.chance.between(1, 12) }
    }

    pub(super) fn append_id(&mut self) -> usize {
        self.last_append += 1;
        self.last_append
    }

    /// A connection that is new.
    pub(super) fn line(&mut self) -> Line {
        self.last_op += 1;
        self.last_op
    }

    /// Sends a statement. `line`: a connection, and the database that it leads to; None: one of its own.
    pub(super) fn ask(
        &mut self,
        server: usize,
        line: Option<(Line, u64)>,
        (statement, purpose): (Statement, Purpose),
    ) -> u64 {
        let op = self.line();
        let (line, boot) = line.unwrap_or((op, self.database.boot));
        let delay = self.delay();
        self.servers[server].ops.insert(op, purpose);
        let asked = Asked { from: server, op, line, statement };
        self.after(delay, Event::Arrive { asked, boot, tries: 0 });
        op
    }

    fn lose(&mut self, to: usize, op: u64, after: u64) {
        self.after(after, Event::Answer { to, op, said: Said::Lost, boot: None });
    }

    /// A connection is gone without a word: it is noticed late, and nothing goes on behind it until then.
    fn fall_silent(&mut self, to: usize, op: u64) {
        let purpose = self.servers[to].ops.get(&op);
        if purpose.is_some_and(|purpose| !purpose.is_watched()) {
            self.quiet(self.now + SENT_MS);
        }
        self.lose(to, op, SENT_MS);
    }

    /// A statement comes to the database, or not.
    fn arrive(&mut self, asked: Asked, boot: u64, tries: usize) {
        let (from, op) = (asked.from, asked.op);
        let connects = matches!(asked.statement, Statement::Connect);
        let cut = self.servers[from].cut_until.filter(|until| *until > self.now);
        if connects && (cut.is_some() || self.database.is_away && self.hangs) {
            match ATTEMPTS_MS.get(tries) {
                Some(pause) if tries + 1 < ATTEMPTS_MS.len() => {
                    self.after(*pause, Event::Arrive { asked, boot, tries: tries + 1 });
                }
                pause => self.lose(from, op, pause.copied().unwrap_or_default()),
            }
        } else if let Some(until) = cut {
            if until - self.now < SENT_MS && !self.chance.once_in(4) {
                let late = self.chance.between(1, 1_000);
                self.at(until + late, Event::Arrive { asked, boot, tries });
            } else {
                self.fall_silent(from, op);
            }
        } else if self.database.is_away || !connects && boot != self.database.boot {
            let delay = self.delay();
            self.lose(from, op, delay);
        } else if tries == 0 && matches!(asked.statement, Statement::LetGoBut(_)) {
            let work = self.chance.below(GIVING_MS);
            self.after(work, Event::Arrive { asked, boot, tries: 1 });
        } else {
            self.database.carry_out(asked);
        }
    }

    /// An answer comes to a server, or not.
    fn bring(&mut self, (to, op): (usize, u64), said: Said, boot: u64) {
        let said = if boot == self.database.boot { said } else { Said::Lost };
        match self.servers[to].cut_until.filter(|until| *until > self.now) {
            Some(until) if until - self.now < SENT_MS => {
                let late = self.chance.between(1, 1_000);
                self.at(until + late, Event::Answer { to, op, said, boot: Some(boot) });
            }
            Some(_) => self.fall_silent(to, op),
            None => self.happen(Event::Answer { to, op, said, boot: None }),
        }
    }

    /// Takes what has come of the database.
    pub(super) fn flush(&mut self) {
        loop {
            let (facts, out) = (std::mem::take(&mut self.database.facts), std::mem::take(&mut self.database.out));
            if facts.is_empty() && out.is_empty() {
                return;
            }
            for fact in facts {
                self.check(fact);
            }
            for out in out {
                match out {
                    Out::Answer { to, op, said } => {
                        let boot = Some(self.database.boot);
                        let said = self.spring((to, op), said);
                        let delay = self.delay();
                        self.after(delay, Event::Answer { to, op, said, boot });
                    }
                    Out::Later(after, inside) => self.after(after, Event::Inside(inside)),
                }
            }
        }
    }

    fn check(&mut self, fact: Fact) {
        match fact {
            Fact::Works(node, work) if work > SLOW_MS => {
                // Behind it the database bears that nothing comes.
                let until = self.now + work + IDLE_MS;
                self.quiet(until);
                self.servers[node].works_until = until;
            }
            Fact::Works(..) => {}
            Fact::Committed { node, append, was_over, holder } => {
                self.checks.committed(node, append, (was_over, holder));
            }
            Fact::Taken { by, session, from } => self.checks.taken(by, session, (from, &self.database)),
            Fact::Over { number, watched: false, left, .. } => self.checks.over(number, left, self.well()),
            Fact::Over { number, by, glimpse, left, .. } => {
                self.checks.count("declared over");
                self.checks.over(number, left, self.well());
                let silent = glimpse.at - glimpse.beaten_at;
                if silent < least_silence(self.servers[number].has_refused) {
                    self.checks.breach(format!("(e) node {by} declares {number} over, which beat {silent} ms before"));
                }
                if self.database.rows[number].beaten_at > glimpse.beaten_at {
                    self.checks.count("beaten again");
                }
                let server = &self.servers[number];
                if server.is_alive && server.well_at <= glimpse.at {
                    self.checks.breach(format!("(e) nothing is wrong with node {number}, and {by} declares it over"));
                }
            }
        }
    }

    /// So many servers have nothing wrong with them.
    fn well(&self) -> usize {
        self.servers.iter().filter(|server| server.is_alive && server.well_at <= self.now && !server.drains).count()
    }

    pub(super) fn believe(&mut self, server: usize, session: usize) {
        if self.servers[server].believes.insert(session) {
            self.checks.believes(server, session, &self.database);
        }
    }

    pub(super) fn believe_no_more(&mut self, server: usize, session: usize) {
        if self.servers[server].believes.remove(&session) {
            self.checks.believes_no_more(server, session);
        }
    }

    /// (d): what is open runs somewhere.
    fn check_end(&mut self) {
        let mut left = Vec::new();
        for session in &self.database.open {
            let end = &self.database.ends[*session];
            let runs = end.holder.is_some_and(|holder| {
                let server = &self.servers[holder];
                let turn = server.lives.get(session).and_then(|live| live.turn);
                server.is_alive && !self.database.is_over(holder) && turn == end.open
            });
            if !runs {
                left.push((*session, end.holder, end.open));
            }
        }
        if let Some((session, holder, open)) = left.first().copied() {
            let over = holder.map(|holder| self.database.is_over(holder));
            let count = left.len();
            let what = format!("session {session}, held by {holder:?} (over: {over:?}), with turn {open:?}");
            self.checks.breach(format!("(d) {count} turns are open and run nowhere, such as that of {what}"));
        }
    }
}

/// The shortest silence by the world's time that is long enough by a clock of it.
/// `refuses`: nobody listens there.
pub(super) fn least_silence(refuses: bool) -> u64 {
    let silence = if refuses { GONE_MAX } else { SILENCE_MAX };
    let silence = u64::try_from(silence.as_millis()).expect("seconds");
    silence * (100 - CLOCK_WRONG.0) / 100 - CLOCK_WRONG.1
}
