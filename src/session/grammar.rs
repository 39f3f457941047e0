//! What may follow what in a session's log.
//!
//! Pure: events in, one after the other; the first thing that is out of place out. It holds for every log that this program
//! and those before it write, whatever crash or fork came in between: `repair` closes what a turn has opened, and
//! `fork` ends what was under way.
//!
//! Invariant: only what is open is remembered, and of each turn where it is.

use std::collections::{HashMap, HashSet};

use crate::protocol::{Configured, Event, EventBody, RequestId, TurnId, of_tree};

/// An event that cannot come where it does.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{field}`: expected {expected}")]
pub struct Misplaced {
    /// What of the event says so.
    pub field: &'static str,
    /// What could come.
    pub expected: String,
}

/// Where a turn is, by its events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Queued,
    Begun,
    Ended,
}

/// A log as far as it has been followed.
#[derive(Debug, Default)]
pub(super) struct Grammar {
    turns: HashMap<TurnId, Stage>,
    /// The turn that has begun and not ended.
    running: Option<TurnId>,
    /// It is paused.
    paused: bool,
    /// Its calls that have not ended, by their ids, and how many of each.
    calls: HashMap<String, u32>,
    /// Two of its calls had one id at once: then it cannot be told which of them ended.
    ambiguous: bool,
    /// Its questions that nobody has answered.
    questions: HashSet<RequestId>,
    /// The session's version. None: the log does not say with what it began.
    version: Option<u64>,
}

fn misplaced(field: &'static str, expected: impl Into<String>) -> Result<(), Misplaced> {
    Err(Misplaced { field, expected: expected.into() })
}

impl Grammar {
    /// Takes the next event of the log.
    ///
    /// # Errors
    /// [`Misplaced`]: it cannot come here. What comes behind it is not to be judged by this.
    pub(super) fn push(&mut self, event: &Event, body: &EventBody) -> Result<(), Misplaced> {
        if (event.seq == 1) != matches!(body, EventBody::SessionCreated { .. }) {
            return misplaced("type", "`session.created` as event 1, and nowhere else");
        }
        match (&event.turn_id, is_of_turn(body)) {
            // A grant is taken back at any time; while a turn runs, that is told as the turn's.
            (turn, _) if comes_at_any_time(body) => {
                if let Some(turn) = turn.as_ref().filter(|turn| !self.turns.contains_key(turn)) {
                    return misplaced("turnId", format!("a turn that has come before; {turn} has not"));
                }
            }
            (Some(turn), true) => self.of_turn(turn, body)?,
            (None, false) => self.of_session(event.seq, body)?,
            (None, true) => return misplaced("turnId", format!("the turn of `{}`; there is none", event.kind)),
            (Some(_), false) => return misplaced("turnId", format!("none: `{}` is of no turn", event.kind)),
        }
        self.count(body)
    }

    fn of_session(&mut self, seq: u64, body: &EventBody) -> Result<(), Misplaced> {
        let EventBody::SessionForked { at, .. } = body else { return Ok(()) };
        if !(1..seq).contains(at) {
            return misplaced("payload.at", format!("an event before this one; got {at}"));
        }
        match self.turns.values().any(|stage| *stage != Stage::Ended) {
            true => misplaced("type", "the end of every turn before `session.forked`"),
            false => Ok(()),
        }
    }

