//! What goes wrong, and when: some of it just behind a step that is dangerous.

use std::collections::BTreeSet;

use super::database::{Inside, Said, Statement};
use super::server::{Purpose, Server, Timer};
use super::world::{Event, FAULTS_MS, World};

#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    /// The process ends. `machine`: the whole machine; the database is not told.
    Kill {
        server: usize,
        machine: bool,
    },
    /// `stops`: its clock stands still, too.
    Freeze {
        server: usize,
        ms: u64,
        stops: bool,
    },
    Thaw {
        server: usize,
        stopped: u64,
    },
    Cut {
        server: usize,
        ms: u64,
    },
    Heal {
        server: usize,
    },
    /// The connections of beats and looks break.
    Break {
        server: usize,
    },
    /// The database is away. `keeps`: what it was writing is written.
    Restart {
        ms: u64,
        keeps: bool,
        hangs: bool,
    },
    Back,
    /// The database takes no writes, and can be read.
    Stall {
        ms: u64,
    },
    /// The next transaction of a server takes so long, and the server is killed meanwhile.
    Slow {
        server: usize,
        ms: u64,
        kills: bool,
    },
    Drain {
        server: usize,
    },
    Join,
    /// A process is killed, and another one begins at the same home.
    Follow {
        server: usize,
    },
}

/// In a world of so many sessions a node is killed in any case.
const MANY: usize = 1_000;
/// After so long each node that is gone is over, where anybody is well.
const MISSED_MS: u64 = 8_000;
/// So many clients ask a server for its sessions while it gives them up.
const ASKED_MAX: usize = 40;

/// The step behind which something goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// Somebody is about to be declared over.
    Silent,
    Marked,
    Committed,
    Taken,
}

/// What then happens to who has made it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Then {
    /// Who was frozen or cut off is there again.
    Return,
    Kill {
        machine: bool,
    },
    Freeze {
        ms: u64,
    },
    Restart {
        ms: u64,
    },
    /// The answer is lost, with its connection.
    Lose,
}

/// A fault that waits for its moment.
#[derive(Debug)]
pub(super) struct Ambush {
    moment: Moment,
    then: Then,
    from: u64,
    skips: u64,
}

impl World {
    pub(super) fn plan_faults(&mut self) {
        let (from, upto) = FAULTS_MS;
        if self.database.ends.len() >= MANY {
            // How what it leaves is shared out is looked at.
            self.at(from, Event::Fault(Fault::Kill { server: 1, machine: true }));
        }
        for _ in 0..self.chance.between(1, 6) {
            let at = self.chance.between(from, upto - 2_000);
            let fault = self.fault();
            self.at(at, Event::Fault(fault));
        }
        for _ in 0..self.chance.below(4) {
            let ambush = self.ambush();
            self.ambushes.push(ambush);
        }
    }

    fn fault(&mut self) -> Fault {
        let count = self.servers.len();
        let any = self.chance.pick(count);
        // The first one stays.
        let other = 1 + self.chance.pick(count - 1);
        // Often about as long as silence is borne.
        let ms =
            if self.chance.once_in(3) { self.chance.between(3_000, 4_500) } else { self.chance.between(300, 9_000) };
        let (yes, rarely) = (self.chance.once_in(2), self.chance.once_in(12));
        match self.chance.below(16) {
            0..=3 => Fault::Kill { server: other, machine: yes },
            4 | 5 => Fault::Freeze { server: any, ms, stops: yes },
            6 | 7 => Fault::Cut { server: any, ms: if rarely { 17_000 } else { ms } },
            8 => Fault::Break { server: any },
            9 => Fault::Restart { ms: if rarely { 40_000 } else { ms }, keeps: yes, hangs: self.chance.once_in(3) },
            10 | 11 => Fault::Stall { ms },
            // Longer than who is gone is looked for twice.
            12 => Fault::Slow { server: other, ms: if yes { ms + 3_000 } else { ms }, kills: yes },
            13 => Fault::Drain { server: other },
            14 => Fault::Join,
            _ => Fault::Follow { server: other },
        }
    }

    fn ambush(&mut self) -> Ambush {
        if self.chance.once_in(3) {
            return Ambush { moment: Moment::Silent, then: Then::Return, from: 0, skips: self.chance.below(2) };
        }
        let moment = [Moment::Marked, Moment::Committed, Moment::Taken][self.chance.pick(3)];
        let then = match self.chance.below(5) {
            0 => Then::Kill { machine: self.chance.once_in(2) },
            1 => Then::Freeze { ms: self.chance.between(200, 8_000) },
            // Now and then longer than anybody waits.
            2 if self.chance.once_in(4) => Then::Restart { ms: 40_000 },
            2 => Then::Restart { ms: self.chance.between(300, 5_000) },
            _ => Then::Lose,
        };
        let from = self.chance.between(FAULTS_MS.0, FAULTS_MS.1 - 3_000);
        Ambush { moment, then, from, skips: self.chance.below(6) }
    }

