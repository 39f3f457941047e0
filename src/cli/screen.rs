//! Writing to the terminal: the only place that prints.
//!
//! Text that came from elsewhere (models, tools, files) is cleaned first, so that it cannot move the
//! cursor or change colours. A reader that has gone is no reason to stop; a stdout that takes nothing is one to fail, at the end.
//! A reader that is slow is waited for, until the process is to end.

use std::borrow::Cow;
use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::base::clock::now_text;
use crate::config::LogFormat;

/// Why something could not be printed on stdout, the first time.
static UNPRINTED: OnceLock<String> = OnceLock::new();
/// Asks this process to end, where signals only ask.
static STOP: OnceLock<CancellationToken> = OnceLock::new();
/// Where a last word was given up: what takes nothing is not waited for again.
static STUCK_STDOUT: AtomicBool = AtomicBool::new(false);
static STUCK_STDERR: AtomicBool = AtomicBool::new(false);
/// How long a reader is waited for once the process is to end.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// How often it is looked whether it is.
const LOOK: Duration = Duration::from_millis(50);

/// From now on signals only ask this process to end, and this is how it hears that: nobody who does not read keeps it then.
pub(super) fn end_with(stop: &CancellationToken) {
    // There is one end.
    let _ = STOP.set(stop.clone());
}

/// Waits for a write, which may take as long as its reader likes: to the end of the process and a little longer. `last`: the
/// process is about to end.
fn waited(last: bool, stuck: &AtomicBool, write: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
    let stop = STOP.get();
    if stop.is_none() && !last {
        // A signal ends the process, whatever it waits for.
        return write();
    }
    let (done, wait) = sync_channel(1);
    let writing = move || drop(done.send(write()));
    std::thread::Builder::new().name("screen".to_owned()).spawn(writing)?;
    let mut until = None;
    loop {
        match wait.recv_timeout(LOOK) {
            Ok(written) => return written,
            Err(RecvTimeoutError::Disconnected) => return Err(io::Error::other("the thread that writes has ended")),
            Err(RecvTimeoutError::Timeout) if last || stop.is_some_and(CancellationToken::is_cancelled) => {
                let until = *until.get_or_insert_with(|| Instant::now() + LAST_WORDS);
                if stuck.load(Ordering::Relaxed) || Instant::now() >= until {
                    stuck.store(true, Ordering::Relaxed);
                    return Err(ErrorKind::TimedOut.into());
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// Prints a line on stdout.
pub(super) fn line(text: &str) {
    piece(&format!("{text}\n"));
}

/// Prints a piece of text on stdout, at once.
pub(super) fn piece(text: &str) {
    match print(text) {
        Err(cause) if cause.kind() != ErrorKind::BrokenPipe => drop(UNPRINTED.set(cause.to_string())),
        Ok(()) | Err(_) => {}
    }
}

/// The same for what must not be lost.
///
/// # Errors
/// Why it could not be printed.
pub(super) fn print(text: &str) -> io::Result<()> {
    let text = text.to_owned();
    waited(false, &STUCK_STDOUT, move || {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    })
}

/// Why something that was to be on stdout is not there. A reader that has gone is none.
pub(super) fn unprinted() -> Option<&'static str> {
    UNPRINTED.get().map(String::as_str)
}

/// Stdout as a place for many lines.
pub(super) fn out() -> impl Write {
    std::io::BufWriter::new(std::io::stdout().lock())
}

/// Prints a line on stderr.
pub(super) fn note(text: &str) {
    remark(text, false);
}

/// Prints a line on stderr, as the last thing that is done.
pub(super) fn last(text: impl std::fmt::Display) {
    last_as(LogFormat::Text, text);
}

/// The same, as the lines of a log of that format are.
pub(super) fn last_as(format: LogFormat, text: impl std::fmt::Display) {
    remark(&sentence(format, "ERROR", &text.to_string()), true);
}

/// What the program says of itself, as a line of a log of that format: whoever reads JSON reads nothing else.
pub(super) fn sentence(format: LogFormat, level: &str, text: &str) -> String {
    match format {
        LogFormat::Text => format!("simse: {text}"),
        LogFormat::Json => json!({ "timestamp": now_text(), "level": level, "message": text }).to_string(),
    }
}

/// Prints a piece of text on stderr, at once.
pub(super) fn aside(text: &str) {
    remark_piece(text.to_owned(), false);
}

fn remark(text: &str, last: bool) {
    remark_piece(format!("{text}\n"), last);
}

fn remark_piece(text: String, last: bool) {
    // Where stderr is gone there is nobody to tell.
    drop(waited(last, &STUCK_STDERR, move || io::stderr().lock().write_all(text.as_bytes())));
}

/// Prints why something cannot go on, on stderr.
pub(super) fn problem(text: impl std::fmt::Display) {
    note(&format!("simse: {text}"));
}

/// The text without control characters, line breaks and tabs excepted.
pub(super) fn clean(text: &str) -> Cow<'_, str> {
    let bad = |c: char| c.is_control() && c != '\n' && c != '\t';
    if text.contains(bad) { Cow::Owned(text.replace(bad, "\u{fffd}")) } else { Cow::Borrowed(text) }
}

/// The first `chars_max` characters on one line, with a mark where something is left out.
pub(super) fn short(text: &str, chars_max: usize) -> String {
    let flat = clean(text).replace(['\n', '\t'], " ");
    match flat.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{} …", flat.get(..end).unwrap_or_default()),
        None => flat,
    }
}

/// The first and last lines, each indented, with a count of what is left out between them.
pub(super) fn excerpt(text: &str, lines_max: usize) -> String {
    let text = clean(text.trim_end());
    let lines: Vec<&str> = text.lines().collect();
    let show = |lines: &[&str]| lines.iter().map(|line| format!("      {}\n", short(line, 150))).collect::<String>();
    if lines.len() <= lines_max + 1 {
        return show(&lines);
    }
    let (head, tail) = (lines_max / 3, lines_max - lines_max / 3);
    let (first, rest) = lines.split_at(head);
    let (middle, last) = rest.split_at(rest.len() - tail);
    format!("{}      … {} more lines …\n{}", show(first), middle.len(), show(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_from_elsewhere_cannot_steer_the_terminal() {
        assert_eq!(clean("a\u{1b}[2Jb\r\n\tc\u{9b}"), "a\u{fffd}[2Jb\u{fffd}\n\tc\u{fffd}");
        assert_eq!(short("one\ntwo three", 7), "one two …");
        assert_eq!(short("äöü", 3), "äöü");
    }

    #[test]
    fn an_excerpt_keeps_both_ends() {
        let text = (1..=20).map(|n| n.to_string()).collect::<Vec<_>>().join("\n");
        let shown = excerpt(&text, 6);
        assert_eq!(shown.lines().count(), 7);
        assert!(shown.starts_with("      1\n      2\n      … 14 more lines …\n      17\n"), "{shown}");
        assert_eq!(excerpt("a\nb\n", 6), "      a\n      b\n");
    }
}
