//! Holds back the answers that hyper writes by itself, so that they can be said in our own words.
//!
//! To what is no HTTP hyper answers before any of our code is called: a status, and nothing else. It
//! then ends the connection in the same poll, with an error. So what looks like such an answer is kept
//! here until that poll is over: `connection` then either says something better in its place, or lets
//! go of what was something else.
//!
//! The other way round, a head of which the body's end is unclear (`framing`) does not reach hyper, nor what comes behind
//! chunks that are none: for it the connection ends before that head's end, or that line's.
//!
//! Invariant: all bytes that are let go reach the socket, in their order; only what is taken by
//! [`Held::take`] does not.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::framing::{Framing, Unclear};

/// A bare answer is a status line, `connection`, `content-length: 0` and `date`.
const BARE_BYTES_MAX: usize = 200;

/// What is held back of one connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Held(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    bytes: Vec<u8>,
    /// It was something else: on with it.
    let_go: bool,
    /// Where the request ends that is being read is unclear.
    unclear: Option<Unclear>,
    /// What comes is no HTTP any more.
    upgraded: bool,
}

impl Held {
    /// The connection becomes one of another kind: what comes in it from now on is nobody's head.
    pub(super) fn upgrade(&self) {
        self.0.lock().upgraded = true;
    }

    /// Lets go of what is held. False: nothing is.
    pub(super) fn let_go(&self) -> bool {
        let mut state = self.0.lock();
        let some = !state.bytes.is_empty() && !state.let_go;
        state.let_go |= some;
        some
    }

    /// Takes what is held; it will not be written. Empty: nothing was.
    pub(super) fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.lock().bytes)
    }

    /// Why the connection ends, when it is because of a request that can be read in two ways.
    pub(super) fn unclear(&self) -> Option<Unclear> {
        self.0.lock().unclear
    }
}

/// A byte stream that holds back what looks like hyper's own answer.
#[derive(Debug)]
pub(super) struct Holding<T> {
    inner: T,
    held: Held,
    framing: Framing,
}

impl<T: AsyncWrite + Unpin> Holding<T> {
    /// Puts it before `inner`.
    pub(super) fn new(inner: T, held: Held) -> Self {
        Self { inner, held, framing: Framing::default() }
    }

    /// The stream behind it.
    pub(super) fn into_inner(self) -> T {
        self.inner
    }

    /// Keeps `data` back when it has to be.
    fn keeps(&self, data: &[u8]) -> bool {
        let bare = is_bare(data);
        if bare {
            let mut state = self.held.0.lock();
            state.bytes.extend_from_slice(data);
            state.let_go = false;
        }
        bare
    }

    /// Writes what was held and is let go.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.held.0.lock();
        while !state.bytes.is_empty() {
            let written = ready!(Pin::new(&mut self.inner).poll_write(cx, &state.bytes))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            state.bytes.drain(..written);
        }
        state.let_go = false;
        Poll::Ready(Ok(()))
    }

    fn holds(&self) -> bool {
        let state = self.held.0.lock();
        !state.bytes.is_empty() && !state.let_go
    }
}

/// Whether this is, to the letter, an answer without a body that tells of a fault.
fn is_bare(data: &[u8]) -> bool {
    let fault = data.len() <= BARE_BYTES_MAX && data.starts_with(b"HTTP/1.") && data.get(9) == Some(&b'4');
    fault && data.ends_with(b"\r\n\r\n") && memchr::memmem::find(data, b"\r\ncontent-length: 0\r\n").is_some()
}

impl<T: AsyncRead + Unpin> AsyncRead for Holding<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.held.unclear().is_some() {
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(cx, buf))?;
        if this.held.0.lock().upgraded {
            return Poll::Ready(Ok(()));
        }
        if let Some((end, unclear)) = this.framing.follow(&buf.filled()[before..]) {
            this.held.0.lock().unclear = Some(unclear);
            buf.set_filled(before + end);
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Holding<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        // Something comes behind it, so it was not the last word.
        ready!(this.poll_rest(cx))?;
        if this.keeps(data) {
            return Poll::Ready(Ok(data.len()));
        }
        Pin::new(&mut this.inner).poll_write(cx, data)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_rest(cx))?;
        match parts {
            [only] if this.keeps(only) => Poll::Ready(Ok(only.len())),
            parts => Pin::new(&mut this.inner).poll_write_vectored(cx, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.holds() {
            ready!(this.poll_rest(cx))?;
        }
        Pin::new(&mut this.inner).poll_flush(cx)
    }

    /// Leaves the stream open while something is held: who takes that has something else to say.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.holds() {
            return Poll::Ready(Ok(()));
        }
        ready!(this.poll_rest(cx))?;
        Pin::new(&mut this.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const BARE: &[u8] = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

    #[test]
    fn only_an_empty_fault_is_bare() {
        #[rustfmt::skip]
        let table: [(&[u8], bool); 7] = [
            (BARE, true),
            (b"HTTP/1.0 431 Request Header Fields Too Large\r\ncontent-length: 0\r\ndate: x\r\n\r\n", true),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", false),
            (b"HTTP/1.1 404 Not Found\r\ncontent-length: 70\r\n\r\n", false),
            (b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\nmore", false),
            (b"data: HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n", false),
            (b"", false),
        ];
        for (data, want) in table {
            assert_eq!(is_bare(data), want, "{}", String::from_utf8_lossy(data));
        }
    }

    #[tokio::test]
    async fn what_only_looks_like_one_is_late_at_most() {
        let (ours, mut theirs) = tokio::io::duplex(1000);
        let held = Held::default();
        let mut stream = Holding::new(ours, held.clone());
        stream.write_all(BARE).await.unwrap();
        stream.flush().await.unwrap();
        let mut seen = vec![0; BARE.len()];
        assert!(theirs.read_exact(&mut seen).now_or_never().is_none(), "it is held");
        assert!(held.let_go() && !held.let_go());
        stream.flush().await.unwrap();
        theirs.read_exact(&mut seen).await.unwrap();
        assert_eq!(seen, BARE);
        // What comes behind it lets it go as well.
        stream.write_all(BARE).await.unwrap();
        stream.write_all(b"and more").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut rest = Vec::new();
        theirs.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, [BARE, b"and more"].concat());
    }

    #[tokio::test]
    async fn what_is_taken_is_not_written() {
        let (ours, mut theirs) = tokio::io::duplex(1000);
        let held = Held::default();
        let mut stream = Holding::new(ours, held.clone());
        stream.write_all(b"before").await.unwrap();
        stream.write_all(BARE).await.unwrap();
        stream.shutdown().await.unwrap();
        assert_eq!(held.take(), BARE);
        let mut stream = stream.into_inner();
        stream.write_all(b", after").await.unwrap();
        drop(stream);
        let mut all = String::new();
        theirs.read_to_string(&mut all).await.unwrap();
        assert_eq!(all, "before, after");
    }
}
