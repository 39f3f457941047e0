//! The two streams of a program that nobody reads for messages: what is written to it, and what it says for people.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use super::Connection;
use crate::base::process::{ChildStderr, ChildStdin};
use crate::base::{limit, text};

/// Writes lines to it as they come.
pub(super) async fn write(
    connection: Arc<Connection>,
    mut stdin: ChildStdin,
    mut lines: mpsc::UnboundedReceiver<String>,
) {
    while let Some(line) = lines.recv().await {
        // A program that has ended is noticed where it is read.
        if stdin.write_all(line.as_bytes()).await.is_err() || stdin.flush().await.is_err() {
            return;
        }
        connection.unread.fetch_sub(1, Ordering::AcqRel);
        connection.unread_bytes.fetch_sub(line.len(), Ordering::AcqRel);
    }
}

/// Reads the error stream to its end, and keeps what came last.
pub(super) async fn drain(connection: Arc<Connection>, mut stderr: ChildStderr, said: Arc<Mutex<Vec<u8>>>) {
    let mut chunk = vec![0; 8 * 1024];
    let mut lines = text::Gathered::default();
    let told = |line: &[u8]| {
        let text = connection.secrets.hide(String::from_utf8_lossy(line));
        tracing::debug!(agent = connection.name, %text, "an agent's error stream");
    };
    while let Ok(count @ 1..) = stderr.read(&mut chunk).await {
        lines.take(&chunk[..count], told);
        let mut said = said.lock();
        said.extend_from_slice(&chunk[..count]);
        let over = said.len().saturating_sub(limit::ACP_STDERR_BYTES_MAX);
        said.drain(..over);
    }
    lines.end(told);
}
