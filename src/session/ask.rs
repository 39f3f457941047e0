//! Questions to the client: which are open, which are over, and which one an answer means.

use std::collections::VecDeque;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::oneshot;

use super::actor::{ChildOrder, Order};
use super::live::Live;
use crate::base::limit;
use crate::protocol::{
    ApiError, ClientQuestion, ClientReply, Decision, EventBody, GrantScope, PermissionVerdict, RequestId, SessionId,
    TurnId, VerdictSource,
};
use crate::store::{GrantSubject, Which};

/// A client's answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The request that it means.
    pub which: Which,
    /// What it says.
    pub says: Says,
    /// Words about it: for the model, or why there is no answer.
    pub message: Option<String>,
}

/// What an answer says.
#[derive(Debug, Clone, PartialEq)]
pub enum Says {
    /// To a question about permission.
    Decision(Decision, Option<GrantTerms>),
    /// To another question.
    Value(Value),
    /// That there is none.
    Cancelled,
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// The answer that counts, to a question about permission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<bool>,
    /// Whether there is no answer, to another question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled: Option<bool>,
}

/// A question as it is put.
#[derive(Debug)]
pub(super) struct Question {
    /// The turn that asks.
    pub(super) turn: TurnId,
    /// When silence becomes no, in milliseconds since 1970.
    pub(super) deadline: u64,
    /// What is asked.
    pub(super) about: About,
}

/// What is asked.
#[derive(Debug)]
pub(super) enum About {
    /// Whether a call may run.
    Call(Box<CallQuestion>),
    /// What a tool or a hook wants to know.
    Client {
        /// The call that it belongs to.
        call_id: Option<String>,
        /// The question.
        question: ClientQuestion,
    },
}

/// A question about permission.
#[derive(Debug)]
pub(super) struct CallQuestion {
    /// The call.
    pub(super) call_id: String,
    /// The tool.
    pub(super) tool_name: String,
    /// The arguments.
    pub(super) args: Map<String, Value>,
    /// What would happen.
    pub(super) preview: Option<Value>,
    /// What an `allow_always` would be about.
    pub(super) on: GrantSubject,
    /// Whether it is asked again each time, so that no yes reaches further than this call.
    pub(super) each_time: bool,
}

/// The end of a question.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum End {
    /// The call may run.
    Yes {
        /// Who said so.
        by: VerdictSource,
        /// Words about it.
        reason: String,
    },
    /// A client's answer, which fits.
    Value(Value),
    /// No, or no answer.
    No {
        /// Who said so.
        by: VerdictSource,
        /// Why.
        reason: String,
    },
}

/// A question that waits.
#[derive(Debug)]
pub(super) struct Open {
    /// Its id.
    pub(super) request_id: RequestId,
    /// As it stands in the log.
    pub(super) event: EventBody,
    /// What an answer is held against.
    pub(super) fits: Fits,
    /// Who waits.
    pub(super) reply: oneshot::Sender<End>,
}

/// What an answer has to be.
#[derive(Debug)]
pub(super) enum Fits {
    /// A decision about this call.
    Permission {
        /// The call.
        call_id: String,
        /// The tool, and on what it is to be used. None: no yes reaches further than this call.
        wanted: Option<(String, GrantSubject)>,
    },
    /// A value for this question.
    Client {
        /// The call that it belongs to.
        call_id: Option<String>,
        /// The question.
        question: ClientQuestion,
    },
}

impl Fits {
    fn call_id(&self) -> Option<&str> {
        match self {
            Self::Permission { call_id, .. } => Some(call_id),
            Self::Client { call_id, .. } => call_id.as_deref(),
        }
    }

    fn is_permission(&self) -> bool {
        match self {
            Self::Permission { .. } => true,
            Self::Client { .. } => false,
        }
    }
}

/// A question that is over.
#[derive(Debug)]
struct Past {
    request_id: RequestId,
    call_id: Option<String>,
    permission: bool,
}

/// The questions of a session.
#[derive(Debug, Default)]
pub(super) struct Asks {
    open: Vec<Open>,
    settled: VecDeque<Past>,
}

impl Asks {
    /// Whether none is open.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// How many are open.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Those that are open, as they stand in the log, oldest first.
    pub(super) fn shown(&self) -> Vec<EventBody> {
        self.open.iter().map(|open| open.event.clone()).collect()
    }

    /// Adds one.
    pub(super) fn add(&mut self, open: Open) {
        self.open.push(open);
    }

