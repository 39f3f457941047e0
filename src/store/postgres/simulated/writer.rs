//! The writer of a server: as in `write`, with sessions that have numbers for names.

use std::collections::{BTreeMap, VecDeque};

use super::database::{Append, Line, Said, Statement};
use super::server::{Purpose, Timer, Why};
use super::world::World;
use crate::store::postgres::write::{ATTEMPTS_MAX, GROUP_MAX, LOST_MAX, PAUSES};

/// A commit of one event. `why`: it ends what a node that is gone left open.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job {
    pub(super) append: Append,
    pub(super) why: Option<Why>,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    Done,
    Refused,
    Over,
    /// Nobody knows.
    Away,
}

/// The end of a session's log, and who holds it.
type Known = (u64, Option<usize>);

#[derive(Debug, Default)]
pub(super) struct Writer {
    queue: VecDeque<Job>,
    group: Vec<Job>,
    /// Which of the group can happen.
    fits: Vec<bool>,
    is_busy: bool,
    line: Option<(Line, u64)>,
    known: BTreeMap<usize, Known>,
    pub(super) has_let_go: bool,
    nth: u64,
    /// It may have happened, and the end was not heard.
    is_open: bool,
    attempts: u32,
    began: u64,
    pause: u64,
    is_down: bool,
    /// So many commits are tried alone.
    alone: usize,
}

impl World {
    pub(super) fn hand_in(&mut self, server: usize, job: Job) {
        self.servers[server].writer.queue.push_back(job);
        if !self.servers[server].writer.is_busy {
            self.begin_group(server);
        }
    }

    fn begin_group(&mut self, server: usize) {
        let now = self.now;
        let writer = &mut self.servers[server].writer;
        let most = if writer.alone > 0 { 1 } else { GROUP_MAX };
        writer.alone = writer.alone.saturating_sub(1);
        writer.group = writer.queue.drain(..writer.queue.len().min(most)).collect();
        writer.is_busy = !writer.group.is_empty();
        (writer.began, writer.attempts) = (now, 0);
        writer.pause = u64::try_from(PAUSES.0.as_millis()).expect("short");
        if writer.is_busy {
            self.try_write(server);
        }
    }

    pub(super) fn try_write(&mut self, server: usize) {
        let Some(line) = self.servers[server].writer.line else {
            self.ask(server, None, (Statement::Connect, Purpose::WriteLine));
            return;
        };
        let writer = &self.servers[server].writer;
        if writer.is_open {
            let happened = Statement::Happened(writer.nth);
            self.ask(server, Some(line), (happened, Purpose::Happened));
        } else {
            self.plan(server);
        }
    }

    fn plan(&mut self, server: usize) {
        let writer = &mut self.servers[server].writer;
        if std::mem::take(&mut writer.has_let_go) {
            writer.known.clear();
        }
        let mut missing: Vec<usize> = writer.group.iter().map(|job| job.append.session).collect();
        missing.retain(|session| !writer.known.contains_key(session));
        if missing.is_empty() {
            return self.carry(server, BTreeMap::new());
        }
        let line = writer.line;
        self.ask(server, line, (Statement::LookUp(missing), Purpose::LookUp));
    }

    /// Refuses what cannot happen, and sends the rest.
    fn carry(&mut self, server: usize, found: BTreeMap<usize, Known>) {
        let writer = &mut self.servers[server].writer;
        writer.known.extend(found);
        let (mut fits, mut appends) = (Vec::new(), Vec::new());
        for Job { append, .. } in &writer.group {
            let known = writer.known.get_mut(&append.session);
            let fit = known.filter(|(seq, holder)| *holder == Some(server) && append.seq == *seq + 1);
            fits.push(fit.is_some());
            if let Some((seq, _)) = fit {
                *seq += 1;
                appends.push(*append);
            }
        }
        writer.fits = fits;
        writer.known.retain(|_, (_, holder)| *holder == Some(server));
        if appends.is_empty() {
            return self.settle_group(server);
        }
        writer.nth += 1;
        let (carry, line) = (Statement::Carry { nth: writer.nth, appends }, writer.line);
        self.ask(server, line, (carry, Purpose::Carry));
    }

    pub(super) fn hear_write(&mut self, server: usize, (purpose, line): (Purpose, Option<(Line, u64)>), said: Said) {
        let writer = &mut self.servers[server].writer;
        match (purpose, said) {
            (_, Said::Lost) => self.lost(server),
            (_, Said::Again | Said::Stale) => self.again(server),
            (_, Said::Over) => {
                let ends = writer.group.len() > 1;
                self.tell_group(server, Written::Over);
                if ends && self.servers[server].is_alive {
                    self.end(server);
                }
            }
            (Purpose::WriteLine, _) => {
                writer.line = line;
                self.try_write(server);
            }
            (Purpose::LookUp, Said::Ends(ends)) => {
                let found = ends.into_iter().map(|(session, seq, holder)| (session, (seq, holder))).collect();
                self.carry(server, found);
            }
            (Purpose::Carry, _) => {
                // From here on it may happen, whether its end is heard or not.
                writer.is_open = true;
                let line = writer.line;
                self.ask(server, line, (Statement::Commit, Purpose::Commit));
            }
            (Purpose::Happened, Said::Count(0)) => {
                writer.is_open = false;
                self.plan(server);
            }
            _ => {
                writer.is_open = false;
                self.settle_group(server);
            }
        }
    }

    fn lost(&mut self, server: usize) {
        let now = self.now;
        let writer = &mut self.servers[server].writer;
        writer.line = None;
        writer.known.clear();
        if writer.is_down || u128::from(now - writer.began) >= LOST_MAX.as_millis() {
            (writer.is_down, writer.is_open) = (true, false);
            return self.tell_group(server, Written::Away);
        }
        self.pause_writing(server);
    }

    /// Somebody is in the way.
    fn again(&mut self, server: usize) {
        let writer = &mut self.servers[server].writer;
        writer.known.clear();
        writer.attempts += 1;
        if writer.attempts < ATTEMPTS_MAX {
            return self.pause_writing(server);
        }
        if writer.group.len() == 1 {
            return self.tell_group(server, Written::Refused);
        }
        writer.alone += writer.group.len();
        for job in std::mem::take(&mut writer.group).into_iter().rev() {
            writer.queue.push_front(job);
        }
        self.begin_group(server);
    }

    fn pause_writing(&mut self, server: usize) {
        let writer = &mut self.servers[server].writer;
        let pause = writer.pause;
        writer.pause = (pause * 2).min(u64::try_from(PAUSES.1.as_millis()).expect("short"));
        self.wait(server, pause, Timer::Write);
    }

    fn settle_group(&mut self, server: usize) {
        self.servers[server].writer.is_down = false;
        self.tell_group(server, Written::Done);
    }

    /// `written`: what becomes of those that fit; all others are refused.
    fn tell_group(&mut self, server: usize, written: Written) {
        let writer = &mut self.servers[server].writer;
        let (group, fits) = (std::mem::take(&mut writer.group), std::mem::take(&mut writer.fits));
        for (at, job) in group.into_iter().enumerate() {
            let fit = written != Written::Done || fits.get(at).copied().unwrap_or_default();
            self.written(server, job, if fit { written } else { Written::Refused });
        }
        if self.servers[server].is_alive {
            self.begin_group(server);
        }
    }
}
