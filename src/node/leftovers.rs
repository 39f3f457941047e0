//! The end of the process, and of a worker thread, for what tools have left behind.

use std::sync::{Arc, Weak};

use napi_derive::napi;
use parking_lot::Mutex;

use crate::tool::Scope;

/// Ends what tools have left running, and removes what they keep in files. Blocks.
#[napi(catch_unwind)]
pub fn end_estates() {
    crate::tool::end_estates();
}

/// The scopes of one environment's registries: a worker that is terminated drops nothing, and hears of nothing.
#[derive(Default)]
pub(super) struct Leftovers {
    scopes: Mutex<Vec<Weak<Scope>>>,
}

impl Leftovers {
    /// Takes note of a registry's scope.
    pub(super) fn note(&self, scope: &Arc<Scope>) {
        let mut scopes = self.scopes.lock();
        // Those that are gone go before the list grows.
        if scopes.len() == scopes.capacity() {
            scopes.retain(|scope| scope.strong_count() > 0);
        }
        scopes.push(Arc::downgrade(scope));
    }

    /// Ends what they have left running, calls too. Blocks.
    pub(super) fn end(&self) {
        let scopes = std::mem::take(&mut *self.scopes.lock());
        for scope in scopes.iter().filter_map(Weak::upgrade) {
            scope.share().end_estate();
        }
    }
}
