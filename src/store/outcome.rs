//! What is remembered of commands, so that one that comes again is answered and not run again.
//!
//! A row without a body says that its command had begun; a row with one holds its outcome. The row of a
//! command whose effect is one commit goes into that very commit, so that both are there or neither.
//!
//! Invariant: the first outcome under a name stays until it has expired, whoever else writes one.

/// SHA-256 of what a command asks for.
pub type Fingerprint = [u8; 32];

/// What is remembered of a command under one of its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutcomeRow {
    /// Whose command it is, and its id or key.
    pub name: String,
    /// What it asked for.
    pub fingerprint: Fingerprint,
    /// When this was written, in milliseconds since 1970.
    pub at: u64,
    /// Rows that were written before this have expired: they go, a few with each row that comes.
    pub expired_before: u64,
    /// Rows that say they were written behind this go, too: a clock was set back, and they would never expire.
    pub wrong_behind: u64,
    /// The outcome as JSON. None: it had begun.
    pub body: Option<String>,
}

/// How many are remembered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OutcomesKept {
    /// So many; those that have expired and have not gone yet included.
    pub count: u64,
    /// When the oldest was written, in milliseconds since 1970.
    pub oldest_at: u64,
}

impl OutcomeRow {
    /// Whether it takes the place of what is there under the same name.
    pub(super) fn replaces(&self, old: &Self) -> bool {
        old.at < self.expired_before || (old.body.is_none() && self.body.is_some())
    }
}
