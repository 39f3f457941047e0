//! A question that waits: of this session, or of one under it. A key counts as an answer only when the question has been on the
//! screen for a moment: who is writing just then answers nothing by accident.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::base::clock::now_ms;
use crate::protocol::{ClientQuestion, Decision, EventBody, RequestId, SessionId};

/// How long a question is on the screen before keys answer it.
const SEEN: Duration = Duration::from_millis(400);

/// A question.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) session: SessionId,
    pub(super) request: RequestId,
    pub(super) body: EventBody,
    since: Instant,
    /// Which option the cursor is on.
    pub(super) at: usize,
    /// Which options are chosen.
    pub(super) chosen: Vec<bool>,
    /// Whether words are written for it.
    pub(super) words: bool,
}

impl Question {
    /// The question in an event. None: it is none.
    pub(super) fn of(session: &SessionId, body: &EventBody) -> Option<Self> {
        let (request, options, words) = match body {
            EventBody::PermissionRequest { request_id, .. } => (request_id, 0, false),
            EventBody::ClientRequest { request_id, question, .. } => match question {
                ClientQuestion::Select { options, .. } => (request_id, options.len(), false),
                ClientQuestion::Confirm { .. } => (request_id, 0, false),
                ClientQuestion::Input { .. } | ClientQuestion::Editor { .. } => (request_id, 0, true),
            },
            _ => return None,
        };
        Some(Self {
            session: session.clone(),
            request: request.clone(),
            body: body.clone(),
            since: Instant::now(),
            at: 0,
            chosen: vec![false; options],
            words,
        })
    }

    /// It is on the screen from now on.
    pub(super) fn put(&mut self) {
        self.since = Instant::now();
    }

    /// Whether it was seen, so that keys answer it.
    pub(super) fn is_seen(&self) -> bool {
        self.since.elapsed() >= SEEN
    }

    /// Seconds until silence is a no.
    pub(super) fn seconds_left(&self) -> u64 {
        match &self.body {
            EventBody::PermissionRequest { deadline, .. } | EventBody::ClientRequest { deadline, .. } => {
                deadline.saturating_sub(now_ms()).div_ceil(1_000)
            }
            _ => 0,
        }
    }

    /// The answer that a letter gives.
    pub(super) fn letter(&self, letter: char) -> Option<Value> {
        match (&self.body, letter) {
            (EventBody::PermissionRequest { options, .. }, letter) => {
                let decision = match letter {
                    'y' => Decision::Allow,
                    'a' => Decision::AllowAlways,
                    'n' => Decision::Deny,
                    _ => return None,
                };
                options.contains(&decision).then(|| json!({ "decision": decision }))
            }
            (EventBody::ClientRequest { question: ClientQuestion::Confirm { .. }, .. }, 'y') => {
                Some(json!({ "value": true }))
            }
            (EventBody::ClientRequest { question: ClientQuestion::Confirm { .. }, .. }, 'n') => {
                Some(json!({ "value": false }))
            }
            _ => None,
        }
    }

    /// The answer that Enter gives, without words.
    pub(super) fn enter(&self) -> Option<Value> {
        let EventBody::ClientRequest { question: ClientQuestion::Select { options, several, .. }, .. } = &self.body
        else {
            return None;
        };
        if !several {
            return options.get(self.at).map(|option| json!({ "value": option }));
        }
        let chosen = options.iter().zip(&self.chosen).filter(|(_, chosen)| **chosen).map(|(option, _)| option);
        Some(json!({ "value": chosen.collect::<Vec<_>>() }))
    }

    /// The answer that words give.
    pub(super) fn worded(&self, words: &str) -> Value {
        match &self.body {
            EventBody::PermissionRequest { .. } if words.is_empty() => json!({ "decision": "deny" }),
            EventBody::PermissionRequest { .. } => json!({ "decision": "deny", "message": words }),
            _ => json!({ "value": words }),
        }
    }

    /// No answer.
    pub(super) fn refusal(&self) -> Value {
        match &self.body {
            EventBody::PermissionRequest { .. } => json!({ "decision": "deny" }),
            _ => json!({ "cancelled": true }),
        }
    }
}
