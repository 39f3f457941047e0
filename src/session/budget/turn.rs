//! A turn and its budgets: who pays, whether it may begin, and how it ends when something is spent.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{Purse, exceeded, payer};
use crate::agent::{Ended, Sink as _, TurnOutcome};
use crate::protocol::{BudgetNotice, EventBody, Spending};
use crate::session::helm::Helm;
use crate::session::runner::Job;
use crate::session::sink::TurnSink;
use crate::session::store_failure;

/// Who pays for the turn. None: it was stopped meanwhile.
///
/// # Errors
/// How the turn ends that cannot begin.
pub(in crate::session) async fn purse(job: &Job) -> Result<Option<Arc<Purse>>, Ended> {
    let purse = match job.sink.purse() {
        // A turn that goes on after a pause has one already.
        Some(purse) => Arc::clone(purse),
        None => match opened(job).await? {
            Some(opened) => Arc::clone(job.sink.pay_from(opened)),
            None => return Ok(None),
        },
    };
    job.helm.hold_to(&job.sink);
    let begins = !job.progress.begun && job.task.is_none();
    let gone = if begins { purse.gone_for_turn() } else { purse.gone_for_request() };
    if let Some(notice) = gone {
        return Err(told_gone(&job.sink, notice));
    }
    if begins {
        job.sink.spend(Spending { turns: 1, ..Spending::default() });
    }
    Ok(Some(purse))
}

/// The purse of a turn that begins, or of one that this server found: then the log says what it has spent before. None: it was
/// stopped meanwhile.
async fn opened(job: &Job) -> Result<Option<Arc<Purse>>, Ended> {
    let tally = job.sink.tally();
    // The round whose calls are held is not over: the log does not have its tokens yet.
    let usage = tally.usage.plus(job.progress.held.usage.unwrap_or_default());
    let turns = u64::from(job.task.is_none());
    let known = Spending { tool_calls: tally.calls, turns, ..Spending::of(&usage) };
    let known = if job.progress.begun { known } else { Spending::default() };
    let payer = payer(&job.terms, job.live.client.clone(), job.budgets.clone());
    let opened = tokio::select! {
        biased;
        () = job.cancel.cancelled() => return Ok(None),
        opened = job.shelf.ledger.purse(&job.live, payer, known) => opened,
    };
    opened.map(Some).map_err(|error| Ended::Failed(store_failure(&error).0))
}

/// Runs a turn: it ends when something of its budgets is spent, and says so. What it does when their time is over is cut off.
pub(in crate::session) async fn run_within<R: Future<Output = TurnOutcome>>(
    run: impl FnOnce(CancellationToken) -> R,
    (sink, helm, purse): (&TurnSink, &Helm, &Purse),
    cancel: &CancellationToken,
) -> TurnOutcome {
    let limit = cancel.child_token();
    let run = run(limit.clone());
    tokio::pin!(run);
    let ended = tokio::select! {
        biased;
        outcome = &mut run => Some(outcome),
        () = purse.time_over() => None,
    };
    let mut outcome = match ended {
        Some(outcome) => outcome,
        None => {
            limit.cancel();
            run.await
        }
    };
    if let Some(notice) = spent_by(&outcome.ended, (helm, purse), cancel) {
        outcome.ended = told_gone(sink, notice);
    }
    outcome
}

/// What was spent that ended a turn, if that is why it ended.
fn spent_by(ended: &Ended, (helm, purse): (&Helm, &Purse), cancel: &CancellationToken) -> Option<BudgetNotice> {
    match ended {
        Ended::Interrupted => helm.gone(),
        Ended::Aborted if !cancel.is_cancelled() => purse.gone_for_request(),
        _ => None,
    }
}

/// The log and the caller are told what is spent.
fn told_gone(sink: &TurnSink, notice: BudgetNotice) -> Ended {
    let ended = Ended::OverBudget(exceeded(&notice));
    // A sink that fails is noticed by the actor.
    let _ = sink.emit(EventBody::BudgetExceeded(notice));
    ended
}