    /// A node is about to be declared over: now and then it comes back in this moment.
    pub(super) fn return_silent(&mut self, number: usize) {
        let is_away = self.servers[number].is_frozen || self.servers[number].is_cut(self.now);
        if is_away && self.springs(Moment::Silent).is_some() {
            self.servers[number].cut_until = None;
            self.thaw(number, 0);
            self.ring(number, Timer::Beat);
        }
    }

    fn springs(&mut self, moment: Moment) -> Option<Then> {
        let now = self.now;
        let waits = |ambush: &&mut Ambush| ambush.moment == moment && ambush.from <= now;
        let ambush = self.ambushes.iter_mut().find(waits)?;
        if ambush.skips > 0 {
            ambush.skips -= 1;
            return None;
        }
        ambush.from = u64::MAX;
        let then = ambush.then;
        (now < FAULTS_MS.1).then(|| {
            self.quiet(now);
            then
        })
    }

    /// What a server is told, unless something waits for this moment.
    pub(super) fn spring(&mut self, (server, op): (usize, u64), said: Said) -> Said {
        let moment = match (self.servers[server].ops.get(&op), &said) {
            (Some(Purpose::Carry), Said::Done) => Moment::Marked,
            (Some(Purpose::Commit), Said::Done) => Moment::Committed,
            (Some(Purpose::Pool(pool)), Said::Count(1)) if matches!(pool.statement, Statement::Take { .. }) => {
                Moment::Taken
            }
            _ => return said,
        };
        let Some(then) = self.springs(moment) else { return said };
        match then {
            Then::Return => {}
            Then::Kill { .. } | Then::Freeze { .. } if server == 0 => {}
            Then::Kill { machine } => self.strike(Fault::Kill { server, machine }),
            Then::Freeze { ms } => self.strike(Fault::Freeze { server, ms, stops: false }),
            Then::Restart { ms } => self.strike(Fault::Restart { ms, keeps: true, hangs: false }),
            Then::Lose => {
                self.checks.count("unheard");
                return Said::Lost;
            }
        }
        said
    }

    /// No fault is left from then on.
    pub(super) fn quiet(&mut self, at: u64) {
        self.quiet_at = self.quiet_at.max(at);
    }

    pub(super) fn strike(&mut self, fault: Fault) {
        let now = self.now;
        self.quiet(now);
        match fault {
            Fault::Kill { server, machine } => {
                self.checks.count("killed");
                // What a connection still holds of a node that was cut off may come after its end.
                if self.database.takes_writes() && !self.servers[server].is_cut(now) {
                    let disturbances = self.checks.disturbances;
                    self.after(MISSED_MS, Event::Missed { server, since: now, disturbances });
                }
                self.kill(server, machine);
            }
            Fault::Freeze { server, ms, stops } => self.freeze(server, ms, stops),
            Fault::Thaw { server, stopped } => self.thaw(server, stopped),
            Fault::Cut { server, ms } => self.cut(server, ms),
            Fault::Heal { server } => {
                if !self.servers[server].is_cut(now) {
                    let refuses = !self.servers[server].is_alive && self.servers[server].refuses;
                    self.refuse(server, refuses);
                    self.servers[server].recovers(now);
                }
            }
            Fault::Break { server } => self.break_lines(server),
            Fault::Restart { ms, keeps, hangs } => self.restart(ms, keeps, hangs),
            Fault::Back => self.database.is_away = false,
            Fault::Stall { ms } => {
                if !self.database.is_away {
                    self.checks.count("stalled");
                    self.checks.disturbed();
                    self.quiet(now + ms);
                    self.database.stall(now + ms);
                }
            }
            Fault::Slow { server, ms, kills } => {
                self.checks.count("slow");
                self.database.slow.insert(server, ms);
                let held = self.database.ends.iter().position(|end| end.holder == Some(server));
                if let Some(session) = held {
                    self.serve(server, session, 0);
                }
                if kills {
                    // One that comes behind it in every list goes at the same time.
                    let last = self.servers.len() - 1;
                    self.quiet(now + 600 + ms);
                    for server in [server, last] {
                        self.after(600, Event::Fault(Fault::Kill { server, machine: false }));
                    }
                }
            }
            Fault::Drain { server } => self.drain(server),
            Fault::Join => {
                self.checks.count("joined");
                self.start(None);
            }
            Fault::Follow { server } => {
                if self.servers[server].is_alive {
                    self.checks.count("followed");
                    let machine = self.chance.once_in(4);
                    self.kill(server, machine);
                    let after = self.chance.between(200, 2_000);
                    self.quiet(now + after);
                    self.after(after, Event::Start(Some(server)));
                }
            }
        }
    }

