//! What comes out of the program of an MCP server: how the bytes come changes nothing, what is passed on is what came, a message
//! that is too long breaks off, and last words are few and on one line.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, ReadBuf};

use super::pipe::{Fault, Guarded, LastWords, drain, with_last_words, without_last_words};
use crate::base::limit;
use crate::base::secrets::Secrets;

/// The longest line of these streams.
const LINE_BYTES_MAX: usize = 64;

/// Bytes that come so many at a time.
struct Pieces<'a>(&'a [u8], usize);

impl AsyncRead for Pieces<'_> {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let (piece, rest) = self.0.split_at(self.1.min(self.0.len()).min(buffer.remaining()));
        buffer.put_slice(piece);
        self.0 = rest;
        Poll::Ready(Ok(()))
    }
}

/// The property of the target `servers`. The first letter says of what: (m)essages, or the (e)rror stream; then the size of each
/// read, then what is read.
pub fn holds(data: &[u8]) {
    match data.split_first() {
        Some((b'm', [size, stream @ ..])) => messages(usize::from(*size % 9) + 1, stream),
        Some((b'e', [size, stream @ ..])) => errors(usize::from(*size % 9) + 1, stream),
        Some(_) | None => {}
    }
}

fn messages(size: usize, stream: &[u8]) {
    let shown = String::from_utf8_lossy(stream);
    let fault = Fault::default();
    let mut guarded = Guarded::new(Pieces(stream, size), "s", Arc::clone(&fault)).limited(LINE_BYTES_MAX);
    let mut passed = Vec::new();
    let done = guarded.read_to_end(&mut passed).now_or_never().expect("all of it is there");
    let too_long = stream.split_inclusive(|byte| *byte == b'\n').any(|line| line.len() > LINE_BYTES_MAX);
    assert_eq!((done.is_err(), fault.lock().is_some()), (too_long, too_long), "{shown}");
    assert!(stream.starts_with(&passed), "{shown}");
    assert!(too_long || passed.len() == stream.len(), "{shown}");
    let mut lines = passed.split_inclusive(|byte| *byte == b'\n');
    assert!(lines.all(|line| line.len() <= LINE_BYTES_MAX), "{shown}");
}

fn errors(size: usize, stream: &[u8]) {
    let told = |size: usize| {
        let words = LastWords::default();
        let errors = ("s".to_owned(), Secrets::default());
        drain(Pieces(stream, size), errors, Arc::clone(&words)).now_or_never().expect("all of it is there");
        assert!(words.lock().len() <= limit::MCP_LAST_WORDS_BYTES_MAX);
        with_last_words("it ended".to_owned(), (&words, &Secrets::default()))
    };
    let text = told(size);
    assert_eq!(text, told(1_000));
    assert!(!text.contains(char::is_control), "{text:?}");
    assert_eq!(without_last_words(&text), "it ended");
}

#[test]
fn every_input_holds() {
    crate::base::replay::replay("servers", b"me", holds);
}
