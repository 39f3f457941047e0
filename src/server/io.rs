//! A socket that does not wait for ever for a client that has stopped reading.
//!
//! Every byte of every answer passes here, so one deadline covers answers and streams alike: a write
//! that makes no progress for `timeout` fails, the connection ends, and what belonged to it is freed.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// A byte stream with a deadline on writes.
#[derive(Debug)]
pub(crate) struct WriteDeadline<T> {
    inner: T,
    timeout: Duration,
    /// Runs while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<T> WriteDeadline<T> {
    /// Bounds each wait of a write.
    pub(crate) fn new(inner: T, timeout: Duration) -> Self {
        Self { inner, timeout, waiting: None }
    }

    fn hold<V>(&mut self, cx: &mut Context<'_>, outcome: Poll<io::Result<V>>) -> Poll<io::Result<V>> {
        if outcome.is_ready() {
            self.waiting = None;
            return outcome;
        }
        let timeout = self.timeout;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        match waiting.as_mut().poll(cx) {
            Poll::Ready(()) => {
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client has stopped reading")))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for WriteDeadline<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for WriteDeadline<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.inner).poll_write(cx, data);
        this.hold(cx, outcome)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.inner).poll_write_vectored(cx, parts);
        this.hold(cx, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.inner).poll_flush(cx);
        this.hold(cx, outcome)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.inner).poll_shutdown(cx);
        this.hold(cx, outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_has_stopped_is_noticed() {
        let (ours, _theirs) = tokio::io::duplex(8);
        let mut writer = WriteDeadline::new(ours, Duration::from_secs(30));
        let error = writer.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_is_not() {
        let (ours, mut theirs) = tokio::io::duplex(8);
        let mut writer = WriteDeadline::new(ours, Duration::from_secs(30));
        let reader = tokio::spawn(async move {
            let mut total = 0;
            let mut piece = [0; 4];
            while let Ok(read @ 1..) = theirs.read(&mut piece).await {
                total += read;
                tokio::time::sleep(Duration::from_secs(20)).await;
            }
            total
        });
        writer.write_all(&[0; 64]).await.unwrap();
        drop(writer);
        assert_eq!(reader.await.unwrap(), 64);
    }
}
