//! Lines from standard input, as somebody types them.

use std::io::BufRead;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::mpsc;

use super::screen;

/// Lines that may be typed before they are read.
const LINES_MAX: usize = 256;

/// Whether a line of standard input could not be read. There is one standard input.
static BROKEN: AtomicBool = AtomicBool::new(false);

/// Whether the lines ended at one that could not be read: it was said, and what stands behind it was not done.
pub(super) fn ended_early() -> bool {
    BROKEN.load(Ordering::Acquire)
}

fn unread(line: u64, cause: &std::io::Error) {
    BROKEN.store(true, Ordering::Release);
    let cause = match cause.kind() {
        std::io::ErrorKind::InvalidData => "expected UTF-8".to_owned(),
        _ => cause.to_string(),
    };
    screen::problem(format_args!("standard input, line {line}: {cause}; nothing from there on is read"));
}

/// Lines from standard input, until its end. The thread that reads them cannot be ended; it goes with the process.
pub(super) fn lines() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(LINES_MAX);
    let reading = move || {
        for (text, number) in std::io::stdin().lock().lines().zip(1_u64..) {
            let Ok(text) = text.map_err(|cause| unread(number, &cause)) else { break };
            if sender.blocking_send(text).is_err() {
                break;
            }
        }
    };
    if let Err(cause) = std::thread::Builder::new().name("terminal".to_owned()).spawn(reading) {
        screen::problem(format_args!("the terminal cannot be read: {cause}"));
    }
    receiver
}