    fn of_turn(&mut self, turn: &TurnId, body: &EventBody) -> Result<(), Misplaced> {
        let stage = self.turns.get(turn).copied();
        let next = match (stage, body) {
            (None, EventBody::TurnQueued { .. }) => Stage::Queued,
            (None | Some(Stage::Queued), EventBody::SessionPrompt { .. }) => {
                if let Some(running) = &self.running {
                    return misplaced("turnId", format!("the end of turn {running} before another one begins"));
                }
                self.running = Some(turn.clone());
                (self.paused, self.ambiguous) = (false, false);
                Stage::Begun
            }
            // In a fork it is so of what waited in the other session.
            (Some(Stage::Queued), EventBody::Abort { .. }) => Stage::Ended,
            (Some(Stage::Begun), EventBody::SessionPrompt { .. } | EventBody::TurnQueued { .. }) => {
                return misplaced("type", format!("something that turn {turn} does: it has begun"));
            }
            (Some(Stage::Begun), _) if body.is_terminal() => {
                self.end()?;
                Stage::Ended
            }
            (Some(Stage::Begun), _) => return self.within(body),
            (Some(Stage::Ended), _) => return misplaced("turnId", format!("nothing of turn {turn} behind its end")),
            (None, _) => {
                return misplaced("type", format!("`session.prompt` or `turn.queued`, as the first of turn {turn}"));
            }
            (Some(Stage::Queued), _) => {
                return misplaced("type", format!("`session.prompt`, as the next of turn {turn}: it waits"));
            }
        };
        self.turns.insert(turn.clone(), next);
        Ok(())
    }

    /// What the turn that runs does.
    fn within(&mut self, body: &EventBody) -> Result<(), Misplaced> {
        match body {
            EventBody::ToolCallStart { call_id, .. } => {
                let open = self.calls.entry(call_id.clone()).or_default();
                self.ambiguous |= *open > 0;
                *open += 1;
            }
            EventBody::ToolCallEnd { call_id, .. } => match self.calls.remove(call_id) {
                None => return misplaced("payload.callId", "a call that has started and not ended"),
                Some(1) => {}
                Some(more) => drop(self.calls.insert(call_id.clone(), more - 1)),
            },
            EventBody::PermissionRequest { request_id, .. } | EventBody::ClientRequest { request_id, .. }
                if !self.questions.insert(request_id.clone()) =>
            {
                return misplaced("payload.requestId", "an id that no open question has");
            }
            EventBody::PermissionResponse { request_id, .. } | EventBody::ClientResponse { request_id, .. }
                if !self.questions.remove(request_id) =>
            {
                return misplaced("payload.requestId", "the id of an open question");
            }
            EventBody::TurnPaused { .. } if std::mem::replace(&mut self.paused, true) => {
                return misplaced("type", "`turn.resumed` before it is paused again");
            }
            EventBody::TurnResumed { .. } if !std::mem::take(&mut self.paused) => {
                return misplaced("type", "`turn.paused` before it is resumed");
            }
            _ => {}
        }
        Ok(())
    }

    /// The turn that runs ends.
    fn end(&mut self) -> Result<(), Misplaced> {
        self.running = None;
        let calls = std::mem::take(&mut self.calls);
        if !self.ambiguous
            && let Some(call) = calls.keys().min()
        {
            return misplaced("type", format!("`tool.call.end` of call {call} before the end of its turn"));
        }
        match std::mem::take(&mut self.questions).iter().min() {
            Some(request) => misplaced("type", format!("the answer to question {request} before the end of its turn")),
            None => Ok(()),
        }
    }

    /// Versions grow one by one.
    fn count(&mut self, body: &EventBody) -> Result<(), Misplaced> {
        match body {
            EventBody::SessionCreated { beginning, .. } | EventBody::SessionForked { beginning, .. } => {
                self.version = beginning.settings.is_some().then_some(0);
                return Ok(());
            }
            _ => {}
        }
        let (Some(version), Some(before)) = (version_of(body), self.version) else { return Ok(()) };
        if version != before && version != before + 1 {
            let expected = format!("{before} or {}, as the session's version goes on; got {version}", before + 1);
            return misplaced("payload.version", expected);
        }
        self.version = Some(version);
        Ok(())
    }
}

/// The session's version with an event. None: it says nothing of it.
pub(super) fn version_of(body: &EventBody) -> Option<u64> {
    match body {
        EventBody::SessionConfigured(Configured { version, .. })
        | EventBody::SessionPrompt { version, .. }
        | EventBody::TurnQueued { version, .. }
        | EventBody::TurnControl { version, .. }
        | EventBody::TurnPaused { version, .. }
        | EventBody::TurnResumed { version, .. }
        | EventBody::ChangesUndone { version, .. }
        | EventBody::ChangesRedone { version, .. }
        | EventBody::Abort { version, .. } => *version,
        _ => None,
    }
}