    /// Takes one out. None: it is not open.
    pub(super) fn settle(&mut self, id: &RequestId) -> Option<Open> {
        let at = self.open.iter().position(|open| open.request_id == *id)?;
        let open = self.open.remove(at);
        self.settled.push_back(Past {
            request_id: open.request_id.clone(),
            call_id: open.fits.call_id().map(str::to_owned),
            permission: open.fits.is_permission(),
        });
        if self.settled.len() > limit::SETTLED_REQUESTS_MAX {
            self.settled.pop_front();
        }
        Some(open)
    }

    /// The ids of all that are open.
    pub(super) fn open_ids(&self) -> Vec<RequestId> {
        self.open.iter().map(|open| open.request_id.clone()).collect()
    }

    /// The open request that an answer means, and the end that it makes of it. What does not fit leaves it open. A call by
    /// itself means the question whether it may run.
    ///
    /// # Errors
    /// `CONFLICT` when it is over, `NOT_FOUND` when it is not remembered: then the store knows whether there was one.
    /// `INVALID_ARGUMENT` for what does not fit.
    pub(super) fn find(&self, answer: &Answer) -> Result<(RequestId, End), ApiError> {
        let which = &answer.which;
        let means = |request: &RequestId, call: Option<&str>, permission: bool| {
            which.request_id.as_ref().map_or(permission, |id| id == request)
                && which.call_id.as_deref().is_none_or(|id| Some(id) == call)
        };
        let is_open = |open: &&Open| means(&open.request_id, open.fits.call_id(), open.fits.is_permission());
        if let Some(open) = self.open.iter().find(is_open) {
            return Ok((open.request_id.clone(), end_of(open, answer)?));
        }
        if self.settled.iter().any(|past| means(&past.request_id, past.call_id.as_deref(), past.permission)) {
            return Err(over(which));
        }
        Err(ApiError::not_found(named(which)))
    }
}

/// What an answer makes of an open question.
fn end_of(open: &Open, answer: &Answer) -> Result<End, ApiError> {
    let (by, reason) = (VerdictSource::Client, answer.message.clone().unwrap_or_default());
    match (&open.fits, &answer.says) {
        (Fits::Permission { .. }, Says::Decision(Decision::Allow | Decision::AllowAlways, _)) => {
            Ok(End::Yes { by, reason })
        }
        (Fits::Permission { .. }, Says::Decision(Decision::Deny, _)) | (Fits::Client { .. }, Says::Cancelled) => {
            Ok(End::No { by, reason })
        }
        (Fits::Client { question, .. }, Says::Value(value)) => {
            question.check(value)?;
            Ok(End::Value(value.clone()))
        }
        (Fits::Permission { .. }, Says::Value(_) | Says::Cancelled) => {
            let expected =
                format!("`allow`, `allow_always` or `deny`: request {} is about permission", open.request_id);
            Err(ApiError::invalid("decision", expected))
        }
        (Fits::Client { question, .. }, Says::Decision(..)) => {
            let expected =
                format!("a value, or `cancelled: true`: request {} is a {}", open.request_id, question.kind());
            Err(ApiError::invalid("value", expected))
        }
    }
}

fn named(which: &Which) -> String {
    match (&which.request_id, &which.call_id) {
        (Some(id), _) => format!("request {id}"),
        (None, call) => format!("permission request for call {}", call.as_deref().unwrap_or_default()),
    }
}

/// The refusal of an answer to a question that has its end.
pub(super) fn over(which: &Which) -> ApiError {
    ApiError::conflict(format!("{} is over: it was answered or has expired", named(which)))
}

impl End {
    /// A refusal.
    pub(super) fn no(by: VerdictSource, reason: impl Into<String>) -> Self {
        Self::No { by, reason: reason.into() }
    }

    /// Who decided.
    pub(super) fn by(&self) -> VerdictSource {
        match self {
            Self::Yes { by, .. } | Self::No { by, .. } => *by,
            Self::Value(_) => VerdictSource::Client,
        }
    }

    /// What it says of a call. Only a yes is one.
    pub(super) fn verdict(self) -> PermissionVerdict {
        match self {
            Self::Yes { by, reason } => PermissionVerdict { allowed: true, by, reason },
            Self::No { by, reason } => PermissionVerdict { allowed: false, by, reason },
            Self::Value(_) => {
                PermissionVerdict { allowed: false, by: VerdictSource::Client, reason: "no decision".to_owned() }
            }
        }
    }

