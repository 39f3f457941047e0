//! The terminal itself: taken for an interface, and given back as it was, whatever happens.

use std::io::{self, Stdout, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use crossterm::event::{
    DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture, Event, poll, read,
};
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, SetTitle, disable_raw_mode, enable_raw_mode};
use crossterm::{cursor, execute};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use tokio::sync::mpsc;

use crate::base::process::attended;
use crate::config::editor_program;

/// Keys that may wait.
const KEYS_MAX: usize = 4096;
/// How often the thread that reads looks whether it is to hold.
const LOOK: Duration = Duration::from_millis(100);
/// What that thread does.
const READS: u8 = 0;
/// It is to hold.
const HOLDS: u8 = 1;
/// It holds.
const HELD: u8 = 2;
/// Largest text that comes back from a program, in bytes.
const WRITTEN_MAX: u64 = 4 << 20;

/// A terminal that shows an interface. Dropped, it is as it was before.
pub(super) struct Screen {
    /// What is drawn on.
    pub(super) terminal: Terminal<CrosstermBackend<Stdout>>,
    held: Arc<AtomicU8>,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn open() -> io::Result<(Self, mpsc::Receiver<Event>)> {
        let terminal = Terminal::new(CrosstermBackend::new(stdout()))?;
        let held = Arc::<AtomicU8>::default();
        let keys = keys(Arc::clone(&held))?;
        let screen = Self { terminal, held };
        enter()?;
        Ok((screen, keys))
    }

    /// Gives the terminal to the shell until the user comes back (Ctrl-Z, `fg`).
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        let stop = || rustix::process::kill_process_group(rustix::process::getpgrp(), rustix::process::Signal::TSTP);
        self.away(stop)?.map_err(Into::into)
    }

    /// Lets the user write a text in a program of his own (`VISUAL`, else `EDITOR`, else vi). In the inner result: why there is none.
    ///
    /// # Errors
    /// What the terminal says.
    pub(super) fn write_elsewhere(&mut self, text: &str) -> io::Result<Result<String, String>> {
        self.away(|| written(text, &editor_program()))
    }

    /// Does something while the terminal is as it was before.
    fn away<T>(&mut self, work: impl FnOnce() -> T) -> io::Result<T> {
        self.held.store(HOLDS, Ordering::Release);
        let since = Instant::now();
        // What is typed from now on is not ours to read.
        while self.held.load(Ordering::Acquire) != HELD && since.elapsed() < 4 * LOOK {
            std::thread::sleep(Duration::from_millis(5));
        }
        leave();
        let done = work();
        self.held.store(READS, Ordering::Release);
        enter()?;
        self.terminal.clear()?;
        Ok(done)
    }

    /// Puts a text into the clipboard of the terminal (OSC 52).
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn copy(&mut self, text: &str) -> io::Result<()> {
        use std::io::Write as _;

        use base64::Engine as _;
        let data = base64::engine::general_purpose::STANDARD.encode(text);
        let mut out = stdout();
        write!(out, "\u{1b}]52;c;{data}\u{7}")?;
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.held.store(HOLDS, Ordering::Release);
        leave();
    }
}

/// What a program has made of a text, in a file that nobody else can read.
fn written(text: &str, program: &str) -> Result<String, String> {
    let failed = |cause: io::Error| format!("{program}: {cause}");
    let file = tempfile::Builder::new().prefix("simse-prompt-").suffix(".md").tempfile().map_err(failed)?;
    std::fs::write(file.path(), text).map_err(failed)?;
    let ended = attended(program, file.path()).map_err(failed)?;
    if !ended.success() {
        return Err(format!("{program} failed ({ended}): what is written stays"));
    }
    // An editor may have put another file in its place.
    let found = std::fs::metadata(file.path()).map_err(failed)?;
    if !found.is_file() {
        return Err(format!("{program} has put something else in the place of the file"));
    }
    if found.len() > WRITTEN_MAX {
        return Err(format!("{program}: a text of at most {WRITTEN_MAX} bytes is taken"));
    }
    let text = std::fs::read_to_string(file.path()).map_err(failed)?;
    Ok(text.trim_end().to_owned())
}

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen, EnableBracketedPaste, EnableMouseCapture, SetTitle("simse"))
}

/// Gives it back. What fails here cannot be told anywhere.
fn leave() {
    let _ = execute!(stdout(), DisableMouseCapture, DisableBracketedPaste, LeaveAlternateScreen, cursor::Show);
    let _ = disable_raw_mode();
}

/// What the terminal says, read by a thread of its own.
fn keys(held: Arc<AtomicU8>) -> io::Result<mpsc::Receiver<Event>> {
    let (sender, receiver) = mpsc::channel(KEYS_MAX);
    let reading = move || {
        while !sender.is_closed() {
            if held.load(Ordering::Acquire) != READS {
                // Who has let it go on meanwhile is not held up.
                let _ = held.compare_exchange(HOLDS, HELD, Ordering::AcqRel, Ordering::Acquire);
                std::thread::sleep(LOOK / 4);
                continue;
            }
            match poll(LOOK) {
                Ok(false) => {}
                Ok(true) => {
                    if read().map(|event| sender.blocking_send(event)).is_ok_and(|sent| sent.is_ok()) {
                        continue;
                    }
                    return;
                }
                Err(_) => return,
            }
        }
    };
    std::thread::Builder::new().name("keys".to_owned()).spawn(reading)?;
    Ok(receiver)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_what_the_program_has_made_of_it() {
        assert_eq!(written("one", "sed -i -e 's/one/two/'"), Ok("two".to_owned()));
        // One that puts another file in its place.
        assert_eq!(written("one", "sh -c 'echo new > \"$0.new\"; mv \"$0.new\" \"$0\"'"), Ok("new".to_owned()));
        let failed = written("one", "exit 7; true").unwrap_err();
        assert!(failed.contains("exit status: 7") && failed.contains("stays"), "{failed}");
        assert!(written("one", "sh -c 'head -c 5000000 /dev/zero > \"$0\"'").unwrap_err().contains("at most"));
        let pipe = written("one", "sh -c 'rm \"$0\"; mkfifo \"$0\"'").unwrap_err();
        assert!(pipe.contains("something else"), "{pipe}");
    }
}