/// Whether such an event is told as a turn's, or as nobody's, whenever it comes. What becomes of a sub-agent may be known long
/// after the turn that spawned it.
fn comes_at_any_time(body: &EventBody) -> bool {
    matches!(
        body,
        EventBody::PermissionGranted(_)
            | EventBody::PermissionRevoked { .. }
            | EventBody::SubagentStart(_)
            | EventBody::SubagentQueued(_)
            | EventBody::SubagentComplete(_)
            | EventBody::SubagentError(_)
            | EventBody::SubagentRequest(_)
            | EventBody::SubagentResponse(_)
            | of_tree!()
    )
}

/// Whether such an event belongs to a turn.
fn is_of_turn(body: &EventBody) -> bool {
    !matches!(
        body,
        EventBody::SessionCreated { .. }
            | EventBody::SessionConfigured(_)
            | EventBody::SessionForked { .. }
            | EventBody::ChangesUndone { .. }
            | EventBody::ChangesRedone { .. }
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::protocol::Event;

    /// The first event that is out of place, and what of it. Each line: a turn or `-`, a type, and the payload.
    fn first(lines: &[(&str, &str, Value)]) -> Option<(usize, &'static str)> {
        let mut grammar = Grammar::default();
        for (at, (turn, kind, payload)) in lines.iter().enumerate() {
            let turn_id = (*turn != "-").then(|| turn.parse().expect("an id"));
            let event = Event {
                seq: at as u64 + 1,
                kind: crate::protocol::kind_named(kind),
                payload: serde_json::from_value(payload.clone()).expect("JSON"),
                session_id: "s".parse().expect("an id"),
                turn_id,
                at: 0,
            };
            let body = event.body().unwrap_or_else(|| panic!("{kind} {payload}"));
            if let Err(misplaced) = grammar.push(&event, &body) {
                assert!(!misplaced.expected.is_empty());
                return Some((at + 1, misplaced.field));
            }
        }
        None
    }

    type Line = (&'static str, &'static str, Value);

    fn made() -> Line {
        ("-", "session.created", json!({ "sessionId": "s", "settings": {} }))
    }

    fn prompt(turn: &'static str) -> Line {
        (turn, "session.prompt", json!({ "sessionId": "s", "prompt": "p" }))
    }

    fn queued(turn: &'static str) -> Line {
        (turn, "turn.queued", json!({ "position": 1 }))
    }

    fn done(turn: &'static str) -> Line {
        (turn, "session.completed", json!({ "sessionId": "s", "result": "" }))
    }

    fn abort(turn: &'static str) -> Line {
        (turn, "abort", json!({ "reason": "" }))
    }

    fn call(turn: &'static str, id: &str) -> Line {
        (turn, "tool.call.start", json!({ "callId": id, "name": "n", "args": {} }))
    }

    fn over(turn: &'static str, id: &str) -> Line {
        (turn, "tool.call.end", json!({ "callId": id, "name": "n", "output": "", "isError": false, "durationMs": 0 }))
    }

    fn asks(turn: &'static str) -> Line {
        let question =
            json!({ "requestId": "req_1", "callId": "c", "toolName": "n", "args": {}, "options": [], "deadline": 1 });
        (turn, "permission.request", question)
    }

    fn answer(turn: &'static str) -> Line {
        (turn, "permission.response", json!({ "requestId": "req_1", "callId": "c", "allowed": true, "by": "client" }))
    }

    fn version(number: u64) -> Line {
        ("-", "session.configured", json!({ "version": number }))
    }

    fn control(turn: &'static str, number: u64) -> Line {
        (turn, "turn.control", json!({ "kind": "interrupt", "version": number }))
    }

    fn over_at(turn: &'static str, number: u64) -> Line {
        (turn, "abort", json!({ "reason": "", "version": number }))
    }

    fn forked(at: u64) -> Line {
        ("-", "session.forked", json!({ "sessionId": "s", "parentSessionId": "r", "at": at, "settings": {} }))
    }

    #[test]
    fn every_rule_has_its_place() {
        let (start, pause) = (("a", "loop.start", json!({})), ("a", "turn.paused", json!({})));
        let resume = ("a", "turn.resumed", json!({}));
        #[rustfmt::skip]
        let table: Vec<(Vec<Line>, Option<(usize, &str)>)> = vec![
            (vec![made(), prompt("a"), queued("b"), start.clone(), done("a"), prompt("b"), abort("b")], None),
            (vec![prompt("a")],                                                      Some((1, "type"))),
            (vec![made(), made()],                                                   Some((2, "type"))),
            (vec![made(), start.clone()],                                            Some((2, "type"))),
            (vec![made(), ("-", "loop.start", json!({}))],                           Some((2, "turnId"))),
            (vec![made(), ("a", "session.configured", json!({}))],                   Some((2, "turnId"))),
            (vec![made(), queued("a"), start.clone()],                               Some((3, "type"))),
            (vec![made(), queued("a"), queued("a")],                                 Some((3, "type"))),
            (vec![made(), prompt("a"), queued("a")],                                 Some((3, "type"))),
            (vec![made(), prompt("a"), prompt("a")],                                 Some((3, "type"))),
            (vec![made(), prompt("a"), prompt("b")],                                 Some((3, "turnId"))),
            (vec![made(), prompt("a"), done("a"), abort("a")],                       Some((4, "turnId"))),
            (vec![made(), prompt("a"), done("a"), start],                            Some((4, "turnId"))),
            (vec![made(), queued("a"), done("a")],                                   Some((3, "type"))),
            (vec![made(), prompt("a"), call("a", "1"), over("a", "1"), call("a", "1"), over("a", "1"), done("a")], None),
            (vec![made(), prompt("a"), over("a", "1")],                              Some((3, "payload.callId"))),
            (vec![made(), prompt("a"), call("a", "1"), over("a", "1"), over("a", "1")], Some((5, "payload.callId"))),
            (vec![made(), prompt("a"), call("a", "1"), done("a")],                   Some((4, "type"))),
            // Which of two of one id has ended nobody can tell.
            (vec![made(), prompt("a"), call("a", "1"), call("a", "1"), over("a", "1"), done("a")], None),
            (vec![made(), prompt("a"), asks("a"), answer("a"), done("a")],           None),
            (vec![made(), prompt("a"), answer("a")],                                 Some((3, "payload.requestId"))),
            (vec![made(), prompt("a"), asks("a"), asks("a")],                        Some((4, "payload.requestId"))),
            (vec![made(), prompt("a"), asks("a"), done("a")],                        Some((4, "type"))),
            (vec![made(), prompt("a"), pause.clone(), resume.clone(), pause.clone(), abort("a")], None),
            (vec![made(), prompt("a"), resume],                                      Some((3, "type"))),
            (vec![made(), prompt("a"), pause.clone(), pause],                        Some((4, "type"))),
            (vec![made(), version(1), version(1), version(2)],                       None),
            (vec![made(), prompt("a"), control("a", 1), over_at("a", 1), version(2)],    None),
            (vec![made(), prompt("a"), control("a", 1), over_at("a", 3)],                Some((4, "payload.version"))),
            (vec![made(), version(1), version(3)],                                   Some((3, "payload.version"))),
            (vec![made(), version(1), version(0)],                                   Some((3, "payload.version"))),
            (vec![("-", "session.created", json!({ "sessionId": "s" })), version(7)], None),
            (vec![made(), version(1), queued("a"), abort("a"), forked(2), version(1)], None),
            (vec![made(), prompt("a"), forked(2)],                                   Some((3, "type"))),
            (vec![made(), queued("a"), forked(2)],                                   Some((3, "type"))),
            (vec![made(), forked(2)],                                                Some((2, "payload.at"))),
        ];
        for (lines, want) in table {
            assert_eq!(first(&lines), want, "{lines:?}");
        }
    }
}
