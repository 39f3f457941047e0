//! Servers that want something of a person while they work on a call (`elicitation/create`): whom to ask, and their answer.
//!
//! A server serves many sessions over one connection, and says not always for which call it asks. Invariant: a question goes to
//! the clients of the call that it belongs to, or to nobody. Over HTTP that is the call whose answer it came with; over pipes it is
//! the only call that runs, or one of several of the same turn. A call that was left without an answer may still ask: for as long as
//! that must be reckoned with, nobody else is asked in its place. Fails closed: where it is not known whose a question is, and
//! wherever nobody answers, the server hears `cancel`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rmcp::ErrorData;
use rmcp::model::{ElicitResult, ElicitationAction, Extensions, ProgressToken, RequestId};
use rmcp::service::InboundStreamOrigin;
use serde_json::Value;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{OnProgress, Progress};
use crate::protocol::{FormReply, SessionId};
use crate::tool::{Form, Line};

/// How long the end of a question is waited for that nobody wants answered any more.
const END_WAIT: Duration = Duration::from_secs(5);

/// How long a server that does not heed a cancellation may ask for the call that was cancelled. It is a guess: twice as long
/// as any of our own questions waits.
const LEFT_MAX: Duration = Duration::from_secs(600);
/// How long the clients of the same session wait for the server's word that it has read of the cancellation.
pub(super) const READ_WAIT: Duration = Duration::from_secs(5);
/// Calls that were left and are remembered. With more, nobody is asked.
const LEFT_CALLS_MAX: usize = 256;

/// The calls that a server works on, and the clients that each can ask.
#[derive(Debug, Default)]
pub(super) struct Calls {
    running: Mutex<Running>,
}

#[derive(Debug, Default)]
struct Running {
    next: u64,
    calls: Vec<Call>,
    /// Those that were sent, and that nobody waits for any more. The oldest first.
    left: VecDeque<Left>,
}

/// A call without an answer, of which the server may still think.
#[derive(Debug)]
struct Left {
    number: u64,
    session: Option<SessionId>,
    since: Instant,
    /// The server has read that it was cancelled.
    read: bool,
}

impl Left {
    /// Whether a question may be this one's, and must not be put to the clients of `line`.
    fn is_in_the_way(&self, line: &Line) -> bool {
        let same = self.session.is_some() && self.session.as_ref() == line.session();
        if same { !self.read && self.since.elapsed() < READ_WAIT } else { self.since.elapsed() < LEFT_MAX }
    }
}

struct Call {
    number: u64,
    /// The protocol's id of it. None: it was not sent yet.
    id: Option<RequestId>,
    /// The server may have it, and has not answered it.
    owed: bool,
    line: Line,
    /// What its progress is told under.
    token: Option<ProgressToken>,
    on_progress: Option<OnProgress>,
    /// Answers of models that were asked for.
    samples: usize,
    /// Fires when the call is over.
    over: CancellationToken,
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call").field("number", &self.number).field("id", &self.id).finish_non_exhaustive()
    }
}

impl Call {
    fn audience(&self, line: Line, calls: Vec<CancellationToken>) -> Audience {
        let call_id = self.line.call_id().unwrap_or_default().to_owned();
        Audience { line, call_id, number: self.number, calls }
    }
}

/// A call that runs, until it is dropped.
#[derive(Debug)]
pub(super) struct Underway {
    calls: Arc<Calls>,
    number: u64,
    _over: DropGuard,
}

impl Underway {
    fn with(&self, change: impl FnOnce(&mut Call)) {
        self.calls.running.lock().calls.iter_mut().find(|call| call.number == self.number).map(change);
    }

    /// The call is about to be sent.
    pub(super) fn sending(&self) {
        self.with(|call| call.owed = true);
    }

    /// What its requests bear, so that it is known under which id they are sent.
    pub(super) fn mark(&self) -> Mark {
        Mark { calls: Arc::clone(&self.calls), number: self.number }
    }

    /// The server has nothing to do for it any more.
    pub(super) fn answered(&self) {
        self.with(|call| call.owed = false);
    }

    /// Says when the server has read that the call was cancelled.
    pub(super) fn until_read(&self) -> impl FnOnce() + Send + use<> {
        let (calls, number) = (Arc::clone(&self.calls), self.number);
        move || {
            let mut running = calls.running.lock();
            running.left.iter_mut().filter(|left| left.number == number).for_each(|left| left.read = true);
        }
    }
}