    /// What it says to a tool or a hook. Only a value is an answer.
    pub(super) fn reply(self) -> ClientReply {
        match self {
            Self::Value(value) => ClientReply::Value(value),
            Self::Yes { by, reason } | Self::No { by, reason } => ClientReply::Cancelled { by, reason },
        }
    }

    /// The event that it is in the log, and what it has settled.
    pub(super) fn event(self, request_id: RequestId, fits: &Fits) -> EventBody {
        match fits {
            Fits::Permission { call_id, .. } => {
                let PermissionVerdict { allowed, by, reason } = self.verdict();
                EventBody::PermissionResponse { request_id, call_id: call_id.clone(), allowed, by, reason }
            }
            Fits::Client { call_id, .. } => {
                let (by, call_id) = (self.by(), call_id.clone());
                let (value, reason) = match self.reply() {
                    ClientReply::Value(value) => (Some(value), String::new()),
                    ClientReply::Cancelled { reason, .. } => (None, reason),
                };
                let cancelled = value.is_none();
                EventBody::ClientResponse { request_id, call_id, value, cancelled, by, reason }
            }
        }
    }
}

/// Puts a question and waits for its end: an answer, or what `silence` makes of there being none. The clients of the session
/// above all, if there is one, are told of both.
pub(super) async fn put_to(
    live: &Arc<Live>,
    root: Option<&Arc<Live>>,
    question: Question,
    silence: impl Future<Output = End>,
) -> End {
    let (reply, mut end) = oneshot::channel();
    let (named, name) = oneshot::channel();
    let lost = || End::no(VerdictSource::Abort, "the session has ended");
    // Without an actor both channels break, and that is a no.
    let _ = live.mail.send(Order::Ask { question: Box::new(question), named, reply }).await;
    let Ok((request, event)) = name.await else { return end.await.unwrap_or_else(|_| lost()) };
    let mut asking = Asking { live, request: Some(request) };
    let told = match (root, event) {
        (Some(root), Some(event)) => Some(ToldAbove::of(root, &live.id, event).await),
        _ => None,
    };
    let silence = tokio::select! {
        biased;
        answer = &mut end => Ok(answer.unwrap_or_else(|_| lost())),
        silence = silence => Err(silence),
    };
    let request = asking.request.take();
    let end = match (silence, request) {
        (Ok(answer), _) => answer,
        (Err(silence), request) => {
            if let Some(request) = request {
                let _ = live.mail.send(Order::Resolve { request, end: silence }).await;
            }
            // The first answer counts: a client's may have been faster.
            end.await.unwrap_or_else(|_| lost())
        }
    };
    if let Some(told) = told {
        told.end(end.clone()).await;
    }
    end
}

/// A question of which the clients of the session above all know. They are told of its end, whatever becomes of who asks.
struct ToldAbove {
    root: Arc<Live>,
    event: Option<EventBody>,
}

impl ToldAbove {
    async fn of(root: &Arc<Live>, asks: &SessionId, event: EventBody) -> Self {
        // From here on its end is told.
        let told = Self { root: Arc::clone(root), event: Some(event.clone()) };
        let _ = root.mail.send(Order::Child(ChildOrder::Asks(asks.clone(), Box::new(event)))).await;
        told
    }

    async fn end(mut self, end: End) {
        if let Some(order) = self.event.take().and_then(|event| answered(&event, end)) {
            let _ = self.root.mail.send(order).await;
        }
    }
}

impl Drop for ToldAbove {
    fn drop(&mut self) {
        let end = || End::no(VerdictSource::Abort, "who asked waits no longer");
        let Some(order) = self.event.take().and_then(|event| answered(&event, end())) else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let mail = self.root.mail.clone();
        runtime.spawn(async move { drop(mail.send(order).await) });
    }
}

/// That a question has its end.
fn answered(asked: &EventBody, end: End) -> Option<Order> {
    let (request, fits) = match asked {
        EventBody::PermissionRequest { request_id, call_id, .. } => {
            (request_id, Fits::Permission { call_id: call_id.clone(), wanted: None })
        }
        EventBody::ClientRequest { request_id, call_id, question, .. } => {
            (request_id, Fits::Client { call_id: call_id.clone(), question: question.clone() })
        }
        _ => return None,
    };
    let event = end.event(request.clone(), &fits);
    Some(Order::Child(ChildOrder::Answered(request.clone(), Box::new(event))))
}

