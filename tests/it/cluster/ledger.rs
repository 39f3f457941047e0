//! What the clients were told and what they saw. `check` holds the log against it.

use std::collections::{BTreeMap, BTreeSet};

use super::forked::Fork;

/// A session, as its client knows it.
#[derive(Debug, Default)]
pub struct Session {
    /// The name of its client. None: the owner.
    pub client: Option<String>,
    /// Where it works. A fork works where its parent does.
    pub directory: String,
    /// Ends its tokens: so it is known whose commands ran there.
    pub ending: String,
    /// What it is a fork of.
    pub fork: Option<Fork>,
    /// By the tokens of prompts, which sort as they were sent: the turns that were promised.
    pub prompts: BTreeMap<String, Option<String>>,
    /// Titles, and whether they were acknowledged or refused.
    pub titles: BTreeMap<String, bool>,
    /// Acknowledged aborts, by turn.
    pub aborted: BTreeSet<String>,
    /// Every event that any stream showed.
    pub seen: BTreeMap<u64, String>,
    /// The newest version that anybody was told.
    pub version: u64,
}

/// What all clients know.
#[derive(Debug, Default)]
pub struct Ledger {
    pub sessions: BTreeMap<String, Session>,
    /// All that were ever made, with their clients.
    pub made: BTreeSet<(Option<String>, String)>,
    next: u64,
    /// How often something happened.
    pub told: BTreeMap<&'static str, usize>,
}

impl Ledger {
    pub fn count(&mut self, what: &'static str) {
        *self.told.entry(what).or_default() += 1;
    }

    /// A name that nothing else has. Later ones sort behind earlier ones.
    pub fn name(&mut self, kind: &str) -> String {
        self.next += 1;
        format!("{kind}{:08}", self.next)
    }

    /// A session that was made.
    pub fn enter(&mut self, id: &str, mut session: Session) {
        session.ending = self.name("x");
        assert!(self.made.insert((session.client.clone(), id.to_owned())), "{id}: two sessions have one id");
        self.sessions.insert(id.to_owned(), session);
    }

    /// The token of a new prompt of a session.
    pub fn token(&mut self, id: &str) -> String {
        let token = self.name("t");
        let session = self.session(id);
        let token = format!("{token}{}", session.ending);
        session.prompts.insert(token.clone(), None);
        token
    }

    pub fn session(&mut self, id: &str) -> &mut Session {
        self.sessions.get_mut(id).unwrap_or_else(|| panic!("{id} is not known"))
    }

    pub fn newest(&self, id: &str) -> u64 {
        self.sessions[id].seen.keys().next_back().copied().unwrap_or(0)
    }

    /// An event, as a stream showed it.
    pub fn saw(&mut self, id: &str, seq: u64, data: String) {
        let before = self.session(id).seen.insert(seq, data.clone());
        assert!(
            before.as_ref().is_none_or(|before| *before == data),
            "{id}: event {seq} was {before:?}, and is {data}"
        );
    }

    /// What was promised to a prompt is what was promised before.
    pub fn promised(&mut self, id: &str, token: &str, turn: String) {
        let before = self.session(id).prompts.insert(token.to_owned(), Some(turn.clone())).flatten();
        assert!(
            before.as_ref().is_none_or(|before| *before == turn),
            "{id}: {token} was turn {before:?}, and is {turn}"
        );
    }

    /// A view of a session that was asked for when `newest` had been seen, at version `version`: it is not from before.
    pub fn viewed(&mut self, id: &str, (newest, version): (u64, u64), (last, now): (u64, u64)) {
        assert!(last >= newest, "{id}: event {newest} was seen, and the log ends at {last}");
        assert!(now >= version, "{id}: version {now} came after {version}");
        let session = self.session(id);
        session.version = session.version.max(now);
    }
}
