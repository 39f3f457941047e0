//! A session's views rebuilt from its log, and held against the stored ones.
//!
//! Pure: events in, one after the other; faults out. What is rebuilt: the session's status, message count and tokens, and of
//! each turn its status, result, error or reason, its rounds and tokens, and its first event; and the session's settings and
//! version, where the log says with what it began: logs of earlier versions do not. Not in the log are the actor's own times,
//! and how far a yes to a question reaches: those are facts beside it. But a grant has such a yes behind it, for its tool.

use std::collections::{HashMap, HashSet};

use super::settings::{begun, chosen_tools, configure};
use super::tally::Tally;
use crate::protocol::{
    Configured, ErrorBody, Event, EventBody, RequestId, SessionId, SessionStatus, TurnId, TurnStatus, Usage,
};
use crate::store::inspect::Fault;
use crate::store::{SessionRow, SessionSettings, TurnRow};

/// A turn by its events.
#[derive(Debug, Clone, Default)]
struct Seen {
    first_seq: Option<u64>,
    tally: Tally,
    end: Option<End>,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq)]
enum End {
    Completed(String),
    Failed(ErrorBody),
    Stopped(String),
}

/// What a log's events add up to.
#[derive(Debug, Default)]
pub struct Views {
    turns: HashMap<TurnId, Seen>,
    last_end: Option<TurnId>,
    message_count: u64,
    usage: Usage,
    /// None: the log does not say with what the session began.
    settings: Option<SessionSettings>,
    version: u64,
    /// Open questions about permission, and the tools that they are about.
    asked: HashMap<RequestId, String>,
    /// Tools that somebody was allowed to use when asked.
    allowed: HashSet<String>,
}

impl Views {
    /// Takes in the next event of the log.
    pub fn push(&mut self, event: &Event) {
        let Some(body) = event.body() else { return };
        self.take_settings(&body);
        self.take_answer(&body);
        let Some(turn_id) = &event.turn_id else { return };
        // Looked up by reference first: deltas come by the thousand.
        if !self.turns.contains_key(turn_id) {
            self.turns.insert(turn_id.clone(), Seen::default());
        }
        let Some(turn) = self.turns.get_mut(turn_id) else { return };
        turn.tally.push(&body);
        if matches!(body, EventBody::SessionPrompt { .. }) {
            turn.first_seq.get_or_insert(event.seq);
        }
        let end = match body {
            EventBody::SessionCompleted { result, .. } => End::Completed(result),
            EventBody::SessionError { error, .. } => End::Failed(error),
            EventBody::Abort { reason } => End::Stopped(reason),
            _ => return,
        };
        turn.end = Some(end);
        self.message_count += turn.tally.messages;
        self.usage = self.usage.plus(turn.tally.usage);
        self.last_end = Some(turn_id.clone());
    }

    fn take_settings(&mut self, body: &EventBody) {
        let version = match body {
            EventBody::SessionCreated { beginning, .. } | EventBody::SessionForked { beginning, .. } => {
                self.settings = begun(beginning);
                Some(0)
            }
            EventBody::SessionConfigured(Configured { changes, version }) => {
                if let Some(settings) = &mut self.settings {
                    configure(settings, changes);
                }
                *version
            }
            EventBody::TurnControl { version, .. } => Some(*version),
            EventBody::SessionPrompt { version, .. }
            | EventBody::TurnQueued { version, .. }
            | EventBody::TurnResumed { version, .. }
            | EventBody::ChangesUndone { version, .. }
            | EventBody::ChangesRedone { version, .. } => *version,
            _ => None,
        };
        self.version = version.unwrap_or(self.version);
    }

    fn take_answer(&mut self, body: &EventBody) {
        match body {
            EventBody::PermissionRequest { request_id, tool_name, .. } => {
                self.asked.insert(request_id.clone(), tool_name.clone());
            }
            EventBody::PermissionResponse { request_id, allowed, .. } => {
                let tool = self.asked.remove(request_id);
                self.allowed.extend(tool.filter(|_| *allowed));
            }
            _ => {}
        }
    }

    /// Holds the stored views against the log.
    pub fn compare(&self, row: &SessionRow, stored: &[TurnRow]) -> Vec<Fault> {
        let mut found = Compared { session: row.id.clone(), turn: None, faults: Vec::new() };
        for turn in stored {
            found.turn = Some(turn.record.turn_id.clone());
            match self.turns.get(&turn.record.turn_id) {
                Some(seen) => seen.compare(turn, &mut found),
                // One that was accepted has said so in the log, at the latest when it began.
                None => found.differ("its first event", &"there", &"not there"),
            }
        }
        let known: HashSet<&TurnId> = stored.iter().map(|turn| &turn.record.turn_id).collect();
        for (id, seen) in &self.turns {
            if !known.contains(id) && seen.first_seq.is_some() {
                found.turn = Some(id.clone());
                found.differ("its record", &"not there", &"there");
            }
        }
        found.turn = None;
        found.differ("messageCount", &row.message_count, &self.message_count);
        found.differ("usage", &row.usage, &self.usage);
        found.differ("status", &row.status, &self.status());
        let unasked = row.settings.grants.iter().map(|grant| &grant.tool).find(|tool| !self.allowed.contains(*tool));
        found.differ("grants", &unasked, &None::<&String>);
        if let Some(settings) = &self.settings {
            found.differ("version", &row.version, &self.version);
            found.settings(&row.settings, settings);
        }
        found.faults
    }

