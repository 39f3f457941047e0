//! Lines from standard input, as somebody types them.

use std::io::BufRead;

use tokio::sync::mpsc;

use super::screen;

/// Lines that may be typed before they are read.
const LINES_MAX: usize = 256;

/// Lines from standard input, until its end. The thread that reads them cannot be ended; it goes with the process.
pub(super) fn lines() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(LINES_MAX);
    let reading = move || {
        for text in std::io::stdin().lock().lines().map_while(Result::ok) {
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
