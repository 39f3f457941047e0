//! A body that ends early: with the token that was shown for it.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// A body, until something fires. What is told of its length before stays true or the connection ends badly, as it should.
pub(super) struct Until {
    inner: Body,
    end: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Until {
    /// `inner`, until `end` fires.
    pub(super) fn new(inner: Body, end: CancellationToken) -> Self {
        Self { inner, end: Box::pin(end.cancelled_owned()) }
    }
}

impl HttpBody for Until {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        // What is whole already may go out whole.
        if this.inner.size_hint().exact().is_none() && this.end.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        Pin::new(&mut this.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