    fn status(&self) -> SessionStatus {
        let open = self.turns.values().any(|turn| turn.end.is_none());
        let last = self.last_end.as_ref().and_then(|id| self.turns.get(id)).and_then(|turn| turn.end.as_ref());
        match (open, last) {
            (true, _) => SessionStatus::Active,
            (false, Some(End::Completed(_))) => status_after(TurnStatus::Completed),
            (false, Some(End::Failed(_))) => status_after(TurnStatus::Failed),
            (false, Some(End::Stopped(_))) => status_after(TurnStatus::Aborted),
            (false, None) => SessionStatus::Created,
        }
    }
}

impl Seen {
    fn compare(&self, stored: &TurnRow, found: &mut Compared) {
        let record = &stored.record;
        found.differ("its first event", &record.first_seq, &self.first_seq);
        let ended = record.status.is_terminal();
        found.differ("whether it is over", &ended, &self.end.is_some());
        let Some(end) = &self.end else { return };
        found.differ("rounds", &record.rounds, &self.tally.rounds);
        found.differ("usage", &record.usage, &self.tally.usage);
        if !end.is_of(record.status) {
            found.differ("status", &record.status, end);
        }
        let (result, error, reason) = match end {
            End::Completed(result) => (Some(result.clone()), None, None),
            End::Failed(error) => (None, Some(error.clone()), None),
            End::Stopped(reason) => (None, None, Some(reason.clone())),
        };
        found.differ("result", &record.result, &result);
        found.differ("error", &record.error, &error);
        if matches!(end, End::Stopped(_)) {
            found.differ("reason", &Some(record.reason.clone().unwrap_or_default()), &reason);
        }
    }
}

impl End {
    /// Whether a record with this status has ended so.
    fn is_of(&self, status: TurnStatus) -> bool {
        match status {
            TurnStatus::Completed => matches!(self, Self::Completed(_)),
            TurnStatus::Failed => matches!(self, Self::Failed(_)),
            TurnStatus::Aborted | TurnStatus::Interrupted => matches!(self, Self::Stopped(_)),
            TurnStatus::Queued | TurnStatus::Running | TurnStatus::Waiting | TurnStatus::Paused => false,
        }
    }
}

/// A session's status after a turn that ended so. A failed turn leaves a session that has done its work.
pub(super) fn status_after(turn: TurnStatus) -> SessionStatus {
    match turn {
        TurnStatus::Completed | TurnStatus::Failed => SessionStatus::Completed,
        TurnStatus::Aborted | TurnStatus::Interrupted => SessionStatus::Aborted,
        TurnStatus::Queued | TurnStatus::Running | TurnStatus::Waiting | TurnStatus::Paused => SessionStatus::Active,
    }
}

/// Differences that were found.
struct Compared {
    session: SessionId,
    /// The turn that is compared.
    turn: Option<TurnId>,
    faults: Vec<Fault>,
}

/// Longest text of a value in a fault, in characters.
const VALUE_CHARS_MAX: usize = 80;

impl Compared {
    /// All of them but the grants.
    fn settings(&mut self, stored: &SessionSettings, log: &SessionSettings) {
        self.differ("workingDirectory", &stored.working_directory, &log.working_directory);
        self.differ("model", &stored.model, &log.model);
        self.differ("title", &stored.title, &log.title);
        self.differ("instructions", &stored.instructions, &log.instructions);
        self.differ("tools", &chosen_tools(stored), &chosen_tools(log));
        self.differ("reasoning", &stored.reasoning, &log.reasoning);
        self.differ("permissions", &stored.permissions, &log.permissions);
        self.differ("permissionMode", &stored.permission_mode, &log.permission_mode);
    }

    fn differ(&mut self, field: &'static str, stored: &dyn std::fmt::Debug, log: &dyn std::fmt::Debug) {
        let (stored, log) = (format!("{stored:?}"), format!("{log:?}"));
        if stored == log {
            return;
        }
        let short = |text: String| text.chars().take(VALUE_CHARS_MAX).collect();
        let (session, turn) = (self.session.clone(), self.turn.clone());
        self.faults.push(Fault::View { session, turn, field, stored: short(stored), log: short(log) });
    }
}
