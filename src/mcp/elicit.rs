//! Servers that want something of a person while they work on a call (`elicitation/create`): whom to ask, and their answer.
//!
//! A server serves many sessions over one connection, and says not always for which call it asks. Invariant: a question goes to
//! the clients of the call that it belongs to, or to nobody. Over HTTP that is the call whose answer it came with; over pipes it is
//! the only call that runs, or one of several of the same turn. Fails closed: where that is not known, and wherever nobody
//! answers, the server hears `cancel`.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::ErrorData;
use rmcp::model::{ElicitResult, ElicitationAction, Extensions, RequestId};
use rmcp::service::InboundStreamOrigin;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::protocol::FormReply;
use crate::tool::{Form, Line};

/// How long a question waits for word that its call was sent: both are on their way at once.
const SENT_WAIT: Duration = Duration::from_secs(1);

/// The calls that a server works on, and the clients that each can ask.
#[derive(Debug, Default)]
pub(super) struct Calls {
    running: Mutex<Running>,
    sent: Notify,
}

#[derive(Debug, Default)]
struct Running {
    next: u64,
    calls: Vec<Call>,
}

#[derive(Debug)]
struct Call {
    number: u64,
    /// The protocol's id of it. None: it was not sent yet.
    id: Option<RequestId>,
    line: Line,
    /// Fires when the call is over.
    over: CancellationToken,
}

/// A call that runs, until it is dropped.
#[derive(Debug)]
pub(super) struct Underway {
    calls: Arc<Calls>,
    number: u64,
    _over: DropGuard,
}

impl Underway {
    /// The call was sent under this id.
    pub(super) fn sent(&self, id: &RequestId) {
        let mut running = self.calls.running.lock();
        if let Some(call) = running.calls.iter_mut().find(|call| call.number == self.number) {
            call.id = Some(id.clone());
        }
        drop(running);
        self.calls.sent.notify_waiters();
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.calls.running.lock().calls.retain(|call| call.number != self.number);
    }
}

/// Who is asked, and how long there is somebody who wants to know.
#[derive(Debug)]
struct Audience {
    line: Line,
    calls: Vec<CancellationToken>,
}

impl Audience {
    /// Waits for the end of the last call that the question may belong to.
    async fn over(&self) {
        for call in &self.calls {
            call.cancelled().await;
        }
    }
}

impl Calls {
    /// Takes a call in whose questions go over this line.
    pub(super) fn begin(self: &Arc<Self>, line: &Line) -> Underway {
        let over = CancellationToken::new();
        let mut running = self.running.lock();
        running.next += 1;
        let number = running.next;
        running.calls.push(Call { number, id: None, line: line.clone(), over: over.clone() });
        Underway { calls: Arc::clone(self), number, _over: over.drop_guard() }
    }

    /// The clients of the call that a question belongs to. An error: why that is nobody.
    async fn audience(&self, origin: Option<&InboundStreamOrigin>) -> Result<Audience, &'static str> {
        let Some(InboundStreamOrigin::OutboundRequest(id)) = origin else { return self.only_one() };
        let known = async {
            loop {
                let sent = self.sent.notified();
                tokio::pin!(sent);
                // From now on no word is missed.
                sent.as_mut().enable();
                if let Some(audience) = self.of_call(id) {
                    return audience;
                }
                sent.await;
            }
        };
        timeout(SENT_WAIT, known).await.map_err(|_| "the call that it asks for is over")
    }

    fn of_call(&self, id: &RequestId) -> Option<Audience> {
        let running = self.running.lock();
        let call = running.calls.iter().find(|call| call.id.as_ref() == Some(id))?;
        Some(Audience { line: call.line.clone(), calls: vec![call.over.clone()] })
    }

    fn only_one(&self) -> Result<Audience, &'static str> {
        let running = self.running.lock();
        let [first, others @ ..] = running.calls.as_slice() else { return Err("no call runs that it could ask for") };
        if !others.iter().all(|call| call.line.joins(&first.line)) {
            return Err("it works for several sessions, and does not say for which it asks");
        }
        let line = if others.is_empty() { first.line.clone() } else { first.line.for_turn() };
        Ok(Audience { line, calls: running.calls.iter().map(|call| call.over.clone()).collect() })
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
        let audience = match self.audience(extensions.get::<InboundStreamOrigin>()).await {
            Ok(audience) => audience,
            Err(why) => {
                tracing::warn!(server = name, why, "a tool server asks, and nobody can be asked");
                return Ok(ElicitResult::new(ElicitationAction::Cancel));
            }
        };
        let reply = tokio::select! {
            biased;
            () = gone.cancelled() => FormReply::Cancelled("the server waits no longer".to_owned()),
            () = audience.over() => FormReply::Cancelled("the call is over".to_owned()),
            reply = form.put(&audience.line) => reply,
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

    fn id(number: i64) -> RequestId {
        RequestId::Number(number)
    }

    #[tokio::test]
    async fn over_pipes_only_the_calls_of_one_turn_have_clients() {
        let calls = Arc::new(Calls::default());
        assert!(calls.audience(None).await.is_err(), "no call runs");
        let (one, other) = (line(), line());
        let first = calls.begin(&one.for_call("a"));
        let alone = calls.audience(None).await.expect("the only one");
        assert!(alone.line.joins(&one) && format!("{:?}", alone.line).contains("\"a\""), "{alone:?}");
        let second = calls.begin(&one.for_call("b"));
        let both = calls.audience(None).await.expect("one turn");
        assert!(both.line.joins(&one) && format!("{:?}", both.line).contains("call_id: None"), "{both:?}");
        let third = calls.begin(&other.for_call("c"));
        assert!(calls.audience(None).await.is_err(), "whose is it?");
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
        let (first, second) = (calls.begin(&one), calls.begin(&other));
        first.sent(&id(1));
        let of = |number| InboundStreamOrigin::OutboundRequest(id(number));
        assert!(calls.audience(Some(&of(1))).await.expect("sent").line.joins(&one));
        // The question may be faster than the word that its call was sent.
        let origin = of(2);
        let (asked, ()) = tokio::join!(calls.audience(Some(&origin)), async {
            tokio::task::yield_now().await;
            second.sent(&id(2));
        });
        assert!(asked.expect("sent meanwhile").line.joins(&other));
        drop(second);
        tokio::time::pause();
        assert!(calls.audience(Some(&of(2))).await.is_err(), "it is over");
    }
}