/// Which call a request belongs to.
#[derive(Debug, Clone)]
pub(super) struct Mark {
    calls: Arc<Calls>,
    number: u64,
}

impl Mark {
    /// The request is written under this id, and its progress is told under this token.
    pub(super) fn sent(&self, id: &RequestId, token: Option<ProgressToken>) {
        let mut running = self.calls.running.lock();
        if let Some(call) = running.calls.iter_mut().find(|call| call.number == self.number) {
            call.id = Some(id.clone());
            call.token = token;
        }
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        let mut running = self.calls.running.lock();
        let Some(at) = running.calls.iter().position(|call| call.number == self.number) else { return };
        let Call { number, line, owed, .. } = running.calls.remove(at);
        if owed {
            let since = Instant::now();
            let left = Left { number, session: line.session().cloned(), since, read: false };
            if running.left.len() <= LEFT_CALLS_MAX {
                running.left.push_back(left);
            } else if let Some(last) = running.left.back_mut() {
                // There are more than are told apart: the last one stands for all that follow.
                *last = Left { session: None, ..left };
            }
        }
    }
}

/// Who is asked, and how long there is somebody who wants to know.
#[derive(Debug)]
pub(super) struct Audience {
    line: Line,
    /// The call that it belongs to, or the first of those that it may belong to.
    call_id: String,
    number: u64,
    calls: Vec<CancellationToken>,
}

impl Audience {
    pub(super) fn line(&self) -> &Line {
        &self.line
    }

    pub(super) fn call_id(&self) -> &str {
        &self.call_id
    }

    /// Waits for the end of the last call that the question may belong to.
    pub(super) async fn over(&self) {
        for call in &self.calls {
            call.cancelled().await;
        }
    }
}

impl Calls {
    /// Takes a call in whose questions go over this line, and whose progress is told there.
    pub(super) fn begin(self: &Arc<Self>, line: &Line, on_progress: Option<OnProgress>) -> Underway {
        let over = CancellationToken::new();
        let mut running = self.running.lock();
        running.next += 1;
        let number = running.next;
        running.calls.push(Call {
            number,
            id: None,
            owed: false,
            line: line.clone(),
            token: None,
            on_progress,
            samples: 0,
            over: over.clone(),
        });
        Underway { calls: Arc::clone(self), number, _over: over.drop_guard() }
    }

    /// A new connection: nobody knows of calls that were left on the one before.
    pub(super) fn begin_anew(&self) {
        self.running.lock().left.clear();
    }

    /// Tells a call of its progress. One that is over is not told.
    pub(super) fn goes_on(&self, token: &ProgressToken, progress: Progress) {
        let running = self.running.lock();
        let told = running.calls.iter().find(|call| call.token.as_ref() == Some(token));
        let told = told.and_then(|call| call.on_progress.clone());
        drop(running);
        if let Some(told) = told {
            told(progress);
        }
    }

