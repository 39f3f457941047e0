//! What comes out of a model that is an agent: it runs a loop and tools of its own, and asks.
//!
//! Such a model answers one request with a whole turn. It keeps sessions of its own, so it is told what of
//! the conversation it knows already ([`AgentSession`]), and what it wants of its host comes as events with a
//! reply channel: permission ([`AgentEvent::Ask`]), calls that the host runs ([`AgentEvent::Run`]), and forms ([`AgentEvent::Fill`]).
//! A reply that is dropped unsent is a no. What a client of ours wants done with our tools comes the same way
//! ([`AgentEvent::Carry`]), from a model that does nothing else.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::base::ear::Ear;
use crate::permission::Subject;
use crate::protocol::{
    ErrorBody, EventBody, FormReply, Part, PermissionVerdict, SessionId, ToolCallRequest, ToolCallResult,
    ToolDefinition,
};

/// The session that an agent keeps for one of ours, and how much of the conversation it has heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSession {
    /// The agent: the id of its model.
    pub agent: String,
    /// The agent's own id of it.
    pub id: String,
    /// Messages of the conversation, from the first, that are part of it.
    pub messages: usize,
    /// It is that of another session of ours, out of which this one came behind that event of the other: it is to be forked, and is
    /// left alone itself. None: it is ours.
    pub fork_of: Option<(SessionId, u64)>,
}

/// The id of the model of turns that run a client's own calls, see [`AgentEvent::Carry`].
pub const ERRANDS_MODEL_ID: &str = "client/calls";

/// What an agent does, says of itself, or wants.
#[derive(Debug, Clone, PartialEq)]
pub enum AgentEvent {
    /// The turn runs in this session of the agent's. Comes before anything else.
    Session {
        /// The agent's own id of it.
        id: String,
    },
    /// It takes what a user says while it works: here. Comes before anything that it says.
    Steerable(Steer),
    /// Something that it says of itself, for the log: its plan, its options, a notice.
    Told(Box<EventBody>),
    /// What it calls the conversation.
    Title(String),
    /// It has begun a call of its own.
    CallStarted(ToolCallRequest),
    /// What that call has put out so far goes on with this. A preview.
    CallOutput {
        /// The call.
        id: String,
        /// The piece.
        text: String,
    },
    /// That call has ended. Exactly one for each start, unless the stream ends before.
    CallEnded(ToolCallResult),
    /// It asks whether a call of its own may run.
    Ask(Box<Question>, Reply<PermissionVerdict>),
    /// It wants a call of ours run: through hooks, permission and registry, as any other.
    Run(Box<HostCall>, Reply<ToolCallResult>),
    /// It wants a person to fill in a form.
    Fill(Box<FormRequest>, Reply<FormReply>),
    /// A client of ours wants a call of ours run, as a model's would be. It works on what earlier calls of its session saw.
    Carry(Box<Errand>, Reply<Carried>),
}

/// A call that a client wants run.
#[derive(Debug, Clone, PartialEq)]
pub struct Errand {
    /// The call.
    pub request: ToolCallRequest,
    /// Aborts this call and no other.
    pub cancel: CancellationToken,
}

/// What came of one.
#[derive(Debug, Clone, PartialEq)]
pub struct Carried {
    /// Its result.
    pub result: ToolCallResult,
    /// What hooks found in it.
    pub findings: Vec<String>,
    /// Why it failed, when it failed by itself.
    pub failure: Option<ErrorBody>,
}

/// Where an agent takes what a user says while it works. The answer: whether it has; what it has not is said to it again.
#[derive(Debug, Clone)]
pub struct Steer(pub mpsc::Sender<(Vec<Part>, Reply<bool>)>);

impl PartialEq for Steer {
    fn eq(&self, other: &Self) -> bool {
        self.0.same_channel(&other.0)
    }
}

/// A form that an agent wants filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct FormRequest {
    /// Who asks, as a person is told.
    pub who: String,
    /// The call of its own that it belongs to, if it belongs to one.
    pub call_id: Option<String>,
    /// What it is about.
    pub message: String,
    /// What is to be filled in: the JSON Schema of an object.
    pub schema: serde_json::Value,
}

/// A call that an agent asks about, in the terms of our rules.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// The call; its name is the agent's own.
    pub request: ToolCallRequest,
    /// The names of our tools that do the like: a rule about one of them is about this call too.
    pub like: &'static [&'static str],
    /// What the agent says about the tool: category and annotations.
    pub definition: ToolDefinition,
    /// What it touches.
    pub subject: Subject,
    /// What would happen, for the person who is asked.
    pub preview: Option<serde_json::Value>,
}

/// What leave an agent has for a call of ours before it comes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Leave {
    /// None: it is judged as any other call.
    #[default]
    None,
    /// Somebody was asked about this very call and said yes: nobody is asked again, and what is denied stays denied.
    Asked,
    /// Whatever it is: nobody is asked, and a denial is none.
    Full,
}

impl Leave {
    /// Full, or none.
    pub fn full_if(given: bool) -> Self {
        if given { Self::Full } else { Self::None }
    }
}

/// A call of one of our tools that an agent wants.
#[derive(Debug, Clone)]
pub struct HostCall {
    /// The call.
    pub request: ToolCallRequest,
    /// What leave the agent has for it already.
    pub leave: Leave,
    /// Who hears what it does while it runs.
    pub ear: Heard,
    /// Ends it before the turn is over.
    pub stop: CancellationToken,
}

impl PartialEq for HostCall {
    fn eq(&self, other: &Self) -> bool {
        (&self.request, self.leave, &self.ear) == (&other.request, other.leave, &other.ear)
    }
}

/// Who hears what a call does. Compared by who it is.
#[derive(Debug, Clone, Default)]
pub struct Heard(pub Option<Arc<dyn Ear>>);

impl PartialEq for Heard {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        }
    }
}

/// Where an answer goes. The first one counts; clones share it.
#[derive(Debug)]
pub struct Reply<T>(Arc<Mutex<Option<oneshot::Sender<T>>>>);

impl<T> Reply<T> {
    /// A channel for one answer. The receiver fails when every clone is gone without one.
    pub fn channel() -> (Self, oneshot::Receiver<T>) {
        let (sender, receiver) = oneshot::channel();
        (Self(Arc::new(Mutex::new(Some(sender)))), receiver)
    }

    /// Answers. Nothing happens when it was answered before, or nobody waits any more.
    pub fn send(&self, answer: T) {
        if let Some(sender) = self.0.lock().take() {
            let _ = sender.send(answer);
        }
    }
}

impl<T> Clone for Reply<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> PartialEq for Reply<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_answer_counts_and_none_is_an_error() {
        let (reply, answer) = Reply::channel();
        let copy = reply.clone();
        assert_eq!(reply, copy);
        copy.send(1);
        reply.send(2);
        assert_eq!(answer.await, Ok(1));
        let (dropped, answer) = Reply::<u8>::channel();
        drop(dropped);
        assert!(answer.await.is_err());
    }
}
