//! What a store keeps, row by row, in the order in which it goes from one store to another one.
//!
//! First the numbers and the forks, then session by session (by their numbers) its own facts and all that stands under its number,
//! then what belongs to no session. Texts are as both stores have them in their columns.

/// One thing that a store keeps.
#[derive(Debug, Clone)]
pub(in crate::store) enum Kept {
    /// The number that the next session gets, at least.
    Next(i64),
    /// A session that begins with the log of another one, up to event `at`.
    Fork {
        session: i64,
        parent: i64,
        at: i64,
    },
    /// A session. What follows stands under its number.
    Session(Box<KeptSession>),
    /// One that is gone, of whose log others still read. What follows stands under its number.
    Ghost(i64),
    /// A turn, in the order in which they came to be.
    Turn {
        id: String,
        open: bool,
        body: String,
    },
    /// Rows of the log as `record` has them, with their tags.
    Row(KeptRow),
    /// The end of the log of the session, behind its last row: made on the way, no store hands it out.
    End {
        seq: u64,
        head: Vec<u8>,
    },
    /// Something large that waits.
    Said {
        at: i64,
        body: String,
    },
    /// A question to the client.
    Question {
        seq: i64,
        id: String,
        call: String,
    },
    /// A lifecycle event that is listed for a client.
    Listed {
        client: String,
        place: i64,
        of: KeptListed,
    },
    /// The newest place of a client.
    Newest {
        client: String,
        place: i64,
    },
    /// The highest place that went with all others of its client, and the time of the newest end that is no longer told of.
    Forgotten {
        place: i64,
        at: i64,
    },
    Grant {
        id: String,
        body: String,
    },
    Spending {
        client: String,
        began: i64,
        body: String,
    },
    /// Oldest first.
    Outcome {
        name: String,
        at: i64,
        fingerprint: Vec<u8>,
        body: Option<String>,
    },
}

#[derive(Debug, Clone)]
pub(in crate::store) enum KeptListed {
    Event { session: i64, seq: i64 },
    Gone { words: String, at: i64 },
}

#[derive(Debug, Clone)]
pub(in crate::store) struct KeptSession {
    pub(in crate::store) number: i64,
    pub(in crate::store) id: String,
    pub(in crate::store) client: Option<String>,
    pub(in crate::store) status: i16,
    pub(in crate::store) version: i64,
    pub(in crate::store) created_at: i64,
    pub(in crate::store) updated_at: i64,
    pub(in crate::store) message_count: i64,
    pub(in crate::store) usage: String,
    pub(in crate::store) settings: String,
    pub(in crate::store) root: Option<String>,
    pub(in crate::store) lineage: Option<String>,
    pub(in crate::store) children: Option<String>,
    pub(in crate::store) spent: Option<String>,
    pub(in crate::store) shared: Option<String>,
    /// The head of its chain, and the event that it stands behind: not always the last one.
    pub(in crate::store) head: Option<(i64, Vec<u8>)>,
}

#[derive(Debug, Clone)]
pub(in crate::store) struct KeptRow {
    pub(in crate::store) first: i64,
    pub(in crate::store) count: i64,
    pub(in crate::store) turn: Option<String>,
    pub(in crate::store) at: i64,
    pub(in crate::store) body: Vec<u8>,
}
