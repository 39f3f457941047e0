//! Cancellation from JavaScript. An `AbortSignal` stays in `js/`, which calls [`CancelHandle::cancel`].

use napi_derive::napi;
use tokio_util::sync::CancellationToken;

/// Cancels what it was given to.
#[napi]
#[derive(Default)]
pub struct CancelHandle {
    token: CancellationToken,
}

#[napi]
impl CancelHandle {
    /// A handle that was not used yet.
    #[napi(constructor, catch_unwind)]
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancels. Harmless when repeated.
    #[napi(catch_unwind)]
    pub fn cancel(&self) {
        self.token.cancel();
    }
}

/// The handle's token, or one that nobody cancels.
pub(super) fn token_of(handle: Option<&CancelHandle>) -> CancellationToken {
    handle.map(|h| h.token.clone()).unwrap_or_default()
}
