//! The terminal itself: taken for an interface, and given back as it was, whatever happens.

use std::io::{self, Stdout, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossterm::event::{
    DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture, Event, poll, read,
};
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, SetTitle, disable_raw_mode, enable_raw_mode};
use crossterm::{cursor, execute};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use tokio::sync::mpsc;

/// Keys that may wait.
const KEYS_MAX: usize = 4096;
/// How often the thread that reads looks whether it is to hold.
const LOOK: Duration = Duration::from_millis(100);

/// A terminal that shows an interface. Dropped, it is as it was before.
pub(super) struct Screen {
    /// What is drawn on.
    pub(super) terminal: Terminal<CrosstermBackend<Stdout>>,
    held: Arc<AtomicBool>,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn open() -> io::Result<(Self, mpsc::Receiver<Event>)> {
        let terminal = Terminal::new(CrosstermBackend::new(stdout()))?;
        let held = Arc::<AtomicBool>::default();
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
        self.held.store(true, Ordering::Release);
        leave();
        let stopped = rustix::process::kill_process_group(rustix::process::getpgrp(), rustix::process::Signal::TSTP);
        self.held.store(false, Ordering::Release);
        enter()?;
        self.terminal.clear()?;
        stopped.map_err(Into::into)
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
        self.held.store(true, Ordering::Release);
        leave();
    }
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
fn keys(held: Arc<AtomicBool>) -> io::Result<mpsc::Receiver<Event>> {
    let (sender, receiver) = mpsc::channel(KEYS_MAX);
    let reading = move || {
        while !sender.is_closed() {
            if held.load(Ordering::Acquire) {
                std::thread::sleep(LOOK);
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
