//! A session's views rebuilt from its log, and held against the stored ones.
//!
//! Pure: events in, one after the other; faults out. What is rebuilt: the session's status, message count and tokens, and of
//! each turn its status, result, error or reason, its rounds and tokens, and its first event; and the session's settings and
//! version, where the log says with what it began: logs of earlier versions do not. Not in the log are the actor's own times,
//! and grants that outlive the session. Logs of earlier versions do not tell of the session's own grants either: those have a yes
//! behind them, for their tool.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::grammar::{Grammar, Misplaced, version_of};
use super::granted::replay;
use super::places::follow;
use super::settings::{begun, chosen_tools, configure};
use super::tally::Tally;
use crate::protocol::{
    Configured, ErrorBody, Event, EventBody, RequestId, SessionId, SessionStatus, Spending, TurnId, TurnStatus, Usage,
};
use crate::store::inspect::Fault;
use crate::store::{Grant, SessionRow, SessionSettings, SharedPlaces, TurnRow, Waiting, shown};

/// A turn by its events.
#[derive(Debug, Clone, Default)]
struct Seen {
    /// Where its row has its place among the others: at the event with which it came to be.
    place: u64,
    first_seq: Option<u64>,
    last_seq: Option<u64>,
    /// The text of its prompt, as far as its record shows it.
    prompt: String,
    paused: bool,
    tally: Tally,
    end: Option<End>,
    /// Its row has all that there is: it came to be behind a beginning that the log tells, as rows of earlier versions have not.
    whole: bool,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq)]
enum End {
    Completed(String, Option<Value>),
    Failed(ErrorBody),
    Stopped(String),
}

/// What a log's events add up to.
#[derive(Debug, Default)]
pub struct Views {
    grammar: Grammar,
    /// The session that the log says it is of: created or forked.
    session: Option<SessionId>,
    turns: HashMap<TurnId, Seen>,
    last_end: Option<TurnId>,
    message_count: u64,
    usage: Usage,
    spent: Spending,
    /// None: the log does not say with what the session began.
    settings: Option<SessionSettings>,
    version: u64,
    /// Open questions about permission, and the tools that they are about.
    asked: HashMap<RequestId, String>,
    /// Tools that somebody was allowed to use when asked.
    allowed: HashSet<String>,
    /// What was granted for the session.
    grants: Vec<Grant>,
    /// Whether the log tells of all grants.
    tells_grants: bool,
    /// Where stands what its tree shares.
    shared: SharedPlaces,
}

impl Views {
    /// Takes in the next event of the log.
    ///
    /// # Errors
    /// [`Misplaced`]: it cannot come where it does. Then the views are not to be held against anything.
    pub fn push(&mut self, event: &Event) -> Result<(), Misplaced> {
        let Some(body) = event.body() else { return Ok(()) };
        self.grammar.push(event, &body)?;
        self.take_settings(&body);
        self.take_answer(&body);
        replay(&mut self.grants, &body);
        follow(&mut self.shared, event.seq, &body);
        let Some(turn_id) = &event.turn_id else {
            self.take_beginning(&body);
            return Ok(());
        };
        // Looked up by reference first: deltas come by the thousand.
        if !self.turns.contains_key(turn_id) {
            let whole = self.settings.is_some();
            self.turns.insert(turn_id.clone(), Seen { place: event.seq, whole, ..Seen::default() });
        }
        let Some(turn) = self.turns.get_mut(turn_id) else { return Ok(()) };
        turn.tally.push(&body);
        let (end, spent) = match body {
            EventBody::SessionPrompt { prompt, .. } => {
                turn.first_seq = Some(event.seq);
                turn.prompt = shown(prompt);
                return Ok(());
            }
            EventBody::TurnPaused { .. } | EventBody::TurnResumed { .. } => {
                turn.paused = matches!(body, EventBody::TurnPaused { .. });
                return Ok(());
            }
            EventBody::SessionCompleted { result, output, spent, .. } => (End::Completed(result, output), spent),
            EventBody::SessionError { error, spent, .. } => (End::Failed(error), spent),
            EventBody::Abort { reason, spent, .. } => (End::Stopped(reason), spent),
            _ => return Ok(()),
        };
        self.spent = self.spent.plus(spent);
        (turn.end, turn.last_seq) = (Some(end), Some(event.seq));
        self.message_count += turn.tally.messages;
        self.usage = self.usage.plus(turn.tally.usage);
        self.last_end = Some(turn_id.clone());
        Ok(())
    }

