//! Questions to the client: which are open, which are over, and which one an answer means.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::oneshot;

use crate::base::limit;
use crate::protocol::{ApiError, Decision, GrantScope, PermissionVerdict, RequestId, TurnId, VerdictSource};
use crate::store::{GrantSubject, Which};

/// A client's answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The request that it means.
    pub which: Which,
    /// What it says.
    pub decision: Decision,
    /// Words for the model.
    pub message: Option<String>,
    /// How far a yes reaches, when further than this call.
    pub grant: Option<GrantTerms>,
}

/// How far a yes reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrantTerms {
    /// Where it counts.
    pub scope: GrantScope,
    /// When it ends, in milliseconds since 1970. None: never.
    pub expires_at: Option<u64>,
}

/// Answer to feedback: what it has settled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resolved {
    /// The request.
    pub request_id: RequestId,
    /// The call.
    pub call_id: String,
    /// The answer that counts.
    pub allowed: bool,
}

/// A question as a gate puts it.
#[derive(Debug)]
pub(super) struct Question {
    /// The turn whose call it is.
    pub(super) turn: TurnId,
    /// The call.
    pub(super) call_id: String,
    /// The tool.
    pub(super) tool_name: String,
    /// The arguments.
    pub(super) args: Map<String, Value>,
    /// What would happen.
    pub(super) preview: Option<Value>,
    /// When silence becomes no, in milliseconds since 1970.
    pub(super) deadline: u64,
    /// What an `allow_always` would be about.
    pub(super) on: GrantSubject,
    /// Whether it is asked again each time, so that no yes reaches further than this call.
    pub(super) each_time: bool,
}

/// A question that waits.
#[derive(Debug)]
pub(super) struct Open {
    /// Its id.
    pub(super) request_id: RequestId,
    /// What it asks.
    pub(super) call_id: String,
    /// The tool, and on what it is to be used. None: no yes reaches further than this call.
    pub(super) wanted: Option<(String, GrantSubject)>,
    /// Who waits.
    pub(super) reply: oneshot::Sender<PermissionVerdict>,
}

/// The questions of a session.
#[derive(Debug, Default)]
pub(super) struct Asks {
    open: Vec<Open>,
    settled: VecDeque<(RequestId, String)>,
}

impl Asks {
    /// Whether none is open.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Adds one.
    pub(super) fn add(&mut self, open: Open) {
        self.open.push(open);
    }

    /// Takes one out. None: it is not open.
    pub(super) fn settle(&mut self, id: &RequestId) -> Option<Open> {
        let at = self.open.iter().position(|open| open.request_id == *id)?;
        let open = self.open.remove(at);
        self.settled.push_back((open.request_id.clone(), open.call_id.clone()));
        if self.settled.len() > limit::SETTLED_REQUESTS_MAX {
            self.settled.pop_front();
        }
        Some(open)
    }

    /// The ids of all that are open.
    pub(super) fn open_ids(&self) -> Vec<RequestId> {
        self.open.iter().map(|open| open.request_id.clone()).collect()
    }

    /// The open request that an answer means.
    ///
    /// # Errors
    /// `CONFLICT` when it is over, `NOT_FOUND` when it is not remembered: then the store knows whether there was one.
    pub(super) fn find(&self, which: &Which) -> Result<RequestId, ApiError> {
        let fits = |request: &RequestId, call: &str| {
            which.request_id.as_ref().is_none_or(|id| id == request)
                && which.call_id.as_ref().is_none_or(|id| id == call)
        };
        if let Some(open) = self.open.iter().find(|open| fits(&open.request_id, &open.call_id)) {
            return Ok(open.request_id.clone());
        }
        if self.settled.iter().any(|(request, call)| fits(request, call)) {
            return Err(over(which));
        }
        Err(ApiError::not_found(named(which)))
    }
}

fn named(which: &Which) -> String {
    match (&which.request_id, &which.call_id) {
        (Some(id), _) => format!("permission request {id}"),
        (None, call) => format!("permission request for call {}", call.as_deref().unwrap_or_default()),
    }
}

/// The refusal of an answer to a question that has its end.
pub(super) fn over(which: &Which) -> ApiError {
    ApiError::conflict(format!("{} is over: it was answered or has expired", named(which)))
}

/// A refusal.
pub(super) fn denied(by: VerdictSource, reason: impl Into<String>) -> PermissionVerdict {
    PermissionVerdict { allowed: false, by, reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::ErrorCode;

    fn open(request: &str, call: &str) -> (Open, oneshot::Receiver<PermissionVerdict>) {
        let (reply, waits) = oneshot::channel();
        let wanted = Some(("t".to_owned(), GrantSubject::Any));
        (Open { request_id: request.parse().expect("id"), call_id: call.into(), wanted, reply }, waits)
    }

    #[test]
    fn an_answer_finds_its_question_once() {
        let mut asks = Asks::default();
        let (first, _w1) = open("r1", "c1");
        let (second, _w2) = open("r2", "c2");
        asks.add(first);
        asks.add(second);
        asks.settle(&"r1".parse().expect("id")).expect("open");
        #[rustfmt::skip]
        let table = [
            (Some("r2"), None,       Ok("r2")),
            (None,       Some("c2"), Ok("r2")),
            (Some("r2"), Some("c2"), Ok("r2")),
            (Some("r2"), Some("c1"), Err(ErrorCode::NotFound)),
            (Some("r1"), None,       Err(ErrorCode::Conflict)),
            (None,       Some("c1"), Err(ErrorCode::Conflict)),
            (Some("r9"), None,       Err(ErrorCode::NotFound)),
            (None,       Some("c9"), Err(ErrorCode::NotFound)),
        ];
        for (request, call, want) in table {
            let which =
                Which { request_id: request.map(|id| id.parse().expect("id")), call_id: call.map(str::to_owned) };
            let found = asks.find(&which).map_err(|e| e.code());
            assert_eq!(found.as_ref().map(RequestId::as_str).map_err(|code| *code), want, "{request:?} {call:?}");
        }
        assert!(asks.settle(&"r1".parse().expect("id")).is_none(), "settled once");
    }

    #[test]
    fn what_is_remembered_has_an_end() {
        let mut asks = Asks::default();
        for n in 0..=limit::SETTLED_REQUESTS_MAX {
            let id = format!("r{n}");
            asks.add(open(&id, "c").0);
            asks.settle(&id.parse().expect("id")).expect("open");
        }
        assert_eq!(asks.settled.len(), limit::SETTLED_REQUESTS_MAX);
        assert!(asks.is_empty());
    }
}