    /// Whose model is asked, and how often it was for the same call, this time included. An error: why that is nobody's.
    pub(super) async fn samples_for(
        &self,
        origin: Option<&InboundStreamOrigin>,
    ) -> Result<(Audience, usize), &'static str> {
        let audience = self.audience(origin)?;
        let mut running = self.running.lock();
        let Some(call) = running.calls.iter_mut().find(|call| call.number == audience.number) else {
            return Err("the call that it asks for is over");
        };
        call.samples += 1;
        let samples = call.samples;
        drop(running);
        Ok((audience, samples))
    }

    /// The clients of the call that a question belongs to. An error: why that is nobody.
    fn audience(&self, origin: Option<&InboundStreamOrigin>) -> Result<Audience, &'static str> {
        let Some(InboundStreamOrigin::OutboundRequest(id)) = origin else { return self.only_one() };
        self.of_call(id).ok_or("the call that it asks for is over")
    }

    fn of_call(&self, id: &RequestId) -> Option<Audience> {
        let running = self.running.lock();
        let call = running.calls.iter().find(|call| call.id.as_ref() == Some(id))?;
        Some(call.audience(call.line.clone(), vec![call.over.clone()]))
    }

    fn only_one(&self) -> Result<Audience, &'static str> {
        let mut running = self.running.lock();
        while running.left.front().is_some_and(|left| left.since.elapsed() >= LEFT_MAX) {
            running.left.pop_front();
        }
        let [first, others @ ..] = running.calls.as_slice() else { return Err("no call runs that it could ask for") };
        if running.left.len() > LEFT_CALLS_MAX || running.left.iter().any(|left| left.is_in_the_way(&first.line)) {
            return Err("it may still ask for a call that was cancelled, and does not say for which it asks");
        }
        if !others.iter().all(|call| call.line.joins(&first.line)) {
            return Err("it works for several sessions, and does not say for which it asks");
        }
        let line = if others.is_empty() { first.line.clone() } else { first.line.for_turn() };
        Ok(first.audience(line, running.calls.iter().map(|call| call.over.clone()).collect()))
    }

    /// Puts what the server `name` wants to a person, until there is an answer, or nobody wants it any more.
    ///
    /// # Errors
    /// The refusal of a form that cannot be put.
    pub(super) async fn elicit(
        &self,
        name: &str,
        (message, schema): (&str, &Value),
        (extensions, gone): (&Extensions, &CancellationToken),
    ) -> Result<ElicitResult, ErrorData> {
        let form = Form::read(&format!("The tool server `{name}`"), message, schema)
            .map_err(|problem| ErrorData::invalid_params(format!("requestedSchema: {problem}"), None))?;
        let audience = match self.audience(extensions.get::<InboundStreamOrigin>()) {
            Ok(audience) => audience,
            Err(why) => {
                tracing::warn!(server = name, why, "a tool server asks, and nobody can be asked");
                return Ok(ElicitResult::new(ElicitationAction::Cancel));
            }
        };
        let unwanted = audience.line.cancel().child_token();
        let line = audience.line.until(unwanted.clone());
        let put = form.put(&line);
        tokio::pin!(put);
        let why = tokio::select! {
            biased;
            reply = &mut put => Err(reply),
            () = gone.cancelled() => Ok("the server waits no longer"),
            () = audience.over() => Ok("the call is over"),
        };
        let reply = match why {
            Err(reply) => reply,
            Ok(why) => {
                unwanted.cancel();
                // An answer may have been faster. Then it stands in the log, and the server is told the same.
                let end = timeout(END_WAIT, put).await;
                end.unwrap_or_else(|_| FormReply::Cancelled(why.to_owned()))
            }
        };
        Ok(match reply {
            FormReply::Filled(content) => {
                ElicitResult::new(ElicitationAction::Accept).with_content(Value::Object(content))
            }
            FormReply::Declined(_) => ElicitResult::new(ElicitationAction::Decline),
            FormReply::Cancelled(why) => {
                tracing::debug!(server = name, why, "what a tool server asked has no answer");
                ElicitResult::new(ElicitationAction::Cancel)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::BoxFuture;
    use crate::hook::{Asked, Clients, Notice};
    use crate::protocol::ClientReply;

    struct Nobody(#[allow(dead_code, reason = "two of them must not share an address")] u8);

    impl Clients for Nobody {
        fn ask(&self, _: Asked) -> BoxFuture<'_, ClientReply> {
            Box::pin(std::future::pending())
        }

        fn notify(&self, _: Notice) {}
        fn show(&self, _: Option<String>, _: crate::protocol::Display) {}
    }

    fn line() -> Line {
        Line::new(Arc::new(Nobody(0)), CancellationToken::new())
    }

    /// The clients of a session, in a turn of its own.
    struct Of(SessionId);

    impl Clients for Of {
        fn session(&self) -> Option<&SessionId> {
            Some(&self.0)
        }

        fn ask(&self, _: Asked) -> BoxFuture<'_, ClientReply> {
            Box::pin(std::future::pending())
        }

        fn notify(&self, _: Notice) {}
        fn show(&self, _: Option<String>, _: crate::protocol::Display) {}
    }

    fn turn_of(session: &str) -> Line {
        Line::new(Arc::new(Of(session.parse().expect("an id"))), CancellationToken::new())
    }

    /// A server that was told of a cancellation may have asked before it read that, or not heed it at all.
    #[tokio::test]
    async fn what_is_asked_for_a_call_that_was_left_goes_to_nobody_else() {
        let calls = Arc::new(Calls::default());
        let leave = |line: &Line| {
            let call = calls.begin(line, None);
            call.sending();
            call.mark().sent(&id(1), Some(ProgressToken(id(1))));
            call.until_read()
        };
        let asks = async |line: &Line| {
            let call = calls.begin(line, None);
            call.sending();
            let audience = calls.audience(None);
            call.answered();
            audience.is_ok()
        };
        let (mine, later, others) = (turn_of("mine"), turn_of("mine"), turn_of("others"));
        assert!(asks(&mine).await && asks(&others).await, "all were answered");
        drop(calls.begin(&mine, None));
        assert!(asks(&others).await, "one that was not sent is unknown to the server");
        let read = leave(&mine);
        assert!(!asks(&later).await && !asks(&others).await, "whose is it?");
        read();
        assert!(asks(&later).await, "it has read it");
        assert!(!asks(&others).await, "one that does not heed it may still ask");
        calls.begin_anew();
        assert!(asks(&others).await, "a new program knows nothing of it");
        for _ in 0..2 * LEFT_CALLS_MAX {
            leave(&mine)();
        }
        assert_eq!(calls.running.lock().left.len(), LEFT_CALLS_MAX + 1);
        assert!(!asks(&later).await && !asks(&others).await, "too many to be told apart");
    }

    /// A client whose answer comes at the moment at which nobody wants it any more.
    struct Faster;

    impl Clients for Faster {
        fn ask(&self, asked: Asked) -> BoxFuture<'_, ClientReply> {
            Box::pin(async move {
                asked.cancel.cancelled().await;
                ClientReply::Value(Value::Bool(true))
            })
        }

        fn notify(&self, _: Notice) {}
        fn show(&self, _: Option<String>, _: crate::protocol::Display) {}
    }

    #[tokio::test]
    async fn an_answer_that_was_faster_than_the_end_of_its_call_is_told() {
        let calls = Arc::new(Calls::default());
        let call = calls.begin(&Line::new(Arc::new(Faster), CancellationToken::new()), None);
        let schema = serde_json::json!({
            "type": "object", "properties": { "sure": { "type": "boolean" } }, "required": ["sure"],
        });
        let (extensions, gone) = (Extensions::default(), CancellationToken::new());
        let asking = calls.elicit("s", ("Sure?", &schema), (&extensions, &gone));
        let ending = async {
            tokio::task::yield_now().await;
            drop(call);
        };
        let (told, ()) = tokio::join!(asking, ending);
        assert_eq!(told.expect("a form that can be put").action, ElicitationAction::Accept);
    }

    fn id(number: i64) -> RequestId {
        RequestId::Number(number)
    }

    #[tokio::test]
    async fn over_pipes_only_the_calls_of_one_turn_have_clients() {
        let calls = Arc::new(Calls::default());
        assert!(calls.audience(None).is_err(), "no call runs");
        let (one, other) = (line(), line());
        let first = calls.begin(&one.for_call("a"), None);
        let alone = calls.audience(None).expect("the only one");
        assert!(alone.line.joins(&one) && format!("{:?}", alone.line).contains("\"a\""), "{alone:?}");
        let second = calls.begin(&one.for_call("b"), None);
        let both = calls.audience(None).expect("one turn");
        assert!(both.line.joins(&one) && format!("{:?}", both.line).contains("call_id: None"), "{both:?}");
        let third = calls.begin(&other.for_call("c"), None);
        assert!(calls.audience(None).is_err(), "whose is it?");
        drop(third);
        drop(first);
        assert!(timeout(Duration::from_millis(10), both.over()).await.is_err(), "one of them still runs");
        drop(second);
        both.over().await;
    }

    #[tokio::test]
    async fn over_http_it_is_the_call_whose_answer_it_came_with() {
        let calls = Arc::new(Calls::default());
        let (one, other) = (line(), line());
        let (first, second) = (calls.begin(&one, None), calls.begin(&other, None));
        first.mark().sent(&id(1), Some(ProgressToken(id(1))));
        let of = |number| InboundStreamOrigin::OutboundRequest(id(number));
        assert!(calls.audience(Some(&of(1))).expect("sent").line.joins(&one));
        assert!(calls.audience(Some(&of(2))).is_err(), "nobody was asked under that id");
        second.mark().sent(&id(2), None);
        assert!(calls.audience(Some(&of(2))).expect("sent").line.joins(&other));
        drop(second);
        assert!(calls.audience(Some(&of(2))).is_err(), "it is over");
    }
}
