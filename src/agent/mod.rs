//! The loop that answers a prompt with a model and tools. Knows nothing of sessions, clients or wires.
//!
//! What it needs of the outside comes as three traits: [`Sink`] takes its events, [`Gate`] gives
//! permission, [`Steering`] has messages that arrived while it runs.

mod acting;
mod actions;
mod batch;
mod breaker;
mod call;
mod calls;
mod claim;
mod compact;
mod counted;
mod delegate;
mod fault;
mod gate;
mod going_on;
mod originals;
mod output;
mod permit;
mod reply;
mod report;
mod rescue;
mod sample;
#[cfg(test)]
mod tests;
mod told;
mod touched;
mod turn;
mod untold;
mod wants;
mod watch;
mod whole;

pub use tokio_util::sync::CancellationToken;

use std::time::Duration;

use crate::base::BoxFuture;
use crate::protocol::{EventBody, Part, PermissionVerdict, ToolCallRequest, ToolDefinition};
use crate::tool::{Arguments, Subject, Veil};

pub use batch::{run_batch, run_each};
pub use breaker::{BreakerLimits, LoopBreaker, Repeated, Step};
pub use call::{CallEnvironment, CallOutcome, run_call};
pub use compact::Compacting;
pub use gate::RulesGate;
pub use sample::TurnSampler;
pub use turn::{Ended, Progress, TurnInput, TurnOutcome, run_turn};
pub use untold::Untold;

/// Events could not be written down. The turn ends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SinkError(pub String);

/// How a tool call ended, with what its events do not say.
#[derive(Debug, Clone, Copy)]
pub struct CallEnd<'a> {
    /// What the call named.
    pub name: &'a str,
    /// With what.
    pub how: CallFate,
    /// How long the tool ran, where that is known; nothing of one that never ran.
    pub ran: Option<Duration>,
}

/// What became of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFate {
    /// It did what it was asked.
    Done,
    /// It ran, and failed.
    Failed,
    /// It ran into its limit of time.
    TimedOut,
    /// It never ran.
    Refused,
}

/// Takes the events of a turn, in order.
pub trait Sink: Send + Sync + 'static {
    /// Hands in one event. Never blocks.
    ///
    /// # Errors
    /// [`SinkError`] when an earlier one could not be written down.
    fn emit(&self, event: EventBody) -> Result<(), SinkError>;

    /// Hears how a call ended, behind the events that say so: for who counts.
    fn call_ended(&self, _end: CallEnd<'_>) {}

    /// An agent makes a call by itself: for who counts.
    fn agent_calls(&self) {}

    /// Whether somebody hears events as they come: what is only a preview of a later one need not be handed in else.
    fn has_audience(&self) -> bool {
        true
    }

    /// Waits until few enough events wait for the disk. Called between events of a flood.
    fn ready(&self) -> BoxFuture<'_, Result<(), SinkError>>;
}

/// A function that takes events. It must not block; nothing waits for it.
impl<F: Fn(EventBody) + Send + Sync + 'static> Sink for F {
    fn emit(&self, event: EventBody) -> Result<(), SinkError> {
        self(event);
        Ok(())
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), SinkError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// What a gate is asked.
#[derive(Debug, Clone, Copy)]
pub struct GateQuestion<'a> {
    /// The call.
    pub request: &'a ToolCallRequest,
    /// The names of our tools that do the like, for a call that is not ours: rules about them are about it too.
    pub like: &'a [&'a str],
    /// The tool, when it is known.
    pub definition: Option<&'a ToolDefinition>,
    /// What patterns are held against.
    pub subject: &'a Subject,
    /// Where its command would start. None: where the tool works, or nobody knows.
    pub place: Option<&'a std::path::Path>,
    /// Whether a person has to be asked whatever the rules allow.
    pub insists: bool,
    /// Whether it is known that the call cannot run, because of its arguments. Nobody is asked about one: where the rules do
    /// not deny it, it is let through to its refusal.
    pub unfit: bool,
    /// Whether somebody said yes to this very call already, to the agent that makes it: nobody is asked again.
    pub asked: bool,
    /// What would happen; computed only when somebody has to be asked.
    pub preview: &'a dyn Preview,
}

/// Computes what a call would do, on demand.
pub trait Preview: Send + Sync + std::fmt::Debug {
    /// What would happen; None: the arguments say it all.
    fn compute<'a>(&'a self, arguments: &'a Arguments) -> BoxFuture<'a, Option<serde_json::Value>>;
}

/// Gives or refuses permission. Fails closed: an error is a no.
pub trait Gate: Send + Sync + 'static {
    /// Decides about one call; may ask a person, and ends soon after `cancel` fires.
    fn check<'a>(
        &'a self,
        question: GateQuestion<'a>,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, PermissionVerdict>;

    /// What a call that was allowed does not get to see when it searches. None: nothing is hidden from it.
    fn veil(&self, _tool: &ToolDefinition) -> Option<Veil> {
        None
    }
}

/// Somebody in the same program who answers permission questions, beside the clients.
pub trait Asker: Send + Sync + 'static {
    /// Whether the call may run, which would do `preview`. Fails closed: an error is a no. Ends soon after `cancel` fires.
    fn ask<'a>(
        &'a self,
        request: &'a ToolCallRequest,
        preview: Option<&'a serde_json::Value>,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, bool>;
}

/// What is wanted of a turn that runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Wish {
    /// That it goes on.
    #[default]
    GoOn,
    /// That it holds at the next boundary.
    Pause,
    /// That it ends at the next boundary.
    Interrupt,
}

/// What a turn that runs is told from outside. It looks at its boundaries only (see `turn`), and at a wish before the
/// messages: interrupt before pause before steer.
pub trait Steering: Send + Sync + 'static {
    /// Takes all messages that wait, oldest first.
    ///
    /// # Errors
    /// What is kept elsewhere cannot be read: the turn ends.
    fn take(&self) -> BoxFuture<'_, Result<Vec<Vec<Part>>, SinkError>>;

    /// Whether messages wait.
    fn waits(&self) -> bool;

    /// Ends once messages wait.
    fn arrived(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    /// What is wanted now.
    fn wish(&self) -> Wish {
        Wish::GoOn
    }

    /// Whether a call of a tool may begin: asked once before each. No is what `wish` says then, too.
    fn may_call(&self) -> bool {
        self.wish() == Wish::GoOn
    }

    /// Ends once something else is wanted than that the turn goes on.
    fn called(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}
