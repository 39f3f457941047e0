//! What a turn is told from outside while it runs: messages, what clients want of it, and that its budget is spent.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::budget::Purse;
use super::live::Live;
use super::sink::TurnSink;
use crate::agent::{SinkError, Steering, Wish};
use crate::base::BoxFuture;
use crate::protocol::{BudgetNotice, Part};
use crate::store::Waiting;

/// What a turn is told from outside: messages that wait to be put into it, and what is wanted of it.
pub(super) struct Helm {
    live: Arc<Live>,
    messages: Mutex<Vec<Waiting>>,
    arrivals: watch::Sender<()>,
    wish: watch::Sender<Wish>,
    /// Who pays for the turn, once that is known.
    payer: OnceLock<Arc<TurnSink>>,
    /// What of it is spent: then the turn ends.
    gone: OnceLock<BudgetNotice>,
}

impl Helm {
    /// That of a turn for which these messages wait already.
    pub(super) fn with(live: &Arc<Live>, messages: Vec<Waiting>) -> Self {
        Self {
            live: Arc::clone(live),
            messages: Mutex::new(messages),
            arrivals: watch::Sender::default(),
            wish: watch::Sender::default(),
            payer: OnceLock::new(),
            gone: OnceLock::new(),
        }
    }

    /// From now on the turn is held to what that one may spend.
    pub(super) fn hold_to(&self, payer: &Arc<TurnSink>) {
        // A turn that goes on after a pause is held to it already.
        let _ = self.payer.set(Arc::clone(payer));
    }

    /// What is spent that ends the turn. None: nothing, or it ends because a client wants it to.
    pub(super) fn gone(&self) -> Option<BudgetNotice> {
        self.gone.get().filter(|_| *self.wish.borrow() != Wish::Interrupt).cloned()
    }

    /// Counts a call, unless something is gone of what it needs: that.
    fn pay_for_call(&self, purse: &Purse) -> Option<BudgetNotice> {
        match purse.take_call() {
            Ok(nearly) => {
                if let Some(sink) = self.payer.get() {
                    sink.counted(nearly);
                }
                None
            }
            Err(gone) => Some(gone),
        }
    }

    /// What is wanted, where nothing is spent. `gone` says what is.
    fn wish_unless(&self, gone: impl FnOnce(&Purse) -> Option<BudgetNotice>) -> Wish {
        let wish = *self.wish.borrow();
        if wish != Wish::GoOn {
            return wish;
        }
        if self.gone.get().is_none()
            && let Some(notice) = self.payer.get().and_then(|sink| gone(sink.purse()?))
        {
            let _ = self.gone.set(notice);
        }
        if self.gone.get().is_some() { Wish::Interrupt } else { Wish::GoOn }
    }

    /// Adds a message.
    pub(super) fn add(&self, message: Waiting) {
        self.messages.lock().push(message);
        self.arrivals.send_replace(());
    }

    /// Sets what is wanted.
    pub(super) fn wish_for(&self, wish: Wish) {
        self.wish.send_replace(wish);
    }
}

impl Steering for Helm {
    fn take(&self) -> BoxFuture<'_, Result<Vec<Vec<Part>>, SinkError>> {
        // What does not come so far still stands in the turn's row.
        let messages = std::mem::take(&mut *self.messages.lock());
        Box::pin(async move {
            let mut taken = Vec::with_capacity(messages.len());
            for message in messages {
                let said = self.live.said(message).await.map_err(|e| SinkError(e.to_string()))?;
                taken.push(said.content.into_parts());
            }
            Ok(taken)
        })
    }

    fn waits(&self) -> bool {
        !self.messages.lock().is_empty()
    }

    fn arrived(&self) -> BoxFuture<'_, ()> {
        let mut arrivals = self.arrivals.subscribe();
        // The sender lives as long as the future does.
        Box::pin(async move { while !self.waits() && arrivals.changed().await.is_ok() {} })
    }

    fn wish(&self) -> Wish {
        self.wish_unless(Purse::gone_for_request)
    }

    fn may_call(&self) -> bool {
        self.wish_unless(|purse| self.pay_for_call(purse)) == Wish::GoOn
    }

    fn called(&self) -> BoxFuture<'_, ()> {
        let mut wishes = self.wish.subscribe();
        // The sender lives as long as the future does.
        Box::pin(async move { drop(wishes.wait_for(|wish| *wish != Wish::GoOn).await) })
    }
}
