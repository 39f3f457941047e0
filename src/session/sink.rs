//! Where a turn's events go: into the journal, and to those who count.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::budget::Purse;
use super::journal::Journal;
use super::metered::{count_call, tool_name};
use super::tally::Tally;
use super::traced::TurnTrace;
use crate::agent::{CallEnd, Sink, SinkError};
use crate::base::BoxFuture;
use crate::base::metrics::meters::Meters;
use crate::base::trace::Origin;
use crate::protocol::{BudgetNotice, EventBody, Spending, TurnId, TurnStatus, TurnTask};
use crate::store::Write;
use crate::tool::Registry;

/// Takes a turn's events into the journal, and counts.
pub(super) struct TurnSink {
    journal: Arc<Journal>,
    turn: TurnId,
    state: Mutex<SinkState>,
    /// Who counts the calls, and the tools that there are.
    counts: OnceLock<(Arc<Meters>, Arc<Registry>)>,
    trace: Mutex<Option<TurnTrace>>,
    /// Who pays for the turn.
    purse: OnceLock<Arc<Purse>>,
}

struct SinkState {
    closed: bool,
    tally: Tally,
}

impl TurnSink {
    /// The sink of a turn whose opening is in the log already.
    pub(super) fn new(journal: Arc<Journal>, turn: TurnId, task: Option<&TurnTask>) -> Arc<Self> {
        Self::going_on(journal, turn, Tally::after_opening(task))
    }

    /// The sink of a turn of which so much is in the log.
    pub(super) fn going_on(journal: Arc<Journal>, turn: TurnId, tally: Tally) -> Arc<Self> {
        let state = Mutex::new(SinkState { closed: false, tally });
        let (counts, purse) = (OnceLock::new(), OnceLock::new());
        Arc::new(Self { journal, turn, state, counts, trace: Mutex::default(), purse })
    }

    /// So far.
    pub(super) fn tally(&self) -> Tally {
        self.state.lock().tally
    }

    /// From now on the calls of these tools are counted.
    pub(super) fn count_calls(&self, meters: &Arc<Meters>, registry: &Arc<Registry>) {
        // A turn that goes on after a pause may know already.
        let _ = self.counts.set((Arc::clone(meters), Arc::clone(registry)));
    }

    /// From now on a collector is told of the turn.
    pub(super) fn trace(&self, trace: TurnTrace) {
        *self.trace.lock() = Some(trace);
    }

    /// The collector is told how the turn ended.
    pub(super) fn end_trace(&self, status: TurnStatus) {
        if let Some(trace) = self.trace.lock().take() {
            trace.end(status);
        }
    }

    /// Where what the turn does comes from.
    pub(super) fn origin(&self) -> Origin {
        self.trace.lock().as_ref().map(TurnTrace::origin).unwrap_or_default()
    }

    /// Who pays, once that is known.
    pub(super) fn purse(&self) -> Option<&Arc<Purse>> {
        self.purse.get()
    }

    /// From now on that one pays; one that paid before still does.
    pub(super) fn pay_from(&self, purse: Arc<Purse>) -> &Arc<Purse> {
        self.purse.get_or_init(|| purse)
    }

    /// What the turn has spent, which works no longer.
    pub(super) fn spent(&self) -> Spending {
        self.purse.get().map_or_else(Spending::default, |purse| {
            purse.end();
            purse.spent()
        })
    }

    /// Counts what is spent.
    pub(super) fn spend(&self, more: Spending) {
        let Some(purse) = self.purse.get() else { return };
        self.counted(purse.charge(more));
    }

    /// Something was counted, with which that is nearly gone.
    pub(super) fn counted(&self, nearly_gone: Vec<BudgetNotice>) {
        for notice in nearly_gone {
            // A turn that has ended says nothing more.
            let _ = self.emit(EventBody::BudgetWarning(notice));
        }
        // What the client has spent is written down with the next events.
        if let Some(row) = self.purse.get().and_then(|purse| purse.row_of_client()) {
            self.journal.attach(Write::SaveSpending(Box::new(row)));
        }
    }

    /// What waits until nobody can be in this server's place. None: nobody is.
    pub(super) fn out_of_touch(&self) -> Option<BoxFuture<'static, ()>> {
        self.journal.out_of_touch()
    }

    /// Takes nothing more: the turn has its end.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
    }
}

impl Sink for TurnSink {
    fn emit(&self, event: EventBody) -> Result<(), SinkError> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(SinkError("the turn has ended".into()));
        }
        self.journal.emit(&self.turn, &event).map_err(|e| SinkError(e.to_string()))?;
        state.tally.push(&event);
        drop(state);
        if let Some((_, registry)) = self.counts.get()
            && let Some(trace) = self.trace.lock().as_mut()
        {
            trace.push(&event, |name| tool_name(registry, name));
        }
        Ok(())
    }

    fn call_ended(&self, end: CallEnd<'_>) {
        if let Some((meters, registry)) = self.counts.get() {
            count_call(meters, registry, &end);
        }
    }

    fn agent_calls(&self) {
        self.spend(Spending { tool_calls: 1, ..Spending::default() });
    }

    fn has_audience(&self) -> bool {
        self.journal.is_read()
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), SinkError>> {
        Box::pin(async { self.journal.ready().await.map_err(|e| SinkError(e.to_string())) })
    }
}