    fn freeze(&mut self, server: usize, ms: u64, stops: bool) {
        if !self.servers[server].is_alive || self.servers[server].is_frozen {
            return;
        }
        self.checks.count("frozen");
        (self.servers[server].is_frozen, self.servers[server].well_at) = (true, u64::MAX);
        self.quiet(self.now + ms);
        self.after(ms, Event::Fault(Fault::Thaw { server, stopped: if stops { ms } else { 0 } }));
    }

    fn thaw(&mut self, server: usize, stopped: u64) {
        let now = self.now;
        let frozen = &mut self.servers[server];
        frozen.is_frozen = false;
        frozen.clock.stop(stopped);
        frozen.recovers(now);
        for event in std::mem::take(&mut frozen.held) {
            self.after(0, event);
        }
    }

    fn cut(&mut self, server: usize, ms: u64) {
        if !self.servers[server].is_alive || self.servers[server].is_cut(self.now) {
            return;
        }
        self.checks.count("cut off");
        self.servers[server].cut_until = Some(self.now + ms);
        // Now and then what cuts it off says so to whoever wants to reach it.
        self.refuse(server, ms.is_multiple_of(3));
        self.servers[server].well_at = u64::MAX;
        self.quiet(self.now + ms);
        self.after(ms, Event::Fault(Fault::Heal { server }));
    }

    fn break_lines(&mut self, server: usize) {
        let ops = self.servers[server].ops.iter().filter(|(_, purpose)| purpose.is_watched()).map(|(op, _)| *op);
        for op in ops.collect::<Vec<_>>() {
            self.after(0, Event::Answer { to: server, op, said: Said::Lost, boot: None });
        }
        (self.servers[server].beat_line, self.servers[server].watch_line) = (None, None);
    }

    fn restart(&mut self, ms: u64, keeps: bool, hangs: bool) {
        if self.database.is_away {
            return;
        }
        self.checks.count("restarted");
        self.checks.disturbed();
        self.hangs = hangs;
        self.database.go_away(keeps);
        self.quiet(self.now + ms);
        self.after(ms, Event::Fault(Fault::Back));
    }

    pub(super) fn kill(&mut self, server: usize, machine: bool) {
        if !self.servers[server].is_alive {
            return;
        }
        let turns: Vec<usize> = self.servers[server].lives.values().filter_map(|live| live.turn).collect();
        // How long it takes is measured where the database is there.
        for turn in turns.into_iter().filter(|_| self.database.takes_writes()) {
            self.checks.left(turn);
        }
        self.vanish(server);
        self.refuse(server, !machine);
        if !machine {
            let delay = self.delay();
            self.after(delay, Event::Inside(Inside::Gone(server)));
        }
    }

    fn refuse(&mut self, server: usize, refuses: bool) {
        self.servers[server].refuses = refuses;
        self.servers[server].has_refused |= refuses;
    }

    /// (d): who is gone has been found by those with whom nothing was wrong.
    pub(super) fn missed(&mut self, server: usize, since: u64) {
        let well = |other: &Server| other.is_alive && other.well_at <= since;
        // Nobody can do anything while a transaction of it runs on.
        let worked = self.servers[server].works_until + 1_000 > self.now;
        if !worked && !self.database.is_over(server) && self.servers.iter().any(well) {
            self.checks.breach(format!("(d) node {server} is gone for {MISSED_MS} ms, and nobody has found it"));
        }
    }

    /// The process is there no longer.
    pub(super) fn vanish(&mut self, server: usize) {
        let believes: BTreeSet<usize> = std::mem::take(&mut self.servers[server].believes);
        for session in believes {
            self.checks.believes_no_more(server, session);
        }
        let gone: &mut Server = &mut self.servers[server];
        (gone.is_alive, gone.is_frozen, gone.well_at) = (false, false, u64::MAX);
        gone.ops.clear();
        gone.lives.clear();
        gone.held.clear();
    }

    fn drain(&mut self, server: usize) {
        if self.servers[server].is_alive && !self.servers[server].drains {
            self.checks.count("drained");
            self.servers[server].drains = true;
            self.quiet(self.now + super::server::GRACE_MS + 1_000);
            self.wait(server, super::server::GRACE_MS, Timer::Grace);
            self.begin_draining(server);
            // Whoever does not know it yet asks there.
            let held = self.database.ends.iter().enumerate().filter(|(_, end)| end.holder == Some(server));
            let held: Vec<usize> = held.map(|(session, _)| session).take(ASKED_MAX).collect();
            for session in held {
                let after = self.chance.below(400);
                self.after(after, Event::Client { server, session, hops: 0 });
            }
        }
    }
}