    fn take_beginning(&mut self, body: &EventBody) {
        match body {
            EventBody::SessionCreated { session_id, .. } => self.session = Some(session_id.clone()),
            EventBody::SessionForked { session_id, at, .. } => {
                self.session = Some(session_id.clone());
                // What the other one has spent is not the fork's.
                self.spent = Spending::default();
                // What the fork has ended got its row with that end.
                for turn in self.turns.values_mut() {
                    turn.place = turn.last_seq.filter(|last| last > at).unwrap_or(turn.place);
                }
            }
            _ => {}
        }
    }

    fn take_settings(&mut self, body: &EventBody) {
        match body {
            EventBody::SessionCreated { beginning, .. } | EventBody::SessionForked { beginning, .. } => {
                (self.settings, self.version) = (begun(beginning), 0);
                // Nobody granted a fork anything yet.
                self.grants.clear();
                self.tells_grants = beginning.tells_grants;
            }
            EventBody::SessionConfigured(Configured { changes, .. }) => {
                if let Some(settings) = &mut self.settings {
                    configure(settings, changes);
                }
            }
            _ => {}
        }
        self.version = version_of(body).unwrap_or(self.version);
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

    /// Holds the stored views against the log; `stored` are the turns, oldest first.
    pub fn compare(&self, row: &SessionRow, stored: &[TurnRow]) -> Vec<Fault> {
        let mut found = Compared { session: row.id.clone(), turn: None, faults: Vec::new() };
        let mut before = 0;
        for turn in stored {
            found.turn = Some(turn.record.turn_id.clone());
            match self.turns.get(&turn.record.turn_id) {
                Some(seen) => {
                    if seen.place <= before {
                        let stored = format!("behind the one of event {before}");
                        found.differ("its place among the turns", &stored, &format!("that of event {}", seen.place));
                    }
                    before = before.max(seen.place);
                    seen.compare(turn, &mut found);
                }
                // One that was accepted has said so in the log, at the latest when it began.
                None => found.differ("its first event", &"there", &"not there"),
            }
        }
        let known: HashSet<&TurnId> = stored.iter().map(|turn| &turn.record.turn_id).collect();
        for id in self.turns.keys() {
            if !known.contains(id) {
                found.turn = Some(id.clone());
                found.differ("its record", &"not there", &"there");
            }
        }
        found.turn = None;
        found.differ("id", &Some(&row.id), &self.session.as_ref());
        found.differ("messageCount", &row.message_count, &self.message_count);
        found.differ("usage", &row.usage, &self.usage);
        found.differ("spent", &row.spent, &self.spent);
        found.differ("status", &row.status, &self.status());
        found.differ("what its tree shares", &row.shared, &self.shared);
        self.compare_grants(&row.settings.grants, &mut found);
        if let Some(settings) = &self.settings {
            found.differ("version", &row.version, &self.version);
            found.settings(&row.settings, settings);
        }
        found.faults
    }

    fn compare_grants(&self, stored: &[Grant], found: &mut Compared) {
        if self.tells_grants {
            return found.differ("grants", &stored, &self.grants.as_slice());
        }
        let lost = self.grants.iter().find(|grant| !stored.contains(grant));
        let untold = stored.iter().filter(|grant| !self.grants.contains(grant));
        let unasked = untold.map(|grant| &grant.tool).find(|tool| !self.allowed.contains(*tool));
        found.differ("grants", &unasked, &None::<&String>);
        found.differ("grants", &None::<&Grant>, &lost);
    }

    fn status(&self) -> SessionStatus {
        let open = self.turns.values().any(|turn| turn.end.is_none());
        let last = self.last_end.as_ref().and_then(|id| self.turns.get(id)).and_then(|turn| turn.end.as_ref());
        match (open, last) {
            (true, _) => SessionStatus::Active,
            (false, Some(End::Completed(..))) => status_after(TurnStatus::Completed),
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
        // Rows of earlier versions have neither this nor the text of the prompt.
        if self.whole || record.last_seq.is_some() {
            found.differ("its last event", &record.last_seq, &self.last_seq);
        }
        if self.first_seq.is_some() && (self.whole || !record.prompt.is_empty()) {
            found.differ("prompt", &record.prompt, &self.prompt);
        }
        if self.whole {
            // When that was is the actor's own. A fork may end before a turn of its source has begun.
            let begins = record.started_at.is_some() || self.first_seq.is_none();
            found.differ("whether it has a time at which it began", &begins, &true);
            found.differ("whether it says why it stopped", &record.stop_reason.is_some(), &self.end.is_some());
            found.differ("whether it has a time at which it ended", &record.ended_at.is_some(), &self.end.is_some());
        }
        let Some(end) = &self.end else { return self.compare_open(stored, found) };
        let is_done = stored.prompt.is_none()
            && stored.configure.is_none()
            && stored.only.is_none()
            && stored.came.is_none()
            && stored.held.is_none()
            && stored.aborted.is_none()
            && stored.steers.is_empty();
        found.differ("whether it has something left to do", &!is_done, &false);
        found.differ("rounds", &record.rounds, &self.tally.rounds);
        found.differ("usage", &record.usage, &self.tally.usage);
        if !end.is_of(record.status) {
            found.differ("status", &record.status, end);
        }
        let (result, error, reason) = match end {
            End::Completed(result, _) => (Some(result.clone()), None, None),
            End::Failed(error) => (None, Some(error.clone()), None),
            End::Stopped(reason) => (None, None, Some(reason.clone())),
        };
        found.differ("result", &record.result, &result);
        let output = if let End::Completed(_, output) = end { output.as_ref() } else { None };
        found.differ("output", &record.output.as_ref(), &output);
        found.differ("error", &record.error, &error);
        if matches!(end, End::Stopped(_)) {
            found.differ("reason", &Some(record.reason.clone().unwrap_or_default()), &reason);
        }
    }

    /// Of a turn that has not ended.
    fn compare_open(&self, stored: &TurnRow, found: &mut Compared) {
        let status = stored.record.status;
        let waits = self.first_seq.is_none();
        found.differ("whether it waits", &(status == TurnStatus::Queued), &waits);
        found.differ("whether it has its prompt before it", &stored.prompt.is_some(), &waits);
        found.differ("whether it is paused", &(status == TurnStatus::Paused), &self.paused);
        // Of what is kept apart the record has the beginning alone.
        let here = stored.prompt.as_ref().filter(|prompt| prompt.place().is_none()).map(Waiting::shown);
        if let Some(prompt) = here.filter(|_| !stored.record.prompt.is_empty()) {
            found.differ("prompt", &stored.record.prompt, &prompt);
        }
    }
}

impl End {
    /// Whether a record with this status has ended so.
    fn is_of(&self, status: TurnStatus) -> bool {
        match status {
            TurnStatus::Completed => matches!(self, Self::Completed(..)),
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
        self.differ("additionalDirectories", &stored.additional_directories, &log.additional_directories);
        self.differ("agent", &stored.agent, &log.agent);
        self.differ("interactionMode", &stored.interaction_mode, &log.interaction_mode);
        self.differ("model", &stored.model, &log.model);
        self.differ("title", &stored.title, &log.title);
        self.differ("instructions", &stored.instructions, &log.instructions);
        self.differ("tools", &chosen_tools(stored), &chosen_tools(log));
        self.differ("reasoning", &stored.reasoning, &log.reasoning);
        self.differ("agentOptions", &stored.agent_options, &log.agent_options);
        self.differ("modelFallbacks", &stored.model_fallbacks, &log.model_fallbacks);
        self.differ("budget", &stored.budget, &log.budget);
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
