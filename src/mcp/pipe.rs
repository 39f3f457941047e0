//! What comes out of a server's process: its messages, guarded, and its error stream, drained.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

use crate::base::secrets::Secrets;
use crate::base::{limit, text};

/// One read of the error stream.
const CHUNK_BYTES: usize = 4 * 1024;
/// Of a line of the error stream that is logged, in bytes.
const LOGGED_BYTES_MAX: usize = 400;
/// Of a word that was cut, in bytes.
const CUT_WORD_BYTES_MAX: usize = 512;

/// Passes lines on, and breaks off at one that is longer than a message may be.
///
/// A line that cannot be a message is told once; the protocol passes over it.
pub(super) struct Guarded<R> {
    inner: R,
    server: String,
    secrets: Secrets,
    fault: Fault,
    line_bytes: usize,
    line_bytes_max: usize,
    told: bool,
}

/// Why the output was broken off; empty as long as it was not.
pub(super) type Fault = Arc<Mutex<Option<String>>>;

impl<R> Guarded<R> {
    pub(super) fn new(inner: R, server: &str, fault: Fault) -> Self {
        let line_bytes_max = limit::MCP_MESSAGE_BYTES_MAX;
        let (server, secrets) = (server.to_owned(), Secrets::default());
        Self { inner, server, secrets, fault, line_bytes: 0, line_bytes_max, told: false }
    }

    /// The same, which repeats none of these.
    pub(super) fn hiding(self, secrets: Secrets) -> Self {
        Self { secrets, ..self }
    }

    /// The same with another limit.
    #[allow(dead_code, reason = "only properties take another limit")]
    pub(super) fn limited(self, line_bytes_max: usize) -> Self {
        Self { line_bytes_max, ..self }
    }

    /// Counts what came.
    fn watch(&mut self, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.split_inclusive(|&b| b == b'\n') {
            if self.line_bytes == 0 {
                self.look(piece);
            }
            self.line_bytes += piece.len();
            if self.line_bytes > self.line_bytes_max {
                let fault = format!("it sent a message of more than {} bytes", self.line_bytes_max);
                *self.fault.lock() = Some(fault.clone());
                return Err(io::Error::other(fault));
            }
            if piece.ends_with(b"\n") {
                self.line_bytes = 0;
            }
        }
        Ok(())
    }

    /// Messages are objects; some old ones come as lists.
    fn look(&mut self, start: &[u8]) {
        let line = start.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(start).trim_ascii();
        if self.told || line.is_empty() || line.starts_with(b"{") || line.starts_with(b"[") {
            return;
        }
        self.told = true;
        let sample = shown(line, (&self.secrets, 100));
        tracing::warn!(
            server = self.server,
            sample,
            "an MCP server writes what is no message to its standard output; it is passed over"
        );
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Guarded<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        let watched = self.watch(&buffer.filled()[before..]);
        if watched.is_err() {
            buffer.set_filled(before);
        }
        Poll::Ready(watched)
    }
}

/// The end of an error stream.
pub(super) type LastWords = Arc<Mutex<Vec<u8>>>;

/// Reads an error stream to its end: its lines, as far as they are shown, into the log (debug), and its last bytes into `words`.
pub(super) async fn drain(mut stream: impl AsyncRead + Unpin, (server, secrets): (String, Secrets), words: LastWords) {
    let mut chunk = vec![0; CHUNK_BYTES];
    // A secret that is cut lies beyond what is shown of a line.
    let mut lines = text::Gathered::default();
    let told = |line: &[u8]| {
        let said = shown(line, (&secrets, LOGGED_BYTES_MAX));
        tracing::debug!(server, said, "an MCP server wrote to its error stream");
    };
    while let Ok(count @ 1..) = stream.read(&mut chunk).await {
        let said = &chunk[..count];
        lines.take(said, told);
        let mut words = words.lock();
        words.extend_from_slice(said);
        let over = words.len().saturating_sub(limit::MCP_LAST_WORDS_BYTES_MAX);
        words.drain(..over);
    }
    lines.end(told);
}

/// The last words as a line of text; empty when there were none.
fn last_words((words, secrets): (&LastWords, &Secrets)) -> String {
    let bytes = words.lock().clone();
    // Of a word that was cut, nobody can say whether it is a secret's end.
    let cut = if bytes.len() < limit::MCP_LAST_WORDS_BYTES_MAX { 0 } else { CUT_WORD_BYTES_MAX };
    let start = bytes[..cut].iter().position(u8::is_ascii_whitespace).unwrap_or(cut);
    let told = secrets.hide(String::from_utf8_lossy(&bytes[start..]));
    let text: String = told.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What stands between a reason and the last words.
const BEFORE_LAST_WORDS: &str = "; its last words: ";

/// A reason and the last words, where there are any.
pub(super) fn with_last_words(reason: String, words: (&LastWords, &Secrets)) -> String {
    let words = last_words(words);
    if words.is_empty() { reason } else { format!("{reason}{BEFORE_LAST_WORDS}{words}") }
}

/// The reason alone.
pub(super) fn without_last_words(reason: &str) -> &str {
    reason.split_once(BEFORE_LAST_WORDS).map_or(reason, |(reason, _)| reason)
}

fn shown(bytes: &[u8], (secrets, bytes_max): (&Secrets, usize)) -> String {
    let told = secrets.hide(String::from_utf8_lossy(bytes.trim_ascii()));
    text::head(&told, bytes_max).escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_message_that_is_too_long_breaks_off() {
        let long = [vec![b'x'; limit::MCP_MESSAGE_BYTES_MAX - 1], b"\n{}\n".to_vec()].concat();
        for (bytes, fails) in [(long.clone(), false), ([b"{", long.as_slice()].concat(), true)] {
            let fault = Fault::default();
            let mut read = Vec::new();
            let done = Guarded::new(bytes.as_slice(), "s", Arc::clone(&fault)).read_to_end(&mut read).await;
            assert_eq!((done.is_err(), fault.lock().is_some()), (fails, fails));
            assert_eq!(read.len() == bytes.len(), !fails);
        }
    }

    #[tokio::test]
    async fn the_last_words_are_bounded_and_one_line() {
        let words = LastWords::default();
        let said = [vec![b'a'; 9_000], b"\n\x1b[31mno  key\xff\r\n".to_vec()].concat();
        drain(said.as_slice(), ("s".into(), Secrets::default()), Arc::clone(&words)).await;
        let text = last_words((&words, &Secrets::default()));
        assert!(text.ends_with("a [31mno key\u{fffd}") && text.len() <= limit::MCP_LAST_WORDS_BYTES_MAX + 3, "{text}");
    }
}