/// Somebody waits for an answer. When nobody does any more, the question is taken back.
struct Asking<'a> {
    live: &'a Arc<Live>,
    request: Option<RequestId>,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let Some(request) = self.request.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let mail = self.live.mail.clone();
        let end = End::no(VerdictSource::Abort, "who asked waits no longer");
        // Without an actor there is no question any more.
        runtime.spawn(async move { drop(mail.send(Order::Resolve { request, end }).await) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::ErrorCode;

    fn open(request: &str, fits: Fits) -> (Open, oneshot::Receiver<End>) {
        let (reply, waits) = oneshot::channel();
        (Open { request_id: request.parse().expect("id"), event: EventBody::LoopStart {}, fits, reply }, waits)
    }

    fn permission(call: &str) -> Fits {
        Fits::Permission { call_id: call.into(), wanted: Some(("t".to_owned(), GrantSubject::Any)) }
    }

    fn confirm(call: &str) -> Fits {
        let question = ClientQuestion::Confirm { title: "t".into(), message: None };
        Fits::Client { call_id: Some(call.into()), question }
    }

    #[test]
    fn an_answer_finds_its_question_once_and_fits_it() {
        let mut asks = Asks::default();
        for (request, fits) in
            [("r1", permission("c1")), ("q1", confirm("c1")), ("q2", confirm("c2")), ("r2", permission("c2"))]
        {
            asks.add(open(request, fits).0);
        }
        for over in ["r1", "q1"] {
            asks.settle(&over.parse().expect("id")).expect("open");
        }
        let allow = || Says::Decision(Decision::Allow, None);
        let yes = || Says::Value(Value::Bool(true));
        let no_bool = || Says::Value(Value::String("yes".into()));
        #[rustfmt::skip]
        let table = [
            (Some("r2"), None,       allow(),         Ok("r2")),
            (None,       Some("c2"), allow(),         Ok("r2")),
            (Some("r2"), Some("c2"), allow(),         Ok("r2")),
            (Some("r2"), Some("c1"), allow(),         Err(ErrorCode::NotFound)),
            (Some("r1"), None,       allow(),         Err(ErrorCode::Conflict)),
            (None,       Some("c1"), allow(),         Err(ErrorCode::Conflict)),
            (Some("r9"), None,       allow(),         Err(ErrorCode::NotFound)),
            (None,       Some("c9"), allow(),         Err(ErrorCode::NotFound)),
            (Some("q2"), None,       yes(),           Ok("q2")),
            (Some("q2"), Some("c2"), Says::Cancelled, Ok("q2")),
            (Some("q2"), None,       no_bool(),       Err(ErrorCode::InvalidArgument)),
            (Some("q2"), None,       allow(),         Err(ErrorCode::InvalidArgument)),
            (Some("r2"), None,       yes(),           Err(ErrorCode::InvalidArgument)),
            (Some("r2"), None,       Says::Cancelled, Err(ErrorCode::InvalidArgument)),
            (Some("q1"), None,       yes(),           Err(ErrorCode::Conflict)),
            (Some("q1"), None,       no_bool(),       Err(ErrorCode::Conflict)),
        ];
        for (request, call, says, want) in table {
            let which =
                Which { request_id: request.map(|id| id.parse().expect("id")), call_id: call.map(str::to_owned) };
            let answer = Answer { which, says, message: None };
            let found = asks.find(&answer).map(|(id, _)| id).map_err(|e| e.code());
            assert_eq!(found.as_ref().map(RequestId::as_str).map_err(|code| *code), want, "{answer:?}");
        }
        assert!(asks.settle(&"r1".parse().expect("id")).is_none(), "settled once");
    }

    #[test]
    fn only_a_yes_lets_a_call_run_and_only_a_value_is_an_answer() {
        let by = VerdictSource::Client;
        let ends = [End::Yes { by, reason: String::new() }, End::no(by, "r"), End::Value(Value::Bool(true))];
        let allowed = ends.clone().map(|end| end.verdict().allowed);
        let answered = ends.map(|end| matches!(end.reply(), ClientReply::Value(_)));
        assert_eq!((allowed, answered), ([true, false, false], [false, false, true]));
    }

    #[test]
    fn what_is_remembered_has_an_end() {
        let mut asks = Asks::default();
        for n in 0..=limit::SETTLED_REQUESTS_MAX {
            let id = format!("r{n}");
            asks.add(open(&id, permission("c")).0);
            asks.settle(&id.parse().expect("id")).expect("open");
        }
        assert_eq!(asks.settled.len(), limit::SETTLED_REQUESTS_MAX);
        assert!(asks.is_empty());
    }
}
